/*
 * The contract between a transport and the endpoints above it.
 *
 * A transport opened by a worker is an `iface`; a connection of it to a peer's iface is a `lane`. Lanes carry
 * active messages of at most 32 ids, in three forms. Everything here happens on the worker's thread, and
 * nothing blocks. After the UCT design: short is inline, bcopy packs into a bounce buffer, zcopy borrows.
 */
#ifndef WEFT_TRANSPORT_H
#define WEFT_TRANSPORT_H

#include <reactor/reactor.h>
#include <weft/base.h>

/* Numbers for peers are little-endian. First words of messages, heads of runs and what lies in shared memory are stored as they are. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Weft is for little-endian processors: it does not swap the bytes of what peers read"
#endif

struct iface;
struct lane;

enum { LANE_AM_IDS = 32, LANE_HEAD = 8 };

/* X(id) for each. Handlers are not told their id: whoever has to know it has one handler for each. */
/* clang-format off */
#define LANE_EACH_AM_ID(X)                                  \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)                 \
    X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)           \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)         \
    X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
/* clang-format on */
#define LANE_COUNT_AM_ID(id) +1
_Static_assert(LANE_EACH_AM_ID(LANE_COUNT_AM_ID) == LANE_AM_IDS, "each of them");

/* Capability bits, with the names that weft-info prints. */
#define TRANSPORT_CAPS(C)                                                                                      \
    C(AM_SHORT, "am_short")                                                                                    \
    C(AM_BCOPY, "am_bcopy")                                                                                    \
    C(AM_ZCOPY, "am_zcopy")                                                                                    \
    C(RELIABLE, "reliable")                 /* loses, repeats and reorders nothing while the lane lives */     \
    C(CONNECT_TO_IFACE, "connect_to_iface") /* one side knows the other's iface address */                     \
    C(CONNECT_TO_LANE, "connect_to_lane")   /* both sides know each other's lane address */                    \
    C(LISTEN, "listen")                     /* by URI */                                                       \
    C(BULK_GET, "bulk_get")                 /* reads the peer's memory without its help, within RTS/FIN */     \
    C(PUT, "put")                           /* one-sided operations without the target's help, by open keys */ \
    C(GET, "get")                                                                                              \
    C(ATOMIC, "atomic")               /* 32 and 64 bit, coherent with the target's processor */                \
    C(ATOMIC_DEVICE, "atomic_device") /* ADD and CSWAP of 64 bit by a device, atomic among its own */          \
    C(MAP, "map")                     /* remote memory may have an address here: key->local */                 \
    C(LEND, "lend")                   /* a region of this side may be mapped by the peer: ops->lends tells */  \
    C(LAND, "land")                   /* large payloads go straight to where iface_up.land says */             \
    C(WAKEUP, "wakeup")               /* the worker may sleep on it */                                         \
    C(PEER_DEATH, "peer_death")       /* tells, unasked, when the peer's process dies */                       \
    C(INTER_NODE, "inter_node")
enum transport_cap_bit {
#define CAP_BIT(id, name) CAP_BIT_##id,
    TRANSPORT_CAPS(CAP_BIT)
#undef CAP_BIT
        N_TRANSPORT_CAPS
};
enum transport_cap {
#define CAP(id, name) CAP_##id = 1 << CAP_BIT_##id,
    TRANSPORT_CAPS(CAP)
#undef CAP
};

/* Which one-sided operations of a lane are performed in the order posted, without a fence. */
enum rma_order {
    RMA_ORDER_NONE,
    RMA_ORDER_PUTS, /* puts and posted atomics among each other */
    RMA_ORDER_ALL
};
/* What a remote completion (a remote flush) says. */
enum rma_done {
    RMA_DONE_SCHEDULED, /* on its way to the target's memory, beyond recall */
    RMA_DONE_VISIBLE    /* the target's processor reads the new value */
};

