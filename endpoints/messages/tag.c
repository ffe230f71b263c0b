/* Tagged messages, in: credit, matching, and the program's receives. tag_send.c is the way out. */
#include <base/compiler.h>
#include <base/counters.h>
#include <transports/copy.h>

#include "leased.h"
#include "message_memory.h"
#include "tag.h"
#include "tag_fragments.h"
#include "unread.h"
#include <endpoints/core/cause.h>
#include <endpoints/core/request_fast.h>
#include <endpoints/core/submit.h>
#include <endpoints/transfer/device_fetch.h>
#include <endpoints/transfer/layout.h>

enum { MESSAGE_COST = TAG_MESSAGE_COST };

/* ---- credit */

/* Given back in quarters, so that the way back costs little. */
static NOINLINE void send_credit(struct weft_ep *ep, uint32_t cost) {
    struct wire_message m;
    uint32_t quarter = weft__ep_unexpected(ep) / 4;
    if (!ep->link || !ep->core.peer) return;
    weft__wire_credit(
        &m, (struct wire_credit){.ep = ep->core.peer, .bytes = quarter - ep->credit_left + cost});
    ep->credit_left = quarter;
    weft__link_answer(ep->link, &m);
}

static inline void give_credit(struct weft_ep *ep, uint32_t cost) {
    if (UNLIKELY(cost >= ep->credit_left))
        send_credit(ep, cost);
    else
        ep->credit_left -= cost;
}

void weft__tag_give_credit(struct weft_ep *ep, size_t len) {
    give_credit(ep, (uint32_t)len + MESSAGE_COST);
}

/* The message is matched; its endpoint may be gone by now. */
void weft__tag_give_back(struct weft_worker *worker, struct weft_tag_message *message) {
    struct weft_ep *ep = weft__idmap_find(&worker->eps, message->ep);
    weft__match_read(message);
    if (!ep) return;
    ep->credit_out -= message->cost;
    give_credit(ep, message->cost);
}

/* ---- matching */

static void fill_tag(weft_tag_info_t *info_p, uint64_t tag, size_t len, struct weft_ep *ep) {
    if (info_p) *info_p = (weft_tag_info_t){.tag = tag, .len = len, .ep = ep};
}

/* A message that is all here goes to its receive. IN_PROGRESS: a device is to have it. */
static weft_status_t take_whole(struct weft_request *req, struct weft_ep *ep, const void *bytes,
                                size_t len) {
    size_t room = req->len, n = len < room ? len : room;
    weft_status_t st = WEFT_OK;
    req->worker->count->tag_received++;
    if (req->layout)
        st = weft__device_take(req, ep, bytes, n);
    else
        weft__iov_scatter(req->iov, req->n_iov, 0, bytes, n);
    if (len <= room || st < 0) return st;
    if (st == WEFT_OK) return WEFT_ERR_TRUNCATED;
    req->status = WEFT_ERR_TRUNCATED; /* for the end of the copy */
    return st;
}

static weft_status_t sender_is_lost(const struct weft_ep *ep) {
    weft_status_t st = ep->status < 0 ? ep->status : WEFT_ERR_PEER_FAILED;
    weft__cause_note(st, ep->cause);
    return st;
}

/* One that is offered is fetched, as much of it as fits. */
static weft_status_t take_offer(struct weft_request *req, struct weft_ep *ep,
                                const struct wire_rts *rts) {
    uint64_t len = rts->len;
    req->worker->count->tag_received++;
    if (!ep) return WEFT_ERR_CLOSED;
    if (!ep->link) return sender_is_lost(ep);
    if (len > req->len)
        req->status = WEFT_ERR_TRUNCATED;
    else
        req->len = len;
    req->peer_id = rts->request;
    req->recv.remote = rts->address;
    if (rts->device) weft__device_offered(req, rts->device, rts->device_len);
    weft__request_bind(req, ep);
    weft_status_t st = weft__fetch(req);
    return st == WEFT_OK && req->status < 0 ? req->status : st;
}

