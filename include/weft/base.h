/*
 * Definitions that every other header needs: status codes, buffers, operation descriptors.
 *
 * Conventions of all headers:
 * - A function that can fail returns a weft_status_t. Errors are negative. The comment of a
 *   function lists its errors, except those that every function may return: INVALID_PARAM for an
 *   argument that the comment does not allow, NO_MEMORY, WRONG_THREAD and FORKED
 *   (weft_thread_mode_t), and those of objects in associated mode (weft/resource.h).
 * - NULL in place of an object is INVALID_PARAM. Functions that return no status then have no
 *   effect and return 0 or NULL. Only weft_worker_progress does not look: give it a worker.
 * - Outputs are the last parameters, end in `_p`, and are written on success only. One that also
 *   holds the room of a buffer (*len_p, *n_p) receives what is needed if that is too small
 *   (TRUNCATED). To ask for it, pass NULL as the buffer and 0 as its room.
 * - Sizes are in bytes and times in milliseconds unless a name or a comment says otherwise.
 * - Parameter structs grow at their end. Zero-initialise them; a zero field means the default.
 *   Structs that describe an object grow in the same way.
 * - A function that takes such a struct is a macro. It passes sizeof of the caller's struct to the
 *   function of the same name with `_sized`, whose first parameter is that size. So a program works
 *   with a newer library: parameters that it does not have are 0, and of a description it gets
 *   what it has room for. With an older library, fields of a description that the library does not
 *   know are 0, and parameters that it does not know must be 0 (INVALID_PARAM). Other languages
 *   (Rust, Go, ctypes) bind the `_sized` functions, and pass the size of the struct that they
 *   declare. Structs that are passed without a size do not grow.
 * - Threads: the thread that owns the worker calls, unless a comment says otherwise ("Any thread").
 *   weft_thread_mode_t (weft/worker.h) has the rules.
 * - Callbacks: a callback may call every function, except those that drive a worker. These are
 *   weft_worker_progress, weft_worker_spin, and all whose names end in _wait. They return BUSY. So
 *   do weft_worker_start_thread, weft_worker_stop_thread and weft_worker_adopt; weft_worker_destroy
 *   has no effect.
 *   weft_graph_run_wait without a team drives no worker, and may be called.
 *   Three kinds of functions call nothing of the library: a log (weft_log_fn), the functions of a
 *   layout (weft_pack_ops_t) and a reduction (weft_reduce_fn).
 */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_API __attribute__((visibility("default")))

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

/* Returns the version of the running library, as "major.minor.patch". Any thread. */
WEFT_API const char *weft_version(void);

/*
 * The result of a call or of an operation. Each status has a name, a sentence and a hint
 * (weft_status_name, weft_status_sentence, weft_status_hint).
 */
typedef enum weft_status {
    WEFT_OK = 0,          /* complete; no callback follows */
    WEFT_IN_PROGRESS = 1, /* accepted; exactly one callback follows, after the call has returned */
    WEFT_ERR_INVALID_PARAM = -1,
    WEFT_ERR_NO_MEMORY = -2,
    WEFT_ERR_UNSUPPORTED = -3,
    WEFT_ERR_NOT_FOUND = -4,
    WEFT_ERR_BUSY = -5,
    WEFT_ERR_CANCELLED = -6,
    WEFT_ERR_TIMED_OUT = -7,
    WEFT_ERR_CLOSED = -8,        /* the object was closed on this side */
    WEFT_ERR_PEER_CLOSED = -9,   /* the peer closed the endpoint, in either mode */
    WEFT_ERR_PEER_FAILED = -10,  /* the peer died, or its connection broke */
    WEFT_ERR_UNREACHABLE = -11,  /* no transport reaches that address */
    WEFT_ERR_REFUSED = -12,      /* no listener is open at that address */
    WEFT_ERR_REJECTED = -13,     /* the peer's program refused the connection or the message */
    WEFT_ERR_PROTOCOL = -14,     /* the peer violated the wire protocol */
    WEFT_ERR_VERSION = -15,      /* the peer uses another version of the wire protocol */
    WEFT_ERR_TRUNCATED = -16,    /* the message is longer than its buffer */
    WEFT_ERR_TOO_BIG = -17,      /* beyond a limit of the library or of the configuration */
    WEFT_ERR_QUOTA = -18,        /* the peer exceeded its quota */
    WEFT_ERR_AUTH = -19,         /* the peer has not proved its key, or the key file is unfit */
    WEFT_ERR_INSECURE = -20,     /* binding there needs a key, or a directory of this user */
    WEFT_ERR_FORKED = -21,       /* the object belongs to the parent of this forked process */
    WEFT_ERR_WRONG_THREAD = -22, /* the calling thread does not own the worker */
    WEFT_ERR_IO = -23,           /* a system call failed; the causes and the log name its error */
    WEFT_ERR_NO_FDS = -24,       /* the process has no more file descriptors */
    WEFT_ERR_ADDRESS = -25,      /* not an address or key that this version can read */
    WEFT_ERR_REVOKED = -26,      /* the owner revoked the key to remote memory; a member the team */
    WEFT_ERR_INTERNAL = -27,     /* a defect of the library: an unreachable state was reached */
    WEFT_ERR_EXISTS = -28,       /* already taken: an address in use, a payload requested before */
    WEFT_ERR_NOT_ASSOCIATED = -29,     /* the object waits for a resource (weft/resource.h) */
    WEFT_ERR_ALREADY_ASSOCIATED = -30, /* the object has its resource already */
    WEFT_ERR_DISASSOCIATED = -31,      /* the object's resource was given back */
    WEFT_ERR_RESOURCE_LOST = -32,      /* the provider of the object's resource ended first */
    WEFT_ERR_NOT_SHAREABLE = -33,      /* the resource cannot be used from here, or by one more */
    WEFT_ERR_VERSION_MISMATCH = -34,   /* provider and consumer were built against other versions */
    WEFT_ERR_LEASE_EXHAUSTED = -35,    /* no free range of ids or tags is left to lease */
    WEFT_STATUS_LAST = -35
} weft_status_t;

