/*
 * Scatter and gather on one side: cut into operations on one contiguous range of the peer's each,
 * some of which end within the call; the others are requests of their own, of which the program's
 * request knows how many are left.
 */
#include <base/counters.h>

#include "rma.h"
#include <endpoints/core/submit.h>
#include <transports/cuda/memory.h>

enum { PIECES_UNDER_WAY = 64 }; /* requests at once */

/* Below the program's request. */
struct pieces {
    enum rma_what what;
    size_t n_local, n_remote;
    weft_local_t *local;
    weft_remote_t *remote;
    size_t at, block; /* the piece that is next, and its block when it is the peer's */
    size_t done;      /* bytes before it */
};

/* ---- one operation after another */

static size_t blocks(size_t count) {
    return count ? count : 1;
}

/* A contiguous range of the peer's, and a piece of ours for it. */
static bool next_of_local(struct pieces *p, struct rma_op *op) {
    while (p->at < p->n_local) {
        const weft_local_t *l = &p->local[p->at++];
        size_t count = blocks(l->count), len = l->len;
        if (len == 0) continue;
        if (l->stride == len) len *= count, count = 1;
        op->piece =
            (struct rma_piece){.base = l->base, .len = len, .stride = l->stride, .count = count};
        op->rkey = p->remote[0].rkey;
        op->remote = p->remote[0].base + p->done;
        p->done += len * count;
        return true;
    }
    return false;
}

/* A block of the peer's, and a range of our one piece for it. */
static bool next_of_remote(struct pieces *p, struct rma_op *op) {
    while (p->at < p->n_remote) {
        const weft_remote_t *r = &p->remote[p->at];
        size_t count = blocks(r->count), len = r->len;
        uint64_t base = r->base + r->stride * p->block;
        if (r->stride == len) len *= count, count = 1;
        if (len == 0 || ++p->block >= count) {
            p->at++;
            p->block = 0;
        }
        if (len == 0) continue;
        op->piece =
            (struct rma_piece){.base = (char *)p->local[0].base + p->done, .len = len, .count = 1};
        op->rkey = r->rkey;
        op->remote = base;
        p->done += len;
        return true;
    }
    return false;
}

static bool next(struct pieces *p, struct rma_op *op) {
    *op = (struct rma_op){.what = p->what};
    return p->n_remote == 1 && blocks(p->remote[0].count) == 1 ? next_of_local(p, op)
                                                               : next_of_remote(p, op);
}

/* ---- the program's request */

/* What is too much for this turn goes on its own in the next one, and the others after it. */
static weft_status_t start_one(struct weft_request *req, const struct rma_op *op,
                               const weft_op_t *how, bool *over_p) {
    struct memory *memory = &req->worker->memory;
    if (!op->rkey->key->local || !weft__rma_is_native(req->ep, op->rkey, op->what, 0, 0))
        return weft__rma_start(req->ep, op, how, req);
    *over_p = weft__rma_turn_is_over(req->worker);
    if (*over_p) return weft__rma_later(req->ep, op, how, req);
    weft_status_t st = weft__rma_start(req->ep, op, how, req);
    if (st == WEFT_OK) memory->moved += rma_piece_len(&op->piece);
    return st;
}

static void issue(struct weft_request *req) {
    struct pieces *p = req->pieces;
    weft_op_t how = {.flags = req->send.flags};
    struct rma_op op;
    bool over = false;
    while (!over && req->in_flight.status == WEFT_OK && req->in_flight.count <= PIECES_UNDER_WAY &&
           next(p, &op)) {
        weft_status_t st = weft__rkey_status(op.rkey);
        op.on_device = weft__is_device_memory(op.piece.base);
        if (st == WEFT_OK) st = start_one(req, &op, &how, &over);
        if (st == WEFT_IN_PROGRESS) req->in_flight.count++;
        if (st < 0) req->in_flight.status = st;
    }
}

bool weft__rma_pieces_are_ordered(const struct weft_request *req) {
    const struct pieces *p = req->pieces;
    for (size_t i = 0; i < p->n_remote; i++) {
        enum rma_order order = weft__rma_key_order(p->remote[i].rkey->key);
        if (order == RMA_ORDER_ALL || (order == RMA_ORDER_PUTS && p->what == RMA_PUT)) return true;
    }
    return false;
}

