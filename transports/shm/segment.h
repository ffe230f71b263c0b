/* Pieces of memory that two processes share: sealed memfds. */
#ifndef WEFT_TRANSPORTS_SHM_SEGMENT_H
#define WEFT_TRANSPORTS_SHM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <weft/base.h>

struct segment {
    void *at; /* NULL: none */
    size_t size;
    int fd; /* of a segment that we made; -1 otherwise */
};

enum segment_kind {
    SEGMENT_MINE,   /* written by its maker only */
    SEGMENT_SPARSE, /* the same, and its pages are allocated later (segment_fill) */
    SEGMENT_COMMON  /* the same, and peers may write */
};

weft_status_t weft__segment_create(struct segment *segment, const char *name, size_t size, enum segment_kind kind);
/* Allocates a part of a sparse segment, so that touching it cannot end in SIGBUS. */
weft_status_t weft__segment_fill(struct segment *segment, size_t offset, size_t len);
/* Maps a peer's: WEFT_ERR_PROTOCOL when it is not of that size, or could shrink. `fd` stays the caller's. */
weft_status_t weft__segment_map(struct segment *segment, int fd, size_t size, bool writable);
void weft__segment_close(struct segment *segment);

#endif
