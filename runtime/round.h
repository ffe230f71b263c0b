/* The machine of one round. Its port is the server. */
#ifndef WEFT_RUNTIME_ROUND_H
#define WEFT_RUNTIME_ROUND_H

#include <fsm/fsm.h>
#include <weft/base.h>

#include "round.fsm"
#define FSM_NAME   round
#define FSM_PREFIX ROUND
#define FSM_SETS   ROUND_SETS
#include <fsm/declare.h>

struct round {
    struct fsm fsm;
    uint32_t n_joined;
    weft_status_t why; /* in REFUSED */
};

#endif
