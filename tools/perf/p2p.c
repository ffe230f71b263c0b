/*
 * Two workers, one of which asks. The other answers what comes, by the message's id, and is told the test and the size
 * before it begins: so one that was started with --listen needs no options.
 */
#include "perf.h"
#include <stdlib.h>
#include <string.h>

enum { AM_CONTROL = 1, AM_ANSWER = 2, AM_PING = 3, AM_PONG = 4, AM_STREAM = 5 };
enum { TAG_PING = 1, TAG_PONG = 2 };
enum { WINDOW = 64 }; /* sends in progress, and receives posted, of the streaming tests */
enum { MAX_SIZE = 1 << 30 };

enum command { COMMAND_BEGIN = 1, COMMAND_END = 2, COMMAND_BYE = 3 };
struct control {
    uint32_t command, test;
    uint64_t size;
    uint64_t count; /* END: messages sent since BEGIN */
};

/* The side that answers. */
struct receive {
    struct responder *of;
    weft_request_t *request; /* NULL: not posted */
};
struct responder {
    struct perf *p;
    weft_ep_t *ep; /* who asked last */
    size_t size;
    void *buffer; /* for tags and rendezvous: `room` bytes */
    size_t room;
    uint64_t received, expected; /* of this test; UINT64_MAX: not yet told */
    bool tags, echo, leaving;
    unsigned n_posted;
    struct receive receives[WINDOW];
};
static struct responder responder;

/* The side that asks. */
static uint64_t pongs, in_progress, answers, answered;

static void control(struct perf *p, enum command command, size_t size, uint64_t count) {
    struct control c = {command, p->options.test, size, count};
    perf_must(weft_am_send(p->ep, AM_CONTROL, &c, sizeof c, NULL, 0, NULL), "control");
}

static weft_iov_t piece(void *base, size_t len) {
    return (weft_iov_t){base, len};
}

/* ---- answering -------------------------------------------------------------------------------------------- */

static void answer(weft_ep_t *ep, uint64_t count) {
    perf_must(weft_am_send(ep, AM_ANSWER, &count, sizeof count, NULL, 0, NULL), "answer");
}

static void cancel_all(struct responder *r) {
    for (int i = 0; i < WINDOW; i++) {
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
    answer(r->ep, r->received);
}

static void reply(struct responder *r) {
    weft_iov_t iov = piece(r->buffer, r->size);
    perf_must(r->tags ? weft_tag_send(r->ep, TAG_PONG, &iov, 1, NULL)
                      : weft_am_send(r->ep, AM_PONG, NULL, 0, &iov, 1, NULL),
              "pong");
}

static void on_tag(weft_status_t status, void *arg);

/* Posts one receive again and again while messages are there already. */
static void post(struct receive *rx) {
    struct responder *r = rx->of;
    weft_iov_t iov = piece(r->buffer, r->size);
    weft_op_t op = {.done = on_tag, .arg = rx, .request_p = &rx->request};
    weft_status_t st;
    while ((st = weft_tag_recv(r->p->worker, TAG_PING, UINT64_MAX, &iov, 1, NULL, &op)) == WEFT_OK) {
        r->received++;
        if (r->echo) reply(r);
    }
    perf_must(st, "receive");
    r->n_posted++;
}

static void on_tag(weft_status_t status, void *arg) {
    struct receive *rx = arg;
    struct responder *r = rx->of;
    rx->request = NULL;
    r->n_posted--;
    if (status != WEFT_ERR_CANCELLED) {
        perf_must(status, "receive");
        r->received++;
        if (r->echo) reply(r);
        if (r->received < r->expected) post(rx);
    }
    maybe_finish(r);
}

static void begin(struct responder *r, weft_ep_t *ep, const struct control *c) {
    if (c->size > r->room) {
        void *more = realloc(r->buffer, c->size);
        if (!more) perf_die("buffer", WEFT_ERR_NO_MEMORY);
        memset((char *)more + r->room, 0, c->size - r->room);
        r->buffer = more;
        r->room = c->size;
    }
    r->ep = ep;
    r->size = c->size;
    r->received = 0;
    r->expected = UINT64_MAX;
    r->tags = c->test == TEST_TAG_LAT || c->test == TEST_TAG_BW;
    r->echo = perf_is_latency(c->test);
    int n = !r->tags ? 0 : r->echo ? 1 : WINDOW;
    for (int i = 0; i < n; i++) {
        r->receives[i].of = r;
        post(&r->receives[i]);
    }
    answer(ep, 0);
}

static void on_control(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct responder *r = arg;
    struct control c;
    if (am->header_len != sizeof c) return;
    memcpy(&c, am->header, sizeof c);
    if (c.size > MAX_SIZE || c.test >= N_TESTS) return;
    switch (c.command) {
    case COMMAND_BEGIN: begin(r, ep, &c); break;
    case COMMAND_END:
        r->expected = c.count;
        maybe_finish(r);
        break;
    case COMMAND_BYE: r->leaving = true; break;
    default: break;
    }
}

static void took(struct responder *r) {
    r->received++;
    if (r->echo) reply(r);
    if (r->expected != UINT64_MAX) maybe_finish(r);
}

static void on_payload(weft_status_t status, void *arg) {
    perf_must(status, "payload");
    took(arg);
}

/* A payload that waits at the sender is fetched; one that came along is done with. */
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct responder *r = arg;
    (void)ep;
    if (am->data || am->len == 0) return took(r);
    if (am->len > r->room) perf_die("message", WEFT_ERR_TOO_BIG);
    weft_iov_t iov = piece(r->buffer, am->len);
    weft_status_t st = weft_am_recv(am, &iov, 1, &(weft_op_t){.done = on_payload, .arg = r});
    perf_must(st, "payload");
    if (st == WEFT_OK) took(r);
}

