/*
 * Graphs over the members of a team. Each member adds the same tasks and runs its own. The result
 * of a task goes to the members that have successors of it.
 */
#ifndef WEFT_RUNTIME_GRAPH_RANKS_H
#define WEFT_RUNTIME_GRAPH_RANKS_H

#include "graph.h"

/* On the worker's thread: joins the team's graphs. */
weft_status_t weft__graph_ranks_open(weft_graph_t *graph);
void weft__graph_ranks_close(weft_graph_t *graph);
/* The worker of its team. */
weft_worker_t *weft__graph_worker(const weft_graph_t *graph);
/* Whose task a new one is. */
weft_status_t weft__graph_ranks_place(weft_graph_t *graph, struct task *task);
/* The run begins when all members have begun it. */
weft_status_t weft__graph_ranks_begin(weft_graph_t *graph);
/* A task of this member is done: its result is sent. Any thread, before the task has ended. */
void weft__graph_ranks_done(struct task *task);
/* The run stops: the others are notified. Any thread. */
void weft__graph_ranks_stop(weft_graph_t *graph);
/* Nothing is left to do at this member. Any thread. */
void weft__graph_ranks_over(weft_graph_t *graph);
/* This member runs it; another's result is waited for here. */
bool weft__graph_is_own(const weft_graph_t *graph, const struct task *task);
bool weft__graph_awaits(const weft_graph_t *graph, const struct task *task);

#endif
