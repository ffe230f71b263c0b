/* Collectives: every member calls the same ones, in the same order. */
#ifndef WEFT_COLLECTIVE_H
#define WEFT_COLLECTIVE_H

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
    WEFT_N_DATATYPES
} weft_datatype_t;

/* The bitwise ones are for integers only (WEFT_ERR_UNSUPPORTED otherwise). Integer sums and products wrap. */
typedef enum weft_reduction {
    WEFT_SUM,
    WEFT_PROD,
    WEFT_MIN,
    WEFT_MAX,
    WEFT_BAND,
    WEFT_BOR,
    WEFT_BXOR,
    WEFT_N_REDUCTIONS
} weft_reduction_t;

WEFT_API size_t weft_datatype_size(weft_datatype_t type); /* bytes; 0: there is no such type */

enum {
    WEFT_COLL_FIXED_ORDER = 1 /* weft_op_t.flags: floating-point results equal, bit for bit, for any algorithm */
};

/*
 * Each of these answers as every operation does (weft_op_t): WEFT_OK at once, or WEFT_IN_PROGRESS and one
 * callback. Every member sees one outcome of its own: OK, PEER_FAILED, TIMED_OUT, CANCELLED or CLOSED; after
 * anything but OK the team is failed and refuses further collectives with that status. Buffers are borrowed
 * until completion. `count` is in elements; types, counts, roots and flags must agree among members. Refused are
 * INVALID_PARAM, UNSUPPORTED (see the reductions), TOO_BIG, NO_MEMORY, and BUSY: the team is not ready (on_ready). With `count` 0
 * there is nothing to do: WEFT_OK.
 */
WEFT_API weft_status_t weft_barrier(weft_team_t *team, const weft_op_t *op);
WEFT_API weft_status_t weft_bcast(weft_team_t *team, void *buf, size_t count, weft_datatype_t type, uint32_t root,
                                  const weft_op_t *op);
/* `src` equal to `dst` reduces in place. */
WEFT_API weft_status_t weft_allreduce(weft_team_t *team, const void *src, void *dst, size_t count,
                                      weft_datatype_t type, weft_reduction_t reduction, const weft_op_t *op);
/* `count` elements from each rank; `dst` holds size × count. `src` may be its own place in `dst`. */
WEFT_API weft_status_t weft_allgather(weft_team_t *team, const void *src, void *dst, size_t count,
                                      weft_datatype_t type, const weft_op_t *op);

WEFT_API weft_status_t weft_barrier_wait(weft_team_t *team);
WEFT_API weft_status_t weft_bcast_wait(weft_team_t *team, void *buf, size_t count, weft_datatype_t type,
                                       uint32_t root);
WEFT_API weft_status_t weft_allreduce_wait(weft_team_t *team, const void *src, void *dst, size_t count,
                                           weft_datatype_t type, weft_reduction_t reduction);
WEFT_API weft_status_t weft_allgather_wait(weft_team_t *team, const void *src, void *dst, size_t count,
                                           weft_datatype_t type);

#ifdef __cplusplus
}
#endif
#endif
