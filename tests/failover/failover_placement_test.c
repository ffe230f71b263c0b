/*
 * Large messages that land while their connection dies: what survives it brings them again, whole
 * and once, and what was stopped meanwhile is not brought back.
 */
#include <tests/support/kill_child.h>
#include <tests/support/placements.h>

#include <endpoints/memory/memory.h>

enum { KILLS = 8 };

/* A message is sent, and some of it is placed, when a connection dies. */
static void half_way(struct two *t, struct receive *r, struct tally *sent, size_t pieces) {
    sent->calls = 0;
    post(t, r, pieces, 0, sent);
    place_half_way(t, r);
}

static void whole_again(struct two *t, struct receive *r, struct tally *sent) {
    UNTIL(t, r->calls && sent->calls);
    CHECK_EQ(r->status, WEFT_OK);
    CHECK_EQ(sent->status, WEFT_OK);
    CHECK(is_pattern(into, sizeof into, 3));
}

TEST(over_an_endpoint_that_survives_messages_place_as_over_any) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    surviving(&t, NULL, 0);
    post(&t, &r, 5, 0, &sent);
    whole_again(&t, &r, &sent);
    CHECK(weft_worker_count(t.b, "tcp.placed_bytes") > BIG / 2);
    two_down(&t);
}

TEST(a_message_whose_connections_die_while_it_places_is_whole) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    surviving(&t, NULL, 0);
    for (unsigned i = 0; i < KILLS; i++) {
        half_way(&t, &r, &sent, 1 + i % 7);
        CHECK(kill_one(i) > 0);
        UNTIL(&t, weft_worker_count(t.a, "lanes.resumed") == i + 1);
        whole_again(&t, &r, &sent);
        CHECK_EQ(r.calls, 1);
    }
    still_works(&t);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

/* Before the connection dies, and after. */
TEST(a_cancelled_receive_stays_so_when_its_connection_dies) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    surviving(&t, NULL, 0);
    for (unsigned i = 0; i < KILLS; i++) {
        half_way(&t, &r, &sent, 1);
        if (i / 2 % 2) weft_request_cancel(r.request);
        kill_one(i);
        if (i / 2 % 2 == 0) weft_request_cancel(r.request);
        UNTIL(&t, r.calls && sent.calls);
        untouched_since(&r, WEFT_ERR_CANCELLED);
        still_works(&t);
        untouched_since(&r, WEFT_ERR_CANCELLED);
    }
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

TEST(an_endpoint_whose_connection_dies_while_a_message_places_can_end) {
    for (unsigned i = 0; i < 4; i++) {
        struct two t;
        struct receive r;
        struct tally sent = {0}, closed = {0};
        surviving(&t, NULL, 0);
        half_way(&t, &r, &sent, 2);
        kill_one(i);
        if (i / 2) two_turn(&t);
        CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
        UNTIL(&t, closed.calls && r.calls && sent.calls);
        CHECK(r.status < 0);
        untouched_since(&r, r.status);
        two_down(&t);
    }
}

/* ---- puts and gets --------------------------------------------------------------------------- */

struct put {
    struct two t;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    char *target;
    struct tally done;
};

static void put_begin(struct put *p) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_mem_info_t info;
    memset(p, 0, sizeof *p);
    surviving(&p->t, NULL, 0);
    CHECK_EQ(weft_mem_alloc(p->t.b, BIG, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &p->mem), 0);
    CHECK_EQ(weft_mem_describe(p->mem, &info), 0);
    p->target = info.base;
    CHECK_EQ(weft_mem_pack(p->mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p->t.ep, key, len, &p->rkey), 0);
}

static void put_half_way(struct put *p) {
    pattern(from, BIG, 5);
    memset(p->target, ~from[64], BIG);
    p->done = (struct tally){0};
    weft_op_t op = {.done = tally, .arg = &p->done, .flags = WEFT_RMA_REMOTE};
    uint64_t at = (uint64_t)(uintptr_t)p->target;
    CHECK_EQ(weft_put(p->t.ep, from, BIG, at, p->rkey, &op), WEFT_IN_PROGRESS);
    UNTIL(&p->t, !list_empty(&p->mem->placements) && p->target[64] == from[64]);
    CHECK_EQ(p->done.calls, 0);
}

