/*
 * Step times against measured time per output token: DeepSeek-R1 fp8, InferenceX rows (as
 * ai-dynamo/aiconfigurator @ 095f58a5 holds them, silicon_sample.csv, Apache-2.0; compared with
 * HALAGE_DATA/measured where that is set). No cluster is simulated: a row's batch is its concurrency
 * less the share of time that its measured TTFT says requests spend before decode.
 *
 * The constants of sim/calibration/constants.tsv are fitted here again, on the rows that they were
 * fitted on, and must be those; the rows that test them took no part in the fit.
 */
#define _GNU_SOURCE /* asprintf() */
#include "cost.h"
#include "facts.h"
#include "measured.h"
#include "workload_table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1e6

/* Columns that say which row it is, then those that must agree. */
#define KEYS    4u
#define COLUMNS 9u

static const char *const disagg_columns[COLUMNS + 1] = {"config_id",
                                                        "isl",
                                                        "osl",
                                                        "concurrency",
                                                        "ttft_ms",
                                                        "tpot_ms",
                                                        "decode_tp_size",
                                                        "decode_attention_dp_size",
                                                        "decode_moe_ep_size",
                                                        "decode_num_workers"};
static const char *const agg_columns[COLUMNS] = {
    "config_id",         "isl",        "osl", "concurrency", "ttft_ms", "tpot_ms", "tp_size",
    "attention_dp_size", "moe_ep_size"};

static bool is_row(const struct sim_table *table, const uint32_t *columns, uint32_t begin,
                   uint32_t limit, const double *expected)
{
    for (uint32_t i = begin; i < limit; i++) {
        double value = 0.0;
        if (!sim_take_double(table->fields[columns[i]], &value) || value != expected[i]) {
            return false;
        }
    }
    return true;
}

/* The row is in its file, with these numbers. */
static void expect_row(const struct measured *row)
{
    const bool is_disagg = strcmp(row->file, DISAGG) == 0;
    const uint32_t count = is_disagg ? COLUMNS + 1 : COLUMNS;
    const double expected[COLUMNS + 1] = {strtod(row->config, NULL),
                                          row->isl,
                                          row->osl,
                                          row->concurrency,
                                          row->ttft_ms,
                                          row->tpot_ms,
                                          row->tp,
                                          row->dp,
                                          row->ep,
                                          row->workers};
    struct sim_table table;
    uint32_t columns[COLUMNS + 1];
    char text[256];
    char *path = NULL;

    assert_true(asprintf(&path, "%s/measured/%s", getenv("HALAGE_DATA"), row->file) > 0);
    assert_int_equal(sim_table_open(&table, path, '\t', text, sizeof text), 0);
    assert_int_equal(
        sim_table_heading(&table, is_disagg ? disagg_columns : agg_columns, count, columns), 0);
    do {
        assert_int_equal(sim_table_next_row(&table), 1);
    } while (!is_row(&table, columns, 0, KEYS, expected));
    assert_true(is_row(&table, columns, KEYS, count, expected));
    sim_table_close(&table);
    free(path);
}

/* Of one worker. */
static double concurrency(const struct measured *row)
{
    return (double)row->concurrency / row->workers;
}

static struct sim_cost *make_cost(const struct measured *row, const char *gpu, const char *engine,
                                  enum sim_dtype kv, double layer_ns)
{
    const struct sim_cost_config config = {.model = sim_model_find("DeepSeek-R1"),
                                           .gpu = sim_gpu_find(gpu),
                                           .engine = engine,
                                           .weights = SIM_FP8,
                                           .kv = kv,
                                           .tp = row->tp,
                                           .dp = row->dp,
                                           .ep = row->ep,
                                           .layer_overhead_ns = layer_ns,
                                           .step_overhead_ns = -1.0};
    struct sim_cost *cost = NULL;
    char text[512] = "";

    if (sim_cost_create(&config, &cost, text, sizeof text) != 0) {
        fail_msg("%s", text);
    }
    return cost;
}

/* A decode step of all ranks alike; fractions of a sequence by a line. */
static double decode_ms(const struct sim_cost *cost, uint32_t dp, double batch, double context)
{
    double ms[2];
    const uint32_t low = batch < 1.0 ? 1 : (uint32_t)batch;
    struct sim_rank_step ranks[64];

    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t rank = 0; rank < dp; rank++) {
            ranks[rank] = (struct sim_rank_step){.sequences = low + i,
                                                 .context_sum = (uint64_t)((low + i) * context),
                                                 .context_max = (uint32_t)context,
                                                 .query_tokens = 1};
        }
        ms[i] = sim_cost_step_ns(cost, ranks, dp, NULL) / MS;
    }
    return ms[0] + (ms[1] - ms[0]) * (batch - low);
}

