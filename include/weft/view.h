/*
 * The runtime view: the processes of a program, the hardware that each of them has, and what is to
 * be ended before the program ends. A program of one process and one that a launcher started on
 * many machines use it in the same way.
 *
 * A view is reference-counted. NULL is the null view: it has no processes, and every function
 * accepts it. A function that needs a process then returns INVALID_PARAM, or NULL.
 *
 * Threads and callbacks: weft/base.h has the rules. The owner is the thread of the view's worker.
 */
#ifndef WEFT_VIEW_H
#define WEFT_VIEW_H

#include <stdbool.h>
#include <weft/collective.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_view weft_view_t;

/*
 * What brings the processes together:
 *
 * - "weft-run": the processes that weft-run started.
 * - "mpi": a communicator of Open MPI or MPICH, which is loaded at run time. MPI is initialized if
 *   nothing has done so, and finalized after the last view that needs it (weft_view_did_start).
 * - "pmix": PMIx, as prterun, mpirun of Open MPI or srun --mpi=pmix offer it to each process. Its
 *   client library is loaded at run time. One view of a process uses it at a time.
 * - "store": rank 0 serves the exchange at a TCP address that all know (params->store). Also used
 *   for the tasks of a Slurm step, and for those of other launchers whose MPI the program does not
 *   use.
 * - "single": this process alone.
 */
typedef struct weft_view_params {
    /*
     * The worker that the view uses. NULL: a worker that the views of this thread share. It ends
     * with the last of them. A call that waits for one of them makes progress for all.
     */
    weft_worker_t *worker;
    /*
     * NULL: "mpi" if `mpi_comm` is set, if MPI is initialized in this process, or if its launcher
     * started this process. Otherwise the first of "weft-run", "pmix", "store" and "single" whose
     * environment is there.
     */
    const char *engine;
    int *argc; /* optional: for MPI's initialization */
    char ***argv;
    const void *mpi_comm; /* optional: address of an MPI_Comm; it is duplicated */
    /*
     * "host:port" of the store; NULL: the environment's WEFT_STORE. Ranks come from `rank` and
     * `size`; with size 0 from WEFT_RANK and WEFT_SIZE, else from the variables of Open MPI's
     * mpirun, of PMI (Hydra), of jsrun, or of Slurm, the first of these that are there. Keep the
     * port from unverified peers: ranks are believed.
     */
    const char *store;
    uint32_t rank, size;
    uint32_t deadline_ms; /* for the creation; 0: the setting team.timeout */
    /* called once, with the outcome */
    void (*on_ready)(weft_view_t *view, weft_status_t status, void *arg);
    /* optional: a finalizer ended with an error or exceeded its deadline */
    void (*on_finalizer_error)(const char *name, weft_status_t status, void *arg);
    void *arg;
} weft_view_params_t;

/*
 * Creates a view with one reference. Returns WEFT_OK and the handle; on_ready reports the outcome.
 * A view that is left when its worker closes ends with it, whatever references there are: its team
 * is closed, its finalizers run, and the handle is gone when the worker is.
 * After a failed creation the view must still be released. `params` may be NULL. MPI's own
 * initialization blocks within the call, and so does the look-up of a store's name; deadline_ms
 * does not limit them. A communicator is duplicated after the call, and has to be there until
 * on_ready.
 *
 * Errors: INVALID_PARAM; NOT_FOUND if the engine's library or environment is not there; UNSUPPORTED
 * for an unknown engine, and for an Open MPI that needs another start (the causes name it); ADDRESS
 * for a store whose name is not found; EXISTS, NO_FDS or IO if rank 0 cannot listen there; CLOSED
 * if MPI is finalized; IO for an error of MPI or PMIx; what weft_team_create reports; without
 * params->worker also what weft_context_create and weft_worker_create report.
 */
#define weft_view_create(...) weft_view_create_sized(sizeof(weft_view_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_view_create_sized(size_t params_size, const weft_view_params_t *params,
                                              weft_view_t **view_p);
