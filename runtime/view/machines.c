/* The tables' actions: plain data only. */
#include "machines.h"

#define FSM_NAME   finalizers
#define FSM_PREFIX FINALIZERS
#include <fsm/define.h>

static void finalizers_act_begin(struct fsm *m) {
    fsm_effect(m, FINALIZERS_FX_POP);
}
static void finalizers_act_returned(struct fsm *m) {
    fsm_effect(m, FINALIZERS_FX_RECORD);
    fsm_effect(m, FINALIZERS_FX_POP);
}
static void finalizers_act_limit(struct fsm *m) {
    fsm_effect(m, FINALIZERS_FX_LIMIT);
}
static void finalizers_act_completed(struct fsm *m) {
    finalizers_act_returned(m);
}
static void finalizers_act_done(struct fsm *m) {
    fsm_effect(m, FINALIZERS_FX_DONE);
}

#define FSM_NAME   view
#define FSM_PREFIX VIEW
#include <fsm/define.h>

static void view_act_ready(struct fsm *m) {
    fsm_effect(m, VIEW_FX_NOTIFY);
}
static void view_act_fail(struct fsm *m) {
    fsm_effect(m, VIEW_FX_NOTIFY);
}
static void view_act_finalize(struct fsm *m) {
    fsm_effect(m, VIEW_FX_FINALIZE);
}
static void view_act_close(struct fsm *m) {
    fsm_effect(m, VIEW_FX_CLOSE);
}
static void view_act_stop(struct fsm *m) {
    fsm_effect(m, VIEW_FX_STOP);
}
