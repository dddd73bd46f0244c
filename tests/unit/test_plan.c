/*
 * The planner on cases worked out by hand. Golden vectors: "Reference numbers", computed from the
 * ownership of heads alone (TP <= heads: rank r owns [r heads / TP, (r + 1) heads / TP); else the
 * one head floor(r heads / TP)). The exhaustive check is tests/property/test_plan_exhaustive.c.
 */
#include <halage/plan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SLICES_MAX  8192u
#define HEAD_BYTES  128u
#define PAGE_TOKENS 16u
#define LAYERS      61u
#define ALL_LAYERS  ((1ull << LAYERS) - 1)

static struct hlg_slice slices[SLICES_MAX];

/* One stage, one pool, one paged group over all layers with separate K and V. */
static struct hlg_layout make_layout(uint32_t tp, uint32_t heads)
{
    return (struct hlg_layout){
        .tp = tp,
        .stages = 1,
        .pools = 1,
        .layers = LAYERS,
        .stage_limit = {LAYERS},
        .rank_limit = tp,
        .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
        .group_count = 1,
        .groups = {{.kind = HLG_GROUP_PAGED,
                    .planes = 2,
                    .heads = heads,
                    .head_bytes = HEAD_BYTES,
                    .page_tokens = PAGE_TOKENS,
                    .page_count = 100,
                    .layers = {ALL_LAYERS}}},
    };
}

static void add_context(struct hlg_layout *layout, uint32_t shards, uint32_t shard_bytes)
{
    layout->groups[layout->group_count++] = (struct hlg_group){.kind = HLG_GROUP_CONTEXT,
                                                               .planes = 1,
                                                               .heads = shards,
                                                               .head_bytes = shard_bytes,
                                                               .page_tokens = 1,
                                                               .page_count = 8};
}

static void cut_stages(struct hlg_layout *layout, uint32_t stages, const uint32_t *limits)
{
    layout->stages = stages;
    layout->rank_limit = layout->tp * stages;
    memcpy(layout->stage_limit, limits, stages * sizeof *limits);
}

static struct hlg_plan build(const struct hlg_layout *source, const struct hlg_layout *target)
{
    struct hlg_refusal why = {0};
    struct hlg_plan plan;
    assert_int_equal(hlg_plan_build(&plan, slices, SLICES_MAX, source, target, &why), 0);
    assert_int_equal(why.code, HLG_REFUSAL_NONE);
    return plan;
}

static struct hlg_refusal refusal(const struct hlg_layout *source, const struct hlg_layout *target)
{
    struct hlg_refusal why = {0};
    struct hlg_plan plan;
    memset(&plan, 0x5a, sizeof plan);
    const struct hlg_plan before = plan;
    assert_int_equal(hlg_plan_build(&plan, slices, SLICES_MAX, source, target, &why), -HLG_EPLAN);
    assert_memory_equal(&plan, &before, sizeof plan);
    return why;
}

