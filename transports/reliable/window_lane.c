/* The life of a lane with a window: its machines, its timer, and its reports to its owner. */
#include "window_local.h"

#include <base/compiler.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define OF_CONN(m)  container_of(m, struct window_lane, conn)
#define OF_WIN(m)   container_of(m, struct window_lane, win)
#define OF_JOB(j)   container_of(j, struct window_lane, job)
#define OF_TIMER(t) container_of(t, struct window_lane, timer)

/* ---- what it asks for ------------------------------------------------------------------------ */

static uint64_t now(const struct window_lane *wl) {
    return weft__now(window_reactor(wl));
}

/* Words go with the next settling, and before the raw lane closes. */
static void send_msg(struct window_lane *wl, enum window_kind kind) {
    wl->words |= 1u << kind;
    weft__job_post(window_reactor(wl), &wl->job);
}

static void arm_window(struct window_lane *wl) {
    wl->word_since = now(wl);
    wl->word_rto = WINDOW_RTO_FIRST;
    wl->word_at = wl->word_since + wl->word_rto;
    weft__window_expect(wl, wl->word_at);
}

static void back_off(struct window_lane *wl) {
    wl->word_rto = wl->word_rto > WINDOW_RTO_MAX / 2 ? WINDOW_RTO_MAX : 2 * wl->word_rto;
    wl->word_at = now(wl) + wl->word_rto;
    weft__window_expect(wl, wl->word_at);
}

