/* Which algorithm is taken for what. */
#include <collectives/select.h>
#include <stdlib.h>
#include <talloc.h>
#include <tests/harness.h>
#include <unistd.h>

static unsigned ask(const char *text, struct question question) {
    void *root = talloc_new(NULL);
    struct choices choices;
    CHECK_EQ(weft__choices_parse(root, text, &choices), WEFT_OK);
    unsigned algorithm = weft__choose(&choices, &question);
    talloc_free(root);
    return algorithm;
}

static struct question of(enum coll_kind kind, uint64_t bytes, uint32_t ranks) {
    return (struct question){.kind = kind, .bytes = bytes, .ranks = ranks, .per_core = 1};
}

TEST(every_question_has_an_answer_of_its_kind) {
    static const uint64_t bytes[] = {0, 1, 4096, 65536, 1 << 20, UINT64_C(1) << 40};
    static const uint32_t ranks[] = {1, 2, 3, 8, 100, 5000};
    for (int kind = 0; kind < N_COLL_KINDS; kind++)
        for (unsigned b = 0; b < 6; b++)
            for (unsigned r = 0; r < 6; r++)
                for (unsigned flags = 0; flags < 16; flags++) {
                    struct question q = of((enum coll_kind)kind, bytes[b], ranks[r]);
                    q.slots = flags & 1;
                    q.oneshot = q.slots && flags & 8 && weft__oneshot_fit(q.kind, q.bytes, q.ranks);
                    q.fixed_order = (flags & 2) && kind == COLL_ALLREDUCE;
                    q.per_core = flags & 4 ? 8 : 1;
                    unsigned got = ask("", q);
                    CHECK(got < N_CHOICES);
                    if (got == ALGORITHM_ONESHOT)
                        CHECK(q.oneshot);
                    else if (got == ALGORITHM_SLOTS)
                        CHECK(q.slots);
                    else
                        CHECK(weft__algorithms[got].kind == q.kind);
                    if (got < N_ALGORITHMS && q.fixed_order)
                        CHECK(weft__algorithms[got].fixed_order);
                }
}

/* No row fits a question of no ranks. */
TEST(the_last_of_its_kind_is_the_answer_where_no_row_fits) {
    for (int kind = 0; kind < N_COLL_KINDS; kind++) {
        struct question q = of((enum coll_kind)kind, 0, 0);
        unsigned got = ask("", q);
        CHECK(got < N_ALGORITHMS);
        CHECK(weft__algorithms[got].kind == q.kind);
        q.memory = COLL_CUDA;
        CHECK_EQ(ask("", q), ALGORITHM_STAGED);
    }
}

TEST(the_setting_comes_before_the_table) {
    struct question q = of(COLL_ALLREDUCE, 8, 4);
    q.slots = true;
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
    q.oneshot = true;
    CHECK_EQ(ask("", q), ALGORITHM_ONESHOT);
    CHECK_EQ(ask("allreduce=slots", q), ALGORITHM_SLOTS);
    q.per_core = 2;
    CHECK_EQ(ask("", q), ALGORITHM_ONESHOT);
    CHECK_EQ(ask("allreduce=slots", q), ALGORITHM_SLOTS);
    q.bytes = 2049; /* too much for each to fold where they share cores */
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
    CHECK_EQ(ask("allreduce=oneshot", q), ALGORITHM_ONESHOT);
    q.per_core = 1;
    CHECK_EQ(ask("", q), ALGORITHM_ONESHOT);
    q.bytes = 4097;
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
    q.bytes = 8;
    q.oneshot = false;
    CHECK_EQ(ask("allreduce=oneshot", q), ALGORITHM_SLOTS);
    q.per_core = 1;
    CHECK_EQ(ask("allreduce=ring", q), ALGORITHM_ALLREDUCE_ring);
    CHECK_EQ(ask("allreduce:9-=ring", q), ALGORITHM_SLOTS);
    CHECK_EQ(ask("allreduce:-8=ring", q), ALGORITHM_ALLREDUCE_ring);
    CHECK_EQ(ask("allreduce@5-=ring", q), ALGORITHM_SLOTS);
    CHECK_EQ(ask("bcast=chain,allreduce@2-4:0-1k=doubling,allreduce=ring", q),
             ALGORITHM_ALLREDUCE_doubling);
    q.bytes = 1025;
    CHECK_EQ(ask("allreduce@2-4:0-1k=doubling,allreduce=ring", q), ALGORITHM_ALLREDUCE_ring);
    q.fixed_order = true;
    CHECK_EQ(ask("allreduce=ring,allreduce=fold", q), ALGORITHM_ALLREDUCE_fold);
    q.slots = false;
    CHECK_EQ(ask("allreduce=slots", q), ALGORITHM_ALLREDUCE_fold);
}

