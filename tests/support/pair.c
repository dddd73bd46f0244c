#include "pair.h"

#include "small_layout.h"

#include <halage/handoff.h>
#include <halage/wire.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FRAME_BYTES_MAX 65536u
#define RUN_ROUNDS_MAX  10000u
#define TEXT_BYTES_MAX  1024u

/* ---- making ------------------------------------------------------------------------------- */

void pair_layout(struct hlg_layout *layout, uint32_t tp, uint32_t layers, uint32_t page_tokens,
                 bool context)
{
    *layout = small_layout((struct small_layout){.layers = layers,
                                                 .planes = 2,
                                                 .heads = 2,
                                                 .head_bytes = 2,
                                                 .page_tokens = page_tokens,
                                                 .pages = 64,
                                                 .context_bytes = 8,
                                                 .contexts = context ? 8 : 0});
    layout->tp = tp;
    layout->rank_limit = tp;
}

void pair_limits(struct hlg_limits *limits)
{
    *limits = (struct hlg_limits){.peers_max = 3,
                                  .requests_max = 4,
                                  .sources_max = 2,
                                  .lanes_max = 4,
                                  .rails_max = 2,
                                  .slices_max = 64,
                                  .forwards_max = 4,
                                  .chunks_max = 8,
                                  .ops_max = 16,
                                  .blocks_max = 16,
                                  .prompt_bytes_max = 64,
                                  .message_bytes_max = FRAME_BYTES_MAX,
                                  .window_pieces = 64,
                                  .turn_bytes = 256u << 10,
                                  .lease_ns = 30 * HLG_NS_PER_S,
                                  .heartbeat_ns = 5 * HLG_NS_PER_S,
                                  .fence_ns = 10 * HLG_NS_PER_S};
}

void pair_config(struct hlg_prefill_config *config)
{
    *config = (struct hlg_prefill_config){.rails = 1, .fingerprint = {7}};
    pair_layout(&config->layout, 1, 2, 4, false);
    pair_limits(&config->limits);
}

uint32_t pair_page(uint32_t index)
{
    assert_true(index < 64);
    return 63 - index;
}

struct pair *pair_open(void)
{
    struct pair *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->now = HLG_NS_PER_S;
    p->take_max = HLG_NONE;
    return p;
}

static uint32_t add(struct pair *p, enum hlg_role role, const struct hlg_prefill_config *config,
                    bool flush)
{
    struct hlg_prefill_config usual;

    pair_config(&usual);
    config = config != NULL ? config : &usual;
    uint32_t index = p->side_count++;
    struct pair_side *side = &p->sides[index];

    assert_true(index < PAIR_SIDES_MAX && config->limits.peers_max <= PAIR_PEERS_MAX);
    side->role = role;
    side->config = *config;
    side->config.node = 100 + index;
    side->config.incarnation = 1000 + index;
    struct hlg_decode_config decode = {.limits = config->limits,
                                       .layout = config->layout,
                                       .rails = config->rails,
                                       .node = side->config.node,
                                       .incarnation = side->config.incarnation,
                                       .flush = flush,
                                       .acknowledged = config->acknowledged};
    memcpy(decode.fingerprint, config->fingerprint, sizeof decode.fingerprint);
    bool is_decode = role == HLG_ROLE_DECODE;
    size_t bytes = is_decode ? hlg_decode_size(&decode) : hlg_prefill_size(&side->config);
    HLG_ASSERT(bytes > 0); /* the config fits */
    side->memory = malloc(bytes);
    assert_non_null(side->memory);
    memset(side->memory, 0xa5, bytes);
    if (is_decode) {
        side->decode = hlg_decode_init(side->memory, &decode);
    } else {
        side->prefill = hlg_prefill_init(side->memory, &side->config);
    }
    return index;
}

uint32_t pair_add(struct pair *p, enum hlg_role role, const struct hlg_prefill_config *config)
{
    return add(p, role, config, false);
}

uint32_t pair_add_flushing(struct pair *p, const struct hlg_prefill_config *config)
{
    return add(p, HLG_ROLE_DECODE, config, true);
}

