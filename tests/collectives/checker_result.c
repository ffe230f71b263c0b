/* Symbols, and what a member must have in the end. */
#include <string.h>

#include "checker_proof.h"

/* ---- symbols: equal trees are one symbol ----------------------------------------------------- */

static bool grow_symbols(struct proof *p) {
    uint32_t room = p->symbol_room ? 2 * p->symbol_room : 1024;
    p->symbol = weft__realloc(p->member, p->symbol, room * sizeof *p->symbol, "symbols");
    p->bucket = weft__realloc(p->member, p->bucket, 2 * room * sizeof *p->bucket, "buckets");
    if (!p->symbol || !p->bucket) return false;
    memset(p->bucket, 0, 2 * room * sizeof *p->bucket);
    for (uint32_t i = 0; i < p->n_symbols; i++) {
        uint32_t at = checker_hash((uint32_t)p->symbol[i].left, (uint32_t)p->symbol[i].right) &
                      (2 * room - 1);
        while (p->bucket[at]) at = (at + 1) & (2 * room - 1);
        p->bucket[at] = (int32_t)i + 1;
    }
    p->symbol_room = room;
    return true;
}

int32_t checker_symbol(struct proof *p, int32_t left, int32_t right) {
    if (p->n_symbols == p->symbol_room && !grow_symbols(p)) return -1;
    uint32_t mask = 2 * p->symbol_room - 1,
             at = checker_hash((uint32_t)left, (uint32_t)right) & mask;
    for (; p->bucket[at]; at = (at + 1) & mask) {
        const struct symbol *s = &p->symbol[p->bucket[at] - 1];
        if (s->left == left && s->right == right) return p->bucket[at] - 1;
    }
    p->symbol[p->n_symbols] = (struct symbol){left, right};
    p->bucket[at] = (int32_t)++p->n_symbols;
    return (int32_t)p->n_symbols - 1;
}

int32_t checker_leaf(struct proof *p, uint32_t rank, uint64_t element) {
    return checker_symbol(p, ~(int32_t)rank, (int32_t)element);
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Leaves of a tree, from the left, must be this element's contributions: of the first `n` ranks,
 * each once. */
static bool each_once(struct proof *p, int32_t root, uint64_t element, uint32_t ranks) {
    uint32_t size = p->check->shape.size, n = 0, depth = 0;
    int32_t *stack = weft__alloc(p->member, (size + 1) * sizeof *stack, "stack");
    bool *seen = weft__alloc(p->member, size, "seen"), right = stack && seen;
    if (right) stack[depth++] = root;
    while (right && depth > 0) {
        const struct symbol *s = &p->symbol[stack[--depth]];
        if (s->left >= 0) {
            right = depth + 2 <= size + 1;
            if (right) stack[depth++] = s->right, stack[depth++] = s->left;
            continue;
        }
        uint32_t rank = (uint32_t)~s->left;
        right = (uint64_t)s->right == element && rank < ranks && !seen[rank] && ++n;
        seen[rank] = true;
    }
    talloc_free(stack);
    talloc_free(seen);
    return right && n == ranks;
}

static int32_t folded(struct proof *p, uint64_t element, uint32_t ranks) {
    int32_t sum = checker_leaf(p, 0, element);
    for (uint32_t r = 1; r < ranks; r++) sum = checker_symbol(p, sum, checker_leaf(p, r, element));
    return sum;
}

/* What stands there is a reduction of the first `n` ranks' contributions. */
static int32_t reduced(struct proof *p, int32_t got, uint64_t element, uint32_t n) {
    if (weft__algorithms[p->check->algorithm].fixed_order) return folded(p, element, n);
    return got != NOTHING && each_once(p, got, element, n) ? got : NOTHING;
}

enum { ANYTHING = -2 };

/* What an element of a DST of blocks must be: the block's number, and the place within it. */
static bool find_block(const struct coll_shape *shape, uint32_t n, uint64_t element,
                       uint32_t *block_p, uint64_t *place_p) {
    if (!shape->dst.count) {
        *block_p = (uint32_t)(element / shape->count);
        *place_p = element % shape->count;
        return true;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct piece block = weft__dst_block(shape, i);
        uint64_t first = block.offset / shape->width;
        if (element < first || element >= first + block.len / shape->width) continue;
        *block_p = i;
        *place_p = element - first;
        return true;
    }
    return false;
}

static uint32_t times_before(const uint32_t *list, uint32_t index) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < index; i++) n += list[i] == list[index];
    return n;
}

