/* Teams in virtual time, over a network that loses, delays, splits and fails on command; every
 * run replays from its seed. */
#include "each_kind.h"
#include "sim_world.h"

static int64_t in[MOST_RANKS][3000], out[MOST_RANKS][3000];

static uint64_t work(uint64_t seed, uint32_t size, const struct sim_profile *profile,
                     uint32_t loss) {
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
            posted(&w.crew.rank[r], weft_allreduce(w.crew.rank[r].team, in[r], out[r], count,
                                                   WEFT_INT64, WEFT_SUM, OP_OF(&w.crew.rank[r])));
        RUN_UNTIL(&w, all_notified(&w.crew));
        for (uint32_t r = 0; r < size; r++) {
            CHECK_EQ(w.crew.rank[r].outcome, WEFT_OK);
            for (size_t i = 0; i < count; i++)
                CHECK(out[r][i] == (int64_t)(size * (size - 1) / 2 * 10 + size * i));
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
    for (uint64_t seed = 1; seed <= 6; seed++)
        work(seed, 2 + (uint32_t)seed % 4, &weft__sim_datagram, 100000);
}

TEST(a_run_replays_from_its_seed) {
    uint64_t once = work(42, 4, &weft__sim_datagram, 50000);
    CHECK(once == work(42, 4, &weft__sim_datagram, 50000));
    CHECK(once != work(43, 4, &weft__sim_datagram, 50000));
}

/* ---- a member leaves as soon as it has its result -------------------------------------------- */

static void close_those_that_are_through(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++) {
        struct rank *rank = &c->rank[r];
        if (!rank->team || !rank->outcome_calls || rank->closed) continue;
        weft_op_t op = {.done = on_closed, .arg = rank};
        CHECK_EQ(weft_team_close(rank->team, &op), WEFT_IN_PROGRESS);
        rank->team = NULL;
    }
}
static bool all_teams_closed(const struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++)
        if (!c->rank[r].closed) return false;
    return true;
}

static weft_status_t last_collective(struct rank *rank, unsigned kind, size_t count) {
    uint32_t r = (uint32_t)(rank - rank->crew->rank);
    static int64_t all[MOST_RANKS][MOST_RANKS * 3000];
    if (kind == 0) return weft_barrier(rank->team, OP_OF(rank));
    if (kind == 1) return weft_bcast(rank->team, in[r], count, WEFT_INT64, 0, OP_OF(rank));
    if (kind == 2) return weft_allgather(rank->team, in[r], all[r], count, WEFT_INT64, OP_OF(rank));
    return weft_allreduce(rank->team, in[r], out[r], count, WEFT_INT64, WEFT_SUM, OP_OF(rank));
}

static void leave_at_once(uint64_t seed, const struct sim_profile *profile, uint32_t loss) {
    struct world w;
    uint32_t size = 2 + (uint32_t)seed % 5;
    world_up(&w, size, seed, profile);
    struct sim_profile *p = weft__sim_profile(w.fabric);
    p->loss = p->duplicate = p->reorder = loss;
    p->reorder_ns = 50000;
    for (uint32_t r = 0; r < size; r++)
        expect_outcome(&w.crew.rank[r]), w.crew.rank[r].closed = false;
    for (uint32_t r = 0; r < size; r++)
        posted(&w.crew.rank[r],
               last_collective(&w.crew.rank[r], (unsigned)(seed / 5 % 4), seed % 2 ? 3000 : 10));
    RUN_UNTIL(&w, (close_those_that_are_through(&w.crew), all_teams_closed(&w.crew)));
    for (uint32_t r = 0; r < size; r++) CHECK_EQ(w.crew.rank[r].outcome, WEFT_OK);
    p->loss = p->duplicate = p->reorder = 0;
    world_down(&w);
}

TEST(the_last_collective_ends_well_at_all_though_members_leave_at_once) {
    for (uint64_t seed = 1; seed <= 120; seed++) leave_at_once(seed, &weft__sim_reliable, 0);
}
TEST(the_last_collective_ends_well_at_all_though_members_leave_and_datagrams_are_lost) {
    for (uint64_t seed = 1; seed <= 60; seed++) leave_at_once(seed, &weft__sim_datagram, 50000);
}

/* ---- every collective ------------------------------------------------------------------------ */

enum { EACH = 40, SIZE = 5 };

static void begin_at(struct world *w, uint32_t r, weft_coll_kind_t kind, uint32_t deadline_ms) {
    struct rank *rank = &w->crew.rank[r];
    weft_coll_args_t args = any_collective(kind, r, SIZE, in[r], out[r], EACH);
    weft_op_t op = {.done = on_outcome, .arg = rank, .deadline_ms = deadline_ms};
    posted(rank, weft_coll(rank->team, &args, &op));
}

