#include "reductions.h"

#include "half.h"

/* gcc vectorises such loops at -O3 only; clang does so at -O2. */
#ifdef __clang__
#define VECTORISED
#else
#define VECTORISED __attribute__((optimize("O3")))
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
    if (__builtin_cpu_supports("avx2")) return avx2_table[type][reduction];
#endif
    return baseline_table[type][reduction];
}

size_t weft_datatype_size(weft_datatype_t type) {
    static const uint8_t size[WEFT_N_DATATYPES] = {
        [WEFT_INT8] = 1,    [WEFT_UINT8] = 1,    [WEFT_INT16] = 2,  [WEFT_UINT16] = 2,
        [WEFT_FLOAT16] = 2, [WEFT_BFLOAT16] = 2, [WEFT_INT32] = 4,  [WEFT_UINT32] = 4,
        [WEFT_FLOAT32] = 4, [WEFT_INT64] = 8,    [WEFT_UINT64] = 8, [WEFT_FLOAT64] = 8,
    };
    return (unsigned)type < WEFT_N_DATATYPES ? size[type] : 0;
}
