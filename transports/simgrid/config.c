/*
 * Whether a configuration is sound.
 */
#include <math.h>

#include "internal.h"

static bool bandwidth_is_sound(double bandwidth)
{
    return isfinite(bandwidth) && bandwidth >= 1;
}

static const char *node_fault(const struct hlg_simgrid_config *c,
                              const struct hlg_simgrid_node_config *node)
{
    if (node->lanes == 0 || node->rails == 0) {
        return "simgrid: lanes and rails must be at least 1";
    }
    if (!bandwidth_is_sound(node->nic_bandwidth)) {
        return "simgrid: nic_bandwidth must be finite and at least 1 byte/s";
    }
    if (node->op_ps > UINT32_MAX) {
        return "simgrid: op_ps must be below 2^32, which is 4.3 ms";
    }
    if (node->latency_ns > UINT64_MAX / 1024) {
        return "simgrid: latency_ns must be at most 2^54, which is 208 days";
    }
    if (node->pieces_max == 0 || node->pieces_max > c->cq_depth) {
        return "simgrid: pieces_max must be at least 1 and at most cq_depth";
    }
    return NULL;
}

static const char *nodes_fault(const struct hlg_simgrid_config *c)
{
    const struct hlg_simgrid_node_config alike = {.lanes = c->lanes,
                                                  .rails = c->rails,
                                                  .nic_bandwidth = c->nic_bandwidth,
                                                  .op_ps = c->op_ps,
                                                  .latency_ns = c->latency_ns,
                                                  .pieces_max = c->pieces_max};

    for (uint32_t node = 0; c->node_configs != NULL && node < c->nodes; node++) {
        const char *fault = node_fault(c, &c->node_configs[node]);

        if (fault != NULL) {
            return fault;
        }
    }
    return c->node_configs != NULL ? NULL : node_fault(c, &alike);
}

const char *config_fault(const struct hlg_simgrid_config *c)
{
    if (c->nodes == 0) {
        return "simgrid: nodes must be at least 1";
    }
    if (c->group_nodes > c->nodes) {
        return "simgrid: group_nodes must be at most nodes";
    }
    if (c->group_nodes != 0 && !bandwidth_is_sound(c->group_bandwidth)) {
        return "simgrid: group_bandwidth must be finite and at least 1 byte/s";
    }
    if (c->domains_max == 0 || c->peers_max == 0 || c->regions_max == 0 || c->writes_max == 0 ||
        c->peer_writes_max == 0 || c->peer_pieces_max == 0) {
        return "simgrid: domains_max, peers_max, regions_max, writes_max, peer_writes_max and "
               "peer_pieces_max must be at least 1";
    }
    if (c->frames_max == 0 || c->room_bytes == 0 || c->message_bytes_max == 0) {
        return "simgrid: frames_max, room_bytes and message_bytes_max must be at least 1";
    }
    if (c->piece_bytes_max == 0 || c->piece_bytes_max > UINT32_MAX) {
        return "simgrid: piece_bytes_max must be at least 1 and below 2^32";
    }
    if (c->stall_ns == 0 || c->stall_ns > UINT64_MAX / 1024 || c->frame_ns > UINT64_MAX / 1024) {
        return "simgrid: stall_ns must be at least 1, and it and frame_ns at most 2^54";
    }
    return nodes_fault(c);
}
