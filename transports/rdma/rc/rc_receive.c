/*
 * Receiving: all lanes share one queue of receives. A message is delivered from its block, and the
 * block is posted again. When the device reports that few receives are left, the iface adds more,
 * up to a limit. Beyond the limit the hardware makes peers wait (RNR).
 */
#include "rc.h"

#include <arpa/inet.h>
#include <base/compiler.h>
#include <errno.h>

enum { FIRST_RECEIVES = 64 };
static const uint64_t SENT = UINT64_C(1) << 63;

/* ---- receives -------------------------------------------------------------------------------- */

/* A given queue may be full of the program's receives. */
static void post_later(struct rc_iface *iface, const struct ibv_recv_wr *wr, int error) {
    struct reactor *r = iface->iface.reactor;
    weft__log_limited(weft__reactor_context(r), WEFT_LOG_ERROR, "rdma",
                      "ibv_post_srq_recv: errno %d", error);
    for (; wr; wr = wr->next, iface->n_repost++) {
        struct rd_block *block = (struct rd_block *)(uintptr_t)wr->wr_id;
        block->next = iface->repost;
        iface->repost = block;
    }
    (void)weft__timer_start(r, &iface->again, weft__now(r) + RC_AGAIN_MS * NS_PER_MS);
}

static void post_receives(struct rc_iface *iface, struct rd_block *blocks) {
    struct ibv_recv_wr wr[RC_REPOST], *bad;
    struct ibv_sge sge[RC_REPOST];
    while (blocks) {
        int n = 0;
        for (; blocks && n < RC_REPOST; n++, blocks = blocks->next) {
            sge[n] = (struct ibv_sge){(uintptr_t)blocks->bytes, iface->buffer, blocks->lkey};
            wr[n] =
                (struct ibv_recv_wr){.wr_id = (uintptr_t)blocks, .sg_list = &sge[n], .num_sge = 1};
            if (n) wr[n - 1].next = &wr[n];
        }
        int error = ibv_post_srq_recv(iface->srq, wr, &bad);
        if (error) post_later(iface, bad, error);
    }
}

/* By the batch, as long as most are posted. */
static unsigned repost_at(const struct rc_iface *iface) {
    return iface->n_receives >= 4 * RC_REPOST ? RC_REPOST : iface->n_receives / 4;
}

static void give_back(struct rc_iface *iface) {
    struct rd_block *blocks = iface->repost;
    iface->repost = NULL;
    iface->n_repost = 0;
    if (iface->srq) post_receives(iface, blocks);
}

void weft__rc_receives_again(struct rc_iface *iface) {
    give_back(iface);
}

static weft_status_t add_receives(struct rc_iface *iface, unsigned n) {
    struct rd_block *blocks = NULL;
    weft_status_t st = WEFT_OK;
    for (; n > 0 && iface->n_receives < iface->most_receives; n--) {
        struct rd_block *block = weft__rd_pool_take(&iface->receive, &st);
        if (!block) break;
        block->next = blocks;
        blocks = block;
        iface->n_receives++;
    }
    post_receives(iface, blocks);
    return st == WEFT_NO_RESOURCE ? WEFT_OK : st;
}

/* The event comes once; it is asked for again while there may be more. */
static void ask_for_limit(struct rc_iface *iface) {
    struct ibv_srq_attr attr = {.srq_limit = iface->n_receives / 4};
    if (iface->n_receives < iface->most_receives)
        (void)ibv_modify_srq(iface->srq, &attr, IBV_SRQ_LIMIT);
}

void weft__rc_receives_more(struct rc_iface *iface) {
    if (!iface->srq) return;
    /* without memory there are as many as there were */
    (void)add_receives(iface, iface->n_receives);
    ask_for_limit(iface);
}

weft_status_t weft__rc_receives_open(struct rc_iface *iface) {
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = iface->most_receives, .max_sge = 1}};
    const struct given *given = weft__rc_given(iface);
    iface->srq = given->srq ? given->srq : ibv_create_srq(iface->device->pd, &attr);
    if (!iface->srq) return weft__rd_fail("ibv_create_srq", errno);
    bool deaf = given->pd && !given->event; /* SRQ_LIMIT_REACHED does not come */
    weft_status_t st = add_receives(iface, deaf ? iface->most_receives : FIRST_RECEIVES);
    if (st < 0) return st;
    ask_for_limit(iface);
    return WEFT_OK;
}

void weft__rc_receives_close(struct rc_iface *iface) {
    /* Receives stay in a given queue. Their memory is registered no more: it takes no message. */
    if (iface->srq && iface->srq != weft__rc_given(iface)->srq) ibv_destroy_srq(iface->srq);
    iface->srq = NULL;
    iface->repost = NULL;
    iface->n_repost = iface->n_receives = 0;
}

/* ---- completions ----------------------------------------------------------------------------- */

