/*
 * What transport.h promises, for every transport: a new one gets all of it by one line in SUBJECTS.
 *
 * Message number i carries [i, 8 bytes][bytes of a fixed pattern from i on], whatever its form, so that a receiver can
 * check order and content without a copy of what was sent.
 */
#include "pair.h"
#include <endpoints/window_lane.h>
#include <poll.h>
#include <transports/sim/sim.h>

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
static weft_status_t open_shm(struct reactor *r, const struct iface_params *params, struct iface **iface_p) {
    return weft__transport_shm.open(r, params, iface_p);
}
static const struct transport weft__transport_shm_mailbox = {.name = "shm", .open = open_shm};

/* Two that are not in the register: the endpoints' window around datagrams, over a fair network and over a bad one. */
static weft_status_t open_window(struct reactor *r, const struct iface_params *params, struct iface **iface_p) {
    return weft__window_iface_open(r, &weft__transport_sim, params, iface_p);
}
static const struct transport weft__transport_window = {.name = "sim", .open = open_window};
static const struct transport weft__transport_storm = {.name = "sim", .open = open_window};

#ifdef WEFT_HAVE_RDMA
/* The same around rdma's datagrams, where there is a device. */
static weft_status_t open_rdma_ud(struct reactor *r, const struct iface_params *params, struct iface **iface_p) {
    return weft__window_iface_open(r, &weft__transport_rdma_ud, params, iface_p);
}
static const struct transport weft__transport_rdma_ud_window = {.name = "rdma_ud", .open = open_rdma_ud};
#endif

