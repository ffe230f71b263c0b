/* Each kind of collective, and what may end it: a deadline, a cancel, a completion of several, a
 * connection that is cut. What failed is named. */
#include "each_kind.h"

#include <collectives/collective.h>
#include <endpoints/core/worker.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <transports/tcp/tcp.h>

enum { N = 3, EACH = 2000 };
static int64_t in[MOST_RANKS][N * EACH], out[MOST_RANKS][N * EACH];

static const char *const ways[][3] = {
    {"self,shm", NULL, NULL}, {"self,shm", "coll.slot", "0"}, {"self,tcp", NULL, NULL}};

static bool is_from_root(weft_coll_kind_t kind) {
    return kind == WEFT_COLL_BCAST || kind == WEFT_COLL_FANOUT || kind == WEFT_COLL_SCATTER ||
           kind == WEFT_COLL_SCATTERV;
}
static bool is_to_root(weft_coll_kind_t kind) {
    return kind == WEFT_COLL_REDUCE || kind == WEFT_COLL_FANIN || kind == WEFT_COLL_GATHER ||
           kind == WEFT_COLL_GATHERV;
}

static void begin(struct crew *c, uint32_t r, weft_coll_kind_t kind, weft_op_t op) {
    weft_coll_args_t args = any_collective(kind, r, N, in[r], out[r], 40);
    op.done = on_outcome;
    op.arg = &c->rank[r];
    posted(&c->rank[r], weft_coll(c->rank[r].team, &args, &op));
}

/* All but one begin, and one of them surely waits for that one. */
static uint32_t begin_without_one(struct crew *c, weft_coll_kind_t kind, weft_op_t waiting) {
    uint32_t missing = is_from_root(kind) ? 2 : 0, waits = is_to_root(kind) ? 2 : 1;
    for (uint32_t r = 0; r < N; r++) expect_outcome(&c->rank[r]);
    for (uint32_t r = 0; r < N; r++)
        if (r != missing) begin(c, r, kind, r == waits ? waiting : (weft_op_t){0});
    return waits;
}

static bool has_failed(weft_team_t *team, weft_status_t status) {
    weft_team_info_t info;
    return weft_team_describe(team, &info) == WEFT_OK && info.status == status;
}

/* The team fails at the others with the same status; one whose part is over keeps its result. */
static void all_end(struct crew *c, uint32_t waits, weft_status_t status) {
    UNTIL(c, c->rank[waits].outcome_calls);
    CHECK_EQ(c->rank[waits].outcome, status);
    for (uint32_t r = 0; r < N; r++) UNTIL(c, has_failed(c->rank[r].team, status));
    for (int i = 0; i < 10; i++) crew_turn(c);
    for (uint32_t r = 0; r < N; r++) {
        CHECK_EQ(weft_barrier(c->rank[r].team, NULL), status);
        CHECK(c->rank[r].outcome_calls <= 1);
        if (c->rank[r].outcome_calls && c->rank[r].outcome != WEFT_OK)
            CHECK_EQ(c->rank[r].outcome, status);
    }
}

TEST(each_kind_ends_by_its_deadline) {
    for (unsigned way = 0; way < 3; way++)
        for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++) {
            struct crew c;
            crew_up(&c, N, ways[way][0], ways[way][1], ways[way][2]);
            uint32_t waits =
                begin_without_one(&c, (weft_coll_kind_t)kind, (weft_op_t){.deadline_ms = 20});
            all_end(&c, waits, WEFT_ERR_TIMED_OUT);
            crew_down(&c);
        }
}

TEST(each_kind_is_cancelled) {
    for (unsigned way = 0; way < 3; way++)
        for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++) {
            struct crew c;
            weft_request_t *request = NULL;
            crew_up(&c, N, ways[way][0], ways[way][1], ways[way][2]);
            uint32_t waits =
                begin_without_one(&c, (weft_coll_kind_t)kind, (weft_op_t){.request_p = &request});
            for (int i = 0; i < kind % 5; i++) crew_turn(&c);
            CHECK(request);
            weft_request_cancel(request);
            CHECK_EQ(c.rank[waits].outcome_calls, 0);
            all_end(&c, waits, WEFT_ERR_CANCELLED);
            crew_down(&c);
        }
}

/* ---- a cancel that comes too late ------------------------------------------------------------ */

static weft_request_t *late_request;
static weft_op_t cancellable(struct rank *rank) {
    expect_outcome(rank);
    return (weft_op_t){.done = on_outcome, .arg = rank, .request_p = &late_request};
}

