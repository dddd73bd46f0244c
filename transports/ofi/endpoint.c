#define _GNU_SOURCE
#include "endpoint.h"

#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* A random key may meet one that exists; more than a few times in a row is another error. */
#define KEY_TRIES 4

/* Ports that an endpoint tries from the one that was asked for on. */
#define PORTS_MAX 1024u

/* Longest write, if the device takes no less: efa ends the process on about 1 GB with an immediate. */
#define PIECE_BYTES_MAX (512ull << 20)

/* Fewest immediates that a completion queue must have room for. */
#define CQ_DEPTH_MIN 64u

void ofi_log(const struct ofi_fabric *owner, const char *format, ...)
{
    char sentence[512];
    va_list arguments;

    if (owner->config.log == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    owner->config.log(owner->config.log_context, sentence);
}

static void endpoint_query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    *caps = ((const struct ofi_endpoint *)t)->caps;
}

static int endpoint_address(struct hlg_transport *t, uint8_t *address, uint32_t capacity)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);
    size_t bytes = capacity;

    if (e->closed) {
        return -HLG_ESTATE;
    }
    const int rc = fi_getname(&e->ep->fid, address, &bytes);
    if (rc != 0 || bytes > capacity) {
        return rc == -FI_ETOOSMALL || bytes > capacity ? -HLG_ELIMIT : -HLG_EIO;
    }
    return (int)hlg_u32(bytes);
}

/* The address is foreign data: libfabric takes a pointer without a length and must not overrun. */
static bool address_is_plausible(struct ofi_endpoint *e, const uint8_t *address, uint32_t bytes)
{
    uint8_t own[HLG_ADDRESS_BYTES_MAX];
    const int own_bytes = endpoint_address(&e->transport, own, sizeof own);

    if (own_bytes <= 0 || bytes == 0 || bytes > HLG_ADDRESS_BYTES_MAX) {
        return false;
    }
    if (e->info->addr_format == FI_ADDR_STR) {
        return address[bytes - 1] == 0 && strncmp((const char *)address, "fi_", 3) == 0;
    }
    const bool sockaddr = e->info->addr_format == FI_SOCKADDR_IN ||
                          e->info->addr_format == FI_SOCKADDR_IN6 ||
                          e->info->addr_format == FI_SOCKADDR;
    return bytes == (uint32_t)own_bytes && (!sockaddr || memcmp(address, own, 2) == 0);
}

static int endpoint_peer_open(struct hlg_transport *t, const uint8_t *address, uint32_t bytes)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);
    uint32_t slot = 0;

    if (e->closed) {
        return -HLG_ESTATE;
    }
    if (!address_is_plausible(e, address, bytes)) {
        return -HLG_EPROTO;
    }
    while (slot < e->owner->config.peers_max && e->peers[slot].state != OFI_PEER_FREE) {
        slot++;
    }
    if (slot == e->owner->config.peers_max) {
        return -HLG_ELIMIT;
    }
    fi_addr_t inserted = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(e->av, address, 1, &inserted, 0, NULL) != 1) {
        return -HLG_EIO;
    }
    e->peers[slot] = (struct ofi_peer){
        .address = inserted,
        .state = OFI_PEER_OPEN,
        .refused_first = HLG_TIME_NEVER,
    };
    return (int)slot;
}

void ofi_peer_forget(struct ofi_endpoint *e, struct ofi_peer *peer)
{
    HLG_ASSERT(peer->state == OFI_PEER_CLOSING);
    if (peer->outstanding > 0) {
        return;
    }
    if (!e->closed) {
        (void)fi_av_remove(e->av, &peer->address, 1, 0);
    }
    *peer = (struct ofi_peer){.state = OFI_PEER_FREE};
}

static int endpoint_peer_close(struct hlg_transport *t, uint32_t number)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);

    if (number >= e->owner->config.peers_max || e->peers[number].state != OFI_PEER_OPEN) {
        return -HLG_EPEER;
    }
    struct ofi_peer *peer = &e->peers[number];
    if (peer->down_untold) {
        peer->down_untold = false;
        e->down_untold--;
    }
    peer->state = OFI_PEER_CLOSING;
    ofi_peer_forget(e, peer);
    return 0;
}

