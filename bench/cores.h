/*
 * What the bench's programs share: the two cores they use, a clock, an order of figures, memory
 * that a fork sees.
 */
#ifndef WEFT_BENCH_CORES_H
#define WEFT_BENCH_CORES_H

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static inline double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* The smallest first: then the median is v[n / 2]. */
static inline void sort_figures(double *v, size_t n) {
    qsort(v, n, sizeof *v, by_value);
}

/* To the `place`-th core that this process may use. */
static inline void pin(int place) {
    cpu_set_t allowed, chosen;
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0) exit(1);
    CPU_ZERO(&chosen);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && place-- == 0) CPU_SET(core, &chosen);
    if (sched_setaffinity(0, sizeof chosen, &chosen) < 0) {
        perror("pin: two cores are needed");
        exit(1);
    }
}

static inline void on_child_end(int signo, siginfo_t *child, void *context) {
    (void)signo, (void)context;
    if (child->si_code == CLD_EXITED ? child->si_status != 0 : child->si_status != SIGKILL)
        _exit(1);
}
/* Before a fork: a process that fails ends this one, which would wait for it for ever. One that
 * this process kills has not failed. */
static inline void fail_with_children(void) {
    struct sigaction how = {.sa_sigaction = on_child_end,
                            .sa_flags = SA_SIGINFO | SA_NOCLDSTOP | SA_RESTART};
    sigaction(SIGCHLD, &how, NULL);
}

static inline void *shared_memory(size_t size) {
    void *p =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

#endif
