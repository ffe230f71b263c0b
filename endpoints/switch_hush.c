/*
 * One-sided operations that a transport performs know nothing of messages, so a lane is left when none is under way there. From
 * the decision on they go as messages, and those that were posted before are waited for.
 */
#include "rma.h"
#include "switch_local.h"

#define EACH_ENDPOINT(link, ep)                                                                 \
    for (struct list *n_ = (link)->endpoints.next, *next_ = n_->next; n_ != &(link)->endpoints; \
         n_ = next_, next_ = n_->next)                                                          \
        for (struct weft_ep *ep = list_of(n_, struct weft_ep, of_link); ep; ep = NULL)

/* Mapped memory is the same by all lanes of an iface: its keys stay with the lane that stays. */
static bool keys_stay(const struct switching *s) {
    const struct lane *a = s->lane[0], *b = s->lane[1];
    return a && b && a->iface == b->iface && a->iface->attr.caps & CAP_MAP;
}

struct lane *weft__switch_key_lane(const struct link *link) {
    const struct switching *s = link->more->switching;
    if (!s) return link->lane;
    if (keys_stay(s)) return s->lane[s->core.base];
    switch (s->core.fsm.state) {
    case SWITCH_LEAD_QUIET:
    case SWITCH_LEAD_MARK:
    case SWITCH_FOLLOW_QUIET:
    case SWITCH_FOLLOW_MARK:
    case SWITCH_LEFT: return NULL;
    default: return s->lane[s->core.out];
    }
}

void weft__switch_calm(struct link *link, uint32_t n) {
    struct switching *s = link->more->switching;
    if (!s || n == 0 || s->waits < n) return;
    s->waits -= n;
    if (s->waits == 0) switch_due(s, SWITCH_DUE_QUIET);
    if (s->waits == 0) weft__job_post(link->worker->reactor, &s->job);
}

static void flushed(struct completion *completion, weft_status_t status);

/* A lane that cannot be flushed is about to say that it is lost; or it lacks the room, for which the word that ends it waits as well:
 * that goes behind what was put. */
static bool flush(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    s->flushed = (struct completion){.done = flushed, .count = 1};
    s->flushing = lane->ops->flush(lane, &s->flushed) == WEFT_IN_PROGRESS;
    return s->flushing;
}

/* That of an attempt before may not know of all that came since. */
static void flushed(struct completion *completion, weft_status_t status) {
    struct switching *s = list_of(completion, struct switching, flushed);
    bool again = s->flush_again;
    s->flushing = s->flush_again = false;
    if (!s->link) {
        talloc_free(s);
        return;
    }
    if (again && flush(s)) return;
    weft__switch_calm(s->link, 1);
}

static uint32_t flush_once(struct switching *s) {
    s->flush_again = s->flushing;
    return s->flushing || flush(s);
}

void weft__switch_hush(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    s->waits = 1;
    if (lane->ops->key_open && !(keys_stay(s) && s->core.out == s->core.base)) {
        EACH_ENDPOINT(s->link, ep) s->waits += weft__rma_hush(ep, lane);
        s->waits += flush_once(s);
    }
    if (--s->waits == 0) switch_due(s, SWITCH_DUE_QUIET);
}

void weft__switch_unhush(struct switching *s, const struct lane *gone) {
    s->waits = 0;
    EACH_ENDPOINT(s->link, ep) weft__rma_unhush(ep, gone, keys_stay(s));
}
