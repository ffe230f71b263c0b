/* Persistent collectives, those with a tag or of some members, and types of the program's own. */
#include <reactor/reactor.h>

#include "each_kind.h"
#include "team.h"

static int32_t in[MOST_RANKS][4000], out[MOST_RANKS][4000];

static void start_all(struct crew *c, weft_coll_t **coll) {
    EVERYBODY(c, weft_coll_start(coll[r], OP_OF(me)));
    for (uint32_t r = 0; r < c->size; r++) CHECK_EQ(c->rank[r].outcome, WEFT_OK);
}

static void free_all(struct crew *c, weft_coll_t **coll) {
    for (uint32_t r = 0; r < c->size; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
}

/* Eighty starts: of those that go one way only, some join the members. */
static void many_starts(const char *transports, const char *setting, const char *value,
                        weft_coll_kind_t kind) {
    struct crew c;
    weft_coll_t *coll[MOST_RANKS];
    crew_up(&c, 4, transports, setting, value);
    for (uint32_t r = 0; r < 4; r++) {
        weft_coll_args_t args = {.kind = kind,
                                 .src = in[r],
                                 .dst = kind == WEFT_COLL_BCAST ? in[r] : out[r],
                                 .count = 500,
                                 .type = WEFT_INT32,
                                 .root = 1};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
    }
    for (int i = 0; i < 80; i++) {
        for (uint32_t r = 0; r < 4; r++) in[r][499] = (int32_t)(i * 10 + (int)r);
        /* Counts; the first one that joins the members, which meets others, is over. */
        if (i == 40) weft__alloc_fail_at(UINT64_MAX);
        start_all(&c, coll);
        for (uint32_t r = 0; r < 4; r++)
            CHECK_EQ(kind == WEFT_COLL_BCAST                 ? in[r][499]
                     : r == 1 || kind == WEFT_COLL_ALLREDUCE ? out[r][499]
                                                             : 40 * i + 6,
                     kind == WEFT_COLL_BCAST ? i * 10 + 1 : 40 * i + 6);
    }
    CHECK_EQ(weft__alloc_fail_at(0), 0);
    free_all(&c, coll);
    crew_down(&c);
}

TEST(starts_after_the_first_allocate_nothing) {
    many_starts("self,shm", NULL, NULL, WEFT_COLL_ALLREDUCE);
    many_starts("self,shm", "coll.slot", "0", WEFT_COLL_ALLREDUCE);
    many_starts("self,shm", "coll.slot", "0", WEFT_COLL_REDUCE);
    many_starts("self,shm", "coll.slot", "0", WEFT_COLL_BCAST);
    many_starts("self,tcp", NULL, NULL, WEFT_COLL_BCAST);
}

TEST(many_handles_are_under_way_together_and_none_twice) {
    struct crew c;
    weft_coll_t *a[2], *b[2];
    crew_up(&c, 2, "self,shm", "coll.slot", "0");
    for (uint32_t r = 0; r < 2; r++) {
        in[r][0] = (int32_t)r + 1;
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .src = in[r],
                                 .dst = &out[r][0],
                                 .count = 1,
                                 .type = WEFT_INT32};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &a[r]), WEFT_OK);
        args.dst = &out[r][1];
        args.reduction = WEFT_PROD;
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &b[r]), WEFT_OK);
    }
    weft_status_t first[2] = {WEFT_IN_PROGRESS, WEFT_IN_PROGRESS};
    CHECK_EQ(weft_coll_start(a[0], NULL), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_coll_start(a[0], NULL), WEFT_ERR_BUSY);
    CHECK_EQ(weft_coll_free(a[0]), WEFT_ERR_BUSY);
    first[1] = weft_coll_start(a[1], NULL);
    CHECK(first[1] >= 0);
    start_all(&c, b);
    for (uint32_t r = 0; r < 2; r++) CHECK(out[r][0] == 3 && out[r][1] == 2);
    bool freed[2] = {false, false}; /* a condition is looked at more than once */
    for (uint32_t r = 0; r < 2; r++)
        UNTIL(&c, freed[r] || (freed[r] = weft_coll_free(a[r]) == WEFT_OK));
    free_all(&c, b);
    crew_down(&c);
}

/* ---- callbacks that start the next ----------------------------------------------------------- */

struct chain {
    weft_coll_t *coll;
    int left;
    struct rank *rank;
};
static void go_on(weft_status_t status, void *arg) {
    struct chain *chain = arg;
    CHECK_EQ(status, WEFT_OK);
    while (chain->left > 0) {
        chain->left--;
        weft_status_t st = weft_coll_start(chain->coll, &(weft_op_t){.done = go_on, .arg = chain});
        if (st == WEFT_IN_PROGRESS) return;
        CHECK_EQ(st, WEFT_OK);
    }
    chain->rank->outcome_calls = 1;
}

