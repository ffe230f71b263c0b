/*
 * Teams made of others, agreements and safe collectives in virtual time: datagrams are lost, and a
 * member dies at each moment. Every member that lives is notified once, and what has to be one
 * outcome is one.
 */
#include "sim_world.h"

enum { SIZE = 5, MOMENTS = 24, MOMENT_NS = 4000, DEADLINE_MS = 2000 };

static weft_team_t *made[MOST_RANKS];
static uint64_t word[MOST_RANKS], lost[MOST_RANKS][1], mine[MOST_RANKS], sum[MOST_RANKS];

static void on_made(weft_team_t *team, weft_status_t status, void *arg) {
    struct rank *rank = arg;
    made[rank - rank->crew->rank] = team;
    on_outcome(status, rank);
}

/* ---- what members do ------------------------------------------------------------------------- */

static weft_status_t do_split(struct rank *rank, uint32_t r) {
    weft_team_params_t params = {.on_ready = on_made, .arg = rank, .deadline_ms = DEADLINE_MS};
    weft_status_t st = weft_team_split(rank->team, r % 2, 0, &params);
    return st < 0 ? st : WEFT_IN_PROGRESS;
}

static weft_status_t do_shrink(struct rank *rank, uint32_t r) {
    weft_team_params_t params = {.on_ready = on_made, .arg = rank, .deadline_ms = DEADLINE_MS};
    (void)r;
    weft_status_t st = weft_team_shrink(rank->team, &params);
    return st < 0 ? st : WEFT_IN_PROGRESS;
}

static weft_status_t do_agree(struct rank *rank, uint32_t r) {
    weft_op_t op = {.done = on_outcome, .arg = rank, .deadline_ms = DEADLINE_MS};
    word[r] = ~(1ull << r);
    return weft_team_agree(rank->team, &word[r], lost[r], &op);
}

static weft_status_t do_safely(struct rank *rank, uint32_t r) {
    weft_op_t op = {
        .done = on_outcome, .arg = rank, .flags = WEFT_COLL_SAFE, .deadline_ms = DEADLINE_MS};
    mine[r] = 1ull << r;
    sum[r] = 0;
    return weft_allreduce(rank->team, &mine[r], &sum[r], 1, WEFT_UINT64, WEFT_SUM, &op);
}

typedef weft_status_t (*work_fn)(struct rank *rank, uint32_t r);

static void begin_all(struct world *w, work_fn work) {
    memset(made, 0, sizeof made);
    for (uint32_t r = 0; r < SIZE; r++) expect_outcome(&w->crew.rank[r]);
    for (uint32_t r = 0; r < SIZE; r++) posted(&w->crew.rank[r], work(&w->crew.rank[r], r));
}

/* ---- while datagrams are lost ---------------------------------------------------------------- */

static void lossy(struct world *w, uint32_t loss) {
    struct sim_profile *p = weft__sim_profile(w->fabric);
    p->loss = p->duplicate = p->reorder = loss;
    p->reorder_ns = 50000;
}

static void with_loss(work_fn work) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world w;
        world_up(&w, SIZE, seed, &weft__sim_datagram);
        lossy(&w, 80000);
        begin_all(&w, work);
        RUN_UNTIL(&w, all_notified(&w.crew));
        for (uint32_t r = 0; r < SIZE; r++) {
            CHECK_EQ(w.crew.rank[r].outcome, WEFT_OK);
            if (work == do_agree) CHECK(word[r] == ~0x1full && lost[r][0] == 0);
            if (work == do_safely) CHECK_EQ(sum[r], 0x1f);
            if (work == do_split) CHECK_EQ(weft_team_size(made[r]), r % 2 ? 2 : 3);
            if (work == do_shrink) CHECK_EQ(weft_team_size(made[r]), SIZE);
        }
        lossy(&w, 0);
        world_down(&w);
    }
}

