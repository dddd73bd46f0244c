#include "sim_price.h"

double sim_cost_step_ns(const struct sim_cost *cost, const struct sim_rank_step *ranks,
                        uint32_t rank_count, struct sim_cost_parts *parts)
{
    double slowest = 0;
    double sum = 0;

    for (uint32_t r = 0; r < rank_count; r++) {
        double ns = 0;

        if (ranks[r].sequences != 0) {
            ns += cost->sequence_ns * (double)ranks[r].sequences * ranks[r].query_tokens;
            ns += cost->context_ns * (double)ranks[r].context_sum;
            ns += cost->longest_ns * (double)ranks[r].context_max;
        }
        for (uint32_t i = 0; i < ranks[r].chunk_count; i++) {
            const struct sim_chunk *chunk = &ranks[r].chunks[i];

            ns += cost->token_ns * (double)chunk->tokens;
            ns += cost->pair_ns * (double)chunk->tokens * (double)chunk->context;
        }
        slowest = ns > slowest ? ns : slowest;
        sum += ns;
    }
    slowest = cost->sum ? sum : slowest;
    if (cost->calls != NULL) {
        (*cost->calls)++;
    }
    const double ns = cost->step_ns + slowest + cost->bend * slowest * slowest;
    if (parts != NULL) {
        *parts = (struct sim_cost_parts){.overhead_ns = ns};
    }
    return ns;
}
