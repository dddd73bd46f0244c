/*
 * The shape of a model, as far as time and memory depend on it: a catalogue of public ones, and a
 * reader of Hugging Face's config.json.
 */
#ifndef HALAGE_SIM_MODEL_H
#define HALAGE_SIM_MODEL_H

#include <halage/base.h>
#include <halage/layout.h>

enum sim_dtype {
    SIM_BF16,
    SIM_FP8,
    SIM_FP4,
    SIM_MXFP4
};

enum sim_attention {
    SIM_ATTENTION_GQA, /* K and V of kv_heads heads; kv_heads == heads is MHA, 1 is MQA */
    SIM_ATTENTION_MLA, /* one latent vector of kv_lora_rank + qk_rope_head_dim values a token */
};

struct sim_model {
    char name[64];
    enum sim_attention attention;
    enum sim_dtype weights; /* as published */
    uint32_t layers;        /* 1..HLG_LAYERS_MAX */
    uint32_t hidden;
    uint32_t heads;
    uint32_t kv_heads;    /* GQA; 1 for MLA */
    uint32_t head_dim;    /* GQA */
    uint32_t q_lora_rank; /* MLA, as the next four; 0: queries are not compressed */
    uint32_t kv_lora_rank;
    uint32_t qk_nope_head_dim;
    uint32_t qk_rope_head_dim;
    uint32_t v_head_dim;
    uint32_t dense_layers; /* the first ones, without experts; all of a dense model */
    uint32_t dense_inter;
    uint32_t experts; /* 0: dense */
    uint32_t topk;
    uint32_t shared_experts;
    uint32_t moe_inter;
    uint32_t vocab;
    uint32_t mtp_layers;
    uint32_t max_context;   /* tokens */
    uint32_t window_layers; /* layers that attend to the last window_tokens only */
    uint32_t window_tokens;
};

/* The catalogue: in a fixed order, NULL past its end. */
const struct sim_model *sim_model_at(uint32_t index);
/* By name, letter case aside. NULL when there is none. */
const struct sim_model *sim_model_find(const char *name);

/*
 * Read Hugging Face's config.json. `text` [capacity]: on error one sentence naming file, key, value
 * and remedy. Returns 0, -HLG_EINVAL or -HLG_EIO.
 */
int sim_model_read(struct sim_model *model, const char *path, char *text, size_t capacity);

/* Whether the numbers can be a model. Returns 0, or -HLG_EINVAL with a sentence. */
int sim_model_check(const struct sim_model *model, char *text, size_t capacity);

/* Parameters of the whole model, and those that one token goes through (input embedding left out). */
uint64_t sim_model_parameters(const struct sim_model *model);
uint64_t sim_model_active_parameters(const struct sim_model *model);

/* Bytes of weights of the whole model; embeddings, head and router stay bf16 under fp8 and fp4. */
uint64_t sim_model_weight_bytes(const struct sim_model *model, enum sim_dtype weights);

/* Bytes of weights that one of `tp * dp` GPUs holds: attention split over tp and copied over dp,
 * experts over ep (of tp * dp) and moe_tp. */
uint64_t sim_model_rank_weight_bytes(const struct sim_model *model, enum sim_dtype weights,
                                     uint32_t tp, uint32_t dp, uint32_t ep);

/* KV bytes of one token over all layers that keep it, of one copy; windows aside. */
uint64_t sim_model_kv_bytes_per_token(const struct sim_model *model, enum sim_dtype kv);

/*
 * The KV layout of a node: planes, heads, bytes, all layers in one group (two when there are
 * windows), one stage, all_reduce. Contexts: one group of `context_bytes` when that is not 0.
 * Page counts are the caller's to set.
 */
int sim_model_layout(const struct sim_model *model, enum sim_dtype kv, uint32_t tp, uint32_t pools,
                     uint32_t page_tokens, enum hlg_arrangement arrangement, uint32_t context_bytes,
                     struct hlg_layout *layout, char *text, size_t capacity);

const char *sim_dtype_name(enum sim_dtype dtype);
bool sim_dtype_find(const char *name, enum sim_dtype *dtype);

#endif
