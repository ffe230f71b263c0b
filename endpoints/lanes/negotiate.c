/* The port of negotiate.fsm: sends and reads its messages, runs its timers, and connects it with
 * the usage tracker and the switch. */
#include "negotiate.h"

#include <base/counters.h>

#include "negotiate_local.h"
#include "switch.h"
#include <endpoints/core/worker.h>

static void negotiate_effect(struct fsm *m, unsigned effect);
static void negotiate_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port negotiate_port = {&weft__negotiate_machine, negotiate_effect,
                                               negotiate_fail};

static struct usage *usage_of(const struct lane_negotiation *b) {
    return b->lanes->worker->tracking->usage;
}
static struct iface *iface_of(const struct lane_negotiation *b) {
    return b->lanes->worker->iface[b->kind];
}

/* A link with a slot must be scored, so that idleness is noticed. The tracker may be asleep:
 * wake it. */
static bool adopt_negotiation(const struct lane_negotiation *b) {
    bool adopted = weft__usage_adopt(usage_of(b), b->link);
    weft__tracking_wake(b->lanes->worker);
    return adopted;
}
static void note_peer_score(const struct lane_negotiation *b, uint64_t score) {
    weft__usage_min_score(usage_of(b), b->link, score);
    weft__tracking_wake(b->lanes->worker);
}

static void serve_next(struct lanes *lanes);

/* Every event passes here, which keeps the counts correct. A freed slot goes to the link that
 * waits. */
static void step_negotiation(struct lane_negotiation *b, enum negotiate_event event) {
    struct lanes *lanes = b->lanes;
    weft__fsm_step(&b->n.fsm, event);
    weft__link_features_note(b->link);
    if (weft__lanes_count(b)) serve_next(lanes);
}

static void serve_next(struct lanes *lanes) {
    struct lane_negotiation *next = weft__lanes_next(lanes);
    if (next) step_negotiation(next, NEGOTIATE_EV_FREED);
}

/* ---- messages it sends */

static void send_one(struct lane_negotiation *b, enum lane_kind kind) {
    struct wire_message m;
    weft__lane_one(&m, kind, b->n.epoch);
    weft__link_control(b->link, &m);
}

/* Empty if memory is short. */
static uint8_t own_address(const struct lane_negotiation *b, uint8_t *to) {
    size_t len = LANE_ADDRESS_MAX;
    return iface_of(b)->ops->address(iface_of(b), to, &len) < 0 ? 0 : (uint8_t)len;
}

static void send_ask(struct lane_negotiation *b) {
    struct wire_message m;
    uint8_t address[LANE_ADDRESS_MAX];
    const char *name = iface_of(b)->transport->name;
    b->notified = weft__usage_seen(usage_of(b), b->link);
    weft__lane_ask(&m, &(struct lane_ask){.epoch = b->n.epoch,
                                          .score = b->notified,
                                          .name = name,
                                          .name_len = (uint8_t)strnlen(name, LANE_NAME_MAX),
                                          .address = address,
                                          .len = own_address(b, address)});
    weft__link_control(b->link, &m);
    b->lanes->worker->count->lanes_requested++;
}

static void send_grant(struct lane_negotiation *b) {
    struct wire_message m;
    uint8_t address[LANE_ADDRESS_MAX];
    weft__lane_grant(&m, &(struct lane_grant){.epoch = b->n.epoch,
                                              .number = b->number,
                                              .address = address,
                                              .len = own_address(b, address)});
    weft__link_control(b->link, &m);
}

static void send_deny(struct link *link, uint32_t epoch, enum lane_denial why, uint64_t rest) {
    struct wire_message m;
    weft__lane_deny(&m, (struct lane_deny){.epoch = epoch,
                                           .why = (uint8_t)why,
                                           .wait_ms = (uint32_t)(rest / NS_PER_MS)});
    weft__link_answer(link, &m);
    link->worker->count->lanes_denied++;
}

