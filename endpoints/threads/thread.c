/* The thread of a worker: starting and stopping it, holding callbacks on it, and running them in
 * the program's progress. */
#include "thread.h"

#include <base/counters.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <endpoints/core/submit.h>
#include <endpoints/messages/am_recv.h>

enum { HELD_MOST = 1 << 30 }; /* bytes of one link; a turn may exceed it */

/* A message whose handler has not run. */
struct held_am {
    struct list queued;
    struct lane_keep keep;
    unsigned id;
    uint32_t ep;
    struct link *link; /* that received it; NULL: the link has ended */
    struct weft_am am;
    bool offered;
    bool notified; /* its handler has run */
    bool released; /* it was kept, and has been released */
    struct wire_rts rts;
    size_t size;  /* the keeper may write here once the message is delivered */
    char bytes[]; /* the header, then the data, or what an offer says of device memory */
};

_Static_assert(offsetof(struct held_am, bytes) == offsetof(struct held_am, size) + sizeof(size_t),
               "a word stands before the message");

struct worker_thread {
    pthread_t id;
    struct weft_worker *worker;
    weft_thread_params_t params;
    atomic_bool stop;   /* the thread shall end */
    atomic_bool wanted; /* the program wants the worker */
    atomic_bool full;   /* the thread waits in `resume` */
    atomic_bool news;   /* a callback is held, and `news_fd` is readable */
    atomic_bool woken;  /* by weft_worker_wake */
    bool woken_by_hand; /* weft_worker_wake ended the last wait */
    int news_fd;
    sem_t yielded, back, resume;

    /* of the program, while those of the worker hold messages */
    struct am_handler handlers[AM_ID_END];
    struct list held; /* messages, in order */
    size_t held_bytes, held_most;
    bool paused; /* a link has too many held messages */
    bool holding;
    struct job deliver; /* delivers held messages after the thread has ended */
};

/* ---- holding: on the thread */

