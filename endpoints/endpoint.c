#include "ep.h"

#include <reactor/counters.h>

#include "connect.h"
#include "posted.h"
#include "rendezvous.h"
#include "rma.h"
#include "stream.h"
#include "thread.h"

static void ep_effect(struct fsm *m, unsigned effect);
static void ep_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port ep_port = {&weft__ep_machine, ep_effect, ep_fail};

static void step(struct weft_ep *ep, enum ep_event event) {
    fsm_step(&ep->core.fsm, event);
}

/* ---- notices to the user */

void weft__ep_tell_later(struct weft_ep *ep, uint32_t notice) {
    struct weft_worker *worker = ep->worker;
    if (ep->notices == 0) {
        list_remove(&ep->of_worker);
        list_append(&worker->due, &ep->of_worker);
        worker->n_due++;
    }
    ep->notices |= (uint8_t)notice;
    weft__ep_unheard(ep);
    weft__job_post(worker->reactor, &worker->notify);
}

static void leave_due(struct weft_ep *ep, struct list *to) {
    list_remove(&ep->of_worker);
    list_append(to, &ep->of_worker);
    if (ep->notices == 0) ep->worker->n_due--;
}

/* The handle is gone when the callback begins; its memory goes when no callback is under way. */
static void tell_closed(struct weft_ep *ep) {
    struct weft_worker *worker = ep->worker;
    weft_done_fn closed = ep->closed;
    void *arg = ep->arg;
    weft_status_t status = (int)ep->close_status;
    list_remove(&ep->of_worker);
    weft__rkeys_end(ep); /* here: until now a key may be unpacked for it */
    talloc_free(ep->start);
    talloc_free(ep->stream);
    talloc_free(ep->rma);
    weft__slab_bury(&worker->ep_slab, ep);
    if (closed) closed(status, arg);
    weft__program_returned(worker->reactor);
    weft__worker_endpoint_gone(worker);
}

/* The beginning is over. */
static void tell_start(struct weft_ep *ep) {
    struct ep_start *start = ep->start;
    if (!start) return;
    ep->start = NULL;
    if (start->told) start->told(ep, start->arg);
    weft__program_returned(ep->worker->reactor);
    talloc_free(start);
}

void weft__ep_tell(struct weft_ep *ep) {
    uint8_t due = ep->notices & (uint8_t)ep->worker->tellable;
    ep->notices &= (uint8_t)~due;
    if (ep->notices & NOTICE_ALL && !ep->worker->tellable) weft__thread_news(ep->worker);
    leave_due(ep, ep->notices ? &ep->worker->due : &ep->worker->endpoints);
    if (due & (NOTICE_ENDPOINT | NOTICE_READY)) tell_start(ep);
    if (due & NOTICE_DATA) weft__stream_tell(ep);
    if (due & NOTICE_ERROR && !ep->closing && ep->on_error) {
        ep->on_error(ep, ep->status, ep->arg);
        weft__program_returned(ep->worker->reactor);
    }
    if (due & NOTICE_CLOSED) tell_closed(ep);
}

static void drained(struct weft_ep *ep);

/* Each of those that are due now, once: a callback may make more of them due, or one again. */
unsigned weft__eps_tell(struct weft_worker *worker, unsigned most) {
    unsigned told = 0;
    for (uint32_t n = worker->n_due; n > 0 && told < most && !list_empty(&worker->due); n--) {
        struct weft_ep *ep = list_of(worker->due.next, struct weft_ep, of_worker);
        bool was_drained = ep->notices & NOTICE_DRAINED;
        ep->notices &= (uint8_t)~NOTICE_DRAINED;
        uint8_t due = ep->notices & (uint8_t)worker->tellable;
        if (due) told++;
        weft__ep_tell(ep);
        if (was_drained && !(due & NOTICE_CLOSED)) drained(ep);
    }
    return told;
}

/* ---- the machine's effects */