TEST(teams_are_split_and_shrunk_though_datagrams_are_lost) {
    with_loss(do_split);
    with_loss(do_shrink);
}
TEST(teams_are_created_though_datagrams_are_lost) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w;
        world_begin(&w, SIZE, seed, &weft__sim_datagram);
        lossy(&w, 100000);
        RUN_UNTIL(&w, all_ready(&w.crew));
        for (uint32_t r = 0; r < SIZE; r++) CHECK_EQ(w.crew.rank[r].ready, WEFT_OK);
        lossy(&w, 0);
        world_down(&w);
    }
}
TEST(members_agree_though_datagrams_are_lost) {
    with_loss(do_agree);
    with_loss(do_safely);
}

/* ---- while one dies -------------------------------------------------------------------------- */

static void check_survivors(const struct world *w, work_fn work, uint32_t dead) {
    uint32_t witness = dead == 0;
    for (uint32_t r = 0; r < SIZE; r++) {
        const struct rank *rank = &w->crew.rank[r];
        if (r == dead) continue;
        CHECK_EQ(rank->outcome_calls, 1);
        bool known = rank->outcome == WEFT_OK || rank->outcome == WEFT_ERR_PEER_FAILED ||
                     rank->outcome == WEFT_ERR_PROTOCOL || rank->outcome == WEFT_ERR_TIMED_OUT;
        CHECK(known);
        if (work != do_agree && work != do_safely) continue;
        CHECK_EQ(rank->outcome, w->crew.rank[witness].outcome);
        if (work == do_agree) CHECK_EQ(rank->outcome, WEFT_OK);
        if (work == do_agree)
            CHECK(word[r] == word[witness] && lost[r][0] == lost[witness][0] &&
                  (lost[r][0] & ~(1ull << dead)) == 0);
        if (work == do_safely && rank->outcome == WEFT_OK) CHECK_EQ(sum[r], 0x1f);
    }
}

static void with_death(work_fn work) {
    for (uint32_t dead = 0; dead < SIZE; dead++)
        for (uint64_t moment = 0; moment < MOMENTS; moment++) {
            struct world w;
            world_up(&w, SIZE, dead * 100 + moment + 1, &weft__sim_reliable);
            begin_all(&w, work);
            uint64_t until = weft__clock_now(w.clock) + moment * MOMENT_NS;
            while (weft__clock_now(w.clock) < until && weft__clock_turn(w.clock)) continue;
            weft__sim_crash(w.fabric, dead);
            w.crew.rank[dead].outcome_calls += w.crew.rank[dead].outcome_calls == 0;
            RUN_UNTIL(&w, all_notified(&w.crew));
            check_survivors(&w, work, dead);
            weft__sim_heal_all(w.fabric);
            world_down(&w);
        }
}

/* The exchange ends at one member a turn, so the first moments fall into it. */
static void run_for(struct world *w, uint64_t ns) {
    uint64_t until = weft__clock_now(w->clock) + ns;
    while (weft__clock_now(w->clock) < until) {
        copy_ctl_pump(&w->crew.copy_ctl);
        if (!weft__clock_turn(w->clock)) break;
    }
}

