#define _GNU_SOURCE /* strdup(), MAP_ANONYMOUS */
#include "nic_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME_BYTES 64u
#define KEY        0x68616c616765u
#define ENTRIES    32u
#define SPIN_NS    50e3 /* as halage spins, and then sleeps */
#define SLEEP_MS   1

struct side {
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *endpoint;
    struct fid_cq *queue;
    struct fid_av *addresses;
    struct fid_mr *registration;
    struct fi_context2 contexts[256]; /* more than are under way */
    uint32_t context_next;
    uint8_t *memory;
    uint64_t peer_base; /* what the peer's offset 0 is called */
    uint64_t peer_key;
    fi_addr_t peer;
};

/* What each side tells the other. */
struct card {
    uint8_t name[NAME_BYTES];
    uint64_t base;
    uint64_t key;
};

static void need(int status, const char *what)
{
    if (status != 0) {
        give_up(what);
    }
}

/* The native TCP provider was called net up to libfabric 1.17. */
static struct fi_info *find(const char *ip)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_info *info = NULL;
    if (hints == NULL) {
        give_up("no memory");
    }
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name =
        strdup(FI_VERSION_LT(fi_version(), FI_VERSION(1, 18)) ? "net" : "tcp");
    need(fi_getinfo(FI_VERSION(1, 17), ip, NULL, FI_SOURCE, hints, &info),
         "libfabric has no native TCP provider here");
    fi_freeinfo(hints);
    return info;
}

static void exchange(struct side *side, const struct fi_info *info, int pair)
{
    struct card own = {.key = fi_mr_key(side->registration)};
    struct card peer;
    size_t bytes = NAME_BYTES;
    if ((info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0) {
        own.base = (uint64_t)(uintptr_t)side->memory;
    }
    need(fi_getname(&side->endpoint->fid, own.name, &bytes), "the endpoint has no address");
    if (write(pair, &own, sizeof own) != (ssize_t)sizeof own ||
        recv(pair, &peer, sizeof peer, MSG_WAITALL) != (ssize_t)sizeof peer) {
        give_up("the other side ended");
    }
    side->peer_base = peer.base;
    side->peer_key = peer.key;
    if (fi_av_insert(side->addresses, peer.name, 1, &side->peer, 0, NULL) != 1) {
        give_up("the peer's address is refused");
    }
}

struct side *side_open(const char *ip, uint64_t bytes, int pair)
{
    struct side *side = calloc(1, sizeof *side);
    struct fi_info *info = find(ip);
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_DATA, .size = 4096, .wait_obj = FI_WAIT_FD};
    struct fi_av_attr addresses = {.type = FI_AV_TABLE};
    if (side == NULL) {
        give_up("no memory");
    }
    need(fi_fabric(info->fabric_attr, &side->fabric, NULL), "no fabric");
    need(fi_domain(side->fabric, info, &side->domain, NULL), "no domain");
    need(fi_cq_open(side->domain, &queue, &side->queue, NULL), "no completion queue");
    need(fi_av_open(side->domain, &addresses, &side->addresses, NULL), "no address vector");
    need(fi_endpoint(side->domain, info, &side->endpoint, NULL), "no endpoint");
    need(fi_ep_bind(side->endpoint, &side->queue->fid, FI_TRANSMIT | FI_RECV), "no queue bound");
    need(fi_ep_bind(side->endpoint, &side->addresses->fid, 0), "no addresses bound");
    need(fi_enable(side->endpoint), "the endpoint cannot be enabled");
    side->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (side->memory == MAP_FAILED) {
        give_up("no memory");
    }
    need(fi_mr_reg(side->domain, side->memory, bytes, FI_WRITE | FI_REMOTE_WRITE, 0, KEY, 0,
                   &side->registration, NULL),
         "memory cannot be registered");
    exchange(side, info, pair);
    fi_freeinfo(info);
    return side;
}

bool side_write(struct side *side, uint64_t offset, uint64_t bytes)
{
    void *descriptor = fi_mr_desc(side->registration);
    const struct iovec from = {.iov_base = side->memory + offset, .iov_len = bytes};
    const struct fi_rma_iov to = {
        .addr = side->peer_base + offset, .len = bytes, .key = side->peer_key};
    const struct fi_msg_rma message = {
        .msg_iov = &from,
        .desc = &descriptor,
        .iov_count = 1,
        .addr = side->peer,
        .rma_iov = &to,
        .rma_iov_count = 1,
        .context = &side->contexts[side->context_next],
        .data = 1,
    };
    const ssize_t status = fi_writemsg(side->endpoint, &message,
                                       FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMPLETION);
    if (status == -FI_EAGAIN) {
        return false;
    }
    need((int)status, "a write is refused");
    side->context_next = (side->context_next + 1) % 256;
    return true;
}

/* Sleep until the queue has news. */
static void doze(struct side *side)
{
    struct fid *queue = &side->queue->fid;
    struct pollfd fd = {.events = POLLIN};
    if (fi_trywait(side->fabric, &queue, 1) == FI_SUCCESS &&
        fi_control(queue, FI_GETWAIT, &fd.fd) == FI_SUCCESS) {
        (void)poll(&fd, 1, SLEEP_MS);
    }
}

struct side_news side_poll(struct side *side, bool wait)
{
    struct side_news news = {0};
    struct fi_cq_data_entry entries[ENTRIES];
    const double begun = now_ns();
    ssize_t count = fi_cq_read(side->queue, entries, ENTRIES);
    while (wait && count == -FI_EAGAIN && now_ns() - begun < SPIN_NS) {
        count = fi_cq_read(side->queue, entries, ENTRIES);
    }
    if (wait && count == -FI_EAGAIN) {
        doze(side);
        count = fi_cq_read(side->queue, entries, ENTRIES);
    }
    if (count < 0 && count != -FI_EAGAIN) {
        give_up("a write failed");
    }
    for (ssize_t i = 0; i < count; i++) {
        if ((entries[i].flags & FI_REMOTE_CQ_DATA) != 0) {
            news.seen++;
        } else {
            news.written++;
        }
    }
    return news;
}

int side_socket(const char *ip, bool dials, int pair)
{
    const int one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof address;
    int opened = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (opened < 0 || inet_pton(AF_INET, ip, &address.sin_addr) != 1) {
        give_up("no socket");
    }
    if (dials) {
        if (recv(pair, &address.sin_port, sizeof address.sin_port, MSG_WAITALL) !=
                (ssize_t)sizeof address.sin_port ||
            connect(opened, (const struct sockaddr *)&address, sizeof address) != 0) {
            give_up("no connection");
        }
    } else {
        if (bind(opened, (const struct sockaddr *)&address, sizeof address) != 0 ||
            listen(opened, 1) != 0 ||
            getsockname(opened, (struct sockaddr *)&address, &bytes) != 0 ||
            write(pair, &address.sin_port, sizeof address.sin_port) !=
                (ssize_t)sizeof address.sin_port) {
            give_up("no port");
        }
        const int listening = opened;
        opened = accept(listening, NULL, NULL);
        (void)close(listening);
    }
    if (opened < 0 || setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) {
        give_up("no connection");
    }
    return opened;
}
