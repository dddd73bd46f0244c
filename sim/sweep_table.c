#define _GNU_SOURCE /* open_memstream() */

#include "sweep_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct sim_sweep_table {
    const struct sim_sweep_run *sweep;
    json_t *points;
    char *rows;
    size_t row_bytes;
    FILE *row_file; /* into `rows` */
    char base[64];  /* digest of the scenario without the grid */
};

/* Columns after those of the grid: where they are in a result. */
static const struct column {
    const char *name;
    const char *path[4]; /* in "report", NULL-terminated */
} columns[] = {
    {"measured_requests", {"requests", "measured"}},
    {"unfinished_requests", {"requests", "unfinished"}},
    {"failed_requests", {"requests", "failed"}},
    {"refused_requests", {"requests", "refused"}},
    {"ttft_mean_ms", {"latency", "ttft_ms", "mean"}},
    {"ttft_low_ms", {"latency", "ttft_ms", "low"}},
    {"ttft_high_ms", {"latency", "ttft_ms", "high"}},
    {"ttft_p50_ms", {"latency", "ttft_ms", "p50"}},
    {"ttft_p90_ms", {"latency", "ttft_ms", "p90"}},
    {"ttft_p99_ms", {"latency", "ttft_ms", "p99"}},
    {"tpot_mean_ms", {"latency", "tpot_ms", "mean"}},
    {"tpot_p50_ms", {"latency", "tpot_ms", "p50"}},
    {"tpot_p90_ms", {"latency", "tpot_ms", "p90"}},
    {"tpot_p99_ms", {"latency", "tpot_ms", "p99"}},
    {"itl_mean_ms", {"latency", "itl_ms", "mean"}},
    {"itl_p99_ms", {"latency", "itl_ms", "p99"}},
    {"e2e_mean_ms", {"latency", "e2e_ms", "mean"}},
    {"e2e_per_output_token_mean_ms", {"latency", "e2e_per_output_token_ms", "mean"}},
    {"speed_mean_tokens_per_s", {"latency", "speed_tokens_per_s", "mean"}},
    {"speed_p50_tokens_per_s", {"latency", "speed_tokens_per_s", "p50"}},
    {"speed_p90_tokens_per_s", {"latency", "speed_tokens_per_s", "p90"}},
    {"arrivals_per_s", {"throughput", "arrivals_per_s"}},
    {"finished_per_s", {"throughput", "finished_per_s"}},
    {"goodput_per_s", {"throughput", "goodput_per_s"}},
    {"output_tokens_per_s_per_gpu", {"throughput", "output_tokens_per_s_per_gpu"}},
    {"input_tokens_per_s_per_gpu", {"throughput", "input_tokens_per_s_per_gpu"}},
    {"gpus", {"throughput", "gpus"}},
    {"slo_share", {"slo", "share"}},
    {"prefill_busy", {"use", "prefill_busy"}},
    {"decode_busy", {"use", "decode_busy"}},
    {"prefill_kv", {"use", "prefill_kv"}},
    {"decode_kv", {"use", "decode_kv"}},
    {"batch_mean", {"use", "batch_mean"}},
    {"nic_out_busiest", {"use", "nic_out_busiest"}},
    {"nic_in_busiest", {"use", "nic_in_busiest"}},
    {"limit", {"limit"}},
    {"overloaded", {"overloaded"}},
};
#define COLUMNS (sizeof columns / sizeof columns[0])

/* A cell: a tab or a line's end in it would break the table. */
static void text_cell(FILE *file, const char *text)
{
    (void)fputc('\t', file);
    if (text == NULL || *text == '\0') {
        (void)fputc('-', file);
        return;
    }
    for (; *text != '\0'; text++) {
        (void)fputc(*text == '\t' || *text == '\n' || *text == '\r' ? ' ' : *text, file);
    }
}

static void value_cell(FILE *file, const json_t *value)
{
    if (json_is_integer(value)) {
        (void)fprintf(file, "\t%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        (void)fprintf(file, "\t%.10g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        (void)fprintf(file, "\t%d", json_is_true(value) ? 1 : 0);
    } else if (json_is_string(value)) {
        text_cell(file, json_string_value(value));
    } else {
        (void)fputs("\tnan", file); /* gnuplot leaves such a point out */
    }
}

static void headings(struct sim_sweep_table *table)
{
    const struct sim_sweep *grid = table->sweep->grid;

    (void)fprintf(table->row_file, "# halage-sim %s sweep of %s, scenario %s\n", sim_version(),
                  table->sweep->scenario, table->base);
    (void)fputs("point", table->row_file);
    for (uint32_t i = 0; i < grid->axis_count; i++) {
        text_cell(table->row_file, grid->axes[i].name);
    }
    (void)fputs("\tstatus", table->row_file);
    for (size_t i = 0; i < COLUMNS; i++) {
        (void)fprintf(table->row_file, "\t%s", columns[i].name);
    }
    (void)fputs("\tcalibration\textrapolated\tscenario_digest\tsentence\n", table->row_file);
}

int sim_sweep_table_begin(const struct sim_sweep_run *sweep, struct sim_sweep_table **table,
                          char *text, size_t capacity)
{
    struct sim_scenario *scenario = calloc(1, sizeof *scenario);
    struct sim_sweep_table *t = calloc(1, sizeof *t);
    int error = scenario == NULL || t == NULL ? -HLG_ENOMEM : 0;

    if (error == 0) {
        t->sweep = sweep;
        t->points = json_array();
        t->row_file = open_memstream(&t->rows, &t->row_bytes);
        error = t->points == NULL || t->row_file == NULL ? -HLG_ENOMEM : 0;
    }
    if (error != 0) {
        (void)snprintf(text, capacity, "sweep: no memory");
    } else {
        error = sim_scenario_read(scenario, sweep->scenario, sweep->overrides,
                                  sweep->override_count, text, capacity);
    }
    if (error == 0) {
        (void)snprintf(t->base, sizeof t->base, "%016" PRIx64, sim_scenario_digest(scenario));
        sim_scenario_fini(scenario);
        headings(t);
        *table = t;
    } else if (t != NULL) {
        sim_sweep_table_abandon(t);
    }
    free(scenario);
    return error;
}

static const json_t *follow(const json_t *json, const char *const path[4])
{
    for (uint32_t i = 0; i < 4 && path[i] != NULL; i++) {
        json = json_object_get(json, path[i]);
    }
    return json;
}

static bool extrapolated(const json_t *cost)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(cost); i++) {
        any |= json_is_true(json_object_get(json_array_get(cost, i), "extrapolated"));
    }
    return any;
}

