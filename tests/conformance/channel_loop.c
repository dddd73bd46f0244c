/* A channel between two nodes of a loop, which lives as long as one test. */
#include "channel.h"
#include "halage/transport/loop.h"

static struct hlg_loop *loop;

static void make_pair(uint32_t message_bytes_max, struct hlg_channel **a, struct hlg_channel **b)
{
    struct hlg_loop_config config;

    hlg_loop_config_default(&config);
    config.message_bytes_max = message_bytes_max;
    assert_int_equal(hlg_loop_create(&config, &loop), 0);
    assert_int_equal(hlg_loop_channel_pair(loop, 0, 1, a, b), 0);
}

static void step(void)
{
    (void)hlg_loop_step(loop);
}

static void done(void)
{
    hlg_loop_destroy(loop);
    loop = NULL;
}

const struct channel_backend CHANNEL_BACKEND = {
    .name = "loop",
    .pair = make_pair,
    .step = step,
    .done = done,
};
