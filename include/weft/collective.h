/*
 * Collectives. Every member calls the same ones in the same order, but for those with a tag
 * (weft_coll_args_t).
 */
#ifndef WEFT_COLLECTIVE_H
#define WEFT_COLLECTIVE_H

#include <weft/layout.h>
#include <weft/team.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_datatype {
    WEFT_INT8,
    WEFT_INT16,
    WEFT_INT32,
    WEFT_INT64,
    WEFT_UINT8,
    WEFT_UINT16,
    WEFT_UINT32,
    WEFT_UINT64,
    WEFT_FLOAT16,
    WEFT_BFLOAT16,
    WEFT_FLOAT32,
    WEFT_FLOAT64,
    WEFT_LONG_DOUBLE,     /* refused where its format differs between members */
    WEFT_COMPLEX_FLOAT32, /* real and imaginary part */
    WEFT_COMPLEX_FLOAT64,
    WEFT_FLOAT32_INT32, /* the structs below, for minloc and maxloc */
    WEFT_FLOAT64_INT32,
    WEFT_INT32_INT32,
    WEFT_INT64_INT32,
    WEFT_N_DATATYPES,
    WEFT_DATATYPE_USER = 0x1000 /* those of weft_datatype_create are from here on */
} weft_datatype_t;

typedef struct weft_float32_int32 {
    float value;
    int32_t index;
} weft_float32_int32_t;
typedef struct weft_float64_int32 {
    double value;
    int32_t index;
} weft_float64_int32_t;
typedef struct weft_int32_int32 {
    int32_t value;
    int32_t index;
} weft_int32_int32_t;
typedef struct weft_int64_int32 {
    int64_t value;
    int32_t index;
} weft_int64_int32_t;

/*
 * Bitwise and logical reductions need an integer type; logical ones give 0 or 1. AVG needs a
 * floating-point or complex type, and is refused for scans. Complex types have SUM, PROD and AVG.
 * MINLOC and MAXLOC need a pair type; of equal values they give the lowest index. All else is
 * UNSUPPORTED. Integer sums and products wrap.
 */
typedef enum weft_reduction {
    WEFT_SUM,
    WEFT_PROD,
    WEFT_MIN,
    WEFT_MAX,
    WEFT_BAND,
    WEFT_BOR,
    WEFT_BXOR,
    WEFT_LAND,
    WEFT_LOR,
    WEFT_LXOR,
    WEFT_MINLOC,
    WEFT_MAXLOC,
    WEFT_AVG,
    WEFT_N_REDUCTIONS,
    WEFT_REDUCTION_USER = 0x1000 /* those of weft_reduction_create are from here on */
} weft_reduction_t;

/* The collectives, as weft_coll_args_t.kind names them. */
typedef enum weft_coll_kind {
    WEFT_COLL_BARRIER,
    WEFT_COLL_BCAST,
    WEFT_COLL_ALLREDUCE,
    WEFT_COLL_ALLGATHER,
    WEFT_COLL_FANIN,
    WEFT_COLL_FANOUT,
    WEFT_COLL_GATHER,
    WEFT_COLL_GATHERV,
    WEFT_COLL_SCATTER,
    WEFT_COLL_SCATTERV,
    WEFT_COLL_REDUCE,
    WEFT_COLL_REDUCE_SCATTER,
    WEFT_COLL_REDUCE_SCATTERV,
    WEFT_COLL_ALLGATHERV,
    WEFT_COLL_ALLTOALL,
    WEFT_COLL_ALLTOALLV,
    WEFT_COLL_SCAN,
    WEFT_COLL_EXSCAN,
    WEFT_COLL_NEIGHBOR_ALLTOALLV,
    WEFT_N_COLL_KINDS
} weft_coll_kind_t;

/*
 * Sets *name_p to the algorithm that a collective of `bytes` a rank takes in this team. `flags`: as
 * weft_op_t.flags. A static string. Errors: INVALID_PARAM; BUSY; the status of a failed team.
 */
