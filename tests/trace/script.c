/* The script: who asks whom for what, and how it ends. */
#include "samecore.h"

#include "../../src/driver/rng.h"
#include <halage/handoff.h>
#include <string.h>

#define PAGE_TOKENS 4u

struct shape {
    uint32_t tp;
    uint32_t stages;
    uint32_t pools;
};

static const struct model {
    const char *name;
    uint32_t heads;
    uint32_t planes;
    uint32_t arrangement;
    uint32_t piece_bytes_max;
    uint32_t paged_groups;
    bool context;
    bool all_reduce;
    struct shape shapes[NODES];
} models[SCENES] = {
    {.name = "equal TP, HND",
     .heads = 2,
     .planes = 2,
     .arrangement = HLG_HND,
     .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
     .paged_groups = 1,
     .context = true,
     .all_reduce = true,
     .shapes = {{2, 1, 1}, {2, 1, 1}, {2, 1, 1}, {2, 1, 1}, {2, 1, 1}}},
    {.name = "GQA, unequal TP, HND",
     .heads = 4,
     .planes = 2,
     .arrangement = HLG_HND,
     .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
     .paged_groups = 1,
     .context = true,
     .all_reduce = true,
     .shapes = {{4, 1, 1}, {2, 1, 2}, {2, 1, 1}, {1, 1, 2}, {4, 1, 1}}},
    {.name = "GQA, unequal TP, NHD, no context",
     .heads = 4,
     .planes = 2,
     .arrangement = HLG_NHD,
     .piece_bytes_max = 24,
     .paged_groups = 1,
     .context = false,
     .all_reduce = false,
     .shapes = {{2, 1, 1}, {4, 1, 1}, {4, 1, 1}, {2, 1, 2}, {1, 1, 1}}},
    {.name = "MLA, replica sets, DP decode",
     .heads = 1,
     .planes = 1,
     .arrangement = HLG_HND,
     .piece_bytes_max = HLG_PIECE_BYTES_DEFAULT,
     .paged_groups = 1,
     .context = true,
     .all_reduce = true,
     .shapes = {{4, 1, 1}, {2, 1, 2}, {1, 1, 4}, {2, 1, 2}, {4, 1, 1}}},
    {.name = "two groups, pipeline stages, context",
     .heads = 2,
     .planes = 2,
     .arrangement = HLG_HND,
     .piece_bytes_max = 48,
     .paged_groups = 2,
     .context = true,
     .all_reduce = true,
     .shapes = {{2, 2, 1}, {1, 2, 1}, {2, 1, 1}, {1, 1, 2}, {2, 2, 1}}},
};

static uint32_t draw(struct hlg_rng *rng, uint32_t limit)
{
    return (uint32_t)hlg_rng_below(rng, limit);
}

/* ---- Layouts ---- */

static void lay_out(struct hlg_layout *layout, const struct model *model, const struct shape *shape,
                    uint32_t slots)
{
    *layout = (struct hlg_layout){.tp = shape->tp,
                                  .stages = shape->stages,
                                  .pools = shape->pools,
                                  .layers = 3,
                                  .rank_limit = shape->tp * shape->stages,
                                  .all_reduce = model->all_reduce,
                                  .piece_bytes_max = model->piece_bytes_max,
                                  .group_count = model->paged_groups};
    layout->stage_limit[0] = shape->stages == 1 ? 3 : 2;
    layout->stage_limit[shape->stages - 1] = 3;
    for (uint32_t g = 0; g < model->paged_groups; g++) {
        layout->groups[g] = (struct hlg_group){.kind = HLG_GROUP_PAGED,
                                               .planes = model->planes,
                                               .heads = model->heads,
                                               .head_bytes = 16,
                                               .page_tokens = PAGE_TOKENS >> g,
                                               .arrangement = model->arrangement,
                                               .page_count = slots * PAGES_MAX};
        /* one group: all layers; two: the middle one apart */
        layout->groups[g].layers[0] = model->paged_groups == 1 ? 7 : g == 0 ? 5 : 2;
    }
    if (model->context) {
        layout->groups[layout->group_count++] = (struct hlg_group){.kind = HLG_GROUP_CONTEXT,
                                                                   .planes = 1,
                                                                   .heads = 1,
                                                                   .head_bytes = 40,
                                                                   .page_tokens = 1,
                                                                   .page_count = slots * PAGES_MAX};
    }
}

/* ---- Requests ---- */

static enum fate draw_fate(struct hlg_rng *rng, uint32_t index)
{
    /* each of the rare ends once in ten requests, so that every scene has all of them */
    static const enum fate rare[] = {FATE_LOCAL,      FATE_REJECTED, FATE_CANCEL_ASKED,
                                     FATE_CANCEL_CUT, FATE_GIVEN_UP, FATE_ABORTED};
    uint32_t turn = index % 5;

    if (turn == 1 && index / 5 < sizeof rare / sizeof rare[0]) {
        return rare[index / 5];
    }
    return draw(rng, 12) == 0 ? FATE_CANCEL_ASKED : FATE_READY;
}