static struct pair *join(const struct hlg_prefill_config *decode,
                         const struct hlg_prefill_config *prefill, uint32_t domain)
{
    struct pair *p = pair_open();

    pair_add(p, HLG_ROLE_DECODE, decode);
    pair_add(p, HLG_ROLE_PREFILL, prefill);
    pair_connect(p, DECODE, PREFILL, domain, 0);
    return p;
}

struct pair *pair_joined(const struct hlg_prefill_config *decode,
                         const struct hlg_prefill_config *prefill)
{
    return join(decode, prefill, 0);
}

void pair_join_other(struct pair *p, enum hlg_role role, const struct hlg_prefill_config *config,
                     uint32_t domain)
{
    uint32_t other = pair_add(p, role, config);

    assert_int_equal(other, OTHER);
    if (role == HLG_ROLE_DECODE) {
        pair_connect(p, OTHER, PREFILL, 0, domain);
    } else {
        pair_connect(p, DECODE, OTHER, domain, 0);
    }
}

struct pair *pair_simple(const struct hlg_prefill_config *config)
{
    struct pair *p = pair_joined(config, config);

    pair_run(p);
    pair_expect(p, DECODE, "up");
    pair_expect(p, PREFILL, "up");
    return p;
}

struct pair *pair_two_sources(const struct hlg_prefill_config *config, uint32_t first_domain,
                              uint32_t second_domain)
{
    struct pair *p = join(config, config, first_domain);

    pair_join_other(p, HLG_ROLE_PREFILL, config, second_domain);
    pair_run(p);
    pair_expect(p, DECODE, "up up");
    pair_expect(p, PREFILL, "up");
    pair_expect(p, OTHER, "up");
    return p;
}

void pair_close(struct pair *p)
{
    for (uint32_t i = 0; i < p->side_count; i++) {
        free(p->sides[i].memory);
    }
    for (uint32_t i = 0; i < p->frame_count; i++) {
        free(p->frames[i].frame);
    }
    free(p);
}

/* ---- machines ----------------------------------------------------------------------------- */

static int next(struct pair_side *side, uint32_t lane, unsigned kinds, struct hlg_action *action)
{
    return side->decode != NULL ? hlg_decode_next(side->decode, lane, kinds, action)
                                : hlg_prefill_next(side->prefill, lane, kinds, action);
}

static void check(const struct pair_side *side)
{
    assert_int_equal(side->decode != NULL ? hlg_decode_check(side->decode)
                                          : hlg_prefill_check(side->prefill),
                     0);
}

static void keep_notice(struct pair_side *side, const struct hlg_notice *notice)
{
    if (side->notice_count == PAIR_NOTICES_MAX) {
        uint32_t drop = hlg_min_u32(side->read_count, PAIR_NOTICES_MAX / 2);
        assert_true(drop > 0); /* else a test would miss some */
        side->notice_count -= drop;
        side->read_count -= drop;
        memmove(side->notices, side->notices + drop, side->notice_count * sizeof *notice);
    }
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        side->asked = *notice->message;
        side->asked.prompt = NULL;
    }
    side->notices[side->notice_count] = *notice;
    side->notices[side->notice_count++].message = NULL;
}

int pair_feed(struct pair *p, uint32_t index, const struct hlg_event *event)
{
    struct pair_side *side = &p->sides[index];
    struct hlg_event timed = *event;
    struct hlg_action action;

    timed.now = p->now + p->clocks[index];
    int error = side->decode != NULL ? hlg_decode_handle(side->decode, &timed)
                                     : hlg_prefill_handle(side->prefill, &timed);
    check(side);
    while (next(side, 0, HLG_ACTION_NOTICE | HLG_ACTION_NOTE, &action) != 0) {
        if (action.kind == HLG_ACTION_NOTICE) {
            keep_notice(side, &action.notice);
        } else {
            side->notes[action.note.code]++;
            side->note = action.note.code < HLG_NOTE_STEP_FIRST ? action.note : side->note;
        }
    }
    return error;
}

int pair_down(struct pair *p, uint32_t side, uint32_t peer)
{
    return pair_feed(p, side,
                     &(struct hlg_event){.kind = HLG_EVENT_PEER_DOWN,
                                         .peer = {.peer = peer, .status = -HLG_EPEER}});
}

int pair_feed_kind(struct pair *p, uint32_t side, uint32_t kind)
{
    return pair_feed(p, side, &(struct hlg_event){.kind = kind});
}

