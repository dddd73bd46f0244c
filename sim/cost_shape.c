/* A model cut over ranks, as operators: what cost_internal.h calls checking and measuring. */
#include "cost_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* Side of the blocks that share a scale in fp8 weights. */
#define FP8_BLOCK 128u

#define RANKS_MAX 1024u

__attribute__((format(printf, 3, 4))) static int refuse(char *text, size_t capacity,
                                                        const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, capacity, format, arguments);
    va_end(arguments);
    return -HLG_EINVAL;
}

static bool heads_fit(const struct sim_model *model, uint32_t tp)
{
    return model->heads % tp == 0 && model->dense_inter % tp == 0 &&
           (model->attention != SIM_ATTENTION_GQA || model->kv_heads % tp == 0 ||
            tp % model->kv_heads == 0);
}

static bool experts_fit(const struct sim_cost_config *config, uint32_t ranks, uint32_t ep)
{
    const struct sim_model *model = config->model;
    const uint32_t ways = ranks / ep;

    return model->experts % ep == 0 && model->moe_inter % ways == 0 &&
           (config->weights != SIM_FP8 || (model->moe_inter / ways) % FP8_BLOCK == 0);
}

/* "set ep: 8, or tp: 4": what would do instead, ep being 1 or tp * dp and tp no more than it is. */
static const char *experts_remedy(const struct sim_cost_config *config, char *text, size_t capacity)
{
    const uint32_t ranks = config->tp * config->dp;
    const uint32_t ep = experts_fit(config, ranks, ranks) ? ranks
                        : experts_fit(config, ranks, 1)   ? 1
                                                          : 0;
    uint32_t tp = config->tp - 1;

    while (tp > 0 && !(heads_fit(config->model, tp) && experts_fit(config, tp * config->dp, 1))) {
        tp--;
    }
    if (ep == 0 && tp == 0) {
        return "use other weights or fewer ranks";
    }
    int used = 0;
    if (ep != 0) {
        used = snprintf(text, capacity, "set ep: %" PRIu32, ep);
    }
    if (tp != 0) {
        (void)snprintf(text + used, capacity - (size_t)used, "%stp: %" PRIu32 "%s",
                       ep != 0 ? ", or " : "set ", tp, config->ep != 1 ? " with ep: 1" : "");
    }
    return text;
}

static int check_experts(const struct sim_cost_config *config, char *text, size_t capacity)
{
    const struct sim_model *model = config->model;
    const uint32_t ranks = config->tp * config->dp;
    char remedy[64];

    if (config->ep == 0 || ranks % config->ep != 0) {
        return refuse(text, capacity,
                      "ep: %" PRIu32 ": must divide tp * dp, %" PRIu32
                      ": write one of its divisors",
                      config->ep, ranks);
    }
    if (model->experts == 0) {
        return config->ep == 1
                   ? 0
                   : refuse(text, capacity, "ep: %" PRIu32 ": %s has no experts: write 1",
                            config->ep, model->name);
    }
    if (model->experts % config->ep != 0) {
        return refuse(text, capacity,
                      "ep: %" PRIu32 ": must divide the %" PRIu32 " experts of %s: %s", config->ep,
                      model->experts, model->name, experts_remedy(config, remedy, sizeof remedy));
    }
    const uint32_t moe_tp = ranks / config->ep;
    if (model->moe_inter % moe_tp != 0) {
        return refuse(text, capacity,
                      "ep: %" PRIu32 ": cuts each expert's %" PRIu32 " rows %" PRIu32
                      " ways, which does not divide them: %s",
                      config->ep, model->moe_inter, moe_tp,
                      experts_remedy(config, remedy, sizeof remedy));
    }
    if (config->weights == SIM_FP8 && (model->moe_inter / moe_tp) % FP8_BLOCK != 0) {
        return refuse(text, capacity,
                      "ep: %" PRIu32 ": leaves %" PRIu32 " of each expert's %" PRIu32
                      " rows to a rank, no multiple of the fp8 block of %u: %s",
                      config->ep, model->moe_inter / moe_tp, model->moe_inter, FP8_BLOCK,
                      experts_remedy(config, remedy, sizeof remedy));
    }
    return 0;
}

