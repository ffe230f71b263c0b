/* The machine of an attachment, and its timer. The owner is notified after a step, never inside
 * a call of its own. */
#include "attach.h"
#include "handshake.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <transports/shm/rma/key.h>
#include <unistd.h>

enum { KNOCK_AGAIN_MS = 2 };

#define FSM_NAME   shm_attach
#define FSM_PREFIX SHM_ATTACH
#define FSM_STARTS 1 << SHM_ATTACH_NEW | 1 << SHM_ATTACH_HANDSHAKE
#include <fsm/define.h>

static void shm_attach_act_hello(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_SEND_HELLO);
}

static void shm_attach_act_up(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_NOTIFY_UP);
}

static void shm_attach_act_accept(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_SEND_WELCOME);
    fsm_effect(m, SHM_ATTACH_FX_NOTIFY_ACCEPTED);
}

/* The peer sends no more: the owner gets what its ring still holds first. */
static void shm_attach_act_drain(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_DEAF);
    fsm_effect(m, SHM_ATTACH_FX_WATCH_EMPTY);
}

static void shm_attach_act_down(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_STOP);
    fsm_effect(m, SHM_ATTACH_FX_NOTIFY_DOWN);
}

static void shm_attach_act_fail(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_STOP);
    fsm_effect(m, SHM_ATTACH_FX_NOTIFY_DOWN);
}

/* The dialer gets the reason. */
static void shm_attach_act_refuse(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_SEND_NO);
    fsm_effect(m, SHM_ATTACH_FX_FORGET);
}

static void shm_attach_act_forget(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_FORGET);
}

/* Our memory stays until the peer has sent BYE or died: it may still read one of our chunks. */
static void shm_attach_act_bye(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_STOP);
    fsm_effect(m, SHM_ATTACH_FX_SEND_BYE);
    fsm_effect(m, SHM_ATTACH_FX_TIMER_CLOSE);
}

static void shm_attach_act_quit(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_STOP);
    fsm_effect(m, SHM_ATTACH_FX_SEND_QUIT);
    fsm_effect(m, SHM_ATTACH_FX_TIMER_CLOSE);
}

static void shm_attach_act_leave(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_DEAF);
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_STOP);
    fsm_effect(m, SHM_ATTACH_FX_FINISH);
}

static void shm_attach_act_closed(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_FINISH);
}

/* ---- effects --------------------------------------------------------------------------------- */

static struct reactor *reactor_of(const struct shm_lane *lane) {
    return lane->lane.iface->reactor;
}

/* Every close is bounded: if no timer can be had, its time is up at once. */
static void bound_close(struct shm_lane *lane) {
    uint64_t ms = weft__setting_u64(weft__reactor_context(reactor_of(lane)), SETTING_CLOSE_TIMEOUT);
    uint64_t at = weft__now(reactor_of(lane)) + ms * NS_PER_MS;
    if (weft__timer_start(reactor_of(lane), &lane->timer, at) < 0) lane->due |= DUE_TIME_IS_UP;
}

/* After the release, the teardown's machine uses the timer's memory. */
static void timer_stop(struct shm_lane *lane) {
    if (!lane->parting) weft__timer_stop(reactor_of(lane), &lane->timer);
}

static void stop_attach(struct shm_lane *lane) {
    weft__shm_offers_end(lane);
    lane->am = NULL;
    lane->paused = false;
    lane->watches_empty = false;
    if (lane->by_mail) weft__shm_mail_unread(lane);
    /* the peer may take long to part, and another lane may use its place */
    shm_way(lane)->leave(lane);
    weft__shm_ring_uncount(lane);
    weft__shm_keys_end(lane, lane->status < 0 ? lane->status : WEFT_ERR_CLOSED);
    weft__shm_purge(lane);
}

void weft__shm_found_empty(struct shm_lane *lane) {
    weft__shm_step(lane, SHM_ATTACH_EV_EMPTY);
}

