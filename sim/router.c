#include "router.h"

#include <driver/rng.h>

#include <stdlib.h>
#include <strings.h>

struct sim_router {
    enum sim_routing routing;
    uint32_t targets;
    uint32_t up_count;
    uint32_t next; /* round robin: where to look first */
    double load_weight;
    struct hlg_rng rng;
    int64_t *loads; /* [targets] */
    bool *up;       /* [targets] */
};

static const char *const routing_names[] = {
    [SIM_ROUTING_ROUND_ROBIN] = "round-robin",
    [SIM_ROUTING_RANDOM] = "random",
    [SIM_ROUTING_LEAST_LOADED] = "least-loaded",
    [SIM_ROUTING_PREFIX] = "prefix",
};
#define ROUTINGS (sizeof(routing_names) / sizeof(routing_names[0]))

int sim_router_create(enum sim_routing routing, uint32_t targets, uint64_t seed, double load_weight,
                      struct sim_router **out)
{
    struct sim_router *router = NULL;

    if ((size_t)routing >= ROUTINGS || targets == 0 || targets == HLG_NONE ||
        !(load_weight >= 0 && load_weight <= 1e9)) {
        return -HLG_EINVAL;
    }
    router = calloc(1, sizeof(*router));
    if (router == NULL) {
        return -HLG_ENOMEM;
    }
    router->loads = calloc(targets, sizeof(*router->loads));
    router->up = calloc(targets, sizeof(*router->up));
    if (router->loads == NULL || router->up == NULL) {
        sim_router_destroy(router);
        return -HLG_ENOMEM;
    }
    router->routing = routing;
    router->targets = targets;
    router->up_count = targets;
    router->load_weight = load_weight;
    router->rng = hlg_rng_seed(seed);
    for (uint32_t i = 0; i < targets; i++) {
        router->up[i] = true;
    }
    *out = router;
    return 0;
}

void sim_router_destroy(struct sim_router *router)
{
    if (router != NULL) {
        free(router->loads);
        free(router->up);
        free(router);
    }
}

void sim_router_set_up(struct sim_router *router, uint32_t target, bool up)
{
    HLG_ASSERT(target < router->targets);
    if (router->up[target] != up) {
        router->up[target] = up;
        router->up_count = up ? router->up_count + 1 : router->up_count - 1;
    }
}

void sim_router_load(struct sim_router *router, uint32_t target, int64_t tokens)
{
    HLG_ASSERT(target < router->targets);
    router->loads[target] += tokens;
    HLG_ASSERT(router->loads[target] >= 0);
}

int64_t sim_router_loaded(const struct sim_router *router, uint32_t target)
{
    HLG_ASSERT(target < router->targets);
    return router->loads[target];
}

/* The first target that is up, from `begin` on and around. One must be up. */
static uint32_t first_up(const struct sim_router *router, uint32_t begin)
{
    uint32_t target = begin;

    while (!router->up[target]) {
        target = target + 1 < router->targets ? target + 1 : 0;
    }
    return target;
}

static uint32_t choose_random(struct sim_router *router)
{
    uint64_t left = hlg_rng_below(&router->rng, router->up_count);
    uint32_t target = first_up(router, 0);

    for (; left != 0; left--) {
        target = first_up(router, target + 1);
    }
    return target;
}

static uint32_t choose_least_loaded(const struct sim_router *router)
{
    uint32_t best = first_up(router, 0);

    for (uint32_t i = best + 1; i < router->targets; i++) {
        if (router->up[i] && router->loads[i] < router->loads[best]) {
            best = i;
        }
    }
    return best;
}

static uint32_t choose_prefix(const struct sim_router *router,
                              uint32_t (*cached)(void *context, uint32_t target), void *context)
{
    uint32_t best = HLG_NONE;
    double best_score = 0;

    for (uint32_t i = 0; i < router->targets; i++) {
        double score = 0;

        if (!router->up[i]) {
            continue;
        }
        score = (double)cached(context, i) - router->load_weight * (double)router->loads[i];
        if (best == HLG_NONE || score > best_score ||
            (score >= best_score && router->loads[i] < router->loads[best])) {
            best = i;
            best_score = score;
        }
    }
    return best;
}

uint32_t sim_router_choose(struct sim_router *router,
                           uint32_t (*cached)(void *context, uint32_t target), void *context)
{
    uint32_t target = HLG_NONE;

    if (router->up_count == 0) {
        return HLG_NONE;
    }
    switch (router->routing) {
    case SIM_ROUTING_ROUND_ROBIN:
        target = first_up(router, router->next);
        router->next = target + 1 < router->targets ? target + 1 : 0;
        return target;
    case SIM_ROUTING_RANDOM:
        return choose_random(router);
    case SIM_ROUTING_LEAST_LOADED:
        return choose_least_loaded(router);
    case SIM_ROUTING_PREFIX:
        HLG_ASSERT(cached != NULL);
        return choose_prefix(router, cached, context);
    }
    hlg_unreachable();
}

const char *sim_routing_name(enum sim_routing routing)
{
    HLG_ASSERT((size_t)routing < ROUTINGS);
    return routing_names[routing];
}

bool sim_routing_find(const char *name, enum sim_routing *routing)
{
    for (uint32_t i = 0; i < ROUTINGS; i++) {
        if (strcasecmp(name, routing_names[i]) == 0) {
            *routing = (enum sim_routing)i;
            return true;
        }
    }
    return false;
}
