/* A node: its layout's memory, its engine's free pages, its pump. */
#include "world.h"

#include <halage/log.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void world_break(struct world *w, enum storm_checker checker, const char *what, uint64_t a,
                 uint64_t b)
{
    if (w->broken == CHECK_NONE) {
        w->broken = checker;
        w->broken_text = what;
        w->broken_a = a;
        w->broken_b = b;
    }
}

void world_tell(struct world *w, const struct node *n, const char *format, ...)
{
    va_list list;

    if (!w->check) {
        return; /* a repetition: nobody reads it */
    }
    char *line = w->story[w->story_count++ % STORY_LINES];
    int bytes = snprintf(line, STORY_BYTES, "%llu us %c%u ",
                         (unsigned long long)(hlg_loop_now(w->loop) / 1000), n->decode ? 'D' : 'P',
                         n->index);

    va_start(list, format);
    (void)vsnprintf(line + bytes, STORY_BYTES - (size_t)bytes, format, list);
    va_end(list);
}

bool chance(struct world *w, uint32_t ppm)
{
    return draw(w, 1000000) < ppm;
}

bool mischief(struct world *w, enum storm_kind kind, uint32_t ppm)
{
    bool hit = chance(w, ppm) && !w->calm && is_on(w, kind);

    w->counts.net[kind] += hit;
    return hit;
}

uint32_t node_hosted(const struct node *n)
{
    return n->layout.rank_limit - n->layout.rank_begin;
}

hlg_time soon(struct world *w, hlg_time most)
{
    return 1 + (hlg_time)draw_u32(w) % most;
}

hlg_time give_up_time(struct world *w, uint32_t ppm)
{
    if (!mischief(w, KIND_GIVE_UP, is_on(w, KIND_FICKLE) ? 4 * ppm : ppm)) {
        return HLG_TIME_NEVER;
    }
    return hlg_loop_now(w->loop) + soon(w, 600000);
}

/* ---- pages -------------------------------------------------------------------------------- */

bool node_take(struct node *n, struct job *job, uint32_t group)
{
    uint32_t pool = job->pool;

    if (n->free_count[pool][group] < job->count[group]) {
        return false;
    }
    for (uint32_t i = 0; i < job->count[group]; i++) {
        uint32_t page = n->free_pages[pool][group][--n->free_count[pool][group]];
        job->pages[group][i] = page;
        n->pages[pool][group][page] = (struct page){.job = (uint8_t)(job - n->jobs),
                                                    .position = (uint8_t)(job->first[group] + i)};
    }
    return true;
}

/* Scribble over every byte that a page has on any lane: whoever still needs it will see. */
static void scrub(struct node *n, uint32_t pool, uint32_t group, uint32_t page)
{
    uint32_t ranks = node_hosted(n);

    for (uint32_t i = n->place_begin[pool * ranks]; i < n->place_begin[(pool + 1) * ranks]; i++) {
        const struct hlg_place *p = &n->places[i];
        if (p->group == group) {
            memset(n->memory[p->lane] + p->offset + page * p->stride, SCRIBBLE, p->stride);
        }
    }
}

void node_give(struct node *n, const struct job *job, uint32_t group)
{
    looked(n->world, CHECK_PAGES);
    for (uint32_t i = job->count[group]; i > 0; i--) {
        uint32_t page = job->pages[group][i - 1];
        struct page *known = &n->pages[job->pool][group][page];
        if (known->is_free || known->poisoned) {
            world_break(n->world, CHECK_PAGES, "a page was given back twice", group, page);
            return;
        }
        scrub(n, job->pool, group, page);
        *known = (struct page){.is_free = true};
        n->free_pages[job->pool][group][n->free_count[job->pool][group]++] = page;
    }
}

void node_poison(struct node *n, const struct job *job, uint32_t group)
{
    for (uint32_t i = 0; i < job->count[group]; i++) {
        n->pages[job->pool][group][job->pages[group][i]] = (struct page){.poisoned = true};
    }
}

struct page *node_find_page(struct node *n, uint32_t lane, uint64_t offset,
                            const struct hlg_place **place, uint32_t *page)
{
    for (uint32_t i = n->place_begin[lane]; i < n->place_begin[lane + 1]; i++) {
        const struct hlg_place *p = &n->places[i];
        uint64_t limit = p->offset + p->stride * n->layout.groups[p->group].page_count;
        if (offset >= p->offset && offset < limit) {
            *place = p;
            *page = (uint32_t)((offset - p->offset) / p->stride);
            return &n->pages[lane / node_hosted(n)][p->group][*page];
        }
    }
    return NULL;
}

