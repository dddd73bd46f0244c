/*
 * How long one step of an engine takes: measured operator times summed over a step, and one constant
 * for what lies between the operators (docs/cost.md). Pure: equal arguments, equal bits.
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
    enum sim_dtype kv; /* SIM_BF16 or SIM_FP8 */
    /* GPUs that share attention heads: divides heads. Groups of them with sequences of their own: tp * dp
     * GPUs, at most 1024. GPUs that experts are spread over: divides tp * dp, each expert is cut
     * tp * dp / ep ways; 1 for dense models. */
    uint32_t tp;
    uint32_t dp;
    uint32_t ep;
    bool draft_module;        /* the model's MTP module is loaded: it takes memory */
    bool roofline;            /* use nothing measured: a negative control */
    const char *table;        /* file of a user's own step times, or NULL: see below */
    double step_overhead_ns;  /* < 0: the calibrated constant */
    double layer_overhead_ns; /* < 0: the same */
    double moe_imbalance;     /* hottest rank's expert load over the mean, >= 1; 0: the measured
                                 power law of exponent 1.2 */
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

/* Where the time goes; the six sum to the step's. */
struct sim_cost_parts {
    double gemm_ns;
    double attention_ns;
    double experts_ns;
    double communication_ns;
    double head_ns;
    double overhead_ns; /* with a user's table: the whole step */
    bool is_beyond; /* beyond what was measured: a line goes on; of a user's table also before its
                           first row, whose time is taken */
};

/*
 * Make a cost model.
 *
 * A user's step table is a text file with tabs between its columns. Its first line names them, in any
 * order: kind tokens context time_us. Each following one is a measured step: kind "prefill" (tokens
 * computed, tokens in the cache before them) or "decode" (sequences of a rank, mean tokens in the cache
 * of each), and its microseconds, of the whole parallel group. At least one row of each kind. Times
 * between rows follow straight lines, first along the context, then along the tokens. A step that does
 * both takes the prefill's time and what the decode takes above the table's shortest.
 *
 * `text` [capacity]: on error one sentence with key, value and remedy. Returns 0, -HLG_EINVAL (a shape
 * that cannot be: heads, experts, block size; an unknown engine; a bad table) or -HLG_ENOMEM. Some
 * milliseconds.
 */
int sim_cost_create(const struct sim_cost_config *config, struct sim_cost **cost, char *text,
                    size_t capacity);
void sim_cost_destroy(struct sim_cost *cost);

/*
 * Duration of a step of all ranks in lock-step, in nanoseconds: the slowest rank where ranks work
 * apart, the sum of tokens where they work together. 0 when no rank has anything to do.
 *
 * ranks  [rank_count] with 1 <= rank_count <= dp; ranks with nothing to do count as idle
 * parts  may be NULL
 *
 * query_tokens above 1: the step verifies drafts; where the model has an MTP module, one pass of it for
 * each draft is part of the step.
 *
 * O(chunks + rank_count), about a microsecond.
 */
double sim_cost_step_ns(const struct sim_cost *cost, const struct sim_rank_step *ranks,
                        uint32_t rank_count, struct sim_cost_parts *parts);

/* What the numbers rest on. `id` names version and content of the calibration. */
struct sim_cost_basis {
    char id[48];
    char engine[48];   /* name and version that the constants are of */
    bool extrapolated; /* a roofline, or another GPU, stood in for at least one operator */
    bool borrowed; /* operators were measured with another engine, or constants on another GPU */
    bool is_stale; /* the version asked for is not the calibration's */
    bool
        own_times; /* a user's step table: nothing of calibration or engine is in them; both say "none" */
    char why[320]; /* which, and what is missing; "" if nothing */
    double step_overhead_ns;
    double layer_overhead_ns;
};
void sim_cost_basis(const struct sim_cost *cost, struct sim_cost_basis *basis);

/*
 * Tokens of KV that one DP rank has room for: its share of GPU memory, `memory_fraction` of the total,
 * less weights, activations, communication buffers and what the runtime keeps. All of these are inside
 * the fraction (as vLLM's gpu_memory_utilization has it, and unlike TensorRT-LLM's, which is of what is
 * free after loading). Of a model with windows a token counts what it takes in the other layers; the
 * windows themselves (sim_model_rank_kv_bytes()) are not in it.
 *
 * memory_fraction  0 < f <= 1
 *
 * 0 with a sentence, and the missing GiB in it, when the model does not fit; UINT64_MAX for a cache
 * without bytes.
 */
uint64_t sim_cost_kv_tokens(const struct sim_cost *cost, double memory_fraction, char *text,
                            size_t capacity);

#endif
