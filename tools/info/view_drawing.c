#include "view_drawing.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_NODES = 64 };
#define GIB(bytes) ((double)(bytes) / (1 << 30))

/* Rank 0, and each rank whose host no lower one has, stands for a host. */
static bool is_first(const weft_resource_set_t *const *set, uint32_t rank) {
    for (uint32_t r = 0; r < rank; r++)
        if (set[r]->host_id == set[rank]->host_id) return false;
    return true;
}

/* The NUMA nodes of a host that its ranks have, by package and number; that of a rank without one
 * is -1. */
struct machine {
    const weft_resource_set_t *host;
    weft_node_info_t node[MOST_NODES];
    uint32_t n;
};

static bool comes_before(const weft_node_info_t *a, const weft_node_info_t *b) {
    return a->package != b->package ? a->package < b->package : a->number < b->number;
}

static void add_node(struct machine *m, const weft_node_info_t *node) {
    uint32_t at = m->n;
    for (uint32_t i = 0; i < m->n; i++)
        if (m->node[i].number == node->number) return;
    if (m->n == MOST_NODES) return;
    for (; at > 0 && comes_before(node, &m->node[at - 1]); at--) m->node[at] = m->node[at - 1];
    m->node[at] = *node;
    m->n++;
}

static void find_nodes(struct machine *m, const weft_resource_set_t *const *set, uint32_t n) {
    m->n = 0;
    for (uint32_t r = 0; r < n; r++) {
        if (set[r]->host_id != m->host->host_id) continue;
        for (uint32_t i = 0; i < set[r]->n_numa_nodes; i++) add_node(m, &set[r]->node[i]);
        if (set[r]->n_numa_nodes == 0)
            add_node(m, &(weft_node_info_t){.number = -1, .package = -1});
    }
}

/* A rank is drawn at the first of its nodes. */
static bool is_on(const weft_resource_set_t *set, const struct machine *m, uint32_t node) {
    return set->host_id == m->host->host_id && set->numa_node == m->node[node].number;
}

static bool begins_package(const struct machine *m, uint32_t node) {
    return node == 0 || m->node[node - 1].package != m->node[node].package;
}

static void write_memory(char *text, size_t size, const weft_node_info_t *node) {
    text[0] = 0;
    if (node->ram_total)
        snprintf(text, size, ", %.1f GiB, %.1f free", GIB(node->ram_total), GIB(node->ram_free));
}

/* Its caches, from the widest on: "L3 1 x 32 MiB, L2 8 x 512 KiB". */
static void write_caches(char *text, size_t size, const weft_resource_set_t *set) {
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = set->n_caches; i-- > 0 && at < size;) {
        const weft_cache_info_t *c = &set->cache[i];
        bool large = c->size >= 1 << 20;
        at += (size_t)snprintf(
            text + at, size - at, "%sL%" PRIu32 " %" PRIu32 " x %.0f %s", at ? ", " : "", c->level,
            c->n, (double)c->size / (large ? 1 << 20 : 1 << 10), large ? "MiB" : "KiB");
    }
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
    char text[160];
    struct machine m = {.host = host};
    find_nodes(&m, set, n);
    for (uint32_t i = 0; i < m.n; i++) {
        if (begins_package(&m, i)) printf("  +- package %" PRId32 "\n", m.node[i].package);
        write_memory(text, sizeof text, &m.node[i]);
        printf("  |  +- NUMA node %" PRId32 "%s: ranks", m.node[i].number, text);
        for (uint32_t r = 0; r < n; r++)
            if (is_on(set[r], &m, i)) printf(" %" PRIu32, r);
        puts("");
    }
    write_caches(text, sizeof text, host);
    if (text[0]) printf("  +- caches of rank %" PRIu32 ": %s\n", host->rank, text);
    text_devices("GPU", host->gpu, host->n_gpus);
    text_devices("RDMA", host->rdma_device, host->n_rdma_devices);
    text_devices("network", host->network_device, host->n_network_devices);
}

void info_draw_text(const weft_resource_set_t *const *set, uint32_t n) {
    for (uint32_t r = 0; r < n; r++)
        if (is_first(set, r)) text_host(set, n, set[r]);
}

/* ---- as a picture ---------------------------------------------------------------------------- */

enum { WIDTH = 340, GAP = 20, LINE = 18, CHIP = 36, CHIPS = 7 };

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

static int rows_of(const weft_resource_set_t *const *set, uint32_t n, const struct machine *m,
                   uint32_t node) {
    uint32_t ranks = 0;
    for (uint32_t r = 0; r < n; r++) ranks += is_on(set[r], m, node);
    return (int)((ranks + CHIPS - 1) / CHIPS);
}

static int height_of_node(const weft_resource_set_t *const *set, uint32_t n,
                          const struct machine *m, uint32_t node) {
    return LINE + rows_of(set, n, m, node) * (CHIP + 4) + 6;
}

