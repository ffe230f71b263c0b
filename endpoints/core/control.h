/*
 * Control messages that found the lane of their link full. They wait in the link's backlog, in
 * order, many in one request: each costs its own bytes and a head of four.
 *
 * Answers are control messages that the peer's own words cause. A peer that asks and does not read
 * would make them grow without bound, so "peer.max_answers" bounds their bytes. Beyond it the link
 * is lost to WEFT_ERR_QUOTA. To stop reading instead could stop two honest workers for ever, each
 * with a full queue of answers to the other.
 */
#ifndef WEFT_ENDPOINTS_CORE_CONTROL_H
#define WEFT_ENDPOINTS_CORE_CONTROL_H

#include "link.h"
#include <endpoints/wire/lane_ctrl.h>

/* The answer to a heartbeat. One that waits answers all. */
static inline bool weft__control_is_heartbeat(const struct wire_message *m) {
    return m->id == WIRE_LANE && weft__lane_kind(m->bytes, m->len) == LANE_HEARTBEAT;
}
/* Queues a copy of `m` behind all that waits. OK; NO_MEMORY; or QUOTA: too many answers wait
 * already. */
weft_status_t weft__control_queue(struct link *link, const struct wire_message *m, bool is_answer);

#endif
