/* One-sided operations between two workers, by the transport and by messages (rma_limits_test.c:
 * of every size). */
#include <tests/support/atomic_result.h>
#include <tests/support/rma_peers.h>

enum { ROOM = 3 << 20 };
static struct tally tallied;

static bool is_all(const char *from, size_t len, char value) {
    for (size_t i = 0; i < len; i++)
        if (from[i] != value) return false;
    return true;
}

TEST_WAYS(nothing_is_moved_by_zero_bytes) {
    struct rma r;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_put(r.t.ep, NULL, 0, rma_at(&r, 4096), r.rkey, OP(&tallied)), 0);
    CHECK_EQ(weft_get(r.t.ep, NULL, 0, rma_at(&r, 0), r.rkey, OP(&tallied)), 0);
    CHECK_EQ(weft_put(r.t.ep, NULL, 0, rma_at(&r, 4097), r.rkey, OP(&tallied)),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put(r.t.ep, NULL, 1, rma_at(&r, 0), r.rkey, NULL), WEFT_ERR_INVALID_PARAM);
    rma_down(&r);
}

/* Of one worker, or of two that have the memory mapped: from one end of the region to the other,
 * and onto itself. */
TEST_WAYS(a_region_is_moved_within_itself) {
    struct rma r;
    enum { HALF = 1200000 };
    rma_up(&r, transport, messages, 2 * HALF, WEFT_MEM_ALL, NULL, 0);
    pattern(r.target, 2 * HALF, 5);
    CHECK_EQ(
        RMA_WAIT(&r, &tallied,
                 weft_put(r.t.ep, r.target, HALF, rma_at(&r, HALF), r.rkey, RMA_REMOTE(&tallied))),
        0);
    CHECK(is_pattern(r.target, HALF, 5) && is_pattern(r.target + HALF, HALF, 5));
    pattern(r.target + HALF, HALF, 6);
    CHECK_EQ(RMA_WAIT(&r, &tallied,
                      weft_get(r.t.ep, r.target, HALF, rma_at(&r, HALF), r.rkey, OP(&tallied))),
             0);
    CHECK(is_pattern(r.target, HALF, 6) && is_pattern(r.target + HALF, HALF, 6));
    CHECK_EQ(
        RMA_WAIT(&r, &tallied,
                 weft_put(r.t.ep, r.target, HALF, rma_at(&r, 0), r.rkey, RMA_REMOTE(&tallied))),
        0);
    CHECK_EQ(RMA_WAIT(&r, &tallied,
                      weft_get(r.t.ep, r.target, HALF, rma_at(&r, 0), r.rkey, OP(&tallied))),
             0);
    CHECK(is_pattern(r.target, HALF, 6) && is_pattern(r.target + HALF, HALF, 6));
    /* An overlap: within the range it is undefined, and nothing beside it is touched. */
    pattern(r.target, 2 * HALF, 7);
    CHECK(RMA_WAIT(&r, &tallied,
                   weft_put(r.t.ep, r.target + 1000, HALF, rma_at(&r, 1777), r.rkey,
                            RMA_REMOTE(&tallied))) == 0);
    CHECK(is_pattern(r.target, 1777, 7));
    pattern(r.target, 1777 + HALF, 7);
    CHECK(is_pattern(r.target, 2 * HALF, 7));
    rma_down(&r);
}

/* ---- atomics: what each does, from one side and the other */

