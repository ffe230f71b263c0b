/* What the wakeup contract promises beyond the matrix of hosts: silence, storms, forks, threads,
 * neighbours. */
#include <base/counters.h>
#include <ev.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <tests/harness.h>
#include <tests/network.h>
#include <time.h>

static weft_context_t *context;

static struct reactor *open_reactor(struct ev_loop *loop) {
    struct reactor *r = NULL;
    if (!context) CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(
        weft__reactor_create(context, &(struct reactor_params){.loop = loop, .max_fds = 256}, &r),
        WEFT_OK);
    return r;
}

static void close_reactor(struct reactor *r) {
    weft__reactor_destroy(r);
    if (weft_context_destroy(context) == WEFT_OK) context = NULL;
}

static bool readable(struct reactor *r, int timeout_ms) {
    struct pollfd fd = {weft__reactor_fd(r), POLLIN, 0};
    return poll(&fd, 1, timeout_ms) == 1;
}

static void settle(struct reactor *r) {
    while (readable(r, 0)) weft__reactor_progress(r, 0);
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ---- silence --------------------------------------------------------------------------------- */

static void ignore(struct watch *watch, int events) {}
static void ignore_timer(struct timer *timer) {}

TEST(idle_3_seconds_no_wakeup_and_no_cpu) {
    struct reactor *r = open_reactor(NULL);
    struct watch watch = {.ready = ignore};
    struct timer stopped = {.fire = ignore_timer};
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    weft__watch_start(r, &watch, fds[0], WATCH_READ);
    weft__reactor_fd(r);
    weft__timer_start(r, &stopped, weft__now(r) + 2000000000);
    settle(r);
    /* a timer that is gone wakes no thread once the worker has had a turn */
    weft__timer_stop(r, &stopped);
    weft__reactor_progress(r, 0);
    settle(r);
    uint64_t turns = weft__count(r)->turns;
    double cpu = cpu_seconds();
    CHECK(!readable(r, 3000));
    CHECK_EQ(weft__count(r)->turns, turns);
    CHECK(cpu_seconds() - cpu < 0.005);
    weft__watch_stop(r, &watch);
    close_reactor(r);
    close(fds[0]), close(fds[1]);
}

static unsigned n_notified;
static void note(struct watch *watch, int events) {
    n_notified++;
}

/* Also one that was written, and reported, before the fd was taken. */
TEST(an_eventfd_that_no_one_reads_is_notified_once_for_each_time_it_was_written) {
    struct reactor *r = open_reactor(NULL);
    struct watch watch = {.ready = note, .notified_once = true};
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    n_notified = 0;
    CHECK_EQ(weft__watch_start(r, &watch, fd, WATCH_READ), WEFT_OK);
    CHECK(!weft__reactor_notifies_once(r));
    weft__reactor_fd(r);
    CHECK(weft__reactor_notifies_once(r));
    for (unsigned i = 1; i <= 3; i++) {
        CHECK(readable(r, 0));
        settle(r);
        CHECK_EQ(n_notified, i);
        CHECK_EQ(eventfd_write(fd, 1), 0);
    }
    weft__watch_stop(r, &watch);
    settle(r);
    CHECK_EQ(n_notified, 3);
    close_reactor(r);
    close(fd);
}

TEST(wait_sleeps_without_cpu) {
    struct reactor *r = open_reactor(NULL);
    weft__reactor_wait(r, 1);
    double cpu = cpu_seconds();
    uint64_t looks = weft__count(r)->kernel_polls;
    CHECK_EQ(weft__reactor_wait(r, 500), WEFT_ERR_TIMED_OUT);
    CHECK(cpu_seconds() - cpu < 0.01);
    CHECK(weft__count(r)->kernel_polls - looks < 200);
    close_reactor(r);
}

struct counted_poller {
    struct poller poller;
    int armed, ready;
};
static int poll_counted(struct poller *poller, unsigned budget) {
    struct counted_poller *p = (struct counted_poller *)poller;
    int n = p->ready;
    p->ready = 0;
    return n;
}
static bool arm_counted(struct poller *poller) {
    struct counted_poller *p = (struct counted_poller *)poller;
    p->armed++;
    return p->ready == 0;
}

TEST(worker_that_is_only_polled_never_arms) {
    struct reactor *r = open_reactor(NULL);
    struct counted_poller p = {{.poll = poll_counted, .arm = arm_counted}, 0, 0};
    weft__poller_add(r, &p.poller);
    for (int i = 0; i < 1000; i++) weft__reactor_progress(r, 0);
    CHECK_EQ(p.armed, 0);
    weft__reactor_fd(r); /* now a host may sleep */
    CHECK_EQ(p.armed, 1);
    weft__reactor_progress(r, 0);
    CHECK_EQ(p.armed, 2);
    weft__poller_remove(r, &p.poller);
    close_reactor(r);
}

/* A completion that a call outside of progress came upon, so that no signal follows: the last
 * look finds it. */
TEST(last_look_finds_what_came_before_arming) {
    struct reactor *r = open_reactor(NULL);
    struct counted_poller p = {{.poll = poll_counted, .arm = arm_counted}, 0, 0};
    weft__poller_add(r, &p.poller);
    weft__reactor_fd(r);
    settle(r);
    p.ready = 1;
    weft__reactor_kick(r);
    CHECK(readable(r, 0));
    CHECK_EQ(weft__reactor_progress(r, 0), 1);
    settle(r);
    CHECK(!readable(r, 0));
    weft__poller_remove(r, &p.poller);
    close_reactor(r);
}

/* ---- storms of wakes ------------------------------------------------------------------------- */

enum { STORM = 250000, STORM_THREADS = 3 };
static struct reactor *stormed;

static void *wake_many(void *arg) {
    for (int i = 0; i < STORM; i++) weft__reactor_wake(stormed);
    return NULL;
}
static void wake_by_signal(int signal) {
    weft__reactor_wake(stormed);
}

TEST(million_wakes_from_threads_and_signals_coalesce_and_never_block) {
    struct reactor *r = stormed = open_reactor(NULL);
    pthread_t threads[STORM_THREADS];
    struct sigaction action = {.sa_handler = wake_by_signal};
    weft__reactor_fd(r);
    settle(r);
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < STORM_THREADS; i++) pthread_create(&threads[i], NULL, wake_many, NULL);
    for (int i = 0; i < STORM; i++) {
        if (i % 100 == 0) raise(SIGUSR1);
        weft__reactor_wake(r);
        if (i % 1000 == 0) weft__reactor_progress(r, 0);
    }
    for (int i = 0; i < STORM_THREADS; i++) pthread_join(threads[i], NULL);
    settle(r);
    CHECK(!readable(r, 0));
    weft__reactor_wake(r); /* and after the storm a wake still wakes */
    CHECK(readable(r, 0));
    signal(SIGUSR1, SIG_DFL);
    close_reactor(r);
}

