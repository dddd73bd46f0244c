/*
 * Slots of immediates by themselves: generations that come round after 4096 uses, reuse in the order
 * of closing, slots that share the fate of poisoned pages, and the 32 bits of an immediate.
 */
#include <core/imm.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SLOTS 3u

struct table {
    struct slots slots;
    void *memory;
};

static int setup(void **state)
{
    struct table *t = calloc(1, sizeof *t);
    struct carve c = {0};

    assert_non_null(t);
    slots_init(&t->slots, &c, SLOTS);
    t->memory = malloc(c.used);
    assert_non_null(t->memory);
    c = (struct carve){.base = t->memory};
    slots_init(&t->slots, &c, SLOTS);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct table *t = *state;

    slots_check(&t->slots);
    free(t->memory);
    free(t);
    return 0;
}

static uint32_t open_slot(struct slots *s, uint64_t number)
{
    uint32_t slot = slots_open(s, 0, 0, number, 1, (struct sender){.peer = 2, .serial = number});

    slots_check(s);
    return slot;
}

static void slots_are_reused_first_in_first_out(void **state)
{
    struct slots *s = &((struct table *)*state)->slots;

    assert_int_equal(open_slot(s, 1), 0);
    assert_int_equal(open_slot(s, 2), 1);
    assert_int_equal(open_slot(s, 3), 2);
    assert_int_equal(open_slot(s, 4), HLG_NONE);
    slots_close(s, 1, false);
    slots_close(s, 0, false);
    assert_int_equal(open_slot(s, 5), 1);
    assert_int_equal(open_slot(s, 6), 0);
    assert_int_equal(open_slot(s, 7), HLG_NONE);
}

static void generations_wrap_after_4096_uses(void **state)
{
    struct slots *s = &((struct table *)*state)->slots;

    for (uint64_t use = 0; use < (uint64_t)SLOTS * (HLG_GENERATIONS + 2); use++) {
        uint32_t slot = slots_open(s, 0, 0, use + 1, 1, (struct sender){.serial = use + 1});
        assert_int_equal(slot, use % SLOTS);
        assert_int_equal(s->slots[slot].generation, (use / SLOTS) % HLG_GENERATIONS);
        assert_int_equal(s->slots[slot].counted, 0);
        slots_close(s, slot, false);
    }
}

static void an_open_slot_is_found_by_its_number(void **state)
{
    struct slots *s = &((struct table *)*state)->slots;

    /* 1, 5 and 9 meet in one of the four buckets. */
    uint32_t one = open_slot(s, 1);
    uint32_t five = open_slot(s, 5);
    uint32_t nine = open_slot(s, 9);
    assert_int_equal(slots_find(s, 5), five);
    slots_close(s, five, false);
    slots_check(s);
    assert_int_equal(slots_find(s, 5), HLG_NONE);
    assert_int_equal(slots_find(s, 1), one);
    assert_int_equal(slots_find(s, 9), nine);
    assert_int_equal(slots_find(s, 0), HLG_NONE);
    assert_int_equal(slots_find(s, UINT64_MAX), HLG_NONE);
}

static void a_poisoned_slot_is_never_used_again(void **state)
{
    struct slots *s = &((struct table *)*state)->slots;
    uint32_t bad = open_slot(s, 1);

    slots_close(s, bad, true);
    slots_check(s);
    assert_int_equal(slots_find(s, 1), HLG_NONE);
    for (uint64_t number = 2; number < 20; number++) {
        uint32_t slot = open_slot(s, number);
        assert_int_not_equal(slot, bad);
        slots_close(s, slot, false);
    }
    open_slot(s, 20);
    open_slot(s, 21);
    assert_int_equal(open_slot(s, 22), HLG_NONE);
}

/* Of this generation and the one before, whether the slot is open or closed. */
static void a_slot_knows_who_sent_to_it_last(void **state)
{
    struct slots *s = &((struct table *)*state)->slots;

    assert_null(slots_sender(s, 0, 0)); /* never used */
    assert_null(slots_sender(s, SLOTS, 0));
    assert_null(slots_sender(s, UINT32_MAX, 0));
    for (uint64_t use = 0; use < (uint64_t)SLOTS * (HLG_GENERATIONS + 2); use++) {
        uint32_t slot = slots_open(s, 0, 0, use + 1, 1, (struct sender){.serial = use + 1});
        uint32_t generation = s->slots[slot].generation;
        if (use % 2 == 0) {
            slots_close(s, slot, false);
        }
        const struct sender *now = slots_sender(s, slot, generation);
        const struct sender *before =
            slots_sender(s, slot, (generation + HLG_GENERATIONS - 1) % HLG_GENERATIONS);
        assert_int_equal(now->serial, use + 1);
        assert_int_equal(before->serial, use < SLOTS ? 0 : use + 1 - SLOTS);
        assert_null(slots_sender(s, slot, (generation + 1) % HLG_GENERATIONS));
        if (use % 2 == 1) {
            slots_close(s, slot, false);
        }
    }
}

static void an_immediate_holds_its_three_numbers(void **state)
{
    static const uint32_t slots[] = {0, 1, 0x8000, 0xffff};
    static const uint32_t generations[] = {0, 1, 0x800, 0xfff};

    (void)state;
    for (size_t s = 0; s < 4; s++) {
        for (size_t g = 0; g < 4; g++) {
            for (uint32_t weight = 0; weight <= HLG_IMM_WEIGHT_MARK; weight++) {
                uint32_t imm = hlg_imm_make(slots[s], generations[g], weight);
                assert_int_equal(hlg_imm_slot(imm), slots[s]);
                assert_int_equal(hlg_imm_generation(imm), generations[g]);
                assert_int_equal(hlg_imm_weight(imm), weight);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slots_are_reused_first_in_first_out, setup, teardown),
        cmocka_unit_test_setup_teardown(generations_wrap_after_4096_uses, setup, teardown),
        cmocka_unit_test_setup_teardown(an_open_slot_is_found_by_its_number, setup, teardown),
        cmocka_unit_test_setup_teardown(a_poisoned_slot_is_never_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slot_knows_who_sent_to_it_last, setup, teardown),
        cmocka_unit_test(an_immediate_holds_its_three_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