static uint64_t draw_key(const struct fi_info *info)
{
    const size_t bytes = info->domain_attr->mr_key_size;
    uint64_t key = 0;

    HLG_ASSERT(getrandom(&key, sizeof key, 0) == (ssize_t)sizeof key);
    return bytes >= sizeof key ? key : key & ((UINT64_C(1) << (8 * bytes)) - 1);
}

/*
 * Memory of a GPU, by its dma-buf where there is one and both the headers and the library know such
 * (libfabric 1.20), else by its address, which needs a peer-memory module in the kernel. The device is
 * named, or the provider would ask CUDA for it.
 */
static int register_gpu(struct ofi_endpoint *e, const struct hlg_mem_region *region,
                        uint64_t access, uint64_t key, struct fid_mr **mr)
{
    const struct iovec range = {.iov_base = region->base, .iov_len = (size_t)region->bytes};
    struct fi_mr_attr attr = {
        .mr_iov = &range,
        .iov_count = 1,
        .access = access,
        .requested_key = key,
        .iface = FI_HMEM_CUDA,
        .device = {.cuda = region->device},
    };

#ifdef FI_MR_DMABUF
    const struct fi_mr_dmabuf dmabuf = {
        .fd = region->dmabuf_fd,
        .offset = region->dmabuf_offset,
        .len = (size_t)region->bytes,
        .base_addr = (uint8_t *)region->base - region->dmabuf_offset,
    };
    if (region->dmabuf_fd >= 0 && FI_VERSION_GE(fi_version(), FI_VERSION(1, 20))) {
        attr.dmabuf = &dmabuf;
        const int rc = fi_mr_regattr(e->domain, &attr, FI_MR_DMABUF, mr);
        if (rc == 0 || (rc != -FI_EOPNOTSUPP && rc != -FI_ENOSYS)) {
            return rc;
        }
        attr.mr_iov = &range;
    }
#endif
    return fi_mr_regattr(e->domain, &attr, 0, mr);
}

static int register_once(struct ofi_endpoint *e, const struct hlg_mem_region *region,
                         uint64_t access, uint64_t key, struct fid_mr **mr)
{
    struct fid_mr *made = NULL;

    int rc = region->kind == HLG_MEMORY_CUDA ? register_gpu(e, region, access, key, &made)
                                             : fi_mr_reg(e->domain, region->base, region->bytes,
                                                         access, 0, key, 0, &made, NULL);
    if (rc != 0) {
        return rc;
    }
    if ((e->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
        rc = fi_mr_bind(made, &e->ep->fid, 0);
        if (rc == 0) {
            rc = fi_mr_enable(made);
        }
        if (rc != 0) {
            (void)fi_close(&made->fid);
            return rc;
        }
    }
    *mr = made;
    return 0;
}

int ofi_mem_register(struct ofi_endpoint *e, const struct hlg_mem_region *region, uint64_t access,
                     hlg_mem *mem)
{
    struct fid_mr *mr = NULL;
    uint32_t slot = 0;
    int rc = -FI_ENOKEY;

    if (e->closed) {
        return -HLG_ESTATE;
    }
    if (region->base == NULL || region->bytes == 0) {
        return -HLG_EINVAL;
    }
    if (region->kind != HLG_MEMORY_HOST && !e->caps.device_memory) {
        ofi_log(e->owner,
                "provider %s takes no memory of a GPU: stage it through host memory, or use a "
                "libfabric built with CUDA",
                e->owner->provider->name);
        return -HLG_EUNSUPPORTED;
    }
    while (slot < e->owner->config.mems_max && e->mems[slot].mr != NULL) {
        slot++;
    }
    if (slot == e->owner->config.mems_max) {
        return -HLG_ELIMIT;
    }
    for (int i = 0; i < KEY_TRIES && rc == -FI_ENOKEY; i++) {
        rc = register_once(e, region, access, draw_key(e->info), &mr);
    }
    if (rc != 0) {
        ofi_log(
            e->owner, "registration of %llu bytes failed: %s%s", (unsigned long long)region->bytes,
            fi_strerror(-rc),
            region->kind == HLG_MEMORY_HOST
                ? ""
                : ": memory of a GPU needs dma-buf (Linux 5.12, libfabric 1.20, the open kernel "
                  "modules) or the module nvidia-peermem; else stage it");
        return rc == -FI_ENOMEM ? -HLG_ENOMEM : -HLG_EIO;
    }
    e->mems[slot] = (struct ofi_mem){
        .mr = mr, .base = region->base, .bytes = region->bytes, .key = fi_mr_key(mr)};
    *mem = slot;
    return 0;
}

/* Peers may write what is registered so, and never read it: it may be another request's. */
static int endpoint_mem_register(struct hlg_transport *t, const struct hlg_mem_region *region,
                                 hlg_mem *mem)
{
    return ofi_mem_register(ofi_endpoint_of(t), region, FI_WRITE | FI_REMOTE_WRITE, mem);
}

static int endpoint_mem_export(struct hlg_transport *t, hlg_mem mem, struct hlg_mem_export *out)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);

    if (mem >= e->owner->config.mems_max || e->mems[mem].mr == NULL) {
        return -HLG_EINVAL;
    }
    const bool virtual_address = (e->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    out->address = virtual_address ? (uint64_t)(uintptr_t)e->mems[mem].base : 0;
    out->key = e->mems[mem].key;
    return 0;
}

