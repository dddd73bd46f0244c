/* Deaths, repairs, and NICs that slow down or lose their link. */
#include "cluster_internal.h"

void fault_begin(struct cluster *c)
{
    for (uint32_t i = 0; i < c->scenario->fault_count; i++) {
        heap_put(c,
                 (struct event){.at = c->scenario->faults[i].at, .kind = EVENT_FAULT, .index = i});
    }
}

/* The router's view of a co-located node. */
static void mixed_set_up(struct node *n, bool up)
{
    struct cluster *c = n->cluster;

    for (uint32_t rank = 0; rank < n->ranks; rank++) {
        sim_router_set_up(c->routers[0], rank * c->prefills + n->number, up);
    }
}

static void kill_node(struct cluster *c, struct node *n)
{
    if (!n->alive) {
        return;
    }
    if (c->colocated) {
        mixed_set_up(n, false);
        mixed_stop(n);
        return;
    }
    hlg_simgrid_kill(c->net, n->index);
    cluster_stop_node(c, n);
    cluster_set_up(c, n);
}

static void restart(struct cluster *c, struct node *n)
{
    char text[256];

    if (n->alive) {
        return;
    }
    if (c->colocated) {
        int made = mixed_start(n, text, sizeof text);
        HLG_ASSERT(made == 0); /* it could be started before */
        mixed_set_up(n, true);
        return;
    }
    hlg_simgrid_restart(c->net, n->index);
    int error = cluster_start_node(c, n, text, sizeof text);
    HLG_ASSERT(error == 0); /* likewise */
    for (uint32_t i = 0; i < (n->decode ? c->prefills : c->decodes); i++) {
        struct node *other = n->decode ? &c->nodes[i] : cluster_decode_node(c, i);
        if (other->alive) {
            cluster_connect(c, n->decode ? other : n, n->decode ? n : other);
        }
    }
}

void fault_dial(struct cluster *c, struct node *decode, uint32_t prefill)
{
    struct node *other = &c->nodes[prefill];

    if (decode->alive && other->alive && !decode->peer_up[prefill]) {
        cluster_connect(c, other, decode);
    }
}

/* All NICs of a node, or one of them: GPU by GPU, those of a GPU together. */
static void change_nics(struct cluster *c, struct node *n, const struct sim_fault *fault)
{
    uint32_t rails = c->scenario->network.nics_per_gpu;
    uint32_t count = hlg_layout_lanes(&c->layouts[cluster_kind(n)]) * rails;

    for (uint32_t nic = 0; nic < count; nic++) {
        int error = 0;
        if (fault->nic != HLG_NONE && fault->nic != nic) {
            continue;
        }
        if (fault->kind == SIM_FAULT_LINK) {
            error =
                hlg_simgrid_set_link(c->net, n->index, nic / rails, nic % rails, fault->factor > 0);
        } else {
            error = hlg_simgrid_set_bandwidth(c->net, n->index, nic / rails, nic % rails,
                                              fault->factor);
        }
        HLG_ASSERT(error == 0); /* sim_run() looked at it */
    }
}

void fault_happen(struct cluster *c, uint32_t index)
{
    const struct sim_fault *fault = &c->scenario->faults[index];
    struct node *n = fault->decode ? cluster_decode_node(c, fault->node) : &c->nodes[fault->node];

    cluster_trace(c, EVENT_FAULT, index, n->index);
    switch (fault->kind) {
    case SIM_FAULT_KILL:
        kill_node(c, n);
        return;
    case SIM_FAULT_RESTART:
        restart(c, n);
        return;
    case SIM_FAULT_SLOW:
    case SIM_FAULT_LINK:
        change_nics(c, n, fault);
        return;
    }
    hlg_unreachable();
}
