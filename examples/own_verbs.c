/*
 * A program with verbs objects of its own: own_verbs. It gives a worker its domain, queues
 * and queue pair, which rdma_rc works by, sends a message to a second worker, and takes all back.
 */
#include <stdio.h>
#include <weft/weft.h>

#ifdef WEFT_HAVE_RDMA
#include <infiniband/verbs.h>
#include <stdlib.h>

enum { HELLO = 1, DEPTH = 128 };
static int received;
static weft_status_t returned = WEFT_IN_PROGRESS;

/* `expression` is true, or the program ends. */
#define MUST(expression) ((expression) ? (void)0 : fail(#expression))
static void fail(const char *what) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

static struct ibv_context *open_device(void) {
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    struct ibv_context *context = n > 0 ? ibv_open_device(list[0]) : NULL;
    if (list) ibv_free_device_list(list);
    return context;
}
static weft_worker_t *new_worker(const char *device, int associated, weft_context_t **context_p) {
    weft_setting_t own[] = {{"rdma.device", device}, {"rdma.receives", "128"}};
    weft_context_params_t params = {.settings = own, .n_settings = 2, .associated = associated};
    weft_worker_params_t rdma = {.transports = "rdma_rc", .associated = associated};
    weft_worker_t *worker = NULL;
    MUST(!weft_context_create(&params, context_p) &&
         !weft_worker_create(*context_p, &rdma, &worker));
    return worker;
}
static void on_hello(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received = printf("received: %.*s\n", (int)am->len, (const char *)am->data);
}
static void on_return(weft_status_t status, void *arg) {
    returned = status;
}
static void drive(weft_worker_t *worker, weft_worker_t *peer) {
    MUST(weft_worker_progress(worker, 0) >= 0 && weft_worker_progress(peer, 0) >= 0);
}
static int is_in(enum ibv_qp_state state, struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == state;
}
int main(void) {
    struct ibv_context *device = open_device();
    if (!device) return puts("no RDMA device"), 0;
    struct ibv_pd *pd = ibv_alloc_pd(device);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(device);
    MUST(pd && channel);
    struct ibv_cq *cq = ibv_create_cq(device, 4 * DEPTH, NULL, channel, 0);
    struct ibv_srq *srq = ibv_create_srq(pd, &(struct ibv_srq_init_attr){.attr = {DEPTH, 1, 0}});
    MUST(cq && srq);
    struct ibv_qp *qp = ibv_create_qp(
        pd, &(struct ibv_qp_init_attr){NULL, cq, cq, srq, {DEPTH, 8, 9, 1, 64}, IBV_QPT_RC, 0});
    MUST(qp);
    weft_context_t *context, *others;
    weft_worker_t *worker = new_worker(device->device->name, 1, &context);
    weft_worker_t *peer = new_worker(device->device->name, 0, &others); /* of Weft's own objects */
    weft_resource_value_t values[] = {{WEFT_RES_WORKER_PD, &pd, sizeof pd},
                                      {WEFT_RES_WORKER_CQ, &cq, sizeof cq},
                                      {WEFT_RES_WORKER_SRQ, &srq, sizeof srq},
                                      {WEFT_RES_WORKER_QP, &qp, sizeof qp}};
    weft_resource_params_t described = {
        .kind = WEFT_RESOURCE_VERBS, .values = values, .n_values = 4};
    weft_resource_t *resource;
    MUST(!weft_resource_describe(&described, &resource));
    weft_associate_params_t with = {.resource = resource};
    MUST(!weft_associate_resources(context, WEFT_OBJECT_WORKER, &with, worker));

    weft_ep_t *ep = NULL;
    char to[256];
    size_t len = sizeof to;
    MUST(!weft_am_handler_set(peer, HELLO, on_hello, NULL));
    MUST(!weft_worker_address(peer, to, &len) && !weft_connect_address(worker, to, len, NULL, &ep));
    MUST(weft_am_send(ep, HELLO, NULL, 0, &(weft_iov_t){"over my queue pair", 18}, 1, NULL) >= 0);
    while (!received) drive(worker, peer);
    MUST(is_in(IBV_QPS_RTS, qp));
    weft_op_t op = {.done = on_return};
    MUST(weft_disassociate_resources(resource, worker, &op) == WEFT_IN_PROGRESS);
    while (returned == WEFT_IN_PROGRESS) drive(worker, peer);
    MUST(returned == WEFT_OK && is_in(IBV_QPS_RESET, qp));
    weft_worker_destroy(worker), weft_worker_destroy(peer);
    MUST(!weft_resource_release(resource));
    MUST(!weft_context_destroy(context) && !weft_context_destroy(others));
    MUST(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
    MUST(!ibv_destroy_comp_channel(channel) && !ibv_dealloc_pd(pd) && !ibv_close_device(device));
    puts("taken back, and destroyed");
}
#else
int main(void) {
    puts("built without RDMA");
}
#endif
