/*
 * Peers that misbehave: only their connection ends, with a named reason and a log line, and the
 * listener goes on. The bad peer is a bare socket that speaks the wire by hand.
 */
#define _GNU_SOURCE
#include "pair.h"
#include "tcp_raw.h"
#include <base/counters.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <transports/tcp/tcp.h>

/* While `flood_fd` is set, each read of any other socket finds that the sender has filled the
 * connection again, up to `flood_most` bytes: a peer that is always faster than the reader,
 * without threads and without time. */
enum { FLOOD_MOST = 4 << 20 };
static int flood_fd = -1;
static size_t flood_sent, flood_read;

ssize_t recv(int fd, void *buf, size_t len, int flags) {
    static const uint8_t zeros[16384];
    ssize_t n = 1;
    while (flood_fd >= 0 && fd != flood_fd && flood_sent < FLOOD_MOST && n > 0) {
        n = send(flood_fd, zeros, sizeof zeros, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) flood_sent += (size_t)n;
    }
    n = recvfrom(fd, buf, len, flags, NULL, NULL);
    if (flood_fd >= 0 && n > 0) flood_read += (size_t)n;
    return n;
}

static char last_log[512];
static int n_logs;
static void keep_log(weft_log_level_t level, const char *room, const char *line, void *arg) {
    snprintf(last_log, sizeof last_log, "%s", line);
    n_logs++;
}

/* One iface that listens, and what it received. */
struct victim {
    struct pair p;
    struct tcp_iface *iface;
    uint16_t port;
};

/* As pair_until, without a pause between turns: there are thousands of connections here. */
#define spin_until(v, cond)                                      \
    ({                                                           \
        double spin_end_ = test_now() + test_timeout(10);        \
        bool spin_held_;                                         \
        while (!(spin_held_ = (cond)) && test_now() < spin_end_) \
            weft__reactor_progress((v)->p.reactor_a, 0);         \
        spin_held_;                                              \
    })

static void victim_open(struct victim *v, const char *handshake_timeout) {
    struct pair *p = &v->p;
    weft_setting_t settings[] = {{"tcp.handshake_timeout", handshake_timeout}};
    weft_context_params_t params = {.settings = settings, .n_settings = 1, .log = keep_log};
    memset(v, 0, sizeof *v);
    p->transport = &weft__transport_tcp;
    p->a.pair = p->b.pair = p;
    p->next_accepted = &p->b;
    CHECK_EQ(weft_context_create(&params, &p->context), WEFT_OK);
    CHECK_EQ(weft__reactor_create(p->context, &(struct reactor_params){0}, &p->reactor_a), WEFT_OK);
    CHECK_EQ(pair_iface(p, p->reactor_a, 0xa1, &p->iface_a), WEFT_OK);
    p->reactor_b = p->reactor_a;
    p->iface_b = p->iface_a;
    v->iface = (struct tcp_iface *)p->iface_a;
    CHECK_EQ(p->iface_a->ops->listen(p->iface_a, "127.0.0.1:0", &(struct listen_how){.backlog = 16},
                                     NULL, &p->listener),
             WEFT_OK);
    v->port = weft__tcp_sockaddr_port(&p->listener->at);
    n_logs = 0;
    last_log[0] = 0;
}

static void victim_close(struct victim *v) {
    struct pair *p = &v->p;
    pair_end_close(&p->a, true);
    pair_end_close(&p->b, true);
    if (p->listener) p->iface_a->ops->listener_close(p->listener);
    p->iface_a->ops->close(p->iface_a);
    pair_turns(p, 2);
    weft__reactor_destroy(p->reactor_a);
    CHECK_EQ(weft_context_destroy(p->context), WEFT_OK);
}