int sim_cost_check(const struct sim_cost_config *config, char *text, size_t capacity)
{
    const struct sim_model *model = config->model;

    if (config->tp == 0 || config->tp > RANKS_MAX || config->dp == 0 || config->dp > RANKS_MAX ||
        config->tp * config->dp > RANKS_MAX) {
        return refuse(text, capacity,
                      "tp, dp: %" PRIu32 ", %" PRIu32
                      ": write at least 1, their product at most %u",
                      config->tp, config->dp, RANKS_MAX);
    }
    /* As in heads_fit(). */
    if (model->heads % config->tp != 0) {
        return refuse(text, capacity, "tp: %" PRIu32 ": must divide the %" PRIu32 " heads of %s",
                      config->tp, model->heads, model->name);
    }
    if (model->attention == SIM_ATTENTION_GQA && model->kv_heads % config->tp != 0 &&
        config->tp % model->kv_heads != 0) {
        return refuse(text, capacity,
                      "tp: %" PRIu32 ": neither divides the %" PRIu32
                      " KV heads of %s nor is a multiple: write one that is",
                      config->tp, model->kv_heads, model->name);
    }
    if (model->dense_inter % config->tp != 0) {
        return refuse(text, capacity,
                      "tp: %" PRIu32 ": must divide the %" PRIu32 " rows of dense layers of %s",
                      config->tp, model->dense_inter, model->name);
    }
    if (config->weights == SIM_MXFP4 && model->experts == 0) {
        return refuse(text, capacity, "weights: mxfp4: is for experts, and %s has none: write fp4",
                      model->name);
    }
    if (config->kv != SIM_BF16 && config->kv != SIM_FP8) {
        return refuse(text, capacity, "kv: %s: caches are bf16 or fp8: write one of them",
                      sim_dtype_name(config->kv));
    }
    if (config->moe_imbalance != 0.0 &&
        !(config->moe_imbalance >= 1.0 && config->moe_imbalance <= 1024.0)) {
        return refuse(
            text, capacity,
            "moe_imbalance: %g: the hottest rank's load over the mean: write 1 to 1024, or 0 "
            "for the tables' own",
            config->moe_imbalance);
    }
    if (!isfinite(config->step_overhead_ns) || !isfinite(config->layer_overhead_ns)) {
        return refuse(text, capacity,
                      "step_overhead, layer_overhead: %g, %g ns: write a time, or leave them out",
                      config->step_overhead_ns, config->layer_overhead_ns);
    }
    return check_experts(config, text, capacity);
}

/* Under mxfp4 only the routed experts are 4 bits wide. */
static enum sim_dtype dense_dtype(const struct sim_cost *cost)
{
    return cost->weights == SIM_MXFP4 ? SIM_BF16 : cost->weights;
}

static void add_attention(const struct sim_cost *cost, struct sim_operators *operators,
                          double count, struct sim_curve *curve)
{
    const struct sim_model *m = &cost->model;
    const enum sim_dtype dtype = dense_dtype(cost);
    const uint32_t heads = m->heads / cost->tp;

    if (m->attention == SIM_ATTENTION_GQA) {
        const uint32_t kv_heads = hlg_max_u32(1, m->kv_heads / cost->tp);
        sim_operators_add_gemm(operators, dtype, (heads + 2 * kv_heads) * m->head_dim, m->hidden,
                               count, curve);
        sim_operators_add_gemm(operators, dtype, m->hidden, heads * m->head_dim, count, curve);
        return;
    }
    const uint32_t latent = m->kv_lora_rank + m->qk_rope_head_dim;
    const uint32_t query = heads * (m->qk_nope_head_dim + m->qk_rope_head_dim);
    if (m->q_lora_rank > 0) {
        sim_operators_add_gemm(operators, dtype, m->q_lora_rank + latent, m->hidden, count, curve);
        sim_operators_add_gemm(operators, dtype, query, m->q_lora_rank, count, curve);
    } else {
        sim_operators_add_gemm(operators, dtype, query + latent, m->hidden, count, curve);
    }
    /* Absorbed form: queries to the latent and the latent back, a product a head. Charged as one product
     * of as many multiply-adds and bytes. */
    sim_operators_add_gemm(operators, SIM_BF16, m->kv_lora_rank, heads * m->qk_nope_head_dim, count,
                           curve);
    sim_operators_add_gemm(operators, SIM_BF16, m->kv_lora_rank, heads * m->v_head_dim, count,
                           curve);
    sim_operators_add_gemm(operators, dtype, m->hidden, heads * m->v_head_dim, count, curve);
}

