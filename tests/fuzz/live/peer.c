#include "peer.h"

#include <base/alloc.h>
#include <base/per_thread.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tests/support/raw_lane.h>
#include <tests/transports/tcp_raw.h>
#include <unistd.h>

struct peer peers[PEERS];
/* A lane of an interface of its own, on a reactor of its own. */
struct raw_lane {
    struct reactor *reactor;
    struct iface *iface;
    struct lane *lane;
    bool up, down;
};
static int listening = -1;
static unsigned numbers;

enum { MOST_WAITING = 4 << 20, MOST_READ = 1 << 20 };

/* ---- what is known */

void known_add(struct known *k, uint32_t value) {
    k->value[k->n++ % KNOWN] = value;
}

uint32_t known_any(const struct known *k) {
    unsigned n = k->n < KNOWN ? k->n : KNOWN;
    return n ? k->value[percent(50) ? (k->n - 1) % KNOWN : below(n)] : 0;
}

static void add_outstanding(struct peer *p, struct debt debt) {
    if (p->n_debts == DEBTS) memmove(p->debt, p->debt + 1, --p->n_debts * sizeof *p->debt);
    p->debt[p->n_debts++] = debt;
}

static void learn_lane(struct peer *p, const void *data, size_t len) {
    struct lane_ask ask;
    struct lane_grant grant;
    struct lane_end end;
    struct lane_one one;
    enum lane_kind kind = weft__lane_kind(data, len);
    if (kind == LANE_ASK && weft__lane_read_ask(data, len, &ask)) {
        known_add(&p->epochs, ask.epoch);
        add_outstanding(p, (struct debt){.id = WIRE_LANE, .kind = LANE_ASK, .a = ask.epoch});
    } else if (kind == LANE_GRANT && weft__lane_read_grant(data, len, &grant)) {
        known_add(&p->epochs, grant.epoch);
        known_add(&p->numbers, grant.number);
    } else if (kind == LANE_END && weft__lane_read_end(data, len, &end)) {
        add_outstanding(p, (struct debt){.id = WIRE_LANE, .kind = LANE_END, .a = end.epoch});
    } else if (kind == LANE_ACK_ASK || kind == LANE_HEARTBEAT_ASK) {
        add_outstanding(p, (struct debt){.id = WIRE_LANE, .kind = (uint8_t)kind});
    } else if (weft__lane_read_one(data, len, &one)) {
        known_add(&p->epochs, one.epoch);
    }
}

static void learn_offer(struct peer *p, const struct wire_rts *v) {
    known_add(&p->requests, v->request);
    add_outstanding(p, (struct debt){.id = WIRE_RTS, .a = v->request, .len = v->len});
}

static void learn(struct peer *p, uint8_t id, const void *data, size_t len) {
    union {
        struct wire_hello hello;
        struct wire_open open;
        struct wire_accept accept;
        struct wire_rts rts;
        struct wire_cts cts;
        struct wire_get get;
        struct wire_put put;
        struct wire_atomic atomic;
        struct wire_flush flush;
        struct wire_one one;
    } v;
    bool counts =
        id != WIRE_HELLO && !(id == WIRE_LANE && len > 0 && *(const uint8_t *)data >= LANE_ACK &&
                              *(const uint8_t *)data <= LANE_ACK_ASK);
    p->came += counts;
    trace("peer %u receives %u, %zu bytes", p->number, id, len);
    if (id == WIRE_HELLO && weft__wire_read_hello(data, len, &v.hello)) {
        p->shaken = true;
        if (weft__hello_has_ticket(&v.hello)) {
            memcpy(p->ticket, v.hello.ticket, sizeof p->ticket);
            p->has_ticket = true;
        }
        if (!p->dialed)
            add_outstanding(
                p, (struct debt){.id = WIRE_HELLO, .a = v.hello.flags, .b = v.hello.epoch});
    } else if (id == WIRE_OPEN && weft__wire_read_open(data, len, &v.open)) {
        known_add(&p->eps, v.open.from);
        add_outstanding(p, (struct debt){.id = WIRE_OPEN, .a = v.open.from});
    } else if (id == WIRE_ACCEPT && weft__wire_read_accept(data, len, &v.accept)) {
        known_add(&p->eps, v.accept.from);
    } else if (id == WIRE_RTS && weft__wire_read_rts(data, len, &v.rts)) {
        learn_offer(p, &v.rts);
    } else if (id == WIRE_CTS && weft__wire_read_cts(data, len, &v.cts)) {
        known_add(&p->requests, v.cts.to);
        add_outstanding(
            p, (struct debt){.id = WIRE_CTS, .a = v.cts.request, .b = v.cts.to, .len = v.cts.len});
    } else if (id == WIRE_GET && weft__wire_read_get(data, len, &v.get)) {
        known_add(&p->requests, v.get.to);
        add_outstanding(p, (struct debt){.id = WIRE_CTS, .b = v.get.to, .len = v.get.len});
    } else if (id == WIRE_PUT && weft__wire_read_put(data, len, &v.put)) {
        if (v.put.request) add_outstanding(p, (struct debt){.id = WIRE_PUT, .a = v.put.request});
    } else if (id == WIRE_ATOMIC && weft__wire_read_atomic(data, len, &v.atomic)) {
        if (v.atomic.request)
            add_outstanding(p, (struct debt){.id = WIRE_PUT, .a = v.atomic.request});
    } else if (id == WIRE_FLUSH && weft__wire_read_flush(data, len, &v.flush)) {
        add_outstanding(p, (struct debt){.id = WIRE_FLUSH, .a = v.flush.request});
    } else if (id == WIRE_RAIL && weft__wire_read_one(data, len, &v.one)) {
        known_add(&p->numbers, v.one.request);
        if (!v.one.request) add_outstanding(p, (struct debt){.id = WIRE_RAIL});
    } else if (id == WIRE_LANE) {
        learn_lane(p, data, len);
    }
}

