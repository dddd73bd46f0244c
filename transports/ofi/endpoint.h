/* One endpoint of the libfabric backend: endpoint.c sets it up and down, progress.c moves bytes. */
#ifndef OFI_ENDPOINT_H
#define OFI_ENDPOINT_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "halage/transport/ofi.h"
#include "provider.h"

enum ofi_piece_state {
    OFI_PIECE_FREE = 0,
    OFI_PIECE_POSTED,
    OFI_PIECE_OVER, /* only while closing: completed, not yet reported */
};

/* A write on its way. libfabric gets its address as the operation's context. */
struct ofi_piece {
    struct fi_context2 provider; /* first: scratch of the provider until the completion */
    struct ofi_piece *next_free;
    uint64_t owner; /* ofi_owner(): operation and peer, compared at once */
    uint32_t state; /* enum ofi_piece_state */
    int32_t status;
    uint64_t pad[5];
};

_Static_assert((sizeof(struct ofi_piece) & (sizeof(struct ofi_piece) - 1)) == 0,
               "a power of two: each completion's context is divided by it");

static inline uint64_t ofi_owner(hlg_op_id op, uint32_t peer)
{
    return (uint64_t)peer << 32 | op;
}

enum ofi_peer_state {
    OFI_PEER_FREE = 0,
    OFI_PEER_OPEN,
    OFI_PEER_CLOSING, /* closed by the user; the slot is free once nothing is outstanding */
};

struct ofi_peer {
    fi_addr_t address;
    uint32_t state; /* enum ofi_peer_state */
    uint32_t outstanding;
    hlg_time refused_first; /* HLG_TIME_NEVER: not refused since it last took or completed one */
    hlg_time refused_last;
    bool down;
    bool down_untold;
    bool logged;
};

struct ofi_mem {
    struct fid_mr *mr; /* NULL: free slot */
    uint8_t *base;
    uint64_t bytes;
    uint64_t key;
};

#define OFI_STASH 64u

struct ofi_fabric {
    struct hlg_fabric fabric;
    const struct ofi_provider *provider;
    struct fi_info *infos; /* one entry a device */
    uint32_t info_count;
    uint32_t
        *picks; /* [config.lane_count][rails] device of each lane and rail; HLG_NONE: in turn */
    struct hlg_ofi_config config; /* defaults filled in; the strings are gone */
    struct hlg_transport_caps caps;
};

struct ofi_endpoint {
    struct hlg_transport transport;
    const struct ofi_fabric *owner;
    const struct fi_info *info;
    struct fi_info *bound; /* `info` where it names a port of ours; NULL: any port */
    struct hlg_transport_caps caps;

    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    int wake_fd;
    int epoll_fd;       /* over wake_fd and the completion queue; -1: not pollable */
    const char *remedy; /* of what failed while it was opened; NULL: none is known */
    bool closed;
    bool stray_logged;

    struct ofi_piece *pieces; /* [caps.pieces_max] */
    size_t pieces_bytes;
    struct ofi_piece *free; /* first of the free ones, NULL */
    uint32_t outstanding;
    struct hlg_transport_event *stash; /* [OFI_STASH] what write has reaped, for the next poll */
    uint32_t stashed;
    uint32_t drain_next; /* after close: first piece not yet reported */
    uint32_t down_untold;

    struct ofi_peer *peers; /* [config.peers_max] */
    struct ofi_mem *mems;   /* [config.mems_max] */
};

static inline struct ofi_endpoint *ofi_endpoint_of(struct hlg_transport *t)
{
    return (struct ofi_endpoint *)t;
}

/* Open an endpoint on a device, on the first free port from `port` on (0: any). On failure says in
 * `error` which step failed and why. */
int ofi_endpoint_open(const struct ofi_fabric *owner, const struct fi_info *info, uint32_t port,
                      struct ofi_endpoint **out, char *error, size_t error_bytes);

/* Register memory for what `access` says, FI_WRITE and the like; endpoint's close releases it. */
int ofi_mem_register(struct ofi_endpoint *e, const struct hlg_mem_region *region, uint64_t access,
                     hlg_mem *mem);

/* fabric.c: an endpoint on the device of a lane's rail. Says in the log why it cannot be had. */
int ofi_fabric_open(const struct ofi_fabric *f, uint32_t lane, uint32_t rail,
                    struct ofi_endpoint **out);

/* sentinel.c */
int ofi_sentinel_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                      const struct hlg_mem_region *region, struct hlg_sentinel **out);

__attribute__((format(printf, 2, 3))) void ofi_log(const struct ofi_fabric *owner,
                                                   const char *format, ...);

/* progress.c */
int64_t ofi_write(struct hlg_transport *t, const struct hlg_paged_write *write);
int ofi_poll(struct hlg_transport *t, struct hlg_transport_event *events, uint32_t capacity);
int ofi_wait_fd(struct hlg_transport *t);
void ofi_wake(struct hlg_transport *t);
hlg_time ofi_now(struct hlg_transport *t);

/* Read completions for the last time and mark every posted piece as over. */
void ofi_settle_before_close(struct ofi_endpoint *e);

/* Read the completion queue until nothing more comes, and forget what comes. */
void ofi_empty_queue(struct ofi_endpoint *e);

/* Give the address back once the peer is closed and nothing is under way to it. */
void ofi_peer_forget(struct ofi_endpoint *e, struct ofi_peer *peer);

#endif