static double mean_context(const struct measured *row)
{
    return LENGTH_MEAN * (row->isl + 0.5 * row->osl);
}

/* Sequences of a rank in decode, of those that the closed loop keeps in the system. */
static double decode_batch(const struct measured *row)
{
    const double decode_ms_total = LENGTH_MEAN * row->osl * row->tpot_ms;
    const double share = decode_ms_total / (row->ttft_ms + decode_ms_total);
    return concurrency(row) * share / row->dp;
}

static double predict(const struct measured *row, const struct sim_cost *cost)
{
    return decode_ms(cost, row->dp, decode_batch(row), mean_context(row));
}

struct errors {
    double sum;
    double worst;
    uint32_t count;
};

enum status {
    PRINTED, /* not a row of reports/accuracy.tsv */
    PREDICTED,
    CALIBRATED,
};

static void expect_fact(const char *what, const struct measured *row, double predicted,
                        enum status status)
{
    char id[64];
    char subject[128];
    char source[64];

    (void)snprintf(id, sizeof id, "step-%s-%u-%u-c%u", row->config, row->isl, row->osl,
                   row->concurrency);
    (void)snprintf(subject, sizeof subject, "TPOT, R1 fp8 H200, %s, %u/%u, c %u, as a step's time",
                   what, row->isl, row->osl, row->concurrency);
    (void)snprintf(source, sizeof source, "InferenceX config %s", row->config);
    const struct fact fact = {.id = id,
                              .what = subject,
                              .source = source,
                              .measured = row->tpot_ms,
                              .unit = "ms",
                              .predicted = predicted,
                              .test = "steps",
                              .is_calibrated = status == CALIBRATED};
    fact_expect(&fact);
}

static void note(struct errors *errors, const char *what, const struct measured *row,
                 double predicted, enum status status)
{
    const double error = predicted / row->tpot_ms - 1.0;

    printf("%-28s config %s %u/%u c %4u  batch %5.1f  TPOT %6.2f ms, predicted %6.2f  %+6.1f %%\n",
           what, row->config, row->isl, row->osl, row->concurrency, decode_batch(row), row->tpot_ms,
           predicted, 100.0 * error);
    errors->sum += fabs(error);
    errors->worst = fmax(errors->worst, fabs(error));
    errors->count++;
    if (status != PRINTED) {
        expect_fact(what, row, predicted, status);
    }
}

static double mean(const struct errors *errors)
{
    return errors->sum / errors->count;
}

static void report(const char *what, const struct errors *errors)
{
    printf("%-28s mean %.1f %%, worst %.1f %%\n", what, 100.0 * mean(errors),
           100.0 * errors->worst);
}

static struct errors compare(const char *what, const struct measured *rows, uint32_t count,
                             const char *gpu, const char *engine, enum sim_dtype kv,
                             enum status status)
{
    struct errors errors = {0};

    for (uint32_t i = 0; i < count; i++) {
        const struct measured *row = &rows[i];
        struct sim_cost *cost = make_cost(row, gpu, engine, kv, -1.0);
        note(&errors, what, row, predict(row, cost), status);
        sim_cost_destroy(cost);
    }
    report(what, &errors);
    return errors;
}

/* The constant for a layer that makes the squares of the relative errors least, not below 0. */
static double fitted_layer_ns(const struct measured *rows, uint32_t count, const char *gpu,
                              const char *engine, enum sim_dtype kv)
{
    double above = 0.0;
    double below = 0.0;

    for (uint32_t i = 0; i < count; i++) {
        const struct measured *row = &rows[i];
        struct sim_cost *cost = make_cost(row, gpu, engine, kv, 0.0);
        const double squared = row->tpot_ms * row->tpot_ms;
        above += (row->tpot_ms - predict(row, cost)) / squared;
        below += 1.0 / squared;
        sim_cost_destroy(cost);
    }
    const double layers = sim_model_find("DeepSeek-R1")->layers;
    const double ns = above / below * MS / layers;
    printf("fit: %s on %s, %u rows: %.0f ns a layer\n", engine, gpu, count, ns);
    return fmax(ns, 0.0);
}

static void expect_constant(const struct measured *rows, uint32_t count, const char *engine)
{
    const struct measured *row = &rows[0];
    struct sim_cost *cost = make_cost(row, "H200", engine, SIM_BF16, -1.0);
    struct sim_cost_basis basis;

    sim_cost_basis(cost, &basis);
    sim_cost_destroy(cost);
    const double fitted = fitted_layer_ns(rows, count, "H200", engine, SIM_BF16);
    assert_true(fabs(basis.layer_overhead_ns - fitted) <= 100.0);
}

