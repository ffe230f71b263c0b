/*
 * gpu-allreduce [BYTES [ROUNDS]]: an allreduce of device memory between two kernels of a stream;
 * `weft-run -n 4 gpu-allreduce 1048576`. The program's thread never waits for the device.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <weft/weft.h>

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 0;
}
static int must(cudaError_t error, const char *what) {
    if (error != cudaSuccess) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    return error == cudaSuccess;
}

__global__ void fill(float *values, size_t n, float value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        values[i] = value + i % 7;
}
__global__ void check(const float *values, size_t n, float sum, float ranks, unsigned *wrong) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (values[i] != sum + ranks * (i % 7)) atomicAdd(wrong, 1u);
}

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* One round in the stream; microseconds, or a negative number. */
static double run(weft_team_t *team, weft_worker_t *worker, cudaStream_t stream, float *in, float *out,
                  size_t n, unsigned *wrong) {
    float ranks = weft_team_size(team), rank = weft_team_rank(team);
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_op_t op = {};
    op.done = note;
    op.arg = &outcome;
    op.stream = stream;
    auto begun = std::chrono::steady_clock::now();
    fill<<<256, 256, 0, stream>>>(in, n, rank);
    if (!must(weft_allreduce(team, in, out, n, WEFT_FLOAT32, WEFT_SUM, &op), "allreduce")) return -1;
    check<<<256, 256, 0, stream>>>(out, n, ranks * (ranks - 1) / 2, ranks, wrong);
    while (outcome == WEFT_IN_PROGRESS) weft_worker_progress(worker, 0);
    if (!must(outcome, "allreduce") || !must(cudaStreamSynchronize(stream), "stream")) return -1;
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1 << 20, n = std::max<size_t>(bytes / 4, 1);
    int rounds = std::max(1, argc > 2 ? atoi(argv[2]) : 20), devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU here\n");
        return 0;
    }
    const weft_exchange_t *exchange = weft_run_exchange();
    if (!exchange) return 1;
    float *in, *out;
    unsigned *wrong, found = 0;
    cudaStream_t stream;
    if (!must(cudaSetDevice((int)exchange->rank % devices), "device") || !must(cudaMalloc(&in, n * 4), "memory") ||
        !must(cudaMalloc(&out, n * 4), "memory") || !must(cudaMalloc(&wrong, sizeof *wrong), "memory") ||
        !must(cudaMemset(wrong, 0, sizeof *wrong), "memory") || !must(cudaStreamCreate(&stream), "stream"))
        return 1;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_team_t *team;
    if (!must(weft_context_create(nullptr, &context), "context") ||
        !must(weft_worker_create(context, nullptr, &worker), "worker") ||
        !must(weft_team_create_wait(worker, exchange, &team), "team"))
        return 1;
    std::vector<double> times;
    for (int i = 0; i < rounds; i++) times.push_back(run(team, worker, stream, in, out, n, wrong));
    std::sort(times.begin(), times.end());
    int failed = times.front() < 0 || !must(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost), "copy");
    if (exchange->rank == 0)
        printf("%zu bytes of each of %u: %.1f us, %u wrong, %llu by the host\n", n * 4, exchange->size,
               times[times.size() / 2], found, (unsigned long long)weft_worker_count(worker, "coll.staged"));
    failed |= found != 0 || !must(weft_team_close_wait(team), "close");
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return failed;
}
