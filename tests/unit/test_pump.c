/*
 * The pump over the loop transport and the real machines: what a node needs from it end to end, and
 * what foreign channels must not be able to do. Engines are small: the prefill one admits what is
 * REQUESTED with its first free pages and computes it in one forward; oracles compare bytes.
 */
#include "../support/small_layout.h"

#include <halage/places.h>
#include <halage/pump.h>
#include <halage/trace.h>
#include <halage/transport/loop.h>
#include <halage/wire.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS      3u
#define PAGE_TOKENS 4u
#define PAGES       64u
#define CONTEXTS    16u
#define PLACES_MAX  64u
#define NOTICES_MAX 256u
#define NODES       4u
#define STEPS_MAX   200000u
#define MESSAGE_MAX 65536u
#define PROMPT_MAX  8192u

struct node {
    struct hlg_pump *pump;
    struct hlg_trace *trace; /* NULL: none */
    enum hlg_role role;
    uint8_t *memory;
    uint64_t bytes;
    struct hlg_notice notices[NOTICES_MAX]; /* all that came, in order */
    uint32_t notice_count;
    uint32_t answered; /* REQUESTED among notices[0 .. answered) are dealt with */
    uint32_t tokens[NOTICES_MAX];
    uint32_t page;    /* next free source page */
    uint32_t context; /* next free context page, both roles */
    uint32_t forward;
    bool counters_only; /* the engine ends no forward */
};

struct world {
    struct hlg_loop *loop;
    struct node nodes[NODES];
    struct hlg_flusher *flusher; /* of decode nodes opened from now on; memory is a device's */
};

static struct hlg_layout make_layout(void)
{
    return small_layout((struct small_layout){.layers = LAYERS,
                                              .planes = 2,
                                              .heads = 2,
                                              .head_bytes = 16,
                                              .page_tokens = PAGE_TOKENS,
                                              .pages = PAGES,
                                              .context_bytes = 64,
                                              .contexts = CONTEXTS});
}

static void make_limits(struct hlg_limits *limits)
{
    hlg_limits_default(limits);
    limits->peers_max = 2;
    limits->requests_max = 16;
    limits->lanes_max = 2;
    limits->rails_max = 2;
    limits->slices_max = 64;
    limits->prompt_bytes_max = PROMPT_MAX;
    limits->message_bytes_max = MESSAGE_MAX;
    limits->blocks_max = 64;
    limits->ops_max = 64;
    limits->chunks_max = 64;
}

static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;

    assert_true(n->notice_count < NOTICES_MAX);
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        n->tokens[n->notice_count] = notice->message->tokens;
    }
    n->notices[n->notice_count] = *notice;
    n->notices[n->notice_count++].message = NULL;
}

static void node_open_with(struct world *w, uint32_t index, enum hlg_role role,
                           const struct hlg_limits *limits)
{
    struct node *n = &w->nodes[index];
    struct hlg_place places[PLACES_MAX];
    struct hlg_pump_config config = {.role = role,
                                     .fabric = hlg_loop_fabric(w->loop, index),
                                     .notice = take_notice,
                                     .context = n,
                                     .trace = n->trace};
    struct hlg_layout layout = make_layout();
    char error[256] = "";

    n->role = role;
    int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, &n->bytes);
    assert_true(count > 0 && count <= (int)PLACES_MAX);
    n->memory = calloc(n->bytes, 1);
    assert_non_null(n->memory);
    for (uint64_t i = 0; role == HLG_ROLE_PREFILL && i < n->bytes; i++) {
        n->memory[i] = (uint8_t)(i * 131 + i / 256 + index);
    }
    struct hlg_pump_region region = {.lane = 0, .memory = HLG_MEM_HOST(n->memory, n->bytes)};
    config.regions = &region;
    config.region_count = 1;
    config.places = places;
    config.place_count = (uint32_t)count;
    if (role == HLG_ROLE_PREFILL) {
        config.prefill = (struct hlg_prefill_config){
            .limits = *limits, .layout = layout, .rails = 1, .node = index + 1, .incarnation = 7};
    } else {
        config.decode = (struct hlg_decode_config){.limits = *limits,
                                                   .layout = layout,
                                                   .rails = 1,
                                                   .node = index + 1,
                                                   .incarnation = 7,
                                                   .flush = true};
        config.flusher = w->flusher;
    }
    int created = hlg_pump_create(&config, &n->pump, error, sizeof error);
    if (created != 0) {
        fail_msg("%s", error);
    }
}

static void node_open(struct world *w, uint32_t index, enum hlg_role role, uint32_t peers_max)
{
    struct hlg_limits limits;

    make_limits(&limits);
    limits.peers_max = peers_max;
    node_open_with(w, index, role, &limits);
}

static struct world *world_make(bool acknowledged)
{
    struct world *w = calloc(1, sizeof *w);
    struct hlg_loop_config config;

    assert_non_null(w);
    hlg_loop_config_default(&config);
    config.nodes = NODES;
    config.seed = 11;
    config.message_bytes_max = MESSAGE_MAX;
    config.room_bytes = 2 * PROMPT_MAX; /* two prompts: more of them must wait */
    config.acknowledged = acknowledged;
    assert_int_equal(hlg_loop_create(&config, &w->loop), 0);
    return w;
}

