/*
 * What peers do to our memory by message. A key is checked before a byte is touched; a refusal is
 * sent to the requester, or with the next FLUSH, and affects no other peer. Answers that the lane
 * has no room for wait as requests of the endpoint, up to a limit: beyond "rma.max_served" a
 * request for one is refused, beyond twice that the endpoint fails.
 */
#include <base/counters.h>
#include <transports/atomics.h>

#include "rma.h"
#include <endpoints/core/worker.h>
#include <endpoints/transfer/layout.h>
#include <endpoints/transfer/placement.h>
#include <endpoints/transfer/rails.h>
#include <endpoints/transfer/rendezvous.h>

/* ---- answers */

/* What the peer asks for by its window, and the rest, so that one does not take the other's
 * places. */
static uint32_t *served(struct link *link, uint8_t id) {
    return id == WIRE_FLUSHED ? &link->more->flushed_served : &link->rma_served;
}

/* The peer takes the place again as soon as it has the answer, or has closed its half. */
static void free_place(struct weft_request *req, uint8_t id) {
    if (req->rma.answered) return;
    req->rma.answered = true;
    if (req->ep->link) --*served(req->ep->link, id);
}

static weft_status_t advance_answer(struct weft_request *req) {
    struct link *link = req->ep->link;
    weft_status_t st = weft__link_send_ctrl(link, link->lane, req->answer);
    if (st == WEFT_OK) free_place(req, req->answer->id);
    if (st < 0) weft__link_ctrl_failed(link, st); /* who waits for it would wait for ever */
    return st;
}

static void release_answer(struct weft_request *req) {
    if (req->answer) free_place(req, req->answer->id);
}
static const struct request_kind answer_kind = {
    .name = "answer", .advance = advance_answer, .release = release_answer};

static weft_status_t queue_answer(struct weft_ep *ep, const struct wire_message *m) {
    struct link *link = ep->link;
    if (*served(link, m->id) >= 2 * ep->worker->memory.max_served) return WEFT_ERR_QUOTA;
    if (m->id == WIRE_FLUSHED && !weft__link_ext(link)) return WEFT_ERR_NO_MEMORY;
    struct weft_request *req = weft__request_new(ep->worker, &answer_kind);
    struct wire_message *own = req ? weft__alloc(req, sizeof *own, "answer") : NULL;
    if (!own) {
        if (req) {
            weft__request_bind(req, ep);
            weft__request_discard(req);
        }
        return WEFT_ERR_NO_MEMORY;
    }
    *own = *m;
    req->answer = own;
    ++*served(link, m->id);
    (void)weft__request_accept(req, ep, NULL);
    weft__link_submit(link, req);
    return WEFT_OK;
}

static void answer(struct weft_ep *ep, const struct wire_message *m) {
    weft_status_t st = weft__link_send_ctrl(ep->link, ep->link->tx, m);
    if (st == WEFT_NO_RESOURCE) st = queue_answer(ep, m);
    /* Without an answer the requester would wait for ever. */
    if (st < 0) weft__ep_violation(ep, st, "the peer does not read the replies to its operations");
}

static void send_done(struct weft_ep *ep, uint32_t request, weft_status_t status, uint64_t value) {
    struct wire_message m;
    weft__wire_rma_done(&m, (struct wire_rma_done){request, status, value});
    answer(ep, &m);
}

/* A posted operation has no answer: the next flush reports its error. */
static void refuse_served(struct weft_ep *ep, uint32_t request, weft_status_t status) {
    ep->worker->count->rma_refused++;
    if (request)
        send_done(ep, request, status, 0);
    else if (ep->rma_refused == WEFT_OK)
        ep->rma_refused = status;
}

static void put_ended(struct weft_ep *ep, uint32_t request, uint32_t flags, weft_status_t status) {
    if (status < 0) {
        refuse_served(ep, request, status);
        return;
    }
    ep->worker->count->rma_served++;
    if (request && flags & WIRE_PUT_LAST) send_done(ep, request, WEFT_OK, 0);
}

/* ---- put */

void weft__on_put(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct wire_put put;
    weft_mem_t *mem;
    if (!weft__wire_read_put(data, len, &put)) {
        weft__on_unknown(lane, id, data, len);
        return;
    }
    struct weft_ep *ep = weft__ep_lookup(lane, put.ep, "put");
    if (!ep) return;
    size_t n = len - WIRE_PUT_HEAD;
    weft_status_t st = weft__mem_admit(ep->worker, &put.key, WEFT_MEM_WRITE, &put.address, n, &mem);
    if (st == WEFT_OK && n)
        st = weft__mem_write(mem, put.address, (const char *)data + WIRE_PUT_HEAD, n);
    put_ended(ep, put.request, put.flags, st);
}

/* A put whose payload a transport writes straight into the region. */
static weft_status_t put_begins(struct placement_record *of) {
    list_append(&of->mem->placements, &of->of);
    weft__mem_serve(of->mem);
    return WEFT_OK;
}

