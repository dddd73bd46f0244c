#include "reference.h"

#include "internal.h"
#include "sample.h"

#include <string.h>

/* A context in one page of its own, so that no page list can be wrong. */
struct tlm_reference {
    const struct tlm_model *model;
    struct tlm_config config;
    struct tlm_rank *rank;
    float *kv;
    float *context;
    float *logits;
    uint32_t *tokens;
    uint64_t *hashes;
    struct tlm_reference_result result;
};

/* The model's shape with one page and one batch for a whole context. */
static struct tlm_config config_whole(const struct tlm_config *config)
{
    struct tlm_config whole = *config;

    whole.page_tokens = config->context_tokens_max;
    whole.arrangement = TLM_HND;
    whole.batch_tokens_max = config->context_tokens_max;
    whole.batch_sequences_max = 1;
    return whole;
}

/* Arrays of the reference; only counts when the arena has no memory. */
static void arrays_build(struct tlm_arena *arena, const struct tlm_config *whole,
                         struct tlm_reference *reference)
{
    reference->kv = tlm_arena_take(arena, tlm_kv_bytes(whole, 1, 1) / TLM_ELEMENT_BYTES);
    reference->context = tlm_arena_take(arena, whole->hidden);
    reference->logits = tlm_arena_take(arena, whole->vocab);
    reference->tokens = tlm_arena_take(arena, whole->context_tokens_max);
    reference->hashes = tlm_arena_take(arena, 2 * (size_t)whole->context_tokens_max);
}

size_t tlm_reference_bytes(const struct tlm_config *config)
{
    struct tlm_reference reference;
    struct tlm_arena arena = {.used = tlm_align(sizeof(reference))};
    const struct tlm_config whole = config_whole(config);

    arrays_build(&arena, &whole, &reference);
    return arena.used + tlm_align(tlm_group_bytes(&whole, 1)) +
           tlm_align(tlm_rank_bytes(&whole, 1));
}

int tlm_reference_init(void *memory, size_t bytes, const struct tlm_model *model,
                       struct tlm_reference **reference)
{
    const struct tlm_config whole = config_whole(tlm_model_config(model));
    const size_t group_bytes = tlm_align(tlm_group_bytes(&whole, 1));
    struct tlm_arena arena = {.base = memory, .used = tlm_align(sizeof(**reference))};
    struct tlm_group *group = NULL;

    if (tlm_memory_check(memory, bytes, tlm_reference_bytes(&whole)) != 0) {
        return TLM_E_MEMORY;
    }
    struct tlm_reference *made = memory;

    memset(made, 0, sizeof(*made));
    made->model = model;
    made->config = whole;
    arrays_build(&arena, &whole, made);

    char *rest = (char *)memory + arena.used;
    int status = tlm_group_init(rest, group_bytes, &whole, 1, &group);

    TLM_ASSERT(status == 0);
    status = tlm_rank_init(rest + group_bytes, tlm_rank_bytes(&whole, 1), model, group, 0, made->kv,
                           1, &made->rank);
    TLM_ASSERT(status == 0);
    *reference = made;
    return 0;
}

/* Compute tokens at `position` and up; the KV of what comes before is there. */
static int step(struct tlm_reference *reference, const uint32_t *tokens, uint32_t position,
                uint32_t token_count, const struct tlm_output *output)
{
    static const uint32_t only_page = 0;
    const struct tlm_sequence sequence = {
        .pages = &only_page,
        .tokens = tokens,
        .page_count = 1,
        .position = position,
        .token_count = token_count,
    };
    const struct tlm_batch batch = {.sequences = &sequence, .sequence_count = 1};

    return tlm_forward(reference->rank, &batch, output);
}

static void decode(struct tlm_reference *reference, uint32_t last_token, uint32_t position,
                   uint32_t output_count)
{
    const struct tlm_output output = {.logits = reference->logits};
    const uint32_t vocab = reference->config.vocab;
    uint32_t token = last_token;

    for (uint32_t i = 0; i < output_count; i++) {
        const int status = step(reference, &token, position + i, 1, &output);

        TLM_ASSERT(status == 0); /* the run was checked to fit */
        token = tlm_sample_greedy(reference->logits, vocab);
        reference->tokens[i] = token;
        reference->hashes[i] = tlm_hash(reference->logits, vocab * sizeof(float));
    }
}

int tlm_reference_run(struct tlm_reference *reference, const uint32_t *prompt,
                      uint32_t prompt_tokens, uint32_t output_count)
{
    const uint32_t tokens_max = reference->config.context_tokens_max;
    const struct tlm_output output = {.context = reference->context};

    if (prompt_tokens == 0 || output_count == 0 || prompt_tokens > tokens_max ||
        output_count - 1 > tokens_max - prompt_tokens) {
        return TLM_E_BATCH;
    }
    for (uint32_t i = 0; i < prompt_tokens; i++) {
        if (prompt[i] >= reference->config.vocab) {
            return TLM_E_BATCH;
        }
    }
    if (prompt_tokens > 1) {
        const int status = step(reference, prompt, 0, prompt_tokens - 1, &output);

        TLM_ASSERT(status == 0);
    }
    decode(reference, prompt[prompt_tokens - 1], prompt_tokens - 1, output_count);
    reference->result = (struct tlm_reference_result){
        .tokens = reference->tokens,
        .logits_hash = reference->hashes,
        .context = prompt_tokens > 1 ? reference->context : NULL,
        .prompt_tokens = prompt_tokens,
        .output_count = output_count,
    };
    return 0;
}

