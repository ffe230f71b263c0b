#include "introduce.h"

#include "lane_wire.h"
#include "retain.h"
#include "worker.h"

/* ns after the end of its process until a peer is lost: what it said before has come by then. */
#define INTRODUCED_LAST NS_PER_MS

/* Its lane would not tell. Those beside a link's own one live and die with that. */
static bool is_watched(const struct link *link) {
    const struct lane *lane = link->lanes[0];
    return !link->more->main && !(lane->iface->attr.caps & CAP_PEER_DEATH);
}

void weft__introduce(struct link *link) {
    struct wire_message m;
    struct lane_process own = {0};
    if (!(link->peer_flags & WIRE_HELLO_ANSWERS) || !(link->more->retain || is_watched(link))) return;
    weft__process_own(link->worker->reactor, &own.host, &own.pid);
    if (!own.host && !link->more->retain) return;
    weft__lane_process(&m, own);
    weft__link_control(link, &m);
}

static void lose(struct timer *timer) {
    struct introduction *in = list_of(timer, struct introduction, ended);
    weft__link_lose(in->link, WEFT_ERR_PEER_FAILED);
}

static void ended(struct process *process) {
    struct introduction *in = list_of(process, struct introduction, process);
    struct reactor *reactor = in->link->worker->reactor;
    weft__process_unwatch(reactor, process);
    if (weft__timer_start(reactor, &in->ended, weft__now(reactor) + INTRODUCED_LAST) < 0) lose(&in->ended);
}

void weft__introduce_lane(const struct link *link, struct lane *raw) {
    const struct introduction *in = link->more->introduction;
    if (in && in->process.known && raw->ops->watched) raw->ops->watched(raw);
}

/* Without the memory for it the lane's own patience has to do. */
static void watch(struct link *link, const struct lane_process *told) {
    struct reactor *reactor = link->worker->reactor;
    struct introduction *in = weft__link_more(link) ? weft__new(link->worker, struct introduction) : NULL;
    if (!in) return;
    in->process = (struct process){.ended = ended, .host = told->host, .pid = told->pid};
    in->link = link;
    in->ended.fire = lose;
    link->more->introduction = in;
    if (!weft__process_watch(reactor, &in->process)) {
        ended(&in->process);
        return;
    }
    struct lane *raw = link->more->retain ? link->more->retain->raw : link->lanes[0];
    if (raw) weft__introduce_lane(link, raw);
}

void weft__introduced(struct link *link, struct lane *lane, const void *data, size_t len) {
    struct lane_process told;
    bool watched = is_watched(link);
    if (!weft__lane_read_process(data, len, &told) || !(watched || link->more->retain) ||
        link->more->introduction) {
        weft__link_violation(link, "process");
        return;
    }
    if (link->more->retain) {
        link->more->retain->process.host = told.host;
        link->more->retain->process.pid = told.pid;
    }
    if (watched) watch(link, &told);
}

void weft__introduction_free(struct link *link) {
    struct introduction *in = link->more->introduction;
    if (!in) return;
    weft__timer_stop(link->worker->reactor, &in->ended);
    weft__process_unwatch(link->worker->reactor, &in->process);
    link->more->introduction = NULL;
    weft__bury(link->worker->reactor, in);
}
