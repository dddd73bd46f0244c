/*
 * Slots and shadows of the staged path over a transport below that the test plays itself, with GPUs that take their
 * time: what a write may still be read from is not filled again, what a GPU may still read or write is not given back,
 * and what it failed to copy is not sent.
 */
#define _GNU_SOURCE /* setenv */
#include <halage/memory.h>
#include <halage/transport/staged.h>

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/memory/cuda_abi.h"
#include "../support/fake_cuda_control.h"

#define PIECE    4096u
#define SLOTS    8u
#define SHARE    2u /* of one peer */
#define EVENTS   16u
#define STALL_NS 1000u

/* The transport below. */
static struct below {
    struct hlg_transport transport;
    struct hlg_paged_write write; /* the last one */
    uint32_t writes;
    struct hlg_transport_event events[EVENTS];
    uint32_t event_count;
    hlg_time time;
    int close_code;
    uint32_t peers_closed;
} below;

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    (void)t;
    *caps = (struct hlg_transport_caps){
        .provider = "played", .pieces_max = 64, .piece_bytes_max = PIECE, .stall_ns = STALL_NS};
}

static void query_fabric(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    (void)fabric;
    query(NULL, caps);
}

static hlg_time now(struct hlg_transport *t)
{
    (void)t;
    return below.time;
}

static hlg_time now_fabric(struct hlg_fabric *fabric)
{
    (void)fabric;
    return below.time;
}

static int peer_open(struct hlg_transport *t, const uint8_t *bytes, uint32_t count)
{
    (void)t;
    (void)count;
    return bytes[0];
}

static int peer_close(struct hlg_transport *t, uint32_t peer)
{
    (void)t;
    (void)peer;
    below.peers_closed++;
    return 0;
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *region, hlg_mem *mem)
{
    (void)t;
    (void)region;
    *mem = 0;
    return 0;
}

static int64_t take(struct hlg_transport *t, const struct hlg_paged_write *w)
{
    (void)t;
    below.write = *w;
    below.writes++;
    return w->piece_limit - w->piece_begin;
}

static int poll_below(struct hlg_transport *t, struct hlg_transport_event *events,
                      uint32_t capacity)
{
    const uint32_t count = hlg_min_u32(below.event_count, capacity);

    (void)t;
    memcpy(events, below.events, count * sizeof *events);
    below.event_count -= count;
    memmove(below.events, below.events + count, below.event_count * sizeof *events);
    return (int)count;
}

static int close_below(struct hlg_transport *t)
{
    (void)t;
    return below.close_code;
}

static void free_below(struct hlg_transport *t)
{
    (void)t;
}

static const struct hlg_transport_ops ops = {.query = query,
                                             .now = now,
                                             .peer_open = peer_open,
                                             .peer_close = peer_close,
                                             .mem_register = mem_register,
                                             .write = take,
                                             .poll = poll_below,
                                             .close = close_below,
                                             .free = free_below};

static int open_below(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                      struct hlg_transport **out)
{
    (void)fabric;
    (void)lane;
    (void)rail;
    below.transport.ops = &ops;
    *out = &below.transport;
    return 0;
}

static struct hlg_fabric fabric = {
    .open = open_below, .query = query_fabric, .now = now_fabric, .rails = 1};

/* One GPU's memory, staged. */
struct bench {
    struct hlg_memory *memory;
    struct hlg_staged *staged;
    struct hlg_transport *transport;
    hlg_mem mem;
};

static void open_endpoint(struct bench *b)
{
    struct hlg_fabric *f = hlg_staged_fabric(b->staged);
    const struct hlg_mem_region region = hlg_memory_region(b->memory);
    static const uint8_t names[] = {0, 1, 2, 3};

    assert_int_equal(f->open(f, 0, 0, &b->transport), 0);
    assert_int_equal(b->transport->ops->mem_register(b->transport, &region, &b->mem), 0);
    for (uint8_t i = 0; i < sizeof names; i++) {
        assert_int_equal(b->transport->ops->peer_open(b->transport, &names[i], 1), i);
    }
}

