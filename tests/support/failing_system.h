/*
 * Functions of the C library that ask the kernel for something, of which one call fails, once
 * (failing.h). They take the place of the library's in the program that includes this file.
 */
#ifndef WEFT_TESTS_SUPPORT_FAILING_SYSTEM_H
#define WEFT_TESTS_SUPPORT_FAILING_SYSTEM_H

#include "failing.h"
#include <fcntl.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

/* CALL(TYPE, NAME, PARAMETERS, ARGUMENTS, ERROR) */
#define EACH_CALL(CALL)                                                                           \
    CALL(int, accept4, (int fd, struct sockaddr *at, socklen_t *len, int flags),                  \
         (SYS_accept4, fd, at, len, flags), EMFILE)                                               \
    CALL(int, bind, (int fd, const struct sockaddr *at, socklen_t len), (SYS_bind, fd, at, len),  \
         ENOMEM)                                                                                  \
    CALL(int, connect, (int fd, const struct sockaddr *at, socklen_t len),                        \
         (SYS_connect, fd, at, len), ENOBUFS)                                                     \
    CALL(int, dup, (int fd), (SYS_dup, fd), EMFILE)                                               \
    CALL(int, dup3, (int fd, int to, int flags), (SYS_dup3, fd, to, flags), EMFILE)               \
    CALL(int, epoll_create1, (int flags), (SYS_epoll_create1, flags), EMFILE)                     \
    CALL(int, epoll_ctl, (int fd, int op, int on, struct epoll_event *event),                     \
         (SYS_epoll_ctl, fd, op, on, event), ENOSPC)                                              \
    CALL(int, eventfd, (unsigned value, int flags), (SYS_eventfd2, value, flags), EMFILE)         \
    CALL(int, fallocate, (int fd, int mode, off_t at, off_t len),                                 \
         (SYS_fallocate, fd, mode, at, len), ENOSPC)                                              \
    CALL(int, ftruncate, (int fd, off_t len), (SYS_ftruncate, fd, len), ENOSPC)                   \
    CALL(int, getsockname, (int fd, struct sockaddr *at, socklen_t *len),                         \
         (SYS_getsockname, fd, at, len), ENOBUFS)                                                 \
    CALL(int, getpeername, (int fd, struct sockaddr *at, socklen_t *len),                         \
         (SYS_getpeername, fd, at, len), ENOBUFS)                                                 \
    CALL(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len),             \
         (SYS_getsockopt, fd, level, name, value, len), ENOMEM)                                   \
    CALL(int, listen, (int fd, int n), (SYS_listen, fd, n), ENOMEM)                               \
    CALL(int, memfd_create, (const char *name, unsigned flags), (SYS_memfd_create, name, flags),  \
         EMFILE)                                                                                  \
    CALL(int, pipe2, (int fds[2], int flags), (SYS_pipe2, fds, flags), EMFILE)                    \
    CALL(ssize_t, process_vm_readv,                                                               \
         (pid_t pid, const struct iovec *to, unsigned long n_to, const struct iovec *from,        \
          unsigned long n_from, unsigned long flags),                                             \
         (SYS_process_vm_readv, pid, to, n_to, from, n_from, flags), ENOMEM)                      \
    CALL(ssize_t, process_vm_writev,                                                              \
         (pid_t pid, const struct iovec *from, unsigned long n_from, const struct iovec *to,      \
          unsigned long n_to, unsigned long flags),                                               \
         (SYS_process_vm_writev, pid, from, n_from, to, n_to, flags), ENOMEM)                     \
    CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags),                           \
         (SYS_recvmsg, fd, message, flags), ENOMEM)                                               \
    CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),                     \
         (SYS_sendmsg, fd, message, flags), ENOBUFS)                                              \
    CALL(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len),        \
         (SYS_setsockopt, fd, level, name, value, len), ENOMEM)                                   \
    CALL(int, socket, (int family, int type, int protocol), (SYS_socket, family, type, protocol), \
         EMFILE)                                                                                  \
    CALL(int, socketpair, (int family, int type, int protocol, int fds[2]),                       \
         (SYS_socketpair, family, type, protocol, fds), EMFILE)                                   \
    CALL(int, timerfd_create, (int clock, int flags), (SYS_timerfd_create, clock, flags), EMFILE)

enum call {
#define CALL(type, name, parameters, arguments, error) CALL_##name,
    EACH_CALL(CALL)
#undef CALL
        CALL_mmap,
    CALL_open,
    N_CALLS
};

static const char *const call_name[] = {
#define CALL(type, name, parameters, arguments, error) #name,
    EACH_CALL(CALL)
#undef CALL
        "mmap",
    "open"};

#define EXPORTED __attribute__((visibility("default")))
#define CALL(type, name, parameters, arguments, error) \
    EXPORTED type name parameters {                    \
        if (fails_now(CALL_##name, error)) return -1;  \
        return (type)syscall arguments;                \
    }
EACH_CALL(CALL)
#undef CALL

EXPORTED void *mmap(void *at, size_t len, int rights, int flags, int fd, off_t offset) {
    if (fails_now(CALL_mmap, ENOMEM)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, len, rights, flags, fd, offset);
}

EXPORTED int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    if (fails_now(CALL_open, EMFILE)) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#endif
