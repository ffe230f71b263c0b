/* An attachment: its machine, from the socket's connect to the teardown. */
#ifndef WEFT_TRANSPORTS_SHM_ATTACH_ATTACH_H
#define WEFT_TRANSPORTS_SHM_ATTACH_ATTACH_H

#include <transports/shm/lane/shm.h>

#include <transports/shm/attach/shm_attach.fsm>
#define FSM_NAME   shm_attach
#define FSM_PREFIX SHM_ATTACH
#include <fsm/declare.h>

#include <transports/shm/attach/shm_teardown.fsm>
#define FSM_NAME   shm_part
#define FSM_PREFIX SHM_PART
#include <fsm/declare.h>

/* What a lane that is dialed is to go by. */
enum shm_opts { SHM_OPTS_ANY, SHM_OPTS_MAIL, SHM_OPTS_RING };

/* What follows a step of the machine, in this order. */
enum {
    DUE_UP = 1,
    DUE_ACCEPTED = 2,
    DUE_VIOLATED = 4,
    DUE_BROKEN = 8,
    DUE_DOWN = 16,
    DUE_CLOSED = 32,
    DUE_FORGET = 64,
    DUE_TIME_IS_UP = 128 /* an event for the machine */
};

/* attach.c: the machine */
bool weft__shm_grow_lanes(struct shm_iface *iface);
struct shm_lane *weft__shm_lane_new(struct shm_iface *iface);
/* a lane that its owner does not know */
void weft__shm_lane_free(struct shm_lane *lane);
/* of a lane of which the peer reads nothing more */
void weft__shm_lane_end(struct shm_lane *lane);
void weft__shm_step(struct shm_lane *lane, unsigned event); /* within a turn */
void weft__shm_failed(struct shm_lane *lane, weft_status_t status);
void weft__shm_close(struct lane *lane, bool flush);
void weft__shm_send_due(struct job *job); /* of the iface: good-byes, and what its lanes have due */
void weft__shm_goodbye(struct shm_lane *lane); /* sends what is left of BYE and QUIT */
void weft__shm_found_empty(struct shm_lane *lane);
extern const struct shm_lane_events weft__shm_lane_events;
weft_status_t weft__shm_dial(struct shm_lane *lane);
weft_status_t weft__shm_handshake(struct shm_lane *lane, int fd);

/* teardown.c: the end of a lane of which the peer may still read something */
void weft__shm_part_leave(struct shm_lane *lane); /* this side has released it */
/* The mailbox holds no message of the peer any more. True: the lane has ended, and perhaps its
 * worker. */
bool weft__shm_drained(struct shm_lane *lane);
/* ends the lanes whose peers have not let go yet */
void weft__shm_zombies_end(struct shm_iface *iface);

#endif
