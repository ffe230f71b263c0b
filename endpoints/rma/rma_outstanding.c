/*
 * Places that stay taken. An operation that ends early (deadline, cancel) is over for the program,
 * but its target still holds a place for the answer, and would refuse others if this side took it
 * for free. The place is free when the answer has come to its end, or the endpoint leaves the link:
 * then the peer was notified, and holds nothing for it either.
 */
#include "rma.h"
#include <endpoints/core/link.h>

struct outstanding {
    struct list of_memory;
    struct weft_ep *ep;
    uint32_t id;  /* by which the peer names it */
    size_t bytes; /* of a get, that are still to come; 0: one message */
};

static bool is_due(const struct weft_request *req) {
    const struct request_rma *r = &req->rma;
    if (req->status == WEFT_OK || !r->asked || r->answered || !ep_is_connected(&req->ep->core.fsm))
        return false;
    return r->what != RMA_GET || req->offset < req->len;
}

/* Without memory to remember it the place is free at once: the worst is a refusal. */
bool weft__rma_add_outstanding(const struct weft_request *req) {
    struct weft_worker *worker = req->worker;
    struct outstanding *outstanding = is_due(req) ? weft__new(worker, struct outstanding) : NULL;
    if (!outstanding) return false;
    outstanding->ep = req->ep;
    outstanding->id = req->id;
    outstanding->bytes = req->rma.what == RMA_GET ? req->len - req->offset : 0;
    list_append(&worker->memory.outstanding, &outstanding->of_memory);
    return true;
}

static void forget_outstanding(struct outstanding *outstanding) {
    list_remove(&outstanding->of_memory);
    talloc_free(outstanding);
}

void weft__rma_came_late(struct link *link, uint32_t id, size_t bytes) {
    struct list *all = &link->worker->memory.outstanding;
    list_for_each(n, all) {
        struct outstanding *outstanding = list_of(n, struct outstanding, of_memory);
        if (outstanding->id != id || outstanding->ep->link != link) continue;
        if (bytes < outstanding->bytes) {
            outstanding->bytes -= bytes;
            return;
        }
        forget_outstanding(outstanding);
        weft__rma_place_free(link);
        return;
    }
}

void weft__rma_drop_outstanding(struct weft_ep *ep) {
    list_for_each_safe(at, next, &ep->worker->memory.outstanding) {
        struct outstanding *outstanding = list_of(at, struct outstanding, of_memory);
        if (outstanding->ep != ep) continue;
        forget_outstanding(outstanding);
        weft__rma_place_free(ep->link);
    }
}
