/* The machine of a switch, and the machines of its two halves. */
#include "switch_core.h"

#include <assert.h>
#include <base/compiler.h>

bool weft__switch_awaits_drained(const struct switch_core *c) {
    return switch_out_is_sent(&c->way_out) && switch_in_is_taken(&c->way_in);
}

/* No direction is more than one switch ahead of the other, and an epoch names a lane. */
static void switch_invariants(const struct fsm *m) {
    const struct switch_core *c = container_of(m, const struct switch_core, fsm);
    if (switch_is_ending(m)) return;
    bool is_moving = switch_is_moving(m), is_due = switch_in_is_due(&c->way_in);
    assert(is_moving != switch_out_stays(&c->way_out));
    assert(is_moving != switch_in_stays(&c->way_in));
    assert(c->epoch_in + is_due == c->epoch_out + is_moving - switch_out_has_sent(&c->way_out));
    assert((c->in == c->out) == (c->epoch_in == c->epoch_out));
    (void)is_moving;
    (void)is_due;
}

#define FSM_NAME       switch
#define FSM_PREFIX     SWITCH
#define FSM_INVARIANTS switch_invariants
#include <fsm/define.h>

#define FSM_NAME   switch_out
#define FSM_PREFIX SWITCH_OUT
#include <fsm/define.h>

#define FSM_NAME   switch_in
#define FSM_PREFIX SWITCH_IN
#include <fsm/define.h>

/* ---- the halves ask the port of the whole */

static struct switch_core *core_of_out(struct fsm *m) {
    return container_of(m, struct switch_core, way_out);
}
static struct switch_core *core_of_in(struct fsm *m) {
    return container_of(m, struct switch_core, way_in);
}

static void out_effect(struct fsm *m, unsigned effect) {
    static const uint8_t effect_of[] = {[SWITCH_OUT_FX_QUIESCE] = SWITCH_FX_QUIESCE,
                                        [SWITCH_OUT_FX_MARK] = SWITCH_FX_MARK,
                                        [SWITCH_OUT_FX_CROSS] = SWITCH_FX_CROSS,
                                        [SWITCH_OUT_FX_FREE] = SWITCH_FX_FREE};
    fsm_effect(&core_of_out(m)->fsm, effect_of[effect]);
}
static void out_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    static const uint8_t event_of[] = {
        [SWITCH_OUT_EV_MOVE] = SWITCH_EV_MOVE,       [SWITCH_OUT_EV_QUIET] = SWITCH_EV_QUIET,
        [SWITCH_OUT_EV_MARKED] = SWITCH_EV_MARKED,   [SWITCH_OUT_EV_DRAINED] = SWITCH_EV_DRAINED,
        [SWITCH_OUT_EV_LOST] = SWITCH_EV_OTHER_LOST, [SWITCH_OUT_EV_STOP] = SWITCH_EV_CLOSE};
    struct fsm *whole = &core_of_out(m)->fsm;
    whole->port->fail(whole, event_of[event], why);
}
static const struct fsm_port out_port = {&weft__switch_out_machine, out_effect, out_fail};

static void in_effect(struct fsm *m, unsigned effect) {
    fsm_effect(&core_of_in(m)->fsm, SWITCH_FX_TAKE);
}
static void in_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    static const uint8_t event_of[] = {[SWITCH_IN_EV_AWAIT] = SWITCH_EV_MOVE,
                                       [SWITCH_IN_EV_END] = SWITCH_EV_END,
                                       [SWITCH_IN_EV_OLD_CLOSED] = SWITCH_EV_OLD_CLOSED,
                                       [SWITCH_IN_EV_LOST] = SWITCH_EV_OTHER_LOST,
                                       [SWITCH_IN_EV_STOP] = SWITCH_EV_CLOSE};
    struct fsm *whole = &core_of_in(m)->fsm;
    whole->port->fail(whole, event_of[event], why);
}
static const struct fsm_port in_port = {&weft__switch_in_machine, in_effect, in_fail};

