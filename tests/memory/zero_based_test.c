/* Regions whose bytes peers name by their offset: keys do not contain the address, and each
 * operation goes where it would go by address, however the region is reached. */
#include <tests/support/rma_peers.h>

enum { LEN = 300000, AT = 4096 };

static void zero_based_up(struct rma *r, const char *transport, bool messages, const char *way) {
    weft_setting_t shm_rma = {"shm.rma", way};
    rma_up(r, transport, messages, LEN, WEFT_MEM_ALL, &shm_rma, 1);
    weft_rkey_release(r->rkey);
    CHECK_EQ(weft_mem_release(r->mem, NULL) < 0, false);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .zero_based = 1};
    CHECK_EQ(weft_mem_alloc(two_b(&r->t), LEN, &params, &r->mem), 0);
    CHECK_EQ(weft_mem_describe(r->mem, &r->info), 0);
    r->target = r->info.base;
    r->rkey = rma_key(r, r->mem);
    for (int i = 0; i < 200; i++) two_turn(&r->t); /* a mapping takes a few turns */
}

static void operate(const char *transport, bool messages, const char *way) {
    static char out[LEN], in[LEN];
    struct rma r;
    struct tally t;
    uint64_t old = 0;
    zero_based_up(&r, transport, messages, way);
    weft_rkey_info_t info;
    CHECK_EQ(weft_rkey_describe(r.rkey, &info), 0);
    CHECK(info.base == 0 && info.len == LEN);
    pattern(out, LEN, 3);
    static const size_t lengths[] = {8, 700, 20000, LEN - AT};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t len = lengths[i];
        memset(r.target, 0, LEN);
        CHECK_EQ(RMA_WAIT(&r, &t, weft_put(r.t.ep, out, len, AT, r.rkey, RMA_REMOTE(&t))), 0);
        CHECK_EQ(memcmp(r.target + AT, out, len), 0);
        CHECK(r.target[AT - 1] == 0 && (AT + len == LEN || r.target[AT + len] == 0));
        memset(in, 0, LEN);
        CHECK_EQ(RMA_WAIT(&r, &t, weft_get(r.t.ep, in, len, AT, r.rkey, OP(&t))), 0);
        CHECK_EQ(memcmp(in, out, len), 0);
    }
    memset(r.target, 0, 8);
    CHECK_EQ(RMA_WAIT(&r, &t,
                      weft_atomic_fetch(r.t.ep, WEFT_ATOMIC_ADD, 8, 5, 0, &old, 0, r.rkey, OP(&t))),
             0);
    CHECK(old == 0 && r.target[0] == 5);
    /* The address itself is outside, and so is what begins behind the end. */
    CHECK_EQ(weft_put(r.t.ep, out, 8, rma_at(&r, 0), r.rkey, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put(r.t.ep, out, 8, LEN - 7, r.rkey, NULL), WEFT_ERR_INVALID_PARAM);
    rma_down(&r);
}
TEST(operations_go_by_offset_self) {
    operate("self", false, "auto");
}
TEST(operations_go_by_offset_mapped) {
    operate("shm", false, "mapped");
}
/* process_vm needs an address, so this is by message, too. */
TEST(operations_go_by_offset_where_process_vm_would_serve) {
    operate("shm", false, "vm");
}
TEST(operations_go_by_offset_shm_by_message) {
    operate("shm", true, "auto");
}
TEST(operations_go_by_offset_tcp) {
    operate(test_network(), true, "auto");
}

TEST(a_key_does_not_contain_the_address) {
    struct rma r;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    zero_based_up(&r, "shm", false, "auto");
    CHECK_EQ(weft_mem_pack(r.mem, key, &len), 0);
    uint64_t page = (uint64_t)(uintptr_t)r.target >> 12; /* its five bytes are in no other order */
    for (size_t i = 0; i + 5 <= len; i++)
        for (unsigned shift = 0; shift < 5; shift += 4) {
            uint64_t part = page >> shift;
            CHECK(memcmp(key + i, &part, 4) != 0);
        }
    rma_down(&r);
}

TEST(it_is_refused_with_what_needs_the_address) {
    struct two t;
    weft_mem_t *mem;
    static char own[64] __attribute__((aligned(64)));
    two_workers(&t, "shm", NULL, 0);
    weft_mem_params_t exposed = {.rights = WEFT_MEM_READ, .expose = 1, .zero_based = 1};
    CHECK_EQ(weft_mem_alloc(t.a, 4096, &exposed, &mem), WEFT_ERR_INVALID_PARAM);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .zero_based = 1};
    CHECK_EQ(weft_mem_register(t.a, own + 4, 32, &params, &mem), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_register(t.a, own + 8, 32, &params, &mem), 0);
    two_down(&t);
}