/* Closing a registration does not revoke it: writes under way may still land. Only close does. */
static int endpoint_mem_release(struct hlg_transport *t, hlg_mem mem)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);

    if (mem >= e->owner->config.mems_max || e->mems[mem].mr == NULL) {
        return e->closed ? 0 : -HLG_EINVAL;
    }
    const int rc = fi_close(&e->mems[mem].mr->fid);
    if (rc != 0) {
        ofi_log(e->owner, "registration could not be closed: %s", fi_strerror(-rc));
        return -HLG_EIO;
    }
    e->mems[mem] = (struct ofi_mem){.mr = NULL};
    return 0;
}

static int close_fid(struct fid *fid)
{
    return fid != NULL ? fi_close(fid) : 0;
}

static int close_mems(struct ofi_endpoint *e)
{
    int first = 0;

    for (uint32_t i = 0; e->mems != NULL && i < e->owner->config.mems_max; i++) {
        const int rc = close_fid(e->mems[i].mr != NULL ? &e->mems[i].mr->fid : NULL);
        first = first != 0 ? first : rc;
        e->mems[i].mr = NULL;
    }
    return first;
}

/*
 * Close what is open, in the order that libfabric wants. Returns its first error.
 *
 * verbs;ofi_rxm up to libfabric 2.6 follows freed memory when it closes a connection of which an
 * immediate is still in its queue (rxm_close_conn() closes, then reads the queue, and posts the
 * buffer again that the immediate took). So its registrations go first, after which no immediate can
 * come any more but those of writes without bytes, and then the queue is emptied.
 */
static int close_fids(struct ofi_endpoint *e)
{
    int first = 0;

    if (e->owner->provider->emptied_first && e->ep != NULL) {
        first = close_mems(e);
        ofi_empty_queue(e);
    }
    const int rc_ep = close_fid(e->ep != NULL ? &e->ep->fid : NULL);
    first = first != 0 ? first : rc_ep;
    const int rc_mems = close_mems(e);
    first = first != 0 ? first : rc_mems;
    struct fid *const rest[] = {
        e->av != NULL ? &e->av->fid : NULL,
        e->cq != NULL ? &e->cq->fid : NULL,
        e->domain != NULL ? &e->domain->fid : NULL,
        e->fabric != NULL ? &e->fabric->fid : NULL,
    };
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        const int rc = close_fid(rest[i]);
        first = first != 0 ? first : rc;
    }
    e->ep = NULL;
    e->av = NULL;
    e->cq = NULL;
    e->domain = NULL;
    e->fabric = NULL;
    return first;
}

