/* The worker: creation and close (the port of worker.fsm), progress and waiting, and its
 * description. */
#include "drive.h"
#include "features.h"

#include <base/check.h>
#include <base/counters.h>
#include <limits.h>

#include "associate.h"
#include "transfer_users.h"
#include <base/numa.h>
#include <endpoints/connect/connect.h>
#include <endpoints/core/submit.h>
#include <endpoints/core/worker.h>
#include <endpoints/inspect/stats_page.h>
#include <endpoints/lanes/negotiate.h>
#include <endpoints/lanes/usage_worker.h>
#include <endpoints/messages/am.h>
#include <endpoints/messages/message_memory.h>
#include <endpoints/messages/stream.h>
#include <endpoints/messages/tag.h>
#include <endpoints/messages/tag_fragments.h>
#include <endpoints/rma/rma.h>
#include <endpoints/threads/thread.h>
#include <endpoints/transfer/device_staging.h>
#include <endpoints/transfer/expose.h>
#include <endpoints/transfer/placement.h>
#include <endpoints/transfer/rails.h>
#include <endpoints/transfer/rendezvous.h>
#include <endpoints/transfer/split_copy.h>
#include <transports/cuda/driver.h>
#include <transports/reliable/window_lane.h>

/* ---- the machine: the end, bottom up */

static void settle_later(struct weft_worker *worker) {
    weft__job_post(worker->reactor, &worker->close.step);
}

static void attachment_closed(struct weft_worker *worker) {
    worker->n_attachments--;
    settle_later(worker);
}

static void close_attachments(struct weft_worker *worker) {
    struct list *node;
    weft__posts_close(worker);
    while ((node = list_pop(&worker->attachments)) != NULL) {
        struct worker_attachment *attachment = list_of(node, struct worker_attachment, of_worker);
        attachment->close(worker, attachment->object, attachment_closed);
    }
    settle_later(worker);
}

static void start_close_timer(struct weft_worker *worker) {
    uint64_t ms = weft__setting_u64(worker->context, SETTING_CLOSE_TIMEOUT);
    /* Cannot fail: reserve_close reserved a place. */
    (void)weft__timer_start(worker->reactor, &worker->close.timer,
                            weft__now(worker->reactor) + ms * NS_PER_MS);
}

static void abort_all(struct list *endpoints) {
    list_for_each_safe(n, next, endpoints) {
        weft__ep_abort(list_of(n, struct weft_ep, of_worker));
    }
}

static void close_endpoints(struct weft_worker *worker) {
    weft__listeners_close(worker);
    start_close_timer(worker);
    abort_all(&worker->due);
    abort_all(&worker->endpoints);
    settle_later(worker);
}

/* "close.timeout" has passed. Endpoints whose peer may still read their memory lose their link.
 * Links that still close are aborted. */
static void close_due(struct timer *timer) {
    struct weft_worker *worker = list_of(timer, struct weft_worker, close.timer);
    list_for_each_safe(n, next, &worker->links) {
        struct link *link = list_of(n, struct link, of_worker);
        if (worker_ends_endpoints(&worker->core.fsm))
            weft__link_lose(link, weft__fail(WEFT_ERR_CLOSED, "the worker closed"));
        else
            link->lanes[0]->ops->close(link->lanes[0], false);
    }
}

static void close_links(struct weft_worker *worker) {
    start_close_timer(worker);
    list_for_each_safe(n, next, &worker->links) {
        weft__link_close(list_of(n, struct link, of_worker));
    }
    settle_later(worker);
}

static void drop_messages(struct match *m, struct list *queue) {
    struct list *node;
    while ((node = queue->next) != queue) {
        struct weft_tag_message *message = list_of(node, struct weft_tag_message, in_order);
        weft__match_remove(m, message);
        weft__message_free(message);
    }
}

