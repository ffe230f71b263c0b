/* What stands behind weft_am_t.internal while a handler runs. */
#ifndef WEFT_ENDPOINTS_MESSAGES_AM_RECV_H
#define WEFT_ENDPOINTS_MESSAGES_AM_RECV_H

#include <endpoints/core/worker.h>

struct am_recv_desc {
    struct weft_worker *worker;
    struct weft_ep *ep;           /* NULL: it asks for no reply */
    const struct wire_rts *offer; /* NULL: the payload is here */
    /* it lies in a record of its own, which can be kept, once; or NULL */
    struct lane_keep *record;
    bool taken; /* the offer, or the record */
};

/* weft_am_recv with op->stream, of arguments that were checked. */
weft_status_t weft__am_recv_late(weft_am_t *am, const weft_iov_t *iov, size_t n_iov,
                                 const weft_op_t *op);
/* The sender withdraws its offer. False: no such receive stands for it. */
bool weft__am_late_withdrawn(const struct link *link, uint32_t offer);

/* Calls the handler; an offer that it leaves is refused. */
void weft__am_handle(struct am_recv_desc *arrival, const struct am_handler *handler, weft_am_t *am);

#endif
