/* A thousand members in virtual time. */
#define CREW_MOST 1000
#include "sim_world.h"

enum { MEMBERS = CREW_MOST, LOST_WORDS = (MEMBERS + 63) / 64, ROUNDS = 7, TURNS_APART = 3 };

static uint64_t word[MEMBERS], lost[MEMBERS][LOST_WORDS];
static bool is_dead[MEMBERS];

static bool is_lost(uint32_t r, uint32_t at) {
    return lost[at][r / 64] >> r % 64 & 1;
}

static void begin_agreeing(struct crew *c, int round) {
    for (uint32_t r = 0; r < MEMBERS; r++) {
        struct rank *rank = &c->rank[r];
        weft_op_t op = {.done = on_outcome, .arg = rank, .deadline_ms = 10000};
        expect_outcome(rank);
        word[r] = ~(1ull << r % 60);
        word[r] &= ~((uint64_t)round << 60);
        if (is_dead[r])
            rank->outcome_calls = 1;
        else
            posted(rank, weft_team_agree(rank->team, &word[r], lost[r], &op));
    }
}

static uint32_t n_open(const struct crew *c) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < MEMBERS; r++) n += !c->rank[r].outcome_calls;
    return n;
}

static void die(struct world *w, uint32_t r) {
    weft__sim_crash(w->fabric, r);
    is_dead[r] = true;
    w->crew.rank[r].outcome_calls = 1;
}

/* All that live have one value. It calls no living member lost, and all that died before. */
static void check_survivors(const struct crew *c, uint32_t witness, const bool *was_dead) {
    for (uint32_t r = 0; r < MEMBERS; r++) {
        if (is_dead[r]) continue;
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        CHECK_EQ(c->rank[r].outcome_calls, 1);
        CHECK(word[r] == word[witness] && memcmp(lost[r], lost[witness], sizeof lost[r]) == 0);
    }
    for (uint32_t r = 0; r < MEMBERS; r++) {
        CHECK(is_dead[r] || !is_lost(r, witness));
        CHECK(!was_dead[r] || is_lost(r, witness));
    }
}

/* In each agreement the coordinator and another member die, ever later. */
TEST(a_thousand_members_agree_again_and_again_though_coordinators_die) {
    static struct world w;
    int n_struck = 0;
    setenv("WEFT_LOG_LEVEL", "none", 1); /* each member says which ones it lost */
    world_up(&w, MEMBERS, 11, &weft__sim_reliable);
    for (int round = 0; round < ROUNDS; round++) {
        bool was_dead[MEMBERS];
        uint32_t coordinator = (uint32_t)round, other = 77 * (uint32_t)(round + 1);
        memcpy(was_dead, is_dead, sizeof was_dead);
        begin_agreeing(&w.crew, round);
        for (int turn = 0; turn < round * TURNS_APART; turn++) weft__clock_turn(w.clock);
        n_struck += n_open(&w.crew) == MEMBERS - 2 * (uint32_t)round;
        die(&w, coordinator);
        die(&w, other);
        RUN_UNTIL(&w, all_notified(&w.crew));
        check_survivors(&w.crew, coordinator + 1, was_dead);
    }
    CHECK(n_struck > ROUNDS / 2); /* before any member had the outcome */
    weft__sim_heal_all(w.fabric);
    world_down(&w);
}
