/* Two example machines with a user each, in a channel that holds every message ever sent. */
#ifndef WEFT_TESTS_FSM_EXAMPLE_MODEL_H
#define WEFT_TESTS_FSM_EXAMPLE_MODEL_H

#include "machine_example.h"

#include <fsm/explore/explorer.h>

/* A model of `machine`, which is weft__example_machine or a defective copy. */
struct example_model {
    struct explore_role role;
    struct explore_model model;
};
void example_model(struct example_model *e, const struct fsm_machine *machine);

/* The same over queues that lose one message and repeat one; time passes when both are empty. */
void example_queues(struct example_model *e);

/* Its invariant, for spin. */
extern const char example_invariant[];

#endif
