/*
 * One simulation for all fabrics that are open together; it lives from the first open to the last
 * close, and so for one test. The engine below, and its clock, live as long as the process.
 */
#include "halage/transport/simgrid.h"
#include "conformance.h"

#define NODES    4u
#define NOBODY   3u     /* a node whose endpoint is closed again at once */
#define ROUND_NS 20000u /* virtual time of one round */

static struct hlg_simgrid *sim;
static uint32_t fabrics;

static struct hlg_fabric *open_fabric(uint32_t node, hlg_time stall_ns)
{
    if (sim == NULL) {
        const char *seed = getenv("HALAGE_SEED");
        struct hlg_simgrid_config config;
        char error[256];

        hlg_simgrid_config_default(&config);
        config.seed = seed != NULL ? strtoull(seed, NULL, 0) : 1;
        config.nodes = NODES;
        config.domains_max = 16;
        config.regions_max = 260;
        config.piece_bytes_max = MEMORY_BYTES;
        config.stall_ns = stall_ns;
        config.writes_max = 256;
        config.pieces_max = 256;
        config.peer_writes_max = 192;
        config.peer_pieces_max = 192;
        config.cq_depth = 1024;
        config.op_ps = 20000;
        if (hlg_simgrid_create(&config, &sim, error, sizeof error) != 0) {
            fail_msg("%s", error);
        }
    }
    fabrics++;
    return hlg_simgrid_fabric(sim, node);
}

static void close_fabric(struct hlg_fabric *fabric)
{
    (void)fabric;
    assert_true(fabrics > 0);
    fabrics--;
    if (fabrics == 0) {
        hlg_simgrid_destroy(sim);
        sim = NULL;
    }
}

static void step(void)
{
    (void)hlg_simgrid_advance_to(sim, hlg_simgrid_now(sim) + ROUND_NS);
}

static uint32_t nobody(uint8_t *address, uint32_t capacity)
{
    struct hlg_fabric *fabric = hlg_simgrid_fabric(sim, NOBODY);
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
        if (hlg_simgrid_fabric(sim, node) == fabric) {
            hlg_simgrid_kill(sim, node);
        }
    }
}

const struct conformance_backend conformance_backend = {
    .name = "simgrid",
    .limits = 0,
    .open = open_fabric,
    .close = close_fabric,
    .step = step,
    .nobody = nobody,
    .kill = kill_fabric,
};
