/*
 * A worker against a peer that is made from the transport itself and says what it likes. It loses
 * what it may lose, by name, and an honest peer of the same worker does not notice.
 */
#include <tests/support/raw_peer.h>

#include <endpoints/rma/rma.h>

static struct raw raw;

/* ---- what ends the link */

/* After the handshake, or before it, these bytes cost the speaker its lane. */
static void costs_the_lane(const char *transport, bool handshake, uint8_t id, const void *bytes,
                           size_t len) {
    raw_dial(&raw, transport);
    if (handshake) send_hello(&raw);
    send_msg(&raw, id, bytes, len);
    RAW_UNTIL(&raw, raw.down == 1);
    raw_hang_up(&raw);
}

TEST_WIRES(words_before_the_handshake_end_the_link) {
    struct wire_message m;
    static const uint8_t zeros[64];
    raw_open(&raw, transport, NULL, 0);
    for (uint8_t id = 0; id < LANE_AM_IDS; id++)
        if (id != WIRE_HELLO) costs_the_lane(transport, false, id, zeros, 48);
    weft__wire_open(&m, (struct wire_open){.from = 7});
    costs_the_lane(transport, false, m.id, m.bytes, m.len);
    weft__wire_accept(&m, (struct wire_accept){.from = 7, .ep = 1 << 20});
    costs_the_lane(transport, false, m.id, m.bytes, m.len);
    weft__wire_ping(&m);
    costs_the_lane(transport, false, m.id, m.bytes, m.len);
    raw_close(&raw);
}

TEST_WIRES(a_second_handshake_ends_the_link) {
    struct wire_message m;
    raw_open(&raw, transport, NULL, 0);
    weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION, .worker = RAW_ID});
    costs_the_lane(transport, true, m.id, m.bytes, m.len);
    weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION, .worker = 0});
    costs_the_lane(transport, false, m.id, m.bytes, m.len); /* an unused id */
    costs_the_lane(transport, false, m.id, m.bytes, m.len - 1);
    raw_close(&raw);
}

TEST_WIRES(another_version_is_answered_by_our_hello_and_the_end) {
    struct wire_message m;
    raw_open(&raw, transport, NULL, 0);
    for (unsigned version = 0; version < 4; version++) {
        if (version == WIRE_VERSION) continue;
        raw_dial(&raw, transport);
        raw.n_received = 0;
        weft__wire_hello(&m, (struct wire_hello){.version = (uint16_t)version, .worker = RAW_ID});
        CHECK(send_message(&raw, &m));
        RAW_UNTIL(&raw, raw.down == 1);
        CHECK(received(&raw, WIRE_HELLO));
        CHECK_EQ(raw.status, WEFT_ERR_PEER_CLOSED);
        raw_hang_up(&raw);
    }
    raw_close(&raw);
}

/* A hello in the honest peer's name takes nothing from it. */
TEST_WIRES(a_stolen_name_takes_nothing) {
    struct wire_message m;
    weft_ep_info_t info;
    raw_open(&raw, transport, NULL, 0);
    CHECK_EQ(weft_ep_describe(raw.t.back, &info), 0);
    for (int i = 0; i < 5; i++) {
        raw_dial(&raw, transport);
        weft__wire_hello(&m,
                         (struct wire_hello){.version = WIRE_VERSION, .worker = info.peer_worker});
        CHECK(send_message(&raw, &m));
        honest_is_well(&raw);
        raw_hang_up(&raw);
        honest_is_well(&raw);
    }
    raw_close(&raw);
}

/* ---- what ends the endpoint, or nothing at all */

static void fresh(const char *transport) {
    raw_hang_up(&raw);
    raw_dial(&raw, transport);
    send_hello(&raw);
    open_half(&raw);
    raw.victim_errors = 0;
    raw.n_received = 0;
}

/* The endpoint is lost to `status`, the lane stands. */
static void costs_the_endpoint(const char *transport, weft_status_t status,
                               const struct wire_message *m) {
    CHECK(send_message(&raw, m));
    RAW_UNTIL(&raw, raw.victim_errors == 1 && received(&raw, WIRE_CLOSE));
    CHECK_EQ(raw.victim_error, status);
    CHECK_EQ(raw.down, 0);
    open_half(&raw); /* the same link takes another */
    fresh(transport);
}

static void costs_nothing(const struct wire_message *m) {
    CHECK(send_message(&raw, m));
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    CHECK_EQ(raw.down, 0);
}

