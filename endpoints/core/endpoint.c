/* The endpoint: the port of endpoint.fsm, its notices to the program, its close, and its life. */
#include "endpoint.h"

#include <base/counters.h>
#include <inttypes.h>

#include "cause.h"
#include "lease.h"
#include "submit.h"

static void ep_effect(struct fsm *m, unsigned effect);
static void ep_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port ep_port = {&weft__ep_machine, ep_effect, ep_fail};

static void step_ep(struct weft_ep *ep, enum ep_event event) {
    weft__fsm_step(&ep->core.fsm, event);
}

/* ---- notices to the user */

void weft__ep_notify_later(struct weft_ep *ep, uint32_t notice) {
    struct weft_worker *worker = ep->worker;
    if (ep->notices == 0) {
        list_remove(&ep->of_worker);
        list_append(&worker->due, &ep->of_worker);
        worker->n_due++;
    }
    ep->notices |= (uint8_t)notice;
    weft__ep_lookup_forget(ep);
    weft__job_post(worker->reactor, &worker->notify);
}

static void free_start(struct ep_start *start) {
    if (start) weft__tries_end(&start->tries);
    talloc_free(start);
}

static void leave_due(struct weft_ep *ep, struct list *to) {
    list_remove(&ep->of_worker);
    list_append(to, &ep->of_worker);
    if (ep->notices == 0) ep->worker->n_due--;
}

/* A close in good order that an abort has shortened reports to both calls. */
struct shortened {
    weft_done_fn done[2];
    void *arg[2];
    struct cause *cause;
};

static void notify_both(weft_status_t status, void *arg) {
    struct shortened both = *(struct shortened *)arg;
    talloc_free(arg);
    both.done[0](status, both.arg[0]);
    if (status < 0) weft__cause_note(status, both.cause); /* that call may have failed otherwise */
    weft__cause_drop(both.cause);
    both.done[1](status, both.arg[1]);
}

/* The handle is invalid when the callback starts. Its memory is freed when no callback runs. */
static void notify_closed(struct weft_ep *ep) {
    struct weft_worker *worker = ep->worker;
    weft_done_fn closed = ep->closed;
    void *arg = ep->arg;
    weft_status_t status = (int)ep->close_status;
    list_remove(&ep->of_worker);
    weft__ep_features_free(ep); /* not earlier: the program could unpack keys until now */
    free_start(ep->start);
    talloc_free(ep->tags);
    talloc_free(ep->stream);
    talloc_free(ep->rma);
    if (closed && status < 0) weft__cause_note(status, ep->cause);
    if (closed == notify_both) ((struct shortened *)arg)->cause = weft__cause_hold(ep->cause);
    weft__cause_drop(ep->cause);
    if (ep->outlives)
        ep->rested = true;
    else
        weft__slab_free_later(&worker->pools.eps, ep);
    if (closed) closed(status, arg);
    weft__program_returned(worker->reactor);
    weft__worker_endpoint_gone(worker);
}

/* Calls on_ready or on_endpoint, which come once. */
static void notify_start(struct weft_ep *ep) {
    struct ep_start *start = ep->start;
    if (!start) return;
    ep->start = NULL;
    if (start->notified) start->notified(ep, start->arg);
    weft__program_returned(ep->worker->reactor);
    free_start(start);
}

void weft__ep_notify(struct weft_ep *ep) {
    uint8_t due = ep->notices & (uint8_t)ep->worker->callbacks.deliverable;
    ep->notices &= (uint8_t)~due;
    if (ep->notices & NOTICE_ALL && !ep->worker->callbacks.deliverable)
        ep->worker->features->callbacks_pending(ep->worker);
    leave_due(ep, ep->notices ? &ep->worker->due : &ep->worker->endpoints);
    if (due & (NOTICE_ENDPOINT | NOTICE_READY)) notify_start(ep);
    if (due & NOTICE_DATA) weft__ep_features_notify(ep);
    if (due & NOTICE_LANE && !ep->closing) {
        ep->worker->on_lane(ep, ep->worker->arg);
        weft__program_returned(ep->worker->reactor);
    }
    if (due & NOTICE_ERROR && !ep->closing && ep->on_error) {
        weft__cause_note(ep->status, ep->cause);
        ep->on_error(ep, ep->status, ep->arg);
        weft__program_returned(ep->worker->reactor);
    }
    if (due & NOTICE_CLOSED) notify_closed(ep);
}

