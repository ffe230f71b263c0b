#include "world.h"

#include <base/alloc.h>
#include <endpoints/core/worker.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <talloc.h>
#include <unistd.h>

#include "peer.h"

struct world *world;
bool fuzz_traces;
_Thread_local uint64_t chance_state;

/* Of one worker, whatever its peers send: the quotas below, twice, and what its own program has
 * under way. */
enum { MOST_MEMORY = 64 << 20, REST_TURNS = 20000, SWIFT_TURNS = 2000, TURN_NS = 1000000 };

void wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("  wrong: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    _exit(1);
}

void trace(const char *format, ...) {
    if (!fuzz_traces) return;
    va_list args;
    va_start(args, format);
    printf("    ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
}

/* ---- driving */

void run_worker(unsigned which, unsigned budget) {
    weft_worker_t *w = world->worker[which];
    if (!w) return;
    uint64_t before = chance_state;
    struct reactor *r = weft__worker_reactor(w);
    weft__reactor_poll_soon(r);
    weft_worker_progress(w, budget);
    chance_state = before;
    if (world->worker[which] && talloc_total_size(r) > MOST_MEMORY)
        wrong("worker %u has %zu MB of memory", which, talloc_total_size(r) >> 20);
}

void run_all(unsigned turns) {
    for (unsigned i = 0; i < turns; i++) {
        run_worker(PARTNER, 0);
        run_worker(VICTIM, 0);
    }
}

/* Turn `i` with time. Late ones take a millisecond: the kernel probes a full socket by its own
 * clock. */
static void turn_with_time(unsigned i, uint64_t ns) {
    run_all(1);
    machine_pass(ns);
    if (i >= SWIFT_TURNS) usleep(1000);
}

/* Turns with time, until `held` or too many. */
static bool run_until(bool (*held)(void), uint64_t ns) {
    for (unsigned i = 0; i < REST_TURNS; i++) {
        if (held()) return true;
        turn_with_time(i, ns);
    }
    return held();
}

/* ---- operations */

struct op *op_new(const char *name) {
    struct op *op = calloc(1, sizeof *op);
    if (!op) abort();
    op->name = name;
    op->number = ++world->n_ops;
    op->next = world->ops;
    world->ops = op;
    return op;
}

bool op_is_over(const struct op *op) {
    return op->calls > 0 || !op->accepted;
}

static void op_end(struct op *op, weft_status_t status) {
    op->status = status;
    op->request = NULL;
    trace("%s %u ends: %s, %zu", op->name, op->number, weft_status_name(status), op->got);
    if (op->ended) op->ended(op);
    shape_end(&op->shape);
}

static void op_called(weft_status_t status, void *arg) {
    struct op *op = arg;
    if (op->posting) wrong("%s is called back within the call that posted it", op->name);
    if (!op->accepted) wrong("%s is called back though it was not accepted", op->name);
    if (op->calls++) wrong("%s is called back twice", op->name);
    if (status > 0) wrong("%s ends as %s", op->name, weft_status_name(status));
    op_end(op, status);
}

weft_op_t op_of(struct op *op) {
    return (weft_op_t){.done = op_called,
                       .arg = op,
                       .request_p = &op->request,
                       .layout = op->shape.kind >= SHAPE_STRIDED ? &op->shape.layout : NULL};
}

void op_answered(struct op *op, weft_status_t status) {
    op->posting = false;
    op->accepted = status == WEFT_IN_PROGRESS;
    if (!op->accepted) op_end(op, status);
}

/* ---- endpoints */

struct end *end_new(weft_ep_t *ep, unsigned worker) {
    if (world->n_ends == ENDS) return NULL;
    struct end *end = &world->end[world->n_ends++];
    *end = (struct end){.ep = ep, .worker = worker};
    weft_ep_set_user(ep, end);
    return end;
}

static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct end *end = weft_ep_user(ep);
    if (!end) { /* there was no place to note it */
        weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
        return;
    }
    if (end->lost) wrong("an endpoint is lost twice");
    end->lost = true;
    trace("an endpoint of worker %u is lost: %s", end->worker, weft_status_name(status));
    if (end->honest && !world->closing && !world->starved)
        wrong("an honest endpoint is lost: %s", weft_status_name(status));
}

bool honest_lost(void) {
    return world->honest[VICTIM]->lost || world->honest[PARTNER]->lost;
}

