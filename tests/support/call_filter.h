/* Filters of system calls (seccomp), which stay until the process ends. */
#ifndef WEFT_TESTS_SUPPORT_CALL_FILTER_H
#define WEFT_TESTS_SUPPORT_CALL_FILTER_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* False where the kernel has no filters. */
static inline bool filter_install(struct sock_filter *filter, size_t n) {
    struct sock_fprog program = {(unsigned short)n, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* From now on that call fails with `error`. */
static inline bool filter_refuse(unsigned call, unsigned error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return filter_install(filter, sizeof filter / sizeof *filter);
}

#endif
