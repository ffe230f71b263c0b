/* Memory that two processes share: sealed memfds. */
#ifndef WEFT_TRANSPORTS_SHM_MEMORY_SEGMENT_H
#define WEFT_TRANSPORTS_SHM_MEMORY_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <weft/base.h>

struct segment {
    void *at; /* NULL: none */
    size_t size;
    int fd; /* of a segment that this process made; -1 otherwise */
};

enum segment_kind {
    SEGMENT_MINE,   /* only its maker writes */
    SEGMENT_SPARSE, /* the same; weft__segment_fill allocates its pages later */
    SEGMENT_COMMON  /* the same; peers may write, too */
};

weft_status_t weft__segment_create(struct segment *segment, const char *name, size_t size,
                                   enum segment_kind kind);
/* Allocates a part of a sparse segment. After that, access to the part cannot raise SIGBUS. */
weft_status_t weft__segment_fill(struct segment *segment, size_t offset, size_t len);
/* Maps a peer's segment. WEFT_ERR_PROTOCOL if its size differs or it could shrink. The caller
 * keeps `fd`. */
weft_status_t weft__segment_map(struct segment *segment, int fd, size_t size, bool writable);
void weft__segment_close(struct segment *segment);

#endif
