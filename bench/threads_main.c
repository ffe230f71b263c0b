/*
 * Two workers on two threads of one process, and the same on two processes, in turns: messages of 8
 * bytes a second from one to the other over shared memory. Medians, and the ratio of each round.
 *
 *     bench-threads [ROUNDS]      9; each takes about a second
 *
 * Each side has a core of its own. bench/gate.py says how far the cores are from each other.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <weft/weft.h>

enum { MESSAGES = 2000000, IN_FLIGHT = 256, ROUNDS_MAX = 99 };

static struct shared {
    char address[256];
    size_t len;
    atomic_int listens;
    double begun, ended;
} * shared;

static void need(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "bench-threads: %s\n", what);
    _exit(1);
}

static weft_worker_t *worker_on(weft_context_t *context, int core) {
    weft_worker_t *worker;
    pin(core);
    weft_worker_params_t params = {.transports = "shm"};
    need(weft_worker_create(context, &params, &worker) == WEFT_OK, "no worker");
    return worker;
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(unsigned *)arg;
}

static void *receive(void *context) {
    weft_worker_t *worker = worker_on(context, 0);
    unsigned n = 0;
    shared->len = sizeof shared->address;
    need(weft_am_handler_set(worker, 1, on_message, &n) == WEFT_OK, "no handler");
    need(weft_worker_address(worker, shared->address, &shared->len) == WEFT_OK, "no address");
    atomic_store(&shared->listens, 1);
    while (n < MESSAGES) weft_worker_progress(worker, 0);
    shared->ended = now_ns();
    atomic_store(&shared->listens, 0);
    weft_worker_destroy(worker);
    return NULL;
}

/* ---- the sender ------------------------------------------------------------------------------ */

static void on_sent(weft_status_t status, void *arg) {
    --*(unsigned *)arg;
}

static void on_ready(weft_ep_t *ep, void *arg) {
    *(bool *)arg = true;
}

static void *send_all(void *context) {
    weft_worker_t *worker = worker_on(context, 1);
    weft_ep_t *ep;
    bool ready = false;
    unsigned in_flight = 0;
    uint64_t word = 0;
    while (!atomic_load(&shared->listens)) sched_yield();
    weft_ep_params_t params = {.on_ready = on_ready, .arg = &ready};
    need(weft_connect_address(worker, shared->address, shared->len, &params, &ep) == WEFT_OK,
         "no connection");
    while (!ready) weft_worker_progress(worker, 0);
    weft_op_t op = {.done = on_sent, .arg = &in_flight};
    shared->begun = now_ns();
    for (unsigned i = 0; i < MESSAGES; i++) {
        word = i;
        while (in_flight >= IN_FLIGHT) weft_worker_progress(worker, 0);
        weft_status_t st = weft_am_send(ep, 1, &word, sizeof word, NULL, 0, &op);
        in_flight += st == WEFT_IN_PROGRESS;
        need(st == WEFT_OK || st == WEFT_IN_PROGRESS, "a send failed");
    }
    while (atomic_load(&shared->listens)) weft_worker_progress(worker, 0);
    weft_worker_destroy(worker);
    return NULL;
}

/* ---- the rounds ------------------------------------------------------------------------------ */

static weft_context_t *context_new(void) {
    weft_context_t *context;
    need(weft_context_create(NULL, &context) == WEFT_OK, "no context");
    return context;
}

static pid_t process(void *(*first)(void *), void *(*second)(void *)) {
    pthread_t thread;
    pid_t child = fork();
    need(child >= 0, "no process");
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    weft_context_t *context = context_new();
    if (second) need(pthread_create(&thread, NULL, second, context) == 0, "no thread");
    first(context);
    if (second) pthread_join(thread, NULL);
    _exit(0);
}

static double rate(bool threads) {
    int status = 0;
    memset(shared, 0, sizeof *shared);
    pid_t one = process(receive, threads ? send_all : NULL);
    pid_t other = threads ? 0 : process(send_all, NULL);
    need(waitpid(one, &status, 0) == one && status == 0, "a process failed");
    need(!other || (waitpid(other, &status, 0) == other && status == 0), "a process failed");
    return MESSAGES / (shared->ended - shared->begun) * 1e9;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 9;
    double threads[ROUNDS_MAX], processes[ROUNDS_MAX], ratio[ROUNDS_MAX];
    need(n > 0 && n <= ROUNDS_MAX, "1 to 99 rounds");
    shared = shared_memory(sizeof *shared);
    fail_with_children();
    for (int i = 0; i < n; i++) {
        if (i % 2) threads[i] = rate(true);
        processes[i] = rate(false);
        if (i % 2 == 0) threads[i] = rate(true);
        ratio[i] = threads[i] / processes[i];
    }
    sort_figures(threads, (size_t)n);
    sort_figures(processes, (size_t)n);
    sort_figures(ratio, (size_t)n);
    printf("two threads %.2f M/s, two processes %.2f M/s, ratio %.3f (%.3f to %.3f)\n",
           threads[n / 2] / 1e6, processes[n / 2] / 1e6, ratio[n / 2], ratio[0], ratio[n - 1]);
}
