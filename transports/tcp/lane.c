/* The life cycle of a lane: the port of its machine, and its calls to the owner. */
#define _GNU_SOURCE
#include "tcp.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LAST_READS = 256 };

static struct tcp_lane *lane_of(struct fsm *m) {
    return container_of(m, struct tcp_lane, conn.fsm);
}

weft_context_t *weft__tcp_context(const struct tcp_lane *lane) {
    return weft__reactor_context(tcp_reactor(lane));
}

void weft__tcp_lane_todo(struct tcp_lane *lane, unsigned what) {
    lane->todo |= (uint16_t)what;
    weft__job_post(tcp_reactor(lane), &lane->job);
}

void weft__tcp_lane_why(struct tcp_lane *lane, weft_status_t why) {
    if (lane->why == WEFT_OK) lane->why = (int8_t)why;
}

void weft__tcp_lane_note(struct tcp_lane *lane, const char *what, int error) {
    if (lane->what) return;
    lane->what = what;
    lane->error = (uint8_t)(error > 0 && error <= UINT8_MAX ? error : 0);
}

static weft_status_t cause_of(const struct tcp_lane *lane) {
    weft_status_t why = (int)lane->why;
    if (lane->what && lane->error)
        return weft__fail(why, "%s: %s", lane->what, strerror(lane->error));
    if (lane->what) return weft__fail(why, "%s", lane->what);
    weft__causes_clear();
    return why;
}

weft_status_t weft__tcp_lane_watch(struct tcp_lane *lane, int events) {
    struct reactor *r = tcp_reactor(lane);
    if (events == lane->watch.events) return WEFT_OK;
    if (lane->watch.events == 0) return weft__watch_start(r, &lane->watch, lane->watch.fd, events);
    if (events) return weft__watch_change(r, &lane->watch, events);
    weft__watch_stop(r, &lane->watch);
    return WEFT_OK;
}

static void not_ready(struct watch *watch, int events) {}

/* ---- the port -------------------------------------------------------------------------------- */

/* Everything but the reports that are still due. Also for a lane that was released before. */
static void release_lane(struct tcp_lane *lane) {
    weft__tcp_hot_leave(lane);
    weft__watch_stop(tcp_reactor(lane), &lane->watch);
    weft__timer_stop(tcp_reactor(lane), &lane->deadline);
    weft__tcp_socket_close(lane->watch.fd);
    lane->watch.fd = -1;
    weft__tcp_input_drop(lane);
    weft__tcp_output_clean(lane);
    talloc_free(lane->hands);
    lane->hands = NULL;
    lane->lane.ops = &weft__tcp_ops_ended;
    lane->watch.ready = not_ready;
    lane->todo &= TODO_ACCEPTED;
    weft__tcp_place_end(lane, lane->why ? lane->why : WEFT_ERR_CLOSED);
}

/* The acceptor's handshake is its CHALLENGE, the dialer's its HELLO. Both were decoded before. */
static uint64_t handshaken_by(const struct tcp_hands *hands, bool dialed) {
    struct tcp_handshake g = {0};
    size_t size;
    weft_status_t st =
        dialed ? weft__tcp_handshake_decode(hands->challenge, TCP_CHALLENGE_SIZE, &g, &size)
               : weft__tcp_handshake_decode(hands->hello, TCP_HELLO_SIZE, &g, &size);
    return st == WEFT_OK ? g.worker : 0;
}

static void open_lane(struct tcp_lane *lane, unsigned notify) {
    lane->peer_id = handshaken_by(lane->hands, notify == TODO_UP);
    talloc_free(lane->hands);
    lane->hands = NULL;
    lane->lane.ops = &weft__tcp_ops_open;
    weft__tcp_alive_open(lane);
    weft__tcp_input_open(lane);
    weft__tcp_lane_todo(lane, notify);
}

static void send_goodbye(struct tcp_lane *lane) {
    lane->lane.ops = &weft__tcp_ops_ended;
    weft__tcp_input_discard(lane);
    weft__tcp_output_goodbye(lane);
}