/* It counts itself until the call, or the round, is over. */
void weft__rma_pieces_start(struct weft_request *req) {
    weft__request_park(req);
    req->in_flight.count = 1;
    issue(req);
    completion_step(&req->in_flight, WEFT_OK);
}

void weft__rma_piece_ended(struct weft_request *req, weft_status_t status) {
    if (status < 0 && req->in_flight.status == WEFT_OK) req->in_flight.status = status;
    if (request_is_waiting(&req->core.fsm) && req->ep->link) issue(req);
    completion_step(&req->in_flight, status);
}

static void rma_pieces_returned(struct weft_request *req, weft_status_t status) {
    weft__request_finish(req, status);
}

static void withdraw(struct weft_request *req) {
    list_for_each_safe(n, next_one, &req->ep->requests) {
        struct weft_request *part = list_of(n, struct weft_request, of_ep);
        if (part->group == req) weft__request_stop(part, req->status);
    }
}

static void release_piece(struct weft_request *req) {
    struct pieces *p = req->pieces;
    weft__rma_left(req);
    if (!p || !p->local) return;
    for (size_t i = 0; i < p->n_local; i++)
        if (p->local[i].mem) p->local[i].mem->users--;
    for (size_t i = 0; i < p->n_remote; i++) weft__rkey_drop(p->remote[i].rkey);
    p->local = NULL;
}

const struct request_kind weft__rma_pieces_kind = {.name = "pieces",
                                                   .flags = WEFT_RMA_REMOTE,
                                                   .returned = rma_pieces_returned,
                                                   .withdraw = withdraw,
                                                   .release = release_piece};

