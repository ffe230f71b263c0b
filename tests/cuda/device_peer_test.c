/* Collectives of device memory by peer memory: results against the processor's, persistent ones,
 * mixed members, what is stopped, and what fails; over the double of the driver. */
#include <collectives/peer.h>
#include <collectives/reductions.h>
#include <talloc.h>
#include <tests/collectives/team.h>
#include <tests/cuda/device.h>
#include <tests/support/clock.h>
#include <transports/cuda/kernels.h>

enum { MOST = 4, COUNT = 6000, BYTES = MOST * COUNT * 4 };
static int32_t value[MOST][MOST * COUNT], got[MOST * COUNT];
static char *src[MOST], *dst[MOST];

/* By numbers that depend on all: of a rank, its place and the round. */
static void up(struct crew *c, uint32_t ranks) {
    gpu_load();
    for (uint32_t r = 0; r < ranks; r++) {
        src[r] = gpu_alloc(BYTES);
        dst[r] = gpu_alloc(BYTES);
        for (size_t i = 0; i < MOST * COUNT; i++)
            value[r][i] = (int32_t)(i * 31 + r * 100003) % 1009;
        gpu.write(src[r], value[r], BYTES);
    }
    crew_up(c, ranks, "self,shm", NULL, NULL);
}
static void down(struct crew *c) {
    uint32_t ranks = c->size;
    crew_down(c);
    for (uint32_t r = 0; r < ranks; r++) gpu.release(src[r]), gpu.release(dst[r]);
}
static void all_end(const struct crew *c, weft_status_t status) {
    for (uint32_t r = 0; r < c->size; r++) CHECK_EQ(c->rank[r].outcome, status);
}
static const int32_t *result(uint32_t rank) {
    gpu.read(got, dst[rank], BYTES);
    return got;
}
static int32_t sum(uint32_t ranks, size_t i) {
    int32_t s = 0;
    for (uint32_t r = 0; r < ranks; r++) s += value[r][i];
    return s;
}

static uint64_t counted(const struct crew *c, const char *name) {
    uint64_t all = 0;
    for (uint32_t r = 0; r < c->size; r++) all += weft_worker_count(c->rank[r].worker, name);
    return all;
}

/* ---- results --------------------------------------------------------------------------------- */

