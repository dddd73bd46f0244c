/* The memory part of cost.h. */
#include "cost_internal.h"

#include <stdio.h>

/* ai-dynamo/aiconfigurator @095f58a5, systems/h200_sxm.yaml: other_mem (graphs, workspaces, the CUDA
 * context) and nccl_mem of 8 GPUs, in bytes. */
#define RUNTIME_BYTES       3758096384.0
#define COMMUNICATION_BYTES 411041792.0

/* Prompt tokens of a step that activations are kept for: the default budget of vLLM and SGLang. */
#define STEP_TOKENS 8192.0

#define GIB 1073741824.0

/* Live at a time in a layer, bf16: residual, its normed copy, the widest product's input and output, and
 * the result. Our own count. */
static double activation_bytes(const struct sim_cost *cost)
{
    const struct sim_model *m = &cost->model;
    const double head_dim =
        m->attention == SIM_ATTENTION_MLA ? m->qk_nope_head_dim + m->qk_rope_head_dim : m->head_dim;
    const double heads = (double)m->heads / cost->tp * head_dim;
    const double dense = m->dense_layers > 0 ? 3.0 * m->dense_inter / cost->tp : 0.0;
    const double experts =
        m->experts > 0
            ? 3.0 * m->moe_inter / cost->moe_tp * m->topk * cost->dp / cost->ep + 2.0 * m->hidden
            : 0.0;
    double widest = 2.0 * heads;

    widest = dense > widest ? dense : widest;
    widest = experts > widest ? experts : widest;
    return STEP_TOKENS * 2.0 * (3.0 * m->hidden + widest);
}

/* The MTP module is taken to be spread over all GPUs: nearly all of it is experts. */
static double weight_bytes(const struct sim_cost *cost)
{
    const double model = (double)sim_model_rank_weight_bytes(&cost->model, cost->weights, cost->tp,
                                                             cost->dp, cost->ep);
    const double draft =
        cost->draft_module ? (double)sim_model_mtp_weight_bytes(&cost->model, cost->weights) : 0.0;
    return model + draft / (cost->tp * cost->dp);
}

uint64_t sim_cost_kv_tokens(const struct sim_cost *cost, double memory_fraction, char *text,
                            size_t capacity)
{
    HLG_ASSERT(memory_fraction > 0.0 && memory_fraction <= 1.0);
    const double total = (double)cost->gpu.hbm_bytes * memory_fraction;
    const double weights = weight_bytes(cost);
    const double other = activation_bytes(cost) + RUNTIME_BYTES +
                         (cost->tp * cost->dp > 1 ? COMMUNICATION_BYTES : 0.0);
    /* Beyond a window a token costs the layers without one alone. */
    const uint64_t window = cost->model.window_tokens;
    const double token =
        (double)(sim_model_rank_kv_bytes(&cost->model, cost->kv, cost->tp, window + 1) -
                 sim_model_rank_kv_bytes(&cost->model, cost->kv, cost->tp, window));
    const double room = total - weights - other;

    if (room < token || room <= 0.0) {
        (void)snprintf(
            text, capacity,
            "%s on %s: weights %.1f GiB and %.1f GiB of activations and runtime on each "
            "GPU, %.1f GiB missing of the %.1f GiB that a fraction of %g allows: use more "
            "GPUs or smaller weights",
            cost->model.name, cost->gpu.name, weights / GIB, other / GIB, (token - room) / GIB,
            total / GIB, memory_fraction);
        return 0;
    }
    return token > 0.0 ? (uint64_t)(room / token) : UINT64_MAX;
}
