/*
 * A rank, and one forward pass of it.
 *
 * Attention is sharded by heads. Everything else is sharded by tokens: after the heads' outputs
 * have been gathered, one rank sums them for a token, over all heads in order, whichever ranks
 * computed them. So no sum depends on the number of ranks, and no work is done twice.
 */
#include "internal.h"

#include <string.h>

/* Scratch of a rank whose counts are set; counts bytes only when the arena has no memory. */
static void scratch_build(struct tlm_arena *arena, const struct tlm_config *c,
                          struct tlm_rank *rank)
{
    const size_t block = TLM_BLOCK;
    const size_t heads_width = (size_t)rank->head_count * tlm_kv_dim(c);
    const size_t queries = rank->query_count;

    rank->positions = tlm_arena_take(arena, c->batch_tokens_max);
    rank->owners = tlm_arena_take(arena, c->batch_tokens_max);
    rank->normed = tlm_arena_take(arena, block * c->hidden);
    rank->projected = tlm_arena_take(arena, block * c->hidden);
    rank->query = tlm_arena_take(arena, block * queries * (c->head_dim + c->rope_dim));
    rank->query_absorbed = tlm_arena_take(arena, block * queries * (c->latent_dim + c->rope_dim));
    rank->key = tlm_arena_take(arena, block * heads_width);
    rank->value = tlm_arena_take(arena, block * heads_width);
    rank->latent_out = tlm_arena_take(arena, block * queries * c->latent_dim);
    rank->scores = tlm_arena_take(arena, c->context_tokens_max);
    rank->gate = tlm_arena_take(arena, block * c->ffn);
    rank->up = tlm_arena_take(arena, block * c->ffn);
}

static void heads_set(const struct tlm_config *config, uint32_t tp, uint32_t index,
                      struct tlm_rank *rank)
{
    TLM_ASSERT(config->query_heads % tp == 0);
    rank->index = index;
    rank->query_count = config->query_heads / tp;
    rank->query_first = index * rank->query_count;
    rank->head_count = tlm_kv_head_count(config, tp);
    rank->head_first = tlm_kv_head_first(config, tp, index);
    rank->group_size = config->query_heads / config->kv_heads; /* exact: checked */
}

static void strides_set(const struct tlm_config *config, struct tlm_rank *rank)
{
    const size_t dim = tlm_kv_dim(config);
    const int by_head = config->arrangement == TLM_HND;

    rank->token_stride = by_head ? dim : rank->head_count * dim;
    rank->head_stride = by_head ? config->page_tokens * dim : dim;
    rank->page_stride = config->page_tokens * rank->head_count * dim;
    rank->plane_stride = rank->pages * rank->page_stride;
}

size_t tlm_rank_bytes(const struct tlm_config *config, uint32_t tp)
{
    struct tlm_rank rank;
    struct tlm_arena arena = {.used = tlm_align(sizeof(rank))};

    TLM_ASSERT(tlm_config_check(config, tp, NULL) == 0);
    heads_set(config, tp, 0, &rank);
    scratch_build(&arena, config, &rank);
    return arena.used;
}

int tlm_rank_init(void *memory, size_t bytes, const struct tlm_model *model,
                  struct tlm_group *group, uint32_t index, void *kv, uint32_t pages,
                  struct tlm_rank **rank)
{
    struct tlm_arena arena = {.base = memory, .used = tlm_align(sizeof(**rank))};
    const struct tlm_config *config = &group->config;

    if (!tlm_shape_equal(&model->config, config) || index >= group->ranks) {
        return TLM_E_CONFIG;
    }
    if (tlm_memory_check(memory, bytes, tlm_rank_bytes(config, group->ranks)) != 0) {
        return TLM_E_MEMORY;
    }
    if (kv == NULL || (uintptr_t)kv % TLM_ELEMENT_BYTES != 0) {
        return TLM_E_MEMORY;
    }
    struct tlm_rank *made = memory;

    *made = (struct tlm_rank){
        .model = model,
        .group = group,
        .config = config,
        .hidden = (float *)(void *)((char *)group + group->hidden_offset),
        .gathered = (float *)(void *)((char *)group + group->gathered_offset),
        .kv = kv,
        .pages = pages,
    };
    heads_set(config, group->ranks, index, made);
    strides_set(config, made);
    scratch_build(&arena, config, made);
    TLM_ASSERT(arena.used <= bytes);
    *rank = made;
    return 0;
}

