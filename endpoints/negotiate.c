#include "negotiate.h"

#include <reactor/counters.h>

#include "live.h"
#include "negotiate_local.h"
#include "switch.h"

static void negotiate_effect(struct fsm *m, unsigned effect);
static void negotiate_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port negotiate_port = {&weft__negotiate_machine, negotiate_effect, negotiate_fail};

static struct usage *usage_of(const struct bargain *b) {
    return b->lanes->worker->tracking->usage;
}
static struct iface *iface_of(const struct bargain *b) {
    return b->lanes->worker->iface[b->kind];
}

/* Who has a place is to be scored, so that it is seen to fall idle: the tracker may have gone to sleep. */
static bool adopt(const struct bargain *b) {
    bool adopted = weft__usage_adopt(usage_of(b), b->link);
    weft__tracking_wake(b->lanes->worker);
    return adopted;
}
static void hear_score(const struct bargain *b, uint64_t score) {
    weft__usage_min_score(usage_of(b), b->link, score);
    weft__tracking_wake(b->lanes->worker);
}

static void serve_next(struct lanes *lanes);

/* Every event comes by here, so that the counts are those of the machines; a place that became free goes to who waits. */
static void step(struct bargain *b, enum negotiate_event event) {
    struct lanes *lanes = b->lanes;
    fsm_step(&b->n.fsm, event);
    weft__live_note(b->link);
    if (weft__lanes_count(b)) serve_next(lanes);
}

static void serve_next(struct lanes *lanes) {
    struct bargain *next = weft__lanes_next(lanes);
    if (next) step(next, NEGOTIATE_EV_FREED);
}

/* ---- what it says ---------------------------------------------------------------------------------------------------- */

static void say_one(struct bargain *b, enum lane_kind kind) {
    struct wire_message m;
    weft__lane_one(&m, kind, b->n.epoch);
    weft__link_control(b->link, &m);
}

/* Without memory for one the address is empty. */
static uint8_t own_address(const struct bargain *b, uint8_t *to) {
    size_t len = LANE_ADDRESS_MAX;
    return iface_of(b)->ops->address(iface_of(b), to, &len) < 0 ? 0 : (uint8_t)len;
}

static void say_ask(struct bargain *b) {
    struct wire_message m;
    uint8_t address[LANE_ADDRESS_MAX];
    const char *name = iface_of(b)->transport->name;
    b->told = weft__usage_seen(usage_of(b), b->link);
    weft__lane_ask(&m, &(struct lane_ask){.epoch = b->n.epoch,
                                          .score = b->told,
                                          .name = name,
                                          .name_len = (uint8_t)strnlen(name, LANE_NAME_MAX),
                                          .address = address,
                                          .len = own_address(b, address)});
    weft__link_control(b->link, &m);
    b->lanes->worker->count->lanes_asked++;
}

static void say_grant(struct bargain *b) {
    struct wire_message m;
    uint8_t address[LANE_ADDRESS_MAX];
    weft__lane_grant(
        &m, &(struct lane_grant){
                .epoch = b->n.epoch, .number = b->number, .address = address, .len = own_address(b, address)});
    weft__link_control(b->link, &m);
}

static void say_deny(struct link *link, uint32_t epoch, enum lane_denial why, uint64_t rest) {
    struct wire_message m;
    weft__lane_deny(
        &m, (struct lane_deny){.epoch = epoch, .why = (uint8_t)why, .wait_ms = (uint32_t)(rest / NS_PER_MS)});
    weft__link_control(link, &m);
    link->worker->count->lanes_denied++;
}

static void say_score(struct bargain *b) {
    struct wire_message m;
    b->told = weft__usage_seen(usage_of(b), b->link);
    weft__lane_score(&m, (struct lane_score){.epoch = b->n.epoch, .score = b->told});
    weft__link_control(b->link, &m);
}

/* ---- what it does ---------------------------------------------------------------------------------------------------- */

static void later(struct bargain *b, enum negotiate_event event) {
    b->later_event = (uint8_t)event;
    weft__job_post(b->lanes->worker->reactor, &b->later);
}

