/* Listeners: where they may stand, whom they admit, and that they may go at any moment. */
#include <tests/support/worker_pair.h>

static void workers(struct two *t, const char *transport, const char *name, const char *value) {
    weft_setting_t settings[] = {{"close.timeout", "50ms"}, {"log.level", "none"}, {name, value}};
    two_workers(t, transport, settings, name ? 3 : 2);
}

static char long_name[6 + 200 + 1] = "shm://";

/* Malformed addresses; listening and connecting give the same error. */
TEST(places_that_are_none_are_refused_by_name) {
    static const char *const bad[] = {"",
                                      "tcp://",
                                      "tcp://:",
                                      "tcp://127.0.0.1",
                                      "tcp://127.0.0.1:",
                                      "tcp://127.0.0.1:65536",
                                      "tcp://127.0.0.1:-1",
                                      "tcp://127.0.0.1:12x",
                                      "tcp://256.0.0.1:0",
                                      "tcp://[::1:0",
                                      "tcp://no.such.host.invalid:0",
                                      "shm://",
                                      "shm://a/b",
                                      "shm://..",
                                      "shm://.hidden",
                                      long_name,
                                      "nothing",
                                      "://x"};
    static const char *const nobodys[] = {"warp://x", "rdma://127.0.0.1:1"};
    struct two t;
    weft_listener_t *listener = NULL;
    weft_ep_t *ep = NULL;
    memset(long_name + 6, 'x', 200);
    workers(&t, "shm,tcp", NULL, NULL);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_status_t listens = weft_listen(t.a, bad[i], NULL, &listener);
        weft_status_t connects = weft_connect(t.a, bad[i], NULL, &ep);
        if (listens != WEFT_ERR_ADDRESS || connects != WEFT_ERR_ADDRESS)
            printf("  %s: %s, %s\n", bad[i], weft_status_name(listens), weft_status_name(connects));
        CHECK(listens == WEFT_ERR_ADDRESS && connects == WEFT_ERR_ADDRESS);
        CHECK(!listener && !ep);
    }
    for (unsigned i = 0; i < sizeof nobodys / sizeof *nobodys; i++) {
        CHECK_EQ(weft_listen(t.a, nobodys[i], NULL, &listener), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_connect(t.a, nobodys[i], NULL, &ep), WEFT_ERR_UNSUPPORTED);
    }
    char text[600];
    CHECK_EQ(weft_connect(t.a, "udp://127.0.0.1:1", NULL, &ep), WEFT_ERR_UNSUPPORTED);
    weft_status_describe(WEFT_ERR_UNSUPPORTED, text, sizeof text);
    CHECK(strstr(text, "'udp' of 'udp://127.0.0.1:1' is no scheme of this build"));
    CHECK(strstr(text, "self, shm, tcp, sim"));
    CHECK_EQ(weft_listen(t.a, "sim://x", NULL, &listener), WEFT_ERR_UNSUPPORTED);
    weft_status_describe(WEFT_ERR_UNSUPPORTED, text, sizeof text);
    CHECK(strstr(text, "this worker has not opened the transport of 'sim://x'"));
    CHECK_EQ(
        weft_listen(t.a, "tcp://127.0.0.1:0", &(weft_listen_params_t){.backlog = -1}, &listener),
        WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_listen(NULL, "tcp://127.0.0.1:0", NULL, &listener), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_listen(t.a, NULL, NULL, &listener), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_listen(t.a, "tcp://127.0.0.1:0", NULL, NULL), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

TEST(a_place_is_taken_once_and_free_again_after) {
    struct two t;
    weft_listener_t *first, *second;
    char uri[64];
    workers(&t, "tcp", NULL, NULL);
    CHECK_EQ(weft_listen(t.a, "tcp://127.0.0.1:0", NULL, &first), 0);
    snprintf(uri, sizeof uri, "%s", weft_listener_uri(first));
    CHECK_EQ(weft_listen(t.b, uri, NULL, &second), WEFT_ERR_EXISTS);
    weft_listener_close(first);
    CHECK_EQ(weft_listen(t.b, uri, NULL, &second), 0);
    CHECK(!strcmp(weft_listener_uri(second), uri));
    two_down(&t);
}

/* Beyond loopback only with a key, or by saying so. */
TEST(all_interfaces_need_a_key_or_consent) {
    struct two t;
    weft_listener_t *listener;
    workers(&t, "tcp", NULL, NULL);
    CHECK_EQ(weft_listen(t.b, "tcp://*:0", NULL, &listener), WEFT_ERR_INSECURE);
    CHECK_EQ(weft_listen(t.b, "tcp://0.0.0.0:0", NULL, &listener), WEFT_ERR_INSECURE);
    CHECK_EQ(weft_listen(t.b, "tcp://[::]:0", NULL, &listener), WEFT_ERR_INSECURE);
    two_down(&t);

    weft_ep_t *ep;
    char uri[64];
    workers(&t, "tcp", "tcp.insecure", "yes");
    weft_listen_params_t params = {.on_endpoint = two_on_endpoint, .arg = &t};
    CHECK_EQ(weft_listen(t.b, "tcp://*:0", &params, &listener), 0);
    const char *port = strrchr(weft_listener_uri(listener), ':');
    CHECK(port && atoi(port + 1) > 0);
    snprintf(uri, sizeof uri, "tcp://127.0.0.1%s", port);
    CHECK_EQ(weft_connect(t.a, uri, &(weft_ep_params_t){.on_ready = two_on_ready, .arg = &t}, &ep),
             0);
    UNTIL(&t, t.ready && t.endpoints == 1);
    two_down(&t);
}

/* ---- going while someone comes */

static weft_listener_t *door;
static void close_the_door(weft_ep_t *ep, void *arg) {
    two_on_endpoint(ep, arg);
    if (door) weft_listener_close(door);
    door = NULL;
}
static weft_status_t close_and_admit(const char *peer, void *arg) {
    struct two *t = arg;
    t->endpoints += 100;
    if (door) weft_listener_close(door);
    door = NULL;
    return WEFT_OK;
}

static void knock(const char *transport, const char *uri, bool at_request) {
    struct two t;
    struct tally c = {0};
    weft_ep_t *ep[2];
    workers(&t, transport, NULL, NULL);
    weft_listen_params_t params = {.on_endpoint = at_request ? two_on_endpoint : close_the_door,
                                   .on_request = at_request ? close_and_admit : NULL,
                                   .on_error = two_on_back_error,
                                   .arg = &t};
    weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    CHECK_EQ(weft_listen(t.b, uri, &params, &door), 0);
    char where[160];
    snprintf(where, sizeof where, "%s", weft_listener_uri(door));
    CHECK_EQ(weft_connect(t.a, where, &ours, &ep[0]), 0);
    CHECK_EQ(weft_connect(t.a, where, &ours, &ep[1]), 0);
    UNTIL(&t, t.ready + t.errors == 2);
    CHECK(!door);
    if (at_request) { /* the listener is gone */
        CHECK_EQ(t.errors, 2);
        CHECK_EQ(t.endpoints, 100);
    } else {
        CHECK(t.ready >= 1 && t.endpoints == t.ready);
        CHECK(weft_am_send(ep[0], 1, NULL, 0, NULL, 0, OP(&c)) >= 0);
    }
    if (t.errors) CHECK_EQ(t.error, WEFT_ERR_REFUSED);
    two_down(&t);
}
TEST(a_listener_closes_within_on_endpoint_tcp) {
    knock("tcp", "tcp://127.0.0.1:0", false);
}
TEST(a_listener_closes_within_on_endpoint_shm) {
    knock("shm", "shm://door-a", false);
}
TEST(a_listener_closes_within_on_request_tcp) {
    knock("tcp", "tcp://127.0.0.1:0", true);
}
TEST(a_listener_closes_within_on_request_shm) {
    knock("shm", "shm://door-b", true);
}

/* Whatever the reason here, the peer learns that it was rejected; the callback here named the
 * peer. */
static weft_status_t reason;
static char visitor[128];
static weft_status_t judge(const char *peer, void *arg) {
    snprintf(visitor, sizeof visitor, "%s", peer);
    return reason;
}
TEST(each_request_is_judged_by_itself) {
    struct two t;
    weft_listener_t *listener;
    workers(&t, "tcp", NULL, NULL);
    weft_listen_params_t params = {.on_request = judge, .on_endpoint = two_on_endpoint, .arg = &t};
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", &params, &listener), 0);
    static const weft_status_t reasons[] = {WEFT_ERR_AUTH, WEFT_OK, WEFT_ERR_BUSY, WEFT_OK,
                                            WEFT_ERR_QUOTA};
    int admitted = 0;
    for (unsigned i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        weft_ep_t *ep;
        weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
        reason = reasons[i];
        t.ready = t.errors = 0;
        visitor[0] = '\0';
        CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &ours, &ep), 0);
        UNTIL(&t, t.ready + t.errors == 1);
        CHECK_EQ(t.ready, reason == WEFT_OK);
        if (reason != WEFT_OK) CHECK_EQ(t.error, WEFT_ERR_REJECTED);
        admitted += reason == WEFT_OK;
        CHECK(strstr(visitor, "127.0.0.1"));
    }
    UNTIL(&t, t.endpoints == admitted);
    two_down(&t);
}

