/*
 * From the GPU to the wire. Pieces of a write that fit a slot are one cargo: copied into the slot by the
 * GPU's stream, marked, and handed to the transport below as a paged write of their own when the mark
 * is reached. What it refuses is offered again at each poll, so that it notices a peer that is gone.
 */
#include "internal.h"

/* ---- cargos and slots ---- */

static struct cargo *cargo_take(struct staged_endpoint *e, const struct hlg_paged_write *w)
{
    if (e->cargo_free == HLG_NONE) {
        return NULL;
    }
    struct cargo *c = &e->cargos[e->cargo_free];
    HLG_ASSERT(c->state == CARGO_FREE);

    e->cargo_free = c->next;
    *c = (struct cargo){.state = CARGO_POSTED, .next = HLG_NONE, .op = w->op, .write = *w};
    c->write.op = (hlg_op_id)(c - e->cargos);
    return c;
}

static void cargo_give(struct staged_endpoint *e, struct cargo *c)
{
    HLG_ASSERT(c->state == CARGO_POSTED && c->outstanding == 0);
    if (c->gpu != NULL) {
        struct staged_peer *peer = &e->peers[c->write.peer];
        HLG_ASSERT(peer->slots > 0);
        peer->slots--;
        staged_slot_give(c->gpu, c->slot);
    }
    c->state = CARGO_FREE;
    c->next = e->cargo_free;
    e->cargo_free = (uint32_t)(c - e->cargos);
}

/* It is wholly taken. What failed below may be read out of its slot even now, as only a closed endpoint denies: so
 * that slot goes into no other cargo, or its bytes would go where these were meant to. */
static void cargo_over(struct staged_endpoint *e, struct cargo *c)
{
    const bool stranded = c->failed && c->gpu != NULL;

    if (c->state == CARGO_POSTED && c->outstanding == 0 && !stranded) {
        cargo_give(e, c);
    }
}

static void wait_append(struct staged_endpoint *e, struct cargo *c)
{
    const uint32_t index = (uint32_t)(c - e->cargos);

    c->next = HLG_NONE;
    if (e->wait_last == HLG_NONE) {
        e->wait_first = index;
    } else {
        e->cargos[e->wait_last].next = index;
    }
    e->wait_last = index;
    e->peers[c->write.peer].waiting++;
}

static void wait_over(struct staged_endpoint *e, const struct cargo *c)
{
    struct staged_peer *peer = &e->peers[c->write.peer];

    HLG_ASSERT(peer->waiting > 0);
    peer->waiting--;
    if (peer->closing && peer->waiting == 0) {
        peer->closing = false;
        (void)e->below->ops->peer_close(e->below, c->write.peer);
    }
}

/* Pieces that may still be taken for a peer: a quarter of all are for one, so that a dead one stops no
 * other. */
static uint32_t room_for(const struct staged_endpoint *e, uint32_t peer)
{
    const uint32_t most = e->staged->caps.pieces_max;
    const uint32_t each = hlg_max_u32(1, most / 4);

    HLG_ASSERT(e->pieces <= most && e->peers[peer].pieces <= each);
    return hlg_min_u32(most - e->pieces, each - e->peers[peer].pieces);
}

static void pieces_begin(struct staged_endpoint *e, uint32_t peer, uint32_t pieces)
{
    e->pieces += pieces;
    e->peers[peer].pieces += pieces;
}

static void pieces_end(struct staged_endpoint *e, uint32_t number, uint32_t pieces)
{
    struct staged_peer *peer = &e->peers[number];

    HLG_ASSERT(pieces <= e->pieces && pieces <= peer->pieces);
    e->pieces -= pieces;
    peer->pieces -= pieces;
    peer->refused_first = HLG_TIME_NEVER;
}

/* ---- from the GPU ---- */

static bool is_inside(const struct hlg_mem_region *region, const uint8_t *source, uint32_t bytes)
{
    const uintptr_t offset = (uintptr_t)source - (uintptr_t)region->base;

    return offset < region->bytes && bytes <= region->bytes - offset;
}

/* Pieces from `index` on that fit one slot and lie within the region. */
static uint32_t pieces_of_slot(const struct staged_endpoint *e, const struct staged_mem *mem,
                               const struct hlg_paged_write *w, uint32_t index)
{
    const uint32_t most = hlg_min_u32(STAGED_PIECES_MAX, e->staged->config.slot_bytes / w->bytes);
    const uint32_t limit = index + hlg_min_u32(most, w->piece_limit - index);
    uint32_t i = index;

    while (i < limit && is_inside(&mem->region, hlg_paged_write_source(w, i), w->bytes)) {
        i++;
    }
    return i - index;
}

