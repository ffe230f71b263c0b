/* An operation that did not complete within its call: its copy of the descriptor, its queue, its
 * deadline, and the machine that makes it complete once. */
#ifndef WEFT_ENDPOINTS_CORE_REQUEST_H
#define WEFT_ENDPOINTS_CORE_REQUEST_H

#include <reactor/reactor.h>
#include <stdatomic.h>
#include <string.h>
#include <transports/iov.h>
#include <transports/transport.h>
#include <weft/layout.h>
#include <weft/tag.h>

#include "machines.h"
#include <base/list.h>

struct link;

enum { REQUEST_IOV_INLINE = 4 };

/* The functions of one kind of operation. A function that a kind does not need is NULL. */
struct request_kind {
    const char *name;
    uint32_t flags;  /* of weft_op_t, that it accepts */
    bool moves_none; /* no bytes of the program: a layout is refused */
    bool message;    /* not one-sided: `rma` is not initialised */
    uint8_t offers;  /* a wire_offer: a send of it may be an offer; 0: never */
    bool places;     /* DATA fills its memory in order, so a transport may write there */
    /* Sends more. OK: all is sent. IN_PROGRESS: it has left the queue. NO_RESOURCE: the lane is
     * full. Or an error. */
    weft_status_t (*advance)(struct weft_request *req);
    /* The lane and the peer have returned its memory. */
    void (*returned)(struct weft_request *req, weft_status_t status);
    /* It is now the oldest request of its endpoint; in any state. */
    void (*oldest)(struct weft_request *req);
    /* It stops while WAITING (or ENDING): inform the peer or the matching. */
    void (*withdraw)(struct weft_request *req);
    /* Data came for it after it ended early. NULL: the data is dropped. */
    void (*late_data)(struct weft_request *req, size_t bytes);
    /* Free what it holds, before the callback; at once, where the callback is held. */
    void (*release)(struct weft_request *req);
    bool releases_late; /* with the callback, however long that is held */
    /* After that, of one that failed: notes the cause for the callback. NULL: the endpoint's cause,
     * and the name. */
    void (*explain)(struct weft_request *req);
};

/* A program's memory layout, in place of an iov (transfer/layout.h). Below its request. */
struct layout {
    struct weft_layout of;
    char *base;  /* STRIDED: the first block */
    void *state; /* USER: what `start` made */
    /* called once, when the request gives back what it holds */
    void (*end)(struct weft_request *req);
};

/* Outlives the operation: another thread may cancel an operation while it completes. */
struct request_cancel {
    struct remote remote;
    atomic_uint serial; /* grows when an operation completes, or when the next begins */
    atomic_uint asked;  /* `serial` of the latest operation to cancel */
    atomic_bool under_way;
};

/* Of a one-sided operation (rma/rma.h), of this side or served for the peer. */
struct request_rma {
    struct weft_rkey *rkey; /* the operation holds one reference */
    struct rma_piece piece; /* of a put or get */
    uint64_t remote, operand, compare;
    void *old_p;
    uint64_t order; /* number of the endpoint's one-sided messages up to this one */
    uint8_t what, atomic, size;
    bool by_message, answered, windowed, active;
    bool asked;           /* all of it is sent, and the peer will answer */
    bool on_device;       /* the request's layout has device memory; `piece` too, but `bounced` */
    bool bounced;         /* `piece` is memory of the host in place of a device's (rma_bounce.c) */
    bool ordered;         /* later operations wait for it */
    bool waited;          /* a lane switch waits for it */
    bool posted;          /* the transport has all of it; its flush may still wait for room */
    struct weft_mem *mem; /* served: the region that is read */
    struct list of_mem;
};

/* Of a receive: what it matches, and where its result goes. Of a tagged send: its tag. */
struct request_match {
    uint64_t tag, mask;
    uint64_t order; /* of the posted receives */
    union {
        weft_tag_info_t *info_p; /* a tagged receive */
        size_t *len_p;           /* a stream receive, or a send that is counted (or NULL) */
    };
};

