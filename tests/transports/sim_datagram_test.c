/* The simulated network as one of datagrams: each fault happens at its rate, and a seed replays
 * a run. */
#include "fabric.h"

static void begin(struct pair *p) {
    fabric_open(p, &weft__transport_sim, NULL, 0);
}

enum { N = 2000 };

/* Datagrams 0 … N - 1 from a to b, one a microsecond; who dials is b's first message. */
static void run(struct pair *p) {
    begin(p);
    CHECK_EQ(pair_dial(p, &p->a, &p->b), WEFT_OK);
    CHECK(pair_until(p, p->a.n_open == 1));
    for (uint64_t i = 0; i < N; i++) {
        CHECK_EQ(p->a.lane->ops->am_short(p->a.lane, 3, i, NULL, 0), WEFT_OK);
        weft__clock_run(p->clock, NULL, NULL, 1000);
    }
    weft__clock_run(p->clock, NULL, NULL, 1000000000);
    CHECK_EQ(p->b.n_open, 1); /* all came by one lane */
    CHECK_EQ(weft__sim_stats(fabric)->sent, N);
    CHECK_EQ(weft__sim_stats(fabric)->delivered, p->b.n_messages);
}

static uint64_t number(const struct pair *p, size_t i) {
    uint64_t n;
    memcpy(&n, p->b.messages[i].data, sizeof n);
    return n;
}

/* How often each number came. */
static void tally(const struct pair *p, uint8_t came[N]) {
    memset(came, 0, N);
    for (size_t i = 0; i < p->b.n_messages; i++) came[number(p, i)]++;
}

static size_t overtaken(const struct pair *p) {
    size_t n = 0;
    for (size_t i = 1; i < p->b.n_messages; i++) n += number(p, i) < number(p, i - 1);
    return n;
}

static void fair(void) {
    profile = weft__sim_datagram;
    seed = 21;
}

TEST(without_faults_all_arrive_in_order) {
    struct pair p;
    fair();
    run(&p);
    CHECK_EQ(p.b.n_messages, N);
    CHECK_EQ(overtaken(&p), 0);
    CHECK(!(p.iface_a->attr.caps & CAP_RELIABLE));
    pair_close(&p);
}

TEST(loss_loses_at_its_rate) {
    struct pair p;
    fair();
    profile.loss = 300000;
    run(&p);
    CHECK(p.b.n_messages > N * 65 / 100 && p.b.n_messages < N * 75 / 100);
    CHECK_EQ(p.b.n_messages + weft__sim_stats(fabric)->lost, N);
    CHECK_EQ(overtaken(&p), 0);
    pair_close(&p);
}

TEST(duplication_repeats_at_its_rate) {
    struct pair p;
    uint8_t came[N];
    size_t twice = 0;
    fair();
    profile.duplicate = 100000;
    run(&p);
    tally(&p, came);
    for (size_t i = 0; i < N; i++) {
        CHECK(came[i] == 1 || came[i] == 2);
        twice += came[i] == 2;
    }
    CHECK_EQ(twice, weft__sim_stats(fabric)->duplicated);
    CHECK(twice > N * 7 / 100 && twice < N * 13 / 100);
    pair_close(&p);
}

TEST(reordering_lets_later_ones_overtake) {
    struct pair p;
    fair();
    profile.reorder = 100000;
    profile.reorder_ns = 20000;
    run(&p);
    CHECK_EQ(p.b.n_messages, N);
    CHECK(overtaken(&p) > N * 5 / 100);
    pair_close(&p);
}

TEST(a_one_way_partition_swallows_one_way_only) {
    struct pair p;
    fair();
    begin(&p);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_open == 1));
    CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, 0, NULL, 0), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    weft__sim_cut(fabric, 0, 1);
    CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, 1, NULL, 0), WEFT_OK);
    CHECK_EQ(p.b.lane->ops->am_short(p.b.lane, 1, 2, NULL, 0), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_messages == 1));
    weft__clock_run(p.clock, NULL, NULL, 1000000);
    CHECK_EQ(p.b.n_messages, 1);
    CHECK_EQ(weft__sim_stats(fabric)->cut, 1);
    weft__sim_heal(fabric, 0, 1);
    CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, 3, NULL, 0), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 2));
    pair_close(&p);
}

TEST(a_dead_node_falls_silent) {
    struct pair p;
    fair();
    begin(&p);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_open == 1));
    weft__sim_crash(fabric, 1);
    CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, 1, NULL, 0), WEFT_OK);
    weft__clock_run(p.clock, NULL, NULL, 1000000000);
    CHECK_EQ(p.a.n_down, 0); /* no report comes */
    CHECK_EQ(p.b.n_open, 0);
    pair_close(&p);
}

static int steps;
static void stepped(struct completion *completion, weft_status_t status) {
    steps++;
}

TEST(zcopy_is_read_at_once_and_given_back_by_the_next_turn) {
    struct pair p;
    char data[400] = "before";
    weft_iov_t iov = {data, sizeof data};
    struct completion completion = {stepped, 1, WEFT_OK}, flushed = {stepped, 1, WEFT_OK};
    steps = 0;
    fair();
    begin(&p);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_open == 1));
    CHECK_EQ(
        p.a.lane->ops->am_zcopy(p.a.lane, 1, &(struct lane_zcopy){"hh", 2, &iov, 1}, &completion),
        WEFT_IN_PROGRESS);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &flushed), WEFT_IN_PROGRESS);
    CHECK_EQ(steps, 0);
    strcpy(data, "after");
    CHECK(pair_until(&p, steps == 2 && p.b.n_messages == 1));
    CHECK(strcmp((char *)p.b.messages[0].data + 2, "before") == 0);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &flushed), WEFT_OK);
    pair_close(&p);
}

static uint64_t hash_of(uint64_t with_seed) {
    struct pair p;
    fair();
    seed = with_seed;
    profile.loss = 200000;
    profile.duplicate = 100000;
    profile.reorder = 100000;
    profile.reorder_ns = 20000;
    profile.jitter_ns = 3000;
    run(&p);
    uint64_t hash = weft__sim_trace_hash(fabric);
    pair_close(&p);
    return hash;
}

TEST(a_seed_replays_a_run_and_another_does_not) {
    CHECK(hash_of(5) == hash_of(5));
    CHECK(hash_of(5) != hash_of(6));
}

/* What is lost with duplication and reordering on top is lost without them, and nothing else is. */
TEST(a_fault_taken_away_shifts_no_other_draw) {
    static uint8_t with[N], without[N];
    struct pair p;
    fair();
    profile.loss = 200000;
    run(&p);
    tally(&p, without);
    pair_close(&p);
    profile.duplicate = 100000;
    profile.reorder = 200000;
    profile.reorder_ns = 20000;
    profile.delay = 100000;
    profile.delay_ns = 50000;
    run(&p);
    tally(&p, with);
    size_t repeated = 0, extra = 0;
    for (size_t i = 0; i < N; i++) {
        if (without[i]) CHECK(with[i] >= 1);
        repeated += without[i] && with[i] == 2;
        extra += !without[i] && with[i]; /* the copy of a lost one comes through */
    }
    CHECK_EQ(repeated + extra, weft__sim_stats(fabric)->duplicated);
    pair_close(&p);
}
