/* A kept message stays as it was until it is released, and is copied only where the library
 * needs its place. */
#include <tests/support/worker_pair.h>

enum { MANY = 40, FEW = 8 };

struct keeper {
    unsigned n, bad, in_place;
    size_t len;
    weft_worker_t *worker;
    bool bare, alone, twice,
        /* they have no header; nor an endpoint; each is kept once more; each is released in its
         * handler */
        at_once;
    const void *data[MANY];
};

static void on_keep(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct keeper *k = arg;
    weft_worker_t *worker = k->worker;
    const void *again = NULL;
    uint32_t number = k->n;
    bool kept = k->n < MANY && weft_am_retain(am, &k->data[k->n]) == WEFT_OK;
    if (kept && k->twice) kept = weft_am_retain(am, &again) == WEFT_OK && again != k->data[k->n];
    if (!kept || am->header_len != (k->bare ? 0 : sizeof number) || am->len != k->len) {
        k->bad++;
        return;
    }
    memcpy(&number, am->header, am->header_len); /* the header is whole, still */
    if (number != k->n || !is_pattern(am->data, am->len, number)) k->bad++;
    if (again && !is_pattern(again, am->len, number)) k->bad++;
    k->in_place += k->data[k->n] == am->data;
    if (again) weft_am_release(worker, again);
    if (k->at_once) weft_am_release(worker, k->data[k->n]);
    k->n++;
}

static unsigned char sent[MANY][20000];

/* Numbered in their headers; k->len bytes each. */
static void send_numbered(struct two *t, struct keeper *k, uint32_t n) {
    k->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        pattern(sent[i], k->len, i);
        weft_op_t op = {.flags = k->alone ? WEFT_AM_NO_REPLY : 0};
        CHECK(weft_am_send(t->ep, 5, &i, k->bare ? 0 : sizeof i, &(weft_iov_t){sent[i], k->len}, 1,
                           &op) >= 0);
    }
    UNTIL(t, k->n == n || k->bad);
    CHECK_EQ(k->bad, 0);
}

static void up(struct two *t, const char *transport, struct keeper *k) {
    *k = (struct keeper){.len = strcmp(transport, "self") == 0 ? 4000 : 20000};
    two_up(t, transport);
    k->worker = two_b(t);
    CHECK_EQ(weft_am_handler_set(two_b(t), 5, on_keep, k), 0);
}

static bool is_kept_in_place(const char *transport) {
    return strcmp(transport, "self") == 0 || strcmp(transport, "tcp") == 0;
}

static unsigned placed;
static unsigned char large[1 << 20], into[1 << 20];
static void on_placed(weft_status_t status, void *arg) {
    placed += status == WEFT_OK && is_pattern(into, sizeof into, 77);
}
static void on_large(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){into, sizeof into}, 1,
                                    &(weft_op_t){.done = on_placed, .arg = arg});
    if (st != WEFT_IN_PROGRESS) on_placed(st, arg);
}

TEST_EACH(kept_messages_stay_as_they_are_while_others_come) {
    struct two t;
    struct keeper k;
    up(&t, transport, &k);
    k.twice = true;
    CHECK_EQ(weft_am_handler_set(two_b(&t), 6, on_large, NULL), 0);
    send_numbered(&t, &k, MANY);
    CHECK_EQ(k.in_place, is_kept_in_place(transport) ? MANY : 0);
    CHECK_EQ(weft_worker_count(two_b(&t), "am.retained_in_place"), k.in_place);
    pattern(large, sizeof large, 77);
    placed = 0;
    for (unsigned i = 0; i < 3; i++) {
        memset(into, 0, sizeof into);
        CHECK(weft_am_send(t.ep, 6, NULL, 0, &(weft_iov_t){large, sizeof large}, 1, NULL) >= 0);
        UNTIL(&t, placed == i + 1);
    }
    for (unsigned i = 0; i < MANY; i++) CHECK(is_pattern(k.data[i], k.len, i));
    for (unsigned i = 1; i < MANY; i += 2) weft_am_release(two_b(&t), k.data[i]);
    const void *left[MANY];
    memcpy(left, k.data, sizeof left);
    k.twice = false;
    k.at_once = true;
    send_numbered(&t, &k, MANY); /* into the memory that was given back, and no other */
    for (unsigned i = 0; i < MANY; i += 2) CHECK(is_pattern(left[i], k.len, i));
    for (unsigned i = 0; i < MANY; i += 2) weft_am_release(two_b(&t), left[MANY - 2 - i]);
    two_down(&t);
}

