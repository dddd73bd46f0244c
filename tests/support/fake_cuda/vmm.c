/*
 * Memory: an allocation is a memfd, which this file also maps for itself. The addresses that a program
 * gets are reserved and, unless FAKE_CUDA_READABLE is set, cannot be touched by the CPU, as those of a
 * GPU: whoever follows them dies by SIGSEGV.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULE   ((size_t)2 << 20)
#define NAME      "fake-cuda-" /* the physical device follows */
#define TABLE_MAX 2048

/* Memory comes with somebody else's bytes. */
#define OLD_BYTE 0xa5

struct allocation {
    int fd; /* -1: free entry */
    uint8_t *bytes;
    size_t size;
    int device; /* physical */
    int holders;
    int handles; /* of these, handles of the program's */
};

struct mapping {
    cuda_ptr base; /* 0: free entry */
    size_t size;
    struct allocation *allocation;
    int access;
};

struct span {
    uintptr_t base; /* 0: free entry */
    size_t size;
    bool registered; /* not ours */
};

static struct allocation allocations[TABLE_MAX];
static struct mapping mappings[TABLE_MAX];
static struct span reserved[TABLE_MAX];
static struct span pinned[TABLE_MAX];

static struct allocation *allocation_of(cuda_alloc handle)
{
    const size_t i = (size_t)(handle - 1);

    return handle >= 1 && i < TABLE_MAX && allocations[i].bytes != NULL &&
                   allocations[i].handles > 0
               ? &allocations[i]
               : NULL;
}

/* Takes the descriptor. */
static cuda_result take(int fd, size_t size, int device, cuda_alloc *handle)
{
    size_t i = 0;

    while (i < TABLE_MAX && allocations[i].bytes != NULL) {
        i++;
    }
    void *bytes =
        i < TABLE_MAX ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (bytes == MAP_FAILED) {
        (void)close(fd);
        return CUDA_OUT_OF_MEMORY;
    }
    allocations[i] = (struct allocation){
        .fd = fd, .bytes = bytes, .size = size, .device = device, .holders = 1, .handles = 1};
    fake.live.allocations++;
    fake.live.handles++;
    *handle = i + 1;
    return CUDA_OK;
}

static void let_go(struct allocation *a)
{
    if (--a->holders == 0) {
        (void)munmap(a->bytes, a->size);
        (void)close(a->fd);
        *a = (struct allocation){0};
        fake.live.allocations--;
    }
}

cuda_result fake_cuMemGetAllocationGranularity(size_t *bytes, const struct cuda_alloc_prop *prop,
                                               int which)
{
    const cuda_result failed = fake_enter(CALL_cuMemGetAllocationGranularity);

    (void)which;
    *bytes = GRANULE;
    return failed == CUDA_OK && prop->type != CUDA_ALLOCATION_PINNED ? CUDA_INVALID_VALUE : failed;
}

