/* What every other header needs: status codes, the operation descriptor, buffers. */
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

/* The version of the library that is running, as "major.minor.patch". */
WEFT_API const char *weft_version(void);

/*
 * Every call answers with one of these. Errors are negative; each has a name, a sentence and a hint
 * (weft_status_name, weft_status_sentence, weft_status_hint).
 */
typedef enum weft_status {
    WEFT_OK = 0,          /* done; no callback will come */
    WEFT_IN_PROGRESS = 1, /* accepted; exactly one callback will come, later */
    WEFT_NO_RESOURCE = 2, /* not now: only transports say this, never a public call */
    WEFT_ERR_INVALID_PARAM = -1,
    WEFT_ERR_NO_MEMORY = -2,
    WEFT_ERR_UNSUPPORTED = -3,
    WEFT_ERR_NOT_FOUND = -4,
    WEFT_ERR_BUSY = -5,
    WEFT_ERR_CANCELLED = -6,
    WEFT_ERR_TIMED_OUT = -7,
    WEFT_ERR_CLOSED = -8,        /* the object was closed on this side */
    WEFT_ERR_PEER_CLOSED = -9,   /* the peer closed the endpoint, in whichever mode */
    WEFT_ERR_PEER_FAILED = -10,  /* the peer died, or its connection broke */
    WEFT_ERR_UNREACHABLE = -11,  /* no transport reaches that address */
    WEFT_ERR_REFUSED = -12,      /* nobody listens there */
    WEFT_ERR_REJECTED = -13,     /* the listener said no */
    WEFT_ERR_PROTOCOL = -14,     /* the peer said what it may not say */
    WEFT_ERR_VERSION = -15,      /* the peer speaks another version of the wire protocol */
    WEFT_ERR_TRUNCATED = -16,    /* the message is longer than the buffer given for it */
    WEFT_ERR_TOO_BIG = -17,      /* beyond a limit of the library or of the configuration */
    WEFT_ERR_QUOTA = -18,        /* the peer used up what it was granted */
    WEFT_ERR_AUTH = -19,         /* the peer could not prove that it holds the key */
    WEFT_ERR_INSECURE = -20,     /* binding there needs a cluster key */
    WEFT_ERR_FORKED = -21,       /* this process is a fork of the one that made the object */
    WEFT_ERR_WRONG_THREAD = -22, /* a call from a thread that does not own the worker */
    WEFT_ERR_IO = -23,           /* a system call failed; the log has its errno */
    WEFT_ERR_NO_FDS = -24,       /* out of file descriptors */
    WEFT_ERR_ADDRESS = -25,      /* not an address or key, or not one that this version reads */
    WEFT_ERR_REVOKED = -26,      /* the key to remote memory was revoked by its owner */
    WEFT_ERR_INTERNAL = -27,     /* an unreachable cell was reached: a defect of the library */
    WEFT_ERR_EXISTS = -28,       /* taken already: an address in use, a payload asked for before */
    WEFT_STATUS_LAST = -28
} weft_status_t;

/* Of any number, also one of a later version ("WEFT_ERR_?"); never NULL, and for ever. */
WEFT_API const char *weft_status_name(weft_status_t status);     /* "WEFT_ERR_TIMED_OUT" */
WEFT_API const char *weft_status_sentence(weft_status_t status); /* what happened, one sentence */
WEFT_API const char *weft_status_hint(weft_status_t status);     /* what to try, "" if nothing */

/*
 * Writes name, sentence, hint and the chain of causes noted by this thread's last failing call into
 * `buf`, always terminated. Returns the length it would have needed, like snprintf; `buf` may be NULL where `size` is 0. The causes
 * are there as long as `status` is that of the thread's last call that failed.
 */
WEFT_API size_t weft_status_describe(weft_status_t status, char *buf, size_t size);

/* A piece of memory. Only the memory pointed to is borrowed by an operation, never the iov array. Bytes at NULL are
 * INVALID_PARAM, here and wherever memory is named; NULL and no bytes are legal. */
