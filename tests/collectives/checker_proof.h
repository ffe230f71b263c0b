/*
 * The checker's own: one proof, its members, and the parts that it is made of (checker.c runs the
 * schedules, checker_order.c proves what is ordered, checker_result.c what comes of it).
 */
#ifndef WEFT_TESTS_COLLECTIVES_CHECKER_PROOF_H
#define WEFT_TESTS_COLLECTIVES_CHECKER_PROOF_H

#include <reactor/reactor.h>

#include "checker.h"

enum { NOTHING = -1 };

/* A symbol is a leaf (left < 0: the contribution of rank ~left to element `right`) or the
 * reduction of two. */
struct symbol {
    int32_t left, right;
};

struct member {
    struct schedule *schedule;
    struct coll_shape shape; /* with its vectors */
    int32_t *memory;         /* a symbol an element: DST, then SCRATCH, then SRC unless in place */
    uint64_t base[N_COLL_BUFFERS], len[N_COLL_BUFFERS];
    uint32_t *waits;      /* of each step: for how many others */
    uint32_t *mate_step;  /* of each send and receive: its other side */
    uint32_t *share_step; /* its steps through the segment of its group, from 1 */
    uint32_t n_shared;
    bool *ready;
    uint64_t *past;     /* of each step: those before it; only where there are puts */
    uint64_t *received; /* of each step: the ranks known to have begun when it is done */
};

struct proof {
    const struct check *check;
    struct member *member;
    struct symbol *symbol;
    int32_t *bucket; /* hash of symbols: index + 1 */
    uint32_t n_symbols, symbol_room, n_done, n_steps;
    uint32_t words;  /* of a set of ranks; 0: not kept */
    uint64_t *queue; /* rank << 32 | step: ready to be done */
    uint32_t head, tail;
    char *why;
    size_t why_size;
    const struct coll_asking *asking; /* its schedule of counts is proved; or NULL */
    uint64_t **known;                 /* what each member learnt by that; or NULL */
};

static inline uint32_t checker_hash(uint64_t a, uint64_t b) {
    uint64_t h = (a + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^
                 (b + 0x94d049bb133111ebu) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h ^ h >> 32);
}

/* ---- checker.c */

/* Notes the reason, and is false. */
bool checker_refute(struct proof *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Do the two share a segment? */
bool checker_same_group(const struct proof *p, uint32_t a, uint32_t b);
/* The ranks known to have begun when a step is done. */
uint64_t *checker_received(struct proof *p, uint32_t rank, uint32_t step);

/* ---- checker_order.c */

bool checker_prove_order(struct proof *p, uint32_t rank);
/* Of the puts to each `every`-th rank. */
bool checker_prove_puts(struct proof *p, uint32_t every);

/* ---- checker_result.c: equal trees are one symbol; -1: no memory */

int32_t checker_symbol(struct proof *p, int32_t left, int32_t right);
int32_t checker_leaf(struct proof *p, uint32_t rank, uint64_t element);
bool checker_prove_result(struct proof *p);
bool checker_prove_joined(struct proof *p, uint32_t rank);

#endif
