/* The port of the switch machine: lanes, words for the peer, and who is told. */
#include "switch.h"

#include <reactor/counters.h>
#include <reactor/mutant.h>

#include "lane_wire.h"
#include "live.h"
#include "negotiate.h"
#include "retain.h"
#include "switch_local.h"
#include "worker.h"

/* ---- the machine's effects: noted in the step, carried out after it */

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

static void step(struct switching *s, enum switch_event event) {
    fsm_step(&s->core.fsm, event);
    weft__switch_run(s);
}

static void run_job(struct job *job) {
    weft__switch_run(switching_of_job(job));
}

/* ---- words for the peer: by the lane in use, past all that waits for it */

static weft_status_t say_drained(struct switching *s) {
    struct wire_message m;
    weft__lane_one(&m, LANE_DRAINED, s->core.epoch_in);
    weft_status_t st = weft__lane_say(s->lane[s->core.out], &m);
    if (st == WEFT_OK) s->drained_due = false;
    return st;
}

static weft_status_t say_end(struct switching *s) {
    struct wire_message m;
    weft__lane_end(&m, (struct lane_end){.epoch = s->core.epoch_out + 1, .sent = s->link->sent});
    weft_status_t st = weft__lane_say(s->lane[s->core.out], &m);
    if (st != WEFT_OK && !WEFT_MUTANT(switch_end_early)) return st;
    s->end_due = false;
    switch_due(s, SWITCH_DUE_MARKED);
    return WEFT_OK;
}

static void wait_no_more(struct switching *s) {
    if (s->pending_at) s->pending_at->ops->pending_remove(s->pending_at, &s->pending);
    s->pending_at = NULL;
}

/* A lane that takes no words at all is about to say that it is lost; one that lacks memory for them says nothing. */
static weft_status_t say_words(struct switching *s) {
    weft_status_t st = WEFT_OK;
    if (s->drained_due) st = say_drained(s);
    if (s->end_due && st == WEFT_OK) st = say_end(s);
    if (st == WEFT_ERR_NO_MEMORY) weft__link_half_told(s->link, st);
    return st;
}

static void say_what_is_due(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    if (say_words(s) != WEFT_NO_RESOURCE || s->pending_at == lane) return;
    wait_no_more(s);
    s->pending_at = lane;
    lane->ops->pending_add(lane, &s->pending);
}

static weft_status_t room(struct pending *pending) {
    struct switching *s = list_of(pending, struct switching, pending);
    if (say_words(s) == WEFT_NO_RESOURCE) return WEFT_NO_RESOURCE;
    s->pending_at = NULL; /* it is out of the queue */
    weft__switch_run(s);
    return WEFT_OK;
}

/* ---- lanes */

static uint8_t index_of(const struct switching *s, const struct lane *lane) {
    return s->lane[0] == lane ? 0 : 1;
}

static void hear(struct lane *lane, const lane_am_fn *handlers) {
    lane->ops->hear(lane, handlers);
}

/* Its messages wait until it is the lane to be read. */
static void hold(struct switching *s, uint8_t i) {
    s->heard_by[i] = s->lane[i]->handlers;
    hear(s->lane[i], weft__switch_holds);
}

/* The link's own machine looks after the lane that stays. */
static void swap_keepers(struct link *link, struct link *companion) {
    struct lane *lane = link->lanes[0];
    link->lanes[0] = companion->lanes[0];
    companion->lanes[0] = companion->lane = companion->tx = lane;
    companion->at = companion->home = weft__worker_number(link->worker, lane->iface);
}

/* The link is without this lane; the companion, which has it, is nobody's any more, and to be closed. */
static struct link *detach(struct switching *s, uint8_t i) {
    struct link *link = s->link, *companion = s->companion;
    struct lane *lane = s->lane[i];
    if (link->lanes[0] == lane) swap_keepers(link, companion);
    if (s->pending_at == lane) wait_no_more(s);
    if (s->bound.old == lane) s->bound.old = NULL;
    hear(lane, s->heard_by[i]);
    s->heard_by[i] = NULL;
    lane->owner = companion;
    weft__retain_follow(link, lane, companion);
    companion->more->main = NULL;
    s->companion = NULL;
    s->lane[i] = NULL;
    link->lanes[1] = NULL;
    link->n_lanes = 1;
    return companion;
}

