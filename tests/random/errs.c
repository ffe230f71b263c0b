/* Calls that break a rule: refused, and no callback runs. */
#include "world.h"

static void never(weft_status_t status, void *arg) {
    wrong("an operation that was refused is reported");
}

static void refused(const char *what, weft_status_t status) {
    if (status >= 0 || status == WEFT_ERR_INTERNAL) wrong("%s: %s", what, weft_status_name(status));
}

static void err_at(struct end *end) {
    static char byte[WEFT_AM_HEADER_MAX + 1];
    weft_op_t op = {.done = never}, odd = {.done = never, .flags = 1u << 20};
    weft_layout_t layout = {.kind = (weft_layout_kind_t)9};
    weft_op_t laid = {.done = never, .layout = &layout};
    weft_iov_t one = {byte, 1}, null = {NULL, 1}, endless[2] = {{byte, SIZE_MAX}, {byte, SIZE_MAX}};
    weft_ep_t *ep = end->ep;
    switch (below(12)) {
    case 0: return refused("an id", weft_am_send(ep, WEFT_AM_ID_MAX + 1, NULL, 0, NULL, 0, &op));
    case 1: return refused("a header", weft_am_send(ep, 1, byte, sizeof byte, NULL, 0, &op));
    case 2: return refused("bytes at NULL", weft_am_send(ep, 1, NULL, 0, &null, 1, &op));
    case 3: return refused("flags", weft_tag_send(ep, 1, &one, 1, &odd));
    case 4: return refused("a layout", weft_stream_send(ep, &one, 1, &laid));
    case 5: return refused("no length", weft_stream_recv(ep, &one, 1, NULL, &op));
    case 6: return refused("a layout of a flush", weft_ep_flush(ep, &laid));
    case 7: return refused("no endpoint", weft_tag_send(NULL, 1, &one, 1, &op));
    case 8: return refused("no key", weft_put(ep, byte, 1, 0, NULL, &op));
    case 9: return refused("endless pieces", weft_tag_send(ep, 1, endless, 2, &op));
    case 10: return refused("a piece at NULL", weft_put_pieces(ep, NULL, 1, NULL, 0, &op));
    default: return refused("a close", weft_ep_close(ep, (weft_close_mode_t)7, &op));
    }
}

static void err_with(struct grip *g) {
    static uint64_t here_8[2];
    weft_op_t op = {.done = never};
    weft_ep_t *ep = g->end->ep;
    uint64_t there = (uint64_t)(uintptr_t)g->field->base + g->at;
    switch (below(6)) {
    case 0:
        return refused("a put beyond",
                       weft_put(ep, here_8, 16, there + PLOT * (PLOTS + 1) - 8, g->rkey, &op));
    case 1:
        return refused(
            "a get before",
            weft_get(ep, here_8, 16, (uint64_t)(uintptr_t)g->field->base - 8, g->rkey, &op));
    case 2:
        return refused("an odd word",
                       weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 0, there + 4, g->rkey, &op));
    case 3:
        return refused("an odd size",
                       weft_atomic_post(ep, WEFT_ATOMIC_ADD, 3, 0, there, g->rkey, &op));
    case 4:
        return refused("a swap that is posted",
                       weft_atomic_post(ep, WEFT_ATOMIC_CSWAP, 8, 0, there, g->rkey, &op));
    default:
        return refused("a get of all", weft_get(ep, here_8, SIZE_MAX - 64, there, g->rkey, &op));
    }
}

void err(void) {
    struct end *end = any_end();
    struct grip *g = &world->grip[below(GRIPS)];
    if (end && owns(end->node)) err_at(end);
    if (g->rkey && end_lives(g->end) && g->end->author == here && owns(g->end->node)) err_with(g);
}
