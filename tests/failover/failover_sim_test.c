/* Links that survive their lanes, over a simulated network and in virtual time: lanes that fail,
 * networks that part, peers that crash. */
#include <stdbool.h>
#include <tests/support/sim_workers.h>

#define MS UINT64_C(1000000)
enum { SECOND = 1000, MESSAGES = 400 };

/* One side's messages carry their number; some are larger than what is copied. */
struct side {
    weft_worker_t *worker;
    weft_ep_t *ep;
    uint64_t sent, came, wrong, under_way;
    int errors;
    bool ready;
    weft_status_t error;
};
struct world {
    weft_context_t *context;
    struct reactor_clock *clock;
    struct sim_fabric *fabric;
    struct side side[2];
};

static char bytes[20000];

static void on_endpoint(weft_ep_t *ep, void *arg) {
    ((struct side *)arg)->ep = ep;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct side *s = arg;
    s->errors++;
    s->error = status;
}
static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct side *)arg)->ready = true;
}
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct side *s = arg;
    uint64_t number;
    memcpy(&number, am->header, sizeof number);
    s->wrong += number != s->came++;
}
static void sent(weft_status_t status, void *arg) {
    ((struct side *)arg)->under_way--;
}

static void open_worker(struct world *w, struct side *s) {
    weft_worker_params_t params = {
        .transports = "sim", .on_endpoint = on_endpoint, .on_error = on_error, .arg = s};
    *s = (struct side){.worker = sim_worker(w->context, w->clock, &params)};
    CHECK_EQ(weft_am_handler_set(s->worker, 1, on_am, s), WEFT_OK);
}

#define UNTIL(w, ms, cond)                                          \
    do {                                                            \
        uint64_t until_end = weft__clock_now((w)->clock) + (ms)*MS; \
        while (!(cond) && weft__clock_now((w)->clock) < until_end)  \
            if (!weft__clock_turn((w)->clock)) break;               \
    } while (0)

static void begin_over(struct world *w, uint64_t seed, const struct sim_profile *profile,
                       const weft_context_params_t *context) {
    char address[256];
    size_t len = sizeof address;
    *w = (struct world){0};
    CHECK_EQ(weft_context_create(context, &w->context), WEFT_OK);
    CHECK(w->clock = weft__clock_create(NULL, seed));
    CHECK(w->fabric = weft__sim_create(w->clock, seed, profile));
    weft__sim_use(w->fabric);
    open_worker(w, &w->side[0]);
    open_worker(w, &w->side[1]);
    CHECK_EQ(weft_worker_address(w->side[0].worker, address, &len), WEFT_OK);
    len = sizeof address;
    CHECK_EQ(weft_worker_address(w->side[1].worker, address, &len), WEFT_OK);
    weft_ep_params_t params = {.on_ready = on_ready,
                               .on_error = on_error,
                               .arg = &w->side[0],
                               .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect_address(w->side[0].worker, address, len, &params, &w->side[0].ep),
             WEFT_OK);
    UNTIL(w, SECOND, w->side[1].ep && w->side[0].ready);
    CHECK(w->side[1].ep && w->side[0].ready);
}

static void begin(struct world *w, uint64_t seed) {
    begin_over(w, seed, &weft__sim_reliable, NULL);
}

static void count(weft_status_t status, void *arg) {
    ++*(int *)arg;
}
static void end(struct world *w) {
    int closed = 0;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_worker_close(w->side[i].worker, &(weft_op_t){.done = count, .arg = &closed}),
                 WEFT_IN_PROGRESS);
    UNTIL(w, 60 * SECOND, closed == 2);
    CHECK_EQ(closed, 2);
    for (int i = 0; i < 10; i++) weft__clock_turn(w->clock);
    talloc_free(w->clock);
    CHECK_EQ(weft_context_destroy(w->context), WEFT_OK);
}

static void send_one(struct side *s) {
    weft_iov_t iov = {bytes, s->sent % 5 == 4 ? sizeof bytes : s->sent % 100};
    weft_status_t st = weft_am_send(s->ep, 1, &s->sent, sizeof s->sent, &iov, 1,
                                    &(weft_op_t){.done = sent, .arg = s});
    if (st < 0) return;
    s->sent++;
    s->under_way += st == WEFT_IN_PROGRESS;
}

static bool all_came(const struct world *w) {
    return w->side[1].came == w->side[0].sent && w->side[0].came == w->side[1].sent &&
           w->side[0].under_way + w->side[1].under_way == 0;
}

