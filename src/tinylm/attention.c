/*
 * A rank's share of attention: its KV heads into the pages, its query heads over them.
 *
 * MLA is computed absorbed: queries are taken into the latent's space, so that each head reads the
 * cached rows as they are: keys are the whole row, values its first latent_dim floats.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

float *tlm_kv_page(const struct tlm_rank *rank, uint32_t layer, uint32_t plane, uint32_t page,
                   uint32_t head)
{
    const size_t plane_index = (size_t)layer * tlm_planes(rank->config) + plane;

    TLM_ASSERT(page < rank->pages);
    TLM_ASSERT(head < rank->head_count);
    return rank->kv + plane_index * rank->plane_stride + page * rank->page_stride +
           head * rank->head_stride;
}

/* Put a token's row, [head_count][dim], where its position says. */
static void row_store(const struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t token,
                      uint32_t layer, uint32_t plane, const float *row)
{
    const uint32_t page_tokens = rank->config->page_tokens;
    const uint32_t position = rank->positions[token];
    const uint32_t dim = tlm_kv_dim(rank->config);
    /* Flooring: a position's page is the one that its slot is in. */
    const uint32_t page = batch->sequences[rank->owners[token]].pages[position / page_tokens];

    for (uint32_t head = 0; head < rank->head_count; head++) {
        float *slots = tlm_kv_page(rank, layer, plane, page, head);

        memcpy(slots + position % page_tokens * rank->token_stride, row + (size_t)head * dim,
               dim * sizeof(float));
    }
}

/* One query head of one token over positions 0 .. its own, page by page, in order. */
static void attend(const struct tlm_rank *rank, const struct tlm_sequence *sequence, uint32_t layer,
                   uint32_t head, uint32_t position, const float *query, float scale, float *out)
{
    const struct tlm_config *config = rank->config;
    const int mla = config->attention == TLM_MLA;
    const uint32_t value_plane = mla ? 0 : 1;
    const uint32_t value_dim = mla ? config->latent_dim : config->head_dim;
    const uint32_t limit = position + 1;
    const uint32_t page_tokens = config->page_tokens;

    for (uint32_t begin = 0; begin < limit; begin += page_tokens) {
        const uint32_t count = limit - begin < page_tokens ? limit - begin : page_tokens;
        const uint32_t page = sequence->pages[begin / page_tokens];

        tlm_scores(rank->scores + begin, query, tlm_kv_page(rank, layer, 0, page, head),
                   rank->token_stride, count, tlm_kv_dim(config), scale);
    }
    const float sum = tlm_softmax_numerators(rank->scores, limit);

    memset(out, 0, value_dim * sizeof(float));
    for (uint32_t begin = 0; begin < limit; begin += page_tokens) {
        const uint32_t count = limit - begin < page_tokens ? limit - begin : page_tokens;
        const uint32_t page = sequence->pages[begin / page_tokens];

        tlm_weighted_add(out, rank->scores + begin,
                         tlm_kv_page(rank, layer, value_plane, page, head), rank->token_stride,
                         count, value_dim);
    }
    for (uint32_t d = 0; d < value_dim; d++) {
        out[d] /= sum;
    }
}

static void rotate_at(const struct tlm_rank *rank, float *x, uint32_t position)
{
    const uint32_t half = tlm_rotated_dims(rank->config) / 2;
    const size_t row = (size_t)position * half;

    tlm_rotate(x, rank->model->rope_cos + row, rank->model->rope_sin + row, half);
}

/* Where this rank's heads of a token go among the outputs of all heads. */
static float *gathered_at(const struct tlm_rank *rank, uint32_t token)
{
    const size_t head_dim = rank->config->head_dim;

    return rank->gathered + token * rank->config->query_heads * head_dim +
           rank->query_first * head_dim;
}

static void gqa_project(struct tlm_rank *rank, const struct tlm_layer *layer, uint32_t tokens)
{
    const uint32_t hidden = rank->config->hidden;
    const uint32_t dim = rank->config->head_dim;
    const uint32_t query_width = rank->query_count * dim;
    const uint32_t head_width = rank->head_count * dim;
    const size_t query_skip = (size_t)rank->query_first * dim * hidden; /* heads are whole panels */
    const size_t head_skip = (size_t)rank->head_first * dim * hidden;

    tlm_matmul(rank->query, query_width, rank->normed, hidden, tokens, layer->query + query_skip,
               hidden, query_width);
    tlm_matmul(rank->key, head_width, rank->normed, hidden, tokens, layer->key + head_skip, hidden,
               head_width);
    tlm_matmul(rank->value, head_width, rank->normed, hidden, tokens, layer->value + head_skip,
               hidden, head_width);
}

static void gqa_block(struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t layer,
                      uint32_t begin, uint32_t tokens)
{
    const uint32_t dim = rank->config->head_dim;
    const uint32_t query_width = rank->query_count * dim;
    const uint32_t head_width = rank->head_count * dim;
    const float scale = 1.0F / sqrtf((float)dim);

    gqa_project(rank, &rank->model->layers[layer], tokens);
    for (uint32_t i = 0; i < tokens; i++) {
        float *keys = rank->key + (size_t)i * head_width;

        for (uint32_t head = 0; head < rank->head_count; head++) {
            rotate_at(rank, keys + (size_t)head * dim, rank->positions[begin + i]);
        }
        row_store(rank, batch, begin + i, layer, 0, keys);
        row_store(rank, batch, begin + i, layer, 1, rank->value + (size_t)i * head_width);
    }
    for (uint32_t i = 0; i < tokens; i++) {
        const uint32_t position = rank->positions[begin + i];
        float *out = gathered_at(rank, begin + i);

        for (uint32_t q = 0; q < rank->query_count; q++) {
            float *query = rank->query + (size_t)i * query_width + (size_t)q * dim;
            const uint32_t head = (rank->query_first + q) / rank->group_size - rank->head_first;

            rotate_at(rank, query, position);
            attend(rank, &batch->sequences[rank->owners[begin + i]], layer, head, position, query,
                   scale, out + (size_t)q * dim);
        }
    }
}

