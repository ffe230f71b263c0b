/* Endpoints: connecting, listening, closing, flushing, and describing a connection. */
#ifndef WEFT_ENDPOINT_H
#define WEFT_ENDPOINT_H

#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_listener weft_listener_t;

/*
 * What happens to an endpoint whose lane fails while its peer may be alive. A lane is one
 * connection of a transport. An endpoint that a peer opened has the mode that its peer chose.
 */
typedef enum weft_error_mode {
    WEFT_ERRORS_PEER = 0, /* the endpoint is lost and on_error is called */
    WEFT_ERRORS_NONE,     /* the same, but on_error is not called; operations report the loss */
    /*
     * Failover: the endpoint survives. The library connects again and resends what the peer has not
     * received. Messages, stream bytes and one-sided operations sent by message arrive exactly once
     * and in order. Operations wait meanwhile, at most for the setting failover.timeout.
     *
     * The endpoint is lost when that time has passed, or when the peer's process is found to have
     * ended or been replaced. An endpoint connected by a listener's URI is also lost if its lane
     * fails after that listener was closed.
     *
     * One-sided operations are native only over lanes that fail together with their peer, so none
     * is left in doubt. The memory of a large send is free when the peer has received it; a flush
     * reports that. If the peer's version does not support failover, the mode is WEFT_ERRORS_PEER.
     */
    WEFT_ERRORS_FAILOVER
} weft_error_mode_t;

typedef struct weft_ep_params {
    /* optional: the peer answered. Sends are accepted before that, too */
    void (*on_ready)(weft_ep_t *ep, void *arg);
    /*
     * Optional: the endpoint is lost. It is called exactly once, unless the endpoint was closed
     * first. Every operation on the endpoint has completed or will complete, with this status. The
     * handle stays valid until weft_ep_close.
     *
     * In this callback, and in those of the operations that end with the endpoint,
     * weft_status_describe(status, …) gives the cause of this loss: which peer, at which address,
     * and the error of the system call. Afterwards weft_ep_describe returns it
     * (weft_ep_info_t.error).
     */
    void (*on_error)(weft_ep_t *ep, weft_status_t status, void *arg);
    void *arg;
    uint32_t connect_timeout_ms; /* 0: the setting connect.timeout */
    weft_error_mode_t error_mode;
    /*
     * Heartbeat interval. A peer whose worker does not answer for this long is considered dead, at
     * most two thirds of it later. At least 250, otherwise INVALID_PARAM. 0 disables heartbeats: a
     * peer that computes or is stopped in a debugger is then never considered dead, only one whose
     * process, host or connection has failed.
     *
     * This holds in every mode. With WEFT_ERRORS_FAILOVER, too, a peer that is silent for this long
     * is dead, and no other lane is tried, although the path alone may be down. An endpoint that is
     * to outlive such a time needs 0, or an interval that is longer than it: the setting
     * tcp.dead_after finds a host that is silent, and failover begins there.
     *
     * Only this side asks. The peer's side asks if its listener says so
     * (weft_listen_params_t.heartbeat_ms).
     */
    uint32_t heartbeat_ms;
    /*
     * Not 0: associated mode (weft/resource.h). `uri` or `address` must be NULL. Calls return
     * NOT_ASSOCIATED until endpoints are associated with it.
     */
    int associated;
} weft_ep_params_t;

/*
 * Opens an endpoint to a URI: "tcp://host:port", "tcp://[::1]:port", "rdma://host:port" or
 * "shm://name". `params` may be NULL. The host is numeric or a name in /etc/hosts; name servers are
 * not queried, because that would block. A link-local address names its interface:
 * "tcp://[fe80::1%eth0]:port". A shm name has no slash, does not begin with a dot, and has at most
 * 107 bytes together with its directory.
 *
 * "tcp://@FD" connects over a TCP socket that is connected already; FD is its descriptor, as a
 * number. The program connected it itself (through a proxy, or bound to an interface), inherited or
 * received it. Its other end is accepted by a listener, or given to one (weft_listener_adopt). The
 * library has a duplicate. Keep FD open, and do not use it, until on_ready or on_error; close it
 * then. INVALID_PARAM if FD is no such socket.
 *
 * Returns WEFT_OK and the handle at once. Sends are queued, in order, until the peer answers. A
 * later failure is reported by on_error. A connection that breaks before it is up, as one does
 * whose listener closes, is dialed again until the connect's time has passed (TIMED_OUT), after
 * pauses of 250 ms at most. A place where no one listens any more is REFUSED. Other statuses of
 * on_error before on_ready: UNREACHABLE (no route), PROTOCOL (what listens there is not Weft),
 * AUTH, VERSION, REJECTED (on_request), QUOTA, NO_FDS, IO; PEER_CLOSED, also if the peer has as
 * many connections as its settings peer.max_links and peers.max_links allow.
 *
 * A busy connection may be moved to a faster lane. Between processes of one host and user, tcp://
 * then continues over shared memory (weft_ep_info_t.connected_by). The setting
 * lanes.cross_transport = off prevents that.
 *
 * Errors, without an endpoint: INVALID_PARAM; ADDRESS if the URI is malformed; UNSUPPORTED if the
 * worker has not opened that transport; REFUSED if no listener of this user has the shm name (the
 * causes name the directories searched); CLOSED if the worker is closing; NO_MEMORY; NO_FDS; for
 * tcp NOT_FOUND or AUTH if the key file cannot be used (weft_listen).
 */
