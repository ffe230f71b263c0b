/* Sending: packs datagrams into a ring of registered memory and posts them at once; few ask for
 * a completion. */
#include "ud.h"

#include <base/compiler.h>
#include <stddef.h>
#include <string.h>
#include <transports/answering.h>
#include <transports/common.h>

#define OF_LATE(t) container_of(t, struct ud_iface, late)

/* ---- the ring -------------------------------------------------------------------------------- */

void weft__ud_send_halt(struct ud_iface *iface) {
    iface->send.limit = iface->send.next;
}

void weft__ud_send_reset(struct ud_iface *iface) {
    struct ud_send *s = &iface->send;
    s->done = s->next;
    s->limit = s->next + s->size;
    s->unsignalled = 0;
}

static uint8_t *slot(const struct ud_send *s) {
    return s->bytes + (size_t)(s->next & (s->size - 1)) * s->stride;
}

/* Posts what is in the slot. A device that will not take it breaks: the datagram is lost as any
 * other may be. */
static void post_datagram(struct ud_iface *iface, size_t len, bool signal) {
    struct ud_send *s = &iface->send;
    struct ibv_send_wr *bad;
    signal = signal || ++s->unsignalled >= s->signal_every;
    s->sge.addr = (uintptr_t)slot(s);
    s->sge.length = (uint32_t)len;
    s->wr.wr_id = UINT64_C(1) << 63 | (uint64_t)(iface->epoch & 0x7fff) << 48 | s->next;
    s->wr.send_flags =
        (signal ? IBV_SEND_SIGNALED : 0) | (len <= s->inline_most ? IBV_SEND_INLINE : 0);
    s->next++;
    if (signal) {
        s->unsignalled = 0;
        ud_count(iface)->rdma_ud_signals++;
    }
    if (UNLIKELY(ibv_post_send(iface->qp, &s->wr, &bad) != 0))
        weft__ud_qp_step(iface, UD_QP_EV_FAULT);
}

static void aim(struct ud_send *s, const struct ud_lane *lane) {
    s->wr.wr.ud.ah = ((const struct ud_path *)lane->node.path)->ah;
    s->wr.wr.ud.remote_qpn = lane->node.qpn;
    s->wr.wr.ud.remote_qkey = lane->qkey;
}

/* If no posted request asks for a completion, an empty datagram to the last receiver asks for
 * it. */
static void ask_datagram(struct ud_iface *iface) {
    struct ud_send *s = &iface->send;
    if (s->unsignalled == 0 || s->next == s->limit) return;
    weft__ud_frame_encode(&(struct ud_frame){.kind = UD_NOTHING}, slot(s));
    post_datagram(iface, UD_HEAD, true);
}

void weft__ud_send_took(struct ud_iface *iface, uint64_t number) {
    struct ud_send *s = &iface->send;
    s->done = number + 1;
    s->limit = s->done + s->size;
}

/* ---- messages -------------------------------------------------------------------------------- */

static inline bool full_datagram(struct ud_iface *iface) {
    if (LIKELY(iface->send.next != iface->send.limit)) return false;
    ud_count(iface)->rdma_ud_full++;
    return true;
}

/* The peer's number is not known before its first answer. */
static inline enum ud_kind kind_for(const struct ud_lane *lane) {
    return lane->node.remote ? UD_MESSAGE : UD_HANDSHAKE;
}

static void report_worked(struct ud_lane *lane) {
    const struct iface_up *up = lane->lane.iface->up;
    uint32_t bytes = lane->bytes;
    lane->bytes = 0;
    if (up->worked) up->worked(&lane->lane, bytes);
}

/* `len` bytes stand behind the head. */
static void send_off(struct ud_lane *lane, uint8_t id, size_t len) {
    struct ud_iface *iface = ud_iface_of(lane);
    struct counters *count = ud_count(iface);
    struct ud_frame frame = {.kind = kind_for(lane),
                             .id = id,
                             .to = lane->node.remote,
                             .from = lane->node.id,
                             .qkey = iface->qkey,
                             .token = lane->token,
                             .mine = iface->token};
    weft__ud_frame_encode(&frame, slot(&iface->send));
    aim(&iface->send, lane);
    post_datagram(iface, ud_head((enum ud_kind)frame.kind) + len, false);
    lane->until = iface->send.next;
    count->rdma_ud_messages++;
    count->rdma_ud_bytes += len;
    lane->bytes += (uint32_t)len;
    if (UNLIKELY(lane->bytes >= UD_NOTIFY)) report_worked(lane);
}

