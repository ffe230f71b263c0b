/*
 * The race between arming and sending, for as long as one likes: `wakeup-soak [MESSAGES]`, ten
 * million by default. Another process writes a word of shared memory and signals only when the
 * worker says that it sleeps; delays in each window make all orders of the two sides' steps happen.
 * The host is an edge-triggered epoll over the worker's fd: the least forgiving. A sleep of ten
 * seconds is a lost wakeup.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <base/counters.h>
#include <reactor/reactor.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SPIN_MS = 10000, REPORT_EVERY = 1000000 };

struct shared {
    _Alignas(64) atomic_long sent;
    _Alignas(64) atomic_int armed;
    _Alignas(64) atomic_long taken;
};

struct mailbox {
    struct poller poller;
    struct watch watch;
    struct shared *shared;
    long seen;
    unsigned seed;
};

/* None for one in eight, else up to half a microsecond. */
static void delay(unsigned *seed) {
    *seed = *seed * 1103515245 + 12345;
    for (volatile unsigned i = *seed >> 16 & 7 ? (*seed >> 20) & 255 : 0; i; i--)
        ;
}

static int poll_mailbox(struct poller *poller, unsigned budget) {
    struct mailbox *m = (struct mailbox *)poller;
    long sent = atomic_load_explicit(&m->shared->sent, memory_order_acquire), n = sent - m->seen;
    m->seen = sent;
    if (n) atomic_store(&m->shared->taken, sent);
    delay(&m->seed);
    return (int)n;
}

static bool arm_mailbox(struct poller *poller) {
    struct mailbox *m = (struct mailbox *)poller;
    delay(&m->seed);
    atomic_store_explicit(&m->shared->armed, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    delay(&m->seed);
    return atomic_load_explicit(&m->shared->sent, memory_order_acquire) == m->seen;
}

static void disarm_mailbox(struct poller *poller) {
    atomic_store_explicit(&((struct mailbox *)poller)->shared->armed, 0, memory_order_relaxed);
}

static void drain(struct watch *watch, int events) {
    uint64_t count;
    if (read(watch->fd, &count, sizeof count) < 0) return;
}

static _Noreturn void send_all(struct shared *shared, int event_fd, long messages) {
    unsigned seed = 4711;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (long i = 1; i <= messages; i++) {
        while (atomic_load(&shared->taken) != i - 1) sched_yield();
        delay(&seed);
        atomic_store_explicit(&shared->sent, i, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        uint64_t one = 1;
        if (atomic_exchange(&shared->armed, 0) && write(event_fd, &one, sizeof one) != sizeof one)
            _exit(1);
    }
    _exit(0);
}

static int receive_all(struct reactor *r, struct mailbox *m, long messages) {
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), fd = weft__reactor_fd(r);
    struct epoll_event event = {EPOLLIN | EPOLLET, {.fd = fd}};
    if (fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) return 1;
    for (long report = REPORT_EVERY; m->seen < messages;) {
        int n = epoll_wait(epoll_fd, &event, 1, SPIN_MS);
        if (n == 0) {
            printf("lost after %ld messages\n", m->seen);
            return 1;
        }
        delay(&m->seed);
        weft__reactor_progress(r, 0);
        if (m->seen < report) continue;
        fprintf(stderr, "%ld\n", m->seen);
        report += REPORT_EVERY;
    }
    close(epoll_fd);
    return 0;
}

int main(int argc, char **argv) {
    long messages = argc > 1 ? atol(argv[1]) : 10000000;
    struct mailbox m = {
        .poller = {.poll = poll_mailbox, .arm = arm_mailbox, .disarm = disarm_mailbox},
        .watch.ready = drain,
        .shared = shared_memory(sizeof(struct shared)),
        .seed = 1};
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fail_with_children();
    pid_t sender = fork();
    if (sender == 0) send_all(m.shared, event_fd, messages);
    weft_context_t *context;
    struct reactor *r;
    if (weft_context_create(NULL, &context) ||
        weft__reactor_create(context, &(struct reactor_params){0}, &r))
        return 1;
    weft__poller_add(r, &m.poller);
    if (weft__watch_start(r, &m.watch, event_fd, WATCH_READ)) return 1;
    double begin = now_ns();
    int failed = receive_all(r, &m, messages);
    if (failed) kill(sender, SIGKILL);
    waitpid(sender, NULL, 0);
    if (!failed)
        printf("{\"test\": \"wakeup_soak\", \"messages\": %ld, \"sleeps\": %lu, \"lost\": 0, "
               "\"seconds\": %.1f}\n",
               messages, (unsigned long)weft__count(r)->wakeups, (now_ns() - begin) / 1e9);
    weft__watch_stop(r, &m.watch);
    weft__poller_remove(r, &m.poller);
    weft__reactor_destroy(r);
    return weft_context_destroy(context) != WEFT_OK || failed;
}
