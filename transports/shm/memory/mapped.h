/* Peers' segments. Each is mapped once in this process and counts its users. */
#ifndef WEFT_TRANSPORTS_SHM_MEMORY_MAPPED_H
#define WEFT_TRANSPORTS_SHM_MEMORY_MAPPED_H

#include "segment.h"
#include <sys/types.h>

struct mapped {
    struct mapped *next; /* of its bucket */
    dev_t device;        /* unique together with the inode while the memory is mapped */
    ino_t inode;
    bool writable;
    unsigned n_users;
    struct segment segment;
};

/* Maps the segment as weft__segment_map does, or counts one more user of the mapping. */
weft_status_t weft__mapped_get(int fd, size_t size, bool writable, struct mapped **mapped_p);
/* it maps the memory of this descriptor */
bool weft__mapped_is(const struct mapped *mapped, int fd);
void weft__mapped_put(struct mapped *mapped);

#endif
