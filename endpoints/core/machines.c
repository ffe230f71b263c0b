/* The actions of the machines of endpoint, link, request and worker: plain data only. */
#include "machines.h"

#include <assert.h>

/* ---- endpoint */

static void ep_invariants(const struct fsm *m) {
    const struct ep_core *c = (const struct ep_core *)m;
    assert(m->state != EP_READY || c->peer != 0);
    assert(m->state > EP_OPENING || c->peer == 0);
    (void)c;
}

#define FSM_NAME       ep
#define FSM_PREFIX     EP
#define FSM_INVARIANTS ep_invariants
#include <fsm/define.h>

static void ep_act_dial(struct fsm *m) {
    fsm_effect(m, EP_FX_QUEUE);
}
static void ep_act_open(struct fsm *m) {
    fsm_effect(m, EP_FX_SEND_OPEN);
}
static void ep_act_accept(struct fsm *m) {
    fsm_effect(m, EP_FX_SEND_ACCEPT);
    fsm_effect(m, EP_FX_GO);
    fsm_effect(m, EP_FX_NOTIFY_ENDPOINT);
}
static void ep_act_up(struct fsm *m) {
    fsm_effect(m, EP_FX_GO);
    fsm_effect(m, EP_FX_NOTIFY_READY);
}
static void ep_act_lose(struct fsm *m) {
    ((struct ep_core *)m)->peer = 0;
    fsm_effect(m, EP_FX_REFUSE);
    fsm_effect(m, EP_FX_FAIL);
    fsm_effect(m, EP_FX_NOTIFY_ERROR);
}
/* ACCEPT came too late. CLOSE ends the peer's half before the program closes this one. */
static void ep_act_decline(struct fsm *m) {
    fsm_effect(m, EP_FX_SEND_CLOSE);
    ((struct ep_core *)m)->peer = 0;
}
static void ep_act_drain(struct fsm *m) {
    fsm_effect(m, EP_FX_REFUSE);
    fsm_effect(m, EP_FX_WATCH);
}
/* END sends CLOSE later if the peer's half still exists. */
static void ep_act_cut(struct fsm *m) {
    fsm_effect(m, EP_FX_REFUSE);
    fsm_effect(m, EP_FX_FAIL);
    fsm_effect(m, EP_FX_WATCH);
}
static void ep_act_leave(struct fsm *m) {
    if (((struct ep_core *)m)->peer) fsm_effect(m, EP_FX_SEND_CLOSE);
    fsm_effect(m, EP_FX_END);
}

/* ---- link */

#define FSM_NAME   link
#define FSM_PREFIX LINK
#include <fsm/define.h>

static void link_act_await(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_START);
}
static void link_act_handshake(struct fsm *m) {
    fsm_effect(m, LINK_FX_SEND_HELLO);
}
static void link_act_ready(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_STOP);
    fsm_effect(m, LINK_FX_NOTIFY_UP);
}
static void link_act_welcome(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_STOP);
    fsm_effect(m, LINK_FX_SEND_HELLO);
    fsm_effect(m, LINK_FX_NOTIFY_UP);
}
/* HELLO gives the peer this version, and the close refuses the link. */
static void link_act_refuse(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_STOP);
    fsm_effect(m, LINK_FX_SEND_HELLO);
    fsm_effect(m, LINK_FX_LANE_FLUSH);
}
static void link_act_part(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_STOP);
}
/* Its lane stays open for the other link. */
static void link_act_give(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_STOP);
    fsm_effect(m, LINK_FX_END);
}
/* No HELLO was exchanged; the timer continues. */
static void link_act_again(struct fsm *m) {
    fsm_effect(m, LINK_FX_LANE_AGAIN);
}
/* The lane is aborted before requests complete, since the peer may be reading their memory. */
static void link_act_fail(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_STOP);
    fsm_effect(m, LINK_FX_LANE_ABORT);
    fsm_effect(m, LINK_FX_FAIL);
}
static void link_act_shut(struct fsm *m) {
    fsm_effect(m, LINK_FX_TIMER_STOP);
    fsm_effect(m, LINK_FX_LANE_FLUSH);
}
static void link_act_end(struct fsm *m) {
    fsm_effect(m, LINK_FX_END);
}

/* ---- request */

#define FSM_NAME   request
#define FSM_PREFIX REQ
#define FSM_STARTS 1 << REQ_IDLE | 1 << REQ_QUEUED | 1 << REQ_WAITING
#include <fsm/define.h>

static void request_act_enqueue(struct fsm *m) {
    fsm_effect(m, REQ_FX_ENQUEUE);
}
static void request_act_unqueue(struct fsm *m) {
    fsm_effect(m, REQ_FX_UNQUEUE);
}
static void request_act_complete(struct fsm *m) {
    fsm_effect(m, REQ_FX_COMPLETE);
}
static void request_act_drop(struct fsm *m) {
    fsm_effect(m, REQ_FX_UNQUEUE);
    fsm_effect(m, REQ_FX_COMPLETE);
}
static void request_act_withdraw(struct fsm *m) {
    fsm_effect(m, REQ_FX_WITHDRAW);
    fsm_effect(m, REQ_FX_COMPLETE);
}
static void request_act_recall(struct fsm *m) {
    fsm_effect(m, REQ_FX_WITHDRAW);
}

/* ---- worker */

#define FSM_NAME   worker
#define FSM_PREFIX WORKER
#include <fsm/define.h>

static void worker_act_attachments(struct fsm *m) {
    fsm_effect(m, WORKER_FX_CLOSE_ATTACHMENTS);
}
static void worker_act_endpoints(struct fsm *m) {
    fsm_effect(m, WORKER_FX_CLOSE_ENDPOINTS);
}
static void worker_act_links(struct fsm *m) {
    fsm_effect(m, WORKER_FX_CLOSE_LINKS);
}
static void worker_act_end(struct fsm *m) {
    fsm_effect(m, WORKER_FX_END);
}
