#include "link_local.h"

#include <reactor/counters.h>
#include <reactor/mutant.h>
#include <transports/answering.h>

#include "beat.h"
#include "ep.h"
#include "introduce.h"
#include "live.h"
#include "loan.h"
#include "negotiate.h"
#include "rails.h"
#include "retain.h"
#include "rkey.h"
#include "rma.h"
#include "stream.h"
#include "switch.h"
#include "thread.h"
#include "usage_worker.h"
#include "worker.h"

static void link_effect(struct fsm *m, unsigned effect);
static void link_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port link_port = {&weft__link_machine, link_effect, link_fail};

/* ---- while requests wait for the lane, nothing may overtake them */

LANE_SENDS_ANSWER(blocked, WEFT_NO_RESOURCE)
static const struct lane_ops blocked_ops = {
    .am_short = blocked_short, .am_bcopy = blocked_bcopy, .am_zcopy = blocked_zcopy};
static struct lane blocked = {.ops = &blocked_ops};

/* Sends what waits, in order, until the lane has no more room. */
static weft_status_t pump(struct link *link) {
    while (!list_empty(&link->backlog)) {
        struct weft_request *req = list_of(link->backlog.next, struct weft_request, queued);
        weft_status_t st = req->kind->advance(req);
        if (st == WEFT_NO_RESOURCE) return st;
        if (st == WEFT_OK) weft__request_finish(req, WEFT_OK);
        if (st < 0) weft__request_stop(req, st); /* pieces of it may still be lent */
    }
    return WEFT_OK;
}

static weft_status_t retry(struct pending *pending) {
    struct link *link = list_of(pending, struct link, pending);
    weft_status_t st = pump(link);
    if (st == WEFT_OK) link->tx = link->lane;
    return st;
}

static void push(struct link *link) {
    if (link->tx == &blocked || pump(link) == WEFT_OK) return;
    if (link->tx == &blocked) return; /* what ended meanwhile had a word for the lane, too */
    if (WEFT_MUTANT(link_overtakes))
        link->lane->ops->pending_remove(link->lane, &link->pending); /* it may be there */
    else
        link->tx = &blocked;
    link->lane->ops->pending_add(link->lane, &link->pending);
}

void weft__link_submit(struct link *link, struct weft_request *req) {
    weft__request_queue(req, &link->backlog);
    push(link);
}

void weft__link_submit_all(struct link *link, struct list *queue) {
    struct list *node;
    while ((node = list_pop(queue)) != NULL) {
        list_of(node, struct weft_request, queued)->queue = &link->backlog;
        list_append(&link->backlog, node);
    }
    push(link);
}

void weft__link_submit_first(struct link *link, struct list *queue) {
    while (!list_empty(queue)) {
        struct list *node = queue->prev;
        list_remove(node);
        list_of(node, struct weft_request, queued)->queue = &link->backlog;
        list_prepend(&link->backlog, node);
    }
    push(link);
}

/* ---- which lane */

static void use_lane(struct link *link, struct lane *lane) {
    size_t max_short = lane->iface->attr.max_short;
    link->at = weft__worker_number(link->worker, lane->iface);
    link->lane = link->tx = lane;
    size_t eager = weft__link_limits(link)->eager, quick = eager < max_short ? eager : max_short;
    link->max_quick = (uint16_t)(quick < UINT16_MAX ? quick : UINT16_MAX);
}

void weft__link_pause(struct link *link) {
    if (link->tx == &blocked) link->lane->ops->pending_remove(link->lane, &link->pending);
    link->tx = &blocked;
}

void weft__link_carry(struct link *link, struct lane *lane) {
    weft__link_pause(link);
    use_lane(link, lane);
    link->tx = &blocked;
    if (pump(link) == WEFT_OK)
        link->tx = link->lane;
    else
        link->lane->ops->pending_add(link->lane, &link->pending);
}

/* ---- control messages */

static size_t pack(void *to, void *arg) {
    const struct wire_message *m = arg;
    memcpy(to, m->bytes, m->len);
    return m->len;
}

weft_status_t weft__lane_say(struct lane *lane, const struct wire_message *m) {
    return lane->ops->am_bcopy(lane, m->id, pack, (void *)(uintptr_t)m);
}

