/* Active and tagged messages: to and fro, or as many one way as will go. */
#include "perf.h"
#include <string.h>

enum { TAG_PING = 1, TAG_PONG = 2 };
enum { MAX_SIZE = 1 << 30 };

/* The side that answers. */
struct receive {
    weft_request_t *request; /* NULL: not posted */
    weft_op_t op;            /* the same each time */
};
static struct responder {
    struct perf *p;
    struct perf_room in, out;    /* for tags and rendezvous, and for what answers */
    weft_iov_t iov, reply;       /* of them, those of this test */
    uint64_t received, expected; /* of this test; UINT64_MAX: not yet notified */
    bool tags, echo;
    unsigned n_posted;
    struct receive receives[PERF_WINDOW];
} responder;

/* The side that asks. */
static weft_iov_t out, in;
static uint64_t pongs, in_progress;

static bool is_tagged(enum perf_test test) {
    return test == TEST_TAG_LAT || test == TEST_TAG_RATE || test == TEST_TAG_BW;
}

/* The whole message is new with --fresh. */
static const weft_iov_t *written(const struct perf *p, const weft_iov_t *iov) {
    static unsigned char n;
    if (p->options.fresh) memset(iov->base, ++n, iov->len);
    return iov;
}

/* ---- answering ------------------------------------------------------------------------------- */

static void cancel_all(struct responder *r) {
    for (int i = 0; i < PERF_WINDOW; i++) {
        weft_request_t *request = r->receives[i].request;
        r->receives[i].request = NULL;
        if (request) weft_request_cancel(request);
    }
}

/* All that was announced is here, and no receive is left. */
static void maybe_finish(struct responder *r) {
    if (r->received < r->expected) return;
    if (r->n_posted > 0) {
        cancel_all(r); /* each comes back with WEFT_ERR_CANCELLED */
        return;
    }
    r->expected = UINT64_MAX;
    perf_answer(r->p, &(struct perf_answer){.count = r->received});
}

static void reply(struct responder *r) {
    const weft_iov_t *iov = written(r->p, &r->reply);
    perf_must(r->tags ? weft_tag_send(r->p->asker, TAG_PONG, iov, 1, NULL)
                      : weft_am_send(r->p->asker, AM_PONG, NULL, 0, iov, 1, NULL),
              "pong");
}

static void on_tag(weft_status_t status, void *arg);

/* Posts one receive again and again while messages are there already. */
static void post_messages(struct responder *r, struct receive *rx) {
    weft_status_t st;
    while ((st = weft_tag_recv(r->p->worker, TAG_PING, UINT64_MAX, &r->iov, 1, NULL, &rx->op)) ==
           WEFT_OK) {
        r->received++;
        if (r->echo) reply(r);
    }
    perf_must(st, "receive");
    r->n_posted++;
}

static void on_tag(weft_status_t status, void *arg) {
    struct receive *rx = arg;
    struct responder *r = &responder;
    rx->request = NULL;
    r->n_posted--;
    if (status != WEFT_ERR_CANCELLED) {
        perf_must(status, "receive");
        r->received++;
        if (r->echo) reply(r);
        if (r->received < r->expected) post_messages(r, rx);
    }
    if (r->received >= r->expected) maybe_finish(r);
}

static void begin_messages(struct perf *p, const struct perf_order *order) {
    struct responder *r = &responder;
    if (order->size > MAX_SIZE) perf_die("size", WEFT_ERR_TOO_BIG);
    r->p = p;
    r->iov = (weft_iov_t){perf_room(p, PERF_RECEIVED, &r->in, order->size), order->size};
    r->reply = (weft_iov_t){perf_room(p, PERF_SENT, &r->out, order->size), order->size};
    r->received = 0;
    r->expected = UINT64_MAX;
    r->tags = is_tagged(order->test);
    r->echo = perf_tests[order->test].flags & PERF_HALF_ROUND_TRIP;
    int n = !r->tags ? 0 : r->echo ? 1 : PERF_WINDOW;
    for (int i = 0; i < n; i++) {
        struct receive *rx = &r->receives[i];
        rx->op = (weft_op_t){.done = on_tag, .arg = rx, .request_p = &rx->request};
        post_messages(r, rx);
    }
    perf_answer(p, &(struct perf_answer){0});
}

static void end_messages(struct perf *p, const struct perf_order *order) {
    (void)p;
    responder.expected = order->count;
    maybe_finish(&responder);
}

static void took(struct responder *r) {
    r->received++;
    if (r->echo) reply(r);
    if (r->received >= r->expected) maybe_finish(r);
}

