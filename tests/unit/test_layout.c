/* Layouts: the arithmetic on its golden vectors, and the check at the edge of every range. */
#include <halage/layout.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct hlg_layout make_layout(void)
{
    return (struct hlg_layout){
        .tp = 4,
        .stages = 2,
        .pools = 2,
        .layers = 10,
        .stage_limit = {5, 10},
        .rank_limit = 8,
        .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
        .group_count = 2,
        .groups = {{.kind = HLG_GROUP_PAGED,
                    .planes = 2,
                    .heads = 8,
                    .head_bytes = 256,
                    .page_tokens = 16,
                    .page_count = 100,
                    .layers = {0x3ff}},
                   {.kind = HLG_GROUP_CONTEXT,
                    .planes = 1,
                    .heads = 1,
                    .head_bytes = 4096,
                    .page_tokens = 1,
                    .page_count = 8}},
    };
}

static void accept(const struct hlg_layout *layout)
{
    struct hlg_refusal why = {0};
    assert_int_equal(hlg_layout_check(layout, &why), 0);
    assert_int_equal(why.code, HLG_REFUSAL_NONE);
}

static void refuse_range(const struct hlg_layout *layout, uint32_t field, uint32_t group)
{
    struct hlg_refusal why = {0};
    assert_int_equal(hlg_layout_check(layout, &why), -HLG_EPLAN);
    assert_int_equal(why.code, HLG_REFUSAL_RANGE);
    assert_int_equal(why.a, field);
    assert_int_equal(why.b, group);
}

static void heads_follow_the_golden_vectors(void **state)
{
    const struct {
        uint32_t heads;
        uint32_t tp;
        uint32_t begin[8];
        uint32_t count;
        uint32_t sets;
    } rows[] = {
        {8, 4, {0, 2, 4, 6}, 2, 1},
        {8, 8, {0, 1, 2, 3, 4, 5, 6, 7}, 1, 1},
        {4, 8, {0, 0, 1, 1, 2, 2, 3, 3}, 1, 2},
        {2, 4, {0, 0, 1, 1}, 1, 2},
        {2, 8, {0, 0, 0, 0, 1, 1, 1, 1}, 1, 4},
        {6, 3, {0, 2, 4}, 2, 1},
        {6, 2, {0, 3}, 3, 1},
        {1, 8, {0}, 1, 8},
        {1, 1, {0}, 1, 1},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t t = 0; t < rows[i].tp; t++) {
            uint32_t begin = 0;
            uint32_t limit = 0;
            hlg_layout_heads(rows[i].heads, rows[i].tp, t, &begin, &limit);
            assert_int_equal(begin, rows[i].begin[t]);
            assert_int_equal(limit, begin + rows[i].count);
        }
        assert_int_equal(hlg_layout_sets(rows[i].heads, rows[i].tp), rows[i].sets);
    }
}

static void pages_round_up_and_a_context_is_one(void **state)
{
    const struct hlg_layout layout = make_layout();
    (void)state;

    assert_int_equal(hlg_layout_pages(&layout, 0, 0), 0);
    assert_int_equal(hlg_layout_pages(&layout, 0, 1), 1);
    assert_int_equal(hlg_layout_pages(&layout, 0, 16), 1);
    assert_int_equal(hlg_layout_pages(&layout, 0, 17), 2);
    assert_int_equal(hlg_layout_pages(&layout, 1, 17), 1);
    assert_int_equal(hlg_layout_page_bytes(&layout, 0), 2 * 16 * 256);
    assert_int_equal(hlg_layout_page_bytes(&layout, 1), 4096);
}

