#include "samecore.h"

#include <halage/transport/simgrid.h>

#define IDLE_NS 20000u

static struct hlg_simgrid *sim;

static bool open_network(uint64_t seed)
{
    struct hlg_simgrid_config config;
    char error[256] = "";

    hlg_simgrid_config_default(&config);
    config.seed = seed;
    config.nodes = NODES;
    config.lanes = LANES_MAX;
    config.rails = RAILS;
    config.domains_max = 8;
    config.peers_max = 64;
    config.channels_max = PREFILLERS * DECODERS;
    config.op_ps = 20000;
    if (hlg_simgrid_create(&config, &sim, error, sizeof error) != 0) {
        (void)fprintf(stderr, "simgrid: %s\n", error);
        return false;
    }
    return true;
}

static void close_network(void)
{
    hlg_simgrid_destroy(sim);
    sim = NULL;
}

static struct hlg_fabric *fabric(uint32_t node)
{
    return hlg_simgrid_fabric(sim, node);
}

static bool connect_nodes(uint32_t a, uint32_t b, struct hlg_channel **channel_a,
                          struct hlg_channel **channel_b)
{
    return hlg_simgrid_channel_pair(sim, a, b, channel_a, channel_b) == 0;
}

static void idle(struct hlg_pump *const *pumps, uint32_t count)
{
    (void)pumps;
    (void)count;
    (void)hlg_simgrid_advance_to(sim, hlg_simgrid_now(sim) + IDLE_NS);
}

const struct backend backend = {.name = "simgrid",
                                .open = open_network,
                                .close = close_network,
                                .fabric = fabric,
                                .connect = connect_nodes,
                                .idle = idle};
