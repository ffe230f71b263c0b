/*
 * Resources: what one library made and another uses, without a second copy.
 *
 * A provider describes a resource (weft_resource_describe). A consumer creates an object in
 * associated mode, and associates it with the resource later (weft_associate_resources). Until
 * then every call on the object returns NOT_ASSOCIATED, except that handlers of active messages
 * may be set. They are kept. The clock, the counters and the trace of a worker can be read, too.
 *
 * Parents must be in associated mode, too. A worker needs a context in associated mode. A team, an
 * endpoint and a region need a worker in associated mode that is associated.
 *
 * Errors of objects in associated mode, for every call on them: NOT_ASSOCIATED before the first
 * association, DISASSOCIATED after its end, RESOURCE_LOST after a loss.
 *
 * Threads: any thread may call the functions that take a resource, unless they say otherwise. In a
 * child of fork, resources of its parent are refused (FORKED), except for weft_resource_value.
 * Endpoints, regions and teams without a resource are closed by the thread that owns their worker.
 * The consumer's callbacks run on the consumer's worker, the provider's on the provider's worker
 * (weft_resource_provider_t).
 */
#ifndef WEFT_RESOURCE_H
#define WEFT_RESOURCE_H

#include <weft/memory.h>
#include <weft/team.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_resource weft_resource_t;

/* The type of an object in associated mode. */
typedef enum weft_object {
    WEFT_OBJECT_CONTEXT,
    WEFT_OBJECT_WORKER,
    WEFT_OBJECT_TEAM,
    WEFT_OBJECT_ENDPOINT,
    WEFT_OBJECT_MEMORY
} weft_object_t;

/* What a resource is. The keys that a kind needs are mandatory, those in brackets optional. */
typedef enum weft_resource_kind {
    /* the program's own, for a context: any keys */
    WEFT_RESOURCE_USER,
    /* a libev loop, for a worker: WEFT_RES_WORKER_LOOP */
    WEFT_RESOURCE_LOOP,
    /* another library's Weft worker, for a worker: WEFT_RES_WORKER_HANDLE */
    WEFT_RESOURCE_WORKER,
    /* endpoints in rank order, for a team or an endpoint: WEFT_RES_ENDPOINT_SET,
       [WEFT_RES_TEAM_RANK]. All workers of a team have associated as many teams of several members
       in this way before: they are matched by their number. */
    WEFT_RESOURCE_ENDPOINTS,
    /* a team, for another team of the same members: WEFT_RES_TEAM_HANDLE */
    WEFT_RESOURCE_TEAM,
    /* a memfd with F_SEAL_SHRINK, for a region: WEFT_RES_MEMORY_FD and WEFT_RES_MEMORY_LENGTH,
       [WEFT_RES_MEMORY_OFFSET] (a multiple of the page size) */
    WEFT_RESOURCE_SEGMENT,
    /* memory of this process, for a region: WEFT_RES_MEMORY_BASE and WEFT_RES_MEMORY_LENGTH,
       [WEFT_RES_MEMORY_HANDLE] (a region of the same worker, whose key is then reused),
       [WEFT_RES_MEMORY_MR] (its registration in the PD of the worker, which is then reused) */
    WEFT_RESOURCE_MEMORY,
    /* a listening TCP socket, for a worker: WEFT_RES_WORKER_SOCKET, [WEFT_RES_WORKER_LISTEN] */
    WEFT_RESOURCE_SOCKET,
    /* an MPI communicator, for a team: WEFT_RES_TEAM_MPI (weft_mpi_t) */
    WEFT_RESOURCE_MPI,
    /* a descriptor to watch and a function to call, as of a UCX worker, for a worker:
       WEFT_RES_WORKER_EVENTS (weft_events_t) */
    WEFT_RESOURCE_EVENTS,
    /* a connected TCP socket, for an endpoint: WEFT_RES_ENDPOINT_SOCKET */
    WEFT_RESOURCE_CONNECTION,
    /* objects of verbs that the rdma transports of a worker use, for a worker: WEFT_RES_WORKER_PD,
       [WEFT_RES_WORKER_CQ, WEFT_RES_WORKER_SRQ, WEFT_RES_WORKER_QP, WEFT_RES_WORKER_VERBS,
       WEFT_RES_WORKER_LOOP, and those of CUDA] */
    WEFT_RESOURCE_VERBS,
    /* a CUDA context (and a stream of it) in which a worker copies device memory, for a worker:
       WEFT_RES_WORKER_CUDA_CONTEXT, [WEFT_RES_WORKER_CUDA_STREAM, WEFT_RES_WORKER_LOOP] */
    WEFT_RESOURCE_CUDA,
    WEFT_N_RESOURCE_KINDS
} weft_resource_kind_t;