static void write_ready(struct watch *watch, int events) {
    if (events & WATCH_WRITE) weft__tcp_output_unblock(tcp_lane_of_watch(watch));
}

static void stop_reading(struct tcp_lane *lane) {
    weft__tcp_hot_leave(lane);
    lane->watch.ready = write_ready;
    if (weft__tcp_lane_watch(lane, lane->watch.events & WATCH_WRITE) < 0)
        weft__tcp_lane_todo(lane, TODO_BREAK);
}

static void deadline_passed(struct timer *timer);

static void arm_close(struct tcp_lane *lane) {
    struct reactor *r = tcp_reactor(lane);
    lane->deadline.fire = deadline_passed;
    uint64_t ns = weft__setting_u64(weft__tcp_context(lane), SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
    if (weft__timer_start(r, &lane->deadline, weft__now(r) + ns) == WEFT_OK) return;
    /* a close that nothing bounds is worse than none */
    weft__tcp_lane_why(lane, WEFT_ERR_NO_MEMORY);
    weft__tcp_lane_todo(lane, TODO_BREAK);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct tcp_lane *lane = lane_of(m);
    switch ((enum tcp_conn_effect)effect) {
    case TCP_CONN_FX_DIAL: weft__tcp_dial(lane); break;
    case TCP_CONN_FX_SEND_HELLO: weft__tcp_send_hello(lane); break;
    case TCP_CONN_FX_SEND_CHALLENGE: weft__tcp_send_challenge(lane); break;
    case TCP_CONN_FX_SEND_PROOF: weft__tcp_send_proof(lane); break;
    case TCP_CONN_FX_SEND_GOODBYE: send_goodbye(lane); break;
    case TCP_CONN_FX_PART: weft__tcp_output_part(lane); break;
    case TCP_CONN_FX_SEND_END: shutdown(lane->watch.fd, SHUT_WR); break;
    case TCP_CONN_FX_STOP_READING: stop_reading(lane); break;
    case TCP_CONN_FX_ARM_CLOSE: arm_close(lane); break;
    case TCP_CONN_FX_DISARM: weft__timer_stop(tcp_reactor(lane), &lane->deadline); break;
    case TCP_CONN_FX_NOTIFY_UP: open_lane(lane, TODO_UP); break;
    case TCP_CONN_FX_NOTIFY_ACCEPTED: open_lane(lane, TODO_ACCEPTED); break;
    case TCP_CONN_FX_NOTIFY_DOWN: weft__tcp_lane_todo(lane, TODO_DOWN); break;
    case TCP_CONN_FX_NOTIFY_CLOSED: weft__tcp_lane_todo(lane, TODO_CLOSED); break;
    case TCP_CONN_FX_RELEASE: release_lane(lane); break;
    case TCP_CONN_N_EFFECTS: break;
    }
}

/* The machine stands where it stood; the connection ends by the job, since we may be inside of
 * anything. */
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb verb) {
    struct tcp_lane *lane = lane_of(m);
    const char *sent = weft__tcp_conn_machine.event_name[event];
    weft__tcp_lane_why(lane, verb == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL);
    weft__log_limited(weft__tcp_context(lane), verb == FSM_VIOL ? WEFT_LOG_WARN : WEFT_LOG_ERROR,
                      "tcp", "connection %u: protocol violation or defect: %s is not allowed now",
                      m->id, sent);
    weft__count(tcp_reactor(lane))->violations += verb == FSM_VIOL;
    lane->watch.ready = not_ready;
    weft__tcp_input_drop(lane);
    weft__tcp_lane_todo(lane, TODO_BREAK);
}

static const struct fsm_port port = {&weft__tcp_conn_machine, on_effect, on_fail};

void weft__tcp_lane_bad(struct tcp_lane *lane, weft_status_t why, const char *what) {
    char name[TCP_NAME_ROOM];
    weft__tcp_sockaddr_text(&lane->peer, name, sizeof name);
    weft__log_limited(weft__tcp_context(lane), WEFT_LOG_WARN, "tcp", "%s: %s (%s)", name, what,
                      weft_status_name(why));
    weft__count(tcp_reactor(lane))->violations++;
    weft__tcp_lane_note(lane, what, 0);
    weft__tcp_lane_why(lane, why);
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_BAD);
}