TEST(a_callback_starts_its_collective_again) {
    struct crew c;
    struct chain chain[3];
    crew_up(&c, 3, "self,shm", "coll.slot", "0");
    for (uint32_t r = 0; r < 3; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLGATHER,
                                 .src = in[r],
                                 .dst = out[r],
                                 .count = 3,
                                 .type = WEFT_INT32};
        expect_outcome(&c.rank[r]);
        chain[r] = (struct chain){.left = 30, .rank = &c.rank[r]};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &chain[r].coll), WEFT_OK);
    }
    for (uint32_t r = 0; r < 3; r++) go_on(WEFT_OK, &chain[r]);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 3; r++) CHECK_EQ(weft_coll_free(chain[r].coll), WEFT_OK);
    crew_down(&c);
}

/* ---- tags and members ------------------------------------------------------------------------ */

/* Two members call two tags in opposite orders, with one of the whole team in between. */
TEST(tags_match_whatever_the_order_of_calls) {
    struct crew c;
    crew_up(&c, 2, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < 2; r++) {
        for (int i = 0; i < 3; i++) {
            int k = r ? 2 - i : i;
            in[r][k] = (int32_t)(10 * k + (int)r);
            weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                     .src = &in[r][k],
                                     .dst = &out[r][k],
                                     .count = 1,
                                     .type = WEFT_INT32,
                                     .flags = k == 1 ? 0 : WEFT_COLL_TAGGED,
                                     .tag = k == 1 ? 0 : (uint64_t)k + 7};
            CHECK(weft_coll(c.rank[r].team, &args, NULL) >= 0);
        }
    }
    UNTIL(&c, out[0][0] == 1 && out[0][1] == 21 && out[0][2] == 41 && out[1][0] == 1 &&
                  out[1][1] == 21 && out[1][2] == 41);
    crew_down(&c);
}

