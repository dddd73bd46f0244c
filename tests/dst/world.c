/* One seed: what is drawn, how time passes, what must hold at the end. */
#include "world.h"

#include <halage/transport/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALM_NS   (20 * HLG_NS_PER_S) /* virtual; everything must come to rest within it */
#define STEPS_MAX 1000000u

/* ---- drawing ------------------------------------------------------------------------------ */

/* A TP size that goes with the heads: one divides the other. */
static uint32_t draw_tp(struct world *w, uint32_t heads)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8};

    for (;;) {
        uint32_t tp = sizes[draw(w, 6)];
        if (tp % heads == 0 || heads % tp == 0) {
            return tp;
        }
    }
}

static void draw_stages(struct world *w, struct hlg_layout *layout, uint32_t stages)
{
    layout->stages = stages;
    for (uint32_t s = 0; s + 1 < stages; s++) {
        uint32_t begin = s == 0 ? 0 : layout->stage_limit[s - 1];
        layout->stage_limit[s] = begin + draw(w, layout->layers - begin + 1);
    }
    layout->stage_limit[stages - 1] = layout->layers;
}

static void draw_groups(struct world *w, struct hlg_layout *layout, uint32_t heads)
{
    uint32_t page_tokens = 1u << draw(w, 4);
    bool two = layout->layers > 1 && chance(w, 300000);

    layout->group_count = two ? 2 : 1;
    for (uint32_t g = 0; g < layout->group_count; g++) {
        layout->groups[g] = (struct hlg_group){.kind = HLG_GROUP_PAGED,
                                               .planes = 1 + draw(w, 2),
                                               .heads = heads,
                                               .head_bytes = 1 + draw(w, 12),
                                               .page_tokens = page_tokens,
                                               .arrangement = draw(w, 2),
                                               .page_count = PAGES_MAX};
        for (uint32_t layer = 0; layer < layout->layers; layer++) {
            if (!two || layer % 2 == g) {
                layout->groups[g].layers[0] |= 1ull << layer;
            }
        }
    }
    if (chance(w, 800000)) {
        layout->groups[layout->group_count++] =
            (struct hlg_group){.kind = HLG_GROUP_CONTEXT,
                               .planes = 1,
                               .heads = chance(w, 700000) ? 1 : heads,
                               .head_bytes = 1 + draw(w, 24),
                               .page_tokens = 1,
                               .page_count = 8};
    }
}

/* Two layouts that can be planned: the model in common, sharding and pools each side's own. */
static void draw_layouts(struct world *w, struct hlg_layout *source, struct hlg_layout *target)
{
    static const uint32_t head_counts[] = {1, 2, 4, 6, 8};
    uint32_t heads = head_counts[draw(w, 5)];

    memset(source, 0, sizeof *source);
    source->layers = 1 + draw(w, 4);
    source->piece_bytes_max = chance(w, 300000) ? 1 + draw(w, 64) : 1u << 20;
    source->all_reduce = draw(w, 2);
    draw_groups(w, source, heads);
    *target = *source;
    source->tp = draw_tp(w, heads);
    target->tp = draw_tp(w, heads);
    draw_stages(w, source, 1u + (source->tp <= 4 && chance(w, 300000) ? 1u : 0u));
    draw_stages(w, target, 1u + (target->tp <= 4 && chance(w, 200000) ? 1u : 0u));
    source->pools = source->tp * source->stages <= 4 ? 1 + draw(w, 2) : 1;
    target->pools = target->tp * target->stages <= 4 ? 1 + draw(w, 3) : 1;
    source->rank_limit = source->tp * source->stages;
    target->rank_limit = target->tp * target->stages;
}

