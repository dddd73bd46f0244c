/*
 * The transport contract. One struct hlg_transport is one endpoint of one rail in one fence domain:
 * it moves KV bytes and nothing else. tests/conformance checks this page line by line over every
 * backend and provider.
 *
 * 1. `write` takes a prefix of the pieces offered and says how many. 0 means: not that peer, not now;
 *    other peers are unaffected. A peer refused for stall_ns is reported PEER_DOWN. An accepted piece
 *    completes exactly once: DONE_WRITE reports add up, per operation, to what was taken, also when
 *    the peer dies, also at close (status -HLG_ECANCELED).
 * 2. An IMM event says that the bytes of those writes are readable here (with a flusher: by the device
 *    once that is done) and are not placed again. It
 *    says nothing of any other write: writes are unordered. DONE_WRITE without error means that the
 *    IMM comes unless the target dies. Nothing is zero bytes long.
 * 3. DONE_WRITE without error means placed at the target (caps.placed) or merely acknowledged.
 *    DONE_WRITE and the target's IMM come in either order.
 * 4. `now` is the only clock above this line. One thread per transport, but for `wake`. Nothing is
 *    allocated after the last registration and peer_open.
 * 5. After `close` nothing lands in memory that this endpoint exposed, and it reads no more of ours;
 *    close is bounded in time. What it wrote may still land at a target whose endpoint is open, also
 *    when DONE_WRITE reported it failed: only the target's own close, its IMM, or a DONE_WRITE without
 *    error on a placed transport, says that it will not. After peer_close no new write goes to that peer;
 *    those under way complete.
 * 6. What differs between backends is data in struct hlg_transport_caps.
 */
#ifndef HALAGE_TRANSPORT_H
#define HALAGE_TRANSPORT_H

#include "flush.h"
#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hlg_transport_caps {
    char provider[16];    /* the name that the backend itself uses, zero padded */
    uint32_t domains_max; /* fence domains that are affordable */
    uint32_t pieces_max;  /* pieces that may be in flight at a time */
    uint32_t cq_depth;    /* immediates that may wait unread */
    uint64_t piece_bytes_max;
    uint64_t merge_bytes_max; /* pages that follow one another are worth writing at once, up to so
                                 many bytes; 0: not at all */
    bool placed;              /* DONE_WRITE means placed, not just acknowledged */
    bool pollable;            /* wait_fd gives a descriptor that wakes on progress */
    bool reachable;           /* other hosts can write to an endpoint, if they have its keys */
    bool device_memory;       /* mem_register takes HLG_MEMORY_CUDA */
    hlg_time stall_ns;        /* see 1 */
};

/* A registration of ours, as this endpoint sees it. Index into the transport's own table. */
typedef uint32_t hlg_mem;

struct hlg_mem_export {
    uint64_t address; /* what a peer's write names as the first byte */
    uint64_t key;
};

/* Pieces of one slice over pages, with addresses resolved: piece i moves `bytes` bytes from
 *   local  + source_pages[i / count] * local_stride  + source_offset + (i % count) * source_stride
 * to
 *   remote + target_pages[i / count] * remote_stride + target_offset + (i % count) * target_stride
 * `local` lies in registration mem. The arrays live until the operation's last DONE_WRITE. */
struct hlg_paged_write {
    hlg_op_id op;
    uint32_t peer; /* what peer_open returned */
    hlg_mem mem;
    uint32_t imm;
    uint8_t *local;
    uint64_t local_stride;
    uint64_t remote;
    uint64_t remote_key;
    uint64_t remote_stride;
    const uint32_t *source_pages;
    const uint32_t *target_pages;
    uint32_t bytes;
    uint32_t count;
    uint32_t source_offset;
    uint32_t target_offset;
    uint32_t source_stride;
    uint32_t target_stride;
    uint32_t piece_begin;
    uint32_t piece_limit;
};

/* Where piece `piece` of a paged write comes from, and what it goes to: an address or offset of the target's. */
static inline uint8_t *hlg_paged_write_source(const struct hlg_paged_write *w, uint32_t piece)
{
    return w->local + w->source_pages[piece / w->count] * w->local_stride + w->source_offset +
           (uint64_t)(piece % w->count) * w->source_stride;
}
static inline uint64_t hlg_paged_write_target(const struct hlg_paged_write *w, uint32_t piece)
{
    return w->remote + w->target_pages[piece / w->count] * w->remote_stride + w->target_offset +
           (uint64_t)(piece % w->count) * w->target_stride;
}

enum hlg_transport_event_kind {
    HLG_TRANSPORT_DONE_WRITE = 1,
    HLG_TRANSPORT_IMM,
    HLG_TRANSPORT_PEER_DOWN,
};

struct hlg_transport_done {
    hlg_op_id op;
    uint32_t done;   /* pieces that completed without error */
    uint32_t failed; /* others; done + failed adds up to what was taken */
    int32_t status;  /* negated enum hlg_error of the first failure */
};

struct hlg_transport_imm {
    uint32_t imm; /* slot and generation are those of every one summed here; fence marks are
                     summed apart, and then the weight is HLG_IMM_WEIGHT_MARK */
    uint32_t pieces;
    uint32_t immediates;
};

