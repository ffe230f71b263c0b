/* Endpoints come and go in every order, and each reports its end once. */
#include <tests/sockets.h>
#include <tests/support/worker_pair.h>

static int closed_calls;
static void on_closed(weft_status_t status, void *arg) {
    closed_calls++;
    if (arg) *(weft_status_t *)arg = status;
}
#define CLOSED (&(weft_op_t){.done = on_closed})
/* In good order, with all the time that it needs. */
#define FLUSHED (&(weft_op_t){.done = on_closed, .deadline_ms = 60000})

TEST_EACH(a_close_notifies_the_peer_once) {
    struct two t;
    two_up(&t, transport);
    closed_calls = 0;
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, FLUSHED), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, FLUSHED), WEFT_ERR_BUSY);
    CHECK_EQ(closed_calls, 0);
    UNTIL(&t, closed_calls == 1 && t.back_errors == 1);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(t.errors, 0);
    CHECK_EQ(weft_am_send(t.back, 1, NULL, 0, NULL, 0, NULL), WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, CLOSED), WEFT_IN_PROGRESS);
    UNTIL(&t, closed_calls == 2);
    two_down(&t);
}

/* Whether its link is still there or not. */
TEST_EACH(a_close_reports_what_the_endpoint_was_lost_with) {
    for (int gone = 0; gone < 2; gone++) {
        struct two t;
        weft_status_t first = WEFT_IN_PROGRESS, second = WEFT_IN_PROGRESS;
        two_up(&t, transport);
        weft_op_t one = {.done = on_closed, .arg = &first, .deadline_ms = 60000},
                  two = {.done = on_closed, .arg = &second};
        CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, &one), WEFT_IN_PROGRESS);
        UNTIL(&t, first <= 0 && t.back_errors == 1);
        CHECK_EQ(first, WEFT_OK);
        if (gone && t.b) weft_worker_destroy(t.a), t.a = NULL;
        for (int i = 0; i < 100; i++) two_turn(&t);
        CHECK_EQ(weft_ep_close(t.back, gone ? WEFT_CLOSE_FLUSH : WEFT_CLOSE_ABORT, &two),
                 WEFT_IN_PROGRESS);
        UNTIL(&t, second <= 0);
        CHECK_EQ(second, WEFT_ERR_PEER_CLOSED);
        two_down(&t);
    }
}

static int received;
static void on_any(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}

TEST_EACH(a_flush_close_delivers_everything_before_it) {
    struct two t;
    struct tally c = {0};
    int waiting = 0;
    static char bytes[2000];
    received = closed_calls = 0;
    two_workers(&t, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 1, on_any, NULL), 0);
    two_dial(&t);
    /* Still connecting: the close must wait for the connection and for all of these. */
    for (int i = 0; i < 500; i++) {
        weft_status_t st =
            weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, OP(&c));
        CHECK(st >= 0);
        waiting += st == WEFT_IN_PROGRESS;
    }
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, FLUSHED), WEFT_IN_PROGRESS);
    UNTIL(&t, closed_calls == 1);
    UNTIL(&t, received >= 500);
    CHECK_EQ(c.calls, waiting);
    CHECK_EQ(c.status, WEFT_OK);
    two_down(&t);
}

TEST_EACH(an_abort_ends_what_waits_once_each) {
    struct two t;
    struct tally c = {0};
    static char big[300000];
    two_up(&t, transport);
    closed_calls = 0;
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){big, sizeof big}, 1, OP(&c)),
                 WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, CLOSED), WEFT_IN_PROGRESS);
    CHECK_EQ(c.calls, 0);
    UNTIL(&t, closed_calls == 1);
    CHECK_EQ(c.calls, 20);
    CHECK_EQ(c.status, WEFT_ERR_CLOSED);
    two_down(&t);
}

TEST_EACH(close_while_dialing_cancels_nothing_and_leaks_nothing) {
    struct two t;
    two_workers(&t, transport, NULL, 0);
    two_dial(&t);
    closed_calls = 0;
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, FLUSHED), WEFT_IN_PROGRESS);
    UNTIL(&t, closed_calls == 1);
    for (int i = 0; i < 200; i++) two_turn(&t);
    CHECK_EQ(t.errors, 0);
    CHECK(t.endpoints == 0 || t.back_errors == 1);
    two_down(&t);
}

