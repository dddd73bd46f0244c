/*
 * Any events into the prefill machine. After a few bytes of limits and layout, each step is a byte that
 * names it and some more that fill it in: messages of peers that lie, calls of engines that are confused,
 * reports of a network. A machine may answer with an error; it must not break an invariant
 * (hlg_prefill_check() after each event) nor ask for a write that cannot be.
 */
#include "machine.h"

#define HANDLES_MAX 8u

struct world {
    struct machine machine;
    hlg_handle handles[HANDLES_MAX]; /* of the last REQUESTED */
    uint32_t tokens[HANDLES_MAX];
    uint32_t announced[HANDLES_MAX];
    uint32_t handle_count;
    uint32_t forward;
    uint64_t number;
};

/* Notices of requests, and of sessions that come up, that some input has brought about. */
static uint64_t seen;

#define SEEN(kind) (UINT64_C(1) << (kind))

uint64_t fuzz_missed(void)
{
    return (SEEN(HLG_NOTICE_PEER_UP) | SEEN(HLG_NOTICE_REQUESTED) | SEEN(HLG_NOTICE_STOPPING) |
            SEEN(HLG_NOTICE_SENT) | SEEN(HLG_NOTICE_FENCED)) &
           ~seen;
}

static void on_notice(void *context, struct machine *m, const struct hlg_notice *notice)
{
    struct world *w = context;

    (void)m;
    seen |=
        notice->kind == HLG_NOTICE_READY && notice->pieces_expected == 0 ? 0 : SEEN(notice->kind);
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        uint32_t at = w->handle_count++ % HANDLES_MAX;
        w->handles[at] = notice->request;
        w->tokens[at] = notice->message->tokens;
        w->announced[at] = 0;
    }
}

/* A handle of a request, an old one, or none at all. */
static uint32_t pick(const struct world *w, struct feed *f, hlg_handle *handle)
{
    uint32_t byte = feed_byte(f);
    uint32_t at = byte % HANDLES_MAX;

    *handle = byte >= 0xf0 ? feed_bytes(f, 8) : w->handles[at];
    return at;
}

/* A REQUEST that fits the plan with its peer, but for what the input changes. */
static void request(struct world *w, struct feed *f)
{
    static uint32_t pages[HLG_GROUPS_MAX][32];
    static const uint8_t prompt[64] = {1};
    struct machine *m = &w->machine;
    struct hlg_message message = {.kind = HLG_MESSAGE_REQUEST};
    struct hlg_request_message *r = &message.request;
    uint32_t peer = feed_below(f, m->limits.peers_max);
    uint32_t odd = feed_byte(f);
    const struct hlg_plan *plan = &m->prefill->sessions.peers[peer].plan;
    bool planned = sessions_up(&m->prefill->sessions, peer);
    uint32_t counts[HLG_GROUPS_MAX] = {0};

    *r = (struct hlg_request_message){.number = ++w->number,
                                      .source_count = 1,
                                      .slot = feed_below(f, 8),
                                      .generation = feed_below(f, 4),
                                      .tokens = 2 + feed_below(f, 40),
                                      .prompt_bytes = feed_below(f, 9),
                                      .ttl_ns = feed_below(f, 8) * HLG_NS_PER_S * 4,
                                      .group_count = planned ? plan->target.group_count : 1,
                                      .prompt = prompt};
    uint32_t first = feed_byte(f);
    for (uint32_t g = 0; planned && g < r->group_count; g++) {
        bool context = plan->target.groups[g].kind == HLG_GROUP_CONTEXT;
        uint32_t all = hlg_layout_pages(&plan->target, g, r->tokens - 1);
        uint32_t held = context ? 0 : first % (all + 1);
        for (uint32_t i = 0; i < all - held && i < 32; i++) {
            pages[g][i] = (feed_byte(f) + i) % plan->target.groups[g].page_count;
        }
        r->groups[g] =
            (struct hlg_page_list){.count = all - held, .first = held, .pages = pages[g]};
        counts[g] = all - held;
    }
    r->offset = planned ? feed_below(f, plan->offset_count) : 0;
    r->pieces = planned ? hlg_plan_pieces(plan, r->offset, HLG_NONE, counts, HLG_NONE) : 1;
    uint32_t *fields[] = {&r->pool,     &r->slot,         &r->generation,      &r->offset,
                          &r->tokens,   &r->prompt_bytes, &r->groups[0].first, &pages[0][0],
                          &pages[1][0], &r->group_count};
    if (odd < sizeof fields / sizeof fields[0]) {
        *fields[odd] = feed_odd(f, 0, 16);
    } else if (odd == 64) {
        r->pieces = feed_odd(f, 0, 128);
    } else if (odd == 65) {
        r->number = feed_odd(f, 1, 16);
        w->number = hlg_max_u32((uint32_t)w->number, (uint32_t)r->number);
    } else if (odd == 66) {
        r->source_count = 2;
        r->ttl_ns = UINT64_MAX - feed_byte(f);
    }
    r->prompt_bytes = hlg_min_u32(r->prompt_bytes, sizeof prompt);
    if (r->groups[0].count <= 32 && r->group_count <= HLG_GROUPS_MAX) {
        machine_feed_message(m, peer, &message);
    }
}