TEST_WIRES(words_out_of_place_cost_the_endpoint) {
    struct wire_message m;
    raw_open(&raw, transport, NULL, 0);
    fresh(transport);
    weft__wire_accept(&m, (struct wire_accept){.ep = raw.half, .from = 9});
    costs_the_endpoint(transport, WEFT_ERR_PROTOCOL, &m);
    weft__wire_reject(&m, (struct wire_reject){.ep = raw.half, .status = WEFT_ERR_REJECTED});
    costs_the_endpoint(transport, WEFT_ERR_PROTOCOL, &m);
    weft__wire_credit(&m, (struct wire_credit){.ep = raw.half, .bytes = UINT64_MAX});
    costs_the_endpoint(transport, WEFT_ERR_PROTOCOL, &m);
    weft__wire_credit(&m, (struct wire_credit){.ep = raw.half, .bytes = INT64_MAX});
    costs_the_endpoint(transport, WEFT_ERR_PROTOCOL, &m);
    raw_close(&raw);
}

TEST_WIRES(more_unexpected_bytes_than_granted_are_a_quota_error) {
    weft_setting_t quota = {"tag.unexpected_bytes", "4096"};
    raw_open(&raw, transport, &quota, 1);
    fresh(transport);
    uint8_t message[12 + 500] = {0};
    CHECK_EQ(raw.credit, 4096);
    memcpy(message + 8, &raw.half, 4);
    /* 7 × 564 fit */
    for (int i = 0; i < 7; i++) CHECK(send_msg(&raw, WIRE_TAG, message, sizeof message));
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    honest_is_matched(&raw);
    CHECK(send_msg(&raw, WIRE_TAG, message, sizeof message));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_QUOTA);
    CHECK_EQ(raw.down, 0);
    honest_is_matched(&raw);
    fresh(transport);
    /* Offers count too, 64 each, however much they promise. */
    struct wire_rts rts = {.ep = raw.half, .request = 1, .kind = WIRE_OFFER_TAG, .len = INT64_MAX};
    uint8_t offer[WIRE_RTS_HEAD];
    for (int i = 0; i < 64; i++) {
        rts.request = (uint32_t)i + 1;
        CHECK(send_msg(&raw, WIRE_RTS, offer, weft__wire_rts(offer, &rts)));
    }
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    CHECK(send_msg(&raw, WIRE_RTS, offer, weft__wire_rts(offer, &rts)));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_QUOTA);
    raw_close(&raw);
}

static void send_stream(const void *bytes, size_t len);

/* Leaves `n` messages of 564 bytes each, counted, on an endpoint that is new and closed then. */
static void leaves_behind(unsigned n) {
    uint8_t message[12 + 500] = {0};
    struct wire_message m;
    int errors = raw.victim_errors;
    open_half(&raw);
    memcpy(message + 8, &raw.half, 4);
    for (unsigned i = 0; i < n; i++) CHECK(send_msg(&raw, WIRE_TAG, message, sizeof message));
    weft__wire_one(&m, WIRE_CLOSE, raw.half);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.victim_errors == errors + 1);
}

/* An endpoint's share is not its peer's: however many it opens, and closes, what it leaves has
 * one bound. */
TEST_WIRES(all_endpoints_of_a_peer_together_leave_so_much_and_no_more) {
    weft_setting_t quota[] = {{"tag.unexpected_bytes", "4096"},
                              {"stream.window", "4000"},
                              {"peer.max_unexpected", "20000"}};
    static const uint8_t bytes[4000];
    uint8_t message[12 + 500] = {0};
    char in[500];
    raw_open(&raw, transport, quota, 3);
    fresh(transport);
    CHECK_EQ(raw.credit, 4096);
    memcpy(message + 8, &raw.half, 4);
    for (int i = 0; i < 7; i++) CHECK(send_msg(&raw, WIRE_TAG, message, sizeof message)); /* 3948 */
    for (int i = 0; i < 4; i++) send_stream(bytes, 1000);
    uint32_t first = raw.half;
    for (int i = 0; i < 21; i++) {
        leaves_behind(1); /* 19792 in the end */
        CHECK_EQ(raw.credit, 1024);
        CHECK_EQ(raw.victim_error, WEFT_ERR_PEER_CLOSED);
    }
    honest_is_matched(&raw);
    leaves_behind(1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_QUOTA);
    CHECK_EQ(raw.down, 0);
    honest_is_matched(&raw);

    /* What is received makes room, and so does a stream that is closed with bytes in it. */
    for (int i = 0; i < 4; i++)
        CHECK_EQ(weft_tag_recv(raw.t.a, 0, 0, &(weft_iov_t){in, 500}, 1, NULL, NULL), 0);
    for (int i = 0; i < 4; i++) {
        leaves_behind(1);
        CHECK_EQ(raw.victim_error, WEFT_ERR_PEER_CLOSED);
    }
    int errors = raw.victim_errors;
    struct wire_message m;
    weft__wire_one(&m, WIRE_CLOSE, first);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.victim_errors == errors + 1); /* and closes the stream */
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    open_half(&raw);
    send_stream(bytes, 4000);
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, errors + 1);
    CHECK_EQ(raw.down, 0);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_tag_recv(raw.t.a, 0, 0, &(weft_iov_t){in, 500}, 1, NULL, NULL), 0);
    raw_close(&raw); /* with messages left, whose link goes first */
}