/* Keys have the form WEFT_RES_<OBJECT>_<ID>. A program may add its own of any name. */
#define WEFT_RES_WORKER_LOOP         "WEFT_RES_WORKER_LOOP"   /* struct ev_loop * */
#define WEFT_RES_WORKER_HANDLE       "WEFT_RES_WORKER_HANDLE" /* weft_worker_t * */
#define WEFT_RES_WORKER_SOCKET       "WEFT_RES_WORKER_SOCKET" /* int; stays the provider's */
#define WEFT_RES_WORKER_LISTEN       "WEFT_RES_WORKER_LISTEN" /* weft_listen_params_t */
#define WEFT_RES_WORKER_EVENTS       "WEFT_RES_WORKER_EVENTS" /* weft_events_t */
#define WEFT_RES_WORKER_PD           "WEFT_RES_WORKER_PD"     /* struct ibv_pd * */
#define WEFT_RES_WORKER_CQ           "WEFT_RES_WORKER_CQ"     /* struct ibv_cq *, with a channel */
#define WEFT_RES_WORKER_SRQ          "WEFT_RES_WORKER_SRQ"    /* struct ibv_srq * */
#define WEFT_RES_WORKER_QP           "WEFT_RES_WORKER_QP"     /* struct ibv_qp *[]: RC, in RESET */
#define WEFT_RES_WORKER_VERBS        "WEFT_RES_WORKER_VERBS"  /* weft_verbs_t */
#define WEFT_RES_WORKER_CUDA_CONTEXT "WEFT_RES_WORKER_CUDA_CONTEXT" /* CUcontext */
#define WEFT_RES_WORKER_CUDA_STREAM  "WEFT_RES_WORKER_CUDA_STREAM"  /* CUstream; NULL: none */
#define WEFT_RES_ENDPOINT_SET        "WEFT_RES_ENDPOINT_SET"    /* weft_ep_t *[]; own rank: NULL */
#define WEFT_RES_ENDPOINT_SOCKET     "WEFT_RES_ENDPOINT_SOCKET" /* int; stays the provider's */
#define WEFT_RES_TEAM_HANDLE         "WEFT_RES_TEAM_HANDLE"     /* weft_team_t * */
#define WEFT_RES_TEAM_RANK           "WEFT_RES_TEAM_RANK"       /* uint32_t */
#define WEFT_RES_TEAM_MPI            "WEFT_RES_TEAM_MPI"        /* weft_mpi_t */
#define WEFT_RES_MEMORY_FD           "WEFT_RES_MEMORY_FD"       /* int; stays the provider's */
#define WEFT_RES_MEMORY_OFFSET       "WEFT_RES_MEMORY_OFFSET"   /* uint64_t, bytes */
#define WEFT_RES_MEMORY_LENGTH       "WEFT_RES_MEMORY_LENGTH"   /* uint64_t, bytes */
#define WEFT_RES_MEMORY_BASE         "WEFT_RES_MEMORY_BASE"     /* void * */
#define WEFT_RES_MEMORY_HANDLE       "WEFT_RES_MEMORY_HANDLE"   /* weft_mem_t * */
#define WEFT_RES_MEMORY_MR           "WEFT_RES_MEMORY_MR"       /* struct ibv_mr * */

/* One value. The library copies key and value. No tag: weft_resource_value is a function. */
typedef struct {
    const char *key; /* not empty */
    const void *value;
    size_t len; /* bytes, not 0 */
} weft_resource_value_t;

/* A descriptor that is readable while there is work, and the function that does the work. */
typedef struct weft_events {
    int fd;
    /* Called on the worker's thread when `fd` is readable. Returns how many events it handled. It
     * may disassociate the worker, and is not called again then. */
    unsigned (*progress)(void *arg);
    /*
     * Optional: called when `progress` found nothing, before the worker sleeps. Not 0: there is
     * more to do, and `progress` is called again (UCX: ucp_worker_arm returned BUSY). After a
     * thousand such calls in a row without an event it is called after pauses of 1 to 100 ms, until
     * there is one.
     */
    int (*arm)(void *arg);
    void *arg;
} weft_events_t;

