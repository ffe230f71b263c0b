/* WIRE_LANE: handlers by kind of lane control message. */
#include "features.h"

#include <endpoints/core/link.h>
#include <endpoints/failover/heartbeat.h>
#include <endpoints/failover/peer_process.h>
#include <endpoints/lanes/negotiate.h>
#include <endpoints/lanes/switch.h>
#include <endpoints/wire/lane_ctrl.h>

typedef void (*lane_word_fn)(struct link *link, struct lane *lane, const void *data, size_t len);

static void no_such_word(struct link *link, struct lane *lane, const void *data, size_t len) {
    weft__link_violation(link, "lane control message");
}

/* Each handler decodes its message. A kind without a handler is a violation. */
static const lane_word_fn word[LANE_KINDS] = {
    [LANE_ASK] = weft__lanes_received,
    [LANE_GRANT] = weft__lanes_received,
    [LANE_DENY] = weft__lanes_received,
    [LANE_CANCEL] = weft__lanes_received,
    [LANE_BACK] = weft__lanes_received,
    [LANE_SCORE] = weft__lanes_received,
    [LANE_END] = weft__switch_received,
    [LANE_DRAINED] = weft__switch_received,
    [LANE_HEARTBEAT_ASK] = weft__heartbeat_received,
    [LANE_HEARTBEAT] = weft__heartbeat_received,
    [LANE_PROCESS] = weft__process_watched,
};

void weft__on_lane(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "a word about lanes before hello");
    if (!link) return;
    lane_word_fn fn = word[weft__lane_kind(data, len)];
    (fn ? fn : no_such_word)(link, lane, data, len);
}
