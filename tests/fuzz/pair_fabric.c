/* Channels and the fabric of the world of fuzz_pair.c. */
#include "pair_world.h"

#include <halage/wire.h>

#include <stdlib.h>

void pair_on_write(void *context, struct machine *m, const struct hlg_action_write *write,
                   uint32_t taken);

/* ---- channels ----------------------------------------------------------------------------- */

static void drop_frames(struct connection *c, uint32_t end)
{
    for (uint32_t i = 0; i < c->frame_count[end]; i++) {
        free(c->frames[end][i].bytes);
    }
    c->frame_count[end] = 0;
}

void world_drop_frames(struct connection *c)
{
    drop_frames(c, 0);
    drop_frames(c, 1);
}

/* An entry whose both ends are closed and of which no piece is left. */
static void let_go(struct world *w, uint32_t index)
{
    struct connection *c = &w->connections[index];

    if (!c->used || c->open[0] || c->open[1]) {
        return;
    }
    for (uint32_t i = 0; i < w->piece_limit; i++) {
        struct piece *piece = &w->pieces[i];
        if (piece->used && piece->connection == index) {
            if (!c->closed || !piece->done) {
                return;
            }
            piece->used = false;
        }
    }
    drop_frames(c, 0);
    drop_frames(c, 1);
    c->used = false;
}

static uint32_t free_peer(const struct world *w, uint32_t side)
{
    for (uint32_t peer = 0; peer < w->machines[side].limits.peers_max; peer++) {
        if (w->machines[side].closing[peer]) {
            return HLG_NONE; /* its domain may be about to close */
        }
    }
    for (uint32_t peer = 0; peer < w->machines[side].limits.peers_max; peer++) {
        if (w->connection_of[side][peer] == 0) {
            return peer;
        }
    }
    return HLG_NONE;
}

void world_connect(struct world *w, uint32_t decode, uint32_t prefill, uint32_t domain)
{
    const uint32_t sides[2] = {decode, prefill};
    uint32_t index = 0;

    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        let_go(w, i);
    }
    while (index < CONNECTIONS_MAX && w->connections[index].used) {
        index++;
    }
    if (index == CONNECTIONS_MAX || free_peer(w, decode) == HLG_NONE ||
        free_peer(w, prefill) == HLG_NONE) {
        return;
    }
    struct connection *c = &w->connections[index];
    *c = (struct connection){.used = true};
    for (uint32_t end = 0; end < 2; end++) {
        uint32_t peer = free_peer(w, sides[end]);
        c->side[end] = sides[end];
        c->life[end] = w->lives[sides[end]];
        c->peer[end] = peer;
        c->domain[end] = (domain >> end & 1) != 0 ? 0 : peer;
        c->open[end] = true;
        w->connection_of[sides[end]][peer] = index + 1;
        HLG_ASSERT(machine_feed(&w->machines[sides[end]],
                                &(struct hlg_event){.kind = HLG_EVENT_CHANNEL_UP,
                                                    .peer = {.peer = peer,
                                                             .domain = c->domain[end],
                                                             .dialled = end == 0}}) == 0);
    }
}

static uint32_t end_of(uint32_t side)
{
    return side < DECODERS ? 0 : 1;
}

/* Remember which request a slot and generation stand for, as the decoder says it. */
static void learn_slot(struct world *w, uint32_t side, const struct hlg_request_message *request)
{
    HLG_ASSERT(request->slot < SLOTS_MAX && request->generation < GENERATIONS_MAX);
    for (uint32_t i = w->record_count; i > 0; i--) {
        const struct record *r = &w->records[i - 1];
        if (r->side == side && r->life == w->lives[side] &&
            r->pages[0] == request->groups[0].pages) {
            w->by_slot[side][request->slot][request->generation] = i;
            return;
        }
    }
    hlg_unreachable(); /* a REQUEST of nobody */
}

