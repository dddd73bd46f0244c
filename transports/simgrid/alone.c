/*
 * Flows that share their links with no other have the bandwidth of the slower one, and need no SimGrid:
 * their ends are scheduled like all else. When another flow comes to one of these links, SimGrid gets
 * what is left of them, and shares. SimGrid gives a flow of one alone the same time to a nanosecond, for
 * some twenty times the cost (3.32, measured); `engine_always` asks it all the same.
 */
#include <math.h>

#include "internal.h"
#include "sgx.h"

static struct nic *nic_of(struct hlg_simgrid *sim, const struct batch *b, uint32_t side)
{
    return &sim->nics[side == 0 ? sim->endpoints[b->source].self.nic : b->target.nic];
}

static double bandwidth_of(const struct hlg_simgrid *sim, const struct nic *nic)
{
    return sim->nodes[nic->node].config.nic_bandwidth * nic->factor;
}

/* What of a nanosecond has gone by when it begins: that of the end of the flow that it waited for. Seldom a
 * little below 0, see below. */
static double begin_part(struct hlg_simgrid *sim, const struct batch *b)
{
    double part = 0;

    for (uint32_t side = 0; side < 2; side++) {
        const struct nic *nic = nic_of(sim, b, side);

        if (nic->ended[side] == sim->now && (part == 0 || nic->ended_part[side] > part)) {
            part = nic->ended_part[side];
        }
    }
    return part;
}

static void engine_flow(struct hlg_simgrid *sim, struct batch *b, double bytes)
{
    const uint32_t index = hlg_u32((uint64_t)(b - sim->batches));

    sim_sync(sim);
    const int rc = sgx_flow(index, sim->endpoints[b->source].self.nic, b->target.nic, bytes);
    HLG_ASSERT(rc == 0); /* what SimGrid says no to here is a mistake of ours */
    sim->flows++;
    b->state = BATCH_FLOW;
}

/* It is alone no longer. */
static void give_to_engine(struct hlg_simgrid *sim, struct batch *b)
{
    const double left = ((double)(b->end - sim->now) + b->end_part) * 1e-9 * b->rate;

    HLG_ASSERT(b->state == BATCH_ALONE);
    schedule_drop(sim, b->happening);
    for (uint32_t side = 0; side < 2; side++) {
        nic_of(sim, b, side)->alone[side] = HLG_NONE;
    }
    engine_flow(sim, b, left > 1 ? left : 1); /* SimGrid wants some */
}

void alone_end(struct hlg_simgrid *sim, uint32_t nic, uint32_t side)
{
    const uint32_t index = sim->nics[nic].alone[side];

    if (index != HLG_NONE) {
        give_to_engine(sim, &sim->batches[index]);
    }
}

void flow_begin(struct hlg_simgrid *sim, struct batch *b, double bytes)
{
    struct nic *source = nic_of(sim, b, 0);
    struct nic *target = nic_of(sim, b, 1);
    const bool alone = source->flowing[0] == 0 && target->flowing[1] == 0 &&
                       sim->config.group_nodes == 0 && !sim->config.engine_always;
    const double rate = fmin(bandwidth_of(sim, source), bandwidth_of(sim, target));

    source->stats.flows++;
    alone_end(sim, hlg_u32((uint64_t)(source - sim->nics)), 0);
    alone_end(sim, hlg_u32((uint64_t)(target - sim->nics)), 1);
    source->flowing[0]++;
    target->flowing[1]++;
    if (!alone) {
        engine_flow(sim, b, bytes);
        return;
    }
    const uint32_t index = hlg_u32((uint64_t)(b - sim->batches));
    b->state = BATCH_ALONE;
    b->rate = rate;
    const double span = begin_part(sim, b) + bytes / rate * 1e9;
    const double whole = floor(span + 1e-3); /* the thousandth makes up for what doubles lose */
    b->end = sim->now + (hlg_time)whole;
    b->end_part = span - whole;
    source->alone[0] = index;
    target->alone[1] = index;
    schedule_put(sim, b->end, HAPPENING_FLOW, index, 0);
}

void flow_over(struct hlg_simgrid *sim, const struct batch *b)
{
    HLG_ASSERT(b->state == BATCH_FLOW || b->state == BATCH_ALONE);
    for (uint32_t side = 0; side < 2; side++) {
        struct nic *nic = nic_of(sim, b, side);

        HLG_ASSERT(nic->flowing[side] > 0);
        nic->flowing[side]--;
        nic->ended[side] = sim->now;
        nic->ended_part[side] = 0;
        if (b->state == BATCH_ALONE) {
            nic->ended_part[side] = b->end_part;
            HLG_ASSERT(nic->alone[side] == hlg_u32((uint64_t)(b - sim->batches)));
            nic->alone[side] = HLG_NONE;
        }
    }
}

void flow_cancel(struct hlg_simgrid *sim, const struct batch *b)
{
    if (b->state == BATCH_ALONE) {
        schedule_drop(sim, b->happening);
    } else {
        sim_sync(sim);
        const int rc = sgx_cancel(hlg_u32((uint64_t)(b - sim->batches)));
        HLG_ASSERT(rc == 0);
        sim->flows--;
    }
    flow_over(sim, b);
}

bool flow_counts_agree(const struct hlg_simgrid *sim)
{
    uint64_t flows = 0;
    uint64_t counted[2] = {0};

    for (uint32_t index = 0; index < sim->batch_fresh; index++) {
        const struct batch *b = &sim->batches[index];

        flows += b->state == BATCH_FLOW || b->state == BATCH_ALONE;
        if (b->state == BATCH_ALONE && (sim->heap[b->happening].kind != HAPPENING_FLOW ||
                                        sim->heap[b->happening].index != index)) {
            return false;
        }
    }
    for (uint32_t nic = 0; nic < sim->nic_count; nic++) {
        for (uint32_t side = 0; side < 2; side++) {
            const uint32_t alone = sim->nics[nic].alone[side];

            counted[side] += sim->nics[nic].flowing[side];
            if (alone != HLG_NONE &&
                (sim->batches[alone].state != BATCH_ALONE || sim->nics[nic].flowing[side] != 1)) {
                return false;
            }
        }
    }
    return counted[0] == flows && counted[1] == flows;
}
