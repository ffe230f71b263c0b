/* Every type and operation against an oracle that computes one element at a time, from the
 * type's definition. */
#include <base/half.h>
#include <collectives/reductions.h>
#include <math.h>
#include <tests/harness.h>

static uint64_t seed = 7;
static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

/* From the definition: sign, exponent, fraction. */
static double half_value(uint16_t h, int exponent_bits, int fraction_bits) {
    int exponent = h >> fraction_bits & ((1 << exponent_bits) - 1),
        bias = (1 << (exponent_bits - 1)) - 1;
    int fraction = h & ((1 << fraction_bits) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - fraction_bits);
    else
        value = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return h & 0x8000 ? -value : value;
}

/* The nearest half, ties to even, found by bisection over the ordered magnitudes. */
static uint16_t half_nearest(double value, int exponent_bits, int fraction_bits) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << fraction_bits);
    double magnitude = fabs(value);
    if (isnan(value)) return infinity | 1;
    uint16_t low = 0, high = infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_value(middle, exponent_bits, fraction_bits) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double below = half_value(low, exponent_bits, fraction_bits);
    double step = low ? below - half_value(low - 1, exponent_bits, fraction_bits) : 0;
    double above = high == infinity ? below + step : half_value(high, exponent_bits, fraction_bits);
    double to_low = magnitude - below, to_high = above - magnitude;
    bool up = to_high < to_low || (to_high == to_low && (low & 1));
    if (isinf(magnitude)) up = true;
    return sign | (up ? high : low);
}

static bool same_half(uint16_t a, uint16_t b, int exponent_bits, int fraction_bits) {
    double x = half_value(a, exponent_bits, fraction_bits),
           y = half_value(b, exponent_bits, fraction_bits);
    return a == b || (isnan(x) && isnan(y));
}

TEST(every_half_widens_exactly) {
    for (unsigned h = 0; h < 65536; h++) {
        double f16 = half_value((uint16_t)h, 5, 10), bf16 = half_value((uint16_t)h, 8, 7);
        float got = float_of_float16((uint16_t)h);
        CHECK(isnan(f16) ? isnan(got) : got == f16 && !signbit(got) == !signbit(f16));
        got = float_of_bfloat16((uint16_t)h);
        CHECK(isnan(bf16) ? isnan(got) : got == bf16 && !signbit(got) == !signbit(bf16));
    }
}

TEST(floats_narrow_to_the_nearest_even_half) {
    for (unsigned i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)next_random();
        /* A third each: anything; near the range of float16; exactly halfway between neighbours. */
        if (i % 3 == 1) bits = (bits & 0x80ffffff) | (96 + next_random() % 52) << 23;
        if (i % 3 == 2) bits = (bits & 0x80ffe000) | (96 + next_random() % 52) << 23 | 0x1000;
        float value = float_of_bits(bits);
        CHECK(same_half(float16_of_float(value), half_nearest(value, 5, 10), 5, 10));
        CHECK(same_half(bfloat16_of_float(value), half_nearest(value, 8, 7), 8, 7));
    }
    CHECK_EQ(float16_of_float(65519.0f), 0x7bff);
    CHECK_EQ(float16_of_float(65520.0f), 0x7c00);
    CHECK_EQ(float16_of_float(-0.0f), 0x8000);
    CHECK_EQ(float16_of_float(0x1p-25f), 0);
    CHECK_EQ(float16_of_float(0x1.8p-25f), 1);
}

#define INTEGER_ORACLE(type, unsigned_type)                                     \
    static void oracle_##type(void *to, const void *left, const void *right,    \
                              weft_reduction_t op) {                            \
        type a, b, r = 0;                                                       \
        memcpy(&a, left, sizeof a);                                             \
        memcpy(&b, right, sizeof b);                                            \
        unsigned __int128 wide_a = (unsigned_type)a, wide_b = (unsigned_type)b; \
        switch ((int)op) {                                                      \
        case WEFT_SUM: r = (type)(unsigned_type)(wide_a + wide_b); break;       \
        case WEFT_PROD: r = (type)(unsigned_type)(wide_a * wide_b); break;      \
        case WEFT_MIN: r = b < a ? b : a; break;                                \
        case WEFT_MAX: r = b > a ? b : a; break;                                \
        case WEFT_BAND: r = (type)(wide_a & wide_b); break;                     \
        case WEFT_BOR: r = (type)(wide_a | wide_b); break;                      \
        case WEFT_BXOR: r = (type)(wide_a ^ wide_b); break;                     \
        case WEFT_LAND: r = a && b; break;                                      \
        case WEFT_LOR: r = a || b; break;                                       \
        case WEFT_LXOR: r = !a != !b; break;                                    \
        }                                                                       \
        memcpy(to, &r, sizeof r);                                               \
    }
