/* The lane that keeps what the peer has not acknowledged: sending. What comes by it is counted
 * in retain_recv.c, and its lanes below come and go in resume.c. */
#include "retain.h"

#include <base/compiler.h>

#include <assert.h>
#include <base/counters.h>
#include <stdio.h>
#include <transports/answering.h>

#include <endpoints/core/worker.h>
#include <endpoints/wire/lane_ctrl.h>

static struct reactor *reactor_of(const struct retain *r) {
    return r->link->worker->reactor;
}

/* A handshake belongs to the lane that carries it. */
static bool is_hello(uint8_t id) {
    return id == WIRE_HELLO;
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static size_t in_flight_len(const struct retained *m) {
    return retained_is_zcopy(m) ? weft__iov_len(retained_iov(m), m->n_iov) : 0;
}
static size_t size_of(const struct retained *m) {
    return retained_size(m->len, retained_is_zcopy(m), m->n_iov);
}
size_t weft__retained_size_of(const struct retained *m) {
    return size_of(m);
}
static size_t cost_of(const struct retained *m) {
    return size_of(m) + (retained_is_zcopy(m) ? in_flight_len(m) + RETAIN_COST : 0);
}

/* Room for a message, in the log and for its cost. */
static inline weft_status_t make_room(struct retain *r, size_t size, size_t cost,
                                      struct retained **m_p) {
    if (UNLIKELY(retain_log_full(&r->log, cost))) {
        r->log_full = true;
        return WEFT_NO_RESOURCE;
    }
    *m_p = retain_log_room(&r->log, size, r->core.sent);
    if (LIKELY(*m_p != NULL)) return WEFT_OK;
    if (retain_log_empty(&r->log))
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to retain a message");
    r->log_full = true; /* what is acknowledged makes room */
    return WEFT_NO_RESOURCE;
}

static inline void keep_retained(struct retain *r, size_t size, size_t cost) {
    assert(!r->log.last->run.limit); /* the lane took all before it */
    retain_log_keep(&r->log, size, cost);
    resume_count_sent(&r->core);
}

/* The memory of the first is back where it belongs, or will be, and it is to go. */
static void drop_first(struct retain *r, struct retained *m, weft_status_t status) {
    struct completion *owner = retained_is_zcopy(m) ? retained_zcopy(m)->owner : NULL;
    if (retained_is_zcopy(m)) talloc_free(retained_zcopy(m)->copy);
    r->first += !m->flush;
    r->n_flushes -= m->flush;
    weft__retain_log_drop(&r->log, size_of(m), cost_of(m), r->core.sent);
    if (owner) completion_step(owner, status);
}

static bool is_below(const struct retained *m) {
    return retained_is_zcopy(m) && retained_zcopy(m)->below.count > 0;
}

void weft__retain_rewind(struct retain *r) {
    r->at = weft__retain_log_begin(&r->log);
    r->again = r->first;
}

/* Most messages go with their block, and are not even looked at. */
static bool drop_block(struct retain *r) {
    if (!weft__retain_log_drop_block(&r->log, r->core.acked, r->core.sent)) return false;
    r->first = r->log.first->number;
    return true;
}

/* Does it matter that a block goes message by message? */
static bool is_looked_through(const struct retain *r) {
    return r->log_full || r->n_flushes || r->closing || (r->log.first && r->log.first->special);
}

void weft__retain_let_go(struct retain *r) {
    struct retained *m;
    if (r->letting_go) return;
    r->letting_go = true;
    for (;;) {
        if (drop_block(r)) continue;
        if (!is_looked_through(r) || !(m = retain_log_first(&r->log))) break;
        if ((!m->flush && r->first >= r->core.acked) || is_below(m)) break;
        drop_first(r, m, WEFT_OK);
    }
    r->letting_go = false;
    if (r->again <= r->first) weft__retain_rewind(r);
    bool was_full = r->log_full;
    r->log_full = false;
    if (retain_log_empty(&r->log))
        weft__retain_emptied(r);
    else if (r->closing || r->n_flushes || was_full)
        weft__retain_request(r);
}

bool weft__retain_let_all_go(struct retain *r, weft_status_t status) {
    struct retained *m;
    while ((m = retain_log_first(&r->log)) != NULL) {
        if (is_below(m)) return false;
        drop_first(r, m, status);
    }
    return weft__retain_log_let_go(&r->log);
}

void weft__retain_came_home(struct retain_log *log) {
    struct retain *r = list_of(log, struct retain, log);
    if (r->dead) weft__job_post(reactor_of(r), &r->job);
}

/* Whatever became of it there: the peer says whether it has it. */
static void came_back(struct completion *below, weft_status_t status) {
    struct retain_zcopy *in_flight = list_of(below, struct retain_zcopy, below);
    struct retain *r = in_flight->log_owner;
    below->status = WEFT_OK;
    if (in_flight->copy) weft__retain_give_back(in_flight);
    if (!r->dead && r->first < r->core.acked) weft__retain_let_go(r);
    if (r->dead || pending_queue_waits(&r->queue))
        weft__job_post(reactor_of(r), &r->job); /* who waits for room may have it now */
}

/* ---- sending --------------------------------------------------------------------------------- */

/* A lane that is about to report `down` takes nothing, and neither do we until it has
 * reported it. */
static weft_status_t retain_refused(struct retain *r, weft_status_t st) {
    if (st == WEFT_ERR_TOO_BIG || st == WEFT_ERR_NO_MEMORY || st == WEFT_ERR_INVALID_PARAM)
        return st;
    r->raw_full = true;
    return WEFT_NO_RESOURCE;
}

/* To the last block's run, where there is room for it. */
static inline void add_retained(struct retain *r, struct retain_block *b, size_t size) {
    b->run.end += size;
    b->run.n++;
    r->log.added += size;
    resume_count_sent(&r->core);
}

/* The lane takes the run that it was given, and sends from there on what is added, of that size at
 * first. */
static NOINLINE weft_status_t begin_run(struct retain *r, size_t size) {
    struct retained *m;
    weft_status_t st = make_room(r, size, size, &m);
    if (st != WEFT_OK) return st;
    struct retain_block *b = r->log.last;
    size_t room = (size_t)(retain_block_end(b) - b->run.end), left = retain_log_left(&r->log);
    if (room > left) room = left > size ? left : size;
    st = r->raw->ops->buffer->am_run(r->raw, &b->run, size, room, retain_block_ref(b));
    if (LIKELY(st == WEFT_OK)) return WEFT_OK;
    retain_block_unref(b);
    return retain_refused(r, st);
}

void weft__retain_end_run(struct retain *r) {
    if (r->raw && r->runs) r->raw->ops->buffer->am_run(r->raw, NULL, 0, 0, NULL);
}

/* Is there a run, with room for a message of that size? */
static inline bool runs_on(const struct retain_block *b, size_t size) {
    return b && b->run.end + size <= b->run.limit;
}

static inline void *put_head(char *to, uint8_t id, size_t len, size_t size) {
    memset(to + size - LANE_HEAD, 0, LANE_HEAD); /* what follows up to there */
    *(struct retained *)(void *)to =
        (struct retained){.len = (uint32_t)len, .kind = RETAINED_COPY, .id = id};
    return to + LANE_HEAD;
}

/* Most are of a few bytes. */
static inline void put_message(char *to, uint64_t header, const void *data, size_t len) {
    memcpy(to, &header, sizeof header);
    to += sizeof header;
    if (len >= 8 && len <= 16) {
        memcpy(to, data, 8);
        memcpy(to + len - 8, (const char *)data + len - 8, 8);
    } else if (len) {
        memcpy(to, data, len);
    }
}

/* Sent by a lane that has no runs, and kept. */
static NOINLINE weft_status_t short_apart(struct retain *r, uint8_t id, uint64_t header,
                                          const void *data, size_t len) {
    struct retained *m;
    size_t size = retained_size(sizeof header + len, false, 0);
    weft_status_t st = make_room(r, size, size, &m);
    if (st != WEFT_OK) return st;
    st = r->raw->ops->am_short(r->raw, id, header, data, len);
    if (UNLIKELY(st != WEFT_OK)) return retain_refused(r, st);
    put_message(put_head((char *)m, id, sizeof header + len, size), header, data, len);
    add_retained(r, r->log.last, size);
    return WEFT_OK;
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct retain *r = weft__retain_of(l);
    struct retain_block *b = r->log.last;
    size_t size = retained_size(sizeof header + len, false, 0);
    if (UNLIKELY(!runs_on(b, size))) {
        if (!r->runs) return short_apart(r, id, header, data, len);
        weft_status_t st = begin_run(r, size);
        if (st != WEFT_OK) return st;
        b = r->log.last;
    }
    put_message(put_head(b->run.end, id, sizeof header + len, size), header, data, len);
    add_retained(r, b, size);
    return WEFT_OK;
}

/* Gives what was packed there its head, and returns its size in the log. */
static size_t keep_packed(struct retained *m, uint8_t id, size_t len) {
    size_t size = retained_size(len, false, 0);
    memset((char *)(m + 1) + len, 0, size - sizeof *m - len);
    *m = (struct retained){.len = (uint32_t)len, .kind = RETAINED_COPY, .id = id};
    return size;
}

struct keeping {
    struct retained *m;
    uint8_t id;
    size_t (*pack)(void *to, void *arg);
    void *arg;
    size_t size; /* in the log */
};
static size_t pack_and_keep(void *to, void *arg) {
    struct keeping *k = arg;
    size_t len = k->pack(k->m + 1, k->arg);
    k->size = keep_packed(k->m, k->id, len);
    memcpy(to, k->m + 1, len);
    return len;
}

/* By a lane that has no runs: it is packed once that has room. */
static NOINLINE weft_status_t bcopy_apart(struct retain *r, uint8_t id, size_t most,
                                          size_t (*pack)(void *to, void *arg), void *arg) {
    struct keeping k = {.id = id, .pack = pack, .arg = arg};
    weft_status_t st = make_room(r, most, most, &k.m);
    if (st != WEFT_OK) return st;
    st = r->raw->ops->am_bcopy(r->raw, id, pack_and_keep, &k);
    if (UNLIKELY(st != WEFT_OK)) return retain_refused(r, st);
    add_retained(r, r->log.last, k.size);
    return WEFT_OK;
}

/* Packed where it is kept. */
static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg) {
    struct retain *r = weft__retain_of(l);
    struct retain_block *b = r->log.last;
    if (is_hello(id)) {
        weft_status_t st = r->raw->ops->am_bcopy(r->raw, id, pack, arg);
        return st == WEFT_OK ? st : retain_refused(r, st);
    }
    size_t most = retained_size(l->iface->attr.max_bcopy, false, 0);
    if (!runs_on(b, most)) {
        if (!r->runs) return bcopy_apart(r, id, most, pack, arg);
        weft_status_t st = begin_run(r, most);
        if (st != WEFT_OK) return st;
        b = r->log.last;
    }
    struct retained *m = (struct retained *)(void *)b->run.end;
    add_retained(r, b, keep_packed(m, id, pack(m + 1, arg)));
    return WEFT_OK;
}

