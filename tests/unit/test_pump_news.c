/*
 * The pump over a fabric that tells what has news: nodes are stepped when the simulation says so, when
 * their deadline is due and when their engine did something, never else. Windows are tiny, so that
 * writes and frames are refused all the time and must be taken up again; links fail; nodes die.
 */
#include "../support/small_layout.h"

#include <halage/places.h>
#include <halage/pump.h>
#include <halage/transport/simgrid.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS      3u
#define PAGE_TOKENS 4u
#define PAGES       64u
#define PLACES_MAX  16u
#define NODES       3u /* node 0 prefills */
#define REQUEST_MAX 16u
#define STEPS_MAX   100000u
#define STALL_NS    (100 * HLG_NS_PER_MS)

struct node {
    struct world *world;
    struct hlg_pump *pump;
    uint32_t index;
    uint8_t *memory;
    uint64_t bytes;
    hlg_handle asked[REQUEST_MAX]; /* prefill: not admitted yet */
    uint32_t tokens[REQUEST_MAX];
    uint32_t asked_count;
    uint32_t page; /* next source page, or target page */
    uint32_t forward;
    uint32_t notices[HLG_NOTICE_POISONED + 1];
    uint32_t peer; /* of the last session */
};

struct world {
    struct hlg_simgrid *sim;
    struct node nodes[NODES];
    uint32_t pages[REQUEST_MAX][PAGES]; /* asked for: kept until the REQUEST is sent */
    uint32_t submitted;
};

static struct hlg_layout make_layout(void)
{
    return small_layout((struct small_layout){.layers = LAYERS,
                                              .planes = 2,
                                              .heads = 2,
                                              .head_bytes = 512,
                                              .page_tokens = PAGE_TOKENS,
                                              .pages = PAGES});
}

static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;

    n->notices[notice->kind]++;
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        assert_true(n->asked_count < REQUEST_MAX);
        n->tokens[n->asked_count] = notice->message->tokens;
        n->asked[n->asked_count++] = notice->request;
    }
    if (notice->kind == HLG_NOTICE_PEER_UP) {
        n->peer = notice->peer;
    }
}

