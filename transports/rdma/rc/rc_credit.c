/*
 * Flow control by credits. A message costs one credit, and one more for each RC_CREDIT_BYTES.
 * Credits return in batches as messages are delivered. A paused lane copies its messages out of the
 * shared receives and delivers them later. The peer's remaining credits bound these copies; then
 * the peer waits.
 */
#include "rc.h"

struct rc_backlog {
    struct rc_backlog *next;
    size_t len;
    uint8_t id;
    uint8_t bytes[];
};

/* ---- credit ---------------------------------------------------------------------------------- */

/* Without room now, when there is some: requests are under way then. */
void weft__rc_credit_return(struct rc_lane *lane) {
    while (lane->outstanding >= RC_CREDIT_PART && lane->lane.ops == &weft__rc_ops_open &&
           rc_has_room(lane, 4) && weft__rc_post_word(lane, RC_CREDIT, NULL, 0, false, RC_PLAIN))
        lane->outstanding -= RC_CREDIT_PART;
}

void weft__rc_credited(struct rc_lane *lane) {
    if (lane->credit > RC_CREDITS - RC_CREDIT_PART)
        return weft__rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "more credit than there is");
    lane->credit += RC_CREDIT_PART;
    weft__rc_enlist(lane, &rc_iface_of(lane)->worked);
}

/* ---- backlog of a paused lane ---------------------------------------------------------------- */

/* Control messages are handled at once, but the end of the lane is reported after the backlog. */
static void take_backlog(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len) {
    if (kind >= LANE_AM_IDS) return weft__rc_take_messages(lane, kind, data, len);
    if (lane->backlog_cost >= RC_CREDITS)
        return weft__rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "more than it had credit for");
    struct rc_backlog *backlog =
        weft__alloc(rc_iface_of(lane), sizeof *backlog + len, "message of a paused lane");
    if (!backlog) {
        lane->take = weft__rc_take_nothing; /* rather than what is behind it */
        return weft__rc_lane_break(
            lane, weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a message of a paused lane"));
    }
    *backlog = (struct rc_backlog){.len = len, .id = kind};
    if (len) memcpy(backlog->bytes, data, len);
    *lane->backlog_last = backlog;
    lane->backlog_last = &backlog->next;
    lane->backlog_cost += rc_cost(len);
}

static struct rc_backlog *next_backlog(struct rc_lane *lane) {
    struct rc_backlog *backlog = lane->backlog;
    if (!backlog) return NULL;
    lane->backlog = backlog->next;
    if (!lane->backlog) lane->backlog_last = &lane->backlog;
    lane->backlog_cost -= rc_cost(backlog->len);
    return backlog;
}

weft_status_t weft__rc_pause(struct lane *l, bool on) {
    struct rc_lane *lane = rc_lane(l);
    lane->paused = on;
    if (on && lane->take != weft__rc_take_nothing) /* it breaks: a message is lost already */
        lane->take = take_backlog;
    else if (lane->take == take_backlog)
        weft__rc_lane_todo(lane, RC_TODO_GO_ON);
    return WEFT_OK;
}

/* Until it is paused again, or ends. */
void weft__rc_go_on(struct rc_lane *lane) {
    struct rc_backlog *backlog;
    while (lane->take == take_backlog && !lane->paused && (backlog = next_backlog(lane)) != NULL) {
        weft__rc_take_messages(lane, backlog->id, backlog->bytes, backlog->len);
        talloc_free(backlog);
    }
    if (lane->take == take_backlog && !lane->paused) lane->take = weft__rc_take_messages;
}

/* The lane has ended, and its owner is to be notified: behind what it brought, unless it closes
 * it. */
void weft__rc_receive_rest(struct rc_lane *lane) {
    struct rc_backlog *backlog;
    while (!(lane->todo & RC_TODO_CLOSED) && (backlog = next_backlog(lane)) != NULL) {
        lane_handlers(&lane->lane)[backlog->id](&lane->lane, backlog->id, backlog->bytes,
                                                backlog->len);
        talloc_free(backlog);
    }
}

void weft__rc_backlog_drop(struct rc_lane *lane) {
    struct rc_backlog *backlog;
    while ((backlog = next_backlog(lane)) != NULL) talloc_free(backlog);
}
