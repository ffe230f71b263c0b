/*
 * What the processes of a view do together: collectives on bytes, on blocks of unequal lengths, and
 * on objects that a serializer packs.
 *
 * A function takes the resource set of the process where the result goes, or comes from: `at`,
 * `from`. NULL, where it is allowed: the result goes to every process. At the others a rooted
 * operation ends as WEFT_OK, and leaves their result argument as it was (blocks: NULL).
 *
 * Every process of the view calls the same operations in the same order, with the same set, which
 * weft_view_at_wait gave it. The set of weft_view_mine is refused (INVALID_PARAM): it names another
 * process at each, and each would wait for all others.
 *
 * A buffer may be device memory of a GPU of the process (docs/cuda.md), also at some processes
 * only. To gather a result at the GPU of a set, give an address of that GPU there. Blocks, and what
 * a serializer packs to and unpacks from, are host memory.
 *
 * Each returns as every operation does (weft_op_t): WEFT_OK at once, or WEFT_IN_PROGRESS and one
 * callback on the view's worker. Buffers are borrowed until then. The _wait forms drive the worker.
 *
 * Errors of each: INVALID_PARAM; BUSY before the view is ready; those of collectives
 * (weft/collective.h), after which the view's team has failed. Threads and callbacks: weft/base.h.
 */
#ifndef WEFT_VIEW_OPERATIONS_H
#define WEFT_VIEW_OPERATIONS_H

#include <weft/view.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Completes when every process has called it. */
WEFT_API weft_status_t weft_view_barrier(weft_view_t *view, const weft_op_t *op);

/* `len` bytes of each process, by rank, to `dst` (size × len bytes). `at`: or NULL. */
WEFT_API weft_status_t weft_view_gather(weft_view_t *view, const weft_resource_set_t *at,
                                        const void *src, size_t len, void *dst,
                                        const weft_op_t *op);
/* `count` elements of all, element by element, to `dst`. `at`: or NULL. */
WEFT_API weft_status_t weft_view_reduce(weft_view_t *view, const weft_resource_set_t *at,
                                        const void *src, void *dst, size_t count,
                                        weft_datatype_t type, weft_reduction_t reduction,
                                        const weft_op_t *op);
/* `len` bytes of the owner of `from` to every `buf`. */
WEFT_API weft_status_t weft_view_bcast(weft_view_t *view, const weft_resource_set_t *from,
                                       void *buf, size_t len, const weft_op_t *op);
/* The r-th `len` bytes of `src` at the owner of `from`, to rank r's `dst`. */
WEFT_API weft_status_t weft_view_scatter(weft_view_t *view, const weft_resource_set_t *from,
                                         const void *src, size_t len, void *dst,
                                         const weft_op_t *op);
/* The r-th `len` bytes of `src` to rank r, where they are those of this rank in `dst`. */
WEFT_API weft_status_t weft_view_alltoall(weft_view_t *view, const void *src, size_t len, void *dst,
                                          const weft_op_t *op);

/*
 * Sends `len` bytes from this process to the owner of `to`. The owner calls weft_view_receive with
 * a set of this process, the same length and the same tag. The others take no part. Messages of one
 * pair and one tag arrive in order. Sending to oneself is refused (INVALID_PARAM). Each is a tagged
 * collective of the view's team among the two, with the tag 2 × tag, or 2 × tag + 1 if the sender's
 * rank is the higher one: the program uses no such tag for these two.
 */
WEFT_API weft_status_t weft_view_send(weft_view_t *view, const weft_resource_set_t *to,
                                      const void *src, size_t len, uint32_t tag,
                                      const weft_op_t *op);
WEFT_API weft_status_t weft_view_receive(weft_view_t *view, const weft_resource_set_t *from,
                                         void *dst, size_t len, uint32_t tag, const weft_op_t *op);

/* ---- blocks of unequal lengths ---- */

/* A block of each rank. The program frees it, before or after the view. */
typedef struct weft_blocks {
    uint32_t n;
    const void **data; /* of length 0: any address */
    size_t *len;
} weft_blocks_t;

