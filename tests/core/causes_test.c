/* What weft_status_describe says inside a callback: the cause of that failure, with address and
 * errno, and no other's. */
#include "../sockets.h"
#include <tests/support/reserved_port.h>
#include <tests/support/worker_pair.h>

#include <sys/socket.h>

enum { LINES = 64 };

static struct {
    int n;
    char line[LINES][512];
    weft_log_level_t level[LINES];
} logged;

static void keep_line(weft_log_level_t level, const char *room, const char *line, void *arg) {
    if (logged.n == LINES) return;
    snprintf(logged.line[logged.n], sizeof logged.line[0], "%s", line);
    logged.level[logged.n++] = level;
}

static int lines_with(weft_log_level_t level, const char *text) {
    int n = 0;
    for (int i = 0; i < logged.n; i++)
        n += logged.level[i] == level && strstr(logged.line[i], text) != NULL;
    return n;
}

struct notified {
    int calls;
    weft_status_t status;
    char text[1024];
};

static void describe_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct notified *notified = arg;
    notified->calls++;
    notified->status = status;
    weft_status_describe(status, notified->text, sizeof notified->text);
}

static void describe_done(weft_status_t status, void *arg) {
    describe_error(NULL, status, arg);
}

static void start(struct two *t, const char *transports, const char *level) {
    weft_setting_t settings[] = {{"log.level", level}};
    weft_context_params_t params = {.settings = settings, .n_settings = 1, .log = keep_line};
    weft_worker_params_t worker = {.transports = transports,
                                   .on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = t};
    memset(t, 0, sizeof *t);
    logged.n = 0;
    CHECK_EQ(weft_context_create(&params, &t->context), 0);
    CHECK_EQ(weft_worker_create(t->context, &worker, &t->a), 0);
    CHECK_EQ(weft_worker_create(t->context, &worker, &t->b), 0);
}

static void dial_address(struct two *t, struct notified *notified) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_params_t params = {.on_error = describe_error, .arg = notified};
    CHECK_EQ(weft_worker_address(t->b, address, &len), 0);
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, &t->ep), 0);
    UNTIL(t, t->back);
}

TEST(each_refused_connection_names_its_own_address_and_errno) {
    struct two t;
    struct notified notified[2] = {0};
    char uri[2][64];
    weft_ep_t *ep;
    start(&t, "tcp,shm", "none");
    struct reserved_port reserved[2] = {port_reserve(), port_reserve()};
    for (int i = 0; i < 2; i++) {
        snprintf(uri[i], sizeof uri[i], "tcp://127.0.0.1:%u", reserved[i].port);
        weft_ep_params_t params = {.on_error = describe_error, .arg = &notified[i]};
        CHECK_EQ(weft_connect(t.a, uri[i], &params, &ep), 0);
    }
    /* Another failure of the same status, whose causes this thread has noted. */
    CHECK_EQ(weft_connect(t.a, "shm://nothing-listens-here", NULL, &ep), WEFT_ERR_REFUSED);
    UNTIL(&t, notified[0].calls && notified[1].calls);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(notified[i].status, WEFT_ERR_REFUSED);
        CHECK(strstr(notified[i].text, uri[i] + strlen("tcp://")));
        CHECK(!strstr(notified[i].text, uri[!i] + strlen("tcp://")));
        CHECK(strstr(notified[i].text, "Connection refused"));
        CHECK(!strstr(notified[i].text, "nothing-listens-here"));
    }
    for (int i = 0; i < 2; i++) close(reserved[i].fd);
    two_down(&t);
}

TEST(an_operation_that_ends_with_its_endpoint_has_the_endpoints_cause) {
    struct two t;
    struct notified notified = {0}, sent = {0};
    static char bytes[1 << 20];
    start(&t, "tcp", "none");
    dial_address(&t, &notified);
    weft_op_t op = {.done = describe_done, .arg = &sent};
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){bytes, sizeof bytes}, 1, &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, notified.calls && sent.calls);
    CHECK_EQ(notified.status, WEFT_ERR_PEER_CLOSED);
    CHECK(strstr(notified.text, "127.0.0.1:"));
    CHECK(strstr(notified.text, "the peer closed"));
    CHECK(strstr(sent.text, "the peer closed"));
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(t.ep, &info), 0);
    CHECK(strstr(info.error, "127.0.0.1:") && strstr(info.error, "the peer closed its endpoint"));
    /* The handle says so, too, and no state of a machine. */
    char text[1024];
    weft_status_t st = weft_tag_send(t.ep, 1, &(weft_iov_t){bytes, 8}, 1, NULL);
    CHECK_EQ(st, WEFT_ERR_PEER_CLOSED);
    weft_status_describe(st, text, sizeof text);
    CHECK(strstr(text, "the endpoint was lost: ") && strstr(text, "the peer closed its endpoint"));
    CHECK(!strstr(text, "LOST") && !strstr(text, "DRAIN"));
    two_down(&t);
}

