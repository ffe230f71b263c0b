/* From a lane to the peer's node: in order on a reliable fabric, as chance has it over
 * datagrams. */
#include "local.h"
#include <stddef.h>
#include <string.h>

#define OF_ARRIVAL(t) container_of(t, struct sim_iface, arrival)

/* ---- sending --------------------------------------------------------------------------------- */

static struct sim_iface *node_of(const struct sim_lane *lane) {
    struct sim_iface *iface = lane->fabric->node[lane->remote_node];
    return iface && iface->incarnation == lane->remote_incarnation ? iface : NULL;
}

/* When it would be there without others before it. */
static uint64_t held_until(const struct sim_lane *lane, struct sim_packet *p, uint64_t at) {
    uint64_t until = weft__sim_stalled_until(lane->fabric, p->from, p->to);
    p->stalled = at < until;
    return p->stalled ? until : at;
}

/* How long it travels. Never 0, so that nothing is answered in the instant in which it is asked. */
static uint64_t transit(struct sim_lane *lane, uint64_t n) {
    struct sim_fabric *f = lane->fabric;
    const struct sim_profile *is = &f->profile;
    uint64_t ns = (lane->lane.scarce ? is->scarce_latency_ns : is->latency_ns) + 1;
    if (is->jitter_ns) ns += weft__sim_draw(f, SITE_JITTER, lane->actor, n) % is->jitter_ns;
    if (!weft__sim_chance(f, SITE_DELAY, lane->actor, n, is->delay)) return ns;
    f->stats.delayed++;
    return ns + is->delay_ns;
}

/* It has no receiver. */
static void give_up(struct sim_lane *lane, const struct sim_packet *p) {
    bool asked = p->kind == SIM_CONNECT && p->dst == 0;
    weft__sim_lane_post(lane, asked ? SIM_LANE_EV_REFUSED : SIM_LANE_EV_LOST,
                        asked ? WEFT_ERR_REFUSED : WEFT_ERR_PEER_FAILED);
}

/* The first of a reliable lane's queue goes. */
static void launch(struct sim_lane *lane) {
    struct sim_iface *to = node_of(lane);
    if (lane->first->in_heap) return;
    if (!to) return give_up(lane, lane->first);
    weft__sim_heap_add(&to->arriving, lane->first);
    weft__sim_expect(to);
}

static void send_in_order(struct sim_lane *lane, struct sim_packet *p, uint64_t n) {
    p->at = held_until(lane, p, weft__clock_now(lane->fabric->clock) + transit(lane, n));
    if (p->at < lane->last_at) p->at = lane->last_at;
    lane->last_at = p->at;
    bool alone = !lane->first;
    p->next = NULL;
    *lane->last = p;
    lane->last = &p->next;
    if (alone) launch(lane);
}

static void fly(struct sim_lane *lane, struct sim_packet *p, uint64_t at) {
    struct sim_fabric *f = lane->fabric;
    struct sim_iface *to = node_of(lane);
    if (!to) {
        f->stats.cut++;
        weft__sim_packet_free(f, p);
        return;
    }
    p->at = at;
    lane->under_way++;
    weft__sim_heap_add(&to->arriving, p);
    weft__sim_expect(to);
}

static struct sim_packet *copy_of(struct sim_fabric *f, const struct sim_packet *p) {
    struct sim_packet *copy = weft__sim_packet_new(f, p->len);
    if (!copy) return NULL;
    struct sim_packet *next = copy->next;
    memcpy(copy, p, sizeof *p + p->len);
    copy->next = next;
    copy->big = p->len > SIM_SMALL;
    copy->completion = NULL;
    copy->serial = f->serial++;
    return copy;
}

static void send_datagram(struct sim_lane *lane, struct sim_packet *p, uint64_t n) {
    struct sim_fabric *f = lane->fabric;
    const struct sim_profile *is = &f->profile;
    uint64_t at = held_until(lane, p, weft__clock_now(f->clock) + transit(lane, n));
    if (is->reorder_ns && weft__sim_chance(f, SITE_REORDER, lane->actor, n, is->reorder))
        at += weft__sim_draw(f, SITE_REORDER, ~lane->actor, n) % is->reorder_ns;
    if (weft__sim_chance(f, SITE_DUPLICATE, lane->actor, n, is->duplicate)) {
        struct sim_packet *copy = copy_of(f, p);
        uint64_t behind =
            1 + weft__sim_draw(f, SITE_DUPLICATE, ~lane->actor, n) % (2 * is->latency_ns + 1);
        f->stats.duplicated += copy != NULL;
        if (copy) fly(lane, copy, at + behind);
    }
    if (weft__sim_chance(f, SITE_LOSS, lane->actor, n, is->loss)) {
        f->stats.lost++;
        weft__sim_note(f, "lost", p);
        weft__sim_packet_free(f, p);
        return;
    }
    fly(lane, p, at);
}

