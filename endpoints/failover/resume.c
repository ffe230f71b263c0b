/* The lanes below a link that outlives them: the port of resume.fsm. */
#include <assert.h>
#include <base/counters.h>
#include <inttypes.h>
#include <stdio.h>

#include "peer_process.h"
#include "resume_steps.h"
#include <endpoints/core/cause.h>
#include <endpoints/core/pace.h>
#include <endpoints/core/worker.h>
#include <endpoints/memory/rkey.h>
#include <endpoints/transfer/rails.h>

static struct retain *of_fsm(struct fsm *m) {
    return list_of(m, struct retain, core.fsm);
}

bool weft__retain_is_for(const struct iface *iface) {
    return iface->attr.caps & CAP_INTER_NODE;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static void not_received(struct lane *raw, unsigned id, const void *data, size_t len) {}
static const lane_am_fn nothing_is_received[LANE_AM_IDS] = {[0 ... LANE_AM_IDS - 1] = not_received};

/* The worker waits for its last word. */
static void drop_resume(struct lane *raw) {
    weft__lane_set_link(raw, NULL);
    raw->ops->recv_msg(raw, nothing_is_received);
    raw->ops->close(raw, false);
}

static void drop_lane(struct retain *r) {
    struct lane *raw = r->raw;
    if (!raw) return;
    weft__timer_stop(retain_reactor(r), &r->due);
    weft__retain_end_run(r);
    r->lane.ops = &weft__retain_ops_shut;
    r->raw = NULL;
    /* The queue of a lane holds no entry of a link that has let go of it. */
    if (r->waits) raw->ops->pending_remove(raw, &r->raw_pending);
    r->waits = false;
    r->asked = false;
    r->link->worker->n_lanes++; /* the link's own place is for the next */
    drop_resume(raw);
    weft__retain_place_lost(r);
}

static void drop_fresh(struct retain *r) {
    struct lane *fresh = r->fresh;
    weft__timer_stop(retain_reactor(r), &r->due);
    r->fresh = NULL;
    r->missed = false;
    if (fresh) drop_resume(fresh);
}

/* On a lane without a handshake yet, anything else breaks it. */
static void sent_too_early(struct lane *fresh, unsigned id, const void *data, size_t len) {
    struct link *link = weft__lane_link(fresh);
    if (!link) return;
    link->more->retain->missed = true;
    retain_later(link->more->retain);
}
static const lane_am_fn handshake_is_received[LANE_AM_IDS] = {
    [0 ... WIRE_HELLO - 1] = sent_too_early,
    [WIRE_HELLO] = weft__retain_lane_shaken,
    [WIRE_HELLO + 1 ... LANE_AM_IDS - 1] = sent_too_early};

static void take_fresh(struct retain *r, struct lane *fresh, const lane_am_fn *receives) {
    weft__lane_set_link(fresh, r->link);
    fresh->ops->recv_msg(fresh, receives);
    r->link->worker->n_lanes++;
    r->fresh = fresh;
}

/* The accepted link ends here; its lane goes on. */
static void take_accepted(struct retain *r) {
    struct link *accepted = r->accepted;
    struct lane *lane = accepted->lane;
    r->accepted = NULL;
    weft__fsm_step(&accepted->core.fsm, LINK_EV_GIVEN);
    take_fresh(r, lane, nothing_is_received);
}

static weft_status_t dial_lane(struct retain *r, struct lane **lane_p) {
    const struct iface_ops *ops = r->iface->ops;
    if (r->link->uri) return ops->connect_uri(r->iface, strstr(r->link->uri, "://") + 3, lane_p);
    return ops->connect(r->iface, r->address, r->address_len, lane_p);
}

static void again(struct retain *r);
static void due(struct timer *timer);

static void dial_resume(struct retain *r) {
    struct lane *fresh;
    weft_status_t st = dial_lane(r, &fresh);
    if (st == WEFT_OK) take_fresh(r, fresh, handshake_is_received);
    uint64_t until = weft__now(retain_reactor(r)) + RETAIN_TRY;
    if (st == WEFT_OK && weft__timer_start(retain_reactor(r), &r->due, until) == WEFT_OK) return;
    r->missed = true;
    retain_later(r);
}

/* The first lane, once more: the link sends its handshake over it as over any that it dialed. */
static void dial_again(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, due);
    struct lane *lane;
    timer->fire = due;
    weft_status_t st = dial_lane(r, &lane);
    if (st < 0) {
        weft__link_lose(r->link, weft__fail_in(st, "dialing again"));
        return;
    }
    r->raw = lane;
    r->lane.iface = lane->iface;
    r->lane.ops = &weft__retain_ops_open;
    weft__retain_recv(r, lane);
}

