/*
 * Receiving. The lane delivers whole frames from the buffer into which the kernel wrote them. A
 * lane holds a buffer only while it contains bytes, so an idle connection has none. Each turn reads
 * the few busy sockets without epoll. Their watch stays on, so they need no arming before the
 * worker sleeps.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { EXACT_FROM = 16 * 1024, ROOM_LEAST = 4 * 1024, FRAMES_PER_JOB = 256, KEEPS_FROM = 8 };

static void thrown_away(struct lane *lane, unsigned id, const void *data, size_t len) {}
static const lane_am_fn all_thrown_away[LANE_AM_IDS] = {[0 ... LANE_AM_IDS - 1] = thrown_away};

void weft__tcp_input_open(struct tcp_lane *lane) {
    lane->watch.ready = weft__tcp_input_ready;
}

static void paused(struct watch *watch, int events) {
    if (events & WATCH_WRITE) weft__tcp_output_unblock(tcp_lane_of_watch(watch));
}

/* A lane that is about to fail ignores a pause: its last frames are still read. */
weft_status_t weft__tcp_input_pause(struct lane *l, bool on) {
    struct tcp_lane *lane = tcp_lane(l);
    int others = lane->watch.events & ~WATCH_READ;
    if (lane->watch.ready != (on ? weft__tcp_input_ready : paused) ||
        (on && lane->todo & TODO_BREAK))
        return WEFT_OK;
    weft_status_t st = weft__tcp_lane_watch(lane, on ? others : others | WATCH_READ);
    if (on && st < 0) return st;
    lane->watch.ready = on ? paused : weft__tcp_input_ready;
    if (on) weft__tcp_hot_leave(lane);
    /* frames may be left in the buffer */
    else
        weft__tcp_lane_todo(lane, TODO_READ | (st < 0 ? TODO_BREAK : 0));
    return WEFT_OK;
}

void weft__tcp_input_recv(struct lane *l, const lane_am_fn *handlers) {
    if (l->handlers != all_thrown_away) l->handlers = handlers;
}

void weft__tcp_input_discard(struct tcp_lane *lane) {
    lane->lane.handlers = all_thrown_away;
    weft__tcp_place_end(lane, WEFT_ERR_CLOSED);
}

/* The buffer itself stays until the read that may be going on in it returns. */
void weft__tcp_input_drop(struct tcp_lane *lane) {
    lane->lane.handlers = all_thrown_away;
    lane->in.begin = lane->in.end = 0;
    if (!lane->in.reading) weft__tcp_input_give_back(lane);
}

void weft__tcp_input_give_back(struct tcp_lane *lane) {
    struct tcp_input *in = &lane->in;
    if (in->begin < in->end) return;
    in->begin = in->end = 0;
    weft__tcp_pool_put(&tcp_iface_of(lane)->pool, in->buffer);
    in->buffer = NULL;
}

/* What came behind it goes on in the same buffer, what comes later in another. */
struct lane_keep *weft__tcp_input_keep(struct lane *l, const void *data, size_t len) {
    struct tcp_buffer *b = tcp_lane(l)->in.buffer;
    if (!b || len * KEEPS_FROM < b->size || (uintptr_t)data - (uintptr_t)b->bytes >= b->size)
        return NULL;
    b->n_kept++;
    return &b->keep;
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Returns true if enough bytes are missing to ask the owner for a destination. */
static bool may_place(const struct tcp_lane *lane, const struct tcp_frame *f, size_t missing) {
    return missing >= PLACE_LEAST + 8 && f->kind == TCP_FRAME_AM && lane->lane.iface->up->place &&
           lane->lane.handlers != all_thrown_away && !lane->in.asked;
}

/* A frame of `size` bytes is not all here. Its payload may go where the owner places it. */
static void await_frame(struct tcp_lane *lane, const struct tcp_frame *f, const uint8_t *at,
                        size_t have, size_t size) {
    if (f && may_place(lane, f, size - have)) {
        size_t head = TCP_FRAME_HEAD + PLACE_HEAD;
        if (have >= head && weft__tcp_place(lane, f, at + TCP_FRAME_HEAD, have - TCP_FRAME_HEAD))
            return;
        if (have < head) size = head; /* the rest may be wanted elsewhere */
    }
    lane->in.missing = (uint32_t)(size - have);
}

static void take_goodbye(struct tcp_lane *lane) {
    weft__tcp_lane_note(lane, "the peer closed the connection", 0);
    weft__tcp_lane_why(lane, WEFT_ERR_PEER_CLOSED);
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_GOODBYE);
}

