/*
 * Step times against measured time per output token: DeepSeek-R1 fp8, InferenceX rows of
 * HALAGE_DATA/measured (skipped without it). No cluster is simulated: a row's batch is its concurrency
 * less the share of time that its measured TTFT says requests spend before decode.
 *
 * The constants of sim/calibration/constants.tsv are fitted here again, on the rows that they were
 * fitted on, and must be those; the rows that test them took no part in the fit.
 */
#define _GNU_SOURCE /* asprintf() */
#include "cost.h"
#include "workload_table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1e6

/* How the lengths were drawn: uniform in [0.8 L, L]. */
#define LENGTH_MEAN 0.9

struct measured {
    uint32_t isl;
    uint32_t osl;
    double concurrency; /* of one decode worker */
    uint32_t tp;
    uint32_t dp;
    uint32_t ep;
    double ttft_ms;
    double tpot_ms;
};

/* A measured row by file, configuration, lengths and concurrency. */
struct row_key {
    const char *file;
    const char *config;
    uint32_t isl;
    uint32_t osl;
    uint32_t concurrency;
};

#define DISAGG "inferencex_disagg_dev.tsv"
#define AGG    "inferencex_agg_dev.tsv"

enum {
    CONFIG,
    ISL,
    OSL,
    CONCURRENCY,
    TTFT,
    TPOT,
    TP,
    DP,
    EP,
    WORKERS,
    COLUMN_COUNT,
};

static const char *const disagg_columns[COLUMN_COUNT] = {"config_id",
                                                         "isl",
                                                         "osl",
                                                         "concurrency",
                                                         "ttft_ms",
                                                         "tpot_ms",
                                                         "decode_tp_size",
                                                         "decode_attention_dp_size",
                                                         "decode_moe_ep_size",
                                                         "decode_num_workers"};
static const char *const agg_columns[COLUMN_COUNT] = {
    "config_id",         "isl",        "osl", "concurrency", "ttft_ms", "tpot_ms", "tp_size",
    "attention_dp_size", "moe_ep_size"};

static double number(const struct sim_table *table, uint32_t field)
{
    double value = 0.0;
    assert_true(sim_take_double(table->fields[field], &value));
    return value;
}

static bool is_row(const struct sim_table *table, const uint32_t *columns,
                   const struct row_key *key)
{
    return strcmp(table->fields[columns[CONFIG]], key->config) == 0 &&
           number(table, columns[ISL]) == key->isl && number(table, columns[OSL]) == key->osl &&
           number(table, columns[CONCURRENCY]) == key->concurrency;
}

static struct measured find_row(const struct row_key *key)
{
    const bool is_disagg = strcmp(key->file, DISAGG) == 0;
    struct measured row = {0};
    struct sim_table table;
    uint32_t columns[COLUMN_COUNT];
    char text[256];
    char *path = NULL;