static void run_later(struct job *job) {
    struct bargain *b = list_of(job, struct bargain, later);
    unsigned joining = 1u << NEGOTIATE_DIALING | 1u << NEGOTIATE_EXPECT, leaving = 1u << NEGOTIATE_LEAVING;
    unsigned where = b->later_event == NEGOTIATE_EV_FAILED ? joining : leaving;
    if (where >> b->n.fsm.state & 1) step(b, (enum negotiate_event)b->later_event);
}

/* The heap has room: it was reserved with the bargain. */
static void wait(struct bargain *b, uint64_t ns) {
    struct reactor *r = b->lanes->worker->reactor;
    (void)weft__timer_start(r, &b->timer, weft__now(r) + ns);
}

/* Not all that were refused together come back together. */
static void rest(struct bargain *b) {
    struct lanes *lanes = b->lanes;
    uint64_t ns = weft__negotiate_rest(&b->n, lanes->rest, lanes->rest_most), asked = b->wait_ms * NS_PER_MS;
    if (asked > lanes->rest_most) asked = lanes->rest_most;
    if (asked > ns) ns = asked;
    b->wait_ms = 0;
    weft__usage_release(usage_of(b), b->link);
    weft__usage_min_score(usage_of(b), b->link, 0);
    wait(b, ns + weft__random(lanes->worker->reactor) % (ns / 4 + 1));
}

static void expect(struct bargain *b) {
    do b->number = (uint32_t)weft__random(b->lanes->worker->reactor);
    while (b->number == 0);
    (void)adopt(b); /* no: it is looked at again when it is there */
    if (weft__switch_expect(b->link, b->number) < 0) later(b, NEGOTIATE_EV_FAILED);
}

static void dial(struct bargain *b) {
    struct iface *iface = iface_of(b);
    bool scarce = iface->ops->connect_scarce != NULL;
    if (weft__switch_dial(b->link, iface, b->address, b->address_len, scarce, b->number) < 0)
        later(b, NEGOTIATE_EV_FAILED);
}

static void go_back(struct bargain *b) {
    weft__usage_release(usage_of(b), b->link);
    if (weft__switch_back(b->link) < 0) later(b, NEGOTIATE_EV_LOST);
}

/* None may be there any more: then the place comes another way, or time runs out. */
static void make_room(struct bargain *b) {
    struct bargain *weakest = weft__lanes_weakest(b->lanes, b->kind, weft__usage_score(usage_of(b), b->link));
    if (weakest) step(weakest, NEGOTIATE_EV_DEMOTE);
}

static void negotiate_effect(struct fsm *m, unsigned effect) {
    struct bargain *b = list_of(m, struct bargain, n.fsm);
    struct lanes *lanes = b->lanes;
    switch ((enum negotiate_effect)effect) {
    case NEGOTIATE_FX_SEND_ASK: say_ask(b); break;
    case NEGOTIATE_FX_SEND_GRANT: say_grant(b); break;
    case NEGOTIATE_FX_SEND_DENY: say_deny(b->link, b->n.epoch, b->n.why, lanes->rest); break;
    case NEGOTIATE_FX_SEND_CANCEL: say_one(b, LANE_CANCEL); break;
    case NEGOTIATE_FX_SEND_BACK: say_one(b, LANE_BACK); break;
    case NEGOTIATE_FX_DIAL: dial(b); break;
    case NEGOTIATE_FX_EXPECT: expect(b); break;
    case NEGOTIATE_FX_CANCEL_JOIN: weft__switch_cancel(b->link); break;
    case NEGOTIATE_FX_GO_BACK: go_back(b); break;
    case NEGOTIATE_FX_MAKE_ROOM: make_room(b); break;
    case NEGOTIATE_FX_WAIT: wait(b, lanes->patience); break;
    case NEGOTIATE_FX_RESIDE: wait(b, lanes->residence); break;
    case NEGOTIATE_FX_REST: rest(b); break;
    case NEGOTIATE_FX_NO_TIMEOUT: weft__timer_stop(lanes->worker->reactor, &b->timer); break;
    case NEGOTIATE_FX_TELL_FAST: lanes->worker->count->lanes_promoted++; break;
    case NEGOTIATE_FX_TELL_SETTLED: wait(b, lanes->review); break;
    case NEGOTIATE_FX_TELL_BASE: lanes->worker->count->lanes_demoted++; break;
    case NEGOTIATE_N_EFFECTS: break;
    }
}

