#include "chunk.h"

struct page_span chunk_pages(uint32_t page_tokens, uint32_t token_begin, uint32_t token_limit,
                             bool last, uint32_t first)
{
    HLG_ASSERT(page_tokens > 0 && token_begin <= token_limit);
    /* Flooring is right: the page that holds token_begin was left to this chunk if it was partly
     * filled, and the page that holds token_limit is left to the next. */
    uint32_t begin = token_begin / page_tokens;
    uint32_t limit = last ? hlg_div_ceil(token_limit, page_tokens) : token_limit / page_tokens;
    begin = hlg_max_u32(begin, first);
    return (struct page_span){.begin = begin, .count = limit > begin ? limit - begin : 0};
}

uint32_t cursor_layer(const struct cursor *cursor, const struct hlg_plan *plan, uint32_t rank)
{
    uint32_t stage = rank / plan->source.tp; /* floor: ranks of a stage are neighbours */
    uint32_t begin = hlg_layout_layer_begin(&plan->source, stage);
    uint32_t layer = begin + cursor->position;

    return layer < plan->source.stage_limit[stage] ? layer : plan->source.layers;
}

/* Whether the rank writes anything of this slice at that layer. */
static bool writes(const struct hlg_plan *plan, const struct hlg_slice *slice,
                   const struct chunk *chunk, uint32_t layer, uint32_t offset)
{
    return chunk->spans[slice->group].count > 0 && slice->target_rank >= plan->target.rank_begin &&
           slice->target_rank < plan->target.rank_limit &&
           hlg_plan_moves_layer(plan, slice, layer) && hlg_plan_uses(plan, slice, offset);
}

bool cursor_seek(struct cursor *cursor, const struct chunk *chunk, const struct hlg_plan *plan,
                 uint32_t rank, uint32_t offset)
{
    uint32_t stage = rank / plan->source.tp; /* floor, as above */
    uint32_t layers =
        plan->source.stage_limit[stage] - hlg_layout_layer_begin(&plan->source, stage);
    bool context = chunk->last && stage + 1 == plan->source.stages;
    uint32_t limit = layers + (context ? 1 : 0);
    uint32_t begin = plan->slice_begin[rank];
    uint32_t end = plan->slice_begin[rank + 1];

    for (; cursor->position < limit; cursor->position++) {
        uint32_t layer = cursor_layer(cursor, plan, rank);
        for (; cursor->slice < end; cursor->slice++) {
            const struct hlg_slice *slice = &plan->slices[cursor->slice];
            if (cursor->page < chunk->spans[slice->group].count &&
                writes(plan, slice, chunk, layer, offset)) {
                if (cursor->page == 0) {
                    cursor->block = chunk->blocks[slice->group];
                }
                return true;
            }
            cursor->page = 0;
        }
        cursor->slice = begin;
    }
    return false;
}