static int world_setup(void **state)
{
    *state = world_make(false);
    return 0;
}

static int world_teardown(void **state)
{
    struct world *w = *state;

    for (uint32_t i = 0; i < NODES; i++) {
        hlg_pump_destroy(w->nodes[i].pump);
        free(w->nodes[i].memory);
    }
    hlg_loop_destroy(w->loop);
    free(w);
    return 0;
}

/* ---- The prefill engine ---- */

static void engine_event(struct node *n, struct hlg_event *event)
{
    assert_int_equal(hlg_pump_event(n->pump, event), 0);
}

static void engine_compute(struct node *n, const struct hlg_notice *notice, uint32_t tokens)
{
    struct hlg_layout layout = make_layout();
    uint32_t pages[PAGES];
    uint32_t context = n->context++ % CONTEXTS;
    uint32_t count = hlg_layout_pages(&layout, 0, tokens - 1);

    for (uint32_t i = 0; i < count; i++) {
        pages[i] = n->page++ % PAGES;
    }
    n->forward++;
    engine_event(n, &(struct hlg_event){.kind = HLG_EVENT_ADMIT,
                                        .admit = {.request = notice->request,
                                                  .groups = {{.count = count, .pages = pages},
                                                             {.count = 1, .pages = &context}}}});
    engine_event(n, &(struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                        .chunk = {.request = notice->request,
                                                  .forward = n->forward,
                                                  .token_count = tokens - 1}});
    for (uint32_t layer = 1; layer <= LAYERS + 1; layer++) {
        engine_event(n, &(struct hlg_event){.kind = HLG_EVENT_LAYER,
                                            .layer = {.value = n->forward << 8 | layer}});
    }
    if (!n->counters_only) {
        engine_event(n, &(struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = n->forward});
    }
}

static int engine_turn(struct node *n)
{
    int work = 0;

    while (n->answered < n->notice_count) {
        const struct hlg_notice *notice = &n->notices[n->answered];
        if (notice->kind == HLG_NOTICE_REQUESTED) {
            engine_compute(n, notice, n->tokens[n->answered]);
            work++;
        }
        n->answered++;
    }
    return work;
}

/* ---- Turning the world ---- */

static uint32_t count_notices(const struct node *n, uint32_t kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n->notice_count; i++) {
        count += n->notices[i].kind == kind;
    }
    return count;
}

static const struct hlg_notice *last_notice(const struct node *n, uint32_t kind)
{
    for (uint32_t i = n->notice_count; i > 0; i--) {
        if (n->notices[i - 1].kind == kind) {
            return &n->notices[i - 1];
        }
    }
    fail_msg("no notice %u", kind);
    return NULL;
}

static int turn(struct world *w)
{
    int work = 0;

    for (uint32_t i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];
        if (n->pump != NULL) {
            work += hlg_pump_step(n->pump);
            assert_int_equal(hlg_pump_check(n->pump), 0);
            work += engine_turn(n);
        }
    }
    return work;
}

/* Until `n` has had `count` notices of the kind. */
static void run_until(struct world *w, const struct node *n, uint32_t kind, uint32_t count)
{
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        int work = turn(w);
        if (count_notices(n, kind) >= count) {
            return;
        }
        if (work == 0 && hlg_loop_step(w->loop) == 0) {
            hlg_loop_advance_to(w->loop, hlg_loop_now(w->loop) + HLG_NS_PER_MS);
        }
    }
    fail_msg("notice %u did not come %u times", kind, count);
}

static void join(struct world *w, uint32_t decode, uint32_t prefill)
{
    struct hlg_channel *a = NULL;
    struct hlg_channel *b = NULL;
    uint32_t peer = 0;

    assert_int_equal(hlg_loop_channel_pair(w->loop, decode, prefill, &a, &b), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[decode].pump, a, true, &peer), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[prefill].pump, b, false, &peer), 0);
}

static uint8_t prompt[PROMPT_MAX];

static int try_submit(struct node *n, uint32_t peer, uint32_t tokens, uint32_t page,
                      uint32_t prompt_bytes)
{
    struct hlg_layout layout = make_layout();
    uint32_t context = n->context++ % CONTEXTS;
    uint32_t count = hlg_layout_pages(&layout, 0, tokens - 1);
    static uint32_t pages[16][PAGES]; /* kept until the REQUEST is sent */
    static uint32_t contexts[16];

    for (uint32_t i = 0; i < count; i++) {
        pages[context][i] = (page + 7 * i) % PAGES; /* 7 and 64 have no common divisor */
    }
    contexts[context] = context;
    return hlg_pump_event(
        n->pump,
        &(struct hlg_event){.kind = HLG_EVENT_SUBMIT,
                            .submit = {.source_count = 1,
                                       .peers = {peer},
                                       .tokens = tokens,
                                       .ttl_ns = 60 * HLG_NS_PER_S,
                                       .id_bytes = 1,
                                       .id = (const uint8_t *)"r",
                                       .prompt_bytes = prompt_bytes,
                                       .prompt = prompt,
                                       .groups = {{.count = count, .pages = pages[context]},
                                                  {.count = 1, .pages = &contexts[context]}}}});
}