static void negotiate_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct bargain *b = list_of(m, struct bargain, n.fsm);
    const char *name = weft__negotiate_machine.event_name[event];
    if (why == FSM_VIOL) {
        weft__link_violation(b->link, name);
        return;
    }
    weft__log(b->lanes->worker->context, WEFT_LOG_ERROR, "endpoints", "negotiation: %s in %s", name,
              fsm_state_name(m));
    weft__link_lose(b->link, WEFT_ERR_INTERNAL);
}

/* ---- while it is fast: is it still worth it, and does the peer know? -------------------------------------------------- */

static bool is_idle(const struct lanes *lanes, uint64_t score) {
    uint64_t floor = weft__setting_u64(lanes->worker->context, SETTING_LANES_FLOOR);
    return weft__usage_beats(lanes->worker->tracking->usage, floor, score);
}

/* The tracker took its place away. Unless another link is about to have it, it may as well stay, while it carries something. */
static bool is_to_go(struct bargain *b) {
    struct usage *usage = usage_of(b);
    if (weft__usage_promoted(usage, b->link)) return false;
    if (is_idle(b->lanes, weft__usage_score(usage, b->link))) return true;
    return !b->lanes->awaits[b->kind] && !adopt(b);
}

static void review(struct bargain *b) {
    uint64_t seen = weft__usage_seen(usage_of(b), b->link);
    if (is_to_go(b)) {
        step(b, NEGOTIATE_EV_DEMOTE);
        return;
    }
    if (seen / 2 > b->told || seen < b->told / 2) say_score(b);
    wait(b, b->lanes->review);
}

/* Its lane has come, or has not, and that is told before the turn is over: it is no use to call it off. */
static bool is_decided(const struct bargain *b) {
    unsigned joining = 1u << NEGOTIATE_DIALING | 1u << NEGOTIATE_EXPECT;
    return (joining >> b->n.fsm.state & 1) && !weft__switch_expects(b->link);
}

static void due(struct timer *timer) {
    struct bargain *b = list_of(timer, struct bargain, timer);
    if (b->n.settled)
        review(b);
    else if (!is_decided(b))
        step(b, NEGOTIATE_EV_TIMEOUT);
}

/* ---- bargains --------------------------------------------------------------------------------------------------------- */

/* Whose questions have odd epochs. */
static bool is_odd(const struct link *link) {
    return link->worker->id < link->peer;
}

static struct bargain *bargain_with(struct link *link) {
    struct lanes *lanes = link->worker->lanes;
    if (link->more->bargain) return link->more->bargain;
    struct reactor *r = lanes->worker->reactor;
    struct bargain *b = weft__link_more(link) ? weft__new(lanes, struct bargain) : NULL;
    if (!b) return NULL;
    b->timer.fire = due;
    if (weft__timer_start(r, &b->timer, UINT64_MAX) < 0) {
        talloc_free(b);
        return NULL;
    }
    weft__timer_stop(r, &b->timer);
    b->later.run = run_later;
    b->lanes = lanes;
    b->link = link;
    b->n.odd = is_odd(link);
    b->n.epoch = link->denied_epoch;
    fsm_init(&b->n.fsm, &negotiate_port, NEGOTIATE_BASE, (uint32_t)(uintptr_t)link);
    list_append(&lanes->bargains, &b->of_worker);
    return link->more->bargain = b;
}

void weft__lanes_end(struct link *link) {
    struct bargain *b = link->more->bargain;
    if (!b) return;
    struct reactor *r = link->worker->reactor;
    weft__usage_forget(usage_of(b), link);
    link->more->bargain = NULL;
    list_remove(&b->of_worker);
    weft__job_drop(r, &b->later);
    step(b, NEGOTIATE_EV_CLOSE);
    if (weft__lanes_leave(b)) serve_next(b->lanes);
    weft__timer_stop(r, &b->timer);
    weft__bury(r, b);
}

