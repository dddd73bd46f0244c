/* What the files of memory share: memory.c is the interface, host.c and cuda.c make the kinds. */
#ifndef HALAGE_MEMORY_INTERNAL_H
#define HALAGE_MEMORY_INTERNAL_H

#include <halage/memory.h>

struct hlg_memory {
    enum hlg_memory_kind kind;
    int32_t device;
    void *base;
    uint64_t bytes;
    int fd;     /* host: the memfd; else -1 */
    int dmabuf; /* -1: none */
    uint8_t uuid[HLG_MEMORY_DEVICE_BYTES];
    /* CUDA: what there is of it, so that each failure undoes just that */
    void *context;     /* primary, retained; NULL: none */
    int cuda_device;   /* the driver's own name of the GPU */
    uint64_t handle;   /* of the allocation, while has_handle */
    uint64_t reserved; /* bytes of addresses, whole granules; 0: none */
    bool has_handle;
    bool mapped;
};

/* Fill in what create and import left zero (descriptors: -1). On failure all is as before the call,
 * and a sentence in `error`. */
int memory_host_create(struct hlg_memory *m, char *error, size_t error_bytes);
int memory_host_import(struct hlg_memory *m, int fd, char *error, size_t error_bytes);
int memory_host_export(const struct hlg_memory *m, char *error, size_t error_bytes);
void memory_host_release(struct hlg_memory *m);

int memory_cuda_create(struct hlg_memory *m, char *error, size_t error_bytes);
/* m->uuid says the GPU; its ordinal is filled in. */
int memory_cuda_import(struct hlg_memory *m, int fd, char *error, size_t error_bytes);
int memory_cuda_export(const struct hlg_memory *m, char *error, size_t error_bytes);
void memory_cuda_release(struct hlg_memory *m);
int memory_cuda_read(const struct hlg_memory *m, uint64_t offset, void *to, uint64_t bytes);
int memory_cuda_write(struct hlg_memory *m, uint64_t offset, const void *from, uint64_t bytes);
int memory_cuda_check(const struct hlg_mem_region *region, char *error, size_t error_bytes);

/* Write a sentence for the caller. Returns `code`. */
__attribute__((format(printf, 4, 5))) int memory_fail(int code, char *error, size_t error_bytes,
                                                      const char *format, ...);

#endif
