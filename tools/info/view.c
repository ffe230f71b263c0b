#include "view.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <weft/weft.h>

#include "../json/json.h"

static bool well(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return true;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "weft-info: %s: %s\n", what, text);
    return false;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_devices(const char *kind, const weft_device_info_t *devices, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        printf("  %-12s %s %s\n", kind, devices[i].name, devices[i].address);
}

static void print_set(const weft_resource_set_t *set) {
    printf("rank %" PRIu32 " on %s, process %" PRId32 "\n", set->rank, set->host, set->pid);
    printf("  %-12s %" PRIu32 " hardware threads, %" PRIu32 " cores, %" PRIu32 " NUMA nodes\n",
           "processors", set->n_cpus, set->n_cores, set->n_numa_nodes);
    printf("  %-12s %.1f GiB, %.1f free, %.3f used by the process\n", "memory",
           (double)set->ram_total / (1 << 30), (double)set->ram_free / (1 << 30),
           (double)set->ram_used / (1 << 30));
    print_devices("GPU", set->gpu, set->n_gpus);
    print_devices("RDMA", set->rdma_device, set->n_rdma_devices);
    print_devices("network", set->network_device, set->n_network_devices);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void json_devices(const char *kind, const weft_device_info_t *devices, uint32_t n) {
    printf(",\"%s\":[", kind);
    for (uint32_t i = 0; i < n; i++) {
        fputs(i > 0 ? ",{\"name\":" : "{\"name\":", stdout);
        json_text(stdout, devices[i].name);
        fputs(",\"address\":", stdout);
        json_text(stdout, devices[i].address);
        printf(",\"memory\":%" PRIu64 ",\"numa_node\":%" PRId32 "}", devices[i].memory,
               devices[i].numa_node);
    }
    putchar(']');
}

static void json_set(const weft_resource_set_t *set) {
    printf("%s{\"rank\":%" PRIu32 ",\"host\":", set->rank > 0 ? "," : "", set->rank);
    json_text(stdout, set->host);
    printf(",\"pid\":%" PRId32 ",\"cpus\":%" PRIu32 ",\"cores\":%" PRIu32
           ",\"numa_nodes\":%" PRIu32,
           set->pid, set->n_cpus, set->n_cores, set->n_numa_nodes);
    printf(",\"ram_total\":%" PRIu64 ",\"ram_free\":%" PRIu64 ",\"ram_used\":%" PRIu64,
           set->ram_total, set->ram_free, set->ram_used);
    json_devices("gpus", set->gpu, set->n_gpus);
    json_devices("rdma", set->rdma_device, set->n_rdma_devices);
    json_devices("network", set->network_device, set->n_network_devices);
    putchar('}');
}

/* ---- both ------------------------------------------------------------------------------------ */

static void begin(weft_view_t *view, bool json) {
    if (!json) {
        printf("engine %s, %" PRIu32 " processes\n", weft_view_engine(view), weft_view_size(view));
        return;
    }
    fputs("{\"engine\":", stdout);
    json_text(stdout, weft_view_engine(view));
    fputs(",\"processes\":[", stdout);
}

static bool print_sets(weft_view_t *view, bool json) {
    const weft_resource_set_t *set;
    begin(view, json);
    for (uint32_t rank = 0; rank < weft_view_size(view); rank++) {
        if (!well(weft_view_at_wait(view, rank, false, &set), "resource set")) return false;
        (json ? json_set : print_set)(set);
    }
    if (json) puts("]}");
    return true;
}

bool info_view(int *argc, char ***argv, bool json) {
    weft_view_t *view;
    weft_view_params_t params = {.argc = argc, .argv = argv};
    if (!well(weft_view_create_wait(&params, &view), "view")) return false;
    bool printed = weft_view_rank(view) > 0 || print_sets(view, json);
    bool ended = well(weft_barrier_wait(weft_view_team(view)), "barrier");
    return well(weft_view_release_wait(view), "release") && printed && ended;
}