static void send_one(struct weft_ep *ep, enum wire_id id) {
    struct wire_message m;
    if (!ep->link) return;
    switch (id) {
    case WIRE_OPEN:
        /* An address names the worker, whatever listener the link once came to. */
        weft__wire_open(&m, (struct wire_open){ep->id, ep->start->dial_len ? 0 : ep->link->listener,
                                               weft__ep_unexpected(ep), weft__ep_window(ep)});
        break;
    case WIRE_ACCEPT:
        weft__wire_accept(
            &m, (struct wire_accept){ep->core.peer, ep->id, weft__ep_unexpected(ep), weft__ep_window(ep)});
        break;
    default: weft__wire_one(&m, WIRE_CLOSE, ep->core.peer); break;
    }
    weft__link_control(ep->link, &m);
}

/* Of all that stands here unexpectedly, offers and what came half; mostly nothing does. */
static void forget_messages(struct weft_ep *ep) {
    if (ep->credit_out) weft__match_forget(&ep->worker->match, ep->id);
}

static void fail_requests(struct weft_ep *ep) {
    /* A stop may wait for the lane, so the list keeps its members: each is asked once. */
    for (struct list *n = ep->requests.next, *next; n != &ep->requests; n = next) {
        next = n->next;
        weft__request_stop(list_of(n, struct weft_request, of_ep), ep->status);
    }
    forget_messages(ep);
    weft__stream_lost(ep);
}

static void go(struct weft_ep *ep) {
    weft__timer_stop(ep->worker->reactor, &ep->timer);
    ep->ops = &weft__ep_ops_ready;
    weft__link_submit_all(ep->link, &ep->queue);
    weft__rma_update(ep);
    weft__rma_go(ep);
    if (!list_empty(&ep->requests)) weft__flush_check(ep);
}

/* What a close is told: what went wrong first. */
static void note_end(struct weft_ep *ep, weft_status_t status) {
    if (ep->close_status == WEFT_OK) ep->close_status = status;
}

static void drained(struct weft_ep *ep) {
    if (list_empty(&ep->requests)) step(ep, EP_EV_DRAINED);
}

static uint64_t close_ns(const struct weft_ep *ep) {
    return weft__setting_u64(ep->worker->context, SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
}

static void watch_requests(struct weft_ep *ep) {
    struct reactor *r = ep->worker->reactor;
    ep->draining = true;
    weft__stream_closing(ep);
    uint64_t now = weft__now(r), at = ep->start ? ep->start->close_at : 0;
    /* The heap has had this endpoint's timer before, or it closes without one. */
    if (!weft__timer_running(&ep->timer))
        (void)weft__timer_start(r, &ep->timer, at > now ? at : now + close_ns(ep));
    if (list_empty(&ep->requests)) weft__ep_tell_later(ep, NOTICE_DRAINED);
}

void weft__ep_request_left(struct weft_ep *ep) {
    if (!list_empty(&ep->requests)) {
        weft__flush_check(ep);
        return;
    }
    if (ep->draining) weft__ep_tell_later(ep, NOTICE_DRAINED);
}

static void end(struct weft_ep *ep) {
    weft__timer_stop(ep->worker->reactor, &ep->timer);
    weft__idmap_remove(&ep->worker->eps, ep->id);
    forget_messages(ep);
    weft__link_leave(ep);
    weft__ep_tell_later(ep, NOTICE_CLOSED);
}

static void ep_effect(struct fsm *m, unsigned effect) {
    struct weft_ep *ep = list_of(m, struct weft_ep, core.fsm);
    switch ((enum ep_effect)effect) {
    case EP_FX_QUEUE: ep->ops = &weft__ep_ops_wait; break;
    case EP_FX_SEND_OPEN: send_one(ep, WIRE_OPEN); break;
    case EP_FX_SEND_ACCEPT: send_one(ep, WIRE_ACCEPT); break;
    case EP_FX_SEND_CLOSE: send_one(ep, WIRE_CLOSE); break;
    case EP_FX_GO: go(ep); break;
    case EP_FX_TELL_READY: weft__ep_tell_later(ep, NOTICE_READY); break;
    case EP_FX_TELL_ENDPOINT: weft__ep_tell_later(ep, NOTICE_ENDPOINT); break;
    case EP_FX_TELL_ERROR:
        note_end(ep, ep->status);
        weft__ep_tell_later(ep, NOTICE_ERROR);
        break;
    case EP_FX_REFUSE:
        ep->ops = &weft__ep_ops_refuse;
        weft__rma_update(ep);
        break;
    case EP_FX_FAIL: fail_requests(ep); break;
    case EP_FX_WATCH: watch_requests(ep); break;
    case EP_FX_END: end(ep); break;
    case EP_N_EFFECTS: break;
    }
}

static void ep_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct weft_ep *ep = list_of(m, struct weft_ep, core.fsm);
    weft__ep_violation(ep, why == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL,
                       weft__ep_machine.event_name[event]);
}

