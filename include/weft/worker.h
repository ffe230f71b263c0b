/* The worker: one thread, one libev loop, and everything that happens on it. */
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
 * Who may call, of a worker and all that belongs to it. A call from a wrong thread is WRONG_THREAD, and one in a child of
 * a fork, of whatever thread, FORKED; those that answer with no status do nothing then (NULL). Not asked are weft_worker_now,
 * weft_worker_counter, weft_worker_count and weft_worker_trace, what an object is made of for as long as it lives
 * (weft_worker_transport, _protocol and _calibration, weft_ep_worker, weft_listener_uri, a team's rank and size),
 * and the program's own pointer (weft_ep_set_user, weft_ep_user).
 *
 * A child that a callback forks execs or ends there (_exit). One that returns from it is ended, with status 1 and a line on standard
 * error: behind the callback the turn would go on, and say what its parent's says, by the same sockets and in the same memory. That holds of
 * all functions that the program hands over but the log's (weft_log_fn), and of all forks by the C library.
 *
 * A library built with --@weft//:threads=single or =serialized has no mode beyond that one (UNSUPPORTED), and does
 * not notice a call from a wrong thread.
 */
typedef enum weft_thread_mode {
    WEFT_THREAD_SINGLE,     /* all calls from the thread that made the worker */
    WEFT_THREAD_SERIALIZED, /* from any thread, never two at once: the program sees to it */
    /* Any thread may submit messages, one-sided and stream operations, flushes, fences and closes of endpoints,
     * and cancel: they are handed to the owner without a lock, in each thread's order, and are WEFT_IN_PROGRESS or
     * refused; callbacks come on the owner's thread. Everything else is the owner's (WRONG_THREAD), or goes
     * through weft_worker_post. */
    WEFT_THREAD_MULTIPLE
} weft_thread_mode_t;

typedef struct weft_worker_params {
    struct ev_loop *loop; /* the host's loop; NULL: one of its own */
    weft_thread_mode_t thread_mode;
    const char *transports; /* "shm,tcp"; NULL: the setting "transports" (default: "self,shm,tcp") */
    const char *name;       /* for logs and weft-info; copied */
    /* A peer opened an endpoint by this worker's address. NULL: such endpoints just appear. */
    void (*on_endpoint)(weft_ep_t *ep, void *arg);
    /* on_error for endpoints that peers open (see weft_ep_params_t). */
    void (*on_error)(weft_ep_t *ep, weft_status_t status, void *arg);
    void *arg;
} weft_worker_params_t;

/*
 * Makes a worker on the calling thread. With a host's loop, callbacks come from that loop and nothing
 * else need be called; otherwise drive it by weft_worker_progress, weft_worker_fd or weft_worker_wait.
 * Listeners and connections keep a host's ev_run from returning by itself, as watchers of its own would, and so does a worker with
 * shm, which peers reach by its address; one without keeps it only while something is under way. When `done` of weft_worker_close
 * has been called, nothing of the worker is left in the loop.
 * `params` may be NULL. A transport that cannot be opened is left out, and the log says why (info). Errors: INVALID_PARAM,
 * NO_MEMORY, NO_FDS; UNSUPPORTED: no transport is left, or the library is built for another thread mode.
 */
#define weft_worker_create(...) weft_worker_create_sized(sizeof(weft_worker_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_create_sized(size_t params_size, weft_context_t *context,
                                                const weft_worker_params_t *params, weft_worker_t **worker_p);

/*
 * Closes listeners, teams and endpoints (each pending operation ends once, WEFT_ERR_CLOSED or better), bottom up,
 * releases regions, then calls `op->done`, when the handle is gone. Always WEFT_IN_PROGRESS or refused: BUSY when it
 * is closing already. A thread of its own is stopped first: until then WRONG_THREAD, or BUSY in a callback.
 */
WEFT_API weft_status_t weft_worker_close(weft_worker_t *worker, const weft_op_t *op);

/* Stops its thread, closes and drives the worker until it is gone; peers that do not answer are cut after
 * "close.timeout". Not from a callback. */
WEFT_API void weft_worker_destroy(weft_worker_t *worker);

