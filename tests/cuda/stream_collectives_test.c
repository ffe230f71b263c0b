/* Collectives that take their turn in a CUDA stream of the program (weft_op_t.stream). */
#include <tests/collectives/team.h>
#include <tests/cuda/device.h>

enum { RANKS = 2, COUNT = 1000, BYTES = COUNT * 4 };
static GPU_PAGES int32_t before[RANKS][COUNT], value[RANKS][COUNT], out[RANKS][COUNT];
static char *src[RANKS], *dst[RANKS];
static void *stream[RANKS];

static void up(struct crew *c) {
    gpu_load();
    for (uint32_t r = 0; r < RANKS; r++) {
        src[r] = gpu_alloc(BYTES);
        dst[r] = gpu_alloc(BYTES);
        stream[r] = gpu_stream();
        for (int i = 0; i < COUNT; i++) before[r][i] = -1, value[r][i] = (int32_t)(r + 1) * i;
        gpu.write(src[r], before[r], BYTES);
    }
    memset(out, 0, sizeof out);
    gpu_pin(before, sizeof before);
    gpu_pin(value, sizeof value);
    gpu_pin(out, sizeof out);
    crew_up(c, RANKS, "self,shm", NULL, NULL);
}
static void down(struct crew *c) {
    crew_down(c);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(gpu.stream_wait(stream[r]), 0);
        CHECK_EQ(gpu.stream_destroy(stream[r]), 0);
        gpu.release(src[r]);
        gpu.release(dst[r]);
    }
}
static weft_op_t op_in(struct rank *rank, void *in) {
    return (weft_op_t){.done = on_outcome, .arg = rank, .stream = in};
}
static void turns(struct crew *c) {
    for (int i = 0; i < 50; i++) crew_turn(c);
}

/* It reads what the stream writes before it, and later work of the stream reads its result. The
 * program's thread waits for nothing. */
TEST(an_allreduce_takes_its_turn_in_a_stream) {
    struct crew c;
    int go[RANKS];
    up(&c);
    for (uint32_t r = 0; r < RANKS; r++) {
        expect_outcome(&c.rank[r]);
        gpu_block(stream[r], &go[r]);
        gpu_copy(src[r], value[r], BYTES, stream[r]);
        weft_op_t op = op_in(&c.rank[r], stream[r]);
        CHECK_EQ(weft_allreduce(c.rank[r].team, src[r], dst[r], COUNT, WEFT_INT32, WEFT_SUM, &op),
                 WEFT_IN_PROGRESS);
        gpu_copy(out[r], dst[r], BYTES, stream[r]);
    }
    turns(&c);
    CHECK_EQ(c.rank[0].outcome_calls + c.rank[1].outcome_calls, 0);
    gpu_unblock(&go[0]);
    turns(&c);
    CHECK_EQ(c.rank[0].outcome_calls + c.rank[1].outcome_calls, 0);
    gpu_unblock(&go[1]);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK_EQ(gpu.stream_wait(stream[r]), 0);
        for (int i = 0; i < COUNT; i++) CHECK_EQ(out[r][i], 3 * i);
    }
    CHECK(gpu_context_is_as_before());
    down(&c);
}

/* It is the first work of its context. To load kernels the driver waits for the stream, which waits
 * for the collective. */
TEST(the_first_collective_of_a_context_takes_its_turn_in_a_stream) {
    struct crew c;
    gpu_load();
    if (!gpu.context_create) SKIP("only the double of the CUDA driver has a new context");
    void *usual = gpu.context;
    gpu.context = gpu.context_create();
    up(&c);
    for (uint32_t r = 0; r < RANKS; r++) {
        expect_outcome(&c.rank[r]);
        gpu.write(src[r], value[r], BYTES);
        weft_op_t op = op_in(&c.rank[r], stream[r]);
        CHECK_EQ(weft_allreduce(c.rank[r].team, src[r], dst[r], COUNT, WEFT_INT32, WEFT_SUM, &op),
                 WEFT_IN_PROGRESS);
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        gpu.read(out[r], dst[r], BYTES);
        for (int i = 0; i < COUNT; i++) CHECK_EQ(out[r][i], 3 * i);
    }
    down(&c);
    gpu.context = usual;
}