static int bare_connect(const struct victim *v) {
    union tcp_sockaddr a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(weft__tcp_host_numeric("127.0.0.1", v->port, &a));
    CHECK_EQ(connect(fd, &a.any, sizeof a.v4), 0);
    return fd;
}
static void bare_send(int fd, const void *bytes, size_t len) {
    CHECK(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len || errno == EPIPE ||
          errno == ECONNRESET);
}
/* Reads exactly so much while the victim turns; false at the end of the connection. */
static bool bare_read(struct victim *v, int fd, void *to, size_t len) {
    size_t have = 0;
    ssize_t n = -1;
    bool held = spin_until(v, ({
                               n = recv(fd, (char *)to + have, len - have, MSG_DONTWAIT);
                               if (n > 0) have += (size_t)n;
                               have == len || n == 0 || (n < 0 && errno != EAGAIN);
                           }));
    CHECK(held);
    return have == len;
}
static bool bare_ended(struct victim *v, int fd) {
    uint8_t rest[256];
    ssize_t n = -1;
    return spin_until(v, ({
                          n = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
                          n == 0 || (n < 0 && errno != EAGAIN);
                      }));
}

static size_t hello_bytes(uint8_t bytes[TCP_HANDSHAKE_MAX]) {
    return tcp_raw_hello(0xbad, bytes);
}

/* HELLO, CHALLENGE, PROOF with the victim's key, or with another. */
static void shake_hands(struct victim *v, int fd, bool right_key) {
    uint8_t hello[TCP_HANDSHAKE_MAX], challenge[TCP_HANDSHAKE_MAX], proof[TCP_HANDSHAKE_MAX];
    struct trust_key key = v->iface->key;
    bare_send(fd, hello, hello_bytes(hello));
    CHECK(bare_read(v, fd, challenge, TCP_CHALLENGE_SIZE));
    uint8_t wrong[TRUST_KEY];
    memcpy(wrong, key.bytes, TRUST_KEY);
    wrong[31] ^= 1;
    if (!right_key) key.bytes = wrong;
    size_t len = tcp_raw_proof(&key, hello, challenge, proof);
    CHECK_EQ(len, TCP_PROOF_SIZE);
    bare_send(fd, proof, len);
}
/* Returns the socket. */
static int bare_handshake(struct victim *v, bool right_key) {
    int fd = bare_connect(v);
    shake_hands(v, fd, right_key);
    return fd;
}

/* The victim still serves honest peers. */
static void still_serves(struct victim *v) {
    int fd = bare_handshake(v, true);
    uint8_t frame[16] = {0};
    CHECK(spin_until(v, v->p.b.n_open == 1));
    tcp_frame_encode(frame, TCP_FRAME_AM, 2, 8);
    bare_send(fd, frame, sizeof frame);
    CHECK(spin_until(v, v->p.b.n_messages == 1));
    close(fd);
    CHECK(spin_until(v, v->p.b.n_down == 1));
    CHECK_EQ(v->p.b.down, WEFT_ERR_PEER_FAILED); /* no goodbye */
    CHECK_EQ(v->iface->n_handshake, 0);
}

/* Sends `bytes`; the connection ends, no callback reports it, and a log line says why. */
static void refused(struct victim *v, const void *bytes, size_t len, const char *sent) {
    int fd = bare_connect(v), before = n_logs;
    bare_send(fd, bytes, len);
    CHECK(bare_ended(v, fd));
    close(fd);
    CHECK(spin_until(v, v->iface->n_handshake == 0));
    CHECK_EQ(v->p.b.n_open, 0);
    if (!sent) return;
    CHECK(n_logs > before);
    CHECK(strstr(last_log, sent) != NULL);
}

TEST(junk_ends_only_its_connection) {
    struct victim v;
    victim_open(&v, "2s");
    refused(&v, "GET / HTTP/1.1\r\n\r\n", 18, "WEFT_ERR_PROTOCOL");
    refused(&v, "\0\0\0\0\0\0\0\0", 8, "WEFT_ERR_PROTOCOL");
    still_serves(&v);
    victim_close(&v);
}