static void drained(struct weft_ep *ep);

/* Visits each endpoint that is due now once, since a callback may queue more notices. */
unsigned weft__eps_notify(struct weft_worker *worker, unsigned most) {
    unsigned notified = 0;
    for (uint32_t n = worker->n_due; n > 0 && notified < most && !list_empty(&worker->due); n--) {
        struct weft_ep *ep = list_of(worker->due.next, struct weft_ep, of_worker);
        bool was_drained = ep->notices & NOTICE_DRAINED;
        ep->notices &= (uint8_t)~NOTICE_DRAINED;
        uint8_t due = ep->notices & (uint8_t)worker->callbacks.deliverable;
        if (due) notified++;
        weft__ep_notify(ep);
        if (was_drained && !(due & NOTICE_CLOSED)) drained(ep);
    }
    return notified;
}

/* ---- the machine's effects */

static void wire_of_open(const struct weft_ep *ep, struct wire_message *m) {
    /* An address names the worker, also over a link that was made to a listener. */
    struct wire_open open = {.from = weft__ep_id(ep),
                             .listener = ep->start->dial_len ? 0 : ep->link->listener,
                             .credit = weft__ep_unexpected(ep),
                             .stream = weft__ep_window(ep)};
    if (ep->lease && ep->link->peer_flags & WIRE_HELLO_LEASES) {
        open.lease = ep->start->lease;
        open.am_first = weft__ep_lease(ep)->am_first;
    }
    weft__wire_open(m, open);
}

/* An endpoint that the peer opened, and the CLOSE of an ACCEPT that came too late: the peer can
 * cause as many as it likes. */
static bool is_answer(const struct weft_ep *ep) {
    return ep->accepted || ep_is_lost(&ep->core.fsm);
}

static void send_one(struct weft_ep *ep, enum wire_id id) {
    struct wire_message m;
    if (!ep->link) return;
    switch (id) {
    case WIRE_OPEN: wire_of_open(ep, &m); break;
    case WIRE_ACCEPT:
        weft__wire_accept(&m, (struct wire_accept){ep->core.peer, weft__ep_id(ep),
                                                   weft__ep_unexpected(ep), weft__ep_window(ep)});
        break;
    default: weft__wire_one(&m, WIRE_CLOSE, ep->core.peer); break;
    }
    (is_answer(ep) ? weft__link_answer : weft__link_control)(ep->link, &m);
}

static bool is_posted_on(struct weft_ep *ep) {
    return atomic_load_explicit(&ep->n_posted, memory_order_relaxed) > 0;
}

static void fail_requests(struct weft_ep *ep) {
    /* Stop each request once: it stays in the list if it must wait for the lane. */
    list_for_each_safe(n, next, &ep->requests) {
        weft__request_stop(list_of(n, struct weft_request, of_ep), ep->status);
    }
    if (is_posted_on(ep)) weft__posts_fail(ep);
    weft__ep_features_lost(ep);
}

static void install_ops(struct weft_ep *ep, const struct ep_ops *ops) {
    const struct features *features = ep->worker->features;
    bool ready = ops == features->ready;
    if (ep->lease && ops != features->refuse)
        ops = ready ? features->leased_ready : features->leased_wait;
    ep->mapped = ready && ep->lease;
    ep->ops = ops;
    ep->ready = ops == features->ready;
    ep->refuses = ops == features->refuse;
}

const struct lease *weft__ep_lease(const struct weft_ep *ep) {
    return &ep->worker->leases->lease[ep->lease - 1];
}

const struct lease *weft__lease_find(const struct weft_worker *worker, uint32_t id,
                                     uint32_t am_first) {
    for (unsigned i = 0; worker->leases && i < WORKER_LEASES; i++) {
        const struct lease *lease = &worker->leases->lease[i];
        if (lease->number && (id ? lease->id == id : lease->am_first == am_first)) return lease;
    }
    return NULL;
}

void weft__ep_hold_lease(struct weft_ep *ep, const struct lease *lease) {
    const struct features *features = ep->worker->features;
    bool ready = weft__ep_goes(ep);
    ep->lease = lease ? lease->number : 0;
    if (ep->refuses) return;
    install_ops(ep, ready ? features->ready : features->wait);
}

void weft__ep_follow_lease(struct weft_ep *ep, const struct lease *lease) {
    if (ep && ep->accepted && ep->lease != lease->number && !lease->ends)
        weft__ep_hold_lease(ep, lease);
}