static void *wake_later(void *arg) {
    usleep(2000);
    weft__reactor_wake(arg);
    return NULL;
}

TEST(wake_ends_a_sleeping_wait) {
    struct reactor *r = open_reactor(NULL);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, wake_later, r);
        CHECK_EQ(weft__reactor_wait(r, 5000), WEFT_OK);
        pthread_join(thread, NULL);
    }
    close_reactor(r);
}

/* ---- spin, then sleep: nothing is lost at the boundary --------------------------------------- */

enum { BOUNDARY_CALLS = 20000 };
static atomic_int calls_done;
static void call_done(void *arg) {
    atomic_fetch_add(&calls_done, 1);
}

static void *call_at_the_boundary(void *arg) {
    unsigned seed = 5;
    for (int i = 0; i < BOUNDARY_CALLS; i++) {
        while (atomic_load(&calls_done) != i) sched_yield();
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long end = now.tv_nsec + rand_r(&seed) % 60000; /* around the 2, 25 and 50 µs of looking */
        while (now.tv_nsec < end && now.tv_nsec > end - 70000) clock_gettime(CLOCK_MONOTONIC, &now);
        if (weft__reactor_call(arg, call_done, NULL)) abort();
    }
    return NULL;
}

/* A poller that takes its time, so that calls also come between the turn's look at them and the
 * arming. */
