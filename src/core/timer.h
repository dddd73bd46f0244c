/*
 * Deadlines: a binary heap of (time, item), each item in it at most once. O(log items) to set,
 * O(1) to ask for the first.
 */
#ifndef HALAGE_CORE_TIMER_H
#define HALAGE_CORE_TIMER_H

#include "carve.h"

struct timers {
    uint32_t capacity;
    uint32_t count;
    uint32_t *heap;  /* [capacity] items */
    uint32_t *place; /* [capacity] of item, HLG_NONE: not set */
    hlg_time *at;    /* [capacity] of item */
};

void timers_init(struct timers *t, struct carve *c, uint32_t capacity);
/* Set or move an item's time. */
void timers_set(struct timers *t, uint32_t item, hlg_time at);
void timers_clear(struct timers *t, uint32_t item);
/* Time of the first item, or HLG_TIME_NEVER. */
hlg_time timers_next(const struct timers *t);
/* Takes out the first item due at `now`. Returns it, or HLG_NONE. */
uint32_t timers_due(struct timers *t, hlg_time now);
void timers_check(const struct timers *t);

#endif
