/*
 * Regions whose atomics are a device's (WEFT_MEM_ATOMIC_DEVICE), where no device is: every other
 * way to such a word is closed, with a cause, and the rest of the region is as ever.
 * tests/rdma/atomic_test.c has the device.
 */
#include <tests/support/rma_peers.h>

#include <endpoints/core/worker.h>

static struct tally tallied;
static const weft_atomic_t all[] = {WEFT_ATOMIC_ADD, WEFT_ATOMIC_AND,  WEFT_ATOMIC_OR,
                                    WEFT_ATOMIC_XOR, WEFT_ATOMIC_SWAP, WEFT_ATOMIC_CSWAP};

/* As if there were a device; the key is the peer's word for it. */
static void leave_to_device(struct rma *r, bool messages) {
    r->mem->region.rights |= WEFT_MEM_ATOMIC_DEVICE;
    weft_rkey_release(r->rkey);
    r->rkey = rma_key(r, r->mem);
    if (!messages) UNTIL(&r->t, r->rkey->key->status != WEFT_NO_RESOURCE);
}

static weft_status_t fetch(struct rma *r, weft_atomic_t what, size_t size, size_t at) {
    uint64_t old = 99;
    weft_status_t st = RMA_WAIT(
        r, &tallied,
        weft_atomic_fetch(r->t.ep, what, size, 5, 0, &old, rma_at(r, at), r->rkey, OP(&tallied)));
    CHECK_EQ(old, 99);
    return st;
}

static bool is_blank(const struct rma *r, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (r->target[i]) return false;
    return true;
}

TEST(without_a_device_no_region_is_left_to_one) {
    struct two t;
    weft_mem_t *mem = NULL;
    weft_memory_info_t info;
    static uint64_t words[8];
    const unsigned rights[] = {WEFT_MEM_ATOMIC_DEVICE, WEFT_MEM_READ | WEFT_MEM_ATOMIC_DEVICE,
                               WEFT_MEM_READ | WEFT_MEM_WRITE | WEFT_MEM_ATOMIC_DEVICE};
    two_workers(&t, "self,shm,tcp", NULL, 0);
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) /* nothing to leave */
        CHECK_EQ(weft_mem_alloc(t.a, 64, &(weft_mem_params_t){.rights = rights[i]}, &mem),
                 WEFT_ERR_INVALID_PARAM);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL | WEFT_MEM_ATOMIC_DEVICE};
    CHECK_EQ(weft_mem_alloc(t.a, 64, &params, &mem), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_mem_register(t.a, words, sizeof words, &params, &mem), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_mem_get(t.a, words, sizeof words, params.rights, &mem), WEFT_ERR_INVALID_PARAM);
    for (size_t i = 0; weft_worker_memory(t.a, i, &info) == WEFT_OK; i++)
        CHECK(!info.device_atomics);
    two_down(&t);
}

TEST_WAYS(no_other_way_leads_to_a_word_of_a_device) {
    struct rma r;
    weft_rkey_info_t info;
    char in[8] = "";
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    leave_to_device(&r, messages);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t size = 4; size <= 8; size += 4) {
            CHECK_EQ(fetch(&r, all[i], size, 16), WEFT_ERR_UNSUPPORTED);
            if (all[i] == WEFT_ATOMIC_CSWAP) continue;
            CHECK_EQ(weft_atomic_post(r.t.ep, all[i], size, 5, rma_at(&r, 16), r.rkey, NULL),
                     WEFT_ERR_UNSUPPORTED);
            CHECK_EQ(weft_atomic_post(r.t.ep, all[i], size, 5, rma_at(&r, 16), r.rkey,
                                      RMA_REMOTE(&tallied)),
                     WEFT_ERR_UNSUPPORTED);
        }
    CHECK_EQ(RMA_FLUSH(&r, &tallied), WEFT_OK); /* nothing is left of them */
    CHECK(is_blank(&r, 4096));
    CHECK_EQ(weft_rkey_describe(r.rkey, &info), 0);
    CHECK(!strcmp(info.atomic, "refused") && !!strcmp(info.put, "refused"));
    CHECK_EQ(info.rights, WEFT_MEM_ALL | WEFT_MEM_ATOMIC_DEVICE);
    CHECK_EQ(RMA_WAIT(&r, &tallied,
                      weft_put(r.t.ep, "still", 6, rma_at(&r, 8), r.rkey, RMA_REMOTE(&tallied))),
             0);
    CHECK_EQ(RMA_WAIT(&r, &tallied, weft_get(r.t.ep, in, 6, rma_at(&r, 8), r.rkey, OP(&tallied))),
             0);
    CHECK(!strcmp(in, "still"));
    rma_down(&r);
}

/* What was accepted before it could be known ends once, with the same word, and lets what comes
 * behind it pass. */
