/* See plan_oracle.h. Nothing here may call hlg_layout_*() or read a slice's numbers but to copy. */
#include "plan_oracle.h"

#include <string.h>

static bool owns_head(uint32_t heads, uint32_t tp, uint32_t t, uint32_t head)
{
    if (tp <= heads) {
        return head >= t * heads / tp && head < (t + 1) * heads / tp;
    }
    return head == t * heads / tp;
}

static uint32_t replica_sets(uint32_t heads, uint32_t tp)
{
    return tp > heads ? tp / heads : 1;
}

static bool holds(const struct hlg_layout *layout, uint32_t group, uint32_t rank, uint32_t layer)
{
    const struct hlg_group *g = &layout->groups[group];
    const uint32_t stage = rank / layout->tp;
    if (rank >= layout->tp * layout->stages) {
        return false;
    }
    if (g->kind == HLG_GROUP_CONTEXT) {
        return layer == layout->layers && stage == layout->stages - 1;
    }
    const uint32_t begin = stage == 0 ? 0 : layout->stage_limit[stage - 1];
    return layer >= begin && layer < layout->stage_limit[stage] &&
           ((g->layers[0] >> layer) & 1u) != 0;
}

/* Write the tags of all elements of one page, each where the arrangement puts it. */
static void fill_page(struct oracle_page *page, const struct hlg_layout *layout, uint32_t group,
                      uint32_t rank, uint32_t layer, uint32_t plane)
{
    const struct hlg_group *g = &layout->groups[group];
    const uint32_t t = rank % layout->tp;
    uint32_t held = 0;
    for (uint32_t head = 0; head < g->heads; head++) {
        held += owns_head(g->heads, layout->tp, t, head) ? 1 : 0;
    }
    page->bytes = held * g->page_tokens * g->head_bytes;
    HLG_ASSERT(page->bytes <= ORACLE_PAGE_BYTES);
    uint32_t position = 0;
    for (uint32_t head = 0; head < g->heads; head++) {
        if (!owns_head(g->heads, layout->tp, t, head)) {
            continue;
        }
        for (uint32_t token = 0; token < g->page_tokens; token++) {
            const uint32_t row = g->arrangement == HLG_HND ? position * g->page_tokens + token
                                                           : token * held + position;
            for (uint32_t byte = 0; byte < g->head_bytes; byte++) {
                uint32_t tag = group * ORACLE_LAYERS + layer;
                tag = tag * ORACLE_PLANES + plane;
                tag = tag * g->heads + head;
                tag = tag * g->page_tokens + token;
                page->tag[row * g->head_bytes + byte] = tag * g->head_bytes + byte + 1;
            }
        }
        position++;
    }
}

static void fill_side(struct oracle_side *side, const struct hlg_layout *layout)
{
    for (uint32_t rank = 0; rank < ORACLE_RANKS; rank++) {
        for (uint32_t group = 0; group < layout->group_count; group++) {
            for (uint32_t layer = 0; layer < ORACLE_LAYERS; layer++) {
                for (uint32_t plane = 0; plane < ORACLE_PLANES; plane++) {
                    struct oracle_page *page = &side->pages[rank][group][layer][plane];
                    page->bytes = 0;
                    if (plane < layout->groups[group].planes && holds(layout, group, rank, layer)) {
                        fill_page(page, layout, group, rank, layer, plane);
                    }
                }
            }
        }
    }
}

bool oracle_can_shard(const struct hlg_layout *layout)
{
    for (uint32_t group = 0; group < layout->group_count; group++) {
        const uint32_t heads = layout->groups[group].heads;
        if (heads % layout->tp != 0 && layout->tp % heads != 0) {
            return false;
        }
    }
    return true;
}

void oracle_fill(struct oracle *oracle, const struct hlg_layout *source,
                 const struct hlg_layout *target)
{
    fill_side(&oracle->source, source);
    fill_side(&oracle->target, target);
}

/* One piece: copy a run, byte by byte. */
static void copy_run(struct oracle *oracle, const struct hlg_slice *slice, uint32_t layer,
                     uint64_t source_offset, uint64_t target_offset)
{
    const struct oracle_page *from =
        &oracle->source.pages[slice->source_rank][slice->group][layer][slice->plane];
    struct oracle_page *to =
        &oracle->target.pages[slice->target_rank][slice->group][layer][slice->plane];
    if (source_offset + slice->bytes > from->bytes || target_offset + slice->bytes > to->bytes) {
        oracle->errors++;
        return;
    }
    for (uint32_t i = 0; i < slice->bytes; i++) {
        oracle->errors += to->got[target_offset + i] != 0 ? 1 : 0;
        to->got[target_offset + i] = from->tag[source_offset + i];
        to->rank[target_offset + i] = slice->source_rank;
        to->origin[target_offset + i] = (uint32_t)source_offset + i;
    }
    oracle->pieces[slice->target_rank]++;
    oracle->sent[slice->source_rank]++;
}

