/* A transport that fails while it connects to a worker's address is followed by the next one that
 * reaches the worker. The error of the last one names all of them. */
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <tests/support/failing_system.h>
#include <tests/support/worker_pair.h>
#include <transports/shm/attach/handshake.h>
#include <unistd.h>

enum { ENDPOINTS = 8 };

/* Two workers, and the address of b, whose sockets of shared memory are in a directory of their
 * own. */
struct places {
    struct two t;
    char directory[64], address[256], text[1024];
    size_t len;
    weft_ep_t *ep[ENDPOINTS];
};

static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct places *p = arg;
    p->t.errors++;
    p->t.error = status;
    weft_status_describe(status, p->text, sizeof p->text);
}

static void places(struct places *p, const char *transports) {
    memset(p, 0, sizeof *p);
    strcpy(p->directory, "/tmp/weft-test-XXXXXX");
    CHECK(mkdtemp(p->directory));
    weft_setting_t settings[] = {
        {"shm.directory", p->directory}, {"log.level", "none"}, {"lanes.switch", "off"}};
    two_workers(&p->t, transports, settings, 3);
    p->len = sizeof p->address;
    CHECK_EQ(weft_worker_address(p->t.b, p->address, &p->len), 0);
}

static weft_status_t dial(struct places *p, int nth) {
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = on_error, .arg = p};
    return weft_connect_address(p->t.a, p->address, p->len, &params, &p->ep[nth]);
}

static void end_places(struct places *p) {
    two_down(&p->t);
    CHECK_EQ(rmdir(p->directory), 0);
}

/* The only socket of the directory: b's own. */
static struct sockaddr_un socket_of_b(const struct places *p) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    DIR *dir = opendir(p->directory);
    CHECK(dir != NULL);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (*e->d_name != '.')
            CHECK((size_t)snprintf(at.sun_path, sizeof at.sun_path, "%s/%.40s", p->directory,
                                   e->d_name) < sizeof at.sun_path);
    closedir(dir);
    CHECK(*at.sun_path != 0);
    return at;
}

/* Another listener has the place of b. */
static int take_place(const struct sockaddr_un *at) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    unlink(at->sun_path);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 8) == 0);
    return fd;
}

/* It accepts one connection, reads the handshake, says no, or nothing (WEFT_OK), and hangs up. */
static int refuse(int listening, weft_status_t status) {
    char handshake[512];
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return 0;
    CHECK(recv(fd, handshake, sizeof handshake, 0) > 0);
    if (status < 0) CHECK_EQ(weft__shm_send_word(fd, SHM_NO, status), WEFT_OK);
    close(fd);
    return 1;
}

/* ---- another transport connects ---- */

static void connected_by(struct places *p, int nth, const char *transport, const char *why) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(p->ep[nth], &info), WEFT_OK);
    CHECK(strcmp(info.connected_by, transport) == 0);
    CHECK(strstr(info.why, why) != NULL);
}

TEST(a_refused_call_is_followed_by_the_next_transport) {
    static const enum call calls[] = {CALL_socket, CALL_connect, CALL_getsockopt};
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct places p;
        places(&p, "shm,tcp");
        fail_next(calls[i]);
        CHECK_EQ(dial(&p, 0), WEFT_OK);
        CHECK(failing->failed);
        UNTIL(&p.t, p.t.ready == 1 && p.t.endpoints == 1);
        connected_by(&p, 0, "tcp", "it failed to connect");
        end_places(&p);
    }
}

static void next_after(weft_status_t status) {
    struct places p;
    places(&p, "shm,tcp");
    struct sockaddr_un at = socket_of_b(&p);
    int listening = take_place(&at), refused = 0;
    for (int i = 0; i < ENDPOINTS; i++) CHECK_EQ(dial(&p, i), WEFT_OK);
    UNTIL(&p.t, (refused += refuse(listening, status)) && p.t.ready == ENDPOINTS);
    CHECK_EQ(p.t.errors, 0);
    CHECK_EQ(refused, 1); /* of the connection that they shared, as they share the next */
    for (int i = 0; i < ENDPOINTS; i++) connected_by(&p, i, "tcp", "it failed to connect");
    close(listening);
    end_places(&p);
}
TEST(a_connection_that_breaks_early_is_followed_by_the_next_transport) {
    next_after(WEFT_OK);
}
TEST(a_peer_without_memory_is_reached_by_the_next_transport) {
    next_after(WEFT_ERR_NO_MEMORY);
}

