/* A connection by URI that breaks before it is up is dialed again until connect.timeout, at a
 * bounded pace. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <tests/support/worker_pair.h>
#include <unistd.h>

/* One process after the other listens by this socket. */
struct place {
    struct two t;
    int fd;
    char uri[64], by_fd[32], text[1024];
};

static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct place *p = arg;
    p->t.errors++;
    p->t.error = status;
    weft_status_describe(status, p->text, sizeof p->text);
}

static void place(struct place *p) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    memset(p, 0, sizeof *p);
    two_workers(&p->t, "tcp", &(weft_setting_t){"log.level", "none"}, 1);
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(p->fd >= 0 && bind(p->fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(listen(p->fd, 16) == 0 && getsockname(p->fd, (struct sockaddr *)&at, &len) == 0);
    snprintf(p->uri, sizeof p->uri, "tcp://127.0.0.1:%u", ntohs(at.sin_port));
    snprintf(p->by_fd, sizeof p->by_fd, "tcp://@%d", p->fd);
}

static void dial(struct place *p, uint32_t timeout_ms) {
    weft_ep_params_t params = {
        .on_ready = two_on_ready, .on_error = on_error, .arg = p, .connect_timeout_ms = timeout_ms};
    CHECK_EQ(weft_connect(p->t.a, p->uri, &params, &p->t.ep), 0);
}

static void end_place(struct place *p) {
    two_down(&p->t);
    close(p->fd);
}

/* A listener that closes at once. */
static int cut(struct place *p) {
    int fd = accept(p->fd, NULL, NULL);
    if (fd < 0) return 0;
    close(fd);
    return 1;
}

static const char *state(struct place *p) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(p->t.ep, &info), WEFT_OK);
    return info.state;
}

static void until_paused(struct place *p) {
    UNTIL(&p->t, (cut(p), strcmp(state(p), "PAUSED") == 0));
}

static int came;
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    came++;
}

TEST(listeners_that_close_one_after_the_other_are_followed_by_one_that_stays) {
    struct place p;
    weft_listener_t *listener;
    weft_listen_params_t params = {.on_endpoint = two_on_endpoint, .arg = &p.t};
    int n = 0;
    place(&p);
    came = 0;
    CHECK_EQ(weft_am_handler_set(p.t.b, 1, on_am, NULL), 0);
    dial(&p, 0);
    CHECK(weft_am_send(p.t.ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&p.t, (n += cut(&p)) == 6);
    CHECK_EQ(weft_listen(p.t.b, p.by_fd, &params, &listener), 0);
    UNTIL(&p.t, p.t.ready == 1 && came == 1);
    CHECK_EQ(p.t.errors, 0);
    CHECK_EQ(p.t.endpoints, 1);
    end_place(&p);
}

/* 1 + 2 + 4 + … + 128 ms, then each 250 ms, after two at once: 11 in the first 510 ms. */
TEST(a_place_that_cuts_each_connection_is_dialed_at_a_bounded_pace_until_the_deadline) {
    struct place p;
    int n = 0;
    place(&p);
    dial(&p, 500);
    UNTIL(&p.t, (n += cut(&p), p.t.errors == 1));
    CHECK_EQ(p.t.error, WEFT_ERR_TIMED_OUT);
    CHECK(n >= 3 && n <= 11);
    CHECK(strstr(p.text, "connect.timeout") && strstr(p.text, "127.0.0.1"));
    end_place(&p);
}

TEST(an_endpoint_that_pauses_closes_at_once) {
    for (int mode = WEFT_CLOSE_FLUSH; mode <= WEFT_CLOSE_ABORT; mode++) {
        struct tally closed = {0};
        struct place p;
        place(&p);
        dial(&p, 0);
        until_paused(&p);
        CHECK_EQ(weft_ep_close(p.t.ep, (weft_close_mode_t)mode, OP(&closed)), WEFT_IN_PROGRESS);
        UNTIL(&p.t, closed.calls == 1);
        end_place(&p);
    }
}

/* Its message goes to the listener that stays. */
TEST(a_flushing_close_waits_for_the_connection) {
    struct tally closed = {0};
    struct place p;
    weft_listener_t *listener;
    place(&p);
    came = 0;
    CHECK_EQ(weft_am_handler_set(p.t.b, 1, on_am, NULL), 0);
    dial(&p, 0);
    CHECK(weft_am_send(p.t.ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    until_paused(&p);
    CHECK_EQ(weft_ep_close(p.t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_listen(p.t.b, p.by_fd, NULL, &listener), 0);
    UNTIL(&p.t, closed.calls == 1 && came == 1);
    CHECK_EQ(closed.status, WEFT_OK);
    end_place(&p);
}

TEST(a_worker_closes_beside_an_endpoint_that_pauses) {
    struct place p;
    place(&p);
    dial(&p, 0);
    until_paused(&p);
    end_place(&p);
}

/* As where no listener was open when the program connected. */
TEST(a_place_where_no_one_listens_any_more_ends_the_endpoint) {
    struct place p;
    place(&p);
    dial(&p, 0);
    until_paused(&p);
    close(p.fd);
    UNTIL(&p.t, p.t.errors == 1);
    CHECK_EQ(p.t.error, WEFT_ERR_REFUSED);
    p.fd = -1;
    end_place(&p);
}
