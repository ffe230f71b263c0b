/* What is read of a host: from files as the kernel writes them, from hwloc, and what a resource set
 * says of it. */
#include "../harness.h"
#include <runtime/view/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <weft/weft.h>

static struct topology topology;
static char root[] = "/tmp/weft-topology-XXXXXX";

static void put(const char *text, const char *path) {
    char whole[512], folder[512];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - whole), whole);
        mkdir(folder, 0700);
    }
    FILE *file = fopen(whole, "w");
    CHECK(file != NULL);
    fprintf(file, "%s\n", text);
    fclose(file);
}
static void put_of_cpu(int cpu, const char *file, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "devices/system/cpu/cpu%d/%s", cpu, file);
    put(text, path);
}
static void put_cache(int cpu, int index, const char *level, const char *type, const char *size,
                      const char *shared) {
    char file[64];
    snprintf(file, sizeof file, "cache/index%d/", index);
    char *end = file + strlen(file);
    put_of_cpu(cpu, strcat(file, "level"), level), *end = 0;
    put_of_cpu(cpu, strcat(file, "type"), type), *end = 0;
    put_of_cpu(cpu, strcat(file, "size"), size), *end = 0;
    put_of_cpu(cpu, strcat(file, "shared_cpu_list"), shared);
}

/* Two packages with two nodes each; a node has two cores of two threads: cpu and cpu + 8. */
static void make_host(void) {
    CHECK(mkdtemp(root) != NULL);
    put("0-7,8-15", "devices/system/cpu/online");
    put("0-3", "devices/system/node/online");
    for (int node = 0; node < 4; node++) {
        char path[64], list[32];
        snprintf(path, sizeof path, "devices/system/node/node%d/cpulist", node);
        snprintf(list, sizeof list, "%d-%d,%d,%d", 2 * node, 2 * node + 1, 2 * node + 8,
                 2 * node + 9);
        put(list, path);
    }
    for (int cpu = 0; cpu < 16; cpu++) {
        char siblings[32], wide[32];
        int core = cpu % 8, first = core / 4 * 4;
        snprintf(siblings, sizeof siblings, "%d,%d", core, core + 8);
        snprintf(wide, sizeof wide, "%d-%d,%d-%d", first, first + 3, first + 8, first + 11);
        put_of_cpu(cpu, "topology/physical_package_id", core < 4 ? "0" : "1");
        put_of_cpu(cpu, "topology/thread_siblings_list", siblings);
        put_cache(cpu, 0, "1", "Data", "32K", siblings);
        put_cache(cpu, 1, "1", "Instruction", "64K", siblings);
        put_cache(cpu, 2, "2", "Unified", "1024K", siblings);
        put_cache(cpu, 3, "3", "Unified", "16M", wide);
    }
}

static void remove_host(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK_EQ(system(command), 0);
    strcpy(root + strlen(root) - 6, "XXXXXX");
}

static weft_resource_set_t describe(uint64_t cpus) {
    static weft_resource_set_t set;
    memset(&set, 0, sizeof set);
    set.cpus[0] = cpus;
    set.host_id = 77;
    weft__topology_describe(&topology, &set);
    return set;
}

/* The whole of such a host. */
static void check_whole(const weft_resource_set_t *set, const char *source) {
    CHECK_EQ(strcmp(set->topology, source), 0);
    CHECK_EQ(set->n_packages, 2);
    CHECK_EQ(set->n_cores, 8);
    CHECK_EQ(set->n_numa_nodes, 4);
    CHECK_EQ(set->numa_node, 0);
    CHECK_EQ(set->package, 0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(set->node[i].number, i);
        CHECK_EQ(set->node[i].package, i / 2);
        CHECK_EQ(set->node[i].n_cpus, 4);
    }
    CHECK_EQ(set->n_caches, 3);
    CHECK(set->cache[0].level == 1 && set->cache[0].n == 8 && set->cache[0].size == 32 << 10);
    CHECK(set->cache[1].level == 2 && set->cache[1].n == 8 && set->cache[1].size == 1 << 20);
    CHECK(set->cache[2].level == 3 && set->cache[2].n == 2 && set->cache[2].size == 16 << 20);
}

TEST(packages_nodes_cores_and_caches_are_read_from_sysfs) {
    make_host();
    CHECK(weft__topology_by_sysfs(&topology, root));
    weft_resource_set_t set = describe(0xffff);
    check_whole(&set, "sysfs");
    remove_host();
}

TEST(a_set_counts_what_its_processors_have) {
    make_host();
    CHECK(weft__topology_by_sysfs(&topology, root));
    weft_resource_set_t set = describe(0x0c0c | 0x8000); /* 2, 3, 10, 11 and 15 */
    CHECK_EQ(set.n_cores, 3);
    CHECK_EQ(set.n_packages, 2);
    CHECK_EQ(set.n_numa_nodes, 2);
    CHECK(set.node[0].number == 1 && set.node[0].n_cpus == 4);
    CHECK(set.node[1].number == 3 && set.node[1].n_cpus == 1);
    CHECK_EQ(set.cache[2].n, 2);
    CHECK(set.node[0].ram_id != set.node[1].ram_id && set.node[0].ram_id != 0);
    remove_host();
}

