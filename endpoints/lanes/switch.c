/* The port of the switch machine: lanes, control messages, and notifications. */
#include "switch.h"

#include <base/counters.h>
#include <inttypes.h>

#include "negotiate.h"
#include "switch_local.h"
#include <endpoints/core/cause.h>
#include <endpoints/core/worker.h>
#include <endpoints/failover/retain.h>
#include <endpoints/wire/lane_ctrl.h>

/* ---- effects: noted in the step, carried out after it */

static void switch_effect(struct fsm *m, unsigned effect) {
    switch_due(list_of(m, struct switching, core.fsm), effect);
}

static void switch_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct switching *s = list_of(m, struct switching, core.fsm);
    if (why == FSM_BUG)
        weft__log(s->link->worker->context, WEFT_LOG_ERROR, "endpoints", "switch: %s in %s",
                  weft__switch_machine.event_name[event], fsm_state_name(m));
    switch_due(s, SWITCH_DUE_VIOLATION);
}

static const struct fsm_port switch_port = {&weft__switch_machine, switch_effect, switch_fail};

static void step_switch(struct switching *s, enum switch_event event) {
    weft__switch_step(&s->core, event);
    weft__switch_run(s);
}

static void run_job(struct job *job) {
    weft__switch_run(switching_of_job(job));
}

/* ---- control messages: by the lane in use, ahead of its queue */

static weft_status_t send_drained(struct switching *s) {
    struct wire_message m;
    weft__lane_one(&m, LANE_DRAINED, s->core.epoch_in);
    weft_status_t st = weft__lane_send_ctrl(s->lane[s->core.out], &m);
    if (st == WEFT_OK) s->drained_due = false;
    return st;
}

static weft_status_t send_end(struct switching *s) {
    struct wire_message m;
    weft__lane_end(&m, (struct lane_end){.epoch = s->core.epoch_out + 1, .sent = s->link->sent});
    weft_status_t st = weft__lane_send_ctrl(s->lane[s->core.out], &m);
    if (st != WEFT_OK) return st;
    s->end_due = false;
    switch_due(s, SWITCH_DUE_MARKED);
    return WEFT_OK;
}

static void wait_no_more(struct switching *s) {
    if (s->pending_at) s->pending_at->ops->pending_remove(s->pending_at, &s->pending);
    s->pending_at = NULL;
}

/* A lane that fails here reports its loss soon. Only a lack of memory is not reported by the
 * lane. */
static weft_status_t send_words(struct switching *s) {
    weft_status_t st = WEFT_OK;
    if (s->drained_due) st = send_drained(s);
    if (s->end_due && st == WEFT_OK) st = send_end(s);
    if (st == WEFT_ERR_NO_MEMORY) weft__link_ctrl_failed(s->link, st);
    return st;
}

static void send_what_is_due(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    if (send_words(s) != WEFT_NO_RESOURCE || s->pending_at == lane) return;
    wait_no_more(s);
    s->pending_at = lane;
    lane->ops->pending_add(lane, &s->pending);
}

static weft_status_t room(struct pending *pending) {
    struct switching *s = list_of(pending, struct switching, pending);
    if (send_words(s) == WEFT_NO_RESOURCE) return WEFT_NO_RESOURCE;
    s->pending_at = NULL; /* the lane has dequeued it */
    weft__switch_run(s);
    return WEFT_OK;
}

/* ---- lanes */

static uint8_t index_of(const struct switching *s, const struct lane *lane) {
    return s->lane[0] == lane ? 0 : 1;
}

static void recv_msg(struct lane *lane, const lane_am_fn *handlers) {
    lane->ops->recv_msg(lane, handlers);
}

/* Holds back the messages of a lane until it is the lane to be read. */
static void hold_switch(struct switching *s, uint8_t i) {
    s->received_by[i] = s->lane[i]->handlers;
    recv_msg(s->lane[i], weft__switch_holds);
}

/* The main link keeps the lane that stays. */
static void swap_keepers(struct link *link, struct link *aux_link) {
    struct lane *lane = link->lanes[0];
    link->lanes[0] = aux_link->lanes[0];
    aux_link->lanes[0] = aux_link->lane = aux_link->tx = lane;
    aux_link->at = aux_link->home = weft__worker_number(link->worker, lane->iface);
}

