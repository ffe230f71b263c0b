/* The worker: a reactor with its transports, links, endpoints and handlers. */
#ifndef WEFT_ENDPOINTS_WORKER_H
#define WEFT_ENDPOINTS_WORKER_H

#include <reactor/slab.h>
#include <stdatomic.h>
#include <weft/am.h>

#include "ep.h"
#include "idmap.h"
#include "match.h"
#include "memory.h"
#include "share.h"

enum {
    WORKER_IFACES = 8,
    WORKER_PEERS = 256,
    AM_ID_RESERVED = WEFT_AM_ID_MAX + 1, /* 64 ids for the rooms below this one */
    AM_ID_END = AM_ID_RESERVED + 64
};

struct am_handler {
    weft_am_fn fn;
    void *arg;
};

/* The message kept last in place, whose word may not be written yet (keep.c); data NULL: none. */
struct kept_last {
    const void *data;
    struct lane_keep *by;
    struct lane *alone; /* that brought the last message without an endpoint */
};

/* Something that a room below hung on the worker; closed before the endpoints are. */
struct worker_guest {
    struct list of_worker;
    const void *key;
    void *object;
    void (*close)(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *worker));
};

struct weft_worker {
    struct worker_core core;
    struct reactor *reactor;
    struct counters *count;
    weft_context_t *context;
    struct am_handler am[AM_ID_END];

    struct idmap eps, requests, listeners;
    struct list endpoints, due; /* those to whose users nothing is due, and the others */
    uint32_t n_due;
    struct job notify;
    struct slab ep_slab, link_slab;
    struct job half_told; /* some link is: link.c */
    struct list links, listening, guests;
    char *last_why;                    /* link.c: what links dialed last share, if they have the same reasons */
    struct list peers[WORKER_PEERS];   /* links whose peer is known, by hash of its id */
    uint32_t max_endpoints, max_links; /* that one peer may open */
    struct match match;
    struct memory memory;
    struct kept_last kept;

    struct list done; /* requests whose callback is due */
    struct job complete;
    struct list free_requests;
    struct list *free_plain;            /* plain.h: by `next` alone; NULL: none */
    struct list *free_fetches;          /* rma_message.c: the same */
    struct list held_done, held_posted; /* those whose callback waits for the program */
    uint32_t tellable; /* notices that may be told now: all, unless a thread holds them for the program */
    weft_thread_mode_t thread_mode;
    bool hosted;        /* by a loop of the program's */
    atomic_bool driven; /* by a thread of its own; any thread may look */
    atomic_bool polled; /* which holds the callbacks for the program */
    struct worker_thread *thread;
    _Atomic(void *) spare_posted; /* blocks for other threads' submissions */

    struct iface *iface[WORKER_IFACES];
    uint32_t n_ifaces, n_guests, n_lanes;
    uint64_t id;
    struct calibration calibration;
    struct protocol_limits limits[WORKER_IFACES]; /* of iface[i] */
    struct lanes *lanes;                          /* negotiate.c; NULL with it */
    struct live *live;                            /* live.h; NULL: nobody can look at it */
    struct tracking *tracking;                    /* usage_worker.h; NULL: "lanes.switch" is off */
    uint32_t unexpected_limit, stream_window;     /* an endpoint's whole share (share.h) of … */
    uint32_t max_unread;                          /* by one link: of all its endpoints together */
    uint32_t whole_shares;                        /* so many endpoints of a link have one */
    char *name;

    void (*on_endpoint)(weft_ep_t *, void *);
    void (*on_error)(weft_ep_t *, weft_status_t, void *);
    void *arg;
    struct job step; /* the machine's next event, outside any action */
    struct timer close_timer;
    weft_done_fn closed;
    void *closed_arg;
};

/* ---- for the rooms below */

/* A worker on a reactor made by the caller: simulations give one in virtual time. The reactor goes with the worker;
 * when this fails it is still the caller's. */
weft_status_t weft__worker_create_on(struct reactor *r, const weft_worker_params_t *params,
                                     weft_worker_t **worker_p);

struct reactor *weft__worker_reactor(weft_worker_t *worker);

/* As the public ones, for ids up to AM_ID_END. */
weft_status_t weft__am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg);
weft_status_t weft__am_send(weft_ep_t *ep, unsigned id, const void *header, size_t header_len,
                            const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);

/* Hangs `object` on the worker under the address `key`. When the worker closes, `close` is called, and must call `closed`
 * in its turn, then or later. */
weft_status_t weft__worker_attach(weft_worker_t *worker, const void *key, void *object,
                                  void (*close)(weft_worker_t *worker, void *object,
                                                void (*closed)(weft_worker_t *worker)));
void *weft__worker_attached(weft_worker_t *worker, const void *key);

/* The transport of that name, open in this worker, or NULL. */
struct iface *weft__worker_iface(weft_worker_t *worker, const char *name, size_t name_len);
/* The one that URIs of this scheme lead to. */
struct iface *weft__worker_scheme(weft_worker_t *worker, const char *scheme, size_t len);

/* ---- within the room */