static const struct golden {
    uint32_t source_tp;
    uint32_t target_tp;
    uint32_t heads;
    uint32_t hnd; /* pieces of a page of one plane at one target rank */
    uint32_t nhd;
    /* target<source:heads@head of the source's page/head of the target's, of plane 0; of several
     * sources of the same target head, each is a replica */
    const char *pairs;
} goldens[] = {
    {4, 4, 8, 1, 1, "0<0:2@0/0 1<1:2@0/0 2<2:2@0/0 3<3:2@0/0"},
    {4, 8, 8, 1, 16,
     "0<0:1@0/0 1<0:1@1/0 2<1:1@0/0 3<1:1@1/0 4<2:1@0/0 5<2:1@1/0 6<3:1@0/0 "
     "7<3:1@1/0"},
    {8, 4, 8, 2, 32,
     "0<0:1@0/0 0<1:1@0/1 1<2:1@0/0 1<3:1@0/1 2<4:1@0/0 2<5:1@0/1 3<6:1@0/0 "
     "3<7:1@0/1"},
    {4, 8, 4, 1, 1,
     "0<0:1@0/0 1<0:1@0/0 2<1:1@0/0 3<1:1@0/0 4<2:1@0/0 5<2:1@0/0 6<3:1@0/0 "
     "7<3:1@0/0"},
    {8, 4, 4, 1, 1,
     "0<0:1@0/0 0<1:1@0/0 1<2:1@0/0 1<3:1@0/0 2<4:1@0/0 2<5:1@0/0 3<6:1@0/0 "
     "3<7:1@0/0"},
    {8, 8, 4, 1, 1,
     "0<0:1@0/0 0<1:1@0/0 1<0:1@0/0 1<1:1@0/0 2<2:1@0/0 2<3:1@0/0 3<2:1@0/0 "
     "3<3:1@0/0 4<4:1@0/0 4<5:1@0/0 5<4:1@0/0 5<5:1@0/0 6<6:1@0/0 6<7:1@0/0 "
     "7<6:1@0/0 7<7:1@0/0"},
    {1, 4, 2, 1, 16, "0<0:1@0/0 1<0:1@0/0 2<0:1@1/0 3<0:1@1/0"},
    {4, 1, 2, 2, 32, "0<0:1@0/0 0<1:1@0/0 0<2:1@0/1 0<3:1@0/1"},
    {2, 8, 4, 1, 16,
     "0<0:1@0/0 1<0:1@0/0 2<0:1@1/0 3<0:1@1/0 4<1:1@0/0 5<1:1@0/0 6<1:1@1/0 "
     "7<1:1@1/0"},
    {8, 2, 4, 2, 32,
     "0<0:1@0/0 0<1:1@0/0 0<2:1@0/1 0<3:1@0/1 1<4:1@0/0 1<5:1@0/0 1<6:1@0/1 "
     "1<7:1@0/1"},
    {8, 2, 2, 1, 1,
     "0<0:1@0/0 0<1:1@0/0 0<2:1@0/0 0<3:1@0/0 1<4:1@0/0 1<5:1@0/0 1<6:1@0/0 "
     "1<7:1@0/0"},
    {16, 8, 8, 1, 1,
     "0<0:1@0/0 0<1:1@0/0 1<2:1@0/0 1<3:1@0/0 2<4:1@0/0 2<5:1@0/0 3<6:1@0/0 "
     "3<7:1@0/0 4<8:1@0/0 4<9:1@0/0 5<10:1@0/0 5<11:1@0/0 6<12:1@0/0 6<13:1@0/0 "
     "7<14:1@0/0 7<15:1@0/0"},
    {8, 16, 8, 1, 1,
     "0<0:1@0/0 1<0:1@0/0 2<1:1@0/0 3<1:1@0/0 4<2:1@0/0 5<2:1@0/0 6<3:1@0/0 "
     "7<3:1@0/0 8<4:1@0/0 9<4:1@0/0 10<5:1@0/0 11<5:1@0/0 12<6:1@0/0 13<6:1@0/0 "
     "14<7:1@0/0 15<7:1@0/0"},
    {4, 2, 1, 1, 1,
     "0<0:1@0/0 0<1:1@0/0 0<2:1@0/0 0<3:1@0/0 1<0:1@0/0 1<1:1@0/0 1<2:1@0/0 "
     "1<3:1@0/0"},
    {3, 2, 6, 2, 32, "0<0:2@0/0 0<1:1@0/2 1<1:1@1/0 1<2:2@0/1"},
};

static void print_pairs(const struct hlg_plan *plan, char *text, size_t capacity)
{
    const uint32_t page_head = PAGE_TOKENS * HEAD_BYTES;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t target = 0; target < hlg_layout_ranks(&plan->target); target++) {
        for (uint32_t i = 0; i < plan->slice_count; i++) {
            const struct hlg_slice *slice = &plan->slices[i];
            if (slice->target_rank == target && slice->plane == 0) {
                const int bytes =
                    snprintf(text + used, capacity - used, "%s%u<%u:%u@%u/%u", used == 0 ? "" : " ",
                             target, slice->source_rank, slice->bytes * slice->count / page_head,
                             slice->source_offset / page_head, slice->target_offset / page_head);
                used += (size_t)bytes;
                assert_true(used < capacity);
            }
        }
    }
}

