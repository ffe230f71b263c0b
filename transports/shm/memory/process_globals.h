/*
 * What all workers of this process share, under one lock: their slot tables and the mappings of
 * peers' segments. Only opening and closing takes the lock, never a message.
 */
#ifndef WEFT_TRANSPORTS_SHM_MEMORY_PROCESS_GLOBALS_H
#define WEFT_TRANSPORTS_SHM_MEMORY_PROCESS_GLOBALS_H

#include <stdint.h>

enum { PROCESS_GLOBALS_BUCKETS = 64 };

struct process_globals {
    struct slot_table *slot_tables;                 /* a list (slot_table.h) */
    struct mapped *mapped[PROCESS_GLOBALS_BUCKETS]; /* lists, by inode (mapped.h) */
    /* a random number that peers look for; 0: not drawn yet */
    uint64_t probe;
};

/* Takes the lock. The child of a fork finds the globals empty: its parent's segments are not its
 * own. */
struct process_globals *weft__process_globals_enter(void);
void weft__process_globals_leave(void);

#endif
