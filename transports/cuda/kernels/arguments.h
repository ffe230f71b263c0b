/*
 * What the kernels are called with: shared by their source, which a CUDA compiler and, for tests, a
 * compiler of the host read, and by kernels.c, which launches them. Addresses are the device's.
 */
#ifndef WEFT_TRANSPORTS_CUDA_KERNELS_ARGUMENTS_H
#define WEFT_TRANSPORTS_CUDA_KERNELS_ARGUMENTS_H

#include <stdint.h>

/* Reductions, by their public numbers (weft_reduction_t), and types, by theirs (weft_datatype_t):
 * collectives/ asserts that they agree. */
enum kernel_reduction {
    KERNEL_SUM,
    KERNEL_PROD,
    KERNEL_MIN,
    KERNEL_MAX,
    KERNEL_BAND,
    KERNEL_BOR,
    KERNEL_BXOR,
    KERNEL_LAND,
    KERNEL_LOR,
    KERNEL_LXOR,
    KERNEL_MINLOC,
    KERNEL_MAXLOC,
    KERNEL_AVG,
    KERNEL_N_REDUCTIONS
};

/* The kernels of reductions: weft_reduce_NAME(number of the type, NAME, its class in reduce.cu). */
#define REDUCE_KERNELS(K)               \
    K(0, int8, Integer<int8_t>)         \
    K(1, int16, Integer<int16_t>)       \
    K(2, int32, Integer<int32_t>)       \
    K(3, int64, Integer<int64_t>)       \
    K(4, uint8, Integer<uint8_t>)       \
    K(5, uint16, Integer<uint16_t>)     \
    K(6, uint32, Integer<uint32_t>)     \
    K(7, uint64, Integer<uint64_t>)     \
    K(8, float16, Float16)              \
    K(9, bfloat16, Bfloat16)            \
    K(10, float32, Float<float>)        \
    K(11, float64, Float<double>)       \
    K(13, complex32, Complex<float>)    \
    K(14, complex64, Complex<double>)   \
    K(15, float32_int32, Place<float>)  \
    K(16, float64_int32, Place<double>) \
    K(17, int32_int32, Place<int32_t>)  \
    K(18, int64_int32, Place<int64_t>)
enum { KERNEL_N_TYPES = 19 }; /* long double has none */

/*
 * to[i] = from[0][i] op from[1][i] op …, from the left, then divided by `divisor` if that is not 0.
 * `to` may be one of the inputs, but may not overlap them otherwise. Any alignment.
 */
enum { KERNEL_MOST_INPUTS = 8 };
struct reduce_arguments {
    uint64_t to, from[KERNEL_MOST_INPUTS];
    uint64_t count;
    uint32_t n, reduction;
    uint32_t divisor;
    uint32_t rounds; /* float16, bfloat16: round after each operand, as the processor does */
};

/*
 * `count` elements, `extent` bytes apart in `laid_out`, each of `rows` blocks of `block` bytes,
 * `stride` bytes apart; without gaps in `packed`.
 */
struct pack_arguments {
    uint64_t packed, laid_out;
    uint64_t count, extent, rows, stride, block;
    uint32_t unpacks; /* 0: from `laid_out` to `packed`; 1: back */
    uint32_t reserved;
};

#endif