/* Copy pieces [index, index + count) one after the other to `slot`; what lies together in one call. */
static int copy_pieces(struct staged_endpoint *e, struct staged_gpu *gpu,
                       const struct hlg_paged_write *w, uint32_t index, uint32_t count,
                       uint8_t *slot)
{
    const uint32_t limit = index + count;

    while (index < limit) {
        const uint8_t *from = hlg_paged_write_source(w, index);
        uint32_t run = 1;
        while (index + run < limit &&
               hlg_paged_write_source(w, index + run) == from + (uint64_t)run * w->bytes) {
            run++;
        }
        const int code = copier_out(gpu->out, slot, from, (uint64_t)run * w->bytes);
        if (code != 0) {
            return code;
        }
        slot += (uint64_t)run * w->bytes;
        index += run;
        e->staged->stats.copies_out++;
    }
    e->staged->stats.bytes_out += (uint64_t)count * w->bytes;
    return 0;
}

static int fill_slot(struct staged_endpoint *e, struct staged_gpu *gpu,
                     const struct hlg_paged_write *w, uint32_t index, uint32_t count, uint32_t slot)
{
    uint8_t *bytes = gpu->ring + (uint64_t)slot * e->staged->config.slot_bytes;
    int code = copier_begin(gpu->out);

    if (code == 0) {
        code = copy_pieces(e, gpu, w, index, count, bytes);
        code = code == 0 ? copier_mark(gpu->out, slot) : code;
        copier_end(gpu->out);
    }
    if (code != 0) {
        staged_copy_failed(e->staged, gpu, gpu->out);
        (void)copier_wait(gpu->out); /* the slot is used again, and the pages are given back */
    }
    return code;
}

/* Begin one cargo. Returns its pieces, 0 when there is no room, or an error. */
static int64_t load(struct staged_endpoint *e, const struct staged_mem *mem,
                    const struct hlg_paged_write *w, uint32_t index)
{
    struct staged_gpu *gpu = mem->gpu;
    struct hlg_staged *s = e->staged;
    const uint32_t fitting = pieces_of_slot(e, mem, w, index);
    const uint32_t count = hlg_min_u32(fitting, room_for(e, w->peer));

    if (fitting == 0) {
        return -HLG_EINVAL;
    }
    /* All endpoints of a GPU share its ring, and a node that died may be a peer of many: none gets more than a fifth of
       what the others left it, so that there is a slot for the next (Choudhury and Hahne, "Dynamic queue length
       thresholds for shared-memory packet switches", 1998). */
    if (count == 0 || e->cargo_free == HLG_NONE || e->peers[w->peer].slots * 4 >= gpu->free_count) {
        s->stats.waits += index == w->piece_begin;
        return 0;
    }
    const uint32_t slot = staged_slot_take(gpu);
    const int code = fill_slot(e, gpu, w, index, count, slot);
    if (code != 0) {
        staged_slot_give(gpu, slot);
        return code;
    }
    const uint32_t first_page = index / w->count;
    const uint32_t begin = index - first_page * w->count;
    struct cargo *c = cargo_take(e, w);
    uint8_t *bytes = gpu->ring + (uint64_t)slot * s->config.slot_bytes;
    /* Piece `begin` is the first in the slot: the address of piece 0 may lie before it. */
    c->write.local = (uint8_t *)((uintptr_t)bytes - (uint64_t)begin * w->bytes);
    c->write.local_stride = (uint64_t)w->count * w->bytes;
    c->write.mem = e->ring_mems[gpu - s->gpus];
    c->write.source_pages = s->identity;
    c->write.target_pages = w->target_pages + first_page;
    c->write.source_offset = 0;
    c->write.source_stride = w->bytes;
    c->write.piece_begin = begin;
    c->write.piece_limit = begin + count;
    c->state = CARGO_COPYING;
    c->gpu = gpu;
    c->slot = slot;
    e->peers[w->peer].slots++;
    pieces_begin(e, w->peer, count);
    wait_append(e, c);
    return count;
}

/* ---- write ---- */

