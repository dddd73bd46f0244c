/*
 * Any two layouts. Each is refused with a sentence or is sound; a pair is refused with a sentence or
 * planned. A plan's slices lie within the pages of both sides and are sorted; each target page gets as
 * many bytes as it has; both counts of the pieces agree. Where the pair is small enough for the oracle of
 * tests/property, it looks at every byte.
 */
#include "../property/plan_oracle.h"
#include "fuzz.h"

#include <halage/handoff.h>
#include <halage/refusal.h>

#define SLICES_MAX 4096u

static struct hlg_slice slices[SLICES_MAX];
static struct oracle oracle;

static void read_group(struct feed *f, struct hlg_group *group, uint32_t layers)
{
    group->kind = feed_odd(f, 0, 2);
    group->planes = feed_odd(f, 1, 2);
    group->heads = feed_odd(f, 1, 8);
    group->head_bytes = feed_odd(f, 1, 4);
    group->page_tokens = group->kind == HLG_GROUP_CONTEXT ? 1 : feed_odd(f, 1, 4);
    group->arrangement = feed_odd(f, 0, 2);
    group->page_count = feed_odd(f, 1, 4);
    if (group->kind == HLG_GROUP_PAGED) {
        group->layers[0] = layers < 8 ? feed_byte(f) & ((1u << layers) - 1) : feed_bytes(f, 8);
        group->layers[1] = layers < 8 ? 0 : feed_byte(f);
    }
}

static void read_layout(struct feed *f, struct hlg_layout *layout)
{
    *layout = (struct hlg_layout){0};
    layout->tp = feed_odd(f, 1, 8);
    layout->stages = feed_odd(f, 1, 2);
    layout->pools = feed_odd(f, 1, 2);
    layout->layers = feed_odd(f, 1, 4);
    for (uint32_t i = 0; i < HLG_STAGES_MAX && i + 1 < layout->stages; i++) {
        layout->stage_limit[i] = feed_odd(f, 1, 4);
    }
    if (layout->stages - 1 < HLG_STAGES_MAX) {
        layout->stage_limit[layout->stages - 1] = layout->layers;
    }
    layout->rank_limit = layout->tp * layout->stages;
    if (feed_byte(f) >= 0xe0) {
        layout->rank_begin = feed_odd(f, 0, 8);
        layout->rank_limit = feed_odd(f, 0, 16);
    }
    layout->all_reduce = feed_odd(f, 0, 2);
    layout->piece_bytes_max = feed_odd(f, 1, 128);
    layout->group_count = feed_odd(f, 1, 2);
    for (uint32_t g = 0; g < HLG_GROUPS_MAX && g < layout->group_count; g++) {
        read_group(f, &layout->groups[g], layout->layers);
    }
}

/* The other side as it is, but for what may differ, or for one thing that may not. */
static void vary(struct feed *f, const struct hlg_layout *source, struct hlg_layout *target)
{
    *target = *source;
    target->tp = feed_odd(f, 1, 8);
    target->stages = feed_odd(f, 1, 2);
    target->pools = feed_odd(f, 1, 2);
    memset(target->stage_limit, 0, sizeof target->stage_limit);
    for (uint32_t i = 0; i < HLG_STAGES_MAX && i + 1 < target->stages; i++) {
        target->stage_limit[i] = feed_odd(f, 1, 4);
    }
    if (target->stages - 1 < HLG_STAGES_MAX) {
        target->stage_limit[target->stages - 1] = target->layers;
    }
    target->rank_begin = 0;
    target->rank_limit = target->tp * target->stages;
    target->piece_bytes_max = feed_odd(f, 1, 128);
    uint32_t *fields[] = {&target->layers,
                          &target->group_count,
                          &target->groups[0].kind,
                          &target->groups[0].planes,
                          &target->groups[0].heads,
                          &target->groups[0].head_bytes,
                          &target->groups[0].page_tokens,
                          &target->groups[0].arrangement,
                          &target->rank_begin,
                          &target->rank_limit};
    uint32_t which = feed_byte(f);
    if (which < sizeof fields / sizeof fields[0]) {
        *fields[which] = feed_odd(f, 0, 16);
    }
}

static void expect_sentence(const struct hlg_refusal *why)
{
    char text[HLG_REFUSAL_TEXT_BYTES];

    HLG_ASSERT(why->code != HLG_REFUSAL_NONE);
    int bytes = hlg_refusal_text(why, text, sizeof text);
    HLG_ASSERT(bytes > 0 && text[bytes] == '\0' && strlen(text) == (size_t)bytes);
}

/* A slice's last byte, on a page that starts at 0. */
static uint64_t slice_limit(uint32_t offset, uint32_t stride, const struct hlg_slice *slice)
{
    return offset + (uint64_t)(slice->count - 1) * stride + slice->bytes;
}

