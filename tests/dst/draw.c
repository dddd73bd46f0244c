/* Everything that a seed decides beforehand: nodes, layouts, limits, and which faults there are. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts ------------------------------------------------------------------------------- */

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
    source->piece_bytes_max = chance(w, 300000) ? 4 + draw(w, 64) : 1u << 20;
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

/* Many nodes have few lanes each, so that no world takes much longer than the others. */
static void draw_small_layouts(struct world *w, struct hlg_layout *source,
                               struct hlg_layout *target)
{
    uint32_t lanes_max = w->node_count > 5 ? 6 : LANES_MAX;

    do {
        draw_layouts(w, source, target);
    } while (hlg_layout_lanes(source) > lanes_max || hlg_layout_lanes(target) > lanes_max);
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
        n->place_begin[lane] = n->place_count;
        for (uint32_t g = 0; g < n->layout.group_count; g++) {
            bool context = n->layout.groups[g].kind == HLG_GROUP_CONTEXT;
            uint64_t gap = is_on(n->world, KIND_DENSE) ? 0 : 3;
            uint64_t stride = hlg_layout_page_bytes(&n->layout, g) + gap;
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
    n->place_begin[n->lanes] = n->place_count;
    n->memory_bytes = bytes_max + 16;
    for (uint32_t lane = 0; lane < n->lanes; lane++) {
        n->memory[lane] = malloc(n->memory_bytes);
        if (n->memory[lane] == NULL) {
            return false;
        }
    }
    return n->places != NULL;
}

/* ---- faults and ways ------------------------------------------------------------------------ */

/* In how many worlds of a million each kind is on; the others of the list are on in all. */
static const struct {
    enum storm_kind kind;
    uint32_t ppm;
} kinds_of_worlds[] = {
    /* each of these in half of the worlds, so that they meet in all combinations */
    {KIND_DELAY, 500000},       {KIND_REORDER, 500000},     {KIND_DUPLICATE, 500000},
    {KIND_REFUSE, 500000},      {KIND_PARTIAL, 500000},     {KIND_FAIL_BEFORE, 250000},
    {KIND_FAIL_AFTER, 250000},  {KIND_FAIL_LATE, 250000},   {KIND_DROP, 250000},
    {KIND_KILL, 250000},        {KIND_BREAK, 250000},       {KIND_IMM_LATE, 300000},
    {KIND_IMM_STALE, 300000},   {KIND_FRAME_DELAY, 300000}, {KIND_FRAME_DROP, 150000},
    {KIND_FREEZE, 250000},      {KIND_PARTITION, 250000},   {KIND_HALF_OPEN, 250000},
    {KIND_SLOW, 250000},        {KIND_CLOCK_STALL, 250000}, {KIND_CLOCK_JUMP, 250000},
    {KIND_CLOSE_FAILS, 200000}, {KIND_REJECT, 800000},      {KIND_GIVE_UP, 800000},
    {KIND_ABORT, 800000},       {KIND_DEADLINE, 500000},    {KIND_DISCONNECT, 200000},
    {KIND_STRANGER, 200000},    {KIND_TWICE, 150000},       {KIND_DRAIN, 250000},
    {KIND_VERSION, 150000},     {KIND_SHARE, 500000},       {KIND_TINY, 200000},
    {KIND_FLUSH, 300000},       {KIND_LATE, 200000},        {KIND_FICKLE, 200000},
    {KIND_OLD_ADDRESS, 400000},
};

/* How many nodes, which kinds. What the case takes out is drawn all the same. */
static void draw_ways(struct world *w)
{
    static const uint32_t domains[] = {1, 2, 8, 8};
    bool many = chance(w, 250000);
    uint32_t prefillers = 1 + draw(w, many ? PREFILLERS_MAX : 2);
    uint32_t decoders = 1 + draw(w, many ? DECODERS_MAX : 3);

    w->prefillers = hlg_min_u32(prefillers, w->what.prefillers);
    w->decoders = hlg_min_u32(decoders, w->what.decoders);
    w->node_count = w->prefillers + w->decoders;
    w->domains = domains[draw(w, 4)];
    w->rails = 1 + draw(w, 2);
    for (uint32_t i = 0; i < sizeof kinds_of_worlds / sizeof kinds_of_worlds[0]; i++) {
        w->drawn |= chance(w, kinds_of_worlds[i].ppm) ? STORM_KIND(kinds_of_worlds[i].kind) : 0;
    }
    /* of a generator of its own: worlds are what they were before there was this kind */
    struct hlg_rng apart = hlg_rng_seed(~w->what.seed);
    w->drawn |= hlg_rng_chance(&apart, 350000) ? STORM_KIND(KIND_ACKNOWLEDGED) : 0;
    w->drawn |= hlg_rng_chance(&apart, 350000) ? STORM_KIND(KIND_DENSE) : 0;
    w->merge_bytes_max = 32 + (uint32_t)hlg_rng_below(&apart, 1024);
    w->drawn |= plant_kinds(w->what.plant);
    w->below = chance(w, 600000);
    w->on = w->drawn & ~w->what.without;
}

/* Sets of two or three prefillers that share the ranks; whoever is left over stays out. */
static void draw_share(struct world *w, const struct hlg_layout *source)
{
    uint32_t most = hlg_min_u32(hlg_min_u32(w->prefillers, 3), source->rank_limit);

    w->share = most > 1 ? 2 + draw(w, most - 1) : 1;
    if (!is_on(w, KIND_SHARE)) {
        w->share = 1;
    }
    w->sets = w->prefillers / w->share;
    w->prefillers = w->sets * w->share;
    w->node_count = w->prefillers + w->decoders;
    if (w->share == 1) {
        w->on &= ~STORM_KIND(KIND_SHARE);
    }
}

uint32_t draw_peers_max(const struct world *w, uint32_t lanes)
{
    /* all nodes of the other side in one domain, each twice while it is dialled again */
    return 2 * hlg_max_u32(w->prefillers, w->decoders) * lanes * w->rails;
}

static bool make_loop(struct world *w, uint32_t lanes)
{
    struct hlg_loop_config config;

    hlg_loop_config_default(&config);
    config.seed = w->what.seed;
    config.nodes = w->node_count;
    config.lanes = lanes;
    config.rails = w->rails;
    config.domains_max = w->domains + 2; /* the decorator closes some late */
    config.peers_max = draw_peers_max(w, lanes);
    config.regions_max = 2; /* one for the decorator's copies */
    config.pieces_max = 16 + draw(w, 256);
    config.cq_depth = 32u << draw(w, 4);
    if (w->what.plant == PLANT_WIDE_WINDOW) {
        config.pieces_max = 256;
        config.cq_depth = 32;
    }
    config.channels_max = 128;
    config.frames_max = 4 + draw(w, 60);
    config.room_bytes = 1u << 17;
    config.message_bytes_max = 1u << 16;
    config.kills_max = 3;
    config.stall_ns = 50 * HLG_NS_PER_MS;
    config.old_addresses = is_on(w, KIND_OLD_ADDRESS) || w->what.plant == PLANT_OLD_KEYS;
    config.acknowledged = is_on(w, KIND_ACKNOWLEDGED);
    config.merge_bytes_max = is_on(w, KIND_DENSE) ? w->merge_bytes_max : 0;
    config.old_keys = w->what.plant == PLANT_OLD_KEYS;
    faults_of_loop(w, &config.faults);
    return hlg_loop_create(&config, &w->loop) == 0;
}

/* ---- the world ------------------------------------------------------------------------------ */

static void describe(struct world *w, const struct hlg_layout *source,
                     const struct hlg_layout *target)
{
    char kinds[200];
    storm_kinds ways = w->on & ~(STORM_KIND(KIND_REJECT) - 1);

    kinds_text(ways, kinds, sizeof kinds);
    (void)snprintf(w->text, sizeof w->text,
                   "%u:%u nodes, share %u, tp %u:%u, stages %u:%u, pools %u:%u, heads %u, page %u, "
                   "layers %u, groups %u, rails %u, domains %u, %s",
                   w->prefillers, w->decoders, w->share, source->tp, target->tp, source->stages,
                   target->stages, source->pools, target->pools, source->groups[0].heads,
                   source->groups[0].page_tokens, source->layers, source->group_count, w->rails,
                   w->domains, kinds);
}

static bool make_node(struct world *w, uint32_t index, const struct hlg_layout *layout)
{
    struct node *n = &w->nodes[index];

    n->world = w;
    n->index = index;
    n->decode = index >= w->prefillers;
    n->layout = *layout;
    if (!n->decode) {
        uint32_t part = index % w->share;
        n->layout.rank_begin = layout->rank_limit * part / w->share;
        n->layout.rank_limit = layout->rank_limit * (part + 1) / w->share;
    }
    n->drain_at = HLG_TIME_NEVER;
    n->drain_until = HLG_TIME_NEVER;
    n->version = chance(w, 250000) && is_on(w, KIND_VERSION) ? 1 : 0;
    return lay_out(n);
}

bool draw_world(struct world *w)
{
    struct hlg_layout source;
    struct hlg_layout target;
    uint32_t lanes = 0;

    draw_ways(w);
    draw_small_layouts(w, &source, &target);
    draw_share(w, &source);
    for (uint32_t i = 0; i < w->node_count; i++) {
        if (!make_node(w, i, i < w->prefillers ? &source : &target)) {
            return false;
        }
        lanes = hlg_max_u32(lanes, w->nodes[i].lanes);
    }
    describe(w, &source, &target);
    if (!make_loop(w, lanes) || !faults_decorate(w, lanes)) {
        return false;
    }
    hlg_loop_on_landing(w->loop, check_landing, w);
    for (uint32_t i = 0; i < w->node_count; i++) {
        struct node *n = &w->nodes[i];
        node_start(n);
        life_plan(w, n, 0);
    }
    return true;
}
