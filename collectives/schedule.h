/*
 * A collective as a schedule: what one rank sends, receives, reduces and copies, and what must be done before
 * what. It is a pure function of (algorithm, shape), so that a test can run all ranks' schedules without a network
 * (tests/collectives/checker.h). Whoever runs one may take its steps in any order that keeps `after`.
 */
#ifndef WEFT_COLLECTIVES_SCHEDULE_H
#define WEFT_COLLECTIVES_SCHEDULE_H

#include <stdbool.h>
#include <weft/collective.h>

enum coll_kind { COLL_BARRIER, COLL_BCAST, COLL_ALLREDUCE, COLL_ALLGATHER, N_COLL_KINDS };

/*
 * What the user asked for. `SRC` is his (read only), `DST` his, `SCRATCH` the collective's own. They are:
 *   barrier    nothing
 *   bcast      DST: count elements, filled at the root
 *   allreduce  SRC and DST: count elements; the same memory or apart
 *   allgather  SRC: count elements; DST: size × count; SRC may be its own place in DST
 */
struct coll_shape {
    enum coll_kind kind;
    uint32_t size, rank, root;
    uint64_t count;
    uint32_t width;   /* bytes of an element */
    uint64_t segment; /* bytes that a pipeline cuts into */
    bool joined;      /* it ends with everybody knowing that everybody has begun */
};

enum coll_buffer { COLL_SRC, COLL_DST, COLL_SCRATCH, N_COLL_BUFFERS };

struct coll_ref {
    enum coll_buffer buffer;
    uint64_t offset;
};

enum step_verb {
    STEP_SEND,   /* `left` to the peer */
    STEP_RECV,   /* `to` from the peer's send with the same tag */
    STEP_REDUCE, /* to = left op right */
    STEP_COPY    /* to = left */
};

/* Numbers of steps begin at 1, so that 0 means none. */
struct step {
    uint64_t to, left, right; /* offsets, in bytes */
    uint64_t len;
    uint32_t peer, tag; /* (peer, tag) is used once in each direction */
    uint32_t after[3];
    uint8_t verb, to_buffer, left_buffer, right_buffer;
};

struct schedule {
    struct step *step;
    uint32_t n_steps, room;
    uint64_t scratch;     /* bytes */
    weft_status_t status; /* of the building: it goes on in vain after the first error */
    struct coll_shape shape;
};

/* Every algorithm over messages: which collective, whether it reduces in rank order, from the left. */
#define ALGORITHMS(A)                \
    A(BARRIER, dissemination, false) \
    A(BARRIER, tree, false)          \
    A(BCAST, binomial, false)        \
    A(BCAST, chain, false)           \
    A(ALLREDUCE, doubling, false)    \
    A(ALLREDUCE, ring, false)        \
    A(ALLREDUCE, fold, true)         \
    A(ALLREDUCE, pipeline, true)     \
    A(ALLGATHER, bruck, false)       \
    A(ALLGATHER, neighbours, false)

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

/* A talloc child of `parent`. WEFT_ERR_NO_MEMORY, WEFT_ERR_TOO_BIG. */
weft_status_t weft__schedule_build(const void *parent, enum coll_algorithm algorithm,
                                   const struct coll_shape *shape, struct schedule **schedule_p);

/* The same by a function that adds the steps. */
weft_status_t weft__schedule_build_by(const void *parent, void (*build)(struct schedule *s),
                                      const struct coll_shape *shape, struct schedule **schedule_p);

/* ---- for algorithms: each adds one step and returns its number; zero-length ones add nothing and return 0 -------- */

struct after {
    uint32_t step[3];
};
#define AFTER(...)         ((struct after){{__VA_ARGS__}})
#define AT(buffer, offset) ((struct coll_ref){COLL_##buffer, (offset)})

uint32_t weft__add_send(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref from, uint64_t len,
                        struct after after);
uint32_t weft__add_recv(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref to, uint64_t len,
                        struct after after);
uint32_t weft__add_reduce(struct schedule *s, struct coll_ref to, struct coll_ref left, struct coll_ref right,
                          uint64_t len, struct after after);
uint32_t weft__add_copy(struct schedule *s, struct coll_ref to, struct coll_ref from, uint64_t len,
                        struct after after);
/* A signal carries nothing, and is a step nevertheless. */
uint32_t weft__add_signal(struct schedule *s, uint32_t peer, uint32_t tag, struct after after);
uint32_t weft__add_await(struct schedule *s, uint32_t peer, uint32_t tag, struct after after);

/* Tags from here on belong to the barrier that joins a collective. */
enum { JOIN_TAG = 1 << 30 };
void weft__add_dissemination(struct schedule *s, uint32_t tag);

/* Parts of algorithms that others use. `bytes` from each rank, at its place in `buffer`; `own` filled it. */
uint32_t weft__add_gather(struct schedule *s, enum coll_buffer buffer, uint64_t bytes, uint32_t own);

/* The `index`-th of `parts` nearly equal pieces of `count` elements. */
struct piece {
    uint64_t offset, len; /* bytes */
};
static inline struct piece weft__piece(uint64_t count, uint32_t width, uint64_t parts, uint64_t index) {
    uint64_t base = count / parts, more = count % parts;
    uint64_t first = index * base + (index < more ? index : more);
    return (struct piece){first * width, (base + (index < more)) * width};
}

#define ALGORITHM_BUILD(kind, name, fixed) void weft__build_##kind##_##name(struct schedule *s);
ALGORITHMS(ALGORITHM_BUILD)
#undef ALGORITHM_BUILD

#endif
