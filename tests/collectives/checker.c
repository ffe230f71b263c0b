#include "checker.h"

#include <reactor/reactor.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A symbol is a leaf (left < 0: the contribution of rank ~left to element `right`) or the reduction of two. */
struct symbol {
    int32_t left, right;
};

struct member {
    struct schedule *schedule;
    int32_t *memory; /* a symbol an element: DST, then SCRATCH, then SRC unless in place */
    uint64_t base[N_COLL_BUFFERS], len[N_COLL_BUFFERS];
    uint32_t *waits;     /* of each step: for so many others */
    uint32_t *mate_step; /* of each send and receive: its other side */
    bool *ready;
    uint64_t *heard; /* of each step: the ranks known to have begun when it is done */
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
};

static bool refute(struct proof *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refute(struct proof *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->why, p->why_size, format, args);
    va_end(args);
    return false;
}

/* ---- symbols: equal trees are one symbol ------------------------------------------------------------------------- */

static uint32_t hash_pair(uint64_t a, uint64_t b) {
    uint64_t h = (a + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^ (b + 0x94d049bb133111ebu) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h ^ h >> 32);
}

static bool grow_symbols(struct proof *p) {
    uint32_t room = p->symbol_room ? 2 * p->symbol_room : 1024;
    p->symbol = weft__realloc(p->member, p->symbol, room * sizeof *p->symbol, "symbols");
    p->bucket = weft__realloc(p->member, p->bucket, 2 * room * sizeof *p->bucket, "buckets");
    if (!p->symbol || !p->bucket) return false;
    memset(p->bucket, 0, 2 * room * sizeof *p->bucket);
    for (uint32_t i = 0; i < p->n_symbols; i++) {
        uint32_t at = hash_pair((uint32_t)p->symbol[i].left, (uint32_t)p->symbol[i].right) & (2 * room - 1);
        while (p->bucket[at]) at = (at + 1) & (2 * room - 1);
        p->bucket[at] = (int32_t)i + 1;
    }
    p->symbol_room = room;
    return true;
}

static int32_t symbol(struct proof *p, int32_t left, int32_t right) {
    if (p->n_symbols == p->symbol_room && !grow_symbols(p)) return -1;
    uint32_t mask = 2 * p->symbol_room - 1, at = hash_pair((uint32_t)left, (uint32_t)right) & mask;
    for (; p->bucket[at]; at = (at + 1) & mask) {
        const struct symbol *s = &p->symbol[p->bucket[at] - 1];
        if (s->left == left && s->right == right) return p->bucket[at] - 1;
    }
    p->symbol[p->n_symbols] = (struct symbol){left, right};
    p->bucket[at] = (int32_t)++p->n_symbols;
    return (int32_t)p->n_symbols - 1;
}

static int32_t leaf(struct proof *p, uint32_t rank, uint64_t element) {
    return symbol(p, ~(int32_t)rank, (int32_t)element);
}

/* ---- setting up -------------------------------------------------------------------------------------------------- */

enum { NOTHING = -1 };

static uint64_t dst_elements(const struct coll_shape *shape) {
    if (shape->kind == COLL_BARRIER) return 0;
    return shape->kind == COLL_ALLGATHER ? shape->size * shape->count : shape->count;
}

static uint64_t src_elements(const struct coll_shape *shape) {
    return shape->kind == COLL_ALLREDUCE || shape->kind == COLL_ALLGATHER ? shape->count : 0;
}

static void lay_out(struct member *m, const struct check *check, uint32_t rank) {
    const struct coll_shape *shape = &check->shape;
    m->len[COLL_DST] = dst_elements(shape);
    m->len[COLL_SRC] = src_elements(shape);
    m->len[COLL_SCRATCH] = (m->schedule->scratch + shape->width - 1) / shape->width;
    m->base[COLL_SCRATCH] = m->len[COLL_DST];
    m->base[COLL_SRC] = m->base[COLL_SCRATCH] + m->len[COLL_SCRATCH];
    if (check->in_place) m->base[COLL_SRC] = shape->kind == COLL_ALLGATHER ? rank * shape->count : 0;
}

