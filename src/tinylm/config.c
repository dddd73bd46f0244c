#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Products of fields below their limits are far from 2^64: no size needs an overflow check. */
_Static_assert(sizeof(size_t) == 8, "sizes of tinylm are computed in 64 bits");

struct field_rule {
    uint32_t value;
    uint32_t max;
    uint32_t multiple;
    const char *why;
};

void tlm_assert_failed(void)
{
    abort();
}

size_t tlm_align(size_t bytes)
{
    return (bytes + (TLM_ALIGN - 1)) & ~(size_t)(TLM_ALIGN - 1);
}

void *tlm_arena_take(struct tlm_arena *arena, size_t count)
{
    void *array = arena->base == NULL ? NULL : arena->base + arena->used;

    arena->used += tlm_align(count * sizeof(float));
    return array;
}

int tlm_memory_check(const void *memory, size_t bytes, size_t needed)
{
    if (memory == NULL || (uintptr_t)memory % TLM_ALIGN != 0 || bytes < needed) {
        return TLM_E_MEMORY;
    }
    return 0;
}

void tlm_config_default(enum tlm_attention attention, uint32_t kv_heads, uint64_t seed,
                        struct tlm_config *config)
{
    const int mla = attention == TLM_MLA;

    *config = (struct tlm_config){
        .seed = seed,
        .attention = attention,
        .layers = 4,
        .hidden = 64,
        .kv_heads = mla ? 1 : kv_heads,
        .query_heads = mla ? 8 : 4 * kv_heads,
        .head_dim = 16,
        .latent_dim = mla ? 32 : 0,
        .rope_dim = mla ? 8 : 0,
        .ffn = 128,
        .vocab = 512,
        .context_tokens_max = 512,
        .page_tokens = 16,
        .arrangement = TLM_HND,
        .batch_tokens_max = 512,
        .batch_sequences_max = 64,
    };
}

static const char *fields_refusal(const struct tlm_config *c)
{
    const struct field_rule rules[] = {
        {c->layers, TLM_LAYERS_MAX, 1, "layers must be 1 to 254"},
        {c->hidden, 1 << 14, TLM_LANES, "hidden must be a multiple of 8, 8 to 16384"},
        {c->kv_heads, 256, 1, "kv_heads must be 1 to 256"},
        {c->query_heads, 1 << 12, 1, "query_heads must be 1 to 4096"},
        {c->head_dim, 1 << 10, TLM_LANES, "head_dim must be a multiple of 8, 8 to 1024"},
        {c->ffn, 1 << 16, TLM_LANES, "ffn must be a multiple of 8, 8 to 65536"},
        {c->vocab, 1 << 18, TLM_LANES, "vocab must be a multiple of 8, 8 to 262144"},
        {c->context_tokens_max, TLM_CONTEXT_TOKENS_LIMIT, 1,
         "context_tokens_max must be 1 to 65536"},
        {c->page_tokens, TLM_CONTEXT_TOKENS_LIMIT, 1, "page_tokens must be 1 to 65536"},
        {c->batch_tokens_max, 1 << 20, 1, "batch_tokens_max must be 1 to 1048576"},
        {c->batch_sequences_max, 1 << 16, 1, "batch_sequences_max must be 1 to 65536"},
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct field_rule *rule = &rules[i];

        if (rule->value == 0 || rule->value > rule->max || rule->value % rule->multiple != 0) {
            return rule->why;
        }
    }
    if (c->arrangement != TLM_HND && c->arrangement != TLM_NHD) {
        return "arrangement must be HND or NHD";
    }
    return NULL;
}

static const char *attention_refusal(const struct tlm_config *c)
{
    if (c->attention == TLM_GQA) {
        if (c->latent_dim != 0 || c->rope_dim != 0) {
            return "latent_dim and rope_dim must be 0 with GQA";
        }
        if (c->query_heads % c->kv_heads != 0) {
            return "query_heads must be a multiple of kv_heads";
        }
        return NULL;
    }
    if (c->attention != TLM_MLA) {
        return "attention must be GQA or MLA";
    }
    if (c->kv_heads != 1) {
        return "kv_heads must be 1 with MLA";
    }
    if (c->latent_dim == 0 || c->latent_dim > 4096 || c->latent_dim % TLM_LANES != 0) {
        return "latent_dim must be a multiple of 8, 8 to 4096, with MLA";
    }
    if (c->rope_dim == 0 || c->rope_dim > 1024 || c->rope_dim % TLM_LANES != 0) {
        return "rope_dim must be a multiple of 8, 8 to 1024, with MLA";
    }
    return NULL;
}