/* Informs the request that is now the oldest of the endpoint. */
static void notify_oldest(struct weft_ep *ep) {
    if (list_empty(&ep->requests)) return;
    struct weft_request *req = list_of(ep->requests.next, struct weft_request, of_ep);
    if (req->kind->oldest) req->kind->oldest(req);
}

static void ep_go(struct weft_ep *ep) {
    weft__timer_stop(ep->worker->reactor, &ep->timer);
    install_ops(ep, ep->worker->features->ready);
    weft__link_submit_all(ep->link, &ep->queue);
    weft__ep_features_ready(ep);
    notify_oldest(ep);
}

/* A close returns the first failure. */
static void note_end(struct weft_ep *ep, weft_status_t status) {
    if (ep->close_status == WEFT_OK) ep->close_status = status;
}

static void drained(struct weft_ep *ep) {
    if (list_empty(&ep->requests) && !is_posted_on(ep)) step_ep(ep, EP_EV_DRAINED);
}

static uint64_t close_ns(const struct weft_ep *ep) {
    return weft__setting_u64(ep->worker->context, SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
}

static void watch_requests(struct weft_ep *ep) {
    struct reactor *r = ep->worker->reactor;
    ep->draining = true;
    weft__ep_features_draining(ep);
    uint64_t now = weft__now(r), at = ep->start ? ep->start->close_at : 0;
    /* The timer ran before, so this takes no memory; otherwise the close is unbounded. */
    if (!weft__timer_running(&ep->timer))
        (void)weft__timer_start(r, &ep->timer, at > now ? at : now + close_ns(ep));
    if (list_empty(&ep->requests)) weft__ep_notify_later(ep, NOTICE_DRAINED);
}

void weft__ep_request_left(struct weft_ep *ep) {
    if (!list_empty(&ep->requests))
        notify_oldest(ep);
    else if (ep->draining)
        weft__ep_notify_later(ep, NOTICE_DRAINED);
}

/* The flushing close goes on behind what other threads submitted before it. Again while it is held:
 * the machine holds one. */
static void flush_and_close(struct weft_ep *ep) {
    /* Bytes that the lane has accepted must leave, too: post a flush behind all other requests. */
    if (ep_is_ready(&ep->core.fsm)) (void)ep->ops->flush(ep, NULL);
    if (list_empty(&ep->requests) && ep_is_connecting(&ep->core.fsm))
        weft__ep_abort(ep);
    else
        step_ep(ep, EP_EV_CLOSE);
}

void weft__ep_post_left(struct weft_ep *ep) {
    if (atomic_fetch_sub_explicit(&ep->n_posted, 1, memory_order_relaxed) > 1 || !ep->closing)
        return;
    if (!ep->draining)
        flush_and_close(ep);
    else if (list_empty(&ep->requests))
        weft__ep_notify_later(ep, NOTICE_DRAINED);
}

static void end_ep(struct weft_ep *ep) {
    weft__timer_stop(ep->worker->reactor, &ep->timer);
    weft__idmap_remove(&ep->worker->eps, weft__ep_id(ep));
    weft__ep_features_ends(ep);
    weft__link_leave(ep);
    weft__ep_notify_later(ep, NOTICE_CLOSED);
}

static void refuse(struct weft_ep *ep) {
    if (ep->start) weft__timer_stop(ep->worker->reactor, &ep->start->tries.due);
    install_ops(ep, ep->worker->features->refuse);
    weft__ep_features_refuses(ep);
}

static void ep_effect(struct fsm *m, unsigned effect) {
    struct weft_ep *ep = list_of(m, struct weft_ep, core.fsm);
    switch ((enum ep_effect)effect) {
    case EP_FX_QUEUE: install_ops(ep, ep->worker->features->wait); break;
    case EP_FX_SEND_OPEN: send_one(ep, WIRE_OPEN); break;
    case EP_FX_SEND_ACCEPT: send_one(ep, WIRE_ACCEPT); break;
    case EP_FX_SEND_CLOSE: send_one(ep, WIRE_CLOSE); break;
    case EP_FX_GO: ep_go(ep); break;
    case EP_FX_NOTIFY_READY: weft__ep_notify_later(ep, NOTICE_READY); break;
    case EP_FX_NOTIFY_ENDPOINT: weft__ep_notify_later(ep, NOTICE_ENDPOINT); break;
    case EP_FX_NOTIFY_ERROR:
        note_end(ep, ep->status);
        weft__ep_notify_later(ep, NOTICE_ERROR);
        break;
    case EP_FX_REFUSE: refuse(ep); break;
    case EP_FX_FAIL: fail_requests(ep); break;
    case EP_FX_WATCH: watch_requests(ep); break;
    case EP_FX_END: end_ep(ep); break;
    case EP_N_EFFECTS: break;
    }
}

static void ep_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct weft_ep *ep = list_of(m, struct weft_ep, core.fsm);
    weft__ep_violation(ep, why == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL,
                       weft__ep_machine.event_name[event]);
}

