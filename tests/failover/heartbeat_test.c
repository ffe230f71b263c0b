/* Heartbeats, which an endpoint must ask for: a worker that is not driven is dead to it, and to
 * no other. */
#include <endpoints/wire/lane_ctrl.h>

#include <tests/support/kill_child.h>
#include <tests/support/raw_peer.h>

enum { MS = 250 };

static weft_status_t dial_with(struct two *t, uint32_t heartbeat_ms, weft_error_mode_t mode,
                               weft_ep_t **ep_p) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(two_b(t), address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = t,
                               .error_mode = mode,
                               .heartbeat_ms = heartbeat_ms};
    return weft_connect_address(t->a, address, len, &params, ep_p);
}

static void up(struct two *t, const char *transport, uint32_t heartbeat_ms, weft_error_mode_t mode,
               const weft_setting_t *settings, size_t n) {
    two_workers(t, transport, settings, n);
    CHECK_EQ(dial_with(t, heartbeat_ms, mode, &t->ep), 0);
    UNTIL(t, t->ready && t->back);
}

/* Only the asking side, until `cond`, or so long. */
#define ALONE(t, seconds, cond)                                             \
    for (double end = test_now() + (seconds); test_now() < end && !(cond);) \
    weft_worker_wait((t)->a, 10)

static void silent_peer_is_dead(const char *transport) {
    struct two t;
    up(&t, transport, MS, WEFT_ERRORS_PEER, NULL, 0);
    ALONE(&t, test_timeout(20), t.errors);
    CHECK_EQ(t.errors, 1);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}
TEST(a_peer_that_no_one_drives_is_dead_tcp) {
    silent_peer_is_dead("tcp");
}
TEST(a_peer_that_no_one_drives_is_dead_shm) {
    silent_peer_is_dead("shm");
}

TEST(without_heartbeats_a_peer_that_computes_is_not_dead) {
    struct two t;
    up(&t, "tcp", 0, WEFT_ERRORS_PEER, NULL, 0);
    ALONE(&t, 4 * MS * 1e-3, t.errors);
    CHECK_EQ(t.errors, 0);
    two_down(&t);
}

