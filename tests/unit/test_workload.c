/*
 * Drawn workloads follow the distributions that their configs name, and are the same bytes with
 * every compiler.
 *
 * Functions of our own are compared with libm's, variates and whole workloads with the moments of
 * theory, within six standard errors, and digests of workloads with numbers kept here. Seeds are
 * printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workload.h"
#include "workload_variate.h"

#define DRAWS  200000u
#define ERRORS 6.0 /* standard errors; by chance once in 5e8 */

static const uint64_t seeds[] = {1, 2, 20260101, UINT64_MAX};
#define SEEDS (sizeof seeds / sizeof seeds[0])

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) {
        fail_msg("%.17g is not %.17g within %.3g", value, expected, tolerance);
    }
}

static void functions_agree_with_libm(void **state)
{
    struct hlg_rng rng = hlg_rng_seed(7);
    (void)state;
    for (int i = 0; i < 100000; i++) {
        const double u = sim_draw_uniform(&rng);
        const double x = (u - 0.5) * 1400;
        const double y = exp((sim_draw_uniform(&rng) - 0.5) * 1400);
        assert_true(u > 0 && u < 1);
        assert_near(sim_exp(x), exp(x), 2e-15 * exp(x));
        assert_near(sim_log(y), log(y), 4e-16 * fabs(log(y)));
        const double z = sim_normal_quantile(u);
        assert_near(0.5 * erfc(-z / sqrt(2.0)), u, 4e-15);
    }
    for (int power = -53; power < -1; power++) {
        const double u = ldexp(1, power);
        const double z = sim_normal_quantile(u);
        assert_near(0.5 * erfc(-z / sqrt(2.0)), u, 1e-13 * u);
        assert_near(sim_normal_quantile(1 - u), -z, u < 1e-9 ? 10 : 1e-6);
    }
    assert_true(sim_exp(-709) == 0 && sim_exp(0) == 1 && sim_log(1) == 0);
    assert_true(sim_normal_quantile(0.5) == 0);
}

/* A distribution's first moments; kurtosis is not in excess: 3 for the normal. */
struct moments {
    double mean;
    double variance;
    double kurtosis;
};

static void assert_moments(const double *values, uint32_t count, const struct moments *theory,
                           const char *name, uint64_t seed)
{
    double sum = 0;
    double squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += values[i];
    }
    const double mean = sum / count;
    for (uint32_t i = 0; i < count; i++) {
        squares += (values[i] - mean) * (values[i] - mean);
    }
    const double variance = squares / (count - 1);
    print_message("%s, seed %" PRIu64 ": mean %.6g of %.6g, variance %.6g of %.6g\n", name, seed,
                  mean, theory->mean, variance, theory->variance);
    assert_near(mean, theory->mean, ERRORS * sqrt(theory->variance / count));
    assert_near(variance, theory->variance,
                ERRORS * theory->variance * sqrt((theory->kurtosis - 1) / count));
}

static struct moments gamma_moments(double shape)
{
    return (struct moments){shape, shape, 3 + 6 / shape};
}

static struct moments weibull_moments(double shape)
{
    double raw[5];
    for (int i = 1; i <= 4; i++) {
        raw[i] = tgamma(1 + i / shape);
    }
    const double variance = raw[2] - raw[1] * raw[1];
    const double fourth =
        raw[4] - 4 * raw[3] * raw[1] + 6 * raw[2] * raw[1] * raw[1] - 3 * pow(raw[1], 4);
    return (struct moments){raw[1], variance, fourth / (variance * variance)};
}

static struct moments lognormal_moments(double mean, double cv)
{
    const double w = 1 + cv * cv;
    const double kurtosis = pow(w, 4) + 2 * pow(w, 3) + 3 * w * w - 3;
    return (struct moments){mean, mean * mean * cv * cv, kurtosis};
}

static double values[DRAWS];

