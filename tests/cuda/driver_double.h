/* What tests ask of the double. They find these names by dlsym. */
#ifndef WEFT_TESTS_CUDA_DRIVER_DOUBLE_H
#define WEFT_TESTS_CUDA_DRIVER_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>

void *double_context_create(void);
void *double_context_create_on(int device);
/* Copies of its memory fail from now on. */
void double_context_destroy(void *context);
/* Another context at the address of one that was destroyed. */
void double_context_renew(void *context);
/* It has a sticky error: all calls return it, and no host function is called. */
void double_context_break(void *context);
/* Another context at the address of one that has an error. */
void double_context_mend(void *context);
/* Contexts that are pushed now, in this thread. */
unsigned double_depth(void);

/* Device memory, or managed memory. NULL: none left. */
void *double_alloc(void *context, size_t len, bool managed);
/* Waits for all streams, as the driver does. */
void double_free(void *device);
void double_write(void *device, const void *from, size_t len);
void double_read(void *to, const void *device, size_t len);

/* Streams run nothing while they are held. */
void double_hold(bool hold);

/* The number of copies until one fails, in its call, or (late) in its stream, where it breaks its
 * context; of allocations (pinned memory, streams, events, handles that are opened) until one
 * fails. 0: none does. */
extern unsigned double_fail_copy, double_fail_alloc;
extern unsigned double_fail_launch; /* the same of kernels */
/* The number of calls until one fails before it does anything, of those that Weft looks at the
 * result of: out of memory, or (breaks) with a sticky error of its context. 0: none does. */
extern unsigned double_fail_call;
extern bool double_fail_breaks;
extern bool double_fail_query; /* each question for a stream fails */
extern bool double_fail_late;
extern bool double_capturing;      /* each stream is being captured */
extern bool double_captures_waits; /* as drivers of CUDA 12 do */
/* A stream's wait for a value is added, in its call, so long after the work before it has ended;
 * and it is refused. */
extern unsigned double_wait_delay_us;
extern bool double_fail_wait;
extern unsigned double_copy_delay_us, double_devices;
/* The device that is the first visible one, as CUDA_VISIBLE_DEVICES=1,0 would have it. */
extern unsigned double_first_device;
/* Of one context: how often it was pushed. Of one stream: the copies in it so far. */
unsigned double_pushes(void *context);
unsigned double_copies_in(void *stream);
/* Streams that there are; copies so far; pointers asked about; handles that are open, and those
 * that were made. */
extern unsigned double_streams, double_copies, double_asked, double_opened, double_exported;
extern unsigned double_queries; /* of streams */
extern unsigned double_copies_3d;
extern unsigned double_blocks;  /* of virtual memory management, that there are */
extern unsigned double_pools;   /* of either side, that there are */
extern unsigned double_modules; /* that are loaded */
extern unsigned double_packed;  /* launches of the kernel that packs */

#endif