static void watch_empty(struct shm_lane *lane) {
    (void)weft__shm_pause(&lane->lane, false);
    lane->lane.ops = shm_iface(lane)->lane_ops->down;
    lane->watches_empty = true;
    if (lane->by_mail)
        weft__shm_mail_drain(lane);
    else
        shm_way(lane)->activate(lane);
}

/* A failed send means that the peer is gone, and its socket will report that. A peer that only
 * does not read may still use our memory: the shutdown notifies it. */
static void send_or_break(struct shm_lane *lane, weft_status_t st) {
    if (st == WEFT_OK || lane->watch.fd < 0 || errno == EAGAIN) return;
    /* the peer is not gone */
    if (errno != EPIPE && errno != ECONNRESET) shm_iface(lane)->slot.poisoned |= lane->shown;
    shutdown(lane->watch.fd, SHUT_RDWR);
}

/* Logs the reason for the operator of this side, and sends it to the peer. */
static void turn_away(struct shm_lane *lane) {
    weft__log_limited(weft__reactor_context(reactor_of(lane)), WEFT_LOG_WARN, "shm",
                      "refused a connection: %s", weft_status_name(lane->status));
    send_or_break(lane, weft__shm_send_word(lane->watch.fd, SHM_NO, lane->status));
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct shm_lane *lane = container_of(m, struct shm_lane, fsm);
    switch ((enum shm_attach_effect)effect) {
    case SHM_ATTACH_FX_SEND_HELLO:
        send_or_break(lane, weft__shm_send_hello(lane, SHM_HELLO));
        break;
    case SHM_ATTACH_FX_SEND_WELCOME:
        send_or_break(lane, weft__shm_send_hello(lane, SHM_WELCOME));
        break;
    case SHM_ATTACH_FX_SEND_NO: turn_away(lane); break;
    case SHM_ATTACH_FX_SEND_BYE: lane->sends_bye = true; break;
    case SHM_ATTACH_FX_SEND_QUIT: lane->sends_quit = true; break;
    case SHM_ATTACH_FX_WATCH_EMPTY: watch_empty(lane); break;
    case SHM_ATTACH_FX_DEAF:
        if (!lane->parting) weft__aux_watch_stop(reactor_of(lane), &lane->watch);
        break;
    case SHM_ATTACH_FX_STOP: stop_attach(lane); break;
    case SHM_ATTACH_FX_TIMER_CLOSE: bound_close(lane); break;
    case SHM_ATTACH_FX_TIMER_STOP: timer_stop(lane); break;
    case SHM_ATTACH_FX_NOTIFY_UP: lane->due |= DUE_UP; break;
    case SHM_ATTACH_FX_NOTIFY_ACCEPTED: lane->due |= DUE_ACCEPTED; break;
    case SHM_ATTACH_FX_NOTIFY_DOWN: lane->due |= DUE_DOWN; break;
    case SHM_ATTACH_FX_FINISH: lane->due |= DUE_CLOSED; break;
    case SHM_ATTACH_FX_FORGET: lane->due |= DUE_FORGET; break;
    case SHM_ATTACH_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct shm_lane *lane = container_of(m, struct shm_lane, fsm);
    weft_context_t *context = weft__reactor_context(reactor_of(lane));
    const char *name = m->port->machine->event_name[event];
    if (why == FSM_VIOL) {
        shm_iface(lane)->count->violations++;
        weft__log_limited(context, WEFT_LOG_WARN, "shm",
                          "process %d: protocol violation: %s is not allowed now",
                          (int)shm_pid(lane), name);
    } else {
        weft__log(context, WEFT_LOG_ERROR, "shm", "lane %u: %s in state %s", m->id, name,
                  fsm_state_name(m));
    }
    if (event == SHM_ATTACH_EV_FAILED) return; /* the lane has failed already */
    lane->due |= why == FSM_VIOL ? DUE_VIOLATED : DUE_BROKEN;
}

static const struct fsm_port port = {&weft__shm_attach_machine, on_effect, on_fail};

/* ---- notifying the owner --------------------------------------------------------------------- */

/* The memory is freed when no callback is under way. */
static void more_end(struct shm_lane *lane) {
    struct shm_ext *more = lane->more;
    if (!more) return;
    if (more->keys) weft__free_later(reactor_of(lane), more->keys);
    weft__slab_free_later(&shm_iface(lane)->table.ext_slab, more);
}

static void start_attach(struct shm_lane *lane) {
    shm_iface(lane)->shaken = lane->more->target;
    if (lane->by_mail && !lane->more->keys) {
        more_end(lane);
        lane->more = NULL;
    }
    lane->lane.ops =
        lane->by_mail ? shm_iface(lane)->lane_ops->mail : shm_iface(lane)->lane_ops->ring;
    lane->am = lane_handlers(&lane->lane);
    /* the peer may have sent before the lane answered its doorbell */
    shm_way(lane)->activate(lane);
}

/* Chunks that a peer may still read are not used again: the lane stays for them (teardown.c). Those
 * of the mailbox wait for its drain. */
static void chunks_end(struct shm_lane *lane) {
    if (lane->mail.tx.n_staged == 0 || lane->by_mail || lane->parting) return;
    weft__shm_refresh(lane);
    if (lane->received_end || lane->received_eof) shm_way(lane)->reclaim(lane);
    if (lane->mail.tx.n_staged)
        weft__log(weft__reactor_context(reactor_of(lane)), WEFT_LOG_WARN, "shm",
                  "pid %d may read %u staging chunks beyond the close", (int)shm_pid(lane),
                  lane->mail.tx.n_chunks);
}

/* Records the cause that the owner gets with the status. */
static void note_cause(const struct shm_lane *lane, int pid) {
    weft_status_t status = (int)lane->status;
    weft__causes_clear();
    if (status == WEFT_ERR_PEER_FAILED)
        (void)weft__fail(status, "process %d ended, or closed its socket without a goodbye", pid);
    else if (status == WEFT_ERR_PROTOCOL)
        (void)weft__fail(status, "process %d wrote to the shared memory what the protocol forbids",
                         pid);
    else if (status == WEFT_ERR_TIMED_OUT)
        (void)weft__fail(
            status, "process %d did not complete the handshake in its time (connect.timeout)", pid);
}

static void notify_down(struct shm_lane *lane) {
    int pid = (int)shm_pid(lane); /* unknown after the release */
    chunks_end(lane);
    weft__shm_release(lane);
    lane->lane.ops = shm_iface(lane)->lane_ops->down;
    weft__shm_bulk_end(lane, lane->status);
    if (lane->lane.ops == shm_iface(lane)->lane_ops->closed)
        return; /* a completion closed the lane: only `closed` follows */
    note_cause(lane, pid);
    lane->lane.iface->up->down(&lane->lane, lane->status);
}

/* Frees the lane's memory, and of a zombie its place, too. */
void weft__shm_lane_end(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    weft__shm_close_all(lane);
    if (!lane->zombie) return; /* its owner has not closed it yet */
    iface->table.lanes[lane->index] = NULL;
    iface->table.n--;
    more_end(lane);
    weft__slab_free_later(&iface->table.slab, lane);
}

static void take_off(struct shm_lane *lane) {
    weft__shm_release(lane);
    lane->sends_ctrl = false;
    if (lane->more) weft__job_drop(reactor_of(lane), &lane->more->bulk_job);
    lane->zombie = true;
    if (shm_outlives_release(lane)) return;
    weft__shm_lane_end(lane);
}

static void notify_closed(struct shm_lane *lane) {
    chunks_end(lane);
    weft__shm_bulk_end(lane, WEFT_ERR_CANCELLED);
    take_off(lane);
    lane->lane.iface->up->closed(&lane->lane);
}

void weft__shm_lane_free(struct shm_lane *lane) {
    take_off(lane);
}

static void accepted(struct shm_lane *lane) {
    void *listen_arg = lane->more->listen_arg;
    lane->more->listener = NULL;
    start_attach(lane);
    lane->lane.iface->up->accepted(&lane->lane, listen_arg);
}

static void time_is_up(struct shm_lane *lane) {
    if (lane->status == WEFT_OK) lane->status = WEFT_ERR_TIMED_OUT;
    weft__shm_step(lane, SHM_ATTACH_EV_TIMEOUT);
}

static void run_due(struct shm_lane *lane) {
    while (lane->due) {
        unsigned due = lane->due & -(unsigned)lane->due;
        lane->due &= (uint8_t)~due;
        switch (due) {
        case DUE_UP:
            start_attach(lane);
            lane->lane.iface->up->up(&lane->lane);
            /* The peer may sleep until this side has opened the lane: wake it to send. */
            if (lane->by_mail) shm_wake(lane);
            break;
        case DUE_ACCEPTED: accepted(lane); break;
        case DUE_VIOLATED: weft__shm_failed(lane, WEFT_ERR_PROTOCOL); break;
        case DUE_BROKEN: weft__shm_failed(lane, WEFT_ERR_INTERNAL); break;
        case DUE_DOWN: notify_down(lane); break;
        case DUE_FORGET: weft__shm_lane_free(lane); return;
        case DUE_CLOSED: notify_closed(lane); return;
        case DUE_TIME_IS_UP: time_is_up(lane); return;
        }
    }
}

void weft__shm_step(struct shm_lane *lane, unsigned event) {
    weft__fsm_step(&lane->fsm, event);
    run_due(lane);
}

void weft__shm_failed(struct shm_lane *lane, weft_status_t status) {
    if (lane->status == WEFT_OK) lane->status = (int8_t)status;
    if (status == WEFT_ERR_PROTOCOL) shm_iface(lane)->count->violations++;
    weft__shm_step(lane, SHM_ATTACH_EV_FAILED);
}

/* Sends BYE or QUIT as soon as the socket has room. If the peer is gone, the socket reports it. */
void weft__shm_goodbye(struct shm_lane *lane) {
    uint8_t word = lane->sends_bye ? SHM_BYE : SHM_QUIT;
    if (!(lane->sends_bye || lane->sends_quit) || lane->watch.fd < 0) return;
    weft_status_t st = weft__shm_send_word(lane->watch.fd, word, WEFT_OK);
    bool later = st < 0 && errno != EPIPE && errno != ECONNRESET;
    weft__shm_watch_for_room(lane, later);
    if (!later) lane->sends_bye = lane->sends_quit = false;
}

/* Runs outside the handler in which the owner closed the lane, since that handler may read the
 * peer's memory. */
void weft__shm_send_due(struct job *job) {
    struct shm_iface *iface = container_of(job, struct shm_iface, table.sender);
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (!lane || !lane->sends_ctrl) continue;
        lane->sends_ctrl = false;
        weft__shm_goodbye(lane);
        run_due(lane);
    }
}