int pair_feed_request(struct pair *p, uint32_t side, uint32_t kind, hlg_handle request)
{
    return pair_feed(p, side, &(struct hlg_event){.kind = kind, .request = request});
}

int pair_feed_message(struct pair *p, uint32_t side, uint32_t peer,
                      const struct hlg_message *message)
{
    return pair_feed(
        p, side,
        &(struct hlg_event){.kind = HLG_EVENT_MESSAGE, .peer = {.peer = peer, .message = message}});
}

int pair_feed_imm(struct pair *p, uint32_t side, uint32_t imm, uint32_t pieces)
{
    return pair_feed(
        p, side,
        &(struct hlg_event){.kind = HLG_EVENT_IMM,
                            .imm = {.imm = imm, .pieces = pieces, .immediates = pieces}});
}

void pair_advance(struct pair *p, hlg_time ns)
{
    p->now += ns;
    for (uint32_t i = 0; i < p->side_count; i++) {
        assert_int_equal(pair_feed_kind(p, i, HLG_EVENT_TIME), 0);
    }
}

/* ---- channels ----------------------------------------------------------------------------- */

static uint32_t free_end(const struct pair_side *side)
{
    for (uint32_t i = 0; i < side->config.limits.peers_max; i++) {
        if (side->ends[i].connection == 0) {
            return i;
        }
    }
    fail_msg("no free peer number");
    return 0;
}

static uint32_t end_of(const struct pair_side *side, uint64_t connection)
{
    for (uint32_t i = 0; i < PAIR_PEERS_MAX; i++) {
        if (side->ends[i].connection == connection) {
            return i;
        }
    }
    return HLG_NONE;
}

static uint32_t channel_up(struct pair *p, uint32_t index, uint32_t other, uint32_t domain)
{
    struct pair_side *side = &p->sides[index];
    uint32_t end = free_end(side);
    struct hlg_event event = {.kind = HLG_EVENT_CHANNEL_UP,
                              .peer = {.peer = end,
                                       .domain = domain,
                                       .dialled = (side->decode != NULL) != p->prefill_dials}};

    side->ends[end] =
        (struct pair_end){.connection = p->connections, .other = other, .domain = domain};
    assert_int_equal(pair_feed(p, index, &event), 0);
    return end;
}

uint32_t pair_connect(struct pair *p, uint32_t decode, uint32_t prefill, uint32_t decode_domain,
                      uint32_t prefill_domain)
{
    p->connections++;
    channel_up(p, prefill, decode, prefill_domain);
    return channel_up(p, decode, prefill, decode_domain);
}

static void push_frame(struct pair *p, const struct pair_end *end, uint8_t *frame, uint32_t bytes)
{
    assert_true(p->frame_count < PAIR_FRAMES_MAX);
    p->frames[p->frame_count++] = (struct pair_frame){
        .connection = end->connection, .to = end->other, .bytes = bytes, .frame = frame};
}

/* What the driver adds to a HELLO: one address for each rail of each lane. */
static void fill_hello(const struct pair_side *side, struct hlg_hello *hello,
                       struct hlg_rail_address *addresses)
{
    uint32_t lanes = hlg_layout_lanes(&side->config.layout);

    hello->address_count = lanes * side->config.rails;
    for (uint32_t i = 0; i < hello->address_count; i++) {
        addresses[i] = (struct hlg_rail_address){
            .lane = i / side->config.rails, .rail = i % side->config.rails, .bytes = 1};
    }
    hello->addresses = addresses;
}

static void carry_send(struct pair *p, uint32_t index, const struct hlg_action_send *send)
{
    struct hlg_rail_address addresses[HLG_RANKS_MAX];
    struct pair_side *side = &p->sides[index];
    struct pair_end *end = &side->ends[send->peer];
    struct hlg_message message = send->message;

    assert_true(end->connection != 0);
    if (end->refuse_count > 0) {
        end->refuse_count--;
        assert_int_equal(pair_feed(p, index,
                                   &(struct hlg_event){.kind = HLG_EVENT_SEND_REFUSED,
                                                       .peer = {.peer = send->peer}}),
                         0);
        return;
    }
    if (message.kind == HLG_MESSAGE_HELLO) {
        fill_hello(side, &message.hello, addresses);
    }
    uint8_t *frame = malloc(FRAME_BYTES_MAX);
    assert_non_null(frame);
    int64_t bytes = hlg_wire_encode(&message, frame, FRAME_BYTES_MAX);
    assert_true(bytes > 0);
    push_frame(p, end, frame, (uint32_t)bytes);
    side->sent[message.kind]++;
    if (message.kind != HLG_MESSAGE_CREDIT) {
        side->last = message;
    }
}

