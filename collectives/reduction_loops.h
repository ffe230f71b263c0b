/*
 * The loops of reductions.c, once for each instruction set: included with LOOPS(name) and
 * LOOPS_TARGET defined. Operand types are declared unaligned, since a program's buffer may begin
 * anywhere; `to` is one of the operands or apart from both, so no iteration depends on another.
 */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define LOOP(type, op, storage, expression)                                                    \
    LOOPS_TARGET static void LOOPS(type##_##op)(void *to, const void *left, const void *right, \
                                                size_t count) {                                \
        storage *t = to;                                                                       \
        const storage *l = left, *r = right;                                                   \
        INDEPENDENT                                                                            \
        for (size_t i = 0; i < count; i++) {                                                   \
            storage##_value a = l[i], b = r[i];                                                \
            t[i] = (storage)(expression);                                                      \
        }                                                                                      \
    }

#define PAIR_LOOP(type, op, pair, expression)                                                  \
    LOOPS_TARGET static void LOOPS(type##_##op)(void *to, const void *left, const void *right, \
                                                size_t count) {                                \
        unsigned char *t = to;                                                                 \
        const unsigned char *l = left, *r = right;                                             \
        for (size_t i = 0; i < count * sizeof(pair); i += sizeof(pair)) {                      \
            pair a, b, c;                                                                      \
            memcpy(&a, l + i, sizeof a);                                                       \
            memcpy(&b, r + i, sizeof b);                                                       \
            c = expression;                                                                    \
            memcpy(t + i, &c, sizeof c);                                                       \
        }                                                                                      \
    }

/* Signed sums and products are computed unsigned: wrapping is defined there. 16-bit ones would
 * widen to int. */
