#include "internal.h"

#include <math.h>

/* Weight streams: each matrix draws from its own, numbered layer * STREAMS + kind. */
enum {
    STREAM_ATTENTION_NORM,
    STREAM_QUERY,
    STREAM_KEY,
    STREAM_VALUE,
    STREAM_LATENT_NORM,
    STREAM_ABSORB_KEY,
    STREAM_ABSORB_VALUE,
    STREAM_OUTPUT,
    STREAM_MLP_NORM,
    STREAM_GATE,
    STREAM_UP,
    STREAM_DOWN,
    STREAM_EMBEDDING,
    STREAM_POSITION,
    STREAM_FINAL_NORM,
    STREAM_HEAD,
    STREAMS = 16,
};

struct builder {
    struct tlm_arena arena;
    uint64_t seed;
    uint32_t layer;
};

uint64_t tlm_mix(uint64_t value)
{
    /* Source: splitmix64, S. Vigna, public domain, https://prng.di.unimi.it/splitmix64.c */
    uint64_t z = value;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* Uniform in [mean - spread, mean + spread); the generator's 24 bits are exact in a float. */
static const float *draw(struct builder *builder, uint32_t stream, size_t count, float mean,
                         float spread)
{
    float *array = tlm_arena_take(&builder->arena, count);
    uint64_t state = tlm_mix(builder->seed + (uint64_t)builder->layer * STREAMS + stream);

    if (array == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        state += 0x9E3779B97F4A7C15U;
        const int32_t integer = (int32_t)(tlm_mix(state) >> 40) - 0x800000;

        array[i] = mean + spread * ((float)integer * 0x1p-23F);
    }
    return array;
}

/* A matrix whose outputs have `gain` times the standard deviation of its inputs. */
static const float *matrix(struct builder *builder, uint32_t stream, size_t copies, uint32_t in,
                           uint32_t out, float gain)
{
    return draw(builder, stream, copies * in * out, 0, gain * sqrtf(3.0F / (float)in));
}

static void layer_build(struct builder *b, const struct tlm_config *c, struct tlm_layer *layer)
{
    const int mla = c->attention == TLM_MLA;
    const uint32_t query_dim = c->head_dim + c->rope_dim;
    const uint32_t kv_out = c->kv_heads * tlm_kv_dim(c);

    layer->attention_norm = draw(b, STREAM_ATTENTION_NORM, c->hidden, 1, 0.5F);
    layer->query = matrix(b, STREAM_QUERY, 1, c->hidden, c->query_heads * query_dim, 1.5F);
    layer->key = matrix(b, STREAM_KEY, 1, c->hidden, kv_out, 1);
    if (mla) {
        layer->value = NULL;
        layer->latent_norm = draw(b, STREAM_LATENT_NORM, c->latent_dim, 1, 0.5F);
        layer->absorb_key =
            matrix(b, STREAM_ABSORB_KEY, c->query_heads, c->head_dim, c->latent_dim, 1);
        layer->absorb_value =
            matrix(b, STREAM_ABSORB_VALUE, c->query_heads, c->latent_dim, c->head_dim, 1);
    } else {
        layer->value = matrix(b, STREAM_VALUE, 1, c->hidden, kv_out, 1);
        layer->latent_norm = NULL;
        layer->absorb_key = NULL;
        layer->absorb_value = NULL;
    }
    layer->output = matrix(b, STREAM_OUTPUT, 1, c->query_heads * c->head_dim, c->hidden, 2);
    layer->mlp_norm = draw(b, STREAM_MLP_NORM, c->hidden, 1, 0.5F);
    layer->gate = matrix(b, STREAM_GATE, 1, c->hidden, c->ffn, 1.5F);
    layer->up = matrix(b, STREAM_UP, 1, c->hidden, c->ffn, 1);
    layer->down = matrix(b, STREAM_DOWN, 1, c->ffn, c->hidden, 1);
}

/* Lays out the arrays; writes them, too, when the arena has memory. */
static void model_build(struct builder *b, const struct tlm_config *c, struct tlm_model *model)
{
    const uint32_t half = tlm_rotated_dims(c) / 2;
    const size_t table_count = (size_t)c->context_tokens_max * half;

    for (uint32_t l = 0; l < c->layers; l++) {
        b->layer = l;
        layer_build(b, c, &model->layers[l]);
    }
    b->layer = TLM_LAYERS_MAX;
    model->embedding = matrix(b, STREAM_EMBEDDING, c->vocab, 1, c->hidden, 0.58F);
    model->position = matrix(b, STREAM_POSITION, c->context_tokens_max, 1, c->hidden, 0.58F);
    model->final_norm = draw(b, STREAM_FINAL_NORM, c->hidden, 1, 0.5F);
    model->head = matrix(b, STREAM_HEAD, 1, c->hidden, c->vocab, 1);

    float *cosines = tlm_arena_take(&b->arena, table_count);
    float *sines = tlm_arena_take(&b->arena, table_count);

    if (cosines != NULL) {
        tlm_rope_table(cosines, sines, c->context_tokens_max, half);
    }
    model->rope_cos = cosines;
    model->rope_sin = sines;
}

size_t tlm_model_bytes(const struct tlm_config *config)
{
    struct tlm_model model;
    struct builder builder = {.arena = {.used = tlm_align(sizeof(model))}};

    TLM_ASSERT(tlm_config_check(config, 1, NULL) == 0);
    model_build(&builder, config, &model);
    return builder.arena.used;
}

int tlm_model_init(void *memory, size_t bytes, const struct tlm_config *config,
                   struct tlm_model **model)
{
    struct builder builder = {.arena = {.base = memory, .used = tlm_align(sizeof(**model))}};

    if (tlm_config_check(config, 1, NULL) != 0) {
        return TLM_E_CONFIG;
    }
    if (tlm_memory_check(memory, bytes, tlm_model_bytes(config)) != 0) {
        return TLM_E_MEMORY;
    }
    struct tlm_model *made = memory;

    builder.seed = tlm_mix(config->seed);
    made->config = *config;
    model_build(&builder, config, made);
    TLM_ASSERT(builder.arena.used <= bytes);
    *model = made;
    return 0;
}

const struct tlm_config *tlm_model_config(const struct tlm_model *model)
{
    return &model->config;
}
