/* A hot endpoint over shared memory needs nothing: no system call and no allocation a
 * message. */
#include <tests/support/worker_pair.h>

enum { WARM = 2000, N = 50000 };

static int answers;
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    answers++;
}
static void on_ping(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_am_send(ep, 2, NULL, 0, &(weft_iov_t){(void *)(uintptr_t)am->data, am->len}, 1, NULL);
}

static void pings(struct two *t, int n) {
    char bytes[8] = {0};
    int end = answers + n;
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, NULL),
                 WEFT_OK);
        int before = answers;
        UNTIL(t, answers == before + 1);
    }
    CHECK_EQ(answers, end);
}

static void quiet(const char *transport, uint64_t looks_allowed) {
    struct two t;
    two_up(&t, transport);
    weft_am_handler_set(two_b(&t), 1, on_ping, NULL);
    weft_am_handler_set(t.a, 2, on_answer, NULL);
    pings(&t, WARM);
    uint64_t allocations = weft_worker_count(t.a, "worker.allocations") +
                           weft_worker_count(two_b(&t), "worker.allocations");
    uint64_t looks = weft_worker_count(t.a, "worker.kernel_polls");
    uint64_t jobs = weft_worker_count(t.a, "worker.jobs");
    pings(&t, N);
    CHECK_EQ(weft_worker_count(t.a, "worker.allocations") +
                 weft_worker_count(two_b(&t), "worker.allocations"),
             allocations);
    looks = weft_worker_count(t.a, "worker.kernel_polls") - looks;
    jobs = weft_worker_count(t.a, "worker.jobs") - jobs;
    printf("  %s: %d round trips, 0 allocations, %lu looks at the kernel, %lu jobs\n", transport, N,
           (unsigned long)looks, (unsigned long)jobs);
    CHECK(looks <= looks_allowed);
    two_down(&t);
}

TEST(a_hot_endpoint_allocates_nothing_and_leaves_the_kernel_alone_shm) {
    quiet("shm", N / 10);
}
TEST(a_hot_endpoint_allocates_nothing_and_leaves_the_kernel_alone_self) {
    quiet("self", N / 10);
}
TEST(a_hot_endpoint_allocates_nothing_tcp) {
    quiet("tcp", UINT64_MAX);
}
