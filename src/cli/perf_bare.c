/*
 * The minimal loop over libfabric that moves the same bytes: the same provider and fi_info, the same flags
 * and completion queue, the same window, the same pages in the same order, an immediate and a completion
 * for each; and nothing else. No machine, no events, no checks, no peers but one, and an error ends it.
 */
#include "perf.h"
#include "provider.h" /* the attributes that halage asks for */

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <stdlib.h>
#include <string.h>

#define BATCH    32u   /* completions read at a time, as transports/ofi does */
#define CQ_DEPTH 4096u /* its default */

struct bare {
    struct perf_end end; /* first */
    uint8_t *memory;     /* the host's */
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_mr *mr;
    void *descriptor;
    uint64_t flags;
    fi_addr_t peer;
    bool joined;
    struct perf_ready other;
    struct fi_context2 *contexts; /* [window] */
    struct fi_context2 **idle;    /* [window - posted + over] those of no write */
    uint64_t *source;             /* offsets of the pages of a request, in order */
    uint64_t *target;             /* the same for PERF_SLOTS requests */
    uint64_t of_request;          /* pages */
    uint64_t at;                  /* page of the source that is next */
    uint64_t target_at;
    uint64_t wanted;
    uint64_t posted;
    uint64_t over; /* completions, or immediates */
};

static int fail(struct bare *b, const char *call, int error)
{
    (void)snprintf(b->end.error, sizeof b->end.error, "the bare loop's %s: %s", call,
                   fi_strerror(-error));
    return -HLG_EIO;
}

static int post(struct bare *b)
{
    const uint64_t window = b->end.arena->shape.window;
    const uint32_t bytes = b->end.arena->shape.page_bytes;

    while (b->posted < b->wanted && b->posted - b->over < window) {
        const struct iovec from = {.iov_base = b->memory + b->source[b->at], .iov_len = bytes};
        const struct fi_rma_iov to = {
            .addr = b->other.base + b->target[b->target_at], .len = bytes, .key = b->other.key};
        const struct fi_msg_rma message = {
            .msg_iov = &from,
            .desc = &b->descriptor,
            .iov_count = 1,
            .addr = b->peer,
            .rma_iov = &to,
            .rma_iov_count = 1,
            .context = b->idle[window - (b->posted - b->over) - 1],
            .data = 1,
        };
        const ssize_t rc = fi_writemsg(b->ep, &message, b->flags);
        if (rc == -FI_EAGAIN) {
            return 0;
        }
        if (rc != 0) {
            return fail(b, "fi_writemsg", (int)rc);
        }
        b->posted++;
        b->at = b->at + 1 == b->of_request ? 0 : b->at + 1;
        b->target_at = b->target_at + 1 == PERF_SLOTS * b->of_request ? 0 : b->target_at + 1;
    }
    return 0;
}

static int bare_step(struct perf_end *end)
{
    struct bare *b = (struct bare *)end;
    struct fi_cq_data_entry entries[BATCH];

    if (!end->target) {
        const int rc = post(b);
        if (rc != 0) {
            return rc;
        }
    }
    const ssize_t count = fi_cq_read(b->cq, entries, BATCH);
    for (ssize_t i = 0; !end->target && i < count; i++) {
        b->idle[end->arena->shape.window - (b->posted - b->over)] = entries[i].op_context;
        b->over++;
    }
    for (ssize_t i = 0; end->target && i < count; i++) {
        b->over += (entries[i].flags & FI_REMOTE_CQ_DATA) != 0;
    }
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        (void)fi_cq_readerr(b->cq, &error, 0);
        return fail(b, "completion", -error.err);
    }
    return count < 0 && count != -FI_EAGAIN ? fail(b, "fi_cq_read", (int)count) : 0;
}

static int bare_join(struct perf_end *end, const struct perf_ready *other)
{
    struct bare *b = (struct bare *)end;

    b->other = *other;
    if (fi_av_insert(b->av, other->address, 1, &b->peer, 0, NULL) != 1) {
        return fail(b, "fi_av_insert", -FI_EINVAL);
    }
    b->joined = true;
    return 0;
}

static bool bare_joined(const struct perf_end *end)
{
    return ((const struct bare *)end)->joined;
}

static void bare_begin(struct perf_end *end, uint64_t count)
{
    struct bare *b = (struct bare *)end;

    b->wanted += count * b->of_request;
}

static bool bare_over(const struct perf_end *end)
{
    const struct bare *b = (const struct bare *)end;

    return b->over == b->wanted;
}

static void bare_close(struct perf_end *end)
{
    struct bare *b = (struct bare *)end;
    struct fid *const fids[] = {
        b->ep != NULL ? &b->ep->fid : NULL,         b->mr != NULL ? &b->mr->fid : NULL,
        b->av != NULL ? &b->av->fid : NULL,         b->cq != NULL ? &b->cq->fid : NULL,
        b->domain != NULL ? &b->domain->fid : NULL, b->fabric != NULL ? &b->fabric->fid : NULL,
    };

    for (size_t i = 0; i < sizeof fids / sizeof fids[0]; i++) {
        if (fids[i] != NULL) {
            (void)fi_close(fids[i]);
        }
    }
    ofi_infos_free(b->info);
    free(b->contexts);
    free(b->idle);
    free(b->source);
    free(b->target);
    free(b);
}

