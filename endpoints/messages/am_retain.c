/*
 * Messages that are kept beyond their handler: where they lie, if that memory is the library's to
 * leave alone, or else copied. Either way the word before the payload names who takes it back. In
 * place that word is the end of the message's own head, which the handler may still read: it is
 * written when that handler has ended, that is before the next keep or release.
 */
#include <base/counters.h>

#include "am_recv.h"
#include <endpoints/core/link.h>

struct copied {
    struct lane_keep keep;
    struct lane_keep *by; /* &keep, right before the bytes */
    uint8_t bytes[];
};
_Static_assert(offsetof(struct copied, bytes) ==
                   offsetof(struct copied, by) + sizeof(struct lane_keep *),
               "the word before the payload");

static void free_copy(struct lane_keep *keep) {
    talloc_free(list_of(keep, struct copied, keep));
}

static weft_status_t copy_retained(struct weft_worker *worker, const weft_am_t *am,
                                   const void **data_p) {
    struct copied *copied = weft__alloc(worker, sizeof *copied + am->len, "kept message");
    if (!copied) return WEFT_ERR_NO_MEMORY;
    copied->keep.release = free_copy;
    copied->by = &copied->keep;
    if (am->len) memcpy(copied->bytes, am->data, am->len);
    *data_p = copied->bytes;
    return WEFT_OK;
}

static void settle_retained(struct kept_last *last) {
    if (last->data)
        memcpy((char *)(uintptr_t)last->data - sizeof last->by, &last->by, sizeof last->by);
    last->data = NULL;
}

/* One that came by a lane that its link has just left, or is about to go to, is none of this
 * lane's: it is copied. */
static struct lane *lane_of(const struct am_recv_desc *arrival) {
    if (!arrival->ep) return arrival->worker->kept.alone;
    return arrival->ep->link ? arrival->ep->link->lane : NULL;
}

static struct lane_keep *keep_in_place(struct am_recv_desc *arrival, const weft_am_t *am) {
    struct lane *lane = lane_of(arrival);
    if (!arrival->record)
        return lane && HAS_OP(lane->ops, buffer, keep)
                   ? lane->ops->buffer->keep(lane, am->data, am->len)
                   : NULL;
    if (arrival->taken) return NULL;
    arrival->taken = true;
    return arrival->record;
}

weft_status_t weft_am_retain(weft_am_t *am, const void **data_p) {
    if (!am || !am->internal || !data_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "am or data_p is NULL");
    struct am_recv_desc *arrival = am->internal;
    struct weft_worker *worker = arrival->worker;
    weft_status_t st = weft__worker_check(worker);
    if (st < 0) return st;
    if (arrival->offer)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "the payload is not here; take it with weft_am_recv");
    /* once more in the same handler */
    if (worker->kept.data == am->data) return copy_retained(worker, am, data_p);
    struct lane_keep *by = keep_in_place(arrival, am);
    if (!by) return copy_retained(worker, am, data_p);
    settle_retained(&worker->kept);
    worker->kept.data = am->data;
    worker->kept.by = by;
    worker->count->am_retained_in_place++;
    *data_p = am->data;
    return WEFT_OK;
}

void weft_am_release(weft_worker_t *worker, const void *data) {
    struct lane_keep *by;
    worker = weft__worker_itself(worker);
    if (!worker || !data || weft__worker_check(worker) < 0) return;
    if (worker->kept.data == data) {
        by = worker->kept.by;
        worker->kept.data = NULL;
    } else {
        memcpy(&by, (const char *)data - sizeof by, sizeof by);
    }
    by->release(by);
}
