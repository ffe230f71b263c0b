/* What the calls on an endpoint do while it waits for its peer, while it is ready, and after its
 * end. */
#include "features.h"

#include <endpoints/core/cause.h>
#include <endpoints/core/endpoint.h>
#include <endpoints/messages/am.h>
#include <endpoints/messages/leased.h>
#include <endpoints/messages/stream.h>
#include <endpoints/messages/tag.h>
#include <endpoints/rma/rma.h>
#include <endpoints/transfer/rendezvous.h>

static weft_status_t ep_refused(const struct weft_ep *ep) {
    weft_status_t st = ep->status == WEFT_OK ? WEFT_ERR_CLOSED : ep->status;
    if (ep->cause && ep->cause->status == st)
        return weft__fail(st, "the endpoint was lost: %s", ep->cause->text);
    return weft__fail(st,
                      st == WEFT_ERR_CLOSED ? "the endpoint is closing" : "the endpoint was lost");
}

static weft_status_t am_send_refuse(struct weft_ep *ep, const struct am_send_args *args) {
    return ep_refused(ep);
}

static weft_status_t tag_send_refuse(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                     size_t n_iov, const weft_op_t *op) {
    return ep_refused(ep);
}

static weft_status_t flush_refuse(struct weft_ep *ep, const weft_op_t *op) {
    return ep_refused(ep);
}

static weft_status_t rma_refuse(struct weft_ep *ep, const struct rma_op *op, const weft_op_t *how) {
    return ep_refused(ep);
}

static weft_status_t stream_send_refuse(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                        size_t *sent_p, const weft_op_t *op) {
    return ep_refused(ep);
}

static weft_status_t stream_refuse(struct weft_ep *ep) {
    return ep_refused(ep);
}

const struct ep_ops weft__ep_ops_wait = {
    .am_send = weft__am_send_wait,
    .tag_send = weft__tag_send_wait,
    .flush = weft__flush_post,
    .stream_send = weft__stream_send_wait,
    .stream_check_wait = weft__stream_check_wait,
    .rma = weft__rma_wait,
};
const struct ep_ops weft__ep_ops_ready = {
    .am_send = weft__am_send_ready,
    .tag_send = weft__tag_send_ready,
    .flush = weft__flush_post,
    .stream_send = weft__stream_send_ready,
    .stream_check_wait = weft__stream_check_wait,
    .rma = weft__rma_ready,
};
/* The same for an endpoint that holds a lease. */
const struct ep_ops weft__ep_ops_leased_wait = {
    .am_send = weft__leased_am_send_wait,
    .tag_send = weft__leased_tag_send_wait,
    .flush = weft__flush_post,
    .stream_send = weft__stream_send_wait,
    .stream_check_wait = weft__stream_check_wait,
    .rma = weft__rma_wait,
};
const struct ep_ops weft__ep_ops_leased_ready = {
    .am_send = weft__leased_am_send_ready,
    .tag_send = weft__leased_tag_send_ready,
    .flush = weft__flush_post,
    .stream_send = weft__stream_send_ready,
    .stream_check_wait = weft__stream_check_wait,
    .rma = weft__rma_ready,
};
const struct ep_ops weft__ep_ops_refuse = {
    .am_send = am_send_refuse,
    .tag_send = tag_send_refuse,
    .flush = flush_refuse,
    .stream_send = stream_send_refuse,
    .stream_check_wait = stream_refuse,
    .rma = rma_refuse,
};
