/* Memory may run out at any allocation of a whole life: that operation fails, and nothing else. */
#include <tests/support/worker_pair.h>

#include <reactor/reactor.h>

static int received;
static void on_any(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}
static int accepted;
static weft_ep_t *accepted_ep;
static void on_endpoint(weft_ep_t *ep, void *arg) {
    accepted++;
    accepted_ep = ep;
}
static int ready, lost;
static void on_ready(weft_ep_t *ep, void *arg) {
    ready++;
}
static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    lost++;
}

struct life {
    weft_context_t *context;
    weft_worker_t *a, *b;
    weft_ep_t *ep;
    int posted, completed;
};

static void done(weft_status_t status, void *arg) {
    ((struct life *)arg)->completed++;
}

static void turns(struct life *l, int n) {
    for (int i = 0; i < n; i++) {
        if (l->a) weft_worker_progress(l->a, 0);
        if (l->b) weft_worker_progress(l->b, 0);
    }
}

/* Connect, send small and large, tagged and not, close. Goes as far as it can; every accepted
 * operation completes. */
static void live(struct life *l, const char *transport, const char *connect_timeout) {
    static char big[200000];
    char address[256];
    size_t len = sizeof address;
    weft_worker_params_t params = {.transports = transport, .on_endpoint = on_endpoint};
    weft_op_t op = {.done = done, .arg = l};
    /* Where the other side ran out of it, or is closed second, no answer comes. */
    weft_setting_t soon[] = {{"connect.timeout", connect_timeout}, {"close.timeout", "20ms"}};
    if (weft_context_create(&(weft_context_params_t){.settings = soon, .n_settings = 2},
                            &l->context) < 0)
        return;
    if (weft_worker_create(l->context, &params, &l->a) < 0) return;
    if (weft_worker_create(l->context, &params, &l->b) < 0) return;
    weft_am_handler_set(l->b, 1, on_any, NULL);
    if (weft_worker_address(l->b, address, &len) < 0) return;
    if (weft_connect_address(l->a, address, len,
                             &(weft_ep_params_t){.on_ready = on_ready, .on_error = on_lost},
                             &l->ep) < 0)
        return;
    l->posted += weft_am_send(l->ep, 1, "h", 1, &(weft_iov_t){big, 10}, 1, &op) == WEFT_IN_PROGRESS;
    double end = test_now() + test_timeout(60);
    while (!ready && !lost && test_now() < end) turns(l, 10);
    if (!ready) return;
    l->posted +=
        weft_am_send(l->ep, 1, "h", 1, &(weft_iov_t){big, sizeof big}, 1, &op) == WEFT_IN_PROGRESS;
    l->posted += weft_tag_send(l->ep, 1, &(weft_iov_t){big, 100}, 1, &op) == WEFT_IN_PROGRESS;
    l->posted +=
        weft_tag_recv(l->b, 1, 0, &(weft_iov_t){big, 100}, 1, NULL, &op) == WEFT_IN_PROGRESS;
    turns(l, 200);
    weft_ep_close(l->ep, WEFT_CLOSE_FLUSH, &op);
    turns(l, 50);
}

static void free_later(struct life *l) {
    if (l->a) weft_worker_destroy(l->a);
    if (l->b) weft_worker_destroy(l->b);
    l->a = l->b = NULL;
    if (l->context) CHECK_EQ(weft_context_destroy(l->context), 0);
}

static void every_failure(const char *transport) {
    struct life l = {0};
    ready = lost = received = accepted = 0;
    weft__alloc_fail_at(0);
    live(&l, transport, "20s");
    uint64_t n = weft__alloc_fail_at(0);
    CHECK(ready == 1 && accepted == 1);
    free_later(&l);
    CHECK(n > 20);
    for (uint64_t k = 1; k <= n; k++) {
        memset(&l, 0, sizeof l);
        ready = lost = 0;
        weft__alloc_fail_at(k);
        live(&l, transport, "300ms");
        weft__alloc_fail_at(0);
        free_later(&l);
        CHECK(l.completed >= l.posted);
    }
    printf("  %s: each of %lu allocations failed in turn\n", transport, (unsigned long)n);
}

TEST(memory_runs_out_anywhere_over_shm) {
    every_failure("shm");
}
TEST(memory_runs_out_anywhere_over_tcp) {
    every_failure("tcp");
}
