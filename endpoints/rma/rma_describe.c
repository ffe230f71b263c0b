/* What one-sided operations cost, and what holds for them. */
#include <transports/region.h>

#include "rma.h"
#include <base/check.h>
#include <base/numa.h>
#include <endpoints/core/worker.h>

static bool native(const weft_ep_t *ep, const weft_rkey_t *rkey) {
    return rkey && rkey->ep == ep && rkey->key->status == WEFT_OK;
}

/* By message: those that the key grants and the transport does not perform, every one of that
 * right. */
static unsigned by_message(const weft_ep_t *ep, const weft_rkey_t *rkey) {
    if (!rkey) return WEFT_MEM_ALL;
    unsigned rights = rkey->region.rights & WEFT_MEM_ALL;
    bool of_device = weft__rma_is_of_device(rkey, RMA_FETCH);
    if (weft__rma_is_native(ep, rkey, RMA_PUT, 0, 0)) rights &= ~(unsigned)WEFT_MEM_WRITE;
    if (weft__rma_is_native(ep, rkey, RMA_GET, 0, 0)) rights &= ~(unsigned)WEFT_MEM_READ;
    if (weft__rma_is_native(ep, rkey, RMA_FETCH, of_device ? WEFT_ATOMIC_ADD : WEFT_ATOMIC_XOR, 8))
        rights &= ~(unsigned)WEFT_MEM_ATOMIC;
    return rights;
}

weft_status_t weft_ep_rma_attributes_sized(size_t attributes_size, weft_ep_t *ep,
                                           const weft_rkey_t *rkey,
                                           weft_rma_attributes_t *attributes_p) {
    if (!ep || !attributes_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or attributes_p is NULL");
    if (rkey && rkey->ep != ep) return weft__rma_foreign_key(ep);
    weft_status_t st = weft__worker_check(ep->worker);
    if (st < 0) return st;
    if (!ep->link)
        return weft__fail(ep->status < 0 ? ep->status : WEFT_ERR_CLOSED,
                          "the endpoint has no lane");
    const struct iface_attr *attr = &weft__link_iface(ep->link)->attr;
    weft_rma_attributes_t a = {.order = WEFT_ORDER_NONE,
                               .done_is_visible = 1,
                               .needs_target_progress = (int)by_message(ep, rkey),
                               .max_short = attr->max_bcopy - WIRE_PUT_HEAD,
                               .max_bcopy = attr->max_bcopy - WIRE_PUT_HEAD,
                               .max_zcopy = attr->max_zcopy,
                               .message_rate = iface_message_rate(attr),
                               .latency_ns = attr->latency_ns,
                               .bandwidth = attr->bandwidth,
                               .overhead_ns = attr->overhead_ns};
    if (native(ep, rkey)) {
        a.order = (weft_rma_order_t)weft__rma_key_order(rkey->key);
        a.done_is_visible = attr->done == RMA_DONE_VISIBLE;
        a.max_short = attr->max_put_short;
        a.max_bcopy = attr->max_put_bcopy;
        a.max_zcopy = attr->max_put_zcopy;
    }
    weft__info_write(attributes_p, attributes_size, &a, sizeof a);
    return WEFT_OK;
}

/* Nothing is pinned: a registration asks the kernel once, whether the memory can shrink. */
static double syscall_ns(const struct weft_worker *worker) {
    return (double)worker->calibration.value[CALIBRATE_SYSCALL] / 1000;
}

/* By message a get takes a way there and one back, and each side's work. */
static weft_memory_info_t of_iface(const struct weft_worker *worker, const struct iface *iface) {
    const struct iface_attr *attr = &iface->attr;
    return (weft_memory_info_t){.name = iface->transport->name,
                                .device = iface->device,
                                .bandwidth = attr->bandwidth,
                                .latency_ns = attr->latency_ns,
                                .overhead_ns = attr->overhead_ns,
                                .message_rate = iface_message_rate(attr),
                                .numa_node = weft__device_node(DEVICE_CLASS, iface->device),
                                .register_ns = attr->caps & CAP_MAP ? syscall_ns(worker) : 0,
                                .can_register = HAS_OP(iface->ops, mem, mem_register),
                                .can_map = (attr->caps & CAP_MAP) != 0,
                                .device_atomics = (attr->caps & CAP_ATOMIC_DEVICE) != 0};
}

/* A copy out of the last cache, and a miss. */
static weft_memory_info_t of_host(const weft_worker_t *worker) {
    const double overhead_ns = 5;
    return (weft_memory_info_t){.name = "host",
                                .device = "memory",
                                .bandwidth = (double)worker->calibration.value[CALIBRATE_COPY_4M],
                                .latency_ns = 100,
                                .overhead_ns = overhead_ns,
                                .message_rate = 1e9 / overhead_ns,
                                .numa_node = -1,
                                .can_alloc = 1,
                                .can_register = 1,
                                .can_map = 1,
                                .can_export = 1};
}

static bool describe_domain(const weft_worker_t *worker, size_t index, weft_memory_info_t *info) {
    if (index == 0) *info = of_host(worker);
    for (uint32_t i = 0; index > 0 && i < worker->n_ifaces; i++)
        if (HAS_OP(worker->iface[i]->ops, mem, mem_register) && --index == 0)
            *info = of_iface(worker, worker->iface[i]);
    return index == 0;
}

weft_status_t weft_worker_memory_sized(size_t info_size, weft_worker_t *worker, size_t index,
                                       weft_memory_info_t *info_p) {
    weft_memory_info_t info;
    if (!worker || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or info_p is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check(worker);
    if (st < 0) return st;
    if (!describe_domain(worker, index, &info)) return WEFT_ERR_NOT_FOUND;
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}
