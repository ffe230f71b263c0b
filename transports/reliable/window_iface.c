/* An iface that looks reliable, around one that is not. */
#include "window_local.h"
#include <string.h>
#include <transports/common.h>

struct window_listener {
    struct iface *raw;
    struct tl_listener *listener;
};

/* ---- memory shared by its lanes -------------------------------------------------------------- */

struct window_message *weft__window_message_new(struct window_iface *iface, size_t len) {
    bool big = len > WINDOW_SMALL;
    struct window_message **pool = big ? &iface->big : &iface->small, *m = *pool;
    if (m)
        *pool = m->next;
    else if (!(m = weft__alloc(iface, sizeof *m + (big ? WINDOW_BCOPY : WINDOW_SMALL),
                               "struct window_message")))
        return NULL;
    *m = (struct window_message){.big = big};
    return m;
}

void weft__window_message_free(struct window_iface *iface, struct window_message *m) {
    struct window_message **pool = m->big ? &iface->big : &iface->small;
    m->next = *pool;
    *pool = m;
}

/* ---- reports of the raw iface ---------------------------------------------------------------- */

/* A raw lane without owner is one that memory did not suffice for: it is closed as it comes. */
static void raw_accepted(struct lane *raw, void *listen_arg) {
    struct window_lane *wl = weft__window_lane_new(raw->iface->owner, raw);
    if (!wl) return raw->ops->close(raw, false);
    wl->listen_arg = listen_arg;
    weft__window_step(wl, CONN_EV_ACCEPTED);
}

static void raw_up(struct lane *raw) {
    struct window_lane *wl = raw->owner;
    if (!wl) return;
    weft__window_step(wl, CONN_EV_RAW_UP);
    weft__window_settle(wl);
}

static void raw_down(struct lane *raw, weft_status_t status) {
    struct window_lane *wl = raw->owner;
    if (!wl) return;
    char cause[WINDOW_CAUSE];
    (void)weft__causes_line(status, cause, sizeof cause);
    weft__window_why(wl, status, cause);
    wl->blocked = false; /* its queue is purged */
    weft__window_step(wl, CONN_EV_RAW_LOST);
    weft__window_settle(wl);
}

static void raw_worked(struct lane *raw, uint64_t bytes) {
    struct window_lane *wl = raw->owner;
    if (wl) wl->lane.iface->up->worked(&wl->lane, bytes);
}

static void raw_closed(struct lane *raw) {
    struct window_lane *wl = raw->owner;
    if (!wl) return;
    weft__window_step(wl, CONN_EV_RAW_CLOSED);
    weft__window_settle(wl);
}