/* Nor is a link's bound a way around it: what those that are gone left has the same. */
TEST_WIRES(all_links_of_peers_that_have_gone_together_leave_so_much_and_no_more) {
    enum { LINKS = 10, EACH = 7, KEPT = 20000 / 564 };
    weft_setting_t quota[] = {{"tag.unexpected_bytes", "4096"},
                              {"stream.window", "4000"},
                              {"peer.max_unexpected", "20000"}};
    uint8_t message[12 + 500] = {0};
    char in[500];
    raw_open(&raw, transport, quota, 3);
    for (int n = 0; n < LINKS * EACH; n++) {
        if (n % EACH == 0) fresh(transport);
        memcpy(message + 8, &raw.half, 4);
        message[12] = (uint8_t)n;
        CHECK(send_msg(&raw, WIRE_TAG, message, sizeof message));
        RAW_UNTIL(&raw, weft_worker_count(raw.t.a, "tag.unexpected") == (uint64_t)n + 1);
        if (n % EACH == EACH - 1) raw_hang_up(&raw);
        if (n == EACH)
            CHECK_EQ(weft_tag_recv(raw.t.a, 0, 0, &(weft_iov_t){in, 500}, 1, NULL, NULL), 0);
    }
    RAW_UNTIL(&raw, weft_worker_count(raw.t.a, "tag.dropped") >= LINKS * EACH - KEPT - 1);
    CHECK_EQ(weft_worker_count(raw.t.a, "tag.dropped"), LINKS * EACH - KEPT - 1);
    honest_is_matched(&raw);
    for (int i = 0; i < KEPT; i++) {
        CHECK_EQ(weft_tag_recv(raw.t.a, 0, 0, &(weft_iov_t){in, 500}, 1, NULL, NULL), 0);
        CHECK_EQ(in[0], LINKS * EACH - KEPT + i);
    }
    CHECK_EQ(weft_tag_probe(raw.t.a, 0, 0, NULL), WEFT_ERR_NOT_FOUND);
    raw_close(&raw);
}

static void send_stream(const void *bytes, size_t len) {
    static uint8_t message[8 + 8000];
    uint64_t word = wire_stream_word(raw.half);
    memcpy(message, &word, sizeof word);
    memcpy(message + sizeof word, bytes, len);
    CHECK(send_msg(&raw, WIRE_STREAM, message, sizeof word + len));
}

TEST_WIRES(more_stream_bytes_than_the_window_are_a_quota_error) {
    weft_setting_t window = {"stream.window", "4000"};
    static const uint8_t bytes[4000];
    const void *taken = NULL;
    size_t len;
    raw_open(&raw, transport, &window, 1);
    fresh(transport);
    for (int i = 0; i < 4; i++) send_stream(bytes, 1000);
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    send_stream(bytes, 1);
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK(raw.victim_error == WEFT_ERR_QUOTA && raw.down == 0);
    fresh(transport);
    /* What is taken still counts until it is released, and not after that. */
    send_stream(bytes, 4000);
    RAW_UNTIL(&raw, taken || weft_stream_take(raw.victim, &taken, &len) == WEFT_OK);
    CHECK(!received(&raw, WIRE_STREAM_CREDIT));
    weft_stream_release(raw.t.a, taken);
    while (weft_stream_take(raw.victim, &taken, &len) == WEFT_OK)
        weft_stream_release(raw.t.a, taken);
    RAW_UNTIL(&raw, received(&raw, WIRE_STREAM_CREDIT));
    send_stream(bytes, 3000);
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    send_stream(bytes, 4000);
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_QUOTA);
    raw_close(&raw);
}

TEST_WIRES(stream_words_out_of_place_cost_the_endpoint) {
    struct wire_message m;
    raw_open(&raw, transport, NULL, 0);
    fresh(transport);
    uint64_t word = wire_stream_word(raw.half);
    struct wire_message empty = {.id = WIRE_STREAM, .len = sizeof word};
    memcpy(empty.bytes, &word, sizeof word);
    costs_the_endpoint(transport, WEFT_ERR_PROTOCOL, &empty);
    /* Room for what was never sent. */
    weft__wire_stream_credit(&m, (struct wire_credit){.ep = raw.half, .bytes = 1});
    costs_the_endpoint(transport, WEFT_ERR_PROTOCOL, &m);
    struct wire_message noop = {.id = WIRE_STREAM, .len = 12};
    costs_nothing(&noop);
    word = wire_stream_word(raw.half) | 1;
    CHECK(send_msg(&raw, WIRE_STREAM, &word, sizeof word));
    RAW_UNTIL(&raw, raw.down == 1);
    raw_close(&raw);
}