/* Memory of its requests, by a peer that was offered it, and that keeps to the rules as far as anybody knows. */
static bool may_be_read(const struct weft_ep *ep, weft_status_t status) {
    if (status == WEFT_ERR_PROTOCOL || !ep->link || !ep->core.peer) return false;
    for (const struct list *n = ep->requests.next; n != &ep->requests; n = n->next)
        if (list_of(n, struct weft_request, of_ep)->offered) return true;
    return false;
}

/* The peer is told to leave that memory, then of the end, and answers: so the endpoint stays on its link, and hears nothing else. */
static void part(struct weft_ep *ep, weft_status_t status) {
    struct wire_message m;
    weft__wire_one(&m, WIRE_CLOSE, ep->core.peer);
    if (ep->status == WEFT_OK) ep->status = status;
    note_end(ep, status);
    step(ep, EP_EV_GONE);
    ep->core.peer = 0;
    weft__ep_unheard(ep);
    weft__link_control(ep->link, &m);
}

/* The last steps of its machine go into the log with it. */
void weft__ep_violation(struct weft_ep *ep, weft_status_t status, const char *what) {
    char steps[2048];
    fsm_trace_print(weft__reactor_trace(ep->worker->reactor), 16, ep->id, steps, sizeof steps);
    weft__count(ep->worker->reactor)->violations++;
    weft__log_limited(ep->worker->context, WEFT_LOG_WARN, "endpoints", "endpoint %08x: %s: %s\n%s", ep->id,
                      weft_status_name(status), what, steps);
    if (ep->core.fsm.state < EP_DRAIN) ep->status = status;
    if (may_be_read(ep, status)) {
        part(ep, status);
        return;
    }
    if (ep->core.peer) send_one(ep, WIRE_CLOSE);
    weft__ep_link_gone(ep, status);
}

static void timed_out(struct timer *timer) {
    struct weft_ep *ep = list_of(timer, struct weft_ep, timer);
    if (ep->status == WEFT_OK) ep->status = WEFT_ERR_TIMED_OUT;
    note_end(ep, WEFT_ERR_TIMED_OUT);
    step(ep, EP_EV_TIMEOUT);
}

/* ---- life */

weft_status_t weft__ep_new(struct weft_worker *worker, struct weft_ep **ep_p) {
    struct weft_ep *ep = weft__slab_take(&worker->ep_slab);
    if (!ep) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__idmap_add(worker, &worker->eps, ep, &ep->id);
    if (st < 0) {
        weft__slab_put(&worker->ep_slab, ep);
        return st;
    }
    ep->worker = worker;
    ep->ops = &weft__ep_ops_wait;
    ep->rma_slow = 1;
    ep->timer.fire = timed_out;
    list_init(&ep->of_link);
    list_init(&ep->requests);
    list_init(&ep->queue);
    list_append(&worker->endpoints, &ep->of_worker);
    fsm_init(&ep->core.fsm, &ep_port, EP_IDLE, ep->id);
    *ep_p = ep;
    return WEFT_OK;
}

void weft__ep_forget(struct weft_ep *ep) {
    weft__timer_stop(ep->worker->reactor, &ep->timer);
    weft__idmap_remove(&ep->worker->eps, ep->id);
    list_remove(&ep->of_worker);
    talloc_free(ep->start);
    weft__slab_put(&ep->worker->ep_slab, ep);
}

/* ---- events from the link */

void weft__ep_link_up(struct weft_ep *ep) {
    step(ep, EP_EV_LINK_UP);
}

/* Whatever state it is in, nobody is left to read what it offered. */
static void take_back_offers(struct weft_ep *ep) {
    for (struct list *n = ep->requests.next, *next; n != &ep->requests; n = next) {
        next = n->next;
        weft__offer_over(list_of(n, struct weft_request, of_ep));
    }
}