/* A close in good order waits for a receiver, of which there is none. */
TEST_EACH(an_abort_shortens_a_close_that_has_begun) {
    struct two t;
    struct tally c = {0}, flushing = {0}, aborting = {0};
    static char big[300000];
    two_up(&t, transport);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){big, sizeof big}, 1, OP(&c)),
                 WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&flushing)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 100; i++) two_turn(&t);
    CHECK_EQ(flushing.calls, 0);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, NULL), WEFT_ERR_BUSY);
    weft_request_t *none = (void *)1;
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT,
                           &(weft_op_t){.done = tally, .arg = &aborting, .request_p = &none}),
             WEFT_IN_PROGRESS);
    CHECK(!none);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL), WEFT_ERR_BUSY);
    CHECK_EQ(flushing.calls + aborting.calls, 0);
    UNTIL(&t, flushing.calls && aborting.calls);
    CHECK_EQ(flushing.status, WEFT_ERR_CLOSED);
    CHECK_EQ(aborting.status, WEFT_ERR_CLOSED);
    CHECK_EQ(c.calls, 20);
    CHECK_EQ(c.status, WEFT_ERR_CLOSED);
    UNTIL(&t, t.back_errors == 1);
    for (int i = 0; i < 100; i++) two_turn(&t);
    CHECK_EQ(flushing.calls, 1);
    CHECK_EQ(aborting.calls, 1);
    two_down(&t);
}

static void describe_end(weft_status_t status, void *text) {
    weft_status_describe(status, text, 400);
}
static void fail_and_describe_end(weft_status_t status, void *text) {
    CHECK_EQ(weft_connect(NULL, NULL, NULL, NULL), WEFT_ERR_INVALID_PARAM);
    weft_status_describe(status, text, 400);
}

/* Each of the two gets the cause, whatever the other one calls. */
TEST(an_abort_of_a_close_names_itself) {
    struct two t;
    char first[400] = "", second[400] = "";
    static char big[300000];
    two_up(&t, "tcp");
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){big, sizeof big}, 1, NULL), WEFT_IN_PROGRESS);
    weft_op_t one = {.done = fail_and_describe_end, .arg = first, .deadline_ms = 60000},
              two = {.done = describe_end, .arg = second};
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, &one), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, &two), WEFT_IN_PROGRESS);
    UNTIL(&t, *second);
    CHECK(strstr(second, "an abort ended the close"));
    CHECK(strstr(first, "WEFT_ERR_CLOSED"));
    two_down(&t);
}

/* Of one that is held until the endpoint is connected, and by an abort that reports to no one. */
TEST_EACH(an_abort_shortens_a_close_that_waits_for_the_connection) {
    struct two t;
    struct tally sent = {0}, flushing = {0};
    two_workers(&t, transport, NULL, 0);
    two_dial(&t);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, OP(&sent)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&flushing)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, flushing.calls);
    CHECK_EQ(flushing.status, WEFT_ERR_CLOSED);
    CHECK_EQ(sent.calls, 1);
    CHECK_EQ(sent.status, WEFT_ERR_CLOSED);
    two_down(&t);
}

/* What is closed without a program that asked, or by an abort, has nothing to shorten. */
TEST(an_abort_of_an_abort_is_busy) {
    struct two t;
    struct tally closed = {0};
    two_up(&t, "tcp");
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL), WEFT_ERR_BUSY);
    UNTIL(&t, closed.calls && t.back_errors);
    CHECK_EQ(closed.status, WEFT_OK);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_FLUSH, OP(&closed)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, NULL), WEFT_ERR_BUSY); /* it was lost */
    UNTIL(&t, closed.calls == 2);
    CHECK_EQ(closed.status, WEFT_ERR_PEER_CLOSED);
    two_down(&t);
}

static void close_in_handler(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
    if (received == 1) weft_ep_close(ep, WEFT_CLOSE_ABORT, CLOSED);
}

/* The header says both. */
TEST_EACH(what_is_sent_behind_a_close_is_sent_before_the_connection_and_refused_after_it) {
    struct two t;
    struct tally closed = {0};
    two_workers(&t, transport, NULL, 0);
    received = 0;
    CHECK_EQ(weft_am_handler_set(t.b ? t.b : t.a, 1, on_any, NULL), 0);
    two_dial(&t);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, OP(&closed)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls && received == 2);
    CHECK_EQ(closed.status, WEFT_OK);
    two_dial(&t);
    UNTIL(&t, t.ready);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, OP(&closed)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL), WEFT_ERR_CLOSED);
    UNTIL(&t, closed.calls == 2);
    two_down(&t);
}

TEST_EACH(an_endpoint_is_closed_from_its_own_handler) {
    struct two t;
    received = closed_calls = 0;
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 1, close_in_handler, NULL), 0);
    for (int i = 0; i < 50; i++)
        CHECK(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
    UNTIL(&t, closed_calls == 1 && t.errors == 1);
    CHECK_EQ(t.error, WEFT_ERR_PEER_CLOSED);
    two_down(&t);
}

