/* The actions of the window's machine, and the events that a frame's numbers stand for: plain data
 * only. */
#include "window.h"
#include <assert.h>

/* ---- telling apart --------------------------------------------------------------------------- */

enum window_event weft__window_frame(struct window *w, uint32_t seq) {
    uint32_t ahead = seq - w->expected;
    w->arrived = seq;
    if ((int32_t)ahead < 0) return WINDOW_EV_FRAME_OLD;
    if (ahead >= WINDOW_FRAMES) return WINDOW_EV_FRAME_BEYOND;
    if (ahead == 0) return w->held ? WINDOW_EV_FRAME_FILLS : WINDOW_EV_FRAME;
    return w->held >> ahead & 1 ? WINDOW_EV_FRAME_OLD : WINDOW_EV_FRAME_EARLY;
}

static uint64_t low_bits(uint32_t n) {
    return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

static uint64_t shifted(uint64_t bits, uint32_t n) {
    return n >= 64 ? 0 : bits >> n;
}

enum window_event weft__window_ack(struct window *w, uint32_t ack, uint64_t sack) {
    uint32_t n = ack - w->una, flying = window_in_flight(w);
    w->acked = ack;
    w->sack = sack;
    if ((int32_t)n < 0) return WINDOW_EV_ACK_OLD; /* overtaken by a later one */
    if (n > flying || (sack & ~low_bits(flying - n))) return WINDOW_EV_ACK_BEYOND;
    if (n == 0 && !(sack & ~w->sacked)) return WINDOW_EV_ACK_OLD;
    return n == flying ? WINDOW_EV_ACK_ALL : WINDOW_EV_ACK;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void window_invariants(const struct fsm *m) {
    const struct window *w = (const struct window *)m;
    assert(window_in_flight(w) <= WINDOW_FRAMES);
    assert((int32_t)(w->end - w->next) >= 0);
    assert((w->sacked & ~low_bits(window_in_flight(w))) == 0);
    assert((w->held & 1) == 0);
    assert((m->state != WINDOW_QUIET && m->state != WINDOW_ASKED) || w->una == w->next);
    assert(m->state != WINDOW_FLYING || w->una != w->next);
    (void)w;
}

#define FSM_NAME       window
#define FSM_PREFIX     WINDOW
#define FSM_INVARIANTS window_invariants
#include <fsm/define.h>

static void request_send(struct window *w, uint32_t seq) {
    w->out = seq;
    fsm_effect(&w->fsm, WINDOW_FX_SEND);
    w->out = 0; /* what an event or an effect is about is no state */
}

static void window_act_first(struct fsm *m) {
    window_act_next(m);
    fsm_effect(m, WINDOW_FX_ARM);
}

static void window_act_next(struct fsm *m) {
    struct window *w = (struct window *)m;
    request_send(w, w->next++);
}

/* Everything that may be lost goes again; what the peer has said to hold does not. */
static void window_act_again(struct fsm *m) {
    struct window *w = (struct window *)m;
    w->resent = ~w->sacked & low_bits(window_in_flight(w));
    for (uint32_t i = 0; i < window_in_flight(w); i++)
        if (window_misses(w, w->una + i)) request_send(w, w->una + i);
    fsm_effect(m, WINDOW_FX_BACK_OFF);
}

static void window_act_ask(struct fsm *m) {
    fsm_effect(m, WINDOW_FX_ASK);
    fsm_effect(m, WINDOW_FX_ARM);
}

static void window_act_ask_again(struct fsm *m) {
    fsm_effect(m, WINDOW_FX_ASK);
    fsm_effect(m, WINDOW_FX_BACK_OFF);
}

static void window_act_recv_msg(struct fsm *m) {
    struct window *w = (struct window *)m;
    w->acked = 0;
    w->sack = 0;
    fsm_effect(m, WINDOW_FX_DISARM);
}

static void window_act_stop(struct fsm *m) {
    fsm_effect(m, WINDOW_FX_DISARM);
}

static void move_on(struct window *w) {
    w->arrived = 0;
    do {
        w->expected++;
        w->held >>= 1;
    } while (w->held & 1);
}

static void window_act_deliver(struct fsm *m) {
    move_on((struct window *)m);
    fsm_effect(m, WINDOW_FX_ACK_SOON);
}

static void window_act_fill(struct fsm *m) {
    move_on((struct window *)m);
    fsm_effect(m, WINDOW_FX_ACK_NOW);
}

/* The peer learns of the gap at once (RFC 5681, section 4.2). */
static void window_act_keep(struct fsm *m) {
    struct window *w = (struct window *)m;
    w->held |= UINT64_C(1) << (w->arrived - w->expected);
    w->arrived = 0;
    fsm_effect(m, WINDOW_FX_ACK_NOW);
}

static void window_act_remind(struct fsm *m) {
    ((struct window *)m)->arrived = 0;
    fsm_effect(m, WINDOW_FX_ACK_NOW);
}

static void take_ack(struct window *w) {
    uint32_t n = w->acked - w->una;
    w->una = w->acked;
    w->sacked = (shifted(w->sacked, n) | w->sack) & low_bits(window_in_flight(w));
    w->resent = shifted(w->resent, n);
    w->acked = 0;
    w->sack = 0;
}

/* A frame with enough of its followers at the peer is lost, and goes again, once before the next
 * timeout. */
static void fill_gaps(struct window *w) {
    uint64_t beyond = w->sacked;
    for (unsigned i = 0; i + 1 < WINDOW_GAP && beyond; i++)
        beyond &= ~(UINT64_C(1) << (63 - __builtin_clzll(beyond)));
    if (!beyond) return;
    uint64_t lost = low_bits(63 - (uint32_t)__builtin_clzll(beyond)) & ~w->sacked & ~w->resent;
    w->resent |= lost;
    for (; lost; lost &= lost - 1) request_send(w, w->una + (uint32_t)__builtin_ctzll(lost));
}

static void window_act_settle(struct fsm *m) {
    struct window *w = (struct window *)m;
    take_ack(w);
    fill_gaps(w);
    fsm_effect(m, WINDOW_FX_ARM);
}

static void window_act_settle_all(struct fsm *m) {
    take_ack((struct window *)m);
    fsm_effect(m, WINDOW_FX_DISARM);
}

void weft__window_init(struct window *w, const struct fsm_port *port, uint32_t id, uint32_t mine,
                       uint32_t theirs) {
    *w = (struct window){.una = mine, .next = mine, .end = mine, .expected = theirs};
    fsm_init(&w->fsm, port, WINDOW_QUIET, id);
}