TEST(a_passed_deadline_names_the_operation_and_the_peer) {
    struct two t;
    struct notified notified = {0}, sent = {0};
    static char bytes[1 << 20];
    start(&t, "tcp", "none");
    dial_address(&t, &notified);
    weft_op_t op = {.done = describe_done, .arg = &sent, .deadline_ms = 20};
    weft_iov_t iov = {bytes, sizeof bytes};
    CHECK_EQ(weft_tag_send(t.ep, 1, &iov, 1, &op), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls);
    CHECK_EQ(sent.status, WEFT_ERR_TIMED_OUT);
    CHECK(strstr(sent.text, "tag_send"));
    CHECK(strstr(sent.text, "127.0.0.1:"));
    two_down(&t);
}

TEST(a_cancelled_operation_has_no_cause_of_another) {
    struct two t;
    struct notified got = {0};
    char byte;
    weft_request_t *request = NULL;
    start(&t, "tcp", "none");
    weft_op_t op = {
        .done = describe_done, .arg = &got, .request_p = &request, .deadline_ms = 60000};
    CHECK_EQ(weft_tag_recv(t.a, 1, ~0ull, &(weft_iov_t){&byte, 1}, 1, NULL, &op), WEFT_IN_PROGRESS);
    weft_request_cancel(request);
    UNTIL(&t, got.calls);
    CHECK_EQ(got.status, WEFT_ERR_CANCELLED);
    CHECK(!strstr(got.text, "because"));
    two_down(&t);
}

TEST(connections_and_their_ends_are_a_line_each_with_worker_and_peer) {
    struct two t;
    struct notified notified = {0};
    char id[32];
    start(&t, "tcp", "info");
    dial_address(&t, &notified);
    weft_ep_info_t info;
    UNTIL(&t, weft_ep_is_connected(t.ep, "", 0) != WEFT_OK &&
                  weft_ep_describe(t.ep, &info) == WEFT_OK && info.peer_worker);
    snprintf(id, sizeof id, "%016llx", (unsigned long long)info.peer_worker);
    CHECK_EQ(lines_with(WEFT_LOG_INFO, "connected to worker"), 1);
    CHECK_EQ(lines_with(WEFT_LOG_INFO, "connected by worker"), 1);
    CHECK(lines_with(WEFT_LOG_INFO, id) >= 1);
    CHECK_EQ(weft_worker_close(t.b, &(weft_op_t){.done = two_gone, .arg = &t.b}), WEFT_IN_PROGRESS);
    UNTIL(&t, notified.calls && !t.b);
    CHECK(lines_with(WEFT_LOG_INFO, "lost a connection") +
              lines_with(WEFT_LOG_WARN, "lost a connection") <=
          2);
    two_down(&t);
}

TEST(a_lost_connection_is_a_warning_with_address_and_cause) {
    struct two t;
    struct notified notified = {0};
    char uri[64];
    weft_ep_t *ep;
    start(&t, "tcp", "warn");
    struct reserved_port reserved = port_reserve();
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", reserved.port);
    weft_ep_params_t params = {.on_error = describe_error, .arg = &notified};
    CHECK_EQ(weft_connect(t.a, uri, &params, &ep), 0);
    UNTIL(&t, notified.calls);
    CHECK_EQ(lines_with(WEFT_LOG_WARN, uri + strlen("tcp://")), 1);
    CHECK_EQ(lines_with(WEFT_LOG_WARN, "Connection refused"), 1);
    CHECK_EQ(lines_with(WEFT_LOG_WARN, "could not connect, and lost 1 endpoint:"), 1);
    close(reserved.fd);
    two_down(&t);
}

