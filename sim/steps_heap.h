/*
 * A binary heap of places of struct sim_steps_sequence by one of their keys, equal ones by age. Memory is
 * the caller's; each sequence knows where it stands.
 */
#ifndef HALAGE_SIM_STEPS_HEAP_H
#define HALAGE_SIM_STEPS_HEAP_H

#include "steps.h"

struct sim_steps_heap {
    struct sim_steps_sequence *sequences;
    uint32_t *places;
    uint32_t count;
    enum sim_steps_key key;
};

void sim_steps_heap_add(struct sim_steps_heap *heap, uint32_t place);
void sim_steps_heap_remove(struct sim_steps_heap *heap, uint32_t place);
/* The key of `place` has changed. */
void sim_steps_heap_update(struct sim_steps_heap *heap, uint32_t place);

#endif