static hlg_handle submit(struct node *n, uint32_t peer, uint32_t tokens, uint32_t page,
                         uint32_t prompt_bytes)
{
    assert_int_equal(try_submit(n, peer, tokens, page, prompt_bytes), 0);
    return hlg_pump_submitted(n->pump);
}

/* Whether target page (page + 7 i) equals source page source + i, in all planes and layers. */
static void expect_pages(const struct node *target, const struct node *source, uint32_t page,
                         uint32_t source_page, uint32_t count)
{
    struct hlg_layout layout = make_layout();
    struct hlg_place places[PLACES_MAX];
    int place_count = hlg_places_linear(&layout, 0, places, PLACES_MAX, NULL);

    for (int p = 0; p < place_count; p++) {
        for (uint32_t i = 0; places[p].group == 0 && i < count; i++) {
            uint64_t from = places[p].offset + (source_page + i) % PAGES * places[p].stride;
            uint64_t to = places[p].offset + (page + 7 * i) % PAGES * places[p].stride;
            assert_memory_equal(target->memory + to, source->memory + from, places[p].stride);
        }
    }
}

/* ---- Tests ---- */

static void pages_and_context_arrive(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];
    struct node *p = &w->nodes[1];
    struct hlg_pump_stats stats;

    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    run_until(w, p, HLG_NOTICE_PEER_UP, 1);
    submit(d, 0, 30, 5, 100);
    run_until(w, d, HLG_NOTICE_READY, 1);
    run_until(w, p, HLG_NOTICE_SENT, 1);
    expect_pages(d, p, 5, 0, 8);
    hlg_pump_stats(p->pump, &stats);
    assert_int_equal(stats.pieces_posted, 8 * LAYERS * 2 + 1);
    assert_int_equal(stats.pieces_done, stats.pieces_posted);
    assert_int_equal(hlg_pump_open(p->pump), 0);
}

/* Prompts as long as the channel has room for two of: the rest is refused and goes later. */
static void a_full_channel_only_delays(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];
    struct hlg_loop_stats stats;

    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    for (uint32_t i = 0; i < 12; i++) {
        submit(d, 0, 3, i, PROMPT_MAX);
    }
    run_until(w, d, HLG_NOTICE_READY, 12);
    hlg_loop_stats(w->loop, &stats);
    assert_true(stats.full > 0);
}

/* A channel of ours to a node's pump, to say on it what no pump would. */
static struct hlg_channel *stranger(struct world *w, uint32_t node)
{
    struct hlg_channel *ours = NULL;
    struct hlg_channel *theirs = NULL;
    uint32_t peer = 0;

    assert_int_equal(hlg_loop_channel_pair(w->loop, 3, node, &ours, &theirs), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[node].pump, theirs, false, &peer), 0);
    return ours;
}

static void say(struct hlg_channel *channel, const struct hlg_message *message)
{
    uint8_t frame[4096];
    int64_t bytes = hlg_wire_encode(message, frame, sizeof frame);

    assert_true(bytes > 0);
    assert_int_equal(channel->ops->send(channel, frame, (uint32_t)bytes), 1);
}

/* The BYE that comes, and the end of the channel after it. */
static struct hlg_refusal hear_bye(struct world *w, struct hlg_channel *channel)
{
    static uint64_t scratch[8192];
    struct hlg_refusal why = {0};
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;
    bool heard = false;

    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        int got = channel->ops->receive(channel, &frame, &bytes);
        if (got < 0) {
            assert_true(heard);
            channel->ops->close(channel);
            return why;
        }
        if (got > 0) {
            struct hlg_message message;
            assert_int_equal(hlg_wire_decode(frame, bytes, scratch, sizeof scratch, &message), 0);
            heard = heard || message.kind == HLG_MESSAGE_BYE;
            why = message.kind == HLG_MESSAGE_BYE ? message.bye.why : why;
        }
        if (turn(w) == 0) {
            hlg_loop_step(w->loop);
        }
    }
    fail_msg("no end of the channel");
    return why;
}

static void malformed_frames_end_that_session_only(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];
    struct node *p = &w->nodes[1];
    uint8_t garbage[64] = {[0] = 60, [4] = 1, [6] = 200};
    struct hlg_pump_stats stats;

    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    struct hlg_channel *channel = stranger(w, 1);
    assert_int_equal(channel->ops->send(channel, garbage, sizeof garbage), 1);
    hear_bye(w, channel);
    hlg_pump_stats(p->pump, &stats);
    assert_int_equal(stats.frames_malformed, 1);
    assert_int_equal(stats.sessions_ended, 1);
    submit(d, 0, 30, 5, 0);
    run_until(w, d, HLG_NOTICE_READY, 1);
    expect_pages(d, p, 5, 0, 8);
}