/* True if the peer was offered memory of a request, and has broken no rule. */
static bool may_be_read(const struct weft_ep *ep, weft_status_t status) {
    if (status == WEFT_ERR_PROTOCOL || !ep->link || !ep->core.peer) return false;
    list_for_each(n, &ep->requests) {
        if (list_of(n, struct weft_request, of_ep)->send.offered) return true;
    }
    return false;
}

/* The peer gets the withdrawals, then CLOSE, and answers. The endpoint stays on its link for
 * that, and receives nothing else. */
static void part_ep(struct weft_ep *ep, weft_status_t status) {
    struct wire_message m;
    weft__wire_one(&m, WIRE_CLOSE, ep->core.peer);
    if (ep->status == WEFT_OK) ep->status = status;
    note_end(ep, status);
    step_ep(ep, EP_EV_GONE);
    ep->core.peer = 0;
    weft__ep_lookup_forget(ep);
    weft__link_control(ep->link, &m);
}

void weft__ep_log_failure(const struct weft_ep *ep, weft_status_t status) {
    weft__log_limited(ep->worker->context, WEFT_LOG_WARN, "endpoints",
                      WORKER_TEXT ": no endpoint: %s: %s", WORKER_ARGS(ep->worker),
                      weft_status_name(status), ep->cause ? ep->cause->text : "");
}

/* The log gets the last steps of its machine, too. */
void weft__ep_violation(struct weft_ep *ep, weft_status_t status, const char *what) {
    char steps[2048];
    weft__fsm_trace_print(weft__reactor_trace(ep->worker->reactor), 16, weft__ep_id(ep), steps,
                          sizeof steps);
    weft__count(ep->worker->reactor)->violations++;
    weft__log_limited(ep->worker->context, WEFT_LOG_WARN, "endpoints",
                      "endpoint %08x failed: %s: %s", weft__ep_id(ep), weft_status_name(status),
                      what);
    weft__log_limited(ep->worker->context, WEFT_LOG_DEBUG, "endpoints",
                      "endpoint %08x: its last steps:\n%s", weft__ep_id(ep), steps);
    if (ep_is_usable(&ep->core.fsm)) ep->status = status;
    weft__ep_cause(ep, status, what);
    if (may_be_read(ep, status)) {
        part_ep(ep, status);
        return;
    }
    if (ep->core.peer) send_one(ep, WIRE_CLOSE);
    weft__ep_link_gone(ep, status);
}

/* The timer bounds the connect, then the close. */
static void timed_out(struct timer *timer) {
    struct weft_ep *ep = list_of(timer, struct weft_ep, timer);
    weft__ep_cause(ep, WEFT_ERR_TIMED_OUT,
                   ep->closing ? "the close in good order was not done in its time"
                               : "the connection was not made in its time (connect.timeout)");
    if (!ep->closing) weft__ep_log_failure(ep, WEFT_ERR_TIMED_OUT);
    if (ep->status == WEFT_OK) ep->status = WEFT_ERR_TIMED_OUT;
    note_end(ep, WEFT_ERR_TIMED_OUT);
    if (ep->closing && is_posted_on(ep)) step_ep(ep, EP_EV_CLOSE); /* it waits for these no more */
    step_ep(ep, EP_EV_TIMEOUT);
}

/* ---- life */

weft_status_t weft__ep_begin(struct weft_worker *worker, struct weft_ep *ep) {
    uint32_t id;
    weft_status_t st = weft__idmap_add(worker, &worker->eps, ep, &id);
    if (st < 0) return st;
    ep->worker = worker;
    install_ops(ep, worker->features->wait);
    ep->rma_slow = 1;
    ep->timer.fire = timed_out;
    list_init(&ep->of_link);
    list_init(&ep->requests);
    list_init(&ep->queue);
    list_append(&worker->endpoints, &ep->of_worker);
    fsm_init(&ep->core.fsm, &ep_port, EP_IDLE, id);
    return WEFT_OK;
}

