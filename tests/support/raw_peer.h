/* A peer that is made from the transport itself and says what it likes, beside an honest one of
 * the same worker. */
#ifndef WEFT_TESTS_SUPPORT_RAW_PEER_H
#define WEFT_TESTS_SUPPORT_RAW_PEER_H

#include "raw_lane.h"
#include "worker_pair.h"

#include <endpoints/wire/wire.h>
#include <reactor/reactor.h>

/* ---- the raw peer: an iface of its own on a reactor of its own, and one lane */

enum { RECEIVED = 4096, RAW_ID = 0x5eed };
struct received {
    uint8_t id;
    uint16_t len;
    uint8_t bytes[64];
};
struct raw {
    struct two t; /* a: the victim; b: its honest peer, with t.ep and t.back */
    struct reactor *reactor;
    struct iface *iface;
    struct lane *lane;
    int up, down, closed;
    weft_status_t status; /* of down */
    struct received received[RECEIVED];
    unsigned n_received;
    int served, echoed;               /* messages of the honest pair */
    int victims, victim_errors, lost; /* lost: in all */
    weft_status_t victim_error;
    char victim_text[512]; /* its description */
    weft_ep_t *victim;     /* the worker's half of the endpoint that the raw peer opened last */
    uint32_t half;         /* its id */
    uint64_t credit;
};
static inline struct raw *raw_of(struct lane *lane) {
    return lane->iface->owner;
}

static inline void recv_msg(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct raw *r = raw_of(lane);
    struct received *h = &r->received[r->n_received++ % RECEIVED];
    h->id = (uint8_t)id;
    h->len = (uint16_t)len;
    memcpy(h->bytes, data, len < sizeof h->bytes ? len : sizeof h->bytes);
    struct wire_accept accept;
    if (id == WIRE_ACCEPT && weft__wire_read_accept(data, len, &accept)) {
        r->half = accept.from;
        r->credit = accept.credit;
    }
}
static inline void on_accepted(struct lane *lane, void *arg) {
    struct raw *r = raw_of(lane);
    if (r->lane) {
        lane->ops->close(lane, false);
        return;
    }
    r->lane = lane;
    r->down = r->closed = 0;
}
static inline void on_up(struct lane *lane) {
    raw_of(lane)->up++;
}
static inline void on_down(struct lane *lane, weft_status_t status) {
    raw_of(lane)->down++;
    raw_of(lane)->status = status;
}
static inline void on_closed(struct lane *lane) {
    struct raw *r = raw_of(lane);
    if (lane != r->lane) return;
    r->closed++;
    r->lane = NULL;
}
static const struct iface_up raw_up = {.am = {[0 ... LANE_AM_IDS - 1] = recv_msg},
                                       .accepted = on_accepted,
                                       .up = on_up,
                                       .down = on_down,
                                       .closed = on_closed};

static inline void raw_turn(struct raw *r) {
    two_turn(&r->t);
    weft__reactor_progress(r->reactor, 0);
}
#define RAW_UNTIL(r, cond)                                     \
    do {                                                       \
        double until_end = test_now() + test_timeout(60);      \
        while (!(cond) && test_now() < until_end) raw_turn(r); \
        CHECK(cond);                                           \
    } while (0)

static inline void raw_dial(struct raw *r, const char *transport) {
    uint8_t address[256];
    size_t len = sizeof address, entry_len;
    CHECK_EQ(weft_worker_address(r->t.a, address, &len), 0);
    const uint8_t *entry = entry_of(address, transport, &entry_len);
    CHECK(entry);
    r->up = r->down = r->closed = 0;
    CHECK_EQ(r->iface->ops->connect(r->iface, entry, entry_len, &r->lane), 0);
    RAW_UNTIL(r, r->up == 1);
}

static inline void raw_hang_up(struct raw *r) {
    if (!r->lane) return;
    r->lane->ops->close(r->lane, false);
    RAW_UNTIL(r, !r->lane);
}

/* Says it, or finds that the lane is lost. */
static inline bool send_msg(struct raw *r, uint8_t id, const void *bytes, size_t len) {
    if (r->down || !r->lane) return false;
    struct piece piece = {bytes, len};
    for (int i = 0; i < 100000 && !r->down; i++) {
        weft_status_t st = r->lane->ops->am_bcopy(r->lane, id, pack, &piece);
        if (st != WEFT_NO_RESOURCE) return st == WEFT_OK;
        raw_turn(r);
    }
    return false;
}
static inline bool send_message(struct raw *r, const struct wire_message *m) {
    return send_msg(r, m->id, m->bytes, m->len);
}

static inline bool received(const struct raw *r, uint8_t id) {
    unsigned n = r->n_received < RECEIVED ? r->n_received : RECEIVED;
    for (unsigned i = 0; i < n; i++)
        if (r->received[i].id == id) return true;
    return false;
}

static inline void send_hello_of(struct raw *r, uint16_t flags) {
    struct wire_message m;
    r->n_received = 0;
    weft__wire_hello(
        &m, (struct wire_hello){.version = WIRE_VERSION, .flags = flags, .worker = RAW_ID});
    CHECK(send_message(r, &m));
    RAW_UNTIL(r, received(r, WIRE_HELLO));
}
static inline void send_hello(struct raw *r) {
    send_hello_of(r, 0);
}

static inline void open_half(struct raw *r) {
    struct wire_message m;
    int before = r->victims;
    r->half = 0;
    weft__wire_open(&m, (struct wire_open){.from = 0x00100007, .credit = 1 << 20});
    CHECK(send_message(r, &m));
    RAW_UNTIL(r, r->half && r->victims == before + 1);
}

/* ---- the worker under attack, and its honest peer */

