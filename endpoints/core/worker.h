/* The worker: a reactor with its transports, links, endpoints and handlers. */
#ifndef WEFT_ENDPOINTS_CORE_WORKER_H
#define WEFT_ENDPOINTS_CORE_WORKER_H

#include <base/compiler.h>
#include <base/stub.h>
#include <inttypes.h>
#include <reactor/slab.h>
#include <stdatomic.h>
#include <weft/am.h>

#include "endpoint.h"
#include "features.h"
#include "quota.h"
#include <base/idmap.h>
#include <endpoints/memory/memory.h>
#include <endpoints/messages/match.h>
#include <endpoints/transfer/placement.h>
#include <transports/cuda/copies.h>

enum {
    WORKER_IFACES = 8,
    WORKER_PEERS = 256,
    AM_ID_RESERVED = WEFT_AM_ID_MAX + 1, /* 64 ids for the rooms that use this one */
    AM_ID_END = AM_ID_RESERVED + 64
};

struct am_handler {
    weft_am_fn fn;
    void *arg;
};

/* The last message that a handler kept in place (messages/am_retain.c); data NULL: none. */
struct kept_last {
    const void *data;
    struct lane_keep *by;
    struct lane *alone; /* the lane of the last message without an endpoint */
};

/* An object that a higher room attached; the worker closes it before its endpoints. */
struct worker_attachment {
    struct list of_worker;
    const void *key;
    void *object;
    void (*close)(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *worker));
};

/* What peers may take of this worker. */
struct worker_limits {
    uint32_t endpoints, links;          /* of one peer */
    uint32_t answers;                   /* bytes of answers queued per link */
    uint32_t n_opened, max_opened;      /* endpoints that all peers opened */
    uint32_t n_accepted, max_accepted;  /* links that all peers dialed */
    uint32_t unexpected, stream_window; /* a whole quota of an endpoint (quota.h) */
    uint32_t link_unexpected;           /* of all endpoints of a link */
    uint32_t full_quotas;               /* endpoints of a link with a whole quota */
    uint64_t kept, max_kept;  /* unexpected bytes of all links, and of links that are gone */
    uint32_t all_full_quotas; /* endpoints of the worker with a whole quota */
    uint32_t n_endpoints;     /* of all links */
};

/* Completed requests, and whose callbacks may run now (request.c, threads/). */
struct worker_callbacks {
    struct list done; /* requests whose callback is due */
    struct job complete;
    struct list held_done, held_posted; /* whose callbacks are held for the program */
    uint32_t deliverable; /* NOTICE_… that may run now: all, unless a thread holds callbacks */
    struct am_handler *handlers; /* `am`, or the thread's table while it holds callbacks */
};

/* A transport that could not be opened. */
struct unopened {
    const char *transport, *why;
};

/* Free objects, kept for the next use. */
struct worker_pools {
    struct slab eps, links;
    struct list requests;
    struct list *plain;     /* request_fast.h: linked by `next`; NULL: none */
    struct list *fetches;   /* rma/rma_message.c: the same */
    _Atomic(void *) submit; /* blocks of submit.c */
};

/* What drives the worker (threads/). */
struct worker_driver {
    weft_thread_mode_t thread_mode;
    bool hosted;            /* an event loop of the program */
    atomic_bool has_thread; /* a thread of its own; any thread may read it */
    atomic_bool polled;     /* that thread holds callbacks for the program */
    struct worker_thread *thread;
};

/* The close of the worker (worker.fsm). */
struct worker_close {
    struct job step; /* gives the machine its next event */
    struct timer timer;
    weft_done_fn done;
    void *arg;
};

struct weft_worker {
    struct worker_core core;
    struct reactor *reactor;
    struct counters *count;
    weft_context_t *context;
    struct am_handler am[AM_ID_END];

    struct idmap eps, requests, listeners;
    struct list endpoints, due; /* endpoints without notices, and those with notices */
    uint32_t n_due;
    struct job notify;
    struct job ctrl_failed; /* runs weft__links_ctrl_failed */
    struct list links, listening, attachments;
    struct cause *losing;            /* of the link that is failing now; NULL: none */
    char *last_why;                  /* the text that links dialed last share as `why` (link.c) */
    struct list peers[WORKER_PEERS]; /* links by hash of their peer's id, once it is known */
    struct worker_limits limit;
    struct match match;
    struct memory memory;
    struct placements placements;
    struct offers offers;
    struct device_copies device;
    const struct transfer_users *transfer_users; /* what transfer/ calls above it (placement.h) */
    struct kept_last kept;

    struct worker_callbacks callbacks;
    struct worker_pools pools;
    struct list late_receives; /* messages/am_late.c */
    struct list left_flushes;  /* rma/flush.c: lane requests of flushes that ended early */
    struct worker_driver driver;