static void on_endpoint(weft_ep_t *ep, void *arg) {
    struct end *end = end_new(ep, VICTIM);
    if (!end) weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

/* ---- active messages */

static void read_all(const uint8_t *bytes, size_t len) {
    volatile uint8_t last = 0;
    for (size_t i = 0; i < len; i++) last = bytes[i];
    (void)last;
}

static void am_received(struct op *op) {
    if (op->status == WEFT_OK && !shape_holds(&op->shape, bytes_of(RAW_NAME, 0), op->shape.len))
        wrong("an active message has other bytes");
}

/* Handlers 1 to 3: the length decides what they do. */
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    read_all(am->header, am->header_len);
    struct end *end = ep ? weft_ep_user(ep) : NULL;
    if (end && end->honest) {
        world->pings++;
        if (weft_am_send(ep, 1, NULL, 0, NULL, 0, NULL) < 0 && !world->closing && !world->starved)
            wrong("no answer to the partner");
        return;
    }
    if (am->data) {
        read_all(am->data, am->len);
        if (am->len % 5 == 0 && world->n_kept < 8 &&
            weft_am_retain(am, &world->kept[world->n_kept]) == WEFT_OK)
            world->n_kept++;
        if (ep && am->len % 3 == 1) weft_am_send(ep, 2, am->header, am->header_len, NULL, 0, NULL);
    } else if (am->len <= LARGEST && am->len % 4) {
        struct op *op = op_new("am receive");
        uint64_t before = chance_of(world->seed, am->len);
        shape_draw(&op->shape, am->len, (struct shape_wants){0});
        shape_clear(&op->shape);
        chance_state = before;
        op->ended = am_received;
        weft_op_t with = op_of(op);
        POST(op, weft_am_recv(am, op->shape.iov, op->shape.n_iov, &with));
    }
}

static void on_pong(weft_ep_t *ep, weft_am_t *am, void *arg) {
    world->pongs++;
}

/* ---- the honest pair: whatever raw peers do, it must not notice */

static void honest_received(struct op *op) {
    struct message *m = op->message;
    if (op->status == WEFT_ERR_CANCELLED && op->cancelled) return;
    if (op->status != WEFT_OK && world->starved) return;
    if (op->status != WEFT_OK) wrong("an honest message ends as %s", weft_status_name(op->status));
    if (op->info.len != m->len)
        wrong("an honest message has %zu bytes, not %zu", op->info.len, m->len);
    if (!shape_holds(&op->shape, bytes_of((uint64_t)(m - world->message), 0), m->len))
        wrong("an honest message has other bytes when its receive ends");
}

static void honest_sent(struct op *op) {
    bool given_up = op->message && op->message->receive && op->message->receive->cancelled;
    if (op->status == WEFT_OK || (op->status == WEFT_ERR_CANCELLED && (op->cancelled || given_up)))
        return;
    if (!world->closing && !world->starved)
        wrong("an honest send ends as %s", weft_status_name(op->status));
}

static size_t honest_length(void) {
    if (world->scenario == LANES && percent(10)) return 600000 + below(700000);
    return percent(40) ? below(200) : percent(30) ? below(30000) : 30000 + below(150000);
}

void honest_send(void) {
    if (world->n_messages == MESSAGES) return;
    struct message *m = &world->message[world->n_messages++];
    struct op *op = m->send = op_new("honest send");
    uint64_t number = (uint64_t)(m - world->message);
    m->len = honest_length();
    op->message = m;
    op->ended = honest_sent;
    shape_draw(&op->shape, m->len, (struct shape_wants){.layouts = true});
    shape_fill(&op->shape, bytes_of(number, 0));
    weft_op_t with = op_of(op);
    trace("the partner sends message %u of %zu bytes", (unsigned)number, m->len);
    POST(op, weft_tag_send(world->honest[PARTNER]->ep, HONEST_TAG | number, op->shape.iov,
                           op->shape.n_iov, &with));
}

static void receive_message(struct message *m) {
    struct op *op = m->receive = op_new("honest receive");
    op->message = m;
    op->ended = honest_received;
    shape_draw(&op->shape, m->len, (struct shape_wants){.layouts = true});
    shape_clear(&op->shape);
    weft_op_t with = op_of(op);
    POST(op, weft_tag_recv(world->worker[VICTIM], HONEST_TAG | (uint64_t)(m - world->message),
                           UINT64_MAX, op->shape.iov, op->shape.n_iov, &op->info, &with));
}