typedef struct weft_iov {
    void *base;
    size_t len;
} weft_iov_t;

/* An operation that can still be cancelled. Valid until its callback begins; where it counts for a completion, until that makes the
 * program's pointer NULL. */
typedef struct weft_request weft_request_t;

/* Called once, from within the worker's progress or its loop, on its owner's thread; a worker with polled callbacks
 * (weft_worker_start_thread) calls within the program's own progress or wait. */
typedef void (*weft_done_fn)(weft_status_t status, void *arg);

/*
 * One callback for several operations: each that names it in its descriptor and is WEFT_IN_PROGRESS adds one to
 * `count`, and takes it away when it ends; `done` comes, once, when that leaves 0, with the first status that was not
 * OK. Operations that are WEFT_OK or refused do not count. The memory is the program's, and must live until `done`. A
 * program that posts over several turns starts with count 1 and takes its own one away by weft_completion_release,
 * which may call `done`. Closes do not count (UNSUPPORTED). Owner's thread only: UNSUPPORTED from another.
 *
 * Nobody is told of the single ends, so the requests of what counts (weft_op_t.request_p) are taken back by the library:
 * `*request_p` becomes NULL when its operation ends, before `done`, and so must live as long as the completion. To cancel
 * what it holds is safe at any moment then, on the owner's thread; NULL is nothing to cancel.
 */
typedef struct weft_completion {
    weft_done_fn done;
    void *arg;
    uint32_t count;
    weft_status_t status;
} weft_completion_t;
WEFT_API void weft_completion_release(weft_completion_t *completion);

typedef struct weft_layout weft_layout_t; /* weft/layout.h */

/*
 * How an operation reports. NULL in place of a descriptor means: no callback, no deadline.
 *
 * An operation that returns WEFT_OK is done and calls nobody. One that returns WEFT_IN_PROGRESS calls
 * `done` exactly once, later, never inside the call. One that returns an error calls nobody: it was refused, or, a
 * receive whose message or bytes are here already, has ended at once with what its callback would be told (TRUNCATED,
 * or how a stream ends). The descriptor itself is copied before the call returns. Zero-initialise it: it grows into
 * `reserved`, and what is set there is INVALID_PARAM, as is a flag that the operation does not have.
 *
 * What an operation cannot do for its descriptor it refuses, as UNSUPPORTED:
 * - a layout, where no bytes of the program's are moved: flushes, closes, collectives, atomics, what is done to regions,
 *   and pieces (weft_put_pieces), which say their strides themselves;
 * - a completion, of closes;
 * - a deadline, of weft_worker_close and weft_team_close, which "close.timeout" bounds at each of their steps. Of
 *   weft_ep_close it says when the close becomes an abort; the handle is gone all the same.
 * A close cannot be taken back: its *request_p becomes NULL. A revocation, a release or an invalidation that ends early,
 * by cancel or deadline, is done nevertheless; nobody is told when.
 */
typedef struct weft_op {
    weft_done_fn done;
    void *arg;
    weft_request_t **
        request_p; /* set when the call returns WEFT_IN_PROGRESS, else it is as it was, or NULL; NULL: not wanted */
    uint32_t deadline_ms;          /* from now; 0: none. Then the operation ends as WEFT_ERR_TIMED_OUT */
    uint32_t flags;                /* of the operation's own header; others are INVALID_PARAM */
    weft_completion_t *completion; /* in place of `done`, which is not called then; NULL: none */
    const weft_layout_t *layout;   /* of messages, streams, puts and gets (weft/layout.h) */
    uint64_t reserved[2];          /* zero, else INVALID_PARAM */
} weft_op_t;

/*
 * Asks for an operation's end; NULL: of none. Its callback comes with WEFT_ERR_CANCELLED, or with another status if it was already
 * past recall; either way once, and never inside this call. From any thread, if the worker's mode is MULTIPLE; else
 * nothing happens from another, as in a fork's child.
 */
WEFT_API void weft_request_cancel(weft_request_t *request);

#ifdef __cplusplus
}
#endif
#endif
