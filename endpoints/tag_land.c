/*
 * A large tagged message that crosses whole, and whose receive is posted when its head is here: the lane writes it where it
 * belongs. It is received when all of it is there. Should its lane break before, the receive is posted again, where it stood:
 * the message comes again, or never.
 */
#include <reactor/counters.h>

#include "landing.h"
#include "layout.h"
#include "match.h"
#include "tag_parts.h"

/* Shorter ones come many to a read, which costs less than their copies. */
enum { TAG_LAND_LEAST = 32 << 10 };

static void post_again(struct weft_request *req) {
    struct weft_ep *ep = req->ep;
    weft__request_bind(req, NULL);
    weft__match_again(&req->worker->match, req);
    weft__ep_request_left(ep);
}

/* As for a message that was handed over: one that was thrown away since its receive had ended has come, too. */
static void count_received(struct weft_ep *ep, size_t n) {
    if (ep->link) ep->link->received++;
    weft__tag_give_credit(ep, n);
}

static void tag_landed(struct lane *lane, void *arg, weft_status_t status) {
    struct weft_request *req = arg;
    size_t n = req->landing;
    bool ended = req->core.fsm.state == REQ_ENDING;
    req->landing = 0;
    if (status == WEFT_OK || (status == WEFT_ERR_CANCELLED && ended)) count_received(req->ep, n);
    if (ended) {
        completion_step(&req->lent, WEFT_OK);
        return;
    }
    req->lent.count--;
    if (status < 0) {
        post_again(req);
        return;
    }
    req->worker->count->tag_received++;
    weft__request_take(req, WEFT_OK);
}

bool weft__land_tag(struct lane *lane, const void *head, size_t head_len, size_t len, struct landing *to) {
    struct wire_tag tag;
    size_t n = len - WIRE_TAG_HEAD;
    if (n < TAG_LAND_LEAST) return false;
    memcpy(&tag, head, sizeof tag);
    struct weft_ep *ep = weft__ep_heard_mostly(lane, tag.ep);
    struct weft_request *req = ep ? weft__match_posted(&ep->worker->match, tag.tag) : NULL;
    if (!req) return false;
    to->skip = WIRE_TAG_HEAD;
    to->n_iov = weft__request_slice(req, to->iov, LAND_IOV, 0, &n);
    if (to->n_iov == 0 || n < len - WIRE_TAG_HEAD) return false; /* the program unpacks it, or too many pieces */
    to->landed = tag_landed;
    to->arg = req;
    req->plain = false;
    req->number = ++ep->worker->match.landings;
    if (req->info_p) *req->info_p = (weft_tag_info_t){.tag = tag.tag, .len = n, .ep = ep};
    req->landing = n;
    req->lent.count++;
    weft__request_bind(req, ep);
    weft__request_park(req);
    return true;
}
