/*
 * Percentiles, intervals and their flags are what their contract says.
 *
 * Oracles are written apart from the code: Student's t by integrating its density, Wilson's interval by
 * bisection of the inequality that defines it, percentiles by counting. Hand-made values have
 * percentiles that are known by looking. Seeds are printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <driver/rng.h>

#include "stats.h"

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) {
        fail_msg("%.17g is not %.17g within %.3g", value, expected, tolerance);
    }
}

static double density(double degrees, double t)
{
    const double scale =
        exp(lgamma((degrees + 1) / 2) - lgamma(degrees / 2)) / sqrt(degrees * acos(-1.0));
    return scale * pow(1 + t * t / degrees, -(degrees + 1) / 2);
}

/* Mass of [0, t] by Simpson's rule. */
static double mass(uint32_t degrees, double t)
{
    const uint32_t halves = 20000;
    double sum = density(degrees, 0) + density(degrees, t);
    for (uint32_t i = 1; i < halves; i++) {
        sum += (i % 2 == 1 ? 4 : 2) * density(degrees, t * i / halves);
    }
    return sum * t / halves / 3;
}

static void student_quantiles_hold_the_mass(void **state)
{
    (void)state;
    for (uint32_t degrees = 1; degrees <= 120; degrees++) {
        const double t = sim_student_975(degrees);
        assert_true(mass(degrees, t - 0.001) < 0.475);
        assert_true(mass(degrees, t + 0.001) > 0.475);
    }
}

/* Whether share p explains the hits within 1.96 standard errors of p itself. */
static bool explains(double p, double hits, double trials)
{
    const double z = (hits / trials - p) / sqrt(p * (1 - p) / trials);
    return fabs(z) <= 1.959963984540054;
}

static void wilson_bounds_are_where_shares_stop_explaining(void **state)
{
    static const uint64_t cases[][2] = {{1, 10}, {9, 10}, {50, 100}, {999, 1000}, {3, 2000}};
    double low = 0;
    double high = 0;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double hits = (double)cases[i][0];
        const double trials = (double)cases[i][1];
        sim_wilson(cases[i][0], cases[i][1], &low, &high);
        assert_true(low < hits / trials && hits / trials < high);
        assert_true(explains(low + 1e-9, hits, trials) && !explains(low - 1e-9, hits, trials));
        assert_true(explains(high - 1e-9, hits, trials) && !explains(high + 1e-9, hits, trials));
    }
    sim_wilson(0, 20, &low, &high);
    assert_true(low == 0 && high > 0.15 && high < 0.17);
    sim_wilson(20, 20, &low, &high);
    assert_true(high == 1 && low > 0.83 && low < 0.85);
    sim_wilson(0, 0, &low, &high);
    assert_true(low == 0 && high == 1);
}

static void percentiles_of_a_hundred_are_known(void **state)
{
    struct sim_value values[100];
    struct sim_summary summary;

    (void)state;
    for (uint32_t i = 0; i < 100; i++) { /* 1..100, shuffled: 37 has no factor with 101 */
        values[i] = (struct sim_value){(i + 1) * 37 % 101, false, true};
    }
    sim_summarise(values, 100, &summary);
    assert_true(summary.p50 == 50 && summary.p90 == 90 && summary.p99 == 99 && summary.max == 100);
    assert_true(summary.mean == 50.5 && summary.count == 100 && !summary.open);
}

static void nearest_rank_by_counting(void **state)
{
    const uint64_t seed = 77;
    struct hlg_rng rng = hlg_rng_seed(seed);
    struct sim_value values[250];
    double kept[250];

    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t n = 1; n <= 250; n++) {
        struct sim_summary summary;
        uint32_t below = 0;
        for (uint32_t i = 0; i < n; i++) {
            kept[i] = (double)hlg_rng_below(&rng, 40);
            values[i] = (struct sim_value){kept[i], false, true};
        }
        sim_summarise(values, n, &summary);
        /* The smallest value that at least nine in ten do not pass. */
        for (uint32_t i = 0; i < n; i++) {
            below += kept[i] < summary.p90;
        }
        assert_true(below * 10 < 9 * n);
        for (uint32_t i = below = 0; i < n; i++) {
            below += kept[i] <= summary.p90;
        }
        assert_true(below * 10 >= 9 * n);
    }
}

/* 90 done at 1..90, 10 unfinished after 200: p90 is known, p99 is not. */
static void unfinished_values_open_the_tail(void **state)
{
    struct sim_value values[100];
    struct sim_summary summary;

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        values[i] =
            i < 90 ? (struct sim_value){i + 1, false, true} : (struct sim_value){200, true, false};
    }
    sim_summarise(values, 100, &summary);
    assert_true(summary.p50 == 50 && !summary.p50_open);
    assert_true(summary.p90 == 90 && !summary.p90_open);
    assert_true(summary.p99 == 200 && summary.p99_open && summary.max_open && summary.open);
    assert_true(summary.mean == 45.5 && summary.open_count == 10 && summary.mean_count == 90);
}

