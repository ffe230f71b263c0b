/* The endpoint: a light handle on a link, with its own machine, handlers and credits. */
#ifndef WEFT_ENDPOINTS_EP_H
#define WEFT_ENDPOINTS_EP_H

#include <weft/am.h>
#include <weft/tag.h>

#include "link.h"
#include "machines.h"
#include "request.h"

struct ep_rma; /* rma.h */
struct rma_op;

/* What a state does with data: installed by the machine's effects, called without a branch. */
struct ep_ops {
    weft_status_t (*am_send)(struct weft_ep *ep, unsigned id, const void *header, size_t header_len,
                             const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);
    weft_status_t (*tag_send)(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov, size_t n_iov,
                              const weft_op_t *op);
    weft_status_t (*flush)(struct weft_ep *ep, const weft_op_t *op);
    weft_status_t (*rma)(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how);
    weft_status_t (*stream_send)(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov, const weft_op_t *op);
    weft_status_t (*stream_may_wait)(struct weft_ep *ep); /* may a receive of its stream wait for bytes? */
};
extern const struct ep_ops weft__ep_ops_wait, weft__ep_ops_ready, weft__ep_ops_refuse;

/* Notices to the user, in this order. DRAINED is our own: no request is left, and a close goes on. */
enum {
    NOTICE_ENDPOINT = 1,
    NOTICE_READY = 2,
    NOTICE_DATA = 4,
    NOTICE_ERROR = 8,
    NOTICE_CLOSED = 16,
    NOTICE_ALL = 31,
    NOTICE_DRAINED = 32
};

/* What an endpoint needs until the program was told of it: who is told, and where it dials, since a link may need another try. */
struct ep_start {
    void (*told)(weft_ep_t *, void *); /* on_ready, or on_endpoint */
    void *arg;
    weft_error_mode_t mode;
    uint32_t heartbeat_ms;
    uint64_t close_at; /* asked for so early, a close may take until then */
    size_t dial_len;   /* 0: a URI, or nothing */
    char dial[];
};

/* There may be thousands: what only beginning and end need is kept elsewhere, or shares its place. */
struct weft_ep {
    struct ep_core core;
    const struct ep_ops *ops;
    struct link *link; /* NULL: lost */
    struct weft_worker *worker;
    uint32_t id;       /* our half, for the wire */
    uint8_t notices;   /* due to the user; then it stands in worker->due */
    bool closing : 1;  /* somebody asked for its end */
    bool draining : 1; /* which comes when no request is left */
    bool guest : 1;    /* the peer opened it, and its link counts it */
    uint8_t rma_slow;  /* 1: something stands between an operation and its transport */
    int8_t status;     /* a weft_status_t: why it was lost; what sends are refused with */
    /* So far the cache line that messages touch. */

    int64_t credit;       /* bytes of unexpected tagged messages that the peer still takes */
    int64_t credit_held;  /* put aside while sends wait for credit, so that all wait */
    uint32_t credit_left; /* may be consumed here before it is given back */
    uint32_t credit_out;  /* unexpected bytes of the peer that stand here */

    struct ep_rma *rma;     /* keys, fences; NULL: it never had a key; below the worker */
    struct stream *stream;  /* NULL until one is used; below the worker */
    uint32_t stream_window; /* the peer's, for what we send on it */
    int8_t close_status;    /* a weft_status_t: what `closed` is told */
    int8_t rma_refused;     /* of what the peer posted: its next flush is told */
    uint8_t halved;         /* so often is its share of what the peer may leave here (share.h) */

    struct list of_link, of_worker;
    struct list requests;         /* all, in the order accepted */
    union {                       /* never both */
        struct list queue;        /* those that wait for READY */
        struct list credit_queue; /* those that wait for credit */
    };

    union {
        void (*on_error)(weft_ep_t *, weft_status_t, void *);
        weft_done_fn closed; /* while closing */
    };
    void *arg, *user;
    struct timer timer;     /* connect, then close */
    struct ep_start *start; /* the last word: the slab's, once it is buried */
};

weft_status_t weft__ep_new(struct weft_worker *worker, struct weft_ep **ep_p);
/* For one that nobody knows of. */
void weft__ep_forget(struct weft_ep *ep);
/* What is due to the users of all, or of so many. Returns of how many. */
unsigned weft__eps_tell(struct weft_worker *worker, unsigned most);
/* Events from the link. */
void weft__ep_link_up(struct weft_ep *ep);
void weft__ep_link_gone(struct weft_ep *ep, weft_status_t status);
void weft__ep_abort(struct weft_ep *ep); /* the worker closes */
/* What is due to the user is told now; data must not overtake it. */
void weft__ep_tell(struct weft_ep *ep);
/* A notice is due, in a turn of its own. */
void weft__ep_tell_later(struct weft_ep *ep, uint32_t notice);
/* A request left; the last one matters to a close. */
void weft__ep_request_left(struct weft_ep *ep);
/* The peer broke the rules of this endpoint: it alone fails. */
void weft__ep_violation(struct weft_ep *ep, weft_status_t status, const char *what);

/* A request of it left: a flush may stand first now. */
void weft__flush_check(struct weft_ep *ep);

void weft__ep_on_open(struct lane *lane, const void *data, size_t len);
void weft__ep_on_accept(struct lane *lane, const void *data, size_t len);
void weft__ep_on_reject(struct lane *lane, const void *data, size_t len);
void weft__ep_on_close(struct lane *lane, const void *data, size_t len);

#endif
