/* The forms that wait: by who owns the worker, where no other worker has to be driven for them. */
#include <string.h>

#include "world.h"

/* Its peer is itself, or has a thread of its own. */
static bool needs_no_one(const struct end *end) {
    return end->ready && end_is_safe(end) && end->other && owns(end->node) &&
           end->node->drive == DRIVE_MAIN &&
           (end->to == end->node || end->to->drive == DRIVE_THREAD);
}

static bool is_idle(const struct end *end) {
    for (const struct asked *a = world->asked; a; a = a->next)
        if (a->end == end && !ask_is_over(a)) return false;
    return true;
}

static struct end *an_end(void) {
    for (int i = 0; i < 10; i++) {
        struct end *end = any_end();
        if (end && needs_no_one(end) && is_idle(end)) return end;
    }
    return NULL;
}

static struct grip *grip_of(const struct end *end) {
    for (struct grip *g = world->grip; g < world->grip + GRIPS; g++)
        if (g->end == end && g->rkey && !g->field->harmed) return g;
    return NULL;
}

/* A put, and then a get of the same bytes behind a fence; and an addition of nothing, which
 * fetches. */
static void put_get_fetch(struct end *end, struct grip *g) {
    struct asked *put = ask(ASKED_PUT, end->node, end), *get = ask(ASKED_GET, end->node, end),
                 *fetch = ask(ASKED_FETCH, end->node, end);
    uint64_t there = (uint64_t)(uintptr_t)g->field->base + g->at;
    uint8_t out[512], in[512] = {0};
    size_t len = below(sizeof out + 1), at = below(PLOT - PLOT_WORDS - len);
    put->grip = get->grip = fetch->grip = g;
    memcpy(out, bytes_of(put->n, 0), len);
    grip_tear(g, (struct stretch){at, at + len});
    ASK(put, weft_put_wait(end->ep, out, len, there + at, g->rkey));
    weft_status_t st = end_lives(end) && g->rkey ? weft_ep_fence(end->ep) : WEFT_ERR_CLOSED;
    put->performed = true;
    if (st >= 0) ASK(get, weft_get_wait(end->ep, in, len, there + at, g->rkey));
    if (st >= 0 && get->status == WEFT_OK && put->status == WEFT_OK && memcmp(in, out, len) != 0)
        wrong("a get that waits brings other bytes than the put before it put");
    if (end_lives(end) && g->rkey)
        ASK(fetch, weft_atomic_fetch_wait(end->ep, WEFT_ATOMIC_ADD, 8, 0, 0, &fetch->old,
                                          there + PLOT - PLOT_WORDS, g->rkey));
    get->performed = fetch->performed = true;
}

static void flush(struct end *end) {
    struct asked *a = ask(ASKED_FLUSH, end->node, end);
    a->remote = percent(50);
    ASK(a, a->remote ? weft_ep_flush_remote_wait(end->ep) : weft_ep_flush_wait(end->ep));
}

/* Nothing else waits for the stream's room there, nor for its bytes, nor has some of them taken. */
static void stream(struct end *end) {
    if (end->other->author != here || !owns(end->other->node) || end->other->recv_first ||
        end->other->n_taken || end->other->in != end->out)
        return;
    struct asked *a = ask(ASKED_STREAM, end->node, end);
    size_t len = 1 + below(1000);
    uint64_t at = end->out;
    end->out += len;
    ASK(a,
        weft_stream_send_wait(
            end->ep,
            &(weft_iov_t){(void *)(uintptr_t)bytes_of(UINT64_C(0x5000000) + end->n, at), len}, 1));
}

void wait_form(void) {
    struct end *end = here == MAIN && depth == 0 ? an_end() : NULL;
    struct grip *g = end ? grip_of(end) : NULL;
    uint32_t which = below(3);
    if (!end) return;
    trace("waits at end %u", end->n);
    if (which == 0 && g)
        put_get_fetch(end, g);
    else if (which == 1)
        stream(end);
    else
        flush(end);
}