TEST_WIRES(ids_of_nothing_and_of_others_are_not_found) {
    struct wire_message m;
    weft_ep_info_t before, after;
    raw_open(&raw, transport, NULL, 0);
    fresh(transport);
    CHECK_EQ(weft_ep_describe(raw.t.back, &before), 0);
    /* The honest peer's endpoint is one of the first places of the first generations. */
    for (uint32_t generation = 1; generation < 4; generation++)
        for (uint32_t place = 0; place < 18; place++) {
            uint32_t id = generation << 20 | place;
            if (id == raw.half) continue;
            uint64_t word = wire_am_word(id, 0, 1);
            struct wire_message am = {.id = WIRE_AM, .len = sizeof word};
            memcpy(am.bytes, &word, sizeof word);
            costs_nothing(&am);
            for (enum wire_id w = WIRE_CANCEL; w <= WIRE_GONE; w++)
                weft__wire_one(&m, w, id), costs_nothing(&m);
            weft__wire_one(&m, WIRE_CLOSE, id), costs_nothing(&m);
            weft__wire_credit(&m, (struct wire_credit){id, 0, UINT64_MAX}), costs_nothing(&m);
            weft__wire_fin(&m, (struct wire_fin){id, WEFT_OK}), costs_nothing(&m);
            weft__wire_cts(&m, (struct wire_cts){.request = id, .to = 5, .len = 100}),
                costs_nothing(&m);
            weft__wire_reject(&m, (struct wire_reject){id, WEFT_ERR_REJECTED}), costs_nothing(&m);
            weft__wire_accept(&m, (struct wire_accept){.ep = id, .from = 5}), costs_nothing(&m);
            uint8_t data[WIRE_DATA_HEAD + 4] = {0};
            weft__wire_data(data, (struct wire_data){.to = id});
            CHECK(send_msg(&raw, WIRE_DATA, data, sizeof data));
        }
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.served, 0);
    CHECK_EQ(weft_ep_describe(raw.t.back, &after), 0);
    CHECK_EQ(before.received, after.received);
    CHECK(received(&raw, WIRE_GONE) && received(&raw, WIRE_FIN) && received(&raw, WIRE_CLOSE));
    raw_close(&raw);
}

/* ---- a rendezvous with a liar */

static void offer_tag(uint32_t request, uint64_t len) {
    struct wire_rts rts = {
        .ep = raw.half, .request = request, .kind = WIRE_OFFER_TAG, .tag = 5, .len = len};
    uint8_t offer[WIRE_RTS_HEAD];
    CHECK(send_msg(&raw, WIRE_RTS, offer, weft__wire_rts(offer, &rts)));
}

static struct wire_cts cts_received(void) {
    struct wire_cts cts = {0};
    for (unsigned i = 0; i < raw.n_received && i < RECEIVED; i++)
        if (raw.received[i].id == WIRE_CTS)
            weft__wire_read_cts(raw.received[i].bytes, raw.received[i].len, &cts);
    return cts;
}

static bool send_data(uint32_t to, uint64_t offset, size_t len) {
    uint8_t data[WIRE_DATA_HEAD + 256];
    memset(data, 'd', sizeof data);
    weft__wire_data(data, (struct wire_data){.to = to, .offset = offset});
    return send_msg(&raw, WIRE_DATA, data, WIRE_DATA_HEAD + len);
}

TEST_WIRES(pieces_that_do_not_fit_write_nothing) {
    static const struct {
        uint64_t offset;
        size_t len;
    } wrong[] = {{0, 0},           {1, 10},         {0, 101},
                 {100, 1},         {UINT64_MAX, 1}, {UINT64_MAX - 5, 100},
                 {1ull << 63, 100}};
    raw_open(&raw, transport, NULL, 0);
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char in[300];
        struct tally got = {0};
        memset(in, '.', sizeof in);
        fresh(transport);
        CHECK_EQ(weft_tag_recv(raw.t.a, 5, UINT64_MAX, &(weft_iov_t){in, 200}, 1, NULL, OP(&got)),
                 WEFT_IN_PROGRESS);
        offer_tag(3, 100);
        RAW_UNTIL(&raw, cts_received().to);
        CHECK_EQ(cts_received().request, 3);
        CHECK_EQ(cts_received().len, 100);
        CHECK(send_data(cts_received().to, wrong[i].offset, wrong[i].len));
        RAW_UNTIL(&raw, got.calls == 1 && raw.victim_errors == 1);
        CHECK_EQ(got.status, WEFT_ERR_PROTOCOL);
        CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
        for (unsigned k = 0; k < sizeof in; k++) CHECK(in[k] == '.');
    }
    raw_close(&raw);
}

/* It asks for what was offered: twice, for more than there is, for nothing; and ends it while it
 * is sent. */
