/* Allocates and frees pages that other processes can map, of huge pages if there are any. */
#include "huge_pages.h"

#include "alloc.h"
#include "sealed.h"
#include "status.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

enum { HUGE = 2 << 20 };

static size_t normal_page(void) {
    long size = sysconf(_SC_PAGESIZE);
    return size > 0 ? (size_t)size : 4096;
}

static weft_status_t out_of(const char *what) {
    int error = errno;
    bool fds = weft__errno_status(error) == WEFT_ERR_NO_FDS;
    return weft__fail(fds ? WEFT_ERR_NO_FDS : WEFT_ERR_NO_MEMORY, "%s: %s", what, strerror(error));
}

static weft_status_t alloc_of(size_t len, size_t page, unsigned flags, struct pages *pages_p) {
    if (len > SIZE_MAX / 4) return weft__fail(WEFT_ERR_NO_MEMORY, "%zu bytes", len);
    struct pages p = {.page = page, .map_len = (len + page - 1) / page * page};
    p.fd = weft__sealed_make("weft region", p.map_len, 0, flags, &p.map);
    if (p.fd < 0) return out_of("memfd");
    *pages_p = p;
    return WEFT_OK;
}

weft_status_t weft__pages_alloc(size_t len, weft_mem_pages_t kind, struct pages *pages_p) {
    if (kind == WEFT_PAGES_HUGE &&
        alloc_of(len, HUGE, MFD_HUGETLB | MFD_HUGE_2MB, pages_p) == WEFT_OK)
        return WEFT_OK;
    weft_status_t st = alloc_of(len, normal_page(), 0, pages_p);
    if (st < 0) return st;
    if (kind == WEFT_PAGES_TRANSPARENT || (kind == WEFT_PAGES_AUTO && len >= HUGE))
        (void)madvise(pages_p->map, pages_p->map_len, MADV_HUGEPAGE); /* advice */
    return WEFT_OK;
}

/* That of a memfd with MFD_HUGETLB. Not the size of a block, which is that of a huge page, too,
 * where the system gives shared memory transparent ones. */
static size_t page_of(int fd) {
    struct statfs system;
    bool huge = fstatfs(fd, &system) == 0 && system.f_type == HUGETLBFS_MAGIC;
    return huge ? (size_t)system.f_bsize : normal_page();
}

static weft_status_t check_import(int fd, uint64_t offset, size_t len, size_t *page_p) {
    struct stat st;
    if (fstat(fd, &st) != 0) return weft__fail(WEFT_ERR_INVALID_PARAM, "fd %d is not open", fd);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "fd %d is not a memfd sealed against shrinking",
                          fd);
    size_t page = page_of(fd);
    if (offset % page)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "offset is not a multiple of %zu", page);
    if (offset > (uint64_t)st.st_size || len > (uint64_t)st.st_size - offset)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the descriptor has only %lld bytes",
                          (long long)st.st_size);
    *page_p = page;
    return WEFT_OK;
}

weft_status_t weft__pages_import(int fd, uint64_t offset, size_t len, bool write,
                                 struct pages *pages_p) {
    struct pages p = {.offset = offset, .page = normal_page()};
    weft_status_t st = check_import(fd, offset, len, &p.page);
    if (st < 0) return st;
    p.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (p.fd < 0) return out_of("a duplicate of the fd");
    p.map_len = (len + p.page - 1) / p.page * p.page;
    p.map = mmap(NULL, p.map_len, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, (off_t)offset);
    p.read_only = p.map == MAP_FAILED && !write;
    if (p.read_only) p.map = mmap(NULL, p.map_len, PROT_READ, MAP_SHARED, p.fd, (off_t)offset);
    if (p.map == MAP_FAILED) {
        st = errno == EACCES || errno == EPERM
                 ? weft__fail(WEFT_ERR_INVALID_PARAM, "fd %d may not be mapped for that", fd)
                 : out_of("mmap");
        close(p.fd);
        return st;
    }
    *pages_p = p;
    return WEFT_OK;
}

void weft__pages_free(struct pages *pages) {
    if (pages->map) munmap(pages->map, pages->map_len);
    if (pages->fd >= 0) close(pages->fd);
    *pages = (struct pages){.fd = -1};
}

/* ---- advice only, but what is not needed must be gone where it was allocated here */

/* The whole pages around a range, or within it. */
static int advise(char *at, size_t len, int advice, bool within) {
    uintptr_t page = normal_page(), begin = (uintptr_t)at, end = begin + len;
    begin = (within ? begin + page - 1 : begin) / page * page;
    end = (within ? end : end + page - 1) / page * page;
    return end > begin ? madvise((void *)begin, end - begin, advice) : 0;
}

static weft_status_t dont_need(const struct pages *pages, char *at, size_t len) {
    if (!pages || pages->fd < 0) {
        (void)advise(at, len, MADV_FREE, true);
        return WEFT_OK;
    }
    /* Given back to the pool, a page may be another's when it is touched next, and that access
     * faults here and at every peer. */
    if (pages->page > normal_page() && !pages->read_only) {
        memset(at, 0, len);
        return WEFT_OK;
    }
    uint64_t offset = pages->offset + (uint64_t)(at - (char *)pages->map);
    if (len == 0 || fallocate(pages->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                              (off_t)len) == 0)
        return WEFT_OK;
    return weft__fail(WEFT_ERR_IO, "punching a hole: %s", strerror(errno));
}

weft_status_t weft__pages_advise(const struct pages *pages, char *at, size_t len,
                                 weft_mem_advice_t advice) {
    switch (advice) {
    case WEFT_ADVISE_WILL_NEED:
        if (advise(at, len, MADV_POPULATE_WRITE, false) != 0)
            (void)advise(at, len, MADV_WILLNEED, false);
        return WEFT_OK;
    case WEFT_ADVISE_DONT_NEED: return dont_need(pages, at, len);
    case WEFT_ADVISE_HUGE: (void)advise(at, len, MADV_HUGEPAGE, false); return WEFT_OK;
    case WEFT_ADVISE_SEQUENTIAL: (void)advise(at, len, MADV_SEQUENTIAL, false); return WEFT_OK;
    case WEFT_ADVISE_RANDOM: (void)advise(at, len, MADV_RANDOM, false); return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_INVALID_PARAM, "advice is %d", advice);
}
