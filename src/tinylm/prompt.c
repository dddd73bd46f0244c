#include "internal.h"

void tlm_prompt(uint64_t seed, uint64_t request, uint32_t length, uint32_t vocab, uint32_t *tokens)
{
    uint64_t state = tlm_mix(tlm_mix(seed + 0x9E3779B97F4A7C15U) + request);

    TLM_ASSERT(vocab >= 1);
    for (uint32_t i = 0; i < length; i++) {
        state += 0x9E3779B97F4A7C15U;
        tokens[i] = (uint32_t)((tlm_mix(state) >> 32) * vocab >> 32);
    }
}

uint64_t tlm_hash(const void *bytes, size_t count)
{
    const unsigned char *p = bytes;
    uint64_t hash = 0xCBF29CE484222325U;

    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ p[i]) * 0x100000001B3U;
    }
    return hash;
}