static void send_score(struct lane_negotiation *b) {
    struct wire_message m;
    b->notified = weft__usage_seen(usage_of(b), b->link);
    weft__lane_score(&m, (struct lane_score){.epoch = b->n.epoch, .score = b->notified});
    weft__link_control(b->link, &m);
}

/* ---- effects */

static void later(struct lane_negotiation *b, enum negotiate_event event) {
    b->later_event = (uint8_t)event;
    weft__job_post(b->lanes->worker->reactor, &b->later);
}

static void run_later(struct job *job) {
    struct lane_negotiation *b = list_of(job, struct lane_negotiation, later);
    const struct fsm *m = &b->n.fsm;
    bool in_time =
        b->later_event == NEGOTIATE_EV_FAILED ? negotiate_is_joining(m) : negotiate_is_leaving(m);
    if (in_time) step_negotiation(b, (enum negotiate_event)b->later_event);
}

/* Cannot fail: room in the heap was reserved with the negotiation. */
static void start_timer(struct lane_negotiation *b, uint64_t ns) {
    struct reactor *r = b->lanes->worker->reactor;
    (void)weft__timer_start(r, &b->timer, weft__now(r) + ns);
}

/* Adds a random quarter, so that links that were refused together do not retry together. */
static void negotiate_rest(struct lane_negotiation *b) {
    struct lanes *lanes = b->lanes;
    uint64_t ns = weft__negotiate_backoff(&b->n, lanes->backoff, lanes->backoff_max),
             asked = b->wait_ms * NS_PER_MS;
    if (asked > lanes->backoff_max) asked = lanes->backoff_max;
    if (asked > ns) ns = asked;
    b->wait_ms = 0;
    weft__usage_release(usage_of(b), b->link);
    weft__usage_min_score(usage_of(b), b->link, 0);
    start_timer(b, ns + weft__random(lanes->worker->reactor) % (ns / 4 + 1));
}

static void expect(struct lane_negotiation *b) {
    do b->number = (uint32_t)weft__random(b->lanes->worker->reactor);
    while (b->number == 0);
    (void)adopt_negotiation(b); /* if not now, review() tries again */
    if (weft__switch_expect(b->link, iface_of(b), b->number) < 0) later(b, NEGOTIATE_EV_FAILED);
}

static void dial_negotiation(struct lane_negotiation *b) {
    struct iface *iface = iface_of(b);
    bool scarce = iface->ops->connect_scarce != NULL;
    if (weft__switch_dial(b->link, iface, b->address, b->address_len, scarce, b->number) < 0)
        later(b, NEGOTIATE_EV_FAILED);
}

static void go_back(struct lane_negotiation *b) {
    weft__usage_release(usage_of(b), b->link);
    if (weft__switch_back(b->link) < 0) later(b, NEGOTIATE_EV_LOST);
}

/* If there is none any more, another slot becomes free, or the timer fires. */
static void make_room(struct lane_negotiation *b) {
    struct lane_negotiation *weakest =
        weft__lanes_weakest(b->lanes, b->kind, weft__usage_score(usage_of(b), b->link));
    if (weakest) step_negotiation(weakest, NEGOTIATE_EV_DEMOTE);
}

