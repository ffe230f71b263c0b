/* Collectives of several workers, over every transport and through every algorithm. */
#include <collectives/segment.h>

#include "each_kind.h"
#include "team.h"

#include <sys/mman.h>

static uint64_t counter_sum(struct crew *c, const char *name) {
    uint64_t sum = 0;
    for (uint32_t r = 0; r < c->size; r++) sum += weft_worker_count(c->rank[r].worker, name);
    return sum;
}

static int32_t in[MOST_RANKS][70000], out[MOST_RANKS][70000];

static void allreduce_right(struct crew *c, size_t count, bool in_place) {
    for (uint32_t r = 0; r < c->size; r++)
        for (size_t i = 0; i < count; i++) in[r][i] = (int32_t)(r * 1000 + i * 7), out[r][i] = -1;
    EVERYBODY(c, weft_allreduce(me->team, in[r], in_place ? in[r] : out[r], count, WEFT_INT32,
                                WEFT_SUM, OP_OF(me)));
    uint32_t n = c->size;
    for (uint32_t r = 0; r < n; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        CHECK_EQ(c->rank[r].outcome_calls, 1);
        const int32_t *got = in_place ? in[r] : out[r];
        for (size_t i = 0; i < count; i++)
            if (got[i] != (int32_t)(n * (n - 1) / 2 * 1000 + n * i * 7))
                CHECK_EQ(got[i], n * (n - 1) / 2 * 1000 + n * i * 7);
    }
}

static void bcast_right(struct crew *c, size_t count, uint32_t root) {
    for (uint32_t r = 0; r < c->size; r++)
        for (size_t i = 0; i < count; i++) in[r][i] = r == root ? (int32_t)(root * 31 + i) : -1;
    EVERYBODY(c, weft_bcast(me->team, in[r], count, WEFT_INT32, root, OP_OF(me)));
    for (uint32_t r = 0; r < c->size; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        for (size_t i = 0; i < count; i++)
            if (in[r][i] != (int32_t)(root * 31 + i)) CHECK_EQ(in[r][i], root * 31 + i);
    }
}

static void allgather_right(struct crew *c, size_t count, bool in_place) {
    for (uint32_t r = 0; r < c->size; r++)
        for (size_t i = 0; i < count; i++) {
            in[r][i] = (int32_t)(r * 100 + i);
            if (in_place) out[r][r * count + i] = in[r][i];
        }
    EVERYBODY(c, weft_allgather(me->team, in_place ? &out[r][r * count] : in[r], out[r], count,
                                WEFT_INT32, OP_OF(me)));
    for (uint32_t r = 0; r < c->size; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        for (size_t i = 0; i < count * c->size; i++)
            if (out[r][i] != (int32_t)(i / count * 100 + i % count))
                CHECK_EQ(out[r][i], i / count * 100 + i % count);
    }
}

/* in[r] has a block for each rank q, of r * 100 + q * 10 + i. */
static void give_blocks(struct crew *c, size_t count) {
    for (uint32_t r = 0; r < c->size; r++)
        for (size_t i = 0; i < count * c->size; i++)
            in[r][i] = (int32_t)(r * 100 + i / count * 10 + i % count), out[r][i] = -1;
}

static void alltoall_right(struct crew *c, size_t count, bool in_place) {
    give_blocks(c, count);
    EVERYBODY(
        c, weft_alltoall(me->team, in[r], in_place ? in[r] : out[r], count, WEFT_INT32, OP_OF(me)));
    for (uint32_t r = 0; r < c->size; r++) {
        const int32_t *got = in_place ? in[r] : out[r];
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        for (size_t i = 0; i < count * c->size; i++)
            CHECK_EQ(got[i], i / count * 100 + r * 10 + i % count);
    }
}

static void reduce_scatter_right(struct crew *c, size_t count) {
    uint32_t n = c->size;
    give_blocks(c, count);
    EVERYBODY(c,
              weft_reduce_scatter(me->team, in[r], out[r], count, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    for (uint32_t r = 0; r < n; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        for (size_t i = 0; i < count; i++)
            CHECK_EQ(out[r][i], n * (n - 1) / 2 * 100 + n * (r * 10 + i));
        CHECK_EQ(out[r][count], -1);
    }
}

static void all_right(struct crew *c) {
    static const size_t counts[] = {1, 5, 1000, 5000};
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        allreduce_right(c, counts[i], i % 2);
        bcast_right(c, counts[i], (uint32_t)(i % c->size));
        allgather_right(c, counts[i] > 1000 ? 1000 : counts[i], i % 2);
        EVERYBODY(c, weft_barrier(me->team, OP_OF(me)));
        for (uint32_t r = 0; r < c->size; r++) CHECK_EQ(c->rank[r].outcome, WEFT_OK);
    }
}

static void sizes_right(const char *transports, const char *setting, const char *value) {
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct crew c;
        crew_up(&c, sizes[i], transports, setting, value);
        all_right(&c);
        crew_down(&c);
    }
}

TEST(teams_of_1_to_9_over_shm) {
    sizes_right("self,shm", NULL, NULL);
}
TEST(teams_of_1_to_9_over_shm_without_a_segment) {
    sizes_right("self,shm", "coll.slot", "0");
}
TEST(teams_of_1_to_9_over_tcp) {
    sizes_right("self,tcp", NULL, NULL);
}

static void algorithms_right(const char *transports, const char *choices) {
    for (uint32_t size = 2; size <= 5; size++) {
        struct crew c;
        crew_up(&c, size, transports, "coll.algorithms", choices);
        all_right(&c);
        crew_down(&c);
    }
}

TEST(every_algorithm_over_messages) {
    algorithms_right("self,shm", "barrier=tree,bcast=chain,allreduce=ring,allgather=neighbours");
    algorithms_right("self,shm",
                     "barrier=dissemination,bcast=binomial,allreduce=doubling,allgather=bruck");
    algorithms_right("self,shm", "allreduce:-4k=fold,allreduce=pipeline");
    algorithms_right("self,tcp",
                     "barrier=tree,bcast=chain,allreduce=pipeline,allgather=neighbours");
}

