/*
 * Memory that the program lends (weft_mem_params_t.lend): a large message out of it is offered to a peer that has it mapped, who copies it
 * from where it lies. The side that sends tells the peer's endpoint the region's key (LEND), with the first such message and,
 * as long as nothing comes of it, with some later ones; meanwhile messages go as all others do. The side that receives opens
 * the key as a program would; it ends with the endpoint that was told, with the region, or when the peer lends too much else.
 */
#ifndef WEFT_ENDPOINTS_LOAN_H
#define WEFT_ENDPOINTS_LOAN_H

#include "ep.h"

/* The peer can read these bytes of ours where they lie. If it might but for the key, it is told that. */
bool weft__loan_stands(struct weft_ep *ep, const void *at, size_t len);
/* The link ends. */
void weft__loans_free(struct link *link);

void weft__on_lend(struct lane *lane, const void *data, size_t len);

#endif
