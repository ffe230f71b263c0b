/* Lanes by rings: a ring for each direction, polled by the worker or announced by its doorbell. */
#ifndef WEFT_TRANSPORTS_SHM_LANE_RING_LANE_H
#define WEFT_TRANSPORTS_SHM_LANE_RING_LANE_H

#include <base/counters.h>
#include <reactor/reactor.h>
#include <transports/shm/memory/doorbell.h>
#include <transports/shm/memory/segment.h>
#include <transports/shm/queues/poll_backoff.h>
#include <transports/shm/queues/ring.h>
#include <transports/shm/queues/tactics.h>
#include <transports/transport.h>

struct shm_iface;
struct shm_lane;

enum {
    SHM_CONTROL = 4096, /* bytes of a ring's segment before its slots */
    SHM_ATTENDED = 64,  /* rings that a worker polls without a doorbell, at most */
    SHM_IDLERS = 16,    /* of those, rings that are idle */
    SHM_STREAK = 128,   /* messages without a sleep until a ring is attended */
    /* bytes of an awaited message that are prefetched before its handler runs */
    SHM_AHEAD = 2560,
    SHM_SHARE = 128,  /* messages taken from one lane in one turn */
    SHM_STRETCH = 16, /* messages between two looks how far the sender is ahead */
    /* slots prefetched where the sender is far ahead; fewer messages are no stream */
    SHM_FETCHED = 8,
    SHM_IDLE = 1 << 16 /* fruitless looks until an attended ring yields its place */
};

/* What one side publishes to the other. It stands before the slots, in the segment of the side
 * that writes it. */
struct shm_control {
    /* this side polls the peer's ring: no doorbell is needed */
    _Alignas(64) _Atomic uint32_t attended;
    _Alignas(64) _Atomic uint64_t tail; /* slots of the peer's ring that this side has passed */
    _Alignas(64) _Atomic uint32_t
        /* grows when this side goes to sleep without room: ring when slots are passed */
        wants;
    _Atomic uint32_t ended; /* 1: this side of the lane ended, and its memory may hold anything */
};

/* The rings of a lane. */
struct shm_ring {
    struct ring_tx tx;
    struct counters *count;
    const struct shm_control *theirs;
    struct shm_control *ours; /* NULL: the lane has no ring */
    struct ring_rx rx;
    struct backoff backoff;
    struct tactics tactics;
    uint32_t wants_answered;
    uint32_t streak, idle, sleep_epoch;
    unsigned active_at; /* 1 + index in rings.active; 0: not in it */
    bool attendable;    /* the peer takes part in membarriers */
    bool attended;      /* the value of ours->attended */
    bool counted;       /* in rings.n */
    struct shm_lane *next_rung;
    struct segment mine, peers;
    const void *pool; /* the peer's pool, which holds its staging chunks; NULL: none */
    struct ring_claim *exposures;
};

/* The rings of a worker. */
struct shm_rings {
    /* lanes to poll: attended, called by the doorbell, or waiting for room */
    struct shm_lane **active;
    unsigned active_room, n_active, next_active, n_attended;
    uint32_t sleep_epoch;                 /* number of the last sleep; never 0 */
    unsigned n;                           /* rings in use */
    bool passed_over;                     /* the mailbox used up the last turn's budget */
    struct shm_lane *rung[DOORBELL_BITS]; /* lists of lanes, by the doorbell's bits */
};

/* lane.c: sending */
weft_status_t weft__shm_ring_am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                                      size_t len);
weft_status_t weft__shm_ring_am_short_to(struct lane *l, uint8_t id, uint64_t header, uint32_t to,
                                         const void *data, size_t len);
weft_status_t weft__shm_ring_am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *, void *),
                                      void *arg);
weft_status_t weft__shm_ring_am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                                      struct completion *completion);
void weft__shm_ring_peer(struct shm_lane *lane);
/* Takes back the slots that the peer has passed. */
int weft__shm_refresh(struct shm_lane *lane);

/* poll.c: receiving */
int weft__shm_poll(struct poller *poller, unsigned budget);
bool weft__shm_arm(struct poller *poller);
void weft__shm_disarm(struct poller *poller);
void weft__shm_take_signal(struct shm_iface *iface); /* reads the count of the worker's eventfd */

#endif
