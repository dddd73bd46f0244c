/* Making, engines and ends of the world of fuzz_pair.c; channels and fabric are in pair_fabric.c. */
#include "pair_world.h"

#define SETTLE_ROUNDS 64u
#define RUSH_STEPS    32u

static void on_notice(void *context, struct machine *m, const struct hlg_notice *notice);
void pair_on_write(void *context, struct machine *m, const struct hlg_action_write *write,
                   uint32_t taken);

static uint32_t side_of(const struct world *w, const struct machine *m)
{
    return (uint32_t)(m - w->machines);
}

/* ---- making ------------------------------------------------------------------------------- */

static void start(struct world *w, uint32_t side)
{
    struct machine *m = &w->machines[side];

    m->incarnation = 100 * (side + 1) + w->lives[side];
    machine_open(m, side < DECODERS ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL, w->flush);
}

void world_open(struct world *w, struct feed *f)
{
    hlg_time now = HLG_NS_PER_S;
    uint32_t shape = feed_byte(f);
    uint32_t split = feed_byte(f);

    memset(w, 0, offsetof(struct world, records)); /* the rest is cleared as it is used */
    w->flush = split % 4 == 3;
    w->split = split >= 128;
    w->acknowledged = shape >= 128;
    for (uint32_t side = 0; side < SIDES; side++) {
        struct machine *m = &w->machines[side];
        *m = (struct machine){.node = 10 + side,
                              .now = now,
                              .acknowledged = w->acknowledged,
                              .on_notice = on_notice,
                              .on_write = pair_on_write,
                              .context = w};
        machine_limits(f, &m->limits);
        m->limits.peers_max = hlg_max_u32(2, m->limits.peers_max);
        m->rails = 1 + (shape >> side & 1);
        /* Even shapes go with even ones. */
        uint32_t index = side < DECODERS ? shape : shape / 6 * 6 + split;
        index = index % 3 * 2 + shape % 2;
        machine_layout(index, &m->layout);
        if (side >= DECODERS && w->split) { /* the prefillers share the ranks of one layout */
            machine_layout(2 + shape % 2, &m->layout);
            m->layout.pools = 1;
            m->layout.rank_begin = side - DECODERS;
            m->layout.rank_limit = m->layout.rank_begin + 1;
        }
        if (w->split) {
            m->limits.sources_max = 2;
        }
        start(w, side);
    }
    for (uint32_t decode = 0; decode < DECODERS; decode++) {
        for (uint32_t prefill = 0; prefill < PREFILLERS; prefill++) {
            world_connect(w, decode, DECODERS + prefill, split / 4 % 4);
        }
    }
    world_rush(w, 1);
}

void world_fini(struct world *w)
{
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        world_drop_frames(&w->connections[i]);
    }
    for (uint32_t side = 0; side < SIDES; side++) {
        machine_close(&w->machines[side]);
    }
}

void world_restart(struct world *w, uint32_t side)
{
    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &w->connections[i];
        const uint32_t end = side < DECODERS ? 0 : 1;
        if (c->used && c->side[end] == side && c->life[end] == w->lives[side]) {
            c->open[end] = false;
            c->eof[end] = true;
            c->closed = c->closed || end == 0;
        }
    }
    for (uint32_t i = 0; i < w->piece_limit; i++) {
        w->pieces[i].done = w->pieces[i].done || w->pieces[i].from == side;
    }
    for (uint32_t i = 0; i < w->record_count; i++) {
        if (w->records[i].side == side) {
            w->records[i].state = RECORD_GONE;
        }
    }
    machine_close(&w->machines[side]);
    struct machine *m = &w->machines[side];
    memset(m->closing, 0, sizeof m->closing);
    memset(m->outstanding, 0, sizeof m->outstanding);
    memset(w->connection_of[side], 0, sizeof w->connection_of[side]);
    memset(w->asked[side], 0, sizeof w->asked[side]);
    memset(w->lent[side], 0, sizeof w->lent[side]);
    if (side < DECODERS) {
        memset(w->by_slot[side], 0, sizeof w->by_slot[side]);
    }
    w->forward[side] = 0;
    w->lives[side]++;
    start(w, side);
}

