/*
 * What tinylm's own files share. Not for users: see tinylm.h.
 */
#ifndef TINYLM_INTERNAL_H
#define TINYLM_INTERNAL_H

#include "tinylm.h"

/* A broken invariant ends the process; what a caller may get wrong is an error value instead. */
#define TLM_ASSERT(condition) ((condition) ? (void)0 : tlm_assert_failed())

enum {
    TLM_LANES = 8,  /* floats of a weight panel's row, and lanes of a dot product */
    TLM_BLOCK = 16, /* tokens that go through a layer's matrices together */
};

/*
 * Every weight matrix [in][out] is stored in panels, [out / 8][in][8], so that the inner loops read
 * memory in order and vectorise.
 */
struct tlm_layer {
    const float *attention_norm; /* [hidden] */
    const float *query;          /* GQA: hidden -> [query head][head_dim];
                                  * MLA: hidden -> [query head][head_dim + rope_dim] */
    const float *key;            /* GQA: hidden -> [KV head][head_dim];
                                  * MLA: hidden -> latent_dim + rope_dim */
    const float *value;          /* GQA: hidden -> [KV head][head_dim] */
    const float *latent_norm;    /* MLA: [latent_dim] */
    const float *absorb_key;     /* MLA: [query head] times head_dim -> latent_dim */
    const float *absorb_value;   /* MLA: [query head] times latent_dim -> head_dim */
    const float *output;         /* [query head][head_dim] -> hidden */
    const float *mlp_norm;       /* [hidden] */
    const float *gate;           /* hidden -> ffn */
    const float *up;             /* hidden -> ffn */
    const float *down;           /* ffn -> hidden */
};

struct tlm_model {
    struct tlm_config config;
    const float *embedding;  /* [vocab][hidden] */
    const float *position;   /* [context_tokens_max][hidden], added to it */
    const float *final_norm; /* [hidden] */
    const float *head;       /* hidden -> vocab */
    const float *rope_cos;   /* [context_tokens_max][rotated dims / 2] */
    const float *rope_sin;   /* the same */
    struct tlm_layer layers[TLM_LAYERS_MAX];
};

/* Shared memory, maybe mapped at different addresses: offsets in bytes from the struct itself. */
struct tlm_group {
    struct tlm_config config;
    size_t hidden_offset;   /* float [batch_tokens_max][hidden]: the residual stream */
    size_t gathered_offset; /* float [batch_tokens_max][query head][head_dim] */
    uint32_t ranks;
    _Alignas(TLM_ALIGN) _Atomic uint32_t arrived; /* ranks in the present barrier */
    _Alignas(TLM_ALIGN) _Atomic uint32_t epoch;   /* futex: barriers passed * 2 + aborted */
};

struct tlm_rank {
    const struct tlm_model *model;
    struct tlm_group *group;
    const struct tlm_config *config; /* the group's */
    float *hidden;                   /* in the group */
    float *gathered;                 /* in the group */
    float *kv;
    struct tlm_mirror mirror; /* no functions: kv is the memory itself */
    uint32_t index;
    uint32_t pages;

    uint32_t query_first; /* this rank's query heads, numbers in the whole model */
    uint32_t query_count;
    uint32_t head_first; /* this rank's KV heads */
    uint32_t head_count;
    uint32_t group_size; /* query heads per KV head */
    size_t token_stride; /* floats between tokens of one head in a page */
    size_t head_stride;  /* floats between heads of one token in a page */
    size_t page_stride;  /* floats of a page */
    size_t plane_stride; /* floats of a plane of all pages */

