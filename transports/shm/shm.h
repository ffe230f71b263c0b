/* The shared-memory transport: between two workers of one host, by a ring per direction or by their mailboxes. */
#ifndef WEFT_TRANSPORTS_SHM_H
#define WEFT_TRANSPORTS_SHM_H

#include "doorbell.h"
#include "hall.h"
#include "lull.h"
#include "mailbox.h"
#include "mapped.h"
#include "pool.h"
#include "ring.h"
#include "segment.h"
#include "wire.h"
#include <inttypes.h>
#include <reactor/counters.h>
#include <reactor/slab.h>
#include <sys/types.h>
#include <transports/copy.h>
#include <transports/pending.h>
#include <transports/registry.h>

#include "shm_attach.fsm"
#define FSM_NAME   shm_attach
#define FSM_PREFIX SHM_ATTACH
#include <fsm/declare.h>

#include "shm_part.fsm"
#define FSM_NAME   shm_part
#define FSM_PREFIX SHM_PART
#include <fsm/declare.h>

enum {
    SHM_SHORT = RING_INLINE - 8,
    SHM_BCOPY_MAX = 8192,
    SHM_ZCOPY = 256 * 1024,
    SHM_ZCOPY_HEADER = 512,
    SHM_CHUNK = SHM_ZCOPY + SHM_ZCOPY_HEADER,
    SHM_CHUNKS_IN_TURN = 4, /* that are used over and over while no more are needed */
    SHM_IOV = 16,
    SHM_ATTENDED = 64,  /* rings that a worker looks at without being called, */
    SHM_IDLERS = 16,    /* and so many of them though nothing comes */
    SHM_STREAK = 128,   /* messages without a sleep that make a ring attended */
    SHM_AHEAD = 2560,   /* bytes of a message that somebody waits for, asked for before it is handled */
    SHM_SHARE = 128,    /* messages taken from one lane in one turn */
    SHM_STRETCH = 16,   /* those of them between two looks how far their sender is ahead */
    SHM_FETCHED = 8,    /* slots fetched ahead where it is far; fewer messages are no stream */
    SHM_IDLE = 1 << 16, /* fruitless looks after which an attended ring yields its place */
    SHM_CONTROL = 4096,
    SHM_NODES = 4096,  /* that a worker may have under way through others' mailboxes */
    SHM_BLOCKS = 256,  /* the same, of messages that do not fit a node */
    SHM_LETTERS = 512, /* taken from the mailbox and noted at a time */
    SHM_PROCESS_BUCKETS = 32,
    SHM_FDS_LOST = -1 /* in place of how many descriptors came: not all of them, since we have none left */
};

/* What one side tells the other through memory; it stands before the slots in the segment of the one who writes it. */
struct shm_control {
    _Alignas(64) _Atomic uint32_t attended; /* I look at your ring by myself: no need to ring */
    _Alignas(64) _Atomic uint64_t tail;     /* slots of your ring that I have passed */
    _Alignas(64) _Atomic uint32_t wants;    /* grows when I go to sleep wanting space: ring when you pass more */
};

/* A large read of the peer's memory, or (left == 0) a flush behind such reads. */
struct shm_bulk {
    struct shm_bulk *next;
    uint64_t remote;
    size_t left;
    struct completion *completion;
    struct joint joint;    /* words NULL: this side makes it alone; of joint ones `left` is the whole */
    struct shm_lane *lane; /* this and the next: of one that is owed, or put by the peer */
    weft_status_t status;
    bool stopped;
    unsigned n_iov;
    weft_iov_t iov[SHM_IOV];
};

/* The same seen from the memory's owner. */
struct shm_help {
    struct shm_help *next;
    const weft_iov_t *iov;
    size_t n_iov;
    uint64_t remote;
    struct joint joint;
    struct completion *completion;
};

/* In this order. */
enum {
    SAY_UP = 1,
    SAY_ACCEPTED = 2,
    SAY_VIOLATED = 4,
    SAY_BROKEN = 8,
    SAY_DOWN = 16,
    SAY_CLOSED = 32,
    SAY_FORGET = 64,
    SAY_TIME_IS_UP = 128 /* to the machine */
};