/* A lane that keeps messages for another one tells a greeting, which is not for another, when it packs it. */
static weft_status_t say(const struct link *link, struct lane *lane, const struct wire_message *m) {
    bool packed = m->id == WIRE_HELLO && link->more->retain;
    return packed ? weft__lane_say(lane, m) : weft__link_say(link, lane, m);
}

/* A peer that is told half the truth is worse than none. Not from in here: a machine may be in the middle of a step. */
void weft__link_half_told(struct link *link, weft_status_t status) {
    if (WEFT_MUTANT(link_half_told)) return;
    if (link->status == WEFT_OK) link->status = status;
    link->half_told = true;
    weft__job_post(link->worker->reactor, &link->worker->half_told);
}

static weft_status_t advance_control(struct weft_request *req) {
    struct link *link = req->arg;
    weft_status_t st = say(link, link->lane, req->header);
    if (st < 0) weft__link_half_told(link, st);
    return st;
}

static const struct request_kind control_kind = {.name = "control", .advance = advance_control};

static weft_status_t queue_control(struct link *link, const struct wire_message *m) {
    struct weft_request *req = weft__request_new(link->worker, &control_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    req->header = weft__alloc(req, sizeof *m, "control");
    if (!req->header) {
        weft__request_discard(req);
        return WEFT_ERR_NO_MEMORY;
    }
    memcpy(req->header, m, sizeof *m);
    req->arg = link;
    weft__link_submit(link, req);
    return WEFT_OK;
}

void weft__link_control(struct link *link, const struct wire_message *m) {
    weft_status_t st = say(link, link->tx, m);
    if (st == WEFT_NO_RESOURCE) st = queue_control(link, m);
    if (st < 0) weft__link_half_told(link, st);
}

static struct link *first_half_told(const struct weft_worker *worker) {
    for (struct list *n = worker->links.next; n != &worker->links; n = n->next) {
        struct link *link = list_of(n, struct link, of_worker);
        if (link->half_told) return link;
    }
    return NULL;
}

/* Few ever are, so that all may be looked at; from the beginning each time, as the end of one may be that of others. */
void weft__links_half_told(struct job *job) {
    struct weft_worker *worker = list_of(job, struct weft_worker, half_told);
    for (struct link *link; (link = first_half_told(worker)) != NULL;) {
        link->half_told = false;
        weft__link_lose(link, link->status);
    }
}

/* ---- life */

static struct weft_ep *first_endpoint(struct link *link) {
    return list_empty(&link->endpoints) ? NULL : list_of(link->endpoints.next, struct weft_ep, of_link);
}

static void tell_up(struct link *link) {
    for (struct list *n = link->endpoints.next, *next; n != &link->endpoints; n = next) {
        next = n->next;
        weft__ep_link_up(list_of(n, struct weft_ep, of_link));
    }
}

/* What still waited had no endpoint any more: words of those that left. */
static void drop_backlog(struct link *link, weft_status_t status) {
    while (!list_empty(&link->backlog))
        weft__request_stop(list_of(link->backlog.next, struct weft_request, queued), status);
}

/* Its endpoints are told; what belonged to none of them ends here. */
static void fail_users(struct link *link) {
    struct weft_ep *ep;
    while ((ep = first_endpoint(link)) != NULL) {
        weft__ep_link_gone(ep, link->status);
        if (WEFT_MUTANT(link_forgets_users)) break;
    }
    drop_backlog(link, link->status);
}

/* Links of one worker mostly have the same reasons: one text, which goes with the last of them. */
struct reason {
    uint32_t users;
    char text[];
};

static struct reason *reason_of(const char *why) {
    return (struct reason *)(void *)((uintptr_t)why - offsetof(struct reason, text));
}

static char *share_reason(struct weft_worker *worker, const char *text) {
    size_t size = strlen(text) + 1;
    char *why = worker->last_why;
    if (!why || strcmp(why, text) != 0) {
        struct reason *own = weft__alloc(worker, sizeof *own + size, "reason");
        if (!own) return NULL;
        why = worker->last_why = memcpy(own->text, text, size);
    }
    reason_of(why)->users++;
    return why;
}

static void drop_reason(struct weft_worker *worker, char *why) {
    if (!why || --reason_of(why)->users > 0) return;
    if (worker->last_why == why) worker->last_why = NULL;
    talloc_free(reason_of(why));
}

static const struct link_more nothing_more;
static struct link_more *const no_more = (struct link_more *)(uintptr_t)&nothing_more;

struct link_more *weft__link_more(struct link *link) {
    if (link->more != no_more) return link->more;
    struct link_more *more = weft__new(link->worker, struct link_more);
    if (more) link->more = more;
    return more;
}

static void free_more(struct link *link) {
    if (link->more != no_more) talloc_free(link->more);
    link->more = no_more;
}

static void end(struct link *link) {
    drop_backlog(link, WEFT_ERR_CLOSED);
    list_remove(&link->of_worker);
    list_remove(&link->of_peer);
    weft__timer_stop(link->worker->reactor, &link->timer);
    weft__worker_link_gone(link->worker);
    weft__rails_free(link);
    weft__tracking_forget(link);
    weft__switch_free(link);
    weft__retain_free(link);
    weft__beat_free(link);
    weft__introduction_free(link);
    weft__loans_free(link);
    free_more(link);
    talloc_free(link->uri);
    drop_reason(link->worker, link->why);
    link->uri = NULL;
    link->why = NULL;
    weft__live_forget(link);
    weft__match_unlink(&link->worker->match, link, link->worker->max_unread);
    weft__thread_forget(link);
    weft__slab_bury(&link->worker->link_slab, link);
}

static void start_greeting(struct link *link) {
    uint64_t ms = weft__setting_u64(link->worker->context, SETTING_CONNECT_TIMEOUT);
    struct reactor *r = link->worker->reactor;
    /* The heap has room: it was reserved when the link was made (new_link starts and stops the timer). */
    (void)weft__timer_start(r, &link->timer, weft__now(r) + ms * NS_PER_MS);
}

static void link_effect(struct fsm *m, unsigned effect) {
    struct link *link = list_of(m, struct link, core.fsm);
    if (effect != LINK_FX_SEND_HELLO && effect != LINK_FX_TIMER_STOP && effect != LINK_FX_END)
        weft__live_note(link);
    switch ((enum link_effect)effect) {
    case LINK_FX_SEND_HELLO: weft__link_greet(link); break;
    case LINK_FX_LANE_ANEW: weft__retain_anew(link); break;
    case LINK_FX_TIMER_START:
        if (!link->lingers) start_greeting(link);
        break;
    case LINK_FX_TIMER_STOP:
        if (!link->lingers) weft__timer_stop(link->worker->reactor, &link->timer);
        break;
    case LINK_FX_TELL_UP:
        if (link->more->main) (link->flags & WIRE_HELLO_RAIL ? weft__rail_up : weft__switch_up)(link);
        weft__beat_begin(link);
        weft__introduce(link);
        tell_up(link);
        break;
    case LINK_FX_FAIL: fail_users(link); break;
    case LINK_FX_LANE_FLUSH:
        weft__lanes_end(link);
        weft__switch_end(link, false);
        weft__rails_end(link, false);
        link->lanes[0]->ops->close(link->lanes[0], true);
        break;
    case LINK_FX_LANE_ABORT:
        weft__lanes_end(link);
        weft__switch_end(link, true);
        weft__rails_end(link, true);
        link->lanes[0]->ops->close(link->lanes[0], false);
        break;
    case LINK_FX_END: end(link); break;
    case LINK_N_EFFECTS: break;
    }
}

static void link_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct link *link = list_of(m, struct link, core.fsm);
    if (why == FSM_VIOL) {
        weft__link_violation(link, weft__link_machine.event_name[event]);
        return;
    }
    weft__log(link->worker->context, WEFT_LOG_ERROR, "endpoints", "link: %s in %s",
              weft__link_machine.event_name[event], fsm_state_name(m));
    weft__link_lose(link, WEFT_ERR_INTERNAL);
}

