/* The state of a lane with a window, shared by window_*.c. */
#ifndef WEFT_TRANSPORTS_RELIABLE_WINDOW_LOCAL_H
#define WEFT_TRANSPORTS_RELIABLE_WINDOW_LOCAL_H

#include <base/counters.h>
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
    WINDOW_RAW_ID = 0,    /* the message id of frames on the raw lane */
    WINDOW_KEEP_STEPS = 4 /* steps that the keep-alive time is rounded to */
};
#define WINDOW_NEVER UINT64_MAX

/* An unacknowledged message. */
struct window_message {
    struct window_message *next;
    struct completion *completion;
    uint32_t first, n_frames; /* the numbers of its frames; n_frames 0: a flush */
    size_t total;             /* bytes in data and iov */
    uint32_t len;             /* of data */
    uint16_t n_iov;
    uint8_t kind, id;
    bool big;
    weft_iov_t iov[WINDOW_IOV];
    uint8_t data[];
};

/* A frame that arrived early. */
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
    struct window_lane *next, **link; /* the list of the interface */
    void *listen_arg;
    weft_status_t why; /* the status with which it went down */
    uint32_t due;      /* effects to carry out after the step */
    char *cause;       /* of `why`, as text; NULL: the status says all */
    struct job job;
    bool paused;   /* by the owner */
    bool holding;  /* paused, or deferred frames are still there */
    bool violated; /* the current step found a protocol violation */

    /* Set by state: handles a numbered frame; handles a frame in order. */
    void (*take)(struct window_lane *wl, const struct window_frame *f);
    void (*deliver)(struct window_lane *wl, const struct window_frame *f);

    /* sending */
    struct window_message *first, **last; /* unacknowledged, in order */
    struct window_message *sending;       /* owns frame win.next */
    struct window_message *fin;
    size_t bytes;     /* retained */
    uint64_t to_send; /* bit seq % 64: the frame is to be sent or sent again */
    uint64_t again;   /* bit seq % 64: the frame was sent more than once */
    uint64_t sent_at[WINDOW_FRAMES];
    uint32_t words; /* bit kind: unnumbered frames to be sent */
    struct pending raw_pending;
    bool blocked; /* raw_pending is queued */
    struct pending_queue pending;
    struct window_message *finished, **finished_last;

    /* receiving */
    struct window_held *held[WINDOW_FRAMES]; /* a deferred frame has the slot of the next one */
    uint8_t *whole;                          /* the message that is being reassembled */
    size_t whole_len;
    uint16_t whole_more; /* missing fragments */
    uint8_t whole_id;
    uint32_t unacked; /* frames received since the last acknowledgement */
    bool received;    /* something arrived since keep_at was set */
    bool watched;     /* the owner detects the death of the peer by other means */

    /* One timer, at the earliest of these times. It is always in the heap, so starting it cannot
     * fail. */
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
    size_t fragment;     /* payload bytes of a frame */
    size_t whole;        /* bytes of the largest message, plus a fragment */
    size_t limit;        /* most bytes that a lane retains */
    uint64_t give_up;    /* ns without an answer before a lane ends */
    uint64_t keep_alive; /* ns of silence before a probe; 0: none */
    uint32_t n_lanes;
};

/* window_lane.c: the machine, timers, and notifications */
extern const struct fsm_port weft__window_port;
struct window_lane *weft__window_lane_new(struct window_iface *iface, struct lane *raw);
void weft__window_lane_free(struct window_lane *wl);
void weft__window_step(struct window_lane *wl, enum conn_event event);
/* Before the event that brings it down: the status, and why in the words of the owner's causes; "":
 * the status says all. Without memory the words are lost. */
enum { WINDOW_CAUSE = 192 };
void weft__window_why(struct window_lane *wl, weft_status_t why, const char *cause);
void weft__window_settle(struct window_lane *wl); /* call it within a turn; it may call the owner */
void weft__window_expect(struct window_lane *wl, uint64_t at);
void weft__window_close(struct lane *lane, bool flush);
void weft__window_watched(struct lane *lane);

/* window_send.c */
extern const struct lane_ops weft__window_ops_idle, weft__window_ops_up, weft__window_ops_down,
    weft__window_ops_closed;
void weft__window_pump(struct window_lane *wl);
weft_status_t weft__window_pump_retry(struct pending *pending);
void weft__window_queue_fin(struct window_lane *wl);
/* frees acknowledged messages */
void weft__window_release(struct window_lane *wl);
void weft__window_drop(struct window_lane *wl, weft_status_t status); /* frees all messages */
void weft__window_finish(struct window_lane *wl);                     /* calls completions */
/* runs the pending queue of the owner */
void weft__window_retry(struct window_lane *wl);
void weft__window_purge(struct window_lane *wl);

/* window_receive.c */
void weft__window_on_frame(struct lane *raw, unsigned id, const void *data, size_t len);
void weft__window_ignore(struct window_lane *wl, const struct window_frame *f);
void weft__window_prove(struct window_lane *wl, const struct window_frame *f);
void weft__window_take(struct window_lane *wl, const struct window_frame *f);
void weft__window_deliver(struct window_lane *wl, const struct window_frame *f);
void weft__window_discard(struct window_lane *wl, const struct window_frame *f);
weft_status_t weft__window_pause(struct lane *lane, bool on);
void weft__window_go_on(struct window_lane *wl); /* handles deferred frames, unless paused */
/* drops deferred frames; the peer sends them again */
void weft__window_unpause(struct window_lane *wl);
void weft__window_release_held(struct window_lane *wl);

/* window_iface.c: memory for both directions */
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