static void prepare_any(struct world *w) {
    for (uint32_t r = 0; r < SIZE; r++) {
        expect_outcome(&w->crew.rank[r]);
        for (uint32_t i = 0; i < SIZE * EACH; i++) in[r][i] = 1000 * (int64_t)r + i;
    }
}

static void begin_any(struct world *w, weft_coll_kind_t kind, uint32_t deadline_ms) {
    prepare_any(w);
    for (uint32_t r = 0; r < SIZE; r++) begin_at(w, r, kind, deadline_ms);
}

static void check_any(struct world *w, weft_coll_kind_t kind) {
    for (uint32_t r = 0; r < SIZE; r++) {
        CHECK_EQ(w->crew.rank[r].outcome, WEFT_OK);
        const int64_t *got = kind == WEFT_COLL_BCAST ? in[r] : out[r];
        for (uint32_t i = 0; i < EACH && any_has_result(kind, r); i++)
            CHECK_EQ(got[i], any_result(kind, r, SIZE, EACH, i));
    }
}

TEST(every_collective_has_its_result_though_datagrams_are_lost_and_late) {
    struct world w;
    world_up(&w, SIZE, 7, &weft__sim_datagram);
    struct sim_profile *p = weft__sim_profile(w.fabric);
    p->loss = p->duplicate = p->reorder = 100000;
    p->reorder_ns = 50000;
    for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++) {
        begin_any(&w, (weft_coll_kind_t)kind, 0);
        RUN_UNTIL(&w, all_notified(&w.crew));
        check_any(&w, (weft_coll_kind_t)kind);
    }
    p->loss = p->duplicate = p->reorder = 0;
    world_down(&w);
}

static bool it_is_time;
static void time_has_come(struct timer *timer) {
    it_is_time = true;
}

/* Those that waited counted one collective of five seconds each, and the late one among those that
 * they waited for. */
static void check_counted_as_late(struct world *w, uint32_t late) {
    uint32_t named = 0;
    for (uint32_t r = 0; r < SIZE; r++) {
        weft_worker_t *worker = w->crew.rank[r].worker;
        uint64_t ms = weft_worker_count(worker, "coll.late_ms");
        weft_team_member_t of_late, of_other;
        CHECK_EQ(weft_worker_count(worker, "coll.late"), r != late);
        CHECK(r == late ? ms == 0 : ms >= 4900 && ms < 6000);
        CHECK_EQ(weft_team_member(w->crew.rank[r].team, late, &of_late), WEFT_OK);
        CHECK_EQ(weft_team_member(w->crew.rank[late].team, r, &of_other), WEFT_OK);
        CHECK_EQ(of_late.late_ms, of_late.n_late ? ms : 0);
        CHECK(of_other.n_late == 0 && of_other.late_ms == 0);
        named += of_late.n_late;
    }
    CHECK(named >= 1 && named < SIZE);
}

/* Each kind, and each member in its turn. Those that wait take no turns but for heartbeats and one
 * look after a second. */
TEST(a_member_that_comes_five_seconds_late_is_waited_for) {
    struct world w;
    unsigned most = 0;
    world_up(&w, SIZE, 11, &weft__sim_reliable);
    for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++) {
        uint32_t late = (uint32_t)kind % SIZE;
        unsigned turns = 0;
        prepare_any(&w);
        for (uint32_t r = 0; r < SIZE; r++)
            if (r != late) begin_at(&w, r, (weft_coll_kind_t)kind, 0);
        struct timer timer = {.fire = time_has_come};
        struct reactor *reactor = w.crew.rank[late].worker->reactor;
        it_is_time = false;
        CHECK_EQ(weft__timer_start(reactor, &timer, weft__now(reactor) + 5000000000u), WEFT_OK);
        while (!it_is_time && weft__clock_turn(w.clock)) turns++;
        weft__timer_release(reactor, &timer);
        CHECK(kind != WEFT_COLL_BARRIER || !w.crew.rank[(late + 1) % SIZE].outcome_calls);
        begin_at(&w, late, (weft_coll_kind_t)kind, 0);
        RUN_UNTIL(&w, all_notified(&w.crew));
        check_any(&w, (weft_coll_kind_t)kind);
        if (turns > most) most = turns;
        if (kind == WEFT_COLL_BARRIER) check_counted_as_late(&w, late);
    }
    printf("  at most %u turns of %u members in 5 s\n", most, SIZE);
    CHECK(most < 500);
    world_down(&w);
}

