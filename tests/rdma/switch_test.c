/* Links begin on rdma's datagrams, and those that carry much get a queue pair, as long as there
 * are some. */
#include "bed.h"

#include <endpoints/lanes/negotiate_local.h>

enum { PEERS = 3 };

struct peer {
    weft_worker_t *worker;
    weft_ep_t *ep;
    int ready, errors;
    uint64_t sent, seen, wrong;
    unsigned burst;
};
static struct peer peer[PEERS];
static weft_worker_t *hub;
static weft_context_t *context;
static unsigned over;

static void receives(weft_ep_t *ep, weft_am_t *am, void *arg) {
    uint64_t words[2];
    memcpy(words, am->header, sizeof words);
    peer[words[0]].wrong += words[1] != peer[words[0]].seen;
    peer[words[0]].seen++;
}
static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct peer *)arg)->ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct peer *)arg)->errors++;
}

static void turn(void) {
    static char bytes[2000];
    for (int i = 0; i < PEERS; i++) {
        struct peer *p = &peer[i];
        if (!p->worker) continue;
        for (unsigned n = 0; n < p->burst && p->sent - p->seen < 500; n++) {
            uint64_t words[2] = {(uint64_t)i, p->sent};
            weft_iov_t iov = {bytes, sizeof bytes};
            if (weft_am_send(p->ep, 1, words, sizeof words, &iov, 1, NULL) < 0) break;
            p->sent++;
        }
        weft_worker_progress(p->worker, 0);
    }
    if (hub) weft_worker_progress(hub, 0); /* may be its last turn */
    for (uint32_t i = 0; hub && hub->lanes && i < hub->n_ifaces; i++)
        over += hub->lanes->held[i] > hub->lanes->capacity[i];
}
#define UNTIL_THAT(cond)                                  \
    do {                                                  \
        double until_end = test_now() + test_timeout(10); \
        while (!(cond) && test_now() < until_end) turn(); \
        CHECK(cond);                                      \
    } while (0)

static const char *lane_of(const struct peer *p) {
    return ((struct weft_ep *)p->ep)->link->lane->iface->transport->name;
}

static uint32_t room_on(const char *transport) {
    for (uint32_t i = 0; i < hub->n_ifaces; i++)
        if (strcmp(hub->iface[i]->transport->name, transport) == 0) return hub->lanes->capacity[i];
    return 0;
}

static void begin(const char *queue_pairs) {
    char address[256];
    size_t len = sizeof address;
    const weft_setting_t settings[] = {
        {"lanes.switch", "on"},     {"lanes.tick", "5ms"},
        {"lanes.backoff", "10ms"},  {"lanes.min_rate", "64k"},
        {"lanes.min_hold", "20ms"}, {"lanes.backoff_max", "100ms"},
        {"lanes.switches", "1000"}, {"rdma.queue_pairs", queue_pairs},
        {"rdma.insecure", "yes"}};
    memset(peer, 0, sizeof peer);
    over = 0;
    CHECK_EQ(weft_context_create(
                 &(weft_context_params_t){.settings = settings,
                                          .n_settings = sizeof settings / sizeof settings[0]},
                 &context),
             0);
    weft_worker_params_t params = {.transports = "rdma_ud,rdma_rc"};
    CHECK_EQ(weft_worker_create(context, &params, &hub), 0);
    CHECK_EQ(weft_am_handler_set(hub, 1, receives, NULL), 0);
    CHECK_EQ(weft_worker_address(hub, address, &len), 0);
    for (int i = 0; i < PEERS; i++) {
        struct peer *p = &peer[i];
        CHECK_EQ(weft_worker_create(context, &params, &p->worker), 0);
        weft_ep_params_t dial = {.on_ready = on_ready, .on_error = on_error, .arg = p};
        CHECK_EQ(weft_connect_address(p->worker, address, len, &dial, &p->ep), 0);
        UNTIL_THAT(p->ready);
        CHECK(strcmp(lane_of(p), "rdma_ud") == 0);
    }
}

static void closed(weft_status_t status, void *arg) {
    *(weft_worker_t **)arg = NULL;
}
static void end(void) {
    for (int i = 0; i < PEERS; i++) {
        struct peer *p = &peer[i];
        p->burst = 0;
        UNTIL_THAT(p->seen == p->sent);
        CHECK(p->wrong == 0 && p->errors == 0);
    }
    for (int i = 0; i < PEERS; i++)
        CHECK(weft_worker_close(peer[i].worker,
                                &(weft_op_t){.done = closed, .arg = &peer[i].worker}) >= 0);
    CHECK(weft_worker_close(hub, &(weft_op_t){.done = closed, .arg = &hub}) >= 0);
    UNTIL_THAT(!hub && !peer[0].worker && !peer[1].worker && !peer[2].worker);
    CHECK_EQ(over, 0);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(a_link_of_datagrams_that_carries_much_gets_a_queue_pair_and_gives_it_back) {
    WANTS_THE_BED();
    begin("8");
    peer[0].burst = 4;
    UNTIL_THAT(strcmp(lane_of(&peer[0]), "rdma_rc") == 0);
    uint64_t before = peer[0].seen;
    UNTIL_THAT(peer[0].seen > before + 300);
    CHECK_EQ(hub->lanes->held_in_all, 1);
    CHECK(strcmp(lane_of(&peer[1]), "rdma_ud") == 0);
    peer[0].burst = 0;
    UNTIL_THAT(strcmp(lane_of(&peer[0]), "rdma_ud") == 0 && hub->lanes->held_in_all == 0);
    end();
}

TEST(as_many_links_get_queue_pairs_as_there_are) {
    WANTS_THE_BED();
    begin("2");
    CHECK(hub->lanes->capacity_in_all == 2 && room_on("rdma_rc") == 2 && room_on("rdma_ud") > 2);
    for (int i = 0; i < PEERS; i++) peer[i].burst = 2;
    UNTIL_THAT(hub->lanes->held_in_all == 2);
    uint64_t before[PEERS];
    for (int i = 0; i < PEERS; i++) before[i] = peer[i].seen;
    UNTIL_THAT(peer[0].seen > before[0] + 200 && peer[1].seen > before[1] + 200 &&
               peer[2].seen > before[2] + 200);
    CHECK(hub->lanes->held_in_all <= 2);
    end();
}
