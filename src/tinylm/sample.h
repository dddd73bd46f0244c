/*
 * Choosing a token. A library of its own: a prefill program never samples and must not link this.
 */
#ifndef TINYLM_SAMPLE_H
#define TINYLM_SAMPLE_H

#include <stdint.h>

/*
 * The token of the largest logit; of equal ones, the lowest.
 *
 * logits  [vocab], vocab >= 1, none of them NaN
 */
uint32_t tlm_sample_greedy(const float *logits, uint32_t vocab);

#endif
