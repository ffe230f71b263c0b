/* Two workers in one loop of libuv, by its adapter. */
#include "pair.h"
#include <weft/adapters/uv.h>

struct uv_pair {
    struct pair_loop loop;
    uv_loop_t uv;
    weft_uv_t host[2];
    int n_detached;
};

static void attach(struct pair_loop *loop, int i, weft_worker_t *worker) {
    struct uv_pair *pair = (struct uv_pair *)loop;
    CHECK_EQ(weft_uv_attach(&pair->host[i], &pair->uv, worker), 0);
    pair->host[i].arg = pair;
    pair->host[i].budget = (unsigned)i;    /* one has a budget of one event, one has none */
    pair->host[i].looks = (unsigned)i * 8; /* one looks for the next message, one does not */
}

static void on_detached(weft_uv_t *host) {
    ((struct uv_pair *)host->arg)->n_detached++;
}

static void detach(struct pair_loop *loop, int i) {
    weft_uv_detach(&((struct uv_pair *)loop)->host[i], on_detached);
}

static void turn(struct pair_loop *loop) {
    uv_run(&((struct uv_pair *)loop)->uv, UV_RUN_ONCE);
}

static void passes(const char *transports, const char *uri) {
    struct uv_pair pair = {.loop = {attach, detach, turn}};
    CHECK_EQ(uv_loop_init(&pair.uv), 0);
    pair_passes(&pair.loop, transports, uri);
    uv_run(&pair.uv, UV_RUN_DEFAULT);
    CHECK_EQ(pair.n_detached, 2);
    CHECK_EQ(uv_loop_close(&pair.uv), 0);
}

TEST(messages_over_shm_wake_uv) {
    passes("shm", NULL);
}
TEST(messages_over_tcp_wake_uv) {
    passes("tcp", "tcp://127.0.0.1:0");
}

static int attach_to(void *uv, weft_worker_t *worker) {
    weft_uv_t host;
    return weft_uv_attach(&host, uv, worker);
}
TEST(a_worker_without_a_descriptor_is_not_attached_to_uv_and_why_is_returned) {
    uv_loop_t uv;
    CHECK_EQ(uv_loop_init(&uv), 0);
    CHECK_EQ(attached_without_descriptors(attach_to, &uv), UV_EMFILE);
    CHECK_EQ(uv_loop_close(&uv), 0);
}