static uint8_t *body(const struct ud_lane *lane) {
    return slot(&ud_iface_of(lane)->send) + ud_head(kind_for(lane));
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct ud_lane *lane = (struct ud_lane *)l;
    if (len > l->iface->attr.max_short) return weft__refuse_short(l, len);
    if (full_datagram(ud_iface_of(lane))) return WEFT_NO_RESOURCE;
    uint8_t *to = body(lane);
    memcpy(to, &header, sizeof header);
    if (len) memcpy(to + sizeof header, data, len);
    send_off(lane, id, sizeof header + len);
    return WEFT_OK;
}

static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *to, void *arg),
                              void *arg) {
    struct ud_lane *lane = (struct ud_lane *)l;
    if (full_datagram(ud_iface_of(lane))) return WEFT_NO_RESOURCE;
    send_off(lane, id, pack(body(lane), arg));
    return WEFT_OK;
}

/* There is no such form: a window copies its pieces as they leave. */
static weft_status_t no_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    return weft__fail(WEFT_ERR_UNSUPPORTED, "rdma_ud does not support zero copy");
}

/* ---- when what was sent is over -------------------------------------------------------------- */

static void expect(struct ud_iface *iface) {
    struct ud_mark *first = TAILQ_FIRST(&iface->marks);
    /* it is reserved */
    if (first) (void)weft__timer_start(iface->iface.reactor, &iface->late, first->due);
}

