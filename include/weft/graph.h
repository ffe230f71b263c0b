/* Task graphs: functions that run when their inputs are there, on the threads of this process or
 * of all members of a team. */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include <weft/team.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A graph has threads of its own. A task names earlier tasks as its inputs, so a graph has no
 * cycles. When all inputs of a task are done, one thread calls its function. Idle threads take
 * tasks of busy ones (work stealing) and sleep when there are none.
 *
 * Unless stated otherwise, functions are called from one thread at a time, not while the graph runs
 * (BUSY), and not by a task. A callback of a worker may call them all; weft_graph_run_wait is BUSY
 * there for a graph with a team. A graph and its threads do not survive a fork (FORKED).
 */
typedef struct weft_graph weft_graph_t;

typedef uint32_t weft_task_t; /* tasks are numbered from 0 in the order of weft_graph_add */
#define WEFT_NO_TASK UINT32_MAX

/* Values of weft_task_params_t.on_gpu, and of weft_task_call_t.gpu. */
enum { WEFT_GPU_REQUIRED = 1, WEFT_GPU_PREFERRED = 2 };
#define WEFT_NO_GPU UINT32_MAX

/* Values of weft_graph_params_t.progress_bar. */
enum { WEFT_BAR_ON_TERMINAL = 1, WEFT_BAR_ALWAYS = 2 };

/* What a task's function is given. */
typedef struct weft_task_call {
    void *arg; /* of weft_task_params_t */
    /* the results of the inputs, in the order of weft_task_params_t.inputs, by reference */
    const void *const *inputs;
    const size_t *input_lens;
    uint32_t n_inputs;
    void *result;      /* result_size bytes, aligned to 16; NULL if that is 0 */
    size_t result_len; /* set it if the result is shorter than result_size */
    uint32_t thread;   /* 0: the caller of weft_graph_run_wait; 1 … n_threads: the graph's own */
    uint32_t gpu;      /* with weft_task_params_t.on_gpu: which one, below n_gpus; or WEFT_NO_GPU */
    /* With weft_task_params_t.cores: the threads that the task has to itself, 1 at least, and the
     * processors that they are bound to (-1: none). The first one is this thread's. */
    uint32_t n_cores;
    const int *cpus;
} weft_task_call_t;

/* WEFT_OK, or an error (< 0), which ends the graph unless the task has retries left. */
typedef weft_status_t (*weft_task_fn)(weft_task_call_t *call);

typedef struct weft_graph_params {
    /* threads of the graph's own, 4,096 at most; 0: one less than the processors that it may use, 1
     * at least */
    uint32_t n_threads;
    /* not 0: thread i is bound to the i-th processor that the caller may use; beyond the last it
     * begins again with the first */
    int pin;
    int trace; /* not 0: note when and where each task ran */
    /*
     * Optional. `done` of `total` tasks have ended. Called on any thread that runs tasks, by one at
     * a time, with growing numbers; the last call has done == total. With a team they are the tasks
     * that this member runs.
     */
    void (*on_progress)(uint32_t done, uint32_t total, void *arg);
    void *arg;
    /*
     * Not NULL: a graph over the members of the team. Every member creates the graphs of a team,
     * and begins their runs, in the same order, and adds the same tasks. A task is run by one
     * member. The members that have successors of it read its result one-sidedly where it lies; up
     * to the setting graph.inline it is sent to them. A run ends with one outcome for all members:
     * that of a task that failed anywhere, or of a member that was lost.
     *
     * With pure tasks (retries) a run survives the loss of members. Those that are left shrink the
     * team, keep the results that they have, and go on with the rest. A task that is not pure, and
     * whose result is lost, ends the run as PEER_FAILED. The tasks of the lost members stay with
     * those that took them. `team` has then failed, and the program still closes it.
     *
     * Several graphs of one team may run at once; their ends are agreed on in the order of their
     * begins. While they run, the program may call collectives of the team. It may call no safe
     * ones (WEFT_COLL_SAFE) and no agreement, since a team makes one agreement at a time.
     *
     * Functions of this header are called on the thread of the team's worker, which has to make
     * progress. The team must outlive the graph.
     */
    weft_team_t *team;
    /* The number of GPUs of this process that tasks may use (on_gpu), at most n_threads. Each has
     * a thread. */
    uint32_t n_gpus;
    /*
     * WEFT_BAR_ON_TERMINAL: if stderr is a terminal, a run writes one line there, with the number
     * of its tasks that have ended, at most ten times a second. WEFT_BAR_ALWAYS: also to a file or
     * a pipe. The line ends when the run does; after an error it says "stopped". With a team, rank
     * 0 shows the tasks that it runs itself. Text that the program prints meanwhile stands in that
     * line.
     */
    int progress_bar;
} weft_graph_params_t;

