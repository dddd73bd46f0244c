/* The resharding plan: intersections of head and layer intervals, cut into runs. */
#include <halage/plan.h>
#include <halage/replica.h>

#include <string.h>

/* Where slices go while the plan is built. */
struct builder {
    struct hlg_plan *plan;
    uint32_t slices_max;
    bool full;
};

/* Half-open interval of heads or layers. */
struct span {
    uint32_t begin;
    uint32_t limit;
};

static struct span span_intersect(struct span a, struct span b)
{
    struct span both = {hlg_max_u32(a.begin, b.begin), hlg_min_u32(a.limit, b.limit)};
    both.limit = hlg_max_u32(both.begin, both.limit);
    return both;
}

static struct span heads_of(const struct hlg_layout *layout, uint32_t group, uint32_t rank)
{
    struct span heads;
    hlg_layout_heads(layout->groups[group].heads, layout->tp, rank % layout->tp, &heads.begin,
                     &heads.limit);
    return heads;
}

static struct span layers_of(const struct hlg_layout *layout, uint32_t rank)
{
    const uint32_t stage = rank / layout->tp; /* the floor is the stage */
    return (struct span){hlg_layout_layer_begin(layout, stage), layout->stage_limit[stage]};
}

static bool in_last_stage(const struct hlg_layout *layout, uint32_t rank)
{
    return rank / layout->tp == layout->stages - 1;
}

static bool is_hosted(const struct hlg_layout *layout, uint32_t rank)
{
    return rank >= layout->rank_begin && rank < layout->rank_limit;
}

/* Layers of a group that two ranks both hold; a context counts as one, held by the last stages. */
static uint32_t shared_layers(const struct hlg_plan *plan, uint32_t group, uint32_t source_rank,
                              uint32_t target_rank)
{
    const struct hlg_group *g = &plan->source.groups[group];
    if (g->kind == HLG_GROUP_CONTEXT) {
        return in_last_stage(&plan->source, source_rank) &&
                       in_last_stage(&plan->target, target_rank)
                   ? 1
                   : 0;
    }
    const struct span both = span_intersect(layers_of(&plan->source, source_rank),
                                            layers_of(&plan->target, target_rank));
    uint32_t count = 0;
    for (uint32_t layer = both.begin; layer < both.limit; layer++) {
        count += hlg_group_has_layer(g, layer) ? 1 : 0;
    }
    return count;
}

static bool equal_field(struct hlg_refusal *why, uint32_t group, enum hlg_layout_field field,
                        uint32_t source, uint32_t target)
{
    if (source != target) {
        *why = (struct hlg_refusal){
            .code = HLG_REFUSAL_GROUP_FIELD, .a = group, .b = source, .c = target, .d = field};
        return false;
    }
    return true;
}

/* What one group must have in common on the two sides. Page counts may differ. */
static bool join_group(const struct hlg_group *source, const struct hlg_group *target,
                       uint32_t index, struct hlg_refusal *why)
{
    if (!equal_field(why, index, HLG_FIELD_KIND, source->kind, target->kind) ||
        !equal_field(why, index, HLG_FIELD_PLANES, source->planes, target->planes) ||
        !equal_field(why, index, HLG_FIELD_HEADS, source->heads, target->heads) ||
        !equal_field(why, index, HLG_FIELD_HEAD_BYTES, source->head_bytes, target->head_bytes) ||
        !equal_field(why, index, HLG_FIELD_PAGE_TOKENS, source->page_tokens, target->page_tokens) ||
        !equal_field(why, index, HLG_FIELD_ARRANGEMENT, source->arrangement, target->arrangement)) {
        return false;
    }
    if (memcmp(source->layers, target->layers, sizeof source->layers) != 0) {
        *why = (struct hlg_refusal){.code = HLG_REFUSAL_GROUP_LAYERS, .a = index};
        return false;
    }
    return true;
}

static int join_layouts(const struct hlg_layout *source, const struct hlg_layout *target,
                        struct hlg_refusal *why)
{
    if (hlg_layout_check(source, why) < 0 || hlg_layout_check(target, why) < 0) {
        return -HLG_EPLAN;
    }
    if (source->layers != target->layers) {
        *why = (struct hlg_refusal){
            .code = HLG_REFUSAL_LAYERS, .a = source->layers, .b = target->layers};
        return -HLG_EPLAN;
    }
    if (source->group_count != target->group_count) {
        *why = (struct hlg_refusal){
            .code = HLG_REFUSAL_GROUPS, .a = source->group_count, .b = target->group_count};
        return -HLG_EPLAN;
    }
    for (uint32_t index = 0; index < source->group_count; index++) {
        if (!join_group(&source->groups[index], &target->groups[index], index, why)) {
            return -HLG_EPLAN;
        }
    }
    return 0;
}

