/* The actions of negotiate.fsm, with the choice of epochs and back-off times: plain data only. */
#include "negotiate.h"

#include <assert.h>

static struct negotiation *of(struct fsm *m) {
    return (struct negotiation *)m;
}

static void negotiate_invariants(const struct fsm *m) {
    const struct negotiation *n = (const struct negotiation *)m;
    unsigned held = 1u << NEGOTIATE_DIALING | 1u << NEGOTIATE_EXPECT | 1u << NEGOTIATE_MOVING |
                    1u << NEGOTIATE_FAST | 1u << NEGOTIATE_LEAVING;
    unsigned none = 1u << NEGOTIATE_BASE | 1u << NEGOTIATE_REST | 1u << NEGOTIATE_OVER;
    unsigned awaited = 1u << NEGOTIATE_CLAIM | 1u << NEGOTIATE_ROOM;
    assert(!(held >> m->state & 1) || n->place == PLACE_HELD);
    assert(!(none >> m->state & 1) || n->place == PLACE_NONE);
    assert(!(awaited >> m->state & 1) || n->place == PLACE_AWAITED);
    assert(m->state != NEGOTIATE_ASKED || n->place != PLACE_NONE);
    assert(m->state == NEGOTIATE_FAST || !n->settled);
    (void)n, (void)held, (void)none, (void)awaited;
}

#define FSM_NAME       negotiate
#define FSM_PREFIX     NEGOTIATE
#define FSM_INVARIANTS negotiate_invariants
#include <fsm/define.h>

/* The attempt failed. The port gives the slot to the next link. */
static void negotiate_machine_rest(struct fsm *m) {
    if (of(m)->refused < NEGOTIATE_REFUSED_MAX) of(m)->refused++;
    fsm_effect(m, NEGOTIATE_FX_REST);
    of(m)->place = PLACE_NONE;
}

/* ---- this side asks */

static void ask_negotiation(struct fsm *m, enum negotiate_place place) {
    of(m)->epoch = weft__negotiate_next(of(m));
    of(m)->place = place;
    fsm_effect(m, NEGOTIATE_FX_SEND_ASK);
    fsm_effect(m, NEGOTIATE_FX_WAIT);
}
static void negotiate_act_ask(struct fsm *m) {
    ask_negotiation(m, PLACE_HELD);
}
static void negotiate_act_ask_for_room(struct fsm *m) {
    ask_negotiation(m, PLACE_AWAITED);
}
static void negotiate_act_take(struct fsm *m) {
    of(m)->place = PLACE_HELD;
}
/* The request of the peer is answered instead. */
static void negotiate_act_yield(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_NO_TIMEOUT);
    of(m)->place = PLACE_NONE;
}
static void negotiate_act_denied(struct fsm *m) {
    negotiate_machine_rest(m);
}
static void negotiate_act_give_up(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_SEND_CANCEL);
    negotiate_machine_rest(m);
}
static void negotiate_act_dial(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_NO_TIMEOUT);
    fsm_effect(m, NEGOTIATE_FX_DIAL);
}
static void negotiate_act_claim(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_WAIT);
    fsm_effect(m, NEGOTIATE_FX_MAKE_ROOM);
}
static void negotiate_act_dial_now(struct fsm *m) {
    of(m)->place = PLACE_HELD;
    negotiate_act_dial(m);
}

/* ---- the peer asks */

static void negotiate_act_grant(struct fsm *m) {
    of(m)->place = PLACE_HELD;
    fsm_effect(m, NEGOTIATE_FX_EXPECT);
    fsm_effect(m, NEGOTIATE_FX_SEND_GRANT);
    fsm_effect(m, NEGOTIATE_FX_WAIT);
}
static void negotiate_act_make_room(struct fsm *m) {
    of(m)->place = PLACE_AWAITED;
    fsm_effect(m, NEGOTIATE_FX_WAIT);
    fsm_effect(m, NEGOTIATE_FX_MAKE_ROOM);
}
static void negotiate_act_grant_now(struct fsm *m) {
    negotiate_act_grant(m);
}
static void negotiate_act_deny(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_SEND_DENY);
}
static void negotiate_act_deny_late(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_SEND_DENY);
    negotiate_machine_rest(m);
}
static void negotiate_act_call_off(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_SEND_CANCEL);
    fsm_effect(m, NEGOTIATE_FX_CANCEL_JOIN);
    negotiate_machine_rest(m);
}

