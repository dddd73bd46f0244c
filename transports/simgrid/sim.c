/*
 * The simulation itself: its clock, which is SimGrid's while flows are under way, the death of nodes
 * and the trace.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "sgx.h"

#define ENGINE_PRECISION 2e-9 /* seconds, twice surf/precision (3.32) */

void hlg_simgrid_config_default(struct hlg_simgrid_config *config)
{
    memset(config, 0, sizeof(*config));
    config->seed = 1;
    config->nodes = 2;
    config->lanes = 1;
    config->rails = 1;
    config->nic_bandwidth = 50e9;
    config->group_bandwidth = 400e9;
    config->latency_ns = 2500;
    config->frame_ns = 30000;
    config->copy_bytes = true;
    config->domains_max = 4;
    config->peers_max = 16;
    config->regions_max = 16;
    config->writes_max = 256;
    config->pieces_max = 65536;
    config->peer_writes_max = 64;
    config->peer_pieces_max = 16384;
    config->cq_depth = 65536;
    config->channels_max = 4;
    config->frames_max = 64;
    config->room_bytes = 1u << 20;
    config->message_bytes_max = 1u << 20;
    config->piece_bytes_max = 1u << 20;
    config->stall_ns = 2 * HLG_NS_PER_S;
}

/* SimGrid's clock in our nanoseconds. The thousandth makes up for what doubles lose. */
static hlg_time engine_time(const struct hlg_simgrid *sim)
{
    return sim->engine_start + (hlg_time)floor((sgx_now() - sim->engine_seconds) * 1e9 + 1e-3);
}

/* SimGrid's seconds at a time of ours. */
static double engine_seconds(const struct hlg_simgrid *sim, hlg_time time)
{
    return sim->engine_seconds + (double)(time - sim->engine_start) * 1e-9;
}

static void query(const struct hlg_fabric *fabric, struct hlg_transport_caps *caps)
{
    endpoint_query((const struct node *)fabric, caps);
}

static hlg_time now(struct hlg_fabric *fabric)
{
    return ((const struct node *)fabric)->sim->now;
}

static void set_nodes(struct hlg_simgrid *sim)
{
    uint32_t nic = 0;

    for (uint32_t index = 0; index < sim->config.nodes; index++) {
        struct node *node = &sim->nodes[index];

        node->fabric.ready = ready_pop;
        node->fabric.open = endpoint_open;
        node->fabric.query = query;
        node->fabric.now = now;
        node->fabric.rails = node->config.rails;
        node->sim = sim;
        node->index = index;
        node->alive = true;
        node->nic_begin = nic;
        for (uint32_t limit = nic + node->config.lanes * node->config.rails; nic < limit; nic++) {
            sim->nics[nic] =
                (struct nic){.node = index, .up = true, .factor = 1, .alone = {HLG_NONE, HLG_NONE}};
        }
    }
}

static bool open_engine(struct hlg_simgrid *sim)
{
    const uint32_t group_nodes = sim->config.group_nodes;
    struct sgx_nic *nics = calloc(sim->nic_count, sizeof(*nics));

    if (nics == NULL) {
        return false;
    }
    for (uint32_t nic = 0; nic < sim->nic_count; nic++) {
        const uint32_t node = sim->nics[nic].node;

        nics[nic] = (struct sgx_nic){
            .bandwidth = sim->nodes[node].config.nic_bandwidth,
            .group = group_nodes == 0 ? 0 : node / group_nodes, /* floor: groups are neighbours */
        };
    }

    const struct sgx_platform platform = {
        .nics = nics,
        .nic_count = sim->nic_count,
        .group_bandwidth = group_nodes == 0 ? 0 : sim->config.group_bandwidth,
    };

    sim->engine = sgx_open(&platform) == 0;
    free(nics);
    return sim->engine;
}

static int refuse(int code, const char *sentence, char *error, size_t error_bytes)
{
    (void)snprintf(error, error_bytes, "%s", sentence);
    return code;
}

int hlg_simgrid_create(const struct hlg_simgrid_config *config, struct hlg_simgrid **out,
                       char *error, size_t error_bytes)
{
    const char *fault = config_fault(config);
    struct hlg_simgrid *sim;

    if (fault != NULL) {
        return refuse(-HLG_EINVAL, fault, error, error_bytes);
    }
    sim = calloc(1, sizeof(*sim));
    if (sim == NULL) {
        return refuse(-HLG_ENOMEM, "no memory", error, error_bytes);
    }
    sim->config = *config;
    sim->rng = hlg_rng_seed(config->seed);
    sim->hash = 0xcbf29ce484222325ull;
    if (!memory_take(sim)) {
        hlg_simgrid_destroy(sim);
        return refuse(-HLG_ENOMEM, "no memory for the simulation's tables", error, error_bytes);
    }
    sim->config.node_configs = NULL; /* the caller's */
    set_nodes(sim);
    ready_init(sim);
    if (!open_engine(sim)) {
        hlg_simgrid_destroy(sim);
        return refuse(-HLG_EIO, sgx_error(), error, error_bytes);
    }
    *out = sim;
    return 0;
}

