/*
 * What turns a write of pages into bytes of memory: by hand-made tables, since a sound core never asks for
 * what must be refused here. Two lanes of two rails each, two regions; oracle: arithmetic of its own.
 */
#include "driver/pump_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PAGES      8u
#define PAGE_BYTES 64u
#define RAILS      2u
#define LANES      2u
#define KEYS       (LANES * RAILS)

struct bench {
    struct hlg_pump pump;
    struct pump_peer peers[1];
    struct pump_place places[2 * LANES];
    struct pump_place targets[2 * LANES];
    struct hlg_region_key keys[KEYS];
    struct hlg_pump_region regions[LANES];
    struct pump_domain domains[1];
    hlg_mem mems[RAILS * LANES];
    uint32_t numbers[LANES * RAILS * LANES * RAILS];
    uint8_t memory[LANES][PAGES * PAGE_BYTES];
    struct hlg_slice slice;
    uint32_t source_pages[PAGES];
    uint32_t target_pages[PAGES];
};

static void make_pump(struct bench *b)
{
    b->pump.layout = (struct hlg_layout){.tp = LANES,
                                         .stages = 1,
                                         .pools = 1,
                                         .layers = 1,
                                         .stage_limit = {1},
                                         .rank_limit = LANES,
                                         .group_count = 1,
                                         .groups = {{.planes = 1,
                                                     .heads = 2,
                                                     .head_bytes = PAGE_BYTES,
                                                     .page_tokens = 1,
                                                     .page_count = PAGES,
                                                     .layers = {1}}}};
    b->pump.limits.lanes_max = LANES;
    b->pump.limits.rails_max = RAILS;
    b->pump.lanes = LANES;
    b->pump.rails = RAILS;
    b->pump.planes = 1;
    b->pump.places_max = 2 * LANES;
    b->pump.region_count = LANES;
    b->pump.regions = b->regions;
    b->pump.places = b->places;
    b->pump.domains = b->domains;
    b->pump.peers = b->peers;
    b->domains[0].mems = b->mems;
}

static int set_up(void **state)
{
    static struct bench bench;
    struct bench *b = &bench;

    *b = (struct bench){
        .slice = {.count = 2, .bytes = 16, .source_stride = 32, .target_stride = 16}};
    make_pump(b);
    b->peers[0] = (struct pump_peer){.opened = true,
                                     .has_table = true,
                                     .lanes = LANES,
                                     .rails = RAILS,
                                     .keys = b->keys,
                                     .places = b->targets,
                                     .numbers = b->numbers};
    for (uint32_t lane = 0; lane < LANES; lane++) {
        b->regions[lane] = (struct hlg_pump_region){
            .lane = lane, .memory = HLG_MEM_HOST(b->memory[lane], PAGES * PAGE_BYTES)};
        /* by (lane, group, layer, plane), of which layer 1 is the context's */
        b->places[2 * lane] =
            (struct pump_place){.region = lane, .stride = PAGE_BYTES, .room = PAGES * PAGE_BYTES};
        b->places[2 * lane + 1].region = HLG_NONE;
        b->targets[2 * lane] = (struct pump_place){
            .region = lane * RAILS, .offset = 5, .stride = 32, .room = PAGES * 32};
        b->targets[2 * lane + 1].region = HLG_NONE;
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        b->keys[i] = (struct hlg_region_key){.address = 1000 * i, .key = 70 + i};
        b->mems[i] = (hlg_mem)(90 + i);
    }
    for (uint32_t i = 0; i < sizeof b->numbers / sizeof b->numbers[0]; i++) {
        b->numbers[i] = 100 + i;
    }
    for (uint32_t i = 0; i < PAGES; i++) {
        b->source_pages[i] = PAGES - 1 - i;
        b->target_pages[i] = i;
    }
    *state = b;
    return 0;
}

static struct hlg_action_write plain(const struct bench *b)
{
    return (struct hlg_action_write){.slice = &b->slice,
                                     .source_pages = b->source_pages,
                                     .target_pages = b->target_pages,
                                     .page_count = PAGES,
                                     .piece_limit = PAGES * 2};
}