struct shm_lane;

/* A process that lanes lead to, and what its workers show in common. */
struct shm_process {
    struct mail_shape shape;        /* of their pools; lanes know the process by this */
    struct mapped *bells, *shelves; /* NULL: none of them has told yet */
    struct mapped *pool;            /* of one of them, for `pool_users` lanes; NULL: of none (peer.c) */
    struct shm_iface *iface;
    struct shm_process *next; /* of its bucket */
    struct cold_watch death;  /* its pidfd, or -1: it is ours, or cannot be watched */
    pid_t pid;
    uint32_t n_blocks; /* of a pool */
    unsigned n_lanes, pool_users;
    uint64_t probe_at, probe; /* what its greetings say to look for */
    int vm;                   /* may its memory be reached by the kernel? 0: not tried yet */
};

/* How a lane's messages go: by rings of its own, or by the mailboxes of both workers. */
struct shm_way {
    const char *name;
    const struct lane_ops *up;
    void (*activate)(struct shm_lane *lane);       /* to be looked at in the next turn */
    void (*leave)(struct shm_lane *lane);          /* it is looked at no more */
    weft_status_t (*pause)(struct shm_lane *lane); /* what comes is left where it is */
    int (*refresh)(struct shm_lane *lane);         /* takes back what the peer has passed */
    void (*ask)(struct shm_lane *lane);            /* the worker is to be woken when the peer passes more */
    void (*reclaim)(struct shm_lane *lane);        /* the peer is done with all that it was sent */
};

/* What a lane that is dialed is to go by. */
enum shm_wish { SHM_WISH_ANY, SHM_WISH_MAIL, SHM_WISH_RING };

/* A lane's rings, and how they are looked at. */
struct shm_ring {
    struct ring_tx tx;
    struct counters *count;
    const struct shm_control *theirs;
    struct shm_control *ours; /* NULL: it has none */
    struct ring_rx rx;
    struct lull lull;
    uint32_t wants_answered;
    uint32_t streak, idle, sleep_epoch;
    unsigned active_at; /* 1 + index in iface->active; 0: not there */
    bool attendable;    /* the peer takes part in membarriers */
    bool attended;      /* ours->attended says so */
    bool counted;       /* in iface->n_rings */
    struct shm_lane *next_rung;
    struct segment mine, peers;
    const void *pool; /* the peer's, which has its staging chunks; NULL: none */
    struct ring_loan *loans;
};

/* What a quiet lane by the mailbox does without: it is there until the lane is up, and longer or again if it has rings, or
 * one-sided access. */
struct shm_more {
    struct shm_ring ring;
    struct shm_lane *lane;

    uint64_t deadline;            /* of the greeting */
    uint64_t target;              /* the worker that was dialled; 0: any */
    struct tl_listener *listener; /* that it came by; valid while greeting */
    void *listen_arg;
    char where[108]; /* the socket that was dialled, or "" */
    uint8_t wish;    /* enum shm_wish */

    struct shm_keys *keys;              /* one-sided access (key.h); NULL: never used */
    struct shm_bulk *bulk, **bulk_last; /* a queue */
    unsigned n_owed;                    /* in iface->owed */
    struct shm_help *helps, **help_last;
    struct job bulk_job, help_job;
};

/* A lane's part in the mailboxes. */
struct shm_mail_lane {
    struct mail_view view; /* of the peer's pool; without nodes: nothing of the peer's can be in our mailbox */
    struct mail_tx tx;     /* its `newest` and `slot` lead a ring's lane to the doorbell, too */
    struct mail_control *ours;
    uint32_t consumed;
    uint32_t mark;                     /* drains: takings until then */
    uint32_t asked_at, wants_answered; /* the last word of a lane: the slab's, once it is buried */
};