static void goldens_hold_under_hnd(void **state)
{
    char text[2048];
    (void)state;

    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        const struct golden *golden = &goldens[i];
        const struct hlg_layout source = make_layout(golden->source_tp, golden->heads);
        const struct hlg_layout target = make_layout(golden->target_tp, golden->heads);
        const struct hlg_plan plan = build(&source, &target);
        print_pairs(&plan, text, sizeof text);
        assert_string_equal(text, golden->pairs);
    }
}

static void goldens_hold_in_pieces(void **state)
{
    const uint32_t one[] = {1};
    (void)state;

    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        const struct golden *golden = &goldens[i];
        for (uint32_t arrangement = HLG_HND; arrangement <= HLG_NHD; arrangement++) {
            struct hlg_layout source = make_layout(golden->source_tp, golden->heads);
            struct hlg_layout target = make_layout(golden->target_tp, golden->heads);
            source.groups[0].arrangement = arrangement;
            target.groups[0].arrangement = arrangement;
            const struct hlg_plan plan = build(&source, &target);
            const uint32_t pieces = arrangement == HLG_HND ? golden->hnd : golden->nhd;
            for (uint32_t offset = 0; offset < plan.offset_count; offset++) {
                for (uint32_t rank = 0; rank < golden->target_tp; rank++) {
                    assert_int_equal(hlg_plan_pieces(&plan, offset, rank, one, HLG_NONE),
                                     pieces * 2 * LAYERS);
                }
            }
        }
    }
}

/* A request of 10 pages and a context: 61 layers * 2 planes * 10 pages * 1 piece + 1 = 1221. */
static void the_worked_example_expects_1221_pieces(void **state)
{
    const uint32_t pages[] = {10, 1};
    struct hlg_layout source = make_layout(4, 8);
    struct hlg_layout target = make_layout(8, 8);
    (void)state;

    add_context(&source, 1, 4096);
    add_context(&target, 1, 4096);
    const struct hlg_plan plan = build(&source, &target);
    for (uint32_t rank = 0; rank < 8; rank++) {
        assert_int_equal(hlg_plan_pieces(&plan, 0, rank, pages, HLG_NONE), 1221);
        assert_int_equal(hlg_plan_pieces(&plan, 0, rank, pages, HLG_GROUP_PAGED), 1220);
        assert_int_equal(hlg_plan_pieces(&plan, 0, rank, pages, HLG_GROUP_CONTEXT), 1);
    }
    assert_int_equal(hlg_plan_pieces(&plan, 0, HLG_NONE, pages, HLG_NONE), 8 * 1221);
}

/* Both sets of the target may start at either set of the source; each takes all from one. */
static void replica_sets_turn_with_the_offset(void **state)
{
    const struct hlg_layout layout = make_layout(8, 4);
    const struct hlg_plan plan = build(&layout, &layout);
    (void)state;

    assert_int_equal(plan.offset_count, 2);
    for (uint32_t i = 0; i < plan.slice_count; i++) {
        const struct hlg_slice *slice = &plan.slices[i];
        const uint32_t offset = (slice->source_rank + slice->target_rank) % 2;
        assert_true(hlg_plan_uses(&plan, slice, offset));
        assert_false(hlg_plan_uses(&plan, slice, 1 - offset));
    }
}

static void offsets_count_to_the_common_multiple_of_the_groups(void **state)
{
    struct hlg_layout layout = make_layout(12, 4); /* 3 sets */
    (void)state;

    layout.groups[1] = layout.groups[0];
    layout.groups[1].heads = 6; /* 2 sets */
    layout.group_count = 2;
    const struct hlg_plan plan = build(&layout, &layout);
    assert_int_equal(plan.offset_count, 6);
    add_context(&layout, 1, 64); /* 12 sets */
    assert_int_equal(build(&layout, &layout).offset_count, 12);
}

