/*
 * The link: the pair of workers behind endpoints, with the lane, or the two, that carry their messages in order.
 */
#ifndef WEFT_ENDPOINTS_LINK_H
#define WEFT_ENDPOINTS_LINK_H

#include <transports/transport.h>

#include "list.h"
#include "machines.h"
#include "protocol.h"
#include "wire.h"

enum { LINK_LANES = 2 }; /* a base lane that scales, and a fast one that is scarce */

/* What few links have: made with the first of it, by weft__link_more. */
struct link_more {
    struct bargain *bargain;           /* negotiate.c; NULL: nobody asked for another lane */
    struct switching *switching;       /* switch.c; NULL: it never had a second lane */
    struct retain *retain;             /* retain.h: it outlives its lanes; NULL: it does not */
    struct beat *beat;                 /* beat.h: an endpoint wishes to know that the peer is driven; NULL: none */
    struct introduction *introduction; /* introduce.h: the peer's process is watched; NULL: it is not */
    struct rails *rails;               /* rails.c; NULL: none yet */
    struct loans *loans;               /* loan.h; NULL: no message came out of lent memory */
    struct link *main;                 /* this is a rail of that link, or brings it another lane */
    float rate, rate_last; /* bytes per ns that the peer says its lane carried, and did last; 0: not known */
    uint32_t rail_number;  /* of a rail: what it was granted by */
};

/* There may be thousands: the fields are ordered so that none leaves a gap. */
struct link {
    struct link_core core;
    struct lane *tx;    /* the lane, or one that answers NO_RESOURCE while others wait */
    uint16_t max_quick; /* bytes in one piece that go by am_short without more thought */
    int8_t status;      /* a weft_status_t: why it was lost */
    uint8_t n_lanes;
    uint32_t n_endpoints; /* all */
    uint64_t sent, received;
    struct weft_worker *worker;
    struct weft_ep *heard; /* that the peer spoke to last, while it may go on; or NULL */
    struct lane *lane;     /* that messages go by now, or what stands before it */
    struct lane *lanes[LINK_LANES];
    struct link_more *more; /* never NULL: one that all share, and that has nothing, until it has its own */
    struct list of_worker;  /* in worker->links */
    struct list of_peer;    /* in worker->peers, once `peer` is known */
    struct list endpoints;  /* those that share it */
    struct list backlog;    /* requests that wait for the lane, in order */
    struct pending pending; /* our place in the lane's queue */
    struct timer timer;     /* until the peer's hello is due, or (lingers) until an unused link is closed */
    uint64_t peer;          /* worker id; 0: not known yet */
    struct list rma_wait;   /* requests that wait until others were answered */
    uint32_t used_sent, used_received; /* `sent` and `received`, when the usage tracker looked last */
    uint32_t listener;                 /* accepted: the listener it came to. Dialed: what the peer calls that */
    uint32_t rma_unanswered;           /* of ours: gets, fetching atomics, remote completions */
    uint32_t rma_served;               /* of the peer's: answers that wait for the lane */
    uint32_t flushed_served;           /* the same of its flushes, which it may ask for at any time */
    uint32_t n_keys;                   /* of the peer's regions, open natively */
    uint32_t n_guests;                 /* endpoints that the peer opened */
    uint32_t unread;                   /* bytes of the peer's that nobody has asked for: messages, and streams' */
    uint32_t held;                     /* of messages that wait for polled callbacks */
    uint32_t denied_epoch;             /* of the last question about lanes without memory for it */
    uint16_t flags;                    /* of the dialer's hello */
    uint16_t peer_flags;               /* of the peer's hello */
    uint16_t live_row;                 /* 1 + its number in the page that others see (live.h); 0: it has none */
    bool lingers;                      /* it was dialed, and has no endpoint any more */
    bool half_told;                    /* a control message could not be kept */
    bool left_out;                     /* a rail that was too slow when a message was cut last */
    bool paused;                       /* too much of it is held: nothing is taken from the peer (thread.c) */
    uint8_t home;                      /* over worker->iface[home] it was made: who wants a link over it may join */
    uint8_t at;                        /* messages go by worker->iface[at] now */
    char *why;                         /* dialed: the reasons for this transport */
    char *uri;                         /* … and where; the last word: the slab's, once the link is buried */
};

/* What endpoints of one link have in common. */
struct link_wish {
    bool survives;         /* its lanes */
    uint32_t heartbeat_ms; /* 0: none */
};
/* The link to that peer over that iface, or by that URI, if there is one that an endpoint of that wish may join. */
struct link *weft__link_to_peer(struct weft_worker *worker, const struct iface *iface, uint64_t peer,
                                struct link_wish wish);
struct link *weft__link_to_uri(struct weft_worker *worker, const char *uri, struct link_wish wish);

/* A link that dials. `lane` is its own from now on, also when this fails. */
weft_status_t weft__link_dial(struct weft_worker *worker, struct lane *lane, uint64_t peer, const char *uri,
                              const char *why, struct link **link_p);
void weft__link_close(struct link *link);
/* Its own, to be written. NULL when memory runs out. */
struct link_more *weft__link_more(struct link *link);

/* From now on messages go by this lane: those that wait are chosen for it, and go first. */
void weft__link_carry(struct link *link, struct lane *lane);
/* None goes until then. */
void weft__link_pause(struct link *link);

void weft__link_join(struct link *link, struct weft_ep *ep);
void weft__link_leave(struct weft_ep *ep);

/* Sends it now, or behind what waits. Out of memory loses the link: a peer that is told half the truth is worse. */
void weft__link_control(struct link *link, const struct wire_message *m);
/* Something that the peer waits for could not be sent after all: the link is lost, in a turn of its own. */
void weft__link_half_told(struct link *link, weft_status_t status);
/* Behind what waits for the lane; sent at once when nothing does and the lane has room. */
void weft__link_submit(struct link *link, struct weft_request *req);
/* Requests that waited for the endpoint go the same way, in their order. */
void weft__link_submit_all(struct link *link, struct list *queue);
/* Requests that waited for something else are older than what waits for the lane now. */
void weft__link_submit_first(struct link *link, struct list *queue);

/* The link whose peer speaks. NULL when the lane has none, or it is being closed and nobody listens; and before the
 * greeting, when all but a hello is a violation. */
struct link *weft__link_of(struct lane *lane, const char *what);

/* The peer said what it may not say; the whole link is lost. */
void weft__link_violation(struct link *link, const char *what);
/* The link is lost to `status` as if its lane had told so. */
void weft__link_lose(struct link *link, weft_status_t status);

/* worker->half_told's. */
void weft__links_half_told(struct job *job);

/* What transports tell (worker.c puts them into its iface_up). */
void weft__link_accepted(struct lane *lane, void *listen_arg);
void weft__link_lane_up(struct lane *lane);
void weft__link_lane_down(struct lane *lane, weft_status_t status);
void weft__link_lane_closed(struct lane *lane);
void weft__link_on_hello(struct lane *lane, const void *data, size_t len);
void weft__link_on_ping(struct lane *lane, const void *data, size_t len);
void weft__on_lane(struct lane *lane, const void *data, size_t len); /* lane_heard.c */

#endif
