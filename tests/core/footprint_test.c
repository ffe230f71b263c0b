/* What an endpoint and a link hold while they are quiet, counted by the allocator: by blocks,
 * without its own heads. */
#include <tests/support/worker_pair.h>

#include <endpoints/core/worker.h>

enum { ID = 3, FEW = 64, MANY = 192, ENDPOINTS = 2048, SETTLE = 2000 };

static int arrived;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    arrived++;
}

static weft_worker_t *worker_of(weft_context_t *context, const char *transport) {
    weft_worker_t *worker;
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = transport}, &worker),
             0);
    CHECK_EQ(weft_am_handler_set(worker, ID, on_message, NULL), 0);
    return worker;
}

static void drive(weft_worker_t *a, weft_worker_t **b, int n) {
    weft_worker_progress(a, 0);
    for (int i = 0; i < n; i++) weft_worker_progress(b[i], 0);
}

/* One endpoint to b, with a first message that has arrived. */
static void open_one(weft_worker_t *a, weft_worker_t *b) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    int before = arrived;
    CHECK_EQ(weft_worker_address(b, address, &len), 0);
    CHECK_EQ(weft_connect_address(a, address, len, NULL, &ep), 0);
    CHECK(weft_am_send(ep, ID, NULL, 0, &(weft_iov_t){"first", 5}, 1, NULL) >= 0);
    double end = test_now() + test_timeout(60);
    while (arrived == before && test_now() < end) drive(a, &b, 1);
    CHECK_EQ(arrived, before + 1);
}

static size_t held(weft_worker_t *a, weft_worker_t **b, int n) {
    for (int i = 0; i < SETTLE / n; i++) drive(a, b, n);
    return talloc_total_size(a->reactor);
}

static void gone(weft_status_t status, void *arg) {
    *(weft_worker_t **)arg = NULL;
}

/* All at once: none waits for one that stands still. */
static void end_all(weft_context_t *context, weft_worker_t *a, weft_worker_t **b, int n) {
    weft_worker_t *all[MANY + 1] = {a};
    int left = n + 1;
    memcpy(all + 1, b, (size_t)n * sizeof *b);
    for (int i = 0; i <= n; i++)
        weft_worker_close(all[i], &(weft_op_t){.done = gone, .arg = &all[i]});
    while (left > 0) {
        left = 0;
        for (int i = 0; i <= n; i++)
            if (all[i]) weft_worker_progress(all[i], 0), left++;
    }
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* Of each of those beyond the first FEW, which pay for what all share. */
static size_t of_a_link(const char *transport, const weft_setting_t *settings, size_t n_settings) {
    weft_context_t *context;
    weft_worker_t *b[MANY];
    CHECK_EQ(
        weft_context_create(
            &(weft_context_params_t){.settings = settings, .n_settings = n_settings}, &context),
        0);
    weft_worker_t *a = worker_of(context, transport);
    size_t few = 0;
    for (int i = 0; i < MANY; i++) {
        b[i] = worker_of(context, transport);
        open_one(a, b[i]);
        if (i + 1 == FEW) few = held(a, b, FEW);
    }
    size_t each = (held(a, b, MANY) - few) / (MANY - FEW);
    end_all(context, a, b, MANY);
    return each;
}

/* Opening so many keeps their link busy. The ring that it would earn is no endpoint's. */
static size_t of_an_endpoint(const char *transport) {
    static const weft_setting_t settings[] = {{"lanes.switch", "off"}};
    weft_context_t *context;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1},
                                 &context),
             0);
    weft_worker_t *a = worker_of(context, transport), *b = worker_of(context, transport);
    for (int i = 0; i < ENDPOINTS / 8; i++) open_one(a, b);
    size_t few = held(a, &b, 1);
    for (int i = ENDPOINTS / 8; i < ENDPOINTS; i++) open_one(a, b);
    size_t each = (held(a, &b, 1) - few) / (ENDPOINTS - ENDPOINTS / 8);
    end_all(context, a, &b, 1);
    return each;
}

/* Not more than `most`. The figure is in the log, for a change of it. */
#define HOLDS(what, most)                          \
    do {                                           \
        size_t bytes = (what);                     \
        printf("  %s: %zu bytes\n", #what, bytes); \
        CHECK(bytes <= (most));                    \
    } while (0)

/* 8 of these bytes name the cause of a loss, which each endpoint keeps for itself. */
TEST(a_quiet_endpoint_is_small) {
    HOLDS(of_an_endpoint("tcp"), 252);
    HOLDS(of_an_endpoint("shm"), 252);
}

/* The goal is 1,024. It is 962 on a quiet machine and 986 on a busy one. 24 bytes are the place
 * in the timer heap that each link reserves, so that starting its timer cannot fail. Slabs grow
 * by whole blocks: a few bytes more of a lane can count as 63 here. The lane looks after its
 * peer's host (alive.c) and keeps the cause of its end. */
TEST(a_quiet_link_by_tcp_is_small) {
    HOLDS(of_a_link("tcp", NULL, 0), 1000);
}

/* The pages of 1000 links show it, as weft-perf counts them; the few of these tests fill no more
 * than some blocks. */
TEST(a_link_has_264_bytes_and_its_extension_104) {
    HOLDS(sizeof(struct link), 264);
    HOLDS(sizeof(struct link_ext), 104);
}

/* 24 bytes are its reserved place in the timer heap. */
TEST(a_quiet_link_by_the_mailbox_is_small) {
    static const weft_setting_t no_rings[] = {{"shm.rings", "0"}};
    HOLDS(of_a_link("shm", no_rings, 1), 824);
}
