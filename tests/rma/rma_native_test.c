/* One-sided operations by a transport that has no room for the flush which reports their end. */
#include <tests/support/rma_peers.h>

#include <endpoints/rma/rma.h>
#include <transports/transport.h>

static int n_made, n_flushes;
static struct pending *waits;

static weft_status_t make(struct lane *lane, const struct lane_atomic *atomic,
                          struct lane_key *key) {
    n_made++;
    return WEFT_OK;
}
static weft_status_t put(struct lane *lane, const void *data, size_t len, uint64_t remote,
                         struct lane_key *key) {
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
struct flushing {
    struct rma r;
    struct tally done;
    struct lane *lane;
    const struct lane_ops *own;
    struct lane_ops ops;
    struct lane_rma_ops rma_ops;
    char *local;
    uint64_t natively;
};

static void up(struct flushing *f) {
    *f = (struct flushing){0};
    rma_up(&f->r, "self", false, 4096, WEFT_MEM_ALL, NULL, 0);
    struct lane_key *key = f->r.rkey->key;
    f->lane = key->lane;
    f->own = f->lane->ops;
    f->ops = *f->own;
    f->rma_ops = *f->own->rma;
    f->rma_ops.atomic_post = make;
    f->rma_ops.put_short = put;
    f->ops.rma = &f->rma_ops;
    f->ops.flush = flush;
    f->ops.pending_add = wait_for_room;
    f->local = key->local;
    key->local = NULL;
    f->lane->ops = &f->ops;
    f->natively = weft_worker_count(f->r.t.a, "rma.native");
    n_made = n_flushes = 0;
    waits = NULL;
}

static void post(struct flushing *f, bool is_put) {
    struct rma *r = &f->r;
    uint64_t word = 1;
    weft_status_t st =
        is_put ? weft_put(r->t.ep, &word, 8, rma_at(r, 0), r->rkey, RMA_REMOTE(&f->done))
               : weft_atomic_post(r->t.ep, WEFT_ATOMIC_ADD, 8, 1, rma_at(r, 0), r->rkey,
                                  RMA_REMOTE(&f->done));
    CHECK_EQ(st, WEFT_IN_PROGRESS);
    CHECK(waits);
}

static void down(struct flushing *f) {
    f->lane->ops = f->own;
    UNTIL(&f->r.t, f->done.calls == 1);
    CHECK_EQ(f->done.status, WEFT_OK);
    CHECK_EQ(n_made, 1);
    CHECK_EQ(weft_worker_count(f->r.t.a, "rma.native"), f->natively + 1);
    CHECK_EQ(weft_worker_count(f->r.t.a, "rma.messages"), 0);
    rma_down(&f->r);
}

static void made_once(bool is_put) {
    struct flushing f;
    up(&f);
    post(&f, is_put);
    CHECK_EQ(waits->retry(waits), WEFT_NO_RESOURCE);
    CHECK_EQ(waits->retry(waits), WEFT_OK);
    CHECK_EQ(n_flushes, 3);
    f.r.rkey->key->local = f.local;
    down(&f);
}
TEST(an_atomic_whose_flush_waits_for_room_is_made_once) {
    made_once(false);
}
TEST(a_put_whose_flush_waits_for_room_is_made_once) {
    made_once(true);
}

/* From then on operations go as messages, and the lane is left when those before are performed. */
static void not_left(bool goes) {
    struct flushing f;
    up(&f);
    post(&f, false);
    CHECK_EQ(weft__rma_quiesce(f.r.t.ep, f.lane), 1);
    if (!goes) weft__rma_unquiesce(f.r.t.ep, NULL, false);
    CHECK_EQ(waits->retry(waits), WEFT_NO_RESOURCE);
    CHECK_EQ(waits->retry(waits), WEFT_OK);
    if (goes) weft__rma_unquiesce(f.r.t.ep, NULL, false);
    down(&f);
}
TEST(a_lane_is_not_left_before_an_atomic_whose_flush_waits_for_room) {
    not_left(true);
}
TEST(an_atomic_whose_flush_waits_for_room_is_made_once_when_its_lane_stays_after_all) {
    not_left(false);
}
