/* Rails in virtual time: whatever order their pieces come in, the bytes are right, and a run is
 * a function of its seed. */
#include <endpoints/core/endpoint.h>
#include <endpoints/core/worker.h>
#include <endpoints/transfer/rails.h>
#include <stdlib.h>
#include <string.h>
#include <tests/support/sim_workers.h>

enum { LARGE = 900000, MESSAGES = 6 };

struct world {
    weft_context_t *context;
    struct reactor_clock *clock;
    struct sim_fabric *fabric;
    weft_worker_t *worker[2];
    weft_ep_t *ep;
    int ready, errors, sent, received, closed;
    weft_status_t sent_status, received_status;
    char *out, *in;
};

static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct world *)arg)->ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct world *)arg)->errors++;
}
static void on_sent(weft_status_t status, void *arg) {
    struct world *w = arg;
    w->sent++;
    w->sent_status = status;
}
static void on_received(weft_status_t status, void *arg) {
    struct world *w = arg;
    w->received++;
    w->received_status = status;
}
static void on_closed(weft_status_t status, void *arg) {
    ((struct world *)arg)->closed++;
}

static void turns(struct world *w, const int *until, int value) {
    for (int i = 0; i < 1000000 && *until < value; i++) weft__clock_turn(w->clock);
    CHECK(*until >= value);
}

static void begin(struct world *w, uint64_t seed) {
    char address[256];
    size_t len = sizeof address;
    struct sim_profile profile = weft__sim_reliable;
    const weft_setting_t settings[] = {{"link.rails", "3"}};
    profile.jitter_ns = 5000;
    profile.delay = 100000; /* of a million */
    profile.delay_ns = 50000;
    profile.exhaustion = 50000;
    profile.exhaustion_ns = 3000;
    *w = (struct world){.out = malloc(LARGE), .in = malloc(LARGE)};
    for (size_t i = 0; i < LARGE; i++) w->out[i] = (char)(i * 11 + (i >> 9));
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1},
                                 &w->context),
             0);
    CHECK(w->clock = weft__clock_create(NULL, seed));
    CHECK(w->fabric = weft__sim_create(w->clock, seed, &profile));
    weft__sim_use(w->fabric);
    weft_worker_params_t params = {.transports = "sim", .on_error = on_error, .arg = w};
    for (int i = 0; i < 2; i++) w->worker[i] = sim_worker(w->context, w->clock, &params);
    CHECK_EQ(weft_worker_address(w->worker[1], address, &len), 0);
    weft_ep_params_t ep_params = {.on_ready = on_ready, .on_error = on_error, .arg = w};
    CHECK_EQ(weft_connect_address(w->worker[0], address, len, &ep_params, &w->ep), 0);
    turns(w, &w->ready, 1);
}

static void end(struct world *w) {
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_worker_close(w->worker[i], &(weft_op_t){.done = on_closed, .arg = w}),
                 WEFT_IN_PROGRESS);
    turns(w, &w->closed, 2);
    for (int i = 0; i < 10; i++) weft__clock_turn(w->clock);
    talloc_free(w->clock);
    CHECK_EQ(weft_context_destroy(w->context), 0);
    free(w->out);
    free(w->in);
}

static void post(struct world *w) {
    memset(w->in, 0, LARGE);
    w->sent = w->received = 0;
    CHECK_EQ(weft_tag_recv(w->worker[1], 1, UINT64_MAX, &(weft_iov_t){w->in, LARGE}, 1, NULL,
                           &(weft_op_t){.done = on_received, .arg = w}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(w->ep, 1, &(weft_iov_t){w->out, LARGE}, 1,
                           &(weft_op_t){.done = on_sent, .arg = w}),
             WEFT_IN_PROGRESS);
}

static void transfer(struct world *w) {
    post(w);
    turns(w, &w->received, 1);
    turns(w, &w->sent, 1);
    CHECK(w->received_status == WEFT_OK && w->sent_status == WEFT_OK);
    CHECK(memcmp(w->in, w->out, LARGE) == 0);
}

static unsigned rails_of(weft_worker_t *worker, struct link **one_p) {
    unsigned n = 0;
    for (struct list *l = worker->links.next; l != &worker->links; l = l->next) {
        struct link *link = list_of(l, struct link, of_worker);
        if (!link->more->main || link->core.fsm.state != LINK_UP) continue;
        if (one_p) *one_p = link;
        n++;
    }
    return n;
}

/* The first large message asks for them. */
static void raise(struct world *w) {
    transfer(w);
    for (int i = 0;
         i < 100000 && (rails_of(w->worker[0], NULL) < 2 || rails_of(w->worker[1], NULL) < 2); i++)
        weft__clock_turn(w->clock);
    CHECK_EQ(rails_of(w->worker[0], NULL), 2);
}

struct outcome {
    uint64_t now, bytes, hash;
};

static struct outcome run(uint64_t seed) {
    struct world w;
    begin(&w, seed);
    raise(&w);
    for (int i = 1; i < MESSAGES; i++) transfer(&w);
    struct outcome o = {weft_worker_now(w.worker[0]),
                        weft_worker_count(w.worker[0], "rail.bytes_out"),
                        weft__sim_trace_hash(w.fabric)};
    CHECK_EQ(weft_worker_count(w.worker[0], "link.rails"), 2);
    CHECK(o.bytes > LARGE / 2 && o.bytes < (uint64_t)LARGE * MESSAGES);
    CHECK_EQ(w.errors, 0);
    end(&w);
    return o;
}

TEST(bytes_are_right_in_any_order_and_runs_replay) {
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct outcome a = run(seed), b = run(seed);
        CHECK(a.now == b.now && a.bytes == b.bytes && a.hash == b.hash);
    }
}

TEST(a_rail_that_breaks_at_any_moment_leaves_no_request_behind) {
    for (int after = 0; after < 60; after += 3) {
        struct world w;
        begin(&w, 100 + (uint64_t)after);
        struct link *rail = NULL;
        raise(&w);
        post(&w);
        for (int i = 0; i < after; i++) weft__clock_turn(w.clock);
        if (rails_of(w.worker[after % 2], &rail)) weft__sim_kill(rail->lane);
        turns(&w, &w.received, 1);
        turns(&w, &w.sent, 1);
        for (int i = 0; i < 200; i++) weft__clock_turn(w.clock);
        CHECK(w.received == 1 && w.sent == 1);
        CHECK(w.received_status < 0 || memcmp(w.in, w.out, LARGE) == 0);
        end(&w);
    }
}
