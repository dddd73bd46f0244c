/*
 * tinylm: a small real transformer on a paged KV cache. It is the demo's engine and the tests'
 * oracle.
 *
 * Decoder only, float32, RMSNorm, grouped-query attention (GQA) or multi-head latent attention
 * (MLA, absorbed), SwiGLU; weights come from a seed. Positions are rotary and, added to the
 * embedding, absolute: with random weights, rotary ones alone let an output get stuck on a token.
 *
 * What it promises: hidden states, logits and KV bytes are BIT-IDENTICAL for every legal number of
 * tensor-parallel ranks, every cut of a prompt into chunks, every batch a token is computed in,
 * every page size and either arrangement. So each output element has one order of summation that
 * depends on the shape of the model alone. Build it with -ffp-contract=off and never with
 * -ffast-math; nothing of libm is called whose result is not exact.
 *
 * Memory: no function allocates. Each `init` takes memory of the bytes its `_bytes` function
 * tells, aligned to TLM_ALIGN, and keeps it; there is nothing to release. `_bytes` functions
 * require a configuration that tlm_config_check() accepts.
 *
 * Processes: the ranks of a group are separate processes (or threads) that share one
 * `struct tlm_group` and, read only, one `struct tlm_model`. A usual order: the parent maps
 * anonymous shared memory, makes model and group in it, and forks; each child makes its own rank.
 */
#ifndef TINYLM_TINYLM_H
#define TINYLM_TINYLM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TLM_ALIGN = 64,             /* bytes; what memory given to an init must be aligned to */
    TLM_RANKS_MAX = 64,         /* ranks of a group */
    TLM_LAYERS_MAX = 254,       /* layers + 1 must fit the low 8 bits of the progress word */
    TLM_FORWARD_MAX = 0xFFFFFF, /* forward numbers are 24 bits */
    TLM_PLANES_MAX = 2,         /* planes of a layer */
    TLM_ELEMENT_BYTES = 4,      /* one KV element: float32 */
    TLM_PROMPT_TOKENS_MIN = 1,  /* a one-token prompt is legal: nothing is prefilled */
    TLM_CONTEXT_TOKENS_LIMIT = 1 << 16, /* largest context_tokens_max */
};

/* Errors; all negative. */
enum {
    TLM_E_CONFIG = -1,  /* tlm_config_check() refuses it, or model and group do not fit */
    TLM_E_MEMORY = -2,  /* too few bytes, or memory not aligned */
    TLM_E_BATCH = -3,   /* a sequence is malformed or over a limit */
    TLM_E_ABORTED = -4, /* tlm_group_abort() was called: the group is of no further use */
    TLM_E_MIRROR = -5,  /* what tlm_rank_mirror() was given failed; the group is aborted */
};

enum tlm_attention {
    TLM_GQA, /* two planes: 0 is K (after rotation), 1 is V */
    TLM_MLA, /* one plane: latent, then rotated key; the same bytes on every rank */
};

/* How a page of this rank's KV heads is laid out. MLA has one "head": both are the same. */
enum tlm_arrangement {
    TLM_HND, /* [head][token][dim] */
    TLM_NHD, /* [token][head][dim] */
};

/*
 * What a model and its cache look like. The first part is the model's shape; the second part is
 * the cache's and the batch's and changes no result.
 */
struct tlm_config {
    uint64_t seed; /* of the weights */
    enum tlm_attention attention;
    uint32_t layers;
    uint32_t hidden;             /* floats of a hidden state; a multiple of 8 */
    uint32_t kv_heads;           /* GQA: of the whole model; MLA: 1 */
    uint32_t query_heads;        /* of the whole model; GQA: a multiple of kv_heads */
    uint32_t head_dim;           /* floats; a multiple of 8 */
    uint32_t latent_dim;         /* MLA: floats, a multiple of 8; GQA: 0 */
    uint32_t rope_dim;           /* MLA: floats, a multiple of 8; GQA: 0 (head_dim is rotated) */
    uint32_t ffn;                /* inner width of the MLP; a multiple of 8 */
    uint32_t vocab;              /* a multiple of 8 */
    uint32_t context_tokens_max; /* longest sequence, prompt and output */

    uint32_t page_tokens; /* token slots of a page; any number >= 1 */
    enum tlm_arrangement arrangement;
    uint32_t batch_tokens_max;    /* tokens of one forward, over all of its sequences */
    uint32_t batch_sequences_max; /* sequences of one forward */
};

struct tlm_model; /* weights; read only after init */
struct tlm_group; /* what the ranks of one group share; holds no pointers */
struct tlm_rank;  /* one rank's scratch; private to its process */