static void draw_faults(struct world *w, struct hlg_loop_faults *f)
{
    /* each kind in half of the worlds, so that they meet in all combinations */
    *f = (struct hlg_loop_faults){
        .delay_ppm = chance(w, 500000) ? 50000 : 0,
        .reorder_ppm = chance(w, 500000) ? 100000 : 0,
        .duplicate_ppm = chance(w, 500000) ? 50000 : 0,
        .refuse_ppm = chance(w, 500000) ? 30000 : 0,
        .partial_ppm = chance(w, 500000) ? 200000 : 0,
        .fail_before_ppm = chance(w, 250000) ? 1500 : 0,
        .fail_after_ppm = chance(w, 250000) ? 1500 : 0,
        .drop_ppm = chance(w, 250000) ? 1000 : 0,
        .kill_ppm = chance(w, 250000) ? 3000 : 0,
        .break_ppm = chance(w, 250000) ? 10000 : 0,
        .delay_ns_max = 2 * HLG_NS_PER_MS,
        .refuse_ns_max = HLG_NS_PER_MS,
        .kill_ns_max = HLG_NS_PER_MS,
    };
}

static bool make_loop(struct world *w, uint32_t lanes, uint32_t rails)
{
    struct hlg_loop_config config;

    hlg_loop_config_default(&config);
    config.seed = w->seed;
    config.nodes = w->node_count;
    config.lanes = lanes;
    config.rails = rails;
    config.domains_max = w->domains;
    config.peers_max = NODES_MAX * LANES_MAX * 2;
    config.regions_max = 1;
    config.pieces_max = 16 + draw(w, 256);
    config.cq_depth = 1u << 14;
    config.channels_max = 64;
    config.frames_max = 4 + draw(w, 60);
    config.room_bytes = 1u << 17;
    config.message_bytes_max = 1u << 16;
    config.kills_max = 3;
    config.stall_ns = 50 * HLG_NS_PER_MS;
    draw_faults(w, &config.faults);
    return hlg_loop_create(&config, &w->loop) == 0;
}

/* Each lane's region: for each group, layer and plane that its rank holds, the pages in a row. */
static bool lay_out(struct node *n)
{
    uint32_t ranks = node_hosted(n);
    uint64_t bytes_max = 0;

    n->lanes = ranks * n->layout.pools;
    n->places = calloc((size_t)n->lanes * 32, sizeof *n->places);
    for (uint32_t lane = 0; lane < n->lanes && n->places != NULL; lane++) {
        uint32_t stage = (n->layout.rank_begin + lane % ranks) / n->layout.tp;
        uint64_t offset = 16;
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            bool context = n->layout.groups[g].kind == HLG_GROUP_CONTEXT;
            uint64_t stride = hlg_layout_page_bytes(&n->layout, g) + 3; /* pages with gaps */
            for (uint32_t layer = 0; layer <= n->layout.layers; layer++) {
                bool holds = layer == n->layout.layers
                                 ? context && stage + 1 == n->layout.stages
                                 : layer >= hlg_layout_layer_begin(&n->layout, stage) &&
                                       layer < n->layout.stage_limit[stage] &&
                                       hlg_group_has_layer(&n->layout.groups[g], layer);
                for (uint32_t plane = 0; holds && plane < n->layout.groups[g].planes; plane++) {
                    n->places[n->place_count++] = (struct hlg_place){.lane = lane,
                                                                     .group = g,
                                                                     .layer = layer,
                                                                     .plane = plane,
                                                                     .offset = offset,
                                                                     .stride = stride};
                    offset += stride * n->layout.groups[g].page_count;
                }
            }
        }
        bytes_max = offset > bytes_max ? offset : bytes_max;
    }
    n->memory_bytes = bytes_max + 16;
    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        n->memory[lane] = malloc(n->memory_bytes);
        if (n->memory[lane] == NULL) {
            return false;
        }
    }
    return n->places != NULL;
}

/* ---- the checker at the moment of landing ------------------------------------------------- */

static void check_target(struct world *w, const struct hlg_loop_landing *landing)
{
    struct node *n = &w->nodes[landing->target_node];
    uint32_t pool = 0;
    uint32_t group = 0;
    uint32_t page = 0;
    uint32_t last = 0;
    hlg_handle owner = 0;

    if (!node_find_page(n, landing->target_lane, landing->target_offset, &pool, &group, &page) ||
        !node_find_page(n, landing->target_lane, landing->target_offset + landing->bytes - 1, &pool,
                        &group, &last) ||
        page != last) {
        world_break(w, "bytes landed outside of any page", landing->target_offset, landing->bytes);
        return;
    }
    if (n->is_free[pool][group][page]) {
        world_break(w, "bytes landed in a page that its engine holds free", group, page);
        return;
    }
    /* whom the machine holds to be the owner: not asked inside of its own event */
    (void)owner;
}