static int poll_slowly(struct poller *poller, unsigned budget) {
    for (volatile int i = 300; i; i--)
        ;
    return 0;
}

TEST(call_at_the_end_of_the_spin_is_not_lost) {
    struct reactor *r = open_reactor(NULL);
    struct poller slow = {.poll = poll_slowly};
    pthread_t thread;
    weft__poller_add(r, &slow);
    atomic_store(&calls_done, 0);
    pthread_create(&thread, NULL, call_at_the_boundary, r);
    while (atomic_load(&calls_done) < BOUNDARY_CALLS) {
        uint64_t begin = weft__now(r);
        CHECK_EQ(weft__reactor_wait(r, 5000), WEFT_OK);
        /* the look that follows a timeout would find it */
        CHECK(weft__now(r) - begin < 4900000000u);
    }
    pthread_join(thread, NULL);
    weft__poller_remove(r, &slow);
    close_reactor(r);
}

/* ---- forks and threads ----------------------------------------------------------------------- */

static volatile int notified;
static void read_and_notify(struct watch *watch, int events) {
    char byte;
    if (read(watch->fd, &byte, 1) == 1) notified++;
}

static int child_of_fork(struct reactor *r) {
    struct reactor *own = NULL;
    weft_context_t *own_context = NULL;
    if (weft__reactor_check(r) != WEFT_ERR_FORKED) return 1;
    if (weft__reactor_call(r, call_done, NULL) != WEFT_ERR_FORKED) return 2;
    weft__reactor_wake(r); /* must not reach the parent */
    if (weft_context_create(NULL, &own_context)) return 3;
    if (weft__reactor_create(own_context, &(struct reactor_params){.max_fds = 64}, &own)) return 4;
    if (weft__reactor_check(own) != WEFT_OK) return 5;
    if (weft__reactor_check(r) != WEFT_ERR_FORKED) return 6; /* still */
    weft__reactor_destroy(own);
    return 0;
}

TEST(child_of_a_fork_is_refused_and_steals_nothing) {
    struct reactor *r = open_reactor(NULL);
    struct watch watch = {.ready = read_and_notify};
    int fds[2], status;
    CHECK_EQ(pipe(fds), 0);
    weft__watch_start(r, &watch, fds[0], WATCH_READ);
    int fd = weft__reactor_fd(r);
    settle(r);
    pid_t pid = fork();
    if (pid == 0) _exit(child_of_fork(r));
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK(!readable(r, 0));
    CHECK_EQ(weft__reactor_check(r), WEFT_OK);
    CHECK_EQ(weft__reactor_fd(r), fd);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    CHECK(readable(r, 1000));
    notified = 0;
    weft__reactor_progress(r, 0);
    CHECK_EQ(notified, 1);
    weft__watch_stop(r, &watch);
    close_reactor(r);
    close(fds[0]), close(fds[1]);
}

static void end_loop(struct ev_loop *loop, ev_timer *w, int revents) {
    ev_break(loop, EVBREAK_ALL);
}

/* A child that goes on with a copy of the host's loop finds our watchers in it: they must keep
 * still. */
static int child_in_the_hosts_loop(struct reactor *r, struct ev_loop *loop) {
    ev_timer timer;
    ev_loop_fork(loop);
    ev_now_update(loop);
    ev_timer_init(&timer, end_loop, 0.05, 0.);
    ev_timer_start(loop, &timer);
    uint64_t turns = weft__count(r)->turns;
    ev_run(loop, 0);
    return notified || weft__count(r)->turns != turns ||
           ev_iteration(loop) > 100; /* nor spin on what it may not read */
}

