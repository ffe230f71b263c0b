/* The link: the port of link.fsm. Its beginning, its end, its endpoints, and events of its lane. */
#include "link_local.h"

#include <base/counters.h>
#include <inttypes.h>

#include "cause.h"
#include "control.h"
#include "endpoint.h"
#include "worker.h"

static void link_effect(struct fsm *m, unsigned effect);
static void link_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port link_port = {&weft__link_machine, link_effect, link_fail};

/* ---- life */

static struct weft_ep *first_endpoint(struct link *link) {
    return list_empty(&link->endpoints) ? NULL
                                        : list_of(link->endpoints.next, struct weft_ep, of_link);
}

static void notify_up(struct link *link) {
    list_for_each_safe(n, next, &link->endpoints) {
        weft__ep_link_up(list_of(n, struct weft_ep, of_link));
    }
}

/* ---- logging: one line per connection, and one per loss */

static void log_up(const struct link *link) {
    char peer[PEER_ROOM];
    if (!weft__log_wants(link->worker->context, WEFT_LOG_INFO)) return;
    weft__peer_text(link, peer);
    weft__log_limited(link->worker->context, WEFT_LOG_INFO, "endpoints",
                      WORKER_TEXT ": connected %s %s", WORKER_ARGS(link->worker),
                      link->dialed ? "to" : "by", peer);
}

/* Its endpoints, without those that dial again. */
static uint32_t n_lost(const struct link *link) {
    uint32_t n = link->n_endpoints;
    list_for_each(node, &link->endpoints) {
        n -= weft__ep_may_redial(list_of(node, struct weft_ep, of_link), link->status);
    }
    return n;
}

/* A connection that is up does not end so. */
static bool is_of_dial(weft_status_t status) {
    return status == WEFT_ERR_REFUSED || status == WEFT_ERR_REJECTED || status == WEFT_ERR_AUTH ||
           status == WEFT_ERR_VERSION || status == WEFT_ERR_UNREACHABLE;
}

static void log_loss(const struct link *link) {
    uint32_t lost = n_lost(link);
    bool meant = lost == 0 || link->status == WEFT_ERR_PEER_CLOSED ||
                 link->status == WEFT_ERR_CLOSED || link->status == WEFT_ERR_CANCELLED;
    const struct cause *cause = link->worker->losing;
    weft__log_limited(link->worker->context, meant ? WEFT_LOG_INFO : WEFT_LOG_WARN, "endpoints",
                      WORKER_TEXT ": %s %u endpoint%s: %s: %s", WORKER_ARGS(link->worker),
                      is_of_dial(link->status) ? "could not connect, and lost"
                                               : "lost a connection and its",
                      lost, lost == 1 ? "" : "s", weft_status_name(link->status),
                      cause ? cause->text : weft__usual_cause(link->status));
}

/* Its endpoints fail, then requests without an endpoint. */
static void fail_users(struct link *link) {
    struct weft_ep *ep;
    while ((ep = first_endpoint(link)) != NULL) {
        weft__ep_link_gone(ep, link->status);
    }
    weft__link_drop_backlog(link, link->status);
}

struct link weft__no_link;

static const struct link_ext empty_ext;
static struct link_ext *const no_ext = (struct link_ext *)(uintptr_t)&empty_ext;

struct link_ext *weft__link_ext(struct link *link) {
    if (link->more != no_ext) return link->more;
    struct link_ext *more = weft__new(link->worker, struct link_ext);
    if (!more) return NULL;
    list_init(&more->rma_wait);
    return link->more = more;
}

static void free_ext(struct link *link) {
    if (link->more != no_ext) talloc_free(link->more);
    link->more = no_ext;
}

/* Messages that its lanes still receive must not reach a freed link. */
static void disown_lanes(const struct link *link) {
    for (unsigned i = 0; i < LINK_LANES; i++)
        if (link->lanes[i] && weft__lane_link(link->lanes[i]) == link)
            weft__lane_set_link(link->lanes[i], NULL);
}

