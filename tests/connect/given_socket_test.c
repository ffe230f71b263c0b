/* Endpoints over TCP sockets that the program has connected itself. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <tests/support/worker_pair.h>
#include <unistd.h>

struct given {
    struct two t;
    weft_listener_t *listener;
    char uri[160];
};

static void up(struct given *g) {
    weft_setting_t settings[] = {{"close.timeout", "50ms"}, {"log.level", "none"}};
    memset(g, 0, sizeof *g);
    two_workers(&g->t, "tcp", settings, 2);
    weft_listen_params_t params = {.on_endpoint = two_on_endpoint, .arg = &g->t};
    CHECK_EQ(weft_listen(g->t.b, "tcp://127.0.0.1:0", &params, &g->listener), WEFT_OK);
    snprintf(g->uri, sizeof g->uri, "%s", weft_listener_uri(g->listener));
}

static int connected_to(const char *uri) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_port = htons((uint16_t)atoi(strrchr(uri, ':') + 1));
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

/* A socket of the program's own, and its URI. */
static int listening_at(char uri[64]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 4) == 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(uri, 64, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static void dial_by(struct given *g, int fd) {
    char uri[32];
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &g->t};
    snprintf(uri, sizeof uri, "tcp://@%d", fd);
    CHECK_EQ(weft_connect(g->t.a, uri, &params, &g->t.ep), WEFT_OK);
}

static void a_message_crosses(struct given *g) {
    struct tally sent = {0}, received = {0};
    char in[6] = "";
    CHECK_EQ(weft_tag_recv(g->t.b, 1, UINT64_MAX, &(weft_iov_t){in, 6}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    weft_status_t st = weft_tag_send(g->t.ep, 1, &(weft_iov_t){(char[]){"hello"}, 6}, 1, OP(&sent));
    CHECK(st >= 0);
    UNTIL(&g->t, received.calls == 1);
    CHECK(received.status == WEFT_OK && strcmp(in, "hello") == 0);
}

TEST(an_endpoint_uses_a_socket_that_is_connected_already) {
    struct given g;
    up(&g);
    int fd = connected_to(g.uri);
    dial_by(&g, fd);
    UNTIL(&g.t, g.t.ready && g.t.back);
    close(fd);
    a_message_crosses(&g);
    two_down(&g.t);
}

/* The program accepts at a socket of its own, and hands the connection to the listener. */
TEST(a_listener_adopts_a_connection_that_the_program_accepted) {
    struct given g;
    char own[64];
    up(&g);
    int door = listening_at(own);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &g.t};
    CHECK_EQ(weft_connect(g.t.a, own, &params, &g.t.ep), WEFT_OK);
    int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    CHECK_EQ(weft_listener_adopt(g.listener, fd), WEFT_OK);
    close(fd);
    UNTIL(&g.t, g.t.ready && g.t.back);
    a_message_crosses(&g);
    close(door);
    two_down(&g.t);
}

TEST(two_sockets_with_one_number_are_two_connections) {
    struct given g;
    weft_ep_t *first;
    up(&g);
    int fd = connected_to(g.uri);
    dial_by(&g, fd);
    first = g.t.ep;
    UNTIL(&g.t, g.t.ready == 1);
    close(fd);
    int again = connected_to(g.uri);
    CHECK_EQ(again, fd);
    dial_by(&g, again);
    CHECK(g.t.ep != first);
    UNTIL(&g.t, g.t.ready == 2 && g.t.endpoints == 2);
    close(again);
    a_message_crosses(&g);
    two_down(&g.t);
}

TEST(a_given_socket_whose_peer_is_gone_is_not_dialed_again) {
    struct given g;
    char own[64];
    up(&g);
    int door = listening_at(own);
    int fd = connected_to(own), other = accept(door, NULL, NULL);
    dial_by(&g, fd);
    two_turn(&g.t);
    close(other);
    UNTIL(&g.t, g.t.errors == 1);
    CHECK_EQ(g.t.error, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_ep_close(g.t.ep, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    close(fd);
    close(door);
    two_down(&g.t);
}

TEST(what_is_no_connected_socket_is_refused) {
    struct given g;
    weft_ep_t *ep;
    char uri[32];
    int fds[2];
    up(&g);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    snprintf(uri, sizeof uri, "tcp://@%d", fds[0]);
    CHECK_EQ(weft_connect(g.t.a, uri, NULL, &ep), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_connect(g.t.a, "tcp://@9999", NULL, &ep), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_connect(g.t.a, "tcp://@", NULL, &ep), WEFT_ERR_ADDRESS);
    CHECK_EQ(weft_listener_adopt(g.listener, fds[0]), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_listener_adopt(g.listener, -1), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_listener_adopt(NULL, fds[0]), WEFT_ERR_INVALID_PARAM);
    close(fds[0]);
    close(fds[1]);
    two_down(&g.t);
}