void weft__switch_init(struct switch_core *c, const struct fsm_port *port, uint32_t id) {
    c->epoch_out = c->epoch_in = 0;
    c->out = c->in = c->base = 0;
    c->lost = false;
    fsm_init(&c->fsm, port, SWITCH_ALONE, id);
    fsm_init(&c->way_out, &out_port, SWITCH_OUT_STAY, id);
    fsm_init(&c->way_in, &in_port, SWITCH_IN_STAY, id);
}

/* ---- events */

static bool have_both_moved(const struct switch_core *c) {
    return switch_out_is_drained(&c->way_out) && switch_in_has_taken(&c->way_in);
}

static enum switch_event done_event(const struct switch_core *c) {
    if (c->out == c->base) return SWITCH_EV_DONE_HOME;
    return switch_in_is_closed(&c->way_in) ? SWITCH_EV_DONE_LOST : SWITCH_EV_DONE_AWAY;
}

void weft__switch_step(struct switch_core *c, enum switch_event event) {
    weft__fsm_step(&c->fsm, event);
    if (have_both_moved(c)) weft__fsm_step(&c->fsm, done_event(c));
}

enum switch_event weft__switch_end_event(const struct switch_core *c, uint8_t lane,
                                         uint32_t epoch) {
    if (lane != c->in || epoch != c->epoch_in + 1) return SWITCH_EV_END_WRONG;
    return c->lost ? SWITCH_EV_END_LOST : SWITCH_EV_END;
}

enum switch_event weft__switch_drained_event(const struct switch_core *c, uint32_t epoch) {
    return epoch == c->epoch_out ? SWITCH_EV_DRAINED : SWITCH_EV_DRAINED_WRONG;
}

/* The loss of a lane in use may lose an END, a DRAINED, or messages of ours: the link cannot go
 * on. */
enum switch_event weft__switch_loss_event(const struct switch_core *c, uint8_t lane, bool parted) {
    if (parted && lane == c->out && lane != c->in) return SWITCH_EV_OUT_CLOSED;
    if (lane == c->out || lane == c->in) return SWITCH_EV_USED_LOST;
    if (!weft__switch_awaits_drained(c)) return SWITCH_EV_OTHER_LOST;
    return parted ? SWITCH_EV_OLD_CLOSED : SWITCH_EV_USED_LOST;
}

/* ---- the other lane comes */

static struct switch_core *core_of(struct fsm *m) {
    return container_of(m, struct switch_core, fsm);
}

static void stop(struct switch_core *c) {
    weft__fsm_step(&c->way_out, SWITCH_OUT_EV_STOP);
    weft__fsm_step(&c->way_in, SWITCH_IN_EV_STOP);
}

static void switch_act_drop(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_HANG_UP);
}
static void switch_act_fail(struct fsm *m) {
    fsm_effect(m, SWITCH_FX_NOTIFY_FAILED);
}
/* The dialed side waits for END of the dialer, which proves that the dialer has the lane, too. */
static void switch_act_join(struct fsm *m) {
    core_of(m)->lost = false;
    fsm_effect(m, SWITCH_FX_NOTIFY_JOINED);
}
static void switch_act_lead(struct fsm *m) {
    core_of(m)->lost = false;
    fsm_effect(m, SWITCH_FX_NOTIFY_JOINED);
    switch_act_move(m);
}

/* ---- traffic moves */

