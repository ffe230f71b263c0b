/* Open MPI's half round trip of small messages, its average and its median of batches:
 * mpirun -n 2 mpi_pingpong BYTES SECONDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double round_trips(int rank, char *buf, int size, long n) {
    double begin = MPI_Wtime();
    for (long i = 0; i < n; i++) {
        if (rank == 0) MPI_Send(buf, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(buf, size, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(buf, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - begin;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct figures {
    double average, median;
};

/* Of batches of some 5 µs, seconds each. Rank 0 says how many. */
static struct figures measure(int rank, double seconds, double each, char *buf, int size) {
    long plan[2] = {each < 5e-6 ? (long)(5e-6 / each) : 1, 0};
    plan[1] = (long)(seconds / each / (double)plan[0]) + 1;
    MPI_Bcast(plan, 2, MPI_LONG, 0, MPI_COMM_WORLD);
    double *took = malloc((size_t)plan[1] * sizeof *took);
    double sum = 0;
    for (long i = 0; i < plan[1]; i++)
        sum += took[i] = round_trips(rank, buf, size, plan[0]) / (double)plan[0];
    qsort(took, (size_t)plan[1], sizeof *took, by_size);
    struct figures figures = {sum / (double)plan[1], took[plan[1] / 2]};
    free(took);
    return figures;
}

int main(int argc, char **argv) {
    int rank, size = argc > 1 ? atoi(argv[1]) : 8;
    double seconds = argc > 2 ? atof(argv[2]) : 0.3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *buf = calloc(1, (size_t)size + 8);

    double each = round_trips(rank, buf, size, 1000) / 1000;
    struct figures trip = measure(rank, seconds, each, buf, size);
    if (rank == 0)
        printf("mpi am\t%.5g\tus\nmpi am median\t%.5g\tus\n", trip.average * 1e6 / 2,
               trip.median * 1e6 / 2);
    MPI_Finalize();
    return 0;
}
