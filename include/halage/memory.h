/*
 * Memory of KV pages that one process makes and another maps. A rank process makes its lane's
 * memory, exports it as a descriptor and sends that to the node's leader, which imports it and moves
 * bytes in and out of it. Host memory is a memfd; CUDA memory is cuMem memory of one GPU, exported as
 * a POSIX descriptor. Functions that take `error` [error_bytes] write one sentence there on failure;
 * it may be NULL with 0 bytes.
 */
#ifndef HALAGE_MEMORY_H
#define HALAGE_MEMORY_H

#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_memory;

/* Where memory is to be made. */
struct hlg_memory_site {
    uint32_t kind;  /* enum hlg_memory_kind */
    int32_t device; /* CUDA: ordinal as this process counts (CUDA_VISIBLE_DEVICES is honoured) */
};

#define HLG_MEMORY_DEVICE_BYTES 16u

/* What goes before a descriptor from a rank to the leader. */
struct hlg_fd_header {
    uint32_t kind;   /* enum hlg_memory_kind */
    uint32_t lane;   /* of the node */
    uint32_t region; /* within the lane, from 0 */
    uint32_t pad;    /* 0 */
    uint64_t bytes;
    /* CUDA: the GPU's UUID, since ordinals differ between processes that see different GPUs; else 0 */
    uint8_t device[HLG_MEMORY_DEVICE_BYTES];
};

/*
 * How many GPUs this process sees (CUDA_VISIBLE_DEVICES is honoured), >= 1: ordinals are below it. As
 * hlg_memory_create(), after fork(). Returns it, or -HLG_EUNSUPPORTED or -HLG_EIO with a sentence.
 */
int hlg_memory_devices(char *error, size_t error_bytes);

#define HLG_MEMORY_BUS_BYTES 32u

/*
 * Where a GPU is on the PCI bus, as hlg_bus_id_read() reads it: what joins CUDA's ordinals with a topology, in whatever
 * order CUDA counts (CUDA_DEVICE_ORDER). As hlg_memory_create(), after fork().
 *
 * device  ordinal as this process counts
 * bus     [HLG_MEMORY_BUS_BYTES]; written on success only
 *
 * Returns 0; -HLG_EINVAL (no such device), -HLG_EUNSUPPORTED or -HLG_EIO with a sentence.
 */
int hlg_memory_bus(int32_t device, char bus[HLG_MEMORY_BUS_BYTES], char *error, size_t error_bytes);

/*
 * Make memory in this process, zeroed. Host memory is mapped shared and cannot be resized by anyone
 * any more (seals), so that no process that holds its descriptor can make another one fault. CUDA
 * memory is made with cuMemCreate, exportable, fit for RDMA where the GPU is, mapped for its own GPU;
 * it needs nothing of the caller's CUDA context and leaves that as it was.
 *
 * site   HLG_MEMORY_CUDA needs a driver and, at build, HALAGE_CUDA
 * bytes  > 0; rounded up to whole pages of the system or the GPU (2 MiB) inside, not in what
 *        hlg_memory_bytes() says
 *
 * Returns 0; -HLG_EINVAL (no such kind, device or size); -HLG_EUNSUPPORTED (no driver, no device, or
 * one that cannot share memory); -HLG_ENOMEM; -HLG_EIO. Release with hlg_memory_release().
 */
int hlg_memory_create(const struct hlg_memory_site *site, uint64_t bytes,
                      struct hlg_memory **memory, char *error, size_t error_bytes);

/*
 * A descriptor that stands for the memory, for hlg_memory_import() in this or another process, and
 * the header that says what it is: kind, bytes and device are filled in, lane and region are 0.
 * The caller closes the descriptor. Returns it, or -HLG_EIO.
 */
int hlg_memory_export(const struct hlg_memory *memory, struct hlg_fd_header *header, char *error,
                      size_t error_bytes);

