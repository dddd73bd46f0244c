/*
 * The loop itself: its memory, its clock, the death of nodes, the trace.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void hlg_loop_config_default(struct hlg_loop_config *config)
{
    memset(config, 0, sizeof(*config));
    config->seed = 1;
    config->nodes = 2;
    config->lanes = 1;
    config->rails = 1;
    config->domains_max = 4;
    config->peers_max = 16;
    config->regions_max = 16;
    config->pieces_max = 256;
    config->cq_depth = 1024;
    config->channels_max = 4;
    config->frames_max = 64;
    config->room_bytes = 1u << 20;
    config->message_bytes_max = 1u << 20;
    config->kills_max = 1;
    config->piece_bytes_max = 1u << 20;
    config->stall_ns = 100 * HLG_NS_PER_MS;
    config->land_ns = (struct hlg_loop_span){1000, 20000};
    config->imm_ns = (struct hlg_loop_span){0, 5000};
    config->done_ns = (struct hlg_loop_span){0, 10000};
    config->frame_ns = (struct hlg_loop_span){10000, 60000};
    config->death_ns_max = HLG_NS_PER_MS;
}

static bool span_is_sound(struct hlg_loop_span span)
{
    return span.min <= span.max && span.max <= UINT64_MAX / 1024;
}

static bool config_is_sound(const struct hlg_loop_config *c)
{
    return c->nodes != 0 && c->lanes != 0 && c->rails != 0 && c->domains_max != 0 &&
           c->peers_max != 0 && c->regions_max != 0 && c->pieces_max != 0 && c->cq_depth != 0 &&
           c->frames_max != 0 && c->room_bytes != 0 && c->message_bytes_max != 0 &&
           c->piece_bytes_max != 0 && c->piece_bytes_max <= UINT32_MAX && c->stall_ns != 0 &&
           c->stall_ns <= UINT64_MAX / 1024 && c->death_ns_max <= UINT64_MAX / 1024 &&
           span_is_sound(c->land_ns) && span_is_sound(c->imm_ns) && span_is_sound(c->done_ns) &&
           span_is_sound(c->frame_ns);
}

/* One array of the loop's, zeroed. Sets *failed when it could not be had. */
static void *take(struct hlg_loop *loop, uint64_t count, size_t bytes, bool *failed)
{
    void *memory;

    HLG_ASSERT(loop->memory_count < sizeof(loop->memory) / sizeof(loop->memory[0]));
    if (*failed || count == 0) {
        return NULL;
    }
    memory = calloc(count, bytes);
    if (memory == NULL) {
        *failed = true;
        return NULL;
    }
    loop->memory[loop->memory_count++] = memory;
    return memory;
}

static bool take_endpoints(struct hlg_loop *loop)
{
    const struct hlg_loop_config *c = &loop->config;
    const uint64_t count = loop->endpoint_count;
    bool failed = false;
    struct region *regions = take(loop, count * c->regions_max, sizeof(*regions), &failed);
    struct peer *peers = take(loop, count * c->peers_max, sizeof(*peers), &failed);
    struct done_entry *dones = take(loop, count * c->pieces_max, sizeof(*dones), &failed);
    uint32_t *imms = take(loop, count * c->cq_depth, sizeof(*imms), &failed);

    loop->endpoints = take(loop, count, sizeof(*loop->endpoints), &failed);
    if (failed) {
        return false;
    }
    for (uint64_t slot = 0; slot < count; slot++) {
        struct endpoint *e = &loop->endpoints[slot];

        e->transport.ops = &endpoint_ops;
        e->loop = loop;
        e->regions = regions + slot * c->regions_max;
        e->peers = peers + slot * c->peers_max;
        e->dones = dones + slot * c->pieces_max;
        e->imms = imms + slot * c->cq_depth;
    }
    return true;
}

