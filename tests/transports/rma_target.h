/* Memory that a peer may touch, with guards around it and a shadow beside it; and one key to it. */
#ifndef WEFT_TESTS_TRANSPORTS_RMA_TARGET_H
#define WEFT_TESTS_TRANSPORTS_RMA_TARGET_H

#include "../harness.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <transports/region.h>

enum { TARGET_PAGE = 4096, TARGET_LEN = (1 << 20) + 3 * TARGET_PAGE + 123 };

struct target {
    int fd;
    size_t size;     /* of the whole memfd */
    char *all;       /* a page of guard, the region, and a guard of more than a page */
    uint8_t *shadow; /* what `all` should be; NULL: not kept */
    struct region region;
    struct remote_region remote;
};

static inline uint8_t target_byte(size_t i) {
    return (uint8_t)(i * 2654435761u >> 13);
}

/* Of `len` bytes, under id 7 and epoch 3. */
static inline void target_open(struct target *t, size_t len, unsigned rights, bool with_shadow) {
    memset(t, 0, sizeof *t);
    t->size = TARGET_PAGE + ((len + TARGET_PAGE - 1) & ~(size_t)(TARGET_PAGE - 1)) + TARGET_PAGE;
    t->fd = memfd_create("target", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(t->fd >= 0);
    CHECK_EQ(ftruncate(t->fd, (off_t)t->size), 0);
    CHECK_EQ(fcntl(t->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    t->all = mmap(NULL, t->size, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    CHECK(t->all != MAP_FAILED);
    for (size_t i = 0; with_shadow && i < t->size; i++) t->all[i] = (char)target_byte(i);
    if (with_shadow) CHECK(t->shadow = malloc(t->size));
    if (with_shadow) memcpy(t->shadow, t->all, t->size);
    t->region = (struct region){.base = t->all + TARGET_PAGE,
                                .origin = (uint64_t)(uintptr_t)t->all + TARGET_PAGE,
                                .len = len,
                                .rights = rights,
                                .id = 7,
                                .epoch = 3,
                                .fd = t->fd,
                                .fd_offset = TARGET_PAGE};
    for (unsigned i = 0; i < 16; i++) t->region.token[i] = (uint8_t)(i * 37 + 11);
    t->remote = (struct remote_region){(uint64_t)(uintptr_t)t->region.base, len, rights, 7, 3, {0}};
    memcpy(t->remote.token, t->region.token, 16);
}

static inline void target_close(struct target *t) {
    munmap(t->all, t->size);
    close(t->fd);
    free(t->shadow);
}

/* Nothing but what the shadow has. */
static inline bool target_is_as_it_should(const struct target *t) {
    return memcmp(t->all, t->shadow, t->size) == 0;
}

static inline uint64_t target_at(const struct target *t, size_t offset) {
    return t->remote.base + offset;
}
static inline uint8_t *target_shadow(const struct target *t, size_t offset) {
    return t->shadow + TARGET_PAGE + offset;
}

#endif
