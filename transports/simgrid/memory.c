/*
 * The simulation's memory: every table, taken at once.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <sys/mman.h>

#include "internal.h"

/* One array of the simulation's, zeroed. Most of what the many channels have is never touched: it is
 * address space, which the system is not asked to promise. Sets *failed when it could not be had. */
static void *take(struct hlg_simgrid *sim, uint64_t count, size_t bytes, bool *failed)
{
    void *memory;
    uint64_t all = 0;

    HLG_ASSERT(sim->memory_count < sizeof(sim->memory) / sizeof(sim->memory[0]));
    if (*failed || count == 0) {
        return NULL;
    }
    if (!hlg_mul_u64(count, bytes, &all) || all > SIZE_MAX / 2) {
        *failed = true;
        return NULL;
    }
    memory = mmap(NULL, (size_t)all, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        *failed = true;
        return NULL;
    }
    sim->memory_bytes[sim->memory_count] = all;
    sim->memory[sim->memory_count++] = memory;
    return memory;
}

/* What each node has of its own. */
static bool take_nodes(struct hlg_simgrid *sim)
{
    const struct hlg_simgrid_config *c = &sim->config;
    uint64_t nics = 0;
    bool failed = false;

    sim->nodes = take(sim, c->nodes, sizeof(*sim->nodes), &failed);
    for (uint32_t index = 0; !failed && index < c->nodes; index++) {
        struct hlg_simgrid_node_config *own = &sim->nodes[index].config;

        *own = (struct hlg_simgrid_node_config){.lanes = c->lanes,
                                                .rails = c->rails,
                                                .nic_bandwidth = c->nic_bandwidth,
                                                .op_ps = c->op_ps,
                                                .latency_ns = c->latency_ns,
                                                .pieces_max = c->pieces_max};
        if (c->node_configs != NULL) {
            *own = c->node_configs[index];
        }
        nics += (uint64_t)own->lanes * own->rails;
        failed = nics >= HLG_NONE;
    }
    sim->nic_count = failed ? 0 : hlg_u32(nics);
    sim->nics = take(sim, sim->nic_count, sizeof(*sim->nics), &failed);
    return !failed;
}

/* False when endpoints or batches would not be counted in 32 bits. */
static bool set_counts(struct hlg_simgrid *sim)
{
    const struct hlg_simgrid_config *c = &sim->config;
    uint64_t endpoints;
    uint64_t batches;

    if (!hlg_mul_u64(sim->nic_count, c->domains_max, &endpoints) ||
        !hlg_mul_u64(endpoints, c->writes_max, &batches) || batches >= HLG_NONE) {
        return false;
    }
    sim->endpoint_count = hlg_u32(endpoints);
    sim->batch_count = hlg_u32(batches);
    sim->imms_max = hlg_min_u32(c->cq_depth, c->writes_max);
    sim->ring_capacity = hlg_max_u32(c->room_bytes, c->message_bytes_max);
    return true;
}

static bool take_endpoints(struct hlg_simgrid *sim)
{
    const struct hlg_simgrid_config *c = &sim->config;
    const uint64_t count = sim->endpoint_count;
    bool failed = false;
    struct region *regions = take(sim, count * c->regions_max, sizeof(*regions), &failed);
    struct peer *peers = take(sim, count * c->peers_max, sizeof(*peers), &failed);
    struct done_entry *dones = take(sim, count * c->writes_max, sizeof(*dones), &failed);
    struct imm_entry *imms = take(sim, count * sim->imms_max, sizeof(*imms), &failed);

    sim->endpoints = take(sim, count, sizeof(*sim->endpoints), &failed);
    if (failed) {
        return false;
    }
    for (uint64_t slot = 0; slot < count; slot++) {
        struct endpoint *e = &sim->endpoints[slot];

        e->transport.ops = &endpoint_ops;
        e->sim = sim;
        e->regions = regions + slot * c->regions_max;
        e->peers = peers + slot * c->peers_max;
        e->dones = dones + slot * c->writes_max;
        e->imms = imms + slot * sim->imms_max;
    }
    return true;
}

static bool take_batches(struct hlg_simgrid *sim)
{
    bool failed = false;

    sim->batches = take(sim, sim->batch_count, sizeof(*sim->batches), &failed);
    sim->batch_free = HLG_NONE;
    return !failed;
}

static bool take_items(struct hlg_simgrid *sim)
{
    bool failed = ready_items(sim) >= HLG_NONE;

    sim->items = take(sim, ready_items(sim), sizeof(*sim->items), &failed);
    return !failed;
}

static bool take_channels(struct hlg_simgrid *sim)
{
    const struct hlg_simgrid_config *c = &sim->config;
    const uint64_t count = 2 * (uint64_t)c->channels_max;
    bool failed = false;
    uint32_t *sizes = take(sim, count * c->frames_max, sizeof(*sizes), &failed);
    uint8_t *rings = take(sim, count * sim->ring_capacity, 1, &failed);
    uint8_t *frames = take(sim, count * c->message_bytes_max, 1, &failed);

    sim->pair_free = HLG_NONE;
    sim->pairs = take(sim, c->channels_max, sizeof(*sim->pairs), &failed);
    if (failed) {
        return false;
    }
    for (uint64_t index = 0; index < count; index++) {
        struct side *s = &sim->pairs[index / 2].sides[index % 2];

        s->channel.ops = &channel_ops;
        s->sim = sim;
        s->pair = hlg_u32(index / 2);
        s->sizes = sizes + index * c->frames_max;
        s->ring = rings + index * sim->ring_capacity;
        s->frame = frames + index * c->message_bytes_max;
    }
    return true;
}

static bool take_heap(struct hlg_simgrid *sim)
{
    const struct hlg_simgrid_config *c = &sim->config;
    const uint64_t capacity = sim->batch_count + (uint64_t)sim->endpoint_count * c->peers_max +
                              2ull * c->channels_max * (c->frames_max + 1ull);
    bool failed = capacity > UINT32_MAX;

    sim->heap = take(sim, capacity, sizeof(*sim->heap), &failed);
    sim->heap_capacity = failed ? 0 : hlg_u32(capacity);
    return !failed;
}

bool memory_take(struct hlg_simgrid *sim)
{
    return take_nodes(sim) && set_counts(sim) && take_endpoints(sim) && take_batches(sim) &&
           take_channels(sim) && take_items(sim) && take_heap(sim);
}

void memory_free(struct hlg_simgrid *sim)
{
    while (sim->memory_count > 0) {
        sim->memory_count--;
        (void)munmap(sim->memory[sim->memory_count], (size_t)sim->memory_bytes[sim->memory_count]);
    }
}