static int check_write(const struct staged_endpoint *e, const struct hlg_paged_write *w)
{
    if (e->closed) {
        return -HLG_ESTATE;
    }
    if (w->mem >= STAGED_MEMS_MAX || !e->mems[w->mem].used) {
        return -HLG_EINVAL;
    }
    if (w->peer >= e->peer_count || !e->peers[w->peer].open || e->peers[w->peer].down) {
        return -HLG_EPEER;
    }
    const struct staged_mem *mem = &e->mems[w->mem];
    if (mem->gpu == NULL) {
        return 0; /* the transport below checks the rest */
    }
    return w->bytes == 0 || w->bytes > e->staged->config.slot_bytes || w->count == 0 ||
                   w->piece_begin >= w->piece_limit || mem->gpu->ring == NULL
               ? -HLG_EINVAL
               : 0;
}

static int64_t write_host(struct staged_endpoint *e, const struct hlg_paged_write *w)
{
    const uint32_t room = room_for(e, w->peer);
    struct cargo *c = room > 0 ? cargo_take(e, w) : NULL;

    if (c == NULL) {
        return 0;
    }
    c->write.mem = e->mems[w->mem].below;
    c->write.piece_limit = w->piece_begin + hlg_min_u32(room, w->piece_limit - w->piece_begin);
    const int64_t taken = e->below->ops->write(e->below, &c->write);
    if (taken <= 0) {
        cargo_give(e, c);
        return taken;
    }
    c->outstanding = hlg_u32((uint64_t)taken);
    pieces_begin(e, w->peer, c->outstanding);
    return taken;
}

/* As the transport below would, whose own peer may have a full window because of us. */
static void note_refusal(struct staged_endpoint *e, uint32_t number)
{
    const hlg_time stall_ns = e->staged->caps.stall_ns;
    struct staged_peer *peer = &e->peers[number];
    const hlg_time time = e->below->ops->now(e->below);

    if (peer->pieces == 0 && peer->slots == 0) {
        return; /* all is full of others' */
    }
    if (peer->refused_first == HLG_TIME_NEVER || time - peer->refused_last > stall_ns) {
        peer->refused_first = time;
    }
    peer->refused_last = time;
    if (time - peer->refused_first >= stall_ns) {
        peer->down = true;
        peer->down_untold = true;
        e->down_untold++;
    }
}

int64_t cargo_write(struct hlg_transport *t, const struct hlg_paged_write *w)
{
    struct staged_endpoint *e = staged_endpoint_of(t);
    const int invalid = check_write(e, w);
    uint32_t index = w->piece_begin;
    int64_t loaded = 0;

    if (invalid != 0) {
        return invalid;
    }
    const struct staged_mem *mem = &e->mems[w->mem];
    if (mem->gpu == NULL) {
        return write_host(e, w);
    }
    do {
        loaded = load(e, mem, w, index);
        index += loaded > 0 ? hlg_u32((uint64_t)loaded) : 0;
    } while (loaded > 0 && index < w->piece_limit);
    if (index > w->piece_begin) {
        e->peers[w->peer].refused_first = HLG_TIME_NEVER;
        return (int64_t)(index - w->piece_begin);
    }
    if (loaded == 0) {
        note_refusal(e, w->peer);
    }
    return loaded;
}

/* ---- poll ---- */

struct output {
    struct hlg_transport_event *events;
    uint32_t capacity;
    uint32_t filled;
};

static void report_down(struct staged_endpoint *e, struct output *out)
{
    for (uint32_t i = 0; e->down_untold > 0 && i < e->peer_count && out->filled < out->capacity;
         i++) {
        if (e->peers[i].down_untold) {
            e->peers[i].down_untold = false;
            e->down_untold--;
            out->events[out->filled++] =
                (struct hlg_transport_event){.kind = HLG_TRANSPORT_PEER_DOWN, .peer = i};
        }
    }
}

/* Whether its bytes are in the slot, or never will be. */
static bool is_loaded(struct staged_endpoint *e, struct cargo *c)
{
    if (c->state != CARGO_COPYING) {
        return true;
    }
    const int done = copier_done(c->gpu->out, c->slot);
    if (done == 0) {
        return false;
    }
    if (done < 0) {
        staged_copy_failed(e->staged, c->gpu, c->gpu->out);
        (void)copier_wait(c->gpu->out);
        c->doomed = c->doomed != 0 ? c->doomed : done;
    }
    c->state = CARGO_LOADED;
    return true;
}