static void free_endpoint(struct bench *b)
{
    struct hlg_transport_event events[EVENTS];

    (void)b->transport->ops->close(b->transport);
    while (b->transport->ops->poll(b->transport, events, EVENTS) > 0) {
    }
    b->transport->ops->free(b->transport);
}

static int open_bench(void **state)
{
    static struct bench b;
    const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA};
    const struct hlg_staged_config config = {
        .below = &fabric, .slots = SLOTS, .slot_bytes = PIECE, .flushes_max = 1};
    char error[320] = "";

    below = (struct below){0};
    assert_int_equal(
        hlg_memory_create(&site, (uint64_t)SLOTS * PIECE, &b.memory, error, sizeof error), 0);
    assert_int_equal(hlg_staged_create(&config, &b.staged, error, sizeof error), 0);
    open_endpoint(&b);
    *state = &b;
    return 0;
}

static int close_bench(void **state)
{
    struct bench *b = *state;

    free_endpoint(b);
    hlg_staged_destroy(b->staged);
    hlg_memory_release(b->memory);
    return 0;
}

/* Leaves the processor to the GPU's thread. */
static void nap(void)
{
    (void)poll(NULL, 0, 1);
}

/* Offers one piece to a peer, that of page 0. */
static int64_t offer(struct bench *b, uint32_t peer)
{
    static const uint32_t page = 0;
    const struct hlg_paged_write w = {.op = 7,
                                      .peer = peer,
                                      .mem = b->mem,
                                      .local = hlg_memory_base(b->memory),
                                      .local_stride = PIECE,
                                      .source_pages = &page,
                                      .target_pages = &page,
                                      .bytes = PIECE,
                                      .count = 1,
                                      .piece_limit = 1};

    return b->transport->ops->write(b->transport, &w);
}

/* Writes one piece to a peer. Returns the slot that it went through, or NULL when it was refused. */
static const uint8_t *write_piece(struct bench *b, uint32_t peer)
{
    struct hlg_transport_event events[EVENTS];
    const uint32_t before = below.writes;
    const int64_t taken = offer(b, peer);

    assert_true(taken >= 0);
    while (taken > 0 && below.writes == before) { /* until the copy is over */
        assert_int_equal(b->transport->ops->poll(b->transport, events, EVENTS), 0);
        nap();
    }
    return taken > 0 ? hlg_paged_write_source(&below.write, below.write.piece_begin) : NULL;
}

/* The transport below reports the last write. */
static void report(struct bench *b, bool well)
{
    struct hlg_transport_event event = {
        .kind = HLG_TRANSPORT_DONE_WRITE,
        .done = {
            .op = below.write.op, .done = well, .failed = !well, .status = well ? 0 : -HLG_EIO}};

    below.events[below.event_count++] = event;
    assert_int_equal(b->transport->ops->poll(b->transport, &event, 1), 1);
    assert_int_equal(event.kind, HLG_TRANSPORT_DONE_WRITE);
    assert_int_equal(event.done.op, 7);
    assert_int_equal(event.done.failed, !well);
}

/* A peer's share of slots fails one by one, and nothing else is read from them afterwards. */
static void fail_share(struct bench *b, const uint8_t *slots[SHARE])
{
    for (uint32_t i = 0; i < SHARE; i++) {
        slots[i] = write_piece(b, 0);
        assert_non_null(slots[i]);
        report(b, false);
    }
    for (uint32_t turn = 0; turn < 2 * SLOTS; turn++) {
        const uint8_t *slot = write_piece(b, 1);
        assert_non_null(slot);
        for (uint32_t i = 0; i < SHARE; i++) {
            assert_ptr_not_equal(slot, slots[i]);
        }
        report(b, true);
    }
}

static void a_slot_of_a_failed_write_is_not_filled_again(void **state)
{
    struct bench *b = *state;
    struct hlg_transport_event event;
    const uint8_t *slots[SHARE];

    fail_share(b, slots);
    assert_ptr_not_equal(slots[0], slots[1]);
    assert_null(write_piece(b, 0)); /* it has no more, and is said to be down in time */
    below.time += STALL_NS;
    assert_null(write_piece(b, 0));
    assert_int_equal(b->transport->ops->poll(b->transport, &event, 1), 1);
    assert_int_equal(event.kind, HLG_TRANSPORT_PEER_DOWN);
    assert_int_equal(event.peer, 0);
}