TEST(members_put_straight_into_the_memory_of_others) {
    algorithms_right("self,shm", "bcast=direct,allgather=direct");
    algorithms_right("self,tcp", "bcast=direct,allgather=direct");
    struct crew c;
    crew_up(&c, 3, "self,shm", "coll.algorithms", "alltoall=direct");
    for (int in_place = 0; in_place < 2; in_place++) {
        for (uint32_t r = 0; r < 3; r++)
            for (uint32_t i = 0; i < 30000; i++) in[r][i] = (int32_t)(r * 100000 + i);
        EVERYBODY(&c, weft_alltoall(me->team, in_place ? WEFT_IN_PLACE : in[r],
                                    in_place ? in[r] : out[r], 10000, WEFT_INT32, OP_OF(me)));
        for (uint32_t r = 0; r < 3; r++)
            for (uint32_t i = 0; i < 30000; i++) {
                int32_t got = in_place ? in[r][i] : out[r][i];
                if (got != (int32_t)(i / 10000 * 100000 + r * 10000 + i % 10000))
                    CHECK_EQ(got, i / 10000 * 100000 + r * 10000 + i % 10000);
            }
    }
    CHECK(counter_sum(&c, "coll.messages") > 0);
    crew_down(&c);
}

TEST(large_messages_wait_for_their_receive) {
    struct crew c;
    crew_up(&c, 3, "self,shm", "coll.algorithms", "bcast=binomial,allreduce=ring");
    bcast_right(&c, 70000, 1);
    allreduce_right(&c, 70000, false);
    allreduce_right(&c, 70000, true);
    crew_down(&c);
    crew_up(&c, 3, "self,tcp", NULL, NULL);
    bcast_right(&c, 70000, 2);
    allreduce_right(&c, 70000, true);
    allgather_right(&c, 20000, false);
    crew_down(&c);
}

/* Zeros, of which no page is there until it is written to. */
static void *zeros(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

TEST(a_linear_reduce_between_two_takes_scratch_memory_for_one_vector) {
    enum { COUNT = 60 << 20 };
    struct crew c;
    uint8_t *one = zeros(COUNT), *sum = zeros(COUNT);
    one[0] = one[COUNT - 1] = 1;
    crew_up(&c, 2, "self,shm", "coll.algorithms", "reduce=linear");
    for (uint32_t root = 0; root < 2; root++) {
        EVERYBODY(&c, weft_reduce(me->team, one, r == root ? sum : NULL, COUNT, WEFT_UINT8,
                                  WEFT_SUM, root, OP_OF(me)));
        for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK(sum[0] == 2 && sum[1] == 0 && sum[COUNT - 1] == 2);
        sum[0] = sum[COUNT - 1] = 0;
    }
    crew_down(&c);
    munmap(one, COUNT);
    munmap(sum, COUNT);
}

TEST(a_member_whose_call_lacks_memory_may_call_something_else_or_revoke_the_team) {
    enum { COUNT = 300 << 20 };
    struct crew c;
    uint8_t *vector = zeros(COUNT);
    crew_up(&c, 2, "self,shm", "coll.algorithms", "reduce=linear");
    CHECK_EQ(weft_reduce(c.rank[0].team, vector, vector, COUNT, WEFT_UINT8, WEFT_SUM, 0, NULL),
             WEFT_ERR_NO_MEMORY);
    allreduce_right(&c, 3, false);
    for (uint32_t r = 0; r < 2; r++) expect_outcome(&c.rank[r]);
    for (uint32_t r = 2; r-- > 0;)
        posted(&c.rank[r], weft_reduce(c.rank[r].team, vector, r ? NULL : vector, COUNT, WEFT_UINT8,
                                       WEFT_SUM, 0, OP_OF(&c.rank[r])));
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_NO_MEMORY);
    CHECK_EQ(c.rank[1].outcome, WEFT_IN_PROGRESS);
    CHECK_EQ(weft_team_revoke(c.rank[0].team), WEFT_OK);
    UNTIL(&c, all_notified(&c));
    CHECK_EQ(c.rank[1].outcome, WEFT_ERR_REVOKED);
    crew_down(&c);
    munmap(vector, COUNT);
}

/* Messages of a broadcast of `count` among two: one, or two where the receiver says when. */
static uint64_t messages_of_bcast(const char *transports, const weft_setting_t *settings, size_t n,
                                  size_t count) {
    struct crew c;
    crew_workers(&c, 2, transports, settings, n);
    crew_teams(&c);
    bcast_right(&c, 1, 0);
    uint64_t before = counter_sum(&c, "coll.messages");
    bcast_right(&c, count, 0);
    uint64_t sent = counter_sum(&c, "coll.messages") - before;
    crew_down(&c);
    return sent;
}

TEST(sixty_four_kib_go_unasked_but_to_members_that_share_memory) {
    const weft_setting_t over_messages = {"coll.algorithms", "bcast=binomial"};
    CHECK_EQ(messages_of_bcast("self,tcp", NULL, 0, 16384), 1);
    CHECK_EQ(messages_of_bcast("self,tcp", NULL, 0, 16385), 2);
    CHECK_EQ(messages_of_bcast("self,shm", &over_messages, 1, 4096), 1);
    CHECK_EQ(messages_of_bcast("self,shm", &over_messages, 1, 4097), 2);
}

/* What others may send while a member is late has room at it, 16 KiB a step at least. */
TEST(less_goes_unasked_where_less_may_wait) {
    const weft_setting_t room = {"coll.unexpected_bytes", "2m"};
    CHECK_EQ(messages_of_bcast("self,tcp", &room, 1, 8192), 1);
    CHECK_EQ(messages_of_bcast("self,tcp", &room, 1, 8193), 2);
    const weft_setting_t less = {"coll.unexpected_bytes", "64k"};
    CHECK_EQ(messages_of_bcast("self,tcp", &less, 1, 4096), 1);
    CHECK_EQ(messages_of_bcast("self,tcp", &less, 1, 4097), 2);
}

