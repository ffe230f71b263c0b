/* Collectives by lines that are over within their call, and those that become ordinary ones. */
#include <reactor/reactor.h>

#include "team.h"

static int32_t in[MOST_RANKS], out[MOST_RANKS];

static uint64_t count(struct rank *r, const char *name) {
    return weft_worker_count(r->worker, name);
}

static weft_status_t sum_of(struct rank *r, uint32_t i) {
    return weft_allreduce(r->team, &in[i], &out[i], 1, WEFT_INT32, WEFT_SUM, OP_OF(r));
}

TEST(the_last_member_is_done_within_its_call_and_the_first_by_one_callback) {
    struct crew c;
    crew_of_cores(&c, 2);
    struct rank *first = &c.rank[0], *last = &c.rank[1];
    uint64_t ended = count(last, "coll.within_call"), began = count(last, "coll.started");
    expect_outcome(first);
    expect_outcome(last);
    in[0] = 3;
    in[1] = 4;
    CHECK_EQ(sum_of(first, 0), WEFT_IN_PROGRESS);
    CHECK_EQ(sum_of(last, 1), WEFT_OK);
    CHECK_EQ(out[1], 7);
    CHECK_EQ(count(last, "coll.within_call"), ended + 1);
    CHECK_EQ(count(last, "coll.started"), began + 1);
    UNTIL(&c, first->outcome_calls == 1);
    for (int i = 0; i < 10; i++) crew_turn(&c);
    CHECK_EQ(first->outcome, WEFT_OK);
    CHECK_EQ(first->outcome_calls, 1);
    CHECK_EQ(last->outcome_calls, 0);
    CHECK_EQ(out[0], 7);
    crew_down(&c);
}

