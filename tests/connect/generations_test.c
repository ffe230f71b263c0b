/* One address, and two generations of a server: who connects while the old one goes is let in. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <tests/support/worker_pair.h>
#include <unistd.h>

enum { CLIENTS = 20 };

struct generations {
    struct two t; /* b is the old server */
    weft_worker_t *next, *client[CLIENTS];
    weft_listener_t *old_listener, *next_listener;
    int at_old, at_next;
    int n_warned; /* of a connection that was lost, with its endpoints */
};

static void on_old(weft_ep_t *ep, void *arg) {
    ((struct generations *)arg)->at_old++;
}
static void on_next(weft_ep_t *ep, void *arg) {
    ((struct generations *)arg)->at_next++;
}

static void on_log(weft_log_level_t level, const char *room, const char *line, void *arg) {
    if (strstr(line, "lost a connection and its")) ((struct generations *)arg)->n_warned++;
}

static void servers(struct generations *g) {
    weft_setting_t settings[] = {{"close.timeout", "50ms"}, {"log.level", "warn"}};
    weft_context_params_t context = {
        .settings = settings, .n_settings = 2, .log = on_log, .log_arg = g};
    memset(g, 0, sizeof *g);
    two_workers_of(&g->t, "tcp", &context);
    weft_worker_params_t params = {.transports = "tcp"};
    CHECK_EQ(weft_worker_create(g->t.context, &params, &g->next), WEFT_OK);
}

static void turn(struct generations *g) {
    two_turn(&g->t);
    weft_worker_progress(g->next, 0);
    for (int i = 0; i < CLIENTS; i++)
        if (g->client[i]) weft_worker_progress(g->client[i], 0);
}

/* The old listener closes after `turns` turns, when some have connected and some have not. */
static void handed_over(struct generations *g, int turns) {
    char uri[160];
    weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &g->t};
    snprintf(uri, sizeof uri, "%s", weft_listener_uri(g->old_listener));
    CHECK(!strcmp(uri, weft_listener_uri(g->next_listener)));
    for (int i = 0; i < CLIENTS; i++) {
        weft_ep_t *ep;
        weft_worker_params_t params = {.transports = "tcp"};
        CHECK_EQ(weft_worker_create(g->t.context, &params, &g->client[i]), WEFT_OK);
        CHECK_EQ(weft_connect(g->client[i], uri, &ours, &ep), WEFT_OK);
        if (i == turns) weft_listener_close(g->old_listener);
        turn(g);
    }
    double end = test_now() + test_timeout(60);
    while (g->t.ready + g->t.errors < CLIENTS && test_now() < end) turn(g);
    if (g->t.errors) printf("  %s\n", weft_status_name(g->t.error));
    CHECK_EQ(g->t.errors, 0);
    CHECK_EQ(g->t.ready, CLIENTS);
    CHECK_EQ(g->n_warned, 0); /* no endpoint was lost, whatever connection was */
    CHECK(g->at_next >= CLIENTS - turns - 1);
    for (int i = 0; i < CLIENTS; i++) weft_worker_destroy(g->client[i]);
    weft_worker_destroy(g->next);
    two_down(&g->t);
}

TEST(listeners_of_two_processes_share_an_address) {
    for (int turns = 0; turns < CLIENTS; turns += 3) {
        struct generations g;
        char uri[160];
        servers(&g);
        weft_listen_params_t old = {.on_endpoint = on_old, .arg = &g, .shared = 1};
        weft_listen_params_t next = {.on_endpoint = on_next, .arg = &g, .shared = 1};
        CHECK_EQ(weft_listen(g.t.b, "tcp://127.0.0.1:0", &old, &g.old_listener), WEFT_OK);
        snprintf(uri, sizeof uri, "%s", weft_listener_uri(g.old_listener));
        CHECK_EQ(weft_listen(g.next, uri, &next, &g.next_listener), WEFT_OK);
        handed_over(&g, turns);
    }
}

static int listening_socket(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 128) == 0);
    return fd;
}