cuda_result fake_cuMemCreate(cuda_alloc *handle, size_t bytes, const struct cuda_alloc_prop *prop,
                             unsigned long long flags)
{
    const cuda_result failed = fake_enter(CALL_cuMemCreate);
    char name[32];

    if (failed != CUDA_OK) {
        return failed;
    }
    if (bytes == 0 || bytes % GRANULE != 0 || flags != 0 || prop->type != CUDA_ALLOCATION_PINNED ||
        prop->location.type != CUDA_LOCATION_DEVICE || prop->location.id < 0 ||
        prop->location.id >= fake.devices) {
        return CUDA_INVALID_VALUE;
    }
    if (prop->handle_types != CUDA_HANDLE_POSIX_FD || fake_attribute(CUDA_ATTR_POSIX_FD) == 0 ||
        (prop->gpu_direct_rdma_capable != 0 && fake_attribute(CUDA_ATTR_RDMA_WITH_VMM) == 0)) {
        return CUDA_NOT_SUPPORTED;
    }
    (void)snprintf(name, sizeof name, NAME "%d", fake.physical[prop->location.id]);
    const int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        (void)close(fd);
        return CUDA_OUT_OF_MEMORY;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const cuda_result result = take(fd, bytes, fake.physical[prop->location.id], handle);
    if (result == CUDA_OK) {
        memset(allocation_of(*handle)->bytes, OLD_BYTE, bytes);
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

cuda_result fake_cuMemRelease(cuda_alloc handle)
{
    const cuda_result failed = fake_enter(CALL_cuMemRelease);

    (void)pthread_mutex_lock(&fake.lock);
    struct allocation *a = allocation_of(handle);
    if (a != NULL) {
        a->handles--;
        fake.live.handles--;
        let_go(a);
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return a != NULL ? failed : CUDA_INVALID_VALUE;
}

static cuda_result copy_fd(int from, void *to)
{
    const int fd = fcntl(from, F_DUPFD, 0); /* not close-on-exec, as the driver's may be */

    if (fd < 0) {
        return CUDA_OPERATING_SYSTEM;
    }
    memcpy(to, &fd, sizeof fd);
    return CUDA_OK;
}

cuda_result fake_cuMemExportToShareableHandle(void *shareable, cuda_alloc handle, int type,
                                              unsigned long long flags)
{
    const cuda_result failed = fake_enter(CALL_cuMemExportToShareableHandle);

    if (failed != CUDA_OK || flags != 0 || type != CUDA_HANDLE_POSIX_FD) {
        return failed != CUDA_OK ? failed : CUDA_NOT_SUPPORTED;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const struct allocation *a = allocation_of(handle);
    const cuda_result result = a != NULL ? copy_fd(a->fd, shareable) : CUDA_INVALID_VALUE;
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

/* The physical device of a descriptor that stands for memory of the double; -1: it is none. */
static int device_of(int fd)
{
    static const char begin[] = "/memfd:" NAME;
    char path[64];
    char link[64] = "";

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, link, sizeof link - 1) <= 0 || strncmp(link, begin, sizeof begin - 1) != 0) {
        return -1;
    }
    return (int)strtol(link + sizeof begin - 1, NULL, 10);
}

cuda_result fake_cuMemImportFromShareableHandle(cuda_alloc *handle, void *shareable, int type)
{
    const cuda_result failed = fake_enter(CALL_cuMemImportFromShareableHandle);
    const int fd = (int)(intptr_t)shareable;
    struct stat status;

    if (failed != CUDA_OK || type != CUDA_HANDLE_POSIX_FD) {
        return failed != CUDA_OK ? failed : CUDA_NOT_SUPPORTED;
    }
    const int device = device_of(fd);
    if (device < 0 || fstat(fd, &status) != 0) {
        return CUDA_INVALID_VALUE;
    }
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        return CUDA_OPERATING_SYSTEM;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const cuda_result result = take(own, (size_t)status.st_size, device, handle);
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

/* ---- Addresses ---- */

static struct span *span_of(struct span *table, uintptr_t base)
{
    for (size_t i = 0; i < TABLE_MAX; i++) {
        if (table[i].base == base) {
            return &table[i];
        }
    }
    return NULL;
}

static void *map_nothing(void *at, size_t bytes)
{
    return mmap(at, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != NULL ? MAP_FIXED : 0), -1, 0);
}

cuda_result fake_cuMemAddressReserve(cuda_ptr *base, size_t bytes, size_t alignment, cuda_ptr hint,
                                     unsigned long long flags)
{
    const cuda_result failed = fake_enter(CALL_cuMemAddressReserve);

    if (failed != CUDA_OK || bytes == 0 || bytes % GRANULE != 0 || alignment != 0 || hint != 0 ||
        flags != 0) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    uint8_t *all = map_nothing(NULL, bytes + GRANULE);
    if (all == MAP_FAILED) {
        return CUDA_OUT_OF_MEMORY;
    }
    const size_t before = (GRANULE - (uintptr_t)all % GRANULE) % GRANULE;
    if (before > 0) {
        (void)munmap(all, before);
    }
    if (GRANULE - before > 0) {
        (void)munmap(all + before + bytes, GRANULE - before);
    }
    (void)pthread_mutex_lock(&fake.lock);
    struct span *span = span_of(reserved, 0);
    if (span != NULL) {
        *span = (struct span){.base = (uintptr_t)(all + before), .size = bytes};
        fake.live.reservations++;
        *base = span->base;
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return span != NULL ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

/* Whether anything is mapped in a range. */
static bool is_used(cuda_ptr base, size_t bytes)
{
    for (size_t i = 0; i < TABLE_MAX; i++) {
        if (mappings[i].base != 0 && mappings[i].base < base + bytes &&
            base < mappings[i].base + mappings[i].size) {
            return true;
        }
    }
    return false;
}

cuda_result fake_cuMemAddressFree(cuda_ptr base, size_t bytes)
{
    const cuda_result failed = fake_enter(CALL_cuMemAddressFree);
    cuda_result result = CUDA_INVALID_VALUE;

    (void)pthread_mutex_lock(&fake.lock);
    struct span *span = base != 0 ? span_of(reserved, (uintptr_t)base) : NULL;
    if (span != NULL && span->size == bytes && !is_used(base, bytes)) {
        (void)munmap((void *)span->base, span->size);
        *span = (struct span){0};
        fake.live.reservations--;
        result = failed;
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

static bool is_reserved(cuda_ptr base, size_t bytes)
{
    for (size_t i = 0; i < TABLE_MAX; i++) {
        if (reserved[i].base != 0 && base >= reserved[i].base &&
            base + bytes <= reserved[i].base + reserved[i].size) {
            return true;
        }
    }
    return false;
}

static struct mapping *mapping_at(cuda_ptr pointer)
{
    for (size_t i = 0; i < TABLE_MAX; i++) {
        if (mappings[i].base != 0 && pointer >= mappings[i].base &&
            pointer < mappings[i].base + mappings[i].size) {
            return &mappings[i];
        }
    }
    return NULL;
}

cuda_result fake_cuMemMap(cuda_ptr base, size_t bytes, size_t offset, cuda_alloc handle,
                          unsigned long long flags)
{
    const cuda_result failed = fake_enter(CALL_cuMemMap);
    cuda_result result = CUDA_INVALID_VALUE;

    if (failed != CUDA_OK) {
        return failed;
    }
    (void)pthread_mutex_lock(&fake.lock);
    struct allocation *a = allocation_of(handle);
    size_t i = 0;
    while (i < TABLE_MAX && mappings[i].base != 0) {
        i++;
    }
    if (a != NULL && i < TABLE_MAX && offset == 0 && flags == 0 && bytes != 0 &&
        bytes % GRANULE == 0 && bytes <= a->size && is_reserved(base, bytes) &&
        !is_used(base, bytes)) {
        mappings[i] = (struct mapping){.base = base, .size = bytes, .allocation = a};
        a->holders++;
        fake.live.mappings++;
        result = CUDA_OK;
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

cuda_result fake_cuMemUnmap(cuda_ptr base, size_t bytes)
{
    const cuda_result failed = fake_enter(CALL_cuMemUnmap);
    cuda_result result = CUDA_INVALID_VALUE;

    (void)pthread_mutex_lock(&fake.lock);
    struct mapping *m = mapping_at(base);
    if (m != NULL && m->base == base && m->size == bytes) {
        (void)map_nothing((void *)(uintptr_t)base, bytes);
        let_go(m->allocation);
        *m = (struct mapping){0};
        fake.live.mappings--;
        result = failed;
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

cuda_result fake_cuMemSetAccess(cuda_ptr base, size_t bytes, const struct cuda_access *access,
                                size_t count)
{
    const cuda_result failed = fake_enter(CALL_cuMemSetAccess);
    cuda_result result = CUDA_INVALID_VALUE;

    if (failed != CUDA_OK || count != 1 || access->location.type != CUDA_LOCATION_DEVICE ||
        access->location.id < 0 || access->location.id >= fake.devices) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    (void)pthread_mutex_lock(&fake.lock);
    struct mapping *m = mapping_at(base);
    if (m != NULL && m->base == base && m->size == bytes) {
        m->access = access->flags;
        result = CUDA_OK;
        if (fake.readable && mmap((void *)(uintptr_t)base, bytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_FIXED, m->allocation->fd, 0) == MAP_FAILED) {
            result = CUDA_OUT_OF_MEMORY;
        }
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

cuda_result fake_cuMemGetHandleForAddressRange(void *handle, cuda_ptr base, size_t bytes, int type,
                                               unsigned long long flags)
{
    const cuda_result failed = fake_enter(CALL_cuMemGetHandleForAddressRange);

    if (failed != CUDA_OK || type != CUDA_RANGE_DMA_BUF_FD || flags != 0 || base % 4096 != 0 ||
        bytes % 4096 != 0) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const struct mapping *m = mapping_at(base);
    const cuda_result result = m != NULL && base + bytes <= m->base + m->size
                                   ? copy_fd(m->allocation->fd, handle)
                                   : CUDA_INVALID_VALUE;
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

static int ordinal_of(int physical)
{
    for (int i = 0; i < fake.devices; i++) {
        if (fake.physical[i] == physical) {
            return i;
        }
    }
    return -1;
}

cuda_result fake_cuPointerGetAttribute(void *value, int attribute, cuda_ptr pointer)
{
    const cuda_result failed = fake_enter_current(CALL_cuPointerGetAttribute);
    cuda_result result = CUDA_OK;

    if (failed != CUDA_OK) {
        return failed;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const struct mapping *m = mapping_at(pointer);
    if (m == NULL) {
        result = CUDA_INVALID_VALUE;
    } else if (attribute == CUDA_POINTER_MEMORY_TYPE) {
        *(unsigned *)value = CUDA_MEMORYTYPE_DEVICE;
    } else if (attribute == CUDA_POINTER_DEVICE_ORDINAL) {
        *(int *)value = ordinal_of(m->allocation->device);
    } else if (attribute == CUDA_POINTER_RANGE_START) {
        *(cuda_ptr *)value = m->base;
    } else if (attribute == CUDA_POINTER_RANGE_SIZE) {
        *(size_t *)value = m->size;
    } else {
        result = CUDA_INVALID_VALUE;
    }
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

uint8_t *fake_bytes(cuda_ptr pointer, size_t *room)
{
    const struct mapping *m = mapping_at(pointer);

    if (m != NULL && m->access == CUDA_ACCESS_READWRITE) {
        *room = (size_t)(m->base + m->size - pointer);
        return m->allocation->bytes + (pointer - m->base);
    }
    for (size_t i = 0; i < TABLE_MAX; i++) { /* host memory that the GPU may use */
        if (pinned[i].base != 0 && pointer >= pinned[i].base &&
            pointer < pinned[i].base + pinned[i].size) {
            *room = pinned[i].base + pinned[i].size - (uintptr_t)pointer;
            return (uint8_t *)(uintptr_t)pointer;
        }
    }
    return NULL;
}

bool fake_mapped(cuda_ptr pointer, size_t bytes)
{
    while (bytes > 0) {
        size_t room = 0;
        if (fake_bytes(pointer, &room) == NULL) {
            return false;
        }
        const size_t part = room < bytes ? room : bytes;
        pointer += part;
        bytes -= part;
    }
    return true;
}

/* ---- Pinned host memory ---- */

static cuda_result pin(void *host, size_t bytes, bool registered)
{
    struct span *span = span_of(pinned, 0);

    if (span == NULL) {
        return CUDA_OUT_OF_MEMORY;
    }
    *span = (struct span){.base = (uintptr_t)host, .size = bytes, .registered = registered};
    fake.live.pinned++;
    return CUDA_OK;
}

static cuda_result unpin(const void *host, bool registered)
{
    struct span *span = host != NULL ? span_of(pinned, (uintptr_t)host) : NULL;

    if (span == NULL || span->registered != registered) {
        return CUDA_INVALID_VALUE;
    }
    if (!registered) {
        (void)munmap((void *)span->base, span->size);
    }
    *span = (struct span){0};
    fake.live.pinned--;
    return CUDA_OK;
}

bool fake_pinned(const void *host)
{
    size_t room = 0;

    return fake_bytes((cuda_ptr)(uintptr_t)host, &room) != NULL;
}

cuda_result fake_cuMemHostAlloc(void **host, size_t bytes, unsigned flags)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemHostAlloc);

    if (failed != CUDA_OK || bytes == 0 ||
        (flags & ~(unsigned)(CUDA_HOSTALLOC_PORTABLE | CUDA_HOSTALLOC_DEVICEMAP)) != 0) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return CUDA_OUT_OF_MEMORY;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const cuda_result result = pin(memory, bytes, false);
    (void)pthread_mutex_unlock(&fake.lock);
    *host = memory;
    return result;
}

cuda_result fake_cuMemFreeHost(void *host)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemFreeHost);

    (void)pthread_mutex_lock(&fake.lock);
    const cuda_result result = unpin(host, false);
    (void)pthread_mutex_unlock(&fake.lock);
    return result != CUDA_OK ? result : failed;
}

cuda_result fake_cuMemHostRegister(void *host, size_t bytes, unsigned flags)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemHostRegister);

    (void)flags;
    if (failed != CUDA_OK || bytes == 0) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    (void)pthread_mutex_lock(&fake.lock);
    const cuda_result result =
        span_of(pinned, (uintptr_t)host) != NULL ? CUDA_REGISTERED_ALREADY : pin(host, bytes, true);
    (void)pthread_mutex_unlock(&fake.lock);
    return result;
}

cuda_result fake_cuMemHostUnregister(void *host)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemHostUnregister);

    (void)pthread_mutex_lock(&fake.lock);
    const cuda_result result = unpin(host, true);
    (void)pthread_mutex_unlock(&fake.lock);
    return result != CUDA_OK ? result : failed;
}

cuda_result fake_cuMemHostGetDevicePointer(cuda_ptr *device, void *host, unsigned flags)
{
    const cuda_result failed = fake_enter_current(CALL_cuMemHostGetDevicePointer);

    (void)pthread_mutex_lock(&fake.lock);
    const bool known = fake_pinned(host);
    (void)pthread_mutex_unlock(&fake.lock);
    if (failed != CUDA_OK || flags != 0 || !known) {
        return failed != CUDA_OK ? failed : CUDA_INVALID_VALUE;
    }
    *device = (cuda_ptr)(uintptr_t)host;
    return CUDA_OK;
}
