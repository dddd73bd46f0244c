#include "scene.h"

#include "../support/small_layout.h"

#include <core/session.h>
#include <halage/places.h>
#include <halage/wire.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_MAX    100000u
#define DOMAINS_MAX  12u
#define CHANNELS_MAX 16u
#define MESSAGE_MAX  (1u << 14)
#define REQUESTS_MAX 8u

void scene_break(struct scene *s, const char *format, ...)
{
    va_list list;

    if (s->broken[0] != '\0') {
        return; /* the first one counts */
    }
    va_start(list, format);
    (void)vsnprintf(s->broken, sizeof s->broken, format, list);
    va_end(list);
}

hlg_time scene_now(const struct scene *s)
{
    return hlg_loop_now(s->loop);
}

/* ---- Making it ---------------------------------------------------------------------------- */

static void make_layout(struct scene_node_state *n, bool split)
{
    uint32_t tp = !n->decode && split ? 2 : 1;
    uint32_t rank = n->index == PREFILL_1 && split ? 1 : 0;

    n->layout =
        small_layout((struct small_layout){.layers = LAYERS,
                                           .planes = PLANES,
                                           .heads = HEADS,
                                           .head_bytes = HEAD_BYTES,
                                           .page_tokens = PAGE_TOKENS,
                                           .pages = PAGES,
                                           .context_bytes = 64,
                                           .contexts = n->scene->config.no_context ? 0 : CONTEXTS});
    n->layout.tp = tp;
    n->layout.rank_begin = rank;
    n->layout.rank_limit = rank + 1;
    int count = hlg_places_linear(&n->layout, 0, n->places, 64, &n->bytes);
    HLG_ASSERT(count > 0 && count <= 64);
    n->place_count = (uint32_t)count;
}

static void make_limits(const struct scene *s, struct hlg_limits *limits)
{
    hlg_limits_default(limits);
    limits->peers_max = PEERS_MAX;
    limits->requests_max = REQUESTS_MAX;
    limits->sources_max = s->config.split ? 2 : 1;
    limits->lanes_max = 2;
    limits->rails_max = 1;
    limits->slices_max = 64;
    limits->prompt_bytes_max = 64;
    limits->message_bytes_max = MESSAGE_MAX;
    limits->blocks_max = 64;
    limits->ops_max = 64;
    limits->chunks_max = 32;
    limits->lease_ns = LEASE_NS;
    limits->heartbeat_ns = HEARTBEAT_NS;
    limits->fence_ns = FENCE_NS;
    limits->grant_requests = s->config.grant_requests;
    if (s->config.window_pieces != 0) {
        limits->window_pieces = s->config.window_pieces;
    }
}

static void make_fault(struct scene *s)
{
    struct hlg_fault_config config;

    hlg_fault_config_default(&config);
    config.seed = s->config.seed;
    config.nodes = NODES;
    config.endpoints_max = NODES * DOMAINS_MAX;
    config.peers_max = 8;
    config.held_max = 512;
    config.late_bytes_max = 256;
    config.channels_max = 2 * CHANNELS_MAX;
    config.message_bytes_max = MESSAGE_MAX;
    HLG_ASSERT(hlg_fault_create(&config, &s->fault) == 0);
}

void scene_fault(struct scene *s, const char *text)
{
    char error[256] = "";

    if (hlg_fault_script(s->fault, text, error, sizeof error) != 0) {
        scene_break(s, "%s", error);
    }
}

static void make_loop(struct scene *s)
{
    struct hlg_loop_config config;

    hlg_loop_config_default(&config);
    config.seed = s->config.seed;
    config.nodes = NODES;
    config.domains_max = DOMAINS_MAX;
    config.peers_max = 8;
    config.regions_max = 2 + 16;
    config.pieces_max = 128;
    config.cq_depth = 4096;
    config.channels_max = CHANNELS_MAX;
    config.frames_max = 64;
    config.room_bytes = 1u << 16;
    config.message_bytes_max = MESSAGE_MAX;
    config.stall_ns = STALL_NS;
    config.acknowledged = s->config.acknowledged;
    config.land_ns = (struct hlg_loop_span){LAND_NS, LAND_NS};
    config.imm_ns = (struct hlg_loop_span){US(20), US(20)};
    config.done_ns = (struct hlg_loop_span){DONE_NS, DONE_NS};
    config.frame_ns = (struct hlg_loop_span){FRAME_NS, FRAME_NS};
    config.death_ns_max = s->config.death_ns != 0 ? s->config.death_ns : MS(3);
    HLG_ASSERT(hlg_loop_create(&config, &s->loop) == 0);
    make_fault(s);
    hlg_loop_on_landing(s->loop, engine_landing, s);
}

