/* Layouts: the check that makes foreign ones safe to compute with, and their small arithmetic. */
#include <halage/layout.h>

static bool refuse(struct hlg_refusal *why, enum hlg_refusal_code code, uint32_t a, uint32_t b,
                   uint32_t c)
{
    *why = (struct hlg_refusal){.code = code, .a = a, .b = b, .c = c};
    return false;
}

static bool in_range(struct hlg_refusal *why, enum hlg_layout_field field, uint32_t group,
                     uint32_t value, uint32_t min, uint32_t max)
{
    if (value < min || value > max) {
        return refuse(why, HLG_REFUSAL_RANGE, field, group, value);
    }
    return true;
}

/* Ranks, pools, and how many of them this node hosts. */
static bool check_ranks(const struct hlg_layout *layout, struct hlg_refusal *why)
{
    if (!in_range(why, HLG_FIELD_TP, HLG_NONE, layout->tp, 1, HLG_RANKS_MAX) ||
        !in_range(why, HLG_FIELD_STAGES, HLG_NONE, layout->stages, 1, HLG_STAGES_MAX)) {
        return false;
    }
    const uint32_t ranks = hlg_layout_ranks(layout);
    if (ranks > HLG_RANKS_MAX) {
        return refuse(why, HLG_REFUSAL_RANGE, HLG_FIELD_RANKS, HLG_NONE, ranks);
    }
    if (!in_range(why, HLG_FIELD_RANKS, HLG_NONE, layout->rank_limit, 1, ranks) ||
        !in_range(why, HLG_FIELD_RANKS, HLG_NONE, layout->rank_begin, 0, layout->rank_limit - 1)) {
        return false;
    }
    const uint32_t hosted = layout->rank_limit - layout->rank_begin;
    /* Rounding down is right: so many whole pools have room. */
    return in_range(why, HLG_FIELD_POOLS, HLG_NONE, layout->pools, 1, HLG_RANKS_MAX / hosted);
}

static bool check_stages(const struct hlg_layout *layout, struct hlg_refusal *why)
{
    uint32_t begin = 0;
    for (uint32_t stage = 0; stage < layout->stages; stage++) {
        const uint32_t limit = layout->stage_limit[stage];
        const bool last = stage + 1 == layout->stages;
        if (limit < begin || limit > layout->layers || (last && limit != layout->layers)) {
            return refuse(why, HLG_REFUSAL_STAGES, stage, limit, layout->layers);
        }
        begin = limit;
    }
    return true;
}

/* A paged group has layers, all of them the model's; a context group has none. */
static bool check_group_layers(const struct hlg_layout *layout, uint32_t index,
                               struct hlg_refusal *why)
{
    const struct hlg_group *group = &layout->groups[index];
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < 64 * 4; layer++) {
        if (((group->layers[layer / 64] >> (layer % 64)) & 1u) == 0) {
            continue;
        }
        if (layer >= layout->layers || group->kind == HLG_GROUP_CONTEXT) {
            return refuse(why, HLG_REFUSAL_RANGE, HLG_FIELD_LAYERS, index, layer);
        }
        count++;
    }
    if (count == 0 && group->kind == HLG_GROUP_PAGED) {
        return refuse(why, HLG_REFUSAL_RANGE, HLG_FIELD_LAYERS, index, HLG_NONE);
    }
    return true;
}

/* Bytes of a page, and the pieces it can be cut into, fit in 32 bits with room for whole blocks of
 * pages (hlg_action_write counts pieces of a block in 32 bits). */
static bool check_group_bytes(const struct hlg_layout *layout, uint32_t index,
                              struct hlg_refusal *why)
{
    const struct hlg_group *group = &layout->groups[index];
    const uint32_t heads = hlg_max_u32(1, group->heads / layout->tp); /* checked: it divides */
    uint64_t token_bytes = 0;
    uint64_t page_bytes = 0;
    if (!hlg_mul_u64(heads, group->head_bytes, &token_bytes) ||
        !hlg_mul_u64(token_bytes, group->page_tokens, &page_bytes) ||
        page_bytes > HLG_PAGE_BYTES_MAX) {
        return refuse(why, HLG_REFUSAL_RANGE, HLG_FIELD_HEAD_BYTES, index, group->head_bytes);
    }
    /* Under NHD each token may be a run of its own. */
    const uint64_t pieces =
        hlg_div_ceil(hlg_u32(token_bytes), layout->piece_bytes_max) * (uint64_t)group->page_tokens;
    if (pieces > HLG_PAGE_PIECES_MAX) {
        return refuse(why, HLG_REFUSAL_RANGE, HLG_FIELD_PIECE_BYTES_MAX, HLG_NONE,
                      layout->piece_bytes_max);
    }
    return true;
}