struct iface_attr {
    uint32_t caps;
    uint32_t max_short;        /* bytes after the 8-byte header; WEFT_SHORT_MIN at least */
    uint32_t max_bcopy;        /* bytes packed */
    uint32_t max_zcopy;        /* payload bytes of one message */
    uint32_t max_zcopy_header; /* at least 384 */
    uint32_t max_iov;
    double latency_ns, bandwidth, overhead_ns; /* estimates for choosing; bytes per second */
    bool packs_in_place;                       /* what bcopy packs lies where the peer reads it */
    /* So many bytes of zcopy at least are worth copying out while the next are copied in; 0: none are. */
    uint32_t overlap;
    double message_rate; /* small messages a second that one lane takes; 0: as overhead_ns says */
    size_t joint_from;   /* bytes that are worth bulk_joint */
    bool runs;           /* messages that somebody keeps are sent from there (am_run) */
    uint32_t scarce;     /* lanes of its fast kind (lane->scarce) that there can be; 0: all its lanes scale */

    /* One-sided operations; 0 without CAP_PUT or CAP_GET. */
    uint32_t max_put_short; /* WEFT_SHORT_MIN at least */
    uint32_t max_put_bcopy, max_get_bcopy;
    size_t max_put_zcopy, max_get_zcopy;
    enum rma_order order;
    enum rma_done done;
};
static inline double iface_message_rate(const struct iface_attr *attr) {
    return attr->message_rate > 0 ? attr->message_rate : 1e9 / (attr->overhead_ns + 1);
}

/* One completion may count several operations. `done` comes when `count` falls to 0, never inside a call that posts. */
struct completion {
    void (*done)(struct completion *completion, weft_status_t status);
    uint32_t count;
    weft_status_t status; /* the first that was not OK */
};
static inline void completion_step(struct completion *c, weft_status_t status) {
    if (status < 0 && c->status == WEFT_OK) c->status = status;
    if (--c->count == 0) c->done(c, c->status);
}

/*
 * Messages that somebody keeps, one behind the other, as a lane sends them: each with its head, and zeros behind it
 * up to a multiple of LANE_HEAD. More are added at `end`, up to `limit`, without a word to the lane; what is there when it
 * sends it takes, and `limit` is NULL then.
 */
struct lane_run {
    char *begin, *end, *limit;
    uint32_t n; /* messages from `begin` on */
};
struct lane_head {
    uint32_t len; /* of the message */
    uint8_t one, id;
    uint16_t zero;
};
_Static_assert(sizeof(struct lane_head) == LANE_HEAD, "no gaps");

/*
 * What waits for a lane's resources. `retry` answers OK or IN_PROGRESS (it leaves the queue) or NO_RESOURCE (it
 * stays at the head). Called within progress, in the order added, when something became free.
 */
struct pending {
    struct pending *next;
    weft_status_t (*retry)(struct pending *pending);
};

/* ---- one-sided operations ------------------------------------------------------------------------------------ */

/* Memory that peers may touch, as its owner knows it (endpoints/memory.h has the rest). Lives until mem_revoke is done. */
struct region {
    void *base;
    size_t len;
    unsigned rights;    /* WEFT_MEM_READ | WRITE | ATOMIC | ATOMIC_DEVICE */
    uint32_t id, epoch; /* of the worker's table */
    uint8_t token[16];  /* random: who knows it was given it */
    int fd;             /* a memfd that holds it, or -1 */
    uint64_t fd_offset; /* of base, a multiple of the page */
};

/* The same, as the packed key tells it to the peer. */
struct remote_region {
    uint64_t base, len;
    unsigned rights;
    uint32_t id, epoch;
    uint8_t token[16];
};

/* A region in a transport: what its network card, or its peers, must know of it. Transports put their own around it. */
struct md_mem {
    const struct region *region;
    struct iface *iface;
    uint32_t n_open; /* keys by which peers reach it natively now */
};

enum { MD_KEY_MAX = 48 }; /* bytes that one transport adds to a packed key */

/* A peer's region, seen through a lane. Transports put their own around it. */
struct lane_key {
    struct lane *lane;
    struct remote_region region;
    /* OK: operations may be posted. NO_RESOURCE: not yet (a mapping is under way), or not any more for now: send a message
     * instead. Negative: the owner revoked it, or never granted it. May change between any two turns. */
    weft_status_t status;
    /* Which of CAP_PUT, CAP_GET, CAP_ATOMIC, CAP_ATOMIC_DEVICE it serves while status is OK; else send a message. */
    uint32_t caps;
    bool awaited;    /* it may still become OK; iface_up.keyed tells when that is decided */
    bool refused;    /* NO_RESOURCE, and it stays so: another key to the same region may fare better later */
    const char *how; /* for people: "mapped", "process_vm"; or why not. Constant text */
    /* CAP_MAP: where region.base is here, while status is OK; or NULL. While it is there, operations by this key are plain
     * accesses: they answer OK at once, performed, and look at no completion. */
    char *local;
};

