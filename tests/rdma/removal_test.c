/* A device is deleted under traffic: what was under way ends once, nothing hangs, and the device
 * that is added again serves. */
#include "bed.h"

static int echoed;
static void on_echo(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_am_send(ep, 2, NULL, 0, &(weft_iov_t){(void *)(uintptr_t)am->data, am->len}, 1, NULL);
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    echoed++;
}

static void echo_some(struct two *t, int n) {
    static char bytes[700];
    CHECK_EQ(weft_am_handler_set(t->b, 1, on_echo, NULL), 0);
    CHECK_EQ(weft_am_handler_set(t->a, 2, on_answer, NULL), 0);
    echoed = 0;
    for (int i = 0; i < n; i++) {
        CHECK(weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, NULL) >= 0);
        two_turn(t);
    }
    UNTIL(t, echoed == n);
}

static void begin_to_delete(void) {
    unlink("/tmp/deleted");
    CHECK(bed_run("(rdma link delete rxe0; echo $? >/tmp/deleted) >/dev/null 2>&1 &"));
}
static void delete_device(struct two *t) {
    begin_to_delete();
    BED_UNTIL(t, 10, access("/tmp/deleted", F_OK) == 0);
}

static void add_device(void) {
    CHECK(bed_run("rdma link add rxe0 type rxe netdev v0"));
    CHECK(bed_run("for i in $(seq 100); do ibv_devinfo -d rxe0 2>/dev/null | grep -q PORT_ACTIVE "
                  "&& exit 0; sleep "
                  "0.1; done; exit 1"));
}

/* Of the case that runs. One that fails leaves its workers here, and perhaps no device. */
static struct bed b;

/* Returns how many errors endpoints reported. */
static int end_case(void) {
    bed_down(&b);
    int errors = b.t.errors + b.t.back_errors;
    memset(&b, 0, sizeof b);
    return errors;
}
static void end_what_failed(void) {
    bool failed = b.t.context != NULL;
    weft_worker_destroy(b.t.a);
    weft_worker_destroy(b.t.b);
    weft_context_destroy(b.t.context);
    weft_context_destroy(b.context_b);
    memset(&b, 0, sizeof b);
    if (failed && !bed_is_here()) add_device();
}

/* By the device that an earlier program left, rdmacm may connect no more (docs/rdma.md, "How the
 * kernel reports that a device goes"). Nothing of this process has it open yet. */
static void begin_case(void) {
    static bool is_new;
    end_what_failed();
    if (is_new || !bed_is_here()) return;
    is_new = true;
    CHECK(bed_run("rdma link delete rxe0"));
    add_device();
}

static void remove_under_traffic(const char *transport, const char *device_b) {
    struct tally large = {0}, small = {0};
    static char big[400000];
    int n_large = 0, n_small = 0;
    begin_case();
    bed_up(&b, transport, device_b, (weft_setting_t){0});
    echo_some(&b.t, 50);
    for (int i = 0; i < 4; i++)
        n_large += weft_tag_send(b.t.ep, 1, &(weft_iov_t){big, sizeof big}, 1, OP(&large)) ==
                   WEFT_IN_PROGRESS;
    CHECK_EQ(n_large, 4);
    begin_to_delete();
    double end = test_now() + test_timeout(10);
    while (!b.t.errors && test_now() < end) {
        weft_status_t st = weft_am_send(b.t.ep, 1, NULL, 0, &(weft_iov_t){big, 300}, 1, OP(&small));
        n_small += st == WEFT_IN_PROGRESS;
        if (st < 0) break;
        two_turn(&b.t);
    }
    BED_UNTIL(&b.t, 10, b.t.errors == 1 && b.t.back_errors == 1);
    printf("  %s: reported %s here, %s there\n", transport, weft_status_name(b.t.error),
           weft_status_name(b.t.back_error));
    UNTIL(&b.t, large.calls == n_large && small.calls == n_small);
    CHECK(large.status < 0);
    /* though both workers are still there */
    BED_UNTIL(&b.t, 10, access("/tmp/deleted", F_OK) == 0);
    CHECK(weft_am_send(b.t.ep, 1, NULL, 0, NULL, 0, NULL) < 0);
    CHECK_EQ(end_case(), 2);

    add_device();
    bed_up(&b, transport, device_b, (weft_setting_t){0});
    echo_some(&b.t, 50);
    end_case();
}

TEST(rdma_rc_a_device_may_go_and_come_back) {
    remove_under_traffic("rdma_rc", "rxe1");
}
TEST(rdma_ud_a_device_may_go_and_come_back) {
    remove_under_traffic("rdma_ud", "rxe1");
}
TEST(rdma_rc_two_workers_lose_their_one_device) {
    remove_under_traffic("rdma_rc", "rxe0");
}