TEST(another_version_is_refused_by_name) {
    struct victim v;
    uint8_t bytes[TCP_HANDSHAKE_MAX], answer[TCP_REFUSAL_SIZE];
    struct tcp_handshake g;
    size_t size;
    victim_open(&v, "2s");
    size_t len = hello_bytes(bytes);
    bytes[4] = 9;
    int fd = bare_connect(&v);
    bare_send(fd, bytes, len);
    CHECK(bare_read(&v, fd, answer, sizeof answer));
    CHECK_EQ(weft__tcp_handshake_decode(answer, sizeof answer, &g, &size), WEFT_OK);
    CHECK(g.kind == TCP_REFUSAL && g.status == WEFT_ERR_VERSION);
    CHECK(bare_ended(&v, fd));
    close(fd);
    CHECK(strstr(last_log, "WEFT_ERR_VERSION"));
    still_serves(&v);
    victim_close(&v);
}

/* A connection without a key, of which more comes for as long as the victim reads. */
TEST(a_refused_peer_that_floods_is_read_to_a_bound) {
    enum { MOST = 128 << 10 };
    struct victim v;
    uint8_t hello[TCP_HANDSHAKE_MAX];
    struct tcp_handshake g = {.kind = TCP_HELLO, .worker = 0xbad}; /* flags: it has no key */
    victim_open(&v, "2s");
    size_t len = weft__tcp_handshake_encode(&g, hello);
    for (int version = 0; version < 2; version++) {
        if (version) hello[4] = 9;
        int fd = bare_connect(&v);
        bare_send(fd, hello, len);
        flood_sent = flood_read = 0;
        CHECK(spin_until(&v, v.iface->n_handshake == 1));
        flood_fd = fd;
        bool ended = spin_until(&v, v.iface->n_handshake == 0);
        flood_fd = -1;
        CHECK(ended);
        CHECK(flood_sent > MOST); /* the flood did come */
        CHECK(flood_read <= MOST);
        close(fd);
    }
    CHECK_EQ(v.p.b.n_open, 0);
    still_serves(&v);
    victim_close(&v);
}

TEST(a_wrong_key_is_refused_by_name_and_leaves_nothing) {
    struct victim v;
    uint8_t answer[TCP_REFUSAL_SIZE];
    struct tcp_handshake g;
    size_t size;
    victim_open(&v, "2s");
    int fd = bare_handshake(&v, false);
    CHECK(bare_read(&v, fd, answer, sizeof answer));
    CHECK_EQ(weft__tcp_handshake_decode(answer, sizeof answer, &g, &size), WEFT_OK);
    CHECK(g.kind == TCP_REFUSAL && g.status == WEFT_ERR_AUTH);
    CHECK(bare_ended(&v, fd));
    close(fd);
    CHECK_EQ(v.p.b.n_open, 0);
    CHECK(strstr(last_log, "WEFT_ERR_AUTH"));
    still_serves(&v);
    victim_close(&v);
}

TEST(a_refusal_for_want_of_descriptors_names_the_peer_as_without) {
    struct victim v;
    uint8_t bytes[TCP_HANDSHAKE_MAX];
    struct tcp_handshake g = {.kind = TCP_REFUSAL, .status = WEFT_ERR_NO_FDS};
    victim_open(&v, "2s");
    int fd = bare_connect(&v);
    weft__tcp_handshake_encode(&g, bytes);
    bare_send(fd, bytes, TCP_REFUSAL_SIZE);
    CHECK(bare_ended(&v, fd));
    close(fd);
    CHECK(strstr(last_log, "the peer refused the handshake: it has no file descriptors left"));
    victim_close(&v);
}

