/* Over a network that loses datagrams: when a peer is lost, the endpoint and each operation in
 * progress name the cause. */
#include <stdbool.h>
#include <tests/support/sim_workers.h>

enum { PEERS = 2, ID = 3, LARGE = 1 << 20 };

struct ended {
    int calls;
    weft_status_t status;
    char text[1024];
};

struct world {
    weft_context_t *context;
    struct reactor_clock *clock;
    struct sim_fabric *fabric;
    weft_worker_t *worker[PEERS];
    weft_ep_t *ep;
    struct ended ep_lost, message;
};

static void note(struct ended *e, weft_status_t status) {
    e->calls++;
    e->status = status;
    weft_status_describe(status, e->text, sizeof e->text);
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    note(&((struct world *)arg)->ep_lost, status);
}
static void on_done(weft_status_t status, void *ended) {
    note(ended, status);
}
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

static void begin(struct world *w, int *arrived) {
    memset(w, 0, sizeof *w);
    weft_setting_t settings[] = {{"log.level", "none"}, {"window.give_up", "3s"}};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                                 &w->context),
             WEFT_OK);
    CHECK(w->clock = weft__clock_create(NULL, 1));
    CHECK(w->fabric = weft__sim_create(w->clock, 1, &weft__sim_datagram));
    weft__sim_use(w->fabric);
    for (int i = 0; i < PEERS; i++)
        w->worker[i] =
            sim_worker(w->context, w->clock, &(weft_worker_params_t){.transports = "sim"});
    CHECK_EQ(weft_am_handler_set(w->worker[1], ID, on_message, arrived), WEFT_OK);
}

static void dial(struct world *w) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_params_t params = {.on_error = on_error, .arg = w};
    CHECK_EQ(weft_worker_address(w->worker[1], address, &len), WEFT_OK);
    CHECK_EQ(weft_connect_address(w->worker[0], address, len, &params, &w->ep), WEFT_OK);
}

#define TURN_UNTIL(w, cond) \
    while (!(cond) && weft__clock_turn((w)->clock)) continue

static void post(struct world *w, const void *bytes, size_t len, struct ended *ended) {
    weft_op_t op = {.done = on_done, .arg = ended};
    CHECK_EQ(weft_am_send(w->ep, ID, NULL, 0, &(weft_iov_t){(void *)bytes, len}, 1, &op),
             WEFT_IN_PROGRESS);
}

TEST(a_peer_that_acknowledges_no_more_is_named_so) {
    static char bytes[LARGE];
    struct world w;
    int arrived = 0;
    begin(&w, &arrived);
    dial(&w);
    CHECK(weft_am_send(w.ep, ID, NULL, 0, &(weft_iov_t){bytes, 8}, 1, NULL) >= 0);
    TURN_UNTIL(&w, arrived);
    weft__sim_partition(w.fabric, 0, 1);
    post(&w, bytes, LARGE, &w.message);
    TURN_UNTIL(&w, w.ep_lost.calls && w.message.calls);
    CHECK_EQ(w.ep_lost.status, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(w.message.status, WEFT_ERR_PEER_FAILED);
    const char *why = "it acknowledged nothing for 3 s (window.give_up)";
    CHECK(strstr(w.ep_lost.text, why));
    CHECK(strstr(w.message.text, why));
    sim_end(w.context, w.clock, w.worker, PEERS);
}

TEST(a_peer_that_answers_no_dial_is_named_so) {
    struct world w;
    int arrived = 0;
    begin(&w, &arrived);
    weft__sim_partition(w.fabric, 0, 1);
    dial(&w);
    TURN_UNTIL(&w, w.ep_lost.calls);
    CHECK_EQ(w.ep_lost.status, WEFT_ERR_PEER_FAILED);
    CHECK(strstr(w.ep_lost.text, "it answered nothing for 3 s (window.give_up)"));
    sim_end(w.context, w.clock, w.worker, PEERS);
}
