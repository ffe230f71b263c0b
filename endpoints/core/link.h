/* The link: a pair of workers, and the one or two lanes that carry the messages of their
 * endpoints in order. */
#ifndef WEFT_ENDPOINTS_CORE_LINK_H
#define WEFT_ENDPOINTS_CORE_LINK_H

#include <transports/transport.h>

#include "machines.h"
#include <base/list.h>
#include <endpoints/protocol/protocol.h>
#include <endpoints/wire/wire.h>

enum { LINK_LANES = 2 }; /* a base lane, and a scarce faster one */

struct link;

/* What lanes/ decides for a link that has, or had, a second lane. */
struct link_switch_ops {
    struct lane *(*key_lane)(const struct link *link);
    bool (*has_left)(const struct link *link, weft_status_t status);
    void (*quiesce_step)(struct link *link, uint32_t n);
};

/* What lanes/ keeps for such a link begins with this. */
struct link_switch {
    const struct link_switch_ops *ops;
};

/* What a link is for. A rail and an auxiliary link serve `more->main`, and endpoints never join
 * them. */
enum link_role {
    LINK_MAIN, /* carries the messages of its endpoints */
    LINK_RAIL, /* carries pieces of large messages */
    LINK_AUX   /* brings its lane to the main link */
};

/* State that few links need. weft__link_ext allocates it. */
struct link_ext {
    struct lane_negotiation *lane_negotiation; /* lanes/negotiate.c; NULL: no lane was requested */
    /* lanes/switch.c, begins with a struct link_switch; NULL: it never had a second lane */
    struct switching *switching;
    /* failover/retain.h; NULL: it does not survive its lanes */
    struct retain *retain;
    /* failover/heartbeat.h; NULL: no endpoint asked for heartbeats */
    struct heartbeat *heartbeat;
    /* failover/peer_process.h; NULL: the peer's process is not watched */
    struct process_watch *process_watch;
    struct rails *rails; /* transfer/rails.c; NULL: none yet */
    /* transfer/expose.h; NULL: no message was sent from exposed memory */
    struct exposures *exposures;
    struct link *main;     /* that a rail or auxiliary link serves; NULL: none, or no more */
    struct list rma_wait;  /* requests that wait for answers to others: rma_unanswered is full */
    uint32_t heartbeat_ms; /* the interval that its endpoints asked for; 0: no heartbeats */
    /* bytes per ns that the peer reports for its lane, overall and last; 0: not known */
    float rate, rate_last;
    uint32_t rail_number;    /* of a rail: the number of its grant */
    uint32_t flushed_served; /* as rma_served, of FLUSHED, which the peer may request any time */
    uint32_t n_keys;         /* keys of the peer's regions, open natively */
};

/* A worker may have thousands of links, so the fields leave no gaps. */
struct link {
    struct link_core core;
    /* `lane`, or a lane that answers NO_RESOURCE while the backlog is not empty */
    struct lane *tx;
    uint16_t max_quick; /* a message of one piece up to this size goes by am_short */
    int8_t status;      /* a weft_status_t: why it was lost */
    uint8_t n_lanes : 2;
    bool dialed : 1;          /* by this side; its worker counts those that the peer dialed */
    bool lingers : 1;         /* dialed, without endpoints: the timer closes it */
    bool ctrl_failed : 1;     /* a control message could not be queued */
    bool heartbeat_waits : 1; /* a heartbeat waits in the backlog */
    bool left_out : 1;        /* a rail that was too slow when the last message was split */
    bool paused : 1;          /* receiving stops until held callbacks have run (threads/thread.c) */
    uint32_t n_endpoints;     /* of both sides */
    uint64_t sent, received;
    struct weft_worker *worker;
    struct weft_ep *last_ep; /* the endpoint of the last message received, as a cache; or NULL */
    struct lane *lane;       /* that messages use now, or a decorator in front of it */
    struct lane *lanes[LINK_LANES];
    struct link_ext *more;  /* never NULL: a shared empty one until weft__link_ext */
    struct list of_worker;  /* in worker->links */
    struct list of_peer;    /* in worker->peers, once `peer` is known */
    struct list endpoints;  /* that use this link */
    struct list backlog;    /* requests that wait for room in the lane, in order */
    struct pending pending; /* this link in the lane's queue for room */
    /* the handshake's, then (lingers) of the close of an unused link */
    struct timer timer;
    /* the worker's id, from the lane's handshake or HELLO; 0: not known yet */
    uint64_t peer;
    /* `sent` and `received` at the last tick of the usage tracker */
    uint32_t used_sent, used_received;
    /* accepted: the id of the listener. Dialed: the peer's id of it; of rails and auxiliary
         * links: the grant */
    uint32_t listener;
    uint32_t rma_unanswered;   /* gets, fetching atomics and remote completions of this side */
    uint32_t rma_served;       /* answers to the peer that wait for the lane */
    uint32_t n_accepted;       /* endpoints that the peer opened */
    uint32_t unexpected_bytes; /* unexpected bytes of the peer: messages and streams */
    uint32_t answers;          /* bytes of queued answers to the peer's control messages */
    uint32_t held;             /* bytes of messages that wait for polled callbacks */
    uint32_t denied_epoch;     /* of the last lane request that was denied for lack of memory */
    uint16_t flags;            /* of the dialer's hello */
    uint16_t peer_flags;       /* of the peer's hello */
    /* 1 + its row in the statistics page (inspect/stats_page.h); 0: none */
    uint16_t stats_row;
    uint8_t home : 4; /* made over worker->iface[home]; endpoints for that interface may join */
    uint8_t role : 2; /* enum link_role */
    bool given : 1;   /* over a socket that is taken back: no other endpoint joins, and it
                                 ends with its last one */
    uint8_t at;       /* messages use worker->iface[at] now */
    char *why;        /* dialed: why this transport was chosen; shared (link.c) */
    /* dialed by URI. The last field: the slab uses it once the link is free */
    char *uri;
};

