/* What transports report of the lanes below a link that outlives them. */
#include <stdio.h>

#include "resume_steps.h"
#include <endpoints/core/cause.h>
#include <endpoints/core/worker.h>

struct lane *weft__retain_around(struct lane *lane) {
    struct retain *r = retain_of_raw(lane);
    return r && lane == r->raw ? &r->lane : lane;
}

struct lane *weft__retain_receiver(struct lane *raw) {
    struct retain *r = retain_of_raw(raw);
    if (!r) return raw;
    return raw == r->raw ? &r->lane : NULL;
}

bool weft__retain_lane_up(struct lane *lane) {
    struct retain *r = retain_of_raw(lane);
    if (!r || lane != r->fresh) return false;
    step_resume(r, RESUME_EV_LANE_UP);
    return true;
}

/* Only what happens to a connection; not what its peer did, or said. */
static bool is_survived(const struct retain *r, weft_status_t status) {
    if (status == WEFT_ERR_PEER_CLOSED) return weft__resume_closed(&r->core) == RESUME_EV_LOST;
    return status != WEFT_ERR_PROTOCOL && status != WEFT_ERR_AUTH && status != WEFT_ERR_VERSION;
}

static void fresh_down(struct retain *r, weft_status_t status) {
    r->refused = status == WEFT_ERR_REFUSED ? r->refused + 1 : 0;
    if (r->refused >= RETAIN_REFUSED) r->fails = WEFT_ERR_PEER_FAILED;
    step_resume(r, r->fails ? RESUME_EV_GIVE_UP : RESUME_EV_MISSED);
}

/* The lane broke before the peer's handshake. Who dialed has nothing to go on with, and nothing
 * to lose: it begins again, until the handshake is overdue, or the peer's process has ended. */
static bool broke_early(struct retain *r, weft_status_t status) {
    struct link *link = r->link;
    if (!link->dialed) return false;
    if (status == WEFT_ERR_REFUSED && r->back_off) {
        weft__link_lose(link, weft__fail(WEFT_ERR_PEER_FAILED,
                                         "dialed again: connection refused, so the peer ended"));
        return true;
    }
    bool broke = status == WEFT_ERR_PEER_FAILED || status == WEFT_ERR_IO;
    /* a handshake of ours that waits for room would come twice */
    bool sent = link->tx == link->lane;
    if (!broke || !sent) return false;
    weft__fsm_step(&link->core.fsm, LINK_EV_AGAIN);
    return true;
}

/* While the lane is still there, and can be described. */
static void note_cause(struct retain *r, weft_status_t status) {
    char peer[PEER_ROOM], why[CAUSE_ROOM], text[PEER_ROOM + CAUSE_ROOM + 4];
    if (r->cause) return;
    bool known = weft__causes_line(status, why, sizeof why);
    weft__peer_text(r->link, peer);
    snprintf(text, sizeof text, "%s: %s", peer, known ? why : weft__usual_cause(status));
    r->cause = weft__cause_new(r->link->worker, status, text);
}

bool weft__retain_lane_down(struct lane *lane, weft_status_t status) {
    struct retain *r = retain_of_raw(lane);
    if (!r) return false;
    if (lane == r->fresh) {
        fresh_down(r, status);
        return true;
    }
    if (lane != r->raw) return false;
    r->waits = false; /* the queue was purged */
    if (r->dead) {
        lane->ops->close(lane, false);
        return true;
    }
    if (r->closing && !is_survived(r, status)) {
        weft__retain_close_now(r, false);
        return true;
    }
    if (link_was_never_up(&r->link->core.fsm)) return broke_early(r, status);
    if (!is_survived(r, status)) return false;
    note_cause(r, status);
    step_resume(r, RESUME_EV_LOST);
    return true;
}

bool weft__retain_lane_closed(struct lane *lane) {
    struct retain *r = retain_of_raw(lane);
    if (!r || lane != r->raw) return false;
    r->raw = NULL;
    r->over = true;
    weft__retain_finish(r);
    return true;
}
