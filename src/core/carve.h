/*
 * Cutting one caller-given block of memory into a machine's tables. Run once over no memory to
 * learn the size, then over real memory: the same code does both, so the two cannot disagree.
 */
#ifndef HALAGE_CORE_CARVE_H
#define HALAGE_CORE_CARVE_H

#include <halage/base.h>
#include <string.h>

struct carve {
    uint8_t *base; /* NULL: only measuring */
    size_t used;
};

/* Room for `count` things of `bytes` bytes, zeroed; NULL while measuring. */
static inline void *carve_array(struct carve *c, size_t count, size_t bytes)
{
    uint64_t total = 0;
    bool fits = hlg_mul_u64(count, bytes, &total);

    HLG_ASSERT(fits && total < SIZE_MAX / 2);
    c->used = (c->used + 15) & ~(size_t)15;
    uint8_t *at = c->base != NULL ? c->base + c->used : NULL;
    c->used += (size_t)total;
    if (at != NULL) {
        memset(at, 0, (size_t)total);
    }
    return at;
}

#endif