/* ---- asking ------------------------------------------------------------------------------------------------ */

static void on_pong_payload(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "pong");
    pongs++;
}

static void on_pong(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct perf *p = arg;
    (void)ep;
    if (am->data || am->len == 0) {
        pongs++;
        return;
    }
    weft_iov_t iov = piece(p->in, am->len);
    if (weft_am_recv(am, &iov, 1, &(weft_op_t){.done = on_pong_payload}) == WEFT_OK) pongs++;
}

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)ep;
    (void)arg;
    if (am->header_len != sizeof answered) return;
    memcpy(&answered, am->header, sizeof answered);
    answers++;
}

static void on_sent(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "send");
    in_progress--;
}

static uint64_t ask(struct perf *p, enum command command, size_t size, uint64_t count) {
    uint64_t before = answers;
    control(p, command, size, count);
    while (answers == before) perf_turn(p);
    return answered;
}

static void am_round_trip(struct perf *p, const weft_iov_t *out) {
    uint64_t before = pongs;
    perf_must(weft_am_send(p->ep, AM_PING, NULL, 0, out, 1, NULL), "ping");
    while (pongs == before) perf_turn(p);
}

static void tag_round_trip(struct perf *p, const weft_iov_t *out) {
    uint64_t before = pongs;
    weft_iov_t in = piece(p->in, out->len);
    weft_op_t op = {.done = on_pong_payload};
    weft_status_t st = weft_tag_recv(p->worker, TAG_PONG, UINT64_MAX, &in, 1, NULL, &op);
    perf_must(st, "receive");
    if (st == WEFT_OK) pongs++;
    perf_must(weft_tag_send(p->ep, TAG_PING, out, 1, NULL), "ping");
    while (pongs == before) perf_turn(p);
}

static void stream_one(struct perf *p, const weft_iov_t *out, bool tags) {
    weft_op_t op = {.done = on_sent};
    weft_status_t st =
        tags ? weft_tag_send(p->ep, TAG_PING, out, 1, &op) : weft_am_send(p->ep, AM_STREAM, NULL, 0, out, 1, &op);
    perf_must(st, "send");
    in_progress += st == WEFT_IN_PROGRESS;
    while (in_progress >= WINDOW) perf_turn(p);
}

static void one(struct perf *p, const weft_iov_t *out) {
    switch (p->options.test) {
    case TEST_AM_LAT: am_round_trip(p, out); break;
    case TEST_TAG_LAT: tag_round_trip(p, out); break;
    case TEST_TAG_BW: stream_one(p, out, true); break;
    default: stream_one(p, out, false); break;
    }
}

/* Batches for `seconds`, into the histogram; returns how many operations that were. */
static uint64_t run_for(struct perf *p, const weft_iov_t *out, double seconds, uint64_t batch) {
    uint64_t n = 0, begin = perf_now(), end = begin + (uint64_t)(seconds * 1e9), at = begin;
    while (at < end) {
        for (uint64_t i = 0; i < batch; i++) one(p, out);
        uint64_t now = perf_now();
        histogram_add(&p->histogram, (double)(now - at) / (double)batch, batch);
        n += batch;
        at = now;
    }
    return n;
}

void perf_p2p_measure(struct perf *p, size_t size, struct perf_result *result_p) {
    weft_iov_t out = piece(p->out, size);
    bool latency = perf_is_latency(p->options.test);
    ask(p, COMMAND_BEGIN, size, 0);
    histogram_clear(&p->histogram);
    uint64_t warm = run_for(p, &out, p->options.seconds / 5, 1);
    uint64_t batch = perf_batch(histogram_mean(&p->histogram));
    if (!latency && batch < WINDOW) batch = WINDOW; /* as many may be posted at once: that is no latency */

    histogram_clear(&p->histogram);
    double cpu = perf_cpu_s();
    uint64_t begin = perf_now();
    uint64_t n = run_for(p, &out, p->options.seconds, batch);
    uint64_t got = ask(p, COMMAND_END, size, warm + n); /* streams end when the last has arrived */
    double wall = (double)(perf_now() - begin) / 1e9;
    cpu = perf_cpu_s() - cpu;
    if (got != warm + n) perf_die("messages are missing", WEFT_ERR_INTERNAL);
    while (in_progress > 0) perf_turn(p);
    perf_fill(p, latency ? 0.5 : 1, wall, cpu, n, result_p);
}

/* ---- both ----------------------------------------------------------------------------------------------------- */

void perf_p2p_prepare(struct perf *p) {
    responder.p = p;
    responder.expected = UINT64_MAX;
    perf_must(weft_am_handler_set(p->worker, AM_CONTROL, on_control, &responder), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_PING, on_message, &responder), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_STREAM, on_message, &responder), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_PONG, on_pong, p), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_ANSWER, on_answer, p), "handler");
}

void perf_p2p_serve(struct perf *p) {
    while (!responder.leaving) perf_turn(p);
    free(responder.buffer);
    responder.buffer = NULL;
}

void perf_p2p_bye(struct perf *p) {
    control(p, COMMAND_BYE, 0, 0);
    perf_must(weft_ep_flush_wait(p->ep), "flush");
}