void hlg_simgrid_destroy(struct hlg_simgrid *sim)
{
    if (sim == NULL) {
        return;
    }
    for (uint32_t index = 0; sim->engine && index < sim->batch_fresh; index++) {
        if (sim->batches[index].state == BATCH_FLOW) {
            (void)sgx_cancel(index);
        }
    }
    if (sim->engine) {
        sgx_close();
    }
    memory_free(sim);
    free(sim);
}

struct hlg_fabric *hlg_simgrid_fabric(struct hlg_simgrid *sim, uint32_t node)
{
    HLG_ASSERT(node < sim->config.nodes);
    return &sim->nodes[node].fabric;
}

static void mix(struct hlg_simgrid *sim, uint64_t word)
{
    sim->hash = (sim->hash ^ word) * 0x100000001b3ull;
    sim->hash ^= sim->hash >> 32;
}

/* FNV-1a by words, folded so that high bits reach the low ones. */
void sim_trace(struct hlg_simgrid *sim, uint64_t kind, uint64_t a, uint64_t b, uint64_t c)
{
    mix(sim, kind);
    mix(sim, sim->now);
    mix(sim, a);
    mix(sim, b);
    mix(sim, c);
}

uint64_t hlg_simgrid_trace_hash(const struct hlg_simgrid *sim)
{
    return sim->hash;
}

void hlg_simgrid_kill(struct hlg_simgrid *sim, uint32_t index)
{
    HLG_ASSERT(index < sim->config.nodes);
    if (!sim->nodes[index].alive) {
        return;
    }
    sim->nodes[index].alive = false;
    sim_trace(sim, HAPPENING_KILL, index, 0, 0);
    endpoint_on_kill(sim, index);
    batch_on_target_kill(sim, index);
    channel_on_kill(sim, index);
}

void hlg_simgrid_restart(struct hlg_simgrid *sim, uint32_t index)
{
    HLG_ASSERT(index < sim->config.nodes && !sim->nodes[index].alive);
    sim->nodes[index].alive = true;
}

bool hlg_simgrid_alive(const struct hlg_simgrid *sim, uint32_t node)
{
    HLG_ASSERT(node < sim->config.nodes);
    return sim->nodes[node].alive;
}

hlg_time hlg_simgrid_now(const struct hlg_simgrid *sim)
{
    return sim->now;
}

static void perform(struct hlg_simgrid *sim, const struct happening *h)
{
    switch ((enum happening_kind)h->kind) {
    case HAPPENING_SENT:
        batch_on_sent(sim, h->index);
        return;
    case HAPPENING_LAND:
        batch_on_land(sim, h->index);
        return;
    case HAPPENING_DONE:
        batch_on_done(sim, h->index);
        return;
    case HAPPENING_PEER:
        endpoint_on_peer(&sim->endpoints[h->index], h->part);
        return;
    case HAPPENING_FRAME:
        channel_on_frame(sim, h->index, h->part);
        return;
    case HAPPENING_END:
        channel_on_end(sim, h->index, h->part);
        return;
    case HAPPENING_FLOW:
        batch_on_flow(sim, h->index);
        return;
    case HAPPENING_KILL:
    case HAPPENING_LINK:
        break;
    }
    hlg_unreachable();
}

void sim_sync(struct hlg_simgrid *sim)
{
    /* In the nanosecond in which the last flow ended its unrounded end still counts. */
    if (sim->flows == 0 && engine_time(sim) != sim->now) {
        sim->engine_seconds = sgx_now();
        sim->engine_start = sim->now;
    } else {
        const int rc = sgx_sync(engine_seconds(sim, sim->now));

        HLG_ASSERT(rc == 0);
    }
    sim->engine_stale = true;
}

/* Whether a flow ends by `limit`, as far as is known. */
static bool flow_is_due(struct hlg_simgrid *sim, hlg_time limit)
{
    if (sim->engine_stale) {
        sim->engine_next = sgx_next();
        sim->engine_stale = false;
    }
    /* As far behind as SimGrid takes for the same time. */
    return limit == HLG_TIME_NEVER ||
           sim->engine_next <= engine_seconds(sim, limit) + ENGINE_PRECISION;
}

