/* The lanes below a link that outlives them: the port of resume.fsm. */
#include <assert.h>
#include <reactor/counters.h>
#include <reactor/mutant.h>

#include "introduce.h"
#include "rails.h"
#include "retain.h"
#include "rkey.h"
#include "worker.h"

static struct retain *of_fsm(struct fsm *m) {
    return list_of(m, struct retain, core.fsm);
}
static struct reactor *reactor_of(const struct retain *r) {
    return r->link->worker->reactor;
}
static void step(struct retain *r, enum resume_event event) {
    fsm_step(&r->core.fsm, event);
}
/* What follows from within a step comes in a turn of its own. */
static void later(struct retain *r) {
    weft__job_post(reactor_of(r), &r->job);
}

bool weft__retain_is_for(const struct iface *iface) {
    return iface->attr.caps & CAP_INTER_NODE;
}

/* ---- lanes ------------------------------------------------------------------------------------------------------ */

static void not_heard(struct lane *raw, const void *data, size_t len) {}
static const lane_am_fn nothing_is_heard[LANE_AM_IDS] = {[0 ... LANE_AM_IDS - 1] = not_heard};

/* The worker waits for its last word. */
static void drop(struct lane *raw) {
    raw->owner = NULL;
    raw->ops->hear(raw, nothing_is_heard);
    raw->ops->close(raw, false);
}

static void drop_lane(struct retain *r) {
    struct lane *raw = r->raw;
    if (!raw) return;
    weft__retain_end_run(r);
    r->lane.ops = &weft__retain_ops_shut;
    r->raw = NULL;
    if (r->waits) raw->ops->pending_remove(raw, &r->raw_pending);
    r->waits = false;
    r->asked = false;
    r->link->worker->n_lanes++; /* the link's own place is for the next */
    drop(raw);
    weft__retain_land_lost(r);
}

static void drop_fresh(struct retain *r) {
    struct lane *fresh = r->fresh;
    weft__timer_stop(reactor_of(r), &r->due);
    r->fresh = NULL;
    r->missed = false;
    if (fresh) drop(fresh);
}

/* On a lane that has not greeted, anything else breaks it. */
static void said_too_early(struct lane *fresh, const void *data, size_t len) {
    struct link *link = fresh->owner;
    if (!link) return;
    link->more->retain->missed = true;
    later(link->more->retain);
}
static void greeted(struct lane *fresh, const void *data, size_t len);
static const lane_am_fn greeting_is_heard[LANE_AM_IDS] = {[0 ... WIRE_HELLO - 1] = said_too_early,
                                                          [WIRE_HELLO] = greeted,
                                                          [WIRE_HELLO + 1 ... LANE_AM_IDS - 1] = said_too_early};

static void take_fresh(struct retain *r, struct lane *fresh, const lane_am_fn *hears) {
    fresh->owner = r->link;
    fresh->ops->hear(fresh, hears);
    r->link->worker->n_lanes++;
    r->fresh = fresh;
}

static weft_status_t dial_lane(struct retain *r, struct lane **lane_p) {
    const struct iface_ops *ops = r->iface->ops;
    if (r->link->uri) return ops->connect_uri(r->iface, strstr(r->link->uri, "://") + 3, lane_p);
    return ops->connect(r->iface, r->address, r->address_len, lane_p);
}

static void again(struct retain *r);
static void due(struct timer *timer);

static void dial(struct retain *r) {
    struct lane *fresh;
    weft_status_t st = dial_lane(r, &fresh);
    if (st == WEFT_OK) take_fresh(r, fresh, greeting_is_heard);
    uint64_t until = weft__now(reactor_of(r)) + RETAIN_TRY;
    if (st == WEFT_OK && weft__timer_start(reactor_of(r), &r->due, until) == WEFT_OK) return;
    r->missed = true;
    later(r);
}

/* The first lane, once more: the link greets by it as by any that it dialed. */
static void dial_anew(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, due);
    struct lane *lane;
    timer->fire = due;
    weft_status_t st = dial_lane(r, &lane);
    if (st < 0) {
        weft__link_lose(r->link, st);
        return;
    }
    r->raw = lane;
    r->lane.iface = lane->iface;
    r->lane.ops = &weft__retain_ops_open;
    weft__retain_hear(r, lane);
}

