/*
 * Memory that the program exposes (weft_mem_params_t.expose). A peer that has mapped it copies
 * large messages out of it directly, and a sender may write the end of a message into it
 * (split_copy.h).
 *
 * The owner sends the region's key (EXPOSE) to the peer's endpoint with the first such message, and
 * again with some later ones until the peer uses it. Until then messages take the other protocols.
 * The peer opens the key as a program would. The key ends with the endpoint, with the region, or
 * when the peer exposes too many others.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_EXPOSE_H
#define WEFT_ENDPOINTS_TRANSFER_EXPOSE_H

#include <endpoints/core/endpoint.h>

struct wire_expose;

/* True if the peer can read (WEFT_MEM_READ) or write (WEFT_MEM_WRITE) these bytes in place. If only
 * the key is missing, sends it. */
bool weft__try_expose(struct weft_ep *ep, const void *at, size_t len, unsigned right);
/* Frees a link's records of exposed regions. */
void weft__exposures_free(struct link *link);

void weft__on_expose(struct link *link, struct lane *lane, const struct wire_expose *expose);

#endif
