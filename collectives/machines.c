#include "machines.h"

#include <assert.h>

/* ---- team ---------------------------------------------------------------------------------------------------- */

/* Whoever made the team hears of it once; before that it is neither ready, nor failed, nor closed. */
static void team_invariants(const struct fsm *m) {
    const struct team_core *team = (const struct team_core *)m;
    (void)team;
    assert((m->state == TEAM_EXCHANGE || m->state == TEAM_AGREE) == (team->told == 0));
    assert(team->told <= 1);
}

#define FSM_NAME       team
#define FSM_PREFIX     TEAM
#define FSM_INVARIANTS team_invariants
#include <fsm/define.h>

static void tell(struct fsm *m) {
    ((struct team_core *)m)->told++;
    fsm_effect(m, TEAM_FX_TELL);
}

static void team_act_connect(struct fsm *m) {
    fsm_effect(m, TEAM_FX_CONNECT);
}
static void team_act_ready(struct fsm *m) {
    tell(m);
}

static void team_act_fail(struct fsm *m) {
    fsm_effect(m, TEAM_FX_STOP_ALL);
    fsm_effect(m, TEAM_FX_WARN);
}
static void team_act_fail_early(struct fsm *m) {
    fsm_effect(m, TEAM_FX_END_EXCHANGE);
    team_act_fail(m);
    tell(m);
}

/* Who warned us warned the others as well. */
static void team_act_warned(struct fsm *m) {
    fsm_effect(m, TEAM_FX_STOP_ALL);
}
static void team_act_warned_early(struct fsm *m) {
    team_act_warned(m);
    tell(m);
}

static void team_act_close(struct fsm *m) {
    fsm_effect(m, TEAM_FX_CLOSE_ALL);
}
static void team_act_gone(struct fsm *m) {
    fsm_effect(m, TEAM_FX_GONE);
}

/* ---- collective ---------------------------------------------------------------------------------------------- */

#define FSM_NAME   collective
#define FSM_PREFIX COLL
#include <fsm/define.h>

static void collective_act_recall(struct fsm *m) {
    fsm_effect(m, COLL_FX_RECALL);
}
static void collective_act_settle(struct fsm *m) {
    fsm_effect(m, COLL_FX_SETTLE);
}
static void collective_act_leave(struct fsm *m) {
    fsm_effect(m, COLL_FX_LEAVE);
}