/* ---- the deadline ---------------------------------------------------------------------------- */

static weft_status_t arm_lane(struct tcp_lane *lane, bool acceptor) {
    struct reactor *r = tcp_reactor(lane);
    enum setting which = acceptor ? SETTING_TCP_HANDSHAKE_TIMEOUT : SETTING_CONNECT_TIMEOUT;
    return weft__timer_start(r, &lane->deadline,
                             weft__now(r) +
                                 weft__setting_u64(weft__tcp_context(lane), which) * NS_PER_MS);
}

static void log_cut(const struct tcp_lane *lane) {
    char name[TCP_NAME_ROOM];
    if (!lane->listener) return;
    weft__tcp_sockaddr_text(&lane->peer, name, sizeof name);
    weft__log_limited(
        weft__tcp_context(lane), WEFT_LOG_WARN, "tcp",
        "%s: connection to %s closed: no proof of the key within %llu ms (tcp.handshake_timeout)",
        name, lane->listener->uri,
        (unsigned long long)weft__setting_u64(weft__tcp_context(lane),
                                              SETTING_TCP_HANDSHAKE_TIMEOUT));
}

/* This side may have been late itself: it reads what has arrived first, and extends the deadline
 * once if there was anything and the handshake goes on, or begins again. */
static void deadline_passed(struct timer *timer) {
    struct tcp_lane *lane = container_of(timer, struct tcp_lane, deadline);
    struct fsm before = lane->conn.fsm;
    if (lane->watch.ready == weft__tcp_handshake_ready)
        weft__tcp_handshake_ready(&lane->watch, WATCH_READ);
    if (fsm_has_stayed(&lane->conn.fsm, &before)) {
        weft__tcp_lane_note(lane, "the handshake was not done in its time (connect.timeout)", 0);
        weft__tcp_lane_why(lane, WEFT_ERR_TIMED_OUT);
        log_cut(lane);
        weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_TIMEOUT);
    } else if (lane->hands && arm_lane(lane, lane->listener != NULL) < 0) {
        weft__tcp_lane_todo(lane, TODO_BREAK);
    }
}

/* ---- notifications of the owner -------------------------------------------------------------- */

static bool take_todo(struct tcp_lane *lane, unsigned what) {
    bool was = lane->todo & what;
    lane->todo &= (uint16_t)~what;
    return was;
}

static void hand_over(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    void *arg = lane->listener->arg;
    TAILQ_REMOVE(&iface->handshake, lane, of_iface);
    iface->n_handshake--;
    TAILQ_INSERT_TAIL(&iface->lanes, lane, of_iface);
    lane->listener = NULL;
    iface->iface.up->accepted(&lane->lane, arg);
}

static void free_lane(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    bool handshake = lane->listener != NULL;
    TAILQ_REMOVE(handshake ? &iface->handshake : &iface->lanes, lane, of_iface);
    iface->n_handshake -= handshake;
    weft__job_drop(iface->iface.reactor, &lane->job);
    talloc_free(lane->hands);
    lane->hands = NULL;
    weft__slab_free_later(&iface->lane_slab, lane);
}

/* The lane is released: the owner, if it has one, gets `closed`, its last callback. */
static void finish_lane(struct tcp_lane *lane) {
    bool known = lane->listener == NULL;
    weft__tcp_place_report(lane);
    weft__tcp_place_forget(lane);
    weft__tcp_output_notify(lane, lane->why ? lane->why : WEFT_ERR_CLOSED);
    if (known) lane->lane.iface->up->closed(&lane->lane);
    free_lane(lane);
}

/* What the peer sent before it went is still in the socket. */
static void receive_rest(struct tcp_lane *lane) {
    (void)weft__tcp_input_pause(&lane->lane, false);
    for (int i = 0; i < LAST_READS && lane->watch.ready == weft__tcp_input_ready; i++)
        if (weft__tcp_input_read(lane, UINT_MAX) == 0) return;
}

