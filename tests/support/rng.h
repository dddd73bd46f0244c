/*
 * Integer random numbers for tests, the same on every compiler and machine: pcg32 seeded by
 * splitmix64.
 */
#ifndef HALAGE_TESTS_RNG_H
#define HALAGE_TESTS_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
    uint64_t increment; /* odd */
};

/* splitmix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014. */
static inline uint64_t rng_splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline struct rng rng_make(uint64_t seed)
{
    struct rng rng;
    rng.state = rng_splitmix64(&seed);
    rng.increment = rng_splitmix64(&seed) | 1u;
    return rng;
}

/* pcg32, XSH-RR: O'Neill, "PCG: A Family of Simple Fast ... Generators", 2014. Uniform. */
static inline uint32_t rng_u32(struct rng *rng)
{
    const uint64_t old = rng->state;
    rng->state = old * 6364136223846793005u + rng->increment;
    const uint32_t shifted = (uint32_t)(((old >> 18) ^ old) >> 27);
    const uint32_t turn = (uint32_t)(old >> 59);
    return (shifted >> turn) | (shifted << ((32 - turn) & 31u));
}

/* Below `limit`, which is not 0; biased by less than limit / 2^32. */
static inline uint32_t rng_below(struct rng *rng, uint32_t limit)
{
    return (uint32_t)(((uint64_t)rng_u32(rng) * limit) >> 32);
}

#endif
