/*
 * What the fuzz targets share. A target is LLVMFuzzerTestOneInput(): any bytes go in, and what must not
 * be ends the process (HLG_ASSERT). libFuzzer calls it with bytes that it makes (preset fuzz), replay.c
 * with those of the files of a corpus.
 */
#ifndef HALAGE_TESTS_FUZZ_H
#define HALAGE_TESTS_FUZZ_H

#include <halage/base.h>

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A target may define it: bits of what none of its inputs has reached yet. A corpus that misses any fails, or it
 * would prove less and less while the rules change under it. */
uint64_t fuzz_missed(void) __attribute__((weak));

/* Bytes that are read as numbers: 0 where they are used up, so that each prefix is an input too. */
struct feed {
    const uint8_t *next;
    size_t left;
};

static inline uint32_t feed_byte(struct feed *f)
{
    if (f->left == 0) {
        return 0;
    }
    f->left--;
    return *f->next++;
}

/* Little-endian, `count` bytes. */
static inline uint64_t feed_bytes(struct feed *f, uint32_t count)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < count; i++) {
        value |= (uint64_t)feed_byte(f) << (8 * i);
    }
    return value;
}

static inline uint32_t feed_u32(struct feed *f)
{
    return (uint32_t)feed_bytes(f, 4);
}

/* Below `limit`, 1..256. */
static inline uint32_t feed_below(struct feed *f, uint32_t limit)
{
    return feed_byte(f) % limit;
}

/* A number in [small_min, small_min + small_count), or, of one byte in sixteen, any 32 bits at all. */
static inline uint32_t feed_odd(struct feed *f, uint32_t small_min, uint32_t small_count)
{
    uint32_t byte = feed_byte(f);

    return byte >= 0xf0 ? feed_u32(f) : small_min + byte % small_count;
}

#endif
