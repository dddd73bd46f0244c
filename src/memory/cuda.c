/*
 * CUDA memory: cuMem allocations that are exported as POSIX descriptors and mapped by every process
 * that holds one. Each memory retains its GPU's primary context and makes it current only inside a
 * call, so that the caller's own context is as it was (an engine's thread has one, the messenger's
 * threads have none).
 */
#define _GNU_SOURCE /* F_DUPFD_CLOEXEC and the like */
#include "cuda_dl.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* What a call of these gives, with the name of the call for the sentence. */
#define TRY(call, ...)                                                  \
    do {                                                                \
        const cuda_result result_ = cuda->call(__VA_ARGS__);            \
        if (result_ != CUDA_OK) {                                       \
            return cuda_fail(cuda, #call, result_, error, error_bytes); \
        }                                                               \
    } while (0)

/* Undo what there is, in reverse order. Failures change nothing: there is no more to be done. */
static void undo(const struct cuda *cuda, struct hlg_memory *m)
{
    if (m->dmabuf >= 0) {
        (void)close(m->dmabuf);
    }
    if (m->mapped) {
        (void)cuda->cuMemUnmap((cuda_ptr)(uintptr_t)m->base, m->reserved);
    }
    if (m->reserved != 0) {
        (void)cuda->cuMemAddressFree((cuda_ptr)(uintptr_t)m->base, m->reserved);
    }
    if (m->has_handle) {
        (void)cuda->cuMemRelease(m->handle);
    }
    if (m->context != NULL) {
        (void)cuda->cuDevicePrimaryCtxRelease(m->cuda_device);
    }
}

static int attribute(const struct cuda *cuda, const struct hlg_memory *m, int which, int *value,
                     char *error, size_t error_bytes)
{
    TRY(cuDeviceGetAttribute, value, which, m->cuda_device);
    return 0;
}

/* The GPU of m->device: its name, UUID and context. */
static int take_device(const struct cuda *cuda, struct hlg_memory *m, char *error,
                       size_t error_bytes)
{
    struct cuda_uuid uuid;
    cuda_context context = NULL;
    int able = 0;

    TRY(cuDeviceGet, &m->cuda_device, m->device);
    TRY(cuDeviceGetUuid, &uuid, m->cuda_device);
    memcpy(m->uuid, uuid.bytes, sizeof m->uuid);
    static const int needed[] = {CUDA_ATTR_VMM, CUDA_ATTR_POSIX_FD};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        const int code = attribute(cuda, m, needed[i], &able, error, error_bytes);
        if (code != 0) {
            return code;
        }
        if (able == 0) {
            return memory_fail(-HLG_EUNSUPPORTED, error, error_bytes,
                               "GPU %d cannot share memory between processes (%s): use memory of "
                               "kind host",
                               m->device, i == 0 ? "no cuMem" : "no POSIX descriptors of it");
        }
    }
    TRY(cuDevicePrimaryCtxRetain, &context, m->cuda_device);
    m->context = context;
    return 0;
}

static int describe(const struct cuda *cuda, const struct hlg_memory *m,
                    struct cuda_alloc_prop *prop, char *error, size_t error_bytes)
{
    int able = 0;
    const int code = attribute(cuda, m, CUDA_ATTR_RDMA_WITH_VMM, &able, error, error_bytes);

    memset(prop, 0, sizeof *prop);
    prop->type = CUDA_ALLOCATION_PINNED;
    prop->handle_types = CUDA_HANDLE_POSIX_FD;
    prop->location = (struct cuda_location){.type = CUDA_LOCATION_DEVICE, .id = m->device};
    prop->gpu_direct_rdma_capable = able != 0;
    return code;
}

/* Whole granules of the GPU, as both sides of an export reckon them. */
static int round_up(const struct cuda *cuda, const struct cuda_alloc_prop *prop, uint64_t bytes,
                    uint64_t *rounded, char *error, size_t error_bytes)
{
    size_t granule = 0;

    TRY(cuMemGetAllocationGranularity, &granule, prop, CUDA_GRANULARITY_RECOMMENDED);
    if (granule == 0 || (granule & (granule - 1)) != 0) {
        return memory_fail(-HLG_EIO, error, error_bytes,
                           "the CUDA driver says that memory comes in %zu bytes, no power of two: "
                           "update the driver",
                           granule);
    }
    *rounded = (bytes + granule - 1) & ~(uint64_t)(granule - 1);
    return 0;
}

