/* The endpoint: a light handle on a link, with a state machine and credits of its own. */
#ifndef WEFT_ENDPOINTS_CORE_ENDPOINT_H
#define WEFT_ENDPOINTS_CORE_ENDPOINT_H

#include <weft/am.h>
#include <weft/endpoint.h>
#include <weft/tag.h>

#include "link.h"
#include "machines.h"
#include "request.h"
#include "tries.h"

struct stub;   /* base/stub.h */
struct cause;  /* cause.h */
struct ep_rma; /* rma.h */
struct rma_op;
struct am_send_args; /* messages/am.h */

/* What calls on an endpoint do in its state. The machine's effects install one of the three
 * tables of `struct features`. */
struct ep_ops {
    weft_status_t (*am_send)(struct weft_ep *ep, const struct am_send_args *args);
    weft_status_t (*tag_send)(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
                              const weft_op_t *op);
    weft_status_t (*flush)(struct weft_ep *ep, const weft_op_t *op);
    weft_status_t (*rma)(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how);
    /* sent_p: NULL where no one asks */
    weft_status_t (*stream_send)(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                 size_t *sent_p, const weft_op_t *op);
    /* WEFT_OK: a receive of its stream may wait */
    weft_status_t (*stream_check_wait)(struct weft_ep *ep);
};

/* Notices to the program, in this order. DRAINED is internal: no request is left, and the close
 * continues. */
enum {
    NOTICE_ENDPOINT = 1,
    NOTICE_READY = 2,
    NOTICE_DATA = 4,
    NOTICE_ERROR = 8,
    NOTICE_CLOSED = 16,
    NOTICE_DRAINED = 32,
    NOTICE_LANE = 64, /* before ERROR */
    NOTICE_ALL = 95
};

/* Needed until the program got on_ready or on_endpoint: the callback, and where to dial again. */
struct ep_start {
    void (*notified)(weft_ep_t *, void *); /* on_ready, or on_endpoint */
    void *arg;
    struct weft_ep *ep;                          /* whose start it is */
    weft_status_t (*redial)(struct weft_ep *ep); /* dialed: joins another link to the same peer */
    struct tries tries;
    bool has_sent; /* a message that needs no half of the peer's */
    weft_error_mode_t mode;
    uint32_t heartbeat_ms;
    uint64_t close_at;   /* the deadline of a close that came before the endpoint was ready */
    uint64_t refused_by; /* the last worker that had closed its listener; 0: none */
    uint32_t lease;      /* of the peer, from its address (lease.h); 0: not known */
    size_t dial_len;     /* 0: a URI, or nothing */
    char dial[];
};

/* A worker may have thousands of endpoints: fields that only the start or the end need are
 * elsewhere or in unions. */
struct weft_ep {
    struct ep_core core;
    const struct ep_ops *ops;
    struct link *link; /* NULL: lost */
    struct weft_worker *worker;
    /* Operations submitted by threads that have not begun, or whose refusal is not reported yet. */
    _Atomic uint32_t n_posted;
    uint8_t notices;   /* NOTICE_… due to the program; if any, the endpoint is in worker->due */
    bool closing : 1;  /* weft_ep_close was called, or the worker closes */
    bool draining : 1; /* the close ends when no request is left */
    bool accepted : 1; /* opened by the peer; counted in link->n_accepted */
    bool ready : 1;    /* `ops` sends at once */
    bool refuses : 1;  /* `ops` refuses all */
    bool owned : 1;    /* closed by its team, or the end of its association */
    bool outlives : 1; /* its handle stays when it has closed (ep_stub.c): see `rested` */
    bool mapped : 1;   /* `ops` sends at once, into a lease */
    uint8_t rma_slow;  /* 1: one-sided operations take the slow path */
    int8_t status;     /* a weft_status_t: why it was lost; refused operations return it */
    /* End of the cache line that messages touch. */

    int64_t credit;       /* bytes of unexpected tagged messages that the peer still accepts */
    int64_t credit_held;  /* withheld while sends wait for credit, so that later sends wait too */
    uint32_t credit_left; /* bytes to consume until credit is returned */
    uint32_t credit_out;  /* unexpected bytes of the peer in this endpoint */

    union {                 /* NULL until the first key is unpacked; below the worker */
        struct ep_rma *rma; /* rma/rma.h */
        struct list *keys;  /* its first member, for memory/ */
    };
    struct ep_tags *tags;   /* messages/match.h; NULL until the first tag */
    struct stream *stream;  /* NULL until the first use */
    uint32_t stream_window; /* the peer's window for this side's bytes */
    int8_t close_status;    /* a weft_status_t for `closed` */
    /* a weft_status_t of a refused operation of the peer, for its next flush */
    int8_t rma_refused;
    bool rested : 1;         /* a handle that outlives its closing, and has closed */
    uint8_t quota_shift : 7; /* its quota is the whole one, shifted by this (quota.h) */
    uint8_t lease;           /* number of the lease that it holds (lease.h); 0: none */