static void on_payload(weft_status_t status, void *arg) {
    perf_must(status, "payload");
    took(arg);
}

/* A payload that waits at the sender is fetched; one that came along is done with. */
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct responder *r = arg;
    (void)ep;
    if (am->data || am->len == 0) {
        took(r);
        return;
    }
    if (am->len > r->in.size) perf_die("message", WEFT_ERR_TOO_BIG);
    weft_iov_t iov = {r->in.bytes, am->len};
    weft_status_t st = weft_am_recv(am, &iov, 1, &(weft_op_t){.done = on_payload, .arg = r});
    perf_must(st, "payload");
    if (st == WEFT_OK) took(r);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void on_pong_payload(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "pong");
    pongs++;
}

static void on_pong(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)ep;
    (void)arg;
    if (am->data || am->len == 0) {
        pongs++;
        return;
    }
    weft_iov_t iov = {in.base, am->len};
    if (weft_am_recv(am, &iov, 1, &(weft_op_t){.done = on_pong_payload}) == WEFT_OK) pongs++;
}

static void on_sent(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "send");
    in_progress--;
}

static void am_round_trips(struct perf *p, uint64_t n) {
    for (uint64_t before = pongs; n > 0; n--, before++) {
        perf_must(weft_am_send(p->ep, AM_PING, NULL, 0, written(p, &out), 1, NULL), "ping");
        while (pongs == before) perf_turn(p);
    }
}

/* As other programs that measure this, it posts the receive while the message is on its way. */
static void tag_round_trips(struct perf *p, uint64_t n) {
    const weft_op_t op = {.done = on_pong_payload};
    for (uint64_t before = pongs; n > 0; n--, before++) {
        perf_must(weft_tag_send(p->ep, TAG_PING, written(p, &out), 1, NULL), "ping");
        weft_status_t st = weft_tag_recv(p->worker, TAG_PONG, UINT64_MAX, &in, 1, NULL, &op);
        perf_must(st, "receive");
        if (st == WEFT_OK) pongs++;
        while (pongs == before) perf_turn(p);
    }
}

static void am_stream(struct perf *p, uint64_t n) {
    const weft_op_t op = {.done = on_sent};
    for (; n > 0; n--) {
        weft_status_t st = weft_am_send(p->ep, AM_STREAM, NULL, 0, &out, 1, &op);
        if (st == WEFT_OK) continue;
        perf_must(st, "send");
        in_progress++;
        while (in_progress >= p->options.window) perf_turn(p);
    }
}

static void tag_stream(struct perf *p, uint64_t n) {
    const weft_op_t op = {.done = on_sent};
    for (; n > 0; n--) {
        weft_status_t st = weft_tag_send(p->ep, TAG_PING, &out, 1, &op);
        if (st == WEFT_OK) continue;
        perf_must(st, "send");
        in_progress++;
        while (in_progress >= p->options.window) perf_turn(p);
    }
}

/* Of a stream as many as the window may be posted at once, which is no time that one takes. */
static struct perf_loop loop_of(const struct perf_options *options) {
    uint64_t window = options->window;
    switch (options->test) {
    case TEST_AM_LAT:
    case TEST_WAIT_LAT: return (struct perf_loop){am_round_trips, 1, NULL};
    case TEST_TAG_LAT: return (struct perf_loop){tag_round_trips, 1, NULL};
    case TEST_TAG_RATE:
    case TEST_TAG_BW: return (struct perf_loop){tag_stream, window, NULL};
    default: return (struct perf_loop){am_stream, window, NULL};
    }
}

static void measure_messages(struct perf *p, size_t size, struct perf_result *result_p) {
    struct perf_loop loop = loop_of(&p->options);
    out = (weft_iov_t){p->out, size};
    in = (weft_iov_t){p->in, size};
    perf_ask(p, &(struct perf_order){.command = PERF_BEGIN, .size = size});
    perf_loop(p, size, &loop, result_p);
    while (in_progress > 0) perf_turn(p);
}

static void prepare_messages(struct perf *p) {
    responder.expected = UINT64_MAX;
    perf_must(weft_am_handler_set(p->worker, AM_PING, on_message, &responder), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_STREAM, on_message, &responder), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_PONG, on_pong, p), "handler");
}

extern const struct perf_family perf_messages;
const struct perf_family perf_messages = {.prepare = prepare_messages,
                                          .measure = measure_messages,
                                          .begin = begin_messages,
                                          .end = end_messages};