struct hello_parts {
    struct hlg_message message;
    struct hlg_rail_address address;
    struct hlg_region_key key;
    struct hlg_place places[PLACES_MAX];
};

/* A HELLO such as a decoder of that layout sends, for a test to spoil. */
static void make_hello(struct hello_parts *parts)
{
    struct hlg_layout layout = make_layout();
    uint64_t bytes = 0;
    int count = hlg_places_linear(&layout, 0, parts->places, PLACES_MAX, &bytes);

    parts->address = (struct hlg_rail_address){.bytes = 8};
    parts->key = (struct hlg_region_key){.bytes = bytes};
    parts->message = (struct hlg_message){.kind = HLG_MESSAGE_HELLO,
                                          .hello = {.protocol_min = HLG_PROTOCOL_MIN,
                                                    .protocol_max = HLG_PROTOCOL_MAX,
                                                    .role = HLG_ROLE_DECODE,
                                                    .window_pieces = 16,
                                                    .message_bytes_max = MESSAGE_MAX,
                                                    .node = 99,
                                                    .incarnation = 1,
                                                    .session = 1,
                                                    .layout = layout,
                                                    .address_count = 1,
                                                    .key_count = 1,
                                                    .place_count = (uint32_t)count,
                                                    .addresses = &parts->address,
                                                    .keys = &parts->key,
                                                    .places = parts->places}};
}

static void spoil_nothing(struct hello_parts *parts)
{
    (void)parts;
}

static void spoil_provider(struct hello_parts *parts)
{
    parts->message.hello.provider[0] = '?';
}

static void spoil_fingerprint(struct hello_parts *parts)
{
    parts->message.hello.fingerprint[0] ^= 1;
}

static void spoil_address_lane(struct hello_parts *parts)
{
    parts->address.lane = 1;
}

static void spoil_key_bytes(struct hello_parts *parts)
{
    parts->key.bytes -= 1; /* the last byte of the last page is gone */
}

static void spoil_key_lane(struct hello_parts *parts)
{
    parts->key.lane = 1;
}

static void spoil_place_offset(struct hello_parts *parts)
{
    parts->places[2].offset = UINT64_MAX - 3;
}

static void spoil_place_stride(struct hello_parts *parts)
{
    parts->places[2].stride = UINT64_MAX / 2;
}

static void spoil_place_region(struct hello_parts *parts)
{
    parts->places[1].region = 1;
}

static void spoil_place_layer(struct hello_parts *parts)
{
    parts->places[0].layer = LAYERS + 1;
}

static void spoil_place_twice(struct hello_parts *parts)
{
    parts->places[0] = parts->places[1]; /* so that one is missing */
}

static void spoil_place_count(struct hello_parts *parts)
{
    parts->message.hello.place_count--;
}

static void hellos_that_cannot_work_are_refused_on_both_sides(void **state)
{
    static const struct {
        void (*spoil)(struct hello_parts *parts);
        uint32_t code;
    } cases[] = {
        {spoil_provider, HLG_REFUSAL_PROVIDER},  {spoil_address_lane, HLG_REFUSAL_TABLE},
        {spoil_key_bytes, HLG_REFUSAL_TABLE},    {spoil_key_lane, HLG_REFUSAL_TABLE},
        {spoil_place_offset, HLG_REFUSAL_TABLE}, {spoil_place_stride, HLG_REFUSAL_TABLE},
        {spoil_place_region, HLG_REFUSAL_TABLE}, {spoil_place_layer, HLG_REFUSAL_TABLE},
        {spoil_place_twice, HLG_REFUSAL_TABLE},  {spoil_place_count, HLG_REFUSAL_TABLE},
        {spoil_nothing, HLG_REFUSAL_TRANSPORT}, /* a made-up address */
    };
    struct world *w = *state;
    struct node *p = &w->nodes[1];
    struct hlg_transport_caps caps;

    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    struct hlg_fabric *fabric = hlg_loop_fabric(w->loop, 1);
    fabric->query(fabric, &caps);
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hello_parts parts;
        struct hlg_channel *channel = stranger(w, 1);
        make_hello(&parts);
        memcpy(parts.message.hello.provider, caps.provider, sizeof caps.provider);
        cases[i].spoil(&parts);
        say(channel, &parts.message);
        struct hlg_refusal why = hear_bye(w, channel);
        assert_int_equal(why.code, cases[i].code);
        assert_int_equal(count_notices(p, HLG_NOTICE_PEER_REFUSED), i + 1);
        assert_int_equal(last_notice(p, HLG_NOTICE_PEER_REFUSED)->refusal.code, cases[i].code);
    }
}

static void a_peer_too_many_is_told(void **state)
{
    struct world *w = *state;
    struct hlg_channel *ours = NULL;
    struct hlg_channel *theirs = NULL;
    uint32_t peer = 0;

    node_open(w, 1, HLG_ROLE_PREFILL, 1);
    struct hlg_channel *first = stranger(w, 1);
    assert_int_equal(hlg_loop_channel_pair(w->loop, 3, 1, &ours, &theirs), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[1].pump, theirs, false, &peer), -HLG_ELIMIT);
    struct hlg_refusal why = hear_bye(w, ours);
    assert_int_equal(why.code, HLG_REFUSAL_FULL);
    assert_int_equal(why.a, 1);
    first->ops->close(first);
}