weft_status_t weft__ep_new(struct weft_worker *worker, struct weft_ep **ep_p) {
    struct weft_ep *ep = weft__slab_take(&worker->pools.eps);
    if (!ep) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__ep_begin(worker, ep);
    if (st < 0)
        weft__slab_put(&worker->pools.eps, ep);
    else
        *ep_p = ep;
    return st;
}

void weft__ep_leave_worker(struct weft_ep *ep) {
    weft__timer_stop(ep->worker->reactor, &ep->timer);
    weft__idmap_remove(&ep->worker->eps, weft__ep_id(ep));
    list_remove(&ep->of_worker);
    free_start(ep->start);
    weft__cause_drop(ep->cause);
}

void weft__ep_forget(struct weft_ep *ep) {
    weft__ep_leave_worker(ep);
    weft__slab_put(&ep->worker->pools.eps, ep);
}

/* ---- events from the link */

void weft__ep_link_up(struct weft_ep *ep) {
    step_ep(ep, EP_EV_LINK_UP);
}

/* The peer can no longer read memory that was offered to it. */
static void take_back_offers(struct weft_ep *ep) {
    list_for_each_safe(n, next, &ep->requests) {
        weft__request_offer_over(list_of(n, struct weft_request, of_ep));
    }
}

void weft__ep_dialed(struct weft_ep *ep) {
    if (link_is_up(&ep->link->core.fsm)) weft__ep_link_up(ep);
}

void weft__ep_lose(struct weft_ep *ep, weft_status_t status, struct cause *why) {
    ep->core.peer = 0;
    if (!ep->cause) ep->cause = weft__cause_hold(why);
    if (ep->status == WEFT_OK) ep->status = status;
    note_end(ep, status);
    step_ep(ep, EP_EV_GONE);
    take_back_offers(ep);
}

/* ---- messages that name it */

struct weft_ep *weft__ep_lookup_slow(struct lane *lane, uint32_t id, const char *what) {
    struct weft_ep *ep = weft__ep_of_lane(lane, id);
    if (!ep) {
        (void)weft__link_of(lane, what);
        return NULL;
    }
    if (ep_is_connecting(&ep->core.fsm)) weft__ep_violation(ep, WEFT_ERR_PROTOCOL, what);
    if (!ep_is_connected(&ep->core.fsm) || !ep->core.peer) return NULL;
    if (ep->notices) weft__ep_notify(ep);
    return ep->link == weft__lane_link(lane) ? ep : NULL; /* a callback may have closed it */
}

/* ---- the user's calls */

void weft__ep_abort(struct weft_ep *ep) {
    if (!ep->closing) ep->closed = NULL; /* the program did not ask for it */
    ep->closing = true;
    if (ep->status == WEFT_OK) ep->status = WEFT_ERR_CLOSED;
    step_ep(ep, EP_EV_ABORT);
}

/* Whether the worker has called the program with the handle of any endpoint that a peer opened. */
static bool has_shown_any(const struct weft_worker *worker) {
    const struct counters *count = worker->count;
    return worker->has_handlers || worker->on_lane || count->tag_received || count->tag_unexpected;
}

void weft__ep_end_unknown(struct weft_ep *ep, weft_status_t status, void *arg) {
    if (!ep->lease && !has_shown_any(ep->worker)) weft__ep_abort(ep);
}

static void noop(weft_status_t status, void *arg) {}

/* A flushing close also waits for the connection, up to `at`. */
static void bound_close(struct weft_ep *ep, uint64_t at) {
    if (ep->start) ep->start->close_at = at;
    /* Moving a timer takes no memory. If starting it fails, the close is unbounded. */
    struct reactor *r = ep->worker->reactor;
    if (weft__timer_running(&ep->timer) ? weft__timer_at(r, &ep->timer) > at : !ep->start)
        (void)weft__timer_start(r, &ep->timer, at);
}

static void set_closed(struct weft_ep *ep, const weft_op_t *op) {
    ep->closed = op && op->done ? op->done : noop;
    ep->arg = op ? op->arg : NULL;
}

/*
 * An abort ends a close in good order at once, unless that is an abort by now, or the worker's.
 * What has no request left, once it drains, was sent.
 */
