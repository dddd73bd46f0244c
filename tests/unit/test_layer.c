/*
 * Layer facts by themselves (I4): what a stamped counter word proves about which forward pass, for
 * every way a word may move: by one, in jumps, backward, to a newer pass, around 2^24.
 */
#include <core/layer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define FORWARDS 4u
#define WORDS    2u
#define LAST     0xffffffu
#define WINDOW   0x800000u

struct table {
    struct layers layers;
    void *memory;
};

static int setup(void **state)
{
    struct table *t = calloc(1, sizeof *t);
    struct carve c = {0};

    assert_non_null(t);
    layers_init(&t->layers, &c, FORWARDS, WORDS);
    t->memory = malloc(c.used);
    assert_non_null(t->memory);
    c = (struct carve){.base = t->memory};
    layers_init(&t->layers, &c, FORWARDS, WORDS);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct table *t = *state;

    layers_check(&t->layers);
    free(t->memory);
    free(t);
    return 0;
}

static uint32_t announce(struct layers *l, uint32_t number)
{
    int64_t index = layers_announce(l, number);

    assert_in_range(index, 0, FORWARDS - 1);
    layers_check(l);
    return (uint32_t)index;
}

static enum layer_tick tick(struct layers *l, uint32_t word, uint32_t number, uint32_t layers)
{
    enum layer_tick result = layers_tick(l, word, number << 8 | layers);

    layers_check(l);
    return result;
}