static void variates_have_the_moments_of_theory(void **state)
{
    static const double shapes[] = {0.05, 0.5, 1, 2.5, 40};
    (void)state;
    for (uint32_t s = 0; s < SEEDS; s++) {
        struct hlg_rng rng = hlg_rng_seed(seeds[s]);
        for (uint32_t i = 0; i < DRAWS; i++) {
            values[i] = sim_draw_exponential(&rng);
        }
        const struct moments exponential = gamma_moments(1);
        assert_moments(values, DRAWS, &exponential, "exponential", seeds[s]);
        for (uint32_t i = 0; i < DRAWS; i++) {
            values[i] = sim_draw_normal(&rng);
        }
        const struct moments normal = {0, 1, 3};
        assert_moments(values, DRAWS, &normal, "normal", seeds[s]);
        for (uint32_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
            for (uint32_t i = 0; i < DRAWS; i++) {
                values[i] = sim_draw_gamma(&rng, shapes[k]);
            }
            const struct moments gamma = gamma_moments(shapes[k]);
            assert_moments(values, DRAWS, &gamma, "gamma", seeds[s]);
        }
        for (uint32_t i = 0; i < DRAWS; i++) {
            values[i] = sim_draw_weibull(&rng, 1.5);
        }
        const struct moments weibull = weibull_moments(1.5);
        assert_moments(values, DRAWS, &weibull, "weibull", seeds[s]);
    }
}

static struct sim_workload_config base_config(uint64_t seed)
{
    return (struct sim_workload_config){
        .arrivals = {.kind = SIM_ARRIVALS_POISSON, .rate_rps = 4},
        .prompt = {.kind = SIM_LENGTHS_FIXED, .tokens_min = 1000, .tokens_max = 1000},
        .output = {.kind = SIM_LENGTHS_FIXED, .tokens_min = 10, .tokens_max = 10},
        .count = DRAWS,
        .seed = seed,
    };
}

static struct sim_workload drawn(const struct sim_workload_config *config)
{
    struct sim_workload workload;
    char text[256] = "";
    const int status = sim_workload_draw(&workload, config, text, sizeof text);
    if (status != 0) {
        fail_msg("%s", text);
    }
    assert_int_equal(workload.count, config->count);
    return workload;
}

static void arrivals_have_the_rate_and_variation_asked_for(void **state)
{
    static const double cvs[] = {1, 0.5, 3};
    (void)state;
    for (uint32_t s = 0; s < SEEDS; s++) {
        for (uint32_t k = 0; k < sizeof cvs / sizeof cvs[0]; k++) {
            struct sim_workload_config config = base_config(seeds[s]);
            config.arrivals.kind = k == 0 ? SIM_ARRIVALS_POISSON : SIM_ARRIVALS_GAMMA;
            config.arrivals.cv = cvs[k];
            struct sim_workload workload = drawn(&config);
            hlg_time last_ns = 0;
            for (uint32_t i = 0; i < workload.count; i++) {
                const hlg_time now_ns = workload.requests[i].arrival_ns;
                assert_true(now_ns >= last_ns);
                values[i] = (double)(now_ns - last_ns) * 1e-9;
                last_ns = now_ns;
            }
            const double variance = cvs[k] * cvs[k] / 16;
            const struct moments theory = {0.25, variance, 3 + 6 * cvs[k] * cvs[k]};
            assert_moments(values, DRAWS, &theory, "gaps", seeds[s]);
            sim_workload_fini(&workload);
        }
    }
}

static void lengths_have_the_moments_of_theory(void **state)
{
    static const struct sim_cdf cdf = {{{100, 0.25}, {200, 0.25}, {300, 1}}, 3};
    const struct sim_lengths lengths[] = {
        {.kind = SIM_LENGTHS_UNIFORM, .tokens_min = 11, .tokens_max = 1010},
        {.kind = SIM_LENGTHS_LOGNORMAL,
         .tokens_min = 1,
         .tokens_max = HLG_TOKENS_MAX,
         .mean = 8000,
         .cv = 0.8},
        {.kind = SIM_LENGTHS_EMPIRICAL, .tokens_min = 1, .tokens_max = 1000, .cdf = &cdf},
    };
    /* Empirical: 1..100 a quarter of the time, else 201..300. */
    const double mean = 0.25 * 50.5 + 0.75 * 250.5;
    const double variance = 0.25 * 50.5 * 50.5 + 0.75 * 250.5 * 250.5 + 9999.0 / 12 - mean * mean;
    const struct moments theory[] = {
        {510.5, 999999.0 / 12, 1.8},
        lognormal_moments(8000, 0.8),
        {mean, variance, 3},
    };
    (void)state;
    for (uint32_t s = 0; s < SEEDS; s++) {
        for (uint32_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
            struct sim_workload_config config = base_config(seeds[s]);
            config.prompt = lengths[k];
            struct sim_workload workload = drawn(&config);
            for (uint32_t i = 0; i < workload.count; i++) {
                const uint32_t tokens = workload.requests[i].prompt_tokens;
                assert_in_range(tokens, lengths[k].tokens_min, lengths[k].tokens_max);
                assert_false(k == 2 && tokens > 100 && tokens <= 200);
                values[i] = tokens;
            }
            assert_moments(values, DRAWS, &theory[k], "lengths", seeds[s]);
            sim_workload_fini(&workload);
        }
    }
}

