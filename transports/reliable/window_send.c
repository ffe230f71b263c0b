/* Messages that go out: retained whole, cut into frames as they leave, given back when
 * acknowledged. */
#include "window_local.h"

#include <base/compiler.h>
#include <stddef.h>
#include <string.h>
#include <transports/answering.h>
#include <transports/common.h>

/* ---- frames ---------------------------------------------------------------------------------- */

struct packing {
    struct window_lane *wl;
    const struct window_frame *frame;
    const struct window_message *m;
    size_t from; /* of the message's bytes */
};

/* Bytes [from, from + len) of a message: its data, then its iov. */
static void copy_out(const struct window_message *m, size_t from, size_t len, uint8_t *to) {
    const uint8_t *base = m->data;
    size_t room = m->len;
    for (unsigned i = 0;; i++) {
        size_t n = from < room ? room - from : 0;
        if (n > len) n = len;
        if (n) memcpy(to, base + from, n);
        to += n;
        len -= n;
        from = n ? 0 : from - room;
        if (!len || i == m->n_iov) return;
        base = m->iov[i].base;
        room = m->iov[i].len;
    }
}

static size_t pack_frame(void *to, void *arg) {
    const struct packing *p = arg;
    size_t head = weft__window_encode(p->frame, to), len = p->frame->len;
    if (len) copy_out(p->m, p->from, len, (uint8_t *)to + head);
    return head + len;
}

/* False: the raw lane has no room, and calls when it has. Any other failure is a loss like all
 * others. */
static bool send_raw(struct window_lane *wl, struct window_frame *f, const struct window_message *m,
                     size_t from) {
    struct packing packing = {wl, f, m, from};
    f->ack = wl->win.expected;
    f->sack = wl->win.held;
    f->paused = wl->holding;
    weft_status_t st = wl->raw->ops->am_bcopy(wl->raw, WINDOW_RAW_ID, pack_frame, &packing);
    if (st != WEFT_NO_RESOURCE) return true;
    wl->blocked = true;
    wl->raw->ops->pending_add(wl->raw, &wl->raw_pending);
    return false;
}

static void acknowledged(struct window_lane *wl) {
    wl->unacked = 0;
    wl->ack_at = WINDOW_NEVER;
    wl->words &= ~(1u << WINDOW_ACK);
}

static bool send_word(struct window_lane *wl, enum window_kind kind) {
    bool handshakes = kind == WINDOW_HELLO || kind == WINDOW_WELCOME;
    struct window_frame f = {.kind = (uint8_t)kind, .tag = wl->conn.peer_tag};
    if (kind == WINDOW_ECHO) f.tag = wl->conn.echo_tag;
    if (kind == WINDOW_DATA) f.seq = wl->win.una - 1; /* the peer has had that, and says so */
    if (handshakes) f.my_tag = wl->conn.my_tag, f.version = WINDOW_VERSION;
    if (!send_raw(wl, &f, NULL, 0)) return false;
    wl->words &= ~(1u << kind);
    if (kind == WINDOW_ACK) acknowledged(wl);
    return true;
}

static bool window_holds(const struct window_message *m, uint32_t seq) {
    return seq - m->first < m->n_frames;
}

/* `sending` holds the newest frame that was sent: first tries begin their search there. */
static const struct window_message *message_of(struct window_lane *wl, uint32_t seq) {
    if (seq + 1 != wl->win.next) { /* again: it is near the front */
        const struct window_message *m = wl->first;
        while (!window_holds(m, seq)) m = m->next;
        return m;
    }
    if (!wl->sending) wl->sending = wl->first;
    while (!window_holds(wl->sending, seq)) wl->sending = wl->sending->next;
    return wl->sending;
}

static bool send_frame(struct window_lane *wl, uint32_t seq) {
    const struct window_message *m = message_of(wl, seq);
    size_t fragment = window_iface(wl)->fragment, from = (size_t)(seq - m->first) * fragment,
           left = m->total - from;
    struct window_frame f = {.kind = m->kind,
                             .id = m->id,
                             .more = (uint16_t)(m->first + m->n_frames - 1 - seq),
                             .tag = wl->conn.peer_tag,
                             .seq = seq,
                             .len = left < fragment ? left : fragment};
    if (!send_raw(wl, &f, m, from)) return false;
    wl->to_send &= ~window_bit(seq);
    wl->sent_at[seq % WINDOW_FRAMES] = weft__now(window_reactor(wl));
    weft__count(window_reactor(wl))->resent += (wl->again & window_bit(seq)) != 0;
    acknowledged(wl);
    return true;
}

static bool send_frames(struct window_lane *wl) {
    for (uint32_t seq = wl->win.una; wl->to_send && seq != wl->win.next; seq++)
        if ((wl->to_send & window_bit(seq)) && !send_frame(wl, seq)) return false;
    return true;
}