/* Three starts in a row, each behind the copy that feeds it, without a wait in between. */
TEST(a_persistent_collective_is_started_again_in_its_stream) {
    enum { STARTS = 3 };
    static GPU_PAGES int32_t fed[RANKS][STARTS][COUNT], got[RANKS][STARTS][COUNT];
    struct crew c;
    weft_coll_t *coll[RANKS];
    up(&c);
    gpu_pin(fed, sizeof fed);
    gpu_pin(got, sizeof got);
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .src = src[r],
                                 .dst = dst[r],
                                 .count = COUNT,
                                 .type = WEFT_INT32,
                                 .reduction = WEFT_SUM};
        CHECK_EQ(weft_coll_init(c.rank[r].team, &args, 0, &coll[r]), WEFT_OK);
        expect_outcome(&c.rank[r]);
        for (int s = 0; s < STARTS; s++) {
            for (int i = 0; i < COUNT; i++) fed[r][s][i] = (int32_t)(r + 1) * (i + 1000 * s);
            gpu_copy(src[r], fed[r][s], BYTES, stream[r]);
            weft_op_t op = op_in(&c.rank[r], stream[r]);
            CHECK_EQ(weft_coll_start(coll[r], &op), WEFT_IN_PROGRESS);
            gpu_copy(got[r][s], dst[r], BYTES, stream[r]);
        }
    }
    UNTIL(&c, c.rank[0].outcome_calls == STARTS && c.rank[1].outcome_calls == STARTS);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK_EQ(gpu.stream_wait(stream[r]), 0);
        for (int s = 0; s < STARTS; s++)
            for (int i = 0; i < COUNT; i++) CHECK_EQ(got[r][s][i], 3 * (i + 1000 * s));
        CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    }
    down(&c);
}

/* What was freed before the stream got there is not started, and the stream goes on. */
TEST(a_freed_collective_is_not_started_by_its_stream) {
    struct crew c;
    int go;
    weft_coll_t *coll;
    up(&c);
    weft_coll_args_t args = {.kind = WEFT_COLL_BARRIER};
    CHECK_EQ(weft_coll_init(c.rank[0].team, &args, 0, &coll), WEFT_OK);
    expect_outcome(&c.rank[0]);
    gpu_block(stream[0], &go);
    weft_op_t op = op_in(&c.rank[0], stream[0]);
    CHECK_EQ(weft_coll_start(coll, &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_coll_free(coll), WEFT_OK);
    gpu_unblock(&go);
    UNTIL(&c, c.rank[0].outcome_calls == 1);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_CLOSED);
    CHECK_EQ(gpu.stream_wait(stream[0]), 0);
    down(&c);
}

/* ---- forms with arrays, which are the program's again when the call returns ------------------ */

/* Blocks of the two ranks. */
enum { FIRST = 400, SECOND = COUNT - FIRST };
static const uint64_t counts[RANKS] = {FIRST, SECOND};
struct arrays {
    uint64_t n[RANKS], at[RANKS];
    uint32_t other;
    weft_neighbors_t graph;
};

static struct arrays arrays_of(uint32_t rank) {
    return (struct arrays){.n = {FIRST, SECOND}, .at = {0, FIRST}, .other = 1 - rank};
}

/* Who reads it faults. */
static const uint64_t *const of_no_memory = (const uint64_t *)sizeof(uint64_t);

/* Every form, with what it takes of `a`; the root is rank 1. */
static weft_status_t call_form(weft_coll_kind_t kind, struct crew *c, uint32_t r,
                               struct arrays *a) {
    weft_op_t op = op_in(&c->rank[r], stream[r]);
    weft_coll_args_t args = {.kind = kind,
                             .src = src[r],
                             .dst = dst[r],
                             .count = counts[r],
                             .type = WEFT_INT32,
                             .root = 1};
    if (kind == WEFT_COLL_NEIGHBOR_ALLTOALLV) {
        a->graph = (weft_neighbors_t){&a->other, &a->other, 1, 1};
        a->n[0] = COUNT;
        args.graph = &a->graph;
    }
    if (kind == WEFT_COLL_ALLTOALLV) a->n[0] = a->n[1] = COUNT / 2, a->at[1] = COUNT / 2;
    args.src_counts = args.dst_counts = a->n;
    args.src_displs = args.dst_displs = a->at;
    if (kind == WEFT_COLL_REDUCE_SCATTERV) args.src_displs = of_no_memory; /* has none */
    return weft_coll(c->rank[r].team, &args, &op);
}