TEST(an_inherited_socket_goes_from_one_generation_to_the_next) {
    for (int turns = 0; turns < CLIENTS; turns += 3) {
        struct generations g;
        char uri[32];
        int fd = listening_socket();
        servers(&g);
        weft_listen_params_t old = {.on_endpoint = on_old, .arg = &g};
        weft_listen_params_t next = {.on_endpoint = on_next, .arg = &g};
        snprintf(uri, sizeof uri, "tcp://@%d", fd);
        CHECK_EQ(weft_listen(g.t.b, uri, &old, &g.old_listener), WEFT_OK);
        CHECK_EQ(weft_listen(g.next, uri, &next, &g.next_listener), WEFT_OK);
        handed_over(&g, turns);
        close(fd);
    }
}

/*
 * A client that is connected to the old server asks for more when that one listens no more. It
 * reaches the next one, by one connection, and what it has with the old one goes on.
 */
TEST(a_connected_client_reaches_the_next_generation) {
    struct generations g;
    weft_ep_t *ep[3];
    weft_ep_info_t info;
    char uri[160], by_fd[32];
    int fd = listening_socket();
    servers(&g);
    weft_listen_params_t old = {.on_endpoint = on_old, .arg = &g};
    weft_listen_params_t next = {.on_endpoint = on_next, .arg = &g};
    weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &g.t};
    snprintf(by_fd, sizeof by_fd, "tcp://@%d", fd);
    CHECK_EQ(weft_listen(g.t.b, by_fd, &old, &g.old_listener), WEFT_OK);
    snprintf(uri, sizeof uri, "%s", weft_listener_uri(g.old_listener));
    CHECK_EQ(weft_connect(g.t.a, uri, &ours, &ep[0]), WEFT_OK);
    UNTIL(&g.t, g.t.ready == 1 && g.at_old == 1);

    CHECK_EQ(weft_listen(g.next, by_fd, &next, &g.next_listener), WEFT_OK);
    weft_listener_close(g.old_listener);
    for (int i = 1; i < 3; i++) CHECK_EQ(weft_connect(g.t.a, uri, &ours, &ep[i]), WEFT_OK);
    CHECK(weft_tag_send(ep[1], 7, NULL, 0, NULL) >= 0); /* waits for the peer's half */
    double end = test_now() + test_timeout(60);
    while (g.t.ready + g.t.errors < 3 && test_now() < end) turn(&g);
    CHECK_EQ(g.t.errors, 0);
    CHECK_EQ(g.at_old, 1);
    CHECK_EQ(g.at_next, 2);
    while (weft_tag_probe(g.next, 7, ~0ull, NULL) != WEFT_OK && test_now() < end) turn(&g);
    CHECK_EQ(weft_tag_probe(g.next, 7, ~0ull, NULL), WEFT_OK);
    CHECK_EQ(weft_ep_describe(ep[2], &info), WEFT_OK);
    CHECK_EQ(info.n_endpoints, 2);
    CHECK_EQ(weft_tag_send(ep[0], 8, NULL, 0, NULL), WEFT_OK);
    UNTIL(&g.t, weft_tag_probe(g.t.b, 8, ~0ull, NULL) == WEFT_OK);
    close(fd);
    weft_worker_destroy(g.next);
    two_down(&g.t);
}

