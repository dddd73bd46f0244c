/*
 * Layouts of both kinds of nodes, their folding, and limits that fit the scenario.
 *
 * Folding lays the ranks of a pool out as one: its page holds the bytes of all their pages, its NICs have
 * the bandwidth of all theirs, and each piece stands for one of every rank. That is exact when rank r
 * writes to rank r alone, so that all ranks do the same at the same time. A replica offset other than 0
 * would only rename the ranks (and spread a pair's requests over more queue pairs): where rank r can
 * write to rank r, folded or not, the offset is 0.
 */
#include "cluster_internal.h"

#include <halage/refusal.h>
#include <stdio.h>
#include <stdlib.h>

#define SLICES_MAX (1u << 18)

static const struct sim_engine *engine_of(const struct cluster *c, uint32_t kind)
{
    return kind == 0 ? &c->scenario->prefill.engine : &c->scenario->decode.engine;
}

/* Slices are freed with plan->slices. */
static int build(struct hlg_plan *plan, const struct hlg_layout layouts[2], char *text,
                 size_t capacity)
{
    struct hlg_refusal why = {.code = HLG_REFUSAL_SLICES};
    char sentence[256] = "";

    for (uint32_t most = 1024; most <= SLICES_MAX && why.code == HLG_REFUSAL_SLICES; most *= 4) {
        struct hlg_slice *slices = calloc(most, sizeof *slices);
        if (slices == NULL) {
            (void)snprintf(text, capacity, "no memory for the plan between two nodes");
            return -HLG_ENOMEM;
        }
        if (hlg_plan_build(plan, slices, most, &layouts[0], &layouts[1], &why) == 0) {
            return 0;
        }
        free(slices);
    }
    (void)hlg_refusal_text(&why, sentence, sizeof sentence);
    (void)snprintf(text, capacity, "prefill and decode nodes do not go together: %s", sentence);
    return -HLG_EINVAL;
}

static bool is_rank_to_rank(const struct hlg_plan *plan)
{
    for (uint32_t i = 0; i < plan->slice_count; i++) {
        const struct hlg_slice *slice = &plan->slices[i];
        if (hlg_plan_uses(plan, slice, 0) && slice->source_rank != slice->target_rank) {
            return false;
        }
    }
    return plan->source.tp == plan->target.tp && plan->source.stages == 1 &&
           plan->target.stages == 1;
}

/* All ranks of a pool as one. */
static struct hlg_layout folded(const struct hlg_layout *layout)
{
    struct hlg_layout made = *layout;
    uint64_t piece = (uint64_t)layout->piece_bytes_max * layout->tp;

    made.tp = 1;
    made.rank_limit = 1;
    made.piece_bytes_max = piece < UINT32_MAX ? (uint32_t)piece : UINT32_MAX;
    for (uint32_t g = 0; g < made.group_count; g++) {
        struct hlg_group *group = &made.groups[g];
        uint32_t begin = 0;
        uint32_t limit = 0;
        hlg_layout_heads(group->heads, layout->tp, 0, &begin, &limit);
        uint64_t bytes = (uint64_t)(limit - begin) * group->head_bytes * layout->tp;
        group->heads = 1;
        group->head_bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    }
    return made;
}

/* Pieces that a rank counts for one page of each group. */
static uint64_t pieces_of(const struct hlg_plan *plan)
{
    uint32_t pages[HLG_GROUPS_MAX];

    for (uint32_t g = 0; g < HLG_GROUPS_MAX; g++) {
        pages[g] = 1;
    }
    return hlg_plan_pieces(plan, 0, 0, pages, HLG_NONE);
}

/* NULL when the ranks of a node can be one, or why not. */
static const char *find_obstacle(const struct cluster *c, const struct hlg_plan *plan,
                                 struct hlg_layout made[2])
{
    struct hlg_refusal why = {0};
    struct hlg_plan one;
    char sentence[256];

