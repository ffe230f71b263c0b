/* What one peer may open is bounded; beyond, it alone is refused, and no other peer notices. */
#include <tests/support/worker_pair.h>

static weft_status_t lost[8];
static int n_ready[8];
static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    lost[(intptr_t)arg] = status;
}
static void on_up(weft_ep_t *ep, void *arg) {
    n_ready[(intptr_t)arg]++;
}

static weft_ep_params_t slot(intptr_t i) {
    lost[i] = WEFT_OK;
    n_ready[i] = 0;
    return (weft_ep_params_t){.on_ready = on_up, .on_error = on_lost, .arg = (void *)i};
}

static weft_ep_t *dial(weft_worker_t *from, weft_worker_t *to, intptr_t i) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    weft_ep_params_t params = slot(i);
    CHECK_EQ(weft_worker_address(to, address, &len), 0);
    CHECK_EQ(weft_connect_address(from, address, len, &params, &ep), 0);
    return ep;
}

static int n_received;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    n_received++;
}

/* What a server does with an endpoint that is lost. */
static void let_go(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

static void three_workers(struct two *t, const char *transport, const weft_setting_t *setting,
                          weft_worker_t **c_p) {
    weft_worker_params_t params = {
        .transports = transport, .on_endpoint = two_on_endpoint, .on_error = let_go, .arg = t};
    memset(t, 0, sizeof *t);
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = setting, .n_settings = 1},
                                 &t->context),
             0);
    CHECK_EQ(weft_worker_create(t->context, &params, &t->a), 0);
    CHECK_EQ(weft_worker_create(t->context, &params, &t->b), 0);
    CHECK_EQ(weft_worker_create(t->context, &params, c_p), 0);
}

static void one_endpoint_too_many(const char *transport) {
    struct two t;
    weft_worker_t *c;
    weft_ep_t *ep[5];
    struct tally closed = {0};
    three_workers(&t, transport, &(weft_setting_t){"peer.max_endpoints", "3"}, &c);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_message, NULL), 0);
    n_received = 0;
    for (int i = 0; i < 5; i++) ep[i] = dial(t.a, t.b, i);
    dial(c, t.b, 5);
    UNTIL(&t, (weft_worker_progress(c, 0),
               n_ready[0] && n_ready[1] && n_ready[2] && lost[3] && lost[4] && n_ready[5]));
    CHECK_EQ(lost[3], WEFT_ERR_QUOTA);
    CHECK_EQ(lost[4], WEFT_ERR_QUOTA);
    CHECK_EQ(t.endpoints, 4);
    for (int i = 0; i < 3; i++)
        CHECK(lost[i] == WEFT_OK && weft_am_send(ep[i], 1, "h", 1, NULL, 0, NULL) == WEFT_OK);
    UNTIL(&t, n_received == 3);
    /* One that goes makes room. */
    CHECK_EQ(weft_ep_close(ep[0], WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls);
    for (int i = 0; i < 200; i++) two_turn(&t);
    dial(t.a, t.b, 6);
    UNTIL(&t, n_ready[6] || lost[6]);
    CHECK_EQ(lost[6], WEFT_OK);
    weft_worker_destroy(c);
    two_down(&t);
}
TEST(a_peer_opens_so_many_endpoints_and_no_more_tcp) {
    one_endpoint_too_many("tcp");
}
TEST(a_peer_opens_so_many_endpoints_and_no_more_shm) {
    one_endpoint_too_many("shm");
}

TEST(a_peer_dials_so_many_links_and_no_more) {
    struct two t;
    weft_worker_t *c;
    three_workers(&t, "tcp", &(weft_setting_t){"peer.max_links", "2"}, &c);
    for (intptr_t i = 0; i < 3; i++) {
        weft_listener_t *listener;
        weft_ep_t *ep;
        weft_ep_params_t params = slot(i);
        CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", NULL, &listener), 0);
        CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &params, &ep), 0);
        UNTIL(&t, n_ready[i] || lost[i]);
    }
    CHECK(n_ready[0] && n_ready[1] && !n_ready[2]);
    CHECK_EQ(lost[2], WEFT_ERR_PEER_CLOSED);
    CHECK(lost[0] == WEFT_OK && lost[1] == WEFT_OK);
    dial(c, t.b, 3); /* another peer gets in */
    UNTIL(&t, (weft_worker_progress(c, 0), n_ready[3] || lost[3]));
    CHECK_EQ(lost[3], WEFT_OK);
    weft_worker_destroy(c);
    two_down(&t);
}

TEST(bounds_beyond_32_bits_refuse_no_one) {
    struct two t;
    weft_setting_t wide[] = {{"peer.max_endpoints", "4294967296"},
                             {"peer.max_links", "4294967296"}};
    two_workers(&t, "shm", wide, 2);
    two_dial(&t);
    UNTIL(&t, (t.ready && t.back) || t.errors);
    CHECK_EQ(t.errors, 0);
    two_down(&t);
}
