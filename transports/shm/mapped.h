/* Peers' segments: each is mapped once in this process, however many of its workers have links by it. */
#ifndef WEFT_TRANSPORTS_SHM_MAPPED_H
#define WEFT_TRANSPORTS_SHM_MAPPED_H

#include "segment.h"
#include <sys/types.h>

struct mapped {
    struct mapped *next; /* of its bucket */
    dev_t device;        /* which nobody else's memory has with this inode while it is mapped */
    ino_t inode;
    bool writable;
    unsigned n_users;
    struct segment segment;
};

/* As weft__segment_map, unless it is mapped already. */
weft_status_t weft__mapped_get(int fd, size_t size, bool writable, struct mapped **mapped_p);
bool weft__mapped_is(const struct mapped *mapped, int fd); /* that of this descriptor */
void weft__mapped_put(struct mapped *mapped);

#endif
