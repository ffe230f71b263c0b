/*
 * What two sides of a link mean by it: the same lane, the same epoch; and no worker more scarce
 * lanes than it may have.
 */
#include <endpoints/failover/retain.h>
#include <endpoints/lanes/negotiate_local.h>
#include <endpoints/lanes/switch_local.h>
#include <string.h>
#include <transports/reliable/window_local.h>

#include "world.h"

/* ---- lanes: as the network knows them, without what stands around or before them ------------- */

static const struct lane *bare_lane(const struct half *half) {
    const struct link *link = half->ep ? half->ep->link : NULL;
    const struct lane *lane = link ? link->lane : NULL;
    if (lane && link->more->switching && lane == &link->more->switching->bound.lane)
        lane = link->more->switching->bound.raw;
    if (lane && link->more->retain && lane == &link->more->retain->lane)
        lane = link->more->retain->raw;
    return lane;
}

static const struct window_lane *window_of(const struct half *half) {
    const struct lane *lane = bare_lane(half);
    bool windowed = lane && half->node->world->plan->network == PLAN_DATAGRAM &&
                    !strcmp(lane->iface->transport->name, "sim");
    return windowed ? (const struct window_lane *)lane : NULL;
}

static const struct lane *lane_of(const struct half *half) {
    const struct window_lane *window = window_of(half);
    return window ? window->raw : bare_lane(half);
}

static bool same_lane(const struct lane *a, const struct lane *b) {
    return a && b && weft__sim_other_end(a) == b && weft__sim_other_end(b) == a;
}

static uint32_t epoch(const struct half *half, bool in) {
    const struct switching *s = half->ep && half->ep->link ? half->ep->link->more->switching : NULL;
    return !s ? 0 : in ? s->core.epoch_in : s->core.epoch_out;
}

static bool is_moving(const struct half *half) {
    const struct lane_negotiation *b =
        half->ep && half->ep->link ? half->ep->link->more->lane_negotiation : NULL;
    const struct switching *s = half->ep && half->ep->link ? half->ep->link->more->switching : NULL;
    bool quiet = !b || negotiate_is_at_rest(&b->n.fsm);
    return !quiet || (s && (s->core.epoch_in != s->core.epoch_out || s->hold.bytes));
}

/* NULL, or what they disagree in. */
static const char *agree_not(const struct connection *c) {
    const struct half *a = &c->half[0], *b = &c->half[1];
    if (!half_lives(a) || !half_lives(b)) return NULL;
    if (is_moving(a) || is_moving(b)) return "still on the move";
    if (!same_lane(lane_of(a), lane_of(b))) return "at rest on different lanes";
    if (epoch(a, false) != epoch(b, true) || epoch(a, true) != epoch(b, false))
        return "at rest in different epochs";
    return NULL;
}

/* ---- at every event -------------------------------------------------------------------------- */

static void check_epoch(struct half *half) {
    struct world *w = half->connection->world;
    if (!half_lives(half) || !half->ep->link) return;
    for (int in = 0; in < 2; in++) {
        uint32_t now = epoch(half, in);
        if (half->seen_link == half->ep->link && now < half->seen_epoch[in] && now)
            world_fail(w, "the epoch of %u went back from %u to %u", half->connection->serial,
                       half->seen_epoch[in], now);
        half->seen_epoch[in] = now;
    }
    half->seen_link = half->ep->link;
}

static bool talk(const struct window_lane *a, const struct window_lane *b) {
    return conn_is_up(&a->conn.fsm) && conn_is_up(&b->conn.fsm) &&
           a->conn.peer_tag == b->conn.my_tag && b->conn.peer_tag == a->conn.my_tag;
}

