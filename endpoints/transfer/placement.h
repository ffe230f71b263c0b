/*
 * Direct placement: a transport writes a payload straight into its destination (CAP_PLACE in
 * transports/transport.h).
 *
 * Each placement has a record with an id that is never used again. Transports report by id, so a
 * report about a placement that has ended finds nothing. All memory that a transport may write into
 * is checked here against the request or the region.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_PLACEMENT_H
#define WEFT_ENDPOINTS_TRANSFER_PLACEMENT_H

#include <base/idmap.h>
#include <endpoints/core/endpoint.h>
#include <endpoints/transfer/offers.h>

struct placement_record;

/* The functions of one kind of message. */
struct placement_kind {
    /* All is checked: the transport owns the memory until `ended`. An error: nothing is placed. */
    weft_status_t (*begin)(struct placement_record *of);
    /* Called once. `status` is OK, CANCELLED (stopped), or the status that ended the lane. */
    void (*ended)(const struct placement_record *of, weft_status_t status);
};

struct placement_record {
    const struct placement_kind *kind;
    uint32_t id;
    struct lane *lane;      /* the lane as its link knows it */
    const struct lane *raw; /* the transport's lane, which reports */
    /* length of the message; offset in the request's memory, and length, of the payload */
    size_t len, offset, n;

    struct weft_request *req; /* the request that it fills; NULL: the region below */
    struct weft_mem *mem;
    uint32_t ep, request, flags; /* of the put */

    uint64_t tag; /* a tagged message's tag and sender */
    struct weft_ep *from;

    struct list of; /* in mem->placements, or in `standby` */
};

/* Of a worker. */
struct placements {
    struct idmap by_id;
    struct list standby;
};
void weft__placements_init(struct placements *placements);

/* Finds the destination of a payload: fills `of`, `to->skip` and `to->iov`, and changes nothing
 * else. False leaves the message to its handler, which also reports malformed ones. */
typedef bool (*place_fn)(struct lane *lane, const void *head, size_t head_len, size_t len,
                         struct placement_record *of, struct placement *to);
/* A place_fn. DATA for a request whose kind sets `places`. */
bool weft__place_data(struct lane *lane, const void *head, size_t head_len, size_t len,
                      struct placement_record *of, struct placement *to);

/* What the rooms above do for this one. worker/ fills it in when the worker opens. */
struct transfer_users {
    struct offer_class offer[OFFER_CLASSES]; /* by wire_offer */
    /* `bytes` of DATA came for a request that is gone; SIZE_MAX: no more will come. */
    void (*late_data)(struct link *link, uint32_t id, size_t bytes);
    place_fn place[LANE_AM_IDS]; /* by wire_id; NULL: messages of this id are not placed */
    /* The lane that the link receives from, above the transport's. NULL: the link does not
     * receive yet. */
    struct lane *(*receiver)(struct lane *raw);
    /* A placement began, or ended, on a receiver that is not the transport's own lane. */
    void (*begun)(struct lane *receiver, uint32_t id);
    void (*ended)(struct lane *receiver, size_t len, weft_status_t status);
};

/* Members of iface_up. */
bool weft__place(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len,
                 struct placement *to);
void weft__placed(struct lane *lane, uint32_t id, weft_status_t status);

/* Ends a placement whose lane is closed for good. Does nothing if it has ended. */
void weft__placement_lost(struct weft_worker *worker, uint32_t id, weft_status_t status);

/* Stops the placements of a request that ends. The transport reports when the memory is free. */
void weft__place_stop(struct weft_request *req);

#endif