/* Creates a graph without tasks, and its threads. `params` may be NULL. Errors: INVALID_PARAM;
 * NO_MEMORY, also if a thread cannot be created; with a team BUSY before it is ready, and the
 * status that it failed with. */
#define weft_graph_create(...) weft_graph_create_sized(sizeof(weft_graph_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_graph_create_sized(size_t params_size,
                                               const weft_graph_params_t *params,
                                               weft_graph_t **graph_p);

/* Cancels, waits until no task runs, and frees the graph with all results. NULL is ignored. A run's
 * `done` that has not been called yet is called later. Within a callback of the team's worker
 * nothing is waited for: the graph is freed when its run has ended. With a team it has no effect on
 * another thread than the worker's. */
WEFT_API void weft_graph_destroy(weft_graph_t *graph);

typedef struct weft_task_params {
    weft_task_fn fn;
    const char *function; /* if fn is NULL: a name given to weft_graph_register */
    void *arg;
    const weft_task_t *inputs; /* copied */
    uint32_t n_inputs;
    size_t result_size; /* bytes */
    const char *name;   /* optional, copied: for errors and traces */
    /*
     * Not 0: a pure task. After an error it is called again, at most this often. With a team,
     * another member runs it if the one that had it is lost, and no member that is left has its
     * result.
     */
    uint32_t retries;
    int on_cpu; /* not 0: only the thread that is bound to processor `cpu` runs it */
    int cpu;
    /*
     * With a team, not 0: the member that runs it. Else it is the one that makes the largest input;
     * without inputs, the task's number modulo the size of the team.
     */
    int on_rank;
    uint32_t rank;
    /* With a team, not 0: a member on the host of member `host` runs it. It is the one that makes
     * the largest input if that is on the host, else one by the task's number. */
    int on_host;
    uint32_t host;
    /* Not 0: a thread that is bound to a processor of this NUMA node runs it; where there is none,
     * any thread. */
    int on_node;
    int node;
    /*
     * WEFT_GPU_REQUIRED: it has a GPU for itself while it runs (weft_task_call_t.gpu).
     * WEFT_GPU_PREFERRED: likewise where the graph has GPUs; elsewhere any thread runs it, and
     * `gpu` is WEFT_NO_GPU. At most one of on_cpu, on_node and on_gpu.
     */
    int on_gpu;
    /*
     * Not 0: only its successors need the result. When the last of them has ended, each member
     * gives the memory back to the system, by whole pages, unless a device may have it registered.
     * weft_graph_result is NOT_FOUND then. A result without successors stays.
     */
    int transient;
    /*
     * Above 1: this number of the graph's own threads are reserved for the task while it runs. They
     * are the one that calls the function, and others, which sleep until it ends. The function may
     * use their processors by threads of its own. The task begins when the others have ended what
     * they run. Not with on_cpu, on_node or on_gpu.
     */
    uint32_t cores;
} weft_task_params_t;

/*
 * Adds a task. Errors: INVALID_PARAM, also for an input that is not an earlier task; NOT_FOUND if
 * no function has that name, no thread is bound to that processor, there are no GPUs, or
 * the graph has fewer threads of its own than `cores`; NO_MEMORY; BUSY.
 *
 * With a team, only the member that is to run the task refuses it for lack of a processor, a GPU or
 * threads. A member that takes it over from a lost one, and lacks them, ends the run as NOT_FOUND.
 */
