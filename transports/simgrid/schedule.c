/*
 * What is to happen, as a binary heap by (time, sequence). The sequence makes the order total.
 */
#include "internal.h"

static bool is_before(const struct happening *a, const struct happening *b)
{
    return a->time != b->time ? a->time < b->time : a->sequence < b->sequence;
}

static void put_at(struct hlg_simgrid *sim, uint32_t place, const struct happening *happening)
{
    sim->heap[place] = *happening;
    if (happening->kind == HAPPENING_FLOW) {
        sim->batches[happening->index].happening = place;
    }
}

/* Into the hole, or above it. */
static void rise(struct hlg_simgrid *sim, uint32_t hole, const struct happening *happening)
{
    while (hole > 0 && is_before(happening, &sim->heap[(hole - 1) / 2])) {
        put_at(sim, hole, &sim->heap[(hole - 1) / 2]);
        hole = (hole - 1) / 2;
    }
    put_at(sim, hole, happening);
}

/* Into the hole, or below it. */
static void sink(struct hlg_simgrid *sim, uint32_t hole, const struct happening *happening)
{
    const uint32_t count = sim->heap_count;

    for (uint32_t child = 2 * hole + 1; child < count; child = 2 * hole + 1) {
        if (child + 1 < count && is_before(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (!is_before(&sim->heap[child], happening)) {
            break;
        }
        put_at(sim, hole, &sim->heap[child]);
        hole = child;
    }
    put_at(sim, hole, happening);
}

void schedule_put(struct hlg_simgrid *sim, hlg_time time, uint32_t kind, uint32_t index,
                  uint32_t part)
{
    const struct happening happening = {time, sim->sequence++, kind, index, part};

    sim->heap_count++;
    HLG_ASSERT(sim->heap_count <= sim->heap_capacity);
    HLG_ASSERT(time >= sim->now && time != HLG_TIME_NEVER);
    rise(sim, sim->heap_count - 1, &happening);
}

struct happening schedule_take(struct hlg_simgrid *sim)
{
    HLG_ASSERT(sim->heap_count > 0);
    const struct happening taken = sim->heap[0];
    const struct happening last = sim->heap[--sim->heap_count];

    if (sim->heap_count > 0) {
        sink(sim, 0, &last);
    }
    return taken;
}

void schedule_drop(struct hlg_simgrid *sim, uint32_t place)
{
    HLG_ASSERT(place < sim->heap_count);
    const struct happening last = sim->heap[--sim->heap_count];

    if (place == sim->heap_count) {
        return;
    }
    if (place > 0 && is_before(&last, &sim->heap[(place - 1) / 2])) {
        rise(sim, place, &last);
    } else {
        sink(sim, place, &last);
    }
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
