/*
 * One run of a random program: a few workers of one process, what they have of each other, and a
 * ledger of all that was asked and of all that has to come of it. The files of this folder share
 * it.
 */
#ifndef WEFT_TESTS_RANDOM_WORLD_H
#define WEFT_TESTS_RANDOM_WORLD_H

#include <pthread.h>
#include <stdio.h>
#include <weft/weft.h>

#include "chance.h"
#include "shape.h"
#include <tests/support/clock.h>

enum {
    NODES = 3,
    ENDS = 96,
    FIELDS = 24,
    GRIPS = 48,
    CIRCLES = 3,
    TURNS = 24,
    MESSAGES = 6000,
    IN_FLIGHT = 6,
    LIMITS = 64,
    THREADS = 2 + NODES
};

/* What a program may do besides what is safe: each takes away something that can be relied upon. */
enum may {
    MAY_CANCEL = 1,      /* operations, or give them deadlines */
    MAY_CLOSE = 2,       /* endpoints, listeners and workers, with all that is under way */
    MAY_KILL = 4,        /* sockets die */
    MAY_REVOKE = 8,      /* keys, and release regions, with all that is under way */
    MAY_REFUSE = 16,     /* what a type of its own is to pack or to unpack */
    MAY_ERR = 32,        /* calls that must be refused */
    MAY_THREAD = 64,     /* workers with a thread of their own, and a thread that owns none */
    MAY_ASSOCIATE = 128, /* libraries work by the workers, and end; not with MAY_THREAD */
    MAY_ALL = 255
};

struct node;
struct end;
struct grip;

/* ---- the ledger ------------------------------------------------------------------------------ */

enum asked_kind {
    ASKED_AM,
    ASKED_AM_RECV,
    ASKED_TAG,
    ASKED_TAG_RECV,
    ASKED_STREAM,
    ASKED_STREAM_RECV,
    ASKED_PUT,
    ASKED_GET,
    ASKED_POST,
    ASKED_FETCH,
    ASKED_FLUSH,
    ASKED_CLOSE,
    ASKED_COLLECTIVE
};

/* A stretch of a peer's region that an operation reads or writes. */
struct stretch {
    size_t from, to;
};
enum { STRETCHES = 16 };

struct asked {
    struct asked *next; /* all of a run, the newest first */
    uint32_t n;         /* which */
    enum asked_kind kind;
    struct node *node;
    struct end *end; /* NULL: of the worker */
    weft_op_t op;
    const weft_op_t *op_p; /* &op, or NULL: no callback */
    weft_request_t *request;
    struct group *group; /* it is reported with others */
    weft_status_t status;
    int notified;
    bool posting, accepted, cancelled, wrong,
        keeps; /* wrong: the call breaks a rule; keeps: its memory, longer */
    pthread_t poster;
    bool dropped;                      /* the message is refused, and not received */
    void (*then)(struct asked *asked); /* what its kind does with its end */
    struct shape shape;
    uint32_t message; /* that it sends, or receives; MESSAGES: not known */
    /* receives */
    weft_tag_info_t info;
    uint64_t tag, mask, serial; /* serial: the order of posting */
    size_t got;
    struct asked *next_recv; /* of the stream */
    bool wait_all;
    /* one-sided */
    struct grip *grip;
    struct stretch stretch[STRETCHES];
    uint32_t n_stretches;
    bool writes, fenced, remote, performed;
    uint8_t *expected; /* what a get has to bring; NULL: not known */
    uint64_t old, old_expected;
    uint32_t word; /* of an atomic */
    /* of a team */
    struct member *member;
    struct turn *turn;
    uint8_t *in, *out;
};

/* Operations that share a weft_completion_t. */
struct group {
    weft_completion_t completion;
    struct asked *asked[8];
    uint32_t n;
    bool held; /* by the program, too */
    struct group *next;
};

struct asked *ask(enum asked_kind kind, struct node *node, struct end *end);
/* The descriptor; some have none, a deadline, or a completion that they share. `flags`: of them,
 * any. */
const weft_op_t *ask_op(struct asked *asked, uint32_t flags);
/* `call` is made without the lock: asked->status is what came of it so far. */
#define ASK(asked, call)                    \
    do {                                    \
        ask_begin(asked);                   \
        weft_status_t ask_status_ = (call); \
        ask_answered(asked, ask_status_);   \
    } while (0)
void ask_begin(struct asked *asked);
void ask_answered(struct asked *asked, weft_status_t status);
void ask_cancel(void); /* one of those under way */
static inline bool ask_is_over(const struct asked *a) {
    return a->notified || (!a->accepted && !a->posting);
}
/* No operation gave it a cause to end as anything but OK. */
bool ask_is_safe(const struct asked *a);
void groups_release(void);
void ledger_end(void); /* all was reported */

/* ---- what there is --------------------------------------------------------------------------- */

