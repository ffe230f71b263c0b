/* Each call of the driver fails in turn during a collective of device memory: by peer memory, by
 * staging buffers, and behind streams. Each member gets one named outcome. The next team works. */
#include <tests/collectives/team.h>
#include <tests/cuda/device.h>

enum { RANKS = 2, COUNT = 20000, BYTES = COUNT * 4 };
static int32_t value[RANKS][COUNT], got[COUNT];
static char *src[RANKS], *dst[RANKS];
static void *stream[RANKS];

struct way {
    const char *transports, *setting, *value;
    bool streamed;
};

static void memory_up(const struct way *way) {
    for (uint32_t r = 0; r < RANKS; r++) {
        src[r] = gpu_alloc(BYTES);
        dst[r] = gpu_alloc(BYTES);
        for (int i = 0; i < COUNT; i++) value[r][i] = (int32_t)(r + 1) * i;
        gpu.write(src[r], value[r], BYTES);
        if (way->streamed) stream[r] = gpu_stream();
    }
}
/* A context that was replaced took its streams along. */
static void memory_down(const struct way *way, bool has_replaced) {
    for (uint32_t r = 0; r < RANKS; r++) {
        if (way->streamed && !has_replaced) CHECK_EQ(gpu.stream_destroy(stream[r]), 0);
        gpu.release(src[r]);
        gpu.release(dst[r]);
    }
}
static void check_result(uint32_t rank) {
    gpu.read(got, dst[rank], BYTES);
    for (int i = 0; i < COUNT; i++) CHECK_EQ(got[i], 3 * i);
}
static bool is_named(weft_status_t status) {
    return status == WEFT_ERR_NO_MEMORY || status == WEFT_ERR_IO || status == WEFT_ERR_CANCELLED ||
           status == WEFT_ERR_PEER_FAILED || status == WEFT_ERR_TIMED_OUT ||
           status == WEFT_ERR_REVOKED;
}

static void run(const struct way *way, unsigned fails) {
    struct crew c;
    *gpu.fail_call = 0;
    memory_up(way);
    crew_up(&c, RANKS, way->transports, way->setting, way->value);
    *gpu.fail_call = fails;
    for (uint32_t r = 0; r < RANKS; r++) expect_outcome(&c.rank[r]);
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_op_t op = {.done = on_outcome, .arg = &c.rank[r]};
        /* the driver does not say that the context of a stream broke before the stream got there */
        if (way->streamed) op.stream = stream[r], op.deadline_ms = *gpu.fail_breaks ? 100 : 0;
        posted(&c.rank[r],
               weft_allreduce(c.rank[r].team, src[r], dst[r], COUNT, WEFT_INT32, WEFT_SUM, &op));
        /* the others would wait for one that was not accepted */
        if (c.rank[r].outcome < 0) (void)weft_team_revoke(c.rank[r].team);
    }
    UNTIL(&c, all_notified(&c));
    for (int i = 0; i < 20; i++) crew_turn(&c);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c.rank[r].outcome_calls, 1);
        if (c.rank[r].outcome == WEFT_OK)
            check_result(r);
        else
            CHECK(is_named(c.rank[r].outcome));
    }
    CHECK(gpu_context_is_as_before());
    bool has_failed = *gpu.fail_call == 0;
    crew_down(&c);
    if (!has_failed) *gpu.fail_call = 1; /* says so to the caller */
    gpu.context_mend(gpu.context);
    memory_down(way, has_failed && *gpu.fail_breaks);
}

static void each_call_fails(const struct way *way) {
    gpu_load();
    if (!gpu.fail_call) SKIP("only the double of the CUDA driver fails at will");
    for (int breaks = 0; breaks < 2; breaks++) {
        unsigned k = 0;
        *gpu.fail_breaks = breaks;
        do run(way, ++k);
        while (*gpu.fail_call == 0);
        CHECK(k > 3);
        *gpu.fail_call = 0;
        *gpu.fail_breaks = false;
        run(way, 0);
    }
}

TEST(a_collective_by_peer_memory_ends_once_whatever_call_of_the_driver_fails) {
    each_call_fails(&(struct way){.transports = "self,shm"});
}
TEST(a_collective_by_staging_buffers_ends_once_whatever_call_of_the_driver_fails) {
    each_call_fails(&(struct way){"self,shm", "cuda.ipc", "off", false});
    each_call_fails(&(struct way){.transports = "self,tcp"});
}
TEST(a_collective_behind_streams_ends_once_whatever_call_of_the_driver_fails) {
    each_call_fails(&(struct way){.transports = "self,shm", .streamed = true});
}
