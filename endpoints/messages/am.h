/* Sending active messages, and the table of handlers. */
#ifndef WEFT_ENDPOINTS_MESSAGES_AM_H
#define WEFT_ENDPOINTS_MESSAGES_AM_H

#include <endpoints/core/endpoint.h>

/* As the public calls, for ids below AM_ID_END. */
weft_status_t weft__am_handler_set(weft_worker_t *worker, unsigned id, weft_am_fn fn, void *arg);

/* What a send was called with. */
struct am_send_args {
    unsigned id;
    const void *header;
    size_t header_len;
    const weft_iov_t *iov;
    size_t n_iov;
    const weft_op_t *op;
};
weft_status_t weft__am_send(weft_ep_t *ep, const struct am_send_args *args);

/* What sends do while the endpoint has no peer yet, and once it is ready
 * (endpoints/worker/ep_ops.c). */
weft_status_t weft__am_send_wait(struct weft_ep *ep, const struct am_send_args *args);
weft_status_t weft__am_send_ready(struct weft_ep *ep, const struct am_send_args *args);

/* Handlers of lane messages and of offers. */
void weft__on_am(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__am_offered(struct weft_ep *ep, const struct wire_rts *rts);

#endif