TEST(a_peer_that_only_answers_is_alive) {
    struct two t;
    up(&t, "tcp", MS, WEFT_ERRORS_PEER, NULL, 0);
    for (double end = test_now() + 4 * MS * 1e-3; test_now() < end; two_turn(&t)) continue;
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

TEST(who_did_not_look_blames_no_one) {
    struct two t;
    up(&t, "tcp", MS, WEFT_ERRORS_PEER, NULL, 0);
    usleep(3 * MS * 1000);
    for (int i = 0; i < 100; i++) weft_worker_progress(t.a, 0);
    CHECK_EQ(t.errors, 0);
    two_down(&t);
}

TEST(endpoints_of_other_heartbeats_share_no_link) {
    struct two t;
    weft_ep_t *without, *same;
    weft_ep_info_t info;
    up(&t, "tcp", MS, WEFT_ERRORS_PEER, NULL, 0);
    CHECK_EQ(dial_with(&t, 0, WEFT_ERRORS_PEER, &without), 0);
    CHECK_EQ(dial_with(&t, MS, WEFT_ERRORS_PEER, &same), 0);
    UNTIL(&t, t.ready == 3);
    CHECK_EQ(weft_ep_describe(t.ep, &info), 0);
    CHECK_EQ(info.n_endpoints, 2);
    ALONE(&t, test_timeout(20), t.errors == 2);
    CHECK_EQ(t.errors, 2);
    CHECK(weft_am_send(without, 1, NULL, 0, NULL, 0, NULL) >= 0);
    two_down(&t);
}

TEST(one_that_survives_its_lanes_is_lost_with_its_peer) {
    struct two t;
    up(&t, "tcp", MS, WEFT_ERRORS_FAILOVER, NULL, 0);
    kill_all();
    UNTIL(&t, weft_worker_count(t.a, "lanes.resumed") == 1);
    ALONE(&t, test_timeout(20), t.errors);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

TEST(while_it_has_no_lane_the_timeout_decides) {
    static const weft_setting_t settings[] = {{"failover.timeout", "20s"}};
    struct two t;
    up(&t, "tcp", MS, WEFT_ERRORS_FAILOVER, settings, 1);
    kill_all();
    ALONE(&t, 4 * MS * 1e-3, t.errors);
    CHECK_EQ(t.errors, 0);
    UNTIL(&t, weft_worker_count(t.a, "lanes.resumed") == 1);
    two_down(&t);
}

/* A word of this kind, from a peer that may say anything. */
TEST(messages_about_heartbeats_are_read_whole) {
    static const enum lane_kind kinds[] = {LANE_HEARTBEAT_ASK, LANE_HEARTBEAT, LANE_ACK,
                                           LANE_ACK_ASK};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct wire_message m;
        struct lane_count word;
        weft__lane_count(&m, kinds[i], 77);
        CHECK_EQ(weft__lane_kind(m.bytes, m.len), kinds[i]);
        CHECK(weft__lane_read_count(m.bytes, m.len, &word) && word.count == 77);
        for (size_t len = 0; len < m.len; len++) CHECK(!weft__lane_read_count(m.bytes, len, &word));
        CHECK(!weft__lane_read_count(m.bytes, m.len + 1, &word));
        m.bytes[1] = 1; /* an epoch */
        CHECK(!weft__lane_read_count(m.bytes, m.len, &word));
    }
}

TEST(a_heartbeat_shorter_than_the_least_is_refused) {
    struct two t;
    two_workers(&t, "tcp", NULL, 0);
    CHECK_EQ(dial_with(&t, MS - 1, WEFT_ERRORS_PEER, &t.ep), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

/* ---- asked for by a listener */

static void accepted(struct two *t, const char *transport, const char *uri, uint32_t heartbeat_ms,
                     weft_error_mode_t mode) {
    weft_listener_t *listener;
    weft_listen_params_t params = {.on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = t,
                                   .heartbeat_ms = heartbeat_ms};
    weft_ep_params_t dials = {
        .on_ready = two_on_ready, .on_error = two_on_error, .arg = t, .error_mode = mode};
    two_workers(t, transport, NULL, 0);
    CHECK_EQ(weft_listen(t->b, uri, &params, &listener), 0);
    CHECK_EQ(weft_connect(t->a, weft_listener_uri(listener), &dials, &t->ep), 0);
    UNTIL(t, t->ready && t->back);
}

/* Only the accepting side. */
#define LEFT_ALONE(t, seconds, cond)                                        \
    for (double end = test_now() + (seconds); test_now() < end && !(cond);) \
    weft_worker_wait((t)->b, 10)

static void silent_client_is_dead(const char *transport, const char *uri, weft_error_mode_t mode) {
    struct two t;
    accepted(&t, transport, uri, MS, mode);
    LEFT_ALONE(&t, test_timeout(20), t.back_errors);
    CHECK_EQ(t.back_errors, 1);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}
TEST(a_client_that_no_one_drives_is_dead_to_its_listener_tcp) {
    silent_client_is_dead("tcp", "tcp://127.0.0.1:0", WEFT_ERRORS_PEER);
}
TEST(a_client_that_no_one_drives_is_dead_to_its_listener_shm) {
    silent_client_is_dead("shm", "shm://heartbeat", WEFT_ERRORS_PEER);
}
TEST(a_client_with_failover_that_no_one_drives_is_dead_to_its_listener) {
    silent_client_is_dead("tcp", "tcp://127.0.0.1:0", WEFT_ERRORS_FAILOVER);
}

TEST(a_listener_without_heartbeats_waits_for_a_client_that_computes) {
    struct two t;
    accepted(&t, "tcp", "tcp://127.0.0.1:0", 0, WEFT_ERRORS_PEER);
    LEFT_ALONE(&t, 4 * MS * 1e-3, t.back_errors);
    CHECK_EQ(t.back_errors, 0);
    two_down(&t);
}

TEST(a_client_that_only_answers_is_alive_and_one_more_connects_beside_it) {
    struct two t;
    weft_ep_t *second;
    weft_ep_info_t info;
    accepted(&t, "tcp", "tcp://127.0.0.1:0", MS, WEFT_ERRORS_PEER);
    CHECK_EQ(weft_ep_describe(t.ep, &info), 0);
    for (double end = test_now() + 4 * MS * 1e-3; test_now() < end; two_turn(&t)) continue;
    CHECK_EQ(t.errors + t.back_errors, 0);
    CHECK_EQ(dial_with(&t, 0, WEFT_ERRORS_PEER, &second), 0);
    UNTIL(&t, t.ready == 2 && t.endpoints == 2);
    two_down(&t);
}

TEST(a_listener_with_a_heartbeat_shorter_than_the_least_is_refused) {
    struct two t;
    weft_listener_t *listener;
    weft_listen_params_t params = {.heartbeat_ms = MS - 1};
    two_workers(&t, "tcp", NULL, 0);
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", &params, &listener), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

/* A worker's address in which the raw peer's own stands: docs/wire.md. */
static size_t address_of_raw(const struct raw *raw, uint8_t *address) {
    static const uint8_t head[] = {'W', 'a', 1, 1, RAW_ID & 0xff, RAW_ID >> 8, 0,  0, 0,
                                   0,   0,   0, 3, 't',           'c',         'p'};
    size_t len = 96;
    memcpy(address, head, sizeof head);
    CHECK_EQ(raw->iface->ops->address(raw->iface, address + sizeof head + 1, &len), 0);
    address[sizeof head] = (uint8_t)len;
    return sizeof head + 1 + len;
}

/* Within `seconds`. */
static bool is_asked(uint16_t flags, double seconds) {
    static struct raw raw;
    uint8_t address[256];
    struct wire_message m;
    weft_ep_t *ep;
    raw_open(&raw, "tcp", NULL, 0);
    size_t len = address_of_raw(&raw, address);
    weft_ep_params_t params = {.heartbeat_ms = MS};
    CHECK_EQ(weft_connect_address(raw.t.a, address, len, &params, &ep), 0);
    RAW_UNTIL(&raw, received(&raw, WIRE_HELLO));
    weft__wire_hello(
        &m, (struct wire_hello){.version = WIRE_VERSION, .flags = flags, .worker = RAW_ID});
    CHECK(send_message(&raw, &m));
    for (double end = test_now() + seconds; test_now() < end && !received(&raw, WIRE_LANE);)
        raw_turn(&raw);
    bool is = received(&raw, WIRE_LANE);
    raw_close(&raw);
    return is;
}

TEST(only_a_peer_that_announces_answers_is_asked_for_heartbeats) {
    CHECK(is_asked(WIRE_HELLO_ANSWERS, test_timeout(20)));
    CHECK(!is_asked(0, 3 * MS * 1e-3));
}
