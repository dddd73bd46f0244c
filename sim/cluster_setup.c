#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
/* Making and unmaking: the network, nodes with their pumps and engines, and who is connected. */
#include "cluster_internal.h"

#include <halage/places.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define WRITES_MAX   1024u /* under way at one NIC; fewer where there are many NICs */
#define FRAMES_MAX   256u
#define WINDOW_LEAST 8192u /* pieces under way from one peer to one NIC */

static int refuse(char *text, size_t capacity, int code, const char *sentence)
{
    (void)snprintf(text, capacity, "%s", sentence);
    return code;
}

/* ---- the network -------------------------------------------------------------------------- */

static uint32_t peers_of(const struct cluster *c, uint32_t kind)
{
    return kind == 0 ? c->decodes : c->prefills;
}

/* Endpoints that one of ours may know, of all peers. */
static uint32_t remotes(const struct cluster *c)
{
    uint32_t most = 0;

    for (uint32_t kind = 0; kind < 2; kind++) {
        uint32_t nics = hlg_layout_lanes(&c->layouts[1 - kind]) * c->scenario->network.nics_per_gpu;
        most = hlg_max_u32(most, peers_of(c, kind) * nics);
    }
    return c->faulty ? 4 * most : most;
}

/* Bytes/s of a NIC: its own, or its part of what the GPU's way to all its NICs carries. */
static double nic_bandwidth(const struct cluster *c, uint32_t kind)
{
    const struct sim_network *network = &c->scenario->network;
    const struct sim_engine *engine =
        kind == 0 ? &c->scenario->prefill.engine : &c->scenario->decode.engine;
    const struct sim_gpu *gpu = sim_gpu_find(engine->gpu);
    const double path = gpu->nic_path_bandwidth > 0 ? gpu->nic_path_bandwidth : gpu->pcie_bandwidth;
    const double part = path / network->nics_per_gpu;

    return part > 0 && part < network->nic.bandwidth ? part : network->nic.bandwidth;
}

static void fill_node(const struct cluster *c, uint32_t kind, struct hlg_simgrid_node_config *node)
{
    const struct sim_nic *nic = &c->scenario->network.nic;
    double left = 1 - (double)nic->background_ppm / 1e6;

    *node = (struct hlg_simgrid_node_config){
        .lanes = hlg_layout_lanes(&c->layouts[kind]),
        .rails = c->scenario->network.nics_per_gpu,
        .nic_bandwidth = nic_bandwidth(c, kind) * left / nic->busy_factor * c->fold.scale[kind],
        .op_ps = (uint64_t)floor((double)nic->op_ps * nic->busy_factor + 0.5),
        .latency_ns = nic->latency_ns,
        .pieces_max = nic->pieces_max};
}

/* Bandwidth of a pod's uplink: what its nodes' NICs have, over the oversubscription. */
static double uplink(const struct cluster *c)
{
    double most = 0;

    for (uint32_t kind = 0; kind < 2; kind++) {
        struct hlg_simgrid_node_config node;
        fill_node(c, kind, &node);
        double sum = node.nic_bandwidth * node.lanes * node.rails;
        most = sum > most ? sum : most;
    }
    return most * c->scenario->network.pod_nodes / c->scenario->network.oversubscription;
}