void weft__retain_anew(struct link *link) {
    struct retain *r = link->more->retain;
    drop_lane(r);
    r->due.fire = dial_anew;
    again(r);
}

/* Behind the greeting, which is the last that was said on the lane, comes what is sent again. */
static void adopt(struct retain *r) {
    struct link *link = r->link;
    weft__timer_stop(reactor_of(r), &r->due);
    r->raw = r->fresh;
    r->fresh = NULL;
    link->worker->n_lanes--;
    weft__retain_hear(r, r->raw);
    weft__introduce_lane(link, r->raw);
    r->lane.iface = r->raw->iface;
    r->back_off = r->refused = 0;
    r->lost = WEFT_OK;
    r->missed = r->asked = r->raw_full = false;
    r->ack_due = r->ask_due = false; /* the greeting says it */
    r->heard = r->tell_at = 0;
    assert(!r->log.last || !r->log.last->run.limit); /* the lane before it took all, or lost it */
    weft__retain_rewind(r);
    link->worker->count->lanes_resumed++;
}

/* ---- greetings ------------------------------------------------------------------------------------------------------ */

static bool greet(struct retain *r, struct lane *lane) {
    struct wire_message m;
    struct wire_hello hello = {.version = WIRE_VERSION,
                               .flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME,
                               .worker = r->link->worker->id,
                               .delivered =
                                   r->core.delivered - (WEFT_MUTANT(resume_count_less) && r->core.delivered),
                               .epoch = r->core.epoch};
    memcpy(hello.ticket, r->ticket, sizeof hello.ticket);
    weft__wire_hello(&m, hello);
    return weft__lane_say(lane, &m) == WEFT_OK;
}

static void say_resume(struct retain *r) {
    if (greet(r, r->fresh)) return;
    r->missed = true;
    later(r);
}
static void say_resumed(struct retain *r) {
    if (!greet(r, r->raw)) weft__retain_broke(r, WEFT_ERR_PEER_FAILED);
}

/* ---- time ------------------------------------------------------------------------------------------------------------ */

static void arm(struct retain *r) {
    struct reactor *reactor = reactor_of(r);
    uint64_t ms = weft__setting_u64(r->link->worker->context, SETTING_LANES_PATIENCE);
    r->link->worker->count->lanes_lost++;
    weft__reactor_look(reactor); /* who spins over a hot lane asks seldom for the time, and for new connections */
    bool lives = weft__process_watch(reactor, &r->process);
    if (lives && weft__timer_start(reactor, &r->patience, weft__now(reactor) + ms * NS_PER_MS) == WEFT_OK) return;
    r->fails = lives ? WEFT_ERR_NO_MEMORY : WEFT_ERR_PEER_FAILED; /* rather an end than one that nothing bounds */
    later(r);
}

static void disarm(struct retain *r) {
    weft__timer_stop(reactor_of(r), &r->patience);
    weft__process_unwatch(reactor_of(r), &r->process);
}

/* The first try is due at once. */
static void again(struct retain *r) {
    struct reactor *reactor = reactor_of(r);
    if (!r->link->why) return;
    uint64_t wait = r->back_off;
    r->back_off = wait == 0 ? RETAIN_FIRST : wait > RETAIN_LAST / 2 ? RETAIN_LAST : 2 * wait;
    if (weft__timer_start(reactor, &r->due, weft__now(reactor) + wait) == WEFT_OK) return;
    r->fails = WEFT_ERR_NO_MEMORY;
    later(r);
}

static void due(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, due);
    step(r, r->core.fsm.state == RESUME_ADRIFT ? RESUME_EV_DUE : RESUME_EV_MISSED);
}

static void patience_over(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, patience);
    r->fails = WEFT_ERR_PEER_FAILED;
    step(r, RESUME_EV_GIVE_UP);
    later(r);
}

/* Nobody comes any more. */
static void peer_ended(struct process *process) {
    struct retain *r = list_of(process, struct retain, process);
    patience_over(&r->patience);
}

static void lazy_over(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, lazy);
    r->ack_due = true;
    weft__retain_words(r);
}

/* ---- the port ---------------------------------------------------------------------------------------------------------- */

