/* The last-token rule (I6) as a table: what a prefiller handles, and when none is needed. */
#include <halage/handoff.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct hlg_layout plain = {.group_count = 1, .groups = {{.kind = HLG_GROUP_PAGED}}};
static const struct hlg_layout with_context = {
    .group_count = 2, .groups = {{.kind = HLG_GROUP_PAGED}, {.kind = HLG_GROUP_CONTEXT}}};

static void the_last_token_is_the_decoders(void **state)
{
    (void)state;
    for (uint32_t tokens = 1; tokens < 20; tokens++) {
        assert_int_equal(hlg_handoff_prefill_tokens(tokens), tokens - 1);
    }
    assert_int_equal(hlg_handoff_prefill_tokens(HLG_TOKENS_MAX), HLG_TOKENS_MAX - 1);
}

static void a_context_is_due_when_the_layout_has_one(void **state)
{
    (void)state;
    assert_false(hlg_handoff_context_due(&plain));
    assert_true(hlg_handoff_context_due(&with_context));
}

static void a_prefiller_is_needed_for_pages_or_a_context(void **state)
{
    (void)state;
    assert_false(hlg_handoff_needs_prefill(&plain, 1, 0));
    assert_false(hlg_handoff_needs_prefill(&with_context, 1, 0));
    assert_false(hlg_handoff_needs_prefill(&plain, 9, 0));
    assert_true(hlg_handoff_needs_prefill(&with_context, 9, 0));
    assert_true(hlg_handoff_needs_prefill(&plain, 2, 1));
    assert_true(hlg_handoff_needs_prefill(&plain, 2, UINT64_MAX));
}

static void a_due_context_leaves_one_token_to_compute(void **state)
{
    (void)state;
    assert_int_equal(hlg_handoff_cached_tokens_max(&plain, 2), 1);
    assert_int_equal(hlg_handoff_cached_tokens_max(&with_context, 2), 0);
    assert_int_equal(hlg_handoff_cached_tokens_max(&plain, 9), 8);
    assert_int_equal(hlg_handoff_cached_tokens_max(&with_context, 9), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_token_is_the_decoders),
        cmocka_unit_test(a_context_is_due_when_the_layout_has_one),
        cmocka_unit_test(a_prefiller_is_needed_for_pages_or_a_context),
        cmocka_unit_test(a_due_context_leaves_one_token_to_compute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
