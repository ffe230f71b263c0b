/* Connections within a host: whose the other end is, and what a relay gets that listens there. */
#define _GNU_SOURCE
#include <tests/support/worker_pair.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <transports/tcp/owner.h>

enum { NOOP = 65534, SECONDS = 20 };

static int bound(int family, bool to_device, union tcp_sockaddr *at) {
    socklen_t len = sizeof *at;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!weft__tcp_host_numeric(family == AF_INET ? "127.0.0.1" : "::1", 0, at)) return -1;
    if (to_device && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) < 0) return -1;
    if (bind(fd, &at->any, weft__tcp_sockaddr_len(at)) < 0 || getsockname(fd, &at->any, &len) < 0)
        return -1;
    return fd;
}

static void be_no_one(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(SECONDS);
    if (setresgid(NOOP, NOOP, NOOP) < 0 || setresuid(NOOP, NOOP, NOOP) < 0) _exit(1);
}

/* ---- who owns it */

/* What the kernel says of a peer of that user; `mapped`: its socket is one of IPv6. */
static enum tcp_owner asked_of(bool as_no_one, int family, bool to_device, bool mapped) {
    union tcp_sockaddr at, peer = {0};
    socklen_t len = sizeof peer;
    char byte;
    int l = bound(family, false, &at);
    if (l < 0) SKIP("no IPv6 here");
    CHECK_EQ(listen(l, 1), 0);
    pid_t child = fork();
    if (child == 0) {
        union tcp_sockaddr own, to = at;
        if (as_no_one) be_no_one();
        if (mapped) {
            to = (union tcp_sockaddr){.v6 = {.sin6_family = AF_INET6, .sin6_port = at.v4.sin_port}};
            inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.v6.sin6_addr);
        }
        int fd = mapped ? socket(AF_INET6, SOCK_STREAM, 0) : bound(family, to_device, &own);
        if (fd < 0 || connect(fd, &to.any, weft__tcp_sockaddr_len(&to)) < 0) _exit(1);
        _exit(read(fd, &byte, 1) < 0); /* until the other side is done */
    }
    CHECK_EQ(poll(&(struct pollfd){.fd = l, .events = POLLIN}, 1, SECONDS * 1000), 1);
    int fd = accept(l, &peer.any, &len);
    CHECK(fd >= 0);
    enum tcp_owner owner = weft__tcp_owner_of_peer(fd, &peer);
    close(fd);
    close(l);
    waitpid(child, NULL, 0);
    return owner;
}

TEST(a_peer_of_this_user_is_its_own) {
    CHECK_EQ(asked_of(false, AF_INET, false, false), TCP_OWNER_SELF);
    CHECK_EQ(asked_of(false, AF_INET, false, true), TCP_OWNER_SELF);
    CHECK_EQ(asked_of(false, AF_INET6, false, false), TCP_OWNER_SELF);
}

TEST(a_peer_of_another_user_is_known_as_such) {
    if (geteuid() != 0) SKIP("needs root to be two users");
    CHECK_EQ(asked_of(true, AF_INET, false, false), TCP_OWNER_OTHER);
    CHECK_EQ(asked_of(true, AF_INET, false, true), TCP_OWNER_OTHER);
    /* bound to the device, not to hide by that */
    CHECK_EQ(asked_of(true, AF_INET, true, false), TCP_OWNER_OTHER);
    CHECK_EQ(asked_of(true, AF_INET6, false, false), TCP_OWNER_OTHER);
}

/* ---- a relay */

static bool pass_on(int from, int to) {
    char bytes[4096];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    return n > 0 && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

/* A process, of another user or not, that passes on, both ways, what comes to one port, to
 * another port. */
static pid_t relay(const char *uri, char *via, size_t size, bool as_no_one) {
    union tcp_sockaddr at, to;
    int l = bound(AF_INET, false, &at);
    CHECK(l >= 0 && listen(l, 8) == 0);
    CHECK(weft__tcp_host_numeric("127.0.0.1", (uint16_t)atoi(strrchr(uri, ':') + 1), &to));
    snprintf(via, size, "tcp://127.0.0.1:%u", weft__tcp_sockaddr_port(&at));
    pid_t child = fork();
    if (child == 0) {
        if (as_no_one) be_no_one();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int in = accept(l, NULL, NULL), out = socket(AF_INET, SOCK_STREAM, 0);
            if (in < 0 || connect(out, &to.any, sizeof to.v4) < 0) _exit(1);
            struct pollfd fds[] = {{in, POLLIN, 0}, {out, POLLIN, 0}};
            bool going = true;
            while (going && poll(fds, 2, -1) > 0)
                going =
                    (!fds[0].revents || pass_on(in, out)) && (!fds[1].revents || pass_on(out, in));
            close(in);
            close(out);
        }
    }
    close(l);
    return child;
}

