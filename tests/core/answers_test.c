/* A peer that asks and does not read: the answers that wait for it are bounded, and what a bound
 * costs is its own link. */
#include <tests/support/raw_peer.h>

#include <endpoints/wire/lane_ctrl.h>
#include <talloc.h>

enum { ASKS = 200000, ANSWERS = 64 << 10, MOST = 512 << 10 };

static struct raw raw;

static void open_deaf(const char *transport) {
    weft_setting_t few[] = {{"peer.max_answers", "64k"}, {"tcp.local_queue", "64k"}};
    raw_open(&raw, transport, few, 2);
    raw_dial(&raw, transport);
    send_hello(&raw);
    open_half(&raw);
    raw.victim_error = WEFT_OK;
    CHECK_EQ(raw.lane->ops->pause(raw.lane, true), WEFT_OK);
}

/* Says it again and again, up to `n` times or until the link is lost. Returns by how much the
 * worker grew at most. */
static size_t ask_deaf(const struct wire_message *m, int n) {
    size_t before = talloc_total_size(raw.t.a), most = before;
    for (int i = 0; i < n && raw.victim_error == WEFT_OK && send_message(&raw, m); i++) {
        if (i % 512) continue;
        for (int j = 0; j < 4; j++) raw_turn(&raw);
        size_t now = talloc_total_size(raw.t.a);
        if (now > most) most = now;
    }
    return most - before;
}

static void costs_the_link(const char *transport, const struct wire_message *m) {
    open_deaf(transport);
    size_t grown = ask_deaf(m, ASKS);
    RAW_UNTIL(&raw, raw.victim_error);
    CHECK_EQ(raw.victim_error, WEFT_ERR_QUOTA);
    CHECK(strstr(raw.victim_text, "peer.max_answers"));
    CHECK(grown < MOST);
    raw_close(&raw);
}

TEST_WIRES(asking_for_what_is_gone_and_not_reading_costs_the_link) {
    struct wire_message m;
    weft__wire_cts(&m, (struct wire_cts){.request = 0x00100777, .to = 5, .len = 100});
    costs_the_link(transport, &m);
}

TEST_WIRES(opening_what_is_rejected_and_not_reading_costs_the_link) {
    struct wire_message m;
    weft__wire_open(
        &m, (struct wire_open){.from = 0x00100009, .listener = 0x00100777, .credit = 1 << 20});
    costs_the_link(transport, &m);
}

TEST_WIRES(withdrawing_what_was_not_offered_and_not_reading_costs_the_link) {
    struct wire_message m;
    weft__wire_one(&m, WIRE_CANCEL, 0x00100777);
    costs_the_link(transport, &m);
}

TEST_WIRES(accepting_what_was_not_opened_and_not_reading_costs_the_link) {
    struct wire_message m;
    weft__wire_accept(&m, (struct wire_accept){.ep = 0x00100777, .from = 0x00100009});
    costs_the_link(transport, &m);
}

/* The program may keep a lost endpoint for as long as it likes. */
TEST_WIRES(accepting_what_was_given_up_and_not_reading_costs_the_link) {
    struct wire_message m;
    weft_setting_t few[] = {{"peer.max_answers", "64k"}, {"tcp.local_queue", "64k"}};
    struct tally closed = {0};
    struct two t = {0};
    raw_open(&raw, transport, few, 2);
    weft_ep_t *ep = raw_be_dialed(
        &raw, transport,
        &(weft_ep_params_t){.on_error = two_on_error, .arg = &t, .connect_timeout_ms = 200});
    weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION, .worker = RAW_ID});
    CHECK(send_message(&raw, &m));
    struct wire_open open = raw_is_opened(&raw);
    RAW_UNTIL(&raw, t.errors);
    CHECK_EQ(t.error, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(raw.lane->ops->pause(raw.lane, true), WEFT_OK);
    weft__wire_accept(&m, (struct wire_accept){.ep = open.from, .from = 0x00100009});
    CHECK(ask_deaf(&m, ASKS) < MOST);
    if (raw.lane && !raw.down) CHECK_EQ(raw.lane->ops->pause(raw.lane, false), WEFT_OK);
    RAW_UNTIL(&raw, raw.down);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    RAW_UNTIL(&raw, closed.calls);
    raw_close(&raw);
}

TEST_WIRES(asking_for_rails_and_not_reading_costs_the_link) {
    struct wire_message m;
    weft__wire_one(&m, WIRE_RAIL, 0);
    costs_the_link(transport, &m);
}

/* One answer that waits is for all heartbeats before it. */
TEST_WIRES(heartbeats_that_are_not_read_leave_one_answer) {
    struct wire_message m;
    weft__lane_count(&m, LANE_HEARTBEAT_ASK, 0);
    open_deaf(transport);
    size_t grown = ask_deaf(&m, 20000);
    CHECK(grown < 32 << 10);
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_error, WEFT_OK);
    raw.n_received = 0;
    CHECK_EQ(raw.lane->ops->pause(raw.lane, false), WEFT_OK);
    RAW_UNTIL(&raw, received(&raw, WIRE_LANE));
    for (int i = 0; i < 300; i++) raw_turn(&raw);
    raw.n_received = 0;
    CHECK(send_message(&raw, &m)); /* and the next is answered again */
    RAW_UNTIL(&raw, received(&raw, WIRE_LANE));
    raw_close(&raw);
}

/* Fewer than the bound wait, in order, and all are there when the peer reads. */
TEST_WIRES(answers_below_the_bound_wait_until_they_are_read) {
    enum { N = 3000 };
    struct wire_message m;
    unsigned all = 0;
    open_deaf(transport);
    raw.n_received = 0;
    for (uint32_t i = 0; i < N; i++) {
        weft__wire_cts(&m, (struct wire_cts){.request = 0x00100777, .to = i + 1, .len = 100});
        CHECK(send_message(&raw, &m));
        if (i % 64 == 0) raw_turn(&raw);
    }
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.lane->ops->pause(raw.lane, false), WEFT_OK);
    RAW_UNTIL(&raw, raw.n_received == N);
    for (unsigned i = 0; i < N; i++) {
        uint32_t to;
        CHECK_EQ(raw.received[i].id, WIRE_GONE);
        memcpy(&to, raw.received[i].bytes, sizeof to);
        all += to == i + 1;
    }
    CHECK_EQ(all, N);
    CHECK_EQ(raw.victim_error, WEFT_OK);
    raw_close(&raw);
}
