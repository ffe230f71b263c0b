/*
 * The contract between a transport and the endpoints above it. docs/transports.md explains it.
 *
 * A worker opens a transport as an `iface`. A `lane` connects it to a peer's iface, and carries
 * active messages of at most 32 ids in three forms: short is inline, bcopy packs into a buffer of
 * the lane, zcopy sends from the caller's memory. Every call happens on the worker's thread, and no
 * call blocks. The design follows UCT of UCX.
 */
#ifndef WEFT_TRANSPORTS_TRANSPORT_H
#define WEFT_TRANSPORTS_TRANSPORT_H

#include <base/status.h>
#include <reactor/reactor.h>

/* Numbers on the wire are little-endian. Message headers, heads of runs and shared memory are
 * read and written in the processor's byte order, and addresses have 64 bits. */
#if !defined(__linux__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || __SIZEOF_POINTER__ != 8
#error "Weft is for Linux on little-endian processors of 64 bits: x86-64 and aarch64"
#endif

struct iface;
struct lane;

enum { LANE_AM_IDS = 32, LANE_HEAD = 8 };

/* Capability bits, with the names that weft-info prints. */
#define TRANSPORT_CAPS(C)                                                                        \
    C(AM_SHORT, "am_short")                                                                      \
    C(AM_BCOPY, "am_bcopy")                                                                      \
    C(AM_ZCOPY, "am_zcopy")                                                                      \
    C(RELIABLE, "reliable") /* in order, each message once, while the lane lives */              \
    C(CONNECT_TO_IFACE, "connect_to_iface") /* one side knows the other's iface address */       \
    C(CONNECT_TO_LANE, "connect_to_lane")   /* both sides know each other's lane address */      \
    C(LISTEN, "listen")                     /* by URI */                                         \
    C(BULK_GET, "bulk_get") /* reads the peer's memory without its help, within RTS/FIN */       \
    C(PUT, "put")           /* one-sided operations without the target's help, by open keys */   \
    C(GET, "get")                                                                                \
    C(ATOMIC, "atomic") /* 32 and 64 bit, coherent with the target's processor */                \
    C(ATOMIC_DEVICE,                                                                             \
      "atomic_device")          /* ADD and CSWAP of 64 bit by a device, atomic among its own */  \
    C(MAP, "map")               /* remote memory may have an address here: key->local */         \
    C(EXPOSE, "expose")         /* the peer may map a region of this side: see exposes */        \
    C(PLACE, "place")           /* large payloads go straight to their destination: see place */ \
    C(WAKEUP, "wakeup")         /* the worker may sleep on it */                                 \
    C(PEER_DEATH, "peer_death") /* reports the death of the peer's process without a probe */    \
    C(INTER_NODE, "inter_node")                                                                  \
    C(DEVICE_MEMORY, "device_memory") /* registers regions of device memory, as dma-bufs */      \
    C(DEVICE_IPC, "device_ipc")       /* the same by their addresses, for processes of this host */
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