static inline void on_endpoint(weft_ep_t *ep, void *arg) {
    struct raw *r = arg;
    r->victim = ep;
    r->victims++;
    weft_ep_set_user(ep, r);
}
static inline void on_victim_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct raw *r = arg;
    r->victim_errors++;
    r->lost++;
    r->victim_error = status;
    weft_status_describe(status, r->victim_text, sizeof r->victim_text);
    if (r->victim == ep) r->victim = NULL;
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}
/* Id 1 of the victim: an echo. */
static inline void echo(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct raw *r = arg;
    r->served++;
    if (ep != r->victim && am->data) weft_am_send(ep, 1, NULL, 0, NULL, 0, NULL);
}
static inline void echoed(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ((struct raw *)arg)->echoed++;
}
static inline void quiet(weft_log_level_t level, const char *room, const char *line, void *arg) {}

/* An iface of the raw peer's for one more transport. The caller closes it. */
static inline struct iface *raw_iface(struct raw *r, const char *transport) {
    struct iface *iface = NULL;
    struct iface_params params = {.up = &raw_up, .owner = r, .worker_id = RAW_ID};
    CHECK_EQ(transport_named(transport)->open(r->reactor, &params, &iface), 0);
    return iface;
}

/* The workers have all of `transports`, a list. The raw peer has the first. */
static inline void raw_open(struct raw *r, const char *transports, const weft_setting_t *settings,
                            size_t n) {
    char first[16];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(transports, ","), transports);
    memset(r, 0, sizeof *r);
    char address[256];
    size_t len = sizeof address;
    weft_setting_t all[8] = {{"close.timeout", "50ms"}};
    for (size_t i = 0; i < n; i++) all[1 + i] = settings[i];
    CHECK_EQ(weft_context_create(
                 &(weft_context_params_t){.settings = all, .n_settings = 1 + n, .log = quiet},
                 &r->t.context),
             0);
    weft_worker_params_t params = {.transports = transports,
                                   .on_endpoint = on_endpoint,
                                   .on_error = on_victim_error,
                                   .arg = r};
    CHECK_EQ(weft_worker_create(r->t.context, &params, &r->t.a), 0);
    CHECK_EQ(weft_worker_create(r->t.context, &(weft_worker_params_t){.transports = transports},
                                &r->t.b),
             0);
    CHECK_EQ(weft_am_handler_set(r->t.a, 1, echo, r), 0);
    CHECK_EQ(weft_am_handler_set(r->t.b, 1, echoed, r), 0);
    CHECK_EQ(weft_worker_address(r->t.a, address, &len), 0);
    CHECK_EQ(weft_connect_address(r->t.b, address, len,
                                  &(weft_ep_params_t){.on_error = two_on_error, .arg = &r->t},
                                  &r->t.ep),
             0);
    UNTIL(&r->t, r->victims == 1);
    r->t.back = r->victim;
    r->victim = NULL;

    CHECK_EQ(weft__reactor_create(r->t.context, &(struct reactor_params){.seed = 1}, &r->reactor),
             0);
    r->iface = raw_iface(r, first);
}

/* The worker dials the raw peer, which has its HELLO then. */
static inline weft_ep_t *raw_be_dialed(struct raw *r, const char *transport,
                                       const weft_ep_params_t *params) {
    uint8_t address[256] = {'W', 'a', 1, 1};
    size_t len = 96, name_len = strlen(transport);
    weft_ep_t *ep;
    for (unsigned i = 0; i < 8; i++) address[4 + i] = (uint8_t)((uint64_t)RAW_ID >> 8 * i);
    address[12] = (uint8_t)name_len;
    memcpy(address + 13, transport, name_len);
    CHECK_EQ(r->iface->ops->address(r->iface, address + 14 + name_len, &len), 0);
    address[13 + name_len] = (uint8_t)len;
    r->n_received = 0;
    CHECK_EQ(weft_connect_address(r->t.a, address, 14 + name_len + len, params, &ep), 0);
    RAW_UNTIL(r, r->lane && received(r, WIRE_HELLO));
    return ep;
}
/* The OPEN that comes behind the raw peer's HELLO. */
static inline struct wire_open raw_is_opened(struct raw *r) {
    struct wire_open open = {0};
    RAW_UNTIL(r, received(r, WIRE_OPEN));
    for (unsigned i = 0; i < r->n_received; i++)
        if (r->received[i].id == WIRE_OPEN)
            CHECK(weft__wire_read_open(r->received[i].bytes, r->received[i].len, &open));
    return open;
}

/* The honest pair still works, and noticed nothing, whether the raw peer reads or not. */
static inline void honest_is_well(struct raw *r) {
    int before = r->echoed;
    CHECK(weft_am_send(r->t.ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&r->t, r->echoed == before + 1);
    CHECK_EQ(r->t.errors, 0);
}
/* Its tagged messages too find their receives at the victim, where no other is posted. */
static inline void honest_is_matched(struct raw *r) {
    static const uint64_t tag = UINT64_C(0x5afe5afe5afe5afe);
    struct tally got = {0};
    char word[8] = {0};
    weft_iov_t in = {word, sizeof word}, out = {"as ever", 8};
    CHECK_EQ(weft_tag_recv(r->t.a, tag, UINT64_MAX, &in, 1, NULL, OP(&got)), WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(r->t.ep, tag, &out, 1, NULL) >= 0);
    UNTIL(&r->t, got.calls == 1);
    CHECK(got.status == WEFT_OK && strcmp(word, "as ever") == 0);
    honest_is_well(r);
}

static inline void raw_close(struct raw *r) {
    honest_is_well(r);
    raw_hang_up(r);
    r->iface->ops->close(r->iface);
    weft__reactor_progress(r->reactor, 0);
    weft__reactor_destroy(r->reactor);
    two_down(&r->t);
}

#endif
