/* One-sided operations by a transport that has no room for the flush which tells of their end. */
#include "rma.h"

#include <transports/transport.h>

static int n_made, n_flushes;
static struct pending *waits;

static weft_status_t make(struct lane *lane, enum rma_atomic what, size_t size, uint64_t operand, uint64_t remote,
                          struct lane_key *key) {
    n_made++;
    return WEFT_OK;
}
static weft_status_t put(struct lane *lane, const void *data, size_t len, uint64_t remote, struct lane_key *key) {
    n_made++;
    return WEFT_OK;
}
static weft_status_t flush(struct lane *lane, struct completion *completion) {
    return ++n_flushes < 3 ? WEFT_NO_RESOURCE : WEFT_OK;
}
static void wait_for_room(struct lane *lane, struct pending *pending) {
    waits = pending;
}

/* The key is no mapping any more, so that its lane is asked for everything. */
static void made_once(bool is_put) {
    struct rma r;
    struct tally done = {0};
    rma_up(&r, "self", false, 4096, WEFT_MEM_ALL, NULL, 0);
    struct lane_key *key = r.rkey->key;
    char *local = key->local;
    const struct lane_ops *own = key->lane->ops;
    struct lane_ops ops = *own;
    ops.atomic_post = make;
    ops.put_short = put;
    ops.flush = flush;
    ops.pending_add = wait_for_room;
    key->local = NULL;
    key->lane->ops = &ops;
    n_made = n_flushes = 0;
    waits = NULL;
    uint64_t word = 1, before = weft_worker_count(r.t.a, "rma.native");
    weft_status_t st =
        is_put ? weft_put(r.t.ep, &word, 8, rma_at(&r, 0), r.rkey, RMA_REMOTE(&done))
               : weft_atomic_post(r.t.ep, WEFT_ATOMIC_ADD, 8, 1, rma_at(&r, 0), r.rkey, RMA_REMOTE(&done));
    CHECK_EQ(st, WEFT_IN_PROGRESS);
    CHECK(waits);
    CHECK_EQ(waits->retry(waits), WEFT_NO_RESOURCE);
    CHECK_EQ(waits->retry(waits), WEFT_OK);
    CHECK_EQ(n_flushes, 3);
    CHECK_EQ(n_made, 1);
    key->lane->ops = own;
    key->local = local;
    UNTIL(&r.t, done.calls == 1);
    CHECK_EQ(done.status, WEFT_OK);
    CHECK_EQ(weft_worker_count(r.t.a, "rma.native"), before + 1);
    rma_down(&r);
}
TEST(an_atomic_whose_flush_waits_for_room_is_made_once) {
    made_once(false);
}
TEST(a_put_whose_flush_waits_for_room_is_made_once) {
    made_once(true);
}
