/*
 * Quiesces one-sided operations before a lane is left: a transport that performs them natively does
 * not order them with messages. From the decision to switch on, new operations go as messages, and
 * native operations under way are awaited.
 */
#include "switch_local.h"
#include <endpoints/rma/rma.h>

/* Lanes of one interface share mapped memory: the keys stay with the base lane. */
static bool keys_stay(const struct switching *s) {
    const struct lane *a = s->lane[0], *b = s->lane[1];
    return a && b && a->iface == b->iface && a->iface->attr.caps & CAP_MAP;
}

struct lane *weft__switch_key_lane(const struct link *link) {
    const struct switching *s = link->more->switching;
    if (!s) return link->lane;
    if (keys_stay(s)) return s->lane[s->core.base];
    bool is_between = switch_out_is_leaving(&s->core.way_out) || switch_is_left(&s->core.fsm);
    return is_between ? NULL : s->lane[s->core.out];
}

void weft__switch_quiesce_step(struct link *link, uint32_t n) {
    struct switching *s = link->more->switching;
    if (!s || n == 0 || s->waits < n) return;
    s->waits -= n;
    if (s->waits == 0) switch_due(s, SWITCH_DUE_QUIET);
    if (s->waits == 0) weft__job_post(link->worker->reactor, &s->job);
}

static void flushed(struct completion *completion, weft_status_t status);

/* If the flush fails, the lane reports its loss soon. If the lane has no room, END waits for
 * room as well, and is sent behind the operations. */
static bool flush_quiesce(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    s->flushed = (struct completion){.done = flushed, .count = 1};
    s->flushing = lane->ops->flush(lane, &s->flushed) == WEFT_IN_PROGRESS;
    return s->flushing;
}

/* A flush of an earlier attempt does not cover later operations: flush again. */
static void flushed(struct completion *completion, weft_status_t status) {
    struct switching *s = list_of(completion, struct switching, flushed);
    bool again = s->flush_again;
    s->flushing = s->flush_again = false;
    if (!s->link) {
        talloc_free(s);
        return;
    }
    if (again && flush_quiesce(s)) return;
    weft__switch_quiesce_step(s->link, 1);
}

static uint32_t flush_once(struct switching *s) {
    s->flush_again = s->flushing;
    return s->flushing || flush_quiesce(s);
}

void weft__switch_quiesce(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    s->waits = 1;
    if (HAS_OP(lane->ops, rma, key_open) && !(keys_stay(s) && s->core.out == s->core.base)) {
        list_for_each_safe(at, next, &s->link->endpoints) s->waits +=
            weft__rma_quiesce(list_of(at, struct weft_ep, of_link), lane);
        s->waits += flush_once(s);
    }
    if (--s->waits == 0) switch_due(s, SWITCH_DUE_QUIET);
}

void weft__switch_unquiesce(struct switching *s, const struct lane *gone) {
    s->waits = 0;
    list_for_each_safe(at, next, &s->link->endpoints)
        weft__rma_unquiesce(list_of(at, struct weft_ep, of_link), gone, keys_stay(s));
}