    uint32_t token_count;  /* of the present batch */
    uint32_t *positions;   /* [batch_tokens_max] of each token in its sequence */
    uint32_t *owners;      /* [batch_tokens_max] sequence of each token */
    float *normed;         /* [TLM_BLOCK][hidden] */
    float *projected;      /* [TLM_BLOCK][hidden] */
    float *query;          /* [TLM_BLOCK][query_count][head_dim + rope_dim] */
    float *query_absorbed; /* MLA: [TLM_BLOCK][query_count][latent_dim + rope_dim] */
    float *key;            /* [TLM_BLOCK][head_count][dim] */
    float *value;          /* [TLM_BLOCK][head_count][dim] */
    float *latent_out;     /* MLA: [TLM_BLOCK][query_count][latent_dim] */
    float *scores;         /* [context_tokens_max] */
    float *gate;           /* [TLM_BLOCK][ffn] */
    float *up;             /* [TLM_BLOCK][ffn] */
};

/* Hands out floats from a block of memory, each array aligned; counts only when base is NULL. */
struct tlm_arena {
    char *base;
    size_t used;
};

_Noreturn void tlm_assert_failed(void);

/* The next array of `count` elements of 4 bytes; NULL from an arena that only counts. */
void *tlm_arena_take(struct tlm_arena *arena, size_t count);

/* Bytes rounded up to TLM_ALIGN. */
size_t tlm_align(size_t bytes);

/* 0 when memory is aligned and has at least `needed` of `bytes`, else TLM_E_MEMORY. */
int tlm_memory_check(const void *memory, size_t bytes, size_t needed);

/* 1 when the two describe the same model, whatever their cache and batch. */
int tlm_shape_equal(const struct tlm_config *a, const struct tlm_config *b);

/* Dims that rotary positions turn: GQA head_dim, MLA rope_dim. */
uint32_t tlm_rotated_dims(const struct tlm_config *config);

/* splitmix64's output function: a 64-bit mix. */
uint64_t tlm_mix(uint64_t value);

/* Floats of slot 0 of one head of one page of this rank's KV. */
float *tlm_kv_page(const struct tlm_rank *rank, uint32_t layer, uint32_t plane, uint32_t page,
                   uint32_t head);

/*
 * Attention of this rank's heads for all tokens of the batch: reads the residual stream, writes
 * KV into the pages and the heads' outputs into the group's gathered rows.
 */
void tlm_attention_run(struct tlm_rank *rank, const struct tlm_batch *batch, uint32_t layer);

/*
 * y[token][out] = sum over i, in order from 0, of x[token][i] * weights(i, out).
 *
 * strides  floats from one token's row to the next
 * weights  panels, see struct tlm_layer; in >= 1, out a multiple of TLM_LANES
 */
void tlm_matmul(float *y, size_t y_stride, const float *x, size_t x_stride, uint32_t tokens,
                const float *weights, uint32_t in, uint32_t out);

/* y = x / rms(x) * gain, [count], a multiple of TLM_LANES; y may be x. */
void tlm_rmsnorm(float *y, const float *x, const float *gain, uint32_t count);

/* Rotate pairs (x[i], x[i + half]) by the angles whose cosines and sines are given, [half]. */
void tlm_rotate(float *x, const float *cosines, const float *sines, uint32_t half);

/* scores[t] = scale * (query . rows[t]), rows `stride` floats apart; dim in whole TLM_LANES. */
void tlm_scores(float *scores, const float *query, const float *rows, size_t stride, uint32_t count,
                uint32_t dim, float scale);

/* out[d] += sum over t, in order, of weights[t] * rows[t][d]. */
void tlm_weighted_add(float *out, const float *weights, const float *rows, size_t stride,
                      uint32_t count, uint32_t dim);

/* x = exp(x - max x) in place; returns the sum of these, in order. count >= 1. */
float tlm_softmax_numerators(float *x, uint32_t count);

/* gate = gate * sigmoid(gate) * up. */
void tlm_swiglu(float *gate, const float *up, uint32_t count);

/* y += x. */
void tlm_add(float *y, const float *x, uint32_t count);

/* Cosines and sines of position * 10000^(-i / half), [positions][half] each. */
void tlm_rope_table(float *cosines, float *sines, uint32_t positions, uint32_t half);

#endif