static void fields_of_the_layout_have_ranges(void **state)
{
    struct hlg_layout layout = make_layout();
    (void)state;

    accept(&layout);
    layout.tp = 0;
    refuse_range(&layout, HLG_FIELD_TP, HLG_NONE);
    layout.tp = HLG_RANKS_MAX + 1;
    refuse_range(&layout, HLG_FIELD_TP, HLG_NONE);
    layout = make_layout();
    layout.stages = 0;
    refuse_range(&layout, HLG_FIELD_STAGES, HLG_NONE);
    layout.stages = HLG_STAGES_MAX + 1;
    refuse_range(&layout, HLG_FIELD_STAGES, HLG_NONE);
    layout = make_layout();
    layout.tp = 33; /* of two stages: 66 ranks */
    refuse_range(&layout, HLG_FIELD_RANKS, HLG_NONE);
    layout = make_layout();
    layout.pools = 8;
    accept(&layout);
    layout.pools = 9;
    refuse_range(&layout, HLG_FIELD_POOLS, HLG_NONE);
    layout.rank_begin = 4; /* half of the ranks, twice the pools */
    layout.pools = 16;
    accept(&layout);
    layout.pools = 0;
    refuse_range(&layout, HLG_FIELD_POOLS, HLG_NONE);
    layout = make_layout();
    layout.rank_limit = 9;
    refuse_range(&layout, HLG_FIELD_RANKS, HLG_NONE);
    layout.rank_limit = 0;
    refuse_range(&layout, HLG_FIELD_RANKS, HLG_NONE);
    layout.rank_limit = 8;
    layout.rank_begin = 8;
    refuse_range(&layout, HLG_FIELD_RANKS, HLG_NONE);
    layout = make_layout();
    layout.all_reduce = 2;
    refuse_range(&layout, HLG_FIELD_ALL_REDUCE, HLG_NONE);
    layout = make_layout();
    layout.piece_bytes_max = 0;
    refuse_range(&layout, HLG_FIELD_PIECE_BYTES_MAX, HLG_NONE);
    layout = make_layout();
    layout.group_count = 0;
    refuse_range(&layout, HLG_FIELD_GROUPS, HLG_NONE);
    layout.group_count = HLG_GROUPS_MAX + 1;
    refuse_range(&layout, HLG_FIELD_GROUPS, HLG_NONE);
}

static void stages_must_cover_the_layers_in_order(void **state)
{
    struct hlg_layout layout = make_layout();
    struct hlg_refusal why;
    (void)state;

    layout.layers = 0;
    refuse_range(&layout, HLG_FIELD_LAYERS, HLG_NONE);
    layout.layers = HLG_LAYERS_MAX + 1;
    refuse_range(&layout, HLG_FIELD_LAYERS, HLG_NONE);
    layout = make_layout();
    layout.stage_limit[0] = 0;
    accept(&layout);
    layout.stage_limit[0] = 10;
    accept(&layout);
    layout.stage_limit[0] = 11;
    assert_int_equal(hlg_layout_check(&layout, &why), -HLG_EPLAN);
    assert_int_equal(why.code, HLG_REFUSAL_STAGES);
    assert_int_equal(why.a, 0);
    assert_int_equal(why.b, 11);
    assert_int_equal(why.c, 10);
    layout.stage_limit[0] = 5;
    layout.stage_limit[1] = 9;
    assert_int_equal(hlg_layout_check(&layout, &why), -HLG_EPLAN);
    assert_int_equal(why.code, HLG_REFUSAL_STAGES);
    assert_int_equal(why.a, 1);
    layout.stage_limit[0] = UINT32_MAX;
    assert_int_equal(hlg_layout_check(&layout, &why), -HLG_EPLAN);
}

/* Try one value of one field of one group, in a sound layout. */
static void refuse_group(size_t offset, uint32_t value, uint32_t field, uint32_t group)
{
    struct hlg_layout layout = make_layout();
    memcpy((char *)&layout.groups[group] + offset, &value, sizeof value);
    refuse_range(&layout, field, group);
}