WEFT_API weft_status_t weft_team_algorithm(weft_team_t *team, weft_coll_kind_t kind, uint64_t bytes,
                                           uint32_t flags, const char **name_p);

/* Returns the size of an element in bytes; 0 for an unknown type, and for those of
 * weft_datatype_create. Any thread. */
WEFT_API size_t weft_datatype_size(weft_datatype_t type);

/*
 * Flags of collectives. Each has a bit of its own, and a place. In another place it is
 * INVALID_PARAM.
 */
enum {
    /*
     * weft_op_t.flags, and `init_flags` of a persistent collective: floating-point results are
     * bit-identical for every algorithm.
     */
    WEFT_COLL_FIXED_ORDER = 0x100,
    /*
     * weft_op_t.flags, also those of weft_coll_start: the collective ends with an agreement
     * (weft_team_agree). All members that are left get one outcome. If a member dies in it, either
     * all get OK, and have their result, or all get the same error, which fails the team. It costs
     * the messages of the agreement. `op->request_p` must be NULL, `op->completion` is UNSUPPORTED,
     * and one is in progress at a time (BUSY).
     *
     * A member may get another outcome in three cases. It gets CLOSED if it closes the team,
     * TIMED_OUT if its deadline for the agreement passes, PEER_FAILED if the others have lost it.
     * Memory for the agreement is taken by the call, which is refused (NO_MEMORY) without it.
     * In a team that has failed before the call, members agree, too: others may be in the
     * collective. With a count of 0 nothing is agreed on.
     */
    WEFT_COLL_SAFE = 0x200,
    WEFT_COLL_TAGGED = 0x400,       /* weft_coll_args_t.flags: `tag` and `members` are used */
    WEFT_REDUCTION_COMMUTES = 0x800 /* weft_reduction_create */
};

/*
 * Types and reductions of the program's own. They belong to the team and end with it. A team that
 * is made of it (split, shrink, grow) has none of them. Each member makes its own; sizes must be
 * equal on all.
 */
typedef struct weft_datatype_params {
    size_t size; /* bytes of an element on the wire, and in memory without a layout; 1 to 1 GiB */
    /* Optional: how an element lies in memory (weft/layout.h). STRIDED: count × block is `size`.
     * USER: `start` gets the address and the count of elements; size × count bytes are packed. */
    const weft_layout_t *layout; /* copied; the functions it names are not */
    size_t extent;               /* with a layout: bytes from an element to the next */
    void *arg; /* not NULL, with a USER layout: *state_p holds it when `start` is called */
} weft_datatype_params_t;

