#include "machine.h"

#include <halage/wire.h>

#include <stdlib.h>

#define FRAME_BYTES_MAX 8192u

static const struct {
    uint32_t tp;
    uint32_t stages;
    uint32_t pools;
    uint32_t heads;
    uint32_t arrangement;
    uint32_t context; /* shards; 0: none */
} shapes[MACHINE_LAYOUTS] = {
    {1, 1, 1, 2, HLG_HND, 0}, {1, 1, 1, 2, HLG_NHD, 1}, {2, 1, 1, 2, HLG_HND, 0},
    {2, 1, 2, 2, HLG_NHD, 1}, {1, 2, 1, 2, HLG_HND, 0}, {4, 1, 1, 2, HLG_NHD, 1},
};

void machine_layout(uint32_t index, struct hlg_layout *layout)
{
    HLG_ASSERT(index < MACHINE_LAYOUTS);
    *layout = (struct hlg_layout){
        .tp = shapes[index].tp,
        .stages = shapes[index].stages,
        .pools = shapes[index].pools,
        .layers = 2,
        .stage_limit = {shapes[index].stages == 2 ? 1 : 2, 2},
        .rank_limit = shapes[index].tp * shapes[index].stages,
        .all_reduce = index < 3,
        .piece_bytes_max = index == 4 ? 8 : HLG_PIECE_BYTES_DEFAULT,
        .group_count = shapes[index].context != 0 ? 2 : 1,
        .groups = {{.kind = HLG_GROUP_PAGED,
                    .planes = 2,
                    .heads = 2,
                    .head_bytes = 2,
                    .page_tokens = 4,
                    .arrangement = shapes[index].arrangement,
                    .page_count = 16,
                    .layers = {3}},
                   {.kind = HLG_GROUP_CONTEXT,
                    .planes = 1,
                    .heads = 1,
                    .head_bytes = 8,
                    .page_tokens = 1,
                    .page_count = 4}},
    };
    if (shapes[index].context == 0) {
        layout->groups[1] = (struct hlg_group){0};
    }
}

void machine_limits(struct feed *f, struct hlg_limits *limits)
{
    *limits = (struct hlg_limits){.peers_max = 1 + feed_below(f, MACHINE_PEERS_MAX),
                                  .requests_max = 1 + feed_below(f, 4),
                                  .sources_max = 1 + feed_below(f, 2),
                                  .lanes_max = 4,
                                  .rails_max = 2,
                                  .slices_max = 64,
                                  .forwards_max = 1 + feed_below(f, 4),
                                  .chunks_max = 1 + feed_below(f, 6),
                                  .ops_max = 1 + feed_below(f, MACHINE_OPS_MAX),
                                  .blocks_max = 1 + feed_below(f, 8),
                                  .prompt_bytes_max = 64,
                                  .message_bytes_max = FRAME_BYTES_MAX,
                                  .window_pieces = 2 + feed_below(f, 30),
                                  .turn_bytes = 1 + 8 * feed_below(f, 32),
                                  .lease_ns = 30 * HLG_NS_PER_S,
                                  .heartbeat_ns = 5 * HLG_NS_PER_S,
                                  .fence_ns = 10 * HLG_NS_PER_S};
}

void machine_open(struct machine *m, enum hlg_role role, bool flush)
{
    struct hlg_prefill_config prefill = {.limits = m->limits,
                                         .layout = m->layout,
                                         .rails = m->rails,
                                         .node = m->node,
                                         .incarnation = m->incarnation,
                                         .acknowledged = m->acknowledged};
    struct hlg_decode_config decode = {.limits = m->limits,
                                       .layout = m->layout,
                                       .rails = m->rails,
                                       .node = m->node,
                                       .incarnation = m->incarnation,
                                       .flush = flush,
                                       .acknowledged = m->acknowledged};

    m->role = role;
    m->prefill = NULL;
    m->decode = NULL;
    size_t bytes = role == HLG_ROLE_PREFILL ? hlg_prefill_size(&prefill) : hlg_decode_size(&decode);
    HLG_ASSERT(bytes > 0); /* the config fits */
    m->memory = malloc(bytes);
    HLG_ASSERT(m->memory != NULL);
    memset(m->memory, 0xa5, bytes);
    if (role == HLG_ROLE_PREFILL) {
        m->prefill = hlg_prefill_init(m->memory, &prefill);
    } else {
        m->decode = hlg_decode_init(m->memory, &decode);
    }
    if (m->now == 0) {
        m->now = HLG_NS_PER_S;
    }
}