/* ---- pages -------------------------------------------------------------------------------- */

/* The last pages given back go out first, so that whatever comes late finds somebody else's. */
static bool lend(struct world *w, uint32_t side, uint32_t pool, uint32_t group, uint32_t count,
                 uint32_t *pages)
{
    uint32_t limit = w->machines[side].layout.groups[group].page_count;
    uint32_t found = 0;

    for (uint32_t i = 0; i < limit && found < count; i++) {
        if (!w->lent[side][pool][group][i]) {
            pages[found++] = i;
        }
    }
    for (uint32_t i = 0; found == count && i < count; i++) {
        w->lent[side][pool][group][pages[i]] = true;
    }
    return found == count;
}

static void take_back(struct world *w, uint32_t side, uint32_t pool, const uint32_t *counts,
                      uint32_t (*pages)[LIST_PAGES_MAX])
{
    for (uint32_t g = 0; g < 2; g++) {
        for (uint32_t i = 0; i < counts[g]; i++) {
            HLG_ASSERT(w->lent[side][pool][g][pages[g][i]]); /* no page comes back twice */
            w->lent[side][pool][g][pages[g][i]] = false;
        }
    }
}

/* ---- the decoders' engines ---------------------------------------------------------------- */

static struct record *find_record(struct world *w, uint32_t side, hlg_handle handle)
{
    for (uint32_t i = w->record_count; i > 0; i--) {
        struct record *r = &w->records[i - 1];
        if (r->side == side && r->life == w->lives[side] && r->handle == handle) {
            return r;
        }
    }
    return NULL;
}

void world_submit(struct world *w, uint32_t side, uint32_t tokens, uint32_t pool, uint32_t first,
                  uint32_t random)
{
    struct machine *m = &w->machines[side];
    struct hlg_event event = {.kind = HLG_EVENT_SUBMIT};
    struct hlg_event_submit *s = &event.submit;

    if (w->record_count == RECORDS_MAX) {
        return;
    }
    struct record *r = &w->records[w->record_count];
    memset(r, 0, sizeof *r);
    *s = (struct hlg_event_submit){.pool = pool % m->layout.pools,
                                   .tokens = tokens,
                                   .random = random << 24,
                                   .ttl_ns = (1 + random % 8) * 5 * HLG_NS_PER_S};
    /* Either prefiller does alone, or both hold half of the ranks and both are needed. */
    uint32_t needed = w->split ? PREFILLERS : 1;
    for (uint32_t prefill = 0; prefill < PREFILLERS && s->source_count < needed; prefill++) {
        uint32_t which = w->split ? prefill : (prefill + random) % PREFILLERS;
        for (uint32_t peer = m->limits.peers_max; peer > 0; peer--) {
            uint32_t connection = w->connection_of[side][peer - 1];
            if (connection != 0 && w->connections[connection - 1].side[1] == DECODERS + which) {
                s->peers[s->source_count++] = peer - 1;
                break;
            }
        }
    }
    if (s->source_count < needed) {
        return;
    }
    r->side = side;
    r->life = w->lives[side];
    r->tokens = tokens;
    r->pool = s->pool;
    for (uint32_t g = 0; g < m->layout.group_count; g++) {
        uint32_t all = hlg_layout_pages(&m->layout, g, tokens - 1);
        r->first[g] = m->layout.groups[g].kind == HLG_GROUP_CONTEXT ? 0 : first % (all + 1);
        if (!lend(w, side, r->pool, g, all - r->first[g], r->pages[g])) {
            take_back(w, side, r->pool, r->counts, r->pages);
            return;
        }
        r->counts[g] = all - r->first[g];
        s->groups[g] = (struct hlg_page_list){
            .count = r->counts[g], .first = r->first[g], .pages = r->pages[g]};
    }
    r->state = RECORD_OPEN;
    /* Notices come before the handle is known here: those of this event are about it. */
    r->handle = 0;
    w->record_count++;
    if (machine_feed(m, &event) != 0) {
        w->record_count--;
        take_back(w, side, r->pool, r->counts, r->pages);
        return;
    }
    r->handle = hlg_decode_submitted(m->decode);
}