/* Everything that may go: old frames, new ones, and words that found no frame to ride on. */
void weft__window_pump(struct window_lane *wl) {
    if (wl->blocked) return;
    if (!send_frames(wl)) return;
    while (window_may_send(&wl->win) && !window_is_stopped(&wl->win.fsm)) {
        weft__fsm_step(&wl->win.fsm, WINDOW_EV_SEND);
        wl->again &= ~window_bit(wl->win.next - 1);
        if (!send_frame(wl, wl->win.next - 1)) return;
    }
    for (unsigned kind = WINDOW_HELLO; wl->words && kind < WINDOW_N_KINDS; kind++)
        if ((wl->words >> kind & 1) && !send_word(wl, (enum window_kind)kind)) return;
}

weft_status_t weft__window_pump_retry(struct pending *pending) {
    struct window_lane *wl = container_of(pending, struct window_lane, raw_pending);
    wl->blocked = false;
    weft__window_pump(wl);
    if (!wl->blocked) return WEFT_OK;
    wl->raw->ops->pending_remove(wl->raw,
                                 pending); /* it queued itself again, and stays the first */
    return WEFT_NO_RESOURCE;
}

/* ---- what is retained ------------------------------------------------------------------------ */

static size_t cost(const struct window_message *m) {
    return sizeof *m + m->total;
}

static void append(struct window_lane *wl, struct window_message *m) {
    m->next = NULL;
    *wl->last = m;
    wl->last = &m->next;
    wl->bytes += cost(m);
}

static void enqueue(struct window_lane *wl, struct window_message *m) {
    size_t fragment = window_iface(wl)->fragment;
    m->first = wl->win.end;
    m->n_frames = m->total ? (uint32_t)((m->total + fragment - 1) / fragment) : 1;
    wl->win.end += m->n_frames;
    append(wl, m);
    weft__window_pump(wl);
}

static void retire(struct window_lane *wl, weft_status_t status) {
    struct window_message *m = wl->first;
    wl->first = m->next;
    if (!wl->first) wl->last = &wl->first;
    if (wl->sending == m) wl->sending = NULL;
    wl->bytes -= cost(m);
    if (!m->completion) {
        weft__window_message_free(window_iface(wl), m);
        return;
    }
    m->total = (size_t)-status; /* its last use */
    m->next = NULL;
    *wl->finished_last = m;
    wl->finished_last = &m->next;
}

void weft__window_release(struct window_lane *wl) {
    while (wl->first && (int32_t)(wl->win.una - (wl->first->first + wl->first->n_frames)) >= 0) {
        bool drained = wl->first->kind == WINDOW_FIN;
        retire(wl, WEFT_OK);
        if (drained) return weft__window_step(wl, CONN_EV_DRAINED);
    }
}

void weft__window_drop(struct window_lane *wl, weft_status_t status) {
    while (wl->first) retire(wl, status);
    wl->to_send = 0;
}

void weft__window_finish(struct window_lane *wl) {
    while (wl->finished) {
        struct window_message *m = wl->finished;
        struct completion *completion = m->completion;
        weft_status_t status = (weft_status_t) - (int)m->total;
        wl->finished = m->next;
        if (!wl->finished) wl->finished_last = &wl->finished;
        weft__window_message_free(window_iface(wl), m);
        completion_step(completion, status);
    }
}

/* ---- the owner's operations ------------------------------------------------------------------ */

/* Room for `total` bytes more? An empty window takes any message. */
static bool is_full(const struct window_lane *wl, size_t total) {
    return wl->first && wl->bytes + sizeof(struct window_message) + total > window_iface(wl)->limit;
}

static struct window_message *message_new(struct window_lane *wl, uint8_t id, size_t len) {
    struct window_message *m = weft__window_message_new(window_iface(wl), len);
    if (!m) return NULL;
    m->kind = WINDOW_DATA;
    m->id = id;
    m->len = (uint32_t)len;
    m->total = len;
    return m;
}

static weft_status_t am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                              size_t len) {
    struct window_lane *wl = (struct window_lane *)l;
    if (len > l->iface->attr.max_short) return weft__refuse_short(l, len);
    if (is_full(wl, sizeof header + len)) return WEFT_NO_RESOURCE;
    struct window_message *m = message_new(wl, id, sizeof header + len);
    if (!m) return WEFT_ERR_NO_MEMORY;
    memcpy(m->data, &header, sizeof header);
    if (len) memcpy(m->data + sizeof header, data, len);
    enqueue(wl, m);
    return WEFT_OK;
}

