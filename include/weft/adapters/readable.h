/*
 * What a host does when a worker's descriptor is reported as readable. The other adapters call it.
 * A host that is built on epoll, or another loop, calls it by itself.
 */
#ifndef WEFT_ADAPTERS_READABLE_H
#define WEFT_ADAPTERS_READABLE_H

#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_ADAPTER_LOOKS = 8 }; /* of an adapter, unless the program sets another number */

/*
 * Calls weft_worker_progress once, and then weft_worker_spin while it finds something, at most
 * `looks` times. So a worker and a peer that talk do not put each other to sleep. 0: no looks. The
 * host's other descriptors have their turn after the last look. `*worker_p` is NULL when the host
 * has forgotten the worker, as it does in `done` of weft_worker_close, and nothing is called then.
 */
static inline void weft_adapter_readable(weft_worker_t **worker_p, unsigned budget,
                                         unsigned looks) {
    /* BUSY: the program runs the loop within a callback, and the descriptor is silent until then.
     * What is left beyond the budget makes it readable again. */
    int n = *worker_p ? weft_worker_progress(*worker_p, budget) : -1;
    unsigned i;
    for (i = 0; i < looks && *worker_p && n >= 0; i++) {
        n = weft_worker_spin(*worker_p);
        if (n == 0) return;
    }
}

#ifdef __cplusplus
}
#endif
#endif
