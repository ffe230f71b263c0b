/*
 * The internals of the tcp transport, shared by its files. A lane is one connection. tcp_conn.fsm
 * is its machine. For each state the port (lane.c) installs the ops and the `ready` and handler
 * pointers that process data.
 */
#ifndef WEFT_TRANSPORTS_TCP_TCP_H
#define WEFT_TRANSPORTS_TCP_TCP_H

#include "key.h"
#include "name.h"
#include "tcp_conn.h"
#include "wire.h"

#include <base/compiler.h>
#include <base/counters.h>
#include <netinet/in.h>
#include <reactor/slab.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include <transports/pending.h>
#include <transports/registry.h>
#include <transports/transport.h>

enum {
    TCP_MAX_HANDSHAKE = 1024, /* connections that have not proved themselves, by interface */
    TCP_MAX_IOV = 16,
    TCP_SEGMENTS = 64,          /* pieces of one write */
    TCP_SMALL_BUF = 512,        /* bytes of a small batch */
    TCP_SMALL_BUF_SEGMENTS = 8, /* … and its pieces */
    TCP_COPY_BELOW = 1024,      /* borrowing smaller payloads costs more than copying them */
    /* gathered for one write: the kernel takes 128 KiB 1.4 times as fast as 64 */
    TCP_IOV_BATCH_BUFFERS = 2,
    TCP_WRITE_AT = 32 * 1024,   /* so many queued bytes are written by themselves */
    TCP_WRITE_MOST = 1 << 20,   /* … while more may follow, and all is written soon anyway */
    TCP_WRITE_RUNS = 256 << 10, /* … of runs, which are gathered without a copy */
    TCP_HOT = 4,                /* sockets read without asking epoll */
    TCP_QUIET = 512,            /* reads that found nothing, until a socket is no longer hot */
    TCP_SLACKEN = 64,           /* … until it is read half as often */
    TCP_YIELD = 64,             /* … until it gives its place to another */
    /* read behind what lands: the head of the next, or small messages */
    TCP_PLACE_BEHIND = 4 * 1024,
    /* turns in which a socket that was read empty is not polled again */
    TCP_PASSES = 3,
    TCP_PASS_TICKS = 32768,    /* … unless the program took so long between them */
    TCP_ACCEPT_PAUSE_MS = 100, /* out of file descriptors */
    /* between two steps of a handshake, after which the other side may have given up */
    TCP_LATE_MS = 50
};

/* ---- pool.c: buffers; a lane has one only while it holds data ------------------------------ */

/* A small buffer is a small batch: a turn may have one for each of many lanes. */
enum tcp_buffer_class {
    TCP_BUF_READ,
    TCP_BUF_BIG,
    TCP_BUF_SMALL_BUF,
    TCP_BUF_IOV_BATCH,
    TCP_N_BUF_CLASSES
};

struct tcp_buffer {
    struct tcp_buffer *next;
    size_t size; /* of `bytes` */
    enum tcp_buffer_class class;
    bool put;        /* no lane has it, but retained messages are in it: */
    uint32_t n_kept; /* so many */
    struct lane_keep keep;
    struct tcp_pool *pool;
    _Alignas(16) uint8_t bytes[];
};

struct tcp_pool {
    size_t size[TCP_N_BUF_CLASSES];
    struct tcp_buffer *idle[TCP_N_BUF_CLASSES];
    unsigned n_idle[TCP_N_BUF_CLASSES];
};

void weft__tcp_pool_init(struct tcp_pool *pool, size_t buffer);
struct tcp_buffer *weft__tcp_pool_make(struct tcp_pool *pool, const void *parent,
                                       enum tcp_buffer_class class);
static inline struct tcp_buffer *tcp_pool_take(struct tcp_pool *pool, const void *parent,
                                               enum tcp_buffer_class class) {
    struct tcp_buffer *b = pool->idle[class];
    if (!b) return weft__tcp_pool_make(pool, parent, class);
    pool->idle[class] = b->next;
    pool->n_idle[class]--;
    return b;
}
/* NULL is nothing; kept messages are waited for */
void weft__tcp_pool_put(struct tcp_pool *pool, struct tcp_buffer *buffer);

