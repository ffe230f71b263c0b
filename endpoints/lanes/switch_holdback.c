/* Holds back messages of a lane that is not to be read yet: copies them, and delivers them
 * later. */
#include <base/counters.h>

#include "switch_local.h"
#include <endpoints/core/worker.h>

static const struct hold_limit limit = {SWITCH_MESSAGE, SWITCH_HOLD + SWITCH_SLACK};

static void hold_message(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct link *link = weft__lane_link(lane);
    struct switching *s = link ? link->more->switching : NULL;
    if (!s || switch_is_over(&s->core.fsm)) return; /* the lane is being closed */
    weft_status_t st = weft__hold_add(&s->hold, link->worker, limit, (uint8_t)id, data, len);
    if (st == WEFT_OK)
        link->worker->count->held_bytes += len;
    else if (st == WEFT_ERR_QUOTA)
        weft__link_violation(link, "more bytes on a new lane than lanes.reorder_bytes");
    else
        weft__link_lose(link, weft__fail(st,
                                         /* later messages must not arrive without it */
                                         "no memory for messages that wait for another lane"));
}

const lane_am_fn weft__switch_holds[LANE_AM_IDS] = {[0 ... LANE_AM_IDS - 1] = hold_message};

/* If the lane is gone, another lane of the link stands for it: its owner is the same. */
void weft__switch_deliver(struct switching *s) {
    struct lane *lane = s->lane[s->core.in] ? s->lane[s->core.in] : s->link->lanes[0];
    const lane_am_fn *handlers =
        s->received_by[s->core.in] ? s->received_by[s->core.in] : lane->iface->up->am;
    const void *data;
    size_t len;
    uint8_t id;
    while (s->link && link_is_up(&s->link->core.fsm) &&
           weft__hold_first(&s->hold, &id, &data, &len)) {
        handlers[id](lane, id, data, len);
        weft__hold_pop(&s->hold, SWITCH_MESSAGE);
    }
}