void weft__ep_link_gone(struct weft_ep *ep, weft_status_t status) {
    weft__link_leave(ep);
    /* The connection was hung up for lack of use just as we wanted it: dial again. */
    if (status == WEFT_ERR_PEER_CLOSED && ep->core.fsm.state == EP_OPENING && weft__ep_redial(ep) == WEFT_OK) {
        step(ep, EP_EV_REDIAL);
        weft__ep_dialed(ep);
        return;
    }
    ep->core.peer = 0;
    if (ep->status == WEFT_OK) ep->status = status;
    note_end(ep, status);
    step(ep, EP_EV_GONE);
    take_back_offers(ep);
}

/* ---- what the peer says of endpoints */

struct weft_ep *weft__ep_heard_seldom(struct lane *lane, uint32_t id, const char *what) {
    struct weft_ep *ep = weft__ep_of_lane(lane, id);
    if (!ep) {
        (void)weft__link_of(lane, what);
        return NULL;
    }
    if (ep->core.fsm.state < EP_READY) weft__ep_violation(ep, WEFT_ERR_PROTOCOL, what);
    if ((ep->core.fsm.state != EP_READY && ep->core.fsm.state != EP_DRAIN) || !ep->core.peer) return NULL;
    if (ep->notices) weft__ep_tell(ep);
    return ep->link == lane->owner ? ep : NULL; /* a callback may have closed it */
}

static void reject(struct link *link, uint32_t peer, weft_status_t status) {
    struct wire_message m;
    weft__wire_reject(&m, (struct wire_reject){peer, status});
    weft__link_control(link, &m);
}

static weft_status_t accept_ep(struct link *link, const struct wire_open *open) {
    struct weft_ep *ep;
    if (link->n_guests >= link->worker->max_endpoints) return WEFT_ERR_QUOTA;
    weft_status_t st = weft__ep_admit(link, open->listener);
    if (st == WEFT_OK) st = weft__ep_new(link->worker, &ep);
    if (st < 0) return st;
    st = weft__ep_adopt(ep, open->listener);
    if (st < 0) {
        weft__ep_forget(ep);
        return st;
    }
    ep->core.peer = open->from;
    ep->credit = open->credit > INT64_MAX ? INT64_MAX : (int64_t)open->credit;
    weft__stream_opened(ep, open->stream);
    weft__link_join(link, ep);
    ep->guest = true;
    link->n_guests++;
    step(ep, EP_EV_PASSIVE);
    return WEFT_OK;
}

void weft__ep_on_open(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "open before hello");
    struct wire_open open;
    if (!link) return;
    if (!weft__wire_read_open(data, len, &open)) {
        weft__link_violation(link, "open");
        return;
    }
    weft_status_t st = accept_ep(link, &open);
    if (st < 0) reject(link, open.from, st);
}

/* Whoever is accepted but no longer there says so, that the peer's half may go too. */
void weft__ep_on_accept(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "accept before hello");
    struct wire_accept accept;
    if (!link) return;
    if (!weft__wire_read_accept(data, len, &accept)) {
        weft__link_violation(link, "accept");
        return;
    }
    struct weft_ep *ep = weft__ep_of_lane(lane, accept.ep);
    if (!ep) {
        struct wire_message m;
        weft__wire_one(&m, WIRE_CLOSE, accept.from);
        weft__link_control(link, &m);
        return;
    }
    if (!ep->core.peer) ep->core.peer = accept.from;
    ep->credit = accept.credit > INT64_MAX ? INT64_MAX : (int64_t)accept.credit;
    if (ep->core.fsm.state == EP_OPENING) weft__stream_opened(ep, accept.stream);
    step(ep, EP_EV_ACCEPT);
}

void weft__ep_on_reject(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "reject before hello");
    struct wire_reject reject;
    if (!link) return;
    if (!weft__wire_read_reject(data, len, &reject)) {
        weft__link_violation(link, "reject");
        return;
    }
    struct weft_ep *ep = weft__ep_of_lane(lane, reject.ep);
    if (!ep) return;
    if (ep->status == WEFT_OK) ep->status = reject.status;
    step(ep, EP_EV_REJECT);
}

