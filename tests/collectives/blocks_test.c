/* Blocks of v-forms in the segment: small ones and large ones, within the call and after it, and
 * counts that change from call to call. */
#include <collectives/segment.h>
#include <string.h>

#include "team.h"

enum { SIZE = 3, ROOM = 8 << 10 }; /* ranks; bytes of a block, at most */

/* What each gives to each, in bytes; and where they lie: each sees its own row. */
static uint64_t gives[SIZE][SIZE], takes[SIZE][SIZE], from_displ[SIZE][SIZE], to_displ[SIZE][SIZE];
static uint8_t from[SIZE][SIZE * ROOM], to[SIZE][SIZE * ROOM];

static uint64_t ended_within(struct rank *r) {
    return weft_worker_count(r->worker, "coll.within_call");
}

static uint8_t byte_of(uint32_t giver, uint32_t taker, uint64_t i, unsigned round) {
    return (uint8_t)(1 + 7 * giver + 31 * taker + 3 * i + round);
}

/* The most that fits into the place of a block, in a team of SIZE. */
static uint64_t most_of_place(void) {
    struct segment segment = {.size = SIZE, .block_stride = segment_block_stride(SIZE)};
    return segment_block_room(&segment);
}

/* With a gap before each block, and after it. */
static void lay_out(unsigned round) {
    memset(to, 0xee, sizeof to);
    for (uint32_t g = 0; g < SIZE; g++)
        for (uint32_t t = 0; t < SIZE; t++) {
            takes[t][g] = gives[g][t];
            from_displ[g][t] = t * ROOM + 5;
            to_displ[t][g] = g * ROOM + 9;
            for (uint64_t i = 0; i < gives[g][t]; i++)
                from[g][from_displ[g][t] + i] = byte_of(g, t, i, round);
        }
}

/* `giver`'s block at `taker`, as it was given to `as`; nothing else there. */
static void check_block(uint32_t taker, uint32_t giver, uint32_t as, uint64_t at, unsigned round) {
    uint64_t len = gives[giver][as];
    for (uint64_t i = 0; i < len; i++) CHECK_EQ(to[taker][at + i], byte_of(giver, as, i, round));
    CHECK_EQ(to[taker][at + len], 0xee);
    CHECK(at == 0 || to[taker][at - 1] == 0xee);
}

static void run_alltoallv(struct crew *c, unsigned round) {
    lay_out(round);
    EVERYBODY(c, weft_alltoallv(me->team, from[r], gives[r], from_displ[r], to[r], takes[r],
                                to_displ[r], WEFT_UINT8, OP_OF(me)));
    for (uint32_t t = 0; t < SIZE; t++)
        for (uint32_t g = 0; g < SIZE; g++) check_block(t, g, t, to_displ[t][g], round);
}

static void run_scatterv(struct crew *c, uint32_t root, unsigned round) {
    lay_out(round);
    EVERYBODY(c, weft_scatterv(me->team, r == root ? from[r] : NULL, r == root ? gives[r] : NULL,
                               r == root ? from_displ[r] : NULL, to[r], gives[root][r], WEFT_UINT8,
                               root, OP_OF(me)));
    for (uint32_t t = 0; t < SIZE; t++) check_block(t, root, t, 0, round);
}

static void run_gatherv(struct crew *c, uint32_t root, unsigned round) {
    lay_out(round);
    EVERYBODY(c, weft_gatherv(me->team, from[r] + from_displ[r][root], gives[r][root],
                              r == root ? to[r] : NULL, r == root ? takes[r] : NULL,
                              r == root ? to_displ[r] : NULL, WEFT_UINT8, root, OP_OF(me)));
    for (uint32_t g = 0; g < SIZE; g++) check_block(root, g, root, to_displ[root][g], round);
}

/* Each gives what it has for rank 0 to all. */
static void run_allgatherv(struct crew *c, unsigned round) {
    lay_out(round);
    EVERYBODY(c, weft_allgatherv(me->team, from[r] + from_displ[r][0], to[r], takes[0], to_displ[r],
                                 WEFT_UINT8, OP_OF(me)));
    for (uint32_t t = 0; t < SIZE; t++)
        for (uint32_t g = 0; g < SIZE; g++) check_block(t, g, 0, to_displ[t][g], round);
}