/* Two servers go while a client connects, one by its listener and one with its worker. */
static void two_servers_go(int listener_at, int worker_at) {
    struct generations g;
    weft_listener_t *last_listener;
    weft_worker_t *last;
    weft_ep_t *ep;
    weft_worker_params_t params = {.transports = "tcp"};
    weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &g.t};
    char by_fd[32];
    int fd = listening_socket();
    servers(&g);
    snprintf(by_fd, sizeof by_fd, "tcp://@%d", fd);
    CHECK_EQ(weft_listen(g.t.b, by_fd, NULL, &g.old_listener), WEFT_OK);
    CHECK_EQ(weft_connect(g.t.a, weft_listener_uri(g.old_listener), &ours, &ep), WEFT_OK);
    CHECK_EQ(weft_worker_create(g.t.context, &params, &last), WEFT_OK);
    for (int i = 0; i < 12; i++) {
        if (i == listener_at) {
            CHECK_EQ(weft_listen(g.next, by_fd, NULL, &g.next_listener), WEFT_OK);
            weft_listener_close(g.old_listener);
        }
        if (i == worker_at) {
            CHECK_EQ(weft_listen(last, by_fd, NULL, &last_listener), WEFT_OK);
            weft_op_t op = {.done = two_gone, .arg = &g.next};
            CHECK_EQ(weft_worker_close(g.next, &op), WEFT_IN_PROGRESS);
        }
        weft_worker_progress(g.t.a, 0);
        weft_worker_progress(g.t.b, 0);
        if (g.next) weft_worker_progress(g.next, 0);
        if (i >= worker_at) weft_worker_progress(last, 0);
    }
    double end = test_now() + test_timeout(60);
    while ((!g.t.ready && !g.t.errors) || g.next) {
        CHECK(test_now() < end);
        weft_worker_progress(g.t.a, 0);
        weft_worker_progress(g.t.b, 0);
        if (g.next) weft_worker_progress(g.next, 0);
        weft_worker_progress(last, 0);
    }
    CHECK(g.t.ready || g.t.error != WEFT_ERR_REFUSED);
    weft_worker_destroy(last);
    two_down(&g.t);
    close(fd);
}
TEST(a_client_is_not_refused_while_generations_follow_each_other) {
    for (int listener_at = 0; listener_at < 8; listener_at++)
        for (int worker_at = listener_at; worker_at < 12; worker_at++)
            two_servers_go(listener_at, worker_at);
}

static void no_one_comes_after(const char *transport, const char *uri) {
    struct two t;
    weft_ep_t *ep;
    weft_listener_t *listener;
    char at[160];
    weft_setting_t settings[] = {{"close.timeout", "50ms"}, {"log.level", "none"}};
    weft_ep_params_t ours = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    two_workers(&t, transport, settings, 2);
    CHECK_EQ(weft_listen(t.b, uri, NULL, &listener), WEFT_OK);
    snprintf(at, sizeof at, "%s", weft_listener_uri(listener));
    CHECK_EQ(weft_connect(t.a, at, &ours, &ep), WEFT_OK);
    UNTIL(&t, t.ready == 1);
    weft_listener_close(listener);
    CHECK_EQ(weft_connect(t.a, at, &ours, &ep), WEFT_OK);
    UNTIL(&t, t.errors == 1);
    CHECK_EQ(t.error, WEFT_ERR_REFUSED);
    CHECK_EQ(t.ready, 1);
    two_down(&t);
}
TEST(a_connected_client_is_refused_where_no_generation_follows_tcp) {
    no_one_comes_after("tcp", "tcp://127.0.0.1:0");
}
TEST(a_connected_client_is_refused_where_no_generation_follows_shm) {
    no_one_comes_after("shm", "shm://generation-without-a-next");
}

TEST(what_cannot_be_shared_is_refused) {
    struct generations g;
    weft_listener_t *listener;
    char uri[32];
    int fds[2];
    weft_listen_params_t shared = {.shared = 1};
    servers(&g);
    CHECK_EQ(weft_listen(g.t.b, "tcp://127.0.0.1:0", &shared, &listener), WEFT_OK);
    CHECK_EQ(weft_listen(g.next, weft_listener_uri(listener), NULL, &listener), WEFT_ERR_EXISTS);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    snprintf(uri, sizeof uri, "tcp://@%d", fds[0]);
    CHECK_EQ(weft_listen(g.t.b, uri, NULL, &listener), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_listen(g.t.b, "tcp://@9999", NULL, &listener), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_listen(g.t.b, "tcp://@x", NULL, &listener), WEFT_ERR_ADDRESS);
    close(fds[0]);
    close(fds[1]);
    weft_worker_destroy(g.next);
    two_down(&g.t);
}

TEST(shared_memory_has_one_listener_a_name) {
    struct two t;
    weft_listener_t *listener;
    weft_setting_t quiet = {"log.level", "none"};
    two_workers(&t, "shm", &quiet, 1);
    CHECK_EQ(weft_listen(t.b, "shm://generation", &(weft_listen_params_t){.shared = 1}, &listener),
             WEFT_ERR_UNSUPPORTED);
    two_down(&t);
}
