/* A lane's life: the port of its machine, and its calls to the owner. */
#define _GNU_SOURCE
#include "tcp.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LAST_READS = 256 };

static struct tcp_lane *lane_of(struct fsm *m) {
    return (struct tcp_lane *)((char *)m - offsetof(struct tcp_lane, conn.fsm));
}

weft_context_t *tcp_context(const struct tcp_lane *lane) {
    return weft__reactor_context(tcp_reactor(lane));
}

void tcp_lane_todo(struct tcp_lane *lane, unsigned what) {
    lane->todo |= (uint16_t)what;
    weft__job_post(tcp_reactor(lane), &lane->job);
}

void tcp_lane_why(struct tcp_lane *lane, weft_status_t why) {
    if (lane->why == WEFT_OK) lane->why = (int8_t)why;
}

weft_status_t tcp_lane_watch(struct tcp_lane *lane, int events) {
    struct reactor *r = tcp_reactor(lane);
    if (events == lane->watch.events) return WEFT_OK;
    if (lane->watch.events == 0) return weft__watch_start(r, &lane->watch, lane->watch.fd, events);
    if (events) return weft__watch_change(r, &lane->watch, events);
    weft__watch_stop(r, &lane->watch);
    return WEFT_OK;
}

static void not_ready(struct watch *watch, int events) {}

/* ---- the port -------------------------------------------------------------------------------------------- */

/* Everything but what is still to be told. Also for a lane that was released before. */
static void release_lane(struct tcp_lane *lane) {
    tcp_hot_leave(lane);
    weft__watch_stop(tcp_reactor(lane), &lane->watch);
    weft__timer_stop(tcp_reactor(lane), &lane->deadline);
    if (lane->watch.fd >= 0) close(lane->watch.fd);
    lane->watch.fd = -1;
    tcp_input_drop(lane);
    tcp_output_clean(lane);
    talloc_free(lane->hands);
    lane->hands = NULL;
    lane->lane.ops = &tcp_ops_ended;
    lane->watch.ready = not_ready;
    lane->todo &= TODO_ACCEPTED;
    tcp_land_end(lane, lane->why ? lane->why : WEFT_ERR_CLOSED);
}

static void open_lane(struct tcp_lane *lane, unsigned tell) {
    talloc_free(lane->hands);
    lane->hands = NULL;
    lane->lane.ops = &tcp_ops_open;
    tcp_input_open(lane);
    tcp_lane_todo(lane, tell);
}

static void say_goodbye(struct tcp_lane *lane) {
    lane->lane.ops = &tcp_ops_ended;
    tcp_input_discard(lane);
    tcp_output_goodbye(lane);
}

static void write_ready(struct watch *watch, int events) {
    if (events & WATCH_WRITE) tcp_output_unblock(tcp_lane_of_watch(watch));
}

static void stop_reading(struct tcp_lane *lane) {
    tcp_hot_leave(lane);
    lane->watch.ready = write_ready;
    if (tcp_lane_watch(lane, lane->watch.events & WATCH_WRITE) < 0) tcp_lane_todo(lane, TODO_BREAK);
}