static void yield_to_spare(struct link *link);

/* The peer may have use for the lane that it dialed, which was kept as a spare. */
static void unused(struct link *link) {
    yield_to_spare(link);
    link_step(link, LINK_EV_UNUSED);
}

static void greeting_due(struct link *link) {
    link->status = WEFT_ERR_TIMED_OUT;
    yield_to_spare(link);
    link_step(link, LINK_EV_TIMEOUT);
}

static void time_is_up(struct timer *timer) {
    struct link *link = list_of(timer, struct link, timer);
    if (link->lingers)
        unused(link);
    else
        greeting_due(link);
}

static weft_status_t new_link(struct weft_worker *worker, struct lane *lane, struct link **link_p) {
    struct link *link = weft__slab_take(&worker->link_slab);
    if (!link) return WEFT_ERR_NO_MEMORY;
    link->worker = worker;
    link->home = weft__worker_number(worker, lane->iface);
    link->more = no_more;
    link->lanes[0] = lane;
    link->n_lanes = 1;
    use_lane(link, lane);
    link->pending.retry = retry;
    link->timer.fire = time_is_up;
    list_init(&link->endpoints);
    list_init(&link->of_peer);
    list_init(&link->backlog);
    list_init(&link->rma_wait);
    fsm_init(&link->core.fsm, &link_port, LINK_IDLE, (uint32_t)(uintptr_t)link);

    weft_status_t st = weft__timer_start(worker->reactor, &link->timer, UINT64_MAX);
    if (st < 0) {
        weft__slab_put(&worker->link_slab, link);
        return st;
    }
    weft__timer_stop(worker->reactor, &link->timer);
    list_append(&worker->links, &link->of_worker);
    worker->n_lanes++;
    lane->owner = link;
    *link_p = link;
    return WEFT_OK;
}

