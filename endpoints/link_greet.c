/* How links greet: who the peer is, what the link is for, and which one stays when both have dialed. */
#include "link_local.h"
#include "negotiate.h"
#include "rails.h"
#include "retain.h"
#include "switch.h"
#include "worker.h"

void weft__link_greet(struct link *link) {
    struct wire_message m;
    struct wire_hello hello = {.version = WIRE_VERSION,
                               .flags = (link->why ? link->flags : 0) | weft__lanes_hello(link) |
                                        WIRE_HELLO_ANSWERS | WIRE_HELLO_PARTS | WIRE_HELLO_LOANS,
                               .listener = link->listener,
                               .worker = link->worker->id};
    weft__retain_greeting(link, &hello);
    weft__wire_hello(&m, hello);
    weft__link_control(link, &m);
}

/* Both dialed, or the peer dialed again: the lane of the smaller id stays, unless it turns out to be dead. */
static void meet_rival(struct link *guest, struct link *rival) {
    if (rival->core.fsm.state != LINK_UP && guest->peer < guest->worker->id) {
        weft__link_move_endpoints(rival, guest);
        link_step(rival, LINK_EV_SUPERSEDED);
        link_step(guest, LINK_EV_HELLO_WINS);
        return;
    }
    link_step(guest, LINK_EV_HELLO_LOSES);
    if (rival->core.fsm.state != LINK_UP) return;
    struct wire_message ping;
    weft__wire_ping(&ping);
    weft__link_control(rival, &ping);
}

/* No violation: the link that it was granted to may have ended, or taken its word back, while it was on its way. */
static void turn_away_lane(struct link *link) {
    char peer[128];
    link->lane->ops->describe(link->lane, peer, sizeof peer);
    weft__log_limited(link->worker->context, WEFT_LOG_INFO, "endpoints", "%s: a lane that nobody expects any more",
                      peer);
    weft__link_lose(link, WEFT_ERR_CANCELLED);
}

/* By its first hello: what the link is for. False: it is lost, or its lane is another link's. */
static bool is_let_in(struct link *link, const struct wire_hello *hello) {
    bool is_rail = hello->flags & WIRE_HELLO_RAIL, is_lane = hello->flags & WIRE_HELLO_LANE && !is_rail;
    if (hello->flags & WIRE_HELLO_RESUME) {
        weft__retain_guest(link, hello);
        return false;
    }
    if ((is_rail || is_lane) && !weft__link_more(link)) {
        weft__link_lose(link, WEFT_ERR_NO_MEMORY);
        return false;
    }
    if (is_rail && !weft__rail_greets(link, hello)) {
        weft__link_violation(link, "a rail that nobody granted");
        return false;
    }
    if (is_lane && !weft__switch_greets(link, hello)) {
        turn_away_lane(link);
        return false;
    }
    weft__link_know_peer(link, hello->worker);
    link->flags = is_lane ? hello->flags | WIRE_HELLO_EXTRA : hello->flags;
    if (weft__link_is_too_many(link)) {
        weft__link_lose(link, WEFT_ERR_QUOTA);
        return false;
    }
    bool survives = hello->flags & WIRE_HELLO_SURVIVES && weft__retain_is_for(weft__link_iface(link));
    if (survives && weft__retain_begin(link, NULL, 0) < 0) {
        weft__link_lose(link, WEFT_ERR_NO_MEMORY);
        return false;
    }
    return true;
}

static void hello_from_guest(struct link *link, const struct wire_hello *hello) {
    if (link->core.fsm.state == LINK_AWAIT && !is_let_in(link, hello)) return;
    bool beside = hello->worker == link->worker->id || link->flags & WIRE_HELLO_EXTRA;
    struct link *rival = beside ? NULL : weft__link_rival(link);
    if (rival)
        meet_rival(link, rival);
    else
        link_step(link, LINK_EV_HELLO);
}

static void hello_from_host(struct link *link, const struct wire_hello *hello) {
    if (link->peer && link->peer != hello->worker) {
        weft__link_lose(link, WEFT_ERR_UNREACHABLE); /* somebody else lives at that address now */
        return;
    }
    weft__link_know_peer(link, hello->worker);
    link->listener = hello->listener;
    weft__retain_greeted(link, hello);
    link_step(link, LINK_EV_HELLO);
}

void weft__link_on_hello(struct lane *lane, const void *data, size_t len) {
    struct link *link = lane->owner;
    struct wire_hello hello;
    if (!link) return;
    if (!weft__wire_read_hello(data, len, &hello)) {
        weft__link_violation(link, "hello");
        return;
    }
    if (hello.version != WIRE_VERSION) {
        link->status = WEFT_ERR_VERSION;
        weft__log_limited(link->worker->context, WEFT_LOG_WARN, "endpoints", "a peer speaks version %u, not %u",
                          hello.version, WIRE_VERSION);
        link_step(link, LINK_EV_HELLO_VERSION);
        return;
    }
    link->peer_flags = hello.flags;
    if (link->why)
        hello_from_host(link, &hello);
    else
        hello_from_guest(link, &hello);
}

void weft__link_on_ping(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "ping before hello");
    if (link && len) weft__link_violation(link, "ping");
}
