/*
 * The shared-memory transport: lanes between two workers of one host. A lane goes by a ring for
 * each direction (ring_lane.h), or by the mailboxes of both workers (mailbox_lane.h).
 */
#ifndef WEFT_TRANSPORTS_SHM_LANE_SHM_H
#define WEFT_TRANSPORTS_SHM_LANE_SHM_H

#include "mailbox_lane.h"
#include "peer.h"
#include "ring_lane.h"
#include "staging.h"
#include <base/compiler.h>
#include <reactor/slab.h>
#include <transports/pending.h>
#include <transports/registry.h>
#include <transports/shm/memory/directory.h>
#include <transports/shm/queues/pool.h>
#include <transports/shm/queues/slot_table.h>

enum { SHM_SHORT = RING_INLINE - 8, SHM_BCOPY_MAX = 8192, SHM_IOV = 16 };
enum { SHM_LOOKS = 16 }; /* at lanes, of a send that lacks memory (weft__shm_refresh_next) */

struct shm_lane;

/* How a lane's messages go: by rings of its own, or by the mailboxes of both workers. */
struct shm_way {
    const char *name;
    void (*activate)(struct shm_lane *lane);       /* to be looked at in the next turn */
    void (*leave)(struct shm_lane *lane);          /* it is looked at no more */
    weft_status_t (*pause)(struct shm_lane *lane); /* what comes is left where it is */
    int (*refresh)(struct shm_lane *lane);         /* takes back what the peer has passed */
    /* the worker is to be woken when the peer passes more */
    void (*ask)(struct shm_lane *lane);
    void (*reclaim)(struct shm_lane *lane); /* the peer is done with all that it was sent */
};

/* The operations of a lane in each of its states (ops.c). */
struct shm_lane_ops {
    const struct lane_ops *dialing, *ring, *mail, *down, *closed;
};

/* What sending and receiving find out about a lane; the attachment acts on it (attach.c). */
struct shm_lane_events {
    void (*failed)(struct shm_lane *lane, weft_status_t status);
    void (*found_empty)(struct shm_lane *lane); /* of a lane that watches for that */
    /* true: the lane has ended, and perhaps its worker */
    bool (*drained)(struct shm_lane *lane);
};

/* The part of a lane that a quiet lane by the mailbox does without. Every lane has it until it
 * is up; lanes with rings or one-sided access keep it, or get it again. */
struct shm_ext {
    struct shm_ring ring;
    struct shm_lane *lane;

    uint64_t deadline; /* of the handshake */
    /* the dialed worker; 0: any. Of a lane that is up: the worker of its handshake */
    uint64_t target;
    struct tl_listener *listener; /* that accepted it; valid during the handshake */
    void *listen_arg;
    char where[SHM_PATH_SIZE]; /* the dialed socket, or "" */
    uint8_t opts;              /* enum shm_opts */

    struct shm_keys *keys;              /* of one-sided access (key.h); NULL: never used */
    struct shm_bulk *bulk, **bulk_last; /* a queue; `bulk_last` NULL: never used */
    unsigned n_outstanding;             /* in md->outstanding */
    uint32_t opening;                   /* what opens the lane (mailbox.h), until it is up */
    struct shm_put_req *put_reqs, **put_req_last;
    struct job bulk_job, put_req_job;
};

/* There may be thousands: the fields are ordered so that no gap lies between them. */
struct shm_lane {
    struct lane lane;
    struct fsm fsm;
    union {
        struct timer timer; /* until this side has released the lane */
        struct fsm part;    /* from then on, with `parting` set (teardown.c) */
    };
    struct aux_watch watch; /* the socket: its fd, or -1 */
    struct shm_ext *more;   /* NULL: the lane needs no extension */
    const lane_am_fn *am;   /* NULL: nothing is received in this state */
    struct pending_queue pending;
    int event_fd;          /* the peer's eventfd */
    uint32_t carried;      /* bytes sent outside slots and nodes since the last iface_up.worked */
    uint16_t index;        /* in iface->lanes, and in our doorbell */
    uint16_t next_waiting; /* 1 + the index of the next of mail->waiting; 0: the last of them */
    int8_t status;         /* a weft_status_t: the first reason why the lane went down */
    uint8_t due;           /* DUE_…: what follows the step of the machine (attach.h) */
    bool by_mail : 1;
    bool sends_bye : 1, sends_quit : 1; /* when the socket has room */
    bool waits : 1;                     /* in mail->waiting */
    bool sends_ctrl : 1;                /* the iface's job has something to do for it */
    /* its owner has got `closed`; the lane stays until neither side can read anything of the
     * other's */
    bool zombie : 1;
    bool parting : 1; /* this side has released it (teardown.c) */
    /* the peer sends no more: call events->found_empty when all is read */
    bool watches_empty : 1;
    bool shown : 1;                          /* the peer may know our slot */
    bool received_end : 1, received_eof : 1; /* the peer's BYE or QUIT; the end of its socket */
    bool asked : 1;                          /* wake the peer when one of its nodes is passed */
    /* the mailbox is to be, or was, found empty of the peer's messages */
    bool drains : 1, emptied : 1;
    bool paused : 1; /* the owner stopped it from receiving */
    struct shm_mail_lane mail;
};