static void after_is_a_window_of_half_the_numbers(void **state)
{
    static const struct {
        uint32_t a;
        uint32_t b;
        bool after;
    } cases[] = {
        {2, 1, true},           {1, 2, false},          {1, 1, false},
        {1, LAST, true},        {LAST, 1, false},       {WINDOW, 1, true},
        {WINDOW + 1, 1, false}, {1, WINDOW + 1, false}, {1, WINDOW + 2, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(layers_after(cases[i].a, cases[i].b), cases[i].after);
    }
}

static void numbers_go_upward_from_one(void **state)
{
    struct layers *l = &((struct table *)*state)->layers;

    assert_int_equal(layers_announce(l, 0), -HLG_EINVAL);
    assert_int_equal(layers_announce(l, LAST + 1), -HLG_EINVAL);
    uint32_t five = announce(l, 5);
    assert_int_equal(announce(l, 5), five); /* another chunk of it */
    assert_int_equal(layers_announce(l, 4), -HLG_EINVAL);
    assert_int_equal(layers_announce(l, 5 + WINDOW), -HLG_EINVAL);
    announce(l, 5 + WINDOW - 1); /* the last of the window */
}

static void numbers_wrap_over_zero(void **state)
{
    struct layers *l = &((struct table *)*state)->layers;
    uint32_t last = announce(l, LAST);

    assert_int_equal(layers_announce(l, 0), -HLG_EINVAL);
    uint32_t first = announce(l, 1);
    assert_int_equal(tick(l, 0, 1, 1), LAYER_TICK_NEWS);
    assert_int_equal(layers_done(l, first, 0), 1);
    assert_int_equal(layers_done(l, last, 0), LAYERS_ALL);
    assert_int_equal(layers_announce(l, LAST - 1), -HLG_EINVAL);
}

static void too_many_forwards_are_answered(void **state)
{
    struct layers *l = &((struct table *)*state)->layers;

    for (uint32_t i = 1; i <= FORWARDS; i++) {
        announce(l, i);
    }
    assert_int_equal(layers_announce(l, FORWARDS + 1), -HLG_ELIMIT);
    layers_end(l, layers_find(l, 2));
    announce(l, FORWARDS + 1);
}

static void jumps_count_and_steps_back_do_not(void **state)
{
    struct layers *l = &((struct table *)*state)->layers;
    uint32_t f = announce(l, 7);

    assert_int_equal(layers_done(l, f, 0), 0);
    assert_int_equal(tick(l, 0, 7, 0), LAYER_TICK_NOTHING);
    assert_int_equal(tick(l, 0, 7, 3), LAYER_TICK_NEWS);
    assert_int_equal(layers_done(l, f, 0), 3);
    assert_int_equal(layers_done(l, f, 1), 0); /* each word speaks for itself */
    assert_int_equal(tick(l, 0, 7, 3), LAYER_TICK_NOTHING);
    assert_int_equal(tick(l, 0, 7, 1), LAYER_TICK_NOTHING);
    assert_int_equal(layers_done(l, f, 0), 3);
    assert_int_equal(tick(l, 0, 7, 254), LAYER_TICK_NEWS);
    assert_int_equal(layers_done(l, f, 0), 254);
}

static void an_unannounced_stamp_advances_nothing(void **state)
{
    struct layers *l = &((struct table *)*state)->layers;

    assert_int_equal(tick(l, 0, 1, 9), LAYER_TICK_UNANNOUNCED);
    uint32_t f = announce(l, 2);
    assert_int_equal(tick(l, 0, 1, 9), LAYER_TICK_UNANNOUNCED); /* warm-up, older */
    assert_int_equal(tick(l, 0, 3, 9), LAYER_TICK_UNANNOUNCED); /* dummy, newer */
    assert_int_equal(tick(l, 0, 0, 9), LAYER_TICK_UNANNOUNCED);
    assert_int_equal(layers_done(l, f, 0), 0);
    assert_int_equal(layers_done(l, f, 1), 0);
}

static void a_newer_stamp_ends_older_forwards_of_its_word_alone(void **state)
{
    struct layers *l = &((struct table *)*state)->layers;
    uint32_t one = announce(l, 1);
    uint32_t two = announce(l, 2);
    uint32_t three = announce(l, 3);

    assert_int_equal(tick(l, 0, 1, 1), LAYER_TICK_NEWS);
    assert_int_equal(tick(l, 0, 2, 0), LAYER_TICK_NEWS); /* its stamp alone */
    assert_int_equal(layers_done(l, one, 0), LAYERS_ALL);
    assert_int_equal(layers_done(l, one, 1), 0);
    assert_int_equal(layers_done(l, two, 0), 0);
    assert_int_equal(layers_done(l, three, 0), 0);
    /* An old stamp read late takes nothing back. */
    assert_int_equal(tick(l, 0, 1, 1), LAYER_TICK_NOTHING);
    assert_int_equal(layers_done(l, one, 0), LAYERS_ALL);
}

static void a_forward_stays_while_a_chunk_waits_for_it(void **state)
{
    struct layers *l = &((struct table *)*state)->layers;
    uint32_t f = announce(l, 1);

    layers_hold(l, f);
    layers_hold(l, f);
    layers_end(l, f);
    layers_check(l);
    assert_int_equal(layers_done(l, f, 1), LAYERS_ALL);
    assert_int_equal(layers_announce(l, 1), -HLG_EINVAL); /* it is over */
    layers_drop(l, f);
    assert_int_equal(layers_find(l, 1), f);
    layers_drop(l, f);
    layers_check(l);
    assert_int_equal(layers_find(l, 1), HLG_NONE);
    assert_int_equal(layers_announce(l, 1), -HLG_EINVAL);
    /* What takes its place starts at nothing. */
    uint32_t next = announce(l, 2);
    assert_int_equal(next, f);
    assert_int_equal(layers_done(l, next, 0), 0);
}

static void no_forward_means_valid_already(void **state)
{
    const struct layers *l = &((struct table *)*state)->layers;

    assert_int_equal(layers_done(l, HLG_NONE, 0), LAYERS_ALL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_is_a_window_of_half_the_numbers),
        cmocka_unit_test_setup_teardown(numbers_go_upward_from_one, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_wrap_over_zero, setup, teardown),
        cmocka_unit_test_setup_teardown(too_many_forwards_are_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(jumps_count_and_steps_back_do_not, setup, teardown),
        cmocka_unit_test_setup_teardown(an_unannounced_stamp_advances_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_newer_stamp_ends_older_forwards_of_its_word_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_forward_stays_while_a_chunk_waits_for_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_forward_means_valid_already, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
