/*
 * The exposed region of a worker: large messages are sent from it and received into it, so that
 * peers on the same host read and write it in place. Memory of an operation that has ended is used
 * for the next one at once: a peer that still reads or writes it is noticed.
 */
#include <string.h>

#include "world.h"

enum { EXPOSED = 4 << 20, LARGE = 16 << 10, MOST = 512 << 10, CLASSES = 6 };

struct unused {
    struct unused *next;
};

struct exposed {
    weft_mem_t *mem;
    uint8_t *base, *at;
    struct unused *unused[CLASSES]; /* blocks of LARGE << i bytes */
    bool revoked_now;               /* a revocation is under way */
};

void exposed_begin(struct node *node) {
    struct exposed *e = arena_alloc(sizeof *e);
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE, .expose = 1};
    e->base = e->at = arena_take(EXPOSED);
    weft_status_t st = weft_mem_register(node->worker, e->base, EXPOSED, &params, &e->mem);
    if (st < 0)
        world_fail(node->world, "no exposed region: %s", weft_status_name(st));
    else
        node->exposed = e;
}

static unsigned class_of(size_t len) {
    unsigned class = 0;
    while ((size_t)LARGE << class < len) class ++;
    return class;
}

uint8_t *exposed_take(struct node *node, size_t len) {
    struct exposed *e = node->exposed;
    if (!e || len < LARGE || len > MOST) return NULL;
    unsigned class = class_of(len);
    struct unused *block = e->unused[class];
    if (block) {
        e->unused[class] = block->next;
        return (uint8_t *)block;
    }
    size_t size = (size_t)LARGE << class;
    if (size > EXPOSED - (size_t)(e->at - e->base)) return NULL;
    e->at += size;
    return e->at - size;
}

void exposed_give(struct node *node, uint8_t *buf, size_t len, size_t sent) {
    struct exposed *e = node->exposed;
    struct unused *block = (struct unused *)(void *)buf;
    unsigned class = class_of(len);
    if (sent) memset(buf, 0xdd, sent);
    block->next = e->unused[class];
    e->unused[class] = block;
}

static void revoked(weft_status_t status, void *arg) {
    struct node *node = arg;
    node->exposed->revoked_now = false;
    world_trace(node->world, "worker %u has its exposed region to itself", node->index);
}

/* Peers let go, and may ask again. */
void exposed_revoke(struct node *node) {
    struct exposed *e = node->exposed;
    if (!e || !node->worker || node->closing || e->revoked_now) return;
    e->revoked_now = true;
    weft_status_t st = weft_mem_revoke(e->mem, &(weft_op_t){.done = revoked, .arg = node});
    if (st != WEFT_IN_PROGRESS) revoked(st, node);
}