/*
 * Notices about verbs objects that a worker uses. Both functions are optional, and run on the
 * worker's thread.
 *
 * - PD: the worker registers its memory there, and uses its device.
 * - CQ: completions of the worker's queue pairs arrive there. The library polls it, and makes its
 *   channel non-blocking.
 * - SRQ: the worker posts all receives, and the program none. Afterwards the queue has receives
 *   without memory, and can only be destroyed.
 * - QP: the connections of rdma_rc use these and no others. They were created with PD, CQ (both
 *   sides) and SRQ, and are in RESET before and after.
 */
typedef struct weft_verbs {
    /* A struct ibv_wc of the CQ that belongs to no queue pair of the worker. */
    void (*completion)(const void *wc, void *arg);
    /* Each struct ibv_async_event of the device, those about the worker's objects among them. The
     * library reads and acknowledges them. NULL: the program reads them. The worker then posts all
     * receives at once, and waits for no event before it returns a queue pair. */
    void (*event)(const void *event, void *arg);
    void *arg;
} weft_verbs_t;

/*
 * An MPI communicator by the functions that are needed of it, so that Weft is linked with no MPI.
 * `communicator` is passed back to them. weft_mpi_load fills it in for MPI_COMM_WORLD.
 */
typedef struct weft_mpi {
    void *communicator;
    int (*rank)(void *communicator, int *rank_p); /* they return 0 on success */
    int (*size)(void *communicator, int *size_p);
    /* `len` bytes of each rank into `all`, in rank order; blocks */
    int (*allgather)(void *communicator, const void *mine, int len, void *all);
} weft_mpi_t;

/*
 * A range of ids of active messages and of tags, so that two libraries on one worker never meet.
 * The library that holds the lease uses ids 0 … am_count - 1, and tags below 2^tag_bits. They are
 * mapped into the range on their way out and back on their way in. Both ends of a conversation need
 * the same range, so programs that associate in the same order everywhere may leave the firsts 0.
 */
typedef struct weft_lease {
    unsigned am_first, am_count;
    uint64_t tag_first; /* a multiple of 2^tag_bits */
    unsigned tag_bits;  /* at most 63 */
} weft_lease_t;

typedef enum weft_share {
    WEFT_SHARE_WHOLE, /* one user at a time */
    WEFT_SHARE_PART   /* any number of users, each of a part */
} weft_share_t;

typedef enum weft_resource_event {
    WEFT_RESOURCE_TAKEN,    /* an object was associated */
    WEFT_RESOURCE_RETURNED, /* an object has drained and uses nothing of the resource any more */
    WEFT_RESOURCE_LOST      /* it is lost (weft_resource_lose), by its provider or a user; once */
} weft_resource_event_t;

/*
 * The provider's functions; each is optional. They run on the thread that associates or
 * disassociates, except `notify`, which runs on `worker` if that is set. After a loss `notify` runs
 * on the thread that declares it (LOST, within weft_resource_lose), and on those that drain, since
 * `worker` may be what was lost. So it does where memory is short. The same holds for the
 * completion of a withdrawal.
 *
 * The program keeps `worker` until it has released the resource or declared its loss. An exported
 * resource is lost by itself when its own worker closes.
 */
typedef struct weft_resource_provider {
    /* Called for each value in order. An error undoes the association as a whole. */
    weft_status_t (*acquire)(weft_resource_t *resource, const weft_resource_value_t *value,
                             void *arg);
    /* Called for each value that was acquired, in reverse order. */
    void (*release)(weft_resource_t *resource, const weft_resource_value_t *value, void *arg);
    void (*notify)(weft_resource_t *resource, weft_resource_event_t event, void *arg);
    weft_worker_t *worker;
    void *arg;
} weft_resource_provider_t;

/* The version of the layout of this header's structs. */
#define WEFT_RESOURCE_ABI 1

