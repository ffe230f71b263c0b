/* Streams: every byte once and in order, whatever is sent and received how. */
#include <tests/support/streams.h>

#include <reactor/reactor.h>

/* ---- what is sent is received */

TEST_EACH(bytes_cross_at_every_size) {
    static const size_t sizes[] = {1,      7,      31,     32,      33,    40,    1000,
                                   1024,   1025,   4000,   8183,    8184,  8185,  8192,
                                   16376,  16384,  65527,  65528,   65529, 65536, 65537,
                                   131072, 262144, 262145, 1000000, ROOM};
    struct two t;
    two_up(&t, transport);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tally sent = {0}, got = {0};
        size_t len;
        write_bytes(out, i, sizes[i]);
        memset(in, 0, sizes[i]);
        weft_status_t recv_st = weft_stream_recv(t.back, ONE(in, sizes[i]), &len, ALL(&got));
        weft_status_t send_st = weft_stream_send(t.ep, ONE(out, sizes[i]), OP(&sent));
        UNTIL(&t, ended(send_st, &sent) && ended(recv_st, &got));
        CHECK_EQ(outcome(send_st, &sent), WEFT_OK);
        CHECK_EQ(outcome(recv_st, &got), WEFT_OK);
        CHECK(len == sizes[i] && are_bytes(in, i, len));
    }
    two_down(&t);
}

/* Both directions at once, cut at random; received by receives of both kinds and by taking,
 * whichever comes. */
struct half {
    weft_ep_t *ep;
    weft_worker_t *worker;
    uint64_t random, sent, received, total;
    struct tally send, recv;
    bool sending, receiving, wrong;
    size_t len;
    const void *taken[8];
    char *out, *in;
};
static uint64_t next(struct half *h) {
    h->random = h->random * 6364136223846793005u + 1442695040888963407u;
    return h->random >> 33;
}
static size_t some(struct half *h, uint64_t left) {
    static const unsigned most[] = {1, 10, 100, 3000, 9000, 70000, 300000};
    size_t n = 1 + next(h) % most[next(h) % 7];
    return n < left ? n : (size_t)left;
}

static void send_some(struct half *h) {
    if (h->sending && !h->send.calls) return;
    if (h->sending) h->wrong |= h->send.status != WEFT_OK;
    h->sending = false;
    if (h->sent == h->total) return;
    weft_iov_t iov[6];
    size_t len = some(h, h->total - h->sent), n = 1 + next(h) % 6, at = 0;
    write_bytes(h->out, h->sent, len);
    for (size_t i = 0; i < n; i++) {
        size_t part = i + 1 < n ? next(h) % (len - at + 1) : len - at;
        iov[i] = (weft_iov_t){h->out + at, part};
        at += part;
    }
    h->send = (struct tally){0};
    weft_status_t st = weft_stream_send(h->ep, iov, n, OP(&h->send));
    h->wrong |= st < 0;
    h->sending = st == WEFT_IN_PROGRESS;
    h->sent += len;
}

static void received(struct half *h, const void *bytes, size_t len) {
    h->wrong |= !are_bytes(bytes, h->received, len) || len == 0;
    h->received += len;
}

static void take_some(struct half *h) {
    const void *data;
    size_t len;
    unsigned place = next(h) % 8;
    if (h->taken[place]) weft_stream_release(h->worker, h->taken[place]);
    h->taken[place] = NULL;
    if (weft_stream_take(h->ep, &data, &len) != WEFT_OK) return;
    received(h, data, len);
    h->taken[place] = data;
}