/* The one-sided operations of a lane that keep the order of their calls without a fence. */
enum rma_order {
    RMA_ORDER_NONE,
    RMA_ORDER_PUTS, /* puts and posted atomics among each other */
    RMA_ORDER_ALL
};
/* What a remote completion (a remote flush) guarantees. */
enum rma_done {
    RMA_DONE_SCHEDULED, /* it will reach the target's memory */
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
    bool shares_listeners;                     /* several processes may listen at one address */
    bool packs_in_place;                       /* bcopy packs into the memory that the peer reads */
    /* The smallest message, in bytes, that gains if the receiver copies a part while the sender
     * copies the next one. 0: no message gains. */
    uint32_t overlap;
    double message_rate; /* small messages per second of one lane; 0: derive it from overhead_ns */
    size_t split_from;   /* shortest message for bulk_split */
    bool maps_any;       /* with CAP_EXPOSE: the peer may also map memory that was not allocated */
    bool runs;           /* has am_run: sends from the caller's log of messages */
    uint32_t scarce;     /* most lanes of the fast kind (lane->scarce); 0: only one kind */

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

struct listen_how {
    int backlog;
    bool shared; /* others of this user may listen at the same address */
};

/* Counts operations in progress. `done` is called when `count` falls to 0, never inside a call that
 * posts an operation. */
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
 * Messages in the caller's memory that a lane sends from there. Each has a lane_head, and is padded
 * with zeros to a multiple of LANE_HEAD. The caller adds messages at `end`, up to `limit`, without
 * a call of the lane. When the lane sends the run, it takes all of them and sets `limit` to NULL.
 */
struct lane_run {
    char *begin, *end, *limit;
    uint32_t n; /* messages, from `begin` */
};
struct lane_head {
    uint32_t len; /* of the message */
    uint8_t one, id;
    uint16_t zero;
};
_Static_assert(sizeof(struct lane_head) == LANE_HEAD, "no gaps");

/*
 * An entry of a lane's queue for resources. The lane calls `retry` within a turn, in the order of
 * pending_add, when a resource becomes free. OK or IN_PROGRESS: the entry has left the queue.
 * NO_RESOURCE: it stays first.
 */
struct pending {
    struct pending *next;
    weft_status_t (*retry)(struct pending *pending);
};

/* ---- one-sided operations -------------------------------------------------------------------- */

/* Memory that peers may access. It lives until mem_revoke is complete; endpoints/memory/memory.h
 * embeds it. */
struct ibv_mr;
struct region {
    void *base;
    uint64_t origin; /* the address by which peers name its first byte: base, or 0 */
    size_t len;
    unsigned rights;    /* WEFT_MEM_READ | WRITE | ATOMIC | ATOMIC_DEVICE */
    uint32_t id, epoch; /* in the worker's table */
    uint8_t token[16];  /* random: proves that the peer was given the key */
    int fd;             /* a memfd that contains it, or -1 */
    uint64_t fd_offset; /* of base; a multiple of the page size */
    /* Of device memory: only transports with CAP_DEVICE_MEMORY or CAP_DEVICE_IPC get it. With the
     * first, a dma-buf that contains it, and the offset of base there. */
    bool on_device;
    int dmabuf;
    uint64_t dmabuf_offset;
    /* The program's registration, which contains it: a transport with `reuses` makes none. NULL:
     * none. It stays until the region is gone. */
    struct ibv_mr *mr;
};

/* A peer's region, as its packed key describes it. */
struct remote_region {
    uint64_t base, len;
    unsigned rights;
    uint32_t id, epoch;
    uint8_t token[16];
};

/* A region, registered with one transport. Transports embed it in their own struct. */
struct md_mem {
    const struct region *region;
    struct iface *iface;
    uint32_t n_open; /* keys that peers hold open for native access */
};

enum { MD_KEY_MAX = 48 }; /* bytes that one transport adds to a packed key */

/* A peer's region, seen through a lane. Transports embed it in their own struct. */
struct lane_key {
    struct lane *lane;
    struct remote_region region;
    /* OK: operations may be posted. NO_RESOURCE: not now (the mapping is in progress or was
     * lost), so use messages. An error: the owner has revoked the key or refused it. May change
     * between any two turns. */
    weft_status_t status;
    /* The subset of CAP_PUT, CAP_GET, CAP_ATOMIC and CAP_ATOMIC_DEVICE that it serves while
     * status is OK. Use messages for the rest. */
    uint32_t caps;
    /* put_zcopy and get_zcopy take one range of any length, also of device memory on this side.
     * Nothing keeps their order. */
    bool copies_devices;
    bool is_of_device; /* and the region is on a device: nothing else reaches it */
    bool awaited;      /* undecided: it may become OK; iface_up.keyed reports the decision */
    bool refused;      /* NO_RESOURCE for good; another key to the region may succeed later */
    const char *how; /* constant text for people: "mapped", "process_vm", "cuda ipc", or a reason */
    /* CAP_MAP: the local address of region.base while status is OK, or NULL. With it, operations
     * by this key are plain memory accesses: they return OK, are performed, and use no
     * completion. */
    char *local;
};

/* A piece of local memory: `count` blocks of `len` bytes; their starts are `stride` bytes apart. */
struct rma_piece {
    void *base;
    size_t len, stride, count; /* stride is ignored if count is 1 */
    const struct md_mem *mem;  /* NULL if the transport needs no registration */
};

enum rma_atomic { RMA_ADD, RMA_AND, RMA_OR, RMA_XOR, RMA_SWAP, RMA_CSWAP };

/*
 * The destination of a large message's payload. The lane calls iface_up.place once per message,
 * when the first PLACE_HEAD bytes have arrived (`head`) and at least PLACE_LEAST have not. The
 * owner returns false, or fills this: the bytes after the first `skip` (PLACE_HEAD at most) go to
 * `iov`, which has exactly their length. The owner chooses `id`: not 0, and unique among its
 * placements in progress. Every later call about the placement carries it.
 *
 * iface_up.placed comes once for each placement, in place of the message's handler. Its status is
 * OK when the last byte has arrived. It is an error after place_stop, after close, and before
 * `down` or `closed`. No byte is written after it. A lane may begin the next placement when all
 * bytes of the previous message have arrived, even if that placement was stopped.
 */
enum { PLACE_HEAD = 64, PLACE_LEAST = 4096, PLACE_IOV = 8 };
struct placement {
    uint32_t id;
    size_t skip;
    weft_iov_t iov[PLACE_IOV];
    size_t n_iov;
};

/* Receives one message. `data` is [8-byte header][payload] for short, the packed bytes for
 * bcopy, and [header][payload] for zcopy. It is valid during the call. */
typedef void (*lane_am_fn)(struct lane *lane, unsigned id, const void *data, size_t len);

/* Calls from a transport to its owner. None of them is made inside a call by the owner, except
 * `worked`. */
struct iface_up {
    lane_am_fn am[LANE_AM_IDS]; /* none may be NULL */
    /* A peer has connected; set lane->owner now. listen_arg is NULL if the peer used the iface
     * address. */
    void (*accepted)(struct lane *lane, void *listen_arg);
    void (*up)(struct lane *lane); /* a lane that this side dialed can send */
    /* Called at most once: the lane has failed, or the peer closed it (WEFT_ERR_PEER_CLOSED).
     * All its completions have stepped, its pending queue is empty, and it sends no more. The
     * owner still closes it. Before the call the transport notes the cause (weft__fail), or
     * clears old causes (weft__causes_clear). */
    void (*down)(struct lane *lane, weft_status_t status);
    /* the last call; the memory is freed at the end of the turn */
    void (*closed)(struct lane *lane);
    /* With CAP_PLACE. Returns false to have the message delivered whole. `len` is the length of
     * the message. Optional. */
    bool (*place)(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len,
                  struct placement *to);
    /* The placement with that id has ended; OK if all bytes arrived. NULL only if `place` is
     * NULL. */
    void (*placed)(struct lane *lane, uint32_t placement, weft_status_t status);
    /* The lane has carried `bytes` since the last call. It reports this where it does rare work
     * anyway (a socket write, a refill, returned credit), never with each short send; also
     * within a send. Optional. */
    void (*worked)(struct lane *lane, uint64_t bytes);
    /* A key of this lane is no longer `awaited`. Optional. */
    void (*keyed)(struct lane *lane);
};

/* A received message whose bytes stay in place. The owner calls `release` once, on the worker's
 * thread, before the iface is closed. */
struct lane_keep {
    void (*release)(struct lane_keep *keep);
};

/* ---- the operations of a lane --------------------------------------------------------------- */

/*
 * Every lane has the functions of `struct lane_ops`; the optional ones are marked. The tables that
 * it points to are optional: a pointer is NULL if the transport lacks the feature. Within a table,
 * only the functions marked optional may be NULL. HAS_OP tests for a table and a function of it.
 *
 * Unless stated otherwise, an operation that sends or posts returns
 *   OK           it is complete, and the caller may reuse its memory;
 *   IN_PROGRESS  (only with a `completion`) the memory is in use until the completion steps;
 *   NO_RESOURCE  nothing happened: add a `pending` to learn when to retry. A lane that is not up
 *                yet returns this, too;
 *   an error     (< 0) nothing happened.
 * docs/transports.md has the full contract.
 */
#define HAS_OP(ops, table, fn) ((ops)->table && (ops)->table->fn)

/* Optional: memory of messages that stays in use beyond the call. */
struct lane_buffer_ops {
    /* With attr.runs. OK: a run begins at run->end. Messages of at least `least` bytes may be
     * added to it, the first of them at once; the lane may refuse more than `most` bytes. Its
     * memory is in use until the completion steps. NO_RESOURCE or an error: no run begins. In
     * every case the lane has taken the previous run. Optional. */
    weft_status_t (*am_run)(struct lane *lane, struct lane_run *run, size_t least, size_t most,
                            struct completion *completion);
    /* Returns the memory that am_zcopy uses with this completion: the lane copies what has not
     * left yet and sends the copy. The completion steps within this call, once for each message.
     * If there is no memory for a copy, nothing happens. Optional. */
    void (*reclaim)(struct lane *lane, const struct completion *completion);
    /* Called within the handler of a message: its `len` bytes at `data` stay unchanged until
     * `release`. The keeper may overwrite the part of the message before `data`. Returns NULL if
     * the caller must copy them: the peer may overwrite them, they lie in a much larger buffer, or
     * they are not this lane's. Optional. */
    struct lane_keep *(*keep)(struct lane *lane, const void *data, size_t len);
    /* Returns true if the peer has taken every message sent by zcopy. Optional. */
    bool (*all_taken)(struct lane *lane);
};

/* What bulk_put_req writes: the first `len` bytes of `iov`, to `remote` in the peer's memory. */
struct lane_put_req {
    uint64_t token; /* of the peer's bulk_split or bulk_put */
    const weft_iov_t *iov;
    size_t n_iov;
    uint64_t remote;
    size_t len;
};

/* Optional: copies between the memory of both processes within a rendezvous. */
struct lane_bulk_ops {
    /* Fills `iov` from `remote` in the peer's memory. After an error the caller falls back to
     * messages. Memory that a key of this lane has mapped is copied at once; all other memory needs
     * CAP_BULK_GET. */
    weft_status_t (*bulk_get)(struct lane *lane, uint64_t remote, const weft_iov_t *iov,
                              size_t n_iov, struct completion *completion);
    /* A bulk_get into one piece that the peer can write to (exposes), shared by both sides. The
     * owner sends the token to the peer, which answers by bulk_put_req and writes the end of the
     * piece. Returns IN_PROGRESS, or an error after which bulk_get may still work. The
     * completion steps when all bytes are there, the peer's part included. Optional. */
    weft_status_t (*bulk_split)(struct lane *lane, uint64_t remote, const weft_iov_t *to,
                                struct completion *completion, uint64_t *token_p);
    /* Lets the peer write all of `to`, which it can write to (exposes), once it has the token
     * and answers by bulk_put_req. Returns IN_PROGRESS or an error. The completion steps when
     * all bytes are there. It steps with an error when the peer writes no more of them: after
     * put_stop, or when the lane ends. Optional. */
    weft_status_t (*bulk_put)(struct lane *lane, const weft_iov_t *to,
                              struct completion *completion, uint64_t *token_p);
    /* The other side of bulk_split and bulk_put: writes what `from` names. The array of pieces and
     * the memory stay valid until the completion steps. Returns IN_PROGRESS or an error. The
     * completion steps when this side writes no more:
     *   OK          the peer waits for the bytes, and the owner must notify it (put_done there);
     *   CANCELLED   not all requested bytes will be written;
     *   an error    the lane ended. Optional. */
    weft_status_t (*bulk_put_req)(struct lane *lane, const struct lane_put_req *from,
                                  struct completion *completion);
    /* Ends, within this call, the bulk_put_req whose completion this is and has not stepped yet:
     * the peer has said that it reads no more. */
    void (*put_req_stop)(struct lane *lane, const struct completion *completion);
};

/* An atomic operation: `size` is 4 or 8, and `remote` is a multiple of it. `compare` is for
 * CSWAP. */
struct lane_atomic {
    enum rma_atomic op;
    size_t size;
    uint64_t operand, compare, remote;
};

/* Where get_bcopy delivers `len` bytes: by one call of `fn`, which copies them. */
struct rma_unpack {
    void (*fn)(void *arg, const void *data, size_t len);
    void *arg;
    size_t len;
};

/* Optional, with CAP_PUT, CAP_GET, CAP_ATOMIC or CAP_ATOMIC_DEVICE: one-sided operations. The
 * key is open (status OK), its caps include the operation, and the caller has checked range and
 * rights. A function with a `completion` may return IN_PROGRESS. A bcopy packs `len` bytes, or
 * unpacks them. */
struct lane_rma_ops {
    weft_status_t (*put_short)(struct lane *lane, const void *data, size_t len, uint64_t remote,
                               struct lane_key *key);
    weft_status_t (*put_bcopy)(struct lane *lane, size_t len, size_t (*pack)(void *to, void *arg),
                               void *arg, uint64_t remote, struct lane_key *key);
    weft_status_t (*put_zcopy)(struct lane *lane, const struct rma_piece *from, size_t n_from,
                               uint64_t remote, struct lane_key *key,
                               struct completion *completion);
    weft_status_t (*get_bcopy)(struct lane *lane, const struct rma_unpack *to, uint64_t remote,
                               struct lane_key *key, struct completion *completion);
    weft_status_t (*get_zcopy)(struct lane *lane, const struct rma_piece *to, size_t n_to,
                               uint64_t remote, struct lane_key *key,
                               struct completion *completion);
    /* With CAP_ATOMIC_DEVICE only: the operations that atomic_is_of_devices accepts. */
    weft_status_t (*atomic_post)(struct lane *lane, const struct lane_atomic *atomic,
                                 struct lane_key *key);
    /* Stores atomic->size bytes of the old value in *old_p. */
    weft_status_t (*atomic_fetch)(struct lane *lane, const struct lane_atomic *atomic, void *old_p,
                                  struct lane_key *key, struct completion *completion);
    /* Operations posted later are performed after all operations posted before. */
    weft_status_t (*fence)(struct lane *lane);
    /* Opens a peer's region. The key's status says when it can be used. The key ends with
     * key_close or with the lane. After the lane has ended, the key has the lane's status and
     * stays allocated until key_close or until the lane's `closed`. */
    weft_status_t (*key_open)(struct lane *lane, const struct remote_region *region,
                              const void *packed, size_t len, struct lane_key **key_p);
    void (*key_close)(struct lane_key *key);
    /* Returns true if the peer has mapped the region for `right` (WEFT_MEM_READ or
     * WEFT_MEM_WRITE): this side granted it, and the peer has not released it. Optional, with
     * CAP_EXPOSE. */
    bool (*exposes)(struct lane *lane, const struct md_mem *mem, unsigned right);
    /* Constant text for people: how keys of this lane will be used, before there is one.
     * Optional. */
    const char *(*reach)(struct lane *lane);
};

/* Optional: how this lane was connected, and to which process. */
struct lane_conn_ops {
    /* With CAP_CONNECT_TO_LANE: the address of a lane made by iface_ops.lane_create, and the
     * call that connects it to its peer's address. */
    weft_status_t (*address)(struct lane *lane, void *buf, size_t *len_p);
    weft_status_t (*connect)(struct lane *lane, const void *address, size_t len);
    /* Called within iface_up.accepted and iface_up.up. Returns the worker id in the peer's
     * handshake, if the peer has proved what this transport asks for; else 0. Optional. */
    uint64_t (*peer_id)(const struct lane *lane);
    /* The owner learns by other means when the peer's process ends: the lane need not probe it.
     * Optional. */
    void (*watched)(struct lane *lane);
};

/* What am_zcopy sends. */
struct lane_zcopy {
    const void *header; /* free on return, as the array of pieces is */
    size_t header_len;
    const weft_iov_t *iov;
    size_t n_iov;
};

struct lane_ops {
    /* Sends header and payload inline. */
    weft_status_t (*am_short)(struct lane *lane, uint8_t id, uint64_t header, const void *data,
                              size_t len);
    /* Sends header, `to` and payload inline; `to` and payload have at most attr.max_short bytes.
     * Optional: without it the caller builds one payload for am_short. */
    weft_status_t (*am_short_to)(struct lane *lane, uint8_t id, uint64_t header, uint32_t to,
                                 const void *data, size_t len);
    /* Sends what `pack` writes into a buffer of the lane; `pack` returns its length. */
    weft_status_t (*am_bcopy)(struct lane *lane, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg);
    /* Sends header and pieces. The pieces are in use until the completion steps (IN_PROGRESS). */
    weft_status_t (*am_zcopy)(struct lane *lane, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion);
    /* OK: everything sent before has left this side (for bulk copies: no memory is in use). Puts
     * and posted atomics are performed at the target, as attr.done says. IN_PROGRESS: the
     * completion steps once when this holds. NO_RESOURCE or an error (NO_MEMORY, too): no flush
     * was started. A lane that is not up yet has sent nothing: OK or NO_RESOURCE. */
    weft_status_t (*flush)(struct lane *lane, struct completion *completion);
    void (*pending_add)(struct lane *lane, struct pending *pending);
    /* no effect if it is absent */
    void (*pending_remove)(struct lane *lane, struct pending *pending);
    /* Messages of this lane go to these LANE_AM_IDS handlers, starting with the next message.
     * NULL restores iface_up.am. Callable within a handler. iface_up.place stays the owner's
     * decision. */
    void (*recv_msg)(struct lane *lane, const lane_am_fn *handlers);
    /* on: the lane takes no more messages from the peer, which sees back-pressure. Sending
     * continues. Messages that were read together with the current one may still arrive, and so
     * may the last messages of a peer that has left. Returns OK, or NO_MEMORY with no effect.
     * Callable within a turn of the reactor and outside. Optional. */
    weft_status_t (*pause)(struct lane *lane, bool on);
    /* With CAP_PLACE: discards the rest of that placed message. `placed` comes with
     * WEFT_ERR_CANCELLED after this call has returned. No effect if this lane has no such
     * placement. */
    void (*place_stop)(struct lane *lane, uint32_t placement);
    /* Ends the lane. `flush` lets accepted messages leave first, at most for "close.timeout".
     * `closed` follows. The pending queue is the owner's again within the call. */
    void (*close)(struct lane *lane, bool flush);
    /* Writes the peer as text for people ("127.0.0.1:4711"). */
    void (*describe)(struct lane *lane, char *buf, size_t size);

