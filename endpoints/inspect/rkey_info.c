/* weft_rkey_describe: how operations with a remote key travel. */
#include <base/check.h>
#include <endpoints/memory/rkey.h>
#include <endpoints/rma/rma.h>

static const char message[] = "message";

/* What operations end with that are posted now: a lost endpoint refuses them all, whatever
 * becomes of its link. */
static weft_status_t outcome(const struct weft_rkey *rkey) {
    const struct weft_ep *ep = rkey->ep;
    weft_status_t st = weft__rkey_status(rkey);
    return st == WEFT_OK && ep && ep->refuses && ep->status < 0 ? ep->status : st;
}

static const char *way(const struct weft_rkey *rkey, unsigned right, uint32_t cap) {
    if (!(rkey->region.rights & right) || outcome(rkey) < 0) return "refused";
    if (rkey->key->status != WEFT_OK || !(rkey->key->caps & cap)) return message;
    return rkey->key->how ? rkey->key->how : rkey->key->lane->iface->transport->name;
}

static const char *atomic_way(const struct weft_rkey *rkey) {
    const char *by = way(rkey, WEFT_MEM_ATOMIC, CAP_ATOMIC | CAP_ATOMIC_DEVICE);
    if (!(rkey->region.rights & WEFT_MEM_ATOMIC_DEVICE))
        return rkey->key->caps & CAP_ATOMIC_DEVICE && by != message ? "rdma, message" : by;
    if (by != message) return by;
    return rkey->ep && weft__rma_awaits_device(rkey->ep, rkey) ? "awaited" : "refused";
}

weft_status_t weft_rkey_describe_sized(size_t info_size, const weft_rkey_t *rkey,
                                       weft_rkey_info_t *info_p) {
    if (!rkey || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "rkey or info_p is NULL");
    weft_status_t st = weft__worker_check(rkey->user);
    if (st < 0) return st;
    const weft_rkey_info_t info = {.base = rkey->region.base,
                                   .len = rkey->region.len,
                                   .rights = rkey->region.rights,
                                   .status = outcome(rkey),
                                   .put = way(rkey, WEFT_MEM_WRITE, CAP_PUT),
                                   .get = way(rkey, WEFT_MEM_READ, CAP_GET),
                                   .atomic = atomic_way(rkey)};
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}