/* Every prefix of a sound handshake, then the end of the connection. */
TEST(a_handshake_cut_anywhere_leaves_nothing) {
    struct victim v;
    uint8_t bytes[TCP_HANDSHAKE_MAX];
    victim_open(&v, "2s");
    size_t len = hello_bytes(bytes);
    for (size_t cut = 0; cut <= len; cut++) {
        int fd = bare_connect(&v);
        bare_send(fd, bytes, cut);
        shutdown(fd, SHUT_WR);
        CHECK(bare_ended(&v, fd));
        close(fd);
        CHECK(spin_until(&v, v.iface->n_handshake == 0));
    }
    for (size_t cut = 0; cut < TCP_PROOF_SIZE; cut++) {
        uint8_t challenge[TCP_HANDSHAKE_MAX], proof[TCP_HANDSHAKE_MAX];
        struct tcp_handshake g = {.kind = TCP_PROVE};
        int fd = bare_connect(&v);
        bare_send(fd, bytes, len);
        CHECK(bare_read(&v, fd, challenge, TCP_CHALLENGE_SIZE));
        CHECK_EQ(weft__tcp_prove(&v.iface->key, TCP_ROLE_DIALER, bytes, challenge, g.proof),
                 WEFT_OK);
        weft__tcp_handshake_encode(&g, proof);
        bare_send(fd, proof, cut);
        close(fd);
        CHECK(spin_until(&v, v.iface->n_handshake == 0));
    }
    CHECK_EQ(v.p.b.n_open, 0);
    still_serves(&v);
    victim_close(&v);
}

/* A HELLO with any one bit turned either fails at once or gets a CHALLENGE; what was proved for
 * the sound one, never opens. */
TEST(a_handshake_with_any_bit_turned_never_opens) {
    struct victim v;
    uint8_t sound[TCP_HANDSHAKE_MAX], bytes[TCP_HANDSHAKE_MAX], answer[TCP_HANDSHAKE_MAX],
        proof[TCP_HANDSHAKE_MAX];
    victim_open(&v, "2s");
    size_t len = hello_bytes(sound), size;
    for (size_t bit = 0; bit < 8 * (len + TCP_PROOF_SIZE); bit++) {
        struct tcp_handshake g = {.kind = TCP_PROVE}, received;
        int fd = bare_connect(&v);
        memcpy(bytes, sound, len);
        if (bit < 8 * len) bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bare_send(fd, bytes, len);
        if (bare_read(&v, fd, answer, TCP_REFUSAL_SIZE) &&
            weft__tcp_handshake_decode(answer, TCP_REFUSAL_SIZE, &received, &size) ==
                WEFT_IN_PROGRESS) {
            CHECK(bare_read(&v, fd, answer + TCP_REFUSAL_SIZE,
                            TCP_CHALLENGE_SIZE - TCP_REFUSAL_SIZE));
            CHECK_EQ(weft__tcp_prove(&v.iface->key, TCP_ROLE_DIALER, sound, answer, g.proof),
                     WEFT_OK);
            weft__tcp_handshake_encode(&g, proof);
            if (bit >= 8 * len) proof[bit / 8 - len] ^= (uint8_t)(1 << bit % 8);
            bare_send(fd, proof, TCP_PROOF_SIZE);
            /* it may ask for more */
            if (bit >= 8 * len && bit < 8 * (len + TCP_PREFIX)) shutdown(fd, SHUT_WR);
        }
        CHECK(bare_ended(&v, fd));
        close(fd);
        CHECK(spin_until(&v, v.iface->n_handshake == 0));
        CHECK_EQ(v.p.b.n_open, 0);
    }
    still_serves(&v);
    victim_close(&v);
}

/* What the victim says as an acceptor is played back to it: as a proof, as a hello, from another
 * connection. */
