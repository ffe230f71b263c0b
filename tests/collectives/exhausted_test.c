/* Memory runs out at any one allocation of what a team that is ready does: each call and each
 * member has one outcome, nothing crashes, and the team can be closed. */
#include <collectives/collective.h>
#include <reactor/reactor.h>

#include "team.h"

enum { N = 4, SOON = 60 /* ms, for those that wait for one that lacks memory */, EACH = 40 };

static struct crew c;
static weft_team_t *made[MOST_RANKS];
static uint64_t in[N][N * EACH], out[N][N * EACH];

static void on_made(weft_team_t *team, weft_status_t status, void *arg) {
    struct rank *r = arg;
    made[r - c.rank] = team;
    on_outcome(status, r);
}

static weft_team_params_t soon(struct rank *r) {
    return (weft_team_params_t){.on_ready = on_made, .arg = r, .deadline_ms = SOON};
}

/* What a member does; its outcome is noted. */
typedef void (*act_fn)(struct rank *me, uint32_t r);

static void begun(struct rank *me, weft_status_t st) {
    if (st != WEFT_OK) on_outcome(st, me);
}

static void split(struct rank *me, uint32_t r) {
    weft_team_params_t params = soon(me);
    begun(me, weft_team_split(me->team, r % 2, r, &params));
}
static void agree(struct rank *me, uint32_t r) {
    static uint64_t flags[N];
    flags[r] = 7;
    posted(me, weft_team_agree(me->team, &flags[r], NULL,
                               &(weft_op_t){.done = on_outcome, .arg = me, .deadline_ms = SOON}));
}
static void gather(struct rank *me, uint32_t r) {
    static const uint64_t counts[N] = {EACH, EACH, EACH, EACH};
    weft_coll_args_t args = {.kind = WEFT_COLL_GATHERV,
                             .type = WEFT_UINT64,
                             .root = N - 1,
                             .src = in[r],
                             .dst = out[r],
                             .count = EACH,
                             .dst_counts = counts};
    posted(me, weft_coll(me->team, &args,
                         &(weft_op_t){.done = on_outcome, .arg = me, .deadline_ms = SOON}));
}

/* True: the k-th allocation was not reached. */
static bool is_through(uint64_t k, act_fn act, const char *transports,
                       const weft_setting_t *settings, size_t n) {
    crew_workers(&c, N, transports, settings, n);
    crew_teams(&c);
    memset(made, 0, sizeof made);
    for (uint32_t r = 0; r < N; r++) expect_outcome(&c.rank[r]);
    weft__alloc_fail_at(k);
    for (uint32_t r = 0; r < N; r++) act(&c.rank[r], r);
    UNTIL(&c, all_notified(&c));
    bool whole = weft__alloc_fail_at(0) < k;
    for (uint32_t r = 0; r < N; r++) {
        CHECK_EQ(c.rank[r].outcome_calls, 1);
        CHECK(c.rank[r].outcome <= 0);
        /* On a slow machine the deadline may cut one that lacked nothing. */
        if (c.rank[r].outcome == WEFT_ERR_TIMED_OUT) whole = false;
        if (whole) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    }
    crew_close_teams(&c);
    for (uint32_t r = 0; r < N; r++) c.rank[r].team = made[r];
    crew_down(&c);
    return whole;
}

static void at_each_allocation(act_fn act, const char *transports, const weft_setting_t *settings,
                               size_t n) {
    uint64_t k = 1;
    while (!is_through(k, act, transports, settings, n)) CHECK(++k < 2000);
    printf("  %llu allocations\n", (unsigned long long)k);
}

static const weft_setting_t by_hosts[] = {{"coll.timeout", "60ms"},
                                          {"coll.slot", "0"},
                                          {"coll.per_host", "2"},
                                          {"coll.algorithms", "gatherv=hierarchy"}};

TEST(memory_runs_out_in_a_split) {
    at_each_allocation(split, "self,shm", by_hosts, 1);
}
TEST(memory_runs_out_in_an_agreement) {
    at_each_allocation(agree, "self,shm", by_hosts, 1);
}
TEST(memory_runs_out_in_a_collective_that_asks_for_counts) {
    at_each_allocation(gather, "self,shm", by_hosts, 4);
}