/* A message that was sent, active or tagged. Its number travels in its header, or in its tag. */
struct message {
    struct asked *sender;
    struct end *from;
    enum asked_kind kind;
    uint32_t len, header_len, class;
    bool no_reply, arrived, delivered, unsure; /* unsure: it may have been lost, rightly */
    /* its handler did not take the payload: its send is REJECTED */
    bool declined;
    uint64_t taken_by, mask; /* a tagged one: the receive's serial and mask */
};

enum end_state { END_NONE, END_OPEN, END_LOST, END_CLOSING, END_CLOSED };

/* One side of a connection. */
struct end {
    struct node *node, *to;
    struct end *other; /* NULL: not known yet */
    uint32_t n;
    weft_ep_t *ep;
    enum end_state state;
    bool dialed, ready, hurried;
    /* its lane's death: it is dialed again, and a listener is there */
    bool survives;
    const weft_listener_t *by; /* whose URI it was dialed by, while that listens */
    unsigned author;           /* the thread that posts on it */
    int using;                 /* calls under way */
    /* 1 + the number of the last that arrived from the other side */
    uint32_t last_am;
    uint64_t out, in; /* bytes of the stream, sent and received */
    bool unsure;      /* a send of it ended early */
    /* receives of the stream whose bytes were not looked at */
    struct asked *recv_first, *recv_last;
    const void *taken[4];
    uint32_t n_taken;
};

/* A region, and what it has to hold. */
struct field {
    struct node *node;
    weft_mem_t *mem;
    uint8_t *base;
    uint8_t *own;              /* registered memory: it is the program's */
    bool cached, gone, harmed; /* harmed: revoked once; gone: no longer there */
    uint32_t n_plots;
    uint8_t key[WEFT_RKEY_MAX];
    size_t key_len;
    uint64_t added_surely, added_maybe;
    uint8_t seen[1024]; /* old values of the common counter */
};

/* A key, and the plot of its region that no other touches. */
struct grip {
    struct field *field;
    struct end *end;
    weft_rkey_t *rkey;
    size_t at; /* of the plot, in the region */
    uint8_t *image;
    struct stretch torn[32]; /* unknown contents */
    uint32_t n_torn;
    bool lost; /* nothing of it is known */
    uint64_t sum, bits, word;
    uint32_t half_word;
    bool sum_torn, bits_torn, word_torn, half_torn, word_busy, half_busy;
};
enum { PLOT = 96 << 10, PLOT_WORDS = 64, PLOTS = 6, FIELD_HEAD = 64 };

/* What is asked of a team. */
enum turn_kind { TURN_BARRIER, TURN_BCAST, TURN_ALLREDUCE, TURN_ALLGATHER, TURN_KINDS };
struct turn {
    enum turn_kind kind;
    uint64_t name; /* of what is put in */
    size_t count;
    weft_datatype_t type;
    weft_reduction_t reduction;
    uint32_t flags, root, called; /* called: by whom, in bits */
};

/* One of a team, and the exchange that it waits for. */
struct member {
    struct circle *circle;
    struct node *node;
    weft_team_t *team;
    bool made, closing, gone, waits;
    /* IN_PROGRESS: not reported; failed: of the first collective that did */
    weft_status_t ready, failed;
    uint32_t next; /* turn */
    const void *mine;
    void *all, *done_arg;
    size_t len;
    weft_done_fn done;
};
struct circle {
    struct member member[NODES];
    uint32_t size, n_turns, per_core;
    struct turn turn[TURNS];
    bool cancelled, hurried, closed; /* hurried: something has a deadline */
};

enum drive { DRIVE_MAIN, DRIVE_THREAD, DRIVE_POLLED };

struct node {
    uint32_t n;
    weft_worker_t *worker;
    weft_thread_mode_t mode;
    enum drive drive;
    bool was_polled; /* messages may be held that came under another drive */
    unsigned owner;  /* a thread's number */
    bool closing, gone;
    uint8_t address[512];
    size_t address_len;
    weft_listener_t *listener;
    struct room in_flight[2];
    weft_mem_t *in_flight_mem[2];
    const void *kept[4];
    uint64_t kept_name[4];
    size_t kept_len[4];
    weft_tag_message_t *message;
    uint32_t message_n;
    uint64_t message_serial;
};

/* An operation of a library. */
struct deed {
    struct deed *next;
    struct library *library;
    uint32_t association; /* of which it is */
    bool accepted, notified, receives;
    weft_tag_info_t info;
    size_t len;
    uint8_t bytes[];
};
/* One that works by a node's worker. Those of one family have the same lease on all nodes. */
enum { FAMILIES = 2 };
enum library_state { LIBRARY_NONE, LIBRARY_READY, LIBRARY_ENDING };
struct library {
    struct node *node;
    uint32_t family, association; /* the number of the latest */
    enum library_state state;
    weft_worker_t *worker; /* NULL: not made yet */
    weft_resource_t *resource;
    weft_ep_t *ep[NODES];
    uint32_t to_association[NODES];
    int n_lost, returned;
};

