/* Large messages that land in the program's own memory: they are whole, and whatever ends one
 * half way, it completes once and no byte of its memory changes after that. */
#include <tests/support/placements.h>
#include <tests/support/rma_peers.h>

#include <sys/socket.h>
#include <transports/tcp/tcp.h>

static void whole(size_t pieces, bool places) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, pieces, 0, &sent);
    UNTIL(&t, r.calls && sent.calls);
    CHECK_EQ(r.status, WEFT_OK);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK(is_pattern(into, sizeof into, 3));
    uint64_t placed = weft_worker_count(t.b, "tcp.placed_bytes");
    CHECK(places ? placed > BIG / 2 : placed == 0);
    two_down(&t);
}
TEST(a_large_message_places_in_its_memory) {
    whole(1, true);
    whole(5, true);
}
TEST(memory_in_many_pieces_takes_the_same_message) {
    whole(30, true); /* few of them are in one piece of the message */
}

TEST(a_cancelled_receive_ends_while_it_places) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    for (int i = 0; i < 4; i++) {
        sent.calls = 0;
        post(&t, &r, 1 + i, 0, &sent);
        place_half_way(&t, &r);
        weft_request_cancel(r.request);
        CHECK_EQ(r.calls, 0); /* a transport has the memory */
        UNTIL(&t, r.calls && sent.calls);
        untouched_since(&r, WEFT_ERR_CANCELLED);
        still_works(&t);
        untouched_since(&r, WEFT_ERR_CANCELLED);
    }
    two_down(&t);
}

TEST(a_deadline_ends_a_receive_while_it_places_and_the_sender_stands_still) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, 1, 30, &sent);
    UNTIL(&t, r.calls || (r.request->placement != 0 && r.request->offset > 0));
    double end = test_now() + test_timeout(60);
    while (!r.calls && test_now() < end) weft_worker_progress(t.b, 0);
    CHECK(r.calls);
    UNTIL(&t, sent.calls);
    still_works(&t);
    untouched_since(&r, WEFT_ERR_TIMED_OUT);
    two_down(&t);
}

TEST(an_abort_of_the_endpoint_ends_a_receive_while_it_places) {
    struct two t;
    struct receive r;
    struct tally sent = {0}, closed = {0};
    two_up(&t, "tcp");
    post(&t, &r, 2, 0, &sent);
    place_half_way(&t, &r);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls && r.calls && sent.calls && t.errors);
    CHECK(r.status < 0);
    untouched_since(&r, r.status);
    two_down(&t);
}

TEST(the_peers_end_ends_a_receive_while_it_places) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, 1, 0, &sent);
    place_half_way(&t, &r);
    shutdown(tcp_lane(t.ep->link->lane)->watch.fd, SHUT_RDWR);
    UNTIL(&t, r.calls && sent.calls && t.back_errors);
    CHECK_EQ(r.status, WEFT_ERR_PEER_FAILED);
    untouched_since(&r, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

TEST(a_worker_closes_while_a_message_places) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, 1, 0, &sent);
    place_half_way(&t, &r);
    two_down(&t);
    CHECK_EQ(r.calls, 1);
    CHECK_EQ(sent.calls, 1);
    CHECK(r.status < 0);
    untouched_since(&r, r.status);
}

/* ---- gets and puts --------------------------------------------------------------------------- */

static void get_begin(struct rma *g) {
    rma_up(g, "tcp", true, BIG, WEFT_MEM_ALL, NULL, 0);
    pattern(g->target, BIG, 3);
    memset(into, 0x5a, sizeof into);
}

TEST(a_large_get_places_in_its_memory) {
    struct rma g;
    struct tally done;
    get_begin(&g);
    CHECK_EQ(RMA_WAIT(&g, &done, weft_get(g.t.ep, into, BIG, rma_at(&g, 0), g.rkey, OP(&done))),
             WEFT_OK);
    CHECK(is_pattern(into, BIG, 3));
    CHECK(weft_worker_count(g.t.a, "tcp.placed_bytes") > BIG / 2);
    rma_down(&g);
}

TEST(a_large_put_places_in_the_region) {
    struct rma p;
    struct tally done;
    get_begin(&p);
    pattern(from, BIG, 5);
    CHECK_EQ(
        RMA_WAIT(&p, &done, weft_put(p.t.ep, from, BIG, rma_at(&p, 0), p.rkey, RMA_REMOTE(&done))),
        WEFT_OK);
    CHECK(is_pattern(p.target, BIG, 5));
    CHECK(weft_worker_count(p.t.b, "tcp.placed_bytes") > BIG / 2);
    rma_down(&p);
}

/* The sender is not driven: what it has not sent is not waited for. */
TEST(a_region_that_is_taken_back_while_a_put_places_is_free_although_the_sender_stands_still) {
    struct rma p;
    struct tally put = {0}, revoked = {0};
    get_begin(&p);
    pattern(from, BIG, 5);
    memset(p.target, 0x5a, BIG);
    CHECK_EQ(weft_put(p.t.ep, from, BIG, rma_at(&p, 0), p.rkey, RMA_REMOTE(&put)),
             WEFT_IN_PROGRESS);
    UNTIL(&p.t, !list_empty(&p.mem->placements) &&
                    (unsigned char)p.target[64] == (unsigned char)from[64]);
    weft_status_t st = weft_mem_revoke(p.mem, OP(&revoked));
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
    double end = test_now() + test_timeout(60);
    while (st == WEFT_IN_PROGRESS && !revoked.calls && test_now() < end)
        weft_worker_progress(p.t.b, 0);
    CHECK(st == WEFT_OK || revoked.calls);
    memset(p.target, 'x', BIG);
    UNTIL(&p.t, put.calls);
    CHECK_EQ(put.status, WEFT_ERR_REVOKED);
    for (int turn = 0; turn < 200; turn++) two_turn(&p.t);
    for (size_t at = 0; at < BIG; at += 1024) CHECK_EQ(p.target[at], 'x');
    rma_down(&p);
}

TEST(a_cancelled_get_ends_while_it_places) {
    struct rma g;
    struct receive r;
    struct tally small;
    get_begin(&g);
    for (int i = 0; i < 4; i++) {
        memset(&r, 0, sizeof r);
        weft_op_t op = {.done = received, .arg = &r, .request_p = &r.request};
        CHECK_EQ(weft_get(g.t.ep, into, BIG, rma_at(&g, 0), g.rkey, &op), WEFT_IN_PROGRESS);
        place_half_way(&g.t, &r);
        weft_request_cancel(r.request);
        CHECK_EQ(r.calls, 0); /* a transport has the memory */
        UNTIL(&g.t, r.calls);
        untouched_since(&r, WEFT_ERR_CANCELLED);
        CHECK_EQ(
            RMA_WAIT(&g, &small, weft_get(g.t.ep, from, 64, rma_at(&g, 64), g.rkey, OP(&small))),
            WEFT_OK);
        CHECK(memcmp(from, g.target + 64, 64) == 0);
        untouched_since(&r, WEFT_ERR_CANCELLED);
    }
    rma_down(&g);
}
