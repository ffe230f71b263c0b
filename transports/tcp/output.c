/*
 * Sending. The lane gathers messages in a buffer (an I/O batch) and writes it at the end of the
 * turn, or when it is full. Zero-copy memory goes into the same write, in order. Replies from
 * handlers leave when all frames of the read have been delivered. weft__tcp_output_turn and
 * weft__tcp_output_notify step the completions, from jobs, polls and watches, never inside a call
 * by the owner.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <base/compiler.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <transports/answering.h>
#include <transports/common.h>
#include <transports/copy.h>

/* ---- the batch ------------------------------------------------------------------------------- */

/* One piece stays free for a goodbye. */
static inline bool has_room(const struct tcp_lane *lane, size_t bytes, unsigned pieces) {
    const struct tcp_output *out = &lane->out;
    return out->iov_batch && out->fill + bytes <= out->iov_batch->room &&
           out->end + pieces < out->iov_batch->pieces;
}

static inline struct tcp_buffer *take_iov_batch(struct tcp_lane *lane,
                                                enum tcp_buffer_class class) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_buffer *buffer = tcp_pool_take(&iface->pool, iface, class);
    if (!buffer) return NULL;
    lane->out.iov_batch = (struct tcp_iov_batch *)(void *)buffer->bytes;
    lane->out.iov_batch->run = NULL;
    return buffer;
}

/* From the small buffer to an I/O batch with room for more; the pieces point into the new one. */
static bool copy_over(struct tcp_lane *lane) {
    struct tcp_output *out = &lane->out;
    const struct tcp_iov_batch *from = out->iov_batch;
    if (!take_iov_batch(lane, TCP_BUF_IOV_BATCH)) return false;
    for (uint32_t i = out->notified; i < out->end; i++) {
        uintptr_t offset = (uintptr_t)from->iov[i].iov_base - (uintptr_t)from->bytes;
        out->iov_batch->iov[i] = from->iov[i];
        out->iov_batch->done[i] = from->done[i];
        if (offset <= out->fill) out->iov_batch->iov[i].iov_base = out->iov_batch->bytes + offset;
    }
    memcpy(out->iov_batch->bytes, from->bytes, out->fill);
    out->iov_batch->run = from->run;
    if (out->open) out->open = &out->iov_batch->iov[out->end - 1];
    weft__tcp_pool_put(&tcp_iface_of(lane)->pool, tcp_buffer_of(from));
    return true;
}

/* The first of a turn, which usually stays the only one. */
static inline bool take_small_buf(struct tcp_lane *lane, size_t bytes) {
    return !lane->out.iov_batch && bytes <= TCP_SMALL_BUF &&
           take_iov_batch(lane, TCP_BUF_SMALL_BUF);
}

static weft_status_t need_iov_batch(struct tcp_lane *lane, size_t bytes, unsigned pieces) {
    const struct tcp_output *out = &lane->out;
    bool there = true;
    if (!out->iov_batch)
        there = take_iov_batch(lane, bytes <= TCP_SMALL_BUF && pieces < TCP_SMALL_BUF_SEGMENTS
                                         ? TCP_BUF_SMALL_BUF
                                         : TCP_BUF_IOV_BATCH);
    else if (tcp_buffer_of(out->iov_batch)->class == TCP_BUF_SMALL_BUF &&
             !has_room(lane, bytes, pieces))
        there = copy_over(lane);
    return there ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a send buffer");
}

static void return_iov_batch(struct tcp_lane *lane) {
    struct tcp_output *out = &lane->out;
    weft__tcp_pool_put(&tcp_iface_of(lane)->pool,
                       out->iov_batch ? tcp_buffer_of(out->iov_batch) : NULL);
    out->iov_batch = NULL;
    out->open = NULL;
    out->notified = out->first = out->end = 0;
    out->fill = 0;
}

/* If the completion counts other operations as well, this step calls no user code, and may run at
 * once. */
static void step_quietly(struct tcp_output *out) {
    for (; out->notified < out->first; out->notified++) {
        struct completion *done = out->iov_batch->done[out->notified];
        if (done && done->count == 1) return;
        if (done) done->count--;
    }
}