static void slices_are_sorted_and_indexed_by_source_rank(void **state)
{
    struct hlg_layout source = make_layout(4, 8);
    struct hlg_layout target = make_layout(2, 8);
    (void)state;

    add_context(&source, 4, 3 << 19);
    add_context(&target, 4, 3 << 19);
    source.groups[0].arrangement = HLG_NHD;
    target.groups[0].arrangement = HLG_NHD;
    source.piece_bytes_max = 100;
    source.groups[1].head_bytes = target.groups[1].head_bytes = 250;
    const struct hlg_plan plan = build(&source, &target);
    for (uint32_t i = 1; i < plan.slice_count; i++) {
        const struct hlg_slice *a = &plan.slices[i - 1];
        const struct hlg_slice *b = &plan.slices[i];
        const uint64_t key_a[] = {a->source_rank, a->group, a->plane, a->target_rank,
                                  a->target_offset};
        const uint64_t key_b[] = {b->source_rank, b->group, b->plane, b->target_rank,
                                  b->target_offset};
        size_t k = 0;
        while (k < 4 && key_a[k] == key_b[k]) {
            k++;
        }
        assert_true(key_a[k] < key_b[k]);
    }
    for (uint32_t rank = 0; rank < HLG_RANKS_MAX; rank++) {
        for (uint32_t i = plan.slice_begin[rank]; i < plan.slice_begin[rank + 1]; i++) {
            assert_int_equal(plan.slices[i].source_rank, rank);
        }
    }
    assert_int_equal(plan.slice_begin[0], 0);
    assert_int_equal(plan.slice_begin[4], plan.slice_count);
    assert_int_equal(plan.slice_begin[HLG_RANKS_MAX], plan.slice_count);
}

static void heads_that_tp_does_not_divide_are_refused(void **state)
{
    const struct hlg_layout good = make_layout(2, 6);
    const struct hlg_layout bad = make_layout(4, 6);
    (void)state;

    struct hlg_refusal why = refusal(&good, &bad);
    assert_int_equal(why.code, HLG_REFUSAL_HEADS_TP);
    assert_int_equal(why.b, 6);
    assert_int_equal(why.c, 4);
    why = refusal(&bad, &good);
    assert_int_equal(why.code, HLG_REFUSAL_HEADS_TP);
    const struct hlg_layout six = make_layout(6, 4);
    why = refusal(&six, &six);
    assert_int_equal(why.code, HLG_REFUSAL_HEADS_TP);
    assert_int_equal(why.b, 4);
    assert_int_equal(why.c, 6);
}

static void expect_field(const struct hlg_layout *source, const struct hlg_layout *target,
                         uint32_t field, uint32_t a, uint32_t b)
{
    const struct hlg_refusal why = refusal(source, target);
    assert_int_equal(why.code, HLG_REFUSAL_GROUP_FIELD);
    assert_int_equal(why.a, 0);
    assert_int_equal(why.d, field);
    assert_int_equal(why.b, a);
    assert_int_equal(why.c, b);
}

static void groups_must_be_equal_field_by_field(void **state)
{
    const struct hlg_layout source = make_layout(4, 8);
    struct hlg_layout target = source;
    (void)state;

    target.groups[0].page_tokens = 64;
    expect_field(&source, &target, HLG_FIELD_PAGE_TOKENS, 16, 64);
    target = source;
    target.groups[0].head_bytes = 64;
    expect_field(&source, &target, HLG_FIELD_HEAD_BYTES, 128, 64);
    target = source;
    target.groups[0].heads = 4;
    expect_field(&source, &target, HLG_FIELD_HEADS, 8, 4);
    target = source;
    target.groups[0].planes = 1;
    expect_field(&source, &target, HLG_FIELD_PLANES, 2, 1);
    target = source;
    target.groups[0].arrangement = HLG_NHD;
    expect_field(&source, &target, HLG_FIELD_ARRANGEMENT, HLG_HND, HLG_NHD);
    target = source;
    target.group_count = 0;
    add_context(&target, 1, 64);
    expect_field(&source, &target, HLG_FIELD_KIND, HLG_GROUP_PAGED, HLG_GROUP_CONTEXT);
}

