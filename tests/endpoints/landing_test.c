/* Large messages that land in the program's own memory: they are whole, and whatever ends one half way, it completes once
 * and no byte of its memory changes after that. */
#include "two.h"

#include <endpoints/worker.h>
#include <sys/socket.h>
#include <transports/tcp/tcp.h>

enum { BIG = 24 << 20 }; /* more than both sockets hold */
static char from[BIG], into[BIG], shadow[BIG];

struct receive {
    int calls;
    weft_status_t status;
    weft_request_t *request;
};
static void received(weft_status_t status, void *arg) {
    struct receive *r = arg;
    r->calls++;
    r->status = status;
    memcpy(shadow, into, sizeof into);
}

/* Cut into pieces of odd lengths. */
static size_t cut(weft_iov_t *iov, size_t n, char *at, size_t len) {
    for (size_t i = 0; i < n; i++) {
        size_t part = i + 1 < n ? len / n - i % 5 : len;
        iov[i] = (weft_iov_t){at, part};
        at += part;
        len -= part;
    }
    return n;
}

static void post(struct two *t, struct receive *r, size_t pieces, unsigned deadline_ms, struct tally *sent) {
    weft_iov_t iov[32];
    memset(r, 0, sizeof *r);
    memset(into, 0x5a, sizeof into);
    pattern(from, sizeof from, 3);
    weft_op_t op = {.done = received, .arg = r, .request_p = &r->request, .deadline_ms = deadline_ms};
    CHECK_EQ(weft_tag_recv(t->b, 7, UINT64_MAX, iov, cut(iov, pieces, into, sizeof into), NULL, &op),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t->ep, 7, iov, cut(iov, 3, from, sizeof from), OP(sent)), WEFT_IN_PROGRESS);
}

/* One piece is on its way into the memory, and some of it is there. */
static void land_half_way(struct two *t, struct receive *r) {
    UNTIL(t, r->request->landing != 0 && r->request->offset > 0);
    CHECK_EQ(r->calls, 0);
}

/* Everything that is still under way arrives, and the next message does. */
static void still_works(struct two *t) {
    struct tally got = {0};
    char small[64];
    CHECK_EQ(weft_tag_recv(t->b, 9, UINT64_MAX, &(weft_iov_t){small, 64}, 1, NULL, OP(&got)), WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t->ep, 9, &(weft_iov_t){from, 64}, 1, NULL) >= 0);
    UNTIL(t, got.calls);
    CHECK_EQ(got.status, WEFT_OK);
    CHECK(memcmp(small, from, 64) == 0);
}

static void untouched_since(struct receive *r, weft_status_t status) {
    CHECK_EQ(r->calls, 1);
    CHECK_EQ(r->status, status);
    CHECK(memcmp(shadow, into, sizeof into) == 0);
}

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
    double end = two_now() + 5;
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
    shutdown(tcp_lane(t.ep->link->lane)->fd, SHUT_RDWR);
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