static struct sim_profile network;
static void choose_network(const struct transport *transport) {
    network = transport == &weft__transport_sim ? weft__sim_reliable : weft__sim_datagram;
    if (transport != &weft__transport_storm) return;
    network.loss = 200000;
    network.duplicate = network.reorder = 100000;
    network.reorder_ns = 20000;
    network.exhaustion = 50000;
}
static void make_network(struct reactor_clock *clock) {
    weft__sim_use(weft__sim_create(clock, 1, &network));
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

enum { PATTERN = 4096, LARGEST = 1 << 20 };
static uint8_t pattern[PATTERN + LARGEST];

static void pattern_make(void) {
    uint32_t x = 12345;
    for (size_t i = 0; i < sizeof pattern; i++) {
        x = x * 1664525 + 1013904223;
        pattern[i] = (uint8_t)(x >> 24);
    }
}
static const uint8_t *bytes_of(uint64_t i) {
    return pattern + i % PATTERN;
}

enum form { SHORT, BCOPY, ZCOPY, SHORT_TO, N_FORMS };
static bool is_short(enum form form) {
    return form == SHORT || form == SHORT_TO;
}

struct spec {
    uint64_t number;
    enum form form;
    size_t len;                /* after the number */
    size_t header_len, pieces; /* zcopy: of `len`, in the header (without the number); pieces of the rest */
};

struct pack_arg {
    uint64_t number;
    size_t len;
};
static size_t pack(void *to, void *arg) {
    const struct pack_arg *p = arg;
    memcpy(to, &p->number, 8);
    memcpy((char *)to + 8, bytes_of(p->number), p->len);
    return 8 + p->len;
}

static weft_status_t zcopy(struct lane *lane, const struct spec *s, struct completion *completion) {
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
        lane->ops->am_zcopy(lane, (uint8_t)(s->number % 32), header, 8 + s->header_len, iov, n, completion);
    memset(header, 0xee, sizeof header); /* header and iov array were copied */
    memset(iov, 0xee, sizeof iov);
    return st;
}

/* Four bytes of it apart, where the lane takes them so. */
static weft_status_t short_to(struct lane *lane, uint8_t id, const struct spec *s) {
    uint32_t to;
    const uint8_t *bytes = bytes_of(s->number);
    if (!lane->ops->am_short_to || s->len < sizeof to)
        return lane->ops->am_short(lane, id, s->number, bytes, s->len);
    memcpy(&to, bytes, sizeof to);
    return lane->ops->am_short_to(lane, id, s->number, to, bytes + sizeof to, s->len - sizeof to);
}

static weft_status_t post(struct lane *lane, const struct spec *s, struct completion *completion) {
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
    size_t (*len_of)(uint64_t number);
    size_t len; /* if len_of is NULL; (size_t)-1: any */
};
static void check_in_order(struct end *end, uint8_t id, const void *data, size_t len) {
    struct expect *e = end->arg;
    uint64_t number;
    if (len < 8) {
        e->wrong++;
        return;
    }
    memcpy(&number, data, 8);
    size_t want = e->len_of ? e->len_of(number) : e->len;
    if (number != e->next || id != number % 32 || (want != (size_t)-1 && len != 8 + want) ||
        memcmp((const char *)data + 8, bytes_of(number), len - 8) != 0)
        e->wrong++;
    e->next = number + 1;
}

/* Completions that count their calls. */
struct counted {
    struct completion completion;
    int calls;
    weft_status_t status;
};
static void counted_done(struct completion *c, weft_status_t status) {
    struct counted *counted = (struct counted *)c;
    counted->calls++;
    counted->status = status;
}
static struct counted counted(uint32_t count) {
    return (struct counted){.completion = {counted_done, count, WEFT_OK}};
}

/* Sends messages [at, end) of a stream, waiting as a pending entry when the lane is full. */
struct stream {
    struct pending pending;
    struct end *from;
    struct spec (*spec)(const struct stream *stream, uint64_t number);
    uint64_t at, until;
    struct counted zcopied;
    int waits, retries;
    weft_status_t failed;
};
static weft_status_t stream_go(struct stream *s) {
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
static weft_status_t stream_retry(struct pending *p) {
    struct stream *s = (struct stream *)p;
    s->retries++;
    return stream_go(s);
}
static void stream_start(struct stream *s) {
    s->pending.retry = stream_retry;
    s->zcopied = counted(1); /* one of its own, so that it cannot fall to 0 before the end */
    if (stream_go(s) != WEFT_NO_RESOURCE) return;
    s->waits++;
    s->from->lane->ops->pending_add(s->from->lane, &s->pending);
}

static void begin(struct pair *p, const struct transport *transport, unsigned flags) {
    if (strncmp(transport->name, "rdma", 4) == 0 && !pair_has_rdma()) SKIP("no RDMA device here");
    pattern_make();
    choose_network(transport);
    pair_clock_made = make_network;
    const weft_setting_t *setting = strncmp(transport->name, "rdma", 4) == 0 ? &insecure : &no_rings;
    pair_open_with(p, transport, flags, setting, setting == &insecure || transport == &weft__transport_shm_mailbox);
}
static void open_pair(struct pair *p, const struct subject *s) {
    begin(p, s->transport, s->flags);
    pair_connect(p);
}

/* One message, and its arrival. */
static void one(struct pair *p, struct spec spec) {
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

/* ---- each form, around each limit ---------------------------------------------------------------------------------- */

static void short_of_every_size(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    uint64_t number = 0;
    for (size_t len = 0; len <= p.iface_a->attr.max_short;
         len += len < 128 || len + 9 > p.iface_a->attr.max_short ? 1 : 7) {
        one(&p, (struct spec){number++, SHORT, len, 0, 0});
        one(&p, (struct spec){number++, SHORT_TO, len, 0, 0});
    }
    one(&p, (struct spec){number++, SHORT, p.iface_a->attr.max_short, 0, 0});
    one(&p, (struct spec){number++, SHORT_TO, p.iface_a->attr.max_short, 0, 0});
    CHECK_EQ(p.iface_a->ops->close != NULL, 1);
    CHECK(p.iface_a->attr.max_short >= WEFT_SHORT_MIN);
    pair_close(&p);
}

static void bcopy_around_limits(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    const struct iface_attr *a = &p.iface_a->attr;
    size_t around[] = {8,           16, 56, 64, 128, 1024, 4096, a->max_short, a->max_short + 8, a->max_bcopy / 2,
                       a->max_bcopy};
    uint64_t number = 100;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        for (int d = -1; d <= 1; d++) {
            size_t len = around[i] + (size_t)d;
            if (len >= 8 && len <= a->max_bcopy) one(&p, (struct spec){number++, BCOPY, len - 8, 0, 0});
        }
    pair_close(&p);
}

static void zcopy_around_limits(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    const struct iface_attr *a = &p.iface_a->attr;
    size_t payloads[] = {
        0, 1, 47, 48, 49, 4096, a->max_bcopy - 9, a->max_bcopy - 8, a->max_bcopy, a->max_zcopy - 1, a->max_zcopy};
    size_t headers[] = {8, 9, 384, a->max_zcopy_header};
    uint64_t number = 7;
    CHECK(a->max_zcopy_header >= 384);
    CHECK(a->max_zcopy <= LARGEST);
    CHECK(a->max_iov >= 1 && a->max_iov <= 64);
    for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++)
        for (size_t j = 0; j < sizeof headers / sizeof *headers; j++) {
            size_t h = headers[j] - 8, pieces = j == 0 ? 1 : j == 1 ? a->max_iov : 1 + (i + j) % a->max_iov;
            if (payloads[i] <= a->max_zcopy) one(&p, (struct spec){number++, ZCOPY, payloads[i] + h, h, pieces});
        }
    pair_close(&p);
}

static void what_is_too_big_is_refused(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    const struct iface_attr *a = &p.iface_a->attr;
    struct counted c = counted(1);
    struct lane *lane = p.a.lane;
    weft_iov_t iov = {pattern, a->max_zcopy + 1};
    CHECK_EQ(lane->ops->am_short(lane, 1, 0, pattern, a->max_short + 1), WEFT_ERR_TOO_BIG);
    if (lane->ops->am_short_to)
        CHECK_EQ(lane->ops->am_short_to(lane, 1, 0, 0, pattern, a->max_short - 3), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->am_zcopy(lane, 1, pattern, 8, &iov, 1, &c.completion), WEFT_ERR_TOO_BIG);
    iov.len = 1;
    CHECK_EQ(lane->ops->am_zcopy(lane, 1, pattern, a->max_zcopy_header + 1, &iov, 1, &c.completion),
             WEFT_ERR_TOO_BIG);
    one(&p, (struct spec){1, SHORT, 8, 0, 0}); /* and nothing was hurt */
    CHECK_EQ(c.calls, 0);
    pair_close(&p);
}

/* ---- order and exhaustion ------------------------------------------------------------------------------------------- */

static struct spec mixed_spec(const struct stream *s, uint64_t number) {
    const struct iface_attr *a = &s->from->pair->iface_a->attr;
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u;
    enum form form = (enum form)((x >> 32) % N_FORMS);
    size_t most = is_short(form) ? a->max_short : form == BCOPY ? a->max_bcopy - 8 : a->max_zcopy / 4;
    size_t len = (x >> 40) % 4 == 0 ? (x >> 8) % (most + 1) : (x >> 8) % (most < 200 ? most + 1 : 200);
    return (struct spec){number, form, len, form == ZCOPY ? len % 300 < len ? len % 300 : 0 : 0,
                         1 + x % a->max_iov};
}

static void order_holds_across_forms(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = (size_t)-1};
    struct stream stream = {.from = &p.a, .spec = mixed_spec, .until = 3000};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    stream_start(&stream);
    CHECK(pair_until(&p, e.next == 3000));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(stream.failed, WEFT_OK);
    completion_step(&stream.zcopied.completion, WEFT_OK);
    CHECK(pair_until(&p, stream.zcopied.calls == 1));
    CHECK_EQ(stream.zcopied.status, WEFT_OK);
    pair_close(&p);
}

static struct spec short_spec(const struct stream *s, uint64_t number) {
    return (struct spec){number, SHORT, 32, 0, 0};
}
static struct spec bcopy_spec(const struct stream *s, uint64_t number) {
    return (struct spec){number, BCOPY, 3000, 0, 0};
}
static struct spec zcopy_spec(const struct stream *s, uint64_t number) {
    return (struct spec){number, ZCOPY, s->from->pair->iface_a->attr.max_zcopy, 0, 2};
}

/* Three streams wait in one lane: each gets its turn only when those before it are through. */
static void exhaust(const struct subject *subject, struct spec (*spec)(const struct stream *, uint64_t), size_t len,
                    uint64_t each) {
    struct pair p;
    open_pair(&p, subject);
    struct expect e = {.len = len ? len : p.iface_a->attr.max_zcopy};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    struct stream first = {.from = &p.a, .spec = spec, .until = 100000};
    stream_start(&first);
    CHECK_EQ(first.waits, 1); /* it ended by exhaustion */
    CHECK(first.at > 0);
    first.until = first.at + each;
    struct stream more[2];
    for (int i = 0; i < 2; i++) {
        uint64_t from = first.until + (uint64_t)i * each;
        more[i] = (struct stream){.from = &p.a, .spec = spec, .at = from, .until = from + each};
        more[i].pending.retry = stream_retry;
        more[i].zcopied = counted(1);
        p.a.lane->ops->pending_add(p.a.lane, &more[i].pending);
    }
    CHECK_EQ(first.retries + more[0].retries + more[1].retries, 0);
    CHECK(pair_until(&p, e.next == more[1].until));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(first.failed | more[0].failed | more[1].failed, 0);
    CHECK(pair_until(
        &p,
        first.zcopied.completion.count + more[0].zcopied.completion.count + more[1].zcopied.completion.count == 3));
    pair_close(&p);
}
static void short_exhaustion_keeps_order(const struct subject *s) {
    exhaust(s, short_spec, 32, 2000);
}
static void bcopy_exhaustion_keeps_order(const struct subject *s) {
    exhaust(s, bcopy_spec, 3000, 500);
}
static void zcopy_exhaustion_keeps_order(const struct subject *s) {
    exhaust(s, zcopy_spec, 0, 50);
}

static void what_was_removed_is_not_retried(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    p.b.on_message = check_in_order;
    struct expect e = {.len = 32};
    p.b.arg = &e;
    struct stream filling = {.from = &p.a, .spec = short_spec, .until = 100000};
    stream_start(&filling);
    CHECK_EQ(filling.waits, 1);
    struct stream removed = {.pending = {.retry = stream_retry}, .from = &p.a, .spec = short_spec};
    p.a.lane->ops->pending_remove(p.a.lane, &removed.pending); /* not there: nothing */
    p.a.lane->ops->pending_add(p.a.lane, &removed.pending);
    filling.until = filling.at + 10;
    struct stream last = {.pending = {.retry = stream_retry}, .from = &p.a, .spec = short_spec};
    last.at = filling.until;
    last.until = last.at + 10;
    last.zcopied = counted(1);
    p.a.lane->ops->pending_add(p.a.lane, &last.pending);
    p.a.lane->ops->pending_remove(p.a.lane, &removed.pending);
    CHECK(pair_until(&p, e.next == last.until));
    CHECK_EQ(removed.retries, 0);
    CHECK_EQ(e.wrong, 0);
    pair_close(&p);
}

static void before_it_is_up_a_lane_has_no_resource(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags);
    struct expect e = {.len = 32};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    struct counted c = counted(1);
    struct spec z = {0, ZCOPY, 100, 0, 1};
    CHECK_EQ(post(p.a.lane, &z, &c.completion), WEFT_NO_RESOURCE);
    struct stream stream = {.from = &p.a, .spec = short_spec, .until = 5};
    stream_start(&stream);
    CHECK_EQ(stream.waits, 1);
    CHECK(pair_until(&p, e.next == 5));
    CHECK_EQ(p.a.n_open, 1);
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(c.calls, 0);
    pair_close(&p);
}