/* Offsets of what `slots` requests move, one after the other, layer by layer. */
static uint64_t *order_of(const struct perf_arena *arena, uint32_t slots)
{
    const struct perf_case *shape = &arena->shape;
    uint64_t *offsets = malloc((size_t)slots * shape->layers * shape->pages * sizeof *offsets);
    uint64_t count = 0;

    for (uint32_t slot = 0; offsets != NULL && slot < slots; slot++) {
        for (uint32_t layer = 0; layer < shape->layers; layer++) {
            for (uint32_t i = 0; i < shape->pages; i++) {
                offsets[count++] = perf_arena_offset(arena, 0, layer, slot * shape->pages + i);
            }
        }
    }
    return offsets;
}

/* The source knows the target's order too: it says where each page goes. */
static bool plan(struct bare *b)
{
    const struct perf_case *shape = &b->end.arena->shape;
    struct perf_arena there = {.shape = *shape, .page_count = shape->pages * PERF_SLOTS};

    b->of_request = (uint64_t)shape->layers * shape->pages;
    b->contexts = calloc(shape->window, sizeof *b->contexts);
    b->idle = malloc(shape->window * sizeof(struct fi_context2 *));
    for (uint32_t i = 0; b->contexts != NULL && b->idle != NULL && i < shape->window; i++) {
        b->idle[i] = &b->contexts[i];
    }
    b->source = order_of(b->end.arena, 1);
    there.pages = perf_arena_order(&there, true);
    b->target = there.pages != NULL ? order_of(&there, PERF_SLOTS) : NULL;
    free(there.pages);
    return b->contexts != NULL && b->idle != NULL && b->source != NULL && b->target != NULL;
}

/* Returns the call that failed, NULL when all went well. */
static const char *open_fids(struct bare *b, int *rc)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = 64};
    struct fi_info *info = b->info;

    cq.size = hlg_max_u32(256, b->end.arena->shape.window) + CQ_DEPTH;
    if ((*rc = fi_fabric(info->fabric_attr, &b->fabric, NULL)) != 0 ||
        (*rc = fi_domain(b->fabric, info, &b->domain, NULL)) != 0) {
        return "fi_domain";
    }
    if ((*rc = fi_cq_open(b->domain, &cq, &b->cq, NULL)) != 0) {
        cq.wait_obj = FI_WAIT_NONE;
        if ((*rc = fi_cq_open(b->domain, &cq, &b->cq, NULL)) != 0) {
            return "fi_cq_open";
        }
    }
    if ((*rc = fi_av_open(b->domain, &av, &b->av, NULL)) != 0 ||
        (*rc = fi_endpoint(b->domain, info, &b->ep, NULL)) != 0 ||
        (*rc = fi_ep_bind(b->ep, &b->av->fid, 0)) != 0 ||
        (*rc = fi_ep_bind(b->ep, &b->cq->fid, FI_TRANSMIT | FI_RECV)) != 0 ||
        (*rc = fi_enable(b->ep)) != 0) {
        return "fi_endpoint";
    }
    if ((*rc = fi_mr_reg(b->domain, b->memory, b->end.arena->bytes, FI_WRITE | FI_REMOTE_WRITE, 0,
                         77, 0, &b->mr, NULL)) != 0) {
        return "fi_mr_reg";
    }
    if ((info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0 &&
        ((*rc = fi_mr_bind(b->mr, &b->ep->fid, 0)) != 0 || (*rc = fi_mr_enable(b->mr)) != 0)) {
        return "fi_mr_bind";
    }
    return NULL;
}

static const char *open_all(struct bare *b, const char *node, int *rc)
{
    const struct ofi_provider *provider = ofi_provider_find(b->end.arena->shape.way.provider);
    struct perf_ready *ready = &b->end.ready;
    size_t bytes = sizeof ready->address;

    *rc = -FI_ENODATA;
    b->info = provider != NULL ? ofi_infos(provider, node) : NULL;
    if (b->info == NULL) {
        return "fi_getinfo";
    }
    const char *failed = open_fids(b, rc);
    if (failed != NULL) {
        return failed;
    }
    b->flags = FI_REMOTE_CQ_DATA | FI_COMPLETION | (provider->placed ? FI_DELIVERY_COMPLETE : 0);
    b->descriptor = fi_mr_desc(b->mr);
    *rc = fi_getname(&b->ep->fid, ready->address, &bytes);
    if (*rc != 0) {
        return "fi_getname";
    }
    ready->address_bytes = hlg_u32(bytes);
    ready->key = fi_mr_key(b->mr);
    ready->base =
        (b->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? (uint64_t)(uintptr_t)b->memory : 0;
    return NULL;
}

int perf_bare_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                   struct perf_end **end, char *error)
{
    static const struct perf_end_ops ops = {.step = bare_step,
                                            .join = bare_join,
                                            .joined = bare_joined,
                                            .begin = bare_begin,
                                            .over = bare_over,
                                            .close = bare_close};
    int rc = 0;

    struct bare *b = calloc(1, sizeof *b);
    if (b == NULL) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        return -HLG_ENOMEM;
    }
    b->end = (struct perf_end){.ops = &ops, .arena = arena, .target = target};
    b->memory = hlg_memory_base(arena->memory);
    if (!plan(b)) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        bare_close(&b->end);
        return -HLG_ENOMEM;
    }
    const char *failed = open_all(b, place->node, &rc);
    if (failed != NULL) {
        (void)snprintf(error, PERF_ERROR_BYTES, "the bare loop's %s: %s", failed, fi_strerror(-rc));
        bare_close(&b->end);
        return -HLG_EIO;
    }
    *end = &b->end;
    return 0;
}