static void receive_some(struct half *h) {
    if (h->receiving && !h->recv.calls) return;
    if (h->receiving) {
        h->wrong |= h->recv.status != WEFT_OK;
        received(h, h->in, h->len);
    }
    h->receiving = false;
    if (h->received == h->total) return;
    if (next(h) % 3 == 0) {
        take_some(h);
        return;
    }
    size_t len = some(h, h->total - h->received), cut = next(h) % (len + 1);
    bool all = next(h) % 2;
    /* WAIT_ALL must not ask for what the receiver itself holds the room of. */
    for (int i = 0; i < 8; i++) {
        if (h->taken[i]) weft_stream_release(h->worker, h->taken[i]);
        h->taken[i] = NULL;
    }
    h->recv = (struct tally){0};
    weft_status_t st =
        weft_stream_recv(h->ep, (weft_iov_t[]){{h->in, cut}, {h->in + cut, len - cut}}, 2, &h->len,
                         all ? ALL(&h->recv) : OP(&h->recv));
    h->wrong |= st < 0;
    h->receiving = st == WEFT_IN_PROGRESS;
    if (st != WEFT_OK) return;
    h->wrong |= all && h->len != len;
    received(h, h->in, h->len);
}

static void random_cuts(const char *transport, const char *window, uint64_t total, uint64_t seed) {
    static char memory[4][300000];
    struct two t;
    up_with_window(&t, transport, window);
    struct half a = {.ep = t.ep,
                     .worker = t.a,
                     .random = seed,
                     .total = total,
                     .out = memory[0],
                     .in = memory[1]};
    struct half b = {.ep = t.back,
                     .worker = two_b(&t),
                     .random = ~seed,
                     .total = total,
                     .out = memory[2],
                     .in = memory[3]};
    double end = test_now() + test_timeout(60);
    while ((a.received < total || b.received < total || a.sending || b.sending) && !a.wrong &&
           !b.wrong && test_now() < end) {
        struct half *h = next(&a) % 2 ? &a : &b;
        if (next(&a) % 2)
            send_some(h);
        else
            receive_some(h);
        two_turn(&t);
    }
    CHECK(!a.wrong && !b.wrong);
    CHECK(a.received == total && b.received == total && t.errors == 0 && t.back_errors == 0);
    two_down(&t); /* what is still taken goes with its worker */
}

TEST_EACH(random_cuts_of_sends_and_receives_lose_nothing) {
    random_cuts(transport, "1m", 3000000, 7);
    random_cuts(transport, "100k", 1000000, 8);
    random_cuts(transport, "1000", 60000, 9);
    random_cuts(transport, "1", 300, 10);
}

TEST_EACH(sends_before_the_endpoint_is_ready_keep_their_order) {
    struct two t;
    struct tally sent[40] = {{0}}, got = {0};
    size_t len, at = 0;
    write_bytes(out, 0, ROOM);
    two_workers(&t, transport, NULL, 0);
    two_dial(&t);
    for (int i = 0; i < 40; i++) {
        size_t n = i % 4 == 0 ? 30000 : 100 + (size_t)i;
        CHECK_EQ(weft_stream_send(t.ep, ONE(out + at, n), OP(&sent[i])), WEFT_IN_PROGRESS);
        at += n;
    }
    UNTIL(&t, t.ready && t.back);
    weft_status_t st = weft_stream_recv(t.back, ONE(in, at), &len, ALL(&got));
    UNTIL(&t, ended(st, &got));
    for (int i = 0; i < 40; i++) UNTIL(&t, sent[i].calls == 1 && sent[i].status == WEFT_OK);
    CHECK(len == at && are_bytes(in, 0, at));
    two_down(&t);
}

/* Small sends behind large ones while the lane is full, and posted in every state of the queue. */
TEST_EACH(a_small_send_never_overtakes_a_large_one) {
    struct two t;
    struct tally got = {0};
    static struct tally sent[60];
    weft_status_t st[60];
    size_t len, at = 0;
    memset(sent, 0, sizeof sent);
    write_bytes(out, 0, ROOM);
    two_up(&t, transport);
    for (int i = 0; i < 60; i++) {
        size_t n = i % 3 == 0 ? 90000 : 50;
        st[i] = weft_stream_send(t.ep, ONE(out + at, n), OP(&sent[i]));
        CHECK(st[i] >= 0);
        at += n;
        if (i % 7 == 0) weft_worker_progress(t.a, 0);
    }
    CHECK(at < ROOM);
    weft_status_t got_st = weft_stream_recv(t.back, ONE(in, at), &len, ALL(&got));
    UNTIL(&t, ended(got_st, &got));
    for (int i = 0; i < 60; i++)
        UNTIL(&t, ended(st[i], &sent[i]) && outcome(st[i], &sent[i]) == WEFT_OK);
    CHECK(len == at && are_bytes(in, 0, at));
    two_down(&t);
}