static void hand_over(struct pair *p, const struct pair_frame *f)
{
    static _Alignas(8) uint8_t scratch[1u << 20];
    uint32_t peer = end_of(&p->sides[f->to], f->connection);
    struct hlg_message message;

    if (peer == HLG_NONE) {
        return;
    }
    if (f->bytes == 0) {
        struct hlg_event down = {.kind = HLG_EVENT_PEER_DOWN,
                                 .peer = {.peer = peer, .status = -HLG_EPEER}};
        assert_int_equal(pair_feed(p, f->to, &down), 0);
        return;
    }
    assert_int_equal(hlg_wire_decode(f->frame, f->bytes, scratch, sizeof scratch, &message), 0);
    assert_int_equal(pair_feed_message(p, f->to, peer, &message), 0);
}

bool pair_deliver(struct pair *p, uint32_t side)
{
    for (uint32_t i = 0; i < p->frame_count; i++) {
        if (p->frames[i].to == side) {
            struct pair_frame f = p->frames[i];
            p->frame_count--;
            memmove(&p->frames[i], &p->frames[i + 1], (p->frame_count - i) * sizeof f);
            hand_over(p, &f);
            free(f.frame);
            return true;
        }
    }
    return false;
}

void pair_closed(struct pair *p, uint32_t index, uint32_t peer, int32_t status)
{
    struct pair_side *side = &p->sides[index];
    struct pair_end *end = &side->ends[peer];

    for (uint32_t i = 0; i < PAIR_WRITES_MAX; i++) {
        struct pair_write *w = &p->writes[i];
        if (w->used && w->connection == end->connection) {
            w->dead = true;
            if (side->prefill != NULL) {
                pair_done(p, w, 0, w->taken - w->done);
            }
        }
    }
    push_frame(p, end, NULL, 0);
    *end = (struct pair_end){0};
    assert_int_equal(pair_feed(p, index,
                               &(struct hlg_event){.kind = HLG_EVENT_PEER_CLOSED,
                                                   .peer = {.peer = peer, .status = status}}),
                     0);
}

/* ---- writes ------------------------------------------------------------------------------- */

static void carry_write(struct pair *p, uint32_t index, const struct hlg_action_write *write)
{
    const struct pair_end *end = &p->sides[index].ends[write->peer];
    uint32_t offered = write->piece_limit - write->piece_begin;
    uint32_t taken = hlg_min_u32(offered, p->take_max);
    uint32_t at = 0;

    for (uint32_t i = 0; p->on_piece != NULL && i < taken; i++) {
        p->on_piece(p->context, write, write->piece_begin + i);
    }
    while (taken > 0 && p->writes[at].used) {
        at++;
        assert_true(at < PAIR_WRITES_MAX);
    }
    if (taken > 0) {
        uint32_t peer = end_of(&p->sides[end->other], end->connection);
        bool open = peer != HLG_NONE;
        p->writes[at] =
            (struct pair_write){.used = true,
                                .dead = !open,
                                .from = index,
                                .to = end->other,
                                .connection = end->connection,
                                .domain = open ? p->sides[end->other].ends[peer].domain : 0,
                                .write = *write,
                                .slice = *write->slice,
                                .taken = taken};
    }
    struct hlg_event event = {.kind = HLG_EVENT_TAKEN, .taken = {.op = write->op, .pieces = taken}};
    assert_int_equal(pair_feed(p, index, &event), 0);
}

struct pair_write *pair_oldest(struct pair *p)
{
    for (uint32_t i = 0; i < PAIR_WRITES_MAX; i++) {
        if (p->writes[i].used) {
            return &p->writes[i];
        }
    }
    return NULL;
}

static void drop_finished(struct pair_write *w)
{
    if (w->done == w->taken && (w->dead || w->landed == w->taken)) {
        *w = (struct pair_write){0};
    }
}

