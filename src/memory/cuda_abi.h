/*
 * The part of the CUDA driver API that is used here: its types and numbers, as NVIDIA documents them
 * ("CUDA Driver API", release 13.0). Written down so that neither a build nor its tests need the CUDA
 * Toolkit; test `cuda-abi` compares all of it with the Toolkit's cuda.h where that is installed.
 */
#ifndef HALAGE_MEMORY_CUDA_ABI_H
#define HALAGE_MEMORY_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int cuda_result;               /* CUresult */
typedef int cuda_device;               /* CUdevice */
typedef unsigned long long cuda_ptr;   /* CUdeviceptr */
typedef unsigned long long cuda_alloc; /* CUmemGenericAllocationHandle */
typedef struct cuda_context_opaque *cuda_context;
typedef struct cuda_stream_opaque *cuda_stream;
typedef struct cuda_event_opaque *cuda_event;
typedef struct cuda_module_opaque *cuda_module;     /* CUmodule */
typedef struct cuda_function_opaque *cuda_function; /* CUfunction */

struct cuda_uuid {
    unsigned char bytes[16];
};

struct cuda_location {
    int type;
    int id;
};

struct cuda_alloc_prop { /* CUmemAllocationProp */
    int type;
    int handle_types;
    struct cuda_location location;
    void *win32;
    unsigned char compression;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
};

struct cuda_access { /* CUmemAccessDesc */
    struct cuda_location location;
    int flags;
};

enum cuda_number {
    /* CUresult */
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_DEINITIALIZED = 4,
    CUDA_STUB_LIBRARY = 34,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_NO_BINARY_FOR_GPU = 209,
    CUDA_INVALID_PTX = 218,
    CUDA_NO_JIT_COMPILER = 221,
    CUDA_OLD_FOR_PTX = 222, /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION */
    CUDA_OPERATING_SYSTEM = 304,
    CUDA_INVALID_HANDLE = 400,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_READY = 600,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_REGISTERED_ALREADY = 712,
    CUDA_NOT_PERMITTED = 800,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_DRIVER_MISMATCH = 803,
    CUDA_CAPTURE_UNSUPPORTED = 900,
    CUDA_UNKNOWN = 999,
    /* CUdevice_attribute */
    CUDA_ATTR_VMM = 102,
    CUDA_ATTR_POSIX_FD = 103,
    CUDA_ATTR_RDMA_WITH_VMM = 110,
    CUDA_ATTR_RDMA = 116,
    CUDA_ATTR_FLUSH_OPTIONS = 117,
    CUDA_ATTR_WRITES_ORDERING = 118,
    CUDA_ATTR_DMA_BUF = 124,
    /* values of CUDA_ATTR_FLUSH_OPTIONS and CUDA_ATTR_WRITES_ORDERING */
    CUDA_FLUSH_OPTION_HOST = 1,
    CUDA_ORDERING_NONE = 0,
    CUDA_ORDERING_OWNER = 100,
    /* cuFlushGPUDirectRDMAWrites */
    CUDA_FLUSH_CURRENT_CONTEXT = 0,
    CUDA_FLUSH_TO_OWNER = 100,
    /* CUpointer_attribute */
    CUDA_POINTER_MEMORY_TYPE = 2,
    CUDA_POINTER_DEVICE_ORDINAL = 9,
    CUDA_POINTER_RANGE_START = 11,
    CUDA_POINTER_RANGE_SIZE = 12,
    CUDA_MEMORYTYPE_DEVICE = 2,
    /* cuMem */
    CUDA_ALLOCATION_PINNED = 1,
    CUDA_HANDLE_POSIX_FD = 1,
    CUDA_LOCATION_DEVICE = 1,
    CUDA_ACCESS_READWRITE = 3,
    CUDA_GRANULARITY_MINIMUM = 0,
    CUDA_GRANULARITY_RECOMMENDED = 1,
    CUDA_RANGE_DMA_BUF_FD = 1,
    /* flags */
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOSTALLOC_PORTABLE = 1,
    CUDA_HOSTALLOC_DEVICEMAP = 2,
    CUDA_PROC_ADDRESS_DEFAULT = 0,
    /* CUstreamCaptureStatus, CUstreamCaptureMode */
    CUDA_CAPTURE_NONE = 0,
    CUDA_CAPTURE_ACTIVE = 1,
    CUDA_CAPTURE_THREAD_LOCAL = 1,
};

/*
 * X(name, version, arguments): the calls, each in the version that is meant (thousands of the CUDA
 * version that brought it), as cuGetProcAddress takes them.
 */