static void expect_slices(const struct hlg_plan *plan)
{
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        const struct hlg_slice *s = &plan->slices[i];
        HLG_ASSERT(s->bytes > 0 && s->count > 0);
        HLG_ASSERT(s->bytes <= plan->source.piece_bytes_max);
        HLG_ASSERT(s->bytes <= plan->target.piece_bytes_max);
        HLG_ASSERT(s->group < plan->source.group_count);
        HLG_ASSERT(s->plane < plan->source.groups[s->group].planes);
        HLG_ASSERT(s->source_rank < hlg_layout_ranks(&plan->source));
        HLG_ASSERT(s->target_rank < hlg_layout_ranks(&plan->target));
        HLG_ASSERT(i >= plan->slice_begin[s->source_rank]);
        HLG_ASSERT(i < plan->slice_begin[s->source_rank + 1]);
        HLG_ASSERT(slice_limit(s->source_offset, s->source_stride, s) <=
                   hlg_layout_page_bytes(&plan->source, s->group));
        HLG_ASSERT(slice_limit(s->target_offset, s->target_stride, s) <=
                   hlg_layout_page_bytes(&plan->target, s->group));
    }
}

/* Each hosted target rank that holds a layer of a group gets each byte of its page once, counted by bytes. */
static void expect_bytes(const struct hlg_plan *plan, uint32_t offset, uint32_t layer)
{
    static uint64_t bytes[HLG_RANKS_MAX][HLG_GROUPS_MAX][HLG_PLANES_MAX];

    memset(bytes, 0, sizeof bytes);
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        const struct hlg_slice *s = &plan->slices[i];
        if (hlg_plan_uses(plan, s, offset) && hlg_plan_moves_layer(plan, s, layer)) {
            bytes[s->target_rank][s->group][s->plane] += (uint64_t)s->bytes * s->count;
        }
    }
    for (uint32_t rank = 0; rank < hlg_layout_ranks(&plan->target); rank++) {
        for (uint32_t g = 0; g < plan->target.group_count; g++) {
            for (uint32_t plane = 0; plane < HLG_PLANES_MAX; plane++) {
                uint64_t got = bytes[rank][g][plane];
                HLG_ASSERT(got == 0 || got == hlg_layout_page_bytes(&plan->target, g));
            }
        }
    }
}

static void expect_counts(const struct hlg_plan *plan, uint32_t offset)
{
    uint32_t pages[HLG_GROUPS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
    uint64_t sum = 0;

    for (uint32_t rank = 0; rank < hlg_layout_ranks(&plan->target); rank++) {
        sum += hlg_plan_pieces(plan, offset, rank, pages, HLG_NONE);
    }
    HLG_ASSERT(sum == hlg_plan_pieces(plan, offset, HLG_NONE, pages, HLG_NONE));
    HLG_ASSERT(sum == hlg_plan_pieces(plan, offset, HLG_NONE, pages, HLG_GROUP_PAGED) +
                          hlg_plan_pieces(plan, offset, HLG_NONE, pages, HLG_GROUP_CONTEXT));
}

static bool is_small(const struct hlg_layout *layout)
{
    if (hlg_layout_ranks(layout) > ORACLE_RANKS || layout->group_count > ORACLE_GROUPS ||
        layout->layers + 1 > ORACLE_LAYERS || layout->rank_begin != 0 ||
        layout->rank_limit != hlg_layout_ranks(layout)) {
        return false;
    }
    for (uint32_t g = 0; g < layout->group_count; g++) {
        if (layout->groups[g].planes > ORACLE_PLANES ||
            hlg_layout_page_bytes(layout, g) > ORACLE_PAGE_BYTES) {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed f = {.next = data, .left = size};
    struct hlg_layout sides[2];
    struct hlg_refusal why = {0};
    struct hlg_plan plan;

    bool apart = feed_byte(&f) >= 0xe0;
    uint32_t room = feed_byte(&f) >= 0xf0 ? feed_byte(&f) : SLICES_MAX;
    read_layout(&f, &sides[0]);
    if (apart) {
        read_layout(&f, &sides[1]);
    } else {
        vary(&f, &sides[0], &sides[1]);
    }
    bool sound = true;
    for (uint32_t i = 0; i < 2; i++) {
        if (hlg_layout_check(&sides[i], &why) != 0) {
            expect_sentence(&why);
            sound = false;
        }
    }
    int result = hlg_plan_build(&plan, slices, room, &sides[0], &sides[1], &why);
    HLG_ASSERT(result == 0 || result == -HLG_EPLAN);
    HLG_ASSERT(result != 0 || sound);
    if (result != 0) {
        expect_sentence(&why);
        return 0;
    }
    expect_slices(&plan);
    HLG_ASSERT(plan.offset_count >= 1 && plan.slice_count <= room);
    bool small = is_small(&plan.source) && is_small(&plan.target);
    if (small) {
        oracle_fill(&oracle, &plan.source, &plan.target);
    }
    for (uint32_t offset = 0; offset < plan.offset_count && offset < 8; offset++) {
        expect_counts(&plan, offset);
        for (uint32_t layer = 0; layer <= plan.source.layers && layer < 8; layer++) {
            expect_bytes(&plan, offset, layer);
        }
        HLG_ASSERT(!small || oracle_check(&oracle, &plan, offset) == 0);
    }
    return 0;
}
