/*
 * The oracle: a whole request in one process, as if nothing had ever been moved.
 *
 * The prompt less its last token is prefilled in ONE forward at TP 1; then the last prompt token
 * is decoded first, and the rest greedily. From the result, any rank's page of any sharding is
 * rebuilt element by element, without a resharding planner.
 */
#ifndef TINYLM_REFERENCE_H
#define TINYLM_REFERENCE_H

#include "tinylm.h"

struct tlm_reference;

/* One run's results; owned by the reference, valid until its next run. */
struct tlm_reference_result {
    const uint32_t *tokens;      /* [output_count] */
    const uint64_t *logits_hash; /* [output_count] tlm_hash() of the vocab floats of each step */
    const float *context;        /* [hidden] of position prompt_tokens - 2; NULL for one token */
    uint32_t prompt_tokens;
    uint32_t output_count;
};

/* Which page of which rank, and how the rank lays it out. */
struct tlm_reference_page {
    uint32_t tp;
    uint32_t rank;
    uint32_t layer;
    uint32_t plane;
    uint32_t page; /* of the sequence: holds positions page * page_tokens and up */
    uint32_t page_tokens;
    enum tlm_arrangement arrangement;
};

/* Bytes that tlm_reference_init() needs, about those of one context's KV. */
size_t tlm_reference_bytes(const struct tlm_config *config);

/*
 * Make a reference.
 *
 * memory  of tlm_reference_bytes(), aligned to TLM_ALIGN, kept
 * model   kept
 *
 * Returns 0 or TLM_E_MEMORY; *reference is written on success.
 */
int tlm_reference_init(void *memory, size_t bytes, const struct tlm_model *model,
                       struct tlm_reference **reference);

/*
 * Run one request.
 *
 * prompt        [prompt_tokens], not kept; prompt_tokens >= 1
 * output_count  tokens to decode, >= 1; prompt_tokens + output_count - 1 <= context_tokens_max
 *
 * Returns 0 or TLM_E_BATCH. The result is read by tlm_reference_result().
 */
int tlm_reference_run(struct tlm_reference *reference, const uint32_t *prompt,
                      uint32_t prompt_tokens, uint32_t output_count);

/* What the last run gave; all zero before the first. */
const struct tlm_reference_result *tlm_reference_result(const struct tlm_reference *reference);

/* Slots of the page whose bytes are planned: those of positions 0 .. prompt_tokens - 2. */
uint32_t tlm_reference_slots(const struct tlm_reference *reference,
                             const struct tlm_reference_page *page);

/*
 * Rebuild a rank's page.
 *
 * bytes  tlm_page_bytes() of the page's sharding, written; slots that are not planned are zero
 *
 * Returns tlm_reference_slots().
 */
uint32_t tlm_reference_page_build(const struct tlm_reference *reference,
                                  const struct tlm_reference_page *page, void *bytes);

/*
 * Compare a page with what it must hold, planned slots only, bit by bit.
 *
 * slot  set to the lowest slot that differs, when there is one; may be NULL
 *
 * Returns how many of its planned elements differ; 0 is right.
 */
uint64_t tlm_reference_page_compare(const struct tlm_reference *reference,
                                    const struct tlm_reference_page *page, const void *bytes,
                                    uint32_t *slot);

#endif