static weft_status_t am_bcopy(struct lane *l, uint8_t id, size_t (*pack_)(void *to, void *arg),
                              void *arg) {
    struct window_lane *wl = (struct window_lane *)l;
    struct window_iface *iface = window_iface(wl);
    if (is_full(wl, l->iface->attr.max_bcopy)) return WEFT_NO_RESOURCE;
    size_t len = pack_(iface->scratch, arg);
    struct window_message *m = message_new(wl, id, len);
    if (!m) return WEFT_ERR_NO_MEMORY;
    if (len) memcpy(m->data, iface->scratch, len);
    enqueue(wl, m);
    return WEFT_OK;
}

static weft_status_t am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                              struct completion *completion) {
    struct window_lane *wl = (struct window_lane *)l;
    size_t total;
    weft_status_t st = zcopy_measure(l, msg, &total);
    if (st != WEFT_OK) return st;
    if (is_full(wl, msg->header_len + total)) return WEFT_NO_RESOURCE;
    struct window_message *m = message_new(wl, id, msg->header_len);
    if (!m) return WEFT_ERR_NO_MEMORY;
    if (msg->header_len) memcpy(m->data, msg->header, msg->header_len);
    if (msg->n_iov) memcpy(m->iov, msg->iov, msg->n_iov * sizeof *msg->iov);
    m->n_iov = (uint16_t)msg->n_iov;
    m->total += total;
    m->completion = completion;
    enqueue(wl, m);
    return WEFT_IN_PROGRESS;
}

/* A message without frames: it is done when all before it are acknowledged. */
static weft_status_t flush_lane(struct lane *l, struct completion *completion) {
    struct window_lane *wl = (struct window_lane *)l;
    if (!wl->first && !wl->finished) return WEFT_OK;
    struct window_message *m = message_new(wl, 0, 0);
    if (!m) return WEFT_ERR_NO_MEMORY;
    m->first = wl->win.end;
    m->completion = completion;
    append(wl, m);
    /* only completions are left before it */
    if (wl->first == m) weft__job_post(window_reactor(wl), &wl->job);
    return WEFT_IN_PROGRESS;
}

void weft__window_queue_fin(struct window_lane *wl) {
    struct window_message *m = wl->fin;
    wl->fin = NULL;
    m->kind = WINDOW_FIN;
    enqueue(wl, m);
}

/* ---- the owner's pending queue --------------------------------------------------------------- */

LANE_PENDING(window_lane)

void weft__window_retry(struct window_lane *wl) {
    while (wl->lane.ops == &weft__window_ops_up && pending_queue_retry(&wl->pending)) continue;
}

void weft__window_purge(struct window_lane *wl) {
    pending_queue_init(&wl->pending);
}

/* ---- operations by state --------------------------------------------------------------------- */

static void describe_lane(struct lane *l, char *buf, size_t size) {
    struct window_lane *wl = (struct window_lane *)l;
    wl->raw->ops->describe(wl->raw, buf, size);
}

static weft_status_t address_of(struct lane *l, void *buf, size_t *len_p) {
    struct window_lane *wl = (struct window_lane *)l;
    return wl->raw->ops->conn->address(wl->raw, buf, len_p);
}

static weft_status_t connect_lane(struct lane *l, const void *bytes, size_t len) {
    struct window_lane *wl = (struct window_lane *)l;
    return wl->raw->ops->conn->connect(wl->raw, bytes, len);
}

LANE_SENDS_ANSWER(idle, WEFT_NO_RESOURCE)
LANE_SENDS_ANSWER(down, ((const struct window_lane *)l)->why)
LANE_SENDS_ANSWER(closed, WEFT_ERR_CLOSED)

static weft_status_t idle_flush(struct lane *l, struct completion *completion) {
    return WEFT_OK;
}
static weft_status_t down_flush(struct lane *l, struct completion *completion) {
    return ((const struct window_lane *)l)->why;
}
static weft_status_t closed_flush(struct lane *l, struct completion *completion) {
    return WEFT_ERR_CLOSED;
}

static const struct lane_conn_ops conn_ops = {
    .address = address_of, .connect = connect_lane, .watched = weft__window_watched};
#define OPS(short_, bcopy, zcopy, flush_)                                                \
    .am_short = short_, .am_bcopy = bcopy, .am_zcopy = zcopy, .flush = flush_,           \
    .pending_add = pending_add, .pending_remove = pending_remove, .recv_msg = lane_recv, \
    .close = weft__window_close, .describe = describe_lane, .conn = &conn_ops
const struct lane_ops weft__window_ops_idle = {OPS(idle_short, idle_bcopy, idle_zcopy, idle_flush)};
const struct lane_ops weft__window_ops_up = {OPS(am_short, am_bcopy, am_zcopy, flush_lane),
                                             .pause = weft__window_pause};
const struct lane_ops weft__window_ops_down = {OPS(down_short, down_bcopy, down_zcopy, down_flush)};
const struct lane_ops weft__window_ops_closed = {
    OPS(closed_short, closed_bcopy, closed_zcopy, closed_flush)};
