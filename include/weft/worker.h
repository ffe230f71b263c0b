/* The worker: one thread, one libev loop, and all connections and callbacks that belong to them. */
#ifndef WEFT_WORKER_H
#define WEFT_WORKER_H

#include <weft/context.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ev_loop;
typedef struct weft_worker weft_worker_t;
typedef struct weft_ep weft_ep_t;

/*
 * Which threads may call functions of a worker and of its objects.
 *
 * A call from a wrong thread returns WRONG_THREAD. A call in a forked child, from any thread,
 * returns FORKED. Functions that return no status then have no effect, or return NULL.
 *
 * The following functions skip the check and may be called from any thread:
 * - weft_worker_now, weft_worker_counter, weft_worker_count, weft_worker_trace;
 * - those that describe an object for its whole life: weft_worker_describe, _transport, _unopened,
 *   _protocol and _calibration, weft_ep_worker, weft_listener_uri, a team's rank and size;
 * - the program's own pointer: weft_ep_set_user, weft_ep_user.
 *
 * A child that is forked within a callback must exec or _exit there. If it returns from the
 * callback, the library ends it, with status 1 and a line on standard error. It would otherwise
 * continue its parent's turn on the same sockets and memory. This holds for every function that the
 * program passes to the library except the log's (weft_log_fn), and for every fork by the C
 * library.
 *
 * Any other child may live on. Listeners and TCP connections stay with the parent: fork() closes
 * the child's copies.
 *
 * A library built with --@weft//:threads=single or =serialized supports no mode beyond that one
 * (UNSUPPORTED), and does not detect calls from a wrong thread.
 */
typedef enum weft_thread_mode {
    WEFT_THREAD_SINGLE,     /* all calls from the thread that created (or adopted) the worker */
    WEFT_THREAD_SERIALIZED, /* from any thread, never two at once; the program ensures that */
    /*
     * Any thread may submit messages, one-sided and stream operations, flushes, fences and closes
     * of endpoints, and may cancel. Submissions reach the owner without a lock, in each thread's
     * order. They return WEFT_IN_PROGRESS (a fence, which has no end: WEFT_OK) or an error.
     * Callbacks run on the owner's thread. All other functions are the owner's (WRONG_THREAD); use
     * weft_worker_post for them.
     */
    WEFT_THREAD_MULTIPLE
} weft_thread_mode_t;

typedef struct weft_worker_params {
    struct ev_loop *loop; /* the program's libev loop; NULL: a loop of the worker's own */
    weft_thread_mode_t thread_mode;
    const char *transports; /* "shm,tcp"; NULL: the setting transports (default "self,shm,tcp") */
    const char *name;       /* for the log and weft-info; copied */
    /*
     * Optional: a peer opened an endpoint by this worker's address. NULL: such endpoints are
     * accepted silently. They belong to the program, as those that a listener accepts do. Those
     * that members of teams open here to send to this member are among them (weft_team_ep).
     */
    void (*on_endpoint)(weft_ep_t *ep, void *arg);
    /*
     * Optional: on_error of the endpoints that peers open (weft_ep_params_t). Close the endpoint
     * here: one that is not closed stays until the worker is closed, and counts for the setting
     * peer.max_endpoints. The library closes it if the program cannot have its handle: both
     * callbacks and on_lane are NULL, no handler of active messages was set, and no tagged message
     * has come.
     */
    void (*on_error)(weft_ep_t *ep, weft_status_t status, void *arg);
    void *arg;
    /*
     * Not 0: associated mode (weft/resource.h). The worker works once a resource is associated with
     * it; until then calls on it return NOT_ASSOCIATED. `loop` must be NULL.
     */
    int associated;
    /*
     * Optional: what this side sends on the endpoint goes by another lane from now on. A busy
     * connection has moved to a fast lane, or an idle one back (weft_ep_info_t: `transport` and
     * `fast`). It is called for each endpoint of the connection, but those within a lease.
     */
    void (*on_lane)(weft_ep_t *ep, void *arg);
} weft_worker_params_t;