static void negotiate_effect(struct fsm *m, unsigned effect) {
    struct lane_negotiation *b = list_of(m, struct lane_negotiation, n.fsm);
    struct lanes *lanes = b->lanes;
    switch ((enum negotiate_effect)effect) {
    case NEGOTIATE_FX_SEND_ASK: send_ask(b); break;
    case NEGOTIATE_FX_SEND_GRANT: send_grant(b); break;
    case NEGOTIATE_FX_SEND_DENY: send_deny(b->link, b->n.epoch, b->n.why, lanes->backoff); break;
    case NEGOTIATE_FX_SEND_CANCEL: send_one(b, LANE_CANCEL); break;
    case NEGOTIATE_FX_SEND_BACK: send_one(b, LANE_BACK); break;
    case NEGOTIATE_FX_DIAL: dial_negotiation(b); break;
    case NEGOTIATE_FX_EXPECT: expect(b); break;
    case NEGOTIATE_FX_CANCEL_JOIN: weft__switch_cancel(b->link); break;
    case NEGOTIATE_FX_GO_BACK: go_back(b); break;
    case NEGOTIATE_FX_MAKE_ROOM: make_room(b); break;
    case NEGOTIATE_FX_WAIT: start_timer(b, lanes->reply_timeout); break;
    case NEGOTIATE_FX_MIN_HOLD: start_timer(b, lanes->min_hold); break;
    case NEGOTIATE_FX_REST: negotiate_rest(b); break;
    case NEGOTIATE_FX_NO_TIMEOUT: weft__timer_stop(lanes->worker->reactor, &b->timer); break;
    case NEGOTIATE_FX_NOTIFY_FAST: lanes->worker->count->lanes_promoted++; break;
    case NEGOTIATE_FX_NOTIFY_SETTLED: start_timer(b, lanes->review); break;
    case NEGOTIATE_FX_NOTIFY_BASE: lanes->worker->count->lanes_demoted++; break;
    case NEGOTIATE_N_EFFECTS: break;
    }
}

static void negotiate_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct lane_negotiation *b = list_of(m, struct lane_negotiation, n.fsm);
    const char *name = weft__negotiate_machine.event_name[event];
    if (why == FSM_VIOL) {
        weft__link_violation(b->link, name);
        return;
    }
    weft__log(b->lanes->worker->context, WEFT_LOG_ERROR, "endpoints", "negotiation: %s in %s", name,
              fsm_state_name(m));
    weft__link_lose(b->link, weft__fail(WEFT_ERR_INTERNAL, "negotiation of lanes: %s in %s", name,
                                        fsm_state_name(m)));
}

/* ---- review of a promoted link */

static bool is_idle(const struct lanes *lanes, uint64_t score) {
    uint64_t floor = weft__setting_u64(lanes->worker->context, SETTING_LANES_MIN_RATE);
    return weft__usage_outscores(lanes->worker->tracking->usage, floor, score);
}

/* The tracker demoted it. It stays while it carries traffic and no other link waits for the
 * slot. */
static bool is_to_go(struct lane_negotiation *b) {
    struct usage *usage = usage_of(b);
    if (weft__usage_promoted(usage, b->link)) return false;
    if (is_idle(b->lanes, weft__usage_score(usage, b->link))) return true;
    return !b->lanes->awaits[b->kind] && !adopt_negotiation(b);
}

static void review(struct lane_negotiation *b) {
    uint64_t seen = weft__usage_seen(usage_of(b), b->link);
    if (is_to_go(b)) {
        step_negotiation(b, NEGOTIATE_EV_DEMOTE);
        return;
    }
    if (seen / 2 > b->notified || seen < b->notified / 2) send_score(b);
    start_timer(b, b->lanes->review);
}

/* The lane has joined or failed, and the event follows within this turn: too late to cancel. */
static bool is_decided(const struct lane_negotiation *b) {
    return negotiate_is_joining(&b->n.fsm) && !weft__switch_expects(b->link);
}

static void due(struct timer *timer) {
    struct lane_negotiation *b = list_of(timer, struct lane_negotiation, timer);
    if (b->n.settled)
        review(b);
    else if (!is_decided(b))
        step_negotiation(b, NEGOTIATE_EV_TIMEOUT);
}

/* ---- negotiations */

/* Requests of the worker with the smaller id have odd epochs. */
static bool is_odd(const struct link *link) {
    return link->worker->id < link->peer;
}

static struct lane_negotiation *negotiation_with(struct link *link) {
    struct lanes *lanes = link->worker->lanes;
    if (link->more->lane_negotiation) return link->more->lane_negotiation;
    struct reactor *r = lanes->worker->reactor;
    struct lane_negotiation *b =
        weft__link_ext(link) ? weft__new(lanes, struct lane_negotiation) : NULL;
    if (!b) return NULL;
    b->timer.fire = due;
    if (weft__timer_reserve(r, &b->timer) < 0) {
        talloc_free(b);
        return NULL;
    }
    b->later.run = run_later;
    b->lanes = lanes;
    b->link = link;
    b->n.odd = is_odd(link);
    b->n.epoch = link->denied_epoch;
    fsm_init(&b->n.fsm, &negotiate_port, NEGOTIATE_BASE, (uint32_t)(uintptr_t)link);
    list_append(&lanes->lane_negotiations, &b->of_worker);
    return link->more->lane_negotiation = b;
}

