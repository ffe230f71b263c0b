/* The end of a lane by the mailbox: its owner may be gone while both mailboxes are emptied of each other's nodes. */
#include "shm.h"
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#define OF_FSM(m)   ((struct shm_lane *)((char *)(m)-offsetof(struct shm_lane, part)))
#define OF_WATCH(w) ((struct shm_lane *)((char *)(w)-offsetof(struct shm_lane, watch)))

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

/* ---- effects --------------------------------------------------------------------------------------------------- */

static void on_effect(struct fsm *m, unsigned effect) {
    struct shm_lane *lane = OF_FSM(m);
    switch ((enum shm_part_effect)effect) {
    case SHM_PART_FX_SEND_QUIT:
        lane->says_quit = true;
        weft__shm_farewell(lane);
        break;
    case SHM_PART_FX_EMPTY: weft__shm_mail_drain(lane); break;
    case SHM_PART_FX_SHUT: shutdown(lane->watch.fd, SHUT_WR); break;
    case SHM_PART_FX_FREE: weft__shm_mail_end(lane); break;
    case SHM_PART_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    const struct shm_lane *lane = OF_FSM(m);
    weft__log(weft__reactor_context(lane->lane.iface->reactor), WEFT_LOG_ERROR, "shm", "lane %u: %s in state %s",
              m->id, m->port->machine->event_name[event], fsm_state_name(m));
}

static const struct fsm_port port = {&weft__shm_part_machine, on_effect, on_fail};

/* ---- the peer's last words ---------------------------------------------------------------------------------------- */

/* It has let go of what it was granted, too. */
static void grants_part(struct shm_lane *lane) {
    weft__shm_parted(lane);
    weft__shm_grants_part(lane);
}

/* All that matters now is the end: what else it says was said too late. */
static void parting_read(struct cold_watch *watch, int events) {
    struct shm_lane *lane = OF_WATCH(watch);
    uint8_t data[sizeof(struct shm_hello) + 1];
    enum shm_kind kind;
    struct shm_hello hello;
    weft_status_t status;
    if (events & WATCH_WRITE) weft__shm_farewell(lane);
    ssize_t n =
        recv(lane->watch.fd, data, sizeof data, MSG_DONTWAIT); /* descriptors are not taken, and are closed */
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        weft__cold_stop(lane->lane.iface->reactor, &lane->watch);
        lane->heard_eof = true;
        grants_part(lane);
        fsm_step(&lane->part, SHM_PART_EV_LOST);
        return;
    }
    if (weft__shm_decode(data, (size_t)n, &kind, &hello, &status) != WEFT_OK) return;
    if (kind != SHM_BYE && kind != SHM_QUIT) return;
    grants_part(lane);
    fsm_step(&lane->part, SHM_PART_EV_SILENT);
}

/* Without a watch it stays until the worker ends: nobody may be lent what the peer may still read. */
static void watch_the_end(struct shm_lane *lane) {
    struct reactor *r = lane->lane.iface->reactor;
    if (shm_parting(lane)) return;
    if (lane->heard_eof) { /* there is nothing more to hear, again and again */
        weft__cold_stop(r, &lane->watch);
        return;
    }
    lane->watch.ready = parting_read;
    weft_status_t st = weft__cold_watch(r, &lane->watch, WATCH_READ); /* or reads on, and writes no more */
    if (st == WEFT_OK) return;
    weft__log(weft__reactor_context(r), WEFT_LOG_WARN, "shm", "lane %u waits for its peer's end unheard",
              lane->fsm.id);
}

void weft__shm_part_leave(struct shm_lane *lane) {
    watch_the_end(lane);
    if (lane->heard_eof || lane->heard_end) weft__shm_grants_part(lane);
    if (!lane->parting) fsm_init(&lane->part, &port, SHM_PART_ATTACHED, lane->fsm.id);
    lane->parting = true;
    fsm_step(&lane->part, lane->heard_eof   ? SHM_PART_EV_LEAVE_LOST
                          : lane->heard_end ? SHM_PART_EV_LEAVE_SILENT
                                            : SHM_PART_EV_LEAVE);
}

void weft__shm_part_emptied(struct shm_lane *lane) {
    fsm_step(&lane->part, SHM_PART_EV_EMPTIED);
}
