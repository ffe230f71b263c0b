/*
 * The handshake. Each side shows with a fresh nonce of the other's that it holds the key: the acceptor in its
 * CHALLENGE, the dialer in its PROOF. Both MACs cover all that was said and a label of the role, so neither a replay
 * nor a reflection is worth anything. Greetings are smaller than any socket's buffer: a short write is an error.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

/* ---- to say ------------------------------------------------------------------------------------------ */

static void say(struct tcp_lane *lane, const void *bytes, size_t len) {
    ssize_t n;
    do n = send(lane->watch.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len) return;
    tcp_lane_why(lane, n < 0 ? weft__errno_status(errno) : WEFT_ERR_IO);
    tcp_lane_todo(lane, TODO_READ | TODO_BREAK); /* it may have said why */
}

static struct tcp_greeting introduce(const struct tcp_lane *lane, enum tcp_greeting_kind kind) {
    const struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_greeting g = {.kind = kind, .worker = iface->worker_id};
    g.flags = iface->key.trust == TRUST_ANYONE ? 0 : TCP_FLAG_KEYED;
    for (size_t i = 0; i < TCP_NONCE; i += 8) tcp_put64(g.nonce + i, weft__random(lane->lane.iface->reactor));
    return g;
}

void tcp_say_hello(struct tcp_lane *lane) {
    struct tcp_greeting g = introduce(lane, TCP_HELLO);
    lane->watch.ready = tcp_greet_ready;
    weft_status_t st = tcp_lane_watch(lane, WATCH_READ);
    if (st < 0) {
        tcp_lane_why(lane, st);
        tcp_lane_todo(lane, TODO_BREAK);
        return;
    }
    g.target = lane->hands->target;
    tcp_greeting_encode(&g, lane->hands->hello);
    say(lane, lane->hands->hello, TCP_HELLO_SIZE);
}

/* Both were made when the greeting before them was judged, since making a proof can fail. */
void tcp_say_challenge(struct tcp_lane *lane) {
    say(lane, lane->hands->challenge, TCP_CHALLENGE_SIZE);
}

void tcp_say_proof(struct tcp_lane *lane) {
    struct tcp_greeting g = {.kind = TCP_PROVE};
    uint8_t bytes[TCP_GREETING_MAX];
    memcpy(g.proof, lane->hands->proof, TCP_PROOF);
    say(lane, bytes, tcp_greeting_encode(&g, bytes));
}

void tcp_say_refusal(int fd, weft_status_t why) {
    struct tcp_greeting g = {.kind = TCP_REFUSAL, .status = why};
    uint8_t bytes[TCP_GREETING_MAX], rest[256];
    size_t len = tcp_greeting_encode(&g, bytes);
    if (send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return; /* it will see the end of the connection */
    /* Closing with bytes unread would reset the connection, and the refusal with it. */
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) == sizeof rest)
        ;
}

/* ---- to judge -------------------------------------------------------------------------------------------- */

static void refuse(struct tcp_lane *lane, weft_status_t why, const char *what) {
    tcp_say_refusal(lane->watch.fd, why);
    tcp_lane_bad(lane, why, what);
}

static weft_status_t make_challenge(struct tcp_lane *lane) {
    struct tcp_hands *h = lane->hands;
    struct tcp_greeting g = introduce(lane, TCP_CHALLENGE);
    tcp_greeting_encode(&g, h->challenge);
    weft_status_t st = tcp_prove(&tcp_iface_of(lane)->key, TCP_ROLE_ACCEPTOR, h->hello, h->challenge, g.proof);
    if (st == WEFT_OK) tcp_greeting_encode(&g, h->challenge);
    return st;
}