void weft__lanes_end(struct link *link) {
    struct lane_negotiation *b = link->more->lane_negotiation;
    if (!b) return;
    struct reactor *r = link->worker->reactor;
    weft__usage_forget(usage_of(b), link);
    link->more->lane_negotiation = NULL;
    list_remove(&b->of_worker);
    weft__job_drop(r, &b->later);
    step_negotiation(b, NEGOTIATE_EV_CLOSE);
    if (weft__lanes_leave(b)) serve_next(b->lanes);
    weft__timer_release(r, &b->timer);
    weft__free_later(r, b);
}

/* ---- hooks of the usage tracker */

static bool may_ask(const struct lanes *lanes, const struct link *link) {
    const struct lane_negotiation *b = link->more->lane_negotiation;
    if (!worker_is_open(&lanes->worker->core.fsm) || !link_is_up(&link->core.fsm)) return false;
    if (!(link->peer_flags & WIRE_HELLO_LANES) || link->more->main ||
        link->peer == lanes->worker->id)
        return false;
    if (b && (!negotiate_is_at_base(&b->n.fsm) || weft__negotiate_next(&b->n) == 0)) return false;
    return weft__lanes_kind(lanes, link, b ? b->banned : 0) >= 0;
}

static bool eligible_negotiation(void *key, void *arg) {
    return may_ask(arg, key);
}

static bool promote_negotiation(void *key, uint64_t score, void *arg) {
    struct lanes *lanes = arg;
    struct link *link = key;
    struct lane_negotiation *b = negotiation_with(link);
    if (!b) return false;
    int kind = weft__lanes_kind(lanes, link, b->banned);
    enum negotiate_answer answer = weft__lanes_answer(lanes, (uint8_t)kind, score);
    if ((answer != ANSWER_FITS && answer != ANSWER_ROOM) || !weft__lanes_token(lanes)) return false;
    b->kind = (uint8_t)kind;
    step_negotiation(b, answer == ANSWER_FITS ? NEGOTIATE_EV_WANT : NEGOTIATE_EV_WANT_ROOM);
    return true;
}

/* A link that is replaced keeps its lane until another link waits for the slot (is_to_go). */
static void demote_negotiation(void *key, uint64_t score, void *arg) {
    struct lane_negotiation *b = ((struct link *)key)->more->lane_negotiation;
    if (!b) return;
    bool fast = negotiate_is_fast(&b->n.fsm), asks = negotiate_has_not_dialed(&b->n.fsm);
    if (asks || (fast && b->n.settled && is_idle(arg, score)))
        step_negotiation(b, NEGOTIATE_EV_DEMOTE);
}

/* ---- messages of the peer */

/* 0: reachable; otherwise the reason. A lack of memory does not ban the kind for good. */
static enum lane_denial way_to(struct iface *iface, const void *address, uint8_t len) {
    const char *why;
    weft_status_t st = len ? iface->ops->reachable(iface, address, len, &why) : WEFT_ERR_NO_MEMORY;
    if (st >= 0) return 0;
    return st == WEFT_ERR_NO_MEMORY ? LANE_DENIED_MEMORY : LANE_DENIED_UNREACHABLE;
}

static enum lane_denial kind_asked_for(struct lane_negotiation *b, const struct lane_ask *ask) {
    struct weft_worker *worker = b->lanes->worker;
    struct iface *iface = weft__worker_iface(worker, ask->name, ask->name_len);
    uint8_t kind = 0;
    if (!iface || !weft__lanes_is_kind(b->link, iface)) return LANE_DENIED_UNREACHABLE;
    while (worker->iface[kind] != iface) kind++;
    if (b->lanes->capacity[kind] == 0) return LANE_DENIED_UNREACHABLE;
    b->kind = kind;
    return way_to(iface, ask->address, ask->len);
}

