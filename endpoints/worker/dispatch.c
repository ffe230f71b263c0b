/* Where the worker's interfaces report to: handlers by wire id, placement, and the life of
 * lanes. */
#include "features.h"

#include <endpoints/connect/connect.h>
#include <endpoints/core/worker.h>
#include <endpoints/failover/retain.h>
#include <endpoints/lanes/switch.h>
#include <endpoints/messages/am.h>
#include <endpoints/messages/stream.h>
#include <endpoints/messages/tag.h>
#include <endpoints/messages/tag_fragments.h>
#include <endpoints/rma/rma.h>
#include <endpoints/transfer/expose.h>
#include <endpoints/transfer/placement.h>
#include <endpoints/transfer/rails.h>
#include <endpoints/transfer/rendezvous.h>
#include <endpoints/transfer/split_copy.h>

/* ---- the life of lanes: a link that outlives them is asked first */

static void lane_up(struct lane *lane) {
    if (!weft__retain_lane_up(lane)) weft__link_lane_up(lane);
}

static void lane_down(struct lane *lane, weft_status_t status) {
    struct link *link = lane->owner;
    if (!link || weft__retain_lane_down(lane, status)) return;
    if (link->more->switching)
        weft__switch_lane_down(link, weft__retain_around(lane), status);
    else
        weft__link_lose(link, status);
}

static void lane_closed(struct lane *lane) {
    if (!weft__retain_lane_closed(lane)) weft__link_lane_closed(lane);
}

/* ---- the table */

const struct iface_up weft__worker_up = {
    .am = {[WIRE_AM] = weft__on_am,
           [WIRE_TAG] = weft__on_tag,
           [WIRE_RTS] = weft__on_rts,
           [WIRE_CTS] = weft__on_cts,
           [WIRE_DATA] = weft__on_data,
           [WIRE_FIN] = weft__on_fin,
           [WIRE_CANCEL] = weft__on_cancel,
           [WIRE_GONE] = weft__on_gone,
           [WIRE_CREDIT] = weft__on_credit,
           [WIRE_HELLO] = weft__link_on_hello,
           [WIRE_OPEN] = weft__ep_on_open,
           [WIRE_ACCEPT] = weft__ep_on_accept,
           [WIRE_REJECT] = weft__ep_on_reject,
           [WIRE_CLOSE] = weft__ep_on_close,
           [WIRE_PING] = weft__link_on_ping,
           [WIRE_STREAM] = weft__on_stream,
           [WIRE_STREAM_CREDIT] = weft__on_stream_credit,
           [WIRE_PUT] = weft__on_put,
           [WIRE_GET] = weft__on_get,
           [WIRE_ATOMIC] = weft__on_atomic,
           [WIRE_RMA_DONE] = weft__on_rma_done,
           [WIRE_FLUSH] = weft__on_flush,
           [WIRE_FLUSHED] = weft__on_flushed,
           [WIRE_RAIL] = weft__on_rail,
           [WIRE_RAIL_RATE] = weft__on_rail_rate,
           [WIRE_LANE] = weft__on_lane,
           [WIRE_TAG_BEGIN] = weft__on_tag_begin,
           [WIRE_TAG_PART] = weft__on_tag_part,
           [WIRE_EXPOSE] = weft__on_expose,
           [WIRE_PUT_REQ] = weft__on_put_req,
           [WIRE_PUT_DONE] = weft__on_put_done,
           [WIRE_N_IDS... LANE_AM_IDS - 1] = weft__on_unknown},
    .accepted = weft__link_accepted,
    .up = lane_up,
    .down = lane_down,
    .closed = lane_closed,
    .place = weft__place,
    .placed = weft__placed,
    .keyed = weft__rma_keyed,
};