TEST(child_that_runs_the_hosts_loop_steals_nothing) {
    struct ev_loop *loop = ev_loop_new(0);
    struct reactor *r = open_reactor(loop);
    struct watch watch = {.ready = read_and_notify};
    int fds[2], status;
    CHECK_EQ(pipe(fds), 0);
    notified = 0;
    weft__watch_start(r, &watch, fds[0], WATCH_READ);
    ev_run(loop, EVRUN_NOWAIT);
    CHECK(!readable(r, 0));
    weft__reactor_wake(r); /* written to the eventfd, since a host may sleep on the fd */
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(child_in_the_hosts_loop(r, loop));
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        CHECK(readable(r, 0));
        CHECK_EQ(write(fds[1], "x", 1), 1); /* from now on there is this to steal, too */
    }
    ev_run(loop, EVRUN_NOWAIT);
    CHECK_EQ(notified, 1);
    weft__watch_stop(r, &watch);
    close_reactor(r);
    ev_loop_destroy(loop);
    close(fds[0]), close(fds[1]);
}

static void *check_elsewhere(void *arg) {
    return (void *)(intptr_t)weft__reactor_check(arg);
}

/* A build of one thread mode checks nothing. */
#ifdef WEFT_THREADS_FIXED
enum { ANSWER_ELSEWHERE = WEFT_OK };
#else
enum { ANSWER_ELSEWHERE = WEFT_ERR_WRONG_THREAD };
#endif

TEST(other_threads_are_refused_unless_serialized) {
    struct reactor *r = open_reactor(NULL);
    pthread_t thread;
    void *status;
    pthread_create(&thread, NULL, check_elsewhere, r);
    pthread_join(thread, &status);
    CHECK_EQ((intptr_t)status, ANSWER_ELSEWHERE);
    weft__reactor_thread_mode(r, WEFT_THREAD_SERIALIZED);
    pthread_create(&thread, NULL, check_elsewhere, r);
    pthread_join(thread, &status);
    CHECK_EQ((intptr_t)status, WEFT_OK);
    close_reactor(r);
}

/* ---- the host's loop ------------------------------------------------------------------------- */

TEST(hosts_loop_ends_when_only_the_worker_is_left) {
    struct ev_loop *loop = ev_loop_new(0);
    struct reactor *r = open_reactor(loop);
    ev_run(loop, 0); /* would not return if our inner watchers counted */
    close_reactor(r);
    ev_run(loop, 0); /* nor if they had been counted twice */
    ev_loop_destroy(loop);
}

struct destroying {
    struct job job;
    struct reactor *r;
};
static void destroy_reactor(struct job *job) {
    weft__reactor_destroy(((struct destroying *)job)->r);
}

struct relay {
    struct job job;
    struct reactor *r;
    int left, runs;
};
static void run_relay(struct job *job) {
    struct relay *relay = (struct relay *)job;
    relay->runs++;
    if (relay->left-- > 0) weft__job_post(relay->r, job);
}
static void break_loop(struct ev_loop *loop, ev_timer *w, int revents) {
    ev_break(loop, EVBREAK_ALL);
}

TEST(hosts_loop_sleeps_although_the_fd_is_watched_elsewhere_too) {
    struct ev_loop *loop = ev_loop_new(0);
    struct reactor *r = open_reactor(loop);
    struct relay relay = {.job.run = run_relay, .r = r};
    for (int taken = 0; taken < 2; taken++) {
        ev_timer timer;
        if (taken) CHECK(weft__reactor_fd(r) >= 0);
        relay.left = 5; /* in as many turns */
        weft__job_post(r, &relay.job);
        ev_timer_init(&timer, break_loop, 0.2, 0.);
        ev_now_update(loop);
        ev_timer_start(loop, &timer);
        unsigned before = ev_iteration(loop);
        ev_run(loop, 0);
        CHECK_EQ(relay.runs, 6 * (taken + 1));
        CHECK(ev_iteration(loop) - before < 30);
    }
    close_reactor(r);
    ev_loop_destroy(loop);
}

