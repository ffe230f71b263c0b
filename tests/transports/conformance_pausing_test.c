/* A lane that is paused brings nothing until it is resumed, and then everything in its order;
 * its sender waits meanwhile. */
#include "conformance.h"

#ifdef WEFT_HAVE_RDMA
#define RDMA_PAUSABLE(S) \
    S(rdma_rc, 0)        \
    S(rdma_ud_window, 0)
#else
#define RDMA_PAUSABLE(S)
#endif
/* Those that can. In virtual time a pause is longer than any of their timeouts. */
#define PAUSABLE(S)           \
    S(null, PAIR_ONE_REACTOR) \
    S(self, PAIR_ONE_REACTOR) \
    S(shm, 0)                 \
    S(shm_mailbox, 0)         \
    S(tcp, 0)                 \
    S(window, PAIR_VIRTUAL)   \
    S(storm, PAIR_VIRTUAL)    \
    RDMA_PAUSABLE(S)

/* One that is about to end cannot be any more. */
static weft_status_t pause_end(const struct end *end, bool on) {
    return end->lane->ops->pause ? end->lane->ops->pause(end->lane, on) : WEFT_OK;
}
static weft_status_t pause_b(const struct pair *p, bool on) {
    return pause_end(&p->b, on);
}

static uint64_t pause_at; /* each multiple of it */
static void check_and_pause(struct end *end, uint8_t id, const void *data, size_t len) {
    struct expect *e = end->arg;
    check_in_order(end, id, data, len);
    if (e->next % pause_at == 0) CHECK_EQ(pause_end(end, true), WEFT_OK);
}

/* Turns until nothing moves. */
static void until_still(struct pair *p, const struct expect *e, const struct stream *stream) {
    for (uint64_t arrived = UINT64_MAX, sent = 0; arrived != e->next || sent != stream->at;) {
        arrived = e->next;
        sent = stream->at;
        pair_turns(p, 2000);
    }
}

static void its_sender_waits(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = 3000};
    struct stream stream = {.from = &p.a, .spec = bcopy_spec, .until = 100000};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    CHECK_EQ(pause_b(&p, true), WEFT_OK);
    CHECK_EQ(pause_b(&p, true), WEFT_OK);
    stream_start(&stream);
    until_still(&p, &e, &stream);
    CHECK_EQ(e.next, 0);
    CHECK(stream.at > 0 && stream.at < stream.until);
    stream.until = stream.at + 100;
    CHECK_EQ(pause_b(&p, false), WEFT_OK);
    CHECK_EQ(pause_b(&p, false), WEFT_OK);
    CHECK(pair_until(&p, e.next == stream.until));
    CHECK_EQ(e.wrong, 0);
    pair_close(&p);
}

/* From the handler, and resumed within a turn and without one. */
static void order_holds_however_often(const struct subject *s) {
    for (pause_at = 1; pause_at < 200; pause_at = pause_at * 3 + 1) {
        struct pair p;
        open_pair(&p, s);
        struct expect e = {.len = (size_t)-1};
        struct stream stream = {
            .from = &p.a, .spec = mixed_spec, .until = pause_at < 10 ? 300 : 2000};
        p.b.on_message = check_and_pause;
        p.b.arg = &e;
        stream_start(&stream);
        for (int i = 0; i < 200000 && e.next < stream.until; i++) {
            pair_turns(&p, 3);
            CHECK_EQ(pause_b(&p, false), WEFT_OK);
        }
        CHECK_EQ(e.next, stream.until);
        CHECK_EQ(e.wrong, 0);
        CHECK_EQ(stream.failed, WEFT_OK);
        pair_close(&p);
    }
}

/* What it sent before is received, although a lane whose end is known is not resumed. */
static void a_peer_that_goes_is_received_out(const struct subject *s) {
    for (int flush = 0; flush < 2; flush++) {
        struct pair p;
        open_pair(&p, s);
        struct expect e = {.len = 32};
        struct stream stream = {.from = &p.a, .spec = short_spec, .until = 20};
        p.b.on_message = check_and_pause;
        pause_at = 5;
        p.b.arg = &e;
        CHECK_EQ(pause_b(&p, true), WEFT_OK);
        stream_start(&stream);
        pair_turns(&p, 100);
        CHECK_EQ(e.next, 0);
        p.a.lane->ops->close(p.a.lane, flush);
        for (int i = 0; i < 100000 && !p.b.n_down; i++) {
            pair_turns(&p, 1);
            if (i % 10 == 0) CHECK_EQ(pause_b(&p, false), WEFT_OK);
        }
        CHECK_EQ(p.b.n_down, 1);
        CHECK_EQ(e.wrong, 0);
        if (flush) CHECK_EQ(e.next, 20);
        CHECK(pair_until(&p, p.a.n_closed == 1));
        pair_close(&p);
    }
}

