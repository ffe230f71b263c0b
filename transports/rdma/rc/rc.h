/*
 * The internals of rdma_rc, shared by its files. A lane is one reliably connected queue pair.
 * rc_qp.fsm is its machine. For each state the port (rc_lane.c) installs the ops and `take`
 * pointers that process messages. All lanes of an interface share one receive queue and one
 * completion queue.
 */
#ifndef WEFT_TRANSPORTS_RDMA_RC_RC_H
#define WEFT_TRANSPORTS_RDMA_RC_RC_H

#include "rc_qp.h"
#include "rc_wire.h"
#include <transports/rdma/verbs/device.h>

#include <base/counters.h>
#include <reactor/slab.h>
#include <stddef.h>
#include <string.h>
#include <transports/keys.h>
#include <transports/pending.h>
#include <transports/registry.h>
#include <transports/transport.h>
#include <transports/trust.h>

#include "rc_key.fsm"
#define FSM_NAME   rc_key
#define FSM_PREFIX RC_KEY
#include <fsm/declare.h>

#include "rc_grant.fsm"
#define FSM_NAME   rc_grant
#define FSM_PREFIX RC_GRANT
#include <fsm/declare.h>

enum {
    RC_DEPTH = 128, /* work requests that a lane may have under way */
    /* … reserved from messages, for control messages, the goodbye and the marker */
    RC_KEEP = 8,
    /* each so-many-th request asks for a completion, if none before it has to */
    RC_SIGNAL = 16,
    RC_INLINE = 128,      /* bytes that go within the request, where the device takes them */
    RC_IOV = 16,          /* pieces of a zcopy */
    RC_HEADER = 512,      /* bytes of a zcopy's header */
    RC_PACKED = 8192,     /* bytes of a bcopy */
    RC_COPY_BELOW = 1024, /* registering smaller payloads costs more than copying them */
    RC_ONE_SIDED = 1 << 20,
    RC_BUCKETS = 256,
    RC_CHUNK = 32, /* blocks registered together */
    RC_WORDS = 64, /* … words for old values */
    RC_REPOST = 16,
    RC_AGAIN_MS = 1000, /* … when a device has refused receives, or is not there */
    RC_READS = 16, /* gets and atomics under way in one direction, where the device has as many */
    RC_MEM_BUCKETS = 64,
    RC_CREDITS = 256,       /* what a peer may send before any of it is taken */
    RC_CREDIT_PART = 128,   /* … and what is given back at a time */
    RC_CREDIT_BYTES = 4096, /* that a message has for one */
    RC_ASKS = 32,           /* WANTs of one lane that wait for their answer */
    RC_PSN = 0xffffff
};

struct rc_iface;
struct rc_lane;

/* ---- what a lane has posted ------------------------------------------------------------------ */

/* What an operation holds until its request has completed, beyond what fits into rc_work. */
struct rc_op {
    /* What is to be done with a success; NULL: nothing. May keep the operation going: true. */
    bool (*finish)(struct rc_lane *lane, struct rc_op *op);
    struct completion *completion;
    struct rd_buf_ref *buf_ref[RC_IOV];
    unsigned n_buf_refs, n_pieces;
    char *staging; /* NULL, or what a strided piece is gathered into */
    struct rd_block *block;
    struct rd_block *word; /* where a device puts the old value of an atomic */
    struct rma_unpack unpack;
    void *old_p; /* the caller's, for the old value of an atomic */
    struct rma_piece piece[RC_IOV];
};

enum rc_what { RC_PLAIN, RC_BYE, RC_MARKER };
struct rc_work {
    struct rd_block *block;
    struct rc_op *op;
    struct completion *completion;
    enum rc_what what;
    bool any;        /* false: nothing is held for that request, and no callback is due */
    bool is_refused; /* the device did not take the request */
};

/* ---- a lane ---------------------------------------------------------------------------------- */

enum rc_todo {
    RC_TODO_BREAK = 1,
    RC_TODO_ACCEPTED = 2,
    RC_TODO_UP = 4,
    RC_TODO_RETRY = 8,
    RC_TODO_DOWN = 16,
    RC_TODO_CLOSED = 32,
    RC_TODO_KEYED = 64,
    RC_TODO_GO_ON = 128
};

