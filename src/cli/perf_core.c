/*
 * A case through the messenger's core: the prefill machine at the asking side, a decode machine for each
 * peer at the serving side, each in a pump over libfabric, as the core thread of a messenger has them. The
 * engines are as small as can be: a request is admitted and computed as soon as it comes, and asked for
 * again as soon as it is whole. What is timed is thus all that the library does for a page, requests'
 * frames and their bookkeeping among it, and no thread.
 */
#include "perf.h"

#include <halage/places.h>
#include <halage/pump.h>

#include <stdlib.h>
#include <string.h>

#define LEASE_NS (3600 * HLG_NS_PER_S) /* nobody steps a pump while the bare loop runs */
#define TTL_NS   (3600 * HLG_NS_PER_S)
#define QUEUE    (4u * PERF_SLOTS * PERF_PEERS_MAX)
/* Cap of all table sizes that grow with the peers. */
#define PIECES_MAX 16384u

struct core;

/* A pump: the one of the source, or that of a peer of the target. */
struct node {
    struct core *core;
    struct perf_fabric fabric; /* of its own: a flusher answers one pump */
    struct hlg_pump *pump;
    struct hlg_place *places;
    hlg_handle open[PERF_SLOTS];  /* target: 0: free */
    hlg_handle ready[PERF_SLOTS]; /* target: read from notices, not yet released */
    uint32_t ready_count;
    uint64_t left; /* target: requests still to be asked for */
};

struct core {
    struct perf_end end; /* first */
    struct hlg_layout layout;
    struct node nodes[PERF_PEERS_MAX];
    uint32_t node_count;
    uint32_t channels;
    uint32_t ups;
    uint32_t forward;
    uint64_t wanted; /* requests of all peers, since the beginning */
    uint64_t done;
    hlg_handle queue[QUEUE]; /* source: asked for, not yet admitted */
    uint32_t queued;
    bool broken;
};

static int fail(struct core *c, const char *what, int error)
{
    (void)snprintf(c->end.error, sizeof c->end.error, "%s: %s", what, hlg_error_text(error));
    return error;
}

static void take_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;
    struct core *c = n->core;

    switch ((enum hlg_notice_kind)notice->kind) {
    case HLG_NOTICE_PEER_UP:
        c->ups++;
        return;
    case HLG_NOTICE_REQUESTED:
        HLG_ASSERT(c->queued < QUEUE); /* no decoder has more open than it has slots */
        c->queue[c->queued++] = notice->request;
        return;
    case HLG_NOTICE_SENT:
        c->done++;
        return;
    case HLG_NOTICE_READY:
        HLG_ASSERT(n->ready_count < PERF_SLOTS);
        n->ready[n->ready_count++] = notice->request;
        return;
    case HLG_NOTICE_ACCEPTED:
        return;
    case HLG_NOTICE_PEER_REFUSED:
    case HLG_NOTICE_PEER_DOWN:
    case HLG_NOTICE_PEER_DRAINING:
    case HLG_NOTICE_STOPPING:
    case HLG_NOTICE_FENCED:
    case HLG_NOTICE_FAILED:
    case HLG_NOTICE_RETURNED:
    case HLG_NOTICE_POISONED:
        c->broken = true;
        return;
    }
    hlg_unreachable();
}

/* ---- source ---- */

static int admit(struct core *c)
{
    struct node *n = &c->nodes[0];
    const uint32_t pages = c->end.arena->shape.pages;
    int error = 0;

    for (uint32_t i = 0; i < c->queued && error == 0; i++) {
        c->forward = c->forward % 0xffffffu + 1;
        error = hlg_pump_event(
            n->pump, &(struct hlg_event){
                         .kind = HLG_EVENT_ADMIT,
                         .admit = {.request = c->queue[i],
                                   .groups = {{.count = pages, .pages = c->end.arena->pages}}}});
        if (error == 0) {
            error = hlg_pump_event(n->pump, &(struct hlg_event){.kind = HLG_EVENT_CHUNK,
                                                                .chunk = {.request = c->queue[i],
                                                                          .forward = c->forward,
                                                                          .token_count = pages}});
        }
        if (error == 0) {
            error = hlg_pump_event(
                n->pump, &(struct hlg_event){.kind = HLG_EVENT_FORWARD_END, .forward = c->forward});
        }
    }
    c->queued = 0;
    return error < 0 ? fail(c, "a request cannot be computed", error) : 0;
}