/* There may be thousands: the fields are ordered so that none leaves a gap. */
struct shm_lane {
    struct lane lane;
    struct fsm fsm;
    union {
        struct timer timer; /* until our side has done with it */
        struct fsm part;    /* from then on: `parting` (part.c) */
    };
    struct cold_watch watch; /* the socket: its fd, or -1 */
    struct shm_more *more;   /* NULL: it has nothing of that */
    const lane_am_fn *am;    /* NULL: nothing is received in this state */
    struct pending_queue pending;
    int event_fd;          /* the peer's */
    uint32_t carried;      /* bytes sent beside slots and nodes since the owner was told (iface_up.worked) */
    uint16_t index;        /* in iface->lanes, and in our doorbell */
    uint16_t next_waiting; /* 1 + the index of the next of mail->waiting; 0: the last of them */
    int8_t status;         /* a weft_status_t: why it went down, the first reason */
    uint8_t say;           /* what the owner is to be told after the step */
    bool by_mail : 1;
    bool says_bye : 1, says_quit : 1; /* by the job, and when there is room */
    bool waits : 1;                   /* in mail->waiting */
    bool speaks : 1;                  /* the iface's job has something to do for it */
    bool ghost : 1; /* told closed; it stays until neither mailbox holds anything of the other's */
    bool parting : 1;
    bool watches_empty : 1;            /* what it has to read is all that will come */
    bool timed_out : 1;                /* the peer never answered our good-bye */
    bool shown : 1;                    /* the peer may know our place */
    bool heard_end : 1, heard_eof : 1; /* the peer's BYE or QUIT; the end of its socket */
    bool asked : 1;                    /* wake the peer when something of it was passed */
    bool drains : 1, emptied : 1;      /* the mailbox is to be found empty of the peer's messages, and was */
    bool paused : 1;                   /* it would receive, but for its owner */
    struct shm_mail_lane mail;
};

/* A worker's part in the mailboxes. */
struct shm_mail {
    struct mail_rx rx;
    struct mail_pool pool;
    struct segment segment;                                /* pool.h */
    uint32_t nodes_filled, blocks_filled, controls_filled; /* bytes with memory behind them, from their begins */
    uint32_t n_notes;                                      /* nodes that have one */
    unsigned n_lanes;                                      /* whose nodes may be in our mailbox */
    unsigned n_drains;
    unsigned look_at; /* the lane whose nodes may be back */
    uint32_t n_takes;
    bool due;                       /* there is more to do than what the mailbox holds */
    bool nodes_wanted;              /* since somebody found none */
    uint16_t waiting, last_waiting; /* 1 + the index of the first lane that waits for room, and of the last */
    unsigned n_waiting;
    struct shm_aside *asides; /* of lanes that are, or were, paused */
};

struct tl_listener {
    struct shm_iface *iface;
    struct watch watch;
    struct timer rest; /* out of descriptors: accept again later */
    int fd;
    unsigned at_once; /* accepted, at most */
    void *arg;
    bool by_address;
    char path[108];
    char uri[120];
};

struct shm_iface {
    struct iface iface;
    struct poller poller;
    uint64_t worker_id;
    const uint64_t *probe; /* a number for peers to find: the process's */
    char directory[SHM_DIRECTORY_MAX + 1];
    uint8_t host[16];
    struct tl_listener *own; /* for connects by address; NULL until somebody asks for it */

    int event_fd;
    bool signalled; /* by event_fd, which was not read yet */
    struct watch event;
    struct hall_place place;
    bool spoilt;           /* a peer may know the place beyond our end */
    struct doorbell *bell; /* in it */
    bool fenced;           /* this process takes part in membarriers, and can issue them */
    bool vm;               /* large messages may be read from the peer's memory */
    uint32_t joint_serial; /* the last */
    uint64_t joints;       /* a bit for each word in use */
    struct shm_bulk *owed; /* read, but for what the peer has yet to write; of any lane, in order */
    struct shm_bulk *puts; /* all of which the peer has yet to write; the same */

