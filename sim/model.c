#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#define EVERY_OTHER UINT64_C(0x5555555555555555) /* layers 0, 2, 4, ... */

/*
 * Shapes are those of the models' published config.json, taken over from ai-dynamo/aiconfigurator
 * @095f58a5, aic-core/src/aiconfigurator_core/model_configs/<organisation--name>_config.json. Each
 * row's comment names the Hugging Face repository. tests/unit/test_model.c holds parameter totals
 * and KV bytes against the vendors' model cards.
 */
static const struct sim_model models[] = {
    /* deepseek-ai/DeepSeek-R1; DeepSeek-V3, V3-0324 and V3.1 have the same shape */
    {.name = "DeepSeek-R1",
     .attention = SIM_ATTENTION_MLA,
     .weights = SIM_FP8,
     .layers = 61,
     .hidden = 7168,
     .heads = 128,
     .kv_heads = 1,
     .q_lora_rank = 1536,
     .kv_lora_rank = 512,
     .qk_nope_head_dim = 128,
     .qk_rope_head_dim = 64,
     .v_head_dim = 128,
     .dense_layers = 3,
     .dense_inter = 18432,
     .experts = 256,
     .topk = 8,
     .shared_experts = 1,
     .moe_inter = 2048,
     .vocab = 129280,
     .mtp_layers = 1,
     .max_context = 163840},
    /* moonshotai/Kimi-K2-Instruct */
    {.name = "Kimi-K2-Instruct",
     .attention = SIM_ATTENTION_MLA,
     .weights = SIM_FP8,
     .layers = 61,
     .hidden = 7168,
     .heads = 64,
     .kv_heads = 1,
     .q_lora_rank = 1536,
     .kv_lora_rank = 512,
     .qk_nope_head_dim = 128,
     .qk_rope_head_dim = 64,
     .v_head_dim = 128,
     .dense_layers = 1,
     .dense_inter = 18432,
     .experts = 384,
     .topk = 8,
     .shared_experts = 1,
     .moe_inter = 2048,
     .vocab = 163840,
     .max_context = 131072},
    /* Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 */
    {.name = "Qwen3-Coder-480B-A35B-Instruct",
     .weights = SIM_FP8,
     .layers = 62,
     .hidden = 6144,
     .heads = 96,
     .kv_heads = 8,
     .head_dim = 128,
     .experts = 160,
     .topk = 8,
     .moe_inter = 2560,
     .vocab = 151936,
     .max_context = 262144},
    /* Qwen/Qwen3-235B-A22B-FP8 */
    {.name = "Qwen3-235B-A22B",
     .weights = SIM_FP8,
     .layers = 94,
     .hidden = 4096,
     .heads = 64,
     .kv_heads = 4,
     .head_dim = 128,
     .experts = 128,
     .topk = 8,
     .moe_inter = 1536,
     .vocab = 151936,
     .max_context = 40960},
    /* Qwen/Qwen3-30B-A3B */
    {.name = "Qwen3-30B-A3B",
     .layers = 48,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .experts = 128,
     .topk = 8,
     .moe_inter = 768,
     .vocab = 151936,
     .max_context = 40960},
    /* Qwen/Qwen3-32B */
    {.name = "Qwen3-32B",
     .layers = 64,
     .hidden = 5120,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .dense_layers = 64,
     .dense_inter = 25600,
     .vocab = 151936,
     .max_context = 40960},
    /* Qwen/Qwen3-8B */
    {.name = "Qwen3-8B",
     .layers = 36,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .dense_layers = 36,
     .dense_inter = 12288,
     .vocab = 151936,
     .max_context = 40960},
    /* meta-llama/Llama-3.1-405B-Instruct */
    {.name = "Llama-3.1-405B",
     .layers = 126,
     .hidden = 16384,
     .heads = 128,
     .kv_heads = 8,
     .head_dim = 128,
     .dense_layers = 126,
     .dense_inter = 53248,
     .vocab = 128256,
     .max_context = 131072},
    /* meta-llama/Llama-3.1-70B-Instruct; Llama-3.3-70B has the same shape */
    {.name = "Llama-3.1-70B",
     .layers = 80,
     .hidden = 8192,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .dense_layers = 80,
     .dense_inter = 28672,
     .vocab = 128256,
     .max_context = 131072},
    /* meta-llama/Llama-3.1-8B-Instruct */
    {.name = "Llama-3.1-8B",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .dense_layers = 32,
     .dense_inter = 14336,
     .vocab = 128256,
     .max_context = 131072},
    /* openai/gpt-oss-120b */
    {.name = "gpt-oss-120b",
     .weights = SIM_MXFP4,
     .layers = 36,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .experts = 128,
     .topk = 4,
     .moe_inter = 2880,
     .vocab = 201088,
     .max_context = 131072,
     .window_layers = 18,
     .window_tokens = 128,
     .window_bits = {EVERY_OTHER & ((UINT64_C(1) << 36) - 1)}},
    /* openai/gpt-oss-20b */
    {.name = "gpt-oss-20b",
     .weights = SIM_MXFP4,
     .layers = 24,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .experts = 32,
     .topk = 4,
     .moe_inter = 2880,
     .vocab = 201088,
     .max_context = 131072,
     .window_layers = 12,
     .window_tokens = 128,
     .window_bits = {EVERY_OTHER & ((UINT64_C(1) << 24) - 1)}},
    /* mistralai/Mixtral-8x7B-v0.1 */
    {.name = "Mixtral-8x7B",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .experts = 8,
     .topk = 2,
     .moe_inter = 14336,
     .vocab = 32000,
     .max_context = 32768},
};