/* Delivers complete frames, at most `budget`. */
static unsigned deliver_input(struct tcp_lane *lane, unsigned budget) {
    struct tcp_input *in = &lane->in;
    unsigned n = 0;
    in->missing = 0;
    while (in->begin < in->end && n < budget) {
        const uint8_t *at = in->buffer->bytes + in->begin;
        size_t have = in->end - in->begin;
        struct tcp_frame f;
        weft_status_t st = tcp_frame_decode(at, have, &f);
        if (st < 0) {
            weft__tcp_lane_bad(lane, st, "what the peer sent is not a Weft frame");
            break;
        }
        size_t size = st == WEFT_OK ? tcp_frame_size(f.len) : TCP_FRAME_HEAD;
        if (have < size) {
            await_frame(lane, st == WEFT_OK ? &f : NULL, at, have, size);
            break;
        }
        in->begin += (uint32_t)size;
        in->asked = in->placed = false;
        if (f.kind == TCP_FRAME_GOODBYE) {
            take_goodbye(lane);
            break;
        }
        lane_handlers(&lane->lane)[f.id](&lane->lane, f.id, at + TCP_FRAME_HEAD, f.len);
        n++;
    }
    return n;
}

/* ---- the buffer ------------------------------------------------------------------------------ */

static bool take_read_buffer(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_input *in = &lane->in;
    if (!in->buffer) in->buffer = tcp_pool_take(&iface->pool, iface, in->class);
    return in->buffer != NULL;
}

/* A frame that does not fit where it began goes to the front, or into a big buffer; or to
 * another's front, where something kept stands before it. */
static bool make_room(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    struct tcp_input *in = &lane->in;
    uint32_t have = in->end - in->begin;
    struct tcp_buffer *to = in->buffer;
    if (in->end + in->missing <= to->size && in->end + ROOM_LEAST <= to->size) return true;
    if (have + in->missing > to->size) {
        to = tcp_pool_take(&iface->pool, iface, TCP_BUF_BIG);
        if (!to) return false;
        in->class = TCP_BUF_BIG;
    } else if (to->n_kept) {
        to = tcp_pool_take(&iface->pool, iface, to->class);
        if (!to) return false;
    }
    memmove(to->bytes, in->buffer->bytes + in->begin, have);
    if (to != in->buffer) weft__tcp_pool_put(&iface->pool, in->buffer);
    in->buffer = to;
    in->begin = 0;
    in->end = have;
    return true;
}

/* The rest of a big frame is read exactly, so that what comes after it need not be moved. */
static size_t read_size(const struct tcp_lane *lane) {
    const struct tcp_input *in = &lane->in;
    size_t room = in->buffer->size - in->end, usual = tcp_iface_of(lane)->pool.size[TCP_BUF_READ];
    if (in->missing >= EXACT_FROM) return in->missing;
    if (in->placed) return room < TCP_PLACE_BEHIND ? room : TCP_PLACE_BEHIND;
    return room < usual ? room : usual;
}

static void read_failed(struct tcp_lane *lane, int error) {
    weft_status_t st = weft__errno_status(error);
    weft__tcp_lane_note(lane, "receiving from its socket", error);
    weft__tcp_lane_why(lane, st == WEFT_ERR_TIMED_OUT ? WEFT_ERR_PEER_FAILED : st);
    weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_BROKEN);
}

static void note_emptied(struct tcp_lane *lane) {
    lane->in.emptied = (uint32_t)tcp_count(lane)->turns;
    if (lane->in.hot >= 0) tcp_iface_of(lane)->read_at[lane->in.hot] = weft__ticks();
}

/* One look at the socket: whether bytes came, and whether they were all that it had. */
enum came { NOTHING, SOME, ALL };
static enum came fill_input(struct tcp_lane *lane) {
    struct tcp_input *in = &lane->in;
    enum came came = SOME;
    if (!take_read_buffer(lane) || !make_room(lane)) {
        weft__tcp_lane_note(lane, "no memory for a receive buffer", 0);
        weft__tcp_lane_why(lane, WEFT_ERR_NO_MEMORY);
        weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_BROKEN);
        return NOTHING;
    }
    ssize_t n;
    do {
        tcp_count(lane)->tcp_reads++;
        if (in->placement) {
            n = weft__tcp_place_read(lane);
        } else {
            size_t most = read_size(lane);
            n = recv(lane->watch.fd, in->buffer->bytes + in->end, most, MSG_DONTWAIT);
            if (n > 0) in->end += (uint32_t)n;
            if ((size_t)n < most) came = ALL;
        }
    } while (n < 0 && errno == EINTR);
    if (n > 0) return came;
    if (n == 0) {
        weft__tcp_lane_note(
            lane,
            "its socket was closed without a goodbye, so the peer's process ended or was killed",
            0);
        weft__tcp_lane_why(lane, WEFT_ERR_PEER_FAILED); /* no goodbye */
        weft__fsm_step(&lane->conn.fsm, TCP_CONN_EV_END);
    } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        read_failed(lane, errno);
    }
    return NOTHING;
}

/* ---- a read ---------------------------------------------------------------------------------- */

/* The budget ran out: the rest may hold whole messages. A caller that leaves them there posts
 * TODO_READ. */
static bool frames_are_left(const struct tcp_input *in) {
    return in->begin < in->end && !in->missing;
}

/* What is left from a turn whose budget ran out comes before anything new. Returns the frames
 * delivered, and 1 for bytes that made none yet. */
