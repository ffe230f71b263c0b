/* Open MPI's half round trip of small messages: mpirun -n 2 mpi_pingpong BYTES SECONDS */
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

static double reductions(float *x, float *y, int count, long n) {
    double begin = MPI_Wtime();
    for (long i = 0; i < n; i++) MPI_Allreduce(x, y, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return MPI_Wtime() - begin;
}

int main(int argc, char **argv) {
    int rank, size = argc > 1 ? atoi(argv[1]) : 8;
    double seconds = argc > 2 ? atof(argv[2]) : 0.3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *a = calloc(1, (size_t)size + 8), *b = calloc(1, (size_t)size + 8);

    double each = round_trips(rank, a, size, 1000) / 1000;
    long n = (long)(seconds / each) + 1;
    MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    double s = round_trips(rank, a, size, n);
    if (rank == 0) printf("mpi am\t%.5g\tus\n", s * 1e6 / 2 / (double)n);

    each = reductions((float *)a, (float *)b, size / 4, 1000) / 1000;
    n = (long)(seconds / each) + 1;
    MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    s = reductions((float *)a, (float *)b, size / 4, n);
    if (rank == 0) printf("mpi allreduce\t%.5g\tus\n", s * 1e6 / (double)n);
    MPI_Finalize();
    return 0;
}