/* ---- the tracker's wishes --------------------------------------------------------------------------------------------- */

static bool may_ask(const struct lanes *lanes, const struct link *link) {
    const struct bargain *b = link->more->bargain;
    if (lanes->worker->core.fsm.state != WORKER_OPEN || link->core.fsm.state != LINK_UP) return false;
    if (!(link->peer_flags & WIRE_HELLO_LANES) || link->more->main || link->peer == lanes->worker->id) return false;
    if (b && (b->n.fsm.state != NEGOTIATE_BASE || weft__negotiate_next(&b->n) == 0)) return false;
    return weft__lanes_kind(lanes, link, b ? b->banned : 0) >= 0;
}

static bool eligible(void *key, void *arg) {
    return may_ask(arg, key);
}

static bool promote(void *key, uint64_t score, void *arg) {
    struct lanes *lanes = arg;
    struct link *link = key;
    struct bargain *b = bargain_with(link);
    if (!b) return false;
    int kind = weft__lanes_kind(lanes, link, b->banned);
    enum negotiate_answer answer = weft__lanes_answer(lanes, (uint8_t)kind, score);
    if ((answer != ANSWER_FITS && answer != ANSWER_ROOM) || !weft__lanes_token(lanes)) return false;
    b->kind = (uint8_t)kind;
    step(b, answer == ANSWER_FITS ? NEGOTIATE_EV_WANT : NEGOTIATE_EV_WANT_ROOM);
    return true;
}

/* One that others replace keeps its lane until one of them is about to have it: see is_to_go. */
static void demote(void *key, uint64_t score, void *arg) {
    struct bargain *b = ((struct link *)key)->more->bargain;
    if (!b) return;
    bool fast = b->n.fsm.state == NEGOTIATE_FAST, asks = b->n.fsm.state < NEGOTIATE_DIALING;
    if (asks || (fast && b->n.settled && is_idle(arg, score))) step(b, NEGOTIATE_EV_DEMOTE);
}

/* ---- what the peer says ----------------------------------------------------------------------------------------------- */

/* 0: it is reached; or why not. What only lacks memory, at either side, is no reason never to ask again. */
static enum lane_denial way_to(struct iface *iface, const void *address, uint8_t len) {
    const char *why;
    weft_status_t st = len ? iface->ops->reachable(iface, address, len, &why) : WEFT_ERR_NO_MEMORY;
    if (st >= 0) return 0;
    return st == WEFT_ERR_NO_MEMORY ? LANE_DENIED_MEMORY : LANE_DENIED_UNREACHABLE;
}

static enum lane_denial kind_asked_for(struct bargain *b, const struct lane_ask *ask) {
    struct weft_worker *worker = b->lanes->worker;
    struct iface *iface = weft__worker_iface(worker, ask->name, ask->name_len);
    uint8_t kind = 0;
    if (!iface || !weft__lanes_is_kind(b->link, iface)) return LANE_DENIED_UNREACHABLE;
    while (worker->iface[kind] != iface) kind++;
    if (b->lanes->capacity[kind] == 0) return LANE_DENIED_UNREACHABLE;
    b->kind = kind;
    return way_to(iface, ask->address, ask->len);
}

/* What one direction carries only its sender sees in full: the peer's score counts as this side's. */
static enum negotiate_event weigh(struct bargain *b, const struct lane_ask *ask) {
    struct lanes *lanes = b->lanes;
    unsigned quiet = 1u << NEGOTIATE_BASE | 1u << NEGOTIATE_REST;
    b->n.why = LANE_DENIED_BUSY;
    if (!(quiet >> b->n.fsm.state & 1) || lanes->worker->core.fsm.state != WORKER_OPEN) return NEGOTIATE_EV_ASK_NO;
    enum lane_denial why = kind_asked_for(b, ask);
    if (why) {
        b->n.why = (uint8_t)why;
        return NEGOTIATE_EV_ASK_NO;
    }
    hear_score(b, ask->score);
    enum negotiate_answer answer = weft__lanes_answer(lanes, b->kind, weft__usage_score(usage_of(b), b->link));
    if (answer == ANSWER_FULL) b->n.why = LANE_DENIED_FULL;
    if (answer == ANSWER_FULL || answer == ANSWER_BUSY || !weft__lanes_token(lanes)) return NEGOTIATE_EV_ASK_NO;
    return answer == ANSWER_FITS ? NEGOTIATE_EV_ASK_FITS : NEGOTIATE_EV_ASK_ROOM;
}