/* Rank r gets the sums of gives[0][r] numbers. */
static void run_reduce_scatterv(struct crew *c, unsigned round) {
    static uint32_t numbers[SIZE][SIZE * ROOM], sums[SIZE][ROOM + 1];
    uint64_t n = 0;
    for (uint32_t t = 0; t < SIZE; t++)
        for (uint64_t i = 0; i < gives[0][t]; i++, n++)
            for (uint32_t g = 0; g < SIZE; g++) numbers[g][n] = (uint32_t)(1000 * g + n + round);
    memset(sums, 0xee, sizeof sums);
    EVERYBODY(c, weft_reduce_scatterv(me->team, numbers[r], sums[r], gives[0], WEFT_UINT32,
                                      WEFT_SUM, OP_OF(me)));
    n = 0;
    for (uint32_t t = 0; t < SIZE; t++) {
        for (uint64_t i = 0; i < gives[0][t]; i++, n++)
            CHECK_EQ(sums[t][i], SIZE * (n + round) + 1000 * SIZE * (SIZE - 1) / 2);
        CHECK_EQ(sums[t][gives[0][t]], 0xeeeeeeee);
    }
}

static void run_all(struct crew *c, unsigned round) {
    run_alltoallv(c, round);
    run_allgatherv(c, round);
    run_reduce_scatterv(c, round);
    for (uint32_t root = 0; root < SIZE; root++) {
        run_scatterv(c, root, round);
        run_gatherv(c, root, round);
    }
}

TEST(v_forms_of_small_blocks_are_over_within_the_call_of_the_last_member) {
    struct crew c;
    crew_of_cores(&c, SIZE);
    for (uint32_t g = 0; g < SIZE; g++)
        for (uint32_t t = 0; t < SIZE; t++) gives[g][t] = 1 + g + t;
    for (unsigned round = 0; round < 5; round++) {
        uint64_t before = ended_within(&c.rank[SIZE - 1]);
        run_all(&c, round);
        CHECK_EQ(ended_within(&c.rank[SIZE - 1]), before + 3 + 2 * SIZE);
    }
    crew_down(&c);
}

/* In one call, too: one member's small, another's large. */
TEST(blocks_of_all_sizes_around_the_room_of_a_place_arrive) {
    struct crew c;
    uint64_t most = most_of_place(), sizes[] = {0, 1, 33, most - 1, most, most + 1, ROOM - 20};
    enum { N = sizeof sizes / sizeof *sizes };
    crew_of_cores(&c, SIZE);
    for (unsigned round = 0; round < 4 * N; round++) {
        for (uint32_t g = 0; g < SIZE; g++)
            for (uint32_t t = 0; t < SIZE; t++)
                gives[g][t] = round < N ? sizes[round] : sizes[(round * 5 + 3 * g + 2 * t) % N];
        run_all(&c, round);
    }
    crew_down(&c);
}

/* The program writes other counts into the array that it gave before. */
TEST(counts_and_displacements_that_change_in_their_arrays_are_seen) {
    struct crew c;
    crew_of_cores(&c, SIZE);
    for (unsigned round = 0; round < 60; round++) {
        uint32_t g = round % SIZE, t = round / SIZE % SIZE;
        gives[g][t] = (gives[g][t] + 3 * round) % 40;
        run_all(&c, round);
        run_all(&c, round + 1); /* as the one before */
    }
    crew_down(&c);
}

