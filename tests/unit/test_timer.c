/* The heap of deadlines against a plain table, over a seeded walk of sets, moves and clears. */
#include "../../src/driver/rng.h"

#include <core/timer.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ITEMS 9u
#define STEPS 20000u
#define SEED  20240611u

static struct timers make(void **memory)
{
    struct timers t;
    struct carve c = {0};

    timers_init(&t, &c, ITEMS);
    *memory = malloc(c.used);
    assert_non_null(*memory);
    c = (struct carve){.base = *memory};
    timers_init(&t, &c, ITEMS);
    return t;
}

/* The item that is due first in a plain table: the earliest, of equals the lowest. */
static uint32_t first_of(const hlg_time *at)
{
    uint32_t best = HLG_NONE;

    for (uint32_t i = 0; i < ITEMS; i++) {
        if (at[i] != 0 && (best == HLG_NONE || at[i] < at[best])) {
            best = i;
        }
    }
    return best;
}

static void the_heap_agrees_with_a_table(void **state)
{
    struct hlg_rng rng = hlg_rng_seed(SEED);
    hlg_time at[ITEMS] = {0};
    void *memory = NULL;
    struct timers t = make(&memory);

    (void)state;
    print_message("seed %u\n", SEED);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t item = (uint32_t)hlg_rng_below(&rng, ITEMS);
        uint32_t best = first_of(at);
        switch (hlg_rng_below(&rng, 4)) {
        case 0:
            timers_clear(&t, item);
            at[item] = 0;
            break;
        case 1:
            assert_int_equal(timers_due(&t, best == HLG_NONE ? 99 : at[best]), best);
            if (best != HLG_NONE) {
                at[best] = 0;
            }
            break;
        case 2:
            assert_int_equal(timers_due(&t, best == HLG_NONE ? 99 : at[best] - 1), HLG_NONE);
            break;
        default:
            at[item] = 1 + hlg_rng_below(&rng, 20);
            timers_set(&t, item, at[item]);
            break;
        }
        timers_check(&t);
        best = first_of(at);
        assert_int_equal(timers_next(&t), best == HLG_NONE ? HLG_TIME_NEVER : at[best]);
    }
    free(memory);
}

static void equal_times_come_out_by_item(void **state)
{
    void *memory = NULL;
    struct timers t = make(&memory);

    (void)state;
    for (uint32_t i = ITEMS; i > 0; i--) {
        timers_set(&t, i - 1, 5);
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        assert_int_equal(timers_due(&t, 5), i);
    }
    assert_int_equal(timers_due(&t, HLG_TIME_NEVER), HLG_NONE);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_heap_agrees_with_a_table),
        cmocka_unit_test(equal_times_come_out_by_item),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
