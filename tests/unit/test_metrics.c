/*
 * Metrics of a run made by hand (sim_hand.h), whose every latency is known by looking, and the laws
 * that sim_metrics_conserved() holds a run to: each is broken once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim_hand.h"

#define MS HLG_NS_PER_MS

static struct sim_metrics measure(const struct hand *hand)
{
    struct sim_metrics metrics;
    assert_int_equal(sim_metrics(&hand->scenario, &hand->workload, &hand->run, &metrics), 0);
    return metrics;
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected))) {
        fail_msg("%.17g is not %.17g", value, expected);
    }
}

static void latencies_of_equal_requests_are_theirs(void **state)
{
    struct hand *hand = hand_make(100);
    const struct sim_metrics m = measure(hand);
    double parts = 0;

    (void)state;
    assert_true(m.requests == 100 && m.finished == 100 && m.unfinished == 0);
    assert_near(m.ttft_ms.mean, 45);
    assert_near(m.ttft_ms.p99, 45);
    for (uint32_t i = 0; i < SIM_TTFT_PARTS; i++) {
        assert_near(m.part_ms[i].mean, i + 1);
        parts += m.part_ms[i].mean;
    }
    assert_near(parts, m.ttft_ms.mean);
    assert_near(m.e2e_ms.p50, 145);
    assert_int_equal(m.digest, HAND_DIGEST);
    hand_free(hand);
}

/* C12: three numbers that are all called time per token. */
static void three_times_per_token_differ(void **state)
{
    struct hand *hand = hand_make(1);
    const struct sim_metrics m = measure(hand);

    (void)state;
    assert_near(m.tpot_ms.p50, 10);                  /* (145 - 45) / 10 */
    assert_near(m.e2e_per_token_ms.p50, 145.0 / 11); /* 13.18 */
    assert_near(m.itl_ms.mean, 10);
    assert_true(m.itl_ms.p50 >= 10 && m.itl_ms.p50 <= 10.7);
    assert_near(m.speed_tps.p50, 100);
    assert_true(m.ttft_ms.wide); /* one request has no interval */
    hand_free(hand);
}

/* With MTP most tokens come along with another: gap 0. */
static void bursts_are_gaps_of_nothing(void **state)
{
    struct hand *hand = hand_make(1);

    (void)state;
    hand->run.gaps.bursts = 11;
    const struct sim_metrics m = measure(hand);
    assert_true(m.itl_ms.count == 21 && m.itl_ms.p50 == 0 && m.itl_ms.p90 > 10);
    assert_near(m.itl_ms.mean, 100.0 / 21);
    hand_free(hand);
}

/* C18: 3 of 100 never get a token. They waited until the end, and p99 says so. */
static void unfinished_requests_count_as_they_waited(void **state)
{
    struct hand *hand = hand_make(100);

    (void)state;
    hand_stop(hand, 0, SIM_STARTED);
    hand_stop(hand, 1, SIM_STARTED);
    hand_stop(hand, 2, SIM_FINISHED); /* this one has its first token, and no last */
    hand_stop(hand, 3, SIM_LANDED);
    hand->scenario.measure.slo_ttft_ns = 45.0 * MS;
    const struct sim_metrics m = measure(hand);
    assert_true(m.requests == 100 && m.finished == 96 && m.unfinished == 4);
    assert_true(m.ttft_ms.open_count == 3 && m.ttft_ms.p99_open && !m.ttft_ms.p90_open);
    assert_near(m.ttft_ms.p99, 9900 + 145 - 100); /* the second longest wait: request 1's */
    assert_near(m.ttft_ms.mean, 45);
    assert_near(m.ttft_ms.max, 9900 + 145);
    assert_int_equal(m.e2e_ms.open_count, 4);
    assert_int_equal(m.tpot_ms.count, 96);
    /* Parts: 2 wait in the prefill queue, 1 for its transfer; later parts never began. */
    assert_int_equal(m.part_ms[SIM_REQUESTED].open_count, 2);
    assert_int_equal(m.part_ms[SIM_COMPUTED].open_count, 1);
    assert_int_equal(m.part_ms[SIM_COMPUTED].count, 98);
    assert_int_equal(m.part_ms[SIM_LANDED].count, 97);
    assert_near(m.part_ms[SIM_REQUESTED].mean, 4);
    assert_true(m.slo && m.slo_hits == 96);
    assert_true(m.slo_low < 0.96 && m.slo_high > 0.96);
    hand_free(hand);
}

