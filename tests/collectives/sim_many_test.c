/* Two hundred members in virtual time. */
#define CREW_MOST 200
#include "sim_world.h"

enum { MEMBERS = 200, LOST_WORDS = (MEMBERS + 63) / 64 };

static uint64_t word[MEMBERS], lost[MEMBERS][LOST_WORDS];

static weft_status_t begin_agreeing(struct rank *rank, uint32_t r) {
    weft_op_t op = {.done = on_outcome, .arg = rank, .deadline_ms = 10000};
    word[r] = ~(1ull << r % 64);
    return weft_team_agree(rank->team, &word[r], lost[r], &op);
}

static bool is_dead(uint32_t r) {
    return r == 0 || r == 77;
}

/* The coordinator and another one die while all agree: those that are left have one value. */
TEST(two_hundred_members_agree_though_the_coordinator_dies) {
    static struct world w;
    setenv("WEFT_LOG_LEVEL", "none", 1); /* each member says which ones it lost */
    world_up(&w, MEMBERS, 11, &weft__sim_reliable);
    for (uint32_t r = 0; r < MEMBERS; r++) expect_outcome(&w.crew.rank[r]);
    for (uint32_t r = 0; r < MEMBERS; r++)
        posted(&w.crew.rank[r], begin_agreeing(&w.crew.rank[r], r));
    for (int turn = 0; turn < 300 && weft__clock_turn(w.clock); turn++) continue;
    for (uint32_t r = 0; r < MEMBERS; r++) {
        if (!is_dead(r)) continue;
        weft__sim_crash(w.fabric, r);
        w.crew.rank[r].outcome_calls += w.crew.rank[r].outcome_calls == 0;
    }
    RUN_UNTIL(&w, all_notified(&w.crew));
    for (uint32_t r = 0; r < MEMBERS; r++) {
        if (is_dead(r)) continue;
        CHECK_EQ(w.crew.rank[r].outcome, WEFT_OK);
        CHECK(word[r] == word[1] && memcmp(lost[r], lost[1], sizeof lost[r]) == 0);
        for (uint32_t k = 0; k < MEMBERS; k++)
            CHECK(!(lost[r][k / 64] >> k % 64 & 1) || is_dead(k));
    }
    weft__sim_heal_all(w.fabric);
    world_down(&w);
}
