/* The inside of the simulated network, shared by the files of this folder. */
#ifndef WEFT_TRANSPORTS_SIM_LOCAL_H
#define WEFT_TRANSPORTS_SIM_LOCAL_H

#include "sim.h"
#include <fsm/fsm.h>
#include <reactor/counters.h>

#include "sim_lane.fsm"
#define FSM_NAME   sim_lane
#define FSM_PREFIX SIM_LANE
#include <fsm/declare.h>
#include <transports/pending.h>

enum {
    SIM_NODES = 256,
    SIM_BUCKETS = 1024,
    SIM_SMALL = 512,  /* packets of two sizes are kept for reuse */
    SIM_BCOPY = 8192, /* reliable: limits of the three forms */
    SIM_ZCOPY = 256 * 1024,
    SIM_HEADER = 504,
    SIM_IOV = 16,
    SIM_RUN = 160,         /* bytes that one packet takes of a run, or one message */
    SIM_SLICE = 16 * 1024, /* bytes that land at a time */
    SIM_TELL_EVERY = 64    /* messages, of the work done */
};
#define SIM_NEVER UINT64_MAX

/* What a decision is about. Their values are part of the draw: append only. */
enum sim_site { SITE_LOSS = 1, SITE_DUPLICATE, SITE_REORDER, SITE_DELAY, SITE_JITTER, SITE_EXHAUSTION };

enum sim_kind {
    SIM_CONNECT, /* reliable: greets the other end, which is a lane or is still to be made */
    SIM_AM,
    SIM_FLUSH, /* for nobody: its completion says that all before it was delivered */
    SIM_FIN
};

/*
 * On its way. A reliable lane keeps its packets in a queue of its own, and only the first is in the peer's heap; a
 * datagram is in the heap at once, or nowhere.
 */
struct sim_packet {
    struct sim_packet *next;            /* in a queue or a pool */
    struct sim_packet *child, *sibling; /* in a heap */
    uint64_t at, serial;
    uint64_t blocked_at; /* since when a partition holds it up; 0: it does not */
    struct completion *completion;
    uint32_t src, dst; /* lane ids; dst 0: whoever of that node answers `src` */
    uint32_t listener; /* 0: by iface address */
    uint16_t from, to; /* nodes */
    uint16_t n_iov;
    uint8_t kind, id;
    bool big, in_heap;
    bool scarce;          /* of a lane of that kind */
    bool cancelled;       /* its lane gave it up while it was in a heap */
    bool run;             /* several messages, each with its head, lie in iov[0] */
    bool listed;          /* in its lane's `finished` */
    bool asked, lands;    /* its owner was, and wants it somewhere */
    weft_status_t status; /* for its completion */
    uint64_t actor;       /* of the lane that sent it */
    uint32_t len;
    weft_iov_t iov[SIM_IOV]; /* reliable zcopy: read on delivery, as a device may */
    uint8_t data[];
};

struct sim_address {
    uint32_t magic, node, incarnation, lane; /* lane 0: the iface */
};

/* The payload of the message that is arriving, and what its owner has not been told of it yet (to.landed). */
struct sim_landing {
    struct landing to;
    size_t at, end; /* of the message */
    weft_status_t why;
};

struct sim_lane {
    struct lane lane;
    struct fsm fsm;
    struct sim_fabric *fabric;
    struct sim_lane *next_of_bucket, *next_of_iface;
    uint32_t id, remote; /* remote 0: not known yet */
    uint16_t remote_node;
    uint32_t remote_incarnation;
    uint32_t listener; /* dialled: where; accepted: at which */
    uint64_t actor;    /* of its draws */
    uint64_t n_sent, n_tried;
    uint64_t n_told, carried; /* of n_sent, when the owner was told of it (iface_up.worked); bytes since then */
    struct sim_packet *first, **last;             /* reliable: under way */
    struct sim_packet *finished, **finished_last; /* completions are due */
    struct lane_run *run;                         /* that may still grow, in the last of them; or NULL */
    struct sim_landing landing;                   /* reliable: of what comes */
    uint32_t under_way;
    uint64_t last_at; /* reliable: nothing sent later arrives before */
    struct pending_queue pending;
    void (*announce)(struct sim_lane *lane);                   /* `accepted` or `up` */
    void (*take)(struct sim_lane *lane, struct sim_packet *p); /* what its state does with a message */
    void *listen_arg;
    weft_status_t why;
    struct job job;                 /* events posted from outside its machine, and what its machine has to tell */
    uint32_t posted, due;           /* bits: events, and effects to be carried out after the step */
    struct timer retry;             /* exhausted, or out of memory for a timer */
    struct timer linger;            /* until a close in good order becomes an end */
    struct timer fate;              /* until it breaks, as somebody decided */
    uint64_t fate_of_other;         /* how long after that the other end does; NEVER: it is not told */
    struct sim_packet *fin, *hello; /* made with the lane, so that ending needs no memory */
};