TEST_EACH(many_endpoints_share_one_link) {
    enum { N = 200 };
    struct two t;
    weft_ep_t *ep[N];
    char address[256];
    size_t len = sizeof address;
    weft_ep_info_t info;
    two_workers(&t, transport, NULL, 0);
    CHECK_EQ(weft_worker_address(two_b(&t), address, &len), 0);
    for (int i = 0; i < N; i++)
        CHECK_EQ(weft_connect_address(t.a, address, len,
                                      &(weft_ep_params_t){.on_ready = two_on_ready, .arg = &t},
                                      &ep[i]),
                 0);
    UNTIL(&t, t.ready == N && t.endpoints == N);
    CHECK_EQ(weft_ep_describe(ep[N - 1], &info), 0);
    CHECK_EQ(info.n_endpoints, N);
    CHECK_EQ(info.n_lanes, 1);
    CHECK(!strcmp(info.transport, transport));
    CHECK(strlen(info.why) > 0 && strlen(info.peer) > 0);
    closed_calls = 0;
    for (int i = 0; i < N; i++)
        CHECK_EQ(weft_ep_close(ep[i], WEFT_CLOSE_FLUSH, FLUSHED), WEFT_IN_PROGRESS);
    UNTIL(&t, closed_calls == N && t.back_errors == N);
    two_down(&t);
}

/* Both dial at the same time; one lane stays, both endpoints work. */
static void simultaneous(const char *transport) {
    struct two t;
    char address[2][256];
    size_t len[2] = {256, 256};
    weft_ep_t *ab, *ba;
    weft_ep_info_t ia, ib;
    int ready = 0;
    two_workers(&t, transport, NULL, 0);
    received = 0;
    CHECK_EQ(weft_am_handler_set(t.a, 1, on_any, NULL), 0);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_any, NULL), 0);
    CHECK_EQ(weft_worker_address(t.a, address[0], &len[0]), 0);
    CHECK_EQ(weft_worker_address(t.b, address[1], &len[1]), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    CHECK_EQ(weft_connect_address(t.a, address[1], len[1], &params, &ab), 0);
    CHECK_EQ(weft_connect_address(t.b, address[0], len[0], &params, &ba), 0);
    UNTIL(&t, t.ready == 2);
    CHECK(weft_am_send(ab, 1, NULL, 0, NULL, 0, NULL) >= 0);
    CHECK(weft_am_send(ba, 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, received == 2);
    CHECK_EQ(weft_ep_describe(ab, &ia), 0);
    CHECK_EQ(weft_ep_describe(ba, &ib), 0);
    CHECK_EQ(ia.n_endpoints, 2);
    CHECK_EQ(ib.n_endpoints, 2);
    CHECK_EQ(t.errors + t.back_errors + ready, 0);
    two_down(&t);
}
TEST(simultaneous_connects_end_on_one_link_shm) {
    simultaneous("shm");
}
TEST(simultaneous_connects_end_on_one_link_tcp) {
    simultaneous("tcp");
}

static weft_status_t refuse_all(const char *peer, void *arg) {
    return WEFT_ERR_REJECTED;
}

static void listen_and_connect(const char *transport, const char *uri) {
    struct two t;
    weft_listener_t *listener, *grumpy, *again;
    weft_ep_t *ep[3];
    two_workers(&t, transport, NULL, 0);
    received = 0;
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_any, NULL), 0);
    CHECK_EQ(weft_listen(t.b, uri,
                         &(weft_listen_params_t){.on_endpoint = two_on_endpoint,
                                                 .on_error = two_on_back_error,
                                                 .arg = &t},
                         &listener),
             0);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    const char *where = weft_listener_uri(listener);
    CHECK_EQ(weft_listen(t.b, where, NULL, &again), WEFT_ERR_EXISTS);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_connect(t.a, where, &params, &ep[i]), 0);
    for (int i = 0; i < 3; i++) CHECK(weft_am_send(ep[i], 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, t.ready == 3 && t.endpoints == 3 && received == 3);

    char other[160];
    snprintf(other, sizeof other, "%s", uri);
    if (!strcmp(transport, "shm")) strcat(other, "-grumpy");
    CHECK_EQ(weft_listen(t.b, other, &(weft_listen_params_t){.on_request = refuse_all}, &grumpy),
             0);
    weft_ep_t *refused;
    CHECK_EQ(weft_connect(t.a, weft_listener_uri(grumpy), &params, &refused), 0);
    UNTIL(&t, t.errors == 1);
    CHECK_EQ(t.error, WEFT_ERR_REJECTED);

    snprintf(other, sizeof other, "%s", weft_listener_uri(listener));
    weft_listener_close(listener);
    weft_listener_close(grumpy);
    /* Those accepted go on; new links find no listener. */
    CHECK(weft_am_send(ep[0], 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, received == 4);
    two_down(&t);

    struct two u;
    two_workers(&u, transport, NULL, 0);
    params.arg = &u;
    weft_status_t st = weft_connect(u.a, other, &params, &ep[0]);
    if (st == WEFT_OK) {
        UNTIL(&u, u.errors == 1);
        st = u.error;
    }
    CHECK_EQ(st, WEFT_ERR_REFUSED);
    two_down(&u);
}
TEST(listeners_accept_and_reject_tcp) {
    listen_and_connect("tcp", "tcp://127.0.0.1:0");
}
TEST(listeners_accept_and_reject_tcp_v6) {
    if (!have_ipv6()) SKIP("no IPv6 here");
    listen_and_connect("tcp", "tcp://[::1]:0");
}
TEST(listeners_accept_and_reject_shm) {
    listen_and_connect("shm", "shm://life-test");
}

TEST(the_cheapest_transport_that_reaches_is_chosen_and_states_why) {
    struct two t;
    weft_ep_info_t info;
    two_workers(&t, "self,shm,tcp", NULL, 0);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    CHECK_EQ(weft_ep_describe(t.ep, &info), 0);
    CHECK(!strcmp(info.transport, "shm"));
    CHECK(strstr(info.why, "tcp") && strstr(info.why, "shm"));
    char own[256];
    size_t len = sizeof own;
    CHECK_EQ(weft_worker_address(t.a, own, &len), 0);
    weft_ep_t *self;
    CHECK_EQ(weft_connect_address(t.a, own, len, NULL, &self), 0);
    CHECK_EQ(weft_ep_describe(self, &info), 0);
    CHECK(!strcmp(info.transport, "self"));
    two_down(&t);
}

TEST(addresses_that_are_none_are_refused) {
    struct two t;
    char address[256];
    size_t len = sizeof address, small = 5;
    weft_ep_t *ep;
    two_workers(&t, "shm,tcp", NULL, 0);
    CHECK_EQ(weft_worker_address(t.b, address, &small), WEFT_ERR_TRUNCATED);
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    CHECK_EQ(small, len);
    for (size_t cut = 1; cut < len; cut++)
        CHECK(weft_connect_address(t.a, address, cut, NULL, &ep) < 0);
    CHECK_EQ(weft_connect_address(t.a, address, 0, NULL, &ep), WEFT_ERR_ADDRESS);
    CHECK_EQ(weft_connect(t.a, "nonsense", NULL, &ep), WEFT_ERR_ADDRESS);
    CHECK_EQ(weft_connect(t.a, "warp://x", NULL, &ep), WEFT_ERR_UNSUPPORTED);
    CHECK(weft_connect(t.a, "tcp://", NULL, &ep) < 0);
    CHECK(weft_connect(t.a, "tcp://127.0.0.1:99999", NULL, &ep) < 0);
    CHECK_EQ(weft_connect(t.a, NULL, NULL, &ep), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

TEST(a_worker_lives_once_and_the_context_outlives_it) {
    weft_context_t *context;
    weft_worker_t *worker;
    char text[512];
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "warp"}, &worker),
             WEFT_ERR_INVALID_PARAM);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    CHECK(strstr(text, "there is no transport 'warp'; this build has self, shm, tcp"));
    CHECK_EQ(weft_worker_create(NULL, NULL, &worker), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), 0);
    CHECK_EQ(weft_context_destroy(context), WEFT_ERR_BUSY);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* The worker goes with everything that still hangs on it; each callback comes first. */
