/* What tests ask of the double. They find these names by dlsym. */
#ifndef WEFT_TESTS_CUDA_DRIVER_DOUBLE_H
#define WEFT_TESTS_CUDA_DRIVER_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>

void *double_context_create(void);
/* Copies of its memory fail from now on. */
void double_context_destroy(void *context);
/* Contexts that are pushed now. */
unsigned double_depth(void);

/* Device memory, or managed memory. NULL: none left. */
void *double_alloc(void *context, size_t len, bool managed);
void double_free(void *device);
void double_write(void *device, const void *from, size_t len);
void double_read(void *to, const void *device, size_t len);

extern unsigned double_fail_copy; /* the number of copies until one fails; 0: none does */

#endif
