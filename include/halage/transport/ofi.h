/*
 * Endpoints over libfabric (1.17 or newer). Memory of GPUs is registered where config.device_memory asks
 * for it and the provider takes it (CUDA interface; dma-buf with libfabric 1.20); that has never been run
 * on a GPU. Other providers need the staged path (staged.h).
 *
 * A fabric gives endpoints of one provider. Each endpoint has a domain, a completion queue, an
 * address vector and registrations of its own, so that closing it fences all that it exposed.
 */
#ifndef HALAGE_TRANSPORT_OFI_H
#define HALAGE_TRANSPORT_OFI_H

#include "halage/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HLG_OFI_PROVIDERS_MAX 8u

/* Numbers that are 0 take their defaults. Read during hlg_ofi_open, not kept. */
struct hlg_ofi_config {
    /* "auto", "tcp" (native RDM over TCP, which libfabric calls net before 1.18), or libfabric's own
     * name: net, tcp;ofi_rxm, shm, sockets, verbs;ofi_rxm, efa. NULL: auto. */
    const char *provider;
    const char *node; /* IP address to bind to, if not shm or efa; NULL: 127.0.0.1 where
                                 one is needed */
    uint32_t port;    /* first TCP port that endpoints bind to, if they do; each takes the next
                                 one that is free, of 1024; 0: any */
    const char *
        devices; /* NICs to use, with commas between, in turn: names of libfabric or of the RDMA device, or bus
                            ids; NULL: all of the provider */
    /* [lane_count] NICs of each lane, named as in `devices`: its rails take them in this order, and again from the first
       where they are fewer; NULL entries, and lanes beyond lane_count, take all in turn. NULL: all lanes do. */
    const char *const *lane_devices;
    uint32_t lane_count;
    uint32_t rails;           /* endpoints of each lane; 1 */
    uint32_t pieces_max;      /* pieces in flight of one endpoint; 256 */
    uint32_t peer_pieces_max; /* of these, to one peer; 64 */
    uint32_t cq_depth;        /* immediates that may wait unread; 4096 */
    uint32_t peers_max;       /* of one endpoint; 64 */
    uint32_t mems_max;        /* registrations of one endpoint; 1024 */
    bool device_memory; /* memory of GPUs will be registered: ask for FI_HMEM. Where the provider
                                 has it not, caps.device_memory says so */
    bool unmerged;      /* pages that follow one another are written one by one */
    hlg_time stall_ns;  /* refusal after which a peer is down; 2 s */
    /* Takes one sentence, lower case and without a newline: what auto chose and why, and the first
     * error of each peer. Called on the thread that calls in. NULL: dropped. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
};

/* A provider that this machine can use. */
struct hlg_ofi_provider {
    char name[16];        /* libfabric's */
    uint32_t domains_max; /* fence domains that are affordable */
    bool measured;        /* domains_max and behaviour were measured, not read */
    bool placed;          /* see struct hlg_transport_caps */
};

/*
 * Choose a provider and make a fabric of it.
 *
 * config  see above
 * fabric  the fabric; hlg_ofi_close frees it, after the last of its endpoints was freed
 * error   [error_bytes] a sentence on failure; untouched on success
 *
 * Opens one endpoint on trial, to learn what fabric->query tells. A provider that is named and
 * not there is an error, never replaced by another. Sets, before libfabric starts, those of its
 * environment variables that this backend needs and the user did not set (docs/transport.md), so
 * call it first while the process has one thread.
 *
 * The endpoints judge stall_ns when they are offered a write: a peer is down once it took nothing
 * and completed nothing between two refusals that lie stall_ns apart. Writes to it then give
 * -HLG_EPEER until it is closed.
 *
 * Returns 0, -HLG_EINVAL (no such provider or port), -HLG_EIO or -HLG_ENOMEM.
 */
int hlg_ofi_open(const struct hlg_ofi_config *config, struct hlg_fabric **fabric, char *error,
                 size_t error_bytes);

/* Frees a fabric, after the last of its endpoints was freed. Takes NULL. */
void hlg_ofi_close(struct hlg_fabric *fabric);

/*
 * List the providers that can be used here, the preferred first.
 *
 * node       as in struct hlg_ofi_config
 * providers  [capacity], HLG_OFI_PROVIDERS_MAX suffices
 *
 * Returns how many were filled in. Cost: the first call some 0.1 s, which libfabric takes to start.
 */
uint32_t hlg_ofi_list(const char *node, struct hlg_ofi_provider *providers, uint32_t capacity);

struct hlg_ofi_version {
    uint32_t major;
    uint32_t minor;
};

/* Version of the libfabric that runs, whatever halage was built with; 0.0 if it was built without any. */
struct hlg_ofi_version hlg_ofi_version(void);

/* The first libfabric that a provider works with: 0.0 for any, also of a name that is none. hlg_ofi_open() refuses
 * an older one, auto passes it over and says so, and hlg_ofi_list() leaves it out. */
struct hlg_ofi_version hlg_ofi_version_min(const char *provider);

/* A device that a provider can use. */
struct hlg_ofi_device {
    char name[64]; /* libfabric's: "rdmap79s0-rdm", "mlx5_0", "eth0" */
    char provider[32];
    bool on_bus; /* PCI; else the rest is 0 */
    uint16_t domain;
    uint8_t bus;
    uint8_t slot;
    uint8_t function;
};

/* List the devices of all providers that can be used here, the preferred provider's first. Returns how many were filled
 * in. Cost: as hlg_ofi_list(). */
uint32_t hlg_ofi_devices(const char *node, struct hlg_ofi_device *devices, uint32_t capacity);

#ifdef __cplusplus
}
#endif

#endif