/* What a window takes for arrived did arrive: the others would go again too late, or never. */
static void check_window(const struct half *half) {
    const struct window_lane *mine = half_lives(half) ? window_of(half) : NULL;
    const struct lane *there = mine ? weft__sim_other_end(mine->raw) : NULL;
    const struct window_lane *other = there ? there->owner : NULL;
    if (!other || !talk(mine, other)) return;
    const struct window *out = &mine->win, *in = &other->win;
    bool invented = (int32_t)(in->expected - out->una) < 0;
    for (uint64_t left = out->sacked; left; left &= left - 1) {
        uint32_t ahead = out->una + (uint32_t)__builtin_ctzll(left) - in->expected;
        invented |= (int32_t)ahead >= 0 && (ahead >= WINDOW_FRAMES || !(in->held >> ahead & 1));
    }
    if (invented)
        world_fail(half->connection->world, "a window of %u takes frames for arrived that are not",
                   half->connection->serial);
}

static uint32_t scarce_of(const struct node *node) {
    uint32_t n = 0;
    for (int i = 0; i < 2; i++)
        if (node->world->fabric[i]) n += weft__sim_scarce(node->world->fabric[i], node->number[i]);
    return n;
}

static void check_places(struct node *node) {
    const struct lanes *lanes = node->worker ? node->worker->lanes : NULL;
    uint32_t held = 0;
    if (!lanes || node->crashed || node->closing) return;
    for (uint32_t i = 0; i < node->worker->n_ifaces; i++) {
        held += lanes->held[i];
        if (lanes->held[i] > lanes->capacity[i])
            world_fail(node->world, "worker %u holds %u of %u places", node->index, lanes->held[i],
                       lanes->capacity[i]);
    }
    if (held != lanes->held_in_all || held > lanes->capacity_in_all)
        world_fail(node->world, "worker %u counts %u places, and holds %u of %u", node->index,
                   lanes->held_in_all, held, lanes->capacity_in_all);
}

void agree_watch(struct world *w) {
    for (uint32_t i = 0; i < w->plan->n_workers; i++) check_places(w->node[i]);
    for (uint32_t i = 0; i < w->n_pairs; i++)
        for (int side = 0; side < 2 && w->pair[i].now; side++) {
            check_epoch(&w->pair[i].now->half[side]);
            check_window(&w->pair[i].now->half[side]);
        }
}

/* ---- at rest --------------------------------------------------------------------------------- */

bool agree_all(struct world *w) {
    for (uint32_t i = 0; i < w->n_pairs; i++)
        if (w->pair[i].now && agree_not(w->pair[i].now)) return false;
    return true;
}

void agree_or_fail(struct world *w) {
    for (uint32_t i = 0; i < w->n_pairs; i++) {
        const char *what = w->pair[i].now ? agree_not(w->pair[i].now) : NULL;
        if (!what) continue;
        world_trace(w, "pair %u: serial %u", i, w->pair[i].now->serial);
        world_fail(w, "the two sides of %u: %s", w->pair[i].now->serial, what);
        return;
    }
}

uint64_t agree_count(const struct world *w, const char *counter) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < w->plan->n_workers; i++)
        if (w->node[i]->worker) n += weft_worker_count(w->node[i]->worker, counter);
    return n;
}

/*
 * A link whose own lane died goes on with the scarce one for as long as it lives, and its place is
 * counted.
 */
static uint32_t settled_on_scarce(struct world *w, const struct weft_worker *worker) {
    uint32_t n = 0;
    list_for_each(at, &worker->links) {
        const struct link *link = list_of(at, struct link, of_worker);
        bool stays = link->more->lane_negotiation && link->more->lane_negotiation->stays;
        if (link->lanes[0]->scarce && !stays) world_fail(w, "a link's scarce lane has no place");
        n += stays;
    }
    return n;
}

/*
 * When no link has sent anything for long, no link has another scarce lane, and every other slot is
 * free.
 */
void agree_idle(struct world *w) {
    for (uint32_t i = 0; i < w->plan->n_workers; i++) {
        const struct node *node = w->node[i];
        const struct lanes *lanes = node->worker ? node->worker->lanes : NULL;
        if (!lanes) continue;
        uint32_t settled = settled_on_scarce(w, node->worker);
        if (lanes->held_in_all != settled || scarce_of(node) > settled)
            world_fail(w, "worker %u is idle, and holds %u places and %u scarce lanes", i,
                       lanes->held_in_all, scarce_of(node));
    }
}