int weft__tcp_input_read(struct tcp_lane *lane, unsigned budget) {
    struct tcp_input *in = &lane->in;
    unsigned n = 0;
    enum came came = NOTHING;
    in->reading = true;
    if (frames_are_left(in)) n = deliver_input(lane, budget);
    if (n < budget && lane->watch.ready == weft__tcp_input_ready && (came = fill_input(lane))) {
        if (in->placement && weft__tcp_place_done(lane)) n++;
        if (!in->placement && in->buffer && n < budget) n += deliver_input(lane, budget - n);
    }
    in->reading = false;
    weft__tcp_output_answer(lane); /* before anything that can wait */
    if (came == ALL) note_emptied(lane);
    if (frames_are_left(in)) weft__tcp_lane_todo(lane, TODO_READ);
    weft__tcp_input_give_back(lane);
    return n || came == NOTHING ? (int)n : 1;
}

/* ---- hot sockets ----------------------------------------------------------------------------- */

void weft__tcp_hot_leave(struct tcp_lane *lane) {
    if (lane->in.hot < 0) return;
    tcp_iface_of(lane)->hot[lane->in.hot] = NULL;
    tcp_iface_of(lane)->n_hot--;
    lane->in.hot = -1;
    lane->in.class = TCP_BUF_READ;
}

/* In a free place, or in that of one that has been quiet for a while. */
void weft__tcp_hot_enter(struct tcp_lane *lane) {
    struct tcp_iface *iface = tcp_iface_of(lane);
    lane->in.quiet = 0;
    if (lane->in.hot >= 0 || lane->watch.ready != weft__tcp_input_ready) return;
    for (int i = 0; i < TCP_HOT; i++) {
        if (iface->hot[i] && iface->hot[i]->in.quiet < TCP_YIELD) continue;
        if (iface->hot[i]) weft__tcp_hot_leave(iface->hot[i]);
        iface->hot[i] = lane;
        iface->n_hot++;
        lane->in.hot = i;
        iface->read_at[i] = weft__ticks();
        weft__poller_add(iface->iface.reactor, &iface->poller);
        return;
    }
    lane->in.class = TCP_BUF_READ;
}

/* A read emptied the socket so few turns ago: asking it again would only say so, and a worker
 * about to sleep need not. */
static bool emptied(const struct tcp_lane *lane, uint32_t turns) {
    return (uint32_t)tcp_count(lane)->turns - lane->in.emptied < turns;
}

void weft__tcp_input_ready(struct watch *watch, int events) {
    struct tcp_lane *lane = tcp_lane_of_watch(watch);
    if (events & WATCH_WRITE) weft__tcp_output_unblock(lane);
    if (!(events & WATCH_READ) || lane->watch.ready != weft__tcp_input_ready) return;
    /* its owner learns of the lane first, by its job, and the socket becomes ready again */
    if (lane->listener) return;
    /* the socket does not report bytes that remain in the buffer */
    if (emptied(lane, 1) && !frames_are_left(&lane->in)) return;
    if (weft__tcp_input_read(lane, FRAMES_PER_JOB)) weft__tcp_hot_enter(lane);
}

/* The longer it was quiet, the seldomer: each read is a system call, which the other lanes of
 * its worker wait for. */
static bool is_slack(const struct tcp_lane *lane) {
    return tcp_count(lane)->turns & ((UINT64_C(1) << lane->in.quiet / TCP_SLACKEN) - 1);
}

/* Recently, in turns and in time: where one thread drives many workers, an answer may have
 * arrived long before this worker's next turn. */
static bool just_emptied(struct tcp_lane *lane) {
    return emptied(lane, TCP_PASSES) &&
           weft__ticks() - tcp_iface_of(lane)->read_at[lane->in.hot] < (uint64_t)TCP_PASS_TICKS;
}

static int poll_hot(struct tcp_lane *lane, unsigned budget) {
    int n;
    if (lane->out.blocked) weft__tcp_output_unblock(lane);
    if (lane->watch.ready != weft__tcp_input_ready) return 0;
    if (just_emptied(lane) || is_slack(lane)) return 0;
    n = weft__tcp_input_read(lane, budget);
    if (n) {
        lane->in.quiet = 0;
    } else if (++lane->in.quiet >= TCP_QUIET) {
        weft__tcp_hot_leave(lane);
    }
    return n;
}

/* Its job has nothing left to do then. */
static void flush_first(struct tcp_iface *iface) {
    weft__tcp_flush_dirty(iface);
    if (!iface->n_dirty) weft__job_spare(iface->iface.reactor, &iface->flush_job);
}

/* What was sent since the last turn leaves before anything is read. Without hot sockets its job
 * does that, and epoll reports the others. */
int weft__tcp_poll(struct poller *poller, unsigned budget) {
    struct tcp_iface *iface = container_of(poller, struct tcp_iface, poller);
    unsigned n = 0, left = iface->n_hot;
    if (iface->n_dirty) flush_first(iface);
    for (int i = 0; left > 0 && i < TCP_HOT && n < budget; i++) {
        if (!iface->hot[i]) continue;
        n += (unsigned)poll_hot(iface->hot[i], budget - n);
        left--;
    }
    if (iface->n_hot == 0) weft__poller_remove(iface->iface.reactor, poller);
    return (int)n;
}
