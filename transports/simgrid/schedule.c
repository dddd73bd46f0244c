/*
 * What is to happen, as a binary heap by (time, sequence). The sequence makes the order total.
 */
#include "internal.h"

static bool is_before(const struct happening *a, const struct happening *b)
{
    return a->time != b->time ? a->time < b->time : a->sequence < b->sequence;
}

void schedule_put(struct hlg_simgrid *sim, hlg_time time, uint32_t kind, uint32_t index,
                  uint32_t part)
{
    const struct happening happening = {time, sim->sequence++, kind, index, part};
    uint32_t hole = sim->heap_count++;

    HLG_ASSERT(sim->heap_count <= sim->heap_capacity);
    HLG_ASSERT(time >= sim->now && time != HLG_TIME_NEVER);
    while (hole > 0 && is_before(&happening, &sim->heap[(hole - 1) / 2])) {
        sim->heap[hole] = sim->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    sim->heap[hole] = happening;
}

struct happening schedule_take(struct hlg_simgrid *sim)
{
    HLG_ASSERT(sim->heap_count > 0);
    const struct happening taken = sim->heap[0];
    const struct happening last = sim->heap[--sim->heap_count];
    const uint32_t count = sim->heap_count;
    uint32_t hole = 0;

    for (uint32_t child = 1; child < count; child = 2 * hole + 1) {
        if (child + 1 < count && is_before(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (!is_before(&sim->heap[child], &last)) {
            break;
        }
        sim->heap[hole] = sim->heap[child];
        hole = child;
    }
    sim->heap[hole] = last;
    return taken;
}

bool schedule_is_heap(const struct hlg_simgrid *sim)
{
    for (uint32_t index = 1; index < sim->heap_count; index++) {
        if (is_before(&sim->heap[index], &sim->heap[(index - 1) / 2])) {
            return false;
        }
    }
    return true;
}
