/* Steps that touch the same bytes are ordered, within a member and by puts between two. */
#include <collectives/share.h>
#include <stdlib.h>

#include "checker_proof.h"

/* ---- what steps touch ------------------------------------------------------------------------ */

struct touch {
    uint64_t first, end; /* elements of the member's memory */
    uint32_t step;       /* from 0 */
    bool writes;
};

static bool touch_bytes(struct proof *p, uint32_t rank, uint32_t step, unsigned buffer,
                        uint64_t offset, uint64_t len, bool writes, struct touch *touch_p) {
    const struct member *m = &p->member[rank];
    uint32_t width = p->check->shape.width;
    if (offset % width || len % width)
        return checker_refute(p, "rank %u step %u splits an element", rank, step + 1);
    if ((offset + len) / width > m->len[buffer])
        return checker_refute(p, "rank %u step %u reaches beyond its buffer", rank, step + 1);
    if (writes && buffer == COLL_SRC)
        return checker_refute(p, "rank %u step %u writes to the source", rank, step + 1);
    uint64_t first = m->base[buffer] + offset / width;
    *touch_p = (struct touch){first, first + len / width, step, writes};
    return true;
}

static bool touch(struct proof *p, uint32_t rank, uint32_t step, unsigned buffer, uint64_t offset,
                  bool writes, struct touch *touch_p) {
    uint64_t len = p->member[rank].schedule->step[step].len;
    return touch_bytes(p, rank, step, buffer, offset, len, writes, touch_p);
}

static uint32_t place_in_group(const struct proof *p, uint32_t rank) {
    uint32_t place = 0;
    for (uint32_t r = 0; r < rank; r++) place += checker_same_group(p, r, rank);
    return place;
}

static int touches_of_share(struct proof *p, uint32_t rank, uint32_t index, struct touch t[3]) {
    const struct step *step = &p->member[rank].schedule->step[index];
    uint32_t place = place_in_group(p, rank);
    struct share_extent of = weft__share_extent(step, place);
    bool gives = step->tag == COLL_BCAST && place == step->peer;
    int n = 0;
    if (of.dst && !touch_bytes(p, rank, index, step->to_buffer, step->to, of.dst, !gives, &t[n++]))
        return -1;
    if (of.src &&
        !touch_bytes(p, rank, index, step->left_buffer, step->left, of.src, false, &t[n++]))
        return -1;
    return n;
}

/* The up to three places that a step touches; the count, or -1 when it may not. */
static int touches(struct proof *p, uint32_t rank, uint32_t index, struct touch t[3]) {
    const struct step *step = &p->member[rank].schedule->step[index];
    int n = 0;
    if (step->len == 0) return 0;
    if (step->verb == STEP_SHARE) return touches_of_share(p, rank, index, t);
    bool writes = step->verb != STEP_SEND && step->verb != STEP_PUT;
    if (writes && !touch(p, rank, index, step->to_buffer, step->to, true, &t[n++])) return -1;
    if (step->verb != STEP_RECV &&
        !touch(p, rank, index, step->left_buffer, step->left, false, &t[n++]))
        return -1;
    if (step->verb == STEP_REDUCE &&
        !touch(p, rank, index, step->right_buffer, step->right, false, &t[n++]))
        return -1;
    if (step->verb == STEP_PUT && !touch_bytes(p, rank, index, step->right_buffer, step->right,
                                               COLL_KEY_BYTES, false, &t[n++]))
        return -1;
    return n;
}

static int by_place(const void *a, const void *b) {
    const struct touch *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Two steps that touch the same place, one of them writing, must be ordered: one is among what
 * the other waits for. */
static bool ordered(struct proof *p, uint32_t rank, const struct touch *t, uint32_t n,
                    const uint64_t *past, uint32_t words) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n && t[k].first < t[i].end; k++) {
            uint32_t a = t[i].step, b = t[k].step;
            if (a == b || !(t[i].writes || t[k].writes)) continue;
            if (past[a * (uint64_t)words + b / 64] >> b % 64 & 1) continue;
            if (past[b * (uint64_t)words + a / 64] >> a % 64 & 1) continue;
            return checker_refute(p, "rank %u: steps %u and %u touch the same bytes in no order",
                                  rank, a + 1, b + 1);
        }
    return true;
}

/* Of each step a set of the steps before it, `words` long. NULL: refuted. */
static uint64_t *find_past(struct proof *p, uint32_t rank) {
    const struct schedule *s = p->member[rank].schedule;
    uint32_t n = s->n_steps, words = (n + 63) / 64;
    uint64_t *past = weft__alloc(p->member, ((size_t)n * words + 1) * 8, "past");
    if (!past) checker_refute(p, "no memory");
    for (uint32_t i = 0; past && i < n; i++)
        for (int k = 0; k < 3; k++) {
            uint32_t before = s->step[i].after[k];
            if (!before) continue;
            if (before > i) {
                checker_refute(p, "rank %u step %u waits for a later step", rank, i + 1);
                return NULL;
            }
            for (uint32_t w = 0; w < words; w++)
                past[i * (size_t)words + w] |= past[(before - 1) * (size_t)words + w];
            past[i * (size_t)words + (before - 1) / 64] |= UINT64_C(1) << (before - 1) % 64;
        }
    return past;
}

