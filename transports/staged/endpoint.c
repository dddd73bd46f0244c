/* A transport around the one below: registrations of GPU memory become those of rings and shadows. */
#include "internal.h"

#include <stdlib.h>

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    const struct staged_endpoint *e = staged_endpoint_of(t);
    const uint32_t slot_bytes = e->staged->config.slot_bytes;

    e->below->ops->query(e->below, caps);
    caps->device_memory = true;
    caps->piece_bytes_max = hlg_min_u64(caps->piece_bytes_max, slot_bytes);
    caps->merge_bytes_max = hlg_min_u64(caps->merge_bytes_max, slot_bytes);
}

static hlg_time now(struct hlg_transport *t)
{
    struct hlg_transport *below = staged_endpoint_of(t)->below;

    return below->ops->now(below);
}

static int address(struct hlg_transport *t, uint8_t *bytes, uint32_t capacity)
{
    struct hlg_transport *below = staged_endpoint_of(t)->below;

    return below->ops->address(below, bytes, capacity);
}

static int peer_open(struct hlg_transport *t, const uint8_t *bytes, uint32_t count)
{
    struct staged_endpoint *e = staged_endpoint_of(t);
    const int number = e->below->ops->peer_open(e->below, bytes, count);

    if (number < 0) {
        return number;
    }
    if ((uint32_t)number >= e->peer_count) {
        struct staged_peer *peers = realloc(e->peers, ((size_t)number + 1) * sizeof *peers);
        if (peers == NULL) {
            (void)e->below->ops->peer_close(e->below, (uint32_t)number);
            return -HLG_ENOMEM;
        }
        for (; e->peer_count <= (uint32_t)number; e->peer_count++) {
            peers[e->peer_count] = (struct staged_peer){0};
        }
        e->peers = peers;
    }
    struct staged_peer *peer = &e->peers[number];
    peer->open = true; /* slots of an earlier peer of this number are still counted */
    peer->down = false;
    peer->refused_first = HLG_TIME_NEVER;
    return number;
}

static int peer_close(struct hlg_transport *t, uint32_t number)
{
    struct staged_endpoint *e = staged_endpoint_of(t);

    if (number >= e->peer_count || !e->peers[number].open) {
        return -HLG_EPEER;
    }
    struct staged_peer *peer = &e->peers[number];
    if (peer->down_untold) {
        peer->down_untold = false;
        e->down_untold--;
    }
    peer->open = false;
    if (peer->waiting > 0 && !e->closed) {
        peer->closing = true; /* what was taken is under way, and completes */
        return 0;
    }
    return e->below->ops->peer_close(e->below, number);
}

/* What stands for a GPU region below: at a source the ring alone, at a target its shadow. */
static int register_gpu(struct staged_endpoint *e, const struct hlg_mem_region *region,
                        struct staged_mem *mem)
{
    struct hlg_staged *s = e->staged;
    char error[320] = "";

    const int code = staged_prepare(&s->fabric, region, error, sizeof error);
    if (code != 0) {
        staged_log(s, "staged: %s", error);
        return code;
    }
    mem->gpu = staged_gpu_of(s, region->device);
    HLG_ASSERT(mem->gpu != NULL);
    if (s->config.target) {
        const struct staged_shadow *shadow = staged_shadow_of(s, region->base, region->bytes);
        uint8_t *host = shadow->host + ((uint8_t *)region->base - shadow->device);
        return e->below->ops->mem_register(e->below, &HLG_MEM_HOST(host, region->bytes),
                                           &mem->below);
    }
    hlg_mem *ring = &e->ring_mems[mem->gpu - s->gpus];
    mem->below = HLG_NONE;
    if (*ring != HLG_NONE) {
        return 0;
    }
    const uint64_t bytes = (uint64_t)s->config.slots * s->config.slot_bytes;
    return e->below->ops->mem_register(e->below, &HLG_MEM_HOST(mem->gpu->ring, bytes), ring);
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *region, hlg_mem *out)
{
    struct staged_endpoint *e = staged_endpoint_of(t);
    uint32_t index = 0;

    if (e->closed) {
        return -HLG_ESTATE;
    }
    if (region->base == NULL || region->bytes == 0) {
        return -HLG_EINVAL;
    }
    while (index < STAGED_MEMS_MAX && e->mems[index].used) {
        index++;
    }
    if (index == STAGED_MEMS_MAX) {
        return -HLG_ELIMIT;
    }
    struct staged_mem mem = {.used = true, .region = *region};
    const int code = region->kind == HLG_MEMORY_CUDA
                         ? register_gpu(e, region, &mem)
                         : e->below->ops->mem_register(e->below, region, &mem.below);
    if (code != 0) {
        return code;
    }
    e->mems[index] = mem;
    *out = index;
    return 0;
}