TEST(small_ones_on_one_host_go_through_the_segment) {
    struct crew c;
    crew_up(&c, 4, "self,shm", "coll.algorithms", "allreduce=slots");
    uint64_t before = counter_sum(&c, "coll.messages"), own = counter_sum(&c, "coll.slots");
    for (int i = 0; i < 50; i++) allreduce_right(&c, 1 + (size_t)i * 20, i % 2);
    bcast_right(&c, 10000, 3);
    CHECK_EQ(counter_sum(&c, "coll.slots") - own, 4 * 51);
    CHECK_EQ(counter_sum(&c, "coll.messages"), before);
    crew_down(&c);
}

static const char by_lines[] = "barrier=oneshot,allreduce=oneshot,allgather=oneshot,"
                               "alltoall=oneshot,reduce_scatter=oneshot";

TEST(the_smallest_on_one_host_go_by_a_line_or_an_annex_of_each) {
    struct crew c;
    crew_up(&c, 4, "self,shm", "coll.algorithms", by_lines);
    uint64_t before = counter_sum(&c, "coll.messages"), own = counter_sum(&c, "coll.slots"),
             lines = counter_sum(&c, "coll.oneshot");
    for (size_t n = 1; n <= 12; n++) {
        allreduce_right(&c, n, n % 2);
        allgather_right(&c, n, n % 2);
        EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    }
    for (size_t n = 1; n <= 3; n++) { /* a line has a block for each of the four */
        alltoall_right(&c, n, n % 2);
        reduce_scatter_right(&c, n);
    }
    for (int i = 0; i < 100; i++) allreduce_right(&c, 1, i % 2);
    static const size_t more[] = {13, 26, 52, 416, 1664, 2048};
    for (size_t i = 0; i < 6; i++) {
        size_t n = more[i];
        allreduce_right(&c, n, n % 2); /* more than a line has, up to all of an annex */
        allgather_right(&c, n, n % 2);
        alltoall_right(&c, n / 4, n % 2);
        reduce_scatter_right(&c, n / 4);
    }
    CHECK_EQ(counter_sum(&c, "coll.oneshot") - lines, 4 * (3 * 12 + 2 * 3 + 100 + 4 * 6));
    CHECK_EQ(counter_sum(&c, "coll.slots"), own);
    allreduce_right(&c, 2049, false); /* more than an annex has */
    alltoall_right(&c, 513, false);
    reduce_scatter_right(&c, 513);
    CHECK_EQ(counter_sum(&c, "coll.slots"), own + 3 * 4);
    CHECK_EQ(counter_sum(&c, "coll.messages"), before);
    crew_down(&c);
}

/* Every kind of them, with each root. */
TEST(where_a_core_each_is_had_those_with_a_root_go_by_lines_too) {
    struct crew c;
    enum { SIZE = 4 };
    crew_workers(&c, SIZE, "self,shm", NULL, 0);
    c.ranks_per_core = 1;
    crew_teams(&c);
    uint64_t own = counter_sum(&c, "coll.slots"), lines = counter_sum(&c, "coll.oneshot");
    for (uint32_t root = 0; root < SIZE; root++) {
        bcast_right(&c, 12, root);
        give_blocks(&c, 3);
        EVERYBODY(&c, weft_scatter(me->team, in[r], out[r], 3, WEFT_INT32, root, OP_OF(me)));
        for (uint32_t r = 0; r < SIZE; r++)
            for (uint32_t i = 0; i < 3; i++) CHECK_EQ(out[r][i], root * 100 + r * 10 + i);
        give_blocks(&c, 3);
        EVERYBODY(&c, weft_gather(me->team, in[r], out[r], 12, WEFT_INT32, root, OP_OF(me)));
        for (uint32_t i = 0; i < SIZE * 12; i++)
            CHECK_EQ(out[root][i], i / 12 * 100 + i % 12 / 3 * 10 + i % 3);
        CHECK_EQ(out[(root + 1) % SIZE][0], -1);
        give_blocks(&c, 3);
        EVERYBODY(&c,
                  weft_reduce(me->team, in[r], out[r], 12, WEFT_INT32, WEFT_SUM, root, OP_OF(me)));
        for (uint32_t i = 0; i < 12; i++)
            CHECK_EQ(out[root][i], 6 * 100 + SIZE * (i / 3 * 10 + i % 3));
        CHECK_EQ(out[(root + 1) % SIZE][0], -1);
        EVERYBODY(&c, weft_fanin(me->team, root, OP_OF(me)));
        EVERYBODY(&c, weft_fanout(me->team, root, OP_OF(me)));
    }
    CHECK_EQ(counter_sum(&c, "coll.slots"), own);
    CHECK_EQ(counter_sum(&c, "coll.oneshot") - lines, SIZE * SIZE * 6);
    crew_down(&c);
}

/* By lines: each takes those below it, and a scan its own. Rank 0 of an exscan takes none. */
static void scans_right(struct crew *c, size_t count, bool in_place) {
    for (int own = 0; own < 2; own++) {
        give_blocks(c, count);
        EVERYBODY(c, (own ? weft_scan : weft_exscan)(me->team, in[r], in_place ? in[r] : out[r],
                                                     count, WEFT_INT32, WEFT_SUM, OP_OF(me)));
        for (uint32_t r = 0; r < c->size; r++) {
            const int32_t *got = in_place ? in[r] : out[r];
            uint32_t n = r + (uint32_t)own; /* ranks 0 to n - 1 */
            CHECK_EQ(c->rank[r].outcome, WEFT_OK);
            for (size_t i = 0; i < count && n > 0; i++)
                CHECK_EQ(got[i], (int)(n * (n - 1) / 2 * 100 + n * i));
            if (n == 0) CHECK_EQ(got[0], in_place ? 0 : -1);
            if (!in_place) CHECK_EQ(got[count], -1);
        }
    }
}