/* The latents and rotated keys of a block into the pages. */
static void mla_store(struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t layer,
                      uint32_t begin, uint32_t tokens)
{
    const struct tlm_config *config = rank->config;
    const struct tlm_layer *weights = &rank->model->layers[layer];
    const uint32_t width = tlm_kv_dim(config);

    tlm_matmul(rank->key, width, rank->normed, config->hidden, tokens, weights->key, config->hidden,
               width);
    for (uint32_t i = 0; i < tokens; i++) {
        float *row = rank->key + (size_t)i * width;

        tlm_rmsnorm(row, row, weights->latent_norm, config->latent_dim);
        rotate_at(rank, row + config->latent_dim, rank->positions[begin + i]);
        row_store(rank, batch, begin + i, layer, 0, row);
    }
}

/* The queries of a block, each [latent_dim + rope_dim]. */
static void mla_queries(struct tlm_rank *rank, uint32_t layer, uint32_t begin, uint32_t tokens)
{
    const struct tlm_config *config = rank->config;
    const struct tlm_layer *weights = &rank->model->layers[layer];
    const uint32_t query_dim = config->head_dim + config->rope_dim;
    const uint32_t width = tlm_kv_dim(config);
    const size_t query_stride = (size_t)rank->query_count * query_dim;
    const size_t absorbed_stride = (size_t)rank->query_count * width;
    const size_t absorb_floats = (size_t)config->head_dim * config->latent_dim;

    tlm_matmul(rank->query, query_stride, rank->normed, config->hidden, tokens,
               weights->query + (size_t)rank->query_first * query_dim * config->hidden,
               config->hidden, rank->query_count * query_dim);
    for (uint32_t q = 0; q < rank->query_count; q++) {
        float *query = rank->query + (size_t)q * query_dim;
        float *absorbed = rank->query_absorbed + (size_t)q * width;

        tlm_matmul(absorbed, absorbed_stride, query, query_stride, tokens,
                   weights->absorb_key + (rank->query_first + q) * absorb_floats, config->head_dim,
                   config->latent_dim);
        for (uint32_t i = 0; i < tokens; i++) {
            float *turned = absorbed + i * absorbed_stride + config->latent_dim;

            memcpy(turned, query + i * query_stride + config->head_dim,
                   config->rope_dim * sizeof(float));
            rotate_at(rank, turned, rank->positions[begin + i]);
        }
    }
}

static void mla_block(struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t layer,
                      uint32_t begin, uint32_t tokens)
{
    const struct tlm_config *config = rank->config;
    const size_t latent_stride = (size_t)rank->query_count * config->latent_dim;
    const size_t absorbed_stride = (size_t)rank->query_count * tlm_kv_dim(config);
    const size_t gathered_stride = (size_t)config->query_heads * config->head_dim;
    const size_t absorb_floats = (size_t)config->head_dim * config->latent_dim;
    const float scale = 1.0F / sqrtf((float)(config->head_dim + config->rope_dim));

    mla_store(rank, batch, layer, begin, tokens);
    mla_queries(rank, layer, begin, tokens);
    for (uint32_t i = 0; i < tokens; i++) {
        const struct tlm_sequence *sequence = &batch->sequences[rank->owners[begin + i]];

        for (uint32_t q = 0; q < rank->query_count; q++) {
            attend(rank, sequence, layer, 0, rank->positions[begin + i],
                   rank->query_absorbed + i * absorbed_stride + (size_t)q * tlm_kv_dim(config),
                   scale, rank->latent_out + i * latent_stride + (size_t)q * config->latent_dim);
        }
    }
    for (uint32_t q = 0; q < rank->query_count; q++) {
        tlm_matmul(gathered_at(rank, begin) + (size_t)q * config->head_dim, gathered_stride,
                   rank->latent_out + (size_t)q * config->latent_dim, latent_stride, tokens,
                   rank->model->layers[layer].absorb_value +
                       (rank->query_first + q) * absorb_floats,
                   config->latent_dim, config->head_dim);
    }
}

void tlm_attention_run(struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t layer)
{
    const uint32_t hidden = rank->config->hidden;
    const float *gain = rank->model->layers[layer].attention_norm;

    for (uint32_t begin = 0; begin < rank->token_count; begin += TLM_BLOCK) {
        const uint32_t left = rank->token_count - begin;
        const uint32_t tokens = left < TLM_BLOCK ? left : TLM_BLOCK;

        for (uint32_t i = 0; i < tokens; i++) {
            tlm_rmsnorm(rank->normed + (size_t)i * hidden,
                        rank->hidden + (size_t)(begin + i) * hidden, gain, hidden);
        }
        if (rank->config->attention == TLM_MLA) {
            mla_block(rank, batch, layer, begin, tokens);
        } else {
            gqa_block(rank, batch, layer, begin, tokens);
        }
    }
}
