/* What each room hangs on links and endpoints. */
#include "features.h"

#include <endpoints/connect/connect.h>
#include <endpoints/core/link_local.h>
#include <endpoints/core/worker.h>
#include <endpoints/failover/heartbeat.h>
#include <endpoints/failover/peer_process.h>
#include <endpoints/failover/retain.h>
#include <endpoints/inspect/stats_page.h>
#include <endpoints/lanes/negotiate.h>
#include <endpoints/lanes/switch.h>
#include <endpoints/lanes/usage_worker.h>
#include <endpoints/memory/rkey.h>
#include <endpoints/messages/stream.h>
#include <endpoints/messages/unread.h>
#include <endpoints/rma/rma.h>
#include <endpoints/threads/thread.h>
#include <endpoints/transfer/expose.h>
#include <endpoints/transfer/layout.h>
#include <endpoints/transfer/rails.h>

static void rail_up(struct link *link) {
    if (link->more->main && link->role == LINK_RAIL) weft__rail_up(link);
}

static void aux_link_up(struct link *link) {
    if (link->more->main && link->role == LINK_AUX) weft__switch_up(link);
}

static void negotiation_close(struct link *link, bool abort) {
    weft__lanes_end(link);
}

static void rma_ep_leaves(struct weft_ep *ep) {
    weft__switch_quiesce_step(ep->link, weft__rma_unwait(ep));
    weft__rma_leave_window(ep);
    weft__rma_drop_outstanding(ep);
}

static void match_ep_leaves(struct weft_ep *ep) {
    if (ep->tags) weft__match_forget_half(&ep->worker->match, ep->tags);
}

static void match_free(struct link *link) {
    weft__match_unlink(&link->worker->match, link, link->worker->limit.link_unexpected);
}

/* The peer returns no credit for what the stream still holds. */
static void stream_ep_leaves(struct weft_ep *ep) {
    if (!ep->stream) return;
    ep->link->unexpected_bytes -= (uint32_t)ep->stream->outstanding;
    weft__unread_remove(ep->worker, ep->stream->outstanding);
}

static void thread_free(struct link *link) {
    weft__thread_forget(link);
}

static const struct link_feature link_features[] = {
    {.name = "negotiation", .close = negotiation_close},
    {.name = "switch", .up = aux_link_up, .close = weft__switch_end, .free = weft__switch_free},
    {.name = "rails", .up = rail_up, .close = weft__rails_end, .free = weft__rails_free},
    {.name = "tracking", .free = weft__tracking_forget},
    {.name = "retain", .free = weft__retain_free},
    {.name = "heartbeat", .up = weft__heartbeat_begin, .free = weft__heartbeat_free},
    {.name = "process", .up = weft__watch_process, .free = weft__process_watch_free},
    {.name = "exposures", .free = weft__exposures_free},
    {.name = "rkeys", .ep_leaves = weft__rkeys_close},
    {.name = "rma", .ep_leaves = rma_ep_leaves},
    {.name = "match", .ep_leaves = match_ep_leaves, .free = match_free},
    {.name = "stream", .ep_leaves = stream_ep_leaves},
    {.name = "stats",
     .count = weft__stats_endpoints,
     .note = weft__stats_note,
     .free = weft__stats_forget},
    {.name = "thread", .free = thread_free},
    {.name = NULL},
};

/* ---- endpoints */

static void rma_ready(struct weft_ep *ep) {
    weft__rma_update(ep);
    weft__rma_go(ep);
}

/* Messages that were not matched: offers, and those of which only a part came. */
static void drop_unmatched(struct weft_ep *ep) {
    if (ep->tags) weft__match_forget(&ep->worker->match, ep->tags);
}

static const struct ep_feature ep_features[] = {
    {.name = "rkeys", .free = weft__rkeys_end},
    {.name = "rma", .ready = rma_ready, .refuses = weft__rma_update, .lost = weft__rma_lost},
    {.name = "match", .lost = drop_unmatched, .ends = drop_unmatched},
    {.name = "stream",
     .lost = weft__stream_lost,
     .draining = weft__stream_closing,
     .notify = weft__stream_notify},
    {.name = NULL},
};

const struct features weft__features = {
    .links = link_features,
    .eps = ep_features,
    .wait = &weft__ep_ops_wait,
    .ready = &weft__ep_ops_ready,
    .refuse = &weft__ep_ops_refuse,
    .leased_wait = &weft__ep_ops_leased_wait,
    .leased_ready = &weft__ep_ops_leased_ready,
    .callbacks_pending = weft__thread_news,
    .scores_changed = weft__stats_scores,
    .handshake = weft__link_handshake,
    .lane_again = weft__retain_again,
};