void machine_close(struct machine *m)
{
    free(m->memory);
}

int machine_next(struct machine *m, uint32_t lane, unsigned kinds, struct hlg_action *action)
{
    return m->prefill != NULL ? hlg_prefill_next(m->prefill, lane, kinds, action)
                              : hlg_decode_next(m->decode, lane, kinds, action);
}

static void expect_nothing_outstanding(const struct machine *m, const struct hlg_notice *notice)
{
    if (notice->kind != HLG_NOTICE_SENT && notice->kind != HLG_NOTICE_FENCED &&
        notice->kind != HLG_NOTICE_POISONED) {
        return;
    }
    for (uint32_t op = 0; op < MACHINE_OPS_MAX; op++) {
        HLG_ASSERT(m->outstanding[op] == 0 || m->op_request[op] != (uint32_t)notice->request);
    }
}

int machine_feed(struct machine *m, const struct hlg_event *event)
{
    struct hlg_event timed = *event;
    struct hlg_action action;

    timed.now = m->now;
    int result = m->prefill != NULL ? hlg_prefill_handle(m->prefill, &timed)
                                    : hlg_decode_handle(m->decode, &timed);
    HLG_ASSERT(result <= 0 && result >= -HLG_EFORK);
    int broken = m->prefill != NULL ? hlg_prefill_check(m->prefill) : hlg_decode_check(m->decode);
    HLG_ASSERT(broken == 0);
    while (machine_next(m, 0, HLG_ACTION_NOTICE | HLG_ACTION_NOTE, &action) != 0) {
        if (action.kind != HLG_ACTION_NOTICE) {
            continue;
        }
        expect_nothing_outstanding(m, &action.notice);
        if (m->on_notice != NULL) {
            m->on_notice(m->context, m, &action.notice);
        }
    }
    return result;
}

int machine_feed_peer(struct machine *m, uint32_t kind, uint32_t peer, int32_t status)
{
    return machine_feed(
        m, &(struct hlg_event){.kind = kind, .peer = {.peer = peer, .status = status}});
}

bool machine_feed_bytes(struct machine *m, uint32_t peer, const uint8_t *frame, uint64_t bytes)
{
    static _Alignas(8) uint8_t scratch[1u << 16];
    struct hlg_message message;

    if (hlg_wire_decode(frame, bytes, scratch, sizeof scratch, &message) != 0) {
        return false;
    }
    machine_feed(m, &(struct hlg_event){.kind = HLG_EVENT_MESSAGE,
                                        .peer = {.peer = peer, .message = &message}});
    return true;
}

/* Whether a frame can say that: what none says, the encoder asserts of its own messages. */
static bool can_be_said(const struct hlg_message *message)
{
    const struct hlg_hello *hello = &message->hello;
    const struct hlg_request_message *request = &message->request;

    if (message->kind == HLG_MESSAGE_HELLO) {
        return hello->role <= HLG_ROLE_DECODE && hello->layout.stages <= HLG_STAGES_MAX &&
               hello->layout.group_count <= HLG_GROUPS_MAX;
    }
    if (message->kind == HLG_MESSAGE_REQUEST) {
        return request->number != 0 && request->slot < HLG_SLOTS_MAX &&
               request->generation < HLG_GENERATIONS && request->tokens >= 1 &&
               request->tokens <= HLG_TOKENS_MAX && request->group_count <= HLG_GROUPS_MAX &&
               request->groups[0].first < HLG_TOKENS_MAX - 32;
    }
    return true;
}

bool machine_feed_message(struct machine *m, uint32_t peer, const struct hlg_message *message)
{
    static uint8_t frame[FRAME_BYTES_MAX];
    if (!can_be_said(message)) {
        return false;
    }
    int64_t bytes = hlg_wire_encode(message, frame, sizeof frame);

    return bytes > 0 && machine_feed_bytes(m, peer, frame, (uint64_t)bytes);
}