TEST(a_direction_that_stands_still_in_any_collective_is_waited_for) {
    for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++)
        for (uint64_t moment = 0; moment < 6; moment++) {
            struct world w;
            uint32_t from = (uint32_t)(kind + (int)moment) % SIZE, to = (from + 1) % SIZE;
            world_up(&w, SIZE, (uint64_t)kind * 10 + moment + 1, &weft__sim_reliable);
            begin_any(&w, (weft_coll_kind_t)kind, 0);
            uint64_t until = weft__clock_now(w.clock) + moment * 1500;
            while (weft__clock_now(w.clock) < until && weft__clock_turn(w.clock)) continue;
            weft__sim_stall(w.fabric, from, to, 300000000);
            weft__sim_stall(w.fabric, to, from, 300000000);
            RUN_UNTIL(&w, all_notified(&w.crew));
            check_any(&w, (weft_coll_kind_t)kind);
            world_down(&w);
        }
}

TEST(a_death_in_any_collective_is_one_outcome_for_each_survivor) {
    for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++)
        for (uint64_t moment = 0; moment < 6; moment++) {
            struct world w;
            uint32_t dead = (uint32_t)(kind + (int)moment) % SIZE;
            world_up(&w, SIZE, (uint64_t)kind * 10 + moment + 1, &weft__sim_reliable);
            begin_any(&w, (weft_coll_kind_t)kind, 2000);
            uint64_t until = weft__clock_now(w.clock) + moment * 1500;
            while (weft__clock_now(w.clock) < until && weft__clock_turn(w.clock)) continue;
            weft__sim_crash(w.fabric, dead);
            w.crew.rank[dead].outcome_calls += w.crew.rank[dead].outcome_calls == 0;
            RUN_UNTIL(&w, all_notified(&w.crew));
            for (uint32_t r = 0; r < SIZE; r++) {
                weft_status_t outcome = w.crew.rank[r].outcome;
                if (r == dead) continue;
                CHECK_EQ(w.crew.rank[r].outcome_calls, 1);
                CHECK(outcome == WEFT_OK || outcome == WEFT_ERR_PEER_FAILED);
            }
            weft__sim_heal_all(w.fabric);
            world_down(&w);
        }
}

/* Everybody begins; then `harm` at some time; every survivor is notified once. */
static void harmed(uint64_t seed, void (*harm)(struct world *w), weft_status_t expected,
                   uint64_t after_ns) {
    struct world w;
    world_up(&w, 5, seed, &weft__sim_reliable);
    for (uint32_t r = 0; r < 5; r++) expect_outcome(&w.crew.rank[r]);
    for (uint32_t r = 0; r < 5; r++)
        posted(&w.crew.rank[r],
               weft_allreduce(
                   w.crew.rank[r].team, in[r], out[r], 3000, WEFT_INT64, WEFT_SUM,
                   &(weft_op_t){.done = on_outcome, .arg = &w.crew.rank[r], .deadline_ms = 2000}));
    uint64_t until = weft__clock_now(w.clock) + after_ns;
    while (weft__clock_now(w.clock) < until && weft__clock_turn(w.clock)) continue;
    harm(&w);
    RUN_UNTIL(&w, w.crew.rank[0].outcome_calls && w.crew.rank[1].outcome_calls &&
                      w.crew.rank[2].outcome_calls && w.crew.rank[3].outcome_calls);
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

TEST(a_death_at_any_moment_of_an_allreduce_is_reported_once_to_everybody) {
    for (uint64_t i = 0; i < 25; i++) harmed(i + 1, crash_last, WEFT_ERR_PEER_FAILED, i * 3000);
}

TEST(a_partition_ends_by_the_deadline) {
    struct world w;
    world_up(&w, 5, 3, &weft__sim_reliable);
    weft__sim_profile(w.fabric)->spin_ns = 50000000000u; /* no lane gives up before the deadline */
    cut_last(&w);
    for (uint32_t r = 0; r < 5; r++) expect_outcome(&w.crew.rank[r]);
    uint64_t begin = weft__clock_now(w.clock);
    for (uint32_t r = 0; r < 5; r++)
        posted(&w.crew.rank[r],
               weft_barrier(
                   w.crew.rank[r].team,
                   &(weft_op_t){.done = on_outcome, .arg = &w.crew.rank[r], .deadline_ms = 500}));
    RUN_UNTIL(&w, all_notified(&w.crew));
    CHECK(weft__clock_now(w.clock) - begin < 600000000u);
    for (uint32_t r = 0; r < 5; r++) {
        CHECK_EQ(w.crew.rank[r].outcome, WEFT_ERR_TIMED_OUT);
        CHECK_EQ(w.crew.rank[r].outcome_calls, 1);
    }
    weft__sim_heal_all(w.fabric);
    world_down(&w);
}