static void fail_users(struct retain *r) {
    if (r->fails == WEFT_OK) r->fails = WEFT_ERR_PEER_FAILED;
    later(r);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct retain *r = of_fsm(m);
    switch ((enum resume_effect)effect) {
    case RESUME_FX_TRANSMIT: break; /* a message steps no machine */
    case RESUME_FX_RELEASE: weft__retain_let_go(r); break;
    case RESUME_FX_DROP_LANE: drop_lane(r); break;
    case RESUME_FX_DROP_TRY: drop_fresh(r); break;
    case RESUME_FX_ARM: arm(r); break;
    case RESUME_FX_DISARM: disarm(r); break;
    case RESUME_FX_AGAIN: again(r); break;
    case RESUME_FX_DIAL: dial(r); break;
    case RESUME_FX_SAY_RESUME: say_resume(r); break;
    case RESUME_FX_SAY_RESUMED: say_resumed(r); break;
    case RESUME_FX_ADOPT: adopt(r); break;
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
        weft__count(reactor_of(r))->violations++;
    if (r->fails == WEFT_OK) r->fails = why == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL;
    later(r);
}

static const struct fsm_port port = {&weft__resume_machine, on_effect, on_fail};

/* ---- the end -------------------------------------------------------------------------------------------------------------- */

/* No lane is left, and nobody has any of our memory: the link hears its last word. */
static void finish(struct retain *r) {
    weft_status_t st = r->link->status < 0 ? r->link->status : WEFT_ERR_CLOSED;
    if (!weft__retain_let_all_go(r, st)) return; /* the loans that come back see to it */
    r->over = false;
    weft__link_lane_closed(&r->lane);
}

static void close_now(struct retain *r, bool flush) {
    r->closing = false;
    weft__timer_stop(reactor_of(r), &r->close_at);
    weft__timer_stop(reactor_of(r), &r->due); /* of a first lane */
    step(r, RESUME_EV_GIVE_UP);
    r->lane.ops = &weft__retain_ops_shut;
    r->dead = true;
    if (r->raw) {
        r->raw->ops->close(r->raw, flush);
        return;
    }
    r->over = true;
    later(r);
}

static void close_over(struct timer *timer) {
    struct retain *r = list_of(timer, struct retain, close_at);
    close_now(r, false);
}

/* In good order: when the peer has all, within the time that a close has. */
void weft__retain_close(struct lane *lane, bool flush) {
    struct retain *r = (struct retain *)lane;
    struct reactor *reactor = reactor_of(r);
    if (r->dead) {
        if (r->raw && !flush) r->raw->ops->close(r->raw, false);
        return;
    }
    uint64_t ms = weft__setting_u64(r->link->worker->context, SETTING_CLOSE_TIMEOUT);
    bool waits = flush && r->core.fsm.state != RESUME_OVER && !retain_log_empty(&r->log) &&
                 weft__timer_start(reactor, &r->close_at, weft__now(reactor) + ms * NS_PER_MS) == WEFT_OK;
    if (!waits) {
        close_now(r, flush);
        return;
    }
    r->closing = true;
    weft__retain_ask(r);
}

void weft__retain_emptied(struct retain *r) {
    if (r->closing) later(r);
}

void weft__retain_broke(struct retain *r, weft_status_t status) {
    r->lost = status;
    later(r);
}

static void job(struct job *j) {
    struct retain *r = list_of(j, struct retain, job);
    if (r->dead) {
        if (r->over) finish(r);
        return;
    }
    if (r->lost && r->core.fsm.state == RESUME_STEADY) step(r, RESUME_EV_LOST);
    r->lost = WEFT_OK;
    if (r->missed) step(r, RESUME_EV_MISSED);
    if (r->closing && (r->fails || retain_log_empty(&r->log)))
        close_now(r, !r->fails);
    else if (r->fails)
        weft__link_lose(r->link, r->fails);
    else
        weft__retain_words(r);
}

/* ---- birth and death ------------------------------------------------------------------------------------------------------ */

weft_status_t weft__retain_begin(struct link *link, const void *address, size_t len) {
    struct weft_worker *worker = link->worker;
    struct retain *r = weft__link_more(link) ? weft__new(worker, struct retain) : NULL;
    if (r && address) r->address = weft__alloc(r, len, "address");
    if (!r || (address && !r->address)) {
        talloc_free(r);
        return WEFT_ERR_NO_MEMORY;
    }
    if (address) memcpy(r->address, address, len);
    r->address_len = len;
    r->link = link;
    r->raw = link->lane;
    r->iface = link->lane->iface;
    r->up = r->iface->up->am;
    r->lane = (struct lane){.ops = &weft__retain_ops_open, .iface = r->iface, .owner = link};
    r->runs = r->iface->attr.runs;
    retain_log_init(&r->log, r, weft__setting_u64(worker->context, SETTING_LANES_RETAIN));
    r->log.came_home = weft__retain_came_home;
    pending_queue_init(&r->queue);
    r->job.run = job;
    r->due.fire = due;
    r->patience.fire = patience_over;
    r->lazy.fire = lazy_over;
    r->close_at.fire = close_over;
    r->process.ended = peer_ended;
    fsm_init(&r->core.fsm, &port, RESUME_STEADY, link->core.fsm.id);
    if (!link->why) /* it is told in the answer; the dialer keeps what it is told */
        for (unsigned i = 0; i < WIRE_TICKET; i += 8) {
            uint64_t word = weft__random(worker->reactor);
            memcpy(r->ticket + i, &word, 8);
        }
    link->more->retain = r;
    link->lanes[0] = link->lane = &r->lane;
    if (link->tx == r->raw) link->tx = &r->lane;
    weft__retain_hear(r, r->raw);
    return WEFT_OK;
}

void weft__retain_free(struct link *link) {
    struct retain *r = link->more->retain;
    if (!r) return;
    struct reactor *reactor = reactor_of(r);
    struct timer *timers[] = {&r->lazy, &r->due, &r->patience, &r->close_at};
    for (unsigned i = 0; i < sizeof timers / sizeof *timers; i++) weft__timer_stop(reactor, timers[i]);
    weft__job_drop(reactor, &r->job);
    weft__process_unwatch(reactor, &r->process);
    link->more->retain = NULL;
    weft__bury(reactor, r);
}

/* Its lanes tell what becomes of them where their owner keeps it. */
void weft__retain_follow(struct link *link, struct lane *lane, struct link *next) {
    struct retain *r = link->more->retain;
    if (!r || lane != &r->lane) return;
    link->more->retain = NULL;
    next->more->retain = r;
    r->link = next;
    if (r->raw) r->raw->owner = next;
    if (r->fresh) r->fresh->owner = next;
}

/* ---- what transports tell ---------------------------------------------------------------------------------------------------- */

static struct retain *retain_of(const struct lane *lane) {
    const struct link *link = lane->owner;
    return link ? link->more->retain : NULL;
}

struct lane *weft__retain_around(struct lane *lane) {
    struct retain *r = retain_of(lane);
    return r && lane == r->raw ? &r->lane : lane;
}

bool weft__retain_lane_up(struct lane *lane) {
    struct retain *r = retain_of(lane);
    if (!r || lane != r->fresh) return false;
    step(r, RESUME_EV_LANE_UP);
    return true;
}

/* Only what happens to a connection; not what its peer did, or said. */
static bool is_survived(weft_status_t status) {
    return status != WEFT_ERR_PEER_CLOSED && status != WEFT_ERR_PROTOCOL && status != WEFT_ERR_AUTH &&
           status != WEFT_ERR_VERSION;
}

static void fresh_down(struct retain *r, weft_status_t status) {
    r->refused = status == WEFT_ERR_REFUSED ? r->refused + 1 : 0;
    if (r->refused >= RETAIN_REFUSED) r->fails = WEFT_ERR_PEER_FAILED;
    step(r, r->fails ? RESUME_EV_GIVE_UP : RESUME_EV_MISSED);
}

/* The lane broke before the peer's greeting. Who dialed has nothing to go on with, and nothing to lose: it begins again, until the
 * greeting is overdue, or nobody is there any more. */
static bool broke_early(struct retain *r, weft_status_t status) {
    struct link *link = r->link;
    if (!link->why) return false;
    if (status == WEFT_ERR_REFUSED && r->back_off) {
        weft__link_lose(link, WEFT_ERR_PEER_FAILED);
        return true;
    }
    bool broke = status == WEFT_ERR_PEER_FAILED || status == WEFT_ERR_IO;
    bool said = link->tx == link->lane; /* a greeting of ours that waits for room would come twice */
    if (!broke || !said) return false;
    fsm_step(&link->core.fsm, LINK_EV_AGAIN);
    return true;
}

bool weft__retain_lane_down(struct lane *lane, weft_status_t status) {
    struct retain *r = retain_of(lane);
    if (!r) return false;
    if (lane == r->fresh) {
        fresh_down(r, status);
        return true;
    }
    if (lane != r->raw) return false;
    r->waits = false; /* the queue was purged */
    if (r->dead) {
        lane->ops->close(lane, false);
        return true;
    }
    if (r->closing && !is_survived(status)) {
        close_now(r, false);
        return true;
    }
    if (r->link->core.fsm.state < LINK_UP) return broke_early(r, status);
    if (!is_survived(status)) return false;
    step(r, RESUME_EV_LOST);
    return true;
}

bool weft__retain_lane_closed(struct lane *lane) {
    struct retain *r = retain_of(lane);
    if (!r || lane != r->raw) return false;
    r->raw = NULL;
    r->over = true;
    finish(r);
    return true;
}

/* ---- greetings that come ------------------------------------------------------------------------------------------------------- */

/* In the same time whatever it is. */
static bool same_ticket(const uint8_t *a, const uint8_t *b) {
    uint8_t differ = 0;
    for (unsigned i = 0; i < WIRE_TICKET; i++) differ |= a[i] ^ b[i];
    return differ == 0;
}

/* The peer's greeting says that it knows nothing of this: the lane is as any other. */
static void undo(struct link *link) {
    struct retain *r = link->more->retain;
    link->lanes[0] = link->lane = r->raw;
    if (link->tx == &r->lane) link->tx = r->raw;
    r->raw->ops->hear(r->raw, NULL);
    if (r->waits) r->raw->ops->pending_remove(r->raw, &r->raw_pending);
    weft__retain_free(link);
}

void weft__retain_greeting(const struct link *link, struct wire_hello *hello) {
    if (!link->more->retain || link->why) return;
    hello->flags |= WIRE_HELLO_SURVIVES;
    memcpy(hello->ticket, link->more->retain->ticket, sizeof hello->ticket);
}

void weft__retain_greeted(struct link *link, const struct wire_hello *hello) {
    if (!link->more->retain) return;
    if (weft__hello_has_ticket(hello))
        memcpy(link->more->retain->ticket, hello->ticket, sizeof hello->ticket);
    else
        undo(link);
    if (link->more->retain) link->more->retain->back_off = 0;
}

static void greeted(struct lane *fresh, const void *data, size_t len) {
    struct wire_hello hello;
    struct retain *r = retain_of(fresh);
    if (!r || fresh != r->fresh) return;
    if (!weft__wire_read_hello(data, len, &hello)) {
        said_too_early(fresh, data, len);
        return;
    }
    bool is_it = hello.version == WIRE_VERSION && hello.worker == r->link->peer &&
                 hello.flags & WIRE_HELLO_RESUME && same_ticket(hello.ticket, r->ticket) &&
                 hello.epoch == r->core.epoch;
    step(r, is_it ? weft__resume_answered(&r->core, hello.delivered) : RESUME_EV_REFUSED);
    weft__retain_pump(r);
}

static struct retain *wanted(const struct link *guest, const struct wire_hello *hello) {
    struct list *links = &guest->worker->links;
    for (struct list *n = links->next; n != links; n = n->next) {
        struct link *link = list_of(n, struct link, of_worker);
        struct retain *r = link->more->retain;
        if (!r || link->why || link->peer != hello->worker || r->dead) continue;
        if (same_ticket(r->ticket, hello->ticket)) return r;
    }
    return NULL;
}

/* A guest that knows no ticket, or comes late, hears our own greeting and no more, and no link notices. */
void weft__retain_guest(struct link *guest, const struct wire_hello *hello) {
    struct retain *r = wanted(guest, hello);
    enum resume_event event = r ? weft__resume_asked(&r->core, hello->epoch, hello->delivered) : RESUME_EV_STALE;
    if (event != RESUME_EV_RESUME) {
        weft__log_limited(guest->worker->context, WEFT_LOG_INFO, "endpoints", "a connection to resume %s",
                          r ? "comes late, or counts what was not sent" : "a link that is not here (any more)");
        guest->status = WEFT_ERR_PEER_FAILED;
        fsm_step(&guest->core.fsm, LINK_EV_HELLO_STALE);
        if (r) step(r, event);
        return;
    }
    struct lane *lane = guest->lane;
    fsm_step(&guest->core.fsm, LINK_EV_GIVEN);
    take_fresh(r, lane, nothing_is_heard);
    step(r, event);
    weft__retain_pump(r);
}
