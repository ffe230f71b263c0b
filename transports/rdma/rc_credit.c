/*
 * How much a peer may send before it is taken: credits, of which a message costs one and one more for each RC_CREDIT_BYTES. They come back
 * by the part, as messages are taken. What comes by a paused lane is copied out of its receive, which others need, and not taken; so
 * that is bounded by what the peer had left, and then it waits.
 */
#include "rc.h"

struct rc_aside {
    struct rc_aside *next;
    size_t len;
    uint8_t id;
    uint8_t bytes[];
};

/* ---- credit ---------------------------------------------------------------------------------------------------------------- */

/* Without room now, when there is some: requests are under way then. */
void rc_credit_return(struct rc_lane *lane) {
    while (lane->owed >= RC_CREDIT_PART && lane->lane.ops == &rc_ops_open && rc_has_room(lane, 4) &&
           rc_post_word(lane, RC_CREDIT, NULL, 0, false, RC_PLAIN))
        lane->owed -= RC_CREDIT_PART;
}

void rc_credited(struct rc_lane *lane) {
    if (lane->credit > RC_CREDITS - RC_CREDIT_PART)
        return rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "more credit than there is");
    lane->credit += RC_CREDIT_PART;
    rc_enlist(lane, &rc_iface_of(lane)->worked);
}

/* ---- aside ------------------------------------------------------------------------------------------------------------------ */

/* Words are heard at once, but for what ends the lane: the owner hears of that behind what is aside. */
static void take_aside(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len) {
    if (kind >= LANE_AM_IDS) return rc_take_messages(lane, kind, data, len);
    if (lane->aside_cost >= RC_CREDITS) return rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "more than it had credit for");
    struct rc_aside *aside = weft__alloc(rc_iface_of(lane), sizeof *aside + len, "message of a paused lane");
    if (!aside) {
        lane->take = rc_take_nothing; /* rather than what is behind it */
        return rc_lane_break(lane, WEFT_ERR_NO_MEMORY);
    }
    *aside = (struct rc_aside){.len = len, .id = kind};
    if (len) memcpy(aside->bytes, data, len);
    *lane->aside_last = aside;
    lane->aside_last = &aside->next;
    lane->aside_cost += rc_cost(len);
}

static struct rc_aside *next_aside(struct rc_lane *lane) {
    struct rc_aside *aside = lane->aside;
    if (!aside) return NULL;
    lane->aside = aside->next;
    if (!lane->aside) lane->aside_last = &lane->aside;
    lane->aside_cost -= rc_cost(aside->len);
    return aside;
}

weft_status_t rc_pause(struct lane *l, bool on) {
    struct rc_lane *lane = rc_lane(l);
    lane->paused = on;
    if (on)
        lane->take = take_aside;
    else if (lane->take == take_aside)
        rc_lane_todo(lane, RC_TODO_GO_ON);
    return WEFT_OK;
}

/* Until it is paused anew, or ends. */
void rc_go_on(struct rc_lane *lane) {
    struct rc_aside *aside;
    while (lane->take == take_aside && !lane->paused && (aside = next_aside(lane)) != NULL) {
        rc_take_messages(lane, aside->id, aside->bytes, aside->len);
        talloc_free(aside);
    }
    if (lane->take == take_aside && !lane->paused) lane->take = rc_take_messages;
}

/* The lane has ended, and its owner is to be told: behind what it brought, unless he closes it. */
void rc_hear_out(struct rc_lane *lane) {
    struct rc_aside *aside;
    while (!(lane->todo & RC_TODO_CLOSED) && (aside = next_aside(lane)) != NULL) {
        lane_handlers(&lane->lane)[aside->id](&lane->lane, aside->bytes, aside->len);
        talloc_free(aside);
    }
}

void rc_aside_drop(struct rc_lane *lane) {
    struct rc_aside *aside;
    while ((aside = next_aside(lane)) != NULL) talloc_free(aside);
}
