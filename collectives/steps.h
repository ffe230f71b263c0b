/* A plan over messages: what steps.c, which runs it, and steps_prepare.c share. */
#ifndef WEFT_COLLECTIVES_STEPS_H
#define WEFT_COLLECTIVES_STEPS_H

#include "collective.h"

/* Of one that asks for counts first: its shape. The arrays are copies, since the caller may change
 * its own when the call has returned. */
struct asked {
    struct coll_shape shape;
    uint64_t *counts; /* that this member says */
};

static inline const struct step *step_of(const struct collective *c, uint32_t i) {
    return &c->plan->schedule->step[i];
}
static inline uint8_t *place_step(const struct collective *c, unsigned buffer, uint64_t offset) {
    return c->buffer[buffer] + offset;
}

/* None of one that could not go on for lack of memory. */
static inline uint32_t n_steps_of(const struct collective *c) {
    return c->step ? c->plan->schedule->n_steps : 0;
}

/* ---- steps.c */

/* Writes the key to DST into the scratch memory, for the members that put into it. */
weft_status_t weft__steps_expose(struct collective *c);
/* Begins the steps through the segment of this host. */
void weft__steps_take_slots(struct collective *c);
/* Takes the messages that came before the collective was begun. */
void weft__steps_hand_over_early(struct collective *c);

/* ---- steps_prepare.c */

weft_status_t weft__steps_prepare(struct collective *c);
/* The counts that it asked for are here: goes on with the plan of its blocks. */
void weft__steps_take_known(struct collective *c);

#endif
