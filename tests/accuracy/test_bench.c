/*
 * The InferenceX bench, simulated: closed loop, lengths and warm-up as it has them, its deployments by
 * their published recipes (scenarios/inferencex*.yaml), against what it measured. Constants are those of
 * test_steps.c, fitted to TPOT of other rows; nothing was fitted to a TTFT.
 *
 * And the fabric-lib paper's requests through the same cluster, beside the paper's times.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "facts.h"
#include "measured.h"
#include "points.h"

#include <math.h>
#include <stdio.h>

struct errors {
    double sum;
    double worst;
    uint32_t count;
};

static double note(struct errors *errors, double measured, double predicted)
{
    const double error = predicted / measured - 1.0;

    errors->sum += fabs(error);
    errors->worst = fmax(errors->worst, fabs(error));
    errors->count++;
    return 100.0 * error;
}

static double mean(const struct errors *errors)
{
    return errors->sum / errors->count;
}

static void report(const char *what, const struct errors *errors)
{
    printf("%-32s mean %.1f %%, worst %.1f %%\n", what, 100.0 * mean(errors),
           100.0 * errors->worst);
}

/* Simulate a file's points, which are the rows in order; print both, and sum up the errors. */
static struct point *compare(const char *file, const struct measured *rows, uint32_t count,
                             struct errors *ttft, struct errors *tpot)
{
    struct point *points = points_run(file, count);

    for (uint32_t i = 0; i < count; i++) {
        const struct measured *row = &rows[i];
        const struct sim_metrics *m = &points[i].metrics;
        const double ttft_error = note(ttft, row->ttft_ms, m->ttft_ms.mean);
        const double tpot_error = note(tpot, row->tpot_ms, m->tpot_ms.mean);
        printf("config %s %u/%u c %4u  TTFT %6.0f ms, simulated %6.0f  %+6.1f %%"
               "  TPOT %5.2f ms, simulated %5.2f  %+6.1f %%\n",
               row->config, row->isl, row->osl, row->concurrency, row->ttft_ms, m->ttft_ms.mean,
               ttft_error, row->tpot_ms, m->tpot_ms.mean, tpot_error);
        assert_int_equal(m->requests, 10 * row->concurrency);
        assert_int_equal(m->finished, m->requests);
    }
    report("  TTFT", ttft);
    report("  TPOT", tpot);
    return points;
}

static void expect_fact(const char *what, const char *words, const struct measured *row,
                        double measured, double predicted)
{
    char id[64];
    char subject[160];
    char source[64];

    (void)snprintf(id, sizeof id, "bench-%s-%s-%u-c%u", what, row->config, row->isl,
                   row->concurrency);
    (void)snprintf(subject, sizeof subject, "%s, %u/%u, c %u, the bench simulated", words, row->isl,
                   row->osl, row->concurrency);
    (void)snprintf(source, sizeof source, "InferenceX config %s", row->config);
    fact_expect(&(struct fact){.id = id,
                               .what = subject,
                               .source = source,
                               .measured = measured,
                               .unit = "ms",
                               .predicted = predicted,
                               .test = "bench",
                               .is_calibrated = false});
}

static void rows_of_8k_are_met(void **state)
{
    struct errors ttft = {0};
    struct errors tpot = {0};

    (void)state;
    struct point *points =
        compare("inferencex-8k.yaml", trtllm_test, COUNT(trtllm_test), &ttft, &tpot);
    for (uint32_t i = 0; i < COUNT(trtllm_test); i++) {
        expect_fact("ttft", "mean TTFT, R1 fp8 H200, TensorRT-LLM, T08 rows 6-10", &trtllm_test[i],
                    trtllm_test[i].ttft_ms, points[i].metrics.ttft_ms.mean);
    }
    assert_true(mean(&ttft) <= 0.15);
    assert_true(mean(&tpot) <= 0.08);
    assert_true(tpot.worst <= 0.15);
    points_free(points, COUNT(trtllm_test));
}

/* Printed with what is left: measured TTFT is longer by some 0.4 to 1 s, which the model lacks and 8k
 * rows do not have (reports/claims.md). TPOT of these rows is what the constants were fitted to. */