/* The memory is freed after this turn; the callback of the program comes last. */
static void end_worker(struct weft_worker *worker) {
    weft__posts_close(worker);
    weft__device_copies_end(worker);
    weft__reactor_finish_remotes(worker->reactor); /* refuses submissions of other threads */
    weft__submit_end(worker);
    weft__thread_end(worker);
    weft__tracking_end(worker);
    weft__timer_release(worker->reactor, &worker->close.timer);
    weft__job_drop(worker->reactor, &worker->close.step);
    weft__job_drop(worker->reactor, &worker->notify);
    weft__job_drop(worker->reactor, &worker->ctrl_failed);
    weft__slab_end(&worker->pools.eps);
    weft__slab_end(&worker->pools.links);
    drop_messages(&worker->match, &worker->match.unexpected);
    drop_messages(&worker->match, &worker->match.taken);
    for (uint32_t i = 0; i < worker->n_ifaces; i++) worker->iface[i]->ops->close(worker->iface[i]);
    weft__stats_end(worker);
    weft__memory_end(worker);
    if (worker->stub)
        weft__worker_outlives(worker);
    else
        weft__free_later(worker->reactor, worker);
    weft__reactor_end(worker->reactor, worker->close.done, worker->close.arg);
}

static void worker_effect(struct fsm *m, unsigned effect) {
    struct weft_worker *worker = list_of(m, struct weft_worker, core.fsm);
    switch ((enum worker_effect)effect) {
    case WORKER_FX_CLOSE_ATTACHMENTS: close_attachments(worker); break;
    case WORKER_FX_CLOSE_ENDPOINTS: close_endpoints(worker); break;
    case WORKER_FX_CLOSE_LINKS: close_links(worker); break;
    case WORKER_FX_END: end_worker(worker); break;
    case WORKER_N_EFFECTS: break;
    }
}

static void worker_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct weft_worker *worker = list_of(m, struct weft_worker, core.fsm);
    weft__log(worker->context, WEFT_LOG_ERROR, "endpoints", "worker: %s in %s",
              weft__worker_machine.event_name[event], fsm_state_name(m));
}

static const struct fsm_port worker_port = {&weft__worker_machine, worker_effect, worker_fail};

void weft__worker_end_receives(struct weft_worker *worker, weft_status_t status) {
    struct match *m = &worker->match;
    for (unsigned i = 0; i <= MATCH_BUCKETS; i++) {
        struct list *queue = i < MATCH_BUCKETS ? &m->posted[i] : &m->posted_masked;
        while (!list_empty(queue))
            weft__request_stop(list_of(queue->next, struct weft_request, queued), status);
    }
}

/* Gives the machine its event once the condition of its state holds. */
static void settle_worker(struct job *job) {
    struct weft_worker *worker = list_of(job, struct weft_worker, close.step);
    struct fsm *m = &worker->core.fsm;
    if (worker_ends_attachments(m)) {
        if (worker->n_attachments == 0) weft__fsm_step(m, WORKER_EV_ATTACHMENTS_GONE);
    } else if (worker_ends_endpoints(m)) {
        weft__worker_end_receives(worker, WEFT_ERR_CLOSED);
        if (list_empty(&worker->endpoints) && list_empty(&worker->due))
            weft__fsm_step(m, WORKER_EV_ENDPOINTS_GONE);
    } else if (worker_ends_links(m)) {
        if (worker->n_lanes == 0) weft__memory_close(worker);
        if (!list_empty(&worker->callbacks.done)) settle_later(worker);
        if (worker->n_lanes == 0 && list_empty(&worker->callbacks.done))
            weft__fsm_step(m, WORKER_EV_LINKS_GONE);
    }
}

/* ---- making one */

static const struct transport *find_transport(const char *name, size_t len) {
    for (const struct transport *const *t = weft__transports; *t; t++)
        if (strlen((*t)->name) == len && memcmp((*t)->name, name, len) == 0) return *t;
    return NULL;
}