static int32_t expected_edge(struct proof *p, uint32_t rank, uint32_t i, uint64_t place) {
    const struct coll_shape *shape = &p->member[rank].shape;
    const struct coll_shape *from = &p->member[shape->source[i]].shape;
    uint32_t k = times_before(shape->source, i);
    for (uint32_t d = 0; d < from->n_destinations; d++)
        if (from->destination[d] == rank && times_before(from->destination, d) == k)
            return checker_leaf(p, shape->source[i],
                                weft__src_block(from, d).offset / shape->width + place);
    return NOTHING;
}

static int32_t expected_block(struct proof *p, uint32_t rank, uint64_t element) {
    const struct coll_shape *shape = &p->member[rank].shape;
    bool edges = shape->kind == COLL_NEIGHBOR_ALLTOALLV;
    uint32_t block = 0;
    uint64_t place = 0;
    if (!find_block(shape, edges ? shape->n_sources : shape->size, element, &block, &place))
        return p->check->in_place ? ANYTHING : NOTHING; /* a gap */
    if (edges) return expected_edge(p, rank, block, place);
    if (shape->kind == COLL_ALLTOALL || shape->kind == COLL_ALLTOALLV)
        place += weft__src_block(&p->member[block].shape, rank).offset / shape->width;
    return checker_leaf(p, block, place);
}

/* The symbol that a member must have for an element of DST. */
static int32_t expected(struct proof *p, uint32_t rank, uint64_t element) {
    const struct coll_shape *shape = &p->member[rank].shape;
    const struct member *m = &p->member[rank], *first = &p->member[0];
    int32_t got = m->memory[m->base[COLL_DST] + element];
    uint64_t of_root = weft__src_block(&p->member[shape->root].shape, rank).offset / shape->width;
    uint64_t of_mine = weft__src_block(shape, rank).offset / shape->width;
    switch (shape->kind) {
    case COLL_BCAST: return checker_leaf(p, shape->root, element);
    case COLL_SCATTER:
    case COLL_SCATTERV: return checker_leaf(p, shape->root, of_root + element);
    case COLL_ALLREDUCE: /* the same tree everywhere */
        if (rank == 0) return reduced(p, got, element, shape->size);
        return first->memory[first->base[COLL_DST] + element];
    case COLL_REDUCE: return reduced(p, got, element, shape->size);
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV: return reduced(p, got, of_mine + element, shape->size);
    case COLL_SCAN: return reduced(p, got, element, rank + 1);
    case COLL_EXSCAN: return rank ? reduced(p, got, element, rank) : ANYTHING;
    default: return expected_block(p, rank, element);
    }
}

static bool has_blocks(enum coll_kind kind) {
    return kind == COLL_GATHERV || kind == COLL_ALLGATHERV || kind == COLL_ALLTOALLV ||
           kind == COLL_NEIGHBOR_ALLTOALLV;
}

bool checker_prove_result(struct proof *p) {
    for (uint32_t r = 0; r < p->check->shape.size; r++) {
        const struct member *m = &p->member[r];
        for (uint64_t i = 0; i < m->len[COLL_DST]; i++) {
            int32_t got = m->memory[m->base[COLL_DST] + i], want = expected(p, r, i);
            bool gap = want == NOTHING && got == NOTHING && has_blocks(m->shape.kind);
            if (want == ANYTHING || gap || (want == got && want != NOTHING)) continue;
            if (want == NOTHING)
                return checker_refute(p,
                                      "rank %u: element %llu lacks a contribution or has it twice",
                                      r, (unsigned long long)i);
            return checker_refute(p, "rank %u has another result in element %llu", r,
                                  (unsigned long long)i);
        }
    }
    return true;
}

/* Who must have begun before a member ends. */
static bool must_have_begun(const struct check *check, uint32_t rank, uint32_t other) {
    if (check->shape.joined || check->shape.kind == COLL_BARRIER) return true;
    if (check->shape.kind == COLL_FANIN) return rank == check->shape.root;
    return check->shape.kind == COLL_FANOUT && other == check->shape.root;
}

bool checker_prove_joined(struct proof *p, uint32_t rank) {
    uint32_t size = p->check->shape.size;
    for (uint32_t r = 0; r < size; r++) {
        bool known = r == rank || !must_have_begun(p->check, rank, r);
        for (uint32_t i = 0; i < p->member[rank].schedule->n_steps && !known; i++)
            known = checker_received(p, rank, i)[r / 64] >> r % 64 & 1;
        if (!known) return checker_refute(p, "rank %u may end before rank %u has begun", rank, r);
    }
    return true;
}
