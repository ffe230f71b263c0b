/*
 * A split copy: the reader copies pieces from the beginning, the helper from the end, until they
 * meet. One word of the reader's slot (slot_table.h) counts the pieces that each has taken. A side
 * that takes a piece copies it in the same turn. The helper counts its finished pieces in a second
 * word, where it also sees whether the reader waits for them.
 *
 * The reader trusts only its own count of its pieces, and the helper takes no more than there are.
 * So a peer that scribbles on the words can only delay or stop its own copy.
 */
#ifndef WEFT_TRANSPORTS_SHM_QUEUES_COPY_CTL_H
#define WEFT_TRANSPORTS_SHM_QUEUES_COPY_CTL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SPLIT_WORDS = 64, /* split copies of a worker at a time */
    SPLIT_PIECE = 128 * 1024,
    SPLIT_PAGE = 4096,
    SPLIT_PIECES_MAX = 65000, /* of a copy; each side counts in 16 bits */
    /* compare-and-swaps of the helper in one turn, while the reader counts in between */
    SPLIT_TRIES = 8
};

/* With serial 0 there is no copy. */
struct split_words {
    /* serial << 32 | pieces from the beginning << 16 | pieces from the end */
    _Alignas(64) _Atomic uint64_t taken;
    /* serial << 32 | SPLIT_AWAITED | pieces from the end that are written */
    _Atomic uint64_t written;
};
#define SPLIT_AWAITED (UINT64_C(1) << 31)

struct split_copy_ctl {
    struct split_words words[SPLIT_WORDS];
};

/* One side's view of a split copy. */
struct split {
    struct split_words *words;
    uint32_t serial;
    unsigned n, taken; /* pieces in all, and pieces that this side took */
    unsigned awaited;  /* the helper's pieces, when the reader has stopped */
    size_t len, piece; /* bytes in all, and bytes of each piece but the last */
};

/* Whole pages; a short copy has an even number of pieces. */
static inline size_t split_piece(size_t len) {
    size_t n = (len + 2 * SPLIT_PIECE - 1) / (2 * SPLIT_PIECE) * 2;
    return ((len + n - 1) / n + SPLIT_PAGE - 1) & ~(size_t)(SPLIT_PAGE - 1);
}
/* False: the copy is too long. */
static inline bool split_init(struct split *split, struct split_words *words, uint32_t serial,
                              size_t len) {
    size_t piece = split_piece(len), n = (len + piece - 1) / piece;
    *split = (struct split){
        .words = words, .serial = serial, .n = (unsigned)n, .len = len, .piece = piece};
    return n <= SPLIT_PIECES_MAX;
}
/* The offset of a piece; *len_p: its length. */
static inline size_t split_at(const struct split *split, int piece, size_t *len_p) {
    size_t at = (size_t)piece * split->piece, left = split->len - at;
    *len_p = left < split->piece ? left : split->piece;
    return at;
}

/* ---- the reader */

static inline void split_begin(const struct split *split) {
    uint64_t none = (uint64_t)split->serial << 32;
    atomic_store_explicit(&split->words->written, none, memory_order_relaxed);
    atomic_store_explicit(&split->words->taken, none, memory_order_release);
}

/* Leaves all pieces to the helper, and awaits them. */
static inline void split_leave(struct split *split) {
    uint64_t none = (uint64_t)split->serial << 32;
    split->awaited = split->n;
    atomic_store_explicit(&split->words->written, none | SPLIT_AWAITED, memory_order_relaxed);
    atomic_store_explicit(&split->words->taken, none, memory_order_release);
}

/* The next piece from the beginning; -1: all are taken. */
static inline int split_from_front(struct split *split) {
    uint64_t before =
        atomic_fetch_add_explicit(&split->words->taken, 1 << 16, memory_order_acq_rel);
    return split->taken + (before & UINT16_MAX) < split->n ? (int)split->taken++ : -1;
}

static inline bool split_is_there(const struct split *split, uint64_t written) {
    return (written & (SPLIT_AWAITED - 1)) >= split->awaited;
}
/* Ends the taking of pieces. True: the helper's pieces are written. False: they are awaited now. */
static inline bool split_stop(struct split *split) {
    split->awaited =
        atomic_exchange_explicit(&split->words->taken, 0, memory_order_acq_rel) & UINT16_MAX;
    return split_is_there(split, atomic_fetch_or_explicit(&split->words->written, SPLIT_AWAITED,
                                                          memory_order_acq_rel));
}
/* True: the awaited pieces are written. Call it after the helper's message: earlier looks slow
 * the helper. */
static inline bool split_came(const struct split *split) {
    return split_is_there(split,
                          atomic_load_explicit(&split->words->written, memory_order_acquire));
}

/* Frees the words: a late helper finds no copy in them. */
static inline void split_end(const struct split *split) {
    atomic_store_explicit(&split->words->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&split->words->written, 0, memory_order_relaxed);
}

/* ---- the helper */

enum { SPLIT_OVER = -1, SPLIT_BUSY = -2 };

/* The next piece from the end. SPLIT_OVER: there is none; SPLIT_BUSY: try again. */
static inline int split_from_back(struct split *split) {
    uint64_t word = atomic_load_explicit(&split->words->taken, memory_order_acquire);
    for (int i = 0; i < SPLIT_TRIES; i++) {
        unsigned front = (unsigned)(word >> 16 & UINT16_MAX), back = (unsigned)(word & UINT16_MAX);
        if (word >> 32 != split->serial || front + back >= split->n || split->taken == split->n)
            return SPLIT_OVER;
        if (!atomic_compare_exchange_weak_explicit(&split->words->taken, &word, word + 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        split->taken++;
        return (int)(split->n - 1 - back);
    }
    return SPLIT_BUSY;
}

static inline bool split_is_over(const struct split *split) {
    uint64_t word = atomic_load_explicit(&split->words->taken, memory_order_acquire);
    return word >> 32 != split->serial ||
           (word >> 16 & UINT16_MAX) + (word & UINT16_MAX) >= split->n;
}

/* The piece is written. True: it was the last, and the reader awaits it, so the caller notifies
 * it. */
static inline bool split_wrote(const struct split *split) {
    uint64_t word = atomic_load_explicit(&split->words->written, memory_order_relaxed);
    do {
        if (word >> 32 != split->serial) return false;
    } while (!atomic_compare_exchange_weak_explicit(&split->words->written, &word, word + 1,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return word & SPLIT_AWAITED && split_is_over(split);
}

#endif
