/* Queue pairs that run out. */
#include "bed.h"

enum { PEERS = 3 };

struct accepted {
    struct two t; /* its a is the host's */
    weft_context_t *context;
    int arrived;
};
static void on_arrived(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ((struct accepted *)arg)->arrived++;
}

/* The one too many gets the error; the others are not disturbed. */
TEST(rdma_rc_the_queue_pair_too_many_is_refused) {
    weft_setting_t two_only = {"rdma.queue_pairs", "2"};
    WANTS_THE_BED();
    struct two host = {0};
    struct accepted accepted[PEERS];
    char address[256];
    size_t len;
    memset(accepted, 0, sizeof accepted);
    host.a = bed_worker(&host, &host.context, "rdma_rc", "rxe0", two_only);
    for (int i = 0; i < PEERS; i++) {
        struct accepted *g = &accepted[i];
        g->t.b = bed_worker(&g->t, &g->context, "rdma_rc", "rxe1", two_only);
        CHECK_EQ(weft_am_handler_set(g->t.b, 1, on_arrived, g), 0);
        len = sizeof address;
        CHECK_EQ(weft_worker_address(g->t.b, address, &len), 0);
        weft_ep_params_t params = {
            .on_ready = two_on_ready, .on_error = two_on_error, .arg = &g->t};
        weft_status_t st = weft_connect_address(host.a, address, len, &params, &g->t.ep);
        g->t.a = host.a;
        if (st < 0) g->t.error = st, g->t.errors = 1;
        UNTIL(&g->t, g->t.ready || g->t.errors);
    }
    CHECK(accepted[0].t.ready && accepted[1].t.ready && !accepted[2].t.ready);
    CHECK_EQ(accepted[2].t.error, WEFT_ERR_QUOTA);
    for (int i = 0; i < 2; i++) {
        CHECK(weft_am_send(accepted[i].t.ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
        UNTIL(&accepted[i].t, accepted[i].arrived == 1);
    }
    for (int i = 0; i < PEERS; i++) accepted[i].t.a = NULL;
    CHECK_EQ(weft_worker_close(host.a, &(weft_op_t){.done = two_gone, .arg = &host.a}),
             WEFT_IN_PROGRESS);
    double end = test_now() + test_timeout(5);
    while (host.a && test_now() < end) {
        weft_worker_progress(host.a, 0);
        for (int i = 0; i < PEERS; i++) weft_worker_progress(accepted[i].t.b, 0);
    }
    CHECK(!host.a);
    for (int i = 0; i < PEERS; i++) {
        weft_worker_destroy(accepted[i].t.b);
        CHECK_EQ(weft_context_destroy(accepted[i].context), 0);
    }
    CHECK_EQ(weft_context_destroy(host.context), 0);
}
