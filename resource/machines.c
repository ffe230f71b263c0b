/* The actions of the machines of consumer and provider: plain data only. */
#include "machines.h"

/* ---- consumer -------------------------------------------------------------------------------- */

#define FSM_NAME   association
#define FSM_PREFIX ASSOC
#include <fsm/define.h>

static void association_act_undo(struct fsm *m) {
    fsm_effect(m, ASSOC_FX_DETACH);
}
static void association_act_drain(struct fsm *m) {
    fsm_effect(m, ASSOC_FX_DRAIN);
}
static void association_act_lose(struct fsm *m) {
    fsm_effect(m, ASSOC_FX_ABORT);
    fsm_effect(m, ASSOC_FX_NOTIFY_LOST);
}
static void association_act_give_back(struct fsm *m) {
    fsm_effect(m, ASSOC_FX_DETACH);
    fsm_effect(m, ASSOC_FX_RETURN);
    fsm_effect(m, ASSOC_FX_NOTIFY);
}
static void association_act_end(struct fsm *m) {
    ((struct association_core *)m)->ended = true;
    association_act_give_back(m);
}

/* ---- provider -------------------------------------------------------------------------------- */

#define FSM_NAME   grant
#define FSM_PREFIX GRANT
#include <fsm/define.h>

static void grant_act_take(struct fsm *m) {
    fsm_effect(m, GRANT_FX_NOTIFY_TAKEN);
}
static void grant_act_recall(struct fsm *m) {
    fsm_effect(m, GRANT_FX_SEND_RECALL);
    fsm_effect(m, GRANT_FX_ARM);
}
static void grant_act_lose(struct fsm *m) {
    fsm_effect(m, GRANT_FX_SEND_LOSE);
}
static void grant_act_returned(struct fsm *m) {
    fsm_effect(m, GRANT_FX_NOTIFY_RETURNED);
}