static void layers_and_groups_must_be_the_same(void **state)
{
    const struct hlg_layout source = make_layout(4, 8);
    struct hlg_layout target = source;
    (void)state;

    target.groups[0].layers[0] ^= 2;
    assert_int_equal(refusal(&source, &target).code, HLG_REFUSAL_GROUP_LAYERS);
    target = source;
    target.layers = 62;
    target.stage_limit[0] = 62;
    struct hlg_refusal why = refusal(&source, &target);
    assert_int_equal(why.code, HLG_REFUSAL_LAYERS);
    assert_int_equal(why.a, 61);
    assert_int_equal(why.b, 62);
    target = source;
    add_context(&target, 1, 64);
    why = refusal(&source, &target);
    assert_int_equal(why.code, HLG_REFUSAL_GROUPS);
    assert_int_equal(why.a, 1);
    assert_int_equal(why.b, 2);
    target = source; /* what need not be equal */
    target.groups[0].page_count = 7;
    target.pools = 3;
    target.all_reduce = 1;
    (void)build(&source, &target);
}

static void too_many_slices_are_refused(void **state)
{
    const struct hlg_layout source = make_layout(4, 8);
    struct hlg_refusal why = {0};
    struct hlg_plan plan;
    (void)state;

    assert_int_equal(hlg_plan_build(&plan, slices, 8, &source, &source, &why), 0);
    assert_int_equal(plan.slice_count, 8);
    assert_int_equal(hlg_plan_build(&plan, slices, 7, &source, &source, &why), -HLG_EPLAN);
    assert_int_equal(why.code, HLG_REFUSAL_SLICES);
    assert_int_equal(why.a, 7);
}

/* Stages of 20, 0 and 41 layers against 30 and 31: layer by layer, one source and one target. */
static void stages_meet_by_layer(void **state)
{
    const uint32_t one[] = {1};
    struct hlg_layout source = make_layout(2, 2);
    struct hlg_layout target = make_layout(1, 2);
    (void)state;

    cut_stages(&source, 3, (const uint32_t[]){20, 20, 61});
    cut_stages(&target, 2, (const uint32_t[]){30, 61});
    const struct hlg_plan plan = build(&source, &target);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t i = 0; i < plan.slice_count; i++) {
            const struct hlg_slice *slice = &plan.slices[i];
            const bool source_holds = slice->source_rank / 2 == (layer < 20 ? 0 : 2);
            const bool target_holds = slice->target_rank == (layer < 30 ? 0 : 1);
            assert_int_equal(hlg_plan_moves_layer(&plan, slice, layer),
                             source_holds && target_holds);
        }
    }
    assert_false(hlg_plan_moves_layer(&plan, &plan.slices[0], LAYERS));
    assert_int_equal(plan.slice_begin[2], plan.slice_begin[4]); /* the stage without layers */
    assert_int_equal(hlg_plan_pieces(&plan, 0, 0, one, HLG_NONE), 30 * 2 * 2);
    assert_int_equal(hlg_plan_pieces(&plan, 0, 1, one, HLG_NONE), 31 * 2 * 2);
}

static void the_context_goes_from_last_stage_to_last_stage(void **state)
{
    const uint32_t pages[] = {0, 1};
    struct hlg_layout source = make_layout(2, 2);
    struct hlg_layout target = make_layout(2, 2);
    (void)state;

    cut_stages(&source, 4, (const uint32_t[]){20, 40, 50, 61});
    cut_stages(&target, 2, (const uint32_t[]){61, 61}); /* the last has no layer, yet the context */
    add_context(&source, 1, 1000);
    add_context(&target, 1, 1000);
    const struct hlg_plan plan = build(&source, &target);
    assert_int_equal(plan.offset_count, 2);
    for (uint32_t i = 0; i < plan.slice_count; i++) {
        const struct hlg_slice *slice = &plan.slices[i];
        if (slice->group == 1) {
            assert_true(slice->source_rank >= 6 && slice->target_rank >= 2);
            assert_true(hlg_plan_moves_layer(&plan, slice, LAYERS));
            assert_false(hlg_plan_moves_layer(&plan, slice, LAYERS - 1));
        }
    }
    for (uint32_t offset = 0; offset < 2; offset++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            assert_int_equal(hlg_plan_pieces(&plan, offset, rank, pages, HLG_GROUP_CONTEXT),
                             rank >= 2 ? 1 : 0);
        }
    }
}