/* ---- receives */

TEST_EACH(a_receive_takes_what_is_there_and_wait_all_waits) {
    struct two t;
    struct tally some = {0}, all = {0};
    size_t some_len, all_len = 0;
    write_bytes(out, 0, 100);
    two_up(&t, transport);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 50), &some_len, OP(&some)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in + 50, 20), &all_len, ALL(&all)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 3), NULL), WEFT_OK);
    UNTIL(&t, some.calls == 1);
    CHECK(some.status == WEFT_OK && some_len == 3 && are_bytes(in, 0, 3));
    CHECK_EQ(weft_stream_send(t.ep, ONE(out + 3, 19), NULL), WEFT_OK);
    UNTIL(&t, all_len == 19);
    for (int i = 0; i < 50; i++) two_turn(&t);
    CHECK(all.calls == 0 && all_len == 19);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out + 22, 11), NULL), WEFT_OK);
    UNTIL(&t, all.calls == 1);
    CHECK(all_len == 20 && are_bytes(in + 50, 3, 20));
    /* The rest waits for the next receive. */
    size_t len;
    weft_status_t st = weft_stream_recv(t.back, ONE(in, 50), &len, NULL);
    CHECK(st == WEFT_OK && len == 10 && are_bytes(in, 23, 10));
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 0), &len, NULL), WEFT_OK);
    CHECK_EQ(len, 0);
    two_down(&t);
}

TEST_EACH(what_is_taken_is_given_back_in_any_order) {
    enum { N = 6 };
    struct two t;
    struct tally c = {0};
    const void *data[N + 1];
    size_t len[N + 1], at = 0;
    write_bytes(out, 0, 100000);
    up_with_window(&t, transport, "60000");
    CHECK_EQ(weft_stream_take(t.back, &data[0], &len[0]), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 1), &len[0], OP(&c)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_take(t.back, &data[0], &len[0]), WEFT_ERR_BUSY);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 5), NULL), WEFT_OK);
    UNTIL(&t, c.calls == 1);
    for (int i = 0; i < N; i++) {
        if (i == 0) at = 1;
        if (i) CHECK(weft_stream_send(t.ep, ONE(out + at, 10000), NULL) >= 0);
        UNTIL_TAKEN(&t, &data[i], &len[i]);
        CHECK(len[i] >= 1 && are_bytes(data[i], at, len[i]));
        at += len[i];
        while (i && (at - 5) % 10000) { /* however it was cut */
            const void *more;
            size_t n;
            UNTIL_TAKEN(&t, &more, &n);
            CHECK(are_bytes(more, at, n));
            at += n;
            weft_stream_release(two_b(&t), more);
        }
    }
    size_t from = 1;
    for (int i = 0; i < N; i++) {
        CHECK(are_bytes(data[i], i ? 5 + (size_t)(i - 1) * 10000 : from, len[i]));
    }
    static const int order[N] = {3, 0, 5, 1, 4, 2};
    for (int i = 0; i < N; i++) weft_stream_release(two_b(&t), data[order[i]]);
    two_down(&t);
}

TEST_EACH(what_is_held_stays_on_the_window_until_it_is_released) {
    struct two t;
    struct tally sent = {0};
    const void *data[64];
    size_t len, n = 0, at = 0;
    write_bytes(out, 0, 30000);
    up_with_window(&t, transport, "10000");
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 30000), OP(&sent)), WEFT_IN_PROGRESS);
    while (at < 10000) {
        UNTIL_TAKEN(&t, &data[n], &len);
        CHECK(n < 63 && are_bytes(data[n], at, len));
        n++;
        at += len;
    }
    for (int i = 0; i < 300; i++) two_turn(&t);
    CHECK(weft_stream_take(t.back, &data[n], &len) != WEFT_OK);
    CHECK(at == 10000 && sent.calls == 0);
    for (size_t i = 0; i < n; i++) weft_stream_release(two_b(&t), data[i]);
    while (at < 30000) {
        UNTIL_TAKEN(&t, &data[0], &len);
        CHECK(are_bytes(data[0], at, len));
        at += len;
        weft_stream_release(two_b(&t), data[0]);
    }
    UNTIL(&t, sent.calls == 1 && sent.status == WEFT_OK);
    two_down(&t);
}