void weft__shm_close(struct lane *l, bool flush) {
    struct shm_lane *lane = (struct shm_lane *)l;
    lane->lane.ops = shm_iface(lane)->lane_ops->closed;
    weft__fsm_step(&lane->fsm, flush ? SHM_ATTACH_EV_CLOSE : SHM_ATTACH_EV_ABORT);
    lane->sends_ctrl = true;
    weft__job_post(reactor_of(lane), &shm_iface(lane)->table.sender);
}

const struct shm_lane_events weft__shm_lane_events = {
    .failed = weft__shm_failed, .found_empty = weft__shm_found_empty, .drained = weft__shm_drained};

/* ---- beginning ------------------------------------------------------------------------------- */

static void timer_fired(struct timer *timer) {
    struct shm_lane *lane = container_of(timer, struct shm_lane, timer);
    if (lane->watch.fd < 0 && lane->more && weft__now(reactor_of(lane)) < lane->more->deadline) {
        weft_status_t st = weft__shm_dial(lane);
        if (st < 0) weft__shm_failed(lane, st);
        return;
    }
    time_is_up(lane);
}

bool weft__shm_grow_lanes(struct shm_iface *iface) {
    unsigned room = iface->table.room ? 2 * iface->table.room : 32;
    if (room > DOORBELL_LANES) return false;
    struct shm_lane **more =
        weft__realloc(iface, iface->table.lanes, room * sizeof *more, "shm lanes");
    if (!more) return false;
    memset(more + iface->table.room, 0, (room - iface->table.room) * sizeof *more);
    iface->table.lanes = more;
    iface->table.room = room;
    return true;
}