TEST(a_cancel_after_its_team_has_failed_changes_no_outcome) {
    for (unsigned way = 0; way < 3; way++) {
        struct crew c;
        crew_up(&c, N, ways[way][0], ways[way][1], ways[way][2]);
        weft_op_t op = cancellable(&c.rank[0]);
        CHECK_EQ(weft_barrier(c.rank[0].team, &op), WEFT_IN_PROGRESS);
        weft__team_fail(c.rank[0].team, WEFT_ERR_TIMED_OUT, 1);
        weft_request_cancel(late_request);
        UNTIL(&c, c.rank[0].outcome_calls);
        CHECK_EQ(c.rank[0].outcome, WEFT_ERR_TIMED_OUT);
        crew_down(&c);
    }
}

static int n_handled;
static void cancel_late(weft_ep_t *ep, weft_am_t *am, void *arg) {
    n_handled++;
    weft_request_cancel(late_request);
}

/* The message comes in the turn of the last step, and before the callback. */
TEST(a_cancel_after_its_last_step_changes_no_outcome) {
    struct crew c;
    crew_up(&c, 2, "self,shm", "coll.slot", "0");
    CHECK_EQ(weft_am_handler_set(c.rank[0].worker, 5, cancel_late, NULL), WEFT_OK);
    n_handled = 0;
    weft_op_t op = cancellable(&c.rank[0]);
    CHECK_EQ(weft_barrier(c.rank[0].team, &op), WEFT_IN_PROGRESS);
    CHECK(weft_barrier(c.rank[1].team, NULL) >= 0);
    CHECK_EQ(weft_am_send(weft_team_ep(c.rank[1].team, 0), 5, NULL, 0, NULL, 0, NULL), WEFT_OK);
    UNTIL(&c, c.rank[0].outcome_calls && n_handled);
    CHECK_EQ(c.rank[0].outcome, WEFT_OK);
    CHECK_EQ(weft_barrier(c.rank[0].team, NULL), WEFT_IN_PROGRESS); /* the team goes on */
    crew_down(&c);
}

/* ---- a completion of several ----------------------------------------------------------------- */

TEST(one_completion_is_of_all_kinds_in_progress_together) {
    static int64_t of_kind[2][WEFT_N_COLL_KINDS][N][N * 40];
    for (unsigned way = 0; way < 3; way++) {
        struct crew c;
        weft_completion_t all[N];
        crew_up(&c, N, ways[way][0], ways[way][1], ways[way][2]);
        for (uint32_t r = 0; r < N; r++) {
            expect_outcome(&c.rank[r]);
            all[r] = (weft_completion_t){.done = on_outcome, .arg = &c.rank[r], .count = 1};
        }
        for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++)
            for (uint32_t r = 0; r < N; r++) {
                weft_coll_args_t args = any_collective(
                    (weft_coll_kind_t)kind, r, N, of_kind[0][kind][r], of_kind[1][kind][r], 40);
                weft_op_t op = {.completion = &all[r]};
                of_kind[0][kind][r][0] = r + 1;
                CHECK(weft_coll(c.rank[r].team, &args, &op) >= 0);
            }
        CHECK_EQ(c.rank[0].outcome_calls + c.rank[1].outcome_calls + c.rank[2].outcome_calls, 0);
        for (uint32_t r = 0; r < N; r++) weft_completion_release(&all[r]);
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < N; r++) {
            CHECK(c.rank[r].outcome == WEFT_OK && c.rank[r].outcome_calls == 1);
            CHECK_EQ(of_kind[1][WEFT_COLL_ALLREDUCE][r][0], 1 + 2 + 3);
        }
        crew_down(&c);
    }
}

/* ---- connections that are cut ---------------------------------------------------------------- */

static void cut(struct crew *c, uint32_t from, uint32_t to) {
    weft_ep_t *ep = weft_team_ep(c->rank[from].team, to);
    if (ep && ep->link && ep->link->lane) shutdown(tcp_lane(ep->link->lane)->watch.fd, SHUT_RDWR);
}

/* Each kind, a few turns after it began: all members have one outcome, and the result if it is OK.
 * A team that has failed names the kind. */
TEST(a_socket_that_is_killed_is_one_outcome_for_each_member) {
    unsigned well = 0, ill = 0;
    for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++)
        for (int turns = 0; turns < 12; turns += 3) {
            struct crew c;
            weft_team_info_t info;
            crew_up(&c, N, "self,tcp", NULL, NULL);
            EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
            for (uint32_t r = 0; r < N; r++) {
                expect_outcome(&c.rank[r]);
                for (uint32_t i = 0; i < N * EACH; i++) in[r][i] = r + 1;
            }
            for (uint32_t r = 0; r < N; r++) {
                weft_coll_args_t args =
                    any_collective((weft_coll_kind_t)kind, r, N, in[r], out[r], EACH);
                posted(&c.rank[r], weft_coll(c.rank[r].team, &args, OP_OF(&c.rank[r])));
            }
            for (int i = 0; i < turns; i++) crew_turn(&c);
            cut(&c, (uint32_t)turns % N, (uint32_t)(turns + kind + 1) % N);
            UNTIL(&c, all_notified(&c));
            for (uint32_t r = 0; r < N; r++) {
                weft_status_t outcome = c.rank[r].outcome;
                CHECK_EQ(c.rank[r].outcome_calls, 1);
                CHECK(outcome == WEFT_OK || outcome == WEFT_ERR_PEER_FAILED);
                well += outcome == WEFT_OK;
                ill += outcome != WEFT_OK;
                if (outcome == WEFT_OK && kind == WEFT_COLL_ALLREDUCE)
                    CHECK_EQ(out[r][EACH - 1], 1 + 2 + 3);
                CHECK_EQ(weft_team_describe(c.rank[r].team, &info), WEFT_OK);
                if (outcome == WEFT_ERR_PEER_FAILED) CHECK(strstr(info.why, "rank "));
            }
            crew_down(&c);
        }
    printf("  %u members ended well, %u with PEER_FAILED\n", well, ill);
    CHECK(well > 0);
}