TEST(worker_may_end_within_the_hosts_loop) {
    struct ev_loop *loop = ev_loop_new(0);
    struct destroying destroying = {.job.run = destroy_reactor, .r = open_reactor(loop)};
    weft__job_post(destroying.r, &destroying.job);
    ev_run(loop, 0);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    context = NULL;
    ev_loop_destroy(loop);
}

/* The fd's number is the host's now: a watcher left under it would be called, out of memory that
 * was freed. */
TEST(hosts_loop_keeps_nothing_of_a_worker_that_ended) {
    struct ev_loop *loop = ev_loop_new(0);
    struct reactor *r = open_reactor(loop);
    ev_timer timer;
    CHECK_EQ(weft__aux_watch_open(r), WEFT_OK);
    ev_run(loop, EVRUN_NOWAIT);
    close_reactor(r);
    ev_timer_init(&timer, break_loop, 5., 0.);
    ev_timer_start(loop, &timer);
    ev_unref(loop);
    ev_run(loop, 0); /* returns at once: nothing counts any more */
    CHECK(ev_is_active(&timer));
    ev_ref(loop);
    ev_timer_stop(loop, &timer);
    ev_loop_destroy(loop);
}

static int hosts_own;
static void on_hosts_own(struct ev_loop *loop, ev_timer *w, int revents) {
    hosts_own++;
}

TEST(wait_in_a_hosts_loop_runs_none_of_the_hosts_callbacks) {
    struct ev_loop *loop = ev_loop_new(0);
    struct reactor *r = open_reactor(loop);
    struct watch watch = {.ready = read_and_notify};
    ev_timer timer;
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    notified = hosts_own = 0;
    ev_timer_init(&timer, on_hosts_own, 0., 0.);
    ev_timer_start(loop, &timer);
    weft__watch_start(r, &watch, fds[0], WATCH_READ);
    CHECK_EQ(weft__reactor_wait(r, 20), WEFT_ERR_TIMED_OUT);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    CHECK_EQ(weft__reactor_wait(r, 2000), WEFT_OK);
    CHECK_EQ(notified, 1);
    CHECK_EQ(hosts_own, 0);
    ev_timer_stop(loop, &timer);
    weft__watch_stop(r, &watch);
    close_reactor(r);
    ev_loop_destroy(loop);
    close(fds[0]), close(fds[1]);
}

/* ---- neighbours ------------------------------------------------------------------------------ */

struct flood {
    struct job job;
    struct reactor *r;
    unsigned runs;
};
static void flood_again(struct job *job) {
    struct flood *flood = (struct flood *)job;
    flood->runs++;
    weft__job_post(flood->r, job);
}

/* Both are served by one poll; the flooded one gives the host back its turn after each budget. */
TEST(flooded_worker_does_not_delay_its_neighbour) {
    struct reactor *busy = open_reactor(NULL), *quiet = open_reactor(NULL);
    struct flood floods[8];
    struct watch watch = {.ready = read_and_notify};
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    weft__watch_start(quiet, &watch, fds[0], WATCH_READ);
    for (int i = 0; i < 8; i++) {
        floods[i] = (struct flood){.job.run = flood_again, .r = busy};
        weft__job_post(busy, &floods[i].job);
    }
    struct pollfd both[2] = {{weft__reactor_fd(busy), POLLIN, 0},
                             {weft__reactor_fd(quiet), POLLIN, 0}};
    notified = 0;
    for (int message = 1; message <= 200; message++) {
        CHECK_EQ(write(fds[1], "x", 1), 1);
        for (int turns = 0; notified < message; turns++) {
            CHECK(turns < 2);
            CHECK(poll(both, 2, (int)test_timeout(20000)) > 0);
            if (both[0].revents) weft__reactor_progress(busy, 4);
            if (both[1].revents) weft__reactor_progress(quiet, 4);
        }
    }
    for (int i = 1; i < 8; i++) CHECK(floods[i].runs + 2 > floods[0].runs && floods[i].runs > 0);
    for (int i = 0; i < 8; i++) weft__job_drop(busy, &floods[i].job);
    weft__watch_stop(quiet, &watch);
    close_reactor(busy);
    close_reactor(quiet);
    close(fds[0]), close(fds[1]);
}

