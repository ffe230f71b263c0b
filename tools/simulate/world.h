/*
 * One run: workers of the real library over the simulated network, in virtual time, the traffic
 * between them, and a ledger of all that was asked and all that came of it. The files of this
 * folder share it.
 */
#ifndef WEFT_TOOLS_SIMULATE_WORLD_H
#define WEFT_TOOLS_SIMULATE_WORLD_H

#include <endpoints/core/worker.h>
#include <reactor/virtual.h>
#include <stdbool.h>
#include <transports/sim/sim.h>
#include <weft/weft.h>

#include "draw.h"
#include "plan.h"

struct world;
struct half;

/* ---- the ledger: every operation that was posted --------------------------------------------- */

enum asked_kind {
    ASKED_AM,
    ASKED_AM_TAKEN,
    ASKED_TAG,
    ASKED_TAKE,
    ASKED_STREAM,
    ASKED_STREAM_TAKE,
    ASKED_PUT,
    ASKED_GET,
    ASKED_ADD,
    ASKED_FETCH,
    ASKED_FLUSH,
    ASKED_CLOSE,
    ASKED_PLACE
};

struct asked {
    struct world *world;
    struct half *half; /* NULL: of a worker */
    enum asked_kind kind;
    uint32_t n, n_done; /* which of its kind; how often it was reported (once) */
    weft_status_t status;
    bool waits; /* its end comes without anybody's help */
    /* posted: it was accepted; from_peer: the other side may withdraw it. */
    bool cancelled, posted, from_peer;
    uint32_t deadline_ms; /* 0: none */
    weft_request_t *request;
    uint8_t *buf;
    uint32_t len;
    uint64_t at, mark;
    weft_tag_info_t tag;
    size_t got;
    uint64_t old;
    void (*then)(struct asked *asked); /* what the kind does with its end */
    struct target *target;             /* LAND: where it goes (placed_puts.c) */
    struct asked *next_of_half, *next_pending, **pending_link;
    struct asked *next_take; /* of the stream, in the order posted */
    uint32_t block, stride;  /* of its memory; 0: it is in one piece */
    bool keeps;              /* its bytes are looked at later than its end */
    struct node *exposed;    /* whose exposed memory `buf` is in; NULL: no one's */
};

struct asked *ask(struct world *w, struct half *half, enum asked_kind kind, uint32_t len);
/* The descriptor that names it; some have a deadline. */
weft_op_t ask_op(struct asked *asked);
/* May it end before it is done, because that was asked for? */
static inline bool may_end_early(const struct asked *asked) {
    return asked->cancelled || asked->deadline_ms;
}
/*
 * What the call answered: an end at once, an end to come, or a refusal, which only what is lost may
 * give.
 */
void ask_answered(struct asked *asked, weft_status_t status);

/* ---- the two sides of a connection ----------------------------------------------------------- */

/* A message that was sent. */
struct message {
    struct asked *asked;
    uint32_t len;
    bool announced, delivered; /* its handler ran; it is complete, or its receive was withdrawn */
};
struct messages {
    struct message *list;
    uint32_t n, room;
    uint32_t last; /* 1 + the number of the last that arrived */
};

enum half_state { HALF_NONE, HALF_OPEN, HALF_LOST, HALF_CLOSING, HALF_CLOSED };

struct half {
    struct connection *connection;
    struct half *other;
    struct node *node; /* where it is */
    weft_ep_t *ep;
    enum half_state state;
    uint64_t close_ns; /* that its close took */
    bool ready, closed_first, finishing, flushed_last;
    weft_status_t error;
    struct messages am, tag;
    uint64_t stream_sent, stream_posted, stream_got; /* bytes; posted: in receives */
    bool stream_unsure;                              /* a send of it ended early */
    struct asked *stream_first, **stream_last;       /* receives whose bytes were not looked at */
    bool listens;                                    /* to the stream's bytes */
    const void *in_flight[4];                        /* of the stream's, given back later */
    uint32_t n_flushed;                              /* messages that a remote flush reported */
    uint32_t n_asked;                                /* operations of any kind */
    uint32_t n_in_flight, n_takes, n_takes_lost;
    /* lost: those that ended without a message */ /* receives of tagged messages */
    const void *seen_link;                         /* and its epochs, out and in */
    uint32_t seen_epoch[2];
    weft_rkey_t *rkey;
    uint32_t slot;   /* where its puts go, in the other's region */
    uint32_t n_puts; /* the last that was posted */
    uint32_t puts_left;
    bool put_pending, put_unsure;
    uint8_t put_image[512]; /* what its slot holds, if all reported puts were performed */
    struct asked *asked;    /* all of it, the newest first */
};