void machine_feed_frame(struct machine *m, uint32_t peer, struct feed *f)
{
    static uint8_t frame[264];
    uint32_t bytes = 6 + feed_byte(f);

    frame[0] = (uint8_t)((bytes - 4) & 0xff);
    frame[1] = (uint8_t)((bytes - 4) >> 8);
    frame[2] = frame[3] = 0;
    frame[4] = 1;
    frame[5] = 0;
    for (uint32_t i = 6; i < bytes; i++) {
        frame[i] = (uint8_t)feed_byte(f);
    }
    machine_feed_bytes(m, peer, frame, bytes);
}

void machine_hello(struct feed *f, enum hlg_role role, struct hlg_message *message)
{
    static struct hlg_rail_address addresses[64];
    uint32_t shape = feed_byte(f);
    uint32_t odd = feed_byte(f);
    struct hlg_hello *hello = &message->hello;

    *message = (struct hlg_message){.kind = HLG_MESSAGE_HELLO};
    *hello = (struct hlg_hello){.protocol_min = HLG_PROTOCOL_MIN,
                                .protocol_max = HLG_PROTOCOL_MAX,
                                .role = (uint32_t)role,
                                .window_pieces = 1 + feed_below(f, 32),
                                .message_bytes_max = 4096,
                                .prompt_bytes_max = 64,
                                .node = 50 + feed_below(f, 3),
                                .incarnation = 500 + feed_below(f, 3),
                                .session = 1 + feed_below(f, 4),
                                .provider = "fuzz",
                                .addresses = addresses};
    machine_layout(shape % MACHINE_LAYOUTS, &hello->layout);
    for (uint32_t i = 0; i < 64; i++) {
        addresses[i] = (struct hlg_rail_address){.bytes = 1};
    }
    hello->address_count = hlg_layout_lanes(&hello->layout) * (shape >= 128 ? 2 : 1);
    uint32_t *fields[] = {&hello->protocol_min,
                          &hello->protocol_max,
                          &hello->role,
                          &hello->window_pieces,
                          &hello->layout.tp,
                          &hello->layout.pools,
                          &hello->layout.rank_begin,
                          &hello->layout.rank_limit,
                          &hello->layout.layers,
                          &hello->layout.piece_bytes_max,
                          &hello->layout.group_count,
                          &hello->layout.groups[0].heads,
                          &hello->layout.groups[0].page_count,
                          &hello->layout.groups[0].page_tokens};
    if (odd < sizeof fields / sizeof fields[0]) {
        *fields[odd] = feed_odd(f, 0, 8);
    } else if (odd == 64) {
        hello->fingerprint[3] = 1;
    } else if (odd == 65) {
        hello->address_count = feed_below(f, 65);
    }
    if (hello->role == HLG_ROLE_PREFILL) { /* who decodes grants nothing */
        hello->grant = (struct hlg_load){1 + shape % 4, 8 + shape, 16 + shape};
    }
}

void machine_small_message(struct feed *f, struct hlg_message *message)
{
    static const uint8_t kinds[] = {HLG_MESSAGE_ACCEPT, HLG_MESSAGE_REJECT, HLG_MESSAGE_CANCEL,
                                    HLG_MESSAGE_FENCED, HLG_MESSAGE_FAILED, HLG_MESSAGE_HEARTBEAT,
                                    HLG_MESSAGE_DRAIN,  HLG_MESSAGE_BYE};

    *message = (struct hlg_message){.kind = kinds[feed_below(f, sizeof kinds)]};
    if (message->kind == HLG_MESSAGE_BYE) {
        message->bye.why = (struct hlg_refusal){.code = feed_odd(f, 0, 18), .a = feed_byte(f)};
        return;
    }
    if (message->kind == HLG_MESSAGE_HEARTBEAT || message->kind == HLG_MESSAGE_DRAIN) {
        return;
    }
    uint32_t odd = feed_byte(f);
    struct hlg_answer *answer = &message->answer;
    *answer =
        (struct hlg_answer){.number = 1ull + feed_odd(f, 0, 16), .incarnation = 500 + odd % 3};
    if (message->kind == HLG_MESSAGE_ACCEPT || message->kind == HLG_MESSAGE_FENCED ||
        message->kind == HLG_MESSAGE_FAILED) {
        answer->pieces = feed_odd(f, 0, 64);
        answer->await = message->kind == HLG_MESSAGE_FENCED ? odd / 3 % 3 : 0;
    }
    if (message->kind == HLG_MESSAGE_REJECT || message->kind == HLG_MESSAGE_FAILED) {
        answer->reason = feed_below(f, 8);
    }
    answer->session = message->kind == HLG_MESSAGE_CANCEL ? 1 + odd / 3 % 4 : 0;
    answer->retry_after_ns = message->kind == HLG_MESSAGE_REJECT ? feed_odd(f, 0, 16) : 0;
}

