/*
 * A collective as a schedule: what one rank sends, receives, reduces and copies, and what must be
 * done before what. It is a pure function of (algorithm, shape), so that a test can run all ranks'
 * schedules without a network (tests/collectives/checker.h). The runner may take its steps in
 * any order that keeps `after`.
 */
#ifndef WEFT_COLLECTIVES_SCHEDULE_H
#define WEFT_COLLECTIVES_SCHEDULE_H

#include <stdbool.h>
#include <weft/collective.h>

/* Every collective by its public number: name in settings, does it end with all having begun? */
#define COLL_KINDS(K)                          \
    K(BARRIER, barrier, true)                  \
    K(BCAST, bcast, false)                     \
    K(ALLREDUCE, allreduce, true)              \
    K(ALLGATHER, allgather, true)              \
    K(FANIN, fanin, false)                     \
    K(FANOUT, fanout, false)                   \
    K(GATHER, gather, false)                   \
    K(GATHERV, gatherv, false)                 \
    K(SCATTER, scatter, false)                 \
    K(SCATTERV, scatterv, false)               \
    K(REDUCE, reduce, false)                   \
    K(REDUCE_SCATTER, reduce_scatter, true)    \
    K(REDUCE_SCATTERV, reduce_scatterv, false) \
    K(ALLGATHERV, allgatherv, false)           \
    K(ALLTOALL, alltoall, true)                \
    K(ALLTOALLV, alltoallv, false)             \
    K(SCAN, scan, false)                       \
    K(EXSCAN, exscan, false)                   \
    K(NEIGHBOR_ALLTOALLV, neighbor_alltoallv, false)

enum coll_kind {
#define KIND_ID(kind, name, joins) COLL_##kind = WEFT_COLL_##kind,
    COLL_KINDS(KIND_ID)
#undef KIND_ID
        N_COLL_KINDS
};

/* Where the buffers of a collective are. */
enum coll_memory { COLL_HOST, COLL_CUDA, N_COLL_MEMORIES };

/* Blocks of a buffer, in elements, as the v-forms give them. `count` NULL: equal, in a row. */
struct coll_vector {
    const uint64_t *count, *offset;
};

/*
 * What the user asked for. `SRC` is his (read only), `DST` his, `SCRATCH` the collective's own.
 * They are:
 *   barrier, fanin, fanout   nothing
 *   bcast           DST: count elements, filled at the root
 *   allreduce       SRC and DST: count elements; the same memory or apart
 *   reduce          the same; DST at the root only
 *   scan, exscan    the same; DST of an exscan is not touched at rank 0
 *   allgather(v)    SRC: count elements; DST: a block of each; SRC may be its own place in DST
 *   gather(v)       the same; DST at the root only
 *   scatter(v)      SRC at the root: a block for each; DST: count elements; at the root DST may be
 *                   its own place in SRC
 *   reduce_scatter(v)  SRC: a block for each, in a row; DST: count elements, or its own place
 *                   in SRC
 *   alltoall(v)     SRC: a block for each; DST: a block of each; the same memory only if `in_place`
 *   neighbor_alltoallv  SRC: a block for each destination; DST: a block of each source
 */
struct coll_shape {
    enum coll_kind kind;
    uint32_t size, rank, root;
    uint64_t count;
    uint32_t width;          /* bytes of an element */
    uint64_t segment;        /* bytes that a pipeline cuts into */
    bool joined;             /* it ends with everybody knowing that everybody has begun */
    bool in_place;           /* alltoall(v): SRC and DST are the same memory */
    bool unexposed;          /* no key to DST here: what others would put there they send */
    enum coll_memory memory; /* of SRC and DST; scratch is taken there, too */
    uint32_t radix;          /* of k-nomial trees; 0: 2 */
    /* Groups of a hierarchy: of each rank; or NULL: `per_group` neighbours each (0: one group). */
    const uint32_t *group_of;
    uint32_t per_group;
    unsigned inner, outer;         /* algorithms of a hierarchy, plus one; 0: as `choices` say */
    const struct choices *choices; /* NULL: the usual ones */
    uint32_t per_core;             /* ranks per core, for those */
    uint64_t slot; /* of the segment that this rank's group shares, in bytes; 0: it has none */
    const uint64_t *known; /* the counts that were asked for, see struct coll_asking */
    uint64_t n_known;
    struct coll_vector src, dst;
    uint32_t n_sources, n_destinations; /* neighbor_alltoallv */
    const uint32_t *source, *destination;
};

