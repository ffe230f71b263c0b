/* What stands behind weft_am_t.internal while a handler runs. */
#ifndef WEFT_ENDPOINTS_ARRIVAL_H
#define WEFT_ENDPOINTS_ARRIVAL_H

#include "worker.h"

struct am_arrival {
    struct weft_worker *worker;
    struct weft_ep *ep;           /* NULL: it asks for no reply */
    const struct wire_rts *offer; /* NULL: the payload is here */
    struct lane_keep *record;     /* it lies in a record of its own, which can be kept, once; or NULL */
    bool taken;                   /* the offer, or the record */
};

/* Calls the handler; an offer that it leaves is refused. */
void weft__am_handle(struct am_arrival *arrival, const struct am_handler *handler, weft_am_t *am);

#endif