/* From a dial to its end; the pair may be dialed again. */
struct connection {
    struct world *world;
    uint32_t serial, pair;
    struct half half[2];
};

/* What shall happen to the payload that lands next at a worker (strikes.c). */
struct strike {
    uint32_t what; /* of the plan's bits; 0: nothing */
    uint64_t byte; /* of the payload, as far as there are that many */
    /* that was chosen: a placement, or the copy that has this completion; 0 and NULL: none yet */
    uint32_t placement;
    const struct completion *copy;
    size_t begin, due; /* its first byte that moves; the byte that is struck */
};

/* A worker, for as long as it lives. */
struct node {
    struct world *world;
    uint32_t index;
    weft_worker_t *worker; /* NULL: it is gone */
    struct reactor *reactor;
    unsigned number[2]; /* in the networks */
    bool crashed, closing;
    uint8_t *region;
    uint32_t region_len, n_slots;
    weft_mem_t *mem;
    uint8_t key[WEFT_RKEY_MAX];
    size_t key_len;
    uint64_t added_surely, added_maybe, fetched_surely, fetched_maybe;
    uint8_t *fetched; /* which old values were seen */
    uint32_t fetched_room;
    struct strike strike;
    struct exposed *exposed; /* exposed.c; NULL: it exposes nothing */
    struct node *next;       /* all there ever were */
};

struct pair {
    uint32_t from, to, n_dials;
    struct connection *now;
};

struct world {
    const struct plan *plan;
    FILE *trace;
    weft_context_t *context;
    struct reactor_clock *clock;
    struct sim_fabric *fabric[2];
    struct node *node[PLAN_WORKERS], *nodes;
    struct pair *pair;
    uint32_t n_pairs;
    struct connection **connection;
    uint32_t n_connections, connection_room;
    struct asked *pending;
    uint64_t n_asked, n_pending, n_waiting; /* waiting: for nothing that the program does */
    uint32_t n_met;
    struct node *to_go;
    uint64_t begun, hash;
    bool harmed;  /* something happened that endpoints may be lost by */
    bool healing; /* nothing is lost any more */
    bool closing;
    bool starved;      /* an allocation failed */
    bool plan_cancels; /* operations, or gives them deadlines */
    uint64_t promoted, demoted, switches, reads, written;
    uint64_t n_struck;
    uint32_t n_cut[PLAN_WORKERS][PLAN_WORKERS];
    char failed[512]; /* the first that was wrong; "" */
};

struct verdict {
    bool failed;
    char what[512];
    uint64_t hash, events, virtual_ns, asked;
    uint64_t promoted, demoted, switches; /* of lanes, by those who live at the end */
    uint64_t struck;                      /* payloads */
    /* payloads read in place, and bytes that senders wrote in place; by the same */
    uint64_t reads, written;
};

/*
 * Runs it; `trace` gets every event as a line (NULL: no trace). After a failure what is left of the
 * world is left.
 */
void world_run(const struct plan *plan, struct verdict *verdict, FILE *trace);

__attribute__((format(printf, 2, 3))) void world_fail(struct world *w, const char *format, ...);
__attribute__((format(printf, 2, 3))) void world_trace(struct world *w, const char *format, ...);
void world_note(struct world *w, uint64_t value); /* into the hash */
static inline uint64_t world_now(const struct world *w) {
    return weft__clock_now(w->clock) - w->begun;
}