void weft__ud_mark_add(struct ud_iface *iface, struct ud_mark *mark, uint64_t at) {
    struct reactor *r = iface->iface.reactor;
    bool first = TAILQ_EMPTY(&iface->marks);
    mark->at = at;
    mark->due = weft__now(r) +
                weft__setting_u64(weft__reactor_context(r), SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
    TAILQ_INSERT_TAIL(&iface->marks, mark, of_iface);
    if (first) expect(iface);
    weft__job_post(r, &iface->notified);
}

static void pass(struct ud_iface *iface, struct ud_mark *mark, weft_status_t status) {
    TAILQ_REMOVE(&iface->marks, mark, of_iface);
    mark->passed(mark, status);
}

/* Marks stand in the order in which they were made, so an early one may be behind one that still
 * waits. */
static void pass_marks(struct ud_iface *iface) {
    struct ud_mark *mark, *next;
    uint64_t last = 0;
    if (TAILQ_EMPTY(&iface->marks)) return;
    for (mark = TAILQ_FIRST(&iface->marks); mark; mark = next) {
        next = TAILQ_NEXT(mark, of_iface);
        if (mark->at > last) last = mark->at;
        if (mark->at <= iface->send.done || !iface->qp) pass(iface, mark, WEFT_OK);
    }
    if (last > iface->send.done) ask_datagram(iface);
}

static void fire_late(struct timer *timer) {
    struct ud_iface *iface = OF_LATE(timer);
    struct ud_mark *mark;
    uint64_t now = weft__now(iface->iface.reactor);
    while ((mark = TAILQ_FIRST(&iface->marks)) && mark->due <= now)
        pass(iface, mark, WEFT_ERR_TIMED_OUT);
    expect(iface);
}

static void flushed(struct ud_mark *mark, weft_status_t status) {
    struct ud_flush *f = (struct ud_flush *)mark;
    struct completion *completion = f->completion;
    TAILQ_REMOVE(&f->lane->flushes, f, of_lane);
    talloc_free(f);
    completion_step(completion, status);
}

static weft_status_t flush_datagram(struct lane *l, struct completion *completion) {
    struct ud_lane *lane = (struct ud_lane *)l;
    struct ud_iface *iface = ud_iface_of(lane);
    if (lane->until <= iface->send.done) return WEFT_OK;
    struct ud_flush *f = weft__new(iface, struct ud_flush);
    if (!f) return WEFT_ERR_NO_MEMORY;
    f->lane = lane;
    f->completion = completion;
    f->mark.passed = flushed;
    TAILQ_INSERT_TAIL(&lane->flushes, f, of_lane);
    weft__ud_mark_add(iface, &f->mark, lane->until);
    return WEFT_IN_PROGRESS;
}

void weft__ud_flushes_end(struct ud_lane *lane, weft_status_t status) {
    struct ud_flush *f;
    while ((f = TAILQ_FIRST(&lane->flushes))) pass(ud_iface_of(lane), &f->mark, status);
}

/* ---- those who wait -------------------------------------------------------------------------- */

static void wait_in_line(struct ud_lane *lane) {
    struct ud_iface *iface = ud_iface_of(lane);
    if (lane->waits) return;
    TAILQ_INSERT_TAIL(&iface->waiting, lane, of_waiting);
    lane->waits = true;
    iface->n_waiting++;
}

static void leave_line(struct ud_lane *lane) {
    struct ud_iface *iface = ud_iface_of(lane);
    if (!lane->waits) return;
    TAILQ_REMOVE(&iface->waiting, lane, of_waiting);
    lane->waits = false;
    iface->n_waiting--;
}

static bool has_room(const struct ud_iface *iface) {
    return iface->send.next != iface->send.limit;
}

static void pending_add(struct lane *l, struct pending *pending) {
    struct ud_lane *lane = (struct ud_lane *)l;
    struct ud_iface *iface = ud_iface_of(lane);
    pending_queue_add(&lane->pending, pending);
    wait_in_line(lane);
    if (has_room(iface)) weft__job_post(iface->iface.reactor, &iface->notified);
}

static void pending_remove(struct lane *l, struct pending *pending) {
    struct ud_lane *lane = (struct ud_lane *)l;
    pending_queue_remove(&lane->pending, pending);
    if (!pending_queue_waits(&lane->pending)) leave_line(lane);
}

void weft__ud_purge(struct ud_lane *lane) {
    pending_queue_init(&lane->pending);
    leave_line(lane);
}

/* One operation of each in turn, until there is no room or all had to stay. A lane that is not
 * up yet waits, and does not delay the others. What is tried may close its lane; that stays
 * where it is until the turn ends. */
static void serve_line(struct ud_iface *iface) {
    struct ud_lane *lane;
    unsigned stayed = 0;
    while (has_room(iface) && stayed < iface->n_waiting) {
        lane = TAILQ_FIRST(&iface->waiting);
        leave_line(lane);
        bool went = lane->lane.ops == &weft__ud_ops_up && pending_queue_retry(&lane->pending);
        if (pending_queue_waits(&lane->pending)) wait_in_line(lane);
        stayed = went ? 0 : stayed + 1;
    }
}

void weft__ud_send_turn(struct ud_iface *iface) {
    pass_marks(iface);
    serve_line(iface);
}

/* ---- the operations, by state ---------------------------------------------------------------- */

LANE_SENDS_ANSWER(new, WEFT_NO_RESOURCE)
LANE_SENDS_ANSWER(down, ((const struct ud_lane *)l)->why)
LANE_SENDS_ANSWER(closed, WEFT_ERR_CLOSED)

static weft_status_t down_flush(struct lane *l, struct completion *completion) {
    return ((const struct ud_lane *)l)->why;
}
static weft_status_t closed_flush(struct lane *l, struct completion *completion) {
    return WEFT_ERR_CLOSED;
}

#define OPS(short_, bcopy, zcopy, flush_)                                                    \
    {                                                                                        \
        .am_short = short_, .am_bcopy = bcopy, .am_zcopy = zcopy, .flush = flush_,           \
        .pending_add = pending_add, .pending_remove = pending_remove, .recv_msg = lane_recv, \
        .close = weft__ud_lane_close, .describe = weft__ud_lane_describe                     \
    }
const struct lane_ops weft__ud_ops_new = OPS(new_short, new_bcopy, new_zcopy, flush_datagram);
const struct lane_ops weft__ud_ops_up = OPS(am_short, am_bcopy, no_zcopy, flush_datagram);
const struct lane_ops weft__ud_ops_down = OPS(down_short, down_bcopy, down_zcopy, down_flush);
const struct lane_ops weft__ud_ops_closed =
    OPS(closed_short, closed_bcopy, closed_zcopy, closed_flush);

weft_status_t weft__ud_send_open(struct ud_iface *iface) {
    struct ud_send *s = &iface->send;
    s->signal_every = s->size / UD_SIGNAL_PART;
    s->wr = (struct ibv_send_wr){.sg_list = &s->sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    iface->late.fire = fire_late;
    return weft__timer_reserve(iface->iface.reactor, &iface->late);
}
