/* A collective in progress: a plan that is run over messages, or turns at the team's shared
 * slots. */
#ifndef WEFT_COLLECTIVES_COLLECTIVE_H
#define WEFT_COLLECTIVES_COLLECTIVE_H

#include "reductions.h"
#include "team.h"

/* What the user called: every operation in one form. Arrays are borrowed for the call. */
struct coll_call {
    enum coll_kind kind;
    const void *src;
    void *dst;
    uint64_t count; /* of this member, where members' counts differ */
    uint32_t width, root;
    unsigned type, reduction; /* as the program named them */
    reduce_fn reduce;         /* of those that reduce */
    weft_reduce_fn user;      /* in its place, the program's own */
    void *user_arg;
    scale_fn scale; /* at the end, of the result; or NULL */
    bool fixed_order, in_place;
    bool persistent; /* prepared once: all counts have to be known then */
    enum coll_memory memory;
    unsigned algorithm; /* chosen */
    struct coll_vector src_blocks, dst_blocks;
    uint32_t n_sources, n_destinations;
    const uint32_t *source, *destination;
    struct coll_set set;
    bool tagged;
    uint64_t tag;
    struct coll_staging *staging; /* layouts: packed memory; the collective's from its start on */
};

static inline uint64_t coll_bytes(const struct coll_call *call) {
    return call->count * call->width;
}

/* Elements of one block, so that no sum of blocks of a member passes 64 bits. */
#define ELEMENTS_MOST(width, size) ((UINT64_C(1) << 56) / (width) / (size))

/* Who reads from whom: all from the root, the root from all, each from itself and the ranks below
 * it, all from all. */
enum coll_readers { NO_READERS, FROM_ROOT, BY_ROOT, FROM_BELOW, FROM_ALL };
static inline bool coll_reads(enum coll_readers readers, uint32_t root, uint32_t reader,
                              uint32_t owner) {
    switch (readers) {
    case FROM_ROOT: return owner == root;
    case BY_ROOT: return reader == root;
    case FROM_BELOW: return owner <= reader;
    default: return true;
    }
}

static inline void coll_reduce(const struct coll_call *call, void *to, const void *left,
                               const void *right, uint64_t count) {
    if (call->user)
        call->user(to, left, right, count, call->user_arg);
    else
        call->reduce(to, left, right, count);
}

/* types.c: packs what a persistent one sends: at each start. Errors: IO, NO_MEMORY. */
weft_status_t weft__staging_pack(const struct coll_staging *staging);
/* Unpacks a result, and frees what was packed; or only that. A persistent one's stays. */
void weft__staging_end(struct coll_staging *staging, weft_status_t *status_p);
void weft__staging_drop(struct coll_staging *staging);

/* The same for device memory, when its way is decided. */
weft_status_t weft__stage_device(const weft_team_t *team, struct coll_call *call);

struct collective;

/* A way to carry one out. */
struct coll_engine {
    /* Within the call; NULL: never. May this one enter, with all that it needs afterwards? The team
     * has no other in progress. */
    bool (*prepare_start)(weft_team_t *team, const struct coll_call *call);
    /* Enters, and looks for the others: is it over? If not, prepare() finds it `entered`, in the
     * use that is returned, and cannot fail. */
    uint64_t (*start)(weft_team_t *team, const struct coll_call *call, bool *over_p);
    weft_status_t (*prepare)(struct collective *c);
    bool (*advance)(struct collective *c); /* as far as it goes; is it over? */
    bool (*needs)(const struct collective *c, uint32_t rank);
    /* is a message of its in flight? NULL: there are none */
    bool (*awaits)(const struct collective *c, uint32_t rank);
    bool (*may_move)(const struct collective *c); /* looks only; NULL: messages drive it */
    /* must others leave before it goes on? They wake it then; NULL: never */
    bool (*needs_space)(const struct collective *c);
    /* it is stopped: others must not touch its memory any more; NULL: nothing to do */
    void (*recall)(struct collective *c);
    /* stopped, with something in flight: is that back? NULL: messages say so */
    bool (*drained)(struct collective *c);
    void (*release)(struct collective *c); /* it is over; NULL: nothing to do */
};
extern const struct coll_engine weft__steps, weft__hosted, weft__slots, weft__oneshot,
    weft__single_copy;

enum step_state { STEP_WAITS, STEP_POSTED, STEP_ASKED, STEP_IN_FLIGHT, STEP_DONE };

/* A message that came before its step was ready; `data` is kept. */
struct early {
    struct list of;
    uint32_t id, seq, tag, from, stream;
    weft_team_t *pool; /* whose spare memory it is; NULL: no team's */
    const void *data;
    size_t len;
};

/* Counted against coll.unexpected_bytes: one of no bytes takes memory, too. */
static inline uint64_t early_cost(const struct early *early) {
    return early->len + sizeof *early;
}

