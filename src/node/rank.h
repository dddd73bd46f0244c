/*
 * The process of one rank: ranks.h forks it. It makes its KV memory, hands it to the leader, and computes
 * the steps that it is woken for.
 *
 * tinylm computes on the CPU. With memory of a GPU its pages are there all the same: a working copy in host
 * memory is filled from the GPU before each layer, and what was computed is written to the GPU before the
 * layer's tick.
 */
#ifndef HALAGE_NODE_RANK_H
#define HALAGE_NODE_RANK_H

#include "ranks.h"

#define RANK_WHY_BYTES 256u

struct rank_order {
    const struct ranks_config *config;
    const struct tlm_model *model;
    struct tlm_group *group;
    struct step *step;
    char *why; /* [RANK_WHY_BYTES] shared with the leader: a sentence when the rank fails */
    pid_t leader;
    uint32_t lane;
    int socket; /* to the leader */
    int done;   /* eventfd of the pool */
};

/* Run it, in a process that has just been forked, until step->end says to end. */
_Noreturn void rank_main(const struct rank_order *order);

#endif