/* Whether the channel took it. */
static bool send_frame(struct world *w, uint32_t side, struct hlg_action_send *send)
{
    static struct hlg_rail_address addresses[8];
    struct connection *c = &w->connections[w->connection_of[side][send->peer] - 1];
    uint32_t to = 1 - end_of(side);

    if (c->frame_count[to] == FRAMES_MAX) {
        c->stuck[1 - to] = true;
        return false;
    }
    if (send->message.kind == HLG_MESSAGE_HELLO) {
        const struct machine *m = &w->machines[side];
        for (uint32_t i = 0; i < 8; i++) {
            addresses[i] = (struct hlg_rail_address){.bytes = 1};
        }
        send->message.hello.address_count = hlg_layout_lanes(&m->layout) * m->rails;
        send->message.hello.addresses = addresses;
    } else if (send->message.kind == HLG_MESSAGE_REQUEST) {
        learn_slot(w, side, &send->message.request);
    }
    uint64_t bytes = hlg_wire_bytes(&send->message);
    uint8_t *frame = malloc(bytes);
    HLG_ASSERT(frame != NULL);
    HLG_ASSERT(hlg_wire_encode(&send->message, frame, bytes) == (int64_t)bytes);
    if (!c->open[to]) { /* into the void */
        free(frame);
        return true;
    }
    c->frames[to][c->frame_count[to]++] = (struct frame){.bytes = frame, .count = (uint32_t)bytes};
    return true;
}

static bool deliver_one(struct world *w, struct connection *c, uint32_t end)
{
    uint32_t side = c->side[end];

    if (!c->used || !c->open[end] || c->eof[end]) {
        return false;
    }
    struct machine *m = &w->machines[side];
    if (c->frame_count[end] == 0) {
        if (c->open[1 - end]) {
            return false;
        }
        c->eof[end] = true;
        machine_feed_peer(m, HLG_EVENT_PEER_DOWN, c->peer[end], -HLG_EPEER);
        return true;
    }
    struct frame frame = c->frames[end][0];
    c->frame_count[end]--;
    memmove(&c->frames[end][0], &c->frames[end][1], c->frame_count[end] * sizeof frame);
    bool well = machine_feed_bytes(m, c->peer[end], frame.bytes, frame.count);
    HLG_ASSERT(well);
    free(frame.bytes);
    if (c->stuck[1 - end] && c->open[1 - end]) {
        c->stuck[1 - end] = false;
        machine_feed_peer(&w->machines[c->side[1 - end]], HLG_EVENT_SEND_ROOM, c->peer[1 - end], 0);
    }
    return true;
}

bool world_deliver(struct world *w, uint32_t from, uint32_t count)
{
    struct connection *c = &w->connections[from / 2 % CONNECTIONS_MAX];
    bool moved = false;

    while (count > 0 && deliver_one(w, c, from % 2)) {
        moved = true;
        count--;
    }
    return moved;
}

/* A connection breaks: what is under way on it is lost, and both ends hear of it. */
void world_break(struct world *w, uint32_t connection)
{
    struct connection *c = &w->connections[connection % CONNECTIONS_MAX];

    for (uint32_t end = 0; c->used && end < 2; end++) {
        drop_frames(c, end);
        if (c->open[end] && !c->eof[end]) {
            c->eof[end] = true;
            machine_feed_peer(&w->machines[c->side[end]], HLG_EVENT_PEER_DOWN, c->peer[end],
                              -HLG_EPEER);
        }
    }
}

/* ---- carrying ----------------------------------------------------------------------------- */

static void carry(struct world *w, uint32_t side, struct hlg_action *action)
{
    struct machine *m = &w->machines[side];

    switch ((enum hlg_action_kind)action->kind) {
    case HLG_ACTION_SEND:
        if (!send_frame(w, side, &action->send)) {
            machine_feed_peer(m, HLG_EVENT_SEND_REFUSED, action->send.peer, 0);
        }
        return;
    case HLG_ACTION_PEER_OPEN:
        HLG_ASSERT(machine_feed_peer(m, HLG_EVENT_PEER_OPENED, action->peer, 0) == 0);
        return;
    case HLG_ACTION_PEER_CLOSE:
        m->closing[action->close.peer] = true;
        return;
    case HLG_ACTION_FLUSH:
        machine_feed(
            m, &(struct hlg_event){.kind = HLG_EVENT_FLUSHED, .request = action->flush.request});
        return;
    case HLG_ACTION_NOTE:
        return; /* of the step that the pull itself was */
    case HLG_ACTION_WRITE:
    case HLG_ACTION_NOTICE:
        break;
    }
    hlg_unreachable(); /* notices were pulled */
}

