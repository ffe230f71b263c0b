/* Large messages that land in the program's own memory: they are whole, and whatever ends one half way, it completes once
 * and no byte of its memory changes after that. */
#include "landings.h"

#include <sys/socket.h>
#include <transports/tcp/tcp.h>

static void whole(size_t pieces, bool lands) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, pieces, 0, &sent);
    UNTIL(&t, r.calls && sent.calls);
    CHECK_EQ(r.status, WEFT_OK);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK(is_pattern(into, sizeof into, 3));
    uint64_t landed = weft_worker_count(t.b, "tcp.landed");
    CHECK(lands ? landed > BIG / 2 : landed == 0);
    two_down(&t);
}
TEST(a_large_message_lands_in_its_memory) {
    whole(1, true);
    whole(5, true);
}
TEST(memory_in_many_pieces_takes_the_same_message) {
    whole(30, true); /* few of them are in one piece of the message */
}

TEST(a_cancelled_receive_ends_while_it_lands) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    for (int i = 0; i < 4; i++) {
        sent.calls = 0;
        post(&t, &r, 1 + i, 0, &sent);
        land_half_way(&t, &r);
        weft_request_cancel(r.request);
        CHECK_EQ(r.calls, 0); /* a transport has the memory */
        UNTIL(&t, r.calls && sent.calls);
        untouched_since(&r, WEFT_ERR_CANCELLED);
        still_works(&t);
        untouched_since(&r, WEFT_ERR_CANCELLED);
    }
    two_down(&t);
}

TEST(a_deadline_ends_a_receive_while_it_lands_and_the_sender_stands_still) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, 1, 30, &sent);
    UNTIL(&t, r.calls || (r.request->landing != 0 && r.request->offset > 0));
    double end = two_now() + test_patience(20);
    while (!r.calls && two_now() < end) weft_worker_progress(t.b, 0);
    CHECK(r.calls);
    UNTIL(&t, sent.calls);
    still_works(&t);
    untouched_since(&r, WEFT_ERR_TIMED_OUT);
    two_down(&t);
}

TEST(an_abort_of_the_endpoint_ends_a_receive_while_it_lands) {
    struct two t;
    struct receive r;
    struct tally sent = {0}, closed = {0};
    two_up(&t, "tcp");
    post(&t, &r, 2, 0, &sent);
    land_half_way(&t, &r);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls && r.calls && sent.calls && t.errors);
    CHECK(r.status < 0);
    untouched_since(&r, r.status);
    two_down(&t);
}

TEST(the_peers_end_ends_a_receive_while_it_lands) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, 1, 0, &sent);
    land_half_way(&t, &r);
    shutdown(tcp_lane(t.ep->link->lane)->watch.fd, SHUT_RDWR);
    UNTIL(&t, r.calls && sent.calls && t.back_errors);
    CHECK_EQ(r.status, WEFT_ERR_PEER_FAILED);
    untouched_since(&r, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

TEST(a_worker_closes_while_a_message_lands) {
    struct two t;
    struct receive r;
    struct tally sent = {0};
    two_up(&t, "tcp");
    post(&t, &r, 1, 0, &sent);
    land_half_way(&t, &r);
    two_down(&t);
    CHECK_EQ(r.calls, 1);
    CHECK_EQ(sent.calls, 1);
    CHECK(r.status < 0);
    untouched_since(&r, r.status);
}