    assert_true(asprintf(&path, "%s/measured/%s", getenv("HALAGE_DATA"), key->file) > 0);
    assert_int_equal(sim_table_open(&table, path, '\t', text, sizeof text), 0);
    assert_int_equal(sim_table_heading(&table, is_disagg ? disagg_columns : agg_columns,
                                       is_disagg ? COLUMN_COUNT : WORKERS, columns),
                     0);
    int got = 1;
    do {
        got = sim_table_next_row(&table);
        assert_true(got == 1); /* the row is there */
    } while (!is_row(&table, columns, key));
    const double workers = is_disagg ? number(&table, columns[WORKERS]) : 1.0;
    row = (struct measured){.isl = key->isl,
                            .osl = key->osl,
                            .concurrency = key->concurrency / workers,
                            .tp = (uint32_t)number(&table, columns[TP]),
                            .dp = (uint32_t)number(&table, columns[DP]),
                            .ep = (uint32_t)number(&table, columns[EP]),
                            .ttft_ms = number(&table, columns[TTFT]),
                            .tpot_ms = number(&table, columns[TPOT])};
    sim_table_close(&table);
    free(path);
    return row;
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
    return row->concurrency * share / row->dp;
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

static void note(struct errors *errors, const char *what, const struct row_key *key,
                 const struct measured *row, double predicted)
{
    const double error = predicted / row->tpot_ms - 1.0;

    printf("%-28s config %s %u/%u c %4u  batch %5.1f  TPOT %6.2f ms, predicted %6.2f  %+6.1f %%\n",
           what, key->config, key->isl, key->osl, key->concurrency, decode_batch(row), row->tpot_ms,
           predicted, 100.0 * error);
    errors->sum += fabs(error);
    errors->worst = fmax(errors->worst, fabs(error));
    errors->count++;
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

static struct errors compare(const char *what, const struct row_key *keys, uint32_t count,
                             const char *gpu, const char *engine, enum sim_dtype kv)
{
    struct errors errors = {0};

    for (uint32_t i = 0; i < count; i++) {
        const struct measured row = find_row(&keys[i]);
        struct sim_cost *cost = make_cost(&row, gpu, engine, kv, -1.0);
        note(&errors, what, &keys[i], &row, predict(&row, cost));
        sim_cost_destroy(cost);
    }
    report(what, &errors);
    return errors;
}

/* The constant for a layer that makes the squares of the relative errors least, not below 0. */
static double fitted_layer_ns(const struct row_key *keys, uint32_t count, const char *gpu,
                              const char *engine, enum sim_dtype kv)
{
    double above = 0.0;
    double below = 0.0;

    for (uint32_t i = 0; i < count; i++) {
        const struct measured row = find_row(&keys[i]);
        struct sim_cost *cost = make_cost(&row, gpu, engine, kv, 0.0);
        const double squared = row.tpot_ms * row.tpot_ms;
        above += (row.tpot_ms - predict(&row, cost)) / squared;
        below += 1.0 / squared;
        sim_cost_destroy(cost);
    }
    const double layers = sim_model_find("DeepSeek-R1")->layers;
    const double ns = above / below * MS / layers;
    printf("fit: %s on %s, %u rows: %.0f ns a layer\n", engine, gpu, count, ns);
    return fmax(ns, 0.0);
}

static void expect_constant(const struct row_key *keys, uint32_t count, const char *engine)
{
    const struct measured row = find_row(&keys[0]);
    struct sim_cost *cost = make_cost(&row, "H200", engine, SIM_BF16, -1.0);
    struct sim_cost_basis basis;

    sim_cost_basis(cost, &basis);
    sim_cost_destroy(cost);
    const double fitted = fitted_layer_ns(keys, count, "H200", engine, SIM_BF16);
    assert_true(fabs(basis.layer_overhead_ns - fitted) <= 100.0);
}

#define COUNT(keys) ((uint32_t)(sizeof(keys) / sizeof((keys)[0])))

static const struct row_key trtllm_tp_fit[] = {
    {DISAGG, "590", 1024, 1024, 36},  {DISAGG, "590", 1024, 1024, 72},
    {DISAGG, "590", 1024, 1024, 144}, {DISAGG, "590", 1024, 1024, 288},
    {DISAGG, "590", 1024, 1024, 576},
};

static const struct row_key trtllm_dp_fit[] = {
    {DISAGG, "321", 1024, 1024, 1152},
    {DISAGG, "336", 1024, 1024, 1536},
    {DISAGG, "328", 1024, 1024, 3584},
};

/* T08 rows 6 to 10: other lengths, other numbers of workers, two of five with DP. */
static const struct row_key trtllm_test[] = {
    {DISAGG, "297", 8192, 1024, 28},  {DISAGG, "301", 8192, 1024, 48},
    {DISAGG, "305", 8192, 1024, 160}, {DISAGG, "334", 8192, 1024, 512},
    {DISAGG, "294", 8192, 1024, 768},
};

static const struct row_key sglang_long[] = {
    {AGG, "81", 1024, 8192, 4},  {AGG, "81", 1024, 8192, 8},  {AGG, "81", 1024, 8192, 16},
    {AGG, "81", 1024, 8192, 32}, {AGG, "81", 1024, 8192, 64},
};

static const struct row_key sglang_mixed[] = {
    {AGG, "81", 8192, 1024, 4},  {AGG, "81", 8192, 1024, 8},  {AGG, "81", 8192, 1024, 16},
    {AGG, "81", 8192, 1024, 32}, {AGG, "81", 8192, 1024, 64},
};

static const struct row_key b200_dp[] = {
    {DISAGG, "549", 8192, 1024, 128},  {DISAGG, "549", 8192, 1024, 256},
    {DISAGG, "566", 8192, 1024, 128},  {DISAGG, "555", 8192, 1024, 640},
    {DISAGG, "564", 1024, 1024, 1920},
};

static void need_data(void)
{
    if (getenv("HALAGE_DATA") == NULL) {
        print_message("HALAGE_DATA is not set: name the directory that holds measured/\n");
        skip();
    }
}

static void constants_are_the_fit(void **state)
{
    (void)state;
    need_data();
    expect_constant(trtllm_tp_fit, COUNT(trtllm_tp_fit), "trtllm");
    expect_constant(trtllm_dp_fit, COUNT(trtllm_dp_fit), "trtllm");
    expect_constant(sglang_long, COUNT(sglang_long), "sglang");
    (void)compare("fitted, TensorRT-LLM TP8", trtllm_tp_fit, COUNT(trtllm_tp_fit), "H200", "trtllm",
                  SIM_BF16);
    (void)compare("fitted, TensorRT-LLM DP8", trtllm_dp_fit, COUNT(trtllm_dp_fit), "H200", "trtllm",
                  SIM_BF16);
}

static void rows_outside_of_the_fit_are_met(void **state)
{
    (void)state;
    need_data();
    const struct errors errors =
        compare("T08 rows 6-10", trtllm_test, COUNT(trtllm_test), "H200", "trtllm", SIM_BF16);
    assert_true(mean(&errors) <= 0.08);
    assert_true(errors.worst <= 0.15);
}

static void sglang_long_outputs_are_met(void **state)
{
    (void)state;
    need_data();
    const struct errors errors =
        compare("SGLang 1k/8k TP8", sglang_long, COUNT(sglang_long), "H200", "sglang", SIM_BF16);
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
    need_data();
    for (uint32_t i = 0; i < COUNT(sglang_mixed); i++) {
        const struct measured row = find_row(&sglang_mixed[i]);
        struct sim_cost *cost = make_cost(&row, "H200", "sglang", SIM_BF16, -1.0);
        const struct sim_chunk prompt = {.tokens = (uint32_t)(LENGTH_MEAN * row.isl)};
        const struct sim_rank_step step = {.chunks = &prompt, .chunk_count = 1};
        const double tokens = LENGTH_MEAN * row.osl;
        const double share = decode_batch(&row) / row.concurrency;
        const double prompt_ms = sim_cost_step_ns(cost, &step, 1, NULL) / MS;
        const double held_up = (row.concurrency - 1.0) * share * prompt_ms / tokens;
        note(&errors, "SGLang 8k/1k co-located", &sglang_mixed[i], &row,
             predict(&row, cost) + held_up);
        sim_cost_destroy(cost);
    }
    report("SGLang 8k/1k co-located", &errors);
    assert_true(mean(&errors) <= 0.12);
}

/* Printed, with a bound that only says that nothing broke: SGLang's kernels and constants of H200 stand
 * in for TensorRT-LLM's on B200. */
static void b200_is_printed(void **state)
{
    (void)state;
    need_data();
    const struct measured row = find_row(&b200_dp[0]);
    struct sim_cost *cost = make_cost(&row, "B200", "trtllm", SIM_FP8, -1.0);
    struct sim_cost_basis basis;
    sim_cost_basis(cost, &basis);
    sim_cost_destroy(cost);
    printf("B200: %s\n", basis.why);
    assert_true(basis.borrowed);
    const struct errors errors =
        compare("B200 TensorRT-LLM DP8", b200_dp, COUNT(b200_dp), "B200", "trtllm", SIM_FP8);
    assert_true(mean(&errors) <= 0.30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_are_the_fit),
        cmocka_unit_test(rows_outside_of_the_fit_are_met),
        cmocka_unit_test(sglang_long_outputs_are_met),
        cmocka_unit_test(colocated_prompts_hold_decode_up),
        cmocka_unit_test(b200_is_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