static void fixed_bursts_and_closed_loops_are_exact(void **state)
{
    struct sim_workload_config config = base_config(1);
    (void)state;
    config.count = 100;
    config.arrivals.kind = SIM_ARRIVALS_FIXED;
    struct sim_workload workload = drawn(&config);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(workload.requests[i].arrival_ns, i * 250 * HLG_NS_PER_MS);
        assert_int_equal(workload.requests[i].prompt_tokens, 1000);
        assert_int_equal(workload.requests[i].output_tokens, 10);
    }
    assert_int_equal(workload.users, 0);
    sim_workload_fini(&workload);

    config.arrivals.kind = SIM_ARRIVALS_BURSTS;
    config.arrivals.burst_requests = 8;
    workload = drawn(&config);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(workload.requests[i].arrival_ns, i / 8 * 2 * HLG_NS_PER_S);
    }
    sim_workload_fini(&workload);

    config.arrivals = (struct sim_arrivals){
        .kind = SIM_ARRIVALS_CLOSED, .users = 7, .pause_ns = 5 * HLG_NS_PER_MS};
    workload = drawn(&config);
    assert_int_equal(workload.users, 7);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(workload.requests[i].arrival_ns, i < 7 ? 0 : 5 * HLG_NS_PER_MS);
    }
    sim_workload_fini(&workload);
}

/* Lengths must not change when only the arrivals do, nor the first requests with the count. */
static void streams_are_independent(void **state)
{
    struct sim_workload_config config = base_config(3);
    config.count = 1000;
    config.prompt =
        (struct sim_lengths){.kind = SIM_LENGTHS_UNIFORM, .tokens_min = 1, .tokens_max = 100000};
    (void)state;
    struct sim_workload first = drawn(&config);
    config.arrivals.kind = SIM_ARRIVALS_GAMMA;
    config.arrivals.cv = 2;
    config.count = 500;
    struct sim_workload second = drawn(&config);
    for (uint32_t i = 0; i < 500; i++) {
        assert_int_equal(first.requests[i].prompt_tokens, second.requests[i].prompt_tokens);
    }
    sim_workload_fini(&first);
    sim_workload_fini(&second);
}

/* Digests are kept from gcc; clang must find the same. */
static void equal_seed_gives_equal_bytes(void **state)
{
    static const struct sim_cdf cdf = {{{64, 0.1}, {1024, 0.7}, {65536, 1}}, 3};
    const struct sim_lengths lognormal = {.kind = SIM_LENGTHS_LOGNORMAL,
                                          .tokens_min = 1,
                                          .tokens_max = 131072,
                                          .mean = 12035,
                                          .cv = 1.3};
    const struct sim_lengths empirical = {
        .kind = SIM_LENGTHS_EMPIRICAL, .tokens_min = 1, .tokens_max = 131072, .cdf = &cdf};
    const struct sim_arrivals arrivals[] = {
        {.kind = SIM_ARRIVALS_POISSON, .rate_rps = 3.4},
        {.kind = SIM_ARRIVALS_GAMMA, .rate_rps = 3.4, .cv = 4},
        {.kind = SIM_ARRIVALS_GAMMA, .rate_rps = 0.7, .cv = 0.3},
        {.kind = SIM_ARRIVALS_BURSTS, .rate_rps = 3.4, .burst_requests = 5},
    };
    static const uint64_t expected[] = {0x1572f7518e46e0f5, 0x065967b4313820d9, 0x9df84725c82d109b,
                                        0x63af29a6110fe14e};
    (void)state;
    for (uint32_t k = 0; k < sizeof arrivals / sizeof arrivals[0]; k++) {
        struct sim_workload_config config = base_config(42);
        config.arrivals = arrivals[k];
        config.prompt = k % 2 == 0 ? lognormal : empirical;
        config.output = k % 2 == 0 ? empirical : lognormal;
        struct sim_workload workload = drawn(&config);
        print_message("digest %" PRIu32 ": 0x%016" PRIx64 "\n", k, sim_workload_digest(&workload));
        assert_true(sim_workload_digest(&workload) == expected[k]);
        sim_workload_fini(&workload);
    }
}