    const struct lane_buffer_ops *buffer;
    const struct lane_bulk_ops *bulk;
    const struct lane_rma_ops *rma;
    const struct lane_conn_ops *conn;
};

/* Transports embed it as the first member of their own struct. */
struct lane {
    const struct lane_ops *ops;
    struct iface *iface;
    void *owner;                /* what the lane belongs to, for its iface's owner; see owner_id */
    const lane_am_fn *handlers; /* replace the iface's, or NULL; ops->recv_msg writes it */
    /* For the iface's owner: which object `owner` is, if the place is used again by others. */
    uint32_t owner_id;
    bool scarce; /* counts towards attr.scarce */
};

/* ---- the operations of an iface -------------------------------------------------------------- */

struct tl_listener; /* defined by each transport */

/* Optional, with CAP_PUT or CAP_GET: regions that peers may access. */
struct iface_mem_ops {
    weft_status_t (*mem_register)(struct iface *iface, const struct region *region,
                                  struct md_mem **mem_p);
    /* Ends every peer's access. OK: it has ended. IN_PROGRESS: one step when the last peer has
     * released the region or has died. Then the md_mem is freed. Closing the iface frees it too,
     * without a step: a peer that hangs may still access the memory. */
    weft_status_t (*mem_revoke)(struct md_mem *mem, struct completion *completion);
    /* Writes what a peer's key_open needs to know, at most MD_KEY_MAX bytes; returns its length. */
    size_t (*key_pack)(const struct md_mem *mem, void *to);
    bool any_origin; /* regions whose origin is not their base may be registered */
    /* Optional: whether the region's `mr` is one that this interface can use. */
    bool (*reuses)(const struct iface *iface, const struct region *region);
};

/* Optional: copies that peers write into this side's memory (bulk_split, bulk_put). */
struct iface_bulk_ops {
    /* A peer has announced that it wrote its part: the iface looks at the copies that wait for
     * it. */
    void (*put_done)(struct iface *iface);
    /* Ends the bulk_put with this completion; it steps in a later turn. No effect if none is in
     * progress. */
    void (*put_stop)(struct iface *iface, const struct completion *completion);
};

struct iface_ops {
    /* Writes what another process needs to connect here; the first call opens the address.
     * *len_p is the room on entry and the length on return (<= 96). */
    weft_status_t (*address)(struct iface *iface, void *buf, size_t *len_p);
    /* Returns WEFT_OK if this iface could connect to that address (same host, same uid, ...); else
     * UNREACHABLE, with a reason for people. */
    weft_status_t (*reachable)(struct iface *iface, const void *address, size_t len,
                               const char **why_p);
    weft_status_t (*connect)(struct iface *iface, const void *address, size_t len,
                             struct lane **lane_p);
    /* Connects by the nth of several paths to the same peer; `nth` counts from 1 and wraps around.
     * Optional. */
    weft_status_t (*connect_nth)(struct iface *iface, const void *address, size_t len, unsigned nth,
                                 struct lane **lane_p);
    /* Connects by a scarce lane; WEFT_ERR_QUOTA if all of them are in use. Optional: only where
     * there are two kinds of lanes. */
    weft_status_t (*connect_scarce)(struct iface *iface, const void *address, size_t len,
                                    struct lane **lane_p);
    /* `where` is the part of a URI after "scheme://". */
    weft_status_t (*connect_uri)(struct iface *iface, const char *where, struct lane **lane_p);
    /* `how->shared` only with attr.shares_listeners. */
    weft_status_t (*listen)(struct iface *iface, const char *where, const struct listen_how *how,
                            void *listen_arg, struct tl_listener **listener_p);
    /* A connected socket of the program is let in as if the listener had accepted it; the listener
     * has a duplicate. Optional. */
    weft_status_t (*listener_adopt)(struct tl_listener *listener, int fd);
    const char *(*listener_uri)(const struct tl_listener *listener);
    void (*listener_close)(struct tl_listener *listener);
    /* CAP_CONNECT_TO_LANE */
    weft_status_t (*lane_create)(struct iface *iface, struct lane **lane_p);
    void (*close)(struct iface *iface); /* frees it; the owner has closed its lanes and listeners */

