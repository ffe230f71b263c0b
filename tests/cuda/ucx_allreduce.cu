/*
 * ucx_allreduce FOLDER RANK RANKS BYTES ROUNDS: the allreduce of examples/gpu_allreduce.cu by hand
 * over UCX, for comparison. Each rank writes its address to FOLDER. RANKS is a power of two. Up to
 * 64 KiB it is recursive doubling, above that a ring.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <ucp/api/ucp.h>
#include <vector>

__global__ void fill(float *values, size_t n, float value) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        values[i] = value + i % 7;
}
__global__ void add(float *to, const float *from, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        to[i] += from[i];
}
__global__ void check(const float *values, size_t n, float sum, float ranks, unsigned *wrong) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (values[i] != sum + ranks * (i % 7)) atomicAdd(wrong, 1u);
}

static ucp_worker_h worker;
static std::vector<ucp_ep_h> peers;
static int rank, ranks;

static void must(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "ucx_allreduce: %s\n", what);
    exit(1);
}

static std::string file_of(const std::string &folder, int which) {
    return folder + "/" + std::to_string(which);
}

/* The file has another name until it is whole. */
static void publish(const std::string &folder) {
    ucp_address_t *address;
    size_t len;
    must(ucp_worker_get_address(worker, &address, &len) == UCS_OK, "address");
    std::string name = file_of(folder, rank), partial = name + ".partial";
    std::ofstream(partial, std::ios::binary).write((const char *)address, (std::streamsize)len);
    must(rename(partial.c_str(), name.c_str()) == 0, name.c_str());
    ucp_worker_release_address(worker, address);
}

static ucp_ep_h connect_to(const std::string &folder, int which) {
    std::ifstream file;
    for (int i = 0; i < 3000 && !file.is_open(); i++) {
        file.open(file_of(folder, which), std::ios::binary);
        if (!file.is_open()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::vector<char> address((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    must(!address.empty(), "no address of a peer");
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = (const ucp_address_t *)address.data();
    ucp_ep_h ep;
    must(ucp_ep_create(worker, &params, &ep) == UCS_OK, "endpoint");
    return ep;
}

static void open_worker() {
    ucp_params_t params = {};
    ucp_worker_params_t of_worker = {};
    ucp_context_h context;
    ucp_config_t *config;
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    must(ucp_config_read(nullptr, nullptr, &config) == UCS_OK, "config");
    must(ucp_init(&params, config, &context) == UCS_OK, "context");
    ucp_config_release(config);
    must(ucp_worker_create(context, &of_worker, &worker) == UCS_OK, "worker");
}

static void finish(void *request) {
    if (request == nullptr) return;
    must(!UCS_PTR_IS_ERR(request), "a message");
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
    must(ucp_request_check_status(request) == UCS_OK, "a message");
    ucp_request_free(request);
}

/* Both at once: device memory, or (to synchronise) nothing. */
static void exchange(int to, const void *out, size_t n_out, int from, void *in, size_t n_in, uint64_t step) {
    ucp_request_param_t param = {};
    void *receives = ucp_tag_recv_nbx(worker, in, n_in, step << 8 | (uint64_t)from, ~0ull, &param);
    void *sends = ucp_tag_send_nbx(peers[(size_t)to], out, n_out, step << 8 | (uint64_t)rank, &param);
    finish(sends);
    finish(receives);
}

static void doubling(float *sum, float *room, size_t n, uint64_t step) {
    for (int apart = 1; apart < ranks; apart *= 2, step++) {
        exchange(rank ^ apart, sum, n * 4, rank ^ apart, room, n * 4, step);
        add<<<256, 256>>>(sum, room, n);
        cudaDeviceSynchronize();
    }
}

static void ring(float *sum, float *room, size_t n, uint64_t step) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    auto begin = [&](int part) { return n * (size_t)part / (size_t)ranks; };
    auto size = [&](int part) { return begin(part + 1) - begin(part); };
    for (int i = 0; i < ranks - 1; i++, step++) {
        int out = (rank - i + ranks) % ranks, in = (out - 1 + ranks) % ranks;
        exchange(next, sum + begin(out), size(out) * 4, before, room, size(in) * 4, step);
        add<<<256, 256>>>(sum + begin(in), room, size(in));
        cudaDeviceSynchronize();
    }
    for (int i = 0; i < ranks - 1; i++, step++) {
        int out = (rank + 1 - i + ranks) % ranks, in = (out - 1 + ranks) % ranks;
        exchange(next, sum + begin(out), size(out) * 4, before, sum + begin(in), size(in) * 4, step);
    }
}

int main(int argc, char **argv) {
    must(argc == 6, "FOLDER RANK RANKS BYTES ROUNDS");
    std::string folder = argv[1];
    rank = atoi(argv[2]), ranks = atoi(argv[3]);
    size_t n = std::max<size_t>(strtoull(argv[4], nullptr, 10) / 4, 1);
    int rounds = atoi(argv[5]), devices = 0;
    float *in, *out, *room;
    unsigned *wrong, found = 0;
    std::vector<double> times;
    must(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0, "no GPU here");
    cudaSetDevice(rank % devices);
    must(!cudaMalloc(&in, n * 4) && !cudaMalloc(&out, n * 4) && !cudaMalloc(&room, n * 4) && !cudaMalloc(&wrong, 4), "memory");
    cudaMemset(wrong, 0, 4);
    open_worker();
    publish(folder);
    for (int i = 0; i < ranks; i++) peers.push_back(connect_to(folder, i));
    for (int i = 0; i < rounds; i++) {
        uint64_t step = (uint64_t)i << 8;
        exchange((rank + 1) % ranks, nullptr, 0, (rank + ranks - 1) % ranks, nullptr, 0, step++);
        auto begun = std::chrono::steady_clock::now();
        fill<<<256, 256>>>(in, n, (float)rank);
        cudaMemcpyAsync(out, in, n * 4, cudaMemcpyDeviceToDevice);
        cudaDeviceSynchronize(); /* UCX knows no streams */
        if (n * 4 <= 65536)
            doubling(out, room, n, step);
        else
            ring(out, room, n, step);
        check<<<256, 256>>>(out, n, ranks * (ranks - 1) / 2.0f, (float)ranks, wrong);
        cudaDeviceSynchronize();
        times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count());
    }
    cudaMemcpy(&found, wrong, 4, cudaMemcpyDeviceToHost);
    std::sort(times.begin(), times.end());
    if (rank == 0)
        printf("%zu bytes of each of %d: %.1f us, %u wrong\n", n * 4, ranks, times[times.size() / 2], found);
    for (int i = 0; i < 2; i++) /* none leaves while another still needs an answer */
        exchange((rank + 1) % ranks, nullptr, 0, (rank + ranks - 1) % ranks, nullptr, 0, ((uint64_t)rounds << 8) + (uint64_t)i);
    return found != 0;
}
