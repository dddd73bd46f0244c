/* A build without CUDA: each call says so. */
#include "internal.h"

static int absent(char *error, size_t error_bytes)
{
    return memory_fail(
        -HLG_EUNSUPPORTED, error, error_bytes,
        "built without CUDA memory; configure with -DHALAGE_CUDA=ON, or use memory of "
        "kind host");
}

int hlg_memory_devices(char *error, size_t error_bytes)
{
    return absent(error, error_bytes);
}

int hlg_memory_bus(int32_t device, char bus[HLG_MEMORY_BUS_BYTES], char *error, size_t error_bytes)
{
    (void)device;
    (void)bus;
    return absent(error, error_bytes);
}

int memory_cuda_create(struct hlg_memory *m, char *error, size_t error_bytes)
{
    (void)m;
    return absent(error, error_bytes);
}

int memory_cuda_import(struct hlg_memory *m, int fd, char *error, size_t error_bytes)
{
    (void)m;
    (void)fd;
    return absent(error, error_bytes);
}

/* None of the others can have been made. */
int memory_cuda_export(const struct hlg_memory *m, char *error, size_t error_bytes)
{
    (void)m;
    return absent(error, error_bytes);
}

void memory_cuda_release(struct hlg_memory *m)
{
    (void)m;
}

int memory_cuda_read(const struct hlg_memory *m, uint64_t offset, void *to, uint64_t bytes)
{
    (void)m;
    (void)offset;
    (void)to;
    (void)bytes;
    return -HLG_EUNSUPPORTED;
}

int memory_cuda_write(struct hlg_memory *m, uint64_t offset, const void *from, uint64_t bytes)
{
    (void)m;
    (void)offset;
    (void)from;
    (void)bytes;
    return -HLG_EUNSUPPORTED;
}

int memory_cuda_check(const struct hlg_mem_region *region, char *error, size_t error_bytes)
{
    (void)region;
    return absent(error, error_bytes);
}

int hlg_memory_needs_flush(int32_t device, char *error, size_t error_bytes)
{
    (void)device;
    return absent(error, error_bytes);
}

int hlg_memory_flush(int32_t device, char *error, size_t error_bytes)
{
    (void)device;
    return absent(error, error_bytes);
}