TAILQ_HEAD(rc_lanes, rc_lane);
struct rc_lane {
    struct lane lane;
    struct rc_qp machine;
    struct ibv_qp *qp; /* NULL: none (yet, or any more) */
    struct rd_cm cm;   /* none where both lane addresses connect it */
    void (*take)(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len);
    struct rc_work *work;  /* a ring */
    uint32_t depth;        /* of it; a device that comes back may have another */
    uint32_t n_works;      /* of those under way: with anything in it */
    uint32_t posted, done; /* requests ever, and those that are over */
    uint32_t unsignalled;  /* posted since the last that asks for a completion */
    uint64_t bytes;        /* sent since the owner was notified */
    bool fence;            /* the next request waits for the gets and atomics before it */
    bool is_refused;       /* a request was: none goes out behind it, but the marker */
    /* the marker came back; the device has said its last word about the queue pair */
    bool marked, last_received;
    /* what it may send: a message is begun with one, and may need more */
    int32_t credit;
    uint32_t outstanding;  /* … and the peer may, for what was taken */
    bool paused;           /* by its owner */
    uint32_t backlog_cost; /* credits of what came since, or before its end */
    struct rc_backlog *backlog, **backlog_last;
    unsigned todo;
    struct job job;
    struct timer deadline;
    struct pending_queue pending;
    TAILQ_ENTRY(rc_lane) of_iface, of_worked;
    struct rc_lanes *on; /* the iface's list that it is on: worked, starved or none */
    LIST_ENTRY(rc_lane) of_bucket;
    struct tl_listener *listener; /* that it came through, until the owner was notified */
    bool acceptor;
    /* gets and atomics at once, of the peer's and of ours: what both devices have */
    uint8_t reads_in, reads_out;
    weft_status_t why;
    char cause[160]; /* of `why`, for its owner; "": none is known */
    uint32_t psn;
    struct rc_lane_address peer; /* by lane addresses */
    union rd_sockaddr peer_ip;
    struct rc_hello hello; /* as sent, or as received */
    struct rc_answer answer;
    uint8_t proof[RC_PROOF]; /* what the dialer says, or what the acceptor expects */

    struct word_queue words, waiting; /* to be said; keys that wait to ask */
    struct rc_key *keys;
    struct rc_grant *grants;
    uint32_t last_serial, n_asked, n_grants;
    uint32_t n_wanted; /* WANTs of the peer that wait for their answer */
    void *slab;        /* its own, once the lane is freed */
};

static inline struct rc_lane *rc_lane(struct lane *lane) {
    return (struct rc_lane *)lane;
}

struct tl_listener {
    struct rc_iface *iface;
    struct rd_cm cm;
    void *arg;
    bool own; /* asks for the token of the worker's address */
    int backlog;
    union rd_sockaddr at;
    char uri[96];
    LIST_ENTRY(tl_listener) of_iface;
};

/* ---- keys ------------------------------------------------------------------------------------ */

struct rc_key {
    struct lane_key key;
    struct fsm fsm;
    struct queued_word word;   /* WANT or DROP; or its place among those that wait to ask */
    struct rc_key *next, **at; /* `at` NULL: freed, but for its word */
    uint32_t serial, rkey;
    enum rc_atomics theirs; /* what the owner's device has */
    weft_status_t why;
};

struct rc_grant {
    struct fsm fsm;
    struct queued_word word; /* GRANT, DENY or REVOKE */
    struct rc_lane *lane;
    struct rc_grant *next, **at; /* of the lane */
    struct rc_mem *mem;          /* NULL: denied */
    struct rc_grant *mem_next, **mem_at;
    struct ibv_mw *window; /* NULL: the region's own key was given */
    bool bound;            /* the request that opens the window has been posted */
    uint32_t serial, rights, rkey;
    weft_status_t why;
    bool ended;
};

struct rc_mem {
    struct md_mem mem;
    struct rc_mem *next;
    struct ibv_mr *mr; /* made when it is first wanted, or the program's (region->mr) */
    bool given;        /* the program's */
    struct rc_grant *grants;
    struct rd_buf_ref local; /* `mr`, as operations of this side hold it */
    struct completion *revoked;
    struct timer give_up; /* on a peer that does not let go */
    uint32_t id;
};

/* ---- the interface --------------------------------------------------------------------------- */

