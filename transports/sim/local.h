/* The inside of the simulated network, shared by the files of this folder. */
#ifndef WEFT_TRANSPORTS_SIM_LOCAL_H
#define WEFT_TRANSPORTS_SIM_LOCAL_H

#include "sim.h"
#include <base/compiler.h>
#include <base/counters.h>
#include <fsm/fsm.h>

#include "sim_lane.fsm"
#define FSM_NAME   sim_lane
#define FSM_PREFIX SIM_LANE
#define FSM_SETS   SIM_LANE_SETS
#include <fsm/declare.h>
#include <transports/pending.h>

enum {
    SIM_NODES = 1024,
    SIM_BUCKETS = 1024,
    SIM_SMALL = 512,  /* packets of two sizes are kept for reuse */
    SIM_BCOPY = 8192, /* reliable: limits of the three forms */
    SIM_ZCOPY = 256 * 1024,
    SIM_HEADER = 504,
    SIM_IOV = 16,
    SIM_RUN = 160,         /* bytes that one packet takes of a run, or one message */
    SIM_SLICE = 16 * 1024, /* bytes that land at a time */
    SIM_NOTIFY_EVERY = 64, /* messages, of the work done */
    SIM_STALLS = 8         /* at a time */
};
#define SIM_NEVER UINT64_MAX

/* What a decision is about. Their values are part of the draw: append only. */
enum sim_site {
    SITE_LOSS = 1,
    SITE_DUPLICATE,
    SITE_REORDER,
    SITE_DELAY,
    SITE_JITTER,
    SITE_EXHAUSTION
};

enum sim_kind {
    SIM_CONNECT, /* reliable: connects to the other end, which is a lane or is still to be made */
    SIM_AM,
    SIM_FLUSH,    /* to no lane: its completion says that all before it was delivered */
    SIM_KEY_WORD, /* about a key to exposed memory (exposed.c) */
    SIM_FIN
};

/*
 * On its way. A reliable lane keeps its packets in a queue of its own, and only the first is in the
 * peer's heap; a datagram is in the heap at once, or is lost.
 */
struct sim_packet {
    struct sim_packet *next;            /* in a queue or a pool */
    struct sim_packet *child, *sibling; /* in a heap */
    uint64_t at, serial;
    uint64_t blocked_at; /* since when a partition holds it up; 0: it does not */
    struct completion *completion;
    uint32_t src, dst; /* lane ids; dst 0: the lane of that node that answers `src` */
    uint32_t listener; /* 0: by iface address */
    uint16_t from, to; /* nodes */
    uint16_t n_iov;
    uint8_t kind, id;
    bool big, in_heap;
    bool scarce;          /* of a lane of that kind */
    bool cancelled;       /* its lane gave it up while it was in a heap */
    bool run;             /* several messages, each with its head, lie in iov[0] */
    bool listed;          /* in its lane's `finished` */
    bool stalled;         /* it left before its lane was closed, though it comes late */
    bool asked, places;   /* its owner was, and wants it somewhere */
    weft_status_t status; /* for its completion */
    uint64_t actor;       /* of the lane that sent it */
    uint32_t len;
    weft_iov_t iov[SIM_IOV]; /* reliable zcopy: read on delivery, as a device may */
    uint8_t data[];
};

struct sim_address {
    uint32_t magic, node, incarnation, lane; /* lane 0: the iface */
};

/* The payload of the message that is arriving. to.id is 0 when there is none, or when its end
 * was reported. */
struct sim_placement {
    struct placement to;
    size_t at, end;    /* of the message */
    weft_status_t why; /* not OK: it ended early */
};

/* A key to a peer's exposed region. Kept after its close until the owner has answered. */
struct sim_key {
    struct lane_key key;
    struct sim_key *next, **at;
    struct sim_packet *word[2]; /* WANT and DROP, until they are sent */
    uint32_t serial;
    bool asked, closed; /* the answer is not there yet; the owner of the key wants it no more */
};

/* A peer's key to a region of this side, until the peer has let go. */
struct sim_grant {
    struct sim_grant *next, **at; /* of the iface */
    struct sim_mem *mem;
    struct sim_packet *word[2]; /* the answer and REVOKE, until they are sent */
    uint32_t lane, remote;      /* ids of the ends of its lane */
    uint32_t serial;
    unsigned rights;
    bool parted; /* the peer has let go: it ends in the next turn */
};

struct sim_mem {
    struct md_mem mem;
    struct sim_mem *next;
    struct completion *revoked;
};