#define INTEGER_LOOPS(type, bits)                                          \
    LOOP(type, SUM, unaligned_u##bits, (uint##bits##_t)(a + b))            \
    LOOP(type, PROD, unaligned_u##bits, (uint##bits##_t)((uint64_t)a * b)) \
    LOOP(type, BAND, unaligned_u##bits, a &b)                              \
    LOOP(type, BOR, unaligned_u##bits, a | b)                              \
    LOOP(type, BXOR, unaligned_u##bits, a ^ b)
#define LOGICAL_LOOPS(type, bits)                                                        \
    LOOP(type, LAND, unaligned_u##bits, (uint##bits##_t)((int)(a != 0) & (int)(b != 0))) \
    LOOP(type, LOR, unaligned_u##bits, (uint##bits##_t)((int)(a != 0) | (int)(b != 0)))  \
    LOOP(type, LXOR, unaligned_u##bits, (uint##bits##_t)((int)(a != 0) ^ (int)(b != 0)))
#define ORDER_LOOPS(type, storage)          \
    LOOP(type, MIN, storage, a < b ? a : b) \
    LOOP(type, MAX, storage, a > b ? a : b)

INTEGER_LOOPS(INT8, 8)
INTEGER_LOOPS(INT16, 16)
INTEGER_LOOPS(INT32, 32)
INTEGER_LOOPS(INT64, 64)
LOGICAL_LOOPS(INT8, 8)
LOGICAL_LOOPS(INT16, 16)
LOGICAL_LOOPS(INT32, 32)
LOGICAL_LOOPS(INT64, 64)
ORDER_LOOPS(INT8, unaligned_i8)
ORDER_LOOPS(INT16, unaligned_i16)
ORDER_LOOPS(INT32, unaligned_i32)
ORDER_LOOPS(INT64, unaligned_i64)
ORDER_LOOPS(UINT8, unaligned_u8)
ORDER_LOOPS(UINT16, unaligned_u16)
ORDER_LOOPS(UINT32, unaligned_u32)
ORDER_LOOPS(UINT64, unaligned_u64)

#define FLOAT_LOOPS(type, storage, widen, narrow)                                                \
    LOOP(type, SUM, storage, narrow(widen(a) + widen(b)))                                        \
    LOOP(type, PROD, storage, narrow(widen(a) * widen(b)))                                       \
    LOOP(type, MIN, storage, ((int)(widen(a) < widen(b)) | (int)(widen(a) != widen(a))) ? a : b) \
    LOOP(type, MAX, storage, ((int)(widen(a) > widen(b)) | (int)(widen(a) != widen(a))) ? a : b)

FLOAT_LOOPS(FLOAT16, unaligned_u16, float_of_float16, float16_of_float)
FLOAT_LOOPS(BFLOAT16, unaligned_u16, float_of_bfloat16, bfloat16_of_float)
FLOAT_LOOPS(FLOAT32, unaligned_f32, , )
FLOAT_LOOPS(FLOAT64, unaligned_f64, , )

/* There are no vectors of these: clang warns where they are asked for. */
#undef INDEPENDENT
#define INDEPENDENT
FLOAT_LOOPS(LONG_DOUBLE, unaligned_long_double, , )
#undef INDEPENDENT

/* Pairs of a real and an imaginary part. */
#define COMPLEX_LOOPS(type, pair)                                  \
    PAIR_LOOP(type, SUM, pair, ((pair){a.re + b.re, a.im + b.im})) \
    PAIR_LOOP(type, PROD, pair, ((pair){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}))
COMPLEX_LOOPS(COMPLEX_FLOAT32, pair_c32)
COMPLEX_LOOPS(COMPLEX_FLOAT64, pair_c64)

/* Of equal values the lower index; a NaN is handed on. */
#define IS_FIRST(order) \
    (a.value != a.value || a.value order b.value || (a.value == b.value && a.index < b.index))
#define PLACE_LOOPS(type, pair)                        \
    PAIR_LOOP(type, MINLOC, pair, IS_FIRST(<) ? a : b) \
    PAIR_LOOP(type, MAXLOC, pair, IS_FIRST(>) ? a : b)
PLACE_LOOPS(FLOAT32_INT32, pair_f32_i32)
PLACE_LOOPS(FLOAT64_INT32, pair_f64_i32)
PLACE_LOOPS(INT32_INT32, pair_i32_i32)
PLACE_LOOPS(INT64_INT32, pair_i64_i32)

/* Unsigned integers share the wrapping and bitwise loops of the signed ones. */
#define INTEGER_ROW(type, same)                                                          \
    [WEFT_##type] = {[WEFT_SUM] = LOOPS(same##_SUM),   [WEFT_PROD] = LOOPS(same##_PROD), \
                     [WEFT_MIN] = LOOPS(type##_MIN),   [WEFT_MAX] = LOOPS(type##_MAX),   \
                     [WEFT_BAND] = LOOPS(same##_BAND), [WEFT_BOR] = LOOPS(same##_BOR),   \
                     [WEFT_BXOR] = LOOPS(same##_BXOR), [WEFT_LAND] = LOOPS(same##_LAND), \
                     [WEFT_LOR] = LOOPS(same##_LOR),   [WEFT_LXOR] = LOOPS(same##_LXOR)}
#define FLOAT_ROW(type)                                \
    [WEFT_##type] = {[WEFT_SUM] = LOOPS(type##_SUM),   \
                     [WEFT_AVG] = LOOPS(type##_SUM),   \
                     [WEFT_PROD] = LOOPS(type##_PROD), \
                     [WEFT_MIN] = LOOPS(type##_MIN),   \
                     [WEFT_MAX] = LOOPS(type##_MAX)}

#define COMPLEX_ROW(type)                            \
    [WEFT_##type] = {[WEFT_SUM] = LOOPS(type##_SUM), \
                     [WEFT_AVG] = LOOPS(type##_SUM), \
                     [WEFT_PROD] = LOOPS(type##_PROD)}
#define PLACE_ROW(type) \
    [WEFT_##type] = {[WEFT_MINLOC] = LOOPS(type##_MINLOC), [WEFT_MAXLOC] = LOOPS(type##_MAXLOC)}

static const reduce_fn LOOPS(table)[WEFT_N_DATATYPES][WEFT_N_REDUCTIONS] = {
    INTEGER_ROW(INT8, INT8),    INTEGER_ROW(INT16, INT16),    INTEGER_ROW(INT32, INT32),
    INTEGER_ROW(INT64, INT64),  INTEGER_ROW(UINT8, INT8),     INTEGER_ROW(UINT16, INT16),
    INTEGER_ROW(UINT32, INT32), INTEGER_ROW(UINT64, INT64),   FLOAT_ROW(FLOAT16),
    FLOAT_ROW(BFLOAT16),        FLOAT_ROW(FLOAT32),           FLOAT_ROW(FLOAT64),
    FLOAT_ROW(LONG_DOUBLE),     COMPLEX_ROW(COMPLEX_FLOAT32), COMPLEX_ROW(COMPLEX_FLOAT64),
    PLACE_ROW(FLOAT32_INT32),   PLACE_ROW(FLOAT64_INT32),     PLACE_ROW(INT32_INT32),
    PLACE_ROW(INT64_INT32),
};

#undef INDEPENDENT
#undef LOOP
#undef INTEGER_LOOPS
#undef ORDER_LOOPS
#undef FLOAT_LOOPS
#undef INTEGER_ROW
#undef FLOAT_ROW
#undef LOGICAL_LOOPS
#undef COMPLEX_LOOPS
#undef COMPLEX_ROW
#undef PLACE_LOOPS
#undef IS_FIRST
#undef PAIR_LOOP
#undef PLACE_ROW