struct ep_tags *weft__ep_tags(struct weft_ep *ep) {
    if (ep->tags) return ep->tags;
    struct ep_tags *tags = weft__new(ep->worker, struct ep_tags);
    if (!tags) return NULL;
    list_init(&tags->offers);
    list_init(&tags->filling);
    list_init(&tags->gathering);
    return ep->tags = tags;
}

static void init_message(struct weft_tag_message *message, struct weft_ep *ep, uint64_t tag,
                         size_t len) {
    *message = (struct weft_tag_message){.worker = ep->worker,
                                         .ep = weft__ep_id(ep),
                                         .tag = tag,
                                         .len = len,
                                         .cost = (uint32_t)len + MESSAGE_COST};
    list_init(&message->in_order);
    list_init(&message->in_bucket);
    list_init(&message->in_offers);
    list_init(&message->of_ep);
}

struct weft_tag_message *weft__tag_unexpected(struct weft_ep *ep, uint64_t tag, size_t len,
                                              size_t room) {
    struct weft_worker *worker = ep->worker;
    uint32_t limit = weft__ep_unexpected(ep);
    if (len > limit || ep->credit_out + len + MESSAGE_COST > limit) {
        weft__ep_violation(ep, WEFT_ERR_QUOTA,
                           "more unexpected bytes than granted (tag.unexpected_bytes)");
        return NULL;
    }
    if (!weft__match_may_leave(ep, len + MESSAGE_COST)) return NULL;
    struct weft_tag_message *message = weft__message_new(worker, room);
    if (!message) {
        weft__ep_violation(ep, WEFT_ERR_NO_MEMORY, "no memory for an unexpected message");
        return NULL;
    }
    init_message(message, ep, tag, len);
    ep->credit_out += message->cost;
    message->unexpected_bytes = &ep->link->unexpected_bytes;
    ep->link->unexpected_bytes += message->cost;
    weft__unread_add(worker, message->cost);
    worker->count->tag_unexpected++;
    if (worker->leases) weft__leased_follow(ep, tag);
    return message;
}

static void keep_tag(struct weft_ep *ep, uint64_t tag, const void *bytes, size_t len) {
    struct weft_tag_message *message = weft__tag_unexpected(ep, tag, len, len);
    if (!message) return;
    if (len) weft__copy(message->bytes, bytes, len);
    weft__match_add(&ep->worker->match, message);
}

static void keep_offer(struct weft_ep *ep, const struct wire_rts *rts) {
    struct ep_tags *tags = weft__ep_tags(ep);
    if (!tags) {
        weft__ep_violation(ep, WEFT_ERR_NO_MEMORY, "no memory for an unexpected message");
        return;
    }
    struct weft_tag_message *message = weft__tag_unexpected(ep, rts->tag, 0, rts->device_len);
    if (!message) return;
    if (rts->device_len) memcpy(message->bytes, rts->device, rts->device_len);
    message->device_len = rts->device_len;
    message->memory = rts->memory;
    list_append(&tags->offers, &message->of_ep);
    message->offer_hash = weft__match_offer_hash(&ep->worker->match, ep->link, rts->request);
    message->offer = rts->request;
    message->len = rts->len;
    message->remote = rts->address;
    weft__match_add(&ep->worker->match, message);
}

/* A receive with a mask takes no message of a library that holds a lease. */
static void exclude_leases(const weft_worker_t *worker, uint64_t *tag_p, uint64_t *mask_p) {
    const uint64_t leased = UINT64_C(1) << 63;
    if (!(worker->match.slow & MATCH_LEASED) || *mask_p & leased) return;
    *mask_p |= leased;
    *tag_p &= ~leased;
}