    struct list of_link, of_worker;
    struct list requests;         /* all, oldest first */
    union {                       /* one at a time */
        struct list queue;        /* that wait for READY */
        struct list credit_queue; /* that wait for credit */
    };

    union {
        void (*on_error)(weft_ep_t *, weft_status_t, void *);
        weft_done_fn closed; /* once `closing` is set */
    };
    void *arg, *user;
    struct timer timer;     /* connect, then close */
    struct cause *cause;    /* why it was lost, as text; NULL: it was not lost, or no memory */
    struct ep_start *start; /* The last field: the slab uses it once the endpoint is free */
};

/* Of this half, on the wire. 0: an endpoint in associated mode without a resource. */
static inline uint32_t weft__ep_id(const struct weft_ep *ep) {
    return ep->core.fsm.id;
}

/* True if one-sided operations need not wait: `ops` sends at once. */
static inline bool weft__ep_goes(const struct weft_ep *ep) {
    return ep->ready || ep->mapped;
}

/* ep_stub.c: an endpoint in associated mode; `worker` is in associated mode, and works. */
weft_status_t weft__ep_stub(struct weft_worker *worker, const weft_ep_params_t *params,
                            weft_ep_t **ep_p);
weft_status_t weft__ep_stub_close(weft_ep_t *ep);
/* The worker that will do its work. */
weft_worker_t *weft__ep_stub_worker(const weft_ep_t *ep);
/* It is an endpoint of its worker from now on. */
weft_status_t weft__ep_stub_join(struct stub *stub);
/* It is without a resource again; it has closed, or was never connected. Calls return `status`. */
void weft__ep_stub_rest(struct stub *stub, weft_status_t status);

weft_status_t weft__ep_new(struct weft_worker *worker, struct weft_ep **ep_p);
/* The same, in memory of the worker's slab. */
weft_status_t weft__ep_begin(struct weft_worker *worker, struct weft_ep *ep);
/* Takes back what weft__ep_begin and a connect that failed have done. */
void weft__ep_leave_worker(struct weft_ep *ep);
/* Frees an endpoint that neither the program nor a link has seen. */
void weft__ep_forget(struct weft_ep *ep);
/* Runs callbacks that are due, for `most` endpoints at most. Returns how many endpoints had one. */
unsigned weft__eps_notify(struct weft_worker *worker, unsigned most);
/* Events from the link. */
void weft__ep_link_up(struct weft_ep *ep);
void weft__ep_dialed(struct weft_ep *ep); /* It has a link, which may be up already. */
void weft__ep_link_gone(struct weft_ep *ep, weft_status_t status);
/* It has no link any more, and gets none. `why`: its cause, unless it has one; or NULL. */
void weft__ep_lose(struct weft_ep *ep, weft_status_t status, struct cause *why);
/* Does it dial again when its link, which it has not left yet, is lost with this status? */
bool weft__ep_may_redial(const struct weft_ep *ep, weft_status_t status);
/*
 * The listener that its URI names has closed since the connection was made, and the peer refuses
 * this endpoint. Another process may listen at that place by now. So the endpoint leaves the link,
 * which serves that URI no more, and dials again: once for each worker that refuses it so. False:
 * it does not, and is refused.
 */
bool weft__ep_asks_successor(struct weft_ep *ep, weft_status_t status);
void weft__ep_abort(struct weft_ep *ep); /* closes it without waiting */
/* on_error of an endpoint that a peer opened, where the program gave neither callback. Closes it,
 * unless the program may have its handle. */
void weft__ep_end_unknown(struct weft_ep *ep, weft_status_t status, void *arg);
/* Runs the callbacks that are due now, so that data does not overtake them. */
void weft__ep_notify(struct weft_ep *ep);
/* Queues a notice for a later turn. */
void weft__ep_notify_later(struct weft_ep *ep, uint32_t notice);
/* A request has completed. */
void weft__ep_request_left(struct weft_ep *ep);
/* A submission of n_posted is a request now, or its refusal was reported. */
void weft__ep_post_left(struct weft_ep *ep);
/* Logs the end of an endpoint that fails alone. The end of a link has a line of its own. */
void weft__ep_log_failure(const struct weft_ep *ep, weft_status_t status);
/* A protocol violation of the peer: this endpoint fails, its link stays. */
void weft__ep_violation(struct weft_ep *ep, weft_status_t status, const char *what);

#endif
