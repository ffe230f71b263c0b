/*
 * What transport.h promises, for every transport: a new one gets all of it by one line in SUBJECTS.
 * The promises are in conformance_*_test.c, by subject; those of one-sided operations are in
 * rma_forms_test.c and rma_keys_test.c.
 *
 * Message number i carries [i, 8 bytes][bytes of a fixed pattern from i on], whatever its form, so
 * that a receiver can check order and content without a copy of what was sent.
 */
#ifndef WEFT_TESTS_TRANSPORTS_CONFORMANCE_H
#define WEFT_TESTS_TRANSPORTS_CONFORMANCE_H

#include "counted.h"
#include "pair.h"
#include <transports/reliable/window_lane.h>
#include <transports/sim/sim.h>

/* A whole transport in 200 lines: an example for docs/transports.md, and a check of that page. */
extern const struct transport weft__transport_null;

struct subject {
    const struct transport *transport;
    unsigned flags;
};

#ifdef WEFT_HAVE_RDMA
#define RDMA_SUBJECTS(S) \
    S(rdma_rc, 0)        \
    S(rdma_ud_window, 0)
#else
#define RDMA_SUBJECTS(S)
#endif
/* S(name, how its pair is made) */
#define SUBJECTS(S)           \
    S(null, PAIR_ONE_REACTOR) \
    S(self, PAIR_ONE_REACTOR) \
    S(shm, 0)                 \
    S(shm_mailbox, 0)         \
    S(tcp, 0)                 \
    S(sim, PAIR_VIRTUAL)      \
    S(window, PAIR_VIRTUAL)   \
    S(storm, PAIR_VIRTUAL)    \
    RDMA_SUBJECTS(S)

/* Every lane by the mailbox. */
static const weft_setting_t no_rings = {"shm.rings", "0"};
/* The wire is this machine's own. */
static const weft_setting_t insecure = {"rdma.insecure", "yes"};
static inline weft_status_t open_shm(struct reactor *r, const struct iface_params *params,
                                     struct iface **iface_p) {
    return weft__transport_shm.open(r, params, iface_p);
}
static const struct transport weft__transport_shm_mailbox = {.name = "shm", .open = open_shm};

/* Two that are not in the register: the endpoints' window around datagrams, over a fair network
 * and over a bad one. */
static inline weft_status_t open_window(struct reactor *r, const struct iface_params *params,
                                        struct iface **iface_p) {
    return weft__window_iface_open(r, &weft__transport_sim, params, iface_p);
}
static const struct transport weft__transport_window = {.name = "sim", .open = open_window};
static const struct transport weft__transport_storm = {.name = "sim", .open = open_window};

#ifdef WEFT_HAVE_RDMA
/* The same around rdma's datagrams, where there is a device. */
static inline weft_status_t open_rdma_ud(struct reactor *r, const struct iface_params *params,
                                         struct iface **iface_p) {
    return weft__window_iface_open(r, &weft__transport_rdma_ud, params, iface_p);
}
static const struct transport weft__transport_rdma_ud_window = {.name = "rdma_ud",
                                                                .open = open_rdma_ud};
#endif

static struct sim_profile network;
static inline void choose_network(const struct transport *transport) {
    network = transport == &weft__transport_sim ? weft__sim_reliable : weft__sim_datagram;
    if (transport != &weft__transport_storm) return;
    network.loss = 200000;
    network.duplicate = network.reorder = 100000;
    network.reorder_ns = 20000;
    network.exhaustion = 50000;
}
static inline void make_network(struct reactor_clock *clock) {
    weft__sim_use(weft__sim_create(clock, 1, &network));
}

enum { PATTERN = 4096, LARGEST = 1 << 20 };
static uint8_t pattern[PATTERN + LARGEST];

static inline void pattern_make(void) {
    uint32_t x = 12345;
    for (size_t i = 0; i < sizeof pattern; i++) {
        x = x * 1664525 + 1013904223;
        pattern[i] = (uint8_t)(x >> 24);
    }
}
static inline const uint8_t *bytes_of(uint64_t i) {
    return pattern + i % PATTERN;
}

