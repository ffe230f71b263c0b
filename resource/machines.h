/* The machines of this room, with the plain data that their actions read and write. */
#ifndef WEFT_RESOURCE_MACHINES_H
#define WEFT_RESOURCE_MACHINES_H

#include <fsm/fsm.h>
#include <stdbool.h>
#include <weft/base.h>

#include "association.fsm"
#define FSM_NAME   association
#define FSM_PREFIX ASSOC
#define FSM_SETS   ASSOC_SETS
#include <fsm/declare.h>

struct association_core {
    struct fsm fsm;
    bool ended; /* DRAINED came after a loss */
};

#include "grant.fsm"
#define FSM_NAME   grant
#define FSM_PREFIX GRANT
#define FSM_SETS   GRANT_SETS
#include <fsm/declare.h>

struct grant_core {
    struct fsm fsm;
};

#endif