/* ---- tcp */

static int bare_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) wrong("no socket: %s", strerror(errno));
    return fd;
}

void peers_begin(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    memset(peers, 0, sizeof peers);
    numbers = 0;
    listening = bare_socket();
    if (bind(listening, (struct sockaddr *)&at, sizeof at) < 0 || listen(listening, 64) < 0)
        wrong("cannot listen: %s", strerror(errno));
}

uint16_t peers_port(void) {
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    getsockname(listening, (struct sockaddr *)&at, &len);
    return ntohs(at.sin_port);
}

struct peer *peer_free(void) {
    for (unsigned i = 0; i < PEERS; i++)
        if (peers[i].stage == PEER_NONE) return &peers[i];
    return NULL;
}

struct peer *peer_any(void) {
    unsigned first = below(PEERS);
    bool open = percent(80);
    for (unsigned i = 0; open && i < PEERS; i++) {
        struct peer *p = &peers[(first + i) % PEERS];
        if (p->stage == PEER_UP && p->eps.n) return p;
    }
    for (unsigned i = 0; i < PEERS; i++) {
        struct peer *p = &peers[(first + i) % PEERS];
        if (p->stage == PEER_UP) return p;
    }
    return NULL;
}

static struct peer *peer_new(int fd, bool dialed) {
    struct peer *p = peer_free();
    if (!p) return NULL;
    /* Else small writes wait for an acknowledgement, in the kernel's own time. */
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    memset(p, 0, sizeof *p);
    p->number = ++numbers;
    p->fd = fd;
    p->dialed = dialed;
    p->id = RAW_WORKER + below(3);
    return p;
}

static void write_out(struct peer *p, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t sent = send(p->fd, p->out + done, n - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) break;
        done += (size_t)sent;
    }
    p->out_len -= done;
    memmove(p->out, p->out + done, p->out_len);
}

void peer_send_bytes(struct peer *p, const void *bytes, size_t len) {
    if (p->raw || p->out_len + len > MOST_WAITING) return;
    if (p->out_len + len > p->out_room) {
        p->out_room = 2 * (p->out_len + len);
        p->out = realloc(p->out, p->out_room);
        if (!p->out) abort();
    }
    if (len) memcpy(p->out + p->out_len, bytes, len);
    p->out_len += len;
}

void peer_push(struct peer *p, size_t n) {
    if (!p->raw) write_out(p, n < p->out_len ? n : p->out_len);
}