TEST_WIRES(an_offer_is_taken_once_and_in_bounds) {
    static char big[100000];
    for (int way = 0; way < 4; way++) {
        struct wire_message m;
        struct wire_rts rts = {0};
        struct tally sent = {0};
        if (way == 0) raw_open(&raw, transport, NULL, 0);
        fresh(transport);
        CHECK_EQ(weft_am_send(raw.victim, 9, NULL, 0, &(weft_iov_t){big, sizeof big}, 1, OP(&sent)),
                 WEFT_IN_PROGRESS);
        RAW_UNTIL(&raw, received(&raw, WIRE_RTS));
        for (unsigned i = 0; i < raw.n_received; i++)
            if (raw.received[i].id == WIRE_RTS)
                CHECK(weft__wire_read_rts(raw.received[i].bytes, raw.received[i].len, &rts));
        CHECK_EQ(rts.len, sizeof big);
        uint64_t len = way == 1 ? rts.len + 1 : way == 2 ? 0 : rts.len;
        weft__wire_cts(&m, (struct wire_cts){.request = rts.request, .to = 77, .len = len});
        CHECK(send_message(&raw, &m));
        if (way == 0) CHECK(send_message(&raw, &m));
        if (way == 3) {
            weft__wire_fin(&m, (struct wire_fin){rts.request, WEFT_OK});
            CHECK(send_message(&raw, &m));
        }
        RAW_UNTIL(&raw, sent.calls == 1 && raw.victim_errors <= 1);
        for (int i = 0; i < 50; i++) raw_turn(&raw);
        CHECK_EQ(sent.calls, 1);
        CHECK(sent.status == WEFT_OK || sent.status == WEFT_ERR_PROTOCOL);
        if (way == 1 || way == 2) CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
    }
    raw_close(&raw);
}

/* ---- memory that is exposed by a liar */

static void key_of(struct wire_message *m, uint32_t ep, uint64_t worker, uint32_t region) {
    uint8_t key[WEFT_RKEY_MAX];
    struct rkey_entry entry = {"shm", (const uint8_t *)"\3\0\0\0", 3, 4};
    struct rkey_packed packed = {.worker = worker,
                                 .region = {4096, 1 << 20, WEFT_MEM_READ, region, 1, {1}},
                                 .n = 1,
                                 .entry = {entry}};
    weft__wire_expose(m, (struct wire_expose){ep, key, weft__rkey_write(key, &packed)});
}

TEST_WIRES(a_key_that_is_none_or_of_another_link_ends_the_link) {
    struct wire_message m;
    raw_open(&raw, transport, NULL, 0);
    fresh(transport);
    weft__wire_expose(&m, (struct wire_expose){raw.half, "WK no key", 9});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.down == 1);
    fresh(transport);
    key_of(&m, raw.half, RAW_ID + 1, 5);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.down == 1);
    raw_close(&raw);
}

static unsigned n_keys(weft_ep_t *ep) {
    unsigned n = 0;
    for (struct list *at = ep->keys ? ep->keys->next : NULL; at && at != ep->keys; at = at->next)
        n++;
    return n;
}

TEST_WIRES(keys_that_are_announced_without_end_are_held_in_bounds) {
    struct wire_message m;
    raw_open(&raw, transport, NULL, 0);
    fresh(transport);
    key_of(&m, raw.half, RAW_ID, 1);
    for (int i = 0; i < 5; i++) CHECK(send_message(&raw, &m));
    for (int i = 0; i < 50; i++) raw_turn(&raw);
    CHECK(raw.victim && n_keys(raw.victim) <= 1);
    for (uint32_t region = 1; region < 500; region++) {
        key_of(&m, raw.half, RAW_ID, region);
        CHECK(send_message(&raw, &m));
    }
    for (int i = 0; i < 50; i++) raw_turn(&raw);
    CHECK(raw.victim && n_keys(raw.victim) <= 16);
    key_of(&m, 0x00500003, RAW_ID, 7);
    costs_nothing(&m);
    raw_close(&raw);
}

/* ---- a peer that asks for help with what it reads (split_copy.h) */

static struct wire_rts offer_of_victim(const char *bytes, size_t len, struct tally *sent) {
    struct wire_rts rts = {0};
    CHECK_EQ(weft_am_send(raw.victim, 9, NULL, 0, &(weft_iov_t){(void *)(uintptr_t)bytes, len}, 1,
                          OP(sent)),
             WEFT_IN_PROGRESS);
    RAW_UNTIL(&raw, received(&raw, WIRE_RTS));
    for (unsigned i = 0; i < raw.n_received; i++)
        if (raw.received[i].id == WIRE_RTS)
            CHECK(weft__wire_read_rts(raw.received[i].bytes, raw.received[i].len, &rts));
    return rts;
}

