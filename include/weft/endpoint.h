/* Endpoints: connecting, listening, closing, and asking what a connection is made of. */
#ifndef WEFT_ENDPOINT_H
#define WEFT_ENDPOINT_H

#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_listener weft_listener_t;

/* What becomes of an endpoint whose lane dies while its peer may live. An endpoint that a peer opened is as its dialer said. */
typedef enum weft_error_mode {
    WEFT_ERRORS_PEER = 0, /* it is lost, and on_error says why */
    WEFT_ERRORS_NONE,     /* the same, but on_error is not called: operations tell */
    /*
     * It survives: the library dials again, and both sides go on behind what the other has taken: messages, streams and what
     * is one-sided by message arrive exactly once and in order. Operations wait meanwhile, "lanes.patience" at most; only
     * then, or when the peer is found to be dead or another, the endpoint is lost; one opened by a listener's URI also when its
     * lane dies and that listener has closed. One-sided operations are native only by lanes that die with their peer, so
     * none is in doubt. Memory of large sends is back when the peer has taken them, and a flush says that it has. With a
     * peer whose version cannot, it is as WEFT_ERRORS_PEER.
     */
    WEFT_ERRORS_FAILOVER
} weft_error_mode_t;

typedef struct weft_ep_params {
    void (*on_ready)(weft_ep_t *ep, void *arg); /* the peer answered; sends are accepted before that too */
    /*
     * The endpoint is lost: exactly once, unless it was closed first. Every operation on it has already
     * completed or will, with that status. The handle stays until weft_ep_close.
     */
    void (*on_error)(weft_ep_t *ep, weft_status_t status, void *arg);
    void *arg;
    uint32_t connect_timeout_ms; /* 0: the setting "connect.timeout" */
    weft_error_mode_t error_mode;
    /*
     * A peer whose worker says nothing for so long, though asked, is taken for dead, within two thirds more of that time; 250 at
     * least, else INVALID_PARAM. 0: never, since one that computes, or stands in a debugger, is not: only its process, its
     * host or its connection can be.
     */
    uint32_t heartbeat_ms;
} weft_ep_params_t;

/*
 * Opens an endpoint to a URI: "tcp://host:port", "tcp://[::1]:port", "rdma://host:port" or "shm://name". The host is numeric,
 * or a name in /etc/hosts; no name server is asked (it would block). The name is one without slashes that begins with no dot,
 * and with "shm.directory" before it of 107 bytes at most. What is none of these is ADDRESS. Returns WEFT_OK with the handle at
 * once; sends queue, in order, until the peer answers; a failure is told by on_error. What is known at once the call itself
 * answers, and makes no endpoint: INVALID_PARAM, ADDRESS, UNSUPPORTED (the worker has no such transport), REFUSED where nobody
 * listens on this host ("shm://name"), CLOSED (the worker is closing), NO_MEMORY and NO_FDS. `params` may be NULL.
 */
#define weft_connect(...) weft_connect_sized(sizeof(weft_ep_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_connect_sized(size_t params_size, weft_worker_t *worker, const char *uri,
                                          const weft_ep_params_t *params, weft_ep_t **ep_p);

/* The same to a worker's address (weft_worker_address), over the best transport that reaches it. UNREACHABLE: none does. */
#define weft_connect_address(...) weft_connect_address_sized(sizeof(weft_ep_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_connect_address_sized(size_t params_size, weft_worker_t *worker, const void *address,
                                                  size_t len, const weft_ep_params_t *params, weft_ep_t **ep_p);

typedef enum weft_close_mode {
    WEFT_CLOSE_FLUSH, /* first everything accepted is sent */
    WEFT_CLOSE_ABORT  /* what is pending ends as WEFT_ERR_CLOSED */
} weft_close_mode_t;

/*
 * Closes from any state and from within any callback, the endpoint's own included. The handle is gone when `op->done`
 * begins; until then handlers still get what the peer has sent. WEFT_IN_PROGRESS, or WEFT_ERR_BUSY when it is closing
 * already. A close in good order becomes an abort after op->deadline_ms, or "close.timeout". `op->done` is told OK, or why
 * it did not end in good order: TIMED_OUT, or what the endpoint was lost with before (PEER_CLOSED, too). It is closed all
 * the same. The peer is told PEER_CLOSED in either mode: what an abort cut off does not tell that it was not all, so a
 * stream whose end matters says so in its bytes.
 */
WEFT_API weft_status_t weft_ep_close(weft_ep_t *ep, weft_close_mode_t mode, const weft_op_t *op);

enum {
    /* weft_op_t.flags: when the peer has performed what is one-sided, called the handlers of active messages (or
     * keeps them for a program with polled callbacks), and has matched tagged messages or keeps them, and stream
     * bytes. */
    WEFT_FLUSH_REMOTE = 1
};

/* Completes when all that was posted before, messages, stream and one-sided, has left this side's buffers and borrowed memory
 * is free. What is posted behind it is not waited for. With WEFT_FLUSH_REMOTE it also tells what only the target could refuse
 * (weft/rma.h). */
