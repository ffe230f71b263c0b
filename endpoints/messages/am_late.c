/*
 * Receives of active messages that begin behind a stream's work (weft_op_t.stream). Their handler
 * has returned by then, so they keep what it was given: the payload that is here, or what the offer
 * says. The sender may withdraw its offer before.
 */
#include <endpoints/core/submit.h>
#include <endpoints/transfer/rendezvous.h>

#include "am.h"
#include "am_recv.h"

struct late_receive {
    struct list of_worker;
    struct weft_worker *worker;
    struct link *link;   /* of an offer; compared only */
    struct wire_rts rts; /* of an offer: `request` is not 0 */
    weft_am_t am;
    bool is_withdrawn;
    char device[]; /* what the offer says of device memory */
};

static void free_late(struct late_receive *late) {
    list_remove(&late->of_worker);
    if (late->am.data) weft_am_release(late->worker, late->am.data);
    talloc_free(late);
}

static struct late_receive *late_of(const struct submit_args *args) {
    return (struct late_receive *)(uintptr_t)args->word[0];
}

static void refuse_late(const struct late_receive *late, weft_status_t status) {
    struct weft_ep *ep = late->link ? weft__idmap_find(&late->worker->eps, late->rts.ep) : NULL;
    if (ep && ep->link == late->link && !late->is_withdrawn)
        weft__offer_fin(late->link, late->rts.request, status);
}

/* It was cancelled, its deadline has passed, or its endpoint or worker ends. */
static void drop_late(const struct submit_args *args) {
    struct late_receive *late = late_of(args);
    refuse_late(late, WEFT_ERR_CANCELLED);
    free_late(late);
}

static weft_status_t receive_late(void *object, const struct submit_args *args,
                                  const weft_op_t *op) {
    struct late_receive *late = late_of(args);
    struct am_recv_desc arrival = {.worker = late->worker,
                                   .ep = object == late->worker ? NULL : object,
                                   .offer = late->link ? &late->rts : NULL};
    late->am.internal = &arrival;
    weft_status_t st = late->is_withdrawn ? WEFT_ERR_CANCELLED
                                          : weft_am_recv(&late->am, args->iov, args->n_iov, op);
    if (st < 0) refuse_late(late, WEFT_ERR_REJECTED);
    free_late(late);
    return st;
}

/* `ep` in place of the sender's number of it. */
static struct late_receive *keep_offer(const struct am_recv_desc *arrival, const weft_am_t *am) {
    const struct wire_rts *rts = arrival->offer;
    struct late_receive *late =
        weft__alloc(arrival->worker, sizeof *late + rts->device_len, "a receive behind a stream");
    if (!late) return NULL;
    *late = (struct late_receive){.worker = arrival->worker,
                                  .link = arrival->ep->link,
                                  .rts = *rts,
                                  .am = {.len = am->len, .memory = am->memory}};
    late->rts.ep = weft__ep_id(arrival->ep);
    late->rts.header = NULL;
    late->rts.device = rts->device_len ? late->device : NULL;
    if (rts->device_len) memcpy(late->device, rts->device, rts->device_len);
    return late;
}

static struct late_receive *keep_payload(const struct am_recv_desc *arrival, weft_am_t *am) {
    struct late_receive *late = weft__new(arrival->worker, struct late_receive);
    if (!late) return NULL;
    *late = (struct late_receive){.worker = arrival->worker, .am = {.len = am->len}};
    if (am->len && weft_am_retain(am, &late->am.data) < 0) {
        talloc_free(late);
        return NULL;
    }
    return late;
}

weft_status_t weft__am_recv_late(weft_am_t *am, const weft_iov_t *iov, size_t n_iov,
                                 const weft_op_t *op) {
    struct am_recv_desc *arrival = am->internal;
    struct late_receive *late =
        arrival->offer ? keep_offer(arrival, am) : keep_payload(arrival, am);
    if (!late) return WEFT_ERR_NO_MEMORY;
    list_append(&arrival->worker->late_receives, &late->of_worker);
    const struct submit_args args = {
        .word = {(uintptr_t)late}, .iov = iov, .n_iov = n_iov, .drop = drop_late};
    weft_status_t st = weft__post(arrival->worker, arrival->ep, receive_late, &args, op);
    if (st < 0) free_late(late);
    if (st >= 0 && arrival->offer) arrival->taken = true;
    return st;
}

bool weft__am_late_withdrawn(const struct link *link, uint32_t offer) {
    struct late_receive *late;
    list_for_each_entry(late, &link->worker->late_receives, of_worker) {
        if (late->link != link || late->rts.request != offer || late->is_withdrawn) continue;
        return late->is_withdrawn = true;
    }
    return false;
}
