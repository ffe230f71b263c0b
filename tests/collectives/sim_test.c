/* Teams in virtual time, over a network that loses, delays, splits and dies as it is told; every run replays from its seed. */
#include "team.h"
#include <endpoints/worker.h>
#include <transports/sim/sim.h>

struct world {
    struct crew crew;
    struct reactor_clock *clock;
    struct sim_fabric *fabric;
};

/* Until `cond`, within a minute of virtual time. */
#define RUN_UNTIL(w, cond)                                             \
    do {                                                               \
        uint64_t run_end = weft__clock_now((w)->clock) + 60000000000u; \
        while (!(cond) && weft__clock_now((w)->clock) < run_end) {     \
            board_pump(&(w)->crew.board);                              \
            if (!weft__clock_turn((w)->clock)) break;                  \
        }                                                              \
        CHECK(cond);                                                   \
    } while (0)

static void world_up(struct world *w, uint32_t size, uint64_t seed, const struct sim_profile *profile) {
    struct crew *c = &w->crew;
    memset(w, 0, sizeof *w);
    c->size = size;
    CHECK_EQ(weft_context_create(NULL, &c->context), WEFT_OK);
    w->clock = weft__clock_create(NULL, seed);
    w->fabric = weft__sim_create(w->clock, seed, profile);
    CHECK(w->clock && w->fabric);
    weft__sim_use(w->fabric);
    for (uint32_t r = 0; r < size; r++) {
        struct reactor *reactor;
        CHECK_EQ(weft__reactor_create(
                     c->context, &(struct reactor_params){.virtual_clock = w->clock, .seed = seed * 100 + r + 1},
                     &reactor),
                 WEFT_OK);
        CHECK_EQ(
            weft__worker_create_on(reactor, &(weft_worker_params_t){.transports = "self,sim"}, &c->rank[r].worker),
            WEFT_OK);
        c->rank[r].crew = c;
    }
    crew_begin_teams(c, 20000);
    RUN_UNTIL(w, all_ready(c) && c->board.told == size);
}

static void world_down(struct world *w) {
    struct crew *c = &w->crew;
    for (uint32_t r = 0; r < c->size; r++) {
        weft_op_t op = {.done = on_worker_closed, .arg = &c->rank[r]};
        if (c->rank[r].worker) CHECK_EQ(weft_worker_close(c->rank[r].worker, &op), WEFT_IN_PROGRESS);
    }
    RUN_UNTIL(w, no_workers(c));
    weft__sim_use(NULL);
    talloc_free(w->clock);
    CHECK_EQ(weft_context_destroy(c->context), WEFT_OK);
}

static int64_t in[MOST_RANKS][3000], out[MOST_RANKS][3000];

static uint64_t work(uint64_t seed, uint32_t size, const struct sim_profile *profile, uint32_t loss) {
    struct world w;
    world_up(&w, size, seed, profile);
    for (uint32_t r = 0; r < size; r++) CHECK_EQ(w.crew.rank[r].ready, WEFT_OK);
    struct sim_profile *p = weft__sim_profile(w.fabric);
    p->loss = p->duplicate = p->reorder = loss;
    p->reorder_ns = 50000;
    for (size_t count = 1; count <= 3000; count = count * 7 + 3) {
        for (uint32_t r = 0; r < size; r++) {
            expect_outcome(&w.crew.rank[r]);
            for (size_t i = 0; i < count; i++) in[r][i] = (int64_t)(r * 10 + i);
        }
        for (uint32_t r = 0; r < size; r++)
            posted(&w.crew.rank[r], weft_allreduce(w.crew.rank[r].team, in[r], out[r], count, WEFT_INT64, WEFT_SUM,
                                                   OP_OF(&w.crew.rank[r])));
        RUN_UNTIL(&w, all_told(&w.crew));
        for (uint32_t r = 0; r < size; r++) {
            CHECK_EQ(w.crew.rank[r].outcome, WEFT_OK);
            for (size_t i = 0; i < count; i++) CHECK(out[r][i] == (int64_t)(size * (size - 1) / 2 * 10 + size * i));
        }
    }
    uint64_t hash = weft__sim_trace_hash(w.fabric);
    p->loss = p->duplicate = p->reorder = 0;
    world_down(&w);
    return hash;
}

