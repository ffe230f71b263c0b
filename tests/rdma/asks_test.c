/*
 * Who looks asks no completion channel, and who sleeps does: counted for so many messages, whatever
 * time they take. Calls of the C library that libibverbs makes for it pass through here.
 */
#include "bed.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { WARM = 20, MESSAGES = 100 };

/* Reads of completion channels; and commands to a device, by which its queues are asked to notify.
 * Its doorbells are writes. */
static struct asked { long reads, commands; } asked;

static bool is_file_of(int fd, const char *what) {
    char path[40], name[80];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(path, name, sizeof name - 1);
    name[len > 0 ? len : 0] = 0;
    return strstr(name, what);
}

__attribute__((visibility("default"))) ssize_t read(int fd, void *to, size_t size) {
    int before = errno;
    asked.reads += is_file_of(fd, "infinibandevent");
    errno = before;
    return syscall(SYS_read, fd, to, size);
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    int before = errno;
    asked.commands += is_file_of(fd, "/infiniband/");
    errno = before;
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* ---- one at a time, there and back ----------------------------------------------------------- */

static int answered;
static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_am_send(ep, 2, NULL, 0, &(weft_iov_t){"answers", 8}, 1, NULL);
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    answered++;
}

static void look(struct two *t) {
    two_turn(t);
}

/* Both are armed by a progress that finds nothing. */
static void sleep_until_notified(struct two *t) {
    struct pollfd fds[] = {{.fd = weft_worker_fd(t->a), .events = POLLIN},
                           {.fd = weft_worker_fd(t->b), .events = POLLIN}};
    while (weft_worker_progress(t->a, 0) + weft_worker_progress(t->b, 0) > 0) continue;
    poll(fds, 2, 100);
}

static struct asked ask(struct two *t, int n, void (*turn)(struct two *t)) {
    double end = test_now() + test_timeout(60);
    asked = (struct asked){0};
    answered = 0;
    for (int i = 1; i <= n; i++) {
        CHECK(weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){"asks", 5}, 1, NULL) >= 0);
        while (answered < i && test_now() < end) turn(t);
        CHECK_EQ(answered, i);
    }
    return asked;
}

static void no_one_asks_but_who_sleeps(const char *transport) {
    struct bed b;
    bed_up(&b, transport, "rxe1", (weft_setting_t){0});
    CHECK_EQ(weft_am_handler_set(b.t.b, 1, on_question, NULL), 0);
    CHECK_EQ(weft_am_handler_set(b.t.a, 2, on_answer, NULL), 0);
    ask(&b.t, WARM, look);
    struct asked polled = ask(&b.t, MESSAGES, look);
    /* from now on they are armed */
    CHECK(weft_worker_fd(b.t.a) >= 0 && weft_worker_fd(b.t.b) >= 0);
    struct asked asleep = ask(&b.t, MESSAGES, sleep_until_notified);
    printf("  %s: in %d round trips %ld reads of channels and %ld commands by who looks, %ld and "
           "%ld by who sleeps\n",
           transport, MESSAGES, polled.reads, polled.commands, asleep.reads, asleep.commands);
    bed_down(&b);
    CHECK_EQ(polled.reads, 0);
    CHECK_EQ(polled.commands, 0);
    /* so such calls are seen here */
    CHECK(asleep.reads >= MESSAGES && asleep.commands >= MESSAGES);
}

TEST(rdma_rc_polled_messages_ask_no_completion_channel) {
    no_one_asks_but_who_sleeps("rdma_rc");
}
TEST(rdma_ud_polled_messages_ask_no_completion_channel) {
    no_one_asks_but_who_sleeps("rdma_ud");
}