/* Of all its endpoints the one after `ep`, or the first; NULL at the end. */
static inline struct weft_ep *weft__ep_next(const struct weft_worker *worker, const struct weft_ep *ep) {
    const struct list *n = ep ? ep->of_worker.next : worker->due.next;
    if (n == &worker->due) n = worker->endpoints.next;
    return n == &worker->endpoints ? NULL : list_of(n, struct weft_ep, of_worker);
}

/* The first question of every public call. */
static inline weft_status_t weft__worker_check(const weft_worker_t *worker) {
    return weft__reactor_check(worker->reactor);
}
/* The same of operations that another thread may submit: IN_PROGRESS when it is one, and may (endpoints/posted.h). */
static inline weft_status_t weft__worker_enter(const weft_worker_t *worker) {
    return weft__reactor_enter(worker->reactor);
}
/* Its number in worker->iface, and in worker->limits. */
uint8_t weft__worker_number(const weft_worker_t *worker, const struct iface *iface);
static inline const struct protocol_limits *weft__link_limits(const struct link *link) {
    return &link->worker->limits[link->at];
}
static inline struct iface *weft__link_home(const struct link *link) {
    return link->worker->iface[link->home];
}
static inline struct iface *weft__link_iface(const struct link *link) {
    return link->worker->iface[link->at];
}
/* What the peer may leave here on this endpoint, as OPEN and ACCEPT say: of tagged messages that nobody has asked for, and of its
 * stream. A quarter of it that was consumed goes back as credit. */
static inline uint32_t weft__ep_unexpected(const struct weft_ep *ep) {
    return weft__share_of(ep->worker->unexpected_limit, ep->halved);
}
static inline uint32_t weft__ep_window(const struct weft_ep *ep) {
    return weft__share_of(ep->worker->stream_window, ep->halved);
}
/* So many bytes more, that nobody has asked for. */
static inline bool weft__link_may_leave(const struct link *link, size_t bytes) {
    uint32_t most = link->worker->max_unread;
    return bytes <= most && link->unread <= most - bytes;
}
/* By this lane, now or not at all. */
weft_status_t weft__lane_say(struct lane *lane, const struct wire_message *m);
/* The same as the receiver sees it; no lane has a quicker way than the short one. */
static inline weft_status_t weft__link_say(const struct link *link, struct lane *lane,
                                           const struct wire_message *m) {
    uint64_t first;
    if (m->len < sizeof first || m->len - sizeof first > weft__link_iface(link)->attr.max_short)
        return weft__lane_say(lane, m);
    memcpy(&first, m->bytes, sizeof first);
    return lane->ops->am_short(lane, m->id, first, m->bytes + sizeof first, m->len - sizeof first);
}
/* The endpoint that a message on this lane names; NULL when it is not there (any more) or belongs to another peer. */
static inline struct weft_ep *weft__ep_of_lane(const struct lane *lane, uint32_t id) {
    const struct link *link = lane->owner;
    struct weft_ep *ep = link ? weft__idmap_find(&link->worker->eps, id) : NULL;
    return ep && ep->link == link ? ep : NULL;
}
/* The same for what only a peer says whose half is accepted; before that it is a violation, after the end it is lost. What
 * is due to the user is told first. */
struct weft_ep *weft__ep_heard_seldom(struct lane *lane, uint32_t id, const char *what);
static inline bool weft__ep_hears(const struct weft_ep *ep) {
    return (ep->core.fsm.state == EP_READY || ep->core.fsm.state == EP_DRAIN) && ep->core.peer && !ep->notices;
}
static inline struct weft_ep *weft__ep_heard_anew(const struct lane *lane, uint32_t id) {
    struct weft_ep *ep = weft__ep_of_lane(lane, id);
    return ep && weft__ep_hears(ep) ? ep->link->heard = ep : NULL;
}
/* Mostly it is the one that the message before named: then nothing that is looked at depends on this message. */
static inline struct weft_ep *weft__ep_heard_mostly(const struct lane *lane, uint32_t id) {
    const struct link *link = lane->owner;
    struct weft_ep *ep = link ? link->heard : NULL;
    if (__builtin_expect(!ep || ep->id != id, 0)) return weft__ep_heard_anew(lane, id);
    assert(weft__ep_hears(ep) && ep->link == link);
    return ep;
}
/* It owes the user a notice, or leaves its link: the next message asks again. */
static inline void weft__ep_unheard(const struct weft_ep *ep) {
    if (ep->link && ep->link->heard == ep) ep->link->heard = NULL;
}
static inline struct weft_ep *weft__ep_heard(struct lane *lane, uint32_t id, const char *what) {
    struct weft_ep *ep = weft__ep_heard_mostly(lane, id);
    return __builtin_expect(ep != NULL, 1) ? ep : weft__ep_heard_seldom(lane, id, what);
}
void weft__worker_endpoint_gone(weft_worker_t *worker);
void weft__worker_link_gone(weft_worker_t *worker);
void weft__listeners_close(weft_worker_t *worker);
/* BUSY from within a callback, which would wait for itself: asked before an operation is posted whose end is waited for. */
weft_status_t weft__worker_may_wait(const weft_worker_t *worker);
/* Drives the worker until `*done_p` is not WEFT_IN_PROGRESS; for the _wait forms. */
weft_status_t weft__worker_wait_for(weft_worker_t *worker, const weft_status_t *done_p);

#endif