static weft_status_t as_request(weft_ep_t *ep, const struct pieces *given, const weft_op_t *op) {
    struct weft_request *req = weft__request_new(ep->worker, &weft__rma_pieces_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    size_t local_size = given->n_local * sizeof *given->local,
           remote_size = given->n_remote * sizeof *given->remote;
    struct pieces *p = weft__alloc(req, sizeof *p + local_size + remote_size, "pieces");
    if (!p) {
        weft__request_discard(req);
        return WEFT_ERR_NO_MEMORY;
    }
    *p = *given;
    p->local = (weft_local_t *)(p + 1);
    p->remote = (weft_remote_t *)((char *)(p + 1) + local_size);
    memcpy(p->local, given->local, local_size);
    memcpy(p->remote, given->remote, remote_size);
    for (size_t i = 0; i < p->n_local; i++)
        if (p->local[i].mem) p->local[i].mem->users++;
    for (size_t i = 0; i < p->n_remote; i++) weft__rkey_use(p->remote[i].rkey);
    req->pieces = p;
    weft_status_t st = weft__request_accept(req, ep, op);
    if (st < 0) return st;
    weft__rma_launch(req, true);
    return WEFT_IN_PROGRESS;
}

/* All keys are of mapped memory, and it is not too much: done within the call, nothing is
 * copied. */
static weft_status_t now(weft_ep_t *ep, struct pieces p, size_t bytes) {
    struct rma_op op;
    weft_status_t st = bytes > RMA_TURN ? WEFT_NO_RESOURCE : WEFT_OK;
    while (st == WEFT_OK && next(&p, &op)) st = weft__rma_native_now(&op, true);
    if (st == WEFT_OK) ep->worker->count->rma_native++;
    return st;
}

static bool all_mapped(const weft_ep_t *ep, const struct pieces *p) {
    for (size_t i = 0; i < p->n_remote; i++)
        if (ep->rma_slow || !weft__rma_is_native(ep, p->remote[i].rkey, p->what, 0, 0) ||
            !p->remote[i].rkey->key->local)
            return false;
    return true;
}

/* ---- what the program gave */

/* Bytes from the first block's begin to the last one's end, and bytes in them. Blocks of no
 * bytes have no place. */
static bool measure_piece(size_t len, size_t stride, size_t count, size_t *span_p,
                          size_t *bytes_p) {
    size_t before, bytes;
    *span_p = 0;
    if (len == 0) return true;
    if (__builtin_mul_overflow(stride, blocks(count) - 1, &before)) return false;
    if (__builtin_add_overflow(before, len, span_p)) return false;
    return !__builtin_mul_overflow(len, blocks(count), &bytes) &&
           !__builtin_add_overflow(*bytes_p, bytes, bytes_p);
}

static weft_status_t check_local(const weft_ep_t *ep, const weft_local_t *local, size_t n,
                                 size_t *bytes_p) {
    for (size_t i = 0; i < n; i++) {
        size_t span;
        weft_status_t st = weft__check_memory("base of a local piece", local[i].base, local[i].len);
        if (st < 0) return st;
        if (!measure_piece(local[i].len, local[i].stride, local[i].count, &span, bytes_p))
            return weft__fail(WEFT_ERR_INVALID_PARAM, "local piece %zu", i);
        const weft_mem_t *mem = local[i].mem;
        uintptr_t at = (uintptr_t)local[i].base, base = mem ? (uintptr_t)mem->region.base : 0;
        if (mem && (mem->worker != ep->worker ||
                    (span && !region_covers(base, mem->region.len, at, span))))
            return weft__fail(WEFT_ERR_INVALID_PARAM, "local piece %zu is outside its registration",
                              i);
        /* It could be gone before the operation has ended. */
        if (mem && (memory_is_ending(&mem->core.fsm) || memory_is_gone(&mem->core.fsm)))
            return weft__fail(WEFT_ERR_BUSY,
                              "the registration of local piece %zu is being released", i);
    }
    return WEFT_OK;
}

static weft_status_t check_remote(const weft_ep_t *ep, const weft_remote_t *remote, size_t n,
                                  unsigned right, size_t *bytes_p) {
    for (size_t i = 0; i < n; i++) {
        size_t span;
        if (!remote[i].rkey || remote[i].rkey->ep != ep)
            return weft__fail(WEFT_ERR_INVALID_PARAM,
                              "the key of remote piece %zu belongs to another endpoint", i);
        if (!measure_piece(remote[i].len, remote[i].stride, remote[i].count, &span, bytes_p))
            return weft__fail(WEFT_ERR_INVALID_PARAM, "remote piece %zu", i);
        weft_status_t st = weft__rkey_check(remote[i].rkey, remote[i].base, span, right);
        if (st < 0) return st;
    }
    return WEFT_OK;
}

static weft_status_t check_piece(const weft_ep_t *ep, const struct pieces *p, size_t *bytes_p) {
    size_t here = 0, there = 0;
    weft_status_t st = check_local(ep, p->local, p->n_local, &here);
    unsigned right = p->what == RMA_PUT ? WEFT_MEM_WRITE : WEFT_MEM_READ;
    if (st == WEFT_OK) st = check_remote(ep, p->remote, p->n_remote, right, &there);
    if (st < 0) return st;
    if (here != there)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "the local pieces have %zu bytes, the remote ones %zu", here, there);
    bool one_here = p->n_local == 1 && p->local[0].count <= 1;
    bool one_there = p->n_remote == 1 && p->remote[0].count <= 1;
    if (here && !one_here && !one_there)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "one side must be one contiguous piece");
    *bytes_p = here;
    return WEFT_OK;
}

static weft_status_t move_on_host(weft_ep_t *ep, struct pieces *p, const weft_op_t *op,
                                  size_t bytes) {
    weft_status_t st = all_mapped(ep, p) ? now(ep, *p, bytes) : WEFT_NO_RESOURCE;
    return st == WEFT_NO_RESOURCE ? as_request(ep, p, op) : st;
}

/* ---- with local pieces on a device. A few go as operations of their own, which nothing waits for;
 * of many, all local bytes pass one piece of the host's memory */

struct through_host {
    struct weft_worker *worker;
    weft_done_fn done; /* the program's */
    void *arg;
    size_t n;
    weft_local_t *local;
    char *bytes;
};

static bool has_device(const struct pieces *p) {
    for (size_t i = 0; weft__cuda_active && i < p->n_local; i++)
        if (p->local[i].len && weft__cuda_is_device(p->local[i].base)) return true;
    return false;
}

