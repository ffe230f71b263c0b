/* Handlers and tags of a library with a lease: messages reach its worker in its own ids and
 * tags. */
#include "leased.h"

#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>

#include "am.h"
#include "tag.h"

/* ---- active messages */

struct leased_handler {
    struct lease *lease;
    unsigned id; /* of the library that holds the lease */
};

static void handle_leased(weft_ep_t *ep, weft_am_t *am, void *arg) {
    const struct leased_handler *own = arg;
    const struct am_handler *handler = &own->lease->user->am[own->id];
    weft__ep_follow_lease(ep, own->lease);
    if (handler->fn) handler->fn(ep, am, handler->arg);
}

weft_status_t weft__leased_handlers(weft_worker_t *provider, struct lease *lease, bool on) {
    struct leased_handler *all = NULL;
    if (on) {
        all = weft__alloc(lease->user, lease->am_count * sizeof *all, "leased handlers");
        if (!all && lease->am_count) return WEFT_ERR_NO_MEMORY;
    }
    for (unsigned id = 0; id < lease->am_count; id++) {
        if (on) all[id] = (struct leased_handler){lease, id};
        (void)weft__am_handler_set(provider, lease->am_first + id, on ? handle_leased : NULL,
                                   on ? &all[id] : NULL);
    }
    if (!on) talloc_free(lease->handlers);
    lease->handlers = all;
    return WEFT_OK;
}

/* Reserved ids belong to the library itself, and are the same for all. */
static weft_status_t map_id(const struct weft_ep *ep, unsigned *id_p) {
    const struct lease *lease = weft__ep_lease(ep);
    if (*id_p > WEFT_AM_ID_MAX) return WEFT_OK;
    if (*id_p >= lease->am_count)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "id is %u, and the lease has %u ids", *id_p,
                          lease->am_count);
    *id_p += lease->am_first;
    return WEFT_OK;
}

weft_status_t weft__leased_am_send_wait(struct weft_ep *ep, const struct am_send_args *args) {
    struct am_send_args mapped = *args;
    weft_status_t st = map_id(ep, &mapped.id);
    return st < 0 ? st : weft__am_send_wait(ep, &mapped);
}
weft_status_t weft__leased_am_send_ready(struct weft_ep *ep, const struct am_send_args *args) {
    struct am_send_args mapped = *args;
    weft_status_t st = map_id(ep, &mapped.id);
    return st < 0 ? st : weft__am_send_ready(ep, &mapped);
}

/* ---- tags */

static weft_status_t map_tag(const struct lease *lease, uint64_t *tag_p) {
    if (*tag_p & ~lease_tag_mask(lease))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "tag is %#llx, and the lease has %u bits",
                          (unsigned long long)*tag_p, lease->tag_bits);
    *tag_p |= lease->tag_first;
    return WEFT_OK;
}

weft_status_t weft__leased_tag_send_wait(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                         size_t n_iov, const weft_op_t *op) {
    weft_status_t st = map_tag(weft__ep_lease(ep), &tag);
    return st < 0 ? st : weft__tag_send_wait(ep, tag, iov, n_iov, op);
}

weft_status_t weft__leased_tag_send_ready(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                          size_t n_iov, const weft_op_t *op) {
    weft_status_t st = map_tag(weft__ep_lease(ep), &tag);
    return st < 0 ? st : weft__tag_send_ready(ep, tag, iov, n_iov, op);
}

/* A receive of the library that holds the lease, from its post to its callback. */
struct leased_receive {
    struct list of_lease;
    struct lease *lease;
    weft_request_t *request;
    weft_tag_info_t info, *info_p; /* the program's */
    weft_done_fn done;
    void *arg;
    weft_status_t stopped; /* why the receive was stopped; OK: it was not */
};

/* What the program sees has no mark of the lease. */
static void unmap(const struct lease *lease, weft_tag_info_t *info) {
    info->tag &= lease_tag_mask(lease);
    weft__ep_follow_lease(info->ep, lease);
}

static void end_receive(struct leased_receive *receive, bool received) {
    unmap(receive->lease, &receive->info);
    if (receive->info_p && received) *receive->info_p = receive->info;
    list_remove(&receive->of_lease);
}

