/* The ends of endpoints that survive their connection, and what happens while they have none. */
#include <tests/support/kill_child.h>

#include <endpoints/core/endpoint.h>
#include <endpoints/core/link.h>
#include <endpoints/core/worker.h>

static const weft_setting_t short_spin[] = {{"failover.timeout", "60ms"},
                                            {"close.timeout", "300ms"}};
#define SHORT short_spin, sizeof short_spin / sizeof *short_spin

static int came;
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    came++;
}

static void drive(weft_worker_t *worker, double seconds) {
    /* Turns count, too: this process may stand still for all of the time. */
    double end = test_now() + seconds;
    for (int n = 0; n < 1000 || test_now() < end; n++) weft_worker_progress(worker, 0);
}

/* ---- modes ----------------------------------------------------------------------------------- */

static void dial_as(struct two *t, weft_error_mode_t mode, weft_ep_t **ep_p) {
    char address[256];
    size_t len = sizeof address;
    int ready = t->ready;
    CHECK_EQ(weft_worker_address(t->b, address, &len), 0);
    weft_ep_params_t params = {
        .on_ready = two_on_ready, .on_error = two_on_error, .arg = t, .error_mode = mode};
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, ep_p), 0);
    UNTIL(t, t->ready == ready + 1);
}

TEST(endpoints_of_other_modes_share_no_link) {
    struct two t;
    weft_ep_t *ep[4];
    weft_ep_info_t info;
    two_workers(&t, "tcp", NULL, 0);
    dial_as(&t, WEFT_ERRORS_PEER, &ep[0]);
    dial_as(&t, WEFT_ERRORS_FAILOVER, &ep[1]);
    dial_as(&t, WEFT_ERRORS_NONE, &ep[2]);
    dial_as(&t, WEFT_ERRORS_FAILOVER, &ep[3]);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_ep_describe(ep[i], &info), 0);
        CHECK_EQ(info.n_endpoints, 2);
    }
    kill_all();
    /* of the two that share a link one is not notified */
    UNTIL(&t, t.errors == 1 && t.back_errors == 2);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_am_send(ep[2], 1, NULL, 0, NULL, 0, NULL), WEFT_ERR_PEER_FAILED);
    UNTIL(&t, weft_worker_count(t.a, "lanes.resumed") == 1);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    came = 0;
    CHECK(weft_am_send(ep[1], 1, NULL, 0, NULL, 0, NULL) >= 0);
    CHECK(weft_am_send(ep[3], 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, came == 2);
    two_down(&t);
}