static void node_open(struct world *w, uint32_t index, uint64_t incarnation)
{
    struct node *n = &w->nodes[index];
    struct hlg_layout layout = make_layout();
    struct hlg_place places[PLACES_MAX];
    struct hlg_pump_region region = {0};
    struct hlg_pump_config config = {.role = index == 0 ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE,
                                     .fabric = hlg_simgrid_fabric(w->sim, index),
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = places,
                                     .notice = take_notice,
                                     .context = n};
    struct hlg_limits limits;
    char error[256] = "";

    *n = (struct node){.world = w, .index = index};
    int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, &n->bytes);
    assert_in_range(count, 1, PLACES_MAX);
    config.place_count = (uint32_t)count;
    n->memory = calloc(n->bytes, 1);
    assert_non_null(n->memory);
    for (uint64_t i = 0; index == 0 && i < n->bytes; i++) {
        n->memory[i] = (uint8_t)(i * 131 + i / 256 + 1);
    }
    region = (struct hlg_pump_region){.memory = HLG_MEM_HOST(n->memory, n->bytes)};
    hlg_limits_default(&limits);
    limits.peers_max = 2;
    limits.requests_max = 16;
    limits.lanes_max = 1;
    limits.rails_max = 1;
    limits.slices_max = 16;
    limits.message_bytes_max = 4096;
    limits.blocks_max = 32;
    limits.forwards_max = 32;
    limits.ops_max = 8;
    limits.chunks_max = 32;
    limits.window_pieces = 6;
    limits.turn_bytes = UINT64_MAX;
    if (index == 0) {
        config.prefill = (struct hlg_prefill_config){.limits = limits,
                                                     .layout = layout,
                                                     .rails = 1,
                                                     .node = index + 1,
                                                     .incarnation = incarnation};
    } else {
        config.decode = (struct hlg_decode_config){.limits = limits,
                                                   .layout = layout,
                                                   .rails = 1,
                                                   .node = index + 1,
                                                   .incarnation = incarnation};
    }
    if (hlg_pump_create(&config, &n->pump, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
}

static void node_close(struct node *n)
{
    hlg_pump_destroy(n->pump);
    free(n->memory);
    *n = (struct node){0};
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct hlg_simgrid_config config;
    char error[256] = "";

    hlg_simgrid_config_default(&config);
    config.nodes = NODES;
    config.nic_bandwidth = 1e9;
    config.domains_max = 2;
    config.writes_max = 4;
    config.pieces_max = 5;
    config.peer_writes_max = 2;
    config.peer_pieces_max = 3;
    config.cq_depth = 12;
    config.channels_max = 8;
    config.frames_max = 2;
    config.message_bytes_max = 4096;
    config.room_bytes = 4096;
    config.stall_ns = STALL_NS;
    if (hlg_simgrid_create(&config, &w->sim, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        node_open(w, i, 1);
    }
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    for (uint32_t i = 0; i < NODES; i++) {
        node_close(&w->nodes[i]);
    }
    hlg_simgrid_destroy(w->sim);
    free(w);
    return 0;
}

/* ---- Turning the world ---- */

static void tell(struct node *n, struct hlg_event *event)
{
    assert_int_equal(hlg_pump_event(n->pump, event), 0);
}

static bool engine_turn(struct node *n)
{
    uint32_t pages[PAGES];
    const struct hlg_layout layout = make_layout();

    if (n->asked_count == 0) {
        return false;
    }
    n->asked_count--;
    const hlg_handle request = n->asked[n->asked_count];
    const uint32_t tokens = n->tokens[n->asked_count];
    const uint32_t count = hlg_layout_pages(&layout, 0, tokens - 1);
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = i; /* all have the same prompt */
    }
    n->forward++;
    tell(n, &(struct hlg_event){
                .kind = HLG_EVENT_ADMIT,
                .admit = {.request = request, .groups = {{.count = count, .pages = pages}}}});
    tell(n, &(struct hlg_event){
                .kind = HLG_EVENT_CHUNK,
                .chunk = {.request = request, .forward = n->forward, .token_count = tokens - 1}});
    tell(n, &(struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = n->forward});
    return true;
}

static void step(struct node *n)
{
    uint32_t steps = 0;
    bool more = n->pump != NULL;

    while (more) {
        more = hlg_pump_step(n->pump) > 0;
        assert_int_equal(hlg_pump_check(n->pump), 0);
        more = (n->index == 0 && engine_turn(n)) || more;
        assert_true(++steps < STEPS_MAX);
    }
}

/* Run for so long, or until `n` has had `count` notices of the kind. Returns whether it had. */
static bool run(struct world *w, hlg_time span, const struct node *n, uint32_t kind, uint32_t count)
{
    const hlg_time limit = hlg_simgrid_now(w->sim) + span;

    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        hlg_time when = limit;
        uint32_t index = 0;
        if (n->notices[kind] >= count) {
            return true;
        }
        for (uint32_t k = 0; k < NODES; k++) {
            when = w->nodes[k].pump != NULL
                       ? hlg_min_time(when, hlg_pump_deadline(w->nodes[k].pump))
                       : when;
        }
        (void)hlg_simgrid_run(w->sim,
                              when > hlg_simgrid_now(w->sim) ? when : hlg_simgrid_now(w->sim));
        for (uint32_t k = 0; k < NODES; k++) {
            struct node *due = &w->nodes[k];
            if (due->pump != NULL && hlg_pump_deadline(due->pump) <= hlg_simgrid_now(w->sim)) {
                step(due);
            }
        }
        while (hlg_simgrid_ready(w->sim, &index)) {
            step(&w->nodes[index]);
        }
        assert_int_equal(hlg_simgrid_check(w->sim), 0);
        if (hlg_simgrid_now(w->sim) >= limit) {
            return n->notices[kind] >= count;
        }
    }
    fail_msg("the world does not end");
    return false;
}

