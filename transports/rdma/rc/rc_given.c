/*
 * Queues and queue pairs that the program made (transports/given.h). A lane takes a queue pair in
 * place of a new one, and returns it in RESET. What is limited by them is limited here.
 */
#include "rc.h"

#include <errno.h>

static const struct given none;

const struct given *weft__rc_given(const struct rc_iface *iface) {
    return iface->device && iface->device->given ? iface->device->given : &none;
}

static void least_of(uint32_t *limit, uint32_t other) {
    if (other < *limit) *limit = other;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static weft_status_t limit_receives(struct rc_iface *iface, const struct given *given) {
    struct ibv_srq_attr attr;
    if (!given->srq) return WEFT_OK;
    if (!given->cq) return weft__fail(WEFT_ERR_INVALID_PARAM, "an SRQ is given without a CQ");
    int error = ibv_query_srq(given->srq, &attr);
    if (error) return weft__rd_fail("ibv_query_srq", error);
    least_of(&iface->most_receives, attr.max_wr);
    return WEFT_OK;
}

static bool fits(const struct given *given, const struct ibv_qp *qp) {
    return qp->qp_type == IBV_QPT_RC && qp->pd == given->pd && qp->send_cq == given->cq &&
           qp->recv_cq == given->cq && qp->srq == given->srq;
}

/* What all of them have. */
static weft_status_t limit_sends(struct rc_iface *iface, const struct given *given) {
    iface->max_inline = RC_INLINE;
    for (size_t i = 0; i < given->n_qp; i++) {
        struct ibv_qp_attr attr = {0};
        struct ibv_qp_init_attr init = {0};
        if (!given->qp[i] || !fits(given, given->qp[i]))
            return weft__fail(WEFT_ERR_INVALID_PARAM,
                              "queue pair %zu is not RC, or has another PD, CQ or SRQ", i);
        int error = ibv_query_qp(given->qp[i], &attr, IBV_QP_STATE | IBV_QP_CAP, &init);
        if (error) return weft__rd_fail("ibv_query_qp", error);
        if (attr.qp_state != IBV_QPS_RESET)
            return weft__fail(WEFT_ERR_INVALID_PARAM, "queue pair %zu is not in RESET", i);
        if (init.cap.max_send_wr < 2 * RC_KEEP || init.cap.max_send_sge < 2)
            return weft__fail(WEFT_ERR_INVALID_PARAM,
                              "queue pair %zu takes %u sends of %u pieces; %d of 2 are needed", i,
                              init.cap.max_send_wr, init.cap.max_send_sge, 2 * RC_KEEP);
        least_of(&iface->max_inline, init.cap.max_inline_data);
        least_of(&iface->depth, init.cap.max_send_wr);
        uint32_t pieces = (uint32_t)iface->iface.attr.max_iov;
        least_of(&pieces, init.cap.max_send_sge - 1);
        iface->iface.attr.max_iov = pieces;
    }
    while (iface->depth & (iface->depth - 1)) iface->depth &= iface->depth - 1;
    return WEFT_OK;
}

weft_status_t weft__rc_given_limits(struct rc_iface *iface, uint32_t *cqe_p) {
    const struct given *given = weft__rc_given(iface);
    weft_status_t st = given->n_qp ? limit_sends(iface, given) : WEFT_OK;
    if (st == WEFT_OK) st = limit_receives(iface, given);
    if (st < 0) return st;
    if (given->cq) least_of(cqe_p, (uint32_t)given->cq->cqe);
    if (*cqe_p < iface->most_receives + iface->depth)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "a CQ has %u entries; %u receives and %u sends need more", *cqe_p,
                          iface->most_receives, iface->depth);
    return WEFT_OK;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

struct ibv_qp *weft__rc_given_take(struct rc_iface *iface) {
    const struct given *given = weft__rc_given(iface);
    for (size_t i = 0; i < given->n_qp; i++)
        if (!weft__rc_lane_find(iface, given->qp[i]->qp_num)) return given->qp[i];
    errno = ENOMEM;
    return NULL;
}

int weft__rc_given_return(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* ---- completions of the program's own -------------------------------------------------------- */

/* A given queue pair, whose lane may have gone before what it reports. */
static bool is_given(const struct given *given, uint32_t qp_num) {
    for (size_t i = 0; i < given->n_qp; i++)
        if (given->qp[i]->qp_num == qp_num) return true;
    return false;
}

/* A receive of this interface that came back after its lane had gone, and not one of the program's
 * own: then its number is one that the program chose. */
bool weft__rc_given_foreign(const struct rc_iface *iface, const struct ibv_wc *wc) {
    const struct given *given = weft__rc_given(iface);
    if (!given->cq || weft__rc_lane_find(iface, wc->qp_num)) return false;
    if (is_given(given, wc->qp_num)) return false;
    if (weft__rd_pool_has(&iface->receive, (const void *)(uintptr_t)wc->wr_id)) return false;
    if (given->completion) given->completion(wc, given->arg);
    return true;
}