TEST(a_death_at_any_moment_of_a_creation_hangs_no_member) {
    unsigned made_it = 0, failed = 0;
    for (uint32_t dead = 0; dead < SIZE; dead++)
        for (uint64_t moment = 0; moment < MOMENTS; moment++) {
            struct world w;
            world_begin(&w, SIZE, dead * 100 + moment + 1, &weft__sim_reliable);
            run_for(&w, moment * MOMENT_NS);
            weft__sim_crash(w.fabric, dead);
            w.crew.rank[dead].ready = WEFT_ERR_CLOSED; /* it is not waited for */
            RUN_UNTIL(&w, all_ready(&w.crew) && w.crew.copy_ctl.notified == SIZE);
            for (uint32_t r = 0; r < SIZE; r++) {
                weft_status_t ready = w.crew.rank[r].ready;
                if (r == dead) continue;
                CHECK_EQ(w.crew.rank[r].ready_calls, 1);
                CHECK(ready == WEFT_OK || ready == WEFT_ERR_PEER_FAILED ||
                      ready == WEFT_ERR_TIMED_OUT);
                made_it += ready == WEFT_OK;
                failed += ready != WEFT_OK;
            }
            weft__sim_heal_all(w.fabric);
            world_down(&w);
        }
    CHECK(made_it && failed);
}
TEST(a_death_at_any_moment_of_a_split_hangs_no_member) {
    with_death(do_split);
}
TEST(a_death_at_any_moment_of_a_shrink_hangs_no_member) {
    with_death(do_shrink);
}
TEST(a_death_at_any_moment_of_an_agreement_leaves_one_value) {
    with_death(do_agree);
}
TEST(a_death_at_any_moment_of_a_safe_collective_leaves_one_outcome) {
    with_death(do_safely);
}

/* ---- while a member lacks memory ------------------------------------------------------------- */

enum { AT_ONCE_MS = 100, ASKED_MS = 1500 };

/* Memory runs out once, at the k-th allocation of what follows the exchange. True: it was not
 * reached. */
static bool is_created(uint64_t k, uint32_t size, unsigned *n_asked_p) {
    struct world w;
    world_begin(&w, size, k, &weft__sim_reliable);
    uint64_t begun = weft__clock_now(w.clock);
    weft__alloc_fail_at(k);
    RUN_UNTIL(&w, all_ready(&w.crew) && w.crew.copy_ctl.notified == size);
    bool whole = weft__alloc_fail_at(0) < k;
    uint64_t took = weft__clock_now(w.clock) - begun;
    *n_asked_p += took > AT_ONCE_MS * 1000000ull;
    CHECK(took <= ASKED_MS * 1000000ull);
    for (uint32_t r = 0; r < size; r++) {
        CHECK_EQ(w.crew.rank[r].ready_calls, 1);
        if (whole) CHECK_EQ(w.crew.rank[r].ready, WEFT_OK);
    }
    world_down(&w);
    return whole;
}

/* At once, or by its answer when it is asked after a second: where it has lost an endpoint of the
 * memory that it lacked, or another member has lost it. */
TEST(members_do_not_wait_for_one_that_lacks_memory_after_the_exchange) {
    for (uint32_t size = 2; size <= 7; size++) {
        uint64_t k = 1;
        unsigned n_asked = 0;
        while (!is_created(k, size, &n_asked)) CHECK(++k < 2000);
        printf("  %u members: %llu allocations, %u times asked\n", size, (unsigned long long)k,
               n_asked);
        CHECK(n_asked < k / 3);
    }
}

static void check_one_outcome(const struct world *w) {
    for (uint32_t r = 0; r < SIZE; r++) {
        const struct rank *rank = &w->crew.rank[r];
        CHECK_EQ(rank->outcome_calls, 1);
        CHECK_EQ(rank->outcome, w->crew.rank[0].outcome);
        CHECK(rank->outcome != WEFT_ERR_TIMED_OUT);
        if (rank->outcome == WEFT_OK) CHECK_EQ(sum[r], 0x1f);
    }
}

/* A call that is refused for lack of memory has not begun: the program calls again. */
static weft_status_t do_safely_again(struct rank *rank, uint32_t r) {
    weft_status_t st = do_safely(rank, r);
    return st == WEFT_ERR_NO_MEMORY ? do_safely(rank, r) : st;
}