    uint32_t n_slots, payload_size;
    uint8_t *staging; /* in the pool's segment */
    uint32_t staging_size;
    uint32_t n_chunks, n_free, first_free;
    int32_t open_chunk; /* that has room from `open_at` on; -1: none */
    uint32_t open_at;
    uint32_t *chunk_users; /* messages that lie there */
    int32_t *free_chunks;  /* a queue of n_free, from first_free on */
    bool *chunk_filled;
    bool chunks_wanted; /* since somebody found none */

    struct shm_md *md; /* regions (key.h) */

    struct counters *count;
    struct slab lane_slab, more_slab;
    struct job speaker;      /* for lanes that speak */
    struct shm_lane **lanes; /* room for so many, DOORBELL_LANES at most */
    unsigned room, n_lanes, last_index, n_rings;
    struct shm_lane *rung[DOORBELL_BITS]; /* those with rings, by the doorbell's bits */
    struct shm_process *processes[SHM_PROCESS_BUCKETS];
    struct shm_mail mail;
    struct shm_lane **active; /* those with rings to be looked at: attended, called, or waiting for space */
    unsigned active_room, n_active, next_active, n_attended;
    uint32_t sleep_epoch; /* sleeps so far; 0 is left out */
};

static inline struct shm_iface *shm_iface(const struct shm_lane *lane) {
    return (struct shm_iface *)lane->lane.iface;
}

/* Receives, or is only paused. */
static inline bool shm_is_up(const struct shm_lane *lane) {
    return lane->am || lane->paused;
}
static inline struct shm_ring *shm_ring(const struct shm_lane *lane) {
    return &lane->more->ring;
}

/* The peer was found to have passed `n` slots or nodes. */
static inline void shm_worked(struct shm_lane *lane, uint64_t n) {
    const struct iface_up *up = lane->lane.iface->up;
    if (up->worked) up->worked(&lane->lane, n * RING_LINE + lane->carried);
    lane->carried = 0;
}

/* directory.c: where the sockets are */
weft_status_t weft__shm_directory(struct shm_iface *iface);
weft_status_t weft__shm_path(const struct shm_iface *iface, const char *directory, const char *name,
                             char path[108]);
weft_status_t weft__shm_host(uint8_t host[16]);
/* `own`: the name is a worker's, and nobody else's. */
weft_status_t weft__shm_bind(const char *path, bool own, int backlog, int *fd_p);
/* The sockets of workers: pid and worker id. Those of processes that were killed are swept by the next to come. */
#define SHM_OWN_NAME     "w-%d-%016" PRIx64
#define SHM_OWN_NAME_PID "w-%d-"
enum { SHM_OWN_NAME_SIZE = 32 };
void weft__shm_sweep(const char *directory);

/* lane.c: operations */
extern const struct lane_ops weft__shm_ops_dialing, weft__shm_ops_up, weft__shm_ops_mail, weft__shm_ops_down,
    weft__shm_ops_closed;
void weft__shm_pending_add(struct lane *l, struct pending *pending);
void weft__shm_pending_remove(struct lane *l, struct pending *pending);
bool weft__shm_all_taken(struct lane *l);
void weft__shm_hear(struct lane *l, const lane_am_fn *handlers);
weft_status_t weft__shm_pause(struct lane *l, bool on);
void weft__shm_describe(struct lane *l, char *buf, size_t size);
void weft__shm_purge(struct shm_lane *lane);
unsigned weft__shm_retry(struct shm_lane *lane);
void weft__shm_ring_peer(struct shm_lane *lane);
int weft__shm_refresh(struct shm_lane *lane);