/* Whether one of the slots is filled again through a new endpoint. */
static bool come_back(struct bench *b, int close_code)
{
    const uint8_t *slots[SHARE];
    bool back = false;

    fail_share(b, slots);
    below.close_code = close_code;
    free_endpoint(b);
    below.close_code = 0;
    open_endpoint(b);
    for (uint32_t i = 0; i < SLOTS; i++) { /* each peer keeps its share */
        const uint8_t *slot = write_piece(b, i / SHARE);
        for (uint32_t k = 0; k < SHARE; k++) {
            back = back || (slot != NULL && slot == slots[k]);
        }
    }
    return back;
}

static void slots_come_back_with_the_end_of_their_endpoint(void **state)
{
    assert_true(come_back(*state, 0));
}

static void slots_of_an_endpoint_that_cannot_be_closed_are_lost(void **state)
{
    assert_false(come_back(*state, -HLG_EIO));
}

/* The ring is the GPU's, and a node that died may be a peer of many endpoints, in many numbers: whatever it holds,
 * there is a slot for the next one. */
static void peers_that_end_nothing_leave_slots_to_others(void **state)
{
    struct bench *b = *state;
    struct bench other = {.memory = b->memory, .staged = b->staged};
    const struct hlg_fabric *f = hlg_staged_fabric(b->staged);
    struct hlg_copy_stats stats;
    uint32_t held = 0;

    for (uint32_t peer = 0; peer < 4; peer++) {
        uint32_t own = 0;
        while (write_piece(b, peer) != NULL) {
            own++;
        }
        assert_in_range(own, 1, SHARE);
        held += own;
    }
    assert_in_range(held, 4, SLOTS - 1);
    f->copies(f, &stats);
    assert_int_equal(stats.waits, 4);
    open_endpoint(&other);
    assert_non_null(write_piece(&other, 0));
    free_endpoint(&other);
}

/* ---- GPUs that take their time ---- */

static void fill_page(struct hlg_memory *memory, int value)
{
    uint8_t bytes[PIECE];

    memset(bytes, value, sizeof bytes);
    assert_int_equal(hlg_memory_write(memory, 0, bytes, sizeof bytes), 0);
}

static bool holds(const uint8_t *slot, uint8_t value)
{
    for (uint32_t i = 0; i < PIECE; i++) {
        if (slot[i] != value) {
            return false;
        }
    }
    return true;
}

/* The slot that the next piece goes through, which holds 1; page 0 then holds 2. */
static const uint8_t *next_slot(struct bench *b)
{
    fill_page(b->memory, 1);
    const uint8_t *slot = write_piece(b, 0);
    report(b, true);
    fill_page(b->memory, 2);
    assert_true(holds(slot, 1));
    return slot;
}

static void a_close_waits_for_what_the_gpu_reads(void **state)
{
    struct bench *b = *state;
    const uint8_t *slot = next_slot(b);

    assert_int_equal(offer(b, 0), 1);
    assert_int_equal(b->transport->ops->close(b->transport), 0);
    assert_true(holds(slot, 2)); /* else the page is read when it is another's */
    assert_int_equal(below.writes, 1);
}

static void a_copy_that_is_not_taken_is_waited_for(void **state)
{
    struct fake_cuda_control control;
    struct bench *b = *state;
    const uint8_t *slot = next_slot(b);

    fake_cuda_control(&control);
    control.fail_call("cuEventRecord", 1, CUDA_UNKNOWN);
    assert_true(offer(b, 0) < 0);
    assert_true(holds(slot, 2)); /* the page is its caller's again, and the slot another's */
    assert_ptr_equal(write_piece(b, 0), slot);
}

static void a_copy_that_fails_is_not_sent(void **state)
{
    struct fake_cuda_control control;
    struct hlg_transport_event event = {.kind = 0};
    struct bench *b = *state;

    fake_cuda_control(&control);
    control.fail_call("cuEventQuery", 1, CUDA_UNKNOWN);
    assert_int_equal(offer(b, 0), 1);
    assert_int_equal(b->transport->ops->poll(b->transport, &event, 1), 1);
    assert_int_equal(event.kind, HLG_TRANSPORT_DONE_WRITE);
    assert_int_equal(event.done.failed, 1);
    assert_int_equal(below.writes, 0);
}

