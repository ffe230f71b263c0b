/* The backlog of a link: nothing overtakes requests that wait for its lane. And the lane that
 * carries its messages. */
#include "link_local.h"
#include <transports/answering.h>

#include "worker.h"

LANE_SENDS_ANSWER(blocked, WEFT_NO_RESOURCE)
static const struct lane_ops blocked_ops = {
    .am_short = blocked_short, .am_bcopy = blocked_bcopy, .am_zcopy = blocked_zcopy};
static struct lane blocked = {.ops = &blocked_ops};

/* Sends the backlog in order until the lane is full. */
static weft_status_t pump(struct link *link) {
    while (!list_empty(&link->backlog)) {
        struct weft_request *req = list_of(link->backlog.next, struct weft_request, queued);
        weft_status_t st = req->kind->advance(req);
        if (st == WEFT_NO_RESOURCE) return st;
        if (st == WEFT_OK) weft__request_finish(req, WEFT_OK);
        if (st < 0) weft__request_stop(req, st); /* the lane may still hold pieces of it */
    }
    return WEFT_OK;
}

weft_status_t weft__link_retry(struct pending *pending) {
    struct link *link = list_of(pending, struct link, pending);
    weft_status_t st = pump(link);
    if (st == WEFT_OK) link->tx = link->lane;
    return st;
}

static void push_link(struct link *link) {
    if (link->tx == &blocked || pump(link) == WEFT_OK) return;
    if (link->tx == &blocked) return; /* the callback of a completed request has sent more */
    link->tx = &blocked;
    link->lane->ops->pending_add(link->lane, &link->pending);
}

void weft__link_submit(struct link *link, struct weft_request *req) {
    weft__request_queue(req, &link->backlog);
    push_link(link);
}

void weft__link_submit_all(struct link *link, struct list *queue) {
    struct list *node;
    while ((node = list_pop(queue)) != NULL) {
        list_of(node, struct weft_request, queued)->queue = &link->backlog;
        list_append(&link->backlog, node);
    }
    push_link(link);
}

void weft__link_drop_backlog(struct link *link, weft_status_t status) {
    while (!list_empty(&link->backlog))
        weft__request_stop(list_of(link->backlog.next, struct weft_request, queued), status);
}

/* ---- which lane */

void weft__link_use_lane(struct link *link, struct lane *lane) {
    size_t max_short = lane->iface->attr.max_short;
    link->at = weft__worker_number(link->worker, lane->iface);
    link->lane = link->tx = lane;
    size_t eager = weft__link_limits(link)->eager, quick = eager < max_short ? eager : max_short;
    link->max_quick = (uint16_t)(quick < UINT16_MAX ? quick : UINT16_MAX);
}

void weft__link_pause(struct link *link) {
    if (link->tx == &blocked) link->lane->ops->pending_remove(link->lane, &link->pending);
    link->tx = &blocked;
}

void weft__link_carry(struct link *link, struct lane *lane) {
    weft__link_pause(link);
    weft__link_use_lane(link, lane);
    link->tx = &blocked;
    if (pump(link) == WEFT_OK)
        link->tx = link->lane;
    else
        link->lane->ops->pending_add(link->lane, &link->pending);
}