static void reduces(struct crew *c, size_t n) {
    uint32_t ranks = c->size;
    EVERYBODY(c, weft_allreduce(me->team, src[r], dst[r], n, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    all_end(c, WEFT_OK);
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < n; i++) CHECK_EQ(result(r)[i], sum(ranks, i));
}

static void each_kind(struct crew *c, size_t n) {
    uint32_t ranks = c->size, root = ranks - 1;
    reduces(c, n);
    EVERYBODY(c, weft_reduce(me->team, src[r], dst[r], n, WEFT_INT32, WEFT_MAX, root, OP_OF(me)));
    for (size_t i = 0; i < n; i++) {
        int32_t most = value[0][i];
        for (uint32_t r = 1; r < ranks; r++) most = value[r][i] > most ? value[r][i] : most;
        CHECK_EQ(result(root)[i], most);
    }
    EVERYBODY(c, weft_reduce_scatter(me->team, src[r], dst[r], n, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < n; i++) CHECK_EQ(result(r)[i], sum(ranks, r * n + i));
    EVERYBODY(c, weft_allgather(me->team, src[r], dst[r], n, WEFT_INT32, OP_OF(me)));
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < ranks * n; i++) CHECK_EQ(result(r)[i], value[i / n][i % n]);
    EVERYBODY(c, weft_alltoall(me->team, src[r], dst[r], n, WEFT_INT32, OP_OF(me)));
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < ranks * n; i++) CHECK_EQ(result(r)[i], value[i / n][r * n + i % n]);
    EVERYBODY(c, weft_gather(me->team, src[r], dst[r], n, WEFT_INT32, root, OP_OF(me)));
    for (size_t i = 0; i < ranks * n; i++) CHECK_EQ(result(root)[i], value[i / n][i % n]);
    EVERYBODY(c, weft_scatter(me->team, src[r], dst[r], n, WEFT_INT32, root, OP_OF(me)));
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < n; i++) CHECK_EQ(result(r)[i], value[root][r * n + i]);
    EVERYBODY(c, weft_scan(me->team, src[r], dst[r], n, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; i < n; i++) CHECK_EQ(result(r)[i], sum(r + 1, i));
    EVERYBODY(c, weft_exscan(me->team, src[r], dst[r], n, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    for (uint32_t r = 1; r < ranks; r++)
        for (size_t i = 0; i < n; i++) CHECK_EQ(result(r)[i], sum(r, i));
    EVERYBODY(c, weft_bcast(me->team, r == root ? src[r] : dst[r], n, WEFT_INT32, root, OP_OF(me)));
    for (uint32_t r = 0; r < ranks; r++)
        for (size_t i = 0; r != root && i < n; i++) CHECK_EQ(result(r)[i], value[root][i]);
}

TEST(devices_read_each_others_memory) {
    bool kernels = gpu_has_kernels();
    for (uint32_t ranks = 2; ranks <= MOST; ranks++) {
        struct crew c;
        up(&c, ranks);
        for (size_t n = 1; n <= COUNT; n = n * 17 + 5) each_kind(&c, n);
        CHECK_EQ(counted(&c, "coll.peer"), 3 * 10 * ranks);
        if (kernels) CHECK_EQ(counted(&c, "coll.staged"), 0);
        CHECK(gpu_context_is_as_before());
        down(&c);
    }
}

/* Large ones, and those in place, reduce pieces and then copy them. */
TEST(an_allreduce_may_be_large_or_in_place) {
    enum { LARGE = 100000 };
    struct crew c;
    up(&c, 3);
    char *large[3];
    int32_t *host = malloc(LARGE * 4);
    for (uint32_t r = 0; r < 3; r++) {
        large[r] = gpu_alloc(LARGE * 4);
        for (size_t i = 0; i < LARGE; i++) host[i] = (int32_t)(i + r);
        gpu.write(large[r], host, LARGE * 4);
    }
    EVERYBODY(&c, weft_allreduce(me->team, WEFT_IN_PLACE, large[r], LARGE, WEFT_INT32, WEFT_SUM,
                                 OP_OF(me)));
    all_end(&c, WEFT_OK);
    for (uint32_t r = 0; r < 3; r++) {
        gpu.read(host, large[r], LARGE * 4);
        for (size_t i = 0; i < LARGE; i++) CHECK_EQ(host[i], (int32_t)(3 * i + 3));
    }
    EVERYBODY(&c, weft_alltoall(me->team, WEFT_IN_PLACE, src[r], 10, WEFT_INT32, OP_OF(me)));
    for (uint32_t r = 0; r < 3; r++) {
        gpu.read(got, src[r], BYTES);
        for (size_t i = 0; i < 30; i++) CHECK_EQ(got[i], value[i / 10][r * 10 + i % 10]);
    }
    for (uint32_t r = 0; r < 3; r++) gpu.release(large[r]);
    free(host);
    down(&c);
}

/* In fixed order a sum of halves is that of the processor, bit by bit; an average is divided. */
TEST(fixed_order_gives_what_the_processor_gives) {
    struct crew c;
    uint16_t half[MOST][100], expected[100], read[100];
    up(&c, MOST);
    for (uint32_t r = 0; r < MOST; r++) {
        for (unsigned i = 0; i < 100; i++) half[r][i] = (uint16_t)(0x3c00 + 37 * i + 11 * r);
        gpu.write(src[r], half[r], sizeof half[r]);
    }
    memcpy(expected, half[0], sizeof expected);
    for (uint32_t r = 1; r < MOST; r++)
        weft__reduction(WEFT_FLOAT16, WEFT_SUM)(expected, expected, half[r], 100);
    weft__scale(WEFT_FLOAT16)(expected, 100, MOST);
    for (uint32_t r = 0; r < MOST; r++) expect_outcome(&c.rank[r]);
    for (uint32_t r = 0; r < MOST; r++) {
        weft_op_t op = *OP_OF(&c.rank[r]);
        op.flags = WEFT_COLL_FIXED_ORDER;
        posted(&c.rank[r],
               weft_allreduce(c.rank[r].team, src[r], dst[r], 100, WEFT_FLOAT16, WEFT_AVG, &op));
    }
    UNTIL(&c, all_notified(&c));
    all_end(&c, WEFT_OK);
    for (uint32_t r = 0; r < MOST; r++) {
        gpu.read(read, dst[r], sizeof read);
        CHECK(memcmp(read, expected, sizeof read) == 0);
    }
    down(&c);
}

/* ---- who has what memory --------------------------------------------------------------------- */

/* The last member's memory is of the host. Further collectives, of host memory and of device
 * memory, are posted while that is not seen yet, and come in their order. */
TEST(members_may_mix_memories_with_more_in_progress) {
    enum { RANKS = 3, N = 500, ROUNDS = 5 };
    struct crew c;
    static int32_t all[RANKS][ROUNDS][N], out[RANKS][ROUNDS][N];
    uint64_t counts[RANKS] = {N / 2, N / 4, N / 4};
    static int32_t gathered[RANKS][N];
    up(&c, RANKS);
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t r = 0; r < RANKS; r++)
            for (int i = 0; i < N; i++) all[r][round][i] = (int32_t)(r + 1) * (round + 1) + i;
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_team_t *team = c.rank[r].team;
        bool host = r + 1 == RANKS;
        for (int round = 0; round < ROUNDS; round++) {
            int32_t *at = (int32_t *)(void *)(src[r] + round * N * 4);
            if (!host) gpu.write(at, all[r][round], N * 4);
            bool here = host || round == 2; /* one of the host's for all */
            CHECK(weft_allreduce(team, here ? all[r][round] : at,
                                 here ? out[r][round] : (void *)(dst[r] + round * N * 4), N,
                                 WEFT_INT32, WEFT_SUM, NULL) >= 0);
        }
        expect_outcome(&c.rank[r]);
        posted(&c.rank[r], weft_allgatherv(team, all[r][0], gathered[r], counts, NULL, WEFT_INT32,
                                           OP_OF(&c.rank[r])));
        for (int turns = 0; turns < 3; turns++) crew_turn(&c);
    }
    memset(counts, 0, sizeof counts);
    UNTIL(&c, all_notified(&c));
    all_end(&c, WEFT_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        for (int round = 0; round < ROUNDS; round++) {
            if (r + 1 < RANKS && round != 2) gpu.read(out[r][round], dst[r] + round * N * 4, N * 4);
            for (int i = 0; i < N; i++) CHECK_EQ(out[r][round][i], 6 * (round + 1) + 3 * i);
        }
    for (int i = 0; i < N; i++)
        CHECK_EQ(gathered[1][i], i < N / 2       ? all[0][0][i]
                                 : i < 3 * N / 4 ? all[1][0][i - N / 2]
                                                 : all[2][0][i - 3 * N / 4]);
    CHECK(counted(&c, "coll.staged") >= 8);
    for (uint32_t r = 0; r < RANKS; r++) gpu.write(src[r], value[r], BYTES);
    reduces(&c, 100);
    down(&c);
}

/* ---- persistent ones, strides ---------------------------------------------------------------- */

TEST(a_persistent_collective_takes_device_memory) {
    enum { RANKS = 3, N = 1000 };
    struct crew c;
    weft_coll_t *coll[RANKS];
    up(&c, RANKS);
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .src = src[r],
                                 .dst = dst[r],
                                 .count = N,
                                 .type = WEFT_INT32,
                                 .reduction = WEFT_SUM};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
    }
    for (int round = 0; round < 6; round++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            value[r][0] = round + (int32_t)r;
            gpu.write(src[r], value[r], BYTES);
        }
        EVERYBODY(&c, weft_coll_start(coll[r], OP_OF(me)));
        all_end(&c, WEFT_OK);
        for (uint32_t r = 0; r < RANKS; r++)
            for (size_t i = 0; i < N; i++) CHECK_EQ(result(r)[i], sum(RANKS, i));
    }
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    down(&c);
}

