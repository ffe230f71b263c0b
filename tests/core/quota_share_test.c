/* The limit of unread bytes is sent to a peer in shares, whose sum is the bound: a peer that keeps
 * to them loses nothing, however many endpoints it opens, and however many peers there are. */
#include <tests/support/worker_pair.h>

#include <endpoints/core/quota.h>

enum { WHOLE = 1 << 20 };

/* In millionths of a whole share, that of the n-th. */
static uint64_t share(uint32_t whole, uint32_t n) {
    return WHOLE >> weft__quota_shift(whole, n);
}

TEST(the_shares_of_however_many_endpoints_are_within_the_bound) {
    static const uint32_t most[] = {1, 2, 3, 7, 30, 31, 64, 1000};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        uint64_t sum = 0, last = WHOLE;
        for (uint32_t n = 1; n <= 200000 && n <= most[i] << QUOTA_KINDS; n++) {
            uint64_t one = share(most[i], n);
            CHECK(one <= last && one > 0);
            if (n <= most[i]) CHECK_EQ(one, WHOLE);
            sum += last = one;
            CHECK(sum <= (uint64_t)2 * most[i] * WHOLE);
        }
    }
}

TEST(by_default_the_least_shares_of_100000_endpoints_are_within_the_bound) {
    enum { TAGGED = 16 << 20, STREAMED = 1 << 20, BOUND = 1 << 30 };
    uint32_t whole = BOUND / 2 / (TAGGED + STREAMED);
    uint64_t sum = 0;
    for (uint32_t n = 1; n <= 100000; n++) {
        uint8_t quota_shift = weft__quota_shift(whole, n);
        sum += weft__quota_of(TAGGED, quota_shift) + weft__quota_of(STREAMED, quota_shift);
    }
    CHECK(sum <= BOUND);
}

TEST(shares_given_while_endpoints_come_and_go_are_within_the_bound) {
    enum { WHOLE_SHARES = 5, MOST = 3000 };
    static uint64_t given[MOST];
    uint32_t n = 0, random = 7;
    uint64_t sum = 0;
    for (unsigned step = 0; step < 1000000; step++) {
        random = random * 1664525 + 1013904223;
        /* in waves */
        bool grows = step / 5000 % 2 == 0 ? (random >> 8) % 8 : (random >> 8) % 8 == 0;
        if (n == 0 || (grows && n < MOST)) {
            sum += given[n] = share(WHOLE_SHARES, n + 1);
            n++;
        } else {
            uint32_t gone = (random >> 12) % n;
            sum -= given[gone];
            given[gone] = given[--n];
        }
        CHECK(sum <= 2 * WHOLE_SHARES * WHOLE);
    }
}

TEST(the_least_share_lets_something_through) {
    CHECK_EQ(weft__quota_of(16 << 20, 0), 16 << 20);
    CHECK_EQ(weft__quota_of(16 << 20, weft__quota_shift(30, UINT32_MAX)), QUOTA_LEAST);
    CHECK_EQ(weft__quota_of(500, 19), 500);
    CHECK_EQ(weft__quota_of(0, 19), 0);
}

/* ---- an honest peer */

enum { ENDPOINTS = 60, MESSAGES = 12, MESSAGE = 6000, STREAM = 90000 };
static struct peer {
    weft_ep_t *ep, *back;
    struct tally sent, streamed, got, read;
    char stream[STREAM];
} peer[ENDPOINTS];
static size_t stream_len = STREAM; /* of each */

static void opens(struct two *t, struct peer *one) {
    t->back = NULL;
    two_dial(t);
    UNTIL(t, t->back);
    one->ep = t->ep;
    one->back = t->back;
}

static void leaves(struct peer *one, uint64_t tag) {
    static char bytes[STREAM];
    pattern(bytes, sizeof bytes, 1);
    for (int i = 0; i < MESSAGES; i++) {
        weft_status_t st =
            weft_tag_send(one->ep, tag, &(weft_iov_t){bytes, MESSAGE}, 1, OP(&one->sent));
        if (st == WEFT_OK) one->sent.calls++;
        CHECK(st >= 0);
    }
    weft_status_t st =
        weft_stream_send(one->ep, &(weft_iov_t){bytes, stream_len}, 1, OP(&one->streamed));
    if (st == WEFT_OK) one->streamed.calls++;
    CHECK(st >= 0);
}

static void takes(struct two *t, struct peer *one, uint64_t tag) {
    char bytes[MESSAGE], same[STREAM];
    pattern(same, sizeof same, 1);
    for (int i = 0; i < MESSAGES; i++) {
        struct tally got = {0};
        memset(bytes, 0, sizeof bytes);
        weft_status_t st = weft_tag_recv(two_b(t), tag, UINT64_MAX, &(weft_iov_t){bytes, MESSAGE},
                                         1, NULL, OP(&got));
        CHECK(st >= 0);
        if (st == WEFT_IN_PROGRESS) UNTIL(t, got.calls);
        CHECK(got.status == WEFT_OK && memcmp(bytes, same, MESSAGE) == 0);
    }
    weft_op_t all = {.done = tally, .arg = &one->read, .flags = WEFT_STREAM_WAIT_ALL};
    size_t len = 0;
    weft_status_t st =
        weft_stream_recv(one->back, &(weft_iov_t){one->stream, stream_len}, 1, &len, &all);
    CHECK(st >= 0);
    if (st == WEFT_IN_PROGRESS) UNTIL(t, one->read.calls);
    CHECK(len == stream_len && memcmp(one->stream, same, stream_len) == 0);
}

