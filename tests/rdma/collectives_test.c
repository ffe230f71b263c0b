/* Teams and collectives whose members have nothing but RDMA between them. */
#include <tests/collectives/each_kind.h>
#include <unistd.h>

#define WANTS_A_DEVICE()                                                                  \
    do {                                                                                  \
        if (access("/sys/class/infiniband/rxe0", F_OK) != 0) SKIP("no RDMA device here"); \
    } while (0)

enum { RANKS = 4, LARGE = 20000 /* blocks that wait for their receiver */ };
static int64_t in[RANKS][RANKS * LARGE], out[RANKS][RANKS * LARGE];

static void up(struct crew *c, const char *transport, const char *algorithms) {
    char transports[40];
    weft_ep_info_t ep;
    const weft_setting_t settings[] = {{"team.timeout", "300s"}, {"coll.algorithms", algorithms}};
    snprintf(transports, sizeof transports, "self,%s", transport);
    crew_workers(c, RANKS, transports, settings, 2);
    crew_teams(c);
    for (uint32_t r = 1; r < RANKS; r++) {
        CHECK_EQ(weft_ep_describe(weft_team_ep(c->rank[0].team, r), &ep), WEFT_OK);
        CHECK(strcmp(ep.transport, transport) == 0);
    }
}

static weft_status_t begin(struct rank *me, uint32_t r, weft_coll_kind_t kind, uint32_t count) {
    weft_coll_args_t args = any_collective(kind, r, RANKS, in[r], out[r], count);
    return weft_coll(me->team, &args, OP_OF(me));
}

static void collective_is_right(struct crew *c, weft_coll_kind_t kind, uint32_t count) {
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t i = 0; i < RANKS * count; i++) in[r][i] = 1000 * r + i, out[r][i] = -1;
    EVERYBODY(c, begin(me, r, kind, count));
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        const int64_t *got = kind == WEFT_COLL_BCAST ? in[r] : out[r];
        for (uint32_t i = 0; i < count && any_has_result(kind, r); i++)
            CHECK_EQ(got[i], any_result(kind, r, RANKS, count, i));
    }
}

static void each_is_right(const char *transport) {
    struct crew c;
    up(&c, transport, "");
    for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++) {
        collective_is_right(&c, (weft_coll_kind_t)kind, 3);
        collective_is_right(&c, (weft_coll_kind_t)kind, LARGE);
    }
    crew_down(&c);
}

TEST(each_collective_over_queue_pairs) {
    WANTS_A_DEVICE();
    each_is_right("rdma_rc");
}

TEST(each_collective_over_datagrams) {
    WANTS_A_DEVICE();
    each_is_right("rdma_ud");
}

TEST(members_put_straight_into_memory_that_the_device_writes) {
    static const weft_coll_kind_t kinds[] = {WEFT_COLL_BCAST, WEFT_COLL_ALLGATHER,
                                             WEFT_COLL_ALLTOALL};
    struct crew c;
    const char *name;
    WANTS_A_DEVICE();
    up(&c, "rdma_rc", "bcast=direct,allgather=direct,alltoall=direct");
    for (unsigned k = 0; k < 3; k++) {
        CHECK_EQ(weft_team_algorithm(c.rank[0].team, kinds[k], LARGE * 8, 0, &name), WEFT_OK);
        CHECK(strcmp(name, "direct") == 0);
        collective_is_right(&c, kinds[k], LARGE);
    }
    crew_down(&c);
}

/* ---- teams made of a team -------------------------------------------------------------------- */

static weft_team_t *made[RANKS];
static void on_made(weft_team_t *team, weft_status_t status, void *arg) {
    struct rank *r = arg;
    made[r - r->crew->rank] = team;
    on_outcome(status, r);
}
static const weft_team_params_t *params_of(struct rank *me) {
    static weft_team_params_t params;
    params = (weft_team_params_t){.on_ready = on_made, .arg = me};
    return &params;
}

/* OK: on_ready follows. */
static weft_status_t awaited(weft_status_t status) {
    return status < 0 ? status : WEFT_IN_PROGRESS;
}

static void made_teams_sum(struct crew *c, int64_t sum_of_even, int64_t sum_of_odd) {
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        in[r][0] = r + 1;
    }
    EVERYBODY(c, weft_allreduce(made[r], in[r], out[r], 1, WEFT_INT64, WEFT_SUM, OP_OF(me)));
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        CHECK_EQ(out[r][0], r % 2 ? sum_of_odd : sum_of_even);
        CHECK_EQ(weft_team_close(made[r], NULL), WEFT_IN_PROGRESS);
    }
}

static void parts_are_made(const char *transport) {
    struct crew c;
    uint64_t flags[RANKS];
    up(&c, transport, "");
    EVERYBODY(&c, awaited(weft_team_split(me->team, r % 2, 0, params_of(me))));
    made_teams_sum(&c, 1 + 3, 2 + 4);
    CHECK_EQ(weft_team_revoke(c.rank[1].team), WEFT_OK);
    for (uint32_t r = 0; r < RANKS; r++) flags[r] = 7 & ~(UINT64_C(1) << r % 2);
    EVERYBODY(&c, weft_team_agree(me->team, &flags[r], NULL, OP_OF(me)));
    for (uint32_t r = 0; r < RANKS; r++) CHECK(c.rank[r].outcome == WEFT_OK && flags[r] == 4);
    EVERYBODY(&c, awaited(weft_team_shrink(me->team, params_of(me))));
    made_teams_sum(&c, 10, 10);
    crew_down(&c);
}

TEST(a_team_splits_is_revoked_agrees_and_shrinks_over_queue_pairs) {
    WANTS_A_DEVICE();
    parts_are_made("rdma_rc");
}

TEST(a_team_splits_is_revoked_agrees_and_shrinks_over_datagrams) {
    WANTS_A_DEVICE();
    parts_are_made("rdma_ud");
}
