/*
 * Watches. One function, `set`, sets in both libev and the outer epoll what is wanted, so that they
 * never differ. What they report is noted, and the handler runs from the queue. One watch per fd: a
 * second wants a dup(2).
 */
#include "local.h"
#include <fcntl.h>

static struct reactor *reactor_of(const struct watch_state *state) {
    return state->io.data;
}

static void run_ready(struct job *job) {
    struct watch_state *state = container_of(job, struct watch_state, job);
    struct watch *watch = state->watch;
    int events = watch->got & watch->events; /* the mask may have changed */
    watch->got = 0;
    reactor_of(state)->watch_answered = true;
    if (!watch->notified_once) reactor_of(state)->watch_ran = true;
    if (events) watch->ready(watch, events);
}

void weft__watch_got(struct watch_state *state, int events) {
    state->watch->got |= (uint8_t)events & state->watch->events;
    weft__job_post(reactor_of(state), &state->job);
}

static weft_status_t set_watch(struct reactor *r, struct watch_state *state, int events) {
    weft_status_t st = weft__wakeup_outer_set(r, state, events);
    if (st < 0) return st;
    if (r->ev.loop && events != state->watch->events) weft__loop_watch(r, state, events);
    state->watch->events = (uint8_t)events;
    return WEFT_OK;
}

static void put_spare(struct reactor *r, struct watch_state *state) {
    *state = (struct watch_state){.next = r->watches.spare};
    r->watches.spare = state;
}

/* Made by the block, and kept: one for itself would be as much again in the allocator. */
static bool make_states(struct reactor *r) {
    struct watch_block *block = weft__new(r->internals, struct watch_block);
    if (!block) return false;
    block->next = r->watches.blocks;
    r->watches.blocks = block;
    for (unsigned i = 0; i < WATCH_BLOCK; i++) put_spare(r, &block->state[i]);
    return true;
}

static struct watch_state *get_state(struct reactor *r) {
    if (!r->watches.spare && !make_states(r)) return NULL;
    struct watch_state *state = r->watches.spare;
    r->watches.spare = state->next;
    r->n_watches++;
    return state;
}

static void put_state(struct reactor *r, struct watch_state *state) {
    weft__job_drop(r, &state->job);
    put_spare(r, state);
    r->n_watches--;
}

weft_status_t weft__watch_start(struct reactor *r, struct watch *watch, int fd, int events) {
    if (watch->state) return weft__watch_change(r, watch, events);
    if (!r->virtual.clock && fcntl(fd, F_GETFD) < 0)
        return weft__fail(WEFT_ERR_IO, "fd %d is not open", fd);
    struct watch_state *state = get_state(r);
    if (!state) return WEFT_ERR_NO_MEMORY;
    *state = (struct watch_state){.job.run = run_ready, .io.data = r, .watch = watch};
    watch->state = state;
    watch->fd = fd;
    watch->events = watch->got = 0;
    weft_status_t st = set_watch(r, state, events);
    if (st < 0) weft__watch_stop(r, watch);
    return st;
}

weft_status_t weft__watch_change(struct reactor *r, struct watch *watch, int events) {
    return set_watch(r, watch->state, events);
}

void weft__watch_stop(struct reactor *r, struct watch *watch) {
    if (!watch->state) return;
    set_watch(r, watch->state, 0);
    put_state(r, watch->state);
    watch->state = NULL;
    watch->events = 0;
}
