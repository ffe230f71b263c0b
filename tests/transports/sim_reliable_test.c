/* The simulated network as a reliable one: nothing is lost, and it breaks on command. */
#include "fabric.h"

static void open_pair(struct pair *p) {
    fabric_open(p, &weft__transport_sim, NULL, 0);
}

static void begin(struct pair *p, uint64_t with_seed) {
    profile = weft__sim_reliable;
    seed = with_seed;
    open_pair(p);
}

static weft_status_t send_number(struct lane *lane, uint64_t n) {
    return lane->ops->am_short(lane, (uint8_t)(n % LANE_AM_IDS), n, "x", 1);
}

static uint64_t number(const struct end *end, size_t i) {
    uint64_t n;
    memcpy(&n, end->messages[i].data, sizeof n);
    return n;
}

struct waiting {
    struct pending pending;
    struct lane *lane;
    uint64_t next, until;
};

static weft_status_t send_rest(struct pending *pending) {
    struct waiting *w = (struct waiting *)pending;
    for (; w->next < w->until; w->next++) {
        weft_status_t st = send_number(w->lane, w->next);
        if (st != WEFT_OK) return st;
    }
    return WEFT_OK;
}

/* Sends 0 … n - 1, waiting for the lane as often as it says so. */
static void send_all(struct pair *p, struct waiting *w, struct lane *lane, uint64_t n) {
    *w = (struct waiting){.pending.retry = send_rest, .lane = lane, .until = n};
    if (send_rest(&w->pending) == WEFT_NO_RESOURCE) lane->ops->pending_add(lane, &w->pending);
}

static void check_in_order(const struct end *end, uint64_t n) {
    CHECK_EQ(end->n_messages, n);
    for (size_t i = 0; i < n; i++) CHECK_EQ(number(end, i), i);
}

TEST(messages_arrive_once_and_in_order_whatever_their_delay) {
    struct pair p;
    struct waiting w;
    begin(&p, 3);
    weft__sim_profile(fabric)->jitter_ns = 50000;
    weft__sim_profile(fabric)->delay = 200000;
    weft__sim_profile(fabric)->delay_ns = 1000000;
    pair_connect(&p);
    send_all(&p, &w, p.a.lane, 2000);
    CHECK(pair_until(&p, p.b.n_messages == 2000));
    check_in_order(&p.b, 2000);
    CHECK(weft__sim_stats(fabric)->delayed > 200);
    pair_close(&p);
}

TEST(exhaustion_makes_the_sender_wait_and_loses_nothing) {
    struct pair p;
    struct waiting w;
    begin(&p, 4);
    weft__sim_profile(fabric)->exhaustion = 300000;
    pair_connect(&p);
    send_all(&p, &w, p.a.lane, 2000);
    CHECK(pair_until(&p, p.b.n_messages == 2000));
    check_in_order(&p.b, 2000);
    CHECK(weft__sim_stats(fabric)->exhausted > 400);
    pair_close(&p);
}

TEST(a_full_lane_returns_no_resource_until_something_arrives) {
    struct pair p;
    begin(&p, 5);
    pair_connect(&p);
    for (uint64_t i = 0; i < profile.depth; i++) CHECK_EQ(send_number(p.a.lane, i), WEFT_OK);
    CHECK_EQ(send_number(p.a.lane, 9), WEFT_NO_RESOURCE);
    CHECK(pair_until(&p, p.b.n_messages == profile.depth));
    pair_turns(&p, 2);
    CHECK_EQ(send_number(p.a.lane, 9), WEFT_OK);
    pair_close(&p);
}

TEST(a_partition_that_heals_delays_and_loses_nothing) {
    struct pair p;
    struct waiting w;
    begin(&p, 6);
    pair_connect(&p);
    uint64_t from = weft__clock_now(p.clock);
    weft__sim_partition(fabric, 0, 1);
    send_all(&p, &w, p.a.lane, 500);
    weft__clock_run(p.clock, NULL, NULL, 100000000);
    CHECK_EQ(p.b.n_messages, 0);
    weft__sim_heal_all(fabric);
    CHECK(pair_until(&p, p.b.n_messages == 500));
    CHECK(weft__clock_now(p.clock) - from > 100000000);
    check_in_order(&p.b, 500);
    CHECK_EQ(p.a.n_down, 0);
    pair_close(&p);
}

TEST(a_partition_beyond_the_timeout_breaks_the_lane_that_sends) {
    struct pair p;
    begin(&p, 7);
    pair_connect(&p);
    weft__sim_cut(fabric, 0, 1);
    CHECK_EQ(send_number(p.b.lane, 1), WEFT_OK); /* the other way is open */
    CHECK(pair_until(&p, p.a.n_messages == 1));
    CHECK_EQ(send_number(p.a.lane, 2), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(p.b.n_messages, 0);
    CHECK_EQ(send_number(p.a.lane, 3), WEFT_ERR_PEER_FAILED);
    weft__sim_heal_all(fabric);
    pair_close(&p);
}

TEST(a_node_that_dies_is_reported_to_its_peers) {
    struct pair p;
    begin(&p, 8);
    pair_connect(&p);
    CHECK_EQ(send_number(p.a.lane, 1), WEFT_OK);
    weft__sim_crash(fabric, weft__sim_node(p.iface_b));
    CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_PEER_FAILED);
    pair_turns(&p, 20);
    CHECK_EQ(p.b.n_messages, 0);
    pair_close(&p);
}

static int steps;
static weft_status_t step_status;
static void stepped(struct completion *completion, weft_status_t status) {
    steps++;
    step_status = status;
}

