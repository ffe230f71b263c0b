/* What every transport repeats: the beginning of an iface, and refusals by its limits. */
#ifndef WEFT_TRANSPORTS_COMMON_H
#define WEFT_TRANSPORTS_COMMON_H

#include <transports/iov.h>
#include <transports/transport.h>

/* Fills the common part of an iface except `attr`, which the transport sets next. */
static inline void iface_init(struct iface *iface, const struct iface_ops *ops,
                              const struct transport *transport, const char *device,
                              struct reactor *r, const struct iface_params *params) {
    *iface = (struct iface){.ops = ops,
                            .transport = transport,
                            .reactor = r,
                            .up = params->up,
                            .owner = params->owner,
                            .device = device,
                            .worker_id = params->worker_id};
}

/* Notes that a message exceeds the limits of its iface. Returns WEFT_ERR_TOO_BIG. */
weft_status_t weft__refuse_short(const struct lane *lane, size_t len);
weft_status_t weft__refuse_zcopy(const struct lane *lane, const struct lane_zcopy *msg, size_t len);

/* Adds up the payload of a zcopy. Returns WEFT_ERR_TOO_BIG if it exceeds a limit. */
static inline weft_status_t zcopy_measure(const struct lane *lane, const struct lane_zcopy *msg,
                                          size_t *len_p) {
    const struct iface_attr *attr = &lane->iface->attr;
    size_t len = weft__iov_len(msg->iov, msg->n_iov);
    if (msg->header_len > attr->max_zcopy_header || msg->n_iov > attr->max_iov ||
        len > attr->max_zcopy) {
        weft__refuse_zcopy(lane, msg, len);
        return WEFT_ERR_TOO_BIG; /* which the compiler sees, too: len_p is not read then */
    }
    *len_p = len;
    return WEFT_OK;
}

/* lane_ops.describe of a lane that has no peer to name: the name of its transport. */
void weft__describe_transport(struct lane *lane, char *buf, size_t size);

/* iface_ops.address and reachable of a transport whose ifaces connect to themselves only. The
 * address is the first character of the transport's name, in upper case, and the worker's id. */
weft_status_t weft__own_address(struct iface *iface, void *buf, size_t *len_p);
weft_status_t weft__own_reachable(struct iface *iface, const void *bytes, size_t len,
                                  const char **why_p);
/* For `connect` of such a transport: notes why these bytes are no address of this iface. */
weft_status_t weft__own_check(struct iface *iface, const void *bytes, size_t len);

#endif
