/* Memory of a device that other processes open: its file, by the exporter's table in /proc. */
#define _GNU_SOURCE
#include "double.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct handle {
    uint32_t magic;
    int pid, fd, device;
    uint64_t len, number; /* of the allocation */
    char rest[32];
};
_Static_assert(sizeof(struct handle) == 64, "as CUipcMemHandle");
enum { MAGIC = 0x1dc0b1e };

unsigned double_opened, double_exported;

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

result cuIpcGetMemHandle(struct handle *handle, pointer at) {
    const struct allocation *a = double_find(at);
    if (!a || a->host || a->managed || a->opened || a->block || a->pool) return INVALID_VALUE;
    double_exported++;
    *handle = (struct handle){.magic = MAGIC,
                              .pid = getpid(),
                              .fd = a->fd,
                              .device = a->context->device,
                              .len = a->len,
                              .number = a->buffer_id};
    return SUCCESS;
}

/* The driver refuses handles of this process, of one that has ended, and those of a peer's device
 * that another context of the device has open. One that is open here is opened once more. */
result cuIpcOpenMemHandle_v2(pointer *at, struct handle handle, unsigned flags) {
    char path[64];
    result r = double_call_begins(NULL);
    if (r == SUCCESS) r = double_unsafe_begins();
    if (r == SUCCESS) r = double_usable(double_current());
    if (r != SUCCESS) return r;
    if (handle.magic != MAGIC) return INVALID_VALUE;
    if (handle.pid == getpid()) return INVALID_CONTEXT;
    struct allocation *open_here = double_find_opened(handle.pid, handle.device, handle.number);
    if (open_here) {
        open_here->opens++;
        *at = (pointer)(uintptr_t)open_here->device;
        return SUCCESS;
    }
    if (double_find_opened(handle.pid, handle.device, 0)) return INVALID_CONTEXT;
    if (double_is_out_of_memory()) return OUT_OF_MEMORY;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return INVALID_VALUE;
    struct allocation *a = double_map(double_current(), fd, handle.len, false);
    if (!a) {
        close(fd);
        return OUT_OF_MEMORY;
    }
    a->opened = true;
    a->opens = 1;
    a->peer = handle.pid;
    a->peer_number = handle.number;
    a->peer_device = handle.device;
    double_opened++;
    *at = (pointer)(uintptr_t)a->device;
    return SUCCESS;
}
result cuIpcCloseMemHandle(pointer at) {
    struct allocation *a = double_find(at);
    if (!a || !a->opened || (pointer)(uintptr_t)a->device != at) return INVALID_HANDLE;
    if (a->context != double_current()) return INVALID_CONTEXT;
    if (--a->opens) return SUCCESS;
    double_wait_all();
    double_unmap(a);
    double_opened--;
    return SUCCESS;
}

/* A dma-buf of the double is the file of its memory: whole pages of one allocation. */
result cuMemGetHandleForAddressRange(void *handle, pointer at, size_t len, unsigned kind,
                                     unsigned long long flags) {
    const struct allocation *a = double_find(at);
    size_t size = a ? (a->len + 4095) & ~(size_t)4095 : 0;
    if (!a || a->host || a->managed || kind != 1 || at % 4096 || len % 4096 ||
        at - (pointer)(uintptr_t)a->device + len > size)
        return INVALID_VALUE;
    *(int *)handle = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
    return SUCCESS;
}
