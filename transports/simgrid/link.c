/*
 * NICs whose links are slowed down, fail and are repaired. A link that is down is known here and not to
 * SimGrid, where a flow begun on it would never end (3.32): its flows are cancelled and none is begun.
 */
#include <math.h>

#include "internal.h"
#include "sgx.h"

struct nic *link_nic(struct hlg_simgrid *sim, uint32_t index, uint32_t lane, uint32_t rail)
{
    if (index >= sim->config.nodes) {
        return NULL;
    }

    const struct node *node = &sim->nodes[index];

    if (lane >= node->config.lanes || rail >= node->config.rails) {
        return NULL;
    }
    return &sim->nics[node->nic_begin + lane * node->config.rails + rail];
}

static void trace(struct hlg_simgrid *sim, const struct nic *nic, uint64_t what)
{
    sim_trace(sim, HAPPENING_LINK, nic->node, hlg_u32((uint64_t)(nic - sim->nics)), what);
}

int hlg_simgrid_set_bandwidth(struct hlg_simgrid *sim, uint32_t node, uint32_t lane, uint32_t rail,
                              double factor)
{
    struct nic *nic = link_nic(sim, node, lane, rail);

    if (nic == NULL) {
        return -HLG_EINVAL;
    }

    const double bandwidth = sim->nodes[node].config.nic_bandwidth * factor;

    if (!isfinite(bandwidth) || factor <= 0 || bandwidth < 1) {
        return -HLG_EINVAL;
    }
    alone_end(sim, hlg_u32((uint64_t)(nic - sim->nics)), 0);
    alone_end(sim, hlg_u32((uint64_t)(nic - sim->nics)), 1);
    sim_sync(sim);
    if (sgx_set_bandwidth(hlg_u32((uint64_t)(nic - sim->nics)), bandwidth) != 0) {
        return -HLG_EIO;
    }
    nic->factor = factor;
    trace(sim, nic, 2);
    return 0;
}

int hlg_simgrid_set_link(struct hlg_simgrid *sim, uint32_t node, uint32_t lane, uint32_t rail,
                         bool up)
{
    struct nic *nic = link_nic(sim, node, lane, rail);

    if (nic == NULL) {
        return -HLG_EINVAL;
    }
    if (nic->up == up) {
        return 0;
    }
    nic->up = up;
    trace(sim, nic, up);
    if (up) {
        endpoint_on_link_up(sim, hlg_u32((uint64_t)(nic - sim->nics)));
    } else {
        batch_on_link_down(sim, hlg_u32((uint64_t)(nic - sim->nics)));
    }
    return 0;
}

int hlg_simgrid_nic_stats(struct hlg_simgrid *sim, uint32_t node, uint32_t lane, uint32_t rail,
                          struct hlg_simgrid_nic_stats *stats)
{
    const struct nic *nic = link_nic(sim, node, lane, rail);

    if (nic == NULL) {
        return -HLG_EINVAL;
    }
    *stats = nic->stats;
    for (uint32_t side = 0; side < 2; side++) {
        stats->busy_ns[side] += nic->moving[side] > 0 ? sim->now - nic->since[side] : 0;
    }
    return 0;
}