TEST_EACH(closing_the_worker_ends_everything_once) {
    struct two t;
    struct tally c = {0}, r = {0};
    static char big[300000];
    char in[10];
    two_up(&t, transport);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){big, sizeof big}, 1, OP(&c)),
                 WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(t.a, 99, UINT64_MAX, &(weft_iov_t){in, 10}, 1, NULL, OP(&r)),
             WEFT_IN_PROGRESS);
    two_down(&t);
    CHECK_EQ(c.calls, 5);
    CHECK_EQ(r.calls, 1);
    CHECK_EQ(r.status, WEFT_ERR_CLOSED);
}

static void count_line(weft_log_level_t level, const char *room, const char *line, void *arg) {
    ++*(int *)arg;
    fprintf(stderr, "  %s: %s\n", room, line);
}

/* The last notice of one that was closed just before is still to come when the worker ends its
 * endpoints. */
TEST(a_worker_closes_right_after_its_endpoint) {
    int lines = 0;
    struct tally closed = {0};
    struct two t = {0};
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.log = count_line, .log_arg = &lines},
                                 &t.context),
             0);
    CHECK_EQ(weft_worker_create(t.context, &(weft_worker_params_t){.transports = "self"}, &t.a), 0);
    CHECK_EQ(weft_worker_address(t.a, address, &len), 0);
    CHECK_EQ(weft_connect_address(t.a, address, len, NULL, &t.ep), 0);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    two_down(&t);
    CHECK_EQ(closed.calls, 1);
    CHECK_EQ(closed.status, 0);
    CHECK_EQ(lines, 0);
}
