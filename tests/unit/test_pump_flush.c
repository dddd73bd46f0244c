/*
 * What the pump tells a flusher of the pages of a request: each run that the request owns, of its own pool, once,
 * whatever is refused meanwhile; and that no copy is under way any more when the pump ends. The machine is played.
 */
#include "../../src/driver/pump_internal.h"
#include "../support/small_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGES     600u
#define LANES     2u /* a pool each */
#define GROUPS    2u
#define LAYERS    2u
#define PLACES    (LANES * GROUPS * (LAYERS + 1))
#define PACKED    0u /* regions */
#define ON_HOST   1u
#define SPANS_MAX 1024u
#define REQUEST   5u

struct span {
    const uint8_t *base;
    uint64_t bytes;
};

/* The flusher: takes what it is told but for every `refuse`-th call; 0: all. */
static struct {
    struct hlg_flusher flusher;
    struct span spans[SPANS_MAX];
    uint32_t span_count;
    uint32_t calls;
    uint32_t refuse;
    uint32_t finished;
    uint32_t under_way;
    uint32_t late; /* polls until the next one is over */
} device;

/* The machine. */
static struct {
    uint32_t pool;
    uint32_t pages[PAGES];
    uint32_t count;
    uint32_t flushed;
} machine;

static uint8_t memory[2][1u << 20];
static struct pump_place places[PLACES];
static struct hlg_pump_region regions[2];
static hlg_handle queue[4];
static struct hlg_pump pump;
static uint32_t page_bytes;

bool __wrap_hlg_decode_pages(const struct hlg_decode *d, hlg_handle request, uint32_t group,
                             uint32_t *pool, struct hlg_page_list *pages);

bool __wrap_hlg_decode_pages(const struct hlg_decode *d, hlg_handle request, uint32_t group,
                             uint32_t *pool, struct hlg_page_list *pages)
{
    (void)d;
    assert_int_equal(request, REQUEST);
    *pool = machine.pool;
    *pages =
        (struct hlg_page_list){.count = group == 0 ? machine.count : 0, .pages = machine.pages};
    return true;
}

int pump_feed(struct hlg_pump *p,
              struct hlg_event *event) /* NOLINT(readability-non-const-parameter) */
{
    (void)p;
    assert_int_equal(event->kind, HLG_EVENT_FLUSHED);
    machine.flushed++;
    return 0;
}

static bool is_refused(void)
{
    return device.refuse > 0 && device.calls++ % device.refuse == 0;
}

static int take_span(struct hlg_flusher *flusher, void *base, uint64_t bytes)
{
    (void)flusher;
    if (is_refused()) {
        return 0;
    }
    assert_true(device.span_count < SPANS_MAX);
    device.spans[device.span_count++] = (struct span){base, bytes};
    return 1;
}

static int finish(struct hlg_flusher *flusher, hlg_handle request)
{
    (void)flusher;
    (void)request;
    if (is_refused()) {
        return 0;
    }
    device.finished++;
    device.under_way++;
    return 1;
}

static int poll_flushes(struct hlg_flusher *flusher, struct hlg_flushed *done, uint32_t capacity)
{
    (void)flusher;
    if (device.under_way == 0 || capacity == 0 || device.late > 0) {
        device.late -= device.late > 0;
        return 0;
    }
    device.under_way--;
    done[0] = (struct hlg_flushed){.request = REQUEST};
    return 1;
}

static uint32_t place_of(uint32_t lane, uint32_t group, uint32_t layer)
{
    return (lane * GROUPS + group) * (LAYERS + 1) + layer;
}

static int set_up(void **state)
{
    (void)state;
    memset(&device, 0, sizeof device);
    memset(&machine, 0, sizeof machine);
    device.flusher =
        (struct hlg_flusher){.span = take_span, .finish = finish, .poll = poll_flushes};
    for (uint32_t i = 0; i < PLACES; i++) {
        places[i] = (struct pump_place){.region = HLG_NONE};
    }
    for (uint32_t i = 0; i < 2; i++) {
        regions[i].memory = HLG_MEM_HOST(memory[i], sizeof memory[i]);
    }
    regions[PACKED].memory.kind = HLG_MEMORY_CUDA;
    pump = (struct hlg_pump){.layout = small_layout((struct small_layout){.layers = LAYERS,
                                                                          .planes = 1,
                                                                          .heads = 1,
                                                                          .head_bytes = 16,
                                                                          .page_tokens = 4,
                                                                          .pages = PAGES,
                                                                          .context_bytes = 64,
                                                                          .contexts = 4}),
                             .lanes = LANES,
                             .planes = 1,
                             .places = places,
                             .places_max = PLACES,
                             .regions = regions,
                             .flusher = &device.flusher,
                             .flush = {.queue = queue, .capacity = 4}};
    pump.layout.pools = LANES;
    page_bytes = hlg_layout_page_bytes(&pump.layout, 0);
    return 0;
}