struct rc_iface {
    struct iface iface;
    struct rd_user user;
    struct rd_device *device; /* NULL: it is gone */
    char device_name[80];
    struct rd_cq cq;
    struct ibv_srq *srq;
    struct rd_pool send, receive, words;
    /* the word for unrequested old values, allocated with the first */
    struct rd_block *discard_buf;
    struct rd_buf_refs buf_refs;
    struct slab lane_slab, op_slab;
    LIST_HEAD(, rc_lane) bucket[RC_BUCKETS];
    struct rc_lanes lanes;
    struct rc_lanes worked;  /* something of them is over */
    struct rc_lanes starved; /* they wait for what others have */
    LIST_HEAD(, tl_listener) listeners;
    struct tl_listener *own;
    uint8_t token[RC_TOKEN];
    struct trust_key key;
    bool have_key;
    struct timer again; /* looks whether the device is back, and posts receives that it refused */
    unsigned n_lanes, most_lanes; /* queue pairs */
    struct ibv_send_wr brief;     /* of inline messages; what all have in common stays */
    struct ibv_sge brief_piece;
    uint32_t depth, buffer, max_inline, n_receives, most_receives, max_grants;
    uint8_t reads;
    enum rc_atomics atomics; /* the device's */
    bool software;           /* it says no last word about a queue pair */
    uint32_t n_known;        /* regions that the device knows */
    uint32_t next_id;
    struct rd_block *repost; /* receives that were read */
    unsigned n_repost;
    struct rc_mem *mem[RC_MEM_BUCKETS];
    struct rc_mem *revoking;
};

static inline struct rc_iface *rc_iface_of(const struct rc_lane *lane) {
    return (struct rc_iface *)lane->lane.iface;
}
static inline struct reactor *rc_reactor(const struct rc_lane *lane) {
    return lane->lane.iface->reactor;
}
static inline weft_context_t *rc_context(const struct rc_lane *lane) {
    return weft__reactor_context(rc_reactor(lane));
}
static inline struct counters *rc_count(const struct rc_lane *lane) {
    return weft__count(rc_reactor(lane));
}

/* rc_lane.c: life, the machine's port, calls to the owner */
weft_status_t weft__rc_lane_new(struct rc_iface *iface, bool acceptor, struct rc_lane **lane_p);
void weft__rc_lane_free(struct rc_lane *lane); /* one that never began */
void weft__rc_lane_todo(struct rc_lane *lane, unsigned what);
/* kept if it is the first, without a cause */
void weft__rc_lane_why(struct rc_lane *lane, weft_status_t why);
/* the same, with the causes that were just noted (weft__fail) */
void weft__rc_lane_noted(struct rc_lane *lane, weft_status_t why);
/* the same, and the lane ends by its job */
void weft__rc_lane_break(struct rc_lane *lane, weft_status_t why);
/* the same for what its machine, or that of a key, does not allow */
void weft__rc_lane_fault(struct rc_lane *lane, enum fsm_verb verb);
/* logs, and steps BAD */
void weft__rc_lane_bad(struct rc_lane *lane, weft_status_t why, const char *what);
/* How many gets and atomics the peer's device sends at once, and how many it accepts. */
void weft__rc_lane_reads(struct rc_lane *lane, uint8_t in, uint8_t out);
void weft__rc_lane_end(struct rc_lane *lane); /* with the interface, without a word */
/* rc_given.c: what the program gave; never NULL. */
const struct given *weft__rc_given(const struct rc_iface *iface);
weft_status_t weft__rc_given_limits(struct rc_iface *iface, uint32_t *cqe_p);
/* A queue pair that no lane has. NULL, and errno: there is none. */
struct ibv_qp *weft__rc_given_take(struct rc_iface *iface);
/* An errno: the queue pair could not be reset. */
int weft__rc_given_return(struct ibv_qp *qp);
/* True: it was the program's, which has been notified. */
bool weft__rc_given_foreign(const struct rc_iface *iface, const struct ibv_wc *wc);

struct rc_lane *weft__rc_lane_find(const struct rc_iface *iface, uint32_t qp_num);
void weft__rc_lane_close(struct lane *lane, bool flush);
uint64_t weft__rc_lane_peer_id(const struct lane *l);
void weft__rc_lane_describe(struct lane *lane, char *buf, size_t size);
void weft__rc_lane_drained(struct rc_lane *lane); /* steps, if it is so */
weft_status_t weft__rc_lane_create(struct iface *iface, struct lane **lane_p);
weft_status_t weft__rc_lane_address(struct lane *lane, void *buf, size_t *len_p);
weft_status_t weft__rc_lane_connect(struct lane *lane, const void *bytes, size_t len);

