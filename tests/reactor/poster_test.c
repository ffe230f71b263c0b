/* Threads that post to a worker: one that is cancelled within the call, and one whose function ends
 * the worker. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <tests/harness.h>
#include <tests/network.h>
#include <tests/support/clock.h>

static weft_context_t *context;

static struct reactor *open_reactor(void) {
    struct reactor *r = NULL;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){.max_fds = 64}, &r), WEFT_OK);
    return r;
}

/* ---- a write of one thread that takes its time ----------------------------------------------- */

static _Thread_local bool writes_late;
static atomic_int writing, ended, reused;

/* A reactor that waits for the thread is not over before the write. */
static void be_late(void) {
    if (!writes_late) return;
    writing = 1;
    for (int i = 0; i < 200 && !reused; i++) usleep(1000);
}

/* The library's calls come here, too. */
__attribute__((visibility("default"))) ssize_t write(int fd, const void *bytes, size_t len) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "write");
    be_late();
    return real(fd, bytes, len);
}

__attribute__((visibility("default"))) long syscall(long number, ...) {
    static long (*real)(long, ...);
    long arg[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++) arg[i] = va_arg(args, long);
    va_end(args);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_write) be_late();
    return real(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static atomic_int ran;
static void note_run(void *arg) {
    ran++;
}

static void *post_and_end(void *r) {
    pthread_cancel(pthread_self()); /* from now on any cancellation point is its end */
    weft__reactor_call(r, note_run, NULL);
    return NULL;
}

TEST(a_thread_that_is_cancelled_while_it_posts_wakes_the_worker) {
    struct reactor *r = open_reactor();
    pthread_t thread;
    ran = 0;
    struct pollfd fd = {weft__reactor_fd(r), POLLIN, 0};
    while (poll(&fd, 1, 0) == 1) weft__reactor_progress(r, 0);
    CHECK_EQ(pthread_create(&thread, NULL, post_and_end, r), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(poll(&fd, 1, 0), 1);
    weft__reactor_progress(r, 0);
    CHECK_EQ(ran, 1);
    weft__reactor_destroy(r);
    CHECK_EQ(weft_context_destroy(context), 0);
}

static void note_end(weft_status_t status, void *arg) {
    ended = 1;
}
static void end_reactor(void *r) {
    weft__reactor_end(r, note_end, NULL);
}
static void *post_the_end(void *r) {
    writes_late = true;
    weft__reactor_call(r, end_reactor, r);
    return NULL;
}

/* The write for the wake would go to whatever has the descriptor's number by then. */
TEST(a_worker_that_a_posted_function_ends_waits_for_the_thread_that_posted_it) {
    struct reactor *r = open_reactor();
    pthread_t thread;
    int fds[8];
    uint64_t count;
    writing = ended = reused = 0;
    struct pollfd fd = {weft__reactor_fd(r), POLLIN, 0};
    while (poll(&fd, 1, 0) == 1) weft__reactor_progress(r, 0);
    CHECK_EQ(pthread_create(&thread, NULL, post_the_end, r), 0);
    for (double until = test_now() + test_timeout(60); !writing && test_now() < until;) usleep(100);
    CHECK_EQ(writing, 1);
    weft__reactor_progress(r, 0);
    CHECK_EQ(ended, 1);
    for (int i = 0; i < 8; i++) fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    reused = 1;
    pthread_join(thread, NULL);
    for (int i = 0; i < 8; i++) {
        CHECK(read(fds[i], &count, sizeof count) < 0);
        close(fds[i]);
    }
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* The same without a wait, many times, for ThreadSanitizer. */
static void *post_end(void *r) {
    weft__reactor_call(r, end_reactor, r);
    return NULL;
}

TEST(a_posted_function_may_end_the_worker) {
    for (int round = 0; round < 200; round++) {
        struct reactor *r = open_reactor();
        pthread_t thread;
        ended = 0;
        CHECK_EQ(pthread_create(&thread, NULL, post_end, r), 0);
        while (!ended) weft__reactor_wait(r, 1);
        pthread_join(thread, NULL);
        CHECK_EQ(weft_context_destroy(context), 0);
    }
}