static uint32_t n_over;
static void count_over(weft_status_t status, void *arg) {
    n_over++;
}

/* A v-form that waits for one before it keeps its arrays until it is over, and no longer. */
TEST(what_a_deferred_collective_keeps_is_freed_with_it) {
    enum { RANKS = 2 };
    static const uint64_t counts[RANKS] = {3, 5};
    static int32_t given[8], taken[RANKS][8];
    struct crew c;
    size_t before = 0;
    up(&c, RANKS);
    for (int round = 0; round < 30; round++) {
        if (round == 10) before = talloc_total_blocks(c.rank[0].team);
        n_over = 0;
        for (uint32_t r = 0; r < RANKS; r++) {
            weft_status_t st = weft_allreduce(c.rank[r].team, src[r], dst[r], 100, WEFT_INT32,
                                              WEFT_SUM, &(weft_op_t){.done = count_over});
            CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
            n_over += st == WEFT_OK;
        }
        EVERYBODY(&c,
                  weft_allgatherv(me->team, given, taken[r], counts, NULL, WEFT_INT32, OP_OF(me)));
        all_end(&c, WEFT_OK);
        UNTIL(&c, n_over == RANKS);
    }
    CHECK(talloc_total_blocks(c.rank[0].team) <= before + 2);
    down(&c);
}

