/*
 * Puts, gets and additions: reported when performed, in their own place and no other, each
 * addition once.
 */
#include <string.h>

#include "world.h"

static void ask_put(struct half *half);

static void put_done(struct asked *asked) {
    struct half *half = asked->half;
    half->put_pending = false;
    if (asked->status == WEFT_OK) {
        const uint8_t *there = (const uint8_t *)(uintptr_t)asked->old;
        if (memcmp(there, pattern_of(half, ASKED_PUT, asked->n), asked->len) != 0)
            world_fail(asked->world, "put %u is reported and not there", asked->n);
        memcpy(half->put_image + asked->mark, pattern_of(half, ASKED_PUT, asked->n), asked->len);
    } else {
        half->put_unsure = true;
    }
    if (half->puts_left && half_lives(half)) ask_put(half);
}

static void ask_put(struct half *half) {
    struct world *w = half->connection->world;
    uint32_t n = ++half->n_puts;
    uint32_t actor = half->connection->serial * 2 + (uint32_t)(half - half->connection->half);
    uint32_t from = (uint32_t)draw_below(w->plan->seed, DRAW_SIZE, actor, 3 * (uint64_t)n, SLOT);
    uint32_t len =
        1 + (uint32_t)draw_below(w->plan->seed, DRAW_SIZE, actor, 3 * (uint64_t)n + 1, SLOT - from);
    struct asked *asked = ask(w, half, ASKED_PUT, len);
    if (n == 1) memset(half->put_image, 0xa5, sizeof half->put_image);
    half->puts_left--;
    half->put_pending = true;
    asked->n = n;
    asked->mark = from;
    asked->old = node_slot(half->other->node, half->slot) + from;
    asked->then = put_done;
    memcpy(asked->buf, pattern_of(half, ASKED_PUT, n), len);
    weft_op_t op = ask_op(asked);
    op.flags = WEFT_RMA_REMOTE;
    ask_answered(asked, weft_put(half->ep, asked->buf, len, asked->old, half->rkey, &op));
}

void post_put(struct half *half, uint32_t n) {
    const struct node *to = half->other->node;
    if (!half->rkey ||
        node_slot(to, half->slot) + SLOT > (uint64_t)(uintptr_t)to->region + to->region_len)
        return;
    half->puts_left += n;
    if (!half->put_pending && half->puts_left) ask_put(half);
}

static void got(struct asked *asked) {
    const struct world *w = asked->world;
    if (asked->status == WEFT_OK &&
        memcmp(asked->buf, (const uint8_t *)(uintptr_t)asked->old, asked->len) != 0)
        world_fail(asked->world, "a get of %u bytes has others", asked->len);
    (void)w;
}

void post_get(struct half *half, uint32_t item, uint32_t i) {
    struct world *w = half->connection->world;
    if (!half->rkey) return;
    uint32_t from = (uint32_t)draw_below(w->plan->seed, DRAW_SIZE, item, 2 * i, STATIC);
    uint32_t len =
        1 + (uint32_t)draw_below(w->plan->seed, DRAW_SIZE, item, 2 * i + 1, STATIC - from);
    struct asked *asked = ask(w, half, ASKED_GET, len);
    memset(asked->buf, 0, len);
    asked->old = node_static(half->other->node) + from;
    asked->then = got;
    weft_op_t op = ask_op(asked);
    ask_answered(asked, weft_get(half->ep, asked->buf, len, asked->old, half->rkey, &op));
}

/* ---- additions of 1 to the worker's two counters --------------------------------------------- */

static void added(struct asked *asked) {
    struct node *to = asked->half->other->node;
    if (asked->status == WEFT_OK)
        to->added_surely++;
    else if (asked->posted)
        to->added_maybe++;
}

void post_add(struct half *half) {
    if (!half->rkey) return;
    struct asked *asked = ask(half->connection->world, half, ASKED_ADD, 0);
    asked->then = added;
    weft_op_t op = ask_op(asked);
    op.flags = WEFT_RMA_REMOTE;
    ask_answered(asked, weft_atomic_post(half->ep, WEFT_ATOMIC_ADD, 8, 1,
                                         node_counter(half->other->node, 0), half->rkey, &op));
}

/* No other fetch saw that value. */
static void fetched(struct asked *asked) {
    struct node *to = asked->half->other->node;
    if (asked->status != WEFT_OK) {
        to->fetched_maybe += asked->posted;
        return;
    }
    to->fetched_surely++;
    if (asked->old >= to->fetched_room || to->fetched[asked->old])
        world_fail(asked->world, "two additions fetched %llu", (unsigned long long)asked->old);
    else
        to->fetched[asked->old] = 1;
}

void post_fetch(struct half *half) {
    if (!half->rkey) return;
    struct asked *asked = ask(half->connection->world, half, ASKED_FETCH, 0);
    asked->then = fetched;
    weft_op_t op = ask_op(asked);
    ask_answered(asked, weft_atomic_fetch(half->ep, WEFT_ATOMIC_ADD, 8, 1, 0, &asked->old,
                                          node_counter(half->other->node, 1), half->rkey, &op));
}
