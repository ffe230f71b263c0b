/*
 * What other threads hand to the owner: a lock-free stack that many push and only the owner empties, whole, so there is
 * no ABA. Reversed, it is the order of handing over. Together they are one entry of the run queue, which runs some of them;
 * of the budget each takes as much as an entry.
 */
#include "local.h"

enum { AT_ONCE = 64 };

static void run_one(struct reactor *r) {
    struct remote *remote = r->remotes;
    r->remotes = remote->next;
    if (!r->remotes) r->last_remote = &r->remotes;
    remote->run(remote);
}

static void run_some(struct job *job) {
    struct reactor *r = (struct reactor *)((char *)job - offsetof(struct reactor, remote_job));
    run_one(r);
    for (int i = 1; i < AT_ONCE && r->remotes && r->jobs_left; i++) {
        r->jobs_left--;
        run_one(r);
    }
    if (r->remotes) weft__job_post(r, job);
}

void remotes_open(struct reactor *r) {
    r->last_remote = &r->remotes;
    r->remote_job.run = run_some;
}

void weft__reactor_submit(struct reactor *r, struct remote *remote) {
    remote->next = atomic_load_explicit(&r->posted, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&r->posted, &remote->next, remote, memory_order_release,
                                                  memory_order_relaxed))
        ;
    weft__reactor_wake(r);
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

weft_status_t weft__reactor_call(struct reactor *r, void (*fn)(void *), void *arg) {
    if (forked(r)) return weft__fail(WEFT_ERR_FORKED, "this process is a fork of the worker's");
    if (atomic_load_explicit(&r->over, memory_order_relaxed))
        return weft__fail(WEFT_ERR_CLOSED, "the worker runs what was posted last, and ends");
    /* A root of its own: no other tree may be touched from this thread. */
    struct call *call = weft__new(NULL, struct call);
    if (!call) return WEFT_ERR_NO_MEMORY;
    *call = (struct call){.remote.run = run_call, .reactor = r, .fn = fn, .arg = arg};
    weft__reactor_submit(r, &call->remote);
    return WEFT_OK;
}

void remotes_take(struct reactor *r) {
    struct remote *remote = atomic_exchange_explicit(&r->posted, NULL, memory_order_acquire);
    struct remote *oldest = NULL, *newest = remote;
    for (struct remote *next; remote; remote = next) {
        next = remote->next;
        remote->next = oldest;
        oldest = remote;
    }
    if (!oldest) return;
    *r->last_remote = oldest;
    r->last_remote = &newest->next;
    weft__job_post(r, &r->remote_job);
}

void weft__reactor_run_remotes(struct reactor *r) {
    for (remotes_take(r); r->remotes;) run_one(r);
    weft__job_drop(r, &r->remote_job);
}

/* One that posts itself again would be the last for ever. */
void weft__reactor_finish_remotes(struct reactor *r) {
    atomic_store_explicit(&r->over, true, memory_order_relaxed);
    do weft__reactor_run_remotes(r);
    while (atomic_load_explicit(&r->posted, memory_order_relaxed));
}
