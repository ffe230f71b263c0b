/*
 * A copy that two workers make together: the reader takes its pieces from the beginning on, the helper from the end, until they meet.
 * What each took stands in one word, which is the reader's, among those that it shows its peers (hall.h). Who takes a piece
 * copies it in the same turn; the helper then says so beside it, and hears there whether the reader waits for that.
 *
 * The reader believes only its own count of its pieces, and the helper takes no more than there are: words that somebody else has
 * written to delay, or end in a copy that nobody makes, which is the harm a peer can do by saying nothing.
 */
#ifndef WEFT_TRANSPORTS_SHM_JOINT_H
#define WEFT_TRANSPORTS_SHM_JOINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JOINT_WORDS = 64, /* copies of a worker that peers may take part in at a time */
    JOINT_PIECE = 128 * 1024,
    JOINT_PAGE = 4096,
    JOINT_PIECES_MAX = 65000, /* of a copy; each side counts in 16 bits */
    JOINT_TRIES = 8           /* of the helper in one turn, while the reader counts in between */
};

/* With serial 0 there is no copy. */
struct joint_words {
    _Alignas(64) _Atomic uint64_t taken; /* serial << 32 | pieces from the beginning << 16 | pieces from the end */
    _Atomic uint64_t written;            /* serial << 32 | JOINT_AWAITED | pieces from the end that are there */
};
#define JOINT_AWAITED (UINT64_C(1) << 31)

struct joint_board {
    struct joint_words words[JOINT_WORDS];
};

/* As one side has it. */
struct joint {
    struct joint_words *words;
    uint32_t serial;
    unsigned n, taken; /* pieces in all, and those of this side */
    unsigned awaited;  /* pieces of the helper's, when the reader has stopped */
    size_t len, piece; /* bytes of the whole, and of each piece but the last */
};

/* Whole pages, and of a short copy as many pieces for the one side as for the other. */
static inline size_t joint_piece(size_t len) {
    size_t n = (len + 2 * JOINT_PIECE - 1) / (2 * JOINT_PIECE) * 2;
    return ((len + n - 1) / n + JOINT_PAGE - 1) & ~(size_t)(JOINT_PAGE - 1);
}
/* False: it is too long. */
static inline bool joint_init(struct joint *joint, struct joint_words *words, uint32_t serial, size_t len) {
    size_t piece = joint_piece(len), n = (len + piece - 1) / piece;
    *joint = (struct joint){.words = words, .serial = serial, .n = (unsigned)n, .len = len, .piece = piece};
    return n <= JOINT_PIECES_MAX;
}
/* Where a piece begins; *len_p: how long it is. */
static inline size_t joint_at(const struct joint *joint, int piece, size_t *len_p) {
    size_t at = (size_t)piece * joint->piece, left = joint->len - at;
    *len_p = left < joint->piece ? left : joint->piece;
    return at;
}

/* ---- the reader */

static inline void joint_begin(const struct joint *joint) {
    uint64_t none = (uint64_t)joint->serial << 32;
    atomic_store_explicit(&joint->words->written, none, memory_order_relaxed);
    atomic_store_explicit(&joint->words->taken, none, memory_order_release);
}

/* All of it is the helper's, and awaited from now on. */
static inline void joint_leave(struct joint *joint) {
    uint64_t none = (uint64_t)joint->serial << 32;
    joint->awaited = joint->n;
    atomic_store_explicit(&joint->words->written, none | JOINT_AWAITED, memory_order_relaxed);
    atomic_store_explicit(&joint->words->taken, none, memory_order_release);
}

/* The next piece from the beginning; -1: all are taken. */
static inline int joint_from_front(struct joint *joint) {
    uint64_t before = atomic_fetch_add_explicit(&joint->words->taken, 1 << 16, memory_order_acq_rel);
    return joint->taken + (before & UINT16_MAX) < joint->n ? (int)joint->taken++ : -1;
}

static inline bool joint_is_there(const struct joint *joint, uint64_t written) {
    return (written & (JOINT_AWAITED - 1)) >= joint->awaited;
}
/* Nobody takes a piece any more. Are those of the helper there? If not, it hears that they are awaited. */
static inline bool joint_stop(struct joint *joint) {
    joint->awaited = atomic_exchange_explicit(&joint->words->taken, 0, memory_order_acq_rel) & UINT16_MAX;
    return joint_is_there(joint,
                          atomic_fetch_or_explicit(&joint->words->written, JOINT_AWAITED, memory_order_acq_rel));
}
/* Are they now? The helper tells; who looks before takes the line from it. */
static inline bool joint_came(const struct joint *joint) {
    return joint_is_there(joint, atomic_load_explicit(&joint->words->written, memory_order_acquire));
}

/* Whatever the helper still does, it finds nothing. */
static inline void joint_end(const struct joint *joint) {
    atomic_store_explicit(&joint->words->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&joint->words->written, 0, memory_order_relaxed);
}

/* ---- the helper */

enum { JOINT_OVER = -1, JOINT_BUSY = -2 };

/* The next piece from the end; OVER: there is none, BUSY: try again. */
static inline int joint_from_back(struct joint *joint) {
    uint64_t word = atomic_load_explicit(&joint->words->taken, memory_order_acquire);
    for (int i = 0; i < JOINT_TRIES; i++) {
        unsigned front = (unsigned)(word >> 16 & UINT16_MAX), back = (unsigned)(word & UINT16_MAX);
        if (word >> 32 != joint->serial || front + back >= joint->n || joint->taken == joint->n) return JOINT_OVER;
        if (!atomic_compare_exchange_weak_explicit(&joint->words->taken, &word, word + 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        joint->taken++;
        return (int)(joint->n - 1 - back);
    }
    return JOINT_BUSY;
}

static inline bool joint_is_over(const struct joint *joint) {
    uint64_t word = atomic_load_explicit(&joint->words->taken, memory_order_acquire);
    return word >> 32 != joint->serial || (word >> 16 & UINT16_MAX) + (word & UINT16_MAX) >= joint->n;
}

/* The piece is there. True: it is awaited and was the last, so the reader is to be told. */
static inline bool joint_wrote(const struct joint *joint) {
    uint64_t word = atomic_load_explicit(&joint->words->written, memory_order_relaxed);
    do {
        if (word >> 32 != joint->serial) return false;
    } while (!atomic_compare_exchange_weak_explicit(&joint->words->written, &word, word + 1, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return word & JOINT_AWAITED && joint_is_over(joint);
}

#endif