static bool fill(struct proof *p, uint32_t rank) {
    const struct coll_shape *shape = &p->check->shape;
    struct member *m = &p->member[rank];
    uint64_t total = m->len[COLL_DST] + m->len[COLL_SCRATCH] + m->len[COLL_SRC];
    m->memory = weft__alloc(p->member, (total + 1) * sizeof *m->memory, "memory");
    if (!m->memory) return refute(p, "no memory");
    for (uint64_t i = 0; i < total; i++) m->memory[i] = NOTHING;
    for (uint64_t i = 0; i < m->len[COLL_SRC]; i++) m->memory[m->base[COLL_SRC] + i] = leaf(p, rank, i);
    if (shape->kind == COLL_BCAST && rank == shape->root)
        for (uint64_t i = 0; i < shape->count; i++) m->memory[i] = leaf(p, rank, i);
    return true;
}

static bool build(struct proof *p, uint32_t rank) {
    struct member *m = &p->member[rank];
    struct coll_shape shape = p->check->shape;
    shape.rank = rank;
    void (*by)(struct schedule *) = p->check->build ? p->check->build : weft__algorithms[p->check->algorithm].build;
    weft_status_t status = weft__schedule_build_by(p->member, by, &shape, &m->schedule);
    if (status < 0) return refute(p, "rank %u: not built: %d", rank, status);
    uint32_t n = m->schedule->n_steps;
    p->n_steps += n;
    lay_out(m, p->check, rank);
    m->waits = weft__alloc(p->member, (n + 1) * sizeof *m->waits, "waits");
    m->mate_step = weft__alloc(p->member, (n + 1) * sizeof *m->mate_step, "mates");
    m->ready = weft__alloc(p->member, n + 1, "ready");
    m->heard = weft__alloc(p->member, (n * (uint64_t)p->words + 1) * 8, "heard");
    if (!m->waits || !m->mate_step || !m->ready || !m->heard) return refute(p, "no memory");
    return fill(p, rank);
}

/* ---- every send has its receive -------------------------------------------------------------------------------- */

struct wire {
    uint32_t from, to, tag, step; /* step + 1 of the sender; 0: free */
};

static struct wire *find_wire(struct wire *table, uint32_t mask, uint32_t from, uint32_t to, uint32_t tag) {
    uint32_t at = hash_pair((uint64_t)from << 32 | to, tag) & mask;
    while (table[at].step && (table[at].from != from || table[at].to != to || table[at].tag != tag))
        at = (at + 1) & mask;
    return &table[at];
}

static bool enter_sends(struct proof *p, struct wire *table, uint32_t mask, uint32_t rank) {
    const struct schedule *s = p->member[rank].schedule;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        const struct step *step = &s->step[i];
        if (step->verb != STEP_SEND) continue;
        if (step->peer >= s->shape.size || step->peer == rank)
            return refute(p, "rank %u step %u sends to rank %u", rank, i + 1, step->peer);
        struct wire *w = find_wire(table, mask, rank, step->peer, step->tag);
        if (w->step) return refute(p, "rank %u sends tag %u to rank %u twice", rank, step->tag, step->peer);
        *w = (struct wire){rank, step->peer, step->tag, i + 1};
    }
    return true;
}

static bool match_receives(struct proof *p, struct wire *table, uint32_t mask, uint32_t rank) {
    struct member *m = &p->member[rank];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++) {
        const struct step *step = &m->schedule->step[i];
        if (step->verb != STEP_RECV) continue;
        struct wire *w = find_wire(table, mask, step->peer, rank, step->tag);
        if (!w->step) return refute(p, "rank %u awaits tag %u from rank %u in vain", rank, step->tag, step->peer);
        struct member *peer = &p->member[step->peer];
        if (peer->mate_step[w->step - 1])
            return refute(p, "rank %u receives tag %u of rank %u twice", rank, step->tag, step->peer);
        if (peer->schedule->step[w->step - 1].len != step->len)
            return refute(p, "rank %u step %u: the message is of another length", rank, i + 1);
        peer->mate_step[w->step - 1] = i + 1;
        m->mate_step[i] = w->step;
    }
    return true;
}

static bool all_matched(struct proof *p, uint32_t rank) {
    struct member *m = &p->member[rank];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++)
        if (m->schedule->step[i].verb == STEP_SEND && !m->mate_step[i])
            return refute(p, "rank %u step %u is a send that nobody receives", rank, i + 1);
    return true;
}

static bool match(struct proof *p) {
    uint32_t size = p->check->shape.size, room = 64;
    while (room < p->n_steps + 1) room *= 2;
    struct wire *table = weft__alloc(p->member, room * sizeof *table, "wires");
    if (!table) return refute(p, "no memory");
    for (uint32_t r = 0; r < size; r++)
        if (!enter_sends(p, table, room - 1, r)) return false;
    for (uint32_t r = 0; r < size; r++)
        if (!match_receives(p, table, room - 1, r)) return false;
    for (uint32_t r = 0; r < size; r++)
        if (!all_matched(p, r)) return false;
    talloc_free(table);
    return true;
}