TEST(what_is_given_up_between_two_equal_calls_is_refused_as_in_the_first) {
    struct crew c;
    crew_of_cores(&c, SIZE);
    for (uint32_t g = 0; g < SIZE; g++)
        for (uint32_t t = 0; t < SIZE; t++) gives[g][t] = 4;
    run_all(&c, 0);
    struct rank *me = &c.rank[0];
    CHECK_EQ(weft_scatterv(me->team, from[0], NULL, NULL, to[0], 4, WEFT_UINT8, 0, OP_OF(me)),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(
        weft_scatterv(me->team, NULL, gives[0], from_displ[0], to[0], 4, WEFT_UINT8, 0, OP_OF(me)),
        WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(
        weft_gatherv(me->team, from[0], 4, NULL, takes[0], to_displ[0], WEFT_UINT8, 0, OP_OF(me)),
        WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(
        weft_alltoallv(me->team, from[0], gives[0], NULL, to[0], NULL, NULL, WEFT_UINT8, OP_OF(me)),
        WEFT_ERR_INVALID_PARAM);
    run_all(&c, 1);
    crew_down(&c);
}

TEST(an_alltoallv_in_place_gives_what_lay_there_before) {
    struct crew c;
    uint64_t sizes[] = {8, most_of_place() + 8};
    crew_of_cores(&c, SIZE);
    for (unsigned round = 0; round < 8; round++) {
        uint64_t n = sizes[round / 4];
        for (uint32_t g = 0; g < SIZE; g++)
            for (uint32_t t = 0; t < SIZE; t++) {
                gives[g][t] = n;
                for (uint64_t i = 0; i < n; i++) to[g][t * n + i] = byte_of(g, t, i, round);
            }
        EVERYBODY(&c, weft_alltoallv(me->team, WEFT_IN_PLACE, gives[r], NULL, to[r], gives[r], NULL,
                                     WEFT_UINT8, OP_OF(me)));
        for (uint32_t t = 0; t < SIZE; t++)
            for (uint32_t g = 0; g < SIZE; g++)
                for (uint64_t i = 0; i < n; i++)
                    CHECK_EQ(to[t][g * n + i], byte_of(g, t, i, round));
    }
    crew_down(&c);
}

/* Nothing lies there, and it may be anywhere: a member copies no more than its blocks. */
TEST(the_displacement_of_an_empty_block_has_no_effect_in_place) {
    struct crew c;
    uint64_t n = most_of_place() + 8, far = UINT64_C(1) << 40;
    crew_of_cores(&c, SIZE);
    for (uint32_t g = 0; g < SIZE; g++)
        for (uint32_t t = 0; t < SIZE; t++) {
            gives[g][t] = g == t ? 0 : n;
            from_displ[g][t] = g == t ? far : t * n;
            for (uint64_t i = 0; i < gives[g][t]; i++) to[g][t * n + i] = byte_of(g, t, i, 0);
        }
    EVERYBODY(&c, weft_alltoallv(me->team, WEFT_IN_PLACE, gives[r], from_displ[r], to[r], gives[r],
                                 from_displ[r], WEFT_UINT8, OP_OF(me)));
    for (uint32_t t = 0; t < SIZE; t++) {
        CHECK_EQ(c.rank[t].outcome, WEFT_OK);
        for (uint32_t g = 0; g < SIZE; g++)
            for (uint64_t i = 0; i < gives[g][t]; i++)
                CHECK_EQ(to[t][g * n + i], byte_of(g, t, i, 0));
    }
    crew_down(&c);
}

/* ---- members that are apart ------------------------------------------------------------------ */

/* The root does not wait for those that take a small block, until the channels are full. */
TEST(a_root_runs_ahead_of_another_that_takes_small_blocks) {
    struct crew c;
    enum { AHEAD = SEGMENT_CHANNELS };
    static uint8_t word[AHEAD + 1];
    uint64_t counts[2] = {1, 1};
    crew_of_cores(&c, 2);
    struct rank *root = &c.rank[0], *other = &c.rank[1];
    for (int i = 0; i < 3; i++) { /* whatever was there before */
        uint8_t two[2] = {1, 2};
        EVERYBODY(&c,
                  weft_scatterv(me->team, two, counts, NULL, word, 1, WEFT_UINT8, 0, OP_OF(me)));
    }
    expect_outcome(root);
    for (uint8_t i = 0; i <= AHEAD; i++) {
        uint8_t two[2] = {i, (uint8_t)(100 + i)}, own;
        weft_status_t st =
            weft_scatterv(root->team, i < AHEAD ? two : word, counts, NULL,
                          i < AHEAD ? &own : word + 1, 1, WEFT_UINT8, 0, OP_OF(root));
        CHECK_EQ(st, i < AHEAD ? WEFT_OK : WEFT_IN_PROGRESS);
    }
    for (int i = 0; i < 10; i++) crew_turn(&c);
    CHECK_EQ(root->outcome_calls, 0);
    for (uint8_t i = 0; i < AHEAD; i++) {
        uint8_t got = 0;
        CHECK_EQ(weft_scatterv(other->team, NULL, NULL, NULL, &got, 1, WEFT_UINT8, 0, OP_OF(other)),
                 WEFT_OK);
        CHECK_EQ(got, 100 + i);
    }
    UNTIL(&c, root->outcome_calls == 1);
    CHECK_EQ(root->outcome, WEFT_OK);
    CHECK_EQ(weft_scatterv(other->team, NULL, NULL, NULL, word, 1, WEFT_UINT8, 0, OP_OF(other)),
             WEFT_OK);
    crew_down(&c);
}

/* Of more than two: a root has begun twice as many scatters as it may be ahead, the last of them of
 * `last` bytes to each, and the others of `len`. */
static void scatters_ahead(uint64_t len, uint64_t last, unsigned ahead) {
    enum { MOST = 2 * SEGMENT_HEADS, LEN = 2 * SEGMENT_SHORT };
    static uint8_t given[MOST][SIZE * LEN], got[LEN];
    struct crew c;
    unsigned all = 2 * ahead, done = 0;
    crew_of_cores(&c, SIZE);
    struct rank *root = &c.rank[0];
    expect_outcome(root);
    for (unsigned i = 0; i < all; i++) {
        uint64_t n = i + 1 < all ? len : last, counts[SIZE] = {n, n, n};
        for (unsigned b = 0; b < SIZE * n; b++) given[i][b] = (uint8_t)(i + 3 * b);
        done += weft_scatterv(root->team, given[i], counts, NULL, WEFT_IN_PLACE, n, WEFT_UINT8, 0,
                              OP_OF(root)) == WEFT_OK;
    }
    for (int i = 0; i < 100; i++) crew_turn(&c);
    CHECK_EQ(done + (unsigned)root->outcome_calls, ahead);
    for (unsigned i = 0; i < all; i++) {
        uint64_t n = i + 1 < all ? len : last;
        for (uint32_t r = 1; r < SIZE; r++) {
            expect_outcome(&c.rank[r]);
            posted(&c.rank[r], weft_scatterv(c.rank[r].team, NULL, NULL, NULL, got, n, WEFT_UINT8,
                                             0, OP_OF(&c.rank[r])));
            UNTIL(&c, c.rank[r].outcome_calls == 1);
            CHECK_EQ(c.rank[r].outcome, WEFT_OK);
            for (unsigned b = 0; b < n; b++) CHECK_EQ(got[b], (uint8_t)(i + 3 * (r * n + b)));
        }
    }
    UNTIL(&c, done + (unsigned)root->outcome_calls == all);
    crew_down(&c);
}

TEST(a_root_runs_ahead_by_as_many_short_blocks_as_there_are_heads) {
    scatters_ahead(SEGMENT_SHORT, SEGMENT_SHORT, SEGMENT_HEADS);
}

TEST(a_root_runs_ahead_by_as_many_longer_blocks_as_there_are_channels) {
    scatters_ahead(SEGMENT_SHORT + 1, 1, SEGMENT_CHANNELS);
}

TEST(a_longer_block_behind_short_ones_waits_for_its_channel) {
    scatters_ahead(1, SEGMENT_SHORT + 1, SEGMENT_HEADS);
}

/* Rank 1 gives more than rank 0 takes: found by the one that takes it, which fails the team. */
TEST(members_that_disagree_on_a_block_fail) {
    struct crew c;
    uint64_t given[2][2] = {{4, 4}, {8, 4}}, taken[2] = {4, 4};
    for (uint32_t first = 0; first < 2; first++) {
        crew_of_cores(&c, 2);
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t r = (first + i) % 2;
            expect_outcome(&c.rank[r]);
            posted(&c.rank[r], weft_alltoallv(c.rank[r].team, from[r], given[r], NULL, to[r], taken,
                                              NULL, WEFT_UINT8, OP_OF(&c.rank[r])));
        }
        UNTIL(&c, all_notified(&c));
        CHECK_EQ(c.rank[0].outcome, WEFT_ERR_PROTOCOL);
        crew_down(&c);
    }
}

TEST(a_member_that_dies_after_others_have_given_their_blocks_ends_their_v_form) {
    struct crew c;
    crew_of_cores(&c, SIZE);
    for (uint32_t g = 0; g < SIZE; g++)
        for (uint32_t t = 0; t < SIZE; t++) gives[g][t] = 2;
    lay_out(0);
    for (uint32_t r = 0; r + 1 < SIZE; r++) {
        expect_outcome(&c.rank[r]);
        CHECK_EQ(weft_alltoallv(c.rank[r].team, from[r], gives[r], from_displ[r], to[r], takes[r],
                                to_displ[r], WEFT_UINT8, OP_OF(&c.rank[r])),
                 WEFT_IN_PROGRESS);
    }
    vanish(&c, SIZE - 1);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r + 1 < SIZE; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_PEER_FAILED);
    crew_down(&c);
}

TEST(a_persistent_v_form_is_over_within_its_start_or_goes_on) {
    struct crew c;
    weft_coll_t *coll[SIZE];
    crew_of_cores(&c, SIZE);
    for (uint32_t g = 0; g < SIZE; g++)
        for (uint32_t t = 0; t < SIZE; t++) gives[g][t] = 3 + g * t;
    lay_out(0);
    for (uint32_t r = 0; r < SIZE; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLTOALLV,
                                 .src = from[r],
                                 .dst = to[r],
                                 .src_counts = gives[r],
                                 .src_displs = from_displ[r],
                                 .dst_counts = takes[r],
                                 .dst_displs = to_displ[r],
                                 .type = WEFT_UINT8};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
    }
    for (unsigned round = 0; round < 20; round++) {
        lay_out(round);
        uint64_t before = ended_within(&c.rank[SIZE - 1]);
        EVERYBODY(&c, weft_coll_start(coll[r], OP_OF(me)));
        CHECK_EQ(ended_within(&c.rank[SIZE - 1]), before + 1);
        for (uint32_t t = 0; t < SIZE; t++)
            for (uint32_t g = 0; g < SIZE; g++) check_block(t, g, t, to_displ[t][g], round);
    }
    for (uint32_t r = 0; r < SIZE; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    crew_down(&c);
}