/* Only the sender sees all traffic of a direction: the score of the peer counts here, too. */
static enum negotiate_event weigh(struct lane_negotiation *b, const struct lane_ask *ask) {
    struct lanes *lanes = b->lanes;
    b->n.why = LANE_DENIED_BUSY;
    if (!negotiate_may_be_asked(&b->n.fsm) || !worker_is_open(&lanes->worker->core.fsm))
        return NEGOTIATE_EV_ASK_NO;
    enum lane_denial why = kind_asked_for(b, ask);
    if (why) {
        b->n.why = (uint8_t)why;
        return NEGOTIATE_EV_ASK_NO;
    }
    note_peer_score(b, ask->score);
    enum negotiate_answer answer =
        weft__lanes_answer(lanes, b->kind, weft__usage_score(usage_of(b), b->link));
    if (answer == ANSWER_FULL) b->n.why = LANE_DENIED_FULL;
    if (answer == ANSWER_FULL || answer == ANSWER_BUSY || !weft__lanes_token(lanes))
        return NEGOTIATE_EV_ASK_NO;
    return answer == ANSWER_FITS ? NEGOTIATE_EV_ASK_FITS : NEGOTIATE_EV_ASK_ROOM;
}

/* What is due later in this turn is of an attempt that the peer has given up. */
static void end_attempt(struct lane_negotiation *b) {
    if (!weft__job_queued(&b->later)) return;
    weft__job_drop(b->lanes->worker->reactor, &b->later);
    run_later(&b->later);
}

static void question_received(struct lane_negotiation *b, const struct lane_ask *ask) {
    enum epoch_check verdict = weft__negotiate_question(&b->n, ask->epoch);
    if (verdict == EPOCH_INVALID) weft__link_violation(b->link, "lane request out of order");
    if (verdict != EPOCH_CURRENT) return;
    end_attempt(b);
    if (negotiate_is_asked(&b->n.fsm)) {
        weft__usage_release(usage_of(b), b->link);
        step_negotiation(b, NEGOTIATE_EV_YIELD);
    }
    b->n.epoch = ask->epoch;
    step_negotiation(b, weigh(b, ask));
}

static void grant_received(struct lane_negotiation *b, const struct lane_grant *grant) {
    if (!negotiate_is_asked(&b->n.fsm)) {
        step_negotiation(b, NEGOTIATE_EV_GRANT);
        return;
    }
    enum lane_denial why = way_to(iface_of(b), grant->address, grant->len);
    if (why) {
        if (why == LANE_DENIED_UNREACHABLE) b->banned |= 1u << b->kind;
        step_negotiation(b, NEGOTIATE_EV_GRANT_NO);
        return;
    }
    b->number = grant->number;
    b->address_len = grant->len;
    memcpy(b->address, grant->address, grant->len);
    step_negotiation(b, b->n.place == PLACE_HELD ? NEGOTIATE_EV_GRANT : NEGOTIATE_EV_GRANT_ROOM);
}

static void denial_received(struct lane_negotiation *b, const struct lane_deny *deny) {
    if (negotiate_is_asked(&b->n.fsm)) {
        b->wait_ms = deny->wait_ms;
        if (deny->why == LANE_DENIED_UNREACHABLE) b->banned |= 1u << b->kind;
    }
    step_negotiation(b, NEGOTIATE_EV_DENY);
}

/* Ignored if the link has no other lane any more. */
static void score_received(struct lane_negotiation *b, const struct lane_score *score) {
    if (negotiate_has_lane(&b->n.fsm)) note_peer_score(b, score->score);
}

