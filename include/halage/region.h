/*
 * One range of memory as transports and the messenger see it: where it is and of which kind, so that
 * a provider can register it. What makes such memory is memory.h.
 */
#ifndef HALAGE_REGION_H
#define HALAGE_REGION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum hlg_memory_kind {
    HLG_MEMORY_HOST = 1, /* the CPU reads and writes it */
    HLG_MEMORY_CUDA =
        2, /* of an NVIDIA GPU: `base` is a device pointer, not for the CPU to follow */
};

struct hlg_mem_region {
    void *base;
    uint64_t bytes;
    uint32_t kind;          /* enum hlg_memory_kind */
    int32_t device;         /* CUDA: ordinal as this process counts; else 0 */
    int32_t dmabuf_fd;      /* a dma-buf of it, the caller's, open while it is registered; -1: none.
                               Not looked at for host memory */
    uint64_t dmabuf_offset; /* of `base` in that dma-buf */
};

/* Host memory as a region. */
#ifdef __cplusplus
#define HLG_MEM_HOST(start, size) (hlg_mem_region{(start), (size), HLG_MEMORY_HOST, 0, -1, 0})
#else
#define HLG_MEM_HOST(start, size) \
    ((struct hlg_mem_region){     \
        .base = (start), .bytes = (size), .kind = HLG_MEMORY_HOST, .dmabuf_fd = -1})
#endif

#ifdef __cplusplus
}
#endif

#endif