/* rc_connect.c: by rdmacm */
weft_status_t weft__rc_own_address(struct iface *iface, void *buf, size_t *len_p);
weft_status_t weft__rc_reachable(struct iface *iface, const void *bytes, size_t len,
                                 const char **why_p);
weft_status_t weft__rc_connect_address(struct iface *iface, const void *bytes, size_t len,
                                       struct lane **lane_p);
weft_status_t weft__rc_connect_uri(struct iface *iface, const char *text, struct lane **lane_p);
weft_status_t weft__rc_listen(struct iface *iface, const char *text, const struct listen_how *how,
                              void *arg, struct tl_listener **listener_p);
const char *weft__rc_listener_uri(const struct tl_listener *listener);
void weft__rc_listener_close(struct tl_listener *listener);
/* the device is back; false: some cannot yet */
bool weft__rc_listeners_again(struct rc_iface *iface);
weft_status_t weft__rc_send_request(struct rc_lane *lane);
weft_status_t weft__rc_send_answer(struct rc_lane *lane);
void weft__rc_take_proof(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len);

/* rc_trust.c: who may connect */
weft_status_t weft__rc_trust_open(struct rc_iface *iface);
void weft__rc_trust_close(struct rc_iface *iface);
/* reads the key when it is first needed */
weft_status_t weft__rc_trust_ready(struct rc_iface *iface);
weft_status_t weft__rc_trust_check_listen(struct rc_iface *iface, bool own);
weft_status_t weft__rc_trust_hello(struct rc_lane *lane); /* the dialer's first word */
weft_status_t
/* the acceptor's answer, and the proof that it expects */
weft__rc_trust_challenge(struct rc_lane *lane);
/* the dialer looks at it, and makes its proof */
weft_status_t weft__rc_trust_answer(struct rc_lane *lane);
bool weft__rc_trust_token_equal(const uint8_t a[RC_TOKEN], const uint8_t b[RC_TOKEN]);

/* rc_iface.c */
weft_status_t weft__rc_iface_revive(struct rc_iface *iface);
void weft__rc_look_again(struct timer *timer); /* iface->again */

/* rc_post.c: requests, and what becomes of them */
static inline bool rc_has_room(const struct rc_lane *lane, unsigned keep) {
    return lane->posted - lane->done + keep < lane->depth;
}
/* wr's id, flags and list are set here. A request that fails breaks the lane by its job: then
 * the job completes what `work` holds. NULL: nothing is held, and no callback is due. */
void weft__rc_post(struct rc_lane *lane, struct ibv_send_wr *wr, const struct rc_work *work,
                   bool signal);
void weft__rc_post_nothing(struct rc_lane *lane,
                           const struct rc_work *work); /* comes back when all before it has */
bool weft__rc_post_word(struct rc_lane *lane, enum rc_message kind, const void *data, size_t len,
                        bool fence, enum rc_what what);
void weft__rc_sent(struct rc_lane *lane, uint32_t number, enum ibv_wc_status status);
/* the queue pair is no more: nothing is held for it */
void weft__rc_works_strip(struct rc_lane *lane);
/* completions of all that is left */
void weft__rc_works_notify(struct rc_lane *lane, weft_status_t status);
void weft__rc_op_free(struct rc_lane *lane, struct rc_op *op);
void weft__rc_retry(struct rc_lane *lane);
void weft__rc_enlist(struct rc_lane *lane, struct rc_lanes *list); /* NULL: none */

/* rc_credit.c */
static inline uint32_t rc_cost(size_t len) {
    return 1 + (uint32_t)(len / RC_CREDIT_BYTES);
}
void weft__rc_credit_return(struct rc_lane *lane);
void weft__rc_credited(struct rc_lane *lane);
weft_status_t weft__rc_pause(struct lane *l, bool on);
void weft__rc_go_on(struct rc_lane *lane);
void weft__rc_receive_rest(struct rc_lane *lane);
void weft__rc_backlog_drop(struct rc_lane *lane);

/* rc_send.c */
extern const struct lane_ops weft__rc_ops_early, weft__rc_ops_open, weft__rc_ops_ended;

