/* Lanes by the mailbox: messages lie in the sender's pool, and one word leads the receiver to
 * all of them. */
#ifndef WEFT_TRANSPORTS_SHM_LANE_MAILBOX_LANE_H
#define WEFT_TRANSPORTS_SHM_LANE_MAILBOX_LANE_H

#include <transports/shm/memory/segment.h>
#include <transports/shm/queues/mailbox.h>
#include <transports/transport.h>

struct shm_iface;
struct shm_lane;

enum {
    SHM_NODES = 4096, /* of a worker's pool: its messages under way through peers' mailboxes */
    SHM_BLOCKS = 256, /* of a worker's pool, for messages that do not fit a node */
    SHM_DESCS = 512   /* messages taken from the mailbox at a time */
};

/* A lane's part in the mailboxes. */
struct shm_mail_lane {
    /* of the peer's pool; without nodes: our mailbox holds no message of the peer */
    struct mail_view view;
    struct mail_tx tx; /* `newest` and `slot` lead lanes by rings to the peer's doorbell, too */
    struct mail_control *ours;
    uint32_t consumed;
    uint32_t mark;                     /* of a lane that drains: n_takes when it began */
    uint32_t asked_at, wants_answered; /* the slab overwrites this last word of a freed lane */
};

/* A worker's part in the mailboxes. */
struct shm_mail {
    struct mail_rx rx;
    struct mail_pool pool;
    struct segment segment;                                /* the pool's memory (pool.h) */
    uint32_t nodes_filled, blocks_filled, controls_filled; /* bytes with memory behind them */
    uint32_t n_notes;                                      /* nodes that have a note */
    uint32_t last_opening;                                 /* of a lane, as its peer knows it */
    /* lanes whose nodes may be in our mailbox */
    unsigned n_lanes;
    unsigned n_drains;
    uint32_t n_takes;
    bool due;          /* there is work besides the mailbox */
    bool nodes_wanted; /* a send found no node */
    bool lied_to;      /* of the messages to it, a peer claims to have passed too many */
    /* 1 + index of the first and the last lane that wait for room */
    uint16_t waiting, last_waiting;
    unsigned n_waiting;
    struct shm_backlog *asides; /* of lanes that are, or were, paused */
};

weft_status_t weft__shm_mail_am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                                      size_t len);
weft_status_t weft__shm_mail_am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *, void *),
                                      void *arg);
weft_status_t weft__shm_mail_am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                                      struct completion *completion);
weft_status_t weft__shm_mail_open(struct shm_iface *iface);
void weft__shm_mail_close(struct shm_iface *iface);
weft_status_t weft__shm_mail_offer(struct shm_lane *lane); /* before the handshake */
weft_status_t weft__shm_mail_begin(struct shm_lane *lane); /* when the peer is known */
/* neither mailbox holds anything of the other */
void weft__shm_mail_forget(struct shm_lane *lane);
/* passes the backlog without reading it */
void weft__shm_mail_unread(struct shm_lane *lane);
/* Calls events->drained when the mailbox holds no message of the peer any more. */
void weft__shm_mail_drain(struct shm_lane *lane);
unsigned weft__shm_mail_work(struct shm_iface *iface, unsigned budget);
/* before arming: peers wake this worker when they pass nodes */
void weft__shm_mail_ask(struct shm_iface *iface);
/* after arming: true if there is nothing to do */
bool weft__shm_mail_quiet(struct shm_iface *iface);

/* ---- between mailbox_lane.c and mailbox_pool.c */

/* Allocate nodes and blocks of the pool up to `end`, a byte of their part. */
weft_status_t weft__shm_mail_more_nodes(struct shm_iface *iface, size_t end);
weft_status_t weft__shm_mail_more_blocks(struct shm_iface *iface, size_t end);
/* Makes room for the descriptors of `due` messages. A longer chain is followed once for each
 * part of it. */
weft_status_t weft__shm_mail_descs_for(struct shm_iface *iface, size_t due);

#endif