    if (!c->fold.rank_to_rank) {
        return "the plan does not write from each rank to the same rank alone";
    }
    for (uint32_t i = 0; i < c->scenario->fault_count; i++) {
        const struct sim_fault *fault = &c->scenario->faults[i];
        if ((fault->kind == SIM_FAULT_SLOW || fault->kind == SIM_FAULT_LINK) &&
            fault->nic != HLG_NONE) {
            return "a fault touches a single NIC";
        }
    }
    for (uint32_t kind = 0; kind < 2; kind++) {
        made[kind] = folded(&c->layouts[kind]);
        if (hlg_layout_check(&made[kind], &why) != 0) {
            return "the pages of all ranks together are too large";
        }
    }
    if (build(&one, made, sentence, sizeof sentence) != 0) {
        return "the folded layouts cannot be planned";
    }
    bool equal = pieces_of(&one) == pieces_of(plan);
    free(one.slices);
    return equal ? NULL : "the folded layouts count other pieces";
}

static int fold(struct cluster *c, const struct hlg_plan *plan, char *text, size_t capacity)
{
    const struct sim_network *network = &c->scenario->network;
    struct hlg_layout made[2];

    c->fold.scale[0] = 1;
    c->fold.scale[1] = 1;
    c->fold.rank_to_rank = is_rank_to_rank(plan);
    if (!network->fold && !network->fold_auto) {
        return 0;
    }
    const char *obstacle = find_obstacle(c, plan, made);
    if (obstacle != NULL && network->fold && !network->fold_auto) {
        (void)snprintf(text, capacity, "network.fold: not exact here, %s; write auto or never",
                       obstacle);
        return -HLG_EINVAL;
    }
    for (uint32_t kind = 0; kind < 2 && obstacle == NULL; kind++) {
        c->fold.on = true;
        c->fold.scale[kind] = (double)c->layouts[kind].tp;
        c->layouts[kind] = made[kind];
    }
    return 0;
}

const char *sim_fold_obstacle(const struct sim_scenario *scenario, const uint64_t kv_tokens[2])
{
    struct hlg_layout made[2];
    struct hlg_plan plan;
    char sentence[256];
    struct cluster *c = calloc(1, sizeof *c);
    const char *obstacle = "there is no plan between the two sides";

    if (c == NULL) {
        return "no memory to find out";
    }
    c->scenario = scenario;
    for (uint32_t kind = 0; kind < 2; kind++) {
        if (sim_scenario_layout(scenario, engine_of(c, kind), kv_tokens[kind], &c->layouts[kind],
                                sentence, sizeof sentence) != 0) {
            free(c);
            return obstacle;
        }
    }
    if (build(&plan, c->layouts, sentence, sizeof sentence) == 0) {
        c->fold.rank_to_rank = is_rank_to_rank(&plan);
        obstacle = find_obstacle(c, &plan, made);
        free(plan.slices);
    }
    free(c);
    return obstacle;
}

/* KV bytes of one token, and bytes of a context, over all ranks of a decode pool. */
static void count_bytes(struct cluster *c)
{
    const struct hlg_layout *layout = &c->layouts[1];

    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct hlg_group *group = &layout->groups[g];
        uint64_t bytes = (uint64_t)hlg_layout_page_bytes(layout, g) * layout->tp;
        if (group->kind == HLG_GROUP_CONTEXT) {
            c->context_bytes += bytes;
            continue;
        }
        uint32_t layers = 0;
        for (uint32_t layer = 0; layer < layout->layers; layer++) {
            layers += hlg_group_has_layer(group, layer);
        }
        c->page_bytes += bytes * group->planes * layers;
    }
}

int cluster_lay_out(struct cluster *c, char *text, size_t capacity)
{
    struct hlg_plan plan;

    for (uint32_t kind = 0; kind < 2; kind++) {
        int error = sim_scenario_layout(c->scenario, engine_of(c, kind), c->run->kv_tokens[kind],
                                        &c->layouts[kind], text, capacity);
        if (error != 0) {
            return error;
        }
        uint64_t pages = c->run->kv_tokens[kind] / engine_of(c, kind)->page_tokens; /* whole ones */
        c->kv_pages[kind] = hlg_u32(pages < UINT32_MAX ? pages : UINT32_MAX);
    }
    int error = build(&plan, c->layouts, text, capacity);
    if (error != 0) {
        return error;
    }
    error = fold(c, &plan, text, capacity);
    free(plan.slices);
    if (error == 0) {
        error = build(&plan, c->layouts, text, capacity);
    }
    if (error != 0) {
        return error;
    }
    c->slices = plan.slice_count;
    free(plan.slices);
    count_bytes(c);
    return 0;
}

