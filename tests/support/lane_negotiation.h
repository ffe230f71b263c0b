/* A hub and peers, each a worker of its own, whose links begin on tcp and may have lanes of shm.
 * Streams of numbers flow as the test asks. */
#ifndef WEFT_TESTS_SUPPORT_LANE_NEGOTIATION_H
#define WEFT_TESTS_SUPPORT_LANE_NEGOTIATION_H

#include "worker_pair.h"

#include <endpoints/lanes/negotiate_local.h>

enum { HUB_PEERS = 4, HUB_SETTINGS = 12 };

/* One direction of a link. */
struct numbers {
    weft_ep_t *ep;
    uint64_t sent, seen, wrong;
    unsigned burst; /* messages a turn */
    size_t len;
};
struct spoke {
    struct hub *hub;
    weft_worker_t *worker;
    struct numbers in, out; /* to the hub, from it */
    int ready, errors;
};
struct hub {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_listener_t *listener;
    struct spoke spoke[HUB_PEERS];
    unsigned n, accepted;
    unsigned over; /* times when a worker had more lanes than places */
};

static inline void hub_take(struct numbers *n, const weft_am_t *am) {
    uint64_t number;
    memcpy(&number, am->header, sizeof number);
    n->wrong += number != n->seen;
    n->seen++;
}
static inline void hub_receives(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct spoke *s = weft_ep_user(ep);
    if (s) hub_take(&s->in, am);
}
static inline void spoke_receives(weft_ep_t *ep, weft_am_t *am, void *arg) {
    hub_take(&((struct spoke *)arg)->out, am);
}
static inline void hub_on_endpoint(weft_ep_t *ep, void *arg) {
    struct hub *h = arg;
    struct spoke *s = &h->spoke[h->accepted++];
    s->out.ep = ep;
    weft_ep_set_user(ep, s);
}
static inline void hub_on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct spoke *s = weft_ep_user(ep);
    if (s && s->out.ep == ep) s->out.ep = NULL;
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}
static inline void spoke_on_ready(weft_ep_t *ep, void *arg) {
    ((struct spoke *)arg)->ready++;
}
static inline void spoke_on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct spoke *s = arg;
    s->errors++;
    if (s->in.ep == ep) s->in.ep = NULL;
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}
static inline void hub_quiet(weft_log_level_t level, const char *room, const char *line,
                             void *arg) {}

static inline void hub_send(struct numbers *n) {
    static char bytes[4096];
    for (unsigned i = 0; n->ep && i < n->burst; i++) {
        weft_iov_t iov = {bytes, n->len};
        if (weft_am_send(n->ep, 1, &n->sent, sizeof n->sent, &iov, 1, NULL) < 0) return;
        n->sent++;
    }
}

static inline void hub_check(struct hub *h, weft_worker_t *w) {
    uint32_t held = 0;
    if (!w || !w->lanes) return;
    for (uint32_t i = 0; i < w->n_ifaces; i++) {
        h->over += w->lanes->held[i] > w->lanes->capacity[i];
        held += w->lanes->held[i];
    }
    h->over += held != w->lanes->held_in_all || held > w->lanes->capacity_in_all;
}

static inline void hub_turn(struct hub *h) {
    for (unsigned i = 0; i < h->n; i++) {
        struct spoke *s = &h->spoke[i];
        /* What the peer has not taken for long is not added to. */
        if (s->in.sent - s->in.seen < 2000) hub_send(&s->in);
        if (s->out.sent - s->out.seen < 2000) hub_send(&s->out);
        if (s->worker) weft_worker_progress(s->worker, 0);
        hub_check(h, s->worker);
    }
    if (h->worker) weft_worker_progress(h->worker, 0);
    hub_check(h, h->worker);
}
#define HUB_UNTIL(h, cond)                                     \
    do {                                                       \
        double until_end = test_now() + test_timeout(60);      \
        while (!(cond) && test_now() < until_end) hub_turn(h); \
        CHECK(cond);                                           \
    } while (0)

static inline void hub_run(struct hub *h, double seconds) {
    double end = test_now() + seconds;
    while (test_now() < end) hub_turn(h);
}

