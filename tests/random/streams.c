/* Streams: the same bytes in the same order, by whatever pieces they are sent, received or
 * taken. */
#include <string.h>

#include "world.h"

static uint64_t name_of(const struct end *from) {
    return UINT64_C(0x5000000) + from->n;
}

static void send(struct end *end, size_t len) {
    struct asked *a = ask(ASKED_STREAM, end->node, end);
    struct shape_wants wants = {
        .room = room_of(end->node), .layouts = true, .refuses = may(MAY_REFUSE)};
    shape_draw(&a->shape, len, wants);
    shape_fill(&a->shape, bytes_of(name_of(end), end->out));
    end->out += a->shape.len;
    ask_op(a, 0);
    ASK(a, weft_stream_send(end->ep, a->shape.iov, a->shape.n_iov, a->op_p));
}

void stream_send(void) {
    struct end *end = any_end();
    if (end) send(end, a_size());
}

/* Of a send that ended early a first part may have been sent; then it is unknown where what
 * follows belongs. */
bool stream_is_known(struct end *from) {
    for (struct asked *a = world->asked; a && !from->unsure; a = a->next)
        if (a->kind == ASKED_STREAM && a->end == from && (a->status < 0 || !ask_is_safe(a)))
            from->unsure = true;
    return !from->unsure;
}

static bool quiesced_enough(const struct end *end) {
    return !world->may || (end->other && end_is_safe(end));
}

/* ---- received -------------------------------------------------------------------------------- */

/* Bytes are looked at in the order in which the receives were posted: one that ends at once may
 * be reported before others. */
static void received(struct asked *last) {
    struct end *end = last->end;
    while (end->recv_first && ask_is_over(end->recv_first)) {
        struct asked *a = end->recv_first;
        end->recv_first = a->next_recv;
        if (a->got > a->shape.len)
            wrong("a stream's receive of %zu bytes has %zu", a->shape.len, a->got);
        /* who knows how much it took */
        if (a->shape.refused && end->other) end->other->unsure = true;
        if (a->status == WEFT_OK && a->wait_all && a->got != a->shape.len)
            wrong("a receive of all %zu bytes has %zu", a->shape.len, a->got);
        if (a->status == WEFT_OK && a->shape.len && !a->got)
            wrong("a stream's receive has nothing");
        if (quiesced_enough(end) && end->other && stream_is_known(end->other)) {
            if (end->in + a->got > end->other->out) wrong("a stream has more bytes than were sent");
            if (!shape_holds(&a->shape, bytes_of(name_of(end->other), end->in), a->got))
                wrong("the stream to end %u has other bytes from %llu on", end->n,
                      (unsigned long long)end->in);
        }
        end->in += a->got;
        world->n_checked += a->got;
        shape_end(&a->shape);
    }
}

static void receive(struct end *end, size_t len, bool all) {
    struct asked *a = ask(ASKED_STREAM_RECV, end->node, end);
    a->then = received;
    a->keeps = true;
    a->wait_all = all;
    struct shape_wants wants = {
        .room = room_of(end->node), .layouts = true, .refuses = may(MAY_REFUSE)};
    shape_draw(&a->shape, len, wants);
    shape_clear(&a->shape);
    if (end->recv_first)
        end->recv_last->next_recv = a;
    else
        end->recv_first = a;
    end->recv_last = a;
    ask_op(a, all ? WEFT_STREAM_WAIT_ALL : 0);
    ASK(a, weft_stream_recv(end->ep, a->shape.iov, a->shape.n_iov, &a->got, a->op_p));
}

void stream_recv(void) {
    struct end *end = any_end();
    if (end && end->other) receive(end, a_size(), percent(30));
}

/* ---- taken where they are -------------------------------------------------------------------- */

static void give_back(struct end *end, uint32_t i) {
    const void *data = end->taken[i];
    end->taken[i] = end->taken[--end->n_taken];
    weft_stream_release(end->node->worker, data);
}

/* A receive that has its bytes, and was not reported yet, is before it. */
static bool take(struct end *end) {
    const void *data;
    size_t len;
    if (end->recv_first) return false;
    weft_status_t st = weft_stream_take(end->ep, &data, &len);
    if (st == WEFT_ERR_BUSY)
        wrong("no receive is posted, and a stream's bytes are not to be taken");
    if (st != WEFT_OK) return false;
    trace("end %u takes %zu bytes of its stream", end->n, len);
    if (len == 0) wrong("no bytes were taken");
    end->taken[end->n_taken++] = data;
    if (end->other && quiesced_enough(end) && stream_is_known(end->other) &&
        memcmp(data, bytes_of(name_of(end->other), end->in), len) != 0)
        wrong("the stream to end %u has other bytes from %llu on", end->n,
              (unsigned long long)end->in);
    end->in += len;
    world->n_checked += len;
    return true;
}

void stream_take(void) {
    struct end *end = any_end();
    if (!end || !end->other || !owns(end->node)) return;
    if (end->n_taken == sizeof end->taken / sizeof *end->taken || (end->n_taken && percent(40)))
        give_back(end, below(end->n_taken));
    else
        take(end);
}

static void on_data(weft_ep_t *ep, void *arg) {
    struct end *end = arg;
    CALLED((uint64_t)end->n << 8 | 5);
    if (end_of(ep) != end) wrong("bytes for an endpoint that is closed");
    if (end->other && end->author == here && owns(end->node) && end->n_taken < 4) take(end);
    RETURNS;
}

void stream_listen(void) {
    struct end *end = any_end();
    if (!end || !owns(end->node)) return;
    weft_status_t st = weft_stream_on_data(end->ep, percent(70) ? on_data : NULL, end);
    if (st < 0 && end_is_safe(end)) wrong("on_data: %s", weft_status_name(st));
}

/* ---- the end --------------------------------------------------------------------------------- */

static size_t at_most(size_t most, uint64_t n) {
    return n < most ? (size_t)n : most;
}

/* What waits for more than was sent is sent more. */
static void feed(struct end *end) {
    uint64_t wanted = end->in;
    for (const struct asked *a = end->recv_first; a; a = a->next_recv) wanted += a->shape.len;
    if (end_lives(end->other) && wanted > end->other->out)
        send(end->other, at_most(LARGEST, wanted - end->other->out));
}

/* A receive takes the piece that is there. One of all that is left, for each piece, would take a
 * time that grows with the square of what is left. */
enum { DRAINED_AT_ONCE = 20000 };

void streams_drain(struct end *end) {
    while (end->n_taken) give_back(end, 0);
    bool known = end->other && stream_is_known(end->other);
    if (end->recv_first && known) feed(end);
    if (end->recv_first) return;
    if (!known || percent(50))
        take(end);
    else if (end->in < end->other->out)
        receive(end, at_most(DRAINED_AT_ONCE, end->other->out - end->in), false);
}

void streams_end(void) {
    for (uint32_t i = 0; i < world->n_ends; i++) {
        struct end *end = &world->end[i];
        if (end->other && end_is_safe(end) && stream_is_known(end) && end->other->in != end->out)
            wrong("of a stream of %llu bytes %llu came", (unsigned long long)end->out,
                  (unsigned long long)end->other->in);
    }
}