/* Whether a reply belongs to the last request. */
static bool epoch_is_current(struct link *link, uint32_t epoch) {
    struct negotiation denied = {.epoch = link->denied_epoch};
    const struct lane_negotiation *b = link->more->lane_negotiation;
    enum epoch_check verdict = weft__negotiate_word(b ? &b->n : &denied, epoch);
    if (verdict == EPOCH_CURRENT && !b) return false; /* the request was denied, and is cancelled */
    if (verdict == EPOCH_INVALID) weft__link_violation(link, "lane reply without a request");
    return verdict == EPOCH_CURRENT;
}

/* Without memory for a negotiation, only the epoch is kept, to check the next request. */
static void deny_at_once(struct link *link, uint32_t epoch) {
    struct negotiation n = {.epoch = link->denied_epoch, .odd = is_odd(link)};
    enum epoch_check verdict = weft__negotiate_question(&n, epoch);
    if (verdict == EPOCH_INVALID) weft__link_violation(link, "lane request out of order");
    if (verdict != EPOCH_CURRENT) return;
    link->denied_epoch = epoch;
    send_deny(link, epoch, LANE_DENIED_MEMORY, link->worker->lanes->backoff);
}

static void recv_ask(struct link *link, const void *data, size_t len) {
    struct lane_ask ask;
    if (!weft__lane_read_ask(data, len, &ask)) {
        weft__link_violation(link, "lane request");
        return;
    }
    struct lane_negotiation *b = negotiation_with(link);
    if (b)
        question_received(b, &ask);
    else
        deny_at_once(link, ask.epoch);
}

/* A reply of the peer, decoded. Each kind begins with its epoch. */
union lane_reply {
    uint32_t epoch;
    struct lane_grant grant;
    struct lane_deny deny;
    struct lane_score score;
    struct lane_one one;
};

static bool read_grant(const void *data, size_t len, union lane_reply *reply) {
    return weft__lane_read_grant(data, len, &reply->grant);
}
static bool read_deny(const void *data, size_t len, union lane_reply *reply) {
    return weft__lane_read_deny(data, len, &reply->deny);
}
static bool read_score(const void *data, size_t len, union lane_reply *reply) {
    return weft__lane_read_score(data, len, &reply->score);
}
static bool read_one(const void *data, size_t len, union lane_reply *reply) {
    return weft__lane_read_one(data, len, &reply->one);
}

static void on_grant(struct lane_negotiation *b, const union lane_reply *reply) {
    grant_received(b, &reply->grant);
}
static void on_deny(struct lane_negotiation *b, const union lane_reply *reply) {
    denial_received(b, &reply->deny);
}
static void on_score(struct lane_negotiation *b, const union lane_reply *reply) {
    score_received(b, &reply->score);
}
static void on_cancel(struct lane_negotiation *b, const union lane_reply *reply) {
    if (!is_decided(b)) step_negotiation(b, NEGOTIATE_EV_CANCEL);
}
static void on_back(struct lane_negotiation *b, const union lane_reply *reply) {
    step_negotiation(b, NEGOTIATE_EV_BACK);
}

/* How a reply is decoded, and what follows if its epoch is current. */
static const struct reply_handler {
    bool (*read)(const void *data, size_t len, union lane_reply *reply);
    void (*handle)(struct lane_negotiation *b, const union lane_reply *reply);
} reply_handlers[LANE_KINDS] = {[LANE_GRANT] = {read_grant, on_grant},
                                [LANE_DENY] = {read_deny, on_deny},
                                [LANE_SCORE] = {read_score, on_score},
                                [LANE_CANCEL] = {read_one, on_cancel},
                                [LANE_BACK] = {read_one, on_back}};

static void recv_reply(struct link *link, const struct reply_handler *handler, const void *data,
                       size_t len) {
    union lane_reply reply;
    if (!handler->read || !handler->read(data, len, &reply))
        weft__link_violation(link, "lane control message");
    else if (epoch_is_current(link, reply.epoch))
        handler->handle(link->more->lane_negotiation, &reply);
}

void weft__lanes_received(struct link *link, struct lane *lane, const void *data, size_t len) {
    enum lane_kind kind = weft__lane_kind(data, len);
    if (!link->worker->lanes || link->more->main || link->peer == link->worker->id)
        weft__link_violation(link, "lane control message");
    else if (kind == LANE_ASK)
        recv_ask(link, data, len);
    else
        recv_reply(link, &reply_handlers[kind], data, len);
}