/* How peers find this worker. */
struct shm_identity {
    uint64_t worker_id;
    const uint64_t *probe; /* a number of this process that peers look for */
    char directory[SHM_DIRECTORY_MAX + 1];
    uint8_t host[16];
    struct tl_listener *own; /* for connects by address; NULL until an address is asked for */
};

/* How peers wake this worker. */
struct shm_wakeup {
    int event_fd;
    bool signalled; /* event_fd is readable, and was not read yet */
    bool fenced;    /* this process takes part in membarriers, and can issue them */
    struct watch event;
};

/* The worker's slot in the table of its process. */
struct shm_slot {
    struct slot_table_place place;
    bool poisoned;             /* a peer may know the slot beyond this worker's end */
    struct doorbell *doorbell; /* in the slot */
};

/* The lanes of a worker, by their index. */
struct shm_lane_table {
    struct slab slab, ext_slab;
    struct job sender;       /* runs for the lanes that have `sends_ctrl` set */
    struct shm_lane **lanes; /* `room` places, DOORBELL_LANES at most */
    unsigned room, n, last_index;
    unsigned refresh_next; /* an index (weft__shm_refresh_next) */
};

struct shm_iface {
    struct iface iface;
    struct poller poller;
    struct shm_identity self;
    uint64_t shaken; /* the peer's worker, during the owner's up and accepted callbacks */
    struct shm_wakeup wakeup;
    struct shm_slot slot;
    bool vm; /* large messages may be read from the peer's memory */

    uint32_t n_slots, payload_size; /* of a ring */
    struct shm_staging staging;
    struct shm_md *md; /* one-sided access and bulk copies (rma/) */

    const struct shm_lane_ops *lane_ops;
    const struct shm_lane_events *events;
    struct counters *count;
    struct shm_lane_table table;
    struct shm_process *processes[SHM_PROCESS_BUCKETS];
    struct shm_mail mail;
    struct shm_rings rings;
};

static inline struct shm_iface *shm_iface(const struct shm_lane *lane) {
    return (struct shm_iface *)lane->lane.iface;
}

/* The lane receives, or is paused. */
static inline bool shm_is_up(const struct shm_lane *lane) {
    return lane->am || lane->paused;
}

static inline struct shm_ring *shm_ring(const struct shm_lane *lane) {
    return &lane->more->ring;
}

static inline void shm_notify_failed(struct shm_lane *lane, weft_status_t status) {
    shm_iface(lane)->events->failed(lane, status);
}

/* The peer has passed `n` slots or nodes. */
static inline void shm_worked(struct shm_lane *lane, uint64_t n) {
    const struct iface_up *up = lane->lane.iface->up;
    if (up->worked) up->worked(&lane->lane, n * RING_LINE + lane->carried);
    lane->carried = 0;
}

extern const struct shm_way weft__shm_ring_way, weft__shm_mail_way;
static inline const struct shm_way *shm_way(const struct shm_lane *lane) {
    return lane->by_mail ? &weft__shm_mail_way : &weft__shm_ring_way;
}

static inline bool shm_mail_stirs(const struct shm_iface *iface) {
    return atomic_load_explicit(&iface->slot.doorbell->mailbox, memory_order_relaxed) ||
           atomic_load_explicit(&iface->slot.doorbell->wanted, memory_order_relaxed) ||
           iface->mail.due;
}

/* NULL: not known yet, or no more. */
static inline struct shm_process *shm_process(const struct shm_lane *lane) {
    return (struct shm_process *)(uintptr_t)lane->mail.view.shape;
}

/* 0: not known yet, or no more. */
static inline pid_t shm_pid(const struct shm_lane *lane) {
    return shm_process(lane) ? shm_process(lane)->pid : 0;
}

/* The peer's doorbell. */
static inline struct doorbell *shm_doorbell(const struct shm_lane *lane) {
    return container_of(lane->mail.tx.newest, struct doorbell, mailbox);
}

/* Wakes the peer if it sleeps. Between the published message and this stands a fence
 * (doorbell_armed). */
static inline void shm_wake(struct shm_lane *lane) {
    uint32_t sleep = doorbell_armed(shm_doorbell(lane));
    if (UNLIKELY(sleep != 0)) weft__shm_signal(lane, sleep);
}

/* lane.c: the operations that both kinds of lanes share */
void weft__shm_pending_add(struct lane *l, struct pending *pending);
void weft__shm_pending_remove(struct lane *l, struct pending *pending);
bool weft__shm_all_taken(struct lane *l);
void weft__shm_recv(struct lane *l, const lane_am_fn *handlers);
weft_status_t weft__shm_pause(struct lane *l, bool on);
uint64_t weft__shm_peer_id(const struct lane *l);
void weft__shm_describe(struct lane *l, char *buf, size_t size);
/* made when the lane has none; NULL: no memory */
struct shm_ext *weft__shm_ext(struct shm_lane *lane);
void weft__shm_purge(struct shm_lane *lane);
/* Takes back what the peer of one lane has passed, lane by lane in turn. */
void weft__shm_refresh_next(struct shm_iface *iface);
unsigned weft__shm_retry(struct shm_lane *lane);

#endif
