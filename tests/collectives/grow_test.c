/* Teams whose endpoints are opened on first use, and teams that grow. */
#include <reactor/reactor.h>

#include "team.h"

static weft_team_t *grown[MOST_RANKS];
static char described[512];

/* Without a team the failure is described by its own cause. */
static void on_grown(weft_team_t *team, weft_status_t status, void *arg) {
    struct rank *r = arg;
    grown[r - r->crew->rank] = team;
    if (status < 0) {
        weft_status_describe(status, described, sizeof described);
        CHECK(strstr(described, "because:") && !strstr(described, "an earlier failure"));
    }
    on_outcome(status, r);
}

/* Before each turn of a test: true. */
static bool fail_earlier(weft_status_t status) {
    return weft__fail(status, "an earlier failure") < 0;
}

static weft_team_params_t params_of(struct rank *r, uint32_t deadline_ms) {
    return (weft_team_params_t){.on_ready = on_grown, .arg = r, .deadline_ms = deadline_ms};
}

/* Workers 0 to `size` - 1 are in a team; the others are not. */
static void team_of(struct crew *c, uint32_t size, uint32_t workers, const char *transports) {
    crew_workers(c, workers, transports, NULL, 0);
    c->size = size;
    crew_teams(c);
    c->size = workers;
    for (uint32_t r = 0; r < workers; r++) expect_outcome(&c->rank[r]);
}

static void invite(struct crew *c, uint32_t rank, uint8_t *bytes, size_t *len_p) {
    *len_p = WEFT_TEAM_INVITATION_MAX;
    CHECK_EQ(weft_team_invite(c->rank[rank].team, bytes, len_p), WEFT_OK);
}

static void join_as(struct crew *c, uint32_t r, const uint8_t *bytes, size_t len, uint32_t ms) {
    weft_team_params_t params = params_of(&c->rank[r], ms);
    CHECK_EQ(weft_team_join(c->rank[r].worker, bytes, len, &params), WEFT_OK);
}

static void grow_by(struct crew *c, uint32_t r, uint32_t inviter, uint32_t n, uint32_t ms) {
    weft_team_params_t params = params_of(&c->rank[r], ms);
    CHECK_EQ(weft_team_grow(c->rank[r].team, inviter, n, &params), WEFT_OK);
}

static bool these_notified(struct crew *c, uint32_t from, uint32_t to) {
    for (uint32_t r = from; r < to; r++)
        if (!c->rank[r].outcome_calls) return false;
    return true;
}

/* The new teams take the places of the old ones, which are closed. */
static void move_in(struct crew *c, uint32_t size) {
    crew_close_teams(c);
    for (uint32_t r = 0; r < size; r++) c->rank[r].team = grown[r];
}

static void sum_ranks(struct crew *c) {
    static int32_t mine[MOST_RANKS], sum[MOST_RANKS];
    for (uint32_t r = 0; r < c->size; r++) mine[r] = (int32_t)weft_team_rank(c->rank[r].team);
    EVERYBODY(c, weft_allreduce(me->team, &mine[r], &sum[r], 1, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    for (uint32_t r = 0; r < c->size; r++)
        CHECK(c->rank[r].outcome == WEFT_OK && sum[r] == (int32_t)(c->size * (c->size - 1) / 2));
}

/* `first`: the workers ask before the team grows; else after a while. */
static void grow(const char *transports, uint32_t size, uint32_t n, uint32_t inviter, bool first) {
    struct crew c;
    uint8_t bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len;
    weft_team_info_t info;
    team_of(&c, size, size + n, transports);
    invite(&c, inviter, bytes, &len);
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t r = size; r < size + n && first == (k == 0); r++) {
            join_as(&c, r, bytes, len, 0);
            for (int i = 0; i < 5; i++) crew_turn(&c);
        }
        for (uint32_t r = 0; r < size && first == (k == 1); r++) {
            grow_by(&c, r, inviter, n, 0);
            if (r % 2) crew_turn(&c);
        }
        for (int i = 0; i < 100; i++) crew_turn(&c);
        CHECK(!these_notified(&c, 0, 1) || k == 1);
    }
    UNTIL(&c, all_notified(&c) && these_notified(&c, 0, size + n));
    for (uint32_t r = 0; r < size + n; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK_EQ(weft_team_describe(grown[r], &info), WEFT_OK);
        CHECK(info.size == size + n && info.epoch == 1 && (r >= size || info.rank == r));
    }
    move_in(&c, size + n);
    sum_ranks(&c);
    crew_down(&c);
}