static void check_source(struct world *w, const struct hlg_loop_landing *landing)
{
    struct node *n = &w->nodes[landing->source_node];

    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        if (landing->source < n->memory[lane] ||
            landing->source >= n->memory[lane] + n->memory_bytes) {
            continue;
        }
        uint32_t pool = 0;
        uint32_t group = 0;
        uint32_t page = 0;
        uint64_t offset = (uint64_t)(landing->source - n->memory[lane]);
        if (!node_find_page(n, lane, offset, &pool, &group, &page) ||
            n->is_free[pool][group][page]) {
            world_break(w, "bytes were read from a source page that was given back", group, page);
        }
        return;
    }
    world_break(w, "bytes were read from nowhere", landing->source_node, 0);
}

static void on_landing(void *context, const struct hlg_loop_landing *landing)
{
    struct world *w = context;

    w->counts.landings++;
    check_target(w, landing);
    if (landing->source != NULL) {
        check_source(w, landing);
    }
}

/* ---- running ------------------------------------------------------------------------------ */

/* Decoders dial prefillers that they have no session with. */
static void dial(struct world *w, struct node *d, uint32_t other, hlg_time now)
{
    struct node *p = &w->nodes[other];
    struct hlg_channel *ours = NULL;
    struct hlg_channel *theirs = NULL;
    uint32_t peer = 0;

    if (!d->alive || !p->alive || d->peer_of[other] != HLG_NONE || d->dial_at[other] > now) {
        return;
    }
    d->dial_at[other] = now + 5 * HLG_NS_PER_MS;
    if (hlg_loop_channel_pair(w->loop, d->index, other, &ours, &theirs) != 0) {
        return;
    }
    if (hlg_pump_channel(d->pump, ours, true, &peer) == 0) {
        d->peer_of[other] = peer;
        d->node_of[peer] = other;
    }
    if (hlg_pump_channel(p->pump, theirs, false, &peer) == 0) {
        p->node_of[peer] = d->index;
    }
}

/* Somebody connects, says nothing and goes: nobody else may notice. */
static void bother(struct world *w, struct node *n, hlg_time now)
{
    struct hlg_channel *ours = NULL;
    struct hlg_channel *theirs = NULL;
    uint32_t other = (n->index + 1) % w->node_count;
    uint32_t peer = 0;

    if (!w->strangers || w->calm || n->stranger_at > now) {
        return;
    }
    n->stranger_at = now + soon(w, HLG_NS_PER_MS);
    if (hlg_loop_channel_pair(w->loop, other, n->index, &ours, &theirs) != 0) {
        return;
    }
    if (hlg_pump_channel(n->pump, theirs, false, &peer) == 0) {
        n->node_of[peer] = HLG_NONE;
    }
    ours->ops->close(ours);
}

/* An engine ends a session for no reason that we know. */
static void leave(struct world *w, struct node *n)
{
    uint32_t other = draw(w, w->prefillers);

    if (w->strangers && !w->calm && n->decode && n->peer_up[other] && chance(w, 500)) {
        struct hlg_event event = {.kind = HLG_EVENT_DISCONNECT,
                                  .peer = {.peer = n->peer_of[other]}};
        if (hlg_pump_event(n->pump, &event) != 0) {
            world_break(w, "DISCONNECT was refused", n->index, other);
        }
    }
}

static void check_deaths(struct world *w, hlg_time now)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct node *n = &w->nodes[i];
        if (n->alive && !hlg_loop_alive(w->loop, i)) {
            n->alive = false;
            n->restart_at = now + soon(w, 30 * HLG_NS_PER_MS);
            memset(n->is_free, 0, sizeof n->is_free); /* what was on the way may still land */
        } else if (!n->alive && n->restart_at <= now) {
            node_stop(n);
            hlg_loop_restart(w->loop, i);
            n->decode ? decode_died(n) : prefill_died(n);
            memset(n->poisoned, 0, sizeof n->poisoned);
            node_start(n);
            w->counts.restarts++;
        }
    }
}

