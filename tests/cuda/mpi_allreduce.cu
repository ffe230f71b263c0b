/* mpi_allreduce BYTES ROUNDS: the allreduce of examples/gpu_allreduce.cu by MPI, for comparison. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#include <vector>

__global__ void fill(float *values, size_t n, float value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x)
        values[i] = value + i % 7;
}
__global__ void check(const float *values, size_t n, float sum, float ranks, unsigned *wrong) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x)
        if (values[i] != sum + ranks * (i % 7)) atomicAdd(wrong, 1u);
}

int main(int argc, char **argv) {
    size_t n = std::max<size_t>(strtoull(argv[1], nullptr, 10) / 4, 1);
    int rounds = atoi(argv[2]), rank, ranks, devices = 0;
    float *in, *out;
    unsigned *wrong, found = 0;
    std::vector<double> times;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 1;
    cudaSetDevice(rank % devices);
    if (cudaMalloc(&in, n * 4) || cudaMalloc(&out, n * 4) || cudaMalloc(&wrong, 4)) return 1;
    cudaMemset(wrong, 0, 4);
    for (int i = 0; i < rounds; i++) {
        double begun = MPI_Wtime();
        fill<<<256, 256>>>(in, n, (float)rank);
        cudaDeviceSynchronize(); /* MPI knows no streams */
        MPI_Allreduce(in, out, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        check<<<256, 256>>>(out, n, ranks * (ranks - 1) / 2.0f, (float)ranks, wrong);
        cudaDeviceSynchronize();
        times.push_back((MPI_Wtime() - begun) * 1e6);
    }
    cudaMemcpy(&found, wrong, 4, cudaMemcpyDeviceToHost);
    std::sort(times.begin(), times.end());
    if (rank == 0)
        printf("%zu bytes of each of %d: %.1f us, %u wrong\n", n * 4, ranks, times[times.size() / 2],
               found);
    MPI_Finalize();
    return found != 0;
}
