/* Workers over a simulated network, in virtual time: what the public API promises holds over
 * lanes that lose. */
#include <stdbool.h>
#include <tests/support/sim_workers.h>

enum { PEERS = 2 };

struct world {
    weft_context_t *context;
    struct reactor_clock *clock;
    struct sim_fabric *fabric;
    weft_worker_t *worker[PEERS];
    weft_ep_t *ep, *back;
    int ready, errors, back_errors;
    weft_status_t error;
    uint64_t seen, wrong, done;
};

static void on_endpoint(weft_ep_t *ep, void *arg) {
    ((struct world *)arg)->back = ep;
}
static void on_back_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct world *)arg)->back_errors++;
}
static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct world *)arg)->ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct world *w = arg;
    w->errors++;
    w->error = status;
}

static void begin(struct world *w, const struct sim_profile *profile, uint64_t seed) {
    memset(w, 0, sizeof *w);
    CHECK_EQ(weft_context_create(NULL, &w->context), WEFT_OK);
    CHECK(w->clock = weft__clock_create(NULL, seed));
    CHECK(w->fabric = weft__sim_create(w->clock, seed, profile));
    weft__sim_use(w->fabric);
    weft_worker_params_t params = {
        .transports = "sim", .on_endpoint = on_endpoint, .on_error = on_back_error, .arg = w};
    for (int i = 0; i < PEERS; i++) w->worker[i] = sim_worker(w->context, w->clock, &params);
}

static void dial(struct world *w) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(w->worker[1], address, &len), WEFT_OK);
    weft_ep_params_t params = {.on_ready = on_ready, .on_error = on_error, .arg = w};
    CHECK_EQ(weft_connect_address(w->worker[0], address, len, &params, &w->ep), WEFT_OK);
}

static void end(struct world *w) {
    sim_end(w->context, w->clock, w->worker, PEERS);
}

#define UNTIL(w, cond)                                                            \
    do {                                                                          \
        uint64_t until_end = weft__clock_now((w)->clock) + UINT64_C(60000000000); \
        while (!(cond) && weft__clock_now((w)->clock) < until_end)                \
            if (!weft__clock_turn((w)->clock)) break;                             \
        CHECK(cond);                                                              \
    } while (0)

static struct sim_profile stormy(void) {
    struct sim_profile is = weft__sim_datagram;
    is.loss = 200000;
    is.duplicate = is.reorder = 100000;
    is.reorder_ns = 20000;
    return is;
}

/* ---- messages of every size, beyond the rendezvous threshold as well ------------------------- */

enum { LARGEST = 300000 };
static uint8_t pattern[LARGEST + 256];

static size_t size_of(uint64_t n) {
    static const size_t size[] = {0, 8, 100, 2000, 9000, 70000, LARGEST};
    return size[n * 2654435761u % 4294967291u % 7];
}

static void received(weft_status_t status, void *arg) {
    struct world *w = arg;
    w->wrong += status != WEFT_OK;
    w->seen++;
}

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct world *w = arg;
    static uint8_t into[LARGEST];
    uint64_t n;
    if (am->header_len != sizeof n) {
        w->wrong++;
        return;
    }
    memcpy(&n, am->header, sizeof n);
    if (am->len != size_of(n)) w->wrong++;
    if (am->data || !am->len) {
        if (am->len && memcmp(am->data, pattern + n % 256, am->len) != 0) w->wrong++;
        w->seen++;
        return;
    }
    weft_status_t st =
        weft_am_recv(am, &(weft_iov_t){into, am->len}, 1, &(weft_op_t){.done = received, .arg = w});
    if (st == WEFT_OK) received(st, w);
    if (st < 0) w->wrong++;
}

static void sent(weft_status_t status, void *arg) {
    struct world *w = arg;
    w->wrong += status != WEFT_OK;
    w->done++;
}

static void exchange(const struct sim_profile *profile, uint64_t seed, uint64_t messages) {
    struct world w;
    for (size_t i = 0; i < sizeof pattern; i++) pattern[i] = (uint8_t)(i * 37 + i / 251);
    begin(&w, profile, seed);
    CHECK_EQ(weft_am_handler_set(w.worker[1], 7, on_am, &w), WEFT_OK);
    dial(&w);
    for (uint64_t n = 0; n < messages; n++) {
        weft_iov_t iov = {pattern + n % 256, size_of(n)};
        weft_status_t st =
            weft_am_send(w.ep, 7, &n, sizeof n, &iov, 1, &(weft_op_t){.done = sent, .arg = &w});
        CHECK(st >= 0);
        w.done += st == WEFT_OK;
    }
    UNTIL(&w, w.seen == messages && w.done == messages);
    CHECK_EQ(w.wrong, 0);
    CHECK_EQ(w.ready, 1);
    CHECK_EQ(w.errors + w.back_errors, 0);
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(w.ep, &info), WEFT_OK);
    CHECK_EQ(strcmp(info.transport, "sim"), 0);
    if (profile->loss) CHECK(weft_worker_count(w.worker[0], "window.resent") > 10);
    end(&w);
}