TEST(a_mode_that_is_none_is_refused) {
    struct two t;
    weft_ep_t *ep;
    two_workers(&t, "tcp", NULL, 0);
    weft_ep_params_t params = {.error_mode = (weft_error_mode_t)3};
    CHECK_EQ(weft_connect(t.a, "tcp://127.0.0.1:1", &params, &ep), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

/* What happens when the peer dies: failover_death_test. */
TEST(where_lanes_die_with_their_peer_only_nothing_is_retained) {
    struct two t;
    surviving(&t, NULL, 0);
    CHECK(t.ep->link->more->retain && t.back->link->more->retain);
    two_down(&t);
    two_workers(&t, "shm", NULL, 0);
    dial_surviving(&t);
    UNTIL(&t, t.ready && t.back);
    CHECK(!t.ep->link->more->retain && !t.back->link->more->retain);
    two_down(&t);
}

/* ---- timeouts ------------------------------------------------------------------------------- */

TEST(a_dialer_whose_peer_does_not_answer_gives_up_in_time) {
    struct two t;
    struct tally c = {0};
    static char bytes[100000];
    surviving(&t, SHORT);
    kill_all();
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, OP(&c)),
             WEFT_IN_PROGRESS);
    double begin = test_now();
    while (!t.errors && test_now() < begin + test_timeout(60)) weft_worker_progress(t.a, 0);
    CHECK_EQ(t.errors, 1);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    drive(t.a, 0.01);
    CHECK_EQ(c.calls, 1);
    CHECK_EQ(c.status, WEFT_ERR_PEER_FAILED);
    UNTIL(&t, t.back_errors == 1); /* which its dialer forgot */
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

TEST(the_other_side_waits_for_its_dialer_as_long) {
    struct two t;
    surviving(&t, SHORT);
    kill_all();
    double begin = test_now();
    while (!t.back_errors && test_now() < begin + test_timeout(60)) weft_worker_progress(t.b, 0);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_FAILED);
    UNTIL(&t, t.errors == 1); /* its ticket is not valid any more */
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

/* ---- while there is no connection ------------------------------------------------------------ */

TEST(what_waits_can_be_cancelled_and_has_a_deadline) {
    struct two t;
    struct tally cancelled = {0}, late = {0}, kept = {0};
    weft_request_t *req;
    static char bytes[20000];
    weft_iov_t iov = {bytes, sizeof bytes};
    surviving(&t, NULL, 0);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    came = 0;
    kill_all();
    drive(t.a, 0.01); /* it knows, and sends HELLO to a peer that does not read */
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &iov, 1,
                          &(weft_op_t){.done = tally, .arg = &cancelled, .request_p = &req}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &iov, 1,
                          &(weft_op_t){.done = tally, .arg = &late, .deadline_ms = 10}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &iov, 1, OP(&kept)), WEFT_IN_PROGRESS);
    weft_request_cancel(req);
    double begin = test_now();
    while (!late.calls && test_now() < begin + test_timeout(60)) weft_worker_progress(t.a, 0);
    CHECK_EQ(cancelled.calls, 1);
    CHECK_EQ(cancelled.status, WEFT_ERR_CANCELLED);
    CHECK_EQ(late.status, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(kept.calls, 0);
    UNTIL(&t, kept.calls == 1 && came == 1);
    CHECK_EQ(kept.status, 0);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

TEST(a_close_in_good_order_waits_for_the_next_connection) {
    struct two t;
    struct tally closed = {0};
    surviving(&t, NULL, 0);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    came = 0;
    kill_all();
    drive(t.a, 0.01);
    weft_status_t st = weft_am_send(t.ep, 1, "x", 1, NULL, 0, NULL);
    CHECK_EQ(st, WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    drive(t.a, 0.01);
    CHECK_EQ(closed.calls, 0);
    UNTIL(&t, closed.calls == 1 && came == 1 && t.back_errors == 1);
    CHECK_EQ(closed.status, 0);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_CLOSED);
    two_down(&t);
}

TEST(a_close_that_aborts_does_not_wait) {
    struct two t;
    struct tally closed = {0}, sent = {0};
    surviving(&t, NULL, 0);
    kill_all();
    drive(t.a, 0.01);
    CHECK_EQ(weft_am_send(t.ep, 1, "x", 1, NULL, 0, OP(&sent)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    drive(t.a, 0.01);
    CHECK_EQ(sent.calls, 1);
    CHECK_EQ(closed.calls, 1);
    UNTIL(&t, t.back_errors == 1);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_CLOSED);
    two_down(&t);
}

TEST(workers_close_without_a_connection) {
    struct two t;
    static const weft_setting_t short_close = {"close.timeout", "300ms"};
    surviving(&t, &short_close, 1);
    kill_all();
    drive(t.a, 0.01);
    CHECK(weft_am_send(t.ep, 1, "x", 1, NULL, 0, NULL) >= 0);
    two_down(&t);
}

TEST(an_endpoint_may_join_a_link_that_has_no_connection) {
    struct two t;
    weft_ep_t *ep = NULL;
    surviving(&t, NULL, 0);
    kill_all();
    drive(t.a, 0.01);
    int ready = t.ready;
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = &t,
                               .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect_address(t.a, address, len, &params, &ep), 0);
    UNTIL(&t, t.ready == ready + 1);
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(ep, &info), 0);
    CHECK_EQ(info.n_endpoints, 2);
    two_down(&t);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

TEST(what_is_kept_is_bounded_and_sends_wait) {
    static const weft_setting_t settings[] = {{"failover.retain_bytes", "64k"}};
    struct two t;
    struct tally c = {0};
    enum { N = 4000 };
    static char bytes[100];
    surviving(&t, settings, 1);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    came = 0;
    int waiting = 0;
    for (int i = 0; i < N; i++) {
        weft_status_t st =
            weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, OP(&c));
        CHECK(st >= 0);
        waiting += st == WEFT_IN_PROGRESS;
        if (i % 64 == 0) weft_worker_progress(t.a, 0);
    }
    CHECK(N - waiting <= (64 << 10) / 100);
    UNTIL(&t, came == N && c.calls == waiting);
    two_down(&t);
}

TEST(a_flush_means_that_the_peer_has_it) {
    struct two t;
    struct tally c = {0};
    surviving(&t, NULL, 0);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    came = 0;
    CHECK_EQ(weft_am_send(t.ep, 1, "x", 1, NULL, 0, NULL), WEFT_OK);
    CHECK_EQ(weft_ep_flush(t.ep, OP(&c)), WEFT_IN_PROGRESS);
    drive(t.a, 0.02);
    CHECK_EQ(c.calls, 0);
    UNTIL(&t, c.calls == 1);
    CHECK_EQ(c.status, 0);
    CHECK_EQ(came, 1);
    two_down(&t);
}