/* A network on which each node has but one fence domain. */
static void share_domains(struct world *w)
{
    struct hlg_loop_config config;

    hlg_loop_destroy(w->loop);
    hlg_loop_config_default(&config);
    config.nodes = NODES;
    config.domains_max = 1;
    config.message_bytes_max = MESSAGE_MAX;
    assert_int_equal(hlg_loop_create(&config, &w->loop), 0);
}

/* Two decoders that share the prefiller's only fence domain: the end of one is the end of both, and
 * both can come back. */
static void peers_of_one_domain_end_together_and_return(void **state)
{
    struct world *w = *state;

    share_domains(w);
    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 2, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    join(w, 0, 1);
    join(w, 2, 1);
    struct node *p = &w->nodes[1];
    run_until(w, p, HLG_NOTICE_PEER_UP, 2);
    run_until(w, &w->nodes[0], HLG_NOTICE_PEER_UP, 1);
    run_until(w, &w->nodes[2], HLG_NOTICE_PEER_UP, 1);

    struct hlg_event end = {.kind = HLG_EVENT_DISCONNECT, .peer = {.peer = 0}};
    engine_event(&w->nodes[0], &end);
    run_until(w, p, HLG_NOTICE_PEER_DOWN, 2);
    run_until(w, &w->nodes[2], HLG_NOTICE_PEER_DOWN, 1);
    turn(w);
    join(w, 0, 1);
    join(w, 2, 1);
    run_until(w, &w->nodes[0], HLG_NOTICE_PEER_UP, 2);
    run_until(w, &w->nodes[2], HLG_NOTICE_PEER_UP, 2);
    submit(&w->nodes[0], 0, 30, 5, 0);
    submit(&w->nodes[2], 0, 30, 3, 0);
    run_until(w, &w->nodes[0], HLG_NOTICE_READY, 1);
    run_until(w, &w->nodes[2], HLG_NOTICE_READY, 1);
}

/* Whoever knocks and is not let in leaves the sessions of its fence domain alone. */
static void strangers_do_not_end_the_sessions_of_a_domain(void **state)
{
    static void (*const spoil[])(struct hello_parts * parts) = {
        spoil_key_bytes, spoil_fingerprint, spoil_nothing /* a made-up address */};
    struct world *w = *state;
    struct node *d = &w->nodes[0];
    struct hlg_transport_caps caps;
    uint32_t ready = 0;

    share_domains(w);
    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    struct hlg_fabric *fabric = hlg_loop_fabric(w->loop, 1);
    fabric->query(fabric, &caps);
    for (uint32_t i = 0; i < sizeof spoil / sizeof spoil[0]; i++) {
        for (uint32_t node = 0; node < 2; node++) {
            struct hello_parts parts;
            struct hlg_channel *channel = stranger(w, node);
            make_hello(&parts);
            memcpy(parts.message.hello.provider, caps.provider, sizeof caps.provider);
            spoil[i](&parts);
            say(channel, &parts.message);
            hear_bye(w, channel);
            channel = stranger(w, node);
            channel->ops->close(channel); /* without a word */
            submit(d, 0, 30, 5, 0);
            run_until(w, d, HLG_NOTICE_READY, ++ready);
            engine_event(d, &(struct hlg_event){.kind = HLG_EVENT_RELEASE,
                                                .request = hlg_pump_submitted(d->pump)});
        }
    }
    assert_int_equal(count_notices(d, HLG_NOTICE_PEER_UP), 1);
}

/* Each node has its own limits: HELLO says them, and a prompt that is too long for one never goes there. */
static void a_prompt_beyond_the_prefillers_limit_is_refused(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];
    struct hlg_limits limits;

    make_limits(&limits);
    limits.prompt_bytes_max = 100;
    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open_with(w, 1, HLG_ROLE_PREFILL, &limits);
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    assert_int_equal(try_submit(d, 0, 30, 5, 101), -HLG_ELIMIT);
    assert_int_equal(hlg_pump_open(d->pump), 0);
    submit(d, 0, 30, 5, 100);
    run_until(w, d, HLG_NOTICE_READY, 1);
}

static void ask_prefill(struct world *w, hlg_handle *requests, uint32_t count)
{
    struct node *p = &w->nodes[1];
    uint32_t found = 0;

    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    join(w, 0, 1);
    run_until(w, &w->nodes[0], HLG_NOTICE_PEER_UP, 1);
    p->answered = UINT32_MAX; /* the test is the engine */
    for (uint32_t i = 0; i < count; i++) {
        submit(&w->nodes[0], 0, 9, 10 * i, 0);
    }
    run_until(w, p, HLG_NOTICE_REQUESTED, count);
    for (uint32_t i = 0; i < p->notice_count; i++) {
        if (p->notices[i].kind == HLG_NOTICE_REQUESTED) {
            requests[found++] = p->notices[i].request;
        }
    }
}

