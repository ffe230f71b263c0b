#include "traffic.h"
#include "../network.h"
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tests/support/clock.h>
#include <unistd.h>
#include <weft/weft.h>

enum { PING = 1, PONG = 2, TIMEOUT_S = 20, MESSAGES = 20000, TO_SELF = 60000 };

/* ---- the process that sends */

static int pongs;
static void on_pong(weft_ep_t *ep, weft_am_t *am, void *arg) {
    pongs++;
}
static int ready;
static void on_ready(weft_ep_t *ep, void *arg) {
    ready = 1;
}

/* Between an answer and the next question lie 0 to 40 µs: the peer is anywhere between its
 * callback and its sleep. */
static void dawdle(unsigned *seed) {
    double until = test_now() + rand_r(seed) % 40 * 1e-6;
    while (test_now() < until) continue;
}

static int poll_until(weft_worker_t *worker, const int *counter, int value) {
    double end = test_now() + test_timeout(TIMEOUT_S);
    while (*counter < value && test_now() < end) weft_worker_progress(worker, 0);
    return *counter >= value;
}

/* Reads the address, asks, and exits with 0 when every question was answered. */
static void ask(int from, const char *transport, int messages) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    char address[256];
    unsigned seed = 1;
    ssize_t len = read(from, address, sizeof address);
    weft_worker_params_t params = {.transports = transport};
    if (len <= 0 || weft_context_create(NULL, &context) ||
        weft_worker_create(context, &params, &worker))
        _exit(2);
    weft_am_handler_set(worker, PONG, on_pong, NULL);
    if (weft_connect_address(worker, address, (size_t)len,
                             &(weft_ep_params_t){.on_ready = on_ready}, &ep))
        _exit(3);
    if (!poll_until(worker, &ready, 1)) _exit(4);
    for (int i = 0; i < messages; i++) {
        dawdle(&seed);
        if (weft_am_send(ep, PING, NULL, 0, &(weft_iov_t){"eight by", 8}, 1, NULL) < 0) _exit(5);
        if (!poll_until(worker, &pongs, i + 1)) _exit(6);
    }
    weft_worker_destroy(worker);
    _exit(0);
}

/* ---- the host */

static volatile int pings;
static void on_ping(weft_ep_t *ep, weft_am_t *am, void *arg) {
    pings++;
    if (arg) weft_am_send(ep, PONG, NULL, 0, NULL, 0, NULL);
}

static weft_context_t *context;
static weft_worker_t *worker;

static const char *open_worker(struct host *host, const char *transport) {
    struct reactor_params params = {.loop = host->native ? host->native(host) : NULL,
                                    .max_fds = 256};
    weft_worker_params_t worker_params = {.transports = transport};
    if (weft_context_create(NULL, &context) || weft__reactor_create(context, &params, &host->r))
        return "no reactor";
    if (weft__worker_create_on(host->r, &worker_params, &worker)) return "no worker";
    host->open(host);
    pings = 0;
    return NULL;
}

static const char *close_worker(struct host *host, const char *verdict) {
    weft_worker_destroy(worker);
    host->close(host);
    if (weft_context_destroy(context)) abort();
    return verdict;
}

static const char *steps_until(struct host *host, int value) {
    double timeout_s = test_timeout(TIMEOUT_S);
    while (pings < value) {
        double begin = test_now();
        host->step(host, (int)(timeout_s * 1e3));
        if (test_now() - begin > timeout_s - 0.1 && pings < value)
            return "a message did not wake the host";
    }
    return NULL;
}

static const char *traffic_to_self(const struct host *kind, int messages) {
    struct host host = *kind;
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    const char *verdict = open_worker(&host, "self");
    if (verdict) return verdict;
    weft_am_handler_set(worker, PING, on_ping, NULL);
    ready = 0;
    if (weft_worker_address(worker, address, &len)) return close_worker(&host, "no address");
    weft_ep_params_t params = {.on_ready = on_ready};
    if (weft_connect_address(worker, address, len, &params, &ep))
        return close_worker(&host, "no endpoint");
    for (int i = 0; i < messages && !verdict; i++) {
        if (weft_am_send(ep, PING, NULL, 0, NULL, 0, NULL) < 0) verdict = "not sent";
        if (!verdict) verdict = steps_until(&host, i + 1);
    }
    return close_worker(&host, verdict);
}

static const char *traffic_from_peer(const struct host *kind, const char *transport, int messages) {
    struct host host = *kind;
    char address[256];
    size_t len = sizeof address;
    int pipes[2], status;
    if (pipe(pipes)) return "no pipe";
    pid_t pid = fork();
    if (pid == 0) ask(pipes[0], transport, messages);
    const char *verdict = open_worker(&host, transport);
    if (verdict) return verdict;
    weft_am_handler_set(worker, PING, on_ping, &host);
    if (weft_worker_address(worker, address, &len) || write(pipes[1], address, len) != (ssize_t)len)
        verdict = "no address";
    if (!verdict) verdict = steps_until(&host, messages);
    if (verdict) kill(pid, SIGKILL);
    /* The last answers leave while the peer waits for them. */
    while (!verdict && waitpid(pid, &status, WNOHANG) == 0) host.step(&host, 1);
    if (verdict) waitpid(pid, &status, 0);
    if (!verdict && status) verdict = "the peer got no answer";
    close(pipes[0]);
    close(pipes[1]);
    return close_worker(&host, verdict);
}

const char *traffic(const struct host *kind, const char *transport, int messages) {
    return strcmp(transport, "self") == 0 ? traffic_to_self(kind, messages)
                                          : traffic_from_peer(kind, transport, messages);
}

bool traffic_passes(const struct host *kind) {
    const char *transports[] = {test_network(), "self", "shm"};
    int n = strcmp(transports[0], "tcp") == 0 ? 3 : 1; /* the others were tested where "tcp" was */
    const char *set = getenv("TRAFFIC_MESSAGES");      /* a soak is long */
    bool slow = getenv("WEFT_TEST_SANITIZER") != NULL;
    bool passed = true;
    for (int i = 0; i < n; i++) {
        int all = strcmp(transports[i], "self") == 0 ? TO_SELF : MESSAGES;
        int messages = set ? atoi(set) : slow ? all / 20 : all;
        double begin = test_now();
        const char *wrong = traffic(kind, transports[i], messages);
        printf("  %s, %s: %d messages in %.1f s%s%s\n", kind->name, transports[i], messages,
               test_now() - begin, wrong ? ": " : "", wrong ? wrong : "");
        passed = passed && !wrong;
    }
    return passed;
}
