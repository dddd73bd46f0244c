/*
 * A price list in place of the cost model: step times that a test can work out by hand. A rank's time is
 *
 *   sequences != 0 ? sequence_ns * sequences + context_ns * context_sum + longest_ns * context_max : 0
 *   + token_ns * chunk tokens + pair_ns * chunk tokens * context
 *
 * and a step is step_ns and the slowest rank's time, or with `sum` that of all ranks, bent by `bend`
 * (added: bend * time^2). With whole numbers, `sum` or one rank, and no bend, a step's time is whole and
 * linear in the contexts.
 */
#ifndef HALAGE_TESTS_SIM_PRICE_H
#define HALAGE_TESTS_SIM_PRICE_H

#include "cost.h"

struct sim_cost {
    double step_ns;
    double sequence_ns;
    double context_ns;
    double longest_ns;
    double token_ns;
    double pair_ns;
    double bend;
    bool sum;
    uint64_t *calls; /* counts them; may be NULL */
};

#endif
