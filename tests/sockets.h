/* Sockets of this process that die, and what the system has for new ones. */
#ifndef WEFT_TESTS_SOCKETS_H
#define WEFT_TESTS_SOCKETS_H

#include <dirent.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connected ones of this process; both ends of each connection are among them. */
static inline int connected(int *fd, int most) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    for (struct dirent *e; dir && n < most && (e = readdir(dir)) != NULL;) {
        struct sockaddr_storage at = {0};
        socklen_t len = sizeof at;
        int one = atoi(e->d_name);
        if (getpeername(one, (struct sockaddr *)&at, &len) == 0 && at.ss_family == AF_INET)
            fd[n++] = one;
    }
    closedir(dir);
    return n;
}

/* As if the kernel had lost it: with a reset, or with an unannounced end. */
static inline void kill_socket(int fd, bool reset) {
    struct sockaddr unspecified = {.sa_family = AF_UNSPEC};
    if (reset)
        connect(fd, &unspecified, sizeof unspecified);
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

/* A loopback of less than 1,280 bytes has none. */
static inline bool have_ipv6(void) {
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool have = fd >= 0 && bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0;
    if (fd >= 0) close(fd);
    return have;
}

#endif