/* Element i of the result at a rank; -1: it has none, or not this one. */
static int32_t form_result(weft_coll_kind_t kind, uint32_t r, int32_t i) {
    bool of_first = i < FIRST;
    switch (kind) {
    case WEFT_COLL_GATHERV:
        if (r != 1) return -1;
        return of_first ? i : 2 * (i - FIRST);
    case WEFT_COLL_ALLGATHERV: return of_first ? i : 2 * (i - FIRST);
    case WEFT_COLL_SCATTERV:
        if ((uint64_t)i >= counts[r]) return -1;
        return 2 * (r == 0 ? i : i + FIRST);
    case WEFT_COLL_REDUCE_SCATTERV:
        if ((uint64_t)i >= counts[r]) return -1;
        return 3 * (r == 0 ? i : i + FIRST);
    case WEFT_COLL_ALLTOALLV: {
        bool lower = i < COUNT / 2;
        int32_t from = lower ? i : i - COUNT / 2, half = r == 0 ? 0 : COUNT / 2;
        return (lower ? 1 : 2) * (from + half);
    }
    default: return (int32_t)(2 - r) * i; /* the other one's */
    }
}

TEST(forms_with_arrays_take_their_turn_in_a_stream) {
    static const weft_coll_kind_t forms[] = {WEFT_COLL_GATHERV,    WEFT_COLL_SCATTERV,
                                             WEFT_COLL_ALLGATHERV, WEFT_COLL_REDUCE_SCATTERV,
                                             WEFT_COLL_ALLTOALLV,  WEFT_COLL_NEIGHBOR_ALLTOALLV};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        struct crew c;
        int go[RANKS];
        up(&c);
        for (uint32_t r = 0; r < RANKS; r++) {
            struct arrays arrays = arrays_of(r);
            expect_outcome(&c.rank[r]);
            gpu_block(stream[r], &go[r]);
            gpu_copy(src[r], value[r], BYTES, stream[r]);
            gpu_copy(dst[r], before[r], BYTES, stream[r]);
            CHECK_EQ(call_form(forms[f], &c, r, &arrays), WEFT_IN_PROGRESS);
            memset(&arrays, 0xff, sizeof arrays);
            gpu_copy(out[r], dst[r], BYTES, stream[r]);
        }
        for (uint32_t r = 0; r < RANKS; r++) gpu_unblock(&go[r]);
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < RANKS; r++) {
            CHECK_EQ(c.rank[r].outcome, WEFT_OK);
            CHECK_EQ(gpu.stream_wait(stream[r]), 0);
            for (int i = 0; i < COUNT; i++) CHECK_EQ(out[r][i], form_result(forms[f], r, i));
        }
        down(&c);
    }
}

/* What cannot be copied is refused at once; a list of counts that is not there is the outcome. */
TEST(a_wrong_form_with_arrays_leaves_its_stream_free) {
    struct crew c;
    weft_neighbors_t graph = {.n_sources = 1};
    up(&c);
    expect_outcome(&c.rank[0]);
    weft_op_t op = op_in(&c.rank[0], stream[0]);
    weft_coll_args_t args = {.kind = WEFT_COLL_NEIGHBOR_ALLTOALLV, .graph = &graph};
    CHECK_EQ(weft_coll(c.rank[0].team, &args, &op), WEFT_ERR_INVALID_PARAM);
    args = (weft_coll_args_t){.kind = WEFT_N_COLL_KINDS};
    CHECK_EQ(weft_coll(c.rank[0].team, &args, &op), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_allgatherv(c.rank[0].team, src[0], dst[0], NULL, NULL, WEFT_INT32, &op),
             WEFT_IN_PROGRESS);
    UNTIL(&c, c.rank[0].outcome_calls == 1);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(gpu.stream_wait(stream[0]), 0);
    down(&c);
}

/* ---- in a graph ------------------------------------------------------------------------------ */

enum { THREAD_LOCAL = 1 }; /* the capture's mode: calls of other threads are no part of it */

/* Each rank's graph: a copy that feeds the collective, the collective, and a copy of its result. */
static void capture(struct crew *c, weft_coll_t *coll[RANKS], void *exec[RANKS]) {
    for (uint32_t r = 0; r < RANKS; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                                 .src = src[r],
                                 .dst = dst[r],
                                 .count = COUNT,
                                 .type = WEFT_INT32,
                                 .reduction = WEFT_SUM};
        void *graph;
        CHECK_EQ(weft_coll_init(c->rank[r].team, &args, 0, &coll[r]), WEFT_OK);
        expect_outcome(&c->rank[r]);
        CHECK_EQ(gpu.capture_begin(stream[r], THREAD_LOCAL), 0);
        gpu_copy(src[r], value[r], BYTES, stream[r]);
        weft_op_t op = op_in(&c->rank[r], stream[r]);
        CHECK_EQ(weft_coll_start(coll[r], &op), WEFT_OK);
        gpu_copy(out[r], dst[r], BYTES, stream[r]);
        CHECK_EQ(gpu.capture_end(stream[r], &graph), 0);
        CHECK_EQ(gpu.graph_instantiate(&exec[r], graph, 0), 0);
    }
}