bool world_carry(struct world *w, uint32_t side, uint32_t count)
{
    struct hlg_action action;
    bool moved = false;

    for (uint32_t i = 0; i <= count; i++) {
        if (machine_next(&w->machines[side], 0, HLG_ACTIONS_NODE, &action) == 0) {
            break;
        }
        carry(w, side, &action);
        moved = true;
    }
    return moved;
}

static void close_peer(struct world *w, uint32_t side, uint32_t peer, int32_t status)
{
    uint32_t end = end_of(side);
    uint32_t index = w->connection_of[side][peer] - 1;
    struct connection *c = &w->connections[index];

    for (uint32_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *other = &w->connections[i];
        if (end == 0 && status == 0 && other->used && other->side[0] == side &&
            other->life[0] == w->lives[side] && other->domain[0] == c->domain[0] &&
            (i == index || w->machines[side].closing[other->peer[0]])) {
            other->closed = true; /* nothing lands there any more */
        }
    }
    for (uint32_t i = 0; end == 1 && i < w->piece_limit; i++) {
        struct piece *piece = &w->pieces[i];
        if (piece->used && piece->connection == index) {
            piece->done = true; /* reported as failed below; it may land all the same */
        }
    }
    c->open[end] = false;
    w->connection_of[side][peer] = 0;
    machine_closed(&w->machines[side], peer, end == 0 ? status : 0);
    let_go(w, index);
}

void world_close(struct world *w, uint32_t side, int32_t status)
{
    for (uint32_t peer = 0; peer < MACHINE_PEERS_MAX; peer++) {
        if (w->machines[side].closing[peer]) {
            close_peer(w, side, peer, status);
        }
    }
}

/* ---- the fabric --------------------------------------------------------------------------- */

bool world_writes(struct world *w, uint32_t side, uint32_t lane, struct feed *f)
{
    struct machine *m = &w->machines[side];
    bool moved = false;

    lane %= hlg_layout_lanes(&m->layout);
    for (uint32_t rail = 0; rail < m->rails; rail++) {
        machine_feed(m, &(struct hlg_event){.kind = HLG_EVENT_ROOM, .room = {lane, rail}});
    }
    while (machine_write(m, lane, f)) {
        moved = true;
    }
    return moved;
}

static uint32_t position_of(const struct record *r, uint32_t group, uint32_t page)
{
    for (uint32_t i = 0; i < r->counts[group]; i++) {
        if (r->pages[group][i] == page) {
            return i;
        }
    }
    hlg_unreachable(); /* a page that was not asked for */
}

/* The source page must be the one that the engine gave for the same position. */
static void expect_source(const struct world *w, uint32_t side, const struct piece *piece,
                          uint32_t source_page)
{
    const struct machine *m = &w->machines[side];
    const struct asked *asked = &w->asked[side][m->prefill->ops[piece->op].request % REQUESTS_MAX];
    uint32_t at = piece->position + asked->first[piece->slice.group];

    HLG_ASSERT(asked->handle != 0 && asked->admitted && !asked->stopping);
    HLG_ASSERT(asked->record == piece->record && at < asked->counts[piece->slice.group]);
    HLG_ASSERT(asked->pages[piece->slice.group][at] == source_page);
}

static struct piece *new_piece(struct world *w)
{
    for (uint32_t i = 0; i < w->piece_limit; i++) {
        if (!w->pieces[i].used) {
            return &w->pieces[i];
        }
    }
    HLG_ASSERT(w->piece_limit < PIECES_MAX); /* windows bound what is under way */
    return &w->pieces[w->piece_limit++];
}

