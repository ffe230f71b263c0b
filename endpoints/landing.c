#include "landing.h"

#include "layout.h"
#include "rails.h"
#include "rma.h"
#include "worker.h"

static const land_fn land_by_id[LANE_AM_IDS] = {
    [WIRE_DATA] = weft__land_data,
    [WIRE_PUT] = weft__land_put,
};

bool weft__land(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len, struct landing *to) {
    const struct link *link = lane->owner;
    /* Whoever has not greeted is not listened to: its handler says so. */
    if (!land_by_id[id] || !link || link->core.fsm.state != LINK_UP) return false;
    return land_by_id[id](lane, head, head_len, len, to);
}

/* One that ended meanwhile was waiting for its memory only. */
static void data_landed(struct lane *lane, void *arg, weft_status_t status) {
    struct weft_request *req = arg;
    size_t n = req->landing;
    req->landing = 0;
    if (req->core.fsm.state == REQ_ENDING) {
        completion_step(&req->lent, WEFT_OK);
        return;
    }
    req->lent.count--;
    if (status < 0) return; /* the lane is lost, and the endpoint is about to hear of it */
    req->offset += n;
    if (weft__rails_all_came(req)) weft__request_finish(req, WEFT_OK);
}

bool weft__land_data(struct lane *lane, const void *head, size_t head_len, size_t len, struct landing *to) {
    struct link *link = lane->owner;
    struct wire_data piece;
    if (!weft__wire_read_data(head, head_len, &piece)) return false;
    struct weft_request *req = weft__idmap_find(&link->worker->requests, piece.to);
    if (!req || !req->ep || req->ep->link != link || !req->kind->lands) return false;
    if (req->core.fsm.state != REQ_WAITING || req->landing || piece.offset != req->offset) return false;

    size_t n = len - WIRE_DATA_HEAD;
    if (!weft__rails_may_come(req, lane, piece.offset, n)) return false;
    to->skip = WIRE_DATA_HEAD;
    to->n_iov = weft__request_slice(req, to->iov, LAND_IOV, req->offset, &n);
    if (to->n_iov == 0 || n < len - WIRE_DATA_HEAD) return false; /* the program unpacks it, or too many pieces */
    to->landed = data_landed;
    to->arg = req;
    req->landing = n;
    req->lent.count++;
    return true;
}

void weft__land_stop(struct weft_request *req) {
    struct link *link = req->ep ? req->ep->link : NULL;
    if (!req->landing || !link) return; /* without a link the lane is at its end, and says so */
    link->lane->ops->land_stop(link->lane, req);
}
