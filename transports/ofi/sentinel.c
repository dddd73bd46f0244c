/*
 * A sentinel over libfabric: an endpoint of its own on the rail's device, which reads from itself, so that the
 * read goes through the NIC that peers' writes come through. Its registrations alone may be read from afar, and
 * no peer gets to know it.
 */
#define _GNU_SOURCE
#include "endpoint.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <sys/mman.h>

#define READ_BYTES 8u
#define PAGE_BYTES \
    4096u /* of memory that is registered: a forked child may not see it (RDMAV_FORK_SAFE) */

struct ofi_sentinel {
    struct hlg_sentinel sentinel; /* first */
    struct ofi_endpoint *e;
    struct fi_context2 context; /* of the read under way */
    uint8_t *to;                /* [PAGE_BYTES] what was read, which nobody looks at */
    void *descriptor;           /* of `to` */
    size_t bytes;
    struct hlg_mem_export from;
    fi_addr_t self;
};

static struct ofi_sentinel *of(struct hlg_sentinel *s)
{
    return (struct ofi_sentinel *)(void *)s;
}

/* Progress. Returns 1 when the read is over, 0, or an error. */
static int look(struct ofi_sentinel *s)
{
    struct fi_cq_data_entry entry;
    struct fi_cq_err_entry error = {0};

    const ssize_t count = fi_cq_read(s->e->cq, &entry, 1);
    if (count == 1) {
        return entry.op_context == &s->context ? 1 : 0;
    }
    if (count == -FI_EAGAIN) {
        return 0;
    }
    if (count != -FI_EAVAIL || fi_cq_readerr(s->e->cq, &error, 0) != 1) {
        return -HLG_EIO;
    }
    ofi_log(s->e->owner, "a read of our own memory failed: %s", fi_strerror(error.err));
    return -HLG_EIO;
}

static int begin(struct hlg_sentinel *sentinel)
{
    struct ofi_sentinel *s = of(sentinel);

    const ssize_t rc = fi_read(s->e->ep, s->to, s->bytes, s->descriptor, s->self, s->from.address,
                               s->from.key, &s->context);
    if (rc == 0) {
        return 1;
    }
    if (rc != -FI_EAGAIN) {
        ofi_log(s->e->owner, "a read of our own memory is refused: %s", fi_strerror((int)-rc));
        return -HLG_EIO;
    }
    const int progress = look(s); /* the first one connects the endpoint to itself */
    return progress < 0 ? progress : 0;
}

static int poll_read(struct hlg_sentinel *sentinel)
{
    return look(of(sentinel));
}

static void free_sentinel(struct hlg_sentinel *sentinel)
{
    struct ofi_sentinel *s = of(sentinel);

    if (s->e != NULL) {
        s->e->transport.ops->free(&s->e->transport); /* no read lands any more */
    }
    if (s->to != NULL) {
        (void)munmap(s->to, PAGE_BYTES);
    }
    free(s);
}

static const struct hlg_sentinel_ops ops = {
    .read = begin,
    .poll = poll_read,
    .free = free_sentinel,
};

/* Register both ends, and open the endpoint to itself. */
static int set_up(struct ofi_sentinel *s, const struct hlg_mem_region *region)
{
    struct hlg_transport *t = &s->e->transport;
    struct hlg_mem_region start = *region;
    uint8_t address[HLG_ADDRESS_BYTES_MAX];
    hlg_mem from = 0;
    hlg_mem to = 0;

    start.bytes = hlg_min_u64(region->bytes, PAGE_BYTES);
    s->bytes = (size_t)hlg_min_u64(region->bytes, READ_BYTES);
    int rc = ofi_mem_register(s->e, &start, FI_REMOTE_READ, &from);
    if (rc == 0) {
        rc = ofi_mem_register(s->e, &HLG_MEM_HOST(s->to, PAGE_BYTES), FI_READ, &to);
    }
    if (rc == 0) {
        rc = t->ops->mem_export(t, from, &s->from);
    }
    if (rc != 0) {
        return rc;
    }
    s->descriptor = fi_mr_desc(s->e->mems[to].mr);
    const int bytes = t->ops->address(t, address, sizeof address);
    const int peer = bytes < 0 ? bytes : t->ops->peer_open(t, address, (uint32_t)bytes);
    if (peer >= 0) {
        s->self = s->e->peers[peer].address;
    }
    return peer < 0 ? peer : 0;
}

int ofi_sentinel_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                      const struct hlg_mem_region *region, struct hlg_sentinel **out)
{
    struct ofi_sentinel *s = calloc(1, sizeof *s);

    if (s == NULL) {
        return -HLG_ENOMEM;
    }
    s->sentinel.ops = &ops;
    s->to = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->to = s->to == MAP_FAILED ? NULL : s->to;
    int rc = s->to == NULL ? -HLG_ENOMEM
                           : ofi_fabric_open((const struct ofi_fabric *)fabric, lane, rail, &s->e);
    if (rc == 0) {
        rc = set_up(s, region);
    }
    if (rc != 0) {
        free_sentinel(&s->sentinel);
        return rc;
    }
    *out = &s->sentinel;
    return 0;
}