static void admit(struct world *w, struct feed *f)
{
    static uint32_t pages[HLG_GROUPS_MAX][32];
    struct machine *m = &w->machine;
    struct hlg_event event = {.kind = HLG_EVENT_ADMIT};
    uint32_t at = pick(w, f, &event.admit.request);
    uint32_t odd = feed_byte(f);
    uint32_t tokens = w->tokens[at] > 0 ? w->tokens[at] - 1 : 1;

    event.admit.pool = feed_below(f, m->layout.pools);
    event.admit.cached_tokens = odd >= 128 ? feed_byte(f) % (tokens + 1) : 0;
    event.admit.cached_forward = odd >= 192 ? w->forward + feed_below(f, 4) - 1 : 0;
    for (uint32_t g = 0; g < m->layout.group_count; g++) {
        uint32_t count = hlg_min_u32(32, hlg_layout_pages(&m->layout, g, tokens));
        for (uint32_t i = 0; i < count; i++) {
            pages[g][i] = (feed_byte(f) + i) % m->layout.groups[g].page_count;
        }
        event.admit.groups[g] = (struct hlg_page_list){.count = count, .pages = pages[g]};
    }
    uint32_t *fields[] = {&event.admit.pool, &event.admit.cached_tokens, &pages[0][0],
                          &event.admit.groups[0].first, &event.admit.groups[0].count};
    if (odd < sizeof fields / sizeof fields[0]) {
        *fields[odd] = odd == 4 ? feed_below(f, 33) : feed_odd(f, 0, 32);
    }
    if (machine_feed(m, &event) == 0) {
        w->announced[at] = event.admit.cached_tokens;
    }
}

static void chunk(struct world *w, struct feed *f)
{
    struct hlg_event event = {.kind = HLG_EVENT_CHUNK};
    uint32_t at = pick(w, f, &event.chunk.request);
    uint32_t odd = feed_byte(f);
    uint32_t left = w->tokens[at] - 1 - w->announced[at];

    if (odd % 2 == 0) {
        w->forward = w->forward % 0xffffff + 1;
    }
    event.chunk.forward = w->forward;
    event.chunk.token_begin = w->announced[at];
    event.chunk.token_count = odd < 128 ? left : feed_odd(f, 0, 12);
    if (odd == 255) {
        event.chunk.forward = feed_u32(f);
    } else if (odd == 254) {
        event.chunk.token_begin = feed_u32(f);
    } else if (odd == 253) { /* near the end of the numbers: newer ones begin at 1 again */
        w->forward = 0xfffff0u;
    }
    if (machine_feed(&w->machine, &event) == 0) {
        w->announced[at] += event.chunk.token_count;
    }
}

static void credit(struct world *w, struct feed *f)
{
    struct hlg_credit_entry entries[8];
    struct hlg_message message = {.kind = HLG_MESSAGE_CREDIT,
                                  .credit = {.count = feed_below(f, 9), .entries = entries}};
    uint32_t peer = feed_below(f, w->machine.limits.peers_max);

    for (uint32_t i = 0; i < message.credit.count; i++) {
        entries[i] = (struct hlg_credit_entry){
            .lane = feed_odd(f, 0, 4), .rail = feed_odd(f, 0, 2), .pieces = feed_odd(f, 0, 128)};
    }
    machine_feed_message(&w->machine, peer, &message);
}

/* Half of its credits are true: all that was posted. */
static void credit_all(struct world *w, struct feed *f)
{
    struct hlg_credit_entry entries[8];
    struct machine *m = &w->machine;
    uint32_t peer = feed_below(f, m->limits.peers_max);
    struct hlg_message message = {.kind = HLG_MESSAGE_CREDIT, .credit = {.entries = entries}};

    if (!sessions_up(&m->prefill->sessions, peer)) {
        return;
    }
    const struct session *session = &m->prefill->sessions.peers[peer];
    uint32_t lanes = hlg_layout_lanes(&session->plan.target);
    for (uint32_t i = 0; i < lanes * session->rails && i < 8; i++) {
        uint32_t lane = i / session->rails;
        uint32_t rail = i % session->rails;
        entries[i] = (struct hlg_credit_entry){
            .lane = lane,
            .rail = rail,
            .pieces =
                m->prefill->windows[(peer * HLG_RANKS_MAX + lane) * m->limits.rails_max + rail]
                    .posted};
        message.credit.count = i + 1;
    }
    machine_feed_message(m, peer, &message);
}