static int endpoint_close(struct hlg_transport *t)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);

    if (e->closed) {
        return 0;
    }
    ofi_settle_before_close(e);
    e->closed = true;
    const int rc = close_fids(e);
    if (rc != 0) {
        ofi_log(e->owner, "endpoint could not be closed: %s", fi_strerror(-rc));
        return -HLG_EIO;
    }
    return 0;
}

static void endpoint_free(struct hlg_transport *t)
{
    struct ofi_endpoint *e = ofi_endpoint_of(t);

    (void)endpoint_close(t);
    if (e->epoll_fd >= 0) {
        (void)close(e->epoll_fd);
    }
    if (e->wake_fd >= 0) {
        (void)close(e->wake_fd);
    }
    ofi_infos_free(e->bound);
    free(e->pieces);
    free(e->peers);
    free(e->mems);
    free(e->stash);
    free(e);
}

static const struct hlg_transport_ops endpoint_ops = {
    .query = endpoint_query,
    .now = ofi_now,
    .address = endpoint_address,
    .peer_open = endpoint_peer_open,
    .peer_close = endpoint_peer_close,
    .mem_register = endpoint_mem_register,
    .mem_export = endpoint_mem_export,
    .mem_release = endpoint_mem_release,
    .write = ofi_write,
    .poll = ofi_poll,
    .wait_fd = ofi_wait_fd,
    .wake = ofi_wake,
    .close = endpoint_close,
    .free = endpoint_free,
};

/* libfabric does not tell how deep a queue can be, nor whether it has a descriptor: it is asked for less
 * until it says yes. Windows of immediates follow from the depth that the fabric's trial had, so that no later
 * endpoint may have less: another device's, or one for which memory is short (I8). */
static int open_cq(struct ofi_endpoint *e)
{
    const bool trial = e->owner->caps.cq_depth == 0;
    const uint32_t first = trial ? e->caps.cq_depth : e->owner->caps.cq_depth;
    const uint32_t last = trial ? hlg_min_u32(first, CQ_DEPTH_MIN) : first;
    int rc = -FI_EINVAL;

    for (uint32_t depth = first; depth >= last; depth /= 2) {
        struct fi_cq_attr attr = {
            .size = (size_t)e->caps.pieces_max + depth,
            .format = FI_CQ_FORMAT_DATA,
            .wait_obj = FI_WAIT_FD,
        };
        rc = fi_cq_open(e->domain, &attr, &e->cq, NULL);
        if (rc != 0) {
            attr.wait_obj = FI_WAIT_NONE;
            rc = fi_cq_open(e->domain, &attr, &e->cq, NULL);
        }
        if (rc == 0) {
            e->caps.pollable = attr.wait_obj == FI_WAIT_FD;
            e->caps.cq_depth = depth;
            return 0;
        }
    }
    if (!trial) {
        e->remedy = "the queue of the fabric's first endpoint could be had, and windows are as "
                    "large: lower cq_depth, or raise the limit of locked memory";
    } else if (rc != -FI_ENOMEM) {
        e->remedy =
            "a queue must hold 64 immediates beside pieces_max writes: lower pieces_max, or use "
            "another device";
    }
    return rc;
}

/* Enable the endpoint with the provider's options. Returns what failed, its error in *rc and what to do about it
 * in e->remedy; NULL when all went well. */
static const char *enable(struct ofi_endpoint *e, int *rc)
{
    const struct ofi_option *failed = ofi_options_set(e, rc);

    if (failed == NULL) {
        *rc = fi_enable(e->ep);
        if (*rc != 0) {
            return "fi_enable";
        }
        failed = ofi_options_check(e, rc);
    }
    if (failed == NULL) {
        return NULL;
    }
    e->remedy = failed->remedy;
    return failed->name;
}

