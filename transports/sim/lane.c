/* The life of a simulated lane: its machine, and its reports to its owner. */
#include "local.h"
#include <stddef.h>

#define OF_FSM(m)    container_of(m, struct sim_lane, fsm)
#define OF_JOB(j)    container_of(j, struct sim_lane, job)
#define OF_RETRY(t)  container_of(t, struct sim_lane, retry)
#define OF_LINGER(t) container_of(t, struct sim_lane, linger)

/* ---- the machine ----------------------------------------------------------------------------- */

#define FSM_NAME   sim_lane
#define FSM_PREFIX SIM_LANE
#include <fsm/define.h>

static void sim_lane_act_open(struct fsm *m) {
    fsm_effect(m, SIM_LANE_FX_OPEN);
}

static void sim_lane_act_broke(struct fsm *m) {
    fsm_effect(m, SIM_LANE_FX_BREAK);
}

/* What was accepted goes first. */
static void sim_lane_act_leave(struct fsm *m) {
    fsm_effect(m, SIM_LANE_FX_PURGE);
    fsm_effect(m, SIM_LANE_FX_SEND_FIN);
}

static void sim_lane_act_cut(struct fsm *m) {
    fsm_effect(m, SIM_LANE_FX_PURGE);
    fsm_effect(m, SIM_LANE_FX_CANCEL);
    fsm_effect(m, SIM_LANE_FX_SEND_FIN);
}

/* A FIN that is already queued goes with the rest; the peer's lane breaks when the new one
 * comes. */
static void sim_lane_act_hurry(struct fsm *m) {
    fsm_effect(m, SIM_LANE_FX_CANCEL);
    fsm_effect(m, SIM_LANE_FX_SEND_FIN);
}

static void sim_lane_act_end(struct fsm *m) {
    fsm_effect(m, SIM_LANE_FX_PURGE);
    fsm_effect(m, SIM_LANE_FX_NOTIFY_CLOSED);
}

/* ---- what it asks for ------------------------------------------------------------------------ */

/* The owner's callbacks wait until the machine has come to rest. */
static void add_due(struct sim_lane *lane, enum sim_lane_effect effect) {
    lane->due |= 1u << effect;
}

static bool settle_one(struct sim_lane *lane, enum sim_lane_effect effect) {
    bool was = lane->due >> effect & 1;
    lane->due &= ~(1u << effect);
    return was;
}

static void retire_queue(struct sim_lane *lane, weft_status_t status) {
    weft__sim_take_run(lane);
    while (lane->first) {
        struct sim_packet *p = lane->first;
        lane->first = p->next;
        p->cancelled = p->in_heap;
        weft__sim_retire(lane, p, status);
    }
    lane->last = &lane->first;
}

/* All but what a stalled network has already: of that the sender has nothing any more. */
static void sim_lane_recall(struct sim_lane *lane) {
    struct sim_packet **at = &lane->first;
    weft__sim_take_run(lane);
    while (*at && (*at)->stalled && (*at)->n_iov == 0 && !(*at)->completion) at = &(*at)->next;
    if (at == &lane->first) return retire_queue(lane, WEFT_ERR_CANCELLED);
    struct sim_packet *rest = *at;
    *at = NULL;
    lane->last = at;
    while (rest) {
        struct sim_packet *p = rest;
        rest = p->next;
        weft__sim_retire(lane, p, WEFT_ERR_CANCELLED);
    }
}

