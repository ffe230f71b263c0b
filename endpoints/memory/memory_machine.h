/* The machine of a region, with the plain data that its actions read and write. */
#ifndef WEFT_ENDPOINTS_MEMORY_MEMORY_MACHINE_H
#define WEFT_ENDPOINTS_MEMORY_MEMORY_MACHINE_H

#include <fsm/fsm.h>

#include "memory.fsm"
#define FSM_NAME   memory
#define FSM_PREFIX MEMORY
#define FSM_SETS   MEMORY_SETS
#include <fsm/declare.h>

struct memory_core {
    struct fsm fsm;
};

#endif