TEST(a_line_has_the_name_of_its_worker) {
    struct two t;
    weft_worker_t *named;
    weft_ep_t *ep;
    struct notified notified = {0};
    char uri[64];
    start(&t, "tcp", "warn");
    struct reserved_port reserved = port_reserve();
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", reserved.port);
    weft_worker_params_t params = {.transports = "tcp", .name = "kv-1"};
    weft_ep_params_t dials = {.on_error = describe_error, .arg = &notified};
    CHECK_EQ(weft_worker_create(t.context, &params, &named), 0);
    CHECK_EQ(weft_connect(named, uri, &dials, &ep), 0);
    for (double end = test_now() + test_timeout(60); !notified.calls && test_now() < end;)
        weft_worker_wait(named, 10);
    CHECK_EQ(lines_with(WEFT_LOG_WARN, "worker kv-1 ("), 1);
    weft_worker_destroy(named);
    close(reserved.fd);
    two_down(&t);
}

TEST(a_failover_is_a_line_when_the_lane_is_lost_and_one_when_there_is_another) {
    struct two t;
    char address[256];
    size_t len = sizeof address;
    start(&t, "tcp", "info");
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = &t,
                               .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    CHECK_EQ(weft_connect_address(t.a, address, len, &params, &t.ep), 0);
    UNTIL(&t, t.ready && t.back);
    CHECK(kill_one(0));
    UNTIL(&t, lines_with(WEFT_LOG_INFO, "has a new lane to worker") == 2);
    CHECK_EQ(lines_with(WEFT_LOG_WARN, "for another lane; lost its lane to worker"), 2);
    CHECK(lines_with(WEFT_LOG_WARN, "127.0.0.1:") >= 2);
    CHECK_EQ(t.errors, 0);
    two_down(&t);
}

TEST(a_lane_switch_is_a_line_with_the_peer_and_the_new_lane) {
    struct two t;
    weft_setting_t settings[] = {{"log.level", "info"},     {"lanes.tick", "2ms"},
                                 {"lanes.backoff", "2ms"},  {"lanes.min_hold", "2ms"},
                                 {"lanes.min_rate", "64k"}, {"calibration", "off"},
                                 {"shm.rings", "64"},       {"lanes.switch", "on"}};
    weft_context_params_t params = {.settings = settings, .n_settings = 8, .log = keep_line};
    weft_worker_params_t worker = {.transports = "shm", .on_endpoint = two_on_endpoint, .arg = &t};
    static char bytes[4096];
    memset(&t, 0, sizeof t);
    logged.n = 0;
    CHECK_EQ(weft_context_create(&params, &t.context), 0);
    CHECK_EQ(weft_worker_create(t.context, &worker, &t.a), 0);
    CHECK_EQ(weft_worker_create(t.context, &worker, &t.b), 0);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    UNTIL(&t, (weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, NULL) >= 0 &&
               lines_with(WEFT_LOG_INFO, "go by its fast shm lane") > 0));
    CHECK(lines_with(WEFT_LOG_INFO, "messages to worker ") > 0);
    two_down(&t);
}

/* The endpoint has asked over a link that the other worker closed. It looks for another way. */
TEST(an_endpoint_that_finds_no_other_way_to_a_worker_that_closes_reports_both) {
    static const char *const transports[] = {"shm", "tcp"};
    static const weft_status_t outcome[] = {WEFT_ERR_UNREACHABLE, WEFT_ERR_REFUSED};
    static const char *const why[] = {"its socket cannot be seen from here", "Connection refused"};
    for (int i = 0; i < 2; i++) {
        struct two t;
        struct notified end = {0};
        char address[256];
        size_t len = sizeof address;
        weft_ep_params_t params = {.on_error = describe_error, .arg = &end};
        two_workers(&t, transports[i], &(weft_setting_t){"close.timeout", "1"}, 1);
        two_dial(&t);
        UNTIL(&t, t.ready && t.back);
        CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
        CHECK_EQ(weft_worker_close(t.b, &(weft_op_t){.done = two_gone, .arg = &t.b}),
                 WEFT_IN_PROGRESS);
        double limit = test_now() + test_timeout(60);
        while (t.b && test_now() < limit) test_idle(weft_worker_progress(t.b, 0) > 0);
        CHECK(!t.b);
        CHECK_EQ(weft_connect_address(t.a, address, len, &params, &t.ep), 0);
        UNTIL(&t, end.calls == 1);
        CHECK_EQ(end.status, outcome[i]);
        CHECK(strstr(end.text, why[i]));
        two_down(&t);
    }
}