static void fill_pools(struct node *n)
{
    memset(n->pages, 0, sizeof n->pages);
    for (uint32_t pool = 0; pool < n->layout.pools; pool++) {
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            uint32_t pages = n->layout.groups[g].page_count;
            for (uint32_t page = 0; page < pages; page++) {
                n->pages[pool][g][page].is_free = true;
                /* the last ones go first: upward where rows are wanted */
                n->free_pages[pool][g][page] =
                    is_on(n->world, KIND_DENSE) ? pages - 1 - page : page;
            }
            n->free_count[pool][g] = pages;
        }
    }
}

/* ---- what the pump tells ------------------------------------------------------------------- */

static void remember(struct node *n, const struct hlg_notice *notice)
{
    const uint64_t facts[] = {n->index,        notice->kind,   notice->peer,
                              notice->request, notice->reason, hlg_loop_now(n->world->loop)};

    for (uint32_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        n->world->hash = (n->world->hash ^ facts[i]) * 0x100000001b3u;
    }
}

/* Strangers, and dials again and again over a link of which one end hears nothing, fill a node's table of peers.
 * From the calm on what is silent ends with its lease, and its place is free one fence later. */
static bool may_be_full(const struct world *w)
{
    bool crowded = is_on(w, KIND_STRANGER) || is_on(w, KIND_PARTITION) ||
                   is_on(w, KIND_HALF_OPEN) || is_on(w, KIND_FREEZE) || is_on(w, KIND_FRAME_DROP);

    return crowded && (!w->calm || hlg_loop_now(w->loop) <= w->calm_at + LEASE_NS + FENCE_NS);
}

static void on_peer(struct node *n, const struct hlg_notice *notice)
{
    struct world *w = n->world;
    uint32_t other = n->node_of[notice->peer];

    if (other == HLG_NONE) {
        return; /* a stranger */
    }
    bool same = n->version_of[notice->peer] == n->version;
    bool model =
        notice->kind == HLG_NOTICE_PEER_REFUSED && notice->refusal.code == HLG_REFUSAL_FINGERPRINT;
    looked(w, CHECK_PEER);
    if (notice->kind == HLG_NOTICE_PEER_UP) {
        n->peer_up[other] = true;
        if (!same) {
            world_break(w, CHECK_PEER, "nodes of two models have a session", n->index, other);
        }
        return;
    }
    w->counts.net[KIND_VERSION] += model;
    bool full = notice->refusal.code == HLG_REFUSAL_FULL && may_be_full(w);
    if (notice->kind == HLG_NOTICE_PEER_REFUSED && notice->refusal.code != HLG_REFUSAL_TRANSPORT &&
        !full && !(model && !same)) {
        world_break(w, CHECK_PEER, "peers that are fit for each other were refused",
                    notice->refusal.code, n->index);
    }
    if (n->peer_of[other] == notice->peer) {
        n->peer_of[other] = HLG_NONE;
        n->peer_up[other] = false;
        n->dial_at[other] = hlg_loop_now(w->loop) + soon(w, 5000000);
    }
}

static void tell_engine(struct node *n, const struct hlg_notice *notice)
{
    if (n->decode) {
        decode_notice(n, notice);
    } else {
        prefill_notice(n, notice);
    }
}

static void on_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;
    struct world *w = n->world;
    bool terminal = notice->kind == HLG_NOTICE_READY || notice->kind == HLG_NOTICE_FAILED;

    remember(n, notice);
    world_tell(w, n, "%s peer %d request %llx reason %s", hlg_notice_text(notice->kind),
               (int)notice->peer, (unsigned long long)notice->request,
               hlg_reason_text(notice->reason));
    switch (notice->kind) {
    case HLG_NOTICE_PEER_UP:
    case HLG_NOTICE_PEER_DOWN:
    case HLG_NOTICE_PEER_REFUSED:
        on_peer(n, notice);
        return;
    case HLG_NOTICE_PEER_DRAINING:
        return;
    default:
        tell_engine(n, notice);
        if (w->what.plant == PLANT_NOTICE_TWICE && terminal && w->broken == CHECK_NONE) {
            tell_engine(n, notice);
        }
        return;
    }
}

