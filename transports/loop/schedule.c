/*
 * What is to happen, as a binary heap by (time, sequence). The sequence makes the order total.
 */
#include "internal.h"

static bool is_before(const struct happening *a, const struct happening *b)
{
    return a->time != b->time ? a->time < b->time : a->sequence < b->sequence;
}

void schedule_put(struct hlg_loop *loop, hlg_time time, uint32_t kind, uint32_t index,
                  uint32_t part)
{
    const struct happening happening = {time, loop->sequence++, kind, index, part};
    uint32_t hole = loop->heap_count++;

    HLG_ASSERT(loop->heap_count <= loop->heap_capacity);
    HLG_ASSERT(time >= loop->now && time != HLG_TIME_NEVER);
    while (hole > 0 && is_before(&happening, &loop->heap[(hole - 1) / 2])) {
        loop->heap[hole] = loop->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    loop->heap[hole] = happening;
}

struct happening schedule_take(struct hlg_loop *loop)
{
    HLG_ASSERT(loop->heap_count > 0);
    const struct happening taken = loop->heap[0];
    const struct happening last = loop->heap[--loop->heap_count];
    const uint32_t count = loop->heap_count;
    uint32_t hole = 0;

    for (uint32_t child = 1; child < count; child = 2 * hole + 1) {
        if (child + 1 < count && is_before(&loop->heap[child + 1], &loop->heap[child])) {
            child++;
        }
        if (!is_before(&loop->heap[child], &last)) {
            break;
        }
        loop->heap[hole] = loop->heap[child];
        hole = child;
    }
    loop->heap[hole] = last;
    return taken;
}

bool schedule_is_heap(const struct hlg_loop *loop)
{
    for (uint32_t index = 1; index < loop->heap_count; index++) {
        if (is_before(&loop->heap[index], &loop->heap[(index - 1) / 2])) {
            return false;
        }
    }
    return true;
}
