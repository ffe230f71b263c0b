/* Memory that other processes may map: memfds that stay as long as they are, so that no access
 * to them faults. */
#ifndef WEFT_BASE_SEALED_H
#define WEFT_BASE_SEALED_H

#include <stddef.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; the C library's headers may be older */
#endif

enum {
    SEALED_FILLED = 1, /* its pages are allocated at once: touching them cannot end in SIGBUS */
    /* no process can map it for writing from now on, where the kernel supports that (Linux 5.1) */
    SEALED_MINE = 2
};

/* Makes one and maps it. `how`: bits of SEALED_; `flags`: further ones of memfd_create. Its
 * descriptor, or -1 with errno. */
int weft__sealed_make(const char *name, size_t len, unsigned how, unsigned flags, void **at_p);
/* Allocates a part, however often a signal comes in between. -1 with errno. */
int weft__sealed_fill(int fd, size_t offset, size_t len);

#endif
