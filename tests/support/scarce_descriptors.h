/* A process that can open few descriptors, or none. */
#ifndef WEFT_TESTS_SCARCE_DESCRIPTORS_H
#define WEFT_TESTS_SCARCE_DESCRIPTORS_H

#include <fcntl.h>
#include <sys/resource.h>
#include <tests/harness.h>
#include <unistd.h>

static struct rlimit descriptors_before;

/* From now on so many can be opened, at most 31, until `descriptors_give_back`. */
static inline void descriptors_leave(int n) {
    struct rlimit limit;
    int fd[32];
    CHECK(n < 32);
    for (int i = 0; i <= n; i++) CHECK((fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    for (int i = 0; i <= n; i++) close(fd[i]);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &descriptors_before), 0);
    limit = (struct rlimit){(rlim_t)fd[n], descriptors_before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static inline void descriptors_give_back(void) {
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &descriptors_before), 0);
}

#endif
