/* What a pointer points to, by the kernel's own list of mappings: no signal, no fault, nothing is touched. */
#include <fcntl.h>
#include <inttypes.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/memory.h>

#include "detect.h"

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
        if (in->begin == 0 && in->end == sizeof in->bytes) in->end = 0; /* longer than any that matters */
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

static bool find_mapping(struct lines *in, uintptr_t at, weft_mem_info_t *info) {
    uintptr_t begin, end;
    for (char *line; (line = next_line(in)) != NULL;) {
        if (!read_range(line, &begin, &end) || at < begin || at >= end) continue;
        info->base = (void *)begin;
        info->len = end - begin;
        return true;
    }
    return false;
}

static size_t page_of(struct lines *in) {
    static const char name[] = "KernelPageSize:";
    for (char *line; (line = next_line(in)) != NULL;)
        if (strncmp(line, name, sizeof name - 1) == 0) return strtoul(line + sizeof name - 1, NULL, 10) * 1024;
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* -1 for a page that is not there yet, too. */
static int node_of(const void *at) {
    uintptr_t page = (uintptr_t)at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    void *pages[] = {(void *)page};
    int status = -1;
    return syscall(SYS_move_pages, 0, 1UL, pages, NULL, &status, 0) == 0 && status >= 0 ? status : -1;
}

weft_status_t weft_mem_detect(const void *at, weft_mem_info_t *info_p) {
    struct lines in = {.fd = -1};
    weft_mem_info_t info = {.type = WEFT_MEMORY_HOST};
    if (!info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "info_p is NULL");
    in.fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (in.fd < 0) return weft__fail(WEFT_ERR_IO, "/proc/self/smaps does not open");
    bool found = find_mapping(&in, (uintptr_t)at, &info);
    if (found) info.page = page_of(&in);
    close(in.fd);
    if (!found) return weft__fail(WEFT_ERR_NOT_FOUND, "nothing is mapped at %p", at);
    info.numa_node = node_of(at);
    *info_p = info;
    return WEFT_OK;
}

/* A device is a name of sysfs, whatever follows it ("mlx5_0:1"). */
int weft__device_node(const char *class, const char *device) {
    char path[256], text[16] = "";
    int name = (int)strcspn(device, "/:"), node = -1;
    int size = snprintf(path, sizeof path, "%s/%.*s/device/numa_node", class, name, device);
    int fd = name && device[0] != '.' && size < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return -1;
    if (read(fd, text, sizeof text - 1) > 0) node = (int)strtol(text, NULL, 10);
    close(fd);
    return node < 0 ? -1 : node;
}
