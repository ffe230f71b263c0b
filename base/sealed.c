/* Makes sealed memfds and reserves their pages. */
#include "sealed.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

int weft__sealed_fill(int fd, size_t offset, size_t len) {
    int st;
    do st = fallocate(fd, 0, (off_t)offset, (off_t)len);
    while (st < 0 && errno == EINTR);
    return st;
}

/* Our own mapping stays writable. A kernel before 5.1 lets others ask for one, too. */
static int seal(int fd, unsigned how) {
    if (how & SEALED_MINE) fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

static void *map_sealed(int fd, size_t len, unsigned how) {
    if (ftruncate(fd, (off_t)len) < 0) return MAP_FAILED;
    if (how & SEALED_FILLED && weft__sealed_fill(fd, 0, len) < 0) return MAP_FAILED;
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || seal(fd, how) == 0) return at;
    int error = errno;
    munmap(at, len);
    errno = error;
    return MAP_FAILED;
}

int weft__sealed_make(const char *name, size_t len, unsigned how, unsigned flags, void **at_p) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0) return -1;
    void *at = map_sealed(fd, len, how);
    if (at == MAP_FAILED) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *at_p = at;
    return fd;
}
