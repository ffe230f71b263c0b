/*
 * Atomics that the target's device performs, one lane at a time: what they do, what they must not,
 * and that more of them than devices take at once wait their turn. Wants a device: tools/rdma-vm
 * has two. Many peers at one word: tests/rdma/atomic_test.c.
 */
#include "pair.h"

#ifdef WEFT_HAVE_RDMA
#include "rma_target.h"
#include <transports/rdma/rc/rc.h>

enum { OF_DEVICE = WEFT_MEM_ALL | WEFT_MEM_ATOMIC_DEVICE, LEN = 2 * TARGET_PAGE };

/* a is the importer, b the owner; a second lane of the two stands by and must not notice. */
struct world {
    struct pair p;
    struct end other_a, other_b;
    struct target t;
    struct md_mem *mem;
    struct lane_key *key;
};

static weft_status_t send_msg(struct end *end) {
    return end->lane->ops->am_short(end->lane, 3, 1, NULL, 0);
}

static struct rc_iface *owner(struct world *w) {
    return (struct rc_iface *)w->p.iface_b;
}

static void begin_as(struct world *w, unsigned rights, enum rc_atomics has) {
    uint8_t packed[MD_KEY_MAX];
    const weft_setting_t insecure = {"rdma.insecure", "yes"};
    memset(w, 0, sizeof *w);
    pair_open_with(&w->p, &weft__transport_rdma_rc, 0, &insecure, 1);
    if (has != RC_ATOMICS_NONE) owner(w)->atomics = has;
    pair_connect(&w->p);
    CHECK_EQ(pair_dial(&w->p, &w->other_a, &w->other_b), WEFT_OK);
    CHECK(pair_until(&w->p, w->other_a.n_open == 1 && w->other_b.n_open == 1));
    target_open(&w->t, LEN, rights, true);
    CHECK_EQ(w->p.iface_b->ops->mem->mem_register(w->p.iface_b, &w->t.region, &w->mem), WEFT_OK);
    size_t len = w->p.iface_b->ops->mem->key_pack(w->mem, packed);
    CHECK_EQ(w->p.a.lane->ops->rma->key_open(w->p.a.lane, &w->t.remote, packed, len, &w->key),
             WEFT_OK);
    CHECK(w->key->awaited);
    CHECK(pair_until(&w->p, w->key->status == WEFT_OK));
    CHECK(!w->key->awaited);
}
static void begin(struct world *w, unsigned rights) {
    begin_as(w, rights, RC_ATOMICS_NONE);
}
#define BEGIN(w, rights)                               \
    if (!pair_has_rdma()) SKIP("no RDMA device here"); \
    begin(w, rights)

static int calls;
static weft_status_t last;
static void counted(struct completion *c, weft_status_t status) {
    calls++;
    if (last == WEFT_OK) last = status;
    c->count = 1;
}
static struct completion completion = {.done = counted, .count = 1};

static void end(struct world *w) {
    calls = 0;
    pair_end_close(&w->p.a, false);
    pair_end_close(&w->p.b, false);
    if (w->mem && w->p.iface_b->ops->mem->mem_revoke(w->mem, &completion) == WEFT_IN_PROGRESS)
        CHECK(pair_until(&w->p, calls == 1));
    CHECK_EQ(send_msg(&w->other_a), WEFT_OK);
    CHECK(pair_until(&w->p, w->other_b.n_messages == 1));
    CHECK(w->other_a.n_down == 0 && w->other_b.n_down == 0);
    CHECK(target_is_as_it_should(&w->t));
    pair_end_close(&w->other_a, true);
    pair_end_close(&w->other_b, true);
    pair_close(&w->p);
    target_close(&w->t);
}

static weft_status_t fetch(struct world *w, enum rma_atomic what, uint64_t operand,
                           uint64_t compare, void *old_p, size_t offset) {
    struct lane *lane = w->p.a.lane;
    completion.status = WEFT_OK;
    return lane->ops->rma->atomic_fetch(
        lane, &(struct lane_atomic){what, 8, operand, compare, target_at(&w->t, offset)}, old_p,
        w->key, &completion);
}
static weft_status_t post(struct world *w, uint64_t operand, size_t offset) {
    struct lane *lane = w->p.a.lane;
    return lane->ops->rma->atomic_post(
        lane, &(struct lane_atomic){RMA_ADD, 8, operand, 0, target_at(&w->t, offset)}, w->key);
}
static void flush(struct world *w) {
    struct lane *lane = w->p.a.lane;
    calls = 0, last = WEFT_OK;
    weft_status_t st = lane->ops->flush(lane, &completion);
    if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&w->p, calls == 1));
    CHECK(st >= 0 && last == WEFT_OK);
}

