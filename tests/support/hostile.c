#include "hostile.h"

#include "small_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MESSAGE_BYTES 65536u
#define PROMPT_BYTES  1024u
#define TURNS_MAX     100000u

void hostile_layout(struct hlg_layout *layout)
{
    *layout = small_layout((struct small_layout){.layers = HOSTILE_LAYERS,
                                                 .planes = 2,
                                                 .heads = 2,
                                                 .head_bytes = 16,
                                                 .page_tokens = HOSTILE_PAGE_TOKENS,
                                                 .pages = HOSTILE_PAGES,
                                                 .context_bytes = 64,
                                                 .contexts = HOSTILE_CONTEXTS});
}

/* The page that a byte of a node's memory belongs to, and its group. */
static uint32_t page_at(const struct hostile_world *w, uint64_t offset, uint32_t *group)
{
    for (uint32_t i = 0; i < HOSTILE_PLACES; i++) {
        const struct hlg_place *place = &w->places[i];
        const uint32_t count = place->group == 0 ? HOSTILE_PAGES : HOSTILE_CONTEXTS;
        if (offset >= place->offset && offset < place->offset + count * place->stride) {
            *group = place->group;
            return (uint32_t)((offset - place->offset) / place->stride);
        }
    }
    fail_msg("offset %llu is in no place", (unsigned long long)offset);
    return 0;
}

/* Bytes are about to land. Those for the peer may land anywhere in its memory: it is its own. */
static void on_landing(void *context, const struct hlg_loop_landing *landing)
{
    struct hostile_world *w = context;
    uint32_t group = 0;

    w->landings[landing->target_node]++;
    if (landing->source_node != PREFILL) {
        return; /* the peer's own writes: who holds keys can write */
    }
    assert_true(landing->target_node == DECODE || landing->target_node == PEER);
    const struct hostile_node *prefill = &w->nodes[PREFILL];
    for (uint32_t end = 0; landing->source != NULL && end < 2; end++) {
        const uint8_t *at = landing->source + (end == 0 ? 0 : landing->bytes - 1);
        assert_true(at >= prefill->memory && at < prefill->memory + prefill->bytes);
        const uint32_t page = page_at(w, (uint64_t)(at - prefill->memory), &group);
        assert_int_equal(group == 0 ? prefill->page_of[page] : prefill->context_of[page],
                         landing->target_node);
    }
    if (landing->target_node == PEER) {
        assert_ptr_equal(landing->target_base, w->memory);
        assert_true(landing->bytes <= w->bytes);
        assert_true(landing->target_offset <= w->bytes - landing->bytes);
        return;
    }
    const struct hostile_node *decode = &w->nodes[DECODE];
    assert_ptr_equal(landing->target_base, decode->memory);
    const uint32_t page = page_at(w, landing->target_offset, &group);
    assert_true(group == 0 ? decode->asked[page] : decode->context_asked[page]);
}

/* ---- The honest nodes ---- */

static void engine_event(struct hostile_node *n, struct hlg_event *event)
{
    assert_int_equal(hlg_pump_event(n->pump, event), 0);
}

/* Source pages for a request: the first free ones, as many as it needs. Returns its place in the table,
 * or HLG_NONE when there are not enough. */
static uint32_t take_sources(struct hostile_node *n, uint32_t who, uint32_t count)
{
    uint32_t free = 0;
    uint32_t ticket = 0;

    for (uint32_t i = 0; i < HOSTILE_PAGES; i++) {
        free += n->page_of[i] == HLG_NONE;
    }
    while (ticket < HOSTILE_TICKETS && n->admitted[ticket] != 0) {
        ticket++;
    }
    if (ticket == HOSTILE_TICKETS || free < count) {
        return HLG_NONE;
    }
    uint32_t taken = 0;
    for (uint32_t i = 0; taken < count; i++) {
        if (n->page_of[i] == HLG_NONE) {
            n->page_of[i] = who;
            n->sources[ticket][taken++] = i;
        }
    }
    if (count < HOSTILE_PAGES) {
        n->sources[ticket][count] = HLG_NONE;
    }
    n->context_of[ticket] = who;
    return ticket;
}