/* Before its lane has joined. */
static struct link *dismiss(struct switching *s) {
    struct link *companion = s->companion;
    companion->more->main = NULL;
    s->companion = NULL;
    return companion;
}

static bool has_joined(const struct switching *s) {
    return s->lane[0] && s->lane[1];
}

/* ---- what effects do */

static unsigned log2_of(uint64_t n) {
    return n ? 63 - (unsigned)__builtin_clzll(n) : 0;
}

/* The sender stood still for this long. */
static void count_pause(struct switching *s, uint64_t since) {
    struct counters *count = s->link->worker->count;
    uint64_t ns = weft__now(s->link->worker->reactor) - since;
    unsigned i = log2_of(ns >> 10); /* about microseconds */
    if (ns > count->switch_pause_max) count->switch_pause_max = ns;
    uint64_t *const buckets[] = {&count->switch_pause_0, &count->switch_pause_1, &count->switch_pause_2,
                                 &count->switch_pause_3, &count->switch_pause_4, &count->switch_pause_5,
                                 &count->switch_pause_6, &count->switch_pause_7};
    unsigned most = sizeof buckets / sizeof *buckets - 1;
    ++*buckets[ns >> 10 == 0 ? 0 : i / 2 + 1 < most ? i / 2 + 1 : most];
}

/* The one that was heard so far waits from now on, and what has waited is delivered. */
static void take(struct switching *s) {
    uint8_t in = s->core.in;
    if (s->lane[in ^ 1]) hold(s, in ^ 1);
    s->taking = true;
    weft__switch_deliver(s);
    s->taking = false;
    if (s->core.fsm.state == SWITCH_OVER) return;
    if (s->lane[in]) hear(s->lane[in], s->heard_by[in]);
    s->heard_by[in] = NULL;
    s->drained_due = !WEFT_MUTANT(switch_drained_untold);
    say_what_is_due(s);
}

static void mark(struct switching *s) {
    s->paused_at = weft__now(s->link->worker->reactor);
    weft__link_pause(s->link);
    s->end_due = true;
    say_what_is_due(s);
}

static void cross(struct switching *s) {
    struct lane *lane = s->lane[s->core.out];
    weft__bound_init(&s->bound, s->link, lane, s->lane[s->core.out ^ 1]);
    weft__link_carry(s->link, &s->bound.lane);
    s->link->more->rate = s->link->more->rate_last = 0; /* which was the other lane's */
    count_pause(s, s->paused_at);
    s->paused_at = 0;
    s->link->worker->count->switches++;
    weft__switch_unhush(s, NULL);
}

static void set_free(struct switching *s) {
    if (s->bound.full_at) count_pause(s, s->bound.full_at);
    weft__link_carry(s->link, s->bound.raw);
    s->bound = (struct bound){0};
}

static void resume(struct switching *s) {
    s->end_due = false;
    s->todo &= ~(UINT32_C(1) << SWITCH_DUE_QUIET);
    if (s->paused_at) weft__link_carry(s->link, s->lane[s->core.out]);
    s->paused_at = 0;
    weft__switch_unhush(s, s->lost);
}

/* The lane that we sent on is gone; link->lanes[0] is the one that is left. */
static void mute(struct switching *s) {
    s->end_due = s->drained_due = false;
    wait_no_more(s);
    weft__link_pause(s->link);
    s->link->lane = s->link->lanes[0];
    s->bound = (struct bound){0};
    weft__switch_unhush(s, s->lost);
}

static void part(struct switching *s) {
    uint8_t left = s->core.out ^ 1;
    if (s->lane[left]) weft__link_close(detach(s, left));
}

