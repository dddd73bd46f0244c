/*
 * What is written about a run made by hand (sim_hand.h): text and JSON equal golden files, CSV reads
 * back as the records, the trace is JSON whose spans nest, files appear whole or not at all.
 *
 * Golden files lie in tests/unit/golden; HALAGE_UPDATE_GOLDEN=1 writes them anew. Read the difference.
 */
#define _GNU_SOURCE

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "sim_hand.h"

#define MS HLG_NS_PER_MS

static char folder[] = "/tmp/halage-report-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The whole file, to be freed; NULL: there is none. */
static char *slurp(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t length = 0;

    if (file == NULL) {
        return NULL;
    }
    const ssize_t read = getdelim(&text, &length, '\0', file);
    (void)fclose(file);
    if (read < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void expect_golden(const char *name, const char *text)
{
    const char *source = getenv("HALAGE_SOURCE_DIR");
    char path[512];

    if (source == NULL) {
        print_message("HALAGE_SOURCE_DIR is not set\n");
        skip();
    }
    (void)snprintf(path, sizeof path, "%s/tests/unit/golden/%s", source, name);
    if (getenv("HALAGE_UPDATE_GOLDEN") != NULL) {
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
    }
    char *golden = slurp(path);
    assert_non_null(golden);
    assert_string_equal(text, golden);
    free(golden);
}

/* 40 requests: one waits for prefill, one for its last token, one failed. An SLO, samples, flags. */
static struct hand *make_hand(void)
{
    struct hand *hand = hand_make(40);

    hand_stop(hand, 38, SIM_STARTED);
    hand_stop(hand, 39, SIM_FINISHED);
    hand_stop(hand, 5, SIM_LANDED);
    hand->records[5].outcome = SIM_FAILED;
    hand->records[5].at[SIM_FINISHED] = hand->records[5].at[SIM_COMPUTED] + 7 * MS;
    hand->records[4].cached_tokens = 640;
    hand->scenario.measure.slo_ttft_ns = 50.0 * MS;
    hand->scenario.measure.slo_tpot_ns = 20.0 * MS;
    hand->run.basis[1].extrapolated = true;
    (void)snprintf(hand->run.basis[1].why, sizeof hand->run.basis[1].why,
                   "attention: no table for H200 with fp8 KV");
    (void)snprintf(hand->run.basis[0].why, sizeof hand->run.basis[0].why,
                   "scaled from another shape: experts");
    hand->nodes[0].forwards = 30;
    hand->nodes[1].forwards = 40;
    hand->nodes[1].beyond = 8;
    hand->run.series_count = 2;
    hand->run.series[0] = (struct sim_sample){.at = 2000 * MS, .nic_out = 0.25F};
    hand->run.series[1] = (struct sim_sample){.at = 4000 * MS, .nic_out = 0.5F};
    return hand;
}

static struct sim_metrics measure(const struct hand *hand)
{
    struct sim_metrics metrics;
    assert_int_equal(sim_metrics(&hand->scenario, &hand->workload, &hand->run, &metrics), 0);
    return metrics;
}

static char *text_of(const struct hand *hand)
{
    const struct sim_metrics metrics = measure(hand);
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    assert_non_null(file);
    assert_int_equal(sim_report_text(file, &hand->scenario, &hand->run, &metrics), 0);
    assert_int_equal(fclose(file), 0);
    return text;
}

static char *json_of(const struct hand *hand)
{
    const struct sim_metrics metrics = measure(hand);
    json_t *json = sim_report_json(&hand->scenario, &hand->run, &metrics);
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    assert_non_null(json);
    assert_non_null(file);
    assert_int_equal(sim_report_json_write(file, json), 0);
    assert_int_equal(fclose(file), 0);
    json_decref(json);
    return text;
}

static void text_is_the_golden_one(void **state)
{
    struct hand *hand = make_hand();
    char *text = text_of(hand);
    uint32_t lines = 0;

    (void)state;
    expect_golden("report.txt", text);
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        assert_true(strchr(line, '\n') - line <= 100);
        lines++;
    }
    assert_in_range(lines, 30, 45);
    free(text);
    hand_free(hand);
}

static void json_is_the_golden_one(void **state)
{
    struct hand *hand = make_hand();
    char *text = json_of(hand);

    (void)state;
    expect_golden("report.json", text);
    free(text);
    hand_free(hand);
}

/* Without a request there is nothing to divide by, and the JSON has no number that it cannot have. */
static void empty_runs_are_told_too(void **state)
{
    struct hand *hand = hand_make(1);

    (void)state;
    hand->run.record_count = 0;
    hand->run.end_ns = 0;
    memset(&hand->run.gaps, 0, sizeof hand->run.gaps);
    char *text = text_of(hand);
    char *json = json_of(hand);
    assert_non_null(strstr(text, "no request has one"));
    assert_null(strstr(text, "nan"));
    json_error_t error;
    json_t *parsed = json_loads(json, 0, &error);
    assert_non_null(parsed);
    assert_true(json_is_null(
        json_object_get(json_object_get(json_object_get(parsed, "latency"), "ttft_ms"), "p50")));
    json_decref(parsed);
    free(text);
    free(json);
    hand_free(hand);
}

/* ---- CSV ---- */

struct csv {
    const struct hand *hand;
    struct sim_metrics metrics;
};

static int write_csv(FILE *file, void *context)
{
    const struct csv *csv = context;
    return sim_report_csv(file, &csv->hand->scenario, &csv->hand->workload, &csv->hand->run,
                          &csv->metrics);
}

/* Field `index` of a row, as a number; HLG_TIME_NEVER where it is empty. */
static uint64_t field(const char *row, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        row = strchr(row, ',');
        assert_non_null(row);
        row++;
    }
    return *row == ',' || *row == '\n' ? HLG_TIME_NEVER : strtoull(row, NULL, 10);
}

