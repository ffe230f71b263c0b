/* The actions of a connection's machine: changes of its data, and effects for the port (lane.c). */
#include "tcp_conn.h"

#include <assert.h>

static void tcp_conn_invariants(const struct fsm *m) {
    uint8_t notified = ((const struct tcp_conn *)m)->notified;
    bool known = m->state >= TCP_CONN_OPEN && m->state <= TCP_CONN_LINGER;
    assert(!known || notified == TCP_NOTIFIED_UP);
    assert((m->state == TCP_CONN_DOWN) ==
           ((notified & (TCP_NOTIFIED_DOWN | TCP_NOTIFIED_CLOSED)) == TCP_NOTIFIED_DOWN));
    assert((m->state == TCP_CONN_CLOSED) == ((notified & TCP_NOTIFIED_CLOSED) != 0));
    (void)notified, (void)known;
}

#define FSM_NAME       tcp_conn
#define FSM_PREFIX     TCP_CONN
#define FSM_INVARIANTS tcp_conn_invariants
#define FSM_STARTS     1 << TCP_CONN_DIAL | 1 << TCP_CONN_HANDSHAKE
#include <fsm/define.h>

static void notify_owner(struct fsm *m, uint8_t what, unsigned effect) {
    struct tcp_conn *conn = (struct tcp_conn *)m;
    assert(!(conn->notified & what)); /* each once */
    conn->notified |= what;
    fsm_effect(m, effect);
}

static void tcp_conn_act_dial(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DIAL);
}
static void tcp_conn_act_hello(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_SEND_HELLO);
}
static void tcp_conn_act_challenge(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_SEND_CHALLENGE);
}

static void tcp_conn_act_proof(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    fsm_effect(m, TCP_CONN_FX_SEND_PROOF);
    notify_owner(m, TCP_NOTIFIED_UP, TCP_CONN_FX_NOTIFY_UP);
}

static void tcp_conn_act_accept(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    notify_owner(m, TCP_NOTIFIED_UP, TCP_CONN_FX_NOTIFY_ACCEPTED);
}

static void tcp_conn_act_lost(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    fsm_effect(m, TCP_CONN_FX_RELEASE);
    notify_owner(m, TCP_NOTIFIED_DOWN, TCP_CONN_FX_NOTIFY_DOWN);
}

static void tcp_conn_act_end(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_DISARM);
    fsm_effect(m, TCP_CONN_FX_RELEASE);
    notify_owner(m, TCP_NOTIFIED_CLOSED, TCP_CONN_FX_NOTIFY_CLOSED);
}

/* The lane ends before it was returned to its owner: no event is reported. */
static void tcp_conn_act_drop(struct fsm *m) {
    tcp_conn_act_end(m);
}

static void tcp_conn_act_part(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_PART);
    tcp_conn_act_end(m);
}

static void tcp_conn_act_goodbye(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_ARM_CLOSE);
    fsm_effect(m, TCP_CONN_FX_SEND_GOODBYE);
}

static void tcp_conn_act_received(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_STOP_READING);
}
static void tcp_conn_act_finish(struct fsm *m) {
    fsm_effect(m, TCP_CONN_FX_SEND_END);
}