typedef struct weft_resource_params {
    weft_resource_kind_t kind;
    const char *name; /* for the log and weft-info; NULL: the kind's name */
    const weft_resource_value_t *values;
    size_t n_values;
    /* keys that must be there besides those of the kind */
    const char *const *mandatory;
    size_t n_mandatory;
    weft_resource_provider_t provider;
    uint32_t abi_version; /* 0: WEFT_RESOURCE_ABI of the running library */
    const char *build_id; /* NULL: not compared */
    /* SINGLE: only the thread that describes it may associate objects with it */
    weft_thread_mode_t thread_mode;
    weft_share_t share;
    /* of WEFT_RESOURCE_WORKER: what may be leased; am_count 0: ids 512 … 1023, tags from 2^63 on */
    weft_lease_t lease;
} weft_resource_params_t;

/*
 * Describes a resource. All of `params` is copied. The caller keeps what the values point to alive
 * until it has withdrawn the resource.
 *
 * Errors: INVALID_PARAM (the causes name the argument); VERSION_MISMATCH; NO_MEMORY.
 */
#define weft_resource_describe(...) \
    weft_resource_describe_sized(sizeof(weft_resource_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_resource_describe_sized(size_t params_size,
                                                    const weft_resource_params_t *params,
                                                    weft_resource_t **resource_p);

/*
 * Frees the description. The provider's notify is not called from now on. A resource that was
 * exported or received is released by the thread that owns its worker (WRONG_THREAD), or by any
 * thread once that worker has closed. Errors: BUSY while an object is associated with it; withdraw
 * it first.
 */
WEFT_API weft_status_t weft_resource_release(weft_resource_t *resource);

/*
 * Takes the resource back. Each user drains, for op->deadline_ms at most (0: close.timeout of each
 * user). The users that are left then lose it (weft_resource_lose). New associations are refused
 * from now on (NOT_SHAREABLE). Completion: no object uses the resource. It is reported on the
 * provider's worker, if one is named and the resource is not lost. Returns WEFT_OK if none uses it
 * now. Errors: UNSUPPORTED for op->completion; BUSY while an earlier call with an op->done is in
 * progress.
 */
WEFT_API weft_status_t weft_resource_withdraw(weft_resource_t *resource, const weft_op_t *op);

/*
 * Declares that the resource does not work any more. The provider does so, or a user that finds a
 * fatal error. The provider is notified. The operations of all users end as RESOURCE_LOST, each
 * once, and on_lost is called. NULL is ignored. A worker that closes, and another process that
 * ends, lose what they provide.
 */
WEFT_API void weft_resource_lose(weft_resource_t *resource);

typedef struct weft_associate_params {
    weft_resource_t *resource;
    /* The consumer's own values. They come before the provider's of the same key; copied. */
    const weft_resource_value_t *values;
    size_t n_values;
    /* of WEFT_RESOURCE_WORKER: am_count 0: 64 ids, tag_bits 0: 48 bits; firsts 0: any free range */
    weft_lease_t lease;
    uint32_t abi_version; /* WEFT_RESOURCE_ABI of the consumer's header; 0: not compared */
    const char *build_id; /* compared if both sides have one */
    /* Optional: the object lost its resource, or a deadline cut its drain off. Calls on it return
     * RESOURCE_LOST. If its worker lost what it works by, the handle of the object is gone when the
     * worker's association ends. */
    void (*on_lost)(void *object, weft_status_t status, void *arg);
    void *arg;
} weft_associate_params_t;

/*
 * Associates an object in associated mode with a resource: the object works from now on. If any
 * value is refused, nothing is attached. If several threads associate one object at once, one
 * succeeds. A team becomes ready later (its on_ready).
 *
 * A context takes a resource of any kind: its values are held, and can be read. SOCKET and EVENTS
 * are for any worker, in associated mode or not, and for several of them at once. For a SOCKET, the
 * value WEFT_RES_WORKER_LISTEN has the parameters of weft_listen. The length of the value is the
 * size of the struct that the consumer was compiled with. A CONNECTION is dialed as "tcp://@FD" of
 * weft_connect is: the other end is accepted by a listener, or given to one (weft_listener_adopt).
 * When it is returned, the library has closed its duplicate, and the stream has ended; close the
 * socket.
 *
 * CUDA: the worker makes this context current for its copies, and no other one. All copies go into
 * the stream, so they wait for the program's work there, and later work for them. Without one the
 * worker has a stream of its own in the context. Memory of another context is refused
 * (UNSUPPORTED), and so is the stream as an operation's op->stream. The program keeps both until
 * the worker is disassociated.
 *
 * WEFT_RES_MEMORY_MR: rdma_rc uses this registration, and makes none of its own. It belongs to the
 * worker's WEFT_RES_WORKER_PD and contains the region, else the call returns UNSUPPORTED. It has
 * the access flags that the region's rights need (LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE,
 * REMOTE_ATOMIC). It also has MW_BIND where the device has memory windows of type 2. Without
 * windows peers get its own rkey, which stays valid until the program deregisters it. Do that once
 * the region is disassociated.
 *
 * Owner's thread of the worker, for endpoints, teams and regions.
 *
 * Errors: INVALID_PARAM if `object` is not in associated mode, or a mandatory value is missing (the
 * causes name it); ALREADY_ASSOCIATED; NOT_SHAREABLE; VERSION_MISMATCH; LEASE_EXHAUSTED;
 * UNSUPPORTED if the kind does not fit the object; what the provider's `acquire` returned; and the
 * errors of the call that makes such an object without a resource (weft_worker_create, weft_listen,
 * weft_connect, weft_mem_register, weft_mem_import).
 */
#define weft_associate_resources(...) \
    weft_associate_resources_sized(sizeof(weft_associate_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_associate_resources_sized(size_t params_size, weft_context_t *context,
                                                      weft_object_t type,
                                                      const weft_associate_params_t *params,
                                                      void *object);

/*
 * Ends the association of `object` with the resource. NULL: of all its objects, from any thread and
 * with the completion and the errors of weft_resource_withdraw; new associations are not refused.
 *
 * New operations on the object return DISASSOCIATED. Each operation under way ends once, with its
 * own result, or as RESOURCE_LOST after op->deadline_ms (0: close.timeout). Posted receives of a
 * worker end as DISASSOCIATED. Then the provider is notified, and op->done is called, on the
 * consumer's worker. If the provider names a worker, the notice is posted to it, and may come after
 * op->done.
 *
 * A worker: its endpoints, listeners and regions are closed, and its objects in associated mode.
 * Their handles are gone when op->done begins. Associations of the worker of the kinds SOCKET and
 * EVENTS end. A worker with a thread of its own drains, without a limit of time, when the program
 * has stopped that thread (weft_worker_stop_thread, weft_worker_destroy). Handlers of active
 * messages stay for the next association. Errors: BUSY while a team of it is open, also one that
 * was made of such a team, or while an object of it is associated.
 *
 * A worker whose resource is a LOOP, VERBS or CUDA closes as by weft_worker_close. Its endpoints
 * are aborted, and operations under way and new ones end as DISASSOCIATED: flush first
 * (weft_worker_flush). op->deadline_ms is UNSUPPORTED then; close.timeout limits each step, also
 * after weft_resource_withdraw.
 *
 * An endpoint, a team or a region is closed. Its handle stays. From op->done on it may be
 * associated with another resource, or closed (weft_ep_close, weft_team_close, weft_mem_release). A
 * region has another key then.
 *
 * A second call while the first drains, or after it, is harmless: it returns WEFT_OK without a
 * callback. After a loss the call completes when the association has ended, with RESOURCE_LOST;
 * from then on the object may be associated again. `op->completion` is UNSUPPORTED. Owner's thread
 * of the worker. The association of a context is ended by any thread.
 */
WEFT_API weft_status_t weft_disassociate_resources(weft_resource_t *resource, void *object,
                                                   const weft_op_t *op);

/*
 * As above, and drives the worker in which the association ends, until it is complete. Errors: also
 * BUSY within a callback, UNSUPPORTED for NULL if the objects belong to more than one worker, and
 * WRONG_THREAD if another thread owns it.
 */
WEFT_API weft_status_t weft_disassociate_resources_wait(weft_resource_t *resource, void *object);

/* The lease of a worker that is associated with another worker. Owner's thread. Errors: NOT_FOUND
 * if it holds none. */
WEFT_API weft_status_t weft_worker_lease(weft_worker_t *worker, weft_lease_t *lease_p);

/* ---- what Weft made, given out ---- */

/*
 * Describes an object of Weft as a resource: a worker, a team, an endpoint or a region. `kind` is
 * the kind of the object's type, or WEFT_RESOURCE_LOOP for the program's loop that a worker runs
 * on. `params` may be NULL; its name, provider, share, thread_mode and lease are used. When the
 * object's worker closes, the resource is lost. Owner's thread.
 *
 * Errors: UNSUPPORTED for the loop of a worker with a loop of its own, and if `kind` does not fit
 * the object; those of weft_resource_describe.
 */
#define weft_resource_export(...) \
    weft_resource_export_sized(sizeof(weft_resource_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_resource_export_sized(size_t params_size, weft_object_t type,
                                                  void *object, weft_resource_kind_t kind,
                                                  const weft_resource_params_t *params,
                                                  weft_resource_t **resource_p);

/*
 * Gives a resource to another process, over a connected socket of AF_UNIX:
 * - one with a descriptor (SEGMENT, SOCKET, CONNECTION);
 * - device memory (MEMORY), by CUDA IPC, or, of cuMemCreate and of pools, by a descriptor
 *   (POSIX_FILE_DESCRIPTOR), to a process of the same user;
 * - the protection domain of VERBS, by ibv_import_pd, to a process of the same user.
 * The importer loses the resource when the last descriptor of this end is closed, at the latest
 * when this process ends. Both functions send and receive one message, and block for it.
 *
 * weft_resource_receive takes `socket` over if it returns WEFT_OK, and watches it on `worker`;
 * after an error it is the caller's. Device memory is opened in the CUDA context that the worker
 * was given, or in the current one, until the resource is released. The sender keeps the allocation
 * until then.
 *
 * A domain is imported until the resource is released. Its owner keeps it until then. Queues and
 * queue pairs of VERBS are not sent.
 *
 * Errors: UNSUPPORTED for another kind, for device memory that the driver does not export or open,
 * and for a domain of a device that does not import (soft-RoCE); NOT_SHAREABLE for device memory or
 * a domain and a process of another user; IO; PROTOCOL if the bytes are no resource;
 * VERSION_MISMATCH; NO_FDS, and then the message is lost.
 */
WEFT_API weft_status_t weft_resource_send(weft_resource_t *resource, int socket);
WEFT_API weft_status_t weft_resource_receive(weft_worker_t *worker, int socket,
                                             weft_resource_t **resource_p);

/* ---- looking at them ---- */

/* Without a tag: weft_resource_info is a function. */
typedef struct {
    const char *name, *kind; /* valid as long as the resource */
    weft_share_t share;
    weft_thread_mode_t thread_mode;
    size_t n_values, n_users;
    unsigned leased_am;   /* ids of active messages that its users hold */
    weft_status_t status; /* OK; DISASSOCIATED once it is withdrawn; RESOURCE_LOST, for good */
} weft_resource_info_t;
/* Describes a resource. Errors: none but those of every function (weft/base.h). */
#define weft_resource_info(...) weft_resource_info_sized(sizeof(weft_resource_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_resource_info_sized(size_t info_size, weft_resource_t *resource,
                                                weft_resource_info_t *info_p);

/* A value of a resource by its key: the address of the copy, valid as long as the resource. Errors:
 * NOT_FOUND if it has no such key. */
WEFT_API weft_status_t weft_resource_value(weft_resource_t *resource, const char *key,
                                           const void **value_p, size_t *len_p);

/* The state of an object's association ("READY"); "STUB" for one that never had any. A static
 * string. Any thread, while the object lives. */
WEFT_API const char *weft_association_state(weft_context_t *context, weft_object_t type,
                                            const void *object);

/*
 * The listener of an associated SOCKET (weft_listener_uri); of several workers', one of them. NULL:
 * none. The library closes it with the association.
 */
WEFT_API weft_listener_t *weft_resource_listener(weft_resource_t *resource);

/*
 * Loads MPI's functions from the libraries of this process, or from `library` ("libmpi.so.40";
 * NULL: only this process), for MPI_COMM_WORLD. MPI must be initialised. Any thread. Errors:
 * UNSUPPORTED if the functions are not there.
 */
WEFT_API weft_status_t weft_mpi_load(const char *library, weft_mpi_t *mpi_p);

/*
 * Fills in the events of a UCX worker (ucp_worker_h) whose context has UCP_FEATURE_WAKEUP, by the
 * functions of `library` ("libucp.so.0"; NULL: this process). Any thread. Errors: UNSUPPORTED if
 * the functions are not there.
 */
WEFT_API weft_status_t weft_ucx_events(const char *library, void *ucp_worker,
                                       weft_events_t *events_p);

#ifdef __cplusplus
}
#endif
#endif
