/* Puts, gets, atomics, pieces, fences and flushes: in their own place and no other, each
 * addition once. */
#include <stdlib.h>
#include <string.h>

#include "world.h"
#include <tests/support/atomic_result.h>

static bool meet(struct stretch a, struct stretch b) {
    return a.from < b.to && b.from < a.to;
}

/* Is anything under way that must not meet it? What stands before a fence may. */
static bool in_the_way(const struct asked *a) {
    for (const struct asked *b = world->asked; b; b = b->next) {
        if (b == a || b->grip != a->grip || b->performed || b->fenced || !(a->writes || b->writes))
            continue;
        for (uint32_t i = 0; i < a->n_stretches; i++)
            for (uint32_t j = 0; j < b->n_stretches; j++)
                if (meet(a->stretch[i], b->stretch[j])) return true;
    }
    return false;
}

static void fenced(struct end *end) {
    for (struct asked *a = world->asked; a; a = a->next)
        if (a->grip && a->end == end) a->fenced = true;
}

/* No other operation writes there after it. */
static bool is_newest(const struct asked *a, struct stretch s) {
    for (const struct asked *b = world->asked; b != a; b = b->next)
        for (uint32_t j = 0; b->grip == a->grip && b->writes && j < b->n_stretches; j++)
            if (meet(s, b->stretch[j])) return false;
    return true;
}

static bool sees_the_target(void) {
    return !(world->may & MAY_THREAD) || world->settling;
}

/* ---- completions ----------------------------------------------------------------------------- */

static void wrote(struct asked *a) {
    a->performed = a->status < 0 || a->remote;
    for (uint32_t i = 0; i < a->n_stretches; i++) {
        if (a->status < 0)
            grip_tear(a->grip, a->stretch[i]);
        else if (a->remote && sees_the_target() && is_newest(a, a->stretch[i]))
            grip_check(a->grip, a->stretch[i]);
    }
}

/* Something that may have failed, and was not reported yet, was to write there before it. */
static bool is_doubtful(const struct asked *a) {
    for (const struct asked *b = a->next; b; b = b->next)
        for (uint32_t i = 0;
             b->grip == a->grip && b->writes && !ask_is_safe(b) && i < b->n_stretches; i++)
            for (uint32_t j = 0; j < a->n_stretches; j++)
                if (meet(a->stretch[j], b->stretch[i])) return true;
    return false;
}

static void got(struct asked *a) {
    a->performed = true;
    bool known = a->status == WEFT_OK && a->expected && !is_doubtful(a);
    for (uint32_t i = 0; i < a->n_stretches; i++) known &= grip_knows(a->grip, a->stretch[i]);
    if (known && !shape_holds(&a->shape, a->expected, a->shape.len))
        wrong("get %u brings other bytes", a->n);
    if (known) world->n_checked += a->shape.len;
}

/* ---- puts and gets --------------------------------------------------------------------------- */

static struct grip *any_grip(void) {
    for (int i = 0; i < 10; i++) {
        struct grip *g = &world->grip[below(GRIPS)];
        if (g->rkey && end_lives(g->end) && g->end->author == here && may_post(g->end->node))
            return g;
    }
    return NULL;
}

static struct asked *ask_of(struct grip *g, enum asked_kind kind) {
    struct asked *a = ask(kind, g->end->node, g->end);
    a->grip = g;
    a->writes = kind == ASKED_PUT;
    a->then = kind == ASKED_PUT ? wrote : got;
    a->remote = a->writes && percent(40);
    return a;
}

/* Anywhere in its plot. */
static void place(struct asked *a, size_t len) {
    size_t room = PLOT - PLOT_WORDS, at = below(room - len + 1);
    a->stretch[0] = (struct stretch){at, at + len};
    a->n_stretches = 1;
}

static bool has_way(struct asked *a) {
    if (!in_the_way(a)) return true;
    if (percent(50)) return false;
    weft_status_t st = weft_ep_fence(a->end->ep);
    trace("fence of end %u: %s", a->end->n, weft_status_name(st));
    if (st < 0 && end_is_safe(a->end)) wrong("a fence: %s", weft_status_name(st));
    if (st >= 0) fenced(a->end);
    a->fenced = false; /* it comes behind */
    return st >= 0;
}

static void give_up(struct asked *a) {
    a->grip = NULL;
    a->then = NULL;
    shape_end(&a->shape);
    a->status = WEFT_OK;
}

