/* What a peer that keeps to no rules says on the socket of an attachment, descriptors included. */
#ifndef WEFT_TESTS_TRANSPORTS_SHM_SEND_RAW_H
#define WEFT_TESTS_TRANSPORTS_SHM_SEND_RAW_H

#include "../harness.h"
#include <stdint.h>
#include <sys/socket.h>
#include <tests/support/descriptors.h>

enum { SEND_FDS = 16 };

static inline void send_on(int socket, const void *data, size_t len, const int *fds, int n) {
    char control[CMSG_SPACE(SEND_FDS * sizeof(int))] = {0};
    struct iovec iov = {(void *)(uintptr_t)data, len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
    }
    CHECK_EQ(sendmsg(socket, &m, MSG_NOSIGNAL), len);
}

#endif
