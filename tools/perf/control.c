/*
 * Two workers, one of which asks. The other one carries out orders, and gets the test and the size
 * with each: so one that was started with --listen needs no options.
 */
#include "perf.h"
#include <string.h>

static struct perf_answer answered;
static uint64_t n_answers;

/* What is in use of a message with bytes at its end. */
static size_t order_len(const struct perf_order *order) {
    return offsetof(struct perf_order, bytes) + order->n_bytes;
}
static size_t answer_len(const struct perf_answer *answer) {
    return offsetof(struct perf_answer, bytes) + answer->n_bytes;
}

/* ---- carrying out ---------------------------------------------------------------------------- */

static void begin_control(struct perf *p, const struct perf_order *order) {
    const struct perf_kind *kind = &perf_tests[order->test];
    p->turn = kind->family->turn;
    p->serving = kind->family;
    p->mode = kind->flags & PERF_WAITING ? MODE_WAIT : p->options.mode;
    if (kind->family->begin) kind->family->begin(p, order);
}

static void on_control(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct perf *p = arg;
    struct perf_order order;
    if (!am->data || am->len > sizeof order || am->len < offsetof(struct perf_order, bytes)) return;
    memcpy(&order, am->data, am->len);
    if (order.test >= N_TESTS || am->len != order_len(&order)) return;
    p->asker = ep;
    switch (order.command) {
    case PERF_BEGIN: begin_control(p, &order); break;
    case PERF_MORE:
        if (p->serving && p->serving->more) p->serving->more(p, &order);
        break;
    case PERF_END:
        if (p->serving && p->serving->end) p->serving->end(p, &order);
        break;
    case PERF_BYE: p->leaving = true; break;
    default: break;
    }
}

/* The answer is kept until it has left. The next order comes when the answer before has arrived. */
void perf_answer(struct perf *p, const struct perf_answer *answer) {
    static struct perf_answer leaving;
    leaving = *answer;
    weft_iov_t iov = {&leaving, answer_len(&leaving)};
    perf_must(
        weft_am_send(p->asker, AM_ANSWER, NULL, 0, &iov, 1, &(weft_op_t){.flags = WEFT_AM_EAGER}),
        "answer");
}

void perf_serve(struct perf *p) {
    while (!p->leaving) perf_turn(p);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)ep;
    (void)arg;
    if (!am->data || am->len > sizeof answered || am->len < offsetof(struct perf_answer, bytes))
        return;
    memcpy(&answered, am->data, am->len);
    n_answers++;
}

static void order(struct perf *p, struct perf_order *order) {
    weft_iov_t iov = {order, order_len(order)};
    order->test = p->options.test;
    order->links = p->options.links;
    perf_must(
        weft_am_send(p->ep, AM_CONTROL, NULL, 0, &iov, 1, &(weft_op_t){.flags = WEFT_AM_EAGER}),
        "order");
}

const struct perf_answer *perf_ask(struct perf *p, struct perf_order *what) {
    uint64_t before = n_answers;
    order(p, what);
    while (n_answers == before) perf_turn(p);
    return &answered;
}

void perf_bye(struct perf *p) {
    order(p, &(struct perf_order){.command = PERF_BYE});
    perf_must(weft_ep_flush_wait(p->ep), "flush");
}

void perf_control_prepare(struct perf *p) {
    perf_must(weft_am_handler_set(p->worker, AM_CONTROL, on_control, p), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_ANSWER, on_answer, p), "handler");
}