static int map(const struct cuda *cuda, struct hlg_memory *m, uint64_t bytes, char *error,
               size_t error_bytes)
{
    const struct cuda_access access = {
        .location = {.type = CUDA_LOCATION_DEVICE, .id = m->device},
        .flags = CUDA_ACCESS_READWRITE,
    };
    cuda_ptr base = 0;

    TRY(cuMemAddressReserve, &base, bytes, 0, 0, 0);
    m->base = (void *)(uintptr_t)base;
    m->reserved = bytes;
    TRY(cuMemMap, base, bytes, 0, m->handle, 0);
    m->mapped = true;
    TRY(cuMemSetAccess, base, bytes, &access, 1);
    return 0;
}

/* On a stream of its own: the null stream would wait for all work of the engine. */
static int zero(const struct cuda *cuda, const struct hlg_memory *m, char *error,
                size_t error_bytes)
{
    cuda_stream stream = NULL;
    const char *call = "cuMemsetD8Async";

    TRY(cuStreamCreate, &stream, CUDA_STREAM_NON_BLOCKING);
    cuda_result result =
        cuda->cuMemsetD8Async((cuda_ptr)(uintptr_t)m->base, 0, m->reserved, stream);
    if (result == CUDA_OK) {
        call = "cuStreamSynchronize";
        result = cuda->cuStreamSynchronize(stream);
    }
    (void)cuda->cuStreamDestroy(stream);
    return result == CUDA_OK ? 0 : cuda_fail(cuda, call, result, error, error_bytes);
}

/* A dma-buf, where driver and GPU have such: providers without a peer-memory module need it, and nobody else.
 * What it is refused for (the kernel, its modules, the container) differs, and who needs it says so when the
 * memory is registered. */
static int take_dmabuf(const struct cuda *cuda, struct hlg_memory *m, char *error,
                       size_t error_bytes)
{
    int able = 0;
    int fd = -1;
    const int code = attribute(cuda, m, CUDA_ATTR_DMA_BUF, &able, error, error_bytes);

    if (code != 0 || able == 0 || cuda->cuMemGetHandleForAddressRange == NULL) {
        return code;
    }
    if (cuda->cuMemGetHandleForAddressRange(&fd, (cuda_ptr)(uintptr_t)m->base, m->reserved,
                                            CUDA_RANGE_DMA_BUF_FD, 0) == CUDA_OK) {
        m->dmabuf = fd;
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return 0;
}

static int create_here(const struct cuda *cuda, struct hlg_memory *m, char *error,
                       size_t error_bytes)
{
    struct cuda_alloc_prop prop;
    cuda_alloc handle = 0;
    uint64_t bytes = 0;
    int code = describe(cuda, m, &prop, error, error_bytes);

    if (code == 0) {
        code = round_up(cuda, &prop, m->bytes, &bytes, error, error_bytes);
    }
    if (code != 0) {
        return code;
    }
    TRY(cuMemCreate, &handle, bytes, &prop, 0);
    m->handle = handle;
    m->has_handle = true;
    code = map(cuda, m, bytes, error, error_bytes);
    if (code == 0) {
        code = zero(cuda, m, error, error_bytes);
    }
    return code == 0 ? take_dmabuf(cuda, m, error, error_bytes) : code;
}

static int import_here(const struct cuda *cuda, struct hlg_memory *m, int fd, char *error,
                       size_t error_bytes)
{
    struct cuda_alloc_prop prop;
    cuda_alloc handle = 0;
    uint64_t bytes = 0;
    int code = describe(cuda, m, &prop, error, error_bytes);

    if (code == 0) {
        code = round_up(cuda, &prop, m->bytes, &bytes, error, error_bytes);
    }
    if (code != 0) {
        return code;
    }
    TRY(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd, CUDA_HANDLE_POSIX_FD);
    m->handle = handle;
    m->has_handle = true;
    code = map(cuda, m, bytes, error, error_bytes);
    return code == 0 ? take_dmabuf(cuda, m, error, error_bytes) : code;
}

/* Make, or with a descriptor import, on the GPU of m->device. */
static int make(const struct cuda *cuda, struct hlg_memory *m, int fd, char *error,
                size_t error_bytes)
{
    int code = take_device(cuda, m, error, error_bytes);

    if (code == 0) {
        code = cuda_enter(cuda, m->context, error, error_bytes);
    }
    if (code == 0) {
        code = fd >= 0 ? import_here(cuda, m, fd, error, error_bytes)
                       : create_here(cuda, m, error, error_bytes);
        cuda_leave(cuda);
    }
    if (code != 0) {
        undo(cuda, m);
    }
    return code;
}

int hlg_memory_devices(char *error, size_t error_bytes)
{
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);

    return cuda == NULL ? code : cuda->devices;
}