/* Of a send: the header of its message, and whether its memory is offered. */
struct request_send {
    uint16_t header_len, am_id;
    uint32_t flags;
    /* 1: the peer may read the memory until its FIN; counted in `in_flight` */
    uint32_t offered;
};

/* Of a receive: the offer that it took, and the placement of its bytes. */
struct request_recv {
    union {
        uint64_t remote;      /* the sender's address, for a bulk get */
        struct weft_mem *mem; /* a wait for a region's withdrawal, which receives nothing */
        struct cause *cause;  /* a collective, once it has ended: of its failure, or NULL */
    };
    struct list taker;     /* in the table of receives that took an offer; zero: it took none */
    uint32_t fin_due;      /* 1: the sender waits for FIN */
    uint32_t placement_id; /* of the placement that the link's own lane is writing; 0: none */
    uint32_t taker_hash;
};

/* Of a message over several lanes (transfer/rails.c): of the whole, or of a part. */
struct request_rails {
    struct link *link; /* a part: the link of its lane */
    size_t base;       /* a part: its offset in the whole */
    uint64_t begun;    /* a receive: when it was requested */
    size_t bytes;      /* a whole: given to rails, counted from the end */
    size_t sent;       /* of those: given to their lanes */
    /* a receive: the ranges that rails carry (transfer/rail_ranges.c) */
    struct rail_ranges *ranges;
};

/* The head, which every kind has, and a part for each concern. A kind uses the parts that its
 * messages need; the others stay zero. */
struct weft_request {
    struct request_core core;
    struct list queued; /* in one queue of the endpoint, the link or the matching */
    const struct request_kind *kind;
    struct weft_worker *worker;
    struct request_cancel cancel;

    /* Up to `iov_inline`: all that a plain receive needs, in the first cache lines. */
    weft_done_fn done;
    union {
        void *arg;         /* of `done` */
        struct link *link; /* control messages: the link that they wait for */
        struct lane *lane; /* a lane's half of a flush: the lane */
    };
    weft_completion_t *completion; /* in place of `done`; of a plain receive: beside it */
    weft_status_t status;          /* of its completion */
    uint32_t n_iov;
    bool plain; /* request_fast.h: the fields below are zero; of an atomic: rma/rma_message.c */
    bool failed_there; /* a receive: `status` is the failure of its message at the sender */
    bool released;     /* what it held; its callback is held still */
    bool turn;         /* a tagged send: it may use the credit withheld (messages/tag_send.c) */
    struct request_match match;
    size_t len; /* bytes in iov (send), or bytes expected (receive) */
    weft_iov_t iov_inline[REQUEST_IOV_INLINE];

    weft_request_t **stands_for; /* of a submission by another thread: the posted operation */
    /* the program's handle; set to NULL if the call itself completes it */
    weft_request_t **named_p;
    struct weft_ep *ep;          /* NULL: an unmatched receive */
    struct list of_ep;           /* in ep->requests */
    struct list *queue;          /* the queue that ENQUEUE appends to */
    struct weft_request *other;  /* of a flush: the request for its lane, and back */
    void *group;                 /* what it is a part of; `release` of its kind uses it */
    struct completion in_flight; /* pieces that a lane holds; count 0: none */
    struct timer deadline;
    uint32_t id;      /* in worker->requests; 0: not on the wire */
    uint32_t peer_id; /* the peer's request, once known */

    /* The program's memory. */
    weft_iov_t *iov; /* iov_inline, or a copy below the request */
    /* the piece where the last fragment ended, and its offset in the message: */
    uint32_t iov_at;
    size_t iov_begin;      /* transfer/layout.c */
    struct layout *layout; /* in place of iov, or NULL */
    size_t offset;         /* bytes sent, or received */
    size_t placement;      /* bytes behind `offset` that the link's own lane is writing; 0: none */

