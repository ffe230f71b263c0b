/*
 * Tagged messages in parts. A receive that is posted when the first part comes is filled as they
 * come; otherwise the message is gathered, and is matched when it is whole.
 */
#include "tag_fragments.h"
#include "message_memory.h"

#include <base/counters.h>
#include <transports/copy.h>

#include <endpoints/core/worker.h>
#include <endpoints/transfer/layout.h>

/* ---- out */

static weft_status_t send_first(struct weft_request *req, size_t part) {
    char head[WIRE_TAG_BEGIN_HEAD];
    struct weft_ep *ep = req->ep;
    req->number = (uint32_t)ep->link->sent;
    weft__wire_tag_begin(head, (struct wire_tag_begin){.tag = req->match.tag,
                                                       .ep = ep->core.peer,
                                                       .number = req->number,
                                                       .len = req->len});
    weft_status_t st = weft__send_piece(req, WIRE_TAG_BEGIN, head, sizeof head, part);
    if (st != WEFT_OK && st != WEFT_IN_PROGRESS) return st;
    ep->credit -= (int64_t)req->len + TAG_MESSAGE_COST;
    ep->worker->count->tag_sent++;
    ep->worker->count->protocol_parts++;
    ep->link->sent++;
    return st;
}

static weft_status_t send_next(struct weft_request *req, size_t part) {
    char head[WIRE_TAG_PART_HEAD];
    weft__wire_tag_part(head, (struct wire_tag_part){.ep = req->ep->core.peer,
                                                     .number = req->number,
                                                     .offset = req->offset});
    return weft__send_piece(req, WIRE_TAG_PART, head, sizeof head, part);
}

weft_status_t weft__tag_send_parts(struct weft_request *req, struct lane *lane) {
    size_t part = weft__protocol_part(weft__link_limits(req->ep->link), req->len);
    while (req->offset < req->len) {
        weft_status_t st = req->offset == 0 ? send_first(req, part) : send_next(req, part);
        if (st != WEFT_OK && st != WEFT_IN_PROGRESS) return st;
    }
    if (req->in_flight.count == 0) return WEFT_OK;
    weft__request_hand_over(req);
    return WEFT_IN_PROGRESS;
}

void weft__tag_end_parts(struct weft_request *req) {
    struct wire_message m;
    if (req->peer_id || req->offset == 0 || req->offset == req->len) return;
    if (!req->ep->link || !req->ep->core.peer) return;
    weft__wire_tag_give_up(
        &m, (struct wire_tag_part){.ep = req->ep->core.peer,
                                   .number = req->number,
                                   .status = weft__reason_for_peer(req->ep->link, req->status)});
    weft__link_control(req->ep->link, &m);
}

/* ---- in */

static struct weft_request *receive_under_way(const struct weft_ep *ep) {
    const struct ep_tags *tags = ep->tags;
    if (!tags || list_empty(&tags->filling)) return NULL;
    return list_of(tags->filling.next, struct weft_request, queued);
}

static struct weft_tag_message *message_under_way(const struct weft_ep *ep) {
    const struct ep_tags *tags = ep->tags;
    if (!tags || list_empty(&tags->gathering)) return NULL;
    return list_of(tags->gathering.next, struct weft_tag_message, in_order);
}

static void drop_fragments(struct weft_ep *ep, struct weft_tag_message *message) {
    weft__tag_give_back(ep->worker, message);
    list_remove(&message->in_order);
    weft__message_free(message);
}

/* Its sender will not send the rest. */
static void give_up(struct weft_ep *ep, weft_status_t why) {
    struct weft_request *req = receive_under_way(ep);
    struct weft_tag_message *message = message_under_way(ep);
    if (req) weft__request_failed_there(req, why);
    if (message) drop_fragments(ep, message);
}

static void fill_fragments(struct weft_request *req, const void *bytes, size_t n) {
    weft_status_t st = weft__request_scatter(req, req->offset, bytes, n);
    req->offset += n;
    if (st < 0)
        weft__request_stop(req, st);
    else if (req->offset == req->len) {
        list_remove(&req->queued);
        weft__request_finish(req, WEFT_OK);
    }
}

/* Memory follows the bytes that have come, not what the peer announced. The message may move.
 * NULL: without memory the endpoint has failed, and the message with it. */