static void arm_close(struct window_lane *wl) {
    const weft_context_t *context = weft__reactor_context(window_reactor(wl));
    wl->close_at = now(wl) + weft__setting_u64(context, SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
    weft__window_expect(wl, wl->close_at);
}

/* When the peer is to be asked, if nothing came from it until then: a little later, so that
 * many lanes that are quiet wake the worker together. */
static void keep_alive(struct window_lane *wl) {
    uint64_t ns = window_iface(wl)->keep_alive, step = ns / WINDOW_KEEP_STEPS + 1;
    if (ns == 0 || wl->watched) return;
    wl->received = false;
    wl->keep_at = ((now(wl) + ns) / step + 1) * step;
    weft__window_expect(wl, wl->keep_at);
}

static void start_window(struct window_lane *wl) {
    weft__window_init(&wl->win, &weft__window_port, wl->conn.fsm.id, wl->conn.my_tag,
                      wl->conn.peer_tag);
    wl->lane.ops = &weft__window_ops_up;
    wl->deliver = weft__window_deliver;
    keep_alive(wl);
}

static void discard(struct window_lane *wl) {
    wl->deliver = weft__window_discard;
    weft__window_unpause(wl);
    wl->lane.ops = &weft__window_ops_closed;
    weft__window_purge(wl);
}

static void stop_window(struct window_lane *wl, weft_status_t status) {
    weft__fsm_step(&wl->win.fsm, WINDOW_EV_STOP);
    weft__window_drop(wl, status);
    wl->due &=
        ~(1u << CONN_FX_NOTIFY_UP | 1u << CONN_FX_NOTIFY_ACCEPTED | 1u << CONN_FX_NOTIFY_DOWN);
    weft__job_post(window_reactor(wl), &wl->job);
}

static void close_raw(struct window_lane *wl) {
    weft__window_pump(wl); /* the last words */
    wl->words = 0;
    wl->close_at = WINDOW_NEVER;
    if (wl->blocked) wl->raw->ops->pending_remove(wl->raw, &wl->raw_pending);
    wl->blocked = false;
    wl->raw->ops->close(wl->raw, false);
}

static void add_due(struct window_lane *wl, enum conn_effect effect) {
    wl->due |= 1u << effect;
    weft__job_post(window_reactor(wl), &wl->job);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct window_lane *wl = OF_CONN(m);
    switch ((enum conn_effect)effect) {
    case CONN_FX_SEND_HELLO: send_msg(wl, WINDOW_HELLO); break;
    case CONN_FX_SEND_WELCOME: send_msg(wl, WINDOW_WELCOME); break;
    case CONN_FX_SEND_ACK: send_msg(wl, WINDOW_ACK); break;
    case CONN_FX_SEND_RST: send_msg(wl, WINDOW_RST); break;
    case CONN_FX_SEND_ECHO: send_msg(wl, WINDOW_ECHO); break;
    case CONN_FX_SEND_FIN: weft__window_queue_fin(wl); break;
    case CONN_FX_ARM: arm_window(wl); break;
    case CONN_FX_BACK_OFF: back_off(wl); break;
    case CONN_FX_DISARM: wl->word_at = WINDOW_NEVER; break;
    case CONN_FX_ARM_CLOSE: arm_close(wl); break;
    case CONN_FX_START: start_window(wl); break;
    case CONN_FX_STOP: stop_window(wl, wl->why); break;
    case CONN_FX_CANCEL: stop_window(wl, WEFT_ERR_CANCELLED); break;
    case CONN_FX_DISCARD: discard(wl); break;
    case CONN_FX_NOTIFY_DOWN:
        wl->lane.ops = &weft__window_ops_down;
        add_due(wl, CONN_FX_NOTIFY_DOWN);
        break;
    case CONN_FX_NOTIFY_UP:
    case CONN_FX_NOTIFY_ACCEPTED:
    case CONN_FX_NOTIFY_CLOSED:
    case CONN_FX_FORGET: add_due(wl, (enum conn_effect)effect); break;
    case CONN_FX_CLOSE_RAW: close_raw(wl); break;
    case CONN_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    weft__log(weft__reactor_context(window_reactor(OF_CONN(m))), WEFT_LOG_ERROR, "window",
              "lane %u: %s in state %s", m->id, m->port->machine->event_name[event],
              fsm_state_name(m));
}

static const struct fsm_port conn_port = {&weft__conn_machine, on_effect, on_fail};

/* Which numbered frames a state listens to. */
static void listen_as(struct window_lane *wl) {
    const struct fsm *m = &wl->conn.fsm;
    wl->take = conn_takes(m)    ? weft__window_take
               : conn_proves(m) ? weft__window_prove
                                : weft__window_ignore;
}

void weft__window_why(struct window_lane *wl, weft_status_t why, const char *cause) {
    size_t size = strlen(cause) + 1;
    talloc_free(wl->cause);
    wl->cause = size > 1 ? weft__alloc(wl, size, "cause") : NULL;
    if (wl->cause) memcpy(wl->cause, cause, size);
    wl->why = why;
}

void weft__window_step(struct window_lane *wl, enum conn_event event) {
    weft__fsm_step(&wl->conn.fsm, event);
    listen_as(wl);
}

/* ---- what the window's machine asks for ------------------------------------------------------ */

static void arm_resend(struct window_lane *wl, bool progress) {
    uint64_t at = now(wl);
    if (progress) {
        wl->progress_at = at;
        window_time_progress(&wl->time);
    }
    wl->resend_at = at + wl->time.backed_off;
    weft__window_expect(wl, wl->resend_at);
}

static void ack_soon(struct window_lane *wl) {
    if (wl->unacked >= WINDOW_ACK_EVERY) return send_msg(wl, WINDOW_ACK);
    if (wl->ack_at != WINDOW_NEVER) return;
    wl->ack_at = now(wl) + WINDOW_ACK_DELAY;
    weft__window_expect(wl, wl->ack_at);
}

static void on_window_effect(struct fsm *m, unsigned effect) {
    struct window_lane *wl = OF_WIN(m);
    switch ((enum window_effect)effect) {
    case WINDOW_FX_SEND:
        wl->to_send |= window_bit(wl->win.out);
        wl->again |= window_bit(wl->win.out);
        break;
    case WINDOW_FX_ASK: send_msg(wl, WINDOW_DATA); break;
    case WINDOW_FX_ARM: arm_resend(wl, true); break;
    case WINDOW_FX_DISARM: wl->resend_at = WINDOW_NEVER; break;
    case WINDOW_FX_BACK_OFF:
        window_time_back_off(&wl->time);
        arm_resend(wl, false);
        break;
    case WINDOW_FX_ACK_SOON: ack_soon(wl); break;
    case WINDOW_FX_ACK_NOW: send_msg(wl, WINDOW_ACK); break;
    case WINDOW_N_EFFECTS: break;
    }
}

static void on_window_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    OF_WIN(m)->violated = true;
}

const struct fsm_port weft__window_port = {&weft__window_machine, on_window_effect, on_window_fail};

/* ---- time ------------------------------------------------------------------------------------ */

void weft__window_expect(struct window_lane *wl, uint64_t at) {
    if (at < weft__timer_at(window_reactor(wl), &wl->timer))
        (void)weft__timer_start(window_reactor(wl), &wl->timer, at);
}

static uint64_t nearest(const struct window_lane *wl) {
    uint64_t at = wl->resend_at < wl->ack_at ? wl->resend_at : wl->ack_at;
    if (wl->word_at < at) at = wl->word_at;
    if (wl->keep_at < at) at = wl->keep_at;
    return wl->close_at < at ? wl->close_at : at;
}

static void give_up(struct window_lane *wl, const char *what) {
    char cause[WINDOW_CAUSE];
    snprintf(cause, sizeof cause, "%s for %.3g s (window.give_up)", what,
             (double)window_iface(wl)->give_up / 1e9);
    weft__window_why(wl, WEFT_ERR_PEER_FAILED, cause);
    weft__window_step(wl, CONN_EV_GIVE_UP);
}

static void resend(struct window_lane *wl, uint64_t at) {
    if (at - wl->progress_at < window_iface(wl)->give_up)
        return weft__fsm_step(&wl->win.fsm, WINDOW_EV_TIMEOUT);
    give_up(wl, "it acknowledged nothing");
}

static void ask_again(struct window_lane *wl, uint64_t at) {
    if (at - wl->word_since < window_iface(wl)->give_up)
        return weft__window_step(wl, CONN_EV_TIMEOUT);
    give_up(wl, "it answered nothing");
}

static void look_after(struct window_lane *wl) {
    bool silent = !wl->received;
    wl->keep_at = WINDOW_NEVER;
    if (window_is_stopped(&wl->win.fsm)) return;
    keep_alive(wl);
    if (silent) weft__fsm_step(&wl->win.fsm, WINDOW_EV_SILENT);
}

/* Nor shall a worker be woken for it. */
void weft__window_watched(struct lane *lane) {
    struct window_lane *wl = (struct window_lane *)lane;
    wl->watched = true;
    wl->keep_at = WINDOW_NEVER;
    /* its place in the heap is kept */
    (void)weft__timer_start(window_reactor(wl), &wl->timer, nearest(wl));
}

/* The timer stands at the earliest time it was ever asked for: if the deadline has moved on
 * since, the timer fires early and is set again. */
static void fire(struct timer *timer) {
    struct window_lane *wl = OF_TIMER(timer);
    uint64_t at = now(wl);
    /* its place in the heap was just left */
    (void)weft__timer_start(window_reactor(wl), timer, WINDOW_NEVER);
    if (wl->ack_at <= at) {
        wl->ack_at = WINDOW_NEVER;
        send_msg(wl, WINDOW_ACK);
    }
    if (wl->resend_at <= at) resend(wl, at);
    if (wl->keep_at <= at) look_after(wl);
    if (wl->word_at <= at) ask_again(wl, at);
    if (wl->close_at <= at) {
        wl->close_at = WINDOW_NEVER;
        weft__window_step(wl, CONN_EV_LATE);
    }
    weft__window_expect(wl, nearest(wl));
    weft__window_settle(wl);
}

/* ---- reports to the owner -------------------------------------------------------------------- */

static bool take_due(struct window_lane *wl, enum conn_effect effect) {
    bool is = wl->due >> effect & 1;
    wl->due &= ~(1u << effect);
    return is;
}

static void note_cause(const struct window_lane *wl) {
    weft__causes_clear();
    if (wl->cause) (void)weft__fail(wl->why, "%s", wl->cause);
}

void weft__window_settle(struct window_lane *wl) {
    const struct iface_up *up = wl->lane.iface->up;
    weft__window_release(wl);
    weft__window_finish(wl);
    if (take_due(wl, CONN_FX_NOTIFY_UP)) up->up(&wl->lane);
    if (take_due(wl, CONN_FX_NOTIFY_ACCEPTED)) up->accepted(&wl->lane, wl->listen_arg);
    if (take_due(wl, CONN_FX_NOTIFY_DOWN)) {
        note_cause(wl);
        up->down(&wl->lane, wl->why);
    }
    weft__window_retry(wl);
    weft__window_pump(wl);
    weft__window_finish(wl);
    bool last_word = take_due(wl, CONN_FX_NOTIFY_CLOSED), forgotten = take_due(wl, CONN_FX_FORGET);
    if (last_word) up->closed(&wl->lane);
    if (last_word || forgotten) weft__window_lane_free(wl);
}

static void run_window(struct job *job) {
    struct window_lane *wl = OF_JOB(job);
    weft__window_go_on(wl);
    weft__window_settle(wl);
}

/* ---- making and closing one ------------------------------------------------------------------ */

struct window_lane *weft__window_lane_new(struct window_iface *iface, struct lane *raw) {
    struct reactor *r = iface->iface.reactor;
    struct window_lane *wl = weft__new(iface, struct window_lane);
    if (!wl) return NULL;
    wl->timer.fire = fire;
    wl->fin = weft__window_message_new(iface, 0);
    if (!wl->fin || weft__timer_start(r, &wl->timer, WINDOW_NEVER) < 0) {
        if (wl->fin) weft__window_message_free(iface, wl->fin);
        talloc_free(wl);
        return NULL;
    }
    wl->lane =
        (struct lane){.ops = &weft__window_ops_idle, .iface = &iface->iface, .scarce = raw->scarce};
    wl->raw = raw;
    raw->owner = wl;
    wl->job.run = run_window;
    wl->last = &wl->first;
    wl->finished_last = &wl->finished;
    pending_queue_init(&wl->pending);
    wl->raw_pending.retry = weft__window_pump_retry;
    wl->resend_at = wl->ack_at = wl->close_at = wl->word_at = wl->keep_at = WINDOW_NEVER;
    window_time_init(&wl->time);
    fsm_init(&wl->conn.fsm, &conn_port, CONN_NEW, ++iface->n_lanes);
    do wl->conn.my_tag = (uint32_t)weft__random(r);
    while (!wl->conn.my_tag);
    weft__window_init(&wl->win, &weft__window_port, wl->conn.fsm.id, wl->conn.my_tag, 0);
    wl->deliver = weft__window_discard;
    listen_as(wl);
    wl->next = iface->lanes;
    wl->link = &iface->lanes;
    if (wl->next) wl->next->link = &wl->next;
    iface->lanes = wl;
    return wl;
}

void weft__window_lane_free(struct window_lane *wl) {
    struct reactor *r = window_reactor(wl);
    *wl->link = wl->next;
    if (wl->next) wl->next->link = wl->link;
    weft__window_release_held(wl);
    if (wl->fin) weft__window_message_free(window_iface(wl), wl->fin);
    weft__timer_stop(r, &wl->timer);
    weft__job_drop(r, &wl->job);
    weft__free_later(r, wl);
}

void weft__window_close(struct lane *lane, bool flush) {
    struct window_lane *wl = (struct window_lane *)lane;
    weft__window_step(wl, flush ? CONN_EV_CLOSE : CONN_EV_ABORT);
    weft__job_post(lane->iface->reactor, &wl->job);
}
