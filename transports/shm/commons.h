/*
 * What all workers of this process share, each with a thread of its own perhaps: their hall, and what they have mapped of
 * peers. It is reached when something is opened or closed, and on no message's way.
 */
#ifndef WEFT_TRANSPORTS_SHM_COMMONS_H
#define WEFT_TRANSPORTS_SHM_COMMONS_H

#include <stdint.h>

enum { COMMONS_BUCKETS = 64 };

struct commons {
    struct hall *halls;                     /* hall.h */
    struct mapped *mapped[COMMONS_BUCKETS]; /* mapped.h, by inode */
    uint64_t probe;                         /* a number for peers to find; 0: not drawn yet */
};

/* Alone with it until commons_leave. A fork's child finds it empty: what its parent shows is not its own. */
struct commons *weft__commons_enter(void);
void weft__commons_leave(void);

#endif