#define MODELS (sizeof models / sizeof models[0])

const struct sim_model *sim_model_at(uint32_t index)
{
    return index < MODELS ? &models[index] : NULL;
}

const struct sim_model *sim_model_find(const char *name)
{
    for (uint32_t i = 0; i < MODELS; i++) {
        if (strcasecmp(models[i].name, name) == 0) {
            return &models[i];
        }
    }
    return NULL;
}

static const char *const dtype_names[] = {"bf16", "fp8", "fp4", "mxfp4"};

#define DTYPES (sizeof dtype_names / sizeof dtype_names[0])

const char *sim_dtype_name(enum sim_dtype dtype)
{
    HLG_ASSERT((uint32_t)dtype < DTYPES);
    return dtype_names[dtype];
}

bool sim_dtype_find(const char *name, enum sim_dtype *dtype)
{
    for (uint32_t i = 0; i < DTYPES; i++) {
        if (strcasecmp(dtype_names[i], name) == 0) {
            *dtype = (enum sim_dtype)i;
            return true;
        }
    }
    return false;
}

/* A number of a model, and between what it must lie. */
struct range {
    const char *key;
    uint32_t value;
    uint32_t min;
    uint32_t max;
};

/* Bounds far beyond any model, so that products fit in 64 bits; PARAMETERS_MAX bounds the sum. */
#define WIDTH_MAX      (1u << 17) /* of hidden states, and heads x dimensions */
#define INTER_MAX      (1u << 20)
#define HEADS_MAX      (1u << 12)
#define HEAD_DIM_MAX   (1u << 12)
#define EXPERTS_MAX    (1u << 14)
#define VOCAB_MAX      (1u << 24)
#define PARAMETERS_MAX 1e15

static int check_ranges(const struct sim_model *model, const struct range *ranges, uint32_t count,
                        char *text, size_t capacity)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct range *const range = &ranges[i];
        if (range->value < range->min || range->value > range->max) {
            (void)snprintf(text, capacity,
                           "model %s: %s: %" PRIu32 ": must be %" PRIu32 " to %" PRIu32,
                           model->name, range->key, range->value, range->min, range->max);
            return -HLG_EINVAL;
        }
    }
    return 0;
}