/* In all its cases. */
static NOINLINE void on_tag_slow(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct wire_tag head;
    if (len < WIRE_TAG_HEAD) {
        weft__on_unknown(lane, id, data, len);
        return;
    }
    memcpy(&head, data, sizeof head);
    const char *bytes = (const char *)data + WIRE_TAG_HEAD;
    len -= WIRE_TAG_HEAD;
    struct weft_ep *ep = weft__ep_lookup(lane, head.ep, "tagged message");
    if (!ep) return;
    ep->link->received++;

    struct weft_request *req = weft__match_posted(&ep->worker->match, head.tag);
    if (!req) {
        keep_tag(ep, head.tag, bytes, len);
        return;
    }
    fill_tag(req->match.info_p, head.tag, len, ep);
    give_credit(ep, (uint32_t)len + MESSAGE_COST);
    weft_status_t st = take_whole(req, ep, bytes, len);
    if (st != WEFT_IN_PROGRESS) weft__request_take(req, st); /* and the program may do anything */
}

/* Usually its receive is the first for that tag, and plain, and the program may be notified at
 * once: this is asked first, and then all is done without another question. The program comes last,
 * so that nothing is kept while it is called. */
void weft__on_tag(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct wire_tag head;
    if (UNLIKELY(len < sizeof head)) goto slow;
    memcpy(&head, data, sizeof head);
    struct weft_ep *ep = weft__ep_lookup_cached(lane, head.ep);
    if (UNLIKELY(!ep)) goto slow;
    struct weft_worker *worker = ep->worker;
    if (UNLIKELY(worker->match.slow & (MATCH_MASKED | MATCH_DUE | MATCH_CB_DEFERRED))) goto slow;
    struct weft_request *req = weft__match_first(&worker->match, head.tag);
    if (UNLIKELY(!req || !req->plain)) goto slow;
    size_t n = len - sizeof head;
    uint32_t cost = (uint32_t)n + MESSAGE_COST;
    /* cut short; sends some back */
    if (UNLIKELY(n > req->len || cost >= ep->credit_left)) goto slow;

    ep->link->received++;
    ep->credit_left -= cost;
    worker->count->tag_received++;
    fill_tag(req->match.info_p, head.tag, n, ep);
    weft__copy_short(req->iov_inline[0].base, (const char *)data + sizeof head, n);
    weft__plain_take(worker, req, WEFT_OK);
    return;
slow:
    on_tag_slow(lane, id, data, len);
}

void weft__tag_offered(struct weft_ep *ep, const struct wire_rts *rts) {
    ep->link->received++;
    struct weft_request *req = weft__match_posted(&ep->worker->match, rts->tag);
    if (!req) {
        keep_offer(ep, rts);
        return;
    }
    fill_tag(req->match.info_p, rts->tag, rts->len, ep);
    if (req->match.info_p) req->match.info_p->memory = rts->memory;
    list_remove(&req->queued);
    give_credit(ep, MESSAGE_COST);
    weft_status_t st = take_offer(req, ep, rts);
    if (st != WEFT_IN_PROGRESS) weft__request_finish(req, st);
}

/* The message that stands for an offer of this link's peer, or NULL. */
static struct weft_tag_message *find_offer(struct link *link, uint32_t offer) {
    struct list *all = weft__match_offers(&link->worker->match, link, offer);
    list_for_each(n, all) {
        struct weft_tag_message *message = list_of(n, struct weft_tag_message, in_offers);
        if (message->offer != offer) continue;
        struct weft_ep *ep = weft__idmap_find(&link->worker->eps, message->ep);
        if (ep && ep->link == link) return message;
    }
    return NULL;
}

/* A taken one stays, for its handle's sake, and fails when it is received. */
bool weft__tag_offer_withdrawn(struct link *link, uint32_t offer) {
    struct weft_tag_message *message = find_offer(link, offer);
    if (!message) return false;
    weft__tag_give_back(link->worker, message);
    if (message->taken) {
        message->ep = 0;
    } else {
        weft__match_remove(&link->worker->match, message);
        weft__message_free(message);
    }
    return true;
}

/* ---- the user's receives */