/* Of a v-form each member has bytes of its own: they must not choose by them. */
TEST(members_of_a_v_form_choose_the_same_whatever_their_bytes) {
    struct question q = of(COLL_ALLGATHERV, 8, 4);
    CHECK_EQ(ask("allgatherv:1k-=linear,allgatherv:-1k=ring", q), ALGORITHM_ALLGATHERV_linear);
    q.bytes = 4096;
    CHECK_EQ(ask("allgatherv:1k-=linear,allgatherv:-1k=ring", q), ALGORITHM_ALLGATHERV_linear);
    CHECK_EQ(ask("allgatherv@5-=linear,allgatherv:-1k=ring", q), ALGORITHM_ALLGATHERV_ring);
}

/* A line; an annex, which larger teams have not; and those with a block for each. */
TEST(lines_fit_as_much_as_a_line_or_an_annex_has) {
    CHECK(weft__oneshot_fit(COLL_BARRIER, 1 << 30, 2));
    CHECK(weft__oneshot_fit(COLL_ALLREDUCE, 8192, 16));
    CHECK(!weft__oneshot_fit(COLL_ALLREDUCE, 8193, 16));
    CHECK(weft__oneshot_fit(COLL_ALLTOALL, 512, 16));
    CHECK(!weft__oneshot_fit(COLL_ALLTOALL, 513, 16));
    CHECK(weft__oneshot_fit(COLL_ALLREDUCE, 48, 17));
    CHECK(!weft__oneshot_fit(COLL_ALLREDUCE, 49, 17));
    CHECK(!weft__oneshot_fit(COLL_SCATTERV, 8, 2));
}

TEST(some_rows_are_for_powers_of_two_alone) {
    struct question q = of(COLL_ALLREDUCE, 1 << 20, 4);
    CHECK_EQ(ask("", q), ALGORITHM_ALLREDUCE_rabenseifner);
    q.ranks = 6;
    CHECK_EQ(ask("", q), ALGORITHM_ALLREDUCE_ring);
    q.bytes = 64 << 10;
    CHECK_EQ(ask("", q), ALGORITHM_ALLREDUCE_rabenseifner);
    q = of(COLL_ALLGATHER, 8, 3);
    CHECK_EQ(ask("", q), ALGORITHM_ALLGATHER_bruck);
    q.ranks = 4;
    CHECK_EQ(ask("", q), ALGORITHM_ALLGATHER_doubling);
}

TEST(ranks_that_share_cores_read_what_all_have_exposed_sooner) {
    struct question q = of(COLL_ALLREDUCE, 64 << 10, 4);
    q.per_core = 2;
    q.slots = q.single_copy = true;
    q.single_least = 16 << 10;
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
    q.exposed = true;
    CHECK_EQ(ask("", q), ALGORITHM_SINGLE_COPY);
    q.per_core = 4;
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
    q.bytes = 128 << 10;
    CHECK_EQ(ask("", q), ALGORITHM_SINGLE_COPY);
    q.single_copy = false;
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
}

TEST(ranks_that_share_cores_read_the_blocks_of_an_alltoall_whosever_they_are) {
    struct question q = of(COLL_ALLTOALL, 64 << 10, 4);
    q.per_core = 2;
    q.slots = q.single_copy = true;
    q.single_least = 16 << 10;
    CHECK_EQ(ask("", q), ALGORITHM_SINGLE_COPY);
    q.bytes = 8 << 10;
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
    q.bytes = 64 << 10;
    q.single_copy = false;
    CHECK_EQ(ask("", q), ALGORITHM_SLOTS);
}