static void judge_hello(struct tcp_lane *lane, const struct tcp_greeting *g) {
    const struct tcp_iface *iface = tcp_iface_of(lane);
    bool keyed = g->flags & TCP_FLAG_KEYED, we_keyed = iface->key.trust != TRUST_ANYONE;
    if (g->target && g->target != iface->worker_id)
        return refuse(lane, WEFT_ERR_REFUSED, "meant for a worker that listened here before");
    if (keyed != we_keyed) return refuse(lane, WEFT_ERR_AUTH, "one side has a key, the other tcp.insecure");
    memcpy(lane->hands->hello, lane->hands->in, TCP_HELLO_SIZE);
    weft_status_t st = make_challenge(lane);
    if (st < 0) return refuse(lane, st, "no challenge could be made");
    fsm_step(&lane->conn.fsm, TCP_CONN_EV_HELLO);
}

static void judge_challenge(struct tcp_lane *lane, const struct tcp_greeting *g) {
    const struct trust_key *key = &tcp_iface_of(lane)->key;
    struct tcp_hands *h = lane->hands;
    uint8_t expected[TCP_PROOF];
    memcpy(h->challenge, h->in, TCP_CHALLENGE_SIZE);
    weft_status_t st = tcp_prove(key, TCP_ROLE_ACCEPTOR, h->hello, h->challenge, expected);
    if (st == WEFT_OK) st = tcp_prove(key, TCP_ROLE_DIALER, h->hello, h->challenge, h->proof);
    if (st < 0) return refuse(lane, st, "no proof could be made");
    bool proved = trust_proof_equal(expected, g->proof);
    OPENSSL_cleanse(expected, sizeof expected);
    if (!proved) return refuse(lane, WEFT_ERR_AUTH, "it does not hold our key");
    if (h->target && h->target != g->worker) return refuse(lane, WEFT_ERR_REFUSED, "another worker listens there");
    fsm_step(&lane->conn.fsm, TCP_CONN_EV_CHALLENGE);
}

static void judge_proof(struct tcp_lane *lane, const struct tcp_greeting *g) {
    const struct tcp_hands *h = lane->hands;
    uint8_t expected[TCP_PROOF];
    weft_status_t st = tcp_prove(&tcp_iface_of(lane)->key, TCP_ROLE_DIALER, h->hello, h->challenge, expected);
    if (st < 0) return refuse(lane, st, "no proof could be made");
    bool proved = trust_proof_equal(expected, g->proof);
    OPENSSL_cleanse(expected, sizeof expected);
    if (!proved) return refuse(lane, WEFT_ERR_AUTH, "it does not hold our key");
    fsm_step(&lane->conn.fsm, TCP_CONN_EV_PROOF);
}

static void judge(struct tcp_lane *lane, const struct tcp_greeting *g) {
    switch (g->kind) {
    case TCP_HELLO: judge_hello(lane, g); break;
    case TCP_CHALLENGE: judge_challenge(lane, g); break;
    case TCP_PROVE: judge_proof(lane, g); break;
    default: tcp_lane_bad(lane, g->status, "it refused us"); break;
    }
}

/* ---- to read ----------------------------------------------------------------------------------------------- */

static void read_failed(struct tcp_lane *lane, ssize_t n) {
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    tcp_lane_why(lane, n < 0 ? weft__errno_status(errno) : WEFT_ERR_PEER_FAILED);
    fsm_step(&lane->conn.fsm, n < 0 ? TCP_CONN_EV_BROKEN : TCP_CONN_EV_END);
}

/* Never reads beyond the greeting: what follows it are frames. */
void tcp_greet_ready(struct watch *watch, int events) {
    struct tcp_lane *lane = tcp_lane_of_watch(watch);
    while (lane->watch.ready == tcp_greet_ready) {
        struct tcp_hands *h = lane->hands;
        struct tcp_greeting g;
        size_t size;
        weft_status_t st = tcp_greeting_decode(h->in, h->in_len, &g, &size);
        if (st == WEFT_OK) {
            h->in_len = 0;
            judge(lane, &g);
        } else if (st == WEFT_ERR_VERSION) {
            refuse(lane, st, "it speaks another version");
        } else if (st < 0) {
            tcp_lane_bad(lane, st, "that is no greeting");
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
