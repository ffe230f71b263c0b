/*
 * A link with failover (WEFT_ERRORS_FAILOVER) has a lane of its own around the lane of the
 * transport. The link sees one reliable lane that dies only with the peer; below it, lanes come and
 * go (resume.h). The retaining lane keeps what was sent until the peer acknowledges it: small
 * messages as copies, large ones in the memory of their owner. Where the transport can (attr.runs),
 * it sends the copies themselves. Unacknowledged messages are limited by "failover.retain_bytes";
 * sends beyond it wait. Handlers in front of the handlers of the link count received messages.
 *
 * For a switch of lanes it is a lane like any other, the home lane of the link: END and DRAINED on
 * it are counted, retained and sent again. Only handshakes and acknowledgements belong to the lane
 * below.
 */
#ifndef WEFT_ENDPOINTS_FAILOVER_RETAIN_H
#define WEFT_ENDPOINTS_FAILOVER_RETAIN_H

#include <transports/pending.h>

#include "resume.h"
#include "retain_log.h"
#include <endpoints/core/link.h>
#include <reactor/process.h>

enum {
    /* larger messages are not copied, and the peer acknowledges them at once */
    RETAIN_COPY = 32 << 10,
    /* Added to the bytes of each message, both in the log and towards an acknowledgement. */
    RETAIN_COST = 48,
    RETAIN_ACK = 512 << 10,         /* bytes after which an ACK is sent at once */
    RETAIN_ACK_PLACEMENT = 1 << 20, /* the same while a message is being placed */
    /* refused tries in a row after which the peer is considered dead */
    RETAIN_REFUSED = 3
};
#define RETAIN_ACK_DELAY (10 * NS_PER_MS)   /* ns that an acknowledgement waits for more messages */
#define RETAIN_TRY       (2000 * NS_PER_MS) /* ns that a try may take */
/* ns after which a lane was of use, whatever it brought */
#define RETAIN_LASTED (1000 * NS_PER_MS)

struct retain {
    struct lane lane; /* the link's */
    struct resume core;
    struct link *link;
    const lane_am_fn *up; /* the link's handlers */
    struct lane *raw;     /* in use; NULL: none */

    /* sending */
    struct retain_log log;      /* not acknowledged */
    uint64_t first;             /* the number of the first message in it */
    uint32_t n_flushes;         /* flushes among them */
    struct retain_at at;        /* while messages are sent again: the next one */
    uint64_t again;             /* its number */
    struct pending_queue queue; /* of the link */
    struct pending raw_pending; /* our entry in the queue of the raw lane */
    bool waits;                 /* raw_pending is queued */
    bool raw_full, log_full;    /* why something waits */
    bool pumping;               /* within weft__retain_pump: do not queue */
    bool letting_go;            /* within weft__retain_let_go: do not queue */
    bool runs;                  /* copies are sent from the log */

    /* receiving: the cost of messages not acknowledged yet; acknowledge at notify_at */
    uint64_t unacked_cost, notify_at;
    uint32_t placement; /* id of the message that is being placed; 0: none */

    /* control messages */
    bool ack_due, ask_due; /* wait for room, or for the end of the turn */
    bool asked;            /* ACK_ASK was sent, and is not answered */
    struct job job;
    struct timer lazy; /* fires when an acknowledgement is due */

    /* lanes that come and go: resume.c */
    struct iface *iface; /* for new lanes */
    struct lane *fresh;  /* the new lane; NULL: none */
    /* sent RESUME, within that step; NULL: none, or its lane was taken */
    struct link *accepted;
    weft_status_t lost, fails; /* reported by the job: the lane was lost; the link fails */
    /* reported by the job: the new lane was lost; the last lane is gone */
    bool missed, over;
    bool closing;                   /* the link closes, and waits for the last acknowledgement */
    bool dead;                      /* the retaining lane is closed */
    struct cause *cause;            /* of the last loss; NULL: unknown */
    uint32_t refused;               /* tries in a row */
    uint64_t back_off, memory_wait; /* ns until the next try; and to send again, without memory */
    /* when the lane in use was adopted, and what the link had then */
    uint64_t adopted_at, had_delivered, had_acked;
    uint64_t useless_since; /* the loss of the last lane that was of use */
    /* `due`: the next try, or the end of one; also to send again when there may be memory */
    struct timer due, give_up, close_at;
    struct process process; /* of the peer, watched while no lane is in use */
    uint8_t ticket[WIRE_TICKET];
    void *address; /* dialed: where to, unless the link has a URI */
    size_t address_len;
};

