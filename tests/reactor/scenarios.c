/* The wakeup contract, promise by promise, in any host. */
#include <base/counters.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "hosts.h"
#include <tests/support/clock.h>

enum { TIMEOUT_MS = 20000, RACE_MESSAGES = 100000 };

static weft_context_t *context;

static void open_host(struct host *host, const struct host *kind) {
    *host = *kind;
    struct reactor_params params = {.loop = kind->native ? kind->native(host) : NULL,
                                    .max_fds = 256};
    if (weft_context_create(NULL, &context) || weft__reactor_create(context, &params, &host->r))
        abort();
    host->open(host);
}

/* Until the host has nothing more to report. */
static void settle(struct host *host) {
    for (unsigned before = host->reports + 1; before != host->reports && !host->native;) {
        before = host->reports;
        host->step(host, host->report_ms);
    }
    for (int i = 0; i < 4 && host->native; i++) host->step(host, 0);
}

static const char *close_host(struct host *host, const char *verdict) {
    weft__reactor_destroy(host->r);
    host->close(host);
    if (weft_context_destroy(context)) abort();
    return verdict;
}

/* True when `*counter` reached `value` without a lost wakeup: no single sleep may take the
 * host's timeout. */
static bool steps_until(struct host *host, const volatile int *counter, int value) {
    while (*counter < value) {
        uint64_t begin = test_now_ns();
        host->step(host, TIMEOUT_MS);
        if (test_now_ns() - begin >= (TIMEOUT_MS - 100) * 1000000ull) return *counter >= value;
    }
    return true;
}

/* ---- a pipe that is read one byte at a time -------------------------------------------------- */

struct pipe_watch {
    struct watch watch;
    struct reactor *r;
    int out;
    volatile int notified;
    bool stop;
};

static void read_one(struct watch *watch, int events) {
    struct pipe_watch *p = (struct pipe_watch *)watch;
    char byte;
    if (read(watch->fd, &byte, 1) == 1) p->notified++;
    if (!p->stop) return;
    weft__watch_stop(p->r, watch);
    close(watch->fd);
}

static void open_pipe(struct pipe_watch *p, struct reactor *r) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC)) abort();
    *p = (struct pipe_watch){.watch = {.ready = read_one, .fd = fds[0]}, .r = r, .out = fds[1]};
}
static void start_pipe(struct pipe_watch *p) {
    if (weft__watch_start(p->r, &p->watch, p->watch.fd, WATCH_READ)) abort();
}
static void close_pipe(struct pipe_watch *p) {
    if (p->watch.state) {
        weft__watch_stop(p->r, &p->watch);
        close(p->watch.fd);
    }
    close(p->out);
}
static void put_bytes(int fd, size_t n) {
    static const char zeros[1000];
    if (write(fd, zeros, n) != (ssize_t)n) abort();
}

static void *write_soon(void *arg) {
    usleep(3000);
    put_bytes(((struct pipe_watch *)arg)->out, 1);
    return NULL;
}

static const char *one_event_wakes(const struct host *kind) {
    struct host host;
    struct pipe_watch p;
    pthread_t thread;
    open_host(&host, kind);
    open_pipe(&p, host.r);
    start_pipe(&p);
    settle(&host);
    put_bytes(p.out, 1);
    bool before = steps_until(&host, &p.notified, 1);
    pthread_create(&thread, NULL, write_soon, &p);
    bool asleep = steps_until(&host, &p.notified, 2);
    pthread_join(thread, NULL);
    close_pipe(&p);
    return close_host(&host, !before   ? "an event before the sleep"
                             : !asleep ? "an event during the sleep"
                                       : NULL);
}

/* Level or edge: what a handler leaves in its fd is reported again. */
static const char *half_read_fd_is_notified_again(const struct host *kind) {
    struct host host;
    struct pipe_watch p;
    open_host(&host, kind);
    open_pipe(&p, host.r);
    start_pipe(&p);
    settle(&host);
    put_bytes(p.out, 100);
    bool all = steps_until(&host, &p.notified, 100);
    close_pipe(&p);
    return close_host(&host, all ? NULL : "bytes were left");
}