static int find_one(struct poller *poller, unsigned budget) {
    return 1;
}
static bool never_quiet(struct poller *poller) {
    return false;
}
static void disarm_nothing(struct poller *poller) {}

/* What memory brings explains a report, so most of them take no epoll_wait of the worker's own. */
TEST(level_triggered_reports_rarely_ask_the_kernel_twice_and_starve_no_socket) {
    struct reactor *r = open_reactor(NULL);
    struct poller busy = {.poll = find_one, .arm = never_quiet, .disarm = disarm_nothing};
    struct watch watch = {.ready = read_and_notify};
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    weft__watch_start(r, &watch, fds[0], WATCH_READ);
    weft__poller_add(r, &busy);
    struct pollfd fd = {weft__reactor_fd_level(r), POLLIN, 0};
    uint64_t asked = weft__count(r)->kernel_polls;
    for (int i = 0; i < 80; i++) {
        CHECK_EQ(poll(&fd, 1, (int)test_timeout(20000)), 1);
        weft__reactor_progress(r, 4);
    }
    CHECK(weft__count(r)->kernel_polls - asked <= 12);
    notified = 0;
    CHECK_EQ(write(fds[1], "x", 1), 1);
    for (int i = 0; i < 8; i++) weft__reactor_progress(r, 4);
    CHECK_EQ(notified, 1);
    asked = weft__count(r)->kernel_polls;
    CHECK_EQ(weft__reactor_fd(r), fd.fd); /* it serves edge-triggered hosts again */
    for (int i = 0; i < 8; i++) weft__reactor_progress(r, 4);
    CHECK(weft__count(r)->kernel_polls - asked >= 8);
    weft__poller_remove(r, &busy);
    weft__watch_stop(r, &watch);
    close_reactor(r);
    close(fds[0]), close(fds[1]);
}

static unsigned epolls(void) {
    char path[64], to[64];
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, to, sizeof to - 1);
        if (len > 0) n += strncmp(to, "anon_inode:[eventpoll]", (size_t)len) == 0;
    }
    return n;
}

static void count_watch(struct watch *watch, int events) {
    char byte;
    CHECK_EQ(read(watch->fd, &byte, 1), 1);
}

/* By one epoll for all: what was watched before it was asked for, and after, timers, and wakes. */
TEST(a_worker_waits_as_before_when_its_fd_is_taken) {
    struct reactor *r = open_reactor(NULL);
    struct watch watches[2] = {{.ready = count_watch}, {.ready = count_watch}};
    int fds[2][2];
    for (int i = 0; i < 2; i++) CHECK_EQ(pipe(fds[i]), 0);
    CHECK_EQ(weft__watch_start(r, &watches[0], fds[0][0], WATCH_READ), WEFT_OK);
    CHECK_EQ(epolls(), 1);
    CHECK(weft__reactor_fd(r) >= 0);
    CHECK_EQ(epolls(), 1);
    CHECK_EQ(weft__watch_start(r, &watches[1], fds[1][0], WATCH_READ), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft__reactor_wait(r, 20), WEFT_ERR_TIMED_OUT);
        CHECK_EQ(write(fds[i][1], "x", 1), 1);
        CHECK_EQ(weft__reactor_wait(r, 5000), WEFT_OK);
    }
    weft__reactor_wake(r);
    CHECK_EQ(weft__reactor_wait(r, 5000), WEFT_OK);
    struct timer timer = {.fire = ignore_timer};
    uint64_t at = weft__now(r) + 30000000;
    weft__timer_start(r, &timer, at);
    CHECK_EQ(weft__reactor_wait(r, 5000), WEFT_OK);
    CHECK(weft__now(r) >= at && !weft__timer_running(&timer));
    for (int i = 0; i < 2; i++) weft__watch_stop(r, &watches[i]);
    close_reactor(r);
    for (int i = 0; i < 2; i++) close(fds[i][0]), close(fds[i][1]);
}

