/* Timers: a binary heap of our own. One ev_timer, or one timerfd, stands for the nearest of
 * them. */
#include "local.h"

enum { FIRST_ROOM = 64 };

static bool before_timer(const struct heap_entry *a, const struct heap_entry *b) {
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void put_timer(struct reactor *r, unsigned i, struct heap_entry entry) {
    r->timers.heap[i] = entry;
    entry.timer->slot = i;
}

/* heap[1] is the nearest; the children of i are 2i and 2i + 1. */
static void rise(struct reactor *r, unsigned i, struct heap_entry entry) {
    for (; i > 1 && before_timer(&entry, &r->timers.heap[i / 2]); i /= 2)
        put_timer(r, i, r->timers.heap[i / 2]);
    put_timer(r, i, entry);
}

static void sink(struct reactor *r, unsigned i, struct heap_entry entry) {
    for (unsigned child; (child = 2 * i) <= r->n_timers; i = child) {
        if (child < r->n_timers && before_timer(&r->timers.heap[child + 1], &r->timers.heap[child]))
            child++;
        if (!before_timer(&r->timers.heap[child], &entry)) break;
        put_timer(r, i, r->timers.heap[child]);
    }
    put_timer(r, i, entry);
}

static void place_timer(struct reactor *r, unsigned i, struct heap_entry entry) {
    if (i > 1 && before_timer(&entry, &r->timers.heap[i / 2]))
        rise(r, i, entry);
    else
        sink(r, i, entry);
}

bool weft__timer_is_at_hand(const struct reactor *r) {
    return r->timers.n_places + 1 < r->timers.room;
}

static bool make_room(struct reactor *r) {
    if (weft__timer_is_at_hand(r)) return true;
    unsigned room = r->timers.room ? 2 * r->timers.room : FIRST_ROOM;
    struct heap_entry *heap =
        weft__realloc(r->internals, r->timers.heap, room * sizeof *heap, "timer heap");
    if (!heap) return false;
    r->timers.heap = heap;
    r->timers.room = room;
    return true;
}

static bool take_place(struct reactor *r) {
    if (!make_room(r)) return false;
    r->timers.n_places++;
    return true;
}

weft_status_t weft__timer_reserve(struct reactor *r, struct timer *timer) {
    if (timer->reserved) return WEFT_OK;
    /* a running timer has its place */
    if (!timer->slot && !take_place(r)) return WEFT_ERR_NO_MEMORY;
    timer->reserved = true;
    return WEFT_OK;
}

void weft__timer_release(struct reactor *r, struct timer *timer) {
    weft__timer_stop(r, timer);
    r->timers.n_places -= timer->reserved;
    timer->reserved = false;
}

weft_status_t weft__timer_start(struct reactor *r, struct timer *timer, uint64_t at) {
    uint64_t nearest = timers_nearest(r);
    if (!timer->slot) {
        if (!timer->reserved && !take_place(r)) return WEFT_ERR_NO_MEMORY;
        timer->slot = ++r->n_timers;
        r->timers.heap[timer->slot] = (struct heap_entry){.timer = timer};
    }
    place_timer(r, timer->slot, (struct heap_entry){at, r->timers.order++, timer});
    if (at < nearest) weft__reactor_kick(r);
    return WEFT_OK;
}

void weft__timer_stop(struct reactor *r, struct timer *timer) {
    unsigned i = timer->slot;
    if (!i) return;
    timer->slot = 0;
    r->timers.n_places -= !timer->reserved;
    struct heap_entry last = r->timers.heap[r->n_timers--];
    if (last.timer != timer) place_timer(r, i, last);
}

uint64_t weft__timer_at(const struct reactor *r, const struct timer *timer) {
    return timer->slot ? r->timers.heap[timer->slot].at : UINT64_MAX;
}

unsigned weft__timers_run(struct reactor *r, unsigned budget) {
    if (!r->n_timers) return 0;
    /* No more than were running when we began: one that restarts itself in the past must not
     * hold the turn. */
    unsigned most = r->n_timers < budget ? r->n_timers : budget, n = 0;
    uint64_t now = weft__now(r);
    while (n < most && timers_nearest(r) <= now) {
        struct timer *timer = r->timers.heap[1].timer;
        weft__timer_stop(r, timer);
        n++;
        timer->fire(timer);
    }
    return n;
}
