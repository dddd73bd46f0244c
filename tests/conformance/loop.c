/* One loop for all fabrics that are open together; it lives from the first open to the last close. */
#include "halage/transport/loop.h"
#include "conformance.h"

#ifndef LOOP_ACKNOWLEDGED
#define LOOP_ACKNOWLEDGED false
#endif

#define NODES    4u
#define NOBODY   3u     /* a node whose endpoint is closed again at once */
#define ROUND_NS 20000u /* virtual time of one round */

static struct hlg_loop *loop;
static uint32_t fabrics;

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    if (loop == NULL) {
        const char *seed = getenv("HALAGE_SEED");
        struct hlg_loop_config config;

        hlg_loop_config_default(&config);
        config.seed = seed != NULL ? strtoull(seed, NULL, 0) : 1;
        config.nodes = NODES;
        config.domains_max = 16;
        config.regions_max = 260;
        config.piece_bytes_max = MEMORY_BYTES;
        config.stall_ns = stall_ns;
        config.acknowledged = LOOP_ACKNOWLEDGED;
        config.faults.duplicate_ppm = 50000;
        config.faults.delay_ppm = 50000;
        config.faults.reorder_ppm = 50000;
        config.faults.partial_ppm = 50000;
        config.faults.delay_ns_max = 100000;
        if (hlg_loop_create(&config, &loop) != 0) {
            return NULL;
        }
    }
    fabrics++;
    return hlg_loop_fabric(loop, node);
}

static void close_fabric(struct hlg_fabric *fabric)
{
    (void)fabric;
    assert_true(fabrics > 0);
    fabrics--;
    if (fabrics == 0) {
        hlg_loop_destroy(loop);
        loop = NULL;
    }
}

static void step(void)
{
    (void)hlg_loop_advance_to(loop, hlg_loop_now(loop) + ROUND_NS);
}

static uint32_t nobody(uint8_t *address, uint32_t capacity)
{
    struct hlg_fabric *fabric = hlg_loop_fabric(loop, NOBODY);
    struct hlg_transport *t = NULL;
    int bytes;

    assert_int_equal(fabric->open(fabric, 0, 0, &t), 0);
    bytes = t->ops->address(t, address, capacity);
    assert_true(bytes > 0);
    t->ops->free(t);
    return (uint32_t)bytes;
}

static void kill_fabric(struct hlg_fabric *fabric)
{
    for (uint32_t node = 0; node < NODES; node++) {
        if (hlg_loop_fabric(loop, node) == fabric) {
            hlg_loop_kill(loop, node);
        }
    }
}

const struct conformance_backend CONFORMANCE_BACKEND = {
    .name = LOOP_ACKNOWLEDGED ? "loop, acknowledged" : "loop",
    .limits = 0,
    .open = open_fabric,
    .close = close_fabric,
    .step = step,
    .nobody = nobody,
    .kill = kill_fabric,
};