/*
 * Creates a worker, owned by the calling thread. `params` may be NULL.
 *
 * On the program's loop, callbacks come from that loop and no other call is needed. Otherwise drive
 * the worker with weft_worker_progress, weft_worker_fd or weft_worker_wait.
 *
 * Listeners and connections keep the program's ev_run from returning, as the program's own watchers
 * would. So does a worker with shm whose address was requested. Other workers keep it only while an
 * operation is in progress. When `done` of weft_worker_close is called, the loop holds nothing of
 * the worker.
 *
 * A transport that cannot be opened is left out (weft_worker_unopened has the reason).
 *
 * The first call on a machine measures memory and transports, for tens of ms, and keeps the result
 * in ~/.cache/weft/calibration, where later processes find it. The setting calibration = off
 * prevents both; a file name takes that file, which may be made beforehand. What peers need to
 * reach the worker (weft_worker_address, weft_listen at tcp) makes the user's key on first use, in
 * ~/.config/weft/key; the setting tcp.key_file names another one.
 *
 * Errors: INVALID_PARAM, also for a name that is no transport; NO_MEMORY; NO_FDS; UNSUPPORTED if no
 * transport is left, or if the library is built for another thread mode.
 */
#define weft_worker_create(...) weft_worker_create_sized(sizeof(weft_worker_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_create_sized(size_t params_size, weft_context_t *context,
                                                const weft_worker_params_t *params,
                                                weft_worker_t **worker_p);

/*
 * Closes listeners, teams and endpoints, releases regions, then calls `op->done`; the handle is
 * then gone. Each pending operation ends once, as WEFT_ERR_CLOSED or with its own result. Returns
 * WEFT_IN_PROGRESS.
 *
 * Endpoints are aborted (WEFT_CLOSE_ABORT): what has not left is lost, and no status says so for
 * an operation that was complete. A program that wants it to arrive first closes its endpoints
 * with WEFT_CLOSE_FLUSH (weft_ep_close), or waits for weft_worker_flush with WEFT_FLUSH_REMOTE.
 *
 * Errors: BUSY if the worker is already closing. Stop the worker's own thread first
 * (weft_worker_stop_thread); until then the call returns WRONG_THREAD, or BUSY within a callback.
 */
WEFT_API weft_status_t weft_worker_close(weft_worker_t *worker, const weft_op_t *op);

/*
 * Stops the worker's own thread, closes the worker and drives it until it is gone. As with
 * weft_worker_close, what has not left is lost. Peers that do not answer are disconnected after the
 * setting close.timeout. NULL is ignored. It has no effect within a callback, from a wrong thread,
 * in a forked child, and once the worker is closing.
 */
WEFT_API void weft_worker_destroy(weft_worker_t *worker);

/*
 * The calling thread owns the worker from now on, in every thread mode. The thread that owned it
 * has ended, and the caller knows of that (pthread_join): what it did is seen. A loop of the
 * program that drives the worker is run by the calling thread from now on.
 *
 * Errors: BUSY if the worker has a thread of its own (weft_worker_stop_thread returns it), or
 * within a callback; UNSUPPORTED if another worker is its resource; FORKED.
 */
WEFT_API weft_status_t weft_worker_adopt(weft_worker_t *worker);

/*
 * Handles up to `budget` events and returns their number. With 0 the only limit is one turn of the
 * loop. A socket that the kernel reports as ready is one event, with up to 256 messages.
 * Memory-mapped completions are polled first. The kernel is polled only if a descriptor or a timer
 * may be due. The calling thread is not checked, and neither is whether `worker` is NULL.
 *
 * A negative result is a weft_status_t: BUSY within a callback, WRONG_THREAD if the worker's own
 * thread drives it, FORKED.
 */
WEFT_API int weft_worker_progress(weft_worker_t *worker, unsigned budget);