/* Pages that another request's forward was to make valid: when it is given up, nothing of them goes. */
static void an_aborted_forward_stops_who_waits_for_its_cached_pages(void **state)
{
    struct world *w = *state;
    struct node *p = &w->nodes[1];
    static const uint32_t pages[2] = {1, 2};
    static const uint32_t context = 3;
    struct hlg_pump_stats stats;
    hlg_handle requests[2];

    ask_prefill(w, requests, 2);
    for (uint32_t i = 0; i < 2; i++) {
        engine_event(p,
                     &(struct hlg_event){.kind = HLG_EVENT_ADMIT,
                                         .admit = {.request = requests[i],
                                                   .cached_tokens = i * PAGE_TOKENS,
                                                   .cached_forward = i,
                                                   .groups = {{.count = 2, .pages = pages},
                                                              {.count = 1, .pages = &context}}}});
        if (i == 0) {
            engine_event(p, &(struct hlg_event){
                                .kind = HLG_EVENT_CHUNK,
                                .chunk = {.request = requests[0], .forward = 1, .token_count = 8}});
        }
    }
    engine_event(p, &(struct hlg_event){.kind = HLG_EVENT_FORWARD_ABORT, .forward = 1});
    run_until(w, p, HLG_NOTICE_FENCED, 2);
    run_until(w, &w->nodes[0], HLG_NOTICE_RETURNED, 2);
    hlg_pump_stats(p->pump, &stats);
    assert_int_equal(stats.pieces_posted, 0);
}

/* On the loop, with time for each layer to leave: all layers but the last are early, exactly. */
static void all_layers_but_the_last_leave_early(void **state)
{
    struct world *w = *state;
    struct node *p = &w->nodes[1];
    static const uint32_t pages[2] = {1, 2};
    static const uint32_t context = 3;
    struct hlg_pump_stats stats;
    hlg_handle request = 0;

    ask_prefill(w, &request, 1);
    engine_event(p, &(struct hlg_event){.kind = HLG_EVENT_ADMIT,
                                        .admit = {.request = request,
                                                  .groups = {{.count = 2, .pages = pages},
                                                             {.count = 1, .pages = &context}}}});
    for (uint32_t forward = 1; forward <= 2; forward++) {
        engine_event(p, &(struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                            .chunk = {.request = request,
                                                      .forward = forward,
                                                      .token_begin = 4 * (forward - 1),
                                                      .token_count = 4}});
        for (uint32_t layer = 1; layer <= LAYERS; layer++) {
            engine_event(p, &(struct hlg_event){.kind = HLG_EVENT_LAYER,
                                                .layer = {.value = forward << 8 | layer}});
            for (uint32_t i = 0; i < 100; i++) {
                turn(w);
            }
        }
        engine_event(p, &(struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = forward});
    }
    run_until(w, &w->nodes[0], HLG_NOTICE_READY, 1);
    hlg_pump_stats(p->pump, &stats);
    assert_int_equal(stats.layers_early, 2 * (LAYERS - 1));
    assert_int_equal(stats.layers_late, 0);
}

/* Counters tell all: an engine that never ends a forward runs as many as it likes. */
static void counters_alone_end_forwards(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];
    struct hlg_limits limits;

    make_limits(&limits);
    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    w->nodes[1].counters_only = true;
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    for (uint32_t i = 0; i < 3 * limits.forwards_max; i++) {
        submit(d, 0, 30, 5, 0);
        run_until(w, d, HLG_NOTICE_READY, i + 1);
        engine_event(d, &(struct hlg_event){.kind = HLG_EVENT_RELEASE,
                                            .request = hlg_pump_submitted(d->pump)});
    }
}

/* Waits without end are limits as well. */
static void limits_of_time_may_be_endless(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];
    struct hlg_limits limits;

    make_limits(&limits);
    limits.lease_ns = HLG_TIME_NEVER;
    limits.heartbeat_ns = HLG_TIME_NEVER;
    limits.fence_ns = HLG_TIME_NEVER;
    node_open_with(w, 0, HLG_ROLE_DECODE, &limits);
    node_open_with(w, 1, HLG_ROLE_PREFILL, &limits);
    hlg_loop_advance_to(w->loop, HLG_NS_PER_S);
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    hlg_loop_advance_to(w->loop, 3600 * HLG_NS_PER_S);
    submit(d, 0, 30, 5, 0);
    engine_event(
        d, &(struct hlg_event){.kind = HLG_EVENT_CANCEL, .request = hlg_pump_submitted(d->pump)});
    run_until(w, d, HLG_NOTICE_RETURNED, 1);
    submit(d, 0, 30, 5, 0);
    run_until(w, d, HLG_NOTICE_READY, 1);
    assert_int_equal(count_notices(d, HLG_NOTICE_PEER_DOWN), 0);
}

/* A device that flushes at once. */
static struct {
    struct hlg_flusher flusher;
    const struct node *node;
    struct hlg_flushed done;
    uint32_t finished;
} device;

static int device_span(struct hlg_flusher *flusher, void *base, uint64_t bytes)
{
    (void)flusher;
    (void)base;
    (void)bytes;
    return 1;
}