static void on_session(struct scene_node_state *n, const struct hlg_notice *notice)
{
    uint32_t other = n->node_of[notice->peer];

    if (notice->kind == HLG_NOTICE_PEER_UP) {
        n->up[other] = true;
        n->peer_of[other] = notice->peer;
        n->draining[other] = false;
    } else if (notice->kind == HLG_NOTICE_PEER_DRAINING) {
        n->draining[other] = true;
    } else if (n->peer_of[other] == notice->peer) {
        n->refusal = notice->refusal;
        n->peer_of[other] = HLG_NONE;
        n->up[other] = false;
        n->channels[other] = NULL;
        n->dial_at[other] = scene_now(n->scene) + DIAL_NS;
    }
}

static void on_notice(void *context, const struct hlg_notice *notice)
{
    struct scene_node_state *n = context;

    if (n->scene->verbose) {
        printf("%10.3f ms  node %u notice %u peer %d request %llx reason %u\n",
               (double)scene_now(n->scene) / 1e6, n->index, notice->kind, (int)notice->peer,
               (unsigned long long)notice->request, notice->reason);
    }
    if (notice->kind <= HLG_NOTICE_PEER_DRAINING) {
        on_session(n, notice);
    } else {
        engine_notice(n, notice);
    }
}

static void on_note(void *context, const struct hlg_note *note)
{
    struct scene_node_state *n = context;

    if (n->scene->verbose) {
        printf("%10.3f ms  node %u note %u peer %d: %llu %llu %llu\n",
               (double)scene_now(n->scene) / 1e6, n->index, note->code, (int)note->peer,
               (unsigned long long)note->a, (unsigned long long)note->b,
               (unsigned long long)note->c);
    }
    HLG_ASSERT(note->code < HLG_NOTE_COUNT);
    n->notes[note->code]++;
    if (note->code == HLG_NOTE_SESSION_DOWN) {
        uint32_t *why = &n->why[n->node_of[note->peer]];
        *why = *why != 0 ? *why : (uint32_t)note->a; /* the first */
    }
}

static void make_pump(struct scene_node_state *n)
{
    struct scene *s = n->scene;
    struct hlg_pump_region region = {.lane = 0, .memory = HLG_MEM_HOST(n->memory, n->bytes)};
    struct hlg_pump_config config = {.role = n->decode ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL,
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = n->places,
                                     .place_count = n->place_count,
                                     .notice = on_notice,
                                     .note = on_note,
                                     .context = n};
    char error[256] = "";

    HLG_ASSERT(n->lives < LIVES_MAX);
    HLG_ASSERT(hlg_fault_fabric(s->fault, n->index, hlg_loop_fabric(s->loop, n->index),
                                &config.fabric) == 0);
    n->incarnation = 10 * (uint64_t)(n->index + 1) + n->lives;
    if (s->config.record) {
        HLG_ASSERT(hlg_trace_create(NULL, &n->traces[n->lives], NULL, 0) == 0);
        config.trace = n->traces[n->lives];
    }
    n->lives++;
    if (n->decode) {
        config.decode = (struct hlg_decode_config){.layout = n->layout,
                                                   .rails = 1,
                                                   .node = n->index + 1,
                                                   .incarnation = n->incarnation,
                                                   .flush = s->config.flush};
        make_limits(s, &config.decode.limits);
    } else {
        config.prefill = (struct hlg_prefill_config){
            .layout = n->layout, .rails = 1, .node = n->index + 1, .incarnation = n->incarnation};
        make_limits(s, &config.prefill.limits);
        config.prefill.fingerprint[0] = s->config.foreign && n->index == PREFILL_1;
    }
    if (hlg_pump_create(&config, &n->pump, error, sizeof error) != 0) {
        scene_break(s, "node %u: %s", n->index, error);
        HLG_ASSERT(false);
    }
}