/* Datagrams that were sent have left; a reliable lane's FIN has to be taken by the peer. */
static void send_fin(struct sim_lane *lane) {
    struct reactor *r = lane->lane.iface->reactor;
    struct sim_packet *fin = lane->fin;
    uint64_t timeout =
        weft__setting_u64(weft__reactor_context(r), SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
    if (!lane->fabric->profile.reliable)
        return weft__sim_lane_post(lane, SIM_LANE_EV_LEFT, WEFT_OK);
    if (!fin) fin = weft__sim_packet_new(lane->fabric, 0); /* the first was cancelled */
    lane->fin = NULL;
    if (!fin || weft__timer_start(r, &lane->linger, weft__now(r) + timeout) < 0) {
        if (fin) weft__sim_packet_free(lane->fabric, fin);
        return weft__sim_lane_post(lane, SIM_LANE_EV_LEFT, WEFT_OK);
    }
    fin->kind = SIM_FIN;
    weft__sim_send(lane, fin);
}

/* The peer may rely no more on memory that it was offered, before the program has it back. */
static void end_exposed(struct sim_lane *lane, weft_status_t why) {
    if (lane->ended) return;
    lane->ended = lane->copies_due = true;
    lane->copies_why = why;
    weft__sim_keys_end(lane, why);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct sim_lane *lane = OF_FSM(m);
    switch ((enum sim_lane_effect)effect) {
    case SIM_LANE_FX_OPEN:
        lane->lane.ops = &weft__sim_ops_up[lane->fabric->profile.exposes];
        lane->take = weft__sim_take;
        add_due(lane, SIM_LANE_FX_OPEN);
        break;
    case SIM_LANE_FX_BREAK:
        lane->lane.ops = &weft__sim_ops_broken[lane->fabric->profile.exposes];
        lane->take = weft__sim_refuse;
        weft__sim_purge(lane);
        weft__sim_place_end(lane, lane->why);
        end_exposed(lane, lane->why);
        retire_queue(lane, lane->why);
        add_due(lane, SIM_LANE_FX_BREAK);
        break;
    case SIM_LANE_FX_PURGE:
        lane->lane.ops = &weft__sim_ops_closed[lane->fabric->profile.exposes];
        lane->take = weft__sim_refuse;
        weft__sim_take_run(lane);
        weft__sim_purge(lane);
        weft__sim_place_end(lane, WEFT_ERR_CLOSED);
        end_exposed(lane, WEFT_ERR_CLOSED);
        lane->due &= ~(1u << SIM_LANE_FX_OPEN | 1u << SIM_LANE_FX_BREAK);
        break;
    case SIM_LANE_FX_SEND_FIN: send_fin(lane); break;
    case SIM_LANE_FX_CANCEL: sim_lane_recall(lane); break;
    case SIM_LANE_FX_NOTIFY_CLOSED:
        retire_queue(lane, WEFT_ERR_PEER_FAILED);
        add_due(lane, SIM_LANE_FX_NOTIFY_CLOSED);
        break;
    case SIM_LANE_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct sim_lane *lane = OF_FSM(m);
    weft__log(weft__reactor_context(lane->lane.iface->reactor), WEFT_LOG_ERROR, "sim",
              "lane %u: %s in state %s", m->id, m->port->machine->event_name[event],
              fsm_state_name(m));
}

static const struct fsm_port port = {&weft__sim_lane_machine, on_effect, on_fail};

/* ---- reports to the owner -------------------------------------------------------------------- */

void weft__sim_announce_up(struct sim_lane *lane) {
    lane->lane.iface->up->up(&lane->lane);
    weft__sim_retry(lane); /* what was added while it dialed */
}

void weft__sim_announce_accepted(struct sim_lane *lane) {
    lane->lane.iface->up->accepted(&lane->lane, lane->listen_arg);
}

void weft__sim_retire(struct sim_lane *lane, struct sim_packet *p, weft_status_t status) {
    if (lane->fabric->profile.reliable) lane->under_way--;
    p->status = status;
    p->next = NULL;
    p->listed = true;
    *lane->finished_last = p;
    lane->finished_last = &p->next;
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

static void finish_lane(struct sim_lane *lane) {
    while (lane->finished) {
        struct sim_packet *p = lane->finished;
        struct completion *completion = p->completion;
        weft_status_t status = p->status;
        lane->finished = p->next;
        if (!lane->finished) lane->finished_last = &lane->finished;
        p->listed = false;
        p->completion = NULL;
        if (!p->in_heap) weft__sim_packet_free(lane->fabric, p);
        if (completion) completion_step(completion, status);
    }
}

void weft__sim_lane_free(struct sim_lane *lane) {
    struct sim_iface *iface = sim_iface(lane);
    struct reactor *r = iface->iface.reactor;
    struct sim_lane **at = &iface->lanes, **in = &lane->fabric->bucket[lane->id % SIM_BUCKETS];
    while (*at != lane) at = &(*at)->next_of_iface;
    *at = lane->next_of_iface;
    while (*in != lane) in = &(*in)->next_of_bucket;
    *in = lane->next_of_bucket;
    end_exposed(lane, WEFT_ERR_CLOSED);
    weft__sim_copies_end(lane, WEFT_ERR_CLOSED);
    weft__sim_grants_end(lane);
    weft__sim_keys_free(lane);
    retire_queue(lane, WEFT_ERR_CLOSED);
    finish_lane(lane);
    if (lane->fin) weft__sim_packet_free(lane->fabric, lane->fin);
    if (lane->hello) weft__sim_packet_free(lane->fabric, lane->hello);
    weft__job_drop(r, &lane->job);
    weft__timer_stop(r, &lane->retry);
    weft__timer_stop(r, &lane->linger);
    weft__timer_stop(r, &lane->fate);
    iface->n_scarce -= lane->lane.scarce;
    weft__free_later(r, lane);
}

/* Completions first, then what became of the lane. Everything here may call the owner, who may
 * close. */
static void settle_lane(struct sim_lane *lane) {
    if (lane->copies_due) weft__sim_copies_end(lane, lane->copies_why);
    finish_lane(lane);
    weft__sim_place_report(lane);
    if (settle_one(lane, SIM_LANE_FX_OPEN)) lane->announce(lane);
    if (settle_one(lane, SIM_LANE_FX_BREAK)) {
        weft__causes_clear();
        lane->lane.iface->up->down(&lane->lane, lane->why);
    }
    finish_lane(lane);
    if (!settle_one(lane, SIM_LANE_FX_NOTIFY_CLOSED)) return;
    lane->lane.iface->up->closed(&lane->lane);
    weft__sim_lane_free(lane);
}

void weft__sim_lane_step(struct sim_lane *lane, enum sim_lane_event event) {
    weft__fsm_step(&lane->fsm, event);
    settle_lane(lane);
}

void weft__sim_lane_post(struct sim_lane *lane, enum sim_lane_event event, weft_status_t why) {
    if (why < 0) lane->why = why;
    lane->posted |= 1u << event;
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

/* As lanes that count do: with every few messages, and when all are gone. */
static void notify_of_work(struct sim_lane *lane) {
    const struct iface_up *up = lane->lane.iface->up;
    if (!up->worked || lane->n_sent == lane->n_notified) return;
    if (lane->n_sent - lane->n_notified < SIM_NOTIFY_EVERY && lane->under_way) return;
    up->worked(&lane->lane, lane->carried);
    lane->n_notified = lane->n_sent;
    lane->carried = 0;
}

static void run_lane(struct job *job) {
    struct sim_lane *lane = OF_JOB(job);
    notify_of_work(lane);
    while (lane->posted) {
        unsigned event = (unsigned)__builtin_ctz(lane->posted);
        lane->posted &= lane->posted - 1;
        weft__fsm_step(&lane->fsm, event);
    }
    bool ends = lane->due >> SIM_LANE_FX_NOTIFY_CLOSED & 1;
    settle_lane(lane);
    if (!ends) weft__sim_retry(lane);
}

static void fire_retry(struct timer *timer) {
    weft__sim_retry(OF_RETRY(timer));
}

static void fire_linger(struct timer *timer) {
    weft__sim_lane_step(OF_LINGER(timer), SIM_LANE_EV_LEFT);
}

/* ---- making and closing one ------------------------------------------------------------------ */

static bool make_words(struct sim_lane *lane) {
    struct sim_fabric *f = lane->fabric;
    if (!f->profile.reliable) return true;
    lane->fin = weft__sim_packet_new(f, 0);
    lane->hello = weft__sim_packet_new(f, 0);
    if (lane->fin && lane->hello) return true;
    if (lane->fin) weft__sim_packet_free(f, lane->fin);
    if (lane->hello) weft__sim_packet_free(f, lane->hello);
    return false;
}

struct sim_lane *weft__sim_lane_new(struct sim_iface *iface, bool scarce, uint64_t actor,
                                    void (*announce)(struct sim_lane *)) {
    struct sim_fabric *f = iface->fabric;
    struct sim_lane *lane = weft__new(iface, struct sim_lane);
    if (!lane) return NULL;
    lane->fabric = f;
    if (!make_words(lane)) {
        talloc_free(lane);
        return NULL;
    }
    lane->lane = (struct lane){
        .ops = &weft__sim_ops_idle[f->profile.exposes], .iface = &iface->iface, .scarce = scarce};
    iface->n_scarce += scarce;
    lane->id = ++f->n_lanes;
    lane->actor = actor;
    lane->announce = announce;
    lane->take = weft__sim_refuse;
    lane->last = &lane->first;
    lane->finished_last = &lane->finished;
    pending_queue_init(&lane->pending);
    lane->job.run = run_lane;
    lane->retry.fire = fire_retry;
    lane->linger.fire = fire_linger;
    lane->fate.fire = weft__sim_fate;
    lane->copying.fire = weft__sim_copying;
    lane->copy_job.run = weft__sim_copy_job;
    fsm_init(&lane->fsm, &port, SIM_LANE_NEW, lane->id);
    lane->next_of_iface = iface->lanes;
    iface->lanes = lane;
    lane->next_of_bucket = f->bucket[lane->id % SIM_BUCKETS];
    f->bucket[lane->id % SIM_BUCKETS] = lane;
    return lane;
}

void weft__sim_close(struct lane *l, bool flush) {
    struct sim_lane *lane = (struct sim_lane *)l;
    weft__fsm_step(&lane->fsm, flush ? SIM_LANE_EV_CLOSE : SIM_LANE_EV_ABORT);
    weft__job_post(l->iface->reactor, &lane->job);
}
