/*
 * What the workers of a process show their peers, each in a place of its own: a doorbell and a board, which peers may write, and a
 * shelf, which they may only read. The places lie side by side in two segments of the process, so that a link to its second worker maps
 * nothing more, and touches no page that is not there.
 *
 * A place is lent again only when no peer can take it for its last owner's: a late look at an old shelf would find another's
 * nodes, and a late wake-up would undo a new owner's `armed`.
 */
#ifndef WEFT_TRANSPORTS_SHM_HALL_H
#define WEFT_TRANSPORTS_SHM_HALL_H

#include "doorbell.h"
#include "joint.h"
#include "mailbox.h"
#include "segment.h"

enum { HALL_PLACES = 1024, HALL_CONTROLS = 1, HALL_NODES = 2 };

/* The first of a worker's controls and nodes, which is all that a quiet link to it touches; the others are in its pool (pool.h). */
struct hall_shelf {
    struct mail_control controls[HALL_CONTROLS];
    struct mail_near nodes[HALL_NODES];
};
_Static_assert(sizeof(struct doorbell) == 64, "what many peers write fills a line");
_Static_assert(sizeof(struct hall_shelf) == 160, "what its owner alone writes stands close");

enum {
    HALL_BOARDS_AT = HALL_PLACES * sizeof(struct doorbell), /* behind all the bells: few workers ever need one */
    HALL_BELLS_SIZE = HALL_BOARDS_AT + HALL_PLACES * sizeof(struct joint_board),
    HALL_SHELVES_SIZE = HALL_PLACES * sizeof(struct hall_shelf) + 4096 /* as near nodes want it */
};

struct hall {
    struct hall *next;
    struct segment bells, shelves;
    size_t bells_filled, shelves_filled; /* bytes that have memory behind them */
    unsigned n_used;
    bool taken[HALL_PLACES];
};

struct hall_place {
    struct hall *hall; /* NULL: none */
    uint32_t index;
    struct doorbell *bell;
    struct hall_shelf *shelf;
    struct joint_board *board; /* NULL: it was not needed yet */
};

/* A place, with zeros in it. */
weft_status_t weft__hall_take(struct hall_place *place);
/* Its board, with zeros when it is first asked for; NULL: no memory. */
struct joint_board *weft__hall_board(struct hall_place *place);
/* `clean`: no peer knows it any more. Otherwise nobody has it again, and it goes with the last worker of its hall. */
void weft__hall_give(struct hall_place *place, bool clean);

#endif