/* The image is as if it were done, and a get brings what the image has. */
static void imagine(struct asked *a) {
    struct grip *g = a->grip;
    const uint8_t *from = bytes_of(UINT64_C(0x9000000) + a->n, 0);
    size_t at = 0;
    if (!a->writes) a->expected = malloc(a->shape.len + 1);
    for (uint32_t i = 0; i < a->n_stretches; i++) {
        struct stretch s = a->stretch[i];
        if (a->writes)
            memcpy(g->image + s.from, from + at, s.to - s.from);
        else
            memcpy(a->expected + at, g->image + s.from, s.to - s.from);
        at += s.to - s.from;
    }
    if (a->writes)
        shape_fill(&a->shape, from);
    else
        shape_clear(&a->shape);
}

static uint64_t remote_of(const struct asked *a, uint32_t i) {
    return (uint64_t)(uintptr_t)a->grip->field->base + a->grip->at + a->stretch[i].from;
}

static uint32_t flags_of(const struct asked *a) {
    return a->remote ? WEFT_RMA_REMOTE : 0;
}

static void put_or_get(struct grip *g) {
    struct asked *a = ask_of(g, percent(60) ? ASKED_PUT : ASKED_GET);
    size_t len = a_size() % (PLOT / (percent(80) ? 8 : 1) - PLOT_WORDS);
    struct shape_wants wants = {
        .room = room_of(a->node), .layouts = true, .one = true, .refuses = may(MAY_REFUSE)};
    shape_draw(&a->shape, len, wants);
    place(a, len);
    if (!has_way(a)) return give_up(a);
    imagine(a);
    ask_op(a, flags_of(a));
    weft_iov_t buf = a->shape.n_iov ? a->shape.iov[0] : (weft_iov_t){a->shape.block, 0};
    uint64_t remote = remote_of(a, 0);
    if (a->writes)
        ASK(a, weft_put(a->end->ep, buf.base, buf.len, remote, g->rkey, a->op_p));
    else
        ASK(a, weft_get(a->end->ep, buf.base, buf.len, remote, g->rkey, a->op_p));
}

/* ---- scattered, gathered --------------------------------------------------------------------- */

static weft_mem_t *mem_of(const struct asked *a) {
    for (int i = 0; a->shape.room && i < 2; i++)
        if (a->shape.room == &a->node->in_flight[i]) return a->node->in_flight_mem[i];
    return NULL;
}

/* The shape as pieces here. */
static size_t locals_of(const struct asked *a, weft_local_t *local) {
    const struct shape *s = &a->shape;
    weft_mem_t *mem = percent(50) ? mem_of(a) : NULL;
    if (s->kind == SHAPE_STRIDED) {
        local[0] =
            (weft_local_t){s->block, s->layout.block, s->layout.stride, s->layout.count, mem};
        return 1;
    }
    for (size_t i = 0; i < s->n_iov; i++)
        local[i] =
            (weft_local_t){s->iov[i].base, s->iov[i].len, 0, below(2), s->iov[i].len ? mem : NULL};
    return s->n_iov;
}

/* Pieces there, some of several blocks, one behind the other with gaps between; their bytes. */
static size_t remotes_of(struct asked *a, weft_remote_t *remote, size_t *n_p) {
    size_t at = below(PLOT / 2), len = 0;
    *n_p = 1 + below(3);
    for (size_t i = 0; i < *n_p; i++) {
        size_t block = 1 + below(percent(70) ? 200 : 4000), gap = percent(40) ? 0 : below(100),
               count = 1 + below(4);
        at += below(50);
        remote[i] = (weft_remote_t){(uint64_t)(uintptr_t)a->grip->field->base + a->grip->at + at,
                                    block, block + gap, count, a->grip->rkey};
        for (size_t k = 0; k < count; k++, at += block + gap)
            a->stretch[a->n_stretches++] = (struct stretch){at, at + block};
        len += block * count;
    }
    return len;
}

