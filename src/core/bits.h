/*
 * A set of small numbers, as bits: what a turn goes round without looking at those that have nothing.
 */
#ifndef HALAGE_CORE_BITS_H
#define HALAGE_CORE_BITS_H

#include <halage/base.h>

/* Words of a set of numbers below `count`, which is >= 1. */
static inline uint32_t bits_words(uint32_t count)
{
    return hlg_div_ceil(count, 64);
}

static inline void bits_set(uint64_t *bits, uint32_t number)
{
    bits[number / 64] |= 1ull << (number % 64);
}

static inline void bits_clear(uint64_t *bits, uint32_t number)
{
    bits[number / 64] &= ~(1ull << (number % 64));
}

static inline bool bits_has(const uint64_t *bits, uint32_t number)
{
    return (bits[number / 64] >> (number % 64) & 1) != 0;
}

/* The first number of the set from `from` on, going on at 0 after the last; HLG_NONE: it is empty.
 * O(words). */
static inline uint32_t bits_next(const uint64_t *bits, uint32_t words, uint32_t from)
{
    const uint32_t first = from / 64;
    uint64_t word = bits[first] & (UINT64_MAX << (from % 64));

    for (uint32_t i = 0; i <= words; i++) {
        if (word != 0) {
            return (first + i) % words * 64 + (uint32_t)__builtin_ctzll(word);
        }
        word = bits[(first + i + 1) % words];
    }
    return HLG_NONE;
}

#endif