static void apply_slice(struct oracle *oracle, const struct hlg_plan *plan,
                        const struct hlg_slice *slice)
{
    if (slice->source_rank >= ORACLE_RANKS || slice->target_rank >= ORACLE_RANKS ||
        slice->plane >= ORACLE_PLANES || slice->bytes == 0) {
        oracle->errors++;
        return;
    }
    for (uint32_t layer = 0; layer < ORACLE_LAYERS; layer++) {
        for (uint32_t run = 0; run < slice->count && hlg_plan_moves_layer(plan, slice, layer);
             run++) {
            copy_run(oracle, slice, layer,
                     slice->source_offset + (uint64_t)run * slice->source_stride,
                     slice->target_offset + (uint64_t)run * slice->target_stride);
        }
    }
}

static void clear_target(struct oracle *oracle)
{
    struct oracle_page *page = &oracle->target.pages[0][0][0][0];
    for (size_t i = 0; i < sizeof oracle->target / sizeof *page; i++) {
        memset(page[i].got, 0, page[i].bytes * sizeof page[i].got[0]);
    }
    memset(oracle->pieces, 0, sizeof oracle->pieces);
    memset(oracle->sent, 0, sizeof oracle->sent);
    oracle->errors = 0;
}

/* Tags, replica set, and the pieces that runs contiguous on both sides come to. */
static uint64_t check_page(struct oracle *oracle, const struct oracle_page *page,
                           const struct hlg_plan *plan, uint32_t group, uint32_t target_set,
                           uint32_t offset)
{
    const uint32_t heads = plan->source.groups[group].heads;
    const uint32_t tp = plan->source.tp;
    const uint32_t sets = replica_sets(heads, tp);
    const uint32_t piece_max = plan->source.piece_bytes_max < plan->target.piece_bytes_max
                                   ? plan->source.piece_bytes_max
                                   : plan->target.piece_bytes_max;
    uint64_t pieces = 0;
    uint32_t length = 0; /* of the run so far, in its current piece */
    for (uint32_t i = 0; i < page->bytes; i++) {
        if (page->got[i] != page->tag[i]) {
            oracle->errors++;
            continue;
        }
        if (page->rank[i] % tp % sets != (target_set + offset) % sets) {
            oracle->errors++;
        }
        const bool goes_on = i > 0 && page->rank[i] == page->rank[i - 1] &&
                             page->origin[i] == page->origin[i - 1] + 1;
        length = goes_on && length < piece_max ? length + 1 : 1;
        pieces += length == 1 ? 1 : 0;
    }
    return pieces;
}

static void check_rank(struct oracle *oracle, const struct hlg_plan *plan, uint32_t rank,
                       uint32_t offset)
{
    const uint32_t pages[ORACLE_GROUPS] = {1, 1};
    uint64_t paged = 0;
    uint64_t context = 0;
    for (uint32_t group = 0; group < plan->target.group_count; group++) {
        const struct hlg_group *g = &plan->target.groups[group];
        const uint32_t sets = replica_sets(g->heads, plan->target.tp);
        const uint32_t set = rank % plan->target.tp % sets;
        uint64_t *pieces = g->kind == HLG_GROUP_CONTEXT ? &context : &paged;
        for (uint32_t layer = 0; layer < ORACLE_LAYERS; layer++) {
            for (uint32_t plane = 0; plane < ORACLE_PLANES; plane++) {
                const struct oracle_page *page = &oracle->target.pages[rank][group][layer][plane];
                *pieces += check_page(oracle, page, plan, group, set, offset);
            }
        }
    }
    oracle->errors += oracle->pieces[rank] != paged + context ? 1 : 0;
    oracle->errors += hlg_plan_pieces(plan, offset, rank, pages, HLG_GROUP_PAGED) != paged ? 1 : 0;
    oracle->errors +=
        hlg_plan_pieces(plan, offset, rank, pages, HLG_GROUP_CONTEXT) != context ? 1 : 0;
}

uint32_t oracle_check(struct oracle *oracle, const struct hlg_plan *plan, uint32_t offset)
{
    const uint32_t pages[ORACLE_GROUPS] = {1, 1};
    clear_target(oracle);
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        if (hlg_plan_uses(plan, &plan->slices[i], offset)) {
            apply_slice(oracle, plan, &plan->slices[i]);
        }
    }
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < plan->target.tp * plan->target.stages; rank++) {
        check_rank(oracle, plan, rank, offset);
        total += oracle->pieces[rank];
    }
    oracle->errors += hlg_plan_pieces(plan, offset, HLG_NONE, pages, HLG_NONE) != total ? 1 : 0;
    /* The prefiller's side: a node that hosts one rank alone counts what that rank wrote. */
    struct hlg_plan part = *plan;
    for (uint32_t rank = 0; rank < plan->source.tp * plan->source.stages; rank++) {
        part.source.rank_begin = rank;
        part.source.rank_limit = rank + 1;
        const uint64_t sent = hlg_plan_pieces(&part, offset, HLG_NONE, pages, HLG_NONE);
        oracle->errors += sent != oracle->sent[rank] ? 1 : 0;
    }
    return oracle->errors;
}
