/*
 * Any events into the decode machine, as fuzz_prefill.c does to the other one. Besides the machine's own
 * invariants: one terminal notice a request and then one for its pages, and a page that was given back is
 * nobody's.
 */
#include "machine.h"

#define HANDLES_MAX 8u
#define SUBMITS_MAX 256u

enum told {
    TOLD_NOTHING = 0,
    TOLD_READY,
    TOLD_FAILED,
};

struct world {
    struct machine machine;
    hlg_handle handles[HANDLES_MAX];
    enum told told[HANDLES_MAX]; /* by table index */
    uint32_t submits;
    uint32_t pages[SUBMITS_MAX][2][16]; /* as long as the machine may look at them */
};

/* Notices of requests, and of sessions that come up, that some input has brought about. */
static uint64_t seen;

#define SEEN(kind) (UINT64_C(1) << (kind))

uint64_t fuzz_missed(void)
{
    return (SEEN(HLG_NOTICE_PEER_UP) | SEEN(HLG_NOTICE_ACCEPTED) | SEEN(HLG_NOTICE_READY) |
            SEEN(HLG_NOTICE_FAILED) | SEEN(HLG_NOTICE_RETURNED) | SEEN(HLG_NOTICE_POISONED)) &
           ~seen;
}

static void on_notice(void *context, struct machine *m, const struct hlg_notice *notice)
{
    struct world *w = context;
    enum told *told = &w->told[(uint32_t)notice->request % HANDLES_MAX];

    (void)m;
    seen |=
        notice->kind == HLG_NOTICE_READY && notice->pieces_expected == 0 ? 0 : SEEN(notice->kind);
    switch (notice->kind) {
    case HLG_NOTICE_READY:
        HLG_ASSERT(*told == TOLD_NOTHING && notice->pieces_counted == notice->pieces_expected);
        *told = TOLD_READY;
        return;
    case HLG_NOTICE_FAILED:
        HLG_ASSERT(*told == TOLD_NOTHING && notice->reason != HLG_REASON_NONE);
        *told = TOLD_FAILED;
        return;
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_POISONED:
        HLG_ASSERT(*told == TOLD_FAILED);
        *told = TOLD_NOTHING;
        return;
    case HLG_NOTICE_ACCEPTED:
        HLG_ASSERT(*told == TOLD_NOTHING);
        return;
    default:
        return;
    }
}

static hlg_handle pick(const struct world *w, struct feed *f)
{
    uint32_t byte = feed_byte(f);

    return byte >= 0xf0 ? feed_bytes(f, 8) : w->handles[byte % HANDLES_MAX];
}

static void submit(struct world *w, struct feed *f)
{
    static const uint8_t text[64] = {1};
    struct machine *m = &w->machine;
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT};
    struct hlg_event_submit *s = &event.submit;
    uint32_t odd = feed_byte(f);

    if (w->submits == SUBMITS_MAX) {
        return;
    }
    *s = (struct hlg_event_submit){.source_count = 1,
                                   .pool = feed_below(f, m->layout.pools),
                                   .tokens = 1 + feed_below(f, 40),
                                   .random = feed_byte(f) << 24,
                                   .ttl_ns = feed_below(f, 8) * 5 * HLG_NS_PER_S,
                                   .prompt = text,
                                   .prompt_bytes = feed_below(f, 9),
                                   .id = text,
                                   .id_bytes = feed_below(f, 9)};
    s->peers[0] = feed_below(f, m->limits.peers_max);
    s->peers[1] = (s->peers[0] + 1) % MACHINE_PEERS_MAX;
    s->source_count += odd >= 128;
    uint32_t page = feed_byte(f);
    uint32_t first = feed_byte(f);
    for (uint32_t g = 0; g < m->layout.group_count; g++) {
        uint32_t *pages = w->pages[w->submits][g];
        bool context = m->layout.groups[g].kind == HLG_GROUP_CONTEXT;
        uint32_t all = hlg_layout_pages(&m->layout, g, s->tokens - 1);
        uint32_t held = context || first < 128 ? 0 : first % (all + 1);
        for (uint32_t i = 0; i < 16; i++) {
            pages[i] = (page + i) % m->layout.groups[g].page_count;
        }
        s->groups[g] = (struct hlg_page_list){.count = all - held, .first = held, .pages = pages};
    }
    uint32_t *fields[] = {&s->source_count,
                          &s->pool,
                          &s->tokens,
                          &s->peers[0],
                          &s->peers[1],
                          &s->groups[0].first,
                          &w->pages[w->submits][0][1],
                          &w->pages[w->submits][1][0],
                          &s->groups[0].count,
                          &s->groups[1].count};
    if (odd < 8) {
        *fields[odd] = feed_odd(f, 0, 16);
    } else if (odd < sizeof fields / sizeof fields[0]) {
        *fields[odd] = feed_below(f, 17);
    } else if (odd == 64) {
        s->prompt_bytes = 65;
    } else if (odd == 65) {
        s->id_bytes = 65;
    }
    if (machine_feed(m, &event) == 0) {
        hlg_handle handle = hlg_decode_submitted(m->decode);
        w->handles[(uint32_t)handle % HANDLES_MAX] = handle;
        w->submits++;
    }
}

