/* What a pointer of the host points to. */
#ifndef WEFT_BASE_MEM_DETECT_H
#define WEFT_BASE_MEM_DETECT_H

#include <weft/memory.h>

/* Describes the mapping at `at`, by the kernel's list of mappings. The memory is not touched.
 * Errors: NOT_FOUND if nothing is mapped there; IO. */
weft_status_t weft__mem_detect_host(const void *at, weft_mem_info_t *info_p);

#endif
