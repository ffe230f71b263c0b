/*
 * The handshake. Each side proves that it holds the key, by a MAC over a fresh nonce of the other
 * side: the acceptor in its CHALLENGE, the dialer in its PROOF. Both MACs cover all previous
 * messages and a label of the role, so a replayed or reflected proof is refused. A worker refuses
 * its own worker id unless both ends are its own: a relay cannot connect a worker with itself. The
 * handshake does not detect a relay between two other holders of the key, and no MAC covers the
 * later frames. Handshake messages are smaller than any socket buffer, so a short write is an
 * error.
 */
#define _GNU_SOURCE
#include "owner.h"
#include "tcp.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

/* bytes, and reads: 64 KiB of a refused connection at most */
enum { DRAIN_READ = 4096, DRAIN_READS = 16 };

/* ---- sending --------------------------------------------------------------------------------- */

static void send_msg(struct tcp_lane *lane, const void *bytes, size_t len) {
    ssize_t n;
    do n = send(lane->watch.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len) return;
    if (n >= 0 || (errno != EPIPE && errno != ECONNRESET))
        weft__tcp_lane_note(lane, "sending the handshake", n < 0 ? errno : 0);
    weft__tcp_lane_why(lane, n < 0 ? weft__errno_status(errno) : WEFT_ERR_IO);
    weft__tcp_lane_todo(lane, TODO_READ | TODO_BREAK); /* it may have said why */
}

static struct tcp_handshake new_handshake(const struct tcp_lane *lane,
                                          enum tcp_handshake_kind kind) {
    const struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_handshake g = {.kind = kind, .worker = iface->iface.worker_id};
    g.flags = iface->key.trust == TRUST_ANYONE ? 0 : TCP_FLAG_KEYED;
    for (size_t i = 0; i < TCP_NONCE; i += 8)
        tcp_put64(g.nonce + i, weft__random(lane->lane.iface->reactor));
    return g;
}

/* A worker that is not driven says nothing, and the acceptor waits for "tcp.handshake_timeout"
 * only. */
static bool is_late(const struct tcp_lane *lane) {
    return weft__now(tcp_reactor(lane)) - lane->hands->begun >= TCP_LATE_MS * NS_PER_MS;
}

void weft__tcp_send_hello(struct tcp_lane *lane) {
    struct tcp_handshake g = new_handshake(lane, TCP_HELLO);
    lane->hands->late = is_late(lane);
    lane->hands->begun = weft__now(tcp_reactor(lane));
    lane->watch.ready = weft__tcp_handshake_ready;
    weft_status_t st = weft__tcp_lane_watch(lane, WATCH_READ);
    if (st < 0) {
        weft__tcp_lane_why(lane, st);
        weft__tcp_lane_todo(lane, TODO_BREAK);
        return;
    }
    g.target = lane->hands->target;
    weft__tcp_handshake_encode(&g, lane->hands->hello);
    send_msg(lane, lane->hands->hello, TCP_HELLO_SIZE);
}

/* Both were made when the handshake before them was judged, since making a proof can fail. */
void weft__tcp_send_challenge(struct tcp_lane *lane) {
    send_msg(lane, lane->hands->challenge, TCP_CHALLENGE_SIZE);
}

void weft__tcp_send_proof(struct tcp_lane *lane) {
    struct tcp_handshake g = {.kind = TCP_PROVE};
    uint8_t bytes[TCP_HANDSHAKE_MAX];
    memcpy(g.proof, lane->hands->proof, TCP_PROOF);
    send_msg(lane, bytes, weft__tcp_handshake_encode(&g, bytes));
}

/*
 * Closing with bytes unread would reset the connection, and the refusal with it. The drain is
 * bounded: a peer that sends faster than this loop reads must not hold the worker. Such a peer gets
 * the reset.
 */
static void tcp_handshake_drain(int fd) {
    uint8_t rest[DRAIN_READ];
    for (int i = 0; i < DRAIN_READS; i++)
        if (recv(fd, rest, sizeof rest, MSG_DONTWAIT) != sizeof rest) return;
}