/* Pieces whose completions have stepped make room for new ones. */
static void close_ranks(struct tcp_output *out) {
    step_quietly(out);
    uint32_t n = out->end - out->notified, by = out->notified;
    if (by == 0) return;
    memmove(out->iov_batch->iov, out->iov_batch->iov + by, n * sizeof *out->iov_batch->iov);
    memmove(out->iov_batch->done, out->iov_batch->done + by, n * sizeof *out->iov_batch->done);
    if (out->open) out->open -= by;
    out->notified = 0;
    out->first -= by;
    out->end -= by;
}

/* While the lane is read it need not be: the reader sends what is there
 * (weft__tcp_output_answer). */
static inline void make_dirty(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    if (lane->out.dirty || lane->in.reading) return;
    lane->out.dirty = true;
    iface->n_dirty++;
    STAILQ_INSERT_TAIL(&iface->dirty, lane, of_dirty);
    weft__job_post(iface->iface.reactor, &iface->flush_job);
}

void weft__tcp_output_clean(struct tcp_lane *lane) {
    if (!lane->out.dirty) return;
    lane->out.dirty = false;
    tcp_iface_of(lane)->n_dirty--;
    STAILQ_REMOVE(&tcp_iface_of(lane)->dirty, lane, tcp_lane, of_dirty);
}

static inline void output_sent(struct tcp_lane *lane, size_t messages, size_t bytes) {
    struct counters *count = tcp_count(lane);
    count->tcp_messages += messages;
    count->tcp_bytes += bytes;
}

/* What is in it by now is the last piece; what comes later, another. */
static void end_run(struct tcp_lane *lane, struct lane_run *run) {
    struct tcp_output *out = &lane->out;
    size_t len = (size_t)(run->end - run->begin);
    out->iov_batch->run = NULL;
    out->iov_batch->iov[out->end - 1].iov_len = len;
    out->queued += len;
    run->limit = NULL;
    output_sent(lane, run->n, len - run->n * (size_t)LANE_HEAD);
}

static inline void take_run(struct tcp_lane *lane) {
    struct lane_run *run = lane->out.iov_batch ? lane->out.iov_batch->run : NULL;
    if (UNLIKELY(run != NULL)) end_run(lane, run);
}

static inline void add_bytes(struct tcp_lane *lane, size_t n) {
    struct tcp_output *out = &lane->out;
    if (!out->open) {
        take_run(lane);
        out->open = &out->iov_batch->iov[out->end];
        *out->open = (struct iovec){out->iov_batch->bytes + out->fill, 0};
        out->iov_batch->done[out->end++] = NULL;
    }
    out->open->iov_len += n;
    out->fill += (uint32_t)n;
    out->queued += n;
    make_dirty(lane);
}

static void add_zcopied(struct tcp_lane *lane, void *base, size_t len) {
    struct tcp_output *out = &lane->out;
    take_run(lane);
    out->iov_batch->iov[out->end] = (struct iovec){base, len};
    out->iov_batch->done[out->end++] = NULL;
    out->open = NULL;
    out->queued += len;
}

/* ---- writing --------------------------------------------------------------------------------- */

