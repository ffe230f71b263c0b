/* Heartbeats of a link: the timer, the question and its answer, and the loss of a silent link. */
#include "heartbeat.h"

#include "retain.h"
#include <endpoints/core/worker.h>
#include <endpoints/wire/lane_ctrl.h>

static void send_msg(struct link *link, enum lane_kind kind) {
    struct wire_message m;
    weft__lane_count(&m, kind, 0);
    (kind == LANE_HEARTBEAT ? weft__link_answer : weft__link_control)(link, &m);
}

static void start_timer(struct heartbeat *heartbeat) {
    struct reactor *reactor = heartbeat->link->worker->reactor;
    heartbeat->due = weft__now(reactor) + (uint64_t)heartbeat->ms * NS_PER_MS / HEARTBEAT_TICKS;
    /* It cannot fail: weft__heartbeat_new reserved the timer. */
    (void)weft__timer_start(reactor, &heartbeat->timer, heartbeat->due);
}

static void lose_silent_link(struct link *link) {
    weft__link_lose(link,
                    weft__fail(WEFT_ERR_PEER_FAILED,
                               "the peer has not answered heartbeats for %u ms (heartbeat_ms)",
                               link->more->heartbeat_ms));
}

/* Did anything come; and was there a lane, and did we look, and in time, so that it could have? */
static bool has_received(const struct heartbeat *heartbeat) {
    const struct retain *retain = heartbeat->link->more->retain;
    if (heartbeat->link->paused || (retain && !resume_is_steady(&retain->core.fsm))) return true;
    uint64_t late = (uint64_t)heartbeat->ms * NS_PER_MS / HEARTBEAT_TICKS / 2;
    return heartbeat->answered || heartbeat->received != (uint32_t)heartbeat->link->received ||
           weft__now(heartbeat->link->worker->reactor) > heartbeat->due + late;
}

static void tick(struct timer *timer) {
    struct heartbeat *heartbeat = list_of(timer, struct heartbeat, timer);
    struct link *link = heartbeat->link;
    if (!link_is_up(&link->core.fsm)) return;
    heartbeat->silent = has_received(heartbeat) ? 0 : heartbeat->silent + 1;
    heartbeat->received = (uint32_t)link->received;
    heartbeat->answered = false;
    start_timer(heartbeat);
    if (heartbeat->silent == 1) send_msg(link, LANE_HEARTBEAT_ASK);
    if (heartbeat->silent <= HEARTBEAT_TICKS) return;
    heartbeat->silent = 0;
    lose_silent_link(link);
}

weft_status_t weft__heartbeat_new(struct link *link, uint32_t ms) {
    struct reactor *reactor = link->worker->reactor;
    struct heartbeat *heartbeat =
        weft__link_ext(link) ? weft__new(link->worker, struct heartbeat) : NULL;
    if (!heartbeat) return WEFT_ERR_NO_MEMORY;
    heartbeat->link = link;
    heartbeat->ms = ms;
    heartbeat->timer.fire = tick;
    weft_status_t st = weft__timer_reserve(reactor, &heartbeat->timer);
    if (st < 0) {
        talloc_free(heartbeat);
        return st;
    }
    link->more->heartbeat = heartbeat;
    link->more->heartbeat_ms = ms;
    return WEFT_OK;
}

void weft__heartbeat_begin(struct link *link) {
    if (!link->more->heartbeat) return;
    if (link->peer_flags & WIRE_HELLO_ANSWERS)
        start_timer(link->more->heartbeat);
    else
        weft__log_limited(link->worker->context, WEFT_LOG_WARN, "endpoints",
                          "a peer of an older version answers no heartbeats");
}

void weft__heartbeat_free(struct link *link) {
    struct heartbeat *heartbeat = link->more->heartbeat;
    if (!heartbeat) return;
    weft__timer_release(link->worker->reactor, &heartbeat->timer);
    link->more->heartbeat = NULL;
    link->more->heartbeat_ms = 0;
    weft__free_later(link->worker->reactor, heartbeat);
}

void weft__heartbeat_received(struct link *link, struct lane *lane, const void *data, size_t len) {
    struct lane_count word;
    if (!weft__lane_read_count(data, len, &word) || word.count) {
        weft__link_violation(link, "heartbeat");
        return;
    }
    if (weft__lane_kind(data, len) == LANE_HEARTBEAT_ASK)
        send_msg(link, LANE_HEARTBEAT);
    else if (link->more->heartbeat)
        link->more->heartbeat->answered = true;
}