static bool take_pieces(struct hlg_loop *loop)
{
    bool failed = false;

    loop->pieces = take(loop, loop->piece_count, sizeof(*loop->pieces), &failed);
    if (failed) {
        return false;
    }
    for (uint32_t index = 0; index < loop->piece_count; index++) {
        loop->pieces[index].next_free = index + 1 < loop->piece_count ? index + 1 : HLG_NONE;
    }
    loop->piece_free = 0;
    loop->piece_free_count = loop->piece_count;
    return true;
}

static bool take_channels(struct hlg_loop *loop)
{
    const struct hlg_loop_config *c = &loop->config;
    const uint64_t count = 2 * (uint64_t)c->channels_max;
    bool failed = false;
    uint32_t *sizes = take(loop, count * c->frames_max, sizeof(*sizes), &failed);
    uint8_t *rings = take(loop, count * loop->ring_capacity, 1, &failed);
    uint8_t *frames = take(loop, count * c->message_bytes_max, 1, &failed);

    loop->pairs = take(loop, c->channels_max, sizeof(*loop->pairs), &failed);
    if (failed) {
        return false;
    }
    for (uint64_t index = 0; index < count; index++) {
        struct side *s = &loop->pairs[index / 2].sides[index % 2];

        s->channel.ops = &channel_ops;
        s->loop = loop;
        s->pair = hlg_u32(index / 2);
        s->sizes = sizes + index * c->frames_max;
        s->ring = rings + index * loop->ring_capacity;
        s->frame = frames + index * c->message_bytes_max;
    }
    return true;
}

static void query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    endpoint_query(((const struct node *)fabric)->loop, caps);
}

static hlg_time now(struct hlg_fabric *fabric)
{
    return ((const struct node *)fabric)->loop->now;
}

static bool take_nodes(struct hlg_loop *loop)
{
    bool failed = false;

    loop->nodes = take(loop, loop->config.nodes, sizeof(*loop->nodes), &failed);
    if (failed) {
        return false;
    }
    for (uint32_t index = 0; index < loop->config.nodes; index++) {
        struct node *node = &loop->nodes[index];

        node->fabric.open = endpoint_open;
        node->fabric.query = query;
        node->fabric.now = now;
        node->fabric.rails = loop->config.rails;
        node->loop = loop;
        node->index = index;
        node->incarnation = 1;
        node->alive = true;
    }
    return true;
}

static bool take_heap(struct hlg_loop *loop)
{
    const struct hlg_loop_config *c = &loop->config;
    const uint64_t capacity = 2ull * loop->piece_count +
                              (uint64_t)PEER_TIMERS_MAX * loop->endpoint_count * c->peers_max +
                              2ull * c->channels_max * (c->frames_max + 1ull) + c->kills_max + 1;
    bool failed = capacity > UINT32_MAX;

    loop->heap = take(loop, capacity, sizeof(*loop->heap), &failed);
    loop->heap_capacity = failed ? 0 : hlg_u32(capacity);
    return !failed;
}

/* False when endpoints or pieces would not be counted in 32 bits. */
static bool set_counts(struct hlg_loop *loop)
{
    const struct hlg_loop_config *c = &loop->config;
    uint64_t endpoints;
    uint64_t pieces;

    if (!hlg_mul_u64((uint64_t)c->nodes * c->lanes, (uint64_t)c->rails * c->domains_max,
                     &endpoints) ||
        !hlg_mul_u64(endpoints, c->pieces_max, &pieces) || pieces >= HLG_NONE) {
        return false;
    }
    loop->endpoint_count = hlg_u32(endpoints);
    loop->piece_count = hlg_u32(pieces);
    loop->ring_capacity = hlg_max_u32(c->room_bytes, c->message_bytes_max);
    return true;
}

int hlg_loop_create(const struct hlg_loop_config *config, struct hlg_loop **out)
{
    struct hlg_loop *loop;

    if (!config_is_sound(config)) {
        return -HLG_EINVAL;
    }
    loop = calloc(1, sizeof(*loop));
    if (loop == NULL) {
        return -HLG_ENOMEM;
    }
    loop->config = *config;
    loop->rng = hlg_rng_seed(config->seed);
    loop->hash = 0xcbf29ce484222325ull;
    loop->kills_left = config->kills_max;
    if (!set_counts(loop) || !take_nodes(loop) || !take_endpoints(loop) || !take_pieces(loop) ||
        !take_channels(loop) || !take_heap(loop)) {
        hlg_loop_destroy(loop);
        return -HLG_ENOMEM;
    }
    *out = loop;
    return 0;
}

