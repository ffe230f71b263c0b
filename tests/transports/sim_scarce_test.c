/* The simulated network's scarce kind of lanes, and lanes that fail while their nodes live. */
#include "fabric.h"

static void begin(struct pair *p, uint32_t scarce) {
    profile = weft__sim_reliable;
    profile.scarce = scarce;
    profile.scarce_latency_ns = 100;
    fabric_open(p, &weft__transport_sim, NULL, 0);
}

static weft_status_t dial_scarce(struct pair *p, struct lane **lane_p) {
    uint8_t at[96];
    size_t len = sizeof at;
    CHECK_EQ(p->iface_b->ops->address(p->iface_b, at, &len), WEFT_OK);
    weft_status_t st = p->iface_a->ops->connect_scarce(p->iface_a, at, len, lane_p);
    if (st == WEFT_OK) (*lane_p)->owner = &p->a;
    return st;
}

TEST(a_network_of_one_kind_dials_no_other) {
    struct pair p;
    begin(&p, 0);
    CHECK(!p.iface_a->ops->connect_scarce);
    CHECK_EQ(p.iface_a->attr.scarce, 0);
    pair_close(&p);
}

TEST(scarce_lanes_are_counted_at_both_ends_and_given_back) {
    struct pair p;
    struct lane *second;
    begin(&p, 1);
    CHECK_EQ(dial_scarce(&p, &p.a.lane), WEFT_OK);
    CHECK(p.a.lane->scarce);
    CHECK_EQ(dial_scarce(&p, &second), WEFT_ERR_QUOTA);
    CHECK(pair_until(&p, p.a.n_open == 1 && p.b.n_open == 1));
    CHECK(p.b.lane->scarce);
    CHECK_EQ(weft__sim_scarce(fabric, 0) + weft__sim_scarce(fabric, 1), 2);
    p.a.lane->ops->close(p.a.lane, true);
    CHECK(pair_until(&p, p.a.n_closed == 1 && p.b.n_down == 1));
    p.b.lane->ops->close(p.b.lane, true);
    CHECK(pair_until(&p, p.b.n_closed == 1));
    CHECK_EQ(weft__sim_scarce(fabric, 0) + weft__sim_scarce(fabric, 1), 0);
    pair_close(&p);
}

TEST(a_node_without_room_refuses_the_scarce_kind) {
    struct pair p;
    begin(&p, 1);
    weft__sim_capacity(fabric, weft__sim_node(p.iface_b), 0);
    CHECK_EQ(dial_scarce(&p, &p.a.lane), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_REFUSED);
    pair_close(&p);
}

TEST(capacity_that_is_withdrawn_breaks_what_is_beyond) {
    struct pair p;
    begin(&p, 2);
    CHECK_EQ(dial_scarce(&p, &p.a.lane), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_open == 1 && p.b.n_open == 1));
    weft__sim_capacity(fabric, weft__sim_node(p.iface_a), 1);
    weft__clock_run(p.clock, NULL, NULL, 1000000);
    CHECK_EQ(p.a.n_down + p.b.n_down, 0);
    weft__sim_capacity(fabric, weft__sim_node(p.iface_a), 0);
    CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_PEER_FAILED);
    pair_close(&p);
}

TEST(a_lane_fails_at_its_time_and_the_other_end_learns_of_it_later) {
    struct pair p;
    begin(&p, 0);
    pair_connect(&p);
    CHECK(weft__sim_nth_lane(fabric, weft__sim_node(p.iface_a), weft__sim_node(p.iface_b), 0) ==
          p.a.lane);
    CHECK(!weft__sim_nth_lane(fabric, weft__sim_node(p.iface_a), weft__sim_node(p.iface_b), 1));
    CHECK_EQ(weft__sim_fail(p.a.lane, 1000000, 5000000), WEFT_OK);
    weft__clock_run(p.clock, NULL, NULL, 900000);
    CHECK_EQ(p.a.n_down + p.b.n_down, 0);
    weft__clock_run(p.clock, NULL, NULL, 200000);
    CHECK_EQ(p.a.n_down, 1);
    CHECK_EQ(p.b.n_down, 0);
    /* lost, as in a socket's buffer */
    CHECK_EQ(p.b.lane->ops->am_short(p.b.lane, 1, 1, NULL, 0), WEFT_OK);
    weft__clock_run(p.clock, NULL, NULL, 5000000);
    CHECK_EQ(p.b.n_down, 1);
    CHECK_EQ(p.a.n_messages, 0);
    pair_close(&p);
}
