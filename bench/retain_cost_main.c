/*
 * What it costs to survive connections, while none dies: two processes over tcp, each on a core of
 * its own, with one endpoint that does (WEFT_ERRORS_FAILOVER) and one that does not
 * (WEFT_ERRORS_PEER). Both do the same in turns, a few milliseconds each; printed are the medians
 * of each, and the median of the ratios of neighbours.
 *
 *     retain_cost [ROUNDS [lat|rate|mid|large]]
 *
 *     lat    half round trip of 8 bytes, us         mid    messages of 4 KiB one way, copied, GB/s
 *     rate   messages of 8 bytes one way, M/s       large  messages of 1 MiB one way, exposed, GB/s
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
#include <weft/weft.h>

enum { ASK = 1, TAKE = 2, ANSWER = 3, LARGEST = 1 << 20, WINDOW = 64, MODES = 2, MOST = 1001 };

struct work {
    const char *name, *unit;
    size_t size;
    unsigned messages, window;
    bool answered;   /* each, before the next goes */
    double per_time; /* what of ns per message is printed: per_time / ns, or ns * per_ns */
    double per_ns;
};
static const struct work works[] = {{"lat", "us", 8, 400, 1, true, 0, 0.5e-3},
                                    {"rate", "M/s", 8, 100000, WINDOW, false, 1e3, 0},
                                    {"mid", "GB/s", 4096, 4000, WINDOW, false, 4096, 0},
                                    {"large", "GB/s", LARGEST, 16, 4, false, LARGEST, 0}};

struct shared {
    char address[256];
    size_t address_len;
    _Atomic bool ready;
};
static struct shared *shared;
static char bytes[LARGEST];

static void must(weft_status_t st, const char *what) {
    if (st >= 0) return;
    fprintf(stderr, "retain_cost: %s: %s\n", what, weft_status_name(st));
    exit(1);
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "endpoint");
}

static weft_worker_t *open_worker(int core) {
    weft_context_t *context;
    weft_worker_t *worker;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(core);
    memset(bytes, 1, sizeof bytes);
    must(weft_context_create(&(weft_context_params_t){0}, &context), "context");
    must(weft_worker_create(context, &(weft_worker_params_t){.transports = "tcp"}, &worker),
         "worker");
    return worker;
}

/* ---- the side that takes --------------------------------------------------------------------- */

static void answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    must(weft_am_send(ep, ANSWER, NULL, 0, NULL, 0, NULL), "answer");
}
static void taken(weft_status_t status, void *arg) {
    must(status, "receive");
    if (arg) answer(arg, NULL, NULL);
}
/* The last of a turn is answered. */
static void take(weft_ep_t *ep, weft_am_t *am, void *arg) {
    bool last = *(const char *)am->header;
    weft_op_t op = {.done = taken, .arg = last ? ep : NULL};
    weft_status_t st = am->data ? WEFT_OK : weft_am_recv(am, &(weft_iov_t){bytes, am->len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) taken(st, op.arg);
}

static void serve(void) {
    weft_worker_t *worker = open_worker(1);
    must(weft_am_handler_set(worker, ASK, answer, NULL), "handler");
    must(weft_am_handler_set(worker, TAKE, take, NULL), "handler");
    shared->address_len = sizeof shared->address;
    must(weft_worker_address(worker, shared->address, &shared->address_len), "address");
    shared->ready = true;
    for (;;) weft_worker_progress(worker, 0);
}

/* ---- the side that sends --------------------------------------------------------------------- */

static weft_worker_t *worker;
static unsigned unsent;
static bool answered;

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    answered = true;
}
static void sent(weft_status_t status, void *arg) {
    must(status, "send");
    unsent--;
}

static void send_one(const struct work *w, weft_ep_t *ep, bool last) {
    char header = last;
    weft_iov_t iov = {bytes, w->size};
    weft_status_t st = weft_am_send(ep, w->answered ? ASK : TAKE, w->answered ? NULL : &header,
                                    !w->answered, &iov, 1, &(weft_op_t){.done = sent});
    must(st, "send");
    unsent += st == WEFT_IN_PROGRESS;
}
static void await_answer(void) {
    while (!answered) weft_worker_progress(worker, 0);
    answered = false;
}

/* ns per message. */
static double one_turn(const struct work *w, weft_ep_t *ep) {
    double begin = now_ns();
    for (unsigned i = 1; i <= w->messages; i++) {
        while (unsent >= w->window) weft_worker_progress(worker, 0);
        send_one(w, ep, i == w->messages);
        if (w->answered) await_answer();
        if (!w->answered && i % WINDOW == 0) weft_worker_progress(worker, 0);
    }
    if (!w->answered) await_answer();
    double ns = (now_ns() - begin) / w->messages;
    while (unsent > 0) weft_worker_progress(worker, 0);
    return ns;
}

static double in_units(const struct work *w, double ns) {
    return w->per_ns != 0 ? ns * w->per_ns : w->per_time / ns;
}

static void run(const struct work *w, weft_ep_t *const *ep, int rounds) {
    static double ns[MODES][MOST], ratio[MOST];
    for (int i = 0; i < rounds; i++) {
        for (int turn = 0; turn < MODES; turn++) {
            int mode = (turn + i) % MODES;
            ns[mode][i] = one_turn(w, ep[mode]);
        }
        ratio[i] = ns[1][i] / ns[0][i];
    }
    double *all[] = {ns[0], ns[1], ratio};
    for (int i = 0; i < 3; i++) sort_figures(all[i], (size_t)rounds);
    int at = rounds / 2;
    printf("  %-5s  peer %8.3f %-4s  failover %8.3f %-4s  time of it %.3f (median of %d, half of "
           "them %.3f to %.3f)\n",
           w->name, in_units(w, ns[0][at]), w->unit, in_units(w, ns[1][at]), w->unit, ratio[at],
           rounds, ratio[rounds / 4], ratio[rounds * 3 / 4]);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 101;
    weft_ep_t *ep[MODES];
    if (rounds < 1 || rounds > MOST) {
        fprintf(stderr, "retain_cost [ROUNDS [lat|rate|mid|large]]\n");
        return 2;
    }
    shared = shared_memory(sizeof *shared);
    fail_with_children();
    pid_t server = fork();
    if (server == 0) serve();
    worker = open_worker(0);
    must(weft_am_handler_set(worker, ANSWER, on_answer, NULL), "handler");
    while (!shared->ready) usleep(1000);
    for (int mode = 0; mode < MODES; mode++) {
        weft_ep_params_t params = {.on_error = on_error,
                                   .error_mode = mode ? WEFT_ERRORS_FAILOVER : WEFT_ERRORS_PEER};
        must(weft_connect_address(worker, shared->address, shared->address_len, &params, &ep[mode]),
             "connect");
    }
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        if (argc > 2 && strcmp(argv[2], works[i].name) != 0) continue;
        for (int mode = 0; mode < MODES; mode++) one_turn(&works[i], ep[mode]);
        run(&works[i], ep, rounds);
    }
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
