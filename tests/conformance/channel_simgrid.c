/* A channel between two nodes of a simulation, which lives as long as one test. */
#include "channel.h"
#include "halage/transport/simgrid.h"

static struct hlg_simgrid *sim;

static void make_pair(uint32_t message_bytes_max, struct hlg_channel **a, struct hlg_channel **b)
{
    struct hlg_simgrid_config config;
    char error[256];

    hlg_simgrid_config_default(&config);
    config.message_bytes_max = message_bytes_max;
    assert_int_equal(hlg_simgrid_create(&config, &sim, error, sizeof error), 0);
    assert_int_equal(hlg_simgrid_channel_pair(sim, 0, 1, a, b), 0);
}

static void step(void)
{
    (void)hlg_simgrid_step(sim);
}

static void done(void)
{
    hlg_simgrid_destroy(sim);
    sim = NULL;
}

const struct channel_backend channel_backend = {
    .name = "simgrid",
    .pair = make_pair,
    .step = step,
    .done = done,
};