static void fields_of_a_group_have_ranges(void **state)
{
    (void)state;
    refuse_group(offsetof(struct hlg_group, kind), 2, HLG_FIELD_KIND, 0);
    refuse_group(offsetof(struct hlg_group, planes), 0, HLG_FIELD_PLANES, 0);
    refuse_group(offsetof(struct hlg_group, planes), 5, HLG_FIELD_PLANES, 0);
    refuse_group(offsetof(struct hlg_group, planes), 2, HLG_FIELD_PLANES, 1);
    refuse_group(offsetof(struct hlg_group, heads), 0, HLG_FIELD_HEADS, 0);
    refuse_group(offsetof(struct hlg_group, head_bytes), 0, HLG_FIELD_HEAD_BYTES, 0);
    refuse_group(offsetof(struct hlg_group, page_tokens), 0, HLG_FIELD_PAGE_TOKENS, 0);
    refuse_group(offsetof(struct hlg_group, page_tokens), HLG_PAGE_PIECES_MAX + 1,
                 HLG_FIELD_PAGE_TOKENS, 0);
    refuse_group(offsetof(struct hlg_group, page_tokens), 2, HLG_FIELD_PAGE_TOKENS, 1);
    refuse_group(offsetof(struct hlg_group, arrangement), 2, HLG_FIELD_ARRANGEMENT, 0);
    refuse_group(offsetof(struct hlg_group, page_count), 0, HLG_FIELD_PAGE_COUNT, 0);
}

static void a_paged_group_lists_layers_and_a_context_none(void **state)
{
    struct hlg_layout layout = make_layout();
    (void)state;

    layout.groups[0].layers[0] = 0x7ff;
    refuse_range(&layout, HLG_FIELD_LAYERS, 0);
    layout.groups[0].layers[0] = 0;
    refuse_range(&layout, HLG_FIELD_LAYERS, 0);
    layout = make_layout();
    layout.groups[0].layers[3] = 1ull << 63;
    refuse_range(&layout, HLG_FIELD_LAYERS, 0);
    layout = make_layout();
    layout.groups[1].layers[0] = 1;
    refuse_range(&layout, HLG_FIELD_LAYERS, 1);
}

/* Sizes of foreign layouts: the last that fits, and the first that does not, by product or wrap. */
static void page_sizes_are_bounded(void **state)
{
    struct hlg_layout layout = make_layout();
    (void)state;

    layout.piece_bytes_max = UINT32_MAX;
    layout.groups[0].head_bytes = 1u << 26; /* * 2 heads * 16 tokens = 2^31 */
    accept(&layout);
    assert_int_equal(hlg_layout_page_bytes(&layout, 0), 1u << 31);
    layout.groups[0].head_bytes++;
    refuse_range(&layout, HLG_FIELD_HEAD_BYTES, 0);
    layout.groups[0].heads = 1u << 31;
    layout.groups[0].head_bytes = UINT32_MAX;
    refuse_range(&layout, HLG_FIELD_HEAD_BYTES, 0);
    layout.groups[0].page_tokens = HLG_PAGE_PIECES_MAX;
    refuse_range(&layout, HLG_FIELD_HEAD_BYTES, 0);
    layout = make_layout();
    layout.groups[0].page_tokens = HLG_PAGE_PIECES_MAX; /* * 2 heads * 256 bytes in one piece */
    accept(&layout);
    layout.piece_bytes_max = 512;
    accept(&layout);
    layout.piece_bytes_max = 511;
    refuse_range(&layout, HLG_FIELD_PIECE_BYTES_MAX, HLG_NONE);
}

static void lanes_count_hosted_ranks_over_pools(void **state)
{
    struct hlg_layout layout = make_layout();
    (void)state;

    assert_int_equal(hlg_layout_ranks(&layout), 8);
    assert_int_equal(hlg_layout_lanes(&layout), 16);
    assert_int_equal(hlg_layout_lane(&layout, 1, 3), 11);
    layout.rank_begin = 2;
    layout.rank_limit = 5;
    assert_int_equal(hlg_layout_lanes(&layout), 6);
    assert_int_equal(hlg_layout_lane(&layout, 1, 3), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_follow_the_golden_vectors),
        cmocka_unit_test(pages_round_up_and_a_context_is_one),
        cmocka_unit_test(fields_of_the_layout_have_ranges),
        cmocka_unit_test(stages_must_cover_the_layers_in_order),
        cmocka_unit_test(fields_of_a_group_have_ranges),
        cmocka_unit_test(a_paged_group_lists_layers_and_a_context_none),
        cmocka_unit_test(page_sizes_are_bounded),
        cmocka_unit_test(lanes_count_hosted_ranks_over_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
