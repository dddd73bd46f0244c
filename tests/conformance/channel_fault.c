/* Both ends of a channel of `channel_below` through the decorator, with the rules of FAULT_SCRIPT. */
#include "channel.h"
#include "halage/transport/fault.h"
#include "halage/transport/loop.h"

extern const struct channel_backend channel_below;

static struct hlg_fault *fault;
static struct hlg_loop
    *clock_loop; /* frames wait by a clock: that of this loop, which goes on by steps */
static struct hlg_fabric *fabric;

static void make_fault(uint32_t message_bytes_max)
{
    struct hlg_fault_config config;
    struct hlg_loop_config loop;
    char error[256] = "";

    hlg_loop_config_default(&loop);
    assert_int_equal(hlg_loop_create(&loop, &clock_loop), 0);
    hlg_fault_config_default(&config);
    config.message_bytes_max = message_bytes_max;
    assert_int_equal(hlg_fault_create(&config, &fault), 0);
    assert_int_equal(hlg_fault_fabric(fault, 0, hlg_loop_fabric(clock_loop, 0), &fabric), 0);
    if (hlg_fault_script(fault, FAULT_SCRIPT, error, sizeof error) != 0) {
        fail_msg("%s", error);
    }
}

static void make_pair(uint32_t message_bytes_max, struct hlg_channel **a, struct hlg_channel **b)
{
    struct hlg_channel *ends[2];

    make_fault(message_bytes_max);
    channel_below.pair(message_bytes_max, &ends[0], &ends[1]);
    assert_int_equal(hlg_fault_channel(fault, 0, 1, ends[0], a), 0);
    assert_int_equal(hlg_fault_channel(fault, 1, 0, ends[1], b), 0);
}

#if FAULT_RAW
static int make_raw(uint32_t message_bytes_max, struct hlg_channel **a)
{
    struct hlg_channel *end = NULL;

    make_fault(message_bytes_max);
    const int fd = channel_below.raw(message_bytes_max, &end);
    assert_int_equal(hlg_fault_channel(fault, 0, 1, end, a), 0);
    return fd;
}
#endif

static void step(void)
{
    (void)hlg_loop_advance_to(clock_loop, hlg_loop_now(clock_loop) + 20000);
    if (channel_below.step != NULL) {
        channel_below.step();
    }
}

static void done(void)
{
    assert_int_equal(fault != NULL ? hlg_fault_check(fault) : 0, 0); /* a test that was skipped */
    hlg_fault_destroy(fault);
    hlg_loop_destroy(clock_loop);
    fault = NULL;
    clock_loop = NULL;
    if (channel_below.done != NULL) {
        channel_below.done();
    }
}

const struct channel_backend channel_backend = {
    .name = FAULT_NAME,
    .pair = make_pair,
    .step = step,
#if FAULT_RAW
    .raw = make_raw,
#endif
    .done = done,
};
