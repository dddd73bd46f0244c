#include "cost_roofline.h"

#include <halage/base.h>

/* Shares of the peak that large operators reach, and the start of one. ai-dynamo/aiconfigurator
 * @095f58a5, systems/h200_sxm.yaml: memory and start; its H200 kernel tables: the rest. */
#define MEMORY_SHARE    0.8
#define START_NS        3000.0
#define FP8_SHARE       0.6
#define BF16_SHARE      0.73
#define ATTENTION_SHARE 0.62 /* alibaba/InferSim @f2293dab: FA3 on H800 from 4k tokens on */
#define SCALEUP_SHARE   0.65

#define NS_PER_S 1e9

static double max(double a, double b)
{
    return a > b ? a : b;
}

double sim_dtype_bytes(enum sim_dtype dtype)
{
    switch (dtype) {
    case SIM_BF16:
        return 2.0;
    case SIM_FP8:
        return 1.0;
    case SIM_FP4:
        return 0.5625; /* 4 bits, and 8 of scale for each 16 */
    case SIM_MXFP4:
        return 0.53125; /* 4 bits, and 8 of scale for each 32 */
    }
    hlg_unreachable();
}

/* What the tensor cores do with such weights; a GPU without the type computes in bf16. */
static double flops(const struct sim_gpu *gpu, enum sim_dtype dtype)
{
    if (dtype == SIM_FP8 && gpu->fp8_flops > 0.0) {
        return gpu->fp8_flops * FP8_SHARE;
    }
    if (dtype == SIM_FP4 && gpu->fp4_flops > 0.0) {
        return gpu->fp4_flops * FP8_SHARE;
    }
    return gpu->bf16_flops * BF16_SHARE;
}

static double memory_ns(const struct sim_gpu *gpu, double bytes)
{
    return bytes * NS_PER_S / (gpu->hbm_bandwidth * MEMORY_SHARE);
}

double sim_roofline_gemm_ns(const struct sim_gpu *gpu, enum sim_dtype weights, double m, double n,
                            double k)
{
    const double compute = 2.0 * m * n * k * NS_PER_S / flops(gpu, weights);
    const double bytes = n * k * sim_dtype_bytes(weights) + 2.0 * m * (n + k);
    return max(compute, memory_ns(gpu, bytes)) + START_NS;
}

/* Values that one token leaves in a layer's cache, and multiply-adds of one query with one key. */
static double kv_values(const struct sim_model *model, double kv_heads)
{
    return model->attention == SIM_ATTENTION_MLA
               ? (double)(model->kv_lora_rank + model->qk_rope_head_dim)
               : 2.0 * kv_heads * model->head_dim;
}

double sim_roofline_decode_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                              enum sim_dtype kv, double heads, double kv_heads, double sequences,
                              double context)
{
    /* MLA in absorbed form: the query meets the latent itself. */
    const double pair =
        model->attention == SIM_ATTENTION_MLA
            ? 2.0 * heads * (2.0 * model->kv_lora_rank + (double)model->qk_rope_head_dim)
            : 4.0 * heads * model->head_dim;
    const double compute =
        sequences * context * pair * NS_PER_S / (gpu->bf16_flops * ATTENTION_SHARE);
    const double bytes = sequences * context * kv_values(model, kv_heads) * sim_dtype_bytes(kv);
    return max(compute, memory_ns(gpu, bytes)) + START_NS;
}

double sim_roofline_pair_ns(const struct sim_gpu *gpu, const struct sim_model *model, double heads)
{
    const double per_head =
        model->attention == SIM_ATTENTION_MLA
            ? 2.0 * (model->qk_nope_head_dim + model->qk_rope_head_dim + model->v_head_dim)
            : 4.0 * model->head_dim;
    return heads * per_head * NS_PER_S / (gpu->bf16_flops * ATTENTION_SHARE);
}

double sim_roofline_token_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                             enum sim_dtype kv, double kv_heads)
{
    return memory_ns(gpu, kv_values(model, kv_heads) * sim_dtype_bytes(kv));
}

/* base to a whole power, by squaring: libm's may differ between machines. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent != 0; exponent >>= 1) {
        result *= (exponent & 1) != 0 ? base : 1.0;
        base *= base;
    }
    return result;
}

double sim_roofline_experts_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                               enum sim_dtype weights, double tokens, uint32_t moe_tp, uint32_t ep)
{
    HLG_ASSERT(model->experts > 0 && moe_tp > 0 && ep > 0);
    const double local = (double)model->experts / ep;
    const double missed = 1.0 - (double)model->topk / model->experts;
    const double touched = local * (1.0 - power(missed, (uint64_t)tokens));
    const double weight_count = 3.0 * model->hidden * model->moe_inter / moe_tp;
    const double pairs = tokens * model->topk / ep;
    const double compute = 2.0 * pairs * weight_count * NS_PER_S / flops(gpu, weights);
    const double bytes =
        touched * weight_count * sim_dtype_bytes(weights) + 4.0 * pairs * model->hidden;
    return max(compute, memory_ns(gpu, bytes)) + 2.0 * START_NS;
}

double sim_roofline_reduce_ns(const struct sim_gpu *gpu, uint32_t gpus, double bytes)
{
    const double share = 2.0 * (gpus - 1.0) / gpus;
    return share * bytes * NS_PER_S / (gpu->scaleup_bandwidth * SCALEUP_SHARE) + START_NS;
}

double sim_roofline_exchange_ns(const struct sim_gpu *gpu, const struct sim_model *model,
                                uint32_t ranks, double tokens)
{
    /* One byte a value out, two back. */
    const double bytes = tokens * model->topk * model->hidden * 3.0 * (ranks - 1.0) / ranks;
    return bytes * NS_PER_S / (gpu->scaleup_bandwidth * SCALEUP_SHARE) + 2.0 * START_NS;
}
