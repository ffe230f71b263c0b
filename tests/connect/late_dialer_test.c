/* A program that dials and then computes for longer than the listener waits for a handshake: its
 * endpoint comes up all the same. */
#include <tests/support/worker_pair.h>

static char cut_line[256];
static int n_cut;
static void keep_line(weft_log_level_t level, const char *room, const char *line, void *arg) {
    if (level > WEFT_LOG_WARN || !strstr(line, "tcp.handshake_timeout")) return;
    snprintf(cut_line, sizeof cut_line, "%s", line);
    n_cut++;
}

static int back_errors;
static void on_back(weft_ep_t *ep, void *arg) {
    ((struct two *)arg)->endpoints++;
}
static void on_back_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    back_errors++;
}

static void drive(weft_worker_t *worker, double seconds) {
    for (double end = test_now() + seconds; test_now() < end;) {
        struct timespec ms = {0, 1000000};
        weft_worker_progress(worker, 0);
        nanosleep(&ms, NULL);
    }
}

/* The dialer does nothing until the listener has waited long enough. */
static void drive_until_cut(weft_worker_t *worker) {
    for (double end = test_now() + test_timeout(60); !n_cut && test_now() < end;)
        drive(worker, 0.01);
    CHECK_EQ(n_cut, 1);
}

static weft_listener_t *listener;
static void begin(struct two *t) {
    static const weft_setting_t settings[] = {{"tcp.handshake_timeout", "100ms"},
                                              {"connect.timeout", "60s"}};
    memset(t, 0, sizeof *t);
    n_cut = 0;
    back_errors = 0;
    weft_context_params_t context = {.settings = settings, .n_settings = 2, .log = keep_line};
    weft_worker_params_t params = {
        .transports = "tcp", .on_endpoint = on_back, .on_error = on_back_error, .arg = t};
    weft_listen_params_t listen = {.on_endpoint = on_back, .on_error = on_back_error, .arg = t};
    CHECK_EQ(weft_context_create(&context, &t->context), 0);
    CHECK_EQ(weft_worker_create(t->context, &params, &t->a), 0);
    CHECK_EQ(weft_worker_create(t->context, &params, &t->b), 0);
    CHECK_EQ(weft_listen(t->b, "tcp://127.0.0.1:0", &listen, &listener), 0);
}

/* By URI, or by the worker's address. */
static void dial(struct two *t, weft_error_mode_t mode, bool by_uri) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_params_t params = {
        .on_ready = two_on_ready, .on_error = two_on_error, .arg = t, .error_mode = mode};
    CHECK_EQ(weft_worker_address(t->b, address, &len), 0);
    weft_status_t st = by_uri ? weft_connect(t->a, weft_listener_uri(listener), &params, &t->ep)
                              : weft_connect_address(t->a, address, len, &params, &t->ep);
    CHECK_EQ(st, 0);
}

static int came;
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    came++;
}
static void works(struct two *t) {
    came = 0;
    CHECK_EQ(weft_am_handler_set(t->b, 1, on_am, NULL), 0);
    CHECK(weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){"hello", 5}, 1, NULL) >= 0);
    UNTIL(t, came == 1);
    CHECK_EQ(t->ready, 1);
    CHECK_EQ(t->endpoints, 1);
    CHECK_EQ(t->errors + back_errors, 0);
}

static void each_mode(void (*late)(struct two *t)) {
    for (int mode = WEFT_ERRORS_PEER; mode <= WEFT_ERRORS_FAILOVER; mode++)
        for (int by_uri = 0; by_uri < 2; by_uri++) {
            struct two t;
            begin(&t);
            dial(&t, (weft_error_mode_t)mode, by_uri);
            late(&t);
            works(&t);
            CHECK(strstr(cut_line, "127.0.0.1:") && strstr(cut_line, "100 ms"));
            two_down(&t);
        }
}

static void sends_nothing(struct two *t) {
    drive_until_cut(t->b);
}
TEST(a_dialer_that_sends_its_first_word_late_connects) {
    each_mode(sends_nothing);
}

/* Its first word is there when the listener looks, its second is not. */
static void proves_nothing(struct two *t) {
    for (int i = 0; i < 20; i++) weft_worker_progress(t->a, 0);
    drive_until_cut(t->b);
}
TEST(a_dialer_that_sends_its_second_word_late_connects) {
    each_mode(proves_nothing);
}

TEST(a_dialer_that_is_late_again_and_again_connects) {
    struct two t;
    begin(&t);
    dial(&t, WEFT_ERRORS_PEER, true);
    for (int i = 0; i < 4; i++) {
        drive(t.b, 0.2);
        weft_worker_progress(t.a, 0);
    }
    works(&t);
    two_down(&t);
}

/* Time passes for it as for anybody. */
TEST(connect_timeout_ends_what_is_late_for_ever) {
    struct two t;
    begin(&t);
    weft_ep_params_t params = {.on_error = two_on_error, .arg = &t, .connect_timeout_ms = 700};
    CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &params, &t.ep), 0);
    double begin = test_now();
    while (!t.errors && test_now() < begin + test_timeout(60)) {
        drive(t.b, 0.2);
        weft_worker_progress(t.a, 0);
    }
    CHECK_EQ(t.errors, 1);
    CHECK_EQ(t.error, WEFT_ERR_TIMED_OUT);
    two_down(&t);
}