TEST(a_team_grows_by_workers_that_join) {
    grow("self,shm", 1, 1, 0, false);
    grow("self,shm", 3, 2, 1, true);
    grow("self,shm", 3, 2, 0, false);
    grow("self,tcp", 2, 3, 1, true);
    grow("self,tcp", 4, 1, 3, false);
    grow("self,shm", 2, 15, 0, true); /* records longer than what is sent unasked */
}

TEST(a_team_grows_again_and_those_that_joined_invite) {
    struct crew c;
    uint8_t bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len;
    weft_team_info_t info;
    team_of(&c, 1, 4, "self,shm");
    for (uint32_t size = 1; size < 4; size++) {
        invite(&c, size - 1, bytes, &len);
        for (uint32_t r = 0; r <= size; r++) expect_outcome(&c.rank[r]);
        join_as(&c, size, bytes, len, 0);
        for (uint32_t r = 0; r < size; r++) grow_by(&c, r, size - 1, 1, 0);
        UNTIL(&c, these_notified(&c, 0, size + 1));
        move_in(&c, size + 1);
        CHECK_EQ(weft_team_describe(grown[0], &info), WEFT_OK);
        CHECK_EQ(info.epoch, size);
    }
    sum_ranks(&c);
    crew_down(&c);
}

/* Each member that was notified, and is not at work yet, enters a barrier. Are all at work? */
static bool all_go_on(struct crew *c, bool at_work[3]) {
    for (uint32_t r = 0; r < 3; r++) {
        if (at_work[r] || !c->rank[r].outcome_calls) continue;
        CHECK_EQ(c->rank[r].outcome, WEFT_ERR_TIMED_OUT);
        if (r == 1)
            CHECK(strstr(described, "0 of 2 workers that join have come") ||
                  strstr(described, "of its parent"));
        if (grown[r]) weft_team_close(grown[r], NULL);
        expect_outcome(&c->rank[r]);
        posted(&c->rank[r], weft_barrier(c->rank[r].team, OP_OF(&c->rank[r])));
        at_work[r] = true;
    }
    return at_work[0] && at_work[1] && at_work[2];
}

/* It takes collectives again when a member is notified, also if that one's time is over before the
 * time of rank 1, the inviter. */
TEST(a_team_without_joiners_goes_on) {
    static const uint32_t limits[][3] = {{100, 100, 100}, {10, 200, 1}};
    for (size_t i = 0; i < 2; i++) {
        struct crew c;
        bool at_work[3] = {false};
        team_of(&c, 3, 3, i ? "self,tcp" : "self,shm");
        for (uint32_t r = 0; r < 3; r++) grow_by(&c, r, 1, 2, limits[i][r]);
        CHECK_EQ(weft_barrier(c.rank[0].team, NULL), WEFT_ERR_BUSY);
        UNTIL(&c, all_go_on(&c, at_work));
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 3; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        sum_ranks(&c);
        crew_down(&c);
    }
}

static void leave_worker(struct crew *c, uint32_t r) {
    weft_op_t op = {.done = on_worker_closed, .arg = &c->rank[r]};
    CHECK_EQ(weft_worker_close(c->rank[r].worker, &op), WEFT_IN_PROGRESS);
}

/* One of two workers goes after so many turns; the team and the other one are notified. */
static void join_without(int turns) {
    struct crew c;
    uint8_t bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len;
    team_of(&c, 2, 4, "self,shm");
    invite(&c, 0, bytes, &len);
    for (uint32_t r = 2; r < 4; r++) join_as(&c, r, bytes, len, 600);
    for (uint32_t r = 0; r < 2; r++) grow_by(&c, r, 0, 2, 600);
    for (int k = 0; k < turns; k++) crew_turn(&c);
    leave_worker(&c, 3);
    UNTIL(&c, these_notified(&c, 0, 4));
    for (uint32_t r = 0; r < 3; r++) {
        CHECK(c.rank[r].outcome < 0 || turns > 5);
        if (grown[r]) weft_team_close(grown[r], NULL);
        grown[r] = NULL;
    }
    UNTIL(&c, !c.rank[3].worker);
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome_calls, 1);
    c.size = 2;
    if (weft_barrier(c.rank[0].team, NULL) >= 0) CHECK(weft_barrier(c.rank[1].team, NULL) >= 0);
    c.size = 4;
    crew_down(&c);
}