/* ---- apart: while another thread drives the worker */

static bool notifies(int fd) {
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
}
static void put(int fd) {
    uint64_t one = 1;
    CHECK_EQ(write(fd, &one, sizeof one), sizeof one);
}
static void take(struct watch *watch, int events) {
    uint64_t count;
    CHECK_EQ(read(watch->fd, &count, sizeof count), sizeof count);
}

struct apart {
    struct reactor *r;
    struct watch watches[3]; /* started before, while it is apart, and after */
    int fd, news;
};

static void apart_open(struct apart *a) {
    *a = (struct apart){.r = open_reactor(NULL), .news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    for (int i = 0; i < 3; i++) a->watches[i].ready = take;
}
static void apart_start(struct apart *a, int i) {
    CHECK_EQ(
        weft__watch_start(a->r, &a->watches[i], eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), WATCH_READ),
        WEFT_OK);
}
static void apart_close(struct apart *a) {
    for (int i = 0; i < 3; i++) {
        int fd = a->watches[i].fd;
        weft__watch_stop(a->r, &a->watches[i]);
        if (fd) close(fd);
    }
    close_reactor(a->r);
    close(a->news);
}

/* What `notify` does makes it readable, and the reactor sleeps when that is handled. */
static void all_is_notified(struct apart *a, int watches) {
    struct timer timer = {.fire = ignore_timer};
    for (int i = 0; i < watches; i++) {
        CHECK(!notifies(a->fd));
        put(a->watches[i].fd);
        CHECK(notifies(a->fd));
        while (notifies(a->fd)) CHECK(weft__reactor_progress(a->r, 0) >= 0);
    }
    weft__reactor_wake(a->r);
    CHECK(notifies(a->fd));
    while (notifies(a->fd)) CHECK(weft__reactor_progress(a->r, 0) >= 0);
    weft__timer_start(a->r, &timer, weft__now(a->r));
    CHECK(notifies(a->fd));
    while (notifies(a->fd)) CHECK(weft__reactor_progress(a->r, 0) >= 0);
    CHECK(!weft__timer_running(&timer));
}

static void apart_waits(struct apart *a, int watches) {
    for (int i = 0; i < watches; i++) {
        CHECK_EQ(weft__reactor_wait(a->r, 20), WEFT_ERR_TIMED_OUT);
        put(a->watches[i].fd);
        CHECK_EQ(weft__reactor_wait(a->r, 5000), WEFT_OK);
    }
    weft__reactor_wake(a->r);
    CHECK_EQ(weft__reactor_wait(a->r, 5000), WEFT_OK);
    CHECK_EQ(weft__reactor_wait(a->r, 20), WEFT_ERR_TIMED_OUT);
}

static void apart_and_joined(bool taken_before) {
    struct apart a;
    apart_open(&a);
    apart_start(&a, 0);
    if (taken_before) a.fd = weft__reactor_fd(a.r);
    CHECK_EQ(weft__reactor_detach(a.r, a.news), WEFT_OK);
    if (!taken_before) a.fd = weft__reactor_fd(a.r);
    CHECK_EQ(weft__reactor_fd(a.r), a.fd);
    apart_start(&a, 1);
    apart_waits(&a, 2);
    put(a.watches[0].fd);
    CHECK(!notifies(a.fd));
    put(a.news);
    CHECK(notifies(a.fd));
    CHECK_EQ(weft__reactor_wait(a.r, 5000), WEFT_OK);
    CHECK_EQ(weft__reactor_attach(a.r, a.news), WEFT_OK);
    CHECK(!notifies(a.fd)); /* not of the news */
    CHECK_EQ(weft__reactor_fd(a.r), a.fd);
    CHECK_EQ(epolls(), 1);
    apart_start(&a, 2);
    all_is_notified(&a, 3);
    apart_waits(&a, 3);
    apart_close(&a);
}