/* Without memory for the reason it is the status alone. */
static void note_unopened(struct weft_worker *worker, const struct transport *transport,
                          weft_status_t status) {
    char causes[512];
    const char *kept =
        weft__causes_line(status, causes, sizeof causes) ? talloc_strdup(worker, causes) : NULL;
    struct unopened left = {transport->name, kept ? kept : weft_status_sentence(status)};
    weft__log(worker->context, WEFT_LOG_INFO, "endpoints", "transport %s is not available: %s",
              left.transport, left.why);
    if (worker->n_unopened < WORKER_IFACES) worker->unopened[worker->n_unopened++] = left;
}

/* An unreliable transport is wrapped by the sliding window. */
static weft_status_t open_iface(struct weft_worker *worker, const struct transport *transport) {
    const struct iface_up *up = worker->tracking ? &worker->tracking->up : &weft__worker_up;
    struct iface_params params = {.up = up, .owner = worker, .worker_id = worker->id};
    struct iface *iface;
    weft__causes_clear();
    weft_status_t st = transport->open(worker->reactor, &params, &iface);
    if (st == WEFT_OK && !(iface->attr.caps & CAP_RELIABLE)) {
        iface->ops->close(iface);
        st = weft__window_iface_open(worker->reactor, transport, &params, &iface);
    }
    if (st < 0) {
        note_unopened(worker, transport, st);
        return st;
    }
    worker->iface[worker->n_ifaces++] = iface;
    return WEFT_OK;
}

/* The causes are the reasons of all. */
static weft_status_t fail_unopened(const struct weft_worker *worker, const char *list) {
    weft__causes_clear();
    for (uint32_t i = 0; i < worker->n_unopened; i++)
        (void)weft__fail_in(WEFT_ERR_UNSUPPORTED, "%s: %s", worker->unopened[i].transport,
                            worker->unopened[i].why);
    return weft__fail_in(WEFT_ERR_UNSUPPORTED, "none of '%s' could be opened", list);
}

static weft_status_t unknown_transport(const char *name, int len) {
    char known[128] = "";
    size_t used = 0;
    for (const struct transport *const *t = weft__transports; *t && used < sizeof known; t++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                 (*t)->name);
    return weft__fail(WEFT_ERR_INVALID_PARAM, "there is no transport '%.*s'; this build has %s",
                      len, name, known);
}

static weft_status_t open_ifaces(struct weft_worker *worker, const char *list) {
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ", ");
        const struct transport *transport = find_transport(at, len);
        if (len && !transport) return unknown_transport(at, (int)len);
        if (len && worker->n_ifaces < WORKER_IFACES) (void)open_iface(worker, transport);
        at += len;
        at += strspn(at, ", ");
    }
    return worker->n_ifaces ? WEFT_OK : fail_unopened(worker, list);
}

/* Costs of the interfaces, and the protocol limits that follow. */
static void weigh_ifaces(struct weft_worker *worker) {
    uint64_t threshold = weft__setting_u64(worker->context, SETTING_RENDEZVOUS_THRESHOLD);
    weft__calibration_transports(worker->reactor, &worker->calibration, worker->iface,
                                 worker->n_ifaces);
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        worker->limits[i] =
            weft__protocol_limits(&worker->iface[i]->attr, &worker->calibration, threshold);
}

static void complete(struct job *job) {
    weft__requests_complete(list_of(job, struct weft_worker, callbacks.complete));
}

static void notify_due_endpoints(struct job *job) {
    (void)weft__eps_notify(list_of(job, struct weft_worker, notify), UINT_MAX);
}