static void quiet(weft_log_level_t level, const char *room, const char *line, void *arg) {}

static void open_two(struct two *t, const weft_setting_t *settings, size_t n) {
    memset(t, 0, sizeof *t);
    weft_context_params_t context = {.settings = settings, .n_settings = n, .log = quiet};
    CHECK_EQ(weft_context_create(&context, &t->context), 0);
    weft_worker_params_t params = {.transports = "tcp",
                                   .on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = t};
    CHECK_EQ(weft_worker_create(t->context, &params, &t->a), 0);
    CHECK_EQ(weft_worker_create(t->context, &params, &t->b), 0);
}

static void connect_by(struct two *t, weft_worker_t *from, const char *uri) {
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = t};
    CHECK_EQ(weft_connect(from, uri, &params, &t->ep), 0);
    UNTIL(t, t->ready || t->errors);
}

TEST(a_relay_of_another_user_is_refused) {
    weft_listener_t *listener;
    struct two t;
    char via[64];
    if (geteuid() != 0) SKIP("needs root to be two users");
    open_two(&t, NULL, 0);
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", NULL, &listener), 0);
    pid_t child = relay(weft_listener_uri(listener), via, sizeof via, true);
    connect_by(&t, t.a, via);
    CHECK_EQ(t.ready, 0);
    CHECK_EQ(t.error, WEFT_ERR_AUTH);
    CHECK_EQ(t.endpoints, 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    two_down(&t);
}

/* A key file that is named is for its holders; who carries what they say is not asked. */
TEST(a_key_file_that_is_named_admits_other_users) {
    weft_listener_t *listener;
    struct two t;
    char via[64], path[] = "/tmp/weft_owner_key_XXXXXX";
    if (geteuid() != 0) SKIP("needs root to be two users");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd,
                           "\x12\x93\x04\xf5\xe6\x37\x28\xd9\xca\xbb\x5c\x6d\x7e\x8f\x90\xa1"
                           "\xb2\xc3\xd4\x45\x76\x17\x08\xf9\xea\xdb\xcc\xbd\xae\x9f\x80\x71",
                           32) == 32);
    close(fd);
    weft_setting_t key = {"tcp.key_file", path};
    open_two(&t, &key, 1);
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", NULL, &listener), 0);
    pid_t child = relay(weft_listener_uri(listener), via, sizeof via, true);
    connect_by(&t, t.a, via);
    CHECK_EQ(t.ready, 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    unlink(path);
    two_down(&t);
}

/* Also a relay of the same user: what it passes on is proved by the worker itself. */
TEST(a_relay_does_not_connect_a_worker_with_itself) {
    weft_listener_t *listener;
    struct two t;
    char via[64];
    open_two(&t, NULL, 0);
    CHECK_EQ(weft_listen(t.a, "tcp://127.0.0.1:0", NULL, &listener), 0);
    pid_t child = relay(weft_listener_uri(listener), via, sizeof via, false);
    connect_by(&t, t.a, via);
    CHECK_EQ(t.ready, 0);
    CHECK_EQ(t.error, WEFT_ERR_REFUSED);
    CHECK_EQ(t.endpoints, 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    two_down(&t);
}

/* Nothing is between the two ends of that. */
TEST(a_worker_may_dial_its_own_listener) {
    weft_listener_t *listener;
    struct two t;
    open_two(&t, NULL, 0);
    CHECK_EQ(weft_listen(t.a, "tcp://127.0.0.1:0", NULL, &listener), 0);
    connect_by(&t, t.a, weft_listener_uri(listener));
    CHECK_EQ(t.ready, 1);
    two_down(&t);
}