/* ---- one-sided collectives of memory that cannot be registered ------------------------------- */

enum { BLOCK_MOST = 20000 };
static uint64_t from[N][N * BLOCK_MOST], to[N][N * BLOCK_MOST];

static weft_coll_args_t one_sided(weft_coll_kind_t kind, uint32_t r, size_t block) {
    const bool bcast = kind == WEFT_COLL_BCAST;
    for (size_t i = 0; i < N * block; i++) from[r][i] = r * 1000000 + i;
    memset(to[r], 0, sizeof to[r]);
    if (bcast && r == 1) memcpy(to[r], from[r], block * sizeof to[r][0]);
    return (weft_coll_args_t){.kind = kind,
                              .type = WEFT_UINT64,
                              .root = bcast,
                              .src = bcast ? NULL : from[r],
                              .dst = to[r],
                              .count = block};
}

static void check_blocks(weft_coll_kind_t kind, uint32_t r, size_t block) {
    for (uint32_t p = 0; p < (kind == WEFT_COLL_BCAST ? 1 : N); p++)
        for (size_t i = 0; i < block; i++) {
            uint64_t want = kind == WEFT_COLL_BCAST       ? 1000000 + i
                            : kind == WEFT_COLL_ALLGATHER ? p * 1000000 + i
                                                          : p * 1000000 + r * block + i;
            if (to[r][p * block + i] != want) CHECK_EQ(to[r][p * block + i], want);
        }
}

/* Rank `lacks` has no memory for its k-th allocation. Its call is refused, and called again; or it
 * goes on without that memory, which is counted. True: it was not reached. */
static bool goes_right(weft_coll_kind_t kind, size_t block, bool persistent, uint32_t lacks,
                       uint64_t k, unsigned *n_without_p) {
    weft_coll_t *coll[N];
    static uint64_t others[N][2][N * BLOCK_MOST];
    bool whole = false;
    crew_up(&c, N, "self,shm", "coll.algorithms", "bcast=direct,allgather=direct,alltoall=direct");
    for (int i = 0; i < 2; i++) { /* takes what later ones need but for their memory */
        weft_coll_args_t args = one_sided(kind, 0, block);
        EVERYBODY(&c, (args.src = args.src ? others[r][0] : NULL, args.dst = others[r][1],
                       weft_coll(me->team, &args, OP_OF(me))));
    }
    for (uint32_t r = 0; r < N; r++) {
        weft_coll_args_t args = one_sided(kind, r, block);
        if (persistent) CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
        expect_outcome(&c.rank[r]);
    }
    for (uint32_t r = 0; r < N; r++) {
        weft_coll_args_t args = one_sided(kind, r, block);
        struct rank *me = &c.rank[r];
        weft__alloc_fail_at(r == lacks ? k : 0);
        weft_status_t st = persistent ? weft_coll_start(coll[r], OP_OF(me))
                                      : weft_coll(me->team, &args, OP_OF(me));
        uint64_t made = weft__alloc_fail_at(0);
        if (r == lacks) whole = made < k;
        if (r == lacks && !whole) *n_without_p += st >= 0;
        if (st == WEFT_ERR_NO_MEMORY)
            st = persistent ? weft_coll_start(coll[r], OP_OF(me))
                            : weft_coll(me->team, &args, OP_OF(me));
        posted(me, st);
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < N; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        check_blocks(kind, r, block);
        if (persistent) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    }
    crew_down(&c);
    return whole;
}

TEST(memory_that_cannot_be_registered_is_sent_its_blocks) {
    static const weft_coll_kind_t kinds[] = {WEFT_COLL_BCAST, WEFT_COLL_ALLGATHER,
                                             WEFT_COLL_ALLTOALL};
    static const size_t blocks[] = {10, BLOCK_MOST}; /* unasked, and when it is asked for */
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            for (int persistent = 0; persistent < 2; persistent++) {
                unsigned n_without = 0;
                uint64_t k = 1;
                while (!goes_right(kinds[i], blocks[j], persistent, 2, k, &n_without))
                    CHECK(++k < 100);
                CHECK(n_without > 0);
            }
}