enum form { SHORT, BCOPY, ZCOPY, SHORT_TO, N_FORMS };
static inline bool is_short(enum form form) {
    return form == SHORT || form == SHORT_TO;
}

struct spec {
    uint64_t number;
    enum form form;
    size_t len; /* after the number */
    /* zcopy: of `len`, in the header (without the number); pieces of the rest */
    size_t header_len, pieces;
};

struct pack_arg {
    uint64_t number;
    size_t len;
};
static inline size_t pack(void *to, void *arg) {
    const struct pack_arg *p = arg;
    memcpy(to, &p->number, 8);
    memcpy((char *)to + 8, bytes_of(p->number), p->len);
    return 8 + p->len;
}

static inline weft_status_t zcopy(struct lane *lane, const struct spec *s,
                                  struct completion *completion) {
    uint8_t header[4096];
    weft_iov_t iov[64];
    const uint8_t *bytes = bytes_of(s->number);
    size_t rest = s->len - s->header_len, n = s->pieces ? s->pieces : 1, step = rest / n;
    memcpy(header, &s->number, 8);
    memcpy(header + 8, bytes, s->header_len);
    bytes += s->header_len;
    for (size_t i = 0; i < n; i++) {
        size_t len = i == n - 1 ? rest - i * step : step;
        iov[i] = (weft_iov_t){(void *)(bytes + i * step), len};
    }
    weft_status_t st =
        lane->ops->am_zcopy(lane, (uint8_t)(s->number % 32),
                            &(struct lane_zcopy){header, 8 + s->header_len, iov, n}, completion);
    memset(header, 0xee, sizeof header); /* header and iov array were copied */
    memset(iov, 0xee, sizeof iov);
    return st;
}

/* Four bytes of it apart, where the lane takes them so. */
static inline weft_status_t short_to(struct lane *lane, uint8_t id, const struct spec *s) {
    uint32_t to;
    const uint8_t *bytes = bytes_of(s->number);
    if (!lane->ops->am_short_to || s->len < sizeof to)
        return lane->ops->am_short(lane, id, s->number, bytes, s->len);
    memcpy(&to, bytes, sizeof to);
    return lane->ops->am_short_to(lane, id, s->number, to, bytes + sizeof to, s->len - sizeof to);
}

static inline weft_status_t post(struct lane *lane, const struct spec *s,
                                 struct completion *completion) {
    uint8_t id = (uint8_t)(s->number % 32);
    switch (s->form) {
    case SHORT: return lane->ops->am_short(lane, id, s->number, bytes_of(s->number), s->len);
    case BCOPY: return lane->ops->am_bcopy(lane, id, pack, &(struct pack_arg){s->number, s->len});
    case SHORT_TO: return short_to(lane, id, s);
    default: return zcopy(lane, s, completion);
    }
}

/* What a receiver that expects messages in order keeps. */
struct expect {
    uint64_t next, wrong;
    size_t len; /* after the number; (size_t)-1: any */
};
static inline void check_in_order(struct end *end, uint8_t id, const void *data, size_t len) {
    struct expect *e = end->arg;
    uint64_t number;
    if (len < 8) {
        e->wrong++;
        return;
    }
    memcpy(&number, data, 8);
    if (number != e->next || id != number % 32 || (e->len != (size_t)-1 && len != 8 + e->len) ||
        memcmp((const char *)data + 8, bytes_of(number), len - 8) != 0)
        e->wrong++;
    e->next = number + 1;
}

/* Sends messages [at, until) of a stream, waiting as a pending entry when the lane is full. */
struct stream {
    struct pending pending;
    struct end *from;
    struct spec (*spec)(const struct stream *stream, uint64_t number);
    uint64_t at, until;
    struct counted zcopied;
    int waits, retries;
    weft_status_t failed;
};
static inline weft_status_t stream_go(struct stream *s) {
    while (s->at < s->until) {
        struct spec spec = s->spec(s, s->at);
        s->zcopied.completion.count++;
        weft_status_t st = post(s->from->lane, &spec, &s->zcopied.completion);
        if (st != WEFT_IN_PROGRESS) s->zcopied.completion.count--;
        if (st == WEFT_NO_RESOURCE) return st;
        if (st < 0) {
            s->failed = st;
            return st;
        }
        s->at++;
    }
    return WEFT_OK;
}
static inline weft_status_t stream_retry(struct pending *p) {
    struct stream *s = (struct stream *)p;
    s->retries++;
    return stream_go(s);
}
static inline void stream_start(struct stream *s) {
    s->pending.retry = stream_retry;
    s->zcopied = counted(1); /* one of its own, so that it cannot fall to 0 before the end */
    if (stream_go(s) != WEFT_NO_RESOURCE) return;
    s->waits++;
    s->from->lane->ops->pending_add(s->from->lane, &s->pending);
}

