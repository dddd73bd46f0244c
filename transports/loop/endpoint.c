/*
 * Endpoints: the operations of transport.h over the loop's tables.
 */
#include <string.h>

#include "internal.h"

#define ADDRESS_BYTES 32u

static const uint8_t address_magic[4] = {'l', 'o', 'o', 'p'};

static struct endpoint *endpoint_of(struct hlg_transport *t)
{
    return (struct endpoint *)t; /* transport is the first member */
}

static uint32_t slot_of(const struct endpoint *e)
{
    return hlg_u32((uint64_t)(e - e->loop->endpoints));
}

struct endpoint *endpoint_find(struct hlg_loop *loop, const struct place *place)
{
    struct endpoint *e = &loop->endpoints[place->slot];
    const bool same = e->self.serial == place->serial || loop->config.old_addresses;

    return e->state != ENDPOINT_FREE && same ? e : NULL;
}

void endpoint_query(const struct hlg_loop *loop, struct hlg_transport_caps *caps)
{
    memset(caps, 0, sizeof(*caps));
    memcpy(caps->provider, "loop", 4);
    caps->domains_max = loop->config.domains_max;
    caps->pieces_max = loop->config.pieces_max;
    caps->cq_depth = loop->config.cq_depth;
    caps->piece_bytes_max = loop->config.piece_bytes_max;
    caps->merge_bytes_max = hlg_min_u64(loop->config.merge_bytes_max, loop->config.piece_bytes_max);
    caps->placed = !loop->config.acknowledged;
    caps->pollable = false;
    caps->stall_ns = loop->config.stall_ns;
}

/* Timers stay: their happenings are in the schedule and find the peer as it then is. */
static void reset_peer(struct peer *peer)
{
    const uint32_t timers = peer->timers;

    memset(peer, 0, sizeof(*peer));
    peer->timers = timers;
    peer->refused_since = HLG_TIME_NEVER;
    peer->death = HLG_TIME_NEVER;
}

int endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                  struct hlg_transport **out)
{
    const struct node *node = (const struct node *)fabric; /* fabric is the first member */
    struct hlg_loop *loop = node->loop;
    const struct hlg_loop_config *config = &loop->config;
    uint32_t slot;
    uint32_t limit;

    if (lane >= config->lanes || rail >= config->rails) {
        return -HLG_EINVAL;
    }
    if (!node->alive) {
        return -HLG_ESTATE;
    }
    slot = ((node->index * config->lanes + lane) * config->rails + rail) * config->domains_max;
    limit = slot + config->domains_max;
    while (slot < limit && loop->endpoints[slot].state != ENDPOINT_FREE) {
        slot++;
    }
    if (slot == limit) {
        return -HLG_ELIMIT;
    }

    struct endpoint *e = &loop->endpoints[slot];

    HLG_ASSERT(e->unpolled == 0 && e->done_count == 0 && e->imm_count == 0);
    e->state = ENDPOINT_OPEN;
    e->self = (struct place){node->index, node->incarnation, lane, rail, slot, ++loop->serial};
    memset(e->regions, 0, config->regions_max * sizeof(*e->regions));
    for (uint32_t peer = 0; peer < config->peers_max; peer++) {
        reset_peer(&e->peers[peer]);
    }
    *out = &e->transport;
    return 0;
}

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    endpoint_query(((const struct endpoint *)t)->loop, caps);
}

static hlg_time now(struct hlg_transport *t)
{
    return endpoint_of(t)->loop->now;
}

static void put_number(uint8_t *bytes, uint64_t value, uint32_t count)
{
    for (uint32_t index = 0; index < count; index++) {
        bytes[index] = (uint8_t)((value >> (8 * index)) & 0xffu);
    }
}

static uint64_t get_number(const uint8_t *bytes, uint32_t count)
{
    uint64_t value = 0;

    for (uint32_t index = 0; index < count; index++) {
        value |= (uint64_t)bytes[index] << (8 * index);
    }
    return value;
}