struct step_run {
    struct collective *collective;
    struct early *early;
    weft_request_t *request;
    uint32_t waits;
    enum step_state state;
    bool reduced;   /* straight from the message that it waited for */
    uint32_t block; /* 1 + the put whose bytes it carries: the peer has no key; 0: none */
};

/* Memory for the few steps of a short collective over messages. */
struct step_buffers {
    struct step_run *step; /* NULL: none yet */
    uint32_t *ready;
};

/* A persistent one: what it would take and give back otherwise is its own. */
struct weft_coll {
    weft_team_t *team;
    struct list of_team;
    uint64_t number; /* of those of its team */
    struct coll_call call;
    struct collective *collective;
    bool nothing, active;
    struct coll_order *order;
    struct plan *plan[2]; /* the second one joins the members; NULL: not over messages */
    struct step_run *step;
    uint32_t *ready;
    struct slot_run *slots;
    uint8_t *scratch;
};

struct collective {
    struct collective_core core;
    weft_team_t *team;
    struct list of_team;
    struct coll_call call;
    const struct coll_engine *engine;
    /* the user's; NULL: no waiter, or it is the team's own */
    struct weft_request *request;
    void (*over)(weft_team_t *, weft_status_t); /* the team's own */
    weft_status_t status;
    uint32_t n_in_flight; /* sends and receives in flight */
    struct job notify, returned;
    struct timer deadline; /* notes who is late; then the team's, where the call names none */
    uint64_t begun;        /* when, in ns; 0: it was over within the call */
    bool has_limit;        /* the team's deadline is its own */
    bool noted;            /* who is late is shown */

    /* Over messages. */
    uint32_t seq, n_left;
    struct coll_order *order;
    uint32_t size, rank;    /* within its set of members */
    struct weft_coll *kept; /* a persistent one's: what is prepared stays */
    struct plan *plan;
    struct asked *asked; /* it asks for counts, and goes on with this then; or NULL */
    bool joins;          /* it ends with a barrier, to join the members */
    struct step_run *step;
    uint32_t *ready, n_ready; /* a stack */
    struct step_buffers few;  /* for both, if they are few; it stays with this memory */
    uint8_t *buffer[N_COLL_BUFFERS];
    uint64_t scratch_bytes;
    weft_mem_t *exposed; /* DST, for puts of others; or NULL */

    uint64_t number;   /* of those of the team that have no tag */
    struct peer *peer; /* of device memory, by peer memory; or NULL */
    void *arrays;      /* of one that is deferred: owns copies of the caller's; or NULL */

    /* Through the segment: over when `left` is `n_parts`. */
    uint64_t first_use;
    uint32_t n_parts, entered, left;
    struct slot_run slots;     /* by slots; */
    struct slot_run *slots_of; /* or those that are steps of the schedule, and how many */
    uint32_t n_slots;

    /* By reading the others' memory. */
    unsigned stage;
    uint32_t n_taken; /* members whose block this one has, in this stage, and which they are */
    uint64_t taken[SEGMENT_MOST_MEMBERS / 64];
    uint32_t taking;      /* the member whose block it is at, */
    uint64_t at;          /* and the bytes done of that */
    struct piece *blocks; /* of a v-form: of SRC and of DST, for each member; or NULL */
    uint8_t *saved;       /* SRC, where it is DST, too; or NULL */
};

const struct coll_engine *weft__engine_of(unsigned algorithm);

/* Begins it: WEFT_OK when it is done already, WEFT_IN_PROGRESS, or an error: nothing has happened,
 * or a layout has failed. The staging of the call is not the caller's any more, in each case. */
weft_status_t weft__collective_start(weft_team_t *team, const struct coll_call *call,
                                     const weft_op_t *op,
                                     void (*over)(weft_team_t *, weft_status_t));
/* The same for a persistent one. */
weft_status_t weft__collective_restart(struct weft_coll *kept, const weft_op_t *op);
/* The team has failed: it ends with the team's status. */
void weft__collective_stop(struct collective *c);
/* A member left in good order: collectives that still need it end. */
void weft__collectives_without(weft_team_t *team, uint32_t rank);
/* Is something under way to this side that a member sent? */
bool weft__collectives_await(const weft_team_t *team, uint32_t rank);
/* The order that a call stands in: the team's, or that of its tag and set, made on first use. */
weft_status_t weft__collective_order(weft_team_t *team, const struct coll_call *call,
                                     struct coll_order **order_p);
/* This member's number among those of the call, and theirs. */
static inline uint32_t coll_size(const weft_team_t *team, const struct coll_call *call) {
    return call->set.size ? call->set.size : team->size;
}
static inline uint32_t coll_member(const struct coll_call *call, uint32_t index) {
    return call->set.size ? call->set.start + index * call->set.stride : index;
}
/* UINT32_MAX: it is none of them. */
static inline uint32_t coll_index(const struct coll_call *call, uint32_t rank) {
    const struct coll_set *set = &call->set;
    if (!set->size) return rank;
    uint32_t far = rank - set->start;
    bool within = rank >= set->start && far % set->stride == 0 && far / set->stride < set->size;
    return within ? far / set->stride : UINT32_MAX;
}