enum coll_buffer { COLL_SRC, COLL_DST, COLL_SCRATCH, N_COLL_BUFFERS };

struct coll_ref {
    enum coll_buffer buffer;
    uint64_t offset;
};

enum step_verb {
    STEP_SEND,   /* `left` to the peer */
    STEP_RECV,   /* `to` from the peer's send with the same tag; see weft__reads_alone */
    STEP_REDUCE, /* to = left op right */
    STEP_COPY,   /* to = left */
    STEP_PUT, /* `left` to the peer's DST at `to`, by the key in `right`; done when it is there */
    /* A collective of this rank's group by the slots of its segment: of kind `tag`, with `left` as
     * SRC and `to` as DST, `len` bytes of or for each rank; `peer` is the root's place in the
     * group, `right` the group's size. */
    STEP_SHARE
};

/* A key of DST, as members send it to each other. An empty one says that there is none: what was to
 * be put goes with the word that it is there, which is the step that waits for the put. */
enum { COLL_KEY_BYTES = 512 };

/* Numbers of steps begin at 1, so that 0 means none. */
struct step {
    uint64_t to, left, right; /* offsets, in bytes */
    uint64_t len;
    uint32_t peer, tag; /* (peer, tag) is used once in each direction */
    uint32_t after[3];
    uint8_t verb, to_buffer, left_buffer, right_buffer;
};

/* Where the steps of a part go: another numbering of ranks, other tags and buffers. */
struct coll_view {
    const struct coll_view *outer;
    const uint32_t *map; /* from its ranks to those outside; NULL: the same */
    uint32_t tag, shift; /* added to tags; how far the next part's number is shifted */
    struct coll_ref at[N_COLL_BUFFERS];
};

struct schedule {
    struct step *step;
    uint32_t n_steps, room;
    uint64_t scratch;     /* bytes; in the end no more than the steps touch */
    weft_status_t status; /* of the building: it goes on in vain after the first error */
    struct coll_shape shape;
    uint32_t n_shared;            /* steps through a segment */
    const struct coll_view *view; /* of the part that is being built, or NULL */
    bool exposes;                 /* scratch memory begins with the key of this member's DST */
    uint32_t gate, gated;         /* what all further steps wait for; steps below are behind it */
};

/* Every algorithm over messages: which collective, whether it reduces in rank order, from the
 * left. */
#define ALGORITHMS(A)                    \
    A(BARRIER, dissemination, false)     \
    A(BARRIER, tree, false)              \
    A(BARRIER, knomial, false)           \
    A(BARRIER, hierarchy, false)         \
    A(BCAST, binomial, false)            \
    A(BCAST, chain, false)               \
    A(BCAST, knomial, false)             \
    A(BCAST, linear, false)              \
    A(BCAST, scatter_allgather, false)   \
    A(BCAST, double_tree, false)         \
    A(BCAST, hierarchy, false)           \
    A(BCAST, direct, false)              \
    A(ALLREDUCE, doubling, false)        \
    A(ALLREDUCE, ring, false)            \
    A(ALLREDUCE, fold, true)             \
    A(ALLREDUCE, pipeline, true)         \
    A(ALLREDUCE, rabenseifner, false)    \
    A(ALLREDUCE, biring, false)          \
    A(ALLREDUCE, tree, false)            \
    A(ALLREDUCE, hierarchy, false)       \
    A(ALLGATHER, bruck, false)           \
    A(ALLGATHER, neighbours, false)      \
    A(ALLGATHER, exchange, false)        \
    A(ALLGATHER, doubling, false)        \
    A(ALLGATHER, linear, false)          \
    A(ALLGATHER, hierarchy, false)       \
    A(ALLGATHER, direct, false)          \
    A(FANIN, knomial, false)             \
    A(FANIN, linear, false)              \
    A(FANIN, hierarchy, false)           \
    A(FANOUT, knomial, false)            \
    A(FANOUT, linear, false)             \
    A(FANOUT, hierarchy, false)          \
    A(GATHER, knomial, false)            \
    A(GATHER, linear, false)             \
    A(GATHER, hierarchy, false)          \
    A(GATHERV, linear, false)            \
    A(GATHERV, hierarchy, false)         \
    A(SCATTER, knomial, false)           \
    A(SCATTER, linear, false)            \
    A(SCATTER, hierarchy, false)         \
    A(SCATTERV, linear, false)           \
    A(SCATTERV, hierarchy, false)        \
    A(REDUCE, knomial, false)            \
    A(REDUCE, linear, true)              \
    A(REDUCE, chain, true)               \
    A(REDUCE, hierarchy, false)          \
    A(REDUCE_SCATTER, halving, false)    \
    A(REDUCE_SCATTER, ring, false)       \
    A(REDUCE_SCATTER, pairwise, false)   \
    A(REDUCE_SCATTER, fold, true)        \
    A(REDUCE_SCATTER, hierarchy, false)  \
    A(REDUCE_SCATTERV, halving, false)   \
    A(REDUCE_SCATTERV, ring, false)      \
    A(REDUCE_SCATTERV, pairwise, false)  \
    A(REDUCE_SCATTERV, fold, true)       \
    A(REDUCE_SCATTERV, hierarchy, false) \
    A(ALLGATHERV, ring, false)           \
    A(ALLGATHERV, linear, false)         \
    A(ALLGATHERV, hierarchy, false)      \
    A(ALLTOALL, pairwise, false)         \
    A(ALLTOALL, bruck, false)            \
    A(ALLTOALL, linear, false)           \
    A(ALLTOALL, direct, false)           \
    A(ALLTOALL, hierarchy, false)        \
    A(ALLTOALLV, pairwise, false)        \
    A(ALLTOALLV, linear, false)          \
    A(ALLTOALLV, hierarchy, false)       \
    A(SCAN, linear, true)                \
    A(SCAN, doubling, false)             \
    A(SCAN, hierarchy, false)            \
    A(EXSCAN, linear, true)              \
    A(EXSCAN, doubling, false)           \
    A(EXSCAN, hierarchy, false)          \
    A(NEIGHBOR_ALLTOALLV, linear, false)