bool checker_prove_order(struct proof *p, uint32_t rank) {
    const struct schedule *s = p->member[rank].schedule;
    uint32_t n = s->n_steps, words = (n + 63) / 64, n_touches = 0;
    struct touch *t = weft__alloc(p->member, (3 * (size_t)n + 1) * sizeof *t, "touches");
    if (!t) return checker_refute(p, "no memory");
    uint64_t *past = find_past(p, rank);
    if (!past) return false;
    for (uint32_t i = 0; i < n; i++) {
        int more = touches(p, rank, i, t + n_touches);
        if (more < 0) return false;
        n_touches += (uint32_t)more;
    }
    qsort(t, n_touches, sizeof *t, by_place);
    bool right = ordered(p, rank, t, n_touches, past, words);
    talloc_free(t);
    talloc_free(past);
    return right;
}

/* ---- puts: ordered against what the member does whose memory they write ---------------------- */

static bool is_past(const struct proof *p, uint32_t rank, uint32_t step, uint32_t earlier) {
    const struct member *m = &p->member[rank];
    uint32_t words = (m->schedule->n_steps + 63) / 64;
    return m->past[step * (size_t)words + earlier / 64] >> earlier % 64 & 1;
}

/* Does a put of `from` follow, or precede, a step of `to`, by messages between the two? It follows
 * what is before a message that it waits for, and precedes what waits for a message after it. */
static bool is_ordered(const struct proof *p, uint32_t from, uint32_t put, uint32_t to,
                       uint32_t step) {
    const struct member *m = &p->member[from];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++) {
        const struct step *message = &m->schedule->step[i];
        if (message->peer != to || !m->mate_step[i]) continue;
        uint32_t mate = m->mate_step[i] - 1;
        if (message->verb == STEP_RECV && is_past(p, from, put, i) &&
            (mate == step || is_past(p, to, mate, step)))
            return true;
        if (message->verb == STEP_SEND && is_past(p, from, i, put) &&
            (mate == step || is_past(p, to, step, mate)))
            return true;
    }
    return false;
}

/* A member that gave its key away learns of each put to it before it ends. */
static bool is_learned(const struct proof *p, uint32_t from, uint32_t put, uint32_t to) {
    const struct member *m = &p->member[from];
    for (uint32_t i = 0; i < m->schedule->n_steps; i++)
        if (m->schedule->step[i].verb == STEP_SEND && m->schedule->step[i].peer == to &&
            is_past(p, from, i, put))
            return true;
    return false;
}

static bool prove_put(struct proof *p, uint32_t from, uint32_t index, struct touch *written_p) {
    const struct step *put = &p->member[from].schedule->step[index];
    struct touch t[3];
    if (put->peer >= p->check->shape.size || put->peer == from)
        return checker_refute(p, "rank %u step %u puts to rank %u", from, index + 1, put->peer);
    if (!touch_bytes(p, put->peer, index, put->to_buffer, put->to, put->len, true, written_p))
        return false;
    if (!is_learned(p, from, index, put->peer))
        return checker_refute(p, "rank %u may end before the put of rank %u", put->peer, from);
    for (uint32_t i = 0; i < p->member[put->peer].schedule->n_steps; i++) {
        int n = touches(p, put->peer, i, t);
        for (int k = 0; k < n; k++)
            if (t[k].first < written_p->end && written_p->first < t[k].end &&
                !is_ordered(p, from, index, put->peer, i))
                return checker_refute(
                    p,
                    "rank %u step %u and a put of rank %u touch the same bytes in no "
                    "order",
                    put->peer, i + 1, from);
    }
    return true;
}

/* No two members write the same bytes of a third. */
static bool are_apart(struct proof *p, uint32_t to, struct touch *t, uint32_t n) {
    qsort(t, n, sizeof *t, by_place);
    for (uint32_t i = 1; i < n; i++)
        if (t[i].first < t[i - 1].end)
            return checker_refute(p, "two puts to rank %u write the same bytes", to);
    return true;
}

bool checker_prove_puts(struct proof *p, uint32_t every) {
    uint32_t size = p->check->shape.size, n_puts = 0;
    for (uint32_t r = 0; r < size; r++)
        for (uint32_t i = 0; i < p->member[r].schedule->n_steps; i++)
            n_puts += p->member[r].schedule->step[i].verb == STEP_PUT;
    if (n_puts == 0) return true;
    for (uint32_t r = 0; r < size; r++)
        if (!(p->member[r].past = find_past(p, r))) return false;
    struct touch *t = weft__alloc(p->member, (n_puts + 1) * sizeof *t, "puts");
    if (!t) return checker_refute(p, "no memory");
    for (uint32_t to = 0; to < size; to += every) {
        uint32_t n = 0;
        for (uint32_t from = 0; from < size; from++)
            for (uint32_t i = 0; i < p->member[from].schedule->n_steps; i++) {
                const struct step *step = &p->member[from].schedule->step[i];
                if (step->verb != STEP_PUT || step->peer != to || !step->len) continue;
                if (!prove_put(p, from, i, &t[n++])) return false;
            }
        if (!are_apart(p, to, t, n)) return false;
    }
    return true;
}
