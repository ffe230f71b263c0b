/* A link has one name: the worker id that its lane's handshake gave. A handshake in another
 * worker's name is refused. */
#include <tests/support/raw_peer.h>

#include <endpoints/core/worker.h>

static struct raw raw;

static bool handshake_as(uint64_t worker, uint16_t flags) {
    struct wire_message m;
    raw.n_received = 0;
    weft__wire_hello(
        &m, (struct wire_hello){.version = WIRE_VERSION, .flags = flags, .worker = worker});
    return send_message(&raw, &m);
}

TEST_WIRES(a_handshake_in_another_workers_name_is_refused) {
    static const uint16_t flags[] = {0, WIRE_HELLO_EXTRA, WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES};
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
        raw_open(&raw, transport, NULL, 0);
        raw_dial(&raw, transport);
        uint64_t before = weft_worker_count(raw.t.a, "peer.violations");
        CHECK(handshake_as(RAW_ID + 1, flags[i]));
        RAW_UNTIL(&raw, raw.down);
        CHECK(!received(&raw, WIRE_HELLO));
        CHECK_EQ(weft_worker_count(raw.t.a, "peer.violations"), before + 1);
        raw_close(&raw);
    }
}

TEST_WIRES(a_handshake_in_ones_own_name_is_let_in) {
    raw_open(&raw, transport, NULL, 0);
    raw_dial(&raw, transport);
    send_hello(&raw);
    open_half(&raw);
    raw_close(&raw);
}

static void came(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

/* The peer that claims to be the third worker receives nothing that is sent to that one by its
 * address. */
TEST_WIRES(what_is_sent_to_an_address_reaches_the_worker_of_that_address) {
    char address[256];
    size_t len = sizeof address;
    weft_worker_t *third;
    weft_ep_t *ep;
    int n_came = 0;
    raw_open(&raw, transport, NULL, 0);
    CHECK_EQ(
        weft_worker_create(raw.t.context, &(weft_worker_params_t){.transports = transport}, &third),
        0);
    CHECK_EQ(weft_am_handler_set(third, 1, came, &n_came), 0);
    raw_dial(&raw, transport);
    CHECK(handshake_as(third->id, 0));
    for (int i = 0; i < 100; i++) raw_turn(&raw);

    CHECK_EQ(weft_worker_address(third, address, &len), 0);
    CHECK_EQ(weft_connect_address(raw.t.a, address, len, NULL, &ep), 0);
    CHECK(weft_am_send(ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    double end = test_now() + test_timeout(60);
    while (!n_came && test_now() < end) {
        raw_turn(&raw);
        weft_worker_progress(third, 0);
    }
    CHECK_EQ(n_came, 1);
    CHECK(!received(&raw, WIRE_OPEN) && !received(&raw, WIRE_AM));
    CHECK(weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL) >= 0);
    for (int i = 0; i < 10; i++) raw_turn(&raw);
    CHECK_EQ(weft_worker_close(third, &(weft_op_t){.done = two_gone, .arg = &third}),
             WEFT_IN_PROGRESS);
    for (end = test_now() + test_timeout(60); third && test_now() < end;) {
        raw_turn(&raw);
        weft_worker_progress(third, 0);
    }
    CHECK(!third);
    raw_close(&raw);
}