#define weft_connect(...) weft_connect_sized(sizeof(weft_ep_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_connect_sized(size_t params_size, weft_worker_t *worker,
                                          const char *uri, const weft_ep_params_t *params,
                                          weft_ep_t **ep_p);

/*
 * Opens an endpoint to a worker's address (weft_worker_address), over the cheapest transport that
 * reaches it. If that one fails while it connects, the next one that reaches it is tried, within
 * the same time. The error, here or in on_error, is then that of the last one, and the causes name
 * each transport that was tried and why it failed. A peer that has answered is not asked by another
 * transport: AUTH, VERSION, PROTOCOL, REJECTED.
 *
 * Otherwise as weft_connect. Errors: also UNREACHABLE if no transport reaches it.
 */
#define weft_connect_address(...) weft_connect_address_sized(sizeof(weft_ep_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_connect_address_sized(size_t params_size, weft_worker_t *worker,
                                                  const void *address, size_t len,
                                                  const weft_ep_params_t *params, weft_ep_t **ep_p);

typedef enum weft_close_mode {
    WEFT_CLOSE_FLUSH, /* send all accepted operations first */
    WEFT_CLOSE_ABORT  /* end pending operations as WEFT_ERR_CLOSED */
} weft_close_mode_t;

/*
 * Closes an endpoint, in any state and from any callback, its own included. Returns
 * WEFT_IN_PROGRESS. The handle is gone when `op->done` begins; until then handlers still receive
 * what the peer has sent.
 *
 * Operations that are posted behind it return CLOSED. While the endpoint is still being connected,
 * or submissions of other threads are under way, a flushing close may take them along.
 *
 * A flushing close becomes an abort after op->deadline_ms, after the setting close.timeout, or by a
 * second call with WEFT_CLOSE_ABORT. Such a call returns WEFT_IN_PROGRESS, too, and the `done` of
 * both is called, the first one's first. Its deadline has no meaning.
 *
 * `op->done` gets WEFT_OK, or the reason why the close was not in good order: TIMED_OUT; CLOSED, if
 * a second call cut off operations; or the status that the endpoint was lost with before,
 * PEER_CLOSED included. The endpoint is closed in every case.
 *
 * The peer gets PEER_CLOSED in either mode. It cannot see that an abort discarded data, so mark the
 * end of a stream in its own bytes if that matters.
 *
 * Errors: BUSY if the endpoint is already closing, and the call is no abort or finds one; if it is
 * associated (weft/resource.h), or is a team's (weft_team_ep). NO_MEMORY of a second call that has
 * `done`; without it there is none.
 */
WEFT_API weft_status_t weft_ep_close(weft_ep_t *ep, weft_close_mode_t mode, const weft_op_t *op);

enum {
    /*
     * weft_op_t.flags of a flush. It completes when the peer has performed one-sided operations,
     * has called the handlers of active messages (or holds them for polled callbacks), and has
     * matched or stored tagged messages and stream bytes.
     */
    WEFT_FLUSH_REMOTE = 1
};

/*
 * Completes when all operations posted before it (messages, streams, one-sided) have left this
 * side's buffers and their borrowed memory is free. Operations posted later are not waited for.
 * With WEFT_FLUSH_REMOTE it also reports refusals that only the target could find (weft/rma.h).
 *
 * Errors: CLOSED, and the status that the endpoint was lost with.
 */
WEFT_API weft_status_t weft_ep_flush(weft_ep_t *ep, const weft_op_t *op);

/* A pointer of the program's own (NULL at first), and the endpoint's worker. Any thread. */
WEFT_API void weft_ep_set_user(weft_ep_t *ep, void *user);
WEFT_API void *weft_ep_user(const weft_ep_t *ep);
WEFT_API weft_worker_t *weft_ep_worker(const weft_ep_t *ep);