static bool rank_holds(const struct hlg_layout *layout, uint32_t group, uint32_t rank,
                       uint32_t layer)
{
    uint32_t stage = rank / layout->tp;

    if (layout->groups[group].kind == HLG_GROUP_CONTEXT) {
        return layer == layout->layers && stage + 1 == layout->stages;
    }
    return layer < layout->layers && layer >= hlg_layout_layer_begin(layout, stage) &&
           layer < layout->stage_limit[stage];
}

static void expect_whole(const struct world *w, const struct record *r)
{
    const struct hlg_layout *layout = &w->machines[r->side].layout;

    for (uint32_t g = 0; g < layout->group_count; g++) {
        uint32_t bytes = hlg_layout_page_bytes(layout, g);
        for (uint32_t i = 0; i < r->counts[g] * 3 * 2 * 4; i++) {
            uint32_t rank = i % 4;
            uint32_t plane = i / 4 % 2;
            uint32_t layer = i / 8 % 3;
            bool due = r->tokens > 1 && rank < hlg_layout_ranks(layout) &&
                       plane < layout->groups[g].planes && rank_holds(layout, g, rank, layer);
            for (uint32_t b = 0; b < 16; b++) {
                HLG_ASSERT(r->marks[g][i / 24][layer][plane][rank][b] == (due && b < bytes));
            }
        }
    }
}

static void on_decode_notice(struct world *w, uint32_t side, const struct hlg_notice *notice)
{
    if (notice->request == 0) {
        return;
    }
    struct record *r = find_record(w, side, notice->request);
    if (r == NULL) { /* of the SUBMIT that is being handled */
        r = find_record(w, side, 0);
        HLG_ASSERT(r != NULL);
    }
    switch (notice->kind) {
    case HLG_NOTICE_READY:
        HLG_ASSERT(r->state == RECORD_OPEN && notice->pieces_counted == notice->pieces_expected);
        expect_whole(w, r);
        r->state = RECORD_READY;
        return;
    case HLG_NOTICE_FAILED:
        HLG_ASSERT(r->state == RECORD_OPEN);
        r->state = RECORD_FAILED;
        return;
    case HLG_NOTICE_RETURNED:
        HLG_ASSERT(r->state == RECORD_FAILED);
        r->state = RECORD_GONE;
        take_back(w, side, r->pool, r->counts, r->pages);
        return;
    case HLG_NOTICE_POISONED:
        HLG_ASSERT(r->state == RECORD_FAILED);
        r->state = RECORD_POISONED;
        return;
    default:
        HLG_ASSERT(notice->kind == HLG_NOTICE_ACCEPTED && r->state == RECORD_OPEN);
        return;
    }
}

void world_decode_call(struct world *w, uint32_t record, uint32_t kind)
{
    struct record *r = &w->records[record];

    if (r->life != w->lives[r->side]) {
        return;
    }
    bool was_ready = r->state == RECORD_READY;
    int result = machine_feed(&w->machines[r->side],
                              &(struct hlg_event){.kind = kind, .request = r->handle});
    if (kind == HLG_EVENT_RELEASE) {
        HLG_ASSERT((result == 0) == was_ready);
    }
    if (kind == HLG_EVENT_RELEASE && result == 0) {
        r->state = RECORD_GONE;
        take_back(w, r->side, r->pool, r->counts, r->pages);
    }
}

/* ---- the prefillers' engines -------------------------------------------------------------- */

