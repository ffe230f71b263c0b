/*
 * What switching decides upon: which of two lanes each direction of a link uses, and what was said about it. Pure: no lanes, no
 * memory, no I/O, only a plain struct that the explorer copies. switch.h tells the conversation.
 */
#ifndef WEFT_ENDPOINTS_SWITCH_CORE_H
#define WEFT_ENDPOINTS_SWITCH_CORE_H

#include <fsm/fsm.h>
#include <stdbool.h>
#include <stdint.h>

#include "switch.fsm"
#define FSM_NAME   switch
#define FSM_PREFIX SWITCH
#include <fsm/declare.h>

/* Lanes are 0 and 1. Epochs count the switches of a link, one for both directions. */
struct switch_core {
    struct fsm fsm;
    uint32_t epoch_out, epoch_in;
    uint8_t out, in; /* the lane that we send on, and the one whose messages are delivered; the other one is held */
    uint8_t base;    /* the one to come back to */
    bool lost;       /* the other lane came and is gone: the peer may have gone to it */
};

void weft__switch_init(struct switch_core *c, const struct fsm_port *port, uint32_t id);

/* What these are, by their epochs, on that lane. */
enum switch_event weft__switch_end_is(const struct switch_core *c, uint8_t lane, uint32_t epoch);
enum switch_event weft__switch_drained_is(const struct switch_core *c, uint32_t epoch);
/* A lane is lost; `parted`: the peer closed it in good order. */
enum switch_event weft__switch_loss_is(const struct switch_core *c, uint8_t lane, bool parted);

#endif