TEST(a_worker_that_goes_while_it_joins_hangs_no_member) {
    for (int turns = 0; turns < 12; turns++) join_without(turns);
}

static void not_called(weft_team_t *team, weft_status_t status, void *arg) {
    CHECK(!"a call that was refused reports nothing");
}

TEST(an_invitation_to_a_team_that_is_closed_is_refused) {
    struct crew c;
    uint8_t bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len;
    weft_team_params_t right = {.on_ready = not_called}, with_exchange = right;
    with_exchange.exchange = weft_self_exchange();
    team_of(&c, 2, 4, "self,shm");
    invite(&c, 1, bytes, &len);
    join_as(&c, 2, bytes, len, 0); /* waits, and is notified */
    for (int i = 0; i < 100; i++) crew_turn(&c);
    CHECK_EQ(weft_team_join(c.rank[3].worker, bytes, len, &with_exchange), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_grow(c.rank[0].team, 2, 1, &right), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_grow(c.rank[0].team, 0, 0, &right), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_join(c.rank[3].worker, "nonsense", 8, &right), WEFT_ERR_ADDRESS);
    size_t small = 8;
    CHECK_EQ(weft_team_invite(c.rank[0].team, bytes, &small), WEFT_ERR_TRUNCATED);
    CHECK_EQ(small, len);
    crew_close_teams(&c);
    UNTIL(&c, fail_earlier(WEFT_ERR_CLOSED) && these_notified(&c, 2, 3));
    CHECK_EQ(c.rank[2].outcome, WEFT_ERR_CLOSED);
    CHECK(strstr(described, "joining a team") && strstr(described, "invited this worker refuses"));
    join_as(&c, 3, bytes, len, 0);
    UNTIL(&c, fail_earlier(WEFT_ERR_CLOSED) && these_notified(&c, 3, 4));
    CHECK_EQ(c.rank[3].outcome, WEFT_ERR_CLOSED);
    CHECK(!grown[2] && !grown[3]);
    crew_down(&c);
}

TEST(a_join_that_waits_in_vain_ends_by_its_deadline_or_with_its_worker) {
    struct crew c;
    uint8_t bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len;
    team_of(&c, 1, 3, "self,shm");
    invite(&c, 0, bytes, &len);
    join_as(&c, 1, bytes, len, 50);
    join_as(&c, 2, bytes, len, 0);
    UNTIL(&c, fail_earlier(WEFT_ERR_TIMED_OUT) && these_notified(&c, 1, 2));
    CHECK_EQ(c.rank[1].outcome, WEFT_ERR_TIMED_OUT);
    CHECK(strstr(described, "has not grown in time"));
    CHECK(!c.rank[2].outcome_calls);
    leave_worker(&c, 2);
    UNTIL(&c, fail_earlier(WEFT_ERR_CLOSED) && !c.rank[2].worker);
    CHECK_EQ(c.rank[2].outcome, WEFT_ERR_CLOSED);
    CHECK(strstr(described, "the worker closes"));
    crew_down(&c);
}

/* ---- endpoints on first use ------------------------------------------------------------------ */

static uint32_t endpoints_of(weft_team_t *team) {
    weft_team_info_t info;
    CHECK_EQ(weft_team_describe(team, &info), WEFT_OK);
    return info.n_endpoints;
}

TEST(a_team_connects_those_only_that_talk) {
    struct crew c;
    crew_up(&c, 16, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < 16; r++)
        CHECK_EQ(endpoints_of(c.rank[r].team), 4); /* partners at 1, 2, 4 and 8 */
    CHECK(weft_team_ep(c.rank[0].team, 5) != NULL);
    CHECK_EQ(endpoints_of(c.rank[0].team), 5);
    crew_down(&c);
}

