/* What the files of the cost model share. */
#ifndef HALAGE_SIM_COST_INTERNAL_H
#define HALAGE_SIM_COST_INTERNAL_H

#include "cost.h"
#include "cost_operator.h"
#include "cost_table.h"

struct sim_cost {
    struct sim_model model;
    struct sim_gpu gpu;
    char engine[16];
    enum sim_dtype weights;
    enum sim_dtype kv;
    uint32_t tp;
    uint32_t dp;
    uint32_t ep;
    uint32_t moe_tp;
    bool draft_module;
    double imbalance; /* of even routing; 1 with the tables' own skew */

    /* All layers together, over the tokens of one rank. */
    struct sim_curve gemm;
    struct sim_curve experts;  /* over the tokens of all ranks */
    struct sim_curve head;     /* over sequences that make a token */
    struct sim_curve reduce;   /* one all-reduce inside a replica, over bytes */
    struct sim_curve gather;   /* one over all ranks: experts cut across replicas */
    struct sim_curve exchange; /* one dispatch and combine, over the tokens of a rank */
    double reduce_count;
    double gather_count;
    double exchange_count;

    /* One layer. */
    struct sim_context_times context;
    struct sim_decode_times decode;

    /* The draft module (MTP): one pass for each drafted token. */
    struct sim_curve draft_gemm;
    double draft_layers;

    double overhead_ns; /* of a step */
    struct sim_step_table *table;
    struct sim_cost_basis basis;
};

/* Whether a model can be cut so. Returns 0, or -HLG_EINVAL with a sentence. */
int sim_cost_check(const struct sim_cost_config *config, char *text, size_t capacity);

/* Fill in the curves of a checked configuration, and what they rest on. */
void sim_cost_measure(struct sim_cost *cost, struct sim_operators *operators);

/* The constants of an engine and what the basis says. Returns 0, or -HLG_EINVAL with a sentence. */
int sim_cost_ground(struct sim_cost *cost, const struct sim_cost_config *config,
                    const struct sim_operators *operators, char *text, size_t capacity);

#endif