/* attach.c: the machine */
bool weft__shm_more_room(struct shm_iface *iface);
struct shm_lane *weft__shm_lane_new(struct shm_iface *iface);
struct shm_more *weft__shm_more(struct shm_lane *lane); /* made when it is not there; NULL: no memory */
void weft__shm_lane_free(struct shm_lane *lane);        /* one that nobody was told of */
void weft__shm_lane_end(struct shm_lane *lane);         /* one by the mailbox, which has nothing of it any more */
void weft__shm_step(struct shm_lane *lane, unsigned event); /* within a turn */
void weft__shm_failed(struct shm_lane *lane, weft_status_t status);
void weft__shm_close(struct lane *lane, bool flush);
void weft__shm_speak(struct job *job);          /* the iface's speaker */
void weft__shm_farewell(struct shm_lane *lane); /* what it has to say yet */
void weft__shm_found_empty(struct shm_lane *lane);
weft_status_t weft__shm_dial(struct shm_lane *lane);
weft_status_t weft__shm_greet(struct shm_lane *lane, int fd);

/* handshake.c: what goes over the socket */
weft_status_t weft__shm_offer(struct shm_lane *lane); /* makes our side's memory */
void weft__shm_ring_uncount(struct shm_lane *lane);   /* its ring carries nothing more, and another may be made */
weft_status_t weft__shm_send_hello(struct shm_lane *lane, uint8_t kind);
weft_status_t weft__shm_send_word(int fd, uint8_t kind, weft_status_t status);
void weft__shm_read(struct cold_watch *watch, int events);
void weft__shm_release(struct shm_lane *lane); /* our side has done with it */
void weft__shm_close_all(struct shm_lane *lane);

/* peer.c: what a lane knows of its peer's worker */
weft_status_t weft__shm_meet(struct shm_lane *lane, const struct shm_hello *hello, int *fds);
weft_status_t weft__shm_pool_get(struct shm_process *process, int fd, const void **pool_p); /* mapped */
void weft__shm_pool_put(struct shm_process *process, const void *pool);                     /* NULL: none */
void weft__shm_pool_leave(struct shm_lane *lane); /* the mailbox holds nothing of the peer's, and will not */
static inline struct doorbell *shm_bell(const struct shm_lane *lane) {
    return (struct doorbell *)(void *)((char *)lane->mail.tx.newest - offsetof(struct doorbell, mailbox));
}
void weft__shm_signal(struct shm_lane *lane, uint32_t sleep); /* wakes it from this sleep */
/* After what was published, as doorbell_armed says. */
static inline void shm_wake(struct shm_lane *lane) {
    uint32_t sleep = doorbell_armed(shm_bell(lane));
    if (__builtin_expect(sleep != 0, 0)) weft__shm_signal(lane, sleep);
}

void weft__shm_take_signal(struct shm_iface *iface); /* iface.c: that we were woken, before we sleep again */

/* process.c: when a peer dies, and what its workers have in common */
weft_status_t weft__shm_process_get(struct shm_lane *lane, pid_t pid); /* the one at the other end of its socket */
weft_status_t weft__shm_process_meet(struct shm_lane *lane, const struct shm_hello *hello, const int *fds);
void weft__shm_process_put(struct shm_lane *lane);
static inline struct shm_process *shm_process(const struct shm_lane *lane) { /* NULL: not known yet */
    return (struct shm_process *)(uintptr_t)lane->mail.view.shape;
}
static inline pid_t shm_pid(const struct shm_lane *lane) {
    return shm_process(lane) ? shm_process(lane)->pid : 0;
}

/* poll.c: finding messages */
int weft__shm_poll(struct poller *poller, unsigned budget);
bool weft__shm_arm(struct poller *poller);
void weft__shm_disarm(struct poller *poller);

/* mailbox_lane.c: lanes by the mailbox */
extern const struct shm_way weft__shm_ring_way, weft__shm_mail_way;
static inline const struct shm_way *shm_way(const struct shm_lane *lane) {
    return lane->by_mail ? &weft__shm_mail_way : &weft__shm_ring_way;
}
weft_status_t weft__shm_mail_open(struct shm_iface *iface);
void weft__shm_mail_close(struct shm_iface *iface);
weft_status_t weft__shm_mail_offer(struct shm_lane *lane); /* before our side says where it is */
weft_status_t weft__shm_mail_begin(struct shm_lane *lane); /* the peer is known */
void weft__shm_mail_end(struct shm_lane *lane);
void weft__shm_mail_unread(struct shm_lane *lane); /* what was set aside is passed */
void weft__shm_mail_drain(struct shm_lane *lane);  /* calls on_empty when nothing of the peer is left */
unsigned weft__shm_mail_work(struct shm_iface *iface, unsigned budget);
bool weft__shm_mail_quiet(struct shm_iface *iface); /* armed: the last look */
void weft__shm_mail_ask(struct shm_iface *iface);   /* before arming */