static int open_network(struct cluster *c, char *text, size_t capacity)
{
    const struct sim_network *network = &c->scenario->network;
    struct hlg_simgrid_node_config *nodes = calloc(c->node_count, sizeof *nodes);
    struct hlg_simgrid_config config;
    char sentence[256] = "";

    if (nodes == NULL) {
        return refuse(text, capacity, -HLG_ENOMEM, "no memory for the network");
    }
    for (uint32_t i = 0; i < c->node_count; i++) {
        fill_node(c, i < c->prefills ? 0 : 1, &nodes[i]);
    }
    uint32_t peers = hlg_max_u32(c->prefills, c->decodes);
    hlg_simgrid_config_default(&config);
    config.seed = c->scenario->seed;
    config.nodes = c->node_count;
    config.node_configs = nodes;
    config.group_nodes = network->pod_nodes < c->node_count ? network->pod_nodes : 0;
    config.group_bandwidth = config.group_nodes == 0 ? 0 : uplink(c);
    config.frame_ns = network->message_ns;
    config.copy_bytes = false;
    config.domains_max = c->faulty ? hlg_max_u32(1, hlg_min_u32(network->fence_domains, peers)) : 1;
    config.peers_max = remotes(c);
    config.regions_max = 1;
    config.writes_max = c->node_count > 64 ? WRITES_MAX / 4 : WRITES_MAX;
    if (network->page_flows) { /* each piece is a write: as many as the NIC's queue holds */
        config.writes_max = hlg_max_u32(config.writes_max, network->nic.pieces_max);
    }
    config.peer_writes_max = config.writes_max;
    config.pieces_max = network->nic.pieces_max;
    config.peer_pieces_max = network->nic.pieces_max;
    config.cq_depth = hlg_max_u32(1u << 18, WINDOW_LEAST * c->limits[0].peers_max);
    config.cq_depth = hlg_max_u32(config.cq_depth, WINDOW_LEAST * c->limits[1].peers_max);
    config.cq_depth = hlg_max_u32(config.cq_depth, network->nic.pieces_max);
    config.channels_max = (c->faulty ? 4 : 1) * c->prefills * c->decodes;
    config.frames_max = FRAMES_MAX;
    config.message_bytes_max = c->limits[0].message_bytes_max;
    config.room_bytes = hlg_max_u32(1u << 16, c->limits[0].message_bytes_max);
    config.piece_bytes_max = UINT32_MAX;
    config.stall_ns = c->faulty ? 2 * HLG_NS_PER_S : HLG_TIME_NEVER / 2048;
    int error = hlg_simgrid_create(&config, &c->net, sentence, sizeof sentence);
    if (error == -HLG_ENOMEM) {
        (void)snprintf(text, capacity,
                       "prefill.nodes, decode.nodes: %" PRIu32 ", %" PRIu32
                       ": the connections of each with each take more memory than there is; write "
                       "fewer nodes",
                       c->prefills, c->decodes);
        error = -HLG_EINVAL;
    } else if (error != 0) {
        (void)snprintf(text, capacity, "network: %s", sentence);
    }
    free(nodes);
    return error;
}

/* ---- nodes -------------------------------------------------------------------------------- */

static void on_notice(void *context, const struct hlg_notice *notice)
{
    struct node *n = context;

    if (n->letter_count == n->letter_capacity) {
        n->letter_capacity = n->letter_capacity == 0 ? 16 : 2 * n->letter_capacity;
        n->letters = cluster_grow(n->letters, n->letter_capacity, sizeof *n->letters);
    }
    struct letter *letter = &n->letters[n->letter_count++];
    letter->notice = *notice;
    if (notice->kind == HLG_NOTICE_REQUESTED) {
        HLG_ASSERT(notice->message->prompt_bytes == CLUSTER_PROMPT_BYTES);
        for (uint32_t i = 0; i < CLUSTER_PROMPT_BYTES; i++) {
            letter->prompt[i] = notice->message->prompt[i];
        }
        letter->tokens = notice->message->tokens;
        letter->notice.message = NULL;
    }
    net_dirty(n);
}

/* All lanes' pages lie at the same addresses: nobody ever reads or writes them. */
static struct hlg_place *make_places(const struct hlg_layout *layout, uint32_t *count,
                                     uint64_t *bytes)
{
    uint32_t lanes = hlg_layout_lanes(layout);
    int each = hlg_places_linear(layout, 0, NULL, 0, bytes);

    HLG_ASSERT(each > 0); /* one stage: the lanes are alike */
    *count = lanes * (uint32_t)each;
    struct hlg_place *places = calloc(*count, sizeof *places);
    for (uint32_t lane = 0; places != NULL && lane < lanes; lane++) {
        int made =
            hlg_places_linear(layout, lane, places + lane * (uint32_t)each, (uint32_t)each, NULL);
        HLG_ASSERT(made == each);
    }
    return places;
}

