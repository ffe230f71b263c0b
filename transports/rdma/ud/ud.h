/*
 * The internals of rdma_ud, shared by ud_*.c. It sends datagrams of the UD service, by one queue
 * pair of a worker for all peers. Datagrams may be lost, so endpoints wrap it in the sliding window
 * (transports/reliable/). The source address and the sender's lane number identify the lane of a
 * datagram.
 */
#ifndef WEFT_TRANSPORTS_RDMA_UD_UD_H
#define WEFT_TRANSPORTS_RDMA_UD_UD_H

#include "ud_table.h"
#include "ud_wire.h"
#include <transports/rdma/verbs/device.h>

#include <base/counters.h>
#include <reactor/slab.h>
#include <stddef.h>
#include <transports/pending.h>
#include <transports/registry.h>

#include "ud_lane.fsm"
#define FSM_NAME   ud_lane
#define FSM_PREFIX UD_LANE
#define FSM_SETS   UD_LANE_SETS
#include "ud_qp.fsm"
#include <fsm/declare.h>
#define FSM_NAME   ud_qp
#define FSM_PREFIX UD_QP
#define FSM_SETS   UD_QP_SETS
#include <fsm/declare.h>

enum {
    UD_INLINE = 192, /* bytes that go into the work request itself, if the device will have it */
    /* Of a receive: the largest datagram that there is, so that none is too long for its buffer. */
    UD_ROOM = 40 + 4096,
    UD_BATCH_PART = 16,    /* receives are posted again when so great a part of them was used */
    UD_SIGNAL_PART = 4,    /* sends: one completion is asked for in such a part of the queue */
    UD_RINGS_MOST = 16384, /* datagrams in either ring */
    UD_NOTIFY = 16 * 1024  /* bytes of a lane after which its owner is notified of the progress */
};

/* ---- ud_path.c: address handles, one for each port where peers are; kept for the next who is
 * there */

struct ud_path {
    struct rd_place place;
    struct ibv_ah *ah;
    uint8_t gid_index; /* of ours, by which it was made */
    unsigned refs;
    uint64_t until; /* sends before that number may still need it */
    struct ud_path *next;
    TAILQ_ENTRY(ud_path) idle; /* while it has no reference */
};

struct ud_paths {
    struct rd_device *device;
    const void *parent;
    struct ud_path **bucket;
    unsigned n, most;
    uint8_t gid_index;                       /* all were made by it, or tried */
    TAILQ_HEAD(ud_idle_paths, ud_path) idle; /* the longest idle first */
};

weft_status_t weft__ud_paths_open(struct ud_paths *paths, struct rd_device *device,
                                  const void *parent, unsigned most);
/* UNREACHABLE: another kind of link; QUOTA: as many as there may be are in use. `done`: the
 * sends before that are over. */
weft_status_t weft__ud_path_hold(struct ud_paths *paths, const struct rd_place *place,
                                 uint64_t done, struct ud_path **path_p);
/* `until`: the number of the next send. */
void weft__ud_path_drop(struct ud_paths *paths, struct ud_path *path, uint64_t until);
/* The one that is there, or NULL. */
struct ud_path *weft__ud_path_find(const struct ud_paths *paths, const struct rd_place *place);
/* Our GID stands elsewhere: handles by its old place are of no use. No send is under way when
 * they are made again; one that cannot be made stays as it is, for the next try. */
bool weft__ud_paths_are_old(const struct ud_paths *paths);
void weft__ud_paths_renew(struct ud_paths *paths);
/* Destroys all handles; the paths that are held stay, without. */
void weft__ud_paths_end(struct ud_paths *paths);
/* Sets the device that lanes are reached by from now on. */
void weft__ud_paths_move(struct ud_paths *paths, struct rd_device *device);

/* ---- a lane ---------------------------------------------------------------------------------- */

/* Runs when all that was sent before is over, or it took too long (TIMED_OUT). */
struct ud_mark {
    TAILQ_ENTRY(ud_mark) of_iface;
    uint64_t at, due;
    void (*passed)(struct ud_mark *mark, weft_status_t status);
};

struct ud_flush {
    struct ud_mark mark;
    struct ud_lane *lane;
    struct completion *completion;
    TAILQ_ENTRY(ud_flush) of_lane;
};

struct ud_lane {
    struct lane lane;
    struct ud_node node;
    uint32_t qkey;   /* of the peer */
    uint64_t token;  /* … */
    bool unverified; /* accepted, and it has not shown yet that it receives from us */
    bool waits;      /* on the interface's list */
    uint32_t bytes;  /* sent since the owner was notified */
    /* what its state does with a datagram */
    void (*take)(struct ud_lane *lane, const struct ud_frame *frame);
    struct fsm fsm;
    uint32_t due;   /* effects to be carried out when the machine is at rest */
    uint64_t until; /* the number after its last send */
    weft_status_t why;
    struct job job;
    struct ud_mark left;
    TAILQ_HEAD(, ud_flush) flushes;
    struct pending_queue pending;
    TAILQ_ENTRY(ud_lane) of_iface;
    TAILQ_ENTRY(ud_lane) of_waiting;
    void *padding; /* the slab's */
};

/* ---- the interface --------------------------------------------------------------------------- */

