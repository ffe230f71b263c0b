/* What a connection's transitions do to its data, and what they ask of the port (lane.c). */
#include "tcp_conn.h"

#include <assert.h>

static void tcp_conn_invariants(const struct fsm *m) {
    uint8_t told = ((const struct tcp_conn *)m)->told;
    bool known = m->state >= TCP_CONN_OPEN && m->state <= TCP_CONN_LINGER;
    assert(!known || told == TCP_TOLD_UP);
    assert((m->state == TCP_CONN_DOWN) == ((told & (TCP_TOLD_DOWN | TCP_TOLD_CLOSED)) == TCP_TOLD_DOWN));
    assert((m->state == TCP_CONN_CLOSED) == ((told & TCP_TOLD_CLOSED) != 0));
    (void)told, (void)known;
}

#define FSM_NAME       tcp_conn
#define FSM_PREFIX     TCP_CONN
#define FSM_INVARIANTS tcp_conn_invariants
#define FSM_STARTS     1 << TCP_CONN_DIAL | 1 << TCP_CONN_GREET
#include <fsm/define.h>

static void tell(struct fsm *m, uint8_t what, unsigned effect) {
    struct tcp_conn *conn = (struct tcp_conn *)m;
    assert(!(conn->told & what)); /* each once */
    conn->told |= what;
    fsm_effect(m, effect);
}

static void tcp_conn_act_dial(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DIAL);
}
static void tcp_conn_act_hello(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_SAY_HELLO);
}
static void tcp_conn_act_challenge(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_SAY_CHALLENGE);
}

static void tcp_conn_act_proof(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    fsm_effect(m, TCP_CONN_FX_SAY_PROOF);
    tell(m, TCP_TOLD_UP, TCP_CONN_FX_TELL_UP);
}

static void tcp_conn_act_accept(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    tell(m, TCP_TOLD_UP, TCP_CONN_FX_TELL_ACCEPTED);
}

static void tcp_conn_act_lost(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    fsm_effect(m, TCP_CONN_FX_RELEASE);
    tell(m, TCP_TOLD_DOWN, TCP_CONN_FX_TELL_DOWN);
}

static void tcp_conn_act_end(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    fsm_effect(m, TCP_CONN_FX_RELEASE);
    tell(m, TCP_TOLD_CLOSED, TCP_CONN_FX_TELL_CLOSED);
}

/* Before anybody knew of it: the port tells nobody. */
static void tcp_conn_act_drop(struct fsm *m) {
    tcp_conn_act_end(m);
}

static void tcp_conn_act_part(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_PART);
    tcp_conn_act_end(m);
}

static void tcp_conn_act_goodbye(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_ARM_CLOSE);
    fsm_effect(m, TCP_CONN_FX_SAY_GOODBYE);
}

static void tcp_conn_act_heard(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_STOP_READING);
}
static void tcp_conn_act_finish(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_SAY_END);
}