/* How many endpoints get `whole` bytes of the first half of a bound. */
static uint32_t full_quotas(uint64_t bound, uint64_t whole) {
    uint64_t n = bound / 2 / whole;
    if (n == 0) return 1;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Quotas of unexpected bytes (quota.h); an endpoint's and a link's in 32 bits. */
static void share_out(struct weft_worker *worker, const weft_context_t *context) {
    worker->limit.unexpected = weft__setting_u32(context, SETTING_TAG_UNEXPECTED, INT32_MAX);
    worker->limit.stream_window = weft__setting_u32(context, SETTING_STREAM_WINDOW, UINT32_MAX);
    assert(worker->limit.unexpected >= TAG_MESSAGE_COST && worker->limit.stream_window > 0);
    uint64_t of_link = weft__setting_u64(context, SETTING_PEER_MAX_UNEXPECTED),
             of_all = weft__setting_u64(context, SETTING_PEERS_MAX_UNEXPECTED);
    uint64_t whole = (uint64_t)worker->limit.unexpected + worker->limit.stream_window;
    if (of_link < 2 * whole) of_link = 2 * whole; /* one whole quota, the same for all others */
    if (of_link > UINT32_MAX) of_link = UINT32_MAX;
    if (of_all < of_link) of_all = of_link;
    worker->limit.link_unexpected = (uint32_t)of_link;
    worker->limit.max_kept = of_all;
    worker->limit.full_quotas = full_quotas(of_link, whole);
    worker->limit.all_full_quotas = full_quotas(of_all, whole);
}

static void init_lists(struct weft_worker *worker) {
    struct list *lists[] = {&worker->endpoints,
                            &worker->due,
                            &worker->links,
                            &worker->listening,
                            &worker->attachments,
                            &worker->callbacks.done,
                            &worker->callbacks.held_done,
                            &worker->callbacks.held_posted,
                            &worker->pools.requests,
                            &worker->late_receives,
                            &worker->left_flushes};
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) list_init(lists[i]);
    for (unsigned i = 0; i < WORKER_PEERS; i++) list_init(&worker->peers[i]);
}

static void init_jobs(struct weft_worker *worker) {
    worker->callbacks.complete.run = complete;
    worker->close.step.run = settle_worker;
    worker->notify.run = notify_due_endpoints;
    worker->ctrl_failed.run = weft__links_ctrl_failed;
    worker->close.timer.fire = close_due;
}

static void worker_init(struct weft_worker *worker, struct reactor *r, weft_context_t *context,
                        const weft_worker_params_t *params) {
    worker->reactor = r;
    worker->context = context;
    worker->features = &weft__features;
    worker->callbacks.handlers = worker->am;
    worker->count = weft__count(r);
    worker->on_endpoint = params->on_endpoint;
    worker->on_lane = params->on_lane;
    worker->on_error = params->on_error;
    worker->arg = params->arg;
    worker->driver.thread_mode = params->thread_mode;
    worker->driver.hosted = params->loop != NULL;
    worker->callbacks.deliverable = NOTICE_ALL;
    worker->limit.endpoints = weft__setting_u32(context, SETTING_PEER_MAX_ENDPOINTS, UINT32_MAX);
    worker->limit.links = weft__setting_u32(context, SETTING_PEER_MAX_LINKS, UINT32_MAX);
    worker->limit.answers = weft__setting_u32(context, SETTING_PEER_MAX_ANSWERS, UINT32_MAX);
    worker->limit.max_opened = weft__setting_u32(context, SETTING_PEERS_MAX_ENDPOINTS, UINT32_MAX);
    worker->limit.max_accepted = weft__setting_u32(context, SETTING_PEERS_MAX_LINKS, UINT32_MAX);
    share_out(worker, context);
    init_lists(worker);
    init_jobs(worker);
    weft__slab_init(&worker->pools.eps, r, worker, sizeof(struct weft_ep), "endpoints");
    weft__slab_init(&worker->pools.links, r, worker, sizeof(struct link), "links");
    weft__match_init(&worker->match);
    weft__memory_init(worker);
    weft__rma_open(worker);
    weft__placements_init(&worker->placements);
    weft__device_copies_init(worker);
    weft__offers_init(&worker->offers);
    worker->transfer_users = &weft__transfer_users;
    do worker->id = weft__random(r);
    while (worker->id == 0);
    fsm_init(&worker->core.fsm, &worker_port, WORKER_OPEN, (uint32_t)worker->id);
}

