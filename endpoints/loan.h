/*
 * Memory that the program lends (weft_mem_params_t.lend): a large message out of it is offered to a peer that has it mapped, who copies it
 * from where it lies, and the end of one into it may be written there by its sender (joint.h). The side whose memory it is tells the
 * peer's endpoint the region's key (LEND), with the first such message and, as long as nothing comes of it, with some later ones;
 * meanwhile messages go as all others do. The other side opens the key as a program would; it ends with the endpoint that was
 * told, with the region, or when the peer lends too much else.
 */
#ifndef WEFT_ENDPOINTS_LOAN_H
#define WEFT_ENDPOINTS_LOAN_H

#include "ep.h"

/* The peer can read (WEFT_MEM_READ) or write (WEFT_MEM_WRITE) these bytes of ours where they lie. If it might but for the key, it is
 * told that. */
bool weft__loan_stands(struct weft_ep *ep, const void *at, size_t len, unsigned right);
/* The link ends. */
void weft__loans_free(struct link *link);

void weft__on_lend(struct lane *lane, const void *data, size_t len);

#endif