void weft__retain_again(struct link *link) {
    struct retain *r = link->more->retain;
    drop_lane(r);
    r->due.fire = dial_again;
    again(r);
}

static void log_resumed(const struct link *link) {
    char peer[PEER_ROOM];
    if (!weft__log_wants(link->worker->context, WEFT_LOG_INFO)) return;
    weft__peer_text(link, peer);
    weft__log_limited(link->worker->context, WEFT_LOG_INFO, "endpoints",
                      WORKER_TEXT ": has a new lane to %s", WORKER_ARGS(link->worker), peer);
}

/* Behind the handshake, which is the last message of the lane so far, comes what is sent again. */
static void adopt_resume(struct retain *r) {
    struct link *link = r->link;
    weft__timer_stop(retain_reactor(r), &r->due);
    r->raw = r->fresh;
    r->fresh = NULL;
    link->worker->n_lanes--;
    weft__retain_recv(r, r->raw);
    weft__watch_process_lane(link, r->raw);
    r->lane.iface = r->raw->iface;
    r->refused = 0;
    r->adopted_at = weft__now(retain_reactor(r));
    r->had_delivered = r->core.delivered;
    r->had_acked = r->core.acked;
    r->lost = WEFT_OK;
    r->missed = r->asked = r->raw_full = false;
    r->ack_due = r->ask_due = false; /* the handshake carries both */
    r->unacked_cost = r->notify_at = 0;
    assert(!r->log.last || !r->log.last->run.limit); /* the lane before it took all, or lost it */
    weft__retain_rewind(r);
    link->worker->count->lanes_resumed++;
    weft__cause_drop(r->cause);
    r->cause = NULL;
    log_resumed(link);
}

/* ---- handshake ------------------------------------------------------------------------------- */

static bool handshake_resume(struct retain *r, struct lane *lane) {
    struct wire_message m;
    struct wire_hello hello = {.version = WIRE_VERSION,
                               .flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME,
                               .worker = r->link->worker->id,
                               .delivered = r->core.delivered,
                               .epoch = r->core.epoch};
    memcpy(hello.ticket, r->ticket, sizeof hello.ticket);
    weft__wire_hello(&m, hello);
    return weft__lane_send_ctrl(lane, &m) == WEFT_OK;
}

