/*
 * Digests of KV pages: over the planned slots only, those of positions 0 .. tokens - 2 of a prompt.
 * Slots behind them may hold anything.
 */
#ifndef HALAGE_NODE_DIGEST_H
#define HALAGE_NODE_DIGEST_H

#include <tinylm.h>

#define DIGEST_BEGIN 0xCBF29CE484222325ull

/*
 * Go on with a digest. A single word that differs always changes the result: each step is a
 * bijection of the state.
 *
 * bytes  a multiple of 4
 */
uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t count);

/* Go on with the first `slots` slots of one page of one plane, as a rank of `tp` lays it out. */
uint64_t digest_page(uint64_t digest, const struct tlm_config *model, uint32_t tp, const void *page,
                     uint32_t slots);

#endif