/* ---- crowds */

TEST(a_thousand_connects_at_once_all_enter) {
    enum { CROWD = 20, EACH = 50 };
    struct two t;
    weft_listener_t *listener;
    weft_worker_t *accepted[CROWD];
    workers(&t, "tcp", NULL, NULL);
    weft_listen_params_t params = {
        .on_endpoint = two_on_endpoint, .on_error = two_on_back_error, .arg = &t};
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", &params, &listener), 0);
    weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    for (int i = 0; i < CROWD; i++) {
        weft_ep_t *ep;
        CHECK_EQ(weft_worker_create(t.context, &(weft_worker_params_t){.transports = "tcp"},
                                    &accepted[i]),
                 0);
        for (int k = 0; k < EACH; k++)
            CHECK_EQ(weft_connect(accepted[i], weft_listener_uri(listener), &ours, &ep), 0);
    }
    double end = test_now() + test_timeout(30);
    while ((t.ready < CROWD * EACH || t.endpoints < CROWD * EACH) && test_now() < end) {
        two_turn(&t);
        for (int i = 0; i < CROWD; i++) weft_worker_progress(accepted[i], 0);
    }
    CHECK_EQ(t.ready, CROWD * EACH);
    CHECK_EQ(t.endpoints, CROWD * EACH);
    CHECK_EQ(t.errors, 0);
    for (int i = 0; i < CROWD; i++) weft_worker_destroy(accepted[i]);
    UNTIL(&t, t.back_errors == CROWD * EACH);
    two_down(&t);
}

