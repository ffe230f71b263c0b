/* Makes, maps and closes memory that two processes share. */
#include "segment.h"
#include <base/sealed.h>
#include <errno.h>
#include <fcntl.h>
#include <reactor/reactor.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status_t shm_segment_failed(struct segment *segment, const char *what) {
    int error = errno;
    weft__segment_close(segment);
    return weft__fail(weft__errno_status(error), "shm: %s: %s", what, strerror(error));
}

weft_status_t weft__segment_create(struct segment *segment, const char *name, size_t size,
                                   enum segment_kind kind) {
    *segment = (struct segment){.size = size};
    unsigned how = kind == SEGMENT_MINE     ? SEALED_MINE | SEALED_FILLED
                   : kind == SEGMENT_SPARSE ? SEALED_MINE
                                            : 0;
    segment->fd = weft__sealed_make(name, size, how, 0, &segment->at);
    return segment->fd < 0 ? shm_segment_failed(segment, name) : WEFT_OK;
}

weft_status_t weft__segment_fill(struct segment *segment, size_t offset, size_t len) {
    if (weft__sealed_fill(segment->fd, offset, len) < 0)
        return weft__fail(weft__errno_status(errno), "shm: fallocate: %s", strerror(errno));
    return WEFT_OK;
}

weft_status_t weft__segment_map(struct segment *segment, int fd, size_t size, bool writable) {
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    *segment = (struct segment){.size = size, .fd = -1};
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 || (size_t)st.st_size != size)
        return weft__fail(WEFT_ERR_PROTOCOL,
                          "shm: the peer's memory is not sealed, or smaller than it claims");
    segment->at =
        mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (segment->at != MAP_FAILED) return WEFT_OK;
    segment->at = NULL;
    return shm_segment_failed(segment, "mmap");
}

void weft__segment_close(struct segment *segment) {
    if (segment->at) munmap(segment->at, segment->size);
    if (segment->fd >= 0) close(segment->fd);
    *segment = (struct segment){.fd = -1};
}