/* A WRITE must make sense whatever peers said: pages, lanes and runs are within both layouts. */
static void expect_write(const struct machine *m, const struct hlg_action_write *w)
{
    const struct hlg_plan *plan = &m->prefill->sessions.peers[w->peer].plan;
    const struct hlg_slice *s = w->slice;

    HLG_ASSERT(w->op < m->limits.ops_max && w->peer < m->limits.peers_max && w->rail < m->rails);
    HLG_ASSERT(w->lane < hlg_layout_lanes(&plan->source));
    HLG_ASSERT(w->target_lane < hlg_layout_lanes(&plan->target));
    HLG_ASSERT(w->page_count > 0 && w->piece_begin < w->piece_limit);
    HLG_ASSERT(w->piece_limit <= w->page_count * s->count);
    HLG_ASSERT(s->group < plan->target.group_count);
    for (uint32_t i = 0; i < w->page_count; i++) {
        HLG_ASSERT(w->source_pages[i] < plan->source.groups[s->group].page_count);
        HLG_ASSERT(w->target_pages[i] < plan->target.groups[s->group].page_count);
    }
    HLG_ASSERT((uint64_t)s->target_offset + s->bytes <=
               hlg_layout_page_bytes(&plan->target, s->group));
}

bool machine_write(struct machine *m, uint32_t lane, struct feed *f)
{
    struct hlg_action action;

    if (machine_next(m, lane, HLG_ACTION_WRITE, &action) == 0) {
        return false;
    }
    const struct hlg_action_write *w = &action.write;
    expect_write(m, w);
    uint32_t offered = w->piece_limit - w->piece_begin;
    uint32_t byte = feed_byte(f);
    uint32_t taken = byte < 128 ? offered : byte % (offered + 1);
    m->outstanding[w->op] += taken;
    m->op_peer[w->op] = w->peer;
    m->op_request[w->op] = m->prefill->ops[w->op].request;
    if (m->on_write != NULL && taken > 0) {
        m->on_write(m->context, m, w, taken);
    }
    int result = machine_feed(
        m, &(struct hlg_event){.kind = HLG_EVENT_TAKEN, .taken = {.op = w->op, .pieces = taken}});
    HLG_ASSERT(result == 0);
    return true;
}

int machine_done(struct machine *m, uint32_t op, uint32_t done, uint32_t failed)
{
    bool known = op < MACHINE_OPS_MAX && (uint64_t)done + failed <= m->outstanding[op];

    if (known) {
        m->outstanding[op] -= done + failed;
    }
    int result = machine_feed(
        m, &(struct hlg_event){.kind = HLG_EVENT_DONE_WRITE,
                               .done = {.op = op, .done = done, .failed = failed, .status = -1}});
    HLG_ASSERT(!known || done + failed == 0 || result == 0);
    return result;
}

void machine_closed(struct machine *m, uint32_t peer, int32_t status)
{
    HLG_ASSERT(m->closing[peer]);
    for (uint32_t op = 0; op < MACHINE_OPS_MAX; op++) {
        if (m->outstanding[op] > 0 && m->op_peer[op] == peer) {
            machine_done(m, op, 0, m->outstanding[op]);
        }
    }
    m->closing[peer] = false;
    HLG_ASSERT(machine_feed_peer(m, HLG_EVENT_PEER_CLOSED, peer, status) == 0);
}

