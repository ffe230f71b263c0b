/* Collectives whose buffers lie on a device, over a double of the driver whose memory the host
 * cannot touch. Members may mix device and host memory. */
#include <tests/collectives/team.h>
#include <tests/cuda/device.h>

enum { RANKS = 3, MOST_COUNT = 20000 };
static const char *const ways[][3] = {
    {"self,shm", NULL, NULL}, {"self,shm", "coll.slot", "0"}, {"self,tcp", NULL, NULL}};
static const size_t counts[] = {1, 100, MOST_COUNT};

static int32_t host[RANKS][RANKS * MOST_COUNT], result[RANKS * MOST_COUNT];
static int32_t *src[RANKS], *dst[RANKS];

static int32_t value(uint32_t rank, size_t i) {
    return (int32_t)(1000000 * (rank + 1) + i);
}

/* The last member's buffers lie on the host, the others' on the device. */
static bool on_device(uint32_t rank) {
    return rank + 1 < RANKS;
}

static void buffers_up(void) {
    size_t bytes = sizeof host[0];
    gpu_load();
    for (uint32_t r = 0; r < RANKS; r++) {
        src[r] = on_device(r) ? (int32_t *)(void *)gpu_alloc(bytes) : malloc(bytes);
        dst[r] = on_device(r) ? (int32_t *)(void *)gpu_alloc(bytes) : malloc(bytes);
        for (size_t i = 0; i < RANKS * MOST_COUNT; i++) host[r][i] = value(r, i);
        if (on_device(r))
            gpu.write(src[r], host[r], bytes);
        else
            memcpy(src[r], host[r], bytes);
    }
}
static void buffers_down(void) {
    for (uint32_t r = 0; r < RANKS; r++) {
        if (on_device(r)) gpu.release(src[r]), gpu.release(dst[r]);
        if (!on_device(r)) free(src[r]), free(dst[r]);
    }
}

/* What lies in DST of that member. */
static const int32_t *result_of(uint32_t rank, size_t n) {
    if (!on_device(rank)) return dst[rank];
    gpu.read(result, dst[rank], n * sizeof *result);
    return result;
}

static void all_ended_well(const struct crew *c) {
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(c->rank[r].outcome, WEFT_OK);
}

static void reduces(struct crew *c, size_t n) {
    EVERYBODY(c, weft_allreduce(me->team, src[r], dst[r], n, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    all_ended_well(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        const int32_t *got = result_of(r, n);
        for (size_t i = 0; i < n; i++) CHECK_EQ(got[i], value(0, i) + value(1, i) + value(2, i));
    }
}

static void gathers(struct crew *c, size_t n) {
    EVERYBODY(c, weft_allgather(me->team, src[r], dst[r], n, WEFT_INT32, OP_OF(me)));
    all_ended_well(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        const int32_t *got = result_of(r, RANKS * n);
        for (size_t i = 0; i < RANKS * n; i++) CHECK_EQ(got[i], value((uint32_t)(i / n), i % n));
    }
}

static void exchanges(struct crew *c, size_t n) {
    EVERYBODY(c, weft_alltoall(me->team, src[r], dst[r], n, WEFT_INT32, OP_OF(me)));
    all_ended_well(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        const int32_t *got = result_of(r, RANKS * n);
        for (size_t i = 0; i < RANKS * n; i++)
            CHECK_EQ(got[i], value((uint32_t)(i / n), r * n + i % n));
    }
}

static void scatters(struct crew *c, size_t n) {
    EVERYBODY(c, weft_reduce_scatter(me->team, src[r], dst[r], n, WEFT_INT32, WEFT_MAX, OP_OF(me)));
    all_ended_well(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        const int32_t *got = result_of(r, n);
        for (size_t i = 0; i < n; i++) CHECK_EQ(got[i], value(RANKS - 1, r * n + i));
    }
}

static void broadcasts(struct crew *c, size_t n) {
    EVERYBODY(c, weft_bcast(me->team, r == 1 ? src[r] : dst[r], n, WEFT_INT32, 1, OP_OF(me)));
    all_ended_well(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        if (r == 1) continue;
        const int32_t *got = result_of(r, n);
        for (size_t i = 0; i < n; i++) CHECK_EQ(got[i], value(1, i));
    }
}

TEST(collectives_take_device_memory) {
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct crew c;
        buffers_up();
        crew_up(&c, RANKS, ways[i][0], ways[i][1], ways[i][2]);
        for (unsigned k = 0; k < sizeof counts / sizeof *counts; k++) {
            reduces(&c, counts[k]);
            gathers(&c, counts[k]);
            exchanges(&c, counts[k]);
            scatters(&c, counts[k]);
            broadcasts(&c, counts[k]);
        }
        CHECK(gpu_context_is_as_before());
        crew_down(&c);
        buffers_down();
    }
}

/* v-forms, and members of several hosts (tcp), are staged again at each start. */
static void exchanges_persistently(struct crew *c, size_t n) {
    static uint64_t there[RANKS], here[RANKS][RANKS];
    weft_coll_t *coll[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) there[r] = n * (r + 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t from = 0; from < RANKS; from++) here[r][from] = there[r];
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLTOALLV,
                                 .src = src[r],
                                 .dst = dst[r],
                                 .src_counts = there,
                                 .dst_counts = here[r],
                                 .type = WEFT_INT32};
        CHECK_EQ(weft_coll_init(c->rank[r].team, &args, 0, &coll[r]), WEFT_OK);
    }
    for (int round = 0; round < 3; round++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < 6 * n; i++) host[r][i] = value(r, i) + round;
            if (on_device(r)) gpu.write(src[r], host[r], 6 * n * sizeof **host);
            if (!on_device(r)) memcpy(src[r], host[r], 6 * n * sizeof **host);
        }
        EVERYBODY(c, weft_coll_start(coll[r], OP_OF(me)));
        all_ended_well(c);
        for (uint32_t r = 0; r < RANKS; r++) {
            size_t block = n * (r + 1), first = r == 0 ? 0 : r == 1 ? n : 3 * n;
            const int32_t *got = result_of(r, RANKS * block);
            for (size_t i = 0; i < RANKS * block; i++)
                CHECK_EQ(got[i], value((uint32_t)(i / block), first + i % block) + round);
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
}
TEST(persistent_ones_of_device_memory_are_staged_at_each_start) {
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct crew c;
        buffers_up();
        crew_up(&c, RANKS, ways[i][0], ways[i][1], ways[i][2]);
        exchanges_persistently(&c, 1);
        exchanges_persistently(&c, 3000);
        CHECK(gpu_context_is_as_before());
        crew_down(&c);
        buffers_down();
    }
}

/* A copy that fails ends the collective for all, since the others cannot finish it. */
TEST(a_copy_that_fails_ends_the_collective) {
    struct crew c;
    gpu_load();
    if (!gpu.fail_copy) SKIP("only the double of the CUDA driver fails at will");
    buffers_up();
    crew_up(&c, RANKS, "self,shm", NULL, NULL);
    *gpu.fail_copy = 1;
    EVERYBODY(&c, weft_allreduce(me->team, src[r], dst[r], 10, WEFT_INT32, WEFT_SUM, OP_OF(me)));
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_IO);
    crew_down(&c);
    crew_up(&c, RANKS, "self,shm", NULL, NULL);
    reduces(&c, 100);
    crew_down(&c);
    buffers_down();
}