/* More than its peer has room for: it is woken for room as ever. */
static void it_goes_on_to_send(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect here = {.len = 3000}, there = {.len = (size_t)-1};
    struct stream flood = {.from = &p.a, .spec = bcopy_spec, .until = 100000};
    struct stream stream = {.from = &p.b, .spec = mixed_spec, .until = 2000};
    p.a.on_message = p.b.on_message = check_in_order;
    p.a.arg = &there;
    p.b.arg = &here;
    CHECK_EQ(pause_b(&p, true), WEFT_OK);
    stream_start(&flood);
    until_still(&p, &here, &flood);
    stream_start(&stream);
    CHECK(pair_until(&p, there.next == stream.until));
    CHECK_EQ(here.next, 0);
    flood.until = flood.at;
    CHECK_EQ(pause_b(&p, false), WEFT_OK);
    CHECK(pair_until(&p, here.next == flood.until));
    CHECK_EQ(here.wrong + there.wrong, 0);
    pair_close(&p);
}

static void it_may_be_closed(const struct subject *s) {
    for (int flush = 0; flush < 2; flush++) {
        struct pair p;
        open_pair(&p, s);
        struct expect e = {.len = 3000};
        struct stream stream = {.from = &p.a, .spec = bcopy_spec, .until = 1000};
        p.b.on_message = check_and_pause;
        pause_at = 5;
        p.b.arg = &e;
        stream_start(&stream);
        CHECK(pair_until(&p, e.next >= 5));
        p.b.lane->ops->close(p.b.lane, flush);
        CHECK(pair_until(&p, p.b.n_closed == 1 && p.a.n_down == 1));
        CHECK_EQ(p.b.n_down, 0);
        CHECK_EQ(e.wrong, 0);
        pair_close(&p);
    }
}

/* Its peer, in the middle of the handler, sends all that it finds room for. */
struct closing {
    bool flush;
    int n;
};
static void close_and_look(struct end *end, uint8_t id, const void *data, size_t len) {
    struct closing *c = end->arg;
    struct pair *p = end->pair;
    uint8_t before[64];
    CHECK(len <= sizeof before);
    memcpy(before, data, len);
    if (++c->n == 1) end->lane->ops->close(end->lane, c->flush);
    for (int i = 0; i < 1000; i++) {
        weft__reactor_progress(p->reactor_a, 0);
        if (p->a.lane)
            (void)p->a.lane->ops->am_short(p->a.lane, 5, 0xeeee, bytes_of(5000), WEFT_SHORT_MIN);
    }
    CHECK(memcmp(data, before, len) == 0);
}

static void a_handler_that_closes_it_has_its_message(const struct subject *s) {
    for (int flush = 0; flush < 2; flush++) {
        struct pair p;
        open_pair(&p, s);
        struct closing c = {.flush = flush};
        struct stream stream = {.from = &p.a, .spec = short_spec, .until = 5};
        p.b.on_message = close_and_look;
        p.b.arg = &c;
        CHECK_EQ(pause_b(&p, true), WEFT_OK);
        stream_start(&stream);
        pair_turns(&p, 100);
        CHECK_EQ(pause_b(&p, false), WEFT_OK);
        CHECK(pair_until(&p, p.b.n_closed == 1 && p.a.n_down == 1));
        CHECK(c.n > 0);
        pair_close(&p);
    }
}

/* There is memory for a pause, or the lane goes on. */
static void without_memory_it_goes_on(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = 32};
    struct stream stream = {.from = &p.a, .spec = short_spec, .until = 1000};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    weft__alloc_fail_at(1);
    weft_status_t st = pause_b(&p, true);
    weft__alloc_fail_at(0);
    CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
    if (st == WEFT_OK) CHECK_EQ(pause_b(&p, false), WEFT_OK);
    stream_start(&stream);
    CHECK(pair_until(&p, e.next == 1000));
    CHECK_EQ(e.wrong, 0);
    pair_close(&p);
}

#define CASES(C, s)                                \
    C(s, its_sender_waits)                         \
    C(s, order_holds_however_often)                \
    C(s, a_peer_that_goes_is_received_out)         \
    C(s, it_goes_on_to_send)                       \
    C(s, it_may_be_closed)                         \
    C(s, a_handler_that_closes_it_has_its_message) \
    C(s, without_memory_it_goes_on)

PAUSABLE(TESTS_OF)