/* Of a message that has been sent; or sends one, in the same step, for a receive that is posted
 * first. */
void honest_receive(void) {
    for (unsigned i = 0; i < world->n_messages; i++)
        if (!world->message[i].receive) {
            receive_message(&world->message[i]);
            return;
        }
}

void honest_ping(void) {
    if (weft_am_send(world->honest[PARTNER]->ep, 1, NULL, 0, NULL, 0, NULL) < 0 && !world->starved)
        wrong("the partner cannot send");
}

static void stream_received(struct op *op) {
    struct end *end = op->end;
    world->receiving = false;
    if (op->status != WEFT_OK && !world->closing && !world->starved)
        wrong("the honest stream ends as %s", weft_status_name(op->status));
    if (op->status == WEFT_OK && !world->stream_gap &&
        !shape_holds(&op->shape, bytes_of(9, end->stream_in), op->got))
        wrong("the honest stream has other bytes");
    end->stream_in += op->got;
}

/* One at a time: the next may end within its call, before the callback of the one before comes. */
static void stream_receive(struct end *end, size_t len) {
    if (world->receiving) return;
    world->receiving = true;
    struct op *op = op_new("stream receive");
    op->end = end;
    op->ended = stream_received;
    shape_draw(&op->shape, len, (struct shape_wants){.one = true});
    shape_clear(&op->shape);
    weft_op_t with = op_of(op);
    trace("stream receive %u of %zu bytes", op->number, op->shape.len);
    POST(op, weft_stream_recv(end->ep, op->shape.iov, op->shape.n_iov, &op->got, &with));
}

/* What was not appended is not waited for, and what comes behind it has other places. */
static void stream_sent(struct op *op) {
    honest_sent(op);
    if (op->status == WEFT_OK) return;
    world->honest[PARTNER]->stream_out -= op->shape.len - op->got;
    world->stream_gap = true;
}

void honest_stream(void) {
    struct end *out = world->honest[PARTNER];
    size_t len = 1 + below(3000);
    if (out->stream_out + len > LARGEST ||
        out->stream_out - world->honest[VICTIM]->stream_in > 8000)
        return;
    struct op *op = op_new("honest stream");
    op->ended = stream_sent;
    shape_draw(&op->shape, len, (struct shape_wants){0});
    shape_fill(&op->shape, bytes_of(9, out->stream_out));
    trace("the partner adds %zu bytes to its stream at %" PRIu64, len, out->stream_out);
    out->stream_out += len;
    weft_op_t with = op_of(op);
    POST(op, weft_stream_send_counted(out->ep, op->shape.iov, op->shape.n_iov, &op->got, &with));
    stream_receive(world->honest[VICTIM], 1 + below(2000));
}

/* ---- beginning */

static void quiet(weft_log_level_t level, const char *room, const char *line, void *arg) {
    trace("log: %s: %s", room, line);
}

static void on_ready(weft_ep_t *ep, void *arg) {
    *(bool *)arg = true;
}

static bool pair_is_up, pair_was_accepted;
static bool pair_stands(void) {
    pair_was_accepted = world->n_ends > 1;
    return pair_is_up && pair_was_accepted;
}

static const char *one_of(const char *a, const char *b, const char *c) {
    uint32_t which = below(3);
    return which == 0 ? a : which == 1 ? b : c;
}

static void create_context(void) {
    bool lanes = world->scenario == LANES;
    weft_setting_t settings[] = {
        {"calibration", "off"},
        {"log.level", fuzz_traces ? "info" : "none"},
        {"worker.stats_page", "off"},
        {"close.timeout", "50ms"},
        {"link.linger", "20ms"},
        {"failover.timeout", "200ms"},
        {"lanes.switch", lanes ? "on" : "off"},
        {"lanes.tick", "2ms"},
        {"lanes.backoff", "5ms"},
        {"lanes.min_hold", "5ms"},
        {"lanes.min_rate", "1k"},
        {"link.rails", lanes ? one_of("2", "4", "3") : one_of("1", "1", "2")},
        {"tcp.buffer", one_of("4k", "16k", "64k")},
        {"rendezvous.threshold", one_of("4k", "64k", "1m")},
        {"tag.unexpected_bytes", one_of("64k", "256k", "1m")},
        {"stream.window", one_of("16k", "64k", "256k")},
        {"peer.max_unexpected", "2m"},
        {"peer.max_endpoints", "32"},
        {"peer.max_links", "64"},
        {"rma.max_served", "128"},
        {"shm.staging", "256k"},
        {"shm.copy", one_of("auto", "staged", "vm")},
        {"lanes.reorder_bytes", one_of("4k", "64k", "1m")},
        {"failover.retain_bytes", one_of("16k", "256k", "1m")},
    };
    world->spin_ns = 200000000;
    weft_context_params_t params = {
        .settings = settings, .n_settings = sizeof settings / sizeof *settings, .log = quiet};
    if (weft_context_create(&params, &world->context) < 0) wrong("no context");
    if (weft__trust_key_load(world->context, false, &world->key) < 0) wrong("no key");
}