/* Creates a type. Errors: INVALID_PARAM; NO_MEMORY, also beyond 4,096 types of a team. */
#define weft_datatype_create(...) \
    weft_datatype_create_sized(sizeof(weft_datatype_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_datatype_create_sized(size_t params_size, weft_team_t *team,
                                                  const weft_datatype_params_t *params,
                                                  weft_datatype_t *type_p);

/*
 * to[i] = left[i] op right[i] for `count` elements, packed, of any alignment. `to` may be `left` or
 * `right`. It must be associative. It runs on the worker's thread and must not call the library.
 */
typedef void (*weft_reduce_fn)(void *to, const void *left, const void *right, size_t count,
                               void *arg);

/*
 * Creates a reduction, for any type. Without WEFT_REDUCTION_COMMUTES operands are taken in the
 * order of ranks. Errors: INVALID_PARAM; NO_MEMORY, also beyond 4,096 reductions of a team.
 */
WEFT_API weft_status_t weft_reduction_create(weft_team_t *team, weft_reduce_fn reduce, void *arg,
                                             uint32_t flags, weft_reduction_t *reduction_p);

/*
 * Given as `src` (or, at the root of a scatter, as `dst`), it says that the data is where the
 * result goes:
 * - allreduce, reduce at the root, scan, exscan, alltoall(v): in `dst`;
 * - allgather(v), gather(v) at the root: at this rank's place in `dst`;
 * - reduce_scatter(v): a block for each member in `dst`; the result comes to this rank's place;
 * - scatter(v) at the root: its own block stays in `src`.
 *
 * The addresses themselves may be given as well. alltoallv in place needs equal counts and
 * displacements for both directions.
 */
#ifdef __cplusplus
#define WEFT_IN_PLACE reinterpret_cast<void *>(static_cast<intptr_t>(-1))
#else
#define WEFT_IN_PLACE ((void *)-1)
#endif

/*
 * Contract of all collectives.
 *
 * Each returns as every operation does (weft_op_t): WEFT_OK at once, or WEFT_IN_PROGRESS and one
 * callback. Each member gets its own outcome: OK, PEER_FAILED, TIMED_OUT, CANCELLED, REVOKED,
 * CLOSED, or what a member has met itself, such as NO_MEMORY, NO_FDS, PROTOCOL and IO (of a
 * device). After such an error the team has failed and refuses further collectives with that
 * status. An error of a layout's own function is that member's alone. Buffers are borrowed until
 * completion. `src` and `dst` lie apart, or are in place as above. If they share a part of their
 * memory only, that is not refused, and the result is undefined.
 *
 * A collective of a few bytes polls for the other members before the call returns, for 0.3 us at
 * most. It does so where each member of a host has a core of its own, and not within a callback. If
 * they come, the call returns WEFT_OK. If they usually come later, one call of 33 polls for them. A
 * program that gets WEFT_OK again and again drives its worker beside these calls.
 *
 * A collective ends as TIMED_OUT after op->deadline_ms; without it, after
 * weft_team_params_t.collective_deadline_ms, or else the setting coll.timeout (300 s).
 *
 * `count`, counts and displacements are in elements. With `count` 0 the result is WEFT_OK. Types,
 * counts, roots and flags must be equal on all members, except where each gives its own. Arrays of
 * counts and displacements are borrowed for the call only. Displacements may be NULL: blocks in a
 * row. An empty block may lie anywhere, also outside of the buffer.
 *
 * With op->stream the place of a collective among those of its team is that of its beginning. All
 * members must come to the same order: for instance, by one stream each for all of a team's. A
 * wrong description is then the outcome. The outcome is CLOSED if the team was closed, or the
 * persistent collective freed, before the stream got there.
 *
 * Errors of the call: INVALID_PARAM; UNSUPPORTED (weft_reduction_t); TOO_BIG; NO_MEMORY; BUSY if
 * the team is not ready (on_ready), or while another team is being made of it; the status of a
 * failed team. They hold for every function below. A call that fails has not begun, and the other
 * members are not notified: this one calls again, or calls weft_team_revoke, which ends theirs.
 */

/* Completes when every member has called it. */
WEFT_API weft_status_t weft_barrier(weft_team_t *team, const weft_op_t *op);
/* Copies `count` elements of the root's `buf` to every member's `buf`. */
WEFT_API weft_status_t weft_bcast(weft_team_t *team, void *buf, size_t count, weft_datatype_t type,
                                  uint32_t root, const weft_op_t *op);
/*
 * Reduces `count` elements of all members element by element into every member's `dst`. `src` may
 * equal `dst`.
 */
WEFT_API weft_status_t weft_allreduce(weft_team_t *team, const void *src, void *dst, size_t count,
                                      weft_datatype_t type, weft_reduction_t reduction,
                                      const weft_op_t *op);
/*
 * Gathers `count` elements of each rank, in rank order, into every member's `dst` (size × count
 * elements). `src` may be this rank's part of `dst`.
 */
WEFT_API weft_status_t weft_allgather(weft_team_t *team, const void *src, void *dst, size_t count,
                                      weft_datatype_t type, const weft_op_t *op);

/* Completes at the root when every member has called it; elsewhere it may be over before that. */
WEFT_API weft_status_t weft_fanin(weft_team_t *team, uint32_t root, const weft_op_t *op);
/* Completes when the root has called it. */
WEFT_API weft_status_t weft_fanout(weft_team_t *team, uint32_t root, const weft_op_t *op);
/* As allgather, at the root only; `dst` is used there only. */
WEFT_API weft_status_t weft_gather(weft_team_t *team, const void *src, void *dst, size_t count,
                                   weft_datatype_t type, uint32_t root, const weft_op_t *op);
/* Rank r's `count` is the root's counts[r], and goes to element displs[r] of its `dst`. */
WEFT_API weft_status_t weft_gatherv(weft_team_t *team, const void *src, size_t count, void *dst,
                                    const uint64_t *counts, const uint64_t *displs,
                                    weft_datatype_t type, uint32_t root, const weft_op_t *op);
/* Rank r gets the r-th `count` elements of the root's `src`. */
WEFT_API weft_status_t weft_scatter(weft_team_t *team, const void *src, void *dst, size_t count,
                                    weft_datatype_t type, uint32_t root, const weft_op_t *op);
/* Rank r's `count` is the root's counts[r], from element displs[r] of its `src` on. */
WEFT_API weft_status_t weft_scatterv(weft_team_t *team, const void *src, const uint64_t *counts,
                                     const uint64_t *displs, void *dst, size_t count,
                                     weft_datatype_t type, uint32_t root, const weft_op_t *op);
/* As allreduce, at the root only; `dst` is used there only. */
WEFT_API weft_status_t weft_reduce(weft_team_t *team, const void *src, void *dst, size_t count,
                                   weft_datatype_t type, weft_reduction_t reduction, uint32_t root,
                                   const weft_op_t *op);
/* Reduces size × count elements; rank r gets the r-th `count` of the result. */
WEFT_API weft_status_t weft_reduce_scatter(weft_team_t *team, const void *src, void *dst,
                                           size_t count, weft_datatype_t type,
                                           weft_reduction_t reduction, const weft_op_t *op);
/* Blocks of counts[r] elements, in a row in `src`; counts are equal on all members. */
WEFT_API weft_status_t weft_reduce_scatterv(weft_team_t *team, const void *src, void *dst,
                                            const uint64_t *counts, weft_datatype_t type,
                                            weft_reduction_t reduction, const weft_op_t *op);
/* counts[rank] elements of each; counts are equal on all members, displacements need not be. */
WEFT_API weft_status_t weft_allgatherv(weft_team_t *team, const void *src, void *dst,
                                       const uint64_t *counts, const uint64_t *displs,
                                       weft_datatype_t type, const weft_op_t *op);
/* The r-th `count` elements of `src` go to rank r, where they are those of this rank in `dst`. */
WEFT_API weft_status_t weft_alltoall(weft_team_t *team, const void *src, void *dst, size_t count,
                                     weft_datatype_t type, const weft_op_t *op);
/*
 * src_counts[r] elements of `src` go to rank r. The count that a member sends to another equals the
 * count that the other expects from it.
 */
WEFT_API weft_status_t weft_alltoallv(weft_team_t *team, const void *src,
                                      const uint64_t *src_counts, const uint64_t *src_displs,
                                      void *dst, const uint64_t *dst_counts,
                                      const uint64_t *dst_displs, weft_datatype_t type,
                                      const weft_op_t *op);
/* Reduces the parts of ranks 0 up to this one. */
WEFT_API weft_status_t weft_scan(weft_team_t *team, const void *src, void *dst, size_t count,
                                 weft_datatype_t type, weft_reduction_t reduction,
                                 const weft_op_t *op);
/* Reduces the parts of the ranks below this one; rank 0's `dst` is left as it was. */
WEFT_API weft_status_t weft_exscan(weft_team_t *team, const void *src, void *dst, size_t count,
                                   weft_datatype_t type, weft_reduction_t reduction,
                                   const weft_op_t *op);

/*
 * A graph of members, as each sees it: whom it receives from, and whom it sends to. An edge may be
 * there several times, and may lead from a member to itself. The k-th edge of two members in the
 * one's list is the k-th in the other's.
 */
typedef struct weft_neighbors {
    const uint32_t *sources, *destinations; /* ranks; borrowed for the call */
    uint32_t n_sources, n_destinations;
} weft_neighbors_t;

/* A block of `src` for each destination, one of `dst` from each source. Never in place. */
WEFT_API weft_status_t weft_neighbor_alltoallv(weft_team_t *team, const weft_neighbors_t *graph,
                                               const void *src, const uint64_t *src_counts,
                                               const uint64_t *src_displs, void *dst,
                                               const uint64_t *dst_counts,
                                               const uint64_t *dst_displs, weft_datatype_t type,
                                               const weft_op_t *op);

/*
 * Any collective, as one description. Fields that its kind does not use are ignored. The v-forms
 * take `src_counts` (scatterv, reduce_scatterv, alltoallv, neighbor_alltoallv) and `dst_counts`
 * (gatherv, allgatherv, alltoallv, neighbor_alltoallv).
 */
typedef struct weft_coll_args {
    weft_coll_kind_t kind;
    weft_datatype_t type;
    weft_reduction_t reduction;
    uint32_t root;
    const void *src;
    void *dst; /* also the buffer of a bcast */
    size_t count;
    const uint64_t *src_counts, *src_displs, *dst_counts, *dst_displs;
    const weft_neighbors_t *graph;
    uint32_t flags; /* WEFT_COLL_TAGGED */
    /* TAGGED: it matches the collectives of the same tag and members, in their order, whatever
     * other collectives are called before and after. It goes over messages. The team
     * keeps some 150 bytes for each tag and set of members until it is closed. */
    uint64_t tag;
    /* Ranks start, start + stride, …: `size` of them take part, and call it, with a tag; `root` is
     * a rank of the team. `size` 0: all members, and the other two are ignored. */
    struct {
        uint32_t start, stride, size;
    } members;
} weft_coll_args_t;

#define weft_coll(...) weft_coll_sized(sizeof(weft_coll_args_t), __VA_ARGS__)
WEFT_API weft_status_t weft_coll_sized(size_t args_size, weft_team_t *team,
                                       const weft_coll_args_t *args, const weft_op_t *op);

/*
 * A persistent collective: described once, started any number of times, one at a time.
 * weft_coll_init and the first start take all memory and choose the algorithm. Further starts
 * allocate nothing, but for what a transport takes for its first messages to a member. Buffers are
 * borrowed from a start to its end. `init_flags` takes WEFT_COLL_FIXED_ORDER alone. op->flags of
 * weft_coll_start takes WEFT_COLL_SAFE alone: each start is safe or not.
 *
 * It is persistent at all members, or at none: another algorithm may be chosen for it. Starts stand
 * in the order of the team's collectives (or in that of their tag). Any number of handles may be in
 * progress at a time; a start of one that is in progress is BUSY. Elements with a layout, and
 * device memory that is staged, are packed at each start and unpacked at its end.
 *
 * If the CUDA stream op->stream is being captured, a start is recorded in the graph, and returns
 * WEFT_OK. From then on each launch of the graph starts the collective once, when it gets there.
 * Later work of the graph waits until that start has ended. op->done reports the end of each
 * launch's start, with the status that weft_coll_start would have returned, too. Launches of graphs
 * with the same recorded start must not overlap. A launch after weft_coll_free reports CLOSED. A
 * launch after the worker was closed passes without a report.
 *
 * Errors of the recording: UNSUPPORTED with op->request_p or op->completion, and if the driver
 * captures no wait for a value (CUDA 12 does); the capture may be invalid then. QUOTA; NO_MEMORY.
 */
typedef struct weft_coll weft_coll_t;
#define weft_coll_init(...) weft_coll_init_sized(sizeof(weft_coll_args_t), __VA_ARGS__)
WEFT_API weft_status_t weft_coll_init_sized(size_t args_size, weft_team_t *team,
                                            const weft_coll_args_t *args, uint32_t init_flags,
                                            weft_coll_t **coll_p);
WEFT_API weft_status_t weft_coll_start(weft_coll_t *coll, const weft_op_t *op);
/* Frees the handle. The end of the team frees those that are left. Errors: BUSY while it is in
 * progress. */
WEFT_API weft_status_t weft_coll_free(weft_coll_t *coll);

/*
 * As above, and drive the worker until the operation is complete (weft_ep_flush_wait). A call that
 * is complete at once does not drive it, except every 16th such call of a team.
 */
WEFT_API weft_status_t weft_barrier_wait(weft_team_t *team);
WEFT_API weft_status_t weft_bcast_wait(weft_team_t *team, void *buf, size_t count,
                                       weft_datatype_t type, uint32_t root);
WEFT_API weft_status_t weft_allreduce_wait(weft_team_t *team, const void *src, void *dst,
                                           size_t count, weft_datatype_t type,
                                           weft_reduction_t reduction);
WEFT_API weft_status_t weft_allgather_wait(weft_team_t *team, const void *src, void *dst,
                                           size_t count, weft_datatype_t type);
WEFT_API weft_status_t weft_fanin_wait(weft_team_t *team, uint32_t root);
WEFT_API weft_status_t weft_fanout_wait(weft_team_t *team, uint32_t root);
WEFT_API weft_status_t weft_gather_wait(weft_team_t *team, const void *src, void *dst, size_t count,
                                        weft_datatype_t type, uint32_t root);
WEFT_API weft_status_t weft_gatherv_wait(weft_team_t *team, const void *src, size_t count,
                                         void *dst, const uint64_t *counts, const uint64_t *displs,
                                         weft_datatype_t type, uint32_t root);
WEFT_API weft_status_t weft_scatter_wait(weft_team_t *team, const void *src, void *dst,
                                         size_t count, weft_datatype_t type, uint32_t root);
WEFT_API weft_status_t weft_scatterv_wait(weft_team_t *team, const void *src,
                                          const uint64_t *counts, const uint64_t *displs, void *dst,
                                          size_t count, weft_datatype_t type, uint32_t root);
WEFT_API weft_status_t weft_reduce_wait(weft_team_t *team, const void *src, void *dst, size_t count,
                                        weft_datatype_t type, weft_reduction_t reduction,
                                        uint32_t root);
WEFT_API weft_status_t weft_reduce_scatter_wait(weft_team_t *team, const void *src, void *dst,
                                                size_t count, weft_datatype_t type,
                                                weft_reduction_t reduction);
WEFT_API weft_status_t weft_reduce_scatterv_wait(weft_team_t *team, const void *src, void *dst,
                                                 const uint64_t *counts, weft_datatype_t type,
                                                 weft_reduction_t reduction);
WEFT_API weft_status_t weft_allgatherv_wait(weft_team_t *team, const void *src, void *dst,
                                            const uint64_t *counts, const uint64_t *displs,
                                            weft_datatype_t type);
WEFT_API weft_status_t weft_alltoall_wait(weft_team_t *team, const void *src, void *dst,
                                          size_t count, weft_datatype_t type);
WEFT_API weft_status_t weft_alltoallv_wait(weft_team_t *team, const void *src,
                                           const uint64_t *src_counts, const uint64_t *src_displs,
                                           void *dst, const uint64_t *dst_counts,
                                           const uint64_t *dst_displs, weft_datatype_t type);
WEFT_API weft_status_t weft_scan_wait(weft_team_t *team, const void *src, void *dst, size_t count,
                                      weft_datatype_t type, weft_reduction_t reduction);
WEFT_API weft_status_t weft_exscan_wait(weft_team_t *team, const void *src, void *dst, size_t count,
                                        weft_datatype_t type, weft_reduction_t reduction);
WEFT_API weft_status_t weft_neighbor_alltoallv_wait(
    weft_team_t *team, const weft_neighbors_t *graph, const void *src, const uint64_t *src_counts,
    const uint64_t *src_displs, void *dst, const uint64_t *dst_counts, const uint64_t *dst_displs,
    weft_datatype_t type);
#define weft_coll_wait(...) weft_coll_wait_sized(sizeof(weft_coll_args_t), __VA_ARGS__)
WEFT_API weft_status_t weft_coll_wait_sized(size_t args_size, weft_team_t *team,
                                            const weft_coll_args_t *args);
WEFT_API weft_status_t weft_coll_start_wait(weft_coll_t *coll);

#ifdef __cplusplus
}
#endif
#endif