static void send_resume(struct retain *r) {
    if (handshake_resume(r, r->fresh)) return;
    r->missed = true;
    retain_later(r);
}
static void send_resumed(struct retain *r) {
    if (!handshake_resume(r, r->raw)) weft__retain_broke(r, WEFT_ERR_PEER_FAILED);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void log_lane_lost(const struct retain *r, uint64_t ms) {
    const struct weft_worker *worker = r->link->worker;
    char peer[PEER_ROOM];
    weft__peer_text(r->link, peer);
    weft__log_limited(worker->context, WEFT_LOG_WARN, "endpoints",
                      WORKER_TEXT ": waits %u ms at most for another lane; lost its lane to %s",
                      WORKER_ARGS(worker), (unsigned)ms, r->cause ? r->cause->text : peer);
}

/* A handshake alone proves nothing: its peer may end each lane behind it. */
static bool was_of_use(const struct retain *r) {
    return r->core.delivered != r->had_delivered || r->core.acked != r->had_acked ||
           weft__now(retain_reactor(r)) - r->adopted_at >= RETAIN_LASTED;
}

static void arm_resume(struct retain *r) {
    struct reactor *reactor = retain_reactor(r);
    if (was_of_use(r)) r->back_off = r->useless_since = 0;
    if (r->useless_since == 0) r->useless_since = weft__now(reactor);
    uint64_t ms = weft__setting_u64(r->link->worker->context, SETTING_FAILOVER_TIMEOUT);
    r->link->worker->count->lanes_lost++;
    log_lane_lost(r, ms);
    /* A worker that polls a hot lane rarely reads the clock or accepts connections. */
    weft__reactor_poll_soon(reactor);
    bool lives = weft__process_watch(reactor, &r->process);
    if (lives &&
        weft__timer_start(reactor, &r->give_up, r->useless_since + ms * NS_PER_MS) == WEFT_OK)
        return;
    /* rather an end than one that nothing bounds */
    r->fails = lives ? WEFT_ERR_NO_MEMORY : WEFT_ERR_PEER_FAILED;
    retain_later(r);
}

static void disarm(struct retain *r) {
    weft__timer_stop(retain_reactor(r), &r->give_up);
    weft__process_unwatch(retain_reactor(r), &r->process);
}

static void again(struct retain *r) {
    struct reactor *reactor = retain_reactor(r);
    if (!r->link->dialed) return;
    uint64_t wait = weft__pace_next(&r->back_off);
    if (weft__timer_start(reactor, &r->due, weft__now(reactor) + wait) == WEFT_OK) return;
    r->fails = WEFT_ERR_NO_MEMORY;
    retain_later(r);
}

static void due(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, due);
    if (resume_is_steady(&r->core.fsm)) {
        weft__retain_pump(r);
        return;
    }
    step_resume(r, resume_is_adrift(&r->core.fsm) ? RESUME_EV_DUE : RESUME_EV_MISSED);
}

static void give_up_due(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, give_up);
    r->fails = WEFT_ERR_PEER_FAILED;
    step_resume(r, RESUME_EV_GIVE_UP);
    retain_later(r);
}

/* The peer's process has ended: it will not connect again. */
static void peer_ended(struct process *process) {
    struct retain *r = list_of(process, struct retain, process);
    give_up_due(&r->give_up);
}

static void lazy_over(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, lazy);
    r->ack_due = true;
    weft__retain_send_acks(r);
}

/* ---- the port -------------------------------------------------------------------------------- */

/* Behind the rest of this turn, as other acknowledgements. */
static void confirm(struct retain *r) {
    r->ack_due = true;
    retain_later(r);
}

static void fail_users(struct retain *r) {
    if (r->fails == WEFT_OK) r->fails = WEFT_ERR_PEER_FAILED;
    retain_later(r);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct retain *r = of_fsm(m);
    switch ((enum resume_effect)effect) {
    case RESUME_FX_TRANSMIT: break; /* a message steps no machine */
    case RESUME_FX_RELEASE: weft__retain_let_go(r); break;
    case RESUME_FX_DROP_LANE: drop_lane(r); break;
    case RESUME_FX_DROP_TRY: drop_fresh(r); break;
    case RESUME_FX_ARM: arm_resume(r); break;
    case RESUME_FX_DISARM: disarm(r); break;
    case RESUME_FX_AGAIN: again(r); break;
    case RESUME_FX_DIAL: dial_resume(r); break;
    case RESUME_FX_SEND_RESUME: send_resume(r); break;
    case RESUME_FX_SEND_RESUMED: send_resumed(r); break;
    case RESUME_FX_TAKE: take_accepted(r); break;
    case RESUME_FX_ADOPT: adopt_resume(r); break;
    case RESUME_FX_CONFIRM: confirm(r); break;
    case RESUME_FX_RESEND: break; /* by the log, as the lane takes them: resend() in retain.c */
    case RESUME_FX_FAIL: fail_users(r); break;
    case RESUME_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct retain *r = of_fsm(m);
    if (why != FSM_VIOL)
        weft__log(r->link->worker->context, WEFT_LOG_ERROR, "endpoints", "resume: %s in %s",
                  weft__resume_machine.event_name[event], fsm_state_name(m));
    else
        weft__count(retain_reactor(r))->violations++;
    if (r->fails == WEFT_OK) r->fails = why == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL;
    retain_later(r);
}

static const struct fsm_port port = {&weft__resume_machine, on_effect, on_fail};

/* ---- the end --------------------------------------------------------------------------------- */

/* No lane is left, and no lane holds memory of ours: the link gets its last event. */
void weft__retain_finish(struct retain *r) {
    weft_status_t st = r->link->status < 0 ? r->link->status : WEFT_ERR_CLOSED;
    if (!weft__retain_let_all_go(r, st)) return; /* the exposures that come back free it */
    r->over = false;
    weft__link_lane_closed(&r->lane);
}

void weft__retain_close_now(struct retain *r, bool flush) {
    r->closing = false;
    weft__timer_stop(retain_reactor(r), &r->close_at);
    weft__timer_stop(retain_reactor(r), &r->due); /* of a first lane */
    step_resume(r, RESUME_EV_GIVE_UP);
    r->lane.ops = &weft__retain_ops_shut;
    r->dead = true;
    if (r->raw) {
        r->raw->ops->close(r->raw, flush);
        return;
    }
    r->over = true;
    retain_later(r);
}

static void close_over(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, close_at);
    weft__retain_close_now(r, false);
}

