/* What is linked into this very program, by its symbol table. */
#ifndef WEFT_TESTS_FSM_SHIPPED_H
#define WEFT_TESTS_FSM_SHIPPED_H

#include <stdbool.h>

/* How many symbols have this name. */
unsigned symbols_named(const char *name);

/* True when this program has one table of `machine` only, and it was compiled from `source`
 * ("machines.c"). */
bool links_shipped(const char *machine, const char *source);

#endif