const struct tlm_reference_result *tlm_reference_result(const struct tlm_reference *reference)
{
    return &reference->result;
}

/* Where element (slot, head, dim) of a rank's page lies, counted in elements. */
static size_t page_element(const struct tlm_config *config, const struct tlm_reference_page *page,
                           uint32_t slot, uint32_t head, uint32_t dim)
{
    const size_t heads = tlm_kv_head_count(config, page->tp);
    const size_t dims = tlm_kv_dim(config);

    if (page->arrangement == TLM_HND) {
        return (head * (size_t)page->page_tokens + slot) * dims + dim;
    }
    return (slot * heads + head) * dims + dim;
}

/* The reference's own element: [layer][plane][head][position][dim], all heads of the model. */
static const void *own_element(const struct tlm_reference *reference,
                               const struct tlm_reference_page *page, uint32_t position,
                               uint32_t head, uint32_t dim)
{
    const struct tlm_config *config = &reference->config;
    const size_t plane = (size_t)page->layer * tlm_planes(config) + page->plane;
    const size_t row = (plane * config->kv_heads + head) * config->context_tokens_max + position;

    TLM_ASSERT(head < config->kv_heads);
    TLM_ASSERT(position < config->context_tokens_max);
    return reference->kv + row * tlm_kv_dim(config) + dim;
}

uint32_t tlm_reference_slots(const struct tlm_reference *reference,
                             const struct tlm_reference_page *page)
{
    const uint64_t begin = (uint64_t)page->page * page->page_tokens;
    const uint32_t prompt_tokens = reference->result.prompt_tokens;
    const uint32_t planned = prompt_tokens == 0 ? 0 : prompt_tokens - 1;

    if (planned <= begin) {
        return 0;
    }
    return planned - begin < page->page_tokens ? (uint32_t)(planned - begin) : page->page_tokens;
}

static void page_check(const struct tlm_reference *reference, const struct tlm_reference_page *page)
{
    TLM_ASSERT(tlm_config_check(&reference->config, page->tp, NULL) == 0);
    TLM_ASSERT(page->rank < page->tp);
    TLM_ASSERT(page->layer < reference->config.layers);
    TLM_ASSERT(page->plane < tlm_planes(&reference->config));
}

uint32_t tlm_reference_page_build(const struct tlm_reference *reference,
                                  const struct tlm_reference_page *page, void *bytes)
{
    const struct tlm_config *config = &reference->config;
    const uint32_t first = tlm_kv_head_first(config, page->tp, page->rank);
    const uint32_t heads = tlm_kv_head_count(config, page->tp);
    const uint32_t dims = tlm_kv_dim(config);
    const uint32_t slots = tlm_reference_slots(reference, page);
    char *out = bytes;

    page_check(reference, page);
    memset(out, 0, (size_t)page->page_tokens * heads * dims * TLM_ELEMENT_BYTES);
    for (uint32_t slot = 0; slot < slots; slot++) {
        for (uint32_t head = 0; head < heads; head++) {
            for (uint32_t dim = 0; dim < dims; dim++) {
                memcpy(out + page_element(config, page, slot, head, dim) * TLM_ELEMENT_BYTES,
                       own_element(reference, page, page->page * page->page_tokens + slot,
                                   first + head, dim),
                       TLM_ELEMENT_BYTES);
            }
        }
    }
    return slots;
}

uint64_t tlm_reference_page_compare(const struct tlm_reference *reference,
                                    const struct tlm_reference_page *page, const void *bytes,
                                    uint32_t *slot)
{
    const struct tlm_config *config = &reference->config;
    const uint32_t first = tlm_kv_head_first(config, page->tp, page->rank);
    const uint32_t heads = tlm_kv_head_count(config, page->tp);
    const uint32_t dims = tlm_kv_dim(config);
    const uint32_t slots = tlm_reference_slots(reference, page);
    const char *in = bytes;
    uint64_t differing = 0;

    page_check(reference, page);
    for (uint32_t s = 0; s < slots; s++) {
        for (uint32_t i = 0; i < heads * dims; i++) {
            /* Flooring: i numbers the elements of a slot, head by head. */
            const size_t at = page_element(config, page, s, i / dims, i % dims);
            const void *right = own_element(reference, page, page->page * page->page_tokens + s,
                                            first + i / dims, i % dims);

            if (memcmp(in + at * TLM_ELEMENT_BYTES, right, TLM_ELEMENT_BYTES) == 0) {
                continue;
            }
            if (differing == 0 && slot != NULL) {
                *slot = s;
            }
            differing++;
        }
    }
    return differing;
}
