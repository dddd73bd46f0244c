/*
 * What users of other planners complained of (docs/simulation.md), as runs of the simulated cluster, each
 * in a process of its own. Those of a single module are tested with it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metrics.h"
#include "sim_child.h"

#include <math.h>
#include <string.h>

#define MS HLG_NS_PER_MS

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected))) {
        fail_msg("%.17g is not within %g of %.17g", value, share, expected);
    }
}

/* Run, check conservation, and measure. */
static struct child *run(const struct sim_scenario *s, const struct sim_workload *w,
                         struct sim_metrics *metrics)
{
    struct child *child = child_run(s, w, NULL);
    char text[256];

    if (child->error != 0) {
        fail_msg("%s", child->text);
    }
    if (sim_metrics_conserved(w, &child->run, text, sizeof text) != NULL) {
        fail_msg("%s", text);
    }
    assert_int_equal(sim_metrics(s, w, &child->run, metrics), 0);
    return child;
}

static struct sim_metrics measure(const struct sim_scenario *s, const struct sim_workload *w)
{
    struct sim_metrics metrics;

    child_free(run(s, w, &metrics));
    return metrics;
}

/* ---- C02, C01: more users than the pages hold ---------------------------------------------- */

static void a_batch_above_the_capacity_waits_and_says_so(void **state)
{
    const uint32_t fits = 16;
    const uint32_t tokens = 1024 + 512;
    struct sim_scenario s;
    struct sim_metrics last = {0};

    (void)state;
    for (uint32_t users = fits; users <= 4 * fits; users *= 2) {
        struct sim_workload w;
        child_scenario(&s, 1);
        s.prefill.nodes = 2;
        s.decode.engine.kv_tokens = (uint64_t)fits * tokens;
        child_workload(&w, 10 * users, 0, 1024, 512);
        w.users = users;
        const struct sim_metrics m = measure(&s, &w);
        assert_int_equal(m.finished, m.requests);
        if (users > fits) {
            assert_string_equal(m.limit, "decode KV");
            assert_near(m.waiting_held, fits, 0.02);
            assert_near(m.limit_batch, fits, 0.02);
        }
        if (users > 2 * fits) { /* twice the users: as many answers, and they wait for them */
            assert_near(m.request_rate, last.request_rate, 0.05);
            assert_true(m.ttft_ms.mean > 1.5 * last.ttft_ms.mean);
            assert_near(m.batch_mean, last.batch_mean, 0.05);
        }
        last = m;
        sim_workload_fini(&w);
    }
    s.decode.engine.kv_tokens = (uint64_t)fits * tokens / 2; /* C01: a smaller cap, fewer answers */
    struct sim_workload w;
    child_workload(&w, 10 * fits, 0, 1024, 512);
    w.users = fits;
    assert_true(measure(&s, &w).request_rate < 0.8 * last.request_rate);
    sim_workload_fini(&w);
}

/* ---- C05: TTFT is the queue's, not a factor ------------------------------------------------ */

static void parts_sum_to_ttft_in_a_burst(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    struct sim_metrics m;
    double sum = 0;

    (void)state;
    child_scenario(&s, 2);
    child_workload(&w, 60, 3 * MS, 3000, 20);
    struct child *child = run(&s, &w, &m);
    for (uint32_t i = 0; i < w.count; i++) {
        const hlg_time *at = child->records[i].at;
        hlg_time parts = 0;
        for (uint32_t part = 0; part < SIM_TTFT_PARTS; part++) {
            assert_true(at[part + 1] >= at[part]);
            parts += at[part + 1] - at[part];
        }
        assert_int_equal(parts, at[SIM_FIRST] - at[SIM_ARRIVED]);
    }
    for (uint32_t part = 0; part < SIM_TTFT_PARTS; part++) {
        sum += m.part_ms[part].mean;
    }
    assert_true(fabs(sum - m.ttft_ms.mean) < 0.001); /* a microsecond */
    child_free(child);
    sim_workload_fini(&w);
}