/* Its id: no other link of its worker has or had it. 0 once the link has ended. */
static inline uint32_t weft__link_id(const struct link *link) {
    return link->core.fsm.id;
}
/*
 * A request that a lane's completions point to is not used again until they have stepped, and peers
 * name objects by ids with a generation (base/idmap.h).
 *
 * A lane holds the id of its link, and the place in the worker's slab where the link was. The slab
 * keeps its places for links, so the id can be compared there at any time: a link that has ended,
 * and the next one in its place, have another. Nothing else follows lane->owner.
 *
 * Under AddressSanitizer each place is freed with its link (reactor/slab.c). There a lane that
 * still receives after its link ended is reported as a use after free: no lane is meant to.
 */
extern struct link weft__no_link; /* the place for lanes without a link; its id is 0 */
enum { NO_LINK_ID = 1 };          /* what they hold */

/* The lane belongs to that link from now on; NULL: to none. */
static inline void weft__lane_set_link(struct lane *lane, struct link *link) {
    lane->owner = link ? link : &weft__no_link;
    lane->owner_id = link ? weft__link_id(link) : NO_LINK_ID;
}
/* The link of a lane; NULL: it has none, or the link has ended. */
static inline struct link *weft__lane_link(const struct lane *lane) {
    struct link *link = lane->owner; /* NULL: new, weft__lane_set_link comes */
    return link && lane->owner_id == weft__link_id(link) ? link : NULL;
}

static inline const struct link_switch_ops *weft__link_switch_ops(const struct link *link) {
    const struct link_switch *s = (const void *)link->more->switching;
    return s ? s->ops : NULL;
}
/* The lane that opens keys and copies in bulk. NULL: none while the link switches lanes. */
static inline struct lane *weft__link_key_lane(const struct link *link) {
    const struct link_switch_ops *ops = weft__link_switch_ops(link);
    return ops ? ops->key_lane(link) : link->lane;
}
/* True if a lane that the link has left returned this status: the operation is not lost. `link`
 * may be NULL. */
static inline bool weft__link_has_left(const struct link *link, weft_status_t status) {
    const struct link_switch_ops *ops = link ? weft__link_switch_ops(link) : NULL;
    return ops && ops->has_left(link, status);
}
/* `n` of the one-sided operations that a switch waits for have ended. */
static inline void weft__link_quiesce_step(struct link *link, uint32_t n) {
    const struct link_switch_ops *ops = weft__link_switch_ops(link);
    if (ops) ops->quiesce_step(link, n);
}

/* Options that all endpoints of a link share. */
struct link_opts {
    bool survives;         /* its lanes */
    uint32_t heartbeat_ms; /* 0: none */
};
/* The link to that peer over that interface, or by that URI, that an endpoint with these options
 * may join. NULL: none. */
struct link *weft__link_to_peer(struct weft_worker *worker, const struct iface *iface,
                                uint64_t peer, struct link_opts opts);
/* The link is not shared by later endpoints to its URI. */
void weft__link_forget_uri(struct link *link);
struct link *weft__link_to_uri(struct weft_worker *worker, const char *uri, struct link_opts opts);

/* Makes a link that dials. The link owns `lane`, also when this fails. */
weft_status_t weft__link_dial(struct weft_worker *worker, struct lane *lane, uint64_t peer,
                              const char *uri, const char *why, struct link **link_p);
void weft__link_close(struct link *link);
/* The extension of this link, for writing. NULL when memory runs out. */
struct link_ext *weft__link_ext(struct link *link);

/* Moves the link to this lane. The backlog goes first. */
void weft__link_carry(struct link *link, struct lane *lane);
/* Queues all messages until weft__link_carry. */
void weft__link_pause(struct link *link);

void weft__link_join(struct link *link, struct weft_ep *ep);
void weft__link_leave(struct weft_ep *ep);

/* Sends a control message now or behind the backlog. If it cannot be queued the link is lost: a
 * missing control message would leave the peer inconsistent. */
void weft__link_control(struct link *link, const struct wire_message *m);
/* The same for answers to the peer. "peer.max_answers" bounds the queued bytes (control.h). */
void weft__link_answer(struct link *link, const struct wire_message *m);
/* A control message could not be sent: the link is lost in a later turn. */
void weft__link_ctrl_failed(struct link *link, weft_status_t status);
/* Sends the request now if the backlog is empty and the lane has room; otherwise it joins the
 * backlog. */
void weft__link_submit(struct link *link, struct weft_request *req);
/* The same for a queue of requests, in order. */
void weft__link_submit_all(struct link *link, struct list *queue);

/* The link of a received message. NULL if the lane has none, or the link closes. Before the
 * handshake, and on a rail, the message is a violation, and this returns NULL. */
struct link *weft__link_of(struct lane *lane, const char *what);
/* The same for what a rail may bring: pieces of large messages. */
struct link *weft__link_or_rail_of(struct lane *lane, const char *what);

/* A protocol violation of the peer: the link is lost. */
void weft__link_violation(struct link *link, const char *what);
/* The link is lost with `status`, as if its lane had failed. */
void weft__link_lose(struct link *link, weft_status_t status);

/* HELLO has another protocol version. */
void weft__link_wrong_version(struct link *link, unsigned version);

/* Runs for worker->ctrl_failed. */
void weft__links_ctrl_failed(struct job *job);

/* Events of transports; worker/dispatch.c asks failover and lanes first. */
void weft__link_accepted(struct lane *lane, void *listen_arg);
void weft__link_lane_up(struct lane *lane);
void weft__link_lane_closed(struct lane *lane);

#endif
