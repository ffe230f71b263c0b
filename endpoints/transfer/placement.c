/* Records of placements: chooses a destination, checks it, and takes the transport's report. */
#include "placement.h"

#include "layout.h"
#include "rail_ranges.h"
#include <endpoints/core/worker.h>

void weft__placements_init(struct placements *placements) {
    list_init(&placements->standby);
}

/* ---- DATA for a request whose kind `places` -------------------------------------------------- */

static weft_status_t data_begins(struct placement_record *of) {
    weft_status_t st = weft__rail_ranges_place(of->req, of->lane, of->offset, of->n, of->id);
    if (st == WEFT_OK) of->req->in_flight.count++;
    return st;
}

/* A request that has ended since then waited for its memory only. The bytes that it discards
 * have arrived. */
static void data_ended(const struct placement_record *of, weft_status_t status) {
    struct weft_request *req = of->req;
    bool thrown = status == WEFT_ERR_CANCELLED && request_is_ending(&req->core.fsm);
    weft__rail_ranges_placed(req, of->lane, of->id, status == WEFT_OK || thrown);
    if (request_is_ending(&req->core.fsm)) {
        completion_step(&req->in_flight, WEFT_OK);
        return;
    }
    req->in_flight.count--;
    if (status < 0 || !weft__rail_ranges_all_came(req))
        return; /* a lane that is lost: the endpoint is about to learn of it */
    weft__rail_ranges_report(req);
    weft__request_finish(req, WEFT_OK);
}

static const struct placement_kind data_kind = {.begin = data_begins, .ended = data_ended};

bool weft__place_data(struct lane *lane, const void *head, size_t head_len, size_t len,
                      struct placement_record *of, struct placement *to) {
    struct link *rail = weft__lane_link(lane), *link = rail->more->main ? rail->more->main : rail;
    struct wire_data piece;
    if (!weft__wire_read_data(head, head_len, &piece)) return false;
    struct weft_request *req = weft__idmap_find(&link->worker->requests, piece.to);
    if (!req || !req->ep || req->ep->link != link || !req->kind->places) return false;
    if (!request_is_waiting(&req->core.fsm)) return false;

    size_t n = len - WIRE_DATA_HEAD;
    if (!weft__rail_ranges_may_come(req, lane, piece.offset, n)) return false;
    of->kind = &data_kind;
    of->req = req;
    of->offset = piece.offset;
    of->n = n;
    to->skip = WIRE_DATA_HEAD;
    to->n_iov = weft__request_slice(req, to->iov, PLACE_IOV, piece.offset, &n);
    return true;
}

/* ---- records --------------------------------------------------------------------------------- */

static struct placement_record *record_new(struct weft_worker *worker) {
    struct list *standby = list_pop(&worker->placements.standby);
    return standby ? list_of(standby, struct placement_record, of)
                   : weft__new(worker, struct placement_record);
}

static void record_free(struct weft_worker *worker, struct placement_record *record) {
    if (record->id) weft__idmap_remove(&worker->placements.by_id, record->id);
    list_prepend(&worker->placements.standby, &record->of);
}

/*
 * The one place that checks where a transport will write: the pieces hold exactly the payload, and
 * each lies within the request's memory or the region. What fails here is a fault of this library:
 * the message takes the way through its handler.
 */
static bool is_within(const struct placement_record *of, const struct placement *to) {
    if (to->n_iov == 0 || to->n_iov > PLACE_IOV || to->skip > of->len) return false;
    /* too many pieces, or less memory */
    if (weft__iov_len(to->iov, to->n_iov) != of->len - to->skip) return false;
    if (of->req) return weft__request_covers(of->req, of->offset, to->iov, to->n_iov);
    const struct region *region = &of->mem->region;
    uintptr_t base = (uintptr_t)region->base, at = (uintptr_t)to->iov[0].base;
    return to->n_iov == 1 && at >= base && at - base <= region->len &&
           to->iov[0].len <= region->len - (at - base);
}

/* ---- of iface_up ----------------------------------------------------------------------------- */

/* From here on the transport owns the memory. */
static bool begin_placement(struct weft_worker *worker, struct placement_record *of,
                            struct placement *to) {
    if (weft__idmap_add(worker, &worker->placements.by_id, of, &of->id) < 0) return false;
    to->id = of->id;
    return of->kind->begin(of) == WEFT_OK;
}

bool weft__place(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len,
                 struct placement *to) {
    const struct link *link = weft__lane_link(lane);
    /* A message before the handshake is left to its handler, which reports the violation. */
    if (!link || !link_is_up(&link->core.fsm)) return false;
    struct weft_worker *worker = link->worker;
    const struct transfer_users *users = worker->transfer_users;
    if (!users->place[id]) return false;
    struct lane *received = users->receiver(lane);
    if (!received || received->handlers) return false; /* messages of this lane are held back */

    struct placement_record *of = record_new(worker);
    if (!of) return false; /* through the transport's buffer, then */
    *of = (struct placement_record){.lane = received, .raw = lane, .len = len};
    list_init(&of->of);
    if (!users->place[id](received, head, head_len, len, of, to) || !is_within(of, to) ||
        !begin_placement(worker, of, to)) {
        record_free(worker, of);
        return false;
    }
    if (received != lane) users->begun(received, of->id);
    return true;
}

/* The program may be called from here: the record is free by then. */
static void end_placement(struct weft_worker *worker, struct placement_record *of,
                          weft_status_t status) {
    struct placement_record was = *of;
    list_remove(&of->of);
    record_free(worker, of);
    was.kind->ended(&was, status);
}

/* A placement that ended with its lane (weft__placement_lost) is not found any more. */
void weft__placed(struct lane *lane, uint32_t id, weft_status_t status) {
    struct weft_worker *worker = lane->iface->owner;
    struct placement_record *of = weft__idmap_find(&worker->placements.by_id, id);
    if (!of || of->raw != lane) return;
    if (of->lane != lane) worker->transfer_users->ended(of->lane, of->len, status);
    end_placement(worker, of, status);
}

void weft__placement_lost(struct weft_worker *worker, uint32_t id, weft_status_t status) {
    struct placement_record *of = weft__idmap_find(&worker->placements.by_id, id);
    if (of) end_placement(worker, of, status);
}

void weft__place_stop(struct weft_request *req) {
    weft__rail_ranges_stop(req);
}