/* `more` settings come after those that make all of it quick. */
static inline void hub_open(struct hub *h, unsigned n, const weft_setting_t *more, size_t n_more) {
    weft_setting_t all[HUB_SETTINGS] = {
        {"lanes.switch", "on"},         {"lanes.tick", "2ms"},      {"lanes.backoff", "5ms"},
        {"lanes.backoff_max", "100ms"}, {"lanes.min_hold", "10ms"}, {"lanes.min_rate", "64k"},
        {"lanes.switches", "100000"},   {"close.timeout", "50ms"}};
    size_t n_all = 8;
    for (size_t i = 0; i < n_more; i++) all[n_all++] = more[i];
    memset(h, 0, sizeof *h);
    h->n = n;
    CHECK_EQ(weft_context_create(
                 &(weft_context_params_t){.settings = all, .n_settings = n_all, .log = hub_quiet},
                 &h->context),
             0);
    CHECK_EQ(weft_worker_create(h->context, &(weft_worker_params_t){.transports = "shm,tcp"},
                                &h->worker),
             0);
    CHECK_EQ(weft_am_handler_set(h->worker, 1, hub_receives, h), 0);
    weft_listen_params_t listen = {
        .on_endpoint = hub_on_endpoint, .on_error = hub_on_error, .arg = h};
    CHECK_EQ(weft_listen(h->worker, "tcp://127.0.0.1:0", &listen, &h->listener), 0);
    for (unsigned i = 0; i < n; i++) {
        struct spoke *s = &h->spoke[i];
        s->hub = h;
        CHECK_EQ(weft_worker_create(h->context, &(weft_worker_params_t){.transports = "shm,tcp"},
                                    &s->worker),
                 0);
        CHECK_EQ(weft_am_handler_set(s->worker, 1, spoke_receives, s), 0);
        weft_ep_params_t params = {
            .on_ready = spoke_on_ready, .on_error = spoke_on_error, .arg = s};
        CHECK_EQ(weft_connect(s->worker, weft_listener_uri(h->listener), &params, &s->in.ep), 0);
        HUB_UNTIL(h, s->ready && h->accepted == i + 1);
    }
}

static inline void hub_closed(weft_status_t status, void *arg) {
    *(weft_worker_t **)arg = NULL;
}
static inline void hub_stop(struct hub *h) {
    for (unsigned i = 0; i < h->n; i++) h->spoke[i].in.burst = h->spoke[i].out.burst = 0;
}
static inline bool hub_all_closed(const struct hub *h) {
    bool all = !h->worker;
    for (unsigned i = 0; i < h->n; i++) all &= !h->spoke[i].worker;
    return all;
}
/* What was sent has arrived, in order; and no worker ever had too many lanes. */
static inline void hub_close(struct hub *h) {
    hub_stop(h);
    for (unsigned i = 0; i < h->n; i++) {
        struct spoke *s = &h->spoke[i];
        HUB_UNTIL(h, !s->in.ep || s->in.seen == s->in.sent);
        HUB_UNTIL(h, !s->out.ep || s->out.seen == s->out.sent);
        CHECK(s->in.wrong == 0 && s->out.wrong == 0);
        if (s->worker)
            CHECK_EQ(
                weft_worker_close(s->worker, &(weft_op_t){.done = hub_closed, .arg = &s->worker}),
                WEFT_IN_PROGRESS);
    }
    if (h->worker)
        CHECK_EQ(weft_worker_close(h->worker, &(weft_op_t){.done = hub_closed, .arg = &h->worker}),
                 WEFT_IN_PROGRESS);
    HUB_UNTIL(h, hub_all_closed(h));
    CHECK_EQ(h->over, 0);
    CHECK_EQ(weft_context_destroy(h->context), 0);
}

/* ---- what the negotiation came to */

static inline struct link *spoke_link(const struct spoke *s) {
    return s->in.ep ? ((struct weft_ep *)s->in.ep)->link : NULL;
}
/* The state of the peer's end of the link, or of the hub's. -1: no negotiation ever began. */
static inline int state_of_link(const struct link *link) {
    return link && link->more->lane_negotiation ? link->more->lane_negotiation->n.fsm.state : -1;
}
static inline int spoke_state(const struct spoke *s) {
    return state_of_link(spoke_link(s));
}
static inline int hub_state(const struct spoke *s) {
    return state_of_link(s->out.ep ? ((struct weft_ep *)s->out.ep)->link : NULL);
}
static inline bool is_fast(const struct spoke *s) {
    return spoke_state(s) == NEGOTIATE_FAST && hub_state(s) == NEGOTIATE_FAST;
}
static inline bool is_at_base(const struct spoke *s) {
    int here = spoke_state(s), there = hub_state(s);
    return (here == NEGOTIATE_BASE || here == NEGOTIATE_REST || here == -1) &&
           (there == NEGOTIATE_BASE || there == NEGOTIATE_REST || there == -1);
}

#endif