static int open_pump(struct cluster *c, struct node *n, char *text, size_t capacity)
{
    const struct hlg_layout *layout = &c->layouts[cluster_kind(n)];
    const struct hlg_limits *limits = &c->limits[cluster_kind(n)];
    struct hlg_pump_region regions[HLG_RANKS_MAX];
    struct hlg_pump_config config = {.role = n->decode ? HLG_ROLE_DECODE : HLG_ROLE_PREFILL,
                                     .fabric = hlg_simgrid_fabric(c->net, n->index),
                                     .regions = regions,
                                     .region_count = hlg_layout_lanes(layout),
                                     .notice = on_notice,
                                     .context = n};
    uint64_t bytes = 0;
    char sentence[256] = "";
    struct hlg_place *places = make_places(layout, &config.place_count, &bytes);

    if (places == NULL) {
        return refuse(text, capacity, -HLG_ENOMEM, "no memory for a node's places");
    }
    for (uint32_t lane = 0; lane < config.region_count; lane++) {
        regions[lane] =
            (struct hlg_pump_region){.lane = lane, .memory = HLG_MEM_HOST(c->memory, bytes)};
    }
    config.places = places;
    if (n->decode) {
        config.decode = (struct hlg_decode_config){.limits = *limits,
                                                   .layout = *layout,
                                                   .rails = limits->rails_max,
                                                   .node = n->index + 1ull,
                                                   .incarnation = ++c->incarnations};
    } else {
        config.prefill = (struct hlg_prefill_config){.limits = *limits,
                                                     .layout = *layout,
                                                     .rails = limits->rails_max,
                                                     .node = n->index + 1ull,
                                                     .incarnation = ++c->incarnations};
    }
    int error = hlg_pump_create(&config, &n->pump, sentence, sizeof sentence);
    free(places);
    if (error != 0) {
        (void)snprintf(text, capacity, "%s node: %s", n->decode ? "decode" : "prefill", sentence);
    }
    return error;
}

int cluster_start_node(struct cluster *c, struct node *n, char *text, size_t capacity)
{
    int error = open_pump(c, n, text, capacity);

    for (uint32_t rank = 0; error == 0 && rank < n->ranks; rank++) {
        error = sim_pages_create(c->kv_pages[cluster_kind(n)],
                                 !n->decode && c->scenario->prefill.prefix_cache, &n->pages[rank]);
        if (error != 0) {
            (void)snprintf(text, capacity, "%s node: no memory for its pages",
                           n->decode ? "decode" : "prefill");
        }
    }
    if (error == 0) {
        error = n->decode ? decode_open(n, text, capacity) : prefill_open(n);
    }
    n->alive = error == 0;
    n->deadline_at = HLG_TIME_NEVER;
    n->incarnation++;
    return error;
}

/* What a node's pump and batch have counted goes into the run, and they go. */
static void stop_node(struct cluster *c, struct node *n)
{
    if (n->pump != NULL) {
        sample_stats(c, n);
        hlg_pump_destroy(n->pump);
        n->pump = NULL;
    }
    n->letter_count = 0;
    for (uint32_t rank = 0; n->pages != NULL && rank < n->ranks; rank++) {
        sim_pages_destroy(n->pages[rank]);
        n->pages[rank] = NULL;
    }
}

void cluster_stop_node(struct cluster *c, struct node *n)
{
    n->alive = false;
    n->incarnation++;
    sample_pages(n);
    if (n->decode) {
        sample_batch(c, n);
        decode_died(n);
    } else {
        prefill_died(n);
    }
    stop_node(c, n);
    n->pages_used = 0;
    for (uint32_t i = 0; i < peers_of(c, cluster_kind(n)); i++) {
        n->peer_up[i] = false;
        n->peer_of[i] = HLG_NONE;
    }
}

static int make_node(struct cluster *c, uint32_t index, char *text, size_t capacity)
{
    struct node *n = &c->nodes[index];
    uint32_t kind = index < c->prefills ? 0 : 1;
    uint32_t peers = peers_of(c, kind);

    HLG_ASSERT(peers > 0);
    n->cluster = c;
    n->index = index;
    n->decode = kind == 1;
    n->number = n->decode ? index - c->prefills : index;
    n->ranks = cluster_engine(n)->dp;
    n->busy_since = HLG_TIME_NEVER;
    n->peer_of = calloc(peers, sizeof *n->peer_of);
    n->node_of = calloc(c->limits[kind].peers_max, sizeof *n->node_of);
    n->peer_up = calloc(peers, sizeof *n->peer_up);
    n->pages = calloc(n->ranks, sizeof(struct sim_pages *));
    n->totals.decode = n->decode;
    n->totals.kv_pages = c->kv_pages[kind] * n->ranks;
    n->totals.nics = cluster_engine(n)->gpus * c->scenario->network.nics_per_gpu;
    if (n->peer_of == NULL || n->node_of == NULL || n->peer_up == NULL || n->pages == NULL) {
        return refuse(text, capacity, -HLG_ENOMEM, "no memory for a node");
    }
    for (uint32_t i = 0; i < peers; i++) {
        n->peer_of[i] = HLG_NONE;
    }
    return cluster_start_node(c, n, text, capacity);
}