static void begin(void) {
    static const char *const transports[] = {"tcp", "shm,tcp", "tcp", "tcp", "shm,tcp"};
    bool rails = world->scenario == LANES && percent(40); /* of shm one lane is enough */
    weft_worker_params_t params = {.transports = rails ? "tcp" : transports[world->scenario],
                                   .on_endpoint = on_endpoint,
                                   .on_error = on_error};
    create_context();
    for (unsigned i = 0; i < 2; i++)
        if (weft_worker_create(world->context, &params, &world->worker[i]) < 0) wrong("no worker");
    for (unsigned id = 1; id <= 3; id++)
        weft_am_handler_set(world->worker[VICTIM], id, on_am, NULL);
    weft_am_handler_set(world->worker[PARTNER], 1, on_pong, NULL);
    weft_listen_params_t listen = {.on_endpoint = on_endpoint, .on_error = on_error};
    if (weft_listen(world->worker[VICTIM], "tcp://127.0.0.1:0", &listen, &world->listener) < 0)
        wrong("no listener");
    world->address_len = sizeof world->address;
    if (weft_worker_address(world->worker[VICTIM], world->address, &world->address_len) < 0)
        wrong("no address");

    weft_ep_t *ep;
    weft_ep_params_t ep_params = {.on_ready = on_ready, .on_error = on_error, .arg = &pair_is_up};
    if (world->scenario == SURVIVAL) ep_params.error_mode = WEFT_ERRORS_FAILOVER;
    pair_is_up = false;
    if (weft_connect_address(world->worker[PARTNER], world->address, world->address_len, &ep_params,
                             &ep) < 0)
        wrong("the pair cannot connect");
    world->honest[PARTNER] = end_new(ep, PARTNER);
    if (!run_until(pair_stands, TURN_NS)) wrong("the pair never connects");
    world->honest[VICTIM] = &world->end[1];
    world->honest[VICTIM]->honest = world->honest[PARTNER]->honest = true;
    peers_begin();
}

/* ---- the end: the honest pair comes to rest, all closes, and nothing is left */

static bool honest_at_rest(void) {
    for (unsigned i = 0; i < world->n_messages; i++) {
        struct message *m = &world->message[i];
        if (!op_is_over(m->receive) || !op_is_over(m->send)) return false;
    }
    return honest_lost() || world->honest[VICTIM]->stream_in == world->honest[PARTNER]->stream_out;
}

static void cancel_half(struct op *op) {
    if (op_is_over(op) || op->cancelled) return;
    op->cancelled = true;
    weft_request_cancel(op->request);
}

/* Half of a message whose other half has ended badly may wait for ever, and so do both when the
 * connection is lost. */
static void end_halves(struct message *m) {
    if (m->receive->cancelled || (op_is_over(m->receive) && m->receive->status < 0) ||
        honest_lost())
        cancel_half(m->send);
    if ((op_is_over(m->send) && m->send->status < 0) || honest_lost()) cancel_half(m->receive);
}

static bool honest_answered;
static void honest_is_answered(weft_status_t status, void *arg) {
    if (status != WEFT_OK && !honest_lost())
        wrong("the partner's last flush ends as %s", weft_status_name(status));
    honest_answered = true;
}
static bool has_answer(void) {
    return honest_answered;
}