static void slo_needs_every_bound(void **state)
{
    struct hand *hand = hand_make(10);
    struct sim_measure *bounds = &hand->scenario.measure;

    (void)state;
    assert_false(measure(hand).slo);
    bounds->slo_ttft_ns = 45.0 * MS;
    bounds->slo_tpot_ns = 10.0 * MS;
    assert_int_equal(measure(hand).slo_hits, 10);
    hand->records[4].at[SIM_FINISHED] += 1;
    hand->records[5].at[SIM_FIRST] += 1;
    const struct sim_metrics m = measure(hand);
    assert_int_equal(m.slo_hits, 8);
    assert_near(m.goodput / m.request_rate, 0.75); /* 2 of the 8 that finish while others arrive */
    hand_free(hand);
}

/* Requests 20..59 arrive in [2 s, 6 s); all that finish in it count for the rates. */
static void the_window_bounds_what_is_measured(void **state)
{
    struct hand *hand = hand_make(100);

    (void)state;
    hand->scenario.measure.warmup_ns = 2 * HLG_NS_PER_S;
    hand->scenario.measure.window_ns = 4 * HLG_NS_PER_S;
    const struct sim_metrics m = measure(hand);
    assert_int_equal(m.requests, 40);
    assert_near(m.window_s, 4);
    assert_near(m.request_rate, 10); /* 19..58 finish there */
    assert_near(m.output_tps, 110);
    hand->scenario.measure.warmup_ns = 0;
    hand->scenario.measure.window_ns = HLG_TIME_NEVER;
    hand->scenario.measure.warmup_requests = 30;
    const struct sim_metrics by_count = measure(hand);
    assert_int_equal(by_count.requests, 70);
    assert_int_equal(by_count.window_begin_ns, 3 * HLG_NS_PER_S);
    hand_free(hand);
}

/* C24: over all GPUs, prefill ones too; input and output apart. */
static void rates_are_a_gpu_over_all_gpus(void **state)
{
    struct hand *hand = hand_make(100);
    const struct sim_metrics m = measure(hand);

    (void)state;
    assert_int_equal(m.gpus, 16);
    assert_near(m.output_tps, 1078 / 9.9);
    assert_near(m.output_tps_per_gpu, 1078 / 9.9 / 16);
    assert_near(m.input_tps_per_gpu, 98000 / 9.9 / 16);
    assert_near(m.batch_mean, (109.0 * 98 + 64) / 9900);
    assert_near(m.held_mean, (142.0 * 98 + 97) / 9900);
    hand_free(hand);
}

/* Each request waits for its first token 20 ms longer than the one before. */
static void a_queue_that_grows_is_overload(void **state)
{
    struct hand *hand = hand_make(400);

    (void)state;
    assert_false(measure(hand).overloaded);
    for (uint32_t i = 0; i < 400; i++) {
        for (uint32_t moment = SIM_STARTED; moment < SIM_MOMENTS; moment++) {
            hand->records[i].at[moment] += 20 * MS * i;
        }
    }
    hand->run.end_ns += 20 * MS * 400;
    assert_true(measure(hand).overloaded);
    hand->workload.users = 100; /* a closed loop waits for its answers: nothing grows without end */
    assert_false(measure(hand).overloaded);
    hand_free(hand);
}

/* C02: while requests wait for pages, five others hold them. */
static void waiting_for_pages_names_the_batch(void **state)
{
    struct hand *hand = hand_make(100);

    (void)state;
    for (uint32_t i = 0; i < 100; i++) { /* five leave together every 200 ms, the next five enter */
        struct sim_record *record = &hand->records[i];
        const hlg_time enter = i / 5 * 200 * MS;
        record->at[SIM_ARRIVED] = record->at[SIM_INGESTED] = 0;
        for (uint32_t moment = SIM_SUBMITTED; moment <= SIM_FIRST; moment++) {
            record->at[moment] = enter + moment;
        }
        record->at[SIM_SUBMITTED] = enter;
        record->at[SIM_FINISHED] = enter + 200 * MS;
    }
    hand->run.end_ns = 4000 * MS;
    const struct sim_metrics m = measure(hand);
    assert_string_equal(m.limit, "decode KV");
    assert_near(m.waiting_held, 5);
    assert_near(m.limit_batch, 5);
    assert_near(m.waiting_share, 0.95);
    hand->scenario.decode.sequences_max = 5;
    assert_string_equal(measure(hand).limit, "decode batch slots");
    assert_true(measure(hand).limit_batch > 4.9 && measure(hand).limit_batch <= 5);
    /* Prefill that is always busy is the cause, whatever waits behind it. */
    hand->nodes[0].busy_ns = 3990.0 * MS;
    assert_string_equal(measure(hand).limit, "prefill");
    assert_true(measure(hand).limit_batch == 0);
    hand_free(hand);
}

