/*
 * Element-wise reductions of host memory.
 *
 * Integers wrap. Minimum and maximum of floating-point values hand a NaN on: if either operand is
 * one, so is the result (the left one's, if both are). Of two zeros that differ in sign, minimum
 * and maximum take the right operand. Half precision (float16, bfloat16) is widened to float,
 * computed and rounded to nearest even at every step.
 */
#ifndef WEFT_COLLECTIVES_REDUCTIONS_H
#define WEFT_COLLECTIVES_REDUCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <weft/collective.h>

/* to[i] = left[i] op right[i]. `to` may be `left` or `right` but may not overlap them otherwise.
 * Any alignment. */
typedef void (*reduce_fn)(void *to, const void *left, const void *right, size_t count);

/* NULL where the operation does not exist for the type: bitwise ones on floating-point values. */
reduce_fn weft__reduction(weft_datatype_t type, weft_reduction_t reduction);

/* Divides the elements of a sum by the number of members: for avg. */
typedef void (*scale_fn)(void *values, size_t count, uint32_t members);
scale_fn weft__scale(weft_datatype_t type);

/* Is the result the same whatever the order? */
bool weft__datatype_is_integer(weft_datatype_t type);

/* The same without the wide vectors, for machines that have none (and for tests, which compare
 * the two). */
reduce_fn weft__reduction_baseline(weft_datatype_t type, weft_reduction_t reduction);

#endif