static struct weft_tag_message *make_room(struct weft_ep *ep, struct weft_tag_message *message,
                                          size_t n) {
    size_t room = talloc_get_size(message) - sizeof *message, need = message->came + n;
    if (need <= room) return message;
    room = need < message->len / 2 ? 2 * need : message->len;
    list_remove(&message->in_order);
    struct weft_tag_message *grown =
        weft__realloc(ep->worker, message, sizeof *message + room, "unexpected message");
    if (grown) message = grown;
    list_init(&message->in_order);
    list_init(&message->in_bucket);
    list_init(&message->in_offers);
    list_init(&message->of_ep);
    list_append(&ep->tags->gathering, &message->in_order);
    if (!grown) weft__ep_violation(ep, WEFT_ERR_NO_MEMORY, "no memory for an unexpected message");
    return grown;
}

static void gather_fragments(struct weft_ep *ep, struct weft_tag_message *message,
                             const void *bytes, size_t n) {
    struct weft_worker *worker = ep->worker;
    message = make_room(ep, message, n);
    if (!message) return;
    weft__copy(message->bytes + message->came, bytes, n);
    message->came += n;
    if (message->came < message->len) return;
    list_remove(&message->in_order);
    struct weft_request *req = weft__match_posted(&worker->match, message->tag);
    if (!req) {
        weft__match_add(&worker->match, message);
        return;
    }
    weft_status_t st = weft__tag_receive_message(req, message);
    if (st != WEFT_IN_PROGRESS) weft__request_take(req, st);
}

/* The receive is this message's from now on. */
static void begin_filling(struct weft_ep *ep, struct ep_tags *tags, struct weft_request *req,
                          const struct wire_tag_begin *m) {
    if (req->match.info_p)
        *req->match.info_p = (weft_tag_info_t){.tag = m->tag, .len = m->len, .ep = ep};
    weft__tag_give_credit(ep, m->len);
    ep->worker->count->tag_received++;
    weft__request_bind(req, ep);
    weft__request_park(req);
    list_append(&tags->filling, &req->queued);
    req->peer_id = m->number;
    req->len = m->len;
    req->offset = 0;
    fill_fragments(req, m->bytes, m->n);
}

static void begin_gathering(struct weft_ep *ep, struct ep_tags *tags,
                            const struct wire_tag_begin *m) {
    struct weft_tag_message *message = weft__tag_unexpected(ep, m->tag, m->len, m->n);
    if (!message) return;
    message->number = m->number;
    message->came = 0;
    list_append(&tags->gathering, &message->in_order);
    gather_fragments(ep, message, m->bytes, m->n);
}

void weft__on_tag_begin(struct link *link, struct lane *lane, const struct wire_tag_begin *m) {
    struct weft_ep *ep = weft__ep_lookup(lane, m->ep, "tagged message");
    if (!ep) return;
    link->received++;
    give_up(ep, WEFT_ERR_CANCELLED); /* who begins another has given up the one before */
    struct ep_tags *tags = weft__ep_tags(ep);
    if (!tags) {
        weft__ep_violation(ep, WEFT_ERR_NO_MEMORY, "no memory for a tagged message in parts");
        return;
    }
    struct weft_request *req = weft__match_posted(&ep->worker->match, m->tag);
    if (req && m->len <= req->len)
        begin_filling(ep, tags, req, m);
    else
        begin_gathering(ep, tags, m); /* what is too long for its receive is cut when it is here */
}

/* One that was cancelled here goes on coming: its sender need not know. */
void weft__on_tag_part(struct link *link, struct lane *lane, const struct wire_tag_part *part) {
    struct weft_ep *ep = weft__ep_lookup(lane, part->ep, "tagged message");
    if (!ep) return;
    struct weft_request *req = receive_under_way(ep);
    struct weft_tag_message *message = req ? NULL : message_under_way(ep);
    if (req ? req->peer_id != part->number : !message || message->number != part->number) return;
    uint64_t came = req ? req->offset : message->came, whole = req ? req->len : message->len;
    if (part->n == 0)
        give_up(ep, (weft_status_t)part->status);
    else if (part->offset != came || part->n > whole - came)
        weft__ep_violation(ep, WEFT_ERR_PROTOCOL, "part of a tagged message");
    else if (req)
        fill_fragments(req, part->bytes, part->n);
    else
        gather_fragments(ep, message, part->bytes, part->n);
}