static int device_finish(struct hlg_flusher *flusher, hlg_handle request)
{
    (void)flusher;
    assert_int_equal(count_notices(device.node, HLG_NOTICE_RETURNED), 0);
    device.done = (struct hlg_flushed){.request = request};
    device.finished++;
    return 1;
}

static int device_poll(struct hlg_flusher *flusher, struct hlg_flushed *done, uint32_t capacity)
{
    const int count = device.done.request != 0 && capacity > 0;

    (void)flusher;
    done[0] = device.done;
    device.done.request = 0;
    return count;
}

/* A device that NICs write to is flushed before the pages of a cancelled request return; one that is copied to has
 * seen nothing of them, and is not copied to for it. */
static void pages_of_a_cancelled_request_are_flushed_and_not_copied(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];

    for (uint32_t copies = 0; copies < 2; copies++) {
        memset(&device, 0, sizeof device);
        device.node = d;
        device.flusher = (struct hlg_flusher){
            .span = copies ? device_span : NULL, .finish = device_finish, .poll = device_poll};
        w->flusher = &device.flusher;
        node_open(w, 0, HLG_ROLE_DECODE, 2);
        node_open(w, 1, HLG_ROLE_PREFILL, 2);
        join(w, 0, 1);
        run_until(w, d, HLG_NOTICE_PEER_UP, 1);
        submit(d, 0, 30, 5, 0);
        run_until(w, &w->nodes[1], HLG_NOTICE_REQUESTED, 1);
        engine_event(d, &(struct hlg_event){.kind = HLG_EVENT_CANCEL,
                                            .request = hlg_pump_submitted(d->pump)});
        run_until(w, d, HLG_NOTICE_RETURNED, 1);
        assert_int_equal(device.finished, copies ? 0 : 1);
        for (uint32_t i = 0; i < 2; i++) {
            hlg_pump_destroy(w->nodes[i].pump);
            free(w->nodes[i].memory);
            w->nodes[i] = (struct node){.pump = NULL};
        }
    }
}

/* A prefiller dies with writes under way: the decoder hears of it, and its pages come back. */
static void a_dead_prefiller_gives_the_pages_back(void **state)
{
    struct world *w = *state;
    struct node *d = &w->nodes[0];

    node_open(w, 0, HLG_ROLE_DECODE, 2);
    node_open(w, 1, HLG_ROLE_PREFILL, 2);
    join(w, 0, 1);
    run_until(w, d, HLG_NOTICE_PEER_UP, 1);
    submit(d, 0, 200, 5, 0);
    run_until(w, &w->nodes[1], HLG_NOTICE_REQUESTED, 1);
    hlg_loop_kill(w->loop, 1);
    hlg_pump_destroy(w->nodes[1].pump);
    w->nodes[1].pump = NULL;
    run_until(w, d, HLG_NOTICE_PEER_DOWN, 1);
    run_until(w, d, HLG_NOTICE_FAILED, 1);
    run_until(w, d, HLG_NOTICE_RETURNED, 1);
    assert_int_equal(hlg_pump_open(d->pump), 0);
}

static void what_cannot_work_is_refused_at_create(void **state)
{
    struct world *w = *state;
    struct hlg_layout layout = make_layout();
    struct hlg_place places[PLACES_MAX];
    struct hlg_pump *pump = NULL;
    struct hlg_limits limits;
    uint64_t bytes = 0;
    char error[256] = "";

    make_limits(&limits);
    int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, &bytes);
    uint8_t *memory = calloc(bytes, 1);
    struct hlg_pump_region region = {.memory = HLG_MEM_HOST(memory, bytes - 1)};
    struct hlg_pump_config config = {
        .role = HLG_ROLE_DECODE,
        .decode = {.limits = limits, .layout = layout, .rails = 1, .node = 1, .incarnation = 1},
        .fabric = hlg_loop_fabric(w->loop, 0),
        .regions = &region,
        .region_count = 1,
        .places = places,
        .place_count = (uint32_t)count,
        .notice = take_notice};
    assert_int_equal(hlg_pump_create(&config, &pump, error, sizeof error), -HLG_EINVAL);
    assert_true(strlen(error) > 0);
    region.memory.bytes = bytes;
    config.place_count--;
    assert_int_equal(hlg_pump_create(&config, &pump, error, sizeof error), -HLG_EINVAL);
    config.place_count++;
    /* nor is a HELLO that no frame of ours can hold */
    config.decode.limits.message_bytes_max = 256;
    assert_int_equal(hlg_pump_create(&config, &pump, error, sizeof error), -HLG_EINVAL);
    assert_non_null(strstr(error, "message_bytes_max"));
    config.decode.limits.message_bytes_max = MESSAGE_MAX;
    assert_int_equal(hlg_pump_create(&config, &pump, error, sizeof error), 0);
    hlg_pump_destroy(pump);
    free(memory);
}