static uint32_t column(const char *heading, const char *name)
{
    const char *found = strstr(heading, name);
    uint32_t index = 0;

    assert_non_null(found);
    assert_true(found == heading || found[-1] == ',');
    for (const char *c = heading; c < found; c++) {
        index += *c == ',';
    }
    return index;
}

static void csv_reads_back(void **state)
{
    struct hand *hand = make_hand();
    struct csv csv = {hand, measure(hand)};
    char text[256];

    (void)state;
    assert_int_equal(sim_report_file(in_folder("run.csv"), write_csv, &csv, text, sizeof text), 0);
    char *whole = slurp(in_folder("run.csv"));
    assert_non_null(whole);
    assert_int_equal(strncmp(whole, "# halage-sim ", 13), 0);
    assert_non_null(strstr(whole, "scenario 0123456789abcdef"));
    assert_non_null(strstr(whole, "extrapolated yes\n"));
    const char *heading = strchr(whole, '\n') + 1;
    const uint32_t arrived = column(heading, "arrived_ns");
    const uint32_t bytes = column(heading, "landed_bytes");
    const uint32_t ttft = column(heading, "ttft_ns");
    const char *row = heading;
    for (uint32_t i = 0; i < 40; i++) {
        const struct sim_record *record = &hand->records[i];
        row = strchr(row, '\n') + 1;
        assert_int_equal(field(row, 0), i);
        assert_int_equal(field(row, bytes), record->bytes);
        for (uint32_t moment = 0; moment < SIM_MOMENTS; moment++) {
            assert_true(field(row, arrived + moment) == record->at[moment]);
        }
        const bool first = record->at[SIM_FIRST] != HLG_TIME_NEVER;
        assert_int_equal(field(row, ttft),
                         first ? 45 * MS : hand->run.end_ns - record->at[SIM_ARRIVED]);
    }
    assert_string_equal(strchr(row, '\n'), "\n");
    free(whole);
    hand_free(hand);
}

/* ---- Explain ---- */

static void explain_tells_each_moment(void **state)
{
    struct hand *hand = make_hand();
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    (void)state;
    assert_non_null(file);
    assert_int_equal(sim_report_explain(file, &hand->scenario, &hand->run, 3), 0);
    assert_int_equal(sim_report_explain(file, &hand->scenario, &hand->run, 38), 0);
    assert_int_equal(sim_report_explain(file, &hand->scenario, &hand->run, 40), -HLG_EINVAL);
    assert_int_equal(fclose(file), 0);
    expect_golden("explain.txt", text);
    free(text);
    hand_free(hand);
}

/* ---- Trace ---- */

static int64_t thousandths(const json_t *number)
{
    return llround(json_number_value(number) * 1000);
}

/* Two spans of one thread lie apart, or one within the other. */
static bool nest(const json_t *a, const json_t *b)
{
    const int64_t a_begin = thousandths(json_object_get(a, "ts"));
    const int64_t b_begin = thousandths(json_object_get(b, "ts"));
    const int64_t a_end = a_begin + thousandths(json_object_get(a, "dur"));
    const int64_t b_end = b_begin + thousandths(json_object_get(b, "dur"));
    return a_end <= b_begin || b_end <= a_begin || (a_begin <= b_begin && b_end <= a_end) ||
           (b_begin <= a_begin && a_end <= b_end);
}

