#include "spread.h"

#include "rails.h"
#include "worker.h"

struct range {
    struct lane *lane;
    uint32_t number; /* of the rail */
    size_t begin, end;
    size_t landing; /* bytes after `end` that the lane is writing there; 0: none */
    uint64_t last;  /* when those before `end` were here */
};

struct spread {
    uint32_t n;
    struct range range[RAILS_MAX - 1];
    uint64_t own_last; /* the same of the link's own lane; 0: not known */
};

static bool apart(size_t a, size_t a_end, size_t b, size_t b_end) {
    return a_end <= b || b_end <= a;
}

static struct range *range_of(struct spread *s, const struct lane *lane) {
    for (uint32_t i = 0; s && i < s->n; i++)
        if (s->range[i].lane == lane) return &s->range[i];
    return NULL;
}

bool weft__spread_may_come(const struct weft_request *req, const struct lane *lane, size_t offset, size_t n) {
    const struct link *link = lane->owner;
    struct spread *s = req->spread;
    const struct range *own = range_of(s, lane);
    if (n == 0 || offset > req->len || n > req->len - offset) return false;
    if (!link->more->main && offset != req->offset) return false;
    if (link->more->main && (offset < req->offset + req->landing || req->layout)) return false;
    if (own && own->end != offset) return false;
    for (uint32_t i = 0; s && i < s->n; i++) {
        const struct range *r = &s->range[i];
        if (r != own && !apart(offset, offset + n, r->begin, r->end + r->landing)) return false;
    }
    return !link->more->main || own || !s || s->n < RAILS_MAX - 1;
}

static struct spread *spread_of(struct weft_request *req) {
    if (!req->spread) req->spread = weft__new(req->worker, struct spread);
    return req->spread;
}

/* This rail's range; it begins here when there is none yet. NULL: no memory. */
static struct range *range_for(struct weft_request *req, struct lane *lane, size_t offset) {
    struct spread *s = spread_of(req);
    struct range *r = range_of(s, lane);
    if (!s || r) return r;
    r = &s->range[s->n++];
    *r = (struct range){
        .lane = lane, .number = ((struct link *)lane->owner)->more->rail_number, .begin = offset, .end = offset};
    return r;
}

/* When its lane is one of several, the sender wants to know. */
static void own_came(struct weft_request *req, const struct link *link, size_t n) {
    req->offset += n;
    bool may_share = link && link->more->rails && req->len >= RAILS_LEAST;
    if (may_share && spread_of(req)) req->spread->own_last = weft__now(req->worker->reactor);
}

static void range_came(const struct weft_request *req, struct range *r, size_t n) {
    r->end += n;
    r->last = weft__now(req->worker->reactor);
}

weft_status_t weft__spread_came(struct weft_request *req, struct lane *lane, size_t offset, size_t n) {
    const struct link *link = lane->owner;
    struct range *r = NULL;
    if (!link->more->main)
        own_came(req, link, n);
    else if ((r = range_for(req, lane, offset)) == NULL)
        return WEFT_ERR_NO_MEMORY;
    if (r) range_came(req, r, n);
    return WEFT_OK;
}

weft_status_t weft__spread_land(struct weft_request *req, struct lane *lane, size_t offset, size_t n) {
    const struct link *link = lane->owner;
    struct range *r = NULL;
    if (!link->more->main)
        req->landing = n;
    else if ((r = range_for(req, lane, offset)) == NULL)
        return WEFT_ERR_NO_MEMORY;
    if (r) r->landing = n;
    return WEFT_OK;
}

/* The lane may have lost its owner meanwhile; it is known by itself. */
void weft__spread_landed(struct weft_request *req, const struct lane *lane, bool arrived) {
    struct range *r = range_of(req->spread, lane);
    size_t n = r ? r->landing : req->landing;
    if (r)
        r->landing = 0;
    else
        req->landing = 0;
    if (!arrived) return;
    if (r)
        range_came(req, r, n);
    else
        own_came(req, lane->owner, n);
}

/* A lane with a landing under way has not said its last word. The link's own is at its end when the endpoint has no link. */
void weft__spread_stop(struct weft_request *req) {
    struct link *link = req->ep ? req->ep->link : NULL;
    struct spread *s = req->spread;
    for (uint32_t i = 0; req->landing && link && i < link->n_lanes; i++)
        if (link->lanes[i]->ops->land_stop) link->lanes[i]->ops->land_stop(link->lanes[i], req);
    for (uint32_t i = 0; s && i < s->n; i++)
        if (s->range[i].landing) s->range[i].lane->ops->land_stop(s->range[i].lane, req);
}

bool weft__spread_all_came(const struct weft_request *req) {
    size_t sum = req->offset;
    const struct spread *s = req->spread;
    for (uint32_t i = 0; s && i < s->n; i++) sum += s->range[i].end - s->range[i].begin;
    return sum == req->len;
}

void weft__spread_report(const struct weft_request *req) {
    const struct spread *s = req->spread;
    struct link *link = req->ep->link;
    if (!s || s->n == 0 || !link) return;
    weft__rails_tell_rate(link, 0, req->offset, s->own_last - req->begun);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct range *r = &s->range[i];
        weft__rails_tell_rate(link, r->number, r->end - r->begin, r->last - req->begun);
    }
}
