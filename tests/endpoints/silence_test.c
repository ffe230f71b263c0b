/* A host that says nothing is found by the kernel: each connection asks for that, both ends of it, as the setting says. */
#include "kill.h"

#include <netinet/tcp.h>

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    CHECK_EQ(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

static int all_connected(struct two *t, int *fd, const char *dead_after) {
    const weft_setting_t settings[] = {{"tcp.dead_after", dead_after}};
    two_workers(t, "tcp", settings, 1);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
    return connected(fd, 64);
}

TEST(connections_have_keep_alive_and_a_user_timeout) {
    struct two t;
    int fd[64], n = all_connected(&t, fd, "8s");
    CHECK_EQ(n, 2);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(option(fd[i], SOL_SOCKET, SO_KEEPALIVE), 1);
        CHECK_EQ(option(fd[i], IPPROTO_TCP, TCP_KEEPIDLE), 4);
        CHECK_EQ(option(fd[i], IPPROTO_TCP, TCP_USER_TIMEOUT), 8000);
    }
    two_down(&t);
}

TEST(without_the_setting_it_is_the_kernels_own_time) {
    struct two t;
    int fd[64], n = all_connected(&t, fd, "0");
    CHECK_EQ(n, 2);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(option(fd[i], SOL_SOCKET, SO_KEEPALIVE), 0);
        CHECK_EQ(option(fd[i], IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    }
    two_down(&t);
}