/* arena.c: memory at the same address in every run, so that addresses on the wire are the same. */
void arena_begin(void);
void *arena_alloc(size_t len);   /* zeroed; gone with the next begin */
uint8_t *arena_take(size_t len); /* for an operation */
/*
 * A late reader of the first `sent` bytes sees them change; a late writer writes into
 * what others use.
 */
void arena_give(uint8_t *buf, size_t len, size_t sent);
enum { PATTERN = 1 << 20 };
extern uint8_t arena_pattern[2 * PATTERN];
/* The bytes of message n of a kind from a half: an independent stream for each. */
const uint8_t *pattern_of(const struct half *from, enum asked_kind kind, uint64_t n);

/* nodes.c */
void node_begin(struct world *w, uint32_t index);
void node_crash(struct node *node);
void node_close(struct node *node);
void node_check(struct node *node); /* its region, at the end */
enum { SLOT = 512, GUARD = 64, STATIC = 1024 };
/* Addresses in its region. */
uint64_t node_slot(const struct node *node, uint32_t slot);
uint64_t node_static(const struct node *node);
uint64_t node_counter(const struct node *node, uint32_t which);

/* halves.c */
void connections_add(struct world *w, struct connection *c);
void pair_dial(struct world *w, uint32_t pair);
void half_close(struct half *half, weft_close_mode_t mode);
void half_lost(struct half *half, weft_status_t status);
struct half *half_of(struct world *w, uint32_t pair, uint32_t side); /* NULL: it cannot post now */
bool half_may_fail(const struct half *half);
bool half_lives(const struct half *half);

/* messages.c, stream.c, onesided.c */
void post_am(struct half *half, uint32_t item, uint32_t i, uint64_t class);
void post_tag(struct half *half, uint32_t item, uint32_t i, uint64_t class);
void post_take(struct half *half);
void post_stream(struct half *half, uint32_t item, uint32_t i, uint64_t class);
void stream_listen(struct half *half);
void stream_take_rest(struct half *half);
void stream_give_back(struct half *half);
void post_put(struct half *half, uint32_t n);
void post_get(struct half *half, uint32_t item, uint32_t i);
void post_add(struct half *half);
void post_fetch(struct half *half);
void post_flush(struct half *half, bool last);
void on_message(weft_ep_t *ep, weft_am_t *am, void *arg);
void on_who(weft_ep_t *ep, weft_am_t *am, void *arg);
void send_who(struct half *half);
enum { AM_WHO = 1, AM_DATA = 2 };
uint32_t size_of(const struct world *w, uint32_t item, uint32_t i, uint64_t class);
void message_add(struct messages *all, struct asked *asked, uint32_t len);

/* faults.c */
void faults_cut_again(struct world *w);
void fault_apply(struct world *w, const struct plan_item *item);
void faults_heal(struct world *w);

/* placed_puts.c */
void post_placement_put(struct half *half, uint32_t item, uint32_t i);
void target_revoke(struct world *w, weft_mem_t *mem);

/* exposed.c */
void exposed_begin(struct node *node);
/* Memory for an operation of its, or NULL. */
uint8_t *exposed_take(struct node *node, size_t len);
void exposed_give(struct node *node, uint8_t *buf, size_t len, size_t sent);
void exposed_revoke(struct node *node);

/* strikes.c */
void strike_begin(struct world *w, const struct plan_item *item);
void strikes_watch(struct world *w); /* its networks */

/* world.c */
void world_later(struct world *w, uint64_t ns, void (*fn)(struct world *w, uint64_t a, uint64_t b),
                 uint64_t a, uint64_t b);
void world_later_all(struct world *w);

/* check.c */
bool connection_is_quiet(const struct connection *c); /* all is delivered */
void check_message_missing(struct world *w, const struct half *half);
void check_end(struct world *w); /* nothing is left */

/* agree.c */
void agree_watch(struct world *w); /* what holds at any time */
bool agree_all(struct world *w);   /* each pair is at rest, on one lane and in one epoch */
void agree_or_fail(struct world *w);

/* Idle links hold no scarce lane. */
void agree_idle(struct world *w);
uint64_t agree_count(const struct world *w, const char *counter); /* of all workers */

#endif
