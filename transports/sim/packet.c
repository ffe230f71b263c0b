/* Packets: a pool of two sizes, and the heap of those that are on their way to a node. */
#include "local.h"
#include <string.h>

struct sim_packet *weft__sim_packet_new(struct sim_fabric *f, size_t len) {
    bool big = len > SIM_SMALL;
    size_t room = !big ? SIM_SMALL : f->profile.mtu > SIM_BCOPY ? f->profile.mtu : SIM_BCOPY;
    struct sim_packet **pool = big ? &f->big : &f->small, *p = *pool;
    if (p)
        *pool = p->next;
    else if (!(p = weft__alloc(f, sizeof *p + room, "struct sim_packet")))
        return NULL;
    *p = (struct sim_packet){.big = big, .len = (uint32_t)len};
    return p;
}

void weft__sim_packet_free(struct sim_fabric *f, struct sim_packet *p) {
    struct sim_packet **pool = p->big ? &f->big : &f->small;
    p->next = *pool;
    *pool = p;
}

/* Header and payload are apart. */
void weft__sim_packet_read(const struct sim_packet *p, size_t at, void *to, size_t n) {
    const weft_iov_t header = {(void *)p->data, p->len};
    for (unsigned i = 0; n > 0; i++) {
        const weft_iov_t *piece = i ? &p->iov[i - 1] : &header;
        if (at >= piece->len) {
            at -= piece->len;
            continue;
        }
        size_t part = piece->len - at < n ? piece->len - at : n;
        memcpy(to, (const char *)piece->base + at, part);
        to = (char *)to + part;
        n -= part;
        at = 0;
    }
}

/* ---- a pairing heap: Fredman, Sedgewick, Sleator and Tarjan, Algorithmica 1 (1986) ----------- */

static bool before_packet(const struct sim_packet *a, const struct sim_packet *b) {
    return a->at < b->at || (a->at == b->at && a->serial < b->serial);
}

static struct sim_packet *meld(struct sim_packet *a, struct sim_packet *b) {
    if (!a || !b) return a ? a : b;
    struct sim_packet *top = before_packet(a, b) ? a : b, *below = top == a ? b : a;
    below->sibling = top->child;
    top->child = below;
    return top;
}

void weft__sim_heap_add(struct sim_packet **heap, struct sim_packet *p) {
    p->child = p->sibling = NULL;
    p->in_heap = true;
    *heap = meld(*heap, p);
}

/* Neighbours are joined two by two on the way out, and the pairs on the way back. */
struct sim_packet *weft__sim_heap_take(struct sim_packet **heap) {
    struct sim_packet *top = *heap, *pairs = NULL, *rest = NULL;
    for (struct sim_packet *a = top->child, *b, *next; a; a = next) {
        b = a->sibling;
        next = b ? b->sibling : NULL;
        a->sibling = NULL;
        if (b) b->sibling = NULL;
        struct sim_packet *pair = meld(a, b);
        pair->sibling = pairs;
        pairs = pair;
    }
    for (struct sim_packet *next; pairs; pairs = next) {
        next = pairs->sibling;
        pairs->sibling = NULL;
        rest = meld(rest, pairs);
    }
    *heap = rest;
    top->in_heap = false;
    return top;
}