/* A lane that got no link has no owner. The worker waits for its last word all the same. */
static void drop_lane(struct lane *lane) {
    struct weft_worker *worker = lane->iface->owner;
    worker->n_lanes++;
    lane->owner = NULL;
    lane->ops->close(lane, false);
}

static char *copy(const void *parent, const char *text) {
    size_t size = strlen(text) + 1;
    char *kept = weft__alloc(parent, size, "text");
    return kept ? memcpy(kept, text, size) : NULL;
}

weft_status_t weft__link_dial(struct weft_worker *worker, struct lane *lane, uint64_t peer, const char *uri,
                              const char *why, struct link **link_p) {
    struct link *link;
    char *own_why = share_reason(worker, why), *own_uri = uri ? copy(worker, uri) : NULL;
    weft_status_t st = own_why && (own_uri || !uri) ? new_link(worker, lane, &link) : WEFT_ERR_NO_MEMORY;
    if (st < 0) {
        drop_reason(worker, own_why);
        talloc_free(own_uri);
        drop_lane(lane);
        return st;
    }
    weft__link_know_peer(link, peer);
    link->flags = uri ? WIRE_HELLO_EXTRA : 0;
    link->uri = own_uri;
    link->why = own_why;
    link_step(link, LINK_EV_DIAL);
    *link_p = link;
    return WEFT_OK;
}

void weft__link_close(struct link *link) {
    link->status = WEFT_ERR_CLOSED;
    link_step(link, LINK_EV_CLOSE);
}

/* ---- endpoints on it */

static bool awaits_hello(const struct link *link) {
    return link->core.fsm.state == LINK_DIALING || link->core.fsm.state == LINK_GREETING;
}

/* Not greeted yet, it has all the time for that once more. */
static void linger_no_more(struct link *link) {
    if (!link->lingers) return;
    link->lingers = false;
    weft__timer_stop(link->worker->reactor, &link->timer);
    if (awaits_hello(link)) start_greeting(link);
}

/* The one who dialed hangs up, a while after the last endpoint: the next one may come soon. */
static void linger(struct link *link) {
    struct reactor *r = link->worker->reactor;
    uint64_t ms = weft__setting_u64(link->worker->context, SETTING_LINK_LINGER);
    uint64_t at = weft__now(r) + ms * NS_PER_MS, due = weft__timer_at(r, &link->timer);
    link->lingers = true;
    if (weft__timer_start(r, &link->timer, at < due ? at : due) < 0) unused(link);
}