void weft__tcp_send_refusal(int fd, weft_status_t why) {
    struct tcp_handshake g = {.kind = TCP_REFUSAL, .status = why};
    uint8_t bytes[TCP_HANDSHAKE_MAX];
    size_t len = weft__tcp_handshake_encode(&g, bytes);
    /* it will see the end of the connection */
    if (send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
    tcp_handshake_drain(fd);
}

/* ---- to judge -------------------------------------------------------------------------------- */

static void refuse_handshake(struct tcp_lane *lane, weft_status_t why, const char *what) {
    weft__tcp_send_refusal(lane->watch.fd, why);
    weft__tcp_lane_bad(lane, why, what);
}

/*
 * The user's own key is for that user's processes. Another user of this host cannot have it, but
 * may pass on what two holders of it say to each other; so the kernel is asked whose the other end
 * is. A key file that the settings name is for those that have it, whatever user they are.
 */
static weft_status_t check_owner(const struct tcp_lane *lane) {
    if (tcp_iface_of(lane)->key.trust != TRUST_USER || !weft__tcp_is_loopback(&lane->peer))
        return WEFT_OK;
    switch (weft__tcp_owner_of_peer(lane->watch.fd, &lane->peer)) {
    case TCP_OWNER_SELF: return WEFT_OK;
    case TCP_OWNER_OTHER: return WEFT_ERR_AUTH;
    case TCP_OWNER_FAILED: return WEFT_ERR_NO_FDS;
    case TCP_OWNER_UNKNOWN: break;
    }
    weft__log_limited(
        weft__tcp_context(lane), WEFT_LOG_INFO, "tcp",
        "the kernel does not report the user of the connection; only its proof decides");
    return WEFT_OK;
}

static bool is_other_end(const struct tcp_lane *lane, const union tcp_sockaddr *own,
                         const struct tcp_lane *other) {
    union tcp_sockaddr at = {0};
    socklen_t len = sizeof at;
    if (other == lane || other->watch.fd < 0 || !weft__tcp_same_address(&other->peer, own))
        return false;
    return getsockname(other->watch.fd, &at.any, &len) == 0 &&
           weft__tcp_same_address(&at, &lane->peer);
}

/* A worker may dial its own listener: then both ends are among its connections, and nothing is
 * between them. */
static bool is_dialed_by_itself(const struct tcp_lane *lane) {
    const struct tcp_iface *iface = tcp_iface_of(lane);
    const struct tcp_lane *other;
    union tcp_sockaddr own = {0};
    socklen_t len = sizeof own;
    if (getsockname(lane->watch.fd, &own.any, &len) < 0) return false;
    TAILQ_FOREACH(other, &iface->lanes, of_iface)
    if (is_other_end(lane, &own, other)) return true;
    TAILQ_FOREACH(other, &iface->handshake, of_iface)
    if (is_other_end(lane, &own, other)) return true;
    return false;
}

/* Before anything is proved to the other end. False: it was refused. */
static bool may_be_handshaken(struct tcp_lane *lane, uint64_t worker) {
    if (worker == lane->lane.iface->worker_id && !is_dialed_by_itself(lane)) {
        refuse_handshake(lane, WEFT_ERR_REFUSED,
                         "it has this worker's own id, and is another's connection");
        return false;
    }
    weft_status_t st = check_owner(lane);
    if (st < 0)
        refuse_handshake(lane, st,
                         st == WEFT_ERR_AUTH ? "its other end belongs to another user of this host"
                                             : "no descriptor to ask whose its other end is");
    return st == WEFT_OK;
}

static weft_status_t make_challenge(struct tcp_lane *lane) {
    struct tcp_hands *h = lane->hands;
    struct tcp_handshake g = new_handshake(lane, TCP_CHALLENGE);
    weft__tcp_handshake_encode(&g, h->challenge);
    weft_status_t st = weft__tcp_prove(&tcp_iface_of(lane)->key, TCP_ROLE_ACCEPTOR, h->hello,
                                       h->challenge, g.proof);
    if (st == WEFT_OK) weft__tcp_handshake_encode(&g, h->challenge);
    return st;
}

static void judge_hello(struct tcp_lane *lane, const struct tcp_handshake *g) {
    const struct tcp_iface *iface = tcp_iface_of(lane);
    bool keyed = g->flags & TCP_FLAG_KEYED, we_keyed = iface->key.trust != TRUST_ANYONE;
    if (g->target && g->target != iface->iface.worker_id)
        return refuse_handshake(
            lane, WEFT_ERR_REFUSED,
            "the connection is meant for another worker, which listened here before");
    if (keyed != we_keyed)
        return refuse_handshake(lane, WEFT_ERR_AUTH,
                                "one side has a key, the other runs with tcp.insecure");
    if (lane->listener && !may_be_handshaken(lane, g->worker)) return;
    memcpy(lane->hands->hello, lane->hands->in, TCP_HELLO_SIZE);
    lane->hands->sent_hello = true;
    weft_status_t st = make_challenge(lane);
    if (st < 0) return refuse_handshake(lane, st, "could not compute the challenge");
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_HELLO);
}

/* Within "connect.timeout", whose timer runs on. */
static void dial_again(struct tcp_lane *lane) {
    char name[TCP_NAME_ROOM];
    weft__tcp_sockaddr_text(&lane->peer, name, sizeof name);
    weft__log_limited(weft__tcp_context(lane), WEFT_LOG_INFO, "tcp",
                      "%s: it gave up while this worker was not driven; dialing again", name);
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_LATE);
}