/*
 * Map memory that another process exported. The descriptor stays the caller's, who may close it
 * afterwards. Foreign data is welcome: of host memory size and seals are checked, and it is sealed
 * where it is not; of CUDA memory the GPU must be one that this process sees.
 *
 * fd      descriptor of hlg_memory_export()
 * header  that came with it; kind, bytes and device are read
 *
 * Returns 0; -HLG_EINVAL when the descriptor is no such memory or holds fewer bytes or could still
 * shrink, or the GPU is not visible here; -HLG_EUNSUPPORTED as for create; -HLG_ENOMEM when it cannot
 * be mapped; -HLG_EIO.
 */
int hlg_memory_import(int fd, const struct hlg_fd_header *header, struct hlg_memory **memory,
                      char *error, size_t error_bytes);

/* Unmaps; takes NULL. The bytes live on while another process maps them or a descriptor is open. */
void hlg_memory_release(struct hlg_memory *memory);

/* First byte. Of CUDA memory a device pointer: see hlg_memory_read(). */
void *hlg_memory_base(const struct hlg_memory *memory);
uint64_t hlg_memory_bytes(const struct hlg_memory *memory);
enum hlg_memory_kind hlg_memory_kind(const struct hlg_memory *memory);
/* CUDA: ordinal as this process counts; host: 0. */
int32_t hlg_memory_device(const struct hlg_memory *memory);
/* A dma-buf of the whole of it, which the memory owns until its release; -1 where there is none. */
int hlg_memory_dmabuf(const struct hlg_memory *memory);
/* All of it as a region for transports and messengers, good until its release. */
struct hlg_mem_region hlg_memory_region(const struct hlg_memory *memory);

/*
 * Copy bytes out of the memory, or into it, whatever its kind: for engines that compute on the CPU,
 * and for tests. Returns when the copy is done.
 *
 * offset  offset + bytes <= hlg_memory_bytes(), else -HLG_EINVAL
 *
 * Returns 0, -HLG_EINVAL or -HLG_EIO. CUDA: a synchronous copy by the driver, some 10 us each.
 */
int hlg_memory_read(const struct hlg_memory *memory, uint64_t offset, void *to, uint64_t bytes);
int hlg_memory_write(struct hlg_memory *memory, uint64_t offset, const void *from, uint64_t bytes);

/*
 * Look at memory that somebody else made before it is registered: CUDA memory must be mapped, of the
 * GPU that the region says, and within one allocation (a range that spans several, as allocators with
 * expandable segments make them, needs a region for each); its start must lie on a page of 4096 bytes.
 *
 * Returns 0, or -HLG_EINVAL, -HLG_EUNSUPPORTED or -HLG_EIO with a sentence.
 */
int hlg_memory_check(const struct hlg_mem_region *region, char *error, size_t error_bytes);

/*
 * Whether writes of NICs into a GPU's memory must be flushed before its kernels may read them, by the
 * device attribute GPU_DIRECT_RDMA_WRITES_ORDERING. Returns 1 or 0, or an error with a sentence:
 * -HLG_EUNSUPPORTED where they must be and the driver cannot.
 */
int hlg_memory_needs_flush(int32_t device, char *error, size_t error_bytes);

/* Flush them: returns when they are visible to the GPU's own kernels. 0, or an error with a sentence. */
int hlg_memory_flush(int32_t device, char *error, size_t error_bytes);

/*
 * Send one descriptor with its header over a connected UNIX stream socket (SCM_RIGHTS). Blocks until
 * the socket takes it. `fd` stays the caller's. Returns 0, or -HLG_EIO.
 */
int hlg_fd_send(int socket, const struct hlg_fd_header *header, int fd);

/*
 * Take one descriptor with its header. Blocks until one comes or the other side closes. The caller
 * closes *fd, which is close-on-exec.
 *
 * Returns 1; 0 at the end of the stream; -HLG_EPROTO when header or descriptor is missing or
 * malformed (any descriptor that came is closed); -HLG_EIO.
 */
int hlg_fd_receive(int socket, struct hlg_fd_header *header, int *fd);

#ifdef __cplusplus
}
#endif

#endif