static void append(struct builder *b, const struct hlg_slice *slice)
{
    HLG_ASSERT(slice->bytes != 0);
    HLG_ASSERT(slice->count != 0);

    if (b->plan->slice_count == b->slices_max) {
        b->full = true;
        return;
    }
    b->plan->slices[b->plan->slice_count++] = *slice;
}

/* Append a run, cut every piece_max bytes. One long run becomes a slice whose count is its whole
 * pieces, and the rest; of a run per token, each cut is a slice whose count is the tokens. */
static void append_cut(struct builder *b, const struct hlg_slice *run, uint32_t piece_max)
{
    struct hlg_slice slice = *run;
    if (run->bytes <= piece_max) {
        append(b, &slice);
        return;
    }
    const uint32_t whole = run->bytes / piece_max; /* the rest follows below */
    const uint32_t rest = run->bytes % piece_max;
    slice.bytes = piece_max;
    if (run->count == 1) {
        slice.count = whole;
        slice.source_stride = piece_max;
        slice.target_stride = piece_max;
        append(b, &slice);
    }
    for (uint32_t cut = 0; run->count > 1 && cut < whole && !b->full; cut++) {
        slice.source_offset = run->source_offset + cut * piece_max;
        slice.target_offset = run->target_offset + cut * piece_max;
        append(b, &slice);
    }
    if (rest != 0) {
        slice = *run;
        slice.source_offset += whole * piece_max;
        slice.target_offset += whole * piece_max;
        slice.bytes = rest;
        append(b, &slice);
    }
}

/* The run, or runs, that carry the heads which both ranks hold. All sizes fit: both pages do. */
static void append_heads(struct builder *b, struct hlg_slice slice, struct span source,
                         struct span target)
{
    const struct hlg_plan *plan = b->plan;
    const struct hlg_group *group = &plan->source.groups[slice.group];
    const struct span both = span_intersect(source, target);
    const bool same = source.begin == target.begin && source.limit == target.limit;
    const bool by_token = group->arrangement == HLG_NHD && !same;
    const uint32_t tokens = by_token ? 1 : group->page_tokens;
    const uint32_t head_bytes = tokens * group->head_bytes; /* of one head in one run */

    HLG_ASSERT(both.begin < both.limit);
    slice.source_offset = (both.begin - source.begin) * head_bytes;
    slice.target_offset = (both.begin - target.begin) * head_bytes;
    slice.bytes = (both.limit - both.begin) * head_bytes;
    slice.count = by_token ? group->page_tokens : 1;
    slice.source_stride = (source.limit - source.begin) * head_bytes;
    slice.target_stride = (target.limit - target.begin) * head_bytes;
    append_cut(b, &slice, hlg_min_u32(plan->source.piece_bytes_max, plan->target.piece_bytes_max));
}

/* All target ranks that a plane of a source rank's page goes to. */
static void append_plane(struct builder *b, uint32_t source_rank, uint32_t group, uint32_t plane)
{
    const struct hlg_plan *plan = b->plan;
    const struct span source = heads_of(&plan->source, group, source_rank);
    const uint32_t target_ranks = hlg_layout_ranks(&plan->target);
    for (uint32_t target_rank = 0; target_rank < target_ranks && !b->full; target_rank++) {
        const struct span target = heads_of(&plan->target, group, target_rank);
        const struct span both = span_intersect(source, target);
        /* That the heads meet is enough: every pair of a source and a target set has its offset. */
        if (both.begin < both.limit && shared_layers(plan, group, source_rank, target_rank) != 0) {
            const struct hlg_slice slice = {
                .source_rank = hlg_u16(source_rank),
                .target_rank = hlg_u16(target_rank),
                .group = hlg_u16(group),
                .plane = hlg_u16(plane),
            };
            append_heads(b, slice, source, target);
        }
    }
}

/* Least common multiple of the groups' source sets. Each is tp / heads, so it divides tp. */
static uint32_t count_offsets(const struct hlg_layout *source)
{
    uint32_t lcm = 1;
    for (uint32_t group = 0; group < source->group_count; group++) {
        const uint32_t sets = hlg_layout_sets(source->groups[group].heads, source->tp);
        uint32_t multiple = lcm;
        while (multiple % sets != 0) {
            multiple += lcm;
        }
        lcm = multiple;
    }
    HLG_ASSERT(source->tp % lcm == 0);
    return lcm;
}

int hlg_plan_build(struct hlg_plan *plan, struct hlg_slice *slices, uint32_t slices_max,
                   const struct hlg_layout *source, const struct hlg_layout *target,
                   struct hlg_refusal *why)
{
    if (join_layouts(source, target, why) < 0) {
        return -HLG_EPLAN;
    }
    struct hlg_plan built = {
        .source = *source,
        .target = *target,
        .offset_count = count_offsets(source),
        .slices = slices,
    };
    struct builder b = {.plan = &built, .slices_max = slices_max};
    const uint32_t ranks = hlg_layout_ranks(source);
    for (uint32_t rank = 0; rank < HLG_RANKS_MAX && !b.full; rank++) {
        built.slice_begin[rank] = built.slice_count;
        for (uint32_t group = 0; rank < ranks && group < source->group_count; group++) {
            for (uint32_t plane = 0; plane < source->groups[group].planes; plane++) {
                append_plane(&b, rank, group, plane);
            }
        }
    }
    if (b.full) {
        *why = (struct hlg_refusal){.code = HLG_REFUSAL_SLICES, .a = slices_max};
        return -HLG_EPLAN;
    }
    built.slice_begin[HLG_RANKS_MAX] = built.slice_count;
    *plan = built;
    return 0;
}

