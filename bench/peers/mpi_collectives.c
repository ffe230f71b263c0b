/*
 * An MPI library's collectives back to back:
 *     mpirun -n RANKS mpi_collectives OPERATION BYTES SECONDS [fresh]
 *
 * BYTES are those of one rank's contribution: of what it sends to each other rank, for alltoall,
 * and of what each rank receives, for reduce_scatter and scatter. Roots rotate, so that no rank
 * runs ahead. Prints the median of batches of at least 16 operations, in µs. With `fresh` a rank
 * writes what it gives before each operation, and the writing counts.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "written.h"

struct buffers {
    char *in, *out; /* `ranks` times `bytes` each */
    int bytes, ranks, rank;
    bool fresh;
};

typedef void (*operation_fn)(const struct buffers *b, int root);

static void barrier(const struct buffers *b, int root) {
    (void)b, (void)root;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(const struct buffers *b, int root) {
    MPI_Bcast(b->in, b->bytes, MPI_CHAR, root, MPI_COMM_WORLD);
}

static void allreduce(const struct buffers *b, int root) {
    (void)root;
    MPI_Allreduce(b->in, b->out, b->bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(const struct buffers *b, int root) {
    MPI_Reduce(b->in, b->out, b->bytes / 4, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
}

static void reduce_scatter(const struct buffers *b, int root) {
    (void)root;
    MPI_Reduce_scatter_block(b->in, b->out, b->bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(const struct buffers *b, int root) {
    (void)root;
    MPI_Allgather(b->in, b->bytes, MPI_CHAR, b->out, b->bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void alltoall(const struct buffers *b, int root) {
    (void)root;
    MPI_Alltoall(b->in, b->bytes, MPI_CHAR, b->out, b->bytes, MPI_CHAR, MPI_COMM_WORLD);
}

/* Equal blocks, described as if they differed. */
struct blocks {
    int counts[4096], displs[4096];
};
static const struct blocks *blocks_of(const struct buffers *b, int count) {
    static struct blocks blocks;
    for (int r = 0; r < b->ranks; r++) blocks.counts[r] = count, blocks.displs[r] = r * count;
    return &blocks;
}

static void alltoallv(const struct buffers *b, int root) {
    const struct blocks *is = blocks_of(b, b->bytes);
    (void)root;
    MPI_Alltoallv(b->in, is->counts, is->displs, MPI_CHAR, b->out, is->counts, is->displs, MPI_CHAR,
                  MPI_COMM_WORLD);
}

static void allgatherv(const struct buffers *b, int root) {
    const struct blocks *is = blocks_of(b, b->bytes);
    (void)root;
    MPI_Allgatherv(b->in, b->bytes, MPI_CHAR, b->out, is->counts, is->displs, MPI_CHAR,
                   MPI_COMM_WORLD);
}

static void gatherv(const struct buffers *b, int root) {
    const struct blocks *is = blocks_of(b, b->bytes);
    MPI_Gatherv(b->in, b->bytes, MPI_CHAR, b->out, is->counts, is->displs, MPI_CHAR, root,
                MPI_COMM_WORLD);
}

static void scatterv(const struct buffers *b, int root) {
    const struct blocks *is = blocks_of(b, b->bytes);
    MPI_Scatterv(b->in, is->counts, is->displs, MPI_CHAR, b->out, b->bytes, MPI_CHAR, root,
                 MPI_COMM_WORLD);
}

static void reduce_scatterv(const struct buffers *b, int root) {
    (void)root;
    MPI_Reduce_scatter(b->in, b->out, blocks_of(b, b->bytes / 4)->counts, MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD);
}

static void scan(const struct buffers *b, int root) {
    (void)root;
    MPI_Scan(b->in, b->out, b->bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void exscan(const struct buffers *b, int root) {
    (void)root;
    MPI_Exscan(b->in, b->out, b->bytes / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void gather(const struct buffers *b, int root) {
    MPI_Gather(b->in, b->bytes, MPI_CHAR, b->out, b->bytes, MPI_CHAR, root, MPI_COMM_WORLD);
}

static void scatter(const struct buffers *b, int root) {
    MPI_Scatter(b->in, b->bytes, MPI_CHAR, b->out, b->bytes, MPI_CHAR, root, MPI_COMM_WORLD);
}

/* Who gives something: all ranks, or the root; and whether that is a block for each rank. A scan's
 * rank 0 waits for no other, so that a barrier ends each batch. */
static const struct operation {
    const char *name;
    operation_fn run;
    bool root_gives, gives_blocks, runs_ahead;
} operations[] = {
    {"barrier", barrier, false, false, false},
    {"bcast", bcast, true, false, false},
    {"allreduce", allreduce, false, false, false},
    {"reduce", reduce, false, false, false},
    {"reduce_scatter", reduce_scatter, false, true, false},
    {"reduce_scatterv", reduce_scatterv, false, true, false},
    {"gather", gather, false, false, false},
    {"gatherv", gatherv, false, false, false},
    {"scatter", scatter, true, true, false},
    {"scatterv", scatterv, true, true, false},
    {"alltoall", alltoall, false, true, false},
    {"alltoallv", alltoallv, false, true, false},
    {"allgather", allgather, false, false, false},
    {"allgatherv", allgatherv, false, false, false},
    {"scan", scan, false, false, true},
    {"exscan", exscan, false, false, true},
};

static const struct operation *operation_of(const char *name) {
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (strcmp(operations[i].name, name) == 0) return &operations[i];
    fprintf(stderr, "mpi_collectives: no operation %s\n", name);
    exit(2);
}

static void write_given(const struct operation *op, const struct buffers *b, long i) {
    if (op->root_gives && i % b->ranks != b->rank) return;
    write_floats(b->in, (size_t)b->bytes * (size_t)(op->gives_blocks ? b->ranks : 1), i);
}

static double seconds_of(const struct operation *op, const struct buffers *b, long n) {
    double begin = MPI_Wtime();
    for (long i = 0; i < n; i++) {
        if (b->fresh) write_given(op, b, i);
        op->run(b, (int)(i % b->ranks));
    }
    if (op->runs_ahead) MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - begin;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Rank 0 decides how many batches of how many operations. */
static double median_of(const struct operation *op, const struct buffers *b, double limit_s) {
    long warm = b->bytes > 1 << 18 ? 4 : 100;
    double each = seconds_of(op, b, warm) / (double)warm;
    long plan[2] = {each < 5e-6 ? (long)(5e-6 / each) : 1, 0};
    if (plan[0] < 16) plan[0] = 16;
    plan[1] = (long)(limit_s / each / (double)plan[0]) + 1;
    MPI_Bcast(plan, 2, MPI_LONG, 0, MPI_COMM_WORLD);
    double *took = malloc((size_t)plan[1] * sizeof *took);
    for (long i = 0; i < plan[1]; i++) took[i] = seconds_of(op, b, plan[0]) / (double)plan[0];
    qsort(took, (size_t)plan[1], sizeof *took, by_size);
    double median = took[plan[1] / 2];
    free(took);
    return median;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "mpi_collectives OPERATION BYTES SECONDS [fresh]\n"), 2;
    struct buffers b = {.bytes = atoi(argv[2]), .fresh = argc > 4 && strcmp(argv[4], "fresh") == 0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    size_t most = (size_t)b.bytes * (size_t)b.ranks + 64;
    b.in = malloc(most), b.out = malloc(most);
    /* pages that were never written are one page of zeros, which is copied faster (and
     * malloc with zeros is calloc to a compiler) */
    memset(b.in, 1, most), memset(b.out, 1, most);
    double median = median_of(operation_of(argv[1]), &b, atof(argv[3]));
    if (b.rank == 0) printf("mpi %s\t%.5g\tus\n", argv[1], median * 1e6);
    MPI_Finalize();
    return 0;
}