TEST_EACH(a_peer_with_many_endpoints_full_of_unread_bytes_loses_none) {
    weft_setting_t little[] = {
        {"tag.unexpected_bytes", "64k"}, {"stream.window", "64k"}, {"peer.max_unexpected", "1m"}};
    struct two t;
    two_workers(&t, transport, little, 3);
    memset(peer, 0, sizeof peer);
    for (int i = 0; i < ENDPOINTS; i++) opens(&t, &peer[i]);
    for (int i = 0; i < ENDPOINTS; i++) leaves(&peer[i], (uint64_t)i);
    for (int i = 0; i < 2000; i++) two_turn(&t);
    for (int i = 0; i < ENDPOINTS; i++) takes(&t, &peer[i], (uint64_t)i);
    for (int i = 0; i < ENDPOINTS; i++)
        UNTIL(&t, peer[i].sent.calls == MESSAGES && peer[i].streamed.calls);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

/* ---- many peers */

enum { PEERS = 24 };

/* Workers that dial t->b, one after the other. */
static weft_worker_t *joins(struct two *t, const char *transport) {
    weft_worker_params_t params = {.transports = transport,
                                   .on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = t};
    CHECK_EQ(weft_worker_create(t->context, &params, &t->a), 0);
    return t->a;
}

static void turns(struct two *t, weft_worker_t **worker, int n) {
    for (int turn = 0; turn < n; turn++)
        for (int i = 0; i < PEERS; i++) {
            t->a = worker[i];
            two_turn(t);
        }
}

static uint64_t most_unread(struct two *t) {
    return weft_worker_count(t->b, "peers.unexpected_max");
}

/* Until more than `most` has come unread, and a while longer. */
static void all_leave(struct two *t, const char *transport, weft_worker_t **worker, uint64_t most) {
    worker[0] = t->a;
    for (int i = 0; i < PEERS; i++) {
        if (i) worker[i] = joins(t, transport);
        opens(t, &peer[i]);
    }
    for (int i = 0; i < PEERS; i++) leaves(&peer[i], (uint64_t)i);
    UNTIL(t, (turns(t, worker, 1), most_unread(t) > most));
    turns(t, worker, 300);
}

/* Each of them may leave 128 KiB as far as its connection goes: 3 MiB in all. */
static void many_peers(const char *transport) {
    enum { BOUND = 1 << 20 };
    weft_setting_t little[] = {{"tag.unexpected_bytes", "64k"},
                               {"stream.window", "64k"},
                               {"peer.max_unexpected", "256k"},
                               {"peers.max_unexpected", "1m"},
                               {"close.timeout", "20ms"}};
    weft_worker_t *worker[PEERS];
    struct two t;
    two_workers(&t, transport, little, 5);
    memset(peer, 0, sizeof peer);
    all_leave(&t, transport, worker, BOUND / 4);
    CHECK(most_unread(&t) <= BOUND);
    for (int i = 0; i < PEERS; i++) {
        t.a = worker[i];
        takes(&t, &peer[i], (uint64_t)i);
        UNTIL(&t, peer[i].sent.calls == MESSAGES && peer[i].streamed.calls);
    }
    CHECK_EQ(t.errors + t.back_errors, 0);
    CHECK(most_unread(&t) <= BOUND);
    for (int i = 1; i < PEERS; i++) weft_worker_destroy(worker[i]);
    t.a = worker[0];
    two_down(&t);
}
TEST(many_peers_full_of_unread_bytes_stay_within_the_bound_of_all_and_lose_none_shm) {
    many_peers("shm");
}
TEST(many_peers_full_of_unread_bytes_stay_within_the_bound_of_all_and_lose_none_tcp) {
    many_peers("tcp");
}

/* Messages of disconnected peers are dropped first: no sender of theirs could wait. */
TEST(what_disconnected_peers_left_makes_room_for_those_that_are_there) {
    enum { BOUND = 256 << 10 };
    weft_setting_t little[] = {{"tag.unexpected_bytes", "64k"}, {"stream.window", "64k"},
                               {"peer.max_unexpected", "256k"}, {"peers.max_unexpected", "256k"},
                               {"close.timeout", "20ms"},       {"log.level", "error"}};
    static char bytes[MESSAGE];
    struct two t;
    two_workers(&t, "tcp", little, 6);
    for (int i = 0; i < 12; i++) {
        struct peer one = {0};
        opens(&t, &one);
        for (int k = 0; k < 8; k++) {
            struct tally sent = {0};
            weft_status_t st =
                weft_tag_send(one.ep, 7, &(weft_iov_t){bytes, MESSAGE}, 1, OP(&sent));
            CHECK(st >= 0);
            if (st == WEFT_IN_PROGRESS) UNTIL(&t, sent.calls);
        }
        for (int k = 0; k < 50; k++) two_turn(&t);
        CHECK_EQ(t.errors, 0);
        weft_worker_destroy(t.a);
        for (int k = 0; k < 50; k++) weft_worker_progress(t.b, 0);
        joins(&t, "tcp");
    }
    CHECK(most_unread(&t) <= BOUND);
    CHECK(weft_worker_count(t.b, "tag.dropped") > 0);
    two_down(&t);
}

/* The least that there may be: a worker that wants nothing kept gets what it asks for. Each byte
 * of a stream takes its way and back. */
TEST_EACH(with_next_to_no_room_messages_and_streams_go_one_by_one) {
    weft_setting_t none[] = {{"tag.unexpected_bytes", "64"}, {"stream.window", "1"}};
    struct two t;
    two_workers(&t, transport, none, 2);
    memset(peer, 0, sizeof peer);
    stream_len = 5000;
    opens(&t, &peer[0]);
    leaves(&peer[0], 7);
    takes(&t, &peer[0], 7);
    UNTIL(&t, peer[0].sent.calls == MESSAGES && peer[0].streamed.calls);
    stream_len = STREAM;
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}
