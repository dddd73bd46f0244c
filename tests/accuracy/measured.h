/*
 * Measured rows of DeepSeek-R1 fp8 on H200, InferenceX, as ai-dynamo/aiconfigurator @ 095f58a5 holds them
 * (silicon_sample.csv, Apache-2.0). test_steps.c compares them with HALAGE_DATA/measured.
 */
#ifndef HALAGE_TESTS_MEASURED_H
#define HALAGE_TESTS_MEASURED_H

#include <stdint.h>

/* How the lengths were drawn: uniform in [0.8 L, L]. */
#define LENGTH_MEAN 0.9

/* One measured point: where it stands, what was run, what was measured. */
struct measured {
    const char *file;
    const char *config;
    uint32_t isl;
    uint32_t osl;
    uint32_t concurrency; /* over all decode workers */
    uint32_t workers;
    uint32_t tp; /* of a worker, as the next two */
    uint32_t dp;
    uint32_t ep;
    double ttft_ms;
    double tpot_ms;
};

#define DISAGG "inferencex_disagg_dev.tsv"
#define AGG    "inferencex_agg_dev.tsv"

#define COUNT(rows) ((uint32_t)(sizeof(rows) / sizeof((rows)[0])))

/* T08 rows 1 to 5: 1 prefill and 9 decode nodes. */
extern const struct measured trtllm_tp_fit[5];
extern const struct measured trtllm_dp_fit[3];
/* T08 rows 6 to 10: other lengths, other numbers of workers, two of five with DP. */
extern const struct measured trtllm_test[5];
extern const struct measured sglang_long[5];
/* One co-located node. */
extern const struct measured sglang_mixed[5];

#endif