void pair_land(struct pair *p, struct pair_write *w, uint32_t pieces)
{
    struct hlg_event event = {.kind = HLG_EVENT_IMM,
                              .imm = {.imm = w->write.imm,
                                      .pieces = pieces,
                                      .immediates = pieces,
                                      .lane = w->write.target_lane,
                                      .rail = w->write.target_rail,
                                      .domain = w->domain}};

    assert_true(w->used && !w->dead && pieces <= w->taken - w->landed);
    w->landed += pieces;
    uint32_t to = w->to;
    drop_finished(w);
    assert_int_equal(pair_feed(p, to, &event), 0);
}

void pair_done(struct pair *p, struct pair_write *w, uint32_t done, uint32_t failed)
{
    struct hlg_event event = {.kind = HLG_EVENT_DONE_WRITE,
                              .done = {.op = w->write.op,
                                       .done = done,
                                       .failed = failed,
                                       .status = failed > 0 ? -HLG_EIO : 0}};

    assert_true(w->used && done + failed <= w->taken - w->done);
    w->done += done + failed;
    uint32_t from = w->from;
    drop_finished(w);
    if (done + failed > 0) {
        assert_int_equal(pair_feed(p, from, &event), 0);
    }
}

static bool move_writes(struct pair *p)
{
    bool moved = false;

    for (uint32_t i = 0; i < PAIR_WRITES_MAX; i++) {
        struct pair_write *w = &p->writes[i];
        if (w->used && !w->dead && !p->hold_landing && w->landed < w->taken) {
            pair_land(p, w, w->taken - w->landed);
            moved = true;
        }
        if (w->used && !p->hold_done && w->done < w->taken) {
            pair_done(p, w, w->taken - w->done, 0);
            moved = true;
        }
    }
    return moved;
}

/* ---- running ------------------------------------------------------------------------------ */

static void carry(struct pair *p, uint32_t index, const struct hlg_action *action)
{
    struct pair_side *side = &p->sides[index];

    switch ((enum hlg_action_kind)action->kind) {
    case HLG_ACTION_WRITE:
        carry_write(p, index, &action->write);
        return;
    case HLG_ACTION_SEND:
        carry_send(p, index, &action->send);
        return;
    case HLG_ACTION_PEER_OPEN:
        assert_int_equal(pair_feed(p, index,
                                   &(struct hlg_event){.kind = HLG_EVENT_PEER_OPENED,
                                                       .peer = {.peer = action->peer}}),
                         0);
        return;
    case HLG_ACTION_PEER_CLOSE:
        side->ends[action->close.peer].closing = true;
        if (!side->hold_close) {
            pair_closed(p, index, action->close.peer, side->close_status);
        }
        return;
    case HLG_ACTION_FLUSH:
        side->flush = action->flush.request;
        side->flush_fences = action->flush.fences;
        if (!side->hold_flush) {
            assert_int_equal(pair_feed_request(p, index, HLG_EVENT_FLUSHED, action->flush.request),
                             0);
        }
        return;
    case HLG_ACTION_NOTE:
        side->notes[action->note.code]++; /* of what was just sent */
        return;
    case HLG_ACTION_NOTICE:
        fail_msg("a notice was left after an event");
    }
}

static bool turn_writes(struct pair *p, uint32_t index)
{
    struct pair_side *side = &p->sides[index];
    struct hlg_action action;
    bool moved = false;

    for (uint32_t lane = 0; lane < hlg_layout_lanes(&side->config.layout); lane++) {
        for (uint32_t rail = 0; p->take_max != HLG_NONE && rail < side->config.rails; rail++) {
            struct hlg_event room = {.kind = HLG_EVENT_ROOM, .room = {.lane = lane, .rail = rail}};
            assert_int_equal(pair_feed(p, index, &room), 0);
        }
        while (next(side, lane, HLG_ACTION_WRITE, &action) != 0) {
            carry(p, index, &action);
            moved = true;
        }
    }
    return moved;
}

