/*
 * The shape of a model, as far as time and memory depend on it: a catalogue of public ones, a reader
 * of Hugging Face's config.json, and what follows from a shape: parameters, bytes, the KV layout.
 */
#ifndef HALAGE_SIM_MODEL_H
#define HALAGE_SIM_MODEL_H

#include <halage/base.h>
#include <halage/layout.h>

enum sim_dtype {
    SIM_BF16, /* 16 bits a value; float16 counts as the same */
    SIM_FP8,  /* 8 bits; block scales (0.02 % at 128 x 128) are left out */
    SIM_FP4,  /* NVFP4: 4 bits, and of weights 8 of scale for each 16, so 4.5 */
    SIM_MXFP4, /* of routed experts alone: 4 bits and 8 of scale for each 32, so 4.25; the rest bf16 */
};

enum sim_attention {
    SIM_ATTENTION_GQA, /* K and V of kv_heads heads; kv_heads == heads is MHA, 1 is MQA */
    SIM_ATTENTION_MLA, /* one latent vector of kv_lora_rank + qk_rope_head_dim values a token */
};

struct sim_model {
    char name[64];
    uint64_t window_bits[4]; /* bit i of word i / 64: layer i attends to the last tokens only */
    enum sim_attention attention;
    enum sim_dtype weights; /* as published */
    uint32_t layers;        /* 1..HLG_LAYERS_MAX; without the MTP module's */
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
    uint32_t max_context;     /* tokens */
    uint32_t window_layers;   /* those in window_bits */
    uint32_t window_tokens;   /* 0 without window layers */
    bool is_embedding_shared; /* output head and input embedding are one matrix */
};

/* The catalogue: in a fixed order, NULL past its end. */
const struct sim_model *sim_model_at(uint32_t index);
/* By name, letter case aside. NULL when there is none. */
const struct sim_model *sim_model_find(const char *name);

/*
 * Read Hugging Face's config.json: model_type deepseek_v2, deepseek_v3, kimi_k2, qwen2, qwen3, qwen3_moe,
 * llama, mistral, mixtral, gpt_oss. The name is the file's directory, else the model_type.
 *
 * text  [capacity] on error one sentence naming file, key, value and remedy
 *
 * Returns 0, -HLG_EINVAL (what it says) or -HLG_EIO (it cannot be read); *model is written on success
 * alone, and passes sim_model_check(). Reads at most 4 MiB.
 */
int sim_model_read(struct sim_model *model, const char *path, char *text, size_t capacity);

/* Whether the numbers can be a model. Returns 0, or -HLG_EINVAL with a sentence. What follows needs it. */
int sim_model_check(const struct sim_model *model, char *text, size_t capacity);

/* Parameters of the whole model less its MTP module, and those that one token goes through (input
 * embedding left out). Norms and biases, below 0.01 %, are not counted. */
uint64_t sim_model_parameters(const struct sim_model *model);
uint64_t sim_model_active_parameters(const struct sim_model *model);

/* Parts of these: attention of a layer, one expert, the experts' router of a layer, the feed-forward
 * network of a dense layer, embedding and head together. */
uint64_t sim_model_attention_parameters(const struct sim_model *model);
uint64_t sim_model_expert_parameters(const struct sim_model *model);
uint64_t sim_model_router_parameters(const struct sim_model *model);
uint64_t sim_model_dense_parameters(const struct sim_model *model);
uint64_t sim_model_embedding_parameters(const struct sim_model *model);

/* Bytes of weights of the whole model less its MTP module. Embeddings, head and router stay bf16 under
 * fp8 and fp4, and all but routed experts under mxfp4. */
uint64_t sim_model_weight_bytes(const struct sim_model *model, enum sim_dtype weights);

/* Bytes of the MTP module: its layers, each a last layer of the model and a projection of 2 x hidden by
 * hidden; embedding and head are the model's own. 0 without one. */
uint64_t sim_model_mtp_weight_bytes(const struct sim_model *model, enum sim_dtype weights);

/*
 * Bytes of weights that the fullest of `tp * dp` GPUs holds, without the MTP module.
 *
 * Attention, dense layers, shared experts, embedding and head are split over tp and copied over dp; K and
 * V projections are copied beyond kv_heads ranks, MLA's down-projections and the router always. Routed
 * experts are spread over ep ranks and each cut by tp * dp / ep; ep divides tp * dp.
 */
uint64_t sim_model_rank_weight_bytes(const struct sim_model *model, enum sim_dtype weights,
                                     uint32_t tp, uint32_t dp, uint32_t ep);

/* KV bytes of one token over all layers that keep it, of one copy; windows aside. */
uint64_t sim_model_kv_bytes_per_token(const struct sim_model *model, enum sim_dtype kv);

/* KV bytes of one token in one layer, of one copy. */
uint64_t sim_model_kv_bytes_per_layer(const struct sim_model *model, enum sim_dtype kv);

/* KV bytes of a sequence, of one copy: windows hold min(tokens, window_tokens), all other layers
 * every token. */
uint64_t sim_model_kv_bytes(const struct sim_model *model, enum sim_dtype kv, uint64_t tokens);

/*
 * KV bytes of `tokens` tokens at one of tp ranks: MLA's latent is copied to each, K and V are split up
 * to kv_heads ranks and copied beyond. As sim_model_kv_bytes() otherwise.
 */
uint64_t sim_model_rank_kv_bytes(const struct sim_model *model, enum sim_dtype kv, uint32_t tp,
                                 uint64_t tokens);

/*
 * The KV layout of a node: planes, heads, bytes; group 0 all layers that keep every token, then, if there
 * are any, a group of window layers, then, if context_bytes is not 0, a context group that all ranks
 * hold whole. One stage, all_reduce. Each page_count is 1: the caller sets it.
 *
 * Returns 0 with *layout accepted by hlg_layout_check(), or -HLG_EINVAL with a sentence in text
 * [capacity]: a TP that the KV heads refuse, a page size out of range.
 */
int sim_model_layout(const struct sim_model *model, enum sim_dtype kv, uint32_t tp, uint32_t pools,
                     uint32_t page_tokens, enum hlg_arrangement arrangement, uint32_t context_bytes,
                     struct hlg_layout *layout, char *text, size_t capacity);

/* "bf16", "fp8", "fp4", "mxfp4"; found letter case aside. */
const char *sim_dtype_name(enum sim_dtype dtype);
bool sim_dtype_find(const char *name, enum sim_dtype *dtype);

#endif
