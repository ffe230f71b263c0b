/*
 * UCC's collectives back to back, between processes of one host:
 *     ucc_collectives OPERATION RANKS BYTES SECONDS [persistent] [fresh]
 *     ucc_collectives team RANKS TIMES
 *
 * BYTES are those of one rank's contribution: of what it sends to each other rank, for alltoall,
 * and of what each rank receives, for reduce_scatter and scatter. Roots rotate, so that no rank
 * runs ahead. Prints the median of batches of at least 16 operations, in µs. With `persistent` an
 * operation is initialised once for each root, and started each time. With `fresh` a rank writes
 * what it gives before each operation, and the writing counts.
 *
 * `team` prints how long a team takes until its last member has it, and a second one of each half,
 * the contexts being there: medians, in ms. Rank and team exchange through memory that all share.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <ucc/api/ucc.h>
#include <unistd.h>

#include "written.h"

enum { RANKS_MOST = 256, RECORD_MOST = 1 << 13, TIMES_MOST = 1000 };

/* ---- what the processes share ---------------------------------------------------------------- */

/* An allgather of records: each rank's round, and its records of this round and the one before. */
struct board {
    _Atomic uint32_t round[RANKS_MOST];
    uint8_t record[2][RANKS_MOST][RECORD_MOST];
};

static struct shared {
    struct board all, half[2];
    _Atomic long batch, n_batches;
    _Atomic uint32_t arrived[RANKS_MOST];
    double made[RANKS_MOST], split[RANKS_MOST];
} * shared;

static uint32_t ranks, rank;
static bool alone_on_core;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void must(ucc_status_t status, const char *what) {
    if (status >= 0) return;
    fprintf(stderr, "ucc_collectives: %s: %s\n", what, ucc_status_string(status));
    _exit(1);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Returns when all ranks are in it. */
static void meet(void) {
    static uint32_t meeting;
    atomic_store(&shared->arrived[rank], ++meeting);
    for (uint32_t r = 0; r < ranks; r++)
        while (atomic_load(&shared->arrived[r]) < meeting) sched_yield();
}

/* ---- the exchange that UCC asks for ---------------------------------------------------------- */

/* A member's view of a board: one allgather at a time. */
struct exchange {
    struct board *board;
    uint32_t member, size, round;
    size_t len;
    void *all;
};

static ucc_status_t post_record(void *mine, void *all, size_t len, void *info, void **request) {
    struct exchange *x = info;
    if (len > RECORD_MOST) return UCC_ERR_NO_MEMORY;
    x->len = len, x->all = all;
    x->round++;
    memcpy(x->board->record[x->round % 2][x->member], mine, len);
    atomic_store(&x->board->round[x->member], x->round);
    *request = x;
    return UCC_OK;
}

static ucc_status_t test_records(void *request) {
    struct exchange *x = request;
    for (uint32_t r = 0; r < x->size; r++) {
        if (atomic_load(&x->board->round[r]) >= x->round) continue;
        sched_yield();
        return UCC_INPROGRESS;
    }
    for (uint32_t r = 0; r < x->size; r++)
        memcpy((char *)x->all + r * x->len, x->board->record[x->round % 2][r], x->len);
    return UCC_OK;
}

static ucc_status_t free_records(void *request) {
    (void)request;
    return UCC_OK;
}

static ucc_oob_coll_t exchange_of(struct exchange *x) {
    return (ucc_oob_coll_t){.allgather = post_record,
                            .req_test = test_records,
                            .req_free = free_records,
                            .coll_info = x,
                            .n_oob_eps = x->size,
                            .oob_ep = x->member};
}

/* ---- contexts and teams ---------------------------------------------------------------------- */

static ucc_context_h create_context(struct exchange *x) {
    ucc_lib_config_h lib_config;
    ucc_context_config_h config;
    ucc_lib_h lib;
    ucc_context_h context;
    ucc_lib_params_t lib_params = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCC_THREAD_SINGLE};
    ucc_context_params_t params = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = exchange_of(x)};
    must(ucc_lib_config_read(NULL, NULL, &lib_config), "lib config");
    must(ucc_init(&lib_params, lib_config, &lib), "init");
    ucc_lib_config_release(lib_config);
    must(ucc_context_config_read(lib, NULL, &config), "context config");
    must(ucc_context_create(lib, &params, config, &context), "context");
    ucc_context_config_release(config);
    return context;
}