static bool turn(struct pair *p)
{
    struct hlg_action action;
    bool moved = false;

    for (uint32_t i = 0; i < p->side_count; i++) {
        while (next(&p->sides[i], 0, HLG_ACTIONS_NODE, &action) != 0) {
            carry(p, i, &action);
            moved = true;
        }
        if (p->sides[i].prefill != NULL && !p->hold_writes) {
            moved = turn_writes(p, i) || moved;
        }
    }
    for (uint32_t i = 0; !p->hold_frames && i < p->side_count; i++) {
        moved = pair_deliver(p, i) || moved;
    }
    return move_writes(p) || moved;
}

void pair_run(struct pair *p)
{
    uint32_t rounds = 0;

    while (turn(p)) {
        rounds++;
        assert_true(rounds < RUN_ROUNDS_MAX);
    }
}

/* ---- engines ------------------------------------------------------------------------------ */

int pair_submit(struct pair *p, uint32_t index, const struct pair_ask *ask, hlg_handle *request)
{
    static uint32_t numbers[64];
    static uint32_t contexts[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct pair_side *side = &p->sides[index];
    const struct hlg_layout *layout = &side->config.layout;
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT};
    struct hlg_event_submit *submit = &event.submit;

    for (uint32_t i = 0; i < 64; i++) {
        numbers[i] = pair_page(i);
    }
    *submit = (struct hlg_event_submit){.source_count = hlg_max_u32(1, ask->source_count),
                                        .tokens = ask->tokens,
                                        .ttl_ns = ask->ttl_ns != 0 ? ask->ttl_ns : HLG_TIME_NEVER,
                                        .random = ask->random,
                                        .id_bytes = 1,
                                        .id = (const uint8_t *)"A"};
    memcpy(submit->peers, ask->peers, sizeof submit->peers);
    for (uint32_t g = 0; g < layout->group_count; g++) {
        uint32_t pages = hlg_layout_pages(layout, g, ask->tokens - 1);
        bool context = layout->groups[g].kind == HLG_GROUP_CONTEXT;
        submit->groups[g] = (struct hlg_page_list){
            .count = context ? 1 : pages - ask->first,
            .first = context ? 0 : ask->first,
            .pages = context ? &contexts[ask->context] : &numbers[ask->page + ask->first]};
    }
    int error = pair_feed(p, index, &event);
    if (error == 0 && request != NULL) {
        *request = hlg_decode_submitted(side->decode);
    }
    return error;
}

hlg_handle pair_submitted(struct pair *p, const struct pair_ask *ask)
{
    hlg_handle request = 0;

    assert_int_equal(pair_submit(p, DECODE, ask, &request), 0);
    return request;
}

int pair_cancel(struct pair *p, uint32_t side, hlg_handle request)
{
    return pair_feed_request(p, side, HLG_EVENT_CANCEL, request);
}

int pair_admit(struct pair *p, uint32_t index, hlg_handle request, uint32_t tokens,
               uint32_t cached_tokens, uint32_t cached_forward)
{
    static uint32_t numbers[64];
    struct pair_side *side = &p->sides[index];
    const struct hlg_layout *layout = &side->config.layout;
    struct hlg_event event = {.kind = HLG_EVENT_ADMIT,
                              .admit = {.request = request,
                                        .cached_tokens = cached_tokens,
                                        .cached_forward = cached_forward}};

    for (uint32_t i = 0; i < 64; i++) {
        numbers[i] = i;
    }
    for (uint32_t g = 0; g < layout->group_count; g++) {
        uint32_t pages = hlg_layout_pages(layout, g, tokens - 1);
        bool context = layout->groups[g].kind == HLG_GROUP_CONTEXT;
        if (!context && side->page_next + pages > layout->groups[g].page_count) {
            side->page_next = 0;
        }
        event.admit.groups[g] = (struct hlg_page_list){
            .count = pages, .pages = &numbers[context ? 0 : side->page_next]};
        side->page_next += context ? 0 : pages;
    }
    return pair_feed(p, index, &event);
}

int pair_chunk(struct pair *p, uint32_t side, hlg_handle request, uint32_t forward, uint32_t begin,
               uint32_t count)
{
    return pair_feed(p, side,
                     &(struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                         .chunk = {.request = request,
                                                   .forward = forward,
                                                   .token_begin = begin,
                                                   .token_count = count}});
}

int pair_tick(struct pair *p, uint32_t side, uint32_t word, uint32_t forward, uint32_t layers)
{
    return pair_feed(p, side,
                     &(struct hlg_event){.kind = HLG_EVENT_LAYER,
                                         .layer = {.word = word, .value = forward << 8 | layers}});
}