static size_t gather_retained(void *to, void *arg) {
    const struct lane_zcopy *g = arg;
    size_t len = weft__iov_len(g->iov, g->n_iov);
    if (g->header_len) memcpy(to, g->header, g->header_len);
    weft__iov_gather((char *)to + g->header_len, g->iov, g->n_iov, 0, len);
    return g->header_len + len;
}

static weft_status_t zcopy_retained(struct retain *r, uint8_t id, const struct lane_zcopy *msg,
                                    struct completion *completion) {
    struct retained *m;
    size_t size = retained_size(msg->header_len, true, msg->n_iov),
           len = weft__iov_len(msg->iov, msg->n_iov) + msg->header_len;
    size_t cost = size + len - msg->header_len + RETAIN_COST;
    if (msg->n_iov > RETAIN_IOV)
        return weft__fail(WEFT_ERR_TOO_BIG, "message of %zu pieces", msg->n_iov);
    weft_status_t st = make_room(r, size, cost, &m);
    if (st != WEFT_OK) return st;
    *m =
        (struct retained){.len = (uint32_t)msg->header_len, .id = id, .n_iov = (uint8_t)msg->n_iov};
    struct retain_zcopy *in_flight = retained_zcopy(m);
    *in_flight = (struct retain_zcopy){
        .below = {.done = came_back, .count = 1}, .owner = completion, .log_owner = r};
    memcpy(retained_iov(m), msg->iov, msg->n_iov * sizeof *msg->iov);
    if (msg->header_len) memcpy(retained_bytes(m), msg->header, msg->header_len);
    st = r->raw->ops->am_zcopy(r->raw, id, msg, &in_flight->below);
    if (st != WEFT_OK && st != WEFT_IN_PROGRESS) return retain_refused(r, st);
    if (st == WEFT_OK) in_flight->below.count = 0;
    keep_retained(r, size, cost);
    r->log.last->special = true;
    if (len <= RETAIN_COPY) weft__retain_request(r);
    return WEFT_IN_PROGRESS;
}

