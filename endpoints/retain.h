/*
 * A link that outlives its lanes (WEFT_ERRORS_FAILOVER): a lane of its own around the transport's. To the link it is one
 * reliable lane that never dies before its peer; below, lanes come and go (resume.h). It keeps what was sent until the peer
 * has acknowledged it: copies of small messages, and large ones where they lie, so that their memory stays lent. The copies
 * are what the lane below sends, where it can (attr.runs). It counts
 * what the peer's lane brings, by handlers that stand before the link's own. What was sent and is not acknowledged is bounded
 * by "lanes.retain": beyond, sends wait.
 *
 * To those that move a link's traffic between lanes it is a lane as any other: it is the link's home lane, and what they say by
 * it is a message, counted, kept and sent again as others are. Greetings and acknowledgements alone belong to the lane below.
 */
#ifndef WEFT_ENDPOINTS_RETAIN_H
#define WEFT_ENDPOINTS_RETAIN_H

#include <transports/pending.h>

#include "link.h"
#include "process.h"
#include "resume.h"
#include "retain_log.h"

enum {
    RETAIN_COPY = 32 << 10, /* bytes of a message that are copied, not lent; the peer has to tell of more at once */
    /* What a message costs beside its bytes: one that is lent, and one that the peer has to tell of. */
    RETAIN_COST = 48,
    RETAIN_ACK = 512 << 10,       /* bytes after which the peer is told at once */
    RETAIN_ACK_LANDING = 1 << 20, /* the same while the next message is landing already */
    RETAIN_REFUSED = 3            /* tries in a row to which the peer's host says that nobody listens: it is dead */
};
#define RETAIN_ACK_DELAY (10 * NS_PER_MS) /* ns that it waits for the rest */
#define RETAIN_FIRST     NS_PER_MS        /* ns until the second try; doubled with each */
#define RETAIN_LAST      (250 * NS_PER_MS)
#define RETAIN_TRY       (2000 * NS_PER_MS) /* ns that one may take */

/* A message on its way to where it belongs: it is counted when it is there. */
struct retain_landing {
    void (*landed)(struct lane *lane, void *arg, weft_status_t status); /* NULL: there is none */
    void *arg;
    size_t len;
};

struct retain {
    struct lane lane; /* the link's */
    struct resume core;
    struct link *link;
    const lane_am_fn *up; /* the link's handlers */
    struct lane *raw;     /* in use; NULL: adrift */

    /* sending */
    struct retain_log log;      /* not acknowledged */
    uint64_t first;             /* the number of the first message in it */
    uint32_t n_flushes;         /* that wait among them */
    struct retain_at at;        /* while the lane is new: the next to be sent again */
    uint64_t again;             /* … and its number */
    struct pending_queue queue; /* of the link */
    struct pending raw_pending; /* our place in the raw lane's */
    bool waits;                 /* that is in it */
    bool raw_full, log_full;    /* why something waits */
    bool pumping;               /* do not queue: it is being looked after */
    bool letting_go;            /* the same */
    bool runs;                  /* copies are sent from the log */

    /* receiving */
    uint64_t heard, tell_at; /* cost of what came and was not acknowledged; at that much something is to be done */
    struct retain_landing landing;

    /* words */
    bool ack_due, ask_due; /* find room, or wait for the end of the turn */
    bool asked;            /* the peer was asked, and has not answered */
    struct job job;
    struct timer lazy; /* until an acknowledgement is due */

    /* lanes that come and go: resume.c */
    struct iface *iface;       /* that they are dialed over */
    struct lane *fresh;        /* the one that is to follow; NULL: none */
    weft_status_t lost, fails; /* told in the job: the lane in use, or the new one, broke; the link is lost */
    bool missed, over;         /* the same: the new lane; the last one is gone, and the link may end */
    bool closing;              /* the link is, and waits until the peer has all */
    bool dead;                 /* its lane has been closed for good */
    uint32_t refused;          /* tries in a row */
    uint64_t back_off;
    struct timer due, patience, close_at; /* `due`: the next try, or the end of one */
    struct process process;               /* the peer's, watched while no lane is in use */
    uint8_t ticket[WIRE_TICKET];
    void *address; /* dialed: where to, unless the link has a URI */
    size_t address_len;
};

/* May the link's iface lose a lane while the peer lives? Others need nothing of this. */
bool weft__retain_is_for(const struct iface *iface);
/* Puts a retaining lane around the link's; it goes with the link. The dialer's address is copied, NULL: by URI, or the peer
 * dialed. */
weft_status_t weft__retain_begin(struct link *link, const void *address, size_t len);
void weft__retain_free(struct link *link);
/* The lane is another link's from now on: if it is the retaining one, that link looks after what is below it, too. */
void weft__retain_follow(struct link *link, struct lane *lane, struct link *next);

/* The lane that its link knows: the one around it, where there is one. */
struct lane *weft__retain_around(struct lane *lane);

/* A message of `len` bytes is about to land where `to` says: it is counted on the way. */
void weft__retain_land(struct retain *retain, size_t len, struct landing *to);

/* What transports tell of lanes that belong to such a link. False: it is not for this. */
bool weft__retain_lane_up(struct lane *lane);
bool weft__retain_lane_down(struct lane *lane, weft_status_t status);
bool weft__retain_lane_closed(struct lane *lane);
/* The first lane broke before it greeted: another is dialed as if it were the first. */
void weft__retain_anew(struct link *link);
/* What such a link says in its first greeting, and hears in the answer. */
void weft__retain_greeting(const struct link *link, struct wire_hello *hello);
void weft__retain_greeted(struct link *link, const struct wire_hello *hello);
/* A guest greets, whose lane is to follow one that died. */
void weft__retain_guest(struct link *guest, const struct wire_hello *hello);

/* ---- between retain.c, retain_heard.c and resume.c */

static inline struct retain *weft__retain_of(struct lane *lane) {
    return (struct retain *)lane;
}

extern const struct lane_ops weft__retain_ops_open, weft__retain_ops_shut;
void weft__retain_close(struct lane *lane, bool flush);
void weft__retain_hear(struct retain *r, struct lane *raw); /* its messages are the link's from now on */
void weft__retain_tell(struct lane *lane,
                       const lane_am_fn *others); /* who hears what was counted; NULL: the iface */
void weft__retain_land_stop(struct lane *lane, void *arg);
void weft__retain_land_lost(struct retain *r); /* what is landing goes with its lane, and comes again */
void weft__retain_end_run(struct retain *r);   /* the lane takes what there is of it */
void weft__retain_pump(struct retain *r);      /* all that may go */
void weft__retain_let_go(struct retain *r);    /* what is acknowledged */
/* All of it, at the end. False: a lane still has some of it, and it is tried again when that is back. */
bool weft__retain_let_all_go(struct retain *r, weft_status_t status);
void weft__retain_came_home(struct retain_log *log);
void weft__retain_rewind(struct retain *r); /* what is sent again begins with the first that is kept */
void weft__retain_ask(struct retain *r);    /* the peer shall say what it has */
void weft__retain_words(struct retain *r);
/* Within a turn: the lane in use, or the new one, turned out to be broken; the last word has been let go. */
void weft__retain_broke(struct retain *r, weft_status_t status);
void weft__retain_emptied(struct retain *r);

#endif