/* Reserves a place for the timer, so that closing takes no memory. */
static weft_status_t reserve_close(struct weft_worker *worker) {
    return weft__timer_reserve(worker->reactor, &worker->close.timer);
}

static weft_status_t open_parts(struct weft_worker *worker, const char *transports) {
    weft_status_t st = reserve_close(worker);
    if (st == WEFT_OK) st = weft__tracking_open(worker, &weft__worker_up);
    if (st == WEFT_OK) st = open_ifaces(worker, transports);
    if (st < 0) return st;
    weigh_ifaces(worker);
    st = weft__tracking_start(worker);
    return st == WEFT_OK ? weft__lanes_open(worker) : st;
}

void weft__worker_discard(struct weft_worker *worker) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++) worker->iface[i]->ops->close(worker->iface[i]);
    weft__stats_end(worker);
}

static weft_status_t open_worker(weft_worker_t *worker, struct reactor *r,
                                 const weft_worker_params_t *params) {
    weft_context_t *context = weft__reactor_context(r);
    worker_init(worker, r, context, params);
    weft__calibration(r, &worker->calibration);
    worker->name = params->name ? talloc_strdup(worker, params->name) : NULL;
    weft__stats_open(worker);
    weft_status_t st =
        open_parts(worker, params->transports ? params->transports
                                              : weft__setting_str(context, SETTING_TRANSPORTS));
    if (st < 0) {
        weft__worker_discard(worker);
        return st;
    }
    weft__stats_transports(worker);
    return WEFT_OK;
}

weft_status_t weft__worker_create_on(struct reactor *r, const weft_worker_params_t *params,
                                     weft_worker_t **worker_p) {
    struct weft_worker *worker = weft__new(r, struct weft_worker);
    if (!worker) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = open_worker(worker, r, params);
    if (st < 0)
        talloc_free(worker);
    else
        *worker_p = worker;
    return st;
}

weft_status_t weft__worker_open_in(weft_worker_t *worker, struct reactor *r,
                                   const weft_worker_params_t *params) {
    return open_worker(worker, r, params);
}

weft_status_t weft_worker_create_sized(size_t params_size, weft_context_t *context,
                                       const weft_worker_params_t *params,
                                       weft_worker_t **worker_p) {
    weft_worker_params_t p;
    if (!context || !worker_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "context or worker_p is NULL");
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st < 0) return st;
    if (p.thread_mode > WEFT_THREAD_MULTIPLE)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "thread_mode is %d", p.thread_mode);
#ifdef WEFT_THREADS_FIXED
    if (p.thread_mode > WEFT_THREADS_FIXED)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "this build supports thread mode %d only",
                          WEFT_THREADS_FIXED);
#endif

    weft__cuda_notice();
    if (p.associated) return weft__worker_stub(context, &p, worker_p);
    st = weft__context_usable(context);
    if (st < 0) return st;
    struct reactor *r;
    st = weft__reactor_create(context, &(struct reactor_params){.loop = p.loop}, &r);
    if (st < 0) return st;
    weft__reactor_thread_mode(r, p.thread_mode);
    st = weft__worker_create_on(r, &p, worker_p);
    if (st < 0) weft__reactor_destroy(r);
    return st;
}

static void noop(weft_status_t status, void *arg) {}

