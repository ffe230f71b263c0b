/*
 * Work requests of a lane and their completions. Requests complete in order, so one completion
 * covers all before it. Every RC_SIGNAL-th request asks for a completion, and so does each request
 * whose end frees a resource that an operation waits for.
 */
#include "rc.h"

#include <arpa/inet.h>

static const uint64_t SENT = UINT64_C(1) << 63;

static struct rc_work *work_at(const struct rc_lane *lane, uint32_t number) {
    return &lane->work[number & (lane->depth - 1)];
}

/* ---- posting --------------------------------------------------------------------------------- */

static void keep_work(struct rc_lane *lane, const struct rc_work *work) {
    struct rc_work *at = work_at(lane, lane->posted);
    *at = *work;
    at->any = true;
    lane->n_works++;
}

/* An errno. */
static int post(struct rc_lane *lane, struct ibv_send_wr *wr, bool marks) {
    struct ibv_send_wr *bad;
    if (!lane->qp) return ENOTCONN;
    return lane->is_refused && !marks ? ECANCELED : ibv_post_send(lane->qp, wr, &bad);
}

/* The request is over with those before it, and has failed. */
static void refuse(struct rc_lane *lane, uint32_t number, const struct rc_work *work, int error) {
    lane->is_refused = true;
    if (work) work_at(lane, number)->is_refused = true;
    weft__rc_lane_break(lane, weft__fail(WEFT_ERR_IO, "ibv_post_send: %s", strerror(error)));
}

void weft__rc_post(struct rc_lane *lane, struct ibv_send_wr *wr, const struct rc_work *work,
                   bool signal) {
    uint32_t number = lane->posted;
    if (work) keep_work(lane, work);
    wr->wr_id = SENT | number;
    lane->posted++;
    if (signal || ++lane->unsignalled >= RC_SIGNAL) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        lane->unsignalled = 0;
    }
    if (lane->fence) wr->send_flags |= IBV_SEND_FENCE;
    lane->fence = false;
    int error = post(lane, wr, work && work->what == RC_MARKER);
    if (error) refuse(lane, number, work, error);
}

/* A write of nothing touches nothing at the peer, and needs no key. */
void weft__rc_post_nothing(struct rc_lane *lane, const struct rc_work *work) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    weft__rc_post(lane, &wr, work, true);
}

bool weft__rc_post_word(struct rc_lane *lane, enum rc_message kind, const void *data, size_t len,
                        bool fence, enum rc_what what) {
    struct rc_iface *iface = rc_iface_of(lane);
    struct rc_work work = {.what = what};
    struct ibv_sge sge = {.addr = (uintptr_t)data, .length = (uint32_t)len};
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM,
                             .imm_data = htonl(kind),
                             .sg_list = &sge,
                             .num_sge = len > 0};
    if (len <= iface->max_inline) {
        wr.send_flags = IBV_SEND_INLINE;
    } else {
        work.block = weft__rd_pool_take(&iface->send, NULL);
        if (!work.block) return false;
        memcpy(work.block->bytes, data, len);
        sge.addr = (uintptr_t)work.block->bytes;
        sge.lkey = work.block->lkey;
    }
    if (fence) wr.send_flags |= IBV_SEND_FENCE;
    weft__rc_post(lane, &wr, &work, true);
    return true;
}

/* ---- what an operation holds ----------------------------------------------------------------- */

static void op_strip(struct rc_lane *lane, struct rc_op *op) {
    struct rc_iface *iface = rc_iface_of(lane);
    while (op->n_buf_refs > 0)
        weft__rd_buf_ref_return(&iface->buf_refs, op->buf_ref[--op->n_buf_refs]);
    if (op->block) rd_pool_put(&iface->send, op->block);
    if (op->word) rd_pool_put(&iface->words, op->word);
    op->block = op->word = NULL;
    talloc_free(op->staging);
    op->staging = NULL;
}

void weft__rc_op_free(struct rc_lane *lane, struct rc_op *op) {
    op_strip(lane, op);
    weft__slab_put(&rc_iface_of(lane)->op_slab, op);
}