/* A piece of local memory: `count` blocks of `len` bytes, `stride` bytes from one's begin to the next's. */
struct rma_piece {
    void *base;
    size_t len, stride, count; /* count 1: stride is not looked at */
    const struct md_mem *mem;  /* NULL where the transport needs none */
};

enum rma_atomic { RMA_ADD, RMA_AND, RMA_OR, RMA_XOR, RMA_SWAP, RMA_CSWAP };

/*
 * Where the payload of a large message goes. Asked once, when its first LAND_HEAD bytes are here (`head`) and at least
 * LAND_LEAST are not: the bytes after the first `skip` of the message (LAND_HEAD at most) go to `iov`, which holds exactly
 * them, or it does not land. `landed` comes in place of the message's handler when the last is there, or with an error
 * when `land_stop` was called, when the owner closes the lane, and before `down` or `closed`. No byte is written after it.
 */
enum { LAND_HEAD = 64, LAND_LEAST = 4096, LAND_IOV = 8 };
struct landing {
    size_t skip;
    weft_iov_t iov[LAND_IOV];
    size_t n_iov;
    void (*landed)(struct lane *lane, void *arg, weft_status_t status);
    void *arg;
};

/* `data` is [8-byte header][payload] for short, whatever was packed for bcopy, [header][payload] for zcopy; it is
 * valid during the call. */
typedef void (*lane_am_fn)(struct lane *lane, const void *data, size_t len);

/* Told by a transport to its owner. None of these is called inside a call that the owner makes. */
struct iface_up {
    lane_am_fn am[LANE_AM_IDS]; /* none may be NULL */
    /* A peer connected; lane->owner may be set now. NULL listen_arg: by iface address. */
    void (*accepted)(struct lane *lane, void *listen_arg);
    void (*up)(struct lane *lane); /* a lane that we dialed can send */
    /* It broke, or the peer closed it (WEFT_ERR_PEER_CLOSED): once. Its completions have been called, its pending
     * queue is the owner's again (purged), it sends no more; the owner still closes it. */
    void (*down)(struct lane *lane, weft_status_t status);
    void (*closed)(struct lane *lane); /* last word after close; the memory goes at the end of the turn */
    /* CAP_LAND: false: nowhere, deliver it whole. `len` is the message's. NULL: never asked. */
    bool (*land)(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len, struct landing *to);
    /* The lane carried so many bytes since it said so last: told, also from within a send, where it does rare work anyway (a ring's
     * tail is read anew, a node is refilled, a socket is written, credit returns), never with each short send. NULL: nobody listens. */
    void (*worked)(struct lane *lane, uint64_t bytes);
    /* A key of this lane that was `awaited` is not any more. NULL: nobody listens. */
    void (*keyed)(struct lane *lane);
};

/* A received message that somebody keeps: `release` once, on the worker's thread, until the iface is closed. */
struct lane_keep {
    void (*release)(struct lane_keep *keep);
};