/* If callbacks run on the thread, there is nothing to report. */
void weft__thread_news(struct weft_worker *worker) {
    struct worker_thread *t = worker->driver.thread;
    uint64_t one = 1;
    if (!t || (worker->driver.has_thread && !worker->driver.polled) ||
        atomic_exchange(&t->news, true))
        return;
    while (write(t->news_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Pauses those of its lanes that support it. The others still receive. */
static void pause_link(struct link *link, bool on) {
    link->paused = false;
    for (int i = 0; i < LINK_LANES; i++) {
        struct lane *lane = link->lanes[i];
        if (lane && lane->ops->pause && lane->ops->pause(lane, on) == WEFT_OK) link->paused |= on;
    }
}

/*
 * A link has as much as is left for others: so n that flood leave 1/(n + 1) of all, and are paused
 * one by one. Those that cannot be fill it, and then the thread takes nothing more from anybody.
 */
static void note_held(struct worker_thread *t, struct held_am *held, struct link *link) {
    size_t size = sizeof *held + held->size, left;
    held->link = link;
    link->held += (uint32_t)size;
    t->held_bytes += size;
    left = t->held_bytes < t->held_most ? t->held_most - t->held_bytes : 0;
    if (link->held <= left && link->held < HELD_MOST) return;
    t->paused = true;
    pause_link(link, true);
}

static void note_notified(struct worker_thread *t, const struct held_am *held) {
    size_t size = sizeof *held + held->size;
    t->held_bytes -= size;
    if (held->link) held->link->held -= (uint32_t)size;
}

void weft__thread_forget(const struct link *link) {
    struct worker_thread *t = link->worker->driver.thread;
    if (!t || !link->held) return;
    struct held_am *held;
    list_for_each_entry(held, &t->held, queued) {
        if (held->link == link) held->link = NULL;
    }
}

/* The sender gets its memory back with the answer, so the program must not see the offer any
 * more. */
bool weft__thread_withdrawn(const struct link *link, uint32_t offer) {
    struct worker_thread *t = link->worker->driver.thread;
    if (!t || !link->held) return false;
    struct held_am *held;
    list_for_each_entry(held, &t->held, queued) {
        if (held->link != link || !held->offered || held->rts.request != offer) continue;
        list_remove(&held->queued);
        note_notified(t, held);
        talloc_free(held);
        return true;
    }
    return false;
}

/* A lane may belong to another link by now. */
static void resume_links(struct worker_thread *t) {
    struct list *links = &t->worker->links;
    t->paused = false;
    list_for_each(n, links) {
        pause_link(list_of(n, struct link, of_worker), false);
    }
}

/* Holds a message, in place of calling its handler. */
static void hold_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct am_recv_desc *arrival = am->internal;
    struct weft_worker *worker = arrival->worker;
    struct worker_thread *t = worker->driver.thread;
    unsigned id = (unsigned)((struct am_handler *)arg - t->handlers);
    const struct wire_rts *offer = arrival->offer;
    const void *behind = offer ? offer->device : am->data; /* the header */
    size_t behind_len = offer ? offer->device_len : am->len, size = am->header_len + behind_len;
    struct held_am *held = weft__alloc(worker, sizeof *held + size, "struct held_am");
    if (!held) {
        worker->count->am_dropped++;
        if (ep) /* messages must keep their order */
            weft__ep_violation(ep, WEFT_ERR_NO_MEMORY,
                               "no memory for a message that waits for polled callbacks");
        return;
    }
    held->id = id;
    held->ep = ep ? weft__ep_id(ep) : 0;
    held->size = size;
    held->am = (weft_am_t){.header = held->bytes,
                           .header_len = am->header_len,
                           .data = offer ? NULL : held->bytes + am->header_len,
                           .len = am->len,
                           .memory = am->memory};
    if (am->header_len) memcpy(held->bytes, am->header, am->header_len);
    if (behind_len) memcpy(held->bytes + am->header_len, behind, behind_len);
    if (offer) {
        held->offered = true;
        held->rts = *offer;
        held->rts.header = held->bytes;
        held->rts.device = behind_len ? held->bytes + am->header_len : NULL;
        arrival->taken = true;
    }
    list_append(&t->held, &held->queued);
    note_held(t, held, ep ? ep->link : weft__lane_link(worker->kept.alone));
    weft__thread_news(worker);
}

/* Returns 1 if callbacks were reported, 0 if not, or an error. */
static int take_news(struct worker_thread *t) {
    uint64_t value;
    if (!atomic_load(&t->news)) return 0;
    if (read(t->news_fd, &value, sizeof value) < 0)
        return errno == EAGAIN ? 0
                               /* the writer is about to write */
                               : weft__fail(WEFT_ERR_IO, "eventfd: %s", strerror(errno));
    atomic_store(&t->news, false);
    return 1;
}

/* ---- notifications: on the thread that drives the worker now */

/* The handler may still read the header after a release. */
static void free_held(struct lane_keep *keep) {
    struct held_am *held = list_of(keep, struct held_am, keep);
    held->released = true;
    if (held->notified) talloc_free(held);
}

/* A handler may keep the record. */
static void deliver_am(struct worker_thread *t, struct held_am *held) {
    struct weft_worker *worker = t->worker;
    struct weft_ep *ep = weft__idmap_find(&worker->eps, held->ep);
    struct am_recv_desc arrival = {.worker = worker,
                                   .ep = ep,
                                   .offer = held->offered ? &held->rts : NULL,
                                   .record = &held->keep};
    note_notified(t, held);
    held->keep.release = free_held;
    if (ep || !held->ep) weft__am_handle(&arrival, &t->handlers[held->id], &held->am);
    held->notified = true;
    if (!arrival.taken || held->offered || held->released) talloc_free(held);
}

static void set_deliverable(struct weft_worker *worker, uint32_t notices) {
    worker->callbacks.deliverable = notices;
    if (notices == NOTICE_ALL)
        worker->match.slow &= ~(uint32_t)MATCH_CB_DEFERRED;
    else
        worker->match.slow |= MATCH_CB_DEFERRED;
}

static unsigned notify_endpoints(struct weft_worker *worker, uint32_t notices, unsigned most) {
    set_deliverable(worker, notices);
    return weft__eps_notify(worker, most);
}

/* Runs held callbacks: new endpoints, messages, completions, then errors. Returns how many,
 * `most` at most. */
static unsigned notify_thread(struct worker_thread *t, unsigned most) {
    struct weft_worker *worker = t->worker;
    struct list *node;
    unsigned n = notify_endpoints(worker, NOTICE_ENDPOINT | NOTICE_READY, most);
    for (; n < most && (node = list_pop(&t->held)) != NULL; n++)
        deliver_am(t, list_of(node, struct held_am, queued));
    if (n == most) return n;
    set_deliverable(worker, NOTICE_ALL);
    n += weft__submit_notify(worker, most - n);
    n += weft__memory_notify(worker, most - n);
    n += weft__requests_notify(worker, most - n);
    return n + notify_endpoints(worker, NOTICE_ALL, most - n);
}

/* ---- holding on and off */

static void hold_thread(struct worker_thread *t) {
    struct weft_worker *worker = t->worker;
    set_deliverable(worker, 0);
    weft__job_drop(worker->reactor, &t->deliver); /* the program polls again */
    if (t->holding) return;
    t->holding = true;
    worker->callbacks.handlers = t->handlers;
    memcpy(t->handlers, worker->am, sizeof worker->am);
    for (unsigned i = 0; i < AM_ID_END; i++)
        worker->am[i] = (struct am_handler){hold_am, &t->handlers[i]};
}

/* Runs in the next turn of the worker: held messages come before new ones. */
static void deliver_rest(struct job *job) {
    struct worker_thread *t = list_of(job, struct worker_thread, deliver);
    (void)take_news(t);
    (void)notify_thread(t, UINT_MAX);
    t->holding = false;
    t->worker->callbacks.handlers = t->worker->am;
    memcpy(t->worker->am, t->handlers, sizeof t->handlers);
    if (t->paused) resume_links(t);
}

/* ---- the thread */

static void wait_for(sem_t *sem) {
    while (sem_wait(sem) < 0 && errno == EINTR)
        ;
}

/* Submissions of the program are older than its calls while it has the worker: run them first. */
static void yield_worker(struct worker_thread *t) {
    weft__reactor_run_remotes(t->worker->reactor);
    sem_post(&t->yielded);
    wait_for(&t->back);
}

/* Waits until the program takes held callbacks, or stops the thread. */
static void wait_for_room(struct worker_thread *t) {
    atomic_store(&t->full, true);
    if (!atomic_load(&t->wanted)) wait_for(&t->resume);
    atomic_store(&t->full, false);
}

static void *run_thread(void *arg) {
    struct worker_thread *t = arg;
    wait_for(&t->back);
    if (!atomic_load(&t->stop) && t->params.on_start) t->params.on_start(t->params.arg);
    weft__program_returned(t->worker->reactor);
    while (!atomic_load(&t->stop)) {
        if (atomic_exchange(&t->wanted, false))
            yield_worker(t);
        else if (t->worker->driver.polled && t->held_bytes > t->held_most)
            wait_for_room(t);
        else
            weft__reactor_wait(t->worker->reactor, -1);
    }
    return NULL;
}

/* ---- the program's side */

/* Takes the worker between two turns of the thread. */
static void claim_worker(struct worker_thread *t) {
    struct reactor *r = t->worker->reactor;
    atomic_store(&t->wanted, true);
    if (atomic_exchange(&t->full, false)) sem_post(&t->resume);
    weft__reactor_wake(r);
    wait_for(&t->yielded);
    weft__reactor_give(r, pthread_self());
}

static void give_back(struct worker_thread *t) {
    weft__reactor_give(t->worker->reactor, t->id);
    sem_post(&t->back);
}

int weft__thread_progress(struct weft_worker *worker, unsigned budget) {
    struct worker_thread *t = worker->driver.thread;
    if (!worker->driver.polled)
        return weft__fail(WEFT_ERR_WRONG_THREAD, "the worker's own thread drives it");
    if (weft__worker_enter(worker) == WEFT_OK)
        return weft__fail(WEFT_ERR_BUSY, "progress was called from within a callback");
    t->woken_by_hand = false;
    int news = take_news(t);
    if (news <= 0) return news;
    t->woken_by_hand = atomic_exchange(&t->woken, false);

    claim_worker(t);
    unsigned most = budget == 0 || budget > INT_MAX ? INT_MAX : budget, n = notify_thread(t, most);
    set_deliverable(worker, 0);
    if (n == most) weft__thread_news(worker);
    if (t->paused && t->held_bytes <= t->held_most / 4) resume_links(t);
    give_back(t);
    return (int)n;
}

/* False: the timeout has passed. A signal does not end the wait. */
static bool wait_for_news(int fd, uint64_t until) {
    struct pollfd news = {.fd = fd, .events = POLLIN};
    uint64_t now = until == UINT64_MAX ? 0 : weft__real_now(), left = until - now;
    if (now >= until) return false;
    struct timespec most = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
    (void)ppoll(&news, 1, until == UINT64_MAX ? NULL : &most, NULL);
    return true;
}

/* The fd may be readable without a callback to run. */
weft_status_t weft__thread_wait(struct weft_worker *worker, int timeout_ms) {
    uint64_t until =
        timeout_ms < 0 ? UINT64_MAX : weft__real_now() + (uint64_t)timeout_ms * NS_PER_MS;
    struct worker_thread *t = worker->driver.thread;
    int n;
    do n = weft__thread_progress(worker, 0);
    while (n == 0 && !t->woken_by_hand && wait_for_news(t->news_fd, until));
    if (n < 0) return (weft_status_t)n;
    return n > 0 || t->woken_by_hand ? WEFT_OK : WEFT_ERR_TIMED_OUT;
}

int weft__thread_fd(struct weft_worker *worker) {
    if (!worker->driver.polled)
        return weft__fail(WEFT_ERR_WRONG_THREAD, "the worker's own thread drives it");
    return weft__reactor_fd(worker->reactor);
}

void weft__thread_wake(struct weft_worker *worker) {
    int before = errno;
    atomic_store(&worker->driver.thread->woken, true);
    weft__thread_news(worker);
    errno = before;
}

/* ---- start and stop */

static weft_status_t new_thread(struct weft_worker *worker) {
    struct worker_thread *t = weft__new(worker, struct worker_thread);
    if (!t) return WEFT_ERR_NO_MEMORY;
    t->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->news_fd < 0) {
        talloc_free(t);
        return weft__fail(weft__errno_status(errno), "eventfd: %s", strerror(errno));
    }
    sem_init(&t->yielded, 0, 0);
    sem_init(&t->back, 0, 0);
    sem_init(&t->resume, 0, 0);
    list_init(&t->held);
    t->worker = worker;
    t->deliver.run = deliver_rest;
    t->held_most = weft__setting_u64(worker->context, SETTING_THREAD_PENDING);
    worker->driver.thread = t;
    return WEFT_OK;
}

/* Signals go to threads of the program. */
static int thread_create(struct worker_thread *t) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&t->id, NULL, run_thread, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Wakes the thread, wherever it waits. */
static void end_thread(struct worker_thread *t) {
    atomic_store(&t->stop, true);
    sem_post(&t->back);
    pthread_join(t->id, NULL);
}

/* The worker's fd reports held callbacks, or nothing. */
static weft_status_t part_thread(struct worker_thread *t) {
    struct reactor *r = t->worker->reactor;
    bool polled = t->params.callbacks == WEFT_CALLBACKS_POLLED;
    return polled || weft__reactor_has_fd(r) ? weft__reactor_detach(r, polled ? t->news_fd : -1)
                                             : WEFT_OK;
}

static void begin_thread(struct worker_thread *t) {
    struct weft_worker *worker = t->worker;
    worker->driver.polled = t->params.callbacks == WEFT_CALLBACKS_POLLED;
    if (worker->driver.polled) hold_thread(t);
    worker->driver.has_thread = true; /* set before its first callback reads it */
    give_back(t);
}

weft_status_t weft_worker_start_thread_sized(size_t params_size, weft_worker_t *worker,
                                             const weft_thread_params_t *params) {
    weft_thread_params_t p;
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st < 0) return st;
    if (p.callbacks > WEFT_CALLBACKS_POLLED)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "callbacks is %d", p.callbacks);
    st = weft__worker_check_own(worker);
    if (st < 0) return st;
    if (worker->driver.has_thread)
        return weft__fail(WEFT_ERR_BUSY, "the worker already has a thread");
    st = weft__worker_check(worker);
    if (st < 0) return st;
    if (worker->driver.thread_mode != WEFT_THREAD_MULTIPLE || worker->driver.hosted)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the worker %s",
                          worker->driver.hosted ? "is driven by the program's loop"
                                                : "was not created with WEFT_THREAD_MULTIPLE");
    if (weft__reactor_in_turn(worker->reactor))
        return weft__fail(WEFT_ERR_BUSY, "called from within a callback");
    if (!worker->driver.thread && (st = new_thread(worker)) < 0) return st;

    struct worker_thread *t = worker->driver.thread;
    t->params = p;
    atomic_store(&t->stop, false);
    int error = thread_create(t);
    if (error) return weft__fail(WEFT_ERR_NO_MEMORY, "pthread_create: %s", strerror(error));
    st = part_thread(t);
    if (st < 0)
        end_thread(t);
    else
        begin_thread(t);
    return st;
}

