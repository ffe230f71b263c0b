/* One side of two processes: each has a worker, the child says where its own is, and the parent
 * dials it. */
#ifndef WEFT_TESTS_SUPPORT_ONE_WORKER_H
#define WEFT_TESTS_SUPPORT_ONE_WORKER_H

#include "worker_pair.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct side {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep; /* to the other */
    char *out, *in;
    int ready, errors;
};

static inline void side_on_ready(weft_ep_t *ep, void *arg) {
    ((struct side *)arg)->ready++;
}
static inline void side_on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct side *)arg)->errors++;
}
static inline void side_on_endpoint(weft_ep_t *ep, void *arg) {
    ((struct side *)arg)->ep = ep;
}

static inline void side_open(struct side *s, const char *transports, const weft_setting_t *settings,
                             size_t n) {
    *s = (struct side){0};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = n},
                                 &s->context),
             0);
    weft_worker_params_t params = {.transports = transports,
                                   .on_endpoint = side_on_endpoint,
                                   .on_error = side_on_error,
                                   .arg = s};
    CHECK_EQ(weft_worker_create(s->context, &params, &s->worker), 0);
}

static inline void side_close(struct side *s) {
    weft_worker_destroy(s->worker);
    CHECK_EQ(weft_context_destroy(s->context), 0);
}

static inline void side_turn(struct side *s) {
    test_idle(weft_worker_progress(s->worker, 0) > 0);
}

/* The child's: says where it is, */
static inline void side_notify(const struct side *s, int out) {
    char address[256];
    size_t len = sizeof address;
    if (weft_worker_address(s->worker, address, &len) || write(out, address, len) != (ssize_t)len)
        _exit(1);
    close(out);
}
/* and waits until it is dialed. */
static inline void side_meet(struct side *s, int out) {
    side_notify(s, out);
    while (!s->ep) side_turn(s);
}

/* The parent's. */
struct child {
    pid_t pid;
    char address[256];
    ssize_t len;
};

/* Before this process has a worker: `run` says where it is into `out`. It ends the process, or
 * fails. */
static inline void child_start(struct child *c, void (*run)(int out, const void *arg),
                               const void *arg) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    c->pid = fork();
    if (c->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails */
        if (setjmp(test_out) == 0) run(fds[1], arg);
        fflush(stdout);
        _exit(1);
    }
    close(fds[1]);
    c->len = read(fds[0], c->address, sizeof c->address);
    close(fds[0]);
    CHECK(c->len > 0);
}

static inline void child_dial(const struct child *c, struct side *s) {
    weft_ep_params_t params = {.on_ready = side_on_ready, .on_error = side_on_error, .arg = s};
    CHECK_EQ(weft_connect_address(s->worker, c->address, (size_t)c->len, &params, &s->ep), 0);
    double end = test_now() + test_timeout(60);
    while (!s->ready && test_now() < end) side_turn(s);
}

/* How it ended, as waitpid says. */
static inline int child_end(const struct child *c) {
    int status;
    CHECK_EQ(waitpid(c->pid, &status, 0), c->pid);
    return status;
}

#endif
