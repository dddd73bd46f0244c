/*
 * One prefiller and eight decoders over loop, in virtual time: what a decoder that is dead, silent or slow
 * costs the others, and what a request of 131,072 tokens costs requests of 1,024. Each decoder keeps
 * four small requests open. Prints the figures.
 */
#include "../support/small_layout.h"

#include <halage/handoff.h>
#include <halage/places.h>
#include <halage/pump.h>
#include <halage/transport/loop.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DECODERS    8u
#define NODES       (1u + DECODERS) /* 0 prefills */
#define OPEN        4u              /* small requests of one decoder at a time */
#define SMALL       1025u           /* tokens of a prompt */
#define LARGE       131073u
#define LARGE_PAGE  1024u /* its first page */
#define PAGES       (LARGE_PAGE + 8192u)
#define PAGE_TOKENS 16u
#define SPAN_NS     (4 * HLG_NS_PER_MS)
#define QUEUE_MAX   64u

enum ill {
    HEALTHY = 0,
    KILLED,
    SILENT, /* its process stands still: it reads and credits nothing */
    SLOW,   /* it looks once in a hundred turns */
};

struct node {
    struct hlg_pump *pump;
    uint8_t *memory;
    enum ill ill;
    bool up;
    bool down;
    hlg_handle ended[QUEUE_MAX]; /* READY, to be released and asked anew */
    uint32_t ended_count;
    uint32_t slots[QUEUE_MAX];
    struct {
        hlg_handle request;
        uint32_t tokens;
    } asked[QUEUE_MAX]; /* prefill: to be computed */
    uint32_t asked_count;
    hlg_handle open[OPEN];
    hlg_time since[OPEN];
    uint64_t ready;
    hlg_time waited; /* sum over `ready` */
    bool large_ready;
};

struct world {
    struct hlg_loop *loop;
    struct node nodes[NODES];
    uint32_t forward;
    uint32_t turns;
    bool computing;   /* the prefill engine is deep in a forward pass */
    hlg_time idle_ns; /* how far time moves when nothing happens */
};

static uint32_t pages[PAGES]; /* page i is i */

static struct hlg_layout make_layout(void)
{
    return small_layout((struct small_layout){.layers = 2,
                                              .planes = 1,
                                              .heads = 1,
                                              .head_bytes = 4,
                                              .page_tokens = PAGE_TOKENS,
                                              .pages = PAGES});
}

static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;

    n->up = n->up || notice->kind == HLG_NOTICE_PEER_UP;
    n->down = n->down || notice->kind == HLG_NOTICE_PEER_DOWN;
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        assert_true(n->asked_count < QUEUE_MAX);
        n->asked[n->asked_count].request = notice->request;
        n->asked[n->asked_count++].tokens = notice->message->tokens;
    } else if (notice->kind == HLG_NOTICE_READY) {
        assert_true(n->ended_count < QUEUE_MAX);
        n->ended[n->ended_count++] = notice->request;
    }
}