static int address(struct hlg_transport *t, uint8_t *bytes, uint32_t capacity)
{
    const struct place *self = &endpoint_of(t)->self;

    if (capacity < ADDRESS_BYTES) {
        return -HLG_ELIMIT;
    }
    memcpy(bytes, address_magic, sizeof(address_magic));
    put_number(bytes + 4, self->node, 4);
    put_number(bytes + 8, self->incarnation, 4);
    put_number(bytes + 12, self->lane, 4);
    put_number(bytes + 16, self->rail, 4);
    put_number(bytes + 20, self->slot, 4);
    put_number(bytes + 24, self->serial, 8);
    return (int)ADDRESS_BYTES;
}

static bool read_address(const struct hlg_loop *loop, const uint8_t *bytes, uint32_t count,
                         struct place *place)
{
    if (count != ADDRESS_BYTES || memcmp(bytes, address_magic, sizeof(address_magic)) != 0) {
        return false;
    }
    place->node = (uint32_t)get_number(bytes + 4, 4);
    place->incarnation = (uint32_t)get_number(bytes + 8, 4);
    place->lane = (uint32_t)get_number(bytes + 12, 4);
    place->rail = (uint32_t)get_number(bytes + 16, 4);
    place->slot = (uint32_t)get_number(bytes + 20, 4);
    place->serial = get_number(bytes + 24, 8);
    return place->node < loop->config.nodes && place->lane < loop->config.lanes &&
           place->rail < loop->config.rails && place->slot < loop->endpoint_count;
}

static int peer_open(struct hlg_transport *t, const uint8_t *bytes, uint32_t count)
{
    struct endpoint *e = endpoint_of(t);
    struct place place;

    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    if (!read_address(e->loop, bytes, count, &place)) {
        return -HLG_EINVAL;
    }
    for (uint32_t index = 0; index < e->loop->config.peers_max; index++) {
        struct peer *peer = &e->peers[index];

        if (!peer->open) {
            reset_peer(peer);
            peer->open = true;
            peer->place = place;
            return (int)index;
        }
    }
    return -HLG_ELIMIT;
}

static int peer_close(struct hlg_transport *t, uint32_t index)
{
    struct endpoint *e = endpoint_of(t);

    if (index >= e->loop->config.peers_max || !e->peers[index].open) {
        return -HLG_EINVAL;
    }
    reset_peer(&e->peers[index]);
    return 0;
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *memory, hlg_mem *mem)
{
    struct endpoint *e = endpoint_of(t);
    struct hlg_loop *loop = e->loop;

    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    if (memory->base == NULL || memory->bytes == 0 || memory->bytes > UINT64_MAX / 4) {
        return -HLG_EINVAL;
    }
    if (memory->kind != HLG_MEMORY_HOST) {
        return -HLG_EUNSUPPORTED;
    }
    for (uint32_t index = 0; index < loop->config.regions_max; index++) {
        struct region *region = &e->regions[index];

        if (!region->live) {
            region->base = memory->base;
            region->bytes = memory->bytes;
            /* Any number that leaves room above it: peers must not take it for a pointer. */
            region->address = hlg_rng_next(&loop->rng) & 0x3ffffffffffff000u;
            region->key = hlg_rng_next(&loop->rng);
            if (loop->config.old_keys) {
                region->address = (uint64_t)(index + 1) << 40;
                region->key = index + 1;
            }
            region->live = true;
            *mem = index;
            return 0;
        }
    }
    return -HLG_ELIMIT;
}

static bool mem_is_live(const struct endpoint *e, hlg_mem mem)
{
    return mem < e->loop->config.regions_max && e->regions[mem].live;
}

static int mem_export(struct hlg_transport *t, hlg_mem mem, struct hlg_mem_export *out)
{
    const struct endpoint *e = endpoint_of(t);

    if (!mem_is_live(e, mem)) {
        return -HLG_EINVAL;
    }
    out->address = e->regions[mem].address;
    out->key = e->regions[mem].key;
    return 0;
}

static int mem_release(struct hlg_transport *t, hlg_mem mem)
{
    struct endpoint *e = endpoint_of(t);

    if (!mem_is_live(e, mem)) {
        return -HLG_EINVAL;
    }
    e->regions[mem].live = false;
    return 0;
}