static void end_link(struct link *link) {
    if (!link->dialed) link->worker->limit.n_accepted--;
    weft__link_drop_backlog(link, WEFT_ERR_CLOSED);
    disown_lanes(link);
    list_remove(&link->of_worker);
    list_remove(&link->of_peer);
    weft__timer_release(link->worker->reactor, &link->timer);
    weft__worker_link_gone(link->worker);
    weft__link_features_free(link);
    free_ext(link);
    talloc_free(link->uri);
    weft__reason_drop(link->worker, link->why);
    link->uri = NULL;
    link->why = NULL;
    link->core.fsm.id = 0; /* no lane names it any more, whatever it holds */
    weft__slab_free_later(&link->worker->pools.links, link);
}

static void start_handshake(struct link *link) {
    uint64_t ms = weft__setting_u64(link->worker->context, SETTING_CONNECT_TIMEOUT);
    struct reactor *r = link->worker->reactor;
    /* It cannot fail: new_link reserved the timer. */
    (void)weft__timer_start(r, &link->timer, weft__now(r) + ms * NS_PER_MS);
}

static void link_effect(struct fsm *m, unsigned effect) {
    struct link *link = list_of(m, struct link, core.fsm);
    if (effect != LINK_FX_SEND_HELLO && effect != LINK_FX_TIMER_STOP && effect != LINK_FX_END)
        weft__link_features_note(link);
    switch ((enum link_effect)effect) {
    case LINK_FX_SEND_HELLO: link->worker->features->handshake(link); break;
    case LINK_FX_LANE_AGAIN: link->worker->features->lane_again(link); break;
    case LINK_FX_TIMER_START:
        if (!link->lingers) start_handshake(link);
        break;
    case LINK_FX_TIMER_STOP:
        if (!link->lingers) weft__timer_stop(link->worker->reactor, &link->timer);
        break;
    case LINK_FX_NOTIFY_UP:
        if (!link->more->main) log_up(link);
        weft__link_features_up(link);
        notify_up(link);
        break;
    case LINK_FX_FAIL:
        if (!link->more->main) log_loss(link);
        fail_users(link);
        break;
    case LINK_FX_LANE_FLUSH:
        weft__link_features_close(link, false);
        link->lanes[0]->ops->close(link->lanes[0], true);
        break;
    case LINK_FX_LANE_ABORT:
        weft__link_features_close(link, true);
        link->lanes[0]->ops->close(link->lanes[0], false);
        break;
    case LINK_FX_END: end_link(link); break;
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
    weft__link_lose(link, weft__fail(WEFT_ERR_INTERNAL, "link: %s in %s",
                                     weft__link_machine.event_name[event], fsm_state_name(m)));
}

static void yield_to_standby(struct link *link);

/* The peer may use the lane that it dialed, which this side kept as a spare. */
static void unused(struct link *link) {
    yield_to_standby(link);
    link_step(link, LINK_EV_UNUSED);
}

/* The cause is made first, so that its endpoints get it. */
static void lose_link(struct link *link, enum link_event event) {
    struct weft_worker *worker = link->worker;
    struct cause *before = worker->losing, *cause = weft__cause_of_link(link);
    worker->losing = cause;
    if (event != LINK_EV_HELLO_VERSION) yield_to_standby(link);
    link_step(link, event);
    worker->losing = before;
    weft__cause_drop(cause);
}

static void handshake_due(struct link *link) {
    link->status = WEFT_ERR_TIMED_OUT;
    (void)weft__fail(WEFT_ERR_TIMED_OUT,
                     "the handshake did not complete in time (connect.timeout)");
    lose_link(link, LINK_EV_TIMEOUT);
}

static void time_is_up(struct timer *timer) {
    struct link *link = list_of(timer, struct link, timer);
    if (link->lingers)
        unused(link);
    else
        handshake_due(link);
}

/* Not 0: a lane without a link has that. */
static uint32_t next_id(struct weft_worker *worker) {
    if (++worker->last_link_id == 0) worker->last_link_id++;
    return worker->last_link_id;
}

static weft_status_t new_link(struct weft_worker *worker, struct lane *lane, struct link **link_p) {
    struct link *link = weft__slab_take(&worker->pools.links);
    if (!link) return WEFT_ERR_NO_MEMORY;
    link->worker = worker;
    link->home = weft__worker_number(worker, lane->iface);
    link->more = no_ext;
    link->lanes[0] = lane;
    link->n_lanes = 1;
    weft__link_use_lane(link, lane);
    link->pending.retry = weft__link_retry;
    link->timer.fire = time_is_up;
    list_init(&link->endpoints);
    list_init(&link->of_peer);
    list_init(&link->backlog);
    fsm_init(&link->core.fsm, &link_port, LINK_IDLE, next_id(worker));

    weft_status_t st = weft__timer_reserve(worker->reactor, &link->timer);
    if (st < 0) {
        weft__slab_put(&worker->pools.links, link);
        return st;
    }
    list_append(&worker->links, &link->of_worker);
    worker->n_lanes++;
    weft__lane_set_link(lane, link);
    *link_p = link;
    return WEFT_OK;
}

/* A lane without a link has no owner. The worker still waits until the lane has closed. */
static void drop_lane(struct lane *lane) {
    struct weft_worker *worker = lane->iface->owner;
    worker->n_lanes++;
    weft__lane_set_link(lane, NULL);
    lane->ops->close(lane, false);
}

static char *copy_text(const void *parent, const char *text) {
    size_t size = strlen(text) + 1;
    char *kept = weft__alloc(parent, size, "text");
    return kept ? memcpy(kept, text, size) : NULL;
}

weft_status_t weft__link_dial(struct weft_worker *worker, struct lane *lane, uint64_t peer,
                              const char *uri, const char *why, struct link **link_p) {
    struct link *link;
    char *own_why = weft__reason_share(worker, why), *own_uri = uri ? copy_text(worker, uri) : NULL;
    weft_status_t st =
        own_why && (own_uri || !uri) ? new_link(worker, lane, &link) : WEFT_ERR_NO_MEMORY;
    if (st < 0) {
        weft__reason_drop(worker, own_why);
        talloc_free(own_uri);
        drop_lane(lane);
        return st;
    }
    weft__link_know_peer(link, peer);
    link->flags = uri ? WIRE_HELLO_EXTRA : 0;
    link->uri = own_uri;
    link->why = own_why;
    link->dialed = true;
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
    return link_awaits_hello(&link->core.fsm);
}

/* A link without HELLO gets the whole time for its handshake again. */
static void linger_no_more(struct link *link) {
    if (!link->lingers) return;
    link->lingers = false;
    weft__timer_stop(link->worker->reactor, &link->timer);
    if (awaits_hello(link)) start_handshake(link);
}

/* The dialer closes an unused link after "link.linger", as another endpoint may join soon. */
static void linger(struct link *link) {
    struct reactor *r = link->worker->reactor;
    uint64_t ms = weft__setting_u64(link->worker->context, SETTING_LINK_LINGER);
    if (link->given) ms = 0;
    uint64_t at = weft__now(r) + ms * NS_PER_MS, due = weft__timer_at(r, &link->timer);
    link->lingers = true;
    if (weft__timer_start(r, &link->timer, at < due ? at : due) < 0) unused(link);
}

/* The share of the link's bound, or that of the worker's: the smaller one. */
static uint8_t quota_shift_of(const struct link *link, uint32_t n_of_worker) {
    const struct worker_limits *limit = &link->worker->limit;
    uint8_t of_link = weft__quota_shift(limit->full_quotas, link->n_endpoints),
            of_worker = weft__quota_shift(limit->all_full_quotas, n_of_worker);
    return of_link > of_worker ? of_link : of_worker;
}

void weft__link_join(struct link *link, struct weft_ep *ep) {
    ep->link = link;
    list_append(&link->endpoints, &ep->of_link);
    if (link->n_endpoints++ == 0) linger_no_more(link);
    ep->quota_shift = quota_shift_of(link, ++link->worker->limit.n_endpoints);
    ep->credit_left = weft__ep_unexpected(ep) / 4;
    weft__link_features_count(link);
}

void weft__link_leave(struct weft_ep *ep) {
    struct link *link = ep->link;
    if (!link) return;
    weft__link_features_ep_leaves(ep);
    list_remove(&ep->of_link);
    weft__ep_lookup_forget(ep);
    ep->link = NULL;
    link->n_accepted -= ep->accepted;
    link->worker->limit.n_opened -= ep->accepted;
    ep->accepted = false;
    link->n_endpoints--;
    link->worker->limit.n_endpoints--;
    weft__link_features_count(link);
    if (link->n_endpoints == 0 && link->dialed) linger(link);
}

void weft__link_move_endpoints(struct link *from, struct link *to) {
    struct weft_ep *ep;
    while ((ep = first_endpoint(from)) != NULL) {
        list_remove(&ep->of_link);
        weft__ep_lookup_forget(ep);
        from->n_endpoints--;
        from->worker->limit.n_endpoints--;
        weft__link_join(to, ep);
    }
}

/* The link of the pair is about to end: its spare takes over before an endpoint dials again. */
static void yield_to_standby(struct link *link) {
    struct link *standby = weft__link_standby(link);
    if (!standby) return;
    /* Nothing was sent yet, so its endpoints can move. */
    if (link_is_dialed(&link->core.fsm)) weft__link_move_endpoints(link, standby);
    link_step(standby, LINK_EV_ADOPT);
}

/* ---- loss of the link, and events of its lane */

void weft__link_lose(struct link *link, weft_status_t status) {
    if (link->status == WEFT_OK) link->status = status;
    lose_link(link, LINK_EV_LOST);
}

void weft__link_wrong_version(struct link *link, unsigned version) {
    link->status =
        weft__fail(WEFT_ERR_VERSION, "the peer speaks version %u of the protocol, this side %u",
                   version, WIRE_VERSION);
    if (!link->dialed) /* the loss of a dialed link is logged with its cause */
        weft__log_limited(link->worker->context, WEFT_LOG_WARN, "endpoints",
                          WORKER_TEXT ": a peer speaks version %u of the protocol, this side %u",
                          WORKER_ARGS(link->worker), version, WIRE_VERSION);
    lose_link(link, LINK_EV_HELLO_VERSION);
}

void weft__link_violation(struct link *link, const char *what) {
    char peer[128];
    link->lane->ops->describe(link->lane, peer, sizeof peer);
    weft__count(link->worker->reactor)->violations++;
    weft__log_limited(link->worker->context, WEFT_LOG_WARN, "endpoints",
                      "%s: protocol violation: malformed or unexpected message: %s", peer, what);
    weft__link_lose(link,
                    weft__fail(WEFT_ERR_PROTOCOL,
                               "protocol violation: malformed or unexpected message: %s", what));
}

static struct link *link_of_any(struct lane *lane, const char *what, bool of_rail) {
    struct link *link = weft__lane_link(lane);
    if (!link || link_is_over(&link->core.fsm)) return NULL;
    bool is_up = link_is_up(&link->core.fsm);
    if (is_up && (of_rail || link->role != LINK_RAIL)) return link;
    weft__link_violation(link, is_up ? "message that a rail does not bring" : what);
    return NULL;
}

struct link *weft__link_of(struct lane *lane, const char *what) {
    return link_of_any(lane, what, false);
}

struct link *weft__link_or_rail_of(struct lane *lane, const char *what) {
    return link_of_any(lane, what, true);
}

/* The peer's worker id by the lane's handshake; HELLO must have the same. 0: the lane has none. */
static uint64_t proven_id(const struct lane *lane) {
    return HAS_OP(lane->ops, conn, peer_id) ? lane->ops->conn->peer_id(lane) : 0;
}

void weft__link_accepted(struct lane *lane, void *listen_arg) {
    struct weft_worker *worker = lane->iface->owner;
    struct link *link;
    bool is_full = worker->limit.n_accepted >= worker->limit.max_accepted;
    if (is_full)
        weft__log_limited(worker->context, WEFT_LOG_WARN, "endpoints",
                          "%u links of peers: more are cut", worker->limit.n_accepted);
    if (is_full || !worker_is_open(&worker->core.fsm) || new_link(worker, lane, &link) < 0) {
        drop_lane(lane);
        return;
    }
    worker->limit.n_accepted++;
    link->listener = (uint32_t)(uintptr_t)listen_arg;
    link->peer = proven_id(lane);
    link_step(link, LINK_EV_ACCEPTED);
}

void weft__link_lane_up(struct lane *lane) {
    struct link *link = weft__lane_link(lane);
    if (!link) return;
    if (!link->peer) link->peer = proven_id(lane);
    link_step(link, LINK_EV_LANE_UP);
}

void weft__link_lane_closed(struct lane *lane) {
    struct link *link = weft__lane_link(lane);
    if (link)
        link_step(link, LINK_EV_LANE_CLOSED);
    else
        weft__worker_link_gone(lane->iface->owner);
}