/* Its messages came before this one; the endpoint has no peer any more. */
void weft__ep_on_close(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "close before hello");
    struct wire_one one;
    if (!link) return;
    if (!weft__wire_read_one(data, len, &one)) {
        weft__link_violation(link, "close");
        return;
    }
    struct weft_ep *ep = weft__ep_of_lane(lane, one.request);
    if (!ep) return;
    if (ep->status == WEFT_OK) ep->status = WEFT_ERR_PEER_CLOSED;
    ep->core.peer = 0;
    weft__ep_unheard(ep);
    step(ep, EP_EV_FIN);
}

/* ---- the user's calls */

void weft__ep_abort(struct weft_ep *ep) {
    if (!ep->closing) ep->closed = NULL; /* nobody waits for it */
    ep->closing = true;
    if (ep->status == WEFT_OK) ep->status = WEFT_ERR_CLOSED;
    step(ep, EP_EV_ABORT);
}

static void nobody(weft_status_t status, void *arg) {}

/* A close in good order waits for the connection too, but no longer than it may take. */
static void bound_close(struct weft_ep *ep, uint64_t at) {
    if (ep->start) ep->start->close_at = at;
    /* A timer is moved, which takes no memory; otherwise there is room, or it closes without one. */
    struct reactor *r = ep->worker->reactor;
    if (weft__timer_running(&ep->timer) ? weft__timer_at(r, &ep->timer) > at : !ep->start)
        (void)weft__timer_start(r, &ep->timer, at);
}

static weft_status_t close_posted(void *ep, const struct posted_args *args, const weft_op_t *op) {
    return weft_ep_close(ep, (weft_close_mode_t)args->word[0], op);
}

/* There is nothing to cancel, before the owner comes to it either. */
static weft_status_t post_close(struct weft_ep *ep, weft_close_mode_t mode, const weft_op_t *op) {
    weft_op_t plain = op ? *op : (weft_op_t){0};
    plain.request_p = NULL;
    weft_status_t st = weft__post(ep->worker, ep, close_posted, &(struct posted_args){.word = {mode}}, &plain);
    if (st == WEFT_IN_PROGRESS && op && op->request_p) *op->request_p = NULL;
    return st;
}

weft_status_t weft_ep_close(weft_ep_t *ep, weft_close_mode_t mode, const weft_op_t *op) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    if (mode != WEFT_CLOSE_FLUSH && mode != WEFT_CLOSE_ABORT)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "mode is %d", mode);
    weft_status_t st = weft__check_close(op, true);
    if (st == WEFT_OK) st = weft__worker_enter(ep->worker);
    if (st == WEFT_IN_PROGRESS) return post_close(ep, mode, op);
    if (st < 0) return st;
    if (ep->closing) return weft__fail(WEFT_ERR_BUSY, "the endpoint is closing already");

    ep->closing = true;
    if (op && op->request_p) *op->request_p = NULL;
    ep->closed = op && op->done ? op->done : nobody;
    ep->arg = op ? op->arg : NULL;
    uint64_t most = op && op->deadline_ms ? op->deadline_ms * NS_PER_MS : close_ns(ep);
    bound_close(ep, weft__now(ep->worker->reactor) + most);
    if (mode == WEFT_CLOSE_ABORT || (list_empty(&ep->requests) && ep->core.fsm.state < EP_READY)) {
        weft__ep_abort(ep);
        return WEFT_IN_PROGRESS;
    }
    /* What a lane has accepted must leave too: a flush stands behind all the others. */
    if (ep->core.fsm.state == EP_READY) (void)weft_ep_flush(ep, NULL);
    step(ep, EP_EV_CLOSE);
    return WEFT_IN_PROGRESS;
}

void weft_ep_set_user(weft_ep_t *ep, void *user) {
    ep->user = user;
}
void *weft_ep_user(const weft_ep_t *ep) {
    return ep->user;
}
weft_worker_t *weft_ep_worker(const weft_ep_t *ep) {
    return ep->worker;
}

void weft_ep_on_error(weft_ep_t *ep, void (*on_error)(weft_ep_t *, weft_status_t, void *), void *arg) {
    if (weft__worker_check(ep->worker) < 0 || ep->closing) return; /* none is told any more */
    ep->on_error = on_error;
    ep->arg = arg;
}