static void shares_of_the_window_are_those_of_its_samples(void **state)
{
    struct hand *hand = hand_make(100);

    (void)state;
    assert_near(measure(hand).prefill_busy, 500.0 / 10045); /* no series: totals of the run */
    for (uint32_t i = 0; i < 100; i++) {
        hand->run.series[i].at = 100 * MS * (i + 1);
        hand->run.series[i].prefill_busy = i < 50 ? 0.25F : 0.75F;
        hand->run.series[i].nic_out = 0.5F;
    }
    hand->run.series_count = 100;
    hand->scenario.measure.warmup_ns = 5 * HLG_NS_PER_S;
    const struct sim_metrics m = measure(hand);
    assert_near(m.prefill_busy, 0.75);
    assert_near(m.nic_out, 0.5);
    hand_free(hand);
}

static const char *broken(const struct hand *hand)
{
    static char text[256];
    return sim_metrics_conserved(&hand->workload, &hand->run, text, sizeof text);
}

static void assert_broken(const struct hand *hand, const char *what)
{
    const char *sentence = broken(hand);
    if (sentence == NULL || strstr(sentence, what) == NULL) {
        fail_msg("\"%s\" does not speak of \"%s\"", sentence != NULL ? sentence : "", what);
    }
}

static void whole_runs_conserve(void **state)
{
    struct hand *hand = hand_make(50);

    (void)state;
    assert_null(broken(hand));
    hand_stop(hand, 7, SIM_FIRST);
    hand->nodes[1].tokens_out -= 11;
    assert_null(broken(hand));
    hand_free(hand);
}

static void every_law_is_checked(void **state)
{
    struct hand *hand = hand_make(50);
    const struct hand whole = *hand;

    (void)state;
    hand->run.sequence_ns *= 1.0001;
    assert_broken(hand, "Little's law");
    hand->run = whole.run;
    hand->nodes[1].tokens_out++;
    assert_broken(hand, "output tokens");
    hand->nodes[1].tokens_out -= 2;
    assert_broken(hand, "output tokens");
    hand->nodes[1] = whole.nodes[1];
    hand->nodes[0].tokens_in -= 1;
    assert_broken(hand, "prompt tokens");
    hand->nodes[0].tokens_in += 52;
    assert_broken(hand, "prompt tokens");
    hand->nodes[0] = whole.nodes[0];
    hand->run.bytes_landed--;
    assert_broken(hand, "bytes");
    hand->run = whole.run;
    hand->records[3].bytes++;
    assert_broken(hand, "bytes");
    hand->records[3] = whole.records[3];
    hand->records[3].at[SIM_READY] = hand->records[3].at[SIM_LANDED] - 1;
    assert_broken(hand, "moment ready");
    hand->records[3].at[SIM_READY] = HLG_TIME_NEVER;
    assert_broken(hand, "moment stepped");
    hand->records[3] = whole.records[3];
    hand->records[3].at[SIM_FINISHED] = HLG_TIME_NEVER;
    assert_broken(hand, "moment finished");
    hand->records[3] = whole.records[3];
    hand->records[3].prompt_tokens++;
    assert_broken(hand, "prompt tokens");
    hand->records[3] = whole.records[3];
    hand->records[3].cached_tokens = 1001;
    assert_broken(hand, "cached");
    hand_free(hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latencies_of_equal_requests_are_theirs),
        cmocka_unit_test(three_times_per_token_differ),
        cmocka_unit_test(bursts_are_gaps_of_nothing),
        cmocka_unit_test(unfinished_requests_count_as_they_waited),
        cmocka_unit_test(slo_needs_every_bound),
        cmocka_unit_test(the_window_bounds_what_is_measured),
        cmocka_unit_test(rates_are_a_gpu_over_all_gpus),
        cmocka_unit_test(a_queue_that_grows_is_overload),
        cmocka_unit_test(waiting_for_pages_names_the_batch),
        cmocka_unit_test(shares_of_the_window_are_those_of_its_samples),
        cmocka_unit_test(whole_runs_conserve),
        cmocka_unit_test(every_law_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