/* Returns the libfabric call that failed, its error in *rc; NULL when all went well. */
static const char *open_fids(struct ofi_endpoint *e, int *rc)
{
    struct fi_info *info = (struct fi_info *)(uintptr_t)e->info; /* libfabric knows no const */
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = e->owner->config.peers_max};

    if ((*rc = fi_fabric(info->fabric_attr, &e->fabric, NULL)) != 0) {
        return "fi_fabric";
    }
    if ((*rc = fi_domain(e->fabric, info, &e->domain, NULL)) != 0) {
        return "fi_domain";
    }
    if ((*rc = open_cq(e)) != 0) {
        return "fi_cq_open";
    }
    if ((*rc = fi_av_open(e->domain, &av, &e->av, NULL)) != 0) {
        return "fi_av_open";
    }
    if ((*rc = fi_endpoint(e->domain, info, &e->ep, NULL)) != 0) {
        return "fi_endpoint";
    }
    if ((*rc = fi_ep_bind(e->ep, &e->av->fid, 0)) != 0 ||
        (*rc = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV)) != 0) {
        return "fi_ep_bind";
    }
    return enable(e, rc);
}

/* Let the endpoint bind to a port. Returns whether its addresses have any. */
static bool set_port(struct ofi_endpoint *e, uint32_t port)
{
    struct sockaddr *address = e->bound->src_addr;

    if (address != NULL && address->sa_family == AF_INET) {
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
        return true;
    }
    if (address != NULL && address->sa_family == AF_INET6) {
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
        return true;
    }
    return false;
}

/*
 * Providers share ports with SO_REUSEADDR and more: whether one is free is asked with a socket of our
 * own that does not share. It is closed again, so that another process may take the port meanwhile:
 * then the provider's own error is the answer.
 */
static bool port_is_free(const struct ofi_endpoint *e)
{
    const int fd =
        socket(((struct sockaddr *)e->bound->src_addr)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;

    /* Sessions that ended keep their port for a while (TIME_WAIT): that is no reason to avoid it. */
    const bool free = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                      bind(fd, e->bound->src_addr, (socklen_t)e->bound->src_addrlen) == 0 &&
                      listen(fd, 1) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return free;
}

/* As open_fids(), on the first free port. */
static const char *open_fids_at(struct ofi_endpoint *e, uint32_t port, int *rc)
{
    if (port == 0) {
        return open_fids(e, rc);
    }
    e->bound = fi_dupinfo(e->info);
    if (e->bound == NULL) {
        *rc = -FI_ENOMEM;
        return "fi_dupinfo";
    }
    e->info = e->bound;
    for (uint32_t i = 0; i < PORTS_MAX && port + i <= UINT16_MAX; i++) {
        if (!set_port(e, port + i)) {
            return open_fids(e, rc); /* its addresses know no ports */
        }
        if (port_is_free(e)) {
            return open_fids(e, rc);
        }
    }
    *rc = -FI_EADDRINUSE;
    return "bind";
}

/* One descriptor for two reasons to wake. Without one from the queue there is nothing to sleep on. */
static bool open_descriptors(struct ofi_endpoint *e)
{
    int cq_fd = -1;

    e->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (e->wake_fd < 0) {
        return false;
    }
    if (e->caps.pollable && fi_control(&e->cq->fid, FI_GETWAIT, &cq_fd) != 0) {
        e->caps.pollable = false;
    }
    if (!e->caps.pollable) {
        return true;
    }
    struct epoll_event event = {.events = EPOLLIN};
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return e->epoll_fd >= 0 && epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, e->wake_fd, &event) == 0 &&
           epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, cq_fd, &event) == 0;
}

