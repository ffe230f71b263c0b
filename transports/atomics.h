/* Atomic operations on shared memory, by sequentially consistent processor instructions. */
#ifndef WEFT_TRANSPORTS_ATOMICS_H
#define WEFT_TRANSPORTS_ATOMICS_H

#include <stdbool.h>
#include <transports/transport.h>

#define ATOMIC_FETCH(type, at, operand, compare)                                                  \
    switch (op) {                                                                                 \
    case RMA_ADD: return __atomic_fetch_add((type *)(at), (type)(operand), __ATOMIC_SEQ_CST);     \
    case RMA_AND: return __atomic_fetch_and((type *)(at), (type)(operand), __ATOMIC_SEQ_CST);     \
    case RMA_OR: return __atomic_fetch_or((type *)(at), (type)(operand), __ATOMIC_SEQ_CST);       \
    case RMA_XOR: return __atomic_fetch_xor((type *)(at), (type)(operand), __ATOMIC_SEQ_CST);     \
    case RMA_SWAP: return __atomic_exchange_n((type *)(at), (type)(operand), __ATOMIC_SEQ_CST);   \
    case RMA_CSWAP: {                                                                             \
        type old = (type)(compare);                                                               \
        __atomic_compare_exchange_n((type *)(at), &old, (type)(operand), false, __ATOMIC_SEQ_CST, \
                                    __ATOMIC_SEQ_CST);                                            \
        return old;                                                                               \
    }                                                                                             \
    }

/* Return the old value. `at` is aligned to its type. */
static inline uint64_t atomic_fetch64(enum rma_atomic op, void *at, uint64_t operand,
                                      uint64_t compare) {
    ATOMIC_FETCH(uint64_t, at, operand, compare)
    __builtin_unreachable();
}
static inline uint32_t atomic_fetch32(enum rma_atomic op, void *at, uint64_t operand,
                                      uint64_t compare) {
    ATOMIC_FETCH(uint32_t, at, operand, compare)
    __builtin_unreachable();
}

/* Returns true for a valid operation and size. Checks input from a peer or from the program. */
static inline bool atomic_is_one(unsigned op, size_t size, bool posted) {
    return op <= RMA_CSWAP && !(posted && op == RMA_CSWAP) && (size == 4 || size == 8);
}

/* Returns true if network devices have this operation. */
static inline bool atomic_is_of_devices(unsigned op, size_t size) {
    return size == 8 && (op == RMA_ADD || op == RMA_CSWAP);
}

/* Stores `size` bytes of the old value in *old_p. */
static inline void atomic_fetch_at(enum rma_atomic op, size_t size, void *at, uint64_t operand,
                                   uint64_t compare, void *old_p) {
    if (size == 8)
        *(uint64_t *)old_p = atomic_fetch64(op, at, operand, compare);
    else
        *(uint32_t *)old_p = atomic_fetch32(op, at, operand, compare);
}
static inline void atomic_post_at(enum rma_atomic op, size_t size, void *at, uint64_t operand) {
    if (size == 8)
        (void)atomic_fetch64(op, at, operand, 0);
    else
        (void)atomic_fetch32(op, at, operand, 0);
}

#undef ATOMIC_FETCH
#endif
