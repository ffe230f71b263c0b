#include "machine_example.h"

#define FSM_NAME   example
#define FSM_PREFIX EXAMPLE
#include <fsm/define.h>

static void example_act_hello(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_SEND_HELLO);
}
static void example_act_welcome(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_SEND_WELCOME);
}
static void example_act_accept(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_SEND_WELCOME);
    fsm_effect(m, EXAMPLE_FX_NOTIFY_UP);
}
static void example_act_up(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_NOTIFY_UP);
}
static void example_act_fin(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_SEND_FIN);
}
static void example_act_gone(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_SEND_GONE);
}
static void example_act_yield(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_SEND_GONE);
    fsm_effect(m, EXAMPLE_FX_NOTIFY_DOWN);
}
static void example_act_down(struct fsm *m) {
    fsm_effect(m, EXAMPLE_FX_NOTIFY_DOWN);
}
