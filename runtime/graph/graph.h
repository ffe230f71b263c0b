/*
 * The internals of task graphs: tasks (task.c), the threads that run them (crew.c), the program's
 * calls (graph.c) and what is known of a run afterwards (trace.c).
 */
#ifndef WEFT_RUNTIME_GRAPH_GRAPH_H
#define WEFT_RUNTIME_GRAPH_GRAPH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <weft/graph.h>

#include "bar.h"
#include "deque.h"
#include "machines.h"

struct graph_thread;
struct task_cores;

struct task {
    struct task_core core;
    weft_graph_t *graph;
    struct graph_thread *by;            /* the thread that steps it */
    atomic_uint missing;                /* inputs that have not ended */
    uint32_t id, n_inputs, tries, rank; /* rank: whose it is */
    bool arrives;                       /* another member's result is being received */
    bool begins;                        /* no input is missing when the run begins */
    bool finished;          /* before the members that are left went on: it is not run again */
    struct task_pool *pool; /* that it waits in; NULL: any thread may take it */
    struct task *next;      /* in that */
    weft_task_params_t params;
    const void **input; /* the results of its inputs, and their lengths when it is called */
    size_t *input_len;
    void *result;                 /* of a graph over a team: if it is made or awaited here */
    struct result_region *region; /* that it lies in; NULL: none */
    size_t result_len;
    atomic_uint uses;         /* of a transient result: what still needs it here */
    atomic_bool given_back;   /* its memory */
    struct task_cores *cores; /* NULL: it needs one */
    bool lacks;               /* this member has not what it needs, and is not to run it */
    uint64_t begun, ended;    /* ns; with a trace */
    uint32_t thread;
};

/* The threads of a task that needs several. Under the graph's mutex, but for `cpu`, which the task
 * reads while it has them. */
struct task_cores {
    uint32_t n, here; /* how many it needs, and has */
    uint32_t round;   /* they are free again when it has changed */
    int cpu[];
};

/* Tasks that only some threads may run. */
struct task_pool {
    pthread_mutex_t mutex;
    struct task *_Atomic first;
};

/* The threads that are bound to the processors of one NUMA node. */
struct node_pool {
    int number;
    struct task_pool pool;
};

/* Index 0 is the caller of weft_graph_run_wait. */
struct graph_thread {
    struct deque deque;
    weft_graph_t *graph;
    struct task *next; /* runs after the current one, and no thread steals it */
    uint32_t index, n_pushed;
    uint32_t victim;               /* where it looks first for something to steal */
    int cpu;                       /* that it is bound to; -1: none */
    struct task_pool own;          /* tasks that only this thread may run */
    struct task_pool *node, *gpus; /* that it takes from, too; NULL: none */
    pthread_t thread;
};

struct weft_graph {
    weft_graph_params_t params;
    struct task **task;
    uint32_t n_tasks, room;
    /* task i's successors: successor[first[i]] … successor[first[i + 1] - 1] */
    uint32_t *first, *successor;
    bool sealed; /* these are up to date, and the deques are large enough */

    struct graph_thread *thread;
    uint32_t n_threads; /* with the caller's */
    uint32_t n_started;
    int pid;

    struct node_pool *node;
    uint32_t n_nodes;
    struct task_pool gpus;                 /* tasks that need a GPU: thread i + 1 has GPU i */
    struct task_pool wide;                 /* tasks that need several threads */
    struct task_cores *_Atomic collecting; /* of the one task that waits for threads; NULL: none */
    pthread_cond_t cores;                  /* it has one more, or they are free again */

    pthread_mutex_t mutex; /* of `wake` and of what sleepers look at */
    pthread_cond_t wake;
    atomic_uint n_sleeping;
    atomic_uint n_ended, n_left; /* tasks: n_left falls after progress was reported */
    atomic_bool running, ends, cancelled;
    atomic_bool empty; /* a run without tasks begins: a thread of the graph ends it */
    bool unwanted;   /* destroyed within a callback of the worker: it goes when its run has ended */
    atomic_int stop; /* a weft_status_t: not OK: tasks are skipped */
    atomic_uint failed;
    uint32_t deadline_ms; /* of each run; 0: none */
    uint64_t deadline;    /* of this run, ns; 0: none, or a timer has it (ranks.c) */

    struct graph_ranks *ranks;   /* over a team; NULL: of this process alone */
    uint32_t n_own;              /* tasks that are run here */
    struct graph_notice *notice; /* of the run's end; NULL: none */

    pthread_mutex_t progress_mutex;
    struct progress_bar bar; /* under that, while tasks end */
    uint32_t reported;
};

uint64_t weft__graph_now(void);

/* task.c */
extern const struct fsm_port weft__task_port;
/* Runs or skips it on that thread. */
void weft__task_run(struct task *task, struct graph_thread *by);
/* A task without inputs is ready; the thread pushes it. */
void weft__task_begin(struct task *task, struct graph_thread *by);

/* crew.c */
weft_status_t weft__crew_start(weft_graph_t *graph);
void weft__crew_end(weft_graph_t *graph);
/* Runs tasks on the calling thread until the graph has ended. */
void weft__crew_help(weft_graph_t *graph);
/* Wakes a sleeping thread for one task, and all for several. */
void weft__crew_wake(weft_graph_t *graph, uint32_t n);
/* A task that has a pool. */
void weft__crew_give(weft_graph_t *graph, struct task *task);
/* Where a task waits whose wishes these are; NULL: any thread runs it. NOT_FOUND: none can. */
weft_status_t weft__crew_pool(weft_graph_t *graph, const weft_task_params_t *params,
                              struct task_pool **pool_p);

/* cores.c */
/* The calling thread is one of the task's own, and the others are to come. */
void weft__cores_collect(struct task *task, struct graph_thread *t);
void weft__cores_release(struct task *task);
/* Sleeps for the task that collects threads, if there is one. */
void weft__cores_join(struct graph_thread *t);
/* For a task that needs several. NOT_FOUND: the graph has too few threads. */
weft_status_t weft__cores_make(struct task *task);

/* graph.c */
/* Something that the run waits for is over: the last one ends it. */
void weft__graph_left(weft_graph_t *graph);
/* What this member runs, and what it waits for; sets n_own. */
uint32_t weft__graph_count(weft_graph_t *graph);
/* The tasks that miss no input are ready. Returns how many threads may be woken. */
uint32_t weft__graph_push_first(weft_graph_t *graph);
/* Ends a run without tasks. False: there is none. */
bool weft__graph_end_empty(weft_graph_t *graph);
/* All members, if there are several, have ended it. */
void weft__graph_end_run(weft_graph_t *graph);
/* The run stops, for the first reason. */
void weft__graph_stop(weft_graph_t *graph, weft_status_t status, weft_task_t task);
/* A task has ended; the last one ends the run. */
void weft__graph_task_ended(weft_graph_t *graph);

#endif