/* Logits in 8 shards: a target of TP 2 gathers 4 of them a rank, each where its shard belongs. */
static void a_sharded_context_is_gathered(void **state)
{
    const uint32_t pages[] = {0, 1};
    struct hlg_layout source = make_layout(8, 8);
    struct hlg_layout target = make_layout(2, 8);
    (void)state;

    add_context(&source, 8, 1000);
    add_context(&target, 8, 1000);
    const struct hlg_plan plan = build(&source, &target);
    uint32_t shards = 0;
    for (uint32_t i = 0; i < plan.slice_count; i++) {
        const struct hlg_slice *slice = &plan.slices[i];
        if (slice->group == 1) {
            assert_int_equal(slice->target_rank, slice->source_rank / 4);
            assert_int_equal(slice->source_offset, 0);
            assert_int_equal(slice->target_offset, slice->source_rank % 4 * 1000);
            assert_int_equal(slice->bytes, 1000);
            shards++;
        }
    }
    assert_int_equal(shards, 8);
    assert_int_equal(hlg_plan_pieces(&plan, 0, 1, pages, HLG_NONE), 4);
    const struct hlg_plan back = build(&target, &source);
    assert_int_equal(hlg_plan_pieces(&back, 0, 5, pages, HLG_NONE), 1);
}

/* Runs of k * max - 1, k * max and k * max + 1 bytes: k - 1 or k whole pieces, and the rest. */
static void long_runs_are_cut_from_their_start(void **state)
{
    const uint32_t one[] = {1};
    const uint32_t max = 64 * PAGE_TOKENS;
    (void)state;

    for (uint32_t k = 1; k <= 3; k++) {
        for (uint32_t more = 0; more < 3; more++) {
            struct hlg_layout source = make_layout(1, 1);
            source.groups[0].page_tokens = 1;
            source.groups[0].planes = 1;
            source.groups[0].head_bytes = k * max - 1 + more;
            struct hlg_layout target = source;
            target.piece_bytes_max = max; /* the smaller of the two counts, on either side */
            const struct hlg_plan plan = build(&source, &target);
            const uint32_t bytes = k * max - 1 + more;
            const uint32_t pieces = bytes / max + (bytes % max != 0);
            assert_int_equal(hlg_plan_pieces(&plan, 0, 0, one, HLG_NONE), pieces * LAYERS);
            assert_int_equal(plan.slices[0].bytes, bytes < max ? bytes : max);
            assert_int_equal(plan.slices[0].count, bytes < max ? 1 : bytes / max);
            assert_int_equal(plan.slice_count, 1 + (bytes > max && bytes % max != 0));
            if (plan.slice_count == 2) {
                assert_int_equal(plan.slices[1].source_offset, bytes / max * max);
                assert_int_equal(plan.slices[1].bytes, bytes % max);
                assert_int_equal(plan.slices[1].count, 1);
            }
            const struct hlg_plan other = build(&target, &source);
            assert_int_equal(hlg_plan_pieces(&other, 0, 0, one, HLG_NONE), pieces * LAYERS);
        }
    }
}

/* Under NHD each token's run is cut: 256 bytes every 100 make three slices of 16 runs. */
static void runs_of_tokens_are_cut_alike(void **state)
{
    struct hlg_layout source = make_layout(1, 4);
    struct hlg_layout target = make_layout(2, 4);
    (void)state;

    source.groups[0].arrangement = target.groups[0].arrangement = HLG_NHD;
    source.groups[0].planes = target.groups[0].planes = 1;
    source.piece_bytes_max = 100;
    const struct hlg_plan plan = build(&source, &target);
    assert_int_equal(plan.slice_count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        const struct hlg_slice *slice = &plan.slices[i];
        const uint32_t rank = i / 3;
        const uint32_t cut = i % 3;
        assert_int_equal(slice->target_rank, rank);
        assert_int_equal(slice->source_offset, rank * 256 + cut * 100);
        assert_int_equal(slice->target_offset, cut * 100);
        assert_int_equal(slice->bytes, cut == 2 ? 56 : 100);
        assert_int_equal(slice->count, PAGE_TOKENS);
        assert_int_equal(slice->source_stride, 512);
        assert_int_equal(slice->target_stride, 256);
    }
}

