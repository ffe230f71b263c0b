/*
 * Calls posted by other threads: a lock-free stack that many push and only the owner empties, whole, so there is
 * no ABA. Reversed, it is the order of posting. Each call then counts as one entry of the run queue.
 */
#include "local.h"

static void run_one(struct job *job) {
    struct reactor *r = (struct reactor *)((char *)job - offsetof(struct reactor, call_job));
    struct call *call = r->calls;
    r->calls = call->next;
    if (r->calls)
        weft__job_post(r, job);
    else
        r->last_call = &r->calls;
    struct call copy = *call;
    talloc_free(call);
    copy.fn(copy.arg);
}

void calls_open(struct reactor *r) {
    r->last_call = &r->calls;
    r->call_job.run = run_one;
}

weft_status_t weft__reactor_call(struct reactor *r, void (*fn)(void *), void *arg) {
    if (forked(r)) return weft__fail(WEFT_ERR_FORKED, "this process is a fork of the worker's");
    /* A root of its own: no other tree may be touched from this thread. */
    struct call *call = weft__new(NULL, struct call);
    if (!call) return WEFT_ERR_NO_MEMORY;
    call->fn = fn;
    call->arg = arg;
    call->next = atomic_load_explicit(&r->posted, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&r->posted, &call->next, call, memory_order_release,
                                                  memory_order_relaxed))
        ;
    weft__reactor_wake(r);
    return WEFT_OK;
}

void calls_take(struct reactor *r) {
    struct call *call = atomic_exchange_explicit(&r->posted, NULL, memory_order_acquire);
    struct call *oldest = NULL, *newest = call;
    for (struct call *next; call; call = next) {
        next = call->next;
        call->next = oldest;
        oldest = call;
    }
    if (!oldest) return;
    *r->last_call = oldest;
    r->last_call = &newest->next;
    weft__job_post(r, &r->call_job);
}

void calls_finish(struct reactor *r) {
    for (calls_take(r); r->calls; calls_take(r)) {
        weft__job_drop(r, &r->call_job);
        run_one(&r->call_job);
    }
    weft__job_drop(r, &r->call_job);
}