/* True: the k-th allocation was not reached. */
static bool is_agreed_on(uint64_t k) {
    struct world w;
    world_up(&w, SIZE, k, &weft__sim_reliable);
    begin_all(&w, do_safely); /* a member that lacks memory for an endpoint would be lost */
    RUN_UNTIL(&w, all_notified(&w.crew));
    weft__alloc_fail_at(k);
    begin_all(&w, do_safely_again);
    RUN_UNTIL(&w, all_notified(&w.crew));
    bool whole = weft__alloc_fail_at(0) < k;
    check_one_outcome(&w);
    if (whole) CHECK_EQ(w.crew.rank[0].outcome, WEFT_OK);
    begin_all(&w, do_safely); /* all are in the same agreement */
    RUN_UNTIL(&w, all_notified(&w.crew));
    check_one_outcome(&w);
    world_down(&w);
    return whole;
}

TEST(members_of_which_one_lacks_memory_in_a_safe_collective_stay_in_step) {
    uint64_t k = 1;
    while (!is_agreed_on(k)) CHECK(++k < 2000);
    printf("  %llu allocations\n", (unsigned long long)k);
}

/* ---- while one direction between two members stands still ------------------------------------ */

/* Shorter than the deadline: it is waited for. Longer: each member is notified nevertheless. What a
 * split asks of the parent has the deadline of the parent, so the stall comes on top. */
static void with_stall(work_fn work, uint64_t stall_ms) {
    for (uint32_t from = 0; from < SIZE; from++)
        for (uint64_t moment = 0; moment < MOMENTS; moment += 2) {
            struct world w;
            uint32_t to = (from + 1 + (uint32_t)moment / 2 % (SIZE - 1)) % SIZE;
            world_up(&w, SIZE, from * 100 + moment + 1, &weft__sim_reliable);
            begin_all(&w, work);
            uint64_t begun = weft__clock_now(w.clock), until = begun + moment * MOMENT_NS;
            while (weft__clock_now(w.clock) < until && !all_notified(&w.crew) &&
                   weft__clock_turn(w.clock))
                continue;
            weft__sim_stall(w.fabric, from, to, stall_ms * 1000000);
            RUN_UNTIL(&w, all_notified(&w.crew));
            uint64_t most_ms = stall_ms + 2 * DEADLINE_MS; /* a safe one agrees about it, too */
            CHECK(weft__clock_now(w.clock) - begun <= most_ms * 1000000);
            for (uint32_t r = 0; r < SIZE; r++) {
                CHECK_EQ(w.crew.rank[r].outcome_calls, 1);
                if (stall_ms < DEADLINE_MS) CHECK_EQ(w.crew.rank[r].outcome, WEFT_OK);
                if (stall_ms < DEADLINE_MS && work == do_agree) CHECK_EQ(word[r], ~0x1full);
                if (stall_ms < DEADLINE_MS && work == do_safely) CHECK_EQ(sum[r], 0x1f);
            }
            world_down(&w);
        }
}

TEST(a_direction_that_stands_still_is_waited_for_by_a_creation) {
    for (uint32_t from = 0; from < SIZE; from++)
        for (uint64_t moment = 0; moment < MOMENTS; moment++) {
            struct world w;
            uint32_t to = (from + 1 + (uint32_t)moment % (SIZE - 1)) % SIZE;
            world_begin(&w, SIZE, from * 100 + moment + 1, &weft__sim_reliable);
            run_for(&w, moment * MOMENT_NS);
            weft__sim_stall(w.fabric, from, to, 300000000);
            RUN_UNTIL(&w, all_ready(&w.crew));
            for (uint32_t r = 0; r < SIZE; r++) CHECK_EQ(w.crew.rank[r].ready, WEFT_OK);
            world_down(&w);
        }
}
TEST(a_direction_that_stands_still_is_waited_for) {
    with_stall(do_split, 300);
    with_stall(do_shrink, 300);
    with_stall(do_agree, 300);
    with_stall(do_safely, 300);
}
TEST(a_direction_that_stands_still_for_longer_than_the_deadline_hangs_no_member) {
    with_stall(do_split, 5000);
    with_stall(do_agree, 5000);
    with_stall(do_safely, 5000);
}