/* One that goes by messages in the end takes the memory of its steps once. */
TEST(starts_that_are_staged_and_go_by_messages_take_no_more_memory) {
    enum { RANKS = 2 };
    struct crew c;
    weft_coll_t *coll[RANKS];
    size_t before = 0;
    up(&c, RANKS);
    crew_close_teams(&c);
    copy_ctl_make(&c.copy_ctl, RANKS);
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_team_params_t params = {.exchange = &c.copy_ctl.exchange[r],
                                     .on_ready = on_team_ready,
                                     .arg = &c.rank[r],
                                     .algorithms =
                                         "allreduce/cuda:0-=staged,allreduce:0-=doubling"};
        c.rank[r].ready = WEFT_IN_PROGRESS;
        CHECK_EQ(weft_team_create(c.rank[r].worker, &params, &c.rank[r].team), WEFT_OK);
    }
    UNTIL(&c, all_ready(&c));
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .src = src[r],
                                 .dst = dst[r],
                                 .count = 100,
                                 .type = WEFT_INT32,
                                 .reduction = WEFT_SUM};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
    }
    for (int round = 0; round < 30; round++) {
        if (round == 10) before = talloc_total_blocks(c.rank[0].team);
        EVERYBODY(&c, weft_coll_start(coll[r], OP_OF(me)));
        all_end(&c, WEFT_OK);
        UNTIL(&c, n_over == RANKS);
    }
    CHECK(talloc_total_blocks(c.rank[0].team) <= before + 2);
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    down(&c);
}

