/* Large copies by the transport go on turn by turn: the loop looks at other things between, and
 * they can be ended. */
#include <tests/support/rma_peers.h>

#include <endpoints/core/request.h>

enum { MIB = 1 << 20, LARGE = 48 * MIB, TURN = 9 * MIB /* of 8, and a part that began before */ };

static char *here;
static struct tally whole, small;
static weft_request_t *request;

/* Unlike pattern(), not the same again after 64 KiB. */
static uint64_t word_at(size_t i) {
    return (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}
static void fill(char *to) {
    for (size_t i = 0; i < LARGE / 8; i++) ((uint64_t *)(void *)to)[i] = word_at(i);
}
static bool is_filled(const char *from) {
    for (size_t i = 0; i < LARGE / 8; i++)
        if (((const uint64_t *)(const void *)from)[i] != word_at(i)) return false;
    return true;
}

/* The ways of a transport: "mapped", "vm". */
static void begin(struct rma *r, const char *transport, const char *way) {
    weft_setting_t how = {"shm.rma", way};
    rma_up(r, transport, false, LARGE, WEFT_MEM_ALL, &how, 1);
    CHECK_EQ(r->rkey->key->status, 0);
    CHECK(!r->rkey->key->local == !strcmp(way, "vm"));
    here = malloc(LARGE);
    fill(here);
    whole = small = (struct tally){0};
}
static void end(struct rma *r) {
    rma_down(r);
    free(here);
}

#define TEST_NATIVE(name)                                  \
    static void name(const char *transport, const char *); \
    TEST(name##_self) {                                    \
        name("self", "mapped");                            \
    }                                                      \
    TEST(name##_mapped) {                                  \
        name("shm", "mapped");                             \
    }                                                      \
    TEST(name##_process_vm) {                              \
        name("shm", "vm");                                 \
    }                                                      \
    static void name(const char *transport, const char *way)

static weft_status_t move(struct rma *r, bool put, const weft_op_t *op) {
    return put ? weft_put(r->t.ep, here, LARGE, rma_at(r, 0), r->rkey, op)
               : weft_get(r->t.ep, here, LARGE, rma_at(r, 0), r->rkey, op);
}

TEST_NATIVE(a_large_copy_takes_many_turns_and_arrives_whole) {
    struct rma r;
    begin(&r, transport, way);
    for (int put = 1; put >= 0; put--) {
        weft_op_t op = {.done = tally, .arg = &whole, .request_p = &request};
        whole = (struct tally){0};
        CHECK_EQ(move(&r, put, &op), WEFT_IN_PROGRESS);
        for (size_t before = 0; !whole.calls; before = request->offset) {
            CHECK(request->offset - before <= TURN);
            if (request->offset == LARGE) break;
            two_turn(&r.t);
        }
        UNTIL(&r.t, whole.calls);
        CHECK_EQ(whole.status, 0);
        CHECK(is_filled(put ? r.target : here));
        memset(here, 0, LARGE);
    }
    CHECK_EQ(weft_worker_count(r.t.a, "rma.messages"), 0);
    end(&r);
}

/* Several at once share the turns. */
TEST_NATIVE(large_copies_of_two_endpoints_go_on_together) {
    struct rma r;
    weft_request_t *second = NULL;
    struct tally other = {0};
    begin(&r, transport, way);
    weft_ep_t *first = r.t.ep;
    weft_rkey_t *first_key = r.rkey;
    r.t.ready = 0;
    two_dial(&r.t);
    UNTIL(&r.t, r.t.ready);
    r.rkey = rma_key(&r, r.mem);
    UNTIL(&r.t, r.rkey->key->status != WEFT_NO_RESOURCE);
    weft_op_t op = {.done = tally, .arg = &whole, .request_p = &request};
    CHECK_EQ(weft_put(first, here, LARGE, rma_at(&r, 0), first_key, &op), WEFT_IN_PROGRESS);
    op = (weft_op_t){.done = tally, .arg = &other, .request_p = &second};
    CHECK_EQ(move(&r, true, &op), WEFT_IN_PROGRESS);
    CHECK(request->offset + second->offset <= TURN);
    for (int i = 0; i < 4; i++) {
        size_t before = request->offset + second->offset;
        two_turn(&r.t);
        CHECK(request->offset + second->offset - before <= TURN);
    }
    CHECK(request->offset > 0 && second->offset > 0);
    UNTIL(&r.t, whole.calls && other.calls);
    CHECK(whole.status == WEFT_OK && other.status == WEFT_OK && is_filled(r.target));
    weft_rkey_release(first_key);
    end(&r);
}

TEST_NATIVE(a_large_copy_ends_when_it_is_cancelled_and_when_its_time_is_over) {
    struct rma r;
    begin(&r, transport, way);
    for (int late = 0; late < 2; late++) {
        weft_op_t op = {.done = tally, .arg = &whole, .request_p = &request, .deadline_ms = late};
        memset(r.target, 0, LARGE);
        whole = (struct tally){0};
        CHECK_EQ(move(&r, true, &op), WEFT_IN_PROGRESS);
        two_turn(&r.t);
        if (late)
            usleep(2000);
        else
            weft_request_cancel(request);
        for (int i = 0; i < 20; i++) two_turn(&r.t);
        CHECK_EQ(whole.calls, 1);
        CHECK_EQ(whole.status, late ? WEFT_ERR_TIMED_OUT : WEFT_ERR_CANCELLED);
        CHECK_EQ(r.target[LARGE - 1], 0);
    }
    end(&r);
}

TEST_NATIVE(nothing_is_moved_any_more_once_the_owner_took_the_key_back) {
    struct rma r;
    struct tally revoked = {0};
    begin(&r, transport, way);
    CHECK_EQ(move(&r, true, OP(&whole)), WEFT_IN_PROGRESS);
    weft_status_t st = weft_mem_revoke(r.mem, OP(&revoked));
    if (st == WEFT_IN_PROGRESS) UNTIL(&r.t, revoked.calls);
    UNTIL(&r.t, whole.calls);
    CHECK_EQ(whole.status, WEFT_ERR_REVOKED);
    memset(r.target, 'x', LARGE);
    for (int i = 0; i < 20; i++) two_turn(&r.t);
    for (size_t i = 0; i < LARGE; i += 4096) CHECK_EQ(r.target[i], 'x');
    end(&r);
}

/* Where puts are said to keep their order, a small one does not pass the rest of a large one; a
 * message does. */
static int received;
static void on_word(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}

TEST_NATIVE(puts_keep_the_order_that_they_are_sent_to_keep) {
    struct rma r;
    weft_rma_attributes_t a;
    uint64_t word = 1, old;
    struct tally last = {0};
    received = 0;
    begin(&r, transport, way);
    CHECK_EQ(weft_am_handler_set(two_b(&r.t), 3, on_word, NULL), 0);
    CHECK_EQ(weft_ep_rma_attributes(r.t.ep, r.rkey, &a), 0);
    bool ordered = a.order != WEFT_ORDER_NONE;
    CHECK_EQ(ordered, strcmp(way, "vm") != 0); /* atomics go by message there */
    memset(here, 'a', LARGE);
    CHECK_EQ(move(&r, true, OP(&whole)), WEFT_IN_PROGRESS);
    CHECK(weft_am_send(r.t.ep, 3, "w", 1, NULL, 0, NULL) >= 0);
    CHECK(weft_put(r.t.ep, "bcde", 4, rma_at(&r, LARGE - 16), r.rkey, NULL) >= 0);
    CHECK(weft_atomic_post(r.t.ep, WEFT_ATOMIC_ADD, 8, 1, rma_at(&r, LARGE - 8), r.rkey,
                           OP(&last)) >= 0);
    UNTIL(&r.t, whole.calls || received);
    CHECK(!whole.calls);
    UNTIL(&r.t, whole.calls);
    CHECK_EQ(RMA_FLUSH(&r, &small), 0);
    memset(&word, 'a', 8);
    old = word + 1;
    if (ordered)
        CHECK(!memcmp(r.target + LARGE - 16, "bcde", 4) && !memcmp(r.target + LARGE - 8, &old, 8));
    CHECK(r.target[LARGE - 17] == 'a' && r.target[LARGE - 12] == 'a');
    /* And nothing stands in the way any more. */
    if (ordered) CHECK_EQ(weft_put(r.t.ep, "fghi", 4, rma_at(&r, 0), r.rkey, NULL), WEFT_OK);
    CHECK_EQ(RMA_FLUSH(&r, &small), 0);
    end(&r);
}

/* 60 pieces of 768 KiB here, one range there, and the other way round; and a small put behind
 * them. */
TEST_NATIVE(many_pieces_take_many_turns_too) {
    struct rma r;
    enum { N = 60, BLOCK = 768 * 1024, TOTAL = N * BLOCK };
    begin(&r, transport, way);
    weft_local_t local = {here, BLOCK, BLOCK + 64, N, NULL};
    weft_remote_t range = {rma_at(&r, 0), TOTAL, 0, 0, r.rkey};
    for (int scatter = 0; scatter < 2; scatter++) {
        if (scatter) {
            local = (weft_local_t){here, TOTAL, 0, 0, NULL};
            range = (weft_remote_t){rma_at(&r, 0), BLOCK, BLOCK + 64, N, r.rkey};
        }
        size_t stride = scatter ? BLOCK : BLOCK + 64;
        memset(r.target, 0, LARGE);
        whole = (struct tally){0};
        CHECK_EQ(weft_put_pieces(r.t.ep, &local, 1, &range, 1, RMA_REMOTE(&whole)),
                 WEFT_IN_PROGRESS);
        CHECK_EQ(r.target[TURN + MIB], 0);
        two_turn(&r.t);
        CHECK_EQ(r.target[2 * TURN + 2 * MIB], 0);
        if (strcmp(way, "vm") != 0)
            CHECK(weft_put(r.t.ep, "last", 4, rma_at(&r, TOTAL - 4), r.rkey, NULL) >= 0);
        UNTIL(&r.t, whole.calls);
        CHECK_EQ(whole.status, 0);
        CHECK_EQ(RMA_FLUSH(&r, &small), 0);
        for (size_t i = 0; i < N - 1; i++)
            CHECK(!memcmp(r.target + i * (scatter ? BLOCK + 64 : BLOCK), here + i * stride, BLOCK));
        if (strcmp(way, "vm") != 0) CHECK(!memcmp(r.target + TOTAL - 4, "last", 4));
    }
    end(&r);
}