/* UINT32_MAX: it is no message. A write with immediate data takes a receive, too, but its bytes are
 * elsewhere, and its length is not bounded by the buffer. */
static uint32_t kind_of(const struct rc_iface *iface, const struct ibv_wc *wc) {
    bool is_message = wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV &&
                      wc->wc_flags & IBV_WC_WITH_IMM && wc->byte_len <= iface->buffer;
    return is_message ? ntohl(wc->imm_data) : UINT32_MAX;
}

/* After another error the queue pair is in error, and no send would ever say so. */
static void receive_failed(struct rc_lane *lane, enum ibv_wc_status status) {
    if (status == IBV_WC_WR_FLUSH_ERR) return;
    weft__log_limited(rc_context(lane), WEFT_LOG_INFO, "rdma",
                      "queue pair %u: a receive ended with status %d of verbs",
                      lane->machine.fsm.id, (int)status);
    weft__rc_lane_break(lane, weft__fail(weft__rd_status_of_wc(status),
                                         "a receive ended with status %d of verbs", (int)status));
}

void weft__rc_took(struct rd_cq *cq, const struct ibv_wc *wc) {
    struct rc_iface *iface = container_of(cq, struct rc_iface, cq);
    struct rc_lane *lane = weft__rc_lane_find(iface, wc->qp_num);
    if (!lane && weft__rc_given_foreign(iface, wc)) return;
    if (wc->wr_id & SENT) {
        if (lane) weft__rc_sent(lane, (uint32_t)wc->wr_id, wc->status);
        return;
    }
    struct rd_block *block = (struct rd_block *)(uintptr_t)wc->wr_id;
    uint32_t kind = kind_of(iface, wc);
    if (lane && kind < RC_N_MESSAGES)
        lane->take(lane, (uint8_t)kind, block->bytes, wc->byte_len);
    else if (lane && wc->status == IBV_WC_SUCCESS)
        weft__rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "that is no message");
    else if (lane)
        receive_failed(lane, wc->status);
    if (!iface->srq) return; /* the interface ended in that call */
    block->next = iface->repost;
    iface->repost = block;
    if (++iface->n_repost >= repost_at(iface)) give_back(iface);
}

void weft__rc_polled(struct rd_cq *cq) {
    struct rc_iface *iface = container_of(cq, struct rc_iface, cq);
    struct rc_lane *lane;
    if (TAILQ_EMPTY(&iface->worked)) return;
    while ((lane = TAILQ_FIRST(&iface->starved)) != NULL) weft__rc_enlist(lane, &iface->worked);
    while ((lane = TAILQ_FIRST(&iface->worked)) != NULL) {
        weft__rc_enlist(lane, NULL);
        weft__rc_retry(lane);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void take_word(struct rc_lane *lane, enum rc_message kind, const uint8_t *data, size_t len) {
    struct rc_want want;
    struct rc_word word;
    weft_status_t st = kind == RC_WANT ? weft__rc_want_decode(data, len, &want)
                                       : weft__rc_word_decode(data, len, &word);
    if (st < 0) {
        weft__rc_lane_bad(lane, st, "malformed key message");
    } else if (kind == RC_WANT) {
        weft__rc_wanted(lane, &want);
    } else if (kind == RC_DROP) {
        weft__rc_dropped(lane, &word);
    } else {
        weft__rc_key_received(lane, kind, &word);
    }
}

static __attribute__((noinline)) void take_and_credit(struct rc_lane *lane, uint8_t kind,
                                                      const uint8_t *data, size_t len) {
    weft__rc_credit_return(lane);
    lane_handlers(&lane->lane)[kind](&lane->lane, kind, data, len);
}

void weft__rc_take_messages(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len) {
    if (LIKELY(kind < LANE_AM_IDS)) {
        lane->outstanding += rc_cost(len);
        if (UNLIKELY(lane->outstanding >= RC_CREDIT_PART))
            return take_and_credit(lane, kind, data, len);
        lane_handlers(&lane->lane)[kind](&lane->lane, kind, data, len);
        return;
    }
    switch ((enum rc_message)kind) {
    case RC_CREDIT: weft__rc_credited(lane); break;
    case RC_PROVE: weft__fsm_step(&lane->machine.fsm, RC_QP_EV_PROOF); break;
    case RC_GOODBYE:
        weft__rc_lane_why(lane, WEFT_ERR_PEER_CLOSED);
        weft__fsm_step(&lane->machine.fsm, RC_QP_EV_GOODBYE);
        break;
    default: take_word(lane, (enum rc_message)kind, data, len); break;
    }
}

/* Closing: only what the end of the conversation needs is received. */
void weft__rc_take_nothing(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len) {
    struct rc_word word;
    if (kind == RC_DROP && weft__rc_word_decode(data, len, &word) == WEFT_OK)
        weft__rc_dropped(lane, &word);
    if (kind == RC_GOODBYE) weft__fsm_step(&lane->machine.fsm, RC_QP_EV_GOODBYE);
}