/* ---- what is named --------------------------------------------------------------------------- */

TEST(the_step_and_the_member_of_a_failure_are_named) {
    for (unsigned way = 0; way < 3; way++) {
        struct crew c;
        weft_team_info_t info;
        /* a worker that vanishes waits for peers, which have no turn before it is gone */
        weft_setting_t settings[] = {{"close.timeout", "20ms"}, {ways[way][1], ways[way][2]}};
        crew_workers(&c, N, ways[way][0], settings, ways[way][1] ? 2 : 1);
        crew_teams(&c);
        EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
        for (uint32_t r = 0; r < N; r++) expect_outcome(&c.rank[r]);
        for (uint32_t r = 0; r < 2; r++) begin(&c, r, WEFT_COLL_ALLREDUCE, (weft_op_t){0});
        vanish(&c, 2);
        for (uint32_t r = 0; r < 2; r++) UNTIL(&c, c.rank[r].outcome_calls);
        for (uint32_t r = 0; r < 2; r++) {
            CHECK_EQ(c.rank[r].outcome, WEFT_ERR_PEER_FAILED);
            CHECK_EQ(weft_team_describe(c.rank[r].team, &info), WEFT_OK);
            CHECK_EQ(info.blamed, 2);
            printf("  rank %u: %s\n", r, info.why);
            CHECK(strstr(info.why, "allreduce") && strstr(info.why, "rank 2"));
            CHECK(way == 0 || strstr(info.why, "steps done"));
        }
        crew_down(&c);
    }
}

static char logged[2048];
static void keep_log(weft_log_level_t level, const char *room, const char *line, void *arg) {
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", line);
}

/* The error of an earlier call of the system has nothing to do with it. */
TEST(who_reads_from_a_member_that_has_failed_reports_a_withdrawn_offer) {
    static const weft_coll_kind_t kinds[] = {WEFT_COLL_BCAST, WEFT_COLL_ALLREDUCE};
    static uint8_t bytes[2][1 << 16];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct crew c;
        weft_team_info_t info;
        weft_setting_t settings[] = {{"coll.algorithms", "bcast=single_copy,allreduce=single_copy"},
                                     {"log.level", "info"}};
        weft_context_params_t params = {.settings = settings, .n_settings = 2, .log = keep_log};
        crew_workers_by(&c, 2, "self,shm", &params);
        crew_teams(&c);
        for (uint32_t r = 0; r < 2; r++) {
            weft_coll_args_t args = {.kind = kinds[i],
                                     .type = WEFT_UINT8,
                                     .reduction = WEFT_MAX,
                                     .src = bytes[r],
                                     .dst = bytes[r],
                                     .count = sizeof bytes[r]};
            expect_outcome(&c.rank[r]);
            logged[0] = 0;
            errno = EXFULL;
            posted(&c.rank[r], weft_coll(c.rank[r].team, &args, OP_OF(&c.rank[r])));
            if (r == 0)
                CHECK_EQ(weft_team_close(c.rank[0].team,
                                         &(weft_op_t){.done = on_closed, .arg = &c.rank[0]}),
                         WEFT_IN_PROGRESS);
        }
        CHECK_EQ(weft_team_describe(c.rank[1].team, &info), WEFT_OK);
        printf("  %s\n", info.why);
        CHECK(info.status == WEFT_ERR_PEER_FAILED && info.blamed == 0);
        CHECK(strstr(info.why, "the memory of rank 0 cannot be read: it has withdrawn its offer"));
        CHECK(strstr(logged, info.why) && !strstr(logged, strerror(EXFULL)));
        UNTIL(&c, c.rank[0].closed && c.rank[1].outcome_calls);
        c.rank[0].team = NULL;
        crew_down(&c);
    }
}

/* ---- 64-bit displacements -------------------------------------------------------------------- */

