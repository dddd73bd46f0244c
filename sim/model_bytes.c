/* What follows from a model's shape: parameters, bytes of weights and of KV, the KV layout. */
#include "model.h"

#include <halage/refusal.h>

#include <stdio.h>

static uint64_t ceil_u64(uint64_t a, uint64_t b)
{
    HLG_ASSERT(b != 0);
    return a / b + (a % b != 0);
}

/* MLA's projections that every TP rank holds whole: queries and keys down to their latents. */
static uint64_t mla_down_parameters(const struct sim_model *m)
{
    return (uint64_t)m->hidden * (m->q_lora_rank + m->kv_lora_rank + m->qk_rope_head_dim);
}

/* MLA's projections of single heads: queries, keys and values up, the output. */
static uint64_t mla_head_parameters(const struct sim_model *m)
{
    const uint64_t query = m->q_lora_rank != 0 ? m->q_lora_rank : m->hidden;
    return query * (m->qk_nope_head_dim + m->qk_rope_head_dim) +
           (uint64_t)m->kv_lora_rank * (m->qk_nope_head_dim + m->v_head_dim) +
           (uint64_t)m->v_head_dim * m->hidden;
}

/* A query head and its part of the output projection, or a K and a V head: the same number. */
static uint64_t gqa_head_parameters(const struct sim_model *m)
{
    return 2 * (uint64_t)m->hidden * m->head_dim;
}

uint64_t sim_model_attention_parameters(const struct sim_model *m)
{
    return m->attention == SIM_ATTENTION_MLA
               ? mla_down_parameters(m) + m->heads * mla_head_parameters(m)
               : (m->heads + m->kv_heads) * gqa_head_parameters(m);
}

uint64_t sim_model_expert_parameters(const struct sim_model *m)
{
    return 3 * (uint64_t)m->hidden * m->moe_inter;
}

uint64_t sim_model_router_parameters(const struct sim_model *m)
{
    return (uint64_t)m->hidden * m->experts;
}

uint64_t sim_model_dense_parameters(const struct sim_model *m)
{
    return 3 * (uint64_t)m->hidden * m->dense_inter;
}

uint64_t sim_model_embedding_parameters(const struct sim_model *m)
{
    return (m->is_embedding_shared ? 1 : 2) * (uint64_t)m->vocab * m->hidden;
}

static uint64_t moe_layers(const struct sim_model *m)
{
    HLG_ASSERT(m->dense_layers <= m->layers);
    return m->layers - m->dense_layers;
}

uint64_t sim_model_parameters(const struct sim_model *m)
{
    const uint64_t experts = (uint64_t)m->experts + m->shared_experts;
    return m->layers * sim_model_attention_parameters(m) +
           m->dense_layers * sim_model_dense_parameters(m) +
           moe_layers(m) *
               (experts * sim_model_expert_parameters(m) + sim_model_router_parameters(m)) +
           sim_model_embedding_parameters(m);
}

uint64_t sim_model_active_parameters(const struct sim_model *m)
{
    const uint64_t idle = (uint64_t)(m->experts - m->topk) * sim_model_expert_parameters(m);
    const uint64_t input = m->is_embedding_shared ? 0 : (uint64_t)m->vocab * m->hidden;
    return sim_model_parameters(m) - input - moe_layers(m) * idle;
}

/* Bytes of weights of a type; half bits of a lone weight are rounded up. */
static uint64_t bytes_of(uint64_t parameters, enum sim_dtype dtype)
{
    switch (dtype) {
    case SIM_BF16:
        return 2 * parameters;
    case SIM_FP8:
        return parameters;
    case SIM_FP4:
        return ceil_u64(9 * parameters, 16);
    case SIM_MXFP4:
        return ceil_u64(17 * parameters, 32);
    }
    hlg_unreachable();
}

/* The type of all linear layers but the routed experts. */
static enum sim_dtype linear_dtype(enum sim_dtype weights)
{
    return weights == SIM_MXFP4 ? SIM_BF16 : weights;
}

uint64_t sim_model_weight_bytes(const struct sim_model *m, enum sim_dtype weights)
{
    const uint64_t expert = sim_model_expert_parameters(m);
    const uint64_t linear = m->layers * sim_model_attention_parameters(m) +
                            m->dense_layers * sim_model_dense_parameters(m) +
                            moe_layers(m) * m->shared_experts * expert;
    const uint64_t bf16 =
        moe_layers(m) * sim_model_router_parameters(m) + sim_model_embedding_parameters(m);
    return bytes_of(moe_layers(m) * m->experts * expert, weights) +
           bytes_of(linear, linear_dtype(weights)) + bytes_of(bf16, SIM_BF16);
}

uint64_t sim_model_mtp_weight_bytes(const struct sim_model *m, enum sim_dtype weights)
{
    const uint64_t expert = sim_model_expert_parameters(m);
    const uint64_t ffn =
        m->experts != 0 ? m->shared_experts * expert : sim_model_dense_parameters(m);
    const uint64_t linear = sim_model_attention_parameters(m) + ffn + 2ull * m->hidden * m->hidden;
    return m->mtp_layers *
           (bytes_of(m->experts * expert, weights) + bytes_of(linear, linear_dtype(weights)) +
            bytes_of(sim_model_router_parameters(m), SIM_BF16));
}

/* Attention of a layer at one of tp ranks. */
static uint64_t rank_attention_parameters(const struct sim_model *m, uint32_t tp)
{
    const uint64_t heads = hlg_div_ceil(m->heads, tp);
    return m->attention == SIM_ATTENTION_MLA
               ? mla_down_parameters(m) + heads * mla_head_parameters(m)
               : (heads + hlg_div_ceil(m->kv_heads, tp)) * gqa_head_parameters(m);
}

