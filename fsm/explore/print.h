/* Machines as people read them: the table as text, the graph for Graphviz. */
#ifndef WEFT_FSM_EXPLORE_PRINT_H
#define WEFT_FSM_EXPLORE_PRINT_H

#include <fsm/fsm.h>
#include <stdio.h>

/* Every cell, then the cells that are never reached and why. `*` marks events that come off the
 * wire. */
void weft__fsm_print_text(const struct fsm_machine *machine, FILE *out);
/* The DO cells as edges "EVENT / action"; `?` marks events that come off the wire. */
void weft__fsm_print_dot(const struct fsm_machine *machine, FILE *out);

/* What is wrong with a table, a line each ("" if nothing); returns how many. For tests. */
unsigned weft__fsm_print_faults(const struct fsm_machine *machine, FILE *out);

#endif