TEST(messages_arrive_over_a_reliable_network) {
    exchange(&weft__sim_reliable, 1, 200);
}
TEST(messages_arrive_over_datagrams) {
    exchange(&weft__sim_datagram, 2, 200);
}
TEST(messages_arrive_over_20_percent_loss_seed_3) {
    struct sim_profile is = stormy();
    exchange(&is, 3, 200);
}
TEST(messages_arrive_over_20_percent_loss_seed_4) {
    struct sim_profile is = stormy();
    exchange(&is, 4, 200);
}

/* ---- streams */

enum { STREAM_TOTAL = 400000 };

static void take_stream(weft_ep_t *ep, void *arg) {
    struct world *w = arg;
    const void *data;
    size_t len;
    while (weft_stream_take(ep, &data, &len) == WEFT_OK) {
        for (size_t i = 0; i < len; i++, w->seen++)
            w->wrong += ((const uint8_t *)data)[i] != pattern[w->seen % LARGEST];
        weft_stream_release(weft_ep_worker(ep), data);
    }
}

static void stream(const struct sim_profile *profile, uint64_t seed) {
    struct world w;
    uint64_t at = 0, posted = 0;
    for (size_t i = 0; i < sizeof pattern; i++) pattern[i] = (uint8_t)(i * 37 + i / 251);
    begin(&w, profile, seed);
    dial(&w);
    UNTIL(&w, w.ready == 1 && w.back);
    CHECK_EQ(weft_stream_on_data(w.back, take_stream, &w), WEFT_OK);
    for (uint64_t n = 0; at < STREAM_TOTAL; n++, posted++) {
        size_t from = at % LARGEST, len = size_of(n) + 1;
        if (len > LARGEST - from) len = LARGEST - from;
        if (len > STREAM_TOTAL - at) len = STREAM_TOTAL - at;
        weft_status_t st = weft_stream_send(w.ep, &(weft_iov_t){pattern + from, len}, 1,
                                            &(weft_op_t){.done = sent, .arg = &w});
        CHECK(st >= 0);
        w.done += st == WEFT_OK;
        at += len;
    }
    UNTIL(&w, w.seen == STREAM_TOTAL && w.done == posted);
    CHECK_EQ(w.wrong + w.errors + w.back_errors, 0);
    end(&w);
}

TEST(streams_arrive_over_a_reliable_network) {
    stream(&weft__sim_reliable, 1);
}
TEST(streams_arrive_over_20_percent_loss_seed_8) {
    struct sim_profile is = stormy();
    stream(&is, 8);
}
TEST(streams_arrive_over_20_percent_loss_seed_9) {
    struct sim_profile is = stormy();
    stream(&is, 9);
}

TEST(a_dead_peer_fails_the_endpoint_over_datagrams) {
    struct world w;
    begin(&w, &weft__sim_datagram, 5);
    dial(&w);
    UNTIL(&w, w.ready == 1);
    weft__sim_crash(w.fabric, 1);
    CHECK(weft_am_send(w.ep, 7, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&w, w.errors == 1);
    CHECK_EQ(w.error, WEFT_ERR_PEER_FAILED);
    end(&w);
}

TEST(a_run_is_a_function_of_its_seed) {
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        struct world w;
        struct sim_profile is = stormy();
        begin(&w, &is, i == 2 ? 7 : 6);
        CHECK_EQ(weft_am_handler_set(w.worker[1], 7, on_am, &w), WEFT_OK);
        dial(&w);
        for (uint64_t n = 0; n < 50; n++)
            CHECK(weft_am_send(w.ep, 7, &n, sizeof n, &(weft_iov_t){pattern, 0}, 0, NULL) >= 0);
        weft__clock_run(w.clock, NULL, NULL, 1000000000);
        hash[i] = weft__sim_trace_hash(w.fabric);
        end(&w);
    }
    CHECK(hash[0] == hash[1]);
    CHECK(hash[0] != hash[2]);
}