static bool write_is_sound(const struct endpoint *e, const struct hlg_paged_write *w)
{
    return w->peer < e->loop->config.peers_max && e->peers[w->peer].open &&
           mem_is_live(e, w->mem) && w->bytes != 0 && w->bytes <= e->loop->config.piece_bytes_max &&
           w->count != 0 && w->piece_begin < w->piece_limit;
}

static bool source_is_inside(const struct endpoint *e, const struct hlg_paged_write *w,
                             uint32_t index)
{
    const struct region *region = &e->regions[w->mem];
    const uintptr_t begin = (uintptr_t)region->base;
    const uintptr_t from = (uintptr_t)hlg_paged_write_source(w, index);

    return from >= begin && w->bytes <= region->bytes && from - begin <= region->bytes - w->bytes;
}

static void arm(struct endpoint *e, struct peer *peer, hlg_time when)
{
    if (peer->timers < PEER_TIMERS_MAX) {
        peer->timers++;
        schedule_put(e->loop, when, HLG_LOOP_PEER, slot_of(e),
                     hlg_u32((uint64_t)(peer - e->peers)));
    }
}

/* Come back when the refused peer is given up or, if that is earlier, takes writes again. */
static void arm_refusal(struct endpoint *e, struct peer *peer)
{
    const hlg_time earliest = e->loop->now;
    const hlg_time stalled = peer->refused_since + e->loop->config.stall_ns;

    if (!peer->down_told && (!peer->refusing || stalled < peer->refused_until)) {
        arm(e, peer, stalled > earliest ? stalled : earliest);
    } else if (peer->refusing) {
        arm(e, peer, peer->refused_until);
    }
}

static void begin_refusal(struct endpoint *e, struct peer *peer)
{
    if (peer->refused_since == HLG_TIME_NEVER) {
        peer->refused_since = e->loop->now;
    }
    arm_refusal(e, peer);
}

/*
 * Nobody is there. A writer that met the peer may not know yet, and then its pieces are taken and
 * fail; a coin says when it finds out.
 */
static bool is_gone(struct endpoint *e, struct peer *peer)
{
    const struct endpoint *target = endpoint_find(e->loop, &peer->place);

    if (target != NULL && target->state == ENDPOINT_OPEN) {
        peer->met = true;
        return false;
    }
    if (peer->met && hlg_rng_below(&e->loop->rng, 2) == 0) {
        return false;
    }
    peer->met = false;
    if (!peer->gone) {
        peer->gone = true;
        begin_refusal(e, peer);
    }
    return true;
}

static bool draw_refusal(struct endpoint *e, struct peer *peer)
{
    struct hlg_loop *loop = e->loop;

    if (peer->refusing && loop->now < peer->refused_until) {
        return true;
    }
    peer->refusing = false;
    if (!hlg_rng_chance(&loop->rng, loop->config.faults.refuse_ppm)) {
        return false;
    }
    peer->refusing = true;
    peer->refused_until =
        loop->now + 1 + hlg_rng_between(&loop->rng, 0, loop->config.faults.refuse_ns_max);
    loop->stats.refusals++;
    begin_refusal(e, peer);
    return true;
}

/* Pieces that a write may take now: what was offered, less what has no room, less a fault. */
static uint32_t draw_prefix(struct endpoint *e, const struct hlg_paged_write *w)
{
    struct hlg_loop *loop = e->loop;
    const uint32_t room =
        hlg_min_u32(loop->config.pieces_max - e->unpolled, loop->piece_free_count);
    const uint32_t pieces = hlg_min_u32(w->piece_limit - w->piece_begin, room);

    if (pieces > 1 && hlg_rng_chance(&loop->rng, loop->config.faults.partial_ppm)) {
        loop->stats.partials++;
        return (uint32_t)hlg_rng_between(&loop->rng, 1, pieces - 1);
    }
    return pieces;
}