/* A transport may take less at once than a page has, a staged one a slot: said at the start, not by each write. */
static void pieces_longer_than_the_fabric_takes_are_refused_at_create(void **state)
{
    const struct hlg_layout layout = make_layout();
    struct hlg_place places[PLACES_MAX];
    struct hlg_loop_config loop_config;
    struct hlg_pump *pump = NULL;
    struct hlg_loop *loop = NULL;
    struct hlg_limits limits;
    uint64_t bytes = 0;
    char error[256] = "";

    (void)state;
    make_limits(&limits);
    hlg_loop_config_default(&loop_config);
    loop_config.nodes = 1;
    for (uint32_t g = 0; g < layout.group_count; g++) {
        loop_config.piece_bytes_max = hlg_max_u64(g == 0 ? 0 : loop_config.piece_bytes_max,
                                                  hlg_layout_page_bytes(&layout, g));
    }
    const uint32_t longest = (uint32_t)loop_config.piece_bytes_max;
    const int count = hlg_places_linear(&layout, 0, places, PLACES_MAX, &bytes);
    uint8_t *memory = calloc(bytes, 1);
    assert_non_null(memory);
    const struct hlg_pump_region region = {.memory = HLG_MEM_HOST(memory, bytes)};
    struct hlg_pump_config config = {
        .role = HLG_ROLE_PREFILL,
        .prefill = {.limits = limits, .layout = layout, .rails = 1, .node = 1, .incarnation = 1},
        .regions = &region,
        .region_count = 1,
        .places = places,
        .place_count = (uint32_t)count,
        .notice = take_notice};
    for (uint32_t less = 0; less < 2; less++) {
        loop_config.piece_bytes_max = longest - less;
        assert_int_equal(hlg_loop_create(&loop_config, &loop), 0);
        config.fabric = hlg_loop_fabric(loop, 0);
        config.prefill.layout.piece_bytes_max = layout.piece_bytes_max;
        assert_int_equal(hlg_pump_create(&config, &pump, error, sizeof error),
                         less == 0 ? 0 : -HLG_EINVAL);
        if (less == 1) {
            assert_non_null(strstr(error, "lower the layout's piece_bytes_max"));
            config.prefill.layout.piece_bytes_max = longest - 1;
            assert_int_equal(hlg_pump_create(&config, &pump, error, sizeof error), 0);
        }
        hlg_pump_destroy(pump);
        hlg_loop_destroy(loop);
    }
    free(memory);
}

/* What a machine believes hangs on what a completed write means (I1): the transport says so, and nobody else. */
static void machines_know_whether_writes_are_placed_when_they_complete(void **state)
{
    static const enum hlg_role roles[] = {HLG_ROLE_PREFILL, HLG_ROLE_DECODE};

    for (uint32_t acknowledged = 0; acknowledged < 2; acknowledged++) {
        *state = world_make(acknowledged == 1);
        struct world *w = *state;
        for (uint32_t i = 0; i < 2; i++) {
            struct hlg_trace *trace = NULL;
            struct hlg_trace_log *log = NULL;
            char error[256] = "";
            size_t size = 0;
            assert_int_equal(hlg_trace_create(NULL, &trace, error, sizeof error), 0);
            w->nodes[i].trace = trace;
            node_open(w, i, roles[i], 1);
            hlg_pump_destroy(w->nodes[i].pump);
            w->nodes[i].pump = NULL;
            const uint8_t *bytes = hlg_trace_bytes(trace, &size);
            assert_int_equal(hlg_trace_open(bytes, size, false, &log, error, sizeof error), 0);
            const struct hlg_trace_head *head = hlg_trace_head(log);
            const bool told = i == 0 ? head->prefill.acknowledged : head->decode.acknowledged;
            assert_int_equal(told, acknowledged);
            hlg_trace_close(log);
            assert_int_equal(hlg_trace_destroy(trace), 0);
        }
        (void)world_teardown(state);
    }
}

#define WORLD_TEST(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(pages_and_context_arrive),
        WORLD_TEST(a_full_channel_only_delays),
        WORLD_TEST(malformed_frames_end_that_session_only),
        WORLD_TEST(hellos_that_cannot_work_are_refused_on_both_sides),
        WORLD_TEST(a_peer_too_many_is_told),
        WORLD_TEST(peers_of_one_domain_end_together_and_return),
        WORLD_TEST(strangers_do_not_end_the_sessions_of_a_domain),
        WORLD_TEST(a_prompt_beyond_the_prefillers_limit_is_refused),
        WORLD_TEST(an_aborted_forward_stops_who_waits_for_its_cached_pages),
        WORLD_TEST(counters_alone_end_forwards),
        WORLD_TEST(limits_of_time_may_be_endless),
        WORLD_TEST(pages_of_a_cancelled_request_are_flushed_and_not_copied),
        WORLD_TEST(a_dead_prefiller_gives_the_pages_back),
        WORLD_TEST(what_cannot_work_is_refused_at_create),
        cmocka_unit_test(pieces_longer_than_the_fabric_takes_are_refused_at_create),
        WORLD_TEST(all_layers_but_the_last_leave_early),
        cmocka_unit_test(machines_know_whether_writes_are_placed_when_they_complete),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