struct world {
    uint64_t seed;
    unsigned may;
    const char *transports;
    weft_context_t *context;
    struct node node[NODES];
    struct end end[ENDS];
    uint32_t n_ends;
    struct field field[FIELDS];
    struct grip grip[GRIPS];
    struct circle circle[CIRCLES];
    bool has_teams;            /* then endpoints come that are none of the program's */
    weft_context_t *libraries; /* their context; NULL: there are none */
    struct library library[NODES][FAMILIES];
    struct deed *deed;
    struct message message[MESSAGES];
    uint32_t n_messages;
    struct asked *asked;
    uint32_t n_asked;
    struct group *group;
    uint64_t serial;
    size_t limit[LIMITS]; /* sizes at which something changes */
    uint32_t n_limits;
    bool killed, ending, settling;
    int waiting; /* callbacks of closes and the like to come */
    uint64_t n_done, n_checked;
};
extern struct world *world;
extern bool world_traces;

__attribute__((format(printf, 1, 2), noreturn)) void wrong(const char *format, ...);
__attribute__((format(printf, 1, 2))) void trace(const char *format, ...);
/* In a callback: the failure that it reports, with its causes. Valid until the next call. */
const char *failure(weft_status_t status);

/* Everything here is used under one lock. It may be taken again by who has it; calls that wait,
 * and those that hand over, are made without it, unless in a callback. */
void lock(void);
void unlock(void);
/* The calling thread: 0 is the program's, 1 the one that owns no worker, 2 + n that of node n. */
enum { MAIN, UNVERIFIED, OF_NODES };
extern _Thread_local unsigned here;
extern _Thread_local int depth; /* of callbacks that act */
bool owns(const struct node *node);
bool may_post(const struct node *node);
static inline bool may(enum may what) {
    return world->may & what && !world->settling;
}

/* A callback: what is drawn in it follows from what it is about. */
#define CALLED(about)                                                           \
    lock();                                                                     \
    uint64_t called_before = chance_of(world->seed, (about)), called_guard = 1; \
    (void)called_guard
#define RETURNS                   \
    chance_state = called_before; \
    unlock()

/* nodes.c */
void nodes_begin(void);
void node_close(struct node *node);
struct node *any_node(void);
struct room *room_of(struct node *node); /* of memory that it exposes; or NULL */
void limits_find(struct node *node);
size_t a_size(void);
void kill_a_socket(void);

/* ends.c */
void dial(void);
struct end *end_of(weft_ep_t *ep); /* NULL: it has no owner (any more) */
struct end *any_end(void);         /* that this thread may post on; or NULL */
bool end_is_safe(const struct end *end);
bool end_lives(const struct end *end);
void end_close(struct end *end, weft_close_mode_t mode, uint32_t deadline_ms);
void end_met(struct end *end, struct end *other); /* they are the two sides of one connection */
void on_endpoint(weft_ep_t *ep, void *arg);
void on_error(weft_ep_t *ep, weft_status_t status, void *arg);
void listen_or_not(void);

/* am.c, tags.c, streams.c, fields.c, onesided.c */
enum { IDS = 8 };
void am_begin(struct node *node);
void am_send(void);
void am_give_back(struct node *node, bool all);
void send_who(struct end *end);
struct message *message_new(struct end *from, enum asked_kind kind, uint32_t len,
                            struct asked *sender);
bool message_is_due(const struct message *m); /* it has to arrive, or has arrived */
void messages_end(void);
void tag_send(void);
void tag_recv(void);
void tag_chase(void);
void tag_take(void);
void tags_drain(struct node *node);
void tags_end(void);
void stream_send(void);
void stream_recv(void);
void stream_take(void);
void stream_listen(void);
void streams_drain(struct end *end);
bool stream_is_known(struct end *from); /* where each byte of it belongs */
void streams_end(void);
void field_act(void);
void fields_check(void); /* nothing is under way */
void fields_end(void);
void grip_act(void);
void grip_tear(struct grip *grip, struct stretch stretch);
bool grip_knows(const struct grip *grip, struct stretch stretch);
void grip_check(const struct grip *grip, struct stretch stretch); /* what is known of it is there */
void rma(void);
void rma_doubt(void);
void end_flush(struct end *end, bool remote);
void flush_or_fence(void);

/* teams.c */
void team_act(void);
void teams_exchange(void);
void teams_drain(void);
bool teams_rest(void);
void teams_gone(const struct node *node);
bool turn_may_end(const struct asked *asked, weft_status_t status);

/* libraries.c */
void libraries_begin(void);
void library_act(void);
void libraries_step(void); /* not in a callback */
bool libraries_rest(void);
void libraries_end(void);

/* waits.c, errs.c */
void wait_form(void);
void err(void);

/* actions.c */
void act(void);
void act_within(void); /* of a callback: perhaps */

/* world.c */
struct verdict {
    uint64_t asked, checked; /* operations, bytes */
};
void world_run(uint64_t seed, unsigned may, struct verdict *verdict);

#endif