static void on_prefill_notice(struct world *w, uint32_t side, const struct hlg_notice *notice)
{
    struct asked *asked = &w->asked[side][(uint32_t)notice->request % REQUESTS_MAX];
    const struct hlg_request_message *message = notice->message;

    if (notice->kind == HLG_NOTICE_REQUESTED) {
        const struct connection *c = &w->connections[w->connection_of[side][notice->peer] - 1];
        bool alive = c->life[0] == w->lives[c->side[0]];
        HLG_ASSERT(asked->handle == 0);
        *asked = (struct asked){
            .handle = notice->request, .tokens = message->tokens, .record = NO_RECORD};
        HLG_ASSERT(message->slot < SLOTS_MAX && message->generation < GENERATIONS_MAX);
        if (alive) {
            asked->record = w->by_slot[c->side[0]][message->slot][message->generation] - 1;
            HLG_ASSERT(asked->record < w->record_count);
        }
        for (uint32_t g = 0; g < message->group_count; g++) {
            asked->first[g] = message->groups[g].first;
        }
    } else if (notice->kind == HLG_NOTICE_STOPPING) {
        HLG_ASSERT(asked->handle == notice->request && !asked->stopping);
        asked->stopping = true;
    } else if (notice->kind == HLG_NOTICE_SENT || notice->kind == HLG_NOTICE_FENCED ||
               notice->kind == HLG_NOTICE_POISONED) {
        HLG_ASSERT(asked->handle == notice->request);
        HLG_ASSERT(asked->stopping == (notice->kind != HLG_NOTICE_SENT));
        if (notice->kind != HLG_NOTICE_POISONED) { /* else nobody uses them again */
            take_back(w, side, asked->pool, asked->counts, asked->pages);
        }
        *asked = (struct asked){0};
    }
}

static void on_notice(void *context, struct machine *m, const struct hlg_notice *notice)
{
    struct world *w = context;

    if (m->role == HLG_ROLE_DECODE) {
        on_decode_notice(w, side_of(w, m), notice);
    } else {
        on_prefill_notice(w, side_of(w, m), notice);
    }
}

void world_admit(struct world *w, uint32_t side, struct asked *asked, uint32_t cached)
{
    struct machine *m = &w->machines[side];
    struct hlg_event event = {.kind = HLG_EVENT_ADMIT};

    if (asked->handle == 0 || asked->admitted || asked->stopping) {
        return;
    }
    hlg_handle handle = asked->handle;
    event.admit.request = handle;
    event.admit.pool = cached % m->layout.pools;
    event.admit.cached_tokens = cached < 192 ? 0 : cached % asked->tokens;
    for (uint32_t g = 0; g < m->layout.group_count; g++) {
        uint32_t count = hlg_layout_pages(&m->layout, g, asked->tokens - 1);
        if (!lend(w, side, event.admit.pool, g, count, asked->pages[g])) {
            take_back(w, side, event.admit.pool, asked->counts, asked->pages);
            memset(asked->counts, 0, sizeof asked->counts);
            return;
        }
        asked->counts[g] = count;
        event.admit.groups[g] = (struct hlg_page_list){.count = count, .pages = asked->pages[g]};
    }
    asked->pool = event.admit.pool;
    int result = machine_feed(m, &event);
    if (result != 0) { /* no chunk for the cached tokens, or a context is due and all is cached */
        HLG_ASSERT(asked->handle == handle);
        take_back(w, side, asked->pool, asked->counts, asked->pages);
        memset(asked->counts, 0, sizeof asked->counts);
    } else if (asked->handle == handle) {
        asked->admitted = true;
        asked->announced = event.admit.cached_tokens;
    }
}

void world_chunk(struct world *w, uint32_t side, struct asked *asked, uint32_t count)
{
    if (asked->handle == 0 || !asked->admitted || asked->stopping ||
        asked->announced + 1 >= asked->tokens) {
        return;
    }
    uint32_t left = asked->tokens - 1 - asked->announced;
    hlg_handle handle = asked->handle;
    struct hlg_event event = {.kind = HLG_EVENT_CHUNK,
                              .chunk = {.request = handle,
                                        .forward = w->forward[side] + (count % 4 != 0),
                                        .token_begin = asked->announced,
                                        .token_count = count < 64 ? 1 + count % left : left}};
    event.chunk.forward = hlg_max_u32(1, event.chunk.forward);
    if (machine_feed(&w->machines[side], &event) == 0) {
        w->forward[side] = event.chunk.forward;
        if (asked->handle == handle) {
            asked->announced += event.chunk.token_count;
        }
    }
}

void world_layer(struct world *w, uint32_t side, uint32_t word)
{
    const struct hlg_layout *layout = &w->machines[side].layout;

    machine_feed(&w->machines[side],
                 &(struct hlg_event){.kind = HLG_EVENT_LAYER,
                                     .layer = {.word = word % hlg_prefill_words(layout),
                                               .value = w->forward[side] << 8 | (word / 8 % 4)}});
}