static void give_sources(struct hostile_node *n, uint32_t ticket)
{
    for (uint32_t i = 0; i < HOSTILE_PAGES && n->sources[ticket][i] != HLG_NONE; i++) {
        n->page_of[n->sources[ticket][i]] = HLG_NONE;
    }
    n->context_of[ticket] = HLG_NONE;
    n->admitted[ticket] = 0;
}

/* Takes a request and computes it in one forward; rejects it when there are no pages. */
static void compute(struct hostile_node *n, const struct hlg_notice *notice, uint32_t tokens)
{
    struct hlg_layout layout;

    hostile_layout(&layout);
    const uint32_t count = hlg_layout_pages(&layout, 0, tokens - 1);
    const uint32_t ticket =
        take_sources(n, notice->peer == n->world->decoder ? DECODE : PEER, count);
    if (ticket == HLG_NONE) {
        (void)hlg_pump_event(n->pump, &(struct hlg_event){.kind = HLG_EVENT_REJECT,
                                                          .reject = {.request = notice->request}});
        return;
    }
    n->forward = n->forward % 0xfffff + 1;
    n->admitted[ticket] = notice->request;
    struct hlg_event admit = {
        .kind = HLG_EVENT_ADMIT,
        .admit = {.request = notice->request,
                  .groups = {{.count = count, .pages = n->sources[ticket]},
                             {.count = 1, .pages = (const uint32_t[]){ticket}}}}};
    if (hlg_pump_event(n->pump, &admit) != 0) {
        give_sources(n, ticket); /* it ended meanwhile */
        return;
    }
    engine_event(n, &(struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                        .chunk = {.request = notice->request,
                                                  .forward = n->forward,
                                                  .token_count = tokens - 1}});
    engine_event(n, &(struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = n->forward});
}

/* A notice must not call the pump: what is asked for waits here. */
struct wanted {
    struct hlg_notice notice;
    uint32_t tokens;
};
static struct wanted wanted[256];
static uint32_t wanted_count;

static void ended(struct hostile_node *n, hlg_handle request)
{
    for (uint32_t t = 0; t < HOSTILE_TICKETS; t++) {
        if (n->tickets[t] != request) {
            continue;
        }
        for (uint32_t i = 0; i < HOSTILE_PAGES; i++) {
            if (n->pages[t][i] != HLG_NONE) {
                n->asked[n->pages[t][i]] = false;
            }
        }
        n->context_asked[n->contexts[t]] = false;
        n->tickets[t] = 0;
    }
}

static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct hostile_node *n = context;

    assert_true(notice->kind < HOSTILE_NOTICES);
    n->notices[notice->kind]++;
    const bool answer = !n->deaf && (!n->deaf_to_peer || notice->peer == n->world->decoder);
    if (notice->kind == HLG_NOTICE_REQUESTED && answer && wanted_count < 256) {
        wanted[wanted_count++] =
            (struct wanted){.notice = *notice, .tokens = notice->message->tokens};
    }
    if (notice->kind == HLG_NOTICE_READY) {
        n->ready++;
        ended(n, notice->request);
        wanted[wanted_count++] = (struct wanted){.notice = *notice};
    }
    for (uint32_t t = 0; t < HOSTILE_TICKETS; t++) {
        if ((notice->kind == HLG_NOTICE_SENT || notice->kind == HLG_NOTICE_FENCED) &&
            n->admitted[t] == notice->request) {
            give_sources(n, t);
        }
    }
    n->failed += notice->kind == HLG_NOTICE_FAILED;
    if (notice->kind == HLG_NOTICE_RETURNED) {
        ended(n, notice->request);
    }
    if (notice->kind == HLG_NOTICE_PEER_UP && n->role == HLG_ROLE_PREFILL &&
        n->world->decoder == HLG_NONE) {
        n->world->decoder = notice->peer;
    }
}

