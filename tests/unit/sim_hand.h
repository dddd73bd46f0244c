/*
 * A run made by hand, with times in round milliseconds, for tests of metrics and reports: one prefill
 * and one decode node of 8 GPUs each, requests that arrive every 100 ms.
 */
#ifndef HALAGE_TESTS_SIM_HAND_H
#define HALAGE_TESTS_SIM_HAND_H

#include "metrics.h"

#define HAND_REQUESTS_MAX 1000u
#define HAND_DIGEST       0x0123456789abcdefull

struct hand {
    struct sim_scenario scenario;
    struct sim_workload workload;
    struct sim_workload_request requests[HAND_REQUESTS_MAX];
    struct sim_record records[HAND_REQUESTS_MAX];
    struct sim_node_totals nodes[2];
    struct sim_run run;
};

/*
 * All `count` requests done, each with 1000 prompt and 11 output tokens: parts of the TTFT take
 * 1, 2, .. 9 ms (so TTFT is 45 ms), each further token 10 ms (so E2E is 145 ms). Totals agree.
 * Release with hand_free().
 */
struct hand *hand_make(uint32_t count);
void hand_free(struct hand *hand);

/* Request `index` stops at `moment`, which it never reaches; the run's totals follow. */
void hand_stop(struct hand *hand, uint32_t index, enum sim_moment moment);

#endif
