/* The table of reductions of host memory by type, and the sizes of types. */
#include "reductions.h"

#include <string.h>

#include <base/half.h>

/* gcc vectorises such loops at -O3 only; clang does so at -O2. Products are not fused with sums, so
 * that a complex product is the same, bit by bit, on every processor; gcc fuses them when it makes
 * vectors of straight code, whatever fp-contract says. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#define VECTORISED
#else
#define VECTORISED __attribute__((optimize("O3", "fp-contract=off", "no-tree-slp-vectorize")))
#endif

#define UNALIGNED(name, type)  \
    typedef type name##_value; \
    typedef type name __attribute__((aligned(1), may_alias));
UNALIGNED(unaligned_i8, int8_t)
UNALIGNED(unaligned_i16, int16_t)
UNALIGNED(unaligned_i32, int32_t)
UNALIGNED(unaligned_i64, int64_t)
UNALIGNED(unaligned_u8, uint8_t)
UNALIGNED(unaligned_u16, uint16_t)
UNALIGNED(unaligned_u32, uint32_t)
UNALIGNED(unaligned_u64, uint64_t)
UNALIGNED(unaligned_f32, float)
UNALIGNED(unaligned_f64, double)

UNALIGNED(unaligned_long_double, long double)

struct c32 {
    float re, im;
};
struct c64 {
    double re, im;
};
/* Copied in and out, at any alignment. */
typedef struct c32 pair_c32;
typedef struct c64 pair_c64;
typedef weft_float32_int32_t pair_f32_i32;
typedef weft_float64_int32_t pair_f64_i32;
typedef weft_int32_int32_t pair_i32_i32;
typedef weft_int64_int32_t pair_i64_i32;

#define LOOPS(name)  baseline_##name
#define LOOPS_TARGET VECTORISED
#include "reduction_loops.h"
#undef LOOPS
#undef LOOPS_TARGET

#ifdef __x86_64__
#define LOOPS(name)  avx2_##name
#define LOOPS_TARGET VECTORISED __attribute__((target("avx2")))
#include "reduction_loops.h"
#undef LOOPS
#undef LOOPS_TARGET

#define LOOPS(name)  avx512_##name
#define LOOPS_TARGET VECTORISED __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#include "reduction_loops.h"
#undef LOOPS
#undef LOOPS_TARGET

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static bool known(weft_datatype_t type, weft_reduction_t reduction) {
    return (unsigned)type < WEFT_N_DATATYPES && (unsigned)reduction < WEFT_N_REDUCTIONS;
}

reduce_fn weft__reduction_baseline(weft_datatype_t type, weft_reduction_t reduction) {
    return known(type, reduction) ? baseline_table[type][reduction] : NULL;
}

reduce_fn weft__reduction(weft_datatype_t type, weft_reduction_t reduction) {
    if (!known(type, reduction)) return NULL;
#ifdef __x86_64__
    if (has_avx512()) return avx512_table[type][reduction];
    if (__builtin_cpu_supports("avx2")) return avx2_table[type][reduction];
#endif
    return baseline_table[type][reduction];
}

size_t weft_datatype_size(weft_datatype_t type) {
    static const uint8_t size[WEFT_N_DATATYPES] = {
        [WEFT_INT8] = 1,
        [WEFT_UINT8] = 1,
        [WEFT_INT16] = 2,
        [WEFT_UINT16] = 2,
        [WEFT_FLOAT16] = 2,
        [WEFT_BFLOAT16] = 2,
        [WEFT_INT32] = 4,
        [WEFT_UINT32] = 4,
        [WEFT_FLOAT32] = 4,
        [WEFT_INT64] = 8,
        [WEFT_UINT64] = 8,
        [WEFT_FLOAT64] = 8,
        [WEFT_LONG_DOUBLE] = sizeof(long double),
        [WEFT_COMPLEX_FLOAT32] = sizeof(struct c32),
        [WEFT_COMPLEX_FLOAT64] = sizeof(struct c64),
        [WEFT_FLOAT32_INT32] = sizeof(weft_float32_int32_t),
        [WEFT_FLOAT64_INT32] = sizeof(weft_float64_int32_t),
        [WEFT_INT32_INT32] = sizeof(weft_int32_int32_t),
        [WEFT_INT64_INT32] = sizeof(weft_int64_int32_t),
    };
    return (unsigned)type < WEFT_N_DATATYPES ? size[type] : 0;
}

bool weft__datatype_is_integer(weft_datatype_t type) {
    return type <= WEFT_UINT64;
}

/* ---- avg ------------------------------------------------------------------------------------- */

#define SCALE(type, storage, widen, narrow)                                               \
    static void scale_##type(void *values, size_t count, uint32_t members) {              \
        storage *v = values;                                                              \
        for (size_t i = 0; i < count; i++) v[i] = (storage)narrow(widen(v[i]) / members); \
    }
SCALE(FLOAT16, unaligned_u16, float_of_float16, float16_of_float)
SCALE(BFLOAT16, unaligned_u16, float_of_bfloat16, bfloat16_of_float)
SCALE(FLOAT32, unaligned_f32, , )
SCALE(FLOAT64, unaligned_f64, , )
SCALE(LONG_DOUBLE, unaligned_long_double, , )

/* Both parts of each. */
static void scale_COMPLEX_FLOAT32(void *values, size_t count, uint32_t members) {
    scale_FLOAT32(values, 2 * count, members);
}
static void scale_COMPLEX_FLOAT64(void *values, size_t count, uint32_t members) {
    scale_FLOAT64(values, 2 * count, members);
}

scale_fn weft__scale(weft_datatype_t type) {
    switch (type) {
    case WEFT_FLOAT16: return scale_FLOAT16;
    case WEFT_BFLOAT16: return scale_BFLOAT16;
    case WEFT_FLOAT32: return scale_FLOAT32;
    case WEFT_FLOAT64: return scale_FLOAT64;
    case WEFT_LONG_DOUBLE: return scale_LONG_DOUBLE;
    case WEFT_COMPLEX_FLOAT32: return scale_COMPLEX_FLOAT32;
    case WEFT_COMPLEX_FLOAT64: return scale_COMPLEX_FLOAT64;
    default: return NULL;
    }
}
