/* Collectives with WEFT_COLL_SAFE: one outcome for all members that are left. */
#include "team.h"

enum { COUNT = 3000 };
static int32_t mine[MOST_RANKS][COUNT], sum[MOST_RANKS][COUNT];

static const char *const ways[][3] = {{"self,shm", NULL, NULL},
                                      {"self,shm", "coll.algorithms", "allreduce=single_copy"},
                                      {"self,shm", "coll.slot", "0"},
                                      {"self,tcp", NULL, NULL}};

static void sum_safely(struct crew *c, uint32_t r, uint32_t deadline_ms) {
    struct rank *me = &c->rank[r];
    weft_op_t op = {
        .done = on_outcome, .arg = me, .flags = WEFT_COLL_SAFE, .deadline_ms = deadline_ms};
    expect_outcome(me);
    posted(me, weft_allreduce(me->team, mine[r], sum[r], COUNT, WEFT_INT32, WEFT_SUM, &op));
}

TEST(a_safe_collective_has_its_result) {
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct crew c;
        crew_up(&c, 4, ways[i][0], ways[i][1], ways[i][2]);
        for (int again = 0; again < 5; again++) {
            for (uint32_t r = 0; r < 4; r++) {
                mine[r][COUNT - 1] = again + (int32_t)r;
                sum_safely(&c, r, 0);
            }
            UNTIL(&c, all_notified(&c));
            for (uint32_t r = 0; r < 4; r++)
                CHECK(c.rank[r].outcome == WEFT_OK && sum[r][COUNT - 1] == 4 * again + 6);
        }
        crew_down(&c);
    }
}

TEST(a_persistent_collective_is_started_safely) {
    struct crew c;
    weft_coll_t *coll[3];
    crew_up(&c, 3, "self,shm", "coll.slot", "0");
    for (uint32_t r = 0; r < 3; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .src = mine[r],
                                 .dst = sum[r],
                                 .count = 5,
                                 .type = WEFT_INT32};
        mine[r][4] = (int32_t)r;
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
    }
    for (int again = 0; again < 5; again++) {
        weft_op_t op = {.done = on_outcome, .flags = WEFT_COLL_SAFE};
        for (uint32_t r = 0; r < 3; r++) {
            op.arg = &c.rank[r];
            expect_outcome(&c.rank[r]);
            posted(&c.rank[r], weft_coll_start(coll[r], &op));
        }
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 3; r++) CHECK(c.rank[r].outcome == WEFT_OK && sum[r][4] == 3);
    }
    for (uint32_t r = 0; r < 3; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    crew_down(&c);
}

/* Whichever member leaves, and whenever: either all that are left have the result, or none. */
static void lose(const char *const way[3], uint32_t dies, int turns) {
    struct crew c;
    weft_setting_t settings[] = {{"close.timeout", "20"}, {way[1], way[2]}};
    bool first = true;
    weft_status_t shared = WEFT_OK;
    crew_workers(&c, 4, way[0], settings, way[1] ? 2 : 1);
    crew_teams(&c);
    for (uint32_t r = 0; r < 4; r++) {
        mine[r][0] = 1 << r;
        sum[r][0] = 0;
        sum_safely(&c, r, 0);
    }
    for (int k = 0; k < turns; k++) crew_turn(&c);
    vanish(&c, dies);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 4; r++) {
        if (r == dies) continue;
        if (first) shared = c.rank[r].outcome;
        first = false;
        CHECK_EQ(c.rank[r].outcome, shared);
        if (shared == WEFT_OK) CHECK_EQ(sum[r][0], 15);
        if (shared < 0) CHECK_EQ(weft_barrier(c.rank[r].team, NULL), shared);
    }
    CHECK(shared == WEFT_OK || shared == WEFT_ERR_PEER_FAILED);
    crew_down(&c);
}

TEST(all_that_are_left_have_one_outcome_whichever_is_lost_and_whenever) {
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
        for (uint32_t dies = 0; dies < 4; dies++)
            for (int turns = 0; turns < 10; turns++) lose(ways[i], dies, turns);
}

TEST(a_member_that_knows_of_a_failure_before_it_calls_has_the_outcome_of_the_others) {
    struct crew c;
    const char *name;
    weft_setting_t settings[] = {{"close.timeout", "20"}};
    crew_workers(&c, 3, "self,shm", settings, 1);
    crew_teams(&c);
    sum_safely(&c, 1, 60000);
    vanish(&c, 2);
    UNTIL(&c, weft_team_algorithm(c.rank[0].team, WEFT_COLL_BARRIER, 0, 0, &name) ==
                  WEFT_ERR_PEER_FAILED);
    sum_safely(&c, 0, 60000);
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(c.rank[1].outcome, WEFT_ERR_PEER_FAILED);
    crew_down(&c);
}

TEST(a_member_that_does_not_come_fails_it_for_all) {
    struct crew c;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    sum_safely(&c, 0, 50);
    sum_safely(&c, 2, 50);
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[2].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_TIMED_OUT); /* rank 1 does not come to the agreement */
    CHECK_EQ(c.rank[2].outcome, WEFT_ERR_TIMED_OUT);
    crew_down(&c);
}

static void no_team(weft_team_t *team, weft_status_t status, void *arg) {}

TEST(one_safe_collective_is_in_progress_at_a_time) {
    struct crew c;
    weft_request_t *request;
    uint64_t flags = 1;
    weft_op_t safe = {.flags = WEFT_COLL_SAFE}, two = safe;
    two.request_p = &request;
    crew_up(&c, 2, "self,shm", NULL, NULL);
    CHECK_EQ(weft_barrier(c.rank[0].team, &two), WEFT_ERR_INVALID_PARAM);
    expect_outcome(&c.rank[0]);
    safe.done = on_outcome;
    safe.arg = &c.rank[0];
    CHECK_EQ(weft_barrier(c.rank[0].team, &safe), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_barrier(c.rank[0].team, &safe), WEFT_ERR_BUSY);
    CHECK_EQ(weft_team_agree(c.rank[0].team, &flags, NULL, NULL), WEFT_ERR_BUSY);
    CHECK_EQ(weft_team_shrink(c.rank[0].team, &(weft_team_params_t){.on_ready = no_team}),
             WEFT_ERR_BUSY);
    crew_close_teams(&c);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_CLOSED);
    crew_down(&c);
}

/* A completion that it accepted and never counted down would keep its program for good. */
TEST(a_safe_collective_counts_for_no_completion) {
    struct crew c;
    weft_coll_t *coll;
    weft_completion_t completion = {.count = 0};
    weft_op_t op = {.flags = WEFT_COLL_SAFE, .completion = &completion};
    crew_up(&c, 2, "self,shm", NULL, NULL);
    weft_team_t *team = c.rank[0].team;
    CHECK_EQ(weft_barrier(team, &op), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_coll_init(team, &(weft_coll_args_t){.kind = WEFT_COLL_BARRIER}, 0, &coll), 0);
    CHECK_EQ(weft_coll_start(coll, &op), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(completion.count, 0);
    sum_safely(&c, 0, 0);
    sum_safely(&c, 1, 0);
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_OK);
    CHECK_EQ(weft_coll_free(coll), 0);
    crew_down(&c);
}