/* ---- growing --------------------------------------------------------------------------------- */

/* Three members and two workers that join. */
static void begin_growing(struct world *w) {
    uint8_t invitation[WEFT_TEAM_INVITATION_MAX];
    size_t len = sizeof invitation;
    memset(made, 0, sizeof made);
    CHECK_EQ(weft_team_invite(w->crew.rank[1].team, invitation, &len), WEFT_OK);
    for (uint32_t r = 0; r < SIZE; r++) {
        struct rank *rank = &w->crew.rank[r];
        weft_team_params_t params = {.on_ready = on_made, .arg = rank, .deadline_ms = DEADLINE_MS};
        expect_outcome(rank);
        weft_status_t st = r < 3 ? weft_team_grow(rank->team, 1, 2, &params)
                                 : weft_team_join(rank->worker, invitation, len, &params);
        CHECK_EQ(st, WEFT_OK);
    }
}

static void three_and_two(struct world *w, uint64_t seed, const struct sim_profile *profile) {
    world_up(w, SIZE, seed, profile);
    copy_ctl_make(&w->crew.copy_ctl, 3);
    for (uint32_t r = 0; r < SIZE; r++) CHECK_EQ(weft_team_close(w->crew.rank[r].team, NULL), 1);
    for (uint32_t r = 0; r < 3; r++) {
        struct rank *rank = &w->crew.rank[r];
        rank->ready = WEFT_IN_PROGRESS;
        weft_team_params_t params = {
            .exchange = &w->crew.copy_ctl.exchange[r], .on_ready = on_team_ready, .arg = rank};
        CHECK_EQ(weft_team_create(rank->worker, &params, &rank->team), WEFT_OK);
    }
    w->crew.rank[3].team = w->crew.rank[4].team = NULL;
    RUN_UNTIL(w, all_ready(&w->crew));
}

static bool all_were_notified(const struct crew *c) {
    for (uint32_t r = 0; r < SIZE; r++)
        if (!c->rank[r].outcome_calls) return false;
    return true;
}

TEST(a_team_grows_though_datagrams_are_lost) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world w;
        three_and_two(&w, seed, &weft__sim_datagram);
        lossy(&w, 80000);
        begin_growing(&w);
        RUN_UNTIL(&w, all_were_notified(&w.crew));
        for (uint32_t r = 0; r < SIZE; r++)
            CHECK(w.crew.rank[r].outcome == WEFT_OK && weft_team_size(made[r]) == SIZE);
        lossy(&w, 0);
        world_down(&w);
    }
}

TEST(a_death_at_any_moment_of_growing_hangs_no_member) {
    for (uint32_t dead = 0; dead < SIZE; dead++)
        for (uint64_t moment = 0; moment < MOMENTS; moment++) {
            struct world w;
            three_and_two(&w, dead * 100 + moment + 1, &weft__sim_reliable);
            begin_growing(&w);
            uint64_t until = weft__clock_now(w.clock) + moment * MOMENT_NS;
            while (weft__clock_now(w.clock) < until && weft__clock_turn(w.clock)) continue;
            weft__sim_crash(w.fabric, dead);
            w.crew.rank[dead].outcome_calls += w.crew.rank[dead].outcome_calls == 0;
            RUN_UNTIL(&w, all_were_notified(&w.crew));
            for (uint32_t r = 0; r < SIZE; r++)
                if (r != dead) CHECK_EQ(w.crew.rank[r].outcome_calls, 1);
            weft__sim_heal_all(w.fabric);
            world_down(&w);
        }
}

/* ---- a member whose last word is lost -------------------------------------------------------- */

enum { OVERFLOW_MESSAGES = 1000, STALL_S = 10 };

