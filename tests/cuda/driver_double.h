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
/* Where the host reads and writes what lies at a device address. */
char *double_alias(const void *device);

struct double_counts {
    unsigned copies, streams, pushes, pops;
    size_t bytes;
};
extern struct double_counts double_counts;
extern unsigned double_fail_copy; /* the number of copies until one fails; 0: none does */

#endif