/* A read of exposed memory; with a token: split with the peer, or (remote 0) the peer's alone. */
struct sim_copy {
    struct sim_copy *next;
    struct sim_lane *lane;
    uint64_t serial, token, remote;
    /* bytes: in all, taken by this side from the beginning and by the peer from the end, and
     * written by the peer */
    size_t len, front, back, written;
    struct completion *completion;
    weft_status_t status;
    bool stopped, over; /* this side takes no more bytes; the peer must not */
    unsigned n_iov;
    weft_iov_t iov[SIM_IOV];
};

/* The sender's side of a copy with a token. */
struct sim_put {
    struct sim_put *next;
    struct lane_put_req from;
    size_t at, taken; /* bytes that it has taken and not written yet */
    struct completion *completion;
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
    /* of n_sent, when the owner was notified of it (iface_up.worked); bytes since then */
    uint64_t n_notified, carried;
    struct sim_packet *first, **last;             /* reliable: under way */
    struct sim_packet *finished, **finished_last; /* completions are due */
    /* that may still grow, in the last of them; or NULL */
    struct lane_run *run;
    struct sim_placement placement; /* reliable: of what comes */
    /* one has ended early, and the job has not run yet */
    bool place_due;
    uint32_t under_way;
    uint64_t last_at; /* reliable: nothing sent later arrives before */
    struct pending_queue pending;
    void (*announce)(struct sim_lane *lane); /* `accepted` or `up` */
    /* what its state does with a message */
    void (*take)(struct sim_lane *lane, struct sim_packet *p);
    void *listen_arg;
    weft_status_t why;
    /* events posted from outside its machine, and what its machine has to report */
    struct job job;
    uint32_t posted, due; /* bits: events, and effects to be carried out after the step */
    struct timer retry;   /* exhausted, or out of memory for a timer */
    struct timer linger;  /* until a close in good order becomes an end */
    struct timer fate;    /* until it breaks, as was decided */
    /* how long after that the other end does; NEVER: it does not learn it */
    uint64_t fate_of_other;
    struct sim_packet *fin, *hello; /* made with the lane, so that ending needs no memory */
    /* exposed memory: it carries nothing any more, and what is under way ends with `why` */
    bool ended, copies_due;
    weft_status_t copies_why;
    uint32_t n_keys; /* ever */
    struct sim_key *keys;
    struct sim_copy *copies; /* of this side's reads; the first is under way */
    struct sim_put *puts;    /* the same of what this side writes */
    struct timer copying;
    struct job copy_job;
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
    struct sim_mem *mems;
    struct sim_grant *grants;
    struct sim_copy *outstanding; /* copies that wait for the peer */
    uint32_t n_tokens;
    struct job parting;
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
    struct sim_stall {
        unsigned from, to;
        uint64_t until;
    } stall[SIM_STALLS];
    unsigned n_stalls; /* ever: the oldest gives way */
    struct sim_lane *bucket[SIM_BUCKETS];
    struct tl_listener *listeners;
    struct sim_packet *small, *big;
    uint8_t *scratch;
    uint64_t n_copies; /* ever */
    sim_slice_fn on_slice;
    void *slice_arg;
};

/* fabric.c: decisions, and what the network is */
uint64_t weft__sim_draw(const struct sim_fabric *f, enum sim_site site, uint64_t actor, uint64_t n);
bool weft__sim_chance(const struct sim_fabric *f, enum sim_site site, uint64_t actor, uint64_t n,
                      uint32_t rate);
bool weft__sim_passes(const struct sim_fabric *f, unsigned from, unsigned to);
/* 0: it is not */
uint64_t weft__sim_stalled_until(const struct sim_fabric *f, unsigned from, unsigned to);
void weft__sim_note(struct sim_fabric *f, const char *what, const struct sim_packet *p);
struct sim_lane *weft__sim_lane(const struct sim_fabric *f, uint32_t id);
struct sim_fabric *weft__sim_in_use(bool fast);

/* fail.c */
void weft__sim_fate(struct timer *timer);

/* packet.c */
/* header and payload */
void weft__sim_packet_read(const struct sim_packet *p, size_t at, void *to, size_t n);
struct sim_packet *weft__sim_packet_new(struct sim_fabric *f, size_t len);
void weft__sim_packet_free(struct sim_fabric *f, struct sim_packet *p);
void weft__sim_heap_add(struct sim_packet **heap, struct sim_packet *p);
struct sim_packet *weft__sim_heap_take(struct sim_packet **heap);

