/*
 * The kernels of the double: reduce.cu compiled for the host. A launch runs each thread of the grid
 * in turn, in the stream's thread. Operands must lie within the double's allocations, and grids
 * within the limits of a device: what a device would end as an illegal access is an error here.
 */
extern "C" {
#include "double.h"
}
#include <transports/cuda/kernels/reduce.cu>

#include <stdlib.h>
#include <string.h>

thread_local struct kernel_index threadIdx, blockIdx, blockDim, gridDim;

namespace {

enum { NOT_FOUND = 500 };

/* Where the host finds an operand; 0: not within device memory that this context reaches. */
uint64_t operand(uint64_t at, size_t bytes) {
    const struct allocation *a = double_find(at);
    if (!a || (a->host ? !a->registered : !double_reaches(a, double_current()))) return 0;
    return (uint64_t)(uintptr_t)double_alias(at, bytes);
}

/* The arguments of a launch, with addresses that the host may use. */
bool take(struct reduce_arguments *args, size_t width) {
    size_t bytes = args->count * width;
    if (args->n == 0 || args->n > KERNEL_MOST_INPUTS) return false;
    args->to = operand(args->to, bytes);
    bool good = args->to != 0;
    for (uint32_t k = 0; k < args->n; k++) {
        args->from[k] = operand(args->from[k], bytes);
        good = good && args->from[k] != 0;
    }
    return good;
}
bool take(struct pack_arguments *args) {
    uint64_t reach =
        (args->count - 1) * args->extent + (args->rows - 1) * args->stride + args->block;
    args->packed = operand(args->packed, args->count * args->rows * args->block);
    args->laid_out = operand(args->laid_out, reach);
    return args->packed && args->laid_out;
}

struct kernel {
    const char *name;
    void (*reduce)(const struct reduce_arguments); /* NULL: it is weft_pack */
    size_t width;
};
const struct kernel kernels[] = {
#define ENTRY(number, name, type) {"weft_reduce_" #name, weft_reduce_##name, sizeof(type::stored)},
    REDUCE_KERNELS(ENTRY)
#undef ENTRY
        {"weft_pack", NULL, 0},
};

struct launch {
    const struct kernel *kernel;
    unsigned blocks, threads;
    struct reduce_arguments reduce;
    struct pack_arguments pack;
};

result run_launch(void *arg) {
    const struct launch *l = (const struct launch *)arg;
    gridDim.x = l->blocks;
    blockDim.x = l->threads;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
            if (l->kernel->reduce)
                l->kernel->reduce(l->reduce);
            else
                weft_pack(l->pack);
    return SUCCESS;
}

} // namespace

extern "C" {

unsigned double_fail_launch;

unsigned double_modules;

/* It waits for the work of its context, as lazy loading may. */
result cuModuleLoadData(void **module, const void *image) {
    result r = double_call_begins(NULL);
    *module = (void *)image;
    double_wait_context(double_current());
    if (r == SUCCESS) r = double_usable(double_current());
    double_modules += r == SUCCESS;
    return r;
}

result cuModuleUnload(void *) {
    double_modules--;
    return double_usable(double_current());
}

result cuModuleGetFunction(const struct kernel **function, void *, const char *name) {
    result r = double_call_begins(NULL);
    if (r != SUCCESS) return r;
    for (const struct kernel &k : kernels) {
        if (strcmp(k.name, name) != 0) continue;
        *function = &k;
        return SUCCESS;
    }
    return NOT_FOUND;
}

unsigned double_packed;

result cuLaunchKernel(const struct kernel *kernel, unsigned grid_x, unsigned grid_y,
                      unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                      unsigned, void *stream, void **params, void **extra) {
    if (grid_x == 0 || grid_x > 0x7fffffff || grid_y != 1 || grid_z != 1) return INVALID_VALUE;
    if (block_x == 0 || block_x > 1024 || block_y != 1 || block_z != 1 || extra)
        return INVALID_VALUE;
    result r = double_call_begins(NULL);
    if (r == SUCCESS) r = double_usable(double_current());
    if (r == SUCCESS && double_fail_launch && --double_fail_launch == 0) r = LAUNCH_FAILED;
    if (r != SUCCESS) return r;
    struct launch *l = (struct launch *)calloc(1, sizeof *l);
    l->kernel = kernel;
    l->blocks = grid_x;
    l->threads = block_x;
    if (kernel->reduce)
        l->reduce = *(const struct reduce_arguments *)params[0];
    else
        l->pack = *(const struct pack_arguments *)params[0];
    if (!kernel->reduce) double_packed++;
    if (kernel->reduce ? take(&l->reduce, kernel->width) : take(&l->pack))
        return double_enqueue(stream, run_launch, l);
    free(l);
    return ILLEGAL_ADDRESS;
}

} // extern "C"
