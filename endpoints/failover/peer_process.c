/* Announces this process to the peer, and watches the process that the peer announced. */
#include "peer_process.h"

#include "retain.h"
#include <endpoints/core/worker.h>
#include <endpoints/wire/lane_ctrl.h>

/* ns after the end of its process until a peer is lost: what it said before has come by then. */
#define PROCESS_WATCHED_LAST NS_PER_MS

/* Its lane would not report it. Those beside a link's own one live and die with that. */
static bool is_watched(const struct link *link) {
    const struct lane *lane = link->lanes[0];
    return !link->more->main && !(lane->iface->attr.caps & CAP_PEER_DEATH);
}

void weft__watch_process(struct link *link) {
    struct wire_message m;
    struct lane_process own = {0};
    if (!(link->peer_flags & WIRE_HELLO_ANSWERS) || !(link->more->retain || is_watched(link)))
        return;
    weft__process_own(link->worker->reactor, &own.host, &own.pid);
    if (!own.host && !link->more->retain) return;
    weft__lane_process(&m, own);
    weft__link_control(link, &m);
}

static void lose_link(struct timer *timer) {
    struct process_watch *in = list_of(timer, struct process_watch, ended);
    weft__link_lose(
        in->link, weft__fail(WEFT_ERR_PEER_FAILED, "the peer's process %u ended", in->process.pid));
}

static void peer_process_ended(struct process *process) {
    struct process_watch *in = list_of(process, struct process_watch, process);
    struct reactor *reactor = in->link->worker->reactor;
    weft__process_unwatch(reactor, process);
    if (weft__timer_start(reactor, &in->ended, weft__now(reactor) + PROCESS_WATCHED_LAST) < 0)
        lose_link(&in->ended);
}

void weft__watch_process_lane(const struct link *link, struct lane *raw) {
    const struct process_watch *in = link->more->process_watch;
    if (in && in->process.known && HAS_OP(raw->ops, conn, watched)) raw->ops->conn->watched(raw);
}

/* Without memory for it only the lane's own timeout finds the end. */
static void watch(struct link *link, const struct lane_process *notified) {
    struct reactor *reactor = link->worker->reactor;
    struct process_watch *in =
        weft__link_ext(link) ? weft__new(link->worker, struct process_watch) : NULL;
    if (!in) return;
    in->process =
        (struct process){.ended = peer_process_ended, .host = notified->host, .pid = notified->pid};
    in->link = link;
    in->ended.fire = lose_link;
    link->more->process_watch = in;
    if (!weft__process_watch(reactor, &in->process)) {
        peer_process_ended(&in->process);
        return;
    }
    struct lane *raw = link->more->retain ? link->more->retain->raw : link->lanes[0];
    if (raw) weft__watch_process_lane(link, raw);
}

void weft__process_watched(struct link *link, struct lane *lane, const void *data, size_t len) {
    struct lane_process notified;
    bool watched = is_watched(link);
    if (!weft__lane_read_process(data, len, &notified) || !(watched || link->more->retain) ||
        link->more->process_watch) {
        weft__link_violation(link, "process");
        return;
    }
    if (link->more->retain) {
        link->more->retain->process.host = notified.host;
        link->more->retain->process.pid = notified.pid;
    }
    if (watched) watch(link, &notified);
}

void weft__process_watch_free(struct link *link) {
    struct process_watch *in = link->more->process_watch;
    if (!in) return;
    weft__timer_stop(link->worker->reactor, &in->ended);
    weft__process_unwatch(link->worker->reactor, &in->process);
    link->more->process_watch = NULL;
    weft__free_later(link->worker->reactor, in);
}