static bool check_group(const struct hlg_layout *layout, uint32_t index, struct hlg_refusal *why)
{
    const struct hlg_group *group = &layout->groups[index];
    if (!in_range(why, HLG_FIELD_KIND, index, group->kind, 0, HLG_GROUP_CONTEXT)) {
        return false;
    }
    const bool context = group->kind == HLG_GROUP_CONTEXT;
    const uint32_t planes_max = context ? 1 : HLG_PLANES_MAX;
    const uint32_t tokens_max = context ? 1 : HLG_PAGE_PIECES_MAX;
    if (!in_range(why, HLG_FIELD_PLANES, index, group->planes, 1, planes_max) ||
        !in_range(why, HLG_FIELD_HEADS, index, group->heads, 1, UINT32_MAX) ||
        !in_range(why, HLG_FIELD_HEAD_BYTES, index, group->head_bytes, 1, UINT32_MAX) ||
        !in_range(why, HLG_FIELD_PAGE_TOKENS, index, group->page_tokens, 1, tokens_max) ||
        !in_range(why, HLG_FIELD_ARRANGEMENT, index, group->arrangement, 0, HLG_NHD) ||
        !in_range(why, HLG_FIELD_PAGE_COUNT, index, group->page_count, 1, UINT32_MAX)) {
        return false;
    }
    if (group->heads % layout->tp != 0 && layout->tp % group->heads != 0) {
        return refuse(why, HLG_REFUSAL_HEADS_TP, index, group->heads, layout->tp);
    }
    return check_group_layers(layout, index, why) && check_group_bytes(layout, index, why);
}

int hlg_layout_check(const struct hlg_layout *layout, struct hlg_refusal *why)
{
    if (!check_ranks(layout, why) ||
        !in_range(why, HLG_FIELD_LAYERS, HLG_NONE, layout->layers, 1, HLG_LAYERS_MAX) ||
        !check_stages(layout, why) ||
        !in_range(why, HLG_FIELD_ALL_REDUCE, HLG_NONE, layout->all_reduce, 0, 1) ||
        !in_range(why, HLG_FIELD_PIECE_BYTES_MAX, HLG_NONE, layout->piece_bytes_max, 1,
                  UINT32_MAX) ||
        !in_range(why, HLG_FIELD_GROUPS, HLG_NONE, layout->group_count, 1, HLG_GROUPS_MAX)) {
        return -HLG_EPLAN;
    }
    for (uint32_t index = 0; index < layout->group_count; index++) {
        if (!check_group(layout, index, why)) {
            return -HLG_EPLAN;
        }
    }
    return 0;
}

void hlg_layout_heads(uint32_t heads, uint32_t tp, uint32_t t, uint32_t *begin, uint32_t *limit)
{
    HLG_ASSERT(t < tp);
    HLG_ASSERT(heads % tp == 0 || tp % heads == 0);

    /* The floor is exact when tp divides; else all ranks of one head round down to it. */
    const uint32_t first = hlg_u32((uint64_t)t * heads / tp);
    *begin = first;
    *limit = first + hlg_max_u32(1, heads / tp);
}

uint32_t hlg_layout_sets(uint32_t heads, uint32_t tp)
{
    HLG_ASSERT(heads != 0 && tp != 0);

    return hlg_max_u32(1, tp / heads); /* 0 when a rank holds several heads: then one set */
}

uint32_t hlg_layout_page_bytes(const struct hlg_layout *layout, uint32_t group)
{
    HLG_ASSERT(group < layout->group_count);

    const struct hlg_group *g = &layout->groups[group];
    const uint64_t heads = hlg_max_u32(1, g->heads / layout->tp);
    return hlg_u32(heads * g->page_tokens * g->head_bytes); /* the check bounded it */
}

uint32_t hlg_layout_pages(const struct hlg_layout *layout, uint32_t group, uint32_t tokens)
{
    HLG_ASSERT(group < layout->group_count);

    const struct hlg_group *g = &layout->groups[group];
    return g->kind == HLG_GROUP_CONTEXT ? 1 : hlg_div_ceil(tokens, g->page_tokens);
}