INTEGER_ORACLE(int8_t, uint8_t)
INTEGER_ORACLE(int16_t, uint16_t)
INTEGER_ORACLE(int32_t, uint32_t)
INTEGER_ORACLE(int64_t, uint64_t)
INTEGER_ORACLE(uint8_t, uint8_t)
INTEGER_ORACLE(uint16_t, uint16_t)
INTEGER_ORACLE(uint32_t, uint32_t)
INTEGER_ORACLE(uint64_t, uint64_t)

/* Which operand a minimum or maximum hands on; sums and products never get here. */
static bool takes_left(double a, double b, weft_reduction_t op) {
    if (isnan(a)) return true;
    if (isnan(b)) return false;
    return op == WEFT_MIN ? a < b : a > b;
}

#define FLOAT_ORACLE(type)                                                                   \
    static void oracle_##type(void *to, const void *left, const void *right,                 \
                              weft_reduction_t op) {                                         \
        volatile type a, b, r;                                                               \
        memcpy((void *)&a, left, sizeof a);                                                  \
        memcpy((void *)&b, right, sizeof b);                                                 \
        r = op == WEFT_SUM ? a + b : op == WEFT_PROD ? a * b : takes_left(a, b, op) ? a : b; \
        memcpy(to, (void *)&r, sizeof r);                                                    \
    }
FLOAT_ORACLE(float)
FLOAT_ORACLE(double)

#define HALF_ORACLE(name, exponent_bits, fraction_bits)                      \
    static void oracle_##name(void *to, const void *left, const void *right, \
                              weft_reduction_t op) {                         \
        uint16_t a, b, r;                                                    \
        memcpy(&a, left, 2);                                                 \
        memcpy(&b, right, 2);                                                \
        double x = half_value(a, exponent_bits, fraction_bits),              \
               y = half_value(b, exponent_bits, fraction_bits);              \
        if (op == WEFT_SUM)                                                  \
            r = half_nearest((float)(x + y), exponent_bits, fraction_bits);  \
        else if (op == WEFT_PROD)                                            \
            r = half_nearest((float)(x * y), exponent_bits, fraction_bits);  \
        else                                                                 \
            r = takes_left(x, y, op) ? a : b;                                \
        memcpy(to, &r, 2);                                                   \
    }
HALF_ORACLE(float16, 5, 10)
HALF_ORACLE(bfloat16, 8, 7)

typedef void (*oracle_fn)(void *to, const void *left, const void *right, weft_reduction_t op);
static const oracle_fn oracle[WEFT_N_DATATYPES] = {
    [WEFT_INT8] = oracle_int8_t,       [WEFT_INT16] = oracle_int16_t,
    [WEFT_INT32] = oracle_int32_t,     [WEFT_INT64] = oracle_int64_t,
    [WEFT_UINT8] = oracle_uint8_t,     [WEFT_UINT16] = oracle_uint16_t,
    [WEFT_UINT32] = oracle_uint32_t,   [WEFT_UINT64] = oracle_uint64_t,
    [WEFT_FLOAT16] = oracle_float16,   [WEFT_FLOAT32] = oracle_float,
    [WEFT_BFLOAT16] = oracle_bfloat16, [WEFT_FLOAT64] = oracle_double,
};

static bool is_float(int type) {
    return type >= WEFT_FLOAT16;
}

static bool both_nan(int type, const void *x, const void *y) {
    uint16_t h[2];
    float f[2];
    double d[2];
    switch (type) {
    case WEFT_FLOAT16:
    case WEFT_BFLOAT16:
        memcpy(&h[0], x, 2), memcpy(&h[1], y, 2);
        if (type == WEFT_FLOAT16)
            return isnan(half_value(h[0], 5, 10)) && isnan(half_value(h[1], 5, 10));
        return isnan(half_value(h[0], 8, 7)) && isnan(half_value(h[1], 8, 7));
    case WEFT_FLOAT32: memcpy(&f[0], x, 4), memcpy(&f[1], y, 4); return isnan(f[0]) && isnan(f[1]);
    case WEFT_FLOAT64: memcpy(&d[0], x, 8), memcpy(&d[1], y, 8); return isnan(d[0]) && isnan(d[1]);
    default: return false;
    }
}

/* The payload of a computed NaN is the processor's business. A minimum's or maximum's NaN is an
 * operand, bit for bit. */
static bool agrees(int type, int op, const char *got, const char *want) {
    size_t width = weft_datatype_size(type);
    if (memcmp(got, want, width) == 0) return true;
    return (op == WEFT_SUM || op == WEFT_PROD) && both_nan(type, got, want);
}

enum { MOST = 133 };