#define CUDA_CALLS(X)                                                                              \
    X(cuInit, 2000, (unsigned flags))                                                              \
    X(cuDriverGetVersion, 2020, (int *version))                                                    \
    X(cuGetErrorName, 6000, (cuda_result result, const char **name))                               \
    X(cuDeviceGetCount, 2000, (int *count))                                                        \
    X(cuDeviceGet, 2000, (cuda_device * device, int ordinal))                                      \
    X(cuDeviceGetUuid, 11040, (struct cuda_uuid * uuid, cuda_device device))                       \
    X(cuDeviceGetPCIBusId, 4010, (char *text, int bytes, cuda_device device))                      \
    X(cuDeviceGetAttribute, 2000, (int *value, int attribute, cuda_device device))                 \
    X(cuDevicePrimaryCtxRetain, 7000, (cuda_context * context, cuda_device device))                \
    X(cuDevicePrimaryCtxRelease, 11000, (cuda_device device))                                      \
    X(cuCtxPushCurrent, 4000, (cuda_context context))                                              \
    X(cuCtxPopCurrent, 4000, (cuda_context * context))                                             \
    X(cuMemGetAllocationGranularity, 10020,                                                        \
      (size_t * bytes, const struct cuda_alloc_prop *prop, int which))                             \
    X(cuMemCreate, 10020,                                                                          \
      (cuda_alloc * alloc, size_t bytes, const struct cuda_alloc_prop *prop,                       \
       unsigned long long flags))                                                                  \
    X(cuMemRelease, 10020, (cuda_alloc alloc))                                                     \
    X(cuMemExportToShareableHandle, 10020,                                                         \
      (void *shareable, cuda_alloc alloc, int type, unsigned long long flags))                     \
    X(cuMemImportFromShareableHandle, 10020, (cuda_alloc * alloc, void *shareable, int type))      \
    X(cuMemAddressReserve, 10020,                                                                  \
      (cuda_ptr * base, size_t bytes, size_t alignment, cuda_ptr hint, unsigned long long flags))  \
    X(cuMemAddressFree, 10020, (cuda_ptr base, size_t bytes))                                      \
    X(cuMemMap, 10020,                                                                             \
      (cuda_ptr base, size_t bytes, size_t offset, cuda_alloc alloc, unsigned long long flags))    \
    X(cuMemUnmap, 10020, (cuda_ptr base, size_t bytes))                                            \
    X(cuMemSetAccess, 10020,                                                                       \
      (cuda_ptr base, size_t bytes, const struct cuda_access *access, size_t count))               \
    X(cuMemGetHandleForAddressRange, 11070,                                                        \
      (void *handle, cuda_ptr base, size_t bytes, int type, unsigned long long flags))             \
    X(cuPointerGetAttribute, 4000, (void *value, int attribute, cuda_ptr pointer))                 \
    X(cuMemHostAlloc, 2020, (void **host, size_t bytes, unsigned flags))                           \
    X(cuMemFreeHost, 2000, (void *host))                                                           \
    X(cuMemHostRegister, 6050, (void *host, size_t bytes, unsigned flags))                         \
    X(cuMemHostUnregister, 4000, (void *host))                                                     \
    X(cuMemHostGetDevicePointer, 3020, (cuda_ptr * device, void *host, unsigned flags))            \
    X(cuMemcpyHtoD, 3020, (cuda_ptr to, const void *from, size_t bytes))                           \
    X(cuMemcpyDtoH, 3020, (void *to, cuda_ptr from, size_t bytes))                                 \
    X(cuMemcpyHtoDAsync, 3020, (cuda_ptr to, const void *from, size_t bytes, cuda_stream stream))  \
    X(cuMemcpyDtoHAsync, 3020, (void *to, cuda_ptr from, size_t bytes, cuda_stream stream))        \
    X(cuMemsetD8Async, 3020, (cuda_ptr to, unsigned char value, size_t bytes, cuda_stream stream)) \
    X(cuStreamCreate, 2000, (cuda_stream * stream, unsigned flags))                                \
    X(cuStreamSynchronize, 2000, (cuda_stream stream))                                             \
    X(cuStreamDestroy, 4000, (cuda_stream stream))                                                 \
    X(cuStreamIsCapturing, 10000, (cuda_stream stream, int *status))                               \
    X(cuStreamWriteValue32, 11070,                                                                 \
      (cuda_stream stream, cuda_ptr to, uint32_t value, unsigned flags))                           \
    X(cuModuleLoadData, 2000, (cuda_module * module, const void *image))                           \
    X(cuModuleUnload, 2000, (cuda_module module))                                                  \
    X(cuModuleGetFunction, 2000, (cuda_function * function, cuda_module module, const char *name)) \
    X(cuLaunchKernel, 4000,                                                                        \
      (cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                  \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       cuda_stream stream, void **parameters, void **extra))                                       \
    X(cuEventCreate, 2000, (cuda_event * event, unsigned flags))                                   \
    X(cuEventRecord, 2000, (cuda_event event, cuda_stream stream))                                 \
    X(cuEventQuery, 2000, (cuda_event event))                                                      \
    X(cuEventDestroy, 4000, (cuda_event event))                                                    \
    X(cuFlushGPUDirectRDMAWrites, 11030, (int target, int scope))

/* cuGetProcAddress in its versions 12.0 and 11.3, the only symbols that are looked up by name. */
typedef cuda_result (*cuda_get_v2)(const char *name, void **call, int version, uint64_t flags,
                                   int *status);
typedef cuda_result (*cuda_get_v1)(const char *name, void **call, int version, uint64_t flags);

#endif
