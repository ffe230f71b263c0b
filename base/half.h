/*
 * Half-precision values to float and back, without branches, so that loops over them vectorise.
 * HALF_FUNCTION: how they are declared, for a compiler that has other processors to compile for.
 */
#ifndef WEFT_BASE_HALF_H
#define WEFT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#ifndef HALF_FUNCTION
#define HALF_FUNCTION static inline
#endif

HALF_FUNCTION float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

HALF_FUNCTION uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

HALF_FUNCTION float float_of_bfloat16(uint16_t half) {
    return float_of_bits((uint32_t)half << 16);
}

HALF_FUNCTION uint16_t bfloat16_of_float(float value) {
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40; /* rounding could carry a NaN into infinity */
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* The exponent is re-based by a multiplication, which brings subnormal values out right as well. */
HALF_FUNCTION float float_of_float16(uint16_t half) {
    uint32_t magnitude = half & 0x7fff;
    uint32_t bits = bits_of_float(float_of_bits(magnitude << 13) * 0x1p112f);
    bits |= magnitude >= 0x7c00 ? 0x7f800000u : 0u; /* infinity or NaN */
    return float_of_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

/* After Giesen's float_to_half_fast3_rtne: the addition to 0.5 lets the FPU round subnormal
 * results. */
HALF_FUNCTION uint16_t float16_of_float(float value) {
    uint32_t bits = bits_of_float(value), sign = bits & 0x80000000, magnitude = bits ^ sign;
    uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t special = magnitude > 0x7f800000 ? 0x7e00u : 0x7c00u;
    uint32_t half = magnitude < 0x38800000 ? subnormal : normal;
    return (uint16_t)((magnitude >= 0x47800000 ? special : half) | sign >> 16);
}

#endif
