#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOT_BYTES_DEFAULT  (1u << 20)
#define SLOTS_DEFAULT       64u
#define FLUSHES_MAX_DEFAULT 64u

void staged_log(const struct hlg_staged *s, const char *format, ...)
{
    char sentence[320];
    va_list arguments;

    if (s->config.log == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    s->config.log(s->config.log_context, sentence);
}

void staged_copy_failed(struct hlg_staged *s, struct staged_gpu *gpu, const struct copier *copier)
{
    if (!gpu->told) {
        gpu->told = true;
        staged_log(s, "staged: copies of gpu %d fail: %s", gpu->device, copier_why(copier));
    }
}

struct staged_gpu *staged_gpu_of(struct hlg_staged *s, int32_t device)
{
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        if (s->gpus[i].device == device) {
            return &s->gpus[i];
        }
    }
    return NULL;
}

const struct staged_shadow *staged_shadow_of(const struct hlg_staged *s, const void *base,
                                             uint64_t bytes)
{
    for (uint32_t i = 0; i < s->shadow_count; i++) {
        const struct staged_shadow *shadow = &s->shadows[i];
        const uintptr_t offset = (uintptr_t)base - (uintptr_t)shadow->device;
        if (offset < shadow->bytes && bytes <= shadow->bytes - offset) {
            return shadow;
        }
    }
    return NULL;
}

uint32_t staged_slot_take(struct staged_gpu *gpu)
{
    const uint32_t slot = gpu->first_free;

    HLG_ASSERT(slot != HLG_NONE && gpu->free_count > 0);
    gpu->first_free = gpu->next_free[slot];
    gpu->free_count--;
    return slot;
}

void staged_slot_give(struct staged_gpu *gpu, uint32_t slot)
{
    gpu->next_free[slot] = gpu->first_free;
    gpu->first_free = slot;
    gpu->free_count++;
}

static void close_gpu(struct staged_gpu *gpu)
{
    if (gpu->out != NULL && gpu->ring != NULL) {
        (void)copier_wait(gpu->out);
        copier_unpin(gpu->out, gpu->ring);
    }
    copier_close(gpu->out);
    copier_close(gpu->in);
    free(gpu->next_free);
    *gpu = (struct staged_gpu){0};
}

/* The ring is of no use at a target, which only receives. */
static int open_ring(struct hlg_staged *s, struct staged_gpu *gpu, char *error, size_t error_bytes)
{
    const uint64_t bytes = (uint64_t)s->config.slots * s->config.slot_bytes;
    void *ring = NULL;

    gpu->next_free = calloc(s->config.slots, sizeof *gpu->next_free);
    if (gpu->next_free == NULL) {
        return memory_fail(-HLG_ENOMEM, error, error_bytes, "out of memory");
    }
    const int code = copier_pin(gpu->out, bytes, &ring, error, error_bytes);
    if (code != 0) {
        return code;
    }
    gpu->ring = ring;
    for (uint32_t i = 0; i < s->config.slots; i++) {
        gpu->next_free[i] = i + 1 < s->config.slots ? i + 1 : HLG_NONE;
    }
    gpu->first_free = 0;
    gpu->free_count = s->config.slots;
    s->stats.pinned_bytes += bytes;
    return 0;
}

static int open_gpu(struct hlg_staged *s, int32_t device, struct staged_gpu **out, char *error,
                    size_t error_bytes)
{
    struct staged_gpu *gpu = &s->gpus[s->gpu_count];

    if (s->gpu_count == STAGED_GPUS_MAX) {
        return memory_fail(-HLG_ELIMIT, error, error_bytes, "more than %u gpus are staged",
                           STAGED_GPUS_MAX);
    }
    *gpu = (struct staged_gpu){.device = device, .first_free = HLG_NONE};
    int code = copier_open(device, s->config.slots, &gpu->out, error, error_bytes);
    if (code == 0 && s->config.target) {
        code = copier_open(device, s->config.flushes_max, &gpu->in, error, error_bytes);
    }
    if (code == 0 && !s->config.target) {
        code = open_ring(s, gpu, error, error_bytes);
    }
    if (code != 0) {
        close_gpu(gpu);
        return code;
    }
    s->gpu_count++;
    *out = gpu;
    return 0;
}

static int make_shadow(struct hlg_staged *s, struct staged_gpu *gpu,
                       const struct hlg_mem_region *region, char *error, size_t error_bytes)
{
    void *host = NULL;

    if (s->shadow_count == STAGED_SHADOWS_MAX) {
        return memory_fail(-HLG_ELIMIT, error, error_bytes, "more than %u regions are staged",
                           STAGED_SHADOWS_MAX);
    }
    const int code = copier_pin(gpu->out, region->bytes, &host, error, error_bytes);
    if (code != 0) {
        return code;
    }
    s->shadows[s->shadow_count++] = (struct staged_shadow){
        .device = region->base, .bytes = region->bytes, .host = host, .gpu = gpu};
    s->stats.pinned_bytes += region->bytes;
    staged_log(
        s,
        "staged: region of %llu bytes of gpu %d is received into as much pinned host memory, "
        "then copied",
        (unsigned long long)region->bytes, gpu->device);
    return 0;
}

