/*
 * What a switch decides: which of two lanes each direction of a link uses. Pure: a plain struct
 * without lanes, memory and I/O, which the explorer copies. switch.h describes the conversation.
 */
#ifndef WEFT_ENDPOINTS_LANES_SWITCH_CORE_H
#define WEFT_ENDPOINTS_LANES_SWITCH_CORE_H

#include <fsm/fsm.h>
#include <stdbool.h>
#include <stdint.h>

#include "switch.fsm"
#define FSM_NAME   switch
#define FSM_PREFIX SWITCH
#define FSM_SETS   SWITCH_SETS
#include <fsm/declare.h>

#include "switch_out.fsm"
#define FSM_NAME   switch_out
#define FSM_PREFIX SWITCH_OUT
#define FSM_SETS   SWITCH_OUT_SETS
#include <fsm/declare.h>

#include "switch_in.fsm"
#define FSM_NAME   switch_in
#define FSM_PREFIX SWITCH_IN
#define FSM_SETS   SWITCH_IN_SETS
#include <fsm/declare.h>

/* Lanes are 0 and 1. Epochs count the switches of a link, one for both directions. */
struct switch_core {
    struct fsm fsm;
    struct fsm way_out, way_in; /* the two halves of a move */
    uint32_t epoch_out, epoch_in;
    uint8_t out, in; /* the lane that we send on, and the lane whose messages are delivered */
    uint8_t base;    /* the lane to come back to */
    bool lost;       /* the other lane came and is gone: the peer may have moved to it */
};

void weft__switch_init(struct switch_core *c, const struct fsm_port *port, uint32_t id);

/* Every event of the switch. Reports the end of a move, too. */
void weft__switch_step(struct switch_core *c, enum switch_event event);

/* Both sides have left the old lane, and DRAINED is still to come. */
bool weft__switch_awaits_drained(const struct switch_core *c);

/* The event that an END or a DRAINED with this epoch is. */
enum switch_event weft__switch_end_event(const struct switch_core *c, uint8_t lane, uint32_t epoch);
enum switch_event weft__switch_drained_event(const struct switch_core *c, uint32_t epoch);
/* The event of the loss of a lane; `parted`: the peer closed it in good order. */
enum switch_event weft__switch_loss_event(const struct switch_core *c, uint8_t lane, bool parted);

#endif