TEST_EACH(messages_without_a_header_are_released_in_any_order) {
    static const unsigned order[] = {2, 0, 3, 1};
    struct two t;
    struct keeper k;
    up(&t, transport, &k);
    k.bare = true;
    for (int round = 0; round < 10; round++) {
        send_numbered(&t, &k, 4);
        for (unsigned i = 0; i < 4; i++) CHECK(is_pattern(k.data[i], k.len, i));
        for (unsigned i = 0; i < 4; i++) weft_am_release(two_b(&t), k.data[order[i]]);
    }
    k.alone = true;
    k.in_place = 0;
    send_numbered(&t, &k, 4);
    CHECK_EQ(k.in_place, is_kept_in_place(transport) ? 4 : 0);
    for (unsigned i = 0; i < 4; i++) weft_am_release(two_b(&t), k.data[order[i]]);
    weft_am_release(two_b(&t), NULL);
    two_down(&t);
}

/* Blocks count for the worker of this thread that looked at the kernel last. */
static uint64_t blocks_of(const struct two *t) {
    uint64_t n = weft_worker_count(t->a, "worker.allocations");
    return t->b ? n + weft_worker_count(t->b, "worker.allocations") : n;
}

/* Blocks that are taken for FEW messages that are kept one after the other. */
static uint64_t blocks_taken(struct two *t, struct keeper *k) {
    send_numbered(t, k, FEW);
    for (unsigned i = 0; i < FEW; i++) weft_am_release(two_b(t), k->data[i]);
    uint64_t before = blocks_of(t);
    for (unsigned i = 0; i < FEW; i++) {
        send_numbered(t, k, 1);
        weft_am_release(two_b(t), k->data[0]);
    }
    return blocks_of(t) - before;
}

TEST_EACH(keeping_in_place_allocates_nothing_and_a_copy_one_block) {
    struct two t;
    struct keeper k;
    up(&t, transport, &k);
    k.bare = true; /* a sender whose lane is full would copy the header */
    uint64_t first = blocks_taken(&t, &k), second = blocks_taken(&t, &k);
    if (is_kept_in_place(transport)) /* something else may have had its first time in one of them */
        CHECK(first == 0 || second == 0);
    else
        CHECK(first >= FEW && second >= FEW);
    k.len = 40; /* too short for a place that is so much larger */
    uint64_t in_place = weft_worker_count(two_b(&t), "am.retained_in_place");
    CHECK(blocks_taken(&t, &k) >= FEW);
    CHECK_EQ(weft_worker_count(two_b(&t), "am.retained_in_place"), in_place);
    two_down(&t);
}

TEST_EACH(a_kept_message_outlives_its_endpoint) {
    struct two t;
    struct keeper k;
    struct tally c = {0};
    up(&t, transport, &k);
    send_numbered(&t, &k, FEW);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&c)), WEFT_IN_PROGRESS);
    UNTIL(&t, c.calls == 1 && t.back_errors);
    CHECK(weft_ep_close(t.back, WEFT_CLOSE_FLUSH, NULL) >= 0);
    for (int i = 0; i < 50; i++) two_turn(&t);
    for (unsigned i = 0; i < FEW; i++) CHECK(is_pattern(k.data[i], k.len, i));
    /* one goes with the worker */
    for (unsigned i = 0; i < FEW - 1; i++) weft_am_release(two_b(&t), k.data[i]);
    two_down(&t);
}