/* Every member has to take the same, and knows its own bytes only. */
TEST(an_alltoallv_of_many_ranks_between_hosts_goes_by_hierarchy) {
    struct question q = of(COLL_ALLTOALLV, 8, 128);
    CHECK_EQ(ask("", q), ALGORITHM_ALLTOALLV_linear);
    q.by_host = true;
    CHECK_EQ(ask("", q), ALGORITHM_ALLTOALLV_hierarchy);
    q.bytes = 64 << 20;
    CHECK_EQ(ask("", q), ALGORITHM_ALLTOALLV_hierarchy);
    q.asks_nothing = true;
    CHECK_EQ(ask("", q), ALGORITHM_ALLTOALLV_linear);
    q.asks_nothing = false;
    q.ranks = 127;
    CHECK_EQ(ask("", q), ALGORITHM_ALLTOALLV_linear);
}

TEST(a_kilobyte_is_1024_bytes_and_a_megabyte_its_square) {
    CHECK_EQ(ask("barrier:1k-=tree", of(COLL_BARRIER, 1024, 2)), ALGORITHM_BARRIER_tree);
    CHECK_EQ(ask("barrier:1k-=tree", of(COLL_BARRIER, 1023, 2)), ALGORITHM_BARRIER_dissemination);
    CHECK_EQ(ask("barrier:1m-=tree", of(COLL_BARRIER, 1 << 20, 2)), ALGORITHM_BARRIER_tree);
    CHECK_EQ(ask("barrier:1m-=tree", of(COLL_BARRIER, (1 << 20) - 1, 2)),
             ALGORITHM_BARRIER_dissemination);
}

TEST(a_file_of_choices_comes_after_the_setting) {
    char name[] = "/tmp/weft-choices-XXXXXX";
    int fd = mkstemp(name);
    static const char lines[] = "# measured\nbarrier=tree, \n\n  allreduce:-1k=ring # short\n";
    CHECK_EQ(write(fd, lines, sizeof lines - 1), sizeof lines - 1);
    close(fd);
    void *root = talloc_new(NULL);
    struct choices choices;
    CHECK_EQ(weft__choices_read(root, "allreduce:-8=doubling", name, &choices), WEFT_OK);
    struct question q = of(COLL_ALLREDUCE, 8, 4);
    CHECK_EQ(weft__choose(&choices, &q), ALGORITHM_ALLREDUCE_doubling);
    q.bytes = 9;
    CHECK_EQ(weft__choose(&choices, &q), ALGORITHM_ALLREDUCE_ring);
    q = of(COLL_BARRIER, 0, 4);
    CHECK_EQ(weft__choose(&choices, &q), ALGORITHM_BARRIER_tree);
    CHECK_EQ(weft__choices_read(root, "", "/no-such-file", &choices), WEFT_ERR_IO);
    unlink(name);
    talloc_free(root);
}

TEST(nonsense_is_refused_and_nothing_is_read_beyond_its_end) {
    static const char *const bad[] = {",",
                                      "=",
                                      "barrier",
                                      "barrier=",
                                      "barrier=trees",
                                      "barrier@=tre",
                                      "barrier@0-99999999999=tree",
                                      "barrier:1-2",
                                      "barrier:1-2=",
                                      "barrier:2-1=tree",
                                      "barrier=tree,",
                                      "barrier=tree;bcast=chain",
                                      "barriers=tree",
                                      "bcast=tree",
                                      "scatterv=oneshot",
                                      "barrier:99999999999999999999-=tree",
                                      " barrier=tree"};
    void *root = talloc_new(NULL);
    struct choices choices;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_status_t st = weft__choices_parse(root, bad[i], &choices);
        if (st != WEFT_ERR_INVALID_PARAM) printf("  taken: %s\n", bad[i]);
        CHECK_EQ(st, WEFT_ERR_INVALID_PARAM);
    }
    /* Every beginning of a right text is an answer or a refusal. */
    static const char right[] = "allreduce@2-4:0-1k=doubling,bcast:1m-=chain,barrier=slots";
    for (size_t len = 0; len < sizeof right; len++) {
        char *text = talloc_strndup(root, right, len);
        weft_status_t st = weft__choices_parse(root, text, &choices);
        CHECK(st == WEFT_OK || st == WEFT_ERR_INVALID_PARAM);
    }
    talloc_free(root);
}