static uint64_t draw(uint64_t *random) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *random >> 33;
}

/* Both ends of the lane in use break, the other one later, if it is there. */
static void fail_lane(struct world *w, uint64_t *random) {
    unsigned from = (unsigned)(draw(random) % 2);
    struct lane *lane = weft__sim_nth_lane(w->fabric, from, 1 - from, 0);
    uint64_t soon = draw(random) % (MS / 10), later = draw(random) % (MS / 10);
    if (lane) CHECK(weft__sim_fail(lane, soon, later) >= 0);
}

static uint64_t resumed;

static void storm(uint64_t seed) {
    struct world w;
    uint64_t random = seed;
    begin(&w, seed);
    while (w.side[0].sent + w.side[1].sent < MESSAGES) {
        struct side *s = &w.side[draw(&random) % 2];
        if (s->under_way < 32) send_one(s);
        if (draw(&random) % 20 == 0) fail_lane(&w, &random);
        for (uint64_t n = draw(&random) % 8; n > 0; n--) weft__clock_turn(w.clock);
    }
    UNTIL(&w, 60 * SECOND, all_came(&w));
    CHECK(all_came(&w));
    CHECK_EQ(w.side[0].wrong + w.side[1].wrong, 0);
    CHECK_EQ(w.side[0].errors + w.side[1].errors, 0);
    resumed += weft_worker_count(w.side[0].worker, "lanes.resumed");
    end(&w);
}

TEST(sim_lanes_that_fail_lose_nothing_seeds_1_to_1000) {
    resumed = 0;
    for (uint64_t seed = 1; seed <= 1000; seed++) storm(seed);
    printf("  1000 seeds of %d messages, resumed %llu times\n", MESSAGES,
           (unsigned long long)resumed);
    CHECK(resumed > 3000);
}

static void part(struct world *w) {
    struct lane *lane = weft__sim_nth_lane(w->fabric, 0, 1, 0);
    weft__sim_partition(w->fabric, 0, 1);
    if (lane) weft__sim_kill(lane);
}

/* One way stalls, of any length below the failover timeout, at any time: connections that break,
 * tries, handshakes and answers come late. */
static void stalling_storm(uint64_t seed) {
    struct world w;
    uint64_t random = seed;
    begin(&w, seed);
    while (w.side[0].sent + w.side[1].sent < MESSAGES / 4 &&
           !(w.side[0].errors + w.side[1].errors)) {
        struct side *s = &w.side[draw(&random) % 2];
        if (s->under_way < 32) send_one(s);
        if (draw(&random) % 20 == 0) {
            unsigned from = (unsigned)(draw(&random) % 2);
            weft__sim_stall(w.fabric, from, 1 - from, (1 + draw(&random) % 4000) * MS);
            fail_lane(&w, &random);
        }
        for (uint64_t n = draw(&random) % 8; n > 0; n--) weft__clock_turn(w.clock);
    }
    UNTIL(&w, 60 * SECOND, all_came(&w) || w.side[0].errors + w.side[1].errors);
    CHECK_EQ(w.side[0].errors + w.side[1].errors, 0);
    CHECK(all_came(&w));
    CHECK_EQ(w.side[0].wrong + w.side[1].wrong, 0);
    end(&w);
}

TEST(sim_ways_that_stall_lose_nothing_seeds_1_to_300) {
    for (uint64_t seed = 1; seed <= 300; seed++) stalling_storm(seed);
}

/* One way stalls for longer than a try may take, so many steps after the loss: before the dial,
 * before the handshake, before the answer. */
static void stalls_after(unsigned from, int steps) {
    struct world w;
    uint64_t random = 1;
    begin(&w, 11);
    fail_lane(&w, &random);
    UNTIL(&w, SECOND, weft_worker_count(w.side[0].worker, "lanes.lost"));
    CHECK_EQ(weft_worker_count(w.side[0].worker, "lanes.lost"), 1);
    for (int i = 0; i < steps; i++) weft__clock_turn(w.clock);
    weft__sim_stall(w.fabric, from, 1 - from, 2300 * MS);
    for (int i = 0; i < 20; i++) send_one(&w.side[i % 2]);
    UNTIL(&w, 9 * SECOND, all_came(&w) || w.side[0].errors + w.side[1].errors);
    CHECK_EQ(w.side[0].errors + w.side[1].errors, 0);
    CHECK(all_came(&w));
    end(&w);
}

TEST(sim_a_try_that_is_held_up_beyond_its_time_is_followed_by_another) {
    for (int steps = 0; steps < 60; steps++)
        for (unsigned from = 0; from < 2; from++) stalls_after(from, steps);
}

