/* Device memory whose bytes show where they belong. */
#ifndef WEFT_TESTS_CUDA_PATTERNS_H
#define WEFT_TESTS_CUDA_PATTERNS_H

#include <tests/cuda/device.h>
#include <tests/support/worker_pair.h>

static inline char *filled(size_t len, unsigned seed) {
    char *device = gpu_alloc(len), *host = malloc(len);
    CHECK(host != NULL);
    pattern(host, len, seed);
    gpu.write(device, host, len);
    free(host);
    return device;
}

static inline bool holds(const char *device, size_t len, unsigned seed) {
    char *host = malloc(len);
    CHECK(host != NULL);
    gpu.read(host, device, len);
    bool does = is_pattern(host, len, seed);
    free(host);
    return does;
}

#endif
