#include "timer.h"

void timers_init(struct timers *t, struct carve *c, uint32_t capacity)
{
    uint32_t *heap = carve_array(c, capacity, sizeof *heap);
    uint32_t *place = carve_array(c, capacity, sizeof *place);
    hlg_time *at = carve_array(c, capacity, sizeof *at);

    if (c->base == NULL) {
        return;
    }
    *t = (struct timers){.capacity = capacity, .heap = heap, .place = place, .at = at};
    for (uint32_t i = 0; i < capacity; i++) {
        place[i] = HLG_NONE;
    }
}

/* Ties go by item, so that equal times come out in one order everywhere. */
static bool earlier(const struct timers *t, uint32_t a, uint32_t b)
{
    return t->at[a] != t->at[b] ? t->at[a] < t->at[b] : a < b;
}

static void put(struct timers *t, uint32_t place, uint32_t item)
{
    t->heap[place] = item;
    t->place[item] = place;
}

static void rise(struct timers *t, uint32_t place)
{
    uint32_t item = t->heap[place];

    while (place > 0 && earlier(t, item, t->heap[(place - 1) / 2])) {
        put(t, place, t->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(t, place, item);
}

static void sink(struct timers *t, uint32_t place)
{
    uint32_t item = t->heap[place];

    while (2 * place + 1 < t->count) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < t->count && earlier(t, t->heap[child + 1], t->heap[child])) {
            child++;
        }
        if (!earlier(t, t->heap[child], item)) {
            break;
        }
        put(t, place, t->heap[child]);
        place = child;
    }
    put(t, place, item);
}

void timers_clear(struct timers *t, uint32_t item)
{
    HLG_ASSERT(item < t->capacity);
    uint32_t place = t->place[item];
    if (place == HLG_NONE) {
        return;
    }
    t->place[item] = HLG_NONE;
    t->count--;
    if (place != t->count) {
        put(t, place, t->heap[t->count]);
        rise(t, place);
        sink(t, t->place[t->heap[place]]);
    }
}

void timers_set(struct timers *t, uint32_t item, hlg_time at)
{
    HLG_ASSERT(item < t->capacity);
    timers_clear(t, item);
    t->at[item] = at;
    put(t, t->count, item);
    t->count++;
    rise(t, t->count - 1);
}

hlg_time timers_next(const struct timers *t)
{
    return t->count == 0 ? HLG_TIME_NEVER : t->at[t->heap[0]];
}

uint32_t timers_due(struct timers *t, hlg_time now)
{
    if (t->count == 0 || t->at[t->heap[0]] > now) {
        return HLG_NONE;
    }
    uint32_t item = t->heap[0];
    timers_clear(t, item);
    return item;
}

void timers_check(const struct timers *t)
{
    uint32_t set = 0;

    HLG_ASSERT(t->count <= t->capacity);
    for (uint32_t i = 0; i < t->count; i++) {
        HLG_ASSERT(t->place[t->heap[i]] == i);
        HLG_ASSERT(i == 0 || !earlier(t, t->heap[i], t->heap[(i - 1) / 2]));
    }
    for (uint32_t i = 0; i < t->capacity; i++) {
        set += t->place[i] != HLG_NONE;
    }
    HLG_ASSERT(set == t->count);
}