/* deliver.c */
/* its next, reliable or not; never fails */
void weft__sim_send(struct sim_lane *lane, struct sim_packet *p);
void weft__sim_expect(struct sim_iface *iface); /* sets its timer by its heap */
void weft__sim_arrival(struct timer *timer);
void weft__sim_arrivals_drop(struct sim_iface *iface);
void weft__sim_take(struct sim_lane *lane, struct sim_packet *p);
void weft__sim_refuse(struct sim_lane *lane, struct sim_packet *p);

/* placement.c */
bool weft__sim_place(struct sim_lane *lane, struct sim_packet *p); /* true: more of it is to come */
void weft__sim_placed(struct sim_lane *lane);                      /* all of it is there */
void weft__sim_place_stop(struct lane *lane, uint32_t id);
/* early; the lane's job reports it */
void weft__sim_place_end(struct sim_lane *lane, weft_status_t why);
/* if it has ended early and was not reported */
void weft__sim_place_report(struct sim_lane *lane);

/* lane.c */
struct sim_lane *weft__sim_lane_new(struct sim_iface *iface, bool scarce, uint64_t actor,
                                    void (*announce)(struct sim_lane *));
static inline bool sim_has_room(const struct sim_iface *iface, bool scarce) {
    return !scarce || iface->n_scarce < iface->iface.attr.scarce;
}
/* and reports; within its turn only */
void weft__sim_lane_step(struct sim_lane *lane, enum sim_lane_event event);
void weft__sim_lane_post(struct sim_lane *lane, enum sim_lane_event event, weft_status_t why);
void weft__sim_retire(struct sim_lane *lane, struct sim_packet *p,
                      weft_status_t status); /* completes it by its job */
void weft__sim_announce_up(struct sim_lane *lane);
void weft__sim_announce_accepted(struct sim_lane *lane);
void weft__sim_close(struct lane *lane, bool flush);
void weft__sim_lane_free(struct sim_lane *lane); /* without a word */

/* exposed.c */
weft_status_t weft__sim_key_open(struct lane *lane, const struct remote_region *region,
                                 const void *packed, size_t len, struct lane_key **key_p);
void weft__sim_key_close(struct lane_key *key);
bool weft__sim_exposes(struct lane *lane, const struct md_mem *mem, unsigned right);
weft_status_t weft__sim_mem_register(struct iface *iface, const struct region *region,
                                     struct md_mem **mem_p);
weft_status_t weft__sim_mem_revoke(struct md_mem *mem, struct completion *completion);
size_t weft__sim_key_pack(const struct md_mem *mem, void *to);
/* by a key with that right; NULL: there is none */
char *weft__sim_mapped_at(const struct sim_lane *lane, uint64_t remote, size_t len, unsigned right);
void weft__sim_key_word(struct sim_lane *lane, const struct sim_packet *p);
void weft__sim_keys_end(struct sim_lane *lane, weft_status_t status);
/* the owner's side of a lane that is freed */
void weft__sim_grants_end(struct sim_lane *lane);
void weft__sim_keys_free(struct sim_lane *lane);
void weft__sim_parting(struct job *job);
void weft__sim_mem_close(struct sim_iface *iface);

/* copies.c */
weft_status_t weft__sim_bulk_get(struct lane *lane, uint64_t remote, const weft_iov_t *iov,
                                 size_t n_iov, struct completion *completion);
weft_status_t weft__sim_bulk_split(struct lane *lane, uint64_t remote, const weft_iov_t *to,
                                   struct completion *completion, uint64_t *token_p);
weft_status_t weft__sim_bulk_put(struct lane *lane, const weft_iov_t *to,
                                 struct completion *completion, uint64_t *token_p);
weft_status_t weft__sim_bulk_put_req(struct lane *lane, const struct lane_put_req *from,
                                     struct completion *completion);
void weft__sim_put_req_stop(struct lane *lane, const struct completion *completion);
void weft__sim_put_done(struct iface *iface);
void weft__sim_put_stop(struct iface *iface, const struct completion *completion);
void weft__sim_copying(struct timer *timer);
void weft__sim_copy_job(struct job *job);
bool weft__sim_reads(const struct sim_lane *lane);
void weft__sim_write_taken(struct sim_lane *lane); /* at once, as if an event came a little later */
void weft__sim_copies_end(struct sim_lane *lane, weft_status_t status);

/* ops.c: of lanes that expose no memory, and of those that do */
extern const struct lane_ops weft__sim_ops_idle[2], weft__sim_ops_up[2], weft__sim_ops_broken[2],
    weft__sim_ops_closed[2];
static inline bool sim_is_up(const struct sim_lane *lane) {
    return lane->lane.ops == &weft__sim_ops_up[lane->fabric->profile.exposes];
}
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