enum coll_algorithm {
#define ALGORITHM_ID(kind, name, fixed) ALGORITHM_##kind##_##name,
    ALGORITHMS(ALGORITHM_ID)
#undef ALGORITHM_ID
        N_ALGORITHMS
};

struct algorithm {
    enum coll_kind kind;
    const char *name;
    bool fixed_order;
    void (*build)(struct schedule *s);
};
extern const struct algorithm weft__algorithms[N_ALGORITHMS];

/*
 * An algorithm whose counts are not known where they are needed. `build` adds steps of a schedule
 * that is run before it, of 64-bit counts: SRC are those that `counts` writes (it returns how many,
 * also for NULL), and what is in scratch memory afterwards is `known`.
 */
struct coll_asking {
    void (*build)(struct schedule *s);
    uint32_t (*counts)(const struct coll_shape *shape, uint64_t *count);
};
/* NULL: it asks nothing. */
const struct coll_asking *weft__asking(unsigned algorithm);
/* The tags of that schedule have this bit. */
#define ASK_TAG (UINT32_C(1) << 31)

/* Its name in settings and texts. */
const char *weft__coll_name(enum coll_kind kind);
/* No member ends it before all have begun it. */
bool weft__coll_joins(enum coll_kind kind);
/* All members give the same count. */
bool weft__coll_is_even(enum coll_kind kind);

/* A talloc child of `parent`. WEFT_ERR_NO_MEMORY, WEFT_ERR_TOO_BIG. */
weft_status_t weft__schedule_build(const void *parent, enum coll_algorithm algorithm,
                                   const struct coll_shape *shape, struct schedule **schedule_p);

/* The same by a function that adds the steps. */
weft_status_t weft__schedule_build_by(const void *parent, void (*build)(struct schedule *s),
                                      const struct coll_shape *shape, struct schedule **schedule_p);

/* ---- for algorithms: each adds a step and returns its number; 0 for one of zero length ------ */

struct after {
    uint32_t step[3];
};
#define AFTER(...)         ((struct after){{__VA_ARGS__}})
#define AT(buffer, offset) ((struct coll_ref){COLL_##buffer, (offset)})

uint32_t weft__add_send(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref from,
                        uint64_t len, struct after after);
uint32_t weft__add_recv(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref to,
                        uint64_t len, struct after after);
uint32_t weft__add_reduce(struct schedule *s, struct coll_ref to, struct coll_ref left,
                          struct coll_ref right, uint64_t len, struct after after);
uint32_t weft__add_copy(struct schedule *s, struct coll_ref to, struct coll_ref from, uint64_t len,
                        struct after after);
/*
 * The reduction `reduced` is the only step that reads what the receive `got` brought. It may then
 * take its operand straight from the message, and `to` of the receive stays as it was. The number
 * of the reduction is `right` of the receive.
 */
void weft__reads_alone(struct schedule *s, uint32_t got, uint32_t reduced);
/* Puts `len` bytes to the offset `to` of the peer's DST, whose key lies at `key` in scratch
 * memory. */