TEST(reflection_and_replay_prove_nothing) {
    struct victim v;
    uint8_t hello[TCP_HANDSHAKE_MAX], challenge[TCP_HANDSHAKE_MAX], second[TCP_HANDSHAKE_MAX],
        proof[TCP_HANDSHAKE_MAX];
    struct tcp_handshake g = {.kind = TCP_PROVE}, received;
    size_t size, len = hello_bytes(hello);
    victim_open(&v, "2s");

    int fd = bare_connect(&v);
    bare_send(fd, hello, len);
    CHECK(bare_read(&v, fd, challenge, TCP_CHALLENGE_SIZE));
    CHECK_EQ(weft__tcp_handshake_decode(challenge, TCP_CHALLENGE_SIZE, &received, &size), WEFT_OK);
    memcpy(g.proof, received.proof, TCP_PROOF); /* its own */
    bare_send(fd, proof, weft__tcp_handshake_encode(&g, proof));
    CHECK(bare_ended(&v, fd));
    close(fd);
    CHECK(strstr(last_log, "WEFT_ERR_AUTH"));

    fd = bare_connect(&v);
    bare_send(fd, hello, len);
    CHECK(bare_read(&v, fd, second, TCP_CHALLENGE_SIZE));
    CHECK(memcmp(challenge, second, TCP_CHALLENGE_SIZE) != 0); /* a fresh nonce */
    CHECK_EQ(weft__tcp_prove(&v.iface->key, TCP_ROLE_DIALER, hello, challenge, g.proof),
             WEFT_OK); /* for the first one */
    bare_send(fd, proof, weft__tcp_handshake_encode(&g, proof));
    CHECK(bare_ended(&v, fd));
    close(fd);

    refused(&v, challenge, TCP_CHALLENGE_SIZE, NULL); /* an acceptor's word to an acceptor */
    refused(&v, proof, TCP_PROOF_SIZE, NULL);
    CHECK_EQ(v.p.b.n_open, 0);
    still_serves(&v);
    victim_close(&v);
}

/* A socket of the test, to which the victim dials by a new lane. */
static int false_listener(struct victim *v, struct lane **lane_p) {
    union tcp_sockaddr at;
    socklen_t at_len = sizeof at;
    char where[64];
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(weft__tcp_host_numeric("127.0.0.1", 0, &at));
    CHECK(bind(l, &at.any, sizeof at.v4) == 0 && listen(l, 1) == 0 &&
          getsockname(l, &at.any, &at_len) == 0);
    snprintf(where, sizeof where, "127.0.0.1:%u", weft__tcp_sockaddr_port(&at));
    CHECK_EQ(v->p.iface_a->ops->connect_uri(v->p.iface_a, where, lane_p), WEFT_OK);
    return l;
}

/* A listener that is not ours answers the victim's dial: with its own HELLO, with junk, without
 * the key. */
TEST(a_false_listener_is_not_believed) {
    enum { ECHO, JUNK, NO_KEY, SILENT_END, WAYS };
    struct victim v;
    victim_open(&v, "2s");
    for (int way = 0; way < WAYS; way++) {
        uint8_t hello[TCP_HELLO_SIZE], bytes[TCP_HANDSHAKE_MAX];
        struct lane *lane;
        int l = false_listener(&v, &lane), fd = -1;
        struct end end = {.pair = &v.p, .lane = lane};
        lane->owner = &end;
        CHECK((fd = accept(l, NULL, NULL)) >= 0);
        CHECK(bare_read(&v, fd, hello, sizeof hello));
        if (way == ECHO) bare_send(fd, hello, sizeof hello);
        if (way == JUNK) bare_send(fd, "220 mail.example ESMTP\r\n", 24);
        if (way == NO_KEY) {
            struct tcp_handshake g = {.kind = TCP_CHALLENGE, .worker = 5, .flags = TCP_FLAG_KEYED};
            bare_send(fd, bytes, weft__tcp_handshake_encode(&g, bytes));
        }
        if (way == SILENT_END) shutdown(fd, SHUT_WR);
        CHECK(spin_until(&v, end.n_down == 1));
        static const weft_status_t expected[WAYS] = {WEFT_ERR_PROTOCOL, WEFT_ERR_PROTOCOL,
                                                     WEFT_ERR_AUTH, WEFT_ERR_PEER_FAILED};
        CHECK_EQ(end.down, expected[way]);
        CHECK_EQ(end.n_open, 0);
        pair_end_close(&end, true);
        close(fd);
        close(l);
    }
    still_serves(&v);
    victim_close(&v);
}