/* Whether a lane of the interface may be lost while the peer lives. Other interfaces need no
 * failover. */
bool weft__retain_is_for(const struct iface *iface);
/* Puts a retaining lane around the lane of the link, for the life of the link. Copies the
 * address of the peer. NULL: the link has a URI, or the peer dialed. */
weft_status_t weft__retain_begin(struct link *link, const void *address, size_t len);
void weft__retain_free(struct link *link);
/* The lane belongs to `next` from now on. A retaining lane takes the lane below it along. */
void weft__retain_follow(struct link *link, struct lane *lane, struct link *next);

/* The retaining lane around `lane`, or `lane` if there is none. */
struct lane *weft__retain_around(struct lane *lane);
/* The same for placements. NULL: `raw` is not the lane in use, so its messages are no link's
 * yet. */
struct lane *weft__retain_receiver(struct lane *raw);

/* The lane in use places a message (placement.h). The placement ends with the lane at the
 * latest. */
void weft__retain_places(struct lane *lane, uint32_t placement);
/* The placement of a message of `len` bytes has ended. It counts if it arrived. */
void weft__retain_placed(struct lane *lane, size_t len, weft_status_t status);

/* Events of transports. False: the lane belongs to no link with failover. */
bool weft__retain_lane_up(struct lane *lane);
bool weft__retain_lane_down(struct lane *lane, weft_status_t status);
bool weft__retain_lane_closed(struct lane *lane);
/* The first lane died before its handshake. Dials another lane as the first one. */
void weft__retain_again(struct link *link);
/* Fills in the first hello of the link, and reads the answer. */
void weft__retain_handshake(const struct link *link, struct wire_hello *hello);
void weft__retain_shaken(struct link *link, const struct wire_hello *hello);
/* An accepted link presents a lane that replaces a dead one. */
void weft__retain_accepted(struct link *accepted, const struct wire_hello *hello);

/* ---- between retain.c, retain_recv.c and resume.c */

static inline struct retain *weft__retain_of(struct lane *lane) {
    return (struct retain *)lane;
}

extern const struct lane_ops weft__retain_ops_open, weft__retain_ops_shut;
void weft__retain_close(struct lane *lane, bool flush);
/* its messages go to the link from now on */
void weft__retain_recv(struct retain *r, struct lane *raw);
void weft__retain_set_handlers(
    struct lane *lane,
    const lane_am_fn *others); /* receive counted messages; NULL: the handlers of the interface */
void weft__retain_place_stop(struct lane *lane, uint32_t placement);
size_t weft__retained_size_of(const struct retained *m);
/* retain_reclaim.c */
void weft__retain_reclaim(struct lane *lane, const struct completion *completion);
void weft__retain_give_back(struct retain_zcopy *in_flight); /* from now on only its copy is read */
/* the placement ends with its lane; the message is sent again */
void weft__retain_place_lost(struct retain *r);
void weft__retain_end_run(struct retain *r); /* hands the rest of a run to the lane */
void weft__retain_pump(struct retain *r);    /* sends what may be sent */
void weft__retain_let_go(struct retain *r);  /* frees acknowledged messages */
/* Frees all messages, at the end. False: a lane still uses some; call it again after their
 * return. */
bool weft__retain_let_all_go(struct retain *r, weft_status_t status);
void weft__retain_came_home(struct retain_log *log);
/* the next message to send is the first retained one */
void weft__retain_rewind(struct retain *r);
void weft__retain_request(struct retain *r); /* requests an acknowledgement */
void weft__retain_send_acks(struct retain *r);
/* Called within a turn: a lane failed; it lacks memory to send again what is kept, which ends the
 * link after failover.timeout; it has sent all of that; the log is empty. */
void weft__retain_broke(struct retain *r, weft_status_t status);
void weft__retain_awaits_memory(struct retain *r, weft_status_t status);
void weft__retain_sent_again(struct retain *r);
void weft__retain_emptied(struct retain *r);

#endif