/* Blocks lie 5 GiB apart, in memory of which a few pages are touched. */
TEST(blocks_lie_beyond_four_gibibytes) {
    enum { BLOCK = 3000 };
    static const uint64_t apart = UINT64_C(5) << 30;
    static uint8_t mine[2][2 * BLOCK];
    uint64_t counts[2] = {BLOCK, BLOCK}, near[2] = {0, BLOCK}, far[2] = {apart, 0};
    uint8_t *wide[2];
    for (uint32_t r = 0; r < 2; r++) {
        wide[r] = mmap(NULL, apart + BLOCK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(wide[r] != MAP_FAILED);
    }
    for (unsigned way = 0; way < 3; way++) {
        struct crew c;
        crew_up(&c, 2, ways[way][0], ways[way][1], ways[way][2]);
        for (uint32_t r = 0; r < 2; r++) memset(mine[r], (int)(10 * way + r + 1), sizeof mine[r]);
        EVERYBODY(&c,
                  weft_allgatherv(me->team, mine[r], wide[r], counts, far, WEFT_UINT8, OP_OF(me)));
        for (uint32_t r = 0; r < 2; r++) {
            CHECK_EQ(c.rank[r].outcome, WEFT_OK);
            CHECK_EQ(wide[r][apart + BLOCK - 1], 10 * way + 1);
            CHECK_EQ(wide[r][BLOCK - 1], 10 * way + 2);
        }
        for (uint32_t r = 0; r < 2; r++) wide[r][apart + 5] = (uint8_t)(100 + r);
        EVERYBODY(&c, weft_alltoallv(me->team, wide[r], counts, far, mine[r], counts, near,
                                     WEFT_UINT8, OP_OF(me)));
        CHECK(mine[0][5] == 100 && mine[0][BLOCK + 5] == 101);
        CHECK(mine[1][5] == 10 * way + 2 && mine[1][BLOCK] == 10 * way + 2);
        EVERYBODY(&c, weft_scatterv(me->team, wide[1], counts, far, mine[r], BLOCK, WEFT_UINT8, 1,
                                    OP_OF(me)));
        CHECK(mine[0][5] == 101 && mine[1][5] == 10 * way + 2);
        crew_down(&c);
    }
    for (uint32_t r = 0; r < 2; r++) munmap(wide[r], apart + BLOCK);
}

/* Such a place says nothing; that of a block with elements is refused. */
TEST(an_empty_block_lies_anywhere) {
    enum { RANKS = 2, EACH = 700 };
    static int32_t from[RANKS][2 * EACH], to[RANKS][2 * EACH];
    uint64_t first[RANKS] = {EACH, 0}, beyond[RANKS] = {0, UINT64_MAX}, none[RANKS] = {0};
    for (unsigned way = 0; way < 3; way++) {
        struct crew c;
        weft_coll_t *coll[RANKS];
        crew_up(&c, RANKS, ways[way][0], ways[way][1], ways[way][2]);
        for (uint32_t again = 0; again < 2; again++) {
            from[0][EACH - 1] = (int32_t)(10 * way + again + 1);
            EVERYBODY(&c, weft_allgatherv(me->team, from[r], to[r], first, beyond, WEFT_INT32,
                                          OP_OF(me)));
            for (uint32_t r = 0; r < RANKS; r++)
                CHECK(c.rank[r].outcome == WEFT_OK && to[r][EACH - 1] == from[0][EACH - 1]);
            /* Each gives rank 0 its block, and rank 1 nothing. */
            from[1][EACH - 1] = 77;
            uint64_t in_row[RANKS] = {0, EACH};
            EVERYBODY(&c, weft_alltoallv(me->team, from[r], first, beyond, to[r],
                                         r ? none : (uint64_t[]){EACH, EACH}, r ? beyond : in_row,
                                         WEFT_INT32, OP_OF(me)));
            for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
            CHECK(to[0][EACH - 1] == from[0][EACH - 1] && to[0][2 * EACH - 1] == 77);
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            weft_coll_args_t args = {.kind = WEFT_COLL_ALLGATHERV,
                                     .type = WEFT_INT32,
                                     .src = from[r],
                                     .dst = to[r],
                                     .dst_counts = first,
                                     .dst_displs = beyond};
            CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
        }
        from[0][0] = (int32_t)(1000 + way);
        EVERYBODY(&c, weft_coll_start(coll[r], OP_OF(me)));
        for (uint32_t r = 0; r < RANKS; r++) {
            CHECK(c.rank[r].outcome == WEFT_OK && to[r][0] == from[0][0]);
            CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
        }
        CHECK_EQ(weft_allgatherv(c.rank[0].team, from[0], to[0], first,
                                 (uint64_t[RANKS]){UINT64_MAX, 0}, WEFT_INT32, NULL),
                 WEFT_ERR_TOO_BIG);
        crew_down(&c);
    }
}
