/* Bounds that a hostile peer meets at their edges: what is just allowed costs nothing, and one
 * more is refused. */
#include <tests/support/raw_peer.h>

static struct raw raw;

static void fresh(const char *transport) {
    raw_hang_up(&raw);
    raw_dial(&raw, transport);
    send_hello(&raw);
    raw.victim_errors = 0;
}

/* An endpoint towards which the victim may send so many bytes of its stream. */
static void open_with_stream(uint32_t window) {
    struct wire_message m;
    int before = raw.victims;
    raw.half = 0;
    weft__wire_open(&m,
                    (struct wire_open){.from = 0x00100007, .credit = 1 << 20, .stream = window});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.half && raw.victims == before + 1);
}

static void send_credit(uint64_t bytes) {
    struct wire_message m;
    weft__wire_stream_credit(&m, (struct wire_credit){.ep = raw.half, .bytes = bytes});
    CHECK(send_message(&raw, &m));
}

static void turns(int n) {
    for (int i = 0; i < n; i++) raw_turn(&raw);
}

TEST_WIRES(a_peer_gives_back_no_more_stream_credit_than_was_used) {
    static char bytes[100];
    weft_iov_t iov = {bytes, sizeof bytes};
    raw_open(&raw, transport, NULL, 0);
    for (uint32_t more = 0; more < 2; more++) {
        fresh(transport);
        open_with_stream(4000);
        raw.n_received = 0;
        CHECK(weft_stream_send(raw.victim, &iov, 1, NULL) >= 0);
        RAW_UNTIL(&raw, received(&raw, WIRE_STREAM));
        send_credit(60);
        turns(30);
        CHECK_EQ(raw.victim_errors, 0);
        send_credit(40 + more);
        turns(30);
        CHECK_EQ(raw.victim_errors, more);
        if (more) CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
        CHECK_EQ(raw.down, 0);
    }
    raw_close(&raw);
}

/* Streams alone: each endpoint stays within its window, and all of them leave what one peer may
 * leave. */
TEST_WIRES(streams_of_all_endpoints_of_a_link_have_one_bound) {
    enum { EACH = 1000, ALL = 20 };
    weft_setting_t quota[] = {{"tag.unexpected_bytes", "4096"},
                              {"stream.window", "4000"},
                              {"peer.max_unexpected", "20000"}};
    uint8_t message[8 + EACH] = {0};
    raw_open(&raw, transport, quota, 3);
    fresh(transport);
    for (int i = 0; i <= ALL; i++) {
        CHECK_EQ(raw.victim_errors, 0);
        open_with_stream(4000);
        uint64_t word = wire_stream_word(raw.half),
                 before = weft_worker_count(raw.t.a, "stream.bytes_in");
        memcpy(message, &word, sizeof word);
        CHECK(send_msg(&raw, WIRE_STREAM, message, sizeof message));
        RAW_UNTIL(&raw, raw.victim_errors ||
                            weft_worker_count(raw.t.a, "stream.bytes_in") == before + EACH);
    }
    CHECK_EQ(raw.victim_errors, 1); /* the one beyond */
    CHECK_EQ(raw.victim_error, WEFT_ERR_QUOTA);
    CHECK_EQ(weft_worker_count(raw.t.a, "stream.bytes_in"), ALL * EACH);
    CHECK_EQ(raw.down, 0);
    raw_close(&raw);
}

static void send_offer(uint16_t header_len) {
    static const uint8_t header[WEFT_AM_HEADER_MAX + 1];
    uint8_t bytes[WIRE_RTS_HEAD + sizeof header];
    struct wire_rts rts = {.ep = raw.half,
                           .request = 7,
                           .kind = WIRE_OFFER_AM,
                           .am_id = 1,
                           .header = header,
                           .header_len = header_len,
                           .len = 1000};
    CHECK(send_msg(&raw, WIRE_RTS, bytes, weft__wire_rts(bytes, &rts)));
}

TEST_WIRES(an_offer_has_no_longer_header_than_any_message) {
    raw_open(&raw, transport, NULL, 0);
    fresh(transport);
    open_with_stream(0);
    int before = raw.served;
    send_offer(WEFT_AM_HEADER_MAX);
    RAW_UNTIL(&raw, raw.served == before + 1);
    CHECK_EQ(raw.down, 0);
    send_offer(WEFT_AM_HEADER_MAX + 1);
    RAW_UNTIL(&raw, raw.down == 1);
    CHECK_EQ(raw.served, before + 1);
    raw_close(&raw);
}

TEST_WIRES(endpoints_that_all_peers_open_have_one_bound) {
    struct wire_message m;
    weft_setting_t quota = {"peers.max_endpoints", "3"}; /* the honest peer has one */
    raw_open(&raw, transport, &quota, 1);
    fresh(transport);
    open_with_stream(0);
    uint32_t half = raw.half;
    open_with_stream(0);
    for (int i = 0; i < 2; i++) {
        raw.n_received = 0;
        weft__wire_open(&m, (struct wire_open){.from = 0x00100009, .credit = 1 << 20});
        CHECK(send_message(&raw, &m));
        RAW_UNTIL(&raw, received(&raw, WIRE_REJECT));
    }
    weft__wire_one(&m, WIRE_CLOSE, half);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    turns(100);
    open_with_stream(0); /* in its place */
    raw_close(&raw);
}

TEST_WIRES(links_that_all_peers_dial_have_one_bound) {
    struct wire_message m;
    weft_setting_t quota = {"peers.max_links", "2"}; /* the honest peer has one */
    raw_open(&raw, transport, &quota, 1);
    for (int i = 0; i < 3; i++) {
        fresh(transport);
        raw_hang_up(&raw); /* and makes place */
        turns(30);
    }
    fresh(transport);
    struct lane *first = raw.lane;
    raw.lane = NULL;
    raw_dial(&raw, transport);
    weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION, .worker = RAW_ID + 1});
    send_message(&raw, &m);
    RAW_UNTIL(&raw, raw.down == 1);
    raw_hang_up(&raw);
    raw.lane = first;
    raw.down = 0;
    open_with_stream(0); /* the others go on */
    raw_close(&raw);
}