TEST(zcopied_memory_comes_back_when_a_lane_is_killed) {
    struct pair p;
    char data[5000] = "x";
    weft_iov_t iov = {data, sizeof data};
    struct completion completion = {stepped, 1, WEFT_OK};
    steps = 0;
    begin(&p, 9);
    pair_connect(&p);
    CHECK_EQ(p.a.lane->ops->am_zcopy(p.a.lane, 1, &(struct lane_zcopy){"header", 6, &iov, 1},
                                     &completion),
             WEFT_IN_PROGRESS);
    weft__sim_kill(p.a.lane);
    CHECK_EQ(p.a.n_down, 0);
    CHECK_EQ(steps, 0);
    CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
    CHECK_EQ(steps, 1);
    CHECK_EQ(step_status, WEFT_ERR_PEER_FAILED);
    pair_turns(&p, 20);
    CHECK_EQ(steps, 1);
    pair_close(&p);
}

TEST(zcopy_reads_zcopied_memory_on_delivery) {
    struct pair p;
    char data[5000] = "before";
    weft_iov_t iov = {data, sizeof data};
    struct completion completion = {stepped, 1, WEFT_OK};
    steps = 0;
    begin(&p, 10);
    pair_connect(&p);
    CHECK_EQ(p.a.lane->ops->am_zcopy(p.a.lane, 1, &(struct lane_zcopy){"header", 6, &iov, 1},
                                     &completion),
             WEFT_IN_PROGRESS);
    strcpy(data, "after"); /* what a program must not do shows */
    CHECK(pair_until(&p, steps == 1));
    CHECK_EQ(step_status, WEFT_OK);
    CHECK_EQ(p.b.messages[0].len, 6 + sizeof data);
    CHECK(strcmp((char *)p.b.messages[0].data + 6, "after") == 0);
    pair_close(&p);
}

TEST(close_in_good_order_delivers_what_was_sent) {
    struct pair p;
    begin(&p, 11);
    pair_connect(&p);
    for (uint64_t i = 0; i < 50; i++) CHECK_EQ(send_number(p.a.lane, i), WEFT_OK);
    p.a.lane->ops->close(p.a.lane, true);
    CHECK(pair_until(&p, p.a.n_closed == 1 && p.b.n_down == 1));
    check_in_order(&p.b, 50);
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    pair_close(&p);
}

TEST(close_across_a_partition_ends_within_the_timeout) {
    struct pair p;
    begin(&p, 12);
    pair_connect(&p);
    weft__sim_partition(fabric, 0, 1);
    CHECK_EQ(send_number(p.a.lane, 1), WEFT_OK);
    uint64_t from = weft__clock_now(p.clock);
    p.a.lane->ops->close(p.a.lane, true);
    CHECK(pair_until(&p, p.a.n_closed == 1));
    CHECK(weft__clock_now(p.clock) - from <= 1100000000);
    weft__sim_heal_all(fabric);
    pair_close(&p);
}

TEST(lanes_that_know_each_other_connect_in_any_order) {
    for (int apart = 0; apart < 2; apart++) {
        struct pair p;
        struct apart at;
        begin(&p, 13);
        fabric_lanes(&p, &at);
        CHECK_EQ(send_number(p.a.lane, 1), WEFT_NO_RESOURCE);
        CHECK_EQ(p.a.lane->ops->conn->connect(p.a.lane, at.b, at.len_b), WEFT_OK);
        if (apart) {
            weft__clock_run(p.clock, NULL, NULL, 1000000);
            CHECK_EQ(p.a.n_open + p.b.n_open, 0);
        }
        CHECK_EQ(p.b.lane->ops->conn->connect(p.b.lane, at.a, at.len_a), WEFT_OK);
        CHECK(pair_until(&p, p.a.n_open == 1 && p.b.n_open == 1));
        CHECK_EQ(send_number(p.a.lane, 0), WEFT_OK);
        CHECK_EQ(send_number(p.b.lane, 0), WEFT_OK);
        CHECK(pair_until(&p, p.a.n_messages == 1 && p.b.n_messages == 1));
        pair_close(&p);
    }
}

TEST(a_connection_without_a_listener_is_refused_and_a_listener_gets_its_argument) {
    struct pair p;
    begin(&p, 14);
    CHECK_EQ(p.iface_a->ops->connect_uri(p.iface_a, "17", &p.a.lane), WEFT_OK);
    p.a.lane->owner = &p.a;
    CHECK_EQ(p.a.n_down, 0);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_REFUSED);
    pair_end_close(&p.a, true);
    p.a.n_open = p.a.n_down = p.a.n_closed = 0;
    p.flags |= PAIR_BY_URI;
    p.uri = "17";
    pair_connect(&p);
    CHECK_EQ(strcmp(p.iface_b->ops->listener_uri(p.listener), "sim://17"), 0);
    CHECK(p.b.listen_arg == &p.listener);
    pair_close(&p);
}

TEST(a_listener_that_closes_meanwhile_refuses) {
    struct pair p;
    begin(&p, 15);
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, "0", &(struct listen_how){.backlog = 1}, NULL,
                                    &p.listener),
             WEFT_OK);
    const char *where = p.iface_b->ops->listener_uri(p.listener) + strlen("sim://");
    CHECK_EQ(p.iface_a->ops->connect_uri(p.iface_a, where, &p.a.lane), WEFT_OK);
    p.a.lane->owner = &p.a;
    p.iface_b->ops->listener_close(p.listener);
    p.listener = NULL;
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_REFUSED);
    pair_close(&p);
}

TEST(sim_cannot_be_opened_without_a_network) {
    struct iface *iface;
    weft_context_t *context;
    struct reactor *r;
    weft__sim_use(NULL);
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){0}, &r), WEFT_OK);
    CHECK_EQ(weft__transport_sim.open(r, &(struct iface_params){0}, &iface), WEFT_ERR_UNREACHABLE);
    weft__reactor_destroy(r);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}
