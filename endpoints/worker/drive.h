/* Making a worker, and driving it until an operation has completed. */
#ifndef WEFT_ENDPOINTS_WORKER_DRIVE_H
#define WEFT_ENDPOINTS_WORKER_DRIVE_H

#include <weft/worker.h>

struct reactor;

/* A worker on a reactor that the caller made: simulations give one in virtual time. The worker
 * owns the reactor once this returns WEFT_OK; on an error the caller still owns it. */
weft_status_t weft__worker_create_on(struct reactor *r, const weft_worker_params_t *params,
                                     weft_worker_t **worker_p);

/* Returns WEFT_ERR_BUSY within a callback, which would wait for itself. Call this before an
 * operation is posted whose completion the caller waits for. */
weft_status_t weft__worker_check_wait(const weft_worker_t *worker);
/* Drives the worker until `*done_p` is not WEFT_IN_PROGRESS, and returns it. */
weft_status_t weft__worker_wait_for(weft_worker_t *worker, const weft_status_t *done_p);

#endif
