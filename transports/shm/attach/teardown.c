/* The teardown of a lane by the mailbox, and of one by rings while its peer may read staging
 * chunks. Its owner may be gone by then. */
#include "attach.h"
#include "handshake.h"
#include <errno.h>
#include <sys/socket.h>
#include <transports/shm/rma/key.h>
#include <unistd.h>

#define FSM_NAME   shm_part
#define FSM_PREFIX SHM_PART
#include <fsm/define.h>

static void shm_part_act_quit(struct fsm *m) {
    fsm_effect(m, SHM_PART_FX_SEND_QUIT);
}

static void shm_part_act_empty(struct fsm *m) {
    fsm_effect(m, SHM_PART_FX_EMPTY);
}

static void shm_part_act_shut(struct fsm *m) {
    fsm_effect(m, SHM_PART_FX_SHUT);
}

static void shm_part_act_free(struct fsm *m) {
    fsm_effect(m, SHM_PART_FX_FREE);
}

/* ---- effects --------------------------------------------------------------------------------- */

static void on_effect(struct fsm *m, unsigned effect) {
    struct shm_lane *lane = container_of(m, struct shm_lane, part);
    switch ((enum shm_part_effect)effect) {
    case SHM_PART_FX_SEND_QUIT:
        lane->sends_quit = true;
        weft__shm_goodbye(lane);
        break;
    case SHM_PART_FX_EMPTY: weft__shm_mail_drain(lane); break;
    case SHM_PART_FX_SHUT: shutdown(lane->watch.fd, SHUT_WR); break;
    case SHM_PART_FX_FREE:
        if (lane->by_mail)
            weft__shm_mail_forget(lane);
        else
            shm_way(lane)->reclaim(lane);
        weft__shm_lane_end(lane);
        break;
    case SHM_PART_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    const struct shm_lane *lane = container_of(m, struct shm_lane, part);
    weft__log(weft__reactor_context(lane->lane.iface->reactor), WEFT_LOG_ERROR, "shm",
              "lane %u: %s in state %s", m->id, m->port->machine->event_name[event],
              fsm_state_name(m));
}

static const struct fsm_port port = {&weft__shm_part_machine, on_effect, on_fail};

/* ---- the peer's last messages ---------------------------------------------------------------- */

/* The peer has also let go of its grants. */
static void grants_part(struct shm_lane *lane) {
    weft__shm_parted(lane);
    weft__shm_grants_part(lane);
}

/* Only BYE, QUIT and the end of the socket matter now; other messages came too late. */
static void parting_read(struct aux_watch *watch, int events) {
    struct shm_lane *lane = container_of(watch, struct shm_lane, watch);
    uint8_t data[SHM_MESSAGE_MAX + 1];
    enum shm_kind kind;
    struct shm_hello hello;
    weft_status_t status;
    if (events & WATCH_WRITE) weft__shm_goodbye(lane);
    ssize_t n = recv(lane->watch.fd, data, sizeof data,
                     MSG_DONTWAIT); /* without a control buffer the kernel drops descriptors */
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        weft__aux_watch_stop(lane->lane.iface->reactor, &lane->watch);
        lane->received_eof = true;
        grants_part(lane);
        weft__fsm_step(&lane->part, SHM_PART_EV_LOST);
        return;
    }
    if (weft__shm_decode(data, (size_t)n, &kind, &hello, &status) != WEFT_OK) return;
    if (kind != SHM_BYE && kind != SHM_QUIT) return;
    grants_part(lane);
    weft__fsm_step(&lane->part, SHM_PART_EV_SILENT);
}

/* Without a watch the lane stays until the worker ends: the peer may still read its memory. */
static void watch_the_end(struct shm_lane *lane) {
    struct reactor *r = lane->lane.iface->reactor;
    if (lane->parting) return;
    if (lane->received_eof) { /* the socket would report its end again and again */
        weft__aux_watch_stop(r, &lane->watch);
        return;
    }
    lane->watch.ready = parting_read;
    weft_status_t st =
        /* or goes on reading, and stops writing */
        weft__aux_watch_start(r, &lane->watch, WATCH_READ);
    if (st == WEFT_OK) return;
    weft__log(weft__reactor_context(r), WEFT_LOG_WARN, "shm",
              "lane %u: the end of the peer's process cannot be watched", lane->fsm.id);
}

void weft__shm_part_leave(struct shm_lane *lane) {
    watch_the_end(lane);
    if (lane->received_eof || lane->received_end) weft__shm_grants_part(lane);
    if (!lane->parting) fsm_init(&lane->part, &port, SHM_PART_ATTACHED, lane->fsm.id);
    lane->parting = true;
    weft__fsm_step(&lane->part, lane->received_eof   ? SHM_PART_EV_LEAVE_LOST
                                : lane->received_end ? SHM_PART_EV_LEAVE_SILENT
                                                     : SHM_PART_EV_LEAVE);
}

bool weft__shm_drained(struct shm_lane *lane) {
    if (lane->parting) {
        weft__shm_pool_leave(lane);
        weft__fsm_step(&lane->part, SHM_PART_EV_EMPTIED);
        return false;
    }
    if (!lane->watches_empty) return false;
    weft__shm_found_empty(lane);
    return true;
}

void weft__shm_zombies_end(struct shm_iface *iface) {
    for (unsigned i = 0; i < iface->table.room; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (!lane || !lane->zombie) continue;
        weft__shm_parted(lane);
        iface->slot.poisoned = true;
        weft__shm_lane_end(lane);
    }
}
