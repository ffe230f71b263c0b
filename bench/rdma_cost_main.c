/*
 * rdma_cost TRANSPORT: messages of 8 bytes over RDMA between two workers of one process, at the two
 * devices of tools/rdma-vm, for callgrind to count (bench/rdma_count runs it). There is a pause
 * before each look, so that few looks are in vain; the number of these is printed at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { ID = 1 };

struct end {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep; /* to the other */
};
static struct end a, b;
static bool ready;
static long received, in_vain;

static void die(const char *what) {
    fprintf(stderr, "rdma_cost: %s\n", what);
    exit(1);
}

static void must(weft_status_t status, const char *what) {
    char why[256];
    if (status >= 0) return;
    weft_status_describe(status, why, sizeof why);
    fprintf(stderr, "%s\n", why);
    die(what);
}

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}
static void on_ready(weft_ep_t *ep, void *arg) {
    ready = true;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "the endpoint is lost");
}
static void on_endpoint(weft_ep_t *ep, void *arg) {
    b.ep = ep;
}

static void open_end(struct end *end, const char *transport, const char *device) {
    const weft_setting_t settings[] = {{"rdma.device", device},
                                       {"rdma.insecure", "yes"},
                                       {"calibration", "off"},
                                       {"connect.timeout", "600s"},
                                       {"tcp.handshake_timeout", "600s"}};
    weft_worker_params_t params = {.transports = transport, .on_endpoint = on_endpoint};
    weft_context_params_t how = {.settings = settings,
                                 .n_settings = sizeof settings / sizeof *settings};
    must(weft_context_create(&how, &end->context), "no context");
    must(weft_worker_create(end->context, &params, &end->worker), "no worker");
    weft_am_handler_set(end->worker, ID, on_am, NULL);
}

static void open_both(const char *transport) {
    char address[256];
    size_t len = sizeof address;
    open_end(&a, transport, "rxe0");
    open_end(&b, transport, "rxe1");
    must(weft_worker_address(b.worker, address, &len), "no address");
    must(weft_connect_address(a.worker, address, len,
                              &(weft_ep_params_t){.on_ready = on_ready, .on_error = on_error},
                              &a.ep),
         "no endpoint");
    while (!ready || !b.ep) weft_worker_progress(a.worker, 0), weft_worker_progress(b.worker, 0);
}

static void close_both(void) {
    weft_worker_destroy(a.worker);
    weft_worker_destroy(b.worker);
    weft_context_destroy(a.context);
    weft_context_destroy(b.context);
}

/* ---- what is counted ------------------------------------------------------------------------- */

static __attribute__((noinline)) void send_side(weft_ep_t *ep, int n) {
    weft_iov_t iov = {"8 bytes", 8};
    while (n-- > 0) must(weft_am_send(ep, ID, NULL, 0, &iov, 1, NULL), "a send failed");
}

static __attribute__((noinline)) void receive_side(weft_worker_t *worker, long end) {
    while (received < end)
        if (weft_worker_progress(worker, 0) == 0) in_vain++;
}

/* The sender learns that its messages have left. */
static __attribute__((noinline)) void settle_side(weft_worker_t *worker) {
    weft_worker_progress(worker, 0);
}

#include "rdma_course.h"

int main(int argc, char **argv) {
    if (argc != 2) die("TRANSPORT");
    open_both(argv[1]);
    count_messages(alone, burst);
    printf("received %ld, looked in vain %ld times\n", received, in_vain);
    close_both();
    return 0;
}