/* As a process that just began: nothing in memory, no session, no request. */
static void begin_node(struct scene_node_state *n)
{
    memset(n->memory, 0xEE, n->bytes);
    memset(n->owner, 0, sizeof n->owner);
    memset(n->poisoned, 0, sizeof n->poisoned);
    n->forward = (struct forward){0};
    n->forwards = 0;
    n->abort = false;
    n->layers_max = HLG_NONE;
    for (uint32_t i = 0; i < NODES; i++) {
        n->peer_of[i] = HLG_NONE;
        n->up[i] = false;
        n->channels[i] = NULL;
        n->draining[i] = false;
        n->dial_at[i] = scene_now(n->scene);
    }
    n->alive = true;
    n->frozen = false;
    make_pump(n);
}

void scene_open(struct scene *s, const struct scene_config *config)
{
    memset(s, 0, sizeof *s);
    s->config = *config;
    make_loop(s);
    for (uint32_t i = 0; i < NODES; i++) {
        struct scene_node_state *n = &s->nodes[i];
        n->scene = s;
        n->index = i;
        n->decode = i == DECODE_0 || i == DECODE_1;
        make_layout(n, config->split);
        n->memory = malloc(n->bytes);
        HLG_ASSERT(n->memory != NULL);
        begin_node(n);
    }
}

void scene_close(struct scene *s)
{
    for (uint32_t i = 0; i < NODES; i++) {
        hlg_pump_destroy(s->nodes[i].pump);
    }
    hlg_fault_destroy(s->fault);
    hlg_loop_destroy(s->loop);
    for (uint32_t i = 0; i < NODES; i++) {
        for (uint32_t k = 0; k < LIVES_MAX; k++) {
            (void)hlg_trace_destroy(s->nodes[i].traces[k]);
        }
        free(s->nodes[i].memory);
    }
}

/* ---- Nodes -------------------------------------------------------------------------------- */

void scene_kill(struct scene *s, uint32_t node)
{
    struct scene_node_state *n = &s->nodes[node];

    hlg_loop_kill(s->loop, node);
    n->alive = false;
    n->was_killed = true;
    for (uint32_t i = 0; i < NODES; i++) {
        n->channels[i] = NULL;
        n->up[i] = false;
    }
    engine_died(n);
}

void scene_restart(struct scene *s, uint32_t node)
{
    struct scene_node_state *n = &s->nodes[node];

    HLG_ASSERT(!n->alive);
    hlg_pump_destroy(n->pump);
    n->pump = NULL;
    hlg_loop_restart(s->loop, node);
    begin_node(n);
}

void scene_freeze(struct scene *s, uint32_t node, hlg_time span)
{
    s->nodes[node].frozen = true;
    s->nodes[node].thaw_at = scene_now(s) + span;
}

void scene_dial(struct scene *s, uint32_t decode, uint32_t prefill)
{
    struct scene_node_state *d = &s->nodes[decode];
    struct scene_node_state *p = &s->nodes[prefill];
    struct hlg_channel *a = NULL;
    struct hlg_channel *b = NULL;
    uint32_t peer = 0;

    d->dial_at[prefill] = HLG_TIME_NEVER;
    HLG_ASSERT(hlg_loop_channel_pair(s->loop, decode, prefill, &a, &b) == 0);
    d->lines[prefill] = a;
    p->lines[decode] = b;
    HLG_ASSERT(hlg_fault_channel(s->fault, decode, prefill, a, &a) == 0);
    HLG_ASSERT(hlg_fault_channel(s->fault, prefill, decode, b, &b) == 0);
    d->channels[prefill] = a;
    p->channels[decode] = b;
    HLG_ASSERT(hlg_pump_channel(d->pump, a, true, &peer) == 0 && peer < PEERS_MAX);
    d->peer_of[prefill] = peer;
    d->node_of[peer] = prefill;
    d->up[prefill] = false;
    HLG_ASSERT(hlg_pump_channel(p->pump, b, false, &peer) == 0 && peer < PEERS_MAX);
    p->peer_of[decode] = peer;
    p->node_of[peer] = decode;
    p->up[decode] = false;
}

void scene_inject(struct scene *s, uint32_t from, uint32_t to, const struct hlg_message *message)
{
    uint8_t frame[256];
    struct hlg_channel *channel = s->nodes[from].channels[to];
    int64_t bytes = hlg_wire_encode(message, frame, sizeof frame);

    HLG_ASSERT(bytes > 0);
    HLG_ASSERT(channel->ops->send(channel, frame, (uint32_t)bytes) == 1);
}

static bool wanted(const struct scene *s, uint32_t d, uint32_t p)
{
    return s->nodes[d].decode && !s->nodes[p].decode && (d != DECODE_1 || !s->config.alone) &&
           s->nodes[d].alive && s->nodes[p].alive;
}