TEST(what_is_not_described_is_unknown_and_no_error) {
    CHECK(mkdtemp(root) != NULL);
    CHECK(!weft__topology_by_sysfs(&topology, root));
    put("0-1,5000,nonsense", "devices/system/cpu/online");
    put_of_cpu(0, "topology/thread_siblings_list", "0-99999999");
    put_cache(0, 0, "9", "Data", "32K", "0");
    put_cache(0, 1, "2", "Unified", "", "7-3,-5");
    CHECK(weft__topology_by_sysfs(&topology, root));
    weft_resource_set_t set = describe(3);
    CHECK_EQ(set.n_cores, 2);
    CHECK_EQ(set.n_packages, 1);
    CHECK_EQ(set.package, -1);
    CHECK_EQ(set.n_caches, 0);
    CHECK_EQ(set.numa_node, -1);
    remove_host();
}

TEST(hwloc_finds_the_same) {
    setenv("HWLOC_SYNTHETIC",
           "pack:2 l3:1(size=16777216) numa:2 l2:2(size=1048576) l1d:1(size=32768) core:1 pu:2", 1);
    bool there = weft__topology_by_hwloc(&topology);
    unsetenv("HWLOC_SYNTHETIC");
    if (!there) SKIP("no hwloc here");
    weft_resource_set_t set = describe(0xffff);
    check_whole(&set, "hwloc");
}

TEST(hwloc_and_sysfs_agree_about_this_host) {
    static struct topology other;
    if (!weft__topology_by_hwloc(&other)) SKIP("no hwloc here");
    CHECK(weft__topology_by_sysfs(&topology, "/sys"));
    for (int cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        const struct topology_cpu *a = &topology.cpu[cpu], *b = &other.cpu[cpu];
        if (!a->known || !b->known) continue; /* hwloc leaves out what a control group forbids */
        CHECK_EQ(a->package, b->package);
        CHECK_EQ(a->core, b->core);
        CHECK_EQ(a->node, b->node);
        for (int i = 0; i < WEFT_MAX_CACHES; i++) CHECK_EQ(a->cache_size[i], b->cache_size[i]);
    }
}

TEST(the_setting_chooses_who_is_asked) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_view_t *view = NULL;
    weft_setting_t hwloc = {"hardware.topology", "hwloc"};
    weft_context_params_t with = {.settings = &hwloc, .n_settings = 1};
    static struct topology other;
    bool there = weft__topology_by_hwloc(&other);
    CHECK_EQ(weft_context_create(&with, &context), WEFT_OK);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), WEFT_OK);
    weft_view_params_t params = {.worker = worker, .engine = "single"};
    CHECK_EQ(weft_view_create_wait(&params, &view), WEFT_OK);
    const weft_resource_set_t *mine = weft_view_mine(view);
    CHECK_EQ(strcmp(mine->topology, there ? "hwloc" : "sysfs"), 0);
    CHECK(mine->n_packages >= 1 && mine->n_cores >= 1 && mine->n_cores <= mine->n_cpus);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

TEST(contexts_of_one_process_may_ask_different_sources) {
    static struct topology other;
    if (!weft__topology_by_hwloc(&other)) SKIP("no hwloc here");
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(strcmp(weft__topology("hwloc")->source, "hwloc"), 0);
        CHECK_EQ(strcmp(weft__topology("sysfs")->source, "sysfs"), 0);
        CHECK(weft__topology("auto") == weft__topology("sysfs"));
    }
}

/* ---- limits of control groups ---------------------------------------------------------------- */

static weft_resource_set_t limited_by(const char *groups) {
    char text[128];
    weft_resource_set_t set = {.ram_total = 64 << 20, .ram_free = 48 << 20};
    snprintf(text, sizeof text, "%s", groups);
    weft__ram_limit(&set, text, root);
    return set;
}

TEST(memory_is_limited_by_a_control_group_and_those_around_it) {
    CHECK(mkdtemp(root) != NULL);
    put("max", "job/memory.max");
    put("16777216", "job/step/memory.max"); /* the tightest is neither the first nor the last */
    put("12582912", "job/step/memory.current");
    put("33554432", "job/step/task/memory.max");
    put("1048576", "job/step/task/memory.current");
    weft_resource_set_t set = limited_by("1:cpu:/old\n0::/job/step/task\n");
    CHECK_EQ(set.ram_total, 16 << 20);
    CHECK_EQ(set.ram_free, 4 << 20);
    set = limited_by("0::/job\n"); /* without a limit */
    CHECK(set.ram_total == 64 << 20 && set.ram_free == 48 << 20);
    set = limited_by("1:memory:/job/step\n"); /* version 1 */
    CHECK_EQ(set.ram_total, 64 << 20);
    remove_host();
}
