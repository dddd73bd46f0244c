/*
 * Endpoints: the operations of transport.h over the simulation's tables.
 */
#include <string.h>

#include "internal.h"

#define ADDRESS_BYTES 24u

static const uint8_t address_magic[4] = {'s', 'g', 'r', 'd'};

static struct endpoint *endpoint_of(struct hlg_transport *t)
{
    return (struct endpoint *)t; /* transport is the first member */
}

struct endpoint *endpoint_find(struct hlg_simgrid *sim, const struct place *place)
{
    struct endpoint *e = &sim->endpoints[place->slot];

    return e->state == ENDPOINT_OPEN && e->self.serial == place->serial ? e : NULL;
}

void endpoint_query(const struct node *node, struct hlg_transport_caps *caps)
{
    const struct hlg_simgrid *sim = node->sim;

    memset(caps, 0, sizeof(*caps));
    memcpy(caps->provider, "simgrid", 7);
    caps->domains_max = sim->config.domains_max;
    caps->pieces_max = node->config.pieces_max;
    caps->cq_depth = sim->config.cq_depth;
    caps->piece_bytes_max = sim->config.piece_bytes_max;
    caps->placed = true;
    caps->pollable = false;
    caps->stall_ns = sim->config.stall_ns;
}

/* The queue and its windows stay, and so does the timer's happening. */
void endpoint_reset_peer(struct peer *peer)
{
    peer->open = false;
    peer->down = false;
    peer->down_told = false;
    peer->refused_since = HLG_TIME_NEVER;
}

/* Tables of an endpoint that was never open are not touched: there may be many. */
static void fill_tables(struct endpoint *e)
{
    if (e->used) {
        return;
    }
    e->used = true;
    e->first = HLG_NONE;
    e->held_head = HLG_NONE;
    e->held_tail = HLG_NONE;
    for (uint32_t peer = 0; peer < e->sim->config.peers_max; peer++) {
        e->peers[peer].head = HLG_NONE;
        e->peers[peer].tail = HLG_NONE;
    }
}

int endpoint_open(struct hlg_fabric *fabric, uint32_t lane, uint32_t rail,
                  struct hlg_transport **out)
{
    const struct node *node = (const struct node *)fabric; /* fabric is the first member */
    struct hlg_simgrid *sim = node->sim;
    const struct hlg_simgrid_config *config = &sim->config;
    uint32_t nic;
    uint32_t slot;
    uint32_t limit;

    if (lane >= node->config.lanes || rail >= node->config.rails) {
        return -HLG_EINVAL;
    }
    if (!node->alive) {
        return -HLG_ESTATE;
    }
    nic = node->nic_begin + lane * node->config.rails + rail;
    slot = nic * config->domains_max;
    limit = slot + config->domains_max;
    while (slot < limit && sim->endpoints[slot].state != ENDPOINT_FREE) {
        slot++;
    }
    if (slot == limit) {
        return -HLG_ELIMIT;
    }

    struct endpoint *e = &sim->endpoints[slot];

    fill_tables(e);
    HLG_ASSERT(e->writes == 0 && e->done_count == 0 && e->imm_count == 0);
    HLG_ASSERT(e->first == HLG_NONE && e->held_head == HLG_NONE);
    e->state = ENDPOINT_OPEN;
    e->self = (struct place){node->index, nic, slot, ++sim->serial};
    e->downs = false;
    e->starved = false;
    memset(e->regions, 0, config->regions_max * sizeof(*e->regions));
    for (uint32_t peer = 0; peer < config->peers_max; peer++) {
        HLG_ASSERT(e->peers[peer].head == HLG_NONE);
        endpoint_reset_peer(&e->peers[peer]);
    }
    *out = &e->transport;
    return 0;
}

static void query(const struct hlg_transport *t, struct hlg_transport_caps *caps)
{
    const struct endpoint *e = (const struct endpoint *)t;

    endpoint_query(&e->sim->nodes[e->self.node], caps);
}

static hlg_time now(struct hlg_transport *t)
{
    return endpoint_of(t)->sim->now;
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
    put_number(bytes + 8, self->nic, 4);
    put_number(bytes + 12, self->slot, 4);
    put_number(bytes + 16, self->serial, 8);
    return (int)ADDRESS_BYTES;
}