/* ---- what steps touch ------------------------------------------------------------------------------------------ */

struct touch {
    uint64_t first, end; /* elements of the member's memory */
    uint32_t step;       /* from 0 */
    bool writes;
};

static bool touch(struct proof *p, uint32_t rank, uint32_t step, unsigned buffer, uint64_t offset, bool writes,
                  struct touch *touch_p) {
    const struct member *m = &p->member[rank];
    uint32_t width = p->check->shape.width;
    uint64_t len = m->schedule->step[step].len;
    if (offset % width || len % width) return refute(p, "rank %u step %u splits an element", rank, step + 1);
    if ((offset + len) / width > m->len[buffer])
        return refute(p, "rank %u step %u reaches beyond its buffer", rank, step + 1);
    if (writes && buffer == COLL_SRC) return refute(p, "rank %u step %u writes to the source", rank, step + 1);
    uint64_t first = m->base[buffer] + offset / width;
    *touch_p = (struct touch){first, first + len / width, step, writes};
    return true;
}

/* The up to three places that a step touches; the count, or -1 when it may not. */
static int touches(struct proof *p, uint32_t rank, uint32_t index, struct touch t[3]) {
    const struct step *step = &p->member[rank].schedule->step[index];
    int n = 0;
    if (step->len == 0) return 0;
    if (step->verb != STEP_SEND && !touch(p, rank, index, step->to_buffer, step->to, true, &t[n++])) return -1;
    if (step->verb != STEP_RECV && !touch(p, rank, index, step->left_buffer, step->left, false, &t[n++])) return -1;
    if (step->verb == STEP_REDUCE && !touch(p, rank, index, step->right_buffer, step->right, false, &t[n++]))
        return -1;
    return n;
}

static int by_place(const void *a, const void *b) {
    const struct touch *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Two steps that touch the same place, one of them writing, must be ordered: one is among what the other waits for. */
static bool ordered(struct proof *p, uint32_t rank, const struct touch *t, uint32_t n, const uint64_t *past,
                    uint32_t words) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n && t[k].first < t[i].end; k++) {
            uint32_t a = t[i].step, b = t[k].step;
            if (a == b || !(t[i].writes || t[k].writes)) continue;
            if (past[a * (uint64_t)words + b / 64] >> b % 64 & 1) continue;
            if (past[b * (uint64_t)words + a / 64] >> a % 64 & 1) continue;
            return refute(p, "rank %u: steps %u and %u touch the same bytes in no order", rank, a + 1, b + 1);
        }
    return true;
}

static bool prove_order(struct proof *p, uint32_t rank) {
    const struct schedule *s = p->member[rank].schedule;
    uint32_t n = s->n_steps, words = (n + 63) / 64, n_touches = 0;
    struct touch *t = weft__alloc(p->member, (3 * (size_t)n + 1) * sizeof *t, "touches");
    uint64_t *past = weft__alloc(p->member, ((size_t)n * words + 1) * 8, "past");
    if (!t || !past) return refute(p, "no memory");
    for (uint32_t i = 0; i < n; i++) {
        int more = touches(p, rank, i, t + n_touches);
        if (more < 0) return false;
        n_touches += (uint32_t)more;
        for (int k = 0; k < 3; k++) {
            uint32_t before = s->step[i].after[k];
            if (!before) continue;
            if (before > i) return refute(p, "rank %u step %u waits for a later step", rank, i + 1);
            for (uint32_t w = 0; w < words; w++)
                past[i * (size_t)words + w] |= past[(before - 1) * (size_t)words + w];
            past[i * (size_t)words + (before - 1) / 64] |= UINT64_C(1) << (before - 1) % 64;
        }
    }
    qsort(t, n_touches, sizeof *t, by_place);
    bool right = ordered(p, rank, t, n_touches, past, words);
    talloc_free(t);
    talloc_free(past);
    return right;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void add_heard(struct proof *p, uint64_t *to, const uint64_t *from) {
    for (uint32_t w = 0; w < p->words; w++) to[w] |= from[w];
}

static uint64_t *heard_of(struct proof *p, uint32_t rank, uint32_t step) {
    return p->member[rank].heard + (uint64_t)step * p->words;
}

static void make_ready(struct proof *p, uint32_t rank, uint32_t step) {
    p->queue[p->tail++] = (uint64_t)rank << 32 | step;
}

/* Done: what waited for it alone is ready. */
static void finish(struct proof *p, uint32_t rank, uint32_t step, const uint32_t *first, const uint32_t *next) {
    p->n_done++;
    for (uint32_t edge = first[step]; edge; edge = next[edge - 1]) {
        uint32_t later = (edge - 1) / 3;
        if (p->words) add_heard(p, heard_of(p, rank, later), heard_of(p, rank, step));
        if (--p->member[rank].waits[later] == 0) make_ready(p, rank, later);
    }
}

/* Successors of every step of every member, as chains through (step, which of its three dependencies). */
struct edges {
    uint32_t *first, *next;
};

static bool chain_edges(struct proof *p, uint32_t rank, struct edges *e) {
    const struct schedule *s = p->member[rank].schedule;
    e->first = weft__alloc(p->member, (s->n_steps + 1) * sizeof *e->first, "first");
    e->next = weft__alloc(p->member, (3 * (size_t)s->n_steps + 1) * sizeof *e->next, "next");
    if (!e->first || !e->next) return refute(p, "no memory");
    for (uint32_t i = 0; i < s->n_steps; i++)
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t before = s->step[i].after[k];
            if (!before) continue;
            e->next[3 * i + k] = e->first[before - 1];
            e->first[before - 1] = 3 * i + k + 1;
            p->member[rank].waits[i]++;
        }
    return true;
}