static void arm_close(struct tcp_lane *lane) {
    struct reactor *r = tcp_reactor(lane);
    uint64_t ns = weft__setting_u64(tcp_context(lane), SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
    if (weft__timer_start(r, &lane->deadline, weft__now(r) + ns) == WEFT_OK) return;
    tcp_lane_why(lane, WEFT_ERR_NO_MEMORY); /* a close that nothing bounds is worse than none */
    tcp_lane_todo(lane, TODO_BREAK);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct tcp_lane *lane = lane_of(m);
    switch ((enum tcp_conn_effect)effect) {
    case TCP_CONN_FX_DIAL: tcp_dial(lane); break;
    case TCP_CONN_FX_SAY_HELLO: tcp_say_hello(lane); break;
    case TCP_CONN_FX_SAY_CHALLENGE: tcp_say_challenge(lane); break;
    case TCP_CONN_FX_SAY_PROOF: tcp_say_proof(lane); break;
    case TCP_CONN_FX_SAY_GOODBYE: say_goodbye(lane); break;
    case TCP_CONN_FX_PART: tcp_output_part(lane); break;
    case TCP_CONN_FX_SAY_END: shutdown(lane->watch.fd, SHUT_WR); break;
    case TCP_CONN_FX_STOP_READING: stop_reading(lane); break;
    case TCP_CONN_FX_ARM_CLOSE: arm_close(lane); break;
    case TCP_CONN_FX_DISARM: weft__timer_stop(tcp_reactor(lane), &lane->deadline); break;
    case TCP_CONN_FX_TELL_UP: open_lane(lane, TODO_UP); break;
    case TCP_CONN_FX_TELL_ACCEPTED: open_lane(lane, TODO_ACCEPTED); break;
    case TCP_CONN_FX_TELL_DOWN: tcp_lane_todo(lane, TODO_DOWN); break;
    case TCP_CONN_FX_TELL_CLOSED: tcp_lane_todo(lane, TODO_CLOSED); break;
    case TCP_CONN_FX_RELEASE: release_lane(lane); break;
    case TCP_CONN_N_EFFECTS: break;
    }
}

/* The machine stands where it stood; the connection ends by the job, since we may be inside of anything. */
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb verb) {
    struct tcp_lane *lane = lane_of(m);
    const char *said = weft__tcp_conn_machine.event_name[event];
    tcp_lane_why(lane, verb == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL);
    weft__log_limited(tcp_context(lane), verb == FSM_VIOL ? WEFT_LOG_WARN : WEFT_LOG_ERROR, "tcp",
                      "connection %u: %s in state %s", m->id, said, fsm_state_name(m));
    weft__count(tcp_reactor(lane))->violations += verb == FSM_VIOL;
    lane->watch.ready = not_ready;
    tcp_input_drop(lane);
    tcp_lane_todo(lane, TODO_BREAK);
}

static const struct fsm_port port = {&weft__tcp_conn_machine, on_effect, on_fail};

void tcp_lane_bad(struct tcp_lane *lane, weft_status_t why, const char *what) {
    char name[TCP_NAME_ROOM];
    tcp_sockaddr_text(&lane->peer, name, sizeof name);
    weft__log_limited(tcp_context(lane), WEFT_LOG_WARN, "tcp", "%s: %s (%s)", name, what, weft_status_name(why));
    weft__count(tcp_reactor(lane))->violations++;
    tcp_lane_why(lane, why);
    fsm_step(&lane->conn.fsm, TCP_CONN_EV_BAD);
}

/* ---- the deadline ------------------------------------------------------------------------------------------ */

static weft_status_t arm(struct tcp_lane *lane, bool acceptor) {
    struct reactor *r = tcp_reactor(lane);
    enum setting which = acceptor ? SETTING_TCP_GREETING_TIMEOUT : SETTING_CONNECT_TIMEOUT;
    return weft__timer_start(r, &lane->deadline,
                             weft__now(r) + weft__setting_u64(tcp_context(lane), which) * NS_PER_MS);
}

/* Perhaps it was this side that had no time: what has come meanwhile is read first, and buys time once more. */
static void deadline_passed(struct timer *timer) {
    struct tcp_lane *lane = (struct tcp_lane *)((char *)timer - offsetof(struct tcp_lane, deadline));
    uint8_t before = lane->conn.fsm.state;
    if (lane->watch.ready == tcp_greet_ready) tcp_greet_ready(&lane->watch, WATCH_READ);
    if (lane->conn.fsm.state == before) {
        tcp_lane_why(lane, WEFT_ERR_TIMED_OUT);
        fsm_step(&lane->conn.fsm, TCP_CONN_EV_TIMEOUT);
    } else if (lane->watch.ready == tcp_greet_ready && arm(lane, lane->listener != NULL) < 0) {
        tcp_lane_todo(lane, TODO_BREAK);
    }
}

/* ---- what is told to the owner ------------------------------------------------------------------------------ */

static bool take(struct tcp_lane *lane, unsigned what) {
    bool was = lane->todo & what;
    lane->todo &= (uint16_t)~what;
    return was;
}

static void hand_over(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    void *arg = lane->listener->arg;
    TAILQ_REMOVE(&iface->greeting, lane, of_iface);
    iface->n_greeting--;
    TAILQ_INSERT_TAIL(&iface->lanes, lane, of_iface);
    lane->listener = NULL;
    iface->iface.up->accepted(&lane->lane, arg);
}

static void free_lane(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    bool greeting = lane->listener != NULL;
    TAILQ_REMOVE(greeting ? &iface->greeting : &iface->lanes, lane, of_iface);
    iface->n_greeting -= greeting;
    weft__job_drop(iface->iface.reactor, &lane->job);
    talloc_free(lane->hands);
    lane->hands = NULL;
    weft__slab_bury(&iface->lane_slab, lane);
}