void hlg_loop_destroy(struct hlg_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    while (loop->memory_count > 0) {
        free(loop->memory[--loop->memory_count]);
    }
    free(loop);
}

struct hlg_fabric *hlg_loop_fabric(struct hlg_loop *loop, uint32_t node)
{
    HLG_ASSERT(node < loop->config.nodes);
    return &loop->nodes[node].fabric;
}

hlg_time loop_draw(struct hlg_loop *loop, struct hlg_loop_span span)
{
    return hlg_rng_between(&loop->rng, span.min, span.max);
}

static void mix(struct hlg_loop *loop, uint64_t word)
{
    loop->hash = (loop->hash ^ word) * 0x100000001b3ull;
    loop->hash ^= loop->hash >> 32;
}

/* FNV-1a by words, folded so that high bits reach the low ones. */
void loop_trace(struct hlg_loop *loop, uint64_t kind, uint64_t a, uint64_t b, uint64_t c)
{
    mix(loop, kind);
    mix(loop, loop->now);
    mix(loop, a);
    mix(loop, b);
    mix(loop, c);
}

uint64_t hlg_loop_trace_hash(const struct hlg_loop *loop)
{
    return loop->hash;
}

bool loop_doom(struct hlg_loop *loop, uint32_t node_a, uint32_t node_b)
{
    struct node *a = &loop->nodes[node_a];
    struct node *b = &loop->nodes[node_b];
    struct node *victim = hlg_rng_below(&loop->rng, 2) == 0 ? a : b;
    hlg_time delay;

    if (a->doomed || b->doomed) {
        return true;
    }
    if (loop->kills_left == 0) {
        return false;
    }
    if (!victim->alive) {
        victim = victim == a ? b : a;
    }
    HLG_ASSERT(victim->alive);
    loop->kills_left--;
    victim->doomed = true;
    delay = hlg_rng_between(&loop->rng, 0, loop->config.faults.kill_ns_max);
    schedule_put(loop, loop->now + delay, HLG_LOOP_KILL, victim->index, 0);
    return true;
}

void hlg_loop_kill(struct hlg_loop *loop, uint32_t index)
{
    struct node *node;

    HLG_ASSERT(index < loop->config.nodes);
    node = &loop->nodes[index];
    if (!node->alive) {
        return;
    }
    node->alive = false;
    node->doomed = false;
    loop->stats.kills++;
    loop_trace(loop, HLG_LOOP_KILL, index, node->incarnation, 0);
    piece_on_kill(loop, index);
    endpoint_on_kill(loop, index);
    channel_on_kill(loop, index);
}

void hlg_loop_restart(struct hlg_loop *loop, uint32_t index)
{
    HLG_ASSERT(index < loop->config.nodes && !loop->nodes[index].alive);
    loop->nodes[index].alive = true;
    loop->nodes[index].incarnation++;
}

bool hlg_loop_alive(const struct hlg_loop *loop, uint32_t node)
{
    HLG_ASSERT(node < loop->config.nodes);
    return loop->nodes[node].alive;
}

hlg_time hlg_loop_now(const struct hlg_loop *loop)
{
    return loop->now;
}

hlg_time hlg_loop_next_time(const struct hlg_loop *loop)
{
    return loop->heap_count == 0 ? HLG_TIME_NEVER : loop->heap[0].time;
}

