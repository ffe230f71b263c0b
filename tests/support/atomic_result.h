/* What an atomic leaves in a word, computed serially. */
#ifndef WEFT_TESTS_SUPPORT_ATOMIC_RESULT_H
#define WEFT_TESTS_SUPPORT_ATOMIC_RESULT_H

#include <stdint.h>
#include <weft/rma.h>

/* Of 8 bytes; of a word of 4 they are the lower ones. */
static inline uint64_t atomic_result(weft_atomic_t what, uint64_t old, uint64_t operand,
                                     uint64_t compare) {
    switch (what) {
    case WEFT_ATOMIC_ADD: return old + operand;
    case WEFT_ATOMIC_AND: return old & operand;
    case WEFT_ATOMIC_OR: return old | operand;
    case WEFT_ATOMIC_XOR: return old ^ operand;
    case WEFT_ATOMIC_SWAP: return operand;
    case WEFT_ATOMIC_CSWAP: return old == compare ? operand : old;
    }
    return 0;
}

#endif