static void add_row(struct sim_sweep_table *table, uint32_t point, uint64_t digest,
                    const json_t *result)
{
    const struct sim_sweep *grid = table->sweep->grid;
    const json_t *report = json_object_get(result, "report");
    const json_t *cost = json_object_get(json_object_get(report, "origin"), "cost");
    FILE *file = table->row_file;

    (void)fprintf(file, "%" PRIu32, point);
    for (uint32_t i = 0; i < grid->axis_count; i++) {
        char label[SIM_AXIS_LABEL_BYTES];
        sim_sweep_label(&grid->axes[i], sim_sweep_entry(grid, point, i), label);
        text_cell(file, label);
    }
    text_cell(file, json_string_value(json_object_get(result, "status")));
    for (size_t i = 0; i < COLUMNS; i++) {
        value_cell(file, follow(report, columns[i].path));
    }
    text_cell(file, json_string_value(json_object_get(json_array_get(cost, 0), "calibration")));
    (void)fprintf(file, "\t%d\t%016" PRIx64, extrapolated(cost), digest);
    text_cell(file, json_string_value(json_object_get(result, "sentence")));
    (void)fputc('\n', file);
}

int sim_sweep_table_add(struct sim_sweep_table *table, uint32_t point, uint64_t digest,
                        json_t *result)
{
    const struct sim_sweep *grid = table->sweep->grid;
    json_t *keys = json_object();
    json_t *entry = json_copy(result);

    if (keys == NULL || entry == NULL) {
        json_decref(keys);
        json_decref(entry);
        return -HLG_ENOMEM;
    }
    for (uint32_t i = 0; i < grid->axis_count; i++) {
        char label[SIM_AXIS_LABEL_BYTES];
        sim_sweep_label(&grid->axes[i], sim_sweep_entry(grid, point, i), label);
        (void)json_object_set_new(keys, grid->axes[i].name, json_string(label));
    }
    (void)json_object_set_new(entry, "point", json_integer((json_int_t)point));
    (void)json_object_set_new(entry, "set", keys);
    add_row(table, point, digest, result);
    return json_array_append_new(table->points, entry) == 0 ? 0 : -HLG_ENOMEM;
}

static int write_rows(FILE *file, void *context)
{
    const struct sim_sweep_table *table = context;
    return fwrite(table->rows, 1, table->row_bytes, file) == table->row_bytes ? 0 : -HLG_EIO;
}

static int write_points(FILE *file, void *context)
{
    const struct sim_sweep_table *table = context;
    json_t *json = json_pack("{s{ss ss ss ss} sO}", "origin", "program", "halage-sim", "version",
                             sim_version(), "scenario", table->sweep->scenario, "scenario_digest",
                             table->base, "points", table->points);
    const int error = json == NULL ? -HLG_ENOMEM : sim_report_json_write(file, json);

    json_decref(json);
    return error;
}

int sim_sweep_table_write(struct sim_sweep_table *table, char *text, size_t capacity)
{
    const char *folder = table->sweep->folder;
    char path[SIM_PATH_MAX + 16];
    int error = ferror(table->row_file) != 0 || fflush(table->row_file) != 0 ? -HLG_ENOMEM : 0;

    if (error == 0) {
        (void)snprintf(path, sizeof path, "%s/sweep.tsv", folder);
        error = sim_report_file(path, write_rows, table, text, capacity);
    }
    if (error == 0) {
        (void)snprintf(path, sizeof path, "%s/sweep.json", folder);
        error = sim_report_file(path, write_points, table, text, capacity);
    }
    sim_sweep_table_abandon(table);
    return error;
}

void sim_sweep_table_abandon(struct sim_sweep_table *table)
{
    if (table->row_file != NULL) {
        (void)fclose(table->row_file);
    }
    free(table->rows);
    json_decref(table->points);
    free(table);
}
