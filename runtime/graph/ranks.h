/*
 * Graphs over the members of a team. Each member adds the same tasks and runs its own. The result
 * of a task goes to the members that have successors of it.
 */
#ifndef WEFT_RUNTIME_GRAPH_RANKS_H
#define WEFT_RUNTIME_GRAPH_RANKS_H

#include "graph.h"

#include <collectives/team.h>

struct graph_ranks {
    weft_graph_t *graph;
    weft_team_t *team;     /* the members that take part now */
    weft_team_t *shrunken; /* the same, if the graph has made it; else NULL: it is the program's */
    weft_worker_t *worker;
    struct list of_registry;
    struct list of_runs; /* while a run of it has not left the team */
    bool runs, waits;    /* it is there; it waits for those before it */
    struct team_watch watch;
    struct timer deadline;       /* of a run */
    uint32_t rank, size, number; /* number: among the team's graphs */
    uint32_t n_pure;             /* tasks that may run again elsewhere */
    int64_t outcome, agreed;
    uint64_t fine, *missed;    /* of the agreement at the end of a run: what all say; who is lost */
    uint32_t run;              /* its number, by which messages of an earlier one are known */
    bool begun;                /* by all members */
    bool stopped;              /* the others have been notified */
    bool lost;                 /* the run stopped because a member was lost */
    bool expired;              /* its deadline has passed */
    uint32_t n_refused;        /* agreements on its end, for lack of memory */
    struct job over;           /* nothing is left to do here, and there was no memory to post it */
    struct recovery *recovery; /* in progress; NULL: none */
    struct recovery *reserved; /* memory for it, so that a loss finds it; NULL: none yet */
    struct list regions, keys; /* of results (results.c) */
    bool pinned;
    uint64_t inline_most; /* bytes of a result that goes with its notice */
};
struct graph_wire;

/* On the worker's thread: joins the team's graphs. */
weft_status_t weft__graph_ranks_open(weft_graph_t *graph);
void weft__graph_ranks_close(weft_graph_t *graph);
/* The worker of its team. */
weft_worker_t *weft__graph_worker(const weft_graph_t *graph);
/* Whose task a new one is. */
weft_status_t weft__graph_ranks_place(weft_graph_t *graph, struct task *task);
/* The run begins when all members have begun it. */
weft_status_t weft__graph_ranks_begin(weft_graph_t *graph);
/* What messages about a task begin with. */
struct graph_wire weft__graph_wire(const struct graph_ranks *ranks, uint32_t task);
/* The result of a task could not be received: the run stops, or goes on after the loss of its
 * member. On the worker's thread. */
void weft__graph_unreadable(const struct task *task, weft_status_t status);
/* A task of this member is done: its result is sent. Any thread, before the task has ended. */
void weft__graph_ranks_done(struct task *task);
/* The run stops: the others are notified. Any thread. */
void weft__graph_ranks_stop(weft_graph_t *graph);
/* Nothing is left to do at this member. Any thread. */
void weft__graph_ranks_over(weft_graph_t *graph);
/* A barrier of the members of this graph alone, apart from the other collectives of the team. */
weft_status_t weft__graph_ranks_meet(struct graph_ranks *ranks, weft_done_fn done);
/* The run has ended here: the next one of its team may agree on its end. */
void weft__graph_ranks_ended(struct graph_ranks *ranks);
/* All members have begun, or begun again. */
void weft__graph_ranks_began(weft_status_t status, void *graph);
/* From now on these members take part. */
void weft__graph_ranks_join(struct graph_ranks *ranks, weft_team_t *team);

/* recovery.c: all members that are left know that others are lost. They go on with the run, or end
 * it. On the worker's thread, when nothing is left to do here. */
void weft__graph_recover(struct graph_ranks *ranks);
/* Memory for that, before a run that may need it. */
weft_status_t weft__graph_recovery_reserve(struct graph_ranks *ranks);

/* This member runs it; another's result is waited for here. */
bool weft__graph_is_own(const weft_graph_t *graph, const struct task *task);
bool weft__graph_awaits(const weft_graph_t *graph, const struct task *task);

#endif