/*
 * Sets on_error and arg of an endpoint, usually of one that a listener or a peer opened. NULL
 * removes the callback. Errors: BUSY if the endpoint is a team's (weft_team_ep), which learns of
 * the loss of a member by it; CLOSED once the endpoint is closing.
 */
WEFT_API weft_status_t weft_ep_on_error(weft_ep_t *ep,
                                        void (*on_error)(weft_ep_t *, weft_status_t, void *),
                                        void *arg);

typedef struct weft_ep_info {
    const char *state;     /* state of the endpoint's machine: for people, its texts may change */
    const char *transport; /* transport of the lane in use */
    /*
     * The transport that the endpoint was connected by. It differs from `transport` after a busy
     * connection was moved to a faster lane on the same host: tcp:// then continues over shm.
     * lanes.cross_transport = off prevents that.
     */
    const char *connected_by;
    /* why it was connected by that one: a sentence, with alternatives and costs */
    const char *why;
    char peer[128]; /* the peer's address as text */
    /*
     * Id of the peer's worker, from the connection's handshake. With a key, that worker holds the
     * key. Holders of one key are not distinguished: each may claim any id.
     */
    uint64_t peer_worker;
    uint32_t n_lanes;        /* lanes of the connection that this endpoint shares, rails included */
    uint32_t n_endpoints;    /* endpoints that share the connection */
    uint64_t sent, received; /* messages of the connection */
    /*
     * How its keys are used: "mapped", "process_vm" or "rdma". Otherwise "message", or the reason
     * why not natively ("the kernel does not permit process_vm", as in many containers). Without a
     * key: how keys will be used, as far as this side knows ("by key: …").
     */
    const char *one_sided;
    /* rate of the connection as lanes.switch measures it, bytes/s; 0: low, or switching is off */
    uint64_t score;
    int fast; /* whether the lane in use is a scarce, fast one */
    /*
     * States of the connection's machines for such lanes: for people, the texts may change. "":
     * none yet.
     */
    const char *negotiation, *switching;
    /* why the endpoint was lost, with the peer's address; "" while it is not lost */
    const char *error;
} weft_ep_info_t;

/*
 * Describes an endpoint, in any state. The strings are valid until the worker's next progress.
 * Errors: none but those of every function (weft/base.h).
 */
#define weft_ep_describe(...) weft_ep_describe_sized(sizeof(weft_ep_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_ep_describe_sized(size_t info_size, weft_ep_t *ep,
                                              weft_ep_info_t *info_p);

/*
 * Returns whether the endpoint leads to the worker with that address (weft_worker_address):
 * - WEFT_OK: yes, and the peer has answered;
 * - WEFT_IN_PROGRESS: it is being connected to it;
 * - WEFT_ERR_NOT_FOUND: it leads to another worker, has no connection, or was lost, for example
 *   because the peer has closed it. Also for an endpoint opened by a URI whose peer has not
 *   answered, because its worker is not known yet;
 * - WEFT_ERR_ADDRESS: the bytes are not an address. The worker of a restarted process is another
 *   worker.
 *
 * A further connect to the same address shares the existing connection, whichever lane it uses.
 * Endpoints with WEFT_ERRORS_FAILOVER share connections only with each other, and those opened by
 * an address do not share connections that came through a listener.
 */
WEFT_API weft_status_t weft_ep_is_connected(const weft_ep_t *ep, const void *address, size_t len);

/*
 * Returns whether a message that is sent now goes to the lane at once:
 * - WEFT_OK: yes, as far as this side knows;
 * - WEFT_IN_PROGRESS: it would be queued, since the endpoint is not ready, or earlier operations of
 *   its connection wait for room in the lane.
 *
 * A program that keeps no queue in the library sends while it gets WEFT_OK. At most one message is
 * then queued, the one that finds the lane full. Its end says when to go on: that of the last
 * operation that returned WEFT_IN_PROGRESS. Not counted is what the peer lets wait: its credit for
 * unexpected messages (weft/tag.h), its stream window, and 128 one-sided operations by message.
 *
 * Errors: CLOSED, and the status that the endpoint was lost with.
 */
WEFT_API weft_status_t weft_ep_has_room(const weft_ep_t *ep);

