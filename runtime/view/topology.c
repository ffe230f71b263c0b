/* The topology by sysfs, and what a resource set says of it. */
#include "topology.h"
#include "kernel_text.h"

#include <base/hash.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of sysfs, as "0-3,8" ------------------------------------------------------------- */

struct cpu_list {
    const char *text;
    int at, last; /* of the current range */
};
#define LIST_OF(text) \
    { (text), -1, -1 }

/* -1: that was the last one. Numbers from WEFT_MAX_CPUS on end it. */
static int next_of(struct cpu_list *list) {
    char *end;
    if (list->at < list->last) return ++list->at;
    if (*list->text == ',') list->text++;
    long first = strtol(list->text, &end, 10), last = first;
    if (end == list->text || first < 0 || first >= WEFT_MAX_CPUS) return -1;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    list->text = end;
    list->at = (int)first;
    list->last = last < WEFT_MAX_CPUS ? (int)last : WEFT_MAX_CPUS - 1;
    return list->at;
}

/* ---- by sysfs -------------------------------------------------------------------------------- */

static void read_nodes(struct topology *topology, const char *root) {
    char path[256], list[4096], nodes[4096];
    snprintf(path, sizeof path, "%s/devices/system/node/online", root);
    if (!read_text(path, nodes, sizeof nodes)) return;
    struct cpu_list all = LIST_OF(nodes);
    for (int node; (node = next_of(&all)) >= 0;) {
        snprintf(path, sizeof path, "%s/devices/system/node/node%d/cpulist", root, node);
        if (!read_text(path, list, sizeof list)) continue;
        struct cpu_list cpus = LIST_OF(list);
        for (int cpu; (cpu = next_of(&cpus)) >= 0;) topology->cpu[cpu].node = node;
    }
}

/* One cache is read once, for all processors behind it. */
static void read_cache(struct topology *topology, const char *folder, int index) {
    char path[320], text[4096], *unit;
    snprintf(path, sizeof path, "%s/index%d/type", folder, index);
    if (!read_text(path, text, sizeof text) || strncmp(text, "Instruction", 11) == 0) return;
    snprintf(path, sizeof path, "%s/index%d/level", folder, index);
    uint64_t level = read_number(path, 0) - 1;
    if (level >= WEFT_MAX_CACHES) return;
    snprintf(path, sizeof path, "%s/index%d/size", folder, index);
    if (!read_text(path, text, sizeof text)) return;
    uint64_t size = strtoull(text, &unit, 10);
    size *= *unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1;
    snprintf(path, sizeof path, "%s/index%d/shared_cpu_list", folder, index);
    if (!read_text(path, text, sizeof text)) return;
    struct cpu_list sharers = LIST_OF(text);
    int first = -1;
    for (int cpu; (cpu = next_of(&sharers)) >= 0;) {
        if (first < 0) first = cpu;
        topology->cpu[cpu].cache[level] = first;
        topology->cpu[cpu].cache_size[level] = size;
    }
}

static void read_caches(struct topology *topology, const char *root, int cpu) {
    enum { MOST = 8 };
    char folder[256];
    snprintf(folder, sizeof folder, "%s/devices/system/cpu/cpu%d/cache", root, cpu);
    if (topology->cpu[cpu].cache[0] >= 0) return; /* a sibling's, which has all of them */
    for (int index = 0; index < MOST; index++) read_cache(topology, folder, index);
}

static void read_cpu(struct topology *topology, const char *root, int cpu) {
    char path[256], text[4096];
    struct topology_cpu *c = &topology->cpu[cpu];
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/physical_package_id", root,
             cpu);
    c->package = (int32_t)read_number(path, UINT64_MAX);
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", root,
             cpu);
    if (read_text(path, text, sizeof text)) c->core = (int32_t)strtol(text, NULL, 10);
    c->known = c->core >= 0;
    read_caches(topology, root, cpu);
}

void weft__topology_forget(struct topology *topology) {
    memset(topology, 0, sizeof *topology);
    for (int cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        struct topology_cpu *c = &topology->cpu[cpu];
        c->package = c->core = c->node = -1;
        for (int i = 0; i < WEFT_MAX_CACHES; i++) c->cache[i] = -1;
    }
}

bool weft__topology_by_sysfs(struct topology *topology, const char *root) {
    char path[256], online[4096];
    bool any = false;
    weft__topology_forget(topology);
    snprintf(path, sizeof path, "%s/devices/system/cpu/online", root);
    if (!read_text(path, online, sizeof online)) return false;
    struct cpu_list all = LIST_OF(online);
    for (int cpu; (cpu = next_of(&all)) >= 0;) {
        read_cpu(topology, root, cpu);
        any |= topology->cpu[cpu].known;
    }
    read_nodes(topology, root);
    topology->source = "sysfs";
    return any;
}

/* ---- this host's ----------------------------------------------------------------------------- */

/* `source` is NULL before it was read, and "none" where it says nothing. */
static struct topology host_by_sysfs, host_by_hwloc;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The environment gives hwloc a host: then the program wants hwloc's answer. */
static bool hwloc_is_set(void) {
    return secure_getenv("HWLOC_XMLFILE") || secure_getenv("HWLOC_SYNTHETIC");
}

