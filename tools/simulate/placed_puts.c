/*
 * Large puts, each into a region of its own, which a strike may revoke while the payload lands
 * there.
 */
#include <string.h>

#include "world.h"

enum { LEAST = 5000, MOST = 120000, BEYOND = 64, UNTOUCHED = 0xa5, REVOKED = 0xee };

/* The region of one put, of the put's peer. */
struct target {
    struct node *node;
    weft_mem_t *mem; /* NULL: released */
    weft_rkey_t *rkey;
    uint8_t *base;
    uint32_t len;
    bool revoked; /* that is done: nothing is written there any more */
};

static bool is_all(const uint8_t *at, uint32_t len, uint8_t byte) {
    for (uint32_t i = 0; i < len; i++)
        if (at[i] != byte) return false;
    return true;
}

static void check_placed_puts(struct world *w, const struct target *t) {
    if (!is_all(t->base + t->len, BEYOND, UNTOUCHED))
        world_fail(w, "a put of %u bytes wrote behind its region", t->len);
    if (t->revoked && !is_all(t->base, t->len, REVOKED))
        world_fail(w, "a revoked region was written");
}

/*
 * Its memory is the program's again: what still writes there spoils the next operation that has it.
 */
static void released(weft_status_t status, void *arg) {
    struct target *t = arg;
    check_placed_puts(t->node->world, t);
    arena_give(t->base, t->len + BEYOND, 0);
}

static void give_back(struct target *t) {
    weft_mem_t *mem = t->mem;
    t->mem = NULL;
    if (!mem || !t->node->worker || t->node->closing) return; /* it goes with its worker */
    weft_status_t st = weft_mem_release(mem, &(weft_op_t){.done = released, .arg = t});
    if (st == WEFT_OK) released(st, t);
}

static void placed(struct asked *asked) {
    struct target *t = asked->target;
    struct world *w = asked->world;
    bool there = memcmp(t->base, pattern_of(asked->half, ASKED_PLACE, asked->n), t->len) == 0;
    if (asked->status == WEFT_OK && !t->revoked && !there)
        world_fail(w, "a large put is reported and not there");
    check_placed_puts(w, t);
    weft_rkey_release(t->rkey);
    give_back(t);
}

static void revoked(weft_status_t status, void *arg) {
    struct target *t = arg;
    if (status != WEFT_OK || !t->mem) return;
    memset(t->base, REVOKED, t->len);
    t->revoked = true;
}

void target_revoke(struct world *w, weft_mem_t *mem) {
    for (struct asked *asked = w->pending; asked; asked = asked->next_pending) {
        struct target *t = asked->target;
        if (!t || t->mem != mem) continue;
        weft_status_t st = weft_mem_revoke(mem, &(weft_op_t){.done = revoked, .arg = t});
        if (st == WEFT_OK) revoked(st, t);
        return;
    }
}

static bool expose_placed_puts(struct half *half, struct target *t) {
    weft_mem_params_t params = {.rights = WEFT_MEM_WRITE};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    if (weft_mem_register(t->node->worker, t->base, t->len, &params, &t->mem) < 0) return false;
    if (weft_mem_pack(t->mem, key, &len) == WEFT_OK &&
        weft_rkey_unpack(half->ep, key, len, &t->rkey) == WEFT_OK)
        return true;
    give_back(t);
    return false;
}

void post_placement_put(struct half *half, uint32_t item, uint32_t i) {
    struct world *w = half->connection->world;
    struct node *to = half->other->node;
    if (!half->rkey || !to->worker || to->closing) return;
    struct target *t = arena_alloc(sizeof *t);
    t->node = to;
    t->len = LEAST + (uint32_t)draw_below(w->plan->seed, DRAW_SIZE, item, i, MOST - LEAST);
    t->base = arena_take(t->len + BEYOND);
    memset(t->base, UNTOUCHED, t->len + BEYOND);
    if (!expose_placed_puts(half, t)) return;
    struct asked *asked = ask(w, half, ASKED_PLACE, t->len);
    asked->n = half->n_asked;
    asked->target = t;
    asked->then = placed;
    memcpy(asked->buf, pattern_of(half, ASKED_PLACE, asked->n), t->len);
    weft_op_t op = ask_op(asked);
    op.flags = WEFT_RMA_REMOTE;
    ask_answered(
        asked, weft_put(half->ep, asked->buf, t->len, (uint64_t)(uintptr_t)t->base, t->rkey, &op));
}