static void take_note(void *context, const struct hlg_note *note)
{
    assert_true(note->code < HOSTILE_NOTES);
    ((struct hostile_node *)context)->notes[note->code]++;
}

static void engine_turn(struct hostile_world *w)
{
    while (wanted_count > 0) {
        struct wanted next = wanted[--wanted_count];
        if (next.notice.kind == HLG_NOTICE_REQUESTED) {
            compute(&w->nodes[PREFILL], &next.notice, next.tokens);
        } else {
            engine_event(&w->nodes[DECODE], &(struct hlg_event){.kind = HLG_EVENT_RELEASE,
                                                                .request = next.notice.request});
        }
    }
}

static void make_limits(struct hlg_limits *limits)
{
    hlg_limits_default(limits);
    limits->peers_max = 4;
    limits->requests_max = 16;
    limits->lanes_max = 2;
    limits->rails_max = 2;
    limits->slices_max = 64;
    limits->prompt_bytes_max = PROMPT_BYTES;
    limits->message_bytes_max = MESSAGE_BYTES;
    limits->blocks_max = 64;
    limits->ops_max = 64;
    limits->chunks_max = 64;
}

static void open_node(struct hostile_world *w, uint32_t index)
{
    struct hostile_node *n = &w->nodes[index];
    struct hlg_layout layout;
    char error[256] = "";

    n->world = w;
    n->index = index;
    n->role = index == PREFILL ? HLG_ROLE_PREFILL : HLG_ROLE_DECODE;
    hostile_layout(&layout);
    n->bytes = w->bytes;
    n->memory = calloc(n->bytes, 1);
    assert_non_null(n->memory);
    for (uint32_t i = 0; i < HOSTILE_PAGES; i++) {
        n->page_of[i] = HLG_NONE;
    }
    for (uint32_t i = 0; i < HOSTILE_CONTEXTS; i++) {
        n->context_of[i] = HLG_NONE;
    }
    struct hlg_pump_region region = {.lane = 0, .memory = HLG_MEM_HOST(n->memory, n->bytes)};
    struct hlg_pump_config config = {.role = n->role,
                                     .fabric = hlg_loop_fabric(w->loop, index),
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = w->places,
                                     .place_count = HOSTILE_PLACES,
                                     .notice = take_notice,
                                     .note = take_note,
                                     .context = n};
    if (index == PREFILL) {
        config.prefill = (struct hlg_prefill_config){
            .layout = layout, .rails = 1, .node = index + 1, .incarnation = 7};
        make_limits(&config.prefill.limits);
    } else {
        config.decode = (struct hlg_decode_config){
            .layout = layout, .rails = 1, .node = index + 1, .incarnation = 7};
        make_limits(&config.decode.limits);
    }
    if (hlg_pump_create(&config, &n->pump, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
}

/* ---- The peer ---- */

static void open_peer(struct hostile_world *w)
{
    struct hlg_fabric *fabric = hlg_loop_fabric(w->loop, PEER);
    struct hlg_mem_export exported;

    w->memory = calloc(w->bytes, 1);
    assert_non_null(w->memory);
    assert_int_equal(fabric->open(fabric, 0, 0, &w->endpoint), 0);
    assert_int_equal(
        w->endpoint->ops->mem_register(w->endpoint, &HLG_MEM_HOST(w->memory, w->bytes), &w->mem),
        0);
    assert_int_equal(w->endpoint->ops->mem_export(w->endpoint, w->mem, &exported), 0);
    const int bytes =
        w->endpoint->ops->address(w->endpoint, w->address.address, sizeof w->address.address);
    assert_true(bytes > 0);
    w->address.bytes = (uint32_t)bytes;
    w->key = (struct hlg_region_key){
        .address = exported.address, .bytes = w->bytes, .key = exported.key};
}

void hostile_hang_up(struct hostile_world *w)
{
    if (w->channel != NULL) {
        w->channel->ops->close(w->channel);
        w->channel = NULL;
    }
}

void hostile_dial(struct hostile_world *w, uint32_t node)
{
    struct hlg_channel *theirs = NULL;
    uint32_t peer = 0;

    hostile_hang_up(w);
    for (uint32_t i = 0; i < TURNS_MAX; i++) {
        if (hlg_loop_channel_pair(w->loop, PEER, node, &w->channel, &theirs) == 0) {
            if (hlg_pump_channel(w->nodes[node].pump, theirs, false, &peer) == 0) {
                return;
            }
            hostile_hang_up(w); /* the last session is not closed yet */
        }
        hostile_settle(w, 8);
    }
    fail_msg("node %u takes no channel", node);
}

static void make_base_hello(struct hostile_world *w, struct hlg_message *message)
{
    struct hlg_transport_caps caps;

    w->endpoint->ops->query(w->endpoint, &caps);
    *message = (struct hlg_message){.kind = HLG_MESSAGE_HELLO,
                                    .hello = {.protocol_min = HLG_PROTOCOL_MIN,
                                              .protocol_max = HLG_PROTOCOL_MAX,
                                              .window_pieces = 1024,
                                              .message_bytes_max = MESSAGE_BYTES,
                                              .prompt_bytes_max = PROMPT_BYTES,
                                              .node = 0xbadbadbadbadbadull,
                                              .incarnation = 0x5a5a5a5a5a5aull,
                                              .session = 1,
                                              .address_count = 1,
                                              .addresses = &w->address}};
    memcpy(message->hello.provider, caps.provider, sizeof caps.provider);
    hostile_layout(&message->hello.layout);
}

void hostile_hello(struct hostile_world *w, uint32_t node, struct hlg_message *message)
{
    make_base_hello(w, message);
    message->hello.role = node == PREFILL ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL;
    if (node == PREFILL) {
        message->hello.key_count = 1;
        message->hello.keys = &w->key;
        message->hello.place_count = HOSTILE_PLACES;
        message->hello.places = w->places;
    } else {
        message->hello.grant =
            (struct hlg_load){.requests = 16, .pages = 4096, .prompt_bytes = 1u << 20};
    }
}

void hostile_request(uint64_t number, uint32_t page, struct hlg_message *message)
{
    static uint32_t pages[3];
    static const uint32_t context = 0;

    for (uint32_t i = 0; i < 3; i++) {
        pages[i] = page + i;
    }
    *message = (struct hlg_message){
        .kind = HLG_MESSAGE_REQUEST,
        .request = {.number = number,
                    .source_count = 1,
                    .slot = 3,
                    .tokens = 13,
                    .pieces = 3 * HOSTILE_LAYERS * 2 + 1,
                    .ttl_ns = 60 * HLG_NS_PER_S,
                    .groups = {{.count = 3, .pages = pages}, {.count = 1, .pages = &context}},
                    .group_count = 2,
                    .id_bytes = 1,
                    .id = {'h'}}};
}

bool hostile_say_bytes(struct hostile_world *w, const uint8_t *frame, uint32_t bytes)
{
    if (w->channel != NULL && w->channel->ops->send(w->channel, frame, bytes) < 0) {
        hostile_hang_up(w);
    }
    return w->channel != NULL;
}

bool hostile_say(struct hostile_world *w, const struct hlg_message *message)
{
    uint8_t frame[8192];
    const int64_t bytes = hlg_wire_encode(message, frame, sizeof frame);

    assert_true(bytes > 0);
    return hostile_say_bytes(w, frame, (uint32_t)bytes);
}

/* Reads what the nodes say, and polls the endpoint so that their writes go on. */
static int peer_turn(struct hostile_world *w)
{
    static uint64_t scratch[8192];
    struct hlg_transport_event events[32];
    struct hlg_message message;
    const uint8_t *frame = NULL;
    uint32_t bytes = 0;
    int work = w->endpoint->ops->poll(w->endpoint, events, 32);

    while (w->channel != NULL) {
        const int got = w->channel->ops->receive(w->channel, &frame, &bytes);
        if (got == 0) {
            break;
        }
        work++;
        if (got < 0) {
            hostile_hang_up(w);
        } else if (hlg_wire_decode(frame, bytes, scratch, sizeof scratch, &message) == 0) {
            w->answers[message.kind]++;
            w->byes += message.kind == HLG_MESSAGE_BYE;
            if (message.kind == HLG_MESSAGE_HELLO) {
                w->their_address = message.hello.addresses[0];
                w->their_key = (struct hlg_region_key){0};
                if (message.hello.key_count > 0) {
                    w->their_key = message.hello.keys[0];
                }
            }
        }
    }
    return work;
}

static int turn(struct hostile_world *w)
{
    int work = peer_turn(w);

    for (uint32_t i = 0; i < 2; i++) {
        work += hlg_pump_step(w->nodes[i].pump);
        work += wanted_count > 0;
        engine_turn(w);
    }
    return work;
}

void hostile_settle(struct hostile_world *w, uint32_t turns)
{
    hlg_time quiet = hlg_loop_now(w->loop) + 2 * HLG_NS_PER_MS;

    for (uint32_t i = 0; i < turns; i++) {
        if (turn(w) > 0) {
            quiet = hlg_loop_now(w->loop) + 2 * HLG_NS_PER_MS;
            continue;
        }
        if (hlg_loop_next_time(w->loop) > quiet) {
            hlg_loop_advance_to(w->loop, quiet);
            break;
        }
        (void)hlg_loop_step(w->loop);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hlg_pump_check(w->nodes[i].pump), 0);
    }
}

void hostile_join(struct hostile_world *w, uint32_t node)
{
    struct hlg_message hello;
    const uint64_t before = w->nodes[node].notices[HLG_NOTICE_PEER_UP];

    hostile_dial(w, node);
    hostile_hello(w, node, &hello);
    assert_true(hostile_say(w, &hello));
    hostile_settle(w, TURNS_MAX);
    assert_int_equal(w->nodes[node].notices[HLG_NOTICE_PEER_UP], before + 1);
    assert_non_null(w->channel);
}

bool hostile_connected(struct hostile_world *w)
{
    hostile_settle(w, TURNS_MAX);
    return w->channel != NULL;
}

void hostile_write(struct hostile_world *w, uint32_t imm)
{
    static const uint32_t page = 0;
    const int peer =
        w->endpoint->ops->peer_open(w->endpoint, w->their_address.address, w->their_address.bytes);
    const struct hlg_paged_write write = {.peer = (uint32_t)peer,
                                          .mem = w->mem,
                                          .imm = imm,
                                          .local = w->memory,
                                          .remote = w->their_key.address,
                                          .remote_key = w->their_key.key,
                                          .source_pages = &page,
                                          .target_pages = &page,
                                          .bytes = 16,
                                          .count = 1,
                                          .piece_limit = 1};

    assert_true(peer >= 0);
    while (w->endpoint->ops->write(w->endpoint, &write) == 0) {
        hostile_settle(w, 4);
    }
    hostile_settle(w, 4);
    assert_int_equal(w->endpoint->ops->peer_close(w->endpoint, (uint32_t)peer), 0);
}

/* ---- All of it ---- */

struct hostile_world *hostile_open(uint64_t seed)
{
    struct hostile_world *w = calloc(1, sizeof *w);
    struct hlg_loop_config config;
    struct hlg_layout layout;
    struct hlg_channel *a = NULL;
    struct hlg_channel *b = NULL;
    uint32_t peer = 0;

    assert_non_null(w);
    w->decoder = HLG_NONE;
    wanted_count = 0;
    hlg_loop_config_default(&config);
    config.nodes = NODES;
    config.seed = seed;
    config.message_bytes_max = MESSAGE_BYTES;
    config.room_bytes = MESSAGE_BYTES;
    assert_int_equal(hlg_loop_create(&config, &w->loop), 0);
    hlg_loop_on_landing(w->loop, on_landing, w);
    hostile_layout(&layout);
    assert_int_equal(hlg_places_linear(&layout, 0, w->places, HOSTILE_PLACES, &w->bytes),
                     HOSTILE_PLACES);
    open_node(w, DECODE);
    open_node(w, PREFILL);
    open_peer(w);
    assert_int_equal(hlg_loop_channel_pair(w->loop, DECODE, PREFILL, &a, &b), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[DECODE].pump, a, true, &peer), 0);
    assert_int_equal(hlg_pump_channel(w->nodes[PREFILL].pump, b, false, &peer), 0);
    hostile_settle(w, TURNS_MAX);
    assert_int_equal(w->nodes[DECODE].notices[HLG_NOTICE_PEER_UP], 1);
    assert_int_equal(w->nodes[PREFILL].notices[HLG_NOTICE_PEER_UP], 1);
    return w;
}

