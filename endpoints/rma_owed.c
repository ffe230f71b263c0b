/*
 * Places that stay taken. An operation that ends early (deadline, cancel) is over for the program, but its target still holds a
 * place for the answer, and would refuse others if this side took it for free. The place is free when the answer has come to
 * its end, or the endpoint leaves the link: then the peer was told, and holds nothing for it either.
 */
#include "link.h"
#include "rma.h"

struct owed {
    struct list of_memory;
    struct weft_ep *ep;
    uint32_t id;  /* by which the peer names it */
    size_t bytes; /* of a get, that are still to come; 0: one message */
};

static bool is_due(const struct weft_request *req) {
    const struct request_rma *r = &req->rma;
    enum ep_state state = req->ep->core.fsm.state;
    if (req->status == WEFT_OK || !r->asked || r->answered || (state != EP_READY && state != EP_DRAIN))
        return false;
    return r->what != RMA_GET || req->offset < req->len;
}

/* Without memory to remember it the place is free at once: the worst is a refusal. */
bool weft__rma_owe(const struct weft_request *req) {
    struct weft_worker *worker = req->worker;
    struct owed *owed = is_due(req) ? weft__new(worker, struct owed) : NULL;
    if (!owed) return false;
    owed->ep = req->ep;
    owed->id = req->id;
    owed->bytes = req->rma.what == RMA_GET ? req->len - req->offset : 0;
    list_append(&worker->memory.owed, &owed->of_memory);
    return true;
}

static void forget(struct owed *owed) {
    list_remove(&owed->of_memory);
    talloc_free(owed);
}

void weft__rma_came_late(struct link *link, uint32_t id, size_t bytes) {
    struct list *all = &link->worker->memory.owed;
    for (struct list *n = all->next; n != all; n = n->next) {
        struct owed *owed = list_of(n, struct owed, of_memory);
        if (owed->id != id || owed->ep->link != link) continue;
        if (bytes < owed->bytes) {
            owed->bytes -= bytes;
            return;
        }
        forget(owed);
        weft__rma_place_free(link);
        return;
    }
}

void weft__rma_forgive(struct weft_ep *ep) {
    struct list *all = &ep->worker->memory.owed;
    for (struct list *n = all->next, *next; n != all; n = next) {
        struct owed *owed = list_of(n, struct owed, of_memory);
        next = n->next;
        if (owed->ep != ep) continue;
        forget(owed);
        weft__rma_place_free(ep->link);
    }
}