/* The worker was busy with other lanes, and had not asked the kernel when the time was over. What
 * the deadline finds in the socket is the end of a connection that is dialed again. */
TEST(a_dial_that_begins_again_at_its_deadline_has_another_deadline) {
    struct victim v;
    uint8_t hello[TCP_HELLO_SIZE];
    struct lane *lane;
    victim_open(&v, "2s");
    int l = false_listener(&v, &lane), fd = -1;
    struct end end = {.pair = &v.p, .lane = lane};
    struct tcp_lane *tcp = tcp_lane(lane);
    lane->owner = &end;
    usleep(2 * TCP_LATE_MS * 1000); /* it says HELLO late */
    CHECK((fd = accept(l, NULL, NULL)) >= 0);
    CHECK(bare_read(&v, fd, hello, sizeof hello));
    CHECK(tcp->hands && tcp->hands->late);
    close(fd);
    usleep(1000);
    weft__timer_stop(v.p.reactor_a, &tcp->deadline); /* as one that fires */
    tcp->deadline.fire(&tcp->deadline);
    CHECK(tcp->hands && tcp->watch.ready != weft__tcp_handshake_ready);
    CHECK(weft__timer_running(&tcp->deadline));
    pair_end_close(&end, false);
    close(l);
    still_serves(&v);
    victim_close(&v);
}

TEST(a_half_open_connection_has_its_time) {
    struct victim v;
    uint8_t hello[TCP_HANDSHAKE_MAX];
    victim_open(&v, "300ms");
    int silent = bare_connect(&v), slow = bare_connect(&v);
    bare_send(slow, hello, hello_bytes(hello)); /* and never a proof */
    CHECK(spin_until(&v, v.iface->n_handshake == 2));
    CHECK(bare_ended(&v, silent));
    CHECK(bare_ended(&v, slow));
    CHECK_EQ(v.iface->n_handshake, 0);
    close(silent);
    close(slow);
    still_serves(&v);
    victim_close(&v);
}

TEST(a_flood_of_silent_connections_drops_any_of_them_but_those_that_sent_hello) {
    enum { MORE = 64, N = TCP_MAX_HANDSHAKE + MORE };
    uint8_t hello[TCP_HANDSHAKE_MAX], challenge[TCP_HANDSHAKE_MAX], proof[TCP_HANDSHAKE_MAX], byte;
    struct tcp_handshake g = {.kind = TCP_PROVE};
    int ended = 0;
    struct victim v;
    static int fds[N];
    victim_open(&v, "5s");
    int early = bare_connect(&v); /* the oldest, and slow */
    bare_send(early, hello, hello_bytes(hello));
    CHECK(bare_read(&v, early, challenge, TCP_CHALLENGE_SIZE));
    for (int i = 0; i < N; i++) {
        fds[i] = bare_connect(&v);
        pair_turn(&v.p);
        CHECK(v.iface->n_handshake <= TCP_MAX_HANDSHAKE);
    }
    CHECK(spin_until(&v, v.iface->n_handshake == TCP_MAX_HANDSHAKE));
    struct tcp_lane *oldest = TAILQ_FIRST(&v.iface->handshake);
    CHECK(sizeof *oldest + talloc_total_size(oldest->hands) <= 4096);
    for (int i = 0; i < MORE; i++) ended += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0;
    CHECK(ended < MORE); /* not the oldest of them; by chance all would be once in 10^90 */
    CHECK_EQ(weft__tcp_prove(&v.iface->key, TCP_ROLE_DIALER, hello, challenge, g.proof), WEFT_OK);
    bare_send(early, proof, weft__tcp_handshake_encode(&g, proof));
    CHECK(spin_until(&v, v.p.b.n_open == 1)); /* an honest one gets in at the height of it */
    close(early);
    for (int i = 0; i < N; i++) close(fds[i]);
    CHECK(spin_until(&v, v.iface->n_handshake == 0));
    victim_close(&v);
}