/* How many operations they are cut into. */
static size_t operations(const struct pieces *p) {
    size_t n = 0;
    if (p->n_remote == 1 && blocks(p->remote[0].count) == 1) return p->n_local;
    for (size_t i = 0; i < p->n_remote; i++)
        n += p->remote[i].stride == p->remote[i].len ? 1 : blocks(p->remote[i].count);
    return n;
}

/* Returns how many bytes of the host it is. */
static weft_status_t copy_piece(const struct weft_worker *worker, const weft_local_t *l, char *host,
                                bool in, size_t *len_p) {
    struct cuda_memory memory;
    const struct cuda_blocks all = {.device = l->base,
                                    .host = host,
                                    .width = l->len,
                                    .pitch = blocks(l->count) > 1 ? l->stride : l->len,
                                    .rows = blocks(l->count)};
    *len_p = l->len * blocks(l->count);
    if (*len_p == 0) return WEFT_OK;
    if (weft__cuda_find(l->base, &memory) && !memory.managed) {
        struct cuda_place place;
        weft_status_t st = weft__cuda_place(weft__reactor_given(worker->reactor), &memory, &place);
        if (st < 0) return st;
        return in ? weft__cuda_write_blocks(place, &all) : weft__cuda_read_blocks(place, &all);
    }
    for (size_t i = 0; i < all.rows; i++) {
        char *at = (char *)l->base + i * all.pitch;
        memcpy(in ? at : host + i * l->len, in ? host + i * l->len : at, l->len);
    }
    return WEFT_OK;
}

static weft_status_t copy_local(const struct through_host *t, bool in) {
    weft_status_t st = WEFT_OK;
    char *at = t->bytes;
    for (size_t i = 0, len; i < t->n && st == WEFT_OK; i++, at += len)
        st = copy_piece(t->worker, &t->local[i], at, in, &len);
    return st;
}

static void host_done(weft_status_t status, void *arg) {
    struct through_host *t = arg;
    weft_done_fn done = t->done;
    arg = t->arg;
    talloc_free(t);
    if (done) done(status, arg);
}
static void got_all(weft_status_t status, void *arg) {
    host_done(status == WEFT_OK ? copy_local(arg, true) : status, arg);
}

static struct through_host *new_through_host(struct weft_worker *worker, const struct pieces *p,
                                             const weft_op_t *op, size_t bytes) {
    struct through_host *t = weft__new(worker, struct through_host);
    size_t size = p->n_local * sizeof *p->local;
    if (!t) return NULL;
    *t = (struct through_host){.worker = worker,
                               .done = op ? op->done : NULL,
                               .arg = op ? op->arg : NULL,
                               .n = p->n_local};
    t->local = weft__alloc(t, size, "local pieces");
    t->bytes = weft__alloc(t, bytes, "local pieces of a device");
    if (!t->local || !t->bytes) {
        talloc_free(t);
        return NULL;
    }
    memcpy(t->local, p->local, size);
    return t;
}

static weft_status_t move_through_host(weft_ep_t *ep, struct pieces *p, const weft_op_t *op,
                                       size_t bytes) {
    bool gets = p->what == RMA_GET;
    weft_op_t own = op ? *op : (weft_op_t){0};
    if (own.completion)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->completion is set, and a local piece of many is in device memory");
    struct through_host *t = new_through_host(ep->worker, p, op, bytes);
    if (!t) return WEFT_ERR_NO_MEMORY;
    weft_local_t here = {.base = t->bytes, .len = bytes, .count = 1};
    struct pieces of_host = *p;
    of_host.local = &here;
    of_host.n_local = 1;
    own.done = gets ? got_all : host_done;
    own.arg = t;
    weft_status_t st = gets ? WEFT_OK : copy_local(t, false);
    if (st == WEFT_OK) st = move_on_host(ep, &of_host, &own, bytes);
    if (st == WEFT_IN_PROGRESS) return st;
    if (st == WEFT_OK && gets) st = copy_local(t, true);
    talloc_free(t);
    return st;
}