static bool read_address(const struct hlg_simgrid *sim, const uint8_t *bytes, uint32_t count,
                         struct place *place)
{
    if (count != ADDRESS_BYTES || memcmp(bytes, address_magic, sizeof(address_magic)) != 0) {
        return false;
    }
    place->node = (uint32_t)get_number(bytes + 4, 4);
    place->nic = (uint32_t)get_number(bytes + 8, 4);
    place->slot = (uint32_t)get_number(bytes + 12, 4);
    place->serial = get_number(bytes + 16, 8);
    return place->node < sim->config.nodes && place->nic < sim->nic_count &&
           place->slot < sim->endpoint_count;
}

static int peer_open(struct hlg_transport *t, const uint8_t *bytes, uint32_t count)
{
    struct endpoint *e = endpoint_of(t);
    struct place place;

    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    if (!read_address(e->sim, bytes, count, &place)) {
        return -HLG_EINVAL;
    }
    for (uint32_t index = 0; index < e->sim->config.peers_max; index++) {
        struct peer *peer = &e->peers[index];

        if (!peer->open) {
            endpoint_reset_peer(peer);
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

    if (index >= e->sim->config.peers_max || !e->peers[index].open) {
        return -HLG_EINVAL;
    }
    endpoint_reset_peer(&e->peers[index]);
    return 0;
}

static int mem_register(struct hlg_transport *t, const struct hlg_mem_region *memory, hlg_mem *mem)
{
    struct endpoint *e = endpoint_of(t);
    struct hlg_simgrid *sim = e->sim;

    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    if (memory->base == NULL || memory->bytes == 0 || memory->bytes > UINT64_MAX / 4) {
        return -HLG_EINVAL;
    }
    if (memory->kind != HLG_MEMORY_HOST) {
        return -HLG_EUNSUPPORTED;
    }
    for (uint32_t index = 0; index < sim->config.regions_max; index++) {
        struct region *region = &e->regions[index];

        if (!region->live) {
            region->base = memory->base;
            region->bytes = memory->bytes;
            /* Any number that leaves room above it: peers must not take it for a pointer. */
            region->address = hlg_rng_next(&sim->rng) & 0x3ffffffffffff000u;
            region->key = hlg_rng_next(&sim->rng);
            region->live = true;
            *mem = index;
            return 0;
        }
    }
    return -HLG_ELIMIT;
}

static bool mem_is_live(const struct endpoint *e, hlg_mem mem)
{
    return mem < e->sim->config.regions_max && e->regions[mem].live;
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
    return w->peer < e->sim->config.peers_max && e->peers[w->peer].open && mem_is_live(e, w->mem) &&
           w->bytes != 0 && w->bytes <= e->sim->config.piece_bytes_max && w->count != 0 &&
           w->piece_begin < w->piece_limit;
}

static bool source_is_inside(const struct endpoint *e, const struct hlg_paged_write *w,
                             uint32_t index)
{
    const struct region *region = &e->regions[w->mem];
    const uintptr_t begin = (uintptr_t)region->base;
    const uintptr_t from = (uintptr_t)hlg_paged_write_source(w, index);

    return from >= begin && w->bytes <= region->bytes && from - begin <= region->bytes - w->bytes;
}

static void arm(struct endpoint *e, struct peer *peer)
{
    if (!peer->timer && !peer->down_told) {
        const hlg_time stalled = hlg_time_after(peer->refused_since, e->sim->config.stall_ns);

        peer->timer = true;
        schedule_put(e->sim, stalled > e->sim->now ? stalled : e->sim->now, HAPPENING_PEER,
                     e->self.slot, hlg_u32((uint64_t)(peer - e->peers)));
    }
}

static int64_t refuse(struct endpoint *e, struct peer *peer)
{
    if (peer->refused_since == HLG_TIME_NEVER) {
        peer->refused_since = e->sim->now;
    }
    arm(e, peer);
    return 0;
}

/* Pieces from the cursor on that lie in the registration; of them, only so many are looked at. */
static uint32_t count_inside(const struct endpoint *e, const struct hlg_paged_write *w,
                             uint32_t pieces)
{
    uint32_t inside = 0;

    if (!e->sim->config.copy_bytes) {
        return pieces;
    }
    while (inside < pieces && source_is_inside(e, w, w->piece_begin + inside)) {
        inside++;
    }
    return inside;
}

/* Whether there is somebody to write to, and a way there. */
static bool is_reachable(const struct endpoint *e, const struct peer *peer)
{
    struct hlg_simgrid *sim = e->sim;

    return endpoint_find(sim, &peer->place) != NULL && sim->nics[e->self.nic].up &&
           sim->nics[peer->place.nic].up;
}

static int64_t write_pages(struct hlg_transport *t, const struct hlg_paged_write *w)
{
    struct endpoint *e = endpoint_of(t);
    struct hlg_simgrid *sim = e->sim;
    const struct hlg_simgrid_config *config = &sim->config;
    struct peer *peer;
    uint32_t pieces;

    if (e->state != ENDPOINT_OPEN) {
        return -HLG_ESTATE;
    }
    if (!write_is_sound(e, w)) {
        return -HLG_EINVAL;
    }
    peer = &e->peers[w->peer];
    if (!is_reachable(e, peer) || peer->writes >= config->peer_writes_max ||
        peer->pieces >= config->peer_pieces_max) {
        return refuse(e, peer);
    }
    /* A full window of our own is no fault of the peer's. */
    if (e->writes + e->lost >= config->writes_max) {
        e->starved = e->lost > 0;
        return 0;
    }
    pieces = hlg_min_u32(sim->nodes[e->self.node].config.pieces_max - e->pieces,
                         config->peer_pieces_max - peer->pieces);
    pieces = hlg_min_u32(pieces, w->piece_limit - w->piece_begin);
    if (pieces == 0) {
        return 0;
    }
    pieces = count_inside(e, w, pieces);
    if (pieces == 0) {
        return -HLG_EINVAL;
    }
    peer->refused_since = HLG_TIME_NEVER;
    batch_post(e, w, pieces);
    sim_trace(sim, 0, e->self.slot, w->op, (uint64_t)w->piece_begin << 32 | pieces);
    return pieces;
}

void endpoint_report(struct endpoint *e, const struct batch *b, uint32_t failed, int32_t status)
{
    const uint32_t capacity = e->sim->config.writes_max;
    struct done_entry *last = &e->dones[(e->done_head + e->done_count + capacity - 1) % capacity];

    HLG_ASSERT(e->state == ENDPOINT_OPEN || e->state == ENDPOINT_CLOSED);
    HLG_ASSERT((failed == 0) == (status == 0));
    if (e->done_count == 0 || last->op != b->write.op) {
        HLG_ASSERT(e->done_count < capacity);
        last = &e->dones[(e->done_head + e->done_count) % capacity];
        e->done_count++;
        *last = (struct done_entry){b->write.op, 0, 0, 0, 0};
    }
    last->done += batch_pieces(b) - failed;
    last->failed += failed;
    last->writes++;
    if (last->status == 0) {
        last->status = status;
    }
    ready_put_endpoint(e);
}

static void take_done(struct endpoint *e, struct hlg_transport_event *event)
{
    const struct done_entry entry = e->dones[e->done_head];

    event->kind = HLG_TRANSPORT_DONE_WRITE;
    event->done.op = entry.op;
    event->done.done = entry.done;
    event->done.failed = entry.failed;
    event->done.status = entry.status;
    e->done_head = (e->done_head + 1) % e->sim->config.writes_max;
    e->done_count--;
    HLG_ASSERT(e->writes >= entry.writes && e->pieces >= entry.done + entry.failed);
    e->writes -= entry.writes;
    e->pieces -= entry.done + entry.failed;
}

/* Neighbours in the queue that count for one request are summed; a fence mark is never among them. */
static bool imms_add_up(uint32_t a, uint32_t b)
{
    return a >> 4 == b >> 4 && ((a & 15u) == 15u) == ((b & 15u) == 15u);
}

static void take_imm(struct endpoint *e, struct hlg_transport_event *event)
{
    const uint32_t first = e->imms[e->imm_head].imm;

    event->kind = HLG_TRANSPORT_IMM;
    event->imm.imm = first;
    event->imm.pieces = 0;
    event->imm.immediates = 0;
    while (e->imm_count > 0 && imms_add_up(first, e->imms[e->imm_head].imm)) {
        const struct imm_entry entry = e->imms[e->imm_head];
        const uint32_t weight = entry.imm & 15u;

        event->imm.pieces += weight == 15u ? 0 : entry.count << weight;
        event->imm.immediates += entry.count;
        e->imm_head = (e->imm_head + 1) % e->sim->imms_max;
        e->imm_count--;
        e->unread -= entry.count;
    }
}

static uint32_t take_downs(struct endpoint *e, struct hlg_transport_event *events,
                           uint32_t capacity)
{
    uint32_t count = 0;
    uint32_t index = 0;

    for (; index < e->sim->config.peers_max && count < capacity; index++) {
        if (e->peers[index].open && e->peers[index].down) {
            e->peers[index].down = false;
            events[count].kind = HLG_TRANSPORT_PEER_DOWN;
            events[count].peer = index;
            count++;
        }
    }
    e->downs = index < e->sim->config.peers_max; /* some may be left */
    return count;
}

/* After a poll: a ring that is empty begins anew, so that it touches no more memory than it needs. */
static void settle(struct endpoint *e)
{
    e->done_head = e->done_count == 0 ? 0 : e->done_head;
    e->imm_head = e->imm_count == 0 ? 0 : e->imm_head;
    if (e->held_head != HLG_NONE) {
        batch_on_room(e);
    }
    if (e->done_count > 0 || e->imm_count > 0 || (e->state == ENDPOINT_OPEN && e->downs)) {
        ready_put_endpoint(e);
    } else {
        ready_drop_endpoint(e);
    }
}

static int poll_events(struct hlg_transport *t, struct hlg_transport_event *events,
                       uint32_t capacity)
{
    struct endpoint *e = endpoint_of(t);
    uint32_t count = 0;

    if (e->state == ENDPOINT_DEAD) {
        ready_drop_endpoint(e);
        return 0;
    }
    e->starved = false;
    HLG_ASSERT(e->state == ENDPOINT_OPEN || (e->state == ENDPOINT_CLOSED && e->imm_count == 0));
    while (count < capacity && e->done_count > 0) {
        take_done(e, &events[count++]);
    }
    while (count < capacity && e->imm_count > 0) {
        take_imm(e, &events[count++]);
    }
    if (e->state == ENDPOINT_OPEN && e->downs) {
        count += take_downs(e, events + count, capacity - count);
    }
    settle(e);
    return (int)count;
}

void endpoint_on_peer(struct endpoint *e, uint32_t index)
{
    struct peer *peer = &e->peers[index];

    HLG_ASSERT(peer->timer);
    peer->timer = false;
    if (e->state != ENDPOINT_OPEN || !peer->open || peer->refused_since == HLG_TIME_NEVER) {
        return;
    }
    if (e->sim->now - peer->refused_since < e->sim->config.stall_ns) {
        arm(e, peer);
        return;
    }
    HLG_ASSERT(!peer->down_told);
    peer->down = true;
    peer->down_told = true;
    e->downs = true;
    ready_put_endpoint(e);
}

void endpoint_on_link_up(struct hlg_simgrid *sim, uint32_t nic)
{
    for (uint32_t slot = 0; slot < sim->endpoint_count; slot++) {
        struct endpoint *e = &sim->endpoints[slot];

        for (uint32_t index = 0; e->state == ENDPOINT_OPEN && index < sim->config.peers_max;
             index++) {
            struct peer *peer = &e->peers[index];

            if (peer->open && peer->refused_since != HLG_TIME_NEVER &&
                (e->self.nic == nic || peer->place.nic == nic)) {
                peer->refused_since = HLG_TIME_NEVER;
                ready_put_endpoint(e);
            }
        }
    }
}

static void end_endpoint(struct endpoint *e, uint32_t state)
{
    batch_on_source_end(e->sim, e->self.slot);
    e->state = state;
    e->imm_count = 0;
    e->unread = 0;
    batch_on_room(e);
    for (uint32_t index = 0; index < e->sim->config.regions_max; index++) {
        e->regions[index].live = false;
    }
}

void endpoint_on_kill(struct hlg_simgrid *sim, uint32_t node)
{
    for (uint32_t slot = 0; slot < sim->endpoint_count; slot++) {
        struct endpoint *e = &sim->endpoints[slot];

        if (e->state == ENDPOINT_OPEN && e->self.node == node) {
            end_endpoint(e, ENDPOINT_DEAD);
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
    ready_put_endpoint(endpoint_of(t));
}

static int close_endpoint(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    HLG_ASSERT(e->state != ENDPOINT_FREE);
    if (e->state == ENDPOINT_OPEN) {
        end_endpoint(e, ENDPOINT_CLOSED);
    }
    e->state = ENDPOINT_CLOSED;
    return 0;
}

static void free_endpoint(struct hlg_transport *t)
{
    struct endpoint *e = endpoint_of(t);

    (void)close_endpoint(t);
    for (uint32_t index = 0; index < e->sim->config.peers_max; index++) {
        endpoint_reset_peer(&e->peers[index]);
    }
    ready_drop_endpoint(e);
    e->state = ENDPOINT_FREE;
    e->writes = 0;
    e->pieces = 0;
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
