/* Memory runs out at any one allocation of a team's life: an error where it hurts, no crash,
 * nothing left behind. */
#include "team.h"
#include <reactor/reactor.h>

/* A team is made, works and is closed, with the k-th allocation failing. True when it was not
 * reached. */
static bool life_with_failure_at(uint64_t k, const char *setting, const char *value) {
    struct crew c;
    weft_setting_t one = {setting, value};
    static int32_t in[2][3000], out[2][3000];
    crew_workers(&c, 2, "self,shm", &one, setting != NULL);
    copy_ctl_make(&c.copy_ctl, 2);
    weft__alloc_fail_at(k);
    for (uint32_t r = 0; r < 2; r++) {
        struct rank *rank = &c.rank[r];
        rank->ready = WEFT_IN_PROGRESS;
        weft_team_params_t params = {.exchange = &c.copy_ctl.exchange[r],
                                     .on_ready = on_team_ready,
                                     .arg = rank,
                                     .deadline_ms = 40};
        if (weft_team_create(rank->worker, &params, &rank->team) < 0) rank->team = NULL;
    }
    UNTIL(&c, all_ready(&c));
    for (uint32_t r = 0; r < 2; r++) expect_outcome(&c.rank[r]);
    for (uint32_t r = 0; r < 2; r++) {
        struct rank *rank = &c.rank[r];
        weft_op_t op = {.done = on_outcome, .arg = rank, .deadline_ms = 40};
        if (!rank->team) continue;
        in[r][0] = (int32_t)r + 1;
        weft_status_t st =
            weft_allreduce(rank->team, in[r], out[r], 3000, WEFT_INT32, WEFT_SUM, &op);
        if (st != WEFT_IN_PROGRESS) on_outcome(st, rank);
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) {
        if (!c.rank[r].team) continue;
        CHECK_EQ(c.rank[r].ready_calls, 1);
        CHECK_EQ(c.rank[r].outcome_calls, 1);
        CHECK(c.rank[r].outcome <= 0);
        if (c.rank[r].outcome == WEFT_OK) CHECK_EQ(out[r][0], 3);
    }
    bool whole = weft__alloc_fail_at(0) < k;
    for (uint32_t r = 0; whole && r < 2; r++) {
        CHECK(c.rank[r].team);
        /* On a slow machine the deadline, which is short for those that fail, may cut a life
         * that lacked nothing. */
        if (c.rank[r].outcome == WEFT_ERR_TIMED_OUT)
            whole = false;
        else
            CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    }
    crew_down(&c);
    return whole;
}

TEST(a_teams_life_over_messages_survives_any_allocation_failing) {
    uint64_t k = 1;
    while (!life_with_failure_at(k, "coll.slot", "0")) CHECK(++k < 1000);
    printf("  %llu allocations\n", (unsigned long long)k);
    CHECK(k > 20);
}

TEST(a_teams_life_through_the_segment_survives_any_allocation_failing) {
    uint64_t k = 1;
    while (!life_with_failure_at(k, NULL, NULL)) CHECK(++k < 1000);
    CHECK(k > 20);
}