static void trace_of(const struct hand *hand, const char *path)
{
    struct sim_trace *trace = NULL;
    char text[256];

    assert_int_equal(sim_trace_open(path, &hand->scenario, &trace, text, sizeof text), 0);
    assert_null(slurp(path));
    for (uint32_t i = 0; i < 10; i++) {
        const struct sim_record *record = &hand->records[i];
        sim_trace_span(trace, &(struct sim_span){"prefill", 0, 0, i, record->at[SIM_STARTED],
                                                 record->at[SIM_COMPUTED], 999});
        sim_trace_span(trace, &(struct sim_span){"request", 1, 2, i, record->at[SIM_SUBMITTED],
                                                 record->at[SIM_FINISHED], 11});
        sim_trace_span(trace, &(struct sim_span){"wait", 1, 2, i, record->at[SIM_SUBMITTED],
                                                 record->at[SIM_READY] + 1, 0});
    }
    assert_int_equal(sim_trace_close(trace, &hand->run, text, sizeof text), 0);
}

static void traces_are_json_and_spans_nest(void **state)
{
    struct hand *hand = hand_make(10);
    json_error_t error;

    (void)state;
    trace_of(hand, in_folder("trace.json"));
    json_t *trace = json_load_file(in_folder("trace.json"), 0, &error);
    assert_non_null(trace);
    const json_t *events = json_object_get(trace, "traceEvents");
    const json_t *other = json_object_get(trace, "otherData");
    assert_string_equal(json_string_value(json_object_get(other, "scenario_digest")),
                        "0123456789abcdef");
    uint32_t spans = 0;
    uint32_t names = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *phase = json_string_value(json_object_get(event, "ph"));
        names += strcmp(phase, "M") == 0;
        if (strcmp(phase, "X") != 0) {
            continue;
        }
        spans++;
        for (size_t j = 0; j < i; j++) {
            const json_t *before = json_array_get(events, j);
            if (strcmp(json_string_value(json_object_get(before, "ph")), "X") == 0 &&
                json_equal(json_object_get(event, "pid"), json_object_get(before, "pid")) &&
                json_equal(json_object_get(event, "tid"), json_object_get(before, "tid"))) {
                assert_true(nest(event, before));
            }
        }
    }
    assert_int_equal(spans, 30);
    assert_int_equal(names, 2 * 2 + 1 + 4); /* names and order of nodes; threads 0, and 0 to 3 */
    json_decref(trace);
    hand_free(hand);
}

/* ---- Files ---- */

static int write_half(FILE *file, void *context)
{
    (void)context;
    (void)fputs("half", file);
    return -HLG_EIO;
}

static int write_text(FILE *file, void *context)
{
    return fputs(context, file) < 0 ? -HLG_EIO : 0;
}

static uint32_t entries(void)
{
    DIR *directory = opendir(folder);
    uint32_t count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

static void files_are_whole_or_as_before(void **state)
{
    char text[256];
    char whole[] = "whole";

    (void)state;
    assert_int_equal(sim_report_file(in_folder("file"), write_text, whole, text, sizeof text), 0);
    const uint32_t before = entries();
    assert_int_equal(sim_report_file(in_folder("file"), write_half, NULL, text, sizeof text),
                     -HLG_EIO);
    char *left = slurp(in_folder("file"));
    assert_string_equal(left, "whole");
    free(left);
    assert_int_equal(entries(), before); /* no temporary file stays */
    assert_int_equal(sim_report_file(in_folder("none/file"), write_text, whole, text, sizeof text),
                     -HLG_EIO);
    assert_non_null(strstr(text, "none/file: cannot create: "));
    struct hand *hand = hand_make(1);
    struct sim_trace *trace = NULL;
    assert_int_equal(
        sim_trace_open(in_folder("none/t"), &hand->scenario, &trace, text, sizeof text), -HLG_EIO);
    assert_int_equal(sim_trace_open(in_folder("t"), &hand->scenario, &trace, text, sizeof text), 0);
    sim_trace_abandon(trace);
    assert_int_equal(entries(), before);
    hand_free(hand);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"run.csv", "trace.json", "file"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)unlink(in_folder(names[i]));
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_the_golden_one),
        cmocka_unit_test(json_is_the_golden_one),
        cmocka_unit_test(empty_runs_are_told_too),
        cmocka_unit_test(csv_reads_back),
        cmocka_unit_test(explain_tells_each_moment),
        cmocka_unit_test(traces_are_json_and_spans_nest),
        cmocka_unit_test(files_are_whole_or_as_before),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
