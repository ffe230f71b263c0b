/* The machine that the engine, the explorer and the printers are tried on. */
#ifndef WEFT_TESTS_FSM_MACHINE_EXAMPLE_H
#define WEFT_TESTS_FSM_MACHINE_EXAMPLE_H

#include "machine_example.fsm"
#define FSM_NAME   example
#define FSM_PREFIX EXAMPLE
#include <fsm/declare.h>

struct example {
    struct fsm fsm;
    uint8_t opened; /* by its user */
    uint8_t lost;   /* the peer's kernel reports it, sooner or later */
};

#endif
