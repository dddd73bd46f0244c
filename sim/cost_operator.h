/*
 * Times of one operator in one layer on one rank, from the calibration or, where it knows nothing, from
 * the roofline; and a note of which. Called when a cost model is made, not at each step.
 */
#ifndef HALAGE_SIM_COST_OPERATOR_H
#define HALAGE_SIM_COST_OPERATOR_H

#include "cost_curve.h"
#include "hardware.h"
#include "model.h"

enum sim_operator {
    SIM_OPERATOR_GEMM,
    SIM_OPERATOR_CONTEXT, /* attention over prompts */
    SIM_OPERATOR_DECODE,  /* attention in decode */
    SIM_OPERATOR_EXPERTS,
    SIM_OPERATOR_REDUCE,
    SIM_OPERATOR_EXCHANGE,
    SIM_OPERATOR_COUNT,
};

struct sim_operators {
    const struct sim_model *model;
    const struct sim_gpu *gpu;
    const char *engine;
    enum sim_dtype weights;
    enum sim_dtype kv;
    bool measured;                      /* false: the roofline for all */
    bool missing[SIM_OPERATOR_COUNT];   /* set: the roofline stood in */
    bool related[SIM_OPERATOR_COUNT];   /* set: measured on another GPU of its kind */
    bool borrowed[SIM_OPERATOR_COUNT];  /* set: measured with another engine */
    bool stretched[SIM_OPERATOR_COUNT]; /* set: measured for another shape, and scaled */
};

/* Attention over prompts: start + token * tokens + pair * pairs of query and key. */
struct sim_context_times {
    double start_ns;
    double token_ns;
    double pair_ns;
};

/* Attention in decode. Between two counts of heads by a line (a step that verifies drafts has more
 * query heads a sequence), below the first as the first. */
struct sim_decode_times {
    struct sim_plane low;
    struct sim_plane high; /* no rows: `low` for any number of heads */
    double heads_low;
    double heads_high;
    double sequence_scale; /* sequences and contexts of the table for one of ours */
    double context_scale;
    double query_ns; /* compute time of one head of one query with one key: a lower bound */
};

#define SIM_OPERATOR_PREFIX 128

/* Where this GPU's rows begin, for the files of this module alone: writes "GPU <tab> engine" and the
 * formatted rest to prefix [SIM_OPERATOR_PREFIX]: this engine's, else those of the engine that lends.
 * Returns false, and notes the operator as missing, when there are none. */
__attribute__((format(printf, 5, 6))) bool sim_operators_find(struct sim_operators *operators,
                                                              enum sim_operator which,
                                                              const char *text, char *prefix,
                                                              const char *format, ...);

/* Add `count` products [m][k] by [k][n] to a curve over m. The curve must be zeroed before the first. */
void sim_operators_add_gemm(struct sim_operators *operators, enum sim_dtype weights, uint32_t n,
                            uint32_t k, double count, struct sim_curve *curve);

void sim_operators_context(struct sim_operators *operators, uint32_t heads, uint32_t kv_heads,
                           struct sim_context_times *times);
void sim_operators_decode(struct sim_operators *operators, uint32_t heads, uint32_t kv_heads,
                          struct sim_decode_times *times);

/* Routed experts over the tokens of the whole group. dispatched: a rank gets only the tokens that one of
 * its experts takes; else each has all. */
void sim_operators_experts(struct sim_operators *operators, uint32_t moe_tp, uint32_t ep,
                           bool skewed, bool dispatched, struct sim_curve *curve);

/* All-reduce over bytes. */
void sim_operators_reduce(struct sim_operators *operators, uint32_t gpus, struct sim_curve *curve);

/* Dispatch and combine over tokens of each rank. */
void sim_operators_exchange(struct sim_operators *operators, uint32_t ranks,
                            struct sim_curve *curve);

/* Attention of one layer in decode, `heads` query heads of all queries of a sequence. */
double sim_decode_times_at(const struct sim_decode_times *times, double heads, double sequences,
                           double context, bool *beyond);

#endif