static void add_feed_forward(const struct sim_cost *cost, struct sim_operators *operators,
                             uint32_t inter, double count, struct sim_curve *curve)
{
    const enum sim_dtype dtype = dense_dtype(cost);

    sim_operators_add_gemm(operators, dtype, 2 * inter, cost->model.hidden, count, curve);
    sim_operators_add_gemm(operators, dtype, cost->model.hidden, inter, count, curve);
}

/* What an expert layer has besides its routed experts. */
static void add_beside_experts(const struct sim_cost *cost, struct sim_operators *operators,
                               double count, struct sim_curve *curve)
{
    const struct sim_model *m = &cost->model;

    sim_operators_add_gemm(operators, SIM_BF16, m->experts, m->hidden, count, curve);
    if (m->shared_experts > 0) {
        const uint32_t inter = m->shared_experts * m->moe_inter;
        add_feed_forward(cost, operators, hlg_max_u32(1, inter / cost->tp), count, curve);
    }
}

static void measure_products(struct sim_cost *cost, struct sim_operators *operators)
{
    const struct sim_model *m = &cost->model;
    const uint32_t moe_layers = m->experts > 0 ? m->layers - m->dense_layers : 0;
    const uint32_t dense_layers = m->layers - moe_layers;

    add_attention(cost, operators, m->layers, &cost->gemm);
    if (dense_layers > 0) {
        add_feed_forward(cost, operators, m->dense_inter / cost->tp, dense_layers, &cost->gemm);
    }
    if (moe_layers > 0) {
        add_beside_experts(cost, operators, moe_layers, &cost->gemm);
    }
    sim_operators_add_gemm(operators, SIM_BF16, hlg_div_ceil(m->vocab, cost->tp), m->hidden, 1.0,
                           &cost->head);
    if (m->mtp_layers > 0) {
        cost->draft_layers = 1.0;
        sim_operators_add_gemm(operators, dense_dtype(cost), m->hidden, 2 * m->hidden, 1.0,
                               &cost->draft_gemm);
        add_attention(cost, operators, 1.0, &cost->draft_gemm);
        if (moe_layers > 0) {
            add_beside_experts(cost, operators, 1.0, &cost->draft_gemm);
        } else {
            add_feed_forward(cost, operators, m->dense_inter / cost->tp, 1.0, &cost->draft_gemm);
        }
    }
}

static void measure_collectives(struct sim_cost *cost, struct sim_operators *operators)
{
    const struct sim_model *m = &cost->model;
    const uint32_t moe_layers = m->experts > 0 ? m->layers - m->dense_layers : 0;
    const uint32_t dense_layers = m->layers - moe_layers;

    if (cost->tp > 1) {
        /* After attention, after each dense network, and after experts where all ranks hold all tokens. */
        cost->reduce_count = (double)m->layers + dense_layers + (cost->dp == 1 ? moe_layers : 0);
        sim_operators_reduce(operators, cost->tp, &cost->reduce);
    }
    if (cost->dp > 1 && moe_layers > 0 && cost->moe_tp > 1) {
        /* Gather all tokens, reduce and scatter the sums: together one all-reduce. */
        cost->gather_count = moe_layers;
        sim_operators_reduce(operators, cost->tp * cost->dp, &cost->gather);
    }
    if (cost->dp > 1 && cost->ep > 1) {
        cost->exchange_count = moe_layers;
        sim_operators_exchange(operators, cost->ep, &cost->exchange);
    }
}

void sim_cost_measure(struct sim_cost *cost, struct sim_operators *operators)
{
    const struct sim_model *m = &cost->model;
    const uint32_t heads = m->heads / cost->tp;
    const uint32_t kv_heads =
        m->attention == SIM_ATTENTION_MLA ? 1 : hlg_max_u32(1, m->kv_heads / cost->tp);

    measure_products(cost, operators);
    sim_operators_context(operators, heads, kv_heads, &cost->context);
    sim_operators_decode(operators, heads, kv_heads, &cost->decode);
    if (m->experts > 0) {
        const double layers = m->layers - m->dense_layers;
        sim_operators_experts(operators, cost->moe_tp, cost->ep, cost->imbalance == 0.0,
                              cost->dp > 1 && cost->ep > 1, &cost->experts);
        for (uint32_t i = 0; i < cost->experts.count; i++) {
            cost->experts.ns[i] *= layers;
        }
    }
    measure_collectives(cost, operators);
}