static void do_effect(struct switching *s, unsigned effect) {
    switch (effect) {
    case SWITCH_FX_TAKE: take(s); break;
    case SWITCH_FX_HUSH: weft__switch_hush(s); break;
    case SWITCH_FX_MARK: mark(s); break;
    case SWITCH_FX_CROSS: cross(s); break;
    case SWITCH_FX_FREE: set_free(s); break;
    case SWITCH_FX_RESUME: resume(s); break;
    case SWITCH_FX_HANG_UP: weft__link_close(dismiss(s)); break;
    case SWITCH_FX_MUTE: mute(s); break;
    case SWITCH_FX_PART: part(s); break;
    case SWITCH_FX_TELL_JOINED: weft__lanes_joined(s->link); break;
    case SWITCH_FX_TELL_FAILED: weft__lanes_join_failed(s->link, s->status); break;
    case SWITCH_FX_TELL_SWITCHED: weft__lanes_switched(s->link); break;
    case SWITCH_FX_TELL_LOST: weft__lanes_lost(s->link, s->lost, s->status); break;
    case SWITCH_FX_LOSE: weft__link_lose(s->link, s->status < 0 ? s->status : WEFT_ERR_PEER_FAILED); break;
    case SWITCH_DUE_QUIET: fsm_step(&s->core.fsm, SWITCH_EV_QUIET); break;
    case SWITCH_DUE_MARKED: fsm_step(&s->core.fsm, SWITCH_EV_MARKED); break;
    case SWITCH_DUE_VIOLATION: weft__link_violation(s->link, "a word about lanes"); break;
    }
}

/* Whoever is called by one of them may make others due; they come in their turn. */
void weft__switch_run(struct switching *s) {
    if (s->running) return;
    s->running = true;
    while (s->todo) {
        unsigned effect = (unsigned)__builtin_ctz(s->todo);
        s->todo &= s->todo - 1;
        do_effect(s, effect);
    }
    s->running = false;
    if (s->link) weft__live_note(s->link);
    if (s->core.fsm.state == SWITCH_OVER) weft__hold_clear(&s->hold);
}

/* ---- asked for */

static struct switching *switching_of(struct link *link) {
    struct switching *s = link->more->switching;
    if (s || !weft__link_more(link)) return s;
    s = weft__new(link->worker, struct switching);
    if (!s) return NULL;
    s->link = link;
    s->lane[0] = link->lanes[0];
    s->job.run = run_job;
    s->pending.retry = room;
    weft__switch_init(&s->core, &switch_port, link->core.fsm.id);
    link->more->switching = s;
    return s;
}

static weft_status_t may_join(struct link *link) {
    if (link->core.fsm.state != LINK_UP || link->more->main) return WEFT_ERR_CLOSED;
    struct switching *s = switching_of(link);
    if (!s) return WEFT_ERR_NO_MEMORY;
    return s->core.fsm.state == SWITCH_ALONE ? WEFT_OK : WEFT_ERR_BUSY;
}

weft_status_t weft__switch_expect(struct link *link, uint32_t number) {
    weft_status_t st = may_join(link);
    if (st < 0) return st;
    link->more->switching->number = number;
    step(link->more->switching, SWITCH_EV_EXPECT);
    return WEFT_OK;
}

static weft_status_t dial(struct iface *iface, const void *address, size_t len, bool scarce, struct lane **lane_p) {
    if (!scarce) return iface->ops->connect(iface, address, len, lane_p);
    return iface->ops->connect_scarce ? iface->ops->connect_scarce(iface, address, len, lane_p)
                                      : WEFT_ERR_UNSUPPORTED;
}

weft_status_t weft__switch_dial(struct link *link, struct iface *iface, const void *address, size_t len,
                                bool scarce, uint32_t number) {
    struct lane *lane;
    struct link *companion;
    weft_status_t st = may_join(link);
    if (st == WEFT_OK) st = dial(iface, address, len, scarce, &lane);
    if (st == WEFT_OK) st = weft__link_dial(link->worker, lane, link->peer, NULL, "another lane", &companion);
    if (st < 0) return st;
    companion->flags = WIRE_HELLO_EXTRA | WIRE_HELLO_LANE;
    if (!weft__link_more(companion)) {
        weft__link_close(companion);
        return WEFT_ERR_NO_MEMORY;
    }
    companion->listener = number;
    companion->more->main = link;
    link->more->switching->companion = companion;
    step(link->more->switching, SWITCH_EV_DIAL);
    return WEFT_OK;
}

