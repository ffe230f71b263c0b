/*
 * Streams: the same bytes, by whatever pieces. One half of the receivers takes them where they are,
 * the other posts receives.
 */
#include <string.h>

#include "world.h"

static const uint8_t *stream_at(const struct half *from, uint64_t offset) {
    const uint8_t *first = pattern_of(from, ASKED_STREAM, 0);
    return arena_pattern + ((uint64_t)(first - arena_pattern) + offset) % PATTERN;
}

static void stream_check(struct half *half, const uint8_t *data, size_t len) {
    struct half *from = half->other;
    struct world *w = half->connection->world;
    if (half->stream_got + len > from->stream_sent && !from->stream_unsure)
        world_fail(w, "a stream of %llu bytes has more", (unsigned long long)from->stream_sent);
    else if (!from->stream_unsure && memcmp(data, stream_at(from, half->stream_got), len) != 0)
        world_fail(w, "a stream of %u.%d has other bytes from %llu on", from->connection->serial,
                   (int)(from - from->connection->half), (unsigned long long)half->stream_got);
    half->stream_got += len;
    world_note(w, half->stream_got);
}

/* ---- taken in place -------------------------------------------------------------------------- */

void stream_give_back(struct half *half) {
    while (half->n_in_flight && half->node->worker)
        weft_stream_release(half->node->worker, half->in_flight[--half->n_in_flight]);
}

static void on_data(weft_ep_t *ep, void *arg) {
    struct half *half = arg;
    const void *data;
    size_t len;
    while (half->ep && weft_stream_take(half->ep, &data, &len) == WEFT_OK) {
        if (half->n_in_flight == sizeof half->in_flight / sizeof *half->in_flight)
            stream_give_back(half);
        half->in_flight[half->n_in_flight++] = data;
        stream_check(half, data, len);
    }
    /* Usually at once; else with the next ones. */
    const struct connection *c = half->connection;
    if (c->world->healing ||
        draw_chance(c->world->plan->seed, DRAW_PROGRAM, c->serial, half->stream_got, 70))
        stream_give_back(half);
}

/* ---- received -------------------------------------------------------------------------------- */

static bool receives(const struct half *half) {
    const struct connection *c = half->connection;
    return draw_chance(c->world->plan->seed, DRAW_PROGRAM, c->serial, (uint64_t)(half - c->half),
                       50);
}

static void want(struct half *half);

/*
 * Bytes are looked at in the order in which the receives were posted: one that ends at once may be
 * reported before others.
 */
static void taken(struct asked *asked) {
    struct half *half = asked->half;
    while (half->stream_first && half->stream_first->status != WEFT_IN_PROGRESS) {
        struct asked *first = half->stream_first;
        half->stream_first = first->next_take;
        if (!half->stream_first) half->stream_last = &half->stream_first;
        half->stream_posted -= first->len;
        if (first->got) stream_check(half, first->buf, first->got);
        if (first->mark && first->status == WEFT_OK && first->got != first->len)
            world_fail(first->world, "a receive of all %u bytes has %zu", first->len, first->got);
        arena_give(first->buf, first->len, 0);
        first->buf = NULL;
    }
    if (asked->status == WEFT_OK && half_lives(half)) want(half);
}

static void take_later(struct half *half, struct asked *asked) {
    if (!half->stream_last) half->stream_last = &half->stream_first;
    asked->keeps = true;
    half->stream_posted += asked->len;
    *half->stream_last = asked;
    half->stream_last = &asked->next_take;
}

/* Receives are posted for all that was sent so far. */
static void want(struct half *half) {
    struct world *w = half->connection->world;
    while (half_lives(half) && half->stream_got + half->stream_posted < half->other->stream_sent) {
        uint64_t left = half->other->stream_sent - half->stream_got - half->stream_posted;
        uint64_t at = half->stream_got + half->stream_posted;
        uint64_t len =
            1 + draw_below(w->plan->seed, DRAW_PROGRAM, half->connection->serial, at, 20000);
        struct asked *asked = ask(w, half, ASKED_STREAM_TAKE, (uint32_t)(len < left ? len : left));
        asked->mark = draw_chance(w->plan->seed, DRAW_PROGRAM, half->connection->serial, ~at, 50);
        asked->then = taken;
        take_later(half, asked);
        weft_op_t op = ask_op(asked);
        op.flags = asked->mark ? WEFT_STREAM_WAIT_ALL : 0;
        ask_answered(asked, weft_stream_recv(half->ep, &(weft_iov_t){asked->buf, asked->len}, 1,
                                             &asked->got, &op));
        if (asked->status < 0) break;
    }
}

void stream_listen(struct half *half) {
    if (receives(half)) return want(half);
    weft_status_t st = weft_stream_on_data(half->ep, on_data, half);
    half->listens = st >= 0;
    if (st < 0 && !half_may_fail(half))
        world_fail(half->connection->world, "stream_on_data: %s", weft_status_name(st));
}

/* Who could not listen for lack of memory tries again. */
void stream_take_rest(struct half *half) {
    if (receives(half)) return want(half);
    if (!half->listens) stream_listen(half);
    on_data(half->ep, half);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void sent(struct asked *asked) {
    if (asked->status != WEFT_OK) asked->half->stream_unsure = true;
}

void post_stream(struct half *half, uint32_t item, uint32_t i, uint64_t class) {
    struct world *w = half->connection->world;
    uint32_t len = 1 + size_of(w, item, i, class);
    struct asked *asked = ask(w, half, ASKED_STREAM, len);
    asked->then = sent;
    memcpy(asked->buf, stream_at(half, half->stream_sent), len);
    half->stream_sent += len;
    weft_op_t op = ask_op(asked);
    ask_answered(asked, weft_stream_send(half->ep, &(weft_iov_t){asked->buf, len}, 1, &op));
    if (half_lives(half->other) && receives(half->other)) want(half->other);
}
