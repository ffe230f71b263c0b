/*
 * A test's program and a child of its own with its own double of the driver, connected over shm.
 * The test defines child_serves, which the child calls.
 */
#ifndef WEFT_TESTS_CUDA_IPC_CHILD_H
#define WEFT_TESTS_CUDA_IPC_CHILD_H

#include <signal.h>
#include <sys/wait.h>
#include <tests/cuda/device.h>
#include <tests/support/worker_pair.h>

struct child {
    weft_ep_t *ep;
    bool lost;
};
static void child_serves(weft_worker_t *worker, const struct child *child);

static void child_has_endpoint(weft_ep_t *ep, void *arg) {
    ((struct child *)arg)->ep = ep;
}
static void child_is_left(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct child *)arg)->lost = true;
}

static void child_waits(weft_worker_t *worker, const struct child *child, const struct tally *t) {
    while (!child->lost && !t->calls) weft_worker_wait(worker, 20);
}

__attribute__((constructor(65535))) static void run_child(void) {
    const char *to = getenv("WEFT_TEST_CHILD");
    char address[512];
    size_t len = sizeof address;
    struct child child = {0};
    weft_context_t *context;
    weft_worker_t *worker;
    if (!to) return;
    gpu_load();
    weft_worker_params_t params = {.transports = "shm",
                                   .on_endpoint = child_has_endpoint,
                                   .on_error = child_is_left,
                                   .arg = &child};
    if (weft_context_create(NULL, &context) || weft_worker_create(context, &params, &worker) ||
        weft_worker_address(worker, address, &len))
        _exit(1);
    if (write(atoi(to), address, len) != (ssize_t)len) _exit(1);
    close(atoi(to));
    for (int i = 0; i < 500 && !child.ep; i++) weft_worker_wait(worker, 20);
    if (!child.ep) _exit(2);
    child_serves(worker, &child);
    _exit(0);
}

struct ipc {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    pid_t child;
    bool lost;
};
static void parent_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct ipc *)arg)->lost = true;
}

static void ipc_up(struct ipc *p) {
    char address[512], number[16];
    int ends[2];
    *p = (struct ipc){0};
    gpu_load();
    CHECK_EQ(pipe(ends), 0);
    p->child = fork();
    if (p->child == 0) {
        close(ends[0]);
        snprintf(number, sizeof number, "%d", ends[1]);
        setenv("WEFT_TEST_CHILD", number, 1);
        execl("/proc/self/exe", "child", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    ssize_t len = read(ends[0], address, sizeof address);
    close(ends[0]);
    CHECK(len > 0);
    CHECK_EQ(weft_context_create(NULL, &p->context), 0);
    CHECK_EQ(
        weft_worker_create(p->context, &(weft_worker_params_t){.transports = "shm"}, &p->worker),
        0);
    weft_ep_params_t params = {.on_error = parent_lost, .arg = p};
    CHECK_EQ(weft_connect_address(p->worker, address, (size_t)len, &params, &p->ep), 0);
}

#define IPC_UNTIL(p, cond)                                                         \
    do {                                                                           \
        double ipc_end = test_now() + test_timeout(60);                            \
        while (!(cond) && test_now() < ipc_end) weft_worker_wait((p)->worker, 10); \
        CHECK(cond);                                                               \
    } while (0)

static int ipc_down(struct ipc *p) {
    int status = 0;
    weft_worker_destroy(p->worker);
    CHECK_EQ(weft_context_destroy(p->context), 0);
    CHECK_EQ(waitpid(p->child, &status, 0), p->child);
    return status;
}

#endif
