/* The handshake of links: identity of the peer, role of the link, and which link stays when both
 * sides dialed. */
#include "connect.h"

#include <endpoints/core/link_local.h>
#include <endpoints/core/worker.h>
#include <endpoints/failover/retain.h>
#include <endpoints/lanes/negotiate.h>
#include <endpoints/lanes/switch.h>
#include <endpoints/transfer/rails.h>

void weft__link_handshake(struct link *link) {
    struct wire_message m;
    struct wire_hello hello = {.version = WIRE_VERSION,
                               .flags = (link->dialed ? link->flags : 0) | weft__lanes_hello(link) |
                                        WIRE_HELLO_ANSWERS | WIRE_HELLO_PARTS |
                                        WIRE_HELLO_EXPOSURES | WIRE_HELLO_DEVICES |
                                        WIRE_HELLO_LEASES | WIRE_HELLO_CAUSES,
                               .listener = link->listener,
                               .worker = link->worker->id};
    weft__retain_handshake(link, &hello);
    weft__wire_hello(&m, hello);
    weft__link_control(link, &m);
}

/* Both sides dialed, or the peer dialed again. The lane that the smaller worker id dialed stays,
 * unless it is dead. */
static void meet_duplicate(struct link *accepted, struct link *duplicate) {
    if (!link_is_up(&duplicate->core.fsm) && accepted->peer < accepted->worker->id) {
        weft__link_move_endpoints(duplicate, accepted);
        link_step(duplicate, LINK_EV_SUPERSEDED);
        link_step(accepted, LINK_EV_HELLO_WINS);
        return;
    }
    link_step(accepted, LINK_EV_HELLO_LOSES);
    if (!link_is_up(&duplicate->core.fsm)) return;
    struct wire_message ping;
    weft__wire_ping(&ping);
    weft__link_answer(duplicate, &ping);
}

/* No violation: its main link may have ended, or withdrawn the grant, since then. */
static void turn_away_lane(struct link *link) {
    char peer[128];
    link->lane->ops->describe(link->lane, peer, sizeof peer);
    weft__log_limited(link->worker->context, WEFT_LOG_INFO, "endpoints",
                      "%s: closed a lane that is no longer expected", peer);
    weft__link_lose(link, weft__fail(WEFT_ERR_CANCELLED, "this lane is no longer expected"));
}

static bool lose_without_memory(struct link *link) {
    weft__link_lose(link, weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the peer's connection"));
    return false;
}

/* A connection that carries a rail, or the second lane of another link. */
static bool takes_role(struct link *link, const struct wire_hello *hello, enum link_role role) {
    if (!weft__link_ext(link)) return lose_without_memory(link);
    link->role = role;
    if (role == LINK_RAIL && !weft__rail_handshakes(link, hello)) {
        weft__link_violation(link, "hello of a rail that was not granted");
        return false;
    }
    if (role == LINK_AUX && !weft__switch_handshakes(link, hello)) {
        turn_away_lane(link);
        return false;
    }
    return true;
}

/* Reads the role from the first HELLO. False: the link is lost, or has given its lane to another
 * link. */
static bool admit_dialer(struct link *link, const struct wire_hello *hello) {
    bool is_rail = hello->flags & WIRE_HELLO_RAIL,
         is_lane = hello->flags & WIRE_HELLO_LANE && !is_rail;
    if (hello->flags & WIRE_HELLO_RESUME) {
        weft__retain_accepted(link, hello);
        return false;
    }
    if (link->peer && link->peer != hello->worker) {
        weft__link_violation(link, "hello with another worker's id");
        return false;
    }
    if ((is_rail || is_lane) && !takes_role(link, hello, is_rail ? LINK_RAIL : LINK_AUX))
        return false;
    weft__link_know_peer(link, hello->worker);
    link->flags = is_lane ? hello->flags | WIRE_HELLO_EXTRA : hello->flags;
    if (weft__link_is_too_many(link)) {
        weft__link_lose(link, weft__fail(WEFT_ERR_QUOTA, "the peer has %u connections already",
                                         link->worker->limit.links));
        return false;
    }
    /* A lane of another link is that link's, which may keep it when this one has ended. */
    bool survives = !is_rail && !is_lane && hello->flags & WIRE_HELLO_SURVIVES &&
                    weft__retain_is_for(weft__link_iface(link));
    return !survives || weft__retain_begin(link, NULL, 0) == WEFT_OK || lose_without_memory(link);
}

static void hello_from_dialer(struct link *link, const struct wire_hello *hello) {
    if (!admit_dialer(link, hello)) return;
    bool beside = hello->worker == link->worker->id || link->flags & WIRE_HELLO_EXTRA;
    struct link *duplicate = beside ? NULL : weft__link_duplicate(link);
    if (duplicate)
        meet_duplicate(link, duplicate);
    else
        link_step(link, LINK_EV_HELLO);
}

static void hello_from_host(struct link *link, const struct wire_hello *hello) {
    if (link->peer && link->peer != hello->worker) {
        weft__link_lose(link,
                        weft__fail(WEFT_ERR_UNREACHABLE, "another worker has that address now"));
        return;
    }
    weft__link_know_peer(link, hello->worker);
    link->listener = hello->listener;
    weft__retain_shaken(link, hello);
    link_step(link, LINK_EV_HELLO);
}

/* True for the first HELLO of the peer. */
static bool is_awaited(const struct link *link) {
    return link->dialed ? link_is_in_handshake(&link->core.fsm) : link_awaits_peer(&link->core.fsm);
}

void weft__link_on_hello(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct link *link = weft__lane_link(lane);
    struct wire_hello hello;
    if (!link) return;
    if (!weft__wire_read_hello(data, len, &hello)) {
        weft__link_violation(link, "hello");
        return;
    }
    if (hello.version != WIRE_VERSION) {
        weft__link_wrong_version(link, hello.version);
        return;
    }
    if (!is_awaited(link)) {
        link_step(link, LINK_EV_HELLO);
        return;
    }
    link->peer_flags = hello.flags;
    if (link->dialed)
        hello_from_host(link, &hello);
    else
        hello_from_dialer(link, &hello);
}

void weft__link_on_ping(struct link *link, struct lane *lane, const struct wire_empty *ping) {
    /* the sender learns from its lane whether the connection is dead */
}