#define weft_graph_add(...) weft_graph_add_sized(sizeof(weft_task_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_graph_add_sized(size_t params_size, weft_graph_t *graph,
                                            const weft_task_params_t *params, weft_task_t *task_p);

/* Gives a function a name, in this process. The text is not copied. Any thread. Errors:
 * INVALID_PARAM; EXISTS if the name has another function; NO_MEMORY. */
WEFT_API weft_status_t weft_graph_register(const char *name, weft_task_fn fn);

/*
 * Runs all tasks, each once. A graph can run again; results are overwritten then. `done`, not NULL,
 * is called once: in the turn of `worker`. If that is NULL, it is called in the turn of the team's
 * worker, or without a team on a thread of the graph, where it must not destroy the graph. Its
 * status: OK; the error of the first task that failed; CANCELLED; TIMED_OUT
 * (weft_graph_set_deadline); with a team also PEER_FAILED, and those of collectives
 * (weft/collective.h). After an error the tasks that have not begun are skipped.
 *
 * Returns WEFT_IN_PROGRESS. Errors: INVALID_PARAM; BUSY; NO_MEMORY; FORKED; with a team those of
 * collectives.
 */
WEFT_API weft_status_t weft_graph_run(weft_graph_t *graph, weft_worker_t *worker, weft_done_fn done,
                                      void *arg);

/*
 * The same, and returns the status of the run when it has ended. Meanwhile the calling thread runs
 * tasks, too. With a team it drives the worker instead. Errors: also BUSY
 * within a callback, with a team.
 */
WEFT_API weft_status_t weft_graph_run_wait(weft_graph_t *graph);

/* Skips the tasks that have not begun; the run ends as CANCELLED. One whose tasks have all ended by
 * then may end as it would without, with a team at all members alike. Any thread, and tasks. */
WEFT_API void weft_graph_cancel(weft_graph_t *graph);

/*
 * Sets the deadline of later runs, in ms from the begin of each; 0, the default: none. When it
 * passes, the tasks that have not begun are skipped. The run ends as TIMED_OUT when those that
 * have begun have ended. A run whose tasks have all begun by then ends as it would without.
 *
 * With a team, the deadline of any member ends the run of all. They agree on the end, so the run
 * ends when the last member has begun it, if that is later. Errors: INVALID_PARAM; BUSY; FORKED.
 */
WEFT_API weft_status_t weft_graph_set_deadline(weft_graph_t *graph, uint32_t deadline_ms);

/* The result of a task that is done: valid until the next run. Errors: INVALID_PARAM; BUSY;
 * NOT_FOUND if it has not run here, has failed or was skipped. With a team, results are at the
 * member that runs the task, and at those that have successors of it. */
WEFT_API weft_status_t weft_graph_result(weft_graph_t *graph, weft_task_t task, const void **data_p,
                                         size_t *len_p);

/* The task that ended the last run, with its name (NULL: none) and status. WEFT_NO_TASK: none. Both
 * outputs are optional. */
WEFT_API weft_task_t weft_graph_failed(const weft_graph_t *graph, const char **name_p,
                                       weft_status_t *status_p);

/*
 * Writes the last run as a trace in JSON, which Perfetto and Chrome read: one row a thread. With a
 * team it has the tasks that this member ran. Errors: UNSUPPORTED without
 * weft_graph_params_t.trace; BUSY; IO; NO_FDS.
 */
WEFT_API weft_status_t weft_graph_write_trace(const weft_graph_t *graph, const char *path);

/*
 * The chain of tasks of the last run whose times, added up, are the largest: no number of threads
 * makes the graph faster than `*ns_p`. `*n_p` holds the room in `tasks` and receives the number.
 * With a team the tasks of other members count as 0. Errors: TRUNCATED if there are more;
 * UNSUPPORTED without a trace; BUSY.
 */
WEFT_API weft_status_t weft_graph_critical_path(const weft_graph_t *graph, weft_task_t *tasks,
                                                uint32_t *n_p, uint64_t *ns_p);

#ifdef __cplusplus
}
#endif
#endif