/* All roots by turns: nothing of the call before is left in the next. */
TEST(calls_of_one_kind_differ_by_root_count_and_memory) {
    struct crew c;
    enum { SIZE = 3 };
    static int32_t from[SIZE][8], to[SIZE][8 * SIZE];
    crew_of_cores(&c, SIZE);
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t root = i % SIZE, n = 1 + i / 3 % 2;
        for (uint32_t r = 0; r < SIZE; r++) {
            memset(to[r], 0xff, sizeof to[r]);
            for (uint32_t k = 0; k < 8; k++) from[r][k] = (int32_t)(1000 * i + 10 * r + k);
        }
        EVERYBODY(&c, weft_gather(me->team, from[r] + i % 4, r == root ? to[r] : NULL, n,
                                  WEFT_INT32, root, OP_OF(me)));
        for (uint32_t r = 0; r < SIZE; r++)
            for (uint32_t k = 0; k < n; k++)
                CHECK_EQ(to[root][r * n + k], (int32_t)(1000 * i + 10 * r + i % 4 + k));
        CHECK_EQ(to[root][SIZE * n], -1);
        EVERYBODY(&c, weft_bcast(me->team, from[r], n, WEFT_INT32, root, OP_OF(me)));
        for (uint32_t r = 0; r < SIZE; r++) CHECK_EQ(from[r][n - 1], from[root][n - 1]);
        EVERYBODY(&c, weft_reduce(me->team, from[r], r == root ? to[r] : NULL, n, WEFT_INT32,
                                  i % 2 ? WEFT_MAX : WEFT_SUM, root, OP_OF(me)));
        CHECK_EQ(to[root][0], i % 2 ? from[0][0] : SIZE * from[0][0]);
    }
    /* What is wrong is refused as in the first call. */
    struct rank *me = &c.rank[0];
    CHECK_EQ(weft_bcast(me->team, from[0], 1, WEFT_INT32, SIZE, OP_OF(me)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_bcast(me->team, NULL, 1, WEFT_INT32, 0, OP_OF(me)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_gather(me->team, from[0], NULL, 1, WEFT_INT32, 0, OP_OF(me)),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_gather(me->team, NULL, to[0], 1, WEFT_INT32, 1, OP_OF(me)),
             WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

/* ---- several in progress --------------------------------------------------------------------- */

struct ended {
    int n, order[32];
};
static struct ended ended;
static void note_end(weft_status_t status, void *arg) {
    CHECK_EQ(status, WEFT_OK);
    ended.order[ended.n++] = (int)(intptr_t)arg;
}

TEST(callbacks_come_in_the_order_of_their_calls) {
    struct crew c;
    enum { N = 4 };
    int32_t a[N], b[N], sum[N], other[N];
    crew_of_cores(&c, 2);
    ended.n = 0;
    for (int i = 0; i < N; i++) {
        weft_op_t op = {.done = note_end, .arg = (void *)(intptr_t)i};
        a[i] = i;
        b[i] = 10 * i;
        CHECK_EQ(weft_allreduce(c.rank[0].team, &a[i], &sum[i], 1, WEFT_INT32, WEFT_SUM, &op),
                 WEFT_IN_PROGRESS);
    }
    for (int i = 0; i < N; i++)
        CHECK_EQ(weft_allreduce(c.rank[1].team, &b[i], &other[i], 1, WEFT_INT32, WEFT_SUM,
                                OP_OF(&c.rank[1])),
                 WEFT_OK);
    CHECK_EQ(ended.n, 0);
    UNTIL(&c, ended.n == N);
    for (int i = 0; i < N; i++) {
        CHECK_EQ(ended.order[i], i);
        CHECK_EQ(sum[i], 11 * i);
        CHECK_EQ(other[i], 11 * i);
    }
    crew_down(&c);
}

/* A root reads no line. Behind a barrier that waits it waits, too. */
TEST(one_that_could_end_within_its_call_does_not_overtake_one_that_waits) {
    struct crew c;
    int32_t word = 5, got = 0;
    crew_of_cores(&c, 2);
    ended.n = 0;
    weft_op_t op = {.done = note_end, .arg = (void *)1};
    CHECK_EQ(weft_barrier(c.rank[0].team, &op), WEFT_IN_PROGRESS);
    op.arg = (void *)2;
    CHECK_EQ(weft_bcast(c.rank[0].team, &word, 1, WEFT_INT32, 0, &op), WEFT_IN_PROGRESS);
    for (int i = 0; i < 10; i++) crew_turn(&c);
    CHECK_EQ(ended.n, 0);
    CHECK_EQ(weft_barrier(c.rank[1].team, OP_OF(&c.rank[1])), WEFT_OK);
    CHECK_EQ(weft_bcast(c.rank[1].team, &got, 1, WEFT_INT32, 0, OP_OF(&c.rank[1])), WEFT_OK);
    CHECK_EQ(got, 5);
    UNTIL(&c, ended.n == 2);
    CHECK(ended.order[0] == 1 && ended.order[1] == 2);
    crew_down(&c);
}

/* ---- it has become an ordinary one ----------------------------------------------------------- */

TEST(one_that_others_do_not_join_is_cancelled_as_any) {
    struct crew c;
    weft_request_t *request = NULL;
    crew_of_cores(&c, 2);
    struct rank *me = &c.rank[0];
    weft_op_t op = {.done = on_outcome, .arg = me, .request_p = &request};
    expect_outcome(me);
    CHECK_EQ(weft_barrier(me->team, &op), WEFT_IN_PROGRESS);
    CHECK(request != NULL);
    weft_request_cancel(request);
    UNTIL(&c, me->outcome_calls == 1);
    CHECK_EQ(me->outcome, WEFT_ERR_CANCELLED);
    CHECK_EQ(weft_barrier(me->team, OP_OF(me)), WEFT_ERR_CANCELLED);
    crew_down(&c);
}

TEST(a_member_that_dies_after_others_have_looked_ends_their_collective) {
    struct crew c;
    crew_of_cores(&c, 3);
    for (uint32_t r = 0; r < 2; r++) {
        expect_outcome(&c.rank[r]);
        CHECK_EQ(sum_of(&c.rank[r], r), WEFT_IN_PROGRESS);
    }
    vanish(&c, 2);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(sum_of(&c.rank[0], 0), WEFT_ERR_PEER_FAILED);
    crew_down(&c);
}

TEST(a_persistent_one_is_over_within_its_start_or_goes_on) {
    struct crew c;
    weft_coll_t *coll[2];
    crew_of_cores(&c, 2);
    for (uint32_t r = 0; r < 2; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .src = &in[r],
                                 .dst = &out[r],
                                 .count = 1,
                                 .type = WEFT_INT32,
                                 .reduction = WEFT_SUM};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
    }
    for (int i = 0; i < 20; i++) {
        uint32_t first = (uint32_t)i % 2, last = 1 - first;
        in[0] = i;
        in[1] = 100;
        expect_outcome(&c.rank[first]);
        CHECK_EQ(weft_coll_start(coll[first], OP_OF(&c.rank[first])), WEFT_IN_PROGRESS);
        CHECK_EQ(weft_coll_start(coll[first], OP_OF(&c.rank[first])), WEFT_ERR_BUSY);
        CHECK_EQ(weft_coll_start(coll[last], OP_OF(&c.rank[last])), WEFT_OK);
        UNTIL(&c, c.rank[first].outcome_calls == 1);
        CHECK(out[0] == 100 + i && out[1] == 100 + i);
    }
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    crew_down(&c);
}

/* A line that was written stands: what lacks memory must not have written one. Collectives of
 * another team have taken the worker's free requests. */
TEST(a_call_that_lacks_memory_has_not_entered) {
    enum { MANY = 20 };
    struct crew c;
    weft_team_t *other[2], *team[2];
    crew_of_cores(&c, 2);
    for (uint32_t r = 0; r < 2; r++) other[r] = c.rank[r].team;
    crew_teams(&c);
    EVERYBODY(&c, sum_of(me, r));
    ended.n = 0;
    weft_op_t op = {.done = note_end};
    for (int i = 0; i < MANY; i++) CHECK_EQ(weft_barrier(other[0], &op), WEFT_IN_PROGRESS);
    in[0] = 30;
    in[1] = 4;
    weft__alloc_fail_at(1);
    expect_outcome(&c.rank[0]);
    CHECK_EQ(sum_of(&c.rank[0], 0), WEFT_ERR_NO_MEMORY);
    weft__alloc_fail_at(0);
    CHECK_EQ(sum_of(&c.rank[0], 0), WEFT_IN_PROGRESS);
    CHECK_EQ(sum_of(&c.rank[1], 1), WEFT_OK);
    UNTIL(&c, c.rank[0].outcome_calls == 1);
    CHECK(out[0] == 34 && out[1] == 34);
    for (int i = 0; i < MANY; i++) {
        expect_outcome(&c.rank[1]);
        posted(&c.rank[1], weft_barrier(other[1], OP_OF(&c.rank[1])));
        UNTIL(&c, c.rank[1].outcome_calls == 1);
    }
    UNTIL(&c, ended.n == MANY);
    for (uint32_t r = 0; r < 2; r++) {
        team[r] = c.rank[r].team;
        c.rank[r].team = other[r];
    }
    crew_close_teams(&c);
    for (uint32_t r = 0; r < 2; r++) c.rank[r].team = team[r];
    crew_down(&c);
}

/* ---- for how long it looks ------------------------------------------------------------------- */

TEST(members_that_come_late_are_looked_for_now_and_then_only) {
    struct crew c;
    crew_of_cores(&c, 2);
    struct rank *first = &c.rank[0], *last = &c.rank[1];
    uint64_t before = count(first, "coll.polls_empty");
    for (int i = 0; i < 200; i++) {
        expect_outcome(first);
        CHECK_EQ(sum_of(first, 0), WEFT_IN_PROGRESS);
        CHECK_EQ(sum_of(last, 1), WEFT_OK);
        UNTIL(&c, first->outcome_calls == 1);
    }
    uint64_t in_vain = count(first, "coll.polls_empty") - before;
    CHECK(in_vain >= 5 && in_vain <= 4 + 200 / 32);
    CHECK_EQ(count(last, "coll.polls_empty"), 0);
    crew_down(&c);
}

static weft_status_t from_callback;
static void call_next(weft_status_t status, void *arg) {
    struct rank *r = arg;
    from_callback = sum_of(r, 0);
}

TEST(a_call_within_a_callback_does_not_look) {
    struct crew c;
    crew_of_cores(&c, 2);
    struct rank *first = &c.rank[0], *last = &c.rank[1];
    uint64_t before = count(first, "coll.polls_empty");
    from_callback = WEFT_OK;
    expect_outcome(first);
    weft_op_t op = {.done = call_next, .arg = first};
    CHECK_EQ(weft_barrier(first->team, &op), WEFT_IN_PROGRESS);
    CHECK_EQ(count(first, "coll.polls_empty"), before + 1);
    CHECK_EQ(weft_barrier(last->team, OP_OF(last)), WEFT_OK);
    UNTIL(&c, from_callback == WEFT_IN_PROGRESS);
    CHECK_EQ(count(first, "coll.polls_empty"), before + 1);
    CHECK_EQ(sum_of(last, 1), WEFT_OK);
    UNTIL(&c, first->outcome_calls == 1);
    crew_down(&c);
}

static void note_run(void *arg) {
    *(bool *)arg = true;
}

/* Of one member each barrier is over at once. */
TEST(forms_that_wait_drive_the_worker_though_each_is_over_within_its_call) {
    struct crew c;
    bool ran = false;
    crew_up(&c, 1, "self,shm", NULL, NULL);
    CHECK_EQ(weft_worker_post(c.rank[0].worker, note_run, &ran), WEFT_OK);
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(weft_barrier(c.rank[0].team, OP_OF(&c.rank[0])), WEFT_OK);
        CHECK(!ran);
    }
    for (int i = 0; i < 16; i++) CHECK_EQ(weft_barrier_wait(c.rank[0].team), WEFT_OK);
    CHECK(ran);
    crew_down(&c);
}
