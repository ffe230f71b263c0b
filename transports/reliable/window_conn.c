/* The conversation of two windows: its machine, and what a frame means to it. Pure. */
#include "window_conn.h"

/* ---- what a frame says ----------------------------------------------------------------------- */

static int unverified(struct window_conn *c, uint32_t tag) {
    c->echo_tag = tag;
    return CONN_EV_UNVERIFIED;
}

static int handshake_window_conn(struct window_conn *c, const struct window_frame *f) {
    if (c->peer_tag && c->peer_tag != f->my_tag) return CONN_NO_EVENT; /* of another conversation */
    c->received_tag = f->my_tag;
    if (f->kind == WINDOW_WELCOME) return CONN_EV_WELCOME;
    return c->peer_tag ? CONN_EV_HELLO_AGAIN : CONN_EV_HELLO;
}

int weft__conn_recv(struct window_conn *c, const struct window_frame *f) {
    bool mine = f->tag == c->my_tag;
    switch ((enum window_kind)f->kind) {
    case WINDOW_HELLO:
        return f->version == WINDOW_VERSION ? handshake_window_conn(c, f)
                                            : unverified(c, f->my_tag);
    case WINDOW_WELCOME:
        return mine && f->version == WINDOW_VERSION ? handshake_window_conn(c, f)
                                                    : unverified(c, f->tag);
    case WINDOW_DATA:
    case WINDOW_ACK:
    case WINDOW_FIN: return mine ? CONN_EV_PROOF : unverified(c, f->tag);
    case WINDOW_RST:
        if (!mine) return unverified(c, f->tag);
        c->echo_tag = c->peer_tag;
        return CONN_EV_RST;
    /* an answer, which is not answered: two that do not know each other must come to rest */
    case WINDOW_ECHO:
        return mine || (c->peer_tag && f->tag == c->peer_tag) ? CONN_EV_ECHO : CONN_NO_EVENT;
    case WINDOW_N_KINDS: break;
    }
    return CONN_NO_EVENT;
}

/* ---- the machine ----------------------------------------------------------------------------- */

#define FSM_NAME   conn
#define FSM_PREFIX CONN
#include <fsm/define.h>

static void conn_act_handshake(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_HELLO);
    fsm_effect(m, CONN_FX_ARM);
}

static void conn_act_handshake_again(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_HELLO);
    fsm_effect(m, CONN_FX_BACK_OFF);
}

static void conn_act_wait(struct fsm *m) {
    fsm_effect(m, CONN_FX_ARM);
}

static void know_peer(struct fsm *m) {
    struct window_conn *c = (struct window_conn *)m;
    if (!c->peer_tag) c->peer_tag = c->received_tag;
}

static void conn_act_welcome(struct fsm *m) {
    know_peer(m);
    fsm_effect(m, CONN_FX_SEND_WELCOME);
    fsm_effect(m, CONN_FX_ARM);
}

static void conn_act_welcome_again(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_WELCOME);
    fsm_effect(m, CONN_FX_BACK_OFF);
}

static void conn_act_answer(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_WELCOME);
}

static void conn_act_open(struct fsm *m) {
    know_peer(m);
    fsm_effect(m, CONN_FX_DISARM);
    fsm_effect(m, CONN_FX_START);
    fsm_effect(m, CONN_FX_SEND_ACK);
    fsm_effect(m, CONN_FX_NOTIFY_UP);
}

static void conn_act_meet(struct fsm *m) {
    fsm_effect(m, CONN_FX_DISARM);
    fsm_effect(m, CONN_FX_START);
    fsm_effect(m, CONN_FX_NOTIFY_ACCEPTED);
}

/* Our acknowledgement was lost. */
static void conn_act_prove(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_ACK);
}

static void conn_act_disown(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_ECHO);
    conn_act_end(m);
}

static void conn_act_down(struct fsm *m) {
    fsm_effect(m, CONN_FX_DISARM);
    fsm_effect(m, CONN_FX_DISCARD);
    fsm_effect(m, CONN_FX_STOP);
    fsm_effect(m, CONN_FX_NOTIFY_DOWN);
}

static void conn_act_reset(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_ECHO);
    conn_act_down(m);
}

static void conn_act_expel(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_RST);
    conn_act_down(m);
}

static void conn_act_echo(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_ECHO);
}

static void conn_act_finish(struct fsm *m) {
    fsm_effect(m, CONN_FX_DISCARD);
    fsm_effect(m, CONN_FX_ARM_CLOSE);
    fsm_effect(m, CONN_FX_SEND_FIN);
}

static void conn_act_abort(struct fsm *m) {
    fsm_effect(m, CONN_FX_DISCARD);
    fsm_effect(m, CONN_FX_CANCEL);
    fsm_effect(m, CONN_FX_ARM_CLOSE);
    fsm_effect(m, CONN_FX_SEND_RST);
    fsm_effect(m, CONN_FX_ARM);
}

static void conn_act_abort_again(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_RST);
    fsm_effect(m, CONN_FX_BACK_OFF);
}

static void conn_act_end(struct fsm *m) {
    fsm_effect(m, CONN_FX_DISARM);
    fsm_effect(m, CONN_FX_DISCARD);
    fsm_effect(m, CONN_FX_CANCEL);
    fsm_effect(m, CONN_FX_CLOSE_RAW);
}

static void conn_act_echo_end(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_ECHO);
    conn_act_end(m);
}

static void conn_act_cut(struct fsm *m) {
    fsm_effect(m, CONN_FX_SEND_RST);
    conn_act_end(m);
}

static void conn_act_closed(struct fsm *m) {
    fsm_effect(m, CONN_FX_NOTIFY_CLOSED);
}

static void conn_act_forget(struct fsm *m) {
    fsm_effect(m, CONN_FX_FORGET);
}
