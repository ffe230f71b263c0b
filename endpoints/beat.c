#include "beat.h"

#include "lane_wire.h"
#include "retain.h"
#include "worker.h"

static void say(struct link *link, enum lane_kind kind) {
    struct wire_message m;
    weft__lane_count(&m, kind, 0);
    weft__link_control(link, &m);
}

static void wait(struct beat *beat) {
    struct reactor *reactor = beat->link->worker->reactor;
    beat->due = weft__now(reactor) + (uint64_t)beat->ms * NS_PER_MS / BEAT_TICKS;
    /* The heap has room: it was reserved with the wish. */
    (void)weft__timer_start(reactor, &beat->timer, beat->due);
}

static void is_silent(struct link *link) {
    weft__log_limited(link->worker->context, WEFT_LOG_WARN, "endpoints", "a peer says nothing for %u ms",
                      weft__beat_ms(link));
    weft__link_lose(link, WEFT_ERR_PEER_FAILED);
}

/* Did anything come; and was there a lane, and did we look, and in time, so that it could have? */
static bool heard(const struct beat *beat) {
    const struct retain *retain = beat->link->more->retain;
    if (beat->link->paused || (retain && retain->core.fsm.state != RESUME_STEADY)) return true;
    uint64_t late = (uint64_t)beat->ms * NS_PER_MS / BEAT_TICKS / 2;
    return beat->answered || beat->received != (uint32_t)beat->link->received ||
           weft__now(beat->link->worker->reactor) > beat->due + late;
}

static void tick(struct timer *timer) {
    struct beat *beat = list_of(timer, struct beat, timer);
    struct link *link = beat->link;
    if (link->core.fsm.state != LINK_UP) return;
    beat->silent = heard(beat) ? 0 : beat->silent + 1;
    beat->received = (uint32_t)link->received;
    beat->answered = false;
    wait(beat);
    if (beat->silent == 1) say(link, LANE_BEAT_ASK);
    if (beat->silent <= BEAT_TICKS) return;
    beat->silent = 0;
    is_silent(link);
}

weft_status_t weft__beat_wish(struct link *link, uint32_t ms) {
    struct reactor *reactor = link->worker->reactor;
    struct beat *beat = weft__link_more(link) ? weft__new(link->worker, struct beat) : NULL;
    if (!beat) return WEFT_ERR_NO_MEMORY;
    beat->link = link;
    beat->ms = ms;
    beat->timer.fire = tick;
    weft_status_t st = weft__timer_start(reactor, &beat->timer, UINT64_MAX);
    if (st < 0) {
        talloc_free(beat);
        return st;
    }
    weft__timer_stop(reactor, &beat->timer);
    link->more->beat = beat;
    return WEFT_OK;
}

void weft__beat_begin(struct link *link) {
    if (!link->more->beat) return;
    if (link->peer_flags & WIRE_HELLO_ANSWERS)
        wait(link->more->beat);
    else
        weft__log_limited(link->worker->context, WEFT_LOG_WARN, "endpoints",
                          "a peer of an older version answers no heartbeats");
}

void weft__beat_free(struct link *link) {
    struct beat *beat = link->more->beat;
    if (!beat) return;
    weft__timer_stop(link->worker->reactor, &beat->timer);
    link->more->beat = NULL;
    weft__bury(link->worker->reactor, beat);
}

void weft__beat_heard(struct link *link, struct lane *lane, const void *data, size_t len) {
    struct lane_count word;
    if (!weft__lane_read_count(data, len, &word) || word.count) {
        weft__link_violation(link, "heartbeat");
        return;
    }
    if (weft__lane_kind(data, len) == LANE_BEAT_ASK)
        say(link, LANE_BEAT);
    else if (link->more->beat)
        link->more->beat->answered = true;
}