/* ---- completion ---------------------------------------------------------------------------------------------------- */

static void flush_says_when_all_has_left(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct counted all = counted(1), flushed = counted(1);
    weft_status_t st = p.a.lane->ops->flush(p.a.lane, &flushed.completion);
    if (st == WEFT_IN_PROGRESS) { /* the transport's own greeting */
        CHECK(pair_until(&p, flushed.calls == 1));
        flushed = counted(1);
    }
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &flushed.completion), WEFT_OK); /* nothing is under way */
    for (uint64_t i = 0; i < 5; i++) {
        struct spec z = {i, ZCOPY, 20000, 0, 1};
        all.completion.count++;
        if (post(p.a.lane, &z, &all.completion) != WEFT_IN_PROGRESS) all.completion.count--;
    }
    st = p.a.lane->ops->flush(p.a.lane, &flushed.completion);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
    CHECK_EQ(flushed.calls, 0);
    if (st == WEFT_IN_PROGRESS) {
        CHECK(pair_until(&p, flushed.calls == 1));
        CHECK_EQ(flushed.status, WEFT_OK);
    }
    CHECK_EQ(all.completion.count, 1);
    CHECK(pair_until(&p, p.b.n_messages == 5));
    pair_turns(&p, 20);
    CHECK(flushed.calls <= 1);
    pair_close(&p);
}