static void perform(struct hlg_loop *loop, const struct happening *h)
{
    switch ((enum hlg_loop_happening)h->kind) {
    case HLG_LOOP_LAND:
        piece_on_land(loop, h->index);
        return;
    case HLG_LOOP_IMM:
        piece_on_imm(loop, h->index);
        return;
    case HLG_LOOP_DONE:
        piece_on_done(loop, h->index);
        return;
    case HLG_LOOP_PEER:
        endpoint_on_peer(&loop->endpoints[h->index], h->part);
        return;
    case HLG_LOOP_FRAME:
        channel_on_frame(loop, h->index, h->part);
        return;
    case HLG_LOOP_END:
        channel_on_end(loop, h->index, h->part);
        return;
    case HLG_LOOP_KILL:
        /* Killed by hand before: the doom was carried out then. */
        if (loop->nodes[h->index].doomed) {
            hlg_loop_kill(loop, h->index);
        }
        return;
    }
    hlg_unreachable();
}

int hlg_loop_step(struct hlg_loop *loop)
{
    struct happening happening;

    if (loop->heap_count == 0) {
        return 0;
    }
    happening = schedule_take(loop);
    HLG_ASSERT(happening.time >= loop->now);
    loop->now = happening.time;
    perform(loop, &happening);
    return (int)happening.kind;
}

uint64_t hlg_loop_advance_to(struct hlg_loop *loop, hlg_time when)
{
    uint64_t count = 0;

    HLG_ASSERT(when >= loop->now && when != HLG_TIME_NEVER);
    while (hlg_loop_next_time(loop) <= when) {
        (void)hlg_loop_step(loop);
        count++;
    }
    loop->now = when;
    return count;
}

void hlg_loop_faults(struct hlg_loop *loop, const struct hlg_loop_faults *faults)
{
    loop->config.faults = *faults;
}

void hlg_loop_on_landing(struct hlg_loop *loop, hlg_loop_landing_fn *fn, void *context)
{
    loop->on_landing = fn;
    loop->context = context;
}

void hlg_loop_stats(const struct hlg_loop *loop, struct hlg_loop_stats *stats)
{
    *stats = loop->stats;
}

/* Pieces of an endpoint that are not polled: not yet reported, or in its ring. */
static uint64_t count_unpolled(const struct hlg_loop *loop, uint32_t slot)
{
    const struct endpoint *e = &loop->endpoints[slot];
    uint64_t count = 0;

    for (uint32_t index = 0; index < loop->piece_count; index++) {
        const struct piece *p = &loop->pieces[index];

        count += p->used && p->source == slot && !p->reported;
    }
    for (uint32_t entry = 0; entry < e->done_count; entry++) {
        const struct done_entry *done = &e->dones[(e->done_head + entry) % loop->config.pieces_max];

        count += (uint64_t)done->done + done->failed;
    }
    return count;
}

int hlg_loop_check(const struct hlg_loop *loop)
{
    uint64_t used = 0;
    uint64_t scheduled = 0;
    uint64_t due[HLG_LOOP_KILL + 1] = {0};

    for (uint32_t index = 0; index < loop->piece_count; index++) {
        used += loop->pieces[index].used;
        scheduled += loop->pieces[index].used ? loop->pieces[index].scheduled : 0u;
    }
    for (uint32_t index = loop->piece_limit; index < loop->piece_count; index++) {
        if (loop->pieces[index].used) {
            return 1;
        }
    }
    if (used + loop->piece_free_count != loop->piece_count) {
        return 1;
    }
    if (!schedule_is_heap(loop)) {
        return 2;
    }
    for (uint32_t index = 0; index < loop->heap_count; index++) {
        due[loop->heap[index].kind]++;
    }
    if (scheduled != due[HLG_LOOP_LAND] + due[HLG_LOOP_IMM] + due[HLG_LOOP_DONE]) {
        return 3;
    }
    for (uint32_t slot = 0; slot < loop->endpoint_count; slot++) {
        if (loop->endpoints[slot].state != ENDPOINT_FREE &&
            count_unpolled(loop, slot) != loop->endpoints[slot].unpolled) {
            return 4;
        }
    }
    for (uint32_t index = 0; index < loop->config.channels_max; index++) {
        due[HLG_LOOP_FRAME] -= loop->pairs[index].scheduled; /* below 0 and up again: modulo 2^64 */
    }
    return due[HLG_LOOP_FRAME] + due[HLG_LOOP_END] == 0 ? 0 : 5;
}