typedef struct weft_listen_params {
    /* optional: a peer connected. Set up the endpoint here */
    void (*on_endpoint)(weft_ep_t *ep, void *arg);
    /*
     * Optional: decides about a peer, given its address as text. WEFT_OK accepts. An error rejects,
     * and the peer gets WEFT_ERR_REJECTED. NULL accepts all.
     */
    weft_status_t (*on_request)(const char *peer, void *arg);
    /* an accepted endpoint is lost: close it here */
    void (*on_error)(weft_ep_t *ep, weft_status_t status, void *arg);
    void *arg;
    int backlog; /* 0: the setting listen.backlog; negative: INVALID_PARAM */
    /*
     * Not 0: other processes of the same user may listen at the same "tcp://" address at the same
     * time, if they say so too (SO_REUSEPORT). The kernel spreads new connections over them.
     * UNSUPPORTED for other transports.
     */
    int shared;
    /*
     * Heartbeat interval of accepted endpoints, as in weft_ep_params_t: a client that is stopped or
     * hangs is then lost. Of several endpoints on one connection the first one decides. 0: none.
     */
    uint32_t heartbeat_ms;
} weft_listen_params_t;

/*
 * Listens at "tcp://host:port" (port 0: any free port; host "*": all interfaces, IPv4 and IPv6),
 * "rdma://host:port" or "shm://name". `params` may be NULL.
 *
 * "tcp://@FD" listens by a TCP socket that is listening already; FD is its descriptor, as a number.
 * The process inherited it ("tcp://@3" under systemd's socket activation), received it or made it
 * itself. The listener takes a duplicate. Its close leaves the socket listening, so another
 * process that has it accepts what still waits. INVALID_PARAM if FD is no such socket.
 *
 * Accepted endpoints belong to the program. on_endpoint hands each one over. The program closes it
 * with weft_ep_close, at the latest in on_error, which reports that the peer has closed or failed.
 * An endpoint that is not closed stays until its worker is closed.
 *
 * Errors: INSECURE without a cluster key, for a tcp interface other than loopback and for every
 * rdma interface, unless tcp.insecure or rdma.insecure is set, and for a directory of shm that is
 * not this user's alone; EXISTS if the address is in use; UNREACHABLE if no interface of this host
 * has it; UNSUPPORTED if the worker has not opened that transport; ADDRESS as of weft_connect;
 * CLOSED if the worker is closing; NO_FDS; IO, for example if this user may not listen there.
 *
 * Errors of the key file, for tcp: NOT_FOUND if tcp.key_file names none; AUTH if other users may
 * read or write it, or if its content is no key (docs/wire.md).
 */
#define weft_listen(...) weft_listen_sized(sizeof(weft_listen_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_listen_sized(size_t params_size, weft_worker_t *worker, const char *uri,
                                         const weft_listen_params_t *params,
                                         weft_listener_t **listener_p);

/*
 * Hands a connected TCP socket to a "tcp://" listener, as if it had accepted it. It is for programs
 * that accept connections themselves, and give some to Weft before any byte was read. The listener
 * takes a duplicate; close `fd` after the call. The peer connects by weft_connect, and has the same
 * handshake, time limit and proof of the key as others.
 *
 * Errors: INVALID_PARAM if `fd` is no connected TCP socket; UNSUPPORTED for a listener of another
 * transport; NO_FDS.
 */
WEFT_API weft_status_t weft_listener_adopt(weft_listener_t *listener, int fd);

/*
 * Returns the listener's address as a URI for weft_connect ("tcp://127.0.0.1:40123"). It is valid
 * as long as the listener. A listener on all interfaces has "tcp://[::]:40123", which leads there
 * on this host alone. Any thread.
 */
WEFT_API const char *weft_listener_uri(const weft_listener_t *listener);

/*
 * Stops listening. The handle is gone when the call returns. Accepted endpoints stay. Those with
 * WEFT_ERRORS_FAILOVER stay until their lane fails, because their peers can no longer connect
 * again.
 */
WEFT_API void weft_listener_close(weft_listener_t *listener);

/*
 * The _wait functions, for programs without an event loop, post the operation and drive the worker
 * until it is complete. This holds for all functions whose names end in _wait except
 * weft_worker_wait. Errors: those of the operation, as its call or its callback gets them; BUSY
 * within a callback, and nothing is posted. They take no flags: weft_ep_flush_wait is a local
 * flush, weft_ep_flush_remote_wait one with WEFT_FLUSH_REMOTE.
 *
 * They take no deadline. Those of collectives and teams end by the settings coll.timeout and
 * team.timeout, closes by close.timeout. The others wait as long as it takes. To limit that, post
 * the operation itself with op->deadline_ms, and call weft_worker_wait until its `done` was called.
 */
WEFT_API weft_status_t weft_ep_flush_wait(weft_ep_t *ep);
WEFT_API weft_status_t weft_ep_flush_remote_wait(weft_ep_t *ep);
WEFT_API weft_status_t weft_ep_close_wait(weft_ep_t *ep, weft_close_mode_t mode);

#ifdef __cplusplus
}
#endif
#endif