void pair_on_write(void *context, struct machine *m, const struct hlg_action_write *write,
                   uint32_t taken)
{
    struct world *w = context;
    uint32_t side = (uint32_t)(m - w->machines);
    uint32_t index = w->connection_of[side][write->peer] - 1;
    struct connection *c = &w->connections[index];
    bool alive = c->life[0] == w->lives[c->side[0]];
    uint32_t slot = hlg_imm_slot(write->imm);
    uint32_t generation = hlg_imm_generation(write->imm);

    for (uint32_t i = write->piece_begin; i < write->piece_begin + taken; i++) {
        struct piece *piece = new_piece(w);
        uint32_t at = i / write->slice->count;
        *piece = (struct piece){.used = true,
                                .from = side,
                                .life = w->lives[side],
                                .connection = index,
                                .op = write->op,
                                .record = NO_RECORD,
                                .imm = write->imm,
                                .lane = write->target_lane,
                                .rail = write->target_rail,
                                .layer = write->layer,
                                .page = write->target_pages[at],
                                .run = i % write->slice->count,
                                .slice = *write->slice};
        if (alive) {
            piece->record = w->by_slot[c->side[0]][slot][generation] - 1;
            const struct record *r = &w->records[piece->record];
            HLG_ASSERT(piece->record < w->record_count);
            piece->position = position_of(r, piece->slice.group, piece->page);
            expect_source(w, side, piece, write->source_pages[at]);
        }
    }
}

static void finish(struct piece *piece, bool closed)
{
    if (piece->done && (closed || piece->counted)) {
        piece->used = false;
    }
}

bool world_place(struct world *w, struct piece *piece)
{
    struct connection *c = &w->connections[piece->connection];

    if (piece->placed || c->closed) {
        return false;
    }
    piece->placed = true;
    HLG_ASSERT(piece->record <
               w->record_count); /* its decoder lives, or the connection is closed */
    struct record *r = &w->records[piece->record];
    /* I1: whatever happened, the page is still of the request that it was asked for. */
    HLG_ASSERT(r->state == RECORD_OPEN || r->state == RECORD_FAILED || r->state == RECORD_POISONED);
    const struct machine *m = &w->machines[r->side];
    const struct hlg_slice *s = &piece->slice;
    uint32_t ranks = hlg_layout_ranks(&m->layout);
    HLG_ASSERT(piece->lane == r->pool * ranks + s->target_rank);
    uint32_t offset = s->target_offset + piece->run * s->target_stride;
    HLG_ASSERT(offset + s->bytes <= 16);
    for (uint32_t b = 0; b < s->bytes; b++) {
        r->marks[s->group][piece->position][piece->layer][s->plane][s->target_rank][offset + b]++;
    }
    return true;
}

bool world_count(struct world *w, struct piece *piece)
{
    struct connection *c = &w->connections[piece->connection];

    if (!piece->placed || piece->counted || c->closed) {
        finish(piece, c->closed);
        return false;
    }
    piece->counted = true;
    struct hlg_event event = {.kind = HLG_EVENT_IMM,
                              .imm = {.imm = piece->imm,
                                      .pieces = 1,
                                      .immediates = 1,
                                      .lane = piece->lane,
                                      .rail = piece->rail,
                                      .domain = c->domain[0]}};
    finish(piece, false);
    HLG_ASSERT(machine_feed(&w->machines[c->side[0]], &event) == 0);
    return true;
}

bool world_complete(struct world *w, struct piece *piece, bool well)
{
    struct connection *c = &w->connections[piece->connection];

    if (piece->done || (well && !piece->placed && !w->acknowledged)) {
        finish(piece, c->closed);
        return false;
    }
    piece->done = true;
    struct piece old = *piece;
    finish(piece, c->closed);
    machine_done(&w->machines[old.from], old.op, well ? 1 : 0, well ? 0 : 1);
    return true;
}