static void what_was_taken_for_a_peer_is_posted_before_it_is_closed(void **state)
{
    struct hlg_transport_event event;
    struct bench *b = *state;

    assert_int_equal(offer(b, 0), 1);
    assert_int_equal(b->transport->ops->peer_close(b->transport, 0), 0);
    assert_int_equal(offer(b, 0), -HLG_EPEER);
    while (below.writes == 0) {
        assert_int_equal(below.peers_closed, 0);
        assert_int_equal(b->transport->ops->poll(b->transport, &event, 1), 0);
        nap();
    }
    assert_int_equal(below.peers_closed, 1);
    report(b, true);
}

/* A request whose pages are on two GPUs, of which the second one is asked for more. */
static void a_flush_is_over_when_each_gpu_is_done(void **state)
{
    struct hlg_staged_config config = {.below = &fabric, .target = true, .slot_bytes = PIECE};
    struct hlg_flushed done = {.request = 0};
    struct hlg_memory *memory[2];
    struct hlg_staged *staged = NULL;
    uint8_t bytes[PIECE];
    char error[320] = "";

    (void)state;
    assert_int_equal(hlg_staged_create(&config, &staged, error, sizeof error), 0);
    struct hlg_fabric *f = hlg_staged_fabric(staged);
    for (int32_t i = 0; i < 2; i++) {
        const struct hlg_memory_site site = {.kind = HLG_MEMORY_CUDA, .device = i};
        assert_int_equal(hlg_memory_create(&site, PIECE, &memory[i], error, sizeof error), 0);
        fill_page(memory[i], 7);
        const struct hlg_mem_region region = hlg_memory_region(memory[i]);
        assert_int_equal(f->prepare(f, &region, error, sizeof error), 0);
    }
    for (uint32_t which = 0; which < 3; which++) { /* the first GPU, the second one, both */
        for (uint32_t i = 0; i < 2; i++) {
            fill_page(memory[i], 7);
            if (which == i || which == 2) { /* its shadow holds 0 */
                assert_int_equal(f->flusher->span(f->flusher, hlg_memory_base(memory[i]), PIECE),
                                 1);
            }
        }
        assert_int_equal(f->flusher->finish(f->flusher, 9), 1);
        while (f->flusher->poll(f->flusher, &done, 1) == 0) {
            nap();
        }
        assert_int_equal(done.status, 0);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(hlg_memory_read(memory[i], 0, bytes, sizeof bytes), 0);
            assert_true(holds(bytes, which == i || which == 2 ? 0 : 7));
        }
    }
    hlg_staged_destroy(staged);
    hlg_memory_release(memory[0]);
    hlg_memory_release(memory[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_slot_of_a_failed_write_is_not_filled_again, open_bench,
                                        close_bench),
        cmocka_unit_test_setup_teardown(slots_come_back_with_the_end_of_their_endpoint, open_bench,
                                        close_bench),
        cmocka_unit_test_setup_teardown(slots_of_an_endpoint_that_cannot_be_closed_are_lost,
                                        open_bench, close_bench),
        cmocka_unit_test_setup_teardown(peers_that_end_nothing_leave_slots_to_others, open_bench,
                                        close_bench),
        cmocka_unit_test_setup_teardown(a_close_waits_for_what_the_gpu_reads, open_bench,
                                        close_bench),
        cmocka_unit_test_setup_teardown(a_copy_that_is_not_taken_is_waited_for, open_bench,
                                        close_bench),
        cmocka_unit_test_setup_teardown(a_copy_that_fails_is_not_sent, open_bench, close_bench),
        cmocka_unit_test_setup_teardown(what_was_taken_for_a_peer_is_posted_before_it_is_closed,
                                        open_bench, close_bench),
        cmocka_unit_test(a_flush_is_over_when_each_gpu_is_done),
    };

    /* Before the double is loaded; no other thread runs. */
    (void)setenv("FAKE_CUDA_DELAY_US", "2000", 1); /* NOLINT(concurrency-mt-unsafe) */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
