/* The sum of what all peers of a worker left unread: unexpected messages and stream bytes. */
#ifndef WEFT_ENDPOINTS_MESSAGES_UNREAD_H
#define WEFT_ENDPOINTS_MESSAGES_UNREAD_H

#include <base/counters.h>
#include <endpoints/core/worker.h>

static inline void weft__unread_add(struct weft_worker *worker, uint64_t bytes) {
    struct worker_limits *limit = &worker->limit;
    limit->kept += bytes;
    if (limit->kept > worker->count->unexpected_max) worker->count->unexpected_max = limit->kept;
}

/* They are consumed or dropped. */
static inline void weft__unread_remove(struct weft_worker *worker, uint64_t bytes) {
    worker->limit.kept -= bytes;
}

#endif
