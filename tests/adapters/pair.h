/*
 * A server and a client in one loop of the program. The client sends messages one by one, and each
 * is echoed. So every one of them has to wake both workers. Then both workers close without
 * blocking, and leave the loop within `done`.
 */
#ifndef WEFT_TESTS_ADAPTERS_PAIR_H
#define WEFT_TESTS_ADAPTERS_PAIR_H

#include <fcntl.h>
#include <sys/resource.h>
#include <tests/harness.h>
#include <tests/network.h>
#include <unistd.h>
#include <weft/weft.h>

struct pair_loop {
    void (*attach)(struct pair_loop *loop, int i, weft_worker_t *worker);
    void (*detach)(struct pair_loop *loop, int i);
    void (*turn)(struct pair_loop *loop); /* sleeps until something is ready, and handles it */
};

enum { CLIENT, SERVER, QUESTION = 1, ANSWER = 2, PAIR_MESSAGES = 300 };

struct pair {
    struct pair_loop *loop;
    weft_worker_t *worker[2];
    int fd[2];
    weft_ep_t *ep;
    unsigned answers, closed;
};

struct member {
    struct pair *pair;
    int i;
};

static void ask(struct pair *pair) {
    weft_iov_t iov = {&pair->answers, sizeof pair->answers};
    CHECK(weft_am_send(pair->ep, QUESTION, NULL, 0, &iov, 1, NULL) >= 0);
}

static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_iov_t iov = {(void *)am->data, am->len};
    CHECK(weft_am_send(ep, ANSWER, NULL, 0, &iov, 1, NULL) >= 0);
}

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *pair = arg;
    CHECK(memcmp(am->data, &pair->answers, sizeof pair->answers) == 0);
    if (++pair->answers < PAIR_MESSAGES) ask(pair);
}

static void on_closed(weft_status_t status, void *arg) {
    struct member *member = arg;
    CHECK_EQ(status, WEFT_OK);
    /* the descriptor is still open, so that the loop can forget it */
    CHECK(fcntl(member->pair->fd[member->i], F_GETFD) >= 0);
    member->pair->loop->detach(member->pair->loop, member->i);
    member->pair->closed++;
}

static void connect_pair(struct pair *pair, const char *uri) {
    weft_listener_t *listener;
    char address[1024];
    size_t len = sizeof address;
    if (uri) {
        CHECK_EQ(weft_listen(pair->worker[SERVER], uri, NULL, &listener), WEFT_OK);
        CHECK_EQ(weft_connect(pair->worker[CLIENT], weft_listener_uri(listener), NULL, &pair->ep),
                 WEFT_OK);
        return;
    }
    CHECK_EQ(weft_worker_address(pair->worker[SERVER], address, &len), WEFT_OK);
    CHECK_EQ(weft_connect_address(pair->worker[CLIENT], address, len, NULL, &pair->ep), WEFT_OK);
}

/* `uri`: where the server listens; NULL: the client connects by the server's address. */
static void pair_passes(struct pair_loop *loop, const char *transports, const char *uri) {
    struct pair pair = {.loop = loop};
    struct member member[2] = {{&pair, CLIENT}, {&pair, SERVER}};
    weft_context_t *context;
    alarm((unsigned)test_timeout(60)); /* a lost wakeup sleeps without end */
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        weft_worker_params_t params = {.transports = transports};
        CHECK_EQ(weft_worker_create(context, &params, &pair.worker[i]), WEFT_OK);
        loop->attach(loop, i, pair.worker[i]);
        pair.fd[i] = weft_worker_fd(pair.worker[i]);
    }
    CHECK_EQ(weft_am_handler_set(pair.worker[SERVER], QUESTION, on_question, &pair), WEFT_OK);
    CHECK_EQ(weft_am_handler_set(pair.worker[CLIENT], ANSWER, on_answer, &pair), WEFT_OK);
    connect_pair(&pair, uri);
    ask(&pair);
    while (pair.answers < PAIR_MESSAGES) loop->turn(loop);
    for (int i = 0; i < 2; i++) {
        weft_op_t op = {.done = on_closed, .arg = &member[i]};
        CHECK_EQ(weft_worker_close(pair.worker[i], &op), WEFT_IN_PROGRESS);
    }
    while (pair.closed < 2) loop->turn(loop);
    for (int i = 0; i < 2; i++) CHECK(fcntl(pair.fd[i], F_GETFD) < 0);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    alarm(0);
}

/* What `attach` returns for a worker in a process that has no descriptor left. */
static inline int attached_without_descriptors(int (*attach)(void *loop, weft_worker_t *worker),
                                               void *loop) {
    weft_context_t *context;
    weft_worker_t *worker;
    struct rlimit most, none;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), WEFT_OK);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &most), 0);
    none = (struct rlimit){0, most.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    int answer = attach(loop, worker);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &most), 0);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    return answer;
}

#endif
