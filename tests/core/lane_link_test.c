/* A lane names its link by an id: one that has ended is not found any more, nor is the next link in
 * its place in memory. */
#include <tests/support/worker_pair.h>

#include <endpoints/core/worker.h>

static struct link *newest_link(weft_worker_t *worker) {
    CHECK(!list_empty(&worker->links));
    return list_of(worker->links.prev, struct link, of_worker);
}

static weft_ep_t *open_to(weft_worker_t *a, weft_worker_t *b) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    CHECK_EQ(weft_worker_address(b, address, &len), 0);
    CHECK_EQ(weft_connect_address(a, address, len, NULL, &ep), 0);
    return ep;
}

static void lose(struct link *link) {
    weft__causes_clear();
    weft__link_lose(link, WEFT_ERR_PEER_FAILED);
}

/* What a lane would hold that was forgotten when its link ended. */
static void hold(struct lane *held, const struct lane *lane) {
    *held = (struct lane){.owner = lane->owner, .owner_id = lane->owner_id};
}

TEST(a_lane_that_outlives_its_link_has_none) {
    struct two t;
    struct lane held[20];
    struct link *was[20];
    unsigned n_again = 0;
    two_workers(&t, "tcp", NULL, 0);
    for (int i = 0; i < 20; i++) {
        weft_ep_t *ep = open_to(t.a, t.b);
        struct link *link = newest_link(t.a);
        was[i] = link;
        hold(&held[i], link->lane);
        CHECK(weft__link_id(link) != 0);
        CHECK(weft__lane_link(&held[i]) == link);
        for (int k = 0; k < i; k++) {
            CHECK(held[k].owner_id != held[i].owner_id);
            n_again += was[k] == link;
/* Under a sanitizer the place of a link is freed with it: a look at it is an error. */
#ifndef __SANITIZE_ADDRESS__
            CHECK(weft__lane_link(&held[k]) == NULL);
            CHECK(weft__ep_of_lane(&held[k], weft__ep_id(ep)) == NULL);
            CHECK(weft__ep_lookup_cached(&held[k], weft__ep_id(ep)) == NULL);
#endif
        }
        lose(link);
        CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
        UNTIL(&t, list_empty(&t.a->links));
    }
#ifndef __SANITIZE_ADDRESS__
    CHECK(n_again > 0); /* places are used again */
#endif
    two_down(&t);
}

TEST(a_lane_without_a_link_has_none) {
    struct lane lane = {0};
    CHECK(weft__lane_link(&lane) == NULL);
    weft__lane_set_link(&lane, NULL);
    CHECK(weft__lane_link(&lane) == NULL);
    CHECK(weft__ep_lookup_cached(&lane, 0) == NULL);
    CHECK(weft__ep_lookup_cached(&lane, 1) == NULL);
}

TEST(ids_of_links_pass_zero_by) {
    struct two t;
    two_workers(&t, "tcp", NULL, 0);
    t.a->last_link_id = UINT32_MAX - 1;
    weft_ep_t *ep = open_to(t.a, t.b);
    CHECK_EQ(weft__link_id(newest_link(t.a)), UINT32_MAX);
    lose(newest_link(t.a));
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, list_empty(&t.a->links));
    (void)open_to(t.a, t.b);
    CHECK_EQ(weft__link_id(newest_link(t.a)), 1);
    two_down(&t);
}
