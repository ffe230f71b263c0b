/* Workers on one host, in virtual time: large messages out of exposed memory and into it, and what
 * happens at each of many bytes of a copy. The worlds check bytes, ends, and that no memory is used
 * after its operation has ended; here it is checked that copies happen, and are struck. */
#include "../harness.h"

#include <stdio.h>
#include <tools/simulate/apart.h>

#define MS UINT64_C(1000000)
enum { FAR = 280000, BYTES = 24 };

static struct plan_item items[64];
static uint32_t n_items;

static void add(uint64_t at, enum plan_kind kind, uint32_t side, uint32_t n, uint64_t arg) {
    n_items++;
    items[n_items - 1] = (struct plan_item){at, kind, 0, side, n, arg, n_items};
}

/* Large messages from one side to the other, whose receives are posted. */
static void cross(uint64_t at, uint32_t side, enum plan_kind kind) {
    if (kind == PLAN_TAG) add(at, PLAN_TAKE, side, 3, 0);
    add(at + 1, kind, !side, 3, 3);
}

static struct verdict run(uint64_t seed, enum plan_kind kind, uint32_t strike, uint32_t side,
                          uint64_t byte) {
    struct verdict verdict;
    n_items = 0;
    items[n_items++] = (struct plan_item){0, PLAN_DIAL, 0, 0, 1, 0, 1};
    for (uint32_t i = 0; i < 4; i++) cross((5 + 5 * i) * MS, i % 2, PLAN_TAG);
    add(40 * MS, PLAN_STRIKE, side, strike, byte);
    cross(40 * MS, 0, kind);
    cross(40 * MS, 1, kind);
    struct plan plan = {.seed = seed,
                        .n_workers = 2,
                        .network = PLAN_RELIABLE,
                        .exposes = true,
                        .survive = seed % 2,
                        .hurried = 20,
                        .depth = 128,
                        .chaos_ns = 60 * MS,
                        .item = items,
                        .n_items = n_items};
    apart_run(&plan, &verdict);
    if (verdict.failed) {
        printf("# seed %d, strike %u of side %u at byte %d: %s\n", (int)seed, strike, side,
               (int)byte, verdict.what);
        plan_print(&plan, stdout);
    }
    CHECK(!verdict.failed);
    return verdict;
}

/* What happens, at bytes all over the copy, at either side. */
static void strike(uint32_t what) {
    uint64_t struck = 0, reads = 0, written = 0;
    for (uint32_t i = 0; i < BYTES; i++)
        for (uint32_t side = 0; side < 2; side++) {
            enum plan_kind kind = i % 3 ? PLAN_TAG : PLAN_AM;
            struct verdict v = run(2 * i + side, kind, what, side, (uint64_t)i * FAR / BYTES);
            struck += v.struck;
            reads += v.reads;
            written += v.written;
        }
    printf("  %d struck, %d read in place, %d bytes written in place\n", (int)struck, (int)reads,
           (int)written);
    CHECK(struck > BYTES && reads > 0 && written > 0);
}

TEST(operations_are_cancelled_at_any_byte_of_a_copy) {
    strike(STRIKE_CANCEL);
}
TEST(lanes_break_at_any_byte_of_a_copy) {
    strike(STRIKE_KILL);
}
TEST(endpoints_are_aborted_at_any_byte_of_a_copy) {
    strike(STRIKE_ABORT);
}
TEST(workers_stand_still_at_any_byte_of_a_copy) {
    strike(STRIKE_STALL);
}
TEST(regions_are_revoked_at_any_byte_of_a_copy) {
    strike(STRIKE_REVOKE);
}
TEST(all_of_it_at_once) {
    strike(STRIKE_CANCEL | STRIKE_KILL);
    strike(STRIKE_CANCEL | STRIKE_STALL);
    strike(STRIKE_REVOKE | STRIKE_CANCEL);
    strike(STRIKE_REVOKE | STRIKE_KILL);
    strike(STRIKE_ABORT | STRIKE_STALL);
}