/* Offer what is in the slot. Returns false when the transport below took less than all. */
static bool post(struct staged_endpoint *e, struct cargo *c)
{
    const int64_t taken = e->below->ops->write(e->below, &c->write);

    if (taken < 0) {
        c->doomed = (int32_t)taken;
        return true;
    }
    c->write.piece_begin += hlg_u32((uint64_t)taken);
    c->outstanding += hlg_u32((uint64_t)taken);
    return c->write.piece_begin == c->write.piece_limit;
}

/* Take a loaded cargo as far as it goes now. Returns whether it waits no more. */
static bool move_on(struct staged_endpoint *e, struct cargo *c, uint32_t *refused,
                    struct output *out)
{
    if (c->doomed == 0) {
        if (*refused == c->write.peer) {
            return false; /* it took nothing a moment ago */
        }
        if (!post(e, c)) {
            *refused = c->write.peer;
            return false;
        }
    }
    const uint32_t left = c->write.piece_limit - c->write.piece_begin;
    if (left > 0) {
        if (out->filled == out->capacity) {
            return false;
        }
        out->events[out->filled++] = (struct hlg_transport_event){
            .kind = HLG_TRANSPORT_DONE_WRITE,
            .done = {.op = c->op, .failed = left, .status = c->doomed}};
        pieces_end(e, c->write.peer, left);
        c->write.piece_begin = c->write.piece_limit;
    }
    return true;
}

static void advance(struct staged_endpoint *e, struct output *out)
{
    uint32_t before = HLG_NONE;
    uint32_t refused = HLG_NONE;
    uint32_t next = HLG_NONE;

    for (uint32_t i = e->wait_first; i != HLG_NONE; i = next) {
        struct cargo *c = &e->cargos[i];
        next = c->next;
        if (!is_loaded(e, c)) {
            return; /* those behind it are later in the same stream */
        }
        if (!move_on(e, c, &refused, out)) {
            before = i;
            continue;
        }
        if (before == HLG_NONE) {
            e->wait_first = next;
        } else {
            e->cargos[before].next = next;
        }
        e->wait_last = e->wait_last == i ? before : e->wait_last;
        c->state = CARGO_POSTED;
        wait_over(e, c);
        cargo_over(e, c);
    }
}

/* Make an event of the transport below one of ours. Returns false when it is none. */
static bool translate(struct staged_endpoint *e, struct hlg_transport_event *event)
{
    if (event->kind == HLG_TRANSPORT_PEER_DOWN) {
        const bool told = e->peers[event->peer].down;
        e->peers[event->peer].down = true;
        return !told;
    }
    if (event->kind != HLG_TRANSPORT_DONE_WRITE) {
        return true;
    }
    HLG_ASSERT(event->done.op < STAGED_CARGOS_MAX);
    struct cargo *c = &e->cargos[event->done.op];
    const uint32_t pieces = event->done.done + event->done.failed;
    HLG_ASSERT(c->state != CARGO_FREE && pieces <= c->outstanding);
    event->done.op = c->op;
    c->outstanding -= pieces;
    c->failed = c->failed || event->done.failed > 0;
    pieces_end(e, c->write.peer, pieces);
    cargo_over(e, c);
    return true;
}

int cargo_poll(struct hlg_transport *t, struct hlg_transport_event *events, uint32_t capacity)
{
    struct staged_endpoint *e = staged_endpoint_of(t);
    struct output out = {.events = events, .capacity = hlg_min_u32(capacity, INT32_MAX)};

    report_down(e, &out);
    advance(e, &out);
    if (out.filled == out.capacity) {
        return (int)out.filled;
    }
    const int count = e->below->ops->poll(e->below, events + out.filled, out.capacity - out.filled);
    const uint32_t begin = out.filled;
    for (int i = 0; i < count; i++) {
        struct hlg_transport_event *event = &events[begin + (uint32_t)i];
        if (translate(e, event)) {
            events[out.filled++] = *event;
        }
    }
    return (int)out.filled;
}

/* ---- ends ---- */

void cargo_doom(struct staged_endpoint *e, int32_t status)
{
    for (uint32_t i = e->wait_first; i != HLG_NONE; i = e->cargos[i].next) {
        struct cargo *c = &e->cargos[i];
        c->doomed = c->doomed != 0 ? c->doomed : status;
    }
}

void cargo_settle(struct staged_endpoint *e)
{
    for (uint32_t i = e->wait_first; i != HLG_NONE; i = e->cargos[i].next) {
        struct cargo *c = &e->cargos[i];
        if (c->state == CARGO_COPYING) {
            (void)copier_wait(c->gpu->out);
            c->state = CARGO_LOADED;
        }
    }
}