/* Rows whose prompts wait for seconds: the prefill nodes work without a pause, so that the requests that
 * the closed loop makes are what they can do. The first has 5 of them, TP8 EP8, which compute 2 prompts at
 * a time; the second one, DP8 EP8, 8 prompts a rank (recipes: scenarios/inferencex.yaml). */
static const struct measured saturated[] = {
    {DISAGG, "679", 8192, 1024, 768, 3, 1, 8, 8, 8763.99, 44.026},
    {DISAGG, "336", 1024, 1024, 1536, 6, 1, 8, 8, 5121.30, 39.899},
};
static const uint32_t saturated_nodes[] = {5, 1};
static const uint32_t saturated_tp[] = {8, 1};
static const uint32_t saturated_prompts[] = {2, 8};
/* The second node may well wait now and then: with 1,536 users in step, the simulated one is busy for 92 %
 * of the time. So what is predicted, a node that never waits, may be above what was measured. */
static const double saturated_errors[] = {0.10, 0.15};

static const struct measured b200_dp[] = {
    {DISAGG, "549", 8192, 1024, 128, 1, 1, 8, 8, 1963.47, 31.241},
    {DISAGG, "549", 8192, 1024, 256, 1, 1, 8, 8, 3663.23, 33.738},
    {DISAGG, "566", 8192, 1024, 128, 2, 1, 8, 8, 2121.64, 24.486},
    {DISAGG, "555", 8192, 1024, 640, 1, 1, 8, 8, 4212.05, 42.364},
    {DISAGG, "564", 1024, 1024, 1920, 5, 1, 8, 8, 2387.07, 31.986},
};

static void expect_rows(const struct measured *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        expect_row(&rows[i]);
    }
}

static void rows_are_those_of_the_data(void **state)
{
    (void)state;
    if (getenv("HALAGE_DATA") == NULL) {
        print_message("HALAGE_DATA is not set: name the directory that holds measured/\n");
        skip();
    }
    expect_rows(trtllm_tp_fit, COUNT(trtllm_tp_fit));
    expect_rows(trtllm_dp_fit, COUNT(trtllm_dp_fit));
    expect_rows(trtllm_test, COUNT(trtllm_test));
    expect_rows(sglang_long, COUNT(sglang_long));
    expect_rows(sglang_mixed, COUNT(sglang_mixed));
    expect_rows(saturated, COUNT(saturated));
    expect_rows(b200_dp, COUNT(b200_dp));
}

static void constants_are_the_fit(void **state)
{
    (void)state;
    expect_constant(trtllm_tp_fit, COUNT(trtllm_tp_fit), "trtllm");
    expect_constant(trtllm_dp_fit, COUNT(trtllm_dp_fit), "trtllm");
    expect_constant(sglang_long, COUNT(sglang_long), "sglang");
    (void)compare("TensorRT-LLM TP8", trtllm_tp_fit, COUNT(trtllm_tp_fit), "H200", "trtllm",
                  SIM_BF16, CALIBRATED);
    (void)compare("TensorRT-LLM DP8", trtllm_dp_fit, COUNT(trtllm_dp_fit), "H200", "trtllm",
                  SIM_BF16, CALIBRATED);
}

static void rows_outside_of_the_fit_are_met(void **state)
{
    (void)state;
    const struct errors errors = compare("TensorRT-LLM, T08 rows 6-10", trtllm_test,
                                         COUNT(trtllm_test), "H200", "trtllm", SIM_BF16, PREDICTED);
    assert_true(mean(&errors) <= 0.08);
    assert_true(errors.worst <= 0.15);
}

/* The same with no constant but the one of rows 1 to 5: DP was fitted on rows outside of T08's ten. */
static void rows_are_met_without_a_constant_for_dp(void **state)
{
    struct errors errors = {0};

    (void)state;
    for (uint32_t i = 0; i < COUNT(trtllm_test); i++) {
        const struct measured *row = &trtllm_test[i];
        struct sim_cost *cost =
            make_cost(row, "H200", "trtllm", SIM_BF16, row->dp > 1 ? 0.0 : -1.0);
        note(&errors, "the same, DP constant 0", row, predict(row, cost), PRINTED);
        sim_cost_destroy(cost);
    }
    report("the same, DP constant 0", &errors);
    assert_true(mean(&errors) <= 0.08);
    assert_true(errors.worst <= 0.15);
}

static void sglang_long_outputs_are_met(void **state)
{
    (void)state;
    const struct errors errors = compare("SGLang 1k/8k TP8", sglang_long, COUNT(sglang_long),
                                         "H200", "sglang", SIM_BF16, CALIBRATED);
    assert_true(mean(&errors) <= 0.06);
}

/*
 * Co-located, without mixed steps: while one sequence decodes, the others' prompts take the engine for
 * themselves. In one turn of the closed loop each other user prefills once, and the share of these that
 * meets decode is the share of the turn that decode takes.
 */
