/* What a key to a peer's memory opens over connected queue pairs, and what a wrong one costs. */
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include "rdma_rc.h"
#include "rma_target.h"

struct keyed {
    struct pair p;
    struct end other_a, other_b; /* a second lane of the same two */
    struct target t;
    struct md_mem *mem;
    struct lane_key *key;
};

static void keyed_open(struct keyed *k) {
    memset(k, 0, sizeof *k);
    begin_with(&k->p, NULL, 0);
    pair_connect(&k->p);
    CHECK_EQ(pair_dial(&k->p, &k->other_a, &k->other_b), WEFT_OK);
    CHECK(pair_until(&k->p, k->other_a.n_open == 1 && k->other_b.n_open == 1));
    target_open(&k->t, 2 * TARGET_PAGE, WEFT_MEM_ALL, true);
    CHECK_EQ(k->p.iface_b->ops->mem->mem_register(k->p.iface_b, &k->t.region, &k->mem), WEFT_OK);
    uint8_t packed[MD_KEY_MAX];
    size_t len = k->p.iface_b->ops->mem->key_pack(k->mem, packed);
    CHECK_EQ(k->p.a.lane->ops->rma->key_open(k->p.a.lane, &k->t.remote, packed, len, &k->key),
             WEFT_OK);
    CHECK(pair_until(&k->p, k->key->status == WEFT_OK));
}

static void keyed_close(struct keyed *k) {
    struct counted c = counted(1);
    pair_end_close(&k->p.a, false);
    pair_end_close(&k->p.b, false);
    if (k->mem && k->p.iface_b->ops->mem->mem_revoke(k->mem, &c.completion) == WEFT_IN_PROGRESS)
        CHECK(pair_until(&k->p, c.calls == 1));
    CHECK_EQ(send_msg(&k->other_a, 5), WEFT_OK); /* the other lane never noticed */
    CHECK(pair_until(&k->p, k->other_b.n_messages == 1));
    CHECK(k->other_a.n_down == 0 && k->other_b.n_down == 0);
    CHECK(target_is_as_it_should(&k->t));
    pair_end_close(&k->other_a, true);
    pair_end_close(&k->other_b, true);
    end_of(&k->p);
    target_close(&k->t);
}

/* A write past all that our side looks at. */
static void write_raw(struct end *by, uint64_t at, uint32_t rkey, size_t len) {
    struct rc_lane *lane = rc_lane(by->lane);
    static char bytes[RC_INLINE];
    memset(bytes, 0xa5, sizeof bytes);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = (uint32_t)len};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_INLINE,
                             .wr.rdma = {.remote_addr = at, .rkey = rkey}};
    weft__rc_post(lane, &wr, &(struct rc_work){.what = RC_PLAIN}, true);
}

static uint32_t rkey_of(const struct keyed *k) {
    return ((const struct rc_key *)k->key)->rkey;
}

TEST(what_was_granted_can_be_written_as_the_next_tests_do) {
    static struct keyed k;
    WANTS_A_DEVICE();
    keyed_open(&k);
    write_raw(&k.p.a, k.t.remote.base + 5, rkey_of(&k), 100);
    memset(target_shadow(&k.t, 5), 0xa5, 100);
    CHECK(pair_until(&k.p, target_is_as_it_should(&k.t)));
    keyed_close(&k);
}

TEST(a_write_beyond_what_was_granted_ends_its_lane_alone) {
    static struct keyed k;
    WANTS_A_DEVICE();
    const int64_t at[] = {-1, -100, 2 * TARGET_PAGE - 99, 2 * TARGET_PAGE, INT64_MAX};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        keyed_open(&k);
        write_raw(&k.p.a, k.t.remote.base + (uint64_t)at[i], rkey_of(&k), 100);
        CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
        CHECK_EQ(k.p.a.down, WEFT_ERR_REVOKED);
        keyed_close(&k);
    }
}

TEST(a_forged_key_ends_its_lane_alone) {
    static struct keyed k;
    WANTS_A_DEVICE();
    for (unsigned i = 0; i < 32; i += 5) {
        keyed_open(&k);
        write_raw(&k.p.a, k.t.remote.base, rkey_of(&k) ^ 1u << i, 100);
        CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
        CHECK_EQ(k.p.a.down, WEFT_ERR_REVOKED);
        keyed_close(&k);
    }
}

TEST(a_key_that_was_taken_back_ends_the_lane_that_still_uses_it) {
    static struct keyed k;
    struct counted c = counted(1);
    WANTS_A_DEVICE();
    keyed_open(&k);
    uint32_t rkey = rkey_of(&k);
    CHECK_EQ(k.p.iface_b->ops->mem->mem_revoke(k.mem, &c.completion), WEFT_IN_PROGRESS);
    k.mem = NULL;
    CHECK(pair_until(&k.p, c.calls == 1));
    write_raw(&k.p.a, k.t.remote.base, rkey, 100);
    CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
    keyed_close(&k);
}

/* Of what b sends, most waits for receives of a's, which is not driven. */
TEST(a_region_is_revoked_behind_what_is_being_sent_from_it) {
    static struct keyed k;
    struct counted sent = counted(1), revoked = counted(1);
    weft_status_t st = WEFT_IN_PROGRESS;
    uint64_t n = 0;
    WANTS_A_DEVICE();
    keyed_open(&k);
    struct lane *lane = k.p.b.lane;
    k.p.a.lane->ops->rma->key_close(k.key);
    CHECK(pair_until(&k.p, k.mem->n_open == 0));
    weft_iov_t iov = {k.t.region.base, 2000};
    while (st == WEFT_IN_PROGRESS) {
        sent.completion.count++;
        st = lane->ops->am_zcopy(lane, 3, &(struct lane_zcopy){NULL, 0, &iov, 1}, &sent.completion);
        n += st == WEFT_IN_PROGRESS;
    }
    sent.completion.count -= 2; /* the first, and what was refused */
    CHECK(st == WEFT_NO_RESOURCE && n > 64);
    CHECK_EQ(k.p.iface_b->ops->mem->mem_revoke(k.mem, &revoked.completion), WEFT_IN_PROGRESS);
    k.mem = NULL;
    CHECK(pair_until(&k.p, revoked.calls == 1 && sent.calls == 1 && k.p.a.n_messages == n));
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK(k.p.a.n_down == 0 && k.p.b.n_down == 0);
    keyed_close(&k);
}

/* A window is bound to the queue pair that asked for it. */
TEST(a_key_serves_on_the_connection_alone_on_which_it_came) {
    static struct keyed k;
    WANTS_A_DEVICE();
    keyed_open(&k);
    if (!raw_b(&k.p)->device->windows) {
        memset(&k.key, 0, sizeof k.key);
        keyed_close(&k);
        SKIP("this device has no memory windows");
    }
    struct end kept = k.other_a, kept_b = k.other_b;
    write_raw(&kept, k.t.remote.base, rkey_of(&k), 100);
    k.other_a = k.p.a; /* so that the innocent one is looked at in the end */
    k.other_b = k.p.b;
    k.p.a = kept;
    k.p.b = kept_b;
    k.p.a.lane->owner = &k.p.a;
    k.p.b.lane->owner = &k.p.b;
    k.other_a.lane->owner = &k.other_a;
    k.other_b.lane->owner = &k.other_b;
    CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
    CHECK_EQ(k.p.a.down, WEFT_ERR_REVOKED);
    k.other_a.lane->ops->rma->key_close(k.key);
    keyed_close(&k);
}

#else
TEST(what_was_granted_can_be_written_as_the_next_tests_do) {
    SKIP("built without rdma");
}
#endif
