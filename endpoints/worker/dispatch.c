/* Where the worker's interfaces report to: handlers by wire id, placement, and the life of
 * lanes. */
#include "features.h"

#include <endpoints/connect/connect.h>
#include <endpoints/core/link.h>
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
#include <endpoints/wire/wire.h>

/* ---- the life of lanes: a link that outlives them is asked first */

static void lane_up(struct lane *lane) {
    if (!weft__retain_lane_up(lane)) weft__link_lane_up(lane);
}

static void lane_down(struct lane *lane, weft_status_t status) {
    struct link *link = weft__lane_link(lane);
    if (!link || weft__retain_lane_down(lane, status)) return;
    if (link->more->switching)
        weft__switch_lane_down(link, weft__retain_around(lane), status);
    else
        weft__link_lose(link, status);
}

static void lane_closed(struct lane *lane) {
    if (!weft__retain_lane_closed(lane)) weft__link_lane_closed(lane);
}

/* ---- control messages: decoded here, and handled for a link that is up */

/* clang-format off */
/* X(wire id, name in error texts, struct, decoder, handler) */
#define CONTROL_MESSAGES(X) \
    X(RTS, "rts", wire_rts, rts, weft__on_rts) \
    X(CTS, "cts", wire_cts, cts, weft__on_cts) \
    X(FIN, "fin", wire_fin, fin, weft__on_fin) \
    X(CANCEL, "cancel", wire_one, one, weft__on_cancel) \
    X(GONE, "gone", wire_gone, gone, weft__on_gone) \
    X(CREDIT, "credit", wire_credit, credit, weft__on_credit) \
    X(OPEN, "open", wire_open, open, weft__ep_on_open) \
    X(ACCEPT, "accept", wire_accept, accept, weft__ep_on_accept) \
    X(REJECT, "reject", wire_reject, reject, weft__ep_on_reject) \
    X(CLOSE, "close", wire_one, one, weft__ep_on_close) \
    X(STREAM_CREDIT, "stream credit", wire_credit, credit, weft__on_stream_credit) \
    X(RMA_DONE, "answer", wire_rma_done, rma_done, weft__on_rma_done) \
    X(FLUSHED, "flushed", wire_fin, flushed, weft__on_flushed) \
    X(RAIL, "rail", wire_one, one, weft__on_rail) \
    X(RAIL_RATE, "rail rate", wire_credit, credit, weft__on_rail_rate) \
    X(TAG_BEGIN, "first part of a tagged message", wire_tag_begin, tag_begin, weft__on_tag_begin) \
    X(TAG_PART, "part of a tagged message", wire_tag_part, tag_part, weft__on_tag_part) \
    X(EXPOSE, "expose", wire_expose, expose, weft__on_expose) \
    X(PUT_REQ, "put request", wire_put_req, put_req, weft__on_put_req) \
    X(PUT_DONE, "put done", wire_empty, empty, weft__on_put_done) \
    X(PING, "ping", wire_empty, empty, weft__link_on_ping)
/* clang-format on */

#define CONTROL_HANDLER(ID, name, type, decoder, handler)                                    \
    static void receive_##ID(struct lane *lane, unsigned id, const void *data, size_t len) { \
        struct link *link = weft__link_of(lane, name " before hello");                       \
        struct type message;                                                                 \
        if (!link) return;                                                                   \
        if (weft__wire_read_##decoder(data, len, &message))                                  \
            handler(link, lane, &message);                                                   \
        else                                                                                 \
            weft__link_violation(link, name);                                                \
    }
CONTROL_MESSAGES(CONTROL_HANDLER)

/* ---- the table */

#define CONTROL_ENTRY(ID, name, type, decoder, handler) [WIRE_##ID] = receive_##ID,

const struct iface_up weft__worker_up = {
    /* clang-format off */
    .am = {
        CONTROL_MESSAGES(CONTROL_ENTRY)
        [WIRE_AM] = weft__on_am,
        [WIRE_TAG] = weft__on_tag,
        [WIRE_DATA] = weft__on_data,
        [WIRE_HELLO] = weft__link_on_hello,
        [WIRE_STREAM] = weft__on_stream,
        [WIRE_PUT] = weft__on_put,
        [WIRE_GET] = weft__on_get,
        [WIRE_ATOMIC] = weft__on_atomic,
        [WIRE_FLUSH] = weft__on_flush,
        [WIRE_LANE] = weft__on_lane,
        [WIRE_N_IDS ... LANE_AM_IDS - 1] = weft__on_unknown,
    },
    /* clang-format on */
    .accepted = weft__link_accepted,
    .up = lane_up,
    .down = lane_down,
    .closed = lane_closed,
    .place = weft__place,
    .placed = weft__placed,
    .keyed = weft__rma_keyed,
};
