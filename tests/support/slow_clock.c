/*
 * Preloaded into a test, it shows the test a slow machine: the clock runs WEFT_TEST_SLOW_CLOCK
 * (10) times as fast, and sleeps and time limits are as much shorter. So a limit that a machine
 * ten times slower would break is broken here, each time (tools/test slow).
 *
 * The monotonic clock and what follows it: the time of day is not changed.
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* The function behind the one of that name here. */
#define NEXT(name)                                                                \
    ({                                                                            \
        static __typeof__(name) *next;                                            \
        if (!next) next = (__typeof__(name) *)(uintptr_t)dlsym(RTLD_NEXT, #name); \
        next;                                                                     \
    })

static int64_t factor = 10;

static __attribute__((constructor(101))) void set_factor(void) {
    const char *set = getenv("WEFT_TEST_SLOW_CLOCK");
    if (set && atoi(set) > 0) factor = atoi(set);
}

static bool is_scaled(clockid_t clock) {
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
           clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME;
}

/* Of a clock since boot, 64 bits of ns suffice for 29 years, divided by the factor. */
static int64_t ns_of(const struct timespec *t) {
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}
static struct timespec time_of(int64_t ns) {
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}
static struct timespec of_ms(int ms) {
    return time_of((int64_t)(ms > 0 ? ms : 0) * 1000000);
}
static struct timespec shorter(const struct timespec *t) {
    return t->tv_sec > INT64_MAX / 1000000000 - 1 ? *t : time_of((ns_of(t) + factor - 1) / factor);
}
static struct timespec longer(const struct timespec *t) {
    return time_of(ns_of(t) * factor);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = NEXT(clock_gettime)(clock, t);
    if (result == 0 && is_scaled(clock)) *t = longer(t);
    return result;
}

/* ---- sleeps */

EXPORT int nanosleep(const struct timespec *t, struct timespec *left) {
    struct timespec real = shorter(t);
    int result = NEXT(nanosleep)(&real, left);
    if (result < 0 && left) *left = longer(left);
    return result;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t,
                           struct timespec *left) {
    struct timespec real = flags & TIMER_ABSTIME && !is_scaled(clock) ? *t : shorter(t);
    int result = NEXT(clock_nanosleep)(clock, flags, &real, left);
    if (result && left && !(flags & TIMER_ABSTIME)) *left = longer(left);
    return result;
}

EXPORT int usleep(useconds_t us) {
    struct timespec t = time_of((int64_t)us * 1000);
    return nanosleep(&t, NULL);
}

EXPORT unsigned sleep(unsigned seconds) {
    struct timespec t = {seconds, 0}, left;
    return nanosleep(&t, &left) < 0 ? (unsigned)left.tv_sec + 1 : 0;
}

/* ---- waits */

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask) {
    struct timespec real;
    if (t) real = shorter(t);
    return NEXT(ppoll)(fds, n, t ? &real : NULL, mask);
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int ms) {
    struct timespec t = of_ms(ms);
    return ppoll(fds, n, ms < 0 ? NULL : &t, NULL);
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *t,
                        const sigset_t *mask) {
    struct timespec real;
    if (t) real = shorter(t);
    return (int)syscall(SYS_epoll_pwait2, fd, events, n, t ? &real : NULL, mask, 8);
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int ms, const sigset_t *mask) {
    struct timespec t = of_ms(ms);
    return epoll_pwait2(fd, events, n, ms < 0 ? NULL : &t, mask);
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int n, int ms) {
    return epoll_pwait(fd, events, n, ms, NULL);
}

EXPORT int pselect(int n, fd_set *in, fd_set *out, fd_set *other, const struct timespec *t,
                   const sigset_t *mask) {
    struct timespec real;
    if (t) real = shorter(t);
    return NEXT(pselect)(n, in, out, other, t ? &real : NULL, mask);
}

EXPORT int select(int n, fd_set *in, fd_set *out, fd_set *other, struct timeval *t) {
    struct timespec given;
    if (t) given = (struct timespec){t->tv_sec, t->tv_usec * 1000};
    return pselect(n, in, out, other, t ? &given : NULL, NULL);
}

EXPORT int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until) {
    struct timespec real = is_scaled(clock) ? shorter(until) : *until;
    return NEXT(sem_clockwait)(sem, clock, &real);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                                  const struct timespec *until) {
    struct timespec real = is_scaled(clock) ? shorter(until) : *until;
    return NEXT(pthread_cond_clockwait)(cond, mutex, clock, &real);
}

/* Its clock is known to the condition alone. A time of day is far from any time since boot. */
EXPORT int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until) {
    struct timespec day;
    NEXT(clock_gettime)(CLOCK_REALTIME, &day);
    bool is_of_day = until->tv_sec > day.tv_sec / 2;
    return pthread_cond_clockwait(cond, mutex, is_of_day ? CLOCK_REALTIME : CLOCK_MONOTONIC, until);
}

/* ---- timers */

/* One that a change of the time of day cancels has the time of day. */
EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *t, struct itimerspec *old) {
    struct itimerspec real = {shorter(&t->it_interval), t->it_value};
    if (!(flags & TFD_TIMER_CANCEL_ON_SET)) real.it_value = shorter(&t->it_value);
    return NEXT(timerfd_settime)(fd, flags, &real, old);
}

EXPORT int timer_settime(timer_t timer, int flags, const struct itimerspec *t,
                         struct itimerspec *old) {
    struct itimerspec real = {shorter(&t->it_interval), t->it_value};
    if (!(flags & TIMER_ABSTIME)) real.it_value = shorter(&t->it_value);
    return NEXT(timer_settime)(timer, flags, &real, old);
}

static struct timeval shorter_us(struct timeval t) {
    struct timespec given = {t.tv_sec, t.tv_usec * 1000}, real = shorter(&given);
    return (struct timeval){real.tv_sec, (real.tv_nsec + 999) / 1000};
}

EXPORT int setitimer(__itimer_which_t which, const struct itimerval *t, struct itimerval *old) {
    struct itimerval real = *t;
    if (which == ITIMER_REAL)
        real = (struct itimerval){shorter_us(t->it_interval), shorter_us(t->it_value)};
    return NEXT(setitimer)(which, &real, old);
}

EXPORT unsigned alarm(unsigned seconds) {
    struct itimerval t = {.it_value = {seconds, 0}}, old;
    setitimer(ITIMER_REAL, &t, &old);
    return (unsigned)old.it_value.tv_sec;
}