/* ---- closing ---------------------------------------------------------------------------------------------------------- */

static bool closed_by_peer(weft_status_t st) {
    return st == WEFT_ERR_PEER_CLOSED || st == WEFT_ERR_PEER_FAILED;
}

static void close_with_flush_delivers_everything(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = (size_t)-1};
    struct stream stream = {.from = &p.a, .spec = mixed_spec, .until = 20};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    stream_start(&stream);
    uint64_t accepted = stream.at;
    p.a.lane->ops->close(p.a.lane, true);
    CHECK_EQ(p.a.n_closed, 0);
    CHECK(pair_until(&p, p.b.n_down == 1 && p.a.n_closed == 1));
    CHECK_EQ(e.next, accepted);
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(stream.zcopied.completion.count, 1);
    CHECK_EQ(stream.zcopied.completion.status, WEFT_OK);
    pair_turns(&p, 20);
    CHECK_EQ(p.b.n_down, 1);
    CHECK_EQ(p.a.n_down, 0);
    pair_close(&p);
    CHECK_EQ(p.b.n_closed, 1);
}

static void abort_completes_everything_once(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct stream stream = {.from = &p.a, .spec = zcopy_spec, .until = 30};
    p.b.on_message = check_in_order;
    struct expect e = {.len = (size_t)-1};
    p.b.arg = &e;
    stream_start(&stream);
    uint32_t under_way = stream.zcopied.completion.count;
    p.a.lane->ops->close(p.a.lane, false);
    CHECK_EQ(stream.zcopied.completion.count, under_way); /* not inside the call */
    CHECK(pair_until(&p, p.a.n_closed == 1 && p.b.n_down == 1));
    CHECK_EQ(stream.zcopied.completion.count, 1);
    CHECK(closed_by_peer(p.b.down));
    CHECK_EQ(stream.retries, 0); /* what waited was the owner's again */
    CHECK_EQ(e.wrong, 0);
    pair_turns(&p, 20);
    CHECK_EQ(p.b.n_down, 1);
    pair_close(&p);
}