static int64_t write_pages(struct hlg_transport *t, const struct hlg_paged_write *w)
{
    struct endpoint *e = endpoint_of(t);
    struct hlg_loop *loop = e->loop;
    struct peer *peer;
    uint32_t pieces;
    uint32_t taken = 0;

    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    if (!write_is_sound(e, w)) {
        return -HLG_EINVAL;
    }
    peer = &e->peers[w->peer];
    if (is_gone(e, peer) || draw_refusal(e, peer)) {
        return 0;
    }
    pieces = draw_prefix(e, w);
    if (hlg_rng_chance(&loop->rng, loop->config.faults.kill_ppm)) {
        (void)loop_doom(loop, e->self.node, peer->place.node);
    }
    while (taken < pieces) {
        if (!source_is_inside(e, w, w->piece_begin + taken)) {
            break;
        }
        piece_post(e, w, w->piece_begin + taken);
        taken++;
    }
    if (taken == 0 && pieces != 0) {
        return -HLG_EINVAL;
    }
    if (taken != 0) {
        peer->refused_since = HLG_TIME_NEVER;
    }
    loop_trace(loop, 0, e->self.slot, w->op, (uint64_t)w->piece_begin << 32 | taken);
    return taken;
}

void endpoint_report(struct endpoint *e, hlg_op_id op, int32_t status)
{
    const uint32_t capacity = e->loop->config.pieces_max;
    struct done_entry *last = &e->dones[(e->done_head + e->done_count + capacity - 1) % capacity];

    HLG_ASSERT(e->state == ENDPOINT_OPEN || e->state == ENDPOINT_CLOSED);
    if (e->done_count == 0 || last->op != op) {
        HLG_ASSERT(e->done_count < capacity);
        last = &e->dones[(e->done_head + e->done_count) % capacity];
        e->done_count++;
        *last = (struct done_entry){op, 0, 0, 0};
    }
    e->loop->stats.completions++;
    if (status == 0) {
        last->done++;
        return;
    }
    e->loop->stats.failures++;
    last->failed++;
    if (last->status == 0) {
        last->status = status;
    }
}

static void take_done(struct endpoint *e, struct hlg_transport_event *event)
{
    const struct done_entry entry = e->dones[e->done_head];

    event->kind = HLG_TRANSPORT_DONE_WRITE;
    event->done.op = entry.op;
    event->done.done = entry.done;
    event->done.failed = entry.failed;
    event->done.status = entry.status;
    e->done_head = (e->done_head + 1) % e->loop->config.pieces_max;
    e->done_count--;
    HLG_ASSERT(e->unpolled >= entry.done + entry.failed);
    e->unpolled -= entry.done + entry.failed;
}

/* Neighbours in the queue that count for one request are summed; a fence mark is never among them. */
static bool imms_add_up(uint32_t a, uint32_t b)
{
    return a >> 4 == b >> 4 && ((a & 15u) == 15u) == ((b & 15u) == 15u);
}

static void take_imm(struct endpoint *e, struct hlg_transport_event *event)
{
    const uint32_t first = e->imms[e->imm_head];

    event->kind = HLG_TRANSPORT_IMM;
    event->imm.imm = first;
    event->imm.pieces = 0;
    event->imm.immediates = 0;
    while (e->imm_count > 0 && imms_add_up(first, e->imms[e->imm_head])) {
        const uint32_t weight = e->imms[e->imm_head] & 15u;

        event->imm.pieces += weight == 15u ? 0 : 1u << weight;
        event->imm.immediates++;
        e->imm_head = (e->imm_head + 1) % e->loop->config.cq_depth;
        e->imm_count--;
    }
}

static uint32_t take_downs(struct endpoint *e, struct hlg_transport_event *events,
                           uint32_t capacity)
{
    uint32_t count = 0;
    uint32_t index = 0;

    for (; index < e->loop->config.peers_max && count < capacity; index++) {
        if (e->peers[index].open && e->peers[index].down) {
            e->peers[index].down = false;
            events[count].kind = HLG_TRANSPORT_PEER_DOWN;
            events[count].peer = index;
            count++;
        }
    }
    e->downs = index < e->loop->config.peers_max; /* some may be left */
    return count;
}