/* Pulls one action of the node and carries it out. */
static bool carry_one(struct machine *m, struct feed *f)
{
    struct hlg_action action;

    if (machine_next(m, 0, HLG_ACTIONS_NODE, &action) == 0) {
        return false;
    }
    switch ((enum hlg_action_kind)action.kind) {
    case HLG_ACTION_SEND:
        if (feed_byte(f) >= 0xe0) {
            machine_feed_peer(m, HLG_EVENT_SEND_REFUSED, action.send.peer, 0);
        }
        return true;
    case HLG_ACTION_PEER_OPEN:
        machine_feed_peer(m, HLG_EVENT_PEER_OPENED, action.peer,
                          feed_byte(f) >= 0xf0 ? -HLG_EIO : 0);
        return true;
    case HLG_ACTION_PEER_CLOSE:
        m->closing[action.close.peer] = true;
        if (feed_byte(f) < 0xa0) {
            machine_closed(m, action.close.peer, feed_byte(f) >= 0xe0 ? -HLG_EIO : 0);
        }
        return true;
    case HLG_ACTION_FLUSH:
        machine_feed(
            m, &(struct hlg_event){.kind = HLG_EVENT_FLUSHED, .request = action.flush.request});
        return true;
    case HLG_ACTION_NOTE:
        return true; /* of the step that the pull itself was */
    case HLG_ACTION_WRITE:
    case HLG_ACTION_NOTICE:
        break;
    }
    hlg_unreachable(); /* notices were pulled */
}

hlg_time machine_span(struct feed *f)
{
    static const hlg_time spans[] = {
        0, 1, HLG_NS_PER_MS, HLG_NS_PER_S, 5 * HLG_NS_PER_S, 11 * HLG_NS_PER_S, 31 * HLG_NS_PER_S};

    return spans[feed_below(f, sizeof spans / sizeof spans[0])];
}

bool machine_common(struct machine *m, struct feed *f, uint32_t what)
{
    struct hlg_message message;
    uint32_t peer = feed_byte(f);
    peer = peer >= 0xf8 ? HLG_NONE - (peer - 0xf8) : peer % (m->limits.peers_max + 1);

    switch (what) {
    case 0: {
        uint32_t domain = feed_byte(f);
        machine_feed(m,
                     &(struct hlg_event){
                         .kind = HLG_EVENT_CHANNEL_UP,
                         .peer = {.peer = peer, .domain = domain % 3, .dialled = domain >= 128}});
        return true;
    }
    case 1:
        machine_hello(f, m->role == HLG_ROLE_PREFILL ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL,
                      &message);
        machine_feed_message(m, peer, &message);
        return true;
    case 2:
        machine_small_message(f, &message);
        machine_feed_message(m, peer, &message);
        return true;
    case 3:
        machine_feed_frame(m, peer, f);
        return true;
    case 4:
        machine_feed_peer(m, feed_byte(f) % 2 == 0 ? HLG_EVENT_PEER_DOWN : HLG_EVENT_DISCONNECT,
                          peer, -HLG_EPEER);
        return true;
    case 5:
        m->now += machine_span(f);
        machine_feed(m, &(struct hlg_event){.kind = HLG_EVENT_TIME});
        return true;
    case 6:
        for (uint32_t i = feed_byte(f); i > 0 && carry_one(m, f); i--) {
        }
        return true;
    case 7:
        if (peer < m->limits.peers_max && m->closing[peer]) {
            machine_closed(m, peer, 0);
        } else if (peer >=
                   m->limits.peers_max) { /* else it may be closing, which nobody asked yet */
            HLG_ASSERT(machine_feed_peer(m, HLG_EVENT_PEER_CLOSED, peer, 0) < 0);
        }
        return true;
    case 8: {
        static const uint32_t kinds[] = {
            HLG_EVENT_SEND_ROOM, HLG_EVENT_SEND_REFUSED, HLG_EVENT_PEER_OPENED, 0, 99,
            HLG_EVENT_DRAIN,     HLG_EVENT_ROOM,         HLG_EVENT_RELEASE};
        machine_feed_peer(m, kinds[feed_below(f, sizeof kinds / sizeof kinds[0])], peer, 0);
        return true;
    }
    default:
        return false;
    }
}
