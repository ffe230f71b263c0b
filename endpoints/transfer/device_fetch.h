/*
 * Messages that wait in device memory of a process on this host: the receiver copies them from
 * there (CUDA IPC), as its transport does with memory of the host (bulk get).
 *
 * Device memory is copied to device memory at once. Memory of the host, and strides, are filled
 * from staging buffers, chunk by chunk. If that does not work, the message is asked for in pieces.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_DEVICE_FETCH_H
#define WEFT_ENDPOINTS_TRANSFER_DEVICE_FETCH_H

#include "device_memory.h"

#include <endpoints/wire/wire.h>
#include <transports/cuda/peer_memory.h>

struct lane;

/* The sender: what its offer says of device memory (wire_rts.memory, .device). `made` has room for
 * that. */
void weft__device_offer(const struct weft_request *req, const struct lane *lane,
                        struct wire_rts *rts, struct cuda_export *made);

/* The receiver: keeps what the offer says of device memory, for weft__device_fetch. */
void weft__device_offered(struct weft_request *req, const void *device, size_t len);
/* IN_PROGRESS: `req->in_flight` steps when all is here, or has failed. UNSUPPORTED: there is no
 * such memory, or it cannot be copied from. */
weft_status_t weft__device_fetch(struct weft_request *req);

#endif