static int mem_export(struct hlg_transport *t, hlg_mem number, struct hlg_mem_export *out)
{
    struct staged_endpoint *e = staged_endpoint_of(t);

    if (number >= STAGED_MEMS_MAX || !e->mems[number].used || e->mems[number].below == HLG_NONE) {
        return -HLG_EINVAL; /* nobody writes into what is only sent */
    }
    return e->below->ops->mem_export(e->below, e->mems[number].below, out);
}

static int mem_release(struct hlg_transport *t, hlg_mem number)
{
    struct staged_endpoint *e = staged_endpoint_of(t);
    int code = 0;

    if (number >= STAGED_MEMS_MAX || !e->mems[number].used) {
        return e->closed ? 0 : -HLG_EINVAL;
    }
    if (e->mems[number].below != HLG_NONE) {
        code = e->below->ops->mem_release(e->below, e->mems[number].below);
    }
    if (code == 0) {
        e->mems[number] = (struct staged_mem){0};
    }
    return code;
}

static int wait_fd(struct hlg_transport *t)
{
    struct staged_endpoint *e = staged_endpoint_of(t);

    /* A GPU wakes nobody. */
    return e->wait_first != HLG_NONE || e->down_untold > 0 ? -HLG_ESTATE
                                                           : e->below->ops->wait_fd(e->below);
}

static void wake(struct hlg_transport *t)
{
    struct hlg_transport *below = staged_endpoint_of(t)->below;

    below->ops->wake(below);
}

static int close_endpoint(struct hlg_transport *t)
{
    struct staged_endpoint *e = staged_endpoint_of(t);

    if (e->closed) {
        return 0;
    }
    cargo_doom(e, -HLG_ECANCELED);
    cargo_settle(e); /* from now on nothing of ours is read */
    e->closed = true;
    const int code = e->below->ops->close(e->below);
    e->unclosed = code != 0;
    return code;
}

static void give_memory(struct staged_endpoint *e)
{
    free(e->mems);
    free(e->peers);
    free(e->cargos);
    free(e);
}

static void free_endpoint(struct hlg_transport *t)
{
    struct staged_endpoint *e = staged_endpoint_of(t);

    (void)close_endpoint(t);
    e->below->ops->free(e->below); /* only now do its slots hold nothing that anybody reads */
    for (uint32_t i = 0; i < STAGED_CARGOS_MAX; i++) {
        const struct cargo *c = &e->cargos[i];
        if (c->state != CARGO_FREE && c->gpu != NULL && !e->unclosed) {
            staged_slot_give(c->gpu, c->slot);
        }
    }
    give_memory(e);
}

static const struct hlg_transport_ops ops = {
    .query = query,
    .now = now,
    .address = address,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .mem_register = mem_register,
    .mem_export = mem_export,
    .mem_release = mem_release,
    .write = cargo_write,
    .poll = cargo_poll,
    .wait_fd = wait_fd,
    .wake = wake,
    .close = close_endpoint,
    .free = free_endpoint,
};

int staged_endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                         struct hlg_transport **out)
{
    struct hlg_staged *s = (struct hlg_staged *)(void *)fabric;
    struct staged_endpoint *e = calloc(1, sizeof *e);

    if (e == NULL) {
        return -HLG_ENOMEM;
    }
    e->transport.ops = &ops;
    e->staged = s;
    e->mems = calloc(STAGED_MEMS_MAX, sizeof *e->mems);
    e->cargos = calloc(STAGED_CARGOS_MAX, sizeof *e->cargos);
    const int code = e->mems == NULL || e->cargos == NULL
                         ? -HLG_ENOMEM
                         : s->config.below->open(s->config.below, lane, rail, &e->below);
    if (code != 0) {
        give_memory(e);
        return code;
    }
    for (uint32_t i = 0; i < STAGED_GPUS_MAX; i++) {
        e->ring_mems[i] = HLG_NONE;
    }
    for (uint32_t i = 0; i < STAGED_CARGOS_MAX; i++) {
        e->cargos[i].next = i + 1 < STAGED_CARGOS_MAX ? i + 1 : HLG_NONE;
    }
    e->wait_first = HLG_NONE;
    e->wait_last = HLG_NONE;
    *out = &e->transport;
    return 0;
}