/* Nothing more goes from a member to another. */
static void fill_way(struct world *w, uint32_t from, uint32_t to) {
    static uint64_t words[OVERFLOW_MESSAGES];
    weft__sim_stall(w->fabric, from, to, STALL_S * 1000000000ull);
    for (uint32_t i = 0; i < OVERFLOW_MESSAGES; i++)
        CHECK(weft_tag_send(weft_team_ep(w->crew.rank[from].team, to), 1,
                            &(weft_iov_t){&words[i], sizeof words[i]}, 1, NULL) >= 0);
}

static void begin_barrier(struct world *w, uint32_t r) {
    struct rank *rank = &w->crew.rank[r];
    expect_outcome(rank);
    posted(rank, weft_barrier(rank->team, OP_OF(rank)));
}

static void close_team(struct world *w, uint32_t r) {
    struct rank *rank = &w->crew.rank[r];
    weft_op_t op = {.done = on_closed, .arg = rank};
    CHECK_EQ(weft_team_close(rank->team, &op), WEFT_IN_PROGRESS);
}

/* The close is cut by its time limit, and what it would have said with it. */
TEST(a_member_that_closes_over_a_full_network_is_not_waited_for) {
    for (uint32_t in_barrier = 0; in_barrier < 2; in_barrier++) {
        struct world w;
        world_up(&w, 2, in_barrier + 1, &weft__sim_reliable);
        fill_way(&w, 1, 0);
        begin_barrier(&w, 0);
        if (in_barrier) begin_barrier(&w, 1);
        close_team(&w, 1);
        RUN_UNTIL(&w, w.crew.rank[1].closed);
        CHECK(!w.crew.rank[0].outcome_calls);
        RUN_UNTIL(&w, w.crew.rank[0].outcome_calls);
        CHECK_EQ(w.crew.rank[0].outcome, WEFT_ERR_PEER_FAILED);
        world_down(&w);
    }
}
static void begin_agreement(struct world *w, uint32_t r) {
    struct rank *rank = &w->crew.rank[r];
    expect_outcome(rank);
    word[r] = ~(1ull << r);
    posted(rank, weft_team_agree(rank->team, &word[r], lost[r], OP_OF(rank)));
}

/* Who leaves is the coordinator, or one that the coordinator waits for. */
TEST(a_member_that_closes_over_a_full_network_holds_up_no_agreement) {
    for (uint32_t leaves = 0; leaves < 2; leaves++) {
        struct world w;
        uint32_t stays = 1 - leaves;
        world_up(&w, 2, leaves + 1, &weft__sim_reliable);
        fill_way(&w, leaves, stays);
        begin_agreement(&w, stays);
        run_for(&w, 1000000);
        close_team(&w, leaves);
        RUN_UNTIL(&w, w.crew.rank[leaves].closed);
        CHECK(!w.crew.rank[stays].outcome_calls);
        RUN_UNTIL(&w, w.crew.rank[stays].outcome_calls);
        CHECK_EQ(w.crew.rank[stays].outcome, WEFT_OK);
        CHECK_EQ(lost[stays][0], 1 << leaves);
        CHECK_EQ(word[stays], ~(1ull << stays));
        world_down(&w);
    }
}
/* Only one of the two has an endpoint to the other. */
TEST(a_member_that_all_others_have_lost_is_notified_when_it_waits) {
    struct world w;
    uint32_t from = 0, to = SIZE - 1;
    world_up(&w, SIZE, 1, &weft__sim_reliable);
    while (weft__sim_nth_lane(w.fabric, from, to, 0)) from++;
    CHECK(from < to && weft_team_ep(w.crew.rank[from].team, to));
    run_for(&w, 1000000);
    weft__sim_kill(weft__sim_nth_lane(w.fabric, from, to, 0));
    run_for(&w, 1000000);
    begin_barrier(&w, to);
    RUN_UNTIL(&w, w.crew.rank[to].outcome_calls);
    CHECK_EQ(w.crew.rank[to].outcome, WEFT_ERR_PEER_FAILED);
    world_down(&w);
}