struct lane_ops {
    /* Each answers OK (done, the memory is free), NO_RESOURCE (nothing happened; pending_add tells when) or an error
     * (< 0); zcopy also IN_PROGRESS (borrowed until the completion steps). Not up yet is NO_RESOURCE. */
    weft_status_t (*am_short)(struct lane *lane, uint8_t id, uint64_t header, const void *data, size_t len);
    /* The same of four bytes and then `data`, together no longer than am_short's. NULL: who sends puts them together. */
    weft_status_t (*am_short_to)(struct lane *lane, uint8_t id, uint64_t header, uint32_t to, const void *data,
                                 size_t len);
    weft_status_t (*am_bcopy)(struct lane *lane, uint8_t id, size_t (*pack)(void *to, void *arg), void *arg);
    weft_status_t (*am_zcopy)(struct lane *lane, uint8_t id, const void *header, size_t header_len,
                              const weft_iov_t *iov, size_t n_iov, struct completion *completion);
    /* With attr.runs. OK: a run begins at run->end, where messages of `least` bytes or more, and of `most` or fewer if the lane likes, may
     * be added, the first of them at once; its memory is borrowed until the completion steps. NO_RESOURCE or an error: none
     * does. In any case the lane has taken the run before it. NULL: that is all. */
    weft_status_t (*am_run)(struct lane *lane, struct lane_run *run, size_t least, size_t most,
                            struct completion *completion);
    /* Within the handler of a message: its `len` bytes at `data` stay as they are until released, and all of the message before
     * them is the keeper's to write. NULL: they must be copied, since they lie where the peer writes next, or in memory much larger
     * than they are, or are none of this lane's. No op: they always must. */
    struct lane_keep *(*keep)(struct lane *lane, const void *data, size_t len);
    /* OK: all sent before has left this side (for bulk: nothing is borrowed); puts and posted atomics are performed at the target, as
     * attr.done says. IN_PROGRESS: one step when it has. NO_RESOURCE and errors as the sends above, NO_MEMORY among them: nothing was
     * asked, and nobody is told. A lane that is not up yet has sent nothing: OK, or NO_RESOURCE. */
    weft_status_t (*flush)(struct lane *lane, struct completion *completion);
    void (*pending_add)(struct lane *lane, struct pending *pending);
    void (*pending_remove)(struct lane *lane, struct pending *pending); /* nothing if it is not there */
    /* What this lane brings goes to these handlers, LANE_AM_IDS of them, from the next message on; NULL: to iface_up.am again.
     * Whether large ones land is the owner's to say (iface_up.land), whoever hears them. Also callable from within a handler. */
    void (*hear)(struct lane *lane, const lane_am_fn *handlers);
    /* Nothing more is taken from the peer, who feels that as back-pressure, or it is again; what is sent to it goes on. What was read
     * together with the message whose handler asks may still come, and what a peer has left that went comes in any case. OK, or NO_MEMORY:
     * it goes on as it did. Within a turn and outside. NULL: it cannot. */
    weft_status_t (*pause)(struct lane *lane, bool on);
    /* Fills `iov` from `remote` in the peer's memory: OK, IN_PROGRESS, NO_RESOURCE or an error (then the caller falls back to
     * messages). What a key of this lane has mapped is copied; all else wants CAP_BULK_GET. NULL: with neither. */
    weft_status_t (*bulk_get)(struct lane *lane, uint64_t remote, const weft_iov_t *iov, size_t n_iov,
                              struct completion *completion);
    /* bulk_get into one piece that the peer can write to (lends), made jointly: the peer, when it is told the token and answers by
     * bulk_help, writes the end of it. IN_PROGRESS; or an error, and bulk_get may still do. The completion steps when all is there, the
     * peer's part included. NULL: this side makes all of it. */
    weft_status_t (*bulk_joint)(struct lane *lane, uint64_t remote, const weft_iov_t *to,
                                struct completion *completion, uint64_t *token_p);
    /* Lends `to`, which the peer can write to (lends), to it: when it is told the token and answers by bulk_help, it writes all of it.
     * IN_PROGRESS, or an error. The completion steps when all is
     * there, or, with an error, when no more of it is written: after iface_ops.put_stop, or as the lane ends. NULL: never. */
    weft_status_t (*bulk_put)(struct lane *lane, const weft_iov_t *to, struct completion *completion,
                              uint64_t *token_p);
    /* The other side of both: the first `len` bytes of `iov`, array and memory, stay until the completion has stepped, and belong to
     * `remote` in the peer's memory. IN_PROGRESS, or an error. The completion steps when no more of them are written: with OK when the
     * peer waits for what was and is to be told (iface_ops.helped), with CANCELLED when not all that was asked for will be, and with
     * another error as the lane ends. */
    weft_status_t (*bulk_help)(struct lane *lane, uint64_t token, const weft_iov_t *iov, size_t n_iov,
                               uint64_t remote, size_t len, struct completion *completion);
    /* What was asked for with that completion, which has not stepped yet, ends within this call: the peer said that it reads no more. */
    void (*help_stop)(struct lane *lane, const struct completion *completion);
    /* The peer has that region mapped for one of WEFT_MEM_READ and WEFT_MEM_WRITE: it was granted that, and has not let go.
     * NULL: no peer ever has. */
    bool (*lends)(struct lane *lane, const struct md_mem *mem, unsigned right);
    /* How keys of this lane will be used, before there is one; for people. Constant text. NULL: it says no more than that they will. */
    const char *(*reach)(struct lane *lane);
    /* The peer has taken all that was sent by zcopy. NULL: not known. */
    bool (*all_taken)(struct lane *lane);
    /* CAP_LAND: what the landing under way brings from now on is thrown away; `landed` comes with WEFT_ERR_CANCELLED, from a
     * later turn. Nothing when none with that `arg` is under way. */
    void (*land_stop)(struct lane *lane, void *arg);

