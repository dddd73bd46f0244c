/* The interface over the kinds of memory. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int memory_fail(int code, char *error, size_t error_bytes, const char *format, ...)
{
    va_list arguments;

    if (error != NULL && error_bytes > 0) {
        va_start(arguments, format);
        (void)vsnprintf(error, error_bytes, format, arguments);
        va_end(arguments);
    }
    return code;
}

/* A record without memory. */
static struct hlg_memory *begin(uint32_t kind, uint64_t bytes, int *code, char *error,
                                size_t error_bytes)
{
    if (kind != HLG_MEMORY_HOST && kind != HLG_MEMORY_CUDA) {
        *code = memory_fail(-HLG_EINVAL, error, error_bytes,
                            "there is no memory of kind %u: use host (1) or cuda (2)", kind);
        return NULL;
    }
    if (bytes == 0 || bytes > INT64_MAX / 2) {
        *code = memory_fail(-HLG_EINVAL, error, error_bytes,
                            "memory of %llu bytes cannot be made: ask for 1 to 2^62",
                            (unsigned long long)bytes);
        return NULL;
    }
    struct hlg_memory *m = calloc(1, sizeof *m);
    if (m == NULL) {
        *code = memory_fail(-HLG_ENOMEM, error, error_bytes, "out of memory");
        return NULL;
    }
    m->kind = (enum hlg_memory_kind)kind;
    m->bytes = bytes;
    m->fd = -1;
    m->dmabuf = -1;
    return m;
}

static int end(int code, struct hlg_memory *m, struct hlg_memory **memory)
{
    if (code != 0) {
        free(m);
        return code;
    }
    HLG_ASSERT(m->base != NULL);
    *memory = m;
    return 0;
}

int hlg_memory_create(const struct hlg_memory_site *site, uint64_t bytes,
                      struct hlg_memory **memory, char *error, size_t error_bytes)
{
    int code = 0;
    struct hlg_memory *m = begin(site->kind, bytes, &code, error, error_bytes);

    if (m == NULL) {
        return code;
    }
    m->device = site->device;
    switch (m->kind) {
    case HLG_MEMORY_HOST:
        m->device = 0;
        return end(memory_host_create(m, error, error_bytes), m, memory);
    case HLG_MEMORY_CUDA:
        return end(memory_cuda_create(m, error, error_bytes), m, memory);
    }
    hlg_unreachable();
}

int hlg_memory_import(int fd, const struct hlg_fd_header *header, struct hlg_memory **memory,
                      char *error, size_t error_bytes)
{
    int code = 0;
    struct hlg_memory *m = begin(header->kind, header->bytes, &code, error, error_bytes);

    if (m == NULL) {
        return code;
    }
    switch (m->kind) {
    case HLG_MEMORY_HOST:
        return end(memory_host_import(m, fd, error, error_bytes), m, memory);
    case HLG_MEMORY_CUDA:
        memcpy(m->uuid, header->device, sizeof m->uuid);
        return end(memory_cuda_import(m, fd, error, error_bytes), m, memory);
    }
    hlg_unreachable();
}

int hlg_memory_export(const struct hlg_memory *m, struct hlg_fd_header *header, char *error,
                      size_t error_bytes)
{
    const int fd = m->kind == HLG_MEMORY_HOST ? memory_host_export(m, error, error_bytes)
                                              : memory_cuda_export(m, error, error_bytes);

    if (fd >= 0) {
        *header = (struct hlg_fd_header){.kind = (uint32_t)m->kind, .bytes = m->bytes};
        memcpy(header->device, m->uuid, sizeof header->device);
    }
    return fd;
}

void hlg_memory_release(struct hlg_memory *m)
{
    if (m == NULL) {
        return;
    }
    switch (m->kind) {
    case HLG_MEMORY_HOST:
        memory_host_release(m);
        break;
    case HLG_MEMORY_CUDA:
        memory_cuda_release(m);
        break;
    }
    free(m);
}

static bool is_inside(const struct hlg_memory *m, uint64_t offset, uint64_t bytes)
{
    return offset <= m->bytes && bytes <= m->bytes - offset;
}

int hlg_memory_read(const struct hlg_memory *m, uint64_t offset, void *to, uint64_t bytes)
{
    if (!is_inside(m, offset, bytes)) {
        return -HLG_EINVAL;
    }
    if (m->kind == HLG_MEMORY_CUDA) {
        return memory_cuda_read(m, offset, to, bytes);
    }
    memcpy(to, (const uint8_t *)m->base + offset, (size_t)bytes);
    return 0;
}

int hlg_memory_write(struct hlg_memory *m, uint64_t offset, const void *from, uint64_t bytes)
{
    if (!is_inside(m, offset, bytes)) {
        return -HLG_EINVAL;
    }
    if (m->kind == HLG_MEMORY_CUDA) {
        return memory_cuda_write(m, offset, from, bytes);
    }
    memcpy((uint8_t *)m->base + offset, from, (size_t)bytes);
    return 0;
}

void *hlg_memory_base(const struct hlg_memory *m)
{
    return m->base;
}

uint64_t hlg_memory_bytes(const struct hlg_memory *m)
{
    return m->bytes;
}

enum hlg_memory_kind hlg_memory_kind(const struct hlg_memory *m)
{
    return m->kind;
}

int32_t hlg_memory_device(const struct hlg_memory *m)
{
    return m->device;
}

int hlg_memory_dmabuf(const struct hlg_memory *m)
{
    return m->dmabuf;
}

struct hlg_mem_region hlg_memory_region(const struct hlg_memory *m)
{
    return (struct hlg_mem_region){.base = m->base,
                                   .bytes = m->bytes,
                                   .kind = (uint32_t)m->kind,
                                   .device = m->device,
                                   .dmabuf_fd = m->dmabuf};
}

int hlg_memory_check(const struct hlg_mem_region *region, char *error, size_t error_bytes)
{
    if (region->base == NULL || region->bytes == 0 ||
        region->bytes > UINT64_MAX - (uint64_t)(uintptr_t)region->base) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "a region has no bytes: give the start and size of its memory");
    }
    if (region->kind == HLG_MEMORY_HOST) {
        return 0;
    }
    if (region->kind == HLG_MEMORY_CUDA) {
        return memory_cuda_check(region, error, error_bytes);
    }
    return memory_fail(-HLG_EINVAL, error, error_bytes,
                       "there is no memory of kind %u: use host (1) or cuda (2)", region->kind);
}