/* ---- a lane ---------------------------------------------------------------------------------- */

/* What one write gathers: pieces of the batch's own bytes and of memory borrowed from users, in
 * order. */
struct tcp_iov_batch {
    uint8_t *bytes;           /* behind the rest; pool.c lays it out */
    struct completion **done; /* steps when that piece has been written; usually NULL */
    uint32_t pieces;          /* of iov, and of done */
    uint32_t room;            /* bytes for messages; a goodbye always finds more */
    struct lane_run *run;     /* the last piece, whose length is not set yet; or NULL */
    struct iovec iov[];
};

struct tcp_output {
    struct tcp_iov_batch *iov_batch; /* in a buffer of the pool's; NULL: nothing is queued */
    struct iovec *open;              /* the last piece, while bytes may be added to it */
    size_t queued;                   /* bytes in [first, end) */
    uint32_t fill;                   /* of batch->bytes */
    uint8_t notified, first,
        /* pieces: [stepped, first) written, their completions not stepped; [first, end) waiting */
        end;
    bool blocked : 1; /* the socket takes no more until it says so */
    bool dirty : 1;   /* on the interface's list */
    bool begun : 1;   /* some has left since the last turn */
};

/* placement.c: a payload on its way to the memory that the owner named. The buffer is empty until
 * that ends. */
struct tcp_placement {
    struct iovec iov[PLACE_IOV + 1]; /* what is still to be filled; one is left for the buffer */
    unsigned at, end;
    size_t left;       /* bytes of the frame, its padding too */
    uint32_t id;       /* of the owner's; 0: its end was reported */
    weft_status_t why; /* not OK: it ended early, and what comes is thrown away */
};

struct tcp_input {
    struct tcp_buffer *buffer;
    struct tcp_placement *placement; /* NULL: none is under way */
    uint32_t begin, end;
    uint32_t missing; /* of the frame that has begun; 0: whole ones may be there, or none */
    uint32_t emptied; /* the turn of the last read that left nothing in the socket */
    uint16_t quiet;   /* reads in a row that found nothing */
    int8_t hot;       /* its place in iface->hot, or -1 */
    uint8_t class;    /* enum tcp_buffer_class, of the next buffer: big after a big frame */
    bool asked;       /* the owner wants that frame whole */
    /* the last frame was placed: the next may be, so only its head is read into the buffer */
    bool placed;
    bool reading; /* a handler may be at work in the buffer */
};

/* alive.c: of the peer's host, while bytes are outstanding. */
struct tcp_alive {
    /* ms, never 0: when a question was first seen unanswered; 0: the last look found none */
    uint32_t since;
    uint32_t segments; /* that had come from there at the last look */
};

/* Until it is open. */
struct tcp_hands {
    union tcp_sockaddr candidate[TCP_MAX_SOCKADDRS];
    size_t n_candidates, at;
    /* where the first try leaves this host; family 0: wherever the kernel says */
    union tcp_sockaddr from;
    uint64_t target; /* the worker that is addressed; 0: any listener */
    int given;       /* a connected socket takes the place of dialing; -1: taken; 0: none */
    uint8_t hello[TCP_HELLO_SIZE], challenge[TCP_CHALLENGE_SIZE]; /* as they were on the wire */
    /* ours, computed where it can still fail */
    uint8_t proof[TCP_PROOF];
    uint8_t in[TCP_HANDSHAKE_MAX];
    size_t in_len;
    uint64_t begun;  /* a dialer's: when it dialed, then when it said HELLO */
    bool late;       /* it said HELLO so long after it dialed that the acceptor may have given up */
    bool sent_hello; /* the other end has, and it was sound */
};

/* What the lane's job has to do, in this order. Calls to the owner are made there, never inside
 * its own calls. */