void weft__sim_send(struct sim_lane *lane, struct sim_packet *p) {
    struct sim_fabric *f = lane->fabric;
    weft__sim_take_run(lane);
    p->actor = lane->actor;
    p->src = lane->id;
    p->dst = lane->remote;
    p->listener = lane->listener;
    p->scarce = lane->lane.scarce;
    p->from = sim_iface(lane)->node;
    p->to = lane->remote_node;
    p->serial = f->serial++;
    f->stats.sent++;
    lane->carried += p->len;
    for (unsigned i = 0; i < p->n_iov; i++) lane->carried += p->iov[i].len;
    if (!f->profile.reliable) return send_datagram(lane, p, lane->n_sent++);
    lane->under_way++;
    send_in_order(lane, p, lane->n_sent++);
}

/* ---- what a lane does with a message --------------------------------------------------------- */

/* Header and payload in one piece. */
static const void *gather_delivery(struct sim_fabric *f, const struct sim_packet *p,
                                   size_t *len_p) {
    for (unsigned i = 0; i < p->n_iov; i++) *len_p += p->iov[i].len;
    weft__sim_packet_read(p, 0, f->scratch, *len_p);
    return f->scratch;
}

/* A lane that ends meanwhile takes no more of them. */
static void take_each(struct sim_lane *lane, struct sim_packet *p) {
    const char *at = p->iov[0].base, *end = at + p->iov[0].len;
    while (at < end && lane->take == weft__sim_take) {
        struct lane_head head;
        memcpy(&head, at, sizeof head);
        lane_handlers(&lane->lane)[head.id](&lane->lane, head.id, at + LANE_HEAD, head.len);
        at += LANE_HEAD + (((size_t)head.len + LANE_HEAD - 1) & ~(size_t)(LANE_HEAD - 1));
    }
    if (at < end) weft__sim_refuse(lane, p);
}

void weft__sim_take(struct sim_lane *lane, struct sim_packet *p) {
    size_t len = p->len;
    if (p->run) return take_each(lane, p);
    if (p->places) return weft__sim_placed(lane);
    const void *data = p->n_iov ? gather_delivery(lane->fabric, p, &len) : p->data;
    lane_handlers(&lane->lane)[p->id](&lane->lane, p->id, data, len);
}

void weft__sim_refuse(struct sim_lane *lane, struct sim_packet *p) {
    p->status = WEFT_ERR_PEER_CLOSED;
}

/* ---- arrival --------------------------------------------------------------------------------- */

static struct sim_lane *accept_lane(struct sim_iface *iface, const struct sim_packet *p) {
    struct sim_fabric *f = iface->fabric;
    struct tl_listener *listener = p->listener ? weft__sim_listener(f, p->listener) : NULL;
    if (p->listener && (!listener || listener->iface != iface)) return NULL;
    if (!sim_has_room(iface, p->scarce)) return NULL;
    struct sim_lane *lane =
        weft__sim_lane_new(iface, p->scarce, ~p->actor, weft__sim_announce_accepted);
    if (!lane) return NULL;
    lane->remote = p->src;
    lane->remote_node = p->from;
    lane->remote_incarnation = f->node[p->from] ? f->node[p->from]->incarnation : 0;
    lane->listen_arg = listener ? listener->arg : NULL;
    weft__fsm_step(&lane->fsm, SIM_LANE_EV_DIAL);
    return lane;
}

static void free_sender(struct sim_lane *src) {
    src->under_way--;
    weft__job_post(src->lane.iface->reactor, &src->job);
}

/* The lane it is for, or else the one that answers its sender: there is always one, as far as
 * memory goes. */
static struct sim_lane *datagram_lane(struct sim_iface *iface, const struct sim_packet *p) {
    struct sim_lane *lane = p->dst ? weft__sim_lane(iface->fabric, p->dst) : NULL;
    if (lane && sim_iface(lane) == iface && lane->remote_node == p->from) {
        lane->remote = p->src; /* a dialled lane learns who answers */
        return lane;
    }
    for (lane = iface->lanes; lane; lane = lane->next_of_iface)
        if (lane->remote == p->src) return lane;
    lane = accept_lane(iface, p);
    if (lane) weft__sim_lane_step(lane, SIM_LANE_EV_ANSWERED);
    return lane;
}

static void place_datagram(struct sim_iface *iface, struct sim_packet *p) {
    struct sim_fabric *f = iface->fabric;
    struct sim_lane *src = weft__sim_lane(f, p->src), *lane = NULL;
    if (src) free_sender(src);
    bool passes = weft__sim_passes(f, p->from, p->to);
    if (passes)
        lane = datagram_lane(iface, p);
    else
        f->stats.cut++;
    weft__sim_note(f, lane ? "delivered" : "gone", p);
    if (lane) {
        f->stats.delivered++;
        lane->take(lane, p);
    }
    weft__sim_packet_free(f, p);
}

/* A partition holds up a reliable lane; after its give-up time it breaks. */
static void hold_up(struct sim_iface *iface, struct sim_lane *src, struct sim_packet *p) {
    struct sim_fabric *f = iface->fabric;
    uint64_t now = weft__clock_now(f->clock);
    if (!p->blocked_at) {
        p->blocked_at = now;
        f->stats.cut++;
        weft__sim_note(f, "held", p);
    }
    if (now - p->blocked_at >= f->profile.spin_ns) {
        weft__sim_lane_post(src, SIM_LANE_EV_LOST, WEFT_ERR_PEER_FAILED);
        return;
    }
    p->at = now + 1 + f->profile.spin_ns / 64;
    weft__sim_heap_add(&iface->arriving, p);
}