/*
 * One sequence of a batch: compute `token_count` tokens that stand at positions `position`,
 * `position + 1`, ... The KV of positions 0 .. position - 1 must be in the pages already.
 *
 * pages   [page_count] page indices; position p lives in pages[p / page_tokens], slot
 *         p % page_tokens; each < the rank's page count. Enough for position + token_count.
 * tokens  [token_count], each < vocab
 *
 * No two sequences of a batch may write the same page; they may share earlier, full ones.
 */
struct tlm_sequence {
    const uint32_t *pages;
    const uint32_t *tokens;
    uint32_t page_count;
    uint32_t position;
    uint32_t token_count;
};

/*
 * What one forward pass computes. The same for all ranks: each must see equal values behind
 * pointers that are valid in its own process, unchanged until tlm_forward() has returned.
 *
 * word     progress word that rank 0 stores to, or NULL; see tlm_forward()
 * forward  number of this pass, 0 .. TLM_FORWARD_MAX
 */
struct tlm_batch {
    const struct tlm_sequence *sequences;
    _Atomic uint32_t *word;
    uint32_t sequence_count;
    uint32_t forward;
};

/*
 * Where one rank puts what it knows of a sequence's last token; either may be NULL.
 *
 * context  [hidden] hidden state after the last layer, before the final norm
 * logits   [vocab]; costs hidden * vocab multiplications on the rank that asks
 */
struct tlm_output {
    float *context;
    float *logits;
};

/*
 * Fill in a cheap model: 4 layers, hidden 64, head_dim 16, vocab 512, context of 512 tokens,
 * pages of 16 tokens, HND. Change fields afterwards as needed; `hidden` and `ffn` set the cost.
 *
 * kv_heads  GQA: KV heads, 4 query heads each; MLA: ignored (8 query heads, one latent)
 */
void tlm_config_default(enum tlm_attention attention, uint32_t kv_heads, uint64_t seed,
                        struct tlm_config *config);

/*
 * Say whether `tp` ranks can run this model.
 *
 * With tp <= kv_heads, tp must divide kv_heads; with tp > kv_heads, kv_heads must divide tp, and
 * rank r holds a copy of head floor(r * kv_heads / tp). MLA: any tp. tp always divides query_heads.
 *
 * why  set to one sentence of reason (static memory) when the answer is TLM_E_CONFIG; may be NULL
 *
 * Returns 0 or TLM_E_CONFIG.
 */
int tlm_config_check(const struct tlm_config *config, uint32_t tp, const char **why);

/* Planes of a layer: GQA 2, MLA 1. */
uint32_t tlm_planes(const struct tlm_config *config);

/* KV heads that each rank holds; the first of them on `rank`, as a number in the whole model. */
uint32_t tlm_kv_head_count(const struct tlm_config *config, uint32_t tp);
uint32_t tlm_kv_head_first(const struct tlm_config *config, uint32_t tp, uint32_t rank);

/* Floats of one token of one head in one plane: GQA head_dim, MLA latent_dim + rope_dim. */
uint32_t tlm_kv_dim(const struct tlm_config *config);

/* Bytes of one page of one plane on one rank. */
size_t tlm_page_bytes(const struct tlm_config *config, uint32_t tp);

/*
 * A rank's KV memory is one block, [layer][plane][page][page_bytes]: the offset in bytes of page 0
 * of (layer, plane) in a block of `pages` pages, and the bytes of the whole block.
 */
size_t tlm_plane_offset(const struct tlm_config *config, uint32_t tp, uint32_t pages,
                        uint32_t layer, uint32_t plane);
size_t tlm_kv_bytes(const struct tlm_config *config, uint32_t tp, uint32_t pages);

/* Bytes that tlm_model_init() needs; the same for all cache and batch fields. */
size_t tlm_model_bytes(const struct tlm_config *config);

/*
 * Make the weights.
 *
 * memory  of tlm_model_bytes(); kept by the model. Shared over fork() only: it holds pointers.
 *
 * Returns 0, TLM_E_CONFIG or TLM_E_MEMORY; *model is written on success. O(weights), about 2 ns
 * each.
 */
int tlm_model_init(void *memory, size_t bytes, const struct tlm_config *config,
                   struct tlm_model **model);

/* The configuration that the model was made with. */
const struct tlm_config *tlm_model_config(const struct tlm_model *model);

/* Bytes that tlm_group_init() needs. */
size_t tlm_group_bytes(const struct tlm_config *config, uint32_t tp);

/*
 * Make a group of `tp` ranks. Its cache and batch fields are the ones that hold for its ranks.
 *
 * memory  of tlm_group_bytes(), kept; MAP_SHARED among the ranks' processes when tp > 1
 *
 * Returns 0, TLM_E_CONFIG or TLM_E_MEMORY; *group is written on success. No rank may be using
 * the memory meanwhile; calling it again is how an aborted group is made usable.
 */