static uint64_t word(struct world *w, size_t offset) {
    uint64_t value;
    memcpy(&value, target_shadow(&w->t, offset), 8);
    return value;
}
static void set_word(struct world *w, size_t offset, uint64_t value) {
    memcpy(target_shadow(&w->t, offset), &value, 8);
}

TEST(a_device_adds_compares_and_swaps_and_touches_no_neighbour) {
    static struct world w;
    uint64_t x = 88172645463325252u;
    BEGIN(&w, OF_DEVICE);
    CHECK_EQ(w.key->caps, CAP_PUT | CAP_GET | CAP_ATOMIC_DEVICE);
    CHECK(!w.key->local && strcmp(w.key->how, "rdma") == 0);
    for (int round = 0; round < 300; round++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        size_t offset = round % 7 ? (x >> 20) % (LEN / 8) * 8 : round % 2 ? LEN - 8 : 0;
        uint64_t got[3] = {1, 2, 3}, old = word(&w, offset), operand = x * 3,
                 compare = x & 1 ? old : old ^ x;
        enum rma_atomic what = round % 3 == 0 ? RMA_CSWAP : RMA_ADD;
        if (what == RMA_ADD) set_word(&w, offset, old + operand);
        if (what == RMA_CSWAP && compare == old) set_word(&w, offset, operand);
        if (round % 3 == 2) {
            CHECK_EQ(post(&w, operand, offset), WEFT_OK);
            flush(&w);
        } else {
            calls = 0, last = WEFT_OK;
            CHECK_EQ(fetch(&w, what, operand, compare, &got[1], offset), WEFT_IN_PROGRESS);
            CHECK_EQ(calls, 0);
            CHECK(pair_until(&w.p, calls == 1));
            CHECK(last == WEFT_OK && got[0] == 1 && got[1] == old && got[2] == 3);
        }
        CHECK(target_is_as_it_should(&w.t));
    }
    end(&w);
}

TEST(what_devices_have_not_is_refused_and_changes_nothing) {
    static struct world w;
    uint64_t old = 7;
    BEGIN(&w, OF_DEVICE);
    struct lane *lane = w.p.a.lane;
    for (enum rma_atomic what = RMA_ADD; what <= RMA_CSWAP; what++)
        for (size_t size = 4; size <= 8; size += 4) {
            bool has = size == 8 && (what == RMA_ADD || what == RMA_CSWAP);
            if (!has)
                CHECK_EQ(lane->ops->rma->atomic_fetch(
                             lane, &(struct lane_atomic){what, size, 1, 1, target_at(&w.t, 0)},
                             &old, w.key, &completion),
                         WEFT_ERR_UNSUPPORTED);
            if (!has || what == RMA_CSWAP)
                CHECK_EQ(
                    lane->ops->rma->atomic_post(
                        lane, &(struct lane_atomic){what, size, 1, 0, target_at(&w.t, 0)}, w.key),
                    WEFT_ERR_UNSUPPORTED);
        }
    flush(&w);
    CHECK_EQ(old, 7);
    CHECK_EQ(w.p.a.n_down, 0);
    end(&w);
}

/* As many as the lane takes, of which the device has so many under way (max_rd_atomic), each old
 * value once. */
TEST(more_than_a_device_takes_at_once_wait_their_turn) {
    static struct world w;
    static uint64_t old[RC_DEPTH];
    static bool seen[RC_DEPTH];
    unsigned n = 0;
    BEGIN(&w, OF_DEVICE);
    memset(seen, 0, sizeof seen);
    uint64_t before = word(&w, 64);
    calls = 0, last = WEFT_OK;
    while (fetch(&w, RMA_ADD, 1, 0, &old[n], 64) == WEFT_IN_PROGRESS) n++;
    unsigned at_once = rc_lane(w.p.a.lane)->reads_out;
    CHECK(at_once >= 1 && at_once <= RC_READS && n > 3 * at_once && n < RC_DEPTH);
    CHECK_EQ(post(&w, 1, 64), WEFT_NO_RESOURCE); /* and the next one has to wait */
    CHECK(pair_until(&w.p, calls == (int)n));
    CHECK_EQ(last, WEFT_OK);
    for (unsigned i = 0; i < n; i++) {
        CHECK(old[i] - before < n && !seen[old[i] - before]);
        seen[old[i] - before] = true;
    }
    set_word(&w, 64, before + n);
    for (int round = 0; round < 4; round++) {
        for (n = 0; post(&w, 3, 72) == WEFT_OK; n++) set_word(&w, 72, word(&w, 72) + 3);
        CHECK(n > 0);
        CHECK(pair_until(&w.p, rc_has_room(rc_lane(w.p.a.lane), RC_KEEP)));
    }
    flush(&w);
    CHECK(target_is_as_it_should(&w.t));
    CHECK_EQ(w.p.a.n_down, 0);
    end(&w);
}