struct ud_iface {
    struct iface iface;
    struct rd_user user;
    struct rd_device *device; /* NULL: it is gone */
    char device_name[80];
    struct rd_cq cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint32_t qpn, qkey;
    uint64_t token; /* who does not know it remains unknown */
    uint16_t epoch; /* of the queue pair: what comes from before a reset means nothing */
    bool v4;        /* sources are IPv4 addresses */

    /* Numbers of datagrams count up; a ring's place is the number modulo its size. */
    struct ud_send {
        uint64_t next, done, limit; /* next == limit: no room */
        uint32_t size, signal_every, unsignalled;
        uint32_t inline_most;
        uint32_t stride;
        uint8_t *bytes;
        struct ibv_send_wr wr; /* of the last; what all have in common stays */
        struct ibv_sge sge;
    } send;
    struct ud_receive {
        uint64_t next, posted; /* next: to be used */
        uint32_t size, batch, stride;
        uint8_t *bytes;
        struct ibv_recv_wr *wr; /* in a circle */
        struct ibv_sge *sge;
    } receive;

    struct ud_table table;
    struct ud_paths paths;
    struct slab lane_slab;
    TAILQ_HEAD(, ud_lane) lanes;
    /* those with pending operations, in the order in which they came */
    TAILQ_HEAD(, ud_lane) waiting;
    TAILQ_HEAD(, ud_mark) marks; /* in their order */
    struct timer late;           /* reserved: starting it cannot fail */
    unsigned n_waiting, n_unverified, most_unverified;
    uint32_t n_lanes; /* ever */

    struct fsm fsm; /* of ud_qp.fsm */
    struct timer repair;
    uint64_t broke_at, pause;
    struct job notified; /* what the queue pair's machine has to do outside of a callback */
    bool lost;           /* all lanes are to learn it */
    weft_status_t why;
    char cause[192]; /* of the last loss of its lanes, as text */
};

static inline struct ud_iface *ud_iface(struct iface *iface) {
    return (struct ud_iface *)iface;
}
static inline struct ud_iface *ud_iface_of(const struct ud_lane *lane) {
    return (struct ud_iface *)lane->lane.iface;
}
static inline struct ud_lane *ud_lane_of(struct ud_node *node) {
    return container_of(node, struct ud_lane, node);
}
static inline struct counters *ud_count(const struct ud_iface *iface) {
    return weft__count(iface->iface.reactor);
}

/* ---- ud_qp.c: the queue pair and its machine ------------------------------------------------- */

void weft__ud_qp_init(struct ud_iface *iface);
/* Its device is there, and the memory of its rings. An address of an earlier device reaches no
 * queue pair. */
weft_status_t weft__ud_qp_open(struct ud_iface *iface);
void weft__ud_qp_close(struct ud_iface *iface); /* nothing if it is not open */
void weft__ud_qp_step(struct ud_iface *iface, enum ud_qp_event event);

/* ---- ud_send.c ------------------------------------------------------------------------------- */

weft_status_t weft__ud_send_open(struct ud_iface *iface);
void weft__ud_send_halt(struct ud_iface *iface);  /* there is no room from now on */
void weft__ud_send_reset(struct ud_iface *iface); /* what was under way is over; there is room */
void weft__ud_send_took(struct ud_iface *iface, uint64_t number);
/* What became free is given on: marks, and those who wait. */
void weft__ud_send_turn(struct ud_iface *iface);
/* Its `passed` comes from a later turn, or from within this one, never from within this call. */
void weft__ud_mark_add(struct ud_iface *iface, struct ud_mark *mark, uint64_t at);
void weft__ud_flushes_end(struct ud_lane *lane, weft_status_t status);
void weft__ud_purge(struct ud_lane *lane);
extern const struct lane_ops weft__ud_ops_new, weft__ud_ops_up, weft__ud_ops_down,
    weft__ud_ops_closed;

/* ---- ud_receive.c ---------------------------------------------------------------------------- */

weft_status_t weft__ud_receive_open(struct ud_iface *iface);
weft_status_t weft__ud_receive_reset(struct ud_iface *iface); /* all are posted */
void weft__ud_receive_took(struct ud_iface *iface, const struct ibv_wc *wc);
weft_status_t weft__ud_receive_turn(struct ud_iface *iface); /* posts a batch, if there is one */

/* ---- ud_lane.c ------------------------------------------------------------------------------- */

/* With a path, which is its own from then on also when this fails. */
weft_status_t weft__ud_lane_new(struct ud_iface *iface, struct ud_path *path,
                                const struct ud_address *peer, struct ud_lane **lane_p);
void weft__ud_lane_dial(struct ud_lane *lane);   /* `up` comes by its job */
void weft__ud_lane_accept(struct ud_lane *lane); /* `accepted` comes from within; within a turn */
void weft__ud_lane_lost(struct ud_lane *lane, weft_status_t why);
void weft__ud_lane_received(struct ud_lane *lane); /* it is verified now */
void weft__ud_lane_close(struct lane *lane, bool flush);
void weft__ud_lane_describe(struct lane *lane, char *buf, size_t size);
void weft__ud_lane_free(struct ud_lane *lane); /* without a word */

#endif
