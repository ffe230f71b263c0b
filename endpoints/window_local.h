/* The inside of a lane with a window around it, shared by window_*.c. */
#ifndef WEFT_ENDPOINTS_WINDOW_LOCAL_H
#define WEFT_ENDPOINTS_WINDOW_LOCAL_H

#include <reactor/counters.h>
#include <transports/pending.h>

#include "window.h"
#include "window_conn.h"
#include "window_lane.h"
#include "window_time.h"
#include "window_wire.h"

enum {
    WINDOW_SMALL = 512,
    WINDOW_BCOPY = 8192,
    WINDOW_ZCOPY = 256 * 1024,
    WINDOW_HEADER = WINDOW_SMALL,
    WINDOW_IOV = 16,
    WINDOW_RAW_ID = 0,    /* the one id that frames use below */
    WINDOW_KEEP_STEPS = 4 /* of the time until a silent peer is asked: times are rounded to these */
};
#define WINDOW_NEVER UINT64_MAX

/* A message that the peer has not acknowledged. */
struct window_message {
    struct window_message *next;
    struct completion *completion;
    uint32_t first, n_frames; /* its frames' numbers; none: a flush */
    size_t total;             /* bytes of data and iov */
    uint32_t len;             /* of data */
    uint16_t n_iov;
    uint8_t kind, id;
    bool big;
    weft_iov_t iov[WINDOW_IOV];
    uint8_t data[];
};

/* A frame that came too early. */
struct window_held {
    struct window_held *next;
    struct window_frame frame;
    uint8_t data[];
};

struct window_lane {
    struct lane lane;
    struct lane *raw;
    struct window_conn conn;
    struct window win;
    struct window_time time;
    struct window_lane *next, **link; /* all of the iface's */
    void *listen_arg;
    weft_status_t why; /* it went down */
    uint32_t due;      /* effects to be carried out when the machine is at rest */
    struct job job;
    bool paused;   /* by its owner */
    bool holding;  /* … or was, and what was put off is still there */
    bool violated; /* the step that runs met what the peer may not say */

    /* By state: what is done with a numbered frame, and with a message in its place. */
    void (*take)(struct window_lane *wl, const struct window_frame *f);
    void (*deliver)(struct window_lane *wl, const struct window_frame *f);

    /* sending */
    struct window_message *first, **last; /* not acknowledged, in order */
    struct window_message *sending;       /* the one that frame win.next belongs to */
    struct window_message *fin;
    size_t bytes;     /* retained */
    uint64_t to_send; /* bit seq % 64: a frame that goes (again) */
    uint64_t again;   /* bit seq % 64: was sent more than once */
    uint64_t sent_at[WINDOW_FRAMES];
    uint32_t words; /* bit kind: unnumbered frames that go */
    struct pending raw_pending;
    bool blocked; /* raw_pending is queued */
    struct pending_queue pending;
    struct window_message *finished, **finished_last;

    /* receiving */
    struct window_held *held[WINDOW_FRAMES]; /* one that was put off has the place of the next */
    uint8_t *whole;                          /* a message in fragments, as far as it is here */
    size_t whole_len;
    uint16_t whole_more; /* fragments that are missing */
    uint8_t whole_id;
    uint32_t unacked; /* frames received since the last acknowledgement */
    bool heard;       /* anything, since keep_at was set */
    bool watched;     /* the owner would hear of the peer's end by other means */

    /* One timer, at the nearest of these. It is always in the heap, so that starting it cannot fail. */
    struct timer timer;
    uint64_t resend_at, progress_at, ack_at, close_at, keep_at;
    uint64_t word_at, word_rto, word_since;
};

struct window_iface {
    struct iface iface;
    struct iface *raw;
    struct iface_up raw_up;
    struct window_lane *lanes;
    struct window_message *small, *big; /* free */
    struct window_held *frames;         /* free */
    uint8_t *scratch;
    size_t fragment; /* payload bytes of a frame */
    size_t whole;    /* of the largest message, and a fragment */
    size_t limit;    /* bytes that a lane retains */
    uint64_t patience;
    uint64_t keep_alive; /* ns of silence; 0: nobody is asked */
    uint32_t n_lanes;
};

/* window_lane.c: the machine, timers, and what is told */
extern const struct fsm_port weft__window_port;
struct window_lane *weft__window_lane_new(struct window_iface *iface, struct lane *raw);
void weft__window_lane_free(struct window_lane *wl);
void weft__window_step(struct window_lane *wl, enum conn_event event);
void weft__window_settle(struct window_lane *wl); /* within a turn; may call the owner */
void weft__window_expect(struct window_lane *wl, uint64_t at);
void weft__window_close(struct lane *lane, bool flush);
void weft__window_watched(struct lane *lane);

/* window_send.c */
extern const struct lane_ops weft__window_ops_idle, weft__window_ops_up, weft__window_ops_down,
    weft__window_ops_closed;
void weft__window_pump(struct window_lane *wl);
weft_status_t weft__window_pump_retry(struct pending *pending);
void weft__window_queue_fin(struct window_lane *wl);
void weft__window_release(struct window_lane *wl);                    /* what is acknowledged */
void weft__window_drop(struct window_lane *wl, weft_status_t status); /* everything */
void weft__window_finish(struct window_lane *wl);                     /* calls completions */
void weft__window_retry(struct window_lane *wl);                      /* the owner's pending queue */
void weft__window_purge(struct window_lane *wl);

/* window_receive.c */
void weft__window_on_frame(struct lane *raw, const void *data, size_t len);
void weft__window_ignore(struct window_lane *wl, const struct window_frame *f);
void weft__window_prove(struct window_lane *wl, const struct window_frame *f);
void weft__window_take(struct window_lane *wl, const struct window_frame *f);
void weft__window_deliver(struct window_lane *wl, const struct window_frame *f);
void weft__window_discard(struct window_lane *wl, const struct window_frame *f);
weft_status_t weft__window_pause(struct lane *lane, bool on);
void weft__window_go_on(struct window_lane *wl);   /* with what was put off, unless it is paused */
void weft__window_unpause(struct window_lane *wl); /* without it, which comes again */
void weft__window_release_held(struct window_lane *wl);

/* window_iface.c: memory for both ways */
struct window_message *weft__window_message_new(struct window_iface *iface, size_t len);
void weft__window_message_free(struct window_iface *iface, struct window_message *m);

static inline struct window_iface *window_iface(const struct window_lane *wl) {
    return (struct window_iface *)wl->lane.iface;
}
static inline struct reactor *window_reactor(const struct window_lane *wl) {
    return wl->lane.iface->reactor;
}
static inline uint64_t window_bit(uint32_t seq) {
    return UINT64_C(1) << seq % WINDOW_FRAMES;
}

#endif