/* What is sent before the endpoint is connected goes by the next transport. */
static int came;
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    came++;
}
TEST(messages_wait_for_the_transport_that_connects) {
    struct places p;
    places(&p, "shm,tcp");
    struct sockaddr_un at = socket_of_b(&p);
    int listening = take_place(&at);
    came = 0;
    CHECK_EQ(weft_am_handler_set(p.t.b, 1, on_am, NULL), 0);
    CHECK_EQ(dial(&p, 0), WEFT_OK);
    for (int i = 0; i < 3; i++) CHECK(weft_am_send(p.ep[0], 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&p.t, (refuse(listening, WEFT_OK), came == 3));
    close(listening);
    end_places(&p);
}

/* ---- none connects ---- */

/* b is gone, and another listener has its place in the directory. */
static int only_places_are_left(struct places *p, struct sockaddr_un *at_p) {
    *at_p = socket_of_b(p);
    weft_worker_destroy(p->t.b);
    p->t.b = NULL;
    return take_place(at_p);
}

TEST(the_error_names_each_transport_and_why_it_failed) {
    struct places p;
    struct sockaddr_un at;
    weft_ep_info_t info;
    places(&p, "shm,tcp");
    int listening = only_places_are_left(&p, &at);
    CHECK_EQ(dial(&p, 0), WEFT_OK);
    UNTIL(&p.t, (refuse(listening, WEFT_OK), p.t.errors == 1));
    CHECK_EQ(p.t.error, WEFT_ERR_REFUSED); /* of the last one */
    const char *shm = strstr(p.text, "(shm)"), *tcp = strstr(p.text, "(tcp)");
    CHECK(shm && tcp && shm < tcp);
    CHECK(strstr(shm, "closed its socket without a goodbye") && strstr(tcp, "refused"));
    CHECK_EQ(weft_ep_describe(p.ep[0], &info), WEFT_OK);
    CHECK(strstr(info.error, "(shm)") && strstr(info.error, "(tcp)"));
    close(listening);
    unlink(at.sun_path);
    end_places(&p);
}

/* No descriptor is left. */
TEST(calls_that_fail_on_all_transports_are_named_in_turn) {
    struct places p;
    struct rlimit most;
    char text[1024];
    places(&p, "shm,tcp");
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &most), 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, most.rlim_max}), 0);
    weft_status_t st = dial(&p, 0);
    weft_status_describe(st, text, sizeof text);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &most), 0);
    CHECK(st < 0);
    CHECK(strstr(text, "connection by shm: ") && strstr(text, "connection by tcp: "));
    end_places(&p);
}

/* A peer that answered so has decided: another way to it changes nothing. */
TEST(a_peer_of_another_version_is_not_asked_by_another_transport) {
    struct places p;
    places(&p, "shm,tcp");
    struct sockaddr_un at = socket_of_b(&p);
    int listening = take_place(&at);
    CHECK_EQ(dial(&p, 0), WEFT_OK);
    UNTIL(&p.t, (refuse(listening, WEFT_ERR_VERSION), p.t.errors == 1));
    CHECK_EQ(p.t.error, WEFT_ERR_VERSION);
    CHECK_EQ(p.t.endpoints, 0);
    close(listening);
    end_places(&p);
}

TEST(a_worker_that_closes_tries_no_other_transport) {
    struct places p;
    places(&p, "shm,tcp");
    struct sockaddr_un at = socket_of_b(&p);
    int listening = take_place(&at);
    CHECK_EQ(dial(&p, 0), WEFT_OK);
    weft_worker_destroy(p.t.a);
    p.t.a = NULL;
    CHECK_EQ(p.t.endpoints, 0);
    close(listening);
    end_places(&p);
}
