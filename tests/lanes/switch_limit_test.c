/* The lane around one that a sender has gone to: its flush is of both lanes, whatever each has
 * room for. */
#include <tests/support/worker_pair.h>

#include <endpoints/core/worker.h>
#include <endpoints/lanes/switch_local.h>
#include <transports/pending.h>

struct fake {
    struct lane lane;
    weft_status_t answer;
    struct completion *asked; /* steps later */
};
static weft_status_t fake_flush(struct lane *lane, struct completion *completion) {
    struct fake *f = (struct fake *)lane;
    f->asked = f->answer == WEFT_IN_PROGRESS ? completion : NULL;
    return f->answer;
}
static const struct lane_ops fake_ops = {.flush = fake_flush};

static int n_notified;
static weft_status_t notified_with;
static void notified(struct completion *completion, weft_status_t status) {
    n_notified++;
    notified_with = status;
}

/* What a flush returns, or its completion in the end. */
static weft_status_t both(struct two *t, weft_status_t old, weft_status_t raw) {
    struct lane *lane = t->ep->link->lane;
    struct fake a = {*lane, old, NULL}, b = {*lane, raw, NULL};
    struct completion done = {.done = notified, .count = 1};
    struct bound bound;
    a.lane.ops = b.lane.ops = &fake_ops;
    weft__bound_init(&bound, t->ep->link, &b.lane, &a.lane);
    n_notified = 0;
    weft_status_t st = bound.lane.ops->flush(&bound.lane, &done);
    CHECK_EQ(n_notified, 0);
    if (st != WEFT_IN_PROGRESS) {
        CHECK_EQ(done.count, 1);
        return st;
    }
    if (a.asked) completion_step(a.asked, WEFT_OK);
    CHECK_EQ(n_notified, !b.asked);
    if (b.asked) completion_step(b.asked, WEFT_OK);
    CHECK_EQ(n_notified, 1);
    return notified_with;
}

TEST(a_flush_between_two_lanes_is_done_when_both_are) {
    struct two t;
    two_up(&t, "tcp");
    CHECK_EQ(both(&t, WEFT_OK, WEFT_OK), WEFT_OK);
    CHECK_EQ(both(&t, WEFT_IN_PROGRESS, WEFT_IN_PROGRESS), WEFT_OK);
    CHECK_EQ(both(&t, WEFT_IN_PROGRESS, WEFT_OK), WEFT_OK);
    CHECK_EQ(both(&t, WEFT_OK, WEFT_IN_PROGRESS), WEFT_OK);
    CHECK_EQ(both(&t, WEFT_ERR_NO_MEMORY, WEFT_OK), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(both(&t, WEFT_IN_PROGRESS, WEFT_ERR_NO_MEMORY), WEFT_ERR_NO_MEMORY);
    two_down(&t);
}

/* The old one has room when the peer has read it to its end; of the other one is asked again
 * (weft__switch_has_left). */
TEST(a_flush_between_two_lanes_waits_for_one_without_room) {
    struct two t;
    two_up(&t, "tcp");
    CHECK_EQ(both(&t, WEFT_NO_RESOURCE, WEFT_OK), WEFT_NO_RESOURCE);
    CHECK_EQ(both(&t, WEFT_NO_RESOURCE, WEFT_IN_PROGRESS), WEFT_NO_RESOURCE);
    CHECK_EQ(both(&t, WEFT_OK, WEFT_NO_RESOURCE), WEFT_NO_RESOURCE);
    CHECK_EQ(both(&t, WEFT_IN_PROGRESS, WEFT_NO_RESOURCE), WEFT_ERR_CANCELLED);
    two_down(&t);
}

/* ---- what waits */

struct queued_lane {
    struct lane lane;
    struct pending_queue pending;
};
LANE_PENDING(queued_lane)
static const struct lane_ops queued_ops = {.pending_add = pending_add,
                                           .pending_remove = pending_remove};

static struct bound limited;
static void limit_up(struct two *t, struct queued_lane *raw) {
    two_up(t, "tcp");
    *raw = (struct queued_lane){.lane = *t->ep->link->lane};
    raw->lane.ops = &queued_ops;
    weft__bound_init(&limited, t->ep->link, &raw->lane, NULL);
}

static weft_status_t send_beyond_limit(struct pending *pending) {
    return limited.lane.ops->am_short(&limited.lane, 0, 0, NULL, limited.most + 1);
}
static bool has_gone;
static weft_status_t go(struct pending *pending) {
    has_gone = true;
    return WEFT_OK;
}

/* It is this side's DRAINED, say. Each side's waits for the other's otherwise. */
TEST(what_reaches_the_limit_holds_up_nothing_else_that_waits_for_the_lane) {
    struct two t;
    struct queued_lane raw;
    struct pending beyond = {.retry = send_beyond_limit}, other = {.retry = go};
    limit_up(&t, &raw);
    limited.lane.ops->pending_add(&limited.lane, &beyond);
    pending_add(&raw.lane, &other);
    has_gone = false;
    while (pending_queue_retry(&raw.pending)) continue;
    CHECK(has_gone && !pending_queue_waits(&raw.pending));
    CHECK(pending_queue_waits(&limited.waiting)); /* for DRAINED */
    limited.lane.ops->pending_remove(&limited.lane, &beyond);
    CHECK(!pending_queue_waits(&limited.waiting));
    two_down(&t);
}

TEST(what_waits_no_more_leaves_the_lanes_queue) {
    struct two t;
    struct queued_lane raw;
    struct pending one = {.retry = go}, two = {.retry = go};
    limit_up(&t, &raw);
    limited.lane.ops->pending_add(&limited.lane, &one);
    limited.lane.ops->pending_add(&limited.lane, &two);
    limited.lane.ops->pending_remove(&limited.lane, &one);
    CHECK(pending_queue_waits(&raw.pending));
    limited.lane.ops->pending_remove(&limited.lane, &two);
    CHECK(!pending_queue_waits(&raw.pending));
    two_down(&t);
}
