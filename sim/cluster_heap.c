/* What is to happen, as a binary heap by (time, sequence). The sequence makes the order total. */
#include "cluster_internal.h"

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->sequence < b->sequence;
}

/* Samples and the pumps' own timers go on for ever; the others bring some request on. */
static bool lasts(const struct event *event)
{
    return event->kind != EVENT_SAMPLE && event->kind != EVENT_DEADLINE;
}

void heap_put(struct cluster *c, struct event event)
{
    struct heap *heap = &c->heap;

    HLG_ASSERT(event.at >= c->now && event.at != HLG_TIME_NEVER);
    if (heap->count == heap->capacity) {
        heap->capacity = heap->capacity == 0 ? 256 : 2 * heap->capacity;
        heap->events = cluster_grow(heap->events, heap->capacity, sizeof *heap->events);
    }
    uint32_t hole = heap->count++;
    event.sequence = heap->sequence++;
    heap->lasting += lasts(&event);
    while (hole > 0 && is_before(&event, &heap->events[(hole - 1) / 2])) {
        heap->events[hole] = heap->events[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap->events[hole] = event;
}

struct event heap_take(struct heap *heap)
{
    HLG_ASSERT(heap->count > 0);
    const struct event taken = heap->events[0];
    const struct event last = heap->events[--heap->count];
    uint32_t hole = 0;

    for (uint32_t child = 1; child < heap->count; child = 2 * hole + 1) {
        if (child + 1 < heap->count && is_before(&heap->events[child + 1], &heap->events[child])) {
            child++;
        }
        if (!is_before(&heap->events[child], &last)) {
            break;
        }
        heap->events[hole] = heap->events[child];
        hole = child;
    }
    heap->events[hole] = last;
    heap->lasting -= lasts(&taken);
    return taken;
}
