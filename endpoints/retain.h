/*
 * A link that outlives its lanes (WEFT_ERRORS_FAILOVER): a lane of its own around the transport's. To the link it is one
 * reliable lane that never dies before its peer; below, lanes come and go (resume.h). It keeps what was sent until the peer
 * has acknowledged it: copies of small messages, and large ones where they lie, so that their memory stays lent. It counts
 * what the peer's lane brings, by handlers that stand before the link's own. What was sent and is not acknowledged is bounded
 * by "lanes.retain": beyond, sends wait.
 *
 * For those that move a link's traffic between lanes: `link->lane` stays the retaining lane; below it is weft__link_raw(link).
 * What that lane brings goes to weft__link_handlers(link), which a lane is given back to (ops->hear) when others have
 * heard it for a while. Messages of the ids WIRE_HELLO and WIRE_LANE are not counted, not kept, and not sent again.
 */
#ifndef WEFT_ENDPOINTS_RETAIN_H
#define WEFT_ENDPOINTS_RETAIN_H

#include <transports/pending.h>

#include "link.h"
#include "resume.h"
#include "retain_log.h"

enum {
    RETAIN_COPY = 8192,     /* bytes of a message that are rather copied than lent until the peer has them */
    RETAIN_COST = 48,       /* what a message costs beside its bytes */
    RETAIN_ACK = 128 << 10, /* bytes after which the peer is told at once */
    RETAIN_REFUSED = 3      /* tries in a row to which the peer's host says that nobody listens: it is dead */
};
#define RETAIN_ACK_DELAY (UINT64_C(10) * 1000000) /* ns that it waits for the rest */
#define RETAIN_FIRST     (UINT64_C(1) * 1000000)  /* ns until the second try; doubled with each */
#define RETAIN_LAST      (UINT64_C(250) * 1000000)

struct retain {
    struct lane lane; /* the link's */
    struct resume core;
    struct link *link;
    struct lane *raw;        /* in use; NULL: adrift */
    struct lane *fresh;      /* the one that is to follow it; NULL: none */
    const lane_am_fn *up;    /* the link's handlers, of its iface */
    uint64_t heard, tell_at; /* cost of what came and is not acknowledged; beyond, something is to be done */
    struct retain_log log;   /* not acknowledged */
    bool raw_waits;          /* raw_pending is in the raw lane's queue */
    bool ack_due, ask_due;   /* words for the peer that found no room, or wait for the end of the turn */
    bool asked;              /* the peer was asked, and has not answered */
    bool closing;            /* the link is, and waits for the peer to have all */
    bool over;               /* … and the raw lane is gone */
    uint32_t refused;
    uint64_t back_off;
    struct pending_queue pending; /* of the link */
    struct pending raw_pending;
    struct job job;
    struct timer lazy, due, patience; /* acknowledge; try again; give up, or: the end of a close */
    uint8_t ticket[WIRE_TICKET];
    void *address; /* dialed: where to, unless the link has a URI */
    size_t address_len;
};

/* May the link's iface lose a lane while the peer lives? Others need nothing of this. */
bool weft__retain_is_for(const struct iface *iface);
/* Puts a retaining lane around the link's; it goes with the link. The dialer's address is copied, NULL: by URI, or the peer
 * dialed. */
weft_status_t weft__retain_begin(struct link *link, const void *address, size_t len);
/* Takes it away again: the peer's greeting says that it knows nothing of this. */
void weft__retain_undo(struct link *link);
void weft__retain_free(struct link *link);

static inline struct lane *weft__link_raw(const struct link *link) {
    return link->retain ? link->retain->raw : link->lane;
}
/* NULL: those of its iface. */
const lane_am_fn *weft__link_handlers(const struct link *link);
/* Another lane carries from now on; the one before is still up, and is the caller's. All that was not acknowledged stays
 * kept. */
void weft__retain_carry(struct link *link, struct lane *raw);

/* What transports tell of lanes that belong to such a link. False: it is not for this. */
bool weft__retain_lane_up(struct lane *lane);
bool weft__retain_lane_down(struct lane *lane, weft_status_t status);
bool weft__retain_lane_closed(struct lane *lane);
/* A greeting on a lane that is to follow one that died; and one of a guest that wants to. */
bool weft__retain_hello(struct lane *lane, const struct wire_hello *hello);
void weft__retain_guest(struct link *guest, const struct wire_hello *hello);

/* Words of the peer about what it has (lane_wire.h). */
void weft__retain_on_ack(struct link *link, const void *data, size_t len);
void weft__retain_on_ask(struct link *link, const void *data, size_t len);

#endif