static int data_calls;
static void on_data(weft_ep_t *ep, void *arg) {
    data_calls++;
}
static void on_data_take_all(weft_ep_t *ep, void *arg) {
    const void *data;
    size_t len;
    data_calls++;
    while (weft_stream_take(ep, &data, &len) == WEFT_OK) {
        *(size_t *)arg += len;
        weft_stream_release(weft_ep_worker(ep), data);
    }
}

/* However little of the window is left by what is held: all the rest crosses by that. */
TEST_EACH(bytes_flow_through_what_holding_leaves_of_the_window) {
    enum { WINDOW = 65536, HELD_LEAST = 60000, MORE = 100000 };
    struct two t;
    const void *held[64], *data;
    size_t len, n_held = 0, at = 0;
    up_with_window(&t, transport, "64k");
    struct tally sent = {0};
    write_bytes(out, 0, HELD_LEAST + MORE);
    weft_status_t st = weft_stream_send(t.ep, ONE(out, HELD_LEAST), OP(&sent));
    while (at < HELD_LEAST && n_held < 64) {
        UNTIL_TAKEN(&t, &held[n_held], &len);
        CHECK(are_bytes(held[n_held++], at, len));
        at += len;
    }
    UNTIL(&t, ended(st, &sent));
    sent = (struct tally){0};
    st = weft_stream_send(t.ep, ONE(out + HELD_LEAST, MORE), OP(&sent));
    while (at < HELD_LEAST + MORE) {
        UNTIL_TAKEN(&t, &data, &len);
        CHECK(len <= WINDOW - HELD_LEAST && are_bytes(data, at, len));
        at += len;
        weft_stream_release(two_b(&t), data);
    }
    UNTIL(&t, ended(st, &sent));
    for (size_t i = 0; i < n_held; i++) weft_stream_release(two_b(&t), held[i]);
    two_down(&t);
}

static void until_came(struct two *t, uint64_t bytes) {
    UNTIL(t, weft_worker_count(two_b(t), "stream.bytes_in") == bytes);
}

TEST_EACH(on_data_notifies_once_until_some_are_taken) {
    struct two t;
    struct tally c = {0};
    size_t len, total = 0;
    data_calls = 0;
    two_up(&t, transport);
    CHECK_EQ(weft_stream_on_data(t.back, on_data, NULL), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_stream_send(t.ep, ONE(out, 10), NULL), WEFT_OK);
        until_came(&t, 10 * ((uint64_t)i + 1));
    }
    UNTIL(&t, data_calls == 1);
    for (int k = 0; k < 50; k++) two_turn(&t);
    CHECK_EQ(data_calls, 1);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 5), &len, NULL), WEFT_OK);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 10), NULL), WEFT_OK);
    UNTIL(&t, data_calls == 2);
    until_came(&t, 40);
    /* Another one reports what is here. */
    CHECK_EQ(weft_stream_on_data(t.back, on_data_take_all, &total), WEFT_OK);
    UNTIL(&t, total == 35);
    CHECK_EQ(data_calls, 3);
    /* Taking re-arms the notification. */
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 10), NULL), WEFT_OK);
    UNTIL(&t, total == 45);
    CHECK_EQ(data_calls, 4);
    /* No notification comes while a receive waits. */
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 10), &len, ALL(&c)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 10), NULL), WEFT_OK);
    UNTIL(&t, c.calls == 1);
    for (int k = 0; k < 50; k++) two_turn(&t);
    CHECK_EQ(data_calls, 4);
    two_down(&t);
}

/* ---- layouts */

