/* Shared by negotiate.c (messages) and negotiate_slots.c (slots). */
#ifndef WEFT_ENDPOINTS_LANES_NEGOTIATE_LOCAL_H
#define WEFT_ENDPOINTS_LANES_NEGOTIATE_LOCAL_H

#include "negotiate.h"
#include "usage_worker.h"
#include <endpoints/core/worker.h>
#include <endpoints/wire/lane_ctrl.h>

/* The negotiation of one link, made with its first request. */
struct lane_negotiation {
    struct negotiation n;
    struct lanes *lanes;
    struct link *link;
    struct list of_worker;
    struct timer timer;
    struct job later;    /* steps the machine after a call of switch.h failed within a step */
    uint8_t later_event; /* enum negotiate_event */
    uint8_t kind;        /* index of the interface of the other lane */
    uint8_t counted;     /* enum negotiate_place, as counted by the worker */
    struct lane *other;  /* the last lane that joined; compare it only, it may be gone */
    bool stays;          /* its own lane died: the link keeps the other one */
    uint8_t stays_kind;
    uint32_t banned;     /* bits by kind: the peer is unreachable by it */
    uint32_t number;     /* that the dialer presents */
    uint32_t wait_ms;    /* back-off that the peer requests */
    uint64_t notified;   /* the score that the peer knows */
    uint8_t address_len; /* the address of the granted lane */
    uint8_t address[LANE_ADDRESS_MAX];
};

/* The negotiations of a worker, and its slots. */
struct lanes {
    struct weft_worker *worker;
    struct list lane_negotiations;
    uint32_t capacity[WORKER_IFACES], held[WORKER_IFACES]; /* lanes by kind */
    uint32_t capacity_in_all, held_in_all;
    /* gets the next free slot; NULL: none waits */
    struct lane_negotiation *awaits[WORKER_IFACES];
    uint64_t backoff, backoff_max, reply_timeout, min_hold, review; /* ns */
    double tokens, rate; /* a token bucket: switches that may begin now, and per second */
    uint64_t filled;     /* when the bucket was filled last */
};

/* ---- negotiate_slots.c */

/* The index of an interface that has a faster lane for this link, or -1. */
int weft__lanes_kind(const struct lanes *lanes, const struct link *link, uint32_t banned);
bool weft__lanes_is_kind(const struct link *link, const struct iface *iface);
/* Whether there is a slot for a link of that score. */
enum negotiate_answer weft__lanes_answer(const struct lanes *lanes, uint8_t kind, uint64_t score);
/* The weakest link that may be sent back for a link of that score, or NULL. */
struct lane_negotiation *weft__lanes_weakest(const struct lanes *lanes, uint8_t kind,
                                             uint64_t score);
/* Takes a token. False: no switch may begin now. */
bool weft__lanes_token(struct lanes *lanes);
/* Updates the counts from the state of the machine. True: a slot became free. */
bool weft__lanes_count(struct lane_negotiation *b);
/* The link keeps the slot of the other lane until the link ends. */
void weft__lanes_stay(struct lane_negotiation *b);
/* The kept lane is gone. True: a slot became free. */
bool weft__lanes_leave(struct lane_negotiation *b);
/* The link that gets a free slot now, or NULL. */
struct lane_negotiation *weft__lanes_next(const struct lanes *lanes);

#endif