/* ---- sessions ----------------------------------------------------------------------------- */

void cluster_dial_later(struct cluster *c, struct node *decode, uint32_t prefill)
{
    heap_put(c, (struct event){.at = c->now + CLUSTER_DIAL_NS,
                               .kind = EVENT_DIAL,
                               .node = decode->index,
                               .index = prefill,
                               .serial = decode->incarnation});
}

void cluster_connect(struct cluster *c, struct node *prefill, struct node *decode)
{
    struct hlg_channel *ours = NULL;
    struct hlg_channel *theirs = NULL;
    uint32_t peer = 0;

    if (hlg_simgrid_channel_pair(c->net, decode->index, prefill->index, &ours, &theirs) != 0) {
        cluster_dial_later(c, decode, prefill->number); /* those before are not quite over */
        return;
    }
    if (hlg_pump_channel(prefill->pump, theirs, false, &peer) == 0) {
        prefill->node_of[peer] = decode->number;
        prefill->peer_of[decode->number] = peer;
    }
    if (hlg_pump_channel(decode->pump, ours, true, &peer) == 0) {
        decode->node_of[peer] = prefill->number;
        decode->peer_of[prefill->number] = peer;
    }
    net_dirty(prefill);
    net_dirty(decode);
}

/* Let every pair of nodes meet, before time begins. */
static int greet(struct cluster *c, char *text, size_t capacity)
{
    c->greeting = true;
    for (uint32_t d = 0; d < c->decodes; d++) {
        for (uint32_t p = 0; p < c->prefills; p++) {
            cluster_connect(c, &c->nodes[p], cluster_decode_node(c, d));
        }
    }
    do {
        net_turn(c);
    } while (net_greet(c));
    c->greeting = false;
    c->base = hlg_simgrid_now(c->net);
    for (uint32_t i = 0; i < c->node_count; i++) {
        const struct node *n = &c->nodes[i];
        for (uint32_t k = 0; k < peers_of(c, cluster_kind(n)); k++) {
            if (!n->peer_up[k]) {
                return refuse(text, capacity, -HLG_EINVAL,
                              "network: the nodes cannot meet; write fewer nodes or NICs");
            }
        }
        cluster_set_up(c, &c->nodes[i]);
        net_dirty(&c->nodes[i]);
    }
    return 0;
}

void cluster_set_up(struct cluster *c, struct node *n)
{
    uint32_t nodes = n->decode ? c->decodes : c->prefills;
    bool all = true;
    bool some = false;

    for (uint32_t i = 0; i < peers_of(c, cluster_kind(n)); i++) {
        const struct node *other = n->decode ? &c->nodes[i] : cluster_decode_node(c, i);
        bool up = other->peer_up[n->number] && n->peer_up[i];
        all = all && (up || !other->alive);
        some = some || up;
    }
    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        sim_router_set_up(c->routers[cluster_kind(n)], rank * nodes + n->number,
                          n->alive && some && (n->decode || (all && !n->prefill.full)));
    }
}

/* ---- all of it ---------------------------------------------------------------------------- */

static int open_costs(struct cluster *c, char *text, size_t capacity)
{
    const struct sim_engine *engines[2] = {&c->scenario->prefill.engine,
                                           &c->scenario->decode.engine};

    for (uint32_t kind = 0; kind < 2; kind++) {
        int error = sim_scenario_cost(c->scenario, engines[kind], &c->costs[kind], text, capacity);
        if (error == 0) {
            error = sim_scenario_kv_tokens(engines[kind], c->costs[kind], &c->run->kv_tokens[kind],
                                           text, capacity);
        }
        if (error != 0) {
            return error;
        }
        sim_cost_basis(c->costs[kind], &c->run->basis[kind]);
    }
    c->step_overhead_ns = c->run->basis[0].step_overhead_ns;
    return 0;
}