TEST(scans_go_by_lines_up_to_all_of_an_annex) {
    struct crew c;
    enum { SIZE = 4 };
    crew_up(&c, SIZE, "self,shm", NULL, NULL);
    static const size_t counts[] = {1, 12, 13, 416, 2048};
    uint64_t lines = counter_sum(&c, "coll.oneshot"), slots = counter_sum(&c, "coll.slots");
    for (size_t i = 0; i < 5; i++)
        for (int in_place = 0; in_place < 2; in_place++) scans_right(&c, counts[i], in_place);
    CHECK_EQ(counter_sum(&c, "coll.oneshot") - lines, SIZE * 5 * 2 * 2);
    CHECK_EQ(counter_sum(&c, "coll.slots"), slots);
    scans_right(&c, 2049, false);
    CHECK_EQ(counter_sum(&c, "coll.slots"), slots + SIZE * 2);
    crew_down(&c);
}

/* The member that writes the last line below another one wakes it. */
TEST(a_scan_ends_where_those_above_have_not_begun) {
    struct crew c;
    int32_t sum[3] = {0}, one = 1;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t r = 1 - k; /* rank 1 is there before rank 0 */
        expect_outcome(&c.rank[r]);
        posted(&c.rank[r], weft_scan(c.rank[r].team, &one, &sum[r], 1, WEFT_INT32, WEFT_SUM,
                                     OP_OF(&c.rank[r])));
        for (int i = 0; i < 20; i++) crew_turn(&c);
        CHECK_EQ(c.rank[1].outcome_calls, (int)k);
    }
    CHECK(sum[0] == 1 && sum[1] == 2 && sum[2] == 0);
    expect_outcome(&c.rank[2]);
    posted(&c.rank[2],
           weft_scan(c.rank[2].team, &one, &sum[2], 1, WEFT_INT32, WEFT_SUM, OP_OF(&c.rank[2])));
    UNTIL(&c, c.rank[2].outcome_calls == 1);
    CHECK_EQ(sum[2], 3);
    crew_down(&c);
}

static void barrier_of(struct crew *c) {
    for (int r = 0; r < 2; r++) {
        expect_outcome(&c->rank[r]);
        posted(&c->rank[r], weft_barrier(c->rank[r].team, OP_OF(&c->rank[r])));
    }
    UNTIL(c, c->rank[0].outcome_calls == 1 && c->rank[1].outcome_calls == 1);
}

/* The other has not begun: the root's lines are full, or its annexes, after `ahead` calls. */
static void run_ahead_by(uint32_t n_words, unsigned ahead, bool after_barrier) {
    struct crew c;
    enum { MOST = 2 * SEGMENT_LINES, WORDS = 64 };
    static int32_t words[MOST][WORDS], got[WORDS];
    struct rank *root = &c.rank[0], *other = &c.rank[1];
    unsigned done = 0, all = 2 * ahead;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    c.ranks_per_core = 1;
    crew_teams(&c);
    if (after_barrier) barrier_of(&c);
    expect_outcome(root);
    for (unsigned i = 0; i < all; i++) {
        words[i][n_words - 1] = 100 + (int32_t)i;
        done += weft_bcast(root->team, words[i], n_words, WEFT_INT32, 0, OP_OF(root)) == WEFT_OK;
    }
    for (int i = 0; i < 100; i++) crew_turn(&c);
    CHECK_EQ(done + (unsigned)root->outcome_calls, ahead);
    for (unsigned i = 0; i < all; i++) {
        expect_outcome(other);
        posted(other, weft_bcast(other->team, got, n_words, WEFT_INT32, 0, OP_OF(other)));
        UNTIL(&c, other->outcome_calls == 1);
        CHECK_EQ(got[n_words - 1], 100 + (int32_t)i);
    }
    UNTIL(&c, done + (unsigned)root->outcome_calls == all);
    crew_down(&c);
}

TEST(a_root_runs_ahead_by_as_many_lines_as_there_are_and_no_further) {
    run_ahead_by(1, SEGMENT_LINES, false);
}

TEST(a_root_runs_ahead_by_as_many_annexes_as_there_are_and_no_further) {
    run_ahead_by(64, SEGMENT_CHANNELS, false);
}

TEST(a_root_runs_ahead_by_one_less_after_a_collective_in_which_each_waits_for_all) {
    run_ahead_by(1, SEGMENT_LINES - 1, true);
    run_ahead_by(64, SEGMENT_CHANNELS - 1, true);
}

static const char by_copies[] =
    "bcast=single_copy,allreduce=single_copy,allgather=single_copy,gather=single_copy";

TEST(members_of_one_host_read_each_others_memory) {
    struct crew c;
    crew_up(&c, 4, "self,shm", "coll.algorithms", by_copies);
    uint64_t before = counter_sum(&c, "coll.messages"), own = counter_sum(&c, "coll.slots");
    for (size_t n = 1; n <= 12000; n = n * 3 + 1) {
        allreduce_right(&c, n, n % 2);
        allgather_right(&c, n, n % 2);
        bcast_right(&c, n, n % 4);
    }
    CHECK_EQ(counter_sum(&c, "coll.single_copy"), 4 * 3 * 9);
    CHECK_EQ(counter_sum(&c, "coll.slots"), own);
    CHECK_EQ(counter_sum(&c, "coll.messages"), before);
    crew_down(&c);
}