static ssize_t write_once(struct tcp_lane *lane) {
    struct tcp_output *out = &lane->out;
    struct iovec *iov = out->iov_batch->iov + out->first;
    size_t pieces = (size_t)out->end - out->first;
    ssize_t n;
    do {
        tcp_count(lane)->tcp_writes++;
        n = pieces == 1
                ? send(lane->watch.fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                : sendmsg(lane->watch.fd, &(struct msghdr){.msg_iov = iov, .msg_iovlen = pieces},
                          MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n;
}

static void advance_output(struct tcp_output *out, size_t n) {
    struct iovec *iov = out->iov_batch->iov;
    out->queued -= n;
    while (out->first < out->end && iov[out->first].iov_len <= n) n -= iov[out->first++].iov_len;
    if (n) {
        iov[out->first].iov_base = (char *)iov[out->first].iov_base + n;
        iov[out->first].iov_len -= n;
    }
    if (out->first < out->end) return;
    out->open = NULL;
    /* also when completions have not stepped yet: they need the pieces, not the bytes */
    out->fill = 0;
    if (out->notified == out->end) out->notified = out->first = out->end = 0;
}

static void block(struct tcp_lane *lane) {
    lane->out.blocked = true;
    weft__tcp_hot_enter(lane); /* a polled worker tries again sooner than epoll is asked */
    weft_status_t st = weft__tcp_lane_watch(lane, lane->watch.events | WATCH_WRITE);
    if (st == WEFT_OK) return;
    weft__tcp_lane_why(lane, st);
    weft__tcp_lane_todo(lane, TODO_BREAK);
}

/* The peer may have said goodbye before it went, so its last words are read before the lane is
 * given up. */
static void write_failed(struct tcp_lane *lane, int error) {
    weft_status_t st = weft__errno_status(error);
    lane->out.blocked = true;
    if (st != WEFT_ERR_PEER_FAILED && st != WEFT_ERR_TIMED_OUT) {
        weft__tcp_lane_note(lane, "sending on its socket", error);
        weft__tcp_lane_why(lane, st);
    }
    weft__tcp_lane_todo(lane, TODO_READ | TODO_BREAK);
}

/* As much as the socket takes. A write that was cut short says that it takes no more. */
static void write_pieces(struct tcp_lane *lane) {
    struct tcp_output *out = &lane->out;
    size_t asked = out->queued;
    ssize_t n = write_once(lane);
    if (n >= 0) {
        const struct iface_up *up = lane->lane.iface->up;
        if (up->worked) up->worked(&lane->lane, (uint64_t)n);
        if (!weft__timer_running(&lane->deadline)) weft__tcp_alive_watch(lane);
        advance_output(out, (size_t)n);
        if ((size_t)n < asked) block(lane);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        block(lane);
    } else {
        write_failed(lane, errno);
    }
}

static void write_out(struct tcp_lane *lane) {
    const struct tcp_output *out = &lane->out;
    if (out->blocked) return;
    take_run(lane);
    if (out->first < out->end) write_pieces(lane);
}

static void notify_written(struct tcp_lane *lane) {
    struct tcp_output *out = &lane->out;
    while (out->notified < out->first) {
        struct completion *done = out->iov_batch->done[out->notified++];
        if (done) completion_step(done, WEFT_OK);
    }
    if (out->iov_batch && out->notified == out->end) return_iov_batch(lane);
}

void weft__tcp_output_retry(struct tcp_lane *lane) {
    while (lane->lane.ops == &weft__tcp_ops_open && pending_queue_retry(&lane->pending)) continue;
}

void weft__tcp_output_turn(struct tcp_lane *lane) {
    struct tcp_output *out = &lane->out;
    out->begun = false;
    if (!out->blocked) take_run(lane);
    bool waiting = out->queued > 0;
    write_out(lane);
    if (waiting && out->queued == 0 && fsm_verb(&lane->conn.fsm, TCP_CONN_EV_SENT) != FSM_SKIP)
        weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_SENT);
    notify_written(lane);
    if (pending_queue_waits(&lane->pending) && !out->blocked) weft__tcp_output_retry(lane);
}

void weft__tcp_output_answer(struct tcp_lane *lane) {
    if (!lane->out.iov_batch || lane->out.blocked || lane->watch.fd < 0) return;
    weft__tcp_output_clean(lane);
    weft__tcp_output_turn(lane);
}

void weft__tcp_output_unblock(struct tcp_lane *lane) {
    lane->out.blocked = false;
    weft__tcp_output_turn(lane);
    if (lane->out.blocked || !(lane->watch.events & WATCH_WRITE)) return;
    if (weft__tcp_lane_watch(lane, lane->watch.events & WATCH_READ) < 0)
        weft__tcp_lane_todo(lane, TODO_BREAK);
}

/* Lanes that completions and retries mark dirty during the flush leave with the next one. */
int weft__tcp_flush_dirty(struct tcp_iface *iface) {
    int n = (int)iface->n_dirty;
    for (int i = 0; i < n && !STAILQ_EMPTY(&iface->dirty); i++) {
        struct tcp_lane *lane = STAILQ_FIRST(&iface->dirty);
        STAILQ_REMOVE_HEAD(&iface->dirty, of_dirty);
        lane->out.dirty = false;
        iface->n_dirty--;
        weft__tcp_output_turn(lane);
    }
    return n;
}

void weft__tcp_output_notify(struct tcp_lane *lane, weft_status_t unwritten) {
    struct tcp_output *out = &lane->out;
    take_run(lane);
    while (out->notified < out->end) {
        weft_status_t st = out->notified < out->first ? WEFT_OK : unwritten;
        struct completion *done = out->iov_batch->done[out->notified++];
        if (out->notified > out->first) out->first = out->notified;
        if (done) completion_step(done, st);
    }
    out->queued = 0;
    if (out->iov_batch) return_iov_batch(lane);
}

/* ---- active messages ------------------------------------------------------------------------- */

/* OK if there is room for that many bytes and pieces, otherwise NO_RESOURCE or an error. Flushes
 * the queue if that makes room. */
static weft_status_t make_room(struct tcp_lane *lane, size_t bytes, unsigned pieces) {
    weft_status_t st = need_iov_batch(lane, bytes, pieces);
    if (st < 0) return st;
    if (has_room(lane, bytes, pieces)) return WEFT_OK;
    write_out(lane);
    close_ranks(&lane->out);
    return has_room(lane, bytes, pieces) ? WEFT_OK : WEFT_NO_RESOURCE;
}

static inline uint8_t *begin_frame(struct tcp_lane *lane) {
    return lane->out.iov_batch->bytes + lane->out.fill;
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct tcp_lane *lane = tcp_lane(l);
    size_t size = tcp_frame_size((uint32_t)len + 8);
    if (len > l->iface->attr.max_short) return weft__refuse_short(l, len);
    if (!take_small_buf(lane, size) && !has_room(lane, size, 1)) {
        weft_status_t st = make_room(lane, size, 1);
        if (st != WEFT_OK) return st;
    }
    uint8_t *p = begin_frame(lane);
    tcp_put64(p + size - 8, 0); /* the padding */
    tcp_frame_encode(p, TCP_FRAME_AM, id, (uint32_t)len + 8);
    memcpy(p + TCP_FRAME_HEAD, &header, 8);
    weft__copy_short(p + TCP_FRAME_HEAD + 8, data, len);
    add_bytes(lane, size);
    output_sent(lane, 1, len);
    return WEFT_OK;
}

/* Returns the length of the message. */
static size_t pack_frame(uint8_t *p, uint8_t id, size_t (*pack)(void *to, void *arg), void *arg) {
    size_t len = pack(p + TCP_FRAME_HEAD, arg), size = tcp_frame_size((uint32_t)len);
    memset(p + TCP_FRAME_HEAD + len, 0, size - TCP_FRAME_HEAD - len);
    tcp_frame_encode(p, TCP_FRAME_AM, id, (uint32_t)len);
    return len;
}

static void add_frame(struct tcp_lane *lane, size_t len) {
    add_bytes(lane, tcp_frame_size((uint32_t)len));
    output_sent(lane, 1, len);
}

/* How long it is shows when it is packed: in a borrowed batch, since a small buffer may do. */
static weft_status_t bcopy_apart(struct tcp_lane *lane, uint8_t id,
                                 size_t (*pack)(void *to, void *arg), void *arg) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_buffer *apart = tcp_pool_take(&iface->pool, iface, TCP_BUF_IOV_BATCH);
    if (!apart) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a send buffer");
    uint8_t *packed = ((struct tcp_iov_batch *)(void *)apart->bytes)->bytes;
    size_t len = pack_frame(packed, id, pack, arg), size = tcp_frame_size((uint32_t)len);
    weft_status_t st = make_room(lane, size, 1);
    if (st == WEFT_OK) {
        memcpy(begin_frame(lane), packed, size);
        add_frame(lane, len);
    }
    weft__tcp_pool_put(&iface->pool, apart);
    return st;
}

static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg) {
    struct tcp_lane *lane = tcp_lane(l);
    const struct tcp_output *out = &lane->out;
    size_t most = tcp_frame_size(l->iface->attr.max_bcopy);
    if (!has_room(lane, most, 1)) {
        if (!out->iov_batch ||
            (tcp_buffer_of(out->iov_batch)->class == TCP_BUF_SMALL_BUF && has_room(lane, 0, 1)))
            return bcopy_apart(lane, id, pack, arg);
        weft_status_t st = make_room(lane, most, 1);
        if (st != WEFT_OK) return st;
    }
    add_frame(lane, pack_frame(begin_frame(lane), id, pack, arg));
    return WEFT_OK;
}