    /* With CAP_PUT, CAP_GET, CAP_ATOMIC and CAP_ATOMIC_DEVICE. The key is open (status OK), its caps have the operation, and
     * range and rights were checked. Answers as the sends above; get and atomic_fetch also IN_PROGRESS. A bcopy packs (or unpacks) `len` bytes. */
    weft_status_t (*put_short)(struct lane *lane, const void *data, size_t len, uint64_t remote,
                               struct lane_key *key);
    weft_status_t (*put_bcopy)(struct lane *lane, size_t len, size_t (*pack)(void *to, void *arg), void *arg,
                               uint64_t remote, struct lane_key *key);
    weft_status_t (*put_zcopy)(struct lane *lane, const struct rma_piece *from, size_t n_from, uint64_t remote,
                               struct lane_key *key, struct completion *completion);
    weft_status_t (*get_bcopy)(struct lane *lane, size_t len,
                               void (*unpack)(void *arg, const void *data, size_t len), void *arg, uint64_t remote,
                               struct lane_key *key, struct completion *completion);
    weft_status_t (*get_zcopy)(struct lane *lane, const struct rma_piece *to, size_t n_to, uint64_t remote,
                               struct lane_key *key, struct completion *completion);
    /* `size` is 4 or 8, `remote` a multiple of it; with CAP_ATOMIC_DEVICE only, what atomic_is_of_devices. */
    weft_status_t (*atomic_post)(struct lane *lane, enum rma_atomic op, size_t size, uint64_t operand,
                                 uint64_t remote, struct lane_key *key);
    /* The old value goes to *old_p, `size` bytes of it. `compare` is for CSWAP. */
    weft_status_t (*atomic_fetch)(struct lane *lane, enum rma_atomic op, size_t size, uint64_t operand,
                                  uint64_t compare, void *old_p, uint64_t remote, struct lane_key *key,
                                  struct completion *completion);
    /* What is posted after it is performed after what was posted before. */
    weft_status_t (*fence)(struct lane *lane);
    /* A peer's region. The key's status tells when it can be used. It ends with key_close, or with the lane: then its
     * status is the lane's, and it still waits for key_close, until the lane's `closed`: then it is gone. */
    weft_status_t (*key_open)(struct lane *lane, const struct remote_region *region, const void *packed, size_t len,
                              struct lane_key **key_p);
    void (*key_close)(struct lane_key *key);
    /* Ends it: `flush` lets what was accepted leave first, bounded by "close.timeout". `closed` follows. */
    void (*close)(struct lane *lane, bool flush);
    /* The owner would hear by other means if the peer's process ended: the lane need not ask. NULL: it never does. */
    void (*watched)(struct lane *lane);
    /* Its peer, as text for people ("127.0.0.1:4711"). */
    void (*describe)(struct lane *lane, char *buf, size_t size);
    /* CONNECT_TO_LANE: the address of a lane made by iface_ops.lane_create, and its peer's. */
    weft_status_t (*address)(struct lane *lane, void *buf, size_t *len_p);
    weft_status_t (*connect)(struct lane *lane, const void *address, size_t len);
};

/* Transports put their own struct around it. */
struct lane {
    const struct lane_ops *ops;
    struct iface *iface;
    void *owner;
    const lane_am_fn *handlers; /* in place of the iface's, or NULL; written by ops->hear */
    bool scarce;                /* one of attr.scarce */
};