struct hlg_transport_event {
    uint32_t kind;
    union {
        struct hlg_transport_done done;
        struct hlg_transport_imm imm;
        uint32_t peer; /* PEER_DOWN */
    };
};

struct hlg_transport;

struct hlg_transport_ops {
    void (*query)(const struct hlg_transport *t, struct hlg_transport_caps *caps);
    hlg_time (*now)(struct hlg_transport *t);
    /* Our own address. Returns its bytes, <= capacity, or an error. */
    int (*address)(struct hlg_transport *t, uint8_t *address, uint32_t capacity);
    /* Returns the peer's number, >= 0, or an error. Peers' numbers are small and reused. */
    int (*peer_open)(struct hlg_transport *t, const uint8_t *address, uint32_t bytes);
    int (*peer_close)(struct hlg_transport *t, uint32_t peer);
    /* Registers memory for writes out of it and, from peers, into it. The region is read, not kept. A
     * kind that this endpoint cannot move: -HLG_EUNSUPPORTED. */
    int (*mem_register)(struct hlg_transport *t, const struct hlg_mem_region *region, hlg_mem *mem);
    int (*mem_export)(struct hlg_transport *t, hlg_mem mem, struct hlg_mem_export *out);
    int (*mem_release)(struct hlg_transport *t, hlg_mem mem);
    /* Returns the pieces taken, from piece_begin on, or an error (nothing was taken). */
    int64_t (*write)(struct hlg_transport *t, const struct hlg_paged_write *write);
    /* Progress. Returns how many of `capacity` events were filled in. */
    int (*poll)(struct hlg_transport *t, struct hlg_transport_event *events, uint32_t capacity);
    /* Whether sleeping on the returned descriptor is safe now: the descriptor, or an error when there
     * is work already or no descriptor (caps.pollable says). */
    int (*wait_fd)(struct hlg_transport *t);
    /* Makes a wait_fd sleeper return; any thread. */
    void (*wake)(struct hlg_transport *t);
    /* Close the endpoint. Its remaining DONE_WRITEs can be polled afterwards, until free.
     * Returns 0 when nothing can land any more, else an error. */
    int (*close)(struct hlg_transport *t);
    void (*free)(struct hlg_transport *t);
};

/* First member of every backend's own struct. */
struct hlg_transport {
    const struct hlg_transport_ops *ops;
    uint32_t tag; /* the caller's own; backends leave it alone */
};

/* What a fabric copies between GPUs and host memory; see staged.h. */
struct hlg_copy_stats {
    uint64_t bytes_out;  /* copied from GPUs, to be sent */
    uint64_t bytes_in;   /* copied to GPUs, after they came */
    uint64_t copies_out; /* calls of the driver for that: runs of pages that lie together are one */
    uint64_t copies_in;
    uint64_t waits;        /* offers of which nothing was taken for want of a slot */
    uint64_t pinned_bytes; /* of host memory that it holds now */
};

struct hlg_channel;

/* One of the two; the other is NULL. */
struct hlg_ready {
    struct hlg_transport *transport; /* has something to poll, or room again */
    struct hlg_channel *channel;     /* has something to receive, or room again */
};

/*
 * Makes endpoints: one a backend and node, given to the driver, which opens one endpoint for each
 * (lane, rail, fence domain).
 */
struct hlg_fabric {
    /*
     * NULL where a backend cannot tell: then all must be looked at. Pops what has news for this node:
     * an endpoint, or a channel where the backend makes those too (then it must make all of them).
     * Each is listed once at a time; one that poll or receive leaves something in is listed again.
     * Returns false when there is none.
     */
    bool (*ready)(struct hlg_fabric *fabric, struct hlg_ready *ready);
    int (*open)(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                struct hlg_transport **out);
    /* Capabilities of the endpoints that open would make. */
    void (*query)(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps);
    /* The clock of those endpoints, which runs before the first is open. */
    hlg_time (*now)(struct hlg_fabric *fabric);
    uint32_t rails; /* rails of each lane */
    /* Looks at a region before any endpoint opens, in the thread that starts the node: takes what moving
     * it needs, or refuses with a sentence. NULL: mem_register takes what caps say. */
    int (*prepare)(struct hlg_fabric *fabric, const struct hlg_mem_region *region, char *error,
                   size_t error_bytes);
    /* What makes landed bytes visible to the device; then the decode machine must ask for FLUSH. NULL:
     * they are visible when their IMM is polled. */
    struct hlg_flusher *flusher;
    /* NULL: it copies nothing. As of now; by the thread that drives it, or any after that ended. */
    void (*copies)(const struct hlg_fabric *fabric, struct hlg_copy_stats *stats);
    /* What flush policy READ needs; NULL: not offered. Opens a sentinel of `region` (read, not kept) through the NIC
     * of (lane, rail). No peer can learn its address or keys. Returns 0 or an error. */
    int (*sentinel_open)(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         const struct hlg_mem_region *region, struct hlg_sentinel **out);
};

#ifdef __cplusplus
}
#endif

#endif