static inline bool shm_mail_stirs(const struct shm_iface *iface) {
    return atomic_load_explicit(&iface->bell->mailbox, memory_order_relaxed) ||
           atomic_load_explicit(&iface->bell->wanted, memory_order_relaxed) || iface->mail.due;
}

/* By links that work; otherwise the first to come have them. */
bool weft__shm_rings_are_earned(const struct shm_iface *iface);

/* part.c: the end of a lane by the mailbox */
void weft__shm_part_leave(struct shm_lane *lane); /* our side has done with it */
void weft__shm_part_emptied(struct shm_lane *lane);
static inline bool shm_parting(const struct shm_lane *lane) {
    return lane->parting;
}

/* staging.c: chunks lent to large messages */
weft_status_t weft__shm_staging_size(struct shm_iface *iface); /* before the pool is made */
/* Room for one message: its chunk, and where in the segment. -1: none now; < -1: a status - 1. */
int32_t weft__shm_chunk_get(struct shm_lane *lane, size_t len, uint32_t *offset_p);
void weft__shm_chunk_put(struct shm_iface *iface, int32_t chunk); /* once for each message */

/* bulk.c: reading the peer's memory */
bool weft__shm_vm_pays(const char *way);
bool weft__shm_vm_allowed(const struct shm_lane *lane);
weft_status_t weft__shm_bulk_get(struct lane *lane, uint64_t remote, const weft_iov_t *iov, size_t n_iov,
                                 struct completion *completion);
weft_status_t weft__shm_flush(struct lane *lane, struct completion *completion);
weft_status_t weft__shm_bulk_add(struct shm_lane *lane, const struct shm_bulk *what);
weft_status_t weft__shm_put_add(struct shm_lane *lane, const struct shm_bulk *what);
void weft__shm_put_stop(struct iface *iface, const struct completion *completion);
void weft__shm_helped(struct iface *iface);
void weft__shm_bulk_run(struct job *job);
void weft__shm_bulk_end(struct shm_lane *lane, weft_status_t status); /* within a turn */

/* joint.c: those that the peer helps with */
weft_status_t weft__shm_bulk_joint(struct lane *lane, uint64_t remote, const weft_iov_t *to,
                                   struct completion *completion, uint64_t *token_p);
weft_status_t weft__shm_bulk_put(struct lane *lane, const weft_iov_t *to, struct completion *completion,
                                 uint64_t *token_p);
weft_status_t weft__shm_bulk_help(struct lane *lane, uint64_t token, const weft_iov_t *iov, size_t n_iov,
                                  uint64_t remote, size_t len, struct completion *completion);
/* The next piece: IN_PROGRESS, OK when that was all, NO_RESOURCE when the rest is the helper's, or an error. */
weft_status_t weft__shm_joint_piece(struct shm_lane *lane, struct shm_bulk *b);
void weft__shm_joint_end(struct shm_lane *lane, const struct shm_bulk *b); /* or nothing: it may be none */
void weft__shm_help_stop(struct lane *lane, const struct completion *completion);
void weft__shm_help_run(struct job *job);
void weft__shm_helps_end(struct shm_lane *lane);