/*
 * Gathers `len` bytes of each process, of any length. Sets *blocks_p before it completes as
 * WEFT_OK; at processes that get no result, and after an error, to NULL. `at`: or NULL.
 *
 * It takes two rounds: the lengths, then the bytes. So `op->request_p` must be NULL, and
 * `op->completion` and `op->stream` are UNSUPPORTED. op->deadline_ms limits each round.
 */
WEFT_API weft_status_t weft_view_gatherv(weft_view_t *view, const weft_resource_set_t *at,
                                         const void *src, size_t len, weft_blocks_t **blocks_p,
                                         const weft_op_t *op);
WEFT_API void weft_blocks_free(weft_blocks_t *blocks); /* NULL has no effect */

/* ---- objects ---- */

/* How an object becomes bytes. The functions run on the worker's thread, and call no function of
 * the library that drives it. */
typedef struct weft_serializer {
    size_t (*size)(const void *object, void *arg); /* bytes that `pack` writes */
    void (*pack)(const void *object, void *bytes, void *arg);
    /* An error ends the operation at this process with that status. */
    weft_status_t (*unpack)(void *object, const void *bytes, size_t len, void *arg);
    void *arg;
} weft_serializer_t;

/*
 * Gathers one object of each process. `objects` has an object of the program for each rank, which
 * `unpack` fills in; it is used where the result goes. `serializer` and `objects` are borrowed
 * until completion, `object` for the call. `op` as of weft_view_gatherv. `at`: or NULL.
 */
WEFT_API weft_status_t weft_view_gather_objects(weft_view_t *view, const weft_resource_set_t *at,
                                                const weft_serializer_t *serializer,
                                                const void *object, void *const *objects,
                                                const weft_op_t *op);
/* Copies the object of the owner of `from` to every process's `object`, likewise. `object` is
 * borrowed until completion where it is filled in. */
WEFT_API weft_status_t weft_view_bcast_object(weft_view_t *view, const weft_resource_set_t *from,
                                              const weft_serializer_t *serializer, void *object,
                                              const weft_op_t *op);

/* ---- as above, and drive the worker until the operation is complete ---- */

WEFT_API weft_status_t weft_view_barrier_wait(weft_view_t *view);
WEFT_API weft_status_t weft_view_gather_wait(weft_view_t *view, const weft_resource_set_t *at,
                                             const void *src, size_t len, void *dst);
WEFT_API weft_status_t weft_view_reduce_wait(weft_view_t *view, const weft_resource_set_t *at,
                                             const void *src, void *dst, size_t count,
                                             weft_datatype_t type, weft_reduction_t reduction);
WEFT_API weft_status_t weft_view_bcast_wait(weft_view_t *view, const weft_resource_set_t *from,
                                            void *buf, size_t len);
WEFT_API weft_status_t weft_view_scatter_wait(weft_view_t *view, const weft_resource_set_t *from,
                                              const void *src, size_t len, void *dst);
WEFT_API weft_status_t weft_view_alltoall_wait(weft_view_t *view, const void *src, size_t len,
                                               void *dst);
WEFT_API weft_status_t weft_view_send_wait(weft_view_t *view, const weft_resource_set_t *to,
                                           const void *src, size_t len, uint32_t tag);
WEFT_API weft_status_t weft_view_receive_wait(weft_view_t *view, const weft_resource_set_t *from,
                                              void *dst, size_t len, uint32_t tag);
WEFT_API weft_status_t weft_view_gatherv_wait(weft_view_t *view, const weft_resource_set_t *at,
                                              const void *src, size_t len,
                                              weft_blocks_t **blocks_p);
WEFT_API weft_status_t weft_view_gather_objects_wait(weft_view_t *view,
                                                     const weft_resource_set_t *at,
                                                     const weft_serializer_t *serializer,
                                                     const void *object, void *const *objects);
WEFT_API weft_status_t weft_view_bcast_object_wait(weft_view_t *view,
                                                   const weft_resource_set_t *from,
                                                   const weft_serializer_t *serializer,
                                                   void *object);

#ifdef __cplusplus
}
#endif
#endif