/* Takes a lane from the link. Returns the auxiliary link that owns it now; the caller closes it. */
static struct link *detach(struct switching *s, uint8_t i) {
    struct link *link = s->link, *aux_link = s->aux_link;
    struct lane *lane = s->lane[i];
    if (link->lanes[0] == lane) swap_keepers(link, aux_link);
    if (s->pending_at == lane) wait_no_more(s);
    if (s->bound.old == lane) s->bound.old = NULL;
    recv_msg(lane, s->received_by[i]);
    s->received_by[i] = NULL;
    weft__lane_set_link(lane, aux_link);
    weft__retain_follow(link, lane, aux_link);
    aux_link->more->main = NULL;
    s->aux_link = NULL;
    s->lane[i] = NULL;
    link->lanes[1] = NULL;
    link->n_lanes = 1;
    return aux_link;
}

/* Releases an auxiliary link whose lane has not joined. */
static struct link *dismiss(struct switching *s) {
    struct link *aux_link = s->aux_link;
    aux_link->more->main = NULL;
    s->aux_link = NULL;
    return aux_link;
}

static bool has_joined(const struct switching *s) {
    return s->lane[0] && s->lane[1];
}

/* ---- what effects do */

static unsigned log2_of(uint64_t n) {
    return n ? 63 - (unsigned)__builtin_clzll(n) : 0;
}

/* Counts how long the sender was paused. */
static void count_pause(struct switching *s, uint64_t since) {
    struct counters *count = s->link->worker->count;
    uint64_t ns = weft__now(s->link->worker->reactor) - since;
    unsigned i = log2_of(ns >> 10); /* about microseconds */
    if (ns > count->switch_pause_max) count->switch_pause_max = ns;
    uint64_t *const buckets[] = {&count->switch_pause_0, &count->switch_pause_1,
                                 &count->switch_pause_2, &count->switch_pause_3,
                                 &count->switch_pause_4, &count->switch_pause_5,
                                 &count->switch_pause_6, &count->switch_pause_7};
    unsigned most = sizeof buckets / sizeof *buckets - 1;
    ++*buckets[ns >> 10 == 0 ? 0 : i / 2 + 1 < most ? i / 2 + 1 : most];
}

/* Reads the other lane: the old one is held back, and held messages are delivered. */
static void take_switch(struct switching *s) {
    uint8_t in = s->core.in;
    if (s->lane[in ^ 1]) hold_switch(s, in ^ 1);
    s->taking = true;
    weft__switch_deliver(s);
    s->taking = false;
    if (switch_is_over(&s->core.fsm)) return;
    if (s->lane[in]) recv_msg(s->lane[in], s->received_by[in]);
    s->received_by[in] = NULL;
    s->drained_due = true;
    send_what_is_due(s);
}

static void mark(struct switching *s) {
    s->paused_at = weft__now(s->link->worker->reactor);
    weft__link_pause(s->link);
    s->end_due = true;
    send_what_is_due(s);
}

static void log_switch(const struct switching *s, const struct lane *to) {
    char peer[PEER_ROOM];
    const struct weft_worker *worker = s->link->worker;
    if (!weft__log_wants(worker->context, WEFT_LOG_INFO)) return;
    weft__peer_text(s->link, peer);
    weft__log_limited(worker->context, WEFT_LOG_INFO, "endpoints",
                      WORKER_TEXT ": messages to %s go by its %s %s lane from now on",
                      WORKER_ARGS(worker), peer, to->scarce ? "fast" : "first",
                      to->iface->transport->name);
}

static void notify_lane(const struct link *link) {
    if (!link->worker->on_lane) return;
    list_for_each(at, &link->endpoints) {
        struct weft_ep *ep = list_of(at, struct weft_ep, of_link);
        if (ep->ready && !ep->lease) weft__ep_notify_later(ep, NOTICE_LANE);
    }
}

static void cross(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    weft__bound_init(&s->bound, s->link, lane, s->lane[s->core.out ^ 1]);
    weft__link_carry(s->link, &s->bound.lane);
    s->link->more->rate = s->link->more->rate_last = 0; /* measured on the other lane */
    count_pause(s, s->paused_at);
    s->paused_at = 0;
    s->link->worker->count->switches++;
    log_switch(s, lane);
    notify_lane(s->link);
    weft__switch_unquiesce(s, NULL);
}

static void set_free(struct switching *s) {
    if (s->bound.full_at) count_pause(s, s->bound.full_at);
    weft__link_carry(s->link, s->bound.raw);
    s->bound = (struct bound){0};
}

static void resume(struct switching *s) {
    s->end_due = false;
    s->todo &= ~DUE(SWITCH_DUE_QUIET);
    if (s->paused_at) weft__link_carry(s->link, s->lane[s->core.out]);
    s->paused_at = 0;
    weft__switch_unquiesce(s, s->lost);
}

