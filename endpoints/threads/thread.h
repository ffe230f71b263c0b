/* A worker with a thread of its own. With polled callbacks the thread holds callbacks until the
 * program calls progress. Then the thread pauses between two turns, and the program runs the
 * callbacks. */
#ifndef WEFT_ENDPOINTS_THREADS_THREAD_H
#define WEFT_ENDPOINTS_THREADS_THREAD_H

#include <endpoints/core/worker.h>

/* weft_worker_progress, _wait, _fd and _wake for a worker with a thread. */
int weft__thread_progress(struct weft_worker *worker, unsigned budget);
weft_status_t weft__thread_wait(struct weft_worker *worker, int timeout_ms);
int weft__thread_fd(struct weft_worker *worker);
void weft__thread_wake(struct weft_worker *worker);

/* Stops the thread. With `joined` the worker continues without it, and its fd reports all events
 * again. */
weft_status_t weft__thread_stop(struct weft_worker *worker, bool joined);

/* A held callback is due: wakes the program. */
void weft__thread_news(struct weft_worker *worker);

/* The sender withdrew an offer: drops it if its callback is held. False: no such offer is held. */
bool weft__thread_withdrawn(const struct link *link, uint32_t offer);
/* The link ends: held messages no longer refer to it. */
void weft__thread_forget(const struct link *link);
/* Frees the state of a worker that ends. */
void weft__thread_end(struct weft_worker *worker);

#endif
