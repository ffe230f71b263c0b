/* The type of memory at a pointer: the CUDA driver is asked first, then the kernel. */
#include <base/mem_detect.h>
#include <base/status.h>
#include <transports/cuda/memory.h>

weft_status_t weft_mem_detect(const void *at, weft_mem_info_t *info_p) {
    struct cuda_memory found;
    if (!info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "info_p is NULL");
    weft__cuda_look();
    if (!weft__cuda_find(at, &found)) return weft__mem_detect_host(at, info_p);
    *info_p = (weft_mem_info_t){
        .type = found.managed ? WEFT_MEMORY_CUDA_MANAGED : WEFT_MEMORY_CUDA,
        .base = found.base,
        .len = found.len,
        .numa_node = -1,
    };
    return WEFT_OK;
}