TEST_WAYS(atomics_do_what_their_names_promise_and_touch_no_neighbour) {
    struct rma r;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    for (int what = WEFT_ATOMIC_ADD; what <= WEFT_ATOMIC_CSWAP; what++)
        for (size_t size = 4; size <= 8; size += 4)
            for (int hit = 0; hit < 2; hit++) {
                uint64_t mask = size == 8 ? UINT64_MAX : UINT32_MAX;
                uint64_t before = UINT64_C(0xfedcba9876543210) & mask,
                         operand = UINT64_C(0x1122334455667788);
                uint64_t compare = hit ? before : before ^ 1, old = UINT64_MAX;
                uint64_t want = atomic_result((weft_atomic_t)what, before, operand, compare) & mask;
                compare |= ~mask & UINT64_C(0xdeadbeef00000000); /* only `size` bytes count */
                memset(r.target, 'x', 64);
                memcpy(r.target + 16, &before, size);
                CHECK_EQ(
                    RMA_WAIT(&r, &tallied,
                             weft_atomic_fetch(r.t.ep, (weft_atomic_t)what, size, operand, compare,
                                               &old, rma_at(&r, 16), r.rkey, OP(&tallied))),
                    0);
                CHECK_EQ(memcmp(&old, &before, size), 0);
                CHECK_EQ(memcmp(r.target + 16, &want, size), 0);
                CHECK(size == 8 || ((const unsigned char *)&old)[4] == 0xff);
                CHECK(is_all(r.target, 16, 'x') && is_all(r.target + 16 + size, 16, 'x'));

                memcpy(r.target + 16, &before, size);
                weft_status_t st =
                    RMA_WAIT(&r, &tallied,
                             weft_atomic_post(r.t.ep, (weft_atomic_t)what, size, operand,
                                              rma_at(&r, 16), r.rkey, RMA_REMOTE(&tallied)));
                CHECK_EQ(st, what == WEFT_ATOMIC_CSWAP ? WEFT_ERR_INVALID_PARAM : WEFT_OK);
                if (st == WEFT_OK) CHECK_EQ(memcmp(r.target + 16, &want, size), 0);
            }
    CHECK_EQ(weft_atomic_post(r.t.ep, WEFT_ATOMIC_ADD, 8, 1, rma_at(&r, 4), r.rkey, NULL),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_atomic_post(r.t.ep, WEFT_ATOMIC_ADD, 2, 1, rma_at(&r, 4), r.rkey, NULL),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_atomic_post(r.t.ep, (weft_atomic_t)9, 8, 1, rma_at(&r, 8), r.rkey, NULL),
             WEFT_ERR_INVALID_PARAM);
    rma_down(&r);
}

/* Of a call that was refused as INVALID_PARAM. */
static bool is_named(weft_status_t st, const char *what) {
    char text[512];
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    return st == WEFT_ERR_INVALID_PARAM && strstr(text, what);
}

TEST_WAYS(what_is_wrong_with_an_atomic_is_named) {
    struct rma r;
    uint64_t old;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    weft_ep_t *ep = r.t.ep;
    uint64_t at = rma_at(&r, 8);
    CHECK(is_named(weft_atomic_post(ep, WEFT_ATOMIC_CSWAP, 8, 1, at, r.rkey, NULL), "posted form"));
    CHECK(is_named(weft_atomic_post(ep, (weft_atomic_t)9, 8, 1, at, r.rkey, NULL), "what:"));
    CHECK(is_named(weft_atomic_post(ep, WEFT_ATOMIC_ADD, 256 + 8, 1, at, r.rkey, NULL), "size:"));
    CHECK(is_named(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 2, 1, 0, &old, at, r.rkey, NULL),
                   "4 or 8 bytes"));
    CHECK(is_named(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at + 4, r.rkey, NULL),
                   "no multiple of 8"));
    rma_down(&r);
}

/* Two ways to one word: none of the additions is lost. */
TEST(atomics_by_message_and_by_mapping_agree) {
    struct rma r;
    enum { EACH = 2000 };
    uint64_t seen = 0, old, sum;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    rma_up(&r, "shm", false, 4096, WEFT_MEM_ALL, NULL, 0);
    weft_ep_t *ep = r.t.ep;
    CHECK_EQ(weft_mem_pack(r.mem, key, &len), 0);
    for (int i = 0; i < EACH; i++) {
        CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, rma_at(&r, 0), r.rkey, NULL),
                 0);
        seen += old;
        __atomic_fetch_add((uint64_t *)(void *)r.target, 1, __ATOMIC_SEQ_CST);
        /* The same words by message: this key never opened. */
        struct lane_key *own = r.rkey->key, none = {.status = WEFT_NO_RESOURCE};
        r.rkey->key = &none;
        CHECK_EQ(weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, rma_at(&r, 0), r.rkey, NULL) >= 0, 1);
        r.rkey->key = own;
        if (i % 16 == 0) two_turn(&r.t);
    }
    CHECK_EQ(RMA_FLUSH(&r, &tallied), 0);
    memcpy(&sum, r.target, 8);
    CHECK_EQ(sum, 3 * EACH);
    CHECK(seen > 0 && weft_worker_count(r.t.a, "rma.messages") >= EACH);
    rma_down(&r);
}

