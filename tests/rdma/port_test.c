/* The wire between two devices is cut under traffic: what was posted fails, and when it is whole
 * again both serve as before. */
#include "bed.h"

static bool port(int end, const char *what) {
    return bed_run("tests/rdma/port %d %s", end, what);
}

static int sent;
static void on_sent(weft_ep_t *ep, weft_am_t *am, void *arg) {
    sent++;
}

/* One more message from here to there. */
static void speak(struct two *t) {
    CHECK_EQ(weft_am_handler_set(t->b, 1, on_sent, NULL), 0);
    sent = 0;
    CHECK(weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){"message", 8}, 1, NULL) >= 0);
    UNTIL(t, sent == 1);
}

/* Until it is there: the device has to report that it is back, and a program would try again,
 * too. */
static void dial_again(struct two *t, const char *uri) {
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = t};
    char address[256];
    size_t len = sizeof address;
    double end = test_now() + test_timeout(10);
    CHECK_EQ(weft_worker_address(t->b, address, &len), 0);
    t->ready = 0;
    while (!t->ready && test_now() < end) {
        t->errors = 0;
        weft_status_t st = uri ? weft_connect(t->a, uri, &params, &t->ep)
                               : weft_connect_address(t->a, address, len, &params, &t->ep);
        while (st == 0 && !t->ready && !t->errors) two_turn(t);
        if (t->errors) printf("  %s: %s\n", uri ? uri : "its address", weft_status_name(t->error));
        two_turn(t);
    }
    CHECK(t->ready);
    speak(t);
}

/* b says nothing, so that it learns of nothing: an unused queue pair lives on, whatever
 * the wire does. */
static void cut_while_sending(struct two *t) {
    struct tally large = {0}, small = {0};
    static char big[300000];
    int n = 0;
    CHECK_EQ(weft_tag_send(t->ep, 1, &(weft_iov_t){big, sizeof big}, 1, OP(&large)),
             WEFT_IN_PROGRESS);
    CHECK(port(1, "down"));
    double end = test_now() + test_timeout(10);
    while (!t->errors && test_now() < end) {
        weft_status_t st = weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){big, 5000}, 1, OP(&small));
        n += st == WEFT_IN_PROGRESS;
        for (int i = 0; i < 50; i++) test_idle(weft_worker_progress(t->a, 0) > 0);
        if (st < 0) break;
    }
    CHECK(port(1, "up")); /* before any check, for the tests that follow */
    printf("  reported %s\n", weft_status_name(t->error));
    CHECK_EQ(t->errors, 1);
    CHECK(t->error == WEFT_ERR_PEER_FAILED || t->error == WEFT_ERR_IO);
    UNTIL(t, large.calls == 1 && small.calls == n);
    CHECK(large.status < 0 && (n == 0 || small.status < 0));
}

static void cut(const char *transport, bool listens) {
    struct bed b;
    weft_listener_t *listener = NULL;
    weft_listen_params_t params = {
        .on_endpoint = two_on_endpoint, .on_error = two_on_back_error, .arg = &b.t};
    bed_up(&b, transport, "rxe1", (weft_setting_t){0});
    if (listens) CHECK_EQ(weft_listen(b.t.b, "rdma://10.77.0.2:7077", &params, &listener), 0);
    speak(&b.t);
    cut_while_sending(&b.t);
    dial_again(&b.t, NULL);
    if (listens) dial_again(&b.t, "rdma://10.77.0.2:7077");
    if (listener) weft_listener_close(listener);
    bed_down(&b);
}
TEST(rdma_rc_a_wire_that_was_cut_serves_again) {
    cut("rdma_rc", true);
}
TEST(rdma_ud_a_wire_that_was_cut_serves_again) {
    cut("rdma_ud", false);
}