/* Frames use one id; others are noise. */
static void raw_noise(struct lane *raw, unsigned id, const void *data, size_t len) {
    weft__count(raw->iface->reactor)->violations++;
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct iface *raw_of(struct iface *iface) {
    return ((struct window_iface *)iface)->raw;
}

static weft_status_t address_iface(struct iface *i, void *buf, size_t *len_p) {
    return raw_of(i)->ops->address(raw_of(i), buf, len_p);
}

static weft_status_t reachable_iface(struct iface *i, const void *bytes, size_t len,
                                     const char **why_p) {
    return raw_of(i)->ops->reachable(raw_of(i), bytes, len, why_p);
}

static weft_status_t adopt_iface(struct iface *i, struct lane *raw, struct lane **lane_p) {
    struct window_lane *wl = weft__window_lane_new((struct window_iface *)i, raw);
    if (!wl) {
        raw->ops->close(raw, false);
        return WEFT_ERR_NO_MEMORY;
    }
    *lane_p = &wl->lane;
    return WEFT_OK;
}

static weft_status_t connect_iface(struct iface *i, const void *bytes, size_t len,
                                   struct lane **lane_p) {
    struct lane *raw;
    weft_status_t st = raw_of(i)->ops->connect(raw_of(i), bytes, len, &raw);
    return st < 0 ? st : adopt_iface(i, raw, lane_p);
}

static weft_status_t connect_scarce(struct iface *i, const void *bytes, size_t len,
                                    struct lane **lane_p) {
    struct lane *raw;
    weft_status_t st = raw_of(i)->ops->connect_scarce(raw_of(i), bytes, len, &raw);
    return st < 0 ? st : adopt_iface(i, raw, lane_p);
}

static weft_status_t connect_uri(struct iface *i, const char *where, struct lane **lane_p) {
    struct lane *raw;
    weft_status_t st = raw_of(i)->ops->connect_uri(raw_of(i), where, &raw);
    return st < 0 ? st : adopt_iface(i, raw, lane_p);
}

static weft_status_t lane_create(struct iface *i, struct lane **lane_p) {
    struct lane *raw;
    weft_status_t st = raw_of(i)->ops->lane_create(raw_of(i), &raw);
    return st < 0 ? st : adopt_iface(i, raw, lane_p);
}

static weft_status_t listen_uri(struct iface *i, const char *where, const struct listen_how *how,
                                void *arg, struct tl_listener **listener_p) {
    struct window_listener *l = weft__new(i, struct window_listener);
    if (!l) return WEFT_ERR_NO_MEMORY;
    l->raw = raw_of(i);
    weft_status_t st = l->raw->ops->listen(l->raw, where, how, arg, &l->listener);
    if (st < 0) {
        talloc_free(l);
        return st;
    }
    *listener_p = (struct tl_listener *)l;
    return WEFT_OK;
}

static const char *listener_uri(const struct tl_listener *listener) {
    const struct window_listener *l = (const struct window_listener *)listener;
    return l->raw->ops->listener_uri(l->listener);
}

static void listener_close(struct tl_listener *listener) {
    struct window_listener *l = (struct window_listener *)listener;
    l->raw->ops->listener_close(l->listener);
    talloc_free(l);
}

/* What is left are lanes that the owner never learned of. */
static void iface_close(struct iface *i) {
    struct window_iface *iface = (struct window_iface *)i;
    while (iface->lanes) weft__window_lane_free(iface->lanes);
    iface->raw->ops->close(iface->raw);
    weft__free_later(i->reactor, iface);
}

#define OPS(scarce, uri, listen_)                                                         \
    {                                                                                     \
        .address = address_iface, .reachable = reachable_iface, .connect = connect_iface, \
        .connect_scarce = scarce, .connect_uri = uri, .listen = listen_,                  \
        .listener_uri = listener_uri, .listener_close = listener_close,                   \
        .lane_create = lane_create, .close = iface_close                                  \
    }
/* By whether the transport below has scarce lanes, and URIs: callers look for the function. */
static const struct iface_ops ops_of[2][2] = {
    {OPS(NULL, NULL, NULL), OPS(NULL, connect_uri, listen_uri)},
    {OPS(connect_scarce, NULL, NULL), OPS(connect_scarce, connect_uri, listen_uri)}};

/* ---- opening --------------------------------------------------------------------------------- */

static size_t at_most(size_t value, size_t limit) {
    return value < limit ? value : limit;
}

static struct iface_attr attr_of(const struct window_iface *iface, const struct iface_attr *raw) {
    struct iface_attr attr = *raw;
    uint32_t ways =
        CAP_CONNECT_TO_IFACE | CAP_CONNECT_TO_LANE | CAP_LISTEN | CAP_WAKEUP | CAP_INTER_NODE;
    attr.caps = (raw->caps & ways) | CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY | CAP_RELIABLE;
    attr.max_short = WINDOW_SMALL - 8;
    attr.max_bcopy = WINDOW_BCOPY;
    attr.max_zcopy_header = WINDOW_HEADER;
    attr.max_zcopy =
        (uint32_t)at_most(WINDOW_ZCOPY, WINDOW_FRAGMENTS * iface->fragment - WINDOW_HEADER);
    attr.max_iov = WINDOW_IOV;
    attr.overhead_ns += 100;
    return attr;
}

static void recv_msg(struct iface_up *up) {
    for (unsigned id = 0; id < LANE_AM_IDS; id++) up->am[id] = raw_noise;
    up->am[WINDOW_RAW_ID] = weft__window_on_frame;
    up->accepted = raw_accepted;
    up->up = raw_up;
    up->down = raw_down;
    up->closed = raw_closed;
}

static weft_status_t read_settings(struct window_iface *iface, const weft_context_t *context) {
    iface->limit = weft__setting_u64(context, SETTING_WINDOW_BYTES);
    iface->give_up = weft__setting_u64(context, SETTING_WINDOW_GIVE_UP) * NS_PER_MS;
    assert(iface->give_up >= 10 * WINDOW_RTO_FIRST);
    iface->keep_alive = weft__setting_u64(context, SETTING_WINDOW_KEEP_ALIVE) * NS_PER_MS;
    iface->scratch = weft__alloc(iface, WINDOW_BCOPY, "window scratch");
    return iface->scratch ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

weft_status_t weft__window_iface_open(struct reactor *r, const struct transport *transport,
                                      const struct iface_params *params, struct iface **iface_p) {
    enum { LEAST_FRAGMENT = 128 };
    struct window_iface *iface = weft__new(r, struct window_iface);
    if (!iface) return WEFT_ERR_NO_MEMORY;
    recv_msg(&iface->raw_up);
    if (params->up->worked) iface->raw_up.worked = raw_worked;
    struct iface_params below = *params;
    below.up = &iface->raw_up;
    below.owner = iface;
    weft_status_t st = transport->open(r, &below, &iface->raw);
    if (st < 0) goto free_iface;
    const struct iface_attr *raw = &iface->raw->attr;
    if (raw->max_bcopy < WINDOW_HEAD + LEAST_FRAGMENT) {
        st = weft__fail(WEFT_ERR_UNSUPPORTED, "messages of %u bytes are too short for a window",
                        raw->max_bcopy);
        goto close_raw;
    }
    iface->fragment = raw->max_bcopy - WINDOW_HEAD;
    const struct iface_ops *ops = iface->raw->ops;
    iface_init(&iface->iface, &ops_of[ops->connect_scarce != NULL][ops->connect_uri != NULL],
               transport, iface->raw->device, r, params);
    iface->iface.attr = attr_of(iface, raw);
    iface->whole = (size_t)iface->iface.attr.max_zcopy + WINDOW_HEADER;
    st = read_settings(iface, weft__reactor_context(r));
    if (st < 0) goto close_raw;
    *iface_p = &iface->iface;
    return WEFT_OK;

close_raw:
    iface->raw->ops->close(iface->raw);
free_iface:
    talloc_free(iface);
    return st;
}
