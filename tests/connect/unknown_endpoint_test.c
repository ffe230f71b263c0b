/* An endpoint that a peer opened and of which the program got no handle is closed by the library
 * when the peer has closed it. Any other stays until the program closes it. */
#include <tests/support/worker_pair.h>

enum { MOST = 8, TIMES = 5 * MOST };

/* Without callbacks for the endpoints of peers; of these a peer may have MOST at a time. */
static void plain_workers(struct two *t, const char *transport) {
    weft_setting_t most = {"peer.max_endpoints", "8"};
    weft_worker_params_t params = {.transports = transport};
    *t = (struct two){0};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = &most, .n_settings = 1},
                                 &t->context),
             0);
    CHECK_EQ(weft_worker_create(t->context, &params, &t->a), 0);
    CHECK_EQ(weft_worker_create(t->context, &params, &t->b), 0);
}

static void open_and_close(struct two *t) {
    struct tally closed = {0};
    t->ready = 0;
    two_dial(t);
    UNTIL(t, t->ready || t->errors);
    CHECK_EQ(t->error, WEFT_OK);
    CHECK_EQ(weft_ep_close(t->ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(t, closed.calls);
}

/* One that stays, so that the others come and go on its connection. */
static void connect_once(struct two *t) {
    two_dial(t);
    UNTIL(t, t->ready);
}

TEST_WIRES(endpoints_that_no_program_knows_end_with_their_peers) {
    struct two t;
    plain_workers(&t, transport);
    connect_once(&t);
    for (int i = 0; i < TIMES; i++) open_and_close(&t);
    two_down(&t);
}

struct shown {
    weft_ep_t *ep;
    int calls;
};
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct shown *shown = arg;
    shown->ep = ep;
    shown->calls++;
}

/* Sends refused: the handle is valid, and lost. */
static void expect_kept(struct two *t, weft_ep_t *ep) {
    struct tally closed = {0};
    CHECK(ep);
    UNTIL(t, weft_am_send(ep, 1, NULL, 0, NULL, 0, NULL) == WEFT_ERR_PEER_CLOSED);
    for (int i = 0; i < 16; i++) two_turn(t);
    CHECK_EQ(weft_am_send(ep, 1, NULL, 0, NULL, 0, NULL), WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(t, closed.calls);
}

TEST_WIRES(an_endpoint_that_a_handler_got_stays) {
    struct two t;
    struct shown shown = {0};
    struct tally closed = {0};
    plain_workers(&t, transport);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_message, &shown), 0);
    connect_once(&t);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL), 0);
    UNTIL(&t, shown.calls);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls);
    expect_kept(&t, shown.ep);
    two_down(&t);
}

TEST_WIRES(an_endpoint_that_a_tagged_message_came_by_stays) {
    struct two t;
    struct tally closed = {0};
    weft_tag_info_t info = {0};
    plain_workers(&t, transport);
    connect_once(&t);
    CHECK_EQ(weft_tag_send(t.ep, 7, NULL, 0, NULL), 0);
    UNTIL(&t, weft_tag_probe(t.b, 7, ~0ull, &info) == WEFT_OK);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls);
    expect_kept(&t, info.ep);
    two_down(&t);
}
