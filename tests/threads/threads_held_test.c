/* A worker with a thread of its own, of which a program that computes takes no callbacks: what has
 * ended holds nothing up, here or at the peer. */
#include <tests/support/threads.h>

#include <poll.h>
#include <weft/rma.h>
#include <weft/stream.h>

enum { LARGE = 64 << 20 };

static struct tally ended;

static void begin(struct pair *p, const char *transport, const weft_setting_t *settings, size_t n) {
    pair_make(p, transport, settings, n);
    ended = (struct tally){0};
    CHECK_EQ(
        weft_worker_start_thread(p->b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
}

/* The program of b does not ask for its callbacks. */
#define UNTIL_A(p, cond)                                                   \
    do {                                                                   \
        double end_a = test_now() + test_timeout(60);                      \
        while (!(cond) && test_now() < end_a) weft_worker_wait((p)->a, 1); \
        CHECK(cond);                                                       \
    } while (0)

/* A callback of b's waits for its program. */
static bool is_due(const struct pair *p) {
    return poll(&(struct pollfd){.fd = weft_worker_fd(p->b), .events = POLLIN}, 1, 0) == 1;
}

static void end(struct pair *p, weft_status_t status) {
    CHECK_EQ(ended.calls, 0);
    UNTIL_PAIR(p, ended.calls);
    CHECK_EQ(ended.calls, 1);
    CHECK_EQ(ended.status, status);
    pair_end(p);
}

/* Its deadline passes while the window is full. */
TEST(a_stream_goes_on_behind_a_send_that_ended_early) {
    struct pair p;
    weft_setting_t window = {"stream.window", "4096"};
    static char first[8192], in[8192];
    char last[4] = "end";
    size_t len, all = 0;
    begin(&p, "tcp", &window, 1);
    weft_op_t op = {.done = tally, .arg = &ended, .deadline_ms = 100};
    CHECK_EQ(weft_stream_send(p.to_a, &(weft_iov_t){first, sizeof first}, 1, &op),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(p.to_a, &(weft_iov_t){last, 4}, 1, NULL), WEFT_IN_PROGRESS);
    UNTIL_A(&p, is_due(&p));
    for (double until = test_now() + test_timeout(60); all < 4096 + 4 && test_now() < until;) {
        struct tally got = {0};
        weft_status_t st =
            weft_stream_recv(p.to_b, &(weft_iov_t){in + all, sizeof in - all}, 1, &len, OP(&got));
        if (st == WEFT_IN_PROGRESS) UNTIL_A(&p, got.calls);
        if (st == WEFT_IN_PROGRESS && !got.calls) break;
        all += len;
    }
    CHECK_EQ(all, 4096 + 4);
    CHECK(memcmp(in + 4096, "end", 4) == 0);
    end(&p, WEFT_ERR_TIMED_OUT);
}

struct shared {
    uint8_t packed[WEFT_RKEY_MAX];
    size_t len;
    weft_rkey_t *key;
};

static void unpack(void *arg) {
    struct pair *p = arg;
    struct shared *s = weft_ep_user(p->to_a);
    CHECK_EQ(weft_rkey_unpack(p->to_a, s->packed, s->len, &s->key), 0);
    p->arrived = 1;
}
static void unpack_there(struct pair *p) {
    CHECK_EQ(weft_worker_post(p->b, unpack, p), 0);
    while (!p->arrived) sched_yield();
}

/* By messages, of which the first needs a request. */
TEST(what_stands_behind_a_fence_is_put) {
    struct pair p;
    struct shared s = {.len = WEFT_RKEY_MAX};
    weft_mem_t *mem;
    weft_mem_info_t info;
    static char bytes[4 << 20];
    begin(&p, "tcp", NULL, 0);
    CHECK_EQ(
        weft_mem_alloc(p.a, sizeof bytes + 8, &(weft_mem_params_t){.rights = WEFT_MEM_WRITE}, &mem),
        0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, s.packed, &s.len), 0);
    weft_ep_set_user(p.to_a, &s);
    unpack_there(&p);
    uint64_t at = (uint64_t)(uintptr_t)info.base;
    volatile char *flag = (char *)info.base + sizeof bytes;
    CHECK_EQ(weft_put(p.to_a, bytes, sizeof bytes, at, s.key, OP(&ended)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_fence(p.to_a), 0);
    CHECK_EQ(weft_put(p.to_a, "flagged", 8, at + sizeof bytes, s.key, NULL), WEFT_IN_PROGRESS);
    UNTIL_A(&p, *flag == 'f');
    weft_rkey_release(s.key);
    end(&p, WEFT_OK);
}

/* Its sender has given up half way. */
static void ends_with_its_sender(struct pair *p) {
    static char out[LARGE], in[LARGE];
    struct tally received = {0};
    CHECK_EQ(
        weft_tag_recv(p->a, 3, UINT64_MAX, &(weft_iov_t){in, sizeof in}, 1, NULL, OP(&received)),
        WEFT_IN_PROGRESS);
    weft_op_t op = {.done = tally, .arg = &ended, .deadline_ms = 300};
    uint64_t before = weft_worker_count(p->a, "protocol.pieces");
    CHECK_EQ(weft_tag_send(p->to_a, 3, &(weft_iov_t){out, sizeof out}, 1, &op), WEFT_IN_PROGRESS);
    UNTIL_A(p, weft_worker_count(p->a, "protocol.pieces") > before);
    for (double end = test_now() + test_timeout(60); !is_due(p) && test_now() < end;)
        sched_yield(); /* it takes no more */
    UNTIL_A(p, received.calls);
    CHECK_EQ(received.status, WEFT_ERR_CANCELLED);
    end(p, WEFT_ERR_TIMED_OUT);
}

TEST(a_receive_whose_message_ends_at_its_sender_ends) {
    struct pair p;
    begin(&p, "tcp", NULL, 0);
    ends_with_its_sender(&p);
}

/* The first large message has them made. */
TEST(a_receive_whose_message_ends_at_its_sender_ends_over_rails) {
    struct pair p;
    static char out[1 << 20], in[1 << 20];
    weft_setting_t rails = {"link.rails", "2"};
    struct tally received = {0};
    begin(&p, "tcp", &rails, 1);
    CHECK_EQ(
        weft_tag_recv(p.a, 3, UINT64_MAX, &(weft_iov_t){in, sizeof in}, 1, NULL, OP(&received)),
        WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p.to_a, 3, &(weft_iov_t){out, sizeof out}, 1, NULL), WEFT_IN_PROGRESS);
    UNTIL_A(&p, received.calls && weft_worker_count(p.b, "link.rails"));
    ends_with_its_sender(&p);
}
