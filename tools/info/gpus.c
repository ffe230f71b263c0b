/* The driver by dlopen: weft-info builds and runs without CUDA. */
#include "gpus.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "../json/json.h"

static struct {
    void *library;
    unsigned (*init)(unsigned flags);
    unsigned (*version)(int *version);
    unsigned (*count)(int *n);
    unsigned (*get)(int *device, int ordinal);
    unsigned (*name)(char *name, int size, int device);
    unsigned (*memory)(size_t *bytes, int device);
    unsigned (*bus)(char *id, int size, int device);
    unsigned (*can_access)(int *can, int device, int peer);
} cuda;
static int n_gpus, version;

struct gpu {
    char name[100], bus[32];
    size_t memory;
};

/* What Weft does with device memory, and the function of the driver that it needs for that. */
static const struct path {
    const char *name, *symbol;
} paths[] = {{"copies that are not waited for", "cuLaunchHostFunc"},
             {"operations in streams", "cuStreamWaitValue32_v2"},
             {"memory of other processes", "cuIpcOpenMemHandle_v2"},
             {"memory of network devices (dma-buf)", "cuMemGetHandleForAddressRange"}};
enum { N_PATHS = sizeof paths / sizeof *paths };

static bool find(void *function, const char *symbol) {
    *(void **)function = dlsym(cuda.library, symbol);
    return *(void **)function != NULL;
}

static bool load(void) {
    cuda.library = dlopen("libcuda.so.1", RTLD_NOW);
    return cuda.library && find(&cuda.init, "cuInit") &&
           find(&cuda.version, "cuDriverGetVersion") && find(&cuda.count, "cuDeviceGetCount") &&
           find(&cuda.get, "cuDeviceGet") && find(&cuda.name, "cuDeviceGetName") &&
           find(&cuda.memory, "cuDeviceTotalMem_v2") && find(&cuda.bus, "cuDeviceGetPCIBusId") &&
           find(&cuda.can_access, "cuDeviceCanAccessPeer");
}

bool info_gpus_open(void) {
    return load() && cuda.init(0) == 0 && cuda.version(&version) == 0 && cuda.count(&n_gpus) == 0 &&
           n_gpus > 0;
}

static bool has_path(const struct path *path) {
    return dlsym(cuda.library, path->symbol) != NULL;
}

static struct gpu describe(int ordinal) {
    struct gpu gpu = {.name = "unknown", .bus = "unknown"};
    int device = 0;
    if (cuda.get(&device, ordinal) != 0) return gpu;
    (void)cuda.name(gpu.name, sizeof gpu.name, device);
    (void)cuda.bus(gpu.bus, sizeof gpu.bus, device);
    (void)cuda.memory(&gpu.memory, device);
    return gpu;
}

static bool reaches(int one, int other) {
    int can = 0;
    return one != other && cuda.can_access(&can, one, other) == 0 && can;
}

/* ---- for people */

void info_gpus(void) {
    printf("CUDA driver %d.%d\n", version / 1000, version % 1000 / 10);
    for (int i = 0; i < N_PATHS; i++)
        printf("  %-36s %s\n", paths[i].name, has_path(&paths[i]) ? "yes" : "no");
    for (int i = 0; i < n_gpus; i++) {
        struct gpu gpu = describe(i);
        printf("GPU %d %s\n  at            %s, %.1f GiB", i, gpu.name, gpu.bus,
               (double)gpu.memory / (double)(1 << 30));
        for (int peer = 0; peer < n_gpus; peer++)
            if (reaches(i, peer)) printf(", reaches GPU %d", peer);
        printf("\n");
    }
}

/* ---- for programs */

static void json_gpu(int ordinal) {
    struct gpu gpu = describe(ordinal);
    const char *comma = "";
    fputs("{\"name\":", stdout);
    json_text(stdout, gpu.name);
    fputs(",\"address\":", stdout);
    json_text(stdout, gpu.bus);
    printf(",\"memory\":%zu,\"peers\":[", gpu.memory);
    for (int peer = 0; peer < n_gpus; peer++) {
        if (!reaches(ordinal, peer)) continue;
        printf("%s%d", comma, peer);
        comma = ",";
    }
    fputs("]}", stdout);
}

void info_gpus_json(void) {
    printf("{\"driver\":%d,\"paths\":{", version);
    for (int i = 0; i < N_PATHS; i++) {
        if (i) putchar(',');
        json_text(stdout, paths[i].name);
        printf(":%s", has_path(&paths[i]) ? "true" : "false");
    }
    fputs("},\"gpus\":[", stdout);
    for (int i = 0; i < n_gpus; i++) {
        if (i) putchar(',');
        json_gpu(i);
    }
    fputs("]}", stdout);
}
