/*
 * The same as bench/rdma_cost_main.c by UCX, over the transports that UCX_TLS says.
 * bench/rdma_count builds and runs it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { ID = 1 };

#ifndef UCX_B
#define UCX_B "rxe0:1"
#endif
struct end {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep; /* to the other */
};
static struct end a, b;
static long received, in_vain;

static void must(ucs_status_t status, const char *what) {
    if (status == UCS_OK) return;
    fprintf(stderr, "ucx_rdma_cost: %s: %s\n", what, ucs_status_string(status));
    exit(1);
}

static ucs_status_t on_am(void *arg, const void *header, size_t header_len, void *data, size_t len,
                          const ucp_am_recv_param_t *param) {
    (void)arg, (void)header, (void)header_len, (void)data, (void)len, (void)param;
    received++;
    return UCS_OK;
}

static void open_end(struct end *end, const char *device) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_worker_params_t how = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                               .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = ID,
                                      .cb = on_am};
    ucp_config_t *config;
    must(ucp_config_read(NULL, NULL, &config), "configuration");
    must(ucp_config_modify(config, "NET_DEVICES", device), "device");
    must(ucp_init(&params, config, &end->context), "context");
    ucp_config_release(config);
    must(ucp_worker_create(end->context, &how, &end->worker), "worker");
    must(ucp_worker_set_am_recv_handler(end->worker, &handler), "handler");
}

static void connect_end(struct end *end, struct end *to) {
    ucp_address_t *address;
    size_t len;
    must(ucp_worker_get_address(to->worker, &address, &len), "address");
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    must(ucp_ep_create(end->worker, &params, &end->ep), "endpoint");
    ucp_worker_release_address(to->worker, address);
}

static void complete(void *request) {
    if (!request) return;
    if (UCS_PTR_IS_ERR(request)) must(UCS_PTR_STATUS(request), "request");
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(a.worker), ucp_worker_progress(b.worker);
    ucp_request_free(request);
}

static void open_both(void) {
    ucp_request_param_t param = {0};
    open_end(&a, "rxe0:1");
    open_end(&b, UCX_B);
    connect_end(&a, &b);
    connect_end(&b, &a);
    complete(ucp_ep_flush_nbx(a.ep, &param));
    complete(ucp_ep_flush_nbx(b.ep, &param));
}

/* ---- what is counted ------------------------------------------------------------------------- */

static __attribute__((noinline)) void send_side(ucp_ep_h ep, int n) {
    static const ucp_request_param_t param;
    while (n-- > 0) {
        void *request = ucp_am_send_nbx(ep, ID, NULL, 0, "8 bytes", 8, &param);
        if (request) complete(request);
    }
}

static __attribute__((noinline)) void receive_side(ucp_worker_h worker, long end) {
    while (received < end)
        if (ucp_worker_progress(worker) == 0) in_vain++;
}

/* The sender learns that its messages have left. */
static __attribute__((noinline)) void settle_side(ucp_worker_h worker) {
    ucp_worker_progress(worker);
}

#include "../rdma_course.h"

int main(void) {
    open_both();
    count_messages(alone, burst);
    printf("received %ld, looked in vain %ld times\n", received, in_vain);
    fflush(stdout);
    _Exit(0);
}