/* Its program may write there from now on: what another member copied is not the message. */
TEST(memory_that_was_given_back_is_not_taken_for_a_result) {
    struct crew c;
    static uint8_t from[100000], to[100000];
    weft_request_t *request;
    crew_up(&c, 2, "self,shm", "coll.algorithms", by_copies);
    weft_op_t op = {.done = on_outcome, .arg = &c.rank[0], .request_p = &request};
    expect_outcome(&c.rank[0]);
    CHECK_EQ(weft_bcast(c.rank[0].team, from, sizeof from, WEFT_UINT8, 0, &op), WEFT_IN_PROGRESS);
    weft_request_cancel(request);
    op = (weft_op_t){.done = on_outcome, .arg = &c.rank[1]};
    expect_outcome(&c.rank[1]);
    CHECK(weft_bcast(c.rank[1].team, to, sizeof to, WEFT_UINT8, 0, &op) != WEFT_OK);
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_CANCELLED);
    CHECK(c.rank[1].outcome < 0);
    crew_down(&c);
}

static void note_outcome(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/*
 * One begins them all at once, the others one after the other, in their turns: its lines are
 * full long before theirs.
 * All that a member posts is in progress at a time, and each waits for all: what their lines say of
 * who has left was written before any had.
 */
static void many_in_progress(uint32_t n_words) {
    enum { RANKS = 3, OPS = 2 * SEGMENT_LINES + 3, WORDS = 64 };
    struct crew c;
    static int32_t mine[RANKS][WORDS], sum[RANKS][OPS][WORDS];
    crew_up(&c, RANKS, "self,shm", "coll.algorithms", by_lines);
    for (unsigned r = 0; r < RANKS; r++) {
        mine[r][n_words - 1] = 1 << r;
        for (int i = 0; i < OPS; i++) sum[r][i][n_words - 1] = 0;
        for (int i = 0; i + 1 < OPS; i++)
            CHECK(weft_allreduce(c.rank[r].team, mine[r], sum[r][i], n_words, WEFT_INT32, WEFT_SUM,
                                 NULL) >= 0);
        expect_outcome(&c.rank[r]);
        posted(&c.rank[r], weft_allreduce(c.rank[r].team, mine[r], sum[r][OPS - 1], n_words,
                                          WEFT_INT32, WEFT_SUM, OP_OF(&c.rank[r])));
    }
    for (unsigned r = 0; r < RANKS; r++) UNTIL(&c, c.rank[r].outcome_calls == 1);
    for (unsigned r = 0; r < RANKS; r++)
        for (int i = 0; i < OPS; i++) CHECK_EQ(sum[r][i][n_words - 1], (1 << RANKS) - 1);
    crew_down(&c);
}

TEST(more_collectives_of_all_may_be_in_progress_than_there_are_lines_or_annexes) {
    many_in_progress(1);
    many_in_progress(64);
}

TEST(who_runs_ahead_waits_for_the_lines_of_those_behind) {
    enum { RANKS = 3, OPS = 23 };
    struct crew c;
    static uint64_t sum[RANKS][OPS], mine[RANKS][OPS];
    weft_status_t outcome[RANKS][OPS];
    for (unsigned ahead = 0; ahead < RANKS; ahead++) {
        crew_up(&c, RANKS, "self,shm", "coll.algorithms", by_lines);
        for (int begun[RANKS] = {0}, turn = 0, over = 0; over < RANKS * OPS && turn < 1000000;
             turn++) {
            for (unsigned r = 0; r < RANKS; r++) {
                if (begun[r] == OPS || (r != ahead && begun[r] > 0 && outcome[r][begun[r] - 1] > 0))
                    continue;
                int i = begun[r]++;
                mine[r][i] = (uint64_t)i << 8 | r;
                outcome[r][i] = WEFT_IN_PROGRESS;
                weft_status_t st = weft_allreduce(
                    c.rank[r].team, &mine[r][i], &sum[r][i], 1, WEFT_UINT64, WEFT_SUM,
                    &(weft_op_t){.done = note_outcome, .arg = &outcome[r][i]});
                if (st != WEFT_IN_PROGRESS) outcome[r][i] = st;
            }
            crew_turn(&c);
            over = 0;
            for (unsigned r = 0; r < RANKS; r++)
                for (int i = 0; i < begun[r]; i++) over += outcome[r][i] == WEFT_OK;
        }
        for (unsigned r = 0; r < RANKS; r++)
            for (int i = 0; i < OPS; i++) {
                CHECK_EQ(outcome[r][i], WEFT_OK);
                CHECK_EQ(sum[r][i], RANKS * ((uint64_t)i << 8) + 0 + 1 + 2);
            }
        crew_down(&c);
    }
}

/* ---- types and operations -------------------------------------------------------------------- */

TEST(types_and_operations_reach_the_reduction) {
    struct crew c;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    uint8_t bytes[3][9], result[3][9];
    for (uint32_t r = 0; r < 3; r++)
        for (int i = 0; i < 9; i++) bytes[r][i] = (uint8_t)(1 << r | i << 4);
    EVERYBODY(&c,
              weft_allreduce(me->team, bytes[r], result[r], 9, WEFT_UINT8, WEFT_BOR, OP_OF(me)));
    for (uint32_t r = 0; r < 3; r++)
        for (int i = 0; i < 9; i++) CHECK_EQ(result[r][i], (uint8_t)(7 | i << 4));
    double values[3][5], best[3][5];
    for (uint32_t r = 0; r < 3; r++)
        for (int i = 0; i < 5; i++) values[r][i] = (i + 1) * (r == 1 ? -2.5 : 1.5);
    EVERYBODY(&c,
              weft_allreduce(me->team, values[r], best[r], 5, WEFT_FLOAT64, WEFT_MIN, OP_OF(me)));
    for (uint32_t r = 0; r < 3; r++)
        for (int i = 0; i < 5; i++) CHECK(best[r][i] == (i + 1) * -2.5);
    CHECK_EQ(weft_allreduce(c.rank[0].team, values[0], best[0], 5, WEFT_FLOAT64, WEFT_BAND, NULL),
             WEFT_ERR_UNSUPPORTED);
    crew_down(&c);
}

/* Sums that depend on their order; with the flag, any algorithm gives the bits of the fold by
 * rank. */
static void fixed_order_with(const char *setting, const char *value, size_t count,
                             const char *transports) {
    enum { RANKS = 5 };
    static float part[RANKS][20000], sum[RANKS][20000];
    struct crew c;
    crew_up(&c, RANKS, transports, setting, value);
    for (uint32_t r = 0; r < RANKS; r++)
        for (size_t i = 0; i < count; i++)
            part[r][i] = (r == 1 ? 1e8f : r == 3 ? -1e8f : 0.3f) * (float)(i % 13 + 1);
    EVERYBODY(&c, weft_allreduce(
                      me->team, part[r], sum[r], count, WEFT_FLOAT32, WEFT_SUM,
                      &(weft_op_t){.done = on_outcome, .arg = me, .flags = WEFT_COLL_FIXED_ORDER}));
    for (uint32_t r = 0; r < RANKS; r++)
        for (size_t i = 0; i < count; i++) {
            volatile float want = part[0][i];
            for (uint32_t k = 1; k < RANKS; k++) want = want + part[k][i];
            CHECK(sum[r][i] == want);
        }
    crew_down(&c);
}

TEST(fixed_order_gives_the_same_bits_whatever_the_algorithm) {
    fixed_order_with(NULL, NULL, 100, "self,shm");
    fixed_order_with(NULL, NULL, 20000, "self,shm");
    fixed_order_with("coll.slot", "0", 100, "self,shm");
    fixed_order_with("coll.algorithms", "allreduce=ring,allreduce=doubling", 20000, "self,shm");
    fixed_order_with(NULL, NULL, 500, "self,tcp");
}

/* ---- several at a time ----------------------------------------------------------------------- */

enum { MANY = 40 };
static void many_at_once(const char *transports, const char *setting, const char *value) {
    static int64_t value_of[MOST_RANKS][MANY], sum[MOST_RANKS][MANY];
    struct crew c;
    crew_up(&c, 4, transports, setting, value);
    int done[4] = {0};
    for (uint32_t r = 0; r < 4; r++)
        for (int i = 0; i < MANY; i++) value_of[r][i] = (int64_t)(r + 1) * i;
    /* Rank by rank, so that the first ones run far ahead of the last. */
    for (uint32_t r = 0; r < 4; r++) {
        expect_outcome(&c.rank[r]);
        for (int i = 0; i < MANY; i++) {
            weft_status_t st = i % 3 == 2
                                   ? weft_bcast(c.rank[r].team, &value_of[r][i], 1, WEFT_INT64,
                                                (uint32_t)i % 4, OP_OF(&c.rank[r]))
                                   : weft_allreduce(c.rank[r].team, &value_of[r][i], &sum[r][i], 1,
                                                    WEFT_INT64, WEFT_SUM, OP_OF(&c.rank[r]));
            CHECK(st >= 0);
            if (st == WEFT_OK) done[r]++;
        }
        for (int turn = 0; turn < 20; turn++) crew_turn(&c);
    }
    for (uint32_t r = 0; r < 4; r++) UNTIL(&c, c.rank[r].outcome_calls + done[r] == MANY);
    for (uint32_t r = 0; r < 4; r++)
        for (int i = 0; i < MANY; i++) {
            if (i % 3 == 2)
                CHECK_EQ(value_of[r][i], (int64_t)(i % 4 + 1) * i);
            else
                CHECK_EQ(sum[r][i], 10 * i);
        }
    crew_down(&c);
}

TEST(collectives_in_flight_together_do_not_mix) {
    many_at_once("self,shm", NULL, NULL);
    many_at_once("self,shm", "coll.slot", "0");
    many_at_once("self,tcp", NULL, NULL);
}

TEST(a_root_that_broadcasts_without_end_is_held_back) {
    struct crew c;
    crew_up(&c, 2, "self,shm", "coll.slot", "0");
    expect_outcome(&c.rank[0]);
    int later = 0;
    for (int i = 0; i < 1000; i++) {
        weft_status_t st =
            weft_bcast(c.rank[0].team, &in[0][i], 1, WEFT_INT32, 0, OP_OF(&c.rank[0]));
        CHECK(st >= 0);
        later += st != WEFT_OK;
        if (i % 10 == 0) crew_turn(&c);
    }
    CHECK(later >= 1000 / 32);
    expect_outcome(&c.rank[1]);
    for (int i = 0; i < 1000; i++) {
        weft_status_t st =
            weft_bcast(c.rank[1].team, &in[1][i], 1, WEFT_INT32, 0, OP_OF(&c.rank[1]));
        CHECK(st >= 0);
        if (st == WEFT_OK) c.rank[1].outcome_calls++;
    }
    UNTIL(&c, c.rank[1].outcome_calls == 1000 && c.rank[0].outcome_calls == later);
    crew_down(&c);
}

TEST(two_teams_of_the_same_workers_do_not_mix) {
    struct crew a, b;
    crew_workers(&a, 3, "self,shm", NULL, 0);
    crew_teams(&a);
    b = a;
    for (uint32_t r = 0; r < 3; r++) b.rank[r].crew = &b;
    crew_teams(&b);
    for (int i = 0; i < 5; i++) {
        allreduce_right(&a, 10, false);
        allreduce_right(&b, 20, false);
        for (uint32_t r = 0; r < 3; r++) in[r][0] = (int32_t)r, in[r][100] = (int32_t)(10 * r);
        for (uint32_t r = 0; r < 3; r++) expect_outcome(&a.rank[r]), expect_outcome(&b.rank[r]);
        for (uint32_t r = 0; r < 3; r++) {
            posted(&b.rank[r], weft_allreduce(b.rank[r].team, &in[r][100], &out[r][100], 1,
                                              WEFT_INT32, WEFT_SUM, OP_OF(&b.rank[r])));
            posted(&a.rank[r], weft_allreduce(a.rank[r].team, in[r], out[r], 1, WEFT_INT32,
                                              WEFT_MAX, OP_OF(&a.rank[r])));
        }
        UNTIL(&a, all_notified(&a) && all_notified(&b));
        for (uint32_t r = 0; r < 3; r++) CHECK(out[r][0] == 2 && out[r][100] == 30);
    }
    crew_close_teams(&b);
    allreduce_right(&a, 10, false);
    crew_down(&a);
}

/* ---- what may not be asked ------------------------------------------------------------------- */

TEST(wrong_arguments_are_named) {
    struct crew c;
    char text[400];
    crew_up(&c, 2, "self,shm", NULL, NULL);
    weft_team_t *team = c.rank[0].team;
    int x = 0;
    CHECK_EQ(weft_barrier(NULL, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_bcast(team, &x, 1, WEFT_INT32, 2, NULL), WEFT_ERR_INVALID_PARAM);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    CHECK(strstr(text, "root is 2, not below the team's size, 2"));
    CHECK_EQ(weft_bcast(team, NULL, 1, WEFT_INT32, 0, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_bcast(team, &x, 1, (weft_datatype_t)77, 0, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_allreduce(team, &x, NULL, 1, WEFT_INT32, WEFT_SUM, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_allreduce(team, &x, &x, 1, WEFT_INT32, (weft_reduction_t)99, NULL),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_allgather(team, NULL, &x, 1, WEFT_INT32, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_allgather(team, &x, &x, SIZE_MAX / 2, WEFT_INT32, NULL), WEFT_ERR_TOO_BIG);
    CHECK_EQ(weft_bcast(team, NULL, 0, WEFT_INT32, 0, NULL), WEFT_OK);
    weft_team_t *none;
    CHECK_EQ(weft_team_create(c.rank[0].worker, NULL, &none), WEFT_ERR_INVALID_PARAM);
    weft_exchange_t bad = c.copy_ctl.exchange[0];
    bad.rank = 2;
    CHECK_EQ(weft_team_create(c.rank[0].worker, &(weft_team_params_t){.exchange = &bad}, &none),
             WEFT_ERR_INVALID_PARAM);
    CHECK(weft_team_ep(team, 2) == NULL);
    CHECK(weft_team_ep(team, 1) != NULL);
    CHECK(weft_team_ep(team, 0) != NULL);
    CHECK_EQ(weft_team_size(team), 2);
    CHECK_EQ(weft_team_rank(c.rank[1].team), 1);
    crew_down(&c);
}

/* What would be refused if it counted. */
static weft_coll_args_t with_nonsense(weft_coll_args_t args) {
    enum { IS_SIGNAL = 1, IS_ROOTED = 2, FOLDS = 4, HAS_COUNT = 8 };
    static const int nonsense;
    static const uint8_t has[WEFT_N_COLL_KINDS] = {
        [WEFT_COLL_BARRIER] = IS_SIGNAL,
        [WEFT_COLL_FANIN] = IS_SIGNAL | IS_ROOTED,
        [WEFT_COLL_FANOUT] = IS_SIGNAL | IS_ROOTED,
        [WEFT_COLL_BCAST] = IS_ROOTED | HAS_COUNT,
        [WEFT_COLL_ALLREDUCE] = FOLDS | HAS_COUNT,
        [WEFT_COLL_ALLGATHER] = HAS_COUNT,
        [WEFT_COLL_GATHER] = IS_ROOTED | HAS_COUNT,
        [WEFT_COLL_GATHERV] = IS_ROOTED | HAS_COUNT,
        [WEFT_COLL_SCATTER] = IS_ROOTED | HAS_COUNT,
        [WEFT_COLL_SCATTERV] = IS_ROOTED | HAS_COUNT,
        [WEFT_COLL_REDUCE] = IS_ROOTED | FOLDS | HAS_COUNT,
        [WEFT_COLL_REDUCE_SCATTER] = FOLDS | HAS_COUNT,
        [WEFT_COLL_REDUCE_SCATTERV] = FOLDS,
        [WEFT_COLL_ALLTOALL] = HAS_COUNT,
        [WEFT_COLL_SCAN] = FOLDS | HAS_COUNT,
        [WEFT_COLL_EXSCAN] = FOLDS | HAS_COUNT,
    };
    unsigned its = has[args.kind];
    if (!(its & IS_ROOTED)) args.root = UINT32_MAX;
    if (!(its & FOLDS)) args.reduction = (weft_reduction_t)99;
    if (!(its & HAS_COUNT)) args.count = SIZE_MAX;
    if (args.kind == WEFT_COLL_BCAST) args.src = WEFT_IN_PLACE;
    if (its & IS_SIGNAL) args.type = (weft_datatype_t)77;
    if (its & IS_SIGNAL) args.src = args.dst = WEFT_IN_PLACE;
    if (args.kind != WEFT_COLL_NEIGHBOR_ALLTOALLV) args.graph = (const void *)&nonsense;
    return args;
}

TEST(fields_that_a_kind_does_not_use_are_ignored) {
    enum { N = 3, EACH = 2 };
    static int64_t src[N][2 * N * EACH], dst[N][2 * N * EACH];
    for (int shared = 0; shared < 2; shared++) {
        struct crew c;
        crew_up(&c, N, "self,shm", shared ? NULL : "coll.slot", shared ? NULL : "0");
        for (weft_coll_kind_t kind = 0; kind < WEFT_N_COLL_KINDS; kind++) {
            for (uint32_t r = 0; r < N; r++)
                for (int i = 0; i < 2 * N * EACH; i++) src[r][i] = 1000 * (int64_t)r + i;
            for (uint32_t r = 0; r < N; r++) {
                weft_coll_args_t args =
                    with_nonsense(any_collective(kind, r, N, src[r], dst[r], EACH));
                expect_outcome(&c.rank[r]);
                posted(&c.rank[r], weft_coll(c.rank[r].team, &args, OP_OF(&c.rank[r])));
            }
            UNTIL(&c, all_notified(&c));
            for (uint32_t r = 0; r < N; r++) {
                const int64_t *got = kind == WEFT_COLL_BCAST ? src[r] : dst[r];
                CHECK_EQ(c.rank[r].outcome, WEFT_OK);
                for (uint32_t i = 0; i < EACH && any_has_result(kind, r); i++)
                    CHECK_EQ(got[i], any_result(kind, r, N, EACH, i));
            }
        }
        crew_down(&c);
    }
}

/* Of no size they are all members, whatever else the description says of them. */
TEST(members_of_no_size_are_all_of_them) {
    enum { N = 3 };
    static int64_t one[N], sum[N];
    struct crew c;
    crew_up(&c, N, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < N; r++) {
        struct rank *me = &c.rank[r];
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .type = WEFT_INT64,
                                 .reduction = WEFT_SUM,
                                 .src = &one[r],
                                 .dst = &sum[r],
                                 .count = 1,
                                 .flags = WEFT_COLL_TAGGED,
                                 .tag = 5,
                                 .members = {.start = r, .stride = 7 * r}};
        one[r] = 1;
        expect_outcome(me);
        posted(me, weft_coll(me->team, &args,
                             &(weft_op_t){.done = on_outcome, .arg = me, .deadline_ms = 5000}));
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < N; r++) CHECK(c.rank[r].outcome == WEFT_OK && sum[r] == N);
    crew_down(&c);
}

/* Rank 1 has one neighbour, so it has no block by its own number. */
TEST(neighbours_are_never_in_place) {
    struct crew c;
    crew_up(&c, 2, "self,shm", NULL, NULL);
    uint32_t *other = calloc(1, sizeof *other);
    uint64_t *one = malloc(sizeof *one), *none = calloc(1, sizeof *none);
    weft_neighbors_t graph = {other, other, 1, 1};
    weft_team_t *team = c.rank[1].team;
    int x = 0, y = 0;
    *one = 1;
    CHECK_EQ(weft_neighbor_alltoallv(team, &graph, WEFT_IN_PLACE, one, none, &y, one, none,
                                     WEFT_INT32, NULL),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_neighbor_alltoallv(team, &graph, &x, one, none, WEFT_IN_PLACE, one, none,
                                     WEFT_INT32, NULL),
             WEFT_ERR_INVALID_PARAM);
    free(other), free(one), free(none);
    crew_down(&c);
}

TEST(a_setting_that_does_not_parse_is_refused) {
    static const char *const bad[] = {"x",
                                      "bcast",
                                      "bcast=",
                                      "bcast=ring",
                                      "allreduce:8k=ring",
                                      "bcast=chain,",
                                      "bcast:5-2=chain"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct crew c;
        weft_setting_t one = {"coll.algorithms", bad[i]};
        weft_team_t *team;
        crew_workers(&c, 1, "self", &one, 1);
        copy_ctl_make(&c.copy_ctl, 1);
        CHECK_EQ(weft_team_create(c.rank[0].worker,
                                  &(weft_team_params_t){.exchange = &c.copy_ctl.exchange[0]},
                                  &team),
                 WEFT_ERR_INVALID_PARAM);
        crew_down(&c);
    }
}

/* An older program's description ends earlier; what it lacks is zero. A newer one's has more, which
 * must be zero. */
TEST(descriptions_of_other_versions_are_read) {
    struct crew c;
    int32_t one = 1, sum[2];
    crew_up(&c, 2, "self,shm", NULL, NULL);
    struct {
        weft_coll_args_t args;
        uint64_t more;
    } newer = {.args = {.kind = WEFT_COLL_ALLREDUCE,
                        .src = &one,
                        .count = 1,
                        .type = WEFT_INT32,
                        .reduction = WEFT_SUM}};
    size_t sizes[] = {offsetof(weft_coll_args_t, graph), sizeof newer.args, sizeof newer};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        newer.args.flags = sizes[i] < sizeof newer.args ? UINT32_MAX : 0; /* beyond its end */
        EVERYBODY(&c, (newer.args.dst = &sum[r],
                       weft_coll_sized(sizes[i], me->team, &newer.args, OP_OF(me))));
        CHECK(sum[0] == 2 && sum[1] == 2);
    }
    newer.more = 1;
    CHECK_EQ(weft_coll_sized(sizeof newer, c.rank[0].team, &newer.args, OP_OF(&c.rank[0])),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_coll_wait_sized(sizeof newer, c.rank[0].team, &newer.args),
             WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

/* More parts than there are channels. */
TEST(scans_by_slots_take_more_than_one_part) {
    enum { SIZE = 3, N = 100 };
    static const weft_setting_t settings[] = {{"coll.slot", "64"},
                                              {"coll.algorithms", "scan=slots,exscan=slots"}};
    static int32_t in[SIZE][N], below[SIZE][N];
    struct crew c;
    crew_workers(&c, SIZE, "self,shm", settings, 2);
    crew_teams(&c);
    for (int32_t r = 0; r < SIZE; r++)
        for (int32_t i = 0; i < N; i++) in[r][i] = 1000 * r + i, below[r][i] = -1;
    uint64_t before = counter_sum(&c, "coll.slots");
    EVERYBODY(&c, weft_exscan(me->team, in[r], below[r], N, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    EVERYBODY(&c, weft_scan(me->team, WEFT_IN_PLACE, in[r], N, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    CHECK_EQ(counter_sum(&c, "coll.slots"), before + 2 * SIZE);
    for (int32_t i = 0; i < N; i++) {
        CHECK(below[0][i] == -1 && below[1][i] == i && below[2][i] == 1000 + 2 * i);
        CHECK(in[0][i] == i && in[1][i] == 1000 + 2 * i && in[2][i] == 3000 + 3 * i);
    }
    crew_down(&c);
}