TEST_WIRES(put_req_that_no_one_can_give_costs_nothing) {
    weft_setting_t reads = {"shm.copy", "vm"};
    static char big[100000];
    struct wire_message m;
    struct tally sent = {0};
    raw_open(&raw, transport, &reads, 1);
    fresh(transport);
    struct wire_rts rts = offer_of_victim(big, sizeof big, &sent);
    /* of no message; into memory that was not granted; reported without a waiter */
    weft__wire_put_req(&m, (struct wire_put_req){
                               .request = 0x00500003, .token = 1, .address = 4096, .len = 70000});
    costs_nothing(&m);
    weft__wire_put_req(&m, (struct wire_put_req){
                               .request = rts.request, .token = 1, .address = 4096, .len = 70000});
    costs_nothing(&m);
    weft__wire_put_req(
        &m, (struct wire_put_req){
                .request = rts.request, .token = 1, .address = UINT64_MAX - 5, .len = sizeof big});
    costs_nothing(&m);
    weft__wire_put_done(&m);
    costs_nothing(&m);
    CHECK_EQ(weft_worker_count(raw.t.a, "shm.put_bytes"), 0);
    weft__wire_fin(&m, (struct wire_fin){rts.request, WEFT_OK});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, sent.calls == 1);
    raw_close(&raw);
}

TEST(put_req_beyond_a_message_or_in_a_wrong_form_is_a_breach) {
    weft_setting_t reads = {"shm.copy", "vm"};
    static char big[100000];
    struct wire_message m;
    struct tally sent = {0};
    raw_open(&raw, "shm", &reads, 1);
    fresh("shm");
    struct wire_rts rts = offer_of_victim(big, sizeof big, &sent);
    weft__wire_put_req(&m, (struct wire_put_req){
                               .request = rts.request, .token = 1, .address = 4096, .len = 100001});
    costs_the_endpoint("shm", WEFT_ERR_PROTOCOL, &m);
    CHECK_EQ(sent.calls, 1);
    sent = (struct tally){0};
    rts = offer_of_victim(big, sizeof big, &sent);
    weft__wire_put_req(&m, (struct wire_put_req){.request = rts.request,
                                                 .token = UINT64_C(64) << 32 | 1,
                                                 .address = 4096,
                                                 .len = 70000});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.down == 1 && sent.calls == 1);
    fresh("shm");
    CHECK(send_msg(&raw, WIRE_PUT_REQ, &m, 31));
    RAW_UNTIL(&raw, raw.down == 1);
    fresh("shm");
    CHECK(send_msg(&raw, WIRE_PUT_DONE, &m, 8));
    RAW_UNTIL(&raw, raw.down == 1);
    raw_close(&raw);
}

/* ---- a peer that asks for a message to be written where writing is not granted (split_copy.h) */

static bool receives_gone(uint32_t to) {
    struct wire_one one;
    for (unsigned i = 0; i < raw.n_received && i < RECEIVED; i++)
        if (raw.received[i].id == WIRE_GONE &&
            weft__wire_read_one(raw.received[i].bytes, raw.received[i].len, &one) &&
            one.request == to)
            return true;
    return false;
}

TEST_WIRES(what_cannot_be_written_is_reported_gone_and_may_be_asked_for) {
    weft_setting_t pieces = {"shm.copy", "staged"};
    static char big[100000];
    struct wire_message m;
    struct tally sent = {0};
    raw_open(&raw, transport, &pieces, 1);
    fresh(transport);
    struct wire_rts rts = offer_of_victim(big, sizeof big, &sent);
    /* of no message; without any grant; with a length that wraps */
    struct wire_put_req put_req = {
        .request = 0x00500003, .to = 71, .token = 1, .address = 4096, .len = 70000};
    weft__wire_put_req(&m, put_req);
    costs_nothing(&m);
    put_req.request = rts.request;
    put_req.to = 72;
    weft__wire_put_req(&m, put_req);
    costs_nothing(&m);
    put_req.address = UINT64_MAX - 5;
    put_req.to = 73;
    weft__wire_put_req(&m, put_req);
    costs_nothing(&m);
    RAW_UNTIL(&raw, receives_gone(71) && receives_gone(72) && receives_gone(73));
    CHECK(weft_worker_count(raw.t.a, "shm.put_bytes") == 0 && sent.calls == 0);
    weft__wire_cts(&m, (struct wire_cts){rts.request, 74, sizeof big, false});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, sent.calls == 1);
    CHECK_EQ(sent.status, WEFT_OK);
    weft__wire_put_req(&m, put_req); /* it is over */
    costs_nothing(&m);
    raw_close(&raw);
}

TEST(to_ask_for_more_than_there_is_or_twice_at_a_time_is_a_breach) {
    weft_setting_t pieces = {"shm.copy", "staged"};
    static char big[100000];
    struct wire_message m;
    struct tally sent = {0};
    raw_open(&raw, "shm", &pieces, 1);
    fresh("shm");
    struct wire_rts rts = offer_of_victim(big, sizeof big, &sent);
    weft__wire_put_req(
        &m, (struct wire_put_req){
                .request = rts.request, .to = 1, .token = 1, .address = 4096, .len = 100001});
    costs_the_endpoint("shm", WEFT_ERR_PROTOCOL, &m);
    CHECK_EQ(sent.calls, 1);
    sent = (struct tally){0};
    rts = offer_of_victim(big, sizeof big, &sent);
    weft__wire_put_req(
        &m, (struct wire_put_req){
                .request = rts.request, .to = 1, .token = 1, .address = 4096, .len = 100000});
    CHECK(send_message(&raw, &m));
    costs_the_endpoint("shm", WEFT_ERR_PROTOCOL, &m);
    CHECK_EQ(sent.calls, 1);
    raw_close(&raw);
}