    const struct features *features; /* what other rooms hang on links and endpoints */
    struct iface *iface[WORKER_IFACES];
    uint32_t n_ifaces, n_attachments, n_lanes;
    uint32_t last_link_id;
    uint64_t id;
    struct calibration calibration;
    struct protocol_limits limits[WORKER_IFACES]; /* of iface[i] */
    /* lanes/negotiate.c; NULL: "lanes.switch" is off */
    struct lanes *lanes;
    struct live *live; /* inspect/stats_page.h; NULL: no page */
    /* lanes/usage_worker.h; NULL: "lanes.switch" is off */
    struct tracking *tracking;
    char *name;

    void (*on_endpoint)(weft_ep_t *, void *);
    void (*on_error)(weft_ep_t *, weft_status_t, void *);
    void (*on_lane)(weft_ep_t *, void *);
    void *arg;
    bool has_handlers; /* the program has set one */
    struct worker_close close;
    struct stub *stub;     /* associated mode; NULL: no */
    weft_worker_t *shared; /* the worker that does the work of this one; NULL: itself */
    struct lease *lease;   /* of that worker, by which this one uses it */
    struct leases *leases; /* of this one, to others (lease.h); NULL: none */
    uint32_t n_opened_by;  /* teams, and objects in associated mode, that name it */
    uint32_t n_unopened;
    struct unopened unopened[WORKER_IFACES];
};

/* ---- for other rooms */

/* The worker of objects without a resource: all checks of calls return `status`, which is
 * NOT_ASSOCIATED, DISASSOCIATED or RESOURCE_LOST. */
weft_worker_t *weft__stub_worker(weft_status_t status);
bool weft__is_stub_worker(const weft_worker_t *worker);
/*
 * The stub of an object on a worker in associated mode, which must work. It keeps `size` bytes of
 * `params`. stub->closing frees an object that has no resource when the worker closes.
 */
weft_status_t weft__worker_stub_new(weft_worker_t *worker, enum stub_type type, void *object,
                                    const void *params, size_t size, struct stub **stub_p);
/* The object is gone: frees the stub. */
void weft__worker_stub_gone(struct stub *stub);
/* The association of the object ended: it rests, or goes with its worker, which closes. */
void weft__worker_stub_rests(struct stub *stub, weft_status_t status);
/* How many objects of `parent` have no resource; it works by `itself`. And their end. */
uint32_t weft__worker_stubs_resting(const weft_worker_t *parent, const weft_worker_t *itself);
void weft__worker_stubs_free(const weft_worker_t *parent, weft_worker_t *itself);

/* The worker that does the work: the provider's, if this one is associated with it. */
static inline weft_worker_t *weft__worker_itself(weft_worker_t *worker) {
    return worker && UNLIKELY(worker->shared != NULL) ? worker->shared : worker;
}

/* For the calls about the thread that owns a worker. UNSUPPORTED: another worker does its work; or
 * the status that a worker without a resource answers with. */
weft_status_t weft__worker_check_own(const weft_worker_t *worker);

/* What calls return, and operations that are left, when the worker has begun to close: CLOSED, or
 * why its association ends. */
weft_status_t weft__worker_end_status(const weft_worker_t *worker);
/* The same, with the cause for a call that is refused. */
weft_status_t weft__worker_refuse(const weft_worker_t *worker);

struct reactor *weft__worker_reactor(weft_worker_t *worker);

/* Attaches `object` to the worker under the address `key`. When the worker closes, it calls
 * `close`, which must call `closed`, then or later. */
weft_status_t weft__worker_attach(weft_worker_t *worker, const void *key, void *object,
                                  void (*close)(weft_worker_t *worker, void *object,
                                                void (*closed)(weft_worker_t *worker)));
/* The same, and it is closed before what is there already. */
weft_status_t weft__worker_attach_first(weft_worker_t *worker, const void *key, void *object,
                                        void (*close)(weft_worker_t *worker, void *object,
                                                      void (*closed)(weft_worker_t *worker)));
void *weft__worker_attached(weft_worker_t *worker, const void *key);
/* Takes it back, before the worker closes. */
void weft__worker_detach(weft_worker_t *worker, const void *key);

/* For lines of the log: "worker kv-1 (0123456789abcdef)". Without a name it is the id alone. */
#define WORKER_TEXT "worker %s%s%016" PRIx64 "%s"
#define WORKER_ARGS(worker)                                                         \
    (worker)->name ? (worker)->name : "", (worker)->name ? " (" : "", (worker)->id, \
        (worker)->name ? ")" : ""

/* The transport of that name, open in this worker, or NULL. */
struct iface *weft__worker_iface(weft_worker_t *worker, const char *name, size_t name_len);
/* Is its transport in the list, by commas? All are in NULL. */
bool weft__iface_is_named(const struct iface *iface, const char *transports);
/* connect/address.c: as weft_worker_address, with those transports only. */
weft_status_t weft__worker_address_by(weft_worker_t *worker, const char *transports, void *buf,
                                      size_t *len_p);