static void pieces(struct grip *g) {
    struct asked *a = ask_of(g, percent(60) ? ASKED_PUT : ASKED_GET);
    weft_local_t local[SHAPE_PIECES];
    weft_remote_t remote[3];
    size_t n_local, n_remote = 1, len;
    bool scattered_there = percent(50);
    struct shape_wants wants = {
        .room = room_of(a->node), .one = scattered_there, .layouts = !scattered_there};
    if (scattered_there) {
        len = remotes_of(a, remote, &n_remote);
    } else {
        len = 1 + a_size() % (PLOT / 8);
        place(a, len);
        remote[0] = (weft_remote_t){remote_of(a, 0), len, 0, below(2), g->rkey};
    }
    do {
        shape_end(&a->shape);
        shape_draw(&a->shape, len, wants);
    } while (a->shape.kind == SHAPE_PACKED);
    n_local = locals_of(a, local);
    if (!has_way(a)) return give_up(a);
    imagine(a);
    ask_op(a, flags_of(a));
    a->op.layout = NULL;
    ASK(a, (a->writes ? weft_put_pieces : weft_get_pieces)(a->end->ep, local, n_local, remote,
                                                           n_remote, a->op_p));
}

/* ---- atomics --------------------------------------------------------------------------------- */

static uint64_t word_at(const struct grip *g, uint32_t word) {
    return (uint64_t)(uintptr_t)g->field->base + g->at + PLOT - PLOT_WORDS + 8 * word;
}

static void posted(struct asked *a) {
    a->performed = a->remote && a->status == WEFT_OK;
}

/* Those of one kind may be made in any order. */
static void post_many(struct grip *g) {
    struct asked *a = ask_of(g, ASKED_POST);
    bool sum = percent(50);
    uint64_t operand = sum ? below(1000) : chance();
    uint64_t remote = word_at(g, !sum);
    a->then = posted;
    a->word = !sum;
    a->remote = percent(40);
    if (sum)
        g->sum += operand;
    else
        g->bits ^= operand;
    ask_op(a, flags_of(a));
    ASK(a, weft_atomic_post(g->end->ep, sum ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_XOR, 8, operand, remote,
                            g->rkey, a->op_p));
}

/* One at a time, with the value that has to be there before it. */
static void word_notified(struct asked *a) {
    struct grip *g = a->grip;
    bool half = a->word == 3, known = half ? !g->half_torn : !g->word_torn;
    a->performed = true;
    if (half)
        g->half_busy = false, g->half_torn |= a->status < 0;
    else
        g->word_busy = false, g->word_torn |= a->status < 0;
    if (a->kind == ASKED_FETCH && a->status == WEFT_OK && known && a->old != a->old_expected)
        wrong("atomic %u fetches %llx, not %llx", a->n, (unsigned long long)a->old,
              (unsigned long long)a->old_expected);
}

static void one_at_a_time(struct grip *g) {
    bool half = percent(50), fetch = percent(60);
    if (half ? g->half_busy : g->word_busy) return;
    struct asked *a = ask_of(g, fetch ? ASKED_FETCH : ASKED_POST);
    size_t size = half ? 4 : 8;
    uint64_t mask = half ? UINT32_MAX : UINT64_MAX, old = half ? g->half_word : g->word;
    weft_atomic_t what = (weft_atomic_t)below(fetch ? 6 : 5);
    uint64_t operand = chance() & mask, compare = percent(60) ? old : chance() & mask;
    uint64_t result = atomic_result(what, old, operand, compare) & mask;
    a->word = half ? 3 : 2;
    a->then = word_notified;
    a->old_expected = old;
    a->remote = !fetch;
    if (half)
        g->half_busy = true, g->half_word = (uint32_t)result;
    else
        g->word_busy = true, g->word = result;
    ask_op(a, flags_of(a));
    if (fetch)
        ASK(a, weft_atomic_fetch(g->end->ep, what, size, operand, compare, &a->old,
                                 word_at(g, a->word), g->rkey, a->op_p));
    else
        ASK(a, weft_atomic_post(g->end->ep, what, size, operand, word_at(g, a->word), g->rkey,
                                a->op_p));
}

/* All who have a key add to the region's first word, and none sees what another saw. */
static void common_notified(struct asked *a) {
    struct field *f = a->grip->field;
    a->performed = true;
    if (a->status < 0) {
        f->added_maybe++;
        return;
    }
    f->added_surely++;
    if (a->old >= sizeof f->seen) return;
    if (f->seen[a->old]++) wrong("two additions fetched %llu", (unsigned long long)a->old);
}
static void common(struct grip *g) {
    struct asked *a = ask_of(g, ASKED_FETCH);
    a->then = common_notified;
    ask_op(a, 0);
    ASK(a, weft_atomic_fetch(g->end->ep, WEFT_ATOMIC_ADD, 8, 1, 0, &a->old,
                             (uint64_t)(uintptr_t)g->field->base, g->rkey, a->op_p));
}