TEST(sim_a_partition_that_heals_within_the_timeout_is_survived) {
    struct world w;
    begin(&w, 7);
    for (int i = 0; i < 20; i++) send_one(&w.side[i % 2]);
    part(&w);
    for (int i = 0; i < 20; i++) send_one(&w.side[i % 2]);
    UNTIL(&w, 8 * SECOND, all_came(&w));
    CHECK(!all_came(&w));
    weft__sim_heal_all(w.fabric);
    UNTIL(&w, 60 * SECOND, all_came(&w));
    CHECK(all_came(&w));
    CHECK_EQ(w.side[0].errors + w.side[1].errors, 0);
    end(&w);
}

TEST(sim_a_partition_beyond_the_timeout_is_reported_to_both) {
    struct world w;
    begin(&w, 8);
    part(&w);
    uint64_t since = weft__clock_now(w.clock);
    for (int i = 0; i < 20; i++) send_one(&w.side[i % 2]);
    UNTIL(&w, 60 * SECOND, w.side[0].errors && w.side[1].errors);
    CHECK_EQ(w.side[0].error, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(w.side[1].error, WEFT_ERR_PEER_FAILED);
    uint64_t took = weft__clock_now(w.clock) - since;
    UNTIL(&w, SECOND, w.side[0].under_way + w.side[1].under_way == 0);
    CHECK_EQ(w.side[0].under_way + w.side[1].under_way, 0);
    CHECK(took >= 9900 * MS && took < 11000 * MS);
    end(&w);
}

TEST(sim_another_incarnation_at_the_same_place_receives_nothing_of_it) {
    struct world w;
    char address[256];
    size_t len = sizeof address;
    int closed = 0;
    begin(&w, 9);
    for (int i = 0; i < 20; i++) send_one(&w.side[0]);
    weft__sim_crash(w.fabric, 1);
    CHECK_EQ(weft_worker_close(w.side[1].worker, &(weft_op_t){.done = count, .arg = &closed}),
             WEFT_IN_PROGRESS);
    UNTIL(&w, 60 * SECOND, closed);
    CHECK_EQ(closed, 1);
    open_worker(&w, &w.side[1]);
    CHECK_EQ(weft_worker_address(w.side[1].worker, address, &len), WEFT_OK);
    UNTIL(&w, 60 * SECOND, w.side[0].errors);
    CHECK_EQ(w.side[0].errors, 1);
    CHECK_EQ(w.side[0].error, WEFT_ERR_PEER_FAILED);
    UNTIL(&w, SECOND, w.side[0].under_way == 0);
    CHECK_EQ(w.side[0].under_way, 0);
    CHECK_EQ(w.side[1].came, 0);
    CHECK(!w.side[1].ep);
    end(&w);
}

/* ---- a program's own layout */

struct packed {
    size_t at;
    bool gap;
};
static weft_status_t pack_packed(void *state, size_t offset, void *to, size_t len) {
    struct packed *p = state;
    p->gap |= offset != p->at;
    p->at = offset + len;
    memset(to, 0, len);
    return WEFT_OK;
}

/* A lane without runs refuses what it has no room for before it is packed. */
TEST(sim_a_layout_is_packed_once_however_often_the_lane_is_full) {
    enum { MANY = 1000, LEN = 500 };
    static struct packed packed[MANY];
    const weft_pack_ops_t ops = {.pack = pack_packed};
    const weft_layout_t layout = {.kind = WEFT_LAYOUT_USER, .user = &ops};
    const weft_setting_t window = {"window.bytes", "64k"};
    const weft_context_params_t narrow = {.settings = &window, .n_settings = 1};
    struct world w;
    memset(packed, 0, sizeof packed);
    begin_over(&w, 1, &weft__sim_datagram, &narrow);
    struct side *s = &w.side[0];
    for (int i = 0; i < MANY; i++, s->sent++) {
        weft_iov_t iov = {&packed[i], LEN};
        weft_status_t st = weft_am_send(s->ep, 1, &s->sent, sizeof s->sent, &iov, 1,
                                        &(weft_op_t){.done = sent, .arg = s, .layout = &layout});
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        s->under_way += st == WEFT_IN_PROGRESS;
    }
    CHECK(s->under_way > 0);
    UNTIL(&w, 60 * SECOND, all_came(&w));
    CHECK(all_came(&w));
    for (int i = 0; i < MANY; i++) CHECK(packed[i].at == LEN && !packed[i].gap);
    end(&w);
}