static void rest(void) {
    weft__alloc_fail_at(0);
    for (unsigned i = 0; i < world->n_messages; i++)
        if (!world->message[i].receive) receive_message(&world->message[i]);
    for (unsigned i = 0; i < REST_TURNS && !honest_at_rest(); i++) {
        struct end *in = world->honest[VICTIM];
        for (unsigned k = 0; k < world->n_messages; k++) end_halves(&world->message[k]);
        if (in->stream_in < world->honest[PARTNER]->stream_out && !honest_lost())
            stream_receive(in, 4000);
        turn_with_time(i, TURN_NS);
    }
    if (!honest_at_rest()) wrong("the honest pair never comes to rest");
    if (honest_lost()) return;
    honest_answered = false;
    weft_op_t flush = {.done = honest_is_answered, .flags = WEFT_FLUSH_REMOTE};
    weft_status_t st = weft_ep_flush(world->honest[PARTNER]->ep, &flush);
    if (st < 0) wrong("the partner cannot flush: %s", weft_status_name(st));
    if (st == WEFT_IN_PROGRESS && !run_until(has_answer, TURN_NS))
        wrong("the partner's flush never ends");
}

static void worker_gone(weft_status_t status, void *arg) {
    *(weft_worker_t **)arg = NULL;
}
static bool all_gone(void) {
    return !world->worker[VICTIM] && !world->worker[PARTNER];
}

/* What is left of a worker that does not close. */
static void describe(unsigned which) {
    const weft_worker_t *w = world->worker[which];
    if (!w) return;
    trace("worker %u is %s with %u lanes", which, fsm_state_name(&w->core.fsm), w->n_lanes);
    for (struct list *l = w->links.next; l != &w->links; l = l->next) {
        const struct link *link = list_of(l, struct link, of_worker);
        trace("link %p is %s with %u lanes, %u endpoints", (const void *)link,
              fsm_state_name(&link->core.fsm), link->n_lanes, link->n_endpoints);
    }
    for (const struct weft_ep *ep = weft__ep_next(w, NULL); ep; ep = weft__ep_next(w, ep)) {
        trace("endpoint %08x is %s, %s", weft__ep_id(ep), fsm_state_name(&ep->core.fsm),
              ep->link ? "linked" : "alone");
        for (struct list *l = ep->requests.next; l != &ep->requests; l = l->next)
            trace("with a request that is %s",
                  fsm_state_name(&list_of(l, struct weft_request, of_ep)->core.fsm));
    }
}

static void end(void) {
    world->closing = true;
    if (percent(50)) peers_end();
    for (unsigned i = 0; i < world->n_kept; i++)
        weft_am_release(world->worker[VICTIM], world->kept[i]);
    for (unsigned i = 0; i < world->n_rkeys; i++) weft_rkey_release(world->rkey[i]);
    for (unsigned i = 0; i < 2; i++) {
        weft_op_t op = {.done = worker_gone, .arg = &world->worker[i]};
        if (weft_worker_close(world->worker[i], &op) != WEFT_IN_PROGRESS)
            wrong("a worker does not close");
    }
    trace("the end");
    if (!run_until(all_gone, TURN_NS)) {
        describe(VICTIM);
        describe(PARTNER);
        wrong("a worker never closes");
    }
    peers_end();
    for (struct op *op = world->ops, *next; op; op = next) {
        next = op->next;
        if (!op_is_over(op)) wrong("%s is never called back", op->name);
        free(op);
    }
    for (unsigned i = 0; i < FIELDS; i++) free(world->field[i].base);
    if (weft_context_destroy(world->context) < 0) wrong("the context stays");
}

const char *const reached_name[REACHED] = {"tag.received",     "am.received", "rendezvous",
                                           "tcp.placed_bytes", "rma.served",  "link.rails",
                                           "link.switches",    "lanes.lost",  "lanes.resumed"};

void world_run(uint64_t seed, enum scenario scenario, bool starves, const bool *keep,
               uint64_t reached[REACHED]) {
    talloc_enable_null_tracking();
    size_t blocks = talloc_total_blocks(NULL);
    world = calloc(1, sizeof *world);
    if (!world) abort();
    world->seed = seed;
    world->scenario = scenario;
    world->starves = starves;
    machine_begin(seed);
    chance_of(seed, 1u << 20);
    world->crude = percent(scenario == PLACEMENT ? 25 : 50);
    begin();
    actions_run(keep);
    chance_of(seed, 2u << 20);
    rest();
    for (unsigned i = 0; i < REACHED; i++)
        reached[i] += weft_worker_count(world->worker[VICTIM], reached_name[i]);
    end();
    if (talloc_total_blocks(NULL) != blocks) {
        talloc_report_full(NULL, stdout);
        wrong("%zu blocks of memory are left", talloc_total_blocks(NULL) - blocks);
    }
    free(world);
    world = NULL;
    talloc_disable_null_tracking();
}
