/* Messages that cross whole. */
#include <base/counters.h>

#include "expose.h"
#include "rendezvous.h"
#include <endpoints/core/worker.h>

static bool may_be_read(struct weft_ep *ep, const struct message *m) {
    return m->n_iov == 1 && weft__try_expose(ep, m->iov->base, m->len, WEFT_MEM_READ);
}

static bool is_offered(struct weft_ep *ep, const struct message *m,
                       const struct protocol_limits *limits, uint32_t flags) {
    if (flags & (WEFT_AM_EAGER | WEFT_AM_NO_REPLY)) return false;
    if (flags & WEFT_AM_RENDEZVOUS && m->len > 0) return true;
    return m->len > limits->eager || (m->len > limits->mapped && may_be_read(ep, m));
}

enum protocol weft__protocol(struct weft_ep *ep, const struct message *m, uint32_t flags) {
    const struct link *link = ep->link;
    const struct iface_attr *attr = &weft__link_iface(link)->attr;
    const struct protocol_limits *limits = weft__link_limits(link);
    size_t head_len = sizeof m->word + m->header_len;
    if (is_offered(ep, m, limits, flags)) return PROTOCOL_OFFER;
    if (head_len + m->len <= limits->copy) return PROTOCOL_COPY;
    if (m->len <= attr->max_zcopy && head_len <= attr->max_zcopy_header &&
        m->n_iov <= attr->max_iov)
        return PROTOCOL_ZCOPY;
    return head_len + m->len <= attr->max_bcopy ? PROTOCOL_COPY : PROTOCOL_OFFER;
}

static size_t pack_eager(void *to, void *arg) {
    const struct message *m = arg;
    char *at = to;
    memcpy(at, &m->word, sizeof m->word);
    at += sizeof m->word;
    if (m->header_len) memcpy(at, m->header, m->header_len);
    weft__iov_gather(at + m->header_len, m->iov, m->n_iov, 0, m->len);
    return sizeof m->word + m->header_len + m->len;
}

static weft_status_t send_gathered(struct lane *lane, const struct message *m) {
    char bytes[PROTOCOL_SHORT_MAX];
    if (m->header_len) memcpy(bytes, m->header, m->header_len);
    weft__iov_gather(bytes + m->header_len, m->iov, m->n_iov, 0, m->len);
    return lane->ops->am_short(lane, (uint8_t)m->id, m->word, bytes, m->header_len + m->len);
}

weft_status_t weft__send_copy(struct link *link, struct lane *lane, const struct message *m) {
    size_t len = m->header_len + m->len;
    if (len > weft__link_iface(link)->attr.max_short || len > PROTOCOL_SHORT_MAX) {
        weft_status_t st =
            lane->ops->am_bcopy(lane, (uint8_t)m->id, pack_eager, (void *)(uintptr_t)m);
        link->worker->count->protocol_bcopy += st == WEFT_OK;
        return st;
    }
    if (m->header_len == 0 && m->n_iov == 1)
        return lane->ops->am_short(lane, (uint8_t)m->id, m->word, m->iov->base, m->len);
    return send_gathered(lane, m);
}

weft_status_t weft__send_zcopy(struct link *link, struct lane *lane, const struct message *m,
                               struct weft_request *req) {
    char header[sizeof m->word + WEFT_AM_HEADER_MAX];
    memcpy(header, &m->word, sizeof m->word);
    if (m->header_len) memcpy(header + sizeof m->word, m->header, m->header_len);

    req->in_flight.count++;
    weft_status_t st = lane->ops->am_zcopy(
        lane, (uint8_t)m->id,
        &(struct lane_zcopy){header, sizeof m->word + m->header_len, m->iov, m->n_iov},
        &req->in_flight);
    if (st != WEFT_IN_PROGRESS) req->in_flight.count--;
    link->worker->count->protocol_zcopy += st == WEFT_OK || st == WEFT_IN_PROGRESS;
    return st;
}
