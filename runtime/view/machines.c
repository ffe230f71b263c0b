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

#define FSM_NAME   store_dial
#define FSM_PREFIX STORE_DIAL
#include <fsm/define.h>

static struct store_dial_core *dial_core(struct fsm *m) {
    return (struct store_dial_core *)m;
}
static void store_dial_act_dial(struct fsm *m) {
    fsm_effect(m, STORE_DIAL_FX_DIAL);
}
static void store_dial_act_pause(struct fsm *m) {
    fsm_effect(m, STORE_DIAL_FX_PAUSE);
}
static void store_dial_act_up(struct fsm *m) {
    if (dial_core(m)->asked) fsm_effect(m, STORE_DIAL_FX_PASS);
    dial_core(m)->asked = false;
}
static void store_dial_act_broken(struct fsm *m) {
    if (dial_core(m)->asked) fsm_effect(m, STORE_DIAL_FX_DENY);
    dial_core(m)->asked = false;
}
static void store_dial_act_keep(struct fsm *m) {
    dial_core(m)->asked = true;
}
static void store_dial_act_pass(struct fsm *m) {
    fsm_effect(m, STORE_DIAL_FX_PASS);
}
static void store_dial_act_deny(struct fsm *m) {
    fsm_effect(m, STORE_DIAL_FX_DENY);
}
static void store_dial_act_forget(struct fsm *m) {
    dial_core(m)->asked = false;
}
static void store_dial_act_recall(struct fsm *m) {
    fsm_effect(m, STORE_DIAL_FX_RECALL);
}
static void store_dial_act_hang_up(struct fsm *m) {
    fsm_effect(m, STORE_DIAL_FX_HANG_UP);
}
static void store_dial_act_unpause(struct fsm *m) {
    fsm_effect(m, STORE_DIAL_FX_UNPAUSE);
}