int pair_forward(struct pair *p, uint32_t side, uint32_t kind, uint32_t forward)
{
    return pair_feed(p, side, &(struct hlg_event){.kind = kind, .forward = forward});
}

hlg_handle pair_requested(const struct pair *p, uint32_t side)
{
    return pair_last(p, side, HLG_NOTICE_REQUESTED)->request;
}

hlg_handle pair_serve(struct pair *p, uint32_t side, uint32_t forward)
{
    hlg_handle request = pair_requested(p, side);
    uint32_t tokens = p->sides[side].asked.tokens;

    assert_int_equal(pair_admit(p, side, request, tokens, 0, 0), 0);
    assert_int_equal(pair_chunk(p, side, request, forward, 0, tokens - 1), 0);
    assert_int_equal(pair_forward(p, side, HLG_EVENT_FORWARD_END, forward), 0);
    return request;
}

/* ---- looking ------------------------------------------------------------------------------ */

static const char *const kind_names[] = {
    [HLG_NOTICE_PEER_UP] = "up",          [HLG_NOTICE_PEER_REFUSED] = "refused",
    [HLG_NOTICE_PEER_DOWN] = "down",      [HLG_NOTICE_PEER_DRAINING] = "draining",
    [HLG_NOTICE_REQUESTED] = "requested", [HLG_NOTICE_STOPPING] = "stopping",
    [HLG_NOTICE_SENT] = "sent",           [HLG_NOTICE_FENCED] = "fenced",
    [HLG_NOTICE_ACCEPTED] = "accepted",   [HLG_NOTICE_READY] = "ready",
    [HLG_NOTICE_FAILED] = "failed",       [HLG_NOTICE_RETURNED] = "returned",
    [HLG_NOTICE_POISONED] = "poisoned",
};

static const char *const reason_names[] = {
    [HLG_REASON_NONE] = "none",           [HLG_REASON_REJECTED] = "rejected",
    [HLG_REASON_CANCELLED] = "cancelled", [HLG_REASON_PEER] = "peer",
    [HLG_REASON_DEADLINE] = "deadline",   [HLG_REASON_PROTOCOL] = "protocol",
    [HLG_REASON_LOCAL] = "local",         [HLG_REASON_PREEMPTED] = "preempted",
};

void pair_expect(struct pair *p, uint32_t index, const char *notices)
{
    struct pair_side *side = &p->sides[index];
    char text[TEXT_BYTES_MAX] = "";
    size_t used = 0;

    for (; side->read_count < side->notice_count; side->read_count++) {
        const struct hlg_notice *n = &side->notices[side->read_count];
        bool reasoned = n->kind == HLG_NOTICE_STOPPING || n->kind == HLG_NOTICE_FAILED;
        int bytes = snprintf(text + used, sizeof text - used, "%s%s%s%s%s", used > 0 ? " " : "",
                             kind_names[n->kind], reasoned ? "(" : "",
                             reasoned ? reason_names[n->reason] : "", reasoned ? ")" : "");
        used += (size_t)bytes;
        assert_true(bytes > 0 && used < sizeof text);
    }
    assert_string_equal(text, notices);
}

const struct hlg_notice *pair_last(const struct pair *p, uint32_t index, uint32_t kind)
{
    const struct pair_side *side = &p->sides[index];

    for (uint32_t i = side->notice_count; i > 0; i--) {
        if (side->notices[i - 1].kind == kind) {
            return &side->notices[i - 1];
        }
    }
    fail_msg("no notice of kind %u", kind);
    return NULL;
}

enum hlg_page_state pair_page_state(const struct pair *p, uint32_t side, uint32_t page)
{
    hlg_handle owner = 0;

    return hlg_decode_page(p->sides[side].decode, 0, 0, page, &owner);
}

void pair_expect_pages(const struct pair *p, enum hlg_page_state state)
{
    assert_int_equal(pair_page_state(p, DECODE, pair_page(0)), state);
    assert_int_equal(pair_page_state(p, DECODE, pair_page(1)), state);
    assert_int_equal(pair_page_state(p, DECODE, pair_page(2)), HLG_PAGE_FREE);
}