weft_status_t weft__tag_receive_message(struct weft_request *req,
                                        struct weft_tag_message *message) {
    struct weft_worker *worker = req->worker;
    struct weft_ep *ep = weft__idmap_find(&worker->eps, message->ep);
    const struct wire_rts kept = {.request = message->offer,
                                  .len = message->len,
                                  .address = message->remote,
                                  .device = message->device_len ? message->bytes : NULL,
                                  .device_len = message->device_len};
    weft_status_t st = message->offer ? weft__request_reserve_name(worker) : WEFT_OK;
    if (st < 0) return st;
    fill_tag(req->match.info_p, message->tag, message->len, ep);
    if (req->match.info_p) req->match.info_p->memory = message->memory;
    if (message->offer && !message->ep)
        st = WEFT_ERR_CANCELLED; /* taken back by its sender */
    else if (message->offer)
        st = take_offer(req, ep, &kept);
    else
        st = take_whole(req, ep, message->bytes, message->len);
    weft__tag_give_back(worker, message);
    weft__match_remove(&worker->match, message);
    weft__message_free(message);
    return st;
}

static weft_status_t receive_request(weft_worker_t *worker, const weft_iov_t *iov, size_t n_iov,
                                     weft_tag_info_t *info_p, const weft_op_t *op,
                                     struct weft_request **req_p) {
    struct weft_request *req = weft__request_new(worker, &weft__receive_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_memory(req, iov, n_iov, op, true);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    req->match.info_p = info_p;
    st = weft__request_accept(req, NULL, op);
    if (st < 0) return st;
    *req_p = req;
    return WEFT_OK;
}

static weft_status_t check_receive(const weft_worker_t *worker) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = weft__worker_check(worker);
    if (st < 0) return st;
    return worker_is_open(&worker->core.fsm) ? WEFT_OK : weft__worker_refuse(worker);
}

static weft_status_t tag_recv_posted(void *worker, const struct submit_args *args,
                                     const weft_op_t *op) {
    weft_tag_info_t *info_p = (weft_tag_info_t *)(uintptr_t)args->word[2];
    return weft_tag_recv(worker, args->word[0], args->word[1], args->iov, args->n_iov, info_p, op);
}

static NOINLINE weft_status_t recv_general(weft_worker_t *worker, const struct tag_receive *r,
                                           const weft_op_t *op) {
    struct weft_request *req;
    if (worker && worker->shared) return weft__leased_tag_recv(worker, r, op);
    if (worker && weft__call_enter(worker, op) == WEFT_IN_PROGRESS) {
        struct submit_args args = {
            .word = {r->tag, r->mask, (uintptr_t)r->info_p}, .iov = r->iov, .n_iov = r->n_iov};
        return weft__post(worker, NULL, tag_recv_posted, &args, op);
    }
    weft_status_t st = check_receive(worker);
    if (st == WEFT_OK) st = receive_request(worker, r->iov, r->n_iov, r->info_p, op, &req);
    if (st < 0) return st;

    struct weft_tag_message *message = weft__match_unexpected(&worker->match, r->tag, r->mask);
    if (message) {
        st = weft__tag_receive_message(req, message);
        if (st != WEFT_IN_PROGRESS) weft__request_discard(req);
        return st;
    }
    req->match.tag = r->tag;
    req->match.mask = r->mask;
    req->match.order = weft__match_order(&worker->match, r->mask);
    weft__request_queue(req, weft__match_queue(&worker->match, r->tag, r->mask));
    return WEFT_IN_PROGRESS;
}

static inline weft_status_t post_plain(weft_worker_t *worker, struct weft_request *req,
                                       const struct tag_receive *r, const weft_op_t *op) {
    req->match.info_p = r->info_p;
    req->match.tag = r->tag;
    req->match.mask = r->mask;
    req->match.order = weft__match_order(&worker->match, r->mask);
    weft__plain_post(req, weft__match_queue(&worker->match, r->tag, r->mask), r->iov, op);
    return WEFT_IN_PROGRESS;
}

