/* Watches of what rarely becomes ready. */
#include <poll.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <sys/socket.h>
#include <tests/harness.h>
#include <unistd.h>

enum { MANY = 100 };

struct ear {
    struct aux_watch watch;
    int fds[2];
    unsigned received;
};

struct work {
    struct job job;
    unsigned ran;
};

static weft_context_t *context;
static struct reactor *r;
static struct ear ears[MANY];
static struct work answer, endless;

static void run_answer(struct job *job) {
    answer.ran++;
}
static void run_again(struct job *job) {
    endless.ran++;
    weft__job_post(r, job);
}

static void recv_msg(struct aux_watch *watch, int events) {
    struct ear *ear = (struct ear *)watch;
    char byte;
    CHECK_EQ(events, WATCH_READ);
    CHECK_EQ(recv(watch->fd, &byte, 1, MSG_DONTWAIT), 1);
    ear->received++;
    weft__job_post(r, &answer.job);
}

static void open_ears(void) {
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){0}, &r), WEFT_OK);
    CHECK_EQ(weft__aux_watch_open(r), WEFT_OK);
    answer = (struct work){{.run = run_answer}, 0};
    endless = (struct work){{.run = run_again}, 0};
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ears[i].fds), 0);
        ears[i].watch = (struct aux_watch){.ready = recv_msg, .fd = ears[i].fds[0]};
        ears[i].received = 0;
        CHECK_EQ(weft__aux_watch_start(r, &ears[i].watch, WATCH_READ), WEFT_OK);
    }
}

static void close_ears(void) {
    for (int i = 0; i < MANY; i++) {
        weft__aux_watch_stop(r, &ears[i].watch);
        close(ears[i].fds[0]);
        close(ears[i].fds[1]);
    }
    weft__reactor_destroy(r);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

static void turns(int n) {
    for (int i = 0; i < n; i++) weft__reactor_progress(r, 0);
}

static unsigned received_by_all(void) {
    unsigned n = 0;
    for (int i = 0; i < MANY; i++) n += ears[i].received;
    return n;
}

static bool readable(int fd) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0) == 1;
}

/* How many descriptors an epoll holds. */
static unsigned held_by(int epoll) {
    char name[64], line[256];
    unsigned n = 0;
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", epoll);
    FILE *f = fopen(name, "r");
    CHECK(f);
    while (f && fgets(line, sizeof line, f)) n += !strncmp(line, "tfd:", 4);
    if (f) fclose(f);
    return n;
}

TEST(each_is_called_as_often_as_it_notifies) {
    open_ears();
    for (int i = 0; i < MANY; i++) CHECK_EQ(write(ears[i].fds[1], "ab", i % 3), i % 3);
    for (int i = 0; i < 1000 && received_by_all() < 99; i++) turns(1);
    turns(10);
    for (unsigned i = 0; i < MANY; i++) CHECK_EQ(ears[i].received, i % 3);
    close_ears();
}

TEST(the_workers_fd_notifies_of_them_and_holds_none) {
    open_ears();
    int fd = weft__reactor_fd(r);
    turns(10);
    CHECK(held_by(fd) < MANY);
    CHECK(!readable(fd));
    CHECK_EQ(write(ears[7].fds[1], "a", 1), 1);
    CHECK(readable(fd));
    turns(10);
    CHECK_EQ(ears[7].received, 1);
    CHECK(!readable(fd));
    close_ears();
}

TEST(what_it_has_others_do_is_done_in_its_turn_and_the_next_is_as_any) {
    open_ears();
    CHECK_EQ(write(ears[3].fds[1], "a", 1), 1);
    for (int i = 0; i < 1000 && !ears[3].received; i++) turns(1);
    CHECK_EQ(ears[3].received, 1);
    CHECK_EQ(answer.ran, 1);
    weft__job_post(r, &endless.job);
    for (unsigned i = 1; i < 5; i++) {
        turns(1);
        CHECK_EQ(endless.ran, i);
    }
    weft__job_drop(r, &endless.job);
    close_ears();
}

static void count_only(struct aux_watch *watch, int events) {
    ((struct ear *)watch)->received++;
}

/* What was written stays unread. */
TEST(one_that_is_notified_once_is_called_once_for_each_write) {
    open_ears();
    struct ear ear = {.watch = {.ready = count_only, .notified_once = true}};
    CHECK_EQ(pipe(ear.fds), 0);
    ear.watch.fd = ear.fds[0];
    CHECK_EQ(weft__aux_watch_start(r, &ear.watch, WATCH_READ), WEFT_OK);
    for (unsigned n = 1; n < 4; n++) {
        char byte;
        if (n == 3) CHECK_EQ(read(ear.fds[0], &byte, 1) + read(ear.fds[0], &byte, 1), 2);
        CHECK_EQ(write(ear.fds[1], "a", 1), 1);
        turns(100);
        CHECK_EQ(ear.received, n);
    }
    weft__aux_watch_stop(r, &ear.watch);
    close(ear.fds[0]);
    close(ear.fds[1]);
    close_ears();
}

TEST(one_that_is_stopped_or_waits_for_nothing_is_not_called) {
    open_ears();
    for (int i = 0; i < 3; i++) CHECK_EQ(write(ears[i].fds[1], "a", 1), 1);
    weft__aux_watch_stop(r, &ears[0].watch);
    CHECK_EQ(weft__aux_watch_start(r, &ears[1].watch, 0), WEFT_OK);
    turns(100);
    CHECK_EQ(received_by_all(), 1);
    CHECK_EQ(weft__aux_watch_start(r, &ears[1].watch, WATCH_READ), WEFT_OK);
    turns(100);
    CHECK_EQ(ears[1].received, 1);
    close_ears();
}

/* The first that is called stops all others, and they are gone: none of those that the kernel
 * reported with it is called. */
static void recv_alone(struct aux_watch *watch, int events) {
    ((struct ear *)watch)->received++;
    for (int i = 0; i < MANY; i++) {
        weft__aux_watch_stop(r, &ears[i].watch);
        memset(&ears[i].watch, 0xee, sizeof ears[i].watch);
    }
}

TEST(one_that_was_stopped_and_is_gone_is_called_no_more) {
    open_ears();
    for (int i = 0; i < MANY; i++) {
        ears[i].watch.ready = recv_alone;
        CHECK_EQ(write(ears[i].fds[1], "a", 1), 1);
    }
    for (int i = 0; i < 1000 && !received_by_all(); i++) turns(1);
    turns(10);
    CHECK_EQ(received_by_all(), 1);
    for (int i = 0; i < MANY; i++) ears[i].watch.events = 0;
    close_ears();
}