TEST(some_members_have_collectives_of_their_own) {
    struct crew c;
    crew_up(&c, 7, "self,shm", NULL, NULL);
    for (int i = 0; i < 40; i++) {
        for (uint32_t r = 0; r < 7; r++) expect_outcome(&c.rank[r]), in[r][0] = r == 5 ? 50 + i : 0;
        for (uint32_t r = 1; r < 7; r += 2) {
            weft_coll_args_t args = {.kind = WEFT_COLL_BCAST,
                                     .dst = in[r],
                                     .count = 1,
                                     .type = WEFT_INT32,
                                     .root = 5,
                                     .flags = WEFT_COLL_TAGGED,
                                     .tag = 3,
                                     .members = {1, 2, 3}};
            posted(&c.rank[r], weft_coll(c.rank[r].team, &args, OP_OF(&c.rank[r])));
        }
        UNTIL(&c, c.rank[1].outcome_calls && c.rank[3].outcome_calls && c.rank[5].outcome_calls);
        for (uint32_t r = 1; r < 7; r += 2) CHECK_EQ(in[r][0], 50 + i);
    }
    weft_coll_args_t bad = {
        .kind = WEFT_COLL_BARRIER, .flags = WEFT_COLL_TAGGED, .members = {1, 2, 3}};
    CHECK_EQ(weft_coll(c.rank[0].team, &bad, NULL), WEFT_ERR_INVALID_PARAM);
    bad.members.size = 9;
    CHECK_EQ(weft_coll(c.rank[1].team, &bad, NULL), WEFT_ERR_INVALID_PARAM);
    bad.flags = 0;
    CHECK_EQ(weft_coll(c.rank[1].team, &bad, NULL), WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

/* ---- types and reductions of the program's own ----------------------------------------------- */

/* 2 × 2 matrices modulo 2^16: associative, not commutative. */
struct matrix {
    uint16_t m[4];
};
static void multiply(void *to, const void *left, const void *right, size_t count, void *arg) {
    for (size_t i = 0; i < count; i++) {
        struct matrix a, b, c;
        memcpy(&a, (const char *)left + i * sizeof a, sizeof a);
        memcpy(&b, (const char *)right + i * sizeof b, sizeof b);
        for (int k = 0; k < 4; k++)
            c.m[k] = (uint16_t)(a.m[k & 2] * b.m[k & 1] + a.m[(k & 2) + 1] * b.m[(k & 1) + 2]);
        memcpy((char *)to + i * sizeof c, &c, sizeof c);
    }
    ++*(int *)arg;
}

/* A flag has a place: that of another call refuses it, and does not take it for one of its own. */
TEST(a_flag_in_the_wrong_place_is_refused) {
    struct crew c;
    weft_coll_t *coll;
    weft_reduction_t reduction;
    const uint32_t all[] = {WEFT_COLL_FIXED_ORDER, WEFT_COLL_SAFE, WEFT_COLL_TAGGED,
                            WEFT_REDUCTION_COMMUTES};
    crew_up(&c, 2, "self,shm", NULL, NULL);
    weft_team_t *team = c.rank[0].team;
    weft_coll_args_t args = {.kind = WEFT_COLL_BARRIER};
    CHECK_EQ(weft_coll_init(team, &args, 0, &coll), WEFT_OK);
    for (size_t i = 0; i < 4; i++) {
        weft_op_t op = {.flags = all[i]};
        weft_coll_args_t flagged = {.kind = WEFT_COLL_BARRIER, .flags = all[i]};
        if (all[i] != WEFT_COLL_TAGGED)
            CHECK_EQ(weft_coll(team, &flagged, NULL), WEFT_ERR_INVALID_PARAM);
        if (all[i] != WEFT_COLL_SAFE) CHECK_EQ(weft_coll_start(coll, &op), WEFT_ERR_INVALID_PARAM);
        if (all[i] != WEFT_REDUCTION_COMMUTES)
            CHECK_EQ(weft_reduction_create(team, multiply, NULL, all[i], &reduction),
                     WEFT_ERR_INVALID_PARAM);
        if (all[i] == WEFT_COLL_FIXED_ORDER) continue;
        weft_coll_t *other;
        CHECK_EQ(weft_coll_init(team, &args, all[i], &other), WEFT_ERR_INVALID_PARAM);
        if (all[i] != WEFT_COLL_SAFE) CHECK_EQ(weft_barrier(team, &op), WEFT_ERR_INVALID_PARAM);
    }
    CHECK_EQ(weft_coll_free(coll), WEFT_OK);
    crew_down(&c);
}

static void matrices(const char *setting, const char *value) {
    enum { RANKS = 5, COUNT = 9 };
    static struct matrix mine[RANKS][COUNT], product[RANKS][COUNT], want[COUNT];
    struct crew c;
    int calls = 0;
    weft_datatype_t type[RANKS];
    weft_reduction_t reduction[RANKS];
    crew_up(&c, RANKS, "self,shm", setting, value);
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_datatype_params_t params = {.size = sizeof(struct matrix)};
        CHECK_EQ(weft_datatype_create(c.rank[r].team, &params, &type[r]), WEFT_OK);
        CHECK_EQ(weft_reduction_create(c.rank[r].team, multiply, &calls, 0, &reduction[r]),
                 WEFT_OK);
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < 4; k++)
                mine[r][i].m[k] = (uint16_t)(r * 31 + (uint32_t)(i * 7 + k + 1));
    }
    memcpy(want, mine[0], sizeof want);
    for (uint32_t r = 1; r < RANKS; r++) multiply(want, want, mine[r], COUNT, &calls);
    EVERYBODY(
        &c, weft_allreduce(me->team, mine[r], product[r], COUNT, type[r], reduction[r], OP_OF(me)));
    for (uint32_t r = 0; r < RANKS; r++) CHECK(memcmp(product[r], want, sizeof want) == 0);
    EVERYBODY(&c, weft_reduce(me->team, mine[r], r == 2 ? product[r] : NULL, COUNT, type[r],
                              reduction[r], 2, OP_OF(me)));
    CHECK(memcmp(product[2], want, sizeof want) == 0);
    CHECK(calls > 0);
    CHECK_EQ(weft_reduction_create(c.rank[0].team, NULL, NULL, 0, &reduction[0]),
             WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

TEST(a_reduction_that_does_not_commute_is_taken_in_the_order_of_ranks) {
    matrices(NULL, NULL);
    matrices("coll.slot", "0");
}

/* Every third of three columns: one element is two blocks of 4 bytes, 12 apart. */
TEST(elements_with_a_layout_are_packed_and_unpacked) {
    enum { RANKS = 3, COUNT = 4 };
    static int32_t from[RANKS][COUNT * 6], to[RANKS][RANKS * COUNT * 6];
    weft_layout_t layout = {.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 12, .count = 2};
    weft_datatype_params_t params = {.size = 8, .layout = &layout, .extent = 24};
    weft_datatype_t type[RANKS];
    struct crew c;
    crew_up(&c, RANKS, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(weft_datatype_create(c.rank[r].team, &params, &type[r]), WEFT_OK);
        for (int i = 0; i < COUNT * 6; i++) from[r][i] = (int32_t)r * 100 + i;
        for (int i = 0; i < RANKS * COUNT * 6; i++) to[r][i] = -1;
    }
    EVERYBODY(&c, weft_allgather(me->team, from[r], to[r], COUNT, type[r], OP_OF(me)));
    for (uint32_t r = 0; r < RANKS; r++)
        for (int i = 0; i < RANKS * COUNT * 6; i++)
            CHECK_EQ(to[r][i], i % 3 ? -1 : i / (COUNT * 6) * 100 + i % (COUNT * 6));
    EVERYBODY(&c, weft_bcast(me->team, from[r], COUNT, type[r], 1, OP_OF(me)));
    for (int i = 0; i < COUNT * 6; i++) CHECK_EQ(from[2][i], i % 3 ? 200 + i : 100 + i);
    params.size = 7;
    CHECK_EQ(weft_datatype_create(c.rank[0].team, &params, &type[0]), WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

/* They are packed at each start, from what is in the memory then. */
static void starts_with_layouts(weft_coll_kind_t kind, const char *setting) {
    enum { RANKS = 3, COUNT = 4, WORDS = COUNT * 6 };
    static int32_t from[RANKS][WORDS], to[RANKS][RANKS * WORDS];
    static const uint64_t counts[RANKS] = {COUNT, COUNT, COUNT};
    weft_layout_t layout = {.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 12, .count = 2};
    weft_datatype_params_t params = {.size = 8, .layout = &layout, .extent = 24};
    bool bcast = kind == WEFT_COLL_BCAST;
    weft_coll_t *coll[RANKS];
    weft_datatype_t type;
    struct crew c;
    crew_up(&c, RANKS, "self,shm", setting ? "coll.slot" : NULL, setting);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(weft_datatype_create(c.rank[r].team, &params, &type), WEFT_OK);
        weft_coll_args_t args = {.kind = kind,
                                 .src = from[r],
                                 .dst = bcast ? from[r] : to[r],
                                 .count = COUNT,
                                 .dst_counts = kind == WEFT_COLL_ALLGATHERV ? counts : NULL,
                                 .type = type,
                                 .root = 1};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
        for (int i = 0; i < RANKS * WORDS; i++) to[r][i] = -1;
    }
    for (int round = 0; round < 5; round++) {
        for (uint32_t r = 0; r < RANKS; r++)
            for (int i = 0; i < WORDS; i++) from[r][i] = round * 1000 + (int32_t)r * 100 + i;
        start_all(&c, coll);
        for (uint32_t r = 0; r < RANKS; r++)
            for (int i = 0; i < (bcast ? WORDS : RANKS * WORDS); i++) {
                int sent = round * 1000 + (bcast ? 1 : i / WORDS) * 100 + i % WORDS;
                int kept = bcast ? round * 1000 + (int)r * 100 + i : -1;
                CHECK_EQ(bcast ? from[r][i] : to[r][i], i % 3 ? kept : sent);
            }
    }
    free_all(&c, coll);
    crew_down(&c);
}
TEST(a_persistent_one_packs_elements_with_a_layout_at_each_start) {
    starts_with_layouts(WEFT_COLL_ALLGATHER, NULL);
    starts_with_layouts(WEFT_COLL_ALLGATHER, "0");
    starts_with_layouts(WEFT_COLL_ALLGATHERV, "0");
    starts_with_layouts(WEFT_COLL_BCAST, NULL);
    starts_with_layouts(WEFT_COLL_BCAST, "0");
}

/* Its arrays are the program's again when it has been described: they are overwritten and freed. */
static void arrays_of_the_call(weft_coll_kind_t kind, const char *slot, bool has_layout) {
    enum { RANKS = 3, COUNT = 2 };
    static int64_t from[RANKS][2 * RANKS * COUNT], to[RANKS][2 * RANKS * COUNT];
    const weft_layout_t layout = {.kind = WEFT_LAYOUT_STRIDED, .block = 8, .stride = 8, .count = 1};
    const weft_datatype_params_t params = {.size = 8, .layout = &layout, .extent = 8};
    weft_coll_t *coll[RANKS];
    struct crew c;
    crew_up(&c, RANKS, "self,shm", slot ? "coll.slot" : NULL, slot);
    for (uint32_t r = 0; r < RANKS; r++) {
        uint64_t *counts = malloc(RANKS * sizeof *counts), *displs = malloc(RANKS * sizeof *displs);
        uint32_t *others = malloc(2 * sizeof *others);
        weft_neighbors_t ring = {others, others, 2, 2};
        weft_coll_args_t args = any_collective(kind, r, RANKS, from[r], to[r], COUNT);
        memcpy(others, args.graph->sources, 2 * sizeof *others);
        for (uint32_t i = 0; i < RANKS; i++) counts[i] = COUNT, displs[i] = i * COUNT;
        args.src_counts = args.dst_counts = counts;
        args.src_displs = args.dst_displs = displs;
        args.graph = &ring;
        if (has_layout)
            CHECK_EQ(weft_datatype_create(c.rank[r].team, &params, &args.type), WEFT_OK);
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
        memset(counts, 0, RANKS * sizeof *counts);
        memset(displs, 0, RANKS * sizeof *displs);
        memset(others, 0, 2 * sizeof *others);
        free(counts), free(displs), free(others);
    }
    for (int start = 0; start < 3; start++) {
        for (uint32_t r = 0; r < RANKS; r++)
            for (int i = 0; i < 2 * RANKS * COUNT; i++)
                from[r][i] = 1000 * (int64_t)r + i, to[r][i] = -1;
        start_all(&c, coll);
        for (uint32_t r = 0; r < RANKS; r++)
            for (uint32_t i = 0; i < COUNT && any_has_result(kind, r); i++)
                CHECK_EQ(to[r][i], any_result(kind, r, RANKS, COUNT, i));
    }
    free_all(&c, coll);
    crew_down(&c);
}

TEST(a_persistent_one_keeps_its_counts_displacements_and_neighbours) {
    static const weft_coll_kind_t kinds[] = {WEFT_COLL_GATHERV,    WEFT_COLL_SCATTERV,
                                             WEFT_COLL_ALLGATHERV, WEFT_COLL_REDUCE_SCATTERV,
                                             WEFT_COLL_ALLTOALLV,  WEFT_COLL_NEIGHBOR_ALLTOALLV};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        arrays_of_the_call(kinds[i], NULL, false);
        arrays_of_the_call(kinds[i], "0", false);
        if (kinds[i] == WEFT_COLL_REDUCE_SCATTERV) continue;
        arrays_of_the_call(kinds[i], NULL, true);
        arrays_of_the_call(kinds[i], "0", true);
    }
}

TEST(avg_divides_by_the_number_of_members) {
    static double a[4][3], b[4][3];
    struct crew c;
    crew_up(&c, 4, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < 4; r++)
        for (int i = 0; i < 3; i++) a[r][i] = r * 2.0 + i;
    EVERYBODY(&c, weft_allreduce(me->team, a[r], b[r], 3, WEFT_FLOAT64, WEFT_AVG, OP_OF(me)));
    for (uint32_t r = 0; r < 4; r++)
        for (int i = 0; i < 3; i++) CHECK(b[r][i] == 3.0 + i);
    EVERYBODY(&c, weft_reduce(me->team, a[r], b[r], 3, WEFT_FLOAT64, WEFT_AVG, 3, OP_OF(me)));
    CHECK(b[3][2] == 5.0);
    CHECK_EQ(weft_scan(c.rank[0].team, a[0], b[0], 3, WEFT_FLOAT64, WEFT_AVG, NULL),
             WEFT_ERR_UNSUPPORTED);
    crew_down(&c);
}

TEST(a_deadline_and_a_cancel_end_a_persistent_one) {
    for (int cancels = 0; cancels < 2; cancels++) {
        struct crew c;
        weft_coll_t *coll;
        weft_request_t *request = NULL;
        crew_up(&c, 2, "self,shm", "coll.slot", cancels ? "0" : "8k");
        weft_coll_args_t args = {.kind = WEFT_COLL_BARRIER};
        CHECK_EQ(weft_coll_init(c.rank[0].team, &args, 0, &coll), WEFT_OK);
        expect_outcome(&c.rank[0]);
        weft_op_t op = {.done = on_outcome,
                        .arg = &c.rank[0],
                        .deadline_ms = cancels ? 0 : 20,
                        .request_p = &request};
        CHECK_EQ(weft_coll_start(coll, &op), WEFT_IN_PROGRESS);
        if (cancels) weft_request_cancel(request);
        UNTIL(&c, c.rank[0].outcome_calls == 1);
        CHECK_EQ(c.rank[0].outcome, cancels ? WEFT_ERR_CANCELLED : WEFT_ERR_TIMED_OUT);
        CHECK(weft_coll_start(coll, NULL) < 0);
        CHECK_EQ(weft_coll_free(coll), WEFT_OK);
        crew_down(&c);
    }
}
