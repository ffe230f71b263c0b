#include "segment.h"
#include <errno.h>
#include <fcntl.h>
#include <reactor/reactor.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static weft_status_t failed(struct segment *segment, const char *what) {
    int error = errno;
    weft__segment_close(segment);
    return weft__fail(weft__errno_status(error), "shm: %s: %s", what, strerror(error));
}

weft_status_t weft__segment_create(struct segment *segment, const char *name, size_t size, enum segment_kind kind) {
    *segment = (struct segment){.size = size};
    segment->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment->fd < 0) return failed(segment, "memfd_create");
    if (ftruncate(segment->fd, (off_t)size) < 0) return failed(segment, "ftruncate");
    if (kind == SEGMENT_MINE && fallocate(segment->fd, 0, 0, (off_t)size) < 0) return failed(segment, "fallocate");
    segment->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (segment->at == MAP_FAILED) {
        segment->at = NULL;
        return failed(segment, "mmap");
    }
    /* Our mapping stays writable; a kernel before 5.1 lets the peer ask for one too, which can hurt this lane only. */
    if (kind != SEGMENT_COMMON) fcntl(segment->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    if (fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return failed(segment, "sealing");
    return WEFT_OK;
}

weft_status_t weft__segment_fill(struct segment *segment, size_t offset, size_t len) {
    while (fallocate(segment->fd, 0, (off_t)offset, (off_t)len) < 0)
        if (errno != EINTR) return weft__fail(weft__errno_status(errno), "shm: fallocate: %s", strerror(errno));
    return WEFT_OK;
}

weft_status_t weft__segment_map(struct segment *segment, int fd, size_t size, bool writable) {
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    *segment = (struct segment){.size = size, .fd = -1};
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 || (size_t)st.st_size != size)
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer's memory is not sealed, or not as large as it says");
    segment->at = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (segment->at != MAP_FAILED) return WEFT_OK;
    segment->at = NULL;
    return failed(segment, "mmap");
}

void weft__segment_close(struct segment *segment) {
    if (segment->at) munmap(segment->at, segment->size);
    if (segment->fd >= 0) close(segment->fd);
    *segment = (struct segment){.fd = -1};
}
