/*
 * Work on a device that Weft queues itself: reductions, packing, copies within and between devices.
 * Each context has one stream of Weft's own for it and its own copy of the kernels, both made on
 * first use. A call queues and returns; weft__cuda_queue_state says whether all that is queued is
 * done. The caller's current context is unchanged. Any thread.
 *
 * An error is IO, with the driver's error, or NO_MEMORY; or UNSUPPORTED, where there are no
 * kernels: the library was built without a CUDA compiler, or the device is older than sm_80.
 */
#ifndef WEFT_TRANSPORTS_CUDA_KERNELS_H
#define WEFT_TRANSPORTS_CUDA_KERNELS_H

#include "driver.h"
#include "kernels/arguments.h"
#include "memory.h"

/* Made by tools/cuda_image. */
extern const unsigned char weft__cuda_image[];

/* Loads the kernels on first use; some ms then. */
weft_status_t weft__cuda_queue_open(cuda_context context);

/* `type`: a number of REDUCE_KERNELS. */
weft_status_t weft__cuda_reduce(cuda_context context, unsigned type,
                                const struct reduce_arguments *args);
/* Is there a kernel for it? */
bool weft__cuda_reduces(unsigned type, unsigned reduction);
weft_status_t weft__cuda_copy(cuda_context context, uint64_t to, uint64_t from, size_t len);

/* WEFT_OK: all that was queued is done. WEFT_IN_PROGRESS; or the error of what failed. */
weft_status_t weft__cuda_queue_state(cuda_context context);
/* The stream that the work is queued in: for a batch (memory.h) behind that work. */
weft_status_t weft__cuda_queue_stream(cuda_context context, cuda_stream *stream_p);
/* After an error. A context that it broke, or that is gone, takes stream and kernels along: the
 * next use makes new ones, as for a new context at the same address. Others are kept. */
void weft__cuda_queue_drop(cuda_context context);

/*
 * Blocks between a device and registered memory of the host, by a kernel, within the batch: in
 * place of weft__cuda_batch_read_blocks or, with `unpacks`, _write_blocks. It is for blocks that
 * are too short for copies. UNSUPPORTED: there are no kernels, or the driver does not
 * know that memory; the batch goes on. Another error: the batch has ended.
 */
weft_status_t weft__cuda_batch_pack(struct cuda_batch *batch, const struct cuda_blocks *blocks,
                                    bool unpacks);

#endif
