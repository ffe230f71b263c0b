/* A thousand endpoints of one process over datagrams, to one peer and to several; and two
 * workers that share a device. */
#include "bed.h"

enum { ENDPOINTS = 1000, MOST_PEERS = 8 };

struct many {
    struct two t; /* a is the host's; b is the first peer's */
    weft_context_t *context;
    weft_worker_t *peer[MOST_PEERS];
    weft_ep_t *ep[ENDPOINTS];
    int n_peers, received[ENDPOINTS], answered[ENDPOINTS], total, closed;
};

static void many_turn(struct many *m) {
    weft_worker_progress(m->t.a, 0);
    for (int i = 0; i < m->n_peers; i++) weft_worker_progress(m->peer[i], 0);
}
#define MANY_UNTIL(m, cond)                                      \
    do {                                                         \
        double many_end = test_now() + test_timeout(10);         \
        while (!(cond) && test_now() < many_end) many_turn((m)); \
        CHECK(cond);                                             \
    } while (0)

static void on_sent(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct many *m = arg;
    int i;
    memcpy(&i, am->header, sizeof i);
    m->received[i]++;
    weft_am_send(ep, 2, &i, sizeof i, NULL, 0, NULL);
}
/* On the endpoint that asked, and on no other. */
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct many *m = arg;
    int i;
    memcpy(&i, am->header, sizeof i);
    m->answered[i] += ep == m->ep[i];
    m->total++;
}
static void on_closed(weft_status_t status, void *arg) {
    ((struct many *)arg)->closed += status == WEFT_OK;
}

static void send_on_all(struct many *m, int round) {
    for (int i = 0; i < ENDPOINTS; i++) {
        CHECK(weft_am_send(m->ep[i], 1, &i, sizeof i, NULL, 0, NULL) >= 0);
        if (i % 16 == 0) many_turn(m);
    }
    MANY_UNTIL(m, m->total == ENDPOINTS * round);
    for (int i = 0; i < ENDPOINTS; i++) CHECK(m->received[i] == round && m->answered[i] == round);
}

static void thousand(int n_peers) {
    static struct many m;
    WANTS_THE_BED();
    memset(&m, 0, sizeof m);
    m.n_peers = n_peers;
    m.t.a = bed_worker(&m.t, &m.t.context, "rdma_ud", "rxe0", (weft_setting_t){0});
    CHECK_EQ(weft_am_handler_set(m.t.a, 2, on_answer, &m), 0);
    char address[MOST_PEERS][256];
    size_t len[MOST_PEERS];
    weft_setting_t settings[] = {{"rdma.device", "rxe1"}};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1},
                                 &m.context),
             0);
    for (int i = 0; i < n_peers; i++) {
        weft_worker_params_t params = {
            .transports = "rdma_ud", .on_endpoint = two_on_endpoint, .arg = &m.t};
        CHECK_EQ(weft_worker_create(m.context, &params, &m.peer[i]), 0);
        CHECK_EQ(weft_am_handler_set(m.peer[i], 1, on_sent, &m), 0);
        len[i] = sizeof address[i];
        CHECK_EQ(weft_worker_address(m.peer[i], address[i], &len[i]), 0);
    }
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &m.t};
    for (int i = 0; i < ENDPOINTS; i++)
        CHECK_EQ(
            weft_connect_address(m.t.a, address[i % n_peers], len[i % n_peers], &params, &m.ep[i]),
            0);
    double begin = test_now();
    MANY_UNTIL(&m, m.t.ready == ENDPOINTS);
    CHECK_EQ(m.t.endpoints, ENDPOINTS);
    for (int round = 1; round <= 3; round++) send_on_all(&m, round);
    printf("  %d endpoints to %d peers: ready and 3 rounds in %.1f s\n", ENDPOINTS, n_peers,
           test_now() - begin);
    for (int i = 0; i < ENDPOINTS; i++)
        CHECK(weft_ep_close(m.ep[i], WEFT_CLOSE_FLUSH,
                            &(weft_op_t){.done = on_closed, .arg = &m}) >= 0);
    MANY_UNTIL(&m, m.closed == ENDPOINTS);
    CHECK_EQ(m.t.errors, 0);
    weft_worker_destroy(m.t.a);
    for (int i = 0; i < n_peers; i++) weft_worker_destroy(m.peer[i]);
    CHECK_EQ(weft_context_destroy(m.context), 0);
    CHECK_EQ(weft_context_destroy(m.t.context), 0);
}
TEST(rdma_ud_a_thousand_endpoints_to_one_peer) {
    thousand(1);
}
TEST(rdma_ud_a_thousand_endpoints_to_eight_peers) {
    thousand(MOST_PEERS);
}

/* Both speak at once over one device, in either direction, and nothing is mixed up or lost. */
static int arrived[2];
static void on_small(weft_ep_t *ep, weft_am_t *am, void *arg) {
    int *n = arg;
    if (am->len == 900 && is_pattern(am->data, am->len, (unsigned)(n - arrived))) ++*n;
}
static void share_a_device(const char *transport) {
    enum { MESSAGES = 200 };
    struct bed b;
    char out[2][900];
    bed_up(&b, transport, "rxe0", (weft_setting_t){0});
    CHECK_EQ(weft_am_handler_set(b.t.b, 1, on_small, &arrived[0]), 0);
    CHECK_EQ(weft_am_handler_set(b.t.a, 1, on_small, &arrived[1]), 0);
    arrived[0] = arrived[1] = 0;
    for (int end = 0; end < 2; end++) pattern(out[end], sizeof out[end], (unsigned)end);
    for (int i = 0; i < 2 * MESSAGES; i++) {
        weft_iov_t iov = {out[i % 2], sizeof out[0]};
        CHECK(weft_am_send(i % 2 ? b.t.back : b.t.ep, 1, NULL, 0, &iov, 1, NULL) >= 0);
        two_turn(&b.t);
    }
    UNTIL(&b.t, arrived[0] == MESSAGES && arrived[1] == MESSAGES);
    bed_down(&b);
}
TEST(rdma_rc_two_workers_share_a_device) {
    share_a_device("rdma_rc");
}
TEST(rdma_ud_two_workers_share_a_device) {
    share_a_device("rdma_ud");
}