/* Run SimGrid to `limit` or to the next end of flows. Returns how many ended. */
static uint32_t run_engine(struct hlg_simgrid *sim, hlg_time limit)
{
    sim->engine_stale = true;
    const int ended = sgx_run(limit == HLG_TIME_NEVER ? -1.0 : engine_seconds(sim, limit));
    hlg_time time;

    HLG_ASSERT(ended >= 0 && (ended > 0 || limit != HLG_TIME_NEVER));
    if (ended == 0) {
        return 0;
    }
    time = hlg_min_time(engine_time(sim), limit);
    sim->now = time > sim->now ? time : sim->now;
    for (uint32_t index = 0; index < (uint32_t)ended; index++) {
        batch_on_flow(sim, sgx_ended(index));
    }
    return (uint32_t)ended;
}

/* Perform the next happening, or the flows that end together, if due by `limit`. Returns how many. */
static uint32_t advance(struct hlg_simgrid *sim, hlg_time limit)
{
    const hlg_time next = sim->heap_count == 0 ? HLG_TIME_NEVER : sim->heap[0].time;

    if (sim->flows > 0 && next > sim->now && flow_is_due(sim, hlg_min_time(next, limit))) {
        const uint32_t ended = run_engine(sim, hlg_min_time(next, limit));

        if (ended > 0) {
            return ended;
        }
    }
    if (sim->heap_count == 0 || next > limit) {
        return 0;
    }

    const struct happening happening = schedule_take(sim);

    HLG_ASSERT(happening.time >= sim->now);
    sim->now = happening.time;
    perform(sim, &happening);
    return 1;
}

bool hlg_simgrid_step(struct hlg_simgrid *sim)
{
    return advance(sim, HLG_TIME_NEVER) > 0;
}

bool hlg_simgrid_run(struct hlg_simgrid *sim, hlg_time when)
{
    HLG_ASSERT(when >= sim->now);
    for (;;) {
        const bool ready = ready_any(sim);

        if (ready && (sim->heap_count == 0 || sim->heap[0].time > sim->now)) {
            return true;
        }
        if (advance(sim, when) == 0) {
            break; /* none is ready: or the time would be now, and that of a happening too */
        }
    }
    sim->now = when == HLG_TIME_NEVER ? sim->now : when;
    return ready_any(sim);
}

uint64_t hlg_simgrid_advance_to(struct hlg_simgrid *sim, hlg_time when)
{
    uint64_t count = 0;
    uint32_t performed;

    HLG_ASSERT(when >= sim->now && when != HLG_TIME_NEVER);
    do {
        performed = advance(sim, when);
        count += performed;
    } while (performed > 0);
    sim->now = when;
    return count;
}

/* Batches of one endpoint, or UINT64_MAX if its windows and counts are not those of its batches and
 * reports. */
static uint64_t count_batches(const struct hlg_simgrid *sim, const struct endpoint *e)
{
    uint64_t pieces = 0;
    uint64_t writes = 0;
    uint64_t windows = 0;
    uint64_t batches;

    for (uint32_t index = e->first; e->used && index != HLG_NONE;
         index = sim->batches[index].after) {
        const struct batch *b = &sim->batches[index];

        if (b->state == BATCH_FREE || b->state == BATCH_LOST || b->source != e->self.slot) {
            return UINT64_MAX;
        }
        pieces += batch_pieces(b);
        writes++;
    }
    batches = writes;
    for (uint32_t index = 0; e->used && index < sim->config.peers_max; index++) {
        windows += e->peers[index].writes;
    }
    if (windows != writes) {
        return UINT64_MAX;
    }
    for (uint32_t entry = 0; entry < e->done_count; entry++) {
        const struct done_entry *done = &e->dones[(e->done_head + entry) % sim->config.writes_max];

        pieces += (uint64_t)done->done + done->failed;
        writes += done->writes;
    }
    return pieces == e->pieces && writes == e->writes ? batches + e->lost : UINT64_MAX;
}

int hlg_simgrid_check(const struct hlg_simgrid *sim)
{
    uint64_t used = 0;
    uint64_t listed = 0;
    uint32_t flows = 0;

    for (uint32_t index = 0; index < sim->batch_fresh; index++) {
        used += sim->batches[index].state != BATCH_FREE;
        flows += sim->batches[index].state == BATCH_FLOW;
    }
    if (used != sim->batch_used) {
        return 1;
    }
    if (flows != sim->flows) {
        return 2;
    }
    if (!schedule_is_heap(sim)) {
        return 3;
    }
    if (!flow_counts_agree(sim)) {
        return 6;
    }
    for (uint32_t slot = 0; slot < sim->endpoint_count; slot++) {
        const uint64_t batches = count_batches(sim, &sim->endpoints[slot]);

        if (batches == UINT64_MAX) {
            return 4;
        }
        listed += batches;
    }
    return listed == used ? 0 : 5;
}