static ucc_team_h create_team(ucc_context_h context, struct exchange *x) {
    ucc_team_h team;
    ucc_team_params_t params = {.mask = UCC_TEAM_PARAM_FIELD_OOB | UCC_TEAM_PARAM_FIELD_EP |
                                        UCC_TEAM_PARAM_FIELD_EP_RANGE,
                                .oob = exchange_of(x),
                                .ep = x->member,
                                .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG};
    ucc_status_t status;
    must(ucc_team_create_post(&context, 1, &params, &team), "team");
    while ((status = ucc_team_create_test(team)) == UCC_INPROGRESS) ucc_context_progress(context);
    must(status, "team");
    return team;
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct {
    ucc_context_h context;
    ucc_team_h team;
    char *in, *out; /* `ranks` times `bytes` each */
    size_t bytes;
    bool fresh;
} at;

static ucc_coll_buffer_info_t floats(void *buffer, size_t blocks) {
    return (ucc_coll_buffer_info_t){.buffer = buffer,
                                    .count = blocks * at.bytes / sizeof(float),
                                    .datatype = UCC_DT_FLOAT32,
                                    .mem_type = UCC_MEMORY_TYPE_HOST};
}

/* Blocks that the source and the destination of each kind hold. */
static const struct operation {
    const char *name;
    ucc_coll_type_t type;
    bool all_from, all_to;
} operations[] = {
    {"barrier", UCC_COLL_TYPE_BARRIER, false, false},
    {"bcast", UCC_COLL_TYPE_BCAST, false, false},
    {"allreduce", UCC_COLL_TYPE_ALLREDUCE, false, false},
    {"reduce", UCC_COLL_TYPE_REDUCE, false, false},
    {"reduce_scatter", UCC_COLL_TYPE_REDUCE_SCATTER, true, false},
    {"allgather", UCC_COLL_TYPE_ALLGATHER, false, true},
    {"alltoall", UCC_COLL_TYPE_ALLTOALL, true, true},
    {"gather", UCC_COLL_TYPE_GATHER, false, true},
    {"scatter", UCC_COLL_TYPE_SCATTERV, true, false}, /* UCC has no scatter of host memory */
};

static const struct operation *operation_of(const char *name) {
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (strcmp(operations[i].name, name) == 0) return &operations[i];
    fprintf(stderr, "ucc_collectives: no operation %s\n", name);
    exit(2);
}

/* Equal blocks, described as if they differed. */
static ucc_coll_buffer_info_v_t equal_blocks(void *buffer) {
    static uint32_t count[RANKS_MOST], displacement[RANKS_MOST];
    uint32_t each = (uint32_t)(at.bytes / sizeof(float));
    for (uint32_t r = 0; r < ranks; r++) count[r] = each, displacement[r] = r * each;
    return (ucc_coll_buffer_info_v_t){.buffer = buffer,
                                      .counts = (ucc_count_t *)count,
                                      .displacements = (ucc_aint_t *)displacement,
                                      .datatype = UCC_DT_FLOAT32,
                                      .mem_type = UCC_MEMORY_TYPE_HOST};
}

static ucc_coll_req_h describe(const struct operation *op, uint32_t root, bool persistent) {
    ucc_coll_req_h request;
    ucc_coll_args_t args = {.coll_type = op->type, .op = UCC_OP_SUM, .root = root};
    args.src.info = floats(at.in, op->all_from ? ranks : 1);
    args.dst.info = floats(at.out, op->all_to ? ranks : 1);
    if (op->type == UCC_COLL_TYPE_SCATTERV) args.src.info_v = equal_blocks(at.in);
    if (persistent) {
        args.mask = UCC_COLL_ARGS_FIELD_FLAGS;
        args.flags = UCC_COLL_ARGS_FLAG_PERSISTENT;
    }
    must(ucc_collective_init(&args, &request, at.team), "collective init");
    return request;
}

static void run_to_end(ucc_coll_req_h request) {
    ucc_status_t status;
    must(ucc_collective_post(request), "post");
    while ((status = ucc_collective_test(request)) == UCC_INPROGRESS) {
        ucc_context_progress(at.context);
        if (!alone_on_core) sched_yield();
    }
    must(status, "collective");
}

/* All ranks give something, but in operations where the root has it. */
static void write_given(const struct operation *op, long i) {
    bool of_root = op->type == UCC_COLL_TYPE_BCAST || op->type == UCC_COLL_TYPE_SCATTERV;
    if (of_root && i % ranks != rank) return;
    write_floats(at.in, at.bytes * (op->all_from ? ranks : 1), i);
}

/* Of each root, where they are persistent. */
static ucc_coll_req_h kept[RANKS_MOST];

static double seconds_of(const struct operation *op, long n) {
    double begin = now();
    for (long i = 0; i < n; i++) {
        uint32_t root = (uint32_t)(i % ranks);
        if (at.fresh) write_given(op, i);
        ucc_coll_req_h request = kept[root] ? kept[root] : describe(op, root, false);
        run_to_end(request);
        if (!kept[root]) must(ucc_collective_finalize(request), "finalize");
    }
    return now() - begin;
}

static void check_sum(const struct operation *op) {
    float *in = (float *)at.in;
    if (op->type != UCC_COLL_TYPE_ALLREDUCE) return;
    for (size_t i = 0; i < at.bytes / sizeof *in; i++) in[i] = 1;
    seconds_of(op, 1);
    if (*(float *)at.out == (float)ranks) return;
    fprintf(stderr, "ucc_collectives: the sum is wrong\n");
    _exit(1);
}

/* Rank 0 decides how many batches of how many operations. */
static double median_of(const struct operation *op, double limit_s) {
    long warm = at.bytes > 1 << 18 ? 4 : 100;
    double each = seconds_of(op, warm) / (double)warm;
    if (rank == 0) {
        long batch = each < 5e-6 ? (long)(5e-6 / each) : 1;
        if (batch < 16) batch = 16;
        shared->batch = batch;
        shared->n_batches = (long)(limit_s / each / (double)batch) + 1;
    }
    meet();
    long batch = shared->batch, n = shared->n_batches;
    double *took = malloc((size_t)n * sizeof *took);
    for (long i = 0; i < n; i++) took[i] = seconds_of(op, batch) / (double)batch;
    qsort(took, (size_t)n, sizeof *took, by_size);
    double median = took[n / 2];
    free(took);
    return median;
}

static void measure_operation(const struct operation *op, double limit_s, bool persistent) {
    static struct exchange x;
    x = (struct exchange){.board = &shared->all, .member = rank, .size = ranks};
    size_t most = at.bytes * ranks + 64;
    at.context = create_context(&x);
    at.team = create_team(at.context, &x);
    at.in = malloc(most), at.out = malloc(most);
    /* Pages that were never written are one page of zeros, which is copied faster. */
    memset(at.in, 1, most), memset(at.out, 1, most);
    check_sum(op);
    for (uint32_t r = 0; persistent && r < ranks; r++) kept[r] = describe(op, r, true);
    double median = median_of(op, limit_s);
    if (rank == 0) printf("ucc %s\t%.5g\tus\n", op->name, median * 1e6);
    fflush(stdout);
    meet();
}

/* ---- teams ----------------------------------------------------------------------------------- */

static void measure_teams(void) {
    static struct exchange all, half;
    all = (struct exchange){.board = &shared->all, .member = rank, .size = ranks};
    uint32_t odd = rank % 2;
    half = (struct exchange){&shared->half[odd], rank / 2, (ranks + !odd) / 2, 0, 0, NULL};
    at.context = create_context(&all);
    meet();
    double begin = now();
    at.team = create_team(at.context, &all);
    shared->made[rank] = now() - begin;
    meet();
    begin = now();
    create_team(at.context, &half);
    shared->split[rank] = now() - begin;
    meet();
}

static double longest(const double *of) {
    double most = 0;
    for (uint32_t r = 0; r < ranks; r++)
        if (of[r] > most) most = of[r];
    return most * 1e3;
}

/* ---- processes ------------------------------------------------------------------------------- */

static void pin(void) {
    cpu_set_t allowed, chosen;
    CPU_ZERO(&chosen);
    sched_getaffinity(0, sizeof allowed, &allowed);
    alone_on_core = ranks <= (uint32_t)CPU_COUNT(&allowed);
    if (!alone_on_core) return;
    uint32_t place = rank;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && place-- == 0) CPU_SET(core, &chosen);
    sched_setaffinity(0, sizeof chosen, &chosen);
}

