/*
 * Results that other members need. A small one goes with the notice that its task is done. A larger
 * one stays in a region of its producer: the notice has the region's key, and a consumer reads the
 * result one-sidedly. The regions stay until the graph is destroyed; the pages of a transient
 * result are given back when its last successor has ended, and each consumer has read it. A run
 * ends when no member reads any more, so the next one may overwrite them.
 */
#ifndef WEFT_RUNTIME_GRAPH_RESULTS_H
#define WEFT_RUNTIME_GRAPH_RESULTS_H

#include "ranks.h"

#include <weft/memory.h>

enum {
    GRAPH_WIRE_RESULT = AM_ID_RESERVED + 32, /* a result */
    GRAPH_WIRE_STOP,                         /* the run has stopped */
    GRAPH_WIRE_READY,                        /* where a result lies */
    GRAPH_WIRE_TAKEN                         /* a consumer has read a transient one */
};

/* The header of each message of a graph. READY has the key of the region as its payload. */
struct graph_wire {
    uint64_t team;
    uint32_t graph, task, run; /* run: of the graph over that team */
    int32_t status;            /* of STOP */
    uint64_t len, remote;      /* of READY: where the result lies in its producer */
};

/* Memory for the results that this member makes or awaits, and that have none yet. */
weft_status_t weft__results_reserve(weft_graph_t *graph);
/* The regions and the keys of others are given back. */
void weft__results_release(struct graph_ranks *ranks);
/* The endpoints of the members are others now: so are their keys. */
void weft__results_forget_keys(struct graph_ranks *ranks);

/* Whether the worker's regions are registered with a device, and keep their pages. */
bool weft__results_pinned(weft_worker_t *worker);
/* How often each transient result is used here in a run that begins. */
void weft__results_count_uses(weft_graph_t *graph);
/* A successor of the task has ended here, or another member has its result: the last one gives the
 * memory of a transient result back. Any thread. */
void weft__result_used(struct task *task);

/* On the worker's thread: another member's task ends here, without a result. */
void weft__result_lost(struct task *task);
/* A RESULT or READY for a task that is awaited here. */
void weft__result_take(struct task *task, weft_am_t *am);
void weft__result_ready(struct task *task, const struct graph_wire *wire, const weft_am_t *am);

#endif