/* words.c, key.c, grant.c: one-sided access, whose insides are in key.h */
weft_status_t weft__shm_md_open(struct shm_iface *iface);
void weft__shm_md_close(struct shm_iface *iface);
void weft__shm_md_attributes(const struct shm_iface *iface, struct iface_attr *attr);
weft_status_t weft__shm_mem_register(struct iface *i, const struct region *region, struct md_mem **mem_p);
weft_status_t weft__shm_mem_revoke(struct md_mem *m, struct completion *completion);
bool weft__shm_lends(struct lane *l, const struct md_mem *m, unsigned right);
size_t weft__shm_key_pack(const struct md_mem *mem, void *to);
void weft__shm_keys_end(struct shm_lane *lane, weft_status_t status); /* as importer: lets go of everything */
void weft__shm_parted(struct shm_lane *lane);                         /* the peer has let go of everything */
/* As owner, before the socket is closed; may keep it. Within a turn. */
void weft__shm_grants_part(struct shm_lane *lane);
void weft__shm_words_flush(struct shm_lane *lane); /* the socket has room */
void weft__shm_watch_for_room(struct shm_lane *lane, bool wanted);
weft_status_t weft__shm_words_heard(struct shm_lane *lane, const void *data, size_t len, const int *fds, int n_fds);

/* rma.c: the operations */
weft_status_t weft__shm_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                  struct lane_key *key);
weft_status_t weft__shm_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *), void *arg,
                                  uint64_t remote, struct lane_key *key);
weft_status_t weft__shm_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from, uint64_t remote,
                                  struct lane_key *key, struct completion *completion);
weft_status_t weft__shm_get_bcopy(struct lane *l, size_t len, void (*unpack)(void *, const void *, size_t),
                                  void *arg, uint64_t remote, struct lane_key *key, struct completion *completion);
weft_status_t weft__shm_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to, uint64_t remote,
                                  struct lane_key *key, struct completion *completion);
weft_status_t weft__shm_atomic_post(struct lane *l, enum rma_atomic op, size_t size, uint64_t operand,
                                    uint64_t remote, struct lane_key *key);
weft_status_t weft__shm_atomic_fetch(struct lane *l, enum rma_atomic op, size_t size, uint64_t operand,
                                     uint64_t compare, void *old_p, uint64_t remote, struct lane_key *key,
                                     struct completion *completion);
weft_status_t weft__shm_fence(struct lane *l);
weft_status_t weft__shm_key_open(struct lane *l, const struct remote_region *region, const void *packed, size_t len,
                                 struct lane_key **key_p);
void weft__shm_key_close(struct lane_key *key);
const char *weft__shm_reach(struct lane *l);
/* The fields of lane_ops that are the same by whichever way the messages of a lane go that is up. */
#define SHM_UP_OPS                                                                                        \
    .all_taken = weft__shm_all_taken, .flush = weft__shm_flush, .pending_add = weft__shm_pending_add,     \
    .pending_remove = weft__shm_pending_remove, .hear = weft__shm_hear, .pause = weft__shm_pause,         \
    .bulk_get = weft__shm_bulk_get, .bulk_joint = weft__shm_bulk_joint, .bulk_put = weft__shm_bulk_put,   \
    .bulk_help = weft__shm_bulk_help, .help_stop = weft__shm_help_stop, .put_short = weft__shm_put_short, \
    .put_bcopy = weft__shm_put_bcopy, .put_zcopy = weft__shm_put_zcopy, .get_bcopy = weft__shm_get_bcopy, \
    .get_zcopy = weft__shm_get_zcopy, .atomic_post = weft__shm_atomic_post,                               \
    .atomic_fetch = weft__shm_atomic_fetch, .fence = weft__shm_fence, .key_open = weft__shm_key_open,     \
    .key_close = weft__shm_key_close, .lends = weft__shm_lends, .reach = weft__shm_reach,                 \
    .close = weft__shm_close, .describe = weft__shm_describe

bool weft__shm_measure(struct iface_cost *cost_p); /* cost.c */

static inline void shm_gather(uint8_t *to, const void *header, size_t header_len, const weft_iov_t *iov,
                              size_t n_iov) {
    if (header_len) memcpy(to, header, header_len);
    to += header_len;
    for (size_t i = 0; i < n_iov; to += iov[i++].len)
        if (iov[i].len) weft__copy(to, iov[i].base, iov[i].len);
}

#endif
