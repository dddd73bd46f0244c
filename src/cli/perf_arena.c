/* Memory that is moved: its pages in order or not, and bytes by which a wrong one shows. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "perf.h"

#include "../driver/rng.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES_MAX (16ull << 30)

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

int perf_arena_open(const struct perf_case *shape, bool target, struct perf_arena *arena)
{
    const uint64_t parts = target ? shape->peers : 1;

    *arena = (struct perf_arena){.shape = *shape,
                                 .page_count = shape->pages * (target ? PERF_SLOTS : 1)};
    arena->peer_bytes = (uint64_t)arena->page_count * shape->layers * shape->page_bytes;
    if (!hlg_mul_u64(arena->peer_bytes, parts, &arena->bytes) || arena->bytes > ARENA_BYTES_MAX) {
        return -HLG_EINVAL;
    }
    arena->pages = perf_arena_order(arena, target);
    void *memory = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (arena->pages == NULL || memory == MAP_FAILED) {
        free(arena->pages);
        arena->pages = NULL;
        return -HLG_ENOMEM;
    }
    arena->memory = memory;
    return 0;
}

void perf_arena_close(struct perf_arena *arena)
{
    if (arena->memory != NULL) {
        (void)munmap(arena->memory, arena->bytes);
    }
    free(arena->pages);
    *arena = (struct perf_arena){0};
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

void perf_arena_fill(struct perf_arena *arena, uint64_t iteration)
{
    const uint32_t bytes = arena->shape.page_bytes;

    for (uint32_t i = 0; i < arena->shape.layers * arena->shape.pages; i++) {
        const uint32_t layer = i / arena->shape.pages; /* floor: layers lie one after the other */
        const uint32_t position = i % arena->shape.pages;
        uint8_t *page = arena->memory + perf_arena_offset(arena, 0, layer, position);
        uint64_t word = first_word(arena, layer, position);
        for (uint32_t at = 0; at < bytes; at += 8) {
            const uint64_t value = pattern(iteration, word++);
            memcpy(page + at, &value, hlg_min_u32(8, bytes - at));
        }
    }
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

uint64_t perf_arena_wrong(const struct perf_arena *arena, uint64_t iteration, uint32_t slots)
{
    const uint32_t pages = arena->shape.pages;
    uint64_t wrong = 0;

    for (uint32_t peer = 0; peer < arena->shape.peers; peer++) {
        for (uint32_t layer = 0; layer < arena->shape.layers; layer++) {
            for (uint32_t i = 0; i < slots * pages; i++) {
                const uint8_t *page = arena->memory + perf_arena_offset(arena, peer, layer, i);
                wrong += page_wrong(page, arena->shape.page_bytes, iteration,
                                    first_word(arena, layer, i % pages));
            }
        }
    }
    return wrong;
}