static const char *ranks_refusal(const struct tlm_config *c, uint32_t tp)
{
    if (tp == 0 || tp > TLM_RANKS_MAX) {
        return "tp must be 1 to 64";
    }
    if (c->attention == TLM_GQA && tp <= c->kv_heads && c->kv_heads % tp != 0) {
        return "tp must divide kv_heads when it is not larger";
    }
    if (c->attention == TLM_GQA && tp > c->kv_heads && tp % c->kv_heads != 0) {
        return "kv_heads must divide tp when tp is larger";
    }
    if (c->query_heads % tp != 0) {
        return "tp must divide query_heads";
    }
    return NULL;
}

int tlm_config_check(const struct tlm_config *config, uint32_t tp, const char **why)
{
    const char *refusal = fields_refusal(config);

    if (refusal == NULL) {
        refusal = attention_refusal(config);
    }
    if (refusal == NULL) {
        refusal = ranks_refusal(config, tp);
    }
    if (refusal == NULL) {
        return 0;
    }
    if (why != NULL) {
        *why = refusal;
    }
    return TLM_E_CONFIG;
}

int tlm_shape_equal(const struct tlm_config *a, const struct tlm_config *b)
{
    return a->seed == b->seed && a->attention == b->attention && a->layers == b->layers &&
           a->hidden == b->hidden && a->kv_heads == b->kv_heads &&
           a->query_heads == b->query_heads && a->head_dim == b->head_dim &&
           a->latent_dim == b->latent_dim && a->rope_dim == b->rope_dim && a->ffn == b->ffn &&
           a->vocab == b->vocab && a->context_tokens_max == b->context_tokens_max;
}

uint32_t tlm_rotated_dims(const struct tlm_config *config)
{
    return config->attention == TLM_MLA ? config->rope_dim : config->head_dim;
}

uint32_t tlm_planes(const struct tlm_config *config)
{
    return config->attention == TLM_MLA ? 1 : 2;
}

uint32_t tlm_kv_head_count(const struct tlm_config *config, uint32_t tp)
{
    if (config->attention == TLM_MLA || tp > config->kv_heads) {
        return 1;
    }
    TLM_ASSERT(config->kv_heads % tp == 0);
    return config->kv_heads / tp;
}

uint32_t tlm_kv_head_first(const struct tlm_config *config, uint32_t tp, uint32_t rank)
{
    TLM_ASSERT(rank < tp);
    /* Flooring is the mapping: with more ranks than heads, neighbours hold the same head. */
    return config->attention == TLM_MLA ? 0 : rank * config->kv_heads / tp;
}

uint32_t tlm_kv_dim(const struct tlm_config *config)
{
    return config->attention == TLM_MLA ? config->latent_dim + config->rope_dim : config->head_dim;
}

size_t tlm_page_bytes(const struct tlm_config *config, uint32_t tp)
{
    return (size_t)config->page_tokens * tlm_kv_head_count(config, tp) * tlm_kv_dim(config) *
           TLM_ELEMENT_BYTES;
}

size_t tlm_plane_offset(const struct tlm_config *config, uint32_t tp, uint32_t pages,
                        uint32_t layer, uint32_t plane)
{
    TLM_ASSERT(layer < config->layers);
    TLM_ASSERT(plane < tlm_planes(config));
    return ((size_t)layer * tlm_planes(config) + plane) * pages * tlm_page_bytes(config, tp);
}

size_t tlm_kv_bytes(const struct tlm_config *config, uint32_t tp, uint32_t pages)
{
    return (size_t)config->layers * tlm_planes(config) * pages * tlm_page_bytes(config, tp);
}