enum tcp_todo {
    TODO_REDIAL = 1,
    TODO_READ = 2, /* frames are left in the buffer, or the socket's last words are to be read */
    TODO_BREAK = 4,
    TODO_WRITTEN = 8, /* completions to step, pending operations to retry */
    TODO_ACCEPTED = 16,
    TODO_UP = 32,
    TODO_DOWN = 64,
    TODO_CLOSED = 128,
    TODO_PLACED = 256 /* the placement under way has ended early, if it is still the one that did */
};

struct tcp_iface;

/* There may be thousands: the fields are ordered so that none leaves a gap. */
struct tcp_lane {
    struct lane lane;
    struct tcp_conn conn;
    struct tcp_output out;
    struct tcp_input in;
    struct watch watch; /* its fd is the connection; what it calls says what is done with it */
    struct job job;
    struct timer deadline; /* while it is open: the next look at its peer's host */
    struct pending_queue pending;
    struct tcp_hands *hands;
    struct tl_listener *listener; /* that it came through, until the owner was notified */
    TAILQ_ENTRY(tcp_lane) of_iface;
    union tcp_sockaddr peer;
    struct tcp_alive alive;
    uint16_t todo;    /* enum tcp_todo */
    int8_t why;       /* a weft_status_t: the first reason to end */
    uint8_t error;    /* the errno that goes with `what`; 0: none */
    uint64_t peer_id; /* the worker of its handshake; 0: it is not open yet */
    /* what was being done when it failed, for the cause; NULL: not known */
    const char *what;
    STAILQ_ENTRY(tcp_lane) of_dirty; /* the last word: the slab's, once the lane is freed */
};

TAILQ_HEAD(tcp_lanes, tcp_lane);

static inline struct tcp_lane *tcp_lane(struct lane *lane) {
    return (struct tcp_lane *)lane;
}
static inline struct tcp_lane *tcp_lane_of_watch(struct watch *watch) {
    return container_of(watch, struct tcp_lane, watch);
}

struct tl_listener {
    struct tcp_iface *iface;
    void *arg;
    int fd;
    struct watch watch;
    struct timer pause;
    union tcp_sockaddr at;
    char uri[TCP_NAME_ROOM + 8];
    bool adopted; /* the socket is the program's, too: it goes on listening */
    LIST_ENTRY(tl_listener) of_iface;
};

struct tcp_iface {
    struct iface iface;
    struct poller poller;
    struct tcp_lane *hot[TCP_HOT];
    unsigned n_hot;
    uint64_t read_at[TCP_HOT]; /* that one was read last, by weft__ticks */
    struct job flush_job;
    STAILQ_HEAD(, tcp_lane) dirty; /* with bytes to write */
    unsigned n_dirty;
    struct tcp_pool pool;
    struct slab lane_slab;
    struct tcp_placement *spare_placement; /* NULL, or one kept for the next */
    uint64_t host_id;
    struct trust_key key;
    bool have_key;
    /* ns without an answer, until a peer's host is dead; 0: the kernel decides */
    uint64_t dead_after;
    char wrong_key[TRUST_FROM + 96]; /* what is said of a peer that has another */
    struct tcp_lanes lanes;          /* that the owner knows */
    struct tcp_lanes handshake;      /* accepted and not yet handed over, oldest first */
    unsigned n_handshake;
    uint32_t next_id;
    LIST_HEAD(, tl_listener) listeners;
    struct tl_listener *own[TCP_MAX_PLACES]; /* of the worker's address */
    unsigned n_own;
    int reserve_fd; /* given up to refuse a connection when there is no other */
};

static inline struct tcp_buffer *tcp_buffer_of(const struct tcp_iov_batch *iov_batch) {
    return container_of(iov_batch, struct tcp_buffer, bytes);
}
static inline struct tcp_iface *tcp_iface_of(const struct tcp_lane *lane) {
    return (struct tcp_iface *)lane->lane.iface;
}
static inline struct reactor *tcp_reactor(const struct tcp_lane *lane) {
    return lane->lane.iface->reactor;
}
static inline struct counters *tcp_count(const struct tcp_lane *lane) {
    return weft__count(tcp_reactor(lane));
}
weft_context_t *weft__tcp_context(const struct tcp_lane *lane);