static unsigned free_index(const struct shm_iface *iface) {
    /* no gap before last_index */
    unsigned i = iface->table.n == iface->table.last_index + 1 ? iface->table.n : 0;
    while (iface->table.lanes[i]) i++;
    return i;
}

struct shm_lane *weft__shm_lane_new(struct shm_iface *iface) {
    static _Thread_local uint32_t next_id;
    struct reactor *r = iface->iface.reactor;
    if (iface->table.n == iface->table.room && !weft__shm_grow_lanes(iface)) return NULL;
    struct shm_lane *lane = weft__slab_take(&iface->table.slab);
    if (!lane) return NULL;
    lane->lane = (struct lane){.ops = iface->lane_ops->dialing, .iface = &iface->iface};
    if (!weft__shm_ext(lane)) {
        weft__slab_put(&iface->table.slab, lane);
        return NULL;
    }
    iface->count = shm_ring(lane)->count = weft__count(r);
    pending_queue_init(&lane->pending);
    lane->event_fd = lane->watch.fd = -1;
    lane->timer.fire = timer_fired;
    lane->watch.ready = weft__shm_read;
    lane->more->deadline =
        weft__now(r) +
        weft__setting_u64(weft__reactor_context(r), SETTING_CONNECT_TIMEOUT) * NS_PER_MS;
    lane->index = (uint16_t)free_index(iface);
    iface->table.lanes[lane->index] = lane;
    iface->table.n++;
    if (lane->index > iface->table.last_index) iface->table.last_index = lane->index;
    fsm_init(&lane->fsm, &port, SHM_ATTACH_NEW, ++next_id);
    return lane;
}