    const struct iface_mem_ops *mem;
    const struct iface_bulk_ops *bulk;
};

struct iface {
    const struct iface_ops *ops;
    const struct transport *transport;
    struct reactor *reactor;
    const struct iface_up *up;
    void *owner; /* the worker */
    const char *device;
    struct iface_attr attr;
    uint64_t worker_id; /* random; equal in all ifaces of a worker */
};

static inline const lane_am_fn *lane_handlers(const struct lane *lane) {
    return lane->handlers ? lane->handlers : lane->iface->up->am;
}
/* recv_msg for lanes that read lane_handlers for each message. */
static inline void lane_recv(struct lane *lane, const lane_am_fn *handlers) {
    lane->handlers = handlers;
}

struct iface_params {
    const struct iface_up *up;
    void *owner;
    uint64_t worker_id; /* random; equal in all ifaces of a worker */
};

/* The measured cost of messages on this machine. 0: unknown. */
struct iface_cost {
    double latency_ns, overhead_ns, bandwidth;
};

struct domain_ops;
struct transport {
    const char *name;
    /* Returns an error, with the reason logged, if the transport cannot work here: the worker
     * goes on without it. *iface_p is a talloc child of the reactor. */
    weft_status_t (*open)(struct reactor *r, const struct iface_params *params,
                          struct iface **iface_p);
    const char *scheme; /* of URIs; NULL: same as the name */
    /* Measures the cost within one thread, in about a millisecond. Returns false if it could not.
     * Optional: without it the attributes count. */
    bool (*measure)(struct iface_cost *cost_p);
    const struct domain_ops *domains; /* transports/domain.h; NULL: it has none */
};

/* Every transport, ending with NULL (transports/registry.c). */
extern const struct transport *const weft__transports[];

#endif
