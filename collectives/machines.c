/* The actions of this room's machines: they change plain data and ask for effects. */
#include "machines.h"

#include <assert.h>

/* ---- team ------------------------------------------------------------------------------------ */

/* The creator of the team is notified once; before that it is neither ready, nor failed, nor
 * closed. */
static void team_invariants(const struct fsm *m) {
    const struct team_core *team = (const struct team_core *)m;
    (void)team;
    assert((m->state == TEAM_EXCHANGE || m->state == TEAM_AGREE) == (team->notified == 0));
    assert(team->notified <= 1);
}

#define FSM_NAME       team
#define FSM_PREFIX     TEAM
#define FSM_INVARIANTS team_invariants
#include <fsm/define.h>

static void notify_team(struct fsm *m) {
    ((struct team_core *)m)->notified++;
    fsm_effect(m, TEAM_FX_NOTIFY);
}

static void team_act_connect(struct fsm *m) {
    fsm_effect(m, TEAM_FX_CONNECT);
}
static void team_act_ready(struct fsm *m) {
    notify_team(m);
}

static void team_act_fail(struct fsm *m) {
    fsm_effect(m, TEAM_FX_STOP_ALL);
    fsm_effect(m, TEAM_FX_WARN);
}
static void team_act_fail_early(struct fsm *m) {
    fsm_effect(m, TEAM_FX_END_EXCHANGE);
    team_act_fail(m);
    notify_team(m);
}

/* Who warned us may not know the others that this side talks with. */
static void team_act_warned(struct fsm *m) {
    team_act_fail(m);
}
static void team_act_warned_early(struct fsm *m) {
    team_act_warned(m);
    notify_team(m);
}

static void team_act_leave(struct fsm *m) {
    fsm_effect(m, TEAM_FX_LEAVE);
    fsm_effect(m, TEAM_FX_AWAIT);
}
static void team_act_close(struct fsm *m) {
    fsm_effect(m, TEAM_FX_CLOSE_ALL);
}
static void team_act_close_failed(struct fsm *m) {
    fsm_effect(m, TEAM_FX_LEAVE);
    fsm_effect(m, TEAM_FX_CLOSE_ALL);
}
static void team_act_gone(struct fsm *m) {
    fsm_effect(m, TEAM_FX_GONE);
}

/* ---- another member -------------------------------------------------------------------------- */

#define FSM_NAME   member
#define FSM_PREFIX MEMBER
#include <fsm/define.h>

static void member_act_without(struct fsm *m) {
    fsm_effect(m, MEMBER_FX_WITHOUT);
}
static void member_act_settle(struct fsm *m) {
    fsm_effect(m, MEMBER_FX_SETTLE);
}
static void member_act_lose(struct fsm *m) {
    fsm_effect(m, MEMBER_FX_LOSE);
}

/* ---- collective ------------------------------------------------------------------------------ */

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

/* ---- agreement ------------------------------------------------------------------------------- */

static void agreement_invariants(const struct fsm *m) {
    const struct agreement_core *agreement = (const struct agreement_core *)m;
    (void)agreement;
    assert((m->state == AGREE_OVER) == (agreement->notified == 1));
    assert(agreement->notified <= 1);
}

#define FSM_NAME       agreement
#define FSM_PREFIX     AGREE
#define FSM_INVARIANTS agreement_invariants
#include <fsm/define.h>

static void agreement_act_propose(struct fsm *m) {
    fsm_effect(m, AGREE_FX_PROPOSE);
}
static void agreement_act_hold(struct fsm *m) {
    fsm_effect(m, AGREE_FX_CONFIRM);
}
static void agreement_act_over(struct fsm *m) {
    ((struct agreement_core *)m)->notified++;
    fsm_effect(m, AGREE_FX_NOTIFY);
}
static void agreement_act_decide(struct fsm *m) {
    fsm_effect(m, AGREE_FX_ANNOUNCE);
    agreement_act_over(m);
}

/* ---- joining --------------------------------------------------------------------------------- */

#define FSM_NAME   join
#define FSM_PREFIX JOIN
#include <fsm/define.h>

static void join_act_make(struct fsm *m) {
    fsm_effect(m, JOIN_FX_MAKE);
}
static void join_act_give(struct fsm *m) {
    fsm_effect(m, JOIN_FX_GIVE);
    fsm_effect(m, JOIN_FX_CLOSE);
}
static void join_act_refused(struct fsm *m) {
    fsm_effect(m, JOIN_FX_FAIL);
    fsm_effect(m, JOIN_FX_CLOSE);
}
static void join_act_give_up(struct fsm *m) {
    fsm_effect(m, JOIN_FX_FORGET);
    join_act_refused(m);
}

#define FSM_NAME   joiner
#define FSM_PREFIX JOINER
#include <fsm/define.h>

static void joiner_act_welcome(struct fsm *m) {
    fsm_effect(m, JOINER_FX_WELCOME);
}
static void joiner_act_count(struct fsm *m) {
    fsm_effect(m, JOINER_FX_COUNT);
}
static void joiner_act_leave(struct fsm *m) {
    fsm_effect(m, JOINER_FX_CLOSE);
}
static void joiner_act_lost(struct fsm *m) {
    fsm_effect(m, JOINER_FX_LOST);
    joiner_act_leave(m);
}
static void joiner_act_answer(struct fsm *m) {
    fsm_effect(m, JOINER_FX_ANSWER);
    joiner_act_leave(m);
}
