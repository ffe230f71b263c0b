/* Two workers in one loop that is built on epoll, by its adapter: level- and edge-triggered. */
#include "pair.h"
#include <unistd.h>
#include <weft/adapters/epoll.h>

struct epoll_pair {
    struct pair_loop loop;
    int epoll;
    uint32_t how;
    weft_worker_t *worker[2];
    int fd[2];
};

static void attach(struct pair_loop *loop, int i, weft_worker_t *worker) {
    struct epoll_pair *pair = (struct epoll_pair *)loop;
    pair->worker[i] = worker;
    pair->fd[i] = weft_worker_fd(worker);
    CHECK_EQ(weft_epoll_attach(pair->epoll, worker, &pair->worker[i], pair->how), 0);
}

static void detach(struct pair_loop *loop, int i) {
    struct epoll_pair *pair = (struct epoll_pair *)loop;
    CHECK_EQ(weft_epoll_detach(pair->epoll, pair->fd[i]), 0);
    pair->worker[i] = NULL;
}

static void turn(struct pair_loop *loop) {
    struct epoll_pair *pair = (struct epoll_pair *)loop;
    struct epoll_event event[8];
    int n = epoll_wait(pair->epoll, event, 8, -1);
    for (int i = 0; i < n; i++) {
        weft_worker_t **worker = event[i].data.ptr;
        weft_adapter_readable(worker, 0, WEFT_ADAPTER_LOOKS);
    }
}

static void passes(uint32_t how, const char *transports, const char *uri) {
    struct epoll_pair pair = {.loop = {attach, detach, turn}, .how = how};
    pair.epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(pair.epoll >= 0);
    pair_passes(&pair.loop, transports, uri);
    close(pair.epoll);
}

TEST(messages_over_shm_wake_epoll) {
    passes(0, "shm", NULL);
}
TEST(messages_over_tcp_wake_epoll) {
    passes(0, "tcp", "tcp://127.0.0.1:0");
}
TEST(messages_over_shm_wake_edge_triggered_epoll) {
    passes(EPOLLET, "shm", NULL);
}
TEST(messages_over_tcp_wake_edge_triggered_epoll) {
    passes(EPOLLET, "tcp", "tcp://127.0.0.1:0");
}

static int attach_to(void *epoll, weft_worker_t *worker) {
    int st = weft_epoll_attach(*(int *)epoll, worker, NULL, 0);
    return st < 0 ? errno : st;
}
TEST(a_worker_without_a_descriptor_is_not_attached_to_epoll_and_why_is_returned) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK_EQ(attached_without_descriptors(attach_to, &epoll), EMFILE);
    close(epoll);
}