/* In all its cases. Of the same parameters as weft_tag_recv, which gets here by a jump. */
static NOINLINE weft_status_t recv_slow(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                        const weft_iov_t *iov, size_t n_iov,
                                        weft_tag_info_t *info_p, const weft_op_t *op) {
    static const weft_op_t no_op;
    if (!op) op = &no_op;
    if (worker && weft__reactor_mine(worker->reactor)) exclude_leases(worker, &tag, &mask);
    bool plain = worker && weft__iov_is_plain(iov, n_iov) && !weft__is_device_memory(iov->base) &&
                 weft__op_is_plain(op) && weft__reactor_mine(worker->reactor) &&
                 worker_is_open(&worker->core.fsm);
    const struct tag_receive r = {tag, mask, iov, n_iov, info_p};
    if (!plain || weft__match_unexpected(&worker->match, tag, mask))
        return recv_general(worker, &r, op);
    struct weft_request *req = weft__plain_new(worker, &weft__receive_kind);
    return req ? post_plain(worker, req, &r, op) : WEFT_ERR_NO_MEMORY;
}

/* Most receives are of one piece without more ado, come before their message, and find the
 * request of one that has ended. */
weft_status_t weft_tag_recv(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                            const weft_iov_t *iov, size_t n_iov, weft_tag_info_t *info_p,
                            const weft_op_t *op) {
    if (UNLIKELY(!op || !weft__op_is_plain(op))) goto slow;
    if (UNLIKELY(!worker || !weft__reactor_mine(worker->reactor))) goto slow;
    if (UNLIKELY(n_iov != 1 || !worker_is_open(&worker->core.fsm))) goto slow;
    if (UNLIKELY(!iov || !iov->base || worker->match.slow & (MATCH_UNEXPECTED | MATCH_LEASED)))
        goto slow;
    if (UNLIKELY(weft__cuda_active)) goto slow;
    struct weft_request *req = weft__plain_spare(worker);
    if (UNLIKELY(!req)) goto slow;
    return post_plain(worker, req, &(struct tag_receive){tag, mask, iov, n_iov, info_p}, op);
slow:
    return recv_slow(worker, tag, mask, iov, n_iov, info_p, op);
}

static void info_of(const weft_worker_t *worker, const struct weft_tag_message *message,
                    weft_tag_info_t *info_p) {
    fill_tag(info_p, message->tag, message->len, weft__idmap_find(&worker->eps, message->ep));
    if (info_p) info_p->memory = message->memory;
}

weft_status_t weft_tag_probe(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                             weft_tag_info_t *info_p) {
    if (worker && worker->shared) return weft__leased_tag_probe(worker, tag, mask, info_p);
    weft_status_t st = check_receive(worker);
    if (st < 0) return st;
    exclude_leases(worker, &tag, &mask);
    struct weft_tag_message *message = weft__match_unexpected(&worker->match, tag, mask);
    if (!message) return WEFT_ERR_NOT_FOUND;
    info_of(worker, message, info_p);
    return WEFT_OK;
}

weft_status_t weft_tag_take(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                            weft_tag_info_t *info_p, weft_tag_message_t **message_p) {
    if (!message_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "message_p is NULL");
    if (worker && worker->shared)
        return weft__leased_tag_take(worker, tag, mask, info_p, message_p);
    weft_status_t st = weft_tag_probe(worker, tag, mask, info_p);
    if (st < 0) return st;
    exclude_leases(worker, &tag, &mask);
    *message_p = weft__match_unexpected(&worker->match, tag, mask);
    weft__match_take(&worker->match, *message_p);
    return WEFT_OK;
}

weft_status_t weft_tag_message_recv(weft_worker_t *worker, weft_tag_message_t *message,
                                    const weft_iov_t *iov, size_t n_iov, const weft_op_t *op) {
    struct weft_request *req;
    if (!message) return weft__fail(WEFT_ERR_INVALID_PARAM, "message is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = check_receive(worker);
    if (st == WEFT_OK) st = receive_request(worker, iov, n_iov, NULL, op, &req);
    if (st < 0) return st;
    st = weft__tag_receive_message(req, message);
    if (st != WEFT_IN_PROGRESS) weft__request_discard(req);
    return n_iov == 0 && st == WEFT_ERR_TRUNCATED ? WEFT_OK : st;
}
