/*
 * What the looks of an adapter do (weft_adapter_readable): a server and a client, each with an
 * epoll of its own, send 8 bytes there and back. Samples with looks and without them take turns.
 *
 *     looks shm|tcp one|two within|after [LOOKS [SAMPLES [SECONDS]]]
 *
 * Both are on one core, or on two. The client asks again within the callback of an answer, or after
 * the turn of its loop that brought it.
 *
 * Printed, without and with looks: the median of a round trip and of the server's processor time
 * for it, in us, with the quartiles of the round trip, and the ratios.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/adapters/epoll.h>
#include <weft/weft.h>

enum { ASK = 1, ANSWER = 2, MOST = 101, URI = 128 };

/* What both processes see. The client sets `looks` between samples. */
static struct shared {
    _Atomic bool listening;
    _Atomic unsigned looks;
    char uri[URI];
} * shared;

static void must(weft_status_t st, const char *what) {
    char text[512];
    if (st >= 0) return;
    weft_status_describe(st, text, sizeof text);
    fprintf(stderr, "looks: %s: %s\n", what, text);
    exit(1);
}

/* ---- a loop that is built on epoll ----------------------------------------------------------- */

static weft_worker_t *worker;
static int epoll_fd;

static void open_loop(const char *transport) {
    static weft_context_t *context;
    weft_worker_params_t params = {.transports = transport};
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, &params, &worker), "worker");
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0 || weft_epoll_attach(epoll_fd, worker, &worker, 0) < 0) exit(1);
}

static void turn(void) {
    struct epoll_event event;
    if (epoll_wait(epoll_fd, &event, 1, -1) == 1) weft_adapter_readable(&worker, 0, shared->looks);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void on_ask(weft_ep_t *ep, weft_am_t *am, void *arg) {
    must(weft_am_send(ep, ANSWER, am->header, am->header_len, NULL, 0, NULL), "answer");
}

static void serve(const char *transport) {
    weft_listener_t *listener;
    char uri[URI] = "tcp://127.0.0.1:0";
    if (strcmp(transport, "shm") == 0) snprintf(uri, sizeof uri, "shm://looks-%d", getpid());
    open_loop(transport);
    must(weft_am_handler_set(worker, ASK, on_ask, NULL), "handler");
    must(weft_listen(worker, uri, NULL, &listener), uri);
    snprintf(shared->uri, URI, "%s", weft_listener_uri(listener));
    shared->listening = true;
    for (;;) turn();
}

/* ---- the client ------------------------------------------------------------------------------ */

static unsigned answers;
static bool asks_after; /* the turn that brought the answer, in place of within its callback */
static weft_ep_t *due;

static void ask(weft_ep_t *ep) {
    uint64_t bytes = 0;
    must(weft_am_send(ep, ASK, &bytes, sizeof bytes, NULL, 0, NULL), "ask");
}

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    answers++;
    if (asks_after)
        due = ep;
    else
        ask(ep);
}

static void turn_and_ask(void) {
    turn();
    if (due) ask(due);
    due = NULL;
}

static double processor_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Medians and quartiles, in us. */
struct figures {
    double trip[MOST], server[MOST];
};

static void sample(clockid_t server, double seconds, struct figures *f, int at) {
    for (answers = 0; answers < 500;)
        turn_and_ask(); /* until what came before has been forgotten */
    answers = 0;
    double begin = now_ns(), used = processor_ns(server), now = begin;
    for (; now - begin < seconds * 1e9; now = now_ns()) turn_and_ask();
    f->trip[at] = (now - begin) / answers / 1e3;
    f->server[at] = (processor_ns(server) - used) / answers / 1e3;
}

static void compare(pid_t pid, const char *transport, unsigned looks, int samples, double seconds) {
    static struct figures with, without;
    weft_ep_t *ep;
    clockid_t server;
    if (clock_getcpuclockid(pid, &server)) exit(1);
    open_loop(transport);
    must(weft_am_handler_set(worker, ANSWER, on_answer, NULL), "handler");
    must(weft_connect(worker, shared->uri, NULL, &ep), shared->uri);
    ask(ep);
    for (int i = 0; i < samples; i++) {
        shared->looks = 0;
        sample(server, seconds, &without, i);
        shared->looks = looks;
        sample(server, seconds, &with, i);
    }
    double *each[] = {without.trip, without.server, with.trip, with.server};
    for (int i = 0; i < 4; i++) sort_figures(each[i], (size_t)samples);
    int low = samples / 4, mid = samples / 2, high = samples - 1 - low;
    printf("no looks %.2f (%.2f to %.2f), server %.2f; %u looks %.2f (%.2f to %.2f), server %.2f; "
           "ratios %.2f, %.2f\n",
           without.trip[mid], without.trip[low], without.trip[high], without.server[mid], looks,
           with.trip[mid], with.trip[low], with.trip[high], with.server[mid],
           with.trip[mid] / without.trip[mid], with.server[mid] / without.server[mid]);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "looks shm|tcp one|two within|after [LOOKS [SAMPLES [SECONDS]]]\n");
        return 2;
    }
    asks_after = strcmp(argv[3], "after") == 0;
    unsigned looks = argc > 4 ? (unsigned)atoi(argv[4]) : WEFT_ADAPTER_LOOKS;
    int samples = argc > 5 ? atoi(argv[5]) : 15;
    double seconds = argc > 6 ? atof(argv[6]) : 0.2;
    if (samples < 1 || samples > MOST || seconds <= 0) return 2;
    shared = shared_memory(sizeof *shared);
    fail_with_children();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(strcmp(argv[2], "two") == 0);
        serve(argv[1]);
    }
    pin(0);
    while (!shared->listening) {
        if (waitpid(pid, NULL, WNOHANG)) return 1;
        usleep(1000);
    }
    compare(pid, argv[1], looks, samples, seconds);
    kill(pid, SIGKILL);
    return 0;
}
