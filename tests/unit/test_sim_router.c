/*
 * The router of simulated requests: fair where it promises that, never a node that is down, the least
 * loaded one, and the cached prefix against the load. Choices are compared with ones made by looking at
 * all targets, at random; seeds are printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>

#include <driver/rng.h>

#include "router.h"

/* The seed in use: of the failure, when there is one. */
static uint64_t last_seed;

#define TARGETS 7u

static uint32_t cached_of(void *context, uint32_t target)
{
    const uint32_t *cached = context;

    return cached[target];
}

static void round_robin_takes_each_in_turn(void **state)
{
    struct sim_router *router = NULL;

    (void)state;
    assert_int_equal(sim_router_create(SIM_ROUTING_ROUND_ROBIN, 3, 1, 0, &router), 0);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(sim_router_choose(router, NULL, NULL), i % 3);
    }
    sim_router_set_up(router, 1, false);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(sim_router_choose(router, NULL, NULL), i % 2 == 0 ? 0 : 2);
    }
    sim_router_set_up(router, 0, false);
    sim_router_set_up(router, 2, false);
    assert_int_equal(sim_router_choose(router, NULL, NULL), HLG_NONE);
    sim_router_set_up(router, 1, true);
    sim_router_set_up(router, 1, true);
    assert_int_equal(sim_router_choose(router, NULL, NULL), 1);
    sim_router_destroy(router);
}

static void random_is_fair_and_repeats(void **state)
{
    struct sim_router *routers[2] = {NULL, NULL};
    uint32_t counts[TARGETS] = {0};
    const uint32_t draws = 60000;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sim_router_create(SIM_ROUTING_RANDOM, TARGETS, 5, 0, &routers[i]), 0);
        sim_router_set_up(routers[i], 3, false);
    }
    for (uint32_t i = 0; i < draws; i++) {
        uint32_t target = sim_router_choose(routers[0], NULL, NULL);

        assert_int_equal(target, sim_router_choose(routers[1], NULL, NULL));
        counts[target]++;
    }
    for (uint32_t i = 0; i < TARGETS; i++) {
        /* binomial, p = 1/6: 6 standard deviations are 548 */
        assert_true(i == 3 ? counts[i] == 0
                           : counts[i] > draws / 6 - 548 && counts[i] < draws / 6 + 548);
    }
    sim_router_destroy(routers[0]);
    sim_router_destroy(routers[1]);
}

/* What the header says, by looking at all pairs. */
static bool is_best(const int64_t *loads, const uint32_t *cached, const bool *up, int64_t weight,
                    uint32_t chosen)
{
    for (uint32_t i = 0; i < TARGETS; i++) {
        int64_t score = cached == NULL ? 0 : (int64_t)cached[i] - weight * loads[i];
        int64_t best = cached == NULL ? 0 : (int64_t)cached[chosen] - weight * loads[chosen];

        if (!up[i] || i == chosen) {
            continue;
        }
        if (score > best || (score == best && loads[i] < loads[chosen]) ||
            (score == best && loads[i] == loads[chosen] && i < chosen)) {
            return false;
        }
    }
    return up[chosen];
}

static void the_best_target_is_chosen(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct hlg_rng rng = hlg_rng_seed(seed);
        const int64_t weight = (int64_t)hlg_rng_below(&rng, 4);
        struct sim_router *least = NULL;
        struct sim_router *prefix = NULL;
        int64_t loads[TARGETS] = {0};
        bool up[TARGETS] = {true, true, true, true, true, true, true};

        last_seed = seed;
        assert_int_equal(sim_router_create(SIM_ROUTING_LEAST_LOADED, TARGETS, 1, 0, &least), 0);
        assert_int_equal(sim_router_create(SIM_ROUTING_PREFIX, TARGETS, 1, (double)weight, &prefix),
                         0);
        for (uint32_t turn = 0; turn < 500; turn++) {
            uint32_t cached[TARGETS];
            const uint32_t target = (uint32_t)hlg_rng_below(&rng, TARGETS);
            const int64_t change =
                (int64_t)hlg_rng_below(&rng, 5) - hlg_min_u32((uint32_t)loads[target], 2);

            loads[target] += change;
            sim_router_load(least, target, change);
            sim_router_load(prefix, target, change);
            assert_int_equal(sim_router_loaded(least, target), loads[target]);
            up[(target + 1) % TARGETS] = target == 0 || hlg_rng_chance(&rng, 700000);
            sim_router_set_up(least, (target + 1) % TARGETS, up[(target + 1) % TARGETS]);
            sim_router_set_up(prefix, (target + 1) % TARGETS, up[(target + 1) % TARGETS]);
            for (uint32_t i = 0; i < TARGETS; i++) {
                cached[i] = (uint32_t)hlg_rng_below(&rng, 6);
            }
            uint32_t chosen = sim_router_choose(least, NULL, NULL);
            if (chosen == HLG_NONE) {
                assert_int_equal(sim_router_choose(prefix, cached_of, cached), HLG_NONE);
                continue;
            }
            assert_true(is_best(loads, NULL, up, 0, chosen));
            assert_true(
                is_best(loads, cached, up, weight, sim_router_choose(prefix, cached_of, cached)));
        }
        sim_router_destroy(least);
        sim_router_destroy(prefix);
    }
}

static void names_are_found_and_others_are_not(void **state)
{
    enum sim_routing routing = SIM_ROUTING_ROUND_ROBIN;
    struct sim_router *router = NULL;

    (void)state;
    for (uint32_t i = SIM_ROUTING_ROUND_ROBIN; i <= SIM_ROUTING_PREFIX; i++) {
        assert_true(sim_routing_find(sim_routing_name((enum sim_routing)i), &routing));
        assert_int_equal(routing, i);
    }
    assert_true(sim_routing_find("Least-Loaded", &routing));
    assert_int_equal(routing, SIM_ROUTING_LEAST_LOADED);
    assert_false(sim_routing_find("least", &routing));
    assert_false(sim_routing_find("", &routing));
    assert_int_equal(sim_router_create(SIM_ROUTING_RANDOM, 0, 1, 0, &router), -HLG_EINVAL);
    assert_int_equal(sim_router_create(SIM_ROUTING_PREFIX, 1, 1, -1, &router), -HLG_EINVAL);
}

static int print_seed(void **state)
{
    (void)state;
    print_message("router: seeds up to %" PRIu64 "\n", last_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_robin_takes_each_in_turn),
        cmocka_unit_test(random_is_fair_and_repeats),
        cmocka_unit_test_teardown(the_best_target_is_chosen, print_seed),
        cmocka_unit_test(names_are_found_and_others_are_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