static void question_heard(struct bargain *b, const struct lane_ask *ask) {
    enum negotiate_worth worth = weft__negotiate_question(&b->n, ask->epoch);
    if (worth == WORTH_A_VIOLATION) weft__link_violation(b->link, "a question out of turn");
    if (worth != WORTH_HEARING) return;
    if (b->n.fsm.state == NEGOTIATE_ASKED) {
        weft__usage_release(usage_of(b), b->link);
        step(b, NEGOTIATE_EV_YIELD);
    }
    b->n.epoch = ask->epoch;
    step(b, weigh(b, ask));
}

static void grant_heard(struct bargain *b, const struct lane_grant *grant) {
    if (b->n.fsm.state != NEGOTIATE_ASKED) {
        step(b, NEGOTIATE_EV_GRANT);
        return;
    }
    enum lane_denial why = way_to(iface_of(b), grant->address, grant->len);
    if (why) {
        if (why == LANE_DENIED_UNREACHABLE) b->banned |= 1u << b->kind;
        step(b, NEGOTIATE_EV_GRANT_NO);
        return;
    }
    b->number = grant->number;
    b->address_len = grant->len;
    memcpy(b->address, grant->address, grant->len);
    step(b, b->n.place == PLACE_HELD ? NEGOTIATE_EV_GRANT : NEGOTIATE_EV_GRANT_ROOM);
}

static void denial_heard(struct bargain *b, const struct lane_deny *deny) {
    if (b->n.fsm.state == NEGOTIATE_ASKED) {
        b->wait_ms = deny->wait_ms;
        if (deny->why == LANE_DENIED_UNREACHABLE) b->banned |= 1u << b->kind;
    }
    step(b, NEGOTIATE_EV_DENY);
}

/* Once the lane is lost, or nobody's, it says nothing any more. */
static void score_heard(struct bargain *b, const struct lane_score *score) {
    unsigned there = 1u << NEGOTIATE_MOVING | 1u << NEGOTIATE_FAST;
    if (there >> b->n.fsm.state & 1) hear_score(b, score->score);
}

/* Of a word that is no question: is it about the last one? */
static bool is_worth_hearing(struct link *link, uint32_t epoch) {
    struct negotiation denied = {.epoch = link->denied_epoch};
    const struct bargain *b = link->more->bargain;
    enum negotiate_worth worth = weft__negotiate_word(b ? &b->n : &denied, epoch);
    if (worth == WORTH_HEARING && !b) return false; /* it was denied, and is withdrawn */
    if (worth == WORTH_A_VIOLATION) weft__link_violation(link, "an answer without a question");
    return worth == WORTH_HEARING;
}

/* There is no memory to bargain with: only the epoch is kept, which the next question is held against. */
static void deny_at_once(struct link *link, uint32_t epoch) {
    struct negotiation n = {.epoch = link->denied_epoch, .odd = is_odd(link)};
    enum negotiate_worth worth = weft__negotiate_question(&n, epoch);
    if (worth == WORTH_A_VIOLATION) weft__link_violation(link, "a question out of turn");
    if (worth != WORTH_HEARING) return;
    link->denied_epoch = epoch;
    say_deny(link, epoch, LANE_DENIED_MEMORY, link->worker->lanes->rest);
}

static void hear_ask(struct link *link, const void *data, size_t len) {
    struct lane_ask ask;
    if (!weft__lane_read_ask(data, len, &ask)) {
        weft__link_violation(link, "a question about lanes");
        return;
    }
    struct bargain *b = bargain_with(link);
    if (b)
        question_heard(b, &ask);
    else
        deny_at_once(link, ask.epoch);
}