weft_status_t weft_worker_close(weft_worker_t *worker, const weft_op_t *op) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    if (weft__worker_is_resting(worker)) return weft__worker_stub_close(worker);
    weft_status_t st = weft__worker_check(worker);
    if (st == WEFT_OK) st = weft__check_close(op, false);
    if (st < 0) return st;
    if (!worker_is_open(&worker->core.fsm))
        return weft__fail(WEFT_ERR_BUSY, "the worker is closing already");
    if (worker->driver.has_thread)
        return weft__fail(WEFT_ERR_BUSY,
                          "the worker's own thread drives it; call weft_worker_stop_thread first");
    worker->close.done = op && op->done ? op->done : noop;
    worker->close.arg = op ? op->arg : NULL;
    if (op && op->request_p) *op->request_p = NULL;
    weft__fsm_step(&worker->core.fsm, WORKER_EV_CLOSE);
    return WEFT_IN_PROGRESS;
}

static void note_status(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* "close.timeout" bounds each step of the close. */
void weft_worker_destroy(weft_worker_t *worker) {
    weft_status_t done = WEFT_IN_PROGRESS;
    if (worker && worker->stub) {
        weft__worker_stub_destroy(worker);
        return;
    }
    if (!worker || (worker->driver.has_thread && weft__thread_stop(worker, false) < 0)) return;
    if (weft__worker_check(worker) < 0 || weft__reactor_in_turn(worker->reactor)) return;
    struct reactor *r = worker->reactor;
    if (weft_worker_close(worker, &(weft_op_t){.done = note_status, .arg = &done}) < 0) return;
    while (done == WEFT_IN_PROGRESS) weft__reactor_wait(r, 100);
}

weft_status_t weft_worker_adopt(weft_worker_t *worker) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = weft__worker_check_own(worker);
    if (st < 0) return st;
    if (worker->driver.has_thread)
        return weft__fail(WEFT_ERR_BUSY, "the worker has a thread of its own");
    return weft__reactor_adopt(worker->reactor);
}

/* ---- driving it */

/* A worker with a thread accepts calls of any thread of its process, but not of a forked child. */
static weft_status_t check_driven(const weft_worker_t *worker) {
    weft_status_t st = weft__worker_enter(worker);
    return st < 0 ? st : WEFT_OK;
}

/* A worker without a reactor of its own counts as driven, so that the others ask no more. */
static NOINLINE int progress_driven(weft_worker_t *worker, unsigned budget) {
    if (worker->shared) return weft_worker_progress(worker->shared, budget);
    weft_status_t st = check_driven(worker);
    return st < 0 ? (int)st : weft__thread_progress(worker, budget);
}

int weft_worker_progress(weft_worker_t *worker, unsigned budget) {
    bool driven = atomic_load_explicit(&worker->driver.has_thread, memory_order_acquire);
    if (UNLIKELY(driven)) return progress_driven(worker, budget);
    return weft__reactor_progress(worker->reactor, budget);
}

static int worker_fd(weft_worker_t *worker, int (*fd_of)(struct reactor *r)) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st =
        worker->driver.has_thread ? check_driven(worker) : weft__worker_check(worker);
    if (st < 0) return (int)st;
    return worker->driver.has_thread ? weft__thread_fd(worker) : fd_of(worker->reactor);
}

int weft_worker_fd(weft_worker_t *worker) {
    return worker_fd(worker, weft__reactor_fd);
}

int weft_worker_fd_level(weft_worker_t *worker) {
    return worker_fd(worker, weft__reactor_fd_level);
}

void weft_worker_wake(weft_worker_t *worker) {
    if (!worker) return;
    worker = weft__worker_itself(worker);
    if (weft__reactor_is_dormant(worker->reactor)) return;
    weft__reactor_wake(worker->reactor);
    if (worker->driver.has_thread && check_driven(worker) == WEFT_OK) weft__thread_wake(worker);
}

int weft_worker_spin(weft_worker_t *worker) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st =
        worker->driver.has_thread ? check_driven(worker) : weft__worker_check(worker);
    if (st < 0 || worker->driver.has_thread) return st;
    return weft__reactor_spin(worker->reactor);
}