static void join(struct world *w, uint32_t decode)
{
    struct hlg_channel *a = NULL;
    struct hlg_channel *b = NULL;
    const uint32_t ups = w->nodes[decode].notices[HLG_NOTICE_PEER_UP];
    uint32_t peer = 0;

    assert_int_equal(hlg_simgrid_channel_pair(w->sim, decode, 0, &a, &b), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[decode].pump, a, true, &peer), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[0].pump, b, false, &peer), 0);
    assert_true(run(w, HLG_NS_PER_S, &w->nodes[decode], HLG_NOTICE_PEER_UP, ups + 1));
}

static void submit(struct world *w, uint32_t decode, uint32_t tokens)
{
    struct node *n = &w->nodes[decode];
    const struct hlg_layout layout = make_layout();
    const uint32_t count = hlg_layout_pages(&layout, 0, tokens - 1);
    uint32_t *pages = w->pages[w->submitted++ % REQUEST_MAX];

    for (uint32_t i = 0; i < count; i++) {
        pages[i] = n->page++ % PAGES;
    }
    tell(n, &(struct hlg_event){.kind = HLG_EVENT_SUBMIT,
                                .submit = {.source_count = 1,
                                           .peers = {n->peer},
                                           .tokens = tokens,
                                           .ttl_ns = 60 * HLG_NS_PER_S,
                                           .groups = {{.count = count, .pages = pages}}}});
    step(n);
}

/* Whether `count` target pages from `first` on hold what the source pages from 0 on do. */
static void expect_pages(const struct world *w, uint32_t decode, uint32_t first, uint32_t count)
{
    const struct hlg_layout layout = make_layout();
    const uint32_t bytes = hlg_layout_page_bytes(&layout, 0);

    for (uint32_t i = 0; i < LAYERS * 2 * count; i++) {
        const uint64_t table = (uint64_t)(i / count) * PAGES * bytes;
        const uint32_t page = i % count;
        assert_memory_equal(w->nodes[decode].memory + table + (uint64_t)(first + page) * bytes,
                            w->nodes[0].memory + table + (uint64_t)page * bytes, bytes);
    }
}

/* ---- Tests ---- */

static void tiny_windows_lose_nothing(void **state)
{
    struct world *w = *state;

    for (uint32_t decode = 1; decode < NODES; decode++) {
        join(w, decode);
    }
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t decode = 1; decode < NODES; decode++) {
            submit(w, decode, 37); /* 9 pages, 54 pieces */
        }
    }
    for (uint32_t decode = 1; decode < NODES; decode++) {
        assert_true(run(w, HLG_NS_PER_S, &w->nodes[decode], HLG_NOTICE_READY, 6));
        for (uint32_t i = 0; i < 6; i++) {
            expect_pages(w, decode, 9 * i, 9);
        }
        assert_int_equal(w->nodes[decode].notices[HLG_NOTICE_FAILED], 0);
    }
    assert_true(run(w, HLG_NS_PER_S, &w->nodes[0], HLG_NOTICE_SENT, 12));

    struct hlg_pump_stats stats;
    hlg_pump_stats(w->nodes[0].pump, &stats);
    assert_true(stats.writes_refused > 0);
}

static void a_slow_link_only_takes_longer(void **state)
{
    struct world *w = *state;
    hlg_time spans[2];

    join(w, 1);
    for (uint32_t slow = 0; slow < 2; slow++) {
        const hlg_time before = hlg_simgrid_now(w->sim);
        assert_int_equal(hlg_simgrid_set_bandwidth(w->sim, 1, 0, 0, slow == 0 ? 1 : 0.01), 0);
        submit(w, 1, 37);
        assert_true(run(w, HLG_NS_PER_S, &w->nodes[1], HLG_NOTICE_READY, slow + 1));
        spans[slow] = hlg_simgrid_now(w->sim) - before;
    }
    /* 54 pieces of 4 KiB at 10 MB/s: 22 ms; their acknowledgements cost what they did. */
    assert_in_range(spans[1] - spans[0], 21 * HLG_NS_PER_MS, 23 * HLG_NS_PER_MS);
}