static int open_routers(struct cluster *c, char *text, size_t capacity)
{
    const struct sim_scenario *s = c->scenario;
    int error = sim_router_create(s->prefill_routing, c->prefills * s->prefill.engine.dp, s->seed,
                                  s->routing_load_weight, &c->routers[0]);

    if (error == 0) {
        error = sim_router_create(s->decode_routing, c->decodes * s->decode.engine.dp, s->seed + 1,
                                  s->routing_load_weight, &c->routers[1]);
    }
    return error == 0 ? 0 : refuse(text, capacity, error, "no memory for the routers");
}

/* Address space for the largest lane. */
static int reserve(struct cluster *c, char *text, size_t capacity)
{
    for (uint32_t kind = 0; kind < 2; kind++) {
        uint64_t bytes = 0;
        int places = hlg_places_linear(&c->layouts[kind], 0, NULL, 0, &bytes);
        HLG_ASSERT(places > 0);
        c->memory_bytes = bytes > c->memory_bytes ? bytes : c->memory_bytes;
    }
    c->memory =
        mmap(NULL, c->memory_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c->memory == MAP_FAILED) {
        c->memory = NULL;
        (void)snprintf(text, capacity,
                       "kv_tokens: %.1f GiB of pages for one rank are more than the address space "
                       "has; write less",
                       (double)c->memory_bytes / 1073741824.0);
        return -HLG_EINVAL;
    }
    return 0;
}

int cluster_open(struct cluster *c, char *text, size_t capacity)
{
    int error = open_costs(c, text, capacity);

    if (error == 0) {
        error = cluster_lay_out(c, text, capacity);
    }
    if (error == 0) {
        cluster_limits(c, 0);
        cluster_limits(c, 1);
        error = reserve(c, text, capacity);
    }
    if (error == 0) {
        error = open_routers(c, text, capacity);
    }
    if (error == 0) {
        error = open_network(c, text, capacity);
    }
    c->nodes = calloc(c->node_count, sizeof *c->nodes);
    c->dirty = calloc(c->node_count, sizeof *c->dirty);
    c->steps = calloc(c->scenario->prefill.engine.dp, sizeof *c->steps);
    if (error == 0 && (c->nodes == NULL || c->dirty == NULL || c->steps == NULL)) {
        error = refuse(text, capacity, -HLG_ENOMEM, "no memory for the nodes");
    }
    for (uint32_t i = 0; error == 0 && i < c->node_count; i++) {
        error = make_node(c, i, text, capacity);
    }
    return error == 0 ? greet(c, text, capacity) : error;
}

static void close_node(struct cluster *c, struct node *n)
{
    stop_node(c, n);
    if (n->cluster != NULL && n->decode) {
        decode_close(n);
    } else if (n->cluster != NULL) {
        prefill_close(n);
    }
    free(n->letters);
    free(n->peer_of);
    free(n->node_of);
    free(n->peer_up);
    free(n->pages);
}

void cluster_close(struct cluster *c)
{
    for (uint32_t i = 0; !c->colocated && c->nodes != NULL && i < c->node_count; i++) {
        close_node(c, &c->nodes[i]);
    }
    if (c->colocated) {
        mixed_close(c);
    }
    hlg_simgrid_destroy(c->net);
    for (uint32_t i = 0; i < c->intakes.count; i++) {
        free(((struct intake *)c->intakes.items[i])->pages);
    }
    for (uint32_t i = 0; i < c->works.count; i++) {
        free(((struct work *)c->works.items[i])->pages);
    }
    roster_free(&c->jobs);
    roster_free(&c->intakes);
    roster_free(&c->works);
    for (uint32_t kind = 0; kind < 2; kind++) {
        if (c->routers[kind] != NULL) {
            sim_router_destroy(c->routers[kind]);
        }
        if (c->costs[kind] != NULL) {
            sim_cost_destroy(c->costs[kind]);
        }
    }
    if (c->memory != NULL) {
        (void)munmap(c->memory, c->memory_bytes);
    }
    free(c->nodes);
    free(c->dirty);
    free(c->steps);
    free(c->chunks);
    free(c->names);
    free(c->heap.events);
}
