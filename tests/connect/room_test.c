/* A program that asks for room before it sends has at most one message queued in the library. */
#include <tests/support/worker_pair.h>

enum { ID = 7, MESSAGES = 3000 };

static int arrived, ended;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    unsigned n;
    memcpy(&n, am->header, sizeof n);
    arrived += n == (unsigned)arrived; /* in order, each once */
}
static void on_end(weft_status_t status, void *arg) {
    ended += status == WEFT_OK;
}

/* Sends while there is room; returns how many were not complete within their call. */
static int fill(struct two *t, unsigned *sent, size_t len) {
    static char payload[4096];
    weft_iov_t iov = {payload, len};
    weft_op_t op = {.done = on_end};
    int queued = 0;
    while (*sent < MESSAGES && weft_ep_has_room(t->ep) == WEFT_OK) {
        weft_status_t st = weft_am_send(t->ep, ID, sent, sizeof *sent, &iov, 1, &op);
        CHECK(st >= 0);
        queued += st == WEFT_IN_PROGRESS;
        ++*sent;
    }
    return queued;
}

static void one_is_queued_at_most(const char *transport, size_t len) {
    struct two t;
    unsigned sent = 0;
    int rounds = 0, queued = 0;
    arrived = ended = 0;
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(t.b, ID, on_message, NULL), 0);
    CHECK_EQ(weft_ep_has_room(t.ep), WEFT_OK);
    while (sent < MESSAGES) {
        int here = fill(&t, &sent, len); /* while the peer is not driven */
        CHECK(here <= 1);
        queued += here;
        if (sent == MESSAGES) break;
        CHECK_EQ(weft_ep_has_room(t.ep), WEFT_IN_PROGRESS);
        UNTIL(&t, weft_ep_has_room(t.ep) == WEFT_OK);
        rounds++;
    }
    UNTIL(&t, arrived == MESSAGES && ended == queued);
    CHECK(rounds > 1);
    two_down(&t);
}

TEST(one_message_is_queued_at_most_ring) {
    one_is_queued_at_most("shm", 4096);
}
TEST(one_message_is_queued_at_most_ring_short) {
    one_is_queued_at_most("shm", 8);
}
TEST(one_message_is_queued_at_most_tcp) {
    one_is_queued_at_most("tcp", 4096);
}

TEST(an_endpoint_that_is_not_ready_has_no_room_and_a_lost_one_has_its_status) {
    struct two t;
    char address[256];
    size_t len = sizeof address;
    struct tally closed = {0};
    two_workers(&t, "tcp", NULL, 0);
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    CHECK_EQ(weft_connect_address(t.a, address, len, &params, &t.ep), 0);
    CHECK_EQ(weft_ep_has_room(t.ep), WEFT_IN_PROGRESS);
    UNTIL(&t, t.ready);
    CHECK_EQ(weft_ep_has_room(t.ep), WEFT_OK);
    CHECK_EQ(weft_worker_close(t.b, OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls && t.errors);
    t.b = NULL;
    CHECK_EQ(weft_ep_has_room(t.ep), t.error);
    CHECK_EQ(weft_ep_has_room(NULL), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

TEST(an_endpoint_that_is_closing_refuses) {
    struct two t;
    two_up(&t, "tcp");
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, NULL), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_has_room(t.ep), WEFT_ERR_CLOSED);
    two_down(&t);
}
