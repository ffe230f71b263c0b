/*
 * Bytes one way through an endpoint's stream: sends of a size, and receives of the same size that
 * need not match them.
 */
#include "perf.h"
#include <string.h>

enum { RECEIVES = 8 };

struct receive {
    weft_request_t *request; /* NULL: not posted */
    size_t len;
};
static struct responder {
    struct perf *p;
    weft_ep_t *ep;
    void *buffer;
    size_t size;
    uint64_t received, expected; /* bytes; UINT64_MAX: not yet notified */
    unsigned n_posted;
    struct receive receives[RECEIVES];
} responder;
static struct perf_room room; /* for its bytes */

static weft_iov_t out;
static uint64_t in_progress;

/* ---- answering ------------------------------------------------------------------------------- */

static void maybe_finish(struct responder *r) {
    if (r->received < r->expected) return;
    for (int i = 0; r->n_posted > 0 && i < RECEIVES; i++) {
        weft_request_t *request = r->receives[i].request;
        r->receives[i].request = NULL;
        if (request) weft_request_cancel(request); /* comes back with WEFT_ERR_CANCELLED */
    }
    if (r->n_posted > 0) return;
    r->expected = UINT64_MAX;
    perf_answer(r->p, &(struct perf_answer){.count = r->received / r->size});
}

static void on_bytes(weft_status_t status, void *arg);

/* Posts one receive again and again while bytes are there already. */
static void post_stream(struct responder *r, struct receive *rx) {
    weft_iov_t iov = {r->buffer, r->size};
    weft_op_t op = {.done = on_bytes, .arg = rx, .request_p = &rx->request};
    weft_status_t st;
    while ((st = weft_stream_recv(r->ep, &iov, 1, &rx->len, &op)) == WEFT_OK)
        r->received += rx->len;
    perf_must(st, "receive");
    r->n_posted++;
}

static void on_bytes(weft_status_t status, void *arg) {
    struct responder *r = &responder;
    struct receive *rx = arg;
    rx->request = NULL;
    r->n_posted--;
    if (status != WEFT_ERR_CANCELLED) {
        perf_must(status, "receive");
        r->received += rx->len;
        if (r->received < r->expected) post_stream(r, rx);
    }
    maybe_finish(r);
}

static void begin_stream(struct perf *p, const struct perf_order *order) {
    struct responder *r = &responder;
    if (order->size == 0) perf_die("size 0", WEFT_ERR_INVALID_PARAM);
    *r = (struct responder){.p = p, .ep = p->asker, .size = order->size, .expected = UINT64_MAX};
    r->buffer = perf_room(p, PERF_RECEIVED, &room, r->size);
    for (int i = 0; i < RECEIVES; i++) post_stream(r, &r->receives[i]);
    perf_answer(p, &(struct perf_answer){0});
}

static void end_stream(struct perf *p, const struct perf_order *order) {
    (void)p;
    responder.expected = order->count * responder.size;
    maybe_finish(&responder);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void on_sent(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "send");
    in_progress--;
}

static void send_many(struct perf *p, uint64_t n) {
    const weft_op_t op = {.done = on_sent};
    for (; n > 0; n--) {
        weft_status_t st = weft_stream_send(p->ep, &out, 1, &op);
        if (st == WEFT_OK) continue;
        perf_must(st, "send");
        in_progress++;
        while (in_progress >= p->options.window) perf_turn(p);
    }
}

static void measure_stream(struct perf *p, size_t size, struct perf_result *result_p) {
    const struct perf_loop loop = {send_many, p->options.window, NULL};
    if (size == 0) perf_die("size 0", WEFT_ERR_INVALID_PARAM);
    out = (weft_iov_t){p->out, size};
    perf_ask(p, &(struct perf_order){.command = PERF_BEGIN, .size = size});
    perf_loop(p, size, &loop, result_p);
    while (in_progress > 0) perf_turn(p);
}

extern const struct perf_family perf_stream;
const struct perf_family perf_stream = {
    .measure = measure_stream, .begin = begin_stream, .end = end_stream};
