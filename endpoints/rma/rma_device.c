/*
 * Atomics of a region whose owner left them to its network device (WEFT_MEM_ATOMIC_DEVICE). A
 * message, or mapped memory, would have the processor perform them beside the device, which neither
 * of the two would notice. So they go by a key of that device, wait for one that is under way, and
 * are refused where there will be none.
 */
#include <transports/atomics.h>

#include "rma.h"
#include <endpoints/core/worker.h>

static bool serves(const struct lane_key *key) {
    return key->status == WEFT_OK && key->caps & CAP_ATOMIC_DEVICE;
}

bool weft__rma_awaits_device(const struct weft_ep *ep, const struct weft_rkey *rkey) {
    const struct lane_key *key = rkey->key;
    if (weft__rkey_status(rkey) < 0 || !ep->link) return false;
    if (key->awaited || !weft__link_key_lane(ep->link)) return true;
    /* messages before a fence */
    return serves(key) && ep->rma->performed < ep->rma->fenced && ep->rma->asked;
}

weft_status_t weft__rma_without_device(const struct weft_rkey *rkey) {
    const struct weft_ep *ep = rkey->ep;
    if (serves(rkey->key))
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to query the operations before the fence");
    const char *lane = ep && ep->link ? weft__link_iface(ep->link)->transport->name : "no lane";
    return weft__fail(
        WEFT_ERR_UNSUPPORTED,
        "the region's atomics are performed by its device, which %s does not reach (%s)", lane,
        rkey->key->how);
}

weft_status_t weft__rma_device_check(const struct rma_op *op) {
    if (!weft__rma_is_of_device(op->rkey, op->what) || atomic_is_of_devices(op->atomic, op->size))
        return WEFT_OK;
    return weft__fail(
        WEFT_ERR_UNSUPPORTED,
        "the region's device performs only additions and compare-and-swaps of 8 bytes");
}