struct counted {
    char *bytes;
    size_t at, fails_at;
    int ends;
};
static weft_status_t count_pack(void *state, size_t offset, void *to, size_t len) {
    struct counted *c = state;
    if (c->fails_at && offset + len > c->fails_at) return WEFT_ERR_QUOTA;
    if (offset != c->at) return WEFT_ERR_INTERNAL;
    memcpy(to, c->bytes + offset, len);
    c->at += len;
    return WEFT_OK;
}
static weft_status_t count_unpack(void *state, size_t offset, const void *from, size_t len) {
    struct counted *c = state;
    if (offset != c->at) return WEFT_ERR_INTERNAL;
    memcpy(c->bytes + offset, from, len);
    c->at += len;
    return WEFT_OK;
}
static void count_end(void *state) {
    ((struct counted *)state)->ends++;
}

TEST_EACH(a_layout_streams_as_its_bytes) {
    static const weft_pack_ops_t ops = {NULL, count_pack, count_unpack, count_end};
    const weft_layout_t user = {.kind = WEFT_LAYOUT_USER, .user = &ops},
                        strided = {.kind = WEFT_LAYOUT_STRIDED,
                                   .block = 100,
                                   .stride = 200,
                                   .count = 5000};
    struct counted to = {.bytes = in}, broken = {.bytes = out, .fails_at = 200000};
    struct tally sent = {0}, got = {0}, failed = {0}, after = {0};
    struct two t;
    size_t len;
    write_bytes(out, 0, ROOM);
    two_up(&t, transport);
    weft_op_t op = {.done = tally, .arg = &got, .flags = WEFT_STREAM_WAIT_ALL, .layout = &user};
    CHECK_EQ(weft_stream_recv(t.back, ONE(&to, 500000), &len, &op), WEFT_IN_PROGRESS);
    op = (weft_op_t){.done = tally, .arg = &sent, .layout = &strided};
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 0), &op), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls == 1 && got.calls == 1);
    CHECK(sent.status == WEFT_OK && got.status == WEFT_OK && len == 500000 && to.ends == 1);
    for (size_t i = 0; i < 5000; i++) CHECK(are_bytes(in + i * 100, i * 200, 100));

    /* One that refuses half way ends; what comes behind it follows what was packed. */
    op = (weft_op_t){.done = tally, .arg = &failed, .layout = &user};
    CHECK_EQ(weft_stream_send(t.ep, ONE(&broken, 400000), &op), WEFT_IN_PROGRESS);
    weft_status_t st = weft_stream_send(t.ep, ONE(out, 7), OP(&after));
    UNTIL(&t, failed.calls == 1 && ended(st, &after));
    CHECK(failed.status == WEFT_ERR_QUOTA && broken.ends == 1 && broken.at <= 200000);
    got = (struct tally){0};
    st = weft_stream_recv(t.back, ONE(in, broken.at + 7), &len, ALL(&got));
    UNTIL(&t, ended(st, &got));
    CHECK(are_bytes(in, 0, broken.at) && are_bytes(in + broken.at, 0, 7) && t.errors == 0 &&
          t.back_errors == 0);
    two_down(&t);
}

/* ---- others do not notice */

static int messages;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    messages++;
}