static int check_attention(const struct sim_model *m, char *text, size_t capacity)
{
    const bool is_mla = m->attention == SIM_ATTENTION_MLA;
    const uint32_t most = is_mla ? WIDTH_MAX : 0;
    const uint32_t least = is_mla ? 1 : 0;
    const struct range ranges[] = {
        {"heads", m->heads, 1, HEADS_MAX},
        {"kv_heads", m->kv_heads, 1, is_mla ? 1 : m->heads},
        {"head_dim", m->head_dim, is_mla ? 0 : 1, HEAD_DIM_MAX},
        {"q_lora_rank", m->q_lora_rank, 0, most},
        {"kv_lora_rank", m->kv_lora_rank, least, most},
        {"qk_nope_head_dim", m->qk_nope_head_dim, least, is_mla ? HEAD_DIM_MAX : 0},
        {"qk_rope_head_dim", m->qk_rope_head_dim, least, is_mla ? HEAD_DIM_MAX : 0},
        {"v_head_dim", m->v_head_dim, least, is_mla ? HEAD_DIM_MAX : 0},
    };
    const int rc = check_ranges(m, ranges, sizeof ranges / sizeof ranges[0], text, capacity);
    if (rc == 0 && m->heads % m->kv_heads != 0) {
        (void)snprintf(text, capacity,
                       "model %s: kv_heads: %" PRIu32 ": must divide heads, %" PRIu32, m->name,
                       m->kv_heads, m->heads);
        return -HLG_EINVAL;
    }
    return rc;
}

static int check_windows(const struct sim_model *m, char *text, size_t capacity)
{
    uint32_t count = 0;
    uint32_t last = 0;
    for (uint32_t bit = 0; bit < 256; bit++) {
        if (((m->window_bits[bit / 64] >> (bit % 64)) & 1u) != 0) {
            count++;
            last = bit;
        }
    }
    if (count != m->window_layers || (count != 0 && last >= m->layers)) {
        (void)snprintf(text, capacity,
                       "model %s: window_layers: %" PRIu32 ": %" PRIu32
                       " are marked, the last is %" PRIu32 ": mark as many, below %" PRIu32,
                       m->name, m->window_layers, count, last, m->layers);
        return -HLG_EINVAL;
    }
    return 0;
}

/* In floating point, since the sum may not fit. */
static double estimate_parameters(const struct sim_model *m)
{
    const double ffn = 3.0 * m->hidden * m->moe_inter * ((double)m->experts + m->shared_experts);
    const double width = m->attention == SIM_ATTENTION_MLA
                             ? (double)m->qk_nope_head_dim + m->qk_rope_head_dim + m->v_head_dim
                             : (double)m->head_dim;
    const double attention =
        4.0 * m->heads * width * ((double)m->hidden + m->q_lora_rank + m->kv_lora_rank);
    return (m->layers + (double)m->mtp_layers) *
               (ffn + attention + 3.0 * m->hidden * m->dense_inter) +
           2.0 * m->vocab * m->hidden;
}

int sim_model_check(const struct sim_model *m, char *text, size_t capacity)
{
    const bool is_moe = m->experts != 0;
    const struct range ranges[] = {
        {"layers", m->layers, 1, HLG_LAYERS_MAX},
        {"hidden", m->hidden, 1, WIDTH_MAX},
        {"vocab", m->vocab, 1, VOCAB_MAX},
        {"max_context", m->max_context, 1, HLG_TOKENS_MAX},
        {"experts", m->experts, 0, EXPERTS_MAX},
        {"dense_layers", m->dense_layers, is_moe ? 0 : m->layers, m->layers},
        {"dense_inter", m->dense_inter, m->dense_layers != 0, INTER_MAX},
        {"topk", m->topk, is_moe, m->experts},
        {"moe_inter", m->moe_inter, is_moe, INTER_MAX},
        {"shared_experts", m->shared_experts, 0, is_moe ? 64 : 0},
        {"mtp_layers", m->mtp_layers, 0, 16},
        {"window_layers", m->window_layers, 0, m->layers},
        {"window_tokens", m->window_tokens, m->window_layers != 0, HLG_TOKENS_MAX},
    };
    if (m->layers == 0) {
        (void)snprintf(text, capacity,
                       "model %s: has no layers, and is none of 'halage-sim list models': name one "
                       "of these, or give "
                       "its config, or its own keys from layers on",
                       m->name);
        return -HLG_EINVAL;
    }
    int rc = check_ranges(m, ranges, sizeof ranges / sizeof ranges[0], text, capacity);
    rc = rc == 0 ? check_attention(m, text, capacity) : rc;
    rc = rc == 0 ? check_windows(m, text, capacity) : rc;
    if (rc == 0 && estimate_parameters(m) > PARAMETERS_MAX) {
        (void)snprintf(text, capacity,
                       "model %s: some %.3g parameters: must be below %.0g: check its widths and "
                       "counts",
                       m->name, estimate_parameters(m), PARAMETERS_MAX);
        return -HLG_EINVAL;
    }
    return rc;
}