static weft_status_t am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    size_t len = msg->header_len + weft__iov_len(msg->iov, msg->n_iov);
    if (len > RETAIN_COPY || len > l->iface->attr.max_bcopy)
        return zcopy_retained(weft__retain_of(l), id, msg, completion);
    return am_bcopy(l, id, gather_retained, (void *)msg);
}

/* Its place in the log is behind all that it waits for. */
static weft_status_t flush_retained(struct lane *l, struct completion *completion) {
    struct retain *r = weft__retain_of(l);
    if (retain_log_empty(&r->log)) return WEFT_OK;
    size_t size = retained_size(0, true, 0);
    weft__retain_end_run(r);
    struct retained *m = retain_log_room(&r->log, size, r->core.sent);
    if (!m) return WEFT_ERR_NO_MEMORY;
    *m = (struct retained){.flush = true};
    *retained_zcopy(m) = (struct retain_zcopy){.owner = completion, .log_owner = r};
    retain_log_keep(&r->log, size, cost_of(m));
    r->log.last->special = true;
    r->n_flushes++;
    weft__retain_request(r);
    return WEFT_IN_PROGRESS;
}

/* ---- again, on a new lane -------------------------------------------------------------------- */

static size_t pack_kept(void *to, void *arg) {
    const struct retained *m = arg;
    memcpy(to, retained_bytes(m), m->len);
    return m->len;
}

