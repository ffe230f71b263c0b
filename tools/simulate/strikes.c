/*
 * Strikes: what happens at one chosen byte of a payload that lands, or that is copied from or to
 * exposed memory. Its operation on that side is cancelled, or its worker stands still until
 * deadlines have passed; its lane breaks; its endpoint is closed without waiting; the region that
 * it is put into, or that is exposed, is revoked. What follows on the lane comes as soon as it may.
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

static bool fills(const struct asked *asked, const struct sim_slice *what) {
    const struct weft_request *req = asked->request;
    if (!req) return false;
    if (what->placement) return req->recv.placement_id == what->placement;
    return what->completion == &req->in_flight ||
           (req->put_req && (const void *)what->completion == (const void *)req->put_req);
}

/*
 * The operation of this worker's whose memory is read or written; NULL: it is not known (a piece
 * that comes by a rail).
 */
static struct asked *asked_of(struct world *w, const struct node *node,
                              const struct sim_slice *what) {
    for (struct asked *asked = w->pending; asked; asked = asked->next_pending)
        if (asked->half && asked->half->node == node && fills(asked, what)) return asked;
    return NULL;
}

static void cancel_strikes(struct asked *asked) {
    if (asked->cancelled) return;
    asked->cancelled = true;
    weft_request_cancel(asked->request);
}

/* The region of a put, or the exposed one: its peer's where the bytes come from there. */
static void revoke(struct world *w, struct node *node, const struct sim_slice *what,
                   const struct asked *asked) {
    if (!what->placement) {
        struct half *half = asked ? asked->half : NULL;
        exposed_revoke(half && half->n_asked % 2 ? half->other->node : node);
        return;
    }
    const struct placement_record *of =
        weft__idmap_find(&node->worker->placements.by_id, what->placement);
    if (of && of->mem) target_revoke(w, of->mem);
}

static void strike(struct world *w, struct node *node, struct lane *lane,
                   const struct sim_slice *at) {
    struct asked *asked = asked_of(w, node, at);
    uint32_t what = node->strike.what;
    size_t byte = at->at - node->strike.begin;
    node->strike = (struct strike){0};
    w->n_struck++;
    world_trace(w, "strike %u at byte %zu of what %s at worker %u", what, byte,
                at->placement ? "lands" : "is copied", node->index);
    world_note(w, byte);
    if (what & STRIKE_REVOKE) revoke(w, node, at, asked);
    if (what & STRIKE_CANCEL && asked) cancel_strikes(asked);
    if (what & STRIKE_ABORT && asked && half_lives(asked->half))
        half_close(asked->half, WEFT_CLOSE_ABORT);
    if (what & STRIKE_KILL) weft__sim_kill(lane);
    if (what & STRIKE_STALL)
        weft__clock_pause(node->reactor, weft__clock_now(w->clock) + A_STALL_NS);
}

static size_t on_slice(void *arg, struct lane *lane, const struct sim_slice *what) {
    struct world *w = arg;
    struct node *node = node_of(w, lane);
    struct strike *s = node ? &node->strike : NULL;
    if (!s || !s->what || w->healing) return 0;
    if (s->placement != what->placement || s->copy != what->completion) {
        s->placement = what->placement;
        s->copy = what->completion;
        s->begin = what->at;
        s->due = what->at + s->byte % (what->end - what->at);
    }
    if (what->at < s->due) return s->due - what->at;
    if (what->at == s->due) strike(w, node, lane, what);
    return 0;
}

void strikes_watch(struct world *w) {
    for (int i = 0; i < 2; i++)
        if (w->fabric[i]) weft__sim_on_slice(w->fabric[i], on_slice, w);
}
