/*
 * Strikes: what happens at one chosen byte of a payload that lands. Its receive is cancelled, or
 * its worker stands still until deadlines have passed; its lane breaks; its endpoint is closed
 * without waiting; the region it is put into is revoked. What follows on the lane comes as soon as
 * it may.
 */
#include "world.h"

/* Long enough for deadlines to pass, and shorter than what a plan counts as harm. */
#define A_STALL_NS UINT64_C(50000000)

static struct node *node_of(const struct world *w, const struct lane *lane) {
    struct node *node = w->nodes;
    while (node && (!node->worker || node->worker != lane->iface->owner)) node = node->next;
    return node;
}

void strike_begin(struct world *w, const struct plan_item *item) {
    struct half *half = half_of(w, item->a, item->b);
    if (half) half->node->strike = (struct strike){.what = item->n & STRIKE_ALL, .byte = item->arg};
}

static bool fills(const struct asked *asked, uint32_t placement) {
    return asked->request && asked->request->recv.placement_id == placement;
}

/*
 * The operation of this worker's whose memory is written; NULL: it is not known (a piece that comes
 * by a rail).
 */
static struct asked *asked_of(struct world *w, const struct node *node, uint32_t placement) {
    for (struct asked *asked = w->pending; asked; asked = asked->next_pending)
        if (asked->half && asked->half->node == node && fills(asked, placement)) return asked;
    return NULL;
}

static void cancel_strikes(struct asked *asked) {
    if (asked->cancelled) return;
    asked->cancelled = true;
    weft_request_cancel(asked->request);
}

/* A put's; of a receive nothing is revoked. */
static void revoke(struct world *w, const struct node *node, uint32_t placement) {
    const struct placement_record *of =
        weft__idmap_find(&node->worker->placements.by_id, placement);
    if (of && of->mem) target_revoke(w, of->mem);
}

static void strike(struct world *w, struct node *node, struct lane *lane, uint32_t placement,
                   size_t at) {
    struct asked *asked = asked_of(w, node, placement);
    uint32_t what = node->strike.what;
    node->strike = (struct strike){0};
    w->n_struck++;
    world_trace(w, "strike %u at byte %zu of what lands at worker %u", what, at, node->index);
    world_note(w, at);
    if (what & STRIKE_CANCEL && asked) cancel_strikes(asked);
    if (what & STRIKE_ABORT && asked && half_lives(asked->half))
        half_close(asked->half, WEFT_CLOSE_ABORT);
    if (what & STRIKE_KILL) weft__sim_kill(lane);
    if (what & STRIKE_STALL)
        weft__clock_pause(node->reactor, weft__clock_now(w->clock) + A_STALL_NS);
    if (what & STRIKE_REVOKE) revoke(w, node, placement);
}

static size_t on_slice(void *arg, struct lane *lane, uint32_t placement, size_t at, size_t end) {
    struct world *w = arg;
    struct node *node = node_of(w, lane);
    struct strike *s = node ? &node->strike : NULL;
    if (!s || !s->what || w->healing) return 0;
    if (s->placement != placement) {
        s->placement = placement;
        s->begin = at;
        s->due = at + s->byte % (end - at);
    }
    if (at < s->due) return s->due - at;
    if (at == s->due) strike(w, node, lane, placement, at - s->begin);
    return 0;
}

void strikes_watch(struct world *w) {
    for (int i = 0; i < 2; i++)
        if (w->fabric[i]) weft__sim_on_slice(w->fabric[i], on_slice, w);
}