static void open_node(struct world *w, uint32_t index)
{
    struct node *n = &w->nodes[index];
    struct hlg_layout layout = make_layout();
    struct hlg_place places[8];
    struct hlg_limits limits;
    uint64_t bytes = 0;
    char error[256] = "";

    hlg_limits_default(&limits);
    limits.peers_max = DECODERS;
    limits.requests_max = 128;
    limits.sources_max = 1;
    limits.window_pieces = 256;
    limits.ops_max = 64;     /* eight a peer: fewer than one that stands still could hold */
    limits.forwards_max = 4; /* fewer than wait for a slow decoder */
    limits.chunks_max = 256;
    limits.blocks_max = 512;
    limits.prompt_bytes_max = 64;
    limits.message_bytes_max = 1u << 16;
    int count = hlg_places_linear(&layout, 0, places, 8, &bytes);
    assert_true(count > 0);
    n->memory = calloc(bytes, 1);
    assert_non_null(n->memory);
    struct hlg_pump_region region = {.memory = HLG_MEM_HOST(n->memory, bytes)};
    struct hlg_pump_config config = {.role = index == 0 ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE,
                                     .fabric = hlg_loop_fabric(w->loop, index),
                                     .notice = take_notice,
                                     .context = n,
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = places,
                                     .place_count = (uint32_t)count};
    if (index == 0) {
        config.prefill = (struct hlg_prefill_config){
            .limits = limits, .layout = layout, .rails = 1, .node = 1, .incarnation = 1};
    } else {
        config.decode = (struct hlg_decode_config){
            .limits = limits, .layout = layout, .rails = 1, .node = index + 1, .incarnation = 1};
    }
    if (hlg_pump_create(&config, &n->pump, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
}

static void submit(struct world *w, uint32_t index, uint32_t slot)
{
    struct node *n = &w->nodes[index];
    bool large = slot == OPEN;
    struct hlg_event event = {
        .kind = HLG_EVENT_SUBMIT,
        .submit = {.source_count = 1,
                   .tokens = large ? LARGE : SMALL,
                   .ttl_ns = 300 * HLG_NS_PER_S,
                   .groups = {{.count = ((large ? LARGE : SMALL) - 1) / PAGE_TOKENS,
                               .pages = pages + (large ? LARGE_PAGE : slot * 64)}}}};

    assert_int_equal(hlg_pump_event(n->pump, &event), 0);
    if (!large) {
        n->open[slot] = hlg_pump_submitted(n->pump);
        n->since[slot] = hlg_loop_now(w->loop);
    }
}

static void decode_turn(struct world *w, uint32_t index)
{
    struct node *n = &w->nodes[index];

    for (uint32_t i = 0; i < n->ended_count; i++) {
        struct hlg_event event = {.kind = HLG_EVENT_RELEASE, .request = n->ended[i]};
        assert_int_equal(hlg_pump_event(n->pump, &event), 0);
        uint32_t slot = 0;
        while (slot < OPEN && n->open[slot] != n->ended[i]) {
            slot++;
        }
        if (slot == OPEN) {
            n->large_ready = true;
            continue;
        }
        n->ready++;
        n->waited += hlg_loop_now(w->loop) - n->since[slot];
        submit(w, index, slot);
    }
    n->ended_count = 0;
}

/* Every request is computed at once, in a forward of its own. */
static void prefill_turn(struct world *w)
{
    struct node *n = &w->nodes[0];

    for (uint32_t i = 0; i < n->asked_count; i++) {
        uint32_t tokens = hlg_handoff_prefill_tokens(n->asked[i].tokens);
        struct hlg_event admit = {
            .kind = HLG_EVENT_ADMIT,
            .admit = {.request = n->asked[i].request,
                      .groups = {{.count = tokens / PAGE_TOKENS, .pages = pages}}}};
        struct hlg_event chunk = {.kind = HLG_EVENT_CHUNK,
                                  .chunk = {.request = n->asked[i].request,
                                            .forward = ++w->forward,
                                            .token_count = tokens}};
        struct hlg_event end = {.kind = HLG_EVENT_FORWARD_END, .forward = w->forward};
        assert_int_equal(hlg_pump_event(n->pump, &admit), 0);
        assert_int_equal(hlg_pump_event(n->pump, &chunk), 0);
        assert_int_equal(hlg_pump_event(n->pump, &end), 0);
    }
    n->asked_count = 0;
}

static void run(struct world *w, hlg_time span)
{
    hlg_time until = hlg_loop_now(w->loop) + span;

    while (hlg_loop_now(w->loop) < until) {
        int work = 0;
        w->turns++;
        for (uint32_t i = 0; i < NODES; i++) {
            struct node *n = &w->nodes[i];
            if (n->ill == KILLED || n->ill == SILENT || (n->ill == SLOW && w->turns % 100 != 0)) {
                continue;
            }
            work += hlg_pump_step(n->pump);
            if (i == 0 && !w->computing) {
                prefill_turn(w);
            } else if (i != 0) {
                decode_turn(w, i);
            }
        }
        if (work == 0 && hlg_loop_step(w->loop) == 0) {
            hlg_loop_advance_to(w->loop, hlg_loop_now(w->loop) + w->idle_ns);
        }
    }
}

static struct world *open_world(void)
{
    struct world *w = calloc(1, sizeof *w);
    struct hlg_loop_config config;

    assert_non_null(w);
    w->idle_ns = HLG_NS_PER_MS;
    for (uint32_t i = 0; i < PAGES; i++) {
        pages[i] = i;
    }
    hlg_loop_config_default(&config);
    config.nodes = NODES;
    config.domains_max = 2 * DECODERS;
    config.peers_max = DECODERS;
    config.pieces_max = 4096;
    config.cq_depth = 4096;
    config.channels_max = DECODERS;
    config.message_bytes_max = 1u << 16;
    config.room_bytes = 1u << 20;
    assert_int_equal(hlg_loop_create(&config, &w->loop), 0);
    for (uint32_t i = 0; i < NODES; i++) {
        open_node(w, i);
    }
    for (uint32_t i = 1; i < NODES; i++) {
        struct hlg_channel *a = NULL;
        struct hlg_channel *b = NULL;
        uint32_t peer = 0;
        assert_int_equal(hlg_loop_channel_pair(w->loop, i, 0, &a, &b), 0);
        assert_int_equal(hlg_pump_channel(w->nodes[i].pump, a, true, &peer), 0);
        assert_int_equal(hlg_pump_channel(w->nodes[0].pump, b, false, &peer), 0);
    }
    run(w, HLG_NS_PER_MS);
    for (uint32_t i = 1; i < NODES; i++) {
        assert_true(w->nodes[i].up);
        for (uint32_t slot = 0; slot < OPEN; slot++) {
            submit(w, i, slot);
        }
    }
    run(w, HLG_NS_PER_MS);
    return w;
}

static void close_world(struct world *w)
{
    for (uint32_t i = 0; i < NODES; i++) {
        hlg_pump_destroy(w->nodes[i].pump);
        free(w->nodes[i].memory);
    }
    hlg_loop_destroy(w->loop);
    free(w);
}

/* Requests that decoders [first, NODES) complete in a span. */
static uint64_t completed(struct world *w, uint32_t first, hlg_time *mean)
{
    uint64_t ready = 0;
    hlg_time waited = 0;

    for (uint32_t i = 1; i < NODES; i++) {
        w->nodes[i].ready = 0;
        w->nodes[i].waited = 0;
    }
    run(w, SPAN_NS);
    for (uint32_t i = first; i < NODES; i++) {
        ready += w->nodes[i].ready;
        waited += w->nodes[i].waited;
    }
    assert_true(ready > 0);
    *mean = waited / ready;
    return ready;
}

static void an_ill_decoder_does_not_slow_the_others(void **state)
{
    static const char *const names[] = {"healthy", "killed", "silent", "slow"};
    uint64_t healthy = 0;

    (void)state;
    for (uint32_t ill = HEALTHY; ill <= SLOW; ill++) {
        struct world *w = open_world();
        hlg_time mean = 0;
        w->nodes[1].ill = (enum ill)ill;
        if (ill == KILLED) {
            hlg_loop_kill(w->loop, 1);
        }
        uint64_t ready = completed(w, 2, &mean);
        healthy = ill == HEALTHY ? ready : healthy;
        print_message("one of eight %s: the other seven complete %llu requests in 4 ms, %.1f %%\n",
                      names[ill], (unsigned long long)ready,
                      100.0 * (double)ready / (double)healthy);
        assert_true(ready * 100 >= healthy * 95);
        close_world(w);
    }
}

/* The small requests of its own decoder share that decoder's turns and window with the large one, those of
 * others do not. */
static void a_large_request_does_not_starve_small_ones(void **state)
{
    struct world *w = open_world();
    hlg_time own_before = 0;
    hlg_time others_before = 0;
    hlg_time own = 0;
    hlg_time others = 0;

    (void)state;
    (void)completed(w, 1, &own_before);
    (void)completed(w, 2, &others_before);
    submit(w, 1, OPEN);
    run(w, HLG_NS_PER_MS / 10);
    uint64_t ready = w->nodes[1].ready;
    hlg_time waited = w->nodes[1].waited;
    hlg_time began = hlg_loop_now(w->loop);
    for (uint32_t i = 2; i < NODES; i++) {
        w->nodes[i].ready = 0;
        w->nodes[i].waited = 0;
    }
    for (uint32_t i = 0; i < 10000 && !w->nodes[1].large_ready; i++) {
        run(w, HLG_NS_PER_MS / 10);
    }
    assert_true(w->nodes[1].large_ready);
    assert_true(w->nodes[1].ready > ready);
    own = (w->nodes[1].waited - waited) / (w->nodes[1].ready - ready);
    uint64_t count = 0;
    for (uint32_t i = 2; i < NODES; i++) {
        count += w->nodes[i].ready;
        others += w->nodes[i].waited;
    }
    assert_true(count > 0);
    others /= count;
    print_message("131072 tokens in %llu us; 1024 tokens meanwhile: its own decoder's %.2f x as "
                  "long as before, the others' %.2f x\n",
                  (unsigned long long)((hlg_loop_now(w->loop) - began) / 1000),
                  (double)own / (double)own_before, (double)others / (double)others_before);
    assert_true(own <= 3 * own_before);
    assert_true(others * 100 <= 110 * others_before);
    close_world(w);
}

/* Heartbeats are not the engine's: one that says nothing for three leases loses no session. */
static void a_long_forward_pass_starves_no_lease(void **state)
{
    struct world *w = open_world();
    struct hlg_limits limits;

    (void)state;
    hlg_limits_default(&limits);
    w->computing = true;
    w->idle_ns = 100 * HLG_NS_PER_MS;
    run(w, 3 * limits.lease_ns);
    w->computing = false;
    w->idle_ns = HLG_NS_PER_MS;
    hlg_time mean = 0;
    (void)completed(w, 1, &mean);
    for (uint32_t i = 1; i < NODES; i++) {
        assert_true(w->nodes[i].ready >= OPEN);
        assert_false(w->nodes[i].down);
    }
    close_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ill_decoder_does_not_slow_the_others),
        cmocka_unit_test(a_large_request_does_not_starve_small_ones),
        cmocka_unit_test(a_long_forward_pass_starves_no_lease),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
