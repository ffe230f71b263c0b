/* What a queue pair's transitions do to its data, and what they ask of the port (rc_lane.c). */
#include "rc_qp.h"

#include <assert.h>

static void rc_qp_invariants(const struct fsm *m) {
    uint8_t told = ((const struct rc_qp *)m)->told;
    assert((m->state != RC_QP_RTS && m->state != RC_QP_SQD && m->state != RC_QP_ERR) || told == RC_TOLD_UP);
    assert((m->state == RC_QP_DOWN) == ((told & (RC_TOLD_DOWN | RC_TOLD_CLOSED)) == RC_TOLD_DOWN));
    assert((m->state == RC_QP_CLOSED) == ((told & RC_TOLD_CLOSED) != 0));
    (void)told;
}

#define FSM_NAME       rc_qp
#define FSM_PREFIX     RC_QP
#define FSM_INVARIANTS rc_qp_invariants
#include <fsm/define.h>

static void tell(struct fsm *m, uint8_t what, unsigned effect) {
    struct rc_qp *qp = (struct rc_qp *)m;
    assert(!(qp->told & what)); /* each once */
    qp->told |= what;
    fsm_effect(m, effect);
}

static void rc_qp_act_make(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_CREATE);
    fsm_effect(m, RC_QP_FX_TO_INIT);
}

static void rc_qp_act_ask(struct fsm *m) {
    rc_qp_act_make(m);
    fsm_effect(m, RC_QP_FX_SAY_REQUEST);
}

static void rc_qp_act_meet(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_TO_RTR);
    fsm_effect(m, RC_QP_FX_TO_RTS);
    fsm_effect(m, RC_QP_FX_DISARM);
    tell(m, RC_TOLD_UP, RC_QP_FX_TELL_UP);
}

/* The acceptor may receive before its ANSWER is out: the PROOF comes when it likes. */
static void rc_qp_act_answer(struct fsm *m) {
    rc_qp_act_make(m);
    fsm_effect(m, RC_QP_FX_TO_RTR);
    fsm_effect(m, RC_QP_FX_TO_RTS);
    fsm_effect(m, RC_QP_FX_SAY_ANSWER);
}

static void rc_qp_act_establish(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_TO_RTR);
    fsm_effect(m, RC_QP_FX_TO_RTS);
    fsm_effect(m, RC_QP_FX_ESTABLISH);
    fsm_effect(m, RC_QP_FX_SAY_PROOF);
    fsm_effect(m, RC_QP_FX_DISARM);
    tell(m, RC_TOLD_UP, RC_QP_FX_TELL_UP);
}

static void rc_qp_act_accept(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_DISARM);
    tell(m, RC_TOLD_UP, RC_QP_FX_TELL_ACCEPTED);
}

static void rc_qp_act_goodbye(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_ARM_CLOSE);
    fsm_effect(m, RC_QP_FX_SAY_GOODBYE);
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
    tell(m, RC_TOLD_DOWN, RC_QP_FX_TELL_DOWN);
}

static void rc_qp_act_down(struct fsm *m) {
    rc_qp_act_fail(m);
}

static void rc_qp_act_end(struct fsm *m) {
    fsm_effect(m, RC_QP_FX_DISARM);
    fsm_effect(m, RC_QP_FX_RELEASE);
    tell(m, RC_TOLD_CLOSED, RC_QP_FX_TELL_CLOSED);
}