/*
 * Returns a descriptor for the worker's whole life. It is CLOEXEC and level-triggered, for POLLIN
 * only, and is readable while there is work. Watch it, and never read or close it. The
 * library closes it when `done` of weft_worker_close returns, so stop watching it in `done`. Before
 * weft_worker_destroy, stop watching it first. weft/adapters/ has this for common loops. After the
 * first call, each weft_worker_progress that finds no work leaves the descriptor armed, so there is
 * no arm call.
 *
 * Within a callback weft_worker_progress returns BUSY. From that call until the callback returns
 * the descriptor is silent. A loop that the program runs there therefore does not spin, and neither
 * does a libev loop of the host.
 *
 * While the worker's own thread drives it, the descriptor is readable if there are callbacks to
 * poll for. If callbacks run on that thread, it stays silent, and a call returns
 * WRONG_THREAD.
 *
 * A negative result is a weft_status_t: NO_FDS, NO_MEMORY, IO, WRONG_THREAD or FORKED.
 */
WEFT_API int weft_worker_fd(weft_worker_t *worker);

/*
 * The same descriptor, for a program that watches it level-triggered only: poll, select, epoll
 * without EPOLLET, and every loop of weft/adapters/. A report then takes a system call less, since
 * what one weft_worker_progress leaves in a socket is reported again by itself. The last call of
 * the two functions decides; weft_worker_fd serves edge-triggered hosts, too. A worker with a
 * thread of its own makes no difference between the two.
 */
WEFT_API int weft_worker_fd_level(weft_worker_t *worker);

/* Makes the worker's descriptor readable, or ends its wait. Any thread, and signal handlers. */
WEFT_API void weft_worker_wake(weft_worker_t *worker);

/*
 * Makes progress until an event was handled, `timeout_ms` have passed (negative: no limit), or
 * weft_worker_wake was called. It polls for as long as weft_worker_spin, longer and with yields
 * while other threads want the core, then sleeps. A signal does not end the wait; its handler may
 * call weft_worker_wake. Errors: TIMED_OUT; BUSY within a callback.
 */
WEFT_API weft_status_t weft_worker_wait(weft_worker_t *worker, int timeout_ms);

/*
 * Polls for more events before the program sleeps, and returns how many it handled. A
 * weft_worker_wake counts as one. A program that watches weft_worker_fd calls it after
 * weft_worker_progress. The answer of a peer that is awake then costs no sleep and no wake-up. The
 * descriptor is armed when it returns.
 *
 * It polls for half of the setting worker.spin after a call that found an event, and for a 25th of
 * it otherwise. After short sleeps it now and then polls for all of it. Polls that find nothing
 * take at most an eighth of the time slept. Not counted are a 25th for each sleep, and a half after
 * the last find. While other threads want the core it yields once a call, and polls after that.
 * After some yields that brought nothing it does not poll for a while.
 *
 * It returns 0 for a worker with a thread of its own. A negative result is a weft_status_t: BUSY
 * within a callback, WRONG_THREAD, FORKED.
 */
WEFT_API int weft_worker_spin(weft_worker_t *worker);

/*
 * Runs `fn(arg)` on the worker's thread, in the order posted, in every thread mode. `fn` may
 * close the worker, even before this call returns. Any thread.
 * Errors: NO_MEMORY; FORKED; CLOSED during the last functions that the worker runs before it ends,
 * DISASSOCIATED or RESOURCE_LOST where its association ends instead (weft/resource.h).
 */
WEFT_API weft_status_t weft_worker_post(weft_worker_t *worker, void (*fn)(void *arg), void *arg);

typedef enum weft_callbacks {
    /* on the worker's thread; the program's callbacks must be thread-safe */
    WEFT_CALLBACKS_ON_THREAD,
    /* within the program's own weft_worker_progress or weft_worker_wait */
    WEFT_CALLBACKS_POLLED
} weft_callbacks_t;

typedef struct weft_thread_params {
    weft_callbacks_t callbacks;
    /* optional: first call on the new thread, e.g. to set its name and core */
    void (*on_start)(void *arg);
    void *arg;
} weft_thread_params_t;