void weft__lanes_heard(struct link *link, struct lane *lane, const void *data, size_t len) {
    enum lane_kind kind = weft__lane_kind(data, len);
    struct lane_grant grant;
    struct lane_deny deny;
    struct lane_score score;
    struct lane_one one;
    bool read = false;
    if (!link->worker->lanes || link->more->main || link->peer == link->worker->id)
        weft__link_violation(link, "a word about lanes");
    else if (kind == LANE_ASK)
        hear_ask(link, data, len);
    else if (kind == LANE_GRANT && (read = weft__lane_read_grant(data, len, &grant))) {
        if (is_worth_hearing(link, grant.epoch)) grant_heard(link->more->bargain, &grant);
    } else if (kind == LANE_DENY && (read = weft__lane_read_deny(data, len, &deny))) {
        if (is_worth_hearing(link, deny.epoch)) denial_heard(link->more->bargain, &deny);
    } else if (kind == LANE_SCORE && (read = weft__lane_read_score(data, len, &score))) {
        if (is_worth_hearing(link, score.epoch)) score_heard(link->more->bargain, &score);
    } else if ((kind == LANE_CANCEL || kind == LANE_BACK) && (read = weft__lane_read_one(data, len, &one))) {
        enum negotiate_event event = kind == LANE_CANCEL ? NEGOTIATE_EV_CANCEL : NEGOTIATE_EV_BACK;
        if (!is_worth_hearing(link, one.epoch)) return;
        if (event != NEGOTIATE_EV_CANCEL || !is_decided(link->more->bargain)) step(link->more->bargain, event);
    } else if (!read)
        weft__link_violation(link, "a word about lanes");
}

/* ---- what switch.c tells ---------------------------------------------------------------------------------------------- */

void weft__lanes_joined(struct link *link) {
    if (!link->more->bargain) return;
    link->more->bargain->other = link->lanes[1];
    step(link->more->bargain, NEGOTIATE_EV_JOINED);
}

void weft__lanes_join_failed(struct link *link, weft_status_t status) {
    if (link->more->bargain) step(link->more->bargain, NEGOTIATE_EV_FAILED);
}

void weft__lanes_going_back(struct link *link) {
    if (link->more->bargain && link->more->bargain->n.fsm.state == NEGOTIATE_FAST)
        step(link->more->bargain, NEGOTIATE_EV_BACK);
}

void weft__lanes_switched(struct link *link) {
    if (link->more->bargain) step(link->more->bargain, NEGOTIATE_EV_SWITCHED);
}

void weft__lanes_lost(struct link *link, struct lane *lane, weft_status_t status) {
    struct bargain *b = link->more->bargain;
    if (!b) return;
    if (link->lanes[0] == b->other) weft__lanes_stay(b);
    step(b, NEGOTIATE_EV_LOST);
}

/* ---- life ------------------------------------------------------------------------------------------------------------- */

uint16_t weft__lanes_hello(const struct link *link) {
    return link->worker->lanes && !link->more->main ? WIRE_HELLO_LANES : 0;
}

static uint32_t least(uint64_t a, uint64_t b) {
    uint64_t n = a < b ? a : b;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* By kind, and together as many as the tracker promotes. Where there are scarce lanes, only those are worth a switch. */
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
    list_init(&lanes->bargains);
    count_capacity(lanes);
    lanes->rest = weft__setting_u64(context, SETTING_LANES_REST) * NS_PER_MS;
    lanes->rest_most = weft__setting_u64(context, SETTING_LANES_REST_MOST) * NS_PER_MS;
    lanes->patience = weft__setting_u64(context, SETTING_LANES_ANSWER) * NS_PER_MS;
    lanes->residence = weft__setting_u64(context, SETTING_LANES_RESIDENCE) * NS_PER_MS;
    lanes->review = weft__setting_u64(context, SETTING_LANES_TICK) * NS_PER_MS * 4;
    lanes->rate = (double)weft__setting_u64(context, SETTING_LANES_SWITCHES);
    lanes->tokens = 2 * lanes->rate;
    lanes->filled = weft__now(worker->reactor);
    worker->lanes = lanes;
    weft__tracking_hook(
        worker, &(struct usage_hooks){.eligible = eligible, .promote = promote, .demote = demote, .arg = lanes});
    return WEFT_OK;
}
