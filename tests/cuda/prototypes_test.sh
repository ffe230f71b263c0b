#!/bin/bash
# What transports/cuda/driver.def and driver.h declare is what cuda.h declares, where there is one.
set -uo pipefail
name=the_declarations_are_those_of_cuda_h
for folder in "${WEFT_CUDA_PATH:-/usr}/include" /usr/local/cuda/include; do
    [ -e "$folder/cuda.h" ] && found=$folder && break
done
if [ -z "${found:-}" ]; then
    echo "  skipped: no headers of CUDA here"
    echo "skip $name"
    exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
    cat <<'C'
#define __CUDA_API_VERSION_INTERNAL /* the names of cuda.h with their versions */
#include <cuda.h>
#define CUDA_MEMCPY2D_st WEFT_MEMCPY2D
#define CUDA_MEMCPY3D_st WEFT_MEMCPY3D
#include <transports/cuda/driver.h>
#define SAME(type, own) _Static_assert(__builtin_types_compatible_p(type, own), #type)
SAME(CUdeviceptr, cuda_pointer);
SAME(CUcontext, cuda_context);
SAME(CUdevice, cuda_device);
SAME(CUstream, cuda_stream);
SAME(CUhostFn, cuda_host_fn);
SAME(CUmodule, cuda_module);
SAME(CUfunction, cuda_function);
SAME(CUmemGenericAllocationHandle, cuda_handle);
SAME(CUmemoryPool, cuda_pool);
_Static_assert(sizeof(CUresult) == sizeof(cuda_result), "CUresult");
_Static_assert(sizeof(CUstreamCaptureStatus) == sizeof(cuda_capture), "CUstreamCaptureStatus");
_Static_assert(CU_STREAM_CAPTURE_MODE_RELAXED == CUDA_CAPTURE_RELAXED, "mode");
_Static_assert(sizeof(CUpointer_attribute) == sizeof(cuda_attribute), "CUpointer_attribute");
_Static_assert(sizeof(CUdevice_attribute) == sizeof(cuda_device_attribute), "CUdevice_attribute");
_Static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == CUDA_DEVICE_MULTIPROCESSORS, "attribute");
_Static_assert(CUDA_ERROR_OUT_OF_MEMORY == CUDA_OUT_OF_MEMORY, "error");
_Static_assert(CUDA_ERROR_NOT_READY == CUDA_NOT_READY, "error");
_Static_assert(CUDA_ERROR_NOT_SUPPORTED == CUDA_NOT_SUPPORTED, "error");
_Static_assert(CU_STREAM_NON_BLOCKING == CUDA_NON_BLOCKING, "flag");
_Static_assert(CU_MEMORYTYPE_HOST == CUDA_KIND_HOST, "kind");
_Static_assert(CU_MEMORYTYPE_DEVICE == CUDA_KIND_DEVICE, "kind");
_Static_assert(CU_POINTER_ATTRIBUTE_CONTEXT == CUDA_POINTER_CONTEXT, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == CUDA_POINTER_KIND, "attribute");
_Static_assert(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD == 1, "as in dmabuf.c");
_Static_assert(sizeof(CUmemAllocationHandleType) == sizeof(cuda_handle_type), "CUmemAllocationHandleType");
_Static_assert(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES == CUDA_POINTER_HANDLE_TYPES, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE == CUDA_POINTER_POOL, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_MAPPING_SIZE == CUDA_POINTER_MAPPING_LEN, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR == CUDA_POINTER_MAPPING_BEGIN, "attribute");
_Static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(struct cuda_pool_pointer), "CUmemPoolPtrExportData");
_Static_assert(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 1, "as in memory_file.c");
_Static_assert(CU_MEM_LOCATION_TYPE_DEVICE == 1 && CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3, "as there");
_Static_assert(sizeof(CUmemAccessDesc) == sizeof(struct cuda_access), "CUmemAccessDesc");
_Static_assert(offsetof(CUmemAccessDesc, flags) == offsetof(struct cuda_access, flags), "flags");
_Static_assert(sizeof(CUuuid) == sizeof(struct cuda_uuid), "CUuuid");
_Static_assert(sizeof(CUipcMemHandle) == sizeof(struct cuda_ipc_handle), "CUipcMemHandle");
_Static_assert(CU_POINTER_ATTRIBUTE_BUFFER_ID == CUDA_POINTER_BUFFER, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_IS_MANAGED == CUDA_POINTER_MANAGED, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == CUDA_POINTER_DEVICE, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR == CUDA_POINTER_RANGE_BEGIN, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_RANGE_SIZE == CUDA_POINTER_RANGE_LEN, "attribute");
_Static_assert(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS == CUDA_POINTER_ACCESS, "attribute");
_Static_assert(CU_MEM_ACCESS_FLAGS_PROT_NONE == 0, "no access");
typedef struct WEFT_MEMCPY2D own_blocks;
_Static_assert(sizeof(CUDA_MEMCPY2D) == sizeof(own_blocks), "size");
#define MEMBER(name) _Static_assert(offsetof(CUDA_MEMCPY2D, name) == offsetof(own_blocks, name), #name);
MEMBER(srcXInBytes) MEMBER(srcY) MEMBER(srcMemoryType) MEMBER(srcHost) MEMBER(srcDevice) MEMBER(srcArray) MEMBER(srcPitch)
MEMBER(dstXInBytes) MEMBER(dstY) MEMBER(dstMemoryType) MEMBER(dstHost) MEMBER(dstDevice) MEMBER(dstArray) MEMBER(dstPitch)
MEMBER(WidthInBytes) MEMBER(Height)
#undef MEMBER
typedef struct WEFT_MEMCPY3D own_planes;
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(own_planes), "size");
#define MEMBER(name) _Static_assert(offsetof(CUDA_MEMCPY3D, name) == offsetof(own_planes, name), #name);
MEMBER(srcMemoryType) MEMBER(srcHost) MEMBER(srcDevice) MEMBER(srcPitch) MEMBER(srcHeight)
MEMBER(dstMemoryType) MEMBER(dstHost) MEMBER(dstDevice) MEMBER(dstPitch) MEMBER(dstHeight)
MEMBER(WidthInBytes) MEMBER(Height) MEMBER(Depth)
/* From here on the driver's own types stand behind the names of driver.def. */
#define cuda_result CUresult
#define cuda_attribute CUpointer_attribute
#define cuda_capture CUstreamCaptureStatus
#define cuda_capture_mode CUstreamCaptureMode
#define cuda_device_attribute CUdevice_attribute
#define cuda_uuid CUuuid_st
#define cuda_handle_type CUmemAllocationHandleType
#define cuda_access CUmemAccessDesc_st
#define cuda_range_handle CUmemRangeHandleType
#define cuda_ipc_handle CUipcMemHandle_st
#define cuda_pool_pointer CUmemPoolPtrExportData_st
#undef CUDA_MEMCPY2D_st
#undef CUDA_MEMCPY3D_st
#define CUDA_CALL(field, symbol, parameters) \
    _Static_assert(__builtin_types_compatible_p(CUresult CUDAAPI parameters, __typeof__(symbol)), #symbol);
#include <transports/cuda/driver.def>
C
} >"$scratch/prototypes.c"
if "${CC:-cc}" -std=gnu11 -fsyntax-only -I. -Iinclude -isystem "$found" "$scratch/prototypes.c"; then
    echo "ok $name"
else
    echo "not ok $name"
    exit 1
fi