static void fill_caps(struct ofi_endpoint *e)
{
    const struct hlg_ofi_config *config = &e->owner->config;
    struct hlg_transport_caps *caps = &e->caps;
    const uint64_t tx = e->info->tx_attr->size;
    const uint64_t message = e->info->ep_attr->max_msg_size;

    (void)snprintf(caps->provider, sizeof caps->provider, "%s", e->owner->provider->name);
    caps->domains_max = e->owner->provider->domains_max;
    caps->pieces_max = tx < config->pieces_max ? hlg_u32(tx) : config->pieces_max;
    caps->cq_depth = config->cq_depth;
    caps->piece_bytes_max = hlg_min_u64(message, PIECE_BYTES_MAX);
    caps->merge_bytes_max = config->unmerged ? 0
                                             : hlg_min_u64(ofi_provider_merges(e->owner->provider),
                                                           caps->piece_bytes_max);
    caps->placed = e->owner->provider->placed;
    caps->stall_ns = config->stall_ns;
    caps->device_memory = (e->info->caps & FI_HMEM) != 0;
}

static bool allocate(struct ofi_endpoint *e)
{
    const struct hlg_ofi_config *config = &e->owner->config;

    e->pieces = calloc(e->caps.pieces_max, sizeof *e->pieces);
    e->peers = calloc(config->peers_max, sizeof *e->peers);
    e->mems = calloc(config->mems_max, sizeof *e->mems);
    e->stash = calloc(OFI_STASH, sizeof *e->stash);
    if (e->pieces == NULL || e->peers == NULL || e->mems == NULL || e->stash == NULL) {
        return false;
    }
    e->pieces_bytes = e->caps.pieces_max * sizeof *e->pieces;
    for (uint32_t i = e->caps.pieces_max; i > 0; i--) {
        e->pieces[i - 1].next_free = e->free;
        e->free = &e->pieces[i - 1];
    }
    return true;
}

/* What can be done about an error while an endpoint is opened; NULL: that is not known. */
static const char *remedy_of(const struct ofi_endpoint *e, int rc)
{
    if (e->remedy != NULL) {
        return e->remedy;
    }
    switch (-rc) {
    case FI_EADDRNOTAVAIL:
        return "give an address that this host has";
    case FI_EADDRINUSE:
        return "choose another first port, or any";
    case FI_ENOMEM:
    case FI_ENOSPC:
        return "raise the limit of locked memory (ulimit -l), or lower cq_depth and pieces_max";
    case FI_EMFILE:
        return "raise the limit of open files (ulimit -n)";
    case FI_EACCES:
    case FI_EPERM:
        return "give this process the device's files in /dev/infiniband, and the right to use them";
    default:
        return NULL;
    }
}

int ofi_endpoint_open(const struct ofi_fabric *owner, const struct fi_info *info, uint32_t port,
                      struct ofi_endpoint **out, char *error, size_t error_bytes)
{
    const char *failed = NULL;
    int rc = 0;

    struct ofi_endpoint *e = calloc(1, sizeof *e);
    if (e == NULL) {
        (void)snprintf(error, error_bytes, "out of memory");
        return -HLG_ENOMEM;
    }
    e->transport.ops = &endpoint_ops;
    e->owner = owner;
    e->info = info;
    e->wake_fd = -1;
    e->epoll_fd = -1;
    fill_caps(e);
    if (!allocate(e)) {
        (void)snprintf(error, error_bytes, "out of memory");
        rc = -HLG_ENOMEM;
        goto fail;
    }
    failed = open_fids_at(e, port, &rc);
    if (failed != NULL) {
        const char *remedy = remedy_of(e, rc);
        (void)snprintf(error, error_bytes, "provider %s: %s: %s%s%s", owner->provider->name, failed,
                       fi_strerror(-rc), remedy != NULL ? ": " : "", remedy != NULL ? remedy : "");
        rc = -HLG_EIO;
        goto fail;
    }
    if (!open_descriptors(e)) {
        (void)snprintf(error, error_bytes,
                       "no descriptors left for an endpoint: raise the limit of open files "
                       "(ulimit -n)");
        rc = -HLG_EIO;
        goto fail;
    }
    *out = e;
    return 0;

fail:
    (void)close_fids(e);
    e->closed = true;
    endpoint_free(&e->transport);
    return rc;
}
