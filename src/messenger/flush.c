/* Flush policies of GPU memory that NICs write themselves. Here is CUDA: cuFlushGPUDirectRDMAWrites for each GPU
 * of the node, once a request, before it is READY. The call is short, so it is made at once. READ is sentinel.c. */
#include "messenger_internal.h"

#include <stdio.h>

static struct flush *flush_of(struct hlg_flusher *flusher)
{
    return (struct flush *)(void *)flusher; /* its first member */
}

static int finish(struct hlg_flusher *flusher, hlg_handle request)
{
    struct flush *f = flush_of(flusher);
    char why[256] = "";
    int status = 0;

    if (f->count == FLUSHES_MAX) {
        return 0;
    }
    watchdog_enter(&f->messenger->watch, "flush");
    for (uint32_t i = 0; i < f->device_count && status == 0; i++) {
        status = hlg_memory_flush(f->devices[i], why, sizeof why);
    }
    watchdog_leave(&f->messenger->watch);
    if (status != 0) {
        messenger_log(f->messenger, HLG_LOG_ERROR, "flush of gpu memory failed: %s", why);
    }
    f->done[f->count++] = (struct hlg_flushed){.request = request, .status = status};
    return 1;
}

static int poll_done(struct hlg_flusher *flusher, struct hlg_flushed *done, uint32_t capacity)
{
    struct flush *f = flush_of(flusher);
    const uint32_t count = hlg_min_u32(f->count, capacity);

    memcpy(done, f->done, count * sizeof *done);
    f->count -= count;
    memmove(f->done, f->done + count, f->count * sizeof *f->done);
    return (int)count;
}

static void add_device(struct flush *f, int32_t device)
{
    for (uint32_t i = 0; i < f->device_count; i++) {
        if (f->devices[i] == device) {
            return;
        }
    }
    HLG_ASSERT(f->device_count < HLG_RANKS_MAX); /* messenger_flusher() looked */
    f->devices[f->device_count++] = device;
}

/* Policy CUDA, or AUTO: the GPUs that need it. */
static int find_devices(struct hlg_messenger *m)
{
    struct flush *f = &m->flush;
    char why[sizeof m->error];

    for (uint32_t i = 0; i < m->region_count; i++) {
        const struct hlg_mem_region *region = &m->regions[i].memory;
        if (region->kind != HLG_MEMORY_CUDA) {
            continue;
        }
        const int needs = m->config.flush == HLG_FLUSH_CUDA
                              ? 1
                              : hlg_memory_needs_flush(region->device, why, sizeof why);
        if (needs < 0) {
            return messenger_fail(m, needs, why);
        }
        if (needs > 0 && f->device_count == HLG_RANKS_MAX) {
            return messenger_fail(m, -HLG_ELIMIT, "regions are on more GPUs than a node can have");
        }
        if (needs > 0) {
            add_device(f, region->device);
        }
    }
    return 0;
}

const char *hlg_flush_name(uint32_t policy)
{
    static const char *const names[] = {
        [HLG_FLUSH_AUTO] = "auto",
        [HLG_FLUSH_NONE] = "none",
        [HLG_FLUSH_CUDA] = "cuda",
        [HLG_FLUSH_READ] = "read",
    };

    return policy < sizeof names / sizeof names[0] ? names[policy] : NULL;
}

int messenger_flusher(struct hlg_messenger *m, struct hlg_flusher **flusher)
{
    struct flush *f = &m->flush;

    *flusher = NULL;
    if (m->config.role != HLG_ROLE_DECODE || m->config.fabric->flusher != NULL ||
        m->config.flush == HLG_FLUSH_NONE) {
        return 0; /* the fabric's own goes first: it copies */
    }
    if (m->config.flush == HLG_FLUSH_READ) {
        return sentinels_start(m, flusher);
    }
    const int code = find_devices(m);
    if (code == 0 && f->device_count > 0) {
        f->flusher = (struct hlg_flusher){.finish = finish, .poll = poll_done};
        f->messenger = m;
        *flusher = &f->flusher;
    }
    return code;
}