static void put_end(struct put *p) {
    CHECK_EQ(p->t.errors + p->t.back_errors, 0);
    weft_rkey_release(p->rkey);
    two_down(&p->t);
}

TEST(a_put_whose_connections_die_while_it_places_is_whole) {
    static struct put p;
    put_begin(&p);
    for (unsigned i = 0; i < KILLS; i++) {
        put_half_way(&p);
        CHECK(kill_one(i) > 0);
        UNTIL(&p.t, p.done.calls);
        CHECK_EQ(p.done.status, WEFT_OK);
        CHECK(is_pattern(p.target, BIG, 5));
        CHECK(list_empty(&p.mem->placements));
        CHECK_EQ(weft_worker_count(p.t.a, "lanes.resumed"), i + 1);
    }
    put_end(&p);
}

/* Part of a put is on its way into the region, all that the sockets held is there, and the
 * sender stands still. */
static void put_stalls(struct put *p) {
    put_half_way(p);
    double end = test_now() + test_timeout(60);
    do {
        two_turn(&p->t);
        for (int i = 0; i < 1000; i++) weft_worker_progress(p->t.b, 0);
    } while (list_empty(&p->mem->placements) && test_now() < end);
    CHECK(!list_empty(&p->mem->placements));
    CHECK_EQ(p->done.calls, 0);
}

/* The rest of the put is thrown away as it comes. */
TEST(a_revocation_does_not_wait_for_a_put_that_is_placement) {
    static struct put p;
    struct tally revoked = {0};
    put_begin(&p);
    put_stalls(&p);
    weft_status_t st = weft_mem_revoke(p.mem, OP(&revoked));
    double end = test_now() + test_timeout(60);
    while (st == WEFT_IN_PROGRESS && !revoked.calls && test_now() < end)
        weft_worker_progress(p.t.b, 0);
    CHECK(st == WEFT_OK || (revoked.calls == 1 && revoked.status == WEFT_OK));
    memset(p.target, 'x', BIG);
    UNTIL(&p.t, p.done.calls);
    CHECK_EQ(p.done.status, WEFT_ERR_REVOKED);
    for (size_t at = 0; at < BIG; at += 512) CHECK_EQ(p.target[at], 'x');
    put_end(&p);
}

/* Nothing is written any more once it was taken back, by what comes again neither. */
TEST(a_put_into_memory_that_is_taken_back_while_its_connection_dies_is_refused_once) {
    for (unsigned i = 0; i < 4; i++) {
        static struct put p;
        struct tally revoked = {0};
        put_begin(&p);
        put_half_way(&p);
        if (i / 2) kill_one(i);
        weft_status_t st = weft_mem_revoke(p.mem, OP(&revoked));
        if (i / 2 == 0) kill_one(i);
        if (st == WEFT_IN_PROGRESS) UNTIL(&p.t, revoked.calls);
        memset(p.target, 'x', BIG);
        UNTIL(&p.t, p.done.calls);
        CHECK_EQ(p.done.status, WEFT_ERR_REVOKED);
        for (int turn = 0; turn < 200; turn++) two_turn(&p.t);
        CHECK_EQ(p.done.calls, 1);
        for (size_t at = 0; at < BIG; at += 4096) CHECK_EQ(p.target[at], 'x');
        put_end(&p);
    }
}

TEST(a_get_whose_connections_die_while_it_places_is_whole) {
    static struct put p;
    struct receive r;
    put_begin(&p);
    pattern(p.target, BIG, 5);
    for (unsigned i = 0; i < KILLS; i++) {
        memset(&r, 0, sizeof r);
        memset(into, 0x5a, BIG);
        weft_op_t op = {.done = received, .arg = &r, .request_p = &r.request};
        CHECK_EQ(weft_get(p.t.ep, into, BIG, (uint64_t)(uintptr_t)p.target, p.rkey, &op),
                 WEFT_IN_PROGRESS);
        place_half_way(&p.t, &r);
        CHECK(kill_one(i) > 0);
        UNTIL(&p.t, r.calls);
        CHECK(is_pattern(into, BIG, 5));
        untouched_since(&r, WEFT_OK);
        CHECK_EQ(weft_worker_count(p.t.a, "lanes.resumed"), i + 1);
    }
    CHECK(weft_worker_count(p.t.a, "tcp.placed_bytes") > KILLS / 2 * BIG);
    put_end(&p);
}