/* lane.c: life, the machine's port, calls to the owner */
weft_status_t weft__tcp_lane_new(struct tcp_iface *iface, bool acceptor, struct tcp_lane **lane_p);
void weft__tcp_lane_todo(struct tcp_lane *lane, unsigned what);
void weft__tcp_lane_why(struct tcp_lane *lane, weft_status_t why); /* kept if it is the first */
/* For the cause that the owner is given: what failed, and the errno of it, or 0. Kept if it is
 * the first. */
void weft__tcp_lane_note(struct tcp_lane *lane, const char *what, int error);
/* logs, and steps BAD */
void weft__tcp_lane_bad(struct tcp_lane *lane, weft_status_t why, const char *what);
weft_status_t weft__tcp_lane_watch(struct tcp_lane *lane, int events);
void weft__tcp_lane_abandon(struct tcp_lane *lane); /* before the owner knew of it; frees */

/* address.c: of iface_ops */
weft_status_t weft__tcp_own_address(struct iface *iface, void *buf, size_t *len_p);
weft_status_t weft__tcp_reachable(struct iface *iface, const void *bytes, size_t len,
                                  const char **why_p);
weft_status_t weft__tcp_connect_address(struct iface *iface, const void *bytes, size_t len,
                                        struct lane **lane_p);
weft_status_t weft__tcp_connect_nth(struct iface *iface, const void *bytes, size_t len,
                                    unsigned nth, struct lane **lane_p);

/* dial.c */
/* A lane to the first of `n` that answers; the first try from `from`, where that can be (NULL:
 * from anywhere). */
weft_status_t weft__tcp_connect(struct tcp_iface *iface, const union tcp_sockaddr *to, size_t n,
                                const union tcp_sockaddr *from, uint64_t target,
                                struct lane **lane_p);
/* A lane over a duplicate of a TCP socket that is connected already, to a listener. */
weft_status_t weft__tcp_connect_by(struct tcp_iface *iface, int given, struct lane **lane_p);
void weft__tcp_dial(struct tcp_lane *lane);
void weft__tcp_dial_failed(struct tcp_lane *lane);
/* A duplicate that does not block, 1 or more. */
weft_status_t weft__tcp_socket_dup(int given, int *fd_p);
/* A duplicate of a connected TCP socket of the program, and its peer. INVALID_PARAM: another
 * descriptor. */
weft_status_t weft__tcp_socket_given(int given, int *fd_p, union tcp_sockaddr *peer);
/* closed by weft__tcp_socket_close, and by a fork's child */
weft_status_t weft__tcp_socket(int family, int *fd_p);
void weft__tcp_socket_close(int fd); /* of -1 nothing */
void weft__tcp_socket_tune(int fd, weft_context_t *context);
/* before it connects, or listens */
void weft__tcp_socket_tune_local(int fd, weft_context_t *context);

/* handshake.c: the handshake; the machine says when */
void weft__tcp_handshake_ready(struct watch *watch, int events);
void weft__tcp_send_hello(struct tcp_lane *lane);
void weft__tcp_send_challenge(struct tcp_lane *lane);
void weft__tcp_send_proof(struct tcp_lane *lane);
void weft__tcp_send_refusal(int fd, weft_status_t why);

/* output.c */
extern const struct lane_ops weft__tcp_ops_early, weft__tcp_ops_open, weft__tcp_ops_ended;
void weft__tcp_output_goodbye(struct tcp_lane *lane);
void weft__tcp_output_part(struct tcp_lane *lane); /* a goodbye, if it can be said at once */
void weft__tcp_output_turn(
    struct tcp_lane *lane); /* writes, reports, retries: within a turn only */
