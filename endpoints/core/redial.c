/* Endpoints that dial again while they connect: by another transport, or at the same place. */
#include "cause.h"
#include "endpoint.h"
#include "pace.h"
#include "worker.h"

/* A listener, which the program named by its URI, cut a connection that was not up yet, as it does
 * when it closes: then another process may listen at that place. */
static bool has_successor(const struct ep_start *start, weft_status_t status) {
    return status == WEFT_ERR_PEER_FAILED && start->mode != WEFT_ERRORS_FAILOVER;
}

static bool has_other_transport(const struct ep_start *start, const struct link *failed,
                                weft_status_t status) {
    return weft__tries_goes_on(status) && weft__tries_has_other(&start->tries, failed->home);
}

/* The peer closed an unused link while this endpoint joined it. Or the link was never up, and there
 * is another way to the peer. */
bool weft__ep_may_redial(const struct weft_ep *ep, weft_status_t status) {
    const struct ep_start *start = ep->start;
    if (!start || !start->redial || !ep->link) return false;
    if (ep_is_opening(&ep->core.fsm)) return status == WEFT_ERR_PEER_CLOSED;
    if (!ep_is_waiting(&ep->core.fsm)) return false;
    return start->dial_len ? has_other_transport(start, ep->link, status)
                           : has_successor(start, status);
}

/* An address has another place for each transport, a URI the same place each time. */
static void note_try(struct weft_ep *ep, weft_status_t status) {
    struct tries *tries = &ep->start->tries;
    weft__tries_leave(tries, ep->link->home);
    if (ep->start->dial_len)
        weft__tries_add(ep->worker, tries, status, ep->worker->losing);
    else
        weft__tries_replace(tries, status, ep->worker->losing);
}

/* Without a link, as now, it joins another one to the same peer. */
static weft_status_t redial(struct weft_ep *ep) {
    weft_status_t st = ep->start->redial(ep);
    if (st < 0) return st;
    weft__fsm_step(&ep->core.fsm, EP_EV_REDIAL);
    weft__ep_dialed(ep);
    return WEFT_OK;
}

/* Why no try could begin, behind what ended the tries before. */
static struct cause *cause_of_end(const struct weft_ep *ep, weft_status_t status) {
    char why[CAUSE_ROOM];
    struct cause *before = ep->start->tries.why ? ep->start->tries.why : ep->worker->losing;
    bool known = weft__causes_line(status, why, sizeof why);
    return weft__cause_join(ep->worker, before, status, known ? why : weft__usual_cause(status));
}

/* The loss of its link counted it as one that dials again. */
static void give_up(struct weft_ep *ep, weft_status_t status) {
    struct cause *why = cause_of_end(ep, status);
    weft__ep_lose(ep, status, why);
    weft__cause_drop(why);
    weft__ep_log_failure(ep, status);
}

static void dial_due(struct timer *timer) {
    struct weft_ep *ep = list_of(timer, struct ep_start, tries.due)->ep;
    weft_status_t st = redial(ep);
    if (st < 0) give_up(ep, st);
}

static weft_status_t dial_later(struct weft_ep *ep, uint64_t pause) {
    struct reactor *r = ep->worker->reactor;
    struct timer *due = &ep->start->tries.due;
    due->fire = dial_due;
    weft_status_t st = weft__timer_start(r, due, weft__now(r) + pause);
    if (st == WEFT_OK) weft__fsm_step(&ep->core.fsm, EP_EV_PAUSE);
    return st;
}

/* Another transport is dialed at once, the same place at a bounded pace. */
static weft_status_t dial_again(struct weft_ep *ep) {
    struct ep_start *start = ep->start;
    bool same = ep_is_waiting(&ep->core.fsm) && !start->dial_len;
    uint64_t pause = same ? weft__pace_next(&start->tries.pause) : 0;
    return pause ? dial_later(ep, pause) : redial(ep);
}

void weft__ep_link_gone(struct weft_ep *ep, weft_status_t status) {
    bool again = weft__ep_may_redial(ep, status);
    bool connects = ep->start && ep->link && ep_is_connecting(&ep->core.fsm);
    if (connects && !(again && ep_is_opening(&ep->core.fsm))) note_try(ep, status);
    weft__link_leave(ep);
    if (again) {
        status = dial_again(ep);
        if (status < 0) give_up(ep, status);
    } else {
        weft__ep_lose(ep, status, connects ? ep->start->tries.why : ep->worker->losing);
    }
}

/* What it has sent over this link alone would not be sent again. */
static bool may_ask_successor(const struct weft_ep *ep, weft_status_t status) {
    const struct ep_start *start = ep->start;
    return status == WEFT_ERR_REFUSED && ep_is_opening(&ep->core.fsm) && start && start->redial &&
           start->dial_len == 0 && start->refused_by != ep->link->peer && !start->has_sent;
}

bool weft__ep_asks_successor(struct weft_ep *ep, weft_status_t status) {
    if (!may_ask_successor(ep, status)) return false;
    ep->start->refused_by = ep->link->peer;
    weft__link_forget_uri(ep->link);
    weft__link_leave(ep);
    weft_status_t st = redial(ep);
    if (st == WEFT_OK) return true;
    weft__ep_cause(ep, st, "the listener there is closed, and no other was found");
    weft__ep_link_gone(ep, st);
    return true;
}
