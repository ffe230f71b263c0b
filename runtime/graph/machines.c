/* The table's actions. */
#include "machines.h"

#define FSM_NAME   task
#define FSM_PREFIX TASK
#include <fsm/define.h>

static void task_act_queue(struct fsm *m) {
    fsm_effect(m, TASK_FX_QUEUE);
}
static void task_act_release(struct fsm *m) {
    fsm_effect(m, TASK_FX_RELEASE);
}

#define FSM_NAME   recovery
#define FSM_PREFIX RECOVERY
#include <fsm/define.h>

static void recovery_act_shrink(struct fsm *m) {
    fsm_effect(m, RECOVERY_FX_SHRINK);
}
static void recovery_act_again(struct fsm *m) {
    fsm_effect(m, RECOVERY_FX_DROP);
    fsm_effect(m, RECOVERY_FX_SHRINK);
}
static void recovery_act_ask_words(struct fsm *m) {
    fsm_effect(m, RECOVERY_FX_ASK_WORDS);
}
static void recovery_act_ask_results(struct fsm *m) {
    fsm_effect(m, RECOVERY_FX_ASK_RESULTS);
}
static void recovery_act_go_on(struct fsm *m) {
    fsm_effect(m, RECOVERY_FX_GO_ON);
}
static void recovery_act_end(struct fsm *m) {
    fsm_effect(m, RECOVERY_FX_DROP);
    fsm_effect(m, RECOVERY_FX_END);
}