/* The lane that we sent on is gone. link->lanes[0] is the other one. */
static void mute(struct switching *s) {
    s->end_due = s->drained_due = false;
    wait_no_more(s);
    weft__link_pause(s->link);
    s->link->lane = s->link->lanes[0];
    s->bound = (struct bound){0};
    weft__switch_unquiesce(s, s->lost);
}

static void part_switch(struct switching *s) {
    uint8_t left = s->core.out ^ 1;
    if (s->lane[left]) weft__link_close(detach(s, left));
}

static void do_effect(struct switching *s, unsigned effect) {
    switch (effect) {
    case SWITCH_FX_TAKE: take_switch(s); break;
    case SWITCH_FX_QUIESCE: weft__switch_quiesce(s); break;
    case SWITCH_FX_MARK: mark(s); break;
    case SWITCH_FX_CROSS: cross(s); break;
    case SWITCH_FX_FREE: set_free(s); break;
    case SWITCH_FX_RESUME: resume(s); break;
    case SWITCH_FX_HANG_UP: weft__link_close(dismiss(s)); break;
    case SWITCH_FX_MUTE: mute(s); break;
    case SWITCH_FX_PART: part_switch(s); break;
    case SWITCH_FX_NOTIFY_JOINED: weft__lanes_joined(s->link); break;
    case SWITCH_FX_NOTIFY_FAILED: weft__lanes_join_failed(s->link, s->status); break;
    case SWITCH_FX_NOTIFY_SWITCHED: weft__lanes_switched(s->link); break;
    case SWITCH_FX_NOTIFY_LOST: weft__lanes_lost(s->link, s->lost, s->status); break;
    case SWITCH_FX_LOSE:
        weft__link_lose(s->link, weft__fail_in(s->status < 0 ? s->status : WEFT_ERR_PEER_FAILED,
                                               "the lane in use was lost"));
        break;
    case SWITCH_DUE_QUIET: weft__switch_step(&s->core, SWITCH_EV_QUIET); break;
    case SWITCH_DUE_MARKED: weft__switch_step(&s->core, SWITCH_EV_MARKED); break;
    case SWITCH_DUE_VIOLATION: weft__link_violation(s->link, "lane control message"); break;
    }
}

/* What moves traffic. */
static const uint32_t moves = DUE(SWITCH_FX_QUIESCE) | DUE(SWITCH_FX_MARK) | DUE(SWITCH_FX_CROSS) |
                              DUE(SWITCH_FX_FREE) | DUE(SWITCH_DUE_QUIET) | DUE(SWITCH_DUE_MARKED);

/* An effect may make others due. They run in order of their numbers. The link may end within one,
 * as where the program gets messages by TAKE: then traffic moves no more. */
void weft__switch_run(struct switching *s) {
    if (s->running) return;
    s->running = true;
    while (s->todo) {
        unsigned effect = (unsigned)__builtin_ctz(s->todo);
        s->todo &= s->todo - 1;
        if (DUE(effect) & moves && switch_is_over(&s->core.fsm)) continue;
        do_effect(s, effect);
    }
    s->running = false;
    if (s->link) weft__link_features_note(s->link);
    if (switch_is_over(&s->core.fsm)) weft__hold_clear(&s->hold);
}

/* ---- requests of negotiate.c */

static const struct link_switch_ops switch_ops = {
    .key_lane = weft__switch_key_lane,
    .has_left = weft__switch_has_left,
    .quiesce_step = weft__switch_quiesce_step,
};

static struct switching *switching_of(struct link *link) {
    struct switching *s = link->more->switching;
    if (s || !weft__link_ext(link)) return s;
    s = weft__new(link->worker, struct switching);
    if (!s) return NULL;
    s->base.ops = &switch_ops;
    s->link = link;
    s->lane[0] = link->lanes[0];
    s->job.run = run_job;
    s->pending.retry = room;
    weft__switch_init(&s->core, &switch_port, weft__link_id(link));
    link->more->switching = s;
    return s;
}

static weft_status_t check_join(struct link *link) {
    if (!link_is_up(&link->core.fsm) || link->more->main) return WEFT_ERR_CLOSED;
    struct switching *s = switching_of(link);
    if (!s) return WEFT_ERR_NO_MEMORY;
    return switch_is_alone(&s->core.fsm) ? WEFT_OK : WEFT_ERR_BUSY;
}

weft_status_t weft__switch_expect(struct link *link, const struct iface *iface, uint32_t number) {
    weft_status_t st = check_join(link);
    if (st < 0) return st;
    link->more->switching->number = number;
    link->more->switching->expected = iface;
    step_switch(link->more->switching, SWITCH_EV_EXPECT);
    return WEFT_OK;
}

