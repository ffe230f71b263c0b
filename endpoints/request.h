/*
 * Operations that did not finish within their call: their copy of the descriptor, their place in a queue, their
 * deadline, and the machine that makes them complete once.
 */
#ifndef WEFT_ENDPOINTS_REQUEST_H
#define WEFT_ENDPOINTS_REQUEST_H

#include <reactor/reactor.h>
#include <stdatomic.h>
#include <string.h>
#include <transports/iov.h>
#include <transports/transport.h>
#include <weft/tag.h>

#include "list.h"
#include "machines.h"

struct link;

enum { REQUEST_IOV_INLINE = 4 };

/* What a kind of operation does at the points where kinds differ. */
struct request_kind {
    const char *name;
    uint32_t flags;  /* of weft_op_t, that it knows */
    bool moves_none; /* bytes of the program's, so that there is nothing to lay out */
    bool message;    /* it is no one-sided operation: what those need stays as it was */
    bool lands; /* DATA fills its memory from `offset` on, and it finishes at `len`: transports may write there */
    /* The lane may have room: OK (all is sent), IN_PROGRESS (sent or lent, out of the queue), NO_RESOURCE, or an error. */
    weft_status_t (*advance)(struct weft_request *req);
    /* All that was lent is back. */
    void (*returned)(struct weft_request *req, weft_status_t status);
    /* It ends while WAITING (or ENDING): tell the peer or the matching. */
    void (*withdraw)(struct weft_request *req);
    /* Just before the callback: give back what it holds. */
    void (*release)(struct weft_request *req);
};

/* Outlives the operation: another thread may ask for the end of one that ends meanwhile. */
struct request_cancel {
    struct remote remote;
    atomic_uint serial; /* grows when an operation ends, or when the next begins */
    atomic_uint asked;  /* the latest that is meant */
    atomic_bool under_way;
};

/* Of a one-sided operation (rma.h), and of a peer's that is served here. */
struct request_rma {
    struct weft_rkey *rkey; /* it holds one use of it */
    struct rma_piece piece; /* of a put or get */
    uint64_t remote, operand, compare;
    void *old_p;
    uint64_t order; /* messages of the endpoint's one-sided operations up to this one */
    uint8_t what, atomic, size;
    bool by_message, answered, windowed, active;
    bool asked;           /* all of it is sent, and the peer is to answer */
    bool ordered;         /* what is put after it waits for it */
    bool waited;          /* its lane is about to be left, and waits for it */
    bool posted;          /* the transport has all of it; what may be missing is room for its flush */
    struct weft_mem *mem; /* served: what is read */
    struct list of_mem;
};

/* Sent messages and messages to receive share the struct; each says what it uses. */
struct weft_request {
    struct request_core core;
    struct list queued; /* in one queue: of the endpoint, of the link, or of matching */
    const struct request_kind *kind;
    struct weft_worker *worker;
    struct request_cancel cancel;

    /* All that a plain receive needs stands here, in the first lines. */
    weft_done_fn done;
    void *arg;
    weft_completion_t *completion; /* in place of `done`; a plain one's `done` goes there */
    weft_status_t status;          /* how it will end */
    uint32_t n_iov;
    bool plain; /* plain.h: what stands below is blank; of an atomic: rma_message.c */
    uint64_t tag, tag_mask;
    uint64_t order; /* among the posted receives */
    union {         /* of a receive */
        weft_tag_info_t *info_p;
        size_t *len_p; /* of a stream's */
    };
    size_t len; /* bytes in iov (send), or bytes that will come (receive) */
    weft_iov_t iov_inline[REQUEST_IOV_INLINE];

    weft_request_t **stands_for; /* of another thread's submission: the operation itself, once it is posted */
    weft_request_t **named_p;   /* the program's name for it: goes where the call ends it, or its end is not told */
    struct weft_ep *ep;         /* NULL: a receive that is not matched */
    struct list of_ep;          /* in ep->requests */
    struct list *queue;         /* the one that ENQUEUE appends to */
    struct weft_request *other; /* of a flush: the lane's half of it, and back */
    void *group;                /* what it is a part of, by its kind; told in `release` */
    struct completion lent;     /* pieces that a lane has; count 0: none */
    struct timer deadline;
    uint32_t id;      /* in worker->requests; 0: the peer need not name it */
    uint32_t peer_id; /* the peer's request, once known */