/* Ten that had waited next to nothing may yet be the slowest: the median moves from 40 to 50. */
static void young_unfinished_values_open_what_they_could_move(void **state)
{
    struct sim_value values[100];
    struct sim_summary summary;

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        values[i] = i < 90 ? (struct sim_value){i + 1, false, true}
                           : (struct sim_value){0.001, true, false};
    }
    sim_summarise(values, 100, &summary);
    assert_true(summary.p50 == 40 && summary.p50_open);
    /* All alike: whatever they become, the median stays. */
    for (uint32_t i = 0; i < 100; i++) {
        values[i] =
            i < 90 ? (struct sim_value){7, false, true} : (struct sim_value){0.001, true, false};
    }
    sim_summarise(values, 100, &summary);
    assert_true(summary.p50 == 7 && !summary.p50_open && summary.max_open);
}

/* Batch means against a plain second computation of the same. */
static void intervals_are_those_of_batch_means(void **state)
{
    struct hlg_rng rng = hlg_rng_seed(5);
    struct sim_value values[403];
    double kept[403];
    struct sim_summary summary;
    double means[20];
    double grand = 0;
    double squares = 0;

    (void)state;
    for (uint32_t i = 0; i < 403; i++) {
        kept[i] = 1000 + (double)hlg_rng_below(&rng, 1000);
        values[i] = (struct sim_value){kept[i], false, true};
    }
    for (uint32_t b = 0; b < 20; b++) {
        const uint32_t from = b * 403 / 20;
        const uint32_t to = (b + 1) * 403 / 20;
        means[b] = 0;
        for (uint32_t i = from; i < to; i++) {
            means[b] += kept[i] / (to - from);
        }
        grand += means[b] / 20;
    }
    for (uint32_t b = 0; b < 20; b++) {
        squares += pow(means[b] - grand, 2);
    }
    sim_summarise(values, 403, &summary);
    assert_int_equal(summary.batches, 20);
    assert_near((summary.high - summary.low) / 2, 2.093 * sqrt(squares / 19 / 20), 1e-9);
    assert_near((summary.high + summary.low) / 2, summary.mean, 1e-9);
    assert_true(!summary.wide && !summary.correlated);
}

/* Over many runs of independent values the interval holds the true mean about 95 times in 100. */
static void intervals_cover_the_mean(void **state)
{
    struct hlg_rng rng = hlg_rng_seed(6);
    struct sim_value values[400];
    uint32_t covered = 0;

    (void)state;
    for (uint32_t run = 0; run < 2000; run++) {
        struct sim_summary summary;
        for (uint32_t i = 0; i < 400; i++) {
            values[i] = (struct sim_value){(double)hlg_rng_below(&rng, 1001), false, true};
        }
        sim_summarise(values, 400, &summary);
        covered += summary.low <= 500 && 500 <= summary.high;
    }
    assert_in_range(covered, 1870, 1930); /* 1900 +- 3 standard errors */
}

static void trends_and_few_values_ask_for_a_longer_run(void **state)
{
    struct sim_value values[400];
    struct sim_summary summary;

    (void)state;
    for (uint32_t i = 0; i < 400; i++) { /* small against the mean, but rising all the time */
        values[i] = (struct sim_value){1000 + 0.1 * i, false, true};
    }
    sim_summarise(values, 400, &summary);
    assert_true(summary.correlated && summary.wide);
    sim_summarise(values, 19, &summary);
    assert_true(summary.batches == 0 && summary.wide && summary.low == summary.high);
    for (uint32_t i = 0; i < 400; i++) {
        values[i] = (struct sim_value){0.1, false, true};
    }
    sim_summarise(values, 400, &summary);
    assert_true(!summary.correlated && !summary.wide);
    sim_summarise(values, 0, &summary);
    assert_true(summary.count == 0 && summary.wide && !summary.open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(student_quantiles_hold_the_mass),
        cmocka_unit_test(wilson_bounds_are_where_shares_stop_explaining),
        cmocka_unit_test(percentiles_of_a_hundred_are_known),
        cmocka_unit_test(nearest_rank_by_counting),
        cmocka_unit_test(unfinished_values_open_the_tail),
        cmocka_unit_test(young_unfinished_values_open_what_they_could_move),
        cmocka_unit_test(intervals_are_those_of_batch_means),
        cmocka_unit_test(intervals_cover_the_mean),
        cmocka_unit_test(trends_and_few_values_ask_for_a_longer_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
