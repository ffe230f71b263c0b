/* What this process has of its host, as the kernel says it. */
#include "host.h"
#include "kernel_text.h"

#include <base/affinity.h>
#include <base/hash.h>
#include <base/host.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- processors ---------------------------------------------------------------------------- */

static void measure_cpus(weft_resource_set_t *set, const struct topology *topology) {
    struct affinity cpus;
    if (!weft__affinity_read(&cpus)) weft__affinity_only(&cpus, 0);
    int cpu = weft__affinity_next(&cpus, 0);
    for (; cpu >= 0 && cpu < WEFT_MAX_CPUS; cpu = weft__affinity_next(&cpus, cpu + 1)) {
        set->cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
        set->n_cpus++;
    }
    weft__topology_describe(topology, set);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void limit_to_group(weft_resource_set_t *set, const char *root, const char *group) {
    char path[512];
    snprintf(path, sizeof path, "%.64s%.400s/memory.max", root, group);
    uint64_t most = read_number(path, UINT64_MAX);
    snprintf(path, sizeof path, "%.64s%.400s/memory.current", root, group);
    uint64_t used = read_number(path, 0), left = most > used ? most - used : 0;
    if (most < set->ram_total) set->ram_total = most;
    if (most != UINT64_MAX && left < set->ram_free) set->ram_free = left;
}

/* The limits of the control group (version 2) and of those around it. */
void weft__ram_limit(weft_resource_set_t *set, char *groups, const char *root) {
    char *group = groups;
    while (group && strncmp(group, "0::", 3) != 0) {
        group = strchr(group, '\n');
        if (group) group++;
    }
    if (!group) return;
    group += 3;
    group[strcspn(group, "\n")] = 0;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        limit_to_group(set, root, group);
    }
}

static uint64_t resident_bytes(void) {
    char text[128];
    unsigned long long all, resident = 0;
    if (!read_text("/proc/self/statm", text, sizeof text)) return 0;
    sscanf(text, "%llu %llu", &all, &resident);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void measure_ram(weft_resource_set_t *set) {
    char text[4096];
    if (read_text("/proc/meminfo", text, sizeof text)) {
        set->ram_total = bytes_after(text, "MemTotal:");
        set->ram_free = bytes_after(text, "MemAvailable:");
    }
    if (read_text("/proc/self/cgroup", text, sizeof text))
        weft__ram_limit(set, text, "/sys/fs/cgroup");
    set->ram_used = resident_bytes();
    set->ram_id = set->host_id;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static uint64_t host_id(void) {
    char boot[HOST_BOOT_ROOM];
    size_t len = weft__host_boot(boot);
    return len ? hash_more(HASH_BEGIN, boot, len) | 1 : 0;
}

/* Of a boot of a host, a process and its start: a process id may be used again. */
static uint64_t process_id(const weft_resource_set_t *set) {
    char text[1024];
    bool known = read_text("/proc/self/stat", text, sizeof text);
    uint64_t hash = hash_more(HASH_BEGIN, &set->host_id, sizeof set->host_id);
    const char *at = known ? strrchr(text, ')') : NULL; /* the end of its name */
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' '); /* 22: start time */
    size_t len = at ? strcspn(at + 1, " ") : 0;
    return hash_more(hash_more(hash, at ? at + 1 : "", len), &set->pid, sizeof set->pid);
}

void weft__resource_set_measure(weft_resource_set_t *set, const struct topology *topology) {
    uint32_t rank = set->rank;
    memset(set, 0, sizeof *set);
    set->rank = rank;
    set->pid = getpid();
    set->host_id = host_id();
    set->process_id = process_id(set);
    gethostname(set->host, sizeof set->host - 1);
    measure_cpus(set, topology);
    measure_ram(set);
    weft__devices_measure(set);
}
