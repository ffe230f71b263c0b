/* Lanes from a worker to itself: the reference implementation of every operation. */
#ifndef WEFT_TRANSPORTS_SELF_SELF_H
#define WEFT_TRANSPORTS_SELF_SELF_H

#include <base/compiler.h>
#include <transports/pair.h>
#include <transports/registry.h>

#include "self_lane.fsm"
#define FSM_NAME   self_lane
#define FSM_PREFIX SELF_LANE
#include <fsm/declare.h>

enum {
    SELF_DEPTH = 256, /* messages queued in one direction of a pair */
    SELF_SHORT = 504, /* payload of am_short */
    SELF_SMALL = 8 + SELF_SHORT,
    SELF_BCOPY = 8192,
    SELF_ZCOPY = 256 * 1024,
    SELF_ZCOPY_HEADER = SELF_SMALL,
    SELF_IOV = 16,
    SELF_RMA_SHORT = 8192, /* limits of one-sided operations */
    SELF_RMA_BCOPY = 64 * 1024,
    SELF_RMA_ZCOPY = 1024 * 1024
};

enum { NOTIFY_OPEN = 1, NOTIFY_DOWN = 2, NOTIFY_CLOSED = 4 };

/* A queued message. Free messages of two sizes are reused, so a busy lane does not allocate. */
struct self_message {
    struct inbox_message of;       /* an inbox, or the free messages */
    struct completion *completion; /* zcopy: steps when the payload has been delivered */
    uint32_t len;                  /* of `data` */
    uint16_t n_iov;
    uint8_t id;
    bool big, flush, cancelled;
    bool kept, gone; /* its data is retained; it has left its queue */
    struct lane_keep keep;
    struct self_iface *iface;
    weft_iov_t iov[SELF_IOV];
    uint8_t *data;
};

struct self_lane {
    struct pair_lane pair; /* its inbox: what it sent, not yet delivered to the peer */
    struct fsm fsm;
    /* NULL while not open or paused: messages wait */
    void (*take)(struct self_lane *lane, struct self_message *m);
    struct self_message fin;
    struct self_lane *ready_next; /* in iface->ready while messages wait here */
    bool ready;
    /* by its owner: its peer is then not in iface->ready */
    bool paused;
    unsigned notices; /* NOTIFY_…: calls to the owner that follow the step */
};

struct tl_listener {
    struct self_iface *iface;
    struct tl_listener *next;
    void *arg;
    char *uri;
};

/* A region of the worker, and a key to a region. */
struct self_mem {
    struct md_mem mem;
    struct self_mem *next;
};
struct self_key {
    struct lane_key key;
    struct self_key *next;
    struct self_mem *mem; /* NULL: refused, revoked, or the lane has ended */
};

struct self_iface {
    struct iface iface;
    struct poller poller;
    struct self_lane *ready, **ready_last;
    struct tl_listener *listeners;
    struct self_message *small, *big; /* free */
    struct self_message *taken;       /* the message in its handler */
    uint8_t *scratch;                 /* buffer that assembles zcopy messages */
    struct self_mem *mems;
    struct self_key *keys;
};

extern const struct lane_ops weft__self_ops_new, weft__self_ops_up, weft__self_ops_peer_closed,
    weft__self_ops_closed;

static inline struct self_iface *self_iface(struct lane *lane) {
    return (struct self_iface *)lane->iface;
}
static inline struct self_lane *self_peer(const struct self_lane *lane) {
    return (struct self_lane *)lane->pair.peer;
}

void weft__self_step(struct self_lane *lane, unsigned event);
void weft__self_close(struct lane *lane, bool flush);
int weft__self_poll(struct poller *poller, unsigned budget);
void weft__self_queue(struct self_lane *lane, struct self_message *m);
/* no effect if it is not paused; the caller sets `take` */
void weft__self_resume(struct self_lane *lane);
void weft__self_drop_queue(struct self_lane *lane, weft_status_t status);
void weft__self_cancel_queue(struct self_lane *lane);
void weft__self_retry(struct self_lane *lane);
void weft__self_purge(struct self_lane *lane);
void weft__self_take(struct self_lane *lane, struct self_message *m);
void weft__self_refuse(struct self_lane *lane, struct self_message *m);

/* rma.c: one-sided operations */
weft_status_t weft__self_mem_register(struct iface *i, const struct region *region,
                                      struct md_mem **mem_p);
weft_status_t weft__self_mem_revoke(struct md_mem *m, struct completion *completion);
size_t weft__self_key_pack(const struct md_mem *mem, void *to);
void weft__self_keys_end(struct self_lane *lane, weft_status_t status);
void weft__self_keys_forget(struct self_lane *lane);
weft_status_t weft__self_key_open(struct lane *l, const struct remote_region *region,
                                  const void *packed, size_t len, struct lane_key **key_p);
void weft__self_key_close(struct lane_key *k);
weft_status_t weft__self_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                   struct lane_key *key);
weft_status_t weft__self_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *),
                                   void *arg, uint64_t remote, struct lane_key *key);
weft_status_t weft__self_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from,
                                   uint64_t remote, struct lane_key *key,
                                   struct completion *completion);
weft_status_t weft__self_get_bcopy(struct lane *lane, const struct rma_unpack *to, uint64_t remote,
                                   struct lane_key *key, struct completion *completion);
weft_status_t weft__self_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to,
                                   uint64_t remote, struct lane_key *key,
                                   struct completion *completion);
weft_status_t weft__self_atomic_post(struct lane *l, const struct lane_atomic *atomic,
                                     struct lane_key *key);
weft_status_t weft__self_atomic_fetch(struct lane *l, const struct lane_atomic *atomic, void *old_p,
                                      struct lane_key *key, struct completion *completion);
weft_status_t weft__self_fence(struct lane *l);

#endif