static weft_status_t rma_pieces_move(weft_ep_t *ep, struct pieces *p, const weft_op_t *op) {
    size_t bytes = 0;
    weft_status_t st = check_piece(ep, p, &bytes);
    if (st < 0) return st;
    if (ep->refuses) return ep->ops->rma(ep, NULL, op);
    if (bytes == 0) return WEFT_OK;
    if (!has_device(p)) return move_on_host(ep, p, op, bytes);
    return operations(p) <= PIECES_UNDER_WAY ? as_request(ep, p, op)
                                             : move_through_host(ep, p, op, bytes);
}

/* ---- the program's calls */

/* The owner may have released one before it came to this, and knew of no use. */
static weft_status_t check_registrations(const weft_ep_t *ep, const struct pieces *p) {
    for (size_t i = 0; i < p->n_local; i++)
        if (p->local[i].mem && !weft__mem_is_there(ep->worker, p->local[i].mem))
            return weft__fail(WEFT_ERR_INVALID_PARAM,
                              "the registration of local piece %zu was released", i);
    return WEFT_OK;
}

static weft_status_t pieces_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    struct pieces p = {.what = (enum rma_what)args->word[0],
                       .n_local = args->word[1],
                       .n_remote = args->word[2],
                       .local = (weft_local_t *)(uintptr_t)args->bytes};
    p.remote = (weft_remote_t *)(p.local + p.n_local);
    weft_status_t st = check_registrations(ep, &p);
    return st < 0 ? st : rma_pieces_move(ep, &p, op);
}

static weft_status_t elsewhere_piece(weft_ep_t *ep, const struct pieces *p, const weft_op_t *op) {
    size_t local_size = p->n_local * sizeof *p->local,
           remote_size = p->n_remote * sizeof *p->remote;
    char *both = weft__alloc(NULL, local_size + remote_size, "pieces");
    if (!both) return WEFT_ERR_NO_MEMORY;
    if (local_size) memcpy(both, p->local, local_size);
    if (remote_size) memcpy(both + local_size, p->remote, remote_size);
    struct submit_args args = {.word = {p->what, p->n_local, p->n_remote},
                               .bytes = both,
                               .n_bytes = local_size + remote_size};
    weft_status_t st = weft__post(ep->worker, ep, pieces_posted, &args, op);
    talloc_free(both);
    return st;
}

static weft_status_t move_checked(weft_ep_t *ep, struct pieces *p, const weft_op_t *op) {
    enum { MOST = 1 << 24 };
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    if (op && op->layout)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->layout is set; pieces have strides of their own");
    if (p->n_local > MOST || p->n_remote > MOST)
        return weft__fail(WEFT_ERR_TOO_BIG, "more than %d pieces", MOST);
    weft_status_t st = weft__check_streamed_op(op, WEFT_RMA_REMOTE);
    if (st == WEFT_OK) st = weft__check_memory("local", p->local, p->n_local);
    if (st == WEFT_OK) st = weft__check_memory("remote", p->remote, p->n_remote);
    if (st == WEFT_OK) st = weft__call_enter(ep->worker, op);
    if (st == WEFT_IN_PROGRESS) return elsewhere_piece(ep, p, op);
    return st < 0 ? st : rma_pieces_move(ep, p, op);
}

weft_status_t weft_put_pieces(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                              const weft_remote_t *remote, size_t n_remote, const weft_op_t *op) {
    struct pieces p = {.what = RMA_PUT,
                       .n_local = n_local,
                       .n_remote = n_remote,
                       .local = (weft_local_t *)(uintptr_t)local,
                       .remote = (weft_remote_t *)(uintptr_t)remote};
    return move_checked(ep, &p, op);
}

weft_status_t weft_get_pieces(weft_ep_t *ep, const weft_local_t *local, size_t n_local,
                              const weft_remote_t *remote, size_t n_remote, const weft_op_t *op) {
    struct pieces p = {.what = RMA_GET,
                       .n_local = n_local,
                       .n_remote = n_remote,
                       .local = (weft_local_t *)(uintptr_t)local,
                       .remote = (weft_remote_t *)(uintptr_t)remote};
    return move_checked(ep, &p, op);
}