/* With all its nodes, from the one that begins it on. */
static int height_of_package(const weft_resource_set_t *const *set, uint32_t n,
                             const struct machine *m, uint32_t first) {
    int high = LINE + 6;
    for (uint32_t i = first; i < m->n && (i == first || !begins_package(m, i)); i++)
        high += height_of_node(set, n, m, i) + 8;
    return high;
}

/* A box with a square for each rank of the node. Returns where it ends. */
static int svg_node(const weft_resource_set_t *const *set, uint32_t n, const struct machine *m,
                    uint32_t node, int x, int y) {
    char memory[64];
    int high = height_of_node(set, n, m, node), at = 0;
    write_memory(memory, sizeof memory, &m->node[node]);
    printf("<rect class=\"node\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
           "<text x=\"%d\" y=\"%d\">NUMA node %" PRId32 "%s</text>\n",
           x, y, WIDTH - 2 * GAP - 12, high, x + 6, y + 14, m->node[node].number, memory);
    for (uint32_t r = 0; r < n; r++) {
        if (!is_on(set[r], m, node)) continue;
        int left = x + 6 + at % CHIPS * CHIP, top = y + LINE + at / CHIPS * (CHIP + 4);
        printf("<rect class=\"rank\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
               "<text class=\"in\" x=\"%d\" y=\"%d\">%" PRIu32 "</text>\n",
               left, top, CHIP - 4, CHIP - 4, left + CHIP / 2 - 2, top + CHIP / 2 + 2, r);
        at++;
    }
    return y + high + 8;
}

static int svg_packages(const weft_resource_set_t *const *set, uint32_t n, const struct machine *m,
                        int x, int y) {
    for (uint32_t i = 0; i < m->n; i++) {
        if (begins_package(m, i)) {
            printf("<rect class=\"package\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
                   "<text x=\"%d\" y=\"%d\">package %" PRId32 "</text>\n",
                   x, y, WIDTH - 2 * GAP, height_of_package(set, n, m, i), x + 6, y + 14,
                   m->node[i].package);
            y += LINE;
        }
        y = svg_node(set, n, m, i, x + 6, y);
        if (i + 1 == m->n || begins_package(m, i + 1)) y += 14;
    }
    return y;
}

static void svg_host(const weft_resource_set_t *const *set, uint32_t n, const struct machine *m,
                     int x) {
    char text[160];
    const weft_resource_set_t *host = m->host;
    int y = 3 * GAP;
    snprintf(text, sizeof text, "%.1f GiB, %.1f free", GIB(host->ram_total), GIB(host->ram_free));
    svg_line(x + GAP, y - GAP / 2, "host", host->host, "");
    svg_line(x + GAP, y + 8, "memory", text, "");
    y = svg_packages(set, n, m, x + GAP, y + LINE);
    write_caches(text, sizeof text, host);
    y += LINE;
    svg_line(x + GAP, y, "caches", text, "");
    y += LINE;
    y = svg_devices(x + GAP, y, "GPU", host->gpu, host->n_gpus);
    y = svg_devices(x + GAP, y, "RDMA", host->rdma_device, host->n_rdma_devices);
    svg_devices(x + GAP, y, "network", host->network_device, host->n_network_devices);
}

static int height_of(const weft_resource_set_t *const *set, uint32_t n, const struct machine *m) {
    const weft_resource_set_t *host = m->host;
    int devices = (int)(host->n_gpus + host->n_rdma_devices + host->n_network_devices);
    int high = 6 * GAP + (devices + 3) * LINE;
    for (uint32_t i = 0; i < m->n; i++)
        if (begins_package(m, i)) high += height_of_package(set, n, m, i) + 8;
    return high;
}

void info_draw_svg(const weft_resource_set_t *const *set, uint32_t n) {
    int hosts = 0, x = GAP, high = 0;
    struct machine m;
    for (uint32_t r = 0; r < n; r++) {
        if (!is_first(set, r)) continue;
        m.host = set[r];
        find_nodes(&m, set, n);
        int own = height_of(set, n, &m);
        if (own > high) high = own;
        hosts++;
    }
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
           "font-family=\"sans-serif\" font-size=\"13\">\n"
           "<style>.host{fill:#f4f4f0;stroke:#555}.package{fill:#e8e8e0;stroke:#777}"
           ".node{fill:#fff;stroke:#999}.rank{fill:#2a6f97}"
           ".in{fill:#fff;text-anchor:middle}</style>\n",
           hosts * (WIDTH + GAP) + GAP, high + GAP);
    for (uint32_t r = 0; r < n; r++) {
        if (!is_first(set, r)) continue;
        printf("<rect class=\"host\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", x, GAP,
               WIDTH, high - GAP);
        m.host = set[r];
        find_nodes(&m, set, n);
        svg_host(set, n, &m, x);
        x += WIDTH + GAP;
    }
    puts("</svg>");
}