bool hlg_plan_uses(const struct hlg_plan *plan, const struct hlg_slice *slice, uint32_t offset)
{
    HLG_ASSERT(offset < plan->offset_count);
    HLG_ASSERT(slice->group < plan->source.group_count);

    const uint32_t heads = plan->source.groups[slice->group].heads;
    const uint32_t source_sets = hlg_layout_sets(heads, plan->source.tp);
    const uint32_t target_sets = hlg_layout_sets(heads, plan->target.tp);
    const uint32_t source_set = slice->source_rank % plan->source.tp % source_sets;
    const uint32_t target_set = slice->target_rank % plan->target.tp % target_sets;
    return source_set == hlg_replica_source_set(target_set, offset, source_sets);
}

bool hlg_plan_moves_layer(const struct hlg_plan *plan, const struct hlg_slice *slice,
                          uint32_t layer)
{
    HLG_ASSERT(slice->group < plan->source.group_count);

    const struct hlg_group *group = &plan->source.groups[slice->group];
    if (group->kind == HLG_GROUP_CONTEXT) {
        return layer == plan->source.layers; /* the plan lists no other ranks than the last's */
    }
    const struct span both = span_intersect(layers_of(&plan->source, slice->source_rank),
                                            layers_of(&plan->target, slice->target_rank));
    return layer >= both.begin && layer < both.limit && hlg_group_has_layer(group, layer);
}

/* pieces + slice pieces * layers * pages; UINT64_MAX once it does not fit. */
static uint64_t add_pieces(uint64_t pieces, uint32_t count, uint32_t layers, uint32_t pages)
{
    uint64_t more = 0;
    if (!hlg_mul_u64((uint64_t)count * layers, pages, &more) || more > UINT64_MAX - pieces) {
        return UINT64_MAX;
    }
    return pieces + more;
}

uint64_t hlg_plan_pieces(const struct hlg_plan *plan, uint32_t offset, uint32_t target_rank,
                         const uint32_t *pages, uint32_t kind)
{
    HLG_ASSERT(offset < plan->offset_count);

    uint64_t pieces = 0;
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        const struct hlg_slice *slice = &plan->slices[i];
        if (!is_hosted(&plan->source, slice->source_rank) ||
            !is_hosted(&plan->target, slice->target_rank) ||
            (target_rank != HLG_NONE && target_rank != slice->target_rank) ||
            (kind != HLG_NONE && kind != plan->source.groups[slice->group].kind) ||
            !hlg_plan_uses(plan, slice, offset)) {
            continue;
        }
        const uint32_t layers =
            shared_layers(plan, slice->group, slice->source_rank, slice->target_rank);
        pieces = add_pieces(pieces, slice->count, layers, pages[slice->group]);
    }
    return pieces;
}

static bool shard_alike(const struct hlg_layout *a, const struct hlg_layout *b)
{
    return a->tp == b->tp && a->stages == b->stages &&
           memcmp(a->stage_limit, b->stage_limit, a->stages * sizeof a->stage_limit[0]) == 0;
}

/* Whether a rank has anything to write to the ranks hosted here, at some replica offset. */
static bool may_write(const struct hlg_plan *plan, uint32_t rank, const uint32_t *pages)
{
    for (uint32_t i = plan->slice_begin[rank]; i < plan->slice_begin[rank + 1]; i++) {
        const struct hlg_slice *slice = &plan->slices[i];
        if (pages[slice->group] > 0 && is_hosted(&plan->target, slice->target_rank)) {
            return true;
        }
    }
    return false;
}

uint32_t hlg_plan_misfit(const struct hlg_plan *const *plans, uint32_t count, const uint32_t *pages,
                         uint32_t *hosts)
{
    HLG_ASSERT(count >= 1 && count <= HLG_SOURCES_MAX);

    for (uint32_t i = 1; i < count; i++) {
        if (!shard_alike(&plans[0]->source, &plans[i]->source)) {
            return HLG_RANKS_MAX;
        }
    }
    for (uint32_t rank = 0; rank < hlg_layout_ranks(&plans[0]->source); rank++) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < count; i++) {
            found += is_hosted(&plans[i]->source, rank) ? 1 : 0;
        }
        if (found != 1 && may_write(plans[0], rank, pages)) {
            if (hosts != NULL) {
                *hosts = found;
            }
            return rank;
        }
    }
    return HLG_NONE;
}
