/* Workers in associated mode: without a resource, on a loop, or working by another worker. */
#ifndef WEFT_ENDPOINTS_WORKER_ASSOCIATE_H
#define WEFT_ENDPOINTS_WORKER_ASSOCIATE_H

#include <stdbool.h>
#include <stddef.h>
#include <weft/worker.h>

struct lease;
struct reactor;
struct weft_ep;

/* worker.c: makes a worker of zeroed memory below `r`, whose handlers are kept. */
weft_status_t weft__worker_open_in(weft_worker_t *worker, struct reactor *r,
                                   const weft_worker_params_t *params);

/* worker.c: takes back what opening it has done. */
void weft__worker_discard(weft_worker_t *worker);
/* worker.c: stops receives that have no endpoint. */
void weft__worker_end_receives(weft_worker_t *worker, weft_status_t status);

/* A worker that has no resource yet. */
weft_status_t weft__worker_stub(weft_context_t *context, const weft_worker_params_t *params,
                                weft_worker_t **worker_p);
/* One in associated mode, unless its association ends: then it closes as others. */
bool weft__worker_is_resting(const weft_worker_t *worker);
/* Frees a worker that has no resource. BUSY while it works by another worker. */
weft_status_t weft__worker_stub_close(weft_worker_t *worker);
/* Stops its own thread, ends its association, and frees it. */
void weft__worker_stub_destroy(weft_worker_t *worker);

/*
 * The worker works on this loop of the program (NULL: on one of its own), with what was given for
 * its transports (NULL: nothing). UNSUPPORTED: none of them uses it.
 */
struct given;
weft_status_t weft__worker_on_loop(weft_worker_t *worker, struct ev_loop *loop,
                                   const struct given *given);
/* Ends its operations as `status`: endpoints at once, and receives. */
void weft__worker_abort(weft_worker_t *worker, weft_status_t status);
/* A worker on a loop has closed: it stays, as a worker without a resource. */
void weft__worker_outlives(weft_worker_t *worker);

/* Closes it in good order, however long that takes: the drain of an association has a deadline of
 * its own. */
void weft__ep_drain(struct weft_ep *ep);

/* The worker works by `provider`, within the lease. */
weft_status_t weft__worker_share(weft_worker_t *worker, weft_worker_t *provider,
                                 struct lease *lease);
/*
 * Refuses further calls with `status`, and closes what the lease holds: endpoints in good order
 * (`abort`: at once, as `status`), receives as `status`, listeners.
 */
void weft__worker_drain(weft_worker_t *worker, weft_worker_t *provider, struct lease *lease,
                        weft_status_t status, bool abort);
/* Endpoints and receives that are still there. */
size_t weft__worker_undrained(const weft_worker_t *provider, const struct lease *lease);
/* The lease is free for another, and the worker works by no other. */
void weft__worker_unshare(weft_worker_t *provider, struct lease *lease);

#endif
