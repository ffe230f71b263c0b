/*
 * The inside of the tcp transport, shared by its files. A lane is one connection; its conversation is the machine of
 * tcp_conn.fsm, and what a state does with data is the ops, `ready` and `in.am` pointers that the port (lane.c) installs.
 */
#ifndef WEFT_TCP_H
#define WEFT_TCP_H

#include "key.h"
#include "name.h"
#include "tcp_conn.h"
#include "wire.h"

#include <netinet/in.h>
#include <reactor/counters.h>
#include <reactor/slab.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include <transports/pending.h>
#include <transports/registry.h>
#include <transports/transport.h>

enum {
    TCP_MAX_GREETING = 1024, /* connections that have not proved themselves, by interface */
    TCP_MAX_IOV = 16,
    TCP_SEGMENTS = 64,          /* pieces of one write */
    TCP_SLIP = 512,             /* bytes of a small sheet */
    TCP_SLIP_SEGMENTS = 8,      /* … and its pieces */
    TCP_COPY_BELOW = 1024,      /* borrowing smaller payloads costs more than copying them */
    TCP_SHEET_BUFFERS = 2,      /* gathered for one write: the kernel takes 128 KiB 1.4 times as fast as 64 */
    TCP_WRITE_AT = 32 * 1024,   /* queued bytes that are worth a write of their own */
    TCP_WRITE_MOST = 1 << 20,   /* … while more may follow, and all is written soon anyway */
    TCP_WRITE_RUNS = 256 << 10, /* … of runs, which are gathered without a copy */
    TCP_HOT = 4,                /* sockets read without asking epoll */
    TCP_QUIET = 512,            /* reads that found nothing, until a socket is no longer hot */
    TCP_SLACKEN = 64,           /* … until it is read half as often */
    TCP_YIELD = 64,             /* … until it gives its place to another */
    TCP_LAND_BEHIND = 4 * 1024, /* read behind what lands: the head of the next, or small messages */
    TCP_PASSES = 3,             /* turns in which a socket that was read empty is not polled again */
    TCP_PASS_TICKS = 32768,     /* … unless the program took so long between them */
    TCP_ACCEPT_PAUSE_MS = 100   /* out of file descriptors */
};

/* ---- pool.c: buffers, lent to lanes only while they hold something ------------------------------------- */

/* A slip is a small sheet: a turn may have one for each of many lanes. */
enum tcp_buffer_class { TCP_BUF_READ, TCP_BUF_BIG, TCP_BUF_SLIP, TCP_BUF_SHEET, TCP_N_BUF_CLASSES };