/*
 * Handles up to `budget` events (0: no bound but one turn) and returns how many; a socket that the kernel found ready is
 * one, with up to 256 messages. Memory-mapped completions are looked at first; the kernel is asked only when an fd or a
 * timer may be due. Negative: a weft_status_t (BUSY from a callback; WRONG_THREAD where a thread of its own drives the
 * worker; FORKED). Which thread calls is not looked at.
 */
WEFT_API int weft_worker_progress(weft_worker_t *worker, unsigned budget);

/*
 * One number for the worker's whole life: CLOEXEC, POLLIN only, level-triggered, readable while there is
 * anything to do. After the first call every progress that finds nothing leaves the worker armed; there
 * is no arm call. The fd is the worker's: watch it, never read or close it. While a thread of its own drives the worker
 * it is readable when there are callbacks to be polled for, and silent where they come on that thread (which has none to
 * give: WRONG_THREAD). Negative: a weft_status_t.
 */
WEFT_API int weft_worker_fd(weft_worker_t *worker);

/* Makes the worker's fd readable, or ends its wait. From any thread or signal handler. */
WEFT_API void weft_worker_wake(weft_worker_t *worker);

/*
 * Progress until something was handled, `timeout_ms` passed (negative: never) or weft_worker_wake was
 * called: looks for a short while ("worker.spin"), then sleeps. WEFT_OK, or WEFT_ERR_TIMED_OUT; BUSY from a callback.
 */
WEFT_API weft_status_t weft_worker_wait(weft_worker_t *worker, int timeout_ms);

/* Runs `fn(arg)` on the worker's thread, in order of posting, whatever the mode. From any thread. Errors: NO_MEMORY, FORKED;
 * CLOSED from a function that the worker runs as its last, having ended all else. */
WEFT_API weft_status_t weft_worker_post(weft_worker_t *worker, void (*fn)(void *arg), void *arg);

typedef enum weft_callbacks {
    WEFT_CALLBACKS_ON_THREAD, /* the program's callbacks are thread-safe: they come on the worker's thread */
    WEFT_CALLBACKS_POLLED /* they are not: they come within the program's weft_worker_progress or weft_worker_wait */
} weft_callbacks_t;

typedef struct weft_thread_params {
    weft_callbacks_t callbacks;
    void (*on_start)(void *arg); /* first thing on the new thread: its name, its core */
    void *arg;
} weft_thread_params_t;

/*
 * Drives a worker of mode MULTIPLE by a thread of its own, so that peers' one-sided operations are served while the
 * program computes. The thread owns the worker from now on, and sleeps when there is nothing to do: what is the
 * owner's alone is done before, in a callback, or by weft_worker_post. With WEFT_CALLBACKS_POLLED one thread of the
 * program calls weft_worker_progress or weft_worker_wait, or watches weft_worker_fd, for its callbacks, within which
 * it owns the worker; messages that wait for it are copied, up to "thread.held_bytes" of all peers together. Of a peer that
 * brings more than is left for others the thread takes nothing until it comes: no message, no one-sided operation (other
 * than those of memory that the peer has mapped, or reaches by its network card), no heartbeat. Others are served
 * meanwhile; what the program sends to this worker itself waits in the same way. On the thread in any case: a
 * listener's on_request, a layout's functions, and what weft_worker_post carries. Errors: INVALID_PARAM (another mode, a
 * host's loop), BUSY (it has one; a callback), NO_MEMORY, NO_FDS.
 */
#define weft_worker_start_thread(...) weft_worker_start_thread_sized(sizeof(weft_thread_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_start_thread_sized(size_t params_size, weft_worker_t *worker,
                                                      const weft_thread_params_t *params);

/* Ends the thread when its turn is over; the caller owns the worker then, and callbacks that are still held come
 * in its next turn. Errors: NOT_FOUND (it has none), BUSY (from a callback); NO_MEMORY, NO_FDS where weft_worker_fd was
 * asked for and cannot tell of everything again: then the thread goes on. */
WEFT_API weft_status_t weft_worker_stop_thread(weft_worker_t *worker);