static const char *watch_started_outside_on_a_ready_fd_wakes(const struct host *kind) {
    struct host host;
    struct pipe_watch p;
    open_host(&host, kind);
    open_pipe(&p, host.r);
    settle(&host);
    put_bytes(p.out, 1);
    start_pipe(&p);
    bool woke = steps_until(&host, &p.notified, 1);
    weft__watch_change(host.r, &p.watch, 0);
    put_bytes(p.out, 1);
    settle(&host);
    bool silent = p.notified == 1;
    weft__watch_change(host.r, &p.watch, WATCH_READ);
    bool again = steps_until(&host, &p.notified, 2);
    close_pipe(&p);
    return close_host(&host, !woke     ? "not reported"
                             : !silent ? "reported while stopped"
                             : !again  ? "not reported again"
                                       : NULL);
}

static const char *hang_up_of_a_stopped_fd_is_silent(const struct host *kind) {
    struct host host;
    struct pipe_watch p;
    open_host(&host, kind);
    open_pipe(&p, host.r);
    start_pipe(&p);
    weft__watch_change(host.r, &p.watch, 0);
    settle(&host);
    close(p.out);
    uint64_t looks = weft__count(host.r)->wakeups;
    unsigned reports = host.reports;
    host.step(&host, 50);
    bool silent = host.native ? weft__count(host.r)->wakeups <= looks + 1 : host.reports == reports;
    p.out = dup(p.watch.fd);
    close_pipe(&p);
    if (p.watch.state) abort();
    return close_host(&host, silent ? NULL : "a stopped fd woke the host");
}

static const char *watch_may_be_stopped_and_closed_in_its_callback(const struct host *kind) {
    struct host host;
    open_host(&host, kind);
    for (int i = 0; i < 50; i++) {
        struct pipe_watch p;
        open_pipe(&p, host.r); /* the same fd number comes again */
        start_pipe(&p);
        settle(&host);
        p.stop = true;
        put_bytes(p.out, 1);
        if (!steps_until(&host, &p.notified, 1))
            return close_host(&host, "a new fd of an old number was not reported");
        close_pipe(&p);
    }
    return close_host(&host, NULL);
}

/* ---- jobs and timers ------------------------------------------------------------------------- */

struct counted_job {
    struct job job;
    volatile int *count;
};
static void count_job(struct job *job) {
    ++*((struct counted_job *)job)->count;
}

static const char *work_left_outside_a_turn_wakes(const struct host *kind) {
    struct host host;
    volatile int count = 0;
    struct counted_job job = {.job.run = count_job, .count = &count};
    open_host(&host, kind);
    settle(&host);
    weft__job_post(host.r, &job.job);
    return close_host(&host,
                      steps_until(&host, &count, 1) ? NULL : "a job posted outside of a turn");
}

/* With an edge host, too, each of a thousand turns of one event brings the next. */
static const char *small_budget_stays_readable_until_empty(const struct host *kind) {
    static struct counted_job jobs[1000];
    struct host host;
    volatile int count = 0;
    open_host(&host, kind);
    settle(&host);
    host.budget = 1;
    for (int i = 0; i < 1000; i++) {
        jobs[i] = (struct counted_job){.job.run = count_job, .count = &count};
        weft__job_post(host.r, &jobs[i].job);
    }
    bool all = steps_until(&host, &count, 1000);
    settle(&host);
    unsigned reports = host.reports;
    host.step(&host, 20);
    bool quiet = host.native || host.reports == reports;
    return close_host(&host, !all ? "jobs were left" : !quiet ? "readable though empty" : NULL);
}

struct counted_timer {
    struct timer timer;
    volatile int *count;
};
static void count_timer(struct timer *timer) {
    ++*((struct counted_timer *)timer)->count;
}