static void after_the_peer_closed_sends_fail(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct counted c = counted(1);
    struct spec specs[] = {{1, SHORT, 8, 0, 0}, {2, BCOPY, 100, 0, 0}, {3, ZCOPY, 20000, 0, 1}};
    pair_end_close(&p.b, true);
    CHECK(pair_until(&p, p.a.n_down == 1));
    for (int i = 0; i < 3; i++) CHECK(post(p.a.lane, &specs[i], &c.completion) < 0);
    CHECK_EQ(c.calls, 0);
    pair_close(&p);
}

static void pending_is_the_owners_again_when_the_peer_closed(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = (size_t)-1};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    struct stream stream = {.from = &p.a, .spec = zcopy_spec, .until = 100000};
    stream_start(&stream);
    CHECK_EQ(stream.waits, 1);
    p.b.lane->ops->close(p.b.lane, false);
    CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_closed == 1));
    int retries = stream.retries;
    CHECK_EQ(stream.zcopied.completion.count, 1); /* before `down` was told */
    pair_turns(&p, 20);
    CHECK_EQ(stream.retries, retries);
    pair_close(&p);
}

static void both_may_close_at_once(const struct subject *s) {
    for (int flush = 0; flush < 2; flush++) {
        struct pair p;
        open_pair(&p, s);
        p.a.lane->ops->close(p.a.lane, flush);
        p.b.lane->ops->close(p.b.lane, true);
        CHECK(pair_until(&p, p.a.n_closed == 1 && p.b.n_closed == 1));
        CHECK_EQ(p.a.n_down + p.b.n_down, 0);
        pair_close(&p);
    }
}

static void close_and_count(struct end *end, uint8_t id, const void *data, size_t len) {
    ++*(int *)end->arg;
    end->lane->ops->close(end->lane, id == 1);
}
static void a_handler_may_close_its_lane(const struct subject *s) {
    for (uint64_t flush = 0; flush < 2; flush++) {
        struct pair p;
        open_pair(&p, s);
        int arrived = 0;
        p.b.on_message = close_and_count;
        p.b.arg = &arrived;
        for (int i = 0; i < 5; i++) CHECK_EQ(post(p.a.lane, &(struct spec){flush, SHORT, 20, 0, 0}, NULL), WEFT_OK);
        CHECK(pair_until(&p, p.b.n_closed == 1 && p.a.n_down == 1));
        CHECK_EQ(arrived, 1); /* a closed lane hears nothing */
        CHECK(closed_by_peer(p.a.down));
        pair_close(&p);
    }
}

