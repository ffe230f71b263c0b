/* The names of a CUDA thread for a compiler of the host: the caller of a kernel sets them first. */
#ifndef WEFT_TRANSPORTS_CUDA_KERNELS_ON_HOST_H
#define WEFT_TRANSPORTS_CUDA_KERNELS_ON_HOST_H

#include <stdint.h>

struct kernel_index {
    unsigned x;
};
extern thread_local struct kernel_index threadIdx, blockIdx, blockDim, gridDim;

#endif