static void put_placed(const struct placement_record *of, weft_status_t status) {
    struct weft_ep *ep = weft__ep_of_lane(of->lane, of->ep);
    weft__mem_served(of->mem);
    if (!ep || !ep_is_connected(&ep->core.fsm)) return;
    /* with its lane: it is sent again, or has no requester left */
    if (status < 0 && status != WEFT_ERR_CANCELLED) return;
    if (status == WEFT_ERR_CANCELLED) status = WEFT_ERR_REVOKED; /* evicted half way */
    put_ended(ep, of->request, of->flags, status);
}

static const struct placement_kind put_kind = {.begin = put_begins, .ended = put_placed};

bool weft__place_put(struct lane *lane, const void *head, size_t head_len, size_t len,
                     struct placement_record *of, struct placement *to) {
    struct wire_put put;
    weft_mem_t *mem;
    if (!weft__wire_read_put(head, head_len, &put)) return false;
    struct weft_ep *ep = weft__ep_of_lane(lane, put.ep);
    if (!ep || !ep_is_connected(&ep->core.fsm)) return false;
    size_t n = len - WIRE_PUT_HEAD;
    if (weft__mem_admit(ep->worker, &put.key, WEFT_MEM_WRITE, &put.address, n, &mem) < 0 ||
        mem->on_device)
        return false;
    of->kind = &put_kind;
    of->mem = mem;
    of->n = n;
    of->ep = put.ep;
    of->request = put.request;
    of->flags = put.flags;
    to->skip = WIRE_PUT_HEAD;
    to->iov[0] = (weft_iov_t){(void *)(uintptr_t)put.address, n};
    to->n_iov = 1;
    return true;
}

/* ---- get */

struct reply {
    struct wire_data head;
    const void *bytes;
    size_t len;
};

static size_t pack_reply(void *to, void *arg) {
    const struct reply *r = arg;
    weft__wire_data(to, r->head);
    memcpy((char *)to + WIRE_DATA_HEAD, r->bytes, r->len);
    return WIRE_DATA_HEAD + r->len;
}

/* Whenever our lane completes the buffer. */
static void leave_window(struct weft_request *req) {
    free_place(req, WIRE_DATA);
}

static weft_status_t advance_served(struct weft_request *req) {
    weft_status_t st = weft__advance_pieces(req);
    if (st >= 0 && req->offset == req->len) leave_window(req);
    return st;
}

/* Of the rest, in place of GONE. */
static void write_refusal(struct wire_message *m, struct weft_request *req, weft_status_t status) {
    weft__wire_rma_done(m, (struct wire_rma_done){req->peer_id, status, 0});
    req->peer_id = 0;
}

/* If it ends half way, as where a copy fails, the requester learns why. */
static void release_served(struct weft_request *req) {
    struct wire_message m;
    weft_mem_t *mem = req->rma.mem;
    req->rma.mem = NULL;
    if (!mem) return;
    leave_window(req);
    if (req->status < 0 && req->peer_id && req->ep->link && !weft__rails_all_sent(req)) {
        write_refusal(&m, req, req->status);
        weft__link_control(req->ep->link, &m);
    }
    list_remove(&req->rma.of_mem);
    weft__release_send(req);
    weft__mem_served(mem);
}
static const struct request_kind served_kind = {.name = "served get",
                                                .advance = advance_served,
                                                .returned = weft__pieces_returned,
                                                .release = release_served};