    struct request_send send;
    /* below the request, freed with it; NULL when there is none: */
    union {
        void *owned;                  /* any of these */
        void *header;                 /* a send: the user header */
        struct batch *batch;          /* control messages that wait for the lane (control.c) */
        struct pieces *pieces;        /* put or get of several pieces (rma_pieces.c) */
        struct rma_packed *packed;    /* put or get that the program packs (rma_layout.c) */
        char *bounce;                 /* put or get of device memory (rma_bounce.c) */
        struct cuda_export *exported; /* a receive: the sender's device memory (device_fetch.c) */
        struct wire_message *answer;  /* an answer to the peer's operation (rma_target.c) */
    };
    /* the part that this side writes for its reader, or NULL (transfer/split_copy.c) */
    struct put_req *put_req;
    /* of a tagged message in fragments; of a receive: of its placement
     * (messages/tag_placement.c) */
    uint32_t number;

    struct request_recv recv;
    struct request_rails rails;
    struct request_rma rma;
};

/* A request in state IDLE, from the worker's pool; NULL when memory runs out. */
struct weft_request *weft__request_new(struct weft_worker *worker, const struct request_kind *kind);
/* Is there a free one? Then the next one cannot fail. */
bool weft__request_is_at_hand(const struct weft_worker *worker);
/* Frees a request that was never accepted. */
void weft__request_discard(struct weft_request *req);
/* Measures and copies the iov array. */
weft_status_t weft__request_iov(struct weft_request *req, const weft_iov_t *iov, size_t n_iov);
/* Gives it an id for the wire. */
weft_status_t weft__request_name(struct weft_request *req);
/* The next request that is named gets its id without memory. */
weft_status_t weft__request_reserve_name(struct weft_worker *worker);
/* What a peer still says of it is of no request. */
void weft__request_forget_name(struct weft_request *req);
/* Its deadline, for a request that must not fail once it has begun; weft__request_accept may set it
 * again. 0: none. */
weft_status_t weft__request_start_deadline(struct weft_request *req, uint64_t after_ms);
/* Accepts the operation with its endpoint (may be NULL), descriptor and deadline. Returns
 * WEFT_IN_PROGRESS. On an error the request is discarded. */
weft_status_t weft__request_accept(struct weft_request *req, struct weft_ep *ep,
                                   const weft_op_t *op);
/* Binds a receive to the endpoint of its message. */
void weft__request_bind(struct weft_request *req, struct weft_ep *ep);

void weft__request_queue(struct weft_request *req, struct list *queue); /* event QUEUE */
void weft__request_hand_over(struct weft_request *req);
void weft__request_park(struct weft_request *req);
void weft__request_finish(struct weft_request *req, weft_status_t status);
/* Completes a posted receive within the poll that found its message. It waits as others do if
 * other completions are due, or while callbacks are held. */
void weft__request_take(struct weft_request *req, weft_status_t status);
/* The peer no longer reads its memory. Does nothing unless the memory was offered. */
void weft__request_offer_over(struct weft_request *req);
/* Stops it for a cancel, a deadline, or the loss of its endpoint. */
void weft__request_stop(struct weft_request *req, weft_status_t status);
/* The same for a receive whose message failed at its sender. */
void weft__request_failed_there(struct weft_request *req, weft_status_t status);
/* Lanes that can, copy the bytes they have not sent yet, so that its memory is free within this
 * call. */
void weft__request_reclaim(struct weft_request *req);

/* A callback for a request that counts in a completion; the argument is the request. */
void weft__request_counted(weft_status_t status, void *req);
/* A handle taken from now on names the next operation. Only the owner thread writes it. */
static inline void weft__request_next_serial(struct weft_request *req) {
    unsigned serial = atomic_load_explicit(&req->cancel.serial, memory_order_relaxed);
    atomic_store_explicit(&req->cancel.serial, serial + 1, memory_order_relaxed);
}

/* Runs callbacks that are due, or holds them for the program. */
void weft__requests_complete(struct weft_worker *worker);
/* Runs due and held callbacks, `most` at most. Returns how many. */
unsigned weft__requests_notify(struct weft_worker *worker, unsigned most);

/* True for a descriptor that has a callback only: no flags, deadline or layout. */
static inline bool weft__op_is_plain(const weft_op_t *op) {
    return weft__op_reserved(op, op->flags | op->deadline_ms | (uintptr_t)op->layout) == 0;
}

#endif
