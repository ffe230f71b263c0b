/* Pages that other processes can map: a sealed memfd, and where it is mapped here. */
#ifndef WEFT_BASE_HUGE_PAGES_H
#define WEFT_BASE_HUGE_PAGES_H

#include <stdbool.h>
#include <weft/memory.h>

struct pages {
    void *map; /* NULL: none of ours */
    size_t map_len, page;
    int fd; /* -1: none */
    uint64_t offset;
    bool read_only; /* mapped so */
};

/* NO_MEMORY, NO_FDS. Huge ones fall back to normal ones when the pool is empty. */
weft_status_t weft__pages_alloc(size_t len, weft_mem_pages_t kind, struct pages *pages_p);
/* A part of one made elsewhere, whose size is sealed. The fd is duplicated. Without `write` one
 * that cannot be written will do. */
weft_status_t weft__pages_import(int fd, uint64_t offset, size_t len, bool write,
                                 struct pages *pages_p);
void weft__pages_free(struct pages *pages);
/* Of the calls above and of madvise. `pages` NULL: memory of the program. */
weft_status_t weft__pages_advise(const struct pages *pages, char *at, size_t len,
                                 weft_mem_advice_t advice);

#endif