static void op_over(struct rc_lane *lane, struct rc_op *op, weft_status_t status) {
    struct completion *completion = op->completion;
    if (status == WEFT_OK && op->finish && op->finish(lane, op)) return;
    weft__rc_op_free(lane, op);
    if (completion) completion_step(completion, status);
}

/* ---- what comes back ------------------------------------------------------------------------- */

static void work_over(struct rc_lane *lane, uint32_t number, weft_status_t status) {
    struct rc_work work = *work_at(lane, number);
    if (!work.any) return;
    *work_at(lane, number) = (struct rc_work){.what = RC_PLAIN};
    lane->n_works--;
    if (work.is_refused) status = lane->why;
    if (work.block) rd_pool_put(&rc_iface_of(lane)->send, work.block);
    if (work.op) op_over(lane, work.op, status);
    if (work.completion) completion_step(work.completion, status);
    if (work.what == RC_BYE && status == WEFT_OK) weft__fsm_step(&lane->machine.fsm, RC_QP_EV_SENT);
    if (work.what == RC_MARKER) lane->marked = true;
}

void weft__rc_enlist(struct rc_lane *lane, struct rc_lanes *list) {
    if (lane->on) TAILQ_REMOVE(lane->on, lane, of_worked);
    lane->on = list;
    if (list) TAILQ_INSERT_TAIL(list, lane, of_worked);
}

/* Those before a request that failed and did not say so themselves went well: whatever fails,
 * says so. */
void weft__rc_sent(struct rc_lane *lane, uint32_t number, enum ibv_wc_status status) {
    /* of an earlier lane of a queue pair that the program gave */
    if (number - lane->done >= lane->posted - lane->done) return;
    weft_status_t st = weft__rd_status_of_wc(status);
    const struct iface_up *up = lane->lane.iface->up;
    /* flushed: the first that failed knows why */
    if (st == WEFT_ERR_CANCELLED && lane->why) st = lane->why;
    if (st < 0 && status != IBV_WC_WR_FLUSH_ERR) {
        weft__log_limited(rc_context(lane), WEFT_LOG_INFO, "rdma", "queue pair %u: %s",
                          lane->machine.fsm.id, ibv_wc_status_str(status));
        weft__rc_lane_break(lane, weft__fail(st, "a send: %s", ibv_wc_status_str(status)));
    } else if (st < 0 && rc_qp_is_rts(&lane->machine.fsm)) {
        /* the device put the queue pair into error, without a reason */
        weft__rc_lane_break(
            lane, weft__fail(WEFT_ERR_IO, "the device put the queue pair into the state ERR"));
    }
    rc_count(lane)->rdma_completions++;
    if (lane->on != &rc_iface_of(lane)->worked) weft__rc_enlist(lane, &rc_iface_of(lane)->worked);
    if (lane->n_works == 0) lane->done = number + 1;
    while (lane->done != number + 1) {
        uint32_t which = lane->done++;
        work_over(lane, which, which == number ? st : WEFT_OK);
    }
    if (up->worked && lane->bytes) up->worked(&lane->lane, lane->bytes);
    lane->bytes = 0;
    weft__rc_lane_drained(lane);
}

/* Its memory must not wait for the owner to be notified. */
void weft__rc_works_strip(struct rc_lane *lane) {
    for (uint32_t n = lane->done; n != lane->posted; n++) {
        struct rc_work *work = work_at(lane, n);
        if (work->block) rd_pool_put(&rc_iface_of(lane)->send, work->block);
        work->block = NULL;
        if (work->op) op_strip(lane, work->op);
    }
}

void weft__rc_works_notify(struct rc_lane *lane, weft_status_t status) {
    while (lane->done != lane->posted) work_over(lane, lane->done++, status);
}

/* ---- those who wait -------------------------------------------------------------------------- */

void weft__rc_retry(struct rc_lane *lane) {
    weft__rc_credit_return(lane);
    weft__rc_words_flush(lane);
    while (lane->lane.ops == &weft__rc_ops_open && rc_has_room(lane, RC_KEEP) &&
           pending_queue_retry(&lane->pending))
        continue;
    if (pending_queue_waits(&lane->pending) && lane->posted == lane->done && lane->credit > 0 &&
        lane->lane.ops == &weft__rc_ops_open)
        weft__rc_enlist(lane, &rc_iface_of(lane)->starved);
}
