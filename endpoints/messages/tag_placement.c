/*
 * A large tagged message that crosses whole, and whose receive is posted when its head is here: the
 * lane writes it where it belongs. It is received when all of it is there. Should its lane break
 * before, the receive is posted again, where it stood: the message comes again, or never. It takes
 * another one that has come since.
 */
#include <base/counters.h>

#include "match.h"
#include "tag.h"
#include "tag_fragments.h"
#include <endpoints/transfer/layout.h>
#include <endpoints/transfer/placement.h>

/* Shorter ones come many to a read, which costs less than their copies. */
enum { TAG_PLACE_LEAST = 32 << 10 };

/* Another message for it may have come since its own was matched: no other receive took that one.
 */
static void match_unexpected(struct weft_request *req) {
    struct match *m = &req->worker->match;
    struct weft_tag_message *message = weft__match_unexpected(m, req->match.tag, req->match.mask);
    if (!message) return;
    list_remove(&req->queued);
    weft_status_t st = weft__tag_receive_message(req, message);
    if (st != WEFT_IN_PROGRESS) weft__request_finish(req, st);
}

static void post_again(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    weft__request_bind(req, NULL);
    weft__match_again(&req->worker->match, req);
    match_unexpected(req);
    weft__ep_request_left(ep);
}

/* As for a message that was handed over: one that was thrown away since its receive had ended
 * has come, too. */
static void count_received(struct weft_ep *ep, size_t n) {
    if (ep->link) ep->link->received++;
    weft__tag_give_credit(ep, n);
}

static weft_status_t tag_begins(struct placement_record *of) {
    struct weft_request *req = of->req;
    req->plain = false;
    req->number = ++req->worker->match.placements;
    if (req->match.info_p)
        *req->match.info_p = (weft_tag_info_t){.tag = of->tag, .len = of->n, .ep = of->from};
    req->placement = of->n;
    req->recv.placement_id = of->id;
    req->in_flight.count++;
    weft__request_bind(req, of->from);
    weft__request_park(req);
    return WEFT_OK;
}

static void tag_ended(const struct placement_record *of, weft_status_t status) {
    struct weft_request *req = of->req;
    bool ended = request_is_ending(&req->core.fsm);
    req->placement = req->recv.placement_id = 0;
    if (status == WEFT_OK || (status == WEFT_ERR_CANCELLED && ended))
        count_received(req->ep, of->n);
    if (ended) {
        completion_step(&req->in_flight, WEFT_OK);
        return;
    }
    req->in_flight.count--;
    if (status < 0) {
        post_again(req);
        return;
    }
    req->worker->count->tag_received++;
    weft__request_take(req, WEFT_OK);
}

static const struct placement_kind tag_kind = {.begin = tag_begins, .ended = tag_ended};

bool weft__place_tag(struct lane *lane, const void *head, size_t head_len, size_t len,
                     struct placement_record *of, struct placement *to) {
    struct wire_tag tag;
    size_t n = len - WIRE_TAG_HEAD;
    if (n < TAG_PLACE_LEAST) return false;
    memcpy(&tag, head, sizeof tag);
    struct weft_ep *ep = weft__ep_lookup_cached(lane, tag.ep);
    struct weft_request *req = ep ? weft__match_posted(&ep->worker->match, tag.tag) : NULL;
    /* a message that is too long is truncated by its handler */
    if (!req || n > req->len) return false;
    of->kind = &tag_kind;
    of->req = req;
    of->n = n;
    of->tag = tag.tag;
    of->from = ep;
    to->skip = WIRE_TAG_HEAD;
    to->n_iov = weft__request_slice(req, to->iov, PLACE_IOV, 0, &n);
    return true;
}