/* Two that never talked with the one that leaves need it, one by sending, one by receiving. */
TEST(a_member_that_left_is_known_to_those_it_never_talked_with) {
    struct crew c;
    int32_t value = 7;
    crew_up(&c, 16, "self,shm", "coll.slot", "0");
    CHECK_EQ(weft_team_close(c.rank[0].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[0]}),
             WEFT_IN_PROGRESS);
    UNTIL(&c, c.rank[0].closed);
    c.rank[0].team = NULL;
    weft_coll_args_t args = {.kind = WEFT_COLL_BCAST,
                             .type = WEFT_INT32,
                             .dst = &value,
                             .count = 1,
                             .flags = WEFT_COLL_TAGGED,
                             .tag = 1,
                             .members = {.start = 0, .stride = 5, .size = 2}};
    expect_outcome(&c.rank[5]);
    posted(&c.rank[5], weft_coll(c.rank[5].team, &args, OP_OF(&c.rank[5])));
    UNTIL(&c, c.rank[5].outcome_calls == 1);
    CHECK_EQ(c.rank[5].outcome, WEFT_ERR_PEER_FAILED);
    for (uint32_t r = 1; r < 16; r++) c.rank[r].outcome_calls = 1;
    crew_down(&c);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* One that has its outcome goes on with the old team at once. No member takes a collective of the
 * growth for another. */
static int32_t one[MOST_RANKS], sum[MOST_RANKS];
static bool goes_on[MOST_RANKS];

static void go_on_with_the_old(struct crew *c, uint32_t r) {
    struct rank *me = &c->rank[r];
    if (goes_on[r] || !me->outcome_calls) return;
    goes_on[r] = true;
    one[r] = 1;
    expect_outcome(me);
    posted(me, weft_allreduce(me->team, &one[r], &sum[r], 1, WEFT_INT32, WEFT_SUM, OP_OF(me)));
}

static bool all_went_on(struct crew *c, uint32_t size) {
    bool all = true;
    for (uint32_t r = 0; r < size; r++) {
        go_on_with_the_old(c, r);
        all = all && goes_on[r] && c->rank[r].outcome_calls;
    }
    return all;
}

static weft_status_t make_another(struct rank *me, bool splits) {
    weft_team_params_t params = params_of(me, 20);
    return splits ? weft_team_split(me->team, 0, 0, &params)
                  : weft_team_grow(me->team, 0, 1, &params);
}

/* `n` allocations fail, from the k-th on. True: it was not reached. */
static bool goes_without_memory(bool splits, uint64_t k, uint64_t n) {
    enum { SIZE = 3 };
    struct crew c;
    uint8_t bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len;
    const weft_setting_t settings[] = {{"coll.slot", "0"}, {"coll.timeout", "40ms"}};
    crew_workers(&c, SIZE + 1, "self,shm", settings, 2);
    c.size = SIZE;
    crew_teams(&c);
    for (uint32_t r = 0; r <= SIZE; r++) expect_outcome(&c.rank[r]);
    memset(grown, 0, sizeof grown);
    memset(goes_on, 0, sizeof goes_on);
    c.size = SIZE + 1;
    invite(&c, 0, bytes, &len);
    if (!splits) join_as(&c, SIZE, bytes, len, 1000);
    for (int i = 0; i < 20; i++) crew_turn(&c);
    weft__alloc_fail_run(k, n);
    for (uint32_t r = 0; r < SIZE; r++) {
        weft_status_t st = make_another(&c.rank[r], splits);
        if (st == WEFT_OK) continue;
        CHECK_EQ(weft_team_revoke(c.rank[r].team), WEFT_OK);
        on_outcome(st, &c.rank[r]);
    }
    UNTIL(&c, fail_earlier(WEFT_ERR_NO_MEMORY) && all_went_on(&c, SIZE) &&
                  (splits || c.rank[SIZE].outcome_calls));
    bool whole = weft__alloc_fail_at(0) < k;
    for (uint32_t r = 0; r < SIZE; r++) {
        CHECK(c.rank[r].outcome != WEFT_ERR_PROTOCOL);
        if (c.rank[r].outcome == WEFT_OK) CHECK_EQ(sum[r], SIZE);
    }
    crew_close_teams(&c);
    for (uint32_t r = 0; r <= SIZE; r++) c.rank[r].team = grown[r];
    crew_down(&c);
    return whole;
}

static void go_without_memory(bool splits, uint64_t n) {
    uint64_t k = 1;
    while (!goes_without_memory(splits, k, n)) CHECK(++k < 2000);
    printf("  %llu allocations\n", (unsigned long long)k);
}

TEST(a_member_that_lacks_memory_while_its_team_grows_is_not_out_of_step) {
    go_without_memory(false, 1);
}
TEST(a_member_that_lacks_memory_in_a_split_is_not_out_of_step) {
    go_without_memory(true, 2);
}
