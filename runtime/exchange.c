/* The port of the exchange machine: a non-blocking stream socket, watched while a round is
 * waited for. */
#include "exchange.h"

#include "wire.h"
#include <base/compiler.h>
#include <endpoints/core/worker.h>
#include <errno.h>
#include <fcntl.h>
#include <reactor/reactor.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a caller of allgather hands over. */
struct ask {
    struct reactor *reactor;
    const void *mine;
    size_t len;
    uint8_t *all; /* size × len bytes */
    weft_done_fn done;
    void *done_arg;
};

struct run_client {
    struct exchange x;
    weft_exchange_t public;
    int fd;
    pid_t pid; /* a fork shares the socket, and must not speak on it */

    const struct ask *asked; /* by the call of allgather that is running */
    weft_status_t verdict;   /* on it */

    /* The round that is waited for. */
    struct reactor *reactor;
    struct watch watch;
    uint8_t *all;
    size_t len;
    weft_done_fn done;
    void *done_arg;
    weft_done_fn due; /* to be called as soon as the machine's step is over */

    /* What is being written. Left-overs of a round that was cancelled go out before the next. */
    uint8_t out[2 * (RUN_HEADER + RUN_MAX_MINE)];
    size_t out_at, out_end;

    /* The frame that is being read: `in_end` bytes of header, then payload into `sink`, if
     * there is one. */
    uint8_t header[RUN_HEADER], status[4];
    struct run_frame frame;
    size_t in_end, payload_at;
    uint8_t *sink;
};

static void lose_exchange(struct run_client *c, weft_status_t status) {
    if (!exchange_is_broken(&c->x.fsm)) c->x.status = status;
    weft__fsm_step(&c->x.fsm, EXCHANGE_EV_LOST);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_some(struct run_client *c) {
    while (c->out_at < c->out_end) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_end - c->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            lose_exchange(c, WEFT_ERR_PEER_FAILED);
            return;
        }
        c->out_at += (size_t)n;
    }
    c->out_at = c->out_end = 0;
    if (weft__watch_change(c->reactor, &c->watch, WATCH_READ) < 0) lose_exchange(c, WEFT_ERR_IO);
}

/* Both buffers together hold one whole frame behind the left-overs of another. */
static bool has_room(const struct run_client *c, size_t len) {
    return c->out_end - c->out_at + RUN_HEADER + len <= sizeof c->out;
}

static void queue(struct run_client *c, const void *mine, size_t len) {
    struct run_frame frame = {.type = RUN_GATHER, .round = c->x.round, .len = (uint32_t)len};
    memmove(c->out, c->out + c->out_at, c->out_end - c->out_at);
    c->out_end -= c->out_at;
    c->out_at = 0;
    weft__run_encode(&frame, c->out + c->out_end);
    if (len > 0) memcpy(c->out + c->out_end + RUN_HEADER, mine, len);
    c->out_end += RUN_HEADER + len;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool right_length(const struct run_client *c) {
    return c->frame.type == RUN_DENIED || c->frame.len == c->len * c->public.size;
}

static enum exchange_event classify(const struct run_client *c) {
    if (c->frame.type == RUN_GATHER) return EXCHANGE_EV_STRANGE;
    return weft__exchange_classify(&c->x, c->frame.round, c->frame.type == RUN_DENIED,
                                   right_length(c));
}

/* Says where the payload goes. */
static void frame_begins(struct run_client *c) {
    c->payload_at = 0;
    enum exchange_event event = classify(c);
    if (event == EXCHANGE_EV_STRANGE) weft__fsm_step(&c->x.fsm, event);
    c->sink = event == EXCHANGE_EV_ANSWER ? c->all : event == EXCHANGE_EV_DENIED ? c->status : NULL;
}

static void frame_ends(struct run_client *c) {
    enum exchange_event event = classify(c); /* afresh: it may have been cancelled meanwhile */
    c->in_end = 0;
    if (event == EXCHANGE_EV_DENIED)
        c->x.status = weft__run_decode_status(c->status, sizeof c->status);
    weft__fsm_step(&c->x.fsm, event);
}

static bool in_header(const struct run_client *c) {
    return c->in_end < RUN_HEADER;
}

/* One read: of the header, or of the payload. > 0: something came. */
static ssize_t read_piece(struct run_client *c) {
    uint8_t discard_buf[4096];
    if (in_header(c)) return recv(c->fd, c->header + c->in_end, RUN_HEADER - c->in_end, 0);
    size_t left = c->frame.len - c->payload_at;
    if (c->sink) return recv(c->fd, c->sink + c->payload_at, left, 0);
    return recv(c->fd, discard_buf, left < sizeof discard_buf ? left : sizeof discard_buf, 0);
}

static void took_header(struct run_client *c, size_t n) {
    c->in_end += n;
    weft_status_t st = weft__run_decode(c->header, c->in_end, &c->frame);
    if (st == WEFT_OK) frame_begins(c);
    if (st < 0) lose_exchange(c, st);
}

/* Until the socket is empty, or no rank waits any more. */
static void read_some(struct run_client *c) {
    while (exchange_is_gathering(&c->x.fsm)) {
        ssize_t n = read_piece(c);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            lose_exchange(c, WEFT_ERR_PEER_FAILED);
            return;
        }
        if (in_header(c)) {
            took_header(c, (size_t)n);
        } else {
            c->payload_at += (size_t)n;
        }
        if (exchange_is_gathering(&c->x.fsm) && !in_header(c) && c->payload_at == c->frame.len)
            frame_ends(c);
    }
}

