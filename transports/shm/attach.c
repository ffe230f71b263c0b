/* The machine of an attachment, and its timer. What the owner is told comes after the step, never inside a call of its own. */
#include "shm.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define OF_FSM(m)   ((struct shm_lane *)((char *)(m)-offsetof(struct shm_lane, fsm)))
#define OF_TIMER(t) ((struct shm_lane *)((char *)(t)-offsetof(struct shm_lane, timer)))

enum { KNOCK_AGAIN_MS = 2 };

#define FSM_NAME   shm_attach
#define FSM_PREFIX SHM_ATTACH
#define FSM_STARTS 1 << SHM_ATTACH_NEW | 1 << SHM_ATTACH_GREETING
#include <fsm/define.h>

static void shm_attach_act_hello(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_SEND_HELLO);
}

static void shm_attach_act_up(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_TELL_UP);
}

static void shm_attach_act_accept(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_SEND_WELCOME);
    fsm_effect(m, SHM_ATTACH_FX_TELL_ACCEPTED);
}

/* The peer sends no more: what it left in its ring is handed over first. */
static void shm_attach_act_drain(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_DEAF);
    fsm_effect(m, SHM_ATTACH_FX_WATCH_EMPTY);
}

static void shm_attach_act_down(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_STOP);
    fsm_effect(m, SHM_ATTACH_FX_TELL_DOWN);
}

static void shm_attach_act_fail(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_STOP);
    fsm_effect(m, SHM_ATTACH_FX_TELL_DOWN);
}

/* The dialling side is told why. */
static void shm_attach_act_refuse(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_SEND_NO);
    fsm_effect(m, SHM_ATTACH_FX_FORGET);
}

static void shm_attach_act_forget(struct fsm *m) {
    fsm_effect(m, SHM_ATTACH_FX_TIMER_STOP);
    fsm_effect(m, SHM_ATTACH_FX_FORGET);
}

/* Our memory stays until the peer has said BYE, or gone: it may be reading a chunk of ours. */
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

/* ---- effects --------------------------------------------------------------------------------------------------- */

static struct reactor *reactor_of(const struct shm_lane *lane) {
    return lane->lane.iface->reactor;
}

/* A close that nothing bounds is worse than none: without a timer its time is up at once. */
static void bound_close(struct shm_lane *lane) {
    uint64_t ms = weft__setting_u64(weft__reactor_context(reactor_of(lane)), SETTING_CLOSE_TIMEOUT);
    uint64_t at = weft__now(reactor_of(lane)) + ms * NS_PER_MS;
    if (weft__timer_start(reactor_of(lane), &lane->timer, at) < 0) lane->say |= SAY_TIME_IS_UP;
}

/* Our side may have done with it: the machine of its end has that place then. */
static void timer_stop(struct shm_lane *lane) {
    if (!lane->parting) weft__timer_stop(reactor_of(lane), &lane->timer);
}

static void stop(struct shm_lane *lane) {
    lane->am = NULL;
    lane->paused = false;
    lane->watches_empty = false;
    if (lane->by_mail) weft__shm_mail_unread(lane);
    shm_way(lane)->leave(lane); /* the peer may take long to part, and another may have its place */
    weft__shm_ring_uncount(lane);
    weft__shm_keys_end(lane, lane->status < 0 ? lane->status : WEFT_ERR_CLOSED);
    weft__shm_purge(lane);
}

void weft__shm_found_empty(struct shm_lane *lane) {
    weft__shm_step(lane, SHM_ATTACH_EV_EMPTY);
}

static void watch_empty(struct shm_lane *lane) {
    (void)weft__shm_pause(&lane->lane, false);
    lane->lane.ops = &weft__shm_ops_down;
    lane->watches_empty = true;
    if (lane->by_mail)
        weft__shm_mail_drain(lane);
    else
        shm_way(lane)->activate(lane);
}

/* What cannot be sent means that the peer is gone; its socket will say so. One that only does not read may still have memory
 * of ours: it hears the hang-up. */
static void send_or_break(struct shm_lane *lane, weft_status_t st) {
    if (st == WEFT_OK || lane->watch.fd < 0 || errno == EAGAIN) return;
    if (errno != EPIPE && errno != ECONNRESET) shm_iface(lane)->spoilt |= lane->shown; /* it is not gone */
    shutdown(lane->watch.fd, SHUT_RDWR);
}