static struct ibv_qp_attr state_of(struct end *end) {
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    CHECK_EQ(ibv_query_qp(rc_lane(end->lane)->qp, &attr,
                          IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init),
             0);
    return attr;
}

/* Devices of two sizes: who would send more at once than the other one takes would lose the
 * queue pair. */
TEST(the_smaller_of_two_devices_limits_how_many_are_under_way) {
    const weft_setting_t insecure = {"rdma.insecure", "yes"};
    if (!pair_has_rdma()) SKIP("no RDMA device here");
    for (int small = 0; small < 2; small++)
        for (int by_lane_address = 0; by_lane_address < 2; by_lane_address++) {
            struct pair p;
            uint8_t address[2][RC_LANE_ADDRESS_SIZE];
            size_t len = RC_LANE_ADDRESS_SIZE;
            pair_open_with(&p, &weft__transport_rdma_rc, 0, &insecure, 1);
            ((struct rc_iface *)(small ? p.iface_b : p.iface_a))->reads = 2;
            if (by_lane_address) {
                struct end *ends[] = {&p.a, &p.b};
                for (int i = 0; i < 2; i++) {
                    struct iface *iface = i ? p.iface_b : p.iface_a;
                    CHECK_EQ(iface->ops->lane_create(iface, &ends[i]->lane), WEFT_OK);
                    ends[i]->lane->owner = ends[i];
                    CHECK_EQ(ends[i]->lane->ops->conn->address(ends[i]->lane, address[i], &len),
                             WEFT_OK);
                }
                for (int i = 0; i < 2; i++)
                    CHECK_EQ(ends[i]->lane->ops->conn->connect(ends[i]->lane, address[!i], len),
                             WEFT_OK);
                CHECK(pair_until(&p, p.a.n_open == 1 && p.b.n_open == 1));
            } else {
                pair_connect(&p);
            }
            CHECK_EQ(state_of(&p.a).max_rd_atomic, 2);
            CHECK_EQ(state_of(&p.b).max_rd_atomic, 2);
            CHECK(state_of(&p.a).max_dest_rd_atomic >= 2 && state_of(&p.b).max_dest_rd_atomic >= 2);
            pair_close(&p);
        }
}

/* Nothing stands between them but their order. */
TEST(puts_and_posted_atomics_are_performed_in_their_order) {
    static struct world w;
    BEGIN(&w, OF_DEVICE);
    struct lane *lane = w.p.a.lane;
    for (uint64_t round = 1; round < 30; round++) {
        uint64_t value = round << 32, got = 0;
        CHECK_EQ(lane->ops->rma->put_short(lane, &value, 8, target_at(&w.t, 8), w.key), WEFT_OK);
        CHECK_EQ(post(&w, 5, 8), WEFT_OK);
        calls = 0, last = WEFT_OK;
        CHECK_EQ(fetch(&w, RMA_ADD, 1, 0, &got, 8), WEFT_IN_PROGRESS);
        CHECK_EQ(lane->ops->rma->fence(lane), WEFT_OK);
        CHECK_EQ(lane->ops->rma->put_short(lane, &got, 8, target_at(&w.t, 16), w.key),
                 WEFT_OK); /* what it was before */
        CHECK(pair_until(&w.p, calls == 1));
        CHECK_EQ(got, value + 5);
        set_word(&w, 8, value + 6);
        flush(&w);
        memcpy(&got, (char *)w.t.region.base + 16, 8);
        set_word(&w, 16, got);
        CHECK(target_is_as_it_should(&w.t));
    }
    end(&w);
}

/* ---- what was not granted: our side is passed by, and the owner's device is asked ------------ */

static void ask_raw(struct world *w, uint64_t at, uint32_t rkey) {
    struct rc_lane *lane = rc_lane(w->p.a.lane);
    struct rd_block *block = weft__rd_pool_take(&rc_iface_of(lane)->words, NULL);
    CHECK(block);
    struct ibv_sge sge = {(uintptr_t)block->bytes, 8, block->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1};
    wr.wr.atomic.remote_addr = at;
    wr.wr.atomic.compare_add = 0x0101010101010101;
    wr.wr.atomic.rkey = rkey;
    weft__rc_post(lane, &wr, &(struct rc_work){.what = RC_PLAIN}, true);
    /* both ends of it, and no others */
    CHECK(pair_until(&w->p, w->p.a.n_down == 1 && w->p.b.n_down == 1));
    CHECK(w->p.a.down < 0);
    CHECK(target_is_as_it_should(&w->t));
}
static uint32_t rkey_of(const struct world *w) {
    return ((const struct rc_key *)w->key)->rkey;
}