WEFT_API weft_status_t weft_ep_flush(weft_ep_t *ep, const weft_op_t *op);

/* A pointer of the program's own, for its callbacks. */
WEFT_API void weft_ep_set_user(weft_ep_t *ep, void *user);
WEFT_API void *weft_ep_user(const weft_ep_t *ep);
WEFT_API weft_worker_t *weft_ep_worker(const weft_ep_t *ep);

/* Sets on_error and arg of an endpoint, mostly of one that came from a listener or from a peer; NULL: nobody is told. Nothing
 * once it is closing. */
WEFT_API void weft_ep_on_error(weft_ep_t *ep, void (*on_error)(weft_ep_t *, weft_status_t, void *), void *arg);

typedef struct weft_ep_info {
    const char *state;       /* of the endpoint's machine */
    const char *transport;   /* of the lane in use */
    const char *why;         /* why that one: a sentence, with the alternatives and their costs */
    char peer[128];          /* the peer's address as text */
    uint64_t peer_worker;    /* identity of the worker behind it */
    uint32_t n_lanes;        /* of the link that this endpoint shares, its rails among them */
    uint32_t n_endpoints;    /* that share the link */
    uint64_t sent, received; /* messages of this endpoint's link */
    /* How its keys are used: "mapped", "process_vm", "rdma"; else by message: "message", or why not natively ("the kernel does not
     * permit process_vm", as in many containers). While there is none, how they will be, as far as this side knows ("by key: …"). */
    const char *one_sided;
    uint64_t score; /* bytes a second that the link carries, as "lanes.switch" sees it; 0: little, or it is off */
    int fast;       /* the lane in use is one of those of which there are few */
    const char *negotiation, *switching; /* states of the link's machines for such lanes; "": it has none yet */
} weft_ep_info_t;

/* Fills `*info_p`; its strings live until the worker's next progress. */
WEFT_API weft_status_t weft_ep_describe(weft_ep_t *ep, weft_ep_info_t *info_p);

/*
 * Does the endpoint lead to the worker with that address (weft_worker_address)? WEFT_OK: it does, and the peer has answered;
 * WEFT_IN_PROGRESS: it is on its way there; WEFT_ERR_NOT_FOUND: it leads elsewhere, or has nothing under it any more;
 * WEFT_ERR_ADDRESS: these bytes are no address. A worker of a process that was started again is another one. While an
 * endpoint was opened by a URI, and its peer has not answered, nobody knows where it leads: WEFT_ERR_NOT_FOUND.
 * Whoever connects to an address once more gets an endpoint over the link that is there, whatever lane carries it now, and no
 * new connection; endpoints that are to survive their lane (WEFT_ERRORS_FAILOVER) share links only with their like, and those
 * opened by an address none that came by a listener.
 */
WEFT_API weft_status_t weft_ep_is_connected(const weft_ep_t *ep, const void *address, size_t len);

typedef struct weft_listen_params {
    void (*on_endpoint)(weft_ep_t *ep, void *arg); /* a peer connected; set its handlers here */
    /* WEFT_OK accepts; an error rejects, and the peer is told WEFT_ERR_REJECTED. NULL: all are accepted. */
    weft_status_t (*on_request)(const char *peer, void *arg);
    void (*on_error)(weft_ep_t *ep, weft_status_t status, void *arg); /* for the accepted endpoints */
    void *arg;
    int backlog; /* 0: the setting "listen.backlog"; negative: INVALID_PARAM */
} weft_listen_params_t;

/*
 * Listens at "tcp://host:port" (port 0: any free one; host "*": all interfaces, IPv4 and IPv6), "rdma://host:port" or
 * "shm://name". `params` may be NULL. Over tcp an interface other than loopback, and over rdma any, is
 * WEFT_ERR_INSECURE without a cluster key, unless "tcp.insecure" or "rdma.insecure" is on; EXISTS: somebody listens
 * there; UNSUPPORTED: the worker has no such transport; ADDRESS: as of weft_connect.
 */
#define weft_listen(...) weft_listen_sized(sizeof(weft_listen_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_listen_sized(size_t params_size, weft_worker_t *worker, const char *uri,
                                         const weft_listen_params_t *params, weft_listener_t **listener_p);

/* Where it listens, as a URI for weft_connect ("tcp://127.0.0.1:40123"). Lives as long as the listener. */
WEFT_API const char *weft_listener_uri(const weft_listener_t *listener);

/* Stops listening; endpoints already accepted go on, those that survive (WEFT_ERRORS_FAILOVER) until their lane dies: nobody is
 * there any more to dial again. The handle is gone when the call returns. */
WEFT_API void weft_listener_close(weft_listener_t *listener);

/* For programs without a loop of their own: the operation, and progress until it is done. All calls whose names end in _wait
 * but weft_worker_wait are such. From within a callback they are BUSY, and nothing is posted. They have no flags: such a flush is
 * local. */
WEFT_API weft_status_t weft_ep_flush_wait(weft_ep_t *ep);
WEFT_API weft_status_t weft_ep_close_wait(weft_ep_t *ep, weft_close_mode_t mode);

#ifdef __cplusplus
}
#endif
#endif