/* ---- C07: load that comes in waves --------------------------------------------------------- */

#define WAVE_S      60.0
#define WAVES       2u
#define WAVE_LEAST  1.0 /* requests/s */
#define WAVE_MOST   24.0
#define WAVE_PROMPT 8000u

/* Parabolas for sine: 0 at the trough, 1 at the crest, the same mean and no libm. */
static double wave(double seconds)
{
    const double turn = seconds / WAVE_S - floor(seconds / WAVE_S);
    const double x = turn < 0.5 ? 4 * turn - 1 : 3 - 4 * turn; /* -1 .. 1 .. -1 */

    return 0.5 + 0.5 * x * (2 - fabs(x));
}

static void draw_waves(struct sim_workload *w)
{
    double at = 0;

    *w = (struct sim_workload){0};
    while (at < WAVES * WAVE_S) {
        const struct sim_workload_request request = {
            .arrival_ns = (hlg_time)(at * 1e9), .prompt_tokens = WAVE_PROMPT, .output_tokens = 200};
        assert_int_equal(sim_workload_append(w, &request, NULL), 0);
        at += 1 / (WAVE_LEAST + (WAVE_MOST - WAVE_LEAST) * wave(at));
    }
}

/* Prompts for 12 requests/s on average and 24 at the crest, one node of prefill makes some 3. */
static void waves_leave_a_backlog_that_is_seen(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    double rates[3];
    double waits[3];
    const uint32_t nodes[3] = {2, 5, 10}; /* below the mean, for the mean, for the crest */

    (void)state;
    draw_waves(&w);
    for (uint32_t i = 0; i < 3; i++) {
        child_scenario(&s, 8);
        s.prefill.nodes = nodes[i];
        s.measure.slo_ttft_ns = 3e9;
        s.measure.slo_tpot_ns = 35e6;
        const struct sim_metrics m = measure(&s, &w);
        rates[i] = m.slo_share;
        waits[i] = m.ttft_ms.mean;
        print_message("waves: %u prefill nodes: TTFT %.0f ms on average, p99 %.0f; %.0f %% meet "
                      "the SLO; overloaded %d\n",
                      nodes[i], m.ttft_ms.mean, m.ttft_ms.p99, 100 * m.slo_share, m.overloaded);
        assert_int_equal(m.overloaded, i == 0);
    }
    assert_true(waits[0] > 10e3 && rates[0] < 0.3);
    assert_true(waits[1] > 3 * waits[2] &&
                rates[1] < 0.9); /* the mean rate fits, the crest does not */
    assert_true(waits[2] < 1.5e3 && rates[2] > 0.9);
    sim_workload_fini(&w);
}

/* ---- C08: demand is what arrives ----------------------------------------------------------- */

static void demand_is_counted_at_arrival(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;

    (void)state;
    child_scenario(&s, 1);
    s.measure.stop_ns = 20 * HLG_NS_PER_S;
    child_workload(&w, 200, 100 * MS, 8000, 50);
    const struct sim_metrics m = measure(&s, &w);
    assert_near(m.arrival_rate, 10, 0.02);
    assert_true(m.request_rate < 5);
    assert_true(m.overloaded);
    sim_workload_fini(&w);
}

/* ---- C09, C10: no head-room for requests on their way --------------------------------------- */

static void without_head_room_requests_wait_and_none_is_lost(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    struct sim_metrics roomy;
    struct sim_metrics tight;

    (void)state;
    child_workload(&w, 40, 50 * MS, 1024, 256);
    child_scenario(&s, 1);
    child_free(run(&s, &w, &roomy));
    s.decode.engine.kv_tokens = 1024 + 256; /* for one, on its way or in decode */
    struct child *child = run(&s, &w, &tight);
    for (uint32_t i = 0; i < w.count; i++) {
        const hlg_time *at = child->records[i].at;
        assert_int_equal(child->records[i].outcome, SIM_DONE);
        assert_int_equal(child->records[i].retries, 0);
        assert_true(at[SIM_SUBMITTED] <= at[SIM_STARTED]);
        /* whoever decodes blocks whoever would be handed over */
        assert_true(i == 0 || at[SIM_SUBMITTED] >= child->records[i - 1].at[SIM_FINISHED]);
    }
    child_free(child);
    assert_true(roomy.part_ms[SIM_INGESTED].mean < 1);
    assert_true(tight.part_ms[SIM_INGESTED].mean > 1000);
    assert_near(tight.waiting_held, 1, 0.02);
    assert_string_equal(tight.limit, "decode KV");
    sim_workload_fini(&w);
}

