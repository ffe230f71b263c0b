/* Virtual time: reactors in one thread take turns, and the clock moves when none of them has
 * anything to do. */
#include "local.h"

struct reactor_clock {
    uint64_t now, seeds;
    /* in the order of their creation; the one whose turn comes next */
    struct reactor *first, *next;
};

struct reactor_clock *weft__clock_create(const void *parent, uint64_t seed) {
    struct reactor_clock *clock = weft__new(parent, struct reactor_clock);
    if (!clock) return NULL;
    clock->now = NS_PER_S;
    clock->seeds = seed;
    return clock;
}

uint64_t weft__clock_now(const struct reactor_clock *clock) {
    return clock->now;
}

/* Each reactor draws from a sequence of its own; never 0, which would mean the kernel's. */
uint64_t weft__clock_seed(struct reactor_clock *clock) {
    return (clock->seeds += 0x9e3779b97f4a7c15u) | 1;
}

void weft__clock_join(struct reactor_clock *clock, struct reactor *r) {
    struct reactor **link = &clock->first;
    while (*link) link = &(*link)->virtual.next;
    *link = r;
    r->virtual.clock = clock;
}

void weft__clock_leave(struct reactor_clock *clock, struct reactor *r) {
    struct reactor **link = &clock->first;
    while (*link != r) link = &(*link)->virtual.next;
    *link = r->virtual.next;
    if (clock->next == r) clock->next = r->virtual.next;
    r->virtual.clock = NULL;
}

/* A turn of each, as far as it is not within one. True when one of them handled something or has
 * more to do. */
static bool turn_all(struct reactor_clock *clock) {
    bool worked = false;
    for (struct reactor *r = clock->first; r; r = clock->next) {
        clock->next = r->virtual.next;
        if (r->in_turn || r->virtual.paused_until > clock->now) continue;
        int n = weft__turn_run(r, INT32_MAX, POLL_TIMERS);
        worked |= n != 0 || turn_has_work(r); /* one that is gone did work, too */
    }
    clock->next = NULL;
    return worked;
}

static uint64_t nearest_of_all(const struct reactor_clock *clock) {
    uint64_t nearest = UINT64_MAX;
    for (const struct reactor *r = clock->first; r; r = r->virtual.next) {
        uint64_t at = r->virtual.paused_until > clock->now ? r->virtual.paused_until
                                                           : timers_nearest(r);
        if (at < nearest) nearest = at;
    }
    return nearest;
}

/* As weft__clock_turn, but time moves to `limit` at most. */
static bool turn_till(struct reactor_clock *clock, uint64_t limit) {
    if (turn_all(clock)) return true;
    uint64_t nearest = nearest_of_all(clock);
    if (nearest == UINT64_MAX) return false;
    if (nearest > limit) nearest = limit;
    if (nearest > clock->now) clock->now = nearest;
    return true;
}

bool weft__clock_turn(struct reactor_clock *clock) {
    return turn_till(clock, UINT64_MAX);
}

static uint64_t after(const struct reactor_clock *clock, uint64_t ns) {
    return ns > UINT64_MAX - clock->now ? UINT64_MAX : clock->now + ns;
}

bool weft__clock_run(struct reactor_clock *clock, bool (*until)(void *arg), void *arg,
                     uint64_t ns) {
    uint64_t limit = after(clock, ns);
    while (!(until && until(arg))) {
        if (clock->now >= limit) {
            while (turn_all(clock) && !(until && until(arg)))
                ; /* what is due at the very end */
            return until && until(arg);
        }
        if (turn_till(clock, limit)) continue;
        if (limit == UINT64_MAX) return false;
        clock->now = limit; /* nothing is left: it just passes */
    }
    return true;
}

void weft__clock_pause(struct reactor *r, uint64_t until) {
    r->virtual.paused_until = until;
}

weft_status_t weft__clock_wait(struct reactor *r, int timeout_ms) {
    struct reactor_clock *clock = r->virtual.clock;
    uint64_t limit = timeout_ms < 0 ? UINT64_MAX : after(clock, (uint64_t)timeout_ms * NS_PER_MS);
    for (uint64_t handled = r->handled;;) {
        bool late = clock->now >= limit, more = turn_till(clock, limit);
        if (r->handled != handled || r->woken_by_hand) return WEFT_OK;
        if (late || !more) return WEFT_ERR_TIMED_OUT;
    }
}