static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    *(int *)arg = status;
}

/* ---- who is not the peer --------------------------------------------------------------------- */

static void dial_uri(struct two *t, const char *uri) {
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = t,
                               .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect(t->a, uri, &params, &t->ep), 0);
    UNTIL(t, t->ready && t->back);
}

static weft_listener_t *listen_at(struct two *t, weft_worker_t *worker, const char *uri) {
    weft_listener_t *listener;
    weft_listen_params_t params = {
        .on_endpoint = two_on_endpoint, .on_error = two_on_back_error, .arg = t};
    CHECK_EQ(weft_listen(worker, uri, &params, &listener), 0);
    return listener;
}

TEST(by_uri_it_is_dialed_again_and_lost_when_no_one_listens_any_more) {
    struct two t;
    two_workers(&t, "tcp", NULL, 0);
    weft_listener_t *listener = listen_at(&t, t.b, "tcp://127.0.0.1:0");
    dial_uri(&t, weft_listener_uri(listener));
    kill_all();
    UNTIL(&t, weft_worker_count(t.a, "lanes.resumed") == 1 &&
                  weft_worker_count(t.b, "lanes.resumed") == 1);
    weft_listener_close(listener);
    kill_all();
    UNTIL(&t, t.errors == 1);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

/* From either side: both know that the link came by a listener. */
static void keeps_by_address(bool from_dialer) {
    struct two t;
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    int error = 0;
    two_workers(&t, "tcp", NULL, 0);
    weft_listener_t *listener = listen_at(&t, t.b, "tcp://127.0.0.1:0");
    dial_uri(&t, weft_listener_uri(listener));
    weft_worker_t *from = from_dialer ? t.a : t.b, *to = from_dialer ? t.b : t.a;
    CHECK_EQ(weft_worker_address(to, address, &len), 0);
    weft_ep_params_t params = {
        .on_error = on_lost, .arg = &error, .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect_address(from, address, len, &params, &ep), 0);
    UNTIL(&t, weft_ep_is_connected(ep, address, len) == WEFT_OK);
    weft_listener_close(listener);
    kill_all();
    UNTIL(&t, t.errors == 1);
    UNTIL(&t, weft_worker_count(from, "lanes.resumed") == 1);
    CHECK_EQ(weft_am_handler_set(to, 1, on_am, NULL), 0);
    came = 0;
    CHECK(weft_am_send(ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, came == 1);
    CHECK_EQ(error, 0);
    two_down(&t);
}

TEST(by_address_it_survives_whatever_listener_others_came_by) {
    keeps_by_address(true);
    keeps_by_address(false);
}

TEST(another_worker_at_the_same_place_is_not_the_peer) {
    struct two t;
    char uri[64];
    two_workers(&t, "tcp", NULL, 0);
    weft_listener_t *listener = listen_at(&t, t.b, "tcp://127.0.0.1:0");
    snprintf(uri, sizeof uri, "%s", weft_listener_uri(listener));
    dial_uri(&t, uri);
    /* and not acknowledged */
    CHECK_EQ(weft_am_send(t.ep, 1, "for the first", 13, NULL, 0, NULL), WEFT_OK);
    kill_all();
    weft_worker_destroy(t.b);
    CHECK_EQ(weft_worker_create(t.context, &(weft_worker_params_t){.transports = "tcp"}, &t.b), 0);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    came = t.endpoints = 0;
    listen_at(&t, t.b, uri);
    UNTIL(&t, t.errors == 1);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    for (int i = 0; i < 1000; i++) two_turn(&t);
    CHECK_EQ(came + t.endpoints, 0);
    two_down(&t);
}

/* ---- what an endpoint leaves behind ---------------------------------------------------------- */

/* The address that it was dialed by is the link's, and goes with it. */
TEST(endpoints_that_come_and_go_leave_no_memory_with_their_worker) {
    enum { ROUNDS = 6, SETTLED = 2 };
    size_t blocks[ROUNDS];
    struct two t;
    weft_setting_t settings[] = {{"link.linger", "1ms"}};
    two_workers(&t, "tcp", settings, 1);
    for (int i = 0; i < ROUNDS; i++) {
        t.ready = 0;
        dial_surviving(&t);
        UNTIL(&t, t.ready);
        CHECK(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL) >= 0);
        UNTIL(&t, list_empty(&t.a->links));
        drive(t.a, 0.01);
        blocks[i] = talloc_total_blocks(t.a);
    }
    for (int i = SETTLED + 1; i < ROUNDS; i++) CHECK_EQ(blocks[i], blocks[SETTLED]);
    two_down(&t);
}