/* ---- C11, C14: what a cache holds ---------------------------------------------------------- */

static void given_capacity_overrides_the_formula(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    struct sim_metrics m;

    (void)state;
    child_scenario(&s, 1);
    child_workload(&w, 2, MS, 1000, 5);
    struct child *child = run(&s, &w, &m);
    const uint64_t formula = child->run.kv_tokens[1];
    child_free(child);
    s.decode.engine.kv_tokens = 41408;
    child = run(&s, &w, &m);
    assert_int_equal(child->run.kv_tokens[1], 41408);
    assert_int_equal(child->run.kv_tokens[0], formula);
    assert_int_equal(child->nodes[1].kv_pages, 41408 / 64);
    child_free(child);
    sim_workload_fini(&w);
}

static void halved_values_double_what_fits_and_halve_what_is_sent(void **state)
{
    struct sim_scenario s;
    struct sim_workload w;
    struct sim_metrics m;
    uint64_t tokens[2];
    uint64_t bytes[2];

    (void)state;
    child_workload(&w, 2, 500 * MS, 1025, 5);
    for (uint32_t i = 0; i < 2; i++) {
        child_scenario(&s, 1);
        s.prefill.engine.kv = i == 0 ? SIM_BF16 : SIM_FP8;
        s.decode.engine.kv = s.prefill.engine.kv;
        struct child *child = run(&s, &w, &m);
        tokens[i] = child->run.kv_tokens[1];
        bytes[i] = child->records[0].bytes;
        child_free(child);
    }
    assert_near((double)tokens[1], 2.0 * (double)tokens[0], 1e-4);
    assert_int_equal(2 * bytes[1], bytes[0]);
    sim_workload_fini(&w);
}

/* ---- C16: pages of one size, prefixes of another -------------------------------------------- */

