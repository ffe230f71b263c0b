/*
 * The kernels of device memory: reductions of several inputs in one pass, and packing of strided
 * blocks. A CUDA compiler makes an image of this file; tests compile the same file for the host
 * (kernels/on_host.h) and compare it with the processor's reductions, bit by bit.
 *
 * No kernel uses shared memory or waits for another thread. Each thread takes units of 16 bytes,
 * as far as the alignment of all operands allows, so the work is bound by memory. The reduction
 * is a switch within the unit: one kernel a type is enough, and the branch is the same for all
 * threads. Minimum, maximum and rounding are those of collectives/reductions.h.
 */
#ifdef __CUDACC__
#define HALF_FUNCTION static __host__ __device__ __forceinline__
#define EACH          static __device__ __forceinline__
#define KERNEL        extern "C" __global__ void
#else
#include "on_host.h"
#define EACH   static inline
#define KERNEL extern "C" void
#endif
#include "arguments.h"
#include <base/half.h>

enum { UNIT = 16 };

/* ---- types: what is in memory, what is computed with, and one operation ---------------------- */

template <class T> struct Unsigned;
template <> struct Unsigned<int8_t> { typedef uint8_t type; };
template <> struct Unsigned<int16_t> { typedef uint16_t type; };
template <> struct Unsigned<int32_t> { typedef uint32_t type; };
template <> struct Unsigned<int64_t> { typedef uint64_t type; };
template <> struct Unsigned<uint8_t> { typedef uint8_t type; };
template <> struct Unsigned<uint16_t> { typedef uint16_t type; };
template <> struct Unsigned<uint32_t> { typedef uint32_t type; };
template <> struct Unsigned<uint64_t> { typedef uint64_t type; };

/* Sums and products wrap: they are computed unsigned. */
template <class T> struct Integer {
    typedef T stored;
    typedef T wide;
    typedef typename Unsigned<T>::type bits;
    EACH wide widen(stored v) { return v; }
    EACH stored narrow(wide v) { return v; }
    EACH wide combine(uint32_t reduction, wide a, wide b) {
        switch (reduction) {
        case KERNEL_SUM: return (wide)(bits)((uint64_t)(bits)a + (bits)b);
        case KERNEL_PROD: return (wide)(bits)((uint64_t)(bits)a * (bits)b);
        case KERNEL_MIN: return a < b ? a : b;
        case KERNEL_MAX: return a > b ? a : b;
        case KERNEL_BAND: return (wide)(a & b);
        case KERNEL_BOR: return (wide)(a | b);
        case KERNEL_BXOR: return (wide)(a ^ b);
        case KERNEL_LAND: return (wide)(a != 0 && b != 0);
        case KERNEL_LOR: return (wide)(a != 0 || b != 0);
        default: return (wide)((a != 0) != (b != 0));
        }
    }
    EACH wide divide(wide v, uint32_t) { return v; }
};

/* A NaN is handed on, the left one first. */
template <class T> EACH T combine_floats(uint32_t reduction, T a, T b) {
    switch (reduction) {
    case KERNEL_PROD: return a * b;
    case KERNEL_MIN: return a < b || a != a ? a : b;
    case KERNEL_MAX: return a > b || a != a ? a : b;
    default: return a + b;
    }
}

template <class T> struct Float {
    typedef T stored;
    typedef T wide;
    EACH wide widen(stored v) { return v; }
    EACH stored narrow(wide v) { return v; }
    EACH wide combine(uint32_t reduction, wide a, wide b) {
        return combine_floats(reduction, a, b);
    }
    EACH wide divide(wide v, uint32_t by) { return v / (T)by; }
};

struct Float16 {
    typedef uint16_t stored;
    typedef float wide;
    EACH wide widen(stored v) { return float_of_float16(v); }
    EACH stored narrow(wide v) { return float16_of_float(v); }
    EACH wide combine(uint32_t reduction, wide a, wide b) {
        return combine_floats(reduction, a, b);
    }
    EACH wide divide(wide v, uint32_t by) { return v / (float)by; }
};

struct Bfloat16 {
    typedef uint16_t stored;
    typedef float wide;
    EACH wide widen(stored v) { return float_of_bfloat16(v); }
    EACH stored narrow(wide v) { return bfloat16_of_float(v); }
    EACH wide combine(uint32_t reduction, wide a, wide b) {
        return combine_floats(reduction, a, b);
    }
    EACH wide divide(wide v, uint32_t by) { return v / (float)by; }
};

template <class T> struct Complex {
    struct stored {
        T re, im;
    };
    typedef stored wide;
    EACH wide widen(stored v) { return v; }
    EACH stored narrow(wide v) { return v; }
    EACH wide combine(uint32_t reduction, wide a, wide b) {
        wide c;
        c.re = reduction == KERNEL_PROD ? a.re * b.re - a.im * b.im : a.re + b.re;
        c.im = reduction == KERNEL_PROD ? a.re * b.im + a.im * b.re : a.im + b.im;
        return c;
    }
    EACH wide divide(wide v, uint32_t by) {
        v.re = v.re / (T)by;
        v.im = v.im / (T)by;
        return v;
    }
};

