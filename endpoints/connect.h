/* Finding the way to a peer: addresses, choice of transport, dialing; and listeners, the other end of it. */
#ifndef WEFT_ENDPOINTS_CONNECT_H
#define WEFT_ENDPOINTS_CONNECT_H

#include "ep.h"

/* A worker's address, taken apart: an entry per transport, pointing into it. */
enum { ADDRESS_ENTRIES = 8, ADDRESS_MAX = 256 };
struct address_entry {
    const char *name;
    const uint8_t *bytes;
    uint8_t name_len, len;
};
struct address {
    uint64_t worker;
    uint32_t n;
    struct address_entry entry[ADDRESS_ENTRIES];
};
weft_status_t weft__address_read(const void *bytes, size_t len, struct address *address_p);

/* "scheme://where", taken apart: whose it is, and what that is to read. ADDRESS; UNSUPPORTED: nobody's here. */
weft_status_t weft__uri_read(struct weft_worker *worker, const char *uri, struct iface **iface_p,
                             const char **where_p);

/* What a message of 1 KiB would cost by such an iface, in ns: by this transports are chosen. */
double weft__connect_cost(const struct iface_attr *attr);

/* Dials again, to where the endpoint's first link went. */
weft_status_t weft__ep_redial(struct weft_ep *ep);
/* Its link may be up already. */
void weft__ep_dialed(struct weft_ep *ep);

/* May a peer open an endpoint there? WEFT_OK, WEFT_ERR_REJECTED, WEFT_ERR_REFUSED. */
weft_status_t weft__ep_admit(struct link *link, uint32_t listener);
/* Gives a new endpoint the callbacks of the listener (0: the worker) that it came to. */
weft_status_t weft__ep_adopt(struct weft_ep *ep, uint32_t listener);

#endif
