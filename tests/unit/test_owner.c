/*
 * The owner map by itself (I1): a page has one owner at most, all of a list or none of it changes
 * hands, and what is poisoned stays so.
 */
#include <core/owner.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct hlg_layout layout = {
    .pools = 2, .group_count = 2, .groups = {{.page_count = 4}, {.page_count = 2}}};

struct table {
    struct owners owners;
    void *memory;
};

static int setup(void **state)
{
    struct table *t = calloc(1, sizeof *t);
    struct carve c = {0};

    assert_non_null(t);
    owners_init(&t->owners, &c, &layout);
    t->memory = malloc(c.used);
    assert_non_null(t->memory);
    c = (struct carve){.base = t->memory};
    owners_init(&t->owners, &c, &layout);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct table *t = *state;

    owners_check(&t->owners);
    free(t->memory);
    free(t);
    return 0;
}

static int take(struct owners *o, uint32_t owner, uint32_t pool, uint32_t group, uint32_t a,
                uint32_t b, uint32_t *head)
{
    const uint32_t pages[2] = {a, b};
    int error = owners_take(o, owner, pool, group, pages, 2, head);

    owners_check(o);
    return error;
}

static void all_of_a_list_is_taken_or_none(void **state)
{
    struct owners *o = &((struct table *)*state)->owners;
    uint32_t one = HLG_NONE;
    uint32_t two = HLG_NONE;

    assert_int_equal(take(o, 1, 0, 0, 0, 1, &one), 0);
    uint32_t before = one;
    assert_int_equal(take(o, 2, 0, 0, 2, 1, &two), -HLG_EOWNED); /* 1 is owned */
    assert_int_equal(take(o, 2, 0, 0, 3, 3, &two), -HLG_EOWNED); /* named twice */
    assert_int_equal(take(o, 1, 0, 0, 3, 0, &one), -HLG_EOWNED); /* its own */
    assert_int_equal(take(o, 2, 0, 0, 2, 4, &two), -HLG_EINVAL); /* no such page */
    assert_int_equal(take(o, 2, 0, 1, 1, UINT32_MAX, &two), -HLG_EINVAL);
    assert_int_equal(two, HLG_NONE);
    assert_int_equal(one, before);
    assert_int_equal(o->owned_count, 2);
    assert_int_equal(take(o, 2, 0, 0, 2, 3, &two), 0); /* the failures left them free */
}

static void pools_and_groups_are_apart(void **state)
{
    struct owners *o = &((struct table *)*state)->owners;
    uint32_t heads[4] = {HLG_NONE, HLG_NONE, HLG_NONE, HLG_NONE};

    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(take(o, i, i / 2, i % 2, 0, 1, &heads[i]), 0);
    }
    assert_int_equal(owners_release(o, 2, &heads[2]), 2);
    owners_check(o);
    assert_int_equal(heads[2], HLG_NONE);
    assert_int_equal(take(o, 5, 1, 0, 0, 1, &heads[2]), 0);
    assert_int_equal(take(o, 5, 0, 0, 0, 1, &heads[2]), -HLG_EOWNED);
}

static void one_owner_holds_pages_of_several_lists(void **state)
{
    struct owners *o = &((struct table *)*state)->owners;
    uint32_t head = HLG_NONE;

    assert_int_equal(take(o, 9, 0, 0, 3, 0, &head), 0);
    assert_int_equal(take(o, 9, 0, 1, 1, 0, &head), 0);
    assert_int_equal(owners_take(o, 9, 0, 1, NULL, 0, &head), 0); /* no pages, no list */
    assert_int_equal(owners_release(o, 9, &head), 4);
    assert_int_equal(o->owned_count, 0);
    assert_int_equal(owners_release(o, 9, &head), 0);
}

static void poisoned_pages_are_refused_for_ever(void **state)
{
    struct owners *o = &((struct table *)*state)->owners;
    uint32_t head = HLG_NONE;

    assert_int_equal(take(o, 1, 0, 0, 0, 2, &head), 0);
    assert_int_equal(owners_poison(o, 1, &head), 2);
    owners_check(o);
    assert_int_equal(o->poisoned_count, 2);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(take(o, 2, 0, 0, 0, 1, &head), -HLG_EOWNED);
        assert_int_equal(take(o, 2, 0, 0, 1, 2, &head), -HLG_EOWNED);
        assert_int_equal(take(o, 2, 0, 0, 1, 3, &head), 0);
        assert_int_equal(owners_release(o, 2, &head), 2);
    }
    assert_int_equal(o->poisoned_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_a_list_is_taken_or_none, setup, teardown),
        cmocka_unit_test_setup_teardown(pools_and_groups_are_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(one_owner_holds_pages_of_several_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(poisoned_pages_are_refused_for_ever, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
