/*
 * The requests of a run: how long each prompt and each output is. The tokens of a prompt follow from
 * the seed and the request's number (tlm_prompt()).
 */
#ifndef HALAGE_CLI_WORKLOAD_H
#define HALAGE_CLI_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct workload_request {
    uint32_t prompt_tokens; /* >= 1 */
    uint32_t output_count;  /* >= 1 */
    uint64_t arrival_ns; /* since the first one; 0 where it was drawn, or the trace has no time */
};

struct workload {
    struct workload_request *requests; /* [count] */
    uint32_t count;
    uint64_t seed;
};

#define WORKLOAD_REQUESTS_MAX 1000000u

/*
 * Draw lengths from a seed. Every eighth request is a corner: prompts of 1 or 2 tokens, and around
 * whole pages.
 *
 * context_tokens  longest sequence, prompt and output
 *
 * Returns 0 or -HLG_ENOMEM. Release with workload_fini().
 */
int workload_draw(struct workload *workload, uint32_t count, uint64_t seed, uint32_t page_tokens,
                  uint32_t context_tokens);

/*
 * Read the first `count` rows of a trace in the format of Azure's (TIMESTAMP,ContextTokens,
 * GeneratedTokens). Lengths are scaled down, all alike, until the longest row fits the context.
 *
 * timed  the first column must be a time, YYYY-MM-DD HH:MM:SS with or without a fraction, that
 *        does not run back; else it is not read
 * text  [capacity] on failure one line naming file and line
 *
 * Returns 0, -HLG_EINVAL or -HLG_ENOMEM. A trace of fewer rows gives fewer requests.
 */
int workload_read(struct workload *workload, const char *file, uint32_t count, uint64_t seed,
                  uint32_t context_tokens, bool timed, char *text, size_t capacity);

void workload_fini(struct workload *workload);

#endif
