/*
 * The CUDA driver, libcuda.so.1, by dlopen. A program that has device memory has loaded the
 * driver; Weft never loads it first, never initialises it and never creates a context.
 *
 * The types have the layout of those in cuda.h; tests/cuda/prototypes_test.sh checks that.
 */
#ifndef WEFT_TRANSPORTS_CUDA_DRIVER_H
#define WEFT_TRANSPORTS_CUDA_DRIVER_H

#include <base/compiler.h>
#include <stdbool.h>
#include <stddef.h>
#include <weft/base.h>

typedef unsigned cuda_result; /* CUresult: 0 is success */
typedef unsigned cuda_attribute;
typedef unsigned cuda_capture;      /* CUstreamCaptureStatus: 0 is none */
typedef unsigned cuda_capture_mode; /* CUstreamCaptureMode */
typedef unsigned cuda_range_handle; /* CUmemRangeHandleType */
typedef void (*cuda_host_fn)(void *arg);
typedef int cuda_device;
typedef unsigned long long cuda_pointer;
typedef struct CUctx_st *cuda_context;
typedef struct CUstream_st *cuda_stream;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUmemPoolHandle_st *cuda_pool;
typedef unsigned cuda_device_attribute;
typedef unsigned cuda_handle_type;      /* CUmemAllocationHandleType */
typedef unsigned long long cuda_handle; /* CUmemGenericAllocationHandle */

enum { CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_READY = 600, CUDA_NOT_SUPPORTED = 801 };
enum { CUDA_NON_BLOCKING = 1 }; /* of a stream */
enum { CUDA_CAPTURE_RELAXED = 2 };
/* Of memory of the host that is registered: in all contexts, and for kernels and waits. */
enum { CUDA_PORTABLE = 1, CUDA_MAPPED = 2 };
enum { CUDA_DEVICE_MULTIPROCESSORS = 16 };
enum { CUDA_MOST_PITCH = 0x7fffffff }; /* of a 2D or 3D copy (CU_DEVICE_ATTRIBUTE_MAX_PITCH) */
enum cuda_memory_kind { CUDA_KIND_HOST = 1, CUDA_KIND_DEVICE = 2 };
enum {
    CUDA_POINTER_CONTEXT = 1,
    CUDA_POINTER_KIND = 2,
    CUDA_POINTER_BUFFER = 7,
    CUDA_POINTER_MANAGED = 8,
    CUDA_POINTER_DEVICE = 9,
    CUDA_POINTER_RANGE_BEGIN = 11,
    CUDA_POINTER_RANGE_LEN = 12,
    CUDA_POINTER_HANDLE_TYPES = 14,
    CUDA_POINTER_ACCESS = 16, /* of the current context's device; 0: none */
    CUDA_POINTER_POOL = 17,
    CUDA_POINTER_MAPPING_LEN = 18,
    CUDA_POINTER_MAPPING_BEGIN = 19
};

/* A copy of `rows` blocks of `width` bytes, with the names of cuda.h. */
struct CUDA_MEMCPY2D_st {
    size_t srcXInBytes, srcY;
    unsigned srcMemoryType;
    const void *srcHost;
    cuda_pointer srcDevice;
    void *srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    cuda_pointer dstDevice;
    void *dstArray;
    size_t dstPitch, WidthInBytes, Height;
};

/* The same of planes of such rows. */
struct CUDA_MEMCPY3D_st {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    unsigned srcMemoryType;
    const void *srcHost;
    cuda_pointer srcDevice;
    void *srcArray, *reserved0;
    size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
    unsigned dstMemoryType;
    void *dstHost;
    cuda_pointer dstDevice;
    void *dstArray, *reserved1;
    size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;
};

struct cuda_uuid {
    char bytes[16];
};
/* CUmemAccessDesc: what a device may do with mapped memory. */
struct cuda_access {
    unsigned kind;
    int device;
    unsigned flags;
};
struct cuda_ipc_handle {
    char bytes[64];
};
/* CUmemPoolPtrExportData: an allocation of a pool. */
struct cuda_pool_pointer {
    unsigned char bytes[64];
};

struct cuda_driver {
#define CUDA_CALL(field, symbol, parameters) cuda_result(*field) parameters;
#include "driver.def"
#undef CUDA_CALL
};

/* True from the first look that found the driver in the process. It never becomes false again. */
extern HIDDEN bool weft__cuda_active;

/* Looks for the driver in this process, by dlopen until it is found. Any thread. */
void weft__cuda_look(void);
/* The same, where the machine has a device of NVIDIA; costs nothing where it has none. */
void weft__cuda_notice(void);

/* NULL: the driver is not loaded. Any thread. */
const struct cuda_driver *weft__cuda_driver(void);

/* What a thread had before it entered a context. */
struct cuda_visit {
    bool has_pushed, has_mode;
    cuda_capture_mode mode;
};
/* The context is current until the leave (NULL: the one that is). In between the thread may call
 * what a stream's capture, in whatever thread, would forbid, and makes no capture invalid. An
 * error: it was not entered, and is not left. */
cuda_result weft__cuda_enter(cuda_context context, struct cuda_visit *visit_p);
void weft__cuda_leave(const struct cuda_visit *visit);
/* A number that no other context of this process has or had, whatever its address. The context is
 * current (NULL: none is). 0: none, or the driver is of before CUDA 12 and does not say. */
unsigned long long weft__cuda_context_number(cuda_context context);

/* OK, NO_MEMORY, or IO; the cause names `what` and the driver's error. */
weft_status_t weft__cuda_status(cuda_result result, const char *what);

#endif