/* ---- limits ------------------------------------------------------------------------------- */

/* Pages of the longest request, prompt and output, that a node could be asked for. */
static uint32_t longest(const struct cluster *c, uint32_t kind)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < c->limit; i++) {
        const struct sim_workload_request *r = &c->workload->requests[i];
        uint64_t tokens = (uint64_t)r->prompt_tokens + r->output_tokens;
        most = tokens > most ? tokens : most;
    }
    uint64_t pages = most / engine_of(c, kind)->page_tokens + 1;
    return hlg_u32(pages < c->kv_pages[kind] ? pages : c->kv_pages[kind]);
}

/* Room for a HELLO of either kind, and for the largest REQUEST. */
static uint32_t message_bytes(const struct cluster *c)
{
    uint64_t most = 0;

    for (uint32_t kind = 0; kind < 2; kind++) {
        const struct hlg_layout *layout = &c->layouts[kind];
        uint64_t lanes = hlg_layout_lanes(layout);
        uint64_t places = 0;
        for (uint32_t g = 0; g < layout->group_count; g++) {
            places += lanes * (layout->layers + 1ull) * layout->groups[g].planes;
        }
        uint64_t hello = 8192 + places * 64 + lanes * c->scenario->network.nics_per_gpu * 192;
        uint64_t request = 8192 + (uint64_t)longest(c, 1) * layout->group_count * 8;
        most = hello > most ? hello : most;
        most = request > most ? request : most;
    }
    return hlg_u32(most < HLG_MESSAGE_BYTES_MAX ? most : HLG_MESSAGE_BYTES_MAX);
}

void cluster_limits(struct cluster *c, uint32_t kind)
{
    struct hlg_limits *limits = &c->limits[kind];
    const struct hlg_layout *layout = &c->layouts[kind];
    uint32_t peers = kind == 0 ? c->decodes : c->prefills;
    uint32_t requests = hlg_min_u32(engine_of(c, kind)->requests_max, HLG_SLOTS_MAX - 2);
    uint32_t blocks = hlg_div_ceil(longest(c, kind), HLG_BLOCK_PAGES) * layout->group_count;

    requests = hlg_max_u32(1, hlg_min_u32(requests, c->limit));
    hlg_limits_default(limits);
    limits->peers_max = c->faulty ? 4 * peers : peers;
    limits->requests_max = requests;
    limits->sources_max = 1;
    limits->lanes_max =
        hlg_max_u32(hlg_layout_lanes(&c->layouts[0]), hlg_layout_lanes(&c->layouts[1]));
    limits->rails_max = c->scenario->network.nics_per_gpu;
    limits->slices_max = c->slices;
    limits->forwards_max = 64;
    limits->chunks_max = hlg_min_u32(4 * requests + 256, 1u << 16);
    limits->ops_max = hlg_min_u32(1024 * hlg_layout_lanes(layout), 1u << 15);
    limits->blocks_max = hlg_min_u32(requests, (1u << 18) / blocks) * blocks + blocks;
    limits->prompt_bytes_max = CLUSTER_PROMPT_BYTES;
    limits->message_bytes_max = message_bytes(c);
    limits->window_pieces = 1u << 16; /* the pump cuts it to what the completion queues hold */
    /* Who is busy where is the router's to say, and nobody is hostile. */
    limits->reserve_percent = 0;
    limits->grant_requests = UINT32_MAX;
    limits->grant_pages = UINT32_MAX;
    limits->grant_prompt_bytes = UINT32_MAX * (uint64_t)CLUSTER_PROMPT_BYTES;
    limits->turn_bytes = c->scenario->network.page_flows ? 1 : 1ull << 60;
    if (!c->faulty) {
        limits->lease_ns = HLG_TIME_NEVER / 4;
        limits->heartbeat_ns = HLG_TIME_NEVER / 8;
        limits->fence_ns = HLG_TIME_NEVER / 4;
    }
}
