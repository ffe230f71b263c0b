/*
 * Results that go to GPUs, in C++: each process has a row in the memory of its GPU. The GPU of rank
 * 0 gets the matrix, and the GPU of each process the sums. Builds without CUDA.
 */
#include <dlfcn.h>
#include <functional>
#include <iostream>
#include <vector>
#include <weft/view.hpp>

enum { N = 1000 };

/* The functions of the CUDA driver that a program uses which has device memory. */
template <class F> static F driver(const char *name) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return library ? reinterpret_cast<F>(dlsym(library, name)) : nullptr;
}

static float *device_alloc(std::size_t n) {
    unsigned long long at = 0;
    if (driver<unsigned (*)(unsigned long long *, size_t)>("cuMemAlloc_v2")(&at, n * sizeof(float)))
        throw std::bad_alloc();
    return reinterpret_cast<float *>(at);
}

static bool begin_cuda() {
    void *context;
    auto init = driver<unsigned (*)(unsigned)>("cuInit");
    return init && !init(0) &&
           !driver<unsigned (*)(void **, int)>("cuDevicePrimaryCtxRetain")(&context, 0) &&
           !driver<unsigned (*)(void *)>("cuCtxSetCurrent")(context);
}

int main() try {
    bool has_gpu = begin_cuda(); /* before the view looks for GPUs */
    auto rt = weft::get_runtime();
    if (!rt.reduce(static_cast<int>(has_gpu), weft::minimum<int>())) {
        if (rt.rank() == 0) std::cout << "not every process has a GPU\n";
        return 0;
    }
    std::vector<float> row(N), got(N * rt.size());
    for (int i = 0; i < N; i++) row[i] = static_cast<float>(i * (rt.rank() + 1));
    float *mine = device_alloc(N), *matrix = device_alloc(N * rt.size()), *sums = device_alloc(N);
    driver<unsigned (*)(float *, const void *, size_t)>("cuMemcpyHtoD_v2")(mine, row.data(), 4 * N);

    auto gpu = rt.at(0).gpu(0);
    gpu.gather(mine, N, matrix);
    rt.reduce(mine, sums, N, std::plus<float>());

    auto sharers = rt.count(gpu);
    rt.barrier(); /* no process leaves while others may still look at its resource set */
    if (rt.rank() > 0) return 0;
    auto read = driver<unsigned (*)(void *, const float *, size_t)>("cuMemcpyDtoH_v2");
    read(got.data(), matrix, 4 * got.size());
    read(row.data(), sums, 4 * N);
    std::cout << gpu.name() << ", shared by " << sharers << ": last of the matrix " << got.back()
              << ", last sum " << row.back() << '\n';
} catch (const std::exception &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