static int32_t *place(struct proof *p, uint32_t rank, unsigned buffer, uint64_t offset) {
    struct member *m = &p->member[rank];
    return m->memory + m->base[buffer] + offset / p->check->shape.width;
}

static bool reduce_symbols(struct proof *p, uint32_t rank, const struct step *step) {
    int32_t *to = place(p, rank, step->to_buffer, step->to);
    const int32_t *left = place(p, rank, step->left_buffer, step->left);
    const int32_t *right = place(p, rank, step->right_buffer, step->right);
    for (uint64_t i = 0; i < step->len / p->check->shape.width; i++) {
        if (left[i] == NOTHING || right[i] == NOTHING)
            return refute(p, "rank %u reduces what it does not have", rank);
        to[i] = symbol(p, left[i], right[i]);
        if (to[i] < 0) return refute(p, "no memory");
    }
    return true;
}

static void transfer(struct proof *p, uint32_t from, const struct step *send, uint32_t to,
                     const struct step *recv) {
    if (send->len == 0) return;
    memmove(place(p, to, recv->to_buffer, recv->to), place(p, from, send->left_buffer, send->left),
            send->len / p->check->shape.width * sizeof(int32_t));
}

/* A send and its receive are done together, once both are ready: as if nothing in between could hold a message. */
static bool take_step(struct proof *p, uint32_t rank, uint32_t index, struct edges *edges) {
    struct member *m = &p->member[rank];
    const struct step *step = &m->schedule->step[index];
    if (p->words) heard_of(p, rank, index)[rank / 64] |= UINT64_C(1) << rank % 64;
    if (step->verb == STEP_REDUCE || step->verb == STEP_COPY) {
        if (step->verb == STEP_COPY)
            transfer(p, rank, step, rank, step);
        else if (!reduce_symbols(p, rank, step))
            return false;
        finish(p, rank, index, edges[rank].first, edges[rank].next);
        return true;
    }
    uint32_t peer = step->peer, mate = m->mate_step[index] - 1;
    m->ready[index] = true;
    if (!p->member[peer].ready[mate]) return true;
    bool sends = step->verb == STEP_SEND;
    uint32_t from = sends ? rank : peer, send = sends ? index : mate, to = sends ? peer : rank;
    uint32_t recv = sends ? mate : index;
    transfer(p, from, &p->member[from].schedule->step[send], to, &p->member[to].schedule->step[recv]);
    if (p->words) add_heard(p, heard_of(p, to, recv), heard_of(p, from, send));
    finish(p, from, send, edges[from].first, edges[from].next);
    finish(p, to, recv, edges[to].first, edges[to].next);
    return true;
}

static bool name_stuck(struct proof *p) {
    for (uint32_t r = 0; r < p->check->shape.size; r++)
        for (uint32_t i = 0; i < p->member[r].schedule->n_steps; i++)
            if (p->member[r].waits[i]) return refute(p, "deadlock: rank %u never gets to step %u", r, i + 1);
    return refute(p, "deadlock: %u of %u steps are done", p->n_done, p->n_steps);
}