static inline struct spec mixed_spec(const struct stream *s, uint64_t number) {
    const struct iface_attr *a = &s->from->pair->iface_a->attr;
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u;
    enum form form = (enum form)((x >> 32) % N_FORMS);
    size_t most = is_short(form)  ? a->max_short
                  : form == BCOPY ? a->max_bcopy - 8
                                  : a->max_zcopy / 4;
    size_t len =
        (x >> 40) % 4 == 0 ? (x >> 8) % (most + 1) : (x >> 8) % (most < 200 ? most + 1 : 200);
    return (struct spec){number, form, len, form == ZCOPY ? len % 300 < len ? len % 300 : 0 : 0,
                         1 + x % a->max_iov};
}
static inline struct spec short_spec(const struct stream *s, uint64_t number) {
    return (struct spec){number, SHORT, 32, 0, 0};
}
static inline struct spec bcopy_spec(const struct stream *s, uint64_t number) {
    return (struct spec){number, BCOPY, 3000, 0, 0};
}
static inline struct spec zcopy_spec(const struct stream *s, uint64_t number) {
    return (struct spec){number, ZCOPY, s->from->pair->iface_a->attr.max_zcopy, 0, 2};
}

static inline void begin(struct pair *p, const struct transport *transport, unsigned flags) {
    if (strncmp(transport->name, "rdma", 4) == 0 && !pair_has_rdma()) SKIP("no RDMA device here");
    pattern_make();
    choose_network(transport);
    pair_clock_made = make_network;
    const weft_setting_t *setting =
        strncmp(transport->name, "rdma", 4) == 0 ? &insecure : &no_rings;
    pair_open_with(p, transport, flags, setting,
                   setting == &insecure || transport == &weft__transport_shm_mailbox);
}
static inline void open_pair(struct pair *p, const struct subject *s) {
    begin(p, s->transport, s->flags);
    pair_connect(p);
}

/* One message, and its arrival. */
static inline void one(struct pair *p, struct spec spec) {
    struct counted c = counted(1);
    size_t before = p->b.n_messages;
    weft_status_t st;
    while ((st = post(p->a.lane, &spec, &c.completion)) == WEFT_NO_RESOURCE) pair_turn(p);
    CHECK(st >= 0);
    CHECK_EQ(p->b.n_messages, before);
    CHECK_EQ(c.calls, 0);
    CHECK(pair_until(p, p->b.n_messages == before + 1));
    const struct pair_message *m = &p->b.messages[before];
    CHECK_EQ(m->len, 8 + spec.len);
    CHECK_EQ(m->id, spec.number % 32);
    CHECK_EQ(memcmp(m->data, &spec.number, 8), 0);
    CHECK_EQ(memcmp(m->data + 8, bytes_of(spec.number), spec.len), 0);
    if (st == WEFT_IN_PROGRESS) {
        CHECK(pair_until(p, c.calls == 1));
        CHECK_EQ(c.status, WEFT_OK);
    } else {
        CHECK_EQ(c.calls, 0);
    }
    pair_forget(&p->b);
}

/* A file of promises lists them in CASES(C, s), each as C(s, promise), and ends with
 * SUBJECTS(TESTS_OF). */
#define TEST_OF(s, promise)    \
    TEST(s##_##promise) {      \
        promise(&subject_##s); \
    }
#define TESTS_OF(s, flags)                                                   \
    static const struct subject subject_##s = {&weft__transport_##s, flags}; \
    CASES(TEST_OF, s)

#endif