static weft_status_t shorten_close(struct weft_ep *ep, const weft_op_t *op) {
    if (ep->status != WEFT_OK)
        return weft__fail(WEFT_ERR_BUSY, "the endpoint is closing already, and waits no longer");
    struct shortened *both = NULL;
    if (op && op->done && !(both = weft__new(ep->worker, struct shortened)))
        return WEFT_ERR_NO_MEMORY;
    if (both) {
        *both = (struct shortened){{ep->closed, op->done}, {ep->arg, op->arg}, NULL};
        ep->closed = notify_both;
        ep->arg = both;
    }
    if (op && op->request_p) *op->request_p = NULL;
    if (!ep->draining || !list_empty(&ep->requests)) {
        weft__ep_cause(ep, WEFT_ERR_CLOSED, "an abort ended the close in good order");
        note_end(ep, WEFT_ERR_CLOSED);
    }
    weft__ep_abort(ep);
    return WEFT_IN_PROGRESS;
}

/* The worker may have begun to close it before: then this close is that one's, and waits for it. */
static weft_status_t close_posted(void *posted_on, const struct submit_args *args,
                                  const weft_op_t *op) {
    struct weft_ep *ep = posted_on;
    if (!ep->closing || ep->closed || ep->owned)
        return weft_ep_close(ep, (weft_close_mode_t)args->word[0], op);
    set_closed(ep, op);
    return WEFT_IN_PROGRESS;
}

/* A close cannot be cancelled, so it has no request handle. */
static weft_status_t post_close(struct weft_ep *ep, weft_close_mode_t mode, const weft_op_t *op) {
    weft_op_t plain = op ? *op : (weft_op_t){0};
    plain.request_p = NULL;
    weft_status_t st =
        weft__post(ep->worker, ep, close_posted, &(struct submit_args){.word = {mode}}, &plain);
    if (st == WEFT_IN_PROGRESS && op && op->request_p) *op->request_p = NULL;
    return st;
}

weft_status_t weft_ep_close(weft_ep_t *ep, weft_close_mode_t mode, const weft_op_t *op) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    if (mode != WEFT_CLOSE_FLUSH && mode != WEFT_CLOSE_ABORT)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "mode is %d", mode);
    weft_status_t st = weft__check_close(op, true);
    if (st == WEFT_OK && weft__is_stub_worker(ep->worker)) return weft__ep_stub_close(ep);
    if (st == WEFT_OK) st = weft__worker_enter(ep->worker);
    if (st == WEFT_IN_PROGRESS) return post_close(ep, mode, op);
    if (st < 0) return st;
    if (ep->owned)
        return weft__fail(WEFT_ERR_BUSY, "the endpoint is closed by its team or its association");
    if (ep->closing && mode == WEFT_CLOSE_ABORT) return shorten_close(ep, op);
    if (ep->closing) return weft__fail(WEFT_ERR_BUSY, "the endpoint is closing already");

    ep->closing = true;
    if (op && op->request_p) *op->request_p = NULL;
    set_closed(ep, op);
    uint64_t most = op && op->deadline_ms ? op->deadline_ms * NS_PER_MS : close_ns(ep);
    bound_close(ep, weft__now(ep->worker->reactor) + most);
    if (mode == WEFT_CLOSE_ABORT)
        weft__ep_abort(ep);
    else if (!is_posted_on(ep))
        flush_and_close(ep);
    return WEFT_IN_PROGRESS;
}

void weft_ep_set_user(weft_ep_t *ep, void *user) {
    if (ep) ep->user = user;
}
void *weft_ep_user(const weft_ep_t *ep) {
    return ep ? ep->user : NULL;
}
weft_worker_t *weft_ep_worker(const weft_ep_t *ep) {
    if (!ep) return NULL;
    return weft__is_stub_worker(ep->worker) ? weft__ep_stub_worker(ep) : ep->worker;
}

/* An associated endpoint is closed by its association, and its callbacks are the program's. */
static bool is_teams(const struct weft_ep *ep) {
    return ep->owned && !ep->outlives;
}

weft_status_t weft_ep_on_error(weft_ep_t *ep, void (*on_error)(weft_ep_t *, weft_status_t, void *),
                               void *arg) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st < 0) return st;
    if (ep->closing) return weft__fail(WEFT_ERR_CLOSED, "the endpoint is closing");
    if (is_teams(ep))
        return weft__fail(WEFT_ERR_BUSY, "the endpoint's team learns of its loss by on_error");
    ep->on_error = on_error;
    ep->arg = arg;
    return WEFT_OK;
}
