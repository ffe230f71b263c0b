/* Memory that is unmapped while the card knows it. */
#include "bed.h"

#include <sys/mman.h>

enum { BIG = 1 << 20 };

/* Memory that is mapped again at an address that was sent from before is sent as it is now: no
 * registration outlives its memory. */
static void remapped(const char *transport) {
    struct bed b;
    char *out = NULL;
    bed_up(&b, transport, "rxe1", (weft_setting_t){0});
    char *in = malloc(BIG);
    for (unsigned round = 1; round <= 4; round++) {
        struct tally sent = {0}, received = {0};
        void *at = mmap(out, BIG, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (out ? MAP_FIXED_NOREPLACE : 0), -1, 0);
        CHECK(at != MAP_FAILED && (!out || at == out));
        out = at;
        pattern(out, BIG, round);
        memset(in, 0, BIG);
        weft_status_t r =
            weft_tag_recv(b.t.b, 5, UINT64_MAX, &(weft_iov_t){in, BIG}, 1, NULL, OP(&received));
        weft_status_t s = weft_tag_send(b.t.ep, 5, &(weft_iov_t){out, BIG}, 1, OP(&sent));
        CHECK(r >= 0 && s >= 0);
        UNTIL(&b.t, (r == WEFT_OK || received.calls) && (s == WEFT_OK || sent.calls));
        CHECK_EQ(sent.status, WEFT_OK);
        CHECK_EQ(received.status, WEFT_OK);
        CHECK(is_pattern(in, BIG, round));
        CHECK_EQ(munmap(out, BIG), 0);
    }
    bed_down(&b);
    free(in);
}
TEST(rdma_rc_sends_from_memory_that_is_mapped_again) {
    remapped("rdma_rc");
}
TEST(rdma_ud_sends_from_memory_that_is_mapped_again) {
    remapped("rdma_ud");
}

/* A registered region is unmapped by its owner, against the rules: what peers write is lost;
 * nothing fails or leaks. */
TEST(rdma_rc_a_region_that_is_unmapped_harms_no_one) {
    struct bed b;
    struct tally put = {0}, again = {0};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    bed_up(&b, "rdma_rc", "rxe1", (weft_setting_t){0});
    char *out = malloc(BIG);
    char *region = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(region != MAP_FAILED);
    CHECK_EQ(
        weft_mem_register(b.t.b, region, BIG, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
        0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(b.t.ep, key, len, &rkey), 0);
    pattern(out, BIG, 7);
    /* The key is opened natively within a few turns. */
    for (int i = 0; i < 2000; i++) two_turn(&b.t);
    weft_op_t op = {.done = tally, .arg = &put, .flags = WEFT_RMA_REMOTE};
    weft_status_t st = weft_put(b.t.ep, out, BIG, (uint64_t)(uintptr_t)region, rkey, &op);
    CHECK(st >= 0);
    UNTIL(&b.t, st == WEFT_OK || put.calls == 1);
    CHECK_EQ(put.status, WEFT_OK);
    CHECK(is_pattern(region, BIG, 7));
    CHECK_EQ(munmap(region, BIG), 0);
    op.arg = &again;
    st = weft_put(b.t.ep, out, 4096, (uint64_t)(uintptr_t)region, rkey, &op);
    CHECK(st >= 0);
    UNTIL(&b.t, st == WEFT_OK || again.calls == 1);
    weft_rkey_release(rkey);
    struct tally released = {0};
    st = weft_mem_release(mem, OP(&released));
    CHECK(st >= 0);
    UNTIL(&b.t, st == WEFT_OK || released.calls == 1);
    bed_down(&b);
    free(out);
}