/* An answer of a peer about a number that may be open. */
static void answer(struct world *w, struct feed *f)
{
    static const uint8_t kinds[] = {HLG_MESSAGE_ACCEPT, HLG_MESSAGE_REJECT, HLG_MESSAGE_FENCED,
                                    HLG_MESSAGE_FAILED};
    struct machine *m = &w->machine;
    uint32_t peer = feed_below(f, m->limits.peers_max);
    struct hlg_message message = {.kind = kinds[feed_below(f, sizeof kinds)]};

    message.answer.number = 1 + feed_byte(f) % (w->submits * 2 + 1);
    message.answer.incarnation = 500 + feed_below(f, 3);
    if (message.kind == HLG_MESSAGE_REJECT) {
        message.answer.reason = feed_below(f, 8);
    } else {
        uint32_t pieces = feed_byte(f);
        message.answer.pieces = pieces;
        message.answer.await = message.kind == HLG_MESSAGE_FENCED ? pieces / 64 % 3 : 0;
        message.answer.reason = message.kind == HLG_MESSAGE_FAILED ? feed_below(f, 8) : 0;
    }
    machine_feed_message(m, peer, &message);
}

static void immediate(struct world *w, struct feed *f)
{
    struct machine *m = &w->machine;
    uint32_t odd = feed_byte(f);
    struct hlg_event event = {.kind = HLG_EVENT_IMM,
                              .imm = {.imm = hlg_imm_make(feed_below(f, 9), feed_below(f, 4), 0),
                                      .pieces = 1 + feed_below(f, 64),
                                      .lane = feed_below(f, hlg_layout_lanes(&m->layout)),
                                      .rail = feed_below(f, m->rails),
                                      .domain = feed_below(f, 3)}};
    struct hlg_event_imm *imm = &event.imm;

    imm->immediates = imm->pieces;
    uint32_t *fields[] = {&imm->imm,  &imm->pieces, &imm->immediates,
                          &imm->lane, &imm->rail,   &imm->domain};
    if (odd < sizeof fields / sizeof fields[0]) {
        *fields[odd] = feed_u32(f);
    }
    machine_feed(m, &event);
}

static void engine(struct world *w, struct feed *f, uint32_t kind)
{
    struct hlg_event event = {.kind = kind, .request = pick(w, f)};

    if (machine_feed(&w->machine, &event) == 0 && kind == HLG_EVENT_RELEASE) {
        enum told *told = &w->told[(uint32_t)event.request % HANDLES_MAX];
        HLG_ASSERT(*told == TOLD_READY);
        *told = TOLD_NOTHING;
    }
}

static void step(struct world *w, struct feed *f)
{
    uint32_t what = feed_byte(f) % (MACHINE_COMMON + 10);

    if (what < MACHINE_COMMON) {
        machine_common(&w->machine, f, what);
        return;
    }
    switch (what - MACHINE_COMMON) {
    case 0:
    case 1:
        submit(w, f);
        return;
    case 2:
    case 3:
        answer(w, f);
        return;
    case 4:
    case 5:
    case 6:
        immediate(w, f);
        return;
    case 7:
        engine(w, f, HLG_EVENT_CANCEL);
        return;
    case 8:
        engine(w, f, HLG_EVENT_RELEASE);
        return;
    default:
        engine(w, f, HLG_EVENT_FLUSHED);
        return;
    }
}

/* Half of the prefillers host half of the ranks, so that both are needed. */
static void share_ranks(struct hlg_hello *hello, uint32_t peer)
{
    struct hlg_layout *layout = &hello->layout;
    uint32_t ranks = layout->tp * layout->stages;
    uint32_t lanes = layout->rank_limit - layout->rank_begin;

    if (hello->window_pieces % 2 == 0 && ranks % 2 == 0 && lanes == ranks) {
        layout->rank_begin = peer == 0 ? 0 : ranks / 2;
        layout->rank_limit = layout->rank_begin + ranks / 2;
        hello->address_count /= 2;
    }
}

/* Sessions with prefillers, so that not every input must find them first. */
static void greet(struct world *w, struct feed *f)
{
    struct machine *m = &w->machine;
    struct hlg_message hello;
    struct hlg_action action;

    for (uint32_t peer = 0; peer < m->limits.peers_max && peer < 2; peer++) {
        machine_feed(m, &(struct hlg_event){.kind = HLG_EVENT_CHANNEL_UP,
                                            .peer = {.peer = peer, .domain = peer}});
        machine_hello(f, HLG_ROLE_PREFILL, &hello);
        hello.hello.node += 10 * peer;
        share_ranks(&hello.hello, peer);
        machine_feed_message(m, peer, &hello);
        if (machine_next(m, 0, HLG_ACTION_PEER_OPEN, &action) != 0) {
            machine_feed_peer(m, HLG_EVENT_PEER_OPENED, action.peer, 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    struct feed f = {.next = data, .left = size};

    if (size > MACHINE_INPUT_MAX) {
        return 0;
    }
    memset(&w, 0, sizeof w);
    w.machine =
        (struct machine){.on_notice = on_notice, .context = &w, .node = 1, .incarnation = 9};
    machine_limits(&f, &w.machine.limits);
    machine_layout(feed_below(&f, MACHINE_LAYOUTS), &w.machine.layout);
    w.machine.rails = 1 + feed_below(&f, 2);
    machine_open(&w.machine, HLG_ROLE_DECODE, feed_byte(&f) >= 128);
    greet(&w, &f);
    while (f.left > 0) {
        step(&w, &f);
    }
    machine_close(&w.machine);
    return 0;
}
