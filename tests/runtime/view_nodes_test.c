/* Several NUMA nodes, as hwloc describes a made-up host: a node for each processor. Parts of views,
 * sharers of banks, and tasks that name a node. */
#define _GNU_SOURCE
#include "view_processes.h"

#include <runtime/graph/graph.h>
#include <runtime/view/topology.h>
#include <sched.h>
#include <stdatomic.h>

static struct topology made_up;
static int cpu_of[2]; /* two processors that this process may use, and their nodes */

static bool make_nodes(void) {
    cpu_set_t cpus;
    char text[64];
    int n = 0;
    CHECK_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    for (int cpu = 0; cpu < WEFT_MAX_CPUS && cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &cpus)) cpu_of[n++] = cpu;
    if (n < 2) return false;
    snprintf(text, sizeof text, "numa:%d core:1 pu:1", cpu_of[1] + 1);
    setenv("HWLOC_SYNTHETIC", text, 1);
    return true;
}

static void bind_to(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

/* Ranks 0 and 3 run beside the first node, 1 and 2 beside the second, the last beside both. */
static void part_by_nodes(const char *store, uint32_t rank, uint32_t size) {
    static const int node[] = {0, 1, 1, 0, 0};
    weft_view_t *part = NULL;
    uint32_t ranks[4] = {0}, n = 0;
    bool has_both = rank == size - 1;
    if (!has_both) bind_to(cpu_of[node[rank]]);
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *mine = NULL;
    CHECK_EQ(weft_view_at_wait(view, rank, false, &mine), WEFT_OK);
    CHECK(strcmp(mine->topology, "hwloc") == 0 && mine->numa_node == cpu_of[node[rank]]);
    CHECK(mine->n_numa_nodes >= (has_both ? 2 : 1));
    CHECK_EQ(weft_view_count_node_wait(view, mine, 0, &n), WEFT_OK);
    CHECK_EQ(n, 3); /* the last rank is beside either */
    CHECK_EQ(weft_view_partition_wait(view, WEFT_BY_NUMA_NODE, &part), WEFT_OK);
    CHECK_EQ(weft_view_size(part), node[rank] ? 2 : 3);
    CHECK_EQ(weft_view_gather_wait(part, NULL, &rank, sizeof rank, ranks), WEFT_OK);
    for (uint32_t i = 0; i < weft_view_size(part); i++) {
        CHECK_EQ(node[ranks[i]], node[rank]);
        CHECK(i == 0 || ranks[i - 1] < ranks[i]);
    }
    CHECK_EQ(weft_view_release_wait(part), WEFT_OK);
    CHECK_EQ(weft_view_partition_wait(view, WEFT_BY_HOST, &part), WEFT_OK);
    CHECK_EQ(weft_view_size(part), size);
    CHECK_EQ(weft_view_release_wait(part), WEFT_OK);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(parts_by_numa_node_are_the_processes_beside_one_bank) {
    if (!make_nodes()) SKIP("one processor here");
    bool there = weft__topology_by_hwloc(&made_up);
    if (there) in_processes(5, part_by_nodes);
    unsetenv("HWLOC_SYNTHETIC");
    if (!there) SKIP("no hwloc here");
}

static _Atomic int n_ran, n_elsewhere;
static weft_status_t note_cpu(weft_task_call_t *call) {
    n_ran++;
    n_elsewhere += sched_getcpu() != *(const int *)call->arg;
    return WEFT_OK;
}

/* Two threads, each bound to a processor of another node. */
static void use_nodes(const char *store, uint32_t rank, uint32_t size) {
    weft_graph_t *graph = NULL;
    (void)store, (void)rank, (void)size;
    CHECK_EQ(weft_graph_create(&(weft_graph_params_t){.n_threads = 2, .pin = 1}, &graph), WEFT_OK);
    for (int i = 0; i < 200; i++) {
        weft_task_params_t task = {
            .fn = note_cpu, .arg = &cpu_of[i % 2], .on_node = 1, .node = cpu_of[i % 2]};
        CHECK_EQ(weft_graph_add(graph, &task, NULL), WEFT_OK);
    }
    CHECK_EQ(weft_graph_run_wait(graph), WEFT_OK);
    CHECK(n_ran == 200 && n_elsewhere == 0);
    weft_graph_destroy(graph);
}

/* The context of its team says that sysfs is asked, whatever hwloc is given. */
static void use_a_team_of_sysfs(const char *store, uint32_t rank, uint32_t size) {
    weft_graph_t *graph = NULL;
    setenv("WEFT_HARDWARE_TOPOLOGY", "sysfs", 1);
    weft_view_t *view = join(store, rank, size);
    CHECK_EQ(strcmp(weft__topology("auto")->source, "hwloc"), 0); /* another's, in this process */
    weft_graph_params_t params = {.n_threads = 2, .pin = 1, .team = weft_view_team(view)};
    CHECK_EQ(weft_graph_create(&params, &graph), WEFT_OK);
    const struct topology *sysfs = weft__topology("sysfs");
    int node[2] = {sysfs->cpu[cpu_of[0]].node, sysfs->cpu[cpu_of[1]].node};
    CHECK_EQ(graph->n_nodes, (node[0] >= 0) + (node[1] >= 0 && node[1] != node[0]));
    weft_graph_destroy(graph);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_graph_reads_the_topology_that_the_context_of_its_team_names) {
    if (!make_nodes()) SKIP("one processor here");
    bool there = weft__topology_by_hwloc(&made_up);
    if (there) in_processes(1, use_a_team_of_sysfs);
    unsetenv("HWLOC_SYNTHETIC");
    if (!there) SKIP("no hwloc here");
}

TEST(a_task_that_names_a_node_runs_beside_it) {
    if (!make_nodes()) SKIP("one processor here");
    bool there = weft__topology_by_hwloc(&made_up);
    if (there) in_processes(1, use_nodes); /* this process may know its topology already */
    unsetenv("HWLOC_SYNTHETIC");
    if (!there) SKIP("no hwloc here");
}