/* ---- listeners and addresses side by side */

static int at_listener;
static void on_at_listener(weft_ep_t *ep, void *arg) {
    at_listener++;
}

/* An address names the worker: an endpoint to it is the worker's, whichever link it shares. */
static void by_address(bool back) {
    struct two t;
    weft_listener_t *listener;
    weft_ep_t *first, *second;
    char address[256];
    size_t len = sizeof address;
    at_listener = 0;
    workers(&t, "tcp", NULL, NULL);
    weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0",
                         &(weft_listen_params_t){.on_endpoint = on_at_listener}, &listener),
             0);
    CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &ours, &first), 0);
    UNTIL(&t, t.ready == 1 && at_listener == 1);
    CHECK_EQ(weft_worker_address(back ? t.a : t.b, address, &len), 0);
    CHECK_EQ(weft_connect_address(back ? t.b : t.a, address, len, &ours, &second), 0);
    UNTIL(&t, t.ready + t.errors == 2);
    CHECK_EQ(t.errors, 0);
    UNTIL(&t, t.endpoints == 1);
    CHECK_EQ(at_listener, 1);
    two_down(&t);
}
TEST(an_address_over_a_listeners_link_is_the_workers) {
    by_address(false);
}
TEST(an_address_back_over_an_accepted_link_is_the_workers) {
    by_address(true);
}

/* One by URI and one by address, at once, from both sides: neither waits for the other. */
TEST(a_link_by_uri_is_no_duplicate) {
    for (int turns = 0; turns < 12; turns++) {
        struct two t;
        weft_listener_t *listener;
        weft_ep_t *ab, *ba;
        char address[256];
        size_t len = sizeof address;
        workers(&t, "tcp", "connect.timeout", "15s");
        weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
        CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", NULL, &listener), 0);
        CHECK_EQ(weft_worker_address(t.a, address, &len), 0);
        CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &ours, &ab), 0);
        /* B does not know A's accepted link yet when it dials; A's link may be up when B's
         * accepted link sends its handshake. */
        for (int i = 0; i < turns; i++) weft_worker_progress(i % 2 ? t.b : t.a, 0);
        CHECK_EQ(weft_connect_address(t.b, address, len, &ours, &ba), 0);
        UNTIL(&t, t.ready + t.errors == 2);
        CHECK_EQ(t.errors, 0);
        two_down(&t);
    }
}

/* A worker that closes opens nothing more, from within its last callbacks neither. */
static weft_worker_t *closing;
static weft_status_t late;
static void listen_late(weft_status_t status, void *arg) {
    weft_listener_t *listener;
    late = weft_listen(closing, "tcp://127.0.0.1:0", NULL, &listener);
}
TEST(no_one_listens_at_a_worker_that_closes) {
    struct two t;
    char in[4];
    workers(&t, "tcp", NULL, NULL);
    closing = t.a;
    late = WEFT_OK;
    CHECK_EQ(
        weft_tag_recv(t.a, 1, 1, &(weft_iov_t){in, 4}, 1, NULL, &(weft_op_t){.done = listen_late}),
        WEFT_IN_PROGRESS);
    two_down(&t);
    CHECK_EQ(late, WEFT_ERR_CLOSED);
}