/*
 * Drives a worker of mode WEFT_THREAD_MULTIPLE by a thread of its own, so that peers' one-sided
 * operations are served while the program computes. The thread owns the worker from now on, and
 * sleeps when there is no work. Call functions that only the owner may call before this call, in a
 * callback, or by weft_worker_post.
 *
 * With WEFT_CALLBACKS_POLLED, one thread of the program calls weft_worker_progress or
 * weft_worker_wait, or watches weft_worker_fd, for its callbacks. It owns the worker within them.
 * Messages that wait for it are copied, up to the setting thread.max_pending_bytes for all peers
 * together. If one peer exceeds its part, the thread stops receiving from that peer until the
 * program polls: no messages, no one-sided operations, no heartbeats. One-sided operations on
 * memory that the peer has mapped, or reaches by its network card, go on. Other peers are served
 * meanwhile. Messages of the program to this worker itself wait in the same way.
 *
 * In both modes these run on the worker's thread: a listener's on_request, a layout's functions,
 * functions posted by weft_worker_post, and what a team itself reports (on_ready, and the ends of
 * its close and of its agreements).
 *
 * Errors: INVALID_PARAM for another thread mode or a worker on the program's loop; BUSY if it has a
 * thread, or within a callback; UNSUPPORTED if another worker is its resource; NO_MEMORY; NO_FDS.
 */