/* ---- pieces */

TEST_WAYS(pieces_gather_here_and_scatter_there) {
    struct rma r;
    enum { BLOCKS = 300, BLOCK = 37, STRIDE = 101, BIG = 200000 };
    char *here = malloc(ROOM), *back = malloc(ROOM);
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    pattern(here, ROOM, 3);

    /* Strided and plain pieces of ours become one range of the peer's. */
    weft_local_t local[] = {{here, BLOCK, STRIDE, BLOCKS, NULL},
                            {here + 60000, 0, 0, 0, NULL},
                            {here + 70000, BIG, 0, 1, NULL}};
    size_t total = BLOCK * BLOCKS + BIG;
    weft_remote_t range = {rma_at(&r, 5), total, 0, 0, r.rkey};
    memset(r.target, 'x', total + 10);
    CHECK_EQ(
        RMA_WAIT(&r, &tallied, weft_put_pieces(r.t.ep, local, 3, &range, 1, RMA_REMOTE(&tallied))),
        0);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(!memcmp(r.target + 5 + i * BLOCK, here + i * STRIDE, BLOCK));
    CHECK(!memcmp(r.target + 5 + BLOCK * BLOCKS, here + 70000, BIG));
    CHECK(is_all(r.target, 5, 'x') && is_all(r.target + 5 + total, 5, 'x'));

    memset(back, 'y', ROOM);
    for (int i = 0; i < 3; i++) local[i].base = back + ((char *)local[i].base - here);
    CHECK_EQ(RMA_WAIT(&r, &tallied, weft_get_pieces(r.t.ep, local, 3, &range, 1, OP(&tallied))), 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(!memcmp(back + i * STRIDE, here + i * STRIDE, BLOCK));
        CHECK(is_all(back + i * STRIDE + BLOCK, STRIDE - BLOCK, 'y'));
    }
    CHECK(!memcmp(back + 70000, here + 70000, BIG));

    /* One range of ours, and blocks of two of the peer's regions. */
    weft_mem_t *second;
    weft_mem_info_t info;
    CHECK_EQ(
        weft_mem_alloc(two_b(&r.t), 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &second),
        0);
    CHECK_EQ(weft_mem_describe(second, &info), 0);
    weft_rkey_t *other = rma_key(&r, second);
    weft_remote_t remote[] = {{rma_at(&r, 8), BLOCK, STRIDE, BLOCKS, r.rkey},
                              {(uint64_t)(uintptr_t)info.base + 3, 1000, 0, 1, other}};
    weft_local_t one = {here + 11, BLOCK * BLOCKS + 1000, 0, 0, NULL};
    memset(r.target, 'x', STRIDE * BLOCKS + 64);
    CHECK_EQ(
        RMA_WAIT(&r, &tallied, weft_put_pieces(r.t.ep, &one, 1, remote, 2, RMA_REMOTE(&tallied))),
        0);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(!memcmp(r.target + 8 + i * STRIDE, here + 11 + i * BLOCK, BLOCK));
        CHECK(is_all(r.target + 8 + i * STRIDE + BLOCK, STRIDE - BLOCK, 'x'));
    }
    CHECK(!memcmp((char *)info.base + 3, here + 11 + BLOCK * BLOCKS, 1000));
    CHECK_EQ(((char *)info.base)[2], 0);
    memset(back, 'y', ROOM);
    one.base = back + 11;
    CHECK_EQ(RMA_WAIT(&r, &tallied, weft_get_pieces(r.t.ep, &one, 1, remote, 2, OP(&tallied))), 0);
    CHECK(!memcmp(back + 11, here + 11, BLOCK * BLOCKS + 1000));
    CHECK(is_all(back, 11, 'y') && is_all(back + 11 + BLOCK * BLOCKS + 1000, 64, 'y'));

    /* What is no such pair is refused. */
    range.len--;
    CHECK_EQ(weft_put_pieces(r.t.ep, local, 3, &range, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put_pieces(r.t.ep, local, 0, &range, 1, NULL), WEFT_ERR_INVALID_PARAM);
    remote[0].count = SIZE_MAX / 2;
    CHECK_EQ(weft_put_pieces(r.t.ep, &one, 1, remote, 2, NULL), WEFT_ERR_INVALID_PARAM);
    weft_rkey_release(other);
    rma_down(&r);
    free(here);
    free(back);
}