/* Elements a whole number of strides apart are one 3D copy; others a 2D copy each. */
static void gathers_elements(size_t extent, bool in_3d) {
    enum { RANKS = 2, N = 50, ROWS = 4, BLOCK = 8, STRIDE = 24, EXTENT = 120 };
    struct crew c;
    static unsigned char host[RANKS][N * EXTENT], read[RANKS * N * EXTENT];
    const unsigned *copies = dlsym(RTLD_DEFAULT, "double_copies_3d");
    unsigned before = copies ? *copies : 0;
    up(&c, RANKS);
    weft_layout_t layout = {
        .kind = WEFT_LAYOUT_STRIDED, .count = ROWS, .block = BLOCK, .stride = STRIDE};
    weft_datatype_t type[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < sizeof host[r]; i++) host[r][i] = (unsigned char)(i * 7 + r);
        gpu.write(src[r], host[r], sizeof host[r]);
        CHECK_EQ(weft_datatype_create(c.rank[r].team,
                                      &(weft_datatype_params_t){.size = ROWS * BLOCK,
                                                                .layout = &layout,
                                                                .extent = extent},
                                      &type[r]),
                 WEFT_OK);
    }
    EVERYBODY(&c, weft_allgather(me->team, src[r], dst[r], N, type[r], OP_OF(me)));
    all_end(&c, WEFT_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        gpu.read(read, dst[r], sizeof read);
        for (uint32_t from = 0; from < RANKS; from++)
            for (size_t e = 0; e < N; e++)
                for (size_t row = 0; row < ROWS; row++)
                    CHECK(memcmp(read + (from * N + e) * extent + row * STRIDE,
                                 host[from] + e * extent + row * STRIDE, BLOCK) == 0);
    }
    if (copies) CHECK_EQ(*copies > before, in_3d);
    down(&c);
}