/* As above, and drives the worker until the view is ready. After an error there is no view. */
#define weft_view_create_wait(...) \
    weft_view_create_wait_sized(sizeof(weft_view_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_view_create_wait_sized(size_t params_size,
                                                   const weft_view_params_t *params,
                                                   weft_view_t **view_p);

/* Adds a reference, and returns the view. Owner's thread. */
WEFT_API weft_view_t *weft_view_retain(weft_view_t *view);

/*
 * Removes a reference. WEFT_OK if others are left, or for the null view. The last one returns
 * WEFT_IN_PROGRESS. The finalizers run, then the team is closed, then the engine ends. Then
 * `op->done` is called with the first error of a finalizer, and the handle is gone.
 *
 * Errors: UNSUPPORTED for the last reference of a view that uses no worker of the program
 * (weft_view_release_wait ends it), and for op->deadline_ms; BUSY if it is being released.
 */
WEFT_API weft_status_t weft_view_release(weft_view_t *view, const weft_op_t *op);
/*
 * As above, and drives the worker until the view is gone. If only splits in progress and parts that
 * are being released hold the view beside the caller, it drives them to their end first. Errors:
 * also BUSY within a callback.
 */
WEFT_API weft_status_t weft_view_release_wait(weft_view_t *view);

/* ---- processes ---- */

/* These read what the view holds. They never fail. Any thread that holds a reference. */
WEFT_API uint32_t weft_view_size(const weft_view_t *view);      /* 0: null */
WEFT_API uint32_t weft_view_rank(const weft_view_t *view);      /* of this process; 0 if null */
WEFT_API const char *weft_view_engine(const weft_view_t *view); /* "null" if null */
/* Whether the library initialized what the engine stands for (MPI, PMIx), and so finalizes it. */
WEFT_API bool weft_view_did_start(const weft_view_t *view);
/* Whether both are views of the same processes in the same order. */
WEFT_API bool weft_view_equal(const weft_view_t *a, const weft_view_t *b);
WEFT_API weft_worker_t *weft_view_worker(const weft_view_t *view); /* NULL if null */
WEFT_API weft_team_t *weft_view_team(const weft_view_t *view);     /* NULL before it is ready */
/*
 * Copies a view's MPI communicator to `comm_p`, of `size` bytes: sizeof(MPI_Comm). It has the
 * processes of the view by their ranks. Once the view is ready, Weft sends nothing in it. The view
 * frees it after the last finalizer; the program does not.
 *
 * Errors: INVALID_PARAM, also for another size than this MPI's; BUSY before the view is ready;
 * NOT_FOUND for a view of another engine than "mpi", and for a part.
 */
WEFT_API weft_status_t weft_view_mpi_comm(const weft_view_t *view, void *comm_p, size_t size);

/*
 * Creates a view of the members that give the same colour, in the order of (key, rank). Every
 * member of `view` calls it, at the same place among its collectives. A member that gives
 * WEFT_NO_COLOUR takes part and gets NULL, the null view; its on_ready is called with NULL.
 *
 * The new view holds a reference of `view`, and uses its worker and its engine.
 *
 * Returns WEFT_OK; on_ready reports the outcome. A part that it brings with an error must still be
 * released. Errors: BUSY before `view` is ready, and once its last reference is released, also in
 * a finalizer; and those of collectives (weft/collective.h).
 */
typedef struct weft_view_split_params {
    uint32_t colour, key;
    void (*on_ready)(weft_view_t *part, weft_status_t status, void *arg);
    void *arg;
    /* For the split, which then ends as TIMED_OUT here. The team of `view` has failed if it waited
     * for a member that did not call. 0: the settings coll.timeout and team.timeout. */
    uint32_t deadline_ms;
} weft_view_split_params_t;
#define weft_view_split(...) weft_view_split_sized(sizeof(weft_view_split_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_view_split_sized(size_t params_size, weft_view_t *view,
                                             const weft_view_split_params_t *params);
WEFT_API weft_status_t weft_view_split_wait(weft_view_t *view, uint32_t colour, uint32_t key,
                                            weft_view_t **part_p);
/*
 * Creates a view of the processes that share a host, a NUMA node or a GPU with this one, in the
 * order of their ranks. The node is that of the first processor that a process may run on; the GPU
 * is the first that it sees. Every member calls it. With WEFT_BY_GPU a process without a GPU, or
 * with one of an unknown place, gets NULL, the null view. Errors: as of weft_view_split; BUSY
 * within a callback.
 */
typedef enum weft_partition { WEFT_BY_HOST, WEFT_BY_NUMA_NODE, WEFT_BY_GPU } weft_partition_t;
WEFT_API weft_status_t weft_view_partition_wait(weft_view_t *view, weft_partition_t by,
                                                weft_view_t **part_p);

/* ---- finalizers ---- */

typedef struct weft_finalizer weft_finalizer_t;

/*
 * Ends something before the view's engine ends. Returns WEFT_OK or an error; or WEFT_IN_PROGRESS,
 * and then calls weft_finalizer_complete once, on the worker's thread. It may push others, which
 * run next. It may use the view, except to split it. The view ends after the last finalizer,
 * whatever a finalizer retains.
 */
typedef weft_status_t (*weft_finalizer_fn)(weft_finalizer_t *finalizer, void *arg);

typedef struct weft_finalizer_params {
    const char *name;     /* for errors; 63 bytes of it are copied */
    uint32_t deadline_ms; /* of one that is in progress; 0: 10 s. Then the next one runs */
} weft_finalizer_params_t;

/*
 * Pushes a finalizer. They run in the reverse order when the last reference of the view is
 * released, each once: it is popped, then called. `params` and `finalizer_p` may be NULL.
 *
 * exit() and signals do not run them: MPI's and the kernel's own teardown does the rest. A program
 * that wants them calls weft_view_release_wait first, from its own handler of SIGTERM's event.
 *
 * Errors: NO_MEMORY; CLOSED after the last one has run.
 */
#define weft_view_push_finalizer(...) \
    weft_view_push_finalizer_sized(sizeof(weft_finalizer_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_view_push_finalizer_sized(size_t params_size, weft_view_t *view,
                                                      weft_finalizer_fn run, void *arg,
                                                      const weft_finalizer_params_t *params,
                                                      weft_finalizer_t **finalizer_p);
/* Takes a finalizer back that has not been called. Errors: NOT_FOUND if it has. */
WEFT_API weft_status_t weft_view_remove_finalizer(weft_view_t *view, weft_finalizer_t *finalizer);
/* Ends a finalizer that returned WEFT_IN_PROGRESS. A call after its deadline frees what is left of
 * it, and has no other effect, also when the view is gone. */
WEFT_API void weft_finalizer_complete(weft_finalizer_t *finalizer, weft_status_t status);

/* ---- resource sets ---- */

enum { WEFT_MAX_CPUS = 2048, WEFT_MAX_DEVICES = 16, WEFT_MAX_NODES = 16, WEFT_MAX_CACHES = 4 };

typedef struct weft_device_info {
    char name[32];     /* "eth0", "mlx5_0", "NVIDIA H200" */
    char address[48];  /* of a network device: its first address; "" if it has none */
    uint64_t memory;   /* of a GPU, bytes */
    uint64_t id;       /* unique among its kind, on all hosts; 0: unknown */
    int32_t numa_node; /* -1: unknown */
} weft_device_info_t;

/* The caches of one level that a process has, for data, or for data and instructions. */
typedef struct weft_cache_info {
    uint32_t level, n; /* n: their number */
    uint64_t size;     /* of one, bytes; of the largest, if they differ */
} weft_cache_info_t;

/* A NUMA node: a bank of memory, and the processors beside it. */
typedef struct weft_node_info {
    int32_t number, package;      /* of the host; -1: unknown */
    uint32_t n_cpus;              /* of the process, beside it */
    uint64_t ram_total, ram_free; /* of the bank, bytes; 0: unknown */
    uint64_t ram_id;              /* equal for processes that share the bank; 0: unknown */
} weft_node_info_t;

/* The hardware of one process. Sizes are in bytes. In the set of another process no count is beyond
 * its array, and each text ends, whatever that process wrote. */
typedef struct weft_resource_set {
    uint32_t rank;
    int32_t pid;
    uint64_t process_id; /* unique among processes, on all hosts and before it */
    char host[64];
    uint64_t host_id; /* equal for processes of one boot of one host; 0: unknown */
    /* A bit for each processor that it may run on; those from WEFT_MAX_CPUS on are left out. */
    uint64_t cpus[WEFT_MAX_CPUS / 64];
    uint32_t n_cpus, n_cores;          /* of those; hardware threads, and cores */
    uint32_t n_packages, n_numa_nodes; /* that those belong to */
    int32_t package, numa_node;        /* the first of them; -1: unknown */
    weft_node_info_t node[WEFT_MAX_NODES];
    uint32_t n_caches; /* levels */
    weft_cache_info_t cache[WEFT_MAX_CACHES];
    char topology[8];            /* what said so: "sysfs", "hwloc" or "none" */
    uint64_t ram_total;          /* of the host, or the limit of its control group */
    uint64_t ram_free, ram_used; /* as the owner measured them last; `used` by it */
    uint64_t ram_id;             /* equal for processes that share it */
    uint32_t n_gpus, n_rdma_devices, n_network_devices;
    weft_device_info_t gpu[WEFT_MAX_DEVICES], rdma_device[WEFT_MAX_DEVICES],
        network_device[WEFT_MAX_DEVICES];
} weft_resource_set_t;

/*
 * Returns a member's resource set. It is fetched from its owner by the first call and kept as long
 * as the view. `refresh`: fetch it again, into the same memory. The owner measures it when the view
 * is created and in weft_view_mine. It needs to make no call for a fetch, only progress. An owner
 * that has released its view cannot be asked: where others may still fetch, call a barrier before
 * the release.
 *
 * Errors: INVALID_PARAM for a rank out of range; BUSY before the view is ready; PEER_FAILED, or
 * REVOKED after the owner has released its view.
 */
WEFT_API weft_status_t weft_view_at_wait(weft_view_t *view, uint32_t rank, bool refresh,
                                         const weft_resource_set_t **set_p);
/*
 * The same without waiting: when `done` is called with OK, or the call returns it,
 * weft_view_at_wait gives the set at once. Errors: also UNSUPPORTED for an `op` with a completion,
 * a layout or a stream; its TIMED_OUT and CANCELLED; CLOSED when the view ends before.
 */
WEFT_API weft_status_t weft_view_fetch(weft_view_t *view, uint32_t rank, bool refresh,
                                       const weft_op_t *op);
/* This process's own set, measured by the call; NULL for the null view. */
WEFT_API const weft_resource_set_t *weft_view_mine(weft_view_t *view);
/* Whether the set is that of a member, whatever view it came from. */
WEFT_API bool weft_view_has(const weft_view_t *view, const weft_resource_set_t *set);
/*
 * The number of members that share what `set` has: the RAM of its host, the bank of its node[node],
 * or its gpu[gpu]. What has no known id is shared by none, not even by the member itself. They
 * fetch the sets of all members, with the errors of weft_view_at_wait.
 */
WEFT_API weft_status_t weft_view_count_ram_wait(weft_view_t *view, const weft_resource_set_t *set,
                                                uint32_t *count_p);
WEFT_API weft_status_t weft_view_count_node_wait(weft_view_t *view, const weft_resource_set_t *set,
                                                 uint32_t node, uint32_t *count_p);
WEFT_API weft_status_t weft_view_count_gpu_wait(weft_view_t *view, const weft_resource_set_t *set,
                                                uint32_t gpu, uint32_t *count_p);

#ifdef __cplusplus
}
#endif
#endif
