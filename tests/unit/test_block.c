/* Page lists in blocks: chains of every length around a block's size, and an arena that runs out. */
#include <core/block.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BLOCKS 4u
#define PAGES  (BLOCKS * HLG_BLOCK_PAGES)

struct table {
    struct blocks blocks;
    void *memory;
    uint32_t targets[PAGES + 1];
    uint32_t sources[PAGES + 1];
};

static int setup(void **state)
{
    struct table *t = calloc(1, sizeof *t);
    struct carve c = {0};

    assert_non_null(t);
    blocks_init(&t->blocks, &c, BLOCKS);
    t->memory = malloc(c.used);
    assert_non_null(t->memory);
    c = (struct carve){.base = t->memory};
    blocks_init(&t->blocks, &c, BLOCKS);
    for (uint32_t i = 0; i <= PAGES; i++) {
        t->targets[i] = 7 * i + 1;
        t->sources[i] = 3 * i + 2;
    }
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct table *t = *state;

    assert_int_equal(t->blocks.free_count, BLOCKS);
    free(t->memory);
    free(t);
    return 0;
}

static void a_chain_holds_every_page_at_its_position(void **state)
{
    static const uint32_t counts[] = {0, 1, 255, 256, 257, 511, 512, 513, 1023, 1024};
    struct table *t = *state;
    struct blocks *b = &t->blocks;

    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        uint32_t head = 0;
        assert_int_equal(blocks_take(b, t->targets, counts[k], &head), 0);
        assert_int_equal(head == HLG_NONE, counts[k] == 0);
        assert_int_equal(blocks_count(b, head), hlg_div_ceil(counts[k], HLG_BLOCK_PAGES));
        assert_int_equal(b->free_count + blocks_count(b, head), BLOCKS);
        blocks_sources(b, head, t->sources, counts[k]);
        for (uint32_t i = 0; i < counts[k]; i++) {
            const struct block *block = &b->blocks[blocks_at(b, head, i)];
            assert_int_equal(block->target[i % HLG_BLOCK_PAGES], t->targets[i]);
            assert_int_equal(block->source[i % HLG_BLOCK_PAGES], t->sources[i]);
        }
        blocks_give(b, head);
    }
}

static void an_arena_that_runs_out_keeps_nothing(void **state)
{
    struct table *t = *state;
    struct blocks *b = &t->blocks;
    uint32_t one = HLG_NONE;
    uint32_t two = 77;

    assert_int_equal(blocks_take(b, t->targets, PAGES + 1, &two), -HLG_ELIMIT);
    assert_int_equal(blocks_take(b, t->targets, PAGES - HLG_BLOCK_PAGES + 1, &one), 0);
    assert_int_equal(b->free_count, 0);
    assert_int_equal(blocks_take(b, t->targets, 1, &two), -HLG_ELIMIT);
    assert_int_equal(two, 77);
    assert_int_equal(blocks_take(b, t->targets, 0, &two), 0);
    blocks_give(b, one);
    assert_int_equal(blocks_take(b, t->targets, 1, &two), 0);
    blocks_give(b, two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_chain_holds_every_page_at_its_position, setup, teardown),
        cmocka_unit_test_setup_teardown(an_arena_that_runs_out_keeps_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
