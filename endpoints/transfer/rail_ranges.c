/* Keeps which bytes of a receive have come by which lane, and refuses any others. */
#include "rail_ranges.h"

#include "rails.h"
#include <endpoints/core/worker.h>

struct range {
    struct lane *lane;
    uint32_t number;       /* of the rail */
    uint32_t placement_id; /* of the placement under way; 0: none */
    size_t begin, end;
    size_t placement; /* bytes after `end` that the lane is writing there; 0: none */
    uint64_t last;    /* when those before `end` were here */
};

struct rail_ranges {
    uint32_t n;
    struct range range[RAILS_MAX - 1];
    uint64_t own_last; /* the same of the link's own lane; 0: not known */
};

static bool apart(size_t a, size_t a_end, size_t b, size_t b_end) {
    return a_end <= b || b_end <= a;
}

static struct range *range_of(struct rail_ranges *s, const struct lane *lane) {
    for (uint32_t i = 0; s && i < s->n; i++)
        if (s->range[i].lane == lane) return &s->range[i];
    return NULL;
}

bool weft__rail_ranges_may_come(const struct weft_request *req, const struct lane *lane,
                                size_t offset, size_t n) {
    const struct link *link = weft__lane_link(lane);
    struct rail_ranges *s = req->rails.ranges;
    const struct range *own = range_of(s, lane);
    if (n == 0 || offset > req->len || n > req->len - offset) return false;
    if (!link->more->main && offset != req->offset) return false;
    if (link->more->main && (offset < req->offset + req->placement || req->layout)) return false;
    if (own && own->end != offset) return false;
    for (uint32_t i = 0; s && i < s->n; i++) {
        const struct range *r = &s->range[i];
        if (r != own && !apart(offset, offset + n, r->begin, r->end + r->placement)) return false;
    }
    return !link->more->main || own || !s || s->n < RAILS_MAX - 1;
}

static struct rail_ranges *rail_ranges_of(struct weft_request *req) {
    if (!req->rails.ranges) req->rails.ranges = weft__new(req->worker, struct rail_ranges);
    return req->rails.ranges;
}

/* This rail's range; it begins here when there is none yet. NULL: no memory. */
static struct range *range_for(struct weft_request *req, struct lane *lane, size_t offset) {
    struct rail_ranges *s = rail_ranges_of(req);
    struct range *r = range_of(s, lane);
    if (!s || r) return r;
    r = &s->range[s->n++];
    *r = (struct range){.lane = lane,
                        .number = weft__lane_link(lane)->more->rail_number,
                        .begin = offset,
                        .end = offset};
    return r;
}

/* When its lane is one of several, the sender wants to know. */
static void own_came(struct weft_request *req, const struct link *link, size_t n) {
    req->offset += n;
    bool may_share = link && link->more->rails && req->len >= RAILS_LEAST;
    if (may_share && rail_ranges_of(req))
        req->rails.ranges->own_last = weft__now(req->worker->reactor);
}

static void range_came(const struct weft_request *req, struct range *r, size_t n) {
    r->end += n;
    r->last = weft__now(req->worker->reactor);
}

weft_status_t weft__rail_ranges_came(struct weft_request *req, struct lane *lane, size_t offset,
                                     size_t n) {
    const struct link *link = weft__lane_link(lane);
    struct range *r = NULL;
    if (!link->more->main)
        own_came(req, link, n);
    else if ((r = range_for(req, lane, offset)) == NULL)
        return WEFT_ERR_NO_MEMORY;
    if (r) range_came(req, r, n);
    return WEFT_OK;
}

weft_status_t weft__rail_ranges_place(struct weft_request *req, struct lane *lane, size_t offset,
                                      size_t n, uint32_t placement) {
    const struct link *link = weft__lane_link(lane);
    struct range *r = NULL;
    if (link->more->main && (r = range_for(req, lane, offset)) == NULL) return WEFT_ERR_NO_MEMORY;
    *(r ? &r->placement : &req->placement) = n;
    *(r ? &r->placement_id : &req->recv.placement_id) = placement;
    return WEFT_OK;
}

static struct range *range_placement(struct rail_ranges *s, uint32_t placement) {
    for (uint32_t i = 0; s && i < s->n; i++)
        if (s->range[i].placement_id == placement) return &s->range[i];
    return NULL;
}

/* The lane may have lost its owner since then. */
void weft__rail_ranges_placed(struct weft_request *req, const struct lane *lane, uint32_t placement,
                              bool arrived) {
    struct range *r = range_placement(req->rails.ranges, placement);
    if (!r && req->recv.placement_id != placement) return;
    size_t n = r ? r->placement : req->placement;
    *(r ? &r->placement : &req->placement) = 0;
    *(r ? &r->placement_id : &req->recv.placement_id) = 0;
    if (!arrived) return;
    if (r)
        range_came(req, r, n);
    else
        own_came(req, weft__lane_link(lane), n);
}

/* A lane with a placement under way has not said its last word. The link's own is at its end when
 * the endpoint has no link. */
void weft__rail_ranges_stop(struct weft_request *req) {
    struct link *link = req->ep ? req->ep->link : NULL;
    struct rail_ranges *s = req->rails.ranges;
    for (uint32_t i = 0; req->placement && link && i < link->n_lanes; i++)
        if (link->lanes[i]->ops->place_stop)
            link->lanes[i]->ops->place_stop(link->lanes[i], req->recv.placement_id);
    for (uint32_t i = 0; s && i < s->n; i++) {
        const struct range *r = &s->range[i];
        if (r->placement) r->lane->ops->place_stop(r->lane, r->placement_id);
    }
}

bool weft__rail_ranges_all_came(const struct weft_request *req) {
    size_t sum = req->offset;
    const struct rail_ranges *s = req->rails.ranges;
    for (uint32_t i = 0; s && i < s->n; i++) sum += s->range[i].end - s->range[i].begin;
    return sum == req->len;
}

void weft__rail_ranges_report(const struct weft_request *req) {
    const struct rail_ranges *s = req->rails.ranges;
    struct link *link = req->ep->link;
    if (!s || s->n == 0 || !link) return;
    weft__rails_notify_rate(link, 0, req->offset, s->own_last - req->rails.begun);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct range *r = &s->range[i];
        weft__rails_notify_rate(link, r->number, r->end - r->begin, r->last - req->rails.begun);
    }
}