/* What was not performed before its endpoint's end may have been lost with it. */
void rma_doubt(void) {
    for (struct asked *a = world->asked; a; a = a->next) {
        if (!a->grip || a->performed || a->kind == ASKED_GET) continue;
        for (uint32_t i = 0; i < a->n_stretches; i++) grip_tear(a->grip, a->stretch[i]);
        if (a->then != posted) continue;
        a->grip->sum_torn |= a->word == 0;
        a->grip->bits_torn |= a->word == 1;
    }
}

void rma(void) {
    struct grip *g = any_grip();
    if (!g) return;
    uint32_t which = below(10);
    if (which < 4)
        put_or_get(g);
    else if (which < 6)
        pieces(g);
    else if (which < 7)
        post_many(g);
    else if (which < 9)
        one_at_a_time(g);
    else
        common(g);
}

/* ---- flushes --------------------------------------------------------------------------------- */

static bool zcopies(const struct asked *a) {
    return a->kind == ASKED_AM || a->kind == ASKED_TAG || a->kind == ASKED_STREAM ||
           (a->kind >= ASKED_PUT && a->kind <= ASKED_FETCH);
}

/* All of this end that was posted before is over; and with `remote` it is where it was to be. */
static void flushed_end(const struct asked *flush, const struct end *end, bool remote) {
    for (struct asked *a = flush->next; a; a = a->next) {
        if (a->end != end || !zcopies(a) || a->posting) continue;
        if (a->accepted && a->op_p && !a->group && !a->notified)
            wrong("flush %u is done, and operation %u before it is not", flush->n, a->n);
        if (!remote || a->status < 0) continue;
        if (a->grip) a->performed = true;
        if (a->kind != ASKED_AM || a->message == MESSAGES) continue;
        const struct message *m = &world->message[a->message];
        bool kept = a->end->to && a->end->to->was_polled; /* for the program to come */
        if (!m->arrived && !kept && message_is_due(m))
            wrong("remote flush %u is done, and message %u did not arrive", flush->n, a->message);
    }
}

static void check_plots(const struct asked *flush, const struct end *end) {
    if (!sees_the_target()) return;
    for (struct asked *a = world->asked; a != flush; a = a->next)
        if (a->end == end && a->writes) return;
    for (struct grip *g = world->grip; g < world->grip + GRIPS; g++)
        for (size_t at = 0; g->end == end && g->field && at + 4096 < PLOT; at += 4096)
            grip_check(g, (struct stretch){at, at + 4096});
}

static void flushed(struct asked *a) {
    if (a->status != WEFT_OK) return;
    for (struct end *end = world->end; end < world->end + world->n_ends; end++) {
        if (a->end ? end != a->end : end->node != a->node) continue;
        if (a->end || end_lives(end)) flushed_end(a, end, a->remote);
        if (a->remote && (a->end || end_lives(end))) check_plots(a, end);
    }
}

void end_flush(struct end *end, bool remote) {
    struct asked *a = ask(ASKED_FLUSH, end->node, end);
    a->then = flushed;
    a->remote = remote;
    ask_op(a, remote ? WEFT_FLUSH_REMOTE : 0);
    ASK(a, weft_ep_flush(end->ep, a->op_p));
}

static void worker_flush(struct node *node) {
    struct asked *a = ask(ASKED_FLUSH, node, NULL);
    a->then = flushed;
    a->remote = percent(50);
    a->wrong = world->may; /* one of its endpoints may be lost */
    ask_op(a, a->remote ? WEFT_FLUSH_REMOTE : 0);
    ASK(a, weft_worker_flush(node->worker, a->op_p));
}

static void worker_fence(struct node *node) {
    weft_status_t st = weft_worker_fence(node->worker);
    if (st < 0 && !world->may) wrong("a worker's fence: %s", weft_status_name(st));
    for (struct end *end = world->end; st >= 0 && end < world->end + world->n_ends; end++)
        if (end->node == node && end->author == here) fenced(end);
}

void flush_or_fence(void) {
    struct end *end = any_end();
    struct node *node = any_node();
    uint32_t which = below(10);
    if (which < 7 && end) end_flush(end, which < 4);
    if (which >= 7 && node && !(world->may & MAY_THREAD))
        (which < 9 ? worker_flush : worker_fence)(node);
}