void world_forward_over(struct world *w, uint32_t side, uint32_t kind)
{
    if (w->forward[side] > 0) {
        machine_feed(&w->machines[side],
                     &(struct hlg_event){.kind = kind, .forward = w->forward[side]});
    }
}

void world_give_up(struct world *w, uint32_t side, struct asked *asked, uint32_t how)
{
    struct hlg_event event = {.kind = HLG_EVENT_CANCEL, .request = asked->handle};

    if (asked->handle == 0 || asked->stopping) {
        return;
    }
    if (how % 2 == 0 && !asked->admitted) {
        event = (struct hlg_event){.kind = HLG_EVENT_REJECT, .reject = {.request = asked->handle}};
        HLG_ASSERT(machine_feed(&w->machines[side], &event) == 0);
        *asked = (struct asked){0};
        return;
    }
    HLG_ASSERT(machine_feed(&w->machines[side], &event) == 0);
}

/* ---- all goes well ------------------------------------------------------------------------ */

void world_advance(struct world *w, hlg_time span)
{
    for (uint32_t side = 0; side < SIDES; side++) {
        w->machines[side].now += span;
        machine_feed(&w->machines[side], &(struct hlg_event){.kind = HLG_EVENT_TIME});
    }
}

static bool serve(struct world *w, uint32_t side)
{
    bool moved = false;

    for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
        struct asked *asked = &w->asked[side][i];
        uint32_t announced = asked->announced;
        bool admitted = asked->admitted;
        world_admit(w, side, asked, 0);
        world_chunk(w, side, asked, 255);
        moved = moved || asked->announced != announced || asked->admitted != admitted;
    }
    world_forward_over(w, side, HLG_EVENT_FORWARD_END);
    return moved;
}

static bool move_pieces(struct world *w)
{
    bool moved = false;

    for (uint32_t i = 0; i < w->piece_limit; i++) {
        struct piece *piece = &w->pieces[i];
        if (piece->used) {
            moved = world_place(w, piece) || moved;
        }
        if (piece->used) {
            moved = world_count(w, piece) || moved;
        }
        if (piece->used) {
            moved = world_complete(w, piece, piece->placed) || moved;
        }
    }
    return moved;
}

static bool move_all(struct world *w)
{
    struct feed calm = {0};
    bool moved = false;

    for (uint32_t side = 0; side < SIDES; side++) {
        moved = world_carry(w, side, 64) || moved;
        world_close(w, side, 0);
        for (uint32_t lane = 0; side >= DECODERS && lane < 4; lane++) {
            moved = world_writes(w, side, lane, &calm) || moved;
        }
    }
    for (uint32_t i = 0; i < 2 * CONNECTIONS_MAX; i++) {
        moved = world_deliver(w, i, FRAMES_MAX) || moved;
    }
    return move_pieces(w) || moved;
}

void world_rush(struct world *w, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t step = 0; step < RUSH_STEPS && move_all(w); step++) {
        }
        for (uint32_t side = DECODERS; side < SIDES; side++) {
            serve(w, side);
        }
    }
}

/* Nobody asks for more, and all that is asked is served or runs out of time. */
void world_settle(struct world *w)
{
    for (uint32_t round = 0; round < SETTLE_ROUNDS; round++) {
        uint32_t open = 0;
        world_rush(w, 2);
        for (uint32_t i = 0; i < w->record_count; i++) {
            if (w->records[i].state == RECORD_READY) {
                world_decode_call(w, i, HLG_EVENT_RELEASE);
            }
        }
        for (uint32_t side = 0; side < SIDES; side++) {
            struct machine *m = &w->machines[side];
            open += side < DECODERS ? hlg_decode_open(m->decode) : hlg_prefill_open(m->prefill);
        }
        if (open == 0) {
            break;
        }
        HLG_ASSERT(round + 1 < SETTLE_ROUNDS); /* something never ends */
        world_advance(w, 3 * HLG_NS_PER_S);
    }
    for (uint32_t i = 0; i < w->record_count; i++) {
        HLG_ASSERT(w->records[i].state == RECORD_GONE || w->records[i].state == RECORD_POISONED);
    }
}
