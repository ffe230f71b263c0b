/*
 * A TCP port of 127.0.0.1 that no other process is given while a test uses it. Nothing listens
 * there; a socket with SO_REUSEADDR may bind to it and listen.
 */
#ifndef WEFT_TESTS_SUPPORT_RESERVED_PORT_H
#define WEFT_TESTS_SUPPORT_RESERVED_PORT_H

#include <arpa/inet.h>
#include <sys/socket.h>
#include <tests/harness.h>
#include <unistd.h>

/* `fd` keeps the port until it is closed. */
struct reserved_port {
    int fd;
    uint16_t port;
};

static inline struct reserved_port port_reserve(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    return (struct reserved_port){fd, ntohs(at.sin_port)};
}

#endif
