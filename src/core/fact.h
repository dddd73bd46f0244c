/*
 * When layers were known to be computed, by counter word and position within its stage: what the lag of
 * a write is measured from. Only measured with, never decided by.
 */
#ifndef HALAGE_CORE_FACT_H
#define HALAGE_CORE_FACT_H

#include "carve.h"

struct fact {
    uint32_t forward; /* newest that got there; 0: none */
    hlg_time at;
};

struct facts {
    uint32_t words;
    uint32_t positions;
    struct fact *facts; /* [words][positions] */
    hlg_time *last;     /* [words] newest fact of any kind */
};

void facts_init(struct facts *f, struct carve *c, uint32_t words, uint32_t positions);
/* Positions [0, count) of a forward are computed. O(those that are new). */
void facts_tick(struct facts *f, uint32_t word, uint32_t forward, uint32_t count, hlg_time now);
/* A forward is over on all words. */
void facts_end(struct facts *f, hlg_time now);
/* When a position of a forward was known to be computed; not earlier than it was, so that a lag is not
 * overstated: where a newer forward got there meanwhile, that one's time. */
hlg_time facts_at(const struct facts *f, uint32_t word, uint32_t forward, uint32_t position);

#endif