bool weft__switch_expects(const struct link *link) {
    unsigned expects = 1u << SWITCH_EXPECTING | 1u << SWITCH_DIALING;
    return link->more->switching && (expects >> link->more->switching->core.fsm.state & 1);
}

void weft__switch_cancel(struct link *link) {
    if (!link->more->switching) return;
    link->more->switching->number = 0;
    step(link->more->switching, SWITCH_EV_CANCEL);
}

/* A switch is under way, to a lane that is not the base lane: the one beside, or the one that we have already gone to. */
static bool leads_away(const struct switch_core *c) {
    switch (c->fsm.state) {
    case SWITCH_LEAD_QUIET:
    case SWITCH_LEAD_MARK:
    case SWITCH_FOLLOW_QUIET:
    case SWITCH_FOLLOW_MARK: return c->out == c->base;
    default: return c->out != c->base;
    }
}

weft_status_t weft__switch_back(struct link *link) {
    struct switching *s = link->more->switching;
    if (!s || !has_joined(s)) return WEFT_ERR_NOT_FOUND;
    if (s->core.fsm.state != SWITCH_BESIDE) return leads_away(&s->core) ? WEFT_ERR_BUSY : WEFT_OK;
    if (s->core.out == s->core.base) return WEFT_ERR_BUSY; /* the dialer has not moved yet */
    step(s, SWITCH_EV_MOVE);
    return WEFT_OK;
}

/* ---- the other lane */

static bool expects(const struct link *link, const struct wire_hello *hello) {
    const struct switching *s = link->more->switching;
    return link->peer == hello->worker && link->core.fsm.state == LINK_UP && s &&
           s->core.fsm.state == SWITCH_EXPECTING && s->number && s->number == hello->listener;
}

bool weft__switch_greets(struct link *guest, const struct wire_hello *hello) {
    struct list *links = &guest->worker->links;
    for (struct list *n = links->next; n != links; n = n->next) {
        struct link *link = list_of(n, struct link, of_worker);
        if (link == guest || !expects(link, hello)) continue;
        link->more->switching->number = 0;
        link->more->switching->companion = guest;
        guest->more->main = link;
        guest->listener = 0;
        return true;
    }
    return false;
}

/* Within a step of the companion: the link's own may come to its end over what follows, and the companion with it. */
void weft__switch_up(struct link *companion) {
    struct link *link = companion->more->main;
    struct switching *s = link->more->switching;
    struct lane *lane = companion->lanes[0];
    uint8_t i = s->core.out ^ 1;
    s->lane[i] = link->lanes[1] = lane;
    link->n_lanes = 2;
    lane->owner = link;
    s->core.base = s->lane[i ^ 1]->scarce && !lane->scarce ? i : i ^ 1;
    weft__hold_clear(&s->hold);
    hold(s, i);
    fsm_step(&s->core.fsm, SWITCH_EV_JOINED);
    weft__job_post(link->worker->reactor, &s->job);
}

/* Its machine's end is what the lane's is. */
static void companion_ends(struct link *companion) {
    struct switching *s = companion->more->main->more->switching;
    s->status = companion->status < 0 ? companion->status : WEFT_ERR_PEER_FAILED;
    if (has_joined(s)) {
        uint8_t i = index_of(s, companion->lanes[0]);
        enum switch_event event = weft__switch_loss_is(&s->core, i, false);
        s->lost = companion->lanes[0];
        if (event == SWITCH_EV_OTHER_LOST) (void)detach(s, i);
        fsm_step(&s->core.fsm, event);
    } else {
        (void)dismiss(s);
        fsm_step(&s->core.fsm, SWITCH_EV_FAILED);
    }
    weft__job_post(s->link->worker->reactor, &s->job);
}