static void ready_exchange(struct watch *watch, int events) {
    struct run_client *c = container_of(watch, struct run_client, watch);
    if (events & WATCH_WRITE && exchange_is_gathering(&c->x.fsm) && c->out_at < c->out_end)
        write_some(c);
    read_some(c);

    weft_done_fn due = c->due;
    c->due = NULL;
    if (due) due(c->x.status, c->done_arg); /* may begin the next round */
}

/* ---- the machine's outputs ------------------------------------------------------------------- */

static weft_status_t begin_exchange(struct run_client *c, const struct ask *ask) {
    c->reactor = ask->reactor;
    c->all = ask->all;
    c->len = ask->len;
    c->done = ask->done;
    c->done_arg = ask->done_arg;
    queue(c, ask->mine, ask->len);
    return weft__watch_start(c->reactor, &c->watch, c->fd, WATCH_READ | WATCH_WRITE);
}

static weft_status_t refuse_exchange(const struct run_client *c) {
    if (c->x.awaited) return weft__fail(WEFT_ERR_BUSY, "an exchange is in progress");
    return weft__fail(c->x.status, "the connection with weft-run is broken");
}

static void effect_exchange(struct fsm *m, unsigned what) {
    struct run_client *c = (struct run_client *)m;
    switch (what) {
    case EXCHANGE_FX_SEND: c->verdict = begin_exchange(c, c->asked); break;
    case EXCHANGE_FX_REFUSE: c->verdict = refuse_exchange(c); break;
    case EXCHANGE_FX_DETACH:
        if (c->watch.events) weft__watch_stop(c->reactor, &c->watch);
        c->sink = NULL;
        break;
    case EXCHANGE_FX_DONE: c->due = c->done; break;
    case EXCHANGE_FX_HANG_UP:
        close(c->fd);
        c->fd = -1;
        break;
    default: break;
    }
}

static void fail_exchange(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct run_client *c = (struct run_client *)m;
    (void)why;
    weft__log(weft__reactor_context(c->reactor), WEFT_LOG_ERROR, "runtime",
              "weft-run sent an unexpected %s (%s)", m->port->machine->event_name[event],
              fsm_state_name(m));
    c->x.status = WEFT_ERR_PROTOCOL;
    weft__fsm_step(m, EXCHANGE_EV_LOST); /* the failed step is over: it moved nothing */
}

static const struct fsm_port port = {&weft__exchange_machine, effect_exchange, fail_exchange};

/* ---- the exchange, as a team sees it --------------------------------------------------------- */

static weft_status_t check_exchange(const struct run_client *c, size_t len) {
    if (getpid() != c->pid)
        return weft__fail(WEFT_ERR_FORKED, "the exchange belongs to the parent process");
    if (len > RUN_MAX_MINE)
        return weft__fail(WEFT_ERR_TOO_BIG, "len: %zu, at most %d", len, RUN_MAX_MINE);
    if (len * c->public.size > RUN_MAX_PAYLOAD)
        return weft__fail(WEFT_ERR_TOO_BIG, "len × size: at most %d", RUN_MAX_PAYLOAD);
    if (!has_room(c, len))
        return weft__fail(WEFT_ERR_BUSY, "cancelled exchanges have not been sent yet");
    return WEFT_OK;
}

static weft_status_t alone(const void *mine, size_t len, void *all, weft_done_fn done,
                           void *done_arg) {
    if (len > 0) memmove(all, mine, len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}

static weft_status_t allgather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                               void *all, weft_done_fn done, void *done_arg) {
    struct run_client *c = arg;
    weft_status_t st = check_exchange(c, len);
    if (st < 0) return st;
    if (c->public.size == 1) return alone(mine, len, all, done, done_arg);

    struct ask ask = {weft__worker_reactor(worker), mine, len, all, done, done_arg};
    c->asked = &ask;
    weft__fsm_step(&c->x.fsm, EXCHANGE_EV_START);
    c->asked = NULL;
    if (c->verdict < 0 && !c->watch.events) weft__fsm_step(&c->x.fsm, EXCHANGE_EV_CANCEL);
    return c->verdict;
}

static void cancel_exchange(void *arg) {
    struct run_client *c = arg;
    c->due = NULL;
    weft__fsm_step(&c->x.fsm, EXCHANGE_EV_CANCEL);
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status_t prepare_exchange(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return weft__fail(WEFT_ERR_IO, "the descriptor of weft-run: %s", strerror(errno));
    return WEFT_OK;
}

weft_status_t weft__run_client_create(int fd, uint32_t rank, uint32_t size,
                                      struct run_client **client_p) {
    weft_status_t st = fd >= 0 ? prepare_exchange(fd) : WEFT_OK;
    if (st < 0) return st;
    struct run_client *c = weft__new(NULL, struct run_client);
    if (!c) return WEFT_ERR_NO_MEMORY;
    c->public = (weft_exchange_t){
        .rank = rank, .size = size, .allgather = allgather, .cancel = cancel_exchange, .arg = c};
    c->fd = fd;
    c->pid = getpid();
    c->watch.ready = ready_exchange;
    fsm_init(&c->x.fsm, &port, EXCHANGE_IDLE, rank);
    *client_p = c;
    return WEFT_OK;
}

const weft_exchange_t *weft__run_client_exchange(struct run_client *client) {
    return &client->public;
}

bool weft__run_client_is_busy(const struct run_client *client) {
    return exchange_is_gathering(&client->x.fsm);
}

void weft__run_client_free(struct run_client *client) {
    cancel_exchange(client);
    if (client->fd >= 0) close(client->fd);
    talloc_free(client);
}