static void draw_prefixes(struct hlg_rng *rng, const struct hlg_layout *layout,
                          struct script_request *r)
{
    uint32_t known = draw(rng, 4) == 0 ? draw(rng, r->tokens) : 0; /* tokens the decoder has */

    for (uint32_t g = 0; g < layout->group_count; g++) {
        uint32_t pages = hlg_layout_pages(layout, g, r->tokens - 1);
        bool context = layout->groups[g].kind == HLG_GROUP_CONTEXT;
        r->first[g] = context ? 0 : known / layout->groups[g].page_tokens;
        r->count[g] = (context && r->tokens == 1 ? 0 : pages) - r->first[g];
    }
    if (draw(rng, 4) == 0 && r->fate == FATE_READY) {
        r->cached_tokens = draw(rng, hlg_handoff_cached_tokens_max(layout, r->tokens) + 1);
    }
}

static void draw_cuts(struct hlg_rng *rng, struct script_request *r)
{
    uint32_t at = r->cached_tokens;

    while (at < r->tokens - 1) {
        uint32_t left = r->tokens - 1 - at;
        uint32_t take = r->cut_count + 1 == CUTS_MAX ? left : 1 + draw(rng, left < 16 ? left : 16);
        if (r->cut_count == 0 && script_alone(r) && take == left) {
            take = left - 1; /* two chunks at least */
        }
        at += take;
        r->cuts[r->cut_count++] = at;
    }
    if (script_alone(r)) {
        r->cut_last = draw(rng, r->cut_count - 1);
    }
}

static void draw_request(struct hlg_rng *rng, const struct scene *scene, struct script_request *r,
                         uint32_t index)
{
    *r = (struct script_request){.fate = draw_fate(rng, index),
                                 .prefiller = draw(rng, PREFILLERS),
                                 .decoder = draw(rng, DECODERS),
                                 .random = (uint32_t)(hlg_rng_next(rng) >> 32)};
    const struct hlg_layout *source = &scene->layouts[r->prefiller];
    const struct hlg_layout *target = &scene->layouts[PREFILLERS + r->decoder];
    r->source_pool = draw(rng, source->pools);
    r->target_pool = draw(rng, target->pools);
    r->tokens = r->fate == FATE_LOCAL ? 1 : 3 + draw(rng, TOKENS_MAX - 2);
    if (r->tokens == 1) {
        return;
    }
    draw_prefixes(rng, target, r);
    uint64_t asked = 0;
    for (uint32_t g = 0; g < target->group_count; g++) {
        asked += target->groups[g].kind == HLG_GROUP_PAGED ? r->count[g] : 0;
    }
    if (!hlg_handoff_needs_prefill(target, r->tokens, asked)) {
        r->fate = FATE_LOCAL;
        return;
    }
    draw_cuts(rng, r);
}

void script_draw(struct script *script, uint64_t seed)
{
    struct hlg_rng rng = hlg_rng_seed(seed);

    memset(script, 0, sizeof *script);
    script->seed = seed;
    for (uint32_t s = 0; s < SCENES; s++) {
        struct scene *scene = &script->scenes[s];
        uint32_t of_prefiller[PREFILLERS] = {0};
        uint32_t of_decoder[DECODERS] = {0};
        scene->name = models[s].name;
        for (uint32_t n = 0; n < NODES; n++) {
            lay_out(&scene->layouts[n], &models[s], &models[s].shapes[n],
                    n < PREFILLERS ? SOURCE_SLOTS : TARGET_SLOTS);
        }
        for (uint32_t i = 0; i < OF_SCENE; i++) {
            struct script_request *r = &scene->requests[i];
            draw_request(&rng, scene, r, i);
            r->target_slot = of_decoder[r->decoder]++ % TARGET_SLOTS;
            if (r->fate != FATE_LOCAL) {
                r->source_slot = of_prefiller[r->prefiller]++ % SOURCE_SLOTS;
            }
        }
    }
}

void script_plant_cut(struct script *script)
{
    for (uint32_t i = 0; i < OF_SCENE; i++) {
        struct script_request *r = &script->scenes[0].requests[i];
        uint32_t page_end = r->cuts[0] / PAGE_TOKENS;
        /* one token that changes which chunk a page goes with */
        if (r->fate == FATE_READY && r->cut_count >= 2 && r->cuts[0] > r->cached_tokens + 1 &&
            r->cuts[0] % PAGE_TOKENS == 0 && page_end > r->first[0]) {
            r->cuts[0]--;
            return;
        }
    }
}

/* Apart from each other at the two ends, and neither in order, so that nothing works by mixing up. */
uint32_t script_source_page(const struct script_request *r, uint32_t position)
{
    return r->source_slot * PAGES_MAX + position;
}

uint32_t script_target_page(const struct script_request *r, uint32_t position)
{
    return r->target_slot * PAGES_MAX + (PAGES_MAX - 1 - position);
}

bool script_alone(const struct script_request *r)
{
    return r->fate == FATE_CANCEL_CUT || r->fate == FATE_GIVEN_UP || r->fate == FATE_ABORTED;
}