struct coll_put {
    uint32_t peer;
    struct coll_ref from;
    uint64_t to, key, len;
};
uint32_t weft__add_put(struct schedule *s, const struct coll_put *put, struct after after);
/* Of the schedule's own shape, which is a group's. */
uint32_t weft__add_share(struct schedule *s);
/* The bytes of SRC and of DST that such a step touches. */
struct share_extent {
    uint64_t src, dst;
};
struct share_extent weft__share_extent(const struct step *step, uint32_t place);
/* A signal carries nothing, and is a step nevertheless. */
uint32_t weft__add_signal(struct schedule *s, uint32_t peer, uint32_t tag, struct after after);
uint32_t weft__add_await(struct schedule *s, uint32_t peer, uint32_t tag, struct after after);

/* Tags from here on belong to the barrier that joins a collective. */
enum { JOIN_TAG = 1 << 30 };
void weft__add_dissemination(struct schedule *s, uint32_t tag);

/* Parts of algorithms that others use. `bytes` from each rank, at its place in `buffer`; `own`
 * filled it. */
uint32_t weft__add_gather(struct schedule *s, enum coll_buffer buffer, uint64_t bytes,
                          uint32_t own);

/* All steps so far come before all that are added from now on. */
void weft__add_gate(struct schedule *s);

/* A part of a schedule that is a schedule itself: built by `build` for `shape`, put in place. */
struct coll_part {
    void (*build)(struct schedule *s);
    enum coll_algorithm usual; /* of a hierarchy: unless another is chosen */
    bool across;               /* between its groups */
    struct coll_shape shape;
    const uint32_t *map;      /* see struct coll_view; must live until the part is built */
    uint32_t number;          /* below 16, the part's own in its schedule, the same everywhere */
    struct coll_ref src, dst; /* what it sees as these */
    uint64_t scratch;         /* from where on it may use scratch memory */
};
void weft__add_part(struct schedule *s, const struct coll_part *part);

/* A k-nomial tree over places 0.. (place 0 is its root). */
struct knomial {
    uint32_t parent, unit; /* its subtree is [place, place + unit), cut at the size */
};
struct knomial weft__knomial(const struct coll_shape *shape, uint32_t place);
/* Of a vector of `count` elements. */
static inline uint64_t weft__shape_bytes(const struct coll_shape *shape) {
    return shape->count * shape->width;
}

/* Of a pipeline over that: whole elements, and no more than there are. */
static inline uint64_t weft__segment_bytes(const struct coll_shape *shape) {
    uint64_t bytes = weft__shape_bytes(shape);
    uint64_t segment = shape->segment - shape->segment % shape->width;
    return bytes < segment ? bytes : segment;
}

static inline uint32_t weft__radix(const struct coll_shape *shape) {
    return shape->radix < 2 ? 2 : shape->radix;
}

static inline uint32_t weft__group_of(const struct coll_shape *shape, uint32_t rank) {
    if (shape->group_of) return shape->group_of[rank];
    return shape->per_group ? rank / shape->per_group : 0;
}

/* The `index`-th of `parts` nearly equal pieces of `count` elements. */
struct piece {
    uint64_t offset, len; /* bytes */
};
static inline struct piece weft__piece(uint64_t count, uint32_t width, uint64_t parts,
                                       uint64_t index) {
    uint64_t base = count / parts, more = count % parts;
    uint64_t first = index * base + (index < more ? index : more);
    return (struct piece){first * width, (base + (index < more)) * width};
}

/* A rank's block of a vector, in bytes; without counts they are equal. */
static inline struct piece coll_block(uint64_t count, uint32_t width, struct coll_vector v,
                                      uint32_t r) {
    if (!v.count) return (struct piece){r * count * width, count * width};
    return (struct piece){v.offset[r] * width, v.count[r] * width};
}
/* The same in SRC and in DST. */
static inline struct piece weft__block(const struct coll_shape *shape, struct coll_vector v,
                                       uint32_t r) {
    return coll_block(shape->count, shape->width, v, r);
}
static inline struct piece weft__src_block(const struct coll_shape *shape, uint32_t r) {
    return weft__block(shape, shape->src, r);
}
static inline struct piece weft__dst_block(const struct coll_shape *shape, uint32_t r) {
    return weft__block(shape, shape->dst, r);
}

#define ALGORITHM_BUILD(kind, name, fixed) void weft__build_##kind##_##name(struct schedule *s);
ALGORITHMS(ALGORITHM_BUILD)
#undef ALGORITHM_BUILD

#endif