static void rows_of_1k_are_printed(void **state)
{
    struct errors ttft = {0};
    struct errors tpot = {0};

    (void)state;
    struct point *points =
        compare("inferencex.yaml", trtllm_tp_fit, COUNT(trtllm_tp_fit), &ttft, &tpot);
    for (uint32_t i = 0; i < COUNT(trtllm_tp_fit); i++) {
        printf("config %s c %4u: %.0f ms of TTFT not explained\n", trtllm_tp_fit[i].config,
               trtllm_tp_fit[i].concurrency,
               trtllm_tp_fit[i].ttft_ms - points[i].metrics.ttft_ms.mean);
    }
    expect_fact("ttft", "mean TTFT, R1 fp8 H200, TensorRT-LLM, T08 row 3: the gap is unexplained",
                &trtllm_tp_fit[2], trtllm_tp_fit[2].ttft_ms, points[2].metrics.ttft_ms.mean);
    assert_true(mean(&tpot) <= 0.08);
    points_free(points, COUNT(trtllm_tp_fit));
}

static void colocated_rows_are_met(void **state)
{
    struct errors ttft = {0};
    struct errors tpot = {0};

    (void)state;
    struct point *points =
        compare("inferencex-mixed.yaml", sglang_mixed, COUNT(sglang_mixed), &ttft, &tpot);
    for (uint32_t i = 0; i < COUNT(sglang_mixed); i++) {
        expect_fact("tpot", "TPOT, R1 fp8 H200, SGLang TP8 co-located", &sglang_mixed[i],
                    sglang_mixed[i].tpot_ms, points[i].metrics.tpot_ms.mean);
    }
    assert_true(mean(&tpot) <= 0.12);
    points_free(points, COUNT(sglang_mixed));
}

/* ---- the fabric-lib paper's table 3 -------------------------------------------------------- */

static const struct {
    uint32_t tokens;
    double alone_ms; /* TTFT without hand-over */
    double apart_ms; /* with it */
    double layer_ms; /* transfer of a layer of the last chunk */
} table_3[] = {
    {4096, 214, 260, 0.661},    {8192, 433, 501, 0.952},    {16384, 929, 1042, 1.610},
    {32768, 2179, 2317, 1.606}, {65536, 5681, 5852, 1.611}, {131072, 16735, 17056, 1.609},
};

static const uint32_t handed_over[] = {SIM_SUBMITTED, SIM_COMPUTED, SIM_LANDED, SIM_READY,
                                       SIM_STEPPED};

/*
 * What the cluster says of the same requests: the parts of TTFT that a node on its own would not have.
 * NIC constants and engine times of others: the gap is unexplained, as it is for a layer alone
 * (test_nic.c); nothing is asserted of it but that the network is not what takes the time.
 */
static void the_gap_of_the_papers_table_is_printed(void **state)
{
    (void)state;
    struct point *points = points_run("paper-kv-transfer.yaml", COUNT(table_3));
    for (uint32_t i = 0; i < COUNT(table_3); i++) {
        const struct sim_metrics *m = &points[i].metrics;
        const double measured = table_3[i].apart_ms - table_3[i].alone_ms;
        const double exposed = m->part_ms[SIM_COMPUTED].mean;
        double added = 0;
        for (uint32_t k = 0; k < COUNT(handed_over); k++) {
            added += m->part_ms[handed_over[k]].mean;
        }
        printf("%6u tokens: prefill %5.0f ms, simulated %6.0f; a layer's transfer %.3f ms, exposed "
               "in the cluster %.3f; TTFT with hand-over %+4.0f ms, simulated %+5.1f: the gap of "
               "%.0f ms is unexplained\n",
               table_3[i].tokens, table_3[i].alone_ms, m->part_ms[SIM_STARTED].mean,
               table_3[i].layer_ms, exposed, measured, added, measured - added);
        assert_int_equal(m->finished, m->requests);
        assert_true(exposed > 0 && exposed < table_3[i].layer_ms);
        assert_true(added < measured);
        if (i == 0) {
            fact_expect(&(struct fact){
                .id = "kv-ttft-4096",
                .what = "TTFT that the hand-over of 4,096 tokens adds: the gap is unexplained",
                .source = "arXiv:2510.27656 table 3",
                .measured = measured,
                .unit = "ms",
                .predicted = added,
                .test = "bench",
                .is_calibrated = false});
        }
    }
    points_free(points, COUNT(table_3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_8k_are_met),
        cmocka_unit_test(rows_of_1k_are_printed),
        cmocka_unit_test(colocated_rows_are_met),
        cmocka_unit_test(the_gap_of_the_papers_table_is_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
