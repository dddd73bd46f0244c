/*
 * How long one step of an engine takes: measured operator times summed over a step, and one constant
 * for what lies between the operators (docs/simulation.md, "Cost"). Pure: equal arguments, equal bits.
 *
 * Sources of time, best first: a user's own step table; operator tables of (GPU, engine); a roofline,
 * which the result flags as extrapolated.
 */
#ifndef HALAGE_SIM_COST_H
#define HALAGE_SIM_COST_H

#include "hardware.h"
#include "model.h"

struct sim_cost;

struct sim_cost_config {
    const struct sim_model *model; /* copied */
    const struct sim_gpu *gpu;     /* copied */
    const char *engine;            /* "sglang", "trtllm", "vllm", or "none": no constant */
    const char *version;           /* NULL: the one that the calibration knows */
    enum sim_dtype weights;
    enum sim_dtype kv;
    uint32_t tp;       /* ranks that share attention heads */
    uint32_t dp;       /* ranks with sequences of their own; tp * dp GPUs */
    uint32_t ep;       /* ranks that experts are spread over: 1 (experts cut by tp) or tp * dp */
    bool roofline;     /* use nothing measured: a negative control */
    const char *table; /* file of a user's own step times, or NULL */
    double step_overhead_ns;  /* < 0: the calibrated constant */
    double layer_overhead_ns; /* < 0: the same */
    double moe_imbalance; /* hottest rank's expert load over the mean: >= 1; 0: the tables' own */
};

/* Part of a prompt in a step. */
struct sim_chunk {
    uint32_t tokens;  /* computed in this step */
    uint32_t context; /* already in the cache before */
};

/* What one DP rank does in a step. */
struct sim_rank_step {
    const struct sim_chunk *chunks; /* [chunk_count] */
    uint32_t chunk_count;
    uint32_t sequences;    /* in decode */
    uint64_t context_sum;  /* tokens in the cache, over these sequences */
    uint32_t context_max;  /* of one of them */
    uint32_t query_tokens; /* of each: 1, or 1 + draft tokens that are verified */
};

/* Where the time goes; sums to the step's. */
struct sim_cost_parts {
    double gemm_ns;
    double attention_ns;
    double experts_ns;
    double communication_ns;
    double head_ns;
    double overhead_ns;
};

/* `text` [capacity]: on error one sentence with key, value and remedy. Returns 0, -HLG_EINVAL (a shape
 * that cannot be: heads, experts, block size), -HLG_EIO (the table) or -HLG_ENOMEM. */
int sim_cost_create(const struct sim_cost_config *config, struct sim_cost **cost, char *text,
                    size_t capacity);
void sim_cost_destroy(struct sim_cost *cost);

/*
 * Duration of a step of all ranks in lock-step, in nanoseconds: the slowest rank where ranks work
 * apart, the sum of tokens where they work together.
 *
 * ranks  [rank_count] with 1 <= rank_count <= dp; ranks with nothing to do count as idle
 * parts  may be NULL
 *
 * O(chunks + rank_count), some microseconds.
 */
double sim_cost_step_ns(const struct sim_cost *cost, const struct sim_rank_step *ranks,
                        uint32_t rank_count, struct sim_cost_parts *parts);

/* What the numbers rest on. `id` names version and content of the calibration. */
struct sim_cost_basis {
    char id[48];
    char engine[32];
    bool extrapolated; /* a roofline stood in for at least one operator */
    char why[192];     /* which, and what is missing; "" if nothing */
    double step_overhead_ns;
    double layer_overhead_ns;
};
void sim_cost_basis(const struct sim_cost *cost, struct sim_cost_basis *basis);

/* Tokens of KV that one DP rank has room for: memory * fraction less weights, graphs, runtime. 0 with a
 * sentence, and the missing GiB in it, when the model does not fit. */
uint64_t sim_cost_kv_tokens(const struct sim_cost *cost, double memory_fraction, char *text,
                            size_t capacity);

#endif