/* The peer's program hears of it; whoever runs this side is to know as well what ran out here. */
static void turn_away(struct shm_lane *lane) {
    weft__log_limited(weft__reactor_context(reactor_of(lane)), WEFT_LOG_WARN, "shm", "a peer was turned away: %s",
                      weft_status_name(lane->status));
    send_or_break(lane, weft__shm_send_word(lane->watch.fd, SHM_NO, lane->status));
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct shm_lane *lane = OF_FSM(m);
    switch ((enum shm_attach_effect)effect) {
    case SHM_ATTACH_FX_SEND_HELLO: send_or_break(lane, weft__shm_send_hello(lane, SHM_HELLO)); break;
    case SHM_ATTACH_FX_SEND_WELCOME: send_or_break(lane, weft__shm_send_hello(lane, SHM_WELCOME)); break;
    case SHM_ATTACH_FX_SEND_NO: turn_away(lane); break;
    case SHM_ATTACH_FX_SEND_BYE: lane->says_bye = true; break;
    case SHM_ATTACH_FX_SEND_QUIT: lane->says_quit = true; break;
    case SHM_ATTACH_FX_WATCH_EMPTY: watch_empty(lane); break;
    case SHM_ATTACH_FX_DEAF:
        if (!shm_parting(lane)) weft__cold_stop(reactor_of(lane), &lane->watch);
        break;
    case SHM_ATTACH_FX_STOP: stop(lane); break;
    case SHM_ATTACH_FX_TIMER_CLOSE: bound_close(lane); break;
    case SHM_ATTACH_FX_TIMER_STOP: timer_stop(lane); break;
    case SHM_ATTACH_FX_TELL_UP: lane->say |= SAY_UP; break;
    case SHM_ATTACH_FX_TELL_ACCEPTED: lane->say |= SAY_ACCEPTED; break;
    case SHM_ATTACH_FX_TELL_DOWN: lane->say |= SAY_DOWN; break;
    case SHM_ATTACH_FX_FINISH: lane->say |= SAY_CLOSED; break;
    case SHM_ATTACH_FX_FORGET: lane->say |= SAY_FORGET; break;
    case SHM_ATTACH_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct shm_lane *lane = OF_FSM(m);
    weft_context_t *context = weft__reactor_context(reactor_of(lane));
    const char *name = m->port->machine->event_name[event];
    if (why == FSM_VIOL) {
        shm_iface(lane)->count->violations++;
        weft__log_limited(context, WEFT_LOG_WARN, "shm", "pid %d says %s in state %s", (int)shm_pid(lane), name,
                          fsm_state_name(m));
    } else {
        weft__log(context, WEFT_LOG_ERROR, "shm", "lane %u: %s in state %s", m->id, name, fsm_state_name(m));
    }
    if (event == SHM_ATTACH_EV_FAILED) return; /* that it has failed will not help it twice */
    lane->say |= why == FSM_VIOL ? SAY_VIOLATED : SAY_BROKEN;
}

static const struct fsm_port port = {&weft__shm_attach_machine, on_effect, on_fail};

/* ---- what the owner is told --------------------------------------------------------------------------------------- */

/* It stays as it is until no callback is under way. */
static void more_end(struct shm_lane *lane) {
    struct shm_more *more = lane->more;
    if (!more) return;
    if (more->keys) weft__bury(reactor_of(lane), more->keys);
    weft__slab_bury(&shm_iface(lane)->more_slab, more);
}

static void start(struct shm_lane *lane) {
    if (lane->by_mail && !lane->more->keys) {
        more_end(lane);
        lane->more = NULL;
    }
    lane->lane.ops = shm_way(lane)->up;
    lane->am = lane_handlers(&lane->lane);
    shm_way(lane)->activate(lane); /* the peer may have sent before we could hear its doorbell */
}

/* Chunks that a peer of an unknown fate may still be reading are not lent again. Those of the mailbox wait for its end. */
static void chunks_end(struct shm_lane *lane, bool peer_is_done) {
    if (lane->mail.tx.n_lent == 0 || lane->by_mail) return;
    if (shm_ring(lane)->theirs) weft__shm_refresh(lane);
    if (peer_is_done) shm_way(lane)->reclaim(lane);
    if (lane->mail.tx.n_lent)
        weft__log(weft__reactor_context(reactor_of(lane)), WEFT_LOG_WARN, "shm",
                  "pid %d kept %u staging chunks beyond its close", (int)shm_pid(lane), lane->mail.tx.n_lent);
    lane->mail.tx.n_lent = 0;
}

static void say_down(struct shm_lane *lane) {
    chunks_end(lane, true);
    weft__shm_release(lane);
    lane->lane.ops = &weft__shm_ops_down;
    weft__shm_bulk_end(lane, lane->status);
    if (lane->lane.ops == &weft__shm_ops_closed) return; /* closed by a completion: `closed` will be all */
    lane->lane.iface->up->down(&lane->lane, lane->status);
}

/* Its place, which a ghost keeps. */
void weft__shm_lane_end(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    weft__shm_close_all(lane);
    if (!lane->ghost) return; /* its owner has yet to close it */
    iface->lanes[lane->index] = NULL;
    iface->n_lanes--;
    more_end(lane);
    weft__slab_bury(&iface->lane_slab, lane);
}

static void take_off(struct shm_lane *lane) {
    weft__shm_release(lane);
    lane->speaks = false;
    if (lane->more) weft__job_drop(reactor_of(lane), &lane->more->bulk_job);
    lane->ghost = true;
    if (lane->by_mail) return;
    weft__shm_lane_end(lane);
}

static void say_closed(struct shm_lane *lane) {
    chunks_end(lane, !lane->timed_out);
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
    start(lane);
    lane->lane.iface->up->accepted(&lane->lane, listen_arg);
}

static void time_is_up(struct shm_lane *lane) {
    if (lane->status == WEFT_OK) lane->status = WEFT_ERR_TIMED_OUT;
    lane->timed_out = true;
    weft__shm_step(lane, SHM_ATTACH_EV_TIMEOUT);
}

static void speak(struct shm_lane *lane) {
    while (lane->say) {
        unsigned say = lane->say & -(unsigned)lane->say;
        lane->say &= (uint8_t)~say;
        switch (say) {
        case SAY_UP:
            start(lane);
            lane->lane.iface->up->up(&lane->lane);
            /* It may sleep with something to send that waits for us to know its nodes. What we have sent by now has woken it. */
            if (lane->by_mail) shm_wake(lane);
            break;
        case SAY_ACCEPTED: accepted(lane); break;
        case SAY_VIOLATED: weft__shm_failed(lane, WEFT_ERR_PROTOCOL); break;
        case SAY_BROKEN: weft__shm_failed(lane, WEFT_ERR_INTERNAL); break;
        case SAY_DOWN: say_down(lane); break;
        case SAY_FORGET: weft__shm_lane_free(lane); return;
        case SAY_CLOSED: say_closed(lane); return;
        case SAY_TIME_IS_UP: time_is_up(lane); return;
        }
    }
}

void weft__shm_step(struct shm_lane *lane, unsigned event) {
    fsm_step(&lane->fsm, event);
    speak(lane);
}

void weft__shm_failed(struct shm_lane *lane, weft_status_t status) {
    if (lane->status == WEFT_OK) lane->status = (int8_t)status;
    if (status == WEFT_ERR_PROTOCOL) shm_iface(lane)->count->violations++;
    weft__shm_step(lane, SHM_ATTACH_EV_FAILED);
}

/* As soon as the socket has room, unless the peer is gone: that will be heard. */
void weft__shm_farewell(struct shm_lane *lane) {
    uint8_t word = lane->says_bye ? SHM_BYE : SHM_QUIT;
    if (!(lane->says_bye || lane->says_quit) || lane->watch.fd < 0) return;
    weft_status_t st = weft__shm_send_word(lane->watch.fd, word, WEFT_OK);
    bool later = st < 0 && errno != EPIPE && errno != ECONNRESET;
    weft__shm_watch_for_room(lane, later);
    if (!later) lane->says_bye = lane->says_quit = false;
}

/* Says good-bye outside the handler in which the owner closed: that may have been reading the peer's memory. */
void weft__shm_speak(struct job *job) {
    struct shm_iface *iface = (struct shm_iface *)((char *)job - offsetof(struct shm_iface, speaker));
    for (unsigned i = 0; i <= iface->last_index; i++) {
        struct shm_lane *lane = iface->lanes[i];
        if (!lane || !lane->speaks) continue;
        lane->speaks = false;
        weft__shm_farewell(lane);
        speak(lane);
    }
}

void weft__shm_close(struct lane *l, bool flush) {
    struct shm_lane *lane = (struct shm_lane *)l;
    lane->lane.ops = &weft__shm_ops_closed;
    fsm_step(&lane->fsm, flush ? SHM_ATTACH_EV_CLOSE : SHM_ATTACH_EV_ABORT);
    lane->speaks = true;
    weft__job_post(reactor_of(lane), &shm_iface(lane)->speaker);
}

/* ---- beginning ----------------------------------------------------------------------------------------------------- */

static void timer_fired(struct timer *timer) {
    struct shm_lane *lane = OF_TIMER(timer);
    if (lane->watch.fd < 0 && lane->more && weft__now(reactor_of(lane)) < lane->more->deadline) {
        weft_status_t st = weft__shm_dial(lane);
        if (st < 0) weft__shm_failed(lane, st);
        return;
    }
    time_is_up(lane);
}

bool weft__shm_more_room(struct shm_iface *iface) {
    unsigned room = iface->room ? 2 * iface->room : 32;
    if (room > DOORBELL_LANES) return false;
    struct shm_lane **more = weft__realloc(iface, iface->lanes, room * sizeof *more, "shm lanes");
    if (!more) return false;
    memset(more + iface->room, 0, (room - iface->room) * sizeof *more);
    iface->lanes = more;
    iface->room = room;
    return true;
}

struct shm_more *weft__shm_more(struct shm_lane *lane) {
    if (lane->more) return lane->more;
    struct shm_more *more = lane->more = weft__slab_take(&shm_iface(lane)->more_slab);
    if (!more) return NULL;
    more->lane = lane;
    more->ring.mine.fd = more->ring.peers.fd = -1;
    more->bulk_job.run = weft__shm_bulk_run;
    more->bulk_last = &more->bulk;
    more->help_job.run = weft__shm_help_run;
    more->help_last = &more->helps;
    return more;
}

static unsigned free_index(const struct shm_iface *iface) {
    unsigned i = iface->n_lanes == iface->last_index + 1 ? iface->n_lanes : 0; /* there may be no gap */
    while (iface->lanes[i]) i++;
    return i;
}

struct shm_lane *weft__shm_lane_new(struct shm_iface *iface) {
    static _Thread_local uint32_t next_id;
    struct reactor *r = iface->iface.reactor;
    if (iface->n_lanes == iface->room && !weft__shm_more_room(iface)) return NULL;
    struct shm_lane *lane = weft__slab_take(&iface->lane_slab);
    if (!lane) return NULL;
    lane->lane = (struct lane){.ops = &weft__shm_ops_dialing, .iface = &iface->iface};
    if (!weft__shm_more(lane)) {
        weft__slab_put(&iface->lane_slab, lane);
        return NULL;
    }
    iface->count = shm_ring(lane)->count = weft__count(r);
    pending_queue_init(&lane->pending);
    lane->event_fd = lane->watch.fd = -1;
    lane->timer.fire = timer_fired;
    lane->watch.ready = weft__shm_read;
    lane->more->deadline =
        weft__now(r) + weft__setting_u64(weft__reactor_context(r), SETTING_CONNECT_TIMEOUT) * NS_PER_MS;
    lane->index = (uint16_t)free_index(iface);
    iface->lanes[lane->index] = lane;
    iface->n_lanes++;
    if (lane->index > iface->last_index) iface->last_index = lane->index;
    fsm_init(&lane->fsm, &port, SHM_ATTACH_NEW, ++next_id);
    return lane;
}

/* Our own user's, or nobody's. */
static weft_status_t check_peer(struct shm_lane *lane) {
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(lane->watch.fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return weft__fail(WEFT_ERR_IO, "shm: SO_PEERCRED: %s", strerror(errno));
    if (who.uid != geteuid()) return weft__fail(WEFT_ERR_AUTH, "shm: the peer is user %u", (unsigned)who.uid);
    return weft__shm_process_get(lane, who.pid);
}

static weft_status_t until_deadline(struct shm_lane *lane) {
    return weft__timer_start(reactor_of(lane), &lane->timer, lane->more->deadline);
}

/* Connects, or tries again soon when the listener's queue is full. */
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
        return weft__fail(error == ENOENT ? WEFT_ERR_REFUSED : weft__errno_status(error), "shm: connect to %s: %s",
                          lane->more->where, strerror(error));
    }
    lane->watch.fd = fd;
    weft_status_t st = check_peer(lane);
    if (st == WEFT_OK) st = until_deadline(lane);
    if (st < 0) return st;
    fsm_step(&lane->fsm, SHM_ATTACH_EV_CONNECTED); /* at once: who accepts looks for our greeting first */
    return weft__cold_watch(reactor_of(lane), &lane->watch, WATCH_READ);
}

weft_status_t weft__shm_greet(struct shm_lane *lane, int fd) {
    lane->watch.fd = fd;
    weft_status_t st = check_peer(lane);
    if (st == WEFT_OK) st = weft__shm_mail_offer(lane);
    if (st == WEFT_OK) st = until_deadline(lane);
    if (st == WEFT_OK) fsm_step(&lane->fsm, SHM_ATTACH_EV_ACCEPTED);
    return st;
}
