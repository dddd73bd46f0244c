/*
 * Which node takes a request. One router for prefill nodes, one for decode nodes (or the co-located
 * ones); equal calls, equal choices.
 */
#ifndef HALAGE_SIM_ROUTER_H
#define HALAGE_SIM_ROUTER_H

#include <halage/base.h>

enum sim_routing {
    SIM_ROUTING_ROUND_ROBIN,
    SIM_ROUTING_RANDOM,
    SIM_ROUTING_LEAST_LOADED, /* fewest tokens open; ties by number */
    SIM_ROUTING_PREFIX, /* most cached tokens less `load_weight` times its load; then as above */
};

struct sim_router;

/*
 * targets      nodes, or ranks of nodes, numbered from 0; >= 1
 * load_weight  tokens of cache that one token of load outweighs, 0..1e9; read by SIM_ROUTING_PREFIX
 *
 * Returns 0, -HLG_EINVAL or -HLG_ENOMEM.
 */
int sim_router_create(enum sim_routing routing, uint32_t targets, uint64_t seed, double load_weight,
                      struct sim_router **router);
void sim_router_destroy(struct sim_router *router);

/* A target that is down is never chosen. All are up at first. */
void sim_router_set_up(struct sim_router *router, uint32_t target, bool up);

/* Tokens that a target has open: add at dispatch, subtract at the end. Never below 0. */
void sim_router_load(struct sim_router *router, uint32_t target, int64_t tokens);
int64_t sim_router_loaded(const struct sim_router *router, uint32_t target);

/*
 * Choose. `cached` says how many prompt tokens a target has in its cache; only SIM_ROUTING_PREFIX asks;
 * may be NULL otherwise. Returns the target, or HLG_NONE when all are down. Cost: O(targets).
 */
uint32_t sim_router_choose(struct sim_router *router,
                           uint32_t (*cached)(void *context, uint32_t target), void *context);

/* "round-robin", "random", "least-loaded", "prefix"; found in any letter case. */
const char *sim_routing_name(enum sim_routing routing);
bool sim_routing_find(const char *name, enum sim_routing *routing);

#endif
