/*
 * Operations that are recorded in a CUDA graph: each launch of the graph posts them once, as
 * another thread would, and the graph goes on when they have ended.
 */
#include "submit.h"

#include <transports/cuda/stream_gate.h>

#include "worker.h"

/* Stays until its worker ends: the graph may be launched until then. */
struct recorded {
    struct weft_worker *worker;
    submit_fn fn;
    struct submit_args args;
    weft_op_t op;
    struct cuda_gate *gate;
    struct remote without_memory;
};

static void launched_ended(weft_status_t status, void *arg) {
    const struct recorded *r = arg;
    weft__cuda_gate_open(r->gate);
    if (r->op.done) r->op.done(status, r->op.arg);
}

void weft__recorded_over(const struct weft_request *req) {
    if (req->done == launched_ended) weft__cuda_gate_open(((struct recorded *)req->arg)->gate);
}

static void could_not_post(struct remote *remote) {
    struct recorded *r = container_of(remote, struct recorded, without_memory);
    launched_ended(WEFT_ERR_NO_MEMORY, r);
    weft__program_returned(r->worker->reactor);
}

/* On the driver's thread. */
static void launched(void *arg) {
    struct recorded *r = arg;
    weft_op_t op = {
        .done = launched_ended, .arg = r, .flags = r->op.flags, .deadline_ms = r->op.deadline_ms};
    if (weft__post(r->worker, NULL, r->fn, &r->args, &op) != WEFT_IN_PROGRESS)
        weft__reactor_submit(r->worker->reactor, &r->without_memory);
}

weft_status_t weft__post_recorded(struct weft_worker *worker, submit_fn fn,
                                  const struct submit_args *args, const weft_op_t *op) {
    if (op->completion || op->request_p)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->stream is being captured: launches have no request, and count in no "
                          "completion");
    weft_status_t st = weft__cuda_place_admits(weft__reactor_given(worker->reactor), op->stream);
    if (st < 0) return st;
    struct recorded *r = weft__new(worker, struct recorded);
    if (!r) return WEFT_ERR_NO_MEMORY;
    *r = (struct recorded){
        .worker = worker, .fn = fn, .args = *args, .op = *op, .without_memory.run = could_not_post};
    st = weft__cuda_gate_record(op->stream, worker, launched, r, &r->gate);
    if (st < 0) talloc_free(r);
    return st;
}
