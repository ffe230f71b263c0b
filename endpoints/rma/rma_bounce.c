/*
 * Puts and gets of device memory by a transport that copies memory of the host only. All bytes pass
 * a buffer of the host: a put fills it before the transport begins, a get empties it afterwards.
 * Both copies go through the staging buffers of messages (transfer/device_staging.h), and nothing
 * waits for them. The target need not be driven, as with memory of the host.
 */
#include "rma.h"
#include <base/alloc.h>
#include <endpoints/core/worker.h>
#include <endpoints/transfer/device_staging.h>
#include <endpoints/transfer/layout.h>
#include <endpoints/transfer/rendezvous.h>

/* What is staged, or has to be waited for, comes next. IN_PROGRESS: it is taken up again then. */
static weft_status_t fill(struct weft_request *req) {
    const struct layout *l = req->layout;
    while (req->offset < req->len) {
        size_t left = req->len - req->offset, ready = left;
        weft_status_t st = weft__request_stages(req)
                               ? weft__device_stage(req, weft__pieces_resume, &ready)
                               : WEFT_OK;
        if (st == WEFT_IN_PROGRESS) list_remove(&req->queued);
        if (st != WEFT_OK) return st;
        if (ready > left) ready = left;
        st = l->of.user->pack(l->state, req->offset, req->bounce + req->offset, ready);
        if (st < 0) return st;
        req->offset += ready;
    }
    req->offset = 0;
    return WEFT_OK;
}

weft_status_t weft__rma_bounce(struct weft_request *req) {
    struct request_rma *r = &req->rma;
    weft_status_t st = WEFT_OK;
    /* Not zeroed: every byte is copied, or comes from the peer, before it is read. */
    if (!req->bounce) req->bounce = weft__realloc(req, NULL, req->len, "bytes of a device");
    if (!req->bounce) return WEFT_ERR_NO_MEMORY;
    if (r->what == RMA_PUT) st = fill(req);
    if (st != WEFT_OK) return st;
    r->piece = (struct rma_piece){.base = req->bounce, .len = req->len, .count = 1};
    r->bounced = true;
    return WEFT_OK;
}

weft_status_t weft__rma_land(struct weft_request *req) {
    const struct layout *l = req->layout;
    if (!req->rma.bounced || req->rma.what != RMA_GET || req->rma.by_message) return WEFT_OK;
    if (!weft__request_stages(req)) return l->of.user->unpack(l->state, 0, req->bounce, req->len);
    weft_status_t st = weft__device_land(req, 0, req->bounce, req->len);
    return st == WEFT_OK && weft__device_still_lands(req) ? WEFT_IN_PROGRESS : st;
}