struct tcp_buffer {
    struct tcp_buffer *next;
    size_t size; /* of `bytes` */
    enum tcp_buffer_class class;
    bool put;        /* no lane has it, but somebody keeps messages in it: */
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

void tcp_pool_init(struct tcp_pool *pool, size_t buffer);
struct tcp_buffer *tcp_pool_make(struct tcp_pool *pool, const void *parent, enum tcp_buffer_class class);
static inline struct tcp_buffer *tcp_pool_take(struct tcp_pool *pool, const void *parent,
                                               enum tcp_buffer_class class) {
    struct tcp_buffer *b = pool->idle[class];
    if (!b) return tcp_pool_make(pool, parent, class);
    pool->idle[class] = b->next;
    pool->n_idle[class]--;
    return b;
}
void tcp_pool_put(struct tcp_pool *pool,
                  struct tcp_buffer *buffer); /* NULL is nothing; kept messages are waited for */

/* ---- a lane ----------------------------------------------------------------------------------------------- */

/* What one write gathers: pieces of the sheet's own bytes and of memory borrowed from users, in order. */
struct tcp_sheet {
    uint8_t *bytes;           /* behind the rest; pool.c lays it out */
    struct completion **done; /* told when that piece has been written; mostly NULL */
    uint32_t pieces;          /* of iov, and of done */
    uint32_t room;            /* bytes for messages; a goodbye always finds more */
    struct lane_run *run;     /* the last piece, whose length is not set yet; or NULL */
    struct iovec iov[];
};

struct tcp_output {
    struct tcp_sheet *sheet;  /* in a buffer of the pool's; NULL: nothing is queued */
    struct iovec *open;       /* the last piece, while bytes may be added to it */
    size_t queued;            /* bytes in [first, end) */
    uint32_t fill;            /* of sheet->bytes */
    uint8_t told, first, end; /* pieces: [told, first) written, their completions not told; [first, end) waiting */
    bool blocked : 1;         /* the socket takes no more until it says so */
    bool dirty : 1;           /* on the interface's list */
    bool begun : 1;           /* some has left since the last turn */
};

/* landing.c: a payload on its way to the memory that the owner named. The buffer is empty meanwhile. */
struct tcp_landing {
    struct tcp_landing *next;
    struct iovec iov[LAND_IOV + 1]; /* what is still to be filled; one is left for the buffer */
    unsigned at, end;
    size_t left;                                                        /* bytes of the frame, its padding too */
    void (*landed)(struct lane *lane, void *arg, weft_status_t status); /* NULL: told */
    void *arg;
    weft_status_t why; /* not OK: what comes is thrown away */
};

struct tcp_input {
    struct tcp_buffer *buffer;
    struct tcp_landing *landing; /* NULL: none is under way */
    uint32_t begin, end;
    uint32_t missing; /* of the frame that has begun; 0: whole ones may be there, or none */
    uint32_t emptied; /* the turn of the last read that left nothing in the socket */
    uint16_t quiet;   /* reads in a row that found nothing */
    int8_t hot;       /* its place in iface->hot, or -1 */
    uint8_t class;    /* enum tcp_buffer_class, of the next buffer: big after a big frame */
    bool asked;       /* the owner wants that frame whole */
    bool landed;      /* the last frame landed: the next may, so only its head is read into the buffer */
    bool reading;     /* a handler may be at work in the buffer */
};

/* Until it is open. */
struct tcp_hands {
    union tcp_sockaddr candidate[TCP_MAX_SOCKADDRS];
    size_t n_candidates, at;
    union tcp_sockaddr from; /* where the first try leaves this host; family 0: wherever the kernel says */
    uint64_t target;         /* the worker that is meant; 0: whoever listens */
    uint8_t hello[TCP_HELLO_SIZE], challenge[TCP_CHALLENGE_SIZE]; /* as they were on the wire */
    uint8_t proof[TCP_PROOF];                                     /* ours, computed where it can still fail */
    uint8_t in[TCP_GREETING_MAX];
    size_t in_len;
};

/* What the lane's job has to do, in this order. Calls to the owner are made there, never inside its own calls. */
enum tcp_todo {
    TODO_REDIAL = 1,
    TODO_READ = 2, /* frames are left in the buffer, or the socket's last words are to be read */
    TODO_BREAK = 4,
    TODO_WRITTEN = 8, /* completions to tell, pending operations to retry */
    TODO_ACCEPTED = 16,
    TODO_UP = 32,
    TODO_DOWN = 64,
    TODO_CLOSED = 128,
    TODO_LANDED = 256 /* a landing was stopped */
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
    struct timer deadline;
    struct pending_queue pending;
    struct tcp_hands *hands;
    struct tl_listener *listener; /* that it came through, until the owner was told */
    TAILQ_ENTRY(tcp_lane) of_iface;
    union tcp_sockaddr peer;
    uint16_t todo;                   /* enum tcp_todo */
    int8_t why;                      /* a weft_status_t: the first reason to end */
    STAILQ_ENTRY(tcp_lane) of_dirty; /* the last word: the slab's, once the lane is buried */
};

TAILQ_HEAD(tcp_lanes, tcp_lane);

static inline struct tcp_lane *tcp_lane(struct lane *lane) {
    return (struct tcp_lane *)lane;
}
static inline struct tcp_lane *tcp_lane_of_watch(struct watch *watch) {
    return (struct tcp_lane *)((char *)watch - offsetof(struct tcp_lane, watch));
}

struct tl_listener {
    struct tcp_iface *iface;
    void *arg;
    int fd;
    struct watch watch;
    struct timer pause;
    union tcp_sockaddr at;
    char uri[TCP_NAME_ROOM + 8];
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
    struct tcp_landing *spare_landing; /* NULL, or one kept for the next */
    uint64_t worker_id, host_id;
    struct trust_key key;
    bool have_key;
    struct tcp_lanes lanes;    /* that the owner knows */
    struct tcp_lanes greeting; /* accepted and not yet handed over, oldest first */
    unsigned n_greeting;
    uint32_t next_id;
    LIST_HEAD(, tl_listener) listeners;
    struct tl_listener *own[TCP_MAX_PLACES]; /* of the worker's address */
    unsigned n_own;
    int reserve_fd; /* given up to refuse a connection when there is no other */
};

static inline struct tcp_buffer *tcp_buffer_of(const struct tcp_sheet *sheet) {
    return (struct tcp_buffer *)(void *)((uintptr_t)sheet - offsetof(struct tcp_buffer, bytes));
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
weft_context_t *tcp_context(const struct tcp_lane *lane);

/* lane.c: life, the machine's port, calls to the owner */
weft_status_t tcp_lane_new(struct tcp_iface *iface, bool acceptor, struct tcp_lane **lane_p);
void tcp_lane_todo(struct tcp_lane *lane, unsigned what);
void tcp_lane_why(struct tcp_lane *lane, weft_status_t why);                   /* kept if it is the first */
void tcp_lane_bad(struct tcp_lane *lane, weft_status_t why, const char *what); /* logs, and steps BAD */
weft_status_t tcp_lane_watch(struct tcp_lane *lane, int events);
void tcp_lane_abandon(struct tcp_lane *lane); /* before the owner knew of it; frees */

/* address.c: of iface_ops */
weft_status_t tcp_own_address(struct iface *iface, void *buf, size_t *len_p);
weft_status_t tcp_reachable(struct iface *iface, const void *bytes, size_t len, const char **why_p);
weft_status_t tcp_connect_address(struct iface *iface, const void *bytes, size_t len, struct lane **lane_p);
weft_status_t tcp_connect_nth(struct iface *iface, const void *bytes, size_t len, unsigned nth,
                              struct lane **lane_p);

/* dial.c */
/* A lane to the first of `n` that answers; the first try from `from`, where that can be (NULL: from anywhere). */
weft_status_t tcp_connect(struct tcp_iface *iface, const union tcp_sockaddr *to, size_t n,
                          const union tcp_sockaddr *from, uint64_t target, struct lane **lane_p);
void tcp_dial(struct tcp_lane *lane);
void tcp_dial_failed(struct tcp_lane *lane);
weft_status_t tcp_socket(int family, int *fd_p);
void tcp_socket_tune(int fd, weft_context_t *context);
void tcp_socket_tune_local(int fd, weft_context_t *context); /* before it connects, or listens */

/* greet.c: the handshake; the machine says when */
void tcp_greet_ready(struct watch *watch, int events);
void tcp_say_hello(struct tcp_lane *lane);
void tcp_say_challenge(struct tcp_lane *lane);
void tcp_say_proof(struct tcp_lane *lane);
void tcp_say_refusal(int fd, weft_status_t why);

/* output.c */
extern const struct lane_ops tcp_ops_early, tcp_ops_open, tcp_ops_ended;
void tcp_output_goodbye(struct tcp_lane *lane);
void tcp_output_part(struct tcp_lane *lane); /* a goodbye, if it can be said at once */
void tcp_output_turn(struct tcp_lane *lane); /* writes, tells, retries: within a turn only */
void tcp_output_tell(struct tcp_lane *lane,
                     weft_status_t unwritten); /* all completions; the output is empty then */
void tcp_output_answer(struct tcp_lane *lane); /* what was said while the lane was read */
void tcp_output_retry(struct tcp_lane *lane);
void tcp_output_unblock(struct tcp_lane *lane); /* the socket may take more */
void tcp_output_clean(struct tcp_lane *lane);   /* not dirty */
int tcp_flush_dirty(struct tcp_iface *iface);
/* lane.c, for the tables of output.c */
void tcp_lane_close(struct lane *lane, bool flush);
void tcp_lane_describe(struct lane *lane, char *buf, size_t size);

/* input.c */
void tcp_input_open(struct tcp_lane *lane);
void tcp_input_ready(struct watch *watch, int events);
int tcp_input_read(struct tcp_lane *lane, unsigned budget);
void tcp_input_hear(struct lane *lane, const lane_am_fn *handlers);
weft_status_t tcp_input_pause(struct lane *lane, bool on);
struct lane_keep *tcp_input_keep(struct lane *lane, const void *data, size_t len);
void tcp_input_discard(struct tcp_lane *lane);   /* from now on frames are thrown away */
void tcp_input_drop(struct tcp_lane *lane);      /* and those in the buffer too */
void tcp_input_give_back(struct tcp_lane *lane); /* the buffer, if nothing is left in it */
void tcp_hot_enter(struct tcp_lane *lane);       /* if there is a place */
void tcp_hot_leave(struct tcp_lane *lane);
int tcp_poll(struct poller *poller, unsigned budget);

/* landing.c */
bool tcp_land(struct tcp_lane *lane, const struct tcp_frame *f, const uint8_t *payload, size_t have);
ssize_t tcp_land_read(struct tcp_lane *lane); /* as recv; what follows the frame is in the buffer then */
bool tcp_land_done(struct tcp_lane *lane);    /* tells, when all of it is there */
void tcp_land_end(struct tcp_lane *lane,
                  weft_status_t why);        /* what comes goes nowhere; the owner hears by the job */
void tcp_land_tell(struct tcp_lane *lane);   /* … and now */
void tcp_land_forget(struct tcp_lane *lane); /* told, and no byte of it comes any more */
void tcp_land_stop(struct lane *lane, void *arg);

/* listener.c */
weft_status_t tcp_listen(struct tcp_iface *iface, const struct tcp_where *where, int backlog, void *arg,
                         struct tl_listener **listener_p);
void tcp_listener_close(struct tl_listener *listener);

/* cost.c */
bool tcp_measure(struct iface_cost *cost_p);

/* iface.c */
weft_status_t tcp_iface_key(struct tcp_iface *iface); /* reads it when it is first needed */

#endif
