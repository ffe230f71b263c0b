/* Streams: what comes in. Bytes go straight to a receive that waits, and into chunks otherwise. */
#include <base/counters.h>

#include "stream.h"
#include "unread.h"
#include <endpoints/core/submit.h>
#include <endpoints/transfer/layout.h>

/* so that many small messages cost no more memory than their bytes */
enum { CHUNK_LEAST = 4096 - 192 };

/* Below the stream; below the worker once it is taken. What is in [at, end) is not received yet. */
struct chunk {
    struct list in_order;
    uint32_t ep; /* its id: the endpoint may be gone when a taken chunk comes back */
    uint32_t size, at, end;
    struct chunk *self; /* overwritten by tag_with_chunk */
    char bytes[];
};
_Static_assert(offsetof(struct chunk, bytes) ==
                   offsetof(struct chunk, self) + sizeof(struct chunk *),
               "the word before the bytes is self");

/* ---- what the peer gets back */

/* A quarter of what goes round at once. What the program holds does not: else the peer could
 * wait for less than a quarter. */
static uint64_t least_credit(const struct stream *s) {
    uint32_t window = weft__ep_window(s->ep);
    return s->in_flight < window ? (window - s->in_flight) / 4 : 0;
}

static void consume(struct stream *s, size_t n) {
    struct weft_ep *ep = s->ep;
    struct wire_message m;
    s->due += n;
    if (s->due < least_credit(s) || s->due == 0 || !ep->link || !ep->core.peer) return;
    weft__wire_stream_credit(&m, (struct wire_credit){.ep = ep->core.peer, .bytes = s->due});
    s->outstanding -= s->due;
    ep->link->unexpected_bytes -= (uint32_t)s->due;
    weft__unread_remove(ep->worker, s->due);
    s->due = 0;
    weft__link_answer(ep->link, &m);
}

/* ---- bytes that wait */

static struct chunk *first_chunk(struct stream *s) {
    return list_empty(&s->chunks) ? NULL : list_of(s->chunks.next, struct chunk, in_order);
}

static void drop_chunk(struct chunk *chunk) {
    list_remove(&chunk->in_order);
    talloc_free(chunk);
}

static struct chunk *new_chunk(struct stream *s, size_t len) {
    size_t size = len > CHUNK_LEAST ? len : CHUNK_LEAST;
    struct chunk *chunk = weft__alloc(s, sizeof *chunk + size, "stream bytes");
    if (!chunk) return NULL;
    *chunk = (struct chunk){.ep = weft__ep_id(s->ep), .size = (uint32_t)size};
    list_append(&s->chunks, &chunk->in_order);
    return chunk;
}

/* Into what the last chunk has left, then into a new one. */
static bool keep_stream(struct stream *s, const char *bytes, size_t len) {
    while (len) {
        struct chunk *last =
            list_empty(&s->chunks) ? NULL : list_of(s->chunks.prev, struct chunk, in_order);
        if (!last || last->end == last->size) last = new_chunk(s, len);
        if (!last) return false;
        size_t n = last->size - last->end < len ? last->size - last->end : len;
        memcpy(last->bytes + last->end, bytes, n);
        last->end += (uint32_t)n;
        bytes += n;
        len -= n;
    }
    return true;
}

/* ---- receives */

/* OK: it has what it asked for; IN_PROGRESS: it wants more; or the program's error. */
static weft_status_t fill_stream(struct weft_request *req, const char *bytes, size_t len,
                                 size_t *used_p) {
    size_t n = req->len - req->offset < len ? req->len - req->offset : len;
    weft_status_t st = weft__request_scatter(req, req->offset, bytes, n);
    req->offset += n;
    *req->match.len_p = req->offset;
    *used_p = n;
    if (st < 0) return st;
    return req->offset == req->len || !(req->send.flags & WEFT_STREAM_WAIT_ALL) ? WEFT_OK
                                                                                : WEFT_IN_PROGRESS;
}

/* From the chunks that are here: as fill, of all that they have. */
static weft_status_t fill_from_chunks(struct stream *s, struct weft_request *req) {
    weft_status_t st = WEFT_IN_PROGRESS;
    struct chunk *chunk;
    size_t used, total = 0;
    while ((chunk = first_chunk(s)) != NULL && req->offset < req->len && st >= 0) {
        st = fill_stream(req, chunk->bytes + chunk->at, chunk->end - chunk->at, &used);
        chunk->at += (uint32_t)used;
        total += used;
        if (chunk->at == chunk->end) drop_chunk(chunk);
    }
    if (total) s->notified = false;
    consume(s, total);
    return st;
}

