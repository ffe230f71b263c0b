/* A lane may be closed by either side at any time: everything is delivered or completed, once. */
#include "conformance.h"

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
    CHECK_EQ(stream.zcopied.completion.count, 1); /* before `down` was called */
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
        for (int i = 0; i < 5; i++)
            CHECK_EQ(post(p.a.lane, &(struct spec){flush, SHORT, 20, 0, 0}, NULL), WEFT_OK);
        CHECK(pair_until(&p, p.b.n_closed == 1 && p.a.n_down == 1));
        CHECK_EQ(arrived, 1); /* a closed lane receives nothing */
        CHECK(closed_by_peer(p.a.down));
        pair_close(&p);
    }
}

/* Other handlers receive every third message, and hand the next one back. */
static int received_by_others;
static void other_receives(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct end *end = lane->owner;
    received_by_others++;
    lane->ops->recv_msg(lane, NULL);
    check_in_order(end, (uint8_t)(((struct expect *)end->arg)->next % 32), data, len);
}
static const lane_am_fn others[LANE_AM_IDS] = {[0 ... LANE_AM_IDS - 1] = other_receives};
static void hand_over(struct end *end, uint8_t id, const void *data, size_t len) {
    struct expect *e = end->arg;
    check_in_order(end, id, data, len);
    if (e->next % 3 == 2) end->lane->ops->recv_msg(end->lane, others);
}
static void other_handlers_recv_the_next_message(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = 20};
    p.b.on_message = hand_over;
    p.b.arg = &e;
    received_by_others = 0;
    for (uint64_t i = 0; i < 90; i++) {
        weft_status_t st;
        while ((st = post(p.a.lane, &(struct spec){i, SHORT, 20, 0, 0}, NULL)) == WEFT_NO_RESOURCE)
            pair_turn(&p);
        CHECK_EQ(st, WEFT_OK);
    }
    CHECK(pair_until(&p, e.next == 90));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(received_by_others, 30);
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
        /* it saw nothing, or a lane that came and went */
        CHECK(pair_until(&p, p.b.n_down == p.b.n_open));
        CHECK_EQ(p.a.n_down, 0);
        pair_close(&p);
    }
}

#define CASES(C, s)                                        \
    C(s, close_with_flush_delivers_everything)             \
    C(s, abort_completes_everything_once)                  \
    C(s, after_the_peer_closed_sends_fail)                 \
    C(s, pending_is_the_owners_again_when_the_peer_closed) \
    C(s, both_may_close_at_once)                           \
    C(s, a_handler_may_close_its_lane)                     \
    C(s, other_handlers_recv_the_next_message)             \
    C(s, a_lane_may_be_closed_before_it_is_up)

SUBJECTS(TESTS_OF)