static void act(struct world *w, hlg_time now)
{
    check_deaths(w, now);
    for (uint32_t i = 0; i < w->node_count && w->broken == NULL; i++) {
        struct node *n = &w->nodes[i];
        if (!n->alive) {
            continue;
        }
        bother(w, n, now);
        leave(w, n);
        for (uint32_t other = 0; n->decode && other < w->prefillers; other++) {
            dial(w, n, other, now);
        }
        if (n->decode) {
            decode_act(n, now);
        } else {
            prefill_act(n, now);
        }
        while (w->broken == NULL && hlg_pump_step(n->pump) > 0) {
        }
        if (w->check) {
            hlg_pump_check(n->pump);
        }
    }
}

static hlg_time next_time(const struct world *w)
{
    hlg_time next = hlg_loop_next_time(w->loop);

    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->alive) {
            next = hlg_min_time(next, n->restart_at);
            continue;
        }
        next = hlg_min_time(next, hlg_pump_deadline(n->pump));
        next = hlg_min_time(next, n->decode ? decode_next(n) : prefill_next(n));
        for (uint32_t other = 0; n->decode && other < w->prefillers; other++) {
            if (n->peer_of[other] == HLG_NONE && w->nodes[other].alive) {
                next = hlg_min_time(next, n->dial_at[other]);
            }
        }
    }
    return next;
}

static bool at_rest(const struct world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->alive || hlg_pump_open(n->pump) > 0) {
            return false;
        }
        for (uint32_t k = 0; k < REQUESTS_MAX; k++) {
            if (n->jobs[k].used) {
                return false;
            }
        }
    }
    return w->submits_left == 0;
}

/* Nothing is open: every page of every pool must be free again, or poisoned and said to be. */
static void check_rest(struct world *w)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct node *n = &w->nodes[i];
        for (uint32_t pool = 0; pool < n->layout.pools; pool++) {
            for (uint32_t g = 0; g < n->layout.group_count; g++) {
                if (w->counts.poisoned == 0 &&
                    n->free_count[pool][g] != n->layout.groups[g].page_count) {
                    world_break(w, "pages were lost", i, g);
                }
            }
        }
    }
}

/* What is open, and when each node wants to go on: the first thing to read of a storm that hangs. */
static void print_open(const struct world *w, hlg_time now)
{
    for (uint32_t i = 0; i < w->node_count; i++) {
        const struct node *n = &w->nodes[i];
        uint32_t jobs = 0;
        for (uint32_t k = 0; k < REQUESTS_MAX; k++) {
            jobs += n->jobs[k].used;
        }
        printf("node %u: alive %d jobs %u", i, n->alive, jobs);
        if (n->alive) {
            printf(" open %u, wants time in %lld ns (engine %lld)", hlg_pump_open(n->pump),
                   (long long)(hlg_pump_deadline(n->pump) - now),
                   (long long)((n->decode ? decode_next(n) : prefill_next(n)) - now));
        }
        for (uint32_t k = 0; n->decode && k < w->prefillers; k++) {
            printf(", peer %u %d up %d dials in %lld", k, (int)n->peer_of[k], n->peer_up[k],
                   (long long)(n->dial_at[k] - now));
        }
        printf("\n");
    }
}

static void run(struct world *w)
{
    static const struct hlg_loop_faults none = {0};
    hlg_time calm_at = HLG_TIME_NEVER;

    for (uint64_t step = 0; w->broken == NULL; step++) {
        hlg_time now = hlg_loop_now(w->loop);
        act(w, now);
        w->counts.steps = step;
        if (w->submits_left <= 20 && !w->calm) {
            w->calm = true;
            calm_at = now;
            hlg_loop_faults(w->loop, &none);
        }
        if (w->calm && at_rest(w)) {
            check_rest(w);
            return;
        }
        if (step > STEPS_MAX || (w->calm && now > calm_at + CALM_NS)) {
            world_break(w, "no rest within the bound", step, now);
            print_open(w, now);
            return;
        }
        hlg_time next = next_time(w);
        if (next == HLG_TIME_NEVER) {
            world_break(w, "nothing is due, yet something is open", step, now);
            return;
        }
        if (hlg_loop_next_time(w->loop) <= next) {
            hlg_loop_step(w->loop);
        } else {
            hlg_loop_advance_to(w->loop, next > now ? next : now + 1);
        }
    }
}