/* The one that URIs of this scheme lead to. */
struct iface *weft__worker_scheme(weft_worker_t *worker, const char *scheme, size_t len);
/* Whether a transport of this build, be it open or not, has this scheme; and the schemes of all. */
bool weft__scheme_is_known(const char *scheme, size_t len);
void weft__schemes(char *text, size_t size);

/* ---- within the room */

/* The endpoint after `ep`, or the first for NULL. NULL at the end. */
static inline struct weft_ep *weft__ep_next(const struct weft_worker *worker,
                                            const struct weft_ep *ep) {
    const struct list *n = ep ? ep->of_worker.next : worker->due.next;
    if (n == &worker->due) n = worker->endpoints.next;
    return n == &worker->endpoints ? NULL : list_of(n, struct weft_ep, of_worker);
}

/* The first check of every public call. */
static inline weft_status_t weft__worker_check(const weft_worker_t *worker) {
    return weft__reactor_check(worker->reactor);
}
/* The same for operations that another thread may submit. IN_PROGRESS: the caller is such a
 * thread (submit.h). */
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
/* Unexpected bytes of tagged messages, and of the stream, that OPEN and ACCEPT grant the peer on
 * this endpoint. Credit returns when a quarter of it has been consumed. */
static inline uint32_t weft__ep_unexpected(const struct weft_ep *ep) {
    return weft__quota_of(ep->worker->limit.unexpected, ep->quota_shift);
}
static inline uint32_t weft__ep_window(const struct weft_ep *ep) {
    return weft__quota_of(ep->worker->limit.stream_window, ep->quota_shift);
}
/* Sends over this lane at once, or returns NO_RESOURCE. */
weft_status_t weft__lane_send_ctrl(struct lane *lane, const struct wire_message *m);
/* The same for the receiver, by am_short where the message fits. */
static inline weft_status_t weft__link_send_ctrl(const struct link *link, struct lane *lane,
                                                 const struct wire_message *m) {
    uint64_t first;
    if (m->len < sizeof first || m->len - sizeof first > weft__link_iface(link)->attr.max_short)
        return weft__lane_send_ctrl(lane, m);
    memcpy(&first, m->bytes, sizeof first);
    return lane->ops->am_short(lane, m->id, first, m->bytes + sizeof first, m->len - sizeof first);
}
static inline struct weft_ep *weft__ep_of_link(const struct link *link, uint32_t id) {
    struct weft_ep *ep = weft__idmap_find(&link->worker->eps, id);
    return ep && ep->link == link ? ep : NULL;
}
/* The endpoint that a message on this lane names. NULL: it has gone, or belongs to another peer. */
static inline struct weft_ep *weft__ep_of_lane(const struct lane *lane, uint32_t id) {
    const struct link *link = weft__lane_link(lane);
    return link ? weft__ep_of_link(link, id) : NULL;
}
/* The same for messages that only an accepted half may send. Before ACCEPT they are a violation,
 * after the close they are dropped. Due notices run first. */
struct weft_ep *weft__ep_lookup_slow(struct lane *lane, uint32_t id, const char *what);
static inline bool weft__ep_may_receive(const struct weft_ep *ep) {
    return ep_is_connected(&ep->core.fsm) && ep->core.peer && !ep->notices;
}
static inline struct weft_ep *weft__ep_lookup_uncached(const struct link *link, uint32_t id) {
    if (UNLIKELY(!link->worker)) return NULL; /* weft__no_link */
    struct weft_ep *ep = weft__ep_of_link(link, id);
    return ep && weft__ep_may_receive(ep) ? ep->link->last_ep = ep : NULL;
}
/* Most messages name the endpoint of the message before: then no load depends on the message. */
static inline struct weft_ep *weft__ep_lookup_cached(const struct lane *lane, uint32_t id) {
    const struct link *link = lane->owner; /* a lane that receives has one, or weft__no_link */
    struct weft_ep *ep = link->last_ep;
    if (UNLIKELY(!ep || weft__ep_id(ep) != id)) ep = weft__ep_lookup_uncached(link, id);
    if (UNLIKELY(lane->owner_id != weft__link_id(link))) return NULL;
    assert(!ep || (weft__ep_may_receive(ep) && ep->link == link));
    return ep;
}
/* Clears the cache: the endpoint has a notice due, or leaves its link. */
static inline void weft__ep_lookup_forget(const struct weft_ep *ep) {
    if (ep->link && ep->link->last_ep == ep) ep->link->last_ep = NULL;
}
static inline struct weft_ep *weft__ep_lookup(struct lane *lane, uint32_t id, const char *what) {
    struct weft_ep *ep = weft__ep_lookup_cached(lane, id);
    return LIKELY(ep != NULL) ? ep : weft__ep_lookup_slow(lane, id, what);
}
void weft__worker_endpoint_gone(weft_worker_t *worker);
void weft__worker_link_gone(weft_worker_t *worker);

#endif