uint64_t sim_model_rank_weight_bytes(const struct sim_model *m, enum sim_dtype weights, uint32_t tp,
                                     uint32_t dp, uint32_t ep)
{
    HLG_ASSERT(tp != 0 && dp != 0 && ep != 0);
    HLG_ASSERT((uint64_t)tp * dp % ep == 0);

    const uint64_t cut = (uint64_t)tp * dp / ep;
    const uint64_t expert = sim_model_expert_parameters(m);
    const uint64_t routed = hlg_div_ceil(m->experts, ep) * ceil_u64(expert, cut);
    const uint64_t linear = m->layers * rank_attention_parameters(m, tp) +
                            m->dense_layers * ceil_u64(sim_model_dense_parameters(m), tp) +
                            moe_layers(m) * ceil_u64(m->shared_experts * expert, tp);
    const uint64_t bf16 = moe_layers(m) * sim_model_router_parameters(m) +
                          ceil_u64(sim_model_embedding_parameters(m), tp);
    return bytes_of(moe_layers(m) * routed, weights) + bytes_of(linear, linear_dtype(weights)) +
           bytes_of(bf16, SIM_BF16);
}

/* Bits of one value in the cache; scales of 4-bit caches are not counted. */
static uint32_t kv_bits(enum sim_dtype kv)
{
    switch (kv) {
    case SIM_BF16:
        return 16;
    case SIM_FP8:
        return 8;
    case SIM_FP4:
    case SIM_MXFP4:
        return 4;
    }
    hlg_unreachable();
}

/* Bytes of one head of one token in one plane. */
static uint32_t head_bytes(const struct sim_model *m, enum sim_dtype kv)
{
    const uint32_t values =
        m->attention == SIM_ATTENTION_MLA ? m->kv_lora_rank + m->qk_rope_head_dim : m->head_dim;
    return hlg_div_ceil(values * kv_bits(kv), 8);
}

static uint32_t planes_of(const struct sim_model *m)
{
    return m->attention == SIM_ATTENTION_MLA ? 1 : 2; /* the latent; K and V */
}

uint64_t sim_model_kv_bytes_per_layer(const struct sim_model *m, enum sim_dtype kv)
{
    return (uint64_t)planes_of(m) * m->kv_heads * head_bytes(m, kv);
}

uint64_t sim_model_kv_bytes_per_token(const struct sim_model *m, enum sim_dtype kv)
{
    HLG_ASSERT(m->window_layers <= m->layers);
    return (m->layers - m->window_layers) * sim_model_kv_bytes_per_layer(m, kv);
}

/* Tokens that the layers hold, summed over them. */
static uint64_t layer_tokens(const struct sim_model *m, uint64_t tokens)
{
    const uint64_t window = tokens < m->window_tokens ? tokens : m->window_tokens;
    return (m->layers - m->window_layers) * tokens + m->window_layers * window;
}

uint64_t sim_model_kv_bytes(const struct sim_model *m, enum sim_dtype kv, uint64_t tokens)
{
    return layer_tokens(m, tokens) * sim_model_kv_bytes_per_layer(m, kv);
}

uint64_t sim_model_rank_kv_bytes(const struct sim_model *m, enum sim_dtype kv, uint32_t tp,
                                 uint64_t tokens)
{
    const uint64_t heads = hlg_div_ceil(m->kv_heads, tp);
    return layer_tokens(m, tokens) * planes_of(m) * heads * head_bytes(m, kv);
}

static void set_layers(struct hlg_group *full, struct hlg_group *windows, const struct sim_model *m)
{
    for (uint32_t word = 0; word < 4; word++) {
        const uint32_t below = m->layers > 64 * word ? m->layers - 64 * word : 0;
        const uint64_t all = below >= 64 ? UINT64_MAX : (UINT64_C(1) << below) - 1;
        full->layers[word] = all & ~m->window_bits[word];
        windows->layers[word] = all & m->window_bits[word];
    }
}

int sim_model_layout(const struct sim_model *m, enum sim_dtype kv, uint32_t tp, uint32_t pools,
                     uint32_t page_tokens, enum hlg_arrangement arrangement, uint32_t context_bytes,
                     struct hlg_layout *layout, char *text, size_t capacity)
{
    struct hlg_layout made = {
        .tp = tp,
        .stages = 1,
        .pools = pools,
        .layers = m->layers,
        .stage_limit = {m->layers},
        .rank_limit = tp,
        .all_reduce = 1,
        .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
    };
    struct hlg_group full = {
        .kind = HLG_GROUP_PAGED,
        .planes = planes_of(m),
        .heads = m->kv_heads,
        .head_bytes = head_bytes(m, kv),
        .page_tokens = page_tokens,
        .arrangement = arrangement,
        .page_count = 1,
    };
    struct hlg_group windows = full;
    set_layers(&full, &windows, m);
    if (m->window_layers < m->layers) {
        made.groups[made.group_count++] = full;
    }
    if (m->window_layers > 0) {
        made.groups[made.group_count++] = windows;
    }
    if (context_bytes > 0) {
        made.groups[made.group_count++] = (struct hlg_group){.kind = HLG_GROUP_CONTEXT,
                                                             .planes = 1,
                                                             .heads = 1,
                                                             .head_bytes = context_bytes,
                                                             .page_tokens = 1,
                                                             .page_count = 1};
    }
    struct hlg_refusal why = {0};
    if (hlg_layout_check(&made, &why) != 0) {
        char reason[256];
        (void)hlg_refusal_text(&why, reason, sizeof reason);
        (void)snprintf(text, capacity, "model %s at TP %u, %u pools, pages of %u tokens: %s",
                       m->name, tp, pools, page_tokens, reason);
        return -HLG_EINVAL;
    }
    *layout = made;
    return 0;
}
