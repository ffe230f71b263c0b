/* Over two simulated networks: an endpoint that cannot connect by the first one takes the other,
 * within the deadline of its connect. */
#include <stdbool.h>
#include <stdio.h>
#include <tests/support/sim_workers.h>

enum { PEERS = 2 };

struct world {
    weft_context_t *context;
    struct reactor_clock *clock;
    struct sim_fabric *first, *other; /* of "sim" and "simfast", which cost the same */
    weft_worker_t *worker[PEERS];
    weft_ep_t *ep;
    int ready, errors;
    weft_status_t error;
    char text[1024];
    uint64_t ended_at;
};

static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct world *)arg)->ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct world *w = arg;
    w->errors++;
    w->error = status;
    w->ended_at = weft__clock_now(w->clock);
    weft_status_describe(status, w->text, sizeof w->text);
}

static void begin(struct world *w) {
    memset(w, 0, sizeof *w);
    weft_setting_t quiet = {"log.level", "none"};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = &quiet, .n_settings = 1},
                                 &w->context),
             WEFT_OK);
    CHECK(w->clock = weft__clock_create(NULL, 1));
    CHECK(w->first = weft__sim_create(w->clock, 1, &weft__sim_reliable));
    CHECK(w->other = weft__sim_create(w->clock, 2, &weft__sim_reliable));
    weft__sim_use(w->first);
    weft__sim_use_fast(w->other);
    weft_worker_params_t params = {.transports = "sim,simfast"};
    for (int i = 0; i < PEERS; i++) w->worker[i] = sim_worker(w->context, w->clock, &params);
}

static void dial(struct world *w, uint32_t timeout_ms) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(w->worker[1], address, &len), WEFT_OK);
    weft_ep_params_t params = {
        .on_ready = on_ready, .on_error = on_error, .arg = w, .connect_timeout_ms = timeout_ms};
    CHECK_EQ(weft_connect_address(w->worker[0], address, len, &params, &w->ep), WEFT_OK);
}

static void until_over(struct world *w) {
    while (!w->ready && !w->errors && weft__clock_turn(w->clock)) continue;
}

static void end(struct world *w) {
    sim_end(w->context, w->clock, w->worker, PEERS);
}

static const char *connected_by(struct world *w) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(w->ep, &info), WEFT_OK);
    return info.connected_by;
}

TEST(the_first_network_connects) {
    struct world w;
    begin(&w);
    dial(&w, 0);
    until_over(&w);
    CHECK_EQ(w.ready, 1);
    CHECK(strcmp(connected_by(&w), "sim") == 0);
    end(&w);
}

TEST(the_other_network_connects_where_the_first_one_is_cut) {
    struct world w;
    begin(&w);
    weft__sim_partition(w.first, 0, 1);
    dial(&w, 0);
    until_over(&w);
    CHECK_EQ(w.ready, 1);
    CHECK_EQ(w.errors, 0);
    CHECK(strcmp(connected_by(&w), "simfast") == 0);
    end(&w);
}

TEST(the_error_names_both_networks_where_both_are_cut) {
    struct world w;
    begin(&w);
    weft__sim_partition(w.first, 0, 1);
    weft__sim_partition(w.other, 0, 1);
    dial(&w, 0);
    until_over(&w);
    CHECK_EQ(w.errors, 1);
    const char *first = strstr(w.text, "(sim)"), *other = strstr(w.text, "(simfast)");
    CHECK(first && other && first < other);
    end(&w);
}

/* A lane of either network tries for a second. The second network has half a second left. */
TEST(all_transports_share_one_deadline) {
    struct world w;
    begin(&w);
    weft__sim_partition(w.first, 0, 1);
    weft__sim_partition(w.other, 0, 1);
    uint64_t begun = weft__clock_now(w.clock);
    dial(&w, 1500);
    until_over(&w);
    CHECK_EQ(w.error, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(w.ended_at - begun, 1500 * NS_PER_MS);
    CHECK(strstr(w.text, "(sim)") && strstr(w.text, "connect.timeout"));
    end(&w);
}