static void leased_received(weft_status_t status, void *arg) {
    struct leased_receive *receive = arg, own = *receive;
    bool has_message = status == WEFT_OK || status == WEFT_ERR_TRUNCATED;
    end_receive(receive, has_message);
    talloc_free(receive);
    if (status == WEFT_ERR_CANCELLED && own.stopped < 0) status = own.stopped;
    if (own.done) own.done(status, own.arg);
}

static weft_status_t check_receive(const weft_worker_t *worker, const weft_op_t *op) {
    weft_status_t st = weft__worker_check(worker->shared);
    if (st < 0) return st;
    if (op && op->completion)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->completion is set, for a worker that holds a lease");
    return WEFT_OK;
}

/* The bits above the lease's count in every receive of it. */
static uint64_t map_mask(const struct lease *lease, uint64_t mask) {
    return mask | ~lease_tag_mask(lease);
}

weft_status_t weft__leased_tag_recv(weft_worker_t *worker, const struct tag_receive *r,
                                    const weft_op_t *op) {
    struct lease *lease = worker->lease;
    uint64_t tag = r->tag;
    weft_op_t own = op ? *op : (weft_op_t){0};
    weft_status_t st = check_receive(worker, op);
    if (st == WEFT_OK) st = map_tag(lease, &tag);
    if (st < 0) return st;
    struct leased_receive *receive = weft__new(worker, struct leased_receive);
    if (!receive) return WEFT_ERR_NO_MEMORY;
    *receive = (struct leased_receive){
        .lease = lease, .info_p = r->info_p, .done = own.done, .arg = own.arg};
    list_append(&lease->receives, &receive->of_lease);
    weft_request_t **request_p = own.request_p;
    own.done = leased_received;
    own.arg = receive;
    own.request_p = &receive->request;
    st = weft_tag_recv(worker->shared, tag, map_mask(lease, r->mask), r->iov, r->n_iov,
                       &receive->info, &own);
    if (st == WEFT_IN_PROGRESS) {
        if (request_p) *request_p = receive->request;
        return st;
    }
    end_receive(receive, st == WEFT_OK || st == WEFT_ERR_TRUNCATED);
    talloc_free(receive);
    return st;
}

weft_status_t weft__leased_tag_probe(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                     weft_tag_info_t *info_p) {
    weft_status_t st = map_tag(worker->lease, &tag);
    if (st == WEFT_OK)
        st = weft_tag_probe(worker->shared, tag, map_mask(worker->lease, mask), info_p);
    if (st == WEFT_OK && info_p) unmap(worker->lease, info_p);
    return st;
}

weft_status_t weft__leased_tag_take(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                    weft_tag_info_t *info_p, weft_tag_message_t **message_p) {
    weft_status_t st = map_tag(worker->lease, &tag);
    if (st == WEFT_OK)
        st = weft_tag_take(worker->shared, tag, map_mask(worker->lease, mask), info_p, message_p);
    if (st == WEFT_OK && info_p) unmap(worker->lease, info_p);
    return st;
}

void weft__leased_follow(struct weft_ep *ep, uint64_t tag) {
    const struct leases *all = ep->worker->leases;
    for (unsigned i = 0; all && i < WORKER_LEASES; i++) {
        const struct lease *lease = &all->lease[i];
        if (lease->number && ((tag ^ lease->tag_first) & ~lease_tag_mask(lease)) == 0)
            weft__ep_follow_lease(ep, lease);
    }
}

void weft__leased_messages_drop(weft_worker_t *provider, const struct lease *lease) {
    weft__match_drop(&provider->match, lease->tag_first, ~lease_tag_mask(lease));
}

void weft__leased_receives_stop(weft_worker_t *provider, const struct lease *lease,
                                weft_status_t status) {
    list_for_each_safe(n, next, &lease->receives) {
        struct leased_receive *receive = list_of(n, struct leased_receive, of_lease);
        if (receive->stopped < 0 || !receive->request) continue;
        receive->stopped = status;
        weft__request_stop(receive->request, WEFT_ERR_CANCELLED);
    }
}

size_t weft__leased_receives(const weft_worker_t *provider, const struct lease *lease) {
    size_t n = 0;
    list_for_each(node, &lease->receives) n++;
    return n;
}