static void engine(struct world *w, struct feed *f, uint32_t what)
{
    struct machine *m = &w->machine;
    struct hlg_event event = {0};

    switch (what) {
    case 0:
        event.kind = HLG_EVENT_REJECT;
        pick(w, f, &event.reject.request);
        event.reject.retry_after_ns = feed_odd(f, 0, 16);
        break;
    case 1:
        event.kind = HLG_EVENT_CANCEL;
        pick(w, f, &event.request);
        break;
    case 2:
        event.kind = HLG_EVENT_LAYER;
        event.layer.word = feed_odd(f, 0, 4);
        event.layer.value = (w->forward - feed_below(f, 4)) << 8 | feed_below(f, 5);
        if (feed_byte(f) == 255) {
            event.layer.value = feed_u32(f);
        }
        break;
    default:
        event.kind = what == 3 ? HLG_EVENT_FORWARD_END : HLG_EVENT_FORWARD_ABORT;
        event.forward = w->forward - feed_odd(f, 0, 4);
        break;
    }
    machine_feed(m, &event);
}

static void network(struct world *w, struct feed *f, uint32_t what)
{
    struct machine *m = &w->machine;
    uint32_t op = feed_byte(f);

    if (what == 0) {
        for (uint32_t i = feed_byte(f) % 32; i > 0; i--) {
            if (!machine_write(m, op % hlg_layout_lanes(&m->layout), f)) {
                break;
            }
        }
    } else if (what == 1) {
        op %= MACHINE_OPS_MAX;
        uint32_t part = feed_byte(f);
        uint32_t pieces = part < 128 ? m->outstanding[op] : part % (m->outstanding[op] + 1);
        uint32_t failed = feed_byte(f) >= 0xe0 ? pieces : 0;
        machine_done(m, op, pieces - failed, failed);
    } else if (what == 2) {
        machine_feed(m, &(struct hlg_event){.kind = HLG_EVENT_ROOM,
                                            .room = {feed_odd(f, 0, 4), feed_odd(f, 0, 2)}});
    } else if (what == 3) { /* more than there is */
        op = feed_odd(f, 0, MACHINE_OPS_MAX + 1);
        uint32_t most = op < MACHINE_OPS_MAX ? m->outstanding[op] : 0;
        HLG_ASSERT(machine_done(m, op, most, hlg_max_u32(1, feed_odd(f, 0, 4))) == -HLG_EINVAL);
    } else {
        HLG_ASSERT(machine_feed(m, &(struct hlg_event){.kind = HLG_EVENT_TAKEN,
                                                       .taken = {.op = feed_odd(f, 0, 16),
                                                                 .pieces = feed_odd(f, 0, 4)}}) ==
                   -HLG_EINVAL);
    }
}

static void step(struct world *w, struct feed *f)
{
    uint32_t what = feed_byte(f) % (MACHINE_COMMON + 16);

    if (what < MACHINE_COMMON) {
        machine_common(&w->machine, f, what);
        return;
    }
    what -= MACHINE_COMMON;
    switch (what) {
    case 0:
    case 1:
        request(w, f);
        return;
    case 2:
        admit(w, f);
        return;
    case 3:
    case 4:
        chunk(w, f);
        return;
    case 5:
        credit(w, f);
        return;
    case 6:
        credit_all(w, f);
        return;
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
        engine(w, f, what - 7);
        return;
    default:
        network(w, f, what == 15 ? feed_byte(f) % 2 + 3 : what - 12);
        return;
    }
}

/* A session with a decoder, so that not every input must find it first. */
static void greet(struct world *w, struct feed *f)
{
    struct machine *m = &w->machine;
    struct hlg_message hello;
    struct hlg_action action;

    machine_feed(m, &(struct hlg_event){.kind = HLG_EVENT_CHANNEL_UP});
    machine_hello(f, HLG_ROLE_DECODE, &hello);
    machine_feed_message(m, 0, &hello);
    if (machine_next(m, 0, HLG_ACTION_PEER_OPEN, &action) != 0) {
        machine_feed_peer(m, HLG_EVENT_PEER_OPENED, action.peer, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed f = {.next = data, .left = size};
    struct world w = {.forward = 1,
                      .machine = {.on_notice = on_notice, .node = 1, .incarnation = 9}};

    if (size > MACHINE_INPUT_MAX) {
        return 0;
    }
    w.machine.context = &w;
    machine_limits(&f, &w.machine.limits);
    machine_layout(feed_below(&f, MACHINE_LAYOUTS), &w.machine.layout);
    w.machine.rails = 1 + feed_below(&f, 2);
    machine_open(&w.machine, HLG_ROLE_PREFILL, false);
    greet(&w, &f);
    while (f.left > 0) {
        step(&w, &f);
    }
    machine_close(&w.machine);
    return 0;
}