/* Every third message is heard by others, which hand the next one back. */
static int heard_by_others;
static void other_hears(struct lane *lane, const void *data, size_t len) {
    struct end *end = lane->owner;
    heard_by_others++;
    lane->ops->hear(lane, NULL);
    check_in_order(end, (uint8_t)(((struct expect *)end->arg)->next % 32), data, len);
}
static const lane_am_fn others[LANE_AM_IDS] = {[0 ... LANE_AM_IDS - 1] = other_hears};
static void hand_over(struct end *end, uint8_t id, const void *data, size_t len) {
    struct expect *e = end->arg;
    check_in_order(end, id, data, len);
    if (e->next % 3 == 2) end->lane->ops->hear(end->lane, others);
}
static void other_handlers_hear_the_next_message(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = 20};
    p.b.on_message = hand_over;
    p.b.arg = &e;
    heard_by_others = 0;
    for (uint64_t i = 0; i < 90; i++) {
        weft_status_t st;
        while ((st = post(p.a.lane, &(struct spec){i, SHORT, 20, 0, 0}, NULL)) == WEFT_NO_RESOURCE) pair_turn(&p);
        CHECK_EQ(st, WEFT_OK);
    }
    CHECK(pair_until(&p, e.next == 90));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(heard_by_others, 30);
    pair_close(&p);
}

static void a_lane_may_be_closed_before_it_is_up(const struct subject *s) {
    for (int flush = 0; flush < 2; flush++) {
        struct pair p;
        begin(&p, s->transport, s->flags);
        CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
        p.a.lane->ops->close(p.a.lane, flush);
        CHECK_EQ(p.a.n_closed, 0);
        CHECK(pair_until(&p, p.a.n_closed == 1));
        pair_turns(&p, 50);
        CHECK(pair_until(&p, p.b.n_down == p.b.n_open)); /* it saw nothing, or a lane that came and went */
        CHECK_EQ(p.a.n_down, 0);
        pair_close(&p);
    }
}

/* ---- connecting ---------------------------------------------------------------------------------------------------------- */

static void bad_addresses_are_refused(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags);
    if (!(p.iface_a->attr.caps & CAP_CONNECT_TO_IFACE)) {
        pair_close(&p);
        return;
    }
    uint8_t address[97];
    size_t len = 96;
    const char *why = NULL;
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    struct lane *lane = NULL;
    for (size_t n = 0; n < len; n++) {
        weft_status_t st = p.iface_a->ops->reachable(p.iface_a, address, n, &why);
        CHECK(st == WEFT_ERR_UNREACHABLE || st == WEFT_ERR_ADDRESS);
        CHECK(why && *why);
        CHECK(p.iface_a->ops->connect(p.iface_a, address, n, &lane) < 0);
    }
    for (size_t bit = 0; bit < 8 * len; bit++) {
        address[bit / 8] ^= (uint8_t)(1 << bit % 8);
        p.iface_a->ops->reachable(p.iface_a, address, len, &why);
        address[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    size_t small = 1;
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &small), WEFT_ERR_TRUNCATED);
    pair_close(&p);
}

static void a_name_is_listened_at_by_one(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags);
    if (!(p.iface_a->attr.caps & CAP_LISTEN)) {
        pair_close(&p);
        return;
    }
    const char *door = pair_where(s->transport);
    struct tl_listener *first = NULL, *second = NULL;
    struct iface *b = p.iface_b;
    CHECK_EQ(b->ops->listen(b, strcmp(door, "pair") == 0 ? "door" : door, 4, NULL, &first), WEFT_OK);
    char where[128];
    snprintf(where, sizeof where, "%s", strstr(b->ops->listener_uri(first), "://") + 3);
    CHECK_EQ(b->ops->listen(b, where, 4, NULL, &second), WEFT_ERR_EXISTS);
    b->ops->listener_close(first);
    pair_turns(&p, 2);

    /* Nobody is there: the call says so, or the lane goes down. */
    struct lane *lane = NULL;
    weft_status_t st = p.iface_a->ops->connect_uri(p.iface_a, where, &lane);
    if (st == WEFT_OK) {
        p.a.lane = lane;
        lane->owner = &p.a;
        CHECK(pair_until(&p, p.a.n_down == 1));
        st = p.a.down;
    }
    CHECK_EQ(st, WEFT_ERR_REFUSED);
    CHECK_EQ(p.a.n_open, 0);
    CHECK_EQ(b->ops->listen(b, where, 4, NULL, &first), WEFT_OK); /* the name is free again */
    b->ops->listener_close(first);
    pair_close(&p);
}