static void lane_job(struct job *job) {
    struct tcp_lane *lane = container_of(job, struct tcp_lane, job);
    const struct iface_up *up = lane->lane.iface->up;
    if (take_todo(lane, TODO_REDIAL)) weft__tcp_dial_failed(lane);
    if (take_todo(lane, TODO_ACCEPTED)) hand_over(lane);
    if (take_todo(lane, TODO_UP)) {
        up->up(&lane->lane);
        weft__tcp_output_retry(lane);
    }
    if (take_todo(lane, TODO_READ)) lane->watch.ready(&lane->watch, WATCH_READ);
    if (lane->todo & TODO_BREAK) receive_rest(lane);
    if (take_todo(lane, TODO_BREAK)) {
        if (lane->why == WEFT_OK)
            weft__tcp_lane_note(lane, "the connection broke while data was sent", 0);
        weft__tcp_lane_why(lane, WEFT_ERR_PEER_FAILED);
        weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_BROKEN);
    }
    if (take_todo(lane, TODO_PLACED)) weft__tcp_place_report(lane);
    if (take_todo(lane, TODO_WRITTEN)) weft__tcp_output_turn(lane);
    if (lane->todo & TODO_DOWN) weft__tcp_output_notify(lane, lane->why);
    if (take_todo(lane, TODO_DOWN)) {
        pending_queue_init(&lane->pending);
        up->down(&lane->lane, cause_of(lane));
    }
    if (take_todo(lane, TODO_CLOSED)) finish_lane(lane);
}

/* ---- birth and death ------------------------------------------------------------------------- */

weft_status_t weft__tcp_lane_new(struct tcp_iface *iface, bool acceptor, struct tcp_lane **lane_p) {
    struct tcp_lane *lane = weft__slab_take(&iface->lane_slab);
    struct tcp_hands *hands = lane ? weft__new(iface, struct tcp_hands) : NULL;
    if (!hands) {
        if (lane) weft__slab_put(&iface->lane_slab, lane);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a connection");
    }
    lane->lane = (struct lane){.ops = &weft__tcp_ops_early, .iface = &iface->iface};
    lane->watch.fd = -1;
    lane->in.hot = -1;
    lane->hands = hands;
    lane->watch.ready = not_ready;
    lane->job.run = lane_job;
    lane->deadline.fire = deadline_passed;
    pending_queue_init(&lane->pending);
    fsm_init(&lane->conn.fsm, &port, acceptor ? TCP_CONN_HANDSHAKE : TCP_CONN_DIAL,
             ++iface->next_id);
    weft_status_t st = arm_lane(lane, acceptor);
    if (st < 0) {
        talloc_free(hands);
        weft__slab_put(&iface->lane_slab, lane);
        return st;
    }
    TAILQ_INSERT_TAIL(acceptor ? &iface->handshake : &iface->lanes, lane, of_iface);
    iface->n_handshake += acceptor;
    *lane_p = lane;
    return WEFT_OK;
}

void weft__tcp_lane_abandon(struct tcp_lane *lane) {
    weft__tcp_lane_why(lane, WEFT_ERR_CLOSED);
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_ABORT);
    finish_lane(lane);
}

void weft__tcp_lane_close(struct lane *l, bool flush) {
    struct tcp_lane *lane = tcp_lane(l);
    pending_queue_init(&lane->pending);
    (void)weft__tcp_input_pause(l, false); /* the peer's goodbye is waited for */
    if (!flush) weft__tcp_lane_why(lane, WEFT_ERR_CLOSED);
    weft__fsm_step(&lane->conn.fsm, flush ? TCP_CONN_EV_FLUSH : TCP_CONN_EV_ABORT);
}

uint64_t weft__tcp_lane_peer_id(const struct lane *l) {
    return ((const struct tcp_lane *)l)->peer_id;
}

void weft__tcp_lane_describe(struct lane *l, char *buf, size_t size) {
    weft__tcp_sockaddr_text(&tcp_lane(l)->peer, buf, size);
}