static void put_place(uint32_t lane, uint32_t layer, uint32_t region, uint64_t offset,
                      uint64_t stride)
{
    places[place_of(lane, 0, layer)] =
        (struct pump_place){.region = region, .offset = offset, .stride = stride};
}

static void expect_span(uint32_t at, uint64_t offset, uint64_t bytes)
{
    assert_true(at < device.span_count);
    assert_ptr_equal(device.spans[at].base, memory[PACKED] + offset);
    assert_int_equal(device.spans[at].bytes, bytes);
}

/* Pages of the other pool have the same numbers, those of a place with gaps do not lie together, and host memory
 * is visible. */
static void the_runs_of_a_request_are_told_and_no_others(void **state)
{
    static const uint32_t pages[] = {3, 4, 5, 9};
    const uint64_t padded = 100000;

    (void)state;
    for (uint32_t refuse = 0; refuse < 5; refuse += refuse == 0 ? 2 : 1) {
        (void)set_up(NULL);
        put_place(0, 0, PACKED, 50000, page_bytes);
        put_place(1, 0, PACKED, 1000, page_bytes);
        put_place(1, 1, PACKED, padded, 2ull * page_bytes);
        put_place(1, 2, ON_HOST, 0, page_bytes);
        machine.pool = 1;
        machine.count = 4;
        memcpy(machine.pages, pages, sizeof pages);
        device.refuse = refuse;
        pump_flush_add(&pump, REQUEST);
        for (uint32_t i = 0; pump_flush_busy(&pump); i++) {
            assert_true(i < 100);
            (void)pump_flush_step(&pump);
        }
        assert_int_equal(device.finished, 1);
        assert_int_equal(machine.flushed, 1);
        assert_int_equal(device.span_count, 6);
        expect_span(0, 1000 + 3ull * page_bytes, 3ull * page_bytes);
        expect_span(1, 1000 + 9ull * page_bytes, page_bytes);
        for (uint32_t i = 0; i < 4; i++) {
            expect_span(2 + i, padded + 2ull * page_bytes * pages[i], page_bytes);
        }
    }
}

/* More runs than one step tells, of one request and of all. */
static void a_step_tells_a_bounded_number_of_runs(void **state)
{
    uint32_t told = 0;

    (void)state;
    put_place(0, 0, PACKED, 0, page_bytes);
    machine.count = PAGES / 2;
    for (uint32_t i = 0; i < machine.count; i++) {
        machine.pages[i] = 2 * i;
    }
    for (uint32_t i = 0; i < 3; i++) {
        pump_flush_add(&pump, REQUEST);
    }
    while (pump_flush_busy(&pump)) {
        (void)pump_flush_step(&pump);
        assert_true(device.span_count - told <= 256);
        told = device.span_count;
    }
    assert_int_equal(told, 3 * machine.count);
    for (uint32_t i = 0; i < told; i++) {
        expect_span(i, 2ull * (i % machine.count) * page_bytes, page_bytes);
    }
}

/* Memory may be unmapped when the pump is gone: what is copied is waited for, and what was told in part is, too. */
static void the_end_waits_for_copies(void **state)
{
    (void)state;
    put_place(0, 0, PACKED, 0, page_bytes);
    machine.count = 1;
    device.late = 2;
    pump_flush_add(&pump, REQUEST);
    (void)pump_flush_step(&pump); /* under way */
    assert_int_equal(device.under_way, 1);
    machine.count = PAGES / 2;
    for (uint32_t i = 0; i < machine.count; i++) {
        machine.pages[i] = 2 * i;
    }
    pump_flush_add(&pump, REQUEST);
    device.late = 5;
    (void)pump_flush_step(&pump); /* told in part */
    assert_int_equal(device.finished, 1);
    assert_true(device.span_count > 1);
    pump_flush_add(&pump, REQUEST); /* not told */
    device.refuse = 2;
    pump_flush_drain(&pump);
    assert_int_equal(device.finished, 2);
    assert_int_equal(device.under_way, 0);
    assert_false(pump_flush_busy(&pump));
    assert_int_equal(machine.flushed, 0); /* nobody is left to be told */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_runs_of_a_request_are_told_and_no_others, set_up),
        cmocka_unit_test_setup(a_step_tells_a_bounded_number_of_runs, set_up),
        cmocka_unit_test_setup(the_end_waits_for_copies, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