TEST(detached_the_fd_notifies_of_the_news_alone_and_attached_of_all_again) {
    apart_and_joined(true);
}
TEST(the_fd_may_first_be_asked_for_while_it_is_apart) {
    apart_and_joined(false);
}

TEST(a_reactor_whose_fd_no_one_asked_for_has_none_when_it_is_joined) {
    struct apart a;
    apart_open(&a);
    apart_start(&a, 0);
    CHECK_EQ(epolls(), 1);
    CHECK_EQ(weft__reactor_detach(a.r, a.news), WEFT_OK);
    apart_waits(&a, 1);
    CHECK_EQ(weft__reactor_attach(a.r, a.news), WEFT_OK);
    CHECK_EQ(epolls(), 1);
    CHECK(!weft__reactor_has_fd(a.r));
    apart_waits(&a, 1);
    apart_close(&a);
}

TEST(detached_without_news_the_fd_notifies_of_nothing) {
    struct apart a;
    apart_open(&a);
    apart_start(&a, 0);
    a.fd = weft__reactor_fd(a.r);
    CHECK_EQ(weft__reactor_detach(a.r, -1), WEFT_OK);
    put(a.watches[0].fd);
    put(a.news);
    weft__reactor_wake(a.r);
    CHECK(!notifies(a.fd));
    CHECK_EQ(weft__reactor_wait(a.r, 5000), WEFT_OK);
    CHECK_EQ(weft__reactor_attach(a.r, -1), WEFT_OK);
    CHECK_EQ(weft__reactor_fd(a.r), a.fd);
    all_is_notified(&a, 1);
    apart_close(&a);
}

/* A descriptor that the kernel will not take stands for a limit that was reached. */
TEST(what_could_not_be_parted_or_joined_stays_as_it_was) {
    struct apart a;
    apart_open(&a);
    apart_start(&a, 0);
    apart_start(&a, 1);
    CHECK_EQ(weft__reactor_detach(a.r, 999), WEFT_ERR_IO);
    CHECK(!weft__reactor_has_fd(a.r));
    apart_waits(&a, 2);
    a.fd = weft__reactor_fd(a.r);
    CHECK_EQ(weft__reactor_detach(a.r, 999), WEFT_ERR_IO);
    CHECK_EQ(weft__reactor_fd(a.r), a.fd);
    CHECK_EQ(epolls(), 1);
    all_is_notified(&a, 2);

    CHECK_EQ(weft__reactor_detach(a.r, a.news), WEFT_OK);
    int keep = dup(a.watches[1].fd);
    close(a.watches[1].fd);
    CHECK_EQ(weft__reactor_attach(a.r, a.news), WEFT_ERR_IO);
    CHECK_EQ(weft__reactor_fd(a.r), a.fd);
    CHECK(!notifies(a.fd));
    put(a.news);
    CHECK(notifies(a.fd));
    apart_waits(&a, 1);
    CHECK_EQ(dup2(keep, a.watches[1].fd), a.watches[1].fd);
    close(keep);
    CHECK_EQ(weft__reactor_attach(a.r, a.news), WEFT_OK);
    CHECK_EQ(weft__reactor_fd(a.r), a.fd);
    all_is_notified(&a, 2);
    apart_close(&a);
}

TEST(fd_is_one_number_for_life_and_cloexec) {
    struct reactor *r = open_reactor(NULL);
    struct watch watches[50];
    int fd = weft__reactor_fd(r);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    for (int i = 0; i < 50; i++) {
        watches[i] = (struct watch){.ready = ignore};
        CHECK_EQ(weft__watch_start(r, &watches[i], eventfd(0, EFD_CLOEXEC), WATCH_READ), WEFT_OK);
        CHECK_EQ(weft__reactor_fd(r), fd);
    }
    for (int i = 0; i < 50; i++) {
        int own = watches[i].fd;
        weft__watch_stop(r, &watches[i]);
        close(own);
    }
    close_reactor(r);
}