int staged_prepare(struct hlg_fabric *fabric, const struct hlg_mem_region *region, char *error,
                   size_t error_bytes)
{
    struct hlg_staged *s = (struct hlg_staged *)(void *)fabric;
    struct hlg_fabric *below = s->config.below;

    if (region->kind != HLG_MEMORY_CUDA) {
        return below->prepare != NULL ? below->prepare(below, region, error, error_bytes) : 0;
    }
    struct staged_gpu *gpu = staged_gpu_of(s, region->device);
    if (gpu == NULL) {
        const int code = open_gpu(s, region->device, &gpu, error, error_bytes);
        if (code != 0) {
            return code;
        }
        if (!s->config.target) {
            staged_log(
                s, "staged: memory of gpu %d is sent through %u slots of %u bytes of host memory",
                gpu->device, s->config.slots, s->config.slot_bytes);
        }
    }
    if (!s->config.target || staged_shadow_of(s, region->base, region->bytes) != NULL) {
        return 0;
    }
    return make_shadow(s, gpu, region, error, error_bytes);
}

static void fabric_query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    *caps = ((const struct hlg_staged *)(const void *)fabric)->caps;
}

static hlg_time fabric_now(struct hlg_fabric *fabric)
{
    struct hlg_fabric *below = ((struct hlg_staged *)(void *)fabric)->config.below;

    return below->now(below);
}

static void fabric_copies(const struct hlg_fabric *fabric, struct hlg_copy_stats *stats)
{
    *stats = ((const struct hlg_staged *)(const void *)fabric)->stats;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

int hlg_staged_create(const struct hlg_staged_config *config, struct hlg_staged **out, char *error,
                      size_t error_bytes)
{
    if (config->below == NULL || config->below->ready != NULL || config->below->flusher != NULL) {
        return memory_fail(-HLG_EINVAL, error, error_bytes,
                           "a staged fabric needs one below that is real and not staged itself");
    }
    struct hlg_staged *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return memory_fail(-HLG_ENOMEM, error, error_bytes, "out of memory");
    }
    s->config = *config;
    s->config.slot_bytes = or_default(config->slot_bytes, SLOT_BYTES_DEFAULT);
    s->config.slots = or_default(config->slots, SLOTS_DEFAULT);
    s->config.flushes_max = or_default(config->flushes_max, FLUSHES_MAX_DEFAULT);
    s->shadows = calloc(STAGED_SHADOWS_MAX, sizeof *s->shadows);
    s->flushes = calloc(s->config.flushes_max, sizeof *s->flushes);
    if (s->shadows == NULL || s->flushes == NULL) {
        hlg_staged_destroy(s);
        return memory_fail(-HLG_ENOMEM, error, error_bytes, "out of memory");
    }
    config->below->query(config->below, &s->caps);
    s->caps.device_memory = true;
    s->caps.piece_bytes_max = hlg_min_u64(s->caps.piece_bytes_max, s->config.slot_bytes);
    s->caps.merge_bytes_max = hlg_min_u64(s->caps.merge_bytes_max, s->config.slot_bytes);
    for (uint32_t i = 0; i <= STAGED_PIECES_MAX; i++) {
        s->identity[i] = i;
    }
    s->fabric = (struct hlg_fabric){.open = staged_endpoint_open,
                                    .query = fabric_query,
                                    .now = fabric_now,
                                    .rails = config->below->rails,
                                    .prepare = staged_prepare,
                                    .copies = fabric_copies};
    if (s->config.target) {
        staged_flusher_init(s);
        s->fabric.flusher = &s->flusher;
    }
    *out = s;
    return 0;
}

struct hlg_fabric *hlg_staged_fabric(struct hlg_staged *s)
{
    return &s->fabric;
}

void hlg_staged_destroy(struct hlg_staged *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        if (s->gpus[i].in != NULL) {
            (void)copier_wait(s->gpus[i].in);
        }
    }
    for (uint32_t i = 0; i < s->shadow_count; i++) {
        copier_unpin(s->shadows[i].gpu->out, s->shadows[i].host);
    }
    for (uint32_t i = 0; i < s->gpu_count; i++) {
        close_gpu(&s->gpus[i]);
    }
    free(s->shadows);
    free(s->flushes);
    free(s);
}
