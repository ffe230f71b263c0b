/* Sockets of this process that die, and two workers whose link survives that. */
#ifndef WEFT_TESTS_KILL_H
#define WEFT_TESTS_KILL_H

#include "two.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* ---- sockets that die ---------------------------------------------------------------------------------------- */

/* Connected ones of this process; both ends of each connection are among them. */
static inline int connected(int *fd, int most) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    for (struct dirent *e; dir && n < most && (e = readdir(dir)) != NULL;) {
        struct sockaddr_storage at;
        socklen_t len = sizeof at;
        int one = atoi(e->d_name);
        if (getpeername(one, (struct sockaddr *)&at, &len) == 0 && at.ss_family == AF_INET) fd[n++] = one;
    }
    closedir(dir);
    return n;
}

/* As if the kernel had lost it: with a reset, or with an end that nobody announced. */
static inline void kill_socket(int fd, bool reset) {
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    if (reset)
        connect(fd, &nobody, sizeof nobody);
    else
        shutdown(fd, SHUT_RDWR);
}

static inline int kill_one(unsigned random) {
    int fd[64], n = connected(fd, 64);
    if (n > 0) kill_socket(fd[random / 2 % (unsigned)n], random % 2);
    return n;
}

/* Both ends of all. */
static inline int kill_all(void) {
    int fd[64], n = connected(fd, 64);
    for (int i = 0; i < n; i++) kill_socket(fd[i], true);
    return n;
}

/* ---- two workers whose link survives ------------------------------------------------------------------------------ */

static inline void dial_surviving(struct two *t) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(two_b(t), address, &len), 0);
    weft_ep_params_t params = {
        .on_ready = two_on_ready, .on_error = two_on_error, .arg = t, .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, &t->ep), 0);
}

static inline void surviving(struct two *t, const weft_setting_t *settings, size_t n) {
    two_workers(t, "tcp", settings, n);
    dial_surviving(t);
    UNTIL(t, t->ready && t->back);
}

#endif