static void a_uri_connects(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags | PAIR_BY_URI);
    if (!(p.iface_a->attr.caps & CAP_LISTEN)) {
        pair_close(&p);
        return;
    }
    pair_connect(&p);
    CHECK(p.b.listen_arg == &p.listener);
    one(&p, (struct spec){3, SHORT, 10, 0, 0});
    char text[128] = "";
    p.a.lane->ops->describe(p.a.lane, text, sizeof text);
    CHECK(text[0]);
    pair_close(&p);
}

enum { MANY = 40 };
static void many_lanes_do_not_mix(const struct subject *s) {
    struct pair p;
    static struct end a[MANY], b[MANY];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    begin(&p, s->transport, s->flags);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open && b[i].n_open));
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < MANY; i++) {
            CHECK_EQ(post(a[i].lane, &(struct spec){(uint64_t)i, SHORT, 20, 0, 0}, NULL), WEFT_OK);
            CHECK_EQ(post(b[i].lane, &(struct spec){(uint64_t)i + 1000, BCOPY, 500, 0, 0}, NULL), WEFT_OK);
        }
    for (int i = 0; i < MANY; i++) {
        CHECK(pair_until(&p, a[i].n_messages == 3 && b[i].n_messages == 3));
        for (int round = 0; round < 3; round++) {
            CHECK_EQ(*(uint64_t *)b[i].messages[round].data, i);
            CHECK_EQ(*(uint64_t *)a[i].messages[round].data, i + 1000);
        }
    }
    for (int i = 0; i < MANY; i += 2) pair_end_close(&a[i], i % 4 == 0);
    for (int i = 1; i < MANY; i += 2) { /* the others are not disturbed */
        CHECK_EQ(post(a[i].lane, &(struct spec){7, SHORT, 20, 0, 0}, NULL), WEFT_OK);
        CHECK(pair_until(&p, b[i].n_messages == 4));
    }
    for (int i = 0; i < MANY; i++) {
        pair_end_close(&a[i], true);
        CHECK(pair_until(&p, b[i].n_down == 1));
        pair_end_close(&b[i], true);
    }
    pair_close(&p);
}

static void bulk_get_reads_the_peer(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    static uint8_t to[LARGEST];
    size_t sizes[] = {1, 4096, 100000, LARGEST - PATTERN};
    if (!(p.iface_a->attr.caps & CAP_BULK_GET)) {
        CHECK(p.a.lane->ops->bulk_get == NULL || p.a.lane->ops->bulk_get(p.a.lane, 0, NULL, 0, NULL) < 0);
        pair_close(&p);
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        struct counted c = counted(1);
        size_t half = sizes[i] / 2;
        weft_iov_t iov[2] = {{to, half}, {to + half, sizes[i] - half}};
        memset(to, 0, sizes[i]);
        weft_status_t st =
            p.a.lane->ops->bulk_get(p.a.lane, (uint64_t)(uintptr_t)(pattern + i), iov, 2, &c.completion);
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        CHECK_EQ(c.calls, 0);
        if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&p, c.calls == 1));
        CHECK_EQ(c.status, WEFT_OK);
        CHECK_EQ(memcmp(to, pattern + i, sizes[i]), 0);
    }
    pair_close(&p);
}

/* ---- sleeping -------------------------------------------------------------------------------------------------------------- */

static bool readable(int fd, int ms) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, ms) == 1;
}

static void settle(struct reactor *r, int fd) {
    do weft__reactor_progress(r, 0);
    while (readable(fd, 0));
}

/* b sleeps on its fd; each message makes it readable. */
static void a_message_wakes_a_sleeper(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    if (!(p.iface_b->attr.caps & CAP_WAKEUP) || p.clock) {
        pair_close(&p);
        return;
    }
    int fd = weft__reactor_fd(p.reactor_b);
    CHECK(fd >= 0);
    for (uint64_t i = 0; i < 200; i++) {
        settle(p.reactor_b, fd);
        enum form form = (enum form)(i % N_FORMS);
        struct spec spec = {i, form, is_short(form) ? 20 : 2000, 0, 1};
        struct counted c = counted(1);
        CHECK(post(p.a.lane, &spec, &c.completion) >= 0);
        if (p.reactor_a != p.reactor_b) weft__reactor_progress(p.reactor_a, 0);
        CHECK(readable(fd, (int)test_patience(2000)));
        double give_up = pair_seconds() + test_patience(2);
        while (p.b.n_messages == i && pair_seconds() < give_up) {
            CHECK(readable(fd, (int)test_patience(2000)));
            weft__reactor_progress(p.reactor_b, 0);
        }
        CHECK_EQ(p.b.n_messages, i + 1);
        if (p.reactor_a != p.reactor_b) weft__reactor_progress(p.reactor_a, 0);
    }
    pair_close(&p);
}