static void on_note(void *context, const struct hlg_note *note)
{
    struct node *n = context;
    char line[HLG_NOTE_TEXT_BYTES];

    HLG_ASSERT(note->code < 64);
    n->world->counts.notes[note->code]++;
    (void)hlg_note_text(note, line, sizeof line);
    world_tell(n->world, n, "note %s", line);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void small_limits(struct hlg_limits *limits, const struct node *n)
{
    const uint64_t seed = n->world->what.seed;

    hlg_limits_default(limits);
    limits->peers_max = PEERS_MAX;
    limits->requests_max = REQUESTS_MAX;
    limits->sources_max = PREFILLERS_MAX;
    limits->lanes_max = LANES_MAX;
    limits->rails_max = 2;
    limits->slices_max = 2048;
    limits->forwards_max = FORWARDS_MAX + 1;
    limits->chunks_max = 64;
    limits->ops_max = 8 + (uint32_t)(seed % 64);
    limits->blocks_max = 256;
    limits->prompt_bytes_max = 64;
    limits->message_bytes_max = 1u << 16;
    limits->window_pieces = 4 + (uint32_t)(seed % 120);
    limits->lease_ns = LEASE_NS;
    limits->heartbeat_ns = HEARTBEAT_NS;
    limits->fence_ns = FENCE_NS;
    if (is_on(n->world, KIND_TINY)) {
        limits->requests_max = 2 + (uint32_t)(seed % 3);
        limits->chunks_max = 1 + (uint32_t)(seed % 4);
        limits->ops_max = 1 + (uint32_t)(seed % 3);
        limits->blocks_max = HLG_GROUPS_MAX;
        limits->window_pieces = 2 + (uint32_t)(seed % 3);
    }
    if (n->world->what.plant == PLANT_WIDE_WINDOW) {
        limits->ops_max = 72;
        limits->window_pieces = 250;
    }
}

static void begin_trace(struct node *n)
{
    const char *directory = n->world->what.trace;
    char path[512];
    char error[256] = "";

    n->starts++;
    if (directory == NULL) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/seed-%llu-%s-%u-start-%u.trace", directory,
                   (unsigned long long)n->world->what.seed, n->decode ? "decode" : "prefill",
                   n->index, n->starts);
    if (hlg_trace_create(path, &n->trace, error, sizeof error) != 0) {
        (void)fprintf(stderr, "halage-storm: %s\n", error);
        n->trace = NULL;
    }
}

static int make_pump(struct node *n, struct hlg_fabric *fabric)
{
    struct hlg_pump_region regions[LANES_MAX];
    struct hlg_pump_config config = {.role = n->decode ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL,
                                     .fabric = fabric,
                                     .regions = regions,
                                     .region_count = n->lanes,
                                     .places = n->places,
                                     .place_count = n->place_count,
                                     .notice = on_notice,
                                     .note = on_note,
                                     .context = n,
                                     .trace = n->trace};
    uint8_t version = n->world->what.plant == PLANT_ONE_MODEL ? 0 : n->version;
    char error[256] = "";

    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        regions[lane] = (struct hlg_pump_region){
            .lane = lane, .memory = HLG_MEM_HOST(n->memory[lane], n->memory_bytes)};
    }
    if (n->decode) {
        config.decode = (struct hlg_decode_config){.layout = n->layout,
                                                   .rails = fabric->rails,
                                                   .node = n->index + 1,
                                                   .incarnation = n->incarnation,
                                                   .fingerprint = {version},
                                                   .flush = is_on(n->world, KIND_FLUSH)};
        config.flusher = device_start(n);
        small_limits(&config.decode.limits, n);
    } else {
        config.prefill = (struct hlg_prefill_config){.layout = n->layout,
                                                     .rails = fabric->rails,
                                                     .node = n->index + 1,
                                                     .incarnation = n->incarnation,
                                                     .fingerprint = {version}};
        small_limits(&config.prefill.limits, n);
    }
    return hlg_pump_create(&config, &n->pump, error, sizeof error);
}

void node_start(struct node *n)
{
    struct world *w = n->world;

    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        memset(n->memory[lane], SCRIBBLE, n->memory_bytes);
    }
    n->incarnation = ++w->uid;
    fill_pools(n);
    memset(n->slot_uid, 0, sizeof n->slot_uid);
    n->poisonings = 0;
    n->draining = false;
    n->drain_at = HLG_TIME_NEVER;
    n->drain_until = HLG_TIME_NEVER;
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        n->peer_of[i] = HLG_NONE;
        n->peer_up[i] = false;
    }
    begin_trace(n);
    struct hlg_fabric *fabric = tap_open(n, n->fabric);
    if (fabric == NULL || make_pump(n, fabric) != 0) {
        world_break(w, CHECK_CALL, "the pump could not be made", n->index, 0);
        return;
    }
    n->alive = true;
    world_tell(w, n, "starts as incarnation %llu of model %u", (unsigned long long)n->incarnation,
               n->version);
}

void node_stop(struct node *n)
{
    n->device.ends = true;
    hlg_pump_destroy(n->pump);
    n->device.count = 0;
    n->pump = NULL;
    tap_close(n);
    (void)hlg_trace_destroy(n->trace); /* a full disk: the trace is cut, the run is not */
    n->trace = NULL;
    n->alive = false;
}
