#include "steps_heap.h"

static bool before(const struct sim_steps_heap *heap, uint32_t a, uint32_t b)
{
    const struct sim_steps_sequence *left = &heap->sequences[a];
    const struct sim_steps_sequence *right = &heap->sequences[b];

    if (left->key[heap->key] != right->key[heap->key]) {
        return left->key[heap->key] < right->key[heap->key];
    }
    return left->serial < right->serial;
}

static void put(struct sim_steps_heap *heap, uint32_t index, uint32_t place)
{
    heap->places[index] = place;
    heap->sequences[place].heap_index[heap->key] = index;
}

static void rise(struct sim_steps_heap *heap, uint32_t place)
{
    uint32_t index = heap->sequences[place].heap_index[heap->key];

    while (index != 0 && before(heap, place, heap->places[(index - 1) / 2])) {
        put(heap, index, heap->places[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put(heap, index, place);
}

static void sink(struct sim_steps_heap *heap, uint32_t place)
{
    uint32_t index = heap->sequences[place].heap_index[heap->key];

    for (uint32_t child = 2 * index + 1; child < heap->count; child = 2 * index + 1) {
        if (child + 1 < heap->count && before(heap, heap->places[child + 1], heap->places[child])) {
            child++;
        }
        if (!before(heap, heap->places[child], place)) {
            break;
        }
        put(heap, index, heap->places[child]);
        index = child;
    }
    put(heap, index, place);
}

void sim_steps_heap_update(struct sim_steps_heap *heap, uint32_t place)
{
    rise(heap, place);
    sink(heap, place);
}

void sim_steps_heap_add(struct sim_steps_heap *heap, uint32_t place)
{
    put(heap, heap->count, place);
    heap->count++;
    rise(heap, place);
}

void sim_steps_heap_remove(struct sim_steps_heap *heap, uint32_t place)
{
    uint32_t index = heap->sequences[place].heap_index[heap->key];
    uint32_t last = 0;

    HLG_ASSERT(heap->count != 0 && heap->places[index] == place);
    heap->count--;
    last = heap->places[heap->count];
    if (last != place) {
        put(heap, index, last);
        sim_steps_heap_update(heap, last);
    }
}