TEST(allreduce_over_a_reliable_network_for_seeds_and_sizes) {
    for (uint32_t size = 2; size <= 9; size++) work(size, size, &weft__sim_reliable, 0);
}

TEST(allreduce_over_datagrams_of_which_a_tenth_is_lost_repeated_and_reordered) {
    for (uint64_t seed = 1; seed <= 6; seed++) work(seed, 2 + (uint32_t)seed % 4, &weft__sim_datagram, 100000);
}

TEST(a_run_replays_from_its_seed) {
    uint64_t once = work(42, 4, &weft__sim_datagram, 50000);
    CHECK(once == work(42, 4, &weft__sim_datagram, 50000));
    CHECK(once != work(43, 4, &weft__sim_datagram, 50000));
}

/* Everybody begins; then `harm` at some time; every survivor hears once. */
static void harmed(uint64_t seed, void (*harm)(struct world *w), weft_status_t expected, uint64_t after_ns) {
    struct world w;
    world_up(&w, 5, seed, &weft__sim_reliable);
    for (uint32_t r = 0; r < 5; r++) expect_outcome(&w.crew.rank[r]);
    for (uint32_t r = 0; r < 5; r++)
        posted(&w.crew.rank[r],
               weft_allreduce(w.crew.rank[r].team, in[r], out[r], 3000, WEFT_INT64, WEFT_SUM,
                              &(weft_op_t){.done = on_outcome, .arg = &w.crew.rank[r], .deadline_ms = 2000}));
    uint64_t until = weft__clock_now(w.clock) + after_ns;
    while (weft__clock_now(w.clock) < until && weft__clock_turn(w.clock)) continue;
    harm(&w);
    RUN_UNTIL(&w, w.crew.rank[0].outcome_calls && w.crew.rank[1].outcome_calls && w.crew.rank[2].outcome_calls &&
                      w.crew.rank[3].outcome_calls);
    for (uint32_t r = 0; r < 4; r++) {
        CHECK_EQ(w.crew.rank[r].outcome_calls, 1);
        if (w.crew.rank[r].outcome != WEFT_OK) CHECK_EQ(w.crew.rank[r].outcome, expected);
    }
    weft__sim_heal_all(w.fabric);
    world_down(&w);
}

static void crash_last(struct world *w) {
    weft__sim_crash(w->fabric, 4);
}
static void cut_last(struct world *w) {
    for (unsigned r = 0; r < 4; r++) weft__sim_partition(w->fabric, r, 4);
}

TEST(a_death_at_any_moment_of_an_allreduce_is_heard_once_by_everybody) {
    for (uint64_t i = 0; i < 25; i++) harmed(i + 1, crash_last, WEFT_ERR_PEER_FAILED, i * 3000);
}

TEST(a_partition_ends_by_the_deadline) {
    struct world w;
    world_up(&w, 5, 3, &weft__sim_reliable);
    weft__sim_profile(w.fabric)->patience_ns = 50000000000u; /* no lane gives up before the deadline */
    cut_last(&w);
    for (uint32_t r = 0; r < 5; r++) expect_outcome(&w.crew.rank[r]);
    uint64_t begin = weft__clock_now(w.clock);
    for (uint32_t r = 0; r < 5; r++)
        posted(&w.crew.rank[r],
               weft_barrier(w.crew.rank[r].team,
                            &(weft_op_t){.done = on_outcome, .arg = &w.crew.rank[r], .deadline_ms = 500}));
    RUN_UNTIL(&w, all_told(&w.crew));
    CHECK(weft__clock_now(w.clock) - begin < 600000000u);
    for (uint32_t r = 0; r < 5; r++) {
        CHECK_EQ(w.crew.rank[r].outcome, WEFT_ERR_TIMED_OUT);
        CHECK_EQ(w.crew.rank[r].outcome_calls, 1);
    }
    weft__sim_heal_all(w.fabric);
    world_down(&w);
}