/* They may have all descriptors that there are, but not for as long as a handshake may take. */
TEST(silent_connections_hold_no_descriptors_for_long) {
    enum { N = 12, ROOM = 4 }; /* the backlog is of 16 */
    struct victim v;
    struct rlimit old, low;
    static int fds[N];
    victim_open(&v, "60s");
    for (int i = 0; i < N; i++) fds[i] = bare_connect(&v);
    int honest = bare_connect(&v);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)honest + 1 + ROOM;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    shake_hands(&v, honest, true);
    CHECK(spin_until(&v, v.p.b.n_open == 1));
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
    close(honest);
    for (int i = 0; i < N; i++) close(fds[i]);
    CHECK(spin_until(&v, v.iface->n_handshake == 0));
    victim_close(&v);
}

/* After the handshake: frames that are none. */
TEST(bad_frames_end_their_connection_with_a_name) {
    struct victim v;
    victim_open(&v, "2s");
    for (int way = 0; way < 5; way++) {
        uint8_t bytes[16] = {0};
        int fd = bare_handshake(&v, true);
        CHECK(spin_until(&v, v.p.b.n_open == 1));
        tcp_frame_encode(bytes, TCP_FRAME_AM, 1, 8);
        if (way == 0) tcp_frame_encode(bytes, TCP_FRAME_AM, 1, TCP_MAX_FRAME + 1);
        if (way == 1) tcp_frame_encode(bytes, TCP_FRAME_AM, 1, UINT32_MAX);
        if (way == 2) tcp_frame_encode(bytes, TCP_FRAME_AM, 32, 8);
        if (way == 3) tcp_frame_encode(bytes, 7, 0, 0);
        if (way == 4) bytes[7] = 1;
        uint64_t before = weft__count(v.p.reactor_a)->violations;
        bare_send(fd, bytes, sizeof bytes);
        CHECK(spin_until(&v, v.p.b.n_down == 1));
        CHECK_EQ(v.p.b.down, WEFT_ERR_PROTOCOL);
        CHECK_EQ(v.p.b.n_messages, 0);
        CHECK_EQ(weft__count(v.p.reactor_a)->violations, before + 1);
        CHECK(strstr(last_log, "WEFT_ERR_PROTOCOL"));
        close(fd);
        pair_end_close(&v.p.b, true);
        v.p.b = (struct end){.pair = &v.p};
    }
    still_serves(&v);
    victim_close(&v);
}

TEST(frames_in_single_bytes_arrive_whole) {
    struct victim v;
    uint8_t bytes[TCP_FRAME_HEAD + 24] = {0};
    victim_open(&v, "2s");
    int fd = bare_handshake(&v, true);
    CHECK(spin_until(&v, v.p.b.n_open == 1));
    tcp_frame_encode(bytes, TCP_FRAME_AM, 9, 17);
    for (int i = 0; i < 17; i++) bytes[8 + i] = (uint8_t)(100 + i);
    for (size_t i = 0; i < sizeof bytes; i++) {
        CHECK_EQ(v.p.b.n_messages, 0);
        bare_send(fd, bytes + i, 1);
        pair_turns(&v.p, 3);
    }
    CHECK(spin_until(&v, v.p.b.n_messages == 1));
    CHECK(v.p.b.messages[0].id == 9 && v.p.b.messages[0].len == 17);
    CHECK(memcmp(v.p.b.messages[0].data, bytes + 8, 17) == 0);
    close(fd);
    victim_close(&v);
}