/* ---- the other lane, and the way back */

static void negotiate_act_drop(struct fsm *m) {
    negotiate_machine_rest(m);
}
static void negotiate_act_drop_join(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_CANCEL_JOIN);
    negotiate_machine_rest(m);
}
static void negotiate_act_fail(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_SEND_CANCEL);
    negotiate_machine_rest(m);
}
static void negotiate_act_move(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_NO_TIMEOUT);
}
static void negotiate_act_arrive(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_MIN_HOLD);
    fsm_effect(m, NEGOTIATE_FX_NOTIFY_FAST);
}
static void negotiate_act_settle(struct fsm *m) {
    of(m)->settled = true;
    of(m)->refused = 0;
    fsm_effect(m, NEGOTIATE_FX_NOTIFY_SETTLED);
}
static void negotiate_act_follow(struct fsm *m) {
    of(m)->settled = false;
    fsm_effect(m, NEGOTIATE_FX_NO_TIMEOUT);
    fsm_effect(m, NEGOTIATE_FX_GO_BACK);
}
/* BACK is sent before the first message on the base lane. */
static void negotiate_act_back(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_SEND_BACK);
    negotiate_act_follow(m);
}
static void negotiate_act_left(struct fsm *m) {
    fsm_effect(m, NEGOTIATE_FX_NOTIFY_BASE);
    fsm_effect(m, NEGOTIATE_FX_REST);
    of(m)->place = PLACE_NONE;
}
static void negotiate_act_lost(struct fsm *m) {
    of(m)->settled = false;
    fsm_effect(m, NEGOTIATE_FX_NOTIFY_BASE);
    negotiate_machine_rest(m);
}
static void negotiate_act_rested(struct fsm *m) {}
static void negotiate_act_close(struct fsm *m) {
    of(m)->settled = false;
    fsm_effect(m, NEGOTIATE_FX_NO_TIMEOUT);
    of(m)->place = PLACE_NONE;
}

/* ---- pure decisions */

uint32_t weft__negotiate_next(const struct negotiation *n) {
    if (n->epoch > UINT32_MAX - 4) return 0;
    return n->epoch + 1 + ((n->epoch + 1) % 2 != n->odd);
}

enum epoch_check weft__negotiate_question(const struct negotiation *n, uint32_t epoch) {
    if (epoch % 2 == n->odd) return EPOCH_INVALID; /* an epoch of this side */
    /* it crossed a request of this side, which wins */
    if (epoch <= n->epoch) return EPOCH_STALE;
    return epoch - n->epoch <= 2 ? EPOCH_CURRENT : EPOCH_INVALID;
}

enum epoch_check weft__negotiate_word(const struct negotiation *n, uint32_t epoch) {
    if (epoch > n->epoch) return EPOCH_INVALID;
    return epoch == n->epoch ? EPOCH_CURRENT : EPOCH_STALE;
}

enum negotiate_answer weft__negotiate_answer(const struct negotiate_capacity *room) {
    if (room->held < room->capacity && !room->awaited) return ANSWER_FITS;
    if (room->awaited) return ANSWER_BUSY;
    return room->weaker ? ANSWER_ROOM : ANSWER_FULL;
}

uint64_t weft__negotiate_backoff(const struct negotiation *n, uint64_t least, uint64_t most) {
    uint64_t rest = least << (n->refused ? n->refused - 1 : 0);
    return rest < most ? rest : most;
}
