/*
 * The inside of the double of libcuda.so.1.
 *
 * Device memory is a mapping that the host may not touch, so that a wrong access faults; the
 * double's own copies go through a second mapping of the same pages (the alias). A stream is a
 * thread that runs its entries in order. Contexts may be destroyed, and may have a sticky error:
 * from then on each call of theirs returns it, and host functions are not called, as in the driver.
 */
#ifndef WEFT_TESTS_CUDA_DOUBLE_H
#define WEFT_TESTS_CUDA_DOUBLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tests/cuda/driver_double.h>

typedef unsigned result;
typedef unsigned long long pointer;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    ALREADY_MAPPED = 208,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    CONTEXT_IS_DESTROYED = 709,
    ALREADY_REGISTERED = 712,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901
};
enum { KIND_HOST = 1, KIND_DEVICE = 2, MOST = 256, MOST_DEPTH = 16 };
/* CUmemAccessDesc. */
struct access {
    unsigned kind;
    int device;
    unsigned flags;
};

struct context {
    int device;
    unsigned long long number; /* another context at this address has another one */
    bool destroyed;
    result error; /* sticky */
    unsigned pushes;
};

/* Addresses for mappings; their aliases lie in a row, too. */
struct reservation {
    char *device, *alias;
    size_t len;
};

/* Of device memory, of managed memory, and of a peer's memory that was opened; or (host) of memory
 * of the host that is pinned. */
struct allocation {
    char *device, *alias;
    size_t len;
    bool managed, host, registered, opened;
    bool mapped;         /* of the host: kernels have an address of it */
    struct block *block; /* of virtual memory management, mapped here; of no context */
    const struct reservation *reservation; /* where it is */
    struct pool *pool;                     /* of a pool, of no context */
    struct context *context;
    uint64_t access; /* of a block: the devices that reach it, a bit each */
    unsigned opens;  /* of a peer's memory: how often it was opened */
    int peer, peer_device;
    uint64_t peer_number;
    unsigned long long buffer_id;
    int fd;
};

/* The context that is current in this thread; NULL: none. */
struct context *double_current(void);
/* What the driver forbids in a host function is an error of the library: it ends the program. */
void double_refuse_in_host_function(void);
/* SUCCESS; or what a call in this context returns. */
result double_usable(const struct context *context);
/* The next allocation, of whatever kind, is to fail (double_fail_alloc). */
bool double_is_out_of_memory(void);

/* Locks the table of allocations. */
struct allocation *double_find(pointer at);
/* A peer's allocation of this number that the current context has open; or (0) memory of that
 * device of the peer that another context of the current device has. */
struct allocation *double_find_opened(int peer, int device, uint64_t number);
/* A device's memory, as the driver says: of one context, or of the devices that were given access.
 * Memory of the host, and managed memory, is every context's. */
bool double_reaches(const struct allocation *a, const struct context *context);
int double_block_device(const struct block *block);
int double_pool_device(const struct pool *pool);
uint64_t double_pool_access(const struct pool *pool);
/* Where the double reads and writes `len` bytes at an address of the device, or of the host. NULL:
 * an address of the device that has not so many. */
char *double_alias(pointer at, size_t len);
/* At an address of the reservation. */
struct allocation *double_map_at(void *at, const struct reservation *reservation, int fd,
                                 size_t len);
/* The handle types that allocations of a pool may be exported by. */
unsigned double_pool_types(const struct pool *pool);
struct allocation *double_map(struct context *context, int fd, size_t len, bool managed);
void double_unmap(struct allocation *a);

/* Puts an entry into a stream (NULL: the current context's default stream, before which the
 * context's blocking streams come, and after which they go on). `run` is called in the stream's
 * thread; `arg` is freed after it. What it returns, if not SUCCESS, becomes the sticky error of the
 * stream's context. */
result double_enqueue(void *stream, result (*run)(void *arg), void *arg);
/* Waits until the stream has run what is in it now. */
result double_wait(void *stream);
/* The same of the streams of a context, and of all streams. */
void double_wait_context(const struct context *context);
void double_wait_all(void);
/* What a call of the driver is to return before it does anything (double_fail_call). `in`: the
 * context that breaks with it, or NULL: the current one. */
result double_call_begins(struct context *in);
/* What a call that CUDA calls potentially unsafe is to return. Where a stream's capture forbids it,
 * that capture becomes invalid. */
result double_unsafe_begins(void);
/* What a copy is to return (double_fail_copy). */
result double_copy_begins(void);

#endif
