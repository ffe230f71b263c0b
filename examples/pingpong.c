/* Two processes that poll: the parent serves, the child calls. `pingpong [ROUNDS] [URI]` */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

enum { PING = 1, PONG = 2, DONE = 3 };
static unsigned long pongs;
static int over;

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static weft_worker_t *new_worker(weft_context_t **context_p) {
    weft_worker_t *worker;
    must(weft_context_create(NULL, context_p), "context");
    must(weft_worker_create(*context_p, NULL, &worker), "worker");
    return worker;
}

/* A message that fits into its header needs no memory of ours: nothing to wait for. */
static void on_ping(weft_ep_t *ep, weft_am_t *am, void *arg) {
    must(weft_am_send(ep, PONG, am->header, am->header_len, NULL, 0, NULL), "pong");
}
static void on_pong(weft_ep_t *ep, weft_am_t *am, void *arg) {
    pongs++;
}
static void on_done(weft_ep_t *ep, weft_am_t *am, void *arg) {
    over = 1;
}
static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "connection");
}

static int serve(int notify, const char *uri) {
    weft_context_t *context;
    weft_listener_t *listener;
    weft_worker_t *worker = new_worker(&context);
    must(weft_am_handler_set(worker, PING, on_ping, NULL), "handler");
    must(weft_am_handler_set(worker, DONE, on_done, NULL), "handler");
    must(weft_listen(worker, uri, NULL, &listener), uri);
    dprintf(notify, "%s\n", weft_listener_uri(listener));
    close(notify);
    while (!over) weft_worker_progress(worker, 0);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return 0;
}

static int call(const char *uri, unsigned long rounds) {
    weft_context_t *context;
    weft_ep_t *ep;
    weft_worker_t *worker = new_worker(&context);
    must(weft_am_handler_set(worker, PONG, on_pong, NULL), "handler");
    must(weft_connect(worker, uri, &(weft_ep_params_t){.on_error = on_lost}, &ep), uri);
    uint64_t begin = 0;
    for (unsigned long i = 0; i <= rounds; i++) { /* the first opens the connection */
        must(weft_am_send(ep, PING, &i, sizeof i, NULL, 0, NULL), "ping");
        while (pongs == i) weft_worker_progress(worker, 0);
        if (i == 0) begin = weft_worker_now(worker);
    }
    double ns = (double)(weft_worker_now(worker) - begin);
    printf("%s: %lu round trips, %.3f µs one way\n", uri, rounds, ns / 2e3 / (double)rounds);
    must(weft_am_send(ep, DONE, NULL, 0, NULL, 0, NULL), "done");
    must(weft_ep_close_wait(ep, WEFT_CLOSE_FLUSH), "close");
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return pongs == rounds + 1 ? 0 : 1;
}

int main(int argc, char **argv) {
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    char uri[256] = "";
    int notified[2], status = 1;
    if (pipe(notified) < 0) return 1;
    pid_t child = fork(); /* before anything of Weft's is made: it belongs to one process */
    if (child == 0) {
        close(notified[1]);
        FILE *from = fdopen(notified[0], "r");
        if (!from || !fgets(uri, sizeof uri, from)) return 1;
        uri[strcspn(uri, "\n")] = 0;
        return call(uri, rounds);
    }
    close(notified[0]);
    if (child < 0 || serve(notified[1], argc > 2 ? argv[2] : "shm://pingpong") != 0) return 1;
    waitpid(child, &status, 0);
    return status != 0;
}