/* Data for an endpoint that is still asking, and for one whose peer is gone. */
TEST_WIRES(messages_after_the_end_are_lost) {
    struct wire_message m;
    raw_open(&raw, transport, NULL, 0);
    fresh(transport);
    uint64_t word = wire_am_word(raw.half, 0, 1);
    uint32_t half = raw.half;
    CHECK(send_msg(&raw, WIRE_AM, &word, sizeof word));
    RAW_UNTIL(&raw, raw.served == 1);
    weft__wire_one(&m, WIRE_CLOSE, half);
    CHECK(send_message(&raw, &m));
    for (int i = 0; i < 5; i++) CHECK(send_msg(&raw, WIRE_AM, &word, sizeof word));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(raw.served, 1);
    raw_close(&raw);
}

/* ---- the worker dials, and it is the other side that lies */

static void be_dialed(const char *transport) {
    raw.victim_errors = 0;
    raw_be_dialed(&raw, transport, &(weft_ep_params_t){.on_error = on_victim_error, .arg = &raw});
}

static void costs_the_dialer(const char *transport, weft_status_t status) {
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, status);
    raw_hang_up(&raw);
    for (int i = 0; i < 30; i++) raw_turn(&raw);
}

TEST_WIRES(a_lying_host_costs_the_endpoint_that_dialed) {
    struct wire_message m;
    struct wire_open open = {0};
    raw_open(&raw, transport, NULL, 0);
    be_dialed(transport); /* accepted before the handshake */
    weft__wire_accept(&m, (struct wire_accept){.ep = 1 << 20 | 1, .from = 9});
    CHECK(send_message(&raw, &m));
    costs_the_dialer(transport, WEFT_ERR_PROTOCOL);
    be_dialed(transport); /* another peer */
    weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION, .worker = RAW_ID + 1});
    CHECK(send_message(&raw, &m));
    costs_the_dialer(transport, WEFT_ERR_UNREACHABLE);
    be_dialed(transport);
    weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION + 1, .worker = RAW_ID});
    CHECK(send_message(&raw, &m));
    costs_the_dialer(transport, WEFT_ERR_VERSION);
    for (int way = 0; way < 4; way++) {
        be_dialed(transport);
        weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION, .worker = RAW_ID});
        CHECK(send_message(&raw, &m));
        open = raw_is_opened(&raw);
        uint64_t word = wire_am_word(open.from, 0, 1);
        if (way == 0) send_msg(&raw, WIRE_AM, &word, sizeof word); /* not accepted yet */
        if (way == 1) weft__wire_one(&m, WIRE_CLOSE, open.from), send_message(&raw, &m);
        if (way == 2)
            weft__wire_credit(&m, (struct wire_credit){.ep = open.from, .bytes = 9}),
                send_message(&raw, &m);
        if (way == 3)
            weft__wire_reject(&m, (struct wire_reject){open.from, WEFT_ERR_REJECTED}),
                send_message(&raw, &m);
        costs_the_dialer(transport, way == 3 ? WEFT_ERR_REJECTED : WEFT_ERR_PROTOCOL);
        CHECK(strstr(raw.victim_text, "because: "));
    }
    CHECK_EQ(raw.served, 0);
    raw_close(&raw);
}

/* ---- noise */

static uint64_t noise_state;
static uint32_t noise(void) {
    noise_state = noise_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(noise_state >> 33);
}

static void again(const char *transport) {
    if (raw.lane && !raw.down) return;
    fresh(transport);
}

TEST_WIRES(every_id_with_every_short_length_breaks_nothing) {
    raw_open(&raw, transport, NULL, 0);
    noise_state = 11;
    for (uint8_t id = 0; id < LANE_AM_IDS; id++)
        for (size_t len = 0; len <= 40; len++) {
            uint8_t bytes[40];
            for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)noise();
            again(transport);
            send_msg(&raw, id, bytes, len);
            raw_turn(&raw);
        }
    raw_close(&raw);
}

