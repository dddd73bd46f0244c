/*
 * Plans by formula: the queue is Pollaczek and Khinchine's, the batch Little's fixed point, and both get
 * better with more nodes.
 *
 * The default scenario (R1 on H200) supplies real step times; expectations are worked out here from the
 * cost model itself, one step at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "analytic.h"

struct bench {
    struct sim_scenario scenario;
    struct sim_workload workload;
    struct sim_analytic *analytic;
};

static struct bench *bench_make(double rate, uint32_t prompt, uint32_t output)
{
    struct bench *bench = calloc(1, sizeof *bench);
    char text[512] = "";

    assert_non_null(bench);
    sim_scenario_default(&bench->scenario);
    struct sim_workload_config *drawn = &bench->scenario.traffic.drawn;
    drawn->arrivals.rate_rps = rate;
    drawn->count = 100;
    drawn->prompt =
        (struct sim_lengths){.kind = SIM_LENGTHS_FIXED, .tokens_min = prompt, .tokens_max = prompt};
    drawn->output =
        (struct sim_lengths){.kind = SIM_LENGTHS_FIXED, .tokens_min = output, .tokens_max = output};
    assert_int_equal(sim_scenario_workload(&bench->scenario, &bench->workload, text, sizeof text),
                     0);
    if (sim_analytic_create(&bench->scenario, &bench->workload, 0.9, &bench->analytic, text,
                            sizeof text) != 0) {
        fail_msg("%s", text);
    }
    return bench;
}

static void bench_free(struct bench *bench)
{
    sim_analytic_destroy(bench->analytic);
    sim_workload_fini(&bench->workload);
    sim_scenario_fini(&bench->scenario);
    free(bench);
}

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected))) {
        fail_msg("%.17g is not %.17g within %g", value, expected, share);
    }
}

/* Equal prompts: E[s^2] = E[s]^2, so the wait is rho s / 2 (1 - rho). */
static void the_queue_is_md1(void **state)
{
    struct bench *bench = bench_make(3, 4096, 500);
    const struct sim_analytic_base *base = sim_analytic_base(bench->analytic);
    struct sim_analytic_point point;

    (void)state;
    sim_analytic_point(bench->analytic, 1, 3, &point);
    const double rho = 3 * base->prefill_ms / 1000;
    assert_near(point.prefill_use, rho, 1e-9);
    assert_near(point.wait_ms, rho * base->prefill_ms / 2 / (1 - rho), 1e-9);
    assert_near(base->prompt_tokens, 4096, 1e-9);
    assert_near(base->share_ttft_ms, base->unloaded_ttft_ms, 1e-9);
    bench_free(bench);
}

/* The batch that the rate keeps busy, with a step of that batch. */
static void the_batch_is_littles(void **state)
{
    struct bench *bench = bench_make(6, 4096, 500);
    struct sim_analytic_point point;

    (void)state;
    for (uint32_t nodes = 1; nodes <= 8; nodes++) {
        sim_analytic_point(bench->analytic, 1, nodes, &point);
        assert_near(point.batch, 6.0 / nodes * 500 * point.tpot_ms / 1000, 1e-5);
        assert_false(point.decode_overloaded);
    }
    bench_free(bench);
}

static void more_nodes_are_never_worse(void **state)
{
    struct bench *bench = bench_make(12, 2000, 300);
    struct sim_analytic_point before = {.ttft_ms = INFINITY, .tpot_ms = INFINITY};

    (void)state;
    for (uint32_t nodes = 1; nodes <= 16; nodes++) {
        struct sim_analytic_point point;
        sim_analytic_point(bench->analytic, nodes, nodes, &point);
        assert_true(point.ttft_ms <= before.ttft_ms && point.tpot_ms <= before.tpot_ms);
        assert_true(point.batch <= before.batch || nodes == 1);
        before = point;
    }
    bench_free(bench);
}

static void overload_has_no_end(void **state)
{
    struct bench *bench = bench_make(2000, 4096, 500);
    struct sim_analytic_point point;

    (void)state;
    sim_analytic_point(bench->analytic, 1, 1, &point);
    assert_true(point.prefill_use > 1 && isinf(point.wait_ms) && isinf(point.ttft_ms));
    assert_true(point.decode_overloaded && point.batch > point.batch_max);
    assert_true(isfinite(point.batch) && isfinite(point.tpot_ms));
    bench_free(bench);
}

/* Drafts that are always accepted: two tokens a step. */
static void drafts_divide_the_time(void **state)
{
    struct bench *plain = bench_make(1, 4096, 500);
    struct bench *bench = bench_make(1, 4096, 500);
    char text[256];

    (void)state;
    sim_analytic_destroy(bench->analytic);
    bench->scenario.decode.draft = 1;
    bench->scenario.decode.accept[0] = 1;
    assert_int_equal(sim_analytic_create(&bench->scenario, &bench->workload, 0.9, &bench->analytic,
                                         text, sizeof text),
                     0);
    const double without = sim_analytic_base(plain->analytic)->unloaded_tpot_ms;
    const double with = sim_analytic_base(bench->analytic)->unloaded_tpot_ms;
    assert_true(with < without * 0.75 && with >= without * 0.5);
    bench_free(plain);
    bench_free(bench);
}

static void closed_loops_have_no_rate(void **state)
{
    struct bench *bench = bench_make(1, 100, 10);
    struct sim_analytic *analytic = NULL;
    char text[256] = "";

    (void)state;
    bench->workload.users = 4;
    assert_int_equal(
        sim_analytic_create(&bench->scenario, &bench->workload, 0.9, &analytic, text, sizeof text),
        -HLG_EINVAL);
    assert_null(analytic);
    assert_true(text[0] != '\0');
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_is_md1),           cmocka_unit_test(the_batch_is_littles),
        cmocka_unit_test(more_nodes_are_never_worse), cmocka_unit_test(overload_has_no_end),
        cmocka_unit_test(drafts_divide_the_time),     cmocka_unit_test(closed_loops_have_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