void hostile_close(struct hostile_world *w)
{
    hostile_hang_up(w);
    for (uint32_t i = 0; i < 2; i++) {
        hlg_pump_destroy(w->nodes[i].pump);
        free(w->nodes[i].memory);
    }
    (void)w->endpoint->ops->close(w->endpoint);
    w->endpoint->ops->free(w->endpoint);
    free(w->memory);
    hlg_loop_destroy(w->loop);
    free(w);
}

uint32_t hostile_submit(struct hostile_world *w, uint32_t tokens)
{
    struct hostile_node *n = &w->nodes[DECODE];
    struct hlg_layout layout;
    uint32_t ticket = 0;
    uint32_t page = 0;

    while (ticket < HOSTILE_TICKETS && n->tickets[ticket] != 0) {
        ticket++;
    }
    assert_true(ticket < HOSTILE_TICKETS);
    hostile_layout(&layout);
    const uint32_t count = hlg_layout_pages(&layout, 0, tokens - 1);
    for (uint32_t i = 0; i < HOSTILE_PAGES; i++) {
        n->pages[ticket][i] = HLG_NONE;
    }
    for (uint32_t i = 0; i < count; page++) {
        assert_true(page < HOSTILE_PAGES);
        if (!n->asked[page]) {
            n->asked[page] = true;
            n->pages[ticket][i++] = page;
        }
    }
    n->contexts[ticket] = ticket;
    n->context_asked[ticket] = true;
    engine_event(n, &(struct hlg_event){
                        .kind = HLG_EVENT_SUBMIT,
                        .submit = {.source_count = 1,
                                   .tokens = tokens,
                                   .ttl_ns = 600 * HLG_NS_PER_S,
                                   .id_bytes = 1,
                                   .id = (const uint8_t *)"r",
                                   .groups = {{.count = count, .pages = n->pages[ticket]},
                                              {.count = 1, .pages = &n->contexts[ticket]}}}});
    n->tickets[ticket] = hlg_pump_submitted(n->pump);
    return ticket;
}

void hostile_finish(struct hostile_world *w)
{
    struct hostile_node *n = &w->nodes[DECODE];

    for (uint32_t i = 0; i < 1000; i++) {
        bool open = false;
        hostile_settle(w, TURNS_MAX);
        for (uint32_t t = 0; t < HOSTILE_TICKETS; t++) {
            open = open || n->tickets[t] != 0;
        }
        if (!open) {
            assert_int_equal(n->failed, 0);
            return;
        }
    }
    fail_msg("an honest request did not end");
}