static void set_unknown(struct topology *topology) {
    weft__topology_forget(topology);
    topology->source = "none";
}

/* Reads it at the first call. NULL: it does not say. */
static const struct topology *topology_of(struct topology *host) {
    if (!host->source && !(host == &host_by_hwloc ? weft__topology_by_hwloc(host)
                                                  : weft__topology_by_sysfs(host, "/sys")))
        set_unknown(host);
    return strcmp(host->source, "none") == 0 ? NULL : host;
}

const struct topology *weft__topology(const char *by) {
    bool hwloc = strcmp(by, "hwloc") == 0 || (strcmp(by, "sysfs") != 0 && hwloc_is_set());
    struct topology *first = hwloc ? &host_by_hwloc : &host_by_sysfs;
    pthread_mutex_lock(&mutex);
    const struct topology *found = topology_of(first);
    if (!found) found = topology_of(hwloc ? &host_by_sysfs : &host_by_hwloc);
    pthread_mutex_unlock(&mutex);
    return found ? found : first;
}

/* ---- what a set says of it ------------------------------------------------------------------- */

static bool has_cpu(const weft_resource_set_t *set, unsigned cpu) {
    return set->cpus[cpu / 64] >> cpu % 64 & 1;
}

enum { OF_CORES = -1 };

static int32_t number_of(const struct topology_cpu *cpu, int level) {
    return level == OF_CORES ? cpu->core : cpu->cache[level];
}

/* How many cores, or caches of a level, the set's processors have; an unknown one counts. */
static uint32_t topology_count(const struct topology *topology, const weft_resource_set_t *set,
                               int level) {
    uint64_t seen[WEFT_MAX_CPUS / 64] = {0};
    uint32_t n = 0;
    for (unsigned cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        int32_t number = number_of(&topology->cpu[cpu], level);
        unsigned at = number < 0 || number >= WEFT_MAX_CPUS ? cpu : (unsigned)number;
        if (!has_cpu(set, cpu) || seen[at / 64] >> at % 64 & 1) continue;
        seen[at / 64] |= UINT64_C(1) << at % 64;
        n++;
    }
    return n;
}

static void describe_packages(const struct topology *topology, weft_resource_set_t *set) {
    int32_t seen[64];
    uint32_t n = 0;
    set->package = -1;
    for (unsigned cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        int32_t package = topology->cpu[cpu].package;
        uint32_t i = 0;
        if (!has_cpu(set, cpu) || package < 0) continue;
        while (i < n && seen[i] != package) i++;
        if (i == n && n < 64) seen[n++] = package;
        if (set->package < 0) set->package = package;
    }
    set->n_packages = n ? n : 1;
}

static void measure_node(weft_node_info_t *node, uint64_t host_id) {
    char path[64], text[2048];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node->number);
    node->ram_id = hash_more(hash_more(HASH_BEGIN, &host_id, sizeof host_id), &node->number,
                             sizeof node->number);
    if (!host_id) node->ram_id = 0;
    if (!read_text(path, text, sizeof text)) return;
    node->ram_total = bytes_after(text, "MemTotal:");
    node->ram_free = bytes_after(text, "MemFree:");
}

static weft_node_info_t *node_of(weft_resource_set_t *set, const struct topology_cpu *cpu) {
    for (uint32_t i = 0; i < set->n_numa_nodes; i++)
        if (set->node[i].number == cpu->node) return &set->node[i];
    if (set->n_numa_nodes == WEFT_MAX_NODES) return NULL;
    weft_node_info_t *node = &set->node[set->n_numa_nodes++];
    *node = (weft_node_info_t){.number = cpu->node, .package = cpu->package};
    measure_node(node, set->host_id);
    return node;
}

static void describe_nodes(const struct topology *topology, weft_resource_set_t *set) {
    set->n_numa_nodes = 0;
    for (unsigned cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        const struct topology_cpu *c = &topology->cpu[cpu];
        weft_node_info_t *node = has_cpu(set, cpu) ? node_of(set, c) : NULL;
        if (node) node->n_cpus++;
    }
    set->numa_node = set->n_numa_nodes ? set->node[0].number : -1;
}

static void describe_cache(const struct topology *topology, weft_resource_set_t *set, int level) {
    weft_cache_info_t cache = {.level = (uint32_t)level + 1};
    for (unsigned cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        const struct topology_cpu *c = &topology->cpu[cpu];
        if (has_cpu(set, cpu) && c->cache_size[level] > cache.size)
            cache.size = c->cache_size[level];
    }
    if (!cache.size) return; /* no such level, or a size that is not known */
    cache.n = topology_count(topology, set, level);
    set->cache[set->n_caches++] = cache;
}

void weft__topology_describe(const struct topology *topology, weft_resource_set_t *set) {
    snprintf(set->topology, sizeof set->topology, "%s", topology->source);
    set->n_caches = 0;
    set->n_cores = topology_count(topology, set, OF_CORES);
    describe_packages(topology, set);
    describe_nodes(topology, set);
    for (int level = 0; level < WEFT_MAX_CACHES; level++) describe_cache(topology, set, level);
}