static void switch_act_move(struct fsm *m) {
    struct switch_core *c = core_of(m);
    weft__fsm_step(&c->way_in, SWITCH_IN_EV_AWAIT);
    weft__fsm_step(&c->way_out, SWITCH_OUT_EV_MOVE);
}
static void switch_act_follow(struct fsm *m) {
    struct switch_core *c = core_of(m);
    weft__fsm_step(&c->way_in, SWITCH_IN_EV_END);
    weft__fsm_step(&c->way_out, SWITCH_OUT_EV_MOVE);
}
static void switch_act_quiet(struct fsm *m) {
    weft__fsm_step(&core_of(m)->way_out, SWITCH_OUT_EV_QUIET);
}
static void switch_act_marked(struct fsm *m) {
    weft__fsm_step(&core_of(m)->way_out, SWITCH_OUT_EV_MARKED);
}
static void switch_act_free(struct fsm *m) {
    weft__fsm_step(&core_of(m)->way_out, SWITCH_OUT_EV_DRAINED);
}
static void switch_act_end(struct fsm *m) {
    weft__fsm_step(&core_of(m)->way_in, SWITCH_IN_EV_END);
}

static void switch_act_settle(struct fsm *m) {
    stop(core_of(m));
    fsm_effect(m, SWITCH_FX_NOTIFY_SWITCHED);
}
static void switch_act_part(struct fsm *m) {
    stop(core_of(m));
    fsm_effect(m, SWITCH_FX_PART);
    fsm_effect(m, SWITCH_FX_NOTIFY_SWITCHED);
}

/* ---- lanes that are lost */

static void become_alone(struct switch_core *c) {
    c->lost = true;
    c->base = c->out;
    fsm_effect(&c->fsm, SWITCH_FX_NOTIFY_LOST);
}

/* The peer closes the link, and has closed the base lane. Its last messages come by the other
 * lane. */
static void switch_act_left(struct fsm *m) {
    stop(core_of(m));
    become_alone(core_of(m));
}
static void switch_act_widow(struct fsm *m) {
    struct switch_core *c = core_of(m);
    weft__fsm_step(&c->way_out, SWITCH_OUT_EV_LOST);
    weft__fsm_step(&c->way_in, SWITCH_IN_EV_LOST);
    fsm_effect(m, SWITCH_FX_RESUME);
    become_alone(c);
}
static void switch_act_closed(struct fsm *m) {
    weft__fsm_step(&core_of(m)->way_in, SWITCH_IN_EV_OLD_CLOSED);
}
/* A peer that closes sends everything first. It may have moved to the lane that it has closed. */
static void switch_act_leave(struct fsm *m) {
    struct switch_core *c = core_of(m);
    assert(c->out != c->in);
    stop(c);
    c->lost = true;
    fsm_effect(m, SWITCH_FX_MUTE);
}
/* Deliver what the lost lane brought: the peer sends nothing more. */
static void switch_act_rest(struct fsm *m) {
    struct switch_core *c = core_of(m);
    c->epoch_in++;
    c->in ^= 1;
    fsm_effect(m, SWITCH_FX_TAKE);
    fsm_effect(m, SWITCH_FX_LOSE);
}
static void switch_act_lose(struct fsm *m) {
    stop(core_of(m));
    fsm_effect(m, SWITCH_FX_LOSE);
}
static void switch_act_close(struct fsm *m) {
    stop(core_of(m));
}

/* ---- what we send */

static void switch_out_act_quiesce(struct fsm *m) {
    fsm_effect(m, SWITCH_OUT_FX_QUIESCE);
}
static void switch_out_act_mark(struct fsm *m) {
    fsm_effect(m, SWITCH_OUT_FX_MARK);
}
static void switch_out_act_cross(struct fsm *m) {
    struct switch_core *c = core_of_out(m);
    c->epoch_out++;
    c->out ^= 1;
    fsm_effect(m, SWITCH_OUT_FX_CROSS);
}
static void switch_out_act_free(struct fsm *m) {
    fsm_effect(m, SWITCH_OUT_FX_FREE);
}

/* ---- what we receive */

static void switch_in_act_take(struct fsm *m) {
    struct switch_core *c = core_of_in(m);
    c->epoch_in++;
    c->in ^= 1;
    fsm_effect(m, SWITCH_IN_FX_TAKE);
}
