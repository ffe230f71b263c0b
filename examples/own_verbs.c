/*
 * A program with verbs objects of its own: own_verbs. The completions of its queue are taken in the
 * loop of Weft's worker, by one descriptor for both. Prints why not where there is no device.
 */
#include <stdio.h>
#include <weft/weft.h>

#ifndef WEFT_HAVE_RDMA
int main(void) {
    puts("built without RDMA");
}
#else
#include <fcntl.h>
#include <infiniband/verbs.h>

struct verbs {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    unsigned completions;
};

static unsigned take_completions(void *arg) {
    struct verbs *v = arg;
    struct ibv_cq *cq;
    struct ibv_wc wc;
    void *user;
    unsigned n = 0;
    while (ibv_get_cq_event(v->channel, &cq, &user) == 0) ibv_ack_cq_events(cq, 1);
    for (; ibv_poll_cq(v->cq, 1, &wc) > 0; n++)
        printf("a completion: %s\n", ibv_wc_status_str(wc.status));
    v->completions += n;
    return n;
}

/* After it the channel is readable for the next completion; one may have come just before. */
static int arm(void *arg) {
    struct verbs *v = arg;
    ibv_req_notify_cq(v->cq, 0);
    return take_completions(v) > 0;
}

static int open_device(struct verbs *v) {
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (n > 0) v->context = ibv_open_device(list[0]);
    if (list) ibv_free_device_list(list);
    if (!v->context) return 0;
    v->pd = ibv_alloc_pd(v->context);
    v->channel = ibv_create_comp_channel(v->context);
    fcntl(v->channel->fd, F_SETFL, O_NONBLOCK);
    v->cq = ibv_create_cq(v->context, 16, NULL, v->channel, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = v->cq, .recv_cq = v->cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    v->qp = ibv_create_qp(v->pd, &init);
    return v->qp != NULL;
}

/* A receive that is flushed: the shortest way to a completion. */
static void cause_completion(struct verbs *v) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    ibv_modify_qp(v->qp, &attr,
                  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    ibv_post_recv(v->qp, &receive, &bad);
    attr.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(v->qp, &attr, IBV_QP_STATE);
}

int main(void) {
    struct verbs v = {0};
    weft_context_t *context;
    weft_worker_t *worker;
    weft_resource_t *resource;
    if (!open_device(&v)) return puts("no RDMA device"), 0;
    if (weft_context_create(NULL, &context) || weft_worker_create(context, NULL, &worker)) return 1;
    weft_events_t events = {v.channel->fd, take_completions, arm, &v};
    weft_resource_value_t value = {WEFT_RES_WORKER_EVENTS, &events, sizeof events};
    weft_resource_params_t params = {
        .kind = WEFT_RESOURCE_EVENTS, .name = "verbs", .values = &value, .n_values = 1};
    if (weft_resource_describe(&params, &resource)) return 1;
    weft_associate_params_t with = {.resource = resource};
    if (weft_associate_resources(context, WEFT_OBJECT_WORKER, &with, worker)) return 1;
    cause_completion(&v);
    while (v.completions == 0 && weft_worker_wait(worker, 5000) == WEFT_OK) continue;
    weft_disassociate_resources(resource, worker, NULL);
    return v.completions == 0;
}
#endif