void tlm_rank_mirror(struct tlm_rank *rank, const struct tlm_mirror *mirror)
{
    rank->mirror = *mirror;
}

static int sequence_check(const struct tlm_rank *rank, const struct tlm_sequence *sequence)
{
    const struct tlm_config *config = rank->config;

    if (sequence->token_count == 0 || sequence->token_count > config->context_tokens_max ||
        sequence->position > config->context_tokens_max - sequence->token_count) {
        return TLM_E_BATCH;
    }
    const uint32_t limit = sequence->position + sequence->token_count;
    const uint32_t used = (limit - 1) / config->page_tokens + 1;

    if (used > sequence->page_count) {
        return TLM_E_BATCH;
    }
    for (uint32_t i = 0; i < used; i++) {
        if (sequence->pages[i] >= rank->pages) {
            return TLM_E_BATCH;
        }
    }
    for (uint32_t i = 0; i < sequence->token_count; i++) {
        if (sequence->tokens[i] >= config->vocab) {
            return TLM_E_BATCH;
        }
    }
    return 0;
}

static int batch_check(const struct tlm_rank *rank, const struct tlm_batch *batch)
{
    uint64_t tokens = 0;

    if (batch->sequence_count == 0 || batch->sequence_count > rank->config->batch_sequences_max ||
        batch->forward > TLM_FORWARD_MAX) {
        return TLM_E_BATCH;
    }
    for (uint32_t s = 0; s < batch->sequence_count; s++) {
        if (sequence_check(rank, &batch->sequences[s]) != 0) {
            return TLM_E_BATCH;
        }
        tokens += batch->sequences[s].token_count;
    }
    return tokens > rank->config->batch_tokens_max ? TLM_E_BATCH : 0;
}

/* Release: who reads the tick sees the KV that it speaks of. */
static void tick(const struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t count)
{
    if (rank->index == 0 && batch->word != NULL) {
        atomic_store_explicit(batch->word, batch->forward << 8 | count, memory_order_release);
    }
}

/* First token of a rank's share; rank 0 has one whenever there is one. */
static uint32_t share_begin(const struct tlm_rank *rank, uint32_t index)
{
    const uint64_t ranks = rank->group->ranks;

    return (uint32_t)((rank->token_count * (uint64_t)index + ranks - 1) / ranks);
}

/* Number the batch's tokens, and embed this rank's share of them. */
static void tokens_embed(struct tlm_rank *rank, const struct tlm_batch *batch)
{
    const uint32_t hidden = rank->config->hidden;
    uint32_t count = 0;

    for (uint32_t s = 0; s < batch->sequence_count; s++) {
        for (uint32_t i = 0; i < batch->sequences[s].token_count; i++) {
            rank->positions[count] = batch->sequences[s].position + i;
            rank->owners[count] = s;
            count++;
        }
    }
    rank->token_count = count;
    TLM_ASSERT(count <= rank->config->batch_tokens_max);
    for (uint32_t t = share_begin(rank, rank->index); t < share_begin(rank, rank->index + 1); t++) {
        const struct tlm_sequence *sequence = &batch->sequences[rank->owners[t]];
        const uint32_t token = sequence->tokens[rank->positions[t] - sequence->position];

        float *row = rank->hidden + (size_t)t * hidden;

        memcpy(row, rank->model->embedding + (size_t)token * hidden, hidden * sizeof(float));
        tlm_add(row, rank->model->position + (size_t)rank->positions[t] * hidden, hidden);
    }
}

/* Add the attention output projection to this rank's share of tokens. */
static void output_run(struct tlm_rank *rank, const struct tlm_layer *layer)
{
    const uint32_t limit = share_begin(rank, rank->index + 1);
    const uint32_t hidden = rank->config->hidden;
    const uint32_t width = rank->config->query_heads * rank->config->head_dim;

    for (uint32_t begin = share_begin(rank, rank->index); begin < limit; begin += TLM_BLOCK) {
        const uint32_t tokens = limit - begin < TLM_BLOCK ? limit - begin : TLM_BLOCK;

        tlm_matmul(rank->projected, hidden, rank->gathered + (size_t)begin * width, width, tokens,
                   layer->output, width, hidden);
        tlm_add(rank->hidden + (size_t)begin * hidden, rank->projected, tokens * hidden);
    }
}