static weft_status_t copy_out(struct tcp_lane *lane, uint8_t *to, const weft_iov_t *iov,
                              size_t n_iov, size_t size) {
    for (size_t i = 0; i < n_iov; to += iov[i++].len)
        if (iov[i].len) memcpy(to, iov[i].base, iov[i].len);
    add_bytes(lane, size);
    return WEFT_OK;
}

/* Zero-copy memory is sent in calls as large as possible: the kernel takes 1 MiB at 1.2 times
 * the speed of 256 KiB. Between two turns the first leaves at once, so that the peer has
 * something to do. */
static bool flush_is_due(struct tcp_lane *lane) {
    const struct tcp_output *out = &lane->out;
    bool gathers = out->begun || weft__reactor_in_turn(tcp_reactor(lane));
    return out->queued >= (gathers ? (size_t)TCP_WRITE_MOST : TCP_WRITE_AT);
}

/* If its last piece has left already, the memory is free at once, without a callback. */
static weft_status_t zcopy_output(struct tcp_lane *lane, const weft_iov_t *iov, size_t n_iov,
                                  size_t pad, struct completion *completion) {
    struct tcp_output *out = &lane->out;
    for (size_t i = 0; i < n_iov; i++)
        if (iov[i].len) add_zcopied(lane, iov[i].base, iov[i].len);
    uint32_t last = out->end - 1;
    out->iov_batch->done[last] = completion;
    if (pad) {
        memset(out->iov_batch->bytes + out->fill, 0, pad);
        add_bytes(lane, pad); /* a piece of its own, to which the next message is added */
    }
    if (flush_is_due(lane)) {
        out->begun = true;
        write_out(lane);
    }
    if (out->first <= last) return WEFT_IN_PROGRESS;
    out->iov_batch->done[last] = NULL;
    return WEFT_OK;
}

