#include "samecore.h"

#include <halage/transport/loop.h>

#define IDLE_NS 20000u

static struct hlg_loop *loop;

static bool open_network(uint64_t seed)
{
    struct hlg_loop_config config;

    hlg_loop_config_default(&config);
    config.seed = seed;
    config.nodes = NODES;
    config.lanes = LANES_MAX;
    config.rails = RAILS;
    config.domains_max = 8;
    config.peers_max = 64;
    config.regions_max = 1;
    config.cq_depth = 1u << 14;
    config.channels_max = PREFILLERS * DECODERS;
    /* nothing breaks, but nothing is in order either */
    config.faults.delay_ppm = 50000;
    config.faults.reorder_ppm = 50000;
    config.faults.duplicate_ppm = 50000;
    config.faults.partial_ppm = 100000;
    config.faults.refuse_ppm = 20000;
    config.faults.delay_ns_max = 100000;
    config.faults.refuse_ns_max = 100000;
    return hlg_loop_create(&config, &loop) == 0;
}

static void close_network(void)
{
    hlg_loop_destroy(loop);
    loop = NULL;
}

static struct hlg_fabric *fabric(uint32_t node)
{
    return hlg_loop_fabric(loop, node);
}

static bool connect_nodes(uint32_t a, uint32_t b, struct hlg_channel **channel_a,
                          struct hlg_channel **channel_b)
{
    return hlg_loop_channel_pair(loop, a, b, channel_a, channel_b) == 0;
}

static void idle(struct hlg_pump *const *pumps, uint32_t count)
{
    (void)pumps;
    (void)count;
    (void)hlg_loop_advance_to(loop, hlg_loop_now(loop) + IDLE_NS);
}

const struct backend backend = {.name = "loop",
                                .open = open_network,
                                .close = close_network,
                                .fabric = fabric,
                                .connect = connect_nodes,
                                .idle = idle};