/* a sleeps with a full lane; the space that b makes wakes it, and nothing else drives it. */
static void space_wakes_a_sleeper(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    if (!(p.iface_b->attr.caps & CAP_WAKEUP) || p.clock || p.reactor_a == p.reactor_b) {
        pair_close(&p);
        return;
    }
    int fd = weft__reactor_fd(p.reactor_a);
    struct expect e = {.len = 3000};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    struct stream stream = {.from = &p.a, .spec = bcopy_spec, .until = 5000};
    stream_start(&stream);
    CHECK_EQ(stream.waits, 1);
    double give_up = pair_seconds() + test_patience(5);
    while (e.next < 5000 && pair_seconds() < give_up) {
        weft__reactor_progress(p.reactor_b, 0);
        if (readable(fd, 0)) weft__reactor_progress(p.reactor_a, 0);
    }
    CHECK_EQ(e.next, 5000);
    CHECK_EQ(e.wrong, 0);
    pair_close(&p);
}

/* ---- memory runs out at the k-th allocation, for every k --------------------------------------------------------------------- */

static void drive_some(struct pair *p, struct end *end) {
    double give_up = pair_seconds() + 1;
    while (end->n_open == 0 && end->n_down == 0 && pair_seconds() < give_up) pair_turn(p);
}

static void no_memory_fails_only_the_call(const struct subject *s) {
    uint64_t made = 1;
    for (uint64_t k = 1; k <= made; k++) {
        struct pair p;
        begin(&p, s->transport, s->flags);
        weft__alloc_fail_at(k);
        if (pair_dial(&p, &p.a, &p.b) == WEFT_OK) drive_some(&p, &p.a);
        for (uint64_t i = 0; p.a.n_open && !p.a.n_down && i < 6; i++) {
            struct counted c = counted(1);
            enum form form = (enum form)(i % N_FORMS);
            struct spec spec = {i, form, is_short(form) ? 20 : 5000, 0, 1};
            if (post(p.a.lane, &spec, &c.completion) == WEFT_IN_PROGRESS) CHECK(pair_until(&p, c.calls == 1));
        }
        if (p.a.lane) {
            p.a.lane->ops->close(p.a.lane, true);
            CHECK(pair_until(&p, p.a.n_closed == 1));
        }
        made = weft__alloc_fail_at(0);
        pair_turns(&p, 30);
        pair_close(&p);
        if (k > 500) break;
    }
}

#define CASES(C, s)                                        \
    C(s, short_of_every_size)                              \
    C(s, bcopy_around_limits)                              \
    C(s, zcopy_around_limits)                              \
    C(s, what_is_too_big_is_refused)                       \
    C(s, order_holds_across_forms)                         \
    C(s, short_exhaustion_keeps_order)                     \
    C(s, bcopy_exhaustion_keeps_order)                     \
    C(s, zcopy_exhaustion_keeps_order)                     \
    C(s, what_was_removed_is_not_retried)                  \
    C(s, before_it_is_up_a_lane_has_no_resource)           \
    C(s, flush_says_when_all_has_left)                     \
    C(s, close_with_flush_delivers_everything)             \
    C(s, abort_completes_everything_once)                  \
    C(s, after_the_peer_closed_sends_fail)                 \
    C(s, pending_is_the_owners_again_when_the_peer_closed) \
    C(s, both_may_close_at_once)                           \
    C(s, a_handler_may_close_its_lane)                     \
    C(s, other_handlers_hear_the_next_message)             \
    C(s, a_lane_may_be_closed_before_it_is_up)             \
    C(s, bad_addresses_are_refused)                        \
    C(s, a_name_is_listened_at_by_one)                     \
    C(s, a_uri_connects)                                   \
    C(s, many_lanes_do_not_mix)                            \
    C(s, bulk_get_reads_the_peer)                          \
    C(s, a_message_wakes_a_sleeper)                        \
    C(s, space_wakes_a_sleeper)                            \
    C(s, no_memory_fails_only_the_call)

#define TEST_OF(s, promise)    \
    TEST(s##_##promise) {      \
        promise(&subject_##s); \
    }
#define TESTS_OF(s, flags)                                                   \
    static const struct subject subject_##s = {&weft__transport_##s, flags}; \
    CASES(TEST_OF, s)
SUBJECTS(TESTS_OF)