/* b's endpoint to a, or a's to b, by the address that the other has now. */
static void meet_again(struct two *t, bool b_dials) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_params_t dial = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = t};
    t->ready = t->errors = t->back_errors = 0;
    CHECK_EQ(weft_worker_address(b_dials ? t->a : t->b, address, &len), 0);
    CHECK_EQ(weft_connect_address(b_dials ? t->b : t->a, address, len, &dial, &t->ep), 0);
    UNTIL(t, t->ready);
}

/* Who has nothing to say to a peer on its own host does not notice. */
static void lose_device_for_a_while(struct two *t) {
    delete_device(t);
    weft_am_send(t->ep, 3, NULL, 0, NULL, 0, NULL);
    weft_am_send(t->back, 3, NULL, 0, NULL, 0, NULL);
    BED_UNTIL(t, 10, t->errors == 1 && t->back_errors == 1);
    CHECK(weft_am_send(t->ep, 1, NULL, 0, NULL, 0, NULL) < 0);
    add_device();
}

/* One whose device went is dialed, at the address that it has now, and dials; a worker need not
 * be opened again. */
TEST(rdma_ud_a_worker_serves_again_when_its_device_is_back) {
    begin_case();
    bed_up(&b, "rdma_ud", "rxe1", (weft_setting_t){0});
    echo_some(&b.t, 10);
    lose_device_for_a_while(&b.t);
    meet_again(&b.t, true);
    CHECK(weft_am_send(b.t.ep, 2, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&b.t, echoed == 11);
    lose_device_for_a_while(&b.t);
    meet_again(&b.t, false);
    echo_some(&b.t, 10);
    end_case();
}

/* It dials again by its own device as soon as that is back: what was sent meanwhile arrives, and
 * so does all that was sent before. */
TEST(rdma_ud_an_endpoint_that_survives_its_lanes_survives_its_device) {
    begin_case();
    WANTS_THE_BED();
    b.t.a = bed_worker(&b.t, &b.t.context, "rdma_ud", "rxe0",
                       (weft_setting_t){"failover.timeout", "60s"});
    b.t.b = bed_worker(&b.t, &b.context_b, "rdma_ud", "rxe1",
                       (weft_setting_t){"failover.timeout", "60s"});
    char address[256];
    size_t len = sizeof address;
    weft_ep_params_t dial = {.on_ready = two_on_ready,
                             .on_error = two_on_error,
                             .arg = &b.t,
                             .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_worker_address(b.t.b, address, &len), 0);
    CHECK_EQ(weft_connect_address(b.t.a, address, len, &dial, &b.t.ep), 0);
    UNTIL(&b.t, b.t.ready && b.t.back);
    echo_some(&b.t, 10);
    delete_device(&b.t);
    BED_UNTIL(&b.t, 10, weft_worker_count(b.t.a, "lanes.lost") == 1);
    for (int i = 0; i < 10; i++) CHECK(weft_am_send(b.t.ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    add_device();
    BED_UNTIL(&b.t, 10, echoed == 20);
    CHECK_EQ(weft_worker_count(b.t.a, "lanes.resumed"), 1);
    CHECK_EQ(end_case(), 0);
}

/* No dial and no event comes meanwhile: the listener itself looks for its device. */
TEST(rdma_rc_a_listener_serves_again_when_its_device_is_back) {
    weft_listener_t *listener;
    begin_case();
    WANTS_THE_BED();
    b.t.a = bed_worker(&b.t, &b.t.context, "rdma_rc", "rxe1", (weft_setting_t){0});
    b.t.b = bed_worker(&b.t, &b.context_b, "rdma_rc", "rxe0", (weft_setting_t){0});
    weft_listen_params_t listen = {
        .on_endpoint = two_on_endpoint, .on_error = two_on_back_error, .arg = &b.t};
    weft_ep_params_t dial = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &b.t};
    CHECK_EQ(weft_listen(b.t.b, "rdma://10.77.0.1:7077", &listen, &listener), 0);
    CHECK_EQ(weft_connect(b.t.a, weft_listener_uri(listener), &dial, &b.t.ep), 0);
    UNTIL(&b.t, b.t.ready && b.t.back);
    echo_some(&b.t, 10);
    delete_device(&b.t);
    BED_UNTIL(&b.t, 10, b.t.errors == 1 && b.t.back_errors == 1);
    add_device();
    bool serves = false;
    for (double till = test_now() + test_timeout(10); !serves && test_now() < till;) {
        b.t.ready = b.t.errors = 0;
        CHECK_EQ(weft_connect(b.t.a, "rdma://10.77.0.1:7077", &dial, &b.t.ep), 0);
        BED_UNTIL(&b.t, 10, b.t.ready || b.t.errors);
        serves = b.t.ready;
    }
    CHECK(serves);
    echo_some(&b.t, 10);
    weft_listener_close(listener);
    end_case();
}
