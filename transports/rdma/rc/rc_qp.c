/* The actions of a queue pair's machine: changes of its data, and effects for the port
 * (rc_lane.c). */
#include "rc_qp.h"

#include <assert.h>

static void rc_qp_invariants(const struct fsm *m) {
    uint8_t notified = ((const struct rc_qp *)m)->notified;
    assert((m->state != RC_QP_RTS && m->state != RC_QP_SQD && m->state != RC_QP_ERR) ||
           notified == RC_NOTIFIED_UP);
    assert((m->state == RC_QP_DOWN) ==
           ((notified & (RC_NOTIFIED_DOWN | RC_NOTIFIED_CLOSED)) == RC_NOTIFIED_DOWN));
    assert((m->state == RC_QP_CLOSED) == ((notified & RC_NOTIFIED_CLOSED) != 0));
    (void)notified;
}

#define FSM_NAME       rc_qp
#define FSM_PREFIX     RC_QP
#define FSM_INVARIANTS rc_qp_invariants
#include <fsm/define.h>

static void notify_owner(struct fsm *m, uint8_t what, unsigned effect) {
    struct rc_qp *qp = (struct rc_qp *)m;
    assert(!(qp->notified & what)); /* each once */
    qp->notified |= what;
    fsm_effect(m, effect);
}

static void rc_qp_act_make(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_CREATE);
    fsm_effect(m, RC_QP_FX_TO_INIT);
}

static void rc_qp_act_ask(struct fsm *m) {
    rc_qp_act_make(m);
    fsm_effect(m, RC_QP_FX_SEND_REQUEST);
}

static void rc_qp_act_meet(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_TO_RTR);
    fsm_effect(m, RC_QP_FX_TO_RTS);
    fsm_effect(m, RC_QP_FX_DISARM);
    notify_owner(m, RC_NOTIFIED_UP, RC_QP_FX_NOTIFY_UP);
}

/* The acceptor may receive before its ANSWER is out: the PROOF comes when it likes. */
static void rc_qp_act_answer(struct fsm *m) {
    rc_qp_act_make(m);
    fsm_effect(m, RC_QP_FX_TO_RTR);
    fsm_effect(m, RC_QP_FX_TO_RTS);
    fsm_effect(m, RC_QP_FX_SEND_ANSWER);
}

static void rc_qp_act_establish(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_TO_RTR);
    fsm_effect(m, RC_QP_FX_TO_RTS);
    fsm_effect(m, RC_QP_FX_ESTABLISH);
    fsm_effect(m, RC_QP_FX_SEND_PROOF);
    fsm_effect(m, RC_QP_FX_DISARM);
    notify_owner(m, RC_NOTIFIED_UP, RC_QP_FX_NOTIFY_UP);
}

static void rc_qp_act_accept(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_DISARM);
    notify_owner(m, RC_NOTIFIED_UP, RC_QP_FX_NOTIFY_ACCEPTED);
}

static void rc_qp_act_goodbye(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_ARM_CLOSE);
    fsm_effect(m, RC_QP_FX_SEND_GOODBYE);
}

/* What is in the queue pair comes back, as sent or as flushed; only then may it be destroyed. */
static void rc_qp_act_spend(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_DISCONNECT);
    fsm_effect(m, RC_QP_FX_ARM_DRAIN);
    fsm_effect(m, RC_QP_FX_TO_ERR);
}

static void rc_qp_act_lost(struct fsm *m) {
    rc_qp_act_spend(m);
}

static void rc_qp_act_fail(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_DISARM);
    fsm_effect(m, RC_QP_FX_RELEASE);
    notify_owner(m, RC_NOTIFIED_DOWN, RC_QP_FX_NOTIFY_DOWN);
}

static void rc_qp_act_down(struct fsm *m) {
    rc_qp_act_fail(m);
}

static void rc_qp_act_end(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_DISARM);
    fsm_effect(m, RC_QP_FX_RELEASE);
    notify_owner(m, RC_NOTIFIED_CLOSED, RC_QP_FX_NOTIFY_CLOSED);
}