/* The first word of a reliable lane: it answers ours, or asks for an end of its own. */
static void shaken(struct sim_iface *iface, struct sim_lane *src, struct sim_lane *lane,
                   const struct sim_packet *p) {
    if (p->dst == 0) {
        lane = accept_lane(iface, p);
        if (!lane) {
            weft__sim_lane_post(src, SIM_LANE_EV_REFUSED, WEFT_ERR_REFUSED);
            return;
        }
        struct sim_packet *hello = lane->hello;
        lane->hello = NULL;
        weft__sim_send(lane, hello);
    } else if (!lane || (lane->remote && lane->remote != src->id)) {
        weft__sim_lane_post(src, SIM_LANE_EV_LOST, WEFT_ERR_PEER_FAILED);
        return;
    }
    lane->remote = src->id;
    weft__sim_lane_step(lane, SIM_LANE_EV_ANSWERED);
}

static void hand_over(struct sim_iface *iface, struct sim_lane *src, struct sim_packet *p) {
    struct sim_lane *lane = p->dst ? weft__sim_lane(iface->fabric, p->dst) : NULL;
    if (p->kind == SIM_CONNECT) return shaken(iface, src, lane, p);
    if (p->kind == SIM_FLUSH) return;
    if (p->kind == SIM_KEY_WORD && lane) return weft__sim_key_word(lane, p);
    if (p->kind == SIM_FIN) {
        if (lane) lane->why = WEFT_ERR_PEER_CLOSED;
        if (lane) weft__sim_lane_step(lane, SIM_LANE_EV_FIN);
        weft__sim_lane_post(src, SIM_LANE_EV_LEFT, WEFT_OK);
        return;
    }
    if (lane) return lane->take(lane, p);
    p->status = WEFT_ERR_PEER_FAILED;
    weft__sim_lane_post(src, SIM_LANE_EV_LOST, WEFT_ERR_PEER_FAILED);
}

/* A large message comes in slices where its owner says where it is to go. */
static bool more_to_place(struct sim_iface *iface, struct sim_packet *p) {
    struct sim_lane *lane = p->dst ? weft__sim_lane(iface->fabric, p->dst) : NULL;
    if (p->kind != SIM_AM || p->run || !lane || !weft__sim_place(lane, p)) return false;
    p->blocked_at = 0; /* it moved on */
    p->at = weft__clock_now(iface->fabric->clock) + 1 + iface->fabric->profile.latency_ns / 8;
    weft__sim_heap_add(&iface->arriving, p);
    return true;
}

static void place_in_order(struct sim_iface *iface, struct sim_packet *p) {
    struct sim_fabric *f = iface->fabric;
    struct sim_lane *src = weft__sim_lane(f, p->src);
    if (!weft__sim_passes(f, p->from, p->to)) return hold_up(iface, src, p);
    if (more_to_place(iface, p)) return;
    if (!p->next) weft__sim_take_run(src);
    weft__sim_note(f, "delivered", p);
    f->stats.delivered++;
    src->first = p->next;
    if (!src->first) src->last = &src->first;
    hand_over(iface, src, p);
    weft__sim_retire(src, p, p->status);
    if (src->first) launch(src);
}

static void place_delivery(struct sim_iface *iface, struct sim_packet *p) {
    if (!p->cancelled) {
        if (iface->fabric->profile.reliable)
            place_in_order(iface, p);
        else
            place_datagram(iface, p);
        return;
    }
    if (!p->listed) weft__sim_packet_free(iface->fabric, p);
}

static void arrived(struct sim_iface *iface) {
    uint64_t now = weft__clock_now(iface->fabric->clock);
    while (iface->arriving && iface->arriving->at <= now)
        place_delivery(iface, weft__sim_heap_take(&iface->arriving));
    weft__sim_expect(iface);
}

void weft__sim_arrival(struct timer *timer) {
    arrived(OF_ARRIVAL(timer));
}

void weft__sim_expect(struct sim_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    if (!iface->arriving) return weft__timer_stop(r, &iface->arrival);
    if (weft__timer_at(r, &iface->arrival) == iface->arriving->at) return;
    if (weft__timer_start(r, &iface->arrival, iface->arriving->at) < 0)
        weft__job_post(r, &iface->rearm);
}

/* The iface closes: what comes to it is lost, and reliable lanes are notified. */
void weft__sim_arrivals_drop(struct sim_iface *iface) {
    struct sim_fabric *f = iface->fabric;
    while (iface->arriving) {
        struct sim_packet *p = weft__sim_heap_take(&iface->arriving);
        struct sim_lane *src = weft__sim_lane(f, p->src);
        if (p->cancelled) {
            if (!p->listed) weft__sim_packet_free(f, p);
        } else if (f->profile.reliable) {
            give_up(src, p);
        } else {
            if (src) free_sender(src);
            weft__sim_packet_free(f, p);
        }
    }
}