/* Frames that are nearly right: real ids, small numbers, whole layouts. */
static size_t plausible(uint8_t *bytes, uint8_t id) {
    static const uint8_t lengths[WIRE_N_IDS] = {8,  12, 40, 16, 20, 8,  4,  4,  12, 16, 20,
                                                20, 8,  4,  0,  56, 48, 64, 16, 8,  8,  8,
                                                12, 4,  12, 13, 24, 16, 80, 32, 0};
    static const uint8_t half_at[WIRE_N_IDS] = {
        [WIRE_TAG] = 8, [WIRE_TAG_BEGIN] = 8, [WIRE_STREAM] = 4};
    static const uint32_t begin_with_half =
        1u << WIRE_CREDIT | 1u << WIRE_PUT | 1u << WIRE_GET | 1u << WIRE_ATOMIC | 1u << WIRE_FLUSH |
        1u << WIRE_STREAM_CREDIT | 1u << WIRE_TAG_PART | 1u << WIRE_EXPOSE;
    static const uint32_t carry = 1u << WIRE_AM | 1u << WIRE_TAG | 1u << WIRE_STREAM |
                                  1u << WIRE_TAG_BEGIN | 1u << WIRE_TAG_PART;
    size_t len = id < WIRE_N_IDS ? lengths[id] : noise() % 40;
    for (size_t i = 0; i < len; i += 4) {
        uint32_t word =
            noise() % 4 ? (noise() % 3 ? raw.half : 1u << 20 | noise() % 8) : noise() % 70;
        memcpy(bytes + i, &word, 4);
    }
    if (id == WIRE_AM) {
        uint64_t word = wire_am_word(raw.half, noise() % 9, noise() % 3);
        memcpy(bytes, &word, sizeof word);
    }
    if (id < WIRE_N_IDS && (half_at[id] || begin_with_half >> id & 1))
        memcpy(bytes + half_at[id], &raw.half, 4);
    if (id == WIRE_RTS) bytes[8] = (uint8_t)(noise() % 4), bytes[10] = bytes[11] = 0;
    if (id == WIRE_HELLO) bytes[0] = 1, bytes[1] = 0;
    if (id == WIRE_STREAM) memset(bytes, 0, 4);
    if (id == WIRE_TAG_BEGIN || id == WIRE_TAG_PART) {
        uint64_t small = noise() % 60;
        memcpy(bytes + len - sizeof small, &small, sizeof small);
    }
    if (id < WIRE_N_IDS && carry >> id & 1) len += noise() % 20;
    return len;
}

/* The worker posts receives and sends all the while, and lets go of some. */
static int receives, completed;
static void on_received(weft_status_t status, void *arg) {
    completed++;
}
static void keep_streams_busy(char *in, char *out) {
    static size_t got;
    weft_op_t op = {.done = on_received};
    weft_iov_t to = {in, 8}, from = {out, noise() % 5000};
    if (noise() % 4 == 0)
        receives += weft_stream_recv(raw.victim, &to, 1, &got, &op) == WEFT_IN_PROGRESS;
    if (noise() % 4 == 0)
        receives += weft_stream_send(raw.victim, &from, 1, &op) == WEFT_IN_PROGRESS;
    op.flags = noise() % 2 ? WEFT_FLUSH_REMOTE : 0;
    if (noise() % 8 == 0) receives += weft_ep_flush(raw.victim, &op) == WEFT_IN_PROGRESS;
}
static void keep_busy(void) {
    static char in[64], out[70000];
    weft_request_t *request;
    weft_op_t op = {.done = on_received, .request_p = &request, .deadline_ms = noise() % 3};
    if (weft_tag_recv(raw.t.a, noise() % 70, noise() % 2 ? UINT64_MAX : 0,
                      &(weft_iov_t){in, noise() % 64}, 1, NULL, &op) == WEFT_IN_PROGRESS) {
        receives++;
        if (noise() % 2) weft_request_cancel(request);
    }
    if (!raw.victim) return;
    keep_streams_busy(in, out);
    size_t len = noise() % 8 ? noise() % 100 : sizeof out;
    weft_status_t st = noise() % 2
                           ? weft_am_send(raw.victim, 2, NULL, 0, &(weft_iov_t){out, len}, 1, &op)
                           : weft_tag_send(raw.victim, 2, &(weft_iov_t){out, len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) return;
    receives++;
    if (noise() % 4 == 0) weft_request_cancel(request);
}

static void flood(const char *transport, unsigned frames) {
    uint8_t bytes[128] = {0};
    raw_open(&raw, transport, NULL, 0);
    noise_state = 7;
    receives = completed = 0;
    for (unsigned i = 0; i < frames; i++) {
        uint8_t id = (uint8_t)(noise() % 200 ? noise() % WIRE_N_IDS : noise() % LANE_AM_IDS);
        if (noise() % 20 && (id == WIRE_HELLO || id == WIRE_ACCEPT || id == WIRE_REJECT))
            id = WIRE_TAG;
        again(transport);
        send_msg(&raw, id, bytes, plausible(bytes, id));
        if (i % 8 == 0) keep_busy();
        if (i % 4 == 0) raw_turn(&raw);
        if (i % 1000 == 0) honest_is_well(&raw);
    }
    raw_close(&raw);
    CHECK_EQ(completed, receives);
    printf("  %u frames, %d operations, %d endpoints lost\n", frames, receives, raw.lost);
}
TEST(a_hundred_thousand_random_frames_break_nothing_shm) {
    flood("shm", 100000);
}
TEST(a_hundred_thousand_random_frames_break_nothing_tcp) {
    flood("tcp", 100000);
}