weft_status_t weft__thread_stop(struct weft_worker *worker, bool joined) {
    if (!worker->driver.has_thread)
        return weft__fail(WEFT_ERR_NOT_FOUND, "the worker has no thread");
    weft_status_t st = weft__reactor_check(worker->reactor);
    if (st == WEFT_ERR_FORKED) return st;
    if (st == WEFT_OK) return weft__fail(WEFT_ERR_BUSY, "called from within a callback");

    struct worker_thread *t = worker->driver.thread;
    claim_worker(t);
    st = joined ? weft__reactor_attach(worker->reactor, t->news_fd) : WEFT_OK;
    if (st < 0) {
        give_back(t);
        return st;
    }
    end_thread(t);
    worker->driver.has_thread = false;
    if (t->holding) weft__job_post(worker->reactor, &t->deliver);
    if (worker->stub && worker->stub->stopped) worker->stub->stopped(worker->stub);
    return WEFT_OK;
}

weft_status_t weft_worker_stop_thread(weft_worker_t *worker) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = weft__worker_check_own(worker);
    return st < 0 ? st : weft__thread_stop(worker, true);
}

void weft__thread_end(struct weft_worker *worker) {
    struct worker_thread *t = worker->driver.thread;
    struct list *node;
    if (!t) return;
    weft__job_drop(worker->reactor, &t->deliver);
    while ((node = list_pop(&t->held)) != NULL) talloc_free(list_of(node, struct held_am, queued));
    sem_destroy(&t->yielded);
    sem_destroy(&t->back);
    sem_destroy(&t->resume);
    close(t->news_fd);
}