int tlm_group_init(void *memory, size_t bytes, const struct tlm_config *config, uint32_t tp,
                   struct tlm_group **group);

/* Ranks of the group; its configuration. */
uint32_t tlm_group_ranks(const struct tlm_group *group);
const struct tlm_config *tlm_group_config(const struct tlm_group *group);

/*
 * Wait until all ranks of the group have called this. tlm_forward() uses the same barrier, so
 * every rank must make the same calls in the same order. Sleeps on a futex after a short spin.
 *
 * Returns 0, or TLM_E_ABORTED at once when the group is aborted, now or while it waits. Nothing
 * notices by itself that a rank has died: whoever does must call tlm_group_abort().
 */
int tlm_group_wait(struct tlm_group *group);

/*
 * Make every present and future wait in the group return TLM_E_ABORTED. May be called by any
 * process that has the group mapped, rank or not, any number of times; async-signal-safe.
 */
void tlm_group_abort(struct tlm_group *group);

/* 1 when the group is aborted, else 0. */
int tlm_group_aborted(const struct tlm_group *group);

/* Bytes that tlm_rank_init() needs. */
size_t tlm_rank_bytes(const struct tlm_config *config, uint32_t tp);

/*
 * Make rank `index` of `group`.
 *
 * memory  of tlm_rank_bytes(), kept; private to the rank
 * model   kept; its shape (seed .. context_tokens_max) must equal the group's
 * group   kept
 * kv      tlm_kv_bytes(pages) bytes of this rank's own KV memory, kept; aligned to 4 bytes. What
 *         is in slots that no sequence has written is never read.
 *
 * Returns 0, TLM_E_CONFIG (also for index >= ranks) or TLM_E_MEMORY; *rank written on success.
 */
int tlm_rank_init(void *memory, size_t bytes, const struct tlm_model *model,
                  struct tlm_group *group, uint32_t index, void *kv, uint32_t pages,
                  struct tlm_rank **rank);

/*
 * For KV memory that the CPU cannot follow, such as a GPU's: `kv` of tlm_rank_init() is then a working
 * copy, and these bring bytes in and out. Both return 0, or anything else for failure.
 *
 * fetch  before a layer's attention: bring in what the sequences of the batch have in the layer's
 *        pages, at positions before their own
 * store  behind it, before any tick says that the layer is complete: take out the pages that hold
 *        their own positions; and once with `layer` = layers, when this rank's outputs are written
 */
struct tlm_mirror {
    int (*fetch)(void *context, const struct tlm_batch *batch, uint32_t layer);
    int (*store)(void *context, const struct tlm_batch *batch, uint32_t layer);
    void *context;
};

/* Let a rank call these; copied. Before its first tlm_forward(). */
void tlm_rank_mirror(struct tlm_rank *rank, const struct tlm_mirror *mirror);

/*
 * Run one forward pass; called by every rank of the group with the same batch.
 *
 * outputs  [batch->sequence_count] of this rank, or NULL
 *
 * Writes the KV of each token into this rank's pages and, per sequence, the outputs asked for.
 * Progress: rank 0 stores to *batch->word, in release order,
 *
 *     forward << 8                     when the pass starts,
 *     forward << 8 | l                 when layer l - 1 is past its output projection, 1 <= l <=
 *                                      layers: ALL ranks' KV of layers 0 .. l - 1 is complete,
 *     forward << 8 | layers + 1        when ALL ranks' outputs are written.
 *
 * Returns 0; TLM_E_BATCH, with nothing written and no rank waited for (all ranks find the same
 * error); or, with pages and outputs partly written and no further tick, TLM_E_MIRROR (of the rank whose
 * copy failed) or TLM_E_ABORTED.
 */
int tlm_forward(struct tlm_rank *rank, const struct tlm_batch *batch,
                const struct tlm_output *outputs);

/*
 * Turn a hidden state (a context) into logits, exactly as tlm_forward() does.
 *
 * rank    uses its scratch; must not be inside tlm_forward()
 * hidden  [hidden], logits [vocab]
 */
void tlm_logits(struct tlm_rank *rank, const float *hidden, float *logits);

/*
 * Make the prompt of a request: `length` tokens < vocab, a function of its arguments alone.
 *
 * tokens  [length], written
 */
void tlm_prompt(uint64_t seed, uint64_t request, uint32_t length, uint32_t vocab, uint32_t *tokens);

/*
 * FNV-1a, 64 bits, over `count` bytes.
 * Source: G. Fowler, L. C. Noll, K.-P. Vo, D. Eastlake, IETF draft-eastlake-fnv.
 */
uint64_t tlm_hash(const void *bytes, size_t count);

#endif