TEST(a_strided_type_lies_on_a_device) {
    gathers_elements(100, false);
    gathers_elements(120, true);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* Every call of the driver fails once. Each member gets one named outcome, and the memory is the
 * program's again; the next team works. */
TEST(each_failure_of_the_driver_ends_it_for_all) {
    unsigned *fail = gpu_has_kernels() ? dlsym(RTLD_DEFAULT, "double_fail_launch") : NULL;
    if (!fail) SKIP("only the double of the CUDA driver fails at will");
    for (unsigned nth = 1; nth <= 3; nth++) {
        struct crew c;
        up(&c, 3);
        *fail = nth;
        EVERYBODY(&c,
                  weft_allreduce(me->team, src[r], dst[r], 100, WEFT_INT32, WEFT_SUM, OP_OF(me)));
        CHECK_EQ(*fail, 0);
        all_end(&c, WEFT_ERR_IO);
        CHECK(gpu_context_is_as_before());
        down(&c);
        up(&c, 3);
        reduces(&c, 100);
        down(&c);
    }
}

/* A context that is destroyed, or has a sticky error, ends what uses its memory with one outcome
 * for all; memory of another context works. */
TEST(a_context_that_is_lost_ends_it_for_all) {
    void (*lose[2])(void *context) = {NULL};
    gpu_load();
    if (!gpu.fail_copy) SKIP("only the double of the CUDA driver loses contexts at will");
    *(void **)&lose[0] = dlsym(RTLD_DEFAULT, "double_context_destroy");
    *(void **)&lose[1] = dlsym(RTLD_DEFAULT, "double_context_break");
    for (int i = 0; i < 4; i++) {
        struct crew c;
        void *before = gpu.context;
        gpu.context = gpu.context_create();
        up(&c, 3);
        if (i < 2) reduces(&c, 100); /* its queue is there already, or is not */
        lose[i % 2](gpu.context);
        EVERYBODY(&c,
                  weft_allreduce(me->team, src[r], dst[r], 100, WEFT_INT32, WEFT_SUM, OP_OF(me)));
        all_end(&c, WEFT_ERR_IO);
        CHECK(gpu_context_is_as_before());
        down(&c);
        gpu.context = before;
        up(&c, 3);
        reduces(&c, 100);
        down(&c);
    }
}

/* A kernel that read memory of another context would end its own with an illegal address. */
TEST(members_of_one_process_in_two_contexts_go_by_the_host) {
    struct crew c;
    gpu_load();
    if (!gpu.context_create) SKIP("only the double of the CUDA driver has a new context");
    up(&c, 2);
    gpu.release(src[1]);
    gpu.release(dst[1]);
    void *other = gpu.context_create();
    src[1] = gpu.alloc(other, BYTES, false);
    dst[1] = gpu.alloc(other, BYTES, false);
    gpu.write(src[1], value[1], BYTES);
    reduces(&c, COUNT);
    CHECK_EQ(counted(&c, "coll.staged"), 2);
    down(&c);
}

/* A stream of Weft's own that cannot be made: it goes by the host. */
TEST(without_a_stream_it_goes_by_the_host) {
    unsigned *fail = gpu_has_kernels() ? gpu.fail_alloc : NULL;
    if (!fail) SKIP("only the double of the CUDA driver fails at will");
    struct crew c;
    void *before = gpu.context;
    gpu.context = gpu.context_create();
    up(&c, 3);
    *fail = 1;
    reduces(&c, 100);
    CHECK_EQ(*fail, 0);
    CHECK_EQ(counted(&c, "coll.staged"), 3);
    reduces(&c, 100);
    CHECK_EQ(counted(&c, "coll.staged"), 3);
    down(&c);
    gpu.context = before;
}

/* Stops the device, and lets it go on. */
typedef void (*hold_fn)(bool on);
static hold_fn find_hold(void) {
    hold_fn hold = NULL;
    if (gpu_has_kernels()) *(void **)&hold = dlsym(RTLD_DEFAULT, "double_hold");
    if (!hold) SKIP("only the double of the CUDA driver stops at will");
    return hold;
}

/* Members whose device has stopped in the middle of an allreduce. */
static void up_at_work(struct crew *c, uint32_t n, hold_fn hold) {
    up(c, n);
    hold(true);
    for (uint32_t r = 0; r < n; r++) expect_outcome(&c->rank[r]);
    for (uint32_t r = 0; r < n; r++)
        posted(&c->rank[r], weft_allreduce(c->rank[r].team, src[r], dst[r], 100, WEFT_INT32,
                                           WEFT_SUM, OP_OF(&c->rank[r])));
    for (int turns = 0; turns < 100; turns++) crew_turn(c);
}

/* While a device works, a cancel waits for it: then the memory is the program's. */
TEST(a_cancel_waits_for_devices_at_work) {
    hold_fn hold = find_hold();
    struct crew c;
    weft_request_t *request = NULL;
    up(&c, 3);
    hold(true);
    for (uint32_t r = 0; r < 3; r++) expect_outcome(&c.rank[r]);
    for (uint32_t r = 0; r < 3; r++) {
        weft_op_t op = *OP_OF(&c.rank[r]);
        if (r == 0) op.request_p = &request;
        posted(&c.rank[r],
               weft_allreduce(c.rank[r].team, src[r], dst[r], 100, WEFT_INT32, WEFT_SUM, &op));
    }
    for (int turns = 0; turns < 100; turns++) crew_turn(&c);
    weft_request_cancel(request);
    for (int turns = 0; turns < 100; turns++) crew_turn(&c);
    for (uint32_t r = 0; r < 3; r++) CHECK_EQ(c.rank[r].outcome_calls, 0);
    hold(false);
    UNTIL(&c, all_notified(&c));
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_CANCELLED);
    for (uint32_t r = 1; r < 3; r++) CHECK(c.rank[r].outcome < 0);
    down(&c);
}

/* The context breaks, and the program puts another in its place before the members have asked for
 * the error: the stream at the old address has none, and nothing to do. */
TEST(work_of_a_context_that_was_replaced_has_failed) {
    struct crew c;
    hold_fn hold = find_hold();
    up_at_work(&c, 2, hold);
    gpu.context_break(gpu.context);
    hold(false);
    gpu.context_mend(gpu.context);
    UNTIL(&c, all_notified(&c));
    all_end(&c, WEFT_ERR_IO);
    down(&c);
}

/* So does a close of the team, and it ends. */
TEST(a_close_waits_for_devices_at_work) {
    hold_fn hold = find_hold();
    struct crew c;
    up_at_work(&c, 3, hold);
    struct rank *me = &c.rank[0];
    CHECK_EQ(weft_team_close(me->team, &(weft_op_t){.done = on_closed, .arg = me}),
             WEFT_IN_PROGRESS);
    for (int turns = 0; turns < 100; turns++) crew_turn(&c);
    CHECK(!me->outcome_calls && !me->closed);
    hold(false);
    UNTIL(&c, all_notified(&c) && me->closed);
    CHECK_EQ(me->outcome, WEFT_ERR_CLOSED);
    me->team = NULL;
    down(&c);
}

