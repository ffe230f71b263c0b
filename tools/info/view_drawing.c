#include "view_drawing.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define GIB(bytes) ((double)(bytes) / (1 << 30))

/* Rank 0, and each rank whose host no lower one has, stands for a host. */
static bool is_first(const weft_resource_set_t *const *set, uint32_t rank) {
    for (uint32_t r = 0; r < rank; r++)
        if (set[r]->host_id == set[rank]->host_id) return false;
    return true;
}

static bool is_on(const weft_resource_set_t *set, const weft_resource_set_t *host, int32_t node) {
    return set->host_id == host->host_id && set->numa_node == node;
}

/* Of the host's nodes that ranks are on: the one after `node`; INT32_MAX: none. */
static int32_t next_node(const weft_resource_set_t *const *set, uint32_t n,
                         const weft_resource_set_t *host, int32_t node) {
    int32_t next = INT32_MAX;
    for (uint32_t r = 0; r < n; r++) {
        int32_t own = set[r]->numa_node;
        if (set[r]->host_id == host->host_id && own > node && own < next) next = own;
    }
    return next;
}

/* ---- as text --------------------------------------------------------------------------------- */

static void text_devices(const char *kind, const weft_device_info_t *devices, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        printf("  +- %s %s %s", kind, devices[i].name, devices[i].address);
        if (devices[i].memory) printf(" %.1f GiB", GIB(devices[i].memory));
        if (devices[i].numa_node >= 0) printf(" at node %" PRId32, devices[i].numa_node);
        puts("");
    }
}

static void text_host(const weft_resource_set_t *const *set, uint32_t n,
                      const weft_resource_set_t *host) {
    printf("host %s: memory %.1f GiB, %.1f free\n", host->host, GIB(host->ram_total),
           GIB(host->ram_free));
    for (int32_t node = next_node(set, n, host, -2); node < INT32_MAX;
         node = next_node(set, n, host, node)) {
        printf("  +- NUMA node %" PRId32 ": ranks", node);
        for (uint32_t r = 0; r < n; r++)
            if (is_on(set[r], host, node)) printf(" %" PRIu32, r);
        puts("");
    }
    text_devices("GPU", host->gpu, host->n_gpus);
    text_devices("RDMA", host->rdma_device, host->n_rdma_devices);
    text_devices("network", host->network_device, host->n_network_devices);
}

void info_draw_text(const weft_resource_set_t *const *set, uint32_t n) {
    for (uint32_t r = 0; r < n; r++)
        if (is_first(set, r)) text_host(set, n, set[r]);
}

/* ---- as a picture ---------------------------------------------------------------------------- */

enum { WIDTH = 300, GAP = 20, LINE = 18, CHIP = 36, CHIPS = 7 };

static void svg_text(const char *text) {
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", stdout);
        else if (*text == '&')
            fputs("&amp;", stdout);
        else if ((unsigned char)*text >= ' ')
            putchar(*text);
    }
}

static void svg_line(int x, int y, const char *kind, const char *name, const char *more) {
    printf("<text x=\"%d\" y=\"%d\">", x, y);
    svg_text(kind);
    putchar(' ');
    svg_text(name);
    putchar(' ');
    svg_text(more);
    puts("</text>");
}

static int svg_devices(int x, int y, const char *kind, const weft_device_info_t *devices,
                       uint32_t n) {
    for (uint32_t i = 0; i < n; i++, y += LINE)
        svg_line(x, y, kind, devices[i].name, devices[i].address);
    return y;
}

/* A box with a square for each rank of the node. Returns where it ends. */
static int svg_node(const weft_resource_set_t *const *set, uint32_t n,
                    const weft_resource_set_t *host, int32_t node, int x, int y) {
    uint32_t ranks = 0;
    for (uint32_t r = 0; r < n; r++) ranks += is_on(set[r], host, node);
    int rows = (int)((ranks + CHIPS - 1) / CHIPS), high = LINE + rows * (CHIP + 4) + 6, at = 0;
    printf("<rect class=\"node\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
           "<text x=\"%d\" y=\"%d\">NUMA node %" PRId32 "</text>\n",
           x, y, WIDTH - 2 * GAP, high, x + 6, y + 14, node);
    for (uint32_t r = 0; r < n; r++) {
        if (!is_on(set[r], host, node)) continue;
        int left = x + 6 + at % CHIPS * CHIP, top = y + LINE + at / CHIPS * (CHIP + 4);
        printf("<rect class=\"rank\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
               "<text class=\"in\" x=\"%d\" y=\"%d\">%" PRIu32 "</text>\n",
               left, top, CHIP - 4, CHIP - 4, left + CHIP / 2 - 2, top + CHIP / 2 + 2, r);
        at++;
    }
    return y + high + 8;
}

static int svg_host(const weft_resource_set_t *const *set, uint32_t n,
                    const weft_resource_set_t *host, int x) {
    char memory[64];
    int y = 3 * GAP;
    snprintf(memory, sizeof memory, "%.1f GiB, %.1f free", GIB(host->ram_total),
             GIB(host->ram_free));
    svg_line(x + GAP, y - GAP / 2, "host", host->host, "");
    svg_line(x + GAP, y + 8, "memory", memory, "");
    y += LINE;
    for (int32_t node = next_node(set, n, host, -2); node < INT32_MAX;
         node = next_node(set, n, host, node))
        y = svg_node(set, n, host, node, x + GAP, y);
    y += LINE;
    y = svg_devices(x + GAP, y, "GPU", host->gpu, host->n_gpus);
    y = svg_devices(x + GAP, y, "RDMA", host->rdma_device, host->n_rdma_devices);
    return svg_devices(x + GAP, y, "network", host->network_device, host->n_network_devices);
}

static int height_of(const weft_resource_set_t *const *set, uint32_t n) {
    int most = 0;
    for (uint32_t r = 0; r < n; r++) {
        int devices = (int)(set[r]->n_gpus + set[r]->n_rdma_devices + set[r]->n_network_devices);
        int high = 6 * GAP + (devices + 2) * LINE;
        for (int32_t node = next_node(set, n, set[r], -2); node < INT32_MAX;
             node = next_node(set, n, set[r], node)) {
            uint32_t ranks = 0;
            for (uint32_t q = 0; q < n; q++) ranks += is_on(set[q], set[r], node);
            high += LINE + (int)((ranks + CHIPS - 1) / CHIPS) * (CHIP + 4) + 14;
        }
        if (high > most) most = high;
    }
    return most;
}

void info_draw_svg(const weft_resource_set_t *const *set, uint32_t n) {
    int hosts = 0, x = GAP, high = height_of(set, n);
    for (uint32_t r = 0; r < n; r++) hosts += is_first(set, r);
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
           "font-family=\"sans-serif\" font-size=\"13\">\n"
           "<style>.host{fill:#f4f4f0;stroke:#555}.node{fill:#fff;stroke:#999}"
           ".rank{fill:#2a6f97}.in{fill:#fff;text-anchor:middle}</style>\n",
           hosts * (WIDTH + GAP) + GAP, high + GAP);
    for (uint32_t r = 0; r < n; r++) {
        if (!is_first(set, r)) continue;
        printf("<rect class=\"host\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", x, GAP,
               WIDTH, high - GAP);
        svg_host(set, n, set[r], x);
        x += WIDTH + GAP;
    }
    puts("</svg>");
}