void peers_accept(void) {
    int fd;
    while (peer_free() &&
           (fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct peer *p = peer_new(fd, false);
        p->stage = PEER_HELLO;
        trace("peer %u is dialed by the victim", p->number);
    }
}

static void read_in(struct peer *p) {
    if (p->in_room - p->in_len < 65536) {
        p->in_room = 2 * p->in_room + 65536;
        p->in = realloc(p->in, p->in_room);
        if (!p->in) abort();
    }
    for (size_t all = 0; all < MOST_READ && p->in_len < p->in_room;) {
        ssize_t n = recv(p->fd, p->in + p->in_len, p->in_room - p->in_len, MSG_DONTWAIT);
        p->ended = n == 0 || (n < 0 && errno != EAGAIN);
        if (n <= 0) break;
        p->in_len += (size_t)n;
        all += (size_t)n;
    }
}

static void taken(struct peer *p, size_t n) {
    p->in_len -= n;
    memmove(p->in, p->in + n, p->in_len);
}

static void shake_hands(struct peer *p) {
    uint8_t bytes[TCP_HANDSHAKE_MAX];
    if (p->stage == PEER_HELLO && p->in_len >= TCP_HELLO_SIZE) {
        size_t len = tcp_raw_challenge(&world->key, p->id, p->in, bytes);
        peer_send_bytes(p, bytes, len);
        peer_push(p, SIZE_MAX);
        taken(p, TCP_HELLO_SIZE);
        p->stage = PEER_PROOF;
    }
    if (p->stage == PEER_CHALLENGE && p->in_len >= TCP_CHALLENGE_SIZE) {
        size_t len = tcp_raw_proof(&world->key, p->hello, p->in, bytes);
        peer_send_bytes(p, bytes, len);
        peer_push(p, SIZE_MAX);
        taken(p, TCP_CHALLENGE_SIZE);
        p->stage = PEER_UP;
    }
    if (p->stage == PEER_PROOF && p->in_len >= TCP_PROOF_SIZE) {
        taken(p, TCP_PROOF_SIZE);
        p->stage = PEER_UP;
    }
}

static void recv_frames(struct peer *p) {
    struct tcp_frame f;
    size_t at = 0;
    while (tcp_frame_decode(p->in + at, p->in_len - at, &f) == WEFT_OK &&
           p->in_len - at >= tcp_frame_size(f.len)) {
        if (f.kind == TCP_FRAME_AM) learn(p, f.id, p->in + at + TCP_FRAME_HEAD, f.len);
        at += tcp_frame_size(f.len);
    }
    taken(p, at);
}

static void dial_tcp(void) {
    const char *uri = weft_listener_uri(world->listener), *colon = strrchr(uri, ':');
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(colon + 1)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct peer *p = peer_new(bare_socket(), true);
    (void)!connect(p->fd, (struct sockaddr *)&at, sizeof at);
    size_t len = tcp_raw_hello(p->id, p->hello);
    p->stage = PEER_CHALLENGE;
    peer_send_bytes(p, p->hello, len);
    peer_push(p, SIZE_MAX);
    for (int i = 0; i < 20 && p->stage == PEER_CHALLENGE; i++) {
        run_worker(VICTIM, 0);
        peer_read(p);
    }
    trace("peer %u has dialed: %s", p->number, p->stage == PEER_UP ? "up" : "not up");
    if (p->stage == PEER_CHALLENGE) peer_drop(p, false);
}

/* ---- shm */

enum { CLOSE_TURNS = 2000 }; /* of 10 ms each: more than a lane's close timeout */

static struct peer *peer_of(const struct lane *lane) {
    return lane->iface->owner;
}
static void on_accepted(struct lane *lane, void *arg) {
    lane->ops->close(lane, false);
}
static void on_up(struct lane *lane) {
    peer_of(lane)->raw->up = true;
}
static void on_down(struct lane *lane, weft_status_t status) {
    peer_of(lane)->raw->down = true;
}
static void on_closed(struct lane *lane) {
    struct raw_lane *r = peer_of(lane)->raw;
    if (r->lane == lane) r->lane = NULL;
}
static void recv_msg(struct lane *lane, unsigned id, const void *data, size_t len) {
    learn(peer_of(lane), (uint8_t)id, data, len);
}
static const struct iface_up raw_up = {.am = {[0 ... LANE_AM_IDS - 1] = recv_msg},
                                       .accepted = on_accepted,
                                       .up = on_up,
                                       .down = on_down,
                                       .closed = on_closed};

/* An interface may be closed only after its lanes: an open lane would keep the victim's memory
 * mapped. */
static void shm_close(struct peer *p) {
    struct raw_lane *r = p->raw;
    if (r->lane) r->lane->ops->close(r->lane, false);
    for (int i = 0; i < CLOSE_TURNS && r->lane; i++) {
        weft__reactor_poll_soon(r->reactor);
        weft__reactor_progress(r->reactor, 0);
        run_worker(VICTIM, 0);
        machine_pass(10000000);
    }
    if (r->lane) wrong("the lane of raw peer %u never closes", p->number);
    r->iface->ops->close(r->iface);
    for (int i = 0; i < 10; i++) weft__reactor_progress(r->reactor, 0);
    weft__reactor_destroy(r->reactor);
    free(r);
}

static void dial_shm(void) {
    struct peer *p = peer_new(-1, true);
    struct raw_lane *r = p->raw = calloc(1, sizeof *r);
    size_t len = 0;
    if (!r) abort();
    struct iface_params params = {.up = &raw_up, .owner = p, .worker_id = p->id};
    struct failing failing = weft__per_thread_get()->failing;
    weft__alloc_fail_at(0); /* a raw peer has all the memory that it begins with */
    if (weft__reactor_create(world->context, &(struct reactor_params){.seed = 1 + below(1000)},
                             &r->reactor) < 0 ||
        transport_named("shm")->open(r->reactor, &params, &r->iface) < 0)
        wrong("no interface for a raw peer");
    weft__per_thread_get()->failing = failing;
    const uint8_t *entry = entry_of((const uint8_t *)world->address, "shm", &len);
    p->stage = PEER_UP;
    if (entry && r->iface->ops->connect(r->iface, entry, len, &r->lane) == WEFT_OK)
        for (int i = 0; i < 20 && !r->up && !r->down; i++) {
            run_worker(VICTIM, 0);
            weft__reactor_progress(r->reactor, 0);
        }
    trace("peer %u has dialed by shm: %s", p->number, r->up ? "up" : "not up");
    if (!r->up) peer_drop(p, false);
}

static void recv_lane(struct peer *p) {
    weft__reactor_poll_soon(p->raw->reactor);
    weft__reactor_progress(p->raw->reactor, 0);
}

/* ---- either */

void peer_dial(bool shm) {
    if (!peer_free()) return;
    if (shm)
        dial_shm();
    else
        dial_tcp();
}

void peer_drop(struct peer *p, bool reset) {
    if (p->raw) {
        shm_close(p);
    } else {
        struct linger hard = {.l_onoff = 1};
        if (reset) setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        close(p->fd);
    }
    free(p->out);
    free(p->in);
    p->out = p->in = NULL;
    p->raw = NULL;
    p->stage = PEER_NONE;
}

void peer_read(struct peer *p) {
    if (p->stage == PEER_NONE) return;
    if (p->raw) {
        recv_lane(p);
        return;
    }
    read_in(p);
    shake_hands(p);
    if (p->stage == PEER_UP) recv_frames(p);
    if (!p->ended) return;
    trace("the connection of peer %u has ended", p->number);
    peer_drop(p, false);
}

static void send_by_lane(struct peer *p, uint8_t id, const void *bytes, size_t len) {
    struct raw_lane *r = p->raw;
    struct piece piece = {bytes, len};
    if (!r->lane || r->down || len > r->lane->iface->attr.max_bcopy) return;
    for (int i = 0; i < 3 && r->lane && !r->down; i++) {
        if (r->lane->ops->am_bcopy(r->lane, id, pack, &piece) != WEFT_NO_RESOURCE) break;
        weft__reactor_progress(r->reactor, 0);
        run_worker(VICTIM, 0);
    }
    if (r->reactor) weft__reactor_progress(r->reactor, 0);
}

void peer_send(struct peer *p, uint8_t id, const void *bytes, size_t len, size_t now) {
    uint8_t head[TCP_FRAME_HEAD] = {0};
    static const uint8_t zeros[8];
    if (len > TCP_MAX_FRAME) return;
    p->sent += id != WIRE_HELLO;
    if (p->raw) {
        send_by_lane(p, id, bytes, len);
        return;
    }
    tcp_frame_encode(head, TCP_FRAME_AM, id, (uint32_t)len);
    peer_send_bytes(p, head, sizeof head);
    peer_send_bytes(p, bytes, len);
    peer_send_bytes(p, zeros, tcp_frame_size((uint32_t)len) - TCP_FRAME_HEAD - len);
    peer_push(p, now);
}

void peers_end(void) {
    for (unsigned i = 0; i < PEERS; i++)
        if (peers[i].stage != PEER_NONE) peer_drop(&peers[i], i % 2);
    if (listening >= 0) close(listening);
    listening = -1;
}