/* ---- notifications of switch.c */

void weft__lanes_joined(struct link *link) {
    if (!link->more->lane_negotiation) return;
    link->more->lane_negotiation->other = link->lanes[1];
    step_negotiation(link->more->lane_negotiation, NEGOTIATE_EV_JOINED);
}

void weft__lanes_join_failed(struct link *link, weft_status_t status) {
    if (link->more->lane_negotiation)
        step_negotiation(link->more->lane_negotiation, NEGOTIATE_EV_FAILED);
}

void weft__lanes_going_back(struct link *link) {
    if (link->more->lane_negotiation && negotiate_is_fast(&link->more->lane_negotiation->n.fsm))
        step_negotiation(link->more->lane_negotiation, NEGOTIATE_EV_BACK);
}

void weft__lanes_switched(struct link *link) {
    if (link->more->lane_negotiation)
        step_negotiation(link->more->lane_negotiation, NEGOTIATE_EV_SWITCHED);
}

void weft__lanes_lost(struct link *link, struct lane *lane, weft_status_t status) {
    struct lane_negotiation *b = link->more->lane_negotiation;
    if (!b) return;
    if (link->lanes[0] == b->other) weft__lanes_stay(b);
    step_negotiation(b, NEGOTIATE_EV_LOST);
}

/* ---- life ------------------------------------------------------------------------------------ */

uint16_t weft__lanes_hello(const struct link *link) {
    return link->worker->lanes && !link->more->main ? WIRE_HELLO_LANES : 0;
}

static uint32_t least(uint64_t a, uint64_t b) {
    uint64_t n = a < b ? a : b;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Slots by kind, and in all as many as the tracker promotes. If there are scarce lanes, only
 * those count. */
static void count_capacity(struct lanes *lanes) {
    const struct weft_worker *worker = lanes->worker;
    uint64_t set = weft__setting_u64(worker->context, SETTING_LANES_CAPACITY), all = 0;
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        const struct iface *iface = worker->iface[i];
        all += iface->attr.scarce;
        bool few = iface->ops->connect_scarce || iface->attr.scarce;
        lanes->capacity[i] = least(few ? iface->attr.scarce : UINT32_MAX, set);
    }
    lanes->capacity_in_all = least(set != SETTING_AUTO ? set : all ? all : 64, UINT32_MAX);
}

weft_status_t weft__lanes_open(struct weft_worker *worker) {
    const weft_context_t *context = worker->context;
    if (!worker->tracking) return WEFT_OK;
    struct lanes *lanes = weft__new(worker, struct lanes);
    if (!lanes) return WEFT_ERR_NO_MEMORY;
    lanes->worker = worker;
    list_init(&lanes->lane_negotiations);
    count_capacity(lanes);
    lanes->backoff = weft__setting_u64(context, SETTING_LANES_BACKOFF) * NS_PER_MS;
    lanes->backoff_max = weft__setting_u64(context, SETTING_LANES_BACKOFF_MAX) * NS_PER_MS;
    lanes->reply_timeout = weft__setting_u64(context, SETTING_LANES_REPLY_TIMEOUT) * NS_PER_MS;
    lanes->min_hold = weft__setting_u64(context, SETTING_LANES_MIN_HOLD) * NS_PER_MS;
    lanes->review = weft__setting_u64(context, SETTING_LANES_TICK) * NS_PER_MS * 4;
    lanes->rate = (double)weft__setting_u64(context, SETTING_LANES_SWITCHES);
    lanes->tokens = 2 * lanes->rate;
    lanes->filled = weft__now(worker->reactor);
    worker->lanes = lanes;
    weft__tracking_hook(worker, &(struct usage_hooks){.eligible = eligible_negotiation,
                                                      .promote = promote_negotiation,
                                                      .demote = demote_negotiation,
                                                      .arg = lanes});
    return WEFT_OK;
}
