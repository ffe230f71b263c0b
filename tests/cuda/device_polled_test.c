/* Messages that wait in device memory, at a worker whose callbacks are polled: what their offers
 * say is kept until the program polls. */
#include <tests/cuda/patterns.h>
#include <tests/support/threads.h>

enum { LEN = 1500007, OTHERS = 2000, OTHER = 400 };

struct taking {
    char *to;
    int calls;
    uint32_t memory;
    struct tally done;
};

static void take(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct taking *taking = arg;
    taking->calls++;
    taking->memory = am->memory;
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){taking->to, LEN}, 1, OP(&taking->done));
    if (st != WEFT_IN_PROGRESS) tally(st, &taking->done);
}

static void pass_over(weft_ep_t *ep, weft_am_t *am, void *arg) {}

/* Other messages come by where the offer came, before the program polls. */
TEST(an_offer_of_device_memory_waits_for_polled_callbacks) {
    static char other[OTHER];
    struct pair p;
    struct tally sent = {0};
    gpu_load();
    pair_make(&p, "shm", NULL, 0);
    char *from = filled(LEN, 3);
    struct taking taking = {.to = gpu_alloc(LEN)};
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, take, &taking), 0);
    CHECK_EQ(weft_am_handler_set(p.b, ID, pass_over, NULL), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK_EQ(weft_am_send(p.to_b, ECHO, NULL, 0, &(weft_iov_t){from, LEN}, 1, OP(&sent)),
             WEFT_IN_PROGRESS);
    memset(other, 0x5a, sizeof other);
    for (int i = 0; i < OTHERS; i++) {
        CHECK(weft_am_send(p.to_b, ID, NULL, 0, &(weft_iov_t){other, OTHER}, 1, NULL) >= 0);
        weft_worker_progress(p.a, 0);
    }
    weft_ep_t *ep = p.to_b;
    struct tally flushed = {0};
    if (weft_ep_flush(ep, &(weft_op_t){.done = tally,
                                       .arg = &flushed,
                                       .flags = WEFT_FLUSH_REMOTE,
                                       .deadline_ms = 300}) == WEFT_IN_PROGRESS)
        while (!flushed.calls) weft_worker_progress(p.a, 0);
    CHECK_EQ(taking.calls, 0);
    UNTIL_PAIR(&p, sent.calls && taking.done.calls);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK_EQ(taking.done.status, WEFT_OK);
    CHECK_EQ(taking.memory, WEFT_MEMORY_CUDA);
    CHECK(holds(taking.to, LEN, 3));
    CHECK_EQ(weft_worker_count(p.b, "cuda.fetched"), 1);
    gpu.release(from);
    gpu.release(taking.to);
    pair_end(&p);
}
