/* Kinds of lanes, their slots, and which link gives one up. */
#include "negotiate_local.h"
#include <endpoints/core/worker.h>
#include <endpoints/failover/retain.h>
#include <endpoints/protocol/protocol.h>

/* ---- kinds: one for each interface */

/* Messages on another lane are not retained. A link with failover uses only lanes that die with
 * the peer. */
static bool would_be_lost(const struct link *link, const struct iface *iface) {
    return link->flags & WIRE_HELLO_SURVIVES && weft__retain_is_for(iface);
}

bool weft__lanes_is_kind(const struct link *link, const struct iface *iface) {
    if (would_be_lost(link, iface)) return false;
    if (strcmp(iface->transport->name, "self") == 0 || !(iface->attr.caps & CAP_CONNECT_TO_IFACE))
        return false;
    if (weft__link_home(link) != iface &&
        !weft__setting_u64(link->worker->context, SETTING_LANES_CROSS))
        return false;
    if (iface != link->lanes[0]->iface) return true;
    return iface->ops->connect_scarce && !link->lanes[0]->scarce;
}

/* Among lanes of one interface the scarce ones are faster. */
static double cost_of(const struct link *link, const struct iface *iface) {
    double cost = weft__protocol_iface_ns(&iface->attr);
    return iface == link->lanes[0]->iface ? cost * 0.99 : cost;
}

int weft__lanes_kind(const struct lanes *lanes, const struct link *link, uint32_t banned) {
    const struct weft_worker *worker = lanes->worker;
    double best = weft__protocol_iface_ns(&link->lanes[0]->iface->attr);
    int kind = -1;
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        const struct iface *iface = worker->iface[i];
        if (banned >> i & 1 || lanes->capacity[i] == 0 || !weft__lanes_is_kind(link, iface))
            continue;
        double cost = cost_of(link, iface);
        if (cost >= best) continue;
        best = cost;
        kind = (int)i;
    }
    return kind;
}

/* ---- slots */

static bool is_free(const struct lanes *lanes, uint8_t kind) {
    return lanes->held[kind] < lanes->capacity[kind] && lanes->held_in_all < lanes->capacity_in_all;
}

struct lane_negotiation *weft__lanes_weakest(const struct lanes *lanes, uint8_t kind,
                                             uint64_t score) {
    const struct usage *usage = lanes->worker->tracking->usage;
    struct lane_negotiation *weakest = NULL;
    uint64_t least = 0;
    list_for_each(n, &lanes->lane_negotiations) {
        struct lane_negotiation *b = list_of(n, struct lane_negotiation, of_worker);
        if (!negotiate_is_fast(&b->n.fsm) || !b->n.settled || b->kind != kind) continue;
        uint64_t its = weft__usage_score(usage, b->link);
        if (weakest && its >= least) continue;
        weakest = b;
        least = its;
    }
    return weakest && weft__usage_outscores(usage, score, least) ? weakest : NULL;
}

enum negotiate_answer weft__lanes_answer(const struct lanes *lanes, uint8_t kind, uint64_t score) {
    bool fits = is_free(lanes, kind);
    return weft__negotiate_answer(&(struct negotiate_capacity){
        .capacity = lanes->held[kind] + fits,
        .held = lanes->held[kind],
        .awaited = lanes->awaits[kind] != NULL,
        .weaker = !fits && weft__lanes_weakest(lanes, kind, score),
    });
}

void weft__lanes_stay(struct lane_negotiation *b) {
    (void)weft__lanes_leave(b);
    b->stays = true;
    b->stays_kind = b->kind;
    b->lanes->held[b->kind]++;
    b->lanes->held_in_all++;
}

bool weft__lanes_leave(struct lane_negotiation *b) {
    if (!b->stays) return false;
    b->stays = false;
    b->lanes->held[b->stays_kind]--;
    b->lanes->held_in_all--;
    return true;
}

bool weft__lanes_count(struct lane_negotiation *b) {
    struct lanes *lanes = b->lanes;
    enum negotiate_place was = b->counted, is = b->n.place;
    uint32_t more = is == PLACE_HELD, less = was == PLACE_HELD;
    b->counted = (uint8_t)is;
    lanes->held[b->kind] += more - less;
    lanes->held_in_all += more - less;
    if (was == PLACE_AWAITED && is != PLACE_AWAITED) lanes->awaits[b->kind] = NULL;
    if (is == PLACE_AWAITED) lanes->awaits[b->kind] = b;
    return was != PLACE_NONE && is == PLACE_NONE;
}

struct lane_negotiation *weft__lanes_next(const struct lanes *lanes) {
    for (uint32_t kind = 0; kind < lanes->worker->n_ifaces; kind++)
        if (lanes->awaits[kind] && is_free(lanes, kind)) return lanes->awaits[kind];
    return NULL;
}

/* ---- the rate of switches */

bool weft__lanes_token(struct lanes *lanes) {
    uint64_t now = weft__now(lanes->worker->reactor);
    lanes->tokens += (double)(now - lanes->filled) / 1e9 * lanes->rate;
    lanes->filled = now;
    if (lanes->tokens > 2 * lanes->rate) lanes->tokens = 2 * lanes->rate;
    if (lanes->tokens < 1) return false;
    lanes->tokens--;
    return true;
}