/* Of equal values the lower index. */
template <class T> struct Place {
    struct stored {
        T value;
        int32_t index;
    };
    typedef stored wide;
    EACH wide widen(stored v) { return v; }
    EACH stored narrow(wide v) { return v; }
    EACH wide combine(uint32_t reduction, wide a, wide b) {
        bool before = reduction == KERNEL_MAXLOC ? a.value > b.value : a.value < b.value;
        bool first = a.value != a.value || before || (a.value == b.value && a.index < b.index);
        return first ? a : b;
    }
    EACH wide divide(wide v, uint32_t) { return v; }
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* `WIDTH` bytes in one access. */
template <int WIDTH> struct Chunk;
template <> struct Chunk<1> { typedef uint8_t type; };
template <> struct Chunk<2> { typedef uint16_t type; };
template <> struct Chunk<4> { typedef uint32_t type; };
template <> struct Chunk<8> { typedef uint64_t type; };
#ifdef __CUDACC__
template <> struct Chunk<16> { typedef uint4 type; };
#else
template <> struct Chunk<16> { typedef unsigned __int128 type __attribute__((may_alias)); };
#endif

template <int WIDTH> EACH void copy_chunk(void *to, const void *from) {
    typedef typename Chunk<WIDTH>::type chunk;
    *(chunk *)to = *(const chunk *)from;
}
/* In one access if that is allowed, else byte by byte. */
template <int WIDTH> EACH void copy_piece(void *to, const void *from, bool whole) {
    if (whole) {
        copy_chunk<WIDTH>(to, from);
        return;
    }
    for (int i = 0; i < WIDTH; i++) ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
}

EACH uint64_t this_thread(void) {
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
EACH uint64_t all_threads(void) {
    return (uint64_t)gridDim.x * blockDim.x;
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* N elements in a row at byte `at` of each operand; `whole`: in one access. */
template <class T, int N>
EACH void reduce_unit(const struct reduce_arguments &args, uint64_t at, bool whole) {
    typedef typename T::stored stored;
    typedef typename T::wide wide;
    const int width = N * sizeof(stored);
    alignas(UNIT) stored in[N];
    wide result[N];
    copy_piece<width>(in, (const uint8_t *)args.from[0] + at, whole);
#pragma unroll
    for (int i = 0; i < N; i++) result[i] = T::widen(in[i]);
    for (uint32_t k = 1; k < args.n; k++) {
        copy_piece<width>(in, (const uint8_t *)args.from[k] + at, whole);
#pragma unroll
        for (int i = 0; i < N; i++) {
            result[i] = T::combine(args.reduction, result[i], T::widen(in[i]));
            if (args.rounds) result[i] = T::widen(T::narrow(result[i]));
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        in[i] = T::narrow(args.divisor ? T::divide(result[i], args.divisor) : result[i]);
    copy_piece<width>((uint8_t *)args.to + at, in, whole);
}

/* Units between the first and the last boundary of 16 bytes, which all operands have in common;
 * before and behind them, or where there is no such boundary, one element after the other. */
template <class T> EACH void reduce(const struct reduce_arguments &args) {
    const uint64_t width = sizeof(typename T::stored), bytes = args.count * width;
    const uint64_t first = this_thread(), step = all_threads();
    uint64_t differ = 0, before = -args.to & (UNIT - 1), units = 0;
    for (uint32_t k = 0; k < args.n; k++) differ |= args.from[k] ^ args.to;
    const bool aligned = ((differ | args.to) & (width - 1)) == 0;
    if ((differ & (UNIT - 1)) || !aligned || before > bytes)
        before = bytes;
    else
        units = (bytes - before) / UNIT;
    const uint64_t behind = before + units * UNIT;
    for (uint64_t u = first; u < units; u += step)
        reduce_unit<T, UNIT / sizeof(typename T::stored)>(args, before + u * UNIT, true);
    for (uint64_t at = first * width; at < before; at += step * width)
        reduce_unit<T, 1>(args, at, aligned);
    for (uint64_t at = behind + first * width; at < bytes; at += step * width)
        reduce_unit<T, 1>(args, at, aligned);
}

#ifdef __CUDACC__
#define ARGUMENTS(type) const __grid_constant__ type args
#else
#define ARGUMENTS(type) const type args
#endif
#define REDUCE_KERNEL(number, name, type) \
    KERNEL weft_reduce_##name(ARGUMENTS(struct reduce_arguments)) { reduce<type>(args); }
REDUCE_KERNELS(REDUCE_KERNEL)

/* ---- packing --------------------------------------------------------------------------------- */

template <int WIDTH> EACH void pack_by(const struct pack_arguments &args) {
    uint64_t in_block = args.block / WIDTH, in_element = args.rows * in_block;
    uint64_t all = args.count * in_element;
    for (uint64_t i = this_thread(); i < all; i += all_threads()) {
        uint64_t element = i / in_element, rest = i % in_element;
        uint8_t *apart = (uint8_t *)args.laid_out + element * args.extent +
                         rest / in_block * args.stride + rest % in_block * WIDTH;
        uint8_t *packed = (uint8_t *)args.packed + i * WIDTH;
        if (args.unpacks)
            copy_chunk<WIDTH>(apart, packed);
        else
            copy_chunk<WIDTH>(packed, apart);
    }
}

/* In the widest accesses that all addresses and distances allow. */
KERNEL weft_pack(ARGUMENTS(struct pack_arguments)) {
    uint64_t all = args.packed | args.laid_out | args.block | args.stride | args.extent;
    if (all % 16 == 0)
        pack_by<16>(args);
    else if (all % 8 == 0)
        pack_by<8>(args);
    else if (all % 4 == 0)
        pack_by<4>(args);
    else if (all % 2 == 0)
        pack_by<2>(args);
    else
        pack_by<1>(args);
}