static bool run(struct proof *p) {
    uint32_t size = p->check->shape.size;
    struct edges *edges = weft__alloc(p->member, size * sizeof *edges, "edges");
    p->queue = weft__alloc(p->member, (p->n_steps + 1) * sizeof *p->queue, "queue");
    if (!edges || !p->queue) return refute(p, "no memory");
    for (uint32_t r = 0; r < size; r++)
        if (!chain_edges(p, r, &edges[r])) return false;
    for (uint32_t r = 0; r < size; r++)
        for (uint32_t i = 0; i < p->member[r].schedule->n_steps; i++)
            if (p->member[r].waits[i] == 0) make_ready(p, r, i);
    while (p->head < p->tail) {
        uint64_t next = p->queue[p->head++];
        if (!take_step(p, (uint32_t)(next >> 32), (uint32_t)next, edges)) return false;
    }
    return p->n_done == p->n_steps || name_stuck(p);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

/* Leaves of a tree, from the left, must be this element's contributions: of all ranks, each once. */
static bool each_once(struct proof *p, int32_t root, uint64_t element) {
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
        right = (uint64_t)s->right == element && !seen[rank] && ++n;
        seen[rank] = true;
    }
    talloc_free(stack);
    talloc_free(seen);
    return right && n == size;
}

static int32_t folded(struct proof *p, uint64_t element) {
    int32_t sum = leaf(p, 0, element);
    for (uint32_t r = 1; r < p->check->shape.size; r++) sum = symbol(p, sum, leaf(p, r, element));
    return sum;
}

/* The symbol that every member must have for an element of DST; -1 with a reason when there is none. */
static int32_t expected(struct proof *p, uint64_t element) {
    const struct coll_shape *shape = &p->check->shape;
    int32_t first = p->member[0].memory[element];
    switch (shape->kind) {
    case COLL_BCAST: return leaf(p, shape->root, element);
    case COLL_ALLGATHER: return leaf(p, (uint32_t)(element / shape->count), element % shape->count);
    case COLL_ALLREDUCE:
        if (weft__algorithms[p->check->algorithm].fixed_order) return folded(p, element);
        return first != NOTHING && each_once(p, first, element) ? first : NOTHING;
    default: return NOTHING;
    }
}

static bool prove_result(struct proof *p) {
    for (uint64_t i = 0; i < dst_elements(&p->check->shape); i++) {
        int32_t want = expected(p, i);
        if (want == NOTHING)
            return refute(p, "element %llu lacks a contribution or has it twice", (unsigned long long)i);
        for (uint32_t r = 0; r < p->check->shape.size; r++)
            if (p->member[r].memory[i] != want)
                return refute(p, "rank %u has another result in element %llu", r, (unsigned long long)i);
    }
    return true;
}

static bool prove_joined(struct proof *p, uint32_t rank) {
    uint32_t size = p->check->shape.size;
    for (uint32_t r = 0; r < size; r++) {
        bool known = r == rank;
        for (uint32_t i = 0; i < p->member[rank].schedule->n_steps && !known; i++)
            known = heard_of(p, rank, i)[r / 64] >> r % 64 & 1;
        if (!known) return refute(p, "rank %u may end before rank %u has begun", rank, r);
    }
    return true;
}

static bool prove(struct proof *p) {
    uint32_t size = p->check->shape.size, every = p->check->every ? p->check->every : 1;
    for (uint32_t r = 0; r < size; r++)
        if (!build(p, r)) return false;
    if (!match(p)) return false;
    for (uint32_t r = 0; r < size; r += every)
        if (!prove_order(p, r)) return false;
    if (!run(p) || !prove_result(p)) return false;
    for (uint32_t r = 0; r < size && p->words; r++)
        if (!prove_joined(p, r)) return false;
    return true;
}

bool weft__schedule_check(const struct check *check, char *why, size_t size) {
    struct proof p = {.check = check, .why = why, .why_size = size};
    if (check->shape.kind == COLL_BARRIER || check->shape.joined) p.words = (check->shape.size + 63) / 64;
    p.member = weft__alloc(NULL, check->shape.size * sizeof *p.member, "members");
    if (!p.member) return refute(&p, "no memory");
    bool right = prove(&p);
    talloc_free(p.member);
    return right;
}