static weft_status_t serve_later(struct weft_ep *ep, weft_mem_t *mem, const struct wire_get *get) {
    struct link *link = ep->link;
    if (link->rma_served >= ep->worker->memory.max_served) return WEFT_ERR_QUOTA;
    struct weft_request *req = weft__request_new(ep->worker, &served_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_iov_t iov = {(void *)(uintptr_t)get->address, get->len};
    weft_status_t st = weft__request_memory(req, &iov, 1, NULL, false);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    req->peer_id = get->to;
    req->rma.mem = mem;
    list_append(&mem->served, &req->rma.of_mem);
    weft__mem_serve(mem);
    link->rma_served++;
    (void)weft__request_accept(req, ep, NULL);
    weft__link_submit(link, req);
    return WEFT_OK;
}

static weft_status_t serve_served(struct weft_ep *ep, weft_mem_t *mem, const struct wire_get *get) {
    struct lane *tx = ep->link->tx;
    if (mem->on_device || WIRE_DATA_HEAD + get->len > weft__link_iface(ep->link)->attr.max_bcopy)
        return serve_later(ep, mem, get);
    struct reply reply = {{.to = get->to}, (const void *)(uintptr_t)get->address, get->len};
    weft_status_t st = tx->ops->am_bcopy(tx, WIRE_DATA, pack_reply, &reply);
    return st == WEFT_NO_RESOURCE ? serve_later(ep, mem, get) : st;
}

void weft__on_get(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct wire_get get;
    weft_mem_t *mem;
    if (!weft__wire_read_get(data, len, &get)) {
        weft__on_unknown(lane, id, data, len);
        return;
    }
    struct weft_ep *ep = weft__ep_lookup(lane, get.ep, "get");
    if (!ep) return;
    weft_status_t st =
        weft__mem_admit(ep->worker, &get.key, WEFT_MEM_READ, &get.address, get.len, &mem);
    if (st == WEFT_OK) st = serve_served(ep, mem, &get);
    if (st < 0)
        refuse_served(ep, get.to, st);
    else
        ep->worker->count->rma_served++;
}

/* ---- atomics */

static uint64_t perform_at(const struct wire_atomic *a, void *at) {
    return a->size == 8 ? atomic_fetch64((enum rma_atomic)a->what, at, a->operand, a->compare)
                        : atomic_fetch32((enum rma_atomic)a->what, at, a->operand, a->compare);
}

/* In a word of the host, which all such atomics of the region pass, one at a time. */
static weft_status_t perform_on_device(const weft_mem_t *mem, const struct wire_atomic *a,
                                       uint64_t address, uint64_t *old_p) {
    _Alignas(8) char word[8];
    weft_status_t st = weft__mem_read(mem, word, address, a->size);
    if (st < 0) return st;
    *old_p = perform_at(a, word);
    return weft__mem_write(mem, address, word, a->size);
}

static weft_status_t perform(struct weft_ep *ep, const struct wire_atomic *a, uint64_t *old_p) {
    weft_mem_t *mem;
    uint64_t address = a->address;
    if (!atomic_is_one(a->what, a->size, !a->fetch) || a->address & (a->size - 1u))
        return WEFT_ERR_INVALID_PARAM;
    weft_status_t st =
        weft__mem_admit(ep->worker, &a->key, WEFT_MEM_ATOMIC, &address, a->size, &mem);
    if (st < 0) return st;
    if (mem->on_device) return perform_on_device(mem, a, address, old_p);
    *old_p = perform_at(a, (void *)(uintptr_t)address);
    return WEFT_OK;
}

void weft__on_atomic(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct wire_atomic a;
    uint64_t old = 0;
    if (!weft__wire_read_atomic(data, len, &a)) {
        weft__on_unknown(lane, id, data, len);
        return;
    }
    struct weft_ep *ep = weft__ep_lookup(lane, a.ep, "atomic");
    if (!ep) return;
    /* Not performed if the answer cannot be sent: a requester of the old value that is refused
     * may ask again. */
    bool waits = a.request && ep->link->tx != ep->link->lane;
    bool beyond = waits && ep->link->rma_served >= ep->worker->memory.max_served;
    weft_status_t st = beyond ? WEFT_ERR_QUOTA : perform(ep, &a, &old);
    if (st < 0) {
        refuse_served(ep, a.request, st);
        return;
    }
    ep->worker->count->rma_served++;
    if (a.request) send_done(ep, a.request, WEFT_OK, a.fetch ? old : 0);
}

/* ---- flush, and the end of an endpoint or a region */

void weft__rma_lost(struct weft_ep *ep) {
    list_for_each(at, &ep->requests) {
        struct weft_request *req = list_of(at, struct weft_request, of_ep);
        if (req->kind == &answer_kind)
            release_answer(req);
        else if (req->kind == &served_kind)
            leave_window(req);
    }
}

/* A lane keeps the order: what came before it was performed when it came. */
void weft__on_flush(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct wire_flush flush;
    struct wire_message m;
    if (!weft__wire_read_flush(data, len, &flush)) {
        weft__on_unknown(lane, id, data, len);
        return;
    }
    struct weft_ep *ep = weft__ep_lookup(lane, flush.ep, "flush");
    if (!ep) return;
    weft__wire_flushed(&m, (struct wire_fin){flush.request, ep->rma_refused});
    ep->rma_refused = WEFT_OK;
    answer(ep, &m);
}

/* What a lane has already was allowed, and goes from a copy where the lane can make one; the
 * rest is a refusal. */
static void evict_served(struct weft_request *req) {
    struct wire_message m;
    if (!req->ep->link) return;
    if (!request_is_queued(&req->core.fsm)) {
        weft__request_reclaim(req);
        return;
    }
    write_refusal(&m, req, WEFT_ERR_REVOKED);
    leave_window(req);
    weft__request_stop(req, WEFT_ERR_REVOKED);
    weft__link_control(req->ep->link, &m);
}

void weft__rma_evict(weft_mem_t *mem) {
    list_for_each_safe(n, next, &mem->placements) {
        const struct placement_record *placement = list_of(n, struct placement_record, of);
        if (placement->lane->ops->place_stop)
            placement->lane->ops->place_stop(placement->lane, placement->id);
    }
    list_for_each_safe(n, next, &mem->served) {
        evict_served(list_of(n, struct weft_request, rma.of_mem));
    }
}