static void each_rail_has_its_own_key_number_and_memory(void **state)
{
    struct bench *b = *state;
    struct hlg_paged_write write;

    for (uint32_t i = 0; i < LANES * RAILS * LANES * RAILS; i++) {
        struct hlg_action_write action = plain(b);
        action.lane = i / (RAILS * LANES * RAILS);
        action.rail = i / (LANES * RAILS) % RAILS;
        action.target_lane = i / RAILS % LANES;
        action.target_rail = i % RAILS;
        assert_int_equal(pump_table_resolve(&b->pump, &action, &write), 0);
        uint32_t key = action.target_lane * RAILS + action.target_rail;
        assert_int_equal(write.remote_key, 70 + key);
        assert_int_equal(write.remote, 1000 * key + 5);
        assert_int_equal(write.peer, 100 + i);
        assert_int_equal(write.mem, 90 + action.rail * LANES + action.lane);
        assert_ptr_equal(write.local, b->memory[action.lane]);
        assert_int_equal(write.local_stride, PAGE_BYTES);
        assert_int_equal(write.remote_stride, 32);
    }
}

/* Wherever in a write one page is that lies beyond the region, on either side, nothing is written; and a
 * page that the write does not touch is not looked at. */
static void a_page_beyond_a_region_is_never_written(void **state)
{
    static const uint32_t beyond[] = {PAGES, PAGES + 1, INT32_MAX, 1u << 31, UINT32_MAX};
    struct bench *b = *state;
    struct hlg_paged_write write;

    for (uint32_t at = 0; at < PAGES; at++) {
        for (size_t i = 0; i < 2 * sizeof beyond / sizeof beyond[0]; i++) {
            uint32_t *pages = i % 2 == 0 ? b->source_pages : b->target_pages;
            struct hlg_action_write action = plain(b);
            uint32_t kept = pages[at];
            pages[at] = beyond[i / 2];
            assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPROTO);
            action.piece_limit = 2 * at; /* all before it */
            assert_int_equal(at == 0 ? 0 : pump_table_resolve(&b->pump, &action, &write), 0);
            action.piece_begin = 2 * at + 1; /* the second half of its pieces */
            action.piece_limit = 2 * at + 2;
            assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPROTO);
            pages[at] = kept;
            assert_int_equal(pump_table_resolve(&b->pump, &action, &write), 0);
        }
    }
}

/* Not the last byte of the last page: a slice is within its region, or it is not written. */
static void a_slice_ends_within_its_region(void **state)
{
    struct bench *b = *state;
    struct hlg_paged_write write;

    for (uint32_t side = 0; side < 2; side++) {
        struct hlg_action_write action = plain(b);
        b->slice.source_offset = 0;
        b->slice.target_offset = 0;
        uint32_t *offset = side == 0 ? &b->slice.source_offset : &b->slice.target_offset;
        *offset = side == 0 ? 64 - 32 - 16 : 0; /* its last byte is the page's */
        assert_int_equal(pump_table_resolve(&b->pump, &action, &write), 0);
        *offset += 1;
        assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPROTO);
        *offset = UINT32_MAX;
        assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPROTO);
    }
}

static void who_is_not_open_or_has_no_such_rail_is_not_written_to(void **state)
{
    struct bench *b = *state;
    struct hlg_paged_write write;
    struct hlg_action_write action = plain(b);

    action.target_rail = RAILS;
    assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPEER);
    action.target_rail = 0;
    action.target_lane = LANES;
    assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPEER);
    action.target_lane = 0;
    b->peers[0].opened = false;
    assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPEER);
    b->peers[0].opened = true;
    b->peers[0].has_table = false;
    assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPEER);
    b->peers[0].has_table = true;
    action.layer = 1; /* no lane holds bytes of it */
    assert_int_equal(pump_table_resolve(&b->pump, &action, &write), -HLG_EPROTO);
    action.layer = 0;
    assert_int_equal(pump_table_resolve(&b->pump, &action, &write), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_rail_has_its_own_key_number_and_memory, set_up),
        cmocka_unit_test_setup(a_page_beyond_a_region_is_never_written, set_up),
        cmocka_unit_test_setup(a_slice_ends_within_its_region, set_up),
        cmocka_unit_test_setup(who_is_not_open_or_has_no_such_rail_is_not_written_to, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
