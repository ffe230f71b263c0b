/* The actions of memory.fsm: plain data only. */
#include "memory_machine.h"

#define FSM_NAME   memory
#define FSM_PREFIX MEMORY
#include <fsm/define.h>

static void memory_act_withdraw(struct fsm *m) {
    fsm_effect(m, MEMORY_FX_WITHDRAW);
}
static void memory_act_renew(struct fsm *m) {
    fsm_effect(m, MEMORY_FX_RENEW);
    fsm_effect(m, MEMORY_FX_NOTIFY);
}
static void memory_act_end(struct fsm *m) {
    fsm_effect(m, MEMORY_FX_NOTIFY);
    fsm_effect(m, MEMORY_FX_END);
}