/* Not in its own name any more: the owner, if it has one, hears of it for the last time. */
static void finish(struct tcp_lane *lane) {
    bool known = lane->listener == NULL;
    tcp_land_tell(lane);
    tcp_land_forget(lane);
    tcp_output_tell(lane, lane->why ? lane->why : WEFT_ERR_CLOSED);
    if (known) lane->lane.iface->up->closed(&lane->lane);
    free_lane(lane);
}

/* What the peer sent before it went is still in the socket. */
static void hear_out(struct tcp_lane *lane) {
    (void)tcp_input_pause(&lane->lane, false);
    for (int i = 0; i < LAST_READS && lane->watch.ready == tcp_input_ready; i++)
        if (tcp_input_read(lane, UINT_MAX) == 0) return;
}

static void lane_job(struct job *job) {
    struct tcp_lane *lane = (struct tcp_lane *)((char *)job - offsetof(struct tcp_lane, job));
    const struct iface_up *up = lane->lane.iface->up;
    if (take(lane, TODO_REDIAL)) tcp_dial_failed(lane);
    if (take(lane, TODO_ACCEPTED)) hand_over(lane);
    if (take(lane, TODO_UP)) {
        up->up(&lane->lane);
        tcp_output_retry(lane);
    }
    if (take(lane, TODO_READ)) lane->watch.ready(&lane->watch, WATCH_READ);
    if (lane->todo & TODO_BREAK) hear_out(lane);
    if (take(lane, TODO_BREAK)) {
        tcp_lane_why(lane, WEFT_ERR_PEER_FAILED);
        fsm_step(&lane->conn.fsm, TCP_CONN_EV_BROKEN);
    }
    if (take(lane, TODO_LANDED)) tcp_land_tell(lane);
    if (take(lane, TODO_WRITTEN)) tcp_output_turn(lane);
    if (lane->todo & TODO_DOWN) tcp_output_tell(lane, lane->why);
    if (take(lane, TODO_DOWN)) {
        pending_queue_init(&lane->pending);
        up->down(&lane->lane, lane->why);
    }
    if (take(lane, TODO_CLOSED)) finish(lane);
}

/* ---- birth and death --------------------------------------------------------------------------------------- */

weft_status_t tcp_lane_new(struct tcp_iface *iface, bool acceptor, struct tcp_lane **lane_p) {
    struct tcp_lane *lane = weft__slab_take(&iface->lane_slab);
    struct tcp_hands *hands = lane ? weft__new(iface, struct tcp_hands) : NULL;
    if (!hands) {
        if (lane) weft__slab_put(&iface->lane_slab, lane);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a connection");
    }
    lane->lane = (struct lane){.ops = &tcp_ops_early, .iface = &iface->iface};
    lane->watch.fd = -1;
    lane->in.hot = -1;
    lane->hands = hands;
    lane->watch.ready = not_ready;
    lane->job.run = lane_job;
    lane->deadline.fire = deadline_passed;
    pending_queue_init(&lane->pending);
    fsm_init(&lane->conn.fsm, &port, acceptor ? TCP_CONN_GREET : TCP_CONN_DIAL, ++iface->next_id);
    weft_status_t st = arm(lane, acceptor);
    if (st < 0) {
        talloc_free(hands);
        weft__slab_put(&iface->lane_slab, lane);
        return st;
    }
    TAILQ_INSERT_TAIL(acceptor ? &iface->greeting : &iface->lanes, lane, of_iface);
    iface->n_greeting += acceptor;
    *lane_p = lane;
    return WEFT_OK;
}

void tcp_lane_abandon(struct tcp_lane *lane) {
    tcp_lane_why(lane, WEFT_ERR_CLOSED);
    fsm_step(&lane->conn.fsm, TCP_CONN_EV_ABORT);
    finish(lane);
}

void tcp_lane_close(struct lane *l, bool flush) {
    struct tcp_lane *lane = tcp_lane(l);
    pending_queue_init(&lane->pending);
    (void)tcp_input_pause(l, false); /* the peer's goodbye is waited for */
    if (!flush) tcp_lane_why(lane, WEFT_ERR_CLOSED);
    fsm_step(&lane->conn.fsm, flush ? TCP_CONN_EV_FLUSH : TCP_CONN_EV_ABORT);
}

void tcp_lane_describe(struct lane *l, char *buf, size_t size) {
    tcp_sockaddr_text(&tcp_lane(l)->peer, buf, size);
}