/* Returns true in a child, which is a rank; in the parent when all have ended. */
static bool become_rank(void) {
    memset(shared, 0, sizeof *shared);
    for (rank = 0; rank < ranks; rank++) {
        if (fork() != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin();
        return true;
    }
    int status;
    for (uint32_t r = 0; r < ranks; r++)
        if (wait(&status) < 0 || status != 0) exit(1);
    return false;
}

static int teams(int times) {
    static double made[TIMES_MOST], split[TIMES_MOST];
    if (times < 1 || times > TIMES_MOST) return 2;
    for (int k = 0; k < times; k++) {
        if (become_rank()) measure_teams(), _exit(0);
        made[k] = longest(shared->made), split[k] = longest(shared->split);
    }
    qsort(made, (size_t)times, sizeof *made, by_size);
    qsort(split, (size_t)times, sizeof *split, by_size);
    printf("ucc team\t%.4g\tms\nucc split\t%.4g\tms\n", made[times / 2], split[times / 2]);
    return 0;
}

static bool has_word(char *const *words, const char *word) {
    while (*words && strcmp(*words, word) != 0) words++;
    return *words;
}

int main(int argc, char **argv) {
    bool of_teams = argc > 3 && strcmp(argv[1], "team") == 0;
    if (argc < 5 && !of_teams)
        return fprintf(stderr,
                       "ucc_collectives OPERATION RANKS BYTES SECONDS [persistent] [fresh]\n"),
               2;
    ranks = (uint32_t)atoi(argv[2]);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ranks < 2 || ranks > RANKS_MOST || shared == MAP_FAILED) return 2;
    if (of_teams) return teams(atoi(argv[3]));
    at.bytes = (size_t)atol(argv[3]);
    const struct operation *op = operation_of(argv[1]);
    at.fresh = has_word(argv + 5, "fresh");
    bool persistent = has_word(argv + 5, "persistent");
    if (become_rank()) measure_operation(op, atof(argv[4]), persistent), _exit(0);
    return 0;
}
