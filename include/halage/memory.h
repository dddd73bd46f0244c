/*
 * Memory of KV pages that one process makes and another maps. A rank process makes its lane's
 * memory, exports it as a descriptor and sends that to the node's leader, which imports it and moves
 * bytes in and out of it. Host memory is a memfd; the calls are cut so that device memory fits behind
 * them, as cuMemExportToShareableHandle and cuMemImportFromShareableHandle do the same.
 */
#ifndef HALAGE_MEMORY_H
#define HALAGE_MEMORY_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum hlg_memory_kind {
    HLG_MEMORY_HOST = 1, /* memfd, mapped shared, zeroed */
};

struct hlg_memory;

/*
 * Make host memory in this process, zeroed, mapped shared. It cannot be resized by anyone any more
 * (seals), so that no process that holds its descriptor can make another one fault.
 *
 * bytes  > 0; rounded up to whole system pages inside, not in what hlg_memory_bytes() says
 *
 * Returns 0, -HLG_EINVAL, -HLG_ENOMEM or -HLG_EIO. Release with hlg_memory_release().
 */
int hlg_memory_create(uint64_t bytes, struct hlg_memory **memory);

/*
 * A descriptor that stands for the memory, for hlg_memory_import() in this or another process. The
 * caller closes it. Returns it, or -HLG_EIO.
 */
int hlg_memory_export(const struct hlg_memory *memory);

/*
 * Map memory that another process exported. The descriptor stays the caller's, who may close it
 * afterwards. Foreign data is welcome: size and seals are checked, and sealed where they are not.
 *
 * fd     descriptor of hlg_memory_export()
 * bytes  that the exporter says it has, > 0
 *
 * Returns 0; -HLG_EINVAL when the descriptor is no such memory or holds fewer bytes or could still
 * shrink; -HLG_ENOMEM when it cannot be mapped.
 */
int hlg_memory_import(int fd, uint64_t bytes, struct hlg_memory **memory);

/* Unmaps. The bytes live on while another process maps them or a descriptor is open. */
void hlg_memory_release(struct hlg_memory *memory);

void *hlg_memory_base(const struct hlg_memory *memory);
uint64_t hlg_memory_bytes(const struct hlg_memory *memory);
enum hlg_memory_kind hlg_memory_kind(const struct hlg_memory *memory);

/* What goes before a descriptor from a rank to the leader. */
struct hlg_fd_header {
    uint32_t kind;   /* enum hlg_memory_kind */
    uint32_t lane;   /* of the node */
    uint32_t region; /* within the lane, from 0 */
    uint32_t pad;    /* 0 */
    uint64_t bytes;
};

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
