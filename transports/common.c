/* Refusals by a transport's limits, and the address of an iface that connects to itself. */
#include "common.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

weft_status_t weft__refuse_short(const struct lane *lane, size_t len) {
    return weft__fail(WEFT_ERR_TOO_BIG, "am_short of %zu bytes over %s", len,
                      lane->iface->transport->name);
}

weft_status_t weft__refuse_zcopy(const struct lane *lane, const struct lane_zcopy *msg,
                                 size_t len) {
    return weft__fail(WEFT_ERR_TOO_BIG, "am_zcopy of %zu + %zu bytes in %zu pieces over %s",
                      msg->header_len, len, msg->n_iov, lane->iface->transport->name);
}

void weft__describe_transport(struct lane *lane, char *buf, size_t size) {
    snprintf(buf, size, "%s", lane->iface->transport->name);
}

/* ---- the address of an iface that connects to itself ----------------------------------------- */

enum { ADDRESS_LEN = 1 + sizeof(uint64_t) };

static char initial_of(const struct iface *iface) {
    return (char)toupper((unsigned char)iface->transport->name[0]);
}

weft_status_t weft__own_address(struct iface *iface, void *buf, size_t *len_p) {
    if (*len_p < ADDRESS_LEN)
        return weft__fail(WEFT_ERR_TRUNCATED, "an address of %s takes %d bytes",
                          iface->transport->name, (int)ADDRESS_LEN);
    *(char *)buf = initial_of(iface);
    memcpy((char *)buf + 1, &iface->worker_id, sizeof iface->worker_id);
    *len_p = ADDRESS_LEN;
    return WEFT_OK;
}

weft_status_t weft__own_reachable(struct iface *iface, const void *bytes, size_t len,
                                  const char **why_p) {
    *why_p = "an address of another transport";
    if (len != ADDRESS_LEN || *(const char *)bytes != initial_of(iface))
        return WEFT_ERR_UNREACHABLE;
    *why_p = "another worker";
    if (memcmp((const char *)bytes + 1, &iface->worker_id, sizeof iface->worker_id) != 0)
        return WEFT_ERR_UNREACHABLE;
    return WEFT_OK;
}

weft_status_t weft__own_check(struct iface *iface, const void *bytes, size_t len) {
    const char *why;
    weft_status_t st = weft__own_reachable(iface, bytes, len, &why);
    return st < 0 ? weft__fail(st, "%s: %s", iface->transport->name, why) : st;
}