static void arrive_stream(struct stream *s, const char *bytes, size_t len) {
    size_t used, total = 0;
    while (total < len && !list_empty(&s->receives)) {
        struct weft_request *req = list_of(s->receives.next, struct weft_request, queued);
        weft_status_t st = fill_stream(req, bytes + total, len - total, &used);
        total += used;
        if (st != WEFT_IN_PROGRESS) weft__request_finish(req, st);
    }
    consume(s, total);
    if (total == len) return;
    if (!keep_stream(s, bytes + total, len - total))
        weft__ep_violation(s->ep, WEFT_ERR_NO_MEMORY, "no memory for a stream's bytes");
    else if (s->on_data && !s->notified)
        weft__ep_notify_later(s->ep, NOTICE_DATA);
}

void weft__on_stream(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct wire_stream piece;
    if (!weft__wire_read_stream(data, len, &piece)) {
        weft__on_unknown(lane, id, data, len);
        return;
    }
    struct weft_ep *ep = weft__ep_lookup(lane, piece.ep, "stream");
    if (!ep) return;
    struct stream *s = weft__stream_of(ep);
    if (!s) {
        weft__ep_violation(ep, WEFT_ERR_NO_MEMORY, "no memory for a stream");
        return;
    }
    if (piece.len == 0 || piece.len > weft__ep_window(ep) - s->outstanding) {
        weft__ep_violation(ep, piece.len ? WEFT_ERR_QUOTA : WEFT_ERR_PROTOCOL, "stream");
        return;
    }
    if (!weft__match_may_leave(ep, piece.len)) return;
    s->outstanding += piece.len;
    ep->link->unexpected_bytes += (uint32_t)piece.len;
    weft__unread_add(ep->worker, piece.len);
    ep->link->received++;
    ep->worker->count->stream_in += piece.len;
    if (ep_is_draining(&ep->core.fsm))
        consume(s, piece.len); /* so that a peer that also closes gets rid of what it has */
    else
        arrive_stream(s, piece.bytes, piece.len);
}

static void end_receives(struct stream *s, weft_status_t status) {
    while (!list_empty(&s->receives))
        weft__request_stop(list_of(s->receives.next, struct weft_request, queued), status);
}

void weft__stream_lost(struct weft_ep *ep) {
    if (ep->stream) end_receives(ep->stream, ep->status == WEFT_OK ? WEFT_ERR_CLOSED : ep->status);
}

void weft__stream_closing(struct weft_ep *ep) {
    struct stream *s = ep->stream;
    struct chunk *chunk;
    if (!s) return;
    end_receives(s, WEFT_ERR_CLOSED);
    while ((chunk = first_chunk(s)) != NULL) {
        size_t n = chunk->end - chunk->at;
        drop_chunk(chunk);
        consume(s, n);
    }
}

weft_status_t weft__stream_check_wait(struct weft_ep *ep) {
    return WEFT_OK;
}

/* ---- the program's calls */

/* Not among the endpoint's requests: a flush does not wait for what the peer may send, and
 * neither does a close. */
static const struct request_kind receive_kind = {.name = "stream_recv",
                                                 .flags = WEFT_STREAM_WAIT_ALL};

static weft_status_t post_receive(struct stream *s, struct weft_request *req, const weft_op_t *op) {
    weft_status_t st = s->ep->ops->stream_check_wait(s->ep);
    if (st < 0) {
        weft__request_discard(req);
        return st;
    }
    st = weft__request_accept(req, NULL, op);
    if (st < 0) return st;
    weft__request_queue(req, &s->receives);
    return WEFT_IN_PROGRESS;
}

