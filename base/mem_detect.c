/* What a pointer points to, from the kernel's list of mappings. The memory itself is not
 * touched. */
#include "mem_detect.h"

#include "alloc.h"
#include "status.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/memory.h>

/* Lines of a file of /proc, through a buffer of its own: no allocation. */
struct lines {
    int fd;
    size_t begin, end;
    char bytes[4096];
};

static char *next_line(struct lines *in) {
    for (;;) {
        char *line = in->bytes + in->begin, *stop = memchr(line, '\n', in->end - in->begin);
        if (stop) {
            *stop = '\0';
            in->begin = (size_t)(stop + 1 - in->bytes);
            return line;
        }
        /* longer than any that matters */
        if (in->begin == 0 && in->end == sizeof in->bytes) in->end = 0;
        memmove(in->bytes, in->bytes + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
        ssize_t n = read(in->fd, in->bytes + in->end, sizeof in->bytes - in->end);
        if (n <= 0) return NULL;
        in->end += (size_t)n;
    }
}

static bool read_range(const char *line, uintptr_t *begin_p, uintptr_t *end_p) {
    return sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", begin_p, end_p) == 2;
}

/* ---- one mapping ----------------------------------------------------------------------------- */

/* Linux 6.11 answers for one address. The struct of <linux/fs.h>, which may be older than the
 * kernel. */
struct mapping_query {
    uint64_t size, flags, at; /* flags 0: the mapping that covers `at` */
    uint64_t begin, end, permissions, page, offset, inode;
    uint32_t major, minor, name_size, build_id_size;
    uint64_t name, build_id;
};
#define MAPPING_QUERY _IOWR('f', 17, struct mapping_query)

/* What is known of the mapping; `page` 0: not yet. */
struct mapping {
    uintptr_t begin, end;
    size_t page;
};

static size_t base_page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* WEFT_OK; NOT_FOUND; UNSUPPORTED: this kernel cannot be asked so. */
static weft_status_t query_mapping(int maps, uintptr_t at, struct mapping *found_p) {
    struct mapping_query query = {.size = sizeof query, .at = at};
    if (ioctl(maps, MAPPING_QUERY, &query) != 0)
        return errno == ENOENT ? WEFT_ERR_NOT_FOUND : WEFT_ERR_UNSUPPORTED;
    *found_p = (struct mapping){(uintptr_t)query.begin, (uintptr_t)query.end, (size_t)query.page};
    return WEFT_OK;
}

/* Only a file may have huge pages of its own, in a mapping that begins and ends with one. */
static bool may_have_huge_pages(const char *line, uintptr_t begin, uintptr_t end) {
    enum { SMALLEST = 1 << 16 };
    unsigned long long inode = 0;
    sscanf(line, "%*s %*s %*s %*s %llu", &inode);
    return inode && begin % SMALLEST == 0 && end % SMALLEST == 0;
}

/* The line of a file of /proc that begins the mapping. */
static bool find_line(struct lines *in, uintptr_t at, struct mapping *found_p) {
    uintptr_t begin, end;
    for (char *line; (line = next_line(in)) != NULL;) {
        if (!read_range(line, &begin, &end) || at < begin || at >= end) continue;
        *found_p =
            (struct mapping){begin, end, may_have_huge_pages(line, begin, end) ? 0 : base_page()};
        return true;
    }
    return false;
}

static size_t page_line(struct lines *in) {
    static const char name[] = "KernelPageSize:";
    for (char *line; (line = next_line(in)) != NULL;)
        if (strncmp(line, name, sizeof name - 1) == 0)
            return strtoul(line + sizeof name - 1, NULL, 10) * 1024;
    return base_page();
}

/* The kernel walks all pages of the process to write this file, so it is the last to be asked. */
static size_t page_by_smaps(uintptr_t at) {
    struct lines in = {.fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC)};
    struct mapping mapping = {0};
    if (in.fd < 0) return base_page();
    size_t page = find_line(&in, at, &mapping) ? page_line(&in) : base_page();
    close(in.fd);
    return page;
}

static weft_status_t find_mapping(uintptr_t at, struct mapping *found_p) {
    struct lines in = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    if (in.fd < 0)
        return weft__fail(weft__file_status(errno), "/proc/self/maps: %s", strerror(errno));
    weft_status_t st = query_mapping(in.fd, at, found_p);
    if (st == WEFT_ERR_UNSUPPORTED) st = find_line(&in, at, found_p) ? WEFT_OK : WEFT_ERR_NOT_FOUND;
    close(in.fd);
    if (st < 0) return weft__fail(st, "nothing is mapped at %p", (void *)at);
    if (!found_p->page) found_p->page = page_by_smaps(at);
    return WEFT_OK;
}

/* ---- its NUMA node --------------------------------------------------------------------------- */

/* Asking for the node of a page that is not there would make it. */
static bool is_present(uintptr_t at) {
    const uint64_t present = 1ull << 63;
    uint64_t entry = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = pread(fd, &entry, sizeof entry, (off_t)(at / base_page() * sizeof entry));
    close(fd);
    return n == (ssize_t)sizeof entry && entry & present;
}

/* -1 for a page that is not there yet, too. More system call filters permit get_mempolicy than
 * move_pages. */
static int node_of(uintptr_t at) {
    enum { NODE = 1, OF_ADDRESS = 2 }; /* MPOL_F_NODE, MPOL_F_ADDR */
    int node = -1;
    if (!is_present(at)) return -1;
    return syscall(SYS_get_mempolicy, &node, NULL, 0UL, at, (unsigned long)(NODE | OF_ADDRESS)) == 0
               ? node
               : -1;
}

weft_status_t weft__mem_detect_host(const void *at, weft_mem_info_t *info_p) {
    struct mapping mapping = {0};
    weft_status_t st = find_mapping((uintptr_t)at, &mapping);
    if (st < 0) return st;
    *info_p = (weft_mem_info_t){.type = WEFT_MEMORY_HOST,
                                .base = (void *)mapping.begin,
                                .len = mapping.end - mapping.begin,
                                .page = mapping.page,
                                .numa_node = node_of((uintptr_t)at)};
    return WEFT_OK;
}