void weft__link_join(struct link *link, struct weft_ep *ep) {
    ep->link = link;
    list_append(&link->endpoints, &ep->of_link);
    if (link->n_endpoints++ == 0) linger_no_more(link);
    ep->halved = weft__share_halved(link->worker->whole_shares, link->n_endpoints);
    ep->credit_left = weft__ep_unexpected(ep) / 4;
    weft__live_endpoints(link);
}

void weft__link_leave(struct weft_ep *ep) {
    struct link *link = ep->link;
    if (!link) return;
    weft__rkeys_close(ep);
    weft__switch_calm(link, weft__rma_unwait(ep));
    weft__rma_forgive(ep);
    list_remove(&ep->of_link);
    weft__ep_unheard(ep);
    ep->link = NULL;
    if (ep->stream) link->unread -= (uint32_t)ep->stream->owed; /* nobody gives these back any more */
    link->n_guests -= ep->guest;
    ep->guest = false;
    link->n_endpoints--;
    weft__live_endpoints(link);
    if (link->n_endpoints == 0 && link->why) linger(link);
}

void weft__link_move_endpoints(struct link *from, struct link *to) {
    struct weft_ep *ep;
    while ((ep = first_endpoint(from)) != NULL) {
        list_remove(&ep->of_link);
        weft__ep_unheard(ep);
        from->n_endpoints--;
        weft__link_join(to, ep);
    }
}

/* The link of the pair is about to end: its spare is the link from now on, and is there before anybody dials again. */
static void yield_to_spare(struct link *link) {
    struct link *spare = weft__link_spare(link);
    if (!spare) return;
    /* Nothing was sent yet: its endpoints do not even notice. */
    if (link->core.fsm.state < LINK_AWAIT) weft__link_move_endpoints(link, spare);
    link_step(spare, LINK_EV_ADOPT);
}

/* ---- what the lane tells, and that the link is lost */

void weft__link_lose(struct link *link, weft_status_t status) {
    if (link->status == WEFT_OK) link->status = status;
    yield_to_spare(link);
    link_step(link, LINK_EV_LOST);
}

void weft__link_violation(struct link *link, const char *what) {
    char peer[128];
    link->lane->ops->describe(link->lane, peer, sizeof peer);
    weft__count(link->worker->reactor)->violations++;
    weft__log_limited(link->worker->context, WEFT_LOG_WARN, "endpoints", "%s: violation: %s", peer, what);
    weft__link_lose(link, WEFT_ERR_PROTOCOL);
}

struct link *weft__link_of(struct lane *lane, const char *what) {
    struct link *link = lane->owner;
    if (!link || link->core.fsm.state >= LINK_CLOSING) return NULL;
    if (link->core.fsm.state == LINK_UP) return link;
    weft__link_violation(link, what);
    return NULL;
}

void weft__link_accepted(struct lane *lane, void *listen_arg) {
    struct weft_worker *worker = lane->iface->owner;
    struct link *link;
    if (worker->core.fsm.state != WORKER_OPEN || new_link(worker, lane, &link) < 0) {
        drop_lane(lane);
        return;
    }
    link->listener = (uint32_t)(uintptr_t)listen_arg;
    link_step(link, LINK_EV_GUEST);
}

void weft__link_lane_up(struct lane *lane) {
    if (weft__retain_lane_up(lane)) return;
    if (lane->owner) link_step(lane->owner, LINK_EV_LANE_UP);
}

void weft__link_lane_down(struct lane *lane, weft_status_t status) {
    struct link *link = lane->owner;
    if (!link || weft__retain_lane_down(lane, status)) return;
    lane = weft__retain_around(lane);
    if (link->more->switching)
        weft__switch_lane_down(link, lane, status);
    else
        weft__link_lose(link, status);
}

void weft__link_lane_closed(struct lane *lane) {
    if (weft__retain_lane_closed(lane)) return;
    if (lane->owner)
        link_step(lane->owner, LINK_EV_LANE_CLOSED);
    else
        weft__worker_link_gone(lane->iface->owner);
}