static void hits_do_not_depend_on_the_page(void **state)
{
    static const uint32_t pages[] = {16, 64, 512};
    struct sim_scenario s;
    struct sim_workload w = {.block_tokens = 512};
    uint64_t hits[3] = {0};
    struct sim_metrics m;

    (void)state;
    for (uint64_t i = 0; i < 60; i++) { /* ten conversations of six turns */
        uint64_t blocks[7];
        const uint32_t turn = (uint32_t)(i / 10);
        for (uint32_t k = 0; k <= turn; k++) {
            blocks[k] = 100 * (i % 10) + k + 1;
        }
        const struct sim_workload_request request = {.arrival_ns = i * 400 * MS,
                                                     .prompt_tokens = 512 * (turn + 1) + 100,
                                                     .output_tokens = 4,
                                                     .block_count = turn + 1};
        assert_int_equal(sim_workload_append(&w, &request, blocks), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        child_scenario(&s, 1);
        s.prefill.engine.page_tokens = pages[i];
        s.decode.engine.page_tokens = pages[i];
        struct child *child = run(&s, &w, &m);
        for (uint32_t k = 0; k < w.count; k++) {
            hits[i] += child->records[k].cached_tokens;
        }
        child_free(child);
    }
    assert_int_equal(hits[0], 10 * 512 * (1 + 2 + 3 + 4 + 5));
    assert_int_equal(hits[1], hits[0]);
    assert_int_equal(hits[2], hits[0]);
    sim_workload_fini(&w);
}

/* ---- C21: many small writes ---------------------------------------------------------------- */

/* Mean of the exposed transfers, milliseconds, of prompts that arrive so that as many tokens a second
 * are sent, whatever their length. */
static double exposed_ms(uint32_t prompt_tokens, uint64_t op_ps)
{
    struct sim_scenario s;
    struct sim_workload w;
    const double tokens_per_s = 8000;
    const uint32_t count = (uint32_t)(80000 / prompt_tokens);

    child_scenario(&s, 2);
    s.network.nic.op_ps = op_ps;
    child_workload(&w, count, (hlg_time)(1e9 * prompt_tokens / tokens_per_s), prompt_tokens, 2);
    const struct sim_metrics m = measure(&s, &w);
    assert_int_equal(m.finished, count);
    sim_workload_fini(&w);
    return m.part_ms[SIM_COMPUTED].mean;
}

/* 79 tokens are two pages of 64 in each layer, one of them nearly empty; 8193 are 128 full ones. The
 * operation clock runs over with 1.6 times the writes, where it held with the long prompts. */
static void short_prompts_fill_the_operation_clock(void **state)
{
    const uint64_t slow_ps = 110ull * 1000 * 1000;

    (void)state;
    const double fast_short = exposed_ms(80, 1000);
    const double fast_long = exposed_ms(8193, 1000);
    const double slow_short = exposed_ms(80, slow_ps);
    const double slow_long = exposed_ms(8193, slow_ps);
    print_message("exposed transfer: 80 tokens %.2f ms, 8193 tokens %.2f ms; with an operation in "
                  "110 us %.0f and %.0f ms\n",
                  fast_short, fast_long, slow_short, slow_long);
    assert_true(fast_short < fast_long);
    assert_true(slow_short > 2 * slow_long);
}

/* ---- C22: start-up time -------------------------------------------------------------------- */

/* One of two prefill nodes is lost and comes back after its start-up time; the other cannot carry the
 * load alone, so that the longer it takes the longer is the queue. */
static void late_starts_cost_more_than_their_time(void **state)
{
    static const hlg_time start_s[] = {0, 10, 20, 40, 80};
    struct sim_scenario s;
    struct sim_workload w;
    double ttft[5];

    (void)state;
    child_workload(&w, 600, 250 * MS, 7000, 8);
    for (uint32_t i = 0; i < 5; i++) {
        child_scenario(&s, 2);
        s.prefill.nodes = 2;
        if (start_s[i] > 0) {
            s.faults[s.fault_count++] =
                (struct sim_fault){.kind = SIM_FAULT_KILL, .at = 20 * HLG_NS_PER_S, .node = 0};
            s.faults[s.fault_count++] =
                (struct sim_fault){.kind = SIM_FAULT_RESTART,
                                   .at = 20 * HLG_NS_PER_S + start_s[i] * HLG_NS_PER_S,
                                   .node = 0};
        }
        const struct sim_metrics m = measure(&s, &w);
        assert_int_equal(m.finished, w.count);
        ttft[i] = m.ttft_ms.mean;
        print_message("back after %2u s: TTFT %.0f ms on average\n", (uint32_t)start_s[i], ttft[i]);
        assert_true(i == 0 || ttft[i] > ttft[i - 1]);
    }
    /* the knee: twice the time is more than twice the wait */
    assert_true(ttft[4] - ttft[0] > 3 * (ttft[3] - ttft[0]));
    sim_workload_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_above_the_capacity_waits_and_says_so),
        cmocka_unit_test(parts_sum_to_ttft_in_a_burst),
        cmocka_unit_test(waves_leave_a_backlog_that_is_seen),
        cmocka_unit_test(demand_is_counted_at_arrival),
        cmocka_unit_test(without_head_room_requests_wait_and_none_is_lost),
        cmocka_unit_test(given_capacity_overrides_the_formula),
        cmocka_unit_test(halved_values_double_what_fits_and_halve_what_is_sent),
        cmocka_unit_test(hits_do_not_depend_on_the_page),
        cmocka_unit_test(short_prompts_fill_the_operation_clock),
        cmocka_unit_test(late_starts_cost_more_than_their_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
