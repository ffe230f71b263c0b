/* A look for more before a host's loop sleeps: what comes is handled, and no wakeup is lost. */
#include <base/counters.h>
#include <poll.h>
#include <reactor/local.h>
#include <sched.h>
#include <tests/harness.h>
#include <time.h>
#include <unistd.h>

static weft_context_t *context;

static struct reactor *open_with(const char *spin) {
    struct reactor *r = NULL;
    weft_setting_t setting = {"worker.spin", spin};
    weft_context_params_t params = {.settings = &setting, .n_settings = 1};
    CHECK_EQ(weft_context_create(&params, &context), WEFT_OK);
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){.max_fds = 64}, &r), WEFT_OK);
    return r;
}

static void close_reactor(struct reactor *r) {
    weft__reactor_destroy(r);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

static bool readable(struct reactor *r, int timeout_ms) {
    struct pollfd fd = {weft__reactor_fd_level(r), POLLIN, 0};
    return poll(&fd, 1, timeout_ms) == 1;
}

static void settle(struct reactor *r) {
    while (readable(r, 0)) weft__reactor_progress(r, 0);
}

struct reader {
    struct watch watch;
    struct reactor *r;
    unsigned n_read;
    int within;
};

static void read_one(struct watch *watch, int events) {
    struct reader *reader = (struct reader *)watch;
    char byte;
    if (read(watch->fd, &byte, 1) == 1) reader->n_read++;
    reader->within = weft__reactor_spin(reader->r);
}

/* A worker that reads a pipe; returns the pipe's other end. */
static int start(struct reader *reader, struct reactor *r) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    *reader = (struct reader){.watch.ready = read_one, .r = r};
    CHECK_EQ(weft__watch_start(r, &reader->watch, fds[0], WATCH_READ), WEFT_OK);
    readable(r, 0);
    settle(r);
    return fds[1];
}

TEST(what_is_there_is_handled_and_the_descriptor_is_armed_for_the_next) {
    struct reactor *r = open_with("50000");
    struct reader reader;
    int fd = start(&reader, r);
    for (unsigned i = 1; i <= 100; i++) {
        CHECK_EQ(write(fd, "", 1), 1);
        CHECK(weft__reactor_spin(r) > 0);
        CHECK_EQ(reader.n_read, i);
        settle(r);
        CHECK(!readable(r, 0));
        CHECK_EQ(write(fd, "", 1), 1);
        CHECK(readable(r, 20000)); /* as without a spin */
        CHECK(read(reader.watch.fd, &(char){0}, 1) == 1);
        settle(r);
    }
    weft__watch_stop(r, &reader.watch);
    close_reactor(r);
}

TEST(a_look_in_vain_ends_and_a_wake_after_it_is_seen) {
    struct reactor *r = open_with("50000");
    settle(r);
    for (unsigned i = 0; i < 200; i++) {
        CHECK_EQ(weft__reactor_spin(r), 0);
        CHECK(!readable(r, 0));
        weft__reactor_wake(r);
        CHECK(readable(r, 20000));
        settle(r);
    }
    close_reactor(r);
}

TEST(a_wake_that_comes_before_a_look_is_reported_by_it) {
    struct reactor *r = open_with("50000");
    settle(r);
    weft__reactor_wake(r);
    CHECK_EQ(weft__reactor_spin(r), 1);
    CHECK_EQ(weft__reactor_spin(r), 0);
    close_reactor(r);
}

/* Two that wake each other sleep for about two wake-ups; that pays for a look at full length. */
TEST(a_short_sleep_of_the_host_after_a_look_pays_for_a_longer_one) {
    struct reactor *r = open_with("3600000000000");
    r->spin.most = 1000; /* a look is short */
    settle(r);
    CHECK_EQ(weft__reactor_spin(r), 0);
    CHECK(r->spun_at != 0);
    r->spin.most = 3600000000000; /* and any sleep is */
    uint64_t saved = r->spin.saved;
    usleep(1000);
    weft__reactor_wake(r);
    settle(r);
    CHECK_EQ(r->spun_at, 0);
    CHECK(r->spin.saved >= saved + 1000000 / SPIN_SAVES);
    close_reactor(r);
}