TEST_WAYS(what_waited_for_the_endpoint_is_refused_when_it_is_there) {
    struct rma r = {0};
    weft_setting_t settings[] = {{"rma.max_keys", messages ? "0" : "8"}};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    struct tally fetched = {0}, posted = {0}, put = {0};
    uint64_t old = 7;
    two_workers(&r.t, transport, settings, 1);
    CHECK_EQ(
        weft_mem_alloc(two_b(&r.t), 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &r.mem), 0);
    CHECK_EQ(weft_mem_describe(r.mem, &r.info), 0);
    r.target = r.info.base;
    r.mem->region.rights |= WEFT_MEM_ATOMIC_DEVICE;
    CHECK_EQ(weft_mem_pack(r.mem, key, &len), 0);
    two_dial(&r.t);
    CHECK_EQ(weft_rkey_unpack(r.t.ep, key, len, &r.rkey), 0);
    uint64_t at = rma_at(&r, 8);
    CHECK_EQ(weft_atomic_fetch(r.t.ep, WEFT_ATOMIC_ADD, 8, 5, 0, &old, at, r.rkey, OP(&fetched)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_atomic_post(r.t.ep, WEFT_ATOMIC_ADD, 8, 5, at, r.rkey, OP(&posted)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_atomic_post(r.t.ep, WEFT_ATOMIC_XOR, 8, 5, at, r.rkey, NULL),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_put(r.t.ep, "behind", 7, rma_at(&r, 64), r.rkey, RMA_REMOTE(&put)),
             WEFT_IN_PROGRESS);
    UNTIL(&r.t, fetched.calls == 1 && posted.calls == 1 && put.calls == 1);
    CHECK(fetched.status == WEFT_ERR_UNSUPPORTED && posted.status == WEFT_ERR_UNSUPPORTED &&
          put.status == WEFT_OK);
    CHECK(old == 7 && is_blank(&r, 64) && !strcmp(r.target + 64, "behind"));
    rma_down(&r);
}

/* The region's key packed, with no peer that has it open: the test has a word in it, or in the
 * region, to change. */
static size_t repack(struct rma *r, const char *transport, bool messages, char *key) {
    size_t len = WEFT_RKEY_MAX;
    rma_up(r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_pack(r->mem, key, &len), 0);
    weft_rkey_release(r->rkey);
    return len;
}
static void unpack_again(struct rma *r, const char *key, size_t len) {
    CHECK_EQ(weft_rkey_unpack(r->t.ep, key, len, &r->rkey), 0);
    for (int i = 0; i < 20; i++) two_turn(&r->t);
}

/* A key that says nothing of the device: the target knows better. */
TEST_WAYS(who_does_not_know_of_the_device_is_refused_by_the_target) {
    struct rma r;
    char key[WEFT_RKEY_MAX];
    size_t len = repack(&r, transport, messages, key);
    r.mem->region.rights |= WEFT_MEM_ATOMIC_DEVICE;
    unpack_again(&r, key, len);
    CHECK_EQ(fetch(&r, WEFT_ATOMIC_ADD, 8, 16), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(fetch(&r, WEFT_ATOMIC_OR, 4, 16), WEFT_ERR_UNSUPPORTED);
    weft_status_t st =
        weft_atomic_post(r.t.ep, WEFT_ATOMIC_ADD, 8, 5, rma_at(&r, 16), r.rkey, NULL);
    CHECK(st == WEFT_OK || st == WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(RMA_FLUSH(&r, &tallied), st == WEFT_OK ? WEFT_ERR_UNSUPPORTED : WEFT_OK);
    CHECK_EQ(RMA_FLUSH(&r, &tallied), WEFT_OK);
    CHECK(is_blank(&r, 4096));
    rma_down(&r);
}

/* A key that lies about one: no transport opens it, and its atomics are refused at home. */
TEST_WAYS(a_key_that_speaks_of_a_device_in_vain_opens_no_word) {
    struct rma r;
    char key[WEFT_RKEY_MAX];
    size_t len = repack(&r, transport, messages, key);
    key[52] |= WEFT_MEM_ATOMIC_DEVICE;
    unpack_again(&r, key, len);
    weft_status_t st = fetch(&r, WEFT_ATOMIC_ADD, 8, 16);
    CHECK(st == WEFT_ERR_UNSUPPORTED || (!messages && st == WEFT_ERR_INVALID_PARAM));
    CHECK(is_blank(&r, 4096));
    weft_rkey_release(r.rkey);
    key[52] = WEFT_MEM_READ | WEFT_MEM_ATOMIC_DEVICE;
    /* and that is no key at all */
    CHECK_EQ(weft_rkey_unpack(r.t.ep, key, len, &r.rkey), WEFT_ERR_ADDRESS);
    r.rkey = NULL;
    rma_down(&r);
}