/*
 * The texts of a status. Any integer is accepted; an unknown one gives "WEFT_ERR_?". The result is
 * never NULL and is a static string. Any thread.
 */
WEFT_API const char *weft_status_name(weft_status_t status);     /* "WEFT_ERR_TIMED_OUT" */
WEFT_API const char *weft_status_sentence(weft_status_t status); /* what happened, one sentence */
WEFT_API const char *weft_status_hint(weft_status_t status);     /* what to try, or "" */

/*
 * Writes a description of a failure into `buf`: name, sentence, causes and hint of `status`. The
 * text is always terminated. `buf` may be NULL if `size` is 0.
 *
 * The causes belong to the calling thread, and are those of its last failing call, if that returned
 * `status`. In a callback that reports an error they are the causes of that error, and of no other.
 * They name the peer, its address and the error of the system call. A failure whose cause is not
 * known has none. Any thread.
 *
 * Returns the length of the whole text without its terminator, like snprintf.
 */
WEFT_API size_t weft_status_describe(weft_status_t status, char *buf, size_t size);

/*
 * A piece of memory. An operation in progress uses the memory that `base` points to. The array of
 * pieces is free when the call returns. NULL with a length of 0 is legal. NULL with another length
 * is INVALID_PARAM, as for every other memory parameter. So is a message to send of more than
 * PTRDIFF_MAX bytes.
 */
typedef struct weft_iov {
    void *base;
    size_t len;
} weft_iov_t;

/*
 * An operation that can still be cancelled. The pointer is valid until the operation's callback
 * begins. If the operation counts for a completion, it is valid until the library sets the
 * program's pointer to NULL.
 */
typedef struct weft_request weft_request_t;

/*
 * The callback of an operation. It is called once, on the thread that owns the worker, from within
 * the worker's progress or its loop. With polled callbacks (weft_worker_start_thread) it is called
 * from within the program's own weft_worker_progress or weft_worker_wait.
 */
typedef void (*weft_done_fn)(weft_status_t status, void *arg);

/*
 * One callback for several operations.
 *
 * Each operation that names the completion in its descriptor and returns WEFT_IN_PROGRESS adds 1 to
 * `count`, and subtracts 1 when it ends. `done` is called once, when `count` falls to 0, with the
 * first status that was not OK. Operations that return WEFT_OK or an error do not count. The
 * program owns the memory and keeps it until `done`.
 *
 * To post operations over several iterations, start with count 1 and call weft_completion_release
 * at the end. That call may call `done`.
 *
 * Individual operations do not report their end, so the library clears their handles:
 * *op->request_p is set to NULL when its operation ends, before `done`. That pointer must live as
 * long as the completion. Passing it to weft_request_cancel is therefore safe at any time on the
 * owner's thread.
 *
 * Restrictions: closes do not support it (UNSUPPORTED). Owner's thread only; UNSUPPORTED from
 * another thread.
 */