static void colocated_prompts_hold_decode_up(void **state)
{
    struct errors errors = {0};

    (void)state;
    for (uint32_t i = 0; i < COUNT(sglang_mixed); i++) {
        const struct measured *row = &sglang_mixed[i];
        struct sim_cost *cost = make_cost(row, "H200", "sglang", SIM_BF16, -1.0);
        const struct sim_chunk prompt = {.tokens = (uint32_t)(LENGTH_MEAN * row->isl)};
        const struct sim_rank_step step = {.chunks = &prompt, .chunk_count = 1};
        const double tokens = LENGTH_MEAN * row->osl;
        const double share = decode_batch(row) / concurrency(row);
        const double prompt_ms = sim_cost_step_ns(cost, &step, 1, NULL) / MS;
        const double held_up = (concurrency(row) - 1.0) * share * prompt_ms / tokens;
        note(&errors, "SGLang 8k/1k co-located", row, predict(row, cost) + held_up, PRINTED);
        sim_cost_destroy(cost);
    }
    report("SGLang 8k/1k co-located", &errors);
    assert_true(mean(&errors) <= 0.12);
}

static void prefill_keeps_up_with_saturated_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(saturated); i++) {
        const struct measured *row = &saturated[i];
        const uint32_t tp = saturated_tp[i];
        const uint32_t prompts = saturated_prompts[i];
        const struct measured node = {.tp = tp, .dp = 8 / tp, .ep = 8};
        struct sim_cost *cost = make_cost(&node, "H200", "trtllm", SIM_BF16, -1.0);
        struct sim_chunk chunks[8];
        struct sim_rank_step ranks[8];
        for (uint32_t k = 0; k < prompts; k++) {
            chunks[k] = (struct sim_chunk){.tokens = (uint32_t)(LENGTH_MEAN * row->isl)};
        }
        for (uint32_t rank = 0; rank < node.dp; rank++) {
            ranks[rank] = (struct sim_rank_step){.chunks = chunks, .chunk_count = prompts};
        }
        const double turn_ms = row->ttft_ms + LENGTH_MEAN * row->osl * row->tpot_ms;
        const double measured =
            row->concurrency / turn_ms * LENGTH_MEAN * row->isl / saturated_nodes[i];
        const double predicted = 1e6 * chunks[0].tokens * prompts * node.dp /
                                 sim_cost_step_ns(cost, ranks, node.dp, NULL);
        sim_cost_destroy(cost);
        printf("prefill, config %s: %.2f thousand tokens/s a node, predicted %.2f  %+.1f %%\n",
               row->config, measured, predicted, 100.0 * (predicted / measured - 1.0));
        char id[64];
        char what[128];
        (void)snprintf(id, sizeof id, "prefill-%s", row->config);
        (void)snprintf(
            what, sizeof what,
            "prefill of a node that never waits, R1 fp8 8 x H200, TensorRT-LLM TP%u DP%u EP8, "
            "%u tokens",
            node.tp, node.dp, row->isl);
        const struct fact fact = {.id = id,
                                  .what = what,
                                  .source = "InferenceX, from concurrency, TTFT and TPOT",
                                  .measured = round(100.0 * measured) / 100.0,
                                  .unit = "ktok/s",
                                  .predicted = predicted,
                                  .test = "steps",
                                  .is_calibrated = false};
        fact_expect(&fact);
        assert_true(fabs(predicted / measured - 1.0) <= saturated_errors[i]);
    }
}

/* Printed, with a bound that only says that nothing broke: SGLang's kernels and constants of H200 stand
 * in for TensorRT-LLM's on B200. */
static void b200_is_printed(void **state)
{
    (void)state;
    const struct measured *row = &b200_dp[0];
    struct sim_cost *cost = make_cost(row, "B200", "trtllm", SIM_FP8, -1.0);
    struct sim_cost_basis basis;
    sim_cost_basis(cost, &basis);
    sim_cost_destroy(cost);
    printf("B200: %s\n", basis.why);
    assert_true(basis.borrowed);
    const struct errors errors = compare("B200 TensorRT-LLM DP8", b200_dp, COUNT(b200_dp), "B200",
                                         "trtllm", SIM_FP8, PRINTED);
    assert_true(mean(&errors) <= 0.30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_the_data),
        cmocka_unit_test(constants_are_the_fit),
        cmocka_unit_test(rows_outside_of_the_fit_are_met),
        cmocka_unit_test(rows_are_met_without_a_constant_for_dp),
        cmocka_unit_test(sglang_long_outputs_are_met),
        cmocka_unit_test(colocated_prompts_hold_decode_up),
        cmocka_unit_test(prefill_keeps_up_with_saturated_rows),
        cmocka_unit_test(b200_is_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