static void only_hosted_ranks_count(void **state)
{
    const uint32_t pages[] = {3};
    struct hlg_layout source = make_layout(8, 8);
    struct hlg_layout target = make_layout(4, 8);
    (void)state;

    const uint64_t all = 3ull * 2 * LAYERS * 8;
    struct hlg_plan plan = build(&source, &target);
    assert_int_equal(hlg_plan_pieces(&plan, 0, HLG_NONE, pages, HLG_NONE), all);
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < 8; rank += 2) {
        source.rank_begin = rank;
        source.rank_limit = rank + 2;
        plan = build(&source, &target);
        assert_int_equal(plan.slice_count, 16); /* all are listed all the same */
        sum += hlg_plan_pieces(&plan, 0, HLG_NONE, pages, HLG_NONE);
        assert_int_equal(hlg_plan_pieces(&plan, 0, rank / 2, pages, HLG_NONE), all / 4);
        assert_int_equal(hlg_plan_pieces(&plan, 0, (rank / 2 + 1) % 4, pages, HLG_NONE), 0);
    }
    assert_int_equal(sum, all);
    source = make_layout(8, 8);
    target.rank_begin = 1;
    target.rank_limit = 2;
    plan = build(&source, &target);
    assert_int_equal(hlg_plan_pieces(&plan, 0, HLG_NONE, pages, HLG_NONE), all / 4);
    assert_int_equal(hlg_plan_pieces(&plan, 0, 0, pages, HLG_NONE), 0);
}

/* A hostile pair of layouts may ask for more pieces than 64 bits count; both sides say the same. */
static void counts_do_not_wrap(void **state)
{
    const uint32_t pages[] = {UINT32_MAX};
    struct hlg_layout layout = make_layout(1, 1);
    (void)state;

    layout.groups[0].head_bytes = 1;
    layout.groups[0].page_tokens = HLG_PAGE_PIECES_MAX;
    layout.piece_bytes_max = 1;
    struct hlg_plan plan = build(&layout, &layout);
    assert_int_equal(plan.slices[0].count, HLG_PAGE_PIECES_MAX);
    const uint64_t pieces = hlg_plan_pieces(&plan, 0, 0, pages, HLG_NONE);
    assert_true(pieces == (uint64_t)UINT32_MAX * HLG_PAGE_PIECES_MAX * LAYERS * 2);
    for (uint32_t i = 0; i < 128; i++) {
        slices[i] = slices[0];
    }
    plan.slice_count = 128;
    assert_true(hlg_plan_pieces(&plan, 0, 0, pages, HLG_NONE) == UINT64_MAX);
}

static void mla_pages_go_whole_to_every_rank(void **state)
{
    const uint32_t one[] = {1};
    const struct hlg_layout source = make_layout(2, 1);
    const struct hlg_layout target = make_layout(4, 1);
    const struct hlg_plan plan = build(&source, &target);
    (void)state;

    assert_int_equal(plan.offset_count, 2);
    for (uint32_t offset = 0; offset < 2; offset++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            assert_int_equal(hlg_plan_pieces(&plan, offset, rank, one, HLG_NONE), 2 * LAYERS);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_hold_under_hnd),
        cmocka_unit_test(goldens_hold_in_pieces),
        cmocka_unit_test(the_worked_example_expects_1221_pieces),
        cmocka_unit_test(replica_sets_turn_with_the_offset),
        cmocka_unit_test(offsets_count_to_the_common_multiple_of_the_groups),
        cmocka_unit_test(slices_are_sorted_and_indexed_by_source_rank),
        cmocka_unit_test(heads_that_tp_does_not_divide_are_refused),
        cmocka_unit_test(groups_must_be_equal_field_by_field),
        cmocka_unit_test(layers_and_groups_must_be_the_same),
        cmocka_unit_test(too_many_slices_are_refused),
        cmocka_unit_test(stages_meet_by_layer),
        cmocka_unit_test(the_context_goes_from_last_stage_to_last_stage),
        cmocka_unit_test(a_sharded_context_is_gathered),
        cmocka_unit_test(long_runs_are_cut_from_their_start),
        cmocka_unit_test(runs_of_tokens_are_cut_alike),
        cmocka_unit_test(only_hosted_ranks_count),
        cmocka_unit_test(counts_do_not_wrap),
        cmocka_unit_test(mla_pages_go_whole_to_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