/* In good order: when the peer has all, within the time that a close has. */
void weft__retain_close(struct lane *lane, bool flush) {
    struct retain *r = (struct retain *)lane;
    struct reactor *reactor = retain_reactor(r);
    if (r->dead) {
        if (r->raw && !flush) r->raw->ops->close(r->raw, false);
        return;
    }
    uint64_t ms = weft__setting_u64(r->link->worker->context, SETTING_CLOSE_TIMEOUT);
    bool waits =
        flush && !resume_is_over(&r->core.fsm) && !retain_log_empty(&r->log) &&
        weft__timer_start(reactor, &r->close_at, weft__now(reactor) + ms * NS_PER_MS) == WEFT_OK;
    if (!waits) {
        weft__retain_close_now(r, flush);
        return;
    }
    r->closing = true;
    weft__retain_request(r);
}

void weft__retain_emptied(struct retain *r) {
    if (r->closing) retain_later(r);
}

void weft__retain_broke(struct retain *r, weft_status_t status) {
    r->lost = status;
    retain_later(r);
}

/* The lane is good. If this side closed it, the peer would take that for the end of the link. */
void weft__retain_awaits_memory(struct retain *r, weft_status_t status) {
    struct reactor *reactor = retain_reactor(r);
    weft_context_t *context = r->link->worker->context;
    uint64_t now = weft__now(reactor), wait = weft__pace_next(&r->memory_wait),
             most = weft__setting_u64(context, SETTING_FAILOVER_TIMEOUT) * NS_PER_MS;
    if (!r->cause)
        r->cause =
            weft__cause_new(r->link->worker, status, "no memory to send again what the peer lacks");
    bool bounded = weft__timer_running(&r->give_up) ||
                   weft__timer_start(reactor, &r->give_up, now + most) == WEFT_OK;
    if (bounded && weft__timer_start(reactor, &r->due, now + wait) == WEFT_OK) return;
    r->fails = status;
    retain_later(r);
}

void weft__retain_sent_again(struct retain *r) {
    weft__timer_stop(retain_reactor(r), &r->due);
    weft__timer_stop(retain_reactor(r), &r->give_up);
    weft__cause_drop(r->cause);
    r->cause = NULL;
    r->memory_wait = 0;
}

/* What ended the wait for another lane, and what ended the lane before. */
static weft_status_t why_given_up(const struct retain *r) {
    uint64_t ms = weft__setting_u64(r->link->worker->context, SETTING_FAILOVER_TIMEOUT);
    const char *lost = r->cause ? r->cause->text : "its lane was lost";
    switch (r->fails) {
    case WEFT_ERR_PEER_FAILED:
        return weft__fail(
            r->fails,
            "no new lane within %u ms (failover.timeout), or its process ended; before that: %s",
            (unsigned)ms, lost);
    case WEFT_ERR_PROTOCOL:
        return weft__fail(r->fails, "invalid handshake of the peer after a lost lane");
    default: return weft__fail(r->fails, "no new lane; before that: %s", lost);
    }
}

