/* Memory that is moved: its pages in order or not, and bytes by which a wrong one shows. */
#include "perf.h"

#include "../driver/rng.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES_MAX (16ull << 30)
#define ALIGNMENT       4096u /* of a region; see hlg_memory_check() */

uint32_t *perf_arena_order(const struct perf_arena *arena, bool target)
{
    struct hlg_rng rng = hlg_rng_seed(target ? 2 : 1);
    uint32_t *pages = malloc(arena->page_count * sizeof *pages);

    if (pages == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < arena->page_count; i++) {
        pages[i] = i;
    }
    for (uint32_t i = arena->page_count - 1; arena->shape.order == PERF_SCATTERED && i > 0; i--) {
        const uint32_t other = (uint32_t)hlg_rng_below(&rng, i + 1);
        const uint32_t page = pages[i];
        pages[i] = pages[other];
        pages[other] = page;
    }
    return pages;
}

int perf_arena_open(const struct perf_case *shape, bool target, int32_t device,
                    struct perf_arena *arena, char *error)
{
    const struct hlg_memory_site site = {.kind = shape->way.memory, .device = device};
    const uint64_t parts = target ? shape->peers : 1;

    *arena = (struct perf_arena){.shape = *shape,
                                 .page_count = shape->pages * (target ? PERF_SLOTS : 1)};
    arena->peer_bytes = (uint64_t)arena->page_count * shape->layers * shape->page_bytes;
    arena->peer_bytes = (arena->peer_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!hlg_mul_u64(arena->peer_bytes, parts, &arena->bytes) || arena->bytes > ARENA_BYTES_MAX) {
        (void)snprintf(error, PERF_ERROR_BYTES,
                       "pages of %u bytes make more than 16 GiB at one side; use fewer pages, "
                       "peers or smaller pages",
                       shape->page_bytes);
        return -HLG_EINVAL;
    }
    const int rc = hlg_memory_create(&site, arena->bytes, &arena->memory, error, PERF_ERROR_BYTES);
    arena->pages = rc == 0 ? perf_arena_order(arena, target) : NULL;
    arena->page = rc == 0 ? malloc(shape->page_bytes) : NULL;
    if (arena->pages == NULL || arena->page == NULL) {
        if (rc == 0) {
            (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        }
        perf_arena_close(arena);
        return rc != 0 ? rc : -HLG_ENOMEM;
    }
    if (shape->way.memory == HLG_MEMORY_HOST) {
        memset(hlg_memory_base(arena->memory), 0,
               arena->bytes); /* so that no round touches it first */
    }
    return 0;
}

void perf_arena_close(struct perf_arena *arena)
{
    hlg_memory_release(arena->memory);
    free(arena->pages);
    free(arena->page);
    *arena = (struct perf_arena){0};
}

struct hlg_mem_region perf_arena_region(const struct perf_arena *arena, uint32_t peer)
{
    struct hlg_mem_region region = hlg_memory_region(arena->memory);

    region.base = (uint8_t *)region.base + peer * arena->peer_bytes;
    region.bytes = arena->peer_bytes;
    region.dmabuf_offset += peer * arena->peer_bytes;
    return region;
}

void perf_arena_layout(const struct perf_arena *arena, struct hlg_layout *layout)
{
    const struct perf_case *shape = &arena->shape;

    *layout = (struct hlg_layout){
        .tp = 1,
        .stages = 1,
        .pools = 1,
        .layers = shape->layers,
        .stage_limit = {shape->layers},
        .rank_limit = 1,
        .all_reduce = 1,
        .piece_bytes_max = hlg_max_u32(HLG_PIECE_BYTES_DEFAULT, shape->page_bytes),
        .group_count = 1,
        .groups = {{.kind = HLG_GROUP_PAGED,
                    .planes = 1,
                    .heads = 1,
                    .head_bytes = shape->page_bytes,
                    .page_tokens = 1,
                    .page_count = arena->page_count,
                    .layers = {shape->layers == 64 ? UINT64_MAX : (1ull << shape->layers) - 1}}}};
}

uint64_t perf_arena_offset(const struct perf_arena *arena, uint32_t peer, uint32_t layer,
                           uint32_t position)
{
    const uint64_t page = (uint64_t)layer * arena->page_count + arena->pages[position];

    return peer * arena->peer_bytes + page * arena->shape.page_bytes;
}

/* Eight bytes of the pattern: of word `word` of what one request moves. */
static uint64_t pattern(uint64_t iteration, uint64_t word)
{
    uint64_t z = (iteration + 1) * 0x9e3779b97f4a7c15ull + word * 0xbf58476d1ce4e5b9ull;

    return z ^ (z >> 29);
}

/* First word of the pattern of a page: pages begin on a word of their own. */
static uint64_t first_word(const struct perf_arena *arena, uint32_t layer, uint32_t position)
{
    const uint64_t words = hlg_div_ceil(arena->shape.page_bytes, 8);

    return ((uint64_t)layer * arena->shape.pages + position) * words;
}

int perf_arena_fill(struct perf_arena *arena, uint64_t iteration, bool plant)
{
    const uint32_t bytes = arena->shape.page_bytes;
    const uint32_t count = arena->shape.layers * arena->shape.pages;
    int rc = 0;

    for (uint32_t i = 0; i < count && rc == 0; i++) {
        const uint32_t layer = i / arena->shape.pages; /* floor: layers lie one after the other */
        const uint32_t position = i % arena->shape.pages;
        uint64_t word = first_word(arena, layer, position);
        for (uint32_t at = 0; at < bytes; at += 8) {
            const uint64_t value = pattern(iteration, word++);
            memcpy(arena->page + at, &value, hlg_min_u32(8, bytes - at));
        }
        arena->page[0] ^= plant && i == count / 2; /* floor: any page will do */
        rc = hlg_memory_write(arena->memory, perf_arena_offset(arena, 0, layer, position),
                              arena->page, bytes);
    }
    return rc;
}

static uint64_t page_wrong(const uint8_t *page, uint32_t bytes, uint64_t iteration, uint64_t word)
{
    uint64_t wrong = 0;

    for (uint32_t at = 0; at < bytes; at += 8) {
        const uint64_t value = pattern(iteration, word++);
        const uint32_t rest = hlg_min_u32(8, bytes - at);
        uint8_t expected[8];
        memcpy(expected, &value, sizeof expected);
        if (memcmp(page + at, expected, rest) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < rest; i++) {
            wrong += page[at + i] != expected[i];
        }
    }
    return wrong;
}

int perf_arena_wrong(const struct perf_arena *arena, uint64_t iteration, uint32_t slots,
                     uint64_t *wrong)
{
    const uint32_t pages = arena->shape.pages;
    const uint32_t bytes = arena->shape.page_bytes;
    int rc = 0;

    *wrong = 0;
    for (uint32_t peer = 0; peer < arena->shape.peers; peer++) {
        for (uint32_t layer = 0; layer < arena->shape.layers; layer++) {
            for (uint32_t i = 0; i < slots * pages && rc == 0; i++) {
                rc = hlg_memory_read(arena->memory, perf_arena_offset(arena, peer, layer, i),
                                     arena->page, bytes);
                *wrong +=
                    page_wrong(arena->page, bytes, iteration, first_word(arena, layer, i % pages));
            }
        }
    }
    return rc;
}