/* Half of the ranks each, or as near as that goes. */
static void split_ranks(struct world *w, struct hlg_layout *layout, uint32_t prefiller)
{
    uint32_t half = layout->rank_limit / 2;

    HLG_ASSERT(w->split && prefiller < 2 && half > 0);
    if (prefiller == 0) {
        layout->rank_limit = half;
    } else {
        layout->rank_begin = half;
    }
}

static void draw_ways(struct world *w, const struct hlg_layout *source)
{
    static const uint32_t domains[] = {1, 2, 8, 8};

    w->prefillers = 1 + draw(w, PREFILLERS_MAX);
    w->decoders = 1 + draw(w, DECODERS_MAX);
    w->domains = domains[draw(w, 4)];
    w->split = w->prefillers == 2 && source->rank_limit > 1 && chance(w, 500000);
    w->tiny = chance(w, 200000);
    w->flush = chance(w, 300000);
    w->late = chance(w, 200000);
    w->fickle = chance(w, 200000);
    w->strangers = chance(w, 200000);
    w->node_count = w->prefillers + w->decoders;
}

static bool make(struct world *w)
{
    struct hlg_layout source;
    struct hlg_layout target;
    uint32_t rails = 1 + draw(w, 2);
    uint32_t lanes = 0;

    draw_layouts(w, &source, &target);
    draw_ways(w, &source);
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct node *n = &w->nodes[i];
        n->world = w;
        n->index = i;
        n->decode = i >= w->prefillers;
        n->layout = n->decode ? target : source;
        if (w->split && !n->decode) {
            split_ranks(w, &n->layout, i);
        }
        if (!lay_out(n)) {
            return false;
        }
        lanes = hlg_max_u32(lanes, n->lanes);
    }
    (void)snprintf(w->text, sizeof w->text,
                   "%u:%u nodes, tp %u:%u, stages %u:%u, pools %u:%u, heads %u, page %u, "
                   "layers %u, groups %u, rails %u, domains %u%s%s%s%s%s%s",
                   w->prefillers, w->decoders, source.tp, target.tp, source.stages, target.stages,
                   source.pools, target.pools, source.groups[0].heads, source.groups[0].page_tokens,
                   source.layers, source.group_count, rails, w->domains, w->split ? ", split" : "",
                   w->tiny ? ", tiny" : "", w->flush ? ", flush" : "", w->late ? ", late" : "",
                   w->fickle ? ", fickle" : "", w->strangers ? ", strangers" : "");
    if (!make_loop(w, lanes, rails)) {
        return false;
    }
    hlg_loop_on_landing(w->loop, on_landing, w);
    for (uint32_t i = 0; i < w->node_count; i++) {
        node_start(&w->nodes[i]);
    }
    return true;
}

int storm_run(uint64_t seed, uint64_t plant, struct world *w, uint64_t *hash,
              struct hlg_loop_stats *faults)
{
    memset(w, 0, sizeof *w);
    w->check = faults != NULL;
    w->seed = seed;
    w->plant = plant;
    w->rng = hlg_rng_seed(seed);
    w->submits_left = 60;
    if (make(w)) {
        run(w);
    } else {
        world_break(w, "the world could not be made", seed, 0);
    }
    *hash = w->loop != NULL ? hlg_loop_trace_hash(w->loop) : 0;
    if (w->loop != NULL && faults != NULL) {
        hlg_loop_stats(w->loop, faults);
    }
    for (uint32_t i = 0; i < w->node_count; i++) {
        if (w->nodes[i].pump != NULL) {
            node_stop(&w->nodes[i]);
        }
    }
    hlg_loop_destroy(w->loop);
    for (uint32_t i = 0; i < w->node_count; i++) {
        for (uint32_t lane = 0; lane < w->nodes[i].lanes; lane++) {
            free(w->nodes[i].memory[lane]);
        }
        free(w->nodes[i].places);
    }
    return w->broken != NULL;
}