static void job(struct job *j) {
    struct retain *r = list_of(j, struct retain, job);
    if (r->dead) {
        if (r->over) weft__retain_finish(r);
        return;
    }
    if (r->lost && resume_is_steady(&r->core.fsm)) step_resume(r, RESUME_EV_LOST);
    r->lost = WEFT_OK;
    if (r->missed) step_resume(r, RESUME_EV_MISSED);
    if (r->closing && (r->fails || retain_log_empty(&r->log)))
        weft__retain_close_now(r, !r->fails);
    else if (r->fails)
        weft__link_lose(r->link, why_given_up(r));
    else
        weft__retain_send_acks(r);
}

/* ---- birth and death ------------------------------------------------------------------------- */

static void init_retain(struct retain *r, struct link *link) {
    r->link = link;
    r->raw = link->lane;
    r->iface = link->lane->iface;
    r->up = r->iface->up->am;
    r->lane = (struct lane){.ops = &weft__retain_ops_open, .iface = r->iface};
    weft__lane_set_link(&r->lane, link);
    r->runs = r->iface->attr.runs;
    weft__retain_log_init(&r->log, r,
                          weft__setting_u64(link->worker->context, SETTING_FAILOVER_RETAIN_BYTES));
    r->log.came_home = weft__retain_came_home;
    pending_queue_init(&r->queue);
    r->job.run = job;
    r->due.fire = due;
    r->give_up.fire = give_up_due;
    r->lazy.fire = lazy_over;
    r->close_at.fire = close_over;
    r->process.ended = peer_ended;
    fsm_init(&r->core.fsm, &port, RESUME_STEADY, weft__link_id(link));
}

/* The accepting side makes the ticket, and sends it in its answer; the dialer keeps that. */
static void make_ticket(struct retain *r, struct weft_worker *worker) {
    for (unsigned i = 0; i < WIRE_TICKET; i += 8) {
        uint64_t word = weft__random(worker->reactor);
        memcpy(r->ticket + i, &word, 8);
    }
}

weft_status_t weft__retain_begin(struct link *link, const void *address, size_t len) {
    struct weft_worker *worker = link->worker;
    struct retain *r = weft__link_ext(link) ? weft__new(worker, struct retain) : NULL;
    if (r && address) r->address = weft__alloc(r, len, "address");
    if (!r || (address && !r->address)) {
        talloc_free(r);
        return WEFT_ERR_NO_MEMORY;
    }
    if (address) memcpy(r->address, address, len);
    r->address_len = len;
    init_retain(r, link);
    if (!link->dialed) make_ticket(r, worker);
    link->more->retain = r;
    link->lanes[0] = link->lane = &r->lane;
    if (link->tx == r->raw) link->tx = &r->lane;
    weft__retain_recv(r, r->raw);
    return WEFT_OK;
}

void weft__retain_free(struct link *link) {
    struct retain *r = link->more->retain;
    if (!r) return;
    struct reactor *reactor = retain_reactor(r);
    drop_fresh(r); /* no lane may lead to a link that is gone */
    struct timer *timers[] = {&r->lazy, &r->due, &r->give_up, &r->close_at};
    for (unsigned i = 0; i < sizeof timers / sizeof *timers; i++)
        weft__timer_stop(reactor, timers[i]);
    weft__job_drop(reactor, &r->job);
    weft__process_unwatch(reactor, &r->process);
    weft__cause_drop(r->cause);
    link->more->retain = NULL;
    weft__free_later(reactor, r);
}

/* Its lanes report to their owner what becomes of them. */
void weft__retain_follow(struct link *link, struct lane *lane, struct link *next) {
    struct retain *r = link->more->retain;
    if (!r || lane != &r->lane) return;
    link->more->retain = NULL;
    next->more->retain = r;
    r->link = next;
    if (r->raw) weft__lane_set_link(r->raw, next);
    if (r->fresh) weft__lane_set_link(r->fresh, next);
}
