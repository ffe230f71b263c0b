/*
 * What other threads hand to the owner. They push to a lock-free stack, which only the owner
 * empties, and always as a whole, so there is no ABA problem. Reversed, the stack is in the order
 * of pushing. All of them are one job of the run queue, which runs a part of them per pass. Each
 * counts as a job in the budget.
 */
#include "local.h"

enum { AT_ONCE = 64 };

static void run_one(struct reactor *r) {
    struct remote *remote = r->inbox.first;
    r->inbox.first = remote->next;
    if (!r->inbox.first) r->inbox.last = &r->inbox.first;
    remote->run(remote);
}

static void run_some(struct job *job) {
    struct reactor *r = container_of(job, struct reactor, inbox.job);
    run_one(r);
    for (int i = 1; i < AT_ONCE && r->inbox.first && r->jobs.left; i++) {
        r->jobs.left--;
        run_one(r);
    }
    if (r->inbox.first) weft__job_post(r, job);
}

void weft__remotes_open(struct reactor *r) {
    r->inbox.last = &r->inbox.first;
    r->inbox.job.run = run_some;
}

void weft__reactor_submit(struct reactor *r, struct remote *remote) {
    waker_enter(r);
    remote->next = atomic_load_explicit(&r->remote.posted, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&r->remote.posted, &remote->next, remote,
                                                  memory_order_release, memory_order_relaxed))
        ;
    weft__wake_within(r);
    waker_leave(r);
}

struct call {
    struct remote remote;
    struct reactor *reactor;
    void (*fn)(void *arg);
    void *arg;
};

static void run_call(struct remote *remote) {
    struct call call = *(struct call *)remote;
    talloc_free(remote);
    call.fn(call.arg);
    weft__program_returned(call.reactor);
}

static weft_status_t check_takes(const struct reactor *r) {
    if (forked(r))
        return weft__fail(WEFT_ERR_FORKED,
                          "the worker belongs to the parent of this forked process");
    if (atomic_load_explicit(&r->remote.over, memory_order_relaxed))
        return weft__fail(WEFT_ERR_CLOSED, "the worker is closing and takes no more posted calls");
    return WEFT_OK;
}

weft_status_t weft__reactor_offer(struct reactor *r, struct remote *remote) {
    weft_status_t st = check_takes(r);
    if (st == WEFT_OK) weft__reactor_submit(r, remote);
    return st;
}

weft_status_t weft__reactor_call(struct reactor *r, void (*fn)(void *), void *arg) {
    weft_status_t st = check_takes(r);
    if (st < 0) return st;
    /* A root of its own: no other tree may be touched from this thread. */
    struct call *call = weft__new(NULL, struct call);
    if (!call) return WEFT_ERR_NO_MEMORY;
    *call = (struct call){.remote.run = run_call, .reactor = r, .fn = fn, .arg = arg};
    weft__reactor_submit(r, &call->remote);
    return WEFT_OK;
}

void weft__remotes_take(struct reactor *r) {
    struct remote *remote = atomic_exchange_explicit(&r->remote.posted, NULL, memory_order_acquire);
    struct remote *oldest = NULL, *newest = remote;
    for (struct remote *next; remote; remote = next) {
        next = remote->next;
        remote->next = oldest;
        oldest = remote;
    }
    if (!oldest) return;
    *r->inbox.last = oldest;
    r->inbox.last = &newest->next;
    weft__job_post(r, &r->inbox.job);
}

void weft__reactor_run_remotes(struct reactor *r) {
    for (weft__remotes_take(r); r->inbox.first;) run_one(r);
    weft__job_drop(r, &r->inbox.job);
}

/* One that posts itself again would be the last for ever. */
void weft__reactor_finish_remotes(struct reactor *r) {
    atomic_store_explicit(&r->remote.over, true, memory_order_relaxed);
    do weft__reactor_run_remotes(r);
    while (atomic_load_explicit(&r->remote.posted, memory_order_relaxed));
}
