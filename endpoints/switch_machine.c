#include "switch_core.h"

#include <assert.h>

static bool is_lead(unsigned state) {
    return state >= SWITCH_LEAD_QUIET && state <= SWITCH_LEAD_DRAINED;
}
static bool is_follow(unsigned state) {
    return state >= SWITCH_FOLLOW_QUIET && state <= SWITCH_LAST;
}
/* Our END has gone. */
static bool is_sent(unsigned state) {
    return state == SWITCH_LEAD_SENT || state == SWITCH_LEAD_DRAINED || state == SWITCH_FOLLOW_SENT ||
           state == SWITCH_LAST;
}

/* Neither direction is ever more than one switch ahead of the other, and an epoch names a lane. */
static void switch_invariants(const struct fsm *m) {
    const struct switch_core *c = (const struct switch_core *)m;
    if (m->state >= SWITCH_LEFT) return;
    uint32_t begun = c->epoch_out + (is_lead(m->state) || is_follow(m->state)) - is_sent(m->state);
    assert(c->epoch_in + is_lead(m->state) == begun);
    assert((c->in == c->out) == (c->epoch_in == c->epoch_out));
    (void)begun;
}

#define FSM_NAME       switch
#define FSM_PREFIX     SWITCH
#define FSM_INVARIANTS switch_invariants
#include <fsm/define.h>

void weft__switch_init(struct switch_core *c, const struct fsm_port *port, uint32_t id) {
    c->epoch_out = c->epoch_in = 0;
    c->out = c->in = c->base = 0;
    c->lost = false;
    fsm_init(&c->fsm, port, SWITCH_ALONE, id);
}

enum switch_event weft__switch_end_is(const struct switch_core *c, uint8_t lane, uint32_t epoch) {
    if (lane != c->in || epoch != c->epoch_in + 1) return SWITCH_EV_END_WRONG;
    if (c->lost) return SWITCH_EV_END_LOST;
    return c->in == c->base ? SWITCH_EV_END_AWAY : SWITCH_EV_END_HOME;
}

enum switch_event weft__switch_drained_is(const struct switch_core *c, uint32_t epoch) {
    if (epoch != c->epoch_out) return SWITCH_EV_DRAINED_WRONG;
    return c->out == c->base ? SWITCH_EV_DRAINED_HOME : SWITCH_EV_DRAINED_AWAY;
}

/* Where an END or a DRAINED is still to come by it, or messages of ours may be on it, nobody knows what is lost with it. */
enum switch_event weft__switch_loss_is(const struct switch_core *c, uint8_t lane, bool parted) {
    if (parted && lane == c->out && lane != c->in) return SWITCH_EV_OUT_CLOSED;
    if (lane == c->out || lane == c->in) return SWITCH_EV_USED_LOST;
    if (c->fsm.state != SWITCH_FOLLOW_SENT) return SWITCH_EV_OTHER_LOST;
    return parted ? SWITCH_EV_OLD_CLOSED : SWITCH_EV_USED_LOST;
}

/* ---- the other lane comes */

static void switch_act_hang_up(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_HANG_UP);
}
static void switch_act_fail(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_TELL_FAILED);
}
/* Who was dialed waits for the dialer's END: then it knows that the dialer has the lane, too. */
static void switch_act_beside(struct fsm *m) {
    ((struct switch_core *)m)->lost = false;
    fsm_effect(m, SWITCH_FX_TELL_JOINED);
}
static void switch_act_lead(struct fsm *m) {
    ((struct switch_core *)m)->lost = false;
    fsm_effect(m, SWITCH_FX_TELL_JOINED);
    fsm_effect(m, SWITCH_FX_HUSH);
}

/* ---- what we send */

static void switch_act_move(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_HUSH);
}
static void switch_act_mark(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_MARK);
}
static void switch_act_cross(struct fsm *m) {
    struct switch_core *c = (struct switch_core *)m;
    c->epoch_out++;
    c->out ^= 1;
    fsm_effect(m, SWITCH_FX_CROSS);
}
static void switch_act_free(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_FREE);
}
static void switch_act_settle(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_FREE);
    fsm_effect(m, SWITCH_FX_TELL_SWITCHED);
}
static void switch_act_part(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_FREE);
    fsm_effect(m, SWITCH_FX_PART);
    fsm_effect(m, SWITCH_FX_TELL_SWITCHED);
}

/* The peer, which closes the link, has closed the base lane: what it says by the other one is its last. */
static void switch_act_left(struct fsm *m) {
    struct switch_core *c = (struct switch_core *)m;
    c->lost = true;
    c->base = c->out;
    fsm_effect(m, SWITCH_FX_FREE);
    fsm_effect(m, SWITCH_FX_TELL_LOST);
}

/* ---- what we hear */

static void turn_ear(struct fsm *m) {
    struct switch_core *c = (struct switch_core *)m;
    c->epoch_in++;
    c->in ^= 1;
    fsm_effect(m, SWITCH_FX_TAKE);
}
static void switch_act_take(struct fsm *m) {
    turn_ear(m);
}
static void switch_act_follow(struct fsm *m) {
    turn_ear(m);
    fsm_effect(m, SWITCH_FX_HUSH);
}
static void switch_act_take_last(struct fsm *m) {
    turn_ear(m);
    fsm_effect(m, SWITCH_FX_TELL_SWITCHED);
}
static void switch_act_take_part(struct fsm *m) {
    turn_ear(m);
    fsm_effect(m, SWITCH_FX_PART);
    fsm_effect(m, SWITCH_FX_TELL_SWITCHED);
}

/* ---- lanes that are lost */

/* What it brought before it went is all that the peer will ever say. */
static void switch_act_take_rest(struct fsm *m) {
    turn_ear(m);
    fsm_effect(m, SWITCH_FX_LOSE);
}
/* A peer that closes says all first; it may have gone to the lane that it has closed. */
static void switch_act_leave(struct fsm *m) {
    ((struct switch_core *)m)->lost = true;
    fsm_effect(m, SWITCH_FX_MUTE);
}
static void switch_act_widow(struct fsm *m) {
    struct switch_core *c = (struct switch_core *)m;
    c->lost = true;
    c->base = c->out;
    fsm_effect(m, SWITCH_FX_RESUME);
    fsm_effect(m, SWITCH_FX_TELL_LOST);
}
static void switch_act_lose(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_LOSE);
}
