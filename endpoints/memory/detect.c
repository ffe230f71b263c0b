/* The type of memory at a pointer: the CUDA driver is asked first, then the kernel. */
#include <base/check.h>
#include <base/mem_detect.h>
#include <base/status.h>
#include <transports/cuda/memory.h>

/* The kernel knows its NUMA node, the driver its range. */
static weft_status_t describe_pinned(const void *at, const struct cuda_memory *found,
                                     weft_mem_info_t *info_p) {
    weft_status_t st = weft__mem_detect_host(at, info_p);
    if (st < 0) return st;
    info_p->type = WEFT_MEMORY_CUDA_HOST;
    info_p->base = found->base;
    info_p->len = found->len;
    return WEFT_OK;
}

static weft_status_t describe_memory(const void *at, weft_mem_info_t *info_p) {
    struct cuda_memory found;
    weft__cuda_look();
    if (!weft__cuda_find_any(at, &found)) return weft__mem_detect_host(at, info_p);
    if (found.on_host) return describe_pinned(at, &found, info_p);
    *info_p = (weft_mem_info_t){
        .type = found.managed ? WEFT_MEMORY_CUDA_MANAGED : WEFT_MEMORY_CUDA,
        .base = found.base,
        .len = found.len,
        .numa_node = -1,
    };
    return WEFT_OK;
}

weft_status_t weft_mem_detect_sized(size_t info_size, const void *at, weft_mem_info_t *info_p) {
    weft_mem_info_t info;
    if (!info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "info_p is NULL");
    weft_status_t st = describe_memory(at, &info);
    if (st == WEFT_OK) weft__info_write(info_p, info_size, &info, sizeof info);
    return st;
}
