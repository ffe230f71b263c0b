/* Two workers in one loop of libevent, by its adapter. */
#include "pair.h"
#include <weft/adapters/event.h>

struct event_pair {
    struct pair_loop loop;
    struct event_base *base;
    struct event *watch[2];
};

static void attach(struct pair_loop *loop, int i, weft_worker_t *worker) {
    struct event_pair *pair = (struct event_pair *)loop;
    pair->watch[i] = weft_event_attach(pair->base, worker);
    CHECK(pair->watch[i] != NULL);
}

static void detach(struct pair_loop *loop, int i) {
    weft_event_detach(((struct event_pair *)loop)->watch[i]);
}

static void turn(struct pair_loop *loop) {
    CHECK(event_base_loop(((struct event_pair *)loop)->base, EVLOOP_ONCE) >= 0);
}

static void passes(const char *transports, const char *uri) {
    struct event_pair pair = {.loop = {attach, detach, turn}, .base = event_base_new()};
    CHECK(pair.base != NULL);
    pair_passes(&pair.loop, transports, uri);
    event_base_free(pair.base);
}

TEST(messages_over_shm_wake_event) {
    passes("shm", NULL);
}
TEST(messages_over_tcp_wake_event) {
    passes("tcp", "tcp://127.0.0.1:0");
}