/* all completions; the output is empty then */
void weft__tcp_output_notify(struct tcp_lane *lane, weft_status_t unwritten);
void weft__tcp_output_answer(struct tcp_lane *lane); /* what was said while the lane was read */
void weft__tcp_output_retry(struct tcp_lane *lane);
void weft__tcp_output_unblock(struct tcp_lane *lane); /* the socket may take more */
void weft__tcp_output_clean(struct tcp_lane *lane);   /* not dirty */
int weft__tcp_flush_dirty(struct tcp_iface *iface);
/* reclaim.c */
void weft__tcp_reclaim(struct lane *lane, const struct completion *completion);
/* lane.c, for the tables of output.c */
void weft__tcp_lane_close(struct lane *lane, bool flush);
uint64_t weft__tcp_lane_peer_id(const struct lane *l);
void weft__tcp_lane_describe(struct lane *lane, char *buf, size_t size);

/* input.c */
void weft__tcp_input_open(struct tcp_lane *lane);
void weft__tcp_input_ready(struct watch *watch, int events);
int weft__tcp_input_read(struct tcp_lane *lane, unsigned budget);
void weft__tcp_input_recv(struct lane *lane, const lane_am_fn *handlers);
weft_status_t weft__tcp_input_pause(struct lane *lane, bool on);
struct lane_keep *weft__tcp_input_keep(struct lane *lane, const void *data, size_t len);
void weft__tcp_input_discard(struct tcp_lane *lane);   /* from now on frames are thrown away */
void weft__tcp_input_drop(struct tcp_lane *lane);      /* and those in the buffer too */
void weft__tcp_input_give_back(struct tcp_lane *lane); /* the buffer, if nothing is left in it */
void weft__tcp_hot_enter(struct tcp_lane *lane);       /* if there is a place */
void weft__tcp_hot_leave(struct tcp_lane *lane);
int weft__tcp_poll(struct poller *poller, unsigned budget);

/* placement.c */
bool weft__tcp_place(struct tcp_lane *lane, const struct tcp_frame *f, const uint8_t *payload,
                     size_t have);
/* as recv; what follows the frame is in the buffer then */
ssize_t weft__tcp_place_read(struct tcp_lane *lane);
bool weft__tcp_place_done(
    struct tcp_lane *lane); /* all of it is there: reports its end, unless that was done before */
/* The placement under way ends early, and what it brings from now on is thrown away. The lane's
 * job reports it. */
void weft__tcp_place_end(struct tcp_lane *lane, weft_status_t why);
void weft__tcp_place_report(
    struct tcp_lane
        *lane); /* the placement under way, if it has ended early and was not reported */
void weft__tcp_place_forget(struct tcp_lane *lane); /* reported, and no byte of it comes any more */
void weft__tcp_place_stop(struct lane *lane, uint32_t id);

/* alive.c */
void weft__tcp_alive_tune(int fd, weft_context_t *context);
void weft__tcp_alive_open(struct tcp_lane *lane);
void weft__tcp_alive_watch(
    struct tcp_lane *lane); /* bytes were written: its timer runs until they are acknowledged */

/* listener.c */
/* A duplicate of a connected socket, let in as if the listener had accepted it. */
weft_status_t weft__tcp_let_in(struct tl_listener *l, int given);
/* On a duplicate of a socket that listens already. */
weft_status_t weft__tcp_adopt(struct tcp_iface *iface, int given, void *arg,
                              struct tl_listener **listener_p);
weft_status_t weft__tcp_listen(struct tcp_iface *iface, const struct tcp_where *where,
                               const struct listen_how *how, void *arg,
                               struct tl_listener **listener_p);
void weft__tcp_listener_close(struct tl_listener *listener);

/* cost.c */
bool weft__tcp_measure(struct iface_cost *cost_p);

/* iface.c */
weft_status_t weft__tcp_iface_key(struct tcp_iface *iface); /* reads it when it is first needed */

#endif