struct tl_listener {
    struct sim_iface *iface;
    struct tl_listener *next;
    uint32_t id;
    void *arg;
    char *uri, *name;
};

struct sim_iface {
    struct iface iface;
    struct sim_fabric *fabric;
    uint16_t node;
    uint32_t incarnation;
    uint64_t n_dialled;
    uint32_t n_scarce; /* of its lanes */
    struct sim_lane *lanes;
    struct sim_packet *arriving; /* heap by (at, serial) */
    struct timer arrival;
    struct job rearm;
};

struct sim_fabric {
    struct reactor_clock *clock;
    struct sim_profile profile;
    struct sim_stats stats;
    uint64_t seed, hash, serial;
    uint32_t n_lanes, n_listeners, n_incarnations;
    struct sim_iface *node[SIM_NODES];
    bool dead[SIM_NODES];
    uint64_t cut[SIM_NODES][SIM_NODES / 64];
    struct sim_lane *bucket[SIM_BUCKETS];
    struct tl_listener *listeners;
    struct sim_packet *small, *big;
    uint8_t *scratch;
};

/* fabric.c: decisions, and what the network is */
uint64_t weft__sim_draw(const struct sim_fabric *f, enum sim_site site, uint64_t actor, uint64_t n);
bool weft__sim_chance(const struct sim_fabric *f, enum sim_site site, uint64_t actor, uint64_t n, uint32_t rate);
bool weft__sim_passes(const struct sim_fabric *f, unsigned from, unsigned to);
void weft__sim_note(struct sim_fabric *f, const char *what, const struct sim_packet *p);
struct sim_lane *weft__sim_lane(const struct sim_fabric *f, uint32_t id);
struct sim_fabric *weft__sim_in_use(bool fast);

/* fail.c */
void weft__sim_fate(struct timer *timer);

/* packet.c */
void weft__sim_packet_read(const struct sim_packet *p, size_t at, void *to, size_t n); /* header and payload */
struct sim_packet *weft__sim_packet_new(struct sim_fabric *f, size_t len);
void weft__sim_packet_free(struct sim_fabric *f, struct sim_packet *p);
void weft__sim_heap_add(struct sim_packet **heap, struct sim_packet *p);
struct sim_packet *weft__sim_heap_take(struct sim_packet **heap);

/* deliver.c */
void weft__sim_send(struct sim_lane *lane, struct sim_packet *p); /* its next, reliable or not; never fails */
void weft__sim_expect(struct sim_iface *iface);                   /* sets its timer by its heap */
void weft__sim_arrival(struct timer *timer);
void weft__sim_arrivals_drop(struct sim_iface *iface);
void weft__sim_take(struct sim_lane *lane, struct sim_packet *p);
void weft__sim_refuse(struct sim_lane *lane, struct sim_packet *p);

/* landing.c */
bool weft__sim_land(struct sim_lane *lane, struct sim_packet *p); /* true: more of it is to come */
void weft__sim_landed(struct sim_lane *lane);                     /* all of it is there */
void weft__sim_land_stop(struct lane *lane, void *arg);
void weft__sim_land_end(struct sim_lane *lane, weft_status_t why); /* its owner is told by the lane's job */
void weft__sim_land_tell(struct sim_lane *lane);

/* lane.c */
struct sim_lane *weft__sim_lane_new(struct sim_iface *iface, bool scarce, uint64_t actor,
                                    void (*announce)(struct sim_lane *));
static inline bool sim_has_room(const struct sim_iface *iface, bool scarce) {
    return !scarce || iface->n_scarce < iface->iface.attr.scarce;
}
void weft__sim_lane_step(struct sim_lane *lane, enum sim_lane_event event); /* and tells; within its turn only */
void weft__sim_lane_post(struct sim_lane *lane, enum sim_lane_event event, weft_status_t why);
void weft__sim_retire(struct sim_lane *lane, struct sim_packet *p,
                      weft_status_t status); /* completes it by its job */
void weft__sim_announce_up(struct sim_lane *lane);
void weft__sim_announce_accepted(struct sim_lane *lane);
void weft__sim_close(struct lane *lane, bool flush);
void weft__sim_lane_free(struct sim_lane *lane); /* without a word */

/* ops.c */
extern const struct lane_ops weft__sim_ops_idle, weft__sim_ops_up, weft__sim_ops_broken, weft__sim_ops_closed;
void weft__sim_retry(struct sim_lane *lane);
void weft__sim_purge(struct sim_lane *lane);
void weft__sim_take_run(struct sim_lane *lane); /* it grows no more */

/* iface.c */
weft_status_t weft__sim_lane_address(struct lane *lane, void *buf, size_t *len_p);
weft_status_t weft__sim_lane_connect(struct lane *lane, const void *address, size_t len);
struct tl_listener *weft__sim_listener(const struct sim_fabric *f, uint32_t id);

static inline struct sim_iface *sim_iface(const struct sim_lane *lane) {
    return (struct sim_iface *)lane->lane.iface;
}

#endif
