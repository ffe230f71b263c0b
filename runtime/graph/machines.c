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