TEST(an_atomic_that_is_not_aligned_ends_its_lane_alone) {
    static struct world w;
    for (unsigned off = 1; off < 8; off += 3) {
        BEGIN(&w, OF_DEVICE);
        ask_raw(&w, target_at(&w.t, 64 + off), rkey_of(&w));
        end(&w);
    }
}

TEST(an_atomic_beyond_what_was_granted_ends_its_lane_alone) {
    static struct world w;
    const int64_t at[] = {-8, LEN, LEN + 8, INT64_MAX & ~7};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        BEGIN(&w, OF_DEVICE);
        ask_raw(&w, w.t.remote.base + (uint64_t)at[i], rkey_of(&w));
        CHECK_EQ(w.p.a.down, WEFT_ERR_REVOKED);
        end(&w);
    }
}

TEST(an_atomic_by_a_forged_key_ends_its_lane_alone) {
    static struct world w;
    for (unsigned bit = 0; bit < 32; bit += 9) {
        BEGIN(&w, OF_DEVICE);
        ask_raw(&w, target_at(&w.t, 0), rkey_of(&w) ^ 1u << bit);
        end(&w);
    }
}

TEST(a_region_whose_atomics_are_the_processors_lets_no_device_in) {
    static struct world w;
    const unsigned rights[] = {WEFT_MEM_ALL, WEFT_MEM_READ | WEFT_MEM_WRITE, WEFT_MEM_ATOMIC};
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        BEGIN(&w, rights[i]);
        CHECK(!(w.key->caps & (CAP_ATOMIC | CAP_ATOMIC_DEVICE)));
        ask_raw(&w, target_at(&w.t, 0), rkey_of(&w));
        CHECK_EQ(w.p.a.down, WEFT_ERR_REVOKED);
        end(&w);
    }
}

TEST(what_was_taken_back_is_changed_no_more) {
    static struct world w;
    BEGIN(&w, OF_DEVICE);
    uint32_t rkey = rkey_of(&w);
    CHECK_EQ(post(&w, 1, 0), WEFT_OK); /* this one came before */
    set_word(&w, 0, word(&w, 0) + 1);
    calls = 0;
    CHECK_EQ(w.p.iface_b->ops->mem->mem_revoke(w.mem, &completion), WEFT_IN_PROGRESS);
    w.mem = NULL;
    CHECK(pair_until(&w.p, calls == 1));
    CHECK(target_is_as_it_should(&w.t));
    CHECK(w.key->status == WEFT_ERR_REVOKED && !w.key->caps);
    ask_raw(&w, target_at(&w.t, 0), rkey);
    end(&w);
}

/* No device in software says so of itself; here the test sets that its device is one. */
TEST(where_the_device_and_the_processor_are_atomic_together_it_needs_no_word) {
    static struct world w;
    uint64_t old = 0;
    if (!pair_has_rdma()) SKIP("no RDMA device here");
    begin_as(&w, WEFT_MEM_ALL, RC_ATOMICS_GLOBAL);
    /* the rest by message, all of it atomic */
    CHECK_EQ(w.key->caps, CAP_PUT | CAP_GET | CAP_ATOMIC_DEVICE);
    calls = 0, last = WEFT_OK;
    CHECK_EQ(fetch(&w, RMA_ADD, 9, 0, &old, 8), WEFT_IN_PROGRESS);
    CHECK(pair_until(&w.p, calls == 1));
    CHECK(last == WEFT_OK && old == word(&w, 8));
    set_word(&w, 8, old + 9);
    end(&w);
}

/* A lane that ends reports each that was under way, once. */
TEST(atomics_under_way_end_with_their_lane) {
    static struct world w;
    static uint64_t old[RC_DEPTH];
    int n = 0;
    BEGIN(&w, OF_DEVICE);
    uint64_t before = word(&w, 64);
    calls = 0, last = WEFT_OK;
    while (fetch(&w, RMA_ADD, 1, 0, &old[n], 64) == WEFT_IN_PROGRESS) n++;
    pair_end_close(&w.p.a, false);
    CHECK_EQ(calls, n);
    pair_end_close(&w.p.b, false); /* nothing that is still on its way comes in any more */
    uint64_t now;
    memcpy(&now, (char *)w.t.region.base + 64, 8);
    CHECK(now - before <= (uint64_t)n); /* some were performed */
    set_word(&w, 64, now);
    end(&w);
}

#else
TEST(a_device_adds_compares_and_swaps_and_touches_no_neighbour) {
    SKIP("built without rdma");
}
#endif