static weft_status_t am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    struct tcp_lane *lane = tcp_lane(l);
    size_t payload = 0;
    if (msg->n_iov > TCP_MAX_IOV)
        return weft__fail(WEFT_ERR_TOO_BIG, "am_zcopy of %zu pieces over tcp", msg->n_iov);
    for (size_t i = 0; i < msg->n_iov; i++) {
        if (msg->iov[i].len > TCP_MAX_PAYLOAD - payload)
            return weft__fail(WEFT_ERR_TOO_BIG, "am_zcopy of a payload beyond max_zcopy over tcp");
        payload += msg->iov[i].len;
    }
    if (msg->header_len > TCP_MAX_HEADER)
        return weft__fail(WEFT_ERR_TOO_BIG, "am_zcopy with a header of %zu bytes over tcp",
                          msg->header_len);
    size_t len = msg->header_len + payload, size = tcp_frame_size((uint32_t)len),
           pad = size - TCP_FRAME_HEAD - len;
    bool copy = payload <= TCP_COPY_BELOW;
    size_t bytes = copy ? size : TCP_FRAME_HEAD + msg->header_len + pad;
    unsigned pieces = copy ? 1 : (unsigned)msg->n_iov + 2;
    weft_status_t st = make_room(lane, bytes, pieces);
    if (st != WEFT_OK) return st;

    uint8_t *p = begin_frame(lane);
    tcp_frame_encode(p, TCP_FRAME_AM, id, (uint32_t)len);
    if (msg->header_len) memcpy(p + TCP_FRAME_HEAD, msg->header, msg->header_len);
    output_sent(lane, 1, payload);
    if (copy) {
        memset(p + size - pad, 0, pad);
        return copy_out(lane, p + TCP_FRAME_HEAD + msg->header_len, msg->iov, msg->n_iov, size);
    }
    add_bytes(lane, TCP_FRAME_HEAD + msg->header_len);
    return zcopy_output(lane, msg->iov, msg->n_iov, pad, completion);
}

/* A piece of its own, whose length shows when it is taken. */
static weft_status_t am_run(struct lane *l, struct lane_run *run, size_t least, size_t most,
                            struct completion *completion) {
    struct tcp_lane *lane = tcp_lane(l);
    struct tcp_output *out = &lane->out;
    take_run(lane);
    if (!run) return WEFT_OK;
    if (out->queued >= TCP_WRITE_RUNS) {
        write_out(lane);
        close_ranks(out);
    }
    weft_status_t st = make_room(lane, 0, 1);
    if (st != WEFT_OK) return st;
    add_zcopied(lane, run->end, 0);
    out->iov_batch->done[out->end - 1] = completion;
    out->iov_batch->run = run;
    run->begin = run->end;
    run->limit = run->end + most;
    run->n = 0;
    make_dirty(lane);
    return WEFT_OK;
}

_Static_assert((int)TCP_FRAME_HEAD == LANE_HEAD && (int)TCP_FRAME_AM == 1,
               "a run is of frames: struct lane_head");

