/* The team at one member: who the others are, what is in progress, and what they share. */
#ifndef WEFT_COLLECTIVES_TEAM_H
#define WEFT_COLLECTIVES_TEAM_H

#include <endpoints/list.h>
#include <endpoints/worker.h>
#include <weft/collective.h>

#include "machines.h"
#include "plan.h"
#include "segment.h"
#include "select.h"
#include "wire.h"

/* All teams of one worker: where messages find theirs. */
struct coll_room {
    weft_worker_t *worker;
    struct reactor *reactor;
    struct list teams;
    struct list orphans; /* messages of teams whose exchange has not ended here */
    uint32_t n_orphans;
    void (*closed)(weft_worker_t *worker); /* set: the worker waits for the last team */
};

struct member {
    struct weft_team *team;
    weft_ep_t *ep; /* NULL: not open */
    bool up;       /* it has answered */
    bool gone;     /* closed its side in good order: what it sent has come, and nothing more will */
};

/* The uses of the segment's lines, at this member (oneshot.c). */
struct team_lines {
    uint64_t next;          /* to be given to a collective */
    uint64_t entered, left; /* those below, in their order */
    uint64_t told;          /* `left`, as the line said that was written last */
    uint64_t left_by_all;   /* at least, as far as lines told */
};

struct weft_team {
    struct team_core core;
    struct coll_room *room;
    weft_worker_t *worker;
    struct reactor *reactor;
    struct list of_room;

    uint32_t rank, size, per_core, epoch;
    uint64_t id;          /* 0: the exchange has not ended */
    weft_status_t status; /* why it failed */
    uint32_t blamed;      /* the member to blame for that */
    struct member *member;
    struct member_record *record; /* what each said in the exchange */
    uint32_t n_eps;               /* open or closing */

    weft_exchange_t exchange;
    uint8_t *mine, *all;     /* its buffers */
    weft_status_t exchanged; /* IN_PROGRESS while it runs */
    struct timer deadline;
    struct job exchange_over, connect, tell, quiet, gone;
    void (*on_ready)(weft_team_t *, weft_status_t, void *);
    void *arg;
    weft_done_fn closed;
    void *closed_arg;
    bool in_call; /* within weft_team_create: fail by job only */

    struct choices choices;
    struct plans plans;
    void *spare; /* scratch memory of the last collective, for the next */
    uint64_t spare_bytes;
    uint64_t eager, segment_bytes, unexpected_most, unexpected_bytes;
    uint32_t next_seq; /* of collectives over messages */
    uint32_t unjoined; /* of those, how many in a row let members run ahead */
    uint64_t next_use; /* of slots of the segment */
    struct team_lines lines;
    struct list active;      /* collectives, in the order begun */
    struct list idle;        /* memory for the next ones, */
    uint32_t n_idle;         /* so many */
    struct list early;       /* messages of collectives not begun here */
    struct segment *segment; /* NULL: no memory in common */
    struct poller poller;    /* looks at it while collectives go through it */
    uint32_t agreed;         /* the first collective: everybody has the segment */
    bool all_came;           /* it has ended well */
};

/* ---- team.c */

weft_status_t weft__team_create(weft_worker_t *worker, const weft_team_params_t *params, weft_team_t **team_p);

/* The first bad news: the team fails with it, and the others are told. */
void weft__team_fail(weft_team_t *team, weft_status_t status, uint32_t blamed);
/* A member closed in good order, and all that it sent has come: it is missed only where it is needed. */
void weft__team_without(weft_team_t *team, uint32_t rank);
/* Something ended that a close waits for. */
void weft__team_settle(weft_team_t *team);
/* NULL for ranks that are not there; opened on first use. */
weft_ep_t *weft__team_ep(weft_team_t *team, uint32_t rank);
weft_status_t weft__team_close(weft_team_t *team, const weft_op_t *op);
/* A status of one endpoint, as the outcome of a collective. */
weft_status_t weft__team_outcome(weft_status_t status);
/* Collectives are refused with the team's status, WEFT_ERR_BUSY before it is ready. */
weft_status_t weft__team_usable(const weft_team_t *team);

/* ---- room.c */

weft_status_t weft__coll_room(weft_worker_t *worker, struct coll_room **room_p);
/* The team's identity is known: messages that came before are handed to it. */
void weft__room_adopt(struct coll_room *room, weft_team_t *team);
void weft__room_forget(struct coll_room *room);
void weft__room_leave(struct coll_room *room, weft_team_t *team);

#endif
