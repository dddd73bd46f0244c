/*
 * Small fixed integer generator: splitmix64 (Sebastiano Vigna, public domain; Steele, Lea, Flood,
 * "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). Equal seed, equal numbers, on any
 * compiler. Not for secrets.
 */
#ifndef HALAGE_DRIVER_RNG_H
#define HALAGE_DRIVER_RNG_H

#include <halage/base.h>

#define HLG_RNG_PPM 1000000u

struct hlg_rng {
    uint64_t state;
};

static inline struct hlg_rng hlg_rng_seed(uint64_t seed)
{
    return (struct hlg_rng){seed};
}

static inline uint64_t hlg_rng_next(struct hlg_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* A number below `limit` >= 1, without bias: draws from the incomplete last stretch are drawn anew. */
static inline uint64_t hlg_rng_below(struct hlg_rng *rng, uint64_t limit)
{
    uint64_t drawn = hlg_rng_next(rng);

    HLG_ASSERT(limit != 0);
    while (drawn - drawn % limit > UINT64_MAX - (limit - 1)) {
        drawn = hlg_rng_next(rng);
    }
    return drawn % limit;
}

/* A number in [min, max]. */
static inline uint64_t hlg_rng_between(struct hlg_rng *rng, uint64_t min, uint64_t max)
{
    HLG_ASSERT(min <= max && max - min != UINT64_MAX);
    return min + hlg_rng_below(rng, max - min + 1);
}

/* True `ppm` times in a million. Draws nothing when the answer is known. */
static inline bool hlg_rng_chance(struct hlg_rng *rng, uint32_t ppm)
{
    return ppm != 0 && (ppm >= HLG_RNG_PPM || hlg_rng_below(rng, HLG_RNG_PPM) < ppm);
}

#endif
