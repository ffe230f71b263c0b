/*
 * A worker driven by a thread of its own. With polled callbacks, what would call the program is held until the program comes: then the
 * thread lends it the worker, between two turns, for as long as the callbacks take.
 */
#ifndef WEFT_ENDPOINTS_THREAD_H
#define WEFT_ENDPOINTS_THREAD_H

#include "worker.h"

/* What weft_worker_progress, _wait, _fd and _wake mean to a worker that a thread drives. */
int weft__thread_progress(struct weft_worker *worker, unsigned budget);
weft_status_t weft__thread_wait(struct weft_worker *worker, int timeout_ms);
int weft__thread_fd(struct weft_worker *worker);
void weft__thread_wake(struct weft_worker *worker);

/* The thread's end. `joined`: the worker lives on, and its fd tells of everything again, or the thread goes on. */
weft_status_t weft__thread_stop(struct weft_worker *worker, bool joined);

/* Callbacks are held, and there is one to be told. */
void weft__thread_news(struct weft_worker *worker);
/* While the thread runs: the table that handlers are really set in. */
struct am_handler *weft__thread_handlers(struct weft_worker *worker);

/* Its sender took an offer back, of which the program has not heard: it never will. False: no such offer is held. */
bool weft__thread_withdrawn(const struct link *link, uint32_t offer);
/* The link ends: what is held of its peer's is nobody's. */
void weft__thread_forget(const struct link *link);
/* The worker ends, and no thread drives it. */
void weft__thread_end(struct weft_worker *worker);

#endif