static bool has_ended(const struct tcp_lane *lane) {
    char next;
    return recv(lane->watch.fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void judge_challenge(struct tcp_lane *lane, const struct tcp_handshake *g) {
    const struct trust_key *key = &tcp_iface_of(lane)->key;
    struct tcp_hands *h = lane->hands;
    uint8_t expected[TCP_PROOF];
    if (!may_be_handshaken(lane, g->worker)) return;
    if (is_late(lane) && has_ended(lane)) return dial_again(lane);
    memcpy(h->challenge, h->in, TCP_CHALLENGE_SIZE);
    weft_status_t st = weft__tcp_prove(key, TCP_ROLE_ACCEPTOR, h->hello, h->challenge, expected);
    if (st == WEFT_OK) st = weft__tcp_prove(key, TCP_ROLE_DIALER, h->hello, h->challenge, h->proof);
    if (st < 0) return refuse_handshake(lane, st, "could not compute the proof");
    bool proved = weft__trust_proof_equal(expected, g->proof);
    OPENSSL_cleanse(expected, sizeof expected);
    if (!proved) return refuse_handshake(lane, WEFT_ERR_AUTH, tcp_iface_of(lane)->wrong_key);
    if (h->target && h->target != g->worker)
        return refuse_handshake(lane, WEFT_ERR_REFUSED, "another worker listens at that address");
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_CHALLENGE);
}

static void judge_proof(struct tcp_lane *lane, const struct tcp_handshake *g) {
    const struct tcp_hands *h = lane->hands;
    uint8_t expected[TCP_PROOF];
    weft_status_t st = weft__tcp_prove(&tcp_iface_of(lane)->key, TCP_ROLE_DIALER, h->hello,
                                       h->challenge, expected);
    if (st < 0) return refuse_handshake(lane, st, "could not compute the proof");
    bool proved = weft__trust_proof_equal(expected, g->proof);
    OPENSSL_cleanse(expected, sizeof expected);
    if (!proved) return refuse_handshake(lane, WEFT_ERR_AUTH, tcp_iface_of(lane)->wrong_key);
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_PROOF);
}

/* What the peer's process lacks is not to be looked for here. */
static const char *why_refused(const struct tcp_lane *lane, weft_status_t status) {
    switch (status) {
    case WEFT_ERR_AUTH: return tcp_iface_of(lane)->wrong_key;
    case WEFT_ERR_NO_FDS: return "the peer refused the handshake: it has no file descriptors left";
    case WEFT_ERR_NO_MEMORY: return "the peer refused the handshake: it has no memory left";
    default: return "the peer refused the handshake";
    }
}

static void judge_handshake(struct tcp_lane *lane, const struct tcp_handshake *g) {
    switch (g->kind) {
    case TCP_HELLO: judge_hello(lane, g); break;
    case TCP_CHALLENGE: judge_challenge(lane, g); break;
    case TCP_PROVE: judge_proof(lane, g); break;
    default: weft__tcp_lane_bad(lane, g->status, why_refused(lane, g->status)); break;
    }
}

/* ---- to read --------------------------------------------------------------------------------- */

static void read_failed(struct tcp_lane *lane, ssize_t n) {
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (lane->hands->late && lane->hands->in_len == 0) return dial_again(lane);
    weft__tcp_lane_note(lane,
                        n < 0 ? "receiving the handshake"
                              : "the peer closed the connection during the handshake",
                        n < 0 ? errno : 0);
    weft__tcp_lane_why(lane, n < 0 ? weft__errno_status(errno) : WEFT_ERR_PEER_FAILED);
    weft__fsm_step(&lane->conn.fsm, n < 0 ? TCP_CONN_EV_BROKEN : TCP_CONN_EV_END);
}

/* Never reads beyond the handshake: what follows it are frames. */
void weft__tcp_handshake_ready(struct watch *watch, int events) {
    struct tcp_lane *lane = tcp_lane_of_watch(watch);
    while (lane->watch.ready == weft__tcp_handshake_ready) {
        struct tcp_hands *h = lane->hands;
        struct tcp_handshake g;
        size_t size;
        weft_status_t st = weft__tcp_handshake_decode(h->in, h->in_len, &g, &size);
        if (st == WEFT_OK) {
            h->in_len = 0;
            judge_handshake(lane, &g);
        } else if (st == WEFT_ERR_VERSION) {
            refuse_handshake(lane, st, "the peer speaks another version of the protocol");
        } else if (st < 0) {
            weft__tcp_lane_bad(lane, st, "what the peer sent is not a Weft handshake");
        } else {
            ssize_t n;
            do n = recv(lane->watch.fd, h->in + h->in_len, size - h->in_len, MSG_DONTWAIT);
            while (n < 0 && errno == EINTR);
            if (n <= 0) {
                read_failed(lane, n);
                return;
            }
            h->in_len += (size_t)n;
        }
    }
}
