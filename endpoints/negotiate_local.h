/* The inside of the negotiation with a worker around it: negotiate.c talks, negotiate_places.c counts. */
#ifndef WEFT_ENDPOINTS_NEGOTIATE_LOCAL_H
#define WEFT_ENDPOINTS_NEGOTIATE_LOCAL_H

#include "lane_wire.h"
#include "negotiate.h"
#include "usage_worker.h"
#include "worker.h"

/* Of a link that asked, or was asked, once. */
struct bargain {
    struct negotiation n;
    struct lanes *lanes;
    struct link *link;
    struct list of_worker;
    struct timer timer;
    struct job later;    /* what a call of switch.h answered is an event of a later moment */
    uint8_t later_event; /* enum negotiate_event */
    uint8_t kind;        /* index of the iface that the other lane is of */
    uint8_t counted;     /* enum negotiate_place: as the worker's counts have it */
    struct lane *other;  /* the last that joined; a name only, it may be gone */
    bool stays;          /* the link goes on with such a lane for good, since its own died */
    uint8_t stays_kind;
    uint32_t banned;     /* bits by kind: the peer is not reached that way */
    uint32_t number;     /* that the guest shows */
    uint32_t wait_ms;    /* that the peer wants this side to rest */
    uint64_t told;       /* the score that the peer knows */
    uint8_t address_len; /* where the granted lane is dialed to */
    uint8_t address[LANE_ADDRESS_MAX];
};

/* Of a worker. */
struct lanes {
    struct weft_worker *worker;
    struct list bargains;
    uint32_t capacity[WORKER_IFACES], held[WORKER_IFACES]; /* lanes by kind */
    uint32_t capacity_in_all, held_in_all;
    struct bargain *awaits[WORKER_IFACES];                 /* who has the next place; NULL: nobody */
    uint64_t rest, rest_most, patience, residence, review; /* ns */
    double tokens, rate; /* switches that may begin now, and come anew each second */
    uint64_t filled;     /* when tokens were counted last */
};

/* ---- negotiate_places.c */

/* The iface by which this link might have a faster lane than its own, as its index, or -1. */
int weft__lanes_kind(const struct lanes *lanes, const struct link *link, uint32_t banned);
bool weft__lanes_is_kind(const struct link *link, const struct iface *iface);
/* Is there room for a link of that score, and how? */
enum negotiate_answer weft__lanes_answer(const struct lanes *lanes, uint8_t kind, uint64_t score);
/* The weakest that may be sent back for a link of that score, or NULL. */
struct bargain *weft__lanes_weakest(const struct lanes *lanes, uint8_t kind, uint64_t score);
/* One of the switches that may begin now; false: there is none. */
bool weft__lanes_token(struct lanes *lanes);
/* Brings the counts up to what the machine says. True: a place became free. */
bool weft__lanes_count(struct bargain *b);
/* The place of the other lane is its link's until that ends, whatever else it bargains for. */
void weft__lanes_stay(struct bargain *b);
/* The lane that it stayed with is gone. True: a place became free. */
bool weft__lanes_leave(struct bargain *b);
/* Who has the next place of some kind, now that there is one; or NULL. */
struct bargain *weft__lanes_next(const struct lanes *lanes);

#endif