weft_status_t weft_worker_wait(weft_worker_t *worker, int timeout_ms) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st =
        worker->driver.has_thread ? check_driven(worker) : weft__worker_check(worker);
    if (st < 0) return st;
    if (worker->driver.has_thread) return weft__thread_wait(worker, timeout_ms);
    if (weft__reactor_in_turn(worker->reactor))
        return weft__fail(WEFT_ERR_BUSY, "called from within a callback");
    return weft__reactor_wait(worker->reactor, timeout_ms);
}

/* The owner of a worker with a thread is always within a callback: on that thread, or in
 * progress with polled callbacks. */
weft_status_t weft__worker_check_wait(const weft_worker_t *worker) {
    bool owner = weft__worker_enter(worker) == WEFT_OK;
    if (!owner || !(worker->driver.has_thread || weft__reactor_in_turn(worker->reactor)))
        return WEFT_OK;
    return weft__fail(WEFT_ERR_BUSY, "called from within a callback");
}

weft_status_t weft__worker_wait_for(weft_worker_t *worker, const weft_status_t *done_p) {
    while (*done_p == WEFT_IN_PROGRESS) {
        weft_status_t st = weft_worker_wait(worker, -1);
        if (st < 0) return st;
    }
    return *done_p;
}

weft_status_t weft_worker_post(weft_worker_t *worker, void (*fn)(void *arg), void *arg) {
    if (!worker || !fn) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or fn is NULL");
    worker = weft__worker_itself(worker);
    if (weft__reactor_is_dormant(worker->reactor)) return weft__worker_check(worker);
    weft_status_t st = weft__reactor_call(worker->reactor, fn, arg);
    bool refused = st == WEFT_ERR_CLOSED && weft__worker_end_status(worker) != st;
    return refused ? weft__worker_refuse(worker) : st; /* in its last turn */
}

uint64_t weft_worker_now(weft_worker_t *worker) {
    if (!worker) return 0;
    return weft__reactor_time(weft__worker_itself(worker)->reactor);
}

/* ---- asking it */

weft_status_t weft_worker_counter(weft_worker_t *worker, size_t index, const char **name_p,
                                  uint64_t *value_p) {
    if (!worker || !name_p || !value_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, name_p or value_p is NULL");
    worker = weft__worker_itself(worker);
    return weft__counter_at(worker->count, index, name_p, NULL, value_p) ? WEFT_OK
                                                                         : WEFT_ERR_NOT_FOUND;
}

uint64_t weft_worker_count(weft_worker_t *worker, const char *name) {
    worker = weft__worker_itself(worker);
    return worker && name ? weft__counter_named(worker->count, name) : 0;
}

size_t weft_worker_trace(weft_worker_t *worker, char *buf, size_t size) {
    if (!worker) return 0;
    worker = weft__worker_itself(worker);
    return weft__fsm_trace_print(weft__reactor_trace(worker->reactor), 0, 0, buf, size);
}

weft_status_t weft_worker_transport_sized(size_t info_size, weft_worker_t *worker, size_t index,
                                          weft_transport_info_t *info_p) {
    if (!worker || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or info_p is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check_own(worker);
    if (st < 0) return st;
    if (index >= worker->n_ifaces) return WEFT_ERR_NOT_FOUND;
    const struct iface *iface = worker->iface[index];
    const weft_transport_info_t info = {
        .name = iface->transport->name,
        .device = iface->device,
        .latency_ns = iface->attr.latency_ns,
        .bandwidth = iface->attr.bandwidth,
        .overhead_ns = iface->attr.overhead_ns,
        .message_rate = iface_message_rate(&iface->attr),
        .max_short = iface->attr.max_short,
        .max_bcopy = iface->attr.max_bcopy,
        .max_zcopy = iface->attr.max_zcopy,
        .max_iov = iface->attr.max_iov,
        .numa_node = weft__device_node(DEVICE_CLASS, iface->device),
        .capabilities = iface->attr.caps,
    };
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}