/* A message of the team; takes over `am`'s payload if need be. */
void weft__collective_message(weft_team_t *team, unsigned id, const struct coll_wire *wire,
                              weft_am_t *am);
/* The same for one that was kept because it came too early. */
void weft__collective_early(weft_team_t *team, struct early *early);
/* What came too early, kept: small messages only, since what is larger was not asked for yet. */
weft_status_t weft__early_new(weft_team_t *team, unsigned id, const struct coll_wire *wire,
                              weft_am_t *am, struct early **early_p);
void weft__early_drop(weft_worker_t *worker, struct early *early);
/* So many can be kept without an allocation (or nearly so many: memory may be short). */
void weft__early_reserve(weft_team_t *team, uint32_t n);

/* ---- late.c: members that are late, and the team's deadline */
enum { LATE_AFTER_S = 1 }; /* they are asked after 1 s, 2 s, 4 s and so on */

weft_status_t weft__late_reserve(struct collective *c, const weft_op_t *op);
/* It was not over within its call. */
void weft__late_begin(struct collective *c);
/* It is off the team's list. */
void weft__late_end(struct collective *c);
/* Its deadline has passed: names those that it waits for in the team's `why`. */
void weft__late_name(struct collective *c);
enum { NO_RANK = UINT32_MAX };
/* Before the team fails: notes what happened, and what the first collective in progress that needs
 * `rank` (NO_RANK: any) was at: "allreduce 7, 9 of 14 steps done: rank 3 has left". */
void weft__late_note(weft_team_t *team, uint32_t rank, const char *what);
/* Fails the team because of what went wrong between this member and another. */
void weft__team_loses(weft_team_t *team, uint32_t rank, weft_status_t status);
/* Fails it because a collective needs a member that has left. */
void weft__team_misses(weft_team_t *team, uint32_t rank);

/* The same for each member that has left already and that this collective needs. */
void weft__collective_misses_gone(struct collective *c);

/* ---- steps.c, steps_prepare.c: over messages */

/* Has nothing of `rank` come that a step of this member still takes? */
bool weft__steps_miss(const struct collective *c, uint32_t rank);

void weft__steps_recall(struct collective *c);
/* It asks for counts still: messages of its blocks wait. */
bool weft__steps_defer(const struct collective *c, const struct coll_wire *wire);
void weft__steps_data(struct collective *c, const struct coll_wire *wire, weft_am_t *am);
void weft__steps_go(struct collective *c, const struct coll_wire *wire);
void weft__steps_release(struct collective *c);
/* Takes and gives back what all starts of a persistent one need. */
weft_status_t weft__steps_keep(struct weft_coll *kept);
void weft__steps_unkeep(struct weft_coll *kept);
/* One message to a member. Its payload is in use until `op` completes. */
struct coll_message {
    unsigned id; /* enum coll_wire_id */
    uint32_t seq, tag;
    weft_iov_t payload;
    const weft_op_t *op;
};
weft_status_t weft__coll_send(weft_team_t *team, uint32_t rank, const struct coll_message *m);
/* The schedule's shape of a call. */
struct coll_shape weft__coll_shape(const weft_team_t *team, const struct coll_call *call);

/* All engines, when the last step is done; and what a result still lacks then. */
void weft__collective_complete(struct collective *c);
void weft__collective_finish(struct collective *c);

/* ---- slots.c, oneshot.c, single_copy.c: through the team's segment */

bool weft__slots_can_take(const weft_team_t *team, const struct coll_call *call);
bool weft__oneshot_can_take(const weft_team_t *team, const struct coll_call *call);
bool weft__single_copy_can_take(const weft_team_t *team, const struct coll_call *call);
/* From which power of two on it pays here, as far as this member can see; never below these bytes.
 * The largest of all members counts. */
enum { SINGLE_COPY_BYTES = 16 << 10 };
enum { SINGLE_COPY_EXPOSED = 13 /* it has exposed regions */, SINGLE_COPY_NEVER = 64 };
uint32_t weft__single_copy_least(const weft_team_t *team);

/* ---- shared.c: all of these */

bool weft__shared_over(const struct collective *c);
void weft__shared_watch(weft_team_t *team);
void weft__shared_unwatch(weft_team_t *team);
/* Something was published: wakes the members that sleep for it. */
void weft__shared_wake(weft_team_t *team, enum segment_sleep sleep);
/* The same where a fence has followed that already. */
void weft__shared_wake_seen(weft_team_t *team, enum segment_sleep sleep);
/* Does any member sleep for it? */
bool weft__shared_sleeps(const weft_team_t *team, enum segment_sleep sleep);

#endif
