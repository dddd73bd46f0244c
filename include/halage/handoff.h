/*
 * The last-token rule (I6): prefill handles tokens - 1 of a prompt; the decoder runs the last prompt
 * token as its first step, on the context that came with the last chunk. No sampling at prefill.
 * Source: the article, "Décodage Spéculatif".
 */
#ifndef HALAGE_HANDOFF_H
#define HALAGE_HANDOFF_H

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Prompt tokens that the prefiller handles: tokens - 1. tokens >= 1. */
static inline uint32_t hlg_handoff_prefill_tokens(uint32_t tokens)
{
    HLG_ASSERT(tokens >= 1);
    return tokens - 1;
}

/* Whether the layout has a context group, so that a context is due with the last chunk. */
bool hlg_handoff_context_due(const struct hlg_layout *layout);

/*
 * Whether anything must come from a prefiller: not for a one-token prompt, nor when every page is
 * there and no context is due.
 *
 * pages_asked  pages that the target lacks, over all paged groups
 */
bool hlg_handoff_needs_prefill(const struct hlg_layout *layout, uint32_t tokens,
                               uint64_t pages_asked);

/*
 * Most prompt tokens that a prefiller may take from its own cache: all of them, or one less when a
 * context is due, since the last one must be computed to have its hidden state. tokens >= 2.
 */
uint32_t hlg_handoff_cached_tokens_max(const struct hlg_layout *layout, uint32_t tokens);

#ifdef __cplusplus
}
#endif

#endif