/* ---- target ---- */

static int ask(struct core *c, struct node *n, uint32_t slot)
{
    const uint32_t pages = c->end.arena->shape.pages;

    const int error = hlg_pump_event(
        n->pump, &(struct hlg_event){.kind = HLG_EVENT_SUBMIT,
                                     .submit = {.source_count = 1,
                                                .peers = {0},
                                                .tokens = pages + 1,
                                                .ttl_ns = TTL_NS,
                                                .groups = {{.count = pages,
                                                            .pages = c->end.arena->pages +
                                                                     (uint64_t)slot * pages}}}});
    if (error < 0) {
        return fail(c, "a request cannot be asked for", error);
    }
    n->open[slot] = hlg_pump_submitted(n->pump);
    n->left--;
    return 0;
}

/* Releases what came whole, asks for what is left. */
static int decode_turn(struct core *c, struct node *n)
{
    for (uint32_t i = 0; i < n->ready_count; i++) {
        for (uint32_t slot = 0; slot < PERF_SLOTS; slot++) {
            n->open[slot] = n->open[slot] == n->ready[i] ? 0 : n->open[slot];
        }
        const int error = hlg_pump_event(
            n->pump, &(struct hlg_event){.kind = HLG_EVENT_RELEASE, .request = n->ready[i]});
        if (error < 0) {
            return fail(c, "a request cannot be released", error);
        }
        c->done++;
    }
    n->ready_count = 0;
    for (uint32_t slot = 0; slot < PERF_SLOTS && n->left > 0; slot++) {
        const int error = n->open[slot] == 0 ? ask(c, n, slot) : 0;
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

/* ---- both ---- */

static int core_step(struct perf_end *end)
{
    struct core *c = (struct core *)end;

    for (uint32_t i = 0; i < c->node_count; i++) {
        (void)hlg_pump_step(c->nodes[i].pump);
        const int error = c->end.target   ? decode_turn(c, &c->nodes[i])
                          : c->queued > 0 ? admit(c)
                                          : 0;
        if (error < 0) {
            return error;
        }
    }
    return c->broken ? fail(c, "a session ended or a request failed", -HLG_EPEER) : 0;
}

static int core_join(struct perf_end *end, const struct perf_ready *other)
{
    (void)end;
    (void)other; /* HELLO carries the addresses */
    return 0;
}

static bool core_joined(const struct perf_end *end)
{
    const struct core *c = (const struct core *)end;

    return c->ups == end->arena->shape.peers;
}

static void core_begin(struct perf_end *end, uint64_t count)
{
    struct core *c = (struct core *)end;

    c->wanted += count * end->arena->shape.peers;
    for (uint32_t i = 0; end->target && i < c->node_count; i++) {
        c->nodes[i].left += count;
    }
}

static bool core_over(const struct perf_end *end)
{
    const struct core *c = (const struct core *)end;

    return c->done == c->wanted;
}

static void core_close(struct perf_end *end)
{
    struct core *c = (struct core *)end;

    for (uint32_t i = 0; i < c->node_count; i++) {
        hlg_pump_destroy(c->nodes[i].pump);
        perf_fabric_close(&c->nodes[i].fabric);
        free(c->nodes[i].places);
    }
    free(c);
}

int perf_core_channel(struct perf_end *end, struct hlg_channel *channel)
{
    struct core *c = (struct core *)end;
    uint32_t peer = 0;

    if (c->channels == end->arena->shape.peers) {
        channel->ops->close(channel);
        return fail(c, "one connection too many", -HLG_ELIMIT);
    }
    struct node *n = &c->nodes[end->target ? c->channels : 0];
    c->channels++;
    const int error = hlg_pump_channel(n->pump, channel, end->target, &peer);
    return error < 0 ? fail(c, "an endpoint cannot be opened", error) : 0;
}

static void set_limits(const struct perf_case *shape, bool target, struct hlg_limits *limits)
{
    const uint32_t requests = PERF_SLOTS * (target ? 1 : shape->peers);

    hlg_limits_default(limits);
    limits->peers_max = target ? 1 : shape->peers;
    limits->requests_max = 2 * requests;
    limits->lanes_max = 1;
    limits->rails_max = PERF_RAILS_MAX;
    limits->slices_max = 64;
    limits->forwards_max = hlg_max_u32(8, requests);
    limits->chunks_max = hlg_max_u32(64, 4 * requests);
    limits->ops_max = PIECES_MAX;
    limits->blocks_max = 2 * requests * hlg_div_ceil(shape->pages, HLG_BLOCK_PAGES) + 16;
    limits->prompt_bytes_max = 64;
    limits->message_bytes_max = PERF_FRAME_BYTES;
    limits->window_pieces = hlg_max_u32(limits->window_pieces, 2 * shape->window);
    limits->lease_ns = LEASE_NS;
}

static int open_node(struct core *c, uint32_t index, const struct perf_place *place, char *error)
{
    struct perf_arena *arena = c->end.arena;
    const struct perf_case *shape = &arena->shape;
    const struct hlg_pump_region region = {.memory = perf_arena_region(arena, index)};
    struct node *n = &c->nodes[index];
    struct hlg_limits limits;

    n->core = c;
    n->places = calloc(shape->layers, sizeof *n->places);
    if (n->places == NULL) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        return -HLG_ENOMEM;
    }
    const int rc = perf_fabric_open(shape, place, c->end.target, &n->fabric, error);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        n->places[layer] = (struct hlg_place){
            .layer = layer,
            .offset = (uint64_t)layer * arena->page_count * shape->page_bytes,
            .stride = shape->page_bytes,
        };
    }
    set_limits(shape, c->end.target, &limits);
    struct hlg_pump_config config = {.role = c->end.target ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL,
                                     .fabric = n->fabric.top,
                                     .regions = &region,
                                     .region_count = 1,
                                     .places = n->places,
                                     .place_count = shape->layers,
                                     .notice = take_notice,
                                     .context = n};
    if (c->end.target) {
        config.decode = (struct hlg_decode_config){.limits = limits,
                                                   .layout = c->layout,
                                                   .rails = shape->rails,
                                                   .node = 2 + index,
                                                   .incarnation = perf_now()};
    } else {
        config.prefill = (struct hlg_prefill_config){.limits = limits,
                                                     .layout = c->layout,
                                                     .rails = shape->rails,
                                                     .node = 1,
                                                     .incarnation = perf_now()};
    }
    return hlg_pump_create(&config, &n->pump, error, PERF_ERROR_BYTES);
}

int perf_core_open(struct perf_arena *arena, bool target, const struct perf_place *place,
                   struct perf_end **end, char *error)
{
    static const struct perf_end_ops ops = {.step = core_step,
                                            .join = core_join,
                                            .joined = core_joined,
                                            .begin = core_begin,
                                            .over = core_over,
                                            .close = core_close};
    struct core *c = calloc(1, sizeof *c);
    if (c == NULL) {
        (void)snprintf(error, PERF_ERROR_BYTES, "out of memory");
        return -HLG_ENOMEM;
    }
    c->end.ops = &ops;
    c->end.arena = arena;
    c->end.target = target;
    perf_arena_layout(arena, &c->layout);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < (target ? arena->shape.peers : 1); i++) {
        c->node_count++;
        rc = open_node(c, i, place, error);
    }
    if (rc != 0) {
        core_close(&c->end);
        return rc;
    }
    *end = &c->end;
    return 0;
}