#define weft_worker_start_thread(...) \
    weft_worker_start_thread_sized(sizeof(weft_thread_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_start_thread_sized(size_t params_size, weft_worker_t *worker,
                                                      const weft_thread_params_t *params);

/*
 * Ends the thread after its current turn. The caller then owns the worker, and held callbacks run
 * in its next turn. Errors: NOT_FOUND if the worker has no thread; BUSY within a callback;
 * UNSUPPORTED if another worker is its resource; NO_MEMORY or NO_FDS if weft_worker_fd was
 * requested and cannot be armed again. After an error the thread goes on.
 */
WEFT_API weft_status_t weft_worker_stop_thread(weft_worker_t *worker);

/* Returns the worker's clock in nanoseconds: monotonic, or virtual in a simulation. Any thread. */
WEFT_API uint64_t weft_worker_now(weft_worker_t *worker);

/*
 * Writes the worker's address. Another process passes these bytes to weft_connect_address; no
 * listener is needed. `*len_p` holds the size of `buf` and receives the length. The first call
 * opens what peers need to reach the worker. A transport where that fails is left out, and the log
 * has a warning that says why (a wrong tcp.bind, a key file that cannot be used). Errors: TRUNCATED
 * if `buf` is too small; 256 bytes always suffice.
 */
WEFT_API weft_status_t weft_worker_address(weft_worker_t *worker, void *buf, size_t *len_p);

/* What a library that is given a worker has to know of it. */
typedef struct weft_worker_info {
    const char *name;               /* as given; "": none. Valid as long as the worker */
    uint64_t id;                    /* by which its peers know it (weft_ep_info_t.peer_worker) */
    weft_thread_mode_t thread_mode; /* which threads may call */
    int on_loop;                    /* not 0: a libev loop of the program drives it */
    int has_thread;                 /* not 0: it has a thread of its own, with these callbacks: */
    weft_callbacks_t callbacks;
    int is_associated; /* not 0: it works by another worker, within a lease (weft/resource.h) */
} weft_worker_info_t;
/*
 * Describes the worker. Of one that works by another worker, all but the name are the other's. Any
 * thread. Errors: none but those of every function (weft/base.h).
 */
#define weft_worker_describe(...) \
    weft_worker_describe_sized(sizeof(weft_worker_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_describe_sized(size_t info_size, weft_worker_t *worker,
                                                  weft_worker_info_t *info_p);

/*
 * Returns counter number `index`, from 0. Counters are always on. Any thread; only the owner's
 * thread reads consistent values. Errors: NOT_FOUND past the last.
 */
WEFT_API weft_status_t weft_worker_counter(weft_worker_t *worker, size_t index, const char **name_p,
                                           uint64_t *value_p);

/* Returns a counter by name ("am.sent", "shm.bytes_out"); 0 for an unknown name. Any thread. */
WEFT_API uint64_t weft_worker_count(weft_worker_t *worker, const char *name);

#define WEFT_SHORT_MIN 40 /* bytes of a message and of a put that every transport sends inline */

/*
 * A transport that this worker has opened. Latency and overhead in ns, bandwidth in bytes/s, rate
 * in messages/s. All are estimates. The limits are those of one message of the transport; the
 * library splits or packs larger ones.
 */
typedef struct weft_transport_info {
    const char *name, *device;
    double latency_ns, bandwidth, overhead_ns, message_rate;
    size_t max_short, max_bcopy, max_zcopy, max_iov;
    int numa_node;         /* of its device; -1: no device, or any node */
    uint64_t capabilities; /* bits, named by weft_capability_name */
} weft_transport_info_t;
/* Describes transport number `index`, from 0. Any thread. Errors: NOT_FOUND past the last. */
#define weft_worker_transport(...) \
    weft_worker_transport_sized(sizeof(weft_transport_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_transport_sized(size_t info_size, weft_worker_t *worker,
                                                   size_t index, weft_transport_info_t *info_p);
/*
 * Names transport number `index`, from 0, of those that the worker was to open and has not, and the
 * reason as a sentence. Both texts are valid as long as the worker. Any thread. Errors: NOT_FOUND
 * past the last.
 */
WEFT_API weft_status_t weft_worker_unopened(weft_worker_t *worker, size_t index,
                                            const char **name_p, const char **why_p);
/* Returns the name of a bit of `capabilities`; NULL past the last. A static string. Any thread. */
WEFT_API const char *weft_capability_name(unsigned bit);
/*
 * Returns the bit of that name, as in info.capabilities & weft_capability("put"); 0 if this version
 * has no such capability, or for NULL. Names keep their meaning, and bits may move between
 * versions. docs/transports.md lists the names. Any thread.
 */
WEFT_API uint64_t weft_capability(const char *name);

/*
 * How messages of a range of sizes cross by one transport. Sizes are those of an active message
 * without a user header. Times are estimates, from the call until the bytes are in the receiver's
 * memory. They are for choosing a protocol.
 */
typedef struct weft_protocol_info {
    /*
     * "short", "eager bcopy", "eager zcopy", "rendezvous get", "rendezvous mapped", "rendezvous
     * put" or "rendezvous pieces"
     */
    const char *name;
    size_t from, to;       /* bytes; `to` is SIZE_MAX for the last range */
    double from_ns, to_ns; /* for `from` and for `to` (for 16 MiB if the range has no end) */
    double bandwidth;      /* at that upper size, bytes/s */
    const char *other;     /* the next best protocol for `to`; NULL: none */
    double other_ns;       /* its time for `to` */
    int forced;            /* the range begins at rendezvous.threshold, not where it would pay */
    /* for messages out of regions with .expose (weft_mem_params_t), in place of the others */
    int exposed;
    /* for large messages into regions with .expose and WEFT_MEM_WRITE, in place of the others */
    int exposed_to;
} weft_protocol_info_t;
/*
 * Describes range number `index`, from 0, of the transport with index `transport`
 * (weft_worker_transport). If the transport supports .expose, two more rows follow the last range.
 * They say from which size on messages out of such regions, or into them, use another protocol.
 * Any thread. Errors: NOT_FOUND past the last.
 */
#define weft_worker_protocol(...) \
    weft_worker_protocol_sized(sizeof(weft_protocol_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_protocol_sized(size_t info_size, weft_worker_t *worker,
                                                  size_t transport, size_t index,
                                                  weft_protocol_info_t *info_p);

/* A measured or built-in cost of this machine, as the estimates use it. */
typedef struct weft_calibration_info {
    const char *name, *unit, *help;
    double value;
    const char *origin; /* "built in", "measured" or "file" */
} weft_calibration_info_t;
/* Describes cost number `index`, from 0. Any thread. Errors: NOT_FOUND past the last. */
#define weft_worker_calibration(...) \
    weft_worker_calibration_sized(sizeof(weft_calibration_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_calibration_sized(size_t info_size, weft_worker_t *worker,
                                                     size_t index, weft_calibration_info_t *info_p);

/*
 * Writes the last steps of this worker's state machines as text, oldest first, and returns the
 * length needed. Steps of single receives that a message finds posted are not recorded. With
 * WEFT_THREAD_SERIALIZED only steps within turns are recorded. Any thread.
 */
WEFT_API size_t weft_worker_trace(weft_worker_t *worker, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
