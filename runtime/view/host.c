/* What this process has of its host, as the kernel says it. */
#include "host.h"

#include <base/hash.h>
#include <base/host.h>
#include <base/numa.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_text(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, size - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    return n > 0;
}

/* A number at the beginning of a file; `otherwise` where there is none ("max"). */
static uint64_t read_number(const char *path, uint64_t otherwise) {
    char text[64], *end;
    if (!read_text(path, text, sizeof text)) return otherwise;
    uint64_t value = strtoull(text, &end, 10);
    return end == text ? otherwise : value;
}

/* ---- processors ---------------------------------------------------------------------------- */

static bool has_cpu(const weft_resource_set_t *set, unsigned cpu) {
    return set->cpus[cpu / 64] >> cpu % 64 & 1;
}

static uint64_t core_of(unsigned cpu) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/physical_package_id", cpu);
    uint64_t package = read_number(path, 0);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/core_id", cpu);
    return package << 32 | read_number(path, cpu);
}

static uint32_t count_cores(const weft_resource_set_t *set) {
    uint64_t seen[WEFT_MAX_CPUS];
    uint32_t n = 0;
    for (unsigned cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        if (!has_cpu(set, cpu)) continue;
        uint64_t core = core_of(cpu);
        uint32_t i = 0;
        while (i < n && seen[i] != core) i++;
        if (i == n) seen[n++] = core;
    }
    return n;
}

static bool node_has(const weft_resource_set_t *set, unsigned node) {
    char path[128];
    for (unsigned cpu = 0; cpu < WEFT_MAX_CPUS; cpu++) {
        if (!has_cpu(set, cpu)) continue;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpu%u", node, cpu);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

static uint32_t count_nodes(weft_resource_set_t *set) {
    enum { MOST_NODES = 256 };
    char path[64];
    uint32_t n = 0;
    for (unsigned node = 0; node < MOST_NODES; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u", node);
        if (access(path, F_OK) != 0) break;
        bool has = node_has(set, node);
        if (has && n++ == 0) set->numa_node = (int32_t)node;
    }
    return n ? n : 1;
}

static void measure_cpus(weft_resource_set_t *set) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0) CPU_SET(0, &cpus);
    for (unsigned cpu = 0; cpu < WEFT_MAX_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus)) set->cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
    set->n_cpus = (uint32_t)CPU_COUNT(&cpus);
    set->n_cores = count_cores(set);
    set->numa_node = -1;
    set->n_numa_nodes = count_nodes(set);
}

/* ---- memory -------------------------------------------------------------------------------- */

static uint64_t meminfo(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

static void limit_to_group(weft_resource_set_t *set, const char *group) {
    char path[512];
    snprintf(path, sizeof path, "/sys/fs/cgroup%.400s/memory.max", group);
    uint64_t most = read_number(path, UINT64_MAX);
    snprintf(path, sizeof path, "/sys/fs/cgroup%.400s/memory.current", group);
    uint64_t used = read_number(path, 0), left = most > used ? most - used : 0;
    if (most < set->ram_total) set->ram_total = most;
    if (most != UINT64_MAX && left < set->ram_free) set->ram_free = left;
}

/* The limits of the control group (version 2) and of those around it. */
static void limit_to_groups(weft_resource_set_t *set) {
    char text[1024], *group = text;
    if (!read_text("/proc/self/cgroup", text, sizeof text)) return;
    while (group && strncmp(group, "0::", 3) != 0) {
        group = strchr(group, '\n');
        if (group) group++;
    }
    if (!group) return;
    group += 3;
    group[strcspn(group, "\n")] = 0;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = 0;
        limit_to_group(set, group);
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
        set->ram_total = meminfo(text, "MemTotal:");
        set->ram_free = meminfo(text, "MemAvailable:");
    }
    limit_to_groups(set);
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

void weft__resource_set_measure(weft_resource_set_t *set) {
    uint32_t rank = set->rank;
    memset(set, 0, sizeof *set);
    set->rank = rank;
    set->pid = getpid();
    set->host_id = host_id();
    set->process_id = process_id(set);
    gethostname(set->host, sizeof set->host - 1);
    measure_cpus(set);
    measure_ram(set);
    weft__devices_measure(set);
}