typedef struct weft_completion {
    weft_done_fn done;
    void *arg;
    uint32_t count;
    weft_status_t status;
} weft_completion_t;
/* Subtracts 1 from `count` (weft_completion_t). NULL is ignored. */
WEFT_API void weft_completion_release(weft_completion_t *completion);

typedef struct weft_layout weft_layout_t; /* weft/layout.h */

/*
 * How an operation reports its end. NULL in place of a descriptor means no callback and no
 * deadline.
 *
 * - WEFT_OK: the operation is complete. `done` is not called.
 * - WEFT_IN_PROGRESS: `done` is called exactly once, later, never inside the call.
 * - An error: `done` is not called. The operation was refused. If its message or bytes are already
 *   here, a receive may also return the status that its callback would get. Examples are TRUNCATED
 *   and the end of a stream.
 *
 * Operations of one endpoint may end in any order, whatever the order of their effects at the peer.
 * The end of one says nothing about those posted before it. A flush does (weft_ep_flush).
 *
 * The descriptor is copied before the call returns. Zero-initialise it. A reserved field that is
 * not zero, and a flag that the operation does not define, are INVALID_PARAM.
 *
 * An operation refuses what it cannot do for a descriptor, as UNSUPPORTED:
 * - `layout`, for operations that move no bytes of the program (flushes, closes, atomics,
 *   operations on regions) and for collectives;
 * - `layout`, for weft_put_pieces and weft_get_pieces, whose pieces have strides of their own;
 * - `completion`, for closes, and where the comment of an operation says so (agreements, safe
 *   collectives, disassociations and others report by `done` alone);
 * - `deadline_ms`, for weft_worker_close, weft_team_close and weft_view_release, and for
 *   weft_disassociate_resources of a worker that closes so (weft/resource.h). The setting
 *   close.timeout limits each of their steps. For weft_ep_close it is the time after which the
 *   close becomes an abort; the handle is gone in either case.
 * Agreements, safe collectives, weft_view_gatherv and operations of views on objects cannot be
 * cancelled: they refuse `request_p` (INVALID_PARAM).
 *
 * With a `stream` the operation takes its turn among the work of that CUDA stream:
 * - It begins when the work that is on the stream now has ended. Its place among the messages of an
 *   endpoint is that of its beginning, so operations of one stream keep their order.
 * - Work that the program adds to the stream after the call waits until the operation has ended, by
 *   an error or a cancel too. The stream waits, and no thread does.
 * - The call returns WEFT_IN_PROGRESS, and `done` is called as ever. A worker that is not driven
 *   does not begin the operation.
 * The stream must be alive until the call has returned, and its context until `done`. A deadline
 * counts from the call, or, if another thread than the worker's posts the operation, from its
 * beginning. CU_STREAM_LEGACY and CU_STREAM_PER_THREAD name the default streams, since NULL is no
 * stream.
 *
 * Errors of a `stream`, UNSUPPORTED: the process has not loaded the CUDA driver; the driver lacks
 * stream memory operations; the stream is being captured (weft_coll_start alone is recorded in the
 * graph); or the operation takes no stream (closes, operations on regions and resources). QUOTA if
 * 4,096 operations with streams are in progress in this process, recorded starts among them. IO,
 * with the driver's error.
 *
 * A close cannot be cancelled: its *request_p is set to NULL. A revocation, release or invalidation
 * that ends early, by cancel or deadline, is still carried out, without a further report.
 */
typedef struct weft_op {
    weft_done_fn done; /* optional; NULL: no callback */
    void *arg;
    /* Optional. Set when the call returns WEFT_IN_PROGRESS; otherwise unchanged or NULL. */
    weft_request_t **request_p;
    /* from now; then the operation ends as WEFT_ERR_TIMED_OUT. 0: none */
    uint32_t deadline_ms;
    uint32_t flags;                /* flags from the operation's own header */
    weft_completion_t *completion; /* optional; `done` is then not called */
    /* optional; for messages, streams, puts and gets (weft/layout.h) */
    const weft_layout_t *layout;
    /* optional: a CUstream (cudaStream_t) that the operation takes its turn in; see above */
    void *stream;
    uint64_t reserved[1]; /* must be zero */
} weft_op_t;

/*
 * Requests the cancellation of an operation. NULL is ignored. The operation's callback is called
 * once, later, with WEFT_ERR_CANCELLED, or with another status if the operation could no longer be
 * cancelled.
 *
 * Any thread if the worker's mode is WEFT_THREAD_MULTIPLE. Otherwise a call from another thread, or
 * in a forked child, has no effect.
 */
WEFT_API void weft_request_cancel(weft_request_t *request);

#ifdef __cplusplus
}
#endif
#endif
