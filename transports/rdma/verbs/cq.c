/* A completion queue. Each turn polls it in memory. Before a sleep it requests an event and
 * polls once more. */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>

static struct rd_cq *of_poller(struct poller *poller) {
    return container_of(poller, struct rd_cq, poller);
}

/* A queue in error reports nothing any more, though its device may never say so. Who has it learns
 * of that outside of the call that found it. */
static void break_cq(struct rd_cq *cq, const char *what, int error) {
    struct reactor *r = cq->device->reactor;
    weft__log(weft__reactor_context(r), WEFT_LOG_ERROR, "rdma",
              "%s: a completion queue is in error: %s returned %d", cq->device->name, what, error);
    cq->is_broken = true;
    weft__job_post(r, &cq->breaks);
}

static void run_breaks(struct job *job) {
    struct rd_cq *cq = container_of(job, struct rd_cq, breaks);
    cq->broke(cq);
}

static bool poll_cq(struct rd_cq *cq, unsigned most) {
    if (most > RD_CQ_BATCH) most = RD_CQ_BATCH;
    int n = cq->is_broken ? 0 : ibv_poll_cq(cq->cq, (int)most, cq->wc);
    if (n < 0) break_cq(cq, "ibv_poll_cq", n);
    cq->first = 0;
    cq->end = n > 0 ? (unsigned)n : 0;
    cq->emptied = cq->end < most;
    return n > 0;
}

/* A callback may poll the queue itself (weft__rd_cq_drain), and may close it. Completions that
 * arrive after a poll that emptied it are found by the next one. */
static unsigned notify_cq(struct rd_cq *cq, unsigned budget) {
    unsigned n = 0;
    cq->emptied = false;
    while (n < budget && cq->cq &&
           (cq->first < cq->end || (!cq->emptied && poll_cq(cq, budget - n)))) {
        struct ibv_wc wc = cq->wc[cq->first++];
        n++;
        cq->took(cq, &wc);
    }
    if (n && cq->cq && cq->polled) cq->polled(cq);
    return n;
}

static int poll(struct poller *poller, unsigned budget) {
    return (int)notify_cq(of_poller(poller), budget);
}

/* What is found is kept for the next poll. A notification that was asked for in vain comes
 * later, and does no harm. */
static bool arm_cq(struct poller *poller) {
    struct rd_cq *cq = of_poller(poller);
    if (cq->first < cq->end) return false;
    int error = cq->is_broken ? 0 : ibv_req_notify_cq(cq->cq, 0);
    if (error) break_cq(cq, "ibv_req_notify_cq", error);
    return !poll_cq(cq, RD_CQ_BATCH) && !weft__job_queued(&cq->breaks);
}

unsigned weft__rd_cq_drain(struct rd_cq *cq) {
    return notify_cq(cq, ~0u);
}

static void take_events(struct rd_cq *cq) {
    struct ibv_cq *which;
    void *context;
    while (ibv_get_cq_event(cq->channel, &which, &context) == 0) {
        if (++cq->unacked < RD_CQ_ACKS) continue;
        ibv_ack_cq_events(cq->cq, cq->unacked); /* takes a lock: for many at a time */
        cq->unacked = 0;
    }
}

static void ready_cq(struct watch *watch, int events) {
    struct rd_cq *cq = container_of(watch, struct rd_cq, watch);
    take_events(cq);
    weft__rd_cq_drain(cq);
}

static void end_cq(struct rd_cq *cq) {
    if (cq->cq && !cq->is_given) ibv_destroy_cq(cq->cq);
    if (cq->channel && !cq->is_given) ibv_destroy_comp_channel(cq->channel);
    cq->cq = NULL;
    cq->channel = NULL;
}

static weft_status_t watch_cq(struct rd_cq *cq) {
    int flags = fcntl(cq->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK))
        return weft__rd_fail("fcntl", errno);
    cq->watch.ready = ready_cq;
    cq->breaks.run = run_breaks;
    weft_status_t st =
        weft__watch_start(cq->device->reactor, &cq->watch, cq->channel->fd, WATCH_READ);
    if (st < 0) return st;
    cq->poller.poll = poll;
    cq->poller.arm = arm_cq;
    weft__poller_add(cq->device->reactor, &cq->poller);
    return WEFT_OK;
}

weft_status_t weft__rd_cq_open(struct rd_cq *cq, struct rd_device *device, unsigned depth) {
    cq->device = device;
    cq->is_given = false;
    if (depth > (unsigned)device->attr.max_cqe) depth = (unsigned)device->attr.max_cqe;
    cq->channel = ibv_create_comp_channel(device->context);
    if (!cq->channel) return weft__rd_fail("ibv_create_comp_channel", errno);
    cq->cq = ibv_create_cq(device->context, (int)depth, cq, cq->channel, 0);
    weft_status_t st = cq->cq ? watch_cq(cq) : weft__rd_fail("ibv_create_cq", errno);
    if (st < 0) end_cq(cq);
    return st;
}

weft_status_t weft__rd_cq_use(struct rd_cq *cq, struct rd_device *device, struct ibv_cq *given) {
    if (!given->channel)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the given CQ has no completion channel");
    cq->device = device;
    cq->is_given = true;
    cq->channel = given->channel;
    cq->cq = given;
    weft_status_t st = watch_cq(cq);
    if (st < 0) end_cq(cq);
    return st;
}

void weft__rd_cq_close(struct rd_cq *cq) {
    if (!cq->cq) return;
    weft__poller_remove(cq->device->reactor, &cq->poller);
    weft__watch_stop(cq->device->reactor, &cq->watch);
    weft__job_drop(cq->device->reactor, &cq->breaks);
    cq->is_broken = false;
    take_events(cq);
    if (cq->unacked) ibv_ack_cq_events(cq->cq, cq->unacked); /* else the next call waits */
    cq->unacked = 0;
    end_cq(cq);
    cq->first = cq->end = 0;
}