/* Nanoseconds of the worker's clock: monotonic, or virtual in a simulation. */
WEFT_API uint64_t weft_worker_now(weft_worker_t *worker);

/*
 * The worker's address: bytes that another process gives to weft_connect_address, usable without any
 * listener. `*len_p` holds the room in `buf` and receives the length; WEFT_ERR_TRUNCATED when it does not
 * fit (256 bytes always do). The first call opens what peers need to reach the worker.
 */
WEFT_API weft_status_t weft_worker_address(weft_worker_t *worker, void *buf, size_t *len_p);

/* One counter, by index from 0; WEFT_ERR_NOT_FOUND past the last. Counters are always on, and the owner's to read. */
WEFT_API weft_status_t weft_worker_counter(weft_worker_t *worker, size_t index, const char **name_p,
                                           uint64_t *value_p);

/* The value of a counter by name ("am.sent", "shm.bytes_out"); 0 for a name there is not. */
WEFT_API uint64_t weft_worker_count(weft_worker_t *worker, const char *name);

#define WEFT_SHORT_MIN 40 /* bytes that every transport takes inline, of a message and of a put */

/* A transport that this worker has open. Latency in ns, bandwidth in bytes and messages per second: estimates. The
 * limits are of one message of the transport; larger ones, and longer arrays, are cut or packed by the library. By
 * index from 0; WEFT_ERR_NOT_FOUND past the last. */
typedef struct weft_transport_info {
    const char *name, *device;
    double latency_ns, bandwidth, overhead_ns, message_rate;
    size_t max_short, max_bcopy, max_zcopy, max_iov;
    int numa_node;         /* where its device is; -1: it has none, or anywhere */
    uint64_t capabilities; /* bits, named by weft_capability_name */
} weft_transport_info_t;
WEFT_API weft_status_t weft_worker_transport(weft_worker_t *worker, size_t index, weft_transport_info_t *info_p);
WEFT_API const char *weft_capability_name(unsigned bit); /* NULL past the last */

/*
 * How a message of some size crosses by the transport `transport` (an index of weft_worker_transport): one row for
 * each range of sizes, by index from 0, WEFT_ERR_NOT_FOUND past the last. Where memory can be lent, two more rows behind that
 * without end say from which size on messages go another way that come out of lent memory, or go into it. Sizes are those of an active message
 * without a user header. Estimates count from the call until the bytes are where the receiver wants them; they are
 * for choosing.
 */
typedef struct weft_protocol_info {
    /* "short", "eager bcopy", "eager zcopy", "rendezvous get", "rendezvous mapped", "rendezvous put" or "rendezvous pieces" */
    const char *name;
    size_t from, to;       /* bytes; `to` SIZE_MAX: all beyond */
    double from_ns, to_ns; /* of `from` and of `to` (of 16 MiB where it has no end) */
    double bandwidth;      /* of the latter, bytes per second */
    const char *other;     /* the next best way for `to`; NULL: there is none */
    double other_ns;       /* what `to` would cost there */
    int forced;            /* it begins where "rendezvous.threshold" says, not where it would pay */
    int lent;              /* of messages out of lent memory (weft_mem_params_t), in place of the others */
    int lent_to; /* of messages that are offered, into memory that their receiver lends for writing; the same */
} weft_protocol_info_t;
WEFT_API weft_status_t weft_worker_protocol(weft_worker_t *worker, size_t transport, size_t index,
                                            weft_protocol_info_t *info_p);

/* What this machine takes, as the estimates have it: by index from 0, WEFT_ERR_NOT_FOUND past the last. */
typedef struct weft_calibration_info {
    const char *name, *unit, *help;
    double value;
    const char *origin; /* "built in", "measured" or "file" */
} weft_calibration_info_t;
WEFT_API weft_status_t weft_worker_calibration(weft_worker_t *worker, size_t index,
                                               weft_calibration_info_t *info_p);

/* The last machine steps of this worker as text, oldest first, without those of single receives that a message finds posted, and
 * of a worker of mode SERIALIZED only those of its turns; returns the length needed. */
WEFT_API size_t weft_worker_trace(weft_worker_t *worker, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