static void check_one(reduce_fn reduce, int type, int op, size_t count, unsigned skew,
                      unsigned in_place) {
    size_t width = weft_datatype_size(type), bytes = count * width;
    static char room[3][8 * MOST + 64], want[8 * MOST];
    char *left = room[0] + skew, *right = room[1] + skew * 3 % 16, *to = room[2] + skew * 5 % 16;
    for (size_t i = 0; i < bytes; i++)
        left[i] = (char)next_random(), right[i] = (char)next_random();
    if (count > 2) memcpy(right, left, width);        /* equal operands */
    if (count > 4) memset(left + width, 0xff, width); /* a NaN, or -1 */
    if (count > 4) memset(right + 2 * width, 0xff, width);
    for (size_t i = 0; i < count; i++)
        oracle[type](want + i * width, left + i * width, right + i * width, op);
    if (in_place == 1) to = left;
    if (in_place == 2) to = right;
    char guard = to[bytes] = 0x5a;
    reduce(to, left, right, count);
    for (size_t i = 0; i < count; i++) CHECK(agrees(type, op, to + i * width, want + i * width));
    CHECK_EQ(to[bytes], guard);
}

TEST(every_type_and_operation_agrees_with_the_oracle_at_any_alignment) {
    for (int type = 0; type <= WEFT_FLOAT64; type++)
        for (int op = 0; op <= WEFT_LXOR; op++) {
            reduce_fn fns[2] = {weft__reduction(type, op), weft__reduction_baseline(type, op)};
            if (is_float(type) && op >= WEFT_BAND) continue;
            for (unsigned i = 0; i < 2; i++)
                for (unsigned skew = 0; skew < 9; skew++)
                    for (size_t count = 0; count <= MOST; count += count < 20 ? 1 : 113)
                        check_one(fns[i], type, op, count, skew, (unsigned)(count + skew) % 3);
        }
}

TEST(what_does_not_exist_is_not_offered) {
    for (int type = 0; type < WEFT_N_DATATYPES; type++)
        for (int op = 0; op < WEFT_N_REDUCTIONS; op++) {
            bool integer = type <= WEFT_UINT64, pair = type >= WEFT_FLOAT32_INT32;
            bool complex = type == WEFT_COMPLEX_FLOAT32 || type == WEFT_COMPLEX_FLOAT64;
            bool arithmetic = op == WEFT_SUM || op == WEFT_PROD;
            bool there = op == WEFT_MINLOC || op == WEFT_MAXLOC ? pair
                         : pair                                 ? false
                         : op == WEFT_AVG                       ? !integer
                         : arithmetic                           ? true
                         : op == WEFT_MIN || op == WEFT_MAX     ? !complex
                                                                : integer;
            CHECK_EQ(weft__reduction(type, op) != NULL, there);
            CHECK_EQ(weft__reduction_baseline(type, op) != NULL, there);
        }
    CHECK(!weft__reduction(WEFT_N_DATATYPES, WEFT_SUM));
    CHECK(!weft__reduction(WEFT_INT8, WEFT_N_REDUCTIONS));
    CHECK(!weft__reduction((weft_datatype_t)-1, WEFT_SUM));
    CHECK_EQ(weft_datatype_size(WEFT_N_DATATYPES), 0);
    CHECK_EQ(weft_datatype_size(WEFT_BFLOAT16), 2);
}

/* ---- pairs, complex numbers, long double ----------------------------------------------------- */

TEST(places_of_the_least_and_the_largest_are_the_lowest_index) {
    weft_float64_int32_t a[] = {{1, 5}, {2, 4}, {NAN, 3}, {7, 1}},
                         b[] = {{1, 2}, {3, 9}, {1, 1}, {NAN, 2}};
    weft_float64_int32_t to[4];
    reduce_fn least = weft__reduction(WEFT_FLOAT64_INT32, WEFT_MINLOC);
    least(to, a, b, 4);
    CHECK(to[0].value == 1 && to[0].index == 2);
    CHECK(to[1].value == 2 && to[1].index == 4);
    CHECK(isnan(to[2].value) && to[2].index == 3);
    weft__reduction(WEFT_FLOAT64_INT32, WEFT_MAXLOC)(to, a, b, 4);
    CHECK(to[0].index == 2);
    CHECK(to[1].value == 3 && to[1].index == 9);
    weft_int64_int32_t c = {INT64_MIN, 7}, d = {INT64_MIN, 6}, e;
    weft__reduction(WEFT_INT64_INT32, WEFT_MINLOC)(&e, &c, &d, 1);
    CHECK(e.value == INT64_MIN && e.index == 6);
}

TEST(complex_numbers_and_long_doubles_are_added_and_multiplied) {
    double a[2] = {1, 2}, b[2] = {3, -4}, to[2];
    weft__reduction(WEFT_COMPLEX_FLOAT64, WEFT_SUM)(to, a, b, 1);
    CHECK(to[0] == 4 && to[1] == -2);
    weft__reduction(WEFT_COMPLEX_FLOAT64, WEFT_PROD)(to, a, b, 1);
    CHECK(to[0] == 11 && to[1] == 2);
    weft__reduction(WEFT_COMPLEX_FLOAT64, WEFT_PROD)(a, a, b, 1); /* into an operand */
    CHECK(a[0] == 11 && a[1] == 2);
    long double x = 1e300L, y = 3, z;
    weft__reduction(WEFT_LONG_DOUBLE, WEFT_PROD)(&z, &x, &y, 1);
    CHECK(z == 3e300L);
}
