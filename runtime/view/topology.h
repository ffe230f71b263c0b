/*
 * Where the processors of this host are: in which package, core and NUMA node, behind which
 * caches. The kernel says it in sysfs; hwloc says it where sysfs does not, or where the program
 * wants what hwloc says.
 */
#ifndef WEFT_RUNTIME_VIEW_TOPOLOGY_H
#define WEFT_RUNTIME_VIEW_TOPOLOGY_H

#include <stdbool.h>
#include <weft/view.h>

/* A processor. Numbers of the kernel; -1: unknown. A core and a cache have the number of their
 * first processor. */
struct topology_cpu {
    bool known;
    int32_t package, core, node;
    int32_t cache[WEFT_MAX_CACHES]; /* of level i + 1: for data, or for data and instructions */
    uint64_t cache_size[WEFT_MAX_CACHES];
};

struct topology {
    const char *source; /* "sysfs", "hwloc" or "none" */
    struct topology_cpu cpu[WEFT_MAX_CPUS];
};

/* Nothing is known of any processor. */
void weft__topology_forget(struct topology *topology);
/* Of sysfs below `root` ("/sys"). False: it does not say. */
bool weft__topology_by_sysfs(struct topology *topology, const char *root);
/* Of hwloc, loaded for the call. False: there is none. */
bool weft__topology_by_hwloc(struct topology *topology);

/*
 * That of this host, by what a setting hardware.topology says. Each source is read once in a
 * process. Any thread.
 */
const struct topology *weft__topology(const char *by);

/* Fills in what a set says of packages, cores, nodes and caches, by its `cpus` and `host_id`. */
void weft__topology_describe(const struct topology *topology, weft_resource_set_t *set);

#endif