/* A piece here may name its registration, which then must hold it, and stays as long as an
 * operation uses it. */
TEST_WAYS(a_piece_is_in_the_registration_that_it_names) {
    struct rma r;
    enum { LEN = 9 << 20 }; /* more than is moved within a call */
    char *own = malloc(LEN);
    weft_mem_t *mem;
    struct tally put = {0};
    rma_up(&r, transport, messages, LEN, WEFT_MEM_ALL, NULL, 0);
    pattern(own, LEN, 4);
    CHECK_EQ(weft_mem_register(r.t.a, own, LEN, NULL, &mem), 0);
    weft_local_t local = {own, LEN, 0, 0, mem};
    weft_remote_t remote = {rma_at(&r, 0), LEN, 0, 0, r.rkey};
    CHECK_EQ(weft_put_pieces(r.t.ep, &local, 1, &remote, 1, RMA_REMOTE(&put)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_mem_release(mem, NULL), WEFT_ERR_BUSY);
    UNTIL(&r.t, put.calls);
    CHECK(put.status == WEFT_OK && is_pattern(r.target, LEN, 4));
    local.base = own + 1;
    /* a byte beyond */
    CHECK_EQ(weft_put_pieces(r.t.ep, &local, 1, &remote, 1, NULL), WEFT_ERR_INVALID_PARAM);
    local = (weft_local_t){own, LEN / 4, LEN - LEN / 4 + 1, 2, mem};
    remote.len = LEN / 2;
    /* by its stride */
    CHECK_EQ(weft_put_pieces(r.t.ep, &local, 1, &remote, 1, NULL), WEFT_ERR_INVALID_PARAM);
    local = (weft_local_t){own, 8, 0, 0, r.t.b ? r.mem : NULL};
    remote.len = 8;
    if (r.t.b) /* another's */
        CHECK_EQ(weft_put_pieces(r.t.ep, &local, 1, &remote, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_release(mem, NULL), WEFT_OK);
    rma_down(&r);
    free(own);
}

/* ---- order */

/* After a fence, whichever way each of the two goes. */
TEST_WAYS(what_comes_after_a_fence_is_performed_after_what_came_before) {
    struct rma r;
    enum { BIG = 2 << 20 };
    char *out = malloc(BIG), *in = malloc(BIG);
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    struct lane_key *own = r.rkey->key, none = {.status = WEFT_NO_RESOURCE};
    for (int round = 0; round < 8; round++) {
        bool first_by_message = round & 1, second_by_message = round & 2;
        struct tally gets = {0}, puts = {0};
        memset(r.target, 'o', BIG);
        memset(out, 'a' + round, BIG);
        /* A large get sees none of what is put after the fence, and the later of two puts wins. */
        r.rkey->key = first_by_message ? &none : own;
        if (round & 4) CHECK(weft_get(r.t.ep, in, BIG, rma_at(&r, 0), r.rkey, OP(&gets)) >= 0);
        CHECK(weft_put(r.t.ep, out, 100, rma_at(&r, 0), r.rkey, NULL) >= 0);
        CHECK_EQ(weft_ep_fence(r.t.ep), 0);
        r.rkey->key = second_by_message ? &none : own;
        CHECK(weft_put(r.t.ep, "z", 1, rma_at(&r, 50), r.rkey, OP(&puts)) >= 0);
        CHECK_EQ(RMA_FLUSH(&r, &tallied), 0);
        r.rkey->key = own;
        CHECK_EQ(r.target[50], 'z');
        CHECK_EQ(r.target[49], 'a' + round);
        if (round & 4) CHECK(in[50] == 'o' || in[50] == 'a' + round);
    }
    CHECK_EQ(weft_worker_fence(r.t.a), 0);
    rma_down(&r);
    free(out);
    free(in);
}

/* A put after the fence may not go natively while a message before it is not known to be
 * performed. */
TEST(a_native_put_does_not_overtake_a_message_across_a_fence) {
    struct rma r;
    struct lane_key *own, none = {.status = WEFT_NO_RESOURCE};
    rma_up(&r, "shm", false, 4096, WEFT_MEM_ALL, NULL, 0);
    own = r.rkey->key;
    CHECK_EQ(own->status, WEFT_OK);
    r.rkey->key = &none;
    CHECK_EQ(weft_put(r.t.ep, "message", 8, rma_at(&r, 0), r.rkey, NULL), 0);
    r.rkey->key = own;
    CHECK_EQ(weft_ep_fence(r.t.ep), 0);
    CHECK_EQ(weft_put(r.t.ep, "mapped!", 8, rma_at(&r, 0), r.rkey, NULL), 0);
    CHECK_EQ(r.target[0], 0); /* the target did not look yet */
    UNTIL(&r.t, r.target[0] == 'm');
    CHECK_EQ(RMA_FLUSH(&r, &tallied), 0);
    CHECK(!strcmp(r.target, "mapped!"));
    /* And natively again when that is over. */
    uint64_t before = weft_worker_count(r.t.a, "rma.messages");
    CHECK_EQ(weft_put(r.t.ep, "again", 6, rma_at(&r, 0), r.rkey, NULL), 0);
    CHECK(!strcmp(r.target, "again"));
    CHECK_EQ(weft_worker_count(r.t.a, "rma.messages"), before);
    rma_down(&r);
}

/* ---- many at once */

TEST_WAYS(more_gets_than_a_target_serves_at_once_all_end_well) {
    struct rma r;
    enum { GETS = 1000, EACH = 20000 };
    static char in[GETS][64];
    char *big = malloc((size_t)GETS * EACH);
    struct tally gets = {0};
    int posted = 0;
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    pattern(r.target, ROOM, 1);
    for (int i = 0; i < GETS; i++) {
        weft_status_t st = weft_get(r.t.ep, in[i], 64, rma_at(&r, (size_t)i), r.rkey, OP(&gets));
        CHECK(st >= 0);
        posted += st == WEFT_IN_PROGRESS;
        st = weft_get(r.t.ep, big + (size_t)i * EACH, EACH, rma_at(&r, (size_t)i), r.rkey,
                      OP(&gets));
        CHECK(st >= 0);
        posted += st == WEFT_IN_PROGRESS;
    }
    UNTIL(&r.t, gets.calls == posted);
    CHECK_EQ(gets.status, 0);
    for (int i = 0; i < GETS; i++) {
        CHECK(!memcmp(in[i], r.target + i, 64));
        CHECK(!memcmp(big + (size_t)i * EACH, r.target + i, EACH));
    }
    CHECK_EQ(weft_worker_count(two_b(&r.t), "rma.refused"), 0);
    rma_down(&r);
    free(big);
}

static void counted(weft_status_t status, void *arg) {
    tally(status, arg);
}

TEST_WAYS(one_completion_counts_many_operations) {
    struct rma r;
    static char in[10][5000];
    struct tally end = {0};
    weft_completion_t all = {.done = counted, .arg = &end, .count = 1};
    rma_up(&r, transport, messages, 65536, WEFT_MEM_ALL, NULL, 0);
    pattern(r.target, 65536, 1);
    for (int i = 0; i < 10; i++)
        CHECK(weft_get(r.t.ep, in[i], 5000, rma_at(&r, (size_t)i), r.rkey,
                       &(weft_op_t){.completion = &all}) >= 0);
    for (int i = 0; i < 5; i++) two_turn(&r.t);
    CHECK_EQ(end.calls, 0);
    weft_completion_release(&all);
    UNTIL(&r.t, end.calls == 1);
    CHECK_EQ(end.status, 0);
    for (int i = 0; i < 10; i++) CHECK(!memcmp(in[i], r.target + i, 5000));
    rma_down(&r);
}

/* ---- before the endpoint is there, and after it is gone */

TEST_WAYS(operations_before_the_endpoint_is_ready_wait_for_it) {
    struct rma r = {0};
    weft_setting_t settings[] = {{"rma.max_keys", messages ? "0" : "8"}};
    char key[WEFT_RKEY_MAX], in[8];
    size_t len = sizeof key;
    struct tally put = {0}, get = {0}, add = {0}, flushed = {0}, pieces = {0};
    uint64_t old = 7;
    two_workers(&r.t, transport, settings, 1);
    CHECK_EQ(
        weft_mem_alloc(two_b(&r.t), 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &r.mem), 0);
    CHECK_EQ(weft_mem_describe(r.mem, &r.info), 0);
    r.target = r.info.base;
    CHECK_EQ(weft_mem_pack(r.mem, key, &len), 0);
    two_dial(&r.t);
    CHECK_EQ(weft_rkey_unpack(r.t.ep, key, len, &r.rkey), 0);
    CHECK_EQ(weft_put(r.t.ep, "early", 6, rma_at(&r, 0), r.rkey, OP(&put)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_fence(r.t.ep), 0);
    CHECK_EQ(weft_get(r.t.ep, in, 6, rma_at(&r, 0), r.rkey, OP(&get)), WEFT_IN_PROGRESS);
    CHECK_EQ(
        weft_atomic_fetch(r.t.ep, WEFT_ATOMIC_ADD, 8, 5, 0, &old, rma_at(&r, 8), r.rkey, OP(&add)),
        WEFT_IN_PROGRESS);
    weft_local_t local[] = {{"ab", 1, 0, 0, NULL}, {"cd", 1, 0, 0, NULL}};
    CHECK_EQ(weft_put_pieces(r.t.ep, local, 2, &(weft_remote_t){rma_at(&r, 20), 2, 0, 0, r.rkey}, 1,
                             OP(&pieces)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_flush(
                 r.t.ep, &(weft_op_t){.done = tally, .arg = &flushed, .flags = WEFT_FLUSH_REMOTE}),
             WEFT_IN_PROGRESS);
    UNTIL(&r.t, put.calls && get.calls && add.calls && flushed.calls && pieces.calls);
    CHECK(put.status == 0 && get.status == 0 && add.status == 0 && flushed.status == 0 &&
          pieces.status == 0);
    CHECK(!strcmp(in, "early") && old == 0 && *(uint64_t *)(void *)(r.target + 8) == 5);
    CHECK(!memcmp(r.target + 20, "ac", 2));
    rma_down(&r);
}

/* Of those ways that are native. */
static bool is_mapped(const char *transport) {
    return strcmp(transport, "rdma_rc") != 0;
}

/* What the end of one fetching atomic does: the next, until there are enough; then the
 * endpoint's close. */
struct chain {
    struct rma r;
    int left, ends;
    uint64_t old, sum;
    weft_request_t *request;
    struct tally closed;
};
static void next_of_chain(weft_status_t status, void *arg);
static void count_of_chain(struct chain *c) {
    c->ends++;
    c->left--;
    c->sum += c->old;
}
static void go_on_with_chain(struct chain *c) {
    weft_op_t op = {.done = next_of_chain, .arg = c, .request_p = &c->request};
    weft_status_t st = WEFT_OK;
    while (st == WEFT_OK && c->left > 0) {
        st = weft_atomic_fetch(c->r.t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &c->old, rma_at(&c->r, 0),
                               c->r.rkey, &op);
        if (st == WEFT_OK) count_of_chain(c);
    }
    if (c->left == 0) st = weft_ep_close(c->r.t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&c->closed));
    CHECK_EQ(st, WEFT_IN_PROGRESS);
}
static void next_of_chain(weft_status_t status, void *arg) {
    struct chain *c = arg;
    CHECK_EQ(status, WEFT_OK);
    count_of_chain(c);
    weft_request_cancel(c->request); /* it has ended: nothing comes of it */
    go_on_with_chain(c);
}

TEST_WAYS(the_end_of_a_fetching_atomic_may_begin_the_next_and_close_the_endpoint) {
    enum { LINKS = 300 };
    static struct chain c;
    c = (struct chain){.left = LINKS};
    rma_up(&c.r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    memset(c.r.target, 0, 8);
    go_on_with_chain(&c);
    UNTIL(&c.r.t, c.closed.calls == 1);
    CHECK_EQ(c.closed.status, WEFT_OK);
    CHECK_EQ(c.ends, LINKS);
    CHECK_EQ(c.sum, LINKS * (LINKS - 1) / 2);
    uint64_t now;
    memcpy(&now, c.r.target, sizeof now);
    CHECK_EQ(now, LINKS);
    rma_down(&c.r);
}

TEST_WAYS(a_key_outlives_its_endpoint_and_reports_it) {
    struct rma r;
    struct tally closed = {0};
    weft_rkey_info_t info;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_rkey_describe(r.rkey, &info), 0);
    CHECK(info.status == WEFT_OK && info.base == rma_at(&r, 0) && info.len == 4096 &&
          info.rights == WEFT_MEM_ALL);
    CHECK(!strcmp(info.put, messages ? "message" : is_mapped(transport) ? "mapped" : "rdma"));
    CHECK_EQ(weft_ep_close(r.t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&r.t, closed.calls == 1);
    CHECK_EQ(weft_rkey_describe(r.rkey, &info), 0);
    CHECK(info.status < 0 && !strcmp(info.put, "refused"));
    rma_down(&r);
}

TEST_WAYS(a_key_of_a_lost_endpoint_reports_what_operations_end_with) {
    struct rma r;
    weft_rkey_info_t info;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_ep_close(r.t.back, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    UNTIL(&r.t, r.t.errors);
    CHECK_EQ(weft_rkey_describe(r.rkey, &info), 0);
    CHECK(info.status < 0 && !strcmp(info.put, "refused") && !strcmp(info.get, "refused"));
    CHECK_EQ(weft_put(r.t.ep, "x", 1, rma_at(&r, 0), r.rkey, NULL), info.status);
    CHECK_EQ(weft_get(r.t.ep, &info, 1, rma_at(&r, 0), r.rkey, NULL), info.status);
    rma_down(&r);
}

TEST_WAYS(attributes_report_what_holds) {
    struct rma r;
    weft_rma_attributes_t a;
    void *at;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_ep_rma_attributes(r.t.ep, r.rkey, &a), 0);
    CHECK_EQ(a.needs_target_progress, messages               ? WEFT_MEM_ALL
                                      : is_mapped(transport) ? 0
                                                             : WEFT_MEM_ATOMIC);
    CHECK(a.max_short >= WEFT_SHORT_MIN && a.message_rate > 0 && a.bandwidth > 0);
    weft_ep_info_t ep;
    CHECK_EQ(weft_ep_describe(r.t.ep, &ep), 0);
    CHECK_EQ(strcmp(ep.one_sided, "mapped") == 0, !messages && is_mapped(transport));
    CHECK_EQ(strncmp(ep.one_sided, "message", 7) == 0, messages);
    CHECK_EQ(weft_ep_rma_attributes(r.t.ep, NULL, &a), 0);
    CHECK_EQ(a.needs_target_progress, WEFT_MEM_ALL);
    bool mapped = !messages && is_mapped(transport);
    CHECK_EQ(weft_rkey_pointer(r.rkey, rma_at(&r, 100), &at),
             mapped ? WEFT_OK : WEFT_ERR_UNSUPPORTED);
    if (mapped) {
        strcpy(at, "by pointer");
        CHECK(!strcmp(r.target + 100, "by pointer"));
    }
    rma_down(&r);
}

static void before_any_key(const char *shm_rma, const char *expected) {
    struct two t;
    weft_ep_info_t ep;
    two_workers(&t, "shm", &(weft_setting_t){"shm.rma", shm_rma}, 1);
    two_dial(&t);
    CHECK_EQ(weft_ep_describe(t.ep, &ep), 0);
    UNTIL(&t, t.ready && t.back);
    CHECK_EQ(weft_ep_describe(t.ep, &ep), 0);
    CHECK(!strcmp(ep.one_sided, expected));
    two_down(&t);
}
TEST(how_keys_will_be_used_is_reported_before_there_is_one) {
    before_any_key("auto", "by key: mapped where it was allocated, else process_vm");
    before_any_key("mapped", "by key: mapped where it was allocated, else message");
    before_any_key("vm", "by key: process_vm");
    before_any_key("message", "message");
}

static void turns_without_the_target(struct rma *r) {
    for (int i = 0; i < 1000; i++) weft_worker_progress(r->t.a, 0);
}

/* What is said to need no target ends without it, and what is said to need it does not. */
static void only_what_needs_the_target_waits_for_it(const char *shm_rma, unsigned rights,
                                                    int needs) {
    struct rma r;
    weft_setting_t way = {"shm.rma", shm_rma};
    weft_rma_attributes_t a;
    struct tally put = {0}, got = {0}, fetched = {0};
    uint64_t old = 7, in = 0;
    rma_up(&r, "shm", strcmp(shm_rma, "message") == 0, 4096, rights, &way, 1);
    CHECK_EQ(weft_ep_rma_attributes(r.t.ep, r.rkey, &a), 0);
    CHECK_EQ(a.needs_target_progress, needs);
    if (rights & WEFT_MEM_WRITE) {
        put.calls = weft_put(r.t.ep, "put", 4, rma_at(&r, 0), r.rkey, RMA_REMOTE(&put)) == WEFT_OK;
        turns_without_the_target(&r);
        CHECK_EQ(put.calls, !(needs & WEFT_MEM_WRITE));
    }
    if (rights & WEFT_MEM_READ) {
        got.calls = weft_get(r.t.ep, &in, 8, rma_at(&r, 0), r.rkey, OP(&got)) == WEFT_OK;
        turns_without_the_target(&r);
        CHECK_EQ(got.calls, !(needs & WEFT_MEM_READ));
    }
    if (rights & WEFT_MEM_ATOMIC) {
        fetched.calls = weft_atomic_fetch(r.t.ep, WEFT_ATOMIC_XOR, 8, 1, 0, &old, rma_at(&r, 8),
                                          r.rkey, OP(&fetched)) == WEFT_OK;
        turns_without_the_target(&r);
        CHECK_EQ(fetched.calls, !(needs & WEFT_MEM_ATOMIC));
    }
    UNTIL(&r.t, (put.calls || !(rights & WEFT_MEM_WRITE)) &&
                    (got.calls || !(rights & WEFT_MEM_READ)) &&
                    (fetched.calls || !(rights & WEFT_MEM_ATOMIC)));
    rma_down(&r);
}
TEST(operations_that_need_the_target_are_reported_mapped) {
    only_what_needs_the_target_waits_for_it("mapped", WEFT_MEM_ALL, 0);
}
TEST(operations_that_need_the_target_are_reported_process_vm) {
    only_what_needs_the_target_waits_for_it("vm", WEFT_MEM_ALL, WEFT_MEM_ATOMIC);
    only_what_needs_the_target_waits_for_it("vm", WEFT_MEM_READ | WEFT_MEM_WRITE, 0);
    only_what_needs_the_target_waits_for_it("vm", WEFT_MEM_READ, 0);
}
TEST(operations_that_need_the_target_are_reported_message) {
    only_what_needs_the_target_waits_for_it("message", WEFT_MEM_ALL, WEFT_MEM_ALL);
    only_what_needs_the_target_waits_for_it("message", WEFT_MEM_READ | WEFT_MEM_WRITE,
                                            WEFT_MEM_READ | WEFT_MEM_WRITE);
}

TEST_WAYS(all_endpoints_of_a_worker_are_flushed) {
    struct rma r;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    for (int i = 0; i < 100; i++)
        CHECK(weft_put(r.t.ep, "x", 1, rma_at(&r, (size_t)i), r.rkey, NULL) >= 0);
    CHECK_EQ(RMA_WAIT(&r, &tallied,
                      weft_worker_flush(r.t.a, &(weft_op_t){.done = tally,
                                                            .arg = &tallied,
                                                            .flags = WEFT_FLUSH_REMOTE})),
             0);
    CHECK(is_all(r.target, 100, 'x'));
    rma_down(&r);
}