static const char *timer_alone_wakes(const struct host *kind) {
    struct host host;
    volatile int count = 0;
    struct counted_timer late = {.timer.fire = count_timer, .count = &count}, soon = late;
    open_host(&host, kind);
    weft__timer_start(host.r, &late.timer, weft__now(host.r) + 60000000000u);
    settle(&host);
    uint64_t at = weft__now(host.r) + 3000000;
    weft__timer_start(host.r, &soon.timer, at); /* nearer than the one that is set */
    bool woke = steps_until(&host, &count, 1) && weft__now(host.r) >= at;
    weft__timer_stop(host.r, &late.timer);
    return close_host(&host, woke ? NULL : "a timer expired unseen");
}

/* ---- wakes ----------------------------------------------------------------------------------- */

static void *call_soon(void *arg);
struct elsewhere {
    struct reactor *r;
    volatile int *count;
};
static void count_call(void *arg) {
    ++*(volatile int *)arg;
}
static void *call_soon(void *arg) {
    struct elsewhere *remote = arg;
    usleep(3000);
    if (weft__reactor_call(remote->r, count_call, (void *)remote->count)) abort();
    return NULL;
}

static const char *posted_call_wakes(const struct host *kind) {
    struct host host;
    pthread_t thread;
    volatile int count = 0;
    open_host(&host, kind);
    settle(&host);
    struct elsewhere remote = {host.r, &count};
    pthread_create(&thread, NULL, call_soon, &remote);
    bool woke = steps_until(&host, &count, 1);
    pthread_join(thread, NULL);
    return close_host(&host, woke ? NULL : "a call from another thread");
}

static const char *idle_worker_is_silent(const struct host *kind) {
    struct host host;
    struct pipe_watch p;
    open_host(&host, kind);
    open_pipe(&p, host.r);
    start_pipe(&p);
    settle(&host);
    uint64_t wakeups = weft__count(host.r)->wakeups;
    unsigned reports = host.reports;
    host.step(&host, 300);
    bool silent = host.native
                      ? weft__count(host.r)->wakeups <= wakeups + 2 && host.reports == reports + 1
                      : host.reports == reports;
    close_pipe(&p);
    return close_host(&host, silent ? NULL : "woken for nothing");
}

/* ---- the race: messages in shared memory, armed and signalled, with delays in every window */

struct mailbox {
    struct poller poller;
    struct watch watch;
    int event_fd;
    volatile int seen;
    _Alignas(64) atomic_int sent;
    atomic_int armed;
    _Alignas(64) atomic_int acked; /* the receiver's, for the sender's pace */
    unsigned seed;
};

/* From nothing to 2 µs, so that over many messages every order of the two sides' steps is met. */
static void delay(unsigned *seed) {
    *seed = *seed * 1103515245 + 12345;
    for (volatile unsigned i = *seed >> 16 & 7 ? (*seed >> 20) & 511 : 0; i; i--)
        ;
}

static int poll_mailbox(struct poller *poller, unsigned budget) {
    struct mailbox *m = (struct mailbox *)poller;
    int sent = atomic_load_explicit(&m->sent, memory_order_acquire), n = sent - m->seen;
    m->seen = sent;
    if (n) atomic_store(&m->acked, sent);
    delay(&m->seed);
    return n;
}

