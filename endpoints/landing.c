#include "landing.h"

#include "layout.h"
#include "retain.h"
#include "rma.h"
#include "spread.h"
#include "worker.h"

/* One that ended meanwhile was waiting for its memory only; what came for it and was thrown away has come. */
static void data_landed(struct lane *lane, void *arg, weft_status_t status) {
    struct weft_request *req = arg;
    bool thrown = status == WEFT_ERR_CANCELLED && req->core.fsm.state == REQ_ENDING;
    weft__spread_landed(req, lane, status == WEFT_OK || thrown);
    if (req->core.fsm.state == REQ_ENDING) {
        completion_step(&req->lent, WEFT_OK);
        return;
    }
    req->lent.count--;
    if (status < 0 || !weft__spread_all_came(req))
        return; /* a lane that is lost: the endpoint is about to hear of it */
    weft__spread_report(req);
    weft__request_finish(req, WEFT_OK);
}

/* DATA for a request whose kind `lands`: its memory is lent meanwhile. */
static bool land_data(struct lane *lane, const void *head, size_t head_len, size_t len, struct landing *to) {
    struct link *rail = lane->owner, *link = rail->more->main ? rail->more->main : rail;
    struct wire_data piece;
    if (!weft__wire_read_data(head, head_len, &piece)) return false;
    struct weft_request *req = weft__idmap_find(&link->worker->requests, piece.to);
    if (!req || !req->ep || req->ep->link != link || !req->kind->lands) return false;
    if (req->core.fsm.state != REQ_WAITING) return false;

    size_t n = len - WIRE_DATA_HEAD;
    if (!weft__spread_may_come(req, lane, piece.offset, n)) return false;
    to->skip = WIRE_DATA_HEAD;
    to->n_iov = weft__request_slice(req, to->iov, LAND_IOV, piece.offset, &n);
    if (to->n_iov == 0 || n < len - WIRE_DATA_HEAD) return false; /* the program unpacks it, or too many pieces */
    if (weft__spread_land(req, lane, piece.offset, n) < 0) return false;
    to->landed = data_landed;
    to->arg = req;
    req->lent.count++;
    return true;
}

static const land_fn land_by_id[LANE_AM_IDS] = {
    [WIRE_TAG] = weft__land_tag,
    [WIRE_DATA] = land_data,
    [WIRE_PUT] = weft__land_put,
};

bool weft__land(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len, struct landing *to) {
    const struct link *link = lane->owner;
    /* Whoever has not greeted is not listened to: its handler says so. */
    if (!land_by_id[id] || !link || link->core.fsm.state != LINK_UP) return false;
    struct retain *retain = link->more->retain;
    struct lane *heard = retain ? weft__retain_around(lane) : lane;
    if (heard->handlers || (retain && heard == lane)) return false; /* its messages wait, or are no link's yet */
    if (!land_by_id[id](heard, head, head_len, len, to)) return false;
    if (retain) weft__retain_land(retain, len, to);
    return true;
}

void weft__land_stop(struct weft_request *req) {
    weft__spread_stop(req);
}