int hlg_memory_bus(int32_t ordinal, char bus[HLG_MEMORY_BUS_BYTES], char *error, size_t error_bytes)
{
    int code = 0;
    char text[HLG_MEMORY_BUS_BYTES] = "";
    cuda_device device = 0;
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);

    if (cuda == NULL) {
        return code;
    }
    code = cuda_check_device(cuda, ordinal, error, error_bytes);
    if (code != 0) {
        return code;
    }
    TRY(cuDeviceGet, &device, ordinal);
    TRY(cuDeviceGetPCIBusId, text, (int)sizeof text, device);
    memcpy(bus, text, sizeof text);
    return 0;
}

int memory_cuda_create(struct hlg_memory *m, char *error, size_t error_bytes)
{
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);

    if (cuda == NULL) {
        return code;
    }
    code = cuda_check_device(cuda, m->device, error, error_bytes);
    return code == 0 ? make(cuda, m, -1, error, error_bytes) : code;
}

static int find_device(const struct cuda *cuda, struct hlg_memory *m, char *error,
                       size_t error_bytes)
{
    const uint8_t *u = m->uuid;

    for (int i = 0; i < cuda->devices; i++) {
        struct cuda_uuid uuid;
        cuda_device device = 0;
        TRY(cuDeviceGet, &device, i);
        TRY(cuDeviceGetUuid, &uuid, device);
        if (memcmp(uuid.bytes, m->uuid, sizeof m->uuid) == 0) {
            m->device = i;
            return 0;
        }
    }
    return memory_fail(
        -HLG_EINVAL, error, error_bytes,
        "memory of GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
        "%02x%02x%02x%02x%02x%02x cannot be imported, since this process does not see "
        "that GPU: give it the CUDA_VISIBLE_DEVICES of all its ranks",
        u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
        u[14], u[15]);
}

int memory_cuda_import(struct hlg_memory *m, int fd, char *error, size_t error_bytes)
{
    int code = 0;

    if (fd < 0) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "there is no descriptor to import CUDA memory from: send the one of "
                           "hlg_memory_export()");
    }
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);
    if (cuda == NULL) {
        return code;
    }
    code = find_device(cuda, m, error, error_bytes);
    return code == 0 ? make(cuda, m, fd, error, error_bytes) : code;
}

int memory_cuda_export(const struct hlg_memory *m, char *error, size_t error_bytes)
{
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, error, error_bytes);
    int fd = -1;

    if (cuda == NULL) {
        return code;
    }
    TRY(cuMemExportToShareableHandle, &fd, m->handle, CUDA_HANDLE_POSIX_FD, 0);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

void memory_cuda_release(struct hlg_memory *m)
{
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, NULL, 0);

    if (cuda !=
        NULL) { /* else it is a fork of the process that made it, and nothing here is its own */
        undo(cuda, m);
    }
}

/* Copy between host and device, in the memory's context. */
static int copy(const struct hlg_memory *m, cuda_ptr device, void *to, const void *from,
                uint64_t bytes)
{
    int code = 0;
    const struct cuda *cuda = cuda_open(&code, NULL, 0);

    if (cuda == NULL || bytes == 0) {
        return code;
    }
    code = cuda_enter(cuda, m->context, NULL, 0);
    if (code != 0) {
        return -HLG_EIO;
    }
    const cuda_result result = to != NULL ? cuda->cuMemcpyDtoH(to, device, bytes)
                                          : cuda->cuMemcpyHtoD(device, from, bytes);
    cuda_leave(cuda);
    return result == CUDA_OK ? 0 : -HLG_EIO;
}

int memory_cuda_read(const struct hlg_memory *m, uint64_t offset, void *to, uint64_t bytes)
{
    return copy(m, (cuda_ptr)(uintptr_t)m->base + offset, to, NULL, bytes);
}

int memory_cuda_write(struct hlg_memory *m, uint64_t offset, const void *from, uint64_t bytes)
{
    return copy(m, (cuda_ptr)(uintptr_t)m->base + offset, NULL, from, bytes);
}