static bool arm_mailbox(struct poller *poller) {
    struct mailbox *m = (struct mailbox *)poller;
    delay(&m->seed);
    atomic_store_explicit(&m->armed, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    delay(&m->seed);
    bool quiet = atomic_load_explicit(&m->sent, memory_order_acquire) == m->seen;
    delay(&m->seed);
    return quiet;
}

static void disarm_mailbox(struct poller *poller) {
    atomic_store_explicit(&((struct mailbox *)poller)->armed, 0, memory_order_relaxed);
}

static void drain_event_fd(struct watch *watch, int events) {
    uint64_t count;
    if (read(watch->fd, &count, sizeof count) < 0) return;
}

static void *send_messages(void *arg) {
    struct mailbox *m = arg;
    unsigned seed = 99;
    for (int i = 1; i <= RACE_MESSAGES; i++) {
        while (atomic_load(&m->acked) != i - 1) sched_yield();
        delay(&seed);
        atomic_store_explicit(&m->sent, i, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        delay(&seed);
        if (!atomic_exchange(&m->armed, 0)) continue;
        uint64_t one = 1;
        if (write(m->event_fd, &one, sizeof one) != sizeof one) abort();
    }
    return NULL;
}

static const char *message_in_the_race_window_is_not_lost(const struct host *kind) {
    struct host host;
    pthread_t thread;
    struct mailbox m = {
        .poller = {.poll = poll_mailbox, .arm = arm_mailbox, .disarm = disarm_mailbox},
        .watch.ready = drain_event_fd};
    open_host(&host, kind);
    m.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    weft__poller_add(host.r, &m.poller);
    if (weft__watch_start(host.r, &m.watch, m.event_fd, WATCH_READ)) abort();
    settle(&host);
    pthread_create(&thread, NULL, send_messages, &m);
    bool all = steps_until(&host, &m.seen, RACE_MESSAGES);
    if (all) pthread_join(thread, NULL);
    if (!all) printf("    lost after %d messages\n", m.seen), exit(1);
    weft__watch_stop(host.r, &m.watch);
    weft__poller_remove(host.r, &m.poller);
    close(m.event_fd);
    return close_host(&host, NULL);
}

/* The same for what the reactor itself offers to other threads; only its own arming stands
 * between. */
enum { RACE_CALLS = 20000 };
struct call_race {
    struct reactor *r;
    volatile int done;
    atomic_int acked;
};

static void take_call(void *arg) {
    struct call_race *race = arg;
    race->done++;
    atomic_store(&race->acked, race->done);
}

static void *post_calls(void *arg) {
    struct call_race *race = arg;
    unsigned seed = 42;
    for (int i = 0; i < RACE_CALLS; i++) {
        while (atomic_load(&race->acked) != i) sched_yield();
        delay(&seed);
        if (weft__reactor_call(race->r, take_call, race)) abort();
    }
    return NULL;
}

static const char *call_in_the_race_window_is_not_lost(const struct host *kind) {
    struct host host;
    pthread_t thread;
    struct mailbox slow = {
        .poller = {.poll = poll_mailbox, .arm = arm_mailbox, .disarm = disarm_mailbox}};
    open_host(&host, kind);
    weft__poller_add(host.r, &slow.poller); /* never has anything, but makes arming take its time */
    settle(&host);
    struct call_race race = {.r = host.r, .done = 0};
    pthread_create(&thread, NULL, post_calls, &race);
    bool all = steps_until(&host, &race.done, RACE_CALLS);
    if (!all) printf("    lost after %d calls\n", race.done), exit(1);
    pthread_join(thread, NULL);
    weft__poller_remove(host.r, &slow.poller);
    return close_host(&host, NULL);
}

const struct scenario scenarios[] = {
#define S(name) \
    { #name, name }
    S(one_event_wakes),
    S(half_read_fd_is_notified_again),
    S(watch_started_outside_on_a_ready_fd_wakes),
    S(hang_up_of_a_stopped_fd_is_silent),
    S(watch_may_be_stopped_and_closed_in_its_callback),
    S(work_left_outside_a_turn_wakes),
    S(small_budget_stays_readable_until_empty),
    S(timer_alone_wakes),
    S(posted_call_wakes),
    S(idle_worker_is_silent),
    S(message_in_the_race_window_is_not_lost),
    S(call_in_the_race_window_is_not_lost),
    {NULL, NULL},
#undef S
};

bool scenarios_pass(const struct host *kind) {
    bool pass = true;
    for (const struct scenario *s = scenarios; s->name; s++) {
        uint64_t begin = test_now_ns();
        const char *wrong = s->run(kind);
        if (getenv("TEST_TIMES"))
            printf("    %6.3f s  %s\n", (double)(test_now_ns() - begin) / 1e9, s->name);
        if (wrong) printf("    %s: %s: %s\n", kind->name, s->name, wrong);
        pass &= !wrong;
    }
    return pass;
}