/* As a yield that took a whole time slice leaves it. */
TEST(where_others_want_the_core_it_does_not_look_for_a_while) {
    struct reactor *r = open_with("50000");
    settle(r);
    r->waits_without_spin = 2;
    uint64_t turns = weft__count(r)->turns;
    CHECK_EQ(weft__reactor_spin(r), 0);
    CHECK_EQ(weft__reactor_spin(r), 0);
    CHECK_EQ(weft__count(r)->turns, turns);
    weft__reactor_spin(r);
    CHECK(weft__count(r)->turns > turns);
    close_reactor(r);
}

/* In place of the C library's: the first yield takes this long, in ns, as where another thread runs
 * in it; and what that thread writes to. */
static long first_yield_ns;
static unsigned n_yields;
static int written_by_others = -1;

int sched_yield(void) {
    struct timespec pause = {.tv_nsec = first_yield_ns};
    first_yield_ns = 0;
    n_yields++;
    if (written_by_others >= 0) CHECK_EQ(write(written_by_others, "", 1), 1);
    return pause.tv_nsec ? nanosleep(&pause, NULL) : 0;
}

/* On a busy machine a yield may take a time slice, after which it does not look for a while. */
static void forget_long_yields(struct reactor *r) {
    r->waits_without_spin = 0;
    r->shares_core = true;
}

/* A look that learns, from a yield in which another thread ran, that the core is shared. */
static void learn(struct reactor *r) {
    r->spin.saved = r->spin.most; /* for a look at full length, which yields */
    first_yield_ns = 20000;
    CHECK_EQ(weft__reactor_spin(r), 0);
    CHECK_EQ(first_yield_ns, 0);
    CHECK(r->shares_core);
    r->waits_without_spin = 0; /* on a busy machine the yield may have taken a time slice */
    n_yields = 0;
}

TEST(after_a_yield_in_which_another_thread_ran_it_yields_once_a_look) {
    struct reactor *r = open_with("200000");
    settle(r);
    learn(r);
    for (unsigned i = 1; i <= 3; i++) {
        CHECK_EQ(weft__reactor_spin(r), 0);
        CHECK_EQ(n_yields, i);
        forget_long_yields(r);
    }
    close_reactor(r);
}

TEST(after_yields_in_vain_where_another_thread_ran_it_does_not_look_for_a_while) {
    struct reactor *r = open_with("200000");
    settle(r);
    learn(r);
    for (int i = 0; i < 8; i++) CHECK_EQ(weft__reactor_spin(r), 0);
    uint64_t turns = weft__count(r)->turns;
    n_yields = 0;
    for (int i = 0; i < 8; i++) CHECK_EQ(weft__reactor_spin(r), 0);
    CHECK_EQ(weft__count(r)->turns, turns);
    CHECK_EQ(n_yields, 0);
    close_reactor(r);
}

TEST(what_another_thread_that_ran_during_a_yield_sent_is_handled) {
    struct reactor *r = open_with("200000");
    struct reader reader;
    int fd = start(&reader, r);
    learn(r);
    written_by_others = fd;
    for (unsigned i = 1; i <= 100; i++) {
        CHECK(weft__reactor_spin(r) > 0);
        CHECK_EQ(reader.n_read, i);
        CHECK_EQ(n_yields, i);
        settle(r);
        CHECK(!readable(r, 0));
        forget_long_yields(r);
    }
    written_by_others = -1;
    weft__watch_stop(r, &reader.watch);
    close_reactor(r);
}

TEST(without_worker_spin_nothing_is_looked_for) {
    struct reactor *r = open_with("0");
    struct reader reader;
    int fd = start(&reader, r);
    uint64_t turns = weft__count(r)->turns;
    CHECK_EQ(write(fd, "", 1), 1);
    CHECK_EQ(weft__reactor_spin(r), 0);
    CHECK_EQ(weft__count(r)->turns, turns);
    CHECK(readable(r, 20000));
    weft__watch_stop(r, &reader.watch);
    close_reactor(r);
}

TEST(a_callback_may_not_spin) {
    struct reactor *r = open_with("50000");
    struct reader reader;
    int fd = start(&reader, r);
    CHECK_EQ(write(fd, "", 1), 1);
    while (!reader.n_read)
        if (readable(r, 100)) weft__reactor_progress(r, 0);
    CHECK_EQ(reader.within, WEFT_ERR_BUSY);
    weft__watch_stop(r, &reader.watch);
    close_reactor(r);
}