TEST_EACH(a_slow_consumer_holds_up_its_own_stream_alone) {
    struct two t;
    struct tally stuck = {0}, sent, got;
    weft_ep_t *slow, *slow_back;
    size_t len;
    messages = 0;
    write_bytes(out, 0, ROOM);
    up_with_window(&t, transport, "50k");
    slow = t.ep;
    slow_back = t.back;
    t.ready = 0;
    t.back = NULL;
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    weft_am_handler_set(two_b(&t), 1, on_message, NULL);
    CHECK_EQ(weft_stream_send(slow, ONE(out, 300000), OP(&stuck)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 20; i++) {
        memset(&sent, 0, sizeof sent);
        memset(&got, 0, sizeof got);
        weft_status_t st = weft_stream_recv(t.back, ONE(in, 200000), &len, ALL(&got));
        weft_status_t send_st = weft_stream_send(t.ep, ONE(out, 200000), OP(&sent));
        CHECK(weft_am_send(slow, 1, NULL, 0, ONE(out, 100), NULL) >= 0);
        UNTIL(&t, ended(st, &got) && ended(send_st, &sent));
        CHECK(len == 200000 && are_bytes(in, 0, len));
    }
    UNTIL(&t, messages == 20);
    CHECK_EQ(stuck.calls, 0);
    memset(&got, 0, sizeof got);
    weft_status_t st = weft_stream_recv(slow_back, ONE(in, 300000), &len, ALL(&got));
    UNTIL(&t, ended(st, &got) && stuck.calls == 1);
    CHECK(stuck.status == WEFT_OK && are_bytes(in, 0, len));
    two_down(&t);
}

TEST_EACH(wrong_calls_are_refused) {
    struct two t;
    size_t len;
    const void *data;
    two_up(&t, transport);
    CHECK_EQ(weft_stream_send(NULL, ONE(out, 1), NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_send(t.ep, NULL, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_recv(NULL, ONE(in, 1), &len, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_recv(t.ep, ONE(in, 1), NULL, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_recv(t.ep, NULL, 1, &len, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_take(NULL, &data, &len), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_take(t.ep, NULL, &len), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_on_data(NULL, NULL, NULL), WEFT_ERR_INVALID_PARAM);
    weft_stream_release(t.a, NULL);
    CHECK_EQ(weft_stream_send(t.ep, NULL, 0, NULL), WEFT_OK);
    two_down(&t);
}

/* ---- memory */

TEST(each_allocation_of_a_stream_may_fail) {
    static const char *const transports[] = {"self", "shm", "tcp"};
    for (int which = 0; which < 3; which++)
        for (uint64_t k = 0, n = 1; k <= n; k++) {
            struct two t;
            struct tally sent[2] = {{0}}, got[2] = {{0}};
            weft_status_t st[4];
            size_t len[2];
            const void *data;
            data_calls = 0;
            up_with_window(&t, transports[which], "40000");
            write_bytes(out, 0, 50000);
            weft__alloc_fail_at(k);
            (void)weft_stream_on_data(t.back, on_data, NULL);
            st[0] = weft_stream_send(t.ep, ONE(out, 1000), OP(&sent[0]));
            if (k == 0) UNTIL(&t, data_calls == 1);
            for (int i = 0; i < 30; i++) two_turn(&t);
            weft_status_t take = weft_stream_take(t.back, &data, &len[0]);
            st[1] = weft_stream_recv(
                t.back,
                (weft_iov_t[]){{in, 1}, {in + 1, 1}, {in + 2, 1}, {in + 3, 1}, {in + 4, 49996}}, 5,
                &len[0], ALL(&got[0]));
            st[2] = weft_stream_send(t.ep, ONE(out, 50000), OP(&sent[1]));
            st[3] = weft_stream_recv(t.back, ONE(in, 1), &len[1], OP(&got[1]));
            if (k == 0) UNTIL(&t, got[0].calls == (st[1] == WEFT_IN_PROGRESS));
            for (int i = 0; i < 200; i++) two_turn(&t);
            uint64_t seen = weft__alloc_fail_at(0);
            if (k == 0) n = seen;
            if (k == 0) CHECK(take == WEFT_OK && len[0] == 50000 && are_bytes(in, 0, 50000));
            if (take == WEFT_OK) weft_stream_release(two_b(&t), data);
            two_down(&t);
            CHECK(sent[0].calls == (st[0] == WEFT_IN_PROGRESS) &&
                  sent[1].calls == (st[2] == WEFT_IN_PROGRESS));
            CHECK(got[0].calls == (st[1] == WEFT_IN_PROGRESS) &&
                  got[1].calls == (st[3] == WEFT_IN_PROGRESS));
        }
}

TEST(the_waiting_forms) {
    struct two t;
    size_t len;
    const char *transport = "self"; /* one worker drives both halves */
    two_up(&t, transport);
    write_bytes(out, 0, 20);
    CHECK_EQ(weft_stream_send_wait(t.ep, ONE(out, 20)), WEFT_OK);
    CHECK_EQ(weft_stream_recv_wait(t.back, ONE(in, 50), &len), WEFT_OK);
    CHECK(len == 20 && are_bytes(in, 0, 20));
    two_down(&t);
}