static void a_failed_link_ends_the_session_and_a_repair_serves(void **state)
{
    struct world *w = *state;

    for (uint32_t late = 0; late < 2; late++) {
        struct node *n = &w->nodes[1];
        join(w, 1);
        /* Under way; or before anything is offered: refused, and PEER_DOWN after stall_ns. */
        const uint32_t broken = late == 0 ? 1 : 0;
        if (late == 0) {
            submit(w, 1, 37);
            (void)run(w, 150000, n, HLG_NOTICE_POISONED, 1);
            assert_int_equal(n->notices[HLG_NOTICE_ACCEPTED], 1);
            assert_int_equal(n->notices[HLG_NOTICE_READY], 0);
        }
        assert_int_equal(hlg_simgrid_set_link(w->sim, broken, 0, 0, false), 0);
        if (late == 1) {
            submit(w, 1, 37);
        }
        const hlg_time before = hlg_simgrid_now(w->sim);
        assert_true(run(w, HLG_NS_PER_S, n, HLG_NOTICE_RETURNED, late + 1));
        assert_int_equal(n->notices[HLG_NOTICE_FAILED], late + 1);
        assert_true(late == 0 || hlg_simgrid_now(w->sim) >= before + STALL_NS);
        assert_true(run(w, HLG_NS_PER_S, &w->nodes[0], HLG_NOTICE_PEER_DOWN, 2 * late + 1));
        assert_int_equal(hlg_simgrid_set_link(w->sim, broken, 0, 0, true), 0);
        join(w, 1);
        submit(w, 1, 37);
        assert_true(run(w, HLG_NS_PER_S, n, HLG_NOTICE_READY, late + 1));
        expect_pages(w, 1, n->page - 9, 9);
        tell(n, &(struct hlg_event){.kind = HLG_EVENT_DISCONNECT, .peer = {.peer = n->peer}});
        step(n);
        assert_true(run(w, HLG_NS_PER_S, &w->nodes[0], HLG_NOTICE_PEER_DOWN, 2 * late + 2));
    }
}

static void a_short_break_is_mended(void **state)
{
    struct world *w = *state;

    join(w, 1);
    assert_int_equal(hlg_simgrid_set_link(w->sim, 0, 0, 0, false), 0);
    submit(w, 1, 37);
    assert_false(run(w, STALL_NS / 2, &w->nodes[1], HLG_NOTICE_READY, 1));
    assert_int_equal(hlg_simgrid_set_link(w->sim, 0, 0, 0, true), 0);
    assert_true(run(w, STALL_NS, &w->nodes[1], HLG_NOTICE_READY, 1));
    assert_int_equal(w->nodes[1].notices[HLG_NOTICE_PEER_DOWN], 0);
}

static void a_dead_decoder_harms_nobody_and_comes_back(void **state)
{
    struct world *w = *state;

    join(w, 1);
    join(w, 2);
    submit(w, 1, 37);
    submit(w, 2, 37);
    (void)run(w, 150000, &w->nodes[1], HLG_NOTICE_READY, 1);
    assert_int_equal(w->nodes[1].notices[HLG_NOTICE_READY], 0);
    hlg_simgrid_kill(w->sim, 1);
    node_close(&w->nodes[1]);
    assert_true(run(w, HLG_NS_PER_S, &w->nodes[2], HLG_NOTICE_READY, 1));
    assert_true(run(w, HLG_NS_PER_S, &w->nodes[0], HLG_NOTICE_FENCED, 1));
    assert_int_equal(w->nodes[0].notices[HLG_NOTICE_PEER_DOWN], 1);
    hlg_simgrid_restart(w->sim, 1);
    node_open(w, 1, 2);
    join(w, 1);
    submit(w, 1, 37);
    assert_true(run(w, HLG_NS_PER_S, &w->nodes[1], HLG_NOTICE_READY, 1));
    expect_pages(w, 1, 0, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tiny_windows_lose_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_link_only_takes_longer, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_link_ends_the_session_and_a_repair_serves, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_short_break_is_mended, setup, teardown),
        cmocka_unit_test_setup_teardown(a_dead_decoder_harms_nobody_and_comes_back, setup,
                                        teardown),
    };

    return cmocka_run_group_tests_name("pump-news", tests, NULL, NULL);
}