bool scene_all_up(const struct scene *s)
{
    for (uint32_t d = 0; d < NODES; d++) {
        for (uint32_t p = 0; p < NODES; p++) {
            if (wanted(s, d, p) && !(s->nodes[d].up[p] && s->nodes[p].up[d]) &&
                !(s->config.foreign && p == PREFILL_1)) {
                return false;
            }
        }
    }
    return true;
}

static int dial_all(struct scene *s)
{
    int work = 0;

    for (uint32_t d = 0; !s->no_dial && d < NODES; d++) {
        for (uint32_t p = 0; p < NODES; p++) {
            if (wanted(s, d, p) && !s->nodes[d].frozen && s->nodes[d].dial_at[p] <= scene_now(s)) {
                scene_dial(s, d, p);
                work++;
            }
        }
    }
    return work;
}

/* ---- Turning ------------------------------------------------------------------------------ */

static bool runs(const struct scene_node_state *n)
{
    return n->alive && !n->frozen;
}

static int turn_once(struct scene *s)
{
    int work = dial_all(s);

    for (uint32_t i = 0; i < NODES; i++) {
        struct scene_node_state *n = &s->nodes[i];
        if (n->frozen && n->thaw_at <= scene_now(s)) {
            n->frozen = false;
        }
        if (runs(n)) {
            work += hlg_pump_step(n->pump);
            HLG_ASSERT(hlg_pump_check(n->pump) == 0);
            work += engine_act(n);
            HLG_ASSERT(hlg_pump_check(n->pump) == 0);
        }
    }
    return work;
}

void scene_turn(struct scene *s)
{
    for (uint32_t i = 0; turn_once(s) > 0; i++) {
        HLG_ASSERT(i < TURNS_MAX);
    }
}

/* By its own clock, which a fault may have put wrong, to ours. */
static hlg_time deadline_of(const struct scene_node_state *n)
{
    hlg_time deadline = hlg_pump_deadline(n->pump);
    hlg_time now = hlg_pump_now(n->pump);

    return deadline == HLG_TIME_NEVER ? deadline
                                      : scene_now(n->scene) + (deadline > now ? deadline - now : 0);
}

static hlg_time next_time(const struct scene *s)
{
    hlg_time next = hlg_min_time(hlg_loop_next_time(s->loop), hlg_fault_deadline(s->fault));

    for (uint32_t i = 0; i < NODES; i++) {
        const struct scene_node_state *n = &s->nodes[i];
        if (n->frozen) {
            next = hlg_min_time(next, n->thaw_at);
        } else if (n->alive) {
            next = hlg_min_time(next, deadline_of(n));
            next = hlg_min_time(next, engine_next(n));
        }
        for (uint32_t p = 0; p < NODES; p++) {
            if (wanted(s, i, p) && !s->no_dial && !n->frozen) {
                next = hlg_min_time(next, n->dial_at[p]);
            }
        }
    }
    return next;
}

bool scene_until(struct scene *s, scene_fn *fn, hlg_time limit)
{
    for (;;) {
        scene_turn(s);
        if (fn(s)) {
            return true;
        }
        hlg_time next = next_time(s);
        next = next > scene_now(s) ? next : scene_now(s) + 1; /* who may act now has */
        if (next > limit || s->broken[0] != '\0') {
            if (scene_now(s) < limit) {
                (void)hlg_loop_advance_to(s->loop, limit);
                scene_turn(s);
            }
            return fn(s);
        }
        if (hlg_loop_next_time(s->loop) <= next) {
            (void)hlg_loop_step(s->loop);
        } else {
            (void)hlg_loop_advance_to(s->loop, next);
        }
    }
}

static bool never(const struct scene *s)
{
    (void)s;
    return false;
}

void scene_wait(struct scene *s, hlg_time span)
{
    (void)scene_until(s, never, scene_now(s) + span);
}

bool scene_at_rest(const struct scene *s)
{
    for (uint32_t i = 0; i < NODES; i++) {
        const struct scene_node_state *n = &s->nodes[i];
        for (uint32_t k = 0; n->alive && k < GROUPS * PAGES; k++) {
            const uint32_t page = k % PAGES;
            if (n->owner[k / PAGES][page] != 0 && !n->poisoned[k / PAGES][page]) {
                return false;
            }
        }
        if (n->frozen || (n->alive && hlg_pump_open(n->pump) != 0)) {
            return false;
        }
    }
    return true;
}