static void mlp_run(struct tlm_rank *rank, const struct tlm_layer *layer)
{
    const uint32_t limit = share_begin(rank, rank->index + 1);
    const uint32_t hidden = rank->config->hidden;
    const uint32_t ffn = rank->config->ffn;

    for (uint32_t begin = share_begin(rank, rank->index); begin < limit; begin += TLM_BLOCK) {
        const uint32_t tokens = limit - begin < TLM_BLOCK ? limit - begin : TLM_BLOCK;
        float *rows = rank->hidden + (size_t)begin * hidden;

        for (uint32_t i = 0; i < tokens; i++) {
            const size_t row = (size_t)i * hidden;

            tlm_rmsnorm(rank->normed + row, rows + row, layer->mlp_norm, hidden);
        }
        tlm_matmul(rank->gate, ffn, rank->normed, hidden, tokens, layer->gate, hidden, ffn);
        tlm_matmul(rank->up, ffn, rank->normed, hidden, tokens, layer->up, hidden, ffn);
        tlm_swiglu(rank->gate, rank->up, tokens * ffn);
        tlm_matmul(rank->projected, hidden, rank->gate, ffn, tokens, layer->down, ffn, hidden);
        tlm_add(rows, rank->projected, tokens * hidden);
    }
}

void tlm_logits(struct tlm_rank *rank, const float *hidden, float *logits)
{
    const struct tlm_config *config = rank->config;

    tlm_rmsnorm(rank->normed, hidden, rank->model->final_norm, config->hidden);
    tlm_matmul(logits, config->vocab, rank->normed, config->hidden, 1, rank->model->head,
               config->hidden, config->vocab);
}

static void outputs_write(struct tlm_rank *rank, const struct tlm_batch *batch,
                          const struct tlm_output *outputs)
{
    const uint32_t hidden = rank->config->hidden;
    uint32_t limit = 0;

    for (uint32_t s = 0; s < batch->sequence_count; s++) {
        limit += batch->sequences[s].token_count;
        const float *last = rank->hidden + (size_t)(limit - 1) * hidden;

        if (outputs[s].context != NULL) {
            memcpy(outputs[s].context, last, hidden * sizeof(float));
        }
        if (outputs[s].logits != NULL) {
            tlm_logits(rank, last, outputs[s].logits);
        }
    }
}

typedef int (*mirror_function)(void *context, const struct tlm_batch *batch, uint32_t layer);

/* The others of the group must not wait for a rank whose copy failed. */
static int mirror_run(struct tlm_rank *rank, mirror_function function,
                      const struct tlm_batch *batch, uint32_t layer)
{
    if (function == NULL || function(rank->mirror.context, batch, layer) == 0) {
        return 0;
    }
    tlm_group_abort(rank->group);
    return TLM_E_MIRROR;
}

/* Two barriers: heads gathered (so all ranks' KV is written); tokens' residuals complete. */
static int layer_run(struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t layer)
{
    const struct tlm_layer *weights = &rank->model->layers[layer];
    int status = mirror_run(rank, rank->mirror.fetch, batch, layer);

    if (status == 0) {
        tlm_attention_run(rank, batch, layer);
        status = mirror_run(rank, rank->mirror.store, batch, layer);
    }
    if (status == 0) {
        status = tlm_group_wait(rank->group);
    }
    if (status != 0) {
        return status;
    }
    output_run(rank, weights);
    tick(rank, batch, layer + 1);
    mlp_run(rank, weights);
    return tlm_group_wait(rank->group);
}

int tlm_forward(struct tlm_rank *rank, const struct tlm_batch *batch,
                const struct tlm_output *outputs)
{
    if (batch_check(rank, batch) != 0) {
        return TLM_E_BATCH;
    }
    if (tlm_group_aborted(rank->group)) {
        return TLM_E_ABORTED;
    }
    tick(rank, batch, 0);
    tokens_embed(rank, batch);
    if (tlm_group_wait(rank->group) != 0) {
        return TLM_E_ABORTED;
    }
    for (uint32_t layer = 0; layer < rank->config->layers; layer++) {
        const int status = layer_run(rank, batch, layer);

        if (status != 0) {
            return status;
        }
    }
    if (outputs != NULL) {
        outputs_write(rank, batch, outputs);
    }
    int status = mirror_run(rank, rank->mirror.store, batch, rank->config->layers);

    if (status == 0) {
        status = tlm_group_wait(rank->group);
    }
    if (status != 0) {
        return status;
    }
    tick(rank, batch, rank->config->layers + 1);
    return 0;
}