/* The end of the device's work is an event: until then the worker asks for errors, 50 times a
 * second at most, and for nothing else. */
TEST(a_worker_does_not_poll_a_device_at_work) {
    enum { TURNS = 500 };
    struct crew c;
    hold_fn hold = find_hold();
    const unsigned *queries = dlsym(RTLD_DEFAULT, "double_queries");
    CHECK(queries != NULL);
    up_at_work(&c, 2, hold);
    unsigned before = __atomic_load_n(queries, __ATOMIC_RELAXED);
    double from = test_now();
    for (int i = 0; i < TURNS; i++) crew_turn(&c);
    unsigned n = __atomic_load_n(queries, __ATOMIC_RELAXED) - before;
    CHECK(n <= 4 + (unsigned)((test_now() - from) * 2 * 50));
    CHECK_EQ(c.rank[0].outcome_calls, 0);
    hold(false);
    UNTIL(&c, all_notified(&c));
    all_end(&c, WEFT_OK);
    CHECK_EQ(result(0)[7], sum(2, 7));
    down(&c);
}

/* No device has begun. */
TEST(a_deadline_passes_before_all_have_come) {
    struct crew c;
    up(&c, 3);
    for (uint32_t r = 0; r < 2; r++) {
        expect_outcome(&c.rank[r]);
        weft_op_t op = *OP_OF(&c.rank[r]);
        op.deadline_ms = 30;
        posted(&c.rank[r],
               weft_allreduce(c.rank[r].team, src[r], dst[r], 100, WEFT_INT32, WEFT_SUM, &op));
    }
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    CHECK(c.rank[0].outcome == WEFT_ERR_TIMED_OUT || c.rank[1].outcome == WEFT_ERR_TIMED_OUT);
    down(&c);
}

/* The kernels of the others run on when a member goes, and no memory is returned before. */
TEST(a_member_dies_while_devices_work) {
    hold_fn hold = find_hold();
    struct crew c;
    up_at_work(&c, 3, hold);
    CHECK_EQ(weft_team_revoke(c.rank[2].team), WEFT_OK);
    for (int turns = 0; turns < 100; turns++) crew_turn(&c);
    CHECK_EQ(c.rank[0].outcome_calls + c.rank[1].outcome_calls, 0);
    hold(false);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 3; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_REVOKED);
    down(&c);
}

/* ---- the choice ------------------------------------------------------------------------------ */

TEST(a_row_of_the_settings_names_the_memory) {
    struct choices choices;
    void *parent = talloc_new(NULL);
    struct question q = {
        .kind = COLL_ALLREDUCE, .bytes = 100, .ranks = 4, .peer = true, .memory = COLL_CUDA};
    CHECK_EQ(weft__choices_parse(parent, "", &choices), WEFT_OK);
    CHECK_EQ(weft__choose(&choices, &q), ALGORITHM_PEER);
    CHECK_EQ(weft__choices_parse(parent, "allreduce/cuda:0-64k=staged,allreduce=ring", &choices),
             WEFT_OK);
    CHECK_EQ(weft__choose(&choices, &q), ALGORITHM_STAGED);
    q.bytes = 1 << 20;
    CHECK_EQ(weft__choose(&choices, &q), ALGORITHM_PEER);
    q.memory = COLL_HOST;
    CHECK_EQ(weft__choose(&choices, &q), ALGORITHM_ALLREDUCE_ring);
    weft_status_t st = weft__choices_parse(parent, "allreduce/cuda:0-=ring", &choices);
    CHECK_EQ(st, WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft__choices_parse(parent, "allreduce:0-=peer", &choices), WEFT_ERR_INVALID_PARAM);
    talloc_free(parent);
}
