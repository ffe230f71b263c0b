/*
 * One worker answers the requests of many clients, each a worker of its own with one request under
 * way; they share a process, and in the modes that sleep a loop. The test idle keeps them all
 * quiet, and reports what that costs.
 */
#include "perf.h"
#include <ev.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 64, TURNS_BETWEEN_CLOCKS = 16 };

/* Seconds until as many links have the lanes that they earn. */
#define SETTLED 0.4

/* ---- answering ------------------------------------------------------------------------------- */

static struct served {
    uint64_t requests;
    double cpu; /* when MORE came */
    uint64_t at;
} served;

static void on_gone(weft_ep_t *ep, weft_status_t status, void *arg) {
    (void)status;
    (void)arg;
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

static void on_request(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_iov_t iov = {(void *)am->data, am->len};
    (void)arg;
    perf_must(weft_am_send(ep, AM_REPLY, NULL, 0, &iov, 1, &(weft_op_t){.flags = WEFT_AM_EAGER}),
              "reply");
    served.requests++;
}

/* The first of a client. */
static void on_first(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_ep_on_error(ep, on_gone, NULL);
    on_request(ep, am, arg);
}

static void begin_server(struct perf *p, const struct perf_order *order) {
    struct perf_answer answer = {0};
    size_t len = sizeof answer.bytes;
    (void)order;
    perf_must(weft_worker_address(p->worker, answer.bytes, &len), "address");
    answer.n_bytes = (uint32_t)len;
    perf_answer(p, &answer);
}

static void count_from_now(struct perf *p, const struct perf_order *order) {
    (void)order;
    served = (struct served){0, perf_cpu_s(), perf_now()};
    perf_answer(p, &(struct perf_answer){0});
}

static void end(struct perf *p, const struct perf_order *order) {
    double wall = (double)(perf_now() - served.at) / 1e9,
           pct = 100 * (perf_cpu_s() - served.cpu) / wall;
    struct perf_answer answer = {.count = served.requests, .n_bytes = sizeof pct};
    (void)order;
    memcpy(answer.bytes, &pct, sizeof pct);
    perf_answer(p, &answer);
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct client {
    weft_worker_t *worker;
    weft_ep_t *ep;
};
static struct clients {
    struct perf *p;
    struct client *all;
    uint32_t n;
    struct ev_loop *loop; /* NULL: each is polled */
    weft_iov_t request;
    uint64_t replies, under_way;
    uint64_t asked_at; /* by the first of them, whose times are reported */
    bool stopping;
} clients;

static void ask_once(struct client *c, unsigned id) {
    struct clients *all = &clients;
    if (c == all->all) all->asked_at = perf_now();
    all->under_way++;
    perf_must(
        weft_am_send(c->ep, id, NULL, 0, &all->request, 1, &(weft_op_t){.flags = WEFT_AM_EAGER}),
        "request");
}

static void on_reply(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct client *c = arg;
    struct clients *all = &clients;
    (void)ep;
    (void)am;
    all->under_way--;
    all->replies++;
    if (c == all->all) histogram_add(&all->p->histogram, (double)(perf_now() - all->asked_at), 1);
    if (!all->stopping) ask_once(c, AM_REQUEST);
}

static void drive(struct clients *all) {
    if (all->loop) {
        ev_run(all->loop, EVRUN_ONCE);
        return;
    }
    for (uint32_t i = 0; i < all->n; i++) weft_worker_progress(all->all[i].worker, 0);
}

/* What is under way comes, and nothing more is asked. */
static void settle_clients(struct clients *all) {
    all->stopping = true;
    while (all->under_way > 0) drive(all);
    all->stopping = false;
}

static void open_clients(struct clients *all, const void *address, size_t len) {
    const weft_worker_params_t params = {.loop = all->loop};
    const weft_ep_params_t watched = {.on_error = perf_lost};
    all->all = calloc(all->n, sizeof *all->all);
    if (!all->all) perf_die("clients", WEFT_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < all->n; i++) {
        struct client *c = &all->all[i];
        perf_must(weft_worker_create(all->p->context, &params, &c->worker), "client");
        perf_must(weft_am_handler_set(c->worker, AM_REPLY, on_reply, c), "handler");
        perf_must(weft_connect_address(c->worker, address, len, &watched, &c->ep), "connect");
        ask_once(c, AM_HELLO); /* the first answer says that the connection is there */
    }
    settle_clients(all);
}

static void close_clients(struct clients *all) {
    for (uint32_t i = 0; i < all->n; i++) weft_worker_destroy(all->all[i].worker);
    free(all->all);
    if (all->loop) ev_loop_destroy(all->loop);
    *all = (struct clients){0};
}

static void on_time(struct ev_loop *loop, ev_timer *timer, int events) {
    (void)timer;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

/* No client sends anything. */
static void stay_idle(struct clients *all, double seconds) {
    ev_timer timer;
    ev_timer_init(&timer, on_time, seconds, 0);
    ev_now_update(all->loop);
    ev_timer_start(all->loop, &timer);
    ev_run(all->loop, 0);
    histogram_add(&all->p->histogram, seconds * 1e9, 1);
}

static void keep_busy(struct clients *all, double seconds) {
    uint64_t end = perf_now() + (uint64_t)(seconds * 1e9);
    for (uint32_t i = 0; i < all->n; i++) ask_once(&all->all[i], AM_REQUEST);
    while (perf_now() < end)
        for (int i = 0; i < TURNS_BETWEEN_CLOCKS; i++) drive(all);
}

static void run_clients(struct clients *all, double seconds) {
    if (all->p->options.test == TEST_IDLE)
        stay_idle(all, seconds);
    else
        keep_busy(all, seconds);
    settle_clients(all);
}

/* Between MORE and END, the server's own account of which comes with the answer. */
static void measure_once(struct perf *p, struct clients *all, struct perf_result *r) {
    double server_pct = 0;
    perf_ask(p, &(struct perf_order){.command = PERF_MORE});
    histogram_clear(&p->histogram);
    all->replies = 0;
    double cpu = perf_cpu_s();
    uint64_t at = perf_now();
    run_clients(all, p->options.seconds);
    double wall = (double)(perf_now() - at) / 1e9;
    cpu = perf_cpu_s() - cpu;
    const struct perf_answer *answer = perf_ask(p, &(struct perf_order){.command = PERF_END});
    if (answer->count != all->replies) perf_die("replies are missing", WEFT_ERR_INTERNAL);
    memcpy(&server_pct, answer->bytes, sizeof server_pct);
    perf_fill(p, 1, wall, cpu, all->replies ? all->replies : 1, r);
    perf_note(r, "clients", all->n);
    perf_note(r, "per_s", (double)all->replies / wall);
    perf_note(r, "server_cpu_pct", server_pct);
}

static void measure_server(struct perf *p, size_t size, struct perf_result *result_p) {
    struct clients *all = &clients;
    *all = (struct clients){
        .p = p, .n = p->options.count ? p->options.count : CLIENTS, .request = {p->out, size}};
    if (p->mode != MODE_POLL) all->loop = ev_loop_new(EVFLAG_AUTO);
    const struct perf_answer *answer =
        perf_ask(p, &(struct perf_order){.command = PERF_BEGIN, .size = size});
    open_clients(all, answer->bytes, answer->n_bytes);
    if (p->options.test == TEST_SERVER) run_clients(all, fmax(p->options.seconds / 5, SETTLED));
    measure_once(p, all, result_p);
    close_clients(all);
}

static void prepare_server(struct perf *p) {
    perf_must(weft_am_handler_set(p->worker, AM_REQUEST, on_request, p), "handler");
    perf_must(weft_am_handler_set(p->worker, AM_HELLO, on_first, p), "handler");
}

extern const struct perf_family perf_server;
const struct perf_family perf_server = {.prepare = prepare_server,
                                        .measure = measure_server,
                                        .begin = begin_server,
                                        .more = count_from_now,
                                        .end = end};