static weft_status_t flush_output(struct lane *l, struct completion *completion) {
    struct tcp_lane *lane = tcp_lane(l);
    take_run(lane);
    if (lane->out.queued == 0) return WEFT_OK;
    weft_status_t st = make_room(lane, 0, 1);
    if (st != WEFT_OK) return st;
    if (lane->out.queued == 0) return WEFT_OK;
    add_zcopied(lane, NULL, 0);
    lane->out.iov_batch->done[lane->out.end - 1] = completion;
    return WEFT_IN_PROGRESS;
}

static void pending_add(struct lane *l, struct pending *p) {
    struct tcp_lane *lane = tcp_lane(l);
    pending_queue_add(&lane->pending, p);
    if (lane->lane.ops == &weft__tcp_ops_open && !lane->out.blocked)
        weft__tcp_lane_todo(lane, TODO_WRITTEN);
}

static void pending_remove(struct lane *l, struct pending *p) {
    pending_queue_remove(&tcp_lane(l)->pending, p);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Any batch has 8 bytes and a piece more than messages may use. */
void weft__tcp_output_goodbye(struct tcp_lane *lane) {
    if (!lane->out.iov_batch && need_iov_batch(lane, 0, 0) < 0) {
        weft__tcp_lane_why(lane, WEFT_ERR_NO_MEMORY);
        weft__tcp_lane_todo(lane, TODO_BREAK);
        return;
    }
    tcp_frame_encode(begin_frame(lane), TCP_FRAME_GOODBYE, 0, 0);
    add_bytes(lane, TCP_FRAME_HEAD);
}

void weft__tcp_output_part(struct tcp_lane *lane) {
    struct tcp_output *out = &lane->out;
    uint8_t goodbye[TCP_FRAME_HEAD];
    take_run(lane);
    if (out->queued) return; /* perhaps in the middle of a frame */
    tcp_frame_encode(goodbye, TCP_FRAME_GOODBYE, 0, 0);
    tcp_count(lane)->tcp_writes++;
    (void)!send(lane->watch.fd, goodbye, sizeof goodbye, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- the tables: not up yet, up, ended ------------------------------------------------------- */

LANE_SENDS_ANSWER(early, WEFT_NO_RESOURCE)
LANE_RUN_ANSWERS(early, WEFT_NO_RESOURCE)
static weft_status_t early_flush(struct lane *l, struct completion *completion) {
    return WEFT_OK;
}

static weft_status_t output_ended(struct lane *l) {
    const struct tcp_lane *lane = tcp_lane(l);
    return weft__fail(lane->why ? lane->why : WEFT_ERR_CLOSED, "the connection has ended");
}
LANE_SENDS_ANSWER(ended, output_ended(l))
static weft_status_t ended_run(struct lane *l, struct lane_run *run, size_t least, size_t most,
                               struct completion *completion) {
    take_run(tcp_lane(l));
    return output_ended(l);
}
static weft_status_t ended_flush(struct lane *l, struct completion *completion) {
    return output_ended(l);
}

static const struct lane_conn_ops conn_ops = {.peer_id = weft__tcp_lane_peer_id};
#define BUFFER_OPS(run) .am_run = run, .reclaim = weft__tcp_reclaim
static const struct lane_buffer_ops early_buffer_ops = {BUFFER_OPS(early_run)};
static const struct lane_buffer_ops open_buffer_ops = {BUFFER_OPS(am_run),
                                                       .keep = weft__tcp_input_keep};
static const struct lane_buffer_ops ended_buffer_ops = {BUFFER_OPS(ended_run)};

#define OPS(short_, bcopy, zcopy_output, flush_, buffer_)                                  \
    .am_short = short_, .am_bcopy = bcopy, .am_zcopy = zcopy_output, .flush = flush_,      \
    .pending_add = pending_add, .pending_remove = pending_remove,                          \
    .recv_msg = weft__tcp_input_recv, .place_stop = weft__tcp_place_stop,                  \
    .close = weft__tcp_lane_close, .describe = weft__tcp_lane_describe, .buffer = buffer_, \
    .conn = &conn_ops
const struct lane_ops weft__tcp_ops_early = {
    OPS(early_short, early_bcopy, early_zcopy, early_flush, &early_buffer_ops)};
const struct lane_ops weft__tcp_ops_open = {
    OPS(am_short, am_bcopy, am_zcopy, flush_output, &open_buffer_ops),
    .pause = weft__tcp_input_pause};
const struct lane_ops weft__tcp_ops_ended = {
    OPS(ended_short, ended_bcopy, ended_zcopy, ended_flush, &ended_buffer_ops)};