/* A short one is longer than a packed one may be, by its header. */
static weft_status_t send_kept(const struct retain *r, struct retained *m) {
    struct lane *raw = r->raw;
    uint64_t header;
    const char *bytes = retained_bytes(m);
    if (m->len < sizeof header || m->len - sizeof header > raw->iface->attr.max_short)
        return raw->ops->am_bcopy(raw, m->id, pack_kept, m);
    memcpy(&header, bytes, sizeof header);
    return raw->ops->am_short(raw, m->id, header, bytes + sizeof header, m->len - sizeof header);
}

static weft_status_t send_again(struct retain *r, struct retained *m) {
    struct lane *raw = r->raw;
    if (!retained_is_zcopy(m)) return send_kept(r, m);
    struct retain_zcopy *in_flight = retained_zcopy(m);
    in_flight->below.count++;
    weft_status_t st = raw->ops->am_zcopy(
        raw, m->id, &(struct lane_zcopy){retained_bytes(m), m->len, retained_iov(m), m->n_iov},
        &in_flight->below);
    if (st != WEFT_IN_PROGRESS) in_flight->below.count--;
    return st == WEFT_IN_PROGRESS ? WEFT_OK : st;
}

/* NO_RESOURCE: the lane has no room. IN_PROGRESS: it is broken, or memory is awaited. */
static weft_status_t resend(struct retain *r) {
    struct retained *m;
    while ((m = weft__retain_log_at(&r->at)) != NULL) {
        /* What the peer has may be here still: an earlier lane has not given it back. */
        bool goes = !m->flush && r->again >= r->core.acked;
        weft_status_t st = goes ? send_again(r, m) : WEFT_OK;
        if (st == WEFT_NO_RESOURCE) return st;
        if (st < 0) {
            (st == WEFT_ERR_NO_MEMORY ? weft__retain_awaits_memory : weft__retain_broke)(r, st);
            return WEFT_IN_PROGRESS;
        }
        r->again += !m->flush;
        if (goes) r->link->worker->count->lanes_resent += m->len + in_flight_len(m);
        retain_log_next(&r->at, size_of(m));
    }
    r->lane.ops = &weft__retain_ops_open;
    weft__retain_sent_again(r);
    return WEFT_OK;
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

/* False: no room. */
static bool send_msg(struct retain *r, enum lane_kind kind, uint64_t count) {
    struct wire_message m;
    weft__lane_count(&m, kind, count);
    return weft__lane_send_ctrl(r->raw, &m) == WEFT_OK;
}

/* The next is being placed already: one acknowledgement for both, unless many bytes wait for it. */
static bool ack_can_wait(const struct retain *r) {
    return r->placement && r->unacked_cost < RETAIN_ACK_PLACEMENT;
}

static bool send_acks(struct retain *r) {
    if (r->ack_due && !ack_can_wait(r)) {
        if (!send_msg(r, LANE_ACK, r->core.delivered)) return false;
        r->ack_due = false;
        r->unacked_cost = r->notify_at = 0;
    }
    if (r->ask_due) {
        if (!send_msg(r, LANE_ACK_ASK, 0)) return false;
        r->ask_due = false;
        r->asked = true;
    }
    return true;
}

void weft__retain_request(struct retain *r) {
    if (r->asked || r->ask_due) return;
    r->ask_due = true;
    weft__job_post(reactor_of(r), &r->job);
}

/* ---- when there is room again ---------------------------------------------------------------- */

static weft_status_t retain_go(struct retain *r) {
    r->raw_full = false;
    if (!send_acks(r)) return WEFT_NO_RESOURCE;
    weft_status_t st = r->lane.ops == &weft__retain_ops_open ? WEFT_OK : resend(r);
    if (st != WEFT_OK) return st;
    while (pending_queue_retry(&r->queue)) continue;
    if (pending_queue_waits(&r->queue) && r->log_full) weft__retain_request(r);
    return r->raw_full && pending_queue_waits(&r->queue) ? WEFT_NO_RESOURCE : WEFT_OK;
}

static weft_status_t raw_retry(struct pending *pending) {
    struct retain *r = list_of(pending, struct retain, raw_pending);
    r->pumping = true;
    weft_status_t st = retain_go(r);
    r->pumping = false;
    r->waits = st == WEFT_NO_RESOURCE;
    return st;
}

void weft__retain_pump(struct retain *r) {
    r->raw_pending.retry = raw_retry;
    if (!r->raw || r->waits || r->pumping || !resume_is_steady(&r->core.fsm)) return;
    if (raw_retry(&r->raw_pending) == WEFT_NO_RESOURCE)
        r->raw->ops->pending_add(r->raw, &r->raw_pending);
}

void weft__retain_send_acks(struct retain *r) {
    if (r->ack_due || r->ask_due || (pending_queue_waits(&r->queue) && !r->log_full))
        weft__retain_pump(r);
}

static void pending_add(struct lane *l, struct pending *pending) {
    struct retain *r = weft__retain_of(l);
    pending_queue_add(&r->queue, pending);
    if (r->log_full) weft__retain_request(r);
    if (r->pumping || r->waits || !r->raw || !r->raw_full) return;
    r->raw_pending.retry = raw_retry;
    r->waits = true;
    r->raw->ops->pending_add(r->raw, &r->raw_pending);
}

static void pending_remove(struct lane *l, struct pending *pending) {
    pending_queue_remove(&weft__retain_of(l)->queue, pending);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void describe_retained(struct lane *l, char *buf, size_t size) {
    struct retain *r = weft__retain_of(l);
    if (r->raw)
        r->raw->ops->describe(r->raw, buf, size);
    else
        snprintf(buf, size, "no lane; a new connection is awaited");
}

/* The lane that follows brings what it brings until it is paused itself. */
static weft_status_t pause_raw(struct lane *l, bool on) {
    struct lane *raw = weft__retain_of(l)->raw;
    return raw && raw->ops->pause ? raw->ops->pause(raw, on) : WEFT_OK;
}

LANE_SENDS_ANSWER(shut, WEFT_NO_RESOURCE)

static const struct lane_buffer_ops buffer_ops = {.reclaim = weft__retain_reclaim};
#define OPS(short_, bcopy, zcopy)                                                          \
    {                                                                                      \
        .am_short = short_, .am_bcopy = bcopy, .am_zcopy = zcopy, .flush = flush_retained, \
        .pending_add = pending_add, .pending_remove = pending_remove,                      \
        .recv_msg = weft__retain_set_handlers, .pause = pause_raw,                         \
        .place_stop = weft__retain_place_stop, .close = weft__retain_close,                \
        .describe = describe_retained, .buffer = &buffer_ops                               \
    }
const struct lane_ops weft__retain_ops_open = OPS(am_short, am_bcopy, am_zcopy);
const struct lane_ops weft__retain_ops_shut = OPS(shut_short, shut_bcopy, shut_zcopy);