    /* The program's memory. */
    weft_iov_t *iov;       /* iov_inline, or a copy below the request */
    uint32_t iov_at;       /* the piece that the last fragment ended in, and where in the message that begins: */
    size_t iov_begin;      /* layout.c */
    struct layout *layout; /* in place of iov, or NULL */
    size_t offset;         /* bytes sent, or received */
    size_t landing;        /* bytes after them that the link's own lane is writing there; 0: none */

    /* Of a send: what goes before the payload. */
    uint16_t header_len, am_id;
    uint32_t flags;
    uint32_t offered;  /* 1: one of `lent` is the peer's, who may read the memory until its FIN */
    void *header;      /* below the request; NULL when there is none */
    struct help *help; /* what is written of it for its reader, or NULL (joint.c) */
    uint32_t number;   /* of a tagged message in parts; of a receive, of its landing (tag_land.c) */

    /* Of a receive. */
    uint64_t remote;   /* for a bulk get */
    struct list taker; /* among those that took an offer; blank: it took none */
    uint32_t fin_due;  /* 1: the sender waits for our FIN */

    /* Over several lanes (rails.c). */
    struct link *rail;     /* of a part: its lane's link */
    size_t base;           /* of a part: where it begins in the whole */
    uint64_t begun;        /* of a receive: when it was asked for */
    size_t rail_bytes;     /* of a whole: given to rails, from the end */
    size_t rail_sent;      /* of those: handed to their lanes */
    struct spread *spread; /* of a receive: what comes by rails (spread.c) */

    struct request_rma rma;
};

/* A request in state IDLE, from the worker's pool; NULL when memory runs out. */
struct weft_request *weft__request_new(struct weft_worker *worker, const struct request_kind *kind);
/* For one that was never accepted. */
void weft__request_discard(struct weft_request *req);
/* Copies the iov array, once it is measured. */
weft_status_t weft__request_iov(struct weft_request *req, const weft_iov_t *iov, size_t n_iov);
/* Gives it an id that the peer can name. */
weft_status_t weft__request_name(struct weft_request *req);
/* Accepts the operation: its endpoint (may be NULL), its descriptor, its deadline. Returns WEFT_IN_PROGRESS, or an error
 * and the request is discarded. */
weft_status_t weft__request_accept(struct weft_request *req, struct weft_ep *ep, const weft_op_t *op);
/* Ties a receive to the endpoint that its message came from. */
void weft__request_bind(struct weft_request *req, struct weft_ep *ep);

void weft__request_queue(struct weft_request *req, struct list *queue); /* event QUEUE */
void weft__request_lend(struct weft_request *req);
void weft__request_park(struct weft_request *req);
void weft__request_finish(struct weft_request *req, weft_status_t status);
/* Ends a posted receive where a poll found its message, and tells the program there: bytes that a poll finds go straight to
 * it. Only behind completions that are due already, or while the program is away, it waits as others do. */
void weft__request_take(struct weft_request *req, weft_status_t status);
/* Cancel, deadline, or loss of the endpoint. */
void weft__request_stop(struct weft_request *req, weft_status_t status);

/* As a callback, and its argument: a request that counts for a completion has ended. */
void weft__request_counted(weft_status_t status, void *req);
/* Who names it from now on means the next operation. Only the owner writes it. */
static inline void weft__request_next_serial(struct weft_request *req) {
    unsigned serial = atomic_load_explicit(&req->cancel.serial, memory_order_relaxed);
    atomic_store_explicit(&req->cancel.serial, serial + 1, memory_order_relaxed);
}

/* Callbacks that are due, or held for the program where it is not there. */
void weft__requests_complete(struct weft_worker *worker);
/* It is there now: so many of both at most. Returns how many. */
unsigned weft__requests_tell(struct weft_worker *worker, unsigned most);

/* It asks for word of the end alone, whenever that is. */
static inline bool weft__op_is_plain(const weft_op_t *op) {
    return weft__op_reserved(op, op->flags | op->deadline_ms | (uintptr_t)op->layout) == 0;
}

#endif