static weft_status_t dial_switch(struct iface *iface, const void *address, size_t len, bool scarce,
                                 struct lane **lane_p) {
    if (!scarce) return iface->ops->connect(iface, address, len, lane_p);
    return iface->ops->connect_scarce ? iface->ops->connect_scarce(iface, address, len, lane_p)
                                      : WEFT_ERR_UNSUPPORTED;
}

weft_status_t weft__switch_dial(struct link *link, struct iface *iface, const void *address,
                                size_t len, bool scarce, uint32_t number) {
    struct lane *lane;
    struct link *aux_link;
    weft_status_t st = check_join(link);
    if (st == WEFT_OK) st = dial_switch(iface, address, len, scarce, &lane);
    if (st == WEFT_OK)
        st = weft__link_dial(link->worker, lane, link->peer, NULL, "another lane", &aux_link);
    if (st < 0) return st;
    aux_link->flags = WIRE_HELLO_EXTRA | WIRE_HELLO_LANE;
    if (!weft__link_ext(aux_link)) {
        weft__link_close(aux_link);
        return WEFT_ERR_NO_MEMORY;
    }
    aux_link->listener = number;
    aux_link->role = LINK_AUX;
    aux_link->more->main = link;
    link->more->switching->aux_link = aux_link;
    step_switch(link->more->switching, SWITCH_EV_DIAL);
    return WEFT_OK;
}

bool weft__switch_expects(const struct link *link) {
    return link->more->switching && switch_awaits_lane(&link->more->switching->core.fsm);
}

void weft__switch_cancel(struct link *link) {
    if (!link->more->switching) return;
    link->more->switching->number = 0;
    step_switch(link->more->switching, SWITCH_EV_CANCEL);
}

/* The switch under way leads away from the base lane. */
static bool leads_away(const struct switch_core *c) {
    return switch_out_is_leaving(&c->way_out) == (c->out == c->base);
}

weft_status_t weft__switch_back(struct link *link) {
    struct switching *s = link->more->switching;
    if (!s || !has_joined(s)) return WEFT_ERR_NOT_FOUND;
    if (!switch_is_beside(&s->core.fsm)) return leads_away(&s->core) ? WEFT_ERR_BUSY : WEFT_OK;
    if (s->core.out == s->core.base) return WEFT_ERR_BUSY; /* the dialer has not moved yet */
    step_switch(s, SWITCH_EV_MOVE);
    return WEFT_OK;
}

/* ---- the other lane */

/* Its slot is one of that transport. */
static bool expects(const struct link *link, const struct link *accepted,
                    const struct wire_hello *hello) {
    const struct switching *s = link->more->switching;
    return link->peer == hello->worker && link_is_up(&link->core.fsm) && s &&
           switch_is_expecting(&s->core.fsm) && s->number && s->number == hello->listener &&
           s->expected == accepted->lanes[0]->iface;
}

bool weft__switch_handshakes(struct link *accepted, const struct wire_hello *hello) {
    struct list *links = &accepted->worker->links;
    list_for_each(n, links) {
        struct link *link = list_of(n, struct link, of_worker);
        if (link == accepted || !expects(link, accepted, hello)) continue;
        link->more->switching->number = 0;
        link->more->switching->aux_link = accepted;
        accepted->more->main = link;
        accepted->listener = 0;
        return true;
    }
    return false;
}

/* Called within a step of the auxiliary link. The effects run from a job, because they may end both
 * links. */
void weft__switch_up(struct link *aux_link) {
    struct link *link = aux_link->more->main;
    struct switching *s = link->more->switching;
    struct lane *lane = aux_link->lanes[0];
    uint8_t i = s->core.out ^ 1;
    s->lane[i] = link->lanes[1] = lane;
    link->n_lanes = 2;
    weft__lane_set_link(lane, link);
    s->core.base = s->lane[i ^ 1]->scarce && !lane->scarce ? i : i ^ 1;
    weft__hold_clear(&s->hold);
    hold_switch(s, i);
    weft__switch_step(&s->core, SWITCH_EV_JOINED);
    weft__job_post(link->worker->reactor, &s->job);
}

/* The end of an auxiliary link is the loss of its lane. */
static void aux_link_ends(struct link *aux_link) {
    struct switching *s = aux_link->more->main->more->switching;
    s->status = aux_link->status < 0 ? aux_link->status : WEFT_ERR_PEER_FAILED;
    if (has_joined(s)) {
        uint8_t i = index_of(s, aux_link->lanes[0]);
        enum switch_event event = weft__switch_loss_event(&s->core, i, false);
        s->lost = aux_link->lanes[0];
        if (event == SWITCH_EV_OTHER_LOST) (void)detach(s, i);
        weft__switch_step(&s->core, event);
    } else {
        (void)dismiss(s);
        weft__switch_step(&s->core, SWITCH_EV_FAILED);
    }
    weft__job_post(s->link->worker->reactor, &s->job);
}