void weft__switch_lane_down(struct link *link, struct lane *lane, weft_status_t status) {
    struct switching *s = link->more->switching;
    if (s->core.fsm.state == SWITCH_OVER) {
        weft__link_lose(link, status);
        return;
    }
    uint8_t i = index_of(s, lane);
    enum switch_event event = weft__switch_loss_is(&s->core, i, status == WEFT_ERR_PEER_CLOSED);
    if (s->pending_at == lane) s->pending_at = NULL; /* purged */
    s->status = status;
    s->lost = lane;
    if (event == SWITCH_EV_USED_LOST) {
        step(s, event);
        return;
    }
    struct link *companion = detach(s, i);
    if (event == SWITCH_EV_OLD_CLOSED) {
        s->peer_left = true;
        weft__switch_unhush(s, lane);
    }
    step(s, event);
    weft__link_lose(companion, status);
}

/* Closed by us, both have gone home. Closed by the peer, which closes only what it has read to the end: the word that says so may be
 * under way by the other lane. */
bool weft__switch_has_left(const struct link *link, weft_status_t status) {
    if (!link || !link->more->switching || link->core.fsm.state != LINK_UP) return false;
    const struct switching *s = link->more->switching;
    return status == WEFT_ERR_CANCELLED ||
           (status == WEFT_ERR_PEER_CLOSED && (s->peer_left || s->core.fsm.state == SWITCH_FOLLOW_SENT));
}

/* ---- words from the peer */

static void heard_end(struct switching *s, struct lane *lane, const void *data, size_t len) {
    struct lane_end end;
    enum switch_event event = SWITCH_EV_END_WRONG;
    if (weft__lane_read_end(data, len, &end) && end.sent >= s->sent_there && !s->taking) {
        event = weft__switch_end_is(&s->core, index_of(s, lane), end.epoch);
        s->sent_there = end.sent;
    }
    /* It goes home past the word that says so, which waits with all else. */
    if (event == SWITCH_EV_END_HOME && !WEFT_MUTANT(switch_back_untold) && s->core.fsm.state == SWITCH_BESIDE)
        weft__lanes_going_back(s->link);
    step(s, event);
}

static void heard_drained(struct switching *s, const void *data, size_t len) {
    struct lane_one one;
    bool read = weft__lane_read_one(data, len, &one);
    step(s, read ? weft__switch_drained_is(&s->core, one.epoch) : SWITCH_EV_DRAINED_WRONG);
}

void weft__switch_heard(struct link *link, struct lane *lane, const void *data, size_t len) {
    struct switching *s = link->more->switching;
    if (!s)
        weft__link_violation(link, "a word about lanes");
    else if (weft__lane_kind(data, len) == LANE_END)
        heard_end(s, lane, data, len);
    else
        heard_drained(s, data, len);
}

/* ---- the end */

void weft__switch_end(struct link *link, bool abort) {
    struct switching *s = link->more->switching;
    if (link->more->main && !(link->flags & WIRE_HELLO_RAIL)) companion_ends(link);
    if (!s) return;
    fsm_step(&s->core.fsm, SWITCH_EV_CLOSE);
    s->todo = 0;
    if (!s->running) weft__hold_clear(&s->hold);
    weft__job_drop(link->worker->reactor, &s->job);
    wait_no_more(s);
    if (link->tx == &s->bound.lane) link->tx = link->lanes[0];
    if (link->lane == &s->bound.lane) link->lane = link->lanes[0]; /* which answers that it is closed */
    if (!s->companion) return;
    struct link *companion = has_joined(s) ? detach(s, index_of(s, s->companion->lanes[0])) : dismiss(s);
    if (abort)
        weft__link_lose(companion, link->status);
    else
        weft__link_close(companion);
}

void weft__switch_free(struct link *link) {
    struct switching *s = link->more->switching;
    if (!s) return;
    weft__job_drop(link->worker->reactor, &s->job);
    s->link = NULL;
    link->more->switching = NULL;
    if (!s->flushing) talloc_free(s);
}