static void assert_refused(const struct sim_workload_config *config, const char *sentence)
{
    struct sim_workload workload = {.count = 77};
    char text[256] = "";
    assert_int_equal(sim_workload_draw(&workload, config, text, sizeof text), -HLG_EINVAL);
    assert_string_equal(text, sentence);
    assert_int_equal(workload.count, 77);
}

static void impossible_numbers_are_refused(void **state)
{
    static const struct sim_cdf falling = {{{64, 0.5}, {128, 0.4}, {256, 1}}, 3};
    const struct sim_workload_config good = base_config(1);
    struct sim_workload_config config = good;
    (void)state;
    config.count = 0;
    assert_refused(&config, "count: 0: write a whole number, 1 to 4000000");
    config.count = SIM_REQUESTS_MAX + 1;
    assert_refused(&config, "count: 4000001: write a whole number, 1 to 4000000");
    config = good;
    config.arrivals.rate_rps = 0;
    assert_refused(&config, "arrivals.rate: 0: write requests per second, 1e-06 to 1e+09");
    config.arrivals.rate_rps = (double)NAN;
    char sentence[128];
    char text[128] = "";
    struct sim_workload workload;
    assert_int_equal(sim_workload_draw(&workload, &config, text, sizeof text), -HLG_EINVAL);
    (void)snprintf(sentence, sizeof sentence, "arrivals.rate: %g: write", (double)NAN);
    assert_memory_equal(text, sentence, strlen(sentence));
    config.arrivals.rate_rps = 1e-6;
    assert_refused(&config, "count: 200000: lasts more than 3660 days at 1e-06 requests per second:"
                            " write fewer requests or a higher rate");
    config = good;
    config.arrivals.kind = SIM_ARRIVALS_GAMMA;
    assert_refused(&config, "arrivals.cv: 0: write a coefficient of variation, 0.001 to 100");
    config.arrivals.kind = SIM_ARRIVALS_BURSTS;
    assert_refused(&config, "arrivals.burst_requests: 0: write a whole number, 1 to 4000000");
    config.arrivals.kind = SIM_ARRIVALS_CLOSED;
    assert_refused(&config, "arrivals.users: 0: write a whole number, 1 to 4000000");
    config.arrivals.pause_ns = HLG_TIME_NEVER;
    assert_refused(&config, "arrivals.pause: 18446744073709551615 ns: write at most 3660 days");
    config = good;
    config.prompt.tokens_min = 0;
    assert_refused(&config, "prompt.min: 0: write 1 to 16777216 tokens");
    config.prompt.tokens_min = 1001;
    assert_refused(&config, "prompt.max: 1000: write 1001 to 16777216 tokens");
    config = good;
    config.output.tokens_max = HLG_TOKENS_MAX + 1;
    assert_refused(&config, "output.max: 16777217: write 10 to 16777216 tokens");
    config = good;
    config.output.kind = SIM_LENGTHS_LOGNORMAL;
    assert_refused(&config, "output.mean: 0: write 1 to 16777216 tokens");
    config.output.kind = SIM_LENGTHS_EMPIRICAL;
    config.output.cdf = &falling;
    assert_refused(&config, "output.cdf: point 1: sort the points: tokens rise and shares never "
                            "fall");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_agree_with_libm),
        cmocka_unit_test(variates_have_the_moments_of_theory),
        cmocka_unit_test(arrivals_have_the_rate_and_variation_asked_for),
        cmocka_unit_test(lengths_have_the_moments_of_theory),
        cmocka_unit_test(fixed_bursts_and_closed_loops_are_exact),
        cmocka_unit_test(streams_are_independent),
        cmocka_unit_test(equal_seed_gives_equal_bytes),
        cmocka_unit_test(impossible_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