struct tl_listener; /* a transport's own */

struct iface_ops {
    /* What another process needs to connect here; opens it when first asked. *len_p: room in, length out (<= 96). */
    weft_status_t (*address)(struct iface *iface, void *buf, size_t *len_p);
    /* Could this iface connect to that address (same host, same uid, …)? WEFT_OK, or UNREACHABLE with a reason for people. */
    weft_status_t (*reachable)(struct iface *iface, const void *address, size_t len, const char **why_p);
    weft_status_t (*connect)(struct iface *iface, const void *address, size_t len, struct lane **lane_p);
    /* The same, another way to the same peer where there are several: `nth` counts from 1, and any will do. May be NULL. */
    weft_status_t (*connect_nth)(struct iface *iface, const void *address, size_t len, unsigned nth,
                                 struct lane **lane_p);
    /* The same by the scarce kind, where there are both kinds; WEFT_ERR_QUOTA when all are in use. NULL: all are of one kind. */
    weft_status_t (*connect_scarce)(struct iface *iface, const void *address, size_t len, struct lane **lane_p);
    /* `where` is a URI after "scheme://". */
    weft_status_t (*connect_uri)(struct iface *iface, const char *where, struct lane **lane_p);
    weft_status_t (*listen)(struct iface *iface, const char *where, int backlog, void *listen_arg,
                            struct tl_listener **listener_p);
    const char *(*listener_uri)(const struct tl_listener *listener);
    void (*listener_close)(struct tl_listener *listener);
    weft_status_t (*lane_create)(struct iface *iface, struct lane **lane_p); /* CONNECT_TO_LANE */
    /* With CAP_PUT or CAP_GET: makes the region known to this transport. */
    weft_status_t (*mem_register)(struct iface *iface, const struct region *region, struct md_mem **mem_p);
    /* No peer can touch it any more: OK, or IN_PROGRESS and one step when the last has let go, or has died. The md_mem is
     * gone then. With the iface's close it is gone unasked, and no step comes: a peer that hangs may still touch the memory. */
    weft_status_t (*mem_revoke)(struct md_mem *mem, struct completion *completion);
    /* A peer says so: what joint copies and puts of this iface wait for may be there. NULL: there are none. */
    void (*helped)(struct iface *iface);
    /* Of the put with that completion nothing more is to be written; it steps from a later turn. Nothing when none is under way. NULL: none
     * ever is. */
    void (*put_stop)(struct iface *iface, const struct completion *completion);
    /* What a peer's key_open wants to know; at most MD_KEY_MAX bytes. */
    size_t (*key_pack)(const struct md_mem *mem, void *to);
    void (*close)(struct iface *iface); /* all its lanes and listeners are closed; frees it */
};

struct iface {
    const struct iface_ops *ops;
    const struct transport *transport;
    struct reactor *reactor;
    const struct iface_up *up;
    void *owner; /* the worker */
    const char *device;
    struct iface_attr attr;
};

static inline const lane_am_fn *lane_handlers(const struct lane *lane) {
    return lane->handlers ? lane->handlers : lane->iface->up->am;
}
/* The `hear` of lanes that look at lane_handlers with each message. */
static inline void lane_hear(struct lane *lane, const lane_am_fn *handlers) {
    lane->handlers = handlers;
}

struct iface_params {
    const struct iface_up *up;
    void *owner;
    uint64_t worker_id; /* random; the same in all ifaces of a worker */
};

/* What its messages cost on this machine. 0: that is not known. */
struct iface_cost {
    double latency_ns, overhead_ns, bandwidth;
};

struct transport {
    const char *name;
    /* WEFT_OK, or an error with the reason logged: the worker goes on without it. `*iface_p` is a talloc child of the reactor. */
    weft_status_t (*open)(struct reactor *r, const struct iface_params *params, struct iface **iface_p);
    const char *scheme; /* of its URIs; NULL: the name */
    /* As far as one thread finds out in a millisecond, between nobody but itself; false: it could not. NULL: its attributes say all that
     * is known. */
    bool (*measure)(struct iface_cost *cost_p);
};

/* All of them, NULL at the end (transports/registry.c). */
extern const struct transport *const weft__transports[];

#endif