static int poll_events(struct hlg_transport *t, struct hlg_transport_event *events,
                       uint32_t capacity)
{
    struct endpoint *e = endpoint_of(t);
    uint32_t count = 0;

    if (e->state == ENDPOINT_DEAD) {
        return 0;
    }
    HLG_ASSERT(e->state == ENDPOINT_OPEN || (e->state == ENDPOINT_CLOSED && e->imm_count == 0));
    while (count < capacity && (e->done_count > 0 || e->imm_count > 0)) {
        const bool both = e->done_count > 0 && e->imm_count > 0;

        if (both ? hlg_rng_below(&e->loop->rng, 2) == 0 : e->done_count > 0) {
            take_done(e, &events[count]);
        } else {
            take_imm(e, &events[count]);
        }
        count++;
    }
    if (e->state == ENDPOINT_OPEN && e->downs) {
        count += take_downs(e, events + count, capacity - count);
    }
    return (int)count;
}

static void tell_down(struct endpoint *e, struct peer *peer)
{
    if (!peer->down_told) {
        peer->down = true;
        peer->down_told = true;
        e->downs = true;
        e->loop->stats.downs++;
    }
}

void endpoint_on_peer(struct endpoint *e, uint32_t index)
{
    struct peer *peer = &e->peers[index];
    const hlg_time time = e->loop->now;

    HLG_ASSERT(peer->timers > 0);
    peer->timers--;
    if (e->state != ENDPOINT_OPEN || !peer->open) {
        return;
    }
    if (time >= peer->death) {
        tell_down(e, peer);
    }
    if (peer->refusing && time >= peer->refused_until) {
        peer->refusing = false;
    }
    if (!peer->refusing && !peer->gone) {
        return;
    }
    if (time - peer->refused_since >= e->loop->config.stall_ns) {
        tell_down(e, peer);
    }
    arm_refusal(e, peer);
}

/* Peers learn of the death by a coin: some providers notice, others only fail writes. */
static void tell_death(struct endpoint *e, uint32_t node)
{
    struct hlg_loop *loop = e->loop;

    for (uint32_t index = 0; index < loop->config.peers_max; index++) {
        struct peer *peer = &e->peers[index];

        if (peer->open && peer->place.node == node &&
            peer->place.incarnation == loop->nodes[node].incarnation &&
            hlg_rng_below(&loop->rng, 2) == 0) {
            peer->death = loop->now + hlg_rng_between(&loop->rng, 0, loop->config.death_ns_max);
            arm(e, peer, peer->death);
        }
    }
}

void endpoint_on_kill(struct hlg_loop *loop, uint32_t node)
{
    for (uint32_t slot = 0; slot < loop->endpoint_count; slot++) {
        struct endpoint *e = &loop->endpoints[slot];

        if (e->state != ENDPOINT_OPEN) {
            continue;
        }
        if (e->self.node == node) {
            e->state = ENDPOINT_DEAD;
            e->imm_count = 0;
            piece_on_target_end(loop, slot, e->self.serial);
        } else {
            tell_death(e, node);
        }
    }
}

static int wait_fd(struct hlg_transport *t)
{
    (void)t;
    return -HLG_EINVAL; /* caps.pollable is false */
}

static void wake(struct hlg_transport *t)
{
    (void)t;
}

static int close_endpoint(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    HLG_ASSERT(e->state != ENDPOINT_FREE);
    if (e->state == ENDPOINT_CLOSED) {
        return 0;
    }
    e->state = ENDPOINT_CLOSED;
    e->imm_count = 0;
    for (uint32_t index = 0; index < e->loop->config.regions_max; index++) {
        e->regions[index].live = false;
    }
    piece_on_source_close(e->loop, slot_of(e));
    piece_on_target_end(e->loop, slot_of(e), e->self.serial);
    return 0;
}

static void free_endpoint(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    (void)close_endpoint(t);
    piece_on_source_free(e->loop, slot_of(e));
    for (uint32_t index = 0; index < e->loop->config.peers_max; index++) {
        reset_peer(&e->peers[index]);
    }
    e->state = ENDPOINT_FREE;
    e->unpolled = 0;
    e->done_count = 0;
}

const struct hlg_transport_ops endpoint_ops = {
    .query = query,
    .now = now,
    .address = address,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .mem_register = mem_register,
    .mem_export = mem_export,
    .mem_release = mem_release,
    .write = write_pages,
    .poll = poll_events,
    .wait_fd = wait_fd,
    .wake = wake,
    .close = close_endpoint,
    .free = free_endpoint,
};
