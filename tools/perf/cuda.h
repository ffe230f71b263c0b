/* Memory that the CUDA driver makes, for --memory cuda, managed and pinned. */
#ifndef WEFT_TOOLS_PERF_CUDA_H
#define WEFT_TOOLS_PERF_CUDA_H

#include <stddef.h>

enum perf_cuda { PERF_CUDA_NONE, PERF_CUDA_DEVICE, PERF_CUDA_MANAGED, PERF_CUDA_PINNED };

/* Filled with ones, on the first GPU. It stays. Ends the program if there is no driver, no GPU or
 * no memory. */
void *perf_cuda_memory(enum perf_cuda kind, size_t size);

#endif