void weft__switch_lane_down(struct link *link, struct lane *lane, weft_status_t status) {
    struct switching *s = link->more->switching;
    if (switch_is_over(&s->core.fsm)) {
        weft__link_lose(link, status);
        return;
    }
    uint8_t i = index_of(s, lane);
    enum switch_event event = weft__switch_loss_event(&s->core, i, status == WEFT_ERR_PEER_CLOSED);
    if (s->pending_at == lane) s->pending_at = NULL; /* purged */
    s->status = status;
    s->lost = lane;
    if (event == SWITCH_EV_USED_LOST) {
        step_switch(s, event);
        return;
    }
    struct link *aux_link = detach(s, i);
    if (event == SWITCH_EV_OLD_CLOSED) {
        s->peer_left = true;
        weft__switch_unquiesce(s, lane);
    }
    step_switch(s, event);
    weft__link_lose(aux_link, status);
}

/* CANCELLED: this side closed the lane after both sides left it. PEER_CLOSED: the peer closes a
 * lane only after it has read it to its end; DRAINED may still be under way by the other lane. */
bool weft__switch_has_left(const struct link *link, weft_status_t status) {
    if (!link || !link->more->switching || !link_is_up(&link->core.fsm)) return false;
    const struct switching *s = link->more->switching;
    return status == WEFT_ERR_CANCELLED ||
           (status == WEFT_ERR_PEER_CLOSED &&
            (s->peer_left || weft__switch_awaits_drained(&s->core)));
}

/* ---- control messages of the peer */

static void received_end(struct switching *s, struct lane *lane, const void *data, size_t len) {
    struct lane_end end;
    enum switch_event event = SWITCH_EV_END_WRONG;
    if (weft__lane_read_end(data, len, &end) && end.sent >= s->sent_there && !s->taking) {
        event = weft__switch_end_event(&s->core, index_of(s, lane), end.epoch);
        s->sent_there = end.sent;
    }
    /* BACK may still be in the queue of the peer, behind its END. */
    if (event == SWITCH_EV_END && s->core.in != s->core.base && switch_is_beside(&s->core.fsm))
        weft__lanes_going_back(s->link);
    step_switch(s, event);
}

static void received_drained(struct switching *s, const void *data, size_t len) {
    struct lane_one one;
    bool read = weft__lane_read_one(data, len, &one);
    step_switch(s,
                read ? weft__switch_drained_event(&s->core, one.epoch) : SWITCH_EV_DRAINED_WRONG);
}

void weft__switch_received(struct link *link, struct lane *lane, const void *data, size_t len) {
    struct switching *s = link->more->switching;
    if (!s)
        weft__link_violation(link, "lane control message");
    else if (weft__lane_kind(data, len) == LANE_END)
        received_end(s, lane, data, len);
    else
        received_drained(s, data, len);
}

/* ---- the end */

/* The other lane may be freed before the link is: until then the link names only its first. */
static void keep_first_lane(struct link *link) {
    if (link->lane == link->lanes[0]) return;
    if (link->tx == link->lane)
        link->tx = link->lanes[0];
    else
        weft__link_pause(link);
    link->lane = link->lanes[0];
}

void weft__switch_end(struct link *link, bool abort) {
    struct switching *s = link->more->switching;
    if (link->more->main && link->role == LINK_AUX) aux_link_ends(link);
    if (!s) return;
    weft__switch_step(&s->core, SWITCH_EV_CLOSE);
    s->todo = 0;
    if (!s->running) weft__hold_clear(&s->hold);
    weft__job_drop(link->worker->reactor, &s->job);
    wait_no_more(s);
    if (link->tx == &s->bound.lane) link->tx = link->lanes[0];
    /* which reports that it is closed */
    if (link->lane == &s->bound.lane) link->lane = link->lanes[0];
    if (!s->aux_link) return;
    struct link *aux_link =
        has_joined(s) ? detach(s, index_of(s, s->aux_link->lanes[0])) : dismiss(s);
    keep_first_lane(link);
    if (abort)
        weft__link_lose(aux_link, link->status);
    else
        weft__link_close(aux_link);
}

void weft__switch_free(struct link *link) {
    struct switching *s = link->more->switching;
    if (!s) return;
    weft__job_drop(link->worker->reactor, &s->job);
    s->link = NULL;
    link->more->switching = NULL;
    if (!s->flushing) talloc_free(s);
}
