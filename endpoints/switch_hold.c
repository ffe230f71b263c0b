/* What comes by a lane that is not the one to be read now: copied, and delivered later. */
#include <reactor/counters.h>
#include <reactor/mutant.h>

#include "switch_local.h"
#include "worker.h"

enum { HOLD_MOST = SWITCH_HOLD + SWITCH_SLACK };

static void hold(struct lane *lane, uint8_t id, const void *data, size_t len) {
    struct link *link = lane->owner;
    struct switching *s = link ? link->more->switching : NULL;
    if (!s || s->core.fsm.state == SWITCH_OVER) return; /* a lane that is being closed */
    weft_status_t st = weft__hold_add(&s->hold, link->worker, SWITCH_MESSAGE, HOLD_MOST, id, data, len);
    if (st == WEFT_OK)
        link->worker->count->held_bytes += len;
    else if (st == WEFT_ERR_QUOTA)
        weft__link_violation(link, "more than may wait for another lane");
    else
        weft__link_lose(link, st); /* what follows must not come without it */
}

#define HOLD_ONE(id)                                                         \
    static void hold_##id(struct lane *lane, const void *data, size_t len) { \
        hold(lane, id, data, len);                                           \
    }
LANE_EACH_AM_ID(HOLD_ONE)
#define NAME_ONE(id) [id] = hold_##id,
const lane_am_fn weft__switch_holds[LANE_AM_IDS] = {LANE_EACH_AM_ID(NAME_ONE)};

/* The lane may be gone; any of the link's has the same owner. */
void weft__switch_deliver(struct switching *s) {
    struct lane *lane = s->lane[s->core.in] ? s->lane[s->core.in] : s->link->lanes[0];
    const lane_am_fn *handlers = s->heard_by[s->core.in] ? s->heard_by[s->core.in] : lane->iface->up->am;
    const void *data;
    size_t len;
    uint8_t id;
    while (s->link && s->link->core.fsm.state == LINK_UP && weft__hold_first(&s->hold, &id, &data, &len)) {
        if (!WEFT_MUTANT(switch_hold_lost) || s->hold.bytes > len) handlers[id](lane, data, len);
        weft__hold_pop(&s->hold, SWITCH_MESSAGE);
    }
}
