/* What it takes to read another process's memory in the kernel (process_vm_readv), beside a copy
 * of as much. */
#ifndef WEFT_TRANSPORTS_VM_SPEED_H
#define WEFT_TRANSPORTS_VM_SPEED_H

#include <stdint.h>

enum { VM_SPEED_BYTES = 256 << 10 };

struct vm_speed {
    uint32_t copy_ns; /* 0: there was no memory to find out with */
    uint32_t read_ns; /* 0: it is not allowed */
};

/* Of VM_SPEED_BYTES, the best of a few. Measured once in a process, of its own memory. */
struct vm_speed weft__vm_speed(void);

#endif
