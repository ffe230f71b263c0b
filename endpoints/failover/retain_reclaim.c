/* Memory of a kept message that its owner wants back before the peer has acknowledged it: it is
 * kept as a copy from then on. */
#include "retain.h"
#include <endpoints/core/worker.h>

void weft__retain_give_back(struct retain_zcopy *in_flight) {
    struct completion *owner = in_flight->owner;
    in_flight->owner = NULL;
    if (owner) completion_step(owner, WEFT_OK);
}

/* The number of pieces stays, since the message's place in the log counts them. */
static bool copy_in_flight(struct retain *r, struct retained *m) {
    weft_iov_t *iov = retained_iov(m);
    size_t len = weft__iov_len(iov, m->n_iov);
    void *copy = weft__alloc(r, len, "reclaimed message");
    if (!copy) return false;
    weft__iov_gather(copy, iov, m->n_iov, 0, len);
    for (unsigned i = 0; i < m->n_iov; i++) iov[i].len = 0;
    iov[0] = (weft_iov_t){copy, len};
    retained_zcopy(m)->copy = copy;
    return true;
}

static void reclaim_retain_reclaim(struct retain *r, struct retained *m) {
    struct retain_zcopy *in_flight = retained_zcopy(m);
    if (!copy_in_flight(r, m)) return;
    if (in_flight->below.count == 0)
        weft__retain_give_back(in_flight);
    else if (r->raw && HAS_OP(r->raw->ops, buffer, reclaim))
        /* given back as the last lane has (retain.c) */
        r->raw->ops->buffer->reclaim(r->raw, &in_flight->below);
}

/* Nothing is freed during the walk, which is inside of the log. */
void weft__retain_reclaim(struct lane *l, const struct completion *completion) {
    struct retain *r = weft__retain_of(l);
    struct retain_at at = weft__retain_log_begin(&r->log);
    struct retained *m;
    bool letting_go = r->letting_go;
    r->letting_go = true;
    for (; (m = weft__retain_log_at(&at)) != NULL;
         retain_log_next(&at, weft__retained_size_of(m))) {
        bool exposes = retained_is_zcopy(m) && !m->flush && !retained_zcopy(m)->copy;
        if (exposes && retained_zcopy(m)->owner == completion) reclaim_retain_reclaim(r, m);
    }
    r->letting_go = letting_go;
    if (!r->dead && r->first < r->core.acked) weft__retain_let_go(r);
}