/* rc_receive.c */
weft_status_t weft__rc_receives_open(struct rc_iface *iface);
void weft__rc_receives_close(struct rc_iface *iface);
void weft__rc_receives_more(struct rc_iface *iface);  /* the device says that they become few */
void weft__rc_receives_again(struct rc_iface *iface); /* those that were refused, or were read */
void weft__rc_took(struct rd_cq *cq, const struct ibv_wc *wc);
void weft__rc_polled(struct rd_cq *cq);
void weft__rc_take_messages(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len);
void weft__rc_take_nothing(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len);

/* rc_rma.c, rc_atomic.c */
weft_status_t weft__rc_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                 struct lane_key *key);
weft_status_t weft__rc_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *),
                                 void *arg, uint64_t remote, struct lane_key *key);
weft_status_t weft__rc_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from,
                                 uint64_t remote, struct lane_key *key,
                                 struct completion *completion);
weft_status_t weft__rc_get_bcopy(struct lane *lane, const struct rma_unpack *to, uint64_t remote,
                                 struct lane_key *key, struct completion *completion);
weft_status_t weft__rc_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to,
                                 uint64_t remote, struct lane_key *key,
                                 struct completion *completion);
weft_status_t weft__rc_atomic_post(struct lane *l, const struct lane_atomic *atomic,
                                   struct lane_key *key);
weft_status_t weft__rc_atomic_fetch(struct lane *l, const struct lane_atomic *atomic, void *old_p,
                                    struct lane_key *key, struct completion *completion);
weft_status_t weft__rc_fence(struct lane *l);
/* May a device perform the atomics of a region with these rights, of an owner whose device has
 * that? */
static inline bool rc_device_may(unsigned rights, enum rc_atomics theirs) {
    if (!(rights & WEFT_MEM_ATOMIC) || theirs == RC_ATOMICS_NONE) return false;
    return rights & WEFT_MEM_ATOMIC_DEVICE || theirs == RC_ATOMICS_GLOBAL;
}
/* A registration of [base, base + len) for one operation: the region's, where it is one of ours,
 * else an exposure. */
weft_status_t weft__rc_local_key(struct rc_lane *lane, struct rc_op *op, void *base, size_t len,
                                 bool writes, uint32_t *lkey_p);

/* rc_key.c: the importer's side, and words */
weft_status_t weft__rc_key_open(struct lane *l, const struct remote_region *region,
                                const void *packed, size_t len, struct lane_key **key_p);
void weft__rc_key_close(struct lane_key *key);
void weft__rc_keys_end(struct rc_lane *lane, weft_status_t status);
void weft__rc_keys_free(struct rc_lane *lane);
size_t weft__rc_key_word(const struct rc_key *key, void *to);
void weft__rc_key_sent(struct rc_lane *lane, struct rc_key *key);
void weft__rc_key_received(struct rc_lane *lane, enum rc_message kind, const struct rc_word *word);
void weft__rc_send(struct rc_lane *lane, struct queued_word *word, enum rc_message kind);
void weft__rc_words_flush(struct rc_lane *lane);

/* rc_grant.c: the owner's side */
bool weft__rc_mem_reuses(const struct iface *iface, const struct region *region);
weft_status_t weft__rc_mem_register(struct iface *i, const struct region *region,
                                    struct md_mem **mem_p);
weft_status_t weft__rc_mem_revoke(struct md_mem *m, struct completion *completion);
size_t weft__rc_key_pack(const struct md_mem *mem, void *to);
size_t weft__rc_grant_word(const struct rc_grant *grant, void *to);
void weft__rc_grant_bind(struct rc_lane *lane, struct rc_grant *grant);
void weft__rc_grant_sent(struct rc_lane *lane, struct rc_grant *grant);
void weft__rc_wanted(struct rc_lane *lane, const struct rc_want *want);
void weft__rc_dropped(struct rc_lane *lane, const struct rc_word *word);
void weft__rc_grants_end(struct rc_lane *lane); /* its queue pair is no more */
void weft__rc_mems_end(struct rc_iface *iface, bool free_them);
/* The registration of a region of the worker that holds these bytes, if the device knows one: for
 * one operation, until weft__rd_buf_ref_return. The region is not revoked before that. */
struct rd_buf_ref *weft__rc_mem_hold(const struct rc_iface *iface, const void *base, size_t len,
                                     bool writes);

#endif
