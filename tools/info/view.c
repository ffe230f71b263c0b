#include "view.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#include "../json/json.h"
#include "view_drawing.h"

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
    printf("  %-12s %" PRIu32 " hardware threads, %" PRIu32 " cores, %" PRIu32 " packages, %" PRIu32
           " NUMA nodes, by %s\n",
           "processors", set->n_cpus, set->n_cores, set->n_packages, set->n_numa_nodes,
           set->topology);
    for (uint32_t i = 0; i < set->n_caches; i++)
        printf("  %-12s L%" PRIu32 ", %" PRIu32 " of %.0f KiB\n", "cache", set->cache[i].level,
               set->cache[i].n, (double)set->cache[i].size / 1024);
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

static void json_topology(const weft_resource_set_t *set) {
    printf(",\"topology\":");
    json_text(stdout, set->topology);
    printf(",\"packages\":%" PRIu32 ",\"package\":%" PRId32 ",\"caches\":[", set->n_packages,
           set->package);
    for (uint32_t i = 0; i < set->n_caches; i++)
        printf("%s{\"level\":%" PRIu32 ",\"number\":%" PRIu32 ",\"size\":%" PRIu64 "}",
               i > 0 ? "," : "", set->cache[i].level, set->cache[i].n, set->cache[i].size);
    printf("],\"nodes\":[");
    for (uint32_t i = 0; i < set->n_numa_nodes; i++)
        printf("%s{\"number\":%" PRId32 ",\"package\":%" PRId32 ",\"cpus\":%" PRIu32
               ",\"ram_total\":%" PRIu64 ",\"ram_free\":%" PRIu64 "}",
               i > 0 ? "," : "", set->node[i].number, set->node[i].package, set->node[i].n_cpus,
               set->node[i].ram_total, set->node[i].ram_free);
    putchar(']');
}

static void json_set(const weft_resource_set_t *set) {
    printf("%s{\"rank\":%" PRIu32 ",\"host\":", set->rank > 0 ? "," : "", set->rank);
    json_text(stdout, set->host);
    printf(",\"pid\":%" PRId32 ",\"cpus\":%" PRIu32 ",\"cores\":%" PRIu32 ",\"numa_nodes\":%" PRIu32
           ",\"numa_node\":%" PRId32,
           set->pid, set->n_cpus, set->n_cores, set->n_numa_nodes, set->numa_node);
    json_topology(set);
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

static void print_sets(weft_view_t *view, const weft_resource_set_t *const *set,
                       enum info_format format) {
    uint32_t n = weft_view_size(view);
    if (format == INFO_SVG) {
        info_draw_svg(set, n);
        return;
    }
    begin(view, format == INFO_JSON);
    if (format == INFO_TEXT) info_draw_text(set, n);
    for (uint32_t r = 0; r < n; r++) (format == INFO_JSON ? json_set : print_set)(set[r]);
    if (format == INFO_JSON) puts("]}");
}

static bool fetch_and_print(weft_view_t *view, enum info_format format) {
    const weft_resource_set_t **set = calloc(weft_view_size(view), sizeof *set);
    bool fetched = set != NULL;
    for (uint32_t r = 0; r < weft_view_size(view) && fetched; r++)
        fetched = well(weft_view_at_wait(view, r, false, &set[r]), "resource set");
    if (fetched) print_sets(view, set, format);
    free(set);
    return fetched;
}

bool info_view(int *argc, char ***argv, enum info_format format) {
    weft_view_t *view;
    weft_view_params_t params = {.argc = argc, .argv = argv};
    if (!well(weft_view_create_wait(&params, &view), "view")) return false;
    bool printed = weft_view_rank(view) > 0 || fetch_and_print(view, format);
    bool ended = well(weft_barrier_wait(weft_view_team(view)), "barrier");
    return well(weft_view_release_wait(view), "release") && printed && ended;
}
