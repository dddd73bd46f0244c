#include "sample.h"

uint32_t tlm_sample_greedy(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;

    for (uint32_t token = 1; token < vocab; token++) {
        if (logits[token] > logits[best]) {
            best = token;
        }
    }
    return best;
}