/* Accepts only processes of this user. */
static weft_status_t check_peer(struct shm_lane *lane) {
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(lane->watch.fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return weft__fail(WEFT_ERR_IO, "shm: SO_PEERCRED: %s", strerror(errno));
    if (who.uid != geteuid())
        return weft__fail(WEFT_ERR_AUTH,
                          "shm: the peer's process belongs to user %u, not to this user",
                          (unsigned)who.uid);
    return weft__shm_process_get(lane, who.pid);
}

static weft_status_t until_deadline(struct shm_lane *lane) {
    return weft__timer_start(reactor_of(lane), &lane->timer, lane->more->deadline);
}

/* Connects. If the listener's queue is full, a timer tries again soon. */
weft_status_t weft__shm_dial(struct shm_lane *lane) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path, lane->more->where);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return weft__fail(weft__errno_status(errno), "shm: socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        int error = errno;
        close(fd);
        if (error == EAGAIN)
            return weft__timer_start(reactor_of(lane), &lane->timer,
                                     weft__now(reactor_of(lane)) + KNOCK_AGAIN_MS * NS_PER_MS);
        return weft__fail(error == ENOENT ? WEFT_ERR_REFUSED : weft__errno_status(error),
                          "shm: connect to %s: %s", lane->more->where, strerror(error));
    }
    lane->watch.fd = fd;
    weft_status_t st = check_peer(lane);
    if (st == WEFT_OK) st = until_deadline(lane);
    if (st < 0) return st;
    /* at once: the acceptor reads the handshake first */
    weft__fsm_step(&lane->fsm, SHM_ATTACH_EV_CONNECTED);
    return weft__aux_watch_start(reactor_of(lane), &lane->watch, WATCH_READ);
}

weft_status_t weft__shm_handshake(struct shm_lane *lane, int fd) {
    lane->watch.fd = fd;
    weft_status_t st = check_peer(lane);
    if (st == WEFT_OK) st = weft__shm_mail_offer(lane);
    if (st == WEFT_OK) st = until_deadline(lane);
    if (st == WEFT_OK) weft__fsm_step(&lane->fsm, SHM_ATTACH_EV_ACCEPTED);
    return st;
}