static weft_status_t receive_stream(struct weft_ep *ep, const weft_iov_t *iov, size_t n_iov,
                                    size_t *len_p, const weft_op_t *op) {
    weft_status_t st = weft__check_op(op, receive_kind.flags);
    if (st < 0) return st;
    struct stream *s = weft__stream_of(ep);
    struct weft_request *req = s ? weft__request_new(ep->worker, &receive_kind) : NULL;
    if (!req) return WEFT_ERR_NO_MEMORY;
    st = weft__request_memory(req, iov, n_iov, op, true);
    /* What it takes of the stream cannot be given back. */
    if (st == WEFT_OK && op && op->flags & WEFT_STREAM_WAIT_ALL)
        st = weft__request_start_deadline(req, op->deadline_ms);
    if (st == WEFT_OK && req->len) {
        req->match.len_p = len_p;
        req->send.flags = op ? op->flags : 0;
        st = list_empty(&s->receives) ? fill_from_chunks(s, req) : WEFT_IN_PROGRESS;
        if (st == WEFT_IN_PROGRESS) return post_receive(s, req, op);
    }
    weft__request_discard(req);
    return st;
}

static weft_status_t recv_posted(void *ep, const struct submit_args *args, const weft_op_t *op) {
    return weft_stream_recv(ep, args->iov, args->n_iov, (size_t *)(uintptr_t)args->word[0], op);
}

weft_status_t weft_stream_recv(weft_ep_t *ep, const weft_iov_t *iov, size_t n_iov, size_t *len_p,
                               const weft_op_t *op) {
    if (!ep || !len_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep or len_p is NULL");
    weft_status_t st = weft__call_enter(ep->worker, op);
    if (st == WEFT_IN_PROGRESS) {
        struct submit_args args = {
            .word = {(uint64_t)(uintptr_t)len_p}, .iov = iov, .n_iov = n_iov};
        return weft__post(ep->worker, ep, recv_posted, &args, op);
    }
    if (st < 0) return st;
    *len_p = 0;
    return receive_stream(ep, iov, n_iov, len_p, op);
}

/* The word before the bytes names their chunk: it is `self`, or bytes that were received
 * already, or both in part. */
static void tag_with_chunk(struct chunk *chunk) {
    memcpy(chunk->bytes + chunk->at - sizeof chunk, &chunk, sizeof chunk);
}
static struct chunk *chunk_of(const void *data) {
    struct chunk *chunk;
    memcpy(&chunk, (const char *)data - sizeof chunk, sizeof chunk);
    return chunk;
}

weft_status_t weft_stream_take(weft_ep_t *ep, const void **data_p, size_t *len_p) {
    if (!ep || !data_p || !len_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "ep, data_p or len_p is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st < 0) return st;
    struct stream *s = ep->stream;
    if (s && !list_empty(&s->receives))
        return weft__fail(WEFT_ERR_BUSY, "posted receives take the bytes of this stream");
    struct chunk *chunk = s ? first_chunk(s) : NULL;
    if (!chunk) {
        st = ep->ops->stream_check_wait(ep);
        return st < 0 ? st : WEFT_ERR_NOT_FOUND;
    }
    list_remove(&chunk->in_order);
    talloc_steal(ep->worker, chunk);
    tag_with_chunk(chunk);
    s->notified = false;
    *data_p = chunk->bytes + chunk->at;
    *len_p = chunk->end - chunk->at;
    s->in_flight += *len_p;
    return WEFT_OK;
}

void weft_stream_release(weft_worker_t *worker, const void *data) {
    worker = weft__worker_itself(worker);
    if (!worker || !data || weft__worker_check(worker) < 0) return;
    struct chunk *chunk = chunk_of(data);
    struct weft_ep *ep = weft__idmap_find(&worker->eps, chunk->ep);
    if (ep) {
        ep->stream->in_flight -= chunk->end - chunk->at;
        consume(ep->stream, chunk->end - chunk->at);
    }
    talloc_free(chunk);
}

void weft__stream_notify(struct weft_ep *ep) {
    struct stream *s = ep->stream;
    if (!s || !s->on_data || s->notified || list_empty(&s->chunks)) return;
    s->notified = true;
    s->on_data(ep, s->arg);
    weft__program_returned(ep->worker->reactor);
}

weft_status_t weft_stream_on_data(weft_ep_t *ep, void (*on_data)(weft_ep_t *ep, void *arg),
                                  void *arg) {
    if (!ep) return weft__fail(WEFT_ERR_INVALID_PARAM, "ep is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st < 0) return st;
    struct stream *s = weft__stream_of(ep);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->on_data = on_data;
    s->arg = arg;
    s->notified = false;
    if (on_data && !list_empty(&s->chunks)) weft__ep_notify_later(ep, NOTICE_DATA);
    return WEFT_OK;
}