/* The program's thread starts nothing and waits for nothing. */
TEST(each_launch_of_a_graph_runs_its_collective_once) {
    enum { LAUNCHES = 3 };
    struct crew c;
    weft_coll_t *coll[RANKS];
    void *exec[RANKS];
    int go[RANKS];
    up(&c);
    capture(&c, coll, exec);
    turns(&c);
    CHECK_EQ(c.rank[0].outcome_calls + c.rank[1].outcome_calls, 0);
    for (int launch = 1; launch <= LAUNCHES; launch++) {
        memset(out, 0, sizeof out);
        for (uint32_t r = 0; r < RANKS; r++) {
            for (int i = 0; i < COUNT; i++) value[r][i] = (int32_t)(r + 1) * i * launch;
            gpu_block(stream[r], &go[r]);
            CHECK_EQ(gpu.graph_launch(exec[r], stream[r]), 0);
        }
        gpu_unblock(&go[0]);
        turns(&c);
        CHECK_EQ(c.rank[0].outcome_calls, launch - 1);
        CHECK(out[0][1] == 0 && out[1][1] == 0);
        gpu_unblock(&go[1]);
        UNTIL(&c, c.rank[0].outcome_calls == launch && c.rank[1].outcome_calls == launch);
        for (uint32_t r = 0; r < RANKS; r++) {
            CHECK_EQ(c.rank[r].outcome, WEFT_OK);
            CHECK_EQ(gpu.stream_wait(stream[r]), 0);
            for (int i = 0; i < COUNT; i++) CHECK_EQ(out[r][i], 3 * i * launch);
        }
    }
    CHECK(gpu_context_is_as_before());
    for (uint32_t r = 0; r < RANKS; r++) CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
    down(&c);
}

/* A launch after the end of the collective, or of the worker, holds no stream. */
TEST(a_graph_outlives_its_collective_and_its_worker) {
    struct crew c;
    weft_coll_t *coll[RANKS];
    void *exec[RANKS];
    up(&c);
    capture(&c, coll, exec);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(weft_coll_free(coll[r]), WEFT_OK);
        CHECK_EQ(gpu.graph_launch(exec[r], stream[r]), 0);
    }
    UNTIL(&c, c.rank[0].outcome_calls == 1 && c.rank[1].outcome_calls == 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_ERR_CLOSED);
        CHECK_EQ(gpu.stream_wait(stream[r]), 0);
    }
    crew_down(&c);
    for (uint32_t r = 0; r < RANKS; r++) {
        CHECK_EQ(gpu.graph_launch(exec[r], stream[r]), 0);
        CHECK_EQ(gpu.stream_wait(stream[r]), 0);
        CHECK_EQ(gpu.stream_destroy(stream[r]), 0);
        gpu.release(src[r]);
        gpu.release(dst[r]);
    }
}

/* The sentence says what would have to be otherwise. */
TEST(what_cannot_be_recorded_is_refused) {
    struct crew c;
    weft_coll_t *coll;
    void *graph;
    up(&c);
    weft_coll_args_t args = {.kind = WEFT_COLL_BARRIER};
    CHECK_EQ(weft_coll_init(c.rank[0].team, &args, 0, &coll), WEFT_OK);
    CHECK_EQ(gpu.capture_begin(stream[0], THREAD_LOCAL), 0);
    weft_op_t op = op_in(&c.rank[0], stream[0]);
    CHECK_EQ(weft_barrier(c.rank[0].team, &op), WEFT_ERR_UNSUPPORTED);
    weft_request_t *request = NULL;
    op.request_p = &request;
    CHECK_EQ(weft_coll_start(coll, &op), WEFT_ERR_UNSUPPORTED);
    op.request_p = NULL;
    if (gpu.captures_waits) {
        *gpu.captures_waits = false;
        CHECK_EQ(weft_coll_start(coll, &op), WEFT_ERR_UNSUPPORTED);
        *gpu.captures_waits = true;
    }
    CHECK_EQ(gpu.capture_end(stream[0], &graph), 0);
    CHECK_EQ(weft_coll_free(coll), WEFT_OK);
    down(&c);
}
